"""Messages that vertical protocols share, and fields that messages of several of them are made of.

ReadyToTrain, GoAhead           the first messages of every training: do the tables fit together?
Classes                         of a training of several classes: how many trees are there in an iteration?
Onward                          of a training with early stopping: does it go on after this iteration?
LearningRows                    where feature holders have gradients: classes, weights, and rows that are watched
PlaceOfColumns, SplitColumns    where columns are drawn, or have constraints: which are the receiver's, and which split
Winners, WhichWay, Partition    the conversation about splits (`joint_forest`); each protocol gives them its names
Ready, Answers                  the same for services of a trained model
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from hedgerow.ledger import Disclosure, Exact, Public, Result
from hedgerow.transport.frames import Float64s, Int32s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Index, Shape, Within

MOST_COLUMNS = 1 << 20

Brought: TypeAlias = Annotated[int, Within(0, MOST)]
"""How much of something a party says it brings; that it fits is compared afterwards, for an error with advice."""
NRows: TypeAlias = Annotated[int, Within("n_rows", "n_rows")]


@dataclass(frozen=True, slots=True)
class ReadyToTrain(Message, name="vertical.ready_to_train", version=1):
    """Feature holder to label holder: my table is in order."""

    discloses = Exact("the feature holder's numbers of rows and columns")
    n_rows: Brought
    n_columns: Annotated[int, Within(1, MOST_COLUMNS)]


@dataclass(frozen=True, slots=True)
class GoAhead(Message, name="vertical.go_ahead", version=1):
    """Label holder to feature holder: all tables fit together."""

    discloses = Public("that all parties are ready")
    n_rows: NRows


MOST_CLASSES, MOST_TREES = 1 << 12, 1 << 30
MOST_GAIN = float(np.finfo(np.float32).max)
"""What trees can write down; larger gains are told as this one."""


@dataclass(frozen=True, slots=True)
class Classes(Message, name="vertical.classes", version=1):
    """Label holder to feature holder: how many classes there are. Two take one tree, more a tree each."""

    discloses = Exact("how many classes the labels have")
    n_classes: Annotated[int, Within(2, MOST_CLASSES)]


@dataclass(frozen=True, slots=True)
class Onward(Message, name="vertical.onward", version=1):
    """Label holder to feature holder or dealer: with early stopping, after each iteration, does training go on?"""

    discloses = Result(
        "whether the scores of the label holder's validation rows still improve, and which iterations are kept"
    )
    n_kept: Annotated[int, Within(0, "n_iterations")]  # 0: it goes on; else it ends, and the first ones are kept


@dataclass(frozen=True, slots=True)
class LearningRows(Message, name="vertical.learning_rows", version=1):
    """Label holder to feature holders: where these have gradients, how many outputs there are, and which rows count.

    A weight for each row, or none if all are 1; one bit for each row that is watched, or none without early stopping.
    """

    discloses = Exact("how many classes the labels have, the weights of rows, and which rows are watched")
    n_earlier: Annotated[int, Within(0, MOST_TREES)]  # trees of an earlier model that this one goes on from
    n_classes: Annotated[int, Within(2, MOST_CLASSES)]  # 2 for a regression too
    weight: Annotated[Float64s, Shape(Free("n_weights", 0, "n_rows")), Within(0.0, MOST_GAIN)]
    watched: Annotated[UInt8s, Shape("n_watched_bytes"), Anything()]


# --- rules by column -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceOfColumns(Message, name="vertical.place_of_columns", version=1):
    """Label holder to feature holder: where columns are drawn or have constraints, where its own stand among all."""

    discloses = Exact("how many columns all parties have together, and how many come before the receiver's")
    n_before: Annotated[int, Within(0, MOST_COLUMNS)]
    n_columns: Annotated[int, Within(2, MOST_COLUMNS)]


@dataclass(frozen=True, slots=True)
class SplitColumns(Message, name="vertical.split_columns", version=1):
    """Label holder or feature holder to each other: where columns have constraints, who splits by what.

    The number of the column of each node in question, among all columns of the job, and -1 for a leaf.
    """

    discloses = Exact("by which column, of whichever party, each node is split")
    columns: Annotated[Int32s, Shape("n_nodes"), Within("first", "last")]


# --- the conversation about splits -----------------------------------------------------------------------------------


LEAF, OTHERS, YOURS = 0, 1, 2
"""What becomes of a node."""

Gains: TypeAlias = Annotated[Float64s, Shape("n_nodes"), Within(-1.0, MOST_GAIN)]
"""-1 where no split is allowed."""
Sides: TypeAlias = Annotated[UInt8s, Shape("n_bytes"), Anything()]
"""One bit per row of the table, 1 for right."""


def bytes_for(n_rows: int) -> int:
    """Length of `Sides`."""
    return -(-n_rows // 8)


@dataclass(frozen=True, slots=True)
class Winners:
    """Label holder to feature holder: what becomes of each node. Whose it is otherwise is not said."""

    discloses = Result("which nodes split, and which of them by the receiver's columns")
    roles: Annotated[UInt8s, Shape("n_nodes"), Within(LEAF, YOURS)]


@dataclass(frozen=True, slots=True)
class WhichWay:
    """Feature holder to label holder: the rows of nodes that I won, and a number for each question.

    A new question has the next number, and one that was asked before its earlier number.
    """

    discloses = Exact("which rows of a node the feature holder's split sends right, and whether it was asked before")
    handles: Annotated[Int32s, Shape("n_won"), Index("most_handles")]  # of each node that was won
    sides: Sides  # 0 in other nodes


@dataclass(frozen=True, slots=True)
class Partition:
    """Label holder to feature holder: the sides of all rows of this level. Left out where it won all of them."""

    discloses = Exact("which rows of each node go right, whoever's column decided")
    sides: Sides


# --- services of a trained model -------------------------------------------------------------------------------------


MOST_OUTPUTS = MOST_CLASSES
"""Scores of a row: as many as there are classes, if there are more than two."""

RunId: TypeAlias = Annotated[str, Shape(Free("letters", 0, 1000))]
BatchRows: TypeAlias = Annotated[int, Within(1, "most_batch_rows")]
FirstRow: TypeAlias = Annotated[int, Within("start", "start")]


@dataclass(frozen=True, slots=True)
class Ready:
    """Feature holder to label holder: my part of the model is loaded, and my rows are read if any are needed."""

    discloses = Exact("the feature holder's number of rows, and which model its part is of")
    n_rows: Brought  # 0 where none are needed
    model_run_id: RunId
    n_handles: Brought  # questions that it can answer


@dataclass(frozen=True, slots=True)
class Answers:
    """Feature holder to label holder: which way each row of a batch goes at each of my splits."""

    discloses: ClassVar[Disclosure] = Exact("for every row, which way it goes at each of the feature holder's splits")
    first_row: FirstRow
    bits: Annotated[UInt8s, Shape("n_handles", "n_bytes"), Anything()]  # 8 rows in a byte, the first in its highest bit
