"""vertical.closed_scoring, declared, and what a run of it guarantees: nothing but the scores is opened."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hedgerow.codec import from_json
from hedgerow.privacy.events import NonPrivate
from hedgerow.protocols.services.score_closed import messages, roles
from hedgerow.protocols.services.score_closed.roles import NAME, ClosedScoringJob
from hedgerow.protocols.shares.messages import ON_SHARES
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.agreement import warmup
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol
from hedgerow.statement import Statement

OWNERS_LEARNED = (
    "A feature holder learned how many rows were scored with which model, the shapes of the trees, and which of its "
    "own splits stand where in them; nothing about scores, labels or the other parties' columns."
)
NOT_COVERED = (
    "what scores tell about rows and about the model to those who get to see them",
    stating.OF_TRAINING,
    *stating.NOT_COVERED,
)


def statement(job: ClosedScoringJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts. `meta` may say under "rounds" how often the parties sent each other words."""
    guarantee = (
        f"Rows were scored by {len(job.parties)} parties, on shares dealt by {job.dealer}. There is no epsilon.",
        (
            f"{job.label_holder} learned the scores, and about which way rows go only what scores themselves tell: to "
            "who knows all leaf values that can be the leaves of a row, where trees are few."
        ),
        OWNERS_LEARNED,
    )
    facts = {
        "protocol": NAME,
        "parties": list(job.parties),
        "label_holder": job.label_holder,
        "dealer": job.dealer,
        "model_run_id": job.model_run_id,
        "adversary": "honest but curious; any parties together, but not with the dealer",
        "answers_are_private": True,
        "rounds": meta.get("rounds"),
        "stamp": None,
    }
    assumed = stating.assumed_with(job.dealer, stating.TOGETHER)
    return Statement(NAME, guarantee, assumed, (), NOT_COVERED, facts)


def planned(job: ClosedScoringJob, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """Scores follow from the rows of feature holders, without noise; nobody else learns of the label holder's rows."""
    return None if party == job.label_holder else Planned(NonPrivate(f"{NAME} opens scores without noise"))


SPEC = Protocol(
    ClosedScoringJob,
    roles={LABEL_HOLDER: roles.label_holder, FEATURE_HOLDER: roles.feature_holder, DEALER: roles.dealer},
    messages=(*ON_SHARES, *messages.ALL),
    statement=statement,
    warmup=partial(warmup, dealer="dealer"),
    planned=planned,
    result=partial(from_json, roles.ClosedScores | roles.TookPart),
    part=part_from_dict,
)
