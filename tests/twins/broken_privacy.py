"""Private trainings that are broken on purpose, each by a mistake that has been made before: audits must notice them.

All of them report the honest event, so that no accountant can tell. Whoever imports one of these into anything but a
test or an experiment takes privacy away from somebody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.central.all_but_one import AddNoise, SeenSum
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.schema import NumericColumn, Schema


def weak_noise(factor: float) -> AddNoise:
    """Noise of `factor` times the scale that is claimed: a forgotten factor 2 in a sensitivity, for instance."""

    def add_noise(values: Ints, *, sensitivity: float, sigma: float, random: RandomBytes) -> Any:
        honest = discrete_gaussian(values, sensitivity=sensitivity, sigma=sigma, random=random)
        weak = discrete_gaussian(values, sensitivity=sensitivity, sigma=factor * sigma, random=random)
        return honest._replace(values=weak.values)

    return add_noise


def noise_where_rows_are(values: Ints, *, sensitivity: float, sigma: float, random: RandomBytes) -> Any:
    """Sums over no rows at all are left at 0: why should one add noise to an empty leaf?

    Because it is no longer empty when one more record comes.
    """
    released = discrete_gaussian(values, sensitivity=sensitivity, sigma=sigma, random=random)
    return released._replace(values=np.where(values == 0, 0, released.values))


class RestartingRandom:
    """A source of randomness that begins anew at every call: the same seed in every tree, and so the same noise."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def bytes(self, length: int, /) -> bytes:
        """The same `length` bytes as always."""
        return np.random.default_rng(self._seed).bytes(length)


def bounds_from_rows(schema: Schema, X: npt.NDArray[Any]) -> Schema:
    """The schema with the rows' own smallest and largest values as bounds: convenient, and they become bin edges."""
    columns = [
        replace(
            column, low=math.floor(low) if column.integer else low, high=math.ceil(high) if column.integer else high
        )
        if isinstance(column, NumericColumn)
        else column
        for column, low, high in zip(schema.columns, X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)
    ]
    return replace(schema, columns=tuple(columns))


def best_of_each_feature(
    utilities: Sequence[Floats], *, sensitivity: float, epsilon: float, n_samples: int, rng: np.random.Generator
) -> Ints:
    """The best threshold of every feature without noise, then the exponential mechanism over the features.

    [n_samples, 2]: feature and threshold. It looks cheaper, the choice being among fewer; but which threshold is best
    is read off the rows for nothing. The right way is one choice among all pairs.
    """
    best = np.array([int(np.argmax(own)) for own in utilities])
    scores = np.array([own[place] for own, place in zip(utilities, best, strict=True)])
    # Adding Gumbel noise and taking the largest is the exponential mechanism.
    noisy = epsilon * scores / (2.0 * sensitivity) + rng.gumbel(size=(n_samples, len(scores)))
    features = np.argmax(noisy, axis=1)
    return np.stack([features, best[features]], axis=1).astype(np.int64)


# --- statistics that look for such mistakes --------------------------------------------------------------------------


def silent_sums(seen: Sequence[SeenSum]) -> float:
    """How many of the sums that the canary would move came without any noise."""
    return float(sum(np.count_nonzero((noise == 0) & (canary != 0)) for _, noise, canary in seen))


def repeated_noise(seen: Sequence[SeenSum]) -> float:
    """Of the places that the canary would move differently in two answers running: the share with the same noise.

    With noise used twice it is 1 without the canary and 0 with it, because there the difference of the moves shows.
    """
    places = repeated = 0
    for before, after in pairwise(seen):
        if before.request.n_sums == after.request.n_sums and before.request.sigma == after.request.sigma:
            telling = before.canary != after.canary
            places += int(np.count_nonzero(telling))
            repeated += int(np.count_nonzero(telling & (before.noise == after.noise)))
    return repeated / places if places else 0.0
