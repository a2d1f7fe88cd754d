"""vertical.bucket_rr, declared; and what a finished run guarantees, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hedgerow.privacy.events import NonPrivate, meaning_for_a_person, up, what_is_proved
from hedgerow.protocols.bad_rows import about_misfits
from hedgerow.protocols.vertical.bucket_rr import messages
from hedgerow.protocols.vertical.bucket_rr.buckets import Kinds, costs, event_of
from hedgerow.protocols.vertical.bucket_rr.feature_holder import feature_holder
from hedgerow.protocols.vertical.bucket_rr.job import NAME, NO_NOISE, PRIVATE, QUANTILE, Job, told
from hedgerow.protocols.vertical.bucket_rr.label_holder import label_holder
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol, always, not_yet
from hedgerow.schema import CategoricalColumn
from hedgerow.statement import Registry, Statement

NOT_COVERED = (
    "the labels: feature holders learn at which of their own buckets the model splits, which depends on the labels",
    "the model itself: what it or its predictions tell about rows and labels",
    "repeated transfers without a cache: each one costs the same again; a cache or a budget (budget=...) keeps count",
    stating.SEVERAL_ROWS,
    "numbers of buckets",
    *stating.NOT_COVERED,
)
BUCKETS, EDGES, KEPT = "the buckets of rows", "noise for the edges of buckets", "what a cache has kept of earlier runs"
_NEIGHBOURS = ("with one value as with another", "which of two values an element has")


def planned(job: Job, party: str, data: PartyData) -> Planned | None:
    """Buckets of all columns of a feature holder, and their edges where these are private; labels have no noise."""
    if party == job.label_holder:
        return Planned(NonPrivate(f"{job.NAME} does not protect labels"))
    if job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    columns = data.table.columns
    expected = [job.expected(party, column.name) for column in columns]
    has_levels = [
        column.levels is not None if entry is None else isinstance(entry, CategoricalColumn)
        for column, entry in zip(columns, expected, strict=True)
    ]
    n_buckets, no_gaps = np.full(len(columns), job.buckets, np.int32), np.zeros(len(columns), np.bool_)
    return Planned(event_of(job, Kinds(n_buckets, np.array(has_levels, np.bool_), no_gaps)))


def charges_itself(job: Job, party: str) -> bool:
    """With a cache: what the label holder has kept is not sent again, and costs nothing."""
    return job.cache is not None and party != job.label_holder and job.on_bad_rows == "map"


def statement(job: Job, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    transfers: Mapping[str, Any] = meta.get("transfers", {})
    is_bound = job.is_noisy and job.edges_mode != QUANTILE
    element = costs(job, 1)[0]
    guarantee = [
        *_about_noise(job),
        *_about_edges(job),
        *(sentence for party in job.feature_holders for sentence in _about_party(job, party, transfers.get(party))),
        _about_debiasing(job),
        _about_parties(job),
    ]
    facts = {
        **job.facts,
        "epsilon": told(job.noise),
        "buckets": job.buckets,
        "edges": job.edges_mode,
        "edges_epsilon": job.edges_epsilon,
        "adversary": "honest but curious; all other parties together",
        "adjacency": "replace_one",
        "per_element": told(element),
        "is_bound": is_bound,
        "transfers": {party: dict(entry) for party, entry in transfers.items()},
        "debias": job.debias and job.is_noisy,
        "labels_are_covered": False,
        "model_is_private": False,
        "rounds": meta.get("rounds"),
        "stamp": job.stamp(),
    }
    noise = ("Each feature holder draws its own noise. It holds against all others together.",) if job.is_noisy else ()
    loss = {
        "epsilon": element, "delta": 0.0, "per_record": {party: t["per_record"] for party, t in transfers.items()}
    }  # fmt: skip
    registry = Registry(
        "pure" if is_bound else "none", loss if is_bound else {}, "one value of one column", "local",
        "basic composition of pure epsilons" if is_bound else "none",
    )  # fmt: skip
    stated = Statement(
        NAME, tuple(filter(None, guarantee)), (*stating.ASSUMED, *noise), _about_data(job), NOT_COVERED, facts,
        registry, job.stamp(),
    )  # fmt: skip
    mapped = () if job.edges_mode == QUANTILE else (stating.MAPPED,)  # where nothing is public about a column
    return about_misfits(stated, job.on_bad_rows, *mapped, _about_labels(job), stating.OWN_NUMBER)


def _about_parties(job: Job) -> str:
    return (
        f"{job.label_holder} has the labels. {job.others} sent it "
        f"{'their' if len(job.feature_holders) > 1 else 'its own'} columns as buckets."
    )


def _about_noise(job: Job) -> list[str]:
    holder, epsilon = job.label_holder, up(job.noise)
    if not job.is_noisy:
        return [
            f"NO NOISE: epsilon is infinite, so {holder} knows the exact bucket of every value. Nothing is guaranteed."
        ]
    response = (
        f"Each bucket went through randomised response with epsilon = {epsilon}: the true one is e^{epsilon} times as "
        "likely as any other."
    )
    if job.edges_mode == QUANTILE:
        return [response]
    element = costs(job, 1)[0]
    return [
        f"One value of one column of a feature holder: epsilon = {up(element)}, towards everybody else.",
        *what_is_proved(element, 0.0, neighbours=_NEIGHBOURS),
        response,
    ]


def _about_edges(job: Job) -> list[str]:
    if job.edges_mode == PRIVATE:
        return _about_private_edges(job)
    if job.edges_mode != QUANTILE:
        return ["The edges of the buckets are public, so nothing of the data is in them."]
    if not job.is_noisy:
        return ["The edges of the buckets were taken from the data."]
    epsilon, element = up(job.noise), up(costs(job, 1)[0])
    return [
        (
            f"NO BOUND is claimed for one value: the edges of the buckets were taken from the data. One element has "
            f"no less than {job.buckets} x {epsilon} = {element} and not {epsilon}, because one value that moves "
            "from one end to the other moves others across the edges. It is more where values tie."
        ),
        (
            "The smallest and the largest edge tell of single values, and so does the number of buckets. "
            "edges='public' and edges='private' have none of this."
        ),
    ]


def _about_private_edges(job: Job) -> list[str]:
    edges, epsilon = up(job.edges_noise), up(job.noise)
    told = [
        (
            "The edges of the buckets are noisy quantiles, which each feature holder chose from its own column with "
            f"epsilon = {edges} (edges_epsilon). Levels are public, and every column has a bucket for missing values."
        )
    ]
    if not job.is_noisy:
        return [*told, "Only the edges are private, the buckets are not."]
    both = up(costs(job, 1)[0])
    return [*told, f"So one element has {epsilon} + {edges} = {both}, or {epsilon} in a column of levels."]


def _about_party(job: Job, party: str, transfer: Mapping[str, Any] | None) -> list[str]:
    if not job.is_noisy:
        return []
    least = "no less than " if job.edges_mode == QUANTILE else ""
    element = costs(job, 1)[0]
    if transfer is None:
        return [
            (
                f"{party}: {least}epsilon = {up(element)} for one element, and as often that for a record as "
                "it has columns."
            )
        ]
    columns, by_levels = transfer["columns"], transfer["columns_with_levels"]
    sizes = f"{columns} columns x {up(element)}"
    if job.edges_mode == PRIVATE and by_levels:
        element, edges = transfer["per_element"], up(job.edges_noise)
        sizes = f"{columns} columns x {up(job.noise)} + {columns - by_levels} columns' edges x {edges}"
    record = transfer["per_record"]
    return [
        f"{party}: {least}epsilon = {_number(element)} for one element, {sizes} = {_number(record)} for one record.",
        meaning_for_a_person(math.inf if record == NO_NOISE else record),
        *_about_history(job, transfer["history"]),
    ]


def _about_history(job: Job, history: Mapping[str, Any]) -> list[str]:
    if job.cache is None:
        return ["Transfers of other runs are not counted, since there is no cache."]
    if history["transfers"] > 1:
        least = "" if history["is_bound"] or history["per_element"] == NO_NOISE else "no less than "
        told = [
            (
                f"These values were sent {history['transfers']} times so far, which adds up to {least}"
                f"{_number(history['per_element'])} for one element and {_number(history['per_record'])} for a record."
            )
        ]
    else:
        told = ["These values were sent once so far."]
    if history["others"]:
        told.append(
            f"Its book has transfers of other values ({history['others']}), which add to that for the same records."
        )
    return told


def _number(value: float | str) -> str:
    return "infinite" if value == NO_NOISE else up(float(value))


def _about_debiasing(job: Job) -> str:
    if not job.is_noisy:
        return ""
    if job.debias:
        return "The trees allow for the noise in the buckets (debias), which costs nothing."
    return "The trees take randomised buckets for true ones (debias=False, as in the paper)."


def _about_labels(job: Job) -> str:
    known = "" if job.listed_classes is None else " or not listed"
    return f"A row of {job.label_holder} whose label is missing{known} did not count when it trained."


def _about_data(job: Job) -> tuple[str, ...]:
    if job.edges_mode == QUANTILE:
        return ()
    what = "bounds and levels" if job.edges_mode == PRIVATE else "bounds, levels and edges"
    return (f"Public {what} were not made from these rows.",)


SPEC = Protocol(
    Job,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, messages.HaveTransfer, messages.SameAsBefore),
        *(messages.ColumnKinds, messages.Buckets, messages.OwnSplits),
    ),
    statement=statement,
    warmup=Job.rehearsal,
    result=part_from_dict,
    maps_rows=always,
    planned=planned,
    stamp=Job.stamp,
    charges_itself=charges_itself,
    on_ray={
        LABEL_HOLDER: None,
        FEATURE_HOLDER: "it changes the buckets of its columns once and takes no part in the training",
    },
    drawn=lambda job: BUCKETS if job.is_noisy else EDGES if job.edges_mode == PRIVATE else job.cache and KEPT,
    lacks=not_yet("warm_start"),
    takes_weights=lambda _options: True,
)
