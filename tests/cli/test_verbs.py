"""What holds for every verb that the app has: --json, --dry-run, exit codes, progress. Exceptions have reasons."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from hedgerow import Federation
from hedgerow.cli import app, telling
from hedgerow.cli.outcome import EXIT_CODES_HELP, ExitCode
from hedgerow.node import keys
from hedgerow.node.audit import Trail
from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.job_file import read_job_file
from hedgerow.node.papers import Papers, answer
from hedgerow.node.playing import play
from hedgerow.node.proposal import propose
from hedgerow.node.succession import write_succession
from twins.organisations import HOLDERS, TREES, agreed_by_all, job_text, proposed, two_organisations
from twins.trained_homes import trained_homes

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def _found(command: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from _found(inner, (*before, name))
        else:
            yield " ".join((*before, name)), inner


VERBS = dict(_found(typer.main.get_command(app)))
FLAGS = {name: {flag for each in verb.params for flag in each.opts} for name, verb in VERBS.items()}
DRY = [name for name, flags in FLAGS.items() if "--dry-run" in flags]
LONG = [name for name, flags in FLAGS.items() if "--quiet" in flags]

_READS = "it only reads, and writes and sends nothing"
_DRY_ITSELF = "it is a trial itself, on made-up rows and on this machine alone"
NO_DRY_RUN = {
    "attack": _READS,
    "audit export": "it writes nothing but the folder that it is told to make, which can be looked at and deleted",
    "audit replay": _READS,
    "audit show": _READS,
    "audit verify": _READS,
    "demo": "it writes nothing but its reports, in a folder of their own",
    "doctor": "it looks for what is wrong, and changes nothing; what it looks at is the connection itself",
    "estimate": _DRY_ITSELF,
    "inspect": "it signs nothing; it is the look before accept, which has one",
    "keys show": _READS,
    "ledger": _READS,
    "manifest": _READS,
    "pack": "it writes nothing but the file or folder that it is told to make, which can be looked at and deleted",
    "pair": "a code that nobody types, or a fingerprint that nobody compares, shows nothing about the real pairing",
    "protocols": _READS,
    "rehearse": _DRY_ITSELF,
    "report": "it writes nothing but one page, which can be looked at and deleted",
    "schema check": _READS,
    "status": _READS,
    "warmup": "it writes nothing but compiled kernels, which every other verb would write as well",
    "watch": _READS,
}
_QUICK = "it is done in a moment"
_WAITS = "it waits for people or partners, for as long as --wait or --minutes say, and says for whom"
NO_PROGRESS = {
    "accept": _WAITS,
    "audit export": _QUICK,
    "audit show": _QUICK,
    "cancel": _QUICK,
    "doctor": _WAITS,
    "export": _QUICK,
    "init": _QUICK,
    "inspect": _WAITS,
    "keys encrypt": _QUICK,
    "keys follow": _QUICK,
    "keys revoke": _QUICK,
    "keys rotate": _QUICK,
    "keys show": _QUICK,
    "ledger": _QUICK,
    "manifest": _QUICK,
    "pack": _QUICK,
    "pair": _WAITS,
    "propose": _WAITS,
    "protocols": _QUICK,
    "refuse": _WAITS,
    "report": _QUICK,
    "schema check": _QUICK,
    "schema make": _QUICK,
    "serve": "it has no end to come nearer to; /health and /metrics tell how it is",
    "status": _QUICK,
    "watch": "it has no end to come nearer to; it is itself what shows progress",
}
NEVER_FAILS = {"demo": "it takes no input"}


# --- what each has ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_flags_or_a_reason(verb: str) -> None:
    """--json always; --dry-run, and progress with --quiet, unless the table of exceptions says why not."""
    assert "--json" in FLAGS[verb]
    assert (verb in DRY) != (verb in NO_DRY_RUN)
    assert (verb in LONG) != (verb in NO_PROGRESS)


def test_exceptions_are_of_verbs_that_there_are() -> None:
    """No table speaks of a verb that has gone."""
    assert {*NO_DRY_RUN, *NO_PROGRESS, *NEVER_FAILS} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_exit_codes(verb: str, run: Any) -> None:
    """--help shows an example and the exit codes, within 80 columns, and names only exit codes that there are."""
    shown = run(*verb.split(), "--help").stdout
    assert f"Example: hedgerow {verb}" in shown
    assert "Exit codes: 0 ok" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    named = re.findall(r"[Ee]xit code (\d+)", " ".join((VERBS[verb].help or "").split()))
    assert set(map(int, named)) <= set(ExitCode)


def test_the_exit_codes_are_documented() -> None:
    """Help and reference name the codes that there are, and the reference says of each what the help says."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    table = page.split("## Exit codes")[1].split("\n## ")[0]
    codes = {str(int(code)) for code in ExitCode}
    assert set(re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)) == codes
    assert set(re.findall(r"\b\d+\b", EXIT_CODES_HELP)) == codes
    assert {*re.findall(r"exit code(?: is)? (\d+)", page.lower())} <= codes


def test_every_verb_is_in_the_reference() -> None:
    """The page has each verb, with --dry-run and --quiet where it has them, and the exceptions are said there."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    said = {re.sub(r"\W+", " ", line).strip() for line in page.splitlines() if line.startswith("| `")}
    for verb in VERBS:
        cells = [verb, "yes" if verb in DRY else "no", "yes" if verb in LONG else "no"]
        assert any(line == " ".join(cells) or line.startswith(" ".join(cells) + " ") for line in said), cells


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_wrong_usage_is_told_as_json_too(verb: str, run: Any) -> None:
    """An option that there is not: exit code 2, words on stderr, and one object on stdout with --json."""
    told = run(*verb.split(), "--json", "--nonsense", code=2)
    assert told.json["error"]["exit_code"] == 2
    assert "--nonsense" in told.json["error"]["message"]
    assert "--nonsense" in told.stderr
    assert run(*verb.split(), "--nonsense", code=2).stdout == ""


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NEVER_FAILS])
def test_errors_are_told_as_json_too(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, about something that is not there: the object has the exit code, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEDGEROW_HOME", raising=False)
    words = [*verb.split(), "--json"]
    for each in VERBS[verb].params:
        is_argument = each.param_type_name == "argument"
        words += ["not there!"] if is_argument else [each.opts[0], "not_there.json"] if each.required else []
    told = CliRunner().invoke(app, words)
    error = json.loads(told.stdout)["error"]
    assert error["exit_code"] == told.exit_code
    assert told.exit_code in {ExitCode.USAGE, ExitCode.DATA, ExitCode.MODEL_FILE}
    assert told.stderr == f"hedgerow: {error['message']}\n"
    assert list(tmp_path.iterdir()) == []


# --- dry runs --------------------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """Two parties with a model, a proposal that is open, and a table with a model file."""

    folder: Path
    run_id: str
    open: str
    agreed: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Made once; every dry run leaves it as it was."""
    folder = tmp_path_factory.mktemp("scene")
    house = trained_homes(folder)
    bank, shop = house.homes["bank"], house.homes["shop"]
    waiting, agreed = (propose(read_job_file(folder / "job.toml"), bank) for _ in range(2))
    for home in (bank, shop):
        Papers(home).keep(waiting, [answer(waiting, bank.identity(), "accept")])
        Papers(home).keep(agreed, [answer(agreed, each.identity(), "accept") for each in (bank, shop)])
    write_succession(folder / "succession.json", shop.identity(), keys.make(folder / "next", "shop").certificate)
    (folder / "passphrase").write_text("a long passphrase\n")
    (folder / "passphrase").chmod(0o600)
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({"x": rng.normal(size=200), "y": rng.integers(0, 2, 200)}), folder / "rows.parquet")
    words = ["train", "--data", folder / "rows.parquet", "--label", "y", "--out", folder / "model.json", "--quiet"]
    trained = CliRunner().invoke(app, [str(word) for word in words])
    assert trained.exit_code == 0
    assert trained.output == ""
    place = bank.runs / waiting.run_id
    place.mkdir()
    with (place / "lock").open("w") as lock:  # as if the run was going on
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        yield Scene(folder, house.run_id, waiting.hash, agreed.hash)


DRY_RUNS = {
    "accept": "{open} --home shop",
    "cancel": "{open} --home bank",
    "export": "model.json --out other.json",
    "init": "carla --data rows.parquet --bind 127.0.0.1:7341 --passphrase-file passphrase",
    "keys encrypt": "--home bank --passphrase-file passphrase",
    "keys follow": "succession.json --home bank",
    "keys revoke": "shop --home bank",
    "keys rotate": "--home bank",
    "predict": "{run_id} customers --home shop",
    "propose": "job.toml --home bank",
    "refuse": "{open} --home shop",
    "resume": "{agreed} --home bank",
    "run": "{agreed} --home shop",
    "schema make": "rows.parquet --label y --out schema.json",
    "serve": "{run_id} --home shop",
    "simulate": "job.toml --data bank=bank/customers.parquet --data shop=shop/customers.parquet --label repaid "
    "--id customer",
    "train": "--data rows.parquet --label y --out new.json",
}


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All files and folders, with what is in them."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("verb", DRY)
def test_a_dry_run_writes_and_sends_nothing(verb: str, scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is as it was, no socket is opened, nobody is signalled; the result says that it was a dry run."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a dry run tried to reach somebody")

    monkeypatch.chdir(scene.folder)
    for owner, name in ((socket.socket, "connect"), (socket.socket, "bind"), (Node, "__enter__"), (os, "kill")):
        monkeypatch.setattr(owner, name, never)
    before = snapshot(scene.folder)
    words = [*verb.split(), *DRY_RUNS[verb].format(**scene._asdict()).split(), "--dry-run"]
    told = run(*words, "--json")
    assert told.json["dry_run"] is True
    assert told.json["command"] == verb
    shown = run(*words)
    assert "dry-run" in shown.stdout + shown.stderr or verb == "propose"
    assert snapshot(scene.folder) == before


def test_a_dry_run_leaves_budgets_alone(tmp_path: Path, run: Any) -> None:
    """Where the policy has limits, they are looked up, and nothing is written down about them."""
    homes = two_organisations(tmp_path, policy="[policy.budget]\nepsilon = 5.0\ndelta = 0.001")
    (tmp_path / "job.toml").write_text(
        job_text("vertical.noised_gradients", {**TREES, "epsilon": 1.0, "delta": 1e-6}, HOLDERS)
    )
    before = snapshot(tmp_path)
    words = ("propose", tmp_path / "job.toml", "--home", homes["bank"].path, "--dry-run")
    assert "What your policy has against it:\n- nothing" in run(*words).stdout
    assert snapshot(tmp_path) == before
    (tmp_path / "job.toml").write_text(
        job_text("vertical.noised_gradients", {**TREES, "epsilon": 9.0, "delta": 1e-6}, HOLDERS)
    )
    assert "epsilon" in run(*words, code=2).stderr


def test_a_dry_run_finds_what_the_real_one_would(scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not everything is fine in a dry run: the errors and exit codes are those of the verb."""
    monkeypatch.chdir(scene.folder)
    assert "there is a key already" in run("init", "bank", "--dry-run", code=3).stderr
    assert "is not paired" in run("keys", "revoke", "nobody", "--home", "bank", "--dry-run", code=8).stderr
    assert "is over" in run("run", scene.run_id, "--home", "bank", "--dry-run", code=2).stderr
    assert "needs --http" in run("serve", scene.run_id, "--home", "bank", "--dry-run", code=2).stderr
    everywhere = ("serve", scene.run_id, "--home", "bank", "--http", "0.0.0.0:80", "--dry-run")
    assert "loopback" in run(*everywhere, code=2).stderr
    follow = ("keys", "follow", "succession.json", "--home", "shop", "--dry-run")
    assert "not paired" in run(*follow, code=8).stderr


# --- progress --------------------------------------------------------------------------------------------------------

LINE = re.compile(r"^[\w. ]+: \d+ of \d+(, ETA [\w.]+)?", flags=re.MULTILINE)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines without waiting for a second to pass."""
    monkeypatch.setattr(telling, "SHORTEST", 0.0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run, and a trail of some length."""
    folder = tmp_path_factory.mktemp("recorded")
    rng = np.random.default_rng(0)
    X = {name: pa.table({f"{name}{k}": rng.normal(size=300) for k in range(2)}) for name in ("a", "b")}
    federation = Federation.vertical(X, labels=("a", rng.integers(0, 2, 300)))
    options = {"epsilon": 4.0, "delta": 1e-5, "n_estimators": 2, "max_depth": 2, "record": True}
    federation.fit("vertical.noised_gradients", **options).save(folder / "run")
    home = Home.create(folder / "bank", "bank")
    trail = Trail(home.audit, home.identity())
    for _ in range(130):
        trail.append("revoked", fingerprint="sha256:" + "0" * 64, peer="shop")
    return folder


WORK = {
    "attack": ("{recorded}/run",),
    "audit verify": ("{recorded}/bank/audit.jsonl",),
    "predict": ("{scene}/model.json", "{scene}/rows.parquet", "--out", "{out}/predicted.csv"),
    "train": ("--data", "{scene}/rows.parquet", "--label", "y", "--out", "{out}/m.json", "--set", "max_iter=20"),
}


SHOWN_ELSEWHERE = {
    "audit replay": "it needs what two parties hand over; tests/node/test_replay.py",
    "demo": "made of the same pieces; test_command.py plays it",
    "estimate": "it starts processes; tests/node/test_estimate.py",
    "rehearse": "it starts processes; tests/node/test_rehearse.py",
    "resume": "as run",
    "run": "it needs two parties; below",
    "simulate": "made of the same pieces; test_simulate.py",
    "warmup": "it may compile for minutes; test_warmup.py",
}


def test_all_long_work_is_looked_at() -> None:
    """No verb that shows progress is left out."""
    assert {*WORK, *SHOWN_ELSEWHERE} == set(LONG)


@pytest.mark.parametrize("verb", WORK)
@pytest.mark.usefixtures("at_once")
def test_progress_is_lines_in_a_pipe_and_nothing_when_quiet(
    verb: str, scene: Scene, recorded: Path, run: Any, tmp_path: Path
) -> None:
    """Plain lines that say how much of how much; none with --json, none with --quiet, which prints nothing at all."""
    places = {"scene": scene.folder, "recorded": recorded, "out": tmp_path}
    words = [*verb.split(), *(word.format(**places) for word in WORK[verb])]
    piped = run(*words)
    assert LINE.search(piped.stderr), piped.stderr
    assert "\x1b" not in piped.stderr
    assert not LINE.search(run(*words, "--json").stderr)
    assert run(*words, "--quiet").output == ""


@pytest.mark.usefixtures("at_once")
def test_a_run_between_parties_tells_its_progress(tmp_path: Path, run: Any) -> None:
    """One line per tree of the run, with the time left from the second one on."""
    homes = two_organisations(tmp_path)
    text = job_text("vertical.noised_gradients", {**TREES, "n_estimators": 5, "epsilon": "inf"}, HOLDERS)
    proposal = proposed(homes["bank"], text.replace('"inf"', "inf"))
    agreed_by_all(homes, proposal)

    def answer_it() -> None:
        with Node(homes["shop"], homes["shop"].identity()) as node:
            play(node, node.papers.get(proposal.hash), wait=60.0)

    shop = threading.Thread(target=answer_it)
    shop.start()
    told = run("run", "--home", homes["bank"].path)
    shop.join()
    assert "The run is over" in told.stdout
    lines = [line for line in told.stderr.splitlines() if LINE.match(line)]
    assert lines[0].endswith(", matching rows")
    lines = [line for line in lines if "matching" not in line]
    assert [line.split(",")[0] for line in lines] == [f"vertical.noised_gradients: {k} of 5" for k in range(1, 6)]
    assert all("ETA" in line for line in lines[1:])


def test_lines_are_few(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each tenth, not one for each step, and one a minute where a tenth takes longer."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with telling.progress("work") as on_progress:
        for done in range(1, 1001):
            now[0] += 2.0
            on_progress(done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1000 * 2 // 60 + 1
    assert lines[0] == "work: 30 of 1000, ETA 32m20s"
    assert lines[-1].startswith("work: 1000 of 1000")
    with telling.progress("work") as on_progress:
        for done in range(1, 1001):
            now[0] += 0.05
            on_progress(done, 1000)
    assert len(capsys.readouterr().err.splitlines()) == 10
