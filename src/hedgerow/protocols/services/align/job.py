"""The job of vertical.aligning, what a party brings to it, ids as one array, and its result: its own common rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hedgerow.codec import AsJson
from hedgerow.crypto.identifiers import Duplicates, IdRule, Rows
from hedgerow.crypto.psi import BLOCK, way_round
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.job import check_parties
from hedgerow.runtime.options import Job, Settled, option

NAME = "vertical.aligning"
PARTY = "party"
SMALLEST_BLOCK = 256
"""How long a block of few ids takes would show something about them (`hedgerow.crypto.psi`, constant time)."""
LARGEST_BLOCK = 1 << 20
MOST_IDS = 100_000_000
_FROM = "a whole number from {} to {}"


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
    minimum: int = option(
        2,
        "common ids that there must be before anybody learns any of them",
        words=_FROM.format(1, 2**62),
        at_least=1,
        at_most=2**62,
    )
    column: str = option("id", "what errors call the column of ids")
    block: int = option(
        BLOCK,
        "points in a message",
        words=_FROM.format(SMALLEST_BLOCK, LARGEST_BLOCK),
        at_least=SMALLEST_BLOCK,
        at_most=LARGEST_BLOCK,
    )
    most_ids: int = option(
        MOST_IDS,
        "that any party may bring: what a peer may make the others wait and store for",
        words=_FROM.format(1, 2**31 - 1),
        at_least=1,
        at_most=2**31 - 1,
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

    def way(self, owner: str) -> tuple[str, ...]:
        """The parties in the order in which a set visits them."""
        return way_round(self.parties, owner)

    def n_blocks(self, n_ids: int) -> int:
        """Messages that a set of this many points takes."""
        return -(-n_ids // self.block)

    @property
    def cast(self) -> Mapping[str, str]:
        """The comparer, who listens, then the others."""
        return dict.fromkeys((self.comparer, *(name for name in self.parties if name != self.comparer)), PARTY)

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


def packed(ids: Sequence[str | int | bool | None]) -> npt.NDArray[np.void]:
    """Ids as the bytes of a JSON list. An array of numpy's own texts would be as wide as the longest everywhere."""
    return np.frombuffer(json.dumps(ids).encode(), _BYTE)


def unpacked(ids: npt.NDArray[np.generic]) -> Iterable[Any]:
    """The ids of an array: those that were packed, or those of any other array as they are."""
    return list(json.loads(ids.tobytes())) if ids.dtype == _BYTE else ids
