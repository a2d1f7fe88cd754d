"""What a finished run of vertical.private_histograms guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.private_histograms.job import GROWN, SMOOTH, WINNER, PrivateHistogramsJob

NOT_PRIVATE = "NOT PRIVATE: epsilon=inf, nothing has noise"
"""The stamp of a model without noise."""

NOT_COVERED = (
    "a party that lies",
    "a dealer that works together with a party",
    "which rows there are",
    "numbers of columns",
    "bounds in the schema, if they were made from the data",
    "the choice of parameters",
    "who took part",
)


def statement(job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others = job.label_holder, ", ".join(job.feature_holders)
    privacy = meta.get("privacy")
    revealed, closing = _revealed(job)
    noise = "all with noise inside the shares" if privacy else "all without noise"
    told = "Counts of rows in public cells were told" if job.policy == SMOOTH else "Bins follow from counts of rows"
    counted = "with noise of their owner" if privacy else "without noise"
    sentences = [
        f"Trained with {job.NAME} by {holder}, which has the labels, and {others}, on shares dealt by {job.dealer}.",
        f"Opened were {revealed}, sums of leaves and the number of positive rows, {noise}.",
        f"{told} {counted}.",
        _guarantees(job, privacy) if privacy else f"{NOT_PRIVATE}.",
        closing,
        f"All parties were taken to follow the protocol, and to be curious. Not covered: {', '.join(NOT_COVERED)}.",
    ]
    facts = {
        "protocol": job.NAME,
        "label_holder": holder,
        "feature_holders": list(job.feature_holders),
        "dealer": job.dealer,
        "policy": job.policy,
        "reveal": job.reveal if job.policy == GROWN else None,
        "adversary": "honest but curious; any parties together, but not with the dealer",
        "model_is_private": privacy is not None,
        "privacy": privacy,
        "labels_towards_feature_holders": {**privacy, "neighbours": "another label of one row"} if privacy else None,
        "records_towards_label_holder": {**privacy, "neighbours": "one row counts for nothing"} if privacy else None,
        "adjacency": "one row counts for nothing; the number of rows is known",
        "rounds": meta.get("rounds"),
        "stamp": None if privacy else NOT_PRIVATE,
    }
    return Statement("\n".join(sentences), facts)


def _revealed(job: PrivateHistogramsJob) -> tuple[str, str]:
    """What was opened beside sums of leaves, and who may score."""
    if job.policy == SMOOTH:
        return "sums of gradients in bins of single columns", (
            "Nobody learned the rows of a node while trees grew. The whole model follows from what was opened, and all "
            "parties may have it; who scores rows by vertical.scoring learns which way they go."
        )
    level = "the winner of each level" if job.reveal == WINNER else "histograms of some columns at each level"
    return level, (
        "Nobody learned the rows of a node. Scores are opened to the label holder by vertical.closed_scoring; exact "
        "scores of rows that were trained on tell more about them than the model does."
    )


def _guarantees(job: PrivateHistogramsJob, privacy: Mapping[str, Any]) -> str:
    amount = f"({job.noise:.12g}, {job.delta:g})-differentially private"
    return (
        f"Labels are {amount} towards the feature holders, all of them together: for another label of one row. Rows as "
        f"a whole, columns and label, are {amount} towards {job.label_holder} and everybody who gets the model: for "
        "one row whose values count for nothing. Both follow from one accountant that saw every release "
        f"({privacy['accountant']})."
    )
