"""Every error that Hedgerow raises about what it was given, under one base class.

Each also derives from the built-in that Python and scikit-learn users expect to catch. `abort_reason` is all that peers
are told when a party of a federation stops with such an error; a class without `reason` has that of its base.
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

    def __init_subclass__(cls, reason: Reason | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if reason is not None:
            cls.abort_reason = reason


class InvalidInput(HedgerowError, ValueError, reason=Reason.BAD_DATA):
    """Data that cannot be used as given: names the column or row and what is wrong."""


class InvalidType(HedgerowError, TypeError, reason=Reason.BAD_DATA):
    """Data or an argument of a type that cannot be used."""


class InvalidParameter(HedgerowError, ValueError, reason=Reason.BAD_DATA):
    """A parameter outside its range: names the parameter and the value."""


class ModelFileError(HedgerowError, ValueError, reason=Reason.BAD_DATA):
    """A model file that is damaged, foreign or of an unknown version."""


class JobError(HedgerowError, ValueError, reason=Reason.BAD_DATA):
    """A job file that cannot be run as written."""


class ExportRefused(HedgerowError, ValueError):
    """A model that cannot be written in the requested format: its predictions would change, or it would disclose."""


class ProtocolError(HedgerowError, RuntimeError, reason=Reason.BAD_MESSAGE):
    """A rule that a guarantee rests on would have been broken, for instance a mask position used twice."""


class BudgetExceeded(HedgerowError, RuntimeError, reason=Reason.BUDGET_SPENT):
    """A release that would cost more than is left of a dataset's privacy budget; nothing was read for it."""


class FixedPointOverflow(HedgerowError, OverflowError, reason=Reason.BAD_DATA):
    """A value, or a sum of many, that does not fit its fixed-point ring."""


class ClusterError(HedgerowError, RuntimeError):
    """A Ray cluster that cannot be reached or used, or that lost more actors than may be replaced."""


class TransportError(HedgerowError, ConnectionError, reason=Reason.PEER_LOST):
    """Something went wrong between parties."""


class FrameError(TransportError, ValueError, reason=Reason.BAD_MESSAGE):
    """Bytes that are not the message that was expected."""


class VersionMismatch(TransportError, reason=Reason.BAD_MESSAGE):
    """The peer speaks another version of the wire format or of a message."""


class PeerRefused(TransportError, reason=Reason.BAD_MESSAGE):
    """A peer whose certificate or name is not the one that was agreed on."""


class JobDiffers(PeerRefused, reason=Reason.JOB_DIFFERS):
    """A peer that has another job, another protocol or other versions of its messages: names the fields that differ."""


class PeerLost(TransportError):
    """A peer that went away and did not come back in time."""


class ProcessEnded(PeerLost):
    """A party's process that ended before its role did, for instance because somebody killed it."""


class DeadlineExceeded(TransportError, TimeoutError, reason=Reason.TIMED_OUT):
    """A message that did not come in time."""


class PeerFailed(TransportError, reason=Reason.PEER_FAILED):
    """A peer that said that it stops: which party, and which of the public reasons it gave (`code`)."""

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


class PrivacyWarning(UserWarning):
    """Something is spent, or told, that somebody may not have thought of. It is no error: it was asked for."""
