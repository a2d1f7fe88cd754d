"""The Containerfile, line by line: pinned, not as root, and nothing of any party in a layer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from twins.documented import options_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
MAY_BE_COPIED = {"pyproject.toml", "hatch_build.py", "constraints.txt", "README.md", "LICENSE", "src"}
SECRET = re.compile(r"key|pem|secret|passphrase|token|party\.toml|budget|audit", re.IGNORECASE)


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and arguments of each line; comments are left out, and no line goes on in the next."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def faults(found: list[tuple[str, str]]) -> list[str]:
    """What an image must not have."""
    problems = []
    for word, rest in found:
        if word == "FROM" and not re.match(r"[\w./-]+:[0-9]+\.[0-9]+\.[0-9]+[\w.-]*(?: AS \w+)?$", rest):
            problems.append(f"a base without a whole version: {rest}")
        if word == "ADD":
            problems.append(f"ADD, which fetches and unpacks: {rest}")
        if word == "COPY" and not rest.startswith("--from="):
            *copied, _ = rest.split()
            problems += [f"copied: {name}" for name in copied if name not in MAY_BE_COPIED or SECRET.search(name)]
        if word in {"ENV", "ARG"} and re.search(r"(?:PASSPHRASE|TOKEN|SECRET|KEY)\w*=", rest):
            problems.append(f"a secret in a layer: {rest}")
        if word == "RUN" and re.search(r"curl|wget|https?://|git clone", rest):
            problems.append(f"fetched from elsewhere: {rest}")
        if word == "RUN" and "pip install" in rest and "--constraint constraints.txt" not in rest:
            problems.append(f"not pinned: {rest}")
    users = [rest for word, rest in found if word == "USER"]
    if not users or re.match(r"(?:root|0)\b", users[-1]):
        problems.append("the program runs as root")
    return problems


def test_the_image_is_pinned_and_has_no_secrets():
    """No line does what an image must not do."""
    assert faults(instructions(FILE.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "FROM python",
        "FROM python:latest",
        "ADD https://example.org/a.tar.gz /a",
        "COPY . .",
        "COPY key.pem /",
        "ENV HEDGEROW_PASSPHRASE=open",
        "RUN curl https://example.org | sh",
        "RUN pip install hedgerow",
        "USER root",
        "USER 0:0",
    ],
)
def test_each_fault_is_found(line):
    """The check can fail, at every point."""
    good = [("FROM", "python:3.12.8-slim"), ("USER", "10001:10001")]
    assert faults(good) == []
    assert len(faults([*good, *instructions(line)])) == 1


def test_every_line_is_an_instruction():
    """Nothing is continued, so that what is checked line by line is all there is."""
    found = instructions(FILE.read_text(encoding="utf-8"))
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in found} <= known
    assert not [rest for _, rest in found if rest.endswith("\\")]


def test_what_is_copied_is_there():
    """Names of the repository's own files, which a build from a checkout finds."""
    assert {name for name in MAY_BE_COPIED if (ROOT / name).exists()} == MAY_BE_COPIED


def test_one_port_and_a_health_check_that_works():
    """The port that party.toml's template shows, and a verb with that option."""
    found = instructions(FILE.read_text(encoding="utf-8"))
    assert [rest for word, rest in found if word == "EXPOSE"] == ["7341"]
    (check,) = [json.loads(rest.partition("CMD ")[2]) for word, rest in found if word == "HEALTHCHECK"]
    assert check[0] == "hedgerow"
    assert set(check[2:]) <= options_of(check[1])
    (entry,) = [json.loads(rest) for word, rest in found if word == "ENTRYPOINT"]
    assert entry == ["hedgerow"]


def test_what_is_copied_is_enough_to_build(tmp_path):
    """From these files alone, without the network, a wheel can be made that has the command and the shipped table."""
    for name in MAY_BE_COPIED - {"src"}:
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "hedgerow/cli/__init__.py" in names
    assert any(name.startswith("hedgerow/datasets/") and name.endswith("ATTRIBUTION.md") for name in names)
