"""Edges that follow the rows: one value that moves takes others across, and each of them tells.

FederBoost puts a column into q buckets of equal size and sends every row's bucket through randomised response, "which
is epsilon-LDP". With edges fixed beforehand it is. But quantiles are computed from all rows: when the smallest value
becomes the largest, every edge moves by one row, and so the rows beside the edges change their buckets too, q in all.

    1  two columns that differ in one value, put into buckets as the feature holder would
    2  an answer that shows the first column's bucket, in a row where they differ, is e^epsilon times likelier under the
       first column; one that shows the second's, under the second; any other says nothing
    3  so log(P(answers | first) / P(answers | second)) = epsilon (answers like the first - answers like the second),
       up to `changed` times epsilon, and its distribution is known exactly

The adversary, who knows all other rows, sees that ratio. So edges="quantile" is stated with q epsilon for an element.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hedgerow.attacks.bucket_rr.bucket_bayes import chances
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.errors import InvalidInput, InvalidParameter


@dataclass(frozen=True)
class MovedEdges:
    """How well two columns that differ in one value can be told apart by their randomised buckets."""

    n_rows: int
    n_codes: int
    epsilon: float
    """What one bucket was randomised with."""
    changed: int
    """Rows whose bucket differs."""
    advantage: float
    """TPR - FPR of the best test there is, exactly."""
    delta_needed: float
    """The smallest delta for which (epsilon, delta)-LDP holds of one element; 0 where epsilon-LDP does."""

    @property
    def epsilon_of_element(self) -> float:
        """The largest log likelihood ratio: what one element's privacy really is against this neighbour."""
        return self.changed * self.epsilon

    @property
    def ceiling(self) -> float:
        """The largest advantage under epsilon-LDP: (e^epsilon - 1) / (e^epsilon + 1)."""
        return math.tanh(self.epsilon / 2.0)

    @property
    def refutes(self) -> bool:
        """Whether this pair refutes epsilon-LDP of one element."""
        return self.changed > 1

    def verdict(self) -> str:
        """The outcome in words."""
        found = (
            f"one value changes {self.changed} of {self.n_rows} buckets; the likelihood ratio reaches "
            f"e^{self.epsilon_of_element:g}, the best test has an advantage of {self.advantage:.3f}"
        )
        if self.refutes:
            return (
                f"ALARM: {found}. epsilon {self.epsilon:g} per element is false: it allows {self.ceiling:.3f}, and"
                f" would need a delta of {self.delta_needed:.3f}."
            )
        return f"{found}; epsilon {self.epsilon:g} per element allows {self.ceiling:.3f} and is not contradicted."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a privacy statement."""
        return {**asdict(self), "epsilon_of_element": self.epsilon_of_element, "ceiling": self.ceiling}


def neighbour(values: Floats) -> Floats:
    """The column whose smallest value has become larger than all others."""
    moved = values.copy()
    moved[int(np.nanargmin(values))] = float(np.nanmax(values)) + 1.0
    return moved


def compare(first: Bytes, second: Bytes, n_codes: int, epsilon: float) -> MovedEdges:
    """Buckets [rows] of two columns that differ in one value, of which each is randomised with `epsilon`."""
    if first.shape != second.shape or first.ndim != 1 or n_codes < 2:
        raise InvalidInput(f"two columns of equally many rows are needed, got {first.shape} and {second.shape}")
    if not 0.0 < epsilon < math.inf:
        raise InvalidParameter(f"epsilon must be a number above 0, got {epsilon!r}")
    changed = int(np.count_nonzero(first != second))
    chance = surplus(changed, n_codes, epsilon)
    like_first, like_second = chance[changed + 1 :], chance[:changed][::-1]  # by a surplus of 1, 2, ...
    ahead = np.arange(1, changed + 1)
    # A surplus of d is e^(d epsilon) times likelier under the first column, where its chance is chance[d].
    beyond = like_first * -np.expm1(np.minimum(epsilon * (1 - ahead), 0.0))
    return MovedEdges(
        len(first), n_codes, epsilon, changed, float((like_first - like_second).sum()), float(beyond.sum())
    )


def surplus(changed: int, n_codes: int, epsilon: float) -> Floats:
    """The chance that -changed .. changed more answers show the first column's bucket than the second's.

    Under the first column; under the second it is the same from right to left.
    """
    stays, comes = chances(n_codes, epsilon)
    one = np.array([comes, 1.0 - stays - comes, stays])
    chance = np.ones(1)
    for _ in range(changed):
        chance = np.convolve(chance, one)
    return np.maximum(chance, 0.0)


def log_ratio(answers: Bytes, first: Bytes, second: Bytes, epsilon: float) -> Floats:
    """log(P(answers | first) / P(answers | second)) for `answers` [rows] or [trials, rows]."""
    differ = np.flatnonzero(first != second)
    seen = answers[..., differ]
    like_first = (seen == first[differ]).sum(axis=-1, dtype=np.int64)
    ratio: Floats = epsilon * (like_first - (seen == second[differ]).sum(axis=-1, dtype=np.int64))
    return ratio
