"""What a finished run of vertical.bucket_rr guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.bucket_rr.buckets import costs
from hedgerow.protocols.vertical.bucket_rr.job import NAME, NO_NOISE, PRIVATE, QUANTILE, Job

ASSUMED = "All parties were taken to follow the protocol, and to be curious"
NOT_COVERED = (
    "the labels: feature holders learn at which of their own buckets the model splits, which depends on the labels",
    "the model itself: what it or its predictions tell about rows and labels",
    "numbers of rows, columns and buckets",
    "the choice of parameters",
    "who took part",
)


def statement(job: Job, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    transfers: Mapping[str, Any] = meta.get("transfers", {})
    stamp = None if job.is_noisy else "NO NOISE"
    sentences = [
        _about_parties(job),
        _about_noise(job),
        _about_edges(job),
        *(_about_party(job, party, transfers.get(party)) for party in job.feature_holders),
        _about_debiasing(job),
        (
            f"{ASSUMED}{'; the noise holds against all others together' if job.is_noisy else ''}. "
            f"Not covered: {'; '.join(_not_covered(job))}."
        ),
    ]
    facts = {
        "protocol": NAME,
        "label_holder": job.label_holder,
        "feature_holders": list(job.feature_holders),
        "epsilon": job.to_dict()["epsilon"],
        "buckets": job.buckets,
        "edges": job.edges_mode,
        "edges_epsilon": job.edges_epsilon,
        "adversary": "honest but curious; all other parties together",
        "adjacency": "replace_one",
        "per_element": _json(costs(job, 1)[0]),
        "is_bound": job.is_noisy and job.edges_mode != QUANTILE,
        "transfers": {party: dict(entry) for party, entry in transfers.items()},
        "debias": job.debias and job.is_noisy,
        "labels_are_covered": False,
        "model_is_private": False,
        "rounds": meta.get("rounds"),
        "stamp": stamp,
    }
    return Statement("\n".join(sentence for sentence in sentences if sentence), facts)


def _json(value: float) -> float | str:
    return value if value < float("inf") else NO_NOISE


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _about_parties(job: Job) -> str:
    return (
        f"Trained with {NAME}: {job.label_holder} has the labels, {_listed(job.feature_holders)} sent it "
        f"{'their' if len(job.feature_holders) > 1 else 'its own'} columns as buckets."
    )


def _about_noise(job: Job) -> str:
    if not job.is_noisy:
        return (
            f"NO NOISE: epsilon is infinite, so {job.label_holder} knows the exact bucket of every value. Nothing is "
            "guaranteed."
        )
    return (
        f"Each bucket went through randomised response with epsilon = {job.noise:g}: the true one is e^{job.noise:g} "
        "times as likely as any other."
    )


def _about_edges(job: Job) -> str:
    if job.edges_mode == PRIVATE:
        return _about_private_edges(job)
    if job.edges_mode != QUANTILE:
        return "The edges of the buckets are public, so nothing of the data is in them."
    if not job.is_noisy:
        return "The edges of the buckets were taken from the data."
    return (
        "The edges of the buckets were taken from the data: one value that moves from one end to the other moves "
        f"others across the edges, so one element has no less than {job.buckets} x {job.noise:g} = "
        f"{costs(job, 1)[0]:g} and not {job.noise:g}; more where values tie, since a value that is new to a column "
        "shifts all buckets above it. The smallest and the largest edge tell of single values, and so does the number "
        "of buckets. edges='public' and edges='private' have none of this."
    )


def _about_private_edges(job: Job) -> str:
    text = (
        "The edges of the buckets are noisy quantiles, which each feature holder chose from its own column with "
        f"epsilon = {job.edges_noise:g} (edges_epsilon); levels are public, and every column has a bucket for missing "
        "values"
    )
    if not job.is_noisy:
        return f"{text}. Only the edges are private, the buckets are not."
    return (
        f"{text}. So one element has {job.noise:g} + {job.edges_noise:g} = {costs(job, 1)[0]:g}, or {job.noise:g} in a "
        "column of levels."
    )


def _about_party(job: Job, party: str, transfer: Mapping[str, Any] | None) -> str:
    if not job.is_noisy:
        return ""
    least = "no less than " if job.edges_mode == QUANTILE else ""
    element = costs(job, 1)[0]
    if transfer is None:
        return (
            f"{party}: {least}epsilon = {element:g} for one element, and as often that for a record as it has columns."
        )
    columns, by_levels = transfer["columns"], transfer["columns_with_levels"]
    sizes = f"{columns} columns x {element:g}"
    if job.edges_mode == PRIVATE and by_levels:
        element = transfer["per_element"]
        sizes = f"{columns} columns x {job.noise:g} + {columns - by_levels} columns' edges x {job.edges_noise:g}"
    text = (
        f"{party}: {least}epsilon = {element:g} for one element, {sizes} = {_number(transfer['per_record'])} for one "
        "record."
    )
    history = transfer["history"]
    if job.cache is None:
        return f"{text} Transfers of other runs are not counted, since there is no cache."
    if history["transfers"] > 1:
        text += (
            f" These values were sent {history['transfers']} times so far, which adds up to "
            f"{'' if history['is_bound'] or history['per_element'] == NO_NOISE else 'no less than '}"
            f"{_number(history['per_element'])} for one element and {_number(history['per_record'])} for one record."
        )
    else:
        text += " These values were sent once so far."
    if history["others"]:
        text += (
            f" Its book has transfers of other values ({history['others']}), which add to that for the same records."
        )
    return text


def _number(value: float | str) -> str:
    return "infinite" if value == NO_NOISE else f"{value:g}"


def _about_debiasing(job: Job) -> str:
    if not job.is_noisy:
        return ""
    if job.debias:
        return "The trees allow for the noise in the buckets (debias), which costs nothing."
    return "The trees take randomised buckets for true ones (debias=False, as in the paper)."


def _not_covered(job: Job) -> list[str]:
    items = ["a party that lies", *NOT_COVERED]
    if job.edges_mode == PRIVATE:
        items.append("the public bounds and levels, if they were made from the data")
    elif job.edges_mode != QUANTILE:
        items.append("the public bounds, levels and edges, if they were made from the data")
    return items
