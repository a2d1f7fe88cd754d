"""The policy smooth_then_trees on shares: what its slow twin computes, released with planned noise and no more."""

import itertools
import math
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation
from hedgerow.crypto.dealing import Dealer, Hand, Label
from hedgerow.engine.table import Column
from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter, ProtocolError
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.ledger import reconcile
from hedgerow.privacy import events
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.events import Released
from hedgerow.protocols.bad_rows import fit_described
from hedgerow.protocols.central.gaussian.requests import event_of
from hedgerow.protocols.shares import mesh
from hedgerow.protocols.vertical.common.parts import divide, part_from_dict
from hedgerow.protocols.vertical.private_histograms.columns import OwnColumns, layout_of, merged_bins
from hedgerow.protocols.vertical.private_histograms.dealer import SmoothDealing
from hedgerow.protocols.vertical.private_histograms.job import NOT_PRIVATE, SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth import holder as holder_module
from hedgerow.protocols.vertical.private_histograms.smooth import schedule as schedule_module
from hedgerow.protocols.vertical.private_histograms.smooth import series
from hedgerow.protocols.vertical.private_histograms.smooth.groups import groups_of, leaf_numbers
from hedgerow.protocols.vertical.private_histograms.smooth.holder import Answering
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import (
    COUNT_UNIT,
    ROW_WEIGHT_BITS,
    Schedule,
    SharedRecipe,
    expansions_of,
    precision_for,
)
from hedgerow.protocols.vertical.private_histograms.smooth.series import LOGISTIC, SCORE_BITS, SLOPE, Precision
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PROTOCOL
from hedgerow.runtime import resources
from hedgerow.schema import CategoricalColumn, NumericColumn, Schema
from twins.conversation import Conversation
from twins.vertical import make_data, outcomes_of, table_of
from twins.vertical import make_job as job_for
from twins.vertical import play as played

INF = math.inf
DELTA = 1e-5


def with_levels(data, party="ben", n_levels=4):
    """The same data, where a party has one column with levels more."""
    table = data[party].table
    codes = np.random.default_rng(4).integers(-1, n_levels, table.n_rows).astype(np.int32)
    column = Column("level", codes, tuple(f"level {k}" for k in range(n_levels)))
    return {**data, party: replace(data[party], table=table_of([*table.columns, column]))}


def schema_of(data):
    """Public bounds and levels of all columns; those with gaps may have them."""
    columns = []
    for column in [column for party in data.values() for column in party.table.columns]:
        if column.levels is None:
            columns.append(NumericColumn(column.name, -4.0, 4.0, may_be_missing=bool(np.isnan(column.values).any())))
        else:
            columns.append(
                CategoricalColumn(column.name, column.levels, may_be_missing=bool((column.values < 0).any()))
            )
    return Schema(tuple(columns), classes=(0, 1))


def make_job(data, **changes):
    """A job, without noise unless `changes` say so."""
    schema = changes.pop("schema", None) or schema_of(data)
    small = {"epsilon": INF, "delta": DELTA, "schema": schema, "max_bins": 16, "policy": SMOOTH, **changes}
    return job_for(PrivateHistogramsJob, data, "anna", l2=1.0, **small)


# --- the twin --------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What the parties had shares of, by request, and what was drawn and opened."""

    gradients: dict = field(default_factory=lambda: defaultdict(dict))
    opened: dict = field(default_factory=dict)
    draws: list = field(default_factory=list)


@contextmanager
def watched():
    """Writes down shares of gradients, what is opened, and the noise that the dealer draws."""
    seen = Seen()
    gradients, answer, gaussian = Answering._minus_gradients, Answering.answer, SmoothDealing.gaussian

    def seen_gradients(self, p):
        found = gradients(self, p)
        seen.gradients[self._last_number][self.place] = found.copy()
        return found

    def seen_answer(self, asked):
        seen.opened[asked.number] = answer(self, asked)
        return seen.opened[asked.number]

    def seen_gaussian(self, shape, sigma):
        noise = gaussian(self, shape, sigma)
        seen.draws.append((sigma, noise))
        return noise

    with (
        patch.object(Answering, "_minus_gradients", seen_gradients),
        patch.object(Answering, "answer", seen_answer),
        patch.object(SmoothDealing, "gaussian", seen_gaussian),
    ):
        yield seen


class NaiveRows:
    """All columns and labels in one place; gradients as the parties' shares make them, and held against the scores."""

    def __init__(self, job, data, seen):
        own = [OwnColumns(name, job, data[name]) for name in job.holders]
        self.layout = layout_of(job, [np.array(each.places) for each in own], [f.name for f in own[0].grid])
        self.cells = np.concatenate([each.cells for each in own])
        self.labels = data["anna"].labels
        self.seen, self.draws = seen, iter(seen.draws)
        self.counts_noise = None
        self.largest_error = 0.0

    def __call__(self, request):
        """The exact sums, and the noise that was really added."""
        n_cells = self.layout.n_cells
        if request.kind == "counts":
            exact = np.concatenate([np.bincount(c, minlength=n)[:n] for c, n in zip(self.cells, n_cells, strict=True)])
            self.counts_noise = self.seen.opened[request.number] - exact * COUNT_UNIT
            sums = self.seen.opened[request.number]
        else:
            self._update(request)
            sigma, noise = next(self.draws)
            assert sigma == request.sigma
            sums = self._sums(request).reshape(-1)
            sums = sums + noise.reshape(-1)[: len(sums)]  # of a column, noise is dealt for as many bins as can be
        assert np.array_equal(self.seen.opened[request.number], sums)
        return Released(sums, event_of(request.sensitivity_squared, request.sigma, request.n_sums))

    def _update(self, request):
        units = np.rint(np.ldexp(request.update_values, SCORE_BITS)).astype(np.int64)
        if request.update == "start":
            self.base = int(np.rint(np.ldexp(request.base_score, SCORE_BITS)))
            self.scores = np.full(len(self.labels), self.base)
            self.codes = np.stack([bins[cells] for bins, cells in zip(request.bins, self.cells, strict=True)])
        elif request.update == "table":
            self.scores = self.scores + units[self.codes[request.update_feature]]
        elif request.update == "tables":
            self.scores = self.base + sum(table[codes] for table, codes in zip(units, self.codes, strict=True))
        elif request.update == "leaves":
            self.scores = self.scores + units[self.leaves]

    def _sums(self, request):
        if request.kind == "positives":
            return np.array([int(self.labels.sum()) * COUNT_UNIT])
        gradients = self._gradients(request)
        if request.kind == "bin_sums":
            return added_up(self.codes[request.features[0]], gradients, request.n_sums)
        if request.kind == "leaf_sums":
            self.leaves = np.zeros(len(self.labels), np.int64)
            for feature, right in zip(request.features, request.goes_right, strict=True):
                self.leaves = 2 * self.leaves + right[self.codes[feature]]
            n_leaves = request.n_sums // 2
            counts = np.bincount(self.leaves, minlength=n_leaves) << (self.precision.bits - ROW_WEIGHT_BITS)
            return np.stack([added_up(self.leaves, gradients, n_leaves), counts], axis=1)
        # Slopes are shares that nobody wrote down: what was opened is taken, and held against the scores.
        slopes = int(self.seen.opened[request.number][1] - self.seen.draws[-1][1][1])
        true = SLOPE.values(self.scores * 2.0**-SCORE_BITS).sum()
        assert abs(slopes * 2.0**-self.precision.bits - true) <= SLOPE.error(self.precision) * len(self.labels)
        return np.array([gradients.sum(), slopes])

    def _gradients(self, request):
        shares = self.seen.gradients[request.number]
        words = np.sum(list(shares.values()), axis=0, dtype=np.uint32)
        found = words.view(np.int32).astype(np.int64)
        assert np.abs(found).max() <= series.largest_gradient(self.precision)
        p = LOGISTIC.values(self.scores * 2.0**-SCORE_BITS)
        off = np.abs(found * 2.0**-self.precision.bits - (self.labels - p)).max()
        self.largest_error = max(self.largest_error, float(off))
        return found

    @property
    def precision(self):
        """Of gradients."""
        return self._precision

    def run(self, job):
        """The whole training; gives its model."""
        recipe = SharedRecipe(Schedule.of(job, self.layout, len(self.labels)))
        self._precision = recipe.precision
        model = recipe.run(self)
        # angles are looked up in a table of 2^16
        assert self.largest_error <= LOGISTIC.error(recipe.precision) + 0.25 * series.PERIOD * 2.0**-15
        return model


def added_up(positions, values, n):
    """Sums of whole numbers by position."""
    sums = np.zeros(n, np.int64)
    np.add.at(sums, positions, values)
    return sums


def run(job, data, **how):
    """Play a job; hold all that was opened, and the model, against the twin."""
    with watched() as seen:
        parts, parties = played(PROTOCOL, job, data, **how)
    naive = NaiveRows(job, data, seen)
    model = naive.run(job)
    assert len(seen.draws) == len(seen.opened) - 1  # all but the counts, whose noise is not the dealer's
    owners = [job.holders[owner] for owner in naive.layout.owners]
    twin, questions = divide(model, owners, "anna", protocol=job.NAME, run_id=job.run_id)
    mine, theirs = (part.to_dict()["model"] for part in (parts["anna"], twin))
    assert {**mine, "meta": None} == {**theirs, "meta": None}
    for party in job.feature_holders:
        for ours, theirs in zip(parts[party].questions, questions[party], strict=True):
            assert np.array_equal(ours, theirs)
    return SimpleNamespace(parts=parts, parties=parties, seen=seen, naive=naive, model=model)


def numbers_of_owners(found):
    """How many parties have levels of one tree: all numbers that occur."""
    owners = np.array(found.naive.layout.owners)
    trees = found.model.trees[len(owners) :]  # after those of single columns
    return {len(set(owners[tree.feature[tree.feature >= 0]].tolist())) for tree in trees}


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_noise():
    """Three parties, gaps and levels, no noise."""
    data = with_levels(make_data(3, 400, 6, missing=0.1))
    job = make_job(data)
    return SimpleNamespace(data=data, job=job, **vars(run(job, data)))


@pytest.fixture(scope="module")
def with_noise():
    """Two parties, epsilon 4."""
    data = make_data(2, 1200, 5)
    job = make_job(data, epsilon=4.0)
    return SimpleNamespace(data=data, job=job, **vars(run(job, data)))


def test_without_noise_all_sums_and_the_model_equal_the_twins(without_noise):
    """Sums, trees and splits bit for bit (`run` compares them); trees over three parties; nothing is claimed."""
    assert numbers_of_owners(without_noise) == {3}
    assert all(not noise.any() for _, noise in without_noise.seen.draws)
    assert not without_noise.naive.counts_noise.any()
    meta = without_noise.parts["anna"].meta
    assert meta["privacy"] is None
    assert meta["stamp"] == NOT_PRIVATE
    assert meta["policy"] == "smooth_then_trees"


def test_parts_score_rows_as_the_model_does(without_noise):
    """The facade, from parts that were written and read, gives the pooled model's scores, also on shares."""
    parts = {name: part_from_dict(without_noise.parts[name].to_dict()) for name in without_noise.job.holders}
    rows = {name: data.table for name, data in without_noise.data.items()}
    found = VerticalModel(parts).decision_function(rows)
    expected = without_noise.model.raw_scores_binned(without_noise.naive.codes)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    few = {name: table_of([replace(c, values=c.values[:20]) for c in rows[name].columns]) for name in rows}
    closed = VerticalModel(parts).decision_function(few, closed=True)
    np.testing.assert_allclose(closed, expected[:20], rtol=0, atol=1e-3)
    for name in without_noise.job.feature_holders:
        names = [column.name for column in without_noise.data[name].table.columns]
        assert [feature.name for feature in parts[name].features] == names


def test_scores_of_training_are_those_of_the_model(without_noise):
    """Shares of scores add up to what the model says, but for rounding of updates, before the last step."""
    naive, model = without_noise.naive, without_noise.model
    shift = float(model.base_scores[0]) - naive.base * 2.0**-SCORE_BITS
    scores = model.raw_scores_binned(naive.codes)[:, 0] - shift
    np.testing.assert_allclose(naive.scores * 2.0**-SCORE_BITS, scores, rtol=0, atol=1e-3)


def test_noise_is_in_all_that_is_opened(with_noise):
    """Draws have the scale that was planned, and so has the noise of counts; no two draws are alike."""
    standard = np.concatenate([noise.reshape(-1) / sigma for sigma, noise in with_noise.seen.draws])
    assert abs(standard.std() - 1.0) < 0.05
    assert abs(standard.mean()) < 0.06
    counts = with_noise.naive.counts_noise
    sigma = next(line.event["sigma"] for line in with_noise.parties["anna"].ledger if line.event)
    assert abs(counts.std() / sigma - 1.0) < 0.1
    drawn = [noise.tobytes() for _, noise in with_noise.seen.draws if noise.size > 1]
    assert len(set(drawn)) == len(drawn)


def test_events_add_up_to_epsilon(with_noise):
    """All events in the books of both, each release once, cost epsilon and not more; the model says the same."""
    anna, ben = with_noise.parties["anna"].ledger, with_noise.parties["ben"].ledger
    reconcile({name: party.ledger for name, party in with_noise.parties.items()})
    told = [line for line in anna if line.event is not None]
    told += [line for line in ben if line.event is not None and line.message.endswith("smooth_counts")]
    assert {line.message.rsplit(".", 1)[1] for line in told} == {
        "smooth_counts", "smooth_positives", "smooth_bin_sums", "smooth_leaf_sums", "smooth_mean",
    }  # fmt: skip
    accountant = GaussianDP()
    for line in told:
        accountant.compose(events.from_dict(dict(line.event)))
    spent = accountant.epsilon(DELTA)
    assert 3.9999 < spent <= 4.0
    for name in with_noise.job.holders:
        privacy = with_noise.parts[name].meta["privacy"]
        assert privacy["epsilon"] == pytest.approx(spent, rel=1e-6)
        assert privacy["delta"] == DELTA


def test_noise_of_the_next_run_is_another():
    """The same rows with other random bytes: other sums, and the twin follows them; trees of one party and of two."""
    data = make_data(2, 300, 8, missing=0.2)
    job = make_job(data, epsilon=1.0)
    first, second = run(job, data, seed=5), run(job, data, seed=6)
    assert numbers_of_owners(first) == {1, 2}
    assert not np.array_equal(first.seen.opened[1], second.seen.opened[1])
    assert not np.array_equal(first.seen.opened[4], second.seen.opened[4])


def test_a_column_in_one_bin_and_one_party_with_nothing_to_split_by():
    """A constant column is no obstacle, not even if it is all that a party has."""
    data = make_data(2, 200, 4)
    constant = [Column("constant", np.zeros(200))]
    data["ben"] = replace(data["ben"], table=table_of(constant))
    found = run(make_job(data), data)
    assert all(tree.n_nodes >= 1 for tree in found.model.trees)


# --- budgets and refusals --------------------------------------------------------------------------------------------


def test_budget_is_asked_before_anything_is_released():
    """Less noise than planned: every party refuses the release with which it would be too much."""
    data = make_data(2, 200, 3)
    job = make_job(data, epsilon=1.0)
    sigma, wanted = Schedule.sigma, SharedRecipe.sigma
    with (
        patch.object(Schedule, "sigma", lambda self, kind: 0.8 * sigma(self, kind)),
        patch.object(SharedRecipe, "sigma", lambda self, *how: 0.8 * wanted(self, *how)),
    ):
        outcomes, parties = outcomes_of(PROTOCOL, job, data)
    for name in job.holders:
        assert isinstance(outcomes[name].error, BudgetExceeded)
        accountant = GaussianDP()
        for line in parties[name].ledger:
            if line.event is not None:
                accountant.compose(events.from_dict(dict(line.event)))
        assert accountant.epsilon(DELTA) <= 1.0


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (1, {"update_values": np.zeros(1, np.int64)}),
        (2, {"bins": np.zeros((3, 256), np.uint8)}),
        (4, {"number": 5}),
        (4, {"number": 3}),
        (4, {"features": np.array([0], np.int32)}),
        (4, {"bins": np.zeros((3, 256), np.uint8)}),
        (4, {"update_values": np.zeros(3, np.int64)}),
        (3, {"bins": np.zeros((2, 256), np.uint8)}),
        (3, {"bins": np.full((3, 256), 2, np.uint8)}),
        (3, {"bins": np.tile(np.arange(256, dtype=np.uint8), (3, 1))}),
        (33, {"features": np.array([0, 1, 7], np.int32)}),
        (33, {"features": np.array([0, 1, -1], np.int32)}),
        (33, {"features": np.array([0, 1], np.int32)}),
        (33, {"goes_right": np.zeros((2, 256), np.uint8)}),
        (34, {"update_values": np.zeros(4, np.int64)}),
    ],
)
def test_wrong_requests_are_refused(number, changes):
    """A feature holder that is asked for what the schedule does not have at this place ends the run."""
    data = make_data(2, 100, 3)
    asked = holder_module.asked_for

    def wrong(request):
        message = asked(request)
        return replace(message, **changes) if request.number == number else message

    with patch.object(holder_module, "asked_for", wrong):
        outcomes, _ = outcomes_of(PROTOCOL, make_job(data, epsilon=1.0), data)
    assert isinstance(outcomes["ben"].error, ProtocolError)


def fitted_columns(party, job, brought):
    """A party's columns in cells, as its role makes them."""
    described = job.own_columns(party, brought.table)
    table, _ = fit_described(brought.table, described, where=party)
    return OwnColumns(party, job, replace(brought, table=table))


def test_undeclared_gaps_are_mapped_and_undeclared_columns_refused():
    """No error depends on a row: a gap without a cell of its own goes to a public one. Columns must be described."""
    data = with_levels(make_data(2, 50, 3, missing=0.2))
    schema = schema_of(data)
    whole = replace(schema, columns=tuple(replace(column, may_be_missing=False) for column in schema.columns))
    only_level = replace(data["ben"], table=table_of(data["ben"].table.columns[-1:]))
    mapped = fitted_columns("anna", make_job(data, schema=whole), data["anna"])
    gaps = np.isnan(data["anna"].table.columns[0].values)
    assert gaps.any()
    middle = int(np.searchsorted(mapped.grid[0].edges, 0.0, side="right"))
    assert set(mapped.cells[0][gaps].tolist()) == {middle}
    levels = fitted_columns("ben", make_job(data, schema=whole), only_level)
    assert set(levels.cells[0][only_level.table.columns[0].values < 0].tolist()) == {0}
    fewer = replace(schema, columns=schema.columns[1:])
    with pytest.raises(InvalidParameter, match=r"column 'x0' of anna has no entry.*'anna\.x0'"):
        OwnColumns("anna", make_job(data, schema=fewer), data["anna"])


def test_columns_of_one_party_may_be_described_under_its_name():
    """Two parties with columns of the same name: "ben.x0" is ben's, "x0" is everybody else's."""
    data = make_data(2, 50, 2)
    data["ben"] = replace(data["ben"], table=table_of([Column("x0", np.arange(50.0) % 2)]))
    columns = (NumericColumn("x0", -4.0, 4.0), NumericColumn("ben.x0", 0.0, 1.0, integer=True))
    job = make_job(data, schema=Schema(columns, classes=(0, 1)))
    own = [OwnColumns(name, job, data[name]) for name in job.holders]
    assert own[0].n_cells[0] > 2
    assert own[1].n_cells == (2,)
    layout = layout_of(job, [np.array(each.places) for each in own], ["x0"])
    assert [column.name for column in layout.schema.columns] == ["x0", "ben.ben.x0"]
    with pytest.raises(ProtocolError, match="ben says"):
        layout_of(job, [np.array([0]), np.array([2])], ["x0"])


def test_bins_must_follow_each_other():
    """A bin without cells would have a row in the masked matrix for nothing."""
    assert merged_bins(np.array([[0, 0, 1, 9]], np.uint8), (3,), (2,)) == [2]
    with pytest.raises(ProtocolError, match="empty"):
        merged_bins(np.array([[0, 0, 2]], np.uint8), (3,), (3,))
    with pytest.raises(ProtocolError, match="3 bins of a column that may have 2"):
        merged_bins(np.array([[0, 1, 2]], np.uint8), (3,), (2,))


def test_rows_and_noise_must_fit_the_numbers():
    """More rows or more noise take bits from gradients, until there are too few."""
    fine, coarse = precision_for(1000, 10, 1.0, DELTA), precision_for(500_000, 10, 1.0, DELTA)
    assert (fine.bits, coarse.bits) == (17, 11)
    assert precision_for(1000, 10, INF, DELTA).bits == 18
    assert precision_for(1000, 10, 0.1, DELTA).bits < fine.bits
    assert series.largest_gradient(Precision.of(series.COARSEST)) <= 9 / 8 * 2.0**series.COARSEST
    with pytest.raises(InvalidParameter, match="too much for sums of 32 bits"):
        precision_for(5_000_000, 10, 1.0, DELTA)


def test_trees_must_fit_a_message(monkeypatch):
    """Said before the dealer deals: by rows and parties."""
    monkeypatch.setattr(schedule_module, "MAX_FRAME_BYTES", 1 << 16)
    data = make_data(2, 60, 4)
    with pytest.raises(InvalidParameter, match="with 60 rows of 2 parties needs 0 MB in one message of the dealer"):
        played(PROTOCOL, make_job(data), data)


@pytest.mark.parametrize(("n_parties", "depth"), [(2, 6), (2, 3), (3, 6), (4, 6), (5, 4), (8, 6), (2, 1)])
def test_what_is_dealt_is_enough_for_all_divisions_of_levels(n_parties, depth):
    """Whoever owns the levels of a tree: no turn has more ways or vectors than were dealt for, some as many."""
    dealt = expansions_of(min(n_parties, depth), depth)
    most = [(0, 0)] * len(dealt)
    for owners in itertools.combinations_with_replacement(range(n_parties), depth):
        vectors = 1
        for position, group in enumerate(groups_of(owners)[:-1]):
            ways, others = most[position]
            most[position] = (max(ways, group.n_ways), max(others, vectors))
            vectors *= group.n_ways * (1 if position else 2)
    assert most == dealt


def test_memory_is_asked_for_before_columns_are_masked():
    """Bins that do not fit are refused, naming the party."""
    data = make_data(2, 100, 3)
    with (
        patch.object(resources, "memory_available", lambda: 1000),
        pytest.raises(InvalidInput, match=r"bins of 100 rows need about .* GiB.*max_bins"),
    ):
        played(PROTOCOL, make_job(data), data)


# --- pieces ----------------------------------------------------------------------------------------------------------


def values_on_shares(words, precision, n_parties=2):
    """p and slopes of scores, from shares: as whole numbers."""
    rng = np.random.default_rng(8)
    shares = [rng.integers(0, 2**32, len(words)).astype(np.uint32) for _ in range(n_parties - 1)]
    shares.append(words - np.sum(shares, axis=0, dtype=np.uint32))
    seeds = [bytes([k + 1]) * 32 for k in range(n_parties)]
    step = Dealer(seeds).step(Label(tree=1))
    series.deal_sines(step, len(words), precision)
    parcels = step.corrections()
    hands = [Hand(seed, k, n_parties).step(Label(tree=1), parcels.get(k)) for k, seed in enumerate(seeds)]
    talks = [
        Conversation(series.values_of(hand, own, precision, LOGISTIC, SLOPE, is_first=k == 0))
        for k, (hand, own) in enumerate(zip(hands, shares, strict=True))
    ]
    sent = [talk.send() for talk in talks]
    for talk in talks:
        talk.receive(sent)
    added = np.sum([talk.result for talk in talks], axis=0, dtype=np.uint32)  # [series, rows]
    found = list(added.view(np.int32).astype(np.int64))
    for hand in hands:
        hand.finish()
    return found


@pytest.mark.parametrize(("bits", "n_parties"), [(12, 2), (15, 3), (18, 2)])
def test_values_on_shares_are_right_and_bounded_for_every_score(bits, n_parties):
    """Within the stated error of the logistic function for scores up to 17, and within the bound for any words."""
    precision = Precision.of(bits)
    x = np.linspace(-17.0, 17.0, 9000)
    words = np.rint(np.ldexp(x, SCORE_BITS)).astype(np.int64).astype(np.uint32)
    p, slopes = values_on_shares(words, precision, n_parties)
    unit, angle = 2.0**-bits, series.PERIOD * 2.0**-15
    true = 1.0 / (1.0 + np.exp(-x))
    near = np.abs(x) < 15.0
    assert np.abs(p * unit - true).max() < LOGISTIC.error(precision) + 0.02 + 0.25 * angle
    assert np.abs(p * unit - true)[near].max() < LOGISTIC.error(precision) + 0.003 + 0.25 * angle
    assert np.abs(slopes * unit - true * (1.0 - true))[near].max() < SLOPE.error(precision) + 0.005 + 0.1 * angle
    words = np.random.default_rng(1).integers(0, 2**32, 50_000).astype(np.uint32)
    p, slopes = values_on_shares(words, precision, n_parties)
    one, largest = 1 << bits, series.largest_gradient(precision)
    assert max(np.abs(p).max(), np.abs(one - p).max()) <= largest
    assert largest < 1.13 * one
    assert np.abs(slopes).max() <= series.largest_slope(precision) < 0.37 * one


def test_coefficients_are_those_of_the_function():
    """Fourier coefficients of p - 1/2 up to a quarter of the period and back; slopes are the derivative."""
    n, period = 1 << 14, series.PERIOD
    x = np.arange(n) * (period / n)
    up = np.minimum(x, period - x)
    there = np.minimum(up, period / 2 - up)
    odd = np.where(x <= period / 2, 1.0, -1.0) * (1.0 / (1.0 + np.exp(-there)) - 0.5)
    multiples = 2 * np.arange(series.N_SINES) + 1
    found = -np.fft.rfft(odd)[multiples].imag * 2 / n
    scale = 2.0**series.COEFFICIENT_BITS
    assert np.abs(np.array(LOGISTIC.sines) - found * scale).max() < 1.0
    slopes = found * multiples * 2 * np.pi / period
    assert np.abs(np.array(SLOPE.cosines) - slopes * scale).max() < 1.0
    assert np.abs(LOGISTIC.values(x) - 0.5 - odd).max() < 0.001


def test_many_rows_are_dealt_in_parcels(monkeypatch):
    """With small parcels and messages a run is the same; labels of steps go on."""
    for module in ("dealer", "smooth.holder"):
        monkeypatch.setattr(f"hedgerow.protocols.vertical.private_histograms.{module}.DEALT_ROWS", 64)
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 1000)
    data = make_data(2, 150, 3)
    run(make_job(data), data)


def test_leaves_of_levels_of_several_parties():
    """The leaf of each combination of ways, from the bits of all levels."""
    groups = groups_of([1, 0, 1, 2, 1])
    assert [(group.place, group.levels) for group in groups] == [(0, (1,)), (2, (3,)), (1, (0, 2, 4))]
    leaves = leaf_numbers(groups, 5)
    assert leaves.shape == (4, 8)
    for of_two in range(2):
        for of_zero in range(2):
            for way in range(8):
                bits = [way >> 2 & 1, of_zero, way >> 1 & 1, of_two, way & 1]
                assert leaves[2 * of_two + of_zero, way] == int("".join(map(str, bits)), 2)
    assert leaf_numbers(groups_of([0, 0]), 2).tolist() == [[0, 1, 2, 3]]


# --- as something to run ---------------------------------------------------------------------------------------------


def test_through_the_federation_and_over_grpc():
    """Trained by processes, with levels; scored in the open and closed; what is not to be chosen is refused."""
    rng = np.random.default_rng(2)
    n = 300
    bank = pd.DataFrame({"income": rng.normal(size=n)})
    shop = pd.DataFrame({"spent": rng.normal(size=n), "town": pd.Categorical(rng.choice(["a", "b", "c"], n))})
    y = np.where(bank["income"] + shop["spent"] > 0, "good", "bad")
    schema = Schema.from_public(bounds={"income": (-3, 3), "shop.spent": (-3, 3)}, levels={"town": ["a", "b", "c"]})
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    own = {"schema": schema, "policy": SMOOTH, "epsilon": 8.0}
    done = fed.fit("vertical.private_histograms", transport="grpc", **own)
    done.reconcile()
    rows = {"bank": bank, "shop": shop}
    chance = done.model.predict_proba(rows)
    assert np.mean((chance[:, 1] > 0.5) == (y == "good")) > 0.7
    assert np.abs(chance - done.model.predict_proba(rows, closed=True)).max() < 1e-5
    words = done.statement()
    told = " ".join(str(words).split())
    assert "sums of gradients in bins of single columns" in told
    assert "Counts of rows in public cells were told with noise of their owner." in told
    assert (words.facts["policy"], words.facts["reveal"]) == (SMOOTH, None)
    assert done.model.parts["bank"].meta["privacy"]["epsilon"] <= 8.0
    for wish, name in (
        ({"n_estimators": 5}, "n_iterations"),
        ({"reveal": "winner"}, "reveal"),
        ({"eta": 1}, "learning"),
    ):
        with pytest.raises(InvalidParameter, match=f"policy='smooth_then_trees' sets {name}"):
            fed.fit("vertical.private_histograms", **own, **wish)
