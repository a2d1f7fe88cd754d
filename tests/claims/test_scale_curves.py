"""The benchmark of scale: every curve runs, as small as it can be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"
KINDS = {
    "rows": {"fit"},
    "columns": {"fit"},
    "bins": {"fit"},
    "depth": {"fit"},
    "trees": {"fit"},
    "xgboost": {"fit", "xgboost"},
    "actors": {"actors"},
    "owners": {"protocol"},
    "protocols vertical.bucket_rr": {"protocol"},
}


@pytest.mark.long
@pytest.mark.parametrize("curve", KINDS)
def test_a_curve_runs(curve: str, tmp_path: Path) -> None:
    """Its kinds of points come out, actors give the model of one machine, and no file of rows is left."""
    out, scratch = tmp_path / "points.jsonl", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, str(SCALE), *curve.split(), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SCALE_SCRATCH": str(scratch)})
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["kind"] for line in lines} == KINDS[curve]
    assert all(line["found"]["seconds"] > 0 for line in lines)
    assert all(line["found"].get("same model", True) for line in lines)
    assert list(scratch.iterdir()) == []
