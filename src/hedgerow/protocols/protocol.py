"""What every protocol offers to those who run it: a job from parameters, roles for parties, a statement at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import Floats
from hedgerow.engine.table import Level, Table
from hedgerow.errors import InvalidParameter
from hedgerow.party import Party


@dataclass(frozen=True)
class PartyData:
    """What a party brings: columns, and labels as numbers where it has labels (of its own classes, if classes)."""

    table: Table
    labels: Floats | None = None
    classes: tuple[Level, ...] | None = None
    n_threads: int = 1


@dataclass(frozen=True)
class Request:
    """What somebody asks for, before a protocol has had a look at it."""

    parties: tuple[str, ...]
    run_id: str
    task: str
    boosting: BoostingParams
    max_bins: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """What holds after a run, in words and as facts for machines."""

    words: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return self.words

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"words": self.words, **self.facts}


class Protocol(ABC):
    """One protocol. The job it makes is public and JSON-able; what `play` returns has a `to_dict`."""

    name: ClassVar[str]
    partition: ClassVar[str]  # "rows" or "columns"
    options: ClassVar[frozenset[str]]  # parameters of its own, beside those of trees

    @abstractmethod
    def job(self, request: Request) -> Any:
        """The job, with everything checked that can be checked without data."""

    @abstractmethod
    def job_from_dict(self, data: Mapping[str, Any]) -> Any:
        """A job that was written down with its `to_dict`."""

    @abstractmethod
    def parties(self, job: Any) -> tuple[str, ...]:
        """Everybody who takes part; the first one's result is the run's."""

    def links(self, job: Any) -> tuple[tuple[str, str], ...]:
        """Who talks to whom, as (who listens, who dials): everybody with the first, unless the protocol needs more."""
        first, *others = self.parties(job)
        return tuple((first, other) for other in others)

    @abstractmethod
    def play(self, me: Party, job: Any, data: PartyData | None) -> Any:
        """One party's role, from the first message to the end."""

    @abstractmethod
    def rehearse(self, job: Any) -> None:
        """Get every kernel compiled that a run of this job needs, on made-up data."""

    @abstractmethod
    def statement(self, job: Any, meta: Mapping[str, Any]) -> Statement:
        """What a finished run guarantees and what it does not; `meta` is what the model says about its training."""


def _secure_sum() -> Protocol:
    from hedgerow.protocols.horizontal.secure_sum.protocol import PROTOCOL

    return PROTOCOL


_LOADERS: dict[str, Callable[[], Protocol]] = {"horizontal.secure_sum": _secure_sum}


def names() -> tuple[str, ...]:
    """All protocols that several parties can run."""
    return tuple(_LOADERS)


def find(name: str) -> Protocol:
    """The protocol of this name; loaded when it is first asked for."""
    if name not in _LOADERS:
        raise InvalidParameter(f"there is no protocol {name!r}; there are {', '.join(_LOADERS)}")
    return _LOADERS[name]()
