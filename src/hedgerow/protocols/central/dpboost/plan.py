"""What every release will cost, known from settings and schema before a record is looked at; and the statement.

    Composed                                 bins (if private), number of misfits (if wanted), and then
      Parallel, one per ensemble             trees of an ensemble see disjoint records
        Composed, one per tree               a choice per level, then the leaves

Sensitivities are those of `privacy.sensitivity`, for gradients of at most g* in absolute value and denominators that
count records; the paper's baselines have the same, without clipped leaves.

With early stopping the ensembles are one branch of a `Parallel`, and what is learned from the records that were set
apart is the other: which side a record is on is drawn for each by itself, and it serves on one side only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.privacy import sensitivity
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.choices import permute_and_flip
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event, Exponential, NonPrivate, Parallel, PermuteAndFlip, Released
from hedgerow.privacy.mechanisms import discrete_laplace, laplace
from hedgerow.protocols.bad_rows import MISFITS, MISFITS_FACT, OnBadRows
from hedgerow.protocols.central.bins import counted_columns
from hedgerow.protocols.central.dpboost.settings import MAX_ROWS, DPBoostSettings
from hedgerow.protocols.central.released import audit_of, given_up
from hedgerow.schema import Schema
from hedgerow.statement import ASSUMED_OF_DATA, ASSUMPTIONS, PrivacyStatement, Stage

NO_NOISE = NonPrivate("no noise was added")

LOOK_UNIT = 2**12
"""Losses of records that are set apart are whole numbers from 0 to this."""

MOST_LOOKS = 10
"""Points of a learning curve."""


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

    Their L1 sensitivity is min(g*/(1 + l2), 2 tau), twice that when a record is replaced. Of K > 2 classes, one record
    moves the K values of a leaf: min(2 (1 - 1/K)/(1 + l2), 2 K tau).
    """
    clip = settings.leaf_clip(place)
    return laplace(
        values,
        sensitivity=sensitivity.clipped_leaf_sensitivity(
            settings.gradient_bound_l1,
            settings.l2,
            clip,
            settings.adjacency,
            outputs=settings.n_outputs,
            weighted=settings.weighted,
        ),
        epsilon=settings.epsilon_of_leaves,
        random=random,
        bounds=None if math.isinf(clip) else (-clip, clip),
        adjacency=settings.adjacency,
        touched=settings.n_outputs,
    )


def look_rounds(settings: DPBoostSettings) -> list[int]:
    """After how many trees the learning curve has its points: ten, evenly spaced, or one for each of fewer trees."""
    n_points = min(settings.n_trees, MOST_LOOKS)
    return [settings.n_trees * (point + 1) // n_points for point in range(n_points)]


def release_looks(
    settings: DPBoostSettings, losses: Ints, size: int, random: RandomBytes
) -> tuple[int, Released[Ints], list[Event]]:
    """From sums of losses after each tree, over the records set apart, and their `size`: the best number of trees.

    A record adds at most LOOK_UNIT to each sum (times its weight, which is at most 1), and as much to the size. The
    number of trees is one choice among all, for half of the budget, since looks that were paid one by one would be as
    noisy as there are many; the other half is for the points of the learning curve and the size.
    """
    largest, adjacency = float(LOOK_UNIT), settings.adjacency
    half = settings.epsilon_of_looks / 2.0
    picked, choice = permute_and_flip(
        -losses.astype(np.float64),
        starts=np.array([0, len(losses)]),
        multiplicity=np.ones(len(losses), np.int64),
        sensitivity=sensitivity.bounded_choice_sensitivity(largest, adjacency),
        epsilon=half,
        random=random,
        magnitude=largest * MAX_ROWS,
        adjacency=adjacency,
    )
    rounds = look_rounds(settings)
    points = np.array([size, *(losses[k - 1] for k in rounds)], np.int64)
    moved = sensitivity.bounded_sum_sensitivity(len(points), LOOK_UNIT, adjacency)
    curve = discrete_laplace(points, sensitivity=moved, epsilon=half, random=random, adjacency=adjacency)
    return int(picked.group[0]) + 1, curve, [choice, curve.event]


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
    ensembles = [Parallel(tuple(trees[:n_trees])) for n_trees in settings.ensembles]
    if not settings.early_stopping:
        return Composed((*before, *ensembles))
    looks: tuple[Event, ...] = (NO_NOISE, NO_NOISE)
    if settings.noisy:
        half, adjacency = settings.epsilon_of_looks / 2.0, settings.adjacency
        moved = sensitivity.bounded_sum_sensitivity(len(look_rounds(settings)) + 1, LOOK_UNIT, adjacency)
        curve = discrete_laplace(nothing, sensitivity=moved, epsilon=half, random=_Untouched(), adjacency=adjacency)
        choice = sensitivity.bounded_choice_sensitivity(float(LOOK_UNIT), adjacency)
        looks = (PermuteAndFlip(choice, half, adjacency), curve.event)
    return Composed((*before, with_looks(ensembles, looks)))


def with_looks(ensembles: Sequence[Event], looks: Sequence[Event]) -> Event:
    """Trees and looks, of records that serve either: what one record costs is the larger of the two."""
    return Parallel((Composed(tuple(ensembles)), Composed(tuple(looks))))


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


# --- the statement ---------------------------------------------------------------------------------------------------

FEW_ENOUGH = "The table has at most {:,} rows, and that it has no more is public."

KNOWN_SIZE = "The number of rows is public. That a record is in the table is not protected, only what it holds."

_CHOICE = {"exponential": "exponential mechanism", "permute_and_flip": "permute-and-flip"}


def statement_of(
    settings: DPBoostSettings, schema: Schema, event: Event, n_misfits: int | None, on_bad_rows: OnBadRows = "map"
) -> PrivacyStatement:
    """What holds for the model; `n_misfits` is the released, noisy number."""
    accountant = BasicComposition(settings.adjacency)
    if settings.noisy:
        accountant.compose(event)
    facts: dict[str, Any] = {
        "trees": settings.n_trees,
        "ensembles": 1 if settings.protocol == "central.plain" else len(settings.ensembles),
        "gradient bound": settings.gradient_bound,
    }
    if n_misfits is not None:
        facts[MISFITS_FACT] = n_misfits
    return PrivacyStatement(
        protocol=settings.protocol,
        epsilon=accountant.total if settings.noisy else math.inf,  # pure: the sum itself, for delta = 0
        delta=0.0,
        adjacency=settings.adjacency,
        event=event,
        stages=() if settings.protocol == "central.plain" else _stages(settings, schema),
        accountant=BasicComposition.NAME,
        assumed_of_parties=(*ASSUMPTIONS, *_assumptions(settings)),
        assumed_of_data=(*ASSUMED_OF_DATA, _size_known(settings)),
        chance_beyond=0.0 if settings.noisy else None,  # pure
        not_private=given_up(settings.protocol, settings.epsilon, on_bad_rows),
        audit=audit_of(settings.protocol, settings.epsilon) if settings.adjacency == "add_remove" else None,
        facts=facts,
    )


def _size_known(settings: DPBoostSettings) -> str:
    return FEW_ENOUGH.format(settings.scale.most_rows) if settings.adjacency == "add_remove" else KNOWN_SIZE


def _stages(settings: DPBoostSettings, schema: Schema) -> tuple[Stage, ...]:
    stages = []
    n_ensembles, shared = len(settings.ensembles), settings.share_of_trees
    n_counted = len(counted_columns(schema, settings.max_bins))
    if settings.binning == "private" and n_counted:
        how, what = "discrete Laplace noise on a histogram of 256 cells per column", f"{n_counted} numeric columns."
        stages.append(Stage("edges of bins", how, settings.epsilon_of_bins, settings.binning_share, 1, what))
    if settings.clipped_count_share:
        how, share = "discrete Laplace noise on a count", settings.clipped_count_share
        stages.append(Stage("number of misfits", how, settings.epsilon_of_count, share, 1, MISFITS))
    together = {
        "central.dpboost": "Trees of one ensemble see disjoint records, so they cost as much as one of them.",
        "central.parallel": "Every tree sees about half of the records that no tree before it saw.",
        "central.sequential": "Every tree sees all records, so their costs add up.",
    }["central.sequential" if _all_see_all(settings) else settings.protocol]
    if settings.protocol == "central.dpboost" and 1 < n_ensembles < settings.n_trees:
        together += f" There are {n_ensembles} ensembles, each for all records, so their costs add up."
    levels = n_ensembles * settings.max_depth * settings.epsilon_per_level
    stages += [
        Stage(
            "splits",
            _CHOICE[settings.selection],
            levels,
            shared * (1.0 - settings.leaf_share),
            settings.n_trees * (2**settings.max_depth - 1),
            f"{settings.n_trees} trees of {settings.max_depth} levels. {together}",
        ),
        Stage(
            "leaves",
            "Laplace noise",
            n_ensembles * settings.epsilon_of_leaves,
            shared * settings.leaf_share,
            settings.n_trees * 2**settings.max_depth,
            "In a tree that sees it, a record is in one leaf.",
        ),
    ]
    if settings.early_stopping:
        how = "permute-and-flip, and discrete Laplace noise on sums of losses"
        what = (
            f"From about {100.0 * settings.validation_fraction:g} per cent of the records, which a secret coin for "
            "each of them set apart. They serve no tree: a record pays for trees or for this, never for both."
        )
        n_released = len(look_rounds(settings)) + 2
        stages.append(Stage("number of trees", how, settings.epsilon_of_looks, shared, n_released, what))
    return tuple(stages)


def _all_see_all(settings: DPBoostSettings) -> bool:
    """Whether every tree sees every record: nothing is divided."""
    if settings.protocol == "central.plain":
        return True
    return settings.protocol != "central.parallel" and max(settings.ensembles) == 1


def _assumptions(settings: DPBoostSettings) -> tuple[str, ...]:
    if _all_see_all(settings):
        return ()
    if settings.assignment == "independent":
        return ("Which records serve which tree was drawn in secret, for each record by itself, and stays secret.",)
    words = (
        "Which records serve which tree was drawn in secret, for all records together, and stays secret. The sizes of "
        "the subsets follow from the number of rows, as in the paper."
    )
    return (words,)
