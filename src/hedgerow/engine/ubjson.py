"""UBJSON as XGBoost writes it (`save_model("model.ubj")`): JSON's values with lengths in front, numbers big-endian.

    { i 3 "key" value ... }        S i 5 "hello"        [ $ d # L count numbers ...        T F Z

Arrays of one type of number become numpy arrays. Nothing is believed: a length that goes beyond the end of the file,
an unknown mark or values nested too deeply are a ModelFileError, before anything is allocated for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.errors import ModelFileError

NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
"""Mark -> type of number."""
DEEPEST = 32


def read_ubjson(content: bytes) -> Any:
    """The one value that the bytes hold; what follows it is refused."""
    reader = _Reader(content)
    value = reader.value(reader.mark(), 0)
    if reader.at != len(content):
        raise ModelFileError(f"there are {len(content) - reader.at} bytes after the end of the UBJSON document")
    return value


class _Reader:
    """Where the reading has come to."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if not 0 <= n <= len(self.content) - self.at:
            raise ModelFileError(f"the UBJSON document ends too early: {n} bytes are announced at {self.at}")
        self.at += n
        return self.content[self.at - n : self.at]

    def mark(self) -> str:
        """The mark of the next value; N says nothing and is skipped."""
        while (found := self.take(1)) == b"N":
            pass
        return found.decode("latin-1")

    def value(self, mark: str, depth: int) -> Any:
        """The value behind a mark."""
        if depth > DEEPEST:
            raise ModelFileError(f"the UBJSON document is nested more than {DEEPEST} deep")
        if mark in NUMBERS:
            return np.frombuffer(self.take(np.dtype(NUMBERS[mark]).itemsize), NUMBERS[mark])[0].item()
        if mark in "SH":
            return self.text()
        if mark in "TFZ":
            return {"T": True, "F": False, "Z": None}[mark]
        if mark == "C":
            return self.take(1).decode("latin-1")
        if mark == "{":
            return self.object(depth)
        if mark == "[":
            return self.array(depth)
        raise ModelFileError(f"there is no UBJSON value with the mark {mark!r} (at byte {self.at - 1})")

    def length(self) -> int:
        """A length or count: a whole number with its own mark."""
        mark = self.mark()
        if mark not in "iUIlL":
            raise ModelFileError(f"a length must be a whole number, got the mark {mark!r} at byte {self.at - 1}")
        return int(self.value(mark, 0))

    def text(self) -> str:
        """Text with its length in front."""
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError:
            raise ModelFileError(f"the text that ends at byte {self.at} is not UTF-8") from None

    def object(self, depth: int) -> dict[str, Any]:
        """Names and values up to the closing mark, or as many as are announced."""
        found: dict[str, Any] = {}
        if self.peek("#"):
            count = self.length()
            return self._named(found, depth, count)
        while not self.peek("}"):
            self._named(found, depth, 1)
        return found

    def _named(self, found: dict[str, Any], depth: int, count: int) -> dict[str, Any]:
        for _ in range(count):
            name = self.text()
            if name in found:
                raise ModelFileError(f"the field {name[:40]!r} appears twice in one object")
            found[name] = self.value(self.mark(), depth + 1)
        return found

    def array(self, depth: int) -> Any:
        """Values up to the closing mark; or a type and a count, and then numbers without marks."""
        if self.peek("$"):
            mark = self.mark()
            if not self.peek("#"):
                raise ModelFileError(f"an array of one type must say its length (at byte {self.at})")
            count = self.length()
            if mark not in NUMBERS:
                raise ModelFileError(f"arrays of one type hold numbers, got the mark {mark!r}")
            size = np.dtype(NUMBERS[mark]).itemsize
            return np.frombuffer(self.take(max(count, -1) * size), NUMBERS[mark]).astype(NUMBERS[mark][1:])
        if self.peek("#"):
            return [self.value(self.mark(), depth + 1) for _ in range(min(self.length(), len(self.content)))]
        found = []
        while not self.peek("]"):
            found.append(self.value(self.mark(), depth + 1))
        return found

    def peek(self, mark: str) -> bool:
        """Step over the mark if it is next."""
        if self.content[self.at : self.at + 1] != mark.encode():
            return False
        self.at += 1
        return True
