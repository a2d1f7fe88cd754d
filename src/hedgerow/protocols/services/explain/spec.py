"""vertical.explaining, declared: to each party what its own columns are worth. And what holds afterwards, what not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hedgerow.codec import from_json
from hedgerow.protocols.services.explain import messages, roles
from hedgerow.protocols.services.explain.roles import IMPORTANCES, INTERACTIONS, NAME, ExplainingJob
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.agreement import warmup
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol, Rehearsal
from hedgerow.statement import Statement

ABOUT_IMPORTANCES = (
    "IN THE CLEAR: a feature holder learned how much each of its own splits reduced the loss, or how often the trees "
    "ask it. Gains follow from the labels."
)
ABOUT_CONTRIBUTIONS = (
    "IN THE CLEAR: {} learned which of a feature holder's splits ask about the same column and, for every row, which "
    "way it goes at each of them. It calculated the contributions of the feature holders' columns one by one, under "
    "numbers instead of names, and kept only their sums. A feature holder learned what its columns add to the scores "
    "of every row. That follows from the labels, and from the ways that the row goes at other parties' splits."
)
ABOUT_INTERACTIONS = (
    "Of interactions it learned, beyond what its columns add alone, what each two of its columns add together, and "
    "each of them with all other parties' columns together."
)
NOT_COVERED = (
    "what explanations tell to those who get to see them",
    (
        "what the training disclosed: its guarantee covers explanations only as far as gains, covers and leaf values "
        "were calculated from what was noised"
    ),
    *stating.NOT_COVERED,
)


def statement(job: ExplainingJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts. `meta` may say under "n_rows" how many rows were explained."""
    of_model = job.what == IMPORTANCES
    n_rows = meta.get("n_rows")
    what = f"the {job.what}"
    total = "the total of its own columns with each" if job.what == INTERACTIONS else "the total of each"
    told = (
        f"Each party has {what} of its own columns; {job.label_holder} also has {total} other party. No name "
        "of a column, no threshold and no level left its owner."
    )
    guarantee = (
        f"{job.what.capitalize()} were calculated by {len(job.parties)} parties"
        + ("." if of_model or n_rows is None else f", for {n_rows:,} rows."),
        ABOUT_IMPORTANCES if of_model else ABOUT_CONTRIBUTIONS.format(job.label_holder),
        *((ABOUT_INTERACTIONS,) if job.what == INTERACTIONS else ()),
        told,
    )
    facts = {
        "protocol": NAME,
        "what": job.what,
        "kind": job.kind if of_model else None,
        "parties": list(job.parties),
        "label_holder": job.label_holder,
        "model_run_id": job.model_run_id,
        "adversary": "honest but curious",
        "is_private": False,
        "stamp": "IN THE CLEAR",
    }
    return Statement(NAME, guarantee, stating.ASSUMED, (), NOT_COVERED, facts, stamp="IN THE CLEAR")


def rehearsal(job: ExplainingJob) -> Rehearsal | None:
    """Importances need no kernel."""
    return None if job.what == IMPORTANCES else warmup(job)


SPEC = Protocol(
    ExplainingJob,
    roles={LABEL_HOLDER: roles.label_holder, FEATURE_HOLDER: roles.feature_holder},
    messages=messages.ALL,
    statement=statement,
    warmup=rehearsal,
    result=partial(from_json, roles.Importances | roles.Contributions | roles.Interactions),
    part=part_from_dict,
)
