"""vertical.scoring, declared: predictions by all parties together. And what a finished one guarantees, and what not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hedgerow.codec import from_json
from hedgerow.privacy import wording
from hedgerow.protocols.services.score.messages import Answers, AnswersWanted, RandomisedAnswers, ReadyToScore
from hedgerow.protocols.services.score.roles import NAME, Answered, Scores, ScoringJob, feature_holder, label_holder
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.common.serving import warmup
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol
from hedgerow.statement import Registry, Statement

OWNERS_LEARNED = (
    "A feature holder learned how many rows were scored with which model, and nothing about scores, labels or the "
    "other parties' columns."
)
NOT_COVERED = (
    "what scores tell about rows to those who get to see them",
    "what the training disclosed",
    *stating.NOT_COVERED,
)


def statement(job: ScoringJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts. `meta` may say under "columns" how many columns each feature holder was asked about."""
    columns = {party: int(n) for party, n in dict(meta.get("columns", {})).items()}
    guarantee = (
        *_about_answers(job, columns),
        OWNERS_LEARNED,
        f"Rows were scored by {len(job.parties)} parties. The scores are {job.label_holder}'s alone.",
    )
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
    repeated = ("scoring the same rows again: it costs the same again",) if job.predict_epsilon is not None else ()
    registry = None
    if job.predict_epsilon is not None:
        loss = {"epsilon": job.predict_epsilon, "delta": 0.0, "per_record": facts["epsilon_per_record"]}
        registry = Registry("pure", loss, "one value of one column", "local", "basic composition")
    stamp = None if job.predict_epsilon is not None else "ANSWERS IN THE CLEAR"
    return Statement(NAME, guarantee, stating.ASSUMED, (), (*repeated, *NOT_COVERED), facts, registry, stamp)


def _about_answers(job: ScoringJob, columns: Mapping[str, int]) -> list[str]:
    holder, epsilon = job.label_holder, job.predict_epsilon
    if epsilon is None:
        return [
            (
                f"ANSWERS IN THE CLEAR: {holder} learned, for every row, which way it goes at each of the feature "
                "holders' splits, in trees that it knows."
            ),
            (
                "Over many rows that is how many of them are in each of the owner's intervals. Where it knows the "
                "thresholds, it is the interval of each value. predict_epsilon randomises the answers."
            ),
        ]
    values = ("with one value as with another", "which of two values a row has")
    told = [
        f"One value of one column: epsilon = {wording.up(epsilon)}, towards {holder}, however many trees ask about it.",
        *wording.what_is_proved(epsilon, 0.0, neighbours=values),
        f"{holder} learned which way rows go at the feature holders' splits after randomised response.",
        "One record: for each feature holder, that epsilon times the number of its columns that the model asks about.",
    ]
    for party, n in columns.items():
        told.append(f"{party}: {n} x {wording.up(epsilon)} = {wording.up(n * epsilon)} for one record.")
        told.append(stating.meaning_for_a_person(n * epsilon))
    return [sentence for sentence in told if sentence]


SPEC = Protocol(
    ScoringJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(ReadyToScore, AnswersWanted, Answers, RandomisedAnswers),
    statement=statement,
    warmup=warmup,
    result=partial(from_json, Scores | Answered),
    part=part_from_dict,
)
