"""Why two parties do not come together: step by step from the name of a host to the hash of a proposal.

    with_peer = examine(home, identity, "shop", wait=30.0)
    with_peer.first_failure          # the step, what was seen, and a way out; None if all is well

    dns        the peer's address is known to this machine
    tcp        something accepts connections there; or, where the peer dials, its connection arrives here
    tls        what is there speaks TLS and HTTP/2
    identity   it shows the certificate that is pinned here, and accepts ours
    version    both speak the same version of the wire format
    clock      the two clocks differ by less than a minute
    schema     this party's own datasets can be read, with all columns that party.toml names
    job        open proposals are the same on both sides, and signed by all

Each step is looked at only if those before it went well. Every look is a real one: the first steps use bare sockets,
which tell what is wrong, those from `identity` on the very connection that runs use. No row is read where a look at the
source is enough, and nothing is said to a host that is not the peer.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hedgerow._version import __version__
from hedgerow.errors import (
    DeadlineExceeded,
    HedgerowError,
    InvalidParameter,
    PeerRefused,
    TransportError,
    VersionMismatch,
    plain,
)
from hedgerow.node import sources
from hedgerow.node.addresses import check_address
from hedgerow.node.bare_sockets import (
    ELSEWHERE,
    FAILED,
    NOT_REACHED,
    OK,
    ONE_TRY_SECONDS,
    Ill,
    Step,
    Tell,
    connected,
    look_at_arrivals,
    resolved,
    shown_certificate,
)
from hedgerow.node.desk import Node, is_dialled
from hedgerow.node.greeting import Clock, Greeted, greet
from hedgerow.node.peers import Peer
from hedgerow.node.words import brings, columns_of
from hedgerow.schema import Schema
from hedgerow.transport.grpc_envelope import WIRE_VERSION
from hedgerow.transport.mtls import Certificate, Identity, TrustStore

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.party_file import Dataset

STEPS = ("dns", "tcp", "tls", "identity", "version", "clock", "schema", "job")
MOST_CLOCK_DIFFERENCE = 60.0
"""Seconds. Proposals and certificates have dates; an hour is what certificates forgive."""
_ROUND_TRIPS = 5
_LOOK_SECONDS = 10.0  # how long connections that TLS turned away are looked at, where the peer dials


@dataclass
class Examination:
    """All steps, in order."""

    party: str
    peer: str
    dials: str  # who of the two
    steps: list[Step] = field(default_factory=list)
    greeted: Greeted | None = None
    refused: str = ""  # why the papers that the peer handed over were not taken

    @property
    def first_failure(self) -> Step | None:
        """The first step that failed."""
        return next((step for step in self.steps if step.state == FAILED), None)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        failure = self.first_failure
        return {
            "party": self.party,
            "peer": self.peer,
            "dials": self.dials,
            "is_well": failure is None,
            "failed": None if failure is None else failure.name,
            "fix": None if failure is None else failure.fix,
            "steps": [step._asdict() for step in self.steps],
            "round_trip": None if self.greeted is None else self.greeted.round_trip,
        }


def examine(
    home: Home,
    identity: Identity,
    peer: str,
    *,
    wait: float = 30.0,
    clock: Clock = time.time,
    tell: Tell = lambda line: None,  # noqa: ARG005 - nobody listens
) -> Examination:
    """Go through all steps with a peer, which has this many seconds to appear. `tell` hears what is waited for."""
    found = Examination(home.name, peer, home.name)
    try:
        known = _known(home, peer)
        if is_dialled(home, known):
            found.dials = peer
            _see_coming(found, home, identity, known, wait, clock, tell)
        else:
            _go_there(found, home, identity, known, wait, clock, tell)
        found.steps.append(_clocks(found, peer))
        found.steps.append(_own_data(home))
        found.steps.append(_proposals(home, peer, found))
    except Ill as ill:
        found.steps.append(ill.step)
    return _complete(found)


def _complete(found: Examination) -> Examination:
    """Every step is there, in order."""
    named = {step.name: step for step in found.steps}
    found.steps = [named.get(name) or Step(name, NOT_REACHED, "") for name in STEPS]
    return found


def _known(home: Home, peer: str) -> Peer:
    """The peer as it is pinned here."""
    gone = [entry for entry in home.peers.revoked() if entry["name"] == peer]
    try:
        return home.peers.get(peer)
    except PeerRefused as problem:
        if not gone and peer not in home.peers.names():
            raise InvalidParameter(str(problem)) from None  # a name that nobody has is a slip of the finger
        when = f"{peer} was revoked here on {plain(gone[-1]['at'])}" if gone else str(problem)
        way_out = f"{peer}: hedgerow keys rotate, if its key was lost; then both: hedgerow pair"
        raise Ill("identity", when, way_out) from None


# --- this party dials ------------------------------------------------------------------------------------------------


def _go_there(
    found: Examination, home: Home, identity: Identity, peer: Peer, wait: float, clock: Clock, tell: Tell
) -> None:
    if peer.address is None:
        raise Ill(
            "tcp",
            f"neither {home.name} nor {peer.name} listens",
            f"one of you: set bind under [network] in party.toml; then both: hedgerow pair (now {home.party_toml})",
        )
    until = time.monotonic() + wait
    host, port = check_address(peer.address)
    addresses = resolved(host, port, peer)
    found.steps.append(Step("dns", OK, f"{host} is {', '.join(sorted({place[0] for _, place in addresses}))}"))
    connection = connected(addresses, peer, until, tell)
    found.steps.append(Step("tcp", OK, f"{peer.address} accepts connections"))
    with connection:
        shown = shown_certificate(connection, peer)
    found.steps.append(Step("tls", OK, "TLS and HTTP/2"))
    trust = _trusted(home, identity, peer)
    try:
        trust.check(peer.name, shown)
    except PeerRefused as problem:
        raise Ill("identity", str(problem), _other_certificate(peer, shown)) from None
    _meet(found, home, identity, peer, max(until - time.monotonic(), ONE_TRY_SECONDS), clock)


def _other_certificate(peer: Peer, shown: Certificate) -> str:
    at = dt.datetime.now(dt.UTC)
    if shown.fingerprint != peer.certificate.fingerprint:
        return (
            f"ask {peer.name} whether it rotated its key: hedgerow keys follow FILE; if not, somebody else answers "
            f"there, or a proxy opens TLS"
        )
    if at > shown.x509.not_valid_after_utc:
        return f"{peer.name}: hedgerow keys rotate; then you: hedgerow keys follow FILE"
    return f"compare clocks with {peer.name}; a certificate is valid from the day on which it was made"


def _trusted(home: Home, identity: Identity, peer: Peer) -> TrustStore:
    """Whom this party accepts; its own certificate must be valid too."""
    try:
        identity.certificate.check_validity(home.name)
    except PeerRefused as problem:
        raise Ill(
            "identity", str(problem), "you: hedgerow keys rotate, and send the file that it writes to all partners"
        ) from None
    try:
        return home.peers.trust_store([peer.name])
    except PeerRefused as problem:
        raise Ill("identity", str(problem), _other_certificate(peer, peer.certificate)) from None


# --- the peer dials --------------------------------------------------------------------------------------------------


def _see_coming(
    found: Examination, home: Home, identity: Identity, peer: Peer, wait: float, clock: Clock, tell: Tell
) -> None:
    network = home.party_file.network
    at = network.advertise or network.bind
    found.steps.append(Step("dns", ELSEWHERE, f"{peer.name} dials {home.name} at {at}"))
    trust = _trusted(home, identity, peer)
    tell(
        f"{peer.name} dials {home.name}: listening on {network.bind} for {wait:.0f} s; "
        f"at {peer.name} now: hedgerow doctor {home.name}"
    )
    try:
        _meet(found, home, identity, peer, wait, clock)
    except Ill as ill:
        if ill.step.fix:
            raise
        # The port says nothing about those that TLS turns away. A bare socket in its place does.
        raise look_at_arrivals(home, identity, trust, peer, min(wait, _LOOK_SECONDS), tell) from None


# --- both are there --------------------------------------------------------------------------------------------------


def _meet(found: Examination, home: Home, identity: Identity, peer: Peer, wait: float, clock: Clock) -> None:
    """The connection that runs use: identity and version are decided there, then the two greet and hand over papers."""
    listens = is_dialled(home, peer)
    try:
        node = Node(home, identity, [peer.name])
    except TransportError as problem:
        raise Ill(
            "tcp",
            f"{problem}",
            "end the other hedgerow process of this party, which has the port, or change bind in party.toml",
        ) from None
    with node, contextlib.ExitStack() as stack:
        try:
            me = stack.enter_context(node.at_desk(peer, wait))
            if listens:
                found.steps += [Step("tcp", OK, f"{peer.name} came"), Step("tls", OK, "TLS and HTTP/2")]
            met = greet(me, peer.name, node.papers.open_with(peer.name), round_trips=_ROUND_TRIPS, clock=clock)
        except VersionMismatch as problem:
            raise Ill(
                "version", str(problem), f"the older of the two: pip install -U hedgerow (here {__version__})"
            ) from None
        except PeerRefused as problem:
            raise Ill("identity", str(problem), _not_accepted(home, peer)) from None
        except DeadlineExceeded as problem:
            if listens:
                raise Ill("tcp", str(problem), "") from None
            raise Ill(
                "version",
                f"{peer.name} is there, but not at its desk: {problem}",
                f"{peer.name}: hedgerow doctor {home.name}, while you run this",
            ) from None
        except TransportError as problem:
            raise Ill(
                "version", str(problem), f"run hedgerow doctor on both sides again; here is {__version__}"
            ) from None
        known = f"{peer.name} shows {peer.certificate.fingerprint[:23]}... and accepts yours"
        found.steps.append(Step("identity", OK, known))
        found.steps.append(
            Step(
                "version",
                OK,
                f"wire {WIRE_VERSION} on both sides; hedgerow {__version__} here, {plain(met.hedgerow)} there",
            )
        )
        found.greeted = met
        try:
            node.hand_over(me, peer.name)
        except HedgerowError as problem:
            found.refused = str(problem)  # a matter of the last step


def _not_accepted(home: Home, peer: Peer) -> str:
    return (
        f"{peer.name}: hedgerow keys follow FILE, with what your hedgerow keys rotate wrote; or both: hedgerow pair "
        f"(yours is {home.certificate.fingerprint[:23]}...)"
    )


def _clocks(found: Examination, peer: str) -> Step:
    met = found.greeted
    ahead, uncertain = (0.0, 0.0) if met is None or met.ahead is None else (met.ahead, met.uncertain)
    way = "ahead of" if ahead > 0 else "behind"
    words = f"{peer} is {abs(ahead):.3f} s {way} this clock, give or take {uncertain:.3f} s"
    if abs(ahead) - uncertain > MOST_CLOCK_DIFFERENCE:
        raise Ill("clock", words, "both: compare with a time server (timedatectl set-ntp true); one of you is off")
    return Step("clock", OK, words)


# --- what this party brings ------------------------------------------------------------------------------------------


def _own_data(home: Home) -> Step:
    datasets = home.party_file.data
    seen = []
    for name, dataset in datasets.items():
        seen.append(f"{name}: {_dataset_is_there(home, name, dataset)}")
    return Step("schema", OK, "; ".join(seen) or "this party brings no data")


def _dataset_is_there(home: Home, name: str, dataset: Dataset) -> str:
    where = f"[data.{name}] in {home.party_toml}"
    try:
        look = sources.look(dataset, home.path)
    except HedgerowError as problem:
        raise Ill("schema", str(problem), f"put the file or table there, or correct source of {where}") from None
    wanted = {
        "id": [dataset.id],
        "label": [dataset.label],
        "weight": [dataset.weight],
        "columns": dataset.columns,
        "drop": dataset.drop,
        "categorical": dataset.categorical,
    }
    for key, names in wanted.items():
        try:
            sources.require_columns(
                list(look.columns), [n for n in names if n], dataset.source, f"{key} of {name} names"
            )
        except HedgerowError as problem:
            raise Ill("schema", str(problem), f"correct {key} of {where}, or add the column to the source") from None
    columns = columns_of(dataset, look.columns)
    if dataset.schema is not None:
        try:
            stated = Schema.load(dataset.schema)
            sources.require_columns(
                list(look.columns), stated.names, dataset.source, f"{dataset.schema.name} describes"
            )
        except HedgerowError as problem:
            raise Ill("schema", str(problem), f"correct the file that schema of {where} names") from None
    rows = "" if look.n_rows is None else f", {look.n_rows:,} rows"
    return f"{len(columns)} columns{rows}"


# --- what the two have agreed on -------------------------------------------------------------------------------------


def _proposals(home: Home, peer: str, found: Examination) -> Step:
    from hedgerow.node.papers import Papers

    if found.refused:
        raise Ill(
            "job",
            found.refused,
            f"pair again if a key was rotated since; then {peer}: hedgerow propose job.toml again",
        )
    papers = Papers(home)
    own = papers.open_with(peer)
    there = () if found.greeted is None else found.greeted.proposals
    strange = [each for each in there if each not in own]
    if strange:
        raise Ill(
            "job",
            f"{peer} has an open proposal {strange[0][:12]} that is over or unknown here",
            f"compare with {peer}: hedgerow status; whoever wants it: hedgerow propose job.toml again",
        )
    for hash_ in own:
        paper = papers.get(hash_)
        if paper.refused_by:
            continue
        try:
            brings(paper.proposal, home)
        except HedgerowError as problem:
            raise Ill("job", str(problem), f"correct {home.party_toml}, or: hedgerow refuse {hash_[:12]}") from None
        if paper.missing:
            raise Ill(
                "job",
                f"proposal {hash_[:12]} is {paper.state}",
                f"{' and '.join(paper.missing)}: hedgerow accept {hash_[:12]} (or hedgerow refuse {hash_[:12]})",
            )
        _check_certificates(home, paper)
    listed = ", ".join(each[:12] for each in own)
    return Step("job", OK, f"the same on both sides and answered by all: {listed}" if own else "no open proposal")


def _check_certificates(home: Home, paper: Any) -> None:
    proposal = paper.proposal
    for name in proposal.peers_of(home.name):
        try:
            fingerprint = home.peers.get(name).certificate.fingerprint
        except PeerRefused as problem:
            raise Ill("job", str(problem), f"you and {name}: hedgerow pair; then propose again") from None
        if fingerprint != proposal.place(name).fingerprint:
            raise Ill(
                "job",
                f"proposal {proposal.hash[:12]} was signed for another certificate of {name} than the one pinned here",
                f"{proposal.proposed_by}: hedgerow propose job.toml again",
            )
