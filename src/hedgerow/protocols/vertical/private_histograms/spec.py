"""vertical.private_histograms, declared, and what a finished run of it guarantees: private towards both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.calibrate import mu_for, rho_for
from hedgerow.privacy.events import Gaussian, NonPrivate, amount, best_guess, chance_beyond, up, what_is_proved
from hedgerow.protocols.bad_rows import about_misfits
from hedgerow.protocols.made_up import made_up_schema
from hedgerow.protocols.shares.messages import ON_SHARES, SHARED_ROWS
from hedgerow.protocols.shares.playing import NOT_ON_RAY, dealing, result, small
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.private_histograms import messages
from hedgerow.protocols.vertical.private_histograms.dealer import dealer
from hedgerow.protocols.vertical.private_histograms.holder import holder
from hedgerow.protocols.vertical.private_histograms.holding import fitted_table
from hedgerow.protocols.vertical.private_histograms.job import (
    DEFAULTS,
    GROWN,
    NOT_PRIVATE,
    SMOOTH,
    WINNER,
    PrivateHistogramsJob,
)
from hedgerow.protocols.vertical.private_histograms.plan import accountant_of, most_spent
from hedgerow.protocols.vertical.private_histograms.smooth.holder import holder as smooth_holder
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import (
    DEALER,
    FEATURE_HOLDER,
    LABEL_HOLDER,
    PartyData,
    Planned,
    Protocol,
    Rehearsal,
    always,
    as_planned,
    not_yet,
)
from hedgerow.statement import Registry, Statement

NOT_COVERED = (
    "which rows there are: all parties know who is in the table",
    stating.REPEATED,
    stating.SEVERAL_ROWS,
    "exact scores of rows that were trained on, which tell more about them than the model does",
    *stating.NOT_COVERED,
)
_ROUNDED = 1.0 + 1e-8  # what `mu_for` and `rho_for` have kept back for samplers, and more


def statement(job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder = job.label_holder
    privacy = meta.get("privacy")
    noise = "all with noise inside the shares" if privacy else "all without noise"
    told = "Counts of rows in public cells were told" if job.policy == SMOOTH else "Bins follow from counts of rows"
    counted = "with noise of their owner" if privacy else "without noise"
    # A row whose values are others counts for nothing first, and then again: all moves twice as far.
    replaced = spent(job, 2.0).epsilon(job.delta) if privacy else None
    guarantee = (
        *(_guarantees(job, privacy, replaced or 0.0) if privacy else [f"{NOT_PRIVATE}."]),
        (f"{holder} has the labels. It trained with {job.others}, on shares dealt by {job.dealer}."),
        f"Opened to all but {job.dealer}: {_revealed(job)}, sums of leaves, the number of positive rows, {noise}.",
        f"{told} {counted}.",
        *_closing(job),
        *_left_out(job, meta),
    )
    facts = {
        **job.facts,
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
        "stamp": job.stamp,
        **{name: meta[name] for name in ("trees_left_out", "last_step_left_out") if meta.get(name)},
    }
    must_not = f"{job.dealer} draws the noise and knows it, so it must not get the model."
    assumed = stating.assumed_with(job.dealer, *([must_not] if privacy else []))
    of_data: tuple[str, ...] = (
        "Bounds, levels and classes in the schema are public: they were not made from these rows.",
    )
    if job.listed_classes is None:
        of_data += (f"{stating.CLASSES_FOUND} A schema with classes=[...] lists them instead.",)
    stated = Statement(
        job.NAME, guarantee, assumed, of_data, NOT_COVERED, facts, _registry(privacy, replaced), job.stamp
    )
    return about_misfits(stated, job.on_bad_rows, stating.MAPPED, stating.FIRST_CLASS, stating.OWN_NUMBER)


# --- numbers ---------------------------------------------------------------------------------------------------------


def spent(job: PrivateHistogramsJob, times: float) -> Accountant:
    """The accountant that noise was made for, after all that a job may release, moved this many times as far.

    Twice: mu of Gaussian DP doubles, rho of zCDP is four times as large.
    """
    mu = math.sqrt(2.0 * rho_for(job.noise, job.delta)) if job.is_zcdp else mu_for(job.noise, job.delta)
    accountant = accountant_of(job)
    accountant.compose(Gaussian(times * mu * _ROUNDED, 1.0))
    return accountant


def _registry(privacy: Mapping[str, Any] | None, replaced: float | None) -> Registry:
    unit = "one row counts for nothing, or has another label"
    if privacy is None:
        return Registry("none", {}, unit, "distributed", "none")
    loss = {"epsilon": privacy["epsilon"], "delta": privacy["delta"], "epsilon_replace_one": replaced}
    return Registry("approximate", loss, unit, "distributed", privacy["accountant"])


# --- words -----------------------------------------------------------------------------------------------------------


def _guarantees(job: PrivateHistogramsJob, privacy: Mapping[str, Any], replaced: float) -> list[str]:
    both = amount(job.noise, job.delta)
    return [
        (
            f"One row, columns and label: {both}, towards {job.label_holder} and everybody who gets the model, but "
            f"not towards {job.dealer}, who knows the noise. That is for a row that is there or counts for nothing."
        ),
        *what_is_proved(job.noise, job.delta, beyond=chance_beyond(job.noise, spent(job, 1.0).delta)),
        (
            f"{job.label_holder} knows who is in the table. To guess a value of such a row is to tell a row from "
            f"another: for that it is epsilon = {up(replaced)} at the same delta, and a guess is right in at "
            f"most {best_guess(replaced, job.delta)} of 100 cases."
        ),
        (
            f"One label: {both}, towards the feature holders, all of them together. Both follow from one "
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


def _left_out(job: PrivateHistogramsJob, meta: Mapping[str, Any]) -> list[str]:
    """What attempts that broke off have cost the model."""
    n_trees, said = meta.get("trees_left_out"), []
    if n_trees:
        trees = "1 tree that was planned was" if n_trees == 1 else f"{n_trees} trees that were planned were"
        said = [f"{trees} left out: attempts that broke off had spent what that would have cost."]
    if meta.get("last_step_left_out"):
        said.append(
            f"So was the last step, which moves the base score of the model: epsilon = {job.noise:g} was spent."
        )
    return said


# --- the declaration -------------------------------------------------------------------------------------------------


def hold(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Any:
    """The role of a party with data, by the policy."""
    return (smooth_holder if job.policy == SMOOTH else holder)(me, job, *fitted_table(me, job, data))


def planned(job: PrivateHistogramsJob, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """All that is opened, as the accountant sees it that the noise was made for."""
    if not job.is_noisy or job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    if job.policy == SMOOTH:
        return Planned(Gaussian(mu_for(job.noise, job.delta), 1.0), job.delta)
    return Planned(most_spent(job, data.table.n_rows), job.delta)


def warmup(job: PrivateHistogramsJob) -> Rehearsal:
    """One tree, or the shortest series, on made-up rows."""
    return small(job, schema=made_up_schema(levels=False))


LACKS = {
    **not_yet(
        "class_weight many_levels colsample_bylevel interaction_cst squared sample_weight classes "
        "colsample_bytree max_features monotonic_cst"
    ),
    "early_stopping": "scores stay on shares while trees grow; a loss would be one more release, and what it costs "
    "would be noise in every tree",
    "poisson": "gradients of counts have no bound but the largest count that the schema allows, and noise made for "
    "that drowns those of usual counts",
    "quantile": "its hessian is 0, and steps are noisy sums of gradients divided by noisy sums of hessians",
    "subsample": "a draw of rows saves privacy only while nobody knows it, and a party that draws knows it",
    "max_leaf_nodes": "a row is in one node of a level, so all its nodes cost what one does; to choose which nodes are "
    "split would be one more paid choice for each, and save nothing",
    "min_child_weight": "how many rows a node has is known to nobody, and with noise only after it was split",
    "min_samples_leaf": "how many rows a node has is known to nobody, and with noise only after it was split",
    "warm_start": "the budget is shared out over all releases before the first one; more trees need a budget of their "
    "own, and both together buy a better model in one training",
}

SPEC = Protocol(
    PrivateHistogramsJob,
    roles={LABEL_HOLDER: hold, FEATURE_HOLDER: hold, DEALER: dealing(dealer)},
    messages=(ReadyToTrain, GoAhead, *ON_SHARES, *SHARED_ROWS, *messages.ALL),
    later=messages.LATER,
    statement=statement,
    warmup=warmup,
    result=result,
    defaults=DEFAULTS,
    maps_rows=always,
    expected=lambda job: {"privacy": as_planned(job.noise, job.delta)},
    planned=planned,
    on_ray=NOT_ON_RAY,
    drawn=lambda job: "noise" if job.is_noisy else "how words on shares are rounded",
    lacks=LACKS,
)
