"""The messages of vertical.scoring, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Randomised
from hedgerow.protocols.vertical.common.messages import AnswerBits, BatchRows, Brought, FirstRow, NRows, RunId
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import Within


@dataclass(frozen=True, slots=True)
class ReadyToScore(Message, name="vertical.scoring.ready_to_score", version=1):
    """Feature holder to label holder: my rows are read, my part of the model is loaded."""

    discloses = Exact("the feature holder's number of rows, and which model its part is of")
    n_rows: Brought
    model_run_id: RunId
    n_handles: Brought


@dataclass(frozen=True, slots=True)
class AnswersWanted(Message, name="vertical.scoring.answers_wanted", version=1):
    """Label holder to feature holder: everything fits together, answer all your handles for all rows."""

    discloses = Exact("that so many rows are scored with this model")
    n_rows: NRows
    batch_rows: BatchRows  # in one message
    predict_epsilon: Annotated[
        float, Within("predict_epsilon", "predict_epsilon")
    ]  # per value; infinite for answers in the clear


@dataclass(frozen=True, slots=True)
class Answers(Message, name="vertical.scoring.answers", version=1):
    """Feature holder to label holder: which way each row of a batch goes at each of my splits."""

    discloses = Exact("for every row, which way it goes at each of the feature holder's splits")
    first_row: FirstRow
    bits: AnswerBits


@dataclass(frozen=True, slots=True)
class RandomisedAnswers(Message, name="vertical.scoring.randomised_answers", version=1):
    """Feature holder to label holder: the same, after randomised response on the cell of every value."""

    discloses = Randomised("for every row, which way it goes at each of the feature holder's splits")
    first_row: FirstRow
    bits: AnswerBits
