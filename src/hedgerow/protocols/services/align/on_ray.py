"""A party's multiplications on a Ray cluster of its own.

    party    --digests or points, some at a time-->  actor      the actors have the party's key for this run,
    party    <--products---------------------------  actor      and answer in any order; the party puts them in place

Who learns what does not change. Actors are a part of their party, as its threads are: they talk to it alone. Sets still
travel whole, shuffled by the party itself, in blocks of the size that all agreed on. How a block is divided among
actors, and among how many, is told to nobody; peers see the same messages as from a party without a cluster.

What the cluster sees. The key and the digests of ids go to the actors as arguments of calls, from process to process,
and products come back as answers. The key is not an argument of an actor's creation, because Ray's head node keeps
those. A call carries at most 64 KiB of points: Ray moves what is below 100 KB within the call itself, and nothing of it
enters the object store, where other jobs could fetch it and from which Ray may write to disks. But whoever may run code
on the cluster, or reads its network where RAY_USE_TLS is not set, can read key and digests, and so try out ids: the
cluster is to be trusted as the machine is that the ids are on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hedgerow.crypto.identifiers import Bytes32
from hedgerow.crypto.psi import POINT_BYTES, BlindingKey, Later, Points
from hedgerow.engine.rows_ray.actors import Crew, Holder, Task
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.errors import ClusterError

FEWEST_POINTS, MOST_POINTS = 512, 2048
"""Of a call: what takes an actor much longer than the call itself, and 64 KiB."""


@dataclass(frozen=True, repr=False)
class KeyOfParty:
    """A party's key on its way to one of its own actors; it is for one run, and let go of with them."""

    party: str
    number: int

    def __repr__(self) -> str:
        return f"KeyOfParty({self.party!r}, hidden)"

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"{self.party}'s multiplications"

    @cached_property
    def key(self) -> BlindingKey:
        """The key itself, in the process that multiplies."""
        return BlindingKey.from_number(self.number)


def blinded(holder: Holder, rows: Bytes32, n_threads: int) -> Points:
    """An actor's share of a block of its party's own digests."""
    key: BlindingKey = holder.source.key
    return key.blind(rows, n_threads=n_threads)


def reblinded(holder: Holder, rows: Points, n_threads: int, sender: str) -> Points:
    """An actor's share of a block of points that `sender` sent."""
    key: BlindingKey = holder.source.key
    return key.reblind(rows, sender=sender, n_threads=n_threads)


class RayBlinder:
    """Multiplies blocks with a party's key, each divided among all actors; several may be on their way at once."""

    def __init__(self, crew: Crew, threads: int) -> None:
        self._crew, self._threads = crew, threads
        self._turns = itertools.count()  # the next piece goes to the next actor, across blocks

    def blind(self, digests: Bytes32) -> Later:
        """k H(x) for a block of the party's own digests."""
        return self._started(digests, blinded)

    def reblind(self, points: Points, sender: str) -> Later:
        """k P for a block of points that `sender` sent."""
        return self._started(points, reblinded, sender=sender)

    def _started(self, rows: Bytes32, task: Task, **more: str) -> Later:
        size = min(MOST_POINTS, max(FEWEST_POINTS, -(-len(rows) // len(self._crew.actors))))
        pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
        asked = self._ask(pieces, task, more)

        def ask() -> list[Any]:
            nonlocal asked
            if any(actor not in self._crew.actors for actor, _ in asked):  # one was lost, and has been replaced
                asked = self._ask(pieces, task, more)
            return [ref for _, ref in asked]

        def result() -> Points:
            made = self._crew.answers(ask)
            if any(answer.shape != piece.shape for answer, piece in zip(made, pieces, strict=True)):
                raise ClusterError(
                    f"Ray: an actor gave back another number of points than the {len(rows)} it was given"
                )
            return np.concatenate(made) if made else np.empty((0, POINT_BYTES), np.uint8)

        return result

    def _ask(self, pieces: list[Bytes32], task: Task, more: dict[str, str]) -> list[tuple[Any, Any]]:
        """Each piece to an actor, and what will be its answer."""
        asked = []
        for piece in pieces:
            actor = self._crew.actors[next(self._turns) % len(self._crew.actors)]
            arguments = {"rows": piece, "n_threads": self._threads, **more}
            asked.append((actor, actor.run.remote(task, arguments, hold=False)))
        return asked


@contextmanager
def crew_of(backend: RayBackend, party: str, number: int) -> Iterator[Crew]:
    """Actors with a party's key, for as long as it has something to multiply; for a `RayBlinder`."""
    with connected(backend) as ray:
        crew = Crew(ray, backend, n_actors_of(ray, backend))
        try:
            crew.assign([KeyOfParty(party, number)] * len(crew.actors))
            yield crew
        finally:
            crew.close()
