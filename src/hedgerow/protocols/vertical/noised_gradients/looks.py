"""Early stopping under noise: what a look at the rows that are watched costs their labels.

The labels of rows that are watched are in no gradient that is released. What they decide is when training stops, and
that all parties learn (`Onward`). So after each iteration the label holder makes one number of them, with noise:

    S = sum over watched rows of round(2^20 w / w_max min(v, B) / B) + discrete Gaussian noise of scale sigma

v is what the metric says of one row, between 0 and B, which follows from the job: a share below 1 percent counts as 1
percent, and predictions as the nearest number within the label range. Weights w are known to all. One changed label
changes one term, which is a whole number from 0 to 2^20: so S moves by at most 2^20, given the scores. The scores follow
from what was released of other rows' labels, and from earlier numbers of this kind. All that is told, and the learning
curve in the model, is made of these numbers.

What it costs. With T iterations at most there are T such releases, each a Gaussian mechanism, and sigma is chosen so
that together they cost the job's (epsilon, delta). A label is either learned from or watched, never both, and which of
the two does not depend on labels. So for one changed label either all looks are processing of what is the same for both
labels, or all gradients are: the whole run costs the larger one of the two, not their sum (parallel composition).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.boosting import DEFAULT_METRIC, Metric
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for, sigma_for_mu
from hedgerow.privacy.events import Adjacency, DiscreteGaussian, Event
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob

ADJACENCY: Adjacency = "replace_one"
"""One label is exchanged for another; rows and columns stay."""
STEPS = 2**20
LEAST_SHARE = 0.01
MEANS = ("logloss", "mlogloss", "error", "merror", "rmse", "mae")
"""Metrics that are means over rows, or roots of one."""


@dataclass(frozen=True)
class Looks:
    """The noise of all looks of a run, from public numbers alone."""

    sigma: float

    @classmethod
    def plan(cls, job: NoisedGradientsJob) -> Looks:
        """So much that a look after every iteration costs the job's budget."""
        return cls(sigma_for_mu(float(STEPS), mu_for(*job.budget) ** 2 / job.boosting.n_iterations))

    @property
    def event(self) -> Event:
        """Of one look."""
        return DiscreteGaussian(float(STEPS), self.sigma, 1, 1, ADJACENCY)

    def look(
        self, metric: Metric, loss: Loss, labels: Floats, raw: Floats, weight: Floats | None, random: SecureRandom
    ) -> float:
        """The metric of these rows, with noise."""
        values, bound = terms(metric.name, loss, labels, raw)
        weight = np.ones(len(labels)) if weight is None else weight
        total, largest = float(weight.sum()), float(weight.max())
        if not total:
            return math.nan  # nobody counts, whatever the labels are
        steps = np.rint(STEPS * (weight / largest) * np.clip(values / bound, 0.0, 1.0)).astype(np.int64)
        how = {"sensitivity": float(STEPS), "sigma": self.sigma}
        noisy = discrete_gaussian(np.array([steps.sum()]), **how, random=random, adjacency=ADJACENCY)
        mean = float(noisy.values[0]) * bound * largest / (STEPS * total)
        return math.sqrt(max(mean, 0.0)) if metric.name == "rmse" else mean


def check_metric(job: NoisedGradientsJob) -> None:
    """InvalidParameter for a metric that one label may change by more than its share."""
    usual = DEFAULT_METRIC[job.boosting.loss] if job.task == "regression" else MEANS[0]
    name = job.boosting.eval_metric or usual
    if name not in MEANS:
        raise InvalidParameter(
            f"{job.NAME}: with noise eval_metric must be a mean over rows, one of {', '.join(MEANS)}, got {name!r}"
        )


def terms(metric: str, loss: Loss, labels: Floats, raw: Floats) -> tuple[Floats, float]:
    """What the metric is the mean of, by row, and what no row exceeds."""
    predictions = predictions_from(loss.name, raw)
    low, high = loss.label_range
    if metric in ("logloss", "mlogloss"):
        own = predictions[np.arange(len(labels)), labels.astype(np.int64)]
        return -np.log(np.maximum(own, LEAST_SHARE)), -math.log(LEAST_SHARE)
    if metric in ("error", "merror"):
        return (predictions.argmax(axis=1) != labels).astype(np.float64), 1.0
    width = max(high - low, 1e-30)
    away = np.abs(np.clip(labels, low, high) - np.clip(predictions, low, high))
    return (away**2, width**2) if metric == "rmse" else (away, width)
