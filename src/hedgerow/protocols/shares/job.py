"""What every training on secret shares asks of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.engine.losses import BoostingParams, Loss
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.agreement import VerticalJob, WithDealer
from hedgerow.runtime.protocol import Settled, option

DEEPEST = 12
"""Levels of a tree: the dealer deals for full ones, because it does not know which nodes there are."""

MOST_ROWS = 2**31 - 1
MOST_COLUMNS = 1 << 16
"""Of a party: nobody makes room for more, whatever the others say about their tables."""

_ONLY = {
    "subsample": (1.0, "all rows are used for every tree"),
    "colsample_bytree": (1.0, "all columns are used for every tree"),
    "colsample_bylevel": (1.0, "all columns are used for every level"),
    "colsample_bynode": (1.0, "all columns are used for every node"),
    "min_child_weight": (0.0, "nobody knows the weight of a child of a split that has not won"),
    "min_samples_leaf": (1, "nobody knows the rows of a child of a split that has not won"),
    "max_leaves": (None, "nobody knows which node gains most"),
    "interaction": (None, "nobody knows by which columns of others a node's ancestors are split"),
}
"""Parameters of trees of which one value is available -> that value, and why."""


def check_only(name: str, trees: BoostingParams, only: Mapping[str, tuple[Any, str]]) -> None:
    """InvalidParameter for a parameter of trees that is not as it must be."""
    for parameter, (possible, reason) in only.items():
        value = getattr(trees, parameter)
        if value != possible:
            raise InvalidParameter(f"{name}: {parameter} must be {possible}, because {reason}; got {value}")


@dataclass(frozen=True)
class SharesJob(WithDealer, VerticalJob):
    """A training on shares, with a dealer beside the parties that have data."""

    NAME = "vertical.on_shares"
    ONLY: ClassVar[Mapping[str, tuple[Any, str]]] = _ONLY
    REFITS_LEAVES: ClassVar[bool] = False  # whether somebody knows the rows of leaves, with labels and scores
    DEALS_NOISE: ClassVar[bool] = False  # how much follows from sizes, so everybody tells the dealer about them

    dealer: str = option("dealer", "the party that deals correlated randomness and has no data")

    def check(self) -> None:
        """What trees can do on shares."""
        super().check()
        name, trees = self.NAME, self.boosting
        check_only(name, trees, self.ONLY)
        if trees.max_depth is None or trees.max_depth > DEEPEST:
            raise InvalidParameter(f"{name}: max_depth must be between 1 and {DEEPEST}, got {trees.max_depth}")
        is_refitted = self.task == "regression" and trees.loss in ("absolute", "quantile")
        if is_refitted and not self.REFITS_LEAVES:
            raise InvalidParameter(f"{name}: the {trees.loss} loss is not available, use squared_error")
        if self.task == "regression" and not is_refitted and trees.label_range is None:
            raise InvalidParameter(
                f"{name}: a regression needs label_range=(low, high), which must be public: the sizes of all numbers "
                "follow from it"
            )
        bits = trees.gradient_bits
        if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int | np.integer)):
            raise InvalidParameter(f"{name}: gradient_bits must be a whole number, got {bits!r}")
        self.loss()  # refuses a label_range that cannot be

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data.

        Where a child's weight cannot be checked, the default of min_child_weight is taken for "no wish", and is 0, as
        statements say; any other value is refused.
        """
        trees = settled.boosting
        if "min_child_weight" in cls.ONLY and trees.min_child_weight == BoostingParams().min_child_weight:
            settled = settled._replace(boosting=replace(trees, min_child_weight=0.0))
        return super().from_user(options, settled)

    @property
    def depth(self) -> int:
        """Levels of a tree at most."""
        return self.boosting.max_depth or DEEPEST

    @property
    def stops_early(self) -> bool:
        """Whether it may end before the last iteration."""
        return self.boosting.early_stopping_rounds is not None

    @property
    def most_columns(self) -> int:
        """Of a party."""
        return MOST_COLUMNS

    def loss(self, n_classes: int = 2) -> Loss:
        """The loss, which is public; of a classification it goes by the number of classes."""
        given = self.boosting.label_range or (0.0, 1.0)
        return self.for_labels(n_classes if self.task == "classification" else None, given).loss_for(np.array(given))
