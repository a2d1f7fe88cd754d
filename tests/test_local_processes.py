"""Parties as processes over gRPC with mutual TLS: the same model as in memory, and how runs end early."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.aborts import Reason
from hedgerow.errors import HedgerowError, InvalidInput, PeerFailed, PeerLost
from hedgerow.federation.federation import Federation
from hedgerow.ledger import reconcile
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime.processes import run_in_processes
from hedgerow.transport.emulate import Link

PROTOCOL = "horizontal.secure_sum"
OWNERS = ("ash", "elm", "oak")
SIGNED = ("horizontal.mask_key", "horizontal.mask_keys")  # ECDSA signatures differ by some bytes in length
N_TREES = 6
SLOW = Link(round_trip=0.03, bandwidth=1e9)  # a tree takes long enough to be interrupted


def rows(n_rows, seed):
    """Two numbers, one whole number with gaps, and a label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    X[:, 2] = np.where(rng.random(n_rows) < 0.2, np.nan, np.round(3 * X[:, 2]))
    return X, (X[:, 0] + np.nan_to_num(X[:, 2]) + 0.5 * rng.normal(size=n_rows) > 0).astype(int)


def data_of(names):
    """Rows for each of these owners."""
    return {name: rows(50 + 10 * k, seed=k) for k, name in enumerate(names)}


@pytest.fixture(scope="module")
def watched():
    """Runs in processes with a short grace period; `processes` are those of the latest one."""
    seen = SimpleNamespace(processes={})

    def remember(processes):
        seen.processes = dict(processes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_processes, "GRACE_SECONDS", 1.0)
        patch.setattr(local_processes, "run_in_processes", functools.partial(run_in_processes, after_start=remember))
        yield seen


def is_gone(process):
    """Whether a process has ended and been waited for."""
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return process.returncode is not None
    return False


def end_of(watched, data, *, kill=None, task="classification", **params):
    """Train in processes, killing one party after two trees: run or error, the processes, seconds since the kill."""
    at = []

    def watch(done, _total):
        if done == 2 and kill is not None:
            watched.processes[kill].send_signal(signal.SIGKILL)
            at.append(time.monotonic())

    fed = Federation.horizontal(data, task=task)
    try:
        end = fed.fit(PROTOCOL, transport="grpc", n_estimators=N_TREES, max_depth=2, on_progress=watch, **params)
    except HedgerowError as error:
        end = error
    return SimpleNamespace(end=end, processes=watched.processes, seconds=time.monotonic() - at[0] if at else None)


# --- the same as in memory -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(watched):
    """One job, in memory and in processes."""
    told = []
    before = set(Path(tempfile.gettempdir()).iterdir())
    fed = Federation.horizontal(data_of(OWNERS))
    params = {"n_estimators": N_TREES, "max_depth": 3, "random_state": 4, "colsample_bytree": 0.7}
    memory = fed.fit(PROTOCOL, **params)
    grpc = fed.fit(PROTOCOL, transport="grpc", on_progress=lambda *how_far: told.append(how_far), **params)
    mine = {path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if "hedgerow" in path.name}
    return SimpleNamespace(memory=memory, grpc=grpc, told=told, processes=watched.processes, left=mine)


def test_processes_give_the_same_model_as_memory(both):
    """Bit for bit: trees, edges, base score, and what the model says about its training."""
    assert both.grpc.model.ensemble_.to_dict() == both.memory.model.ensemble_.to_dict()
    assert len(both.grpc.model.ensemble_.trees) == N_TREES
    X, _ = rows(100, seed=50)
    np.testing.assert_array_equal(both.grpc.model.predict_proba(X), both.memory.model.predict_proba(X))


def test_processes_send_the_same_bytes_as_memory(both):
    """Every party's traffic is that of the memory run, per kind of message; signatures alone vary in length."""
    assert both.grpc.traffic.keys() == both.memory.traffic.keys() == {"coordinator", *OWNERS}
    for name in both.grpc.traffic:
        one, two = (run.traffic[name]["by_message"] for run in (both.grpc, both.memory))
        assert one.keys() == two.keys()
        assert {m: t for m, t in one.items() if m not in SIGNED} == {m: t for m, t in two.items() if m not in SIGNED}
        for message in SIGNED:
            assert one[message]["messages_sent"] == two[message]["messages_sent"]
            assert abs(one[message]["bytes_sent"] - two[message]["bytes_sent"]) < 200


def test_ledgers_of_processes_agree(both):
    """What one process disclosed the other learned; and each has the lines that it has in memory."""
    reconcile(both.grpc.ledgers)
    for name, ledger in both.grpc.ledgers.items():
        one, two = (
            [(line.direction, line.peer, line.number, line.message, line.what, line.protection) for line in book]
            for book in (ledger, both.memory.ledgers[name])
        )
        assert one == two


def test_both_sides_of_the_wire_count_the_same(both):
    """An owner's process has sent what the coordinator's has received."""
    hub = both.grpc.traffic["coordinator"]["by_peer"]
    for name in OWNERS:
        mine = both.grpc.traffic[name]["total"]
        assert (mine["bytes_sent"], mine["bytes_received"]) == (hub[name]["bytes_received"], hub[name]["bytes_sent"])


def test_a_run_in_processes_tells_its_progress_and_time(both):
    """Iterations are told one by one; the time is that of training, not of starting processes."""
    assert both.told == [(k, N_TREES) for k in range(1, N_TREES + 1)]
    assert 0 < both.grpc.seconds < 5
    assert both.grpc.rounds == both.memory.rounds
    said, told = both.grpc.statement(), both.memory.statement()
    assert replace(said, date=None) == replace(told, date=None)
    assert repr(both.grpc).startswith("Run('horizontal.secure_sum', 4 parties, grpc, ")


def test_no_process_and_no_folder_is_left_over(both):
    """Every party was a process of its own, and all have ended well; none of them had a folder, or left a file."""
    assert both.processes.keys() == {"coordinator", *OWNERS}
    assert len({process.pid for process in both.processes.values()}) == 4
    assert all(is_gone(process) and process.returncode == 0 for process in both.processes.values())
    assert both.left == set()


# --- a process that is killed ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def survived(watched):
    """Four owners of which three are enough; one is killed while the third tree grows."""
    return end_of(watched, data_of([*OWNERS, "yew"]), kill="elm", min_owners=3, link=SLOW)


def test_enough_owners_go_on_without_a_killed_one(survived):
    """All trees are grown, and the run says who was lost and when."""
    run = survived.end
    assert len(run.model.ensemble_.trees) == N_TREES
    assert run.lost.keys() == {"elm"}
    assert 2 <= run.lost["elm"] < N_TREES
    X, y = rows(300, seed=60)
    assert np.mean(run.model.predict(X) == y) > 0.8


def test_trees_before_the_loss_are_those_of_all_owners(survived):
    """What was grown before an owner was lost is what all four grow together, and not what three do."""
    names = [*OWNERS, "yew"]
    whole, without = (
        Federation.horizontal({name: data_of(names)[name] for name in chosen})
        .fit(PROTOCOL, n_estimators=2, max_depth=2)
        .model.ensemble_.to_dict()["trees"]
        for chosen in (names, ["ash", "oak", "yew"])
    )
    assert survived.end.model.ensemble_.to_dict()["trees"][:2] == whole != without


def test_the_statement_says_that_somebody_was_lost(survived):
    """In words and in facts."""
    statement = survived.end.statement()
    assert "1 of 4 owners were lost on the way" in str(statement)
    assert statement.facts["lost_owners"] == survived.end.lost


def test_books_of_those_who_stayed_agree_after_a_loss(survived):
    """The killed party has left no book; those of the others reconcile."""
    assert survived.end.ledgers.keys() == {"coordinator", "ash", "oak", "yew"}
    survived.end.reconcile()
    rounds = [line for line in survived.end.ledgers["ash"].lines("disclosed") if line.message == "horizontal.mask_key"]
    assert len(rounds) == 2  # one key for four owners, one for three


@pytest.fixture(scope="module")
def ended(watched):
    """Three owners of which all are needed; one is killed while the third tree grows."""
    return end_of(watched, data_of(OWNERS), kill="elm", link=SLOW)


def test_with_too_few_owners_left_the_error_names_the_killed_one(ended):
    """One error, about the party that was killed, not about those that were told."""
    assert isinstance(ended.end, PeerLost)
    assert str(ended.end) == "elm: the process was killed by SIGKILL"
    assert ended.end.__notes__ == ["raised in the role of elm"]


def test_nobody_hangs_and_nobody_stays_after_a_kill(survived, ended):
    """All processes are gone, soon after the grace period; the others ended by themselves."""
    for run in (survived, ended):
        assert run.seconds < 15
        assert all(is_gone(process) for process in run.processes.values())
        assert run.processes["elm"].returncode == -signal.SIGKILL
    assert {name: p.returncode for name, p in survived.processes.items() if name != "elm"} == dict.fromkeys(
        ["coordinator", "ash", "oak", "yew"], 0
    )
    assert {name: p.returncode for name, p in ended.processes.items() if name != "elm"} == dict.fromkeys(
        ["coordinator", "ash", "oak"], 1
    )


# --- a role that fails -----------------------------------------------------------------------------------------------


def test_the_root_cause_is_what_the_user_reads(watched):
    """An owner whose labels do not fit fails; its own sentence arrives, and not that its peers were told."""
    data = {name: (X, X[:, 0]) for name, (X, _) in data_of(OWNERS).items()}
    data["elm"] = (data["elm"][0], data["elm"][1] + 100)
    failed = end_of(watched, data, task="regression", label_range=(-10, 10))
    assert type(failed.end) is InvalidInput
    assert str(failed.end).startswith("elm: labels lie in [")
    assert str(failed.end).endswith("outside the declared label_range (-10, 10)")
    assert failed.end.__notes__ == ["raised in the role of elm"]
    assert all(is_gone(process) for process in failed.processes.values())
    assert all(process.returncode == 1 for process in failed.processes.values())


def test_a_party_that_cannot_even_start_is_named(watched, monkeypatch):
    """A key that is not its own is refused by the process itself, before it connects; the others are stopped."""
    started = []

    def mistaken(*arguments):
        orders = orders_of(*arguments)
        orders["oak"]["key"] = orders["elm"]["key"]
        return orders

    def spawn(fleet, name, *arguments):
        spawn_one(fleet, name, *arguments)
        started.append(fleet.processes[name])

    orders_of, spawn_one = local_processes._orders, local_processes._Fleet._spawn
    monkeypatch.setattr(local_processes, "_orders", mistaken)
    monkeypatch.setattr(local_processes._Fleet, "_spawn", spawn)
    failed = end_of(watched, data_of(OWNERS))
    assert isinstance(failed.end, InvalidInput)
    assert str(failed.end).startswith("oak: ")
    assert "the key does not belong to the certificate" in str(failed.end)
    assert len(started) == 4
    assert all(is_gone(process) for process in started)


# --- what processes say, as errors -----------------------------------------------------------------------------------


def test_errors_of_processes_become_errors_of_ours():
    """By name where it is one of ours; else with its name in front; what a peer told keeps the peer."""
    as_error = local_processes._as_error
    told = as_error({"error": "PeerFailed", "party": "elm", "code": 1, "message": "elm stopped"})
    assert isinstance(told, PeerFailed)
    assert (told.party, told.code) == ("elm", Reason.BAD_DATA)
    own = as_error({"error": "InvalidInput", "party": None, "message": "no rows"})
    assert (type(own), str(own)) == (InvalidInput, "no rows")
    for name in ("ZeroDivisionError", "annotations"):
        other = as_error({"error": name, "party": None, "message": "no rows"})
        assert (type(other), str(other)) == (HedgerowError, f"{name}: no rows")


def test_a_process_that_ends_without_a_word():
    """Its exit code and the last line that it wrote are all there is to tell."""
    end = local_processes._sudden_end("elm", 3, "Traceback\nMemoryError: no room\n")
    assert isinstance(end, PeerLost)
    assert str(end) == "elm: the process ended with exit code 3: MemoryError: no room"
    assert str(local_processes._sudden_end("elm", 1, "")).endswith("exit code 1: no message")
