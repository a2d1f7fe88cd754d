"""horizontal.secure_sum, declared: FederBoost for rows that are split between owners.

What its statement says: what a finished run guarantees, what that rests on, and what it does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.curves import gaussian_delta
from hedgerow.privacy.events import Gaussian, NonPrivate, amount, chance_beyond, what_is_proved
from hedgerow.protocols.bad_rows import MISFITS_FACT, RAISED
from hedgerow.protocols.central.gaussian.training import MISFITS_SHARE
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.coordinator import coordinator
from hedgerow.protocols.horizontal.secure_sum.job import BALANCED, FEWEST_MASKED_OWNERS, NAME, NO_QUANTILES, Job
from hedgerow.protocols.horizontal.secure_sum.owner import data_owner
from hedgerow.protocols.horizontal.secure_sum.private import private_coordinator, private_owner
from hedgerow.protocols.made_up import made_up_rows, made_up_schema
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import (
    COORDINATOR,
    OWNER,
    ROWS,
    PartyData,
    Planned,
    Protocol,
    Rehearsal,
    as_planned,
)
from hedgerow.statement import Registry, Statement

UNIT = "adding or removing one row of one owner"
_SLACK = 1.0 + 1e-6
"""On mu where fewer owners' noise counts: what discrete noise costs beyond real noise grows a little with it."""


_LATE_MESSAGES = {
    "all": "Every sum carries masks of its owners' own: a late message of an owner that was given up opens nothing.",
    "first": "The first sum of every tree carries masks of its owners' own. It is the only sum that is asked for again "
    "after an owner was given up as silent; a late message of that owner cannot be set against the others' new sum. At "
    "deeper levels a late message completes at most the sum over all owners that was asked for.",
    "not needed": "A run ends when an owner is given up as silent, and no sum is asked for again. A late message of "
    "that owner completes at most the sum over all owners that was asked for.",
    "none": "If an owner was given up as silent and its message came late, a coordinator that kept both can compute "
    "that owner's part of a sum: there were no masks of the owners' own (double_masking).",
}


def coordinate(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """The coordinator's role, with noise in the sums or without."""
    return (coordinator if job.dp is None else private_coordinator)(me, job, data)


def own(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """An owner's role, with noise in its sums or without."""
    if data is None:
        raise InvalidInput(f"{me.name}: an owner needs rows and labels")
    return (data_owner if job.dp is None else private_owner)(me, data, job)


def planned(job: Job, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """With dp all that is released together has Gaussian noise for it; without, sums are exact."""
    if job.dp is None:
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    if job.on_bad_rows == "raise":
        return Planned(NonPrivate(RAISED))
    epsilon, delta = job.dp
    return Planned(Gaussian(mu_for(epsilon, delta), 1.0), delta)


def warmup(job: Job) -> Rehearsal:
    """The same job with two trees, on a few made-up rows of three owners."""
    classes = job.classes or (None if job.schema is None else job.schema.classes) or (0, 1)
    changes: dict[str, Any] = {}
    if job.schema is not None:
        changes["schema"] = made_up_schema(job.task, classes)
    small = replace(
        job,
        owners=("a", "b", "c"),
        coordinator=COORDINATOR,
        boosting=replace(
            job.boosting,
            n_iterations=job.boosting.n_iterations if job.dp else 2,
            monotone=None,
            interaction=None,
            eval_metric=None,
        ),
        edges=None,
        quantiles="search" if job.quantiles == "given" else job.quantiles,
        dp=None if job.dp is None else (1.0, 1e-5),
        min_owners=None,
        honest_owners=None,
        class_weight=BALANCED if job.weighs_classes else None,
        scale_pos_weight=None,
        **changes,
    )
    watched = np.arange(40) < 10 if job.stops_early else None
    return small, lambda: {
        name: replace(made_up_rows(small, n_rows=40, seed=seed, classes=classes), validation=watched)
        for seed, name in enumerate(small.owners)
    }


# --- the statement ---------------------------------------------------------------------------------------------------


def statement(job: Job, meta: Mapping[str, Any]) -> Statement:
    """From the job and from what the model says about its training."""
    lost = dict(meta.get("lost_owners", {}))
    left = len(job.owners) - len(lost)
    masked = len(job.masked_owners) - len(lost) >= 2 and left >= FEWEST_MASKED_OWNERS
    stamp = None if masked else "NO MASKING"
    if job.dp is not None:
        stamp = None if _is_private(job, meta) else "NOT PRIVATE"
    one_fewer, registry = math.inf, None
    if _is_private(job, meta):
        spent, honest = meta["privacy"], job.assumed_honest
        one_fewer = _epsilon_with_fewer(spent["epsilon"], spent["delta"], honest)
        loss = {"epsilon": spent["epsilon"], "delta": spent["delta"], "owners_who_keep_noise_secret": honest}
        registry = Registry("approximate", loss, UNIT, "distributed", str(spent.get("accountant")))
    facts = {
        "owners": list(job.owners),
        "lost_owners": lost,
        "coordinator": job.coordinator,
        "masked": masked,
        "own_masks": _own_masks(job),
        "adversary": "honest but curious; the coordinator alone, or one owner alone",
        "model_is_private": _is_private(job, meta),
        "privacy": meta.get("privacy"),
        "one_owner_fewer": None if math.isinf(one_fewer) else one_fewer,
        "edges": job.quantiles if job.dp is None else "public grid",
        "edges_privacy": meta.get("edges_privacy"),
        "cover_is_shared": job.shares_cover,
        "label_range": "exact" if job.exact_label_range else "public",
        "rounds": meta.get("rounds"),
        "weighted": bool(meta.get("weighted")),
        "watched": "one exact sum per iteration" if job.stops_early else None,
        "stamp": stamp,
    }
    if job.dp is not None:
        facts |= {"on_bad_rows": job.on_bad_rows, MISFITS_FACT: meta.get("n_misfits_estimate")}
    return Statement(
        NAME,
        guarantee=tuple(_guarantee(job, meta, lost, masked=masked)),
        assumed_of_parties=tuple(_assumed_of_parties(job, meta)),
        assumed_of_data=tuple(_assumed_of_data(job)),
        not_covered=tuple(_not_covered(job, meta)),
        facts=facts,
        registry=registry,
        stamp=stamp,
        date=meta.get("date"),
    )


def _is_private(job: Job, meta: Mapping[str, Any]) -> bool:
    spent = meta.get("privacy")
    return spent is not None and math.isfinite(spent["epsilon"]) and job.on_bad_rows == "map"


# --- what is guaranteed ----------------------------------------------------------------------------------------------


def _guarantee(job: Job, meta: Mapping[str, Any], lost: Mapping[str, int], *, masked: bool) -> Iterator[str]:
    if _is_private(job, meta):
        yield from _about_privacy(job, meta["privacy"], "The model, and every sum that the coordinator saw")
    elif job.on_bad_rows == "raise":
        yield f"Nothing is guaranteed: {RAISED}. This is for rows that are public."
    else:
        yield "The model is not differentially private: it may remember single rows, and every party has it."
    yield from _about_sums(job, len(job.owners) - len(lost), masked=masked)
    if meta.get("n_misfits_estimate") is not None:
        yield (
            "One of these sums is the number of all owners' rows that did not fit the schema, for "
            f"{MISFITS_SHARE:.1%} of the budget. With noise it is {meta['n_misfits_estimate']}."
        )
    yield from _about_edges(job, meta)
    yield _about_cover(job)
    if job.exact_label_range:
        yield (
            "No range of labels was declared: the coordinator learned each owner's smallest and largest label exactly, "
            "and every owner those of all together."
        )
    yield from _about_rows_that_count(job, meta)
    if lost:
        yield (
            f"{len(lost)} of {len(job.owners)} owners were lost on the way: {', '.join(lost)}. Training went on "
            "without them. From sums before and after, the coordinator can tell about how many of their rows lie in "
            "each bin (with the squared loss exactly)."
        )


def _about_rows_that_count(job: Job, meta: Mapping[str, Any]) -> Iterator[str]:
    if meta.get("weighted"):
        each = ", and that of each class" * (job.class_weight == BALANCED)
        yield f"Rows had weights: all parties learned the exact total weight of all owners' rows{each}."
    if job.stops_early:
        yield (
            "Training stopped early: the coordinator learned the total weight of the rows that were watched and, after "
            "every iteration, one number, the exact loss of all of them together. Its model says what they were "
            "(learning_curve)."
        )
        if meta.get("lost_owners"):
            yield (
                "Losses from before and after an owner was lost are of different rows: their difference tells about "
                "its rows, too."
            )
    if job.boosting.subsample < 1.0:
        yield (
            "Each tree was grown on a draw of rows. The draw is public, by the number of a row at its owner: it "
            "protects nobody."
        )


def _about_privacy(job: Job, spent: Mapping[str, Any], what: str) -> Iterator[str]:
    epsilon, delta = spent["epsilon"], spent["delta"]
    mu, honest, n_owners = mu_for(epsilon, delta), job.assumed_honest, len(job.owners)
    yield f"{what}, is differentially private for {UNIT}, with {amount(epsilon, delta)}."
    yield from what_is_proved(epsilon, delta, beyond=chance_beyond(epsilon, lambda t: gaussian_delta(mu, t)))
    yield (
        f"This holds as long as at least {honest} of {n_owners} owners drew their noise and keep it secret: from the "
        "coordinator, from other owners and from everybody who has the model. Noise that is told protects nobody."
    )
    remains = _epsilon_with_fewer(epsilon, delta, honest)
    if math.isinf(remains):
        yield "If no owner keeps its noise secret, nothing is guaranteed."
    else:
        yield f"If only {honest - 1} keep it secret, what remains is {amount(remains, delta)}."


def _epsilon_with_fewer(epsilon: float, delta: float, honest: int) -> float:
    """What is left of the guarantee if one owner fewer keeps its noise secret than it was made for."""
    if honest == 1:
        return math.inf
    accountant = GaussianDP()
    accountant.compose(Gaussian(mu_for(epsilon, delta) * math.sqrt(honest / (honest - 1)) * _SLACK, 1.0))
    return float(accountant.epsilon(delta))


def _about_sums(job: Job, left: int, *, masked: bool) -> Iterator[str]:
    who, whose = "The coordinator", "all owners"
    if job.coordinator in job.owners:
        who, whose = f"{job.coordinator}, which coordinated,", "all other owners"
    if job.dp is not None:
        yield f"{who} learned sums over {whose}, each with the owners' noise inside, and the model that follows."
        yield "Owners learned the model and the updates of scores on the way to it, which follow from noisy sums."
        if len(job.masked_owners) == 1:
            yield f"There was one owner beside {job.coordinator}: its noisy parts came without masks."
        return
    if not masked:
        yield (
            f"NO MASKING: with {left} owners the sums hide nobody, since whoever knows the sum and one owner's part "
            "knows the other's. The job was run with accept_no_masking=True."
        )
        return
    yield f"{who} learned sums over {whose}, per node, feature and bin, and nothing of a single owner's part."
    yield "Sums are not anonymous: where one row is alone in a cell, they show its gradient and so its label."
    yield _LATE_MESSAGES[_own_masks(job)]


def _own_masks(job: Job) -> str:
    if job.has_own_masks(is_first=False):
        return "all"
    if job.has_own_masks(is_first=True):
        return "first"
    return "not needed" if job.ends_with_a_loss else "none"


def _about_edges(job: Job, meta: Mapping[str, Any]) -> Iterator[str]:
    if job.dp is not None:
        yield "Bins come from a public grid and from noisy counts."
    elif job.quantiles == "search":
        yield "The edges of the bins were found by exact counts over all owners' rows, which the coordinator knows now."
    elif job.quantiles == "given":
        yield "The edges of the bins were given and say nothing about the data."
    else:
        yield "The edges of the bins come from one noisy histogram per column over public bounds."
        yield from _about_privacy(job, meta["edges_privacy"], "That histogram, apart from all else")


def _about_cover(job: Job) -> str:
    if job.dp is not None:
        return "Gains and covers in the model come from noisy sums."
    if job.share_cover:
        return (
            "The model has the exact gain and the exact sum of hessians (cover) of every node, as share_cover=True "
            "asked for: from these owners can compute how many rows of the others are in a leaf."
        )
    return (
        "The model, the coordinator's too, has no exact gains or covers of nodes, but stand-ins made from leaf values; "
        "importances and contributions of columns rest on those (share_cover=True has the exact ones). Leaf values "
        "and splits are exact, and the owners learned them tree by tree."
    )


# --- what it rests on ------------------------------------------------------------------------------------------------


def _assumed_of_parties(job: Job, meta: Mapping[str, Any]) -> Iterator[str]:
    yield "All parties followed the protocol. They may be curious: keep and study whatever they see."
    if _is_private(job, meta) or job.quantiles == "private":
        yield "Noise came from the secret randomness of each owner's own computer."
    if job.dp is None:
        yield (
            "The coordinator does not work together with owners: with all of them but one it learns the last one's "
            "part of every sum."
        )
    yield "Keys, and numbers before masking, stay in the memory of the party that they belong to."


def _assumed_of_data(job: Job) -> Iterator[str]:
    if job.dp is not None or job.quantiles == "private":
        yield "Bounds, levels and classes in the schema are public, and were not made from the rows."
        yield "No person has more than one row, at all owners together."
    if job.dp is not None and job.on_bad_rows == "map":
        yield (
            "Rows that do not fit the schema were trained on as what it allows, or left out if their label is missing "
            "or not a listed class. No message and no error depends on which they are."
        )
    if job.task == "regression" and not job.exact_label_range:
        yield "The declared range of the labels is public, and was not made from the rows."


def _not_covered(job: Job, meta: Mapping[str, Any]) -> Iterator[str]:
    yield "A party that lies, or changes its program."
    if _is_private(job, meta):
        yield "A person with several rows, or with rows at two owners: for them epsilon and delta are larger."
        yield "Repeated trainings on the same rows, also failed ones: their epsilons add up."
    else:
        yield "Repeated trainings on the same rows: what two models or two runs differ by tells more than either."
        yield "What owners tell in the clear: column names and types, levels, classes; the number of all rows."
    yield "That a party stopped with an error, when, and how long anything took."
    yield "Who took part, and the choice of parameters."


def expected(job: Job) -> dict[str, Any]:
    """What a run costs that comes to its end: the model, and edges that are private apart from it."""
    found = {"privacy": None if job.dp is None else as_planned(*job.dp)}
    if job.quantiles == "private":
        found["edges_privacy"] = as_planned(job.quantile_epsilon or math.inf, job.quantile_delta or 0.0)
    return found


SPEC = Protocol(
    Job,
    roles={COORDINATOR: coordinate, OWNER: own},
    messages=(
        *(messages.TableDescription, messages.EarlierModel, messages.Agreement),
        *(messages.OwnLabelRange, messages.CommonLabelRange),
        *(messages.MaskKey, messages.MaskKeys, messages.MaskedWeights, messages.CommonWeights),
        *(messages.MaskedTotals, messages.Probes, messages.MaskedCounts),
        *(messages.NoisyCells, messages.SumWanted, messages.NoisySum, messages.Start, messages.NextStep),
        *(messages.MaskedHistogram, messages.MaskedMetric, messages.SealedSeeds, messages.RelayedSeeds),
        *(messages.WhoSent, messages.Unmasking),
        *(messages.FinishedModel, messages.NodeStatistics),
    ),
    statement=statement,
    warmup=warmup,
    partition=ROWS,
    maps_rows=lambda options, _has_labels: options.get("dp") is not None,
    expected=expected,
    planned=planned,
    drawn=lambda job: "noise" if job.dp is not None or job.quantiles == "private" else None,
    takes_weights=lambda options: options.get("dp") is None,
    on_ray={COORDINATOR: None, OWNER: None},
    reads_files=True,
    part=Ensemble.from_dict,
    lacks={"quantile": NO_QUANTILES},
)
