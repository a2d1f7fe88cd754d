"""The doctor names the first step that keeps two parties apart, in set-ups that are really broken."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hedgerow.cli.outcome import ExitCode
from hedgerow.errors import HedgerowError, InvalidParameter
from hedgerow.node import documents
from hedgerow.node.bare_sockets import ELSEWHERE, NOT_REACHED, OK, look_at_arrivals
from hedgerow.node.desk import Node
from hedgerow.node.doctor import STEPS, Examination, examine
from hedgerow.node.home import Home
from hedgerow.node.job_file import read_job_file
from hedgerow.node.papers import Papers, answer
from hedgerow.node.peers import PEER
from hedgerow.node.proposal import propose
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.grpc_envelope import WIRE_VERSION
from hedgerow.transport.mtls import Identity
from twins.damage import as_often, damaged
from twins.homes import answering, free_port, key_of, make_home, pair, write_job

PATIENT = 60.0
HASTY = 0.5
MOST_OFF = 5.0  # seconds; two readings of one clock


@pytest.fixture
def port() -> int:
    """Where the bank listens."""
    return free_port()


@pytest.fixture
def bank(tmp_path: Path, port: int) -> Home:
    """A party that listens and has labels."""
    return make_home(tmp_path, "bank", bind=f"127.0.0.1:{port}", label="paid")


@pytest.fixture
def shop(tmp_path: Path, bank: Home) -> Home:
    """A party that dials the bank; both are paired."""
    home = make_home(tmp_path, "shop")
    pair(bank, home)
    return home


def seen(home: Home, peer: str, wait: float = HASTY, **how: Any) -> Examination:
    """What the doctor of a party finds, with every step in its place, and none after the one that failed."""
    found = examine(home, key_of(home), peer, wait=wait, **how)
    assert [step.name for step in found.steps] == list(STEPS)
    states = [step.state for step in found.steps]
    if found.first_failure is not None:
        place = STEPS.index(found.first_failure.name)
        assert set(states[place + 1 :]) <= {NOT_REACHED}
        assert found.first_failure.fix
        assert "\n" not in found.first_failure.fix
    return found


def failed(found: Examination) -> tuple[str, str]:
    """The first failing step, and what was seen."""
    assert found.first_failure is not None
    return found.first_failure.name, found.first_failure.seen


def moved(home: Home, peer: str, **changes: Any) -> None:
    """Change what a party wrote down about a peer: its address, or its certificate, which no checks let in."""
    about = {**home.peers.get(peer).to_dict(), **changes}
    documents.write(home.peers_folder / f"{peer}.json", {"format": PEER, "version": 1, **about})


@contextmanager
def serving(port: int, handle: Any) -> Iterator[None]:
    """A server of another kind at the bank's port."""
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(0.1)
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with suppress(OSError):
                arrived, _ = server.accept()
                with arrived:
                    arrived.settimeout(2.0)
                    handle(arrived)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()
        server.close()


def tls_with(identity: Identity, folder: Path, alpn: str = "h2") -> Any:
    """A handler that shows this certificate."""
    (folder / "server.key").write_bytes(identity.key_pem)
    (folder / "server.pem").write_bytes(identity.certificate.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.set_alpn_protocols([alpn])

    def handle(arrived: socket.socket) -> None:
        with context.wrap_socket(arrived, server_side=True) as secure:
            secure.recv(1)

    return handle


# --- broken, seen by the party that dials ----------------------------------------------------------------------------


def test_an_unknown_host(shop: Home) -> None:
    """A name that no machine has fails at dns."""
    moved(shop, "bank", address="bank.invalid:7341")
    step, words = failed(seen(shop, "bank"))
    assert step == "dns"
    assert "bank.invalid" in words


def test_nothing_listens(shop: Home) -> None:
    """A refused connection fails at tcp, and the peer is told to start."""
    found = seen(shop, "bank")
    assert failed(found)[0] == "tcp"
    assert "refused" in failed(found)[1]
    assert "bank: hedgerow doctor" in found.first_failure.fix if found.first_failure else False


def test_a_firewall_that_drops(shop: Home, port: int) -> None:
    """Packets that vanish, here because a queue is full that nobody empties, fail at tcp with no answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen(0)
        waiting = []
        for _ in range(8):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        step, words = failed(seen(shop, "bank"))
        for one in waiting:
            one.close()
    assert step == "tcp"
    assert "no answer" in words


def test_a_port_that_takes_connections_and_says_nothing(shop: Home, port: int) -> None:
    """A connection that is made and never answered fails at tls."""
    with socket.create_server(("127.0.0.1", port)):
        step, words = failed(seen(shop, "bank"))
    assert step == "tls"
    assert "says nothing" in words


def test_a_server_without_tls(shop: Home, port: int) -> None:
    """Plain text fails at tls."""
    with serving(port, lambda arrived: arrived.sendall(b"220 mail.example.org ESMTP\r\n") or arrived.recv(1)):
        step, words = failed(seen(shop, "bank"))
    assert step == "tls"
    assert "does not speak TLS" in words


def test_a_proxy_that_opens_tls(shop: Home, bank: Home, port: int, tmp_path: Path) -> None:
    """A web server, which speaks TLS but not HTTP/2, fails at tls."""
    with serving(port, tls_with(key_of(bank), tmp_path, "http/1.1")):
        step, words = failed(seen(shop, "bank"))
    assert step == "tls"
    assert "HTTP/2" in words


def test_another_certificate(shop: Home, port: int, tmp_path: Path) -> None:
    """Somebody else with the same name fails at identity, and both fingerprints are told."""
    other = Identity.create("bank")
    with serving(port, tls_with(other, tmp_path)):
        found = seen(shop, "bank")
    step, words = failed(found)
    assert step == "identity"
    assert other.fingerprint in words
    assert shop.peers.get("bank").certificate.fingerprint in words


def test_an_expired_certificate(shop: Home, port: int, tmp_path: Path) -> None:
    """A pinned certificate whose time is over fails at identity, and its owner is to rotate."""
    old = Identity.create("bank", days=1, valid_from=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    moved(shop, "bank", certificate=old.certificate.pem.decode(), fingerprint=old.fingerprint)
    with serving(port, tls_with(old, tmp_path)):
        found = seen(shop, "bank")
    assert failed(found)[0] == "identity"
    assert "expired" in failed(found)[1]
    assert found.first_failure is not None
    assert "bank: hedgerow keys rotate" in found.first_failure.fix


def test_a_peer_that_was_revoked(shop: Home, bank: Home) -> None:
    """Who was revoked here fails at identity, whether it is there or not."""
    shop.peers.revoke("bank")
    with answering(bank, "shop"):
        step, words = failed(seen(shop, "bank"))
    assert step == "identity"
    assert "revoked" in words


def test_our_certificate_is_not_accepted_there(shop: Home, bank: Home) -> None:
    """A peer that has pinned another certificate for this party fails at identity, naming ours."""
    other = Identity.create("shop")
    moved(bank, "shop", certificate=other.certificate.pem.decode(), fingerprint=other.fingerprint)
    with answering(bank, "shop"):
        step, words = failed(seen(shop, "bank", PATIENT))
    assert step == "identity"
    assert shop.certificate.fingerprint in words


def test_another_wire_version(shop: Home, bank: Home, port: int) -> None:
    """A peer that speaks another version fails at version, and both are told."""
    endpoint = GrpcEndpoint(
        "bank",
        key_of(bank),
        bank.peers.trust_store(["shop"]),
        run_id="desk:bank:shop",
        peers=["shop"],
        listen=f"127.0.0.1:{port}",
        wire_version=WIRE_VERSION + 1,
    )
    with suppress(HedgerowError), endpoint:
        step, words = failed(seen(shop, "bank", PATIENT))
    assert step == "version"
    assert str(WIRE_VERSION) in words
    assert str(WIRE_VERSION + 1) in words


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_clock_that_is_off(shop: Home, bank: Home, off: float) -> None:
    """A difference of an hour, either way, fails at clock, and is measured."""
    with answering(bank, "shop", lambda: time.time() + off):
        found = seen(shop, "bank", PATIENT)
    assert failed(found)[0] == "clock"
    assert found.greeted is not None
    assert found.greeted.ahead == pytest.approx(off, abs=MOST_OFF + found.greeted.uncertain)


def test_a_missing_file(shop: Home, bank: Home) -> None:
    """A source that is not there fails at schema, with the section of party.toml."""
    (shop.path / "people.parquet").unlink()
    with answering(bank, "shop"):
        found = seen(shop, "bank", PATIENT)
    assert failed(found)[0] == "schema"
    assert found.first_failure is not None
    assert "[data.people]" in found.first_failure.fix


@pytest.mark.parametrize("key", ["id", "label", "drop"])
def test_a_missing_column(shop: Home, bank: Home, key: str) -> None:
    """A column that party.toml names and the source lacks fails at schema, and is named."""
    text = shop.party_toml.read_text(encoding="utf-8").replace('id = "customer"\n', "")
    value = '["nobody"]' if key == "drop" else '"nobody"'
    shop.party_toml.write_text(f"{text}{key} = {value}\n", encoding="utf-8")
    with answering(bank, "shop"):
        step, words = failed(seen(Home(shop.path), "bank", PATIENT))
    assert step == "schema"
    assert "'nobody'" in words


def test_a_proposal_that_is_not_signed(shop: Home, bank: Home) -> None:
    """What one party proposed and the other has not answered fails at job, and it is told who is to accept."""
    offer = propose(
        read_job_file(write_job(bank, "vertical.noised_gradients", ("bank", "shop"), epsilon=4.0, delta=1e-6)), bank
    )
    Papers(bank).keep(offer, [answer(offer, key_of(bank), "accept")])
    with answering(bank, "shop"):
        found = seen(shop, "bank", PATIENT)
    assert failed(found)[0] == "job"
    assert "waiting for shop" in failed(found)[1]
    assert found.first_failure is not None
    assert f"shop: hedgerow accept {offer.hash[:12]}" in found.first_failure.fix


def test_a_proposal_for_another_certificate(shop: Home, bank: Home) -> None:
    """A proposal that was made for a certificate which this party no longer has fails at job."""
    other = Identity.create("shop")
    own = shop.certificate
    moved(bank, "shop", certificate=other.certificate.pem.decode(), fingerprint=other.fingerprint)
    offer = propose(
        read_job_file(write_job(bank, "vertical.noised_gradients", ("bank", "shop"), epsilon=4.0, delta=1e-6)), bank
    )
    Papers(bank).keep(offer, [answer(offer, key_of(bank), "accept")])
    moved(bank, "shop", certificate=own.pem.decode(), fingerprint=own.fingerprint)
    with answering(bank, "shop"):
        step, words = failed(seen(shop, "bank", PATIENT))
    assert step == "job"
    assert other.fingerprint in words


# --- broken, seen by the party that listens --------------------------------------------------------------------------


def test_nobody_comes(shop: Home, bank: Home) -> None:
    """A party that listens says so, waits, and fails at tcp if no connection arrives."""
    told: list[str] = []
    found = seen(bank, shop.name, tell=told.append)
    assert failed(found)[0] == "tcp"
    assert found.dials == "shop"
    assert "at shop now: hedgerow doctor bank" in told[0]


def test_the_port_is_taken(shop: Home, bank: Home) -> None:
    """A port that another process of this party has fails at tcp, and says what to end."""
    with answering(bank, "shop"):
        time.sleep(HASTY)
        found = seen(bank, shop.name)
    assert failed(found)[0] == "tcp"
    assert "cannot listen" in failed(found)[1]


@pytest.mark.parametrize("who", ["stranger", "not accepted"])
def test_what_is_turned_away_is_looked_at(shop: Home, bank: Home, who: str) -> None:
    """A dialling party that shows another certificate, or refuses ours, fails at identity at the listening one too."""
    other = Identity.create("shop" if who == "stranger" else "bank")
    changed = {"certificate": other.certificate.pem.decode(), "fingerprint": other.fingerprint}
    moved(*((bank, "shop") if who == "stranger" else (shop, "bank")), **changed)
    with ThreadPoolExecutor(1) as pool:
        over = threading.Event()
        there = pool.submit(_dial_until, over, shop)
        found = seen(bank, "shop", 3.0)
        over.set()
        there.result()
    assert failed(found)[0] == "identity", found.first_failure
    assert ("another certificate" if who == "stranger" else "does not accept") in failed(found)[1]


def client_hello() -> bytes:
    """The first bytes of somebody who speaks TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="bank").do_handshake()
    return outgoing.read()


@given(says=damaged(client_hello(), "bytes") | st.binary(min_size=1, max_size=300))
@example(b"")
@example(b"\x16\x03\x01\x40\x00" + bytes(200))
@example(b"GET / HTTP/1.1\r\n\r\n")
@example(bytes(range(256)) * 300)
@pytest.mark.usefixtures("shop")
@as_often(20)
def test_anything_may_arrive_in_place_of_the_peer(bank: Home, port: int, says: bytes) -> None:
    """The doctor that listens names what it saw, or waits on; it neither fails nor hangs."""
    trust, peer = bank.peers.trust_store(["shop"]), bank.peers.get("shop")
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(look_at_arrivals, bank, key_of(bank), trust, peer, 1.0, lambda _: None)
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as stranger:
                stranger.sendall(says)
                stranger.shutdown(socket.SHUT_WR)
                break
            time.sleep(0.05)
        step = seen.result(60).step
    assert step.name in ("tcp", "tls", "identity")
    assert step.seen.isprintable()


def _dial_until(over: threading.Event, home: Home) -> None:
    with Node(home, key_of(home), ["bank"]) as node:
        while not over.is_set():
            with suppress(HedgerowError):
                node.exchange(home.peers.get("bank"), 2.0)


# --- well ------------------------------------------------------------------------------------------------------------


def test_all_is_well_with_a_doctor_on_both_sides(shop: Home, bank: Home) -> None:
    """Both run it at once: every step is seen, and none fails."""
    offer = propose(
        read_job_file(write_job(bank, "vertical.noised_gradients", ("bank", "shop"), epsilon=4.0, delta=1e-6)), bank
    )
    answers = [answer(offer, key_of(home), "accept") for home in (bank, shop)]
    for home in (bank, shop):
        Papers(home).keep(offer, answers)
    with ThreadPoolExecutor(2) as pool:
        here = pool.submit(seen, bank, "shop", PATIENT)
        there = pool.submit(seen, shop, "bank", PATIENT)
        found = [here.result(), there.result()]
    for one in found:
        assert one.first_failure is None, one.first_failure
        assert one.to_dict()["is_well"]
        assert {step.state for step in one.steps} <= {OK, ELSEWHERE}
        assert offer.hash[:12] in one.steps[-1].seen
        assert one.greeted is not None
        assert one.greeted.round_trip > 0


def test_a_node_that_waits_for_answers_is_answer_enough(shop: Home, bank: Home) -> None:
    """The desk of any verb that is up answers a doctor: versions, clocks, papers."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool, Node(bank, key_of(bank), ["shop"]) as node:
        waiting = pool.submit(node.exchange_until, over.is_set, ["shop"], PATIENT, lambda _: None)
        found = seen(shop, "bank", PATIENT)
        over.set()
        waiting.result()
    assert found.first_failure is None, found.first_failure


def test_a_name_that_nobody_has(shop: Home) -> None:
    """A peer that was never paired is wrong usage, not an illness."""
    with pytest.raises(InvalidParameter, match="nobdy is not paired"):
        examine(shop, key_of(shop), "nobdy")


def test_the_command(shop: Home, bank: Home, run: Any) -> None:
    """`hedgerow doctor` ends with a code of its own, names the step and its fix, and gives the same as JSON."""
    text = run("doctor", "bank", "--home", shop.path, "--wait", "0", code=ExitCode.DOCTOR).stdout
    assert "First failing step: tcp." in text
    assert "Fix: bank: hedgerow doctor" in text
    told = run("doctor", "bank", "--home", shop.path, "--wait", "0", "--json", code=ExitCode.DOCTOR).json
    assert (told["failed"], told["is_well"]) == ("tcp", False)
    with answering(bank, "shop"):
        assert "All is well." in run("doctor", "bank", "--home", shop.path).stdout
