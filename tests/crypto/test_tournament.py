from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import limbs
from hedgerow.crypto.compare import Circuit
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.lifting import deal_gains, gains
from hedgerow.crypto.shares import SUM32, SUM64, Share, limbs_kind
from hedgerow.crypto.tournament import Plan, _grouped, secret_handles, tournament
from hedgerow.errors import InvalidParameter, InvalidType
from twins.conversation import Conversation
from twins.openings import repeated_masks
from twins.share_table import Table, deal_tournament, value_of

CIRCUITS = [Circuit(5, 6), Circuit(4, 4), Circuit(5, 4), Circuit(4, 6)]
GROUPS = range(2, 9)


def make(values, n_limbs):
    """Numbers [..., L]."""
    flat = [limbs.constant(int(value), n_limbs) for value in values.reshape(-1)]
    return np.array(flat, np.uint32).reshape(*values.shape, n_limbs)


def best_of(P, Q):
    """The first of the best candidates, in Python's integers."""
    best = 0
    for i in range(1, len(P)):
        if P[i] * Q[best] > P[best] * Q[i]:
            best = i
    return best


def winners(table, P, Q, plan):
    """The positions that win, by node; handles are the positions, disguised."""
    handles = (np.arange(P.size, dtype=np.uint32) * np.uint32(2654435761)).reshape(P.shape)
    shares = [
        table.split(make(P, plan.n_limbs), plan.kind),
        table.split(make(Q, plan.n_limbs), plan.kind),
        table.split(handles, SUM32),
    ]
    opened = value_of(play(table, shares, plan))
    return [int(np.flatnonzero(handles[node] == opened[node])[0]) for node in range(plan.n_nodes)]


def play(table, shares, plan):
    """The shares of the winners' handles of all parties."""
    return table.talk(
        lambda step: deal_tournament(lambda _: step, plan),
        lambda step, me: tournament(lambda _: step, *(x[me] for x in shares), plan, is_first=me == 0),
    )


def fractions(draw, shape, n_limbs, *, coarse):
    """P >= 0 and Q > 0 whose cross products just fit; coarse ones are often equal, also without being the same."""
    if coarse:
        scale = draw.integers(1, 5, shape).astype(object)
        return draw.integers(0, 4, shape) * scale, draw.integers(1, 4, shape) * scale
    bits = 32 * n_limbs - 1
    p_bits = bits * 3 // 5
    sizes = [draw.integers(0, bound + 1, shape) for bound in (p_bits, bits - p_bits)]
    P, Q = (
        np.array([int.from_bytes(draw.bytes(40), "little") % (1 << int(k)) for k in size.reshape(-1)], object)
        for size in sizes
    )
    return P.reshape(shape), Q.reshape(shape) + 1 * (Q.reshape(shape) == 0)


@settings(max_examples=90, deadline=None)
@given(st.data())
def test_the_first_of_the_best_wins(data):
    """Against Python's integers: 2 to 8 parties, 96 to 256 bits, groups of 2 to 8, both selects, all circuits."""
    n_limbs = data.draw(st.integers(3, 8))
    plan = Plan(
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 40)),
        n_limbs,
        tuple(data.draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3))),
        data.draw(st.sampled_from(["table", "lean", ("lean", "table"), ("table", "lean")])),
        data.draw(st.sampled_from(CIRCUITS)),
    )
    run = data.draw(st.integers(0, 2**30))
    draw = np.random.default_rng(run)
    P, Q = fractions(draw, (plan.n_nodes, plan.n_candidates), n_limbs, coarse=data.draw(st.booleans()))
    table = Table(data.draw(st.integers(2, 8)), run)
    assert winners(table, P, Q, plan) == [best_of(p, q) for p, q in zip(P, Q, strict=True)]
    assert table.meter.rounds == len(plan.openings())
    assert table.meter.sent_bytes == sum(plan.openings())


@pytest.mark.parametrize("select", ["table", "lean"])
@pytest.mark.parametrize("group", GROUPS)
def test_every_place_in_a_group_can_win(group, select):
    """One level: for every place the best alone, and two equal best at every two places, of which the first wins."""
    pairs = list(itertools.combinations_with_replacement(range(group), 2))
    P, Q = np.full((len(pairs), group), 6, object), np.full((len(pairs), group), 3, object)
    for node, (first, second) in enumerate(pairs):
        P[node, first] = 9
        P[node, second], Q[node, second] = (9, 3) if first == second else (3, 1)
    plan = Plan(len(pairs), group, 3, (group,), select)
    assert len(list(plan.levels())) == 1
    assert winners(Table(3), P, Q, plan) == [first for first, _ in pairs]


@pytest.mark.parametrize("select", ["table", "lean"])
def test_fillers_never_win(select):
    """With P = 0 everywhere the first candidate wins, in every group and against all fillers, whatever Q is."""
    for n in (5, 6, 7, 9, 17):
        plan = Plan(2, n, 3, (4,), select)
        assert any(level.padding for level in plan.levels()) == (n != 4)
        Q = np.arange(1, 2 * n + 1).reshape(2, n).astype(object) ** 5
        assert winners(Table(2, n), np.zeros((2, n), object), Q, plan) == [0, 0]


def test_fillers_are_shared_as_nothing():
    """P = 0 and Q = 1 in all: only the first party has the 1. They stand after all candidates of a node."""
    plan = Plan(2, 5, 3, (4,))
    level = next(plan.levels())
    entries = np.full((2, 2, 5, 3), 7, np.uint32), np.full((2, 5), 7, np.uint32)
    found = [_grouped(*entries, level, plan, is_first=is_first) for is_first in (True, False)]
    for (fractions_, handles), one in zip(found, (1, 0), strict=True):
        by_node = fractions_.reshape(2, 2, 8, 3)
        assert np.all(by_node[:, :, :5] == 7)
        assert not by_node[0, :, 5:].any()
        assert by_node[1, :, 5:].tolist() == [[[one, 0, 0]] * 3] * 2
        assert handles.reshape(2, 8).tolist() == [[7] * 5 + [0] * 3] * 2


@pytest.mark.parametrize("select", ["table", "lean"])
def test_a_candidate_of_one_party_alone(select):
    """Zeros at all others are a share as any other: the label holder's own candidate, at position 0, and its handle."""
    table, n_limbs = Table(3), 4
    plan = Plan(3, 6, n_limbs, (3,), select)
    P = np.array([[9, 1, 2, 3, 4, 5], [3, 1, 2, 3, 3, 3], [2, 1, 2, 2, 4, 5]], object)
    shares = []
    for x in (P, np.ones_like(P)):
        words = make(x, n_limbs)
        of_others = table.split(words[:, 1:], plan.kind)
        alone = [words[:, :1], np.zeros_like(words[:, :1]), np.zeros_like(words[:, :1])]
        shares.append([
            Share(np.concatenate([mine, other.words], axis=1), plan.kind)
            for mine, other in zip(alone, of_others, strict=True)
        ])  # fmt: skip
    random = SecureRandom.from_seed(bytes(32))
    own, theirs = np.full((3, 1), 1, np.uint32), secret_handles(random, 3, 2, 5)
    nothing = np.zeros((3, 6), np.uint32)
    entered = [nothing.copy() for _ in range(3)]
    entered[0][:, :1] = own
    entered[1][:, 1:] = theirs  # the owner chooses the handles of its candidates
    handles = [Share(words, SUM32) for words in entered]
    assert value_of(play(table, [*shares, handles], plan)).tolist() == [1, 1, theirs[2, 4]]


def test_secret_handles():
    """Each node has all numbers once, in an order of its own."""
    random = SecureRandom.from_seed(bytes(32))
    found = secret_handles(random, 50, 100, 30)
    assert found.dtype == np.uint32
    assert np.array_equal(np.sort(found, axis=1), np.tile(np.arange(100, 130), (50, 1)))
    assert len(np.unique(found, axis=0)) == 50
    assert abs(found.mean(axis=0) - 114.5).max() < 5 * 8.66 / np.sqrt(50)


@pytest.mark.parametrize("select", ["table", "lean"])
def test_sums_to_winners(select):
    """Lifting and tournament together choose what the plain formula of gains chooses, with a step for each level."""
    n_nodes, n, lambda_int, n_limbs = 4, 23, 2**10, 5
    draw = np.random.default_rng(3)
    G, H = (draw.integers(low, 2**14, (2, n_nodes, n)).astype(object) for low in (-(2**14), 0))
    table = Table(3)
    shares = [table.split((x % 2**32).astype(np.uint32), SUM32) for x in (G[0], H[0], G[1], H[1])]
    kind = limbs_kind(n_limbs)
    lifted = table.talk(
        lambda step: deal_gains(step, n_nodes * n, SUM32, kind),
        lambda step, me: gains(step, tuple(x[me] for x in shares), lambda_int, kind, is_first=me == 0),
    )
    plan = Plan(n_nodes, n, n_limbs, (3, 3, 4), select)
    labels = [Label(tree=9, part=place) for place, _ in enumerate(plan.levels())]
    dealt = []
    deal_tournament(lambda place: dealt.append(table.dealer.step(labels[place])) or dealt[-1], plan)
    handles = np.arange(n_nodes * n, dtype=np.uint32).reshape(n_nodes, n)
    handle_shares = table.split(handles, SUM32)

    def take_part(me):
        steps = [None] * len(labels)

        def step_of(place):
            steps[place] = table.hands[me].step(labels[place], dealt[place].corrections().get(me))
            return steps[place]

        return tournament(step_of, *lifted[me], handle_shares[me], plan, is_first=me == 0)

    talks = [Conversation(take_part(me)) for me in range(3)]
    while not talks[0].is_over:
        sent = [talk.send() for talk in talks]
        for talk in talks:
            talk.receive(sent)
    found = value_of([talk.result for talk in talks])
    P = G[0] ** 2 * (H[1] + lambda_int) + G[1] ** 2 * (H[0] + lambda_int)
    Q = (H[0] + lambda_int) * (H[1] + lambda_int)
    expected = [handles[node, best_of(P[node], Q[node])] for node in range(n_nodes)]
    assert found.tolist() == expected


# Rounds and bytes


@pytest.mark.parametrize(
    ("groups", "select", "rounds", "opened", "dealt"),
    [((4, 4, 4, 5), "table", 20, 556, 5.6), ((4, 4, 4, 5), "lean", 24, 558, 2.9), ((7, 7, 7), "lean", 18, 745, 4.9)],
)
def test_a_tree_of_the_study(groups, select, rounds, opened, dealt):
    """15 nodes of 311 candidates, 160 bits: rounds per level, KB opened and MB dealt are no more than the study's."""
    table = Table(3, keeps_openings=False)
    for n_nodes in (1, 2, 4, 8):
        plan = Plan(n_nodes, 311, 5, groups, select)
        assert len(plan.openings()) == rounds
        words = [np.zeros((n_nodes, 311, 5), np.uint32)] * 3
        wide = [Share(each, plan.kind) for each in words]
        handles = [Share(np.ascontiguousarray(each[..., 0]), SUM32) for each in words]
        play(table, [wide, wide, handles], plan)
    assert table.meter.rounds == 4 * rounds
    assert table.meter.sent_bytes / 1e3 < opened
    assert table.meter.dealt_bytes / 1e6 < dealt


def test_one_candidate_needs_no_rounds():
    """It wins."""
    plan = Plan(2, 1, 3)
    assert len(plan.openings()) == 0
    table = Table(2)
    assert winners(table, np.ones((2, 1), object), np.ones((2, 1), object), plan) == [0, 0]
    assert table.meter.rounds == 0


# What others see


@cache
def openings(run, select, *, twice=False):
    """All that is opened for fixed fractions; with `twice`, others are compared with the same dealt masks."""
    found = []
    for factor in (1, 3) if twice else (1,):
        table = Table(3, run)
        plan = Plan(1, 5, 3, (3, 2), select, Circuit(4, 6))
        P = np.array([[3, 4, 4, 1, 2]], object) * factor
        winners(table, P, np.array([[1, 1, 1, 1, 2]], object) * factor, plan)
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


@pytest.mark.parametrize("select", ["table", "lean"])
def test_no_mask_covers_two_values(select):
    """No opened words or bits move together from seed to seed, in all rounds; the control uses every mask twice."""
    runs = [openings(run, select) for run in range(60)]
    names = {"fractions 1", "handles 1", "sign 1", "and 1", "pairs 1"}
    assert {opening.name for opening in runs[0]} == names | ({"winners 1"} if select == "lean" else set())
    assert repeated_masks(runs) == []
    found = repeated_masks([openings(run, select, twice=True) for run in range(60)])
    pairs = {(first, second) for first, second, _ in found}
    assert {(("fractions 1", k), ("fractions 3", k)) for k in range(12)} <= pairs
    assert {(("sign 1", k), ("sign 3", k)) for k in range(6)} <= pairs
    assert {(("pairs 1", k), ("pairs 3", k)) for k in range(6)} <= pairs


@pytest.mark.parametrize("select", ["table", "lean"])
def test_opened_bits_are_balanced(select):
    """For fixed fractions every opened bit is 1 in about half of the runs."""
    bits = [
        np.concatenate([
            opening.words if opening.how == "bits" else np.unpackbits(opening.words.reshape(-1).view(np.uint8))
            for opening in openings(run, select)
        ])
        for run in range(300)
    ]  # fmt: skip
    assert np.abs(np.mean(bits, axis=0) - 0.5).max() < 5.2 * 0.5 / np.sqrt(300)


# Bad input


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"groups": (4, 9)}, r"between 2 and 8, got \(4, 9\)"),
        ({"groups": (1,)}, r"between 2 and 8, got \(1,\)"),
        ({"groups": ()}, "between 2 and 8"),
        ({"select": "quick"}, "'quick'"),
        ({"select": ()}, r"per level, got \(\)"),
        ({"n_nodes": 0}, "n_nodes=0"),
        ({"n_candidates": 0}, "n_candidates=0"),
        ({"n_limbs": 17}, "got 17"),
    ],
)
def test_plans_that_cannot_be(changed, said):
    """Each is refused by name."""
    good = {"n_nodes": 1, "n_candidates": 3, "n_limbs": 4}
    with pytest.raises(InvalidParameter, match=said):
        Plan(**{**good, **changed})


def test_entries_that_do_not_fit_the_plan():
    """Kinds and shapes are checked before anything is drawn."""
    plan = Plan(1, 3, 4)
    wide = Share(np.zeros((1, 3, 4), np.uint32), plan.kind)
    handles = Share(np.zeros((1, 3), np.uint32), SUM32)
    narrow = Share(np.zeros((1, 3, 3), np.uint32), limbs_kind(3))
    long = Share(np.zeros((1, 3), np.uint64), SUM64)
    for entries in ((narrow, wide, handles), (wide, narrow, handles), (wide, wide, long)):
        with pytest.raises(InvalidType, match="of kinds limbs:4, limbs:4, sum32"):
            next(tournament(None, *entries, plan, is_first=True))
    with pytest.raises(InvalidType, match=r"of shape \(1, 3\)"):
        next(tournament(None, wide[:, :2], wide, handles, plan, is_first=True))
