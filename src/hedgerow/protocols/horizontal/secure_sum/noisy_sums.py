"""Sums with every owner's noise inside, and edges of bins from one of them (quantiles="private")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for, share_of_sigma, sigma_for_mu
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.bins import grid_of
from hedgerow.protocols.central.gaussian.tables import merged
from hedgerow.protocols.central.gaussian.trees import merged_feature
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import NoisyCells
from hedgerow.runtime.party import Party

COUNT_UNIT = 2**12
"""Fixed point of counts: noise that several owners draw must be wide in whole units (privacy/discrete_gaussian.py)."""

TARGET_NOISE = 4.0
"""A bin should hold at least this many standard deviations of one cell's noise."""


class NoisyGrid:
    """quantiles="private": rows per cell of the public grid, one noisy sum for all numeric columns together."""

    def __init__(self, job: Job, numeric: Sequence[str]) -> None:
        if job.schema is None:
            raise ProtocolError("private edges need a public schema")
        by_name = {feature.name: feature for feature in grid_of(job.schema).features}
        for name in numeric:
            if name not in by_name or by_name[name].edges is None:
                raise InvalidInput(f"the schema has no bounds for the numeric column {name!r}")
        self.features: list[FeatureBins] = [by_name[name] for name in numeric]
        self.first = np.concatenate([[0], np.cumsum([f.n_value_bins for f in self.features])]).astype(np.int64)
        self.n_cells = int(self.first[-1])
        # One row is in one cell of every column: the exact answer moves by the square root of their number.
        self.sensitivity = float(np.sqrt(len(numeric))) * COUNT_UNIT * (1 + 2.0**-48)
        epsilon, delta = cast("float", job.quantile_epsilon), cast("float", job.quantile_delta)
        self._epsilon, self._delta, self._job = epsilon, delta, job
        self.sigma = sigma_for_mu(self.sensitivity, mu_for(epsilon, delta) ** 2)

    @property
    def sigma_per_owner(self) -> float:
        """Of the noise that each owner draws."""
        return share_of_sigma(self.sigma, self._job.assumed_honest)

    def cells(self, me: Party, counts: Ints) -> tuple[NoisyCells, Event]:
        """One owner's cells, of which these are the exact counts, with its share of the noise."""
        honest, sigma = self._job.assumed_honest, self.sigma_per_owner
        values, event = discrete_gaussian(
            counts * COUNT_UNIT, sensitivity=self.sensitivity, sigma=sigma, random=me.rng, parties=honest
        )
        return NoisyCells(values.view(np.uint64), self.sensitivity, sigma), event

    def spent(self) -> dict[str, float]:
        """What the edges cost, by the noise that all have stated; ProtocolError if that is more than was allowed."""
        accountant, sigma, honest = GaussianDP(), self.sigma_per_owner, self._job.assumed_honest
        of_all = DiscreteGaussian(self.sensitivity, sigma, self.n_cells, honest) if sigma else NonPrivate("no noise")
        accountant.compose(of_all)
        epsilon = accountant.epsilon(self._delta)
        if not epsilon <= self._epsilon:
            raise ProtocolError(f"the edges cost epsilon {epsilon}, more than quantile_epsilon={self._epsilon}")
        return {"epsilon": epsilon, "delta": self._delta}

    def edges(self, totals: Ints) -> list[Floats]:
        """Equal-frequency edges from the noisy cells, at most as many as the job has bins."""
        found = []
        n_bins = self._job.max_bins - 1
        noise = TARGET_NOISE * self.sigma / COUNT_UNIT
        for k, feature in enumerate(self.features):
            counts = np.maximum(totals[self.first[k] : self.first[k + 1]] / COUNT_UNIT, 0.0)
            target = max(counts.sum() / n_bins, noise)
            bins = merged(counts, n_ordered=len(counts), target=target)
            while bins.n_bins > n_bins:
                target *= 1.05
                bins = merged(counts, n_ordered=len(counts), target=target)
            edges = merged_feature(feature, bins).edges
            found.append(np.empty(0) if edges is None else edges)
        return found
