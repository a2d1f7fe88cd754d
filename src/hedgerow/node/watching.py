"""A party's home as somebody sees it who watches: what passes in its run, how far it is, budgets, open proposals.

    watch = Watch(home)              # or Watch(home, "3f9a"), for one run
    watch.look()                     # events since the last look; the first time, all there is
    watch.now()                      # all there is, for whoever comes later

An event is an object that JSON can hold, with the name of its kind under "event":

    party       whose home it is
    proposals   those that are open, in plain words, each with the commands that answer it
    budgets     what is spent of each limit
    run         which run, how it stands, how far it is, how much has passed of which kind of message
    passed      what has passed since the last one of these

It comes from the party's own files; nobody is asked and nothing is written. There are names of parties, of messages and
of columns in it, and numbers; nothing out of a row. Sentences of errors may quote data, and stay in the home.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.errors import HedgerowError
from hedgerow.node import passing
from hedgerow.node.budgets import to_look_at
from hedgerow.node.documents import moment, read_bounded
from hedgerow.node.papers import Paper, Papers
from hedgerow.node.passing import Followed, Line
from hedgerow.node.words import view
from hedgerow.runtime.saved_files import damage_told, read_object

if TYPE_CHECKING:
    from hedgerow.node.home import Home

QUIET_SECONDS = 30.0
"""After so long without a line, a run is said to be silent."""
LAST_LINES = 60
"""Lines of what has passed that whoever comes later is shown."""
_MOST_PID = 20

Event = dict[str, Any]


class _Run:
    """One run, followed."""

    def __init__(self, folder: Path, protocol: str) -> None:
        self.folder, self._protocol = folder, protocol
        self._followed = Followed(folder / passing.FILE)
        self._kinds: dict[tuple[str, str, str], Event] = {}
        self._first: Line | None = None  # of this attempt
        self._pace: Line | None = None  # where the steps began that are being done
        self._last: Line | None = None
        self.recent: deque[Event] = deque(maxlen=LAST_LINES)

    def look(self) -> list[Event]:
        """What has passed since the last look."""
        new = []
        for line in self._followed.look():
            self._take(line)
            lines = [vars(each) for each in line.passed]
            if lines:
                new.append({"event": "passed", "run_id": self.folder.name, "at": line.at, "lines": lines})
        self.recent += new
        return new

    def _take(self, line: Line) -> None:
        if self._first is None or line.attempt != self._first.attempt:
            self._first = self._pace = line
        if self._pace is None or line.total != self._pace.total or line.done < self._pace.done:
            self._pace = line
        self._last = line
        for each in line.passed:
            key = (each.direction, each.peer, each.message)
            kind = self._kinds.setdefault(key, {**vars(each), "messages": 0, "bytes": 0, "noised": 0})
            for name in ("messages", "bytes", "noised"):
                kind[name] += getattr(each, name)

    def event(self) -> Event:
        """How it stands."""
        state, error = self._state()
        line, totals = self._last, {"disclosed": [0, 0], "learned": [0, 0]}
        for kind in self._kinds.values():
            total = totals[kind["direction"]]
            total[0] += kind["messages"]
            total[1] += kind["bytes"]
        return {
            "event": "run",
            "run_id": self.folder.name,
            "protocol": self._protocol,
            "state": state,
            "error": error,
            "attempt": None if line is None else line.attempt,
            "done": 0 if line is None else line.done,
            "total": 0 if line is None else line.total,
            "rounds": 0 if line is None else line.rounds,
            "began": None if self._first is None else self._first.at,
            "last_word": None if line is None else line.at,
            "seconds_left": self._seconds_left() if state == "running" else None,
            "sent": dict(zip(("messages", "bytes"), totals["disclosed"], strict=True)),
            "received": dict(zip(("messages", "bytes"), totals["learned"], strict=True)),
            "kinds": list(self._kinds.values()),
        }

    def _seconds_left(self) -> float | None:
        first, last = self._pace, self._last
        if first is None or last is None or last.done <= first.done:
            return None
        return round((last.total - last.done) * (last.at - first.at) / (last.done - first.done), 1)

    def _state(self) -> tuple[str, str | None]:
        """In a word, and the kind of error that ended it, whose sentence is not told here."""
        if (self.folder / "run.json").exists():
            return "over", None
        failed = self.folder / "failed.json"
        if failed.exists():
            with damage_told(f"{failed} is damaged"):
                return "failed", str(read_object(failed).get("error", "an error"))
        if self._last is None:
            return "not begun", None
        if not _is_alive(self.folder / "lock"):
            return "broken off", None
        return ("running" if time.time() - self._last.at < QUIET_SECONDS else "silent"), None


def _is_alive(lock: Path) -> bool:
    """Whether the process that wrote its number there is one still. The lock itself is left alone: a run tries it."""
    if not lock.exists():
        return False
    told = read_bounded(lock, _MOST_PID)
    try:
        os.kill(int(told), 0) if told.isdigit() else None
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return told.isdigit()


class Watch:
    """A home that is watched, all runs or one: that which was begun last."""

    def __init__(self, home: Home, start: str | None = None) -> None:
        self._home, self._papers = home, Papers(home)
        self._wanted = None if start is None else self._papers.find(start).proposal.run_id
        self._run: _Run | None = None
        self._marks: dict[str, Any] = {}  # what files looked like when they were last read
        self._current: dict[str, Event] = {}

    def look(self) -> list[Event]:
        """What has changed since the last look."""
        new = [*self._changed("party", {"event": "party", "party": self._home.name})]
        if self._has_changed("proposals", self._mark_of_papers()):
            new += self._changed("proposals", self._proposals())
        if self._has_changed("budgets", _stamp(self._home.budget)):
            new += self._changed("budgets", self._budgets())
        self._choose()
        if self._run is None:
            return [*new, *self._changed("run", {"event": "run", "run_id": None, "state": "none", "kinds": []})]
        passed = self._run.look()
        return [*new, *self._changed("run", self._run.event()), *passed]

    def now(self) -> list[Event]:
        """All there is, as of the last look."""
        return [*self._current.values(), *([] if self._run is None else self._run.recent)]

    def _changed(self, name: str, event: Event) -> list[Event]:
        if self._current.get(name) == event:
            return []
        self._current[name] = event
        return [event]

    def _has_changed(self, name: str, mark: Any) -> bool:
        if self._marks.get(name, self) == mark:
            return False
        self._marks[name] = mark
        return True

    # --- the run -----------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """The run that is wanted, or the one that was begun last."""
        wanted = self._wanted
        if wanted is None:
            begun = [(_stamp(path), path.parent.name) for path in self._home.runs.glob("*/attempt.json")]
            wanted = max(begun)[1] if begun else None
        if wanted is not None and (self._run is None or self._run.folder.name != wanted):
            proposal = self._papers.find(wanted).proposal
            self._run = _Run(self._home.runs / wanted, proposal.protocol)

    # --- papers and budgets ------------------------------------------------------------------------------------------

    def _mark_of_papers(self) -> Any:
        """Changes with every paper, every answer and every run that ends."""
        folders = sorted(self._home.proposals.glob("*/answers"))
        return [(path.parent.name, _stamp(path)) for path in folders], sorted(
            path.parent.name for path in self._home.runs.glob("*/run.json")
        )

    def _proposals(self) -> Event:
        papers = [paper for paper in self._papers.all() if not paper.refused_by and self._may_run(paper)]
        return {"event": "proposals", "proposals": [self._told(paper) for paper in papers]}

    def _may_run(self, paper: Paper) -> bool:
        """Whether it has neither run nor expired."""
        is_late = moment(paper.proposal.expires, "expires") < dt.datetime.now(dt.UTC)
        return not is_late and not (self._home.runs / paper.proposal.run_id / "run.json").exists()

    def _told(self, paper: Paper) -> Event:
        """In plain words. Accepting stays a command, which is typed by a person with the key."""
        proposal, name = paper.proposal, paper.proposal.hash[:12]
        is_asked = self._home.name in paper.missing
        told: Event = {
            "hash": proposal.hash,
            "run_id": proposal.run_id,
            "protocol": proposal.protocol,
            "proposed_by": proposal.proposed_by,
            "expires": proposal.expires,
            "state": paper.state,
            "is_asked": is_asked,
            "words": None,
            "commands": [],
        }
        if is_asked:
            told["commands"] = [f"hedgerow accept {name}", f"hedgerow refuse {name}"]
            try:
                told["words"] = view(proposal, self._home).lines()
            except HedgerowError:  # its sentence may quote what is in a file of data
                told["words"] = [f"It cannot be shown here; hedgerow inspect {name} says why."]
        elif paper.is_agreed:
            told["commands"] = [f"hedgerow run {name}"]
        return told

    def _budgets(self) -> Event:
        with to_look_at(self._home.budget, self._home.party_file.policy) as budgets:
            return {"event": "budgets", "budgets": [_finite(state._asdict()) for state in budgets.states()]}


def _finite(state: Event) -> Event:
    """Without what JSON lacks: a limit that is infinite is null."""
    return {name: None if value in (math.inf, -math.inf) else value for name, value in state.items()}


def _stamp(path: Path) -> int:
    """When it was last written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
