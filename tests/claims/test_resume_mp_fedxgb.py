"""A run of vertical.mp_fedxgb that breaks off goes on from its last tree; shares of leaves stay, masks do not.

Weights of leaves are right to one in a million, by chance up or down, so two runs differ in their last bits. With the
same random bytes in all attempts, which only a test may have, they do not: words of a tree depend on its number alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.published.mp_fedxgb import holder as holders
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import NumeratorShare, PredictionShare, Steps, StepShare
from hedgerow.protocols.published.mp_fedxgb.spec import SPEC as PROTOCOL
from hedgerow.protocols.shares.messages import Dealt, MaskedBins, MaskedWords, Seed, SharingSeed
from hedgerow.runtime.checkpoint import Checkpoints, GoOnFrom
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import run_together
from hedgerow.transport.frames import encode
from twins.attempts import files_in, fix_coins, killed_and_resumed, words_in_common
from twins.openings import repeated_masks
from twins.resuming import Broken, resumed, some_breaks

N_ROWS = 60
N_TREES = 3
HOLDERS = ("anna", "ben", "carla")
TREES = BoostingParams(n_iterations=N_TREES, max_depth=2, min_child_weight=0.0, learning_rate=0.3)
JOB = MpFedXgbJob(HOLDERS, "anna", "a run", boosting=TREES, max_bins=5, accept_known_leaks=True)
DIVIDED = replace(JOB, argmax="division", first_layer_mask=True, boosting=replace(TREES, n_iterations=2, max_depth=1))


@cache
def make_data():
    """Columns of three parties, one with gaps, and labels that follow from all of them."""
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(4, N_ROWS))
    labels = (columns[:3].sum(axis=0) > 0).astype(np.float64)
    columns[3, rng.random(N_ROWS) < 0.2] = np.nan

    def table(*places):
        names = tuple(f"x{k}" for k in places)
        return Table(tuple(Column(f"x{k}", columns[k]) for k in places), N_ROWS, names, has_names=True)

    return {"anna": PartyData(table(0), labels, (0, 1)), "ben": PartyData(table(1, 3)), "carla": PartyData(table(2))}


@cache
def calm(job=JOB):
    """The run that nothing breaks off, with random bytes that are always the same, and perturbations of 0."""
    with pytest.MonkeyPatch.context() as patch:
        unperturbed(patch)
        return resumed(PROTOCOL, job, make_data(), [])


def unperturbed(patch):
    """All that is drawn in a tree follows from its number then, and not from what was drawn before."""
    fix_coins(patch)
    patch.setattr(SecureRandom, "below", lambda _random, _n, size: np.zeros(size, np.uint64))


def parts(end):
    """Everybody's part of the model as its file has it, but for the number of attempts."""
    found = {name: end.results[name].to_dict() for name in HOLDERS}
    for part in found.values():
        part["meta"].pop("attempts", None)
    return found


def values(results):
    """The leaf values of all trees, which nobody knows, from everybody's words."""
    words = [np.concatenate(results[name].leaves) for name in HOLDERS]
    return np.sum(words, axis=0, dtype=np.uint64).view(np.int64) * 2.0 ** -results["anna"].fraction_bits


def columns_of(results):
    """The splits that each party knows."""
    return {name: [tree.column.tolist() for tree in results[name].trees] for name in HOLDERS}


@pytest.mark.parametrize("job", [JOB, DIVIDED])
@pytest.mark.parametrize("seed", range(4))
def test_the_model_is_the_same_wherever_a_run_breaks(monkeypatch, job, seed):
    """Three breaks in one run, of any party, at any message or state: with the same random bytes, bit for bit."""
    unperturbed(monkeypatch)
    end = resumed(PROTOCOL, job, make_data(), some_breaks(PROTOCOL, job, calm(job), seed, 3))
    assert parts(end) == parts(calm(job))


@pytest.mark.parametrize("name", [*HOLDERS, "dealer"])
def test_with_fresh_random_bytes_only_roundings_differ(name):
    """As it is run: the same splits, and leaf values within what any two runs differ by."""
    n_frames = len(calm().attempts[0].recording(name).passed)
    end = resumed(
        PROTOCOL, JOB, make_data(), [Broken(name, passing=n_frames // 2), Broken(name, passing=n_frames // 3)]
    )
    assert columns_of(end.results) == columns_of(calm().results)
    assert np.allclose(values(end.results), values(calm().results), atol=2e-6, rtol=0)


def test_trees_that_were_kept_are_not_grown_again():
    """Words of their leaves are those that were kept, and the dealer deals for the others alone."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("ben", keeping=4)])  # once before and once after each tree
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [2]
    dealt = {m.tree for m in end.attempts[1].recording("carla").messages(Dealt, "received")}
    assert dealt == {2}
    again, *_ = run_together(PROTOCOL, JOB, make_data(), attempt=3, checkpoints=end.checkpoints)
    for name in HOLDERS:
        for one, other in zip(again[name].leaves, end.results[name].leaves, strict=True):
            assert np.array_equal(one, other)


def test_shares_of_two_attempts_are_not_mixed():
    """Carla has kept a tree that ben has not; it is grown again, and breaks before carla keeps it once more.

    What carla kept at first belongs to words that ben does not have: it is gone when the second attempt begins.
    """
    breaks = [Broken("ben", keeping=4, done=False), Broken("carla", keeping=2, done=False)]
    end = resumed(PROTOCOL, JOB, make_data(), breaks)
    assert end.numbers[1]["carla"][0] == 1
    assert columns_of(end.results) == columns_of(calm().results)
    assert np.allclose(values(end.results), values(calm().results), atol=2e-6, rtol=0)


# --- nothing serves twice --------------------------------------------------------------------------------------------


def again_and_again():
    """The second tree is played five times over the same rows."""
    breaks = [Broken("carla", keeping=4, done=False), *[Broken("carla", keeping=2, done=False)] * 3]
    return resumed(PROTOCOL, JOB, make_data(), breaks)


def test_attempts_have_no_mask_in_common():
    """No seed comes twice, no correction, and no word that was opened under a mask."""
    end = again_and_again()
    for party, kind in (("dealer", Seed), ("ben", SharingSeed)):
        seeds = [message.seed for message in end.messages(party, kind, "received")]
        assert len(seeds) == len(set(seeds)) == 5 * (3 if kind is Seed else 2)
    dealt = [m.corrections.tobytes() for m in end.messages("ben", Dealt, "received") if len(m.corrections) > 32]
    assert len(dealt) == len(set(dealt))
    again = words_in_common(end.attempts[1:], "ben", {MaskedBins: "words", MaskedWords: "words"})
    assert len(again[0]) > 20
    assert repeated_masks(again) == []


def test_shares_that_are_opened_are_new_and_what_they_make_is_not():
    """P1 and P2 learn from a tree that is grown again what they had learned, and each share of it is another one."""
    end = again_and_again()
    for kind, party, fields in ((NumeratorShare, "ben", "words"), (StepShare, "anna", "words")):
        again = words_in_common(end.attempts[1:], party, {kind: fields})
        assert repeated_masks(again) == []
    numbers = [
        [encode(m) for m in played.recording("ben").messages(NumeratorShare, "noted") if m.tree == 1]
        for played in end.attempts
    ]
    assert len(numbers[0]) >= 2
    assert all(each == numbers[0] for each in numbers)


def test_perturbations_are_drawn_once():
    """What is opened of a leaf of a tree that breaks and is grown again is the same number: no mean can be taken."""
    end = again_and_again()
    steps = [[m for m in played.recording("ben").messages(Steps, "received") if m.tree == 1] for played in end.attempts]
    assert [len(each) for each in steps] == [1] * 5
    assert len({each[0].words.tobytes() for each in steps}) == 1
    other = [m for m in calm().attempts[0].recording("ben").messages(Steps, "received") if m.tree == 1]
    assert other[0].words.tobytes() != steps[0][0].words.tobytes()


def test_perturbations_of_the_first_tree_are_drawn_once_too():
    """There is no tree to go on from, but what was kept before it."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("carla", keeping=2, done=False)])
    assert [m.n_trees for m in end.messages("ben", GoOnFrom, "received")] == [0]
    steps = [m.words.tobytes() for m in end.messages("ben", Steps, "received") if m.tree == 0]
    assert len(steps) == 2
    assert len(set(steps)) == 1


# --- files and processes ---------------------------------------------------------------------------------------------


def test_other_rows_are_refused():
    """A table of another length cannot take up scores of an earlier attempt."""
    end = resumed(PROTOCOL, JOB, make_data(), [])
    fewer = {
        name: PartyData(
            Table(
                tuple(Column(c.name, c.values[:-1]) for c in each.table.columns),
                N_ROWS - 1,
                each.table.names,
                has_names=True,
            ),
            None if each.labels is None else each.labels[:-1],
            each.classes,
        )
        for name, each in make_data().items()
    }
    with pytest.raises(InvalidInput, match="an earlier attempt of this run had 60 rows, and now there are 59"):
        run_together(PROTOCOL, JOB, fewer, attempt=2, checkpoints=end.checkpoints)


def test_if_one_party_has_nothing_all_begin_anew():
    """And end with as many trees."""
    end = resumed(PROTOCOL, JOB, make_data(), [Broken("ben", keeping=4)])
    kept = {**end.checkpoints, "ben": Checkpoints()}
    results, *_ = run_together(PROTOCOL, JOB, make_data(), attempt=5, checkpoints=kept)
    assert columns_of(results) == columns_of(calm().results)


@pytest.mark.parametrize("name", ["anna", "dealer"])
def test_a_process_that_is_killed_costs_one_tree(tmp_path, name):
    """SIGKILL after some trees, over gRPC with files; the next attempt has the same trees."""
    results, kept = killed_and_resumed(PROTOCOL, JOB, make_data(), tmp_path, name, at=2)
    assert max(kept["ben"]) >= 1
    assert columns_of(results) == columns_of(calm().results)
    assert np.allclose(values(results), values(calm().results), atol=2e-6, rtol=0)


def test_states_are_files_too(tmp_path):
    """Words and scores come back bit for bit."""
    end = resumed(PROTOCOL, JOB, make_data(), [], files_in(tmp_path, PROTOCOL, JOB))
    kept = end.checkpoints["carla"].load(N_TREES, holders.Kept)
    for one, other in zip(kept.weights, end.results["carla"].leaves, strict=True):
        assert np.array_equal(one, other)
    assert end.attempts[0].recording("anna").messages(PredictionShare, "received")
