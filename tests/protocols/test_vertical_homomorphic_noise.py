"""vertical.homomorphic with dp=(epsilon, delta): how much noise, what it is for, and what is made of noisy sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import Loss
from hedgerow.engine.table import Column
from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.privacy.events import DiscreteGaussian, NonPrivate, Repeated, walk
from hedgerow.protocols.vertical.common.joint_forest import JointRows, packed_columns
from hedgerow.protocols.vertical.homomorphic import label_holder, messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.noisy_sums import SumNoise, consistent
from hedgerow.protocols.vertical.homomorphic.sums import ColumnSums
from hedgerow.protocols.vertical.noised_gradients.noise import plain_quantiser
from hedgerow.runtime.budgets import checked_budgets
from hedgerow.runtime.protocol import find
from hedgerow.schema import Schema
from twins import vertical
from twins.joint_trees import difference_from_pooled

PROTOCOL = find("vertical.homomorphic")
N_ROWS = 200
DATA = vertical.make_data(3, N_ROWS, 8, missing=0.1)
SCHEMA = Schema.from_public(bounds={f"x{k}": (-4.0, 4.0) for k in range(8)}, may_be_missing=True)
DP = (2.0, 1e-6)


def make_job(data=DATA, dp=DP, **changes):
    """A small job with noise."""
    return vertical.make_job(HomomorphicJob, data, **{"schema": SCHEMA, "dp": dp, "max_depth": 2, **changes})


# --- what is made of noisy sums --------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    n_codes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    total=st.sampled_from([0, 1, 7, 2**20, 2**31 - 1]),
    scale=st.sampled_from([0.0, 1.0, 2.0**20, 2.0**31, 2.0**35]),
    steepness=st.sampled_from([0.0, 1.0, 2.0**31 - 1]),
)
def test_noisy_sums_are_made_such_that_halves_never_borrow(seed, n_codes, total, scale, steepness):
    """Down a path of nodes, summed and by subtraction: hessians add up, no subset of gradients leaves 32 bits."""
    rng = np.random.default_rng(seed)
    n_codes = np.array(n_codes)
    starts = np.cumsum(n_codes) - n_codes
    gradient = int(rng.integers(-1, 2) * min(steepness, 2**31 - 1))
    parents, totals = None, np.array([[gradient, total]])
    for _ in range(6):
        noisy = np.rint(scale * rng.normal(size=(1, n_codes.sum(), 2))).astype(np.int64)
        noisy += rng.integers(0, total + 1, (1, n_codes.sum(), 2))
        found = consistent(noisy, starts, totals, parents)
        held = [found] if parents is None else [found, parents - found]
        for each in held:
            assert (each[:, :, 1] >= 0).all()
            assert np.add.reduceat(np.abs(each[:, :, 0]), starts, axis=1).max() < 2**31
        assert (np.add.reduceat(found[:, :, 1], starts, axis=1) == totals[:, 1:]).all()
        packed = [(each[..., 0] << 32) + each[..., 1] for each in held]
        for sums, each in zip(packed, held, strict=True):
            assert np.array_equal(label_holder.unpacked(sums.reshape(-1)), each.reshape(-1, 2))
        if parents is not None:
            assert np.array_equal(((parents[..., 0] << 32) + parents[..., 1]) - packed[0], packed[1])
        parents = held[int(rng.integers(len(held)))]
        hessian = int(parents[0, : n_codes[0], 1].sum())
        totals = np.array([[int(rng.integers(-(2**31) + 1, 2**31)), int(rng.integers(0, hessian + 1))]])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**9), n_rows=st.integers(1, 60))
def test_sums_without_noise_stay_as_they_are(seed, n_rows):
    """Real sums of a node and of its parent are consistent already."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, n, n_rows) for n in (2, 5, 3)])
    values = np.column_stack([rng.integers(-(2**20), 2**20, n_rows), rng.integers(1, 2**20, n_rows)])

    def sums(rows):
        return np.stack([values[rows & (column == code)].sum(axis=0) for column, n in zip(codes, (2, 5, 3), strict=True)
                         for code in range(n)])[None]  # fmt: skip

    inside = rng.random(n_rows) < 0.5
    for rows, parents in ((np.ones(n_rows, bool), None), (inside, sums(np.ones(n_rows, bool)))):
        exact, totals = sums(rows), values[rows].sum(axis=0)[None]
        if totals[0, 1]:
            assert np.array_equal(consistent(exact, np.array([0, 2, 7]), totals, parents), exact)


# --- how much --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_no_table_of_one_other_row_moves_sums_further(n_columns):
    """All bins of one row, before and after: the largest distance is the event's, and it is reached."""
    noise = SumNoise.plan(make_job(), Loss("logistic"), N_ROWS, n_columns)
    sensitivities = [part.sensitivity for part in walk(noise.event) if isinstance(part, DiscreteGaussian)]
    n_codes, bounds = 3, (noise.gradient_bound, noise.hessian_bound)
    for bound, sensitivity in zip(bounds, sensitivities, strict=True):
        furthest = 0.0
        for before in np.ndindex(*[n_codes] * n_columns):
            for after in np.ndindex(*[n_codes] * n_columns):
                moved = np.zeros((n_columns, n_codes))
                moved[np.arange(n_columns), before] -= bound
                moved[np.arange(n_columns), after] += bound
                furthest = max(furthest, float(np.linalg.norm(moved)))
        assert furthest == pytest.approx(sensitivity, rel=1e-12)


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("classification", {}),
        ("classification", {"gradient_bits": 12}),
        ("regression", {}),
        ("regression", {"loss": "poisson", "label_range": (0.0, 3.0)}),
    ],
)
def test_no_row_is_larger_than_its_bound(task, changes):
    """Scores far off, every label: what the engine makes of a row is within what the noise was made for."""
    job = make_job(task=task, **changes)
    loss = job.public_loss()
    noise = SumNoise.plan(job, loss, N_ROWS, 2)
    low, high = loss.label_range
    labels = np.where(np.arange(N_ROWS) % 2 == 0, low, high)
    columns = packed_columns(np.zeros((1, N_ROWS), np.uint8), [FeatureBins("x", edges=np.zeros(1))])
    quantiser = plain_quantiser(job, loss, N_ROWS)
    rows = JointRows(columns, labels, None, loss, np.zeros(1), quantiser, n_threads=1)
    for score in (-80.0, -3.0, 0.0, 3.0, 80.0):
        rows.scores[0] = score
        rows.gradients()
        noise.check_rows("anna", label_holder.unpacked(rows.gradients_packed[0]))
    exact = loss.gradient_bound * rows.quantiser.gradient_scale
    assert exact <= noise.gradient_bound <= exact * (1 + 1e-5) + 3


def test_all_levels_of_all_trees_cost_what_was_asked_and_hardly_less():
    """By the accountant, at the job's delta; one level more would be too much."""
    job = make_job(n_iterations=7, max_depth=4)
    noise = SumNoise.plan(job, Loss("logistic"), N_ROWS, 3)
    assert noise.releases == 28
    assert 0.999 * DP[0] < noise.spent(28, DP[1]) <= DP[0]
    assert noise.spent(29, DP[1]) > DP[0]
    assert SumNoise.plan(make_job(n_iterations=7, max_depth=4, max_leaves=3), Loss("logistic"), 9, 3).releases == 14
    three = SumNoise.plan(job, Loss("softmax", 3), N_ROWS, 3)
    assert three.releases == 3 * 28


def test_what_cannot_be_proved_or_opened_is_refused_before_anything_is_sent():
    """With the parameter, its value and a way out."""
    for changes, said in [
        ({"schema": None}, r"dp needs the public bounds.*schema=Schema\.from_public"),
        ({"max_depth": None}, "dp needs max_depth"),
        ({"dp": (1.0,)}, r"dp must be \(epsilon, delta\), got \(1\.0,\)"),
        ({"dp": (0.0, 1e-6)}, "epsilon must be a number above 0"),
        ({"dp": (1.0, 0.0)}, "delta must be at least"),
        ({"task": "regression", "label_range": None}, "with dp a regression needs label_range"),
    ]:
        with pytest.raises(InvalidParameter, match=said):
            make_job(**changes)
    with pytest.raises(InvalidParameter, match=r"noise for dp=\(0\.0001.*larger epsilon.*gradient_bits=\d+") as caught:
        vertical.play(PROTOCOL, make_job(dp=(1e-4, 1e-6)), DATA)
    bits = int(str(caught.value).rsplit("=", 1)[1])
    assert SumNoise.plan(make_job(dp=(1e-4, 1e-6), gradient_bits=bits), Loss("logistic"), N_ROWS, 3) is not None
    other = Schema.from_public(bounds={"x0": (0.0, 1.0)})
    with pytest.raises(InvalidParameter, match="column 'x2' of ben has no entry in the schema"):
        vertical.play(PROTOCOL, make_job(schema=other), DATA)
    weighted = {**DATA, "anna": replace(DATA["anna"], weight=np.ones(N_ROWS))}
    with pytest.raises(InvalidInput, match="dp is for rows without weights"):
        vertical.play(PROTOCOL, make_job(), weighted)
    assert not PROTOCOL.takes_weights({"dp": DP})


def test_of_several_classes_all_trees_are_counted():
    """A tree for each class and iteration: as many levels at most, and all of them within the budget."""
    many = {**DATA, "anna": replace(DATA["anna"], labels=np.arange(N_ROWS) % 3.0, classes=(0, 1, 2))}
    job = make_job()
    parts, parties = vertical.play(PROTOCOL, job, many)
    noise = SumNoise.plan(job, Loss("softmax", 3), N_ROWS, len(DATA["ben"].table.columns))
    assert parts["ben"].meta["noise"] == parts["anna"].ensemble.meta["noise"]["ben"] == noise.facts(job)
    events = [event for *_, event in parties["ben"].ledger.entries() if event is not None]
    assert noise.releases // 2 < len(events) <= noise.releases == 3 * 2 * 2
    assert set(events) == {noise.event}


# --- runs ------------------------------------------------------------------------------------------------------------


class Watched:
    """A run with noise: what was opened, what sums there were without noise, and all messages."""

    def __init__(self, job, data=DATA, **how):
        self.opened, self.exact, self.seen, self.values = {}, {}, [], []
        take, encrypted, check = label_holder.ForeignColumns.take, ColumnSums.encrypted, SumNoise.check_rows

        def taking(foreign, where, sums, totals):
            self.opened.setdefault(foreign._party, []).append(sums.copy())
            return take(foreign, where, sums, totals)

        def summing(columns, holder, nodes, *rest):
            self.exact.setdefault(id(columns), []).append([columns.in_clear(rows, self.values[-1]) for rows in nodes])
            return encrypted(columns, holder, nodes, *rest)

        def checking(noise, party, values):
            self.values.append(values)
            return check(noise, party, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(label_holder.ForeignColumns, "take", taking)
            patch.setattr(ColumnSums, "encrypted", summing)
            patch.setattr(ColumnSums, "in_clear", in_clear, raising=False)
            patch.setattr(SumNoise, "check_rows", checking)
            watch = lambda to, sender, message: self.seen.append((sender, to, message))  # noqa: E731 - short
            self.parts, self.parties = vertical.play(PROTOCOL, job, data, watch=watch, **how)


def in_clear(columns, rows, values):
    """The sums of some rows, as they would be without encryption and noise."""
    sums = np.zeros((columns.n_sums, 2), np.int64)
    for column, first in zip(columns._codes, columns._first.tolist(), strict=True):
        np.add.at(sums, first + column[rows].astype(np.int64), values[rows])
    return sums


@pytest.mark.parametrize(
    "options",
    [
        {"n_iterations": 6, "max_depth": 3, "max_bins": 32},
        {"scheme": "paillier", "max_depth": 1, "max_bins": 64},
        {"scheme": "ou", "max_depth": 1, "max_bins": 64},
    ],
    ids=["elgamal", "paillier", "ou"],
)
def test_the_noise_is_inside_and_as_large_as_planned(options):
    """Opened less exact sums, over a run: no mean, and the planned variance, within six standard errors of either."""
    data = {name: DATA[name] for name in ("anna", "ben")}
    job = make_job(data, **options)
    run = Watched(job, data)
    noise = SumNoise.plan(job, Loss("logistic"), N_ROWS, len(DATA["ben"].table.columns))
    (exact,) = run.exact.values()
    found = np.concatenate([(a - np.array(b)).reshape(-1, 2) for a, b in zip(run.opened["ben"], exact, strict=True)])
    n = len(found)
    assert n > 300
    for values, sigma in zip(found.T / 1.0, (noise.gradient_sigma, noise.hessian_sigma), strict=True):
        assert abs(values.mean()) < 6 * sigma / math.sqrt(n)
        assert abs(values.var() / sigma**2 - 1) < 6 * math.sqrt(2 / n)
    assert abs(np.corrcoef(found.T)[0, 1]) < 6 / math.sqrt(n)
    assert len(np.unique(found, axis=0)) > 0.99 * n


def test_the_ledger_has_the_event_of_every_level():
    """As many as messages of sums, each the planned one; together they cost no more than was asked."""
    job = make_job(n_iterations=3, max_depth=3)
    parts, parties = vertical.play(PROTOCOL, job, DATA)
    for name in ("ben", "carla"):
        noise = SumNoise.plan(job, Loss("logistic"), N_ROWS, len(DATA[name].table.columns))
        sent = [
            (kind.message, event) for way, _, kind, _, event in parties[name].ledger.entries() if way == "disclosed"
        ]
        events = [event for _, event in sent if event is not None]
        assert len(events) == sum(message == messages.NoisySums.NAME for message, _ in sent) <= noise.releases
        assert set(events) == {noise.event}
        accountant = GaussianDP("replace_one")
        accountant.compose_all(events)
        assert accountant.epsilon(DP[1]) <= DP[0]
        assert messages.EncryptedSums.NAME not in [message for message, _ in sent]
        assert parts[name].meta["noise"] == parts["anna"].ensemble.meta["noise"][name] == noise.facts(job)


def test_more_levels_than_were_planned_are_refused(monkeypatch):
    """A conversation that goes on for longer ends before the first sums that nobody has paid for."""
    plan = SumNoise.plan

    def for_fewer(*given):
        return replace(plan(*given), gradient_sigma=plan(*given).gradient_sigma / 2)

    monkeypatch.setattr(SumNoise, "plan", for_fewer)
    with pytest.raises(ProtocolError, match=r"epsilon .* was spent at delta"):
        vertical.play(PROTOCOL, make_job(n_iterations=3), DATA)


@pytest.mark.parametrize("dp", [None, (math.inf, 1e-6), (math.inf, 0.0)])
def test_without_noise_it_is_the_pooled_engine_on_public_bins(dp):
    """An infinite epsilon, or none: the same bits; bins follow from the schema, for the label holder from values."""
    job = make_job(dp=dp, n_iterations=3)
    parts, _ = vertical.play(PROTOCOL, job, DATA)
    mapper = BinMapper(tuple(feature for name in DATA for feature in parts[name].features))
    table = vertical.table_of([column for name in DATA for column in DATA[name].table.columns])
    codes = mapper.transform(table)
    twin = train(job.boosting, mapper, codes, DATA["anna"].labels).ensemble
    assert difference_from_pooled(parts, job, DATA, twin, codes) is None
    for feature in parts["ben"].features:
        assert np.array_equal(feature.edges, -4.0 + 8.0 * np.arange(1, 7) / 7) or np.allclose(
            np.diff(feature.edges), 8 / 7
        )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_model_with_little_noise_is_as_good_as_one_without(task):
    """Epsilon 60: most rows are ranked as without noise, so that nothing is mixed up on the way."""
    data = vertical.make_data(2, 400, 6, task=task)
    found = []
    for dp in ((60.0, 1e-3), None):
        job = make_job(data, dp=dp, task=task, n_iterations=4, max_bins=5)
        parts, _ = vertical.play(PROTOCOL, job, data)
        answers = {"ben": parts["ben"].answers(parts["ben"].codes(data["ben"].table))}
        found.append(parts["anna"].raw_scores(parts["anna"].codes(data["anna"].table), answers)[:, 0])
    labels = data["anna"].labels
    errors = [float(np.corrcoef(scores, labels)[0, 1]) for scores in found]
    assert errors[0] > 0.8 * errors[1] > 0.3


def test_values_do_not_make_a_run_fail():
    """Gaps only, numbers beyond their bounds: no error tells of them, and bins do not follow from them."""
    odd = [Column("x2", np.full(N_ROWS, np.nan)), Column("x3", np.full(N_ROWS, 1e30))]
    data = {"anna": DATA["anna"], "ben": replace(DATA["ben"], table=vertical.table_of(odd))}
    schema = Schema.from_public(bounds={"x2": (-4.0, 4.0), "x3": (-4.0, 4.0)})
    run = Watched(make_job(data, schema=schema), data)
    order = next(m for _, _, m in run.seen if isinstance(m, messages.ColumnOrder))
    assert order.n_bins.tolist() == [7, 7]


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_a_budget_is_charged_with_sides_that_have_no_guarantee(tmp_path):
    """Which way rows go is told exactly, so no epsilon pays for a run: a budget refuses it, as without noise."""
    job = make_job()
    planned = PROTOCOL.planned(job, "ben", DATA["ben"])
    noise = SumNoise.plan(job, Loss("logistic"), N_ROWS, len(DATA["ben"].table.columns))
    assert Repeated(noise.event, noise.releases) in planned.event.events
    assert [part.reason for part in walk(planned.event) if isinstance(part, NonPrivate)] == [
        "vertical.homomorphic tells exactly which way rows go, whatever noise sums have"
    ]
    file = BudgetFile(tmp_path / "budgets.sqlite")
    dataset = file.open("customers", 1e6, 0.5, "replace_one")
    with pytest.raises(BudgetExceeded, match="release without guarantee"):
        checked_budgets({"ben": dataset}, PROTOCOL, job, DATA)


def test_bounds_of_rows_are_checked_where_they_are_encrypted():
    """Gradients beyond what the noise was made for end the run before a row is sent."""
    noise = SumNoise.plan(make_job(), Loss("logistic"), N_ROWS, 2)
    noise.check_rows("anna", np.array([[-noise.gradient_bound, noise.hessian_bound]]))
    with pytest.raises(ProtocolError, match="beyond what the noise was made for"):
        noise.check_rows("anna", np.array([[noise.gradient_bound + 1, 0]]))


def test_two_runs_have_noise_of_their_own():
    """Of the same rows with random bytes of the operating system."""
    noise = SumNoise.plan(make_job(), Loss("logistic"), N_ROWS, 2)
    assert not np.array_equal(noise.drawn(50, SecureRandom()), noise.drawn(50, SecureRandom()))
