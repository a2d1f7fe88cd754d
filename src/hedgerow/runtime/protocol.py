"""A protocol as it is declared: its job, its roles, its messages, its statement. And where each one is.

    SPEC = Protocol(Job, roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder}, messages=(...),
                    statement=statement, warmup=warmup)

`play` is one party's role, wherever it plays: as a thread, as a process, on another organisation's machine. A spec is
in `spec.py` of the protocol's folder, so that importing its messages loads no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Level, Table
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Event, NonPrivate
from hedgerow.runtime.options import Job, options_of
from hedgerow.runtime.party import Party
from hedgerow.statement import Statement
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.frames import FORMAT_VERSION, Message
from hedgerow.transport.grpc_envelope import WIRE_VERSION

LABEL_HOLDER, FEATURE_HOLDER, DEALER = "label holder", "feature holder", "dealer"
COORDINATOR, OWNER = "coordinator", "owner"
ROWS: Literal["rows"] = "rows"
COLUMNS: Literal["columns"] = "columns"


@dataclass(frozen=True)
class PartyData:
    """What a party brings: columns, and labels as numbers where it has labels (of its own classes, if classes).

    To score rows with a vertical model it brings `part`, its part of the model; to align rows, their `ids`.

    Where the protocol has public rules for rows that do not fit (`Protocol.maps_rows`), these are left to it. A label
    that is no listed class, or missing, is then of the class None, and NaN where labels are numbers. `misfits` [rows]
    says which rows had a cell that could not be read as what its column is, such as text for a number; the cell counts
    as missing. None where nobody has looked.
    """

    table: Table
    labels: Floats | None = None
    classes: tuple[Level | None, ...] | None = None
    n_threads: int = 1
    part: Any = None
    ids: npt.NDArray[np.generic] | None = None
    misfits: Bools | None = None


Role = Callable[[Party, Any, PartyData | None], Any]
Rehearsal = tuple[Any, Callable[[], Mapping[str, PartyData]]]
"""A small job that needs the same kernels, and what makes up rows for it."""


class Planned(NamedTuple):
    """What a run may cost the rows of one party at most: an event, and the delta at which it is to be counted."""

    event: Event
    delta: float = 0.0


def _releases_without_noise(job: Any, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    return Planned(NonPrivate(f"{job.NAME} releases without noise"))


@dataclass(frozen=True, eq=False)
class Protocol:
    """One protocol, declared. What a role returns has a `to_dict`, and `result` reads it."""

    job: type[Job]
    roles: Mapping[str, Role]
    messages: tuple[type[Message], ...]
    statement: Callable[[Any, Mapping[str, Any]], Statement]
    """What a finished run guarantees and what it does not, from the job and what the model says about its training."""
    warmup: Callable[[Any], Rehearsal | None]
    """For a job, one of the same kernels on made-up rows; None where no kernel is compiled."""
    result: Callable[[Mapping[str, Any]], Any] = Ensemble.from_dict
    partition: Literal["rows", "columns"] = COLUMNS
    defaults: Mapping[str, Any] | None = None
    """Of trees, where they are not the estimators'."""
    maps_rows: Callable[[Mapping[str, Any], bool], bool] = lambda _options, _has_labels: False
    """Whether the role of a party, with labels or without, has public rules for rows that do not fit these options.

    Then whoever reads the party's table must not raise because of a row either, but leaves it to the role.
    """
    planned: Callable[[Any, str, PartyData], Planned | None] = _releases_without_noise
    """What the rows that a party brings can lose at most in a run of this job, whoever learns it.

    None where nothing depends on them; an event without guarantee where something does that has none.
    """
    charges_itself: Callable[[Any, str], bool] = lambda _job, _party: False
    """Whether a role calls `Party.charge`, because only on the way it learns whether the run costs anything."""
    variant: Callable[[dict[str, Any]], str | None] = lambda _options: None
    """The protocol that these options stand for, if it is another one; takes out what has been decided by that."""
    of_variants: frozenset[str] = frozenset()
    """Options that are for its variants alone."""
    part: Callable[[Mapping[str, Any]], Any] | None = None
    """Reads the part of a model that a party brings, where it brings one."""

    @property
    def name(self) -> str:
        """As users write it."""
        return self.job.NAME

    @property
    def options(self) -> frozenset[str]:
        """Parameters of its own, beside those of trees."""
        return self.of_variants | {each.name for each in options_of(self.job) if not each.settled}

    def parties(self, job: Job) -> tuple[str, ...]:
        """Everybody who takes part; the first one's result is the run's."""
        return tuple(job.cast)

    def play(self, me: Party, job: Job, data: PartyData | None) -> Any:
        """One party's role, from the first message to the end."""
        return self.roles[job.cast[me.name]](me, job, data)


# --- what parties compare before their first message -----------------------------------------------------------------

OWN = frozenset({"cache"})
"""Fields of a job that say where a party keeps files of its own: folders need not have the same name everywhere."""


def agreed(protocol: Protocol, job: Any) -> Agreed:
    """The digests of a job and of the versions of all that carries it: each party derives them from its own copy."""
    return Agreed.of(
        {
            **{name: value for name, value in job.to_dict().items() if name not in OWN},
            "protocol": protocol.name,
            "wire version": WIRE_VERSION,
            "format version": FORMAT_VERSION,
            "messages": sorted((kind.NAME, kind.VERSION) for kind in protocol.messages),
        }
    )


# --- where each protocol is ------------------------------------------------------------------------------------------

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
"""Name of a protocol -> its folder in `protocols`, whose `spec` has a SPEC."""


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
    found: Protocol = import_module(f"hedgerow.protocols.{folder}.spec").SPEC
    return found
