"""double_masking=True: beside the pairwise masks every owner adds one of its own, which the others can help to remove.

    per tree    owner -> coordinator   SealedSeeds    shares of the seeds of its own masks, sealed for each other owner
                coordinator -> owner   RelayedSeeds
    per level   owner -> coordinator   MaskedHistogram
                coordinator -> owner   WhoSent        all did (or nobody: the sum is given up, answer nothing)
                owner -> coordinator   Unmasking      a share of each owner's seed

Two things are gained for owners whose connection comes and goes. An owner that is lost after it sent its sums, but
before it answered, does not spoil the level: a majority of the others opens its mask. And sums of an owner that arrive
after it was given up are of no use: nobody ever answers for that level, so its own mask stays on, and the full and the
reduced sum of one node cannot both be had, whatever a curious coordinator keeps.
"""

from __future__ import annotations

from collections.abc import Mapping

from hedgerow.crypto.double_masking import DoubleMasks, unmask
from hedgerow.crypto.masking import Position
from hedgerow.engine.dtypes import Words
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.party import Party
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import pack_blobs, unpack_blobs
from hedgerow.protocols.horizontal.secure_sum.messages import RelayedSeeds, SealedSeeds, Unmasking, WhoSent


def threshold(n_owners: int) -> int:
    """How many owners must answer: more than half."""
    return n_owners // 2 + 1


class OwnMasks:
    """Owner's side, for one round of keys."""

    def __init__(self, me: Party, job: Job, secrets: Mapping[str, bytes]) -> None:
        self._me, self._job = me, job
        self._owners = frozenset({me.name, *secrets})
        self._masks = DoubleMasks(me.name, secrets, threshold(len(self._owners)), me.rng)

    def begin_tree(self, tree: int) -> bool:
        """Share the seeds of a tree's masks; False if somebody was lost meanwhile, and other keys are coming."""
        me, to = self._me, self._job.coordinator
        sealed = self._masks.seal_seeds(tree, n_levels(self._job))
        me.send(to, SealedSeeds(tuple(sealed), *pack_blobs(list(sealed.values()))))
        relayed = me.recv(to, RelayedSeeds)
        for owner, blob in zip(relayed.owners, unpack_blobs(relayed.blobs, relayed.ends), strict=True):
            self._masks.accept_seeds(tree, owner, blob)
        return bool(relayed.owners)

    def hide(self, values: Words, position: Position, out: Words | None = None) -> Words:
        """The values under all masks of a position."""
        return self._masks.hide(values, position, out)

    def help_to_open(self, position: Position) -> None:
        """Answer for this level, if everybody's sums are in it; else answer nothing, now or ever."""
        who = self._me.recv(self._job.coordinator, WhoSent)
        if not who.sent:
            return
        if frozenset(who.sent) != self._owners or who.lost:
            raise ProtocolError(
                f"{self._me.name} was asked to open a sum over {list(who.sent)} instead of {sorted(self._owners)}"
            )
        answer = self._masks.answer(position, self._owners, frozenset())
        self._me.send(self._job.coordinator, Unmasking(tuple(answer), *pack_blobs(list(answer.values()))))


def relayed_to(owner: str, sealed: Mapping[str, SealedSeeds]) -> RelayedSeeds:
    """Coordinator's side: what the others have sealed for one owner."""
    senders, blobs = [], []
    for sender, message in sealed.items():
        if sender == owner:
            continue
        if owner not in message.owners:
            raise ProtocolError(f"{sender} sealed no seeds for {owner}")
        senders.append(sender)
        blobs.append(unpack_blobs(message.blobs, message.ends)[message.owners.index(owner)])
    return RelayedSeeds(tuple(senders), *pack_blobs(blobs))


def opened(total: Words, position: Position, owners: frozenset[str], answers: Mapping[str, Unmasking]) -> Words:
    """Coordinator's side: the sum without the owners' own masks."""
    shares = {
        owner: dict(zip(message.owners, unpack_blobs(message.blobs, message.ends), strict=True))
        for owner, message in answers.items()
    }
    return unmask(total, position, owners, frozenset(), shares, threshold(len(owners)))


def n_levels(job: Job) -> int:
    """Levels for which seeds are shared; the job has a depth."""
    if job.boosting.max_depth is None:
        raise InvalidParameter("double_masking needs a max_depth")
    return job.boosting.max_depth
