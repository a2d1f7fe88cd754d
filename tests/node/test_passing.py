"""What passes in a run, as its folder has it while it goes on, and as whoever watches a home sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter

import pytest

from hedgerow.errors import InvalidInput
from hedgerow.ledger import Kind, Ledger
from hedgerow.node import passing, watching
from hedgerow.node.manifest import books_of
from hedgerow.node.papers import Papers, answer
from hedgerow.node.passing import FILE, Followed, Passing
from hedgerow.node.watching import Watch
from twins.organisations import HOLDERS, TREES, attempted, job_text, proposed, trained, two_organisations

OUT, IN = Kind("test.out", 1, "what goes out", "masked"), Kind("test.in", 1, "what comes in", "in the clear")


@pytest.fixture
def quick(monkeypatch):
    """Lines come at once."""
    monkeypatch.setattr(passing, "SHORTEST", 0.01)


def until(found, seconds=20.0):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.usefixtures("quick")
def test_lines_add_up_to_the_ledger(tmp_path):
    """What was written meanwhile and at the end, all of it and nothing twice; words once for each kind."""
    books, path = {}, tmp_path / FILE
    with Passing(path, books, 2, lambda: (3, 7)):
        books["ledger"] = book = Ledger("bank")
        for _ in range(5):
            book.write("disclosed", "shop", OUT, 100, {"noise": 1})
            book.write("learned", "shop", IN, 10)
        until(lambda: path.stat().st_size > 300)
        books["more"] = more = Ledger("bank")
        more.write("disclosed", "mill", OUT, 1)
    lines = Followed(path).look()
    assert all((line.attempt, line.done, line.total) == (2, 3, 7) for line in lines)
    assert lines[-1].rounds == 5
    total, words = Counter(), Counter()
    for line in lines:
        for each in line.passed:
            total[each.direction, each.peer, each.message] += each.messages
            total["bytes"] += each.bytes
            assert (each.what, each.protection) == (
                ("what goes out", "masked") if each.message == "test.out" else IN[2:]
            )
    assert total == {
        ("disclosed", "shop", "test.out"): 5,
        ("learned", "shop", "test.in"): 5,
        ("disclosed", "mill", "test.out"): 1,
        "bytes": 551,
    }
    for line in path.read_text().splitlines():
        words.update(each["what"] for each in json.loads(line)["passed"] if each["what"])
    assert words == {"what goes out": 2, "what comes in": 1}  # of each peer
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_does_not_stop_a_run(tmp_path):
    """A folder that is not there, and a link in place of the file: the work goes on."""
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "gone" / FILE, tmp_path / FILE):
        with Passing(path, {}, 1, lambda: (0, 0)):
            pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("quick")
def test_half_a_line_waits_for_its_end(tmp_path):
    """A reader takes whole lines, and goes on where it was."""
    path = tmp_path / FILE
    with Passing(path, {}, 1, lambda: (0, 0)):
        until(lambda: path.stat().st_size > 0)
    whole = path.read_bytes()
    (one, *_) = whole.splitlines(keepends=True)
    path.write_bytes(one + one[:20])
    followed = Followed(path)
    assert len(followed.look()) == 1
    assert followed.look() == []
    path.write_bytes(one + one)
    assert len(followed.look()) == 1
    path.write_bytes(one)
    with pytest.raises(InvalidInput, match="shorter than it was"):
        followed.look()
    assert Followed(tmp_path / "nothing").look() == []


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """A bank and a shop, a run that was broken off and resumed, and a proposal that the shop has not answered."""
    found = two_organisations(tmp_path_factory.mktemp("homes"), policy="[policy.budget]\nepsilon = 50.0\ndelta = 1e-5")
    text = job_text("vertical.noised_gradients", {**TREES, "epsilon": 4.0, "delta": 1e-6}, HOLDERS)
    proposal = proposed(found["bank"], text)
    from twins.organisations import agreed_by_all

    agreed_by_all(found, proposal)
    attempted(found, proposal, stop_after=1)
    for outcome in attempted(found, proposal, resume=True).values():
        assert not isinstance(outcome, Exception), outcome
    waiting = proposed(found["bank"], text)
    Papers(found["shop"]).keep(waiting, [answer(waiting, found["bank"].identity(), "accept")])
    return found, proposal, waiting


def test_a_run_leaves_what_passed(homes):
    """Over both attempts it is what the ledgers say, kind by kind, to the byte."""
    found, proposal, _ = homes
    for home in found.values():
        expected = Counter()
        for book in books_of(home, proposal.run_id):
            for entry in book.summary():
                expected[entry["direction"], entry["peer"], entry["message"], "n"] += entry["messages"]
                expected[entry["direction"], entry["peer"], entry["message"], "b"] += entry["bytes"]
        counted = Counter()
        lines = Followed(home.runs / proposal.run_id / FILE).look()
        for each in (each for line in lines for each in line.passed):
            counted[each.direction, each.peer, each.message, "n"] += each.messages
            counted[each.direction, each.peer, each.message, "b"] += each.bytes
        assert counted == expected
        assert {line.attempt for line in lines} == {1, 2}
        assert (lines[-1].done, lines[-1].total) == ((3, 3) if home.name == "bank" else (0, 0))  # who counts them


def test_a_home_that_is_watched(homes):
    """Whose it is, what is open in plain words with its commands, budgets, the run; then nothing until it changes."""
    found, proposal, waiting = homes
    watch = Watch(found["shop"])
    events = {event["event"]: event for event in watch.look()}
    assert events["party"] == {"event": "party", "party": "shop"}
    (told,) = events["proposals"]["proposals"]
    assert told["hash"] == waiting.hash
    assert told["commands"] == [f"hedgerow accept {waiting.hash[:12]}", f"hedgerow refuse {waiting.hash[:12]}"]
    assert "What would leave your house, beside what is public:" in told["words"]
    run = events["run"]
    assert (run["run_id"], run["state"], run["attempt"]) == (proposal.run_id, "over", 2)
    assert run["sent"]["bytes"] == sum(kind["bytes"] for kind in run["kinds"] if kind["direction"] == "disclosed") > 0
    assert watch.look() == []
    assert {event["event"] for event in watch.now()} == {"party", "proposals", "budgets", "run", "passed"}
    (limit,) = next(each for each in Watch(found["bank"]).look() if each["event"] == "budgets")["budgets"]
    assert 0.0 < limit["spent_epsilon"] <= limit["epsilon"] == 50.0


def test_nothing_of_a_row_is_in_any_event(homes):
    """No id and no number of a table, in the words of proposals or anywhere else."""
    import pyarrow.parquet as pq

    found, proposal, _ = homes
    for home in found.values():
        told = json.dumps([*Watch(home).look(), *Watch(home, proposal.run_id).look()])
        numbers = set(re.findall(r"(?<![\w.])-?\d+\.\d+(?![\w.])|\b[cz]\d+\b", told))
        table = pq.read_table(home.path / "customers.parquet")
        cells = {str(value) for name in table.column_names for value in table.column(name).to_pylist()}
        assert not {cell for cell in cells if len(cell) > 4} & numbers


def test_sentences_of_errors_stay_at_home(homes, tmp_path):
    """Of a failed run the kind of error is told; its sentence may quote data."""
    import shutil

    from hedgerow.node.home import Home

    found, proposal, _ = homes
    home = Home(shutil.copytree(found["bank"].path, tmp_path / "bank"))
    folder = home.runs / proposal.run_id
    (folder / "run.json").unlink()
    (folder / "failed.json").write_text(
        json.dumps({"error": "InvalidInput", "message": "row 7 has c0007", "at": "now"})
    )
    told = json.dumps(Watch(home).look())
    assert '"state": "failed", "error": "InvalidInput"' in told
    assert "c0007" not in told


def test_how_a_run_stands(homes, tmp_path, monkeypatch):
    """Running while its process lives and writes, silent if it does not write, broken off without a process."""
    import shutil

    from hedgerow.node.home import Home

    found, proposal, _ = homes
    home = Home(shutil.copytree(found["bank"].path, tmp_path / "bank"))
    folder = home.runs / proposal.run_id
    (folder / "run.json").unlink()

    def state():
        return next(event["state"] for event in Watch(home).look() if event["event"] == "run")

    last = json.loads((folder / FILE).read_text().splitlines()[-1])["at"]
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (folder / "lock").write_bytes(gone.stdout.strip())
    assert state() == "broken off"
    (folder / "lock").write_text(str(os.getpid()))
    monkeypatch.setattr(watching.time, "time", lambda: last + 1.0)
    assert state() == "running"
    monkeypatch.setattr(watching.time, "time", lambda: last + 60.0)
    assert state() == "silent"


def test_a_run_that_begins_later_is_taken_up(tmp_path):
    """Without a run there is one event that says so; the one that is begun last is followed."""
    homes = two_organisations(tmp_path)
    watch = Watch(homes["bank"])
    assert [event["state"] for event in watch.look() if event["event"] == "run"] == ["none"]
    text = job_text("vertical.noised_gradients", {**TREES, "epsilon": 4.0, "delta": 1e-6}, HOLDERS)
    proposal = proposed(homes["bank"], text)
    trained(homes, proposal)
    events = watch.look()
    (run,) = [event for event in events if event["event"] == "run"]
    assert (run["run_id"], run["state"]) == (proposal.run_id, "over")
    assert sum(len(event["lines"]) for event in events if event["event"] == "passed") >= len(run["kinds"])
