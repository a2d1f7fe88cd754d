from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hedgerow.cli import app


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs take settings from the environment; the tests' own must not leak in. Help is laid out for 80 columns."""
    for name in ("HEDGEROW_MODEL_MAX_ITER", "HEDGEROW_DATA_LABEL", "HEDGEROW_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command in this process; `.json` is its stdout where --json was among the arguments."""

    def run_command(*args: Any, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        result.json = json.loads(result.stdout) if "--json" in args else None
        return result

    return run_command


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A folder with train, valid and test rows as Parquet, and the training rows as CSV."""
    for seed, name in enumerate(("train", "valid", "test")):
        rng = np.random.default_rng(seed)
        n_rows = 300
        town = rng.choice(["ash", "elm", "oak"], size=n_rows)
        age = rng.integers(18, 90, size=n_rows)
        income = np.where(rng.random(n_rows) < 0.1, np.nan, rng.lognormal(size=n_rows))
        answer = np.where((town == "elm") | (age > 60), "yes", "no")
        table = pa.table(
            {
                "id": np.arange(n_rows),
                "town": town.tolist(),
                "age": age,
                "income": pa.array(income, from_pandas=True),
                "weight": rng.uniform(0.5, 2.0, size=n_rows),
                "answer": answer.tolist(),
                "amount": age + 0.5,
            }
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
        pc.write_csv(table, tmp_path / f"{name}.csv")
    return tmp_path
