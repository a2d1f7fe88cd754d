"""What a finished run of vertical.private_histograms guarantees, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hedgerow.privacy import wording
from hedgerow.privacy.accountants import Accountant, GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import mu_for, rho_for
from hedgerow.privacy.curves import gaussian_delta, zcdp_delta
from hedgerow.privacy.events import Gaussian
from hedgerow.protocols.bad_rows import stamp_of
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.private_histograms.job import GROWN, SMOOTH, WINNER, PrivateHistogramsJob
from hedgerow.statement import Registry, Statement

NOT_PRIVATE = "NOT PRIVATE: epsilon=inf, nothing has noise"
"""The stamp of a model without noise."""

NOT_COVERED = (
    "which rows there are: all parties know who is in the table",
    stating.REPEATED,
    stating.SEVERAL_ROWS,
    "exact scores of rows that were trained on, which tell more about them than the model does",
    *stating.NOT_COVERED,
)
_ROUNDED = 1.0 + 1e-8  # what `mu_for` and `rho_for` have kept back for samplers, and more


def stamp(job: PrivateHistogramsJob) -> str | None:
    """What must be written on everything that comes out of the run."""
    return stamp_of(None if job.is_noisy else NOT_PRIVATE, job.on_bad_rows)


def statement(job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder = job.label_holder
    privacy = meta.get("privacy")
    noise = "all with noise inside the shares" if privacy else "all without noise"
    told = "Counts of rows in public cells were told" if job.policy == SMOOTH else "Bins follow from counts of rows"
    counted = "with noise of their owner" if privacy else "without noise"
    replaced = replace_one_epsilon(job) if privacy else None
    guarantee = (
        *(_guarantees(job, privacy, replaced or 0.0) if privacy else [f"{NOT_PRIVATE}."]),
        (
            f"{holder} has the labels. It trained with {stating.together(job.feature_holders)}, on shares dealt by "
            f"{job.dealer}."
        ),
        f"Opened to all but {job.dealer}: {_revealed(job)}, sums of leaves, the number of positive rows, {noise}.",
        f"{told} {counted}.",
        *_closing(job),
    )
    facts = {
        **stating.cast(job),
        "dealer": job.dealer,
        "policy": job.policy,
        "reveal": job.reveal if job.policy == GROWN else None,
        "adversary": "honest but curious; any parties together, but not with the dealer",
        "model_is_private": privacy is not None,
        "privacy": privacy,
        "labels_towards_feature_holders": {**privacy, "neighbours": "another label of one row"} if privacy else None,
        "records_towards_label_holder": {**privacy, "neighbours": "one row counts for nothing"} if privacy else None,
        "epsilon_replace_one": replaced,
        "adjacency": "one row counts for nothing; the number of rows is known",
        "rounds": meta.get("rounds"),
        "stamp": stamp(job),
    }
    must_not = f"{job.dealer} draws the noise and knows it, so it must not get the model."
    assumed = stating.assumed_with(job.dealer, *([must_not] if privacy else []))
    of_data: tuple[str, ...] = (
        "Bounds, levels and classes in the schema are public: they were not made from these rows.",
    )
    if job.listed_classes is None:
        of_data += (f"{stating.CLASSES_FOUND} A schema with classes=[...] lists them instead.",)
    stated = Statement(
        job.NAME, guarantee, assumed, of_data, NOT_COVERED, facts, _registry(privacy, replaced), stamp(job)
    )
    return stating.about_misfits(stated, job.on_bad_rows, stating.MAPPED, stating.FIRST_CLASS, stating.OWN_NUMBER)


# --- numbers ---------------------------------------------------------------------------------------------------------


def _is_zcdp(job: PrivateHistogramsJob) -> bool:
    return job.policy == GROWN and job.reveal == WINNER


def curve(job: PrivateHistogramsJob) -> Callable[[float], float]:
    """Delta at each epsilon, of all that a job may release: that of the accountant its noise was made for."""
    if _is_zcdp(job):
        rho = rho_for(job.noise, job.delta) * _ROUNDED
        return lambda at: zcdp_delta(rho, at)
    mu = mu_for(job.noise, job.delta) * _ROUNDED
    return lambda at: gaussian_delta(mu, at)


def replace_one_epsilon(job: PrivateHistogramsJob) -> float:
    """For a row whose values are others: it counts for nothing first, and then again, so that all moves twice as far.

    mu of Gaussian DP doubles, rho of zCDP is four times as large; at the same delta.
    """
    accountant: Accountant
    if _is_zcdp(job):
        accountant, far = ZeroConcentratedDP(), math.sqrt(8.0 * rho_for(job.noise, job.delta))
    else:
        accountant, far = GaussianDP(), 2.0 * mu_for(job.noise, job.delta)
    accountant.compose(Gaussian(far * _ROUNDED, 1.0))
    return accountant.epsilon(job.delta)


def _registry(privacy: Mapping[str, Any] | None, replaced: float | None) -> Registry:
    unit = "one row counts for nothing, or has another label"
    if privacy is None:
        return Registry("none", {}, unit, "distributed", "none")
    loss = {"epsilon": privacy["epsilon"], "delta": privacy["delta"], "epsilon_replace_one": replaced}
    return Registry("approximate", loss, unit, "distributed", privacy["accountant"])


# --- words -----------------------------------------------------------------------------------------------------------


def _guarantees(job: PrivateHistogramsJob, privacy: Mapping[str, Any], replaced: float) -> list[str]:
    amount = wording.amount(job.noise, job.delta)
    return [
        (
            f"One row, columns and label: {amount}, towards {job.label_holder} and everybody who gets the model, but "
            f"not towards {job.dealer}, who knows the noise. That is for a row that is there or counts for nothing."
        ),
        *wording.what_is_proved(job.noise, job.delta, beyond=wording.chance_beyond(job.noise, curve(job))),
        (
            f"{job.label_holder} knows who is in the table. To guess a value of such a row is to tell a row from "
            f"another: for that it is epsilon = {wording.up(replaced)} at the same delta, and a guess is right in at "
            f"most {wording.best_guess(replaced, job.delta)} of 100 cases."
        ),
        (
            f"One label: {amount}, towards the feature holders, all of them together. Both follow from one "
            f"accountant that saw every release ({privacy['accountant']})."
        ),
    ]


def _revealed(job: PrivateHistogramsJob) -> str:
    if job.policy == SMOOTH:
        return "sums of gradients in bins of single columns"
    return "the winner of each level" if job.reveal == WINNER else "histograms of some columns at each level"


def _closing(job: PrivateHistogramsJob) -> list[str]:
    """Who may score."""
    if job.policy == SMOOTH:
        return [
            "Nobody learned the rows of a node while trees grew.",
            (
                f"The whole model follows from what was opened, and all parties but {job.dealer} may have it. Who "
                "scores rows by vertical.scoring learns which way they go."
            ),
        ]
    return ["Nobody learned the rows of a node.", "Scores are opened to the label holder by vertical.closed_scoring."]
