"""vertical.scoring, declared: predictions by all parties together. And what a finished one guarantees, and what not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hedgerow.codec import from_json
from hedgerow.privacy.events import NonPrivate, meaning_for_a_person, up, what_is_proved
from hedgerow.protocols.services.score import messages, roles
from hedgerow.protocols.services.score.roles import NAME, ScoringJob
from hedgerow.protocols.vertical.common import agreement, stating
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol
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
    epsilon = job.predict_epsilon
    per_record = None if epsilon is None or not columns else {party: n * epsilon for party, n in columns.items()}
    stamp = "ANSWERS IN THE CLEAR" if epsilon is None else None
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
        "answers_are_private": epsilon is not None,
        "epsilon_per_value": epsilon,
        "columns_asked_about": columns or None,
        "epsilon_per_record": per_record,
        "stamp": stamp,
    }
    if epsilon is None:
        return Statement(NAME, guarantee, stating.ASSUMED, (), NOT_COVERED, facts, stamp=stamp)
    loss = {"epsilon": epsilon, "delta": 0.0, "per_record": per_record}
    registry = Registry("pure", loss, "one value of one column", "local", "basic composition")
    not_covered = ("scoring the same rows again: it costs the same again", *NOT_COVERED)
    return Statement(NAME, guarantee, stating.ASSUMED, (), not_covered, facts, registry)


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
        f"One value of one column: epsilon = {up(epsilon)}, towards {holder}, however many trees ask about it.",
        *what_is_proved(epsilon, 0.0, neighbours=values),
        f"{holder} learned which way rows go at the feature holders' splits after randomised response.",
        "One record: for each feature holder, that epsilon times the number of its columns that the model asks about.",
    ]
    for party, n in columns.items():
        told.append(f"{party}: {n} x {up(epsilon)} = {up(n * epsilon)} for one record.")
        told.append(meaning_for_a_person(n * epsilon))
    return [sentence for sentence in told if sentence]


def planned(job: ScoringJob, party: str, data: PartyData) -> Planned | None:
    """What one record of a feature holder goes through; rows of the label holder are told to nobody."""
    if party == job.label_holder:
        return None
    if job.predict_epsilon is None:
        return Planned(NonPrivate(f"{NAME} answers in the clear without predict_epsilon"))
    part = agreement.as_feature_holder(agreement.own_part(party, job, data)[0], job)
    event = roles.Answering(part, job.predict_epsilon).event
    return Planned(event) if event is not None and event.parts() else None


SPEC = Protocol(
    ScoringJob,
    roles={LABEL_HOLDER: roles.label_holder, FEATURE_HOLDER: roles.feature_holder},
    messages=messages.ALL,
    statement=statement,
    warmup=agreement.warmup,
    planned=planned,
    result=partial(from_json, roles.Scores | roles.Answered),
    part=part_from_dict,
)
