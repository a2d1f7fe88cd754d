"""The process that parties are forked from: what it is asked for, how long it stays, what its forks do not share."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.errors import DeadlineExceeded, PeerLost, ProcessEnded
from hedgerow.runtime import forks as local_forks
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime.party_start import next_request
from hedgerow.runtime.processes import run_in_processes
from hedgerow.transport.emulate import Link

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
ALIGNING = ("vertical.aligning", {"no": "job"})  # cannot be prepared: what is wrong, parties find by themselves


def companies():
    """A bank with labels and a shop."""
    X = np.random.default_rng(1).normal(size=(80, 4))
    return Federation.vertical({"bank": X[:, :2], "shop": X[:, 2:]}, labels=("bank", (X[:, 0] > X[:, 3]).astype(int)))


def fit(monkeypatch, look=None, **params):
    """Train in processes; `look` gets them while they train."""
    run = functools.partial(run_in_processes, after_start=look)
    monkeypatch.setattr(local_processes, "run_in_processes", run)
    how = {"n_estimators": 3, "max_depth": 2, "epsilon": 4.0, "delta": 1e-5, "transport": "grpc"}
    return companies().fit("vertical.noised_gradients", **(how | params))


def current():
    """The process that this thread's parties are forked from."""
    return local_forks._mine.forks._process


def files_of(pid):
    """Descriptor -> what it leads to."""
    return {int(path.name): path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir()}


def runs(pid):
    """Whether a process is there and not only waits for being waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@linux_only
def test_runs_are_forked_from_one_process_and_share_no_file(monkeypatch):
    """It has one thread and stays for the next run; a party has its own pipes, and the socket of nobody."""
    seen = []

    def look(processes):
        mine = {name: files_of(process.pid) for name, process in processes.items()}
        threads = len(list(Path(f"/proc/{current().pid}/task").iterdir()))
        names = {name: Path(f"/proc/{process.pid}/comm").read_text().strip() for name, process in processes.items()}
        seen.append(SimpleNamespace(pid=current().pid, server=files_of(current().pid), files=mine, threads=threads))
        assert names == {"bank": "bank", "shop": "shop"}

    for _ in range(2):
        fit(monkeypatch, look)
    assert seen[0].pid == seen[1].pid
    for run in seen:
        assert run.threads == 1
        assert run.server.keys() == {0, 1, 2}
        bank, shop = ({place for place in files.values() if ":" in place} for files in run.files.values())
        own = {place for place in (bank | shop) if place.startswith(("pipe:", "socket:"))}
        assert len({run.files[name][number] for name in run.files for number in (0, 1)}) == 4
        assert run.server[0] not in own
        assert not {place for place in bank & shop if place.startswith(("pipe:", "socket:"))}


def test_a_process_that_was_ended_is_replaced(monkeypatch):
    """Whoever ended it: the next run starts another one."""
    fit(monkeypatch)
    first = current()
    first.kill()
    fit(monkeypatch)
    assert current().pid != first.pid
    assert current().poll() is None


def test_other_environment_variables_other_process(monkeypatch):
    """What users set between runs counts in the next one; the process of the old state ends."""
    forks = local_forks.forks_for(*ALIGNING, 60.0)
    assert local_forks.forks_for(*ALIGNING, 60.0) is forks
    process = forks._process
    del forks
    monkeypatch.setenv("HEDGEROW_TEST_OF_FORKS", "1")
    other = local_forks.forks_for(*ALIGNING, 60.0)
    assert other._process.pid != process.pid
    assert process.returncode == -signal.SIGKILL


def test_threads_have_a_process_each():
    """It ends with its thread, as the kernel would have it."""
    seen = []

    def work():
        local_forks.forks_for(*ALIGNING, 60.0)
        seen.append(current())
        assert seen[0].poll() is None

    mine = local_forks.forks_for(*ALIGNING, 60.0)._process
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0].pid != mine.pid
    assert seen[0].wait(timeout=10) == -signal.SIGKILL
    assert mine.poll() is None


@linux_only
def test_parties_end_with_the_process_they_were_forked_from(monkeypatch):
    """The run ends with an error, not never, and nobody stays."""
    parties = {}

    def end(processes):
        parties.update(processes)
        current().kill()

    with pytest.raises(PeerLost, match=r"the process was killed by SIGKILL"):
        fit(monkeypatch, end, n_estimators=500, link=Link(0.5))
    assert parties.keys() == {"bank", "shop"}
    until = time.monotonic() + 30.0  # the kernel ends them, on a busy machine not in the same moment
    while (left := [process.pid for process in parties.values() if runs(process.pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def test_what_takes_too_long_to_prepare_is_given_up():
    """The late answer is never taken for that to another question: the process has ended."""
    forks = local_forks.Forks(local_forks._environment())
    with pytest.raises(DeadlineExceeded, match=r"did not answer in 0\.001 s"):
        forks.prepare(*ALIGNING, 0.001)
    with pytest.raises(ProcessEnded, match=r"forked from ended with exit code -9: no message"):
        forks.prepare(*ALIGNING, 60.0)


def test_a_process_that_cannot_start_says_why(monkeypatch, tmp_path):
    """The last line of its output is in the error."""
    broken = tmp_path / "start.py"
    broken.write_text("raise ImportError('no numpy here')\n")
    monkeypatch.setattr(local_forks, "_START", broken)
    with pytest.raises(ProcessEnded, match=r"ended with exit code 1: ImportError: no numpy here"):
        local_forks.Forks(local_forks._environment()).prepare(*ALIGNING, 60.0)


def test_requests_end_with_the_parent_and_with_idleness():
    """None in both cases; whole lines and their files otherwise."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(os.devnull).open() as file:
        assert next_request(theirs, 0.01) is None
        socket.send_fds(ours, [b'{"fork": '], [file.fileno()])
        ours.sendall(b"1}\n")
        asked, (handed,) = next_request(theirs, 5.0)
        assert asked == {"fork": 1}
        assert os.path.sameopenfile(handed, file.fileno())
        os.close(handed)
        ours.close()
        assert next_request(theirs, None) is None


DRAWING = """
    import json, os, secrets, sys
    from hedgerow.crypto.csprng import SecureRandom
    from hedgerow.crypto.masking import KeyPair
    from hedgerow.errors import ProtocolError
    from hedgerow.runtime import running
    from hedgerow.runtime.party_process import prepare
    from hedgerow.transport.mtls import Identity

    protocol, job = json.loads(sys.argv[1])
    prepare(protocol, job)
    assert running._warm
    before = SecureRandom()
    Identity.create("warm")
    before.bytes(1), secrets.token_hex(1)
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                before.bytes(1)
            except ProtocolError:
                drawn = [SecureRandom().bytes(16).hex(), secrets.token_hex(16), Identity.create("a").key_pem.decode()]
                drawn.append(KeyPair.generate().public.hex())
                os.write(1, json.dumps(drawn).encode() + b"\\n")
            os._exit(0)
        os.waitpid(pid, 0)
"""


def test_parties_forked_from_one_process_draw_differently(monkeypatch):
    """Keys, masks, noise: nothing that was drawn before the fork is drawn on after it, nothing is drawn twice."""
    seen = []

    def stop(protocol, job, *_, **__):
        seen.append((protocol.name, job.to_dict()))
        raise InterruptedError

    monkeypatch.setattr("hedgerow.federation.federation.run_together", stop)
    rows = (np.arange(8.0).reshape(4, 2), [0, 1, 0, 1])
    with pytest.raises(InterruptedError):
        Federation.horizontal(dict.fromkeys(("ash", "elm", "oak"), rows)).fit("horizontal.secure_sum", n_estimators=1)
    command = [sys.executable, "-c", textwrap.dedent(DRAWING), json.dumps(seen[0])]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    one, two = (json.loads(line) for line in told.splitlines())
    assert len(one) == len(two) == 4
    assert len({*one, *two}) == 8
