"""Labels from noisy sums: the best linear estimate of each row's label from all sums that it is part of.

The adversary saw sums of gradients of rows, with noise, over leaves of many trees. It knows the scores before each tree
(they follow from released leaf values), so what it has is

    sum of p - noisy sum of (p - y) = sum of y + noise        for each leaf whose rows it can tell

a linear equation about labels, one for each leaf. Rows that it cannot tell apart are put together until their sum is
known. All equations together are solved by least squares: each has the weight of its noise, and labels lie around their
mean as much as those of two classes do. That is the best linear estimate (Gauss-Markov with a prior). Without noise and
with more different leaves than rows, it is the labels.

What a model says about rows like a given one is not a leak of that row's own label, and no guarantee forbids it. So a
row is compared with rows about which columns say the same (`strata`): P(the row with label 1 scores higher). In
Gaussian DP with mu for one label that is at most Phi(mu / sqrt 2).

The strongest adversary knows all labels but one. Then every sum is one look at that label, with the noise of the sum,
and its area is Phi(mu' / sqrt 2), where mu'^2 is the sum of 1 / variance of all sums that the row is in. Who counts has
all labels, so the variance is measured on the noise that was really drawn (`all_but_one`): columns have no part in it.
In the same way all rows but one may be known, and the question is whether that row counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsmr
from scipy.special import ndtr
from scipy.stats import chi2

from hedgerow.attacks.intervals import Interval, checked_confidence, matched_area
from hedgerow.attacks.results import LabelsFound, read_labels, scored
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidInput

NOWHERE = -1
"""Instead of the number of a sum: a row that is in none."""
_MOST_STEPS = 4_000
_LEAST_VARIANCE = 1e-10  # of a sum without noise; weights stay finite


class Sums(NamedTuple):
    """Sums of labels over disjoint rows, with noise."""

    place: Ints  # [rows] the sum that each row is in, or NOWHERE
    sums: Floats  # [sums]
    variance: Floats  # [sums] of the noise


def label_scores(seen: Sequence[Sums], n_rows: int, positives: float | None = None) -> Floats:
    """[rows] the best linear estimate of each label from all sums; `positives` is their number, as far as known."""
    mean = 0.5 if positives is None else min(max(positives / n_rows, 0.5 / n_rows), 1.0 - 0.5 / n_rows)
    if not seen:
        return np.full(n_rows, mean)
    columns, rows, weights, right = [], [], [], []
    first = 0
    for each in seen:
        place, sums, variance = _checked(each, n_rows)
        weight = 1.0 / np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        inside = np.flatnonzero(place != NOWHERE)
        columns.append(inside)
        rows.append(first + place[inside])
        weights.append(weight[place[inside]])
        counts = np.bincount(place[inside], minlength=len(sums))
        right.append((sums - mean * counts) * weight)
        first += len(sums)
    indices = (np.concatenate(rows), np.concatenate(columns))
    equations = csr_matrix((np.concatenate(weights), indices), shape=(first, n_rows))
    damping = 1.0 / math.sqrt(mean * (1.0 - mean))
    steps = min(_MOST_STEPS, 4 * (first + n_rows))
    found = lsmr(equations, np.concatenate(right), damp=damping, atol=1e-10, btol=1e-10, conlim=0.0, maxiter=steps)[0]
    scores: Floats = mean + found
    return scores


def _checked(each: Sums, n_rows: int) -> tuple[Ints, Floats, Floats]:
    place, sums, variance = np.asarray(each.place), np.asarray(each.sums), np.asarray(each.variance)
    fits = place.shape == (n_rows,) and sums.ndim == 1 and variance.shape == sums.shape
    if not fits or place.min(initial=0) < NOWHERE or place.max(initial=NOWHERE) >= len(sums):
        raise InvalidInput(
            f"a place of {n_rows} rows and a variance per sum are needed, got {place.shape}, {sums.shape}"
        )
    if not (np.isfinite(sums).all() and np.isfinite(variance).all() and (variance >= 0.0).all()):
        raise InvalidInput("sums must be finite, and so must the variances of their noise, none of them negative")
    return place, sums, variance


# --- what they are worth ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SummedLabels(LabelsFound):
    """Labels told apart from noisy sums; `area` also has in it what the model says about rows like these."""

    n_sums: int
    matched: Interval
    """Area over pairs of rows about which columns say the same: what a row's own label adds."""

    @property
    def refutes(self) -> bool:
        """Whether the area of matched pairs is above the ceiling by more than chance explains."""
        return self.matched.low > self.ceiling


def attack(
    seen: Sequence[Sums],
    labels: npt.ArrayLike,
    *,
    positives: float | None = None,
    strata: npt.ArrayLike | None = None,
    mu: float = math.inf,
    confidence: float = 0.95,
) -> SummedLabels:
    """Score all rows from what was seen, and hold the scores against the labels, 0 or 1.

    `strata` [rows] are equal for rows about which columns say the same; None if columns say nothing about labels.
    """
    true = read_labels(labels)
    scores = label_scores(seen, len(true), positives)
    matching = np.zeros(len(true), np.int64) if strata is None else np.asarray(strata)
    return SummedLabels(
        **scored(true, scores, scores > 0.5, confidence),
        mu=mu,
        n_sums=sum(len(each.sums) for each in seen),
        matched=matched_area(scores, true, matching, confidence),
    )


class Look(NamedTuple):
    """Sums to somebody who knows all that is in them but one row's part."""

    place: Ints  # [rows] the sum that each row is in, or NOWHERE
    amount: Floats  # [rows] what a row's secret moves its sum by
    noise: Floats  # [sums] as it was drawn
    variance: Floats  # [sums] as it is stated


def looks_at_labels(seen: Sequence[Sums], labels: npt.ArrayLike) -> list[Look]:
    """For one label that is 0 or 1, all others being known."""
    true, looks = np.asarray(labels, np.float64), []
    for each in seen:
        place, sums, variance = _checked(each, len(true))
        inside = place != NOWHERE
        noise = sums - np.bincount(place[inside], true[inside], len(sums))
        looks.append(Look(place, np.ones(len(true)), noise, variance))
    return looks


def all_but_one(looks: Sequence[Look], confidence: float = 0.95) -> Interval:
    """The area under the ROC curve for the row about which all looks together say most, by the noise that was drawn.

    Noise is taken for Gaussian, and its stated variances for right but for one factor, which is measured.
    """
    risk = (1.0 - checked_confidence(confidence)) / 2.0
    n_sums, squares = sum(len(look.noise) for look in looks), 0.0
    precision = np.zeros(len(looks[0].place) if looks else 0)
    for look in looks:
        variance = np.maximum(look.variance, _LEAST_VARIANCE)
        squares += float((look.noise**2 / variance).sum())
        precision += np.where(look.place != NOWHERE, look.amount**2 / variance[look.place], 0.0)
    if not squares:
        raise InvalidInput("there is no noise to measure")
    factors = (squares / n_sums, squares / chi2.ppf(risk, n_sums), squares / chi2.ppf(1.0 - risk, n_sums))
    return Interval(*(float(ndtr(math.sqrt(precision.max() / factor / 2.0))) for factor in factors))
