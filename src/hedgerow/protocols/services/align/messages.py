"""The messages of vertical.aligning, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from hedgerow.ledger import Disclosure, Exact, Result
from hedgerow.transport.frames import Int64s, Message, UInt8s
from hedgerow.transport.ranges import Anything, Index, Shape, Within

Owner: TypeAlias = Annotated[str, Shape("owner_letters")]
Points: TypeAlias = Annotated[UInt8s, Shape("n_points", 32), Anything()]
"""Whether they are points of the group shows when they are multiplied (`hedgerow.crypto.psi`)."""


@dataclass(frozen=True, slots=True)
class Blinded(Disclosure):
    """Each value is multiplied with a secret key of this run: all that shows is how many there are."""

    PROTECTION: ClassVar[str] = "blinded with {under}, in random order"

    under: str = "a key that the receiver does not know"


@dataclass(frozen=True, slots=True)
class IdsDescription(Message, name="vertical.ids_description", version=1):
    """Party to comparer: how I write ids, and how many I have."""

    discloses = Exact("the party's number of different ids, and the fingerprint of its id rule")
    rule: Annotated[str, Shape(32)]
    n_ids: Annotated[int, Within(1, "most_ids")]


@dataclass(frozen=True, slots=True)
class IdsAgreed(Message, name="vertical.ids_agreed", version=1):
    """Comparer to party: all write ids by the same rule, and have so many."""

    discloses = Exact("every party's number of different ids")
    parties: Annotated[tuple[str, ...], Shape("n_parties")]
    n_ids: Annotated[Int64s, Shape("n_parties"), Within(1, "most_ids")]


@dataclass(frozen=True, slots=True)
class BlindedIds(Message, name="vertical.blinded_ids", version=1):
    """Party to next party: the next points of a set, multiplied with the keys of all parties that it has visited."""

    discloses = Blinded("a party's ids, of which only the number shows")
    owner: Owner
    points: Points


@dataclass(frozen=True, slots=True)
class AtWork(Message, name="vertical.aligning_at_work", version=1):
    """Party to next party: the set that I pass on has ended, and I have done a block of the one that comes."""

    discloses = Exact("the number of blocks that the sender has done so far, whether or not it has any to pass on")


@dataclass(frozen=True, slots=True)
class FullyBlinded(Message, name="vertical.fully_blinded", version=1):
    """Party to comparer: the next points of a set that all parties have multiplied with their keys."""

    discloses = Blinded("how many ids each group of parties has in common, as numbers", "all parties' keys")
    owner: Owner
    points: Points


@dataclass(frozen=True, slots=True)
class BlocksRead(Message, name="vertical.aligning_blocks_read", version=1):
    """Comparer to party: I have another block of every set that had one left."""

    discloses = Exact("the number of blocks that the comparer has read so far")


@dataclass(frozen=True, slots=True)
class Verdict(Message, name="vertical.verdict", version=1):
    """Comparer to party: are there enough common ids to go on, and how many? If not, the number is not told."""

    discloses = Result(
        "how many ids all parties have in common, or that they are fewer than the smallest allowed number"
    )
    enough: bool
    n_common: Annotated[int, Within(-1, "most_common")]  # -1 where they are not enough


@dataclass(frozen=True, slots=True)
class CommonPlaces(Message, name="vertical.common_places", version=1):
    """Party to party before, to be passed on: where in a set, as it came from there, the common ids stand.

    The comparer sends the first one, to the party that the set visited last.
    """

    discloses = Result("which points of the set are common to all parties, in the common order")
    owner: Owner
    places: Annotated[Int64s, Shape("n_places"), Index("n_ids")]


ALL = (IdsDescription, IdsAgreed, BlindedIds, AtWork, FullyBlinded, BlocksRead, Verdict, CommonPlaces)
