"""Why a party may stop: a short public list, and all that its peers are told.

An error's own sentence may quote data ("hiv_status has a value outside the list"), so it stays with the party itself
and with whoever runs all parties in one program. Peers get one of these numbers, on every transport, and both ledgers
have a line about it (`runtime.party.Abort`). Which number it is follows from the type of the error (`errors.py`).
"""

from __future__ import annotations

from enum import IntEnum

ABORT = "runtime.abort"
"""The name of the message that carries a reason."""


class Reason(IntEnum):
    """A reason to stop. Numbers are part of the wire format: never change or reuse one."""

    INTERNAL = 0
    BAD_DATA = 1
    BAD_MESSAGE = 2
    PEER_FAILED = 3
    PEER_LOST = 4
    TIMED_OUT = 5
    BUDGET_SPENT = 6
    JOB_DIFFERS = 7
    STOPPED_BY_USER = 8
    OVER_MEMORY = 9

    @property
    def sentence(self) -> str:
        """What everybody may read, after the name of the party that stopped."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.INTERNAL: "it met an error that it did not expect",
    Reason.BAD_DATA: "its data or settings cannot be used for this job",
    Reason.BAD_MESSAGE: "a message or signature that it received broke the rules",
    Reason.PEER_FAILED: "another party stopped first",
    Reason.PEER_LOST: "it lost the connection to another party",
    Reason.TIMED_OUT: "a message did not come in time",
    Reason.BUDGET_SPENT: "its privacy budget does not allow this run",
    Reason.JOB_DIFFERS: "another party has another job",
    Reason.STOPPED_BY_USER: "somebody there stopped the run",
    Reason.OVER_MEMORY: "it ran out of memory",
}

DATA_DEPENDENT = frozenset({Reason.INTERNAL, Reason.BAD_DATA, Reason.OVER_MEMORY})
"""Reasons that can follow from protected rows: that one of them was told says something about these rows."""


def stated() -> str:
    """What a statement of guarantees has to say about parties that stop early."""
    named = ", ".join(f"{reason.name.lower()} ({reason.sentence})" for reason in sorted(DATA_DEPENDENT))
    return (
        "A party that stops early tells its peers one number out of a public list of "
        f"{len(Reason)} reasons and nothing else. These reasons can depend on protected rows: {named}. "
        "That one of them was told, and when, is not covered by the guarantee."
    )


def reason_of(error: BaseException) -> Reason:
    """What peers are told of an error: its type decides, never its text."""
    if isinstance(error, MemoryError):
        return Reason.OVER_MEMORY
    if isinstance(error, KeyboardInterrupt):
        return Reason.STOPPED_BY_USER
    told = getattr(type(error), "abort_reason", None)
    return told if isinstance(told, Reason) else Reason.INTERNAL
