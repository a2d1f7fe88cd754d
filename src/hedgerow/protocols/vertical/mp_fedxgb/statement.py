"""What a finished run of vertical.mp_fedxgb guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.mp_fedxgb.job import STAMP, MpFedXgbJob


def statement(job: MpFedXgbJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, second, others = job.label_holder, job.numerators_to, ", ".join(job.feature_holders)
    sentences = [
        f"Trained with {job.NAME} by {holder}, which has the labels, and {others}, on shares dealt by {job.dealer}.",
        "KNOWN LEAKS, accepted by accept_known_leaks=True:",
        f"- {second} opened by how much splits differ in gain, from which it computes sums of labels over its buckets.",
        _about_denominators(holder, others),
        _about_everybody(),
        "vertical.secret_shared opens none of this but the rows of leaves.",
        f"The model is not differentially private. Leaf values are shared; scores are opened to {holder} alone.",
    ]
    if job.first_layer_mask:
        sentences.append(f"Roots of trees are split on columns of {holder} only, which removes none of the above.")
    facts = {
        "protocol": job.NAME,
        "label_holder": holder,
        "feature_holders": list(job.feature_holders),
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
    return Statement("\n".join(sentences), facts)


def _about_denominators(holder: str, others: str) -> str:
    return (
        f"- {holder} opened denominators, from which it computes sums over the buckets of {others}, and the value of "
        "every tree for every row, hence the rows of every leaf."
    )


def _about_everybody() -> str:
    return (
        "- Everybody learned of each node which column and bin it splits on, and of each leaf the sum of hessians but "
        "for two lambda."
    )
