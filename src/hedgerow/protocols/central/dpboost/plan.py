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

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.privacy import sensitivity
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event, Exponential, NonPrivate, Parallel, PermuteAndFlip, Released
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


def release_counts(settings: DPBoostSettings, n_columns: int, counts: Ints, random: RandomBytes) -> Released[Ints]:
    """Counts per cell of `n_columns`, for private edges; of no column: the number of rows that did not fit the schema.

    A record is in one cell of each column, and replacing one moves two. It is a misfit or not, even when replaced.
    """
    moved = sensitivity.histogram_sensitivity(n_columns, settings.adjacency) if n_columns else 1.0
    epsilon = settings.epsilon_of_bins if n_columns else settings.epsilon_of_count
    return discrete_laplace(counts, sensitivity=moved, epsilon=epsilon, random=random, adjacency=settings.adjacency)


def release_leaves(settings: DPBoostSettings, place: int, values: Floats, random: RandomBytes) -> Released[Floats]:
    """All leaves of the tree at this place of its ensemble, clipped to tau before the noise, and after.

    Their L1 sensitivity is min(g*/(1 + l2), 2 tau), twice that when a record is replaced.
    """
    clip = settings.leaf_clip(place)
    return laplace(
        values,
        sensitivity=sensitivity.clipped_leaf_sensitivity(
            settings.gradient_bound, settings.l2, clip, settings.adjacency
        ),
        epsilon=settings.epsilon_of_leaves,
        random=random,
        bounds=None if math.isinf(clip) else (-clip, clip),
        adjacency=settings.adjacency,
    )


def planned_event(settings: DPBoostSettings, schema: Schema) -> Event:
    """The event that a training will produce, exactly."""
    settings.check_schema(schema)
    if settings.protocol == "central.plain":
        return NonPrivate("central.plain adds no noise")
    before: list[Event] = []
    n_counted = len(counted_columns(schema, settings.max_bins))
    nothing = np.zeros(0, np.int64)
    if settings.binning == "private" and n_counted:
        before.append(release_counts(settings, n_counted, nothing, _Untouched()).event)
    if settings.clipped_count_share:
        before.append(release_counts(settings, 0, nothing, _Untouched()).event)
    trees = [_tree(settings, place) for place in range(settings.ensembles[0])]
    return Composed((*before, *(Parallel(tuple(trees[:n_trees])) for n_trees in settings.ensembles)))


def _tree(settings: DPBoostSettings, place: int) -> Event:
    """The mechanisms themselves say what releasing nothing costs: the same as releasing something."""
    if not settings.noisy:
        return Composed((NO_NOISE,) * (settings.max_depth + 1))
    choice = Exponential if settings.selection == "exponential" else PermuteAndFlip
    level = choice(choice_sensitivity(settings), settings.epsilon_per_level, settings.adjacency)
    leaves = release_leaves(settings, place, np.zeros(0), _Untouched()).event
    return Composed((*(level,) * settings.max_depth, leaves))


class _Untouched:
    """Randomness for mechanisms that release nothing."""

    def bytes(self, n: int) -> bytes:
        """No bytes."""
        if n:
            raise ProtocolError(f"{n} random bytes were drawn for a plan, which releases nothing")
        return b""
