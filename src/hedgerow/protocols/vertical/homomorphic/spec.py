"""vertical.homomorphic, declared: sums under encryption, as SecureBoost has them; and what a run of it guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.joint_forest import warmup
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.feature_holder import feature_holder
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.label_holder import label_holder
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol
from hedgerow.statement import Statement

NOT_COVERED = (
    "values of columns, towards the label holder; labels, as far as rows of nodes show them",
    "how long parties take: openings take longer for larger sums, and sums for rarer codes",
    "what the model remembers, and what predictions give away later",
    "quantum computers",
    *stating.NOT_COVERED,
)


def statement(job: HomomorphicJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others = job.label_holder, job.others
    guarantee = (
        (
            f"Gradients and hessians left {holder} encrypted only, in every tree. {others} cannot read them: elliptic "
            "curve ElGamal on edwards25519, about 126 bits, if decisional Diffie-Hellman is hard."
        ),
        (
            f"{others} learned which rows are in each node, from which labels can be guessed, and no gradient, sum, "
            "gain or leaf value."
        ),
        (
            f"{holder} learned the exact sums of gradients and hessians of every bin of every column in every node. It "
            "knows each gradient, so sums over few rows show which rows they are. Columns come in another order with "
            "every tree, and can be linked by their numbers of bins and by their sums."
        ),
        f"{holder} learned whose each split is, and which rows go which way.",
        "Values, edges and names of columns stay with their owner.",
        f"{holder} has the labels. It trained with {others}. The model is not differentially private.",
    )
    facts = {
        **job.facts,
        "adversary": "honest but curious parties; feature holders may work together",
        "model_is_private": False,
        "privacy": None,
        "rounds": meta.get("rounds"),
        "stamp": None,
    }
    return Statement(job.NAME, guarantee, stating.ASSUMED, (), NOT_COVERED, facts)


SPEC = Protocol(
    HomomorphicJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, messages.RowPoints, messages.ColumnOrder, messages.TreeKeys, messages.EncryptedRows),
        *(messages.NodeTotals, messages.EncryptedSums),
        *(messages.Winners, messages.YourSplits, messages.WhichWay, messages.Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    drawn=lambda _job: None,  # keys, random points and orders of columns are gone once sums are opened
)
