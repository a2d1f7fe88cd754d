"""A run of vertical.private_histograms that breaks off goes on, and all that its attempts released is paid for.

Without noise and with the same random bytes in all attempts, which only a test may have, the model is the same bit for
bit. With noise, a tree that breaks has spent what it released: the model has fewer trees, and says so.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import BudgetExceeded, InvalidInput, InvalidParameter
from hedgerow.protocols.central.gaussian.recipe import Size
from hedgerow.protocols.shares.columns import Sizes
from hedgerow.protocols.shares.messages import Dealt, MaskedBins, MaskedWords, Seed, SharingSeed
from hedgerow.protocols.vertical.private_histograms import holder as holders
from hedgerow.protocols.vertical.private_histograms.columns import layout_of
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    HistogramShare,
    LeafShare,
    ReleasesBegun,
    SmoothAsked,
    SmoothBinSums,
    SmoothCounts,
    SmoothLeafSums,
    SmoothMean,
    SmoothPositives,
    SmoothSides,
    StartShare,
    StepsThatFit,
    WinnerShare,
)
from hedgerow.protocols.vertical.private_histograms.plan import Plan, accountant_of, edge_event
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import Schedule
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints, GoOnFrom
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import run_together
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import play
from twins.attempts import fix_coins, killed_and_resumed, words_in_common
from twins.openings import repeated_masks
from twins.resuming import BreakingCheckpoints, Broken, resumed, some_breaks

N_ROWS = 60
N_TREES = 5
HOLDERS = ("anna", "ben")
TREES = BoostingParams(n_iterations=N_TREES, max_depth=2, learning_rate=0.3, min_child_weight=0.0)
SCHEMA = Schema.from_public(bounds={"a": (-3.0, 3.0), "b": (-3.0, 3.0)}, may_be_missing=["b"], classes=[0, 1])
EXACT = PrivateHistogramsJob(HOLDERS, "anna", "a run", boosting=TREES, max_bins=6, epsilon=math.inf, schema=SCHEMA)
JOBS = {
    "winner": EXACT,
    "histogram": replace(EXACT, reveal="histogram"),
    "smooth": replace(EXACT, policy="smooth_then_trees"),
}
NOISY = {name: replace(job, epsilon=4.0) for name, job in JOBS.items()}
GROWN = ("winner", "histogram")
FIRST_TREE = 4
"""The number of the first call that keeps a state before the leaves of the first tree of grown winners are told."""
N_SMOOTH = 6
RELEASES = (StartShare, WinnerShare, HistogramShare, LeafShare)
SMOOTH_RELEASES = (SmoothPositives, SmoothBinSums, SmoothLeafSums, SmoothMean)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Smooth models have at least 100 trees; here they have a few."""
    monkeypatch.setattr(Size, "of_task", classmethod(lambda cls, _loss, n, _p, _mu: cls(n, (1.0, 1.0), 2, N_SMOOTH)))


@cache
def make_data():
    """Columns of two parties, one with gaps, and labels that follow from both."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=(2, N_ROWS))
    labels = (values.sum(axis=0) > 0).astype(np.float64)
    values[1, rng.random(N_ROWS) < 0.2] = np.nan

    def table(k):
        return Table((Column("ab"[k], values[k]),), N_ROWS, ("ab"[k],), has_names=True)

    return {"anna": PartyData(table(0), labels, (0, 1)), "ben": PartyData(table(1))}


_calm = {}


def calm(name):
    """The run without noise that nothing breaks off, with fixed random bytes."""
    if name not in _calm:
        with pytest.MonkeyPatch.context() as patch:
            fix_coins(patch)
            _calm[name] = resumed(PROTOCOL, JOBS[name], make_data(), [])
    return _calm[name]


def parts(end):
    """Everybody's part of the model as its file has it, but for the number of attempts."""
    found = {name: end.results[name].to_dict() for name in HOLDERS}
    for part in found.values():
        part.get("model", part)["meta"].pop("attempts", None)
    return found


def n_trees(end):
    """Of the model, but for tables of single columns."""
    part = end.results["anna"]
    return part.n_trees - (2 if hasattr(part, "ensemble") else 0)


def n_released(end, kind):
    """How often a release was begun in all attempts, by whoever was first to send its share."""
    return sum(max(len(each.recording(name).messages(kind, "sent")) for name in HOLDERS) for each in end.attempts)


# --- without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("seed", range(5))
def test_the_model_is_the_same_wherever_a_run_breaks(monkeypatch, name, seed):
    """Three breaks in one run, of any party, the dealer too, before and after any message and any state."""
    fix_coins(monkeypatch)
    job = JOBS[name]
    end = resumed(PROTOCOL, job, make_data(), some_breaks(PROTOCOL, job, calm(name), seed, 3))
    assert parts(end) == parts(calm(name))


@pytest.mark.parametrize("name", GROWN)
def test_steps_that_were_kept_are_not_played_again(name):
    """The dealer deals for later ones alone, and there is one start, or two if there is no tree yet."""
    n_frames = len(calm(name).attempts[0].recording("ben").passed)
    end = resumed(PROTOCOL, JOBS[name], make_data(), [Broken("ben", passing=n_frames * 2 // 3)])
    (from_tree,) = end.messages("ben", GoOnFrom, "received")
    assert from_tree.n_trees >= 1
    dealt = {m.tree for m in end.attempts[1].recording("ben").messages(Dealt, "received")}
    assert dealt == set(range(1 + from_tree.n_trees, 1 + N_TREES))
    assert n_released(end, StartShare) == 1


def test_requests_that_were_kept_are_not_asked_again():
    """With smooth_then_trees the label holder knows what was answered, and asks for the rest."""
    end = resumed(PROTOCOL, JOBS["smooth"], make_data(), [Broken("ben", keeping=10), Broken("dealer", passing=70)])
    asked = [[m.number for m in each.recording("ben").messages(SmoothAsked, "received")] for each in end.attempts]
    assert [each[0] for each in asked] == [1, 10, asked[2][0]]
    assert asked[2][0] > 11
    assert asked[2][-1] == 3 + 20 + N_SMOOTH


@pytest.mark.parametrize("name", JOBS)
def test_with_fresh_random_bytes_only_roundings_differ(name):
    """As it is run: as many trees, and scores of rows within what any two runs differ by."""
    end = resumed(PROTOCOL, JOBS[name], make_data(), [Broken("ben", passing=150), Broken("anna", passing=100)])
    assert n_trees(end) == n_trees(calm(name))
    if name in GROWN:
        found, expected = (
            np.concatenate([np.sum([run.results[h].leaves[t] for h in HOLDERS], axis=0) for t in range(N_TREES)])
            for run in (end, calm(name))
        )
        assert np.abs((found - expected).view(np.int64)).max() < 2**20 / 50


# --- with noise ------------------------------------------------------------------------------------------------------


def spent(name, end):
    """Delta of all that left any house in all attempts, counted from messages alone, at the job's epsilon."""
    job = NOISY[name]
    accountant = accountant_of(job)
    if name == "smooth":
        schedule = Schedule.of(job, layout_of(job, [np.array([0]), np.array([1])], ["a"]), N_ROWS)
        for place in range(2):
            accountant.compose(schedule.counts_event(place))
        kinds = dict(zip(SMOOTH_RELEASES, ("positives", "bin_sums", "leaf_sums", "mean"), strict=True))
        for kind, called in kinds.items():
            number = schedule.kinds.index(called) + 1
            if times := n_released(end, kind):
                accountant.compose(schedule.largest_event(number), times)
        return accountant.delta(job.epsilon)
    columns = [end.results[holder].features for holder in HOLDERS]
    plan = plan_of(job, columns)
    for _ in HOLDERS:
        accountant.compose(edge_event(job, 1))
    start, *levels, leaves = plan.spending.releases()[: job.depth + 2]
    times = {kind: n_released(end, kind) for kind in RELEASES}
    accountant.compose(start, times[StartShare])
    accountant.compose(leaves, times[LeafShare])
    if name == "winner":
        accountant.compose(levels[0], times[WinnerShare])
    else:
        surveys = n_surveys(end)
        accountant.compose(plan.spending.survey_event(), surveys)
        accountant.compose(levels[-1], times[HistogramShare] - surveys)
    return accountant.delta(job.epsilon)


def plan_of(job, columns):
    """The plan that everybody has, from the bins of all columns."""
    bins = tuple(tuple(feature.n_value_bins for feature in features) for features in columns)
    return Plan.of(job, Sizes(N_ROWS, bins, ((False,), (True,))))


def n_surveys(end):
    """The first histogram of each attempt that begins with the first tree."""
    found = 0
    for played in end.attempts:
        sent = [m for name in HOLDERS for m in played.recording(name).messages(HistogramShare, "sent")]
        found += bool(sent and played.recording("anna").messages(StartShare, "sent"))
    return found


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("seed", range(4))
def test_never_more_is_released_than_was_planned(name, seed):
    """Two breaks in one run at any point; what is left out is what they cost, and the record adds up."""
    job = NOISY[name]
    breaks = some_breaks(PROTOCOL, job, calm(name), 100 + seed, 2)
    end = resumed(PROTOCOL, job, make_data(), breaks)
    record = end.results["anna"].meta
    assert spent(name, end) <= job.delta
    assert record["privacy"]["epsilon"] <= job.epsilon
    planned = N_SMOOTH if name == "smooth" else N_TREES
    assert n_trees(end) == planned - record.get("trees_left_out", 0)


@pytest.mark.parametrize("name", GROWN)
def test_a_tree_that_breaks_costs_one(name):
    """Its leaves were told and it was not kept: the next attempt has one tree less to grow, and says so."""
    calls = [2 + 3 * 4, 3 + 3 * 4][name == "histogram"]  # before the leaves of the third tree are told, and it is kept
    end = resumed(PROTOCOL, NOISY[name], make_data(), [Broken("ben", keeping=calls, done=False)])
    record = end.results["anna"].meta
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [2]
    assert n_trees(end) == N_TREES - 1
    assert record["trees_left_out"] == end.results["ben"].meta["trees_left_out"] == 1
    assert n_released(end, LeafShare) == N_TREES
    assert [m.n_steps for m in end.messages("dealer", StepsThatFit, "received")] == [N_TREES - 1]
    statement = PROTOCOL.statement(NOISY[name], record)
    assert statement.facts["trees_left_out"] == 1
    assert "1 tree that was planned was left out: attempts that broke off had spent" in str(statement)


@pytest.mark.parametrize("name", GROWN)
def test_a_break_before_anything_is_released_costs_nothing(name):
    """Ben is gone as soon as it has kept a tree; nothing of the next one has left."""
    calls = [2 + 2 * 4, 3 + 2 * 4][name == "histogram"]
    end = resumed(PROTOCOL, NOISY[name], make_data(), [Broken("ben", keeping=calls)])
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [2]
    assert n_trees(end) == N_TREES
    assert "trees_left_out" not in end.results["anna"].meta
    assert "left out" not in str(PROTOCOL.statement(NOISY[name], end.results["anna"].meta))


def test_a_release_that_only_one_party_began_is_spent_for_all():
    """Anna has counted it and ben has not: ben hears of it, and both go on with the larger number."""
    end = resumed(PROTOCOL, NOISY["winner"], make_data(), [Broken("ben", keeping=FIRST_TREE + 4, done=False)])
    mine, theirs = (end.messages(name, ReleasesBegun, "sent")[0].counts for name in HOLDERS)
    assert mine.sum() == theirs.sum() + 1
    assert n_trees(end) == N_TREES - 1


def test_trees_that_were_kept_have_the_noise_that_they_had():
    """The first two trees of the model are those of the first attempt."""
    end = resumed(PROTOCOL, NOISY["winner"], make_data(), [Broken("ben", keeping=2 + 2 * 4)])
    kept = end.attempts[0].parties["anna"].checkpoints.inner
    again, *_ = run_together(PROTOCOL, NOISY["winner"], make_data(), attempt=3, checkpoints=end.checkpoints)
    assert kept.trees[-1] == N_TREES
    for one, other in zip(again["anna"].leaves, end.results["anna"].leaves, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", GROWN)
def test_counts_of_cells_are_drawn_once(monkeypatch, name):
    """However often a run breaks before its first tree, edges follow from one draw of each party."""
    drawn, draw = [], holders.noisy_counts
    monkeypatch.setattr(holders, "noisy_counts", lambda *how: drawn.append(1) or draw(*how))
    breaks = [Broken("ben", keeping=1), Broken("anna", passing=12), Broken("ben", keeping=2, done=False)]
    end = resumed(PROTOCOL, NOISY[name], make_data(), breaks)
    assert len(drawn) == 2
    assert n_trees(end) >= 1


def test_counts_of_smooth_models_are_drawn_once():
    """Who has to send them again sends the same numbers."""
    end = resumed(PROTOCOL, NOISY["smooth"], make_data(), [Broken("anna", keeping=2, done=False)])
    sent = [m.counts.tobytes() for m in end.messages("ben", SmoothCounts, "sent")]
    assert len(sent) == 2
    assert len(set(sent)) == 1


def test_a_smooth_model_leaves_out_its_last_step_if_that_is_too_much():
    """The mean was told to one party, and is spent: the model has all of its trees, and the base score of the start."""
    end = resumed(PROTOCOL, NOISY["smooth"], make_data(), [Broken("ben", keeping=3 + 20 + N_SMOOTH + 1, done=False)])
    record = end.results["anna"].meta
    assert record["last_step_left_out"]
    assert n_trees(end) == N_SMOOTH
    assert "So was the last step" in str(PROTOCOL.statement(NOISY["smooth"], record))
    assert spent("smooth", end) <= NOISY["smooth"].delta


def test_a_smooth_model_that_is_all_released_costs_no_more():
    """Everybody has kept the last answer, and ben is gone before it is told its splits."""
    end = resumed(PROTOCOL, NOISY["smooth"], make_data(), [Broken("ben", keeping=3 + 20 + N_SMOOTH + 1)])
    record = end.results["anna"].meta
    assert "trees_left_out" not in record
    assert "last_step_left_out" not in record
    assert n_released(end, SmoothMean) == 1


def test_a_request_for_sums_of_bins_that_breaks_costs_trees():
    """There are as many tables as ever, and fewer trees."""
    end = resumed(PROTOCOL, NOISY["smooth"], make_data(), [Broken("ben", keeping=10, done=False)])
    record = end.results["anna"].meta
    assert n_trees(end) == record["n_trees"] == N_SMOOTH - record["trees_left_out"]
    assert record["trees_left_out"] == 1
    assert n_released(end, SmoothBinSums) == 22  # one that both told, and one that anna had begun to tell
    assert spent("smooth", end) <= NOISY["smooth"].delta


def test_when_no_tree_fits_any_more_nobody_trains():
    """Breaks in the first tree, again and again, until nothing is left."""
    breaks = [Broken("ben", keeping=2 + 4, done=False)] * (N_TREES + 1)
    with pytest.raises(BudgetExceeded, match="no tree fits into epsilon=4 any more"):
        resumed(PROTOCOL, NOISY["winner"], make_data(), breaks)


@pytest.mark.parametrize("name", NOISY)
def test_a_party_that_lost_what_it_kept_cannot_go_on(name):
    """Its noise would be drawn again, and nobody could say how often that has been."""
    kept = {holder: BreakingCheckpoints(Checkpoints()) for holder in HOLDERS}
    kept["ben"].at = Broken("ben", keeping=12)
    play(PROTOCOL, NOISY[name], make_data(), checkpoints=kept)
    before = kept["anna"].trees
    with pytest.raises(BudgetExceeded, match="ben took part in more releases of earlier attempts than it has kept"):
        run_together(PROTOCOL, NOISY[name], make_data(), attempt=2, checkpoints={**kept, "ben": Checkpoints()})
    assert kept["anna"].trees == before  # so that ben may find it again
    with pytest.raises(InvalidParameter, match="a later attempt needs the checkpoints of the earlier ones"):
        run_together(PROTOCOL, NOISY[name], make_data(), attempt=3)


@pytest.mark.parametrize("name", NOISY)
def test_a_run_that_was_begun_is_not_begun_again(name):
    """As a first attempt it would forget what was spent."""
    end = resumed(PROTOCOL, NOISY[name], make_data(), [])
    with pytest.raises(InvalidParameter, match="this run was begun before, so this is a later attempt"):
        run_together(PROTOCOL, NOISY[name], make_data(), checkpoints=end.checkpoints)


@pytest.mark.parametrize("name", JOBS)
def test_other_rows_are_refused(name):
    """A table of another length cannot take up shares of an earlier attempt."""
    end = resumed(PROTOCOL, JOBS[name], make_data(), [])
    fewer = {
        holder: PartyData(
            Table(
                tuple(Column(c.name, c.values[:-1]) for c in each.table.columns),
                N_ROWS - 1,
                each.table.names,
                has_names=True,
            ),
            None if each.labels is None else each.labels[:-1],
            each.classes,
        )
        for holder, each in make_data().items()
    }
    with pytest.raises(InvalidInput, match="an earlier attempt of this run had 60 rows, and now there are 59"):
        run_together(PROTOCOL, JOBS[name], fewer, attempt=2, checkpoints=end.checkpoints)


# --- nothing serves twice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "keeping"), [("winner", 2 + 2 * 4), ("histogram", 3 + 2 * 4), ("smooth", 26)])
def test_attempts_have_no_mask_in_common(name, keeping):
    """A step is played five times over the same rows; no seed, no correction and no opened word comes twice."""
    again = {"winner": 5, "histogram": 5, "smooth": 3}[name]
    breaks = [Broken("ben", keeping=keeping, done=False), *[Broken("ben", keeping=again, done=False)] * 3]
    end = resumed(PROTOCOL, JOBS[name], make_data(), breaks)
    seeds = [m.seed for m in end.messages("dealer", Seed, "received")]
    assert len(seeds) == len(set(seeds)) == 2 * 5
    shared = [m.seed for m in end.messages("ben", SharingSeed, "received")]
    assert len(shared) == len(set(shared))
    dealt = [m.corrections.tobytes() for m in end.messages("ben", Dealt, "received") if len(m.corrections) > 32]
    assert len(dealt) == len(set(dealt))
    kinds = (MaskedBins, MaskedWords, SmoothSides, *RELEASES[1:], *SMOOTH_RELEASES[1:])
    opened = words_in_common(end.attempts[1:], "ben", dict.fromkeys(kinds, "words"))
    assert len(opened[0]) >= 5
    assert repeated_masks(opened) == []


def test_shares_of_two_attempts_are_not_mixed(monkeypatch):
    """Anna keeps a tree that ben does not have; it is grown again, and breaks before anna keeps it once more.

    What anna kept at first belongs to words that ben does not have: it is gone when the second attempt begins.
    """
    breaks = [Broken("ben", keeping=2 + 2 * 4, done=False), Broken("anna", keeping=5, done=False)]
    end = resumed(PROTOCOL, JOBS["winner"], make_data(), breaks)
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [1, 1]
    fix_coins(monkeypatch)
    assert n_trees(end) == N_TREES
    scores = [end.checkpoints[name].load(N_TREES, holders.Kept).scores for name in HOLDERS]
    total = np.sum(scores, axis=0, dtype=np.uint32).view(np.int32)
    leaves = np.sum([np.abs(values).max() for values in end.checkpoints["anna"].load(N_TREES, holders.Kept).values])
    assert np.abs(total).max() <= leaves + abs(end.checkpoints["anna"].load(N_TREES, holders.Kept).first_score)


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "killed"), [("winner", "ben"), ("histogram", "dealer")])
def test_a_process_that_is_killed_costs_one_tree(tmp_path, name, killed):
    """SIGKILL after some trees, over gRPC with files: what was spent is in them."""
    results, kept = killed_and_resumed(PROTOCOL, NOISY[name], make_data(), tmp_path, killed, at=3)
    assert max(kept["anna"]) >= 2
    record = results["anna"].meta
    assert record["attempts"] == 2
    assert results["anna"].n_trees == N_TREES - record.get("trees_left_out", 0) >= N_TREES - 1
    assert record["privacy"]["epsilon"] <= 4.0
