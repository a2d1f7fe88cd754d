"""vertical.secret_shared: the pooled engine's trees, from shares of which nothing is opened but winners."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hedgerow.crypto.dealing import Label
from hedgerow.crypto.ring import histogram, rows_times
from hedgerow.crypto.shares import SUM32
from hedgerow.crypto.tournament import Plan
from hedgerow.engine.losses import Loss
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.shares import mesh
from hedgerow.protocols.shares import messages as common
from hedgerow.protocols.shares.columns import Cuts, bins_minus, masked_rows
from hedgerow.protocols.shares.playing import NothingToKeep
from hedgerow.protocols.shares.scales import Bounds, Scales, finest
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.secret_shared import messages, shape
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import Shape
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from twins.pooled_trees import first_difference, pooled_twin
from twins.share_table import Table as ShareTable
from twins.vertical import NAMES, make_data, outcomes_of, table_of
from twins.vertical import make_job as job_for
from twins.vertical import play as played


def make_job(data, holder="anna", **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    return job_for(SecretSharedJob, data, holder, **changes)


def play(job, data, **how):
    """All parties in memory: their parts, and the parties with their ledgers. `watch` gets each message received."""
    return played(PROTOCOL, job, data, **how)


def assert_equal_to_pooled(parts, job, data):
    """Same trees, same questions, same directions of missing values, same scores, to the last bit."""
    twin = pooled_twin(job, data)
    assert first_difference(parts, job, twin) is None
    mine = parts[job.label_holder]
    answers = {name: parts[name].answers(parts[name].codes(data[name].table)) for name in job.feature_holders}
    scores = mine.raw_scores(mine.codes(data[job.label_holder].table), answers)
    assert np.array_equal(scores, twin.ensemble.raw_scores_binned(twin.codes))
    return twin.ensemble


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (4, "dora")])
def test_equal_to_the_pooled_engine(n_parties, holder, task):
    """Law: the trees are the pooled engine's, bit for bit, wherever the labels are; every message is in both books."""
    data = make_data(n_parties, task=task, holder=holder)
    job = make_job(data, holder, task=task)
    parts, parties = play(job, data)
    twin = assert_equal_to_pooled(parts, job, data)
    assert sum(tree.n_nodes for tree in twin.trees) > 20
    assert any(part.n_handles for name, part in parts.items() if name in job.feature_holders)
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize(
    "trees",
    [
        {"min_gain": 1.5, "l2": 3.0},
        {"min_gain": 0.1, "l2": 0.0},
        {"l2": 0.3},  # no whole number of units
        {"max_depth": 1},
        {"max_depth": 5, "n_iterations": 1},  # several blocks of nodes in a level, of which the last is not full
        {"gradient_bits": 3},
        {"gradient_bits": 1},  # most hessians are rounded to nothing
        {"min_gain": 1e6},  # no split at all
        {"base_score": 0.7},
    ],
)
def test_rules_of_growth_are_the_engines(trees):
    """Lambda, gamma, depth and the scale of gradients mean what they mean in one table; equal gains go by order."""
    data = make_data(3, n_columns=10)
    job = make_job(data, **trees)
    assert_equal_to_pooled(play(job, data)[0], job, data)


@pytest.mark.parametrize("seed", range(12))
def test_equal_on_small_random_tables(seed):
    """Few rows, few bins, copied columns, gaps, constant columns and labels: ties and stops at every turn."""
    rng = np.random.default_rng(seed)
    n_parties = int(rng.integers(2, 5))
    data = make_data(
        n_parties,
        n_rows=int(rng.integers(20, 120)),
        n_columns=int(rng.integers(2, 4)) * n_parties,
        task=("classification", "regression")[seed % 2],
        missing=(0.0, 0.2)[seed // 2 % 2],
        seed=seed,
    )
    if seed % 3 == 0:
        last = data[NAMES[n_parties - 1]].table
        flat = Column("flat", np.ones(last.n_rows))
        data[NAMES[n_parties - 1]] = PartyData(table_of([flat, *last.columns]))
    if seed == 4:
        data["anna"] = replace(data["anna"], labels=np.ones(len(data["anna"].labels)))
    job = make_job(
        data,
        task=("classification", "regression")[seed % 2],
        min_gain=float(rng.choice([0.0, 0.1])),
        l2=float(rng.choice([0.5, 1.0, 5.0])),
        max_bins=int(rng.integers(3, 12)),
        gradient_bits=None if seed % 4 else int(rng.integers(4, 14)),
    )
    assert_equal_to_pooled(play(job, data)[0], job, data)


def test_gaps_go_where_the_engine_sends_them():
    """Columns with missing values, on both sides: either side is tried for them, and the scores are the engine's."""
    data = make_data(3, n_rows=500, n_columns=9, missing=0.3, seed=5)
    job = make_job(data, n_iterations=3)
    parts, _ = play(job, data)
    assert_equal_to_pooled(parts, job, data)
    directions = {bool(left) for name in job.feature_holders for left in parts[name].questions.missing_left}
    assert directions == {True, False}


def test_the_label_holder_may_have_levels():
    """Columns with levels are sorted by gradients, which only the label holder knows: its own may be of that kind."""
    data = make_data(2, n_rows=400)
    levels = np.random.default_rng(8).integers(0, 6, 400).astype(np.int32)
    labels = (levels % 2 == 0) ^ (data["ben"].table.columns[0].values > 0)
    table = table_of([Column("kind", levels, tuple("abcdef")), *data["anna"].table.columns])
    data["anna"] = replace(data["anna"], table=table, labels=labels.astype(np.float64))
    job = make_job(data)
    parts, _ = play(job, data)
    twin = assert_equal_to_pooled(parts, job, data)
    assert any((tree.level_set >= 0).any() for tree in twin.trees)


def test_two_thousand_rows_of_a_table_as_they_are():
    """Law: 2,000 rows with counts, amounts and gaps, 32 bins, depth 4: the engine's trees, in few rounds a level."""
    rng = np.random.default_rng(9)
    n_rows = 2000
    age = rng.integers(21, 90, n_rows).astype(np.float64)
    income = np.where(rng.random(n_rows) < 0.2, np.nan, np.round(np.exp(rng.normal(8.5, 0.7, n_rows))))
    debt = np.abs(rng.standard_t(2, n_rows)) * 0.4
    late = rng.poisson(0.3, n_rows).astype(np.float64)
    loans = rng.poisson(6, n_rows).astype(np.float64)
    usage = np.clip(rng.beta(0.5, 1.2, n_rows), 0, 1)
    family = np.where(rng.random(n_rows) < 0.03, np.nan, rng.poisson(0.8, n_rows))
    margin = 1.2 * late + 2 * usage - 0.02 * age + 0.5 * np.nan_to_num(family) - 1.0
    labels = (rng.random(n_rows) < 1 / (1 + np.exp(-margin))).astype(np.float64)
    columns = [
        Column(name, values)
        for name, values in (
            ("age", age), ("usage", usage), ("debt", debt), ("income", income), ("loans", loans), ("late", late),
            ("family", family),
        )
    ]  # fmt: skip
    data = {
        "anna": PartyData(table_of(columns[:2]), labels, (0, 1)),
        "ben": PartyData(table_of(columns[2:5])),
        "carla": PartyData(table_of(columns[5:])),
    }
    job = make_job(data, max_bins=32, max_depth=4, n_iterations=3)
    parts, _ = play(job, data)
    assert_equal_to_pooled(parts, job, data)
    meta = parts["anna"].meta
    assert meta["levels"] == 12
    assert meta["rounds"]["training"] <= 21 * meta["levels"]


def test_sums_of_64_bits():
    """More gradient_bits than 32-bit sums can take: they are made modulo 2**64, and nothing else changes."""
    data = make_data(2, n_rows=700)
    job = make_job(data, gradient_bits=21)
    assert Scales.of(job, 700).sums.number_bytes == 8
    assert_equal_to_pooled(play(job, data)[0], job, data)


def test_what_is_large_is_sent_in_pieces(monkeypatch):
    """Masked columns in blocks of rows and gradients in several messages a level: the trees are the same."""
    data = make_data(3, missing=0.1)
    job = make_job(data, n_iterations=1, max_depth=4)
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 3000)
    seen = received_by(data, job, seed=3)["anna", "ben"]
    assert sum(isinstance(message, messages.MaskedColumns) for message in seen) > 4
    assert_equal_to_pooled(play(job, data)[0], job, data)


def test_parts_survive_json():
    """A part is written down and read back as any other protocol's."""
    data = make_data(2)
    parts, _ = play(make_job(data), data)
    assert parts["dealer"] == NothingToKeep()
    for name in ("anna", "ben"):
        assert part_from_dict(parts[name].to_dict()).to_dict() == parts[name].to_dict()


# --- what is sent ----------------------------------------------------------------------------------------------------


def received_by(data, job, seed):
    """What each party got: (receiver, sender) -> messages."""
    seen = {}

    def watch(receiver, sender, message):
        seen.setdefault((receiver, sender), []).append(message)

    play(job, data, seed=seed, watch=watch)
    return seen


def test_the_dealer_hears_nothing_but_seeds_and_sizes():
    """It knows every mask: one message too many, and it reads everything."""
    data = make_data(3)
    seen = received_by(data, make_job(data), seed=3)
    for (receiver, sender), got in seen.items():
        kinds = {type(message) for message in got}
        if receiver == "dealer":
            assert kinds <= {messages.Sizes, common.Seed, messages.LevelDone}
        if sender == "dealer":
            assert kinds == {common.Dealt}


def test_feature_holders_get_no_rows_and_no_gradients():
    """From the label holder come masked words only, which other seeds make wholly different."""
    data = make_data(3)
    job = make_job(data)
    one, other = (received_by(data, job, seed=seed)["ben", "anna"] for seed in (3, 4))
    inputs = [[m for m in got if isinstance(m, messages.LevelInput)] for got in (one, other)]
    assert len(inputs[0]) == len(inputs[1]) > 0
    for a, b in zip(*inputs, strict=True):
        assert a.sums.shape == b.sums.shape
        assert np.mean(a.sums == b.sums) < 0.02
        assert np.mean(a.rows == b.rows) < 0.05
    bits = np.unpackbits(np.concatenate([m.rows for m in inputs[0]]))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(bits))


def test_no_mask_is_used_twice():
    """Masked gradients of two runs with other seeds differ by no constant: equal differences would be a mask reused."""
    data = make_data(2, n_rows=600)
    job = make_job(data)
    sums = []
    for seed in (3, 4):
        got = received_by(data, job, seed)["ben", "anna"]
        sums.append(np.concatenate([m.sums.view(np.uint32) for m in got if isinstance(m, messages.LevelInput)]))
    differences = sums[0] - sums[1]
    n = len(differences)
    repeats = n - len(np.unique(differences))
    assert repeats < 20 + n * n / 2**32


def test_handles_say_whose_split_won_and_no_more():
    """With other random bytes the same splits win under other handles; the label holder's is always the same."""
    data = make_data(3, n_columns=9)
    job = make_job(data)
    opened = []
    for seed in (3, 4):
        seen = received_by(data, job, seed)
        shares = [
            [m.words.view(np.uint32) for m in seen["anna", sender] if isinstance(m, messages.WinnerShare)]
            for sender in ("ben", "carla")
        ]
        own = [m.words.view(np.uint32) for m in seen["ben", "anna"] if isinstance(m, messages.WinnerShare)]
        opened.append(np.concatenate([sum(parts) for parts in zip(own, *shares, strict=True)]))
    one, other = opened
    foreign = one > 1
    assert np.array_equal(foreign, other > 1)
    assert np.array_equal(one[~foreign], other[~foreign])
    assert foreign.sum() >= 4
    assert (one[foreign] != other[foreign]).mean() > 0.5


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"dealer": "ben"}, "dealer"),
        ({"dealer": ""}, "dealer"),
        ({"disclosure": "everything"}, "disclosure"),
        ({"monotone": (1,) * 8}, "monotonic_cst"),
        ({"max_depth": None}, "max_depth"),
        ({"max_depth": 13}, "max_depth"),
        ({"task": "regression", "label_range": None}, "label_range"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(changes, names):
    """What nobody can know on shares is refused before anybody is asked for anything."""
    with pytest.raises(InvalidParameter, match=names):
        make_job(make_data(2), **changes)


def test_a_job_survives_json():
    """What is written down is the same job."""
    job = make_job(make_data(2), task="regression", dealer="dana")
    written = job.to_dict()
    assert SecretSharedJob.from_dict(written) == job
    del written["boosting"]["missing_unseen"]  # older than the parameter
    assert SecretSharedJob.from_dict(written) == job


def test_a_party_without_any_split_is_refused():
    """All its columns are constant."""
    data = make_data(2)
    data["ben"] = PartyData(table_of([Column("flat", np.ones(300))]))
    with pytest.raises(InvalidInput, match="ben: no column has values in two bins"):
        play(make_job(data), data)


def test_labels_outside_their_public_range_are_refused():
    """Gradients would be larger than the rings are made for."""
    data = make_data(2, task="regression")
    job = make_job(data, task="regression", label_range=(-1.0, 1.0))
    with pytest.raises(InvalidInput, match="anna: some labels lie outside"):
        play(job, data)


def test_too_many_gradient_bits_are_refused():
    """By the engine's own sums, before anything is sent."""
    data = make_data(2)
    with pytest.raises(InvalidParameter, match="gradient_bits=25"):
        play(make_job(data, gradient_bits=25), data)


@pytest.mark.parametrize("leaver", ["dealer", "ben"])
def test_who_leaves_is_named(leaver):
    """A dealer or a party that stops in the middle of a tree: all others end, and who notices first names it."""
    data = make_data(3)
    heard = []

    def watch(receiver, _sender, message):
        if receiver == leaver and isinstance(message, messages.LevelDone | messages.WinnerShare):
            heard.append(message)
            if len(heard) == 2:
                raise ConnectionAbortedError

    outcomes, _ = outcomes_of(PROTOCOL, make_job(data, n_iterations=4), data, watch=watch)
    assert isinstance(outcomes[leaver].error, ConnectionAbortedError)
    told = [str(outcome.error) for name, outcome in outcomes.items() if name != leaver]
    assert any(leaver in error for error in told)
    assert all(leaver in error or "another party stopped first" in error for error in told)


@pytest.mark.parametrize("kind", [common.MaskedWords, messages.LevelInput, messages.WhichWay, messages.MaskedColumns])
def test_messages_of_a_wrong_size_are_refused(kind, monkeypatch):
    """Who sent it is named; nothing is made of half a message."""
    data = make_data(2)
    field = {messages.LevelInput: "sums", messages.WhichWay: "answers"}.get(kind, "words")
    original = Party.send_all if kind in (common.MaskedWords, messages.LevelInput) else Party.send

    def shortened(party, to, message, **how):
        if isinstance(message, kind):
            message = replace(message, **{field: getattr(message, field)[:-1]})
        return original(party, to, message, **how)

    monkeypatch.setattr(Party, original.__name__, shortened)
    with pytest.raises(ProtocolError, match=r"^(anna|ben) (sent|won)"):
        play(make_job(data), data)


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "bits"), [(1_000_000, 10), (100_000, 13), (50_000, 14), (10_000, 16)])
def test_the_finest_scale_of_32_bit_sums(n_rows, bits):
    """The largest f with N 2^f <= 2^30, for two classes."""
    assert finest(Loss("logistic"), n_rows) == bits
    assert n_rows << bits <= 1 << 30 < n_rows << (bits + 1)


def test_widths_follow_from_public_numbers():
    """The rings of 50,000 rows are those of the study: 32 bits for sums, 160 for comparisons; one less is too few."""
    job = make_job(make_data(2))
    scales = Scales.of(job, 50_000)
    assert (scales.sums.name, scales.wide.name, scales.lambda_int) == ("sum32", "limbs:5", 1 << 14)
    assert scales.bounds == Bounds(50_000, 1 << 14, 1 << 12, scales.lambda_int, math.ceil(scales.threshold))
    assert scales.bounds.needed_bits > 128
    with_gamma = Scales.of(make_job(make_data(2), min_gain=0.5), 50_000)
    assert with_gamma.threshold == Fraction(1 << 13)


def test_labels_too_large_for_any_scale_are_refused():
    """Nothing would be left of a hessian."""
    with pytest.raises(InvalidParameter, match="divide the labels"):
        finest(Loss("squared", label_range=(0.0, 1e6)), 100_000)


def test_cuts_are_what_the_engine_tries():
    """Sums that go left, from histograms without the last bin, for columns with and without gaps."""
    rng = np.random.default_rng(2)
    n_bins, gaps = [3, 1, 4, 2], [False, False, True, True]
    codes = [rng.integers(0, n + g, 200) for n, g in zip(n_bins, gaps, strict=True)]
    values = rng.integers(0, 2**32, 200, dtype=np.uint32)
    cells = [
        np.array([values[column == b].sum(dtype=np.uint32) for b in range(n + g)], np.uint32)[:-1]
        for column, n, g in zip(codes, n_bins, gaps, strict=True)
    ]
    histogram = np.concatenate(cells)
    cuts = Cuts.of(n_bins, gaps)
    assert len(histogram) == masked_rows(n_bins, gaps)
    left = cuts.left(histogram) + values.sum(dtype=np.uint32) * cuts.missing_left
    assert len(left) == 2 + 0 + (4 + 3) + (2 + 1)
    for k, (column, last, missing_left) in enumerate(zip(cuts.column, cuts.bin, cuts.missing_left, strict=True)):
        goes = codes[column] <= last
        goes |= missing_left & (codes[column] == n_bins[column])
        goes &= missing_left | (codes[column] < n_bins[column])
        assert left[k] == values[goes].sum(dtype=np.uint32)


def test_a_level_is_compared_in_few_rounds():
    """310 possible splits and the label holder's: 20 rounds of tournament; with very many, bytes count for more."""
    scales = Scales.of(make_job(make_data(2)), 50_000)
    plans = {n: Shape(50_000, (n,), (n,), scales).plan(3) for n in (1, 7, 63, 310, 511, 4_095, 4_096, 19_050, 99_999)}
    rounds = {n: len(plan.openings()) for n, plan in plans.items()}
    assert rounds[310] == 20
    assert rounds[19_050] == 41
    assert list(rounds.values()) == sorted(rounds.values())
    for n, plan in plans.items():
        levels = list(plan.levels())
        assert levels[-1].is_last
        before = "table" if n < shape.MANY_CANDIDATES else "lean"
        assert [level.select for level in levels] == [before] * (len(levels) - 1) + ["table"]


@pytest.mark.parametrize("n", [2, 9, 82, 311, 404, 1000, 4096])
def test_groups_send_no_more_than_others_of_as_many_levels(n):
    """Law: groups are enough for all candidates, and equal groups of as many levels open at least as many bytes."""
    groups = shape.thrifty_groups(n, 5)
    assert math.prod(groups) >= n
    equal = next(size for size in range(2, 9) if size ** len(groups) >= n)
    chosen, plain = (Plan(8, n, 5, sizes) for sizes in (groups, (equal,) * len(groups)))
    assert sum(chosen.openings()) <= sum(plain.openings())
    assert len(list(chosen.levels())) <= len(groups)


def test_very_many_candidates(monkeypatch):
    """The other tournament gives the same trees."""
    data = make_data(3)
    job = make_job(data)
    monkeypatch.setattr(shape, "MANY_CANDIDATES", 10)
    assert_equal_to_pooled(play(job, data)[0], job, data)


def test_histograms_are_shared_between_label_holder_and_owner():
    """E B + [A B] at the one and X F + [A B] at the other make the sums over the rows of each bin; each alone does not.

    This is what one level of the protocol does, with the dealer's steps as both draw them.
    """
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 5, (1, 400)).astype(np.uint8)
    y = rng.integers(-1000, 1000, (2, 400)).astype(np.uint32)
    table = ShareTable(2)
    deal, hold = table.dealer, table.hands
    step = deal.step(Label(tree=1))
    a = step.mask((4, 400), SUM32, (1,))
    b = step.mask((2, 400), SUM32, (0,))
    step.share(rows_times(a, b), SUM32, (0, 1))
    parcels = step.corrections()
    first, second = (hand.step(Label(tree=1), parcels.get(place)) for place, hand in enumerate(hold))
    hidden = bins_minus(codes, [5], second.mask((4, 400), SUM32, (1,)).words, slice(0, 4))
    mask = first.mask((2, 400), SUM32, (0,)).words
    holders = rows_times(hidden, mask) + first.share((2, 4), SUM32, (0, 1)).words
    owners = histogram(codes, y - mask, 5)[:, 0, :4] + second.share((2, 4), SUM32, (0, 1)).words
    plain = histogram(codes, y, 5)[:, 0, :4]
    assert np.array_equal(holders + owners, plain)
    assert not (holders == plain).any()
    assert not (owners == plain).any()
