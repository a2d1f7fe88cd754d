"""The messages of vertical.closed_scoring alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from hedgerow.ledger import Disclosure, Exact, Public
from hedgerow.protocols.shares.messages import Revealed, Words
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Int32s, Int64s, Message
from hedgerow.transport.ranges import Free, Index, Shape, Within

MOST_LEAVES = 1 << 24
"""Of all trees: the dealer, who knows none of them, deals for as many leaves as it is told of."""


@dataclass(frozen=True, slots=True)
class Shared(Disclosure):
    """One message alone is uniformly random; the receiver learns what all parties' shares make, its own among them."""

    PROTECTION: ClassVar[str] = "only the sum of all parties' shares"


@dataclass(frozen=True, slots=True)
class ReadyToScore(messages.Ready, Message, name="vertical.closed_scoring.ready_to_score", version=1):
    """Feature holder to label holder: my rows are read, my part of the model is loaded."""

    shapes: Annotated[bytes, Shape(Free("shapes_bytes", 0, 32))]  # of a part with trees: a fingerprint of their shapes


@dataclass(frozen=True, slots=True)
class ScoresWanted(Message, name="vertical.closed_scoring.scores_wanted", version=1):
    """Label holder to feature holders and dealer: everything fits together, so much is to be chosen."""

    discloses = Exact("how many rows are scored, and how many leaves the trees have")
    n_rows: Annotated[int, Within("least_rows", "most_rows")]
    block_rows: Annotated[int, Within(1, "n_rows")]
    # Of all trees, by output.
    n_leaves: Annotated[Int64s, Shape(Free("n_outputs", 1, messages.MOST_OUTPUTS)), Within(0, MOST_LEAVES)]


@dataclass(frozen=True, slots=True)
class QuestionsInTrees(Message, name="vertical.closed_scoring.questions_in_trees", version=1):
    """Label holder to feature holder: where your questions stand in the trees, if your part does not say so."""

    discloses = Exact("the shapes of all trees, and which of the feature holder's splits stand where in them")
    n_nodes: Annotated[Int32s, Shape(Free("n_trees")), Within(1, 2 * MOST_LEAVES)]
    # Of the nodes of all trees; -1: a leaf, -2: a split of another party.
    handles: Annotated[Int32s, Shape(Free("n_nodes_of_all")), Index("n_handles", lowest=-2)]


@dataclass(frozen=True, slots=True)
class ScoreShare(Revealed, name="vertical.closed_scoring.score_share", version=1):
    """Feature holder to label holder: my share of the score of each row of a block."""

    discloses = Shared("the raw score of each row")
    words: Words  # uint64 [rows, outputs]


@dataclass(frozen=True, slots=True)
class BlockDone(Message, name="vertical.closed_scoring.block_done", version=1):
    """Label holder to dealer: one more block of rows is over."""

    discloses = Public("how far the scoring is")


ALL = (ReadyToScore, ScoresWanted, QuestionsInTrees, ScoreShare, BlockDone)
