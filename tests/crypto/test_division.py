from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import division, limbs
from hedgerow.crypto.dealing import Dealer, Hand, Label
from hedgerow.crypto.division import PAPER_ITERATIONS, Division, deal_quotients, quotients
from hedgerow.crypto.shares import SUM64, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType
from twins.conversation import Conversation
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

FOUR, SIX = limbs_kind(4), limbs_kind(6)


def words(values, kind):
    """Python's integers as numbers of the ring."""
    return np.stack([limbs.constant(value, kind.limbs) for value in values])


def quotients_at(table, c, d, plan):
    """c / d 2**F, opened."""
    c_shares, d_shares = (table.split(words(values, plan.kind), plan.kind) for values in (c, d))
    found = table.talk(
        lambda step: deal_quotients(lambda _: step, plan),
        lambda step, me: quotients(lambda _: step, c_shares[me], d_shares[me], plan, is_first=me == 0),
    )
    return limbs.to_ints(value_of(found))


def assert_near(found, c, d, plan):
    """The bound that the module's text derives, in exact fractions."""
    for quotient, above, below in zip(found, c, d, strict=True):
        true = Fraction(above << plan.fraction_bits, below)
        assert abs(quotient - true) <= abs(true) * Fraction(plan.relative_error) + 1


@st.composite
def cases(draw):
    """(low, high, largest numerator, c, d): denominators at the bounds and between, numerators of all sizes."""
    low = draw(st.one_of(st.sampled_from([1, 2**13]), st.integers(1, 2**20)))
    high = low * draw(st.sampled_from([1, 2, 1000])) + draw(st.one_of(st.just(0), st.integers(0, 2**20)))
    largest = draw(st.sampled_from([1, 1000, 2**60]))
    n = draw(st.integers(1, 6))
    inside = st.one_of(st.sampled_from([low, high, (low + high) // 2]), st.integers(low, high))
    above = st.one_of(st.sampled_from([-largest, 0, 1, largest]), st.integers(-largest, largest))
    c, d = (draw(st.lists(part, min_size=n, max_size=n)) for part in (above, inside))
    return low, high, largest, c, d


@settings(max_examples=25, deadline=None)
@given(cases(), st.integers(2, 4), st.integers(0, 2**30))
def test_quotients_are_near(case, n_parties, run):
    """Any bounds and numbers: the error is at most the relative error of the plan, below 2**-30, and one unit."""
    low, high, largest, c, d = case
    plan = Division.of(len(c), SIX, low=low, high=high, largest_numerator=largest)
    assert plan.relative_error <= 2**-30
    table = Table(n_parties, run)
    assert_near(quotients_at(table, c, d, plan), c, d, plan)
    assert table.meter.rounds == 4 * plan.n_iterations + 3


@pytest.mark.parametrize("low", [1, 1 << 13, 1 << 30])
def test_the_whole_range_in_one_batch(low):
    """Denominators from low to 2**31, numerators up to a ring's end: squares of sums over hessians and lambda."""
    high = 1 << 31
    d = sorted({low, low + 1, high, high - 1, (low + high) // 2, *(1 << p for p in range(low.bit_length(), 31))})
    d = [*d, *d]
    c = [(1 << 60) * (-1) ** i if i % 3 else 12345 for i in range(len(d))]
    plan = Division.of(len(d), SIX, low=low, high=high, largest_numerator=1 << 60)
    assert_near(quotients_at(Table(3), c, d, plan), c, d, plan)


def test_fewer_turns_are_worse_and_the_plan_says_so():
    """The bound holds for every number of turns, and is nearly reached before the last ones: it can fail."""
    low, high, n = 1 << 10, 1 << 20, 40
    d = [int(low * (high / low) ** (i / (n - 1))) for i in range(n)]
    needed = Division.of(n, SIX, low=low, high=high, largest_numerator=1 << 40).n_iterations
    for turns in (1, 4, needed - 1, needed):
        plan = Division(n, SIX, low, high, 1 << 40, 20, 30, turns)
        assert (plan.relative_error <= 2**-30) == (turns == needed)
        found = quotients_at(Table(2, turns), [1 << 40] * n, d, plan)
        assert_near(found, [1 << 40] * n, d, plan)
        worst = max(abs(1 - Fraction(q * x, 1 << 60)) for q, x in zip(found, d, strict=True))
        if turns < needed - 1:
            assert worst > plan.relative_error * 0.9


def test_turns_follow_from_the_bounds():
    """One turn more for each doubling of high / low; exact bounds need one; the paper's 20 can be asked for."""
    plans = [Division.of(1, limbs_kind(8), low=1 << 10, high=1 << p, largest_numerator=1) for p in range(16, 40)]
    turns = [plan.n_iterations for plan in plans]
    assert set(np.diff(turns)) == {1}
    assert Division.of(1, FOUR, low=77, high=77, largest_numerator=1).n_iterations == 1
    asked = Division.of(1, FOUR, low=77, high=78, largest_numerator=1, least_iterations=PAPER_ITERATIONS)
    assert asked.n_iterations == 20
    assert 2 * asked.n_iterations + 1 == 41


def test_products_are_those_that_are_dealt(monkeypatch):
    """The dealer makes two products per turn and one, and the bytes agree: 6 numbers per turn, and 5."""
    made = []
    deal = division._deal_times
    monkeypatch.setattr(division, "_deal_times", lambda step, a, b, kind: made.append(len(a)) or deal(step, a, b, kind))
    n, table = 64, Table(3)
    plan = Division.of(n, FOUR, low=1 << 13, high=1 << 25, largest_numerator=1 << 40, precision_bits=20)
    c, d = [12345] * n, [99999] * n
    assert_near(quotients_at(table, c, d, plan), c, d, plan)
    assert sum(made) == n * (2 * plan.n_iterations + 1)
    assert 0 <= table.meter.dealt_bytes - 16 * n * (6 * plan.n_iterations + 5) <= 3 * 16
    assert table.meter.sent_bytes == 16 * n * (4 * plan.n_iterations + 5)
    assert table.meter.rounds == 4 * plan.n_iterations + 3


def test_steps_of_their_own():
    """The start, each turn and the last product in steps of their own."""
    seeds = [bytes([m]) * 32 for m in range(2)]
    plan = Division.of(2, FOUR, low=5, high=99, largest_numerator=1000)
    dealer, dealt = Dealer(seeds), []
    deal_quotients(lambda i: dealt.append(dealer.step(Label(step=i))) or dealt[-1], plan)
    assert len(dealt) == plan.n_iterations + 2
    parcels = [step.corrections() for step in dealt]
    table = Table(2)
    c, d = (table.split(words(values, FOUR), FOUR) for values in ([-1000, 7], [5, 99]))

    def hand_steps(me):
        hand = Hand(seeds[me], me, 2)
        return lambda i: hand.step(Label(step=i), parcels[i].get(me))

    talks = [Conversation(quotients(hand_steps(me), c[me], d[me], plan, is_first=me == 0)) for me in range(2)]
    while not talks[0].is_over:
        sent = [talk.send() for talk in talks]
        for talk in talks:
            talk.receive(sent)
    assert_near(limbs.to_ints(value_of([talk.result for talk in talks])), [-1000, 7], [5, 99], plan)


# What others see


def openings(run):
    """All that is opened for fixed numbers."""
    table = Table(3, run)
    plan = Division.of(3, FOUR, low=100, high=1000, largest_numerator=1000)
    quotients_at(table, [1, -1000, 500], [100, 1000, 321], plan)
    return table.opened


def test_no_mask_covers_two_values():
    """No two opened words move together from seed to seed, over all turns."""
    assert repeated_masks([openings(run) for run in range(4)]) == []


def test_opened_bits_are_balanced():
    """For fixed numbers every opened bit is 1 in about half of the runs."""
    runs = np.stack([np.concatenate([opening.words for opening in openings(run)]) for run in range(120)])
    bits = np.unpackbits(runs.reshape(120, -1).view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(120)


# Bad input


def test_bad_plans_and_calls():
    """Bounds the wrong way round, a ring that is too narrow, and shares of another number or kind."""
    with pytest.raises(InvalidParameter, match="high must be at least low = 10, got 9"):
        Division.of(1, FOUR, low=10, high=9, largest_numerator=1)
    with pytest.raises(InvalidParameter, match="low must be at least 1, got 0"):
        Division.of(1, FOUR, low=0, high=9, largest_numerator=1)
    with pytest.raises(InvalidParameter, match=r"limbs:4 has 128 bits, .* need \d+: use a wider kind"):
        Division.of(1, FOUR, low=1, high=1 << 31, largest_numerator=1 << 60)
    with pytest.raises(InvalidParameter, match="kind must be limbs, got sum64"):
        Division.of(1, SUM64, low=1, high=2, largest_numerator=1)
    with pytest.raises(InvalidParameter, match="fraction_bits must be below 35, got 35"):
        Division.of(1, FOUR, low=3, high=3, largest_numerator=1, fraction_bits=35)
    plan = Division.of(2, FOUR, low=1, high=2, largest_numerator=1)
    share = Table(2).split(words([1], FOUR), FOUR)[0]
    with pytest.raises(InvalidType, match="2 shares of kind limbs:4"):
        next(quotients(None, share, share, plan, is_first=True))
