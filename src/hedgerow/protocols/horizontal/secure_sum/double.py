"""Masks of the owners' own: beside the pairwise masks every owner adds one, which the others can help to remove.

    per 64 sums   owner -> coordinator   SealedSeeds    shares of the seeds of its own masks, sealed for each other
                  coordinator -> owner   RelayedSeeds
    per sum       owner -> coordinator   MaskedHistogram (or NoisySum)
                  coordinator -> owner   WhoSent        all did (or nobody: the sum is given up, answer nothing)
                  owner -> coordinator   Unmasking      a share of each owner's seed

Sums of an owner that arrive after it was given up are of no use: nobody ever answers for that sum, so its own mask
stays on, and the full and the reduced sum of one node are never both open, whatever a curious coordinator keeps. And
an owner that is lost after it sent its sums, but before it answered, does not spoil the sum: a majority of the others
opens its mask. `Job.has_own_masks` says which sums have them: the first one of every tree where owners can be spared.
"""

from __future__ import annotations

from collections.abc import Mapping

from hedgerow.crypto.double_masking import DoubleMasks, unmask
from hedgerow.crypto.masking import Position
from hedgerow.crypto.shamir import SHARE_BYTES
from hedgerow.engine.dtypes import Words
from hedgerow.errors import ProtocolError
from hedgerow.protocols.horizontal.secure_sum.checks import refuse
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import OWN, pack_blobs, unpack_blobs
from hedgerow.protocols.horizontal.secure_sum.messages import RelayedSeeds, SealedSeeds, Unmasking, WhoSent
from hedgerow.runtime.party import Party

SUMS_PER_SEEDS = 64
"""Sums whose seeds are shared together."""

SEAL_BYTES = 16
"""That sealing adds."""


def threshold(n_owners: int) -> int:
    """How many owners must answer: more than half."""
    return n_owners // 2 + 1


def nth(number: int) -> Position:
    """Where the masks of the `number`th sum since the last keys are taken from."""
    return Position(OWN, *divmod(number, SUMS_PER_SEEDS))


def sealed_bytes(n_peers: int) -> int:
    """Length of all sealed seeds from one owner."""
    return n_peers * (SUMS_PER_SEEDS * SHARE_BYTES + SEAL_BYTES)


def unmasking_bytes(n_owners: int) -> int:
    """Length of the answers about all owners."""
    return n_owners * (1 + SHARE_BYTES)


class OwnMasks:
    """Owner's side, for one round of keys."""

    def __init__(self, me: Party, job: Job, secrets: Mapping[str, bytes]) -> None:
        self._me, self._to = me, job.coordinator
        self._owners = frozenset({me.name, *secrets})
        self._masks = DoubleMasks(me.name, secrets, threshold(len(self._owners)), me.rng)
        self._number = 0  # of the next sum

    @classmethod
    def for_round(cls, me: Party, job: Job, secrets: Mapping[str, bytes]) -> OwnMasks | None:
        """Masks for new secrets; None if the job has none, or there is nobody to share seeds with."""
        return cls(me, job, secrets) if secrets and job.has_own_masks(is_first=True) else None

    def share_seeds(self) -> bool:
        """Share seeds if the next sum needs new ones; False if somebody was lost meanwhile, and new keys are coming."""
        position = nth(self._number)
        if position.level:
            return True
        me, n_peers = self._me, len(self._owners) - 1
        sealed = self._masks.seal_seeds(position.tree, SUMS_PER_SEEDS)
        me.send(self._to, SealedSeeds(tuple(sealed), *pack_blobs(list(sealed.values()))))
        relayed = me.recv(self._to, RelayedSeeds, n_peers=n_peers, most_bytes=sealed_bytes(n_peers))
        if not relayed.owners:
            return False
        if {*relayed.owners, me.name} != self._owners:
            raise refuse(self._to, relayed, f"from {list(relayed.owners)} instead of {sorted(self._owners)}")
        for owner, blob in zip(relayed.owners, unpack_blobs(relayed.blobs, relayed.ends), strict=True):
            self._masks.accept_seeds(position.tree, owner, blob)
        return True

    def hide(self, values: Words) -> Words:
        """The values of the next sum under all masks."""
        self._number += 1
        return self._masks.hide(values, nth(self._number - 1))

    def help_to_open(self) -> None:
        """Answer for the last sum, if everybody's part is in it; else answer nothing, now or ever."""
        me = self._me
        who = me.recv(self._to, WhoSent, n_owners=len(self._owners))
        if not who.sent:
            return
        if frozenset(who.sent) != self._owners or who.lost:
            raise ProtocolError(
                f"{me.name} was asked to open a sum over {list(who.sent)} instead of {sorted(self._owners)}"
            )
        answer = self._masks.answer(nth(self._number - 1), self._owners, frozenset())
        me.send(self._to, Unmasking(tuple(answer), *pack_blobs(list(answer.values()))))


def relayed_to(owner: str, sealed: Mapping[str, SealedSeeds]) -> RelayedSeeds:
    """Coordinator's side: what the others have sealed for one owner."""
    senders, blobs = [], []
    for sender, message in sealed.items():
        if sender == owner:
            continue
        if owner not in message.owners:
            raise refuse(sender, message, f"without seeds for {owner}")
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
