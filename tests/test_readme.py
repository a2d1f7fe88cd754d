"""What the README shows works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def printed_by_example(number):
    """What an example of the README prints when it runs as printed, warnings being errors."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 4
    command = [sys.executable, "-W", "error", "-c", examples[number]]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_first_model_runs():
    """The first example reaches a sensible accuracy."""
    output = printed_by_example(0)
    accuracy = re.fullmatch(r"accuracy on unseen people: (0\.\d{3})\n", output)
    assert accuracy, output
    assert float(accuracy.group(1)) > 0.86


def test_a_private_model_runs():
    """The second example is accurate, too, and prints its statement."""
    output = printed_by_example(1)
    accuracy = re.match(r"accuracy on unseen people: (0\.\d{3})\n", output)
    assert accuracy, output
    assert float(accuracy.group(1)) > 0.84
    assert "differential privacy with epsilon = 1 and delta = 1e-6" in " ".join(output.split())


def test_three_owners_run():
    """The third example prints the statement and an owner's ledger."""
    output = printed_by_example(2)
    assert output.startswith("Trained with horizontal.secure_sum by 3 owners of rows.\n")
    assert "\nLedger of a\n" in output


def test_two_companies_run():
    """The fourth example prints what is protected, for the value and for the record."""
    output = printed_by_example(3)
    assert output.startswith("Trained with vertical.bucket_rr: bank has the labels")
    assert "shop: epsilon = 4 for one element, 3 columns x 4 = 12 for one record." in output
