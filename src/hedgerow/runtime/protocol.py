"""What every protocol offers to those who run it: a job from parameters, roles for parties, a statement at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Level, Table
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Event, NonPrivate
from hedgerow.runtime.party import Party
from hedgerow.statement import Statement


@dataclass(frozen=True)
class PartyData:
    """What a party brings: columns, and labels as numbers where it has labels (of its own classes, if classes).

    To score rows with a vertical model it brings `part`, its part of the model as a dict; to align rows, their `ids`.

    Where the protocol has public rules for rows that do not fit (`Protocol.maps_rows`), these are left to it. A label
    that is no listed class, or missing, is then of the class None, and NaN where labels are numbers. `misfits` [rows]
    says which rows had a cell that could not be read as what its column is, such as text for a number; the cell counts
    as missing. None where nobody has looked.
    """

    table: Table
    labels: Floats | None = None
    classes: tuple[Level | None, ...] | None = None
    n_threads: int = 1
    part: Mapping[str, Any] | None = None
    ids: npt.NDArray[np.generic] | None = None
    misfits: Bools | None = None


@dataclass(frozen=True)
class Request:
    """What somebody asks for, before a protocol has had a look at it."""

    parties: tuple[str, ...]
    run_id: str
    task: str
    boosting: BoostingParams
    max_bins: int
    options: Mapping[str, Any] = field(default_factory=dict)
    label_holder: str | None = None  # where columns are split: the party that has the labels


class Planned(NamedTuple):
    """What a run may cost the rows of one party at most: an event, and the delta at which it is to be counted."""

    event: Event
    delta: float = 0.0


class Protocol(ABC):
    """One protocol. The job it makes is public and JSON-able; what `play` returns has a `to_dict`."""

    name: ClassVar[str]
    partition: ClassVar[str]  # "rows" or "columns"
    options: ClassVar[frozenset[str]]  # parameters of its own, beside those of trees
    shares: ClassVar[tuple[str, ...]] = ()  # modules whose messages it sends too, in common with other protocols
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # of trees, where they are not the estimators'

    def variant(self, options: dict[str, Any]) -> Protocol:
        """The protocol that these options of this one stand for; takes out what has been decided by that."""
        del options  # most have no variants
        return self

    def maps_rows(self, options: Mapping[str, Any], *, has_labels: bool) -> bool:
        """Whether the role of a party, with labels or without, has public rules for rows that do not fit.

        That is, fit what is declared in these options. Then whoever reads the party's table must not raise because of a
        row either, but leaves it to the role.
        """
        del options, has_labels
        return False

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

    def planned(self, job: Any, party: str, data: PartyData) -> Planned | None:
        """What the rows that a party brings can lose at most in a run of this job, whoever learns it.

        None where nothing depends on them; an event without guarantee where something does that has none.
        """
        del job, party, data
        return Planned(NonPrivate(f"{self.name} releases without noise"))

    def charges_itself(self, job: Any, party: str) -> bool:
        """Whether a role calls `Party.charge`, because only on the way it learns whether the run costs anything."""
        del job, party
        return False

    @abstractmethod
    def rehearse(self, job: Any) -> None:
        """Get every kernel compiled that a run of this job needs, on made-up data."""

    def result_from_dict(self, data: Mapping[str, Any]) -> Any:
        """What `play` returned, from its `to_dict` after a way through JSON."""
        return Ensemble.from_dict(data)

    @abstractmethod
    def statement(self, job: Any, meta: Mapping[str, Any]) -> Statement:
        """What a finished run guarantees and what it does not; `meta` is what the model says about its training."""


_TRAINING = {
    "horizontal.secure_sum": "horizontal.secure_sum",
    "vertical.bucket_rr": "vertical.bucket_rr",
    "vertical.noised_gradients": "vertical.noised_gradients",
    "vertical.masked_gradients": "published.masked_gradients",
    "vertical.private_histograms": "vertical.private_histograms",
    "vertical.secret_shared": "vertical.secret_shared",
    "vertical.mp_fedxgb": "published.mp_fedxgb",
}
_SERVICES = {
    "vertical.aligning": "services.align",
    "vertical.scoring": "services.score",
    "vertical.closed_scoring": "services.score_closed",
    "vertical.explaining": "services.explain",
}
"""Name of a protocol -> its folder in `protocols`, whose `protocol` has a PROTOCOL."""


def names() -> tuple[str, ...]:
    """All protocols that several parties can train a model with."""
    return tuple(_TRAINING)


def services() -> tuple[str, ...]:
    """What parties do together before and after training."""
    return tuple(_SERVICES)


def find(name: str) -> Protocol:
    """The protocol of this name; loaded when it is first asked for."""
    folder = _TRAINING.get(name) or _SERVICES.get(name)
    if folder is None:
        raise InvalidParameter(f"there is no protocol {name!r}; there are {', '.join(_TRAINING)}")
    found: Protocol = import_module(f"hedgerow.protocols.{folder}.protocol").PROTOCOL
    return found
