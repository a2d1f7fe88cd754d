"""The noise of MaskedXGBoost as its paper has it, plainly: for tests of attacks that need no run of the protocol.

`noise_vectors` is what a feature holder draws for one candidate, `mask` what the label holder makes of it.
"""

from __future__ import annotations

import math

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.protocols.published.masked_gradients.theorems import theorem2_R

VALUE_RANGE = 2.0 * math.e / (math.e + 1.0)
"""What the paper takes for the range of gradients: for scores between -1 and 1."""


def noise_vectors(active: Bools, n_vectors: int, sigma1: float, sigma2: float, rng: np.random.Generator) -> Floats:
    """[rows, W] cyclic differences on active rows, which add up to 0, as much noise on others, and r everywhere."""
    chain = np.flatnonzero(active)
    noise = math.sqrt(2.0) * sigma1 * rng.normal(size=(len(active), n_vectors))
    steps = sigma1 * rng.normal(size=(len(chain), n_vectors))
    noise[chain] = steps - np.roll(steps, 1, axis=0)
    return noise + sigma2 * rng.normal(size=noise.shape)


def on_sphere(n_vectors: int, square_sum: float, rng: np.random.Generator) -> Floats:
    """[W] numbers whose squares add up to `square_sum`, in any direction."""
    c = rng.normal(size=n_vectors)
    scaled: Floats = c * math.sqrt(square_sum / float(c @ c))
    return scaled


def mask(values: Floats, noise: Floats, square_sum: float, rng: np.random.Generator) -> Floats:
    """[rows] values + B c."""
    masked: Floats = values + noise @ on_sphere(noise.shape[1], square_sum, rng)
    return masked


def square_sum_by_theorem_2(epsilon: float, delta: float, active: Bools, sigma1: float, sigma2: float) -> float:
    """C, the least that Theorem 2 asks for."""
    n_active, n_rows = int(active.sum()), len(active)
    needed = (n_rows - n_active) / (2.0 * sigma1**2 + sigma2**2) + n_active / sigma2**2
    return VALUE_RANGE**2 * needed / theorem2_R(epsilon, delta)
