"""A line of an audit trail: what it may say, how it is written, and who signed it.

Kinds of lines and the facts of each are declared in `KINDS`. Everything else is refused, when a line is written and
when one is read: a trail has no place for personal data, and none for what a peer would like to see in it. Facts are
names of parties, digests, numbers and short words; texts are cut, and control characters taken out.

There is one way to write a line (`Entry.line`). What is signed is the line without its last member, the signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, plain
from hedgerow.transport.mtls import Certificate, check_party_name

NOTHING_BEFORE = "0" * 64
"""What the first line has in the place of the digest of the line before."""

MAX_LINE = 1 << 16
"""Bytes of a line at most, its end included."""

MOST_TEXT, MOST_ENTRIES, MOST_PEM = 200, 100, 8192
_SIGNED = b"hedgerow audit trail, version 1\0"
_HEX = re.compile(r"[0-9a-f]+")
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", re.ASCII)
_HASH = re.compile(r"(?:sha256:)?[0-9a-f]{16,128}")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_HEAD = re.compile(r"[1-9][0-9]{0,15}:[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,126}[A-Za-z0-9])?")


# --- facts -----------------------------------------------------------------------------------------------------------

Check = Callable[[Any], Any]
"""From what is given to what is written; raises ValueError or TypeError with what it must be."""


def _text(value: Any) -> str:
    """Cut, not refused, if it is too long: a peer's words must not keep a line from being written."""
    if not isinstance(value, str):
        raise TypeError("must be a text")
    shown = plain(value)
    return shown if len(shown) <= MOST_TEXT else shown[: MOST_TEXT - 3] + "..."


def _like(pattern: re.Pattern[str], words: str) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return check


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("must be a whole number of at least 0")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("must be a finite number, or None")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("must be True or False")
    return value


def _pem(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_PEM:
        raise ValueError("must be a certificate in PEM form")
    if Certificate.from_pem(value.encode()).pem.decode() != value:
        raise ValueError("must be one certificate in PEM form and nothing else")
    return value


def _list_of(check: Check) -> Check:
    def check_all(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) > MOST_ENTRIES:
            raise ValueError(f"must be a list of at most {MOST_ENTRIES} entries")
        return [check(entry) for entry in value]

    return check_all


def _by_party(check: Check) -> Check:
    def check_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or len(value) > MOST_ENTRIES:
            raise ValueError(f"must have a party's name for each of at most {MOST_ENTRIES} entries")
        return {check_party_name(name): check(value[name]) for name in sorted(value)}

    return check_all


_hash = _like(_HASH, "a digest in hexadecimal digits")
_fingerprint = _like(_FINGERPRINT, "a fingerprint: sha256: and 64 hexadecimal digits")
_id = _like(_ID, "an id of at most 128 letters, digits, dots, colons, hyphens or underscores")
_heads = _by_party(_like(_HEAD, "the head of a trail: its number of lines, a colon, the digest of the last"))

INIT, ROTATED, TORN = "init", "rotated", "torn"
RUN_STARTED, RUN_ENDED, RUN_FAILED, DIGESTS = "run_started", "run_ended", "run_failed", "message_digests"
COMMITTED = "committed"

KINDS: dict[str, dict[str, Check]] = {
    INIT: {"party": check_party_name, "version": _text, "certificate": _pem},
    "paired": {"peer": check_party_name, "fingerprint": _fingerprint, "how?": _text, "address?": _text},
    "revoked": {"fingerprint": _fingerprint, "peer?": check_party_name, "why?": _text},
    ROTATED: {"certificate": _pem},
    "proposed": {"proposal": _hash, "protocol": _text, "parties": _list_of(check_party_name), "run_id?": _id},
    "received": {
        "proposal": _hash, "peer": check_party_name, "protocol?": _text, "parties?": _list_of(check_party_name),
        "run_id?": _id,
    },
    "accepted": {
        "proposal": _hash, "party": check_party_name, "fingerprint?": _fingerprint, "unattended?": _flag,
        "heads?": _heads,
    },
    "refused": {"proposal": _hash, "party": check_party_name, "codes": _list_of(_whole), "why?": _text},
    RUN_STARTED: {
        "run_id": _id, "proposal": _hash, "protocol": _text, "signers": _by_party(_fingerprint), "version": _text,
        "attempt?": _whole, "dataset?": _text, "n_rows?": _whole, "heads?": _heads,
    },
    COMMITTED: {"run_id": _id, "attempt": _whole, "inputs?": _hash, "rows?": _hash},
    RUN_ENDED: {
        "run_id": _id, "proposal": _hash, "attempt?": _whole, "model?": _hash, "ledger?": _hash, "seconds?": _number,
        "heads?": _heads,
    },
    RUN_FAILED: {
        "run_id": _id, "proposal": _hash, "attempt?": _whole, "reason": _text, "party?": check_party_name,
        "heads?": _heads,
    },
    DIGESTS: {
        "run_id": _id, "peer": check_party_name, "sent": _hash, "received": _hash, "n_sent": _whole,
        "n_received": _whole, "protocol?": _text, "attempt?": _whole,
    },
    "charged": {"run_id": _id, "limits": _list_of(_text), "epsilon": _number, "delta": _number},
    "scored": {
        "peers": _list_of(check_party_name), "n_rows": _whole, "run_id?": _id, "proposal?": _hash, "model?": _hash,
        "n_batches?": _whole,
    },
    TORN: {"n_bytes": _whole, "sha256": _hash},
}  # fmt: skip
"""Kind -> its facts, each with what it must be. A question mark is for those that may be missing."""


def checked_facts(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as they are written, sorted by name. InvalidParameter for what is not declared."""
    if kind not in KINDS:
        raise InvalidParameter(f"a trail has no lines of kind {plain(str(kind))!r}; there are {', '.join(KINDS)}")
    declared = {name.removesuffix("?"): check for name, check in KINDS[kind].items()}
    missing = [name for name in KINDS[kind] if not name.endswith("?") and name not in facts]
    unknown = [name for name in facts if name not in declared]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has no fact {plain(str(unknown[0]))!r}"
        raise InvalidParameter(f"a line {kind!r} of a trail {what}; it may have {', '.join(declared)}")
    found = {}
    for name in sorted(facts):
        try:
            found[name] = declared[name](facts[name])
        except (ValueError, TypeError, HedgerowError) as problem:
            shown = plain(repr(facts[name]))[:80]
            raise InvalidParameter(f"{name} in a line {kind!r} of a trail {problem}, got {shown}") from None
    return found


# --- lines -----------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One line."""

    seq: int
    at: str
    kind: str
    facts: dict[str, Any]
    prev: str
    certificate: str
    signature: str

    @property
    def signed(self) -> bytes:
        """What the signature is over."""
        members = {name: value for name, value in self._asdict().items() if name != "signature"}
        return _SIGNED + as_json(members)

    @property
    def line(self) -> bytes:
        """As it stands in the file, without its end of line."""
        return as_json(self._asdict())

    @property
    def introduces(self) -> str | None:
        """The certificate that it brings in, as PEM."""
        return self.facts["certificate"] if self.kind in (INIT, ROTATED) else None


def as_json(value: Any) -> bytes:
    """The one JSON text of what a trail holds."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def read_line(line: bytes) -> Entry:
    """The entry that wrote exactly this line. InvalidInput if there is none."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or tuple(found) != Entry._fields:
            raise InvalidInput(f"it must be an object with {', '.join(Entry._fields)}, in this order")
        entry = Entry(**found)
        if type(entry.seq) is not int or not all(isinstance(e, str) for e in (entry.at, entry.kind, entry.certificate)):
            raise InvalidInput("its members have other types than they should")
        if not isinstance(entry.facts, dict) or checked_facts(entry.kind, entry.facts) != entry.facts:
            raise InvalidInput("its facts are not as they are written")
        if not _AT.fullmatch(entry.at) or not is_hex(entry.prev, 64) or not is_hex(entry.signature):
            raise InvalidInput("its time, digest or signature is not written as it should be")
        if entry.line != line:
            raise InvalidInput("it is not written as a trail writes it")
    except HedgerowError as problem:
        raise InvalidInput(str(problem)) from None
    except (ValueError, TypeError, RecursionError) as problem:
        raise InvalidInput(f"it cannot be read ({plain(str(problem))})") from None
    return entry


def is_hex(value: Any, length: int | None = None) -> bool:
    """Whether it is a text of small hexadecimal digits, of this length."""
    return isinstance(value, str) and bool(_HEX.fullmatch(value)) and length in (None, len(value))


def is_signed(entry: Entry, certificate: Certificate) -> bool:
    """Whether the key of this certificate has signed the line."""
    try:
        certificate.verify(bytes.fromhex(entry.signature), entry.signed)
    except (HedgerowError, ValueError, UnsupportedAlgorithm):
        return False
    return True


def digest_of(line: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()
