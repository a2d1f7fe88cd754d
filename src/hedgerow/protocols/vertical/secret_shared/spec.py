"""vertical.secret_shared, declared, and what a run of it guarantees: nothing is opened but the winner of each node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hedgerow.protocols.shares.messages import ON_SHARES
from hedgerow.protocols.shares.playing import NOT_ON_RAY, dealing, result, small
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import OF_THE_PAPER, SecretSharedJob, variant
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol, not_yet
from hedgerow.statement import Statement

NOT_COVERED = (
    "the model itself, and what predictions give away later",
    "numbers of bins, and which columns have gaps",
    "repeated trainings: each one tells the label holder more about rows of nodes",
)

UNLIKE_THE_ENGINE = (
    "The trees are those of one table with all columns, with min_child_weight=0, which cannot be checked on shares, "
    "and with missing_unseen='right'."
)


def statement(job: SecretSharedJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts, from the job and from what the model says about its training."""
    holder, others = job.label_holder, job.others
    guarantee = (
        f"{holder} has the labels. It trained with {others}, on shares dealt by {job.dealer}.",
        "There is no epsilon: the model is not differentially private, and may remember rows and labels.",
        "Opened to all was, of each node, whose split won or that it is a leaf.",
        (
            f"{holder} also learned which way the winning splits send the rows of their nodes. So it knows the rows of "
            "every node."
        ),
        "Labels, gradients, sums, gains and values of columns were opened to nobody.",
        "Each party has its own part of the model.",
        UNLIKE_THE_ENGINE,
    )
    facts = {
        **job.facts,
        "dealer": job.dealer,
        "disclosure": job.disclosure,
        "adversary": "honest but curious; any parties together, but not with the dealer",
        "model_is_private": False,
        "privacy": None,
        "gradient_bits": meta.get("gradient_bits"),
        "rounds": meta.get("rounds"),
        "stamp": None,
    }
    assumed = stating.assumed_with(job.dealer, stating.TOGETHER)
    return Statement(job.NAME, guarantee, assumed, (), (*NOT_COVERED, *stating.NOT_COVERED), facts)


SPEC = Protocol(
    SecretSharedJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder, DEALER: dealing(dealer)},
    messages=(ReadyToTrain, GoAhead, *ON_SHARES, *messages.ALL),
    statement=statement,
    warmup=partial(small, levels=True),
    result=result,
    variant=variant,
    of_variants=OF_THE_PAPER,
    on_ray=NOT_ON_RAY,
    drawn=lambda _job: None,  # masks and shares are gone once words are opened
    lacks=not_yet(
        "early_stopping class_weight quantile many_levels colsample_bylevel interaction_cst "
        "warm_start sample_weight classes levels subsample colsample_bytree max_features "
        "monotonic_cst max_leaf_nodes min_child_weight min_samples_leaf"
    ),
)
