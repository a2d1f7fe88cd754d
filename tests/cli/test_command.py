"""The command as the shell sees it: version, help, demo, exit codes, interruption, internal errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

import hedgerow
from hedgerow.cli import demo
from hedgerow.cli.outcome import one_line_errors, whole_file
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime import running
from twins.pages import parsed

COMMAND = [sys.executable, "-m", "hedgerow.cli"]
PACKAGE = str(Path(hedgerow.__file__).parents[1])  # also where the package is importable, but not installed


def environment(**more: str) -> dict[str, str]:
    """What this process has, with the package under test first."""
    return {**os.environ, "PYTHONPATH": PACKAGE, **more}


def shell(*args: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(),
        **more,
    )


def test_the_version_is_told(run: Any) -> None:
    """--version is one line; with --json come python, libraries, cores and the state of every kernel."""
    assert run("--version").stdout == f"hedgerow {hedgerow.__version__}\n"
    told = run("--version", "--json").json
    assert told["version"] == hedgerow.__version__
    assert {"python", "numba", "numpy", "cores", "kernels_cached"} <= set(told)
    assert set(told["kernels"].values()) <= {"cached", "compiled", "not compiled yet"}
    assert any(name.startswith("engine.histogram.") for name in told["kernels"])


def test_help_and_version_load_nothing_heavy() -> None:
    """Answering --help takes neither numba nor scikit-learn nor arrow."""
    code = (
        "import sys; from hedgerow.cli import app\n"
        "try: app(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numba', 'sklearn', 'pyarrow', 'pandas', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment()
    )
    assert done.stdout.splitlines()[-1] == "[]"


BETWEEN_PROCESSES = {
    "horizontal.secure_sum": 2,
    "vertical.bucket_rr": 2,
    "vertical.scoring": 5,
    "vertical.noised_gradients": 1,
    "vertical.homomorphic": 1,
    "vertical.masked_gradients": 1,
    "vertical.secret_shared": 1,
    "vertical.private_histograms": 1,
    "vertical.closed_scoring": 1,
    "vertical.mp_fedxgb": 1,
    "vertical.aligning": 1,
}
"""How often the demo runs each protocol between processes."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the demo has asked for processes. It gets them for each protocol's last run; the others are in memory.

    That both give the same is shown elsewhere: for these sizes in tutorials/three_owners.md, for small ones in
    test_local_processes.py and test_vertical_model.py.
    """
    so_far: Counter[str] = Counter()
    in_processes = local_processes.run_in_processes

    def run(protocol: Any, *how: Any, records: Any, budgets: Any, **_attempt: Any) -> Any:
        so_far[protocol.name] += 1
        if so_far[protocol.name] == BETWEEN_PROCESSES[protocol.name]:
            return in_processes(protocol, *how, records=records, budgets=budgets)
        job, data, link, deadline, on_progress = how
        played = {"link": link, "deadline": deadline, "on_progress": on_progress}
        return running.run_together(protocol, job, data, **played, records=records, budgets=budgets)

    monkeypatch.setattr(local_processes, "run_in_processes", run)
    return so_far


_OF = {"bank": "age", "registry": "race", "employer": "occupation"}


def _check_reports(reports: dict[str, str], folder: Path) -> None:
    """Each party's is there, with what it may know."""
    assert list(reports) == ["bank", "registry", "employer"]
    for party, address in reports.items():
        page = (folder / f"{party}.html").read_text()
        assert address == (folder / f"{party}.html").resolve().as_uri()
        assert ("ROC curve" in page) == (party == "bank")
        columns = parsed(page).by_id("model").text  # the schema, which is public, is in the settings
        assert [name for name in ("age", "race", "occupation") if name in columns] == [_OF[party]]


def _check_words(run: Any, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same result once more, for people."""
    monkeypatch.setattr(demo, "run", lambda **_: told)
    shown = run("demo").stdout
    assert "hedgerow demo --statements" in shown
    assert all(f"  {address}\n" in shown for address in _reported(told).values())
    shown = run("demo", "--statements").stdout
    assert "Trained on 32,561 people with 14 columns, scored on 16,281 others" in shown
    assert "In one table nothing is protected" in shown
    assert "The model is not differentially private" in shown
    assert "800 of 1,000 customers are common to all three" in shown
    assert "vertical.noised_gradients" in shown
    assert "differential privacy with epsilon = 1 and delta = 1e-5" in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines() if "file://" not in line) <= 80

    few = [entry for entry in told["protocols"] if entry["protocol"] not in (*demo.BASELINES, *demo.PUBLISHED)]
    monkeypatch.setattr(demo, "run", lambda **_: {**told, "protocols": few})
    assert len(run("demo").stdout.splitlines()) <= 48  # two screens of a terminal


def _reported(told: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = told["reports"][demo.REPORTED]
    return found


@pytest.mark.long
def test_the_demo_reads_well(run: Any, asked: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In 80 columns: what ran, how good it is, every protocol between real processes, and what is not protected."""
    monkeypatch.setitem(demo.PARAMS, "max_iter", 20)
    monkeypatch.setitem(demo.VERTICAL_PARAMS, "max_iter", 20)
    told = run("demo", "--all", "--out", tmp_path, "--json").json
    assert told["rows"] == {"train": 32_561, "test": 16_281}
    assert told["scores"]["test"]["auc"] > 0.9
    assert sum(told["importances"].values()) == pytest.approx(1.0)
    *central, plain, private = told["protocols"][:6]
    exact, buckets, gradients, encrypted, masked, on_shares, both_sides, published = told["protocols"][6:]
    assert [entry["protocol"] for entry in central] == [
        "central.gaussian",
        "central.dpboost",
        "central.parallel",
        "central.sequential",
    ]
    assert central[0]["scores"]["test"]["auc"] > 0.9
    assert all(entry["privacy"]["epsilon"] <= 1.0 and entry["parties"] == [] for entry in central)
    assert plain["same_trees_as_pooled"] is True
    assert plain["rounds"]["training"] == 20 * 5
    assert private["scores"]["test"]["auc"] > 0.89
    assert private["statement"]["privacy"]["epsilon"] <= 1.0
    assert all(entry["parties"] == ["coordinator", "north", "east", "south"] for entry in (plain, private))
    assert exact["same_trees_as_pooled"] is True
    assert [entry["protocol"] for entry in (exact, buckets)] == ["vertical.bucket_rr"] * 2
    assert buckets["scores"]["test"]["auc"] > 0.9
    assert buckets["statement"]["per_element"] == 4.0
    assert gradients["protocol"] == "vertical.noised_gradients"
    assert gradients["scores"]["test"]["auc"] > 0.85
    assert all(entry["parties"] == ["bank", "registry", "employer"] for entry in (exact, buckets, gradients))
    assert (encrypted["protocol"], encrypted["same_trees_as_pooled"]) == ("vertical.homomorphic", True)
    assert masked["protocol"] == "vertical.masked_gradients"
    assert masked["statement"]["stamp"].startswith("accepted known leaks: every feature holder")
    assert on_shares["protocol"] == "vertical.secret_shared"
    assert on_shares["scores"]["test"]["auc"] > 0.88
    assert on_shares["parties"] == ["bank", "registry", "employer", "dealer"]
    assert both_sides["protocol"] == "vertical.private_histograms"
    assert both_sides["statement"]["privacy"]["epsilon"] <= 4.0
    assert both_sides["scores"]["test"]["auc"] > 0.8
    assert published["protocol"] == "vertical.mp_fedxgb"
    assert published["statement"]["stamp"].startswith("accepted known leaks")
    assert published["parties"] == on_shares["parties"]
    assert told["alignment"]["common"] == 800
    assert asked == BETWEEN_PROCESSES
    _check_reports(_reported(told), tmp_path)
    _check_words(run, told, monkeypatch)


def test_the_demo_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps are counted, what few need is left out of them, and in a pipe each has a line."""
    steps: list[str] = []

    def stop(self: Any, what: str) -> Any:
        steps.append(f"{what} of {self.total}")
        raise KeyboardInterrupt

    for everything, total in ((False, 14), (True, 18)):
        with monkeypatch.context() as patch:
            patch.setattr(demo._Steps, "next", stop)
            with pytest.raises(KeyboardInterrupt):
                demo.run(everything=everything)
        assert steps.pop().endswith(f" of {total}")
    with demo._Steps(14).next("one table"):
        pass
    assert capsys.readouterr().err == "step 1 of 14: one table\n"


def test_the_shell_gets_the_exit_codes(people: Path) -> None:
    """In a real process: results on stdout, one line on stderr, the documented codes."""
    done = shell("train", "--data", "train.csv", "--label", "answer", "--set", "max_iter=2", "--json", cwd=people)
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["iterations"] == 2
    assert (people / "model.json").exists()
    assert shell("train", "--nonsense").returncode == 2
    wrong = shell("predict", "model.json", "nothing.csv", "--out", "x.csv", cwd=people)
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert wrong.stderr == "hedgerow: nothing.csv: there is no such file\n"


def test_an_interrupt_inside_compiled_code_is_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Python tells Ctrl-C while a kernel hands over its result as a SystemError that it caused."""

    def interrupted() -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    with pytest.raises(typer.Exit) as ended, one_line_errors(as_json=False):
        interrupted()
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "hedgerow: interrupted; no output was written\n"


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_an_interrupt_leaves_no_file(people: Path) -> None:
    """Ctrl-C in the middle of training ends with 130, one line, and nothing half-written."""
    before = sorted(people.iterdir())
    args = ["train", "--data", "train.csv", "--label", "answer", "--set", "max_iter=1000000", "--verbose"]
    process = subprocess.Popen(
        [*COMMAND, *args], cwd=people, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[0] train-logloss:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "hedgerow: interrupted; no output was written"
    assert "Traceback" not in err
    assert sorted(people.iterdir()) == before


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """What fails half-way leaves the old file as it was and nothing beside it."""
    path = tmp_path / "old.txt"
    path.write_text("old", encoding="utf-8")

    def interrupted() -> None:
        with whole_file(path) as partial:
            partial.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
    with whole_file(path) as partial:
        partial.write_text("new", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_bug_is_called_one(run: Any, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is not one of ours gives exit code 70 and one line; the traceback comes on request."""

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the roof\nis on fire")

    monkeypatch.setattr("hedgerow.estimators.plain.BoostedTreesClassifier.fit", broken)
    args = ("train", "--data", people / "train.csv", "--label", "answer")
    told = run(*args, code=70)
    assert (
        told.stderr
        == "hedgerow: internal error, RuntimeError: the roof is on fire (HEDGEROW_TRACEBACK=1 shows where)\n"
    )
    monkeypatch.setenv("HEDGEROW_TRACEBACK", "1")
    assert "Traceback" in run(*args, code=70).stderr


def test_the_bar_is_drawn_on_a_terminal_only(run: Any, people: Path) -> None:
    """Redirected stderr has no bar; a terminal has one, with the time left and the metric of the validation rows."""
    args = (
        "train",
        "--data",
        people / "train.csv",
        "--label",
        "answer",
        "--valid",
        people / "valid.csv",
        "--set",
        "max_iter=3",
    )
    args += ("--out", people / "m.json")
    assert "\x1b" not in run(*args).stderr
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, args)], stderr=follower, stdout=subprocess.DEVNULL, env=environment(TERM="xterm")
    )
    os.close(follower)
    drawn = b""
    try:
        while chunk := os.read(leader, 4096):
            drawn += chunk
    except OSError:  # Linux's way of saying that the other end has closed
        pass
    os.close(leader)
    assert process.wait(timeout=60) == 0
    assert re.search(r"3/3 +\d\d:\d\d", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.decode()))
    assert "valid-logloss" in drawn.decode()
