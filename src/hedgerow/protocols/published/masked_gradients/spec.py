"""vertical.masked_gradients, declared: MaskedXGBoost as published, gated; and what a run of it does not guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.privacy.events import up
from hedgerow.protocols.published.masked_gradients import messages
from hedgerow.protocols.published.masked_gradients.feature_holder import feature_holder
from hedgerow.protocols.published.masked_gradients.job import STAMP, MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.label_holder import label_holder
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.joint_forest import warmup
from hedgerow.protocols.vertical.common.messages import (
    GoAhead,
    LearningRows,
    Onward,
    PlaceOfColumns,
    ReadyToTrain,
    SplitColumns,
)
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol
from hedgerow.statement import Statement

CORRELATED = "noise that is correlated along the rows they send left"
NOT_PRIVATE = (
    "The model is not differentially private. vertical.noised_gradients protects labels by noise that the label holder "
    "makes itself."
)


def statement(job: MaskedGradientsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others = job.label_holder, job.others
    vectors = f"{job.n_vectors} noise vector{'s' if job.n_vectors > 1 else ''} per candidate"
    guarantee = (
        f"{holder} has the labels. It trained with {others}; splits by {stating.scores_of(job.score)}, with {vectors}.",
        stating.KNOWN_LEAKS,
        _about_labels(others, meta.get("label_recovery")),
        f"{others} also got the exact sums of gradients and hessians of every node, and the weights of rows if any.",
        *stating.watching(job),
        *stating.by_column(job),
        f"{holder} got, of every split that won, which rows go which way, and of other candidates {CORRELATED}.",
        _about_theorems(job, meta.get("theorems_would_add_up_to")),
        NOT_PRIVATE,
    )
    facts = {
        **job.facts,
        "adversary": "none: an honest but curious feature holder computes every label",
        "model_is_private": False,
        "privacy": None,
        "label_recovery": meta.get("label_recovery"),
        "noise": meta.get("noise"),
        "theorems_would_add_up_to": meta.get("theorems_would_add_up_to"),
        "rounds": meta.get("rounds"),
        "stamp": STAMP,
    }
    return Statement(job.NAME, guarantee, stating.ASSUMED, (), stating.NOTHING_COVERED, facts, stamp=STAMP)


def _about_labels(others: str, recovery: Mapping[str, Any] | None) -> str:
    known = f"{others} made the noise on the gradients, and can take it off again."
    if recovery is None:
        return f"{known} What that recovers was not measured: no candidate was sent."
    if recovery["measure"] == "accuracy":
        found = f"{recovery['value']:.2%} of the labels (the more frequent class has {recovery['chance']:.2%})"
    else:
        found = f"{recovery['value']:.2%} of the labels' variance"
    return (
        f"{known} MEASURED on the first message of this run, to {recovery['by']}, over {recovery['rows']:,} rows: "
        f"{recovery['attack']} recovers {found}."
    )


def _about_theorems(job: MaskedGradientsJob, added: Mapping[str, Any] | None) -> str:
    if job.is_given:
        return (
            f"The strength of the noise was given (sigma1 = {job.sigma1:g}, sigma2 = {job.sigma2:g}, C = {job.C:g}), "
            "without any claim."
        )
    labels_say = f"({up(job.eps_ap or 0.0)}, {up(job.delta_ap or 0.0)})"
    columns_say = f"({up(job.eps_pp or 0.0)}, {job.delta_pp or '1/rows'})"
    claimed = (
        f"The paper's theorems would call each message {labels_say}-private for labels and each candidate's noise "
        f"{columns_say}-private for one bit"
    )
    if added is None:
        return f"{claimed}. The first is false, and neither says anything about a whole run."
    labels, columns = added["ap"], added["pp"]
    return (
        f"{claimed}. The first is false. Were they true, {labels['messages']:,} masked vectors would add up to epsilon "
        f"= {up(labels['basic'][0])} by sums and {up(labels['gaussian'])} by Gaussian DP, and the "
        f"noise of {columns['messages']:,} candidates to epsilon = {up(columns['basic'][0])}."
    )


SPEC = Protocol(
    MaskedGradientsJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, LearningRows, PlaceOfColumns, Onward, SplitColumns, messages.Scales),
        *(messages.NoiseVectors, messages.NextVectors, messages.MaskedGradients),
        *(messages.BestScores, messages.Winners, messages.WhichWay, messages.Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    stamp=lambda _job: STAMP,
    takes_weights=lambda _options: True,
    on_ray=dict.fromkeys(
        (LABEL_HOLDER, FEATURE_HOLDER),
        "gradients of all rows, masked, go from machine to machine for every candidate; sums over columns are quick",
    ),
    drawn=lambda _job: "noise for every candidate",
)
