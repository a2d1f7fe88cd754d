"""Every error that Hedgerow raises about what it was given, under one base class.

Each also derives from the built-in that Python and scikit-learn users expect to catch. `abort_reason` is all that peers
are told when a party of a federation stops with such an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from hedgerow.aborts import Reason


class HedgerowError(Exception):
    """Base of all errors raised on purpose by Hedgerow.

    `ledgers`: where several parties did not come to the end of a run, party -> `Ledger` of what it had disclosed and
    learned by then. Those of parties whose process was killed are missing.
    """

    ledgers: Mapping[str, Any] = MappingProxyType({})

    abort_reason: ClassVar[Reason] = Reason.INTERNAL


class InvalidInput(HedgerowError, ValueError):
    """Data that cannot be used as given: names the column or row and what is wrong."""

    abort_reason = Reason.BAD_DATA


class InvalidType(HedgerowError, TypeError):
    """Data or an argument of a type that cannot be used."""

    abort_reason = Reason.BAD_DATA


class InvalidParameter(HedgerowError, ValueError):
    """A parameter outside its range: names the parameter and the value."""

    abort_reason = Reason.BAD_DATA


class ModelFileError(HedgerowError, ValueError):
    """A model file that is damaged, foreign or of an unknown version."""

    abort_reason = Reason.BAD_DATA


class JobError(HedgerowError, ValueError):
    """A job file that cannot be run as written."""

    abort_reason = Reason.BAD_DATA


class ExportRefused(HedgerowError, ValueError):
    """A model that cannot be written in the requested format: its predictions would change, or it would disclose."""


class ProtocolError(HedgerowError, RuntimeError):
    """A rule that a guarantee rests on would have been broken, for instance a mask position used twice."""

    abort_reason = Reason.BAD_MESSAGE


class BudgetExceeded(HedgerowError, RuntimeError):
    """A release that would cost more than is left of a dataset's privacy budget; nothing was read for it."""

    abort_reason = Reason.BUDGET_SPENT


class FixedPointOverflow(HedgerowError, OverflowError):
    """A value, or a sum of many, that does not fit its fixed-point ring."""

    abort_reason = Reason.BAD_DATA


class TransportError(HedgerowError, ConnectionError):
    """Something went wrong between parties."""

    abort_reason = Reason.PEER_LOST


class FrameError(TransportError, ValueError):
    """Bytes that are not the message that was expected."""

    abort_reason = Reason.BAD_MESSAGE


class VersionMismatch(TransportError):
    """The peer speaks another version of the wire format or of a message."""

    abort_reason = Reason.BAD_MESSAGE


class PeerRefused(TransportError):
    """A peer whose certificate or name is not the one that was agreed on."""

    abort_reason = Reason.BAD_MESSAGE


class JobDiffers(PeerRefused):
    """A peer that has another job, another protocol or other versions of its messages: names the fields that differ."""

    abort_reason = Reason.JOB_DIFFERS


class PeerLost(TransportError):
    """A peer that went away and did not come back in time."""


class ProcessEnded(PeerLost):
    """A party's process that ended before its role did, for instance because somebody killed it."""


class DeadlineExceeded(TransportError, TimeoutError):
    """A message that did not come in time."""

    abort_reason = Reason.TIMED_OUT


class PeerFailed(TransportError):
    """A peer that said that it stops: which party, and which of the public reasons it gave (`code`)."""

    abort_reason = Reason.PEER_FAILED

    def __init__(self, party: str, code: Reason) -> None:
        super().__init__(f"{party} stopped: {code.sentence}")
        self.party = party
        self.code = code


# --- texts of peers --------------------------------------------------------------------------------------------------


MOST_CHARACTERS = 300


def plain(text: str) -> str:
    """The text without control characters, and without those that hide or turn round others, cut to a bearable length.

    A peer must not be able to write lines of its own into a log, to move the cursor or to colour a terminal.
    """
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: MOST_CHARACTERS + 1])
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 3] + "..."
