"""The memory network: order, determinism, failures, dropouts and emulated links."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from hedgerow.errors import DeadlineExceeded, InvalidParameter, PeerLost
from hedgerow.transport.emulate import Link
from hedgerow.transport.endpoint import LastWord
from hedgerow.transport.memory import MemoryNetwork

LONG = 600.0  # seconds; no test waits so long


def run(link=None, **roles):
    """Run roles that take their endpoint; what each returned, or the error that ended it."""
    network = MemoryNetwork(list(roles), link=link)
    outcomes = network.run({name: lambda n=name, f=role: f(network.endpoint(n)) for name, role in roles.items()})
    return {name: outcome.error or outcome.value for name, outcome in outcomes.items()}


def test_frames_arrive_in_order():
    """Frames of a pair are received in the order of sending, whatever else is sent in between."""

    def a(me):
        for k in range(5):
            me.send("b", b"%d" % k)
            me.send("c", b"%d" % -k)

    def listen(me):
        return [int(me.recv("a", LONG)) for _ in range(5)]

    assert run(a=a, b=listen, c=listen) == {"a": None, "b": [0, 1, 2, 3, 4], "c": [0, -1, -2, -3, -4]}


@pytest.mark.parametrize("n_owners", [1, 3, 40])
@pytest.mark.parametrize("link", [None, Link(0.001, 1e9)], ids=["direct", "linked"])
def test_a_coordinator_and_its_owners(n_owners, link):
    """Rounds of "all send, one answers" give everybody the same sums, also with more roles than a word has bits."""
    owners = [f"owner_{k}" for k in range(n_owners)]
    n_rounds = 5

    def coordinator(me):
        for _ in range(n_rounds):
            total = sum(int(me.recv(owner, LONG)) for owner in owners)
            for owner in owners:
                me.send(owner, b"%d" % total)

    def owner(me):
        value = owners.index(me.name)
        for _ in range(n_rounds):
            me.send("coordinator", b"%d" % value)
            value += int(me.recv("coordinator", LONG))
        return value

    results = run(link, coordinator=coordinator, **dict.fromkeys(owners, owner))
    expected = list(range(n_owners))
    for _ in range(n_rounds):
        expected = [value + sum(expected) for value in expected]
    assert [results[name] for name in owners] == expected


def test_roles_run_one_at_a_time_in_a_fixed_order():
    """The baton goes round: who waits is passed over, and the course of a run is the same every time."""

    def course():
        log, inside = [], []

        def step(me, what):
            inside.append(me.name)
            time.sleep(0.001)  # lets other threads run if anything does
            assert inside == [me.name]
            inside.clear()
            log.append(f"{me.name}{what}")

        def coordinator(me):
            step(me, "starts")
            for k in range(2):
                for peer in ("x", "y", "z"):
                    me.recv(peer, LONG)
                    step(me, f"{peer}{k}")
                for peer in ("x", "y", "z"):
                    me.send(peer, b"")

        def owner(me):
            for k in range(2):
                step(me, k)
                me.send("c", b"")
                me.recv("c", LONG)

        results = run(c=coordinator, x=owner, y=owner, z=owner)
        assert set(results.values()) == {None}
        return log

    first = course()
    assert first == ["cstarts", "x0", "y0", "z0", "cx0", "cy0", "cz0", "x1", "y1", "z1", "cx1", "cy1", "cz1"]
    assert all(course() == first for _ in range(3))


def test_send_goes_on_and_does_not_hand_over():
    """A sender keeps the baton until it waits itself."""
    log = []

    def a(me):
        me.send("b", b"1")
        log.append("a sent")
        me.recv("b", LONG)

    def b(me):
        me.recv("a", LONG)
        log.append("b received")
        me.send("a", b"2")

    run(b=b, a=a)
    assert log == ["a sent", "b received"]


def test_handing_over_is_quick():
    """Two thousand handovers take no time worth speaking of (about 20 ms); polling would take far longer."""

    def ping(me):
        begin = time.perf_counter()
        for _ in range(1000):
            me.send("b", b"")
            me.recv("b", LONG)
        return time.perf_counter() - begin

    def pong(me):
        for _ in range(1000):
            me.recv("a", LONG)
            me.send("a", b"")

    assert run(a=ping, b=pong)["a"] < 1.0


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [None, Link(0.002, 1e9)], ids=["direct", "linked"])
def test_when_all_wait_all_are_told_at_once(link):
    """A deadlock ends in every role at once, long before the deadline, and says who waits for whom."""
    begin = time.monotonic()
    results = run(
        link,
        a=lambda me: me.recv("b", LONG),
        b=lambda me: me.recv("c", LONG),
        c=lambda me: me.recv("a", LONG),
    )
    assert time.monotonic() - begin < 5
    for error in results.values():
        assert isinstance(error, DeadlineExceeded)
        assert str(error) == "nobody can go on: a waits for b, b waits for c, c waits for a"


def test_who_was_told_can_go_on():
    """A role that catches the end of a wait works as before, and frames sent meanwhile are not lost."""

    def a(me):
        with pytest.raises(DeadlineExceeded):
            me.recv("b", LONG)
        me.send("b", b"hello")
        return me.recv("b", LONG)

    def b(me):
        with pytest.raises(DeadlineExceeded):
            me.recv("a", LONG)
        me.send("a", b"again")
        return me.recv("a", LONG)

    assert run(a=a, b=b) == {"a": b"again", "b": b"hello"}


@pytest.mark.parametrize("link", [None, Link(0.002, 1e9)], ids=["direct", "linked"])
def test_a_failing_role_tells_its_peers(link):
    """What was sent before is received first; then recv and send both say who stopped, and nothing of why."""

    def fails(me):
        me.send("b", b"last words")
        raise KeyError("column 'age'")

    def b(me):
        assert me.recv("a", LONG) == b"last words"
        for talk in (lambda: me.recv("a", LONG), lambda: me.recv("a", LONG), lambda: me.send("a", b"too late")):
            with pytest.raises(LastWord, match=r"^a stopped$") as told:
                talk()
            assert (told.value.party, told.value.frame) == ("a", b"")
        me.send("c", b"I go on")

    def c(me):
        return me.recv("b", LONG)

    results = run(link, a=fails, b=b, c=c)
    assert isinstance(results["a"], KeyError)
    assert (results["b"], results["c"]) == (None, b"I go on")


def test_even_an_exit_is_an_outcome():
    """A role that tries to end the process ends only itself."""

    def leaves(_me):
        raise SystemExit(3)

    results = run(a=leaves, b=lambda me: me.recv("a", LONG))
    assert isinstance(results["a"], SystemExit)
    assert isinstance(results["b"], LastWord)


@pytest.mark.parametrize("ending", ["return", "close"])
@pytest.mark.parametrize("link", [None, Link(0.002, 1e9)], ids=["direct", "linked"])
def test_a_finished_role_is_gone(ending, link):
    """Its frames are still received; after that it is lost, in both directions."""

    def a(me):
        me.send("b", b"1")
        me.send("b", b"2")
        if ending == "close":
            me.close()
            with pytest.raises(PeerLost, match="a has closed its channels"):
                me.send("b", b"3")

    def b(me):
        assert [me.recv("a", LONG), me.recv("a", LONG)] == [b"1", b"2"]
        for _ in range(2):
            with pytest.raises(PeerLost, match="a has finished"):
                me.recv("a", LONG)
        with pytest.raises(PeerLost, match="a has finished"):
            me.send("a", b"")
        return "done"

    assert run(link, a=a, b=b)["b"] == "done"


def test_the_last_word_is_what_peers_read():
    """The frame that it is given, and nothing of the exception that follows."""

    def a(me):
        me.abort(b"frame")
        with pytest.raises(PeerLost, match="a has closed its channels"):
            me.send("b", b"one more thing")
        raise RuntimeError("something else")

    results = run(a=a, b=lambda me: me.recv("a", LONG))
    assert (results["b"].party, results["b"].frame) == ("a", b"frame")


@pytest.mark.parametrize("link", [None, Link(0.002, 1e9)], ids=["direct", "linked"])
def test_a_dropped_peer_is_not_heard_again(link):
    """After a drop neither side can send, and frames of the peer are not read, not even those already there."""

    def a(me):
        assert me.recv("b", LONG) == b"first"
        me.send("b", b"before")
        me.drop("b")
        with pytest.raises(PeerLost, match="a has dropped b"):
            me.recv("b", LONG)
        with pytest.raises(PeerLost, match="a has dropped b"):
            me.send("b", b"after")
        assert me.recv("c", LONG) == b"still here"
        with pytest.raises(PeerLost, match="a has dropped b"):
            me.recv("b", LONG)

    def b(me):
        for frame in (b"first", b"second", b"third"):
            me.send("a", frame)
        assert me.recv("a", LONG) == b"before"
        with pytest.raises(PeerLost, match="b was dropped by a"):
            me.recv("a", LONG)
        with pytest.raises(PeerLost, match="b was dropped by a"):
            me.send("a", b"hello?")
        me.send("c", b"go")

    def c(me):
        me.recv("b", LONG)
        me.send("a", b"still here")

    assert run(link, a=a, b=b, c=c) == {"a": None, "b": None, "c": None}


def test_a_dropped_peer_may_fail_afterwards():
    """What becomes of a dropped peer changes nothing for who dropped it."""

    def a(me):
        me.drop("b")
        with pytest.raises(DeadlineExceeded):
            me.recv("c", LONG)
        with pytest.raises(PeerLost, match="a has dropped b"):
            me.send("b", b"")

    def b(_me):
        raise ValueError("broken")

    assert run(a=a, b=b, c=lambda me: me.recv("a", LONG))["a"] is None


# --- links -----------------------------------------------------------------------------------------------------------


def test_frames_take_their_time_on_a_link():
    """Three rounds over 40 ms take 120 ms, and a large frame as long as the bandwidth says."""
    link = Link(0.04, 8e6)

    def a(me):
        begin = time.monotonic()
        for _ in range(3):
            me.send("b", b"")
            me.recv("b", LONG)
        rounds = time.monotonic() - begin
        me.send("b", bytes(50_000))
        me.recv("b", LONG)
        return rounds, time.monotonic() - begin - rounds

    def b(me):
        for _ in range(4):
            me.recv("a", LONG)
            me.send("a", b"")

    rounds, large = run(link, a=a, b=b)["a"]
    assert 0.12 <= rounds < 0.5
    assert 0.09 <= large < 0.5


def test_parties_compute_while_frames_travel():
    """The sender goes on during the flight; frames of different pairs travel side by side."""

    def owner(me):
        me.send("c", b"")
        time.sleep(0.03)
        return me.recv("c", LONG)

    def coordinator(me):
        begin = time.monotonic()
        for name in ("x", "y", "z"):
            me.recv(name, LONG)
        for name in ("x", "y", "z"):
            me.send(name, b"done")
        return time.monotonic() - begin

    results = run(Link(0.2), c=coordinator, x=owner, y=owner, z=owner)
    assert results["x"] == b"done"
    assert 0.16 <= results["c"] < 0.29  # the last one sends after 0.06; flights one after the other would take 0.3


def test_a_deadline_on_a_link():
    """Who waits for less than the flight takes is told in time, and can still have the frame later."""

    def a(me):
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="the time is over: a waits for b"):
            me.recv("b", 0.02)
        early = time.monotonic() - begin
        assert me.recv("b", LONG) == b"frame"
        return early, time.monotonic() - begin

    early, late = run(Link(0.8), a=a, b=lambda me: me.send("a", b"frame"))["a"]
    assert 0.02 <= early < 0.35
    assert late >= 0.39


# --- use -------------------------------------------------------------------------------------------------------------


def test_outside_of_a_run_nobody_can_wait():
    """Frames that are there can be taken by any thread; waiting for one needs a role."""
    network = MemoryNetwork(["a", "b"])
    network.endpoint("a").send("b", b"frame")
    assert network.endpoint("b").recv("a", LONG) == b"frame"
    with pytest.raises(DeadlineExceeded, match="nothing has come from a, and b can only wait for it within `run`"):
        network.endpoint("b").recv("a", LONG)


def test_names_are_checked():
    """Parties, peers and roles must be those that were named; a network runs once."""
    with pytest.raises(InvalidParameter, match="names that differ, got a, a"):
        MemoryNetwork(["a", "a"])
    with pytest.raises(InvalidParameter, match="got none"):
        MemoryNetwork([])
    network = MemoryNetwork(["a", "b"])
    assert (network.endpoint("a").name, network.endpoint("a").peers) == ("a", ("b",))
    with pytest.raises(InvalidParameter, match="no party is called 'c'; there are a, b"):
        network.endpoint("c")
    for name in ("a", "c"):
        with pytest.raises(InvalidParameter, match=f"a has no peer called '{name}'; it has b"):
            network.endpoint("a").send(name, b"")
        with pytest.raises(InvalidParameter, match=f"a has no peer called '{name}'"):
            network.endpoint("a").recv(name, 0)
        with pytest.raises(InvalidParameter, match=f"a has no peer called '{name}'"):
            network.endpoint("a").drop(name)
    with pytest.raises(InvalidParameter, match="roles are given for a, the parties are a, b"):
        network.run({"a": int})
    assert [outcome.value for outcome in network.run({"b": str, "a": int}).values()] == [0, ""]
    with pytest.raises(InvalidParameter, match="runs once"):
        network.run({"a": int, "b": int})


@pytest.mark.parametrize("busy", [False, True], ids=["on its way", "computing"])
def test_an_interrupt_ends_all_roles(busy):
    """Ctrl-C reaches the caller of `run` at once, and every role ends at its next wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a library has done to it
    network = MemoryNetwork(["a", "b"], link=None if busy else Link(400.0))
    main = threading.main_thread().ident
    alarm = threading.Timer(0.15, lambda: signal.pthread_kill(main, signal.SIGINT))

    def role(me, peer):
        if me.name == "a":  # which begins when the caller already waits for the end
            alarm.start()
        while True:
            if busy:
                time.sleep(0.01)
            me.send(peer, b"")
            me.recv(peer, LONG)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        network.run({"a": lambda: role(network.endpoint("a"), "b"), "b": lambda: role(network.endpoint("b"), "a")})
    alarm.join()
    assert time.monotonic() - begin < 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("party-")]
