"""A run of vertical.secret_shared that breaks off goes on from its last tree: same model, and nothing serves twice.

Nothing that lasts from tree to tree is a share: the label holder knows scores and rows in the clear, the feature
holders their questions. So a state holds what its party knows anyway, and every attempt deals for its trees anew.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.label_holder import KeptForest
from hedgerow.protocols.vertical.secret_shared.messages import LevelInput, MaskedColumns, WhichWay
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints, GoOnFrom, KeptTrees
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import run_together
from twins.attempts import files_in, killed_and_resumed, words_in_common
from twins.openings import repeated_masks
from twins.resuming import Broken, resumed, some_breaks

N_ROWS = 150
N_TREES = 4
HOLDERS = ("anna", "ben", "carla")
TREES = BoostingParams(n_iterations=N_TREES, max_depth=2, min_child_weight=0.0, learning_rate=0.3)
JOB = SecretSharedJob(HOLDERS, "anna", "a run", boosting=TREES, max_bins=8)
SQUARED = replace(JOB, task="regression", boosting=replace(TREES, loss="squared", label_range=(-4.0, 4.0), max_depth=1))
"""One level in a tree: the dealer is several trees ahead, and hears late that one is over."""


@cache
def make_data(job=JOB):
    """Columns of three parties, some with gaps or levels, and labels that follow from all of them."""
    rng = np.random.default_rng(6)
    columns = rng.normal(size=(6, N_ROWS))
    total = columns[::2].sum(axis=0)
    columns[3, rng.random(N_ROWS) < 0.2] = np.nan
    data = {}
    for k, name in enumerate(HOLDERS):
        listed = tuple(Column(f"x{j}", columns[2 * k + j]) for j in range(2))
        data[name] = PartyData(Table(listed, N_ROWS, ("x0", "x1"), has_names=True))
    is_class = job.task == "classification"
    labels = (total > 0).astype(np.float64) if is_class else np.clip(total, -4, 4)
    data["anna"] = PartyData(data["anna"].table, labels, (0, 1) if is_class else None)
    return data


@cache
def calm(job=JOB):
    """The run that nothing breaks off."""
    return resumed(PROTOCOL, job, make_data(job), [])


def parts(end):
    """Everybody's part of the model as its file has it, but for the number of attempts."""
    found = {name: end.results[name].to_dict() for name in HOLDERS}
    for part in found.values():
        part.get("model", part)["meta"].pop("attempts", None)
    return found


def grown(end):
    """Of each attempt, how many trees the label holder finished."""
    return [len(numbers["anna"]) for numbers in end.numbers]


@pytest.mark.parametrize("job", [JOB, SQUARED])
@pytest.mark.parametrize("seed", range(6))
def test_the_model_is_the_same_wherever_a_run_breaks(job, seed):
    """Three breaks in one run, of any party, the dealer too, before and after any message and any state."""
    end = resumed(PROTOCOL, job, make_data(job), some_breaks(PROTOCOL, job, calm(job), seed, 3))
    assert parts(end) == parts(calm(job))


@pytest.mark.parametrize("name", [*HOLDERS, "dealer"])
def test_no_tree_that_everybody_kept_is_grown_again(name):
    """Whoever vanishes in the middle of a run, at most one tree is lost."""
    n_frames = len(calm().attempts[0].recording(name).passed)
    end = resumed(PROTOCOL, JOB, make_data(), [Broken(name, passing=int(0.7 * n_frames))])
    (from_tree,) = end.messages("ben", GoOnFrom, "received")
    assert from_tree.n_trees >= 1
    first, second = grown(end)
    assert second == N_TREES - from_tree.n_trees
    assert first + second <= N_TREES + 1
    assert parts(end) == parts(calm())


def test_a_party_that_kept_a_tree_more_goes_back_with_the_others():
    """Ben is gone before it keeps its third tree, which anna has: both have the second."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("ben", keeping=3, done=False)])
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [2]
    assert parts(end) == parts(calm())


def test_the_dealer_is_told_and_not_asked():
    """It has no state, so it says nothing about one, and holds nobody up that is several trees ahead of it."""
    end = resumed(PROTOCOL, SQUARED, make_data(SQUARED), [Broken("dealer", passing=20)])
    assert end.messages("dealer", KeptTrees, "sent") == []
    assert len(end.messages("dealer", GoOnFrom, "received")) == 1
    assert end.checkpoints["dealer"].trees == ()
    assert parts(end) == parts(calm(SQUARED))


def test_a_run_that_is_over_can_be_asked_for_again():
    """With all trees kept, a next attempt grows none, and everybody has its part once more."""
    end = resumed(PROTOCOL, JOB, make_data(), [])
    again, *_ = run_together(PROTOCOL, JOB, make_data(), attempt=2, checkpoints=end.checkpoints)
    assert again["anna"].ensemble.to_dict()["trees"] == end.results["anna"].ensemble.to_dict()["trees"]
    assert again["ben"].to_dict()["splits"] == end.results["ben"].to_dict()["splits"]


def test_the_record_says_how_many_attempts_there_were():
    """And nothing else about them."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("ben", keeping=1), Broken("carla", keeping=1)])
    assert end.results["anna"].meta["attempts"] == 3
    assert "attempts" not in calm().results["anna"].meta


# --- nothing serves twice --------------------------------------------------------------------------------------------


def test_attempts_have_no_mask_in_common():
    """The third tree is played five times over the same rows; no seed, no dealt and no opened word comes twice."""
    breaks = [Broken("carla", keeping=3, done=False), *[Broken("carla", keeping=1, done=False)] * 3]
    end = resumed(PROTOCOL, JOB, make_data(), breaks)
    seeds = [message.seed for message in end.messages("dealer", Seed, "received")]
    assert len(seeds) == len(set(seeds)) == 3 * 5
    dealt = {m.corrections.tobytes() for m in end.messages("ben", Dealt, "received") if len(m.corrections) > 32}
    assert len(dealt) == sum(len(m.corrections) > 32 for m in end.messages("ben", Dealt, "received"))
    fields = {MaskedColumns: "words", LevelInput: "sums", MaskedWords: "words"}
    again = words_in_common(end.attempts[1:], "ben", fields)
    assert len(again[0]) > 20
    assert repeated_masks(again) == []


def test_a_state_holds_no_share_and_nothing_that_was_dealt():
    """Two runs with other random bytes keep the same states, byte for byte."""
    one, other = calm(), resumed(PROTOCOL, JOB, make_data(), [])
    for name in HOLDERS:
        for number in one.checkpoints[name].trees:
            assert one.checkpoints[name].read(number) == other.checkpoints[name].read(number)


def test_a_question_keeps_its_number():
    """Handles of questions are those of an uninterrupted run, so the label holder sees no question under two."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("anna", keeping=2), Broken("ben", keeping=1)])
    told = [m.handles.tolist() for m in end.attempts[-1].recording("anna").messages(WhichWay, "received")]
    before = [m.handles.tolist() for m in calm().attempts[0].recording("anna").messages(WhichWay, "received")]
    assert told == before[len(before) - len(told) :]


# --- files and processes ---------------------------------------------------------------------------------------------


def test_a_state_in_a_file_is_the_state_in_memory(tmp_path):
    """All of its arrays and trees come back bit for bit."""
    end = resumed(PROTOCOL, JOB, make_data(), [], files_in(tmp_path, PROTOCOL, JOB))
    kept, known = (each.checkpoints["anna"].load(N_TREES, KeptForest) for each in (end, calm()))
    assert np.array_equal(kept.scores, known.scores)
    for one, other in zip(kept.trees.trees(), known.trees.trees(), strict=True):
        for field in dataclasses.fields(one):
            assert np.array_equal(
                getattr(one, field.name), getattr(other, field.name), equal_nan=field.name == "threshold"
            )


def test_other_rows_are_refused():
    """A table of another length cannot take up scores of an earlier attempt."""
    end = resumed(PROTOCOL, JOB, make_data(), [])
    fewer = {
        name: PartyData(
            Table(
                tuple(Column(c.name, c.values[:-1]) for c in each.table.columns),
                N_ROWS - 1,
                ("x0", "x1"),
                has_names=True,
            ),
            None if each.labels is None else each.labels[:-1],
            each.classes,
        )
        for name, each in make_data().items()
    }
    with pytest.raises(InvalidInput, match="an earlier attempt of this run had 150 rows, and now there are 149"):
        run_together(PROTOCOL, JOB, fewer, attempt=2, checkpoints=end.checkpoints)


def test_without_checkpoints_a_later_attempt_begins_anew():
    """If one party has nothing, all begin from the first tree."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("ben", keeping=3)])
    kept = {**end.checkpoints, "ben": Checkpoints()}
    results, *_ = run_together(PROTOCOL, JOB, make_data(), attempt=5, checkpoints=kept)
    assert results["anna"].to_dict()["model"]["trees"] == parts(calm())["anna"]["model"]["trees"]


@pytest.mark.parametrize("name", ["anna", "carla", "dealer"])
def test_a_process_that_is_killed_costs_one_tree(tmp_path, name):
    """SIGKILL after some trees, over gRPC with files; the next attempt has the same model."""
    results, kept = killed_and_resumed(PROTOCOL, JOB, make_data(), tmp_path, name, at=3)
    assert max(kept["ben"]) >= 2
    for holder in HOLDERS:
        found, expected = results[holder].to_dict(), calm().results[holder].to_dict()
        found.get("model", found)["meta"].pop("attempts")
        assert found == expected
