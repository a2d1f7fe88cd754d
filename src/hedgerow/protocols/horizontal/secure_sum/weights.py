"""Weights of rows: what all owners must agree on before gradients can be rounded alike.

The scale of gradients follows from the number of rows and their total weight, over all owners. Each owner adds up its
own weights exactly (`engine/exact_sums.py`), as digits, and masks hide these as they hide all else. So the total is
the pooled engine's, bit for bit, for whole weights and for others, and one round tells it. Rows of weight 0 are not
there: they are left out before anything is counted.

    owner -> coordinator   MaskedWeights    rows, and digits of the total weight (first of each class's, if balanced)
    coordinator -> owner   CommonWeights    both over all owners

A job may give classes a weight: by name, or "balanced", as heavy as if all classes had equally many rows. A row's
weight is then its own times that of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Floats, Words
from hedgerow.engine.exact_sums import N_LIMBS, exact_limbs, nearest_above
from hedgerow.engine.losses import MOST_ROWS
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.protocols.horizontal.secure_sum.job import BALANCED, Job
from hedgerow.protocols.horizontal.secure_sum.messages import LARGEST_WEIGHT, CommonWeights


def weight_sums(labels: Floats, weight: Floats | None, n_classes: int = 0) -> Words:
    """The number of some rows, and the digits of their total weight, or of each class's."""
    weight = np.ones(len(labels)) if weight is None else weight
    parts = [weight[labels == k] for k in range(n_classes)] if n_classes else [weight]
    sums = np.concatenate([[len(labels)], *(exact_limbs(part) for part in parts)])
    return sums.astype(np.int64).view(np.uint64)


def n_sums(n_totals: int) -> int:
    """Words of `weight_sums`."""
    return 1 + n_totals * N_LIMBS


def common_weights(sums: Words) -> CommonWeights:
    """What these sums over all owners say; ProtocolError if no rows can have them."""
    n_rows, digits = int(sums[0]), sums[1:].view(np.int64).reshape(-1, N_LIMBS)
    totals = np.array([nearest_above(limbs) for limbs in digits])
    if not 1 <= n_rows <= MOST_ROWS or bool((digits < 0).any()) or not 0 < totals.sum() <= LARGEST_WEIGHT:
        raise ProtocolError(
            f"the weights of all owners' {n_rows} rows add up to {totals.sum()}, which is not above 0 and at most "
            f"{LARGEST_WEIGHT}; or one of them sent wrong numbers"
        )
    return CommonWeights(n_rows, totals)


def class_factors(job: Job, classes: Sequence[Any], totals: Floats) -> Floats:
    """The weight of each class; `totals` are the classes' weights over all rows, where the job wants them balanced."""
    factors = np.ones(len(classes))
    if job.class_weight == BALANCED:
        factors = totals.sum() / (len(classes) * np.where(totals > 0, totals, 1.0))
        factors[totals == 0] = 1.0
    elif isinstance(job.class_weight, tuple):
        for label, factor in job.class_weight:
            if label not in classes:
                raise InvalidParameter(
                    f"{job.NAME}: class_weight names {label!r}, which is not among the classes {list(classes)}"
                )
            factors[list(classes).index(label)] = factor
    if job.scale_pos_weight is not None:
        if len(classes) != 2:
            raise InvalidParameter(
                f"{job.NAME}: scale_pos_weight={job.scale_pos_weight} is for two classes, and there are "
                f"{len(classes)}; use class_weight"
            )
        factors[1] *= job.scale_pos_weight
    return factors
