"""What the README shows works as shown."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
RUN_EACH = """
import contextlib, io, json, sys
printed = []
for example in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


@pytest.fixture(scope="module")
def printed():
    """What each example of the README prints when it runs as printed, with names of its own, warnings being errors.

    In a process that has loaded nothing else; one for all, because loading takes longer than most of the examples.
    """
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 4
    command = [sys.executable, "-W", "error", "-c", RUN_EACH]
    run = subprocess.run(command, check=False, capture_output=True, text=True, input=json.dumps(examples))
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_first_model_runs(printed):
    """The first example reaches a sensible accuracy."""
    output = printed[0]
    accuracy = re.fullmatch(r"accuracy on unseen people: (0\.\d{3})\n", output)
    assert accuracy, output
    assert float(accuracy.group(1)) > 0.86


def test_a_private_model_runs(printed):
    """The second example is accurate, too, and prints its statement."""
    output = printed[1]
    accuracy = re.match(r"accuracy on unseen people: (0\.\d{3})\n", output)
    assert accuracy, output
    assert float(accuracy.group(1)) > 0.84
    assert "differential privacy with epsilon = 1 and delta = 1e-6" in " ".join(output.split())


def test_three_owners_run(printed):
    """The third example prints the statement and an owner's ledger."""
    output = printed[2]
    assert output.startswith("Statement of a run of horizontal.secure_sum")
    assert "\nLedger of a\n" in output


def test_two_companies_run(printed):
    """The fourth example prints what is protected, for the value and for the record."""
    output = printed[3]
    assert output.startswith("Statement of a run of vertical.bucket_rr")
    assert "- One value of one column of a feature holder: epsilon = 4, towards everybody else." in output
    assert "shop: epsilon = 4 for one element, 3 columns x 4 = 12 for one record." in output
