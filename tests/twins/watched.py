"""`hedgerow watch` for tests and pictures: the command itself, in a process of its own, with the address it prints."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.playing import play
from hedgerow.node.proposal import Proposal
from twins.organisations import at_every_node, or_raise


def started(home: Home, *options: str) -> subprocess.Popen[str]:
    """The command, in the party's folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "hedgerow.cli", "watch", *options],
        cwd=home.path,
        env={name: value for name, value in os.environ.items() if not name.startswith("HEDGEROW_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    """What it prints first, with the token behind #."""
    said = process.stderr.readline() if process.stderr else ""
    found = re.search(r"http://127\.0\.0\.1:\d+/#\S+", said)
    assert found, said
    return found[0]


@contextlib.contextmanager
def watching(home: Home, *options: str) -> Iterator[str]:
    """The address of a party's live page while the block runs."""
    with started(home, *options) as process:
        try:
            yield address_of(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)


@contextlib.contextmanager
def half_way(homes: Mapping[str, Home], proposal: Proposal, n_trees: int) -> Iterator[threading.Event]:
    """A run that waits after some trees until the event is set; it is over when the block is."""
    reached, go_on = threading.Event(), threading.Event()
    found: dict[str, Path | BaseException] = {}

    def stop(done: int, total: int) -> None:
        if (done, total) == (n_trees, proposal.params["n_estimators"]):
            reached.set()
            go_on.wait(120.0)

    def at(node: Node) -> Path:
        watch = stop if node.name == proposal.proposed_by else None
        return play(node, node.papers.get(proposal.hash), wait=60.0, on_progress=watch)

    def run() -> None:
        found.update(at_every_node(homes, at))
        reached.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        reached.wait()
        yield go_on
    finally:
        go_on.set()
        thread.join()
    or_raise(found)
