"""What a finished run of horizontal.secure_sum guarantees, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.horizontal.secure_sum.job import FEWEST_MASKED_OWNERS, NAME, Job
from hedgerow.protocols.protocol import Statement

NOT_COVERED = "All parties were taken to follow the protocol, and to be curious."


def statement(job: Job, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    n_owners = len(job.owners)
    lost = dict(meta.get("lost_owners", {}))
    left = n_owners - len(lost)
    masked = len(job.masked_owners) - len(lost) >= 2 and left >= FEWEST_MASKED_OWNERS
    sentences = [
        f"Trained with {NAME} by {n_owners} owners of rows"
        + (f", of which {len(lost)} were lost on the way." if lost else "."),
        _about_sums(job, left, masked=masked),
        _about_edges(job, meta),
        _about_model(job, meta),
        *([_about_losses(lost)] if lost else []),
        f"{NOT_COVERED} Not covered: {', '.join(_not_covered(job))}.",
    ]
    facts = {
        "protocol": NAME,
        "owners": list(job.owners),
        "lost_owners": lost,
        "coordinator": job.coordinator,
        "masked": masked,
        "adversary": "honest but curious; the coordinator alone, or one owner alone",
        "model_is_private": _is_private(meta),
        "privacy": meta.get("privacy"),
        "edges": job.quantiles if job.dp is None else "public grid",
        "edges_privacy": meta.get("edges_privacy"),
        "rounds": meta.get("rounds"),
        "stamp": _stamp(job, meta, masked=masked),
    }
    return Statement("\n".join(sentences), facts)


def _not_covered(job: Job) -> list[str]:
    items = ["a party that lies"]
    if job.dp is None:
        items += [
            "owners who work together with the coordinator (all but one of them together learn the last one's sums)",
            "what owners tell in the clear (column names, types, levels, classes or label range)",
        ]
    else:
        items.append("the public schema, if it was made from the data")
    return [*items, "the choice of parameters", "who took part"]


def _stamp(job: Job, meta: Mapping[str, Any], *, masked: bool) -> str | None:
    if job.dp is not None:
        return None if _is_private(meta) else "NOT PRIVATE"
    return None if masked else "NO MASKING"


def _is_private(meta: Mapping[str, Any]) -> bool:
    spent = meta.get("privacy")
    return spent is not None and math.isfinite(spent["epsilon"])


def _about_sums(job: Job, left: int, *, masked: bool) -> str:
    if job.dp is not None:
        text = "The coordinator learned sums over all owners, each with the owners' noise inside."
        if len(job.masked_owners) > 1:
            return text
        return f"{text} There was only one other owner, whose noisy parts it saw without masks."
    if not masked:
        return (
            f"NO MASKING: with {left} owners the sums hide nobody, since whoever knows the sum and one "
            "owner's part knows the other's. The job was run with accept_no_masking=True."
        )
    who, whose = "The coordinator", "all owners"
    if job.coordinator in job.owners:
        who, whose = f"{job.coordinator}, which coordinated,", "all other owners"
    return (
        f"{who} learned sums over {whose}, per node, feature and bin, and nothing of a single owner's part. Sums are "
        "not anonymous: where one row is alone in a cell, they show its gradient and so its label."
    )


def _about_losses(lost: Mapping[str, int]) -> str:
    names = ", ".join(lost)
    return (
        f"After {names} had gone, training went on without: from sums before and after, the coordinator can tell about "
        "how many of the lost rows lie in each bin (with the squared loss exactly). min_owners=<all> stops instead."
    )


def _about_edges(job: Job, meta: Mapping[str, Any]) -> str:
    if job.dp is not None:
        return "Bins come from a public grid and from released, noisy counts."
    if job.quantiles == "search":
        return (
            "The edges of the bins were found by exact counts over all owners' rows, which the coordinator knows now."
        )
    if job.quantiles == "given":
        return "The edges of the bins were given and say nothing about the data."
    spent = meta["edges_privacy"]
    return (
        "The edges of the bins come from one noisy histogram per column over public bounds: "
        f"({spent['epsilon']:.4g}, {spent['delta']:.3g})-differentially private for adding or removing one row."
    )


def _about_model(job: Job, meta: Mapping[str, Any]) -> str:
    spent = meta.get("privacy")
    if spent is None or not _is_private(meta):
        return "The model is not differentially private: it may remember single rows, and every owner has it."
    return (
        f"The model, and every sum that the coordinator saw, is ({spent['epsilon']:.4g}, {spent['delta']:.3g})-"
        f"differentially private for adding or removing one row of any owner, as long as {job.assumed_honest} or "
        f"more of {len(job.owners)} owners added their noise."
    )
