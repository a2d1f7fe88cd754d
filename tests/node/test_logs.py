"""Log lines of a node: JSON on request, one object per line, and nothing of what is in a row."""

from __future__ import annotations

import json
import logging

import pytest

from hedgerow.cli.unlocking import unlocked
from hedgerow.node import logs
from hedgerow.node.home import Home

LOGGER = logging.getLogger("hedgerow")


@pytest.fixture(autouse=True)
def _as_it_was():
    """The logger belongs to the whole process."""
    handlers, level = list(LOGGER.handlers), LOGGER.level
    yield
    LOGGER.handlers[:], LOGGER.level = handlers, level


@pytest.fixture
def as_json(bank):
    """The bank's home, with log = "json"."""
    bank.party_toml.write_text('name = "bank"\nlog = "json"\n')
    return Home(bank.path)


def lines(capsys) -> list[str]:
    """What came to stderr."""
    return capsys.readouterr().err.splitlines()


def test_a_line_is_one_object(as_json, capsys):
    """Time, level, party and message, in that order; a line break within a message makes no second line."""
    logs.start(as_json)
    LOGGER.warning("%s was lost;\ngoing on", "shop")
    (line,) = lines(capsys)
    told = json.loads(line)
    assert list(told) == ["time", "level", "party", "message"]
    assert told["level"] == "warning"
    assert told["party"] == "bank"
    assert told["message"] == "shop was lost;\ngoing on"
    assert told["time"].endswith("Z")


def test_a_run_is_named_once_it_is_known(as_json, capsys):
    """Lines before it have no run_id, lines after it have."""
    logs.start(as_json)
    LOGGER.info("before")
    logs.of_run("3f9a")
    LOGGER.info("after")
    before, after = map(json.loads, lines(capsys))
    assert "run_id" not in before
    assert after["run_id"] == "3f9a"


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_told_by_its_class(bank, form, capsys):
    """Sentence and traceback may quote a cell, so neither gets into the log."""
    bank.party_toml.write_text(f'name = "bank"\nlog = "{form}"\n')
    logs.start(Home(bank.path))
    try:
        float("Mrs Smith")
    except ValueError:
        LOGGER.exception("telling the peers failed")
    (line,) = lines(capsys)
    assert "Smith" not in line
    assert "telling the peers failed (ValueError)" in line


def test_text_is_the_default_and_shows_warnings_only(bank, capsys):
    """What is merely good to know would stand between the lines that somebody reads."""
    logs.start(bank)
    LOGGER.info("connected with shop")
    LOGGER.warning("shop was lost")
    assert lines(capsys) == ["hedgerow: warning: shop was lost"]


def test_the_last_start_counts(as_json, capsys):
    """Two verbs in one process write every line once."""
    logs.start(as_json)
    logs.start(as_json)
    LOGGER.warning("once")
    assert len(lines(capsys)) == 1


def test_whoever_opens_the_key_logs(as_json, capsys):
    """Every verb that talks to others does, and so needs no call of its own."""
    unlocked(as_json, None)
    LOGGER.info("connected with shop")
    assert json.loads(lines(capsys)[0])["message"] == "connected with shop"


def test_a_closed_stderr_ends_nothing(as_json, monkeypatch):
    """A run goes on if nobody reads its log any more."""
    logs.start(as_json)

    class Closed:
        def write(self, _text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Closed())
    LOGGER.warning("to nobody")
