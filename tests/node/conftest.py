"""What tests of nodes share: homes that are cheap to make, and the command, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.node.home import Home
from twins.homes import simplify


@pytest.fixture(autouse=True)
def _simple(monkeypatch):
    """Homes are cheap to make, and nothing of the environment leaks in."""
    simplify(monkeypatch)


@pytest.fixture
def bank(tmp_path):
    """The home of a party."""
    return Home.create(tmp_path / "bank", "bank")


@pytest.fixture
def shop(tmp_path):
    """The home of another party."""
    return Home.create(tmp_path / "shop", "shop")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command in this process; `.json` is its stdout where --json was among the arguments."""
    monkeypatch.delenv("HEDGEROW_HOME", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def run_command(*args: Any, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        result.json = json.loads(result.stdout) if "--json" in args else None
        return result

    return run_command
