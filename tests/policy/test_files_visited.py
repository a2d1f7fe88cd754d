"""A call does not wander: few files of the package are visited by a training and by a prediction.

Not part of `make check`, because the first run compiles kernels; `make test` runs it. To see the files:
`python tests/policy/files_visited.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("files_visited.py")
BARS = {"fit": 28, "predict_proba": 16}
ALWAYS = {"fit": "protocols/vertical/bucket_rr/label_holder.py", "predict_proba": "federation/vertical_model.py"}


@pytest.fixture(scope="module")
def visited():
    """What the script finds, in a process of its own: tests before this one have left threads behind."""
    run = subprocess.run([sys.executable, str(SCRIPT), "--json"], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("call", BARS)
def test_few_files_are_visited(call, visited, ratchet):
    """Counted on the second call, in all threads."""
    assert ALWAYS[call] in visited[call]
    ratchet.hold_number(f"files visited by {call}", len(visited[call]), BARS[call])


MADE_UP = """
import sys, threading
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from files_visited import Visits
visits = Visits(Path(sys.argv[2]))
import here, there, elsewhere
def call():
    here.go()
    thread = threading.Thread(target=there.go)
    thread.start()
    thread.join()
print(*visits.of(call))
"""


def test_what_is_entered_is_counted_in_every_thread(tmp_path):
    """A file whose function is entered counts, also in a thread of its own; one that is only imported does not."""
    for name in ("here", "there", "elsewhere"):
        (tmp_path / f"{name}.py").write_text("def go(): pass\n")
    command = [sys.executable, "-c", MADE_UP, str(SCRIPT.parent), str(tmp_path)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["here.py", "there.py"]
