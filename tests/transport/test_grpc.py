"""Endpoints over gRPC with mutual TLS: order, cuts, deaths, slowness, strangers, and how each of them ends."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from hedgerow.errors import (
    DeadlineExceeded,
    FrameError,
    InvalidParameter,
    PeerLost,
    PeerRefused,
    TransportError,
    VersionMismatch,
)
from hedgerow.node.keys import save
from hedgerow.transport import grpc_envelope as envelope
from hedgerow.transport.endpoint import NOTHING, LastWord
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.grpc_envelope import Hello
from hedgerow.transport.grpc_streams import METHOD
from hedgerow.transport.mtls import Identity, TrustStore, now
from twins.cut_link import CutLink
from twins.homes import free_port
from twins.parties import Authority, connect_star, make_identities, trust_in

DAY = dt.timedelta(days=1)
PARTIES = make_identities(["hub", "bank", "shop", "farm"])
TRUST = trust_in(PARTIES.values())

# A party of its own process: python -c PROGRAM folder address what-to-do
PROGRAM = """
import sys, time
from pathlib import Path
from hedgerow.node.keys import load
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.mtls import TrustStore
folder, address, task = sys.argv[1:]
trust = TrustStore()
trust.pin("hub", open(folder + "/hub.pem", "rb").read())
bank = GrpcEndpoint("bank", load(Path(folder)), trust, run_id="test", peers=["hub"], dial={"hub": address})
bank.wait_connected()
if task == "echo":
    while (frame := bank.recv("hub", 20)) != b"enough":
        bank.send("hub", frame)
    bank.close()
elif task == "raise":
    try:
        with bank:
            bank.send("hub", b"before")
            raise ValueError("no rows left")
    except ValueError:
        pass
else:
    bank.send("hub", b"here")
    time.sleep(60)
"""


@pytest.fixture
def link():
    """A function that puts a link that can be cut before a hub."""
    links = []

    def put_before(hub):
        links.append(CutLink(f"127.0.0.1:{hub.port}"))
        return links[-1]

    yield put_before
    for each in links:
        each.close()


@pytest.fixture
def opened(link):  # noqa: ARG001 - links are to outlive the endpoints
    """A list whose endpoints are closed after the test; no thread of theirs may remain."""
    endpoints = []
    yield endpoints
    for endpoint in endpoints:
        endpoint.abort(b"")
    _wait_until(lambda: not _threads())


def _wait_until(true, seconds=10):
    # Counted in naps, not by the clock: a machine that stands still for a while is not what the tests are about.
    for _ in range(int(seconds / 0.005)):
        if true():
            return
        time.sleep(0.005)
    assert true(), "waited in vain"


def _threads():
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("hedgerow-")]
    return [name for name in names if not name.startswith("hedgerow-engine-")]  # those stay, for other trainings


@pytest.fixture
def star(opened):
    """A function that joins a hub with others in this process."""

    def join(*names, **settings):
        endpoints = connect_star("hub", names or ["bank"], identities=PARTIES, **settings)
        opened.extend(endpoints.values())
        return endpoints

    return join


@pytest.fixture
def hub(opened):
    """A hub that waits for the bank."""
    return _hub(opened)


def _hub(opened, **settings):
    settings = {"trust": TRUST, "run_id": "test", "peers": ["bank"], "listen": "127.0.0.1:0", **settings}
    opened.append(GrpcEndpoint("hub", PARTIES["hub"], **settings))
    return opened[-1]


def _bank(opened, address, **settings):
    settings = {"identity": PARTIES["bank"], "trust": TRUST, "run_id": "test", "peers": ["hub"], **settings}
    opened.append(GrpcEndpoint("bank", dial={"hub": address}, **settings))
    return opened[-1]


@pytest.fixture
def process(tmp_path):
    """A function that starts the bank in a process of its own."""
    started = []
    save(PARTIES["bank"], tmp_path)
    (tmp_path / "hub.pem").write_bytes(PARTIES["hub"].certificate.pem)

    def start(port, task):
        started.append(subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path, f"127.0.0.1:{port}", task]))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def _frames(n, seed, largest=100_000):
    draw = random.Random(seed)
    return [draw.randbytes(draw.choice([0, 1, 23, 24, 25, 1000, draw.randrange(largest)])) for _ in range(n)]


def _in_background(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


# Ordinary traffic


def test_frames_between_processes_come_back_in_order(hub, process):
    """Hundreds of frames of all sizes to another process and back: all there, in order, unchanged."""
    echo = process(hub.port, "echo")
    hub.wait_connected(20)
    frames = [*_frames(400, seed=1), os.urandom(5_000_000), b"small again"]
    sender = _in_background(lambda: [hub.send("bank", frame) for frame in frames])
    assert [hub.recv("bank", 20) for _ in frames] == frames
    sender.join()
    hub.send("bank", b"enough")
    with pytest.raises(PeerLost, match="bank has ended its part"):
        hub.recv("bank", 20)
    assert echo.wait(10) == 0


def test_each_pair_has_its_own_order(star):
    """A hub with three peers, all sending at once: every pair's frames come in their order, whoever is read first."""
    endpoints = star("bank", "shop", "farm")
    hub = endpoints.pop("hub")
    up = {name: _frames(60, seed) for seed, name in enumerate(endpoints)}
    down = {name: _frames(60, seed + 9) for seed, name in enumerate(endpoints)}
    got = {}

    def talk(name):
        for frame in up[name]:
            endpoints[name].send("hub", frame)
        got[name] = [endpoints[name].recv("hub", 20) for _ in down[name]]

    threads = [_in_background(talk, name) for name in endpoints]
    for name in reversed(endpoints):
        for frame in down[name]:
            hub.send(name, frame)
        assert [hub.recv(name, 20) for _ in up[name]] == up[name]
    for thread in threads:
        thread.join()
    assert got == down


def test_two_threads_may_wait_at_once(star):
    """One thread waits for each of two peers; each gets its frame, whichever comes first."""
    endpoints = star("bank", "shop")
    got = {}

    def wait_for(name):
        got[name] = endpoints["hub"].recv(name, 10)

    threads = [_in_background(wait_for, name) for name in ("bank", "shop")]
    time.sleep(0.05)
    endpoints["shop"].send("hub", b"of shop")
    threads[1].join(5)
    assert got == {"shop": b"of shop"}
    endpoints["bank"].send("hub", b"of bank")
    threads[0].join(5)
    assert got == {"shop": b"of shop", "bank": b"of bank"}


def test_a_frame_sent_before_the_connection_is_there_arrives(opened):
    """Sending does not wait for the peer to come; what was sent first comes first."""
    hub = _hub(opened)
    hub.send("bank", b"first")
    hub.send("bank", b"second")
    bank = _bank(opened, f"127.0.0.1:{hub.port}")
    assert [bank.recv("hub", 10), bank.recv("hub", 10)] == [b"first", b"second"]


def test_an_answer_that_does_not_come_is_a_deadline(star):
    """Both sides, the one that listens and the one that dialled: DeadlineExceeded in time, and the channel goes on."""
    endpoints = star()
    for me, peer in (("hub", "bank"), ("bank", "hub")):
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=f"{me} got no message of {peer} within 0.2 s"):
            endpoints[me].recv(peer, 0.2)
        assert 0.2 <= time.monotonic() - start < 1
        endpoints[peer].send(me, b"late")
        assert endpoints[me].recv(peer, 5) == b"late"


def test_looking_up_a_host_does_not_delay_a_deadline(opened, monkeypatch):
    """Finding out why a peer cannot be reached may take long (a name server that is away): nobody waits for that."""
    asked = threading.Event()

    def look_up(*_):
        asked.set()
        time.sleep(1.2)

    monkeypatch.setattr("hedgerow.transport.grpc._shown_certificate", look_up)
    bank = _bank(opened, "127.0.0.1:1")
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        bank.recv("hub", 0.5)
    assert time.monotonic() - start < 0.9
    assert asked.is_set()


def test_a_deadline_is_kept_after_a_mishap_of_the_clock(star, monkeypatch):
    """The thread that ends waits in time goes on after an error; otherwise they would last for ever."""
    endpoints = star()
    mishaps = itertools.count()

    def mishap(now):
        next(mishaps)
        raise ValueError(f"at {now}")

    monkeypatch.setattr(endpoints["bank"]._channels["hub"], "tick", mishap)
    _wait_until(lambda: next(mishaps) > 1)
    with pytest.raises(DeadlineExceeded):
        endpoints["bank"].recv("hub", 0.1)


# Broken links


def test_nothing_is_lost_or_repeated_when_a_link_breaks(opened, link):
    """A link that is cut again and again, at any byte, while both sides send: each frame arrives once, in order."""
    hub = _hub(opened)
    wire = link(hub)
    bank = _bank(opened, wire.address)
    frames = {"hub": _frames(200, 1, 20_000), "bank": _frames(200, 2, 20_000)}
    got = {"hub": [], "bank": []}

    def talk(me, peer):
        reader = _in_background(lambda: [got[me.name].append(me.recv(peer, 20)) for _ in frames[peer]])
        for number, frame in enumerate(frames[me.name]):
            me.send(peer, frame)
            if number % 10 == 0:
                time.sleep(0.05)
        reader.join(20)

    hub.wait_connected(10)
    talkers = [_in_background(talk, hub, "bank"), _in_background(talk, bank, "hub")]
    draw = random.Random(5)
    for cut in range(1, 6):
        wire.cut_after(draw.randrange(1, 60_000), for_seconds=0.02)
        _wait_until(lambda cut=cut: wire.connections_made > cut)
    for talker in talkers:
        talker.join(20)
    assert got == {"hub": frames["bank"], "bank": frames["hub"]}


def test_a_link_that_stays_cut_is_a_lost_peer(opened, link):
    """Beyond the grace period both get PeerLost, after the frames that had arrived, and so does every later send."""
    hub = _hub(opened, grace=0.4)
    wire = link(hub)
    bank = _bank(opened, wire.address, grace=0.4)
    for me, peer in ((hub, "bank"), (bank, "hub")):
        me.send(peer, b"one")
    hub.recv("bank", 5)
    time.sleep(0.1)
    wire.cut()
    assert bank.recv("hub", 5) == b"one"
    for me, peer in ((hub, "bank"), (bank, "hub")):
        start = time.monotonic()
        with pytest.raises(PeerLost, match=f"{peer} went away and did not come back within 0.4 s"):
            me.recv(peer, 20)
        assert time.monotonic() - start < 3
        with pytest.raises(PeerLost, match=f"{peer} went away"):
            me.send(peer, b"two")
    wire.restore()
    time.sleep(0.2)
    with pytest.raises(PeerLost):
        hub.recv("bank", 0.1)


def test_a_silent_link_is_noticed(opened, link):
    """Where packets vanish and nothing is reset, keep-alive pings find out: PeerLost, not a hang."""
    hub = _hub(opened, grace=0.6)
    wire = link(hub)
    bank = _bank(opened, wire.address, grace=0.6)
    bank.wait_connected(10)
    hub.wait_connected(10)
    wire.stall()
    for me, peer in ((hub, "bank"), (bank, "hub")):
        with pytest.raises(PeerLost, match="did not come back"):
            me.recv(peer, 10)


def test_a_silent_link_that_recovers_loses_nothing(opened, link):
    """Both sides give the stalled connection up at different moments; the new one goes on where the old one was."""
    hub = _hub(opened, grace=3.0)
    wire = link(hub)
    bank = _bank(opened, wire.address, grace=3.0)
    bank.wait_connected(10)
    wire.stall()
    for number in range(20):
        bank.send("hub", bytes([number]))
        hub.send("bank", bytes([number]))
    _wait_until(lambda: not bank._channels["hub"].talking)
    wire.cut()
    wire.restore()
    for number in range(20):
        assert hub.recv("bank", 5) == bank.recv("hub", 5) == bytes([number])


def test_a_killed_process_is_a_lost_peer(opened, process):
    """SIGKILL gives nobody the chance to say goodbye: after the grace period, PeerLost; what it sent is still read."""
    hub = _hub(opened, grace=0.5)
    victim = process(hub.port, "sleep")
    hub.wait_connected(20)
    time.sleep(0.1)
    victim.send_signal(signal.SIGKILL)
    start = time.monotonic()
    assert hub.recv("bank", 5) == b"here"
    with pytest.raises(PeerLost, match="bank went away"):
        hub.recv("bank", 30)
    assert 0.3 < time.monotonic() - start < 3


def test_a_peer_that_never_comes_is_a_lost_peer(opened):
    """Whether one waits for it or dials it: PeerLost when the time to connect is over."""
    hub = _hub(opened, connect_timeout=0.3)
    bank = _bank(opened, "127.0.0.1:1", connect_timeout=0.3)
    for me, peer, why in ((hub, "bank", "nobody with a certificate that hub accepts"), (bank, "hub", "connect")):
        with pytest.raises(PeerLost, match=f"{peer} could not be reached within 0.3 s .*{why}"):
            me.recv(peer, 10)
    with pytest.raises(DeadlineExceeded, match="hub is still waiting for bank to connect"):
        _hub(opened).wait_connected(0.05)


# Slow peers


def test_a_slow_peer_makes_the_sender_wait(star):
    """Whoever does not read holds the sender up; neither side keeps more than it may; later everything arrives."""
    limit, size, n = 1_000_000, 250_000, 60
    endpoints = star(max_unacked_bytes=limit)
    for sender, reader in (("hub", "bank"), ("bank", "hub")):
        frames = [bytes([k]) * size for k in range(n)]
        sent = []

        def send_all(sender=sender, reader=reader, frames=frames, sent=sent):
            for frame in frames:
                endpoints[sender].send(reader, frame)
                sent.append(len(frame))

        thread = _in_background(send_all)
        time.sleep(0.5)
        stuck = len(sent)
        time.sleep(0.2)
        assert stuck == len(sent) < n
        assert endpoints[sender]._channels[reader]._held_bytes <= limit
        assert endpoints[reader]._channels[sender]._inbox_bytes <= limit + size + 100
        assert [endpoints[reader].recv(sender, 10) for _ in frames] == frames
        thread.join(10)
        assert sum(sent) == n * size


def test_empty_frames_count_too(star):
    """A peer that does not read cannot be sent any number of empty frames, nor can it be made to keep them."""
    endpoints = star(max_unacked_bytes=10_000)
    thread = _in_background(lambda: [endpoints["hub"].send("bank", b"") for _ in range(3000)])
    time.sleep(0.4)
    assert thread.is_alive()
    assert len(endpoints["bank"]._channels["hub"]._inbox) < 1000
    assert [endpoints["bank"].recv("hub", 10) for _ in range(3000)] == [b""] * 3000
    thread.join(10)


def test_a_waiting_sender_hears_of_the_peers_end(star):
    """A sender that a slow peer holds up is released with the error when the peer fails."""
    endpoints = star(max_unacked_bytes=100_000)
    raised = []

    def send_forever():
        try:
            while True:
                endpoints["hub"].send("bank", bytes(90_000))
        except LastWord as error:
            raised.append(error)

    thread = _in_background(send_forever)
    time.sleep(0.3)
    assert not raised
    endpoints["bank"].abort(b"last word")
    thread.join(5)
    assert raised[0].frame == b"last word"


# Ends


def test_an_abort_reaches_every_peer_with_its_last_word(star):
    """A LastWord with party and frame at each peer, after the frames sent before, in recv and in send."""
    endpoints = star("bank", "shop", "farm")
    others = [name for name in endpoints if name != "hub"]
    for name in others:
        endpoints["hub"].send(name, b"before")
    endpoints["hub"].abort(b"a code")
    for name in others:
        assert endpoints[name].recv("hub", 5) == b"before"
        with pytest.raises(LastWord, match=r"^hub stopped$") as caught:
            endpoints[name].recv("hub", 5)
        assert (caught.value.party, caught.value.frame) == ("hub", b"a code")
        with pytest.raises(LastWord):
            endpoints[name].send("hub", b"after")


def test_an_abort_of_one_peer_leaves_the_others(star):
    """When a dialling party fails, the hub learns it of that party alone."""
    endpoints = star("bank", "shop")
    endpoints["bank"].abort(b"a code")
    with pytest.raises(LastWord, match="bank stopped"):
        endpoints["hub"].recv("bank", 5)
    endpoints["hub"].send("shop", b"go on")
    assert endpoints["shop"].recv("hub", 5) == b"go on"


def test_leaving_a_with_block_by_an_error_tells_the_peers(hub, process):
    """In another process: the peer hears that it is the end, and nothing of the error."""
    process(hub.port, "raise")
    assert hub.recv("bank", 20) == b"before"
    with pytest.raises(LastWord, match=r"^bank stopped$") as caught:
        hub.recv("bank", 20)
    assert caught.value.frame == b""


@pytest.mark.parametrize("closing", ["hub", "bank"])
def test_close_delivers_what_was_sent(star, closing):
    """Megabytes sent right before close() arrive, though the peer reads them only afterwards; then PeerLost."""
    endpoints = star()
    peer = "bank" if closing == "hub" else "hub"
    frames = _frames(40, seed=3, largest=300_000)
    for frame in frames:
        endpoints[closing].send(peer, frame)
    start = time.monotonic()
    endpoints[closing].close()
    assert time.monotonic() - start < 2
    assert [endpoints[peer].recv(closing, 5) for _ in frames] == frames
    with pytest.raises(PeerLost, match=f"{closing} has ended its part"):
        endpoints[peer].recv(closing, 5)
    with pytest.raises(PeerLost):
        endpoints[peer].send(closing, b"anybody there?")
    with pytest.raises(TransportError, match="closed its endpoint"):
        endpoints[closing].send(peer, b"more")


def test_everybody_may_close_at_once(star):
    """Closing from all sides at the same time takes no longer than closing one after the other."""
    endpoints = star("bank", "shop", "farm")
    for name in ("bank", "shop", "farm"):
        endpoints[name].send("hub", b"last")
    start = time.monotonic()
    threads = [_in_background(endpoint.close) for endpoint in endpoints.values()]
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - start < 2
    endpoints["hub"].close()  # a second time does nothing


def test_a_link_cut_while_closing_does_not_lose_the_last_frames(opened, link):
    """close() waits for a peer that is away for a moment."""
    hub = _hub(opened)
    wire = link(hub)
    bank = _bank(opened, wire.address)
    bank.wait_connected(10)
    wire.cut()
    bank.send("hub", b"last words")
    threading.Timer(0.3, wire.restore).start()
    bank.close()
    assert hub.recv("bank", 1) == b"last words"


def test_a_dropped_peer_is_never_read_again(star):
    """After drop(): PeerLost for send and recv even of what had arrived; the peer learns it; others are not touched."""
    endpoints = star("bank", "shop")
    endpoints["bank"].send("hub", b"too late")
    time.sleep(0.1)
    endpoints["hub"].drop("bank")
    with pytest.raises(PeerLost, match="hub has closed the channel to bank"):
        endpoints["hub"].recv("bank", 1)
    with pytest.raises(PeerLost, match="hub has closed the channel to bank"):
        endpoints["hub"].send("bank", b"x")
    with pytest.raises(PeerLost, match="hub has closed the channel to bank"):
        endpoints["bank"].recv("hub", 5)
    endpoints["shop"].send("hub", b"still here")
    assert endpoints["hub"].recv("shop", 5) == b"still here"


class HeldUp:
    """A queue whose entries are given out only after something has happened."""

    def __init__(self, queue, happened):
        self.put, self.get_nowait = queue.put, queue.get_nowait
        self._queue, self._happened = queue, happened

    def get(self):
        """The next entry, some time."""
        self._happened.wait()
        return self._queue.get()


def test_who_closes_last_still_says_that_it_heard(star):
    """A goodbye that comes during a write is acknowledged before hanging up, else the peer times out."""
    endpoints = star()
    channel = endpoints["bank"]._channels["hub"]
    held = threading.Event()
    stream = channel._stream
    stream._outgoing = HeldUp(stream._outgoing, held)
    endpoints["bank"].send("hub", b"first")  # what is taken before the queue is exchanged
    endpoints["bank"].send("hub", b"last")
    closing = _in_background(endpoints["hub"].close)
    _wait_until(lambda: channel.error is not None)
    threading.Timer(0.1, held.set).start()
    endpoints["bank"].close()
    closing.join(2)
    assert not closing.is_alive()


def test_a_program_that_forgets_to_close_ends():
    """Threads of endpoints that were never closed, listening or not, do not keep a process from ending."""
    code = "from twins.parties import connect_star; connect_star('hub', ['bank'])"
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=10, cwd=Path(__file__).parents[1]
    )  # where twins is


# Strangers


@pytest.mark.parametrize(("theirs", "ours"), [(3, 2), (2, 3)])
def test_another_wire_version_is_told_to_both(opened, theirs, ours):
    """Each side names its own version and the other's."""
    hub = _hub(opened, wire_version=ours)
    bank = _bank(opened, f"127.0.0.1:{hub.port}", wire_version=theirs)
    with pytest.raises(VersionMismatch, match=f"bank speaks version {theirs} .*, hub speaks version {ours}"):
        hub.recv("bank", 10)
    told = f"hub refused bank: bank speaks version {theirs} .*, hub speaks version {ours}"
    with pytest.raises(VersionMismatch, match=told):
        bank.wait_connected(10)


def _unknown(name):
    return Identity.create(name)


def _expired(name):
    return Identity.create(name, days=1, valid_from=now() - 3 * DAY)


def _early(name):
    return Identity.create(name, days=1, valid_from=now() + 3 * DAY)


def _trusting(*identities):
    trust = TrustStore()
    for identity in identities:  # past the checks of pin(), which would refuse some of them at once
        trust._pinned[identity.certificate.names[0]] = identity.certificate
    return trust


def test_who_dialled_long_before_is_let_in(opened):
    """Attempts that failed because nobody was there are not taken for a refusal by the one that comes then."""
    names = [f"party{k}" for k in range(8)]
    identities = make_identities(["hub", *names])
    trust = trust_in(identities.values())
    port = free_port()
    waiting = [
        GrpcEndpoint(name, identities[name], trust, run_id="test", peers=["hub"], dial={"hub": f"127.0.0.1:{port}"})
        for name in names
    ]
    opened += waiting
    time.sleep(3.0)  # by then they wait for half a second between two attempts
    how = {"run_id": "test", "peers": names, "listen": f"127.0.0.1:{port}"}
    opened.append(GrpcEndpoint("hub", identities["hub"], trust, **how))
    for each in waiting:
        each.wait_connected(30)


def test_who_closes_delivers_to_a_peer_that_is_away_for_a_while(opened, monkeypatch):
    """Within the grace period, also if that is longer than a peer that is there would be waited for."""
    monkeypatch.setattr("hedgerow.transport.grpc._LINGER_SECONDS", 0.2)
    hub = _hub(opened, grace=30.0)
    with CutLink(f"127.0.0.1:{hub.port}") as link:
        bank = _bank(opened, link.address, grace=30.0)
        bank.wait_connected(20)
        link.cut()
        hub.send("bank", b"the last word")
        closing = _in_background(hub.close)
        time.sleep(1.0)
        link.restore()
        assert bank.recv("hub", 20) == b"the last word"
        closing.join(20)


@pytest.mark.parametrize("make", [_unknown, _expired, _early], ids=["unknown", "expired", "not yet valid"])
def test_a_bad_client_certificate_is_refused(opened, make):
    """PeerRefused for who shows it, before any message; the hub takes nothing of it, and still takes the right one."""
    identity = make("bank")
    trust = _trusting(PARTIES["hub"], PARTIES["bank"] if make is _unknown else identity)
    hub = GrpcEndpoint("hub", PARTIES["hub"], trust, run_id="test", peers=["bank"], listen="127.0.0.1:0")
    opened.append(hub)
    stranger = _bank(opened, f"127.0.0.1:{hub.port}", identity=identity)
    stranger.send("hub", b"let me in")
    with pytest.raises(PeerRefused, match="hub is there, but does not accept the certificate of bank"):
        stranger.wait_connected(10)
    with pytest.raises(DeadlineExceeded, match="nobody with a certificate that hub accepts for bank has come"):
        hub.recv("bank", 0.05)
    with pytest.raises(DeadlineExceeded, match=r"for bank to connect \(nobody with a certificate that hub accepts"):
        hub.wait_connected(0.05)
    if make is _unknown:
        _bank(opened, f"127.0.0.1:{hub.port}").send("hub", b"the real one")
        assert hub.recv("bank", 10) == b"the real one"


@pytest.mark.parametrize(
    ("make", "why"),
    [(_unknown, "but the one pinned"), (_expired, "hub expired on"), (_early, "hub is valid only from")],
    ids=["unknown", "expired", "not yet valid"],
)
def test_a_bad_server_certificate_is_refused(opened, make, why):
    """PeerRefused for who dialled, with the reason, before it has sent anything."""
    identity = make("hub")
    hub = GrpcEndpoint("hub", identity, TRUST, run_id="test", peers=["bank"], listen="127.0.0.1:0")
    opened.append(hub)
    trust = _trusting(PARTIES["hub"] if make is _unknown else identity)
    bank = _bank(opened, f"127.0.0.1:{hub.port}", trust=trust)
    bank.send("hub", b"secret")
    with pytest.raises(PeerRefused, match=why):
        bank.recv("hub", 10)
    with pytest.raises(DeadlineExceeded):
        hub.recv("bank", 0.05)


def test_another_party_at_the_address_is_refused(opened):
    """A known party with a good certificate is still not the one that was dialled."""
    shop = GrpcEndpoint("shop", PARTIES["shop"], TRUST, run_id="test", peers=["bank"], listen="127.0.0.1:0")
    opened.append(shop)
    bank = _bank(opened, f"127.0.0.1:{shop.port}")
    with pytest.raises(PeerRefused, match="made for shop, not for hub"):
        bank.wait_connected(10)
    with pytest.raises(DeadlineExceeded):
        shop.recv("bank", 0.05)


def test_own_authority(opened):
    """Certificates of one's own authority are accepted on both sides; those of another one are not."""
    authority, other = Authority("ours"), Authority("ours")
    trust = TrustStore()
    trust.own_ca(authority.certificate.pem)
    hub = GrpcEndpoint("hub", authority.issue("hub"), trust, run_id="test", peers=["bank"], listen="127.0.0.1:0")
    opened.append(hub)
    stranger = _bank(opened, f"127.0.0.1:{hub.port}", identity=other.issue("bank"), trust=trust)
    with pytest.raises(PeerRefused, match="does not accept the certificate of bank"):
        stranger.wait_connected(10)
    bank = _bank(opened, f"127.0.0.1:{hub.port}", identity=authority.issue("bank"), trust=trust)
    bank.send("hub", b"hello")
    assert hub.recv("bank", 10) == b"hello"


# Peers that break the rules: a bare gRPC client with the certificate of a known party


class RawClient:
    """Speaks envelopes by hand."""

    def __init__(self, port, identity):
        credentials = grpc.ssl_channel_credentials(
            PARTIES["hub"].certificate.pem, identity.key_pem, identity.certificate.pem
        )
        self._channel = grpc.secure_channel(
            f"127.0.0.1:{port}", credentials, [("grpc.ssl_target_name_override", "hub")]
        )
        self._call = self._channel.stream_stream(METHOD)
        self._over = threading.Event()

    def start(self, hello, *envelopes):
        """Send these, the HELLO in the header, and stay; the call, whose answers can be iterated."""

        def requests():
            yield from envelopes
            self._over.wait(10)

        return self._call(requests(), metadata=[(envelope.HELLO_KEY, hello)])

    def talk(self, *envelopes):
        """Send these; what came back, and how the call ended."""
        answers, call = [], self.start(*envelopes)
        try:
            answers.extend(call)
        except grpc.RpcError as error:
            return answers, error.code(), error.details()
        return answers, grpc.StatusCode.OK, ""

    def close(self):
        """Hang up."""
        self._over.set()
        self._channel.close()


@pytest.fixture
def raw(hub):
    """A bare client of the bank's, connected with the hub."""
    client = RawClient(hub.port, PARTIES["bank"])
    yield client
    client.close()


def _hello(speaker="bank", listener="hub", run_id="test", last_received=0, version=envelope.WIRE_VERSION):
    return Hello(version, 77, last_received, run_id, speaker, listener, NOTHING).encode()


def _data(number, frame=b"frame", received=0, kind=envelope.DATA):
    return envelope.pack_numbered(kind, number, received) + frame


@pytest.mark.parametrize(
    ("envelopes", "delivered", "why"),
    [
        ([_data(1, b"a"), _data(2, b"b"), _data(1, b"a")], [b"a", b"b"], r"1 of bank was sent again \(a replay\)"),
        ([_data(1, b"a"), _data(1, b"a")], [b"a"], "number 1 of bank was sent again"),
        ([_data(1, b"a"), _data(3, b"c")], [b"a"], "number 3 of bank was sent out of order: 2 is the next"),
        ([_data(0, b"a")], [], "number 0 of bank was sent again"),
        ([_data(1, received=1)], [], "acknowledges number 1, which was never sent"),
        ([_data(1, kind=9)], [], "unknown kind 9"),
        ([_data(1, kind=envelope.HELLO)], [], "unknown kind 1"),
        ([b""], [], "only 0 bytes long"),
        ([b"\x02"], [], "only 1 bytes long"),
    ],
)
def test_envelopes_that_break_the_rules_are_refused(hub, raw, envelopes, delivered, why):
    """A replayed, skipped or malformed envelope ends the channel: FrameError here, the reason there; nothing twice."""
    answers, code, details = raw.talk(_hello(), *envelopes)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert len(answers) >= 1
    assert [hub.recv("bank", 1) for _ in delivered] == delivered
    with pytest.raises(FrameError, match=why):
        hub.recv("bank", 1)
    assert details


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (_hello(speaker="shop"), "with the certificate of bank said it was 'shop'"),
        (_hello(listener="farm"), "looked for 'farm'"),
        (_hello(run_id="yesterday"), "takes part in another run than 'yesterday'"),
        (_hello(last_received=5), "received number 5 of hub, which has sent 0"),
        (_hello() + b"x", "lengths do not fit"),
        (_hello()[:20], "has 32 to 4096 bytes, got 20"),
        (_hello().replace(b"hub", b"hu\xff"), "not UTF-8"),
        (_data(1), "expected a HELLO"),
        (b"", "without a HELLO in its header"),
    ],
)
def test_a_wrong_hello_is_turned_away(hub, raw, first, why):
    """Another party's name, another run or nonsense: refused with the reason; the hub goes on waiting for the bank."""
    answers, code, details = raw.talk(first)
    assert (answers, code) == ([], grpc.StatusCode.PERMISSION_DENIED)
    assert why in details
    with pytest.raises(DeadlineExceeded, match="still waiting for bank to connect; refused meanwhile"):
        hub.wait_connected(0.05)
    with pytest.raises(DeadlineExceeded, match=r"no connection \(it came, but was turned away: "):
        hub.recv("bank", 0.05)


def test_a_known_party_that_is_not_expected_is_turned_away(opened):
    """A certificate that TLS accepts is not enough: its party must be a peer of this run that dials in."""
    authority = Authority("ours")
    trust = TrustStore()
    trust.own_ca(authority.certificate.pem)
    hub = GrpcEndpoint("hub", PARTIES["hub"], trust, run_id="test", peers=["bank"], listen="127.0.0.1:0")
    opened.append(hub)
    client = RawClient(hub.port, authority.issue("shop"))
    answers, code, details = client.talk(_hello())
    client.close()
    assert (answers, code) == ([], grpc.StatusCode.PERMISSION_DENIED)
    assert details == "hub does not expect this party"


def test_a_second_connection_of_a_connected_party_is_refused(star):
    """While the first one lives, nobody else can speak under its name; the first goes on undisturbed."""
    endpoints = star()
    client = RawClient(endpoints["hub"].port, PARTIES["bank"])
    answers, code, details = client.talk(_hello())
    client.close()
    assert (answers, code) == ([], grpc.StatusCode.ALREADY_EXISTS)
    assert details == "bank is connected with hub already"
    endpoints["bank"].send("hub", b"me")
    assert endpoints["hub"].recv("bank", 5) == b"me"


def test_a_party_that_was_started_anew_cannot_go_on(opened, hub):
    """It has forgotten what it sent, so going on would lose or repeat frames: PeerRefused for it, PeerLost here."""
    client = RawClient(hub.port, PARTIES["bank"])
    call = client.start(_hello(), _data(1, b"first life"))
    assert envelope.decode_hello(next(call)).speaker == "hub"
    assert hub.recv("bank", 5) == b"first life"
    client.close()
    time.sleep(0.2)
    bank = _bank(opened, f"127.0.0.1:{hub.port}")
    with pytest.raises(PeerRefused, match="bank was started anew and cannot go on where it was"):
        bank.wait_connected(10)
    with pytest.raises(PeerLost, match="bank was started anew and cannot go on where it was"):
        hub.recv("bank", 5)


# Use


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "bank"}, "the identity given to bank is that of hub"),
        ({"peers": ["bank", "bank"]}, "each once"),
        ({"peers": ["hub"]}, "must be others"),
        ({"dial": {"shop": "127.0.0.1:1"}}, "not among its peers"),
        ({"listen": None}, "neither listens nor dials"),
        ({"grace": 0.0}, "grace and connect_timeout must be positive, got 0.0"),
        ({"connect_timeout": -1.0}, "must be positive"),
        ({"max_unacked_bytes": 0}, "max_unacked_bytes must be positive, got 0"),
        ({"peers": ["two words"]}, "a party's name"),
    ],
)
def test_wrong_arguments_are_refused_at_the_door(changes, why):
    """Each with the value that is wrong."""
    arguments = {"name": "hub", "peers": ["bank"], "listen": "127.0.0.1:0", "run_id": "test", **changes}
    with pytest.raises(InvalidParameter, match=why):
        GrpcEndpoint(identity=PARTIES["hub"], trust=TRUST, **arguments)


def test_a_peer_without_a_certificate_is_refused_when_opening():
    """Nobody is talked to whose certificate is not known, so opening already says so."""
    with pytest.raises(PeerRefused, match="no certificate is pinned for bank"):
        GrpcEndpoint("hub", PARTIES["hub"], TrustStore(), run_id="test", peers=["bank"], listen="127.0.0.1:0")


def test_names_that_are_no_peers(star):
    """Sending to a stranger is a mistake in the program, named as such; only who listens has a port."""
    endpoints = star()
    assert (endpoints["hub"].name, endpoints["hub"].peers) == ("hub", ("bank",))
    with pytest.raises(InvalidParameter, match="'shop' is not a peer of hub"):
        endpoints["hub"].send("shop", b"")
    with pytest.raises(InvalidParameter, match="bank does not listen"):
        _ = endpoints["bank"].port


def test_a_port_that_is_taken(hub):
    """Two endpoints cannot listen on one port: an error that names it."""
    with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{hub.port}"):
        GrpcEndpoint("hub", PARTIES["hub"], TRUST, run_id="test", peers=["bank"], listen=f"127.0.0.1:{hub.port}")


def test_a_failed_opening_gives_the_port_back(opened):
    """Somebody else, or the same party once it knows the certificate that was missing, can listen there."""
    hub = _hub(opened)
    listen = f"127.0.0.1:{hub.port}"
    hub.close()
    trust = trust_in([PARTIES["bank"]])
    with pytest.raises(PeerRefused, match="no certificate is pinned for shop"):
        _hub(opened, trust=trust, listen=listen, peers=["bank", "shop"], dial={"shop": "127.0.0.1:1"})
    _bank(opened, listen).send("hub", b"hello")
    assert _hub(opened, listen=listen).recv("bank", 5) == b"hello"


def test_a_frame_beyond_the_limit_is_refused_by_the_sender(star, monkeypatch):
    """Before it is kept or sent."""
    monkeypatch.setattr("hedgerow.transport.grpc.MAX_FRAME_BYTES", 1000)
    endpoints = star()
    with pytest.raises(FrameError, match="1001 bytes long, the limit is 1000"):
        endpoints["bank"].send("hub", bytes(1001))
    endpoints["bank"].send("hub", bytes(1000))
    assert endpoints["hub"].recv("bank", 5) == bytes(1000)


def test_grpc_is_loaded_on_first_use_only():
    """Importing the transports does not load grpcio."""
    code = "import sys, hedgerow.transport, hedgerow.transport.grpc; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_frames_are_acknowledged_in_batches(star):
    """Acknowledgements ride on frames or are sent late, so a one-way flow of frames has far fewer of them."""
    endpoints = star()
    writes = itertools.count()
    channel = endpoints["hub"]._channels["bank"]
    write = channel._stream.write
    channel._stream.write = lambda message: (next(writes), write(message))
    for _ in range(500):
        endpoints["bank"].send("hub", bytes(100))
        endpoints["hub"].recv("bank", 5)
    _wait_until(lambda: endpoints["bank"]._channels["hub"]._held_bytes == 0)
    assert next(writes) < 50
