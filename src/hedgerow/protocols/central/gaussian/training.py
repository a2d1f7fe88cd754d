"""What every private training here has in common: it asks, is told noisy answers with their worth, and keeps account.

A training is a generator of requests (`requests`), so that whoever holds the rows may be a function call or a network
away. Subclasses decide what to ask; this class sets the noise and refuses answers that carry less.
What `reserve` keeps back pays for one number that no model needs: how many rows did not fit the schema.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.calibrate import Budget, mu_for, sigma_for_mu
from hedgerow.privacy.events import DiscreteGaussian, Event, NonPrivate, PoissonSampled, Released
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    HESSIAN_WEIGHT,
    MAX_DEPTH,
    UNIT,
    AnyKind,
    NodeKind,
    NodeRequest,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.gaussian.rows import loss_of
from hedgerow.protocols.central.released import check_settings
from hedgerow.runtime.protocol import option
from hedgerow.schema import Schema
from hedgerow.statement import Stage

PolicyName = Literal["smooth_then_trees", "random", "cyclic", "exponential", "histogram"]

MISFITS_SHARE = 0.002
"""Of the squared mu, before all else: the number of rows that did not fit the schema."""

GAUSSIAN = "discrete Gaussian noise on sums"

Asking = Generator[Any, Any, Any]
"""Yields requests, is sent the answers, returns the model or what a part of the training learned."""


@dataclass(frozen=True)
class GaussianSettings:
    """How to train. All of it is public. None means that the policy decides."""

    epsilon: float
    delta: float
    policy: PolicyName = option("smooth_then_trees", "how the budget is spent; all others are for study")
    seed: int = option(0, "decides orders, columns and thresholds; never noise", at_least=0)
    subsample: float = option(
        1.0,
        "chance of a row to take part in a release (policies random and cyclic)",
        above=0,
        at_most=1,
        words="above 0 and at most 1",
    )
    n_trees: int | None = option(None, "", at_least=1, at_most=10**6, words="a whole number from 1 to 1000000")
    max_depth: int | None = option(
        None, "", at_least=1, at_most=MAX_DEPTH, words=f"a whole number from 1 to {MAX_DEPTH}"
    )
    learning_rate: float | None = option(None, "", above=0, at_most=10, words="above 0 and at most 10")
    l2: float | None = option(None, "", at_least=0, words="a finite number of at least 0")
    clipped_count_share: float = option(
        MISFITS_SHARE,
        "of the budget, for the number of rows that did not fit the schema; 0 for not telling it",
        at_least=0,
        at_most=0.5,
        words="between 0 and 0.5",
    )

    def __post_init__(self) -> None:
        mu_for(self.epsilon, self.delta)  # refuses what is no budget
        check_settings(self)
        if self.policy == "smooth_then_trees":
            for name in ("n_trees", "max_depth", "learning_rate", "l2", "subsample"):
                if getattr(self, name) != (1.0 if name == "subsample" else None):
                    raise InvalidParameter(
                        f"the policy smooth_then_trees sets {name} by its own rule, from noisy counts; "
                        "leave it out, or choose another policy"
                    )
        if self.subsample < 1.0 and self.policy not in ("random", "cyclic"):
            raise InvalidParameter(f"subsample is for the policies random and cyclic, not for {self.policy}")

    @property
    def rate(self) -> float:
        """`subsample` as 32 random bits can have it: a multiple of 2^-32, rounded down."""
        return max(math.floor(self.subsample * 2.0**32), 1) / 2.0**32


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
        asking = self._asking()
        request = next(asking)
        while True:
            values, event = release(request)
            if not self.is_enough(request, event):  # one with less noise than was asked for ends the training
                raise ProtocolError(
                    f"request {request.number} was answered with {event!r}, which is not what it asked for"
                )
            self.budget.spend(event)
            try:
                request = asking.send(values)
            except StopIteration as done:
                self.budget.check()
                model: Ensemble = done.value
                return model

    def _asking(self) -> Asking:
        """All requests; number 0, before all others: how many rows did not fit the schema, paid for by the reserve."""
        if self.reserve:
            squared = record_sensitivity_squared("misfits", self.loss, len(self.cells), 0)
            sigma = self.sigma_for(COUNT_UNIT * (1.0 + 2.0**-48), self.reserve * self.whole)
            request = SumRequest(0, "misfits", 1, squared, sigma)
            self.budget.accountant.check(request.event(self.honest))  # before anything is released
            values = yield request
            self.n_misfits = max(round(int(values[0]) / COUNT_UNIT), 0)
        return (yield from self.requests())

    def is_enough(self, request: SumRequest, event: Event) -> bool:
        """Whether an answer carries the noise that was asked for; over a sample of rows, if there is one."""
        if self.rate == 1.0 or request.sigma == 0.0 or request.kind == "misfits":
            return has_its_noise(request, event)
        return isinstance(event, PoissonSampled) and event.rate <= self.rate and has_its_noise(request, event.event)

    def request(
        self, kind: AnyKind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together."""
        clip_units = int(clip * UNIT)
        squared = self.sensitivity_squared(kind, clip_units, fields)
        sigma = self.sigma(math.sqrt(squared), share, rounds)
        self.noise = sigma * self.excess
        self.number += 1
        of = NodeRequest if kind in get_args(NodeKind) else SumRequest
        request = of(self.number, kind, n_sums, squared, sigma, clip=clip_units, **fields)
        self.budget.accountant.check(request.event(self.honest))  # before anything is released
        return request

    def sensitivity_squared(self, kind: AnyKind, clip: int, fields: dict[str, Any]) -> int:
        """How far one record can move the answer to a request."""
        n_columns = len(fields["features"]) if kind == "node_sums" else len(self.cells)
        return record_sensitivity_squared(kind, self.loss, n_columns, clip)

    def sigma(self, sensitivity: float, share: float, rounds: int) -> float:
        """The noise of one of `rounds` releases that have `share` of the budget together."""
        return self.sigma_for(sensitivity, share * (1.0 - self.reserve) * self.whole / rounds)

    def stage(self, name: str, share: float | None, releases: int, words: str = "", how: str = GAUSSIAN) -> Stage:
        """One stage of the statement; `share` is of what is left after the reserve."""
        of_whole = None if share is None else (1.0 - self.reserve) * share
        return Stage(name, how, share=of_whole, releases=releases, words=words)

    def ask_spread(self, share: float, n_rows: float, centre: float) -> Asking:
        """In regression, the noisy standard deviation of the scaled labels around their centre."""
        squares = yield self.request("squares", 1, share, 1)
        variance = float(squares[0]) / UNIT / n_rows - centre**2
        return math.sqrt(max(variance, 0.05**2))

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
