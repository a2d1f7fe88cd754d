"""What every private training here has in common: it asks, is told noisy answers with their worth, and keeps account.

A training is a generator of requests (`requests`), so that whoever holds the rows may be a function call or a network
away. Subclasses decide what to ask; this class sets the noise and refuses answers that carry less.
What `reserve` keeps back pays for one number that no model needs: how many rows did not fit the schema.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.calibrate import sigma_for_mu
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate
from hedgerow.privacy.mechanisms import Released
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    HESSIAN_WEIGHT,
    UNIT,
    Kind,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.gaussian.rows import loss_of
from hedgerow.schema import Schema

Asking = Generator[Any, Any, Any]
"""Yields requests, is sent the answers, returns the model or what a part of the training learned."""


class Training(ABC):
    """One private training. `run` it with a function that answers requests, or drive `requests` yourself."""

    budget: Any
    """What pays for releases: a `Budget`, or a `plans.PlannedBudget` where a subclass sets noise by itself."""

    def __init__(self, schema: Schema, *, seed: int, reserve: float, multiclass: bool) -> None:
        self.schema = schema
        self.loss = loss_of(schema, multiclass=multiclass)
        self.n_outputs = len(schema.classes or ()) if self.loss == "softmax" else 1
        if not 0.0 <= reserve < 1.0:
            raise InvalidParameter(f"reserve must be at least 0 and below 1, got {reserve!r}")
        self.reserve = reserve
        self.honest = 1
        self.n_requests: int | None = None  # how many there will be, once that is known
        self.n_misfits: int | None = None
        """Rows that did not fit the schema: a noisy estimate, paid for from the reserve; None if there is none."""
        self._excess = 1.0
        self._grid = grid_of(schema)
        self._cells = cells_of(schema, self._grid)
        self._rng = np.random.default_rng(seed)
        self._number = 0
        self._noise = 0.0
        self._hessian_unit = UNIT * HESSIAN_WEIGHT[self.loss]

    @abstractmethod
    def requests(self) -> Asking:
        """Yields requests, is sent the noisy answers, and returns the Ensemble."""

    def run(self, release: Callable[[Any], Released[Any]]) -> Ensemble:
        """Ask until the model is done. Each answer comes with its event, and the events must stay within the budget."""
        if self.reserve:
            self._count_misfits(release)
        asking = self.requests()
        request = next(asking)
        while True:
            values, event = release(request)
            self._account(request, event)
            try:
                request = asking.send(values)
            except StopIteration as done:
                self.budget.check()
                model: Ensemble = done.value
                return model

    def _count_misfits(self, release: Callable[[Any], Released[Any]]) -> None:
        """Ask how many rows did not fit the schema: request 0, before all others, with the reserve for its noise."""
        squared = record_sensitivity_squared("misfits", self.loss, len(self._cells), 0)
        sigma = self.reserve_sigma(COUNT_UNIT * (1.0 + 2.0**-48))
        request = SumRequest(0, "misfits", 1, squared, sigma)
        self.budget.accountant.check(request.event(self.honest))  # before anything is released
        values, event = release(request)
        if not _has_its_noise(request, event):
            raise _too_little(request, event)
        self.budget.spend(event)
        self.n_misfits = max(round(int(values[0]) / COUNT_UNIT), 0)

    def _account(self, request: SumRequest, event: Event) -> None:
        """Take note of what an answer was worth; one with less noise than was asked for ends the training."""
        if not self._is_enough(request, event):
            raise _too_little(request, event)
        self.budget.spend(event)

    def _is_enough(self, request: SumRequest, event: Event) -> bool:
        return _has_its_noise(request, event)

    def _request(
        self, kind: Kind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together."""
        clip_units = int(clip * UNIT)
        sensitivity_squared = record_sensitivity_squared(kind, self.loss, len(self._cells), clip_units)
        request: SumRequest = self._made(
            SumRequest, kind, n_sums, sensitivity_squared, share, rounds, clip=clip_units, **fields
        )
        return request

    def _made(
        self, of: Any, kind: str, n_sums: int, sensitivity_squared: int, share: float, rounds: int, **fields: Any
    ) -> Any:
        sigma = self._sigma(math.sqrt(sensitivity_squared), share, rounds)
        self._noise = sigma * self._excess  # what the sum will really carry
        self._number += 1
        request = of(self._number, kind, n_sums, sensitivity_squared, sigma, **fields)
        self.budget.accountant.check(request.event(self.honest))  # before anything is released
        return request

    def _sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        """The noise of one of `rounds` releases that have `share` of the budget together."""
        allowed: float = share * (1.0 - self.reserve) * self.budget.mu_squared / rounds
        return sigma_for_mu(sensitivity, allowed)

    def reserve_sigma(self, sensitivity: float) -> float:
        """The noise of a release that uses up the reserve."""
        return sigma_for_mu(sensitivity, self.reserve * self.budget.mu_squared)


def _has_its_noise(request: SumRequest, event: Event) -> bool:
    """Whether an answer over all rows carries the noise that was asked for."""
    if isinstance(event, DiscreteGaussian) and request.sigma > 0.0:
        return (
            event.sensitivity >= request.sensitivity
            and event.parties * event.sigma**2 * (1.0 + 2.0**-40) >= request.sigma**2
            and event.coordinates >= request.n_sums
        )
    return isinstance(event, NonPrivate) and request.sigma == 0.0


def _too_little(request: SumRequest, event: Event) -> ProtocolError:
    return ProtocolError(f"request {request.number} was answered with {event!r}, which is not what it asked for")
