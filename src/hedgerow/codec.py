"""Dataclasses as JSON and back, by one rule for all: what a field's type says is how it is written and read.

    to_json(job)                 what `json.dumps` takes
    from_json(Job, document)     the inverse; InvalidInput, naming the field, for what does not fit

    dataclass                    an object of its fields, and of its KIND (under "kind") where the class has one
    tuple, list                  a list
    mapping                      an object
    infinity                     "inf" or "-inf", because JSON has no such numbers
    array of numbers             its type, its shape and its bytes in base64: bit for bit, and short

A field that may be left out is one with a default. Fields that nobody knows are refused. Inside of another value, a
class that has `to_dict` and `from_dict` is written and read by them.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from hedgerow.errors import InvalidInput

_ARRAY = {"dtype", "shape", "base64"}
_TOO_LARGE = 1 << 1000  # for a float
_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


class AsJson:
    """A dataclass that is written and read by its fields."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        document: dict[str, Any] = to_json(self)
        return document

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The inverse of `to_dict`, also after a round trip through JSON."""
        read: Self = from_json(cls, data)
        return read


def to_json(value: Any) -> Any:
    """The value as `json.dumps` takes it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = getattr(value, "KIND", None)
        return ({"kind": kind} if kind else {}) | {
            field.name: _written(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return _written(value)


def _written(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) or math.isnan(value) else str(float(value))
    if isinstance(value, np.generic):
        return _written(value.item())
    if isinstance(value, np.ndarray):
        text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"dtype": value.dtype.str, "shape": list(value.shape), "base64": text}
    if isinstance(value, Mapping):
        return {str(key): _written(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_written(inner) for inner in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return to_json(value)
    raise InvalidInput(f"{type(value).__name__} cannot be written as JSON")


def from_json(kind: Any, data: Any, where: str = "") -> Any:
    """A value of this type, which may be a union of classes; `where` names it in errors."""
    where = where or getattr(kind, "__name__", str(kind))
    return _read_fields(kind, data, where) if dataclasses.is_dataclass(kind) else _read(kind, data, where)


def _read(kind: Any, data: Any, where: str) -> Any:  # noqa: PLR0911 - one for each sort of type
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _read(args[0], data, where)
    if origin in (typing.Union, types.UnionType):
        return _read_one_of(args, data, where)
    if origin is Literal:
        return _expect(data in args and type(data) in map(type, args), data, where, f"one of {list(args)}")
    if kind is np.ndarray or origin is np.ndarray:
        return _read_array(data, where)
    if origin is tuple:
        return _read_tuple(args, data, where)
    if origin in (list, Sequence):
        _expect(isinstance(data, list | tuple), data, where, "a list")
        return [_read(args[0], inner, f"{where}[{k}]") for k, inner in enumerate(data)]
    if origin in (dict, Mapping):
        _expect(isinstance(data, Mapping), data, where, "an object")
        return {key: _read(args[1], inner, f"{where}.{key}") for key, inner in data.items()}
    if hasattr(kind, "from_dict"):
        return kind.from_dict(data)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, data, where)
    if kind is float and isinstance(data, str):
        return _INFINITIES[_expect(data in _INFINITIES, data, where, "a number")]
    if kind is float:
        is_number = type(data) is float or (type(data) is int and abs(data) < _TOO_LARGE)
        return float(_expect(is_number, data, where, "a number"))
    if kind in (bool, int, str):
        return _expect(type(data) is kind, data, where, f"of type {kind.__name__}")
    if kind is None or kind is type(None):
        return _expect(data is None, data, where, "null")
    return data  # Any, or a type that JSON holds as it is


def _read_one_of(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    problems = []
    for kind in sorted(kinds, key=lambda kind: kind is float):  # 4 is a whole number, where that is among the types
        try:
            return _read(kind, data, where)
        except InvalidInput as problem:
            problems.append(problem)
    raise problems[-1] if len(problems) == 1 else InvalidInput(" / ".join(dict.fromkeys(map(str, problems))))


def _read_tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list | tuple), data, where, "a list")
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(data)
    _expect(len(data) == len(args), data, where, f"a list of {len(args)}")
    return tuple(_read(kind, inner, f"{where}[{k}]") for k, (kind, inner) in enumerate(zip(args, data, strict=True)))


def _read_array(data: Any, where: str) -> np.ndarray:
    _expect(isinstance(data, Mapping) and set(data) == _ARRAY, data, where, "an array")
    try:
        values = np.frombuffer(base64.b64decode(data["base64"], validate=True), np.dtype(data["dtype"]))
        return values.reshape(data["shape"]).copy()
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"{where} is not an array: {problem}") from problem


def _read_fields(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, Mapping), data, where, "an object")
    given = dict(data)
    if getattr(kind, "KIND", None):
        _expect(given.pop("kind", None) == kind.KIND, data, f"{where}.kind", repr(kind.KIND))
    hints = _hints(kind)
    unknown = [name for name in given if name not in hints]
    if unknown:
        raise InvalidInput(f"{where} has no field {unknown[0]!r}")
    absent = [field.name for field in dataclasses.fields(kind) if _is_required(field) and field.name not in given]
    if absent:
        raise InvalidInput(f"{where} lacks the field {absent[0]!r}")
    return kind(**{name: _read(hints[name], value, f"{where}.{name}") for name, value in given.items()})


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _expect(fits: bool, data: Any, where: str, what: str) -> Any:
    if not fits:
        raise InvalidInput(f"{where} must be {what}, got {data!r}")
    return data
