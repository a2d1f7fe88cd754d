"""What the statements of protocols between holders of columns have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hedgerow.privacy import wording

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

REPEATED = "repeated trainings: epsilons of several runs on the same rows add up; a budget (budget=...) keeps count"
SEVERAL_ROWS = "several rows of one person: the guarantee is for one row, and weaker for a person who has more"

PRACTICALLY_NONE = math.log(99.0)
"""From this epsilon on somebody who guesses between two values may be right in 99 of 100 cases."""


def dealer_keeps_out(dealer: str) -> str:
    """What is assumed of a dealer."""
    return (
        f"{dealer}, which knows all masks and has no data, works together with no other party and sees nothing that "
        "parties open to each other."
    )


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
