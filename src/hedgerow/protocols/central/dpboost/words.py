"""The privacy statement of a training."""

from __future__ import annotations

import math
from typing import Any

from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.events import Event
from hedgerow.protocols.bad_rows import MISFITS, MISFITS_FACT, OnBadRows
from hedgerow.protocols.central.dpboost.bins import counted_columns
from hedgerow.protocols.central.dpboost.candidates import MAX_ROWS
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.released import audit_of, given_up
from hedgerow.schema import Schema
from hedgerow.statement import ASSUMED_OF_DATA, ASSUMPTIONS, PrivacyStatement, Stage

FEW_ENOUGH = f"The table has at most {MAX_ROWS:,} rows, and that it has no more is public."

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
        assumed_of_data=(*ASSUMED_OF_DATA, FEW_ENOUGH if settings.adjacency == "add_remove" else KNOWN_SIZE),
        chance_beyond=0.0 if settings.noisy else None,  # pure
        not_private=given_up(settings.protocol, settings.epsilon, on_bad_rows),
        audit=audit_of(settings.protocol, settings.epsilon) if settings.adjacency == "add_remove" else None,
        facts=facts,
    )


def _stages(settings: DPBoostSettings, schema: Schema) -> tuple[Stage, ...]:
    stages = []
    n_ensembles, shared = len(settings.ensembles), settings.share_of_trees
    n_counted = len(counted_columns(schema, settings.max_bins))
    if settings.binning == "private" and n_counted:
        stages.append(
            Stage(
                "edges of bins",
                "discrete Laplace noise on a histogram of 256 cells per column",
                settings.epsilon_of_bins,
                settings.binning_share,
                1,
                f"{n_counted} numeric columns.",
            )
        )
    if settings.clipped_count_share:
        stages.append(
            Stage(
                "number of misfits",
                "discrete Laplace noise on a count",
                settings.epsilon_of_count,
                settings.clipped_count_share,
                1,
                MISFITS,
            )
        )
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
