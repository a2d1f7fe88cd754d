"""One party's side of the conversation, and in addition the comparer's.

    phase      0            1            ...   M - 2          sends to the next party, block by block:
    sends      own set      anna's       ...   ...            the set that came in the phase before
    receives   anna's       zoe's        ...   last set       from the party before, where anna is, and before her zoe

Sending and receiving take turns, so that no party fills up a channel that nobody reads; a received block is multiplied
at once. All parties do so at the same time, each with another set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from hedgerow.crypto.identifiers import PreparedIds, Rows, prepare_ids
from hedgerow.crypto.psi import POINT_BYTES, BlindingKey, Departure, Points, Stay, common_places
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.aligning.job import AligningJob
from hedgerow.protocols.vertical.aligning.messages import (
    BlindedIds,
    CommonPlaces,
    FullyBlinded,
    IdsAgreed,
    IdsDescription,
    Verdict,
)
from hedgerow.protocols.vertical.aligning.packed_ids import unpacked
from hedgerow.protocols.vertical.aligning.result import AlignedRows

POINTS_PER_SECOND = 2_000
"""What a slow machine multiplies, with one thread: messages of a party at work may take so long."""
WINDOW_BYTES = 16 << 20
"""What is sent of a set before the next block of another set is read: less than channels hold."""
PLACES = 1 << 20
"""Places in a message: 8 MB."""


def party(me: Party, job: AligningJob, data: PartyData | None) -> AlignedRows:
    """A party's role, from its ids to its rows."""
    ring = job.way(me.name)
    prepared = _prepare(me.name, job, data)
    n_ids = _agree(me, job, len(prepared))
    tour = _Tour(me, job, n_ids, n_threads=1 if data is None else data.n_threads)
    own = Departure(prepared, me.rng)
    del prepared  # the digests are let go of when the last one is blinded
    stays = tour.round_the_ring(own)

    # The set that ended its way here is that of the next party.
    last = stays[-1]
    found: dict[str, Rows] = {}
    if me.name == job.comparer:
        found = _compare(me, job, n_ids, last, tour.patience)
        n_common = _announce(me, job, found)
    else:
        for points in last.blocks(job.block):
            me.send(job.comparer, FullyBlinded(last.owner, points))
        last.release()
        n_common = _hear(me, job, min(n_ids.values()), tour.patience)

    rows = np.empty(n_common, np.int64)
    for start in range(0, n_common, PLACES):
        stop = min(start + PLACES, n_common)
        for owner, places in found.items():
            end = job.way(owner)[-1]
            if end != me.name:
                me.send(end, CommonPlaces(owner, places[start:stop]))
        mine = found[last.owner][start:stop] if found else None
        rows[start:stop] = _way_back(me, job, ring, stays, own, mine, stop - start, tour.patience)
    if len(np.unique(rows)) < n_common:
        raise ProtocolError(f"{me.name} was told some of its rows twice")
    return AlignedRows(me.name, rows, n_ids, n_common)


# --- 1: do the ids fit together? -------------------------------------------------------------------------------------


def _prepare(name: str, job: AligningJob, data: PartyData | None) -> PreparedIds:
    if data is None or data.ids is None:
        raise InvalidInput(f"{name}: brings no ids to align by")
    prepared = prepare_ids(
        unpacked(data.ids),
        job.id_rule,
        context=job.run_id,
        party=name,
        column=job.column,
        duplicates=job.duplicates,
    )
    if not len(prepared):
        raise InvalidInput(f"{name}: column {job.column!r} holds no ids")
    if len(prepared) > job.most_ids:
        raise InvalidInput(
            f"{name}: column {job.column!r} holds {len(prepared):,} ids, more than most_ids={job.most_ids:,}; let all "
            "parties agree on a larger most_ids"
        )
    return prepared


def _agree(me: Party, job: AligningJob, n_ids: int) -> dict[str, int]:
    """Everybody's number of ids, once it is clear that all write them in the same way."""
    fingerprint = job.id_rule.fingerprint
    if me.name != job.comparer:
        me.send(job.comparer, IdsDescription(fingerprint, n_ids))
        # The comparer may first have to wait for another party.
        patience = 2.5 * me.common_deadline()()
        agreed = me.recv(job.comparer, IdsAgreed, timeout=patience, n_parties=len(job.parties), most_ids=job.most_ids)
        told = dict(zip(agreed.parties, agreed.n_ids.tolist(), strict=True))
        if set(told) != set(job.parties) or told[me.name] != n_ids:
            raise ProtocolError(f"{me.name} was told numbers of ids that are not those of this job's parties")
        return {name: told[name] for name in job.parties}
    counts = {}
    left = me.common_deadline()
    for name in job.parties:
        described = IdsDescription(fingerprint, n_ids)
        if name != me.name:
            described = me.recv(name, IdsDescription, timeout=left(), most_ids=job.most_ids)
        if described.rule != fingerprint:
            raise InvalidInput(
                f"{name}: writes ids by another rule than {me.name} (fingerprints {described.rule!r} and "
                f"{fingerprint!r}); give all parties the same id rule"
            )
        counts[name] = described.n_ids
    agreed = IdsAgreed(tuple(counts), np.array(list(counts.values()), np.int64))
    me.send_all([name for name in job.parties if name != me.name], agreed)
    return counts


# --- 2: round the ring -----------------------------------------------------------------------------------------------


class _Tour:
    """All sets go round the ring, seen from one party."""

    def __init__(self, me: Party, job: AligningJob, n_ids: Mapping[str, int], n_threads: int) -> None:
        self._me = me
        self._job = job
        self._n_ids = n_ids
        self._n_threads = n_threads
        self._key = BlindingKey.generate(me.rng)
        ring = job.way(me.name)
        self._next, self._before = ring[1], ring[-1]
        self._owners = tuple(reversed(ring[1:]))  # whose sets come here, in this order
        # Nothing may come for as long as all parties multiply; who is gone is noticed much earlier by the transport.
        self.patience = me.common_deadline()() + len(ring) * sum(n_ids.values()) / POINTS_PER_SECOND
        self._ahead = max(1, WINDOW_BYTES // (POINT_BYTES * job.block))
        self._done = 0
        self._total = sum(job.n_blocks(n) for n in n_ids.values())

    def round_the_ring(self, own: Departure) -> list[Stay]:
        """Send and receive in all phases. Returns the sets that came here; the last one still holds its points."""
        blocks = self._counted(own.blocks(self._key, self._job.block, n_threads=self._n_threads))
        leaving, n_leaving, ahead = own.owner, own.n, 0
        stays: list[Stay] = []
        for owner in self._owners:
            arriving = Stay(self._n_ids[owner], self._me.rng, owner=owner, sender=self._before)
            self._exchange(leaving, blocks, self._job.n_blocks(n_leaving), arriving, ahead)
            if stays:
                stays[-1].release()
            stays.append(arriving)
            # What has come is ready to be sent on, and need not wait for what comes next.
            leaving, n_leaving, ahead = owner, arriving.n, self._ahead
            blocks = arriving.blocks(self._job.block)
        return stays

    def _exchange(self, leaving: str, blocks: Iterator[Points], n_leaving: int, arriving: Stay, ahead: int) -> None:
        sent = 0
        n_arriving = self._job.n_blocks(arriving.n)
        for k in range(max(n_leaving, n_arriving)):
            while sent < min(k + 1 + ahead, n_leaving):
                self._me.send(self._next, BlindedIds(leaving, next(blocks)))
                sent += 1
            if k < n_arriving:
                self._receive(arriving)
        next(blocks, None)  # nothing is left, and the digests are let go of

    def _receive(self, arriving: Stay) -> None:
        n_points = min(self._job.block, arriving.missing)
        points = receive_block(self._me, self._before, BlindedIds, arriving.owner, n_points, self.patience)
        arriving.put(self._key.reblind(points, sender=self._before, n_threads=self._n_threads))
        self._report()

    def _counted(self, blocks: Iterable[Points]) -> Iterator[Points]:
        for points in blocks:
            self._report()
            yield points

    def _report(self) -> None:
        self._done += 1
        if self._me.name == self._job.comparer:
            self._me.report(self._done, self._total)


def receive_block(
    me: Party, sender: str, kind: type[BlindedIds | FullyBlinded], owner: str, n_points: int, patience: float
) -> Points:
    """The next block of a set; every block but the last one is full."""
    message = me.recv(sender, kind, timeout=patience, owner_letters=len(owner), n_points=n_points)
    _check_owner(message, owner, sender)
    return message.points


def _check_owner(message: BlindedIds | FullyBlinded | CommonPlaces, owner: str, sender: str) -> None:
    if message.owner != owner:
        raise ProtocolError(f"{sender} sent {message.NAME} of {message.owner!r} where the set of {owner} was due")


# --- 3: compare ------------------------------------------------------------------------------------------------------


def _compare(me: Party, job: AligningJob, n_ids: Mapping[str, int], last: Stay, patience: float) -> dict[str, Rows]:
    """The comparer's side: where in each set the ids stand that all have."""
    sets = {last.owner: last.points()}
    for owner in job.parties:
        if owner == last.owner:
            continue
        sender = job.way(owner)[-1]
        sizes = [min(job.block, n_ids[owner] - start) for start in range(0, n_ids[owner], job.block)]
        # As they come: what was only announced takes no memory.
        sets[owner] = np.concatenate([receive_block(me, sender, FullyBlinded, owner, n, patience) for n in sizes])
    found = common_places(sets)
    last.release()
    return found


def _announce(me: Party, job: AligningJob, found: Mapping[str, Rows]) -> int:
    n_common = len(found[me.name])
    enough = n_common >= job.minimum
    me.send_all([name for name in job.parties if name != me.name], Verdict(enough, n_common if enough else -1))
    if not enough:
        raise too_few(me.name, job)
    return n_common


def _hear(me: Party, job: AligningJob, smallest: int, patience: float) -> int:
    verdict = me.recv(job.comparer, Verdict, timeout=patience, most_common=smallest)
    if not verdict.enough:
        raise too_few(me.name, job)
    if verdict.n_common < job.minimum:
        raise ProtocolError(f"{job.comparer} went on with fewer common ids than the smallest allowed number")
    return verdict.n_common


def too_few(name: str, job: AligningJob) -> InvalidInput:
    """What every party raises when the result would be too small to be shown."""
    return InvalidInput(
        f"{name}: fewer than {job.minimum} ids are common to all parties, so nobody was told which (minimum="
        f"{job.minimum}); are these ids of the same kind, and written alike by the id rule?"
    )


# --- 4: the way back -------------------------------------------------------------------------------------------------


def _way_back(
    me: Party,
    job: AligningJob,
    ring: tuple[str, ...],
    stays: list[Stay],
    own: Departure,
    mine: Rows | None,
    n_places: int,
    patience: float,
) -> Rows:
    """A part of all places: undo the own shuffle of every set that was here. Returns the own rows.

    The set that was here last comes first, from the comparer; the comparer has its places already (`mine`).
    """
    following, before = ring[1], ring[-1]
    sender = job.comparer
    for stay in reversed(stays):
        places = _places(me, sender, stay.owner, n_places, stay.n, patience) if mine is None else mine
        me.send(before, CommonPlaces(stay.owner, stay.restored(places)))
        sender, mine = following, None
    return own.restored(_places(me, sender, me.name, n_places, own.n, patience))


def _places(me: Party, sender: str, owner: str, n_places: int, n_ids: int, patience: float) -> Rows:
    sizes = {"owner_letters": len(owner), "n_places": n_places, "n_ids": n_ids}
    message = me.recv(sender, CommonPlaces, timeout=patience, **sizes)
    _check_owner(message, owner, sender)
    return message.places
