"""vertical.aligning: its job, ids as one array, and one party's side of the conversation, with the comparer's.

    phase      0            1            ...   M - 2          sends to the next party, block by block:
    sends      own set      anna's       ...   ...            the set that came in the phase before
    receives   anna's       zoe's        ...   last set       from the party before, where anna is, and before her zoe

Every phase has as many turns as the largest set has blocks. In each turn a party sends one message and takes one: a
block, which it multiplies at once, or `AtWork` where a smaller set has ended. Nobody gets ahead of the party before by
more than a turn, and so a message is due after a few blocks' work, however many ids were announced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hedgerow.codec import AsJson
from hedgerow.crypto.identifiers import Duplicates, IdRule, PreparedIds, Rows, prepare_ids
from hedgerow.crypto.piles import Gathered
from hedgerow.crypto.psi import (
    BLOCK,
    POINT_BYTES,
    Blinder,
    BlinderHere,
    BlindingKey,
    Departure,
    Order,
    Points,
    common_places,
    one_ahead,
    restored,
    secret_number,
    shuffled,
    way_round,
)
from hedgerow.engine.scratch import Scratch
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.services.align import messages
from hedgerow.protocols.vertical.common.agreement import check_parties
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import Job, PartyData, Settled, option

NAME = "vertical.aligning"
PARTY = "party"
SMALLEST_BLOCK = 256
"""How long a block of few ids takes would show something about them (`hedgerow.crypto.psi`, constant time)."""
LARGEST_BLOCK = 1 << 20
MOST_IDS = 100_000_000

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


def _number(default: int, least: int, most: int, meaning: str) -> Any:
    return option(default, meaning, words=f"a whole number from {least} to {most}", at_least=least, at_most=most)


def _parse_rule(protocol: str, given: Any) -> dict[str, Any]:
    if isinstance(given, IdRule):
        return given.to_dict()
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"{protocol}: rule must be an id rule as a dict, got {type(given).__name__}")
    return IdRule.from_dict(given).to_dict()


@dataclass(frozen=True)
class AligningJob(Job):
    """What to compare, and how. Nothing in it is secret."""

    NAME = NAME

    parties: tuple[str, ...]
    run_id: str  # part of every digest, so that those of two runs differ
    comparer: str = option("", "the party that compares; the first, unless another one is named")
    rule: Mapping[str, Any] | None = option(None, "how ids are written before they are compared", parse=_parse_rule)
    duplicates: Duplicates = option("refuse", "an id that stands in two rows", words="'refuse' or 'first'")
    minimum: int = _number(2, 1, 2**62, "common ids that there must be before anybody learns any of them")
    column: str = option("id", "what errors call the column of ids")
    block: int = _number(BLOCK, SMALLEST_BLOCK, LARGEST_BLOCK, "points in a message")
    most_ids: int = _number(
        MOST_IDS, 1, 2**31 - 1, "that any party may bring: what a peer may make the others wait and store for"
    )

    def check(self) -> None:
        """Who compares, and by which rule."""
        check_parties(NAME, self.parties)
        if not self.comparer:
            object.__setattr__(self, "comparer", self.parties[0])
        if self.comparer not in self.parties:
            raise InvalidParameter(f"{NAME}: comparer must be one of {list(self.parties)}, got {self.comparer!r}")
        if self.rule is None:
            object.__setattr__(self, "rule", IdRule().to_dict())

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """A job of these options, of which None stands for the default."""
        given = {name: value for name, value in options.items() if value is not None}
        return cls(parties=settled.parties, run_id=settled.run_id, **given)

    @property
    def id_rule(self) -> IdRule:
        """The rule as an object."""
        return IdRule.from_dict(self.rule or {})

    def others_than(self, party: str) -> tuple[str, ...]:
        """All parties but one."""
        return tuple(name for name in self.parties if name != party)

    def way(self, owner: str) -> tuple[str, ...]:
        """The parties in the order in which a set visits them."""
        return way_round(self.parties, owner)

    def n_blocks(self, n_ids: int) -> int:
        """Messages that a set of this many points takes."""
        return -(-n_ids // self.block)

    @property
    def cast(self) -> Mapping[str, str]:
        """The comparer, who listens, then the others."""
        return dict.fromkeys((self.comparer, *self.others_than(self.comparer)), PARTY)

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Everybody with the comparer, and round the ring; each pair once."""
        links = list(super().links)
        known = {frozenset(pair) for pair in links}
        ring = self.way(self.comparer)
        for pair in zip(ring, (*ring[1:], ring[0]), strict=True):
            if frozenset(pair) not in known:
                known.add(frozenset(pair))
                links.append(pair)
        return tuple(links)


@dataclass(frozen=True, eq=False)
class AlignedRows(AsJson):
    """One party's result. The k-th entry of `rows` is the same record at every party."""

    party: str
    rows: Rows  # positions in the party's own table
    n_ids: Mapping[str, int]  # different ids, of every party
    n_common: int

    def __repr__(self) -> str:
        return f"AlignedRows({self.party!r}, {self.n_common} common ids of {self.n_ids})"


# --- ids as one array ------------------------------------------------------------------------------------------------


_BYTE = np.dtype("V1")  # bytes that are no numbers, so that small whole numbers as ids are not taken for them
_LOOKED_AT = 1 << 22  # bytes, for the ends of lines


def packed(blocks: Iterable[Sequence[str | int | bool | None]]) -> npt.NDArray[np.void]:
    """Ids as bytes: a line with a JSON list for each block, so that nobody has to hold all of them as Python values.

    An array of numpy's own texts would be as wide as the longest everywhere.
    """
    lines = bytearray()
    for block in blocks:
        lines += json.dumps(block).encode() + b"\n"
    return np.frombuffer(lines, _BYTE)


def unpacked(ids: npt.NDArray[np.generic]) -> Iterable[Any]:
    """The ids of an array: those that were packed, or those of any other array as they are."""
    if ids.dtype != _BYTE:
        return ids
    return (value for line in _lines(ids.view(np.uint8)) for value in json.loads(line))


def _lines(data: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    start = 0
    for first in range(0, len(data), _LOOKED_AT):
        for stop in (first + np.flatnonzero(data[first : first + _LOOKED_AT] == ord("\n"))).tolist():
            yield data[start:stop].tobytes()
            start = stop + 1


def party(me: Party, job: AligningJob, data: PartyData | None) -> AlignedRows:
    """A party's role, from its ids to its rows."""
    own = Departure(_prepare(me.name, job, data), me.rng, scratch)  # digests are let go of when the last is blinded
    with _blinder(me, data) as blinder:
        aligning = _Aligning(me, job, _agree(me, job, own.n))
        orders, points = aligning.round_the_ring(own, blinder)
    *_, last = orders  # the set that ended its way here is that of the next party
    found: dict[str, Rows] = {}
    if me.name == job.comparer:
        found = aligning.compare(last, points)
        n_common = aligning.announce(len(found[me.name]))
    else:
        aligning.hand_over(last, points)
        n_common = aligning.hear()
    del points

    rows = np.empty(n_common, np.int64)
    for start in range(0, n_common, PLACES):
        stop = min(start + PLACES, n_common)
        for owner, places in found.items():
            end = job.way(owner)[-1]
            if end != me.name:
                me.send(end, messages.CommonPlaces(owner, places[start:stop]))
        mine = found[last][start:stop] if found else None
        rows[start:stop] = aligning.way_back(orders, own, mine, stop - start)
    is_told = np.zeros(1 + int(rows.max(initial=0)), np.bool_)
    is_told[rows] = True
    if np.count_nonzero(is_told) < n_common:
        raise ProtocolError(f"{me.name} was told some of its rows twice")
    return AlignedRows(me.name, rows, aligning.n_ids, n_common)


def scratch(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Room for a part of a set that does not fit memory: a file without a name, in the folder for temporary files."""
    return Scratch(instead="name another folder in the environment variable TMPDIR").empty(shape, dtype)


@contextmanager
def _blinder(me: Party, data: PartyData | None) -> Iterator[Blinder]:
    """What multiplies with a new key of this party's: this process, or actors on a cluster of its own."""
    number = secret_number(me.rng)
    if data is None or data.backend is None:
        yield BlinderHere(BlindingKey.from_number(number), 1 if data is None else data.n_threads)
        return
    from hedgerow.protocols.services.align.on_ray import RayBlinder, crew_of

    with crew_of(data.backend, me.name, number) as crew:
        yield RayBlinder(crew, data.backend.threads)


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
        room=scratch,
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
    described = messages.IdsDescription(fingerprint, n_ids)
    if me.name != job.comparer:
        me.send(job.comparer, described)
        # The comparer may first have to wait for another party.
        sizes = {"n_parties": len(job.parties), "most_ids": job.most_ids}
        agreed = me.recv(job.comparer, messages.IdsAgreed, timeout=2.5 * me.common_deadline()(), **sizes)
        told = dict(zip(agreed.parties, agreed.n_ids.tolist(), strict=True))
        if set(told) != set(job.parties) or told[me.name] != n_ids:
            raise ProtocolError(f"{me.name} was told numbers of ids that are not those of this job's parties")
        return {name: told[name] for name in job.parties}
    counts = {}
    left = me.common_deadline()
    for name in job.parties:
        said = described
        if name != me.name:
            said = me.recv(name, messages.IdsDescription, timeout=left(), most_ids=job.most_ids)
        if said.rule != fingerprint:
            raise InvalidInput(
                f"{name}: writes ids by another rule than {me.name} (fingerprints {said.rule!r} and "
                f"{fingerprint!r}); give all parties the same id rule"
            )
        counts[name] = said.n_ids
    me.send_all(job.others_than(me.name), messages.IdsAgreed(tuple(counts), np.array(list(counts.values()), np.int64)))
    return counts


class _Aligning:
    """One party's side from then on, and how long it waits for each message.

    That is the job's deadline, and what a slow machine needs for the work before the message: two blocks of each party,
    or what is done with points that have been round the ring, where everybody multiplied them. So an announced number
    of ids alone makes nobody wait. Who only says to be at work on such a number gains the time to shuffle it once: 100
    seconds for `most_ids` as it is unless told otherwise.
    """

    def __init__(self, me: Party, job: AligningJob, n_ids: dict[str, int]) -> None:
        self._me, self._job, self.n_ids = me, job, n_ids
        ring = job.way(me.name)
        self._next, self._before = ring[1], ring[-1]
        self._came_from = tuple(reversed(ring[1:]))  # whose sets come here, in this order
        self._done, self._total = 0, sum(job.n_blocks(n) for n in n_ids.values())
        self._handed_over = [owner for owner in job.parties if job.way(owner)[-1] != job.comparer]
        self._n_rounds = max(job.n_blocks(n_ids[owner]) for owner in self._handed_over)

    def _for_turn(self, *, after_shuffle: bool) -> float:
        """How long to wait for the next block: everybody may have to multiply two before it, or to shuffle a set."""
        turn = 2 * len(self.n_ids) * self._job.block / POINTS_PER_SECOND
        shuffle = max(self.n_ids.values()) / MOVED_PER_SECOND
        return self._me.common_deadline()() + turn + (shuffle if after_shuffle else 0.0)

    def _for_sorting(self, n_points: int) -> float:
        """How long to wait for somebody to bring so many points, or places, into order."""
        return self._me.common_deadline()() + n_points / SORTED_PER_SECOND

    def _received_block(
        self,
        sender: str,
        kind: type[messages.BlindedIds | messages.FullyBlinded],
        owner: str,
        n_points: int,
        wait: float,
    ) -> Points:
        """The next block of a set; every block but the last one is full."""
        message = self._me.recv(sender, kind, timeout=wait, owner_letters=len(owner), n_points=n_points)
        _check_owner(message, owner, sender)
        return message.points

    # --- 2: round the ring -------------------------------------------------------------------------------------------

    def round_the_ring(self, own: Departure, blinder: Blinder) -> tuple[dict[str, Order], Points]:
        """Send and receive in all phases. Returns the orders of the sets that came here, and the points of the last."""
        blocks = self._counted(own.blocks(blinder, self._job.block))
        leaving, points = own.owner, np.empty((0, POINT_BYTES), np.uint8)
        orders: dict[str, Order] = {}
        for owner in self._came_from:
            came = Gathered(scratch)  # only what has come takes memory, or space
            taken = self._passed_on(leaving, blocks, owner, after_shuffle=bool(orders))
            for theirs in self._counted(one_ahead(blinder.reblind(each, self._before) for each in taken)):
                came.add(theirs)
            blocks = iter(())
            del points  # they were sent
            points, orders[owner] = shuffled(came.taken(), self._me.rng, scratch)
            leaving, blocks = owner, self._in_blocks(points)
        return orders, points

    def _passed_on(
        self, leaving: str, blocks: Iterator[Points], owner: str, *, after_shuffle: bool
    ) -> Iterator[Points]:
        """Send the blocks of one set to the next party, in turn with those of the next set from the party before."""
        missing = self.n_ids[owner]
        for turn in range(max(self._job.n_blocks(n) for n in self.n_ids.values())):
            points = next(blocks, None)
            self._me.send(self._next, messages.AtWork() if points is None else messages.BlindedIds(leaving, points))
            wait = self._for_turn(after_shuffle=turn == 0 and after_shuffle)
            n_points = min(self._job.block, missing)
            missing -= n_points
            if n_points:
                yield self._received_block(self._before, messages.BlindedIds, owner, n_points, wait)
            else:  # all have come: the party before says that it is still at work
                self._me.recv(self._before, messages.AtWork, timeout=wait)
        next(blocks, None)  # nothing is left, and the digests are let go of

    def _in_blocks(self, points: Points) -> Iterator[Points]:
        return (points[start : start + self._job.block] for start in range(0, len(points), self._job.block))

    def _counted(self, blocks: Iterable[Points]) -> Iterator[Points]:
        for points in blocks:
            self._done += 1
            if self._me.name == self._job.comparer:
                self._me.report(self._done, self._total)
            yield points

    # --- 3: compare --------------------------------------------------------------------------------------------------

    def compare(self, last: str, points: Points) -> dict[str, Rows]:
        """The comparer's side: where in each set the ids stand that all have.

        In each round it takes a block of every set that has more, and then says that it did.
        """
        job = self._job
        sets = {owner: Gathered(scratch) for owner in self._handed_over}  # only what has come takes memory, or space
        for k in range(self._n_rounds):
            for owner, came in sets.items():
                n_points = min(job.block, self.n_ids[owner] - k * job.block)
                if n_points > 0:
                    wait = self._for_turn(after_shuffle=k == 0)
                    sender = job.way(owner)[-1]
                    came.add(self._received_block(sender, messages.FullyBlinded, owner, n_points, wait))
            self._me.send_all(job.others_than(job.comparer), messages.BlocksRead())
        return common_places({last: [points], **{owner: came.taken() for owner, came in sets.items()}}, scratch)

    def hand_over(self, last: str, points: Points) -> None:
        """The others' side: all points of a set, never more than a window ahead of the comparer."""
        job = self._job
        window = max(1, WINDOW_BYTES // (POINT_BYTES * job.block))
        blocks = self._in_blocks(points)
        for k in range(self._n_rounds + window):
            block = next(blocks, None)
            if block is not None:
                self._me.send(job.comparer, messages.FullyBlinded(last, block))
            if k >= window:  # it reads a block of every set, which it may have to wait for itself
                wait = 2.0 * self._for_turn(after_shuffle=True)
                self._me.recv(job.comparer, messages.BlocksRead, timeout=wait)

    def announce(self, n_common: int) -> int:
        """The comparer says how many ids are common, unless they are too few."""
        enough = n_common >= self._job.minimum
        verdict = messages.Verdict(enough, n_common if enough else -1)
        self._me.send_all(self._job.others_than(self._me.name), verdict)
        if not enough:
            raise too_few(self._me.name, self._job)
        return n_common

    def hear(self) -> int:
        """The others hear it."""
        job, wait = self._job, self._for_sorting(sum(self.n_ids.values()))
        most = min(self.n_ids.values())
        verdict = self._me.recv(job.comparer, messages.Verdict, timeout=wait, most_common=most)
        if not verdict.enough:
            raise too_few(self._me.name, job)
        if verdict.n_common < job.minimum:
            raise ProtocolError(f"{job.comparer} went on with fewer common ids than the smallest allowed number")
        return verdict.n_common

    # --- 4: the way back ---------------------------------------------------------------------------------------------

    def way_back(self, orders: dict[str, Order], own: Departure, mine: Rows | None, n_places: int) -> Rows:
        """A part of all places: undo this party's shuffle of every set that was here. Returns its own rows.

        The set that was here last comes first, from the comparer; the comparer has its places already (`mine`).
        """
        sender = self._job.comparer
        for owner, order in reversed(orders.items()):
            places = self._places(sender, owner, n_places, len(order)) if mine is None else mine
            self._me.send(self._before, messages.CommonPlaces(owner, restored(order, places, owner)))
            sender, mine = self._next, None
        return own.restored(self._places(sender, self._me.name, n_places, own.n))

    def _places(self, sender: str, owner: str, n_places: int, n_ids: int) -> Rows:
        """The next part of the places, which all parties translate."""
        sizes = {"owner_letters": len(owner), "n_places": n_places, "n_ids": n_ids}
        wait = self._for_sorting(len(self.n_ids) * PLACES)
        message = self._me.recv(sender, messages.CommonPlaces, timeout=wait, **sizes)
        _check_owner(message, owner, sender)
        return message.places


def _check_owner(
    message: messages.BlindedIds | messages.FullyBlinded | messages.CommonPlaces, owner: str, sender: str
) -> None:
    if message.owner != owner:
        raise ProtocolError(f"{sender} sent {message.NAME} of {message.owner!r} where the set of {owner} was due")


def too_few(name: str, job: AligningJob) -> InvalidInput:
    """What every party raises when the result would be too small to be shown."""
    return InvalidInput(
        f"{name}: fewer than {job.minimum} ids are common to all parties, so nobody was told which (minimum="
        f"{job.minimum}); are these ids of the same kind, and written alike by the id rule?"
    )
