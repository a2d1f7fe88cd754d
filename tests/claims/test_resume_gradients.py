"""Runs that exchange gradients go on after the last tree that all have kept, with the noise that was drawn for it.

vertical.noised_gradients with noise of a run, of a tree and of a message, and vertical.masked_gradients.
"""

from __future__ import annotations

import math

import pytest

from hedgerow.errors import InvalidInput
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.messages import MaskedGradients
from hedgerow.protocols.published.masked_gradients.spec import SPEC as MASKED
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import BestGains, NoisyGradients, NoisyLevel
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise
from hedgerow.protocols.vertical.noised_gradients.spec import SPEC as NOISED
from hedgerow.runtime.checkpoint import Checkpoints, GoOnFrom, KeptTrees
from twins.resuming import Broken, frames_of, resumed, some_breaks
from twins.vertical import make_data, make_job

DATA = make_data(3, n_rows=200, n_columns=6)
N_TREES = 4
EPSILON = {"epsilon": 3.0, "delta": 1e-5}
EXACT = {"epsilon": math.inf}


def noised(**options):
    """A job of a few trees."""
    return make_job(NoisedGradientsJob, DATA, n_iterations=N_TREES, **options)


def masked(C):
    """A job of a few trees."""
    given = {"sigma1": 0.5, "sigma2": 1.0, "C": C, "accept_known_leaks": True}
    return make_job(MaskedGradientsJob, DATA, n_iterations=N_TREES, **given)


def parts(end):
    """What everybody has in the end, but for what tells of attempts."""
    found = {name: part.to_dict() for name, part in end.results.items()}
    for part in found.values():
        part.get("meta", part.get("model", {}).get("meta", {})).pop("attempts", None)
    return found


@pytest.fixture
def drawn(monkeypatch):
    """All noise that is drawn for trees, in order; what `again` holds is drawn before anything new."""

    class Drawn(list):
        again = ()

    found, release = Drawn(), LabelNoise.release

    def watching(noise, exact, random):
        k = len(found)
        made = release(noise, exact, random) if k >= len(found.again) else found.again[k]
        found.append(made)
        return made

    monkeypatch.setattr(LabelNoise, "release", watching)
    return found


# --- the same model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [EXACT, EXACT | {"per": "message"}, EXACT | {"score": "first_order"}])
def test_without_noise_a_run_ends_as_if_it_had_never_been_broken_off(options):
    """The same parts, bit for bit, wherever it was broken off, and however often."""
    job = noised(**options)
    calm = resumed(NOISED, job, DATA, [])
    for seed in range(12):
        breaks = some_breaks(NOISED, job, calm, seed, n=1 + seed % 3)
        assert parts(resumed(NOISED, job, DATA, breaks)) == parts(calm), breaks


@pytest.mark.parametrize("per", ["run", "tree"])
def test_with_noise_it_ends_as_if_the_same_noise_had_been_drawn_at_once(drawn, per):
    """No release is drawn twice, so there are as many as planned; and with them the parts are the same."""
    job = noised(per=per, **EPSILON)
    calm = resumed(NOISED, job, DATA, [])
    for seed in range(12):
        breaks = some_breaks(NOISED, job, calm, seed, n=1 + seed % 3)
        drawn.clear()
        drawn.again = ()
        end = resumed(NOISED, job, DATA, breaks)
        assert len(drawn) == job.releases
        drawn.again = list(drawn)
        drawn.clear()
        assert parts(resumed(NOISED, job, DATA, [])) == parts(end), breaks
        privacy = end.results["anna"].meta["privacy"]
        assert privacy["releases"] == job.releases
        assert privacy["epsilon"] <= job.epsilon


def test_every_message_and_every_keep_of_a_run_can_be_its_last(drawn):
    """The label holder is lost before each frame it sends, after each it gets, before and after each state it keeps."""
    job = make_job(NoisedGradientsJob, DATA, n_iterations=2, max_depth=2, per="tree", **EPSILON)
    calm = resumed(NOISED, job, DATA, [])
    n_frames, n_kept = frames_of(calm.attempts[0], "anna"), len(calm.numbers[0]["anna"])
    breaks = [Broken("anna", passing=k) for k in range(1, n_frames + 1)]
    breaks += [Broken("anna", keeping=k, done=done) for k in range(1, n_kept + 1) for done in (False, True)]
    assert n_kept == 4
    for at in breaks:
        drawn.clear()
        end = resumed(NOISED, job, DATA, [at])
        assert len(end.attempts) <= 2  # noise may make fewer messages of it
        assert len(drawn) == 2 + (at.keeping in {1, 3} and not at.done)  # drawn, but gone before it was kept or sent


# --- noise -----------------------------------------------------------------------------------------------------------


def test_what_was_sent_is_sent_again_as_it_was():
    """A feature holder that gets the gradients of a tree twice gets the same bytes: nothing can be averaged."""
    job = noised(per="tree", **EPSILON)
    end = resumed(NOISED, job, DATA, [Broken("carla", passing=k) for k in (5, 5, 9, 6, 14, 12)])
    sent = [message.gradients.tobytes() for message in end.messages("ben", NoisyGradients, "received")]
    assert len(sent) > N_TREES
    assert len(set(sent)) == N_TREES


def test_noise_of_messages_is_drawn_anew_and_counted():
    """With per="message" a tree that is broken off has cost what it has sent, and the record says so."""
    job = noised(per="message", **EPSILON)
    calm = resumed(NOISED, job, DATA, [])
    end = resumed(NOISED, job, DATA, [Broken("ben", passing=k) for k in (9, 15)])
    sent = len(end.messages("anna", NoisyLevel, "sent"))
    told = end.results["anna"].meta["privacy"]["releases"]
    assert told >= sent > calm.results["anna"].meta["privacy"]["releases"]
    assert told - sent <= 2 * len(DATA)  # a level that was begun counts for all


@pytest.mark.parametrize("forgetful", ["ben", "anna"])
def test_a_run_in_which_noise_would_be_drawn_again_is_refused(forgetful):
    """Where a party has lost its states, all trees would be grown again, with new noise for each."""
    job = noised(per="tree", **EPSILON)
    kept = {name: Checkpoints() for name in DATA}
    with pytest.raises(RuntimeError, match="stop"):
        stopped_after(job, 3, kept)
    kept[forgetful] = Checkpoints()
    with pytest.raises(InvalidInput, match="this run cannot go on"):
        resumed(NOISED, job, DATA, [], kept, attempts_from=2)


def stopped_after(job, n_trees, kept):
    """A run whose label holder stops after this many trees."""

    def report(done, _total):
        if done == n_trees:
            raise RuntimeError("stop")

    resumed(NOISED, job, DATA, [], kept, on_progress=report)


# --- work ------------------------------------------------------------------------------------------------------------


def test_trees_that_were_kept_are_not_grown_again():
    """What is lost is at most one tree's work: each later attempt begins with the tree that was broken off."""
    job = noised(**EXACT)
    calm = resumed(NOISED, job, DATA, [])
    per_tree = len(calm.messages("ben", BestGains, "sent")) / N_TREES
    end = resumed(NOISED, job, DATA, [Broken("anna", keeping=k) for k in (2, 1, 1)])
    assert [each["anna"] for each in end.numbers] == [[1, 2], [3], [4], []]
    assert len(end.messages("ben", BestGains, "sent")) <= len(calm.messages("ben", BestGains, "sent")) + 3 * per_tree
    chosen = [message.n_trees for message in end.messages("ben", GoOnFrom, "received")]
    assert chosen in ([2, 3, 4], [1, 2, 3])
    assert end.results["anna"].meta["attempts"] == 4
    assert "attempts" not in calm.results["anna"].meta


def test_who_is_one_tree_behind_decides():
    """The label holder has kept a tree that a feature holder has not: all go on from the one before."""
    job = noised(**EXACT)
    end = resumed(NOISED, job, DATA, [Broken("carla", keeping=3, done=False)])
    told = [message.trees.tolist() for message in end.messages("carla", KeptTrees, "sent")]
    assert told == [[1, 2]]
    assert [message.n_trees for message in end.messages("ben", GoOnFrom, "received")] == [2]
    assert parts(end) == parts(resumed(NOISED, job, DATA, []))


# --- masked gradients ------------------------------------------------------------------------------------------------


def test_masked_gradients_go_on():
    """Without masks the same trees as without an interruption; candidates of a broken tree are counted."""
    job = masked(C=0.0)
    calm = resumed(MASKED, job, DATA, [])
    for seed in range(6):
        end = resumed(MASKED, job, DATA, some_breaks(MASKED, job, calm, seed, n=1 + seed % 2))
        expected, found = parts(calm), parts(end)
        assert found["ben"]["splits"] == expected["ben"]["splits"]
        trees = [tree.value.tolist() for tree in end.results["anna"].ensemble.trees]
        assert trees == [tree.value.tolist() for tree in calm.results["anna"].ensemble.trees]
        meta = end.results["anna"].meta
        assert meta["label_recovery"]["tree"] == 1
        for name, n in calm.results["anna"].meta["candidates_masked"].items():
            assert meta["candidates_masked"][name] >= n


def test_masks_are_made_anew():
    """What a feature holder gets of one tree in two attempts has no masked number in common."""
    end = resumed(MASKED, masked(C=4.0), DATA, [Broken("anna", keeping=2, done=False)] * 2)
    first = [each.recording("ben").messages(MaskedGradients, "received")[0].gradients for each in end.attempts]
    assert len(first) == 3
    assert (first[0] == first[1]).mean() < 0.01


def test_the_data_may_have_missing_values_and_labels_may_be_numbers():
    """Another loss, other bins: the same holds."""
    data = make_data(2, n_rows=150, n_columns=5, task="regression", missing=0.1)
    job = make_job(NoisedGradientsJob, data, n_iterations=3, task="regression", **EXACT)
    calm = resumed(NOISED, job, data, [])
    for seed in range(4):
        assert parts(resumed(NOISED, job, data, some_breaks(NOISED, job, calm, seed, 2))) == parts(calm)
