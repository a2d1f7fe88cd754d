"""horizontal.secure_sum goes on after the last iteration that all have kept, with new keys and the same owners.

A sum that is open already is never asked for with an owner more or less: the difference would be that owner's part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidInput, PeerLost
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import Vanishing
from hedgerow.transport.frames import peek
from twins.horizontal import make_pooled, share_out
from twins.openings import Opening, repeated_masks
from twins.resuming import Broken, frames_of, resumed, some_breaks

N_TREES = 4
OWNERS = ("anna", "ben", "carla")


def make_data(n_owners=3, n_rows=160, **how):
    """Rows of several owners."""
    pooled = make_pooled(np.random.default_rng(4), n_rows, **how)
    data = share_out(pooled, [n_rows // n_owners] * n_owners)
    return {  # rows are watched where a job stops early
        name: replace(brought, validation=np.arange(n_rows // n_owners) % 4 == 0) for name, brought in data.items()
    }


DATA = make_data()
SCHEMA = Schema.from_public(
    bounds={"x0": (-4.0, 4.0), "x1": (-40.0, 40.0), "x2": (-400.0, 400.0), "few": (0.0, 2.0)},
    levels={"kind": [f"level {chr(97 + k)}" for k in range(5)]},
)


def make_job(owners=OWNERS, **options):
    """A job of a few trees."""
    trees = {"n_iterations": N_TREES, "max_depth": 3, "learning_rate": 0.3, "min_child_weight": 0.0}
    boosting = BoostingParams(**(trees | options.pop("trees", {})))
    return Job(tuple(owners), "a run", boosting=boosting, max_bins=16, **options)


def models(end):
    """Everybody's model, but for what tells of attempts and rounds."""
    found = {name: model.to_dict() for name, model in end.results.items()}
    for document in found.values():
        for fact in ("attempts", "rounds"):
            document["meta"].pop(fact, None)
    return found


ARRANGEMENTS = {
    "by somebody without rows": {},
    "by an owner": {"coordinator": "anna"},
    "every sum with own masks": {"double_masking": True},
    "with counts": {"trees": {"min_samples_leaf": 4}},
    "with rows that are watched": {"trees": {"early_stopping_rounds": 1, "learning_rate": 0.9}},
    "watched by an owner, on draws of rows": {
        "coordinator": "anna",
        "trees": {"early_stopping_rounds": 2, "subsample": 0.7},
    },
    "with balanced classes": {"class_weight": "balanced"},
}


@pytest.mark.parametrize("how", ARRANGEMENTS)
def test_a_run_ends_as_if_it_had_never_been_broken_off(how):
    """The same model at everybody, bit for bit, wherever it was broken off, and however often."""
    job = make_job(**ARRANGEMENTS[how])
    calm = resumed(PROTOCOL, job, DATA, [], deadline=20.0)
    for seed in range(8):
        breaks = some_breaks(PROTOCOL, job, calm, seed, n=1 + seed % 3)
        end = resumed(PROTOCOL, job, DATA, breaks, deadline=20.0)
        assert models(end) == models(calm), breaks


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("classification", {"how": {"n_classes": 3}}),
        ("regression", {"trees": {"loss": "squared", "label_range": (-9.0, 9.0)}}),
    ],
)
def test_other_labels_go_on_as_well(task, options):
    """Three classes, with three trees an iteration, and numbers."""
    data = make_data(task=task, **options.pop("how", {}))
    job = make_job(task=task, **options)
    calm = resumed(PROTOCOL, job, data, [])
    for seed in range(4):
        assert models(resumed(PROTOCOL, job, data, some_breaks(PROTOCOL, job, calm, seed, 2))) == models(calm)


@pytest.mark.parametrize("party", ["coordinator", "ben"])
def test_every_message_and_every_keep_can_be_the_last(party):
    """One party is lost before each frame it sends, after each it gets, before and after each state it keeps."""
    job = make_job(trees={"n_iterations": 2, "max_depth": 2})
    calm = resumed(PROTOCOL, job, DATA, [])
    breaks = [Broken(party, passing=k) for k in range(1, frames_of(calm.attempts[0], party) + 1)]
    for k in range(1, len(calm.numbers[0][party]) + 1):
        breaks += [Broken(party, keeping=k, done=done) for done in (False, True)]
    for at in breaks:
        end = resumed(PROTOCOL, job, DATA, [at])
        assert len(end.attempts) == 2, at
        assert models(end) == models(calm), at


def test_iterations_that_were_kept_are_not_grown_again():
    """Each later attempt begins with the tree that was broken off."""
    end = resumed(PROTOCOL, make_job(), DATA, [Broken("coordinator", keeping=k) for k in (3, 2)])
    assert [each["coordinator"] for each in end.numbers] == [[0, 1, 2], [2, 3], [3, 4]]
    first = [
        messages.Plan(*each.recording("ben").messages(messages.NextStep, "received")[0].plan.tolist()).tree
        for each in end.attempts
    ]
    assert first == [0, 1, 2]
    assert end.results["coordinator"].meta["attempts"] == 3


def test_keys_and_masks_are_made_anew():
    """No key of one attempt is one of another, and no two words of the same tree ever have a mask in common."""
    end = resumed(PROTOCOL, make_job(), DATA, [Broken("coordinator", keeping=2, done=False)] * 3)
    keys = [message.public for message in end.messages("coordinator", messages.MaskKey, "received")]
    assert len(keys) == len(set(keys)) == 4 * len(OWNERS)
    first_tree = len(end.attempts[0].recording("ben").messages(messages.MaskedHistogram, "sent"))
    seen = []
    for each in end.attempts:
        sums = [each.recording(name).messages(messages.MaskedHistogram, "sent")[:first_tree] for name in OWNERS]
        pairs = [
            (name, k, sent.values) for name, listed in zip(OWNERS, sums, strict=True) for k, sent in enumerate(listed)
        ]
        seen.append([Opening(f"{k} of {name}", values) for name, k, values in pairs])
    assert sum(opening.words.size for opening in seen[0]) > 500
    assert repeated_masks(seen) == []


# --- noise that is drawn once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinator", ["coordinator", "anna"])
def test_noise_for_edges_is_drawn_once(coordinator):
    """However often the set-up is broken off, an owner's noisy cells are the same ones: nothing can be averaged."""
    private = {"quantiles": "private", "schema": SCHEMA, "quantile_epsilon": 1.0, "quantile_delta": 1e-6}
    job = make_job(coordinator=coordinator, **private)
    totals = []

    from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid

    edges = NoisyGrid.edges

    def edges_of(self, counts):
        totals.append(counts.tobytes())
        return edges(self, counts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisyGrid, "edges", edges_of)
        calm = resumed(PROTOCOL, job, DATA, [])
        n_frames = frames_of(calm.attempts[0], coordinator)
        totals.clear()
        resumed(PROTOCOL, job, DATA, [Broken(coordinator, passing=k) for k in (n_frames // 6, 24, 25, 26, 27, 28)])
    assert len(totals) > 1
    assert len(set(totals)) == 1


# --- owners that are lost --------------------------------------------------------------------------------------------

FOUR = ("anna", "ben", "carla", "dora")


def leaving(tree, level=0):
    """An owner that is lost for good at a level of a tree."""

    def when(direction, frame):
        if direction != "received" or peek(frame)[0] != messages.NextStep.NAME:
            return False
        plan = messages.Plan(*messages_of(frame).plan.tolist())
        return (plan.tree, plan.level) == (tree, level)

    return lambda endpoint: Vanishing(endpoint, when)


def messages_of(frame):
    """The step in a frame."""
    from hedgerow.transport.frames import decode

    return decode(frame, messages.NextStep)


def four():
    """Rows and a job of four owners, one of which can be spared."""
    return make_data(4, 200), make_job(FOUR, min_owners=3)


@pytest.mark.parametrize("level", [0, 1])
def test_an_owner_that_was_given_up_stays_away(level):
    """The run goes on without it after a later interruption, and ends as without that interruption."""
    data, job = four()
    calm = resumed(PROTOCOL, job, data, [], around={"dora": leaving(1, level)})
    end = resumed(PROTOCOL, job, data, [Broken("coordinator", keeping=5)], around={"dora": leaving(1, level)})
    assert len(end.attempts) == 2
    assert end.results["coordinator"].meta["lost_owners"] == {"dora": 1}
    left = [name for name in models(calm) if name != "dora"]
    assert {name: models(end)[name] for name in left} == {name: models(calm)[name] for name in left}
    assert isinstance(end.attempts[-1].errors["dora"], PeerLost)


def test_a_tree_in_which_an_owner_was_lost_is_not_grown_again():
    """Neither with it nor without it: sums of that tree are open in one of the two ways."""
    data, job = four()
    lost = [Broken("coordinator", keeping=4, done=False)]  # 0, 1, dora's loss; then tree 2 is not kept any more
    with pytest.raises(PeerLost, match="dora was lost in tree 2, which not all have kept"):
        resumed(PROTOCOL, job, data, lost, around={"dora": leaving(1, 1)})


def test_a_coordinator_that_does_not_know_who_was_lost_does_not_go_on():
    """It has lost its states; an owner that was given up could be among those who are there now."""
    data, job = four()
    kept = {name: Checkpoints() for name in PROTOCOL.parties(job)}
    resumed(PROTOCOL, job, data, [Broken("coordinator", keeping=4)], kept, only=1)
    kept["coordinator"] = Checkpoints()
    with pytest.raises(InvalidInput, match="without knowing which owners were lost"):
        resumed(PROTOCOL, job, data, [], kept, attempts_from=2)


def test_an_owner_that_is_lost_in_a_tree_that_is_grown_again_ends_the_attempt():
    """Sums of that tree may be open with it, so none is asked for without it; the next attempt has all of them."""
    data, job = four()
    calm = resumed(PROTOCOL, job, data, [])
    breaks = [Broken("coordinator", keeping=3, done=False), Broken("dora", passing=9)]
    end = resumed(PROTOCOL, job, data, breaks)
    assert len(end.attempts) == 3
    assert "may have begun with it" in str(end.attempts[1].errors["coordinator"])
    assert models(end) == models(calm)
