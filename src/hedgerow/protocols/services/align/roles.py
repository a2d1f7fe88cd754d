"""One party's side of the conversation, and in addition the comparer's.

    phase      0            1            ...   M - 2          sends to the next party, block by block:
    sends      own set      anna's       ...   ...            the set that came in the phase before
    receives   anna's       zoe's        ...   last set       from the party before, where anna is, and before her zoe

Every phase has as many turns as the largest set has blocks. In each turn a party sends one message and takes one: a
block, which it multiplies at once, or `AtWork` where a smaller set has ended. Nobody gets ahead of the party before by
more than a turn, and so a message is due after a few blocks' work, however many ids were announced (`_Patience`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from hedgerow.crypto.identifiers import PreparedIds, Rows, prepare_ids
from hedgerow.crypto.psi import POINT_BYTES, BlindingKey, Departure, Points, Stay, common_places
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.services.align.job import AlignedRows, AligningJob, unpacked
from hedgerow.protocols.services.align.messages import (
    AtWork,
    BlindedIds,
    BlocksRead,
    CommonPlaces,
    FullyBlinded,
    IdsAgreed,
    IdsDescription,
    Verdict,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

POINTS_PER_SECOND = 2_000
"""What a slow machine multiplies, with one thread."""
MOVED_PER_SECOND = 1_000_000
"""Points that a slow machine brings into a new order."""
SORTED_PER_SECOND = 100_000
"""Points that a slow machine compares."""
WINDOW_BYTES = 16 << 20
"""What is sent to the comparer of a set before it has said that it read any of it: less than channels hold."""
PLACES = 1 << 20
"""Places in a message: 8 MB."""


def party(me: Party, job: AligningJob, data: PartyData | None) -> AlignedRows:
    """A party's role, from its ids to its rows."""
    ring = job.way(me.name)
    own = Departure(_prepare(me.name, job, data), me.rng)  # the digests are let go of when the last one is blinded
    n_ids = _agree(me, job, own.n)
    patience = _Patience(me, job, n_ids)
    stays = _Tour(me, job, n_ids, patience, n_threads=1 if data is None else data.n_threads).round_the_ring(own)

    # The set that ended its way here is that of the next party.
    last = stays[-1]
    found: dict[str, Rows] = {}
    if me.name == job.comparer:
        found = _compare(me, job, n_ids, last, patience)
        n_common = _announce(me, job, found)
    else:
        _hand_over(me, job, n_ids, last, patience)
        n_common = _hear(me, job, min(n_ids.values()), patience)

    rows = np.empty(n_common, np.int64)
    for start in range(0, n_common, PLACES):
        stop = min(start + PLACES, n_common)
        for owner, places in found.items():
            end = job.way(owner)[-1]
            if end != me.name:
                me.send(end, CommonPlaces(owner, places[start:stop]))
        mine = found[last.owner][start:stop] if found else None
        rows[start:stop] = _way_back(me, job, ring, stays, own, mine, stop - start, patience.for_places())
    if len(np.unique(rows)) < n_common:
        raise ProtocolError(f"{me.name} was told some of its rows twice")
    return AlignedRows(me.name, rows, n_ids, n_common)


class _Patience:
    """How long to wait for each message: the job's deadline, and what a slow machine needs for the work before it.

    That work is two blocks of each party, or what is done with points that have been round the ring, where everybody
    multiplied them. So an announced number of ids alone makes nobody wait. Who only says to be at work on such a number
    gains the time to shuffle it once: 100 seconds for `most_ids` as it is unless told otherwise.
    """

    def __init__(self, me: Party, job: AligningJob, n_ids: Mapping[str, int]) -> None:
        self._me = me
        self._n_parties, self._n_points = len(n_ids), sum(n_ids.values())
        self._turn = 2 * self._n_parties * job.block / POINTS_PER_SECOND
        self._shuffle = max(n_ids.values()) / MOVED_PER_SECOND

    def for_turn(self, *, after_shuffle: bool) -> float:
        """For the next block: everybody may have to multiply two before it, or to shuffle a set."""
        return self._deadline() + self._turn + (self._shuffle if after_shuffle else 0.0)

    def for_comparer(self) -> float:
        """For the comparer to read a block of every set, which it may have to wait for itself."""
        return 2.0 * self.for_turn(after_shuffle=True)

    def for_verdict(self) -> float:
        """For the comparer to compare all points."""
        return self._deadline() + self._n_points / SORTED_PER_SECOND

    def for_places(self) -> float:
        """For the next part of the places, which all parties translate."""
        return self._deadline() + self._n_parties * PLACES / SORTED_PER_SECOND

    def _deadline(self) -> float:
        return self._me.common_deadline()()


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

    def __init__(
        self, me: Party, job: AligningJob, n_ids: Mapping[str, int], patience: _Patience, n_threads: int
    ) -> None:
        self._me = me
        self._job = job
        self._n_ids = n_ids
        self._patience = patience
        self._n_threads = n_threads
        self._key = BlindingKey.generate(me.rng)
        ring = job.way(me.name)
        self._next, self._before = ring[1], ring[-1]
        self._owners = tuple(reversed(ring[1:]))  # whose sets come here, in this order
        self._n_turns = max(job.n_blocks(n) for n in n_ids.values())
        self._done = 0
        self._total = sum(job.n_blocks(n) for n in n_ids.values())

    def round_the_ring(self, own: Departure) -> list[Stay]:
        """Send and receive in all phases. Returns the sets that came here; the last one still holds its points."""
        blocks = self._counted(own.blocks(self._key, self._job.block, n_threads=self._n_threads))
        leaving = own.owner
        stays: list[Stay] = []
        for owner in self._owners:
            arriving = Stay(self._n_ids[owner], self._me.rng, owner=owner, sender=self._before)
            for turn in range(self._n_turns):
                points = next(blocks, None)
                self._me.send(self._next, AtWork() if points is None else BlindedIds(leaving, points))
                self._receive(arriving, self._patience.for_turn(after_shuffle=turn == 0 and bool(stays)))
            next(blocks, None)  # nothing is left, and the digests are let go of
            if stays:
                stays[-1].release()
            stays.append(arriving)
            leaving, blocks = owner, arriving.blocks(self._job.block)
        return stays

    def _receive(self, arriving: Stay, patience: float) -> None:
        """The next block, unless all have come: then the party before says that it is still at work."""
        n_points = min(self._job.block, arriving.missing)
        if not n_points:
            self._me.recv(self._before, AtWork, timeout=patience)
            return
        points = receive_block(self._me, self._before, BlindedIds, arriving.owner, n_points, patience)
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


def _compare(me: Party, job: AligningJob, n_ids: Mapping[str, int], last: Stay, patience: _Patience) -> dict[str, Rows]:
    """The comparer's side: where in each set the ids stand that all have.

    In each round it takes a block of every set that has more, and then says that it did.
    """
    others = [name for name in job.parties if name != me.name]
    whole = last.points()
    blocks: dict[str, list[Points]] = {owner: [] for owner in _handed_over(job)}  # only what has come takes memory
    for k in range(_n_rounds(job, n_ids)):
        for owner, parts in blocks.items():
            n_points = min(job.block, n_ids[owner] - k * job.block)
            if n_points > 0:
                wait = patience.for_turn(after_shuffle=k == 0)
                parts.append(receive_block(me, job.way(owner)[-1], FullyBlinded, owner, n_points, wait))
        me.send_all(others, BlocksRead())
    sets = {last.owner: whole}
    while blocks:  # each is let go of as soon as it is in one piece
        owner, parts = blocks.popitem()
        sets[owner] = np.concatenate(parts)
    found = common_places(sets)
    last.release()
    return found


def _hand_over(me: Party, job: AligningJob, n_ids: Mapping[str, int], last: Stay, patience: _Patience) -> None:
    """The others' side: all points of a set, never more than a window ahead of the comparer."""
    window = max(1, WINDOW_BYTES // (POINT_BYTES * job.block))
    blocks = last.blocks(job.block)
    for k in range(_n_rounds(job, n_ids) + window):
        points = next(blocks, None)
        if points is not None:
            me.send(job.comparer, FullyBlinded(last.owner, points))
        if k >= window:
            me.recv(job.comparer, BlocksRead, timeout=patience.for_comparer())
    last.release()


def _handed_over(job: AligningJob) -> list[str]:
    """Whose sets are sent to the comparer: all but the one that ends its way there."""
    return [owner for owner in job.parties if job.way(owner)[-1] != job.comparer]


def _n_rounds(job: AligningJob, n_ids: Mapping[str, int]) -> int:
    return max(job.n_blocks(n_ids[owner]) for owner in _handed_over(job))


def _announce(me: Party, job: AligningJob, found: Mapping[str, Rows]) -> int:
    n_common = len(found[me.name])
    enough = n_common >= job.minimum
    me.send_all([name for name in job.parties if name != me.name], Verdict(enough, n_common if enough else -1))
    if not enough:
        raise too_few(me.name, job)
    return n_common


def _hear(me: Party, job: AligningJob, smallest: int, patience: _Patience) -> int:
    verdict = me.recv(job.comparer, Verdict, timeout=patience.for_verdict(), most_common=smallest)
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
    """A part of all places: undo this party's shuffle of every set that was here. Returns its own rows.

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
