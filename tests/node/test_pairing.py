"""Pairing by a short code: two parties that have it pin each other, and nobody else gets anywhere."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spake2 import SPAKE2_A

from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    HedgerowError,
    InvalidParameter,
    PeerLost,
    PeerRefused,
    TransportError,
    VersionMismatch,
)
from hedgerow.node import pairing
from hedgerow.node.pairing import Card, Line, Listener, Secret, clean_code, dial, new_code
from hedgerow.transport.mtls import Certificate, Identity, now
from twins.damage import as_often, damaged

LOCAL = "127.0.0.1"
THIEF = Identity.create("shop")
WAIT = 60.0
"""Far more than anything here takes; a test that reaches it has failed."""


class Waiting:
    """A listener that waits in a thread of its own."""

    def __init__(self, home, **settings):
        self.lines = []
        self.listener = Listener(
            home.identity(), home.name, home.peers, f"{LOCAL}:0", told=self.lines.append, **settings
        )
        self._pool = ThreadPoolExecutor(1)
        self._answer = self._pool.submit(self.listener.wait)

    @property
    def address(self):
        """Where it can be dialled."""
        return f"{LOCAL}:{self.listener.port}"

    @property
    def code(self):
        """What it shows."""
        return self.listener.code

    @property
    def wrong(self):
        """Another code."""
        return "0000-0000" if self.code != "0000-0000" else "0000-0001"

    def peer(self):
        """Whom it pinned, or the error that it ended with."""
        return self._answer.result(WAIT)

    def heard(self, text, times=1):
        """Was this told so many times? A line may come a moment after the other side got its answer."""
        end = time.monotonic() + WAIT
        while sum(text in line for line in self.lines) < times and time.monotonic() < end:
            time.sleep(0.01)
        return sum(text in line for line in self.lines) == times

    def still_waits(self):
        """Has it not come to an end?"""
        return not self._answer.done()

    def close(self):
        """End it, however far it is."""
        self.listener._settle(PeerRefused("the test is over"))
        self._pool.shutdown()
        self.listener.close()


@contextmanager
def waiting(home, **settings):
    """A listener of this party."""
    found = Waiting(home, **settings)
    try:
        yield found
    finally:
        found.close()


def call(home, address, code, **settings):
    """Dial as this party."""
    return dial(home.identity(), home.name, home.peers, address, code, **settings)


@contextmanager
def connected(address, seconds=WAIT):
    """A line to a listener, for somebody who does not keep to the conversation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as raw, context.wrap_socket(raw) as tls:
        line = Line(tls, seconds)
        line.tls = tls
        yield line


def hello(line, identity=THIEF, **change):
    """The first message of a dialler."""
    fields = {"version": "1", "name": "shop", "address": "", "certificate": identity.certificate.pem.decode()}
    line.send("hello", **{**fields, **change})


# --- as it should be -------------------------------------------------------------------------------------------------


def test_both_have_pinned_each_other(bank, shop):
    """With certificate, name and advertised address; and the same parties may do it again."""
    for where in ("bank.example.org:7341", "bank.example.org:7342"):
        with waiting(bank, advertise=where) as listener:
            told = call(shop, listener.address, listener.code.replace("-", " "))
            heard = listener.peer()
        assert told == shop.peers.get("bank")
        assert heard == bank.peers.get("shop")
        assert (told.certificate, told.address, told.how) == (bank.certificate, where, "code")
        assert (heard.certificate, heard.address) == (shop.certificate, None)


def test_a_wrong_code_costs_one_attempt(bank, shop):
    """Two mistakes are forgiven; nothing was pinned by them."""
    with waiting(bank) as listener:
        for left in (2, 1):
            with pytest.raises(PeerRefused, match="the code was not the one"):
                call(shop, listener.address, listener.wrong)
            assert bank.peers.names() == shop.peers.names() == []
            assert listener.heard(f"attempts left: {left}")
        call(shop, listener.address, listener.code)
        assert listener.peer().name == "shop"


def test_after_three_wrong_codes_the_code_is_dead(bank, shop):
    """The listener stops, and the right code comes too late."""
    with waiting(bank) as listener:
        for _ in range(3):
            with pytest.raises(PeerRefused, match="the code was not the one"):
                call(shop, listener.address, listener.wrong)
        with pytest.raises(PeerRefused, match="3 wrong codes were tried"):
            listener.peer()
        with pytest.raises(TransportError):
            call(shop, listener.address, listener.code, seconds=0.3)
    assert bank.peers.names() == shop.peers.names() == []


def test_of_many_guesses_at_once_three_are_looked_at(bank, shop):
    """Trying in parallel gives no more attempts."""
    with waiting(bank) as listener, ThreadPoolExecutor(12) as pool:

        def guess(_):
            try:
                call(shop, listener.address, listener.wrong)
            except TransportError as problem:
                return str(problem)

        answers = list(pool.map(guess, range(12)))
        assert None not in answers
        assert sum("the code was not the one" in answer for answer in answers) <= 3
        with pytest.raises(PeerRefused, match="3 wrong codes"):
            listener.peer()
        assert listener.heard("a wrong code", times=3)


def test_a_typing_mistake_costs_nothing(bank, shop):
    """What cannot be a code is not sent."""
    with waiting(bank) as listener:
        for text in ("", "1234", "1234-567x", "123456789"):
            with pytest.raises(InvalidParameter, match="the code has 8 digits"):
                call(shop, listener.address, text)
        assert listener.lines == []


def test_a_code_lives_for_its_minutes(bank):
    """Then the listener stops by itself and frees the port."""
    with Listener(bank.identity(), "bank", bank.peers, f"{LOCAL}:0", minutes=0.002) as listener:
        with pytest.raises(DeadlineExceeded, match=r"within 0\.002 minutes; the code is dead"):
            listener.wait()
        port = listener.port
    with socket.create_server((LOCAL, port)):
        pass


@pytest.mark.parametrize("minutes", [0, -1, 1441, float("nan")])
def test_a_time_that_is_none_is_refused(minutes, bank):
    """Before anything is opened."""
    with pytest.raises(InvalidParameter, match="minutes must be"):
        Listener(bank.identity(), "bank", bank.peers, f"{LOCAL}:0", minutes=minutes)


def test_a_port_that_is_taken_is_told(bank):
    """With its address."""
    with socket.create_server((LOCAL, 0)) as taken:
        address = f"{LOCAL}:{taken.getsockname()[1]}"
        with pytest.raises(TransportError, match=f"cannot listen on {address}"):
            Listener(bank.identity(), "bank", bank.peers, address)


def test_codes_have_eight_digits_and_differ():
    """All digits occur at all places, so that there are 10**8 of them."""
    codes = [new_code() for _ in range(300)]
    assert all(clean_code(code) == code for code in codes)
    assert all({code[place] for code in codes} == set("0123456789") for place in (0, 1, 2, 3, 5, 6, 7, 8))


# --- who may not pair ------------------------------------------------------------------------------------------------


def test_names_must_differ(bank, tmp_path):
    """Also in more than capitals; the other side is told that much."""
    from hedgerow.node.home import Home

    for name in ("bank", "Bank"):
        other = Home.create(tmp_path / f"other-{name}", name)
        with waiting(bank) as listener, pytest.raises(PeerRefused, match="party of this name"):
            call(other, listener.address, listener.code)
    assert bank.peers.names() == []


@pytest.mark.parametrize("at", ["listener", "dialler"])
def test_a_revoked_certificate_is_not_paired_again(at, bank, shop):
    """Neither side pins anything; the one that revoked says why, the other is told only that it was not accepted."""
    with waiting(bank) as listener:
        call(shop, listener.address, listener.code)
        listener.peer()
    by, other = (bank, shop) if at == "listener" else (shop, bank)
    by.peers.revoke(other.name)
    other.peers.revoke(by.name)
    (other.revoked).unlink()
    with waiting(bank) as listener:
        answers = []
        for end in (lambda: call(shop, listener.address, listener.code), listener.peer):
            with pytest.raises(PeerRefused) as problem:
                end()
            answers.append(str(problem.value))
    mine, theirs = reversed(answers) if at == "listener" else answers
    assert "was revoked here" in mine
    assert "its own terminal says why" in theirs
    assert bank.peers.names() == shop.peers.names() == []


def test_a_peer_with_another_certificate_is_not_replaced(bank, shop):
    """Whoever has the code of today but not the pinned key gets nowhere."""
    bank.peers.add("shop", THIEF.certificate, None, how="code")
    with waiting(bank) as listener:
        with pytest.raises(PeerRefused, match="its own terminal"):
            call(shop, listener.address, listener.code)
        with pytest.raises(PeerRefused, match="paired already"):
            listener.peer()
    assert bank.peers.get("shop").certificate == THIEF.certificate
    assert shop.peers.names() == []


def test_strangers_are_not_told_who_is_known(bank, shop):
    """Without the code, a revoked party, a paired one and an unknown one get the same answer."""
    bank.peers.add("shop", THIEF.certificate, None, how="code")
    farm, mill = Identity.create("farm"), Identity.create("mill")
    bank.peers.add("farm", farm.certificate, None, how="code")
    bank.peers.revoke("farm")
    answers = set()
    with waiting(bank) as listener:
        for name, identity in (("shop", shop.identity()), ("farm", farm), ("mill", mill)):
            with pytest.raises(PeerRefused) as problem:
                dial(identity, name, shop.peers, listener.address, listener.wrong)
            answers.add(str(problem.value))
    assert len(answers) == 1


def test_a_certificate_without_its_key_is_worth_nothing(bank, shop):
    """Showing somebody else's certificate fails although the code is right."""
    thief = SimpleNamespace(certificate=shop.certificate, sign=THIEF.sign)
    with waiting(bank) as listener:
        with pytest.raises(PeerRefused, match="the code was not the one"):
            dial(thief, "shop", shop.peers, listener.address, listener.code)
        assert listener.still_waits()
    assert bank.peers.names() == []


@pytest.mark.parametrize(
    "identity",
    [
        Identity.create("farm"),
        Identity.create("shop", 1, valid_from=now().replace(year=now().year - 1, day=1)),
    ],
)
def test_a_certificate_that_does_not_fit_is_refused(identity, bank, shop):
    """Of another name, or expired."""
    with waiting(bank) as listener:
        with pytest.raises(PeerRefused, match="does not accept this certificate"):
            dial(identity, "shop", shop.peers, listener.address, listener.code)
        assert listener.still_waits()


# --- somebody in between ---------------------------------------------------------------------------------------------


class Between:
    """Answers in the listener's place, with a certificate of its own, and hands messages on, changed or not."""

    def __init__(self, address, own, *, change=lambda _, message: message):
        self._address, self._change = address, change
        self._context = pairing._server_context(own)
        self._socket = socket.create_server((LOCAL, 0))
        self.address = f"{LOCAL}:{self._socket.getsockname()[1]}"
        self.seen = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        raw, _ = self._socket.accept()
        with self._context.wrap_socket(raw, server_side=True) as near, connected(self._address) as far:
            near.settimeout(WAIT)
            ends = {"dialler": near, "listener": far.tls}
            while True:
                for giver, taker in (("dialler", "listener"), ("listener", "dialler")):
                    message = self._read(ends[giver])
                    if message is None:
                        return
                    self.seen.append((giver, message))
                    content = json.dumps(self._change(giver, message)).encode()
                    ends[taker].sendall(struct.pack(">I", len(content)) + content)

    @staticmethod
    def _read(end):
        try:
            head = end.recv(4)
            content = b""
            while head and len(content) < struct.unpack(">I", head)[0]:
                content += end.recv(16_384)
        except OSError:
            return None
        return json.loads(content) if content else None

    def close(self):
        """Go away."""
        self._thread.join(WAIT)
        self._socket.close()


def with_certificate(own):
    """Put one's own certificate in place of the dialler's."""

    def change(giver, message):
        if giver == "dialler" and message["kind"] == "hello":
            return {**message, "certificate": own.certificate.pem.decode()}
        return message

    return change


def with_address(_, message):
    """Send the listener's future connections elsewhere."""
    return {**message, "address": "thief.example.org:7341"} if message["kind"] == "hello" else message


@pytest.mark.parametrize("change", [lambda _, message: message, with_certificate(THIEF), with_address])
def test_nobody_can_sit_in_between(change, bank, shop):
    """Relaying with another certificate, in one direction or in both, is found out although the code is right."""
    with waiting(bank) as listener:
        between = Between(listener.address, Identity.create("bank"), change=change)
        with pytest.raises(PeerRefused, match="somebody sits between you"):
            call(shop, between.address, listener.code)
        between.close()
        assert listener.still_waits()
        assert listener.heard("attempts left: 2")
    assert bank.peers.names() == shop.peers.names() == []


def test_what_was_overheard_is_worth_nothing(bank, shop, monkeypatch):
    """The messages of an earlier pairing, sent again to a listener with the very same code, prove nothing."""
    monkeypatch.setattr(pairing, "new_code", lambda: "4821-0937")
    said = []
    real = Line.send

    def overheard(line, kind, **fields):
        said.append((threading.current_thread() is threading.main_thread(), kind, fields))
        real(line, kind, **fields)

    monkeypatch.setattr(Line, "send", overheard)
    with waiting(bank) as listener:
        call(shop, listener.address, listener.code)
        listener.peer()
    monkeypatch.setattr(Line, "send", real)
    by_dialler = [(kind, fields) for mine, kind, fields in said if mine]
    assert [kind for kind, _ in by_dialler] == ["hello", "spake", "proof", "checked"]
    with waiting(bank) as listener, connected(listener.address) as line:
        for kind, fields in by_dialler[:3]:
            line.send(kind, **fields)
        line.recv("hello", "version", "name", "address")
        line.recv("spake", "message")
        with pytest.raises(PeerRefused, match="the code was not the one"):
            line.recv("proof", "mac", "signature")


def test_a_listener_that_does_not_know_the_code_is_not_pinned(bank, shop, monkeypatch):
    """Somebody who answers in the partner's place, with a proof that is none or is the dialler's own, gets nowhere."""
    for answer in ("00" * 32, None):

        def lies(self, line, other, secret, answer=answer):
            said = line.recv("proof", "mac", "signature")
            signature = base64.b64encode(self._identity.sign(secret.to_sign("listener"))).decode()
            line.send("proof", mac=answer or said["mac"], signature=signature)
            raise PeerLost(other.name)

        monkeypatch.setattr(Listener, "_check_proof", lies)
        with waiting(bank) as listener, pytest.raises(PeerRefused, match="bank did not prove the code"):
            call(shop, listener.address, listener.wrong)
    assert shop.peers.names() == []


def test_nothing_is_pinned_before_both_proofs(bank, shop):
    """A dialler that goes away after the listener's proof leaves the listener without a peer, and the code used."""
    with waiting(bank) as listener:
        with connected(listener.address) as line:
            identity, der = shop.identity(), line.tls.getpeercert(binary_form=True)
            hello(line, identity)
            line.recv("hello", "version", "name", "address")
            side = SPAKE2_A(listener.code.encode(), idA=b"shop", idB=b"bank")
            mine = side.start()
            line.send("spake", message=base64.b64encode(mine).decode())
            theirs, key = pairing._finish(side, line.recv("spake", "message"))
            shown = Certificate(pairing.x509.load_der_x509_certificate(der))
            secret = Secret(key, Card("shop", None, identity.certificate), Card("bank", None, shown), mine, theirs)
            pairing._prove(line, identity, secret, "dialler")
            assert secret.is_proof("listener", line.recv("proof", "mac", "signature")["mac"])
            assert bank.peers.names() == []
        with pytest.raises(PeerLost):
            listener.peer()
    assert bank.peers.names() == []


# --- laws of the proof -----------------------------------------------------------------------------------------------

BANK, SHOP = Identity.create("bank").certificate, Identity.create("shop").certificate
texts = st.text(max_size=6)
said = st.tuples(texts, texts, texts, texts, st.binary(max_size=4), st.binary(max_size=4))


def secret_of(key, parts):
    """A secret from its parts."""
    name, address, other_name, other_address, side_a, side_b = parts
    return Secret(key, Card(name, address, SHOP), Card(other_name, other_address, BANK), side_a, side_b)


@given(said, said, st.binary(min_size=1, max_size=3), st.binary(min_size=1, max_size=3))
def test_proofs_agree_only_where_all_was_the_same(one, other, key, other_key):
    """Another name, address, message or key, and also the same letters divided in another way, prove another thing."""
    same = (one, key) == (other, other_key)
    assert secret_of(key, one).is_proof("dialler", secret_of(other_key, other).proof("dialler")) == same


@pytest.mark.parametrize("place", range(6))
def test_every_part_counts_by_itself(place):
    """One other name, address or message counts, and so do the same letters divided in another way."""
    parts = ["shop", "shop:1", "bank", "bank:1", b"a", b"b"]
    other = list(parts)
    other[place] = other[place][:-1]
    divided = ["shops", "hop:1", "bankb", "ank:1", b"ab", b""]
    proof = secret_of(b"key", parts).proof("dialler")
    assert secret_of(b"key", parts).is_proof("dialler", proof)
    for changed in (other, divided):
        assert not secret_of(b"key", changed).is_proof("dialler", proof)


def test_a_proof_is_of_one_step():
    """What one side proves is no proof of the other, nor of a later step; certificates count, and their order."""
    parts = ("shop", "", "bank", "", b"a", b"b")
    secret = secret_of(b"key", parts)
    steps = ("dialler", "listener", "dialler checked", "listener pinned")
    assert len({secret.proof(step) for step in steps} | {secret.to_sign(step) for step in steps}) == 8
    swapped = Secret(b"key", Card("shop", "", BANK), Card("bank", "", SHOP), b"a", b"b")
    assert not swapped.is_proof("dialler", secret.proof("dialler"))
    assert not secret.is_proof("dialler", "ü")


# --- hostile and broken peers ----------------------------------------------------------------------------------------


def truncated(line):
    """Announce more than is sent."""
    line.tls.sendall(struct.pack(">I", 100) + b"{}")


def oversized(line):
    """Announce four gigabytes."""
    line.tls.sendall(struct.pack(">I", 2**32 - 1))


def nonsense(line):
    """Bytes that are not JSON."""
    line.tls.sendall(struct.pack(">I", 4) + b"\xff\x00{[")


def nested(line):
    """JSON that is all brackets."""
    line.tls.sendall(struct.pack(">I", 16_000) + b"[" * 16_000)


def numbers(line):
    """Values that are not texts."""
    content = b'{"kind": "hello", "version": 1}'
    line.tls.sendall(struct.pack(">I", len(content)) + content)


def out_of_turn(line):
    """A proof where a hello is due."""
    line.send("proof", mac="", signature="")


def no_certificate(line):
    """A hello with something else for a certificate."""
    hello(line, certificate="nonsense")


def other_version(line):
    """A hello of a later program."""
    hello(line, version="2")


def bad_address(line):
    """A hello with an address that would be written into a file."""
    hello(line, address="nowhere\nat all:80")


def bad_point(line):
    """A message of SPAKE2 that is no point of the curve."""
    hello(line)
    line.send("spake", message=base64.b64encode(b"A" + b"\x07" * 32).decode())


def zero_point(line):
    """The neutral element, with which the key would be known without the code."""
    hello(line)
    line.send("spake", message=base64.b64encode(b"A\x01" + b"\0" * 31).decode())


def small_order(line):
    """A point of order two."""
    hello(line)
    point = (2**255 - 20).to_bytes(32, "little")
    line.send("spake", message=base64.b64encode(b"A" + point).decode())


def long_point(line):
    """A message of SPAKE2 with something behind it."""
    hello(line)
    line.send("spake", message=base64.b64encode(SPAKE2_A(b"").start() + b"x").decode())


def own_side(line):
    """A message of the listener's own side of SPAKE2."""
    hello(line)
    line.send("spake", message=base64.b64encode(b"B" + SPAKE2_A(b"").start()[1:]).decode())


def not_base64(line):
    """Not even that."""
    hello(line)
    line.send("spake", message="%%%")


def silent(line):
    """Nothing at all."""


AFTER_HELLO = [bad_point, zero_point, small_order, long_point, own_side, not_base64]
MISCHIEF = [
    *(truncated, oversized, nonsense, nested, numbers, out_of_turn, no_certificate, other_version, bad_address),
    *(*AFTER_HELLO, silent),
]


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_mischief_costs_no_attempt_and_stops_nobody(mischief, bank, shop):
    """Ten of a kind, and the partner still pairs: no code was guessed, so no attempt is lost."""
    with waiting(bank) as listener:
        for _ in range(10):
            with connected(listener.address) as line:
                mischief(line)
        call(shop, listener.address, listener.code)
        assert listener.peer().name == "shop"
        assert not any("attempts left" in text for text in listener.lines)


@pytest.mark.parametrize("mischief", [kind for kind in MISCHIEF if kind not in (truncated, silent, other_version)])
def test_mischief_is_answered_in_words(mischief, bank):
    """Whoever breaks the rules is told a code from the public list, and the line is closed."""
    with waiting(bank) as listener:
        with connected(listener.address) as line:
            mischief(line)
            if mischief in AFTER_HELLO:
                line.recv("hello", "version", "name", "address")
            with pytest.raises(PeerRefused) as problem:
                line.recv("anything")
        assert str(problem.value) in pairing.REFUSALS.values()
        assert listener.still_waits()


class Bytes:
    """A socket that gives these, and then ends."""

    def __init__(self, content):
        self._left = content

    def settimeout(self, seconds):
        """It never waits."""

    def recv(self, size):
        """The next ones."""
        part, self._left = self._left[:size], self._left[size:]
        return part


FIELDS = {"version": "1", "name": "shop", "address": "shop:1", "certificate": THIEF.certificate.pem.decode()}


@given(data=st.data())
@as_often(200)
def test_any_bytes_are_a_message_or_an_error_of_ours(data):
    """Any value in any place of a message, any byte, any length: its fields as texts, or words."""
    content = data.draw(damaged(json.dumps({"kind": "hello", **FIELDS}).encode(), "json"))
    framed = struct.pack(">I", len(content)) + content
    try:
        found = Line(Bytes(data.draw(st.just(framed) | damaged(framed, "bytes")))).recv("hello", *FIELDS)
    except HedgerowError as problem:
        assert str(problem).isprintable()  # noqa: PT017 - most are refused, and then in words
    else:
        assert found.keys() == {"kind", *FIELDS}
        assert all(isinstance(text, str) and text.isascii() for text in found.values())


def test_those_who_do_not_even_speak_tls_stop_nobody(bank, shop):
    """Plain text, half a handshake, and a connection that is cut at once."""
    with waiting(bank) as listener:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"", b"\0" * 5_000):
            with socket.create_connection((LOCAL, listener.listener.port), timeout=WAIT) as raw:
                raw.sendall(content)
        call(shop, listener.address, listener.code)
        assert listener.peer().name == "shop"


def test_silent_connections_are_cut_and_keep_nobody_out(bank, shop):
    """More of them than there are places, all open at once, and the partner still pairs."""
    with waiting(bank) as listener:
        where = (LOCAL, listener.listener.port)
        sockets = [socket.create_connection(where, timeout=WAIT) for _ in range(pairing.MOST_CONVERSATIONS + 8)]
        call(shop, listener.address, listener.code)
        assert listener.peer().name == "shop"
    for each in sockets:
        assert ended(each)
        each.close()


def ended(each):
    """Did the other side close it?"""
    try:
        while each.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def dribble(tls):
    """Send a byte now and then until the other side has had enough."""
    tls.settimeout(0.05)
    while True:
        try:
            tls.sendall(b" ")
            if not tls.recv(1):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def test_a_slow_peer_is_cut(bank):
    """Somebody who sends a byte now and then has as long as everybody else, in all."""
    with waiting(bank, patience=0.5) as listener, connected(listener.address) as line:
        line.tls.sendall(struct.pack(">I", 16_000))
        dribble(line.tls)
        assert listener.heard("took too long")
        assert listener.still_waits()


def test_a_code_is_computed_with_a_limited_number_of_times(bank, shop, monkeypatch):
    """Whoever measures how long answers take, without ever trying a code, uses the code up."""
    monkeypatch.setattr(pairing, "MOST_STARTS", 5)
    with waiting(bank) as listener:
        for _ in range(5):
            with connected(listener.address) as line:
                hello(line)
                line.recv("hello", "version", "name", "address")
                line.send("spake", message=base64.b64encode(SPAKE2_A(b"").start()).decode())
                line.recv("spake", "message")
        with pytest.raises(PeerRefused, match="the code is used up"):
            call(shop, listener.address, listener.code)
        with pytest.raises(PeerRefused, match="more than 5 conversations were begun; the code is dead"):
            listener.peer()
    assert bank.peers.names() == []


@pytest.mark.parametrize("fails", [False, True])
def test_what_depends_on_the_code_takes_a_fixed_time(fails, monkeypatch):
    """However long computing took, and whether or not it failed, the rest of the time is waited."""
    clock = [100.0]
    monkeypatch.setattr(pairing, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(pairing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(pairing.time, "sleep", lambda seconds: clock.append(clock[0] + seconds))
    for took in (0.0, 0.02, 0.25):
        clock[:] = [100.0]
        with suppress(ZeroDivisionError), pairing._in_fixed_time():
            clock[0] += took
            clock[0] /= not fails
        assert clock[-1] == pytest.approx(100.3)


def test_a_silent_listener_does_not_hang_the_dialler(shop):
    """Whoever accepts and says nothing is given up."""
    with socket.create_server((LOCAL, 0)) as mute:
        address = f"{LOCAL}:{mute.getsockname()[1]}"
        with pytest.raises(DeadlineExceeded, match="took too long"):
            call(shop, address, "1234-5678", seconds=0.3)


def test_nobody_at_the_address_is_told(shop):
    """With the address, and what to look at."""
    with socket.create_server((LOCAL, 0)) as closed:
        address = f"{LOCAL}:{closed.getsockname()[1]}"
    with pytest.raises(TransportError, match=f"nobody can be reached at {address}.*pair --listen"):
        call(shop, address, "1234-5678")


def test_another_kind_of_server_is_told(shop):
    """One that does not speak TLS."""
    with socket.create_server((LOCAL, 0)) as plain:

        def greet():
            line, _ = plain.accept()
            line.sendall(b"220 mail.example.org ready\r\n")
            line.recv(1000)
            line.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(TransportError, match=r"no TLS 1\.3 with the other side"):
            call(shop, f"{LOCAL}:{plain.getsockname()[1]}", "1234-5678")
        thread.join()


def test_a_hostile_listener_cannot_fill_memory(bank, shop):
    """The dialler's limits are the same."""
    context = pairing._server_context(bank.identity())
    with socket.create_server((LOCAL, 0)) as server:

        def announce():
            raw, _ = server.accept()
            with context.wrap_socket(raw, server_side=True) as tls:
                tls.sendall(struct.pack(">I", 2**31))
                ended(tls)

        thread = threading.Thread(target=announce)
        thread.start()
        with pytest.raises(FrameError, match="2,147,483,648 bytes"):
            call(shop, f"{LOCAL}:{server.getsockname()[1]}", "1234-5678")
        thread.join()
    assert shop.peers.names() == []


def test_what_a_peer_writes_does_not_reach_the_terminal_raw(bank):
    """Lines about strangers hold no control characters, however they name themselves."""
    with waiting(bank) as listener:
        with connected(listener.address) as line:
            hello(line, version="2\x1b[31m\nhedgerow: paired")
            with pytest.raises(VersionMismatch):
                line.recv("hello", "version", "name", "address")
        with connected(listener.address) as line:
            line.send("\x1b]0;x\x07")
            with pytest.raises(PeerRefused):
                line.recv("hello", "version", "name", "address")
        assert listener.still_waits()
    assert listener.lines
    assert all(text.isprintable() for text in listener.lines)


@pytest.mark.parametrize(("theirs", "older"), [("0", "the other side"), ("2", "this side")])
def test_another_version_of_pairing_is_told_to_both(theirs, older, bank):
    """Each names both versions and who has to upgrade, whatever else the other program says in its hello."""
    with waiting(bank) as listener:
        with connected(listener.address) as line:
            line.send("hello", version=theirs, name="shop", something="that nobody knows yet")
            with pytest.raises(VersionMismatch, match="other side speaks version 1 of pairing"):
                line.recv("hello", "version", "name", "address")
        assert listener.still_waits()
    told = next(text for text in listener.lines if "pairing" in text)
    assert f"speaks version {theirs} of pairing, this program version 1: {older} needs a newer hedgerow" in told


def test_half_a_character_is_not_a_message(bank):
    """JSON can spell what no text can hold; the conversation ends in words."""
    with waiting(bank) as listener:
        with connected(listener.address) as line:
            hello(line, certificate="\ud800")
            with pytest.raises(PeerRefused, match="did not understand"):
                line.recv("hello", "version", "name", "address")
        assert listener.still_waits()


def test_the_key_goes_through_no_file_in_the_clear(bank, monkeypatch):
    """What Python's TLS reads from is encrypted, private, and gone afterwards."""
    written = []
    real = pairing.write_whole
    monkeypatch.setattr(
        pairing, "write_whole", lambda path, content: (written.append((path, content)), real(path, content))
    )
    pairing._server_context(bank.identity())
    ((path, content),) = written
    assert b"ENCRYPTED PRIVATE KEY" in content
    assert b"BEGIN PRIVATE KEY" not in content
    assert not path.exists()


def test_a_full_disk_is_told_and_ends_the_pairing(bank, shop, monkeypatch):
    """What cannot be written down is not paired, and nobody waits for ten minutes."""
    peers = bank.peers

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(peers, "add", full)
    home = SimpleNamespace(identity=bank.identity, name="bank", peers=peers)
    with waiting(home) as listener:
        with pytest.raises(HedgerowError):
            call(shop, listener.address, listener.code)
        with pytest.raises(OSError, match="No space left"):
            listener.peer()
    assert shop.peers.names() == []
