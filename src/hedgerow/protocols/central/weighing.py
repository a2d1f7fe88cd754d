"""How much each row counts: weights that are bounded in public, so that one row never counts for more than was said.

A row's weight is its `sample_weight` times its class's, cut at the largest that was declared and divided by it: a
number from 0 to 1. All that is summed over rows is multiplied by it, and rounded towards 0. So whatever a row could do
to a sum without weights is the most that it can do with them: sensitivities stay what they are, or are proved anew
where weights also divide (privacy/sensitivity.py). Who declares a larger weight than is needed has smaller shares and
the same noise.

Weights of classes are public parameters. "balanced" is not offered: it would be read off the rows' labels, so that one
row more changed all others' weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.events import is_number
from hedgerow.protocols.bad_rows import FittedRows, OnBadRows
from hedgerow.schema import Schema

BALANCED = (
    "class_weight='balanced' is read off the labels of all rows, so that one row would change all weights; say the "
    "weights instead, from what is public about the classes: class_weight={{{classes}}}"
)


@dataclass(frozen=True)
class Weighing:
    """What is public about weights."""

    largest: float
    """Of `sample_weight`; 1 where rows have none of their own."""
    of_class: tuple[float, ...] | None = None
    """The weight of each class, in the schema's order."""

    @classmethod
    def declared(
        cls, *, has_weights: bool, max_weight: Any, class_weight: Any, scale_pos_weight: Any, schema: Schema
    ) -> Weighing | None:
        """From an estimator's parameters; None where all rows count alike."""
        if max_weight is not None and (not is_number(max_weight) or not 0.0 < max_weight < math.inf):
            raise InvalidParameter(f"max_weight must be a number above 0, got {max_weight!r}")
        if has_weights and max_weight is None:
            raise InvalidParameter(
                "sample_weight needs max_weight: the largest weight that any row may have, which is public (larger "
                "ones count as that)"
            )
        of_class = _of_classes(class_weight, scale_pos_weight, schema.classes)
        if not has_weights and of_class is None:
            return None
        return cls(float(max_weight) if has_weights else 1.0, of_class)

    def of_rows(self, rows: FittedRows, sample_weight: Any, *, on_bad_rows: OnBadRows = "map") -> tuple[Floats, Bools]:
        """Each row's share of the largest weight, and which rows had a weight that did not fit.

        One that is above the largest counts as that; one that is negative or no number counts as 0. Only how many
        weights there are can be an error.
        """
        n_rows = rows.table.n_rows
        shares, odd = np.ones(n_rows), np.zeros(n_rows, np.bool_)
        if sample_weight is not None:
            given = _numbers(sample_weight)
            if not given.size and not rows.counts.any():  # a table without rows was made one row that does not count
                given = np.zeros(n_rows)
            if given.shape != (n_rows,):
                raise InvalidInput("sample_weight must have one number for each row")
            odd = ~(given >= 0.0) | (given > self.largest)
            if on_bad_rows == "raise" and odd.any():
                raise InvalidInput(f"sample_weight: a weight is not between 0 and max_weight={self.largest:g}")
            shares = np.where(given >= 0.0, np.minimum(given, self.largest), 0.0) / self.largest
        if self.of_class is not None:
            weights = np.array(self.of_class) / max(self.of_class)
            shares = shares * weights[rows.labels.astype(np.int64)]
        return shares, odd


def _of_classes(class_weight: Any, scale_pos_weight: Any, classes: Sequence[Any] | None) -> tuple[float, ...] | None:
    """The weight of each class; None where all are alike."""
    if class_weight is None and scale_pos_weight is None:
        return None
    if scale_pos_weight is not None and (not is_number(scale_pos_weight) or not 0.0 < scale_pos_weight < math.inf):
        raise InvalidParameter(f"scale_pos_weight must be a number above 0, got {scale_pos_weight!r}")
    if classes is None:
        raise InvalidParameter("class_weight and scale_pos_weight are for classes, but the schema has label_bounds")
    if class_weight is not None and scale_pos_weight is not None:
        raise InvalidParameter("class_weight and scale_pos_weight say the same thing; leave out one of the two")
    if scale_pos_weight is not None:
        if len(classes) != 2:
            raise InvalidParameter(f"scale_pos_weight is for two classes, but the schema lists {len(classes)}")
        return (1.0, float(scale_pos_weight))
    if class_weight == "balanced":
        raise InvalidParameter(BALANCED.format(classes=", ".join(f"{each!r}: ..." for each in classes)))
    if not isinstance(class_weight, Mapping):
        raise InvalidParameter(f"class_weight must be a dictionary of classes and weights, got {class_weight!r}")
    unknown = [each for each in class_weight if each not in classes]
    if unknown:
        raise InvalidParameter(f"class_weight names {unknown[0]!r}, which is not one of the classes {list(classes)}")
    weights = [class_weight.get(each, 1.0) for each in classes]
    for each, weight in zip(classes, weights, strict=True):
        if not is_number(weight) or not 0.0 <= weight < math.inf:
            raise InvalidParameter(f"class_weight of {each!r} must be a number of at least 0, got {weight!r}")
    if not any(weights):
        raise InvalidParameter("class_weight leaves no class that counts: all weights are 0")
    return tuple(map(float, weights))


def _numbers(sample_weight: Any) -> Floats:
    """As floats; what is no number is NaN."""
    values = np.asarray(sample_weight)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    found = np.full(values.shape, math.nan)
    for place, value in np.ndenumerate(values):
        if is_number(value):
            found[place] = value
    return found
