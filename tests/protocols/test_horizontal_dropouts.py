"""Owners of horizontal.secure_sum that disappear: who goes on, with what, and what is never finished."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.aborts import Reason
from hedgerow.attacks.secure_sum.singleton_cells import plan_of, summed_levels
from hedgerow.errors import PeerFailed, PeerLost, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.testing.transcripts import Vanishing, play
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.transcripts import Recording
from twins.horizontal import NAMES, document, job_for, make_pooled, positions, share_out, vanishing_at, with_losses

SIZES = [60, 50, 40, 30, 20]
OWNED = {
    name: range(start, stop)
    for name, (start, stop) in zip(NAMES, itertools.pairwise([0, *itertools.accumulate(SIZES)]), strict=False)
}


def lose(lost, having_sent=(), **changes):
    """Five owners of which some vanish: how it ended, the job, and all rows."""
    pooled = make_pooled(np.random.default_rng(20), sum(SIZES), **changes.pop("problem", {}))
    data = share_out(pooled, SIZES)
    job = job_for(data, **{"n_iterations": 5, "min_owners": 3, **changes})
    around = {name: vanishing_at(*when, having_sent=name in having_sent) for name, when in lost.items()}
    return play(PROTOCOL, job, data, around={"coordinator": Recording, **around}), job, pooled, data


@pytest.mark.parametrize(
    "lost",
    [
        {"carla": (2, 1)},
        {"carla": (2, 2)},
        {"carla": (2, 0)},
        {"carla": (0, 0)},
        {"anna": (4, 2)},
        {"anna": (1, 1), "emil": (3, 2)},
        {"anna": (1, 1), "emil": (1, 1)},
        {"anna": (1, 0), "emil": (1, 0)},
        {"anna": (1, 1), "emil": (2, 0)},
    ],
    ids=str,
)
@pytest.mark.parametrize("changes", [{}, {"min_samples_leaf": 4}], ids=["", "counts"])
def test_survivors_go_on(lost, changes):
    """Trees before the loss are those of all, the one at hand ends at its last complete level, later ones lack it."""
    played, job, pooled, data = lose(lost, **changes)
    assert played.errors == {}
    assert set(played.results) == {"coordinator", *data} - set(lost)
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    for result in played.results.values():
        assert document(result) == document(model)
    assert model.meta["lost_owners"] == {name: tree for name, (tree, _) in lost.items()}
    undisturbed = play(PROTOCOL, job, data).results["coordinator"]
    first = min(tree for tree, _ in lost.values())
    assert model.trees[:first] == undisturbed.trees[:first]
    assert model.trees[first] != undisturbed.trees[first]
    level = min(level for tree, level in lost.values() if tree == first)
    assert model.trees[first].depth == (level or 3)
    survivors = {name: played.parties[name].ledger for name in {"coordinator", *data} - set(lost)}
    reconcile(survivors)


def test_an_owner_lost_while_coordinated_by_an_owner():
    """The coordinator's own rows stay in every sum."""
    lost = {"carla": (1, 1)}
    played, job, pooled, _ = lose(lost, coordinator="anna")
    assert played.errors == {}
    model = played.results["anna"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    assert document(played.results["emil"]) == document(model)


@pytest.mark.parametrize("lost", [{"dora": (4, 1)}, {"dora": (4, 0)}, {"dora": (5, 2)}], ids=str)
def test_an_owner_lost_among_the_trees_of_several_classes(lost):
    """Softmax: the trees of one round keep the gradients of its beginning, also after a loss between them."""
    played, job, pooled, _ = lose(lost, n_iterations=3, problem={"n_classes": 3})
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, lost, model))
    assert document(played.results["ben"]) == document(model)


def test_an_owner_that_goes_after_its_answer():
    """Sums that were sent count; the owner is missed at the level after."""
    played, job, pooled, _ = lose({"carla": (2, 1)}, having_sent=("carla",))
    assert played.errors == {}
    model = played.results["coordinator"]
    assert document(model) == document(with_losses(job, pooled, OWNED, {"carla": (2, 2)}, model))


def test_full_and_reduced_sum_of_a_node_are_never_both_finished():
    """What the coordinator received, position by position: one complete sum at most, and later ones among survivors."""
    for lost in ({"carla": (2, 1)}, {"carla": (2, 0)}, {"anna": (1, 1), "emil": (3, 2)}, {"anna": (1, 0)}):
        played, _, _, data = lose(lost)
        attempts = positions(summed_levels(played.recording("coordinator")))
        assert len(attempts) > 10
        for (tree, level, _), tries in attempts.items():
            assert [attempt.is_complete for attempt in tries].count(True) <= 1
            gone = {name for name, when in lost.items() if when < (tree, level)}
            for attempt in tries:
                assert gone.isdisjoint(attempt.parts)
            for name, when in lost.items():
                if when == (tree, level):
                    assert name not in tries[0].parts
                    assert not tries[0].is_complete
                    # A first sum is asked for again among those who are left; a later one never.
                    assert len(tries) == (2 if level == 0 else 1)
            if len(tries) == 2:
                assert set(tries[1].parts) == set(data) - gone - {n for n, w in lost.items() if w == (tree, level)}
                assert tries[1].plan.new_round > tries[0].plan.new_round


def test_survivors_use_new_keys():
    """After a loss the rest agree on keys of the next round; nobody's old masks are used again."""
    played, _, _, _ = lose({"carla": (2, 1)})
    keys = [line for line in played.parties["ben"].ledger.lines("disclosed") if line.message == "horizontal.mask_key"]
    assert len(keys) == 2
    rounds = [plan_of(step).new_round for step in played.recording("coordinator").messages(NextStep, "sent", "ben")]
    assert [number for number in rounds if number] == [2]


def test_too_few_owners_end_the_run():
    """Below min_owners the run stops, with a sentence that names the owner, the tree and the limit."""
    played, _, _, _ = lose({"anna": (1, 1), "ben": (2, 1), "emil": (3, 1)})
    error = played.errors["coordinator"]
    assert isinstance(error, PeerLost)
    assert str(error) == (
        "emil was lost in tree 4 and only 2 of 5 owners are left; the job asks for at least 3 (min_owners)"
    )
    for name in ("carla", "dora"):
        assert isinstance(played.errors[name], PeerFailed)
        assert played.errors[name].code is Reason.PEER_LOST


def test_default_threshold_ends_a_run_of_three():
    """With three owners and no min_owners nobody may be lost."""
    pooled = make_pooled(np.random.default_rng(21), 90)
    data = share_out(pooled, [30, 30, 30])
    played = play(PROTOCOL, job_for(data), data, around={"ben": vanishing_at(1, 1)})
    assert "ben was lost in tree 2 and only 2 of 3 owners are left" in str(played.errors["coordinator"])


def test_lost_before_training():
    """Who is gone before the first tree ends the run, whatever min_owners says."""
    pooled = make_pooled(np.random.default_rng(22), 90)
    data = share_out(pooled, [20, 20, 20, 30])

    def wrap(endpoint):
        return Vanishing(endpoint, lambda _, frame: peek(frame)[0] == "horizontal.probes")

    played = play(PROTOCOL, job_for(data, min_owners=2), data, around={"dora": wrap})
    assert isinstance(played.errors["coordinator"], PeerLost)
    assert "dora was lost before training began" in str(played.errors["coordinator"])


def test_a_failing_owner_is_not_a_lost_one():
    """An owner that says that it stops ends the run for all, and the code of its reason is what they read."""
    pooled = make_pooled(np.random.default_rng(23), 120)
    data = share_out(pooled, [20, 20, 20, 30, 30])

    class Failing(Recording):
        def send(self, to, frame):
            if len(self.messages(MaskedHistogram, "sent")) == 4:
                raise MemoryError("no more room at dora")
            super().send(to, frame)

    played = play(PROTOCOL, job_for(data, min_owners=3), data, around={"dora": Failing})
    assert isinstance(played.errors["dora"], MemoryError)
    assert played.errors["coordinator"].code is Reason.OVER_MEMORY
    assert played.errors["anna"].code is Reason.PEER_FAILED


def test_a_sum_of_another_shape_is_refused():
    """A vector that is not what was asked for ends the run and names its sender."""
    pooled = make_pooled(np.random.default_rng(24), 90)
    data = share_out(pooled, [30, 30, 30])

    class Short(Recording):
        def send(self, to, frame):
            if peek(frame)[0] == MaskedHistogram.NAME:
                frame = encode(MaskedHistogram(np.ascontiguousarray(decode(frame, MaskedHistogram).values[:, :-1])))
            super().send(to, frame)

    played = play(PROTOCOL, job_for(data), data, around={"ben": Short})
    assert isinstance(played.errors["coordinator"], ProtocolError)
    assert "ben sent horizontal.masked_histogram with values of shape" in str(played.errors["coordinator"])


# --- while rows are watched -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"double_masking": False}, {"double_masking": True}, {"coordinator": "anna"}])
@pytest.mark.parametrize("having_sent", [(), ("carla",)], ids=["silent", "gone after its answer"])
def test_an_owner_lost_when_the_metric_is_asked_for(changes, having_sent):
    """Trees are those of a loss at the next tree's first sum; the metric is asked for again, and the watch begins anew."""
    pooled = make_pooled(np.random.default_rng(20), sum(SIZES))
    data = share_out(pooled, SIZES)
    watched = {name: np.arange(size) % 5 == 0 for name, size in zip(data, SIZES, strict=True)}
    watching = {name: replace(brought, validation=watched[name]) for name, brought in data.items()}
    how = {
        "n_iterations": 5,
        "min_owners": 3,
        "quantiles": "given",
        "edges": {f"x{k}": [-1.0, 0.0, 1.0] for k in range(3)},
    }
    how["edges"]["few"] = [0.5, 1.5]
    job = job_for(watching, **how, early_stopping_rounds=5, **changes)
    around = {"carla": vanishing_at(2, 3, having_sent="carla" in having_sent)}
    played = play(PROTOCOL, job, watching, around=around)
    assert played.errors == {}
    model = played.results[job.coordinator]
    assert model.meta["lost_owners"] == {"carla": 2 + bool(having_sent)}
    assert len(model.meta["learning_curve"]["logloss"]) == 5
    learned = np.concatenate([~watched[name] for name in data])
    sizes = [int((~mask).sum()) for mask in watched.values()]
    rest = share_out(pooled.rows(learned), sizes)
    calm = play(PROTOCOL, job_for(rest, **how, **changes), rest, around={"carla": vanishing_at(3, 0)})
    kept = model.n_iterations
    assert kept >= 3 + bool(having_sent)
    assert document(model)["trees"] == document(calm.results[job.coordinator])["trees"][:kept]
    for result in played.results.values():
        assert document(result) == document(model)
