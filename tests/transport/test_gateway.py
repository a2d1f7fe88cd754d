"""A gateway: one port, several runs; who comes too early or too late is asked to come again."""

from __future__ import annotations

import threading

import pytest

from hedgerow.errors import DeadlineExceeded, InvalidParameter, JobDiffers, PeerLost, TransportError
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.grpc import Gateway, GrpcEndpoint
from twins.cut_link import CutLink
from twins.parties import make_identities, trust_in

PARTIES = make_identities(["hub", "bank", "shop"])
TRUST = trust_in(PARTIES.values())


@pytest.fixture
def gateway():
    """The hub's port."""
    made = Gateway("127.0.0.1:0", PARTIES["hub"], TRUST, ["bank", "shop"])
    yield made
    made.close()


def hub(gateway, run_id, peers=("bank",), **more):
    """The hub's end of a run."""
    return GrpcEndpoint("hub", PARTIES["hub"], TRUST, run_id=run_id, peers=peers, listen=gateway, **more)


def dialler(name, gateway, run_id, **more):
    """Somebody who dials the hub."""
    dial = {"hub": f"127.0.0.1:{gateway.port}"}
    return GrpcEndpoint(name, PARTIES[name], TRUST, run_id=run_id, peers=["hub"], dial=dial, **more)


def test_runs_side_by_side_do_not_mix(gateway):
    """Each endpoint gets the frames of its own run, over one port."""
    with (
        hub(gateway, "one") as first,
        hub(gateway, "two", ("bank", "shop")) as second,
        dialler("bank", gateway, "one") as bank_one,
        dialler("bank", gateway, "two") as bank_two,
        dialler("shop", gateway, "two") as shop_two,
    ):
        assert first.port == second.port == gateway.port
        bank_one.send("hub", b"of one")
        bank_two.send("hub", b"of two")
        shop_two.send("hub", b"of the shop")
        assert first.recv("bank", 20) == b"of one"
        assert (second.recv("bank", 20), second.recv("shop", 20)) == (b"of two", b"of the shop")


def test_who_comes_early_is_let_in_when_the_run_begins(gateway):
    """A party may dial long before the other one is at that run; many attempts are no refusal."""
    with dialler("bank", gateway, "later") as bank:
        with pytest.raises(DeadlineExceeded, match="has not begun here"):
            bank.wait_connected(1.5)
        with hub(gateway, "later") as late:
            late.send("bank", b"welcome")
            assert bank.recv("hub", 20) == b"welcome"


def test_who_comes_back_to_a_run_that_is_gone_is_told_at_once(gateway):
    """A hub that was started anew has forgotten the run: waiting for the grace period would be for nothing."""
    with CutLink(f"127.0.0.1:{gateway.port}") as link, hub(gateway, "one", grace=60.0) as first:
        bank = GrpcEndpoint(
            "bank", PARTIES["bank"], TRUST, run_id="one", peers=["hub"], dial={"hub": link.address}, grace=60.0
        )
        first.send("bank", b"welcome")
        assert bank.recv("hub", 20) == b"welcome"
        gateway.end("one")
        link.cut()
        link.restore()
        with pytest.raises(PeerLost, match="hub is there, but not in this run any more"):
            bank.recv("hub", 30)
        bank.close()
        first.drop("bank")


def test_runs_follow_each_other_on_one_port(gateway):
    """The same two parties can do one run after the other, also of the same name."""
    for number in range(4):
        with hub(gateway, "again") as end, dialler("bank", gateway, "again") as bank:
            bank.send("hub", bytes([number]))
            assert end.recv("bank", 20) == bytes([number])


def test_the_next_conversation_waits_for_the_end_of_the_last(gateway):
    """Who said goodbye and comes again at once, while the other is still at the old one, is let in by the new one."""
    with hub(gateway, "desk") as first:
        with dialler("bank", gateway, "desk") as bank:
            bank.wait_connected(20)
        with pytest.raises(PeerLost, match="has ended its part"):
            first.recv("bank", 20)
        bank = dialler("bank", gateway, "desk")
        with pytest.raises(DeadlineExceeded, match="has just ended a conversation"):
            bank.wait_connected(0.5)
    with bank, hub(gateway, "desk") as second:
        bank.send("hub", b"again")
        assert second.recv("bank", 20) == b"again"


def test_one_run_has_one_end_at_a_port(gateway):
    """A second endpoint for the same run is refused."""
    with hub(gateway, "one"), pytest.raises(InvalidParameter, match="'one' at this port already"):
        hub(gateway, "one")


def test_another_job_is_refused_in_words(gateway):
    """What parties compare is compared behind a gateway too."""
    jobs = [Agreed.of({"epsilon": epsilon}) for epsilon in (1, 2)]
    end, bank = hub(gateway, "one", job=jobs[0]), dialler("bank", gateway, "one", job=jobs[1])
    for endpoint in (end, bank):
        with pytest.raises(JobDiffers, match="epsilon"):
            endpoint.wait_connected(20)
        endpoint.abort(b"")


def test_the_port_is_given_back():
    """Closing ends all calls, and somebody else can listen there."""
    first = Gateway("127.0.0.1:0", PARTIES["hub"], TRUST, ["bank"])
    end, bank = hub(first, "one"), dialler("bank", first, "one", grace=1.0)
    bank.wait_connected(20)
    port = first.port
    first.close()
    second = Gateway(f"127.0.0.1:{port}", PARTIES["hub"], TRUST, ["bank"])
    with pytest.raises(TransportError):
        bank.recv("hub", 20)
    for endpoint in (end, bank):
        endpoint.abort(b"")
    second.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hedgerow-clock")]
