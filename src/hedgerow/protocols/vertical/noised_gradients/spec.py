"""vertical.noised_gradients, declared: XGBoost-LDP and FedXGBoost-LDP, with a guarantee that holds; and its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.curves import gaussian_delta
from hedgerow.privacy.events import Gaussian, NonPrivate, amount, chance_beyond, up, what_is_proved
from hedgerow.protocols.bad_rows import about_misfits
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
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import label_holder, stamp
from hedgerow.protocols.vertical.noised_gradients.looks import ADJACENCY
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol, not_yet
from hedgerow.statement import Registry, Statement

FEATURES = (
    "Columns are not protected. Of every split that won, all parties know which rows of the node go which way.",
    "The label holder knows whose each split is, and the best gain of each feature holder in each node.",
    "Values, edges and names of columns stay with their owner.",
)
NOT_COVERED = (
    "columns, and which rows go which way",
    "what predictions give away later",
    stating.REPEATED,
    stating.SEVERAL_ROWS,
    *stating.NOT_COVERED,
)
MAPPED = (
    "A label that is missing or not listed is no error: it counted as the first class, or in a regression as the "
    "middle of the label range."
)
_NEIGHBOURS = ("with one label as with another", "which of two labels a row has")


def planned(job: NoisedGradientsJob, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """Labels have Gaussian noise for the whole run, unless it is counted by messages; columns have none."""
    if party != job.label_holder:
        return Planned(NonPrivate(f"{job.NAME} does not protect columns"))
    if not job.has_noise or job.per == MESSAGE or job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    epsilon, delta = job.budget
    return Planned(Gaussian(mu_for(epsilon, delta), 1.0, ADJACENCY), delta)


def statement(job: NoisedGradientsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    privacy = meta.get("privacy")
    trained = f"{job.label_holder} has the labels. It trained with {job.others}."
    facts = {
        **job.facts,
        "adversary": "honest but curious feature holders, all of them together",
        "model_is_private": _holds(job) and privacy is not None,
        "privacy": privacy,
        "per": job.per,
        "rounds": meta.get("rounds"),
        "stamp": stamp(job),
    }
    stated = Statement(
        job.NAME,
        (
            *_about_labels(job, privacy),
            *_about_rows(job, meta),
            *stating.watching(job),
            *FEATURES,
            *stating.by_column(job),
            f"{trained} Splits and leaves follow from {stating.scores_of(job.score)}.",
        ),
        (*stating.ASSUMED, f"{job.label_holder} draws the noise, and keeps it to itself."),
        _assumed_of_data(job, meta) if _holds(job) else (),
        NOT_COVERED,
        facts,
        _registry(job, privacy),
        stamp(job),
    )
    return about_misfits(stated, job.on_bad_rows, MAPPED, stating.OWN_NUMBER)


def _assumed_of_data(job: NoisedGradientsJob, meta: Mapping[str, Any]) -> tuple[str, ...]:
    alone = "Labels are independent of each other, given the columns: the guarantee is for one label changed alone."
    more = (
        *(("Weights of rows are public and were not made from these labels.",) if meta.get("weighted") else ()),
        *(
            ("Which rows are watched is public and was not chosen by these labels.",)
            if job.boosting.early_stopping_rounds is not None
            else ()
        ),
    )
    if job.task == "regression":
        label_range = "The label range is public and was not made from these labels. Labels outside are clipped."
        return (alone, label_range, *more)
    if job.classes is not None:
        return (alone, "The list of classes is public and was not made from these labels.", *more)
    found = (
        "Which classes there are was read off the labels and is taken to be public. classes=[...] lists them instead."
    )
    return (alone, found, *more)


def _about_rows(job: NoisedGradientsJob, meta: Mapping[str, Any]) -> tuple[str, ...]:
    """What all parties know of rows besides: weights, and who is watched."""
    told = []
    if meta.get("weighted"):
        told.append(f"{job.others} know the weights of rows. Noise is the same for all of them.")
    if job.boosting.early_stopping_rounds is not None:
        told.append(f"{job.others} know which rows are watched for early stopping.")
        if _holds(job):
            told.append(
                "Labels of rows that are watched were sent to nobody. After each iteration one number was made of "
                "them, with noise for the same epsilon and delta, and no label is both learned from and watched."
            )
    return tuple(told)


def _holds(job: NoisedGradientsJob) -> bool:
    return job.has_noise and job.per != MESSAGE


def _registry(job: NoisedGradientsJob, privacy: Mapping[str, Any] | None) -> Registry:
    if not _holds(job) or privacy is None:
        return Registry("none", {}, "one label", "local", "none")
    loss = {"epsilon": privacy["epsilon"], "delta": privacy["delta"], "mu": privacy["mu"]}
    return Registry("approximate", loss, "one label", "local", privacy["accountant"])


def _about_labels(job: NoisedGradientsJob, privacy: Mapping[str, Any] | None) -> list[str]:
    if not job.has_noise:
        return ["NOT PRIVATE: gradients were sent as they are, and show every label to every feature holder."]
    if privacy is None:
        return [f"The run was to cost {amount(*job.budget)}; what it did cost is in the model's meta."]
    if job.per == MESSAGE:
        return _per_message(job, privacy)
    epsilon, delta, mu = privacy["epsilon"], privacy["delta"], privacy["mu"]
    beyond = chance_beyond(epsilon, lambda at: gaussian_delta(mu, at))
    what = "once, for all trees" if job.per == RUN else f"{privacy['releases']} times, once per tree, with fresh noise"
    return [
        (
            f"One label: {amount(epsilon, delta)}, towards the feature holders, all of them together, and "
            "whoever gets the whole model."
        ),
        *what_is_proved(epsilon, delta, beyond=beyond, neighbours=_NEIGHBOURS),
        (
            f"Noisy gradients were sent {what}. Trees, leaf values, scores and hessians follow from these and from the "
            "columns."
        ),
        f"Counted by the {privacy['accountant']} accountant: mu = {up(mu)}.",
    ]


def _per_message(job: NoisedGradientsJob, privacy: Mapping[str, Any]) -> list[str]:
    epsilon, delta = job.budget
    composed = privacy["composed_if_leaves_were_noisy"]
    total = "an epsilon above 600" if composed is None else f"epsilon = {up(composed)}"
    return [
        "NO total guarantee is claimed.",
        (
            f"PER MESSAGE: each message of noisy gradients has {amount(epsilon, delta)} for one label changed, "
            "taken by itself and with all scores given. That is how the papers count."
        ),
        (
            f"{privacy['releases']:,} such messages were sent. By Gaussian DP they would compose to {total} at delta = "
            f"{up(delta)} if leaf values were made from what was released."
        ),
        "They are not: leaves are exact, later gradients depend on them, and one label moves many gradients.",
    ]


SPEC = Protocol(
    NoisedGradientsJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(
            ReadyToTrain,
            GoAhead,
            LearningRows,
            PlaceOfColumns,
            Onward,
            SplitColumns,
            messages.StartWithoutNoise,
            messages.NoisyGradients,
            messages.NoisyLevel,
        ),
        *(messages.BestGains, messages.Winners, messages.WhichWay, messages.Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    maps_rows=lambda _options, has_labels: has_labels,
    watches_openly=True,
    takes_weights=lambda options: options.get("per") != MESSAGE,
    planned=planned,
    stamp=stamp,
    on_ray={
        LABEL_HOLDER: "it draws noise for every row and sends all gradients; beside that, sums over columns are quick",
        FEATURE_HOLDER: "gradients of all rows come to its machine for every tree; sums over its columns are quick",
    },
    drawn=lambda job: "noise for the gradients of rows" if job.has_noise else None,
    lacks={
        **not_yet("warm_start"),
        "class_weight": "feature holders need the weights of rows, and a weight that was made from a label tells it",
        "quantile": "the value of a leaf would be a quantile of its rows' labels, and only noisy gradients are known",
    },
)
