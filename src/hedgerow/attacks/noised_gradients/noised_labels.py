"""Labels from noisy gradients: what a feature holder of vertical.noised_gradients can add up over all releases.

For the logistic loss a row's gradient is g = p - y. The label holder sends g + noise, once or once per tree, with fresh
noise each time. Scores come from released values only, so an adversary who has the whole model knows p. We give it that
much:

    1  p - (g + noise) = y - noise: every release is one more look at the label
    2  looks are averaged, each with the weight 1 / sigma^2 of its noise; nothing else in them depends on y
    3  what is left is y + N(0, 1 / mu^2), where mu^2 is the sum over the releases of 1 / sigma^2

mu is what Gaussian DP allows for one label (a label moves one gradient by 1), so nobody can rank labels better than
AUC = Phi(mu / sqrt 2) from the release, and this adversary reaches it. Without noise the sign of one gradient is the
label, whatever p was.

That ceiling is about what a row's own label adds. What a useful model says about rows like it is on top for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from hedgerow.attacks.intervals import Interval, area_under_roc, share
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput, InvalidParameter


def total_mu(sigmas: Sequence[float]) -> float:
    """mu of all releases together, in Gaussian DP: sigma is in units of the gradient, which one label moves by 1."""
    if not len(sigmas) or not all(sigma >= 0.0 for sigma in sigmas):
        raise InvalidParameter(f"every release needs its sigma, 0 for no noise, got {list(sigmas)}")
    return math.inf if 0.0 in sigmas else math.sqrt(math.fsum(sigma**-2.0 for sigma in sigmas))


def ceiling(mu: float) -> float:
    """The largest area under the ROC curve that anybody can reach against a mu-GDP release."""
    return float(ndtr(mu / math.sqrt(2.0)))


@dataclass(frozen=True)
class RecoveredLabels:
    """How well labels were told apart, beside chance and beside what the guarantee allows."""

    n_rows: int
    n_releases: int
    """Noisy vectors that were received: one per tree, or one for the whole run."""
    mu: float
    knows_scores: bool
    area: Interval
    """P(a row with label 1 scores above one with label 0); a half means that nothing is learnt."""
    accuracy: Interval
    """Of the likeliest labels."""
    chance: float
    """Accuracy of the more frequent label."""
    confidence: float

    @property
    def ceiling(self) -> float:
        """The largest area that the guarantee allows: Phi(mu / sqrt 2)."""
        return ceiling(self.mu)

    @property
    def refutes(self) -> bool:
        """Whether the area is above the ceiling by more than chance explains."""
        return self.area.low > self.ceiling

    def __str__(self) -> str:
        return (
            f"{self.n_releases} x noisy gradients, mu {self.mu:.3f}: area {self.area}, at most {self.ceiling:.3f}; "
            f"accuracy {self.accuracy}, chance {self.chance:.3f}"
        )

    def verdict(self) -> str:
        """The outcome in words."""
        if self.refutes:
            return f"ALARM: {self}. That is more than the claim allows: the claim is false."
        return f"{self}. The claim is not contradicted."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a privacy statement."""
        return {
            **asdict(self),
            "mu": self.mu if math.isfinite(self.mu) else None,
            "area": self.area._asdict(),
            "accuracy": self.accuracy._asdict(),
            "ceiling": self.ceiling,
        }


def label_scores(gradients: npt.ArrayLike, probabilities: npt.ArrayLike | None, sigmas: Sequence[float]) -> Floats:
    """How much each row looks like label 1: its label plus noise where p is known, else minus its mean gradient.

    `gradients` [releases, rows] as received, in units of the gradient; `probabilities` [releases, rows], or broadcast
    to that, are p at the time. An adversary without the model has None of them.
    """
    seen = np.asarray(gradients, np.float64)
    if seen.ndim != 2 or len(seen) != len(sigmas) or not np.isfinite(seen).all():
        raise InvalidInput(f"one finite gradient per release and row is needed, got {seen.shape} for {len(sigmas)}")
    exact = [sigma == 0.0 for sigma in sigmas]
    weights = np.array(exact if any(exact) else [sigma**-2.0 for sigma in sigmas], np.float64)
    known = np.zeros(1) if probabilities is None else np.asarray(probabilities, np.float64)
    looks = known - seen
    if looks.shape != seen.shape:
        raise InvalidInput(f"probabilities {known.shape} do not fit gradients {seen.shape}")
    scores: Floats = weights @ looks / weights.sum()
    return scores


def attack(
    gradients: npt.ArrayLike,
    probabilities: npt.ArrayLike | None,
    sigmas: Sequence[float],
    labels: npt.ArrayLike,
    *,
    confidence: float = 0.95,
) -> RecoveredLabels:
    """Score all rows from what was received, and hold the scores against the labels, 0 or 1."""
    scores = label_scores(gradients, probabilities, sigmas)
    true = np.asarray(labels)
    if true.shape != scores.shape or not np.isin(true, (0, 1)).all():
        raise InvalidInput(f"one label per row is needed, 0 or 1, got {true.shape} for {len(scores)} rows")
    mu = total_mu(sigmas)
    guesses = scores > (_threshold(scores, mu) if probabilities is not None else 0.0)
    n_rows, ones = len(true), int(true.sum())
    return RecoveredLabels(
        n_rows,
        len(sigmas),
        mu,
        probabilities is not None,
        area_under_roc(scores[true == 1], scores[true == 0], confidence),
        share(int((guesses == (true == 1)).sum()), n_rows, confidence),
        max(ones, n_rows - ones) / n_rows,
        confidence,
    )


def _threshold(scores: Floats, mu: float) -> float:
    """Where both labels are equally likely, with the share of ones as the scores themselves show it."""
    ones = min(max(float(scores.mean()), 1.0 / len(scores)), 1.0 - 1.0 / len(scores))
    return 0.5 + math.log((1.0 - ones) / ones) / mu**2
