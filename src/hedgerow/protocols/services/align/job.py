"""The job of vertical.aligning: what all parties must agree on before they compare ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hedgerow.crypto.identifiers import Duplicates, IdRule
from hedgerow.crypto.psi import BLOCK, way_round
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.job import check_parties

NAME = "vertical.aligning"
SMALLEST_BLOCK = 256
"""How long a block of few ids takes would show something about them (`hedgerow.crypto.psi`, constant time)."""
LARGEST_BLOCK = 1 << 20
MOST_IDS = 100_000_000


@dataclass(frozen=True)
class AligningJob:
    """What to compare, and how. JSON-able; nothing in it is secret."""

    parties: tuple[str, ...]
    run_id: str  # part of every digest, so that those of two runs differ
    comparer: str = ""  # the first party, unless another one is named
    rule: Mapping[str, Any] = field(default_factory=lambda: IdRule().to_dict())
    duplicates: Duplicates = "refuse"
    minimum: int = 2  # common ids that there must be before anybody learns any of them
    column: str = "id"  # what errors call the column of ids
    block: int = BLOCK  # points in a message
    most_ids: int = MOST_IDS  # that any party may bring: what a peer may make the others wait and store for

    def __post_init__(self) -> None:
        check_parties(NAME, self.parties)
        if not self.comparer:
            object.__setattr__(self, "comparer", self.parties[0])
        if self.comparer not in self.parties:
            raise InvalidParameter(f"{NAME}: comparer must be one of {list(self.parties)}, got {self.comparer!r}")
        if not isinstance(self.rule, Mapping):
            raise InvalidParameter(f"{NAME}: rule must be an id rule as a dict, got {type(self.rule).__name__}")
        object.__setattr__(self, "rule", IdRule.from_dict(self.rule).to_dict())
        if self.duplicates not in ("refuse", "first"):
            raise InvalidParameter(f"{NAME}: duplicates must be 'refuse' or 'first', got {self.duplicates!r}")
        _check_whole("minimum", self.minimum, 1, 2**62)
        _check_whole("block", self.block, SMALLEST_BLOCK, LARGEST_BLOCK)
        _check_whole("most_ids", self.most_ids, 1, 2**31 - 1)

    @property
    def id_rule(self) -> IdRule:
        """The rule as an object."""
        return IdRule.from_dict(self.rule)

    def way(self, owner: str) -> tuple[str, ...]:
        """The parties in the order in which a set visits them."""
        return way_round(self.parties, owner)

    def n_blocks(self, n_ids: int) -> int:
        """Messages that a set of so many points takes."""
        return -(-n_ids // self.block)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"rule": dict(self.rule)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AligningJob:
        """The inverse of `to_dict`, also after a way through JSON."""
        return cls(**{**data, "parties": tuple(data["parties"])})


def _check_whole(name: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise InvalidParameter(f"{NAME}: {name} must be a whole number from {low} to {high}, got {value!r}")
