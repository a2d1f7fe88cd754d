"""What the policy tests look at: the repository's own files, parsed once."""

from __future__ import annotations

import ast
import gc
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NOT_OURS = {
    ".git",
    ".venv",
    "__pycache__",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "build",
    "dist",
    "site",
}
RATCHET = Path(__file__).with_name("ratchet.json")


class Ratchet:
    """What rules still forgive, in `ratchet.json`: numbers that may only fall, lists that may only get shorter.

    `make ratchet` writes down what has got better; it never forgives anything new.
    """

    def __init__(self, path: Path, *, lower: bool = False) -> None:
        self.path, self.lower = path, lower
        self.forgiven = json.loads(path.read_text(encoding="utf-8"))

    def _keep(self, rule: str, value: int | list[str]) -> None:
        self.forgiven[rule] = value
        self.path.write_text(json.dumps(self.forgiven, indent=2) + "\n", encoding="utf-8")

    def hold_number(self, rule: str, found: int, bar: int) -> None:
        """At most what is forgiven, which is the bar in the end."""
        assert found <= self.forgiven[rule], f"{rule}: {found}, and at most {self.forgiven[rule]} are forgiven"
        if self.lower:
            self._keep(rule, max(found, bar))
        assert self.forgiven[rule] >= bar, f"{rule}: nothing below the bar of {bar} is asked for"

    def hold_list(self, rule: str, found: Iterable[str]) -> None:
        """Exactly what is forgiven: neither something new, nor an entry for something that is gone."""
        now, forgiven = set(found), self.forgiven[rule]
        assert sorted(now.difference(forgiven)) == [], f"{rule}: new"
        if self.lower:
            self._keep(rule, sorted(now))
        else:
            assert sorted(set(forgiven) - now) == [], f"{rule}: gone; `make ratchet` takes them off the list"


class Source(NamedTuple):
    """One Python file: its path from the root, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


def _files() -> list[Path]:
    """All files that are or would be tracked; where this is no git checkout (an unpacked sdist), all files."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        check=False,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        return sorted(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file())
    return sorted(
        path for path in ROOT.rglob("*") if path.is_file() and NOT_OURS.isdisjoint(path.relative_to(ROOT).parts)
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Every text file of the repository, by its path from the root; files with a NUL byte are not text."""
    contents = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _files()}
    return {name: content.decode("utf-8") for name, content in contents.items() if b"\0" not in content}


@pytest.fixture(scope="session")
def python_files(texts) -> list[Source]:
    """Every Python file of the repository.

    Their trees are millions of objects that stay: the garbage collector is told not to look at them, neither now nor
    in any of the tests that come later.
    """
    gc.disable()
    sources = [Source(path, text, ast.parse(text, path)) for path, text in texts.items() if path.endswith(".py")]
    gc.freeze()
    gc.enable()
    return sources


@pytest.fixture(scope="session")
def package(python_files) -> list[Source]:
    """The Python files of the package."""
    return [source for source in python_files if source.path.startswith("src/")]


@pytest.fixture(scope="session")
def ratchet() -> Ratchet:
    """What the rules still forgive."""
    return Ratchet(RATCHET, lower=bool(os.environ.get("HEDGEROW_LOWER_RATCHET")))


@pytest.fixture
def made_up_ratchet(tmp_path):
    """Makes a ratchet that forgives what it is given."""

    def make(forgiven: dict[str, int | list[str]], *, lower: bool = False) -> Ratchet:
        path = tmp_path / "ratchet.json"
        path.write_text(json.dumps(forgiven), encoding="utf-8")
        return Ratchet(path, lower=lower)

    return make
