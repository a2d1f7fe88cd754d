"""Kinds of message fields: for each, what it may hold, how it is written into a frame and how it is read back.

A field has an entry of fixed size in the frame's head and, if its size varies, a body after it (see `frames`). Writing
checks that the value is what the message class says; reading takes nothing for granted, and answers with a FrameError.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from hedgerow.errors import FrameError, InvalidInput, InvalidType

MAX_NAME_BYTES = 64  # of a message or a field
MAX_TEXT_BYTES = 16 << 20  # of one text, or of all texts of a tuple together
MAX_TEXTS = 1 << 20
MAX_DIMENSIONS = 4

_ZEROS = bytes(8)


class Field(Protocol):
    """How one field is written and read. `message.field` is kept for error messages."""

    name: str
    label: str
    words: str
    code: tuple[int, int]  # kind, dtype
    layout: str  # in the head

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        """Append to head and bodies; how many bytes the body takes with its padding."""
        ...

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        """The value, and where the next body starts."""
        ...


class _Kind:
    """What the kinds of fields share."""

    __slots__ = ("label", "name")
    words: str

    def __init__(self, message: str, name: str) -> None:
        self.name = name
        self.label = f"{message}.{name}"

    def _wrong_type(self, value: Any) -> InvalidType:
        return InvalidType(f"{self.label} must be {self.words}, got {type(value).__name__}")

    def _body(self, frame: bytes | memoryview, start: int, n_bytes: int) -> int:
        """The end of a body with its padding, which must lie within the frame and be zero."""
        end = start + n_bytes
        padded = (end + 7) & -8
        if padded > len(frame):
            raise FrameError(f"{self.label}: {n_bytes} bytes announced, {len(frame) - start} left in the frame")
        if padded != end and frame[end:padded] != _ZEROS[: padded - end]:
            raise FrameError(f"{self.label}: padding is not zero")
        return padded


class _Bool(_Kind):
    __slots__ = ()
    words = "bool"
    code = (1, 0)
    layout = "Q"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:  # noqa: ARG002 - one signature for all
        if not isinstance(value, (bool, np.bool_)):
            raise self._wrong_type(value)
        head.append(int(value))
        return 0

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:  # noqa: ARG002 - as above
        value = next(head)
        if value > 1:
            raise FrameError(f"{self.label}: a bool is 0 or 1, got {value}")
        return value == 1, start


class _Int(_Kind):
    __slots__ = ()
    words = "int"
    code = (2, 0)
    layout = "q"
    accepted: Any = (int, np.integer)  # types of values

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:  # noqa: ARG002 - one signature for all
        if not isinstance(value, self.accepted):
            raise self._wrong_type(value)
        if self.layout == "q" and not -(2**63) <= value < 2**63:
            raise InvalidInput(f"{self.label} must fit into 64 bits, got {value}")
        head.append(value)
        return 0

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:  # noqa: ARG002 - as above
        return next(head), start


class _Float(_Int):
    __slots__ = ()
    words = "float"
    code = (3, 0)
    layout = "d"
    accepted = (float, np.floating)


class _Text(_Kind):
    __slots__ = ()
    words = "text"
    code = (4, 0)
    layout = "I"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, str):
            raise self._wrong_type(value)
        return _append(_utf8(self.label, value, MAX_TEXT_BYTES), head, bodies)

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        n_bytes = next(head)
        padded = self._body(frame, start, n_bytes)
        if n_bytes > MAX_TEXT_BYTES:
            raise FrameError(f"{self.label}: {n_bytes} bytes of text, at most {MAX_TEXT_BYTES} are accepted")
        return _text(self.label, frame[start : start + n_bytes]), padded


class _Bytes(_Kind):
    __slots__ = ()
    words = "bytes"
    code = (5, 0)
    layout = "I"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, bytes):
            raise self._wrong_type(value)
        return _append(value, head, bodies)

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        n_bytes = next(head)
        padded = self._body(frame, start, n_bytes)
        return bytes(frame[start : start + n_bytes]), padded


class _Texts(_Kind):
    """The body is the texts' lengths, then the texts."""

    __slots__ = ()
    words = "texts"
    code = (6, 0)
    layout = "II"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
            raise self._wrong_type(value)
        if len(value) > MAX_TEXTS:
            raise InvalidInput(f"{self.label} has {len(value)} texts, at most {MAX_TEXTS} fit into a frame")
        texts = [_utf8(self.label, text, MAX_TEXT_BYTES) for text in value]
        body = struct.pack(f"<{len(texts)}I", *map(len, texts)) + b"".join(texts)
        if len(body) > MAX_TEXT_BYTES:
            raise InvalidInput(f"{self.label} has {len(body)} bytes of text, at most {MAX_TEXT_BYTES} fit into a frame")
        head.append(len(texts))
        return _append(body, head, bodies)

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        count, n_bytes = next(head), next(head)
        padded = self._body(frame, start, n_bytes)
        if count > MAX_TEXTS or n_bytes > MAX_TEXT_BYTES or n_bytes < 4 * count:
            raise FrameError(f"{self.label}: {count} texts in {n_bytes} bytes")
        lengths = struct.unpack_from(f"<{count}I", frame, start)
        end = start + 4 * count
        if end + sum(lengths) != start + n_bytes:
            raise FrameError(f"{self.label}: {count} texts do not add up to {n_bytes} bytes")
        texts = []
        for length in lengths:
            begin, end = end, end + length
            texts.append(_text(self.label, frame[begin:end]))
        return tuple(texts), padded


class _Array(_Kind):
    __slots__ = ("code", "dtype", "words")
    layout = "6I"

    def __init__(self, message: str, name: str, scalar: type[np.generic]) -> None:
        super().__init__(message, name)
        self.dtype = np.dtype(scalar)
        self.code = (7, _DTYPE_CODES[scalar])
        self.words = f"array of {self.dtype.name}"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        # Exactly ndarray: a masked array, for instance, would give away what it hides.
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            got = f"array of {value.dtype}" if type(value) is np.ndarray else type(value).__name__
            raise InvalidType(f"{self.label} must be {self.words}, got {got}")
        n_dimensions = value.ndim
        if n_dimensions > MAX_DIMENSIONS:
            raise InvalidInput(f"{self.label} has {n_dimensions} dimensions, at most {MAX_DIMENSIONS} fit into a frame")
        n_bytes = value.nbytes
        head += (n_dimensions, *value.shape, *_NO_DIMENSIONS[n_dimensions], n_bytes)
        bodies.append(value if value.flags.c_contiguous else value.tobytes())
        padding = -n_bytes & 7
        if padding:
            bodies.append(_ZEROS[:padding])
        return n_bytes + padding

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        n_dimensions = next(head)
        dimensions = (next(head), next(head), next(head), next(head))
        n_bytes = next(head)
        if n_dimensions > MAX_DIMENSIONS:
            raise FrameError(f"{self.label}: {n_dimensions} dimensions, at most {MAX_DIMENSIONS} are accepted")
        shape = dimensions[:n_dimensions]
        if dimensions[n_dimensions:] != _NO_DIMENSIONS[n_dimensions]:
            raise FrameError(f"{self.label}: {n_dimensions} dimensions announced, but they are {dimensions}")
        if math.prod(shape) * self.dtype.itemsize != n_bytes:
            raise FrameError(f"{self.label}: shape {shape} of {self.dtype.name} does not take {n_bytes} bytes")
        padded = self._body(frame, start, n_bytes)
        try:
            array = np.ndarray(shape, self.dtype, frame, start)
        except ValueError:  # one dimension is 0, and the others are too large even for an array without elements
            raise FrameError(f"{self.label}: no array has shape {shape}") from None
        if self.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise FrameError(f"{self.label}: a bool is 0 or 1, got another byte")
        return array, padded


_NO_DIMENSIONS = tuple((0,) * (MAX_DIMENSIONS - n) for n in range(MAX_DIMENSIONS + 1))
_DTYPE_CODES: dict[type[np.generic], int] = {
    np.uint64: 1,
    np.int64: 2,
    np.int32: 3,
    np.uint8: 4,
    np.bool_: 5,
    np.float32: 6,
    np.float64: 7,
}
_PLAIN_KINDS: dict[Any, Callable[[str, str], Field]] = {
    bool: _Bool,
    int: _Int,
    float: _Float,
    str: _Text,
    bytes: _Bytes,
    tuple[str, ...]: _Texts,
}


def _append(body: bytes, head: list[Any], bodies: list[Any]) -> int:
    n_bytes = len(body)
    padding = -n_bytes & 7
    head.append(n_bytes)
    bodies += (body, _ZEROS[:padding])
    return n_bytes + padding


def _utf8(label: str, text: str, limit: int) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{label} cannot be written as UTF-8: {text!r}") from None
    if len(encoded) > limit:
        raise InvalidInput(f"{label} has {len(encoded)} bytes of text, at most {limit} fit into a frame")
    return encoded


def _text(label: str, encoded: bytes | memoryview) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError:
        raise FrameError(f"{label}: not UTF-8") from None


def field_for(message: str, name: str, plain: Any, scalar: type[np.generic] | None) -> Field:
    """How a field of this type is written and read; `scalar` is that of an array."""
    if plain in _PLAIN_KINDS:
        return _PLAIN_KINDS[plain](message, name)
    if scalar in _DTYPE_CODES:
        return _Array(message, name, scalar)
    raise InvalidType(f"{message}.{name} has a type that no frame can hold: {plain}")
