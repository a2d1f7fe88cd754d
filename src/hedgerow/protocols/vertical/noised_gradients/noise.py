"""How much noise gradients get, on which scale, and what it is worth.

A row's gradient is g = s(score) - y: what its score gives, which all parties know, less its label. Only the label is
secret, so with labels in [low, high] one changed label moves one gradient by at most high - low, once the scores are
given. Whole numbers: y is taken from the middle of the range and rounded to the scale, which is exact for two classes.
Of more classes a row has a gradient p_k - [y = k] for each class k, so its label gives -1 for one class and 0 for all
others: a changed label moves two of these numbers by 1 each, which is sqrt(2) in L2, whatever the number of classes.

Weights of rows, which all parties know, are multiplied to what was released: that is processing, so the noise does not
depend on them. Labels of rows that are watched for early stopping are not released at all.

Sums of packed gradients must stay inside 32 bits over any subset of the rows. Such a sum is at most the sum of all
positive parts, which for noise of scale sigma is near n sigma / sqrt(2 pi), not n times the largest noise there could
be. So the scale is chosen for the former, with room to spare, and noise that does not fit even so is clipped, which is
processing of what has noise already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import FIELD_FOR_VALUES, Loss, Quantiser
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for, sigma_for_mu
from hedgerow.privacy.events import Composed, DiscreteGaussian, Event, Released, Repeated
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, MESSAGE, GradientsJob, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.looks import ADJACENCY, Looks

MOST = 2**31 - 1
_ROUNDING = 2
"""Units by which rounding, in floats and to a coarser scale, may add to how far a value moves."""


def plain_quantiser(job: GradientsJob, loss: Loss, n_rows: int, weight: Floats | None = None) -> Quantiser:
    """The engine's scales; where every hessian counts as 1, those of a loss of which that is true."""
    plain = Quantiser.for_rows(loss, n_rows, weight, gradient_bits=job.boosting.gradient_bits)
    if job.score != FIRST_ORDER:
        return plain
    ones = Quantiser.for_rows(first_order_loss(loss), n_rows, weight)
    return replace(plain, hessian_scale=ones.hessian_scale)


def first_order_loss(loss: Loss) -> Loss:
    """A loss with the same gradients' bound, whose hessians are 1."""
    return Loss("squared", 1, (0.0, loss.gradient_bound))


@dataclass(frozen=True)
class LabelNoise:
    """per="run" and "tree": noise on what labels add to gradients. Depends on public numbers only."""

    centre: float
    scale: float
    reach: int  # the label at the end of its range is this many units from the centre
    most_from_score: int  # units that the score alone can make of a gradient
    sigma: float  # in units
    weights: Floats  # of the rows, 0 for those that are watched
    n_outputs: int = 1

    @classmethod
    def plan(cls, job: NoisedGradientsJob, loss: Loss, n_rows: int, weights: Floats | None = None) -> LabelNoise:
        """The noise that makes all releases together cost the job's budget; rows that are watched have weight 0."""
        weights = np.ones(n_rows) if weights is None else weights
        low, high = loss.label_range
        half, n_outputs = (high - low) / 2.0, loss.n_outputs
        mu_squared = mu_for(*job.budget) ** 2 / job.releases
        sigma = _moves(n_outputs) * 2.0 * half / math.sqrt(mu_squared)
        from_score = {"logistic": 0.5}.get(loss.name, loss.gradient_bound)
        finest = plain_quantiser(job, loss, n_rows, weights).gradient_scale
        scale = _scale(finest, from_score + half, sigma, float(weights.sum()), float((weights**2).sum()))
        reach = round(half * scale)
        if reach < 1:
            raise InvalidParameter(
                f"{job.NAME}: noise for epsilon={job.epsilon} on {n_rows:,} rows does not fit 32-bit sums of gradients"
            )
        units = sigma_for_mu(_moves(n_outputs) * 2.0 * reach, mu_squared)
        most = math.ceil(from_score * scale) + 1
        centre = (low + high) / 2.0 if n_outputs == 1 else -1.0  # the number of no class
        return cls(centre, scale, reach, most, units, weights, n_outputs)

    @property
    def sensitivity(self) -> float:
        """How far one changed label moves its row's gradients, in units and in L2; no other row's move."""
        return _moves(self.n_outputs) * 2.0 * self.reach

    @property
    def sigma_of_gradient(self) -> float:
        """The noise of one gradient."""
        return self.sigma / self.scale

    @property
    def event(self) -> Event:
        """Of one release."""
        return DiscreteGaussian(self.sensitivity, self.sigma, self.n_outputs * len(self.weights), 1, ADJACENCY)

    def from_labels(self, labels: Floats) -> Ints:
        """What each label adds to its gradients [outputs, rows], exactly: the middle of the range less the label.

        Of several classes -1 to that of the row's class, and nothing to the others. 0 for rows that are watched.
        """
        if self.n_outputs > 1:
            units = -2.0 * self.reach * (labels == np.arange(self.n_outputs)[:, None])
        else:
            units = np.clip(np.rint((self.centre - labels) * self.scale), -self.reach, self.reach)[None]
        return np.where(self.weights > 0, units, 0).astype(np.int64)

    def release(self, exact: Ints, random: SecureRandom) -> Released[Ints]:
        """With noise; rows that are watched have none, and no label either."""
        noisy = _with_noise(exact, self.sensitivity, self.sigma, random)
        most = MOST - math.ceil(float(self.weights.sum()) * self.most_from_score)
        fitting = [fit(np.where(self.weights > 0, values, 0), most, self.weights) for values in noisy.values]
        return Released(np.array(fitting), noisy.event)

    def start(self, job: NoisedGradientsJob, loss: Loss, released: Ints) -> Floats:
        """The base scores that the job asks for, else the best ones for the first release [outputs, rows].

        These are the best constant scores for the noisy labels, as near to the ends as their noise allows.
        """
        if job.boosting.base_score is not None:
            return np.full(loss.n_outputs, float(job.boosting.base_score))
        low, high = loss.label_range
        total = float(self.weights.sum())
        from_labels = np.array([float((values * self.weights).sum()) for values in released]) / (total * self.scale)
        doubt = self.sigma_of_gradient * math.sqrt(float((self.weights**2).sum())) / total
        if loss.name == "softmax":
            shares = np.maximum(-from_labels, max(min(doubt, 1.0 / self.n_outputs), 1e-6))
            return np.asarray(np.log(shares / shares.sum()), np.float64)
        mean, doubt = self.centre - float(from_labels[0]), min(doubt, (high - low) / 2.0)
        if loss.name == "logistic":
            share = min(max(mean, low + doubt, 1e-6), high - doubt, 1.0 - 1e-6)
            return np.array([math.log(share / (1.0 - share))])
        mean = min(max(mean, low), high)
        return np.array([math.log(max(mean, doubt, 1e-6)) if loss.name == "poisson" else mean])

    def quantiser(self, job: NoisedGradientsJob, loss: Loss) -> Quantiser:
        """Scales of gradients with noise, and of hessians, which need none."""
        return replace(plain_quantiser(job, loss, len(self.weights), self.weights), gradient_scale=self.scale)


@dataclass(frozen=True)
class LevelNoise:
    """per="message": fresh noise on gradients and hessians for every level and feature holder, as published."""

    plain: Quantiser
    gradient_scale: float
    gradient_sensitivity: float
    gradient_sigma: float
    hessian_scale: float
    hessian_sensitivity: float
    hessian_sigma: float
    sends_hessians: bool
    n_rows: int

    @classmethod
    def plan(cls, job: NoisedGradientsJob, loss: Loss, n_rows: int) -> LevelNoise:
        """The noise that makes one message cost (epsilon, delta), if scores are given."""
        plain = plain_quantiser(job, loss, n_rows)
        sends = job.score != FIRST_ORDER and loss.name != "squared"  # else every hessian is 1
        if not job.has_noise:
            return cls(plain, plain.gradient_scale, 0.0, 0.0, plain.hessian_scale, 0.0, 0.0, sends, n_rows)
        mu_squared = mu_for(*job.budget) ** 2 / (2 if sends else 1)

        def scale_for(finest: float, bound: float, moves: float) -> tuple[float, float, float]:
            sigma = moves / math.sqrt(mu_squared)
            scale = _scale(finest, bound, sigma, float(n_rows), float(n_rows))
            sensitivity = math.ceil(moves * scale) + float(_ROUNDING)
            return scale, sensitivity, sigma_for_mu(sensitivity, mu_squared)

        low, high = loss.label_range
        gradients = scale_for(plain.gradient_scale, loss.gradient_bound, high - low)
        bound = loss.hessian_bound
        hessians = scale_for(plain.hessian_scale, bound, bound) if sends else (plain.hessian_scale, 0.0, 0.0)
        return cls(plain, *gradients, *hessians, sends, n_rows)

    def release(self, packed: Ints, random: SecureRandom) -> tuple[Ints, Ints, Event]:
        """Gradients and hessians (none, where each is 1) with fresh noise, and the event of the message."""
        gradients = _coarser(packed >> 32, self.plain.gradient_scale / self.gradient_scale)
        noisy, event = _with_noise(gradients, self.gradient_sensitivity, self.gradient_sigma, random)
        noisy = fit(noisy, MOST)
        if not self.sends_hessians:
            return noisy, np.empty(0, np.int64), event
        hessians = _coarser(packed & 0xFFFFFFFF, self.plain.hessian_scale / self.hessian_scale)
        noisy_hessians, second = _with_noise(hessians, self.hessian_sensitivity, self.hessian_sigma, random)
        both = Composed((event, second)) if self.gradient_sigma else event
        return noisy, fit(np.maximum(noisy_hessians, 0), MOST), both

    @property
    def event(self) -> Event:
        """Of one message with noise."""
        first = DiscreteGaussian(self.gradient_sensitivity, self.gradient_sigma, self.n_rows, 1, ADJACENCY)
        if not self.sends_hessians:
            return first
        second = DiscreteGaussian(self.hessian_sensitivity, self.hessian_sigma, self.n_rows, 1, ADJACENCY)
        return Composed((first, second))

    @property
    def quantiser(self) -> Quantiser:
        """Scales of what feature holders get."""
        return replace(self.plain, gradient_scale=self.gradient_scale, hessian_scale=self.hessian_scale)


def _moves(n_outputs: int) -> float:
    """How far a changed label moves what labels give to a row's gradients, in L2, if it moves each by at most 1."""
    return 1.0 if n_outputs == 1 else math.sqrt(2.0)


def _scale(finest: float, bound: float, sigma: float, total: float, squares: float) -> float:
    """A power of two, not above the finest one, by which sums over rows fit that are this large and noisy each.

    `total` and `squares` are the sums of the rows' weights and of their squares.
    """
    largest_sum = total * (bound + sigma / 2.0) + 10.0 * math.sqrt(squares) * sigma
    return float(min(finest, 2.0 ** math.floor(math.log2(FIELD_FOR_VALUES / largest_sum))))


def _with_noise(exact: Ints, sensitivity: float, sigma: float, random: SecureRandom) -> Released[Ints]:
    return discrete_gaussian(exact, sensitivity=sensitivity, sigma=sigma, random=random, adjacency=ADJACENCY)


def fit(values: Ints, most: int, weights: Floats | None = None) -> Ints:
    """The values, clipped where needed so that no sum over a subset, with weights, exceeds `most`, whichever sign."""
    limit = int(np.abs(values).max(initial=0))
    weights = np.ones(len(values)) if weights is None else weights

    def largest_sum() -> float:
        sizes = values * weights
        return max(float(sizes[values > 0].sum()), -float(sizes[values < 0].sum()))

    while largest_sum() > most:
        limit //= 2
        values = np.clip(values, -limit, limit)
    return values


def _coarser(values: Ints, factor: float) -> Ints:
    """Divided by a power of two, rounded to the nearest."""
    shift = round(math.log2(factor))
    return values if shift == 0 else (values + (1 << (shift - 1))) >> shift


def spent(job: NoisedGradientsJob, events: list[Event], looks: int = 0) -> dict[str, Any]:
    """What all releases together cost, by the accountant that is given each of them; for the model's meta.

    With early stopping it is the larger one of that and of all `looks` at rows that are watched: no label is in both.
    """
    epsilon, delta = job.budget
    accountant, looking = GaussianDP(ADJACENCY), GaussianDP(ADJACENCY)
    for event in events:
        accountant.compose(event)
    if looks and job.per != MESSAGE:
        looking.compose(Repeated(Looks.plan(job).event, looks))
        accountant = max(accountant, looking, key=lambda each: each.total)
    total = accountant.epsilon(delta)
    facts = {
        "delta": delta,
        "asked": [epsilon, delta],
        "adjacency": "one label is changed",
        "towards": "feature holders",
        "accountant": accountant.description,
        "mechanism": "discrete Gaussian noise on gradients, added by the label holder",
        "releases": len(events),
        "mu": math.sqrt(accountant.total),
    }
    if job.per != MESSAGE:
        return {"epsilon": total, **facts}
    if_inexact = total if math.isfinite(total) else None
    return {"epsilon": None, "epsilon_per_message": epsilon, "composed_if_leaves_were_noisy": if_inexact, **facts}
