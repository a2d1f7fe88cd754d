"""double_masking=True: the same model, and owners whose connection comes and goes spoil less."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.attacks.secure_sum.singleton_cells import plan_of, summed_levels
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.horizontal.secure_sum import masks
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import SealedSeeds, Unmasking, WhoSent
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.testing.transcripts import Vanished, play
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.transcripts import Recording
from twins.horizontal import NAMES, document, make_pooled, pooled_model, positions, share_out, vanishing_at, with_losses

SIZES = [60, 50, 40, 30, 20]
OWNED = {
    name: range(start, stop)
    for name, (start, stop) in zip(NAMES, itertools.pairwise([0, *itertools.accumulate(SIZES)]), strict=False)
}


def run(around=None, sizes=SIZES, **trees):
    """A run with double masks, whose coordinator is recorded."""
    pooled = make_pooled(np.random.default_rng(30), sum(sizes))
    data = share_out(pooled, sizes)
    boosting = BoostingParams(**{"n_iterations": 4, "max_depth": 3, "learning_rate": 0.3, **trees})
    job = Job(owners=tuple(data), run_id="r", boosting=boosting, double_masking=True, min_owners=3)
    return play(PROTOCOL, job, data, around={"coordinator": Recording, **(around or {})}), job, pooled, data


class Leaving(Recording):
    """An owner that is gone before its k-th message of one kind."""

    kind = Unmasking
    number = 5

    def send(self, to, frame):
        """Hand over a frame, or go."""
        if peek(frame)[0] == self.kind.NAME and len(self.messages(self.kind, "sent")) == self.number - 1:
            raise Vanished
        super().send(to, frame)


@pytest.mark.parametrize("changes", [{}, {"min_samples_leaf": 4}], ids=["", "counts"])
@pytest.mark.parametrize("sizes", [[80, 60, 60], SIZES])
def test_model_is_the_engines_on_pooled_rows(sizes, changes):
    """Double masks come off: the model is that of the pooled rows, at every party, and the books agree."""
    played, job, pooled, data = run(sizes=sizes, **changes)
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(pooled_model(job, pooled, model))
    assert all(document(played.results[name]) == document(model) for name in data)
    reconcile({name: party.ledger for name, party in played.parties.items()})


def test_sums_mean_nothing_without_help():
    """All masked messages of a level together still hide the sum; it takes shares of the owners' own seeds."""
    played, _, _, _ = run()
    root = next(iter(summed_levels(played.recording("coordinator"))))
    assert root.is_complete
    masked = root.masked_sums
    assert not (masked == 0).any()
    assert (np.abs(masked.view(np.int64)) > 2**55).mean() > 0.9
    assert (root.sums == 0).any()  # cells without rows, once the masks are off


@pytest.mark.parametrize("lost", [{"carla": (2, 1)}, {"carla": (2, 0)}, {"anna": (1, 1), "emil": (3, 2)}], ids=str)
def test_silence_before_the_sums_ends_the_level(lost):
    """An owner that sends nothing is lost as without double masks: same trees, and nobody opens what came."""
    played, job, pooled, _ = run({name: vanishing_at(*when) for name, when in lost.items()})
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    recording = played.recording("coordinator")
    opened = [message for message in recording.messages(WhoSent, "sent", "ben") if message.sent]
    for tries in positions(summed_levels(recording)).values():
        assert len(tries) <= 2
    assert len(recording.messages(Unmasking, "received", "ben")) == len(opened)


@pytest.mark.parametrize("changes", [{}, {"min_gain": 4.0}, {"min_samples_leaf": 20}], ids=str)
@pytest.mark.parametrize("number", [4, 5, 8])
def test_a_loss_after_the_sums_does_not_spoil_the_level(number, changes):
    """Who sent its sums and then is gone is in the sum: the others open its mask, and it is missed one level later."""

    def leave(endpoint):
        leaving = Leaving(endpoint)
        leaving.number = number
        return leaving

    played, job, pooled, _ = run({"carla": leave}, **changes)
    assert played.errors == {}
    model = played.results["coordinator"]
    tree, level = divmod(number - 1, 3)  # that it does not help to open; this level stays, the next one is lost
    lost = {"carla": (tree, level + 1)}
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    assert model.meta["lost_owners"] == {"carla": tree}
    assert model.trees[tree].depth == level + 1
    assert document(played.results["ben"]) == document(model)


def test_a_loss_while_seeds_are_shared(monkeypatch):
    """Who is gone before the seeds of a tree's sums are shared is not in that tree."""
    monkeypatch.setattr(masks, "SUMS_PER_SEEDS", 3)  # those of one tree

    class Seedless(Leaving):
        kind = SealedSeeds
        number = 3

    played, job, pooled, _ = run({"dora": Seedless})
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, {"dora": (2, 0)}, model))


def test_nobody_opens_a_sum_over_some():
    """An owner that is asked to open a sum without everybody refuses: that sum and a later one would differ by one."""

    class Picking(Recording):
        def send(self, to, frame):
            if peek(frame)[0] == WhoSent.NAME:
                who = decode(frame, WhoSent)
                frame = encode(replace(who, sent=tuple(name for name in who.sent if name != "carla")))
            super().send(to, frame)

    played, _, _, data = run({"coordinator": Picking})
    assert played.results == {}
    refusals = [error for name, error in played.errors.items() if isinstance(error, ProtocolError) and name in data]
    assert any("was asked to open a sum over" in str(error) for error in refusals)
    assert not played.recording("coordinator").messages(Unmasking, "received")


def test_rounds_are_one_more_per_level():
    """Sums and answers are two rounds per level, seeds one for many trees."""
    played, _, _, _ = run()
    model = played.results["coordinator"]
    assert [tree.depth for tree in model.trees] == [3] * 4
    assert model.meta["rounds"]["training"] == 1 + 4 * 2 * 3
    plans = [plan_of(summed.step) for summed in summed_levels(played.recording("coordinator"))]
    assert [(plan.tree, plan.level) for plan in plans] == list(itertools.product(range(4), range(3)))
