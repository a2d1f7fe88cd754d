"""What one row's side changes in the noise of MaskedXGBoost: the smallest delta that holds for a given epsilon.

Theorem 3 of the paper says that noise vectors are (epsilon, delta)-DP towards the label holder, for one row that goes
left or does not. Its proof is about a split that sends all rows left. Here the covariance of the vectors is known for
any two splits, so the smallest delta, E[1 - exp(epsilon - L)] over the positive part, L the log-likelihood ratio, is an
average over samples. A single active row has p_1 - p_1 = 0 in place of noise, and few active rows are nearly as bad.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from hedgerow.attacks.results import Interval, checked_confidence
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.errors import InvalidInput


def smallest_delta(
    active: npt.ArrayLike,
    other: npt.ArrayLike,
    sigma1: float,
    sigma2: float,
    epsilon: float,
    *,
    n_vectors: int = 1,
    n_samples: int = 200_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """The delta with which noise for `active` [rows] is epsilon-close to that for `other`: no less can be claimed."""
    one, two = np.asarray(active, np.bool_), np.asarray(other, np.bool_)
    if one.shape != two.shape or one.ndim != 1:
        raise InvalidInput(f"two splits of the same rows are needed, got {one.shape} and {two.shape}")
    touched = one | two  # elsewhere both draw the same
    cholesky = [np.linalg.cholesky(_covariance(each[touched], sigma1, sigma2)) for each in (one, two)]
    logs = [float(np.log(np.diag(each)).sum()) for each in cholesky]
    rng = np.random.default_rng(seed)
    ratio = np.zeros(n_samples)
    for _ in range(n_vectors):
        normal = rng.normal(size=(int(touched.sum()), n_samples))
        under_two = np.linalg.solve(cholesky[1], cholesky[0] @ normal)
        ratio += logs[1] - logs[0] + 0.5 * ((under_two**2).sum(axis=0) - (normal**2).sum(axis=0))
    excess = -np.expm1(np.minimum(epsilon - ratio, 0.0))
    z = float(ndtri(0.5 + checked_confidence(confidence) / 2.0))
    middle, width = float(excess.mean()), z * float(excess.std()) / math.sqrt(n_samples)
    return Interval(middle, max(middle - width, 0.0), middle + width)


def _covariance(active: Bools, sigma1: float, sigma2: float) -> Floats:
    n_active = int(active.sum())
    steps = np.eye(n_active) - np.roll(np.eye(n_active), 1, axis=0)
    covariance = np.diag(np.where(active, 0.0, 2.0 * sigma1**2))
    covariance[np.ix_(active, active)] = sigma1**2 * steps @ steps.T
    whole: Floats = covariance + sigma2**2 * np.eye(len(active))
    return whole
