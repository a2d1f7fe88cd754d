"""A party's two doors, its signatures, and whose error it is when several parties end with one."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from hedgerow.aborts import Reason
from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    HedgerowError,
    InvalidInput,
    PeerFailed,
    PeerLost,
    PeerRefused,
    ProtocolError,
    VersionMismatch,
)
from hedgerow.ledger import Exact, Line, Public, Traffic, reconcile
from hedgerow.runtime.party import DEADLINE, Party, named, root_cause
from hedgerow.runtime.running import in_memory
from hedgerow.transport.frames import Message, UInt64s, encode
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity, TrustStore
from twins.parties import Authority, make_identities, trust_in

IDENTITIES = make_identities(["bank", "shop"])
TRUST = trust_in(IDENTITIES.values())


@dataclass(frozen=True, slots=True)
class Sums(Message, name="test.party_sums", version=1):
    """A message with something in it."""

    discloses = Exact("sums")
    values: UInt64s


@dataclass(frozen=True, slots=True)
class Thanks(Message, name="test.party_thanks", version=2):
    """A message with nothing in it."""

    discloses = Public("that it arrived")


@dataclass(frozen=True, slots=True)
class Silent(Message, name="test.party_silent", version=1):
    """A message that does not say what it discloses."""

    secret: int


@dataclass(frozen=True, slots=True)
class Vague(Message, name="test.party_vague", version=1):
    """A message whose disclosure is mere words."""

    discloses = "nothing of interest"
    secret: int


SUMS = Sums(np.arange(5, dtype=np.uint64))


def talk(**roles):
    """Run roles that take their party; the parties, and how each role ended."""
    network = MemoryNetwork(list(roles))
    parties = in_memory(network, tuple(roles))
    outcomes = network.run({name: lambda n=name, f=role: f(parties[n]) for name, role in roles.items()})
    return parties, {name: outcome.error or outcome.value for name, outcome in outcomes.items()}


class OnePeer:
    """An endpoint with one peer that has said what it will ever say; remembers what it was asked."""

    name = "bank"
    peers = ("shop",)

    def __init__(self, *frames):
        self.frames = list(frames)
        self.sent = []
        self.timeouts = []

    def send(self, to, frame):
        """Take the frame, unless the peer is gone."""
        if to != "shop":
            raise PeerLost(f"{to} went away")
        self.sent.append(frame)

    def recv(self, sender, timeout):
        """The next frame that was prepared."""
        self.timeouts.append(timeout)
        if not self.frames:
            raise DeadlineExceeded(f"bank waited {timeout:g} s in vain for a message of {sender}")
        return self.frames.pop(0)


def bank(*frames, trust=TRUST, **how):
    """The bank, with a shop that sends these frames."""
    return Party(OnePeer(*frames), IDENTITIES["bank"], trust, **how)


# --- the doors -------------------------------------------------------------------------------------------------------


def test_both_books_and_both_meters_say_the_same():
    """Every message is written down by sender and receiver, with the length of its frame."""

    def one(me):
        me.send("shop", SUMS, event={"sigma": 2.0})
        me.recv("shop", Thanks)
        me.send("shop", SUMS)

    def other(me):
        first = me.recv("bank", Sums)
        me.send("bank", Thanks())
        return first.values.tolist(), me.recv("bank", Sums).values.tolist()

    parties, ends = talk(bank=one, shop=other)
    assert ends["shop"] == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    size, small = len(encode(SUMS)), len(encode(Thanks()))
    assert list(parties["bank"].ledger) == [
        Line("disclosed", "shop", 1, "test.party_sums", 1, size, "sums", "in the clear", {"sigma": 2.0}),
        Line("learned", "shop", 1, "test.party_thanks", 2, small, "that it arrived", "public", None),
        Line("disclosed", "shop", 2, "test.party_sums", 1, size, "sums", "in the clear", None),
    ]
    assert [(line.direction, line.n_bytes) for line in parties["shop"].ledger] == [
        ("learned", size),
        ("disclosed", small),
        ("learned", size),
    ]
    reconcile({name: party.ledger for name, party in parties.items()})
    assert parties["bank"].meter.by_peer() == {"shop": Traffic(2, 2 * size, 1, small)}
    assert parties["shop"].meter.by_peer() == {"bank": Traffic(1, small, 2, 2 * size)}
    assert parties["bank"].meter.by_message()["test.party_sums"] == Traffic(2, 2 * size, 0, 0)


def test_a_message_to_all_is_one_line_for_each():
    """The same frame to several peers is disclosed to each of them."""

    def hub(me):
        me.send_all(["a", "b"], SUMS)

    def spoke(me):
        return me.recv("hub", Sums).values.tolist()

    parties, ends = talk(hub=hub, a=spoke, b=spoke)
    assert ends["a"] == ends["b"] == [0, 1, 2, 3, 4]
    assert [(line.peer, line.number) for line in parties["hub"].ledger] == [("a", 1), ("b", 1)]
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("message", [Silent(7), Vague(7)], ids=["no disclosure", "mere words"])
def test_a_message_that_does_not_say_what_it_discloses_is_refused(message):
    """Neither sent nor received: nothing leaves, and nothing is written down."""
    me = bank(encode(message))
    with pytest.raises(ProtocolError, match=f"{type(message).__name__} does not state what it discloses"):
        me.send("shop", message)
    with pytest.raises(ProtocolError, match="does not state what it discloses"):
        me.send_all(["shop"], message)
    with pytest.raises(ProtocolError, match="does not state what it discloses"):
        me.recv("shop", type(message))
    assert me._endpoint.sent == []
    assert len(me.ledger) == 0
    assert me.meter.total() == Traffic()


def test_a_frame_that_may_have_left_is_in_the_book():
    """The line is there although sending failed: nobody can tell how far the frame has come."""
    me = bank()
    with pytest.raises(PeerLost, match="farm went away"):
        me.send("farm", SUMS)
    assert [(line.direction, line.peer) for line in me.ledger] == [("disclosed", "farm")]


def test_another_message_than_the_expected_one_is_refused():
    """FrameError names both, and the book does not say that the expected one was learned."""
    me = bank(encode(SUMS))
    with pytest.raises(
        FrameError, match=r"bank cannot take what shop sent: expected test\.party_thanks, got test\.party_sums"
    ):
        me.recv("shop", Thanks)
    assert len(me.ledger) == 0


def test_another_version_of_a_message_is_refused():
    """VersionMismatch names the message and both versions."""
    frame = bytearray(encode(SUMS))
    frame[6] = 9  # the message's version follows the magic and the format's version
    with pytest.raises(
        VersionMismatch, match=r"what shop sent: test\.party_sums: the peer speaks version 9, this is version 1"
    ):
        bank(bytes(frame)).recv("shop", Sums)


def test_bytes_that_are_no_message_are_refused():
    """Nonsense from a peer is a FrameError, not a crash."""
    for frame in (b"", b"hello", encode(SUMS)[:-1], encode(SUMS) + b"\0"):
        with pytest.raises(FrameError):
            bank(frame).recv("shop", Sums)


def test_a_deadline_says_who_waited_for_what():
    """DeadlineExceeded names the party, the message and the sender; the transport's own words follow."""
    me = bank(deadline=12.5)
    with pytest.raises(
        DeadlineExceeded, match=r"bank timed out waiting for test\.party_sums from shop: bank waited 12.5 s in vain"
    ):
        me.recv("shop", Sums)


def test_the_jobs_deadline_holds_unless_another_is_given():
    """The endpoint is asked to wait for so long, and for the default where nobody said anything."""
    frames = [encode(Thanks())] * 3
    me = bank(*frames, deadline=7.0)
    me.recv("shop", Thanks)
    me.recv("shop", Thanks, timeout=0.5)
    assert me._endpoint.timeouts == [7.0, 0.5]
    other = bank(*frames)
    other.recv("shop", Thanks)
    assert other._endpoint.timeouts == [DEADLINE]


def test_parties_that_wait_for_each_other_are_told_at_once():
    """A deadlock ends with an error in every role that names who waits for whom and for what."""
    _, ends = talk(bank=lambda me: me.recv("shop", Sums), shop=lambda me: me.recv("bank", Thanks))
    assert isinstance(ends["bank"], DeadlineExceeded)
    assert str(ends["bank"]).startswith("bank timed out waiting for test.party_sums from shop: ")
    assert "shop waits for bank" in str(ends["bank"])
    assert str(ends["shop"]).startswith("shop timed out waiting for test.party_thanks from bank: ")


def test_a_dropped_peer_is_never_read_again():
    """What it had sent before is not read, and nothing can be sent to it."""

    def one(me):
        me.recv("shop", Thanks)
        me.drop("shop")
        lost = []
        for talk_to_shop in (lambda: me.recv("shop", Sums), lambda: me.send("shop", SUMS)):
            with pytest.raises(PeerLost, match="bank has dropped shop"):
                talk_to_shop()
            lost.append(True)
        return lost

    def other(me):
        me.send("bank", Thanks())
        me.send("bank", SUMS)

    _, ends = talk(bank=one, shop=other)
    assert ends["bank"] == [True, True]


def test_a_party_knows_its_name_and_its_peers():
    """Names come from the endpoint, and stand in what the party logs."""
    me = bank()
    assert (me.name, me.peers) == ("bank", ("shop",))
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("hedgerow")
    logger.addHandler(handler)
    try:
        me.log.warning("the %s is late", "shop")
    finally:
        logger.removeHandler(handler)
    assert [(record.party, record.getMessage()) for record in records] == [("bank", "the shop is late")]


def test_progress_goes_to_whoever_watches():
    """report() calls the watcher, and does nothing where nobody watches."""
    told = []
    bank(on_progress=lambda done, total: told.append((done, total))).report(3, 10)
    bank().report(4, 10)
    assert told == [(3, 10)]


@pytest.mark.parametrize("doing", ["reports", "sends", "waits for a late message"])
def test_an_interrupt_reaches_a_role_at_its_next_report_or_message(doing):
    """Ctrl-C ends roles that only compute and report, and those that go on when a peer is lost."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a library has done to it
    main = threading.main_thread().ident

    def busy(me):
        signal.pthread_kill(main, signal.SIGINT)
        while True:
            with contextlib.suppress(PeerLost, DeadlineExceeded):
                if doing == "reports":
                    me.report(1, 2)
                elif doing == "sends":
                    me.send("shop", Thanks())
                else:
                    me.recv("shop", Thanks)
            time.sleep(0.001)

    network = MemoryNetwork(["bank", "shop"])
    parties = in_memory(network, ("bank", "shop"))
    with pytest.raises(KeyboardInterrupt):
        network.run({"bank": lambda: busy(parties["bank"]), "shop": lambda: parties["shop"].recv("bank", Sums)})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("party-")]


def test_each_party_draws_its_own_randomness():
    """Two parties of one process never draw the same."""
    assert bank().rng.bytes(32) != bank().rng.bytes(32)


# --- signatures ------------------------------------------------------------------------------------------------------


def shop(identity=IDENTITIES["shop"], trust=TRUST):
    """The shop, which signs with this identity."""
    return Party(OnePeer(), identity, trust)


def test_a_pinned_partys_signature_is_accepted():
    """What the shop signs with its own key, the bank takes as the shop's."""
    bank().verify("shop", *shop().sign(b"my key"), b"my key")


def test_a_signature_under_ones_own_authority_is_accepted():
    """A certificate of the common authority for that name needs no pinning; one of another authority is refused."""
    authority, stranger = Authority("ours"), Authority("ours")
    trust = TrustStore()
    trust.own_ca(authority.certificate.pem)
    bank(trust=trust).verify("shop", *shop(authority.issue("shop")).sign(b"my key"), b"my key")
    with pytest.raises(PeerRefused, match="which is not known here"):
        bank(trust=trust).verify("shop", *shop(stranger.issue("shop")).sign(b"my key"), b"my key")
    with pytest.raises(PeerRefused, match="made for farm, not for shop"):
        bank(trust=trust).verify("shop", *shop(authority.issue("farm")).sign(b"my key"), b"my key")


def test_a_signature_of_another_party_is_refused():
    """A known party cannot sign for another one, neither under its own certificate nor under the other's."""
    signature, certificate = bank().sign(b"my key")
    with pytest.raises(PeerRefused, match="made for bank, not for shop"):
        bank().verify("shop", signature, certificate, b"my key")
    with pytest.raises(PeerRefused, match="a signature that is said to be of shop is not"):
        bank().verify("shop", signature, IDENTITIES["shop"].certificate.pem, b"my key")


def test_a_signature_of_an_unknown_certificate_is_refused():
    """The right name in a certificate that was never pinned is not enough."""
    with pytest.raises(PeerRefused, match="but the one pinned for that name is"):
        bank().verify("shop", *shop(Identity.create("shop")).sign(b"my key"), b"my key")


def test_a_signature_of_something_else_is_refused():
    """Another text, a damaged signature, something that is no certificate."""
    signature, certificate = shop().sign(b"my key")
    damaged = signature[:-1] + bytes([signature[-1] ^ 1])
    for what in [(signature, certificate, b"my kez"), (damaged, certificate, b"my key"), (b"", certificate, b"my key")]:
        with pytest.raises(PeerRefused, match="a signature that is said to be of shop is not"):
            bank().verify("shop", *what)
    with pytest.raises(PeerRefused, match="not a certificate in PEM form"):
        bank().verify("shop", signature, b"-----BEGIN NONSENSE", b"my key")


# --- whose error it is -----------------------------------------------------------------------------------------------

TOLD = PeerFailed("shop", Reason.BAD_DATA)
LOST = PeerLost("shop went away")
LATE = DeadlineExceeded("waited in vain")
OWN = InvalidInput("column 'age' is missing")


@pytest.mark.parametrize(
    ("errors", "cause"),
    [
        ({"a": TOLD, "b": OWN, "c": LATE}, "b"),
        ({"a": TOLD, "b": LOST}, "b"),
        ({"a": TOLD, "b": LATE}, "b"),
        ({"a": LATE, "b": KeyError("x"), "c": LOST}, "b"),
        ({"a": LATE, "b": FrameError("what?")}, "b"),
        ({"a": TOLD, "b": TOLD}, "a"),
        ({"a": LOST, "b": LATE}, "a"),
        ({"c": OWN, "a": KeyError("x")}, "c"),
    ],
)
def test_the_root_cause_comes_before_what_follows_from_it(errors, cause):
    """Failing by oneself comes first, then waiting in vain, then being told; among equals the first one that ended."""
    assert root_cause(errors) == (cause, errors[cause])


def test_the_root_cause_of_a_run_is_the_role_that_failed():
    """Over a network: the role that raised is found, although its peers ended with errors too."""

    def hub(me):
        return [me.recv(peer, Sums) for peer in ("a", "b")]

    def fails(me):
        raise InvalidInput(f"{me.name}: column 'age' is missing")

    _, ends = talk(hub=hub, a=lambda me: me.recv("hub", Thanks), b=fails)
    assert all(isinstance(end, HedgerowError) for end in ends.values())
    assert root_cause(ends) == ("b", ends["b"])


def test_an_error_of_ours_gets_the_partys_name_in_front():
    """Of the same type, with the original as its cause."""
    said = named("bank", OWN)
    assert type(said) is InvalidInput
    assert str(said) == "bank: column 'age' is missing"
    assert said.__cause__ is OWN


def test_a_name_that_is_there_is_not_said_twice():
    """An error that begins with the party's name stays as it is, with a note about the role."""
    error = InvalidInput("bank: column 'age' is missing")
    assert named("bank", error) is error
    assert error.__notes__ == ["raised in the role of bank"]


@pytest.mark.parametrize(("party", "text"), [("elm_1", "elm_10: no rows"), ("b", "bad news"), ("a", "an error")])
def test_another_name_that_begins_alike_is_not_the_partys(party, text):
    """Only the whole name counts."""
    assert str(named(party, InvalidInput(text))) == f"{party}: {text}"


@pytest.mark.parametrize("error", [KeyError("age"), PeerFailed("shop", Reason.BAD_DATA)], ids=["foreign", "told"])
def test_other_errors_keep_their_form(error):
    """An error that is not ours, or that names who failed, is not rewritten; a note says whose role it was."""
    text = str(error)
    assert named("bank", error) is error
    assert str(error) == text
    assert error.__notes__ == ["raised in the role of bank"]
