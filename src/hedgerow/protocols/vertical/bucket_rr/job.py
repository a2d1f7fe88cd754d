"""What a run of vertical.bucket_rr is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows, check_on_bad_rows
from hedgerow.protocols.vertical.bucket_rr.debias import check_debiased
from hedgerow.protocols.vertical.common.job import VerticalJob
from hedgerow.schema import Column, Level, NumericColumn, Schema
from hedgerow.transport.mtls import check_party_name

NAME = "vertical.bucket_rr"
PUBLIC, QUANTILE, PRIVATE, GIVEN = "public", "quantile", "private", "given"
TRANSFERS = ("once", "again")
LARGEST_EPSILON = 1e6  # of randomised response
LEAST_DEBIASED = 1e-6
EDGES_EPSILON = 0.5
LEAST_PRIVATE_BUCKETS = 3
LEAST_EDGES_EPSILON = 1e-4  # of which each of at most ten steps gets its share
NO_NOISE = "inf"  # how JSON, which has no infinity, says that there is none


@dataclass(frozen=True)
class Job(VerticalJob):
    """Everything that the parties must agree on. JSON-able; nothing in it is secret."""

    NAME: ClassVar[str] = NAME

    epsilon: float | None = None  # of one element; there is no default, math.inf is without noise
    buckets: int = 16  # of one column, that of missing values included
    edges: str | Mapping[str, Sequence[float]] = PUBLIC
    schema: Schema | None = None
    debias: bool = True
    cache: str | None = None
    transfer: str = "once"
    edges_epsilon: float | None = None  # of the edges of one column; for edges="private" only
    on_bad_rows: OnBadRows = "map"  # or "raise", for public rows

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_epsilon()
        self._check_buckets()
        self._check_edges()
        self._check_edges_epsilon()
        if not isinstance(self.debias, bool):
            raise InvalidParameter(f"{NAME}: debias must be True or False, got {self.debias!r}")
        if self.debias and self.is_noisy:
            check_debiased(self.boosting, NAME)
            if self.noise < LEAST_DEBIASED:
                raise InvalidParameter(
                    f"{NAME}: with epsilon below {LEAST_DEBIASED:g} true buckets are no likelier than others, so there "
                    f"is nothing to debias, got {self.epsilon!r}"
                )
        check_on_bad_rows(self.on_bad_rows)
        if self.transfer not in TRANSFERS:
            raise InvalidParameter(f"{NAME}: transfer must be one of {', '.join(TRANSFERS)}, got {self.transfer!r}")
        if self.cache is not None:
            if not isinstance(self.cache, str | os.PathLike) or not os.fspath(self.cache):
                raise InvalidParameter(f"{NAME}: cache must be a folder, got {self.cache!r}")
            object.__setattr__(self, "cache", os.fspath(self.cache))
            for party in self.parties:
                check_party_name(party)  # each has a sub-folder of its own

    def _check_epsilon(self) -> None:
        if self.epsilon is None:
            raise InvalidParameter(
                f"{NAME} needs epsilon, the privacy loss of one element, for instance epsilon=4; "
                "epsilon=math.inf sends buckets without noise"
            )
        number = isinstance(self.epsilon, int | float | np.integer | np.floating)
        if not number or isinstance(self.epsilon, bool) or not self.epsilon > 0:
            raise InvalidParameter(f"{NAME}: epsilon must be a number above 0, or math.inf, got {self.epsilon!r}")
        if LARGEST_EPSILON < self.epsilon < math.inf:
            raise InvalidParameter(
                f"{NAME}: epsilon must be at most {LARGEST_EPSILON:.0e}, or math.inf for no noise, got {self.epsilon!r}"
            )
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def _check_buckets(self) -> None:
        whole = isinstance(self.buckets, int | np.integer) and not isinstance(self.buckets, bool)
        if not whole or not 2 <= self.buckets <= MAX_BINS:
            raise InvalidParameter(
                f"{NAME}: buckets must be a whole number between 2 and {MAX_BINS}, got {self.buckets!r}"
            )
        object.__setattr__(self, "buckets", int(self.buckets))

    def _check_edges(self) -> None:
        if isinstance(self.edges, Mapping):
            object.__setattr__(self, "edges", {name: _checked(name, given) for name, given in self.edges.items()})
        elif self.edges not in (PUBLIC, QUANTILE, PRIVATE):
            raise InvalidParameter(
                f"{NAME}: edges must be 'public', 'private', 'quantile' or {{column: [edges]}}, got {self.edges!r}"
            )
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise InvalidParameter(f"{NAME}: schema must be a Schema, got {type(self.schema).__name__}")
        if self.edges == PUBLIC and self.schema is None:
            raise InvalidParameter(
                f"{NAME}: edges='public' needs the columns' public bounds and levels: "
                "schema=Schema.from_public(bounds={column: (low, high)}, levels={column: [...]}); edges='private' "
                "takes edges from the data, for edges_epsilon more"
            )

    def _check_edges_epsilon(self) -> None:
        given = self.edges_epsilon
        if self.edges != PRIVATE:
            if given is not None:
                raise InvalidParameter(f"{NAME}: edges_epsilon goes with edges='private' only, got {given!r}")
            return
        given = EDGES_EPSILON if given is None else given
        number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
        if not number or not LEAST_EDGES_EPSILON <= given <= LARGEST_EPSILON:
            raise InvalidParameter(
                f"{NAME}: edges_epsilon must be a number between {LEAST_EDGES_EPSILON:g} and {LARGEST_EPSILON:.0e}, "
                f"got {given!r}"
            )
        if self.buckets < LEAST_PRIVATE_BUCKETS:
            raise InvalidParameter(
                f"{NAME}: edges='private' needs at least {LEAST_PRIVATE_BUCKETS} buckets, since one is for missing "
                f"values, got {self.buckets}"
            )
        object.__setattr__(self, "edges_epsilon", float(given))

    @property
    def noise(self) -> float:
        """Epsilon of one element, math.inf without noise."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def is_noisy(self) -> bool:
        """Whether buckets are randomised at all."""
        return math.isfinite(self.noise)

    @property
    def edges_noise(self) -> float:
        """Epsilon of the edges of one column of numbers; 0 where the data has no part in them, or no guarantee."""
        return 0.0 if self.edges_epsilon is None else self.edges_epsilon

    @property
    def edges_mode(self) -> str:
        """One of "public" (from the schema), "given" (from the job, others from the schema), "private", "quantile"."""
        return self.edges if isinstance(self.edges, str) else GIVEN

    def edges_of(self, party: str, column: str) -> Sequence[float] | None:
        """The edges that the job gives for a party's column, under "party.column" or "column"."""
        if isinstance(self.edges, str):
            return None
        return self.edges.get(f"{party}.{column}", self.edges.get(column))

    def described(self, party: str, column: str) -> Column | None:
        """What the schema says about a party's column, under "party.column" or "column"."""
        if self.schema is None:
            return None
        known = {entry.name: entry for entry in self.schema.columns}
        return known.get(f"{party}.{column}", known.get(column))

    def expected(self, party: str, column: str) -> Column | None:
        """What a party's column is read as; None if nothing but its type is public about it.

        Gaps stay where there is a bucket for them, and go to a default where there is none.
        """
        if self.edges_mode == QUANTILE:
            return None
        described, given = self.described(party, column), self.edges_of(party, column)
        if described is None:
            return NumericColumn(column, -1.0, 1.0, may_be_missing=True) if given is not None else None
        return replace(described, may_be_missing=True) if self.edges_mode == PRIVATE else described

    @property
    def listed_classes(self) -> tuple[Level, ...] | None:
        """The classes of the public schema, if it has any."""
        return None if self.schema is None else self.schema.classes

    def public_names(self) -> list[str]:
        """All names that schema and edges have entries for."""
        described = [] if self.schema is None else list(self.schema.names)
        return described + ([] if isinstance(self.edges, str) else list(self.edges))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        data = super().to_dict()
        data["epsilon"] = self.epsilon if self.is_noisy else NO_NOISE
        data["edges"] = self.edges if isinstance(self.edges, str) else {n: list(e) for n, e in self.edges.items()}
        data["schema"] = None if self.schema is None else self.schema.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        values = dict(data)
        values["epsilon"] = math.inf if values["epsilon"] == NO_NOISE else values["epsilon"]
        values["schema"] = None if values["schema"] is None else Schema.from_dict(values["schema"])
        return super().from_dict(values)


def _checked(name: Any, given: Any) -> tuple[float, ...]:
    if not isinstance(name, str) or not name:
        raise InvalidParameter(f"{NAME}: edges are given by the column's name, got {name!r}")
    try:
        edges = FeatureBins(name, edges=np.asarray(given)).edges
    except ValueError as problem:  # also InvalidInput
        raise InvalidParameter(f"{NAME}: {problem}") from None
    return () if edges is None else tuple(edges.tolist())
