"""Parties as processes of one machine: what lies in the working directory, what a killed run leaves, how they end."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.aborts import Reason
from hedgerow.errors import DeadlineExceeded, InvalidInput, InvalidParameter, PeerFailed, ProcessEnded
from hedgerow.ledger import Ledger
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime import protocol as protocols
from hedgerow.runtime.running import check_results, warm_up

PATIENCE = 60.0  # seconds; a party that does not notice the end of its parent works for many minutes

SCRIPT = """
    import functools, json, os, signal, sys
    import numpy as np
    from hedgerow import Federation
    from hedgerow.runtime import processes as local_processes
    from hedgerow.transport.emulate import Link

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may be ignoring it, as nohup does
    spawn_one = local_processes._Fleet._spawn

    def spawn(fleet, name, *arguments):
        spawn_one(fleet, name, *arguments)
        print(json.dumps({"spawned": fleet.processes[name].pid}), flush=True)

    def trains(processes):
        print(json.dumps({"training": [each.pid for each in processes.values()]}), flush=True)

    local_processes._Fleet._spawn = spawn
    local_processes.run_in_processes = functools.partial(local_processes.run_in_processes, after_start=trains)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    fed = Federation.vertical({"bank": X[:, :2], "shop": X[:, 2:]}, labels=("bank", (X[:, 0] > X[:, 2]).astype(int)))
    os.environ.update(json.loads(sys.argv[1]))
    how = {"n_estimators": int(sys.argv[2]), "max_depth": 2, "epsilon": 4.0, "delta": 1e-5, "transport": "grpc"}
    run = fed.fit("vertical.noised_gradients", link=Link(float(sys.argv[3])), **how)
    print(json.dumps({"trees": run.model.n_iter_}), flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start a parent of two parties; its temporary files are in tmp_path / "tmp", its output is JSON lines."""
    started = []
    (tmp_path / "tmp").mkdir()
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text(textwrap.dedent(SCRIPT))

    def begin(n_trees=500, round_trip=1.0, cwd=tmp_path, children=None):
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            [sys.executable, script, json.dumps(children or {}), str(n_trees), str(round_trip)],
            cwd=cwd,
            env={**kept, "TMPDIR": str(tmp_path / "tmp")},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def next_of(process, key):
    """What the parent says under this key, after whatever else it says."""
    for line in process.stdout:
        told = json.loads(line)
        if key in told:
            return told[key]
    raise AssertionError(f"the parent ended before it told {key}")


def runs(pid):
    """Whether a process is there and not only waits for being waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_lies_in_the_working_directory_is_not_run(start, tmp_path):
    """Files with names of modules, also where PYTHONPATH leads to them: no party runs one, and the run is as ever."""
    planted = tmp_path / "planted"
    (planted / "hedgerow").mkdir(parents=True)
    for name in ("uuid.py", "queue.py", "numpy.py", "sitecustomize.py", "hedgerow/__init__.py"):
        (planted / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    path = os.pathsep.join(["", ".", str(planted)])
    process = start(n_trees=2, round_trip=0.0, cwd=planted, children={"PYTHONPATH": path})
    assert next_of(process, "trees") == 2
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.parametrize(
    ("when", "signal_number"),
    [
        ("spawned", signal.SIGKILL),
        ("training", signal.SIGKILL),
        pytest.param("training", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("training", signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_killed_parent_leaves_neither_files_nor_children(start, tmp_path, when, signal_number):
    """Keys and rows have no name on disk while the run goes on, and the parties end with whoever started them."""
    process = start()
    children = [next_of(process, "spawned"), next_of(process, "spawned")] if when == "spawned" else None
    children = children or next_of(process, "training")
    assert any(runs(pid) for pid in children)
    during = list((tmp_path / "tmp").iterdir())
    process.send_signal(signal_number)
    assert process.wait() == -signal_number
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and any(runs(pid) for pid in children):
        time.sleep(0.05)
    assert not any(runs(pid) for pid in children)
    assert during == list((tmp_path / "tmp").iterdir()) == []


# --- a party that does not come to its end ---------------------------------------------------------------------------


def companies():
    """A bank with labels and a shop."""
    X = np.random.default_rng(1).normal(size=(80, 4))
    return Federation.vertical({"bank": X[:, :2], "shop": X[:, 2:]}, labels=("bank", (X[:, 0] > X[:, 3]).astype(int)))


EDGES = {"vertical.bucket_rr": {"epsilon": 4.0, "edges": {"x0": [0.0], "x1": [0.0]}, "n_estimators": 30}}


def test_a_feature_holder_that_is_killed_late_is_named(monkeypatch, tmp_path):
    """Not a KeyError; the label holder's book is with the error and in the folder that was to be recorded to."""
    processes = {}
    run = functools.partial(local_processes.run_in_processes, after_start=processes.update)
    monkeypatch.setattr(local_processes, "run_in_processes", run)
    monkeypatch.setattr(local_processes, "GRACE_SECONDS", 1.0)

    def kill(done, _total):
        if done == 2:
            processes["shop"].kill()

    with pytest.raises(ProcessEnded, match=r"^shop: the process was killed by SIGKILL") as caught:
        companies().fit(
            "vertical.bucket_rr",
            **EDGES["vertical.bucket_rr"],
            transport="grpc",
            on_progress=kill,
            record=tmp_path / "run",
        )
    assert caught.value.ledgers.keys() == {"bank"}
    assert caught.value.ledgers["bank"].lines("learned", "shop")
    kept = (tmp_path / "run" / "ledgers" / "bank.jsonl").read_text()
    assert kept == caught.value.ledgers["bank"].to_json_lines()


def test_a_feature_holder_that_fails_late_is_named_in_memory(monkeypatch, tmp_path):
    """After the label holder has its model: the feature holder's own error, with everybody's books."""
    chosen = protocols.find("vertical.bucket_rr")
    play = type(chosen).play

    def stumble(self, me, job, data):
        result = play(self, me, job, data)
        if me.name == "shop":
            raise InvalidInput("the disk is full")
        return result

    warm_up(chosen, chosen_job(chosen))
    monkeypatch.setattr("hedgerow.runtime.running.warm_up", lambda *_: None)
    monkeypatch.setattr(type(chosen), "play", stumble)
    with pytest.raises(InvalidInput, match=r"^shop: the disk is full") as caught:
        companies().fit("vertical.bucket_rr", **EDGES["vertical.bucket_rr"], record=tmp_path / "run")
    assert {name: len(book) > 0 for name, book in caught.value.ledgers.items()} == {"bank": True, "shop": True}
    for name, book in caught.value.ledgers.items():
        path = tmp_path / "run" / "ledgers" / f"{name}.jsonl"
        assert path.read_text() == book.to_json_lines()
        assert path.stat().st_mode & 0o777 == 0o600


def chosen_job(chosen):
    """A job of the protocol, to get its kernels compiled."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        run_together = "hedgerow.federation.federation.run_together"
        patch.setattr(run_together, lambda _protocol, job, *_, **__: seen.append(job) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            companies().fit(chosen.name, **EDGES[chosen.name])
    return seen[0]


class Found:
    """A result that says whom the others went on without."""

    def __init__(self, *lost):
        self.meta = {"lost_owners": dict.fromkeys(lost, 3)}


def test_only_who_was_given_up_may_be_missing():
    """Others raise what they ended with; the one that failed by itself, not those that were told."""
    names, books = ("hub", "ash", "elm"), {"hub": Ledger("hub")}
    late = DeadlineExceeded("elm: did not come to its end")
    check_results(names, {"hub": Found("elm"), "ash": 1}, {"elm": late}, books, None)
    with pytest.raises(DeadlineExceeded, match="elm: did not"):
        check_results(names, {"hub": Found(), "ash": 1}, {"elm": late}, books, None)
    errors = {"ash": PeerFailed("elm", Reason.INTERNAL), "elm": ValueError("raw")}
    with pytest.raises(ValueError, match="raw") as caught:
        check_results(names, {"hub": 1}, errors, books, None)
    assert caught.value.ledgers == books


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("Shop", "shop"), ("bank", "parties.json"), ("Alignment.JSON", "bank")])
def test_names_that_would_be_one_file_are_refused(names):
    """Two names that some disks take for one, and names of files that lie beside the parties' folders."""
    X = np.zeros((4, 1))
    with pytest.raises(InvalidParameter, match=r"differ only in capitals|saved models have a file of that name"):
        Federation.vertical(dict.fromkeys(names, X), labels=(names[0], [0, 1, 0, 1]))


@pytest.mark.parametrize("name", ["Coordinator", "COORDINATOR"])
def test_also_roles_that_the_protocol_adds_have_names(name):
    """An owner cannot be called as the coordinator, but for capitals."""
    rows = (np.zeros((4, 1)), [0, 1, 0, 1])
    with pytest.raises(InvalidParameter, match=f"'coordinator' and '{name}' differ only in capitals"):
        Federation.horizontal({name: rows, "elm": rows, "oak": rows}).fit("horizontal.secure_sum", n_estimators=1)
