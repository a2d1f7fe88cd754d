"""What a run of vertical.private_histograms is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from hedgerow.engine.table import Table
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows, on_bad_rows, stamp_of
from hedgerow.protocols.shares.job import SharesJob, check_only
from hedgerow.protocols.vertical.common.agreement import WithSchema
from hedgerow.runtime.protocol import Settled, option
from hedgerow.schema import Column, NumericColumn, Schema

GROWN, SMOOTH = "grown_trees", "smooth_then_trees"
WINNER, HISTOGRAM = "winner", "histogram"
DELTA = 1e-6
LARGEST_L2 = 1 << 20
NOT_PRIVATE = "NOT PRIVATE: epsilon=inf, nothing has noise"
"""The stamp of a model without noise."""
DEFAULTS = {"max_iter": 60, "max_depth": 3, "learning_rate": 0.3, "l2_regularization": 10.0, "max_bins": 64}
"""Small trees, each a large step: every level costs, and noise is shrunk by the ridge."""

_ONLY = {
    "base_score": (None, "it is released with noise"),
    "min_gain": (0.0, "all nodes split"),
    "gradient_bits": (None, "they follow from the number of rows"),
    "early_stopping_rounds": (None, "nobody knows the loss"),
}
"""Parameters of trees of which one value is available -> that value, and why."""


_BY_RULE = {
    "n_iterations": DEFAULTS["max_iter"],
    "max_depth": DEFAULTS["max_depth"],
    "learning_rate": DEFAULTS["learning_rate"],
    "l2": DEFAULTS["l2_regularization"],
}
"""Parameters of trees that policy="smooth_then_trees" sets by itself, and the values that are no wish."""


@dataclass(frozen=True)
class PrivateHistogramsJob(WithSchema, SharesJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.private_histograms"
    DEALS_NOISE = True

    epsilon: float | None = option(
        None,
        "privacy loss of one row in all that is released; math.inf is without noise",
        above=0,
        or_inf=True,
        words="above 0",
        needed="epsilon, the privacy loss of one row in all that is released, for instance epsilon=2; epsilon=math.inf "
        "releases without noise",
    )
    delta: float = option(DELTA, "beside epsilon", above=0, below=1, words="between 0 and 1")
    policy: str = option(GROWN, "how the model is made", one_of=(GROWN, SMOOTH), words=f"{GROWN!r} or {SMOOTH!r}")
    reveal: str = option(
        WINNER,
        "what is opened of trees that are grown: noisy winners, or noisy histograms",
        one_of=(WINNER, HISTOGRAM),
        words=f"{WINNER!r} or {HISTOGRAM!r}",
    )
    schema: Schema | None = option(
        None,
        "public bounds of all columns",
        needed="a schema with public bounds of all columns, schema=Schema.from_public(bounds={column: (low, high)}): "
        "edges that follow the rows would tell of them",
    )
    split_share: float = option(0.5, "of the budget that goes to splits", above=0, below=1, words="between 0 and 1")
    on_bad_rows: OnBadRows = on_bad_rows()

    def check(self) -> None:
        """Two classes, and trees that the noise allows."""
        super().check()
        name = self.NAME
        if self.task != "classification":
            raise InvalidParameter(f"{name} is for two classes, got task={self.task!r}")
        check_only(name, self.boosting, _ONLY)
        if self.boosting.l2 < 1.0 or self.boosting.l2 != int(self.boosting.l2) or self.boosting.l2 > LARGEST_L2:
            raise InvalidParameter(
                f"{name}: l2 must be a whole number from 1 to {LARGEST_L2:,}, so that noise alone makes no large leaf "
                f"values; got {self.boosting.l2}"
            )

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job, with everything checked that can be checked without data; wishes that a rule decides are refused."""
        job = super().from_user(options, settled)
        if job.policy == SMOOTH:
            wishes = {name for name, usual in _BY_RULE.items() if getattr(job.boosting, name) != usual}
            wishes |= {"reveal", "split_share"} & set(options)
            if wishes:
                raise InvalidParameter(
                    f"{job.NAME}: policy={SMOOTH!r} sets {min(wishes)} by its own rule, from the number of rows and "
                    f"epsilon; leave it out, or use policy={GROWN!r}"
                )
        return job

    @property
    def is_noisy(self) -> bool:
        """Whether anything is claimed."""
        return self.epsilon is not None and not math.isinf(self.epsilon)

    @property
    def noise(self) -> float:
        """Epsilon as a number."""
        return math.inf if self.epsilon is None else float(self.epsilon)

    @property
    def stamp(self) -> str | None:
        """What must be written on everything that comes out of the run."""
        return stamp_of(None if self.is_noisy else NOT_PRIVATE, self.on_bad_rows)

    @property
    def is_zcdp(self) -> bool:
        """Whether choices are released, which zero-concentrated DP accounts for best; all else is Gaussian DP."""
        return self.policy == GROWN and self.reveal == WINNER

    @property
    def most_columns(self) -> int:
        """Of a party: an entry of the schema describes two of its columns at most, "x" and "party.x"."""
        return 0 if self.schema is None else 2 * len(self.schema.columns)

    def described(self, party: str, column: str) -> Column:
        """What the schema says about a party's column, under "party.column" or "column"."""
        entry = super().described(party, column)
        if entry is None:
            raise InvalidParameter(
                f"{self.NAME}: column {column!r} of {party} has no entry in the schema, neither as {column!r} nor as "
                f"'{party}.{column}'"
            )
        if self.policy == GROWN and not isinstance(entry, NumericColumn):
            raise InvalidParameter(
                f"{self.NAME}: column {column!r} of {party} has levels; make a column of 0 and 1 for each level"
            )
        return entry

    def own_columns(self, party: str, table: Table) -> tuple[Column, ...]:
        """What the schema says about the columns of a party, under the names that it has for them."""
        return tuple(replace(self.described(party, column.name), name=column.name) for column in table.columns)
