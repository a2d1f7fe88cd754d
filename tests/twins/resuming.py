"""Runs that are broken off, and taken up again as their next attempt.

    end = resumed(PROTOCOL, job, data, [Broken("ben", passing=40), Broken("anna", keeping=3)])
    end.results["anna"], end.attempts, end.checkpoints["ben"].trees

A party that breaks is gone without a word, as if its process had been killed; the others stop because of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.errors import PeerFailed, PeerLost
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.testing.transcripts import Played, Vanished, Vanishing, play
from hedgerow.transport.transcripts import Recording


@dataclass(frozen=True)
class Broken:
    """Who vanishes, and when: before a frame of its own passes or after one of a peer, or as it keeps a state.

    Numbers count from 1 in one attempt; `done` says whether the state is kept before the party is gone.
    """

    party: str
    passing: int = 0
    keeping: int = 0
    done: bool = True


class BreakingCheckpoints(Checkpoints):
    """Checkpoints around others, whose party vanishes at a given call of `keep`; all calls are counted."""

    def __init__(self, inner: Checkpoints) -> None:
        super().__init__()
        self.inner, self.numbers = inner, []
        self.at: Broken | None = None

    @property
    def trees(self) -> tuple[int, ...]:
        """Those of the inner ones."""
        return self.inner.trees

    def load(self, n_trees, kind):
        """From the inner ones."""
        return self.inner.load(n_trees, kind)

    def keep(self, n_trees, state):
        """Into the inner ones, unless the party is gone before."""
        self.numbers.append(n_trees)
        breaks = self.at is not None and self.at.keeping == len(self.numbers)
        if breaks and not self.at.done:
            raise Vanished
        self.inner.keep(n_trees, state)
        if breaks:
            raise Vanished


@dataclass
class Resumed:
    """What became of a run, attempt by attempt; the last one came to its end."""

    attempts: list[Played] = field(default_factory=list)
    checkpoints: dict[str, Checkpoints] = field(default_factory=dict)
    numbers: list[dict[str, list[int]]] = field(default_factory=list)  # of each attempt: what each party kept

    @property
    def results(self) -> dict[str, Any]:
        """Of the last attempt."""
        return self.attempts[-1].results

    def messages(self, party, kind, direction):
        """All messages of a kind that a party sent or received, over all attempts."""
        return [m for each in self.attempts for m in each.recording(party).messages(kind, direction)]


def _vanishing(at: Broken):
    count = [0]

    def when(_direction, _frame):
        count[0] += 1
        return count[0] == at.passing

    return lambda endpoint: Vanishing(endpoint, when)


def resumed(
    protocol, job, data, breaks, checkpoints=None, *, attempts_from=1, only=None, around=None, **how
) -> Resumed:
    """Play the job; each of `breaks` breaks one attempt off, and what follows is the next one.

    `around` wraps endpoints in the first attempt. Parties that the others went on without need no result. With `only`
    there are no more attempts than this, whatever becomes of them.
    A break that lies behind the end of an attempt does not happen, and then that attempt is the last.
    """
    names = protocol.parties(job)
    end = Resumed(checkpoints=dict(checkpoints or {name: Checkpoints() for name in names}))
    for attempt, at in enumerate([*breaks, None], start=attempts_from):
        breaking = {name: BreakingCheckpoints(kept) for name, kept in end.checkpoints.items()}
        wraps = dict.fromkeys(names, Recording) | (around or {} if attempt == attempts_from else {})
        if at is not None and at.passing:
            wraps[at.party] = _vanishing(at)
        elif at is not None:
            breaking[at.party].at = at
        played = play(protocol, job, data, around=wraps, checkpoints=breaking, attempt=attempt, **how)
        end.attempts.append(played)
        end.numbers.append({name: kept.numbers for name, kept in breaking.items()})
        given_up = getattr(played.results.get(names[0]), "meta", {}).get("lost_owners", {})
        if set(played.results) | set(given_up) == set(names) or len(end.attempts) == only:
            return end
        others = {name: error for name, error in played.errors.items() if not isinstance(error, PeerLost | PeerFailed)}
        if at is None or others:
            raise next(iter((others or played.errors).values()))
    raise AssertionError("unreachable")


def frames_of(played: Played, party: str) -> int:
    """How many frames passed a party's endpoint, both ways."""
    return len(played.recording(party).passed)


def some_breaks(protocol, job, calm: Resumed, seed: int, n: int) -> list[Broken]:
    """Random points at random parties, as the run that was not broken off shows where there are any."""
    rng, names = np.random.default_rng(seed), list(protocol.parties(job))
    breaks = []
    for _ in range(n):
        party = names[rng.integers(len(names))]
        n_frames, n_kept = frames_of(calm.attempts[0], party), len(calm.numbers[0][party])
        if n_kept and rng.random() < 0.3:
            breaks.append(Broken(party, keeping=int(rng.integers(1, n_kept + 1)), done=bool(rng.integers(2))))
        else:
            breaks.append(Broken(party, passing=int(rng.integers(1, n_frames + 1))))
    return breaks
