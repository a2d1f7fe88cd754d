"""What a run of vertical.bucket_rr is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows, on_bad_rows, stamp_of
from hedgerow.protocols.made_up import LEVELS, made_up_rows
from hedgerow.protocols.vertical.bucket_rr.debias import check_debiased
from hedgerow.protocols.vertical.common.agreement import VerticalJob, WithSchema
from hedgerow.runtime.protocol import Rehearsal, option
from hedgerow.schema import Column, NumericColumn, Schema
from hedgerow.transport.mtls import check_party_name

NAME = "vertical.bucket_rr"
PUBLIC, QUANTILE, PRIVATE, GIVEN = "public", "quantile", "private", "given"
NO_NOISE = "inf"
"""How JSON, which has no infinity, says that there is no noise."""
LARGEST_EPSILON = 1e6  # of randomised response
LEAST_DEBIASED = 1e-6
EDGES_EPSILON = 0.5
LEAST_PRIVATE_BUCKETS = 3
LEAST_EDGES_EPSILON = 1e-4  # of which each of at most ten steps gets its share


def told(number: float) -> float | str:
    """An epsilon, or what several add up to, as JSON has it."""
    return NO_NOISE if number == math.inf else number


def _parse_edges(protocol: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: _checked_edges(name, edges) for name, edges in given.items()}
    if given not in (PUBLIC, QUANTILE, PRIVATE):
        raise InvalidParameter(
            f"{protocol}: edges must be 'public', 'private', 'quantile' or {{column: [edges]}}, got {given!r}"
        )
    return given


def _checked_edges(name: Any, given: Any) -> tuple[float, ...]:
    if not isinstance(name, str) or not name:
        raise InvalidParameter(f"{NAME}: edges are given by the column's name, got {name!r}")
    try:
        edges = FeatureBins(name, edges=np.asarray(given)).edges
    except ValueError as problem:  # also InvalidInput
        raise InvalidParameter(f"{NAME}: {problem}") from None
    return () if edges is None else tuple(edges.tolist())


def _parse_cache(protocol: str, given: Any) -> str:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise InvalidParameter(f"{protocol}: cache must be a folder, got {given!r}")
    return os.fspath(given)


@dataclass(frozen=True)
class Job(WithSchema, VerticalJob):
    """Everything that the parties must agree on."""

    NAME = NAME
    BY_COLUMN = True

    epsilon: float | None = option(
        None,
        "privacy loss of one element; math.inf is without noise",
        above=0,
        at_most=LARGEST_EPSILON,
        or_inf=True,
        needed="epsilon, the privacy loss of one element, for instance epsilon=4; epsilon=math.inf sends buckets "
        "without noise",
    )
    buckets: int = option(16, "of one column, that of missing values included", at_least=2, at_most=MAX_BINS)
    edges: str | Mapping[str, Sequence[float]] = option(
        PUBLIC,
        "of buckets: from the schema ('public'), from noisy or exact quantiles, or given by column",
        words="'public', 'private', 'quantile' or {column: [edges]}",
        parse=_parse_edges,
    )
    schema: Schema | None = option(None, "public bounds and levels of columns; with edges='public' of all")
    debias: bool = option(True, "whether trees allow for the noise in the buckets")
    cache: str | None = option(None, "a folder for transfers that need not be made again", parse=_parse_cache)
    transfer: str = option("once", "whether a kept transfer is used or made again", one_of=("once", "again"))
    edges_epsilon: float | None = option(
        None,
        f"of the edges of one column, for edges='private'; {EDGES_EPSILON} by default",
        at_least=LEAST_EDGES_EPSILON,
        at_most=LARGEST_EPSILON,
    )
    on_bad_rows: OnBadRows = on_bad_rows()

    def check(self) -> None:
        """How epsilons, edges and buckets go together."""
        super().check()
        if self.edges == PUBLIC and self.schema is None:
            raise InvalidParameter(
                f"{NAME}: edges='public' needs the columns' public bounds and levels: "
                "schema=Schema.from_public(bounds={column: (low, high)}, levels={column: [...]}); edges='private' "
                "takes edges from the data, for edges_epsilon more"
            )
        if self.edges != PRIVATE and self.edges_epsilon is not None:
            raise InvalidParameter(f"{NAME}: edges_epsilon goes with edges='private' only, got {self.edges_epsilon!r}")
        if self.edges == PRIVATE and self.edges_epsilon is None:
            object.__setattr__(self, "edges_epsilon", EDGES_EPSILON)
        if self.edges == PRIVATE and self.buckets < LEAST_PRIVATE_BUCKETS:
            raise InvalidParameter(
                f"{NAME}: edges='private' needs at least {LEAST_PRIVATE_BUCKETS} buckets, since one is for missing "
                f"values, got {self.buckets}"
            )
        if self.debias and self.is_noisy:
            check_debiased(self.boosting, NAME)
            if self.noise < LEAST_DEBIASED:
                raise InvalidParameter(
                    f"{NAME}: with epsilon below {LEAST_DEBIASED:g} true buckets are no likelier than others, so there "
                    f"is nothing to debias, got {self.epsilon!r}"
                )
        for party in self.parties if self.cache is not None else ():
            check_party_name(party)  # each has a sub-folder of its own

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

    def stamp(self) -> str | None:
        """What must be written on everything that comes out of the run."""
        return stamp_of(None if self.is_noisy else "NO NOISE", self.on_bad_rows)

    def rehearsal(self) -> Rehearsal:
        """Two trees; private edges have kernels of their own, all others warm up with quantiles. Nothing is kept."""
        is_private = self.edges == PRIVATE
        small = replace(
            self,
            parties=("a", "b"),
            label_holder="a",
            boosting=replace(
                self.boosting, n_iterations=2, monotone=None, interaction=None, early_stopping_rounds=None
            ),
            buckets=max(self.buckets, 4),
            edges=PRIVATE if is_private else QUANTILE,
            schema=Schema.from_public(levels={"level": list(LEVELS)}) if is_private else None,
            cache=None,
            transfer="once",
        )
        return small, lambda: {name: made_up_rows(small, has_labels=name == "a", n_rows=40) for name in small.parties}
