"""What every private training here has in common: it asks, is told noisy answers with their worth, and keeps account.

A training is a generator of requests (`requests`), so that whoever holds the rows may be a function call or a network
away. Subclasses decide what to ask; this class sets the noise and refuses answers that carry less.
What `reserve` keeps back pays for one number that no model needs: how many rows did not fit the schema.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, get_args

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.calibrate import Budget, sigma_for_mu
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate, PoissonSampled, Released
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    HESSIAN_WEIGHT,
    UNIT,
    AnyKind,
    NodeKind,
    NodeRequest,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.gaussian.rows import loss_of
from hedgerow.schema import Schema
from hedgerow.statement import Stage

GAUSSIAN = "discrete Gaussian noise on sums"

Asking = Generator[Any, Any, Any]
"""Yields requests, is sent the answers, returns the model or what a part of the training learned."""


class Training(ABC):
    """One private training. `run` it with a function that answers requests, or drive `requests` yourself."""

    budget: Budget
    """What pays for releases: a `Budget`, or a `PlannedBudget` where a subclass sets noise by itself."""
    whole: float
    """All that may be spent, in the unit that `sigma_for` takes: a squared mu, unless a subclass has another."""
    rate = 1.0
    """Chance of a row to take part in a release."""

    def __init__(self, schema: Schema, *, seed: int, reserve: float, multiclass: bool) -> None:
        self.schema = schema
        self.loss = loss_of(schema, multiclass=multiclass)
        self.n_outputs = len(schema.classes or ()) if self.loss == "softmax" else 1
        if not 0.0 <= reserve < 1.0:
            raise InvalidParameter(f"reserve must be at least 0 and below 1, got {reserve!r}")
        self.reserve = reserve
        self.sigma_for: Callable[[float, float], float] = sigma_for_mu
        self.honest = 1
        self.n_requests: int | None = None  # how many there will be, once that is known
        self.n_misfits: int | None = None
        """Rows that did not fit the schema: a noisy estimate, paid for from the reserve; None if there is none."""
        self.grid = grid_of(schema)
        self.cells = cells_of(schema, self.grid)
        self.rng = np.random.default_rng(seed)
        self.number = 0
        """Of the last request."""
        self.noise = 0.0
        """Standard deviation of what the answer to it carries."""
        self.excess = 1.0
        """That, as a multiple of what was asked for."""
        self.hessian_unit = UNIT * HESSIAN_WEIGHT[self.loss]

    @abstractmethod
    def requests(self) -> Asking:
        """Yields requests, is sent the noisy answers, and returns the Ensemble."""

    @abstractmethod
    def stages(self) -> list[Stage]:
        """What was asked for, for the statement."""

    def run(self, release: Callable[[Any], Released[Any]]) -> Ensemble:
        """Ask until the model is done. Each answer comes with its event, and the events must stay within the budget."""
        if self.reserve:
            self._count_misfits(release)
        asking = self.requests()
        request = next(asking)
        while True:
            values, event = release(request)
            self._account(request, event, enough=self.is_enough(request, event))
            try:
                request = asking.send(values)
            except StopIteration as done:
                self.budget.check()
                model: Ensemble = done.value
                return model

    def _count_misfits(self, release: Callable[[Any], Released[Any]]) -> None:
        """Ask how many rows did not fit the schema: request 0, before all others, with the reserve for its noise."""
        squared = record_sensitivity_squared("misfits", self.loss, len(self.cells), 0)
        sigma = self.sigma_for(COUNT_UNIT * (1.0 + 2.0**-48), self.reserve * self.whole)
        request = SumRequest(0, "misfits", 1, squared, sigma)
        self.budget.accountant.check(request.event(self.honest))  # before anything is released
        values, event = release(request)
        self._account(request, event, enough=has_its_noise(request, event))
        self.n_misfits = max(round(int(values[0]) / COUNT_UNIT), 0)

    def _account(self, request: SumRequest, event: Event, *, enough: bool) -> None:
        """Take note of what an answer was worth; one with less noise than was asked for ends the training."""
        if not enough:
            raise ProtocolError(f"request {request.number} was answered with {event!r}, which is not what it asked for")
        self.budget.spend(event)

    def is_enough(self, request: SumRequest, event: Event) -> bool:
        """Whether an answer carries the noise that was asked for; over a sample of rows, if there is one."""
        if self.rate == 1.0 or request.sigma == 0.0:
            return has_its_noise(request, event)
        return isinstance(event, PoissonSampled) and event.rate <= self.rate and has_its_noise(request, event.event)

    def request(
        self, kind: AnyKind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together."""
        clip_units = int(clip * UNIT)
        n_columns = len(fields["features"]) if kind == "node_sums" else len(self.cells)
        squared = record_sensitivity_squared(kind, self.loss, n_columns, clip_units)
        of = NodeRequest if kind in get_args(NodeKind) else SumRequest
        return self.make_request(of, kind, n_sums, squared, share, rounds, clip=clip_units, **fields)

    def make_request(
        self,
        of: type[SumRequest],
        kind: AnyKind,
        n_sums: int,
        sensitivity_squared: int,
        share: float,
        rounds: int,
        **fields: Any,
    ) -> SumRequest:
        """The same, for a sensitivity that the caller knows."""
        sigma = self.sigma(math.sqrt(sensitivity_squared), share, rounds)
        self.noise = sigma * self.excess
        self.number += 1
        request = of(self.number, kind, n_sums, sensitivity_squared, sigma, **fields)
        self.budget.accountant.check(request.event(self.honest))  # before anything is released
        return request

    def sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        """The noise of one of `rounds` releases that have `share` of the budget together."""
        return self.sigma_for(sensitivity, share * (1.0 - self.reserve) * self.whole / rounds)

    def stage(self, name: str, share: float | None, releases: int, words: str = "", how: str = GAUSSIAN) -> Stage:
        """One stage of the statement; `share` is of what is left after the reserve."""
        of_whole = None if share is None else (1.0 - self.reserve) * share
        return Stage(name, how, share=of_whole, releases=releases, words=words)

    def label_units(self, centre: float, spread: float) -> tuple[float, float]:
        """Of the scaled, standardised labels of a regression: where 0 is, and how much 1 is, in real labels."""
        low, high = self.schema.label_bounds or (-0.5, 0.5)
        return (centre + 0.5) * (high - low) + low, spread * (high - low)


def has_its_noise(request: SumRequest, event: Event) -> bool:
    """Whether an answer over all rows carries the noise that was asked for."""
    if isinstance(event, DiscreteGaussian) and request.sigma > 0.0:
        return (
            event.sensitivity >= request.sensitivity
            and event.parties * event.sigma**2 * (1.0 + 2.0**-40) >= request.sigma**2
            and event.coordinates >= request.n_sums
        )
    return isinstance(event, NonPrivate) and request.sigma == 0.0
