"""What a finished run of vertical.noised_gradients guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.protocol import Statement
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, MESSAGE, RUN, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import stamp

FEATURES = (
    "Columns are not protected: of every split that won, all parties know which rows of the node go which way, and the "
    "label holder knows whose it is, and the best gain of each feature holder in each node. Values, edges and names of "
    "columns stay with their owner."
)
NOT_COVERED = (
    "All parties were taken to follow the protocol, and to be curious. Not covered: a party that lies, what "
    "predictions give away later, the number of rows, the choice of parameters, who took part."
)


def statement(job: NoisedGradientsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    n_holders = len(job.feature_holders)
    privacy = meta.get("privacy")
    scores = "gradients alone (every hessian counts as 1)" if job.score == FIRST_ORDER else "gradients and hessians"
    holders = f"{n_holders} feature holder{'s' if n_holders > 1 else ''}"
    sentences = [
        f"Trained with {job.NAME} by a label holder and {holders}; splits and leaves by {scores}.",
        _about_labels(job, privacy),
        FEATURES,
        NOT_COVERED,
    ]
    facts = {
        "protocol": job.NAME,
        "label_holder": job.label_holder,
        "feature_holders": list(job.feature_holders),
        "adversary": "honest but curious feature holders, all of them together",
        "model_is_private": _holds(job) and privacy is not None,
        "privacy": privacy,
        "per": job.per,
        "rounds": meta.get("rounds"),
        "stamp": stamp(job),
    }
    return Statement("\n".join(sentences), facts)


def _holds(job: NoisedGradientsJob) -> bool:
    return job.has_noise and job.per != MESSAGE


def _about_labels(job: NoisedGradientsJob, privacy: Mapping[str, Any] | None) -> str:
    if not job.has_noise:
        return "NOT PRIVATE: gradients were sent as they are, and show every label to every feature holder."
    if privacy is None:
        epsilon, delta = job.budget
        return f"The run was to cost ({epsilon:.4g}, {delta:.3g}); what it did cost is in the model's meta."
    if job.per == MESSAGE:
        return _per_message(job, privacy)
    what = "once, for all trees" if job.per == RUN else f"{privacy['releases']} times, once per tree, with fresh noise"
    return (
        f"Labels are ({privacy['epsilon']:.4g}, {privacy['delta']:.3g})-differentially private towards the feature "
        f"holders, all of them together: for one label changed, and for everything that they saw. Noisy gradients were "
        f"sent {what}; trees, leaf values, scores and hessians follow from these and from the columns. By the "
        f"{privacy['accountant']} accountant, mu = {privacy['mu']:.4g}. Whoever gets the whole model learns no more "
        "about a label."
    )


def _per_message(job: NoisedGradientsJob, privacy: Mapping[str, Any]) -> str:
    epsilon, delta = job.budget
    composed = privacy["composed_if_leaves_were_noisy"]
    total = "an epsilon above 600" if composed is None else f"epsilon = {composed:.4g}"
    return (
        f"PER MESSAGE: each message of noisy gradients is ({epsilon:.4g}, {delta:.3g})-differentially private for one "
        f"label changed, taken by itself and with all scores given, which is how the papers count. "
        f"{privacy['releases']:,} such messages were sent. By Gaussian DP they would compose to {total} at delta = "
        f"{delta:.3g} if leaf values were made from what was released. They are not: leaves are exact, later gradients "
        "depend on them, and one label moves the gradients of many rows. So NO total guarantee is claimed."
    )
