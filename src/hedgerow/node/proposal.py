"""The document that all parties sign before anything runs: which job, who takes part with what, until when.

    proposal = propose(read_job_file("job.toml"), home)        # made by one party
    proposal.hash                                              # stands for all of it; this is what is signed
    proposal.job                                               # derived by everybody alike, never sent

A proposal holds what the proposer wrote: a protocol, its parameters, seats. The job that parties compare when they
connect is derived from that by each of them, so there are no two descriptions that could disagree. Nothing in a
proposal is secret, and nothing in it was read off rows, but for names of columns where rows are split and a parameter
speaks of columns.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from hedgerow._version import __version__
from hedgerow.codec import AsJson, to_json
from hedgerow.errors import InvalidInput, InvalidParameter, JobError, PeerRefused
from hedgerow.federation.federation import Chosen
from hedgerow.node import documents
from hedgerow.node.addresses import check_address
from hedgerow.node.job_file import SCORINGS
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.protocols.vertical.private_histograms.job import GROWN
from hedgerow.runtime.protocol import (
    COORDINATOR,
    DEALER,
    FEATURE_HOLDER,
    LABEL_HOLDER,
    OWNER,
    ROWS,
    Job,
    find,
)
from hedgerow.schema import Schema
from hedgerow.transport.mtls import check_party_names

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.job_file import JobFile, Seat

FORMAT, VERSION = "hedgerow proposal", 1
MOST_PARTIES = 256
NOT_SERVED = "its leaf values are shared between the parties, and with such a model only tables are scored"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Place(AsJson):
    """One party's seat. Without an address it dials, and nobody can dial it."""

    name: str
    role: str
    fingerprint: str  # of the certificate that it has to show
    dataset: str | None = None  # as its own party.toml calls it; None: it decides
    address: str | None = None


@dataclass(frozen=True)
class Proposal(AsJson):
    """What is proposed. Making one checks all of it, whoever wrote it."""

    run_id: str
    proposed_by: str
    made: str
    expires: str
    protocol: str
    task: str
    parties: tuple[Place, ...]  # in the order in which columns count
    params: Mapping[str, Any]  # of trees and of the protocol, as JSON
    columns: tuple[tuple[str, bool], ...] = ()  # name, and whether it has levels; where a parameter speaks of columns
    matching: Mapping[str, Any] | None = None  # how ids are compared; None: rows are the same ones in the same order
    scoring: str = "no"  # what is done with the model afterwards, one of job_file.SCORINGS
    hedgerow: str = __version__
    format: str = FORMAT
    version: int = VERSION

    def __post_init__(self) -> None:
        if (self.format, self.version) != (FORMAT, VERSION):
            raise InvalidInput(f"this is not a {FORMAT} of version {VERSION}; bring both programs to one version")
        if not _RUN_ID.fullmatch(self.run_id):
            raise InvalidInput(f"a proposal's run_id is 32 hexadecimal digits, got {self.run_id[:40]!r}")
        if not 2 <= len(self.parties) <= MOST_PARTIES:
            raise InvalidInput(f"a proposal is for 2 to {MOST_PARTIES} parties, got {len(self.parties)}")
        names = tuple(place.name for place in self.parties)
        check_party_names(names)
        if len(set(names)) < len(names) or self.proposed_by not in names:
            raise InvalidInput(f"parties must have different names, the proposer's among them, got {list(names)}")
        if self.scoring not in SCORINGS:
            raise InvalidInput(f"a proposal's scoring is one of {', '.join(SCORINGS)}, got {self.scoring[:40]!r}")
        for place in self.parties:
            if not _FINGERPRINT.fullmatch(place.fingerprint):
                raise InvalidInput(f"the fingerprint of {place.name} is not one of a certificate")
            if place.address is not None:
                check_address(place.address)
        if documents.moment(self.expires, "expires") <= documents.moment(self.made, "made"):
            raise InvalidInput(f"a proposal expires after it was made, got {self.made} and {self.expires}")
        self._check_seats()

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """From what somebody wrote; InvalidInput, in words, for another version, whose fields are not known."""
        version = data.get("version") if isinstance(data, Mapping) else None
        if type(version) is int and version != VERSION:
            who = "a newer hedgerow wrote it: update this one" if version > VERSION else "an older hedgerow wrote it"
            raise InvalidInput(
                f"it is a proposal of version {version}, and this program reads version {VERSION}; {who}"
            )
        return super().from_dict(data)

    def _check_seats(self) -> None:
        cast = dict(self.job.cast)
        for place in self.parties:
            role = cast.pop(place.name, None)
            if role is None:
                raise InvalidInput(f"{place.name} has a seat, but no role in {self.protocol}")
            if role != place.role:
                raise InvalidInput(f"{place.name} is to be {place.role}, but in {self.protocol} it is {role}")
        if cast:
            absent, role = next(iter(cast.items()))
            raise InvalidInput(
                f"{self.protocol} needs a party {absent!r} as {role}: add [parties.{absent}] with role = {role!r}"
            )
        for one, other in self._links():
            if self.place(one).address is None and self.place(other).address is None:
                raise InvalidInput(
                    f"{one} and {other} have to talk to each other, but neither has an address to be dialled at: one "
                    "of them needs bind (and advertise) under [network] in its party.toml, and to pair again"
                )

    # --- what follows from it ----------------------------------------------------------------------------------------

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the whole document, in hexadecimal digits."""
        return hashlib.sha256(documents.canonical(self.to_dict())).hexdigest()

    @cached_property
    def chosen(self) -> Chosen:
        """Protocol and parameters, checked."""
        params: dict[str, Any] = {n: math.inf if value == "inf" else value for n, value in self.params.items()}
        if isinstance(params.get("schema"), Mapping):
            params["schema"] = Schema.from_dict(params["schema"])
        return Chosen.of(self.protocol, params, partition=find(self.protocol).partition, task=self.task)

    @cached_property
    def job(self) -> Job:
        """The training, the same for all."""
        made: Job = self.chosen.job(self.owners_of_data, self.label_holder, self.columns, self.run_id)
        return made

    @cached_property
    def matching_job(self) -> AligningJob | None:
        """How rows are found, where ids are compared first."""
        if self.matching is None:
            return None
        first = self.label_holder or self.owners_of_data[0]
        run_id = f"{self.run_id}-matching"
        return AligningJob(parties=self.owners_of_data, run_id=run_id, comparer=first, **self.matching)

    @property
    def owners_of_data(self) -> tuple[str, ...]:
        """Who brings rows, in the order of the seats."""
        roles = (LABEL_HOLDER, FEATURE_HOLDER, OWNER)
        brings = [p for p in self.parties if p.role in roles or (p.role == COORDINATOR and p.name != COORDINATOR)]
        return tuple(place.name for place in brings)

    @property
    def label_holder(self) -> str | None:
        """Who has the labels, where columns are split."""
        return next((place.name for place in self.parties if place.role == LABEL_HOLDER), None)

    @property
    def leaves_are_shared(self) -> bool:
        """Whether nobody alone knows the leaf values of its model, which is scored closed then, with the dealer."""
        name = self.chosen.protocol.name  # an option may have chosen another than was asked for
        return name == "vertical.mp_fedxgb" or getattr(self.job, "policy", None) == GROWN

    def place(self, name: str) -> Place:
        """A party's seat; InvalidInput if it has none."""
        for place in self.parties:
            if place.name == name:
                return place
        raise InvalidInput(f"{name} has no seat in the proposal; those are for {[p.name for p in self.parties]}")

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Whom a party talks to, in any part of the run."""
        linked = (b if a == name else a for a, b in self._links() if name in (a, b))
        return tuple(dict.fromkeys(linked))

    def dials(self, name: str, links: tuple[tuple[str, str], ...]) -> dict[str, str]:
        """Whom a party dials in a part of the run with these links, and where; all others dial it.

        Of two that have an address, the one that the job would let listen is dialled.
        """
        found = {}
        for first, second in links:
            listens, dials = (first, second) if self.place(first).address is not None else (second, first)
            address = self.place(listens).address
            if dials == name and address is not None:
                found[listens] = address
        return found

    def _links(self) -> tuple[tuple[str, str], ...]:
        matching = () if self.matching_job is None else self.matching_job.links
        return (*self.job.links, *matching)

    def check_now(self, now: dt.datetime | None = None) -> None:
        """JobError if it has expired."""
        if documents.moment(self.expires, "expires") < (now or dt.datetime.now(dt.UTC)):
            raise JobError(f"the proposal {self.hash[:12]} expired at {self.expires}; propose it again")


# --- making one ------------------------------------------------------------------------------------------------------


def propose(wanted: JobFile, home: Home) -> Proposal:
    """From a job file, by the party whose home this is; errors name the file and what to write instead."""
    own = home.name
    if own not in wanted.parties:
        raise JobError(f"{wanted.path}: [parties] does not name {own}, whose home this is")
    is_rows = find(wanted.protocol).partition == ROWS
    seats = {name: _role(name, seat, wanted, home, is_rows=is_rows) for name, seat in wanted.parties.items()}
    params = dict(wanted.options)
    params.setdefault("random_state", secrets.randbelow(1 << 31))
    for name, role in seats.items():
        if role == DEALER:
            params.setdefault("dealer", name)
        if role == COORDINATOR and wanted.parties[name].dataset is not None:
            params["coordinator"] = name
    columns: tuple[tuple[str, bool], ...] = ()
    if is_rows and params.get("monotonic_cst") is not None:
        columns = _own_columns(home, wanted.parties[own].dataset)
    matching = None
    if wanted.matching is not None:
        given = asdict(wanted.matching)
        matching = {name: value for name, value in given.items() if value is not None}
    now = dt.datetime.now(dt.UTC)
    try:
        made = Proposal(
            run_id=secrets.token_hex(16),
            proposed_by=own,
            made=documents.stamp(now),
            expires=documents.stamp(now + dt.timedelta(days=wanted.expires_days)),
            protocol=wanted.protocol,
            task=wanted.task,
            parties=tuple(_place(name, role, wanted.parties[name], home) for name, role in seats.items()),
            params=to_json(params),
            columns=columns,
            matching=matching,
            scoring="no" if is_rows else wanted.scoring,
        )
    except (InvalidInput, InvalidParameter) as problem:
        raise JobError(f"{wanted.path}: {problem}") from problem
    if made.scoring == "standing" and made.leaves_are_shared:
        raise JobError(f'{wanted.path}: scoring = "standing" is not possible: {NOT_SERVED}; write scoring = "batch"')
    return made


def _role(name: str, seat: Seat, wanted: JobFile, home: Home, *, is_rows: bool) -> str:
    if seat.role is not None:
        if seat.role == COORDINATOR and seat.dataset is None and name != COORDINATOR:
            raise JobError(
                f"{wanted.path}: [parties.{name}]: a coordinator without rows has to be called {COORDINATOR!r}; or "
                "give one of the owners the role, with its dataset"
            )
        return seat.role
    if is_rows:
        return OWNER
    if any(other.role == LABEL_HOLDER for other in wanted.parties.values()):
        return FEATURE_HOLDER
    datasets = home.party_file.data
    has_label = name == home.name and seat.dataset in datasets and datasets[str(seat.dataset)].label is not None
    if has_label:
        return LABEL_HOLDER
    own = wanted.parties[home.name].dataset
    if own not in datasets or datasets[str(own)].label is None:
        raise JobError(f"{wanted.path}: nobody holds the labels: give one of [parties.*] role = {LABEL_HOLDER!r}")
    return FEATURE_HOLDER


def _place(name: str, role: str, seat: Seat, home: Home) -> Place:
    if name == home.name:
        network = home.party_file.network
        return Place(name, role, home.certificate.fingerprint, seat.dataset, network.advertise or network.bind)
    try:
        peer = home.peers.get(name)
    except PeerRefused as problem:
        raise JobError(f"{problem}") from problem
    return Place(name, role, peer.certificate.fingerprint, seat.dataset, peer.address)


def _own_columns(home: Home, dataset: str | None) -> tuple[tuple[str, bool], ...]:
    from hedgerow.node import sources

    chosen = home.party_file.data.get(dataset or "")
    if chosen is None:
        raise JobError(f"{home.party_toml}: there is no dataset {dataset!r}, and monotonic_cst speaks of its columns")
    kinds = sources.look(chosen, home.path).columns
    left_out = {chosen.id, chosen.label, chosen.weight, *chosen.drop}
    names = [name for name in chosen.columns or kinds if name not in left_out]
    return tuple((name, "string" in kinds[name] or name in chosen.categorical) for name in names)
