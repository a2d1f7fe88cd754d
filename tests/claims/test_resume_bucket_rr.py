"""vertical.bucket_rr: buckets are drawn once in a run and sent at most as they were; the label holder's trees go on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hedgerow.errors import InvalidInput
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.vertical.bucket_rr import label_holder
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, HaveTransfer
from hedgerow.protocols.vertical.bucket_rr.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.runtime.running import run_together, warm_up
from hedgerow.schema import Schema
from twins.resuming import Broken, frames_of, resumed
from twins.vertical import make_data, make_job

DATA = make_data(3, n_rows=200, n_columns=6)
BOUNDS = {column.name: (-4.0, 8.0) for brought in DATA.values() for column in brought.table.columns}
SCHEMA = Schema.from_public(bounds=BOUNDS)
N_TREES = 4
WAYS = {
    "debiased": {"epsilon": 4.0, "schema": SCHEMA},
    "as they are": {"epsilon": 4.0, "schema": SCHEMA, "debias": False},
    "private edges": {"epsilon": 4.0, "schema": SCHEMA, "edges": "private"},
    "without noise": {"epsilon": math.inf, "edges": "quantile"},
}


def job_of(way="debiased", **more):
    """A job of a few trees."""
    return make_job(Job, DATA, n_iterations=N_TREES, buckets=8, **(WAYS[way] | more))


def parts(end):
    """What everybody has in the end, but for what tells of attempts."""
    found = {name: part.to_dict() for name, part in end.results.items()}
    for part in found.values():
        part.get("meta", part.get("model", {}).get("meta", {})).pop("attempts", None)
    return found


def calm_end(job, kept):
    """The run without an interruption, from the buckets that were kept before the first tree."""
    first = {}
    for name, states in kept.items():
        first[name] = Checkpoints()
        first[name].write(0, states.read(0))
    return resumed(PROTOCOL, job, DATA, [], first, attempts_from=2)


def points(job, party):
    """Every frame and every state of a party, as the last of an attempt."""
    calm = resumed(PROTOCOL, job, DATA, [])
    found = [Broken(party, passing=k) for k in range(1, frames_of(calm.attempts[0], party) + 1)]
    n_kept = len(calm.numbers[0][party])
    return found + [Broken(party, keeping=k, done=done) for k in range(1, n_kept + 1) for done in (False, True)]


@pytest.mark.parametrize("party", ["anna", "ben"])
@pytest.mark.parametrize("way", WAYS)
def test_it_ends_as_if_it_had_never_been_broken_off(way, party):
    """The same parts, bit for bit, as from the same buckets at once, at each point of each party."""
    job = job_of(way)
    for number, at in enumerate(points(job, party)):
        breaks = [at, Broken("anna", keeping=2)] if number % 2 else [at]
        end = resumed(PROTOCOL, job, DATA, breaks)
        assert parts(end) == parts(calm_end(job, end.checkpoints)), breaks


def test_buckets_are_drawn_once_and_sent_as_they_were():
    """Nothing that a label holder gets twice of a party differs, so nothing can be averaged."""
    job = job_of()
    for at in points(job, "anna"):
        end = resumed(PROTOCOL, job, DATA, [at])
        for party in ("ben", "carla"):
            sent = [message.packed.tobytes() for message in end.messages(party, Buckets, "sent")]
            assert 1 <= len(sent) <= 2
            assert len(set(sent)) == 1


def test_what_the_label_holder_has_kept_is_not_sent_again():
    """It says so, and trees that were kept are not grown again."""
    end = resumed(PROTOCOL, job_of(), DATA, [Broken("anna", keeping=3), Broken("anna", keeping=1)])
    assert [each["anna"] for each in end.numbers] == [[0, 1, 2], [3], [4]]
    assert len(end.messages("ben", Buckets, "sent")) == 1
    told = [message.transfer_id for message in end.messages("ben", HaveTransfer, "received")]
    assert told == ["of this run"] * 2
    assert end.results["anna"].meta["attempts"] == 3


def test_a_party_that_has_lost_what_its_buckets_stand_for_is_told():
    """Other edges under the same buckets would be another model, and other buckets would cost again."""
    kept = {name: Checkpoints() for name in DATA}
    resumed(PROTOCOL, job_of(), DATA, [Broken("anna", keeping=3)], kept, only=1)
    kept["ben"] = Checkpoints()
    with pytest.raises(InvalidInput, match="ben has not kept what they stand for"):
        resumed(PROTOCOL, job_of(), DATA, [], kept, attempts_from=2)


@pytest.mark.parametrize(
    "at", [Broken("anna", keeping=1, done=False), Broken("anna", keeping=3), Broken("ben", passing=5)]
)
def test_a_transfer_that_a_book_knows_of_is_charged_once(tmp_path, at):
    """With a cache it is in the book once, however often it is sent within the run."""
    job = job_of(cache=str(tmp_path))
    end = resumed(PROTOCOL, job, DATA, [at])
    assert len(end.attempts) == 2
    for party in ("ben", "carla"):
        assert len((tmp_path / party / "transfers.jsonl").read_text().splitlines()) == 1
        assert end.results[party].meta["history"]["transfers"] == 1


def test_a_later_attempt_is_not_charged_again(tmp_path, monkeypatch):
    """The budget has one line for the run; a new run has its own."""
    job = job_of()
    file = BudgetFile(tmp_path / "b.sqlite")
    budget = file.open("rows", epsilon=100.0, delta=0.0, adjacency="replace_one")
    kept = {name: Checkpoints() for name in DATA}
    train = label_holder.train_debiased
    warm_up(PROTOCOL, job)

    def failing(*_args, **_how):
        raise RuntimeError("stop")

    monkeypatch.setattr(label_holder, "train_debiased", failing)
    with pytest.raises(RuntimeError, match="stop"):
        run_together(PROTOCOL, job, DATA, budgets={"ben": budget}, checkpoints=kept)
    spent = budget.spent()
    monkeypatch.setattr(label_holder, "train_debiased", train)
    run_together(PROTOCOL, job, DATA, budgets={"ben": budget}, checkpoints=kept, attempt=2)
    assert budget.spent() == spent
    run_together(PROTOCOL, replace(job, run_id="another"), DATA, budgets={"ben": budget})
    assert budget.spent() > spent
