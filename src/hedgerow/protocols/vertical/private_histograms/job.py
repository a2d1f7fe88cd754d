"""What a run of vertical.private_histograms is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hedgerow.engine.table import Level
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.bad_rows import OnBadRows, check_on_bad_rows
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.schema import NumericColumn, Schema

GROWN, SMOOTH = "grown_trees", "smooth_then_trees"
WINNER, HISTOGRAM = "winner", "histogram"
DELTA = 1e-6
LARGEST_L2 = 1 << 20
DEFAULTS = {"max_iter": 60, "max_depth": 3, "learning_rate": 0.3, "l2_regularization": 10.0, "max_bins": 64}
"""Small trees, each a large step: every level costs, and noise is shrunk by the ridge."""
NO_NOISE = "inf"  # how JSON, which has no infinity, says that there is none

_ONLY = {
    "base_score": (None, "it is released with noise"),
    "min_gain": (0.0, "all nodes split"),
    "gradient_bits": (None, "they follow from the number of rows"),
    "early_stopping_rounds": (None, "nobody knows the loss"),
}
"""Parameters of trees of which one value can be had -> that value, and why."""


@dataclass(frozen=True)
class PrivateHistogramsJob(SharesJob):
    """Everything that the parties must agree on."""

    NAME: ClassVar[str] = "vertical.private_histograms"
    DEALS_NOISE: ClassVar[bool] = True

    epsilon: float | None = None  # of all that is released; there is no default, math.inf is without noise
    delta: float = DELTA
    policy: str = GROWN
    reveal: str = WINNER  # of trees that are grown
    schema: Schema | None = None
    split_share: float = 0.5
    on_bad_rows: OnBadRows = "map"  # or "raise", for public rows

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.NAME
        if self.task != "classification":
            raise InvalidParameter(f"{name} is for two classes, got task={self.task!r}")
        if self.epsilon is None:
            raise InvalidParameter(
                f"{name} needs epsilon, the privacy loss of one row in all that is released, for instance epsilon=2; "
                "epsilon=math.inf releases without noise"
            )
        if not _is_number(self.epsilon) or not self.epsilon > 0.0:  # also refuses what is no number at all
            raise InvalidParameter(f"{name}: epsilon must be above 0, got {self.epsilon!r}")
        if not _is_number(self.delta) or not 0.0 < self.delta < 1.0:
            raise InvalidParameter(f"{name}: delta must be between 0 and 1, got {self.delta!r}")
        if self.policy not in {GROWN, SMOOTH}:
            raise InvalidParameter(f"{name}: policy must be {GROWN!r} or {SMOOTH!r}, got {self.policy!r}")
        if self.reveal not in {WINNER, HISTOGRAM}:
            raise InvalidParameter(f"{name}: reveal must be {WINNER!r} or {HISTOGRAM!r}, got {self.reveal!r}")
        if not _is_number(self.split_share) or not 0.0 < self.split_share < 1.0:
            raise InvalidParameter(f"{name}: split_share must be between 0 and 1, got {self.split_share!r}")
        check_on_bad_rows(self.on_bad_rows)
        if self.schema is None:
            raise InvalidParameter(
                f"{name} needs a schema with public bounds of all columns, "
                "schema=Schema.from_public(bounds={column: (low, high)}): edges that follow the rows would tell of them"
            )
        for parameter, (possible, reason) in _ONLY.items():
            value = getattr(self.boosting, parameter)
            if value != possible:
                raise InvalidParameter(f"{name}: {parameter} must be {possible}, because {reason}; got {value}")
        if self.boosting.l2 < 1.0 or self.boosting.l2 != int(self.boosting.l2) or self.boosting.l2 > LARGEST_L2:
            raise InvalidParameter(
                f"{name}: l2 must be a whole number from 1 to {LARGEST_L2:,}, so that noise alone makes no large leaf "
                f"values; got {self.boosting.l2}"
            )

    @property
    def listed_classes(self) -> tuple[Level, ...] | None:
        """The classes of the public schema, if it has any."""
        return None if self.schema is None else self.schema.classes

    @property
    def is_noisy(self) -> bool:
        """Whether anything is claimed."""
        return self.epsilon is not None and not math.isinf(self.epsilon)

    @property
    def noise(self) -> float:
        """Epsilon as a number."""
        return math.inf if self.epsilon is None else float(self.epsilon)

    @property
    def most_columns(self) -> int:
        """Of a party: an entry of the schema describes two of its columns at most, "x" and "party.x"."""
        return 0 if self.schema is None else 2 * len(self.schema.columns)

    def described(self, party: str, column: str) -> NumericColumn:
        """What the schema says about a party's column of numbers, under "party.column" or "column"."""
        known = {} if self.schema is None else {entry.name: entry for entry in self.schema.columns}
        entry = known.get(f"{party}.{column}", known.get(column))
        if entry is None:
            raise InvalidParameter(
                f"{self.NAME}: column {column!r} of {party} has no entry in the schema, neither as {column!r} nor as "
                f"'{party}.{column}'"
            )
        if not isinstance(entry, NumericColumn):
            raise InvalidParameter(
                f"{self.NAME}: column {column!r} of {party} has levels; make a column of 0 and 1 for each level"
            )
        return entry

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        data = super().to_dict()
        data["epsilon"] = self.epsilon if self.is_noisy else NO_NOISE
        data["schema"] = None if self.schema is None else self.schema.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        values = dict(data)
        values["epsilon"] = math.inf if values["epsilon"] == NO_NOISE else values["epsilon"]
        values["schema"] = None if values["schema"] is None else Schema.from_dict(values["schema"])
        return super().from_dict(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)  # larger ones are no floats
