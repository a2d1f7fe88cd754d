"""How strong masks must be to stop the network of the MaskedXGBoost paper, with one noise vector and with three.

    python -m experiments.label_network_attacks

One simulated node of 4,000 rows in a later tree; C is the sum of squares of what noise vectors are multiplied with. The
last column is the noise that Theorem 2 asks for at epsilon 8. A few minutes on one core.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.label_guesses import by_network as attack
from experiments.masked_xgboost.masked_noise import mask, noise_vectors, square_sum_by_theorem_2
from hedgerow.attacks.masked_gradients.unmask_least_squares import Masked

N_ROWS = 4000
RATIOS = {3: 0.0037, 1: 0.033}  # sigma1^2 / sigma2^2 by Theorem 3: epsilon 2.2 with three vectors, 1 with one
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0, None)
N_DRAWS = 2


def accuracy(n_vectors: int, strength: float | None, seed: int) -> float:
    rng = np.random.default_rng(seed)
    p = 1.0 / (1.0 + np.exp(-rng.normal(size=N_ROWS)))
    labels = (rng.random(N_ROWS) < p).astype(np.int64)
    active = rng.random(N_ROWS) < 0.5
    sigma1 = math.sqrt(RATIOS[n_vectors])
    noise = noise_vectors(active, n_vectors, sigma1, 1.0, rng)
    C = square_sum_by_theorem_2(8.0, 1e-3, active, sigma1, 1.0) if strength is None else strength
    message = Masked(noise, mask(p - labels, noise, C, rng), mask(p * (1.0 - p), noise, C, rng))
    return attack(message, active, C, labels, n_made_up=10_000, n_rounds=25).accuracy.estimate


if __name__ == "__main__":
    print("accuracy at C =", *("Theorem 2" if C is None else f"{C:g}" for C in STRENGTHS), sep=" | ")
    for n_vectors in RATIOS:
        cells = [", ".join(f"{accuracy(n_vectors, C, seed):.2f}" for seed in range(N_DRAWS)) for C in STRENGTHS]
        print(f"W = {n_vectors}", *cells, sep=" | ", flush=True)
