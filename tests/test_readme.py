"""What the README shows works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_first_model_runs():
    """The Python example runs as printed, warnings being errors, and reaches a sensible accuracy."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    run = subprocess.run([sys.executable, "-W", "error", "-c", example], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    accuracy = re.fullmatch(r"accuracy on unseen people: (0\.\d{3})\n", run.stdout)
    assert accuracy, run.stdout
    assert float(accuracy.group(1)) > 0.86
