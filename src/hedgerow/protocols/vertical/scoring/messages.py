"""The messages of vertical.scoring, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Randomised
from hedgerow.transport.frames import Message, UInt8s


@dataclass(frozen=True, slots=True)
class ReadyToScore(Message, name="vertical.scoring.ready_to_score", version=1):
    """Feature holder to label holder: my rows are read, my part of the model is loaded."""

    discloses = Exact("the feature holder's number of rows, and which model its part is of")
    n_rows: int
    model_run_id: str
    n_handles: int


@dataclass(frozen=True, slots=True)
class AnswersWanted(Message, name="vertical.scoring.answers_wanted", version=1):
    """Label holder to feature holder: everything fits together, answer all your handles for all rows."""

    discloses = Exact("that so many rows are scored with this model")
    n_rows: int
    batch_rows: int  # in one message
    predict_epsilon: float  # per value; infinite for answers in the clear


@dataclass(frozen=True, slots=True)
class Answers(Message, name="vertical.scoring.answers", version=1):
    """Feature holder to label holder: which way each row of a batch goes at each of my splits."""

    discloses = Exact("for every row, which way it goes at each of the feature holder's splits")
    first_row: int
    bits: UInt8s  # [handles, bytes]: 8 rows in a byte, the first one in its highest bit; 1 for right


@dataclass(frozen=True, slots=True)
class RandomisedAnswers(Message, name="vertical.scoring.randomised_answers", version=1):
    """Feature holder to label holder: the same, after randomised response on the cell of every value."""

    discloses = Randomised("for every row, which way it goes at each of the feature holder's splits")
    first_row: int
    bits: UInt8s
