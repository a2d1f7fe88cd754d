"""Strangers at both ends of a connection: certificates that TLS alone would take, and calls that cost too much."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from concurrent import futures
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hedgerow.errors import MOST_CHARACTERS, DeadlineExceeded, PeerLost, PeerRefused, plain
from hedgerow.transport import grpc as endpoints
from hedgerow.transport import grpc_channel
from hedgerow.transport import grpc_envelope as envelope
from hedgerow.transport.endpoint import NOTHING
from hedgerow.transport.grpc import Doorkeeper, GrpcEndpoint
from hedgerow.transport.grpc_envelope import HELLO_KEY, Hello
from hedgerow.transport.grpc_streams import METHOD, MOST_NOT_LET_IN, TOO_MANY, Places, host_of
from hedgerow.transport.mtls import Certificate, Identity, TrustStore, now
from twins.parties import connect_star

HUB, BANK = "hub.clinics", "bank.clinics"  # with a dot, or no wildcard could stand for them


# --- certificates ----------------------------------------------------------------------------------------------------


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _made(subject, key, issuer, signing_key, *, names=(), authority=False):
    builder = (
        x509.CertificateBuilder(_name(issuer), _name(subject), key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now().replace(year=now().year - 1))
        .not_valid_after(now().replace(year=now().year + 1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        dns = [x509.DNSName(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(dns), critical=False)
    return builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Authority:
    """A certificate authority that may have others under it, as many organisations run one."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.pem = _made("ours", self.key, "ours", self.key, authority=True)

    def issue(self, party, *, names=None, by=None, authority=False):
        """A key and a chain: made for these names, by an intermediate if there is one."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer, signing_key = ("ours", self.key) if by is None else by
        names = (party,) if names is None else names
        made = _made(party, key, issuer, signing_key, names=names, authority=authority)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return SimpleNamespace(key=pem, chain=made)

    def wildcard(self, party):
        """Made for every host of the domain."""
        return self.issue(party, names=[f"*.{party.split('.')[1]}"])

    def common_name_only(self, party):
        """The party's name stands where names stood in former times."""
        return self.issue(party, names=())

    def by_intermediate(self, party):
        """Signed by somebody whom the authority has let sign."""
        key = ec.generate_private_key(ec.SECP256R1())
        between = _made("between", key, "ours", self.key, authority=True)
        made = self.issue(party, by=("between", key))
        return SimpleNamespace(key=made.key, chain=made.chain + between)

    def an_authority(self, party):
        """The certificate may itself sign others."""
        return self.issue(party, authority=True)


AUTHORITY = Authority()
HONEST = {name: AUTHORITY.issue(name) for name in (HUB, BANK)}
BAD = ["wildcard", "common_name_only", "by_intermediate", "an_authority"]
TRUST = TrustStore()
TRUST.own_ca(AUTHORITY.pem)


def _open(me, peer, **how):
    identity = Identity.from_pem(HONEST[me].key, HONEST[me].chain)
    return GrpcEndpoint(me, identity, TRUST, run_id="test", peers=[peer], **how)


@pytest.fixture
def hub():
    """A hub that accepts what the authority signed, and waits for the bank."""
    with contextlib.closing(_open(HUB, BANK, listen="127.0.0.1:0", connect_timeout=20.0)) as opened:
        yield opened


def _greet(hub):
    """The bank gets in, and a frame gets through."""
    with contextlib.closing(_open(BANK, HUB, dial={HUB: f"127.0.0.1:{hub.port}"})) as bank:
        bank.send(HUB, b"hello")
        assert hub.recv(BANK, 20) == b"hello"


class Impostor:
    """A listening stranger: takes every call that TLS lets through, and remembers it."""

    def __init__(self, shown):
        self.heard = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(self,))
        credentials = grpc.ssl_server_credentials([(shown.key, shown.chain)], AUTHORITY.pem, require_client_auth=True)
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def service(self, details):
        """Remember the header."""
        self.heard.append(dict(details.invocation_metadata))
        return grpc.stream_stream_rpc_method_handler(self.answer)

    def answer(self, _incoming, context):
        """Refuse the call, with a text that is meant for a terminal."""
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "\x1b[2J\nno\u202e" + "x" * 5000)

    def close(self):
        """Stop listening."""
        self._server.stop(0).wait()


class Stranger:
    """A bare client with a certificate of its own."""

    def __init__(self, port, shown=HONEST[BANK]):
        credentials = grpc.ssl_channel_credentials(AUTHORITY.pem, shown.key, shown.chain)
        options = [("grpc.ssl_target_name_override", HUB), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self._call = self._channel.stream_stream(METHOD)
        self._over = threading.Event()

    def start(self, *messages, hello):
        """A call that stays, with this HELLO in its header, if any."""

        def requests():
            yield from messages
            self._over.wait(20)

        return self._call(requests(), metadata=[(HELLO_KEY, hello)] if hello is not None else None, timeout=20)

    def talk(self, *messages, hello):
        """How such a call ends."""
        call = self.start(*messages, hello=hello)
        with pytest.raises(grpc.RpcError):
            list(call)
        return call.code(), call.details()

    def close(self):
        """Hang up."""
        self._over.set()
        self._channel.close()


def _hello(run_id="test", speaker=BANK):
    return Hello(envelope.WIRE_VERSION, 7, 0, run_id, speaker, HUB, NOTHING).encode()


@pytest.mark.parametrize("bad", BAD)
def test_a_listening_stranger_is_refused_before_anything_is_said(bad):
    """TLS alone would take its certificate for the hub's; the bank does not, and not even its HELLO leaves it."""
    impostor = Impostor(getattr(AUTHORITY, bad)(HUB))
    with contextlib.closing(impostor):
        if bad != "an_authority":  # which TLS refuses to talk to anyway
            client = Stranger(impostor.port)
            client.talk(hello=b"TLS lets this through")
            client.close()
            assert [entry[HELLO_KEY] for entry in impostor.heard] == [b"TLS lets this through"]
        impostor.heard.clear()
        with (
            contextlib.closing(_open(BANK, HUB, dial={HUB: f"127.0.0.1:{impostor.port}"})) as bank,
            pytest.raises(PeerRefused, match=r"made for|not known here|of an authority"),
        ):
            bank.wait_connected(20)
        assert impostor.heard == []


@pytest.mark.parametrize("bad", BAD)
def test_a_dialling_stranger_is_refused_in_the_same_way(hub, bad):
    """It gets one sentence that tells nothing of what the hub knows; the real bank still gets in."""
    client = Stranger(hub.port, getattr(AUTHORITY, bad)(BANK))
    code, details = client.talk(hello=_hello())
    client.close()
    if bad != "an_authority":
        assert (code, details) == (grpc.StatusCode.PERMISSION_DENIED, f"{HUB} does not expect this party")
    with pytest.raises(DeadlineExceeded, match="still waiting for"):
        hub.wait_connected(0.05)
    _greet(hub)


class Switch:
    """A wire that leads the first connection to one port and all later ones to another."""

    def __init__(self, first, later):
        self._ports = [first]
        self._later = later
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.n_later = 0
        self._carrying = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._carrying.append(near)
                self.n_later += not self._ports
                far = self._reach(self._ports.pop() if self._ports else self._later)
                self._carrying.append(far)
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    @staticmethod
    def _reach(port):
        return socket.create_connection(("127.0.0.1", port))

    @staticmethod
    def _carry(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self):
        """Lead nowhere."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for each in (self._listening, *self._carrying):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.mark.parametrize("bad", ["wildcard", "by_intermediate"])
def test_the_certificate_that_was_looked_at_is_the_one_that_is_talked_to(hub, bad):
    """Showing the hub's certificate first and another one afterwards is of no use: nothing is said to the other."""
    impostor = Impostor(getattr(AUTHORITY, bad)(HUB))
    switch = Switch(hub.port, impostor.port)
    with contextlib.closing(impostor), contextlib.closing(switch):
        how = {"dial": {HUB: f"127.0.0.1:{switch.port}"}, "connect_timeout": 20.0}
        with contextlib.closing(_open(BANK, HUB, **how)) as bank, pytest.raises((PeerRefused, PeerLost)):
            bank.recv(HUB, 25)
        assert switch.n_later > 0
        assert impostor.heard == []


# --- what a stranger may cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hello", "code", "why"),
    [
        (None, "PERMISSION_DENIED", "without a HELLO in its header, which version 2"),
        (b"", "PERMISSION_DENIED", "without a HELLO in its header"),
        (_hello(run_id="yesterday"), "PERMISSION_DENIED", "takes part in another run"),
        (_hello() + bytes(5000), "PERMISSION_DENIED", "has 32 to 4096 bytes, got 50"),
        (bytes(100_000), "RESOURCE_EXHAUSTED", ""),
    ],
    ids=["none", "empty", "another run", "fat", "huge"],
)
def test_a_call_without_a_right_hello_is_ended_at_once_and_unread(hub, monkeypatch, hello, code, why):
    """Nobody waits for a HELLO, and of what a stranger sends after its header nothing is read."""
    read = []
    arrived = grpc_channel.PeerChannel.on_message
    monkeypatch.setattr(
        grpc_channel.PeerChannel,
        "on_message",
        lambda self, stream, message: (read.append(message), arrived(self, stream, message))[1],
    )
    client = Stranger(hub.port)
    found, details = client.talk(bytes(8 << 20), hello=hello)
    client.close()
    assert found is getattr(grpc.StatusCode, code)
    assert why in details
    assert not any(read)
    _greet(hub)


def test_many_calls_at_once_keep_nobody_out(hub, caplog):
    """Calls of strangers are ended as they come, so that few are open at any time; the bank gets in among them."""
    clients = [Stranger(hub.port) for _ in range(5)]
    most, started = 0, []
    for _ in range(30):
        started += [client.start(hello=None) for client in clients]
        most = max(most, hub._server.places.taken)
    _greet(hub)
    for call in started:
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code().name in {"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    for client in clients:
        client.close()
    assert most <= 18  # two for the bank and sixteen more
    assert len(hub._doorkeeper.refused) == 1  # what is the same is neither kept nor logged
    hub.close()
    assert re.search(r"turned away \d+ connections in all", caplog.text)
    assert caplog.text.count("turned away") == 2


class Elsewhere(Switch):
    """A wire to a port from another address than all others."""

    def __init__(self, port):
        super().__init__(port, port)

    @staticmethod
    def _reach(port):
        return socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))


@pytest.fixture
def lingering(monkeypatch):
    """Calls that are turned away stay, as those do whose maker does not take the answer."""
    monkeypatch.setattr(Doorkeeper, "_turn_away", lambda *_: None)


def _start_calls(port, n_clients, n_calls):
    clients = [Stranger(port) for _ in range(n_clients)]
    return clients, [client.start(hello=_hello(run_id="another")) for client in clients for _ in range(n_calls)]


@pytest.mark.usefixtures("lingering")
def test_one_address_does_not_take_all_places(hub):
    """Of thirty calls that stay, four are looked at, and the rest is ended unseen; the bank comes from elsewhere."""
    wire = Elsewhere(hub.port)
    with contextlib.closing(wire):
        clients, calls = _start_calls(wire.port, n_clients=10, n_calls=3)
        until = time.monotonic() + 20
        while sum(call.done() for call in calls) < 26 and time.monotonic() < until:
            time.sleep(0.02)
        ended = [call for call in calls if call.done()]
        assert len(ended) == 26
        assert {(call.code().name, call.details()) for call in ended} == {("RESOURCE_EXHAUSTED", TOO_MANY)}
        assert hub._server.places.taken == 4
        _greet(hub)
        for client in clients:
            client.close()


@pytest.mark.usefixtures("lingering")
def test_an_address_is_heard_again_when_its_calls_are_over(hub):
    """Four calls that stay keep the bank out, if it shares their address, and not longer than they stay."""
    clients, calls = _start_calls(hub.port, n_clients=2, n_calls=2)
    until = time.monotonic() + 20
    while hub._server.places.taken < 4 and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.closing(_open(BANK, HUB, dial={HUB: f"127.0.0.1:{hub.port}"})) as bank:
        with pytest.raises(DeadlineExceeded, match=TOO_MANY):
            bank.wait_connected(1.5)  # long enough for many attempts
        assert not any(call.done() for call in calls)
        for client in clients:
            client.close()
        bank.wait_connected(20)


def test_parties_that_are_let_in_may_share_an_address():
    """A proxy in front of the hub is one address for all."""
    names = [f"bank{k}" for k in range(3 * MOST_NOT_LET_IN)]
    endpoints = connect_star("hub", names)
    with contextlib.ExitStack() as stack:
        for endpoint in endpoints.values():
            stack.callback(endpoint.close)
        for name in names:
            endpoints[name].send("hub", name.encode())
            assert endpoints["hub"].recv(name, 20) == name.encode()
        assert endpoints["hub"]._server.places.taken == len(names)


def test_places_of_an_address_are_counted_and_forgotten():
    """Calls that were let in do not count for an address, nor those that are over; nothing is kept of it then."""
    places = Places(MOST_NOT_LET_IN + 3)
    let_in = [places.take("a") for _ in range(2)]
    for place in let_in:
        place.let_in()
    others = [places.take("a") for _ in range(MOST_NOT_LET_IN)]
    assert None not in others
    assert places.take("a") is None
    assert places.take("b") is not None  # the last place
    assert places.take("c") is None
    others.pop().leave()
    others.append(places.take("a"))
    assert None not in others
    for place in (*let_in, *others):
        place.leave()
    assert places.taken == 1
    assert places._not_let_in == {"b": 1}


@pytest.mark.parametrize(
    ("peer", "host"), [("ipv4:10.0.0.7:50412", "ipv4:10.0.0.7"), ("ipv6:%5B::1%5D:50412", "ipv6:%5B::1%5D")]
)
def test_the_port_of_a_caller_does_not_count(peer, host):
    """Each connection has another one."""
    assert host_of(peer) == host


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "a little", "HTTP"])
def test_who_does_not_finish_the_handshake_is_hung_up_on(monkeypatch, says):
    """A connection that never becomes one of TLS is closed after a few seconds (here less)."""
    monkeypatch.setattr(endpoints, "_STRANGER_SECONDS", 0.3)
    with contextlib.closing(_open(HUB, BANK, listen="127.0.0.1:0")) as hub:
        with socket.create_connection(("127.0.0.1", hub.port), timeout=20) as stranger:
            stranger.sendall(says)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(65536):
                    pass
        _greet(hub)


def test_connections_are_limited_in_number(monkeypatch):
    """Beyond the limit (here a low one) a connection is closed at once; once strangers are gone the bank gets in."""
    monkeypatch.setattr(endpoints, "_STRANGER_SECONDS", 600.0)  # so that nothing else closes them
    monkeypatch.setattr(endpoints, "_MORE_CONNECTIONS", 8)
    with contextlib.closing(_open(HUB, BANK, listen="127.0.0.1:0")) as hub, contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", hub.port), timeout=20)) for _ in range(30)
        ]
        closed = 0
        while closed < 20:  # ten may stay, waiting to be seen through
            ready, _, _ = select.select(strangers, [], [], 20)
            assert ready, f"only {closed} of 30 were closed"
            closed += len(ready)
            strangers = [each for each in strangers if each not in ready]
        stack.close()
        _greet(hub)


def test_a_connection_without_a_call_is_hung_up_on(monkeypatch):
    """A certificate is not enough to stay: without a call the connection ends after a few seconds (here less)."""
    monkeypatch.setattr(endpoints, "_STRANGER_SECONDS", 0.3)
    with contextlib.closing(_open(HUB, BANK, listen="127.0.0.1:0")) as hub:
        client, seen, gone = Stranger(hub.port), [], threading.Event()

        def watch(state):
            seen.append(state)
            if grpc.ChannelConnectivity.READY in seen and state is grpc.ChannelConnectivity.IDLE:
                gone.set()

        client._channel.subscribe(watch, try_to_connect=True)
        assert gone.wait(20)
        client.close()
        _greet(hub)


def test_seconds_for_strangers_are_few():
    """What the tests above make shorter is five seconds, and a HELLO is four kilobytes at most."""
    assert endpoints._STRANGER_SECONDS == 5.0
    assert envelope.MAX_HELLO_BYTES == 4096


# --- what a peer writes ----------------------------------------------------------------------------------------------


def test_texts_of_peers_cannot_write_into_a_terminal_or_a_log(caplog):
    """The refusal of a peer that sends control characters is shown without them, and cut."""
    impostor = Impostor(HONEST[HUB])
    with (
        contextlib.closing(impostor),
        contextlib.closing(_open(BANK, HUB, dial={HUB: f"127.0.0.1:{impostor.port}"})) as bank,
        pytest.raises(PeerRefused) as caught,
    ):
        bank.wait_connected(20)
    assert "no" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < MOST_CHARACTERS + 100
    assert "\x1b" not in caplog.text


def test_names_in_certificates_are_shown_without_control_characters(hub, caplog):
    """A certificate whose name would clear the screen is turned away with a line in the log that does not."""
    client = Stranger(hub.port, AUTHORITY.issue(BANK, names=["\x1b[2Jshop.clinics"]))
    code, _ = client.talk(hello=_hello())
    client.close()
    assert code is grpc.StatusCode.PERMISSION_DENIED
    for _ in range(200):
        if "turned away" in caplog.text:
            break
        time.sleep(0.01)
    assert "[2Jshop.clinics is not expected" in caplog.text
    assert "\x1b" not in caplog.text


def test_plain_keeps_what_people_can_read():
    """Letters of any language stay; line breaks, escapes and marks of direction do not; long texts are cut."""
    assert plain("Zoë: 50 % · naïve") == "Zoë: 50 % · naïve"
    assert plain("a\nb\x1b[0m\u202e\u2028c\x7f") == "a\ufffdb\ufffd[0m\ufffd\ufffdc\ufffd"
    assert plain("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS
    assert len(plain("x" * (MOST_CHARACTERS + 1))) == MOST_CHARACTERS
    assert Certificate.from_pem(HONEST[HUB].chain).names == (HUB,)
