"""vertical.homomorphic, declared: sums under encryption, as SecureBoost has them; and what a run of it guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hedgerow.crypto import elgamal
from hedgerow.privacy.events import Composed, NonPrivate, Repeated, amount, factor, up
from hedgerow.protocols.made_up import made_up_schema
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.drawing import ColumnRules
from hedgerow.protocols.vertical.common.joint_forest import warmup as joint_warmup
from hedgerow.protocols.vertical.common.messages import Classes, GoAhead, Onward, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.feature_holder import feature_holder
from hedgerow.protocols.vertical.homomorphic.job import BITS, ELGAMAL, OU, SCHEMES, HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.label_holder import label_holder
from hedgerow.protocols.vertical.homomorphic.noisy_sums import SumNoise
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol, Rehearsal
from hedgerow.statement import Statement

WAYS = "on which side of a split that was asked about a value lies; labels, as far as rows of nodes show them"
STAY = "Values, edges and names of columns stay with their owner."
PUBLIC = "Values of columns stay with their owner. Names and bins of columns are public, by the schema."
REPEATED = "repeated trainings: epsilons of several runs on the same rows add up, and no budget counts them"
KNOWS = "It knows each gradient, so sums over few rows show which rows they are. "
ANOTHER_ORDER = (
    "Columns come in another order with every tree, and can be linked by their numbers of bins and by their sums."
)
IN_ORDER = "Columns come in their own order, because draws or constraints go by it."
FEWEST = (
    "No sum that it got, or can find by subtraction, is over all rows of a node with fewer rows. A bin may have fewer, "
    "and sums of many trees tell more: that is a rule for single sums, and no bound."
)
NOT_COVERED = (
    "values of columns, towards the label holder; labels, as far as rows of nodes show them",
    "how long parties take: openings take longer for larger sums, and sums for rarer codes",
    "what the model remembers, and what predictions give away later",
    "quantum computers",
    *stating.NOT_COVERED,
)

OF_OU = (
    "what is said against Okamoto-Uchiyama: a modulus p^2 q may be weaker than others of its length, and a feature "
    "holder that sent plaintexts above p and was told what they open to could factor it; here nobody is told"
)


def statement(job: HomomorphicJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others, scheme = job.label_holder, job.others, SCHEMES[job.scheme]
    bits, strength = job.modulus_bits, BITS[job.modulus_bits]
    rated = f", a curve of about {strength} bits"
    if bits is not None:
        rated = f" with a modulus of {bits} bits, a length that is rated at about {strength} bits"
    classes = ", how many classes the labels have" if job.task == "classification" else ""
    fewest = job.boosting.min_rows_per_sum
    guarantee = (
        (
            f"Gradients and hessians left {holder} encrypted only, in every tree. {others} cannot read them: "
            f"{scheme.name}{rated}, if {scheme.assumption}."
        ),
        (
            f"{others} learned which rows are in each node, whether it splits and by which of their own columns, from "
            f"which labels can be guessed{classes}, and no gradient, weight, sum, gain or leaf value."
        ),
        (
            f"{holder} learned the {'noisy' if job.has_noise else 'exact'} sums of gradients and hessians of every bin "
            f"of every column in every node{f' of {fewest} rows or more' if fewest > 1 else ''}. "
            f"{'' if job.has_noise else KNOWS}{IN_ORDER if ColumnRules.matter(job.boosting) else ANOTHER_ORDER}"
        ),
        f"{holder} learned whose each split is, and which rows go which way.",
        STAY if job.schema is None else PUBLIC,
        f"{holder} has the labels. It trained with {others}. The model is not differentially private.",
    )
    counted = f"{holder} learned how many rows each of these sums is over, for min_samples_leaf."
    marked = f"{others} learned which rows {holder} watches, because numbers of rows decide something."
    more = (
        *((counted,) if job.boosting.min_samples_leaf > 1 else ()),
        *stating.watching(job),
        *((marked,) if job.counts_rows and job.boosting.early_stopping_rounds is not None else ()),
    )
    told = (*guarantee[:3], *([FEWEST] if fewest > 1 else []), *_about_noise(job), *more, *guarantee[3:])
    facts = {
        **job.facts,
        "adversary": "honest but curious parties; feature holders may work together",
        "model_is_private": False,
        "privacy": None,
        "min_rows_per_sum": fewest,
        "columns_towards_label_holder": meta.get("noise", _as_planned(job)) if job.has_noise else None,
        "rounds": meta.get("rounds"),
        "stamp": None,
    }
    weaknesses = (OF_OU,) if job.scheme == OU else ()
    if not job.has_noise:
        return Statement(job.NAME, told, stating.ASSUMED, (), (*weaknesses, *NOT_COVERED), facts)
    bounds = (
        "The noise is for gradients within public bounds, which follow from the loss, the range of labels and the "
        f"number of rows. {holder} encrypts such gradients: what it encrypts, nobody else can check."
    )
    of_data = "Bounds and levels in the schema are public: they were not made from these rows."
    not_covered = (WAYS, *weaknesses, *NOT_COVERED[1:], REPEATED, stating.SEVERAL_ROWS)
    return Statement(job.NAME, told, (*stating.ASSUMED, bounds), (of_data,), not_covered, facts)


def _as_planned(job: HomomorphicJob) -> dict[str, Any]:
    epsilon, delta = job.budget
    return {party: {"epsilon": epsilon, "delta": delta} for party in job.feature_holders}


def _about_noise(job: HomomorphicJob) -> list[str]:
    """What dp=(epsilon, delta) is worth, and what it is not."""
    if not job.has_noise:
        return []
    holder, (epsilon, delta) = job.label_holder, job.budget
    return [
        (
            "Which way rows go was told exactly wherever a split of a feature holder won. On which side of such a "
            "split a value lies is NOT covered, so this is not differential privacy of columns."
        ),
        (
            "Covered is which of several values a row has that no split tells apart: "
            f"{amount(epsilon, delta)}, for a feature holder's part of one row, towards {holder} and whoever works "
            "together with it."
        ),
        (
            f"Of any two such values: the chance that no split that is asked about tells them apart and that what "
            f"{holder} sees answers some question with yes is at most {factor(epsilon)} times as large with one as "
            f"with the other, plus {up(delta)}."
        ),
        "Each feature holder added noise of its own, inside the ciphertext, to every sum that it sent.",
    ]


def planned(job: HomomorphicJob, party: str, data: PartyData) -> Planned | None:
    """What a run may cost: labels and which way rows go are told without noise, so no budget can pay for them."""
    if party == job.label_holder or not job.has_noise:
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    noise = SumNoise.plan(job, job.public_loss(), data.table.n_rows, len(data.table.columns))
    exact = NonPrivate(f"{job.NAME} tells exactly which way rows go, whatever noise sums have")
    return None if noise is None else Planned(Composed((Repeated(noise.event, noise.releases), exact)), job.budget[1])


def warmup(job: HomomorphicJob) -> Rehearsal:
    """The same job on made-up rows, with a schema of theirs and some noise where it has any; all keys share kernels."""
    if job.scheme == ELGAMAL:
        elgamal.get_compiled()
    schema = None if job.schema is None else made_up_schema(job.task)
    return joint_warmup(replace(job, schema=schema, dp=(1.0, 1e-6) if job.has_noise else None, key_bits=None))


SPEC = Protocol(
    HomomorphicJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, Classes, messages.CountedRows, messages.PublicKey, messages.RowPoints),
        *(messages.ColumnOrder, messages.TreeKeys, messages.EncryptedRows, messages.NodeTotals),
        *(messages.EncryptedSums, messages.BinCounts, messages.NoisySums, Onward),
        *(messages.Winners, messages.YourSplits, messages.WhichWay, messages.Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    takes_weights=lambda options: options.get("dp") is None,  # how far one row moves a sum would follow from its weight
    maps_rows=lambda options, has_labels: options.get("schema") is not None and not has_labels,
    planned=planned,
    on_ray={
        LABEL_HOLDER: "it encrypts every row for every tree, beside which sums over its own columns are nothing",
        FEATURE_HOLDER: "it adds ciphertexts of all rows, new ones for every tree, which actors would have to be sent",
    },
    drawn=lambda job: "noise" if job.has_noise else None,  # keys and orders of columns are gone once sums are opened
)
