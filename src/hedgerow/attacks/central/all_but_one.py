"""An adversary who knows every row but one, and sees every noisy sum that a private training releases.

That is whom differential privacy protects against, and at the same time a real one: the coordinator of a federation
sees all those sums. For each of them it knows what the exact answer would be without the canary, and with it:

    1  the public recipe asks for sums; what comes back depends on the rows and on the noise
    2  seen noise   = what came back - the exact answer without the canary
    3  canary's part = the exact answer with the canary - without it
    4  a statistic of all these pairs goes to `audit`

`likelihood_ratio` is the best statistic there is against independent Gaussian noise (Neyman and Pearson).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hedgerow.attacks.central.canaries import Canary
from hedgerow.engine.dtypes import Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.recipe import Recipe
from hedgerow.protocols.central.gaussian.requests import SumRequest
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.schema import Schema

AddNoise = Callable[..., Any]
"""As `privacy.mechanisms.discrete_gaussian`: exact sums go in, noisy ones and their event come out."""


class SeenSum(NamedTuple):
    """One noisy answer, as the adversary sees it."""

    request: SumRequest
    noise: Ints
    """What is left of the answer when all known rows are taken off."""
    canary: Ints
    """What the canary adds to the exact answer, if it is there."""


class WatchedFit(NamedTuple):
    """A trained model, and what was to be seen on the way."""

    model: Ensemble
    seen: list[SeenSum]


def watched_fit(
    X: Any,
    y: Any,
    schema: Schema,
    canary: Canary,
    *,
    with_canary: bool,
    epsilon: float,
    delta: float,
    random: RandomBytes,
    seed: int = 0,
    add_noise: AddNoise = discrete_gaussian,
) -> WatchedFit:
    """`fit_locally` on the rows, with or without the canary, under the eyes of the adversary.

    `add_noise` is there for broken twins (tests/twins/broken_privacy.py).
    """
    recipe = Recipe(schema, epsilon=epsilon, delta=delta, seed=seed)
    without = PrivateRows.read(X, y, schema)
    with_it = PrivateRows.read(*canary.appended_to(X, y), schema)
    seen: list[SeenSum] = []

    def release(request: SumRequest) -> Any:
        known, more = without.answer(request), with_it.answer(request)
        released = add_noise(
            more if with_canary else known,
            sensitivity=request.sensitivity,
            sigma=request.sigma_per_owner(),
            random=random,
        )
        seen.append(SeenSum(request, released.values - known, more - known))
        return released

    return WatchedFit(recipe.run(release), seen)


def likelihood_ratio(seen: Sequence[SeenSum]) -> float:
    """log(P(all answers with the canary) / P(all answers without it)), for independent discrete Gaussian noise.

    Sum over all numbers of (noise * canary - canary^2 / 2) / sigma^2, from P(k) proportional to exp(-k^2 / 2 sigma^2).
    """
    total = 0.0
    for request, noise, canary in seen:
        own = canary / request.sigma
        total += float(own @ (noise / request.sigma) - own @ own / 2.0)
    return total
