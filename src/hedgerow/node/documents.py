"""Small JSON documents that people keep or hand to each other: bounded, of a known format, signed where it matters.

    document = {"format": "hedgerow invitation", "version": 1, "name": "bank", ...}
    write(path, sign(document, identity))
    document = read(path, "hedgerow invitation", {"name": str, ...})       # InvalidInput for anything else
    verify(document, certificate)                                          # PeerRefused unless that key signed it

The signature is over the document without it, written in one way only (sorted keys, no spaces, ASCII), and the format
is part of that, so a signature of one kind of document never passes for one of another kind.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, InvalidInput, PeerRefused, plain
from hedgerow.runtime.saved_files import damage_told
from hedgerow.transport.mtls import Certificate, Identity, now

MOST_BYTES = 64 * 1024
VERSION = 1
_SIGNED = b"hedgerow document\0"


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way in which a document is written where its bytes matter."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sign(document: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """The document with a signature of this key."""
    signature = identity.sign(_SIGNED + canonical(document))
    return {**document, "signature": base64.b64encode(signature).decode()}


def verify(document: Mapping[str, Any], certificate: Certificate) -> None:
    """PeerRefused unless the certificate's key signed the document as it is."""
    unsigned = {key: value for key, value in document.items() if key != "signature"}
    try:
        signature = base64.b64decode(document.get("signature", ""), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise PeerRefused(f"the signature that is said to be of {certificate.owner} is damaged") from None
    certificate.verify(signature, _SIGNED + canonical(unsigned))


# --- files -----------------------------------------------------------------------------------------------------------


def read(
    path: Path, form: str, fields: Mapping[str, type | tuple[type, ...]], most: int = MOST_BYTES
) -> dict[str, Any]:
    """A document of this format with exactly these fields, beside `format` and `version`, and of `most` bytes."""
    content = read_bounded(path, most)
    try:
        document = json.loads(content, object_pairs_hook=_without_repetition)
        check_can_be_read(document)
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"{path} is damaged, or not a {form}: {plain(str(problem))}") from None
    if not isinstance(document, dict) or document.get("format") != form:
        raise InvalidInput(f"{path} is not a {form}")
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise InvalidInput(
            f"{path} has version {plain(repr(document.get('version')))}; this program reads version {VERSION} of a "
            f"{form}. The newer of the two programs wrote it: bring both to one version"
        )
    wanted = {"format": str, "version": int, **fields}
    for key in (*wanted, *document):
        if key not in document or key not in wanted:
            raise InvalidInput(
                f"{path} is damaged: {plain(repr(key))} {'is missing' if key in wanted else 'is unknown'}"
            )
        if not isinstance(document[key], wanted[key]):
            raise InvalidInput(f"{path} is damaged: {key} has the wrong type, {type(document[key]).__name__}")
    return document


def check_can_be_read(document: Any) -> None:
    """ValueError if it holds what Python's JSON takes and nobody else's does: NaN, or half a character."""
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def read_bounded(path: Path, most: int) -> bytes:
    """What is in a file, unless it is larger than anything that belongs there."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}") from None
    if len(content) > most:
        raise InvalidInput(f"{path} has more than {most:,} bytes, so it is not what it should be")
    return content


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Whatever is wrong with what a file holds, also in our own words, as an InvalidInput that names the file."""
    try:
        with damage_told("it cannot be read"):
            yield
    except HedgerowError as problem:
        raise InvalidInput(f"{path} is damaged, or of another version: {problem}") from problem


def _without_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object; ValueError if a key stands there twice, of which readers could see different ones."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


def write(path: Path, document: Mapping[str, Any], *, mode: int = 0o600) -> None:
    """The document in a file, which appears or is replaced in one step and is on the disk afterwards."""
    write_whole(path, text_of(document), mode=mode)


def text_of(document: Mapping[str, Any]) -> bytes:
    """A document as it stands in a file, for people to read."""
    return (json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode()


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """A file that appears or is replaced in one step; nobody can open it before it has its mode."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- dates -----------------------------------------------------------------------------------------------------------


def stamp(moment: dt.datetime | None = None) -> str:
    """A moment (now, if none is given) to the second, in UTC."""
    return (moment or now()).astimezone(dt.UTC).isoformat(timespec="seconds")


def moment(text: str, where: str) -> dt.datetime:
    """The inverse of `stamp`; InvalidInput, saying where it stood, for what is not a date with its zone."""
    try:
        found = dt.datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{where}: {plain(text)!r} is not a date with its zone, as in 2026-05-04T12:00:00+00:00")
