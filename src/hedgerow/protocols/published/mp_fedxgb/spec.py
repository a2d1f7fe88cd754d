"""vertical.mp_fedxgb, declared, and what a run of it guarantees: MP-FedXGB as published, gated and stamped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.published.mp_fedxgb import messages
from hedgerow.protocols.published.mp_fedxgb.dealer import dealer
from hedgerow.protocols.published.mp_fedxgb.holder import holder
from hedgerow.protocols.published.mp_fedxgb.job import STAMP, MpFedXgbJob
from hedgerow.protocols.shares.messages import ON_SHARES, SHARED_ROWS
from hedgerow.protocols.shares.playing import NOT_ON_RAY, dealing, result, small
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.messages import GoAhead, Onward, ReadyToTrain
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol, not_yet
from hedgerow.statement import Statement

_OPENS = "the published comparisons open what they compare, so checking children would show everybody's sums of"
LACKS = {
    "min_child_weight": f"{_OPENS} hessians",
    "min_samples_leaf": f"{_OPENS} rows",
    "max_leaf_nodes": "to order nodes of a level by gain, gains would have to be opened, which tell sums of labels",
    "monotonic_cst": (
        "below a constrained split leaf values are held within bounds that are quotients of sums of labels, and here "
        "leaf values are shared and nobody may know them"
    ),
    "quantile": "a leaf's value would be a quantile of its rows' residuals, which no sums of shares tell; it is shared",
    **not_yet("sample_weight class_weight classes levels many_levels warm_start"),
}
"""Features that it does not offer -> why not."""


def statement(job: MpFedXgbJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, second, others = job.label_holder, job.numerators_to, job.others
    guarantee = [
        f"{holder} has the labels. It trained with {others}, on shares dealt by {job.dealer}.",
        stating.KNOWN_LEAKS,
        f"{second} opened by how much splits differ in gain, from which it computes sums of labels over its buckets.",
        (
            f"{holder} opened denominators, from which it computes sums over the buckets of {others}, and the value of "
            "every tree for every row, hence the rows of every leaf."
        ),
        (
            "Everybody learned of each node which column and bin it splits on, and of each leaf the sum of hessians "
            "but for two lambda."
        ),
        "vertical.secret_shared opens none of this but the rows of leaves.",
        f"The model is not differentially private. Leaf values are shared; scores are opened to {holder} alone.",
    ]
    if job.stops_early:
        guarantee.append(
            f"After each tree {holder} said whether it goes on, and in the end how many trees are kept; of the rows "
            "that it watches nothing else was told."
        )
    if job.first_layer_mask:
        guarantee.append(f"Roots of trees are split on columns of {holder} only, which removes none of the above.")
    facts = {
        **job.facts,
        "dealer": job.dealer,
        "argmax": job.argmax,
        "first_layer_mask": job.first_layer_mask,
        "adversary": "none: honest but curious parties learn sums of labels and columns",
        "model_is_private": False,
        "privacy": None,
        "gradient_bits": meta.get("gradient_bits"),
        "rounds": meta.get("rounds"),
        "stamp": STAMP,
    }
    assumed = stating.assumed_with(job.dealer)
    return Statement(job.NAME, tuple(guarantee), assumed, (), stating.NOTHING_COVERED, facts, stamp=STAMP)


SPEC = Protocol(
    MpFedXgbJob,
    roles={LABEL_HOLDER: holder, FEATURE_HOLDER: holder, DEALER: dealing(dealer)},
    messages=(ReadyToTrain, GoAhead, Onward, *ON_SHARES, *SHARED_ROWS, *messages.ALL),
    statement=statement,
    warmup=small,
    result=result,
    on_ray=NOT_ON_RAY,
    drawn=lambda _job: "how quotients on shares are rounded, and shares of leaves",
    lacks=LACKS,
)
