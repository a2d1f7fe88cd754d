"""A node that is up, and its desk: where two nodes hand each other their papers over the connection that runs use.

    About         both        which version, which proposals are open (greeting.py)
    HandedOver    both        all open proposals in which both have a seat, and the answers to them

Both learn what the other has signed. Nothing that a proposal does not say is said, and no row is read. It is a
conversation of its own before a run, so a party can answer at any time, and a run begins only with what all have.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from hedgerow.errors import DeadlineExceeded, InvalidParameter, PeerFailed, PeerLost
from hedgerow.ledger import Exact
from hedgerow.node.audit import Trail
from hedgerow.node.greeting import greet
from hedgerow.node.papers import MOST_BYTES, Beginning, Paper, Papers
from hedgerow.node.peers import Peer
from hedgerow.node.proposal import VERSION
from hedgerow.runtime.party import Party
from hedgerow.transport.endpoint import NOTHING, Agreed
from hedgerow.transport.frames import Message
from hedgerow.transport.grpc import Gateway, GrpcEndpoint
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.ranges import Free, Shape

if TYPE_CHECKING:
    from hedgerow.node.home import Home

GRACE_SECONDS = 60.0
"""How long a peer may be out of reach in the middle of a run."""
_TURN_SECONDS = 2.0  # for one attempt to meet a peer
_LOOK_SECONDS = 1.0  # the same for one that should be somewhere else
_PAUSE_SECONDS = 0.2  # until a peer that is there for something else may be there for this
_NOT_THERE = (DeadlineExceeded, PeerLost, PeerFailed)  # yet, or not any more


@dataclass(frozen=True, slots=True)
class HandedOver(Message, name="node.papers", version=VERSION):
    """Either node to the other: open proposals in which both have a seat, and the answers to them, as JSON."""

    # Its version is that of proposals: parties that do not know each other's find out before one is handed over.
    discloses = Exact("what was proposed to both, and who has accepted or refused it")
    papers: Annotated[bytes, Shape(Free("n_bytes", at_most=MOST_BYTES))]


class Node:
    """One party that can be talked to: its key, whom it trusts, its port if it has one. For a `with` statement."""

    def __init__(self, home: Home, identity: Identity, peers: Iterable[str] | None = None) -> None:
        """It talks to these peers, by default to everybody that it is paired with."""
        self.home, self.identity = home, identity
        self.peers = tuple(home.peers.names() if peers is None else peers)
        self.trust: TrustStore = home.peers.trust_store(self.peers)
        network = home.party_file.network
        self.address = network.advertise or network.bind
        self.trail = Trail(home.audit, identity)
        self._beginning: dict[str, Beginning] = {}
        self._met: Counter[tuple[str, str]] = Counter()  # run and peer: how often, with the same process of it
        self._begun_by: dict[str, dict[str, Beginning]] = {}  # peer -> runs that it was about to begin when last met
        self._joining = threading.Lock()
        self._gateway: Gateway | None = None
        if network.bind is not None and self.peers:
            self._gateway = Gateway(network.bind, identity, self.trust, self.peers, grace=GRACE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._gateway is not None:
            self._gateway.close()

    @property
    def name(self) -> str:
        """The party's name."""
        return self.home.name

    @cached_property
    def papers(self) -> Papers:
        """Its papers."""
        return Papers(self.home)

    def open(
        self, run_id: str, peers: Iterable[str], dial: dict[str, str], *, job: Agreed = NOTHING, timeout: float = 600.0
    ) -> GrpcEndpoint:
        """An end of a conversation: these peers, of whom it dials some and is dialled by the others."""
        names = list(peers)
        waits = [name for name in names if name not in dial]
        if waits and self._gateway is None:
            raise InvalidParameter(
                f"{waits[0]} is to dial {self.name}, which does not listen: give bind under [network] in "
                f"{self.home.party_toml}, or let {waits[0]} listen and pair again"
            )
        return GrpcEndpoint(
            self.name,
            self.identity,
            self.trust,
            run_id=run_id,
            peers=names,
            job=job,
            listen=self._gateway if waits else None,
            dial=dial,
            grace=GRACE_SECONDS,
            connect_timeout=timeout,
        )

    def exchange(self, peer: Peer, timeout: float) -> list[Paper]:
        """Hand over papers and take the peer's; what is new. DeadlineExceeded if it does not come in time."""
        with self.at_desk(peer, timeout) as me:
            greet(me, peer.name, self.papers.open_with(peer.name))
            return self.hand_over(me, peer.name)

    @contextmanager
    def at_desk(self, peer: Peer, timeout: float) -> Iterator[Party]:
        """A conversation with a peer before any run. DeadlineExceeded if it is not there in this many seconds."""
        waits = is_dialled(self.home, peer)
        if not waits and peer.address is None:
            raise InvalidParameter(
                f"neither {self.name} nor {peer.name} listens; one of them needs bind under [network] in its "
                "party.toml, and both need to pair again"
            )
        dial = {} if waits or peer.address is None else {peer.name: peer.address}
        conversation = "desk:" + ":".join(sorted((self.name, peer.name)))
        with self.open(conversation, [peer.name], dial, timeout=2 * timeout) as endpoint:
            endpoint.wait_connected(timeout)
            yield Party(endpoint, self.identity, self.trust, deadline=30.0)

    def hand_over(self, me: Party, peer: str) -> list[Paper]:
        """Both hand over what they have; what is new here."""
        mine = {run_id: each._replace(met=self._met[run_id, peer]) for run_id, each in self._beginning.items()}
        me.send(peer, HandedOver(self.papers.for_peer(peer, mine)))
        changed, begins = self.papers.take(peer, me.recv(peer, HandedOver).papers, self.trust)
        for paper in changed:
            proposal = paper.proposal
            names = [place.name for place in proposal.parties]
            facts = {"protocol": proposal.protocol, "parties": names, "run_id": proposal.run_id}
            self.trail.append("received", proposal=proposal.hash, peer=peer, **facts)
        self._begun_by[peer] = begins
        with self._joining:
            for run_id in begins.keys() & mine.keys():
                self._beginning[run_id] = self._beginning[run_id].joined(begins[run_id])
                # Both count alike: who was started anew in between begins to count again, and so does the other one.
                self._met[run_id, peer] = min(mine[run_id].met, begins[run_id].met) + 1
        return changed

    def exchange_until(
        self,
        is_enough: Callable[[], bool],
        peers: Iterable[str],
        seconds: float,
        tell: Callable[[str], None],
        *,
        once: bool = False,
    ) -> bool:
        """Look for these peers, all at once, until it is enough, for this many seconds at most; whether it was.

        `tell` hears a sentence whenever something new has come, and once about each peer that is not there. `once`: no
        peer is met a second time.
        """
        until = time.monotonic() + seconds

        def look_for(name: str) -> None:
            is_told = False
            while not is_enough() and (left := until - time.monotonic()) > 0:
                try:
                    for paper in self.exchange(self.home.peers.get(name), min(left, _TURN_SECONDS)):
                        tell(f"{name}: proposal {paper.proposal.hash[:12]} is {paper.state}")
                    if once:
                        return
                except _NOT_THERE:
                    if not is_told:
                        tell(f"{name} is not there yet; waiting for {left:.0f} s at most")
                    is_told = True

        _at_once(look_for, peers)
        return is_enough()

    def meet(self, run_id: str, beginning: Beginning, peers: Iterable[str], seconds: float) -> Beginning:
        """Meet each of these peers, and then again, before a run; what all can begin, or that it is over for one.

        DeadlineExceeded if one is not there in time. After the first time the party that talks to all has everybody's
        answers, after the second time everybody has. Only who begins the same run is met; whoever is started anew
        meanwhile is met twice again.
        """
        until, names = time.monotonic() + seconds, tuple(peers)
        self._beginning[run_id] = beginning

        def meet_until(name: str, times: int) -> None:
            while self._met[run_id, name] < times and not self._beginning[run_id].is_over:
                met, left = self._met[run_id, name], max(until - time.monotonic(), 1.0)
                try:
                    self.exchange(self.home.peers.get(name), min(left, _TURN_SECONDS))
                    if self._met[run_id, name] == met:
                        time.sleep(_PAUSE_SECONDS)
                        if time.monotonic() > until:
                            raise DeadlineExceeded(f"{name} is there, but does not begin the run {run_id[:12]}")
                except _NOT_THERE:
                    if time.monotonic() > until:
                        raise

        for times in (1, 2):
            _at_once(lambda name, times=times: meet_until(name, times), names)  # type: ignore[misc]  # a default is bound
        return self._beginning.pop(run_id)

    def is_looked_for(self, run_id: str, peer: str) -> bool:
        """Whether the peer is at its desk to begin this run: then it does not come into one that has begun."""
        self._begun_by.pop(peer, None)
        with suppress(*_NOT_THERE):
            self.exchange(self.home.peers.get(peer), _LOOK_SECONDS)
        return run_id in self._begun_by.get(peer, ())

    def tell_over(self, run_id: str, beginning: Beginning, peers: Iterable[str], seconds: float) -> bool:
        """Tell peers that come for this run that it is over; whether one of them came in time."""
        self._beginning[run_id] = beginning
        told = self.exchange_until(lambda: self._met.total() > 0, peers, seconds, lambda _: None)
        self._beginning.pop(run_id)
        return told


def is_dialled(home: Home, peer: Peer) -> bool:
    """Whether this party waits for the peer to dial. Of two that could listen, the first by name does."""
    return home.party_file.network.bind is not None and (peer.address is None or home.name < peer.name)


def _at_once(call: Callable[[str], Any], names: Iterable[str]) -> None:
    """The call for each name, in a thread each; raises the first failure."""
    listed = tuple(names)
    with ThreadPoolExecutor(max(len(listed), 1), thread_name_prefix="hedgerow-desk") as pool:
        for done in [pool.submit(call, name) for name in listed]:
            done.result()
