"""horizontal.secure_sum with dp goes on at the request that was broken off, and no noise is drawn for it a second time.

Every owner keeps its noisy answer before it sends it, so an answer that may have left the house leaves it again as it
was. Nothing is spent twice, and the model is that of a run with the same noise that was not broken off.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.errors import ProtocolError
from hedgerow.protocols.horizontal.secure_sum import private
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import NoisySum, SumWanted
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.schema import Schema
from twins.horizontal import make_pooled, share_out
from twins.resuming import Broken, frames_of, resumed, some_breaks

OWNERS = ("anna", "ben", "carla")
POOLED = make_pooled(np.random.default_rng(4), 150, n_numeric=1, n_levels=0)
DATA = share_out(POOLED, [50, 50, 50])
SCHEMA = Schema.from_public(bounds={"x0": (-4.0, 4.0), "few": (0.0, 2.0)}, classes=[0, 1])
DP = (1.0, 1e-6)


def make_job(**options):
    """A private job."""
    return Job(OWNERS, "a run", dp=DP, schema=SCHEMA, **options)


@pytest.fixture
def drawing(monkeypatch):
    """All noisy answers that are drawn, by owner and number of the request; those in `again` are taken instead."""
    made, again, draw = {}, {}, private.discrete_gaussian
    answer = private.PrivateOwner.answer

    def answering(owner, sender, wanted):
        def drawn(exact, **how):
            key = (owner._me.name, wanted.number)
            released = draw(exact, **how)
            if key in again:
                released = released._replace(values=again[key].copy())
            made.setdefault(key, []).append(released.values.copy())
            return released

        private.discrete_gaussian = drawn
        return answer(owner, sender, wanted)

    monkeypatch.setattr(private.PrivateOwner, "answer", answering)
    monkeypatch.setattr(private, "discrete_gaussian", draw)
    return SimpleNamespace(made=made, again=again)


def models(end):
    """Everybody's model, but for what tells of attempts and rounds."""
    found = {name: model.to_dict() for name, model in end.results.items()}
    for document in found.values():
        for fact in ("attempts", "rounds"):
            document["meta"].pop(fact, None)
    return found


@pytest.mark.parametrize("coordinator", ["coordinator", "anna"])
def test_no_noise_is_drawn_twice_and_the_model_is_that_of_the_noise(drawing, coordinator):
    """Wherever it is broken off: each owner draws once for each request, and a calm run with that noise ends alike."""
    job = make_job(coordinator=coordinator)
    calm = resumed(PROTOCOL, job, DATA, [])
    for seed in range(5):
        drawing.made.clear()
        drawing.again.clear()
        breaks = some_breaks(PROTOCOL, job, calm, seed, n=2)
        end = resumed(PROTOCOL, job, DATA, breaks)
        twice = {owner for (owner, _), drawn in drawing.made.items() if len(drawn) > 1}
        told_nobody = {at.party for at in breaks if at.keeping and not at.done}  # drawn, and gone before it was kept
        assert twice <= {coordinator, *told_nobody}
        drawing.again.update({key: drawn[-1] for key, drawn in drawing.made.items()})
        assert models(resumed(PROTOCOL, job, DATA, [])) == models(end), breaks
        assert end.results[coordinator].meta["privacy"] == calm.results[coordinator].meta["privacy"]


def test_requests_are_asked_once_but_for_the_one_that_was_broken_off():
    """What is lost is one request of about a hundred."""
    job = make_job()
    calm = resumed(PROTOCOL, job, DATA, [])
    n_frames = frames_of(calm.attempts[0], "ben")
    end = resumed(PROTOCOL, job, DATA, [Broken("ben", passing=n_frames // 2), Broken("carla", passing=n_frames // 4)])
    asked = [message.number for message in end.messages("ben", SumWanted, "received")]
    assert len(asked) <= len(calm.messages("ben", SumWanted, "received")) + 2
    assert sorted(set(asked)) == sorted({m.number for m in calm.messages("ben", SumWanted, "received")})


def answered(record):
    """Requests with their answers, as far as they go."""
    return zip(record.messages(SumWanted, "received"), record.messages(NoisySum, "sent"), strict=False)


def test_an_answer_that_is_sent_again_has_new_masks():
    """Under the same masks the two messages would be equal; under new ones they have nothing in common."""
    job = make_job()
    end = resumed(PROTOCOL, job, DATA, [Broken("coordinator", keeping=3, done=False)])
    sent = [
        {w.number: s.values for w, s in answered(each)} for each in (played.recording("ben") for played in end.attempts)
    ]
    both = set(sent[0]) & set(sent[1])
    assert len(both) == 1
    for number in both:
        assert not (sent[0][number] == sent[1][number]).any()


def test_another_question_under_an_old_number_is_refused():
    """An owner's noisy answer is not sent again to whoever asks for something else now."""
    job = make_job()
    kept = {name: Checkpoints() for name in PROTOCOL.parties(job)}
    end = resumed(PROTOCOL, job, DATA, [Broken("coordinator", keeping=3, done=False)], kept, only=1)
    assert len(end.attempts) == 1
    write = private.write_request

    def changed(request):
        wanted = write(request)
        if wanted.number == 2:
            object.__setattr__(wanted, "spread", wanted.spread * 2)
        return wanted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private, "write_request", changed)
        with pytest.raises(ProtocolError, match="an earlier attempt asked else"):
            resumed(PROTOCOL, job, DATA, [], kept, attempts_from=2)


def test_what_was_spent_on_more_than_is_left_stays_spent():
    """Where the coordinator has lost its sums, owners do not pay for them again: the run ends within the budget."""
    job = make_job()
    kept = {name: Checkpoints() for name in PROTOCOL.parties(job)}
    resumed(PROTOCOL, job, DATA, [Broken("coordinator", keeping=40)], kept, only=1)
    kept["coordinator"] = Checkpoints()
    with pytest.raises(ProtocolError, match="would go beyond epsilon"):
        resumed(PROTOCOL, job, DATA, [], kept, attempts_from=2)
