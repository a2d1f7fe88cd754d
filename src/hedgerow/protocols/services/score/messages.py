"""The messages of vertical.scoring, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Randomised
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import Within


@dataclass(frozen=True, slots=True)
class ReadyToScore(messages.Ready, Message, name="vertical.scoring.ready_to_score", version=1):
    """Feature holder to label holder: my rows are read, my part of the model is loaded."""


@dataclass(frozen=True, slots=True)
class AnswersWanted(Message, name="vertical.scoring.answers_wanted", version=1):
    """Label holder to feature holder: everything fits together, answer all your handles for all rows."""

    discloses = Exact("that so many rows are scored with this model")
    n_rows: messages.NRows
    batch_rows: messages.BatchRows  # in one message
    # Per value; infinite for answers in the clear.
    predict_epsilon: Annotated[float, Within("predict_epsilon", "predict_epsilon")]


@dataclass(frozen=True, slots=True)
class Answers(messages.Answers, Message, name="vertical.scoring.answers", version=1):
    """Feature holder to label holder: which way each row of a batch goes at each of my splits."""


@dataclass(frozen=True, slots=True)
class RandomisedAnswers(messages.Answers, Message, name="vertical.scoring.randomised_answers", version=1):
    """Feature holder to label holder: the same, after randomised response on the cell of every value."""

    discloses = Randomised("for every row, which way it goes at each of the feature holder's splits")


ALL = (ReadyToScore, AnswersWanted, Answers, RandomisedAnswers)
