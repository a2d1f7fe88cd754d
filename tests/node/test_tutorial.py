"""The tutorial of two organisations, command by command as it is printed, as processes in two folders."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hedgerow.node.home import Home
from twins.documented import Block, blocks, commands_of
from twins.offices import Office, code_of, typed_in
from twins.organisations import HOLDERS, bank_and_shop, customers, free_port, job_text

PAGE = "tutorials/two_organisations.md"
PARTIES = ("bank", "shop")
README = Path(__file__).parents[2] / "README.md"


class Organisation:
    """A folder, and commands that are typed in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        folder.mkdir()

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        """The command, with the address of the page replaced by one of this machine."""
        here = [re.sub(r"^(?:bank\.example\.org|0\.0\.0\.0):7341$", f"127.0.0.1:{self.port}", word) for word in words]
        if "RUN" in here:
            (run,) = (self.folder / "runs").iterdir()
            here[here.index("RUN")] = run.name[:8]
        return typed_in(self.folder, here)


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
    return {name: Office.finish(started[name], typed[name]) for name in others_first}


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
    said = {}
    for step in steps(shown):
        said[next(iter(step.values()))[1]] = play(organisations, step)
    typed = [words for step in steps(shown) for words in step.values()]
    assert sorted(typed) == sorted(commands_of(f"docs/{PAGE}"))
    folders = parts_of(organisations)
    assert (folders[0] / "statement.json").is_file()
    assert "5,000 rows matched" in said["run"]["bank"]
    assert "run over" in said["status"]["shop"]
    scores = (organisations["bank"].folder / "scores.csv").read_text().splitlines()
    assert len(scores) == 1 + 500


def parts_of(organisations: dict[str, Organisation]) -> list[Path]:
    """The folders of the one run, in which everybody has a part."""
    folders = [next(Home(each.folder).runs.iterdir()) for each in organisations.values()]
    assert len({folder.name for folder in folders}) == 1
    assert all((folder / "part.json").is_file() for folder in folders)
    return folders


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_readme_works_as_printed(tmp_path):
    """What README.md shows of two organisations, line by line on both sides, makes a model from their own tables."""
    port = free_port()
    organisations = {name: Organisation(tmp_path / name, port) for name in PARTIES}
    tables, bank = bank_and_shop(customers()), organisations["bank"].folder
    named = [*tables["bank"].column_names[:-1], "defaulted"]
    pq.write_table(tables["bank"].rename_columns(named), bank / "customers.parquet")
    pq.write_table(tables["shop"], organisations["shop"].folder / "receipts.parquet")
    options = {"n_estimators": 3, "epsilon": 4.0, "delta": 1e-6}
    (bank / "job.toml").write_text(job_text("vertical.noised_gradients", options, HOLDERS))
    shown = [words for words in commands_of("README.md") if words[1] in ("init", "pair", "propose", "accept", "run")]
    assert len(shown) == 8
    for pair in zip(shown[:4], shown[4:], strict=True):
        play(organisations, dict(zip(PARTIES, pair, strict=True)))
    parts_of(organisations)
