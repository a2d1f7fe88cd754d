"""vertical.secret_shared, declared, and what a run of it guarantees: nothing is opened but the winner of each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from hedgerow.protocols.shares.messages import ON_SHARES
from hedgerow.protocols.shares.playing import NOT_ON_RAY, dealing, result, small
from hedgerow.protocols.vertical.common import stating
from hedgerow.protocols.vertical.common.messages import GoAhead, Onward, ReadyToTrain
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import OF_THE_PAPER, SecretSharedJob, variant
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.protocols.vertical.secret_shared.shape import tells_columns
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol
from hedgerow.statement import Statement

NOT_COVERED = (
    "the model itself, and what predictions give away later",
    "numbers of bins or levels, and which columns have gaps",
    "repeated trainings: each one tells the label holder more about rows of nodes",
)

LACKS = {
    "monotonic_cst": (
        "below a constrained split leaf values are held within bounds that are quotients of sums of labels, which "
        "nobody may know of a foreign split that has not won, and shares cannot be divided as the engine rounds"
    ),
}
"""Features that it does not offer -> why not."""

UNLIKE_THE_ENGINE = (
    "The trees are those of one table with all columns, with missing_unseen='right', and with one_hot_levels for those "
    "columns of feature holders that have levels."
)


def _of_features(job: SecretSharedJob, meta: Mapping[str, Any]) -> Iterator[str]:
    """What else is learned because of what the job asks for, or of what rows and labels are."""
    holder, trees = job.label_holder, job.boosting
    if job.task == "classification":
        yield "Everybody learned how many classes there are."
    if meta.get("weighted"):
        yield "Everybody learned bounds of the sum and of the mean of the weights of rows, which are powers of two."
    if job.stops_early:
        yield (
            f"After each iteration {holder} said whether it goes on, and in the end how many iterations are kept; of "
            "the rows that it watches nothing else was told."
        )
    if trees.max_leaves is not None:
        yield (
            f"Where not all nodes of a level had room for a split, {holder} said which ones gain most, and learned "
            "which way the splits of the others would have sent their rows."
        )
    if tells_columns(job):
        yield "Everybody learned how many columns each party has, because columns are drawn or kept apart by number."
    if trees.interaction is not None:
        yield "Everybody learned of each split which of the public groups of columns hold its column."


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
        *_of_features(job, meta),
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
    messages=(ReadyToTrain, GoAhead, Onward, *ON_SHARES, *messages.ALL),
    statement=statement,
    warmup=partial(small, levels=True),
    result=result,
    variant=variant,
    of_variants=OF_THE_PAPER,
    on_ray=NOT_ON_RAY,
    defaults={"min_child_weight": 0.0},  # what takes more rounds is done if somebody asks for it
    takes_weights=lambda _options: True,
    drawn=lambda _job: None,  # masks and shares are gone once words are opened
    lacks=LACKS,
)
