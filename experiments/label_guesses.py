"""What attacks on labels come to: more figures than `hedgerow attack` prints, and verdicts in words and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.found import Found
from hedgerow.attacks.masked_gradients.label_network import gradients_by_network
from hedgerow.attacks.masked_gradients.unmask_least_squares import Masked, behind, labels_of
from hedgerow.attacks.mp_fedxgb.bucket_labels import UNKNOWN, Buckets, all_labels
from hedgerow.attacks.noised_gradients.noised_labels import label_scores
from hedgerow.attacks.private_histograms import noisy_sums
from hedgerow.attacks.results import Interval, ceiling, matched_area, scored
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.errors import InvalidInput, InvalidParameter


@dataclass(frozen=True, kw_only=True)
class LabelsFound(Found):
    """How well labels were told apart (`Scored`), beside what a claim allows."""

    n_rows: int
    accuracy: Interval
    area: Interval
    chance: float
    mu: float = math.inf
    """What is claimed for one label, in Gaussian DP; infinite for no claim."""

    @property
    def ceiling(self) -> float:
        """The largest area that the claim allows: Phi(mu / sqrt 2)."""
        return ceiling(self.mu)

    @property
    def refutes(self) -> bool:
        """Whether the area is above the ceiling by more than chance explains."""
        return self.area.low > self.ceiling

    @property
    def succeeds(self) -> bool:
        """Whether labels are told apart by more than chance explains."""
        return self.area.low > 0.5

    def verdict(self) -> str:
        """The outcome in words."""
        if self.refutes:
            return f"ALARM: {self}. That is more than the claim allows: the claim is false."
        if math.isfinite(self.mu):
            return f"{self}. The claim is not contradicted."
        if self.succeeds:
            return f"ALARM: {self}. Labels are told apart. Nothing is claimed."
        return f"{self}. This attacker finds nothing, which says nothing about a better one. Nothing is claimed."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the ceiling."""
        return {**super().to_dict(), "ceiling": self.ceiling}


def read_labels(labels: npt.ArrayLike, n_rows: int | None = None) -> npt.NDArray[Any]:
    """True labels, 0 or 1, one for each row."""
    true = np.asarray(labels)
    wanted = true.shape[:1] if n_rows is None else (n_rows,)
    if true.ndim != 1 or true.shape != wanted or not np.isin(true, (0, 1)).all():
        asked = "" if n_rows is None else f" for {n_rows} rows"
        raise InvalidInput(f"one label per row is needed, 0 or 1, got {true.shape}{asked}")
    return true


# --- vertical.noised_gradients ---------------------------------------------------------------------------------------


def total_mu(sigmas: Sequence[float]) -> float:
    """mu of all releases together, in Gaussian DP: sigma is in units of the gradient, which one label moves by 1."""
    if not len(sigmas) or not all(sigma >= 0.0 for sigma in sigmas):
        raise InvalidParameter(f"every release needs its sigma, 0 for no noise, got {list(sigmas)}")
    return math.inf if 0.0 in sigmas else math.sqrt(math.fsum(sigma**-2.0 for sigma in sigmas))


@dataclass(frozen=True, kw_only=True)
class RecoveredLabels(LabelsFound):
    """Labels told apart from noisy gradients; `mu` follows from the noise."""

    n_releases: int
    """Noisy vectors that were received: one per tree, or one for the whole run."""
    knows_scores: bool


def from_noised_gradients(
    gradients: npt.ArrayLike,
    probabilities: npt.ArrayLike | None,
    sigmas: Sequence[float],
    labels: npt.ArrayLike,
    *,
    confidence: float = 0.95,
) -> RecoveredLabels:
    """Score all rows from what was received, and hold the scores against the labels, 0 or 1."""
    scores = label_scores(gradients, probabilities, sigmas)
    true = read_labels(labels, len(scores))
    mu = total_mu(sigmas)
    guesses = scores > (_threshold(scores, mu) if probabilities is not None else 0.0)
    return RecoveredLabels(
        n_rows=len(true),
        **scored(true, scores, guesses, confidence)._asdict(),
        mu=mu,
        n_releases=len(sigmas),
        knows_scores=probabilities is not None,
    )


def _threshold(scores: Floats, mu: float) -> float:
    """Where both labels are equally likely, with the share of ones as the scores themselves show it."""
    ones = min(max(float(scores.mean()), 1.0 / len(scores)), 1.0 - 1.0 / len(scores))
    return 0.5 + math.log((1.0 - ones) / ones) / mu**2


# --- vertical.masked_gradients ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UnmaskedLabels(LabelsFound):
    """Labels recovered from behind masks: guesses are the signs of recovered gradients."""

    how: str


def from_masked_gradients(
    messages: Sequence[Masked],
    labels: npt.ArrayLike,
    *,
    total: float | None = None,
    mu: float = math.inf,
    confidence: float = 0.95,
) -> UnmaskedLabels:
    """Unmask all messages about one node (`behind`), and hold what comes out against its rows' labels, 0 or 1.

    `mu` is what is claimed, for the result only.
    """
    how, found = behind(messages, total)
    return UnmaskedLabels(**_signs(found, labels, confidence), mu=mu, how=how)


def by_network(
    message: Masked,
    active: Bools,
    square_sum: float,
    labels: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    **training: Any,
) -> LabelsFound:
    """The same by the network of the paper (`gradients_by_network`), from one message."""
    read_labels(labels, len(message.gradients))
    return LabelsFound(**_signs(gradients_by_network(message, active, square_sum, **training), labels, confidence))


def _signs(found: Floats, labels: npt.ArrayLike, confidence: float) -> dict[str, Any]:
    true = read_labels(labels, len(found))
    return {"n_rows": len(true), **scored(true, -found, labels_of(found) == 1, confidence)._asdict()}


# --- vertical.private_histograms -------------------------------------------------------------------------------------


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


def from_noisy_sums(
    seen: Sequence[noisy_sums.Sums],
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
    scores = noisy_sums.label_scores(seen, len(true), positives)
    matching = np.zeros(len(true), np.int64) if strata is None else np.asarray(strata)
    return SummedLabels(
        n_rows=len(true),
        **scored(true, scores, scores > 0.5, confidence)._asdict(),
        mu=mu,
        n_sums=sum(len(each.sums) for each in seen),
        matched=matched_area(scores, true, matching, confidence),
    )


# --- vertical.mp_fedxgb ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LabelsOfBuckets(LabelsFound):
    """What was found out about labels, held against them."""

    certain: int
    """Rows whose labels the counts determine."""
    certain_right: int


def from_buckets(buckets: Sequence[Buckets], labels: Ints) -> LabelsOfBuckets:
    """Labels from counts; the true `labels` are for the result only."""
    n_rows = len(labels)
    if any(len(codes) != n_rows for codes, _ in buckets) or not np.isin(labels, (0, 1)).all():
        raise InvalidInput(f"one bucket and one label, 0 or 1, are needed per row, got {n_rows} labels")
    certain, likely = all_labels(buckets, n_rows)
    return LabelsOfBuckets(
        n_rows=n_rows,
        **scored(labels, likely, likely > 0.5)._asdict(),
        certain=int((certain != UNKNOWN).sum()),
        certain_right=int((certain == labels).sum()),
    )
