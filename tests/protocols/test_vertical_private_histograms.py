"""vertical.private_histograms: on shares it computes what its slow twin does, and releases it with planned noise."""

import json
import math
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from hedgerow import Federation
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.tournament import secret_handles
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.table import Column
from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter, PeerLost, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.privacy import events
from hedgerow.privacy.accountants import GaussianDP, ZeroConcentratedDP
from hedgerow.protocols.shares import mesh
from hedgerow.protocols.shares.columns import Sizes
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.protocols.vertical.private_histograms import columns as columns_module
from hedgerow.protocols.vertical.private_histograms import holder, messages
from hedgerow.protocols.vertical.private_histograms import plan as plan_module
from hedgerow.protocols.vertical.private_histograms.columns import OwnColumns, binned_columns, noisy_counts
from hedgerow.protocols.vertical.private_histograms.dealer import GrownDealing
from hedgerow.protocols.vertical.private_histograms.holder import Columns, FollowUp
from hedgerow.protocols.vertical.private_histograms.job import NOT_PRIVATE, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import HistogramShare, LeafShare, StartShare
from hedgerow.protocols.vertical.private_histograms.plan import (
    AT_ONCE,
    COLUMNS_PER_LEVEL,
    LARGEST_SCORE,
    SCORE_BITS,
    Plan,
    Spending,
    accountant_of,
    edge_event,
)
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData, find
from hedgerow.runtime.running import warm_up
from hedgerow.schema import CategoricalColumn, Schema
from hedgerow.testing.transcripts import Vanishing
from hedgerow.testing.transcripts import play as play_recorded
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import Recording
from twins.naive_private_histograms import Binned, LeafRule, NaiveTrees, Split, watched
from twins.vertical import make_data, table_of
from twins.vertical import make_job as job_for
from twins.vertical import play as played

INF = math.inf
UNIT = 2.0**-SCORE_BITS
DELTA = 1e-5


def schema_of(data, bounds=(-4.0, 4.0), **about):
    """Public bounds for all columns; those with gaps may have them."""
    found = [column for party in data.values() for column in party.table.columns]
    gaps = [column.name for column in found if np.isnan(column.values).any()]
    return Schema.from_public(
        bounds={column.name: bounds for column in found}, may_be_missing=gaps, classes=[0, 1], **about
    )


def make_job(data, holder="anna", **changes):
    """A small job, without noise unless `changes` say so."""
    small = {"epsilon": INF, "delta": DELTA, "schema": schema_of(data), **changes}
    return job_for(PrivateHistogramsJob, data, holder, **small)


def sizes_of(n_rows, bins=(4, 4), n_parties=2):
    """Sizes of columns without gaps."""
    return Sizes(n_rows, (bins,) * n_parties, ((False,) * len(bins),) * n_parties)


def plan_for(n_rows=200, bins=(4, 4), **changes):
    """The plan of a job for columns of these sizes."""
    return Plan.of(make_job(make_data(2, 20), **changes), sizes_of(n_rows, bins))


# --- what a run should come to ---------------------------------------------------------------------------------------


def splits_of(parts, job, tree):
    """The splits of a tree, level by level, from what each party knows of it; just one knows each."""
    trees = [parts[name].trees[tree] for name in job.holders]
    found = []
    for level in range(job.depth):
        nodes = slice((1 << level) - 1, (2 << level) - 1)
        (place,) = [place for place, each in enumerate(trees) if (each.column[nodes] >= 0).any()]
        (split,) = set(
            zip(*(getattr(trees[place], of)[nodes] for of in ("column", "bin", "missing_left")), strict=True)
        )
        found.append(Split(place, int(split[0]), int(split[1]), bool(split[2])))
    assert all(each.is_leaf[(1 << job.depth) - 1 :].all() for each in trees)
    return found


def values_of(parts, job, tree):
    """What all parties' words of the leaves add up to."""
    return np.sum([parts[name].leaves[tree] for name in job.holders], axis=0, dtype=np.uint64).view(np.int64)


def bins_of(parts, job, data):
    """Everybody's columns in the bins that the model has."""
    binned = []
    for name in job.holders:
        features = parts[name].features
        codes = BinMapper(features).transform(data[name].table, 1)
        gaps = [job.described(name, feature.name).may_be_missing for feature in features]
        binned.append(Binned(codes, [feature.n_value_bins for feature in features], gaps))
    return binned


def plan_of(job, data, binned):
    """The plan that follows from these bins."""
    n_rows = data[job.label_holder].table.n_rows
    sizes = Sizes(n_rows, tuple(tuple(own.n_bins) for own in binned), tuple(tuple(own.gaps) for own in binned))
    return Plan.of(job, sizes)


def run(job, data, **how):
    """Play a job; hold gradients, sums, sides, what is released, splits, leaf values and scores against the twin."""
    with watched(len(data)) as seen:
        parts, parties = played(PROTOCOL, job, data, **how)
    n_rows, labels, depth = data[job.label_holder].table.n_rows, data[job.label_holder].labels, job.depth
    binned = bins_of(parts, job, data)
    plan, twin = plan_of(job, data, binned), NaiveTrees(binned, depth)
    spending, unit = plan.spending, 2.0**-plan.gradient_bits
    assert_released(seen, spending)
    released = iter(zip(seen.released, seen.sums, strict=True))
    (_, positives), _ = next(released)
    if not spending.job.is_noisy:
        assert positives[0] == labels.sum()
    least = max(0.5 / n_rows, 1e-4)
    share = min(max(positives[0] / n_rows, least), 1.0 - least)
    first = round(math.log(share / (1.0 - share)) / UNIT)
    assert parts[job.label_holder].target.base_scores == (first * UNIT,)
    rule = LeafRule(
        plan.gradient_bits,
        spending.count_unit,
        share * (1.0 - share),
        plan.lambda_int,
        spending.leaf_sigma,
        job.boosting.learning_rate,
        SCORE_BITS,
    )
    scores = np.full(n_rows, first)
    draws = None
    for tree in range(plan.n_trees):
        gradients = seen.gradients[tree]
        exact = 1.0 / (1.0 + np.exp(-scores * UNIT)) - labels
        assert np.abs(gradients * unit - exact).max() <= plan.sigmoid.error
        assert np.abs(gradients).max() <= plan.largest_gradient
        found = splits_of(parts, job, tree)
        if job.reveal == "winner":
            noises = seen.choice_noise[tree * depth : (tree + 1) * depth]
            assert found == twin.grow(gradients, noises).splits
        level_rows = [np.ones(n_rows, np.bool_)]
        for level, split in enumerate(found):
            assert_level(seen, tree * depth + level, twin, gradients, level_rows)
            if job.reveal == "histogram":
                if tree == level == 0:
                    every = range(sum(len(own.n_bins) for own in binned))
                    noisy = assert_histogram(next(released), twin, gradients, level_rows, every)
                    draws = Columns(FollowUp(plan, 0.1).importance(noisy[0]), job.boosting.seed)
                if level == 0:
                    drawn = draws.draw(depth)
                noisy = assert_histogram(next(released), twin, gradients, level_rows, drawn[level])
                sigma = spending.histogram_sigma
                assert split == best_of(twin, noisy, drawn[level].tolist(), sigma)
            level_rows = twin.divided(level_rows, split)
        (name, noisy), _ = next(released)
        assert name == LeafShare
        values = [rule.value(int(gradient), int(count)) for gradient, count in noisy]
        assert values_of(parts, job, tree).tolist() == values
        for rows, value in zip(level_rows, values, strict=True):
            scores[rows] += value
    assert next(released, None) is None
    return parts, parties, seen, plan


def assert_released(seen, spending):
    """Sums plus just the noise that the dealer drew, with the planned scales."""
    scales = []
    for (name, sums), (again, noisy), (sigma, noise) in zip(seen.sums, seen.released, seen.gaussian, strict=True):
        assert name == again
        assert np.array_equal(sums + noise[..., : sums.shape[-1]], noisy)
        scales.append((name, sigma))
        assert noise.any() == spending.job.is_noisy or noise.size < 10
    planned = {
        StartShare: {spending.start_sigma},
        HistogramShare: {spending.survey_sigma, spending.histogram_sigma},
        LeafShare: {spending.leaf_sigma},
    }
    assert all(sigma in planned[name] for name, sigma in scales)
    surveys = [sigma for name, sigma in scales if name == HistogramShare][:1]
    assert surveys in ([], [spending.survey_sigma])


def assert_histogram(released, twin, gradients, level_rows, columns):
    """The sums of these columns' bins at all nodes; what was made of them by noise, [nodes, bins]."""
    (name, noisy), (_, sums) = released
    assert name == HistogramShare
    exact = [
        np.concatenate([twin.column_sums(gradients, rows, int(column)) for column in columns]) for rows in level_rows
    ]
    assert np.array_equal(np.atleast_2d(sums), exact)
    return np.atleast_2d(noisy)


def best_of(twin, noisy, columns, sigma):
    """The split that noisy histograms speak for, the slow way."""
    found, start = {}, 0
    of_column = {}
    for split in twin.splits():
        number = sum(len(party.n_bins) for party in twin.parties[: split.place]) + split.column
        of_column.setdefault(number, []).append(split)
    for column in columns:
        party, own = twin.parties[of_column[column][0].place], of_column[column][0].column
        n_codes = party.n_bins[own] + party.gaps[own]
        for split in of_column[column]:
            left = np.arange(n_codes) <= split.bin
            left[-1] |= split.missing_left
            found[split] = sum(
                max(abs(int(sums[start : start + n_codes][side].sum())) - sigma * math.sqrt(side.sum()), 0.0)
                for sums in noisy
                for side in (left, ~left)
            )
        start += n_codes
    largest = max(found.values())
    near = [split for split, utility in found.items() if utility >= largest - 1e-6 * (1 + abs(largest))]
    return near[0]


def assert_level(seen, number, twin, gradients, level_rows):
    """FullTree: shares add up to vectors of each node's rows, and to their sums in all bins; right by subtraction."""
    vectors, sums = seen.rows[number], seen.histograms[number]
    for node, rows in enumerate(level_rows):
        assert np.array_equal(vectors[node], [gradients * rows, rows])
        assert np.array_equal(sums[node], twin.histogram(gradients, rows))


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [INF, 3.0])
@pytest.mark.parametrize("reveal", ["winner", "histogram"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (5, "emil")])
def test_it_is_the_slow_twin(n_parties, holder, reveal, epsilon):
    """Law: given gradients and noise, everything is equal to the last digit, for all numbers of parties."""
    data = make_data(n_parties, 77, 2 * n_parties, holder=holder, missing=0.1)
    job = make_job(data, holder, reveal=reveal, epsilon=epsilon, max_depth=2)
    _, parties, _, _ = run(job, data)
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_deep_trees_small_messages_and_one_column(reveal, monkeypatch):
    """Levels of more nodes than a block, rows in several messages, leaves without rows, a party with one column."""
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 999)
    monkeypatch.setattr(plan_module, "AT_ONCE", 500)
    data = make_data(2, 45, 4, missing=0.2)
    data["ben"] = PartyData(table_of(data["ben"].table.columns[:1]))
    job = make_job(data, reveal=reveal, epsilon=8.0, max_depth=5, n_iterations=1, max_bins=5)
    _, _, seen, plan = run(job, data)
    if reveal == "winner":
        assert plan.n_blocks(4) == 2
        assert len(seen.choice_noise) == 5


@pytest.mark.parametrize("labels", [0.0, 1.0])
def test_labels_of_one_kind(labels):
    """Scores go to the end of what the logistic function on shares can, and not beyond."""
    data = make_data(2, 31, 4)
    data["anna"] = replace(data["anna"], labels=np.full(31, labels))
    job = make_job(data, learning_rate=1.0, n_iterations=3, max_depth=1)
    parts, _, seen, plan = run(job, data)
    assert all(np.abs(gradients).max() <= plan.largest_gradient for gradients in seen.gradients)
    reached = abs(parts["anna"].target.base_scores[0]) + sum(
        np.abs(values_of(parts, job, tree)).max() * UNIT for tree in range(3)
    )
    assert reached <= LARGEST_SCORE


def test_the_same_model_without_noise():
    """Where histograms of all columns are released, trees are those of the winners; gradients are the same, too."""
    data = make_data(2, 150, 2, missing=0.1)
    one, other = (played(PROTOCOL, make_job(data, reveal=reveal), data)[0] for reveal in ("winner", "histogram"))
    job = make_job(data)
    assert splits_of(one, job, 0) == splits_of(other, job, 0)
    assert np.abs(values_of(one, job, 0) - values_of(other, job, 0)).max() * UNIT < 0.01


# --- privacy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_what_is_spent_is_within_the_budget(reveal, epsilon, delta):
    """Never more than epsilon and delta, and hardly less."""
    plan = plan_for(2000, epsilon=epsilon, delta=delta, reveal=reveal, n_iterations=30)
    accountant = accountant_of(plan.spending.job)
    accountant.compose(plan.spending.planned())
    assert accountant.delta(epsilon) <= delta
    assert 0.999 * epsilon <= min(accountant.epsilon(delta), epsilon)
    assert isinstance(accountant, ZeroConcentratedDP if reveal == "winner" else GaussianDP)


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_ledger_accountant_and_statement_agree(reveal):
    """All releases are in every ledger with the planned events, and the model says what they come to."""
    data = make_data(3, 60, 6)
    job = make_job(data, reveal=reveal, epsilon=2.0)
    parts, parties, _, plan = run(job, data)
    tree = [plan.spending.level_event(level) for level in range(3)] + [plan.spending.leaf_event()]
    first = tree if reveal == "winner" else [plan.spending.survey_event(), *tree]
    planned = [plan.spending.start_event(), *first, *tree]
    edges = edge_event(job, 2)  # two columns each, of many cells
    for party in ("anna", "ben", "carla"):
        for peer in {"anna", "ben", "carla"} - {party}:
            for direction in ("disclosed", "learned"):
                lines = parties[party].ledger.lines(direction, peer)
                if direction == "disclosed":
                    noted = [events.from_dict(line.event) for line in lines if line.event is not None]
                    assert noted == [edges, *planned]
                noisy = [line for line in lines if line.protection.startswith("with noise inside")]
                assert len(noisy) == len(planned)
                own = [line for line in lines if line.protection.startswith("randomised by its owner")]
                assert len(own) == 1
        privacy = parts[party].meta["privacy"]
        accountant = accountant_of(plan.spending.job)
        accountant.compose_all([edges] * 3 + planned)
        assert privacy["epsilon"] == pytest.approx(accountant.epsilon(DELTA))
        assert privacy["epsilon"] <= 2.0
    words = PROTOCOL.statement(job, parts["anna"].meta)
    told = " ".join(str(words).split())
    assert "One label: epsilon = 2 and delta = 1e-5, towards the feature holders" in told
    assert "One row, columns and label: epsilon = 2 and delta = 1e-5, towards anna and everybody who gets" in told
    assert words.facts["model_is_private"]
    assert words.facts["stamp"] is None
    assert words.facts["labels_towards_feature_holders"]["epsilon"] == privacy["epsilon"]


def test_without_noise_it_is_stamped():
    """epsilon=inf: NOT PRIVATE in all parts and in the statement."""
    data = make_data(2, 40, 4)
    job = make_job(data, n_iterations=1)
    parts, _ = played(PROTOCOL, job, data)
    assert all(parts[name].meta["stamp"] == NOT_PRIVATE for name in job.holders)
    words = PROTOCOL.statement(job, parts["anna"].meta)
    assert "NOT PRIVATE" in str(words)
    assert "epsilon = " not in str(words)
    assert "noise inside" not in str(words)
    assert not words.facts["model_is_private"]
    assert words.facts["stamp"] == NOT_PRIVATE


def test_a_run_that_would_spend_more_ends_before_it_releases(monkeypatch):
    """Fail closed: an event more than was planned raises, and no model is kept."""
    data = make_data(2, 40, 4)
    job = make_job(data, epsilon=1.0)
    dear = events.DiscreteGaussian(1.0, 0.1, 1)
    monkeypatch.setattr(Spending, "leaf_event", lambda _: dear)
    with pytest.raises(BudgetExceeded, match=r"no noise was found .* epsilon=1\.0"):
        played(PROTOCOL, job, data)
    monkeypatch.undo()
    honest, calls = Spending.leaf_event, []

    def twice_as_dear(self):
        calls.append(self)
        return honest(self) if len(calls) < 4 else dear

    monkeypatch.setattr(Spending, "leaf_event", twice_as_dear)
    with pytest.raises(BudgetExceeded, match=r"is above epsilon=1: the run ends here"):
        played(PROTOCOL, job, data)


def test_noise_has_the_planned_scale():
    """What is released minus what it is of: the sum of squares of all of it, in units of sigma, as it should be."""
    data = make_data(2, 60, 8, missing=0.1)
    _, _, seen, plan = run(make_job(data, reveal="histogram", epsilon=0.7), data)
    for name, sigma in ((HistogramShare, plan.spending.histogram_sigma), (LeafShare, plan.spending.leaf_sigma)):
        pairs = [(a, b) for (kind, a), (_, b) in zip(seen.sums, seen.released, strict=True) if kind == name]
        errors = np.concatenate([(noisy - sums).reshape(-1) for sums, noisy in pairs]) / sigma
        assert 1e-4 < chi2.cdf((errors**2).sum(), len(errors)) < 1 - 1e-4
        assert abs(errors.mean()) < 4 / math.sqrt(len(errors))


def test_winners_are_drawn_by_the_exponential_mechanism():
    """With the dealer's noise, a split wins with probability proportional to exp(utility / beta)."""
    plan = plan_for(500, epsilon=1.0, n_iterations=1, max_depth=1)
    choice = plan.spending.choice
    dealing = GrownDealing.__new__(GrownDealing)
    dealing._plan = plan
    dealing._me = type("Somebody", (), {"rng": np.random.default_rng(5)})
    n, beta = 20_000, float(choice.beta)
    utilities = np.array([0.0, 0.4, 1.0, 2.0]) * beta
    units = np.round(utilities * 2.0**plan.gradient_bits).astype(np.int64)
    winners = np.argmax(dealing.choice_noise((n, 4)) + units, axis=1)
    expected = np.exp(utilities / beta)
    expected *= n / expected.sum()
    assert ((np.bincount(winners, minlength=4) - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-5, 3)
    assert dealing.choice_noise((50, 40)).min() >= 0
    assert dealing.choice_noise((50, 40)).max() <= plan.most_noise
    largest = plan.spending.largest_gradient
    assert choice.epsilon(largest) <= 2 * float(largest) / (0.99 * beta)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_row_moves_all_utilities_within_an_interval(data):
    """The sum of |G_L| + |G_R| over nodes moves by a row more, or by another label, by no more than g*, either way."""
    largest = data.draw(st.fractions(1, 2, max_denominator=50))
    n_rows, n_splits = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    unit = st.fractions(-1, 1, max_denominator=20)
    gradients = [data.draw(unit) * largest for _ in range(n_rows)]
    nodes = [data.draw(st.integers(0, 2)) for _ in range(n_rows)]
    sides = [[data.draw(st.integers(0, 1)) for _ in range(n_rows)] for _ in range(n_splits)]

    def utilities(of):
        found = []
        for side in sides:
            sums = {}
            for gradient, node, where in zip(of, nodes, side, strict=True):
                sums[node, where] = sums.get((node, where), 0) + gradient
            found.append(sum(abs(total) for total in sums.values()))
        return found

    before = utilities(gradients)
    without = utilities([Fraction(0), *gradients[1:]])
    other = utilities([gradients[0] - 1 if gradients[0] > 0 else gradients[0] + 1, *gradients[1:]])
    assert max(abs(a - b) for a, b in zip(before, without, strict=True)) <= largest
    assert max(abs(a - b) for a, b in zip(before, other, strict=True)) <= 1 <= largest


def test_sensitivities_are_those_of_the_largest_gradient():
    """Lengths of what a row adds; g* has the error of the logistic function and its rounding in it."""
    plan = plan_for(500, (4, 4, 5), epsilon=1.0, reveal="histogram")
    spending, bits = plan.spending, plan.gradient_bits
    assert spending.largest_gradient >= 1 + Fraction(plan.sigmoid.error)
    gradient = float(spending.largest_gradient) * 2**bits
    row = math.hypot(gradient, 0.5 * 2**bits)
    assert row <= spending.leaf_event().sensitivity < 1.001 * row
    assert spending.leaf_event().coordinates == 16
    wide = gradient * math.sqrt(COLUMNS_PER_LEVEL)
    assert wide <= spending.histogram_event(1).sensitivity < 1.001 * wide
    assert spending.histogram_event(1).coordinates == 2 * (5 + 5)
    everything = gradient * math.sqrt(6)
    assert everything <= spending.survey_event().sensitivity < 1.001 * everything
    assert spending.survey_event().coordinates == 26
    choice = plan_for(500, (4, 4, 5), epsilon=1.0).spending.choice_event()
    assert choice.sensitivity >= float(spending.largest_gradient)


# --- edges -----------------------------------------------------------------------------------------------------------


def cells_for(values, **about):
    """The cells of one column of a party."""
    column = Column("x", np.asarray(values, float))
    data = {"anna": PartyData(table_of([column]), np.zeros(len(values)), (0, 1)), "ben": PartyData(table_of([column]))}
    schema = Schema.from_public(**{"bounds": {"x": (0.0, 100.0)}, "classes": [0, 1], **about})
    return OwnColumns("anna", make_job(data, schema=schema), data["anna"])


@pytest.mark.parametrize("max_bins", [2, 5, 16, 64, 255])
def test_bins_follow_from_counts(max_bins):
    """Of about equally many rows, never more than asked for; all rows of a cell are in the same bin."""
    rng = np.random.default_rng(3)
    cells = cells_for(np.clip(rng.exponential(8.0, 4000), 0, 100))
    own = binned_columns("anna", cells, noisy_counts(cells, 0.0, None), 0.0, max_bins)
    assert 2 <= own.n_bins[0] <= max_bins
    rows = np.bincount(own.codes[0], minlength=own.n_bins[0])
    assert rows.max() < 2.5 * 4000 / own.n_bins[0] + np.bincount(cells.codes[0]).max()
    assert len({(a, b) for a, b in zip(cells.codes[0], own.codes[0], strict=True)}) == len(set(cells.codes[0]))
    again = BinMapper(own.features).transform(table_of([Column("x", np.array([0.0, 99.9, 1e9]))]), 1)
    assert again[0].tolist() == [0, own.n_bins[0] - 1, own.n_bins[0] - 1]


def test_counts_have_noise_and_may_drown_in_it():
    """Noise of the planned scale on every cell; where nothing is left of the counts, cells are put together evenly."""
    cells = cells_for(np.random.default_rng(3).uniform(0, 100, 4000))
    random = SecureRandom.from_seed(b"e" * 32)
    exact, noisy = noisy_counts(cells, 0.0, random)[0], noisy_counts(cells, 50.0, random)[0]
    assert exact.sum() == 4000
    assert 1e-4 < chi2.cdf(((noisy - exact) ** 2 / 50.0**2).sum(), len(exact)) < 1 - 1e-4
    drowned = binned_columns("anna", cells, {0: np.zeros_like(exact)}, 1e6, 64)
    assert drowned.n_bins == [8]
    assert binned_columns("anna", cells, {0: noisy}, 50.0, 64).n_bins[0] > 2


def test_columns_of_few_values_are_not_counted():
    """They have a bin for each value, and cost nothing; missing ones have a code of their own."""
    few = cells_for([0, 1, 1, np.nan], bounds={"x": (0, 1)}, integers=["x"], may_be_missing=["x"])
    assert few.counted == []
    own = binned_columns("anna", few, {}, 5.0, 64)
    assert (own.n_bins, own.codes.tolist()) == ([2], [[0, 1, 1, 2]])
    job = make_job(make_data(2, 20), epsilon=1.0)
    assert edge_event(job, 0) is None
    one, four = (edge_event(job, n) for n in (1, 4))
    assert four.sigma == pytest.approx(2 * one.sigma)
    assert four.sensitivity == pytest.approx(2 * one.sensitivity)
    assert isinstance(edge_event(replace(job, epsilon=INF), 4), events.NonPrivate)


def test_others_hear_how_many_bins_there_are_and_no_more():
    """Edges are in no message: other values in cells of the same counts make the very same messages, but for masks."""
    data = make_data(2, 60, 4)
    job = make_job(data, n_iterations=1, max_depth=1)
    moved = {**data, "ben": PartyData(table_of([Column(c.name, -c.values) for c in data["ben"].table.columns]))}
    told = []
    for each in (data, moved):
        done = play_recorded(PROTOCOL, job, each, around={"anna": Recording})
        passed = done.recording("anna").passed
        frames = [p.frame for p in passed if (p.direction, p.peer) == ("received", "ben")]
        told.append([(peek(frame)[0], len(frame)) for frame in frames])
    assert told[0] == told[1]


# --- widths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.02, 1.0, INF])
def test_comparisons_fit_their_ring_with_noise(epsilon):
    """Utilities with the largest noise are below 2**31; sizes of sums add up to no more than all rows'."""
    plan = plan_for(100, epsilon=epsilon, n_iterations=20)
    assert plan.largest_utility == 100 * plan.largest_gradient + plan.most_noise < 1 << 31
    assert (plan.most_noise > 0) == (epsilon != INF)
    wide = plan_for(2**19, (200, 200), epsilon=1.0)
    assert wide.block_nodes(2) == 4
    assert 2 * wide.block_nodes(9) * wide.n_candidates <= AT_ONCE
    assert wide.n_blocks(9) * wide.block_nodes(9) == 512


def test_sums_fit_their_ring():
    """Sums of all rows are at most 2**30, also with the largest gradient, whatever the number of rows."""
    for n_rows in (1, 2, 1000, 2**19, 2**19 + 1, 2**20 + 1, 2**21):
        plan = plan_for(n_rows)
        assert n_rows * plan.largest_gradient <= 2**30
        assert n_rows * plan.spending.count_unit <= 2**30
    with pytest.raises(InvalidParameter, match="8,388,609 rows are too many"):
        plan_for(2**23 + 1)
    with pytest.raises(InvalidParameter, match="max_depth=3 with 3,000,000 rows needs 321 MB in one message"):
        plan_for(3_000_000)
    with pytest.raises(InvalidParameter, match="max_depth=8 with 1,000,000 rows needs 976 MB in one message"):
        plan_for(1_000_000, max_depth=8)


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_noise_that_does_not_fit_is_refused(reveal):
    """By name of epsilon."""
    with pytest.raises(InvalidParameter, match="epsilon=1e-09"):
        plan_for(100, epsilon=1e-9, delta=1e-14, reveal=reveal, n_iterations=1000)


def test_scores_stay_where_the_logistic_function_is_right():
    """Everybody counts, from the values that all know; beyond the bound nobody goes on."""
    follow_up = FollowUp(plan_for(), 0.3)
    follow_up.reach(np.array([-(4 << SCORE_BITS)]))
    follow_up.reach(np.array([1 << SCORE_BITS, -(8 << SCORE_BITS)]))
    with pytest.raises(ProtocolError, match="beyond 12"):
        follow_up.reach(np.array([1, 0]))
    noisy = np.array([[10_000, 3], [-10_000, -3]])
    assert FollowUp(plan_for(), 0.3).leaf_values(noisy).tolist() == [
        -round(0.3 * 4 * 2**SCORE_BITS - 0.5),
        round(0.3 * 4 * 2**SCORE_BITS - 0.5),
    ]
    assert follow_up.leaf_values(noisy).tolist() == [0, 0]  # no room is left


def test_a_label_holder_that_lies_about_leaf_values_is_found_out():
    """Also by feature holders alone: no value is too large by itself, but two trees of them are."""
    data = make_data(2, 40, 4)
    job = make_job(data, n_iterations=2)

    def spoil(self, values):
        if self is not honest[0]:
            reach(self, values)

    reach, honest, makes = FollowUp.reach, [], FollowUp.leaf_values

    def too_much(self, noisy):
        honest.append(self)
        return makes(self, noisy) + (7 << SCORE_BITS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FollowUp, "leaf_values", too_much)
        patch.setattr(FollowUp, "reach", lambda self, values: spoil(self, values) if honest else reach(self, values))
        with pytest.raises(ProtocolError, match="beyond 12"):
            played(PROTOCOL, job, data)


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": None}, "needs epsilon"),
        ({"epsilon": 0.0}, "epsilon must be above 0, got 0.0"),
        ({"epsilon": "2"}, "epsilon must be above 0, got '2'"),
        ({"epsilon": math.nan}, "epsilon must be above 0, got nan"),
        ({"delta": 0.0}, "delta must be between 0 and 1, got 0.0"),
        ({"delta": 2.0}, "delta must be between 0 and 1, got 2.0"),
        ({"policy": "forest"}, "policy must be 'grown_trees' or 'smooth_then_trees', got 'forest'"),
        ({"reveal": "all"}, "reveal must be 'winner' or 'histogram', got 'all'"),
        ({"split_share": 1.0}, "split_share must be between 0 and 1, got 1.0"),
        ({"schema": None}, "needs a schema with public bounds"),
        ({"task": "regression"}, "is for two classes, got task='regression'"),
        ({"base_score": 0.5}, "base_score must be None, because it is released with noise; got 0.5"),
        ({"min_gain": 0.5}, "min_gain must be 0.0, because all nodes split; got 0.5"),
        ({"l2": 0.5}, "l2 must be a whole number .* got 0.5"),
        ({"l2": 0.0}, "l2 must be a whole number .* got 0.0"),
        ({"gradient_bits": 9}, "gradient_bits must be None"),
        ({"max_depth": 13}, "max_depth must be between 1 and 12, got 13"),
        ({"dealer": "ben"}, "the dealer must be a party of its own"),
    ],
)
def test_parameters_that_cannot_be(changes, says):
    """Each by its name and value."""
    with pytest.raises(InvalidParameter, match=says):
        make_job(make_data(2, 20, 4), **changes)


def test_columns_that_cannot_be(monkeypatch):
    """Each by party and column."""
    data = make_data(2, 30, 4)
    known = schema_of(data)
    fewer = Schema(tuple(entry for entry in known.columns if entry.name != "x3"), known.classes)
    with pytest.raises(InvalidParameter, match=r"column 'x3' of ben has no entry in the schema, neither as 'x3' nor"):
        played(PROTOCOL, make_job(data, schema=fewer), data)
    levels = Schema((*fewer.columns, CategoricalColumn("x3", ("a", "b"))), known.classes)
    with pytest.raises(InvalidParameter, match="column 'x3' of ben has levels"):
        played(PROTOCOL, make_job(data, schema=levels), data)
    gaps = make_data(2, 30, 4, missing=0.3)
    played(PROTOCOL, make_job(data, n_iterations=1), gaps)  # no error depends on a row
    named = PartyData(table_of([Column("x2", np.zeros(30, np.int32), ("a", "b"))]))
    with pytest.raises(InvalidInput, match="ben: column 'x2' is numeric in the model, but holds text here"):
        played(PROTOCOL, make_job(data, on_bad_rows="raise"), {**data, "ben": named})
    three = replace(data["anna"], classes=(0, 1, 2))
    with pytest.raises(InvalidInput, match="private_histograms is for two classes"):
        played(PROTOCOL, make_job(data, schema=replace(known, classes=None)), {**data, "anna": three})
    with pytest.raises(InvalidInput, match="anna: the label holder needs labels"):
        played(PROTOCOL, make_job(data), {**data, "anna": replace(data["anna"], labels=None)})
    short = PartyData(table_of([Column("x2", np.zeros(29))]))
    with pytest.raises((InvalidInput, ProtocolError), match="29"):
        played(PROTOCOL, make_job(data), {**data, "ben": short})
    monkeypatch.setattr(columns_module, "memory_available", lambda: 1000)
    with pytest.raises(InvalidInput, match="anna: max_depth=3 with 30 rows needs about"):
        played(PROTOCOL, make_job(data), data)


def test_a_schema_of_one_value_leaves_nothing_to_split_by():
    """Said with the name of the party."""
    data = make_data(2, 30, 2)
    tiny = np.nextafter(3.0, 4.0)
    flat = Schema.from_public(bounds={"x0": (-4.0, 4.0), "x1": (3.0, tiny)}, classes=[0, 1])
    with pytest.raises(InvalidInput, match="ben: no column has values in two bins"):
        played(PROTOCOL, make_job(data, schema=flat, max_bins=2), data)


def test_parties_may_have_columns_of_the_same_name():
    """An entry "party.column" goes before one of "column"; edges follow from it alone."""
    column = Column("x", np.linspace(-1.0, 9.0, 40))
    data = {
        "anna": PartyData(table_of([column]), (column.values > 3).astype(float), (0, 1)),
        "ben": PartyData(table_of([column])),
    }
    bounds = {"x": (0.0, 8.0), "ben.x": (-100.0, 100.0)}
    job = make_job(data, schema=Schema.from_public(bounds=bounds, classes=[0, 1]), max_bins=4)
    for name, (low, high) in (("anna", (0.0, 8.0)), ("ben", (-100.0, 100.0))):
        cells = OwnColumns(name, job, data[name])
        assert low < cells.grid[0].edges[0] < cells.grid[0].edges[-1] <= high
        assert len(cells.grid[0].edges) > 200
        assert cells.grid[0].edges[-1] > 0.95 * high


@pytest.mark.parametrize("leaver", ["ben", "dealer"])
def test_a_party_that_leaves_is_named(leaver):
    """Nobody goes on without it."""
    data = make_data(3, 40, 6)
    job = make_job(data, epsilon=4.0)

    def when(direction, frame):
        name = messages.LeafShare.NAME if leaver == "ben" else "vertical.on_shares.dealt"
        seen.append(peek(frame)[0])
        return direction == "sending" and seen.count(name) > 2

    seen = []
    done = play_recorded(PROTOCOL, job, data, around={leaver: lambda endpoint: Vanishing(endpoint, when)})
    assert set(done.results) <= {leaver}
    assert {"anna", "carla"} <= set(done.errors)
    assert any(isinstance(error, PeerLost) and leaver in str(error) for error in done.errors.values())


def test_words_that_are_no_shares_are_noticed():
    """A handle that is nobody's."""
    data = make_data(2, 40, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, "secret_handles", lambda _, n_nodes, __, n: np.full((n_nodes, n), 2**31, np.uint32))
        with pytest.raises(ProtocolError, match="a winner's handle is nobody's"):
            played(PROTOCOL, make_job(data), data)


def test_handles_say_who_won_and_nothing_else():
    """The opened handle is within the owner's range, and the same split has another one in another run."""
    data = make_data(3, 60, 6)
    job = make_job(data, n_iterations=1)
    runs = []
    for seed in (3, 4):
        found = {}

        def handles(random, n_nodes, first, n, found=found):
            mine = secret_handles(random, n_nodes, first, n)
            assert (np.sort(mine, axis=1) == first + np.arange(n)).all()
            found.setdefault(first, []).append(mine)
            return mine

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(holder, "secret_handles", handles)
            parts, _ = played(PROTOCOL, job, data, seed=seed)
        runs.append((found, splits_of(parts, job, 0)))
    (one, splits), (other, again) = runs
    assert splits == again
    assert sorted(one) == sorted(other)
    assert len(one) == 3
    assert any((a != b).any() for first in one for a, b in zip(one[first], other[first], strict=True))


# --- as something to run ---------------------------------------------------------------------------------------------


def test_jobs_and_parts_go_through_json():
    """Also without noise, for which JSON has no number."""
    data = make_data(2, 40, 4)
    for epsilon in (INF, 2.0):
        job = make_job(data, epsilon=epsilon, reveal="histogram", split_share=0.3)
        assert PROTOCOL.job.from_dict(json.loads(json.dumps(job.to_dict()))) == job
    parts, _ = played(PROTOCOL, job, data)
    for name in ("anna", "ben", "dealer"):
        again = PROTOCOL.result(json.loads(json.dumps(parts[name].to_dict())))
        assert again.to_dict() == parts[name].to_dict()
    assert isinstance(parts["ben"], SharedLeavesPart)
    assert find("vertical.private_histograms") is PROTOCOL
    warm_up(PROTOCOL, job)


def test_defaults_of_trees_are_its_own():
    """Where nothing is said; what is said counts, in any library's spelling."""
    rng = np.random.default_rng(2)
    tables = {"bank": rng.normal(size=(60, 1)), "shop": rng.normal(size=(60, 1))}
    fed = Federation.vertical(tables, labels=("bank", rng.integers(0, 2, 60)))
    schema = Schema.from_public(bounds={"x0": (-3, 3)})
    done = fed.fit("vertical.private_histograms", epsilon=INF, schema=schema, n_estimators=2, reg_lambda=3)
    trees = done.job.boosting
    assert (trees.n_iterations, trees.l2) == (2, 3.0)
    assert (trees.max_depth, trees.learning_rate, done.job.max_bins) == (3, 0.3, 64)


def test_through_the_federation_and_over_grpc():
    """Trained and scored, in memory and by processes."""
    rng = np.random.default_rng(2)
    n = 300
    bank = pd.DataFrame({"income": rng.normal(size=n), "age": rng.uniform(18, 90, n)})
    shop = pd.DataFrame({"spent": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))})
    y = np.where(bank["income"] + np.nan_to_num(shop["spent"]) > 0, "good", "bad")
    schema = Schema.from_public(
        bounds={"income": (-3, 3), "age": (18, 90), "shop.spent": (-3, 3)}, may_be_missing=["shop.spent"], classes=None
    )
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    options = {"n_estimators": 3, "max_depth": 2, "max_bins": 8, "schema": schema, "learning_rate": 0.5}
    for transport, epsilon in (("memory", INF), ("grpc", 8.0)):
        before = threading.active_count()
        done = fed.fit("vertical.private_histograms", epsilon=epsilon, transport=transport, **options)
        done.reconcile()
        chance = done.model.predict_proba({"bank": bank, "shop": shop})
        assert chance.shape == (n, 2)
        assert np.mean((chance[:, 1] > 0.5) == (y == "good")) > (0.85 if epsilon == INF else 0.6)
        assert ("NOT PRIVATE" in str(done.statement())) == (epsilon == INF)
        assert threading.active_count() <= before + 2
