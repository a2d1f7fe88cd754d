"""A ledger that is on the disk as it is written: a process that is killed has lost nothing of it."""

from __future__ import annotations

import signal
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from hedgerow.ledger import Kind, Ledger
from hedgerow.node.books import KeptLedger, whole_lines
from hedgerow.privacy.events import Laplace
from twins.damage import as_often

KIND = Kind("a.message", 1, "what", "in the clear")
MESSAGES = st.lists(st.tuples(st.sampled_from(["disclosed", "learned"]), st.sampled_from("ab"), st.integers(0, 2**40)))


@given(MESSAGES, MESSAGES)
@as_often(40)
def test_every_line_is_on_the_disk_at_once(tmp_path_factory, first, second):
    """After each message the file has all of this attempt below all of the one before, as it would be saved."""
    path, earlier = tmp_path_factory.mktemp("book") / "ledger.jsonl", ""
    for messages in (first, second):
        with KeptLedger("bank", path) as book:
            for direction, peer, n_bytes in messages:
                book.write(direction, peer, KIND, n_bytes, Laplace(1.0, 0.5) if n_bytes % 2 else None)
                assert path.read_text() == earlier + book.to_json_lines()
            earlier = path.read_text() if path.exists() else ""
        book.write("disclosed", "a", KIND, 1)  # closed: it is in the book, and no other file gets it
        assert path.read_text() == earlier
    assert path.stat().st_mode & 0o777 == 0o600


@given(st.integers(0, 10_000))
@as_often(40)
def test_half_a_line_is_taken_out(tmp_path_factory, size):
    """Wherever the file ends: what is left can be read, and nothing whole is lost."""
    path = tmp_path_factory.mktemp("book") / "ledger.jsonl"
    with KeptLedger("bank", path) as book:
        for k in range(5):
            book.write("disclosed", "shop", KIND, k)
    text = path.read_bytes()
    path.write_bytes(text[:size])
    found = whole_lines(path)
    assert found == path.read_bytes()
    assert len(Ledger.from_json_lines("bank", found.decode())) == text[:size].count(b"\n")


def test_a_process_that_is_killed_has_lost_nothing(tmp_path):
    """What was written before the kill is there."""
    path = tmp_path / "ledger.jsonl"
    program = f"""
import os, signal
from pathlib import Path
from hedgerow.ledger import Kind
from hedgerow.node.books import KeptLedger
book = KeptLedger("bank", Path({str(path)!r}))
for k in range(100):
    book.write("disclosed", "shop", Kind("a.message", 1, "what", "in the clear"), k)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [line.n_bytes for line in Ledger.from_json_lines("bank", path.read_text())] == list(range(100))
