"""Trails of several parties tell the same story, or it is found where they differ."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.errors import InvalidParameter, PeerRefused
from hedgerow.node.audit import Trail
from hedgerow.node.audit_cross import cross_check
from hedgerow.node.digests import Digesting
from hedgerow.runtime import running
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import Identity

WHO = {name: Identity.create(name) for name in ("bank", "shop", "club")}
HASH = "ab" * 32
SIGNERS = {name: WHO[name].fingerprint for name in ("bank", "shop")}
START = {"run_id": "r1", "proposal": HASH, "protocol": "vertical.secret_shared", "signers": SIGNERS, "version": "1"}
END = {"run_id": "r1", "proposal": HASH}
ONE, TWO = "01" * 32, "02" * 32


@pytest.fixture
def trails(tmp_path):
    """A trail for each of three parties."""
    return {name: Trail(tmp_path / f"{name}.jsonl", identity) for name, identity in WHO.items()}


def digests(peer, sent, received, n_sent=3, n_received=2, **more):
    """The facts of a line."""
    return {
        "run_id": "r1", "peer": peer, "sent": sent, "received": received, "n_sent": n_sent, "n_received": n_received,
        **more,
    }  # fmt: skip


def play(trails, bank=(), shop=(), *, start=None, ended=True):
    """A run of two parties as both write it down; `bank` and `shop` are changes to their digests."""
    for name, other in (("bank", "shop"), ("shop", "bank")):
        trails[name].append("run_started", **START | dict((start or {}).get(name, {})))
        ways = (ONE, TWO, 3, 2) if name == "bank" else (TWO, ONE, 2, 3)
        facts = digests(other, *ways)
        trails[name].append("message_digests", **{**facts, **dict(bank if name == "bank" else shop)})
        if ended:
            trails[name].append("run_ended", **END)


def sentences(trails, *names, certificates=()):
    """What is found in the trails of these parties."""
    report = cross_check([trails[name].path for name in names or ("bank", "shop")], certificates)
    return [f"{finding.trail.rsplit('/')[-1]} {finding.line}: {finding.sentence}" for finding in report.findings]


def test_two_trails_that_agree(trails):
    """Nothing is found; certificates that were brought along vouch for the trails that they are of."""
    play(trails)
    report = cross_check([trails[name].path for name in ("bank", "shop")], [WHO["shop"].certificate.pem])
    assert report.ok
    assert [(trail.party, trail.n_lines, trail.vouched) for trail in report.trails] == [
        ("bank", 4, False),
        ("shop", 4, True),
    ]
    assert len(report.notes) == 1


@pytest.mark.parametrize("what", ["proposal", "protocol"])
def test_another_proposal_is_found(trails, what):
    """Both know the run, and not as the same."""
    play(trails, start={"shop": {what: "cd" * 32}})
    assert sentences(trails) == [
        f"bank.jsonl 2: run r1 has another {what} here than in line 2 of {trails['shop'].path}"
    ]


def test_other_signers_are_found(trails):
    """Who signed is written down alike by all, and each signer's own trail knows its certificate."""
    play(trails, start={name: {"signers": SIGNERS | {"shop": WHO["club"].fingerprint}} for name in ("bank", "shop")})
    assert sentences(trails) == [
        f"bank.jsonl 2: shop is said to have signed with {WHO['club'].fingerprint}, which its trail does not know"
    ]
    play(trails, start={"shop": {"signers": {"shop": WHO["shop"].fingerprint}}})
    assert any("another signers" in sentence for sentence in sentences(trails))


def test_other_messages_are_found(trails):
    """What was sent is not what was received; or another number of messages."""
    play(trails, bank={"sent": TWO})
    (found,) = sentences(trails)
    assert found == f"bank.jsonl 3: what bank sent is not what shop received (line 3 of {trails['shop'].path})"
    play(trails, shop={"n_received": 2})
    assert any("bank sent 3 messages, shop received 2" in sentence for sentence in sentences(trails))


def test_a_run_that_was_broken_off_may_have_messages_on_their_way(trails):
    """Sent and never read is no finding then; received and never sent is."""
    play(trails, shop={"n_received": 1, "received": TWO}, ended=False)
    assert sentences(trails) == []
    play(trails, shop={"n_received": 5, "received": TWO}, ended=False)
    assert "bank sent 3 messages, shop received 5" in sentences(trails)[0]


def test_attempts_are_compared_one_by_one(trails):
    """A run that was resumed has digests of each attempt."""
    play(trails, bank={"attempt": 1}, shop={"attempt": 1}, ended=False)
    play(trails, bank={"attempt": 2, "sent": TWO}, shop={"attempt": 2, "received": TWO})
    assert sentences(trails) == []


def test_a_run_that_one_side_hides_is_found(trails):
    """What a party signed and played to its end is in its trail, with its digests."""
    trails["shop"].append("paired", peer="bank", fingerprint=WHO["bank"].fingerprint)
    trails["bank"].append("run_started", **START)
    trails["bank"].append("run_ended", **END)
    assert sentences(trails) == ["bank.jsonl 2: run r1 came to its end, but the trail of shop does not know it"]
    trails["bank"].append("message_digests", **digests("shop", ONE, TWO))
    trails["shop"].append("run_started", **START)
    trails["shop"].append("run_ended", **END)
    assert sentences(trails) == ["bank.jsonl 4: the trail of shop has no digests of its messages with bank"]


def test_a_trail_that_was_written_anew_is_found_by_those_who_saw_it(trails):
    """Its key signs whatever its holder wants, but others have written down where it had got to."""
    play(trails)
    trails["bank"].append("accepted", proposal=HASH, party="bank", heads={"shop": trails["shop"].head})
    assert sentences(trails) == []
    trails["shop"].append("scored", peers=["bank"], n_rows=1)
    assert sentences(trails) == []
    path = trails["shop"].path
    path.unlink()
    path.with_name(f"{path.name}.head").unlink()
    for kind, facts in (
        ("run_started", START),
        ("message_digests", digests("bank", TWO, ONE, 2, 3)),
        ("run_ended", END),
    ):
        trails["shop"].append(kind, **facts)
    assert sentences(trails) == [
        "bank.jsonl 5: the trail of shop had another line 4 when this was written: it was cut, or written anew"
    ]


def test_what_is_wrong_with_one_trail_is_among_the_findings(trails):
    """A changed line is found where it is, whatever the others say; an empty trail has nothing to compare."""
    play(trails)
    path = trails["shop"].path
    path.write_bytes(path.read_bytes().replace(b'"n_sent":2', b'"n_sent":9'))
    found = sentences(trails)
    assert "shop.jsonl 3: the signature is not that of this line by this key" in found
    path.write_bytes(b"")
    assert any("the trail is empty" in sentence for sentence in sentences(trails))


def test_one_trail_per_party(trails, tmp_path):
    """Two trails of one party are a finding; one alone cannot be compared."""
    play(trails)
    trails["other"] = Trail(tmp_path / "other.jsonl", WHO["bank"])
    trails["other"].append("init")
    assert sentences(trails, "bank", "shop", "other") == [
        f"other.jsonl None: it is a trail of bank, as {trails['bank'].path} is: a party has one"
    ]
    with pytest.raises(InvalidParameter, match="give two or more, got 1"):
        cross_check([tmp_path / "other.jsonl"])


def test_a_certificate_of_nobody_is_found(trails):
    """Each one that was brought must be of a trail; what is none is refused."""
    play(trails)
    (found,) = sentences(trails, certificates=[WHO["club"].certificate.pem, WHO["bank"].certificate.pem])
    assert "neither this trail nor another one is signed with the certificate" in found
    with pytest.raises(PeerRefused):
        sentences(trails, certificates=[b"no certificate"])


# --- digests ---------------------------------------------------------------------------------------------------------


class Echo:
    """An endpoint that gives back what it was sent."""

    name, peers = "bank", ("shop",)

    def __init__(self):
        self.frames = []

    def send(self, to, frame):
        """Keep a frame, or fail."""
        assert to == "shop"
        if frame == b"fails":
            raise ConnectionError
        self.frames.append(frame)

    def recv(self, sender, timeout):
        """The oldest frame."""
        assert (sender, timeout) == ("shop", 1.0)
        return self.frames.pop(0)


def test_a_digest_is_what_its_page_says():
    """SHA-256 over lengths and frames, in order, each way by itself; a frame that could not be sent counts as sent."""
    end = Digesting(Echo())
    for frame in (b"one", b"", b"three"):
        end.send("shop", frame)
    assert [end.recv("shop", 1.0) for _ in range(2)] == [b"one", b""]
    with pytest.raises(ConnectionError):
        end.send("shop", b"fails")
    received = b"\x03" + bytes(7) + b"one" + bytes(8)
    sent = received + b"\x05" + bytes(7) + b"three" + b"\x05" + bytes(7) + b"fails"
    assert end.digests() == {
        "shop": {
            "sent": hashlib.sha256(sent).hexdigest(),
            "n_sent": 4,
            "received": hashlib.sha256(received).hexdigest(),
            "n_received": 2,
        }
    }


def test_frames_cannot_be_cut_otherwise():
    """Two messages are not one that says the same: lengths are in the digest."""
    one, two = Digesting(Echo()), Digesting(Echo())
    one.send("shop", b"ab")
    one.send("shop", b"c")
    two.send("shop", b"a")
    two.send("shop", b"bc")
    assert one.digests()["shop"]["sent"] != two.digests()["shop"]["sent"]


def test_the_digests_of_a_real_run_agree(trails, monkeypatch):
    """Three parties train together; each writes down its own digests, and the trails of all tell the same story."""
    ends = {}

    def around(endpoint):
        return ends.setdefault(endpoint.name, Digesting(endpoint))

    started = running.in_memory

    def watched(network: MemoryNetwork, names, **how):
        ends.clear()  # the rehearsal's
        return started(network, names, **{**how, "around": around})

    monkeypatch.setattr(running, "in_memory", watched)
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(50, 2)) for name in WHO}
    federation = Federation.vertical(tables, labels=("bank", tables["bank"][:, 0] > 0))
    run = federation.fit("vertical.bucket_rr", epsilon=4.0, edges="quantile", n_estimators=1, max_depth=1)
    facts = {"run_id": run.job.run_id, "proposal": HASH}
    signers = {name: identity.fingerprint for name, identity in WHO.items()}
    for name, trail in trails.items():
        trail.append("run_started", **facts, protocol=run.protocol, version="1", signers=signers)
        for peer, found in ends[name].digests().items():
            trail.append("message_digests", run_id=run.job.run_id, peer=peer, **found)
            lines = run.ledgers[name].lines
            assert (found["n_sent"], found["n_received"]) == (
                len(lines("disclosed", peer)),
                len(lines("learned", peer)),
            )
        trail.append("run_ended", **facts)
    assert sentences(trails, "bank", "shop", "club") == []
