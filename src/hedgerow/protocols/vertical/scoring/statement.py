"""What a finished scoring guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.scoring.job import NAME, ScoringJob

OWNERS_LEARNED = (
    "A feature holder learned how many rows were scored with which model, and nothing about scores, labels or the "
    "other parties' columns."
)
NOT_COVERED = (
    "All parties were taken to follow the protocol, and to be curious. Not covered: a party that lies, what scores "
    "tell about rows to those who get to see them, what the training disclosed."
)


def statement(job: ScoringJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts. `meta` may say under "columns" how many columns each feature holder was asked about."""
    columns = {party: int(n) for party, n in dict(meta.get("columns", {})).items()}
    sentences = [
        f"Rows were scored with {NAME} by {len(job.parties)} parties; the scores are {job.label_holder}'s alone.",
        _about_answers(job, columns),
        OWNERS_LEARNED,
        NOT_COVERED,
    ]
    facts = {
        "protocol": NAME,
        "parties": list(job.parties),
        "label_holder": job.label_holder,
        "model_run_id": job.model_run_id,
        "adversary": "honest but curious",
        "answers_are_private": job.predict_epsilon is not None,
        "epsilon_per_value": job.predict_epsilon,
        "columns_asked_about": columns or None,
        "epsilon_per_record": None
        if job.predict_epsilon is None or not columns
        else {party: n * job.predict_epsilon for party, n in columns.items()},
        "stamp": None if job.predict_epsilon is not None else "ANSWERS IN THE CLEAR",
    }
    return Statement("\n".join(sentences), facts)


def _about_answers(job: ScoringJob, columns: Mapping[str, int]) -> str:
    if job.predict_epsilon is None:
        return (
            f"ANSWERS IN THE CLEAR: {job.label_holder} learned, for every row, which way it goes at each of the "
            "feature holders' splits, in trees that it knows. Over many rows that is how many of them are in each of "
            "the owner's intervals; where it knows the thresholds, it is the interval of each value. predict_epsilon "
            "randomises the answers."
        )
    each = "".join(f" {party}: {n} x {job.predict_epsilon:.4g}." for party, n in columns.items())
    return (
        f"{job.label_holder} learned which way rows go at the feature holders' splits after randomised response: "
        f"{job.predict_epsilon:.4g}-locally differentially private for one value, however many trees ask about it; for "
        "one record and feature holder, epsilon times the number of its columns that the model asks about."
        f"{each} Scoring the same rows again costs the same again."
    )
