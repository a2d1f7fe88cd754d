"""Owners agree on masks, with the coordinator passing on what it cannot change: every key is signed by its owner.

    owner i -> coordinator   MaskKey     X25519 key, signature over (run, job, round, name, key)
    coordinator -> owner i   MaskKeys    everybody's; i checks each signature against the certificate it has pinned

After a dropout the survivors do the same under the next round id, so no old mask fits any new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from hedgerow.crypto.masking import KeyPair, PairwiseMasks, Position, pair_secret, signed_key_statement
from hedgerow.engine.dtypes import Bytes, Ints, Words
from hedgerow.errors import ProtocolError
from hedgerow.protocols.horizontal.secure_sum.job import FEWEST_MASKED_OWNERS, Job
from hedgerow.protocols.horizontal.secure_sum.messages import MaskKey, MaskKeys
from hedgerow.runtime.party import Party

TOTALS, COUNTS, TREES, NOISY, OWN = range(5)  # purposes of masks, in the order in which a run comes to them


class Masks(Protocol):
    """Hides an owner's numbers so that only the sum over owners means anything."""

    def hide(self, values: Words, position: Position, out: Words | None = None) -> Words:
        """The values under the masks of a position, which can be used once."""
        ...


class NoMasks:
    """For a single masked owner, where there is nobody to share masks with and the job has accepted that."""

    def hide(self, values: Words, position: Position, out: Words | None = None) -> Words:  # noqa: ARG002 - as in Masks
        """The values as they are."""
        return values


def agree_on_secrets(me: Party, job: Job, round_id: int) -> tuple[int, dict[str, bytes]]:
    """Owner's side: a secret with every other owner that is still there, and the round that it is for."""
    while True:
        pair = KeyPair.generate()
        statement = signed_key_statement(job.run_id, round_id, me.name, pair.public, job=me.job.digest)
        me.send(job.coordinator, MaskKey(round_id, pair.public, *me.sign(statement)))
        keys = me.recv(job.coordinator, MaskKeys, round_id=round_id, n_owners=len(job.masked_owners))
        if keys.owners:
            break
        round_id = _later(me, round_id, keys.round_id)  # somebody was lost meanwhile
    if keys.round_id != round_id:
        raise ProtocolError(f"{me.name} asked for keys of round {round_id} and got those of round {keys.round_id}")
    _check_company(me, job, keys.owners)
    secrets: dict[str, bytes] = {}
    proofs = unpack_blobs(keys.proofs, keys.proof_ends)
    if len(proofs) != 2 * len(keys.owners):
        raise ProtocolError(f"{me.name}: {len(proofs)} signatures and certificates came for {len(keys.owners)} keys")
    for k, owner in enumerate(keys.owners):
        if owner == me.name:
            continue
        public = keys.publics[k].tobytes()
        signature, certificate = proofs[2 * k], proofs[2 * k + 1]
        statement = signed_key_statement(job.run_id, round_id, owner, public, job=me.job.digest)
        me.verify(owner, signature, certificate, statement)
        secrets[owner] = pair_secret(pair, public, run_id=job.run_id, round_id=round_id, me=me.name, peer=owner)
    return round_id, secrets


def make_masks(me: Party, secrets: Mapping[str, bytes]) -> Masks:
    """Pairwise masks from the secrets; none where the job has accepted that there is nobody to share them with."""
    return PairwiseMasks(me.name, secrets) if secrets else NoMasks()


def _later(me: Party, old: int, new: int) -> int:
    if new <= old:
        raise ProtocolError(f"{me.name} was asked to go back from key round {old} to round {new}")
    return new


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


def pass_on_keys(me: Party, owners: Sequence[str], round_id: int, offers: Mapping[str, MaskKey]) -> None:
    """Coordinator's side: give everybody's signed keys to everybody."""
    proofs = [blob for owner in owners for blob in (offers[owner].signature, offers[owner].certificate)]
    publics = np.stack([np.frombuffer(offers[owner].public, np.uint8) for owner in owners])
    me.send_all(owners, MaskKeys(round_id, tuple(owners), publics, *pack_blobs(proofs)), even_if_lost=True)


def begin_again(me: Party, owners: Sequence[str], round_id: int) -> None:
    """Coordinator's side: somebody was lost while keys were exchanged; make keys for this round instead."""
    nothing = MaskKeys(round_id, (), np.empty((0, 32), np.uint8), *pack_blobs([]))
    me.send_all(owners, nothing, even_if_lost=True)


def pack_blobs(blobs: Sequence[bytes]) -> tuple[Bytes, Ints]:
    """Byte strings one after the other, and where each ends: how messages carry several."""
    return np.frombuffer(b"".join(blobs), np.uint8), np.cumsum([len(blob) for blob in blobs]).astype(np.int64)


def unpack_blobs(blobs: Bytes, ends: Ints) -> list[bytes]:
    """The inverse of `pack_blobs`."""
    return [piece.tobytes() for piece in np.split(blobs, ends)[:-1]]
