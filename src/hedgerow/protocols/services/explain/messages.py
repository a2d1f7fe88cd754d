"""The messages of vertical.explaining, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Float64s, Int64s, Message
from hedgerow.transport.ranges import FINITE, Index, Shape, Within

MOST_GAIN = 1e100
"""Gains of one split are float32; those of all trees that ask it add up to no more."""


@dataclass(frozen=True, slots=True)
class ReadyToExplain(messages.Ready, Message, name="vertical.explaining.ready_to_explain", version=1):
    """Feature holder to label holder: my part of the model is loaded, and my rows are read if any are needed."""


@dataclass(frozen=True, slots=True)
class HandleGains(Message, name="vertical.explaining.handle_gains", version=1):
    """Label holder to feature holder: what each of your splits is worth, for importances."""

    discloses = Exact(
        "how much each of the feature holder's own splits reduced the loss, which follows from the labels, or how "
        "often the trees ask it"
    )
    values: Annotated[Float64s, Shape("n_handles"), Within(-MOST_GAIN, MOST_GAIN)]


@dataclass(frozen=True, slots=True)
class BeginExplaining(Message, name="vertical.explaining.begin_explaining", version=1):
    """Label holder to feature holder: everything fits together, send what contributions need."""

    discloses = Exact("that so many rows are explained with this model, and how many scores a row has")
    n_rows: messages.NRows
    batch_rows: messages.BatchRows  # in one message
    n_outputs: Annotated[int, Within(1, messages.MOST_OUTPUTS)]


@dataclass(frozen=True, slots=True)
class ColumnsOfHandles(Message, name="vertical.explaining.columns_of_handles", version=1):
    """Feature holder to label holder: which of my handles ask about the same column."""

    discloses = Exact("which of the feature holder's splits ask about the same column")
    numbers: Annotated[Int64s, Shape("n_handles"), Index("n_handles")]  # drawn for this run, from 0 on without gaps


@dataclass(frozen=True, slots=True)
class AnswersToExplain(messages.Answers, Message, name="vertical.explaining.answers_to_explain", version=1):
    """Feature holder to label holder: which way each row of a batch goes at each of my splits."""


@dataclass(frozen=True, slots=True)
class ContributionsOfColumns(Message, name="vertical.explaining.contributions_of_columns", version=1):
    """Label holder to feature holder: what each of your columns adds to the scores of a batch of rows."""

    discloses = Exact(
        "for every row, what each of the feature holder's own columns adds to its scores, which follows from the "
        "labels and from the ways that the row goes elsewhere"
    )
    first_row: messages.FirstRow
    values: Annotated[Float64s, Shape("n_rows", "n_columns", "n_outputs"), FINITE]  # columns by their numbers


@dataclass(frozen=True, slots=True)
class InteractionsOfColumns(Message, name="vertical.explaining.interactions_of_columns", version=1):
    """Label holder to feature holder: what each two of your columns add to the scores of a batch of rows together."""

    discloses = Exact(
        "for every row, what each two of the feature holder's own columns add to its scores only together, and each of "
        "them together with all other parties' columns, which follows from the labels and from the ways that the row "
        "goes elsewhere"
    )
    first_row: messages.FirstRow
    # By number of column; behind its own columns one entry for those of all others together.
    values: Annotated[Float64s, Shape("n_rows", "n_columns", "n_columns_and_others", "n_outputs"), FINITE]


ALL = (
    ReadyToExplain,
    HandleGains,
    BeginExplaining,
    ColumnsOfHandles,
    AnswersToExplain,
    ContributionsOfColumns,
    InteractionsOfColumns,
)
