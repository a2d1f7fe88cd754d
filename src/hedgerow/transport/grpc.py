"""Parties in different processes or organisations, over gRPC with mutual TLS.

One side listens on one port, the others dial it, so only one organisation needs to let connections in. Each pair has
one two-way stream (grpc_streams.py) of envelopes (grpc_envelope.py). A broken connection is dialled again; within the
grace period nothing is lost or repeated (grpc_channel.py).

Both sides must show a certificate (mtls.py), and both check the other's in the same way, before a message is read:

    listening   TLS checks it against the pinned ones and our authority's; the header of the call is compared with
                it (`Doorkeeper`), by `TrustStore.check`
    dialling    a pinned certificate is the only one that TLS accepts. With an own authority, TLS alone would also take
                wildcards, common names and what an intermediate signed. So the endpoint looks first which certificate
                the peer shows, on a connection of its own over which nothing is said, and checks that with
                `TrustStore.check`. From then on TLS accepts this one certificate and no other. So the check holds for
                the connection that is used, whoever answered the first one.
"""

from __future__ import annotations

import logging
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

from cryptography import x509

from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    InvalidParameter,
    JobDiffers,
    PeerRefused,
    VersionMismatch,
    plain,
)
from hedgerow.transport import grpc_channel as channels
from hedgerow.transport import grpc_envelope
from hedgerow.transport.endpoint import NOTHING, Agreed
from hedgerow.transport.grpc_channel import PeerChannel, Terms
from hedgerow.transport.grpc_envelope import MAX_FRAME_BYTES, MAX_HELLO_BYTES, WIRE_VERSION, Hello
from hedgerow.transport.grpc_streams import Dialler, Listener, Options, ServerStream
from hedgerow.transport.mtls import Certificate, Identity, TrustStore, check_party_name

_log = logging.getLogger("hedgerow")

_TICK_SECONDS = 0.02
_LINGER_SECONDS = 5.0  # how long close() waits at least for peers to take what was sent
_ABORT_SECONDS = 1.0  # the same for abort()
_HANG_UP_SECONDS = 0.5
_PROBE_SECONDS = 1.0
_DIALS_BEFORE_PROBE = 2
_REFUSED_SECONDS = 2.0  # longer than gRPC waits at most before it connects again
_LOOK_AGAIN_SECONDS = 0.1  # for a peer that does not answer yet
_STRANGER_SECONDS = 5.0  # for a handshake, and without a call after it
_CALLS_PER_CONNECTION = 4  # one is needed; the one before may not have ended yet
_MORE_CALLS = 16  # at one time, beyond two for each party that is expected
_MORE_CONNECTIONS = 200  # the same for connections, most of which are strangers that TLS has not seen through yet
_REFUSALS_KEPT = 10  # reasons, which are logged: a stranger that comes again and again must not fill the disk
_NOBODY: Mapping[str, str] = MappingProxyType({})


class GrpcEndpoint:
    """A party's end of its channels. `close` it, or use it in a `with` statement."""

    def __init__(
        self,
        name: str,
        identity: Identity,
        trust: TrustStore,
        *,
        run_id: str,
        peers: Sequence[str],
        job: Agreed = NOTHING,
        listen: str | Gateway | None = None,
        dial: Mapping[str, str] = _NOBODY,
        grace: float = 10.0,
        connect_timeout: float = 60.0,
        max_unacked_bytes: int = 64 << 20,
        wire_version: int = WIRE_VERSION,
    ) -> None:
        """Listen and dial; `wait_connected` waits for that. Peers that are not dialled are expected to dial.

        `listen` is "host:port", with port 0 for any free one (see `port`), or a `Gateway` that listens already.
        `grace` is how many seconds a peer may be away, `connect_timeout` how long the first connection may take.
        `max_unacked_bytes`, per peer and direction, bounds what is kept: `send` waits beyond it. A peer whose `job`
        differs is refused: JobDiffers on both sides.
        """
        terms = Terms(name, run_id, secrets.randbits(64), grace, connect_timeout, max_unacked_bytes, wire_version, job)
        _check_arguments(terms, identity, peers, listen, dial)
        self.name = name
        self._identity, self._trust, self._terms = identity, trust, terms
        self._channels = {peer: PeerChannel(peer, terms) for peer in peers}
        self._dialled: dict[str, Dialler] = {}
        self._server: Listener | None = None
        self._gateway = listen if isinstance(listen, Gateway) else None
        self._probed: set[str] = set()  # peers whose certificate is being looked at
        self._shown_since: dict[str, float] = {}  # since when a peer shows the right one, without letting us in
        self._stopping = threading.Event()
        self._closed = False
        self._clock = threading.Thread(target=self._tick, daemon=True, name=f"hedgerow-clock-{self.name}")
        expected = {peer: channel for peer, channel in self._channels.items() if peer not in dial}
        self._doorkeeper = Doorkeeper(terms, trust, expected)
        try:
            for peer, address in dial.items():
                self._dialled[peer] = self._dialler(peer, address)
            if isinstance(listen, str):  # last: nothing that fails may take the port
                self._server = _listener(listen, identity, trust, list(expected), terms.grace)
        except BaseException:
            self._stop()
            raise
        for peer, channel in expected.items():
            # TLS hangs up on strangers without telling anybody here, so all that is known is who did not come.
            channel.trouble = (
                f"nobody with a certificate that {self.name} accepts for {peer} has come; "
                f"connections with another one are refused without a trace here"
            )
        if self._server is not None:
            self._server.start(self._doorkeeper.receive)
        elif self._gateway is not None:
            self._gateway.begin(terms.run_id, self._doorkeeper)
        self._clock.start()

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody it can talk to."""
        return tuple(self._channels)

    @property
    def port(self) -> int:
        """The port it listens on."""
        if (listening := self._gateway or self._server) is None:
            raise InvalidParameter(f"{self.name} does not listen, so it has no port")
        return listening.port

    @property
    def missing(self) -> list[str]:
        """Peers that have not come yet."""
        return [peer for peer, channel in self._channels.items() if not channel.has_talked]

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until every peer is there; its error if one cannot come, DeadlineExceeded naming those missing."""
        until = time.monotonic() + (self._terms.connect_timeout if timeout is None else timeout)
        for channel in self._channels.values():
            channel.wait(channel.is_decided, until)
            if channel.error is not None and not channel.has_talked:
                raise channel.error()
        if missing := self.missing:
            if self._doorkeeper.refused:
                why = f"; refused meanwhile: {'; '.join(self._doorkeeper.refused)}"
            else:
                troubles = [self._channels[peer].trouble for peer in missing]
                why = f" ({'; '.join(filter(None, troubles))})" if any(troubles) else ""
            raise DeadlineExceeded(f"{self.name} is still waiting for {', '.join(missing)} to connect{why}")

    def agree(self, job: Agreed) -> None:
        """Take part in this job, which is the one that the endpoint was opened for."""
        if job.digest != self._terms.job.digest:
            raise JobDiffers(f"{self.name} was connected for another job than the one that it begins")

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame; waits while the peer is slow. PeerLost or LastWord if there is nobody to take it."""
        if len(frame) > MAX_FRAME_BYTES:
            raise FrameError(f"a frame for {to} is {len(frame)} bytes long, the limit is {MAX_FRAME_BYTES}")
        self._channel(to).send(frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame. What had arrived before it failed is still given out first."""
        return self._channel(sender).recv(timeout)

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good: no later frame of it is ever read."""
        self._channel(peer).drop()

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame, which peers get after all others as a LastWord. Never raises."""
        try:
            self._end(grpc_envelope.ABORT, last_word, _ABORT_SECONDS)
        except Exception:  # noqa: BLE001 - the failure that is being told of must not be hidden by this one
            _log.exception("%s: telling the peers of a failure failed", self.name)

    def close(self) -> None:
        """Orderly end: what was sent is delivered first, also to a peer that is away for less than the grace period."""
        self._end(grpc_envelope.BYE, b"", max(_LINGER_SECONDS, self._terms.grace))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort(b"")

    # Setting up

    def _dialler(self, peer: str, address: str) -> Dialler:
        roots = self._trust.roots([peer])
        # The name in the certificate is the party's, whatever the host is called.
        dialler = Dialler(address, (*_options(self._terms.grace), ("grpc.ssl_target_name_override", peer)))
        if self._trust.has_pinned(peer):
            dialler.connect(self._identity, roots)
        return dialler

    def _channel(self, peer: str) -> PeerChannel:
        try:
            return self._channels[peer]
        except KeyError:
            raise InvalidParameter(f"{peer!r} is not a peer of {self.name}; its peers are {self.peers}") from None

    # In the background

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            try:
                for peer, channel in self._channels.items():
                    channel.tick(time.monotonic())
                    if peer in self._dialled and channel.error is None and not channel.talking:
                        self._dial(channel, self._dialled[peer])
            except Exception:  # noqa: BLE001 - without this thread deadlines would pass unnoticed
                _log.exception("%s: looking after the connections failed; going on", self.name)

    def _dial(self, channel: PeerChannel, dialler: Dialler) -> None:
        if dialler.is_ready and (channel.failed_dials < _DIALS_BEFORE_PROBE or channel.has_talked):
            channel.dial(dialler)
        elif channel.peer not in self._probed:
            self._probed.add(channel.peer)
            name = f"hedgerow-probe-{dialler.address}"
            threading.Thread(target=self._probe, args=(channel, dialler), daemon=True, name=name).start()

    def _probe(self, channel: PeerChannel, dialler: Dialler) -> None:
        """In a thread of its own: looking up the address of a host can take the better part of a minute."""
        try:
            certificate = _shown_certificate(dialler.address, channel.peer)
            if certificate is None:  # nobody there (yet)
                channel.failed_dials = 0
                self._shown_since.pop(channel.peer, None)
                channel.trouble = channel.trouble or f"nobody answers at {dialler.address}"
                self._stopping.wait(0.0 if dialler.is_ready else _LOOK_AGAIN_SECONDS)
            else:
                refusal = self._why_refused(channel, certificate, dialler.address)
                if refusal is not None:
                    channel.fail(lambda: PeerRefused(refusal))
                elif channel.has_hung_up():
                    # A new connection: one that has failed before would not try again for a while, and each call on it
                    # would fail meanwhile, as if the peer had turned it away.
                    dialler.connect(self._identity, certificate.pem)
            if dialler.is_ready:
                channel.dial(dialler)
        finally:
            self._probed.discard(channel.peer)

    def _why_refused(self, channel: PeerChannel, certificate: Certificate, address: str) -> str | None:
        """Is it a matter of certificates that attempts failed? grpcio does not say, so look at what the peer shows."""
        try:
            self._trust.check(channel.peer, certificate)
        except PeerRefused as error:
            return f"{self.name} refused the connection to {address}: {error}"
        # It shows the right certificate, yet hangs up on us each time. Once or twice may be a coincidence. And where
        # nobody answered a moment ago gRPC does not try anew at once.
        since = self._shown_since.setdefault(channel.peer, time.monotonic())
        if channel.failed_dials < 3 * _DIALS_BEFORE_PROBE or time.monotonic() - since < _REFUSED_SECONDS:
            return None
        own = self._identity.fingerprint
        return f"{channel.peer} is there, but does not accept the certificate of {self.name} ({own})"

    def _end(self, kind: int, text: bytes, patience: float) -> None:
        if self._closed:
            return
        self._closed = True
        until = time.monotonic() + patience
        for channel in self._channels.values():
            # A peer that was never there will not come for a goodbye.
            if channel.has_talked:
                channel.say_last(kind, text)
        for channel in self._channels.values():
            if channel.has_talked and not channel.wait(channel.is_settled, until):
                _log.warning("%s: %s did not take everything that was sent", self.name, channel.peer)
        until = time.monotonic() + _HANG_UP_SECONDS
        for channel in self._channels.values():
            channel.hang_up()
        for channel in self._channels.values():
            channel.wait(channel.has_hung_up, until)
        self._stopping.set()
        self._clock.join()
        self._stop()

    def _stop(self) -> None:
        self._doorkeeper.close()
        if self._server is not None:
            self._server.stop()
        if self._gateway is not None:
            self._gateway.end(self._terms.run_id)
        for dialler in self._dialled.values():
            dialler.stop()


class Gateway:
    """One listening port for endpoints of several runs, one after the other or at the same time.

    A call goes to the endpoint whose run its HELLO names. Who comes for a run that is not here is asked to come again,
    since two parties need not begin in the same moment, and so is everybody before there is an endpoint. Of a HELLO of
    another wire version nothing else is known: an endpoint that expects its party refuses it, and so is told of it.
    """

    def __init__(
        self, address: str, identity: Identity, trust: TrustStore, expected: Sequence[str], *, grace: float = 10.0
    ) -> None:
        self._doors: dict[str, Doorkeeper] = {}
        self._name = identity.certificate.owner
        self._listener = _listener(address, identity, trust, expected, grace)
        self._listener.start(self._receive)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listener.port

    def begin(self, run_id: str, door: Doorkeeper) -> None:
        """Calls for this run go through this door. InvalidParameter if it has one."""
        if self._doors.setdefault(run_id, door) is not door:
            raise InvalidParameter(f"there is an endpoint for the run {run_id!r} at this port already")

    def end(self, run_id: str) -> None:
        """Nobody is at home for this run any more."""
        self._doors.pop(run_id, None)

    def close(self) -> None:
        """End every call and give the port back."""
        self._listener.stop()

    def _receive(self, stream: ServerStream) -> bool:
        doors = dict(self._doors)
        try:
            version = grpc_envelope.hello_version(stream.hello)
            run_id = grpc_envelope.decode_hello(stream.hello).run_id if version == WIRE_VERSION else ""
        except FrameError:  # nothing that can be read, which any of the doors says in words
            version, run_id = WIRE_VERSION, next(iter(doors), "")
        if version != WIRE_VERSION:
            run_id = next((name for name, door in doors.items() if door.expects(stream)), "")
        if run_id in doors:
            return doors[run_id].receive(stream)
        if version != WIRE_VERSION and doors:
            stream.end(channels.ANOTHER_VERSION, channels.two_versions("this party", version, self._name, WIRE_VERSION))
        else:
            stream.end(channels.NOT_NOW, "that run has not begun here, or is over")
        return False


class Doorkeeper:
    """Who may come in: decided for every call at a listening endpoint when it arrives, by the header that came with it.

    TLS has let it through, so it shows some certificate that is trusted here. Before any message is read, that has to
    be the one of a party that is expected, and the party has to say the same: its own name, ours, the run, the wire
    version, the job. Nobody waits in between, so a stranger costs no more than its header, and there is nothing to be
    slow with. Whoever is turned away is told one sentence about what it said itself. What is known here stays here, in
    the log.
    """

    def __init__(self, terms: Terms, trust: TrustStore, expected: Mapping[str, PeerChannel]) -> None:
        self._terms, self._trust, self._expected = terms, trust, expected
        self.refused: list[str] = []  # why, each reason once
        self._n_refused = 0

    def expects(self, stream: ServerStream) -> bool:
        """Whether it comes from a party that is expected here, and shows that party's certificate."""
        try:
            self._who(stream)
        except PeerRefused:
            return False
        return True

    def receive(self, stream: ServerStream) -> bool:
        """Hand the stream to the channel of its party, or end it; whether it was let in."""
        try:
            channel = self._who(stream)
        except PeerRefused as error:
            self._turn_away(stream, "permission_denied", str(error), f"{self._terms.me} does not expect this party")
            return False
        refusal: tuple[str, str] | None
        failure: VersionMismatch | JobDiffers | None = None
        try:
            refusal = channel.accept(stream, self._hello(stream, channel))
        except (VersionMismatch, JobDiffers) as error:
            failure = error
            refusal = (channels.ANOTHER_JOB if isinstance(error, JobDiffers) else channels.ANOTHER_VERSION, str(error))
        except FrameError as error:
            refusal = ("permission_denied", str(error))
        if refusal is None:
            return True
        if refusal[0] == channels.NOT_NOW:
            stream.end(*refusal)
            return False
        self._turn_away(stream, *refusal, refusal[1])
        if not channel.talking:
            channel.trouble = f"it came, but was turned away: {refusal[1]}"
        if failure is not None and not channel.has_talked:  # a second program of a party does not end the first one
            kind, sentence = type(failure), str(failure)
            channel.fail(lambda: kind(sentence))
        return False

    def _who(self, stream: ServerStream) -> PeerChannel:
        if stream.peer_certificate is None:
            raise PeerRefused("a party without a certificate")
        certificate = Certificate.from_pem(stream.peer_certificate)
        for name in certificate.names:
            if name in self._expected:
                self._trust.check(name, certificate)
                return self._expected[name]
        named = plain(" or ".join(certificate.names)) or "a certificate without a name"
        raise PeerRefused(f"{named} is not expected by {self._terms.me}")

    def _hello(self, stream: ServerStream, channel: PeerChannel) -> Hello:
        me, peer = self._terms.me, channel.peer
        if not stream.hello:
            wanted = f"version {self._terms.wire_version} of the wire format asks for"
            raise FrameError(f"a call of {peer} without a HELLO in its header, which {wanted}")
        channels.check_version(stream.hello, self._terms, peer)
        hello = grpc_envelope.decode_hello(stream.hello)
        if (hello.speaker, hello.listener) != (peer, me):
            said = plain(f"said it was {hello.speaker!r}, and looked for {hello.listener!r}")
            raise FrameError(f"a party with the certificate of {peer} {said}")
        if hello.run_id != self._terms.run_id:
            raise FrameError(f"{me} takes part in another run than {plain(repr(hello.run_id))}")
        self._terms.job.check(peer, hello.job, me)
        return hello

    def _turn_away(self, stream: ServerStream, code: str, known: str, told: str) -> None:
        stream.end(code, told)
        self._n_refused += 1
        if known not in self.refused and len(self.refused) < _REFUSALS_KEPT:
            self.refused.append(known)
            _log.warning("%s: turned away a connection: %s", self._terms.me, known)

    def close(self) -> None:
        """Say how many were turned away, if there were more than was told."""
        if self._n_refused > len(self.refused):
            _log.warning("%s: turned away %d connections in all", self._terms.me, self._n_refused)
            self._n_refused = 0


def _check_arguments(
    terms: Terms, identity: Identity, peers: Sequence[str], listen: str | Gateway | None, dial: Mapping[str, str]
) -> None:
    name, grace, connect_timeout = terms.me, terms.grace, terms.connect_timeout
    for party in (name, *peers):
        check_party_name(party)
    if name not in identity.certificate.names:
        raise InvalidParameter(f"the identity given to {name} is that of {' or '.join(identity.certificate.names)}")
    if name in peers or len(set(peers)) != len(peers):
        raise InvalidParameter(f"the peers of {name} must be others, each once, got {tuple(peers)}")
    if unknown := set(dial) - set(peers):
        raise InvalidParameter(f"{name} dials {sorted(unknown)}, who are not among its peers {tuple(peers)}")
    if listen is None and (waiting := set(peers) - set(dial)):
        raise InvalidParameter(f"{name} neither listens nor dials {sorted(waiting)}")
    if not grace > 0 or not connect_timeout > 0:
        raise InvalidParameter(f"grace and connect_timeout must be positive, got {grace} and {connect_timeout}")
    if terms.max_unacked_bytes < 1:
        raise InvalidParameter(f"max_unacked_bytes must be positive, got {terms.max_unacked_bytes}")


def _listener(address: str, identity: Identity, trust: TrustStore, expected: Sequence[str], grace: float) -> Listener:
    milliseconds = int(_STRANGER_SECONDS * 1000)
    options = (
        *_options(grace),
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", milliseconds),
        ("grpc.max_connection_idle_ms", milliseconds),
        ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
        ("grpc.max_allowed_incoming_connections", 2 * len(expected) + _MORE_CONNECTIONS),
    )
    return Listener(address, identity, trust.roots(expected), options, 2 * len(expected) + _MORE_CALLS)


def _options(grace: float) -> Options:
    milliseconds = int(grace * 1000)
    return (
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", MAX_FRAME_BYTES + (64 << 10)),
        # The header of a call holds a HELLO and little else.
        ("grpc.max_metadata_size", 2 * MAX_HELLO_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * MAX_HELLO_BYTES),
        # A peer whose machine or network is silently gone is noticed within the grace period.
        ("grpc.keepalive_time_ms", max(milliseconds // 3, 200)),
        ("grpc.keepalive_timeout_ms", max(milliseconds // 3, 200)),
        ("grpc.http2.ping_timeout_ms", max(milliseconds // 3, 200)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 100),
        ("grpc.http2.bdp_probe", 0),  # its extra pings cost latency; the window is given instead
        ("grpc.http2.lookahead_bytes", 4 << 20),
        ("grpc.optimization_target", "latency"),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.min_reconnect_backoff_ms", max(milliseconds // 3, 1000)),  # how long one attempt to connect may take
        ("grpc.use_local_subchannel_pool", 1),  # two endpoints in one process do not share a connection
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    )


def _shown_certificate(address: str, peer: str) -> Certificate | None:
    """The certificate that is shown at an address; None if nobody shows one. Nothing is said or believed meanwhile."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS) as plain:
            plain.getpeername()  # OSError if it was cut already, for which Python's TLS would leave a socket open
            with context.wrap_socket(plain, server_hostname=peer) as connection:
                der = connection.getpeercert(binary_form=True)
        return None if der is None else Certificate(x509.load_der_x509_certificate(der))
    except (OSError, ValueError):
        return None
