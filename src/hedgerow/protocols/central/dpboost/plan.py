"""What every release will cost, known from settings and schema before a record is looked at.

    Composed                                 bins (if private), number of misfits (if wanted), and then
      Parallel, one per ensemble             trees of an ensemble see disjoint records
        Composed, one per tree               a choice per level, then the leaves

Sensitivities are those of `privacy.sensitivity`, for gradients of at most g* in absolute value and denominators that
count records; the paper's baselines have the same, without clipped leaves.
"""

from __future__ import annotations

import math

import numpy as np

from hedgerow.errors import ProtocolError
from hedgerow.privacy import sensitivity
from hedgerow.privacy.events import Composed, Event, Exponential, NonPrivate, Parallel, PermuteAndFlip
from hedgerow.privacy.mechanisms import discrete_laplace, laplace
from hedgerow.protocols.central.dpboost.bins import counted_columns
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema

NO_NOISE = NonPrivate("no noise was added")


def choice_sensitivity(settings: DPBoostSettings) -> float:
    """Of the utilities of a level: 2 g*^2, or 4 g*^2 (over all its nodes) when a record is replaced.

    The paper has 3 g*^2, and so have `gain="paper"` and the baselines; but a choice depends on differences only.
    """
    centred = settings.gain == "centred" and settings.protocol == "central.dpboost"
    if centred or settings.adjacency == "replace_one":
        return sensitivity.centred_gain_sensitivity(settings.gradient_bound, settings.adjacency)
    return sensitivity.gain_sensitivity(settings.gradient_bound, settings.adjacency)


def leaf_bounds(settings: DPBoostSettings, place: int) -> tuple[float, float] | None:
    """Between which values leaves are clipped, before and after noise; None where they are not."""
    clip = settings.leaf_clip(place)
    return None if math.isinf(clip) else (-clip, clip)


def leaf_sensitivity(settings: DPBoostSettings, place: int) -> float:
    """Of all leaves of a tree together (L1): min(g*/(1 + l2), 2 tau), twice that when a record is replaced."""
    clip = settings.leaf_clip(place)
    return sensitivity.clipped_leaf_sensitivity(settings.gradient_bound, settings.l2, clip, settings.adjacency)


def histogram_sensitivity(settings: DPBoostSettings, n_columns: int) -> float:
    """Of the counts that private edges are made of (L1): one per column, two when a record is replaced."""
    return sensitivity.histogram_sensitivity(n_columns, settings.adjacency, "l1")


def planned_event(settings: DPBoostSettings, schema: Schema) -> Event:
    """The event that a training will produce, exactly."""
    settings.check_schema(schema)
    if settings.protocol == "central.plain":
        return NonPrivate("central.plain adds no noise")
    before: list[Event] = []
    n_counted = len(counted_columns(schema, settings.max_bins))
    if settings.binning == "private" and n_counted:
        before.append(_counts(settings, histogram_sensitivity(settings, n_counted), settings.epsilon_of_bins))
    if settings.clipped_count_share:
        before.append(_counts(settings, 1.0, settings.epsilon_of_count))
    trees = [_tree(settings, place) for place in range(settings.ensembles[0])]
    return Composed((*before, *(Parallel(tuple(trees[:n_trees])) for n_trees in settings.ensembles)))


def _counts(settings: DPBoostSettings, moved: float, epsilon: float) -> Event:
    nothing = np.zeros(0, np.int64)
    return discrete_laplace(
        nothing, sensitivity=moved, epsilon=epsilon, random=_Untouched(), adjacency=settings.adjacency
    ).event


def _tree(settings: DPBoostSettings, place: int) -> Event:
    """The mechanisms themselves say what releasing nothing costs: the same as releasing something."""
    if not settings.noisy:
        return Composed((NO_NOISE,) * (settings.max_depth + 1))
    choice = Exponential if settings.selection == "exponential" else PermuteAndFlip
    level = choice(choice_sensitivity(settings), settings.epsilon_per_level, settings.adjacency)
    leaves = laplace(
        np.zeros(0),
        sensitivity=leaf_sensitivity(settings, place),
        epsilon=settings.epsilon_of_leaves,
        random=_Untouched(),
        bounds=leaf_bounds(settings, place),
        adjacency=settings.adjacency,
    ).event
    return Composed((*(level,) * settings.max_depth, leaves))


class _Untouched:
    """Randomness for mechanisms that release nothing."""

    def bytes(self, n: int) -> bytes:
        """No bytes."""
        if n:
            raise ProtocolError(f"{n} random bytes were drawn for a plan, which releases nothing")
        return b""
