"""Every error that Hedgerow raises about what it was given, under one base class.

Each also derives from the built-in that Python and scikit-learn users expect to catch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class HedgerowError(Exception):
    """Base of all errors raised on purpose by Hedgerow.

    `ledgers`: where several parties did not come to the end of a run, party -> `Ledger` of what it had disclosed and
    learned by then. Those of parties whose process was killed are missing.
    """

    ledgers: Mapping[str, Any] = MappingProxyType({})


class InvalidInput(HedgerowError, ValueError):
    """Data that cannot be used as given: names the column or row and what is wrong."""


class InvalidType(HedgerowError, TypeError):
    """Data or an argument of a type that cannot be used."""


class InvalidParameter(HedgerowError, ValueError):
    """A parameter outside its range: names the parameter and the value."""


class ModelFileError(HedgerowError, ValueError):
    """A model file that is damaged, foreign or of an unknown version."""


class JobError(HedgerowError, ValueError):
    """A job file that cannot be run as written."""


class ExportRefused(HedgerowError, ValueError):
    """A model that cannot be written in the requested format: its predictions would change, or it would disclose."""


class ProtocolError(HedgerowError, RuntimeError):
    """A rule that a guarantee rests on would have been broken, for instance a mask position used twice."""


class BudgetExceeded(HedgerowError, RuntimeError):
    """A release that would cost more than is left of a dataset's privacy budget; nothing was read for it."""


class FixedPointOverflow(HedgerowError, OverflowError):
    """A value, or a sum of many, that does not fit its fixed-point ring."""


class TransportError(HedgerowError, ConnectionError):
    """Something went wrong between parties."""


class FrameError(TransportError, ValueError):
    """Bytes that are not the message that was expected."""


class VersionMismatch(TransportError):
    """The peer speaks another version of the wire format or of a message."""


class PeerRefused(TransportError):
    """A peer whose certificate or name is not the one that was agreed on."""


class PeerLost(TransportError):
    """A peer that went away and did not come back in time."""


class ProcessEnded(PeerLost):
    """A party's process that ended before its role did, for instance because somebody killed it."""


class DeadlineExceeded(TransportError, TimeoutError):
    """A message that did not come in time."""


class PeerFailed(TransportError):
    """A peer that said that it failed, and why."""

    def __init__(self, party: str, reason: str) -> None:
        super().__init__(f"{party} failed: {reason}")
        self.party = party
        self.reason = reason
