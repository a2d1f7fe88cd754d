"""The tutorial of two organisations, command by command as it is printed, as processes in two folders."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hedgerow.node.home import Home
from twins.documented import Block, blocks, options_of
from twins.organisations import free_port

PAGE = "tutorials/two_organisations.md"
SECONDS = 150.0
PARTIES = ("bank", "shop")
README = Path(__file__).parents[2] / "README.md"


class Organisation:
    """A folder, and commands that are typed in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        folder.mkdir()

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        """The command, with the address of the tutorial replaced by one of this machine."""
        assert words[0] == "hedgerow"
        here = [re.sub(r"^(?:bank\.example\.org|0\.0\.0\.0):7341$", f"127.0.0.1:{self.port}", word) for word in words]
        if "RUN" in here:
            (run,) = (self.folder / "runs").iterdir()
            here[here.index("RUN")] = run.name[:8]
        return subprocess.Popen(
            [sys.executable, "-m", "hedgerow.cli", *here[1:]],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("HEDGEROW_")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str], typed: str = "") -> str:
        """What the command printed, once it has ended well."""
        try:
            out, err = process.communicate(typed, timeout=SECONDS)
        finally:
            process.kill()
        assert process.returncode == 0, (process.args, out, err)
        return out


def code_of(process: subprocess.Popen[str]) -> str:
    """The code that a listening side shows."""
    for line in process.stderr:
        if found := re.search(r"Code: (\S+)", line):
            return found[1]
    raise AssertionError(process.communicate())


def steps(shown: list[Block]) -> list[dict[str, list[str]]]:
    """Commands side by side: those of one heading, for each party."""
    found: list[dict[str, list[str]]] = []
    for block in shown:
        if block.language != "console":
            continue
        (words,) = block.commands
        if not found or block.party == "bank" or block.party in found[-1]:
            found.append({})
        found[-1][block.party] = words
    return found


def play(organisations: dict[str, Organisation], step: dict[str, list[str]]) -> dict[str, str]:
    """One step of the tutorial, by both sides at the same time; answers what is asked for."""
    started, typed = {}, dict.fromkeys(step, "")
    for name, words in step.items():
        if words[1] == "accept":
            typed[name] = "y\n"
        if words[1] == "pair" and len(words) == 3:
            typed[name] = code_of(started["bank"]) + "\n"
        started[name] = organisations[name].start(words)
    others_first = sorted(started, key=lambda name: name == "bank")
    return {name: organisations[name].end(started[name], typed[name]) for name in others_first}


def test_four_commands_each_make_a_model_and_a_fifth_a_score():
    """So it is promised; what shows the state is not counted."""
    for name in PARTIES:
        verbs = [step[name][1] for step in steps(blocks(PAGE)) if name in step and step[name][1] != "status"]
        middle = "propose" if name == "bank" else "accept"
        assert verbs == ["init", "pair", middle, "run", "predict"]


def test_the_readme_shows_the_same_commands():
    """Those of the tutorial, up to the model; only names of files and columns may differ."""
    section = README.read_text(encoding="utf-8").split("## Two organisations\n")[1].split("\n## ")[0]
    shown = re.findall(r"^hedgerow (\w+)", section, flags=re.MULTILINE)
    expected = [step[name][1] for name in PARTIES for step in steps(blocks(PAGE)) if name in step]
    assert shown == [verb for verb in expected if verb not in {"status", "predict"}]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_works_as_printed(tmp_path, monkeypatch):
    """Copied command by command, with another address, it ends with a part of the model at each organisation."""
    shown = blocks(PAGE)
    monkeypatch.chdir(tmp_path)
    (snippet,) = [block.text for block in shown if block.language == "python"]
    exec(compile(snippet, PAGE, "exec"), {})  # noqa: S102 - our own documentation
    port = free_port()
    organisations = {name: Organisation(tmp_path / name, port) for name in PARTIES}
    for name, organisation in organisations.items():
        for path in tmp_path.glob(f"{name}_*.parquet"):
            shutil.move(path, organisation.folder)
    for block in shown:
        if block.file is not None:
            (organisations[block.party].folder / block.file).write_text(block.text)
    can_score = "--predict-epsilon" in options_of("predict")
    said = {}
    for step in steps(shown):
        verb = next(iter(step.values()))[1]
        if verb != "predict" or can_score:
            said[verb] = play(organisations, step)
    folders = [next(Home(each.folder).runs.iterdir()) for each in organisations.values()]
    assert folders[0].name == folders[1].name
    assert all((folder / "part.json").is_file() for folder in folders)
    assert (folders[0] / "statement.json").is_file()
    assert "5,000 rows matched" in said["run"]["bank"]
    assert "run over" in said["status"]["shop"]
    if can_score:
        scores = (organisations["bank"].folder / "scores.csv").read_text().splitlines()
        assert len(scores) == 1 + 500
