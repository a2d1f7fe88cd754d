"""Options of a job, each declared once: its type, its range and its meaning.

    epsilon: float | None = option(None, "of one element; math.inf is without noise", above=0, or_inf=True)
    buckets: int = option(16, "of one column, that of missing values included", at_least=2, at_most=256)

Checks, the sentences of errors and the tables of the reference follow from the declaration. The annotation says the
type, and whether None is accepted. A job is a frozen dataclass of such fields and of those that are settled by whoever
runs it (parties, run_id); rules across fields are in its `check`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.engine.boosting import BoostingParams
from hedgerow.errors import InvalidParameter

_NOUNS: dict[Any, str] = {float: "a number", int: "a whole number", bool: "True or False", str: "text"}
_LARGEST = math.ldexp(1.0, 1023)  # whole numbers beyond it are no floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """What is accepted, and what it is for. `words` completes "... must be", where the range does not say it well."""

    help: str
    above: float = -math.inf
    at_least: float = -math.inf
    below: float = math.inf
    at_most: float = math.inf
    or_inf: bool = False
    one_of: tuple[Any, ...] = ()
    words: str = ""
    needed: str = ""  # why there is no default; completes "... needs"
    parse: Callable[[str, Any], Any] | None = None  # (protocol, value) -> value, for what is not a number or a text
    settled: bool = False  # by whoever runs the job, so it is checked here, but is not an option of the protocol's own
    name: str = ""  # this and the rest follow from where it is declared
    kind: Any = Any
    or_none: bool = False
    default: Any = None

    def accepts(self) -> str:
        """What it must be, in words."""
        if self.words:
            return self.words
        if self.one_of:
            return f"one of {', '.join(map(str, self.one_of))}"
        noun = _NOUNS.get(self.kind) or f"a {getattr(self.kind, '__name__', 'value')}"
        low, high = self.at_least, self.at_most
        if math.isfinite(low) and math.isfinite(high):
            return f"{noun} between {low:g} and {high:g}"
        ends = {"above": self.above, "of at least": low, "below": self.below, "at most": high}
        told = " and ".join(f"{word} {limit:g}" for word, limit in ends.items() if math.isfinite(limit))
        return f"{noun} {told}".strip() + ", or math.inf" * self.or_inf

    def checked(self, protocol: str, value: Any) -> Any:
        """The value as a plain Python one; InvalidParameter, naming protocol, option and value, if it is refused.

        `protocol` is "" for parameters that belong to none.
        """
        if value is None and self.needed:
            raise InvalidParameter(f"{protocol} needs {self.needed}")
        if value is None and self.or_none:
            return None
        plain = value.item() if isinstance(value, np.generic) else value
        if self.parse is not None:
            return self.parse(protocol, plain)
        if self.kind is float and type(plain) is int and abs(plain) < _LARGEST:
            plain = float(plain)
        if not self._admits(plain):
            where = f"{protocol}: " if protocol else ""
            raise InvalidParameter(f"{where}{self.name} must be {self.accepts()}, got {value!r}")
        return plain

    def _admits(self, value: Any) -> bool:
        if self.one_of:
            return any(type(value) is type(known) and value == known for known in self.one_of)
        if self.kind in (int, float):
            if type(value) is not self.kind or (value == math.inf and not self.or_inf):
                return False
            if type(value) is int and abs(value) >= _LARGEST:
                return False
            return bool(
                value == math.inf or (self.above < value < self.below and self.at_least <= value <= self.at_most)
            )
        return self.kind is Any or isinstance(value, self.kind)


def option(default: Any, meaning: str, **rules: Any) -> Any:
    """A field that users set, with the keywords of `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help=meaning, **rules)})


_known: dict[Any, tuple[Option, ...]] = {}


def options_of(job: Any) -> tuple[Option, ...]:
    """All options of a class of jobs, in the order of its fields."""
    if job in _known:
        return _known[job]
    hints = typing.get_type_hints(job)
    found = []
    for field in dataclasses.fields(job):
        if (made := field.metadata.get("option")) is not None:
            kind, or_none = _kind_of(hints[field.name])
            one_of = made.one_of
            if typing.get_origin(kind) is Literal:
                one_of = one_of or typing.get_args(kind)
            found.append(
                dataclasses.replace(
                    made, name=field.name, kind=kind, or_none=or_none, default=field.default, one_of=one_of
                )
            )
    return _known.setdefault(job, tuple(found))


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """The type without None, and whether None was there."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else Any, len(kinds) < len(typing.get_args(hint))


class Settled(NamedTuple):
    """What whoever runs a training decides; the rest of its job are options."""

    parties: tuple[str, ...]
    run_id: str
    task: str
    boosting: BoostingParams
    max_bins: int
    label_holder: str | None = None


class Job(AsJson):
    """Base of all jobs: public, JSON-able, checked when it is made. A job is the same for all parties."""

    NAME: ClassVar[str]
    run_id: str

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            object.__setattr__(self, each.name, each.checked(self.NAME, getattr(self, each.name)))
        self.check()

    def check(self) -> None:
        """Rules across fields."""

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data."""
        del options
        raise InvalidParameter(
            f"{cls.NAME} trains nothing; make a {cls.__name__} for a trained model, got {settled.run_id!r}"
        )

    @property
    def cast(self) -> Mapping[str, str]:
        """Who plays which role: everybody who takes part, in order. The first one's result is the run's."""
        raise NotImplementedError

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Who talks to whom, as (who listens, who dials): everybody with the first, unless a job needs more."""
        first, *others = self.cast
        return tuple((first, other) for other in others)
