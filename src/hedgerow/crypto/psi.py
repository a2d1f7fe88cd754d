"""Which records do all parties hold? Private set intersection by Diffie-Hellman, for two or more parties.

    anna's ids   --anna--> ka H(x) --ben--> ka kb H(x) --carla--> ka kb kc H(x) --,     each arrow blinds with the
    ben's ids    --ben-->  kb H(x) --carla--> ...      --anna-->  ka kb kc H(x) --+--   party's key and shuffles
    carla's ids  --carla-> kc H(x) --anna-->  ...      --ben-->   ka kb kc H(x) --'     > the comparer

1. Ids become digests by an agreed rule (`hedgerow.crypto.identifiers`), digests become points (`BlindingKey.blind`).
2. Every party's set goes once round the ring of all parties, beginning at its owner (`way_round`). Each party
   multiplies every point with its own secret key for this run (`blind`, `reblind`) and passes the set on in a random
   order of its own. The owner draws this order first and sends block after block as they are made (`Departure`); the
   others cannot pass on anything before all points have come (`shuffled`).
3. The last party on each way sends the set to the comparer, one of the parties. Equal ids are now equal points. The
   comparer finds the points that all sets have, sorts them by value, and notes in this order at which place of
   each set they stand (`common_places`).
4. The places of each set go back the way it came. Each party undoes its own shuffle (`restored`). The owner ends up
   with its own rows, in an order that is the same at all parties.

The group is NIST P-256, of prime order n, by the ECDH of the `cryptography` package (OpenSSL). A point is sent as its
x coordinate: k(-P) = -(kP), so x(kP) is well defined by x(P). Every 32 bytes are either the x of exactly one pair
P, -P, or refused. There is no small subgroup, the neutral element cannot be written, and keys are from 1 .. n - 1.

H(x): the digest and a counter go through SHA-256 until the 32 bytes are an x coordinate. If SHA-256 is a random
function, this is uniform among all x coordinates, exactly, and nobody knows a discrete logarithm of H(x).


Who learns what, if all follow the protocol (honest but curious)

    every party     the number of ids of every party; which of its own ids all parties hold, and their common order
    the comparer    also the number of ids that any group of the parties has in common, as numbers: not which ids,
                    not even which of its own. With two parties this is the size of the result, so nothing more
    nobody          which of its ids some but not all of the others hold, unless the numbers leave no other possibility

Parties that put together what they saw learn at most what the comparer learns: the result, and the numbers for groups.
This holds for all parties but one, too. But numbers say more to those who know more: parties that know each other's
ids know for each id which of them hold it, and learn how many ids of each such kind the others hold. If only one id is
of a kind, they learn whether the others hold that one.

Why. Let K be a product of keys that holds at least one key which the observer does not know. All keys are uniform and
independent, so K is uniform to the observer. By the decisional Diffie-Hellman assumption on P-256, and with SHA-256 as
a random function, the points K H(x) for distinct x cannot be told from independent uniform points, nor can those for
several independent K, even for the same x and by one who knows all x and H(x): a table of K_i H(x_j) cannot be told
from a table of independent uniform points, by one step for each K_i. (Dropping the sign of the y coordinate can only
take from who wants to tell them apart.)
 a. Party j receives the set of party i under K_i = k_i ... k_(j-1), indices round the ring. K_i = k_i K_(i+1) with k_i
    in no other K_(i') between i and j, so the K_i are independent and uniform. Each is used for one set. So what j
    receives in 2 looks like lists of uniform points, and shows their lengths only.
 b. The comparer c also sees all sets under the product of all keys. It can divide by its own, so it has them under
    K* = K_(c+1), which by a is uniform and independent of the other K_i: lists of uniform points, some of them equal.
    The set of c+1 ends at c, who made that list itself. Every other set came through the shuffle of at least one other
    party after c had it, so its places say nothing about those that c knew. What remains is which points are equal,
    up to the order in each list: how many ids each group of parties has in common.
 c. In 4, a party sees places after its own shuffle and computes those before it. Both name points that belong to the
    result. The party knows them to be so, and by the common order also which of its own ids they are. It learns
    K H(x) for some x that it knew to be in that set. This tells nothing about K H(x') by the assumption. A place before
    the shuffle is one in the order of the party before, which is random too, and for the first party after the owner
    it is one in the owner's own random order, not a row of its table.
 d. The common order is that of uniform points, whatever the order and the values of the ids.
 e. Some parties together see sets under products of the others' keys. One step for each of these keys shows that points
    under different products look independent and uniform, also where one product is part of another. What shows is
    which points of two sets under the same product are equal. Whoever's key is in the product has shuffled both sets,
    so this is again a number for a group of parties. All but party h have all sets under k_h, as in b. Fewer have
    fewer, but perhaps some even without the comparer: ben and carla of the picture have the sets of anna and of carla
    under anna's key (carla can take hers off), and so the number of ids that anna and carla have in common.

What is not claimed
 - Anything against a party that departs from the protocol. It may send ids that it does not hold (with a list of all
   possible ids it learns which of them are in the result), send sets of its choice round the ring, or spoil the result.
   What is checked: every point that is multiplied is on the curve (whose order is prime, so there are no small groups
   to be forced into), numbers of points, no point twice in a set, places in range.
 - That numbers are harmless. A small result, or one as large as a set, speaks about single persons.
 - Constant time. OpenSSL multiplies with a secret key on P-256 in constant time where it has code for this curve
   (x86-64, ARM64 and others), and with a Montgomery ladder elsewhere. Making H(x) takes a number of tries that depends
   on the id, about two, and square roots in variable time. It happens at the owner, on a block of ids in random order
   at a time; who measures how long a block took learns about the sum of tries over that block. With blocks of a few
   ids that could tell points of guessed ids apart, so blocks are large. Sorting and normalising are not in constant
   time either.
 - Erasure of keys, which Python cannot promise. A key is for one run: under one key, the same ids give the same points.

Cost: a party multiplies as many points as all parties have ids together, once each, and sends 32 bytes for each. Blocks
are multiplied by whatever a `Blinder` is: threads of this process, or other processes of the party's own. Threads help
as far as `cryptography` lets go of Python's lock: its recent versions do so in ECDH, which is half to three quarters of
the time, but not while they decode a point. Sets that do not fit memory are shuffled and compared in piles
(`hedgerow.crypto.piles`); what stays in memory is an order of each set, 4 bytes for each point (8 where there are more
than 2^31). Both are a party's own affair: sets still travel whole and shuffled, and no message depends on it. Why this
group and this package: docs/decisions/0013-record-linkage.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric import ec

from hedgerow.crypto.csprng import SecureRandom, Unshared
from hedgerow.crypto.identifiers import Bytes32, PreparedIds, Rows, sorted_runs
from hedgerow.crypto.piles import Gathered, Room, first_bits, in_one_piece, in_piles, n_piles_for, number_type
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

POINT_BYTES = 32
BLOCK = 1 << 14
"""Points in a block, unless told otherwise: half a megabyte, and about a second of work."""
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Number of elements of the group, a prime."""

Points = Bytes32
"""x coordinates, big-endian: uint8 [n, 32]."""
Order = npt.NDArray[np.signedinteger[Any]]
"""Of a set: the number of what stands at each place."""

Later = Callable[[], Points]
"""The product of a block that may not be there yet: waits for it."""

_CURVE = ec.SECP256R1()
_ECDH = ec.ECDH()
_EITHER_SIGN = b"\x02"  # SEC 1: a compressed point, of the two with this x the one whose y is even
_LABEL = b"hedgerow psi point v1"
_MAX_TRIES = 256  # each fails with probability 1/2


def to_point(digest: bytes) -> ec.EllipticCurvePublicKey:
    """H: the point of a digest.

    1. x = SHA-256(label, counter, digest) for counter = 0, 1, 2, ...
    2. The first x that is on the curve: that of a uniform point, up to its sign.
    """
    for counter in range(_MAX_TRIES):
        point = _decoded(hashlib.sha256(_LABEL + bytes([counter]) + digest).digest())
        if point is not None:
            return point
    raise AssertionError("256 coins in a row fell on one side")


def _decoded(x: bytes) -> ec.EllipticCurvePublicKey | None:
    """The point with this x coordinate, None if there is none."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, _EITHER_SIGN + x)
    except ValueError:
        return None


def secret_number(random: SecureRandom) -> int:
    """What a new key is made of: uniform in 1 .. n - 1."""
    return 1 + random.integer(ORDER - 1)


class BlindingKey(Unshared):
    """A party's secret number k for one run; multiplies points with it. It cannot be stored.

    `blind` and `reblind` are functions of their block alone, so blocks may come in any order and on any thread.
    """

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        super().__init__()
        self._private = private

    @classmethod
    def generate(cls, random: SecureRandom | None = None) -> BlindingKey:
        """A new key from the operating system's randomness or a party's generator."""
        return cls.from_number(secret_number(random or SecureRandom()))

    @classmethod
    def from_number(cls, number: int) -> BlindingKey:
        """The key of a given number: that of its party in other processes of the party's own, and in tests."""
        if not 1 <= number < ORDER:
            raise InvalidParameter("the number of a blinding key must be between 1 and the order of the group less 1")
        return cls(ec.derive_private_key(number, _CURVE))

    def __repr__(self) -> str:
        return "BlindingKey(hidden)"

    def blind(self, digests: Bytes32, *, n_threads: int = 1) -> Points:
        """k H(x) for a block of the party's own digests."""
        private = self._key()

        def one(digest: bytes) -> bytes:
            return private.exchange(_ECDH, to_point(digest))

        return _each(one, _checked(digests, "digests"), n_threads)

    def reblind(self, points: Points, *, sender: str, n_threads: int = 1) -> Points:
        """k P for a block of points that `sender` sent; ProtocolError if any of them is not in the group."""
        private = self._key()

        def one(x: bytes) -> bytes:
            point = _decoded(x)
            return b"" if point is None else private.exchange(_ECDH, point)

        return _each(one, _checked(points, f"points from {sender}"), n_threads, sender)

    def _key(self) -> ec.EllipticCurvePrivateKey:
        with self.turn():  # refuses a forked process; two threads may multiply at the same time
            return self._private


class Blinder(Protocol):
    """Multiplies blocks with a party's key, somewhere; a next one can be started before the last one is there."""

    def blind(self, digests: Bytes32) -> Later:
        """k H(x) for a block of the party's own digests."""
        ...

    def reblind(self, points: Points, sender: str) -> Later:
        """k P for a block of points that `sender` sent; ProtocolError if any of them is not in the group."""
        ...


class BlinderHere:
    """Multiplies in this process, when the product is asked for."""

    def __init__(self, key: BlindingKey, n_threads: int = 1) -> None:
        self._key, self._n_threads = key, n_threads

    def blind(self, digests: Bytes32) -> Later:
        """k H(x) for a block of the party's own digests."""
        return lambda: self._key.blind(digests, n_threads=self._n_threads)

    def reblind(self, points: Points, sender: str) -> Later:
        """k P for a block of points that `sender` sent."""
        return lambda: self._key.reblind(points, sender=sender, n_threads=self._n_threads)


def one_ahead(started: Iterable[Later]) -> Iterator[Points]:
    """The products of blocks, in order; each is waited for when the next one has been started."""
    before: Later | None = None
    for after in started:
        if before is not None:
            yield before()
        before = after
    if before is not None:
        yield before()


def _each(one: Callable[[bytes], bytes], table: Bytes32, n_threads: int, sender: str = "") -> Points:
    """`one` applied to every row, the rows dealt out in as many parts as threads."""
    if n_threads < 1:
        raise InvalidParameter(f"n_threads must be at least 1, got {n_threads}")

    def several(part: Bytes32) -> list[bytes]:
        data = part.tobytes()
        return [one(data[start : start + POINT_BYTES]) for start in range(0, len(data), POINT_BYTES)]

    if n_threads == 1 or len(table) < 2 * n_threads:
        made = several(table)
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            made = [x for part in pool.map(several, np.array_split(table, n_threads)) for x in part]
    if invalid := made.count(b""):
        raise ProtocolError(f"{sender} sent {invalid} points of {len(made)} that are not in the group")
    return np.frombuffer(b"".join(made), np.uint8).reshape(-1, POINT_BYTES)


def _checked(table: Bytes32, what: str) -> Bytes32:
    if not isinstance(table, np.ndarray) or table.dtype != np.uint8:
        raise InvalidType(f"{what} must be an array of uint8, got {getattr(table, 'dtype', type(table).__name__)}")
    if table.ndim != 2 or table.shape[1] != POINT_BYTES:
        raise ProtocolError(f"{what} must have the shape [n, {POINT_BYTES}], got {list(table.shape)}")
    return table


def way_round(parties: Sequence[str], owner: str) -> tuple[str, ...]:
    """The parties in the order in which the set of `owner` visits them: round the ring of sorted names."""
    ring = sorted(parties)
    if len(ring) < 2 or len(set(ring)) < len(ring):
        raise InvalidParameter(f"records are linked among two or more parties with different names, got {ring}")
    if owner not in ring:
        raise InvalidParameter(f"owner must be one of {ring}, got {owner!r}")
    start = ring.index(owner)
    return (*ring[start:], *ring[:start])


class Departure:
    """A party's own set: its digests leave blinded and in a random order, each block as soon as it is made.

    1. `blocks(blinder, size)`: the points of the set, blinded, in an order that was drawn before the first one.
    2. `restored(places)`: later, places in this order become rows of the party's table.
    """

    def __init__(self, prepared: PreparedIds, random: SecureRandom, room: Room = np.empty) -> None:
        self.n = len(prepared)
        self.owner = prepared.party
        self._rows = prepared.rows if len(prepared) < prepared.n_rows else None  # None: every row has an id of its own
        self._digests: Bytes32 | None
        self._digests, self._order = shuffled([prepared.digests], random, room)  # which id leaves first, second, ...

    def __repr__(self) -> str:
        return f"Departure(set of {self.owner}, {self.n} points)"

    def blocks(self, blinder: Blinder, size: int = BLOCK) -> Iterator[Points]:
        """The blinded points, in blocks of at most `size`. Goes through once; digests are let go of at the end."""
        if self._digests is None:
            raise ProtocolError(f"the points of {self.owner} were already released")
        yield from one_ahead(blinder.blind(self._digests[start : start + size]) for start in range(0, self.n, size))
        self._digests = None

    def restored(self, places: Rows) -> Rows:
        """The rows whose ids stand at these places of the order; the order of the list is kept."""
        numbers = restored(self._order, places, self.owner)
        return numbers if self._rows is None else self._rows[numbers]


def shuffled(blocks: list[Points], random: SecureRandom, room: Room = np.empty) -> tuple[Points, Order]:
    """All points of a set in a random order, and for each place which of them stands there, counted by arrival.

    The list is emptied: each block is let go of as soon as its points are in their places. Where the set is large,
    points go into piles of neighbouring places first, and then to their places pile by pile.
    """
    blocks[:] = [_checked(block, "points") for block in blocks]
    n = sum(map(len, blocks))
    n_piles = n_piles_for(n)
    arrival = random_order(n, random, room)
    place = np.empty_like(arrival)
    for start in range(0, n, BLOCK):
        part = arrival[start : start + BLOCK]
        place[part] = np.arange(start, start + len(part), dtype=place.dtype)
    made = room if n_piles > 1 else np.empty
    points = made((n, POINT_BYTES), np.uint8)
    of_pile = max(1, -(-n // n_piles))
    dealt = in_piles(blocks, lambda first, rows: place[first : first + len(rows)] // of_pile, n_piles, room)
    for rows, numbers in dealt:
        if len(rows):
            points[place[numbers]] = rows
    return points, arrival


def restored(order: Order, places: Rows, owner: str) -> Rows:
    """What stands at these places of an order of the set of `owner`; the order of the list is kept."""
    check_places(places, len(order), owner)
    return order[places].astype(np.int64)


def check_places(places: Rows, n: int, owner: str) -> None:
    """Refuse what are not different places of a set of n points."""
    if not isinstance(places, np.ndarray) or places.dtype != np.int64 or places.ndim != 1:
        raise InvalidType(f"places of the set of {owner} must be a list of int64")
    if len(places) and not (places.min() >= 0 and places.max() < n):
        raise ProtocolError(f"places of the set of {owner} must be between 0 and {n - 1}")
    if repeated := len(places) - len(np.unique(places)):
        raise ProtocolError(f"the places of the set of {owner} hold {repeated} twice")


def random_order(n: int, random: SecureRandom, room: Room = np.empty) -> Order:
    """A uniform permutation: the order of n random words, which are drawn again should two be equal."""
    n_piles = n_piles_for(n)
    while True:
        words = Gathered(room)
        for start in range(0, n, BLOCK):
            words.add(random.words(min(BLOCK, n - start)))
        order = np.empty(n, number_type(n))
        filled, tied = 0, False
        for drawn, numbers in in_piles(words.taken(), lambda _, part: first_bits(part, n_piles), n_piles, room):
            within = np.argsort(drawn, kind="stable")
            in_order = drawn[within]
            tied |= bool(np.any(in_order[1:] == in_order[:-1]))
            order[filled : filled + len(numbers)] = numbers[within]
            filled += len(numbers)
        if not tied:
            return order


# --- comparing -------------------------------------------------------------------------------------------------------


def common_places(sets: Mapping[str, Points | list[Points]], room: Room = np.empty) -> dict[str, Rows]:
    """For the comparer: where in each fully blinded set the points stand that all sets have, sorted by their value.

    A set is given in one piece, or as a list of blocks, which is emptied. Blinded points are uniform, so large sets are
    compared pile by pile, by the first bits of their values: what all piles give, one after the other, is in order.
    """
    owners = sorted(sets)
    if len(owners) < 2:
        raise InvalidParameter(f"two or more sets are compared, got {len(owners)}")
    blocks = {owner: given if isinstance(given := sets[owner], list) else [given] for owner in owners}
    for owner, parts in blocks.items():
        parts[:] = [_checked(part, f"the set of {owner}") for part in parts]
    sizes = {owner: sum(map(len, parts)) for owner, parts in blocks.items()}
    n_piles = n_piles_for(sum(sizes.values()))

    def pile_of(_first: int, points: Points) -> npt.NDArray[Any]:
        return first_bits(np.ascontiguousarray(points[:, :8]).view(">u8")[:, 0].astype(np.uint64), n_piles)

    piles = [in_piles(blocks[owner], pile_of, n_piles, room) for owner in owners]
    found = {owner: Gathered(room) for owner in owners}
    repeated = dict.fromkeys(owners, 0)
    for of_sets in zip(*piles, strict=True):
        for owner, (points, _) in zip(owners, of_sets, strict=True):
            _check_spread(len(points), sizes[owner], n_piles, owner)
        places, twice = _common_here([points for points, _ in of_sets])
        for owner, (_, numbers), own, n_twice in zip(owners, of_sets, places, twice, strict=True):
            repeated[owner] += n_twice
            found[owner].add(numbers[own].astype(np.int64))
    for owner in owners:
        if repeated[owner]:
            raise ProtocolError(f"the set of {owner} holds {repeated[owner]} points of {sizes[owner]} twice")
    return {owner: in_one_piece(found[owner].taken(), room) for owner in owners}


def _check_spread(n_here: int, n: int, n_piles: int, owner: str) -> None:
    """Refuse a set with far more points in a pile than blinded ones would have: it is to fit memory."""
    expected = n / n_piles
    most = expected + 12 * math.sqrt(expected) + 32  # of uniform points, with all but a chance of 1 in 2**80
    if n_piles > 1 and n_here > most:
        raise ProtocolError(f"the points of the set of {owner} are not spread as blinded points are")


def _common_here(tables: list[Points]) -> tuple[list[Rows], list[int]]:
    """Where in each table the points stand that all have, sorted by value; and how many each has twice.

    1. All in one list, sorted. Equal points are now neighbours, in the order of the tables they are from.
    2. No table may hold a point twice. So a point that occurs as often as there are tables is in all of them.
    """
    ends = np.cumsum([len(table) for table in tables])
    order, is_new = sorted_runs(np.concatenate(tables))
    from_table = np.searchsorted(ends, order, side="right")
    is_repeated = ~is_new[1:] & (from_table[1:] == from_table[:-1])
    repeated = np.bincount(from_table[1:][is_repeated], minlength=len(tables))
    starts = np.flatnonzero(is_new)
    lengths = np.diff(starts, append=len(order))
    in_all = starts[lengths == len(tables)]
    # Sorting is stable: within a run, the i-th is that of the i-th table.
    firsts = [end - len(table) for end, table in zip(ends.tolist(), tables, strict=True)]
    return [order[in_all + i] - first for i, first in enumerate(firsts)], repeated.tolist()
