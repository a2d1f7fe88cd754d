"""The whole training in one process: owners' rows in, noise from one source, model and events out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hedgerow.engine.dtypes import Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Event, Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.recipe import Recipe
from hedgerow.protocols.central.gaussian.requests import SumRequest
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.schema import Schema


class LocalFit(NamedTuple):
    """A trained model and what its training released, in order."""

    model: Ensemble
    events: list[Event]
    epsilon: float
    """What the events add up to at the delta that was asked for."""


def fit_locally(
    owners: Sequence[PrivateRows],
    schema: Schema,
    *,
    epsilon: float,
    delta: float,
    random: RandomBytes,
    seed: int = 0,
    honest: int | None = None,
    multiclass: bool = False,
) -> LocalFit:
    """Train on the rows of one or several owners; each draws its share of the noise from `random`.

    `random` makes the noise and must be secret; `seed` is public. See `Recipe` for the rest.
    """
    recipe = Recipe(
        schema, epsilon=epsilon, delta=delta, seed=seed, owners=len(owners), honest=honest, multiclass=multiclass
    )
    events: list[Event] = []

    def release(request: SumRequest) -> Released[Ints]:
        parts = [
            discrete_gaussian(
                rows.answer(request),
                sensitivity=request.sensitivity,
                sigma=request.sigma_per_owner(recipe.honest),
                random=random,
                parties=recipe.honest,
            )
            for rows in owners
        ]
        events.append(parts[0].event)
        return Released(sum((part.values for part in parts[1:]), parts[0].values), parts[0].event)

    model = recipe.run(release)
    return LocalFit(model, events, recipe.budget.spent)
