"""What an attack found, held against the truth: shares and areas under ROC curves, with intervals as exact as can be.

Most attacks look for labels of two classes: `scored` holds them against the truth and beside chance, and `ceiling` is
what a claim in Gaussian DP allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, expit, ndtr, ndtri
from scipy.stats import rankdata

from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.errors import InvalidInput, InvalidParameter


class Interval(NamedTuple):
    """An estimate and the two ends between which the truth lies, with the confidence that was asked for."""

    estimate: float
    low: float
    high: float

    @classmethod
    def mean(cls, several: Sequence[Interval]) -> Interval:
        """The mean of all estimates, and of both ends."""
        return cls(*(float(np.mean(each)) for each in zip(*several, strict=True)))

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f} to {self.high:.3f})"


def at_least(hits: npt.ArrayLike, n: int, risk: float) -> Floats:
    """What the chance of a hit is at least, but for the stated risk: the lower end by Clopper and Pearson 1934.

    The chance p at which this many hits or more have probability `risk`. Exact for independent trials of equal chance.
    """
    k = np.asarray(hits, np.float64)
    inside = k > 0.0
    return np.where(inside, betaincinv(np.where(inside, k, 1.0), n - k + 1.0, risk), 0.0)


def at_most(hits: npt.ArrayLike, n: int, risk: float) -> Floats:
    """What the chance of a hit is at most, but for the stated risk."""
    return 1.0 - at_least(n - np.asarray(hits, np.float64), n, risk)


def share(hits: int, n: int, confidence: float = 0.95) -> Interval:
    """The share of hits among n trials, with a two-sided interval."""
    risk = (1.0 - checked_confidence(confidence)) / 2.0
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    return Interval(hits / n, float(at_least(hits, n, risk)), float(at_most(hits, n, risk)))


def area_under_roc(positive: Floats, negative: Floats, confidence: float = 0.95) -> Interval:
    """P(a positive scores above a negative), ties counting half, with the interval of DeLong et al. 1988.

    The variance is that of the two samples' own placements: V10 = the share of negatives below each positive, V01 =
    the share of positives above each negative; var = var(V10) / n_positive + var(V01) / n_negative. It is formed for
    the logit of the area, so that it stays between 0 and 1.
    """
    if min(len(positive), len(negative)) < 2:
        raise InvalidParameter(
            f"an area under a curve needs two scores of each kind or more, got {len(positive)} and {len(negative)}"
        )
    return _area([(positive, negative)], confidence)


def matched_area(scores: Floats, labels: npt.NDArray[Any], strata: npt.NDArray[Any], confidence: float) -> Interval:
    """P(a row with label 1 scores above one with label 0 of the same stratum), all pairs alike; ties count half.

    Strata are independent, so variances add up. Those with fewer than two rows of a label are left out.
    """
    both = [[scores[(strata == stratum) & (labels == label)] for label in (1, 0)] for stratum in np.unique(strata)]
    samples = [(positive, negative) for positive, negative in both if min(len(positive), len(negative)) >= 2]
    if not samples:
        raise InvalidInput("no stratum has two rows of each label")
    return _area(samples, confidence)


def _area(samples: Sequence[tuple[Floats, Floats]], confidence: float) -> Interval:
    """Over all pairs of a positive and a negative of the same sample."""
    z = float(ndtri(0.5 + checked_confidence(confidence) / 2.0))
    n_pairs = sum(len(positive) * len(negative) for positive, negative in samples)
    area = variance = 0.0
    for positive, negative in samples:
        m, n = len(positive), len(negative)
        everybody = rankdata(np.concatenate([positive, negative]))
        above = (everybody[:m] - rankdata(positive)) / n
        below = 1.0 - (everybody[m:] - rankdata(negative)) / m
        weight = m * n / n_pairs
        area += weight * float(above.mean())
        variance += weight**2 * (float(above.var(ddof=1)) / m + float(below.var(ddof=1)) / n)
    n_least = sum(min(len(positive), len(negative)) for positive, negative in samples)
    if not 0.0 < area < 1.0:
        # All pairs agree: the placements do not vary, and Clopper and Pearson over the smaller samples speaks instead.
        return Interval(area, *share(n_least if area else 0, n_least, confidence)[1:])
    middle, width = math.log(area / (1.0 - area)), z * math.sqrt(variance) / (area * (1.0 - area))
    return Interval(area, float(expit(middle - width)), float(expit(middle + width)))


def checked_confidence(confidence: Any) -> float:
    """The confidence, if it is one."""
    if not isinstance(confidence, float) or not 0.5 <= confidence < 1.0:
        raise InvalidParameter(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    return confidence


# --- labels ----------------------------------------------------------------------------------------------------------


def ceiling(mu: float) -> float:
    """The largest area under the ROC curve that anybody can reach against a mu-GDP release."""
    return float(ndtr(mu / math.sqrt(2.0)))


class Scored(NamedTuple):
    """How well labels of two classes were told apart, beside chance."""

    accuracy: Interval
    """Of the likelier labels."""
    area: Interval
    """Under the ROC curve: P(a row with label 1 scores above one with label 0); a half means that nothing is learnt."""
    chance: float
    """Accuracy of the more frequent label."""


def scored(true: npt.NDArray[Any], scores: Floats, guesses: Bools, confidence: float = 0.95) -> Scored:
    """Scores and guesses [rows] held against true labels, 0 or 1."""
    n_rows, ones = len(true), int(true.sum())
    return Scored(
        share(int((guesses == (true == 1)).sum()), n_rows, confidence),
        area_under_roc(scores[true == 1], scores[true == 0], confidence),
        max(ones, n_rows - ones) / n_rows,
    )
