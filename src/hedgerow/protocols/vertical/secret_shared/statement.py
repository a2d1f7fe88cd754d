"""What a finished run of vertical.secret_shared guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob

NOT_COVERED = (
    "a party that lies",
    "a dealer that works together with a party",
    "what predictions give away later",
    "numbers of rows, columns and bins, and which columns have gaps",
    "the choice of parameters",
    "who took part",
)

UNLIKE_THE_ENGINE = (
    "The trees are those of one table with all columns, with min_child_weight=0, which cannot be checked on shares, "
    "and with missing_unseen='right'."
)


def statement(job: SecretSharedJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others = job.label_holder, ", ".join(job.feature_holders)
    sentences = [
        f"Trained with {job.NAME} by {holder}, which has the labels, and {others}, on shares dealt by {job.dealer}.",
        _about_openings(holder),
        _about_dealer(job.dealer),
        "The model is not differentially private: it may remember rows and labels. Each party has its own part of it.",
        UNLIKE_THE_ENGINE,
        f"All parties were taken to follow the protocol, and to be curious. Not covered: {', '.join(NOT_COVERED)}.",
    ]
    facts = {
        "protocol": job.NAME,
        "label_holder": holder,
        "feature_holders": list(job.feature_holders),
        "dealer": job.dealer,
        "disclosure": job.disclosure,
        "adversary": "honest but curious; any parties together, but not with the dealer",
        "model_is_private": False,
        "privacy": None,
        "gradient_bits": meta.get("gradient_bits"),
        "rounds": meta.get("rounds"),
        "stamp": None,
    }
    return Statement("\n".join(sentences), facts)


def _about_openings(holder: str) -> str:
    return (
        f"Opened was, of each node, whose split won or that it is a leaf. {holder} also learned which way the winning "
        "splits send the rows of their nodes, so it knows the rows of every node. Labels, gradients, sums, gains and "
        "values of columns were opened to nobody."
    )


def _about_dealer(dealer: str) -> str:
    return (
        f"This holds against any of the parties together, as long as {dealer}, which knows all masks and sees no data, "
        "works together with none of them."
    )
