"""The benchmark of scale: every curve runs, as small as it can be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hedgerow.runtime.protocol import names

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.mark.long
def test_all_curves_run(tmp_path: Path) -> None:
    """Every kind of point comes out, actors give the model of one machine, and no file of rows is left."""
    out = tmp_path / "points.jsonl"
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, str(SCALE), "all", "--quick", "--out", str(out)]
    environment = {"SCALE_SCRATCH": str(tmp_path / "scratch")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"fit", "xgboost", "actors", "protocol"}
    assert {line["protocol"] for line in lines if line["kind"] == "protocol"} == set(names())
    assert not [line for line in lines if "failed" in line["found"]]
    assert all(line["found"]["same model"] for line in lines if line["kind"] == "actors")
    assert list((tmp_path / "scratch").iterdir()) == []
