"""The end of a conversation that all parties reach, or none: nobody is done before everybody has kept what it is for.

    1  everybody else -> hub    Kept       what this party has of the result is on its disk
    2  hub -> everybody else    AllKept    everybody has said so

The hub is the party that talks to all others. It decides: once it has everybody's word and has written that down, the
result stands. Until then any of them may break off, and the conversation is had again. Without this, a party that was
done a moment before another one was killed would not come back, and the other one could not go on without it.

A party that is killed between the two messages does not know whether the hub has decided. It asks when the parties meet
again (`Beginning.is_over`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Public
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import Job
from hedgerow.transport.frames import Message


@dataclass(frozen=True, slots=True)
class Kept(Message, name="node.kept", version=1):
    """Party to hub: what I have of the result is on my disk."""

    discloses = Public("that the sender has come to the end and kept its result")


@dataclass(frozen=True, slots=True)
class AllKept(Message, name="node.all_kept", version=1):
    """Hub to party: everybody has kept its result."""

    discloses = Public("that all parties have come to the end and kept their results")


def hub_of(job: Job) -> str:
    """The first party of the job that talks to all others."""
    for name in job.cast:
        linked = {other for link in job.links if name in link for other in link}
        if linked >= set(job.cast):
            return name
    raise InvalidParameter(f"nobody in {job.NAME} talks to all others, so nobody can say when all are done")


def end_together(me: Party, job: Job, decide: Callable[[], None], without: Collection[str] = ()) -> None:
    """Wait until everybody has kept its result, but for those that the others went on `without`.

    `decide` is called once that is certain: at the hub before it tells anybody, elsewhere when it is told. A peer may
    be at work for hours until then, and is waited for as long as it is there.
    """
    hub = hub_of(job)
    if me.name != hub:
        me.send(hub, Kept())
        me.recv(hub, AllKept, timeout=math.inf)
        decide()
        return
    others = [name for name in job.cast if name != hub and name not in without]
    for other in others:
        me.recv(other, Kept, timeout=math.inf)
    decide()
    me.send_all(others, AllKept(), even_if_lost=True)
