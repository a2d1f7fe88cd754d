"""The ledger of a run on the disk: the line about a message is there before the message leaves the house.

    earlier = whole_lines(path)                   # of attempts before this one
    with KeptLedger("bank", path) as book:
        me.ledger = book

A process that is killed has lost nothing of its book. (A power cut may take the last seconds, which peers have in
theirs.) Each attempt adds its lines below those of the attempts before it: what was disclosed then was disclosed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hedgerow.ledger import Kind, Ledger, Line
from hedgerow.node import documents


class KeptLedger(Ledger):
    """A book whose lines are in a file as soon as they are written, below what was in there; until it is closed."""

    def __init__(self, party: str, path: Path) -> None:
        super().__init__(party)
        self._numbers = Counter[tuple[str, str]]()
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, direction: str, peer: str, kind: Kind, n_bytes: int, event: Any = None) -> None:
        """Add a line, here and there."""
        super().write(direction, peer, kind, n_bytes, event)
        number = self._numbers[direction, peer] = self._numbers[direction, peer] + 1
        noise = event.to_dict() if hasattr(event, "to_dict") else event
        line = Line(direction, peer, number, kind.message, kind.version, n_bytes, kind.what, kind.protection, noise)
        if self._file is not None:
            os.write(self._file, json.dumps({"party": self.party, **line._asdict()}).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def whole_lines(path: Path) -> bytes:
    """What is in the file, from which half a line, as a power cut may leave it, is taken out for good."""
    found = path.read_bytes() if path.exists() else b""
    whole = found[: found.rfind(b"\n") + 1]
    if whole != found:
        documents.write_whole(path, whole)
    return whole
