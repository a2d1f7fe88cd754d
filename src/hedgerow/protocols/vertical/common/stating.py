"""What the statements of protocols between holders of columns have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hedgerow.privacy import wording
from hedgerow.protocols.bad_rows import RAISED
from hedgerow.statement import Statement

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

PRACTICALLY_NONE = math.log(99.0)
"""From this epsilon on somebody who guesses between two values may be right in 99 of 100 cases."""


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


def about_misfits(statement: Statement, on_bad_rows: str, *sentences: str) -> Statement:
    """The same statement with sentences on what became of rows that do not fit.

    With on_bad_rows="raise" nothing is claimed: that the run came to its end tells something about all rows, exactly.
    """
    facts = {**statement.facts, "on_bad_rows": on_bad_rows}
    if statement.stamp is None or RAISED not in statement.stamp:
        told = sentences if on_bad_rows == "map" else ()
        return replace(statement, guarantee=(*statement.guarantee, *told), facts=facts)
    facts |= {name: nothing for name, nothing in _CLAIMS.items() if name in facts}
    registry = statement.registry and replace(statement.registry, flavour="none", loss={}, accounting="none")
    return replace(statement, guarantee=(f"{statement.stamp}.", NOTHING), facts=facts, registry=registry)


NOTHING = "Nothing is guaranteed. Noise is where it would be otherwise, and what it is worth is not stated."
_CLAIMS = {
    "model_is_private": False, "privacy": None, "labels_towards_feature_holders": None,
    "records_towards_label_holder": None, "epsilon_replace_one": None, "is_bound": False, "per_element": None,
}  # fmt: skip
"""Facts that claim something, and what they are where nothing is claimed."""


def assumed_with(dealer: str, *more: str) -> tuple[str, ...]:
    """What is assumed of the parties where one of them deals."""
    keeps_out = (
        f"{dealer}, which knows all masks and has no data, works together with no other party and sees nothing that "
        "parties open to each other."
    )
    return (*ASSUMED, keeps_out, *more)


def cast(job: Any) -> dict[str, Any]:
    """The facts on who took part in a training, which come first."""
    return {
        "protocol": job.NAME,
        "label_holder": job.label_holder,
        "feature_holders": list(job.feature_holders),
    }


def scores_of(score: str) -> str:
    """What splits follow from, in words."""
    return "gradients alone (every hessian counts as 1)" if score == "first_order" else "gradients and hessians"


def together(names: Sequence[str]) -> str:
    """Names in a row."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def meaning_for_a_person(epsilon: float) -> str:
    """What a large epsilon is worth, and from when on it is nothing; "" where it protects."""
    if epsilon < PRACTICALLY_NONE:
        return ""
    return (
        f"For a person epsilon = {wording.up(epsilon)} is practically no protection: somebody who has to guess between "
        f"two possible records is right in up to {wording.best_guess(epsilon, 0.0)} of 100 cases. From epsilon = "
        f"{wording.up(PRACTICALLY_NONE, 2)} on it is 99 of 100 or more; blind guessing reaches 50."
    )
