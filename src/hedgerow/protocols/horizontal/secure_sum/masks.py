"""Masks: those that cancel between pairs of owners, and masks of the owners' own, which others help to remove.

    per round of keys   owner -> coordinator   MaskKey        X25519 key, signature over (run, job, round, name, key)
                        coordinator -> owner   MaskKeys       everybody's; checked against the pinned certificates
    per 64 sums         owner -> coordinator   SealedSeeds    shares of its own masks' seeds, sealed for each other
                        coordinator -> owner   RelayedSeeds
    per sum             owner -> coordinator   MaskedHistogram (or MaskedMetric, NoisySum)
                        coordinator -> owner   WhoSent        all did (or nobody: the sum is given up, answer nothing)
                        owner -> coordinator   Unmasking      a share of each owner's seed

The coordinator passes on keys that it cannot change: every key is signed by its owner. After a dropout the survivors
make new ones under the next round id, so no old mask fits any new one.

Sums of an owner that arrive after it was given up are of no use: nobody ever answers for that sum, so its own mask
stays on, and the full and the reduced sum of one node are never both open, whatever a curious coordinator keeps. And
an owner that is lost after it sent its sums, but before it answered, does not spoil the sum: a majority of the others
opens its mask. `Job.has_own_masks` says which sums have them: the first one of every tree where owners can be spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hedgerow.crypto.double_masking import SHARE_BYTES, DoubleMasks, unmask
from hedgerow.crypto.masking import KeyPair, PairwiseMasks, Position, pair_secret, signed_key_statement
from hedgerow.engine.dtypes import Bytes, Ints, Words
from hedgerow.errors import ProtocolError
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.job import FEWEST_MASKED_OWNERS, Job
from hedgerow.runtime.party import Party

WEIGHTS, TOTALS, COUNTS, TREES, NOISY, OWN = range(6)  # purposes of masks, in the order in which a run comes to them

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


# --- owner's side ----------------------------------------------------------------------------------------------------


class Masks:
    """Hides an owner's numbers so that only the sum over owners means anything."""

    def __init__(self, me: Party, job: Job) -> None:
        self._me, self._job = me, job
        self._round_id = 0

    def agree(self, round_id: int) -> None:
        """Make new masks together with every other owner that is still there, for this round of keys or a later one."""
        me, job = self._me, self._job
        while True:
            if round_id <= self._round_id:
                raise ProtocolError(f"{me.name} was asked to go back from key round {self._round_id} to {round_id}")
            self._round_id = round_id
            pair = KeyPair.generate()
            statement = signed_key_statement(job.run_id, round_id, me.name, pair.public, job=me.job.digest)
            me.send(job.coordinator, messages.MaskKey(round_id, pair.public, *me.sign(statement)))
            keys = me.recv(job.coordinator, messages.MaskKeys, round_id=round_id, n_owners=len(job.masked_owners))
            if keys.owners:
                break
            round_id = keys.round_id  # somebody was lost meanwhile
        if keys.round_id != round_id:
            raise ProtocolError(f"{me.name} asked for keys of round {round_id} and got those of round {keys.round_id}")
        _check_company(me, job, keys.owners)
        secrets: dict[str, bytes] = {}
        proofs = unpack_blobs(keys.proofs, keys.proof_ends)
        if len(proofs) != 2 * len(keys.owners):
            raise ProtocolError(
                f"{me.name}: {len(proofs)} signatures and certificates came for {len(keys.owners)} keys"
            )
        for k, owner in enumerate(keys.owners):
            if owner == me.name:
                continue
            public = keys.publics[k].tobytes()
            signature, certificate = proofs[2 * k], proofs[2 * k + 1]
            statement = signed_key_statement(job.run_id, round_id, owner, public, job=me.job.digest)
            me.verify(owner, signature, certificate, statement)
            secrets[owner] = pair_secret(pair, public, run_id=job.run_id, round_id=round_id, me=me.name, peer=owner)
        self.renew(secrets)

    def renew(self, secrets: Mapping[str, bytes]) -> None:
        """Go on with masks from these secrets; none where the job has accepted that there is nobody to share them."""
        me, has_own = self._me, self._job.has_own_masks(is_first=True)
        self._owners = frozenset({me.name, *secrets})
        self._pairs = PairwiseMasks(me.name, secrets) if secrets else None
        self._own = DoubleMasks(me.name, secrets, threshold(len(self._owners)), me.rng) if secrets and has_own else None
        self._number = 0  # of the next sum with masks of the owners' own
        self._is_to_open = False

    def hide(self, values: Words, position: Position) -> Words:
        """The values under the masks of pairs at this position; in place."""
        return values if self._pairs is None else self._pairs.hide(values, position, out=values)

    def hide_sum(self, values: Words, position: Position, *, is_first: bool) -> Words | None:
        """The values of a sum (the first of a tree?) under all masks that the job has for it; in place or not.

        None if somebody was lost while seeds were shared: nothing is to be sent, and new keys are coming.
        """
        self._is_to_open = self._own is not None and self._job.has_own_masks(is_first=is_first)
        if self._own is None or not self._is_to_open:
            return self.hide(values, position)
        self._number += 1
        return self._own.hide(values, nth(self._number - 1)) if self._share_seeds(self._own) else None

    def _share_seeds(self, own: DoubleMasks) -> bool:
        """Share seeds if this sum needs new ones; False if somebody was lost meanwhile, and new keys are coming."""
        position = nth(self._number - 1)
        if position.level:
            return True
        me, to, n_peers = self._me, self._job.coordinator, len(self._owners) - 1
        sealed = own.seal_seeds(position.tree, SUMS_PER_SEEDS)
        me.send(to, messages.SealedSeeds(tuple(sealed), *pack_blobs(sealed.values())))
        relayed = me.recv(to, messages.RelayedSeeds, n_peers=n_peers, most_bytes=sealed_bytes(n_peers))
        if not relayed.owners:
            return False
        if {*relayed.owners, me.name} != self._owners:
            raise messages.refuse(to, relayed, f"from {list(relayed.owners)} instead of {sorted(self._owners)}")
        for owner, blob in zip(relayed.owners, unpack_blobs(relayed.blobs, relayed.ends), strict=True):
            own.accept_seeds(position.tree, owner, blob)
        return True

    def help_to_open(self) -> None:
        """Answer for the last sum, if it needs that and everybody's part is in it; else answer nothing, now or ever."""
        if self._own is None or not self._is_to_open:
            return
        me, to = self._me, self._job.coordinator
        who = me.recv(to, messages.WhoSent, n_owners=len(self._owners))
        if not who.sent:
            return
        if frozenset(who.sent) != self._owners or who.lost:
            raise ProtocolError(
                f"{me.name} was asked to open a sum over {list(who.sent)} instead of {sorted(self._owners)}"
            )
        answer = self._own.answer(nth(self._number - 1), self._owners, frozenset())
        me.send(to, messages.Unmasking(tuple(answer), *pack_blobs(answer.values())))


def _check_company(me: Party, job: Job, owners: Sequence[str]) -> None:
    """An owner looks for itself who is said to take part: too few and the sum is no protection."""
    strangers = sorted(set(owners) - set(job.masked_owners))
    if strangers or len(set(owners)) < len(owners) or me.name not in owners:
        raise ProtocolError(f"{me.name}: keys came for {list(owners)}, which are not the owners of this job")
    n_owners = len(owners) + (job.coordinator in job.owners)
    if n_owners < job.fewest_owners:
        raise ProtocolError(f"{me.name}: only {n_owners} owners are left, but the job asks for {job.fewest_owners}")
    if n_owners < FEWEST_MASKED_OWNERS and job.dp is None and not job.accept_no_masking:
        raise ProtocolError(f"{me.name}: {n_owners} owners are too few to hide anybody's part of a sum")


# --- coordinator's side ----------------------------------------------------------------------------------------------


def passed_on(round_id: int, offers: Mapping[str, messages.MaskKey]) -> messages.MaskKeys:
    """Everybody's signed keys, for everybody."""
    proofs = [blob for offer in offers.values() for blob in (offer.signature, offer.certificate)]
    publics = np.frombuffer(b"".join(offer.public for offer in offers.values()), np.uint8).reshape(-1, 32)
    return messages.MaskKeys(round_id, tuple(offers), publics, *pack_blobs(proofs))


def relayed_to(owner: str, sealed: Mapping[str, messages.SealedSeeds]) -> messages.RelayedSeeds:
    """What the others have sealed for one owner; nothing where somebody was lost."""
    blobs = {}
    for sender, message in sealed.items():
        if sender != owner:
            if owner not in message.owners:
                raise messages.refuse(sender, message, f"without seeds for {owner}")
            blobs[sender] = unpack_blobs(message.blobs, message.ends)[message.owners.index(owner)]
    return messages.RelayedSeeds(tuple(blobs), *pack_blobs(blobs.values()))


def opened(
    total: Words, position: Position, owners: frozenset[str], answers: Mapping[str, messages.Unmasking]
) -> Words:
    """The sum without the owners' own masks."""
    shares = {
        owner: dict(zip(message.owners, unpack_blobs(message.blobs, message.ends), strict=True))
        for owner, message in answers.items()
    }
    return unmask(total, position, owners, frozenset(), shares, threshold(len(owners)))


def pack_blobs(blobs: Iterable[bytes]) -> tuple[Bytes, Ints]:
    """Byte strings one after the other, and where each ends: how messages carry several."""
    blobs = list(blobs)
    return np.frombuffer(b"".join(blobs), np.uint8), np.cumsum([len(blob) for blob in blobs]).astype(np.int64)


def unpack_blobs(blobs: Bytes, ends: Ints) -> list[bytes]:
    """The inverse of `pack_blobs`."""
    return [piece.tobytes() for piece in np.split(blobs, ends)[:-1]]
