"""Membership inference: who was in the training rows, as far as a released model tells.

    1  every record is a member or not by its own fair coin; a model is trained on the members
    2  the adversary has all records and the model, and gives each record a score, the higher the more it looks trained
    3  scores of members are held against those of the others

Two adversaries. The first takes the model's confidence in the true label as it is (Yeom et al. 2018). The second also
trains shadow models of its own on other draws of the records, and asks how unusual the confidence is among the shadows
that did not see the record (the offline attack of Carlini et al. 2022): a record that everybody predicts well then no
longer looks like a member.

(epsilon, delta)-DP puts a ceiling on all of them, `Ceiling`. Rates and their intervals are about the records attacked
and the models at hand; records that share a model are not independent, so an interval beyond the ceiling is a warning,
not a proof. The proof is `epsilon_lower`, by the theorem for one run (`audit`), which allows for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.central.audit import lower_bound_one_run
from hedgerow.attacks.results import Interval, area_under_roc, at_least, at_most, checked_confidence, share
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.errors import InvalidInput, InvalidParameter

Fit = Callable[[Ints, int], npt.ArrayLike]
"""(numbers of the rows to train on, number of the model) -> confidence in the true label, of ALL records in order.

`label_confidence` gives it from a classifier's probabilities; for a regression minus the loss will do."""

_LEAST_DEVIATION = 1e-3
"""Of shadow confidences on the logit scale: below that a record's shadows agree by chance."""

_SHARE_OF_GUESSES = 0.1
"""Of all records: those of which the adversary is most certain, guessed for the bound on epsilon. Fixed beforehand."""


@dataclass(frozen=True)
class Ceiling:
    """What no adversary can exceed, on average over trainings, against an (epsilon, delta)-DP training.

    From P(E) <= e^epsilon Q(E) + delta for an event and for its complement, in both directions (Kairouz et al. 2015).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0 or not 0.0 <= self.delta <= 1.0:
            raise InvalidParameter(f"a ceiling needs epsilon >= 0 and delta from 0 to 1, got {self}")

    def true_positives(self, false_positives: float) -> float:
        """TPR <= min(e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR), 1)."""
        grown = math.exp(self.epsilon) * false_positives if self.epsilon < 700.0 else math.inf
        first = (grown if false_positives else 0.0) + self.delta
        return min(first, 1.0 - math.exp(-self.epsilon) * (1.0 - self.delta - false_positives), 1.0)

    @property
    def advantage(self) -> float:
        """TPR - FPR <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1)."""
        return 1.0 - 2.0 * self._corner

    @property
    def area(self) -> float:
        """The area under the curve of `true_positives`; e^epsilon / (1 + e^epsilon) for delta = 0.

        The curve goes straight from (0, delta) to its corner (c, 1 - c) and on to (1 - delta, 1).
        """
        c, d = self._corner, self.delta
        return c * (d + 1.0 - c) / 2.0 + (1.0 - d - c) * (2.0 - c) / 2.0 + d

    @property
    def _corner(self) -> float:
        """The FPR at which the two bounds on TPR meet."""
        return (1.0 - self.delta) * math.exp(-self.epsilon) / (1.0 + math.exp(-self.epsilon))


class Rate(NamedTuple):
    """How many members an adversary finds while it accuses at most `limit` of the others."""

    limit: float
    true_positives: Interval
    false_positives: Interval
    """Of the threshold that was used; its upper end shows whether there were records enough for this limit."""


@dataclass(frozen=True)
class MembershipResult:
    """How well members were told from others."""

    attack: str
    n_members: int
    n_others: int
    area: Interval
    """P(a member scores above another record); a half means that nothing is learnt."""
    advantage: Interval
    """TPR - FPR at a threshold that one half of the records chose, measured on the other half."""
    rates: tuple[Rate, ...]
    epsilon_lower: float
    """A training that is (epsilon, delta)-DP for a smaller epsilon would let this many guesses be right too rarely."""
    delta: float
    confidence: float

    def verdict(self, ceiling: Ceiling | None = None) -> str:
        """The outcome in words; with a ceiling, held against the claim it stands for."""
        words = (
            f"{self.attack}: advantage {self.advantage}, area {self.area}, "
            + ", ".join(f"{rate.true_positives} found at {rate.limit:.1%} false alarms" for rate in self.rates)
            + ". "
        )
        if self.advantage.low > 0.0:
            words += "The model gives members away."
        else:
            words += "Members are not told from others by this attack; a better one may."
        if ceiling is None:
            return words
        allowed = f"at epsilon {ceiling.epsilon:g} an advantage of {ceiling.advantage:.3f}"
        if self.epsilon_lower > ceiling.epsilon:
            return f"ALARM: {words} The claim is false: epsilon is at least {self.epsilon_lower:.3g}, not {ceiling}."
        if self.advantage.low > ceiling.advantage:
            return f"WARNING: {words} That is more than the claim allows on average: {allowed}."
        return f"{words} The claim allows {allowed}: it is not contradicted."


def attack(
    fit: Fit,
    n_records: int,
    *,
    rng: np.random.Generator,
    n_shadows: int = 0,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> list[MembershipResult]:
    """Train a model on about half of the records and attack it: by its confidence, and with shadow models if wanted.

    `fit` is called 1 + n_shadows times. Every record is left out of half of the shadows; 16 are enough to see
    something, 64 for a strong attack.
    """
    if n_records < 20 or n_shadows in range(1, 4):
        raise InvalidParameter(
            f"an attack needs 20 records and no or at least 4 shadows, got {n_records} and {n_shadows}"
        )
    members = rng.random(n_records) < 0.5
    target = _confidences(fit, members, 0)
    results = [assess("confidence", target, members, delta=delta, confidence=confidence)]
    if n_shadows:
        # Each record sits in exactly half of the shadows, so that each has as many that did not see it.
        order = np.argsort(rng.random((n_shadows, n_records)), axis=0)
        inside = order < n_shadows // 2
        shadows = np.stack([_confidences(fit, own, k + 1) for k, own in enumerate(inside)])
        scores = unusual(target, shadows, ~inside)
        results.append(assess("likelihood ratio", scores, members, delta=delta, confidence=confidence))
    return results


def label_confidence(probabilities: Floats, classes: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """The probability of each record's true label, from a classifier's `predict_proba` and its `classes_`."""
    known = np.asarray(classes)
    place = np.argmax(np.asarray(labels)[:, None] == known[None, :], axis=1)
    chosen: Floats = probabilities[np.arange(len(place)), place]
    return chosen


def unusual(target: Floats, shadows: Floats, outside: Bools) -> Floats:
    """How far each record's confidence, as a logit, lies above those of the shadows that did not see it, in deviations.

    `target` [records]; `shadows`, `outside` [shadows, records]. Deviations are drawn towards their middle over all
    records, because a few shadows measure a single one badly.
    """
    logits, own = _logit(shadows), _logit(target)
    n = np.maximum(outside.sum(axis=0), 1)
    mean = (logits * outside).sum(axis=0) / n
    variance = (((logits - mean) ** 2) * outside).sum(axis=0) / np.maximum(n - 1, 1)
    typical = float(np.median(variance))
    steady = (variance * n + typical * 4.0) / (n + 4.0)
    scores: Floats = (own - mean) / np.sqrt(steady + _LEAST_DEVIATION**2)
    return scores


def assess(
    name: str, scores: Floats, members: Bools, *, delta: float = 0.0, confidence: float = 0.95
) -> MembershipResult:
    """Hold an adversary's scores, the higher the more a record looks like a member, against the truth."""
    checked_confidence(confidence)
    if scores.shape != members.shape or scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidInput(f"one score per record is needed, and none may be NaN: {scores.shape}, {members.shape}")
    inside, outside = scores[members], scores[~members]
    if min(len(inside), len(outside)) < 4:
        raise InvalidInput(f"four members and four others are needed, got {len(inside)} and {len(outside)}")
    guesses = max(int(_SHARE_OF_GUESSES * len(scores)), 1)
    return MembershipResult(
        name,
        len(inside),
        len(outside),
        area_under_roc(inside, outside, confidence),
        _advantage(inside, outside, confidence),
        tuple(_rate(inside, outside, limit, confidence) for limit in (0.01, 0.001)),
        lower_bound_one_run(scores, members, guesses=guesses, delta=delta, confidence=confidence).epsilon_lower,
        delta,
        confidence,
    )


def _confidences(fit: Fit, members: Bools, number: int) -> Floats:
    given: Any = fit(np.flatnonzero(members), number)
    values = np.asarray(given, np.float64)
    if values.shape != members.shape:
        raise InvalidInput(f"fit must give a confidence for each of the {len(members)} records, got {values.shape}")
    return values


def _logit(probabilities: Floats) -> Floats:
    """Confidences that are no probabilities, as minus a loss, are left as they are."""
    if probabilities.min() < 0.0 or probabilities.max() > 1.0:
        return probabilities
    kept = np.clip(probabilities, 1e-7, 1.0 - 1e-7)
    logits: Floats = np.log(kept) - np.log1p(-kept)
    return logits


def _advantage(inside: Floats, outside: Floats, confidence: float) -> Interval:
    """The threshold comes from every second record, the rates from the others; a quarter of the risk for each end."""
    places = np.unique(np.concatenate([inside[::2], outside[::2]]))
    gained = _share_above(inside[::2], places) - _share_above(outside[::2], places)
    threshold = places[int(np.argmax(gained))]
    risk = (1.0 - confidence) / 4.0
    counts = [(int(np.count_nonzero(own[1::2] >= threshold)), len(own[1::2])) for own in (inside, outside)]
    (hits, n), (wrong, m) = counts
    low = float(at_least(hits, n, risk)) - float(at_most(wrong, m, risk))
    high = float(at_most(hits, n, risk)) - float(at_least(wrong, m, risk))
    return Interval(hits / n - wrong / m, low, high)


def _share_above(scores: Floats, places: Floats) -> Floats:
    above: Floats = 1.0 - np.searchsorted(np.sort(scores), places, side="left") / len(scores)
    return above


def _rate(inside: Floats, outside: Floats, limit: float, confidence: float) -> Rate:
    """Above the others' score of which at most `limit` of them are higher."""
    allowed = math.floor(limit * len(outside))
    threshold = np.sort(outside)[len(outside) - 1 - allowed]
    return Rate(
        limit,
        share(int(np.count_nonzero(inside > threshold)), len(inside), confidence),
        share(int(np.count_nonzero(outside > threshold)), len(outside), confidence),
    )
