"""Frames: how a message is written down as bytes, and read back without trusting a single one of them.

A message is a frozen dataclass; its fields are its schema:

    @dataclass(frozen=True, slots=True)
    class LevelSums(Message, name="horizontal.level_sums", version=1):
        discloses = ...
        tree: int
        values: UInt64s

A frame (all numbers little-endian) is

    schema   "HDGR", format version, message version, lengths; message name; per field: name, kind, dtype; zeros
    head     8 bytes per bool, int or float; length of each text and bytes; count and length of each tuple of texts;
             number of dimensions, four dimensions and length of each array
    bodies   of the texts, bytes and arrays, in the order of the fields, each padded with zeros to a multiple of 8

The schema comes first and is the same for every message of a class, so checking it is one comparison, and the head is
one `struct`. Schema and head together are a multiple of 8 bytes long, so that every array is aligned within its frame
and is used where it lies: a kernel compiled for aligned arrays is not compiled again for a received one.

There is exactly one frame for a message: padding is zero, nothing follows the last body. Two messages are equal if
their frames are. What the bytes mean to a protocol is not known here; a class may check that in `__post_init__`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
import struct
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.errors import FrameError, HedgerowError, InvalidInput, InvalidType, TransportError, VersionMismatch

FORMAT_VERSION = 1
MAX_FRAME_BYTES = 256 << 20
MAX_FIELDS = 64
MAX_NAME_BYTES = 64  # of a message or a field
MAX_TEXT_BYTES = 16 << 20  # of one text, or of all texts of a tuple together
MAX_TEXTS = 1 << 20
MAX_DIMENSIONS = 4

_MAGIC = b"HDGR"
_ZEROS = bytes(8)
_OPENING = struct.Struct("<4sHHBB")  # magic, format version, message version, length of the name, number of fields
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


# --- types of fields -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ArrayOf:
    """Marks a field as an array of exactly this type, of any shape with up to four dimensions."""

    scalar: type[np.generic]


UInt64s: TypeAlias = Annotated[npt.NDArray[np.uint64], ArrayOf(np.uint64)]
Int64s: TypeAlias = Annotated[npt.NDArray[np.int64], ArrayOf(np.int64)]
Int32s: TypeAlias = Annotated[npt.NDArray[np.int32], ArrayOf(np.int32)]
UInt8s: TypeAlias = Annotated[npt.NDArray[np.uint8], ArrayOf(np.uint8)]
Bools: TypeAlias = Annotated[npt.NDArray[np.bool_], ArrayOf(np.bool_)]
Float32s: TypeAlias = Annotated[npt.NDArray[np.float32], ArrayOf(np.float32)]
Float64s: TypeAlias = Annotated[npt.NDArray[np.float64], ArrayOf(np.float64)]


def scalar_of(hint: Any) -> type[np.generic] | None:
    """The type of the elements, if this is the annotation of an array."""
    return next((mark.scalar for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, ArrayOf)), None)


def plain_type(hint: Any) -> Any:
    """The type under the marks."""
    return typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


# --- messages --------------------------------------------------------------------------------------------------------


class Message:
    """Base of all messages. A subclass gives its name and version: `class X(Message, name="horizontal.x", version=1)`.

    Field types: bool, int (64 bits, signed), float, str, bytes, tuple[str, ...] and the arrays UInt64s to Float64s.
    """

    __slots__ = ()

    NAME: ClassVar[str]
    VERSION: ClassVar[int]
    discloses: ClassVar[Any]  # what the receiver learns; read by the party, of no meaning here
    _ORIGIN: ClassVar[str]

    def __init_subclass__(cls, *, name: str | None = None, version: int | None = None, is_base: bool = False) -> None:
        super().__init_subclass__()
        if is_base:  # of messages with something in common; it is never sent itself
            return
        # dataclass(slots=True) makes the class a second time, from its attributes, without the keywords of the first.
        if name is not None or version is not None or "NAME" not in cls.__dict__:
            cls.NAME, cls.VERSION = _checked_identity(cls, name, version)
            cls._ORIGIN = f"{cls.__module__}.{cls.__qualname__}"
        # The same place in the same module is the same class, made a second time or loaded again.
        origin = _origins.setdefault(cls.NAME, cls._ORIGIN)
        if origin != cls._ORIGIN:
            raise InvalidInput(f"{cls._ORIGIN} and {origin} are both called {cls.NAME!r}")
        _registry[cls.NAME] = cls


M = TypeVar("M", bound=Message)
_registry: dict[str, type[Message]] = {}
_origins: dict[str, str] = {}


def registered() -> Mapping[str, type[Message]]:
    """All message classes loaded so far, by name."""
    return MappingProxyType(_registry)


def schema(cls: type[Message]) -> dict[str, str]:
    """Field names of a message class with their kinds in words, for documentation."""
    return {field.name: field.words for field in _plan_of(cls).fields}


def _checked_identity(cls: type, name: str | None, version: int | None) -> tuple[str, int]:
    where = f"{cls.__module__}.{cls.__qualname__}"
    if name is None or version is None:
        raise InvalidType(f"{where} needs a name and a version: class {cls.__name__}(Message, name=..., version=...)")
    if len(name) > MAX_NAME_BYTES or not _NAME.fullmatch(name):
        raise InvalidInput(f"{where}: a message's name is words in lower case joined by dots, got {name!r}")
    if not 1 <= version <= 0xFFFF:
        raise InvalidInput(f"{where}: a message's version is between 1 and 65535, got {version}")
    return name, version


# --- kinds of fields -------------------------------------------------------------------------------------------------


class _Kind:
    """How a field is written and read: an entry of fixed size in the head and, if its size varies, a body after it.

    Writing checks that the value is what the message class says; reading takes nothing for granted, and answers with a
    FrameError.
    """

    __slots__ = ("label", "name")
    words: str
    code: tuple[int, int]  # kind, dtype
    layout: str  # in the head

    def __init__(self, message: str, name: str) -> None:
        self.name = name
        self.label = f"{message}.{name}"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        """Append to head and bodies; how many bytes the body takes with its padding."""
        raise NotImplementedError

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        """The value, and where the next body starts."""
        raise NotImplementedError

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


class _Int(_Kind):
    __slots__ = ()
    words, code, layout = "int", (2, 0), "q"
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
    words, code, layout = "float", (3, 0), "d"
    accepted = (float, np.floating)


class _Bool(_Int):
    __slots__ = ()
    words, code, layout = "bool", (1, 0), "Q"
    accepted = (bool, np.bool_)

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        size = super().write(value, head, bodies)
        head[-1] = int(value)
        return size

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:  # noqa: ARG002 - as above
        value = next(head)
        if value > 1:
            raise FrameError(f"{self.label}: a bool is 0 or 1, got {value}")
        return value == 1, start


class _Bytes(_Kind):
    __slots__ = ()
    words, code, layout = "bytes", (5, 0), "I"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, bytes):
            raise self._wrong_type(value)
        return _append(value, len(value), head, bodies)

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        n_bytes = next(head)
        padded = self._body(frame, start, n_bytes)
        return bytes(frame[start : start + n_bytes]), padded


class _Text(_Bytes):
    __slots__ = ()
    words, code = "text", (4, 0)

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, str):
            raise self._wrong_type(value)
        return super().write(_utf8(self.label, value), head, bodies)

    def read(self, frame: bytes | memoryview, head: Iterator[Any], start: int) -> tuple[Any, int]:
        encoded, padded = super().read(frame, head, start)
        if len(encoded) > MAX_TEXT_BYTES:
            raise FrameError(f"{self.label}: {len(encoded)} bytes of text, at most {MAX_TEXT_BYTES} are accepted")
        return _text(self.label, encoded), padded


class _Texts(_Kind):
    """The body is the texts' lengths, then the texts."""

    __slots__ = ()
    words, code, layout = "texts", (6, 0), "II"

    def write(self, value: Any, head: list[Any], bodies: list[Any]) -> int:
        if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
            raise self._wrong_type(value)
        if len(value) > MAX_TEXTS:
            raise InvalidInput(f"{self.label} has {len(value)} texts, at most {MAX_TEXTS} fit into a frame")
        texts = [_utf8(self.label, text) for text in value]
        body = struct.pack(f"<{len(texts)}I", *map(len, texts)) + b"".join(texts)
        if len(body) > MAX_TEXT_BYTES:
            raise InvalidInput(f"{self.label} has {len(body)} bytes of text, at most {MAX_TEXT_BYTES} fit into a frame")
        head.append(len(texts))
        return _append(body, len(body), head, bodies)

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
        head += (n_dimensions, *value.shape, *_NO_DIMENSIONS[n_dimensions])
        return _append(value if value.flags.c_contiguous else value.tobytes(), value.nbytes, head, bodies)

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
    scalar: code
    for code, scalar in enumerate((np.uint64, np.int64, np.int32, np.uint8, np.bool_, np.float32, np.float64), start=1)
}
_PLAIN_KINDS: dict[Any, type[_Kind]] = {
    bool: _Bool,
    int: _Int,
    float: _Float,
    str: _Text,
    bytes: _Bytes,
    tuple[str, ...]: _Texts,
}


def _append(body: Any, n_bytes: int, head: list[Any], bodies: list[Any]) -> int:
    padding = -n_bytes & 7
    head.append(n_bytes)
    bodies += (body, _ZEROS[:padding])
    return n_bytes + padding


def _utf8(label: str, text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{label} cannot be written as UTF-8: {text!r}") from None
    if len(encoded) > MAX_TEXT_BYTES:
        raise InvalidInput(f"{label} has {len(encoded)} bytes of text, at most {MAX_TEXT_BYTES} fit into a frame")
    return encoded


def _text(label: str, encoded: bytes | memoryview) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError:
        raise FrameError(f"{label}: not UTF-8") from None


def _kind_for(message: str, name: str, hint: Any) -> _Kind:
    plain, scalar = plain_type(hint), scalar_of(hint)
    if plain in _PLAIN_KINDS:
        return _PLAIN_KINDS[plain](message, name)
    if scalar in _DTYPE_CODES:
        return _Array(message, name, scalar)
    raise InvalidType(f"{message}.{name} has a type that no frame can hold: {plain}")


# --- plans -----------------------------------------------------------------------------------------------------------


F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """functools.cache under the function's own type; mypy does not accept classes as arguments of the plain one."""
    return functools.cache(function)  # type: ignore[return-value]  # as just said


class _Plan:
    """All that is known about the frames of one class before any message is there."""

    __slots__ = ("cls", "fields", "head", "opening", "start", "values")

    def __init__(self, cls: type[Message]) -> None:
        self.cls = cls
        self.fields = _fields_of(cls)
        self.values = _values_getter([field.name for field in self.fields])
        self.head = struct.Struct("<" + "".join(field.layout for field in self.fields))
        name = cls.NAME.encode("ascii")
        opening = _OPENING.pack(_MAGIC, FORMAT_VERSION, cls.VERSION, len(name), len(self.fields)) + name
        for field in self.fields:
            opening += bytes([len(field.name)]) + field.name.encode("ascii") + bytes(field.code)
        opening += bytes(-(len(opening) + self.head.size) % 8)
        self.opening = opening
        self.start = len(opening) + self.head.size  # of the first body


@cached
def _plan_of(cls: type[Message]) -> _Plan:
    return _Plan(cls)


def _fields_of(cls: type[Message]) -> tuple[_Kind, ...]:
    if "__dataclass_fields__" not in cls.__dict__:  # in a base class would not do
        raise InvalidType(f"{cls.__module__}.{cls.__qualname__} must be a dataclass to be written as a frame")
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)  # type: ignore[arg-type]  # checked just now
    if len(fields) > MAX_FIELDS:
        raise InvalidType(f"{cls.NAME} has {len(fields)} fields, at most {MAX_FIELDS} fit into a frame")
    for field in fields:
        if not field.init or field.kw_only or not field.name.isascii() or len(field.name) > MAX_NAME_BYTES:
            raise InvalidType(f"{cls.NAME}.{field.name} must be a positional field with a short ASCII name")
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_kind_for(cls.NAME, field.name, hints[field.name]) for field in fields)


def _values_getter(names: list[str]) -> Callable[[Message], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


# --- writing and reading ---------------------------------------------------------------------------------------------


def encode(message: Message, *, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The frame of a message. InvalidType or InvalidInput if a field's value is not what its class says."""
    plan = _plan_of(type(message))
    head: list[Any] = []
    parts: list[Any] = [plan.opening, b""]
    n_bytes = plan.start
    for field, value in zip(plan.fields, plan.values(message), strict=True):
        n_bytes += field.write(value, head, parts)
    if n_bytes > max_bytes:
        raise InvalidInput(f"{plan.cls.NAME}: the frame would have {n_bytes} bytes, the limit is {max_bytes}")
    try:
        parts[1] = plan.head.pack(*head)
    except struct.error:  # the only numbers that are not checked yet
        raise InvalidInput(f"{plan.cls.NAME}: a length or dimension does not fit into 32 bits") from None
    return b"".join(parts)


def decode(frame: bytes | memoryview, expected: type[M], *, max_bytes: int = MAX_FRAME_BYTES) -> M:
    """The message of a frame. Arrays are read-only and lie within the frame's bytes.

    VersionMismatch if it is another version of the expected message, FrameError for whatever else is not exactly it.
    """
    plan = _plan_of(expected)
    if type(frame) is not bytes:
        frame = _lasting(frame)
    n_bytes = len(frame)
    if n_bytes > max_bytes:
        raise FrameError(f"{plan.cls.NAME}: a frame of {n_bytes} bytes, the limit is {max_bytes}")
    opening = plan.opening
    if frame[: len(opening)] != opening:
        raise _unexpected(frame, plan)
    start = plan.start
    if n_bytes < start:
        raise FrameError(f"{plan.cls.NAME}: the frame ends after {n_bytes} bytes")
    head = iter(plan.head.unpack_from(frame, len(opening)))
    values = []
    for field in plan.fields:
        value, start = field.read(frame, head, start)
        values.append(value)
    if start != n_bytes:
        raise FrameError(f"{plan.cls.NAME}: {n_bytes - start} bytes after the last field")
    try:
        return expected(*values)
    except TransportError:
        raise
    except (HedgerowError, ArithmeticError, LookupError, TypeError, ValueError) as failure:  # of __post_init__
        raise FrameError(f"{plan.cls.NAME}: {failure}") from failure


def peek(frame: bytes | memoryview) -> tuple[str, int]:
    """Name and version of the message in a frame, whatever else is in it."""
    if len(frame) < _OPENING.size:
        raise FrameError(f"a frame of {len(frame)} bytes is too short to be one")
    magic, format_version, version, length, _ = _OPENING.unpack_from(frame)
    if magic != _MAGIC:
        raise FrameError(f"not a frame: it begins with {magic!r}")
    if format_version != FORMAT_VERSION:
        raise _mismatch("the peer writes frames of", format_version, FORMAT_VERSION)
    try:
        name = str(frame[_OPENING.size : _OPENING.size + length], "ascii")
    except UnicodeDecodeError:
        name = ""
    if len(name) != length or length > MAX_NAME_BYTES or not _NAME.fullmatch(name) or version == 0:
        raise FrameError("a frame without the name and version of a message")
    return name, version


def _unexpected(frame: bytes | memoryview, plan: _Plan) -> FrameError | VersionMismatch:
    name, version = peek(frame)
    if name != plan.cls.NAME:
        return FrameError(f"expected {plan.cls.NAME}, got {name}")
    if version != plan.cls.VERSION:
        return _mismatch(f"{name}: the peer speaks", version, plan.cls.VERSION)
    return FrameError(f"{name}: fields are not those of version {version}")


def _mismatch(says: str, theirs: int, ours: int) -> VersionMismatch:
    older = "the peer" if theirs < ours else "this side"
    return VersionMismatch(f"{says} version {theirs}, this is version {ours}; {older} needs a newer hedgerow")


def _lasting(frame: bytes | memoryview) -> bytes | memoryview:
    """The same bytes, copied unless they are aligned and nobody can change them."""
    # A read-only view is not enough: the bytearray under it can still change, so the memory has to be that of bytes.
    if isinstance(frame, memoryview) and isinstance(frame.obj, bytes) and frame.c_contiguous and frame.nbytes >= 8:
        frame = frame.cast("B")
        if np.ndarray((1,), np.uint64, frame).flags.aligned:
            return frame
    return bytes(frame)


if sys.byteorder != "little":  # pragma: no cover - no such machine is supported by numba either
    raise ImportError("hedgerow's frames are read and written on little-endian machines only")
