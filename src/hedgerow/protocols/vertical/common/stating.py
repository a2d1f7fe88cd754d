"""What the statements of protocols between holders of columns have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hedgerow.protocols.vertical.common.agreement import VerticalJob

ASSUMED = (
    "Every party follows the protocol. It may be curious: it may compute whatever it likes from what it sees.",
    "Every party runs this software unchanged, keeps its keys to itself, and draws secret random bytes.",
)
"""Of the parties, where nothing more is assumed."""

ERRORS = "what peers learn from an error, from a run that is broken off, or from how long something takes"
NOT_COVERED = (
    "a party that lies or leaves the protocol",
    "numbers of rows and columns, who took part, and the choice of parameters",
    ERRORS,
)
"""What no statement covers."""

KNOWN_LEAKS = "Nothing is guaranteed. KNOWN LEAKS, accepted by accept_known_leaks=True:"
NOTHING_COVERED = ("labels, columns and the model", *NOT_COVERED)
"""Where leaks were accepted."""

OF_TRAINING = "what the training disclosed"
REPEATED = "repeated trainings: epsilons of several runs on the same rows add up; a budget (budget=...) keeps count"
SEVERAL_ROWS = "several rows of one person: the guarantee is for one row, and weaker for a person who has more"

CLASSES_FOUND = "Which classes there are was read off the labels and is taken to be public: more than two end the run."
"""Of the data, where no list of classes was given."""

MAPPED = (
    "A value that does not fit what is public about its column is no error: it was mapped to a public default, by a "
    "rule that looks at this row alone."
)
OWN_NUMBER = (
    "How many rows did not fit is in the log of the party that has them, and in no message and no part of the model."
)
TOGETHER = "Other parties may put together what they saw."
FIRST_CLASS = "A label that is missing or not listed counted as the first class: on shares nobody can leave out a row."


def assumed_with(dealer: str, *more: str) -> tuple[str, ...]:
    """What is assumed of the parties where one of them deals."""
    keeps_out = (
        f"{dealer}, which knows all masks and has no data, works together with no other party and sees nothing that "
        "parties open to each other."
    )
    return (*ASSUMED, keeps_out, *more)


def watching(job: VerticalJob) -> tuple[str, ...]:
    """What feature holders learned from early stopping, if there was any."""
    if job.boosting.early_stopping_rounds is None:
        return ()
    return (
        f"After each iteration {job.others} learned whether the rows that {job.label_holder} watches still improve, and "
        "in the end how many iterations are kept.",
    )


def by_column(job: VerticalJob) -> tuple[str, ...]:
    """What parties learned because columns have constraints, where feature holders look for splits themselves."""
    if job.boosting.monotone is None and job.boosting.interaction is None:
        return ()
    return ("Columns have constraints, so all parties know by which column, of whichever party, each node splits.",)


def scores_of(score: str) -> str:
    """What splits follow from, in words."""
    return "gradients alone (every hessian counts as 1)" if score == "first_order" else "gradients and hessians"
