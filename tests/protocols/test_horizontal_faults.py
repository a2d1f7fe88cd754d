"""horizontal.secure_sum over real connections that break, and with peers that are slow, foreign or repeat themselves.

All parties are threads of this process, each with an endpoint of its own, joined by gRPC with mutual TLS on loopback.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from hedgerow.aborts import Reason
from hedgerow.attacks.secure_sum.singleton_cells import plan_of
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import (
    DeadlineExceeded,
    PeerFailed,
    PeerLost,
    PeerRefused,
    ProtocolError,
    VersionMismatch,
)
from hedgerow.ledger import reconcile
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import (
    MaskedCounts,
    MaskedHistogram,
    MaskedTotals,
    MaskKey,
    NextStep,
)
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party, root_cause
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.mtls import Identity
from hedgerow.transport.transcripts import Recording
from twins.cut_link import CutLink
from twins.horizontal import NAMES, document, make_pooled, share_out, with_losses
from twins.parties import make_identities, trust_in

HUB = "coordinator"
IDENTITIES = make_identities([HUB, *NAMES])
TRUST = trust_in(IDENTITIES.values())
N_TREES, ROWS = 6, 50
SIGNED = ("horizontal.mask_key", "horizontal.mask_keys")  # ECDSA signatures differ by some bytes in length
BRIEFLY = 0.4
"""Seconds of grace where a link is cut for good: nobody comes back, so nothing is gained by waiting longer."""
SUMS = {kind.NAME for kind in (MaskedTotals, MaskedCounts, MaskedHistogram)}


def job_of(n_owners, **options):
    """A small job: six trees of two levels."""
    trees = BoostingParams(n_iterations=N_TREES, max_depth=2, learning_rate=0.3)
    return Job(NAMES[:n_owners], "a test", boosting=trees, max_bins=32, **options)


def rows_of(n_owners):
    """All rows, and what each owner has of them."""
    pooled = make_pooled(np.random.default_rng(n_owners), ROWS * n_owners, n_numeric=2, n_levels=3)
    return pooled, share_out(pooled, [ROWS] * n_owners)


@dataclass
class Network:
    """Endpoints on loopback, and how a run over them ended."""

    job: Job
    endpoints: dict = field(default_factory=dict)
    wires: dict = field(default_factory=dict)
    parties: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=dict)

    def open(self, cuttable=(), identities=IDENTITIES, versions=None, **settings):
        """The hub listens, owners dial it; those in `cuttable` through a link that can be cut."""
        settings = {"run_id": self.job.run_id, "grace": 1.0, "connect_timeout": 20.0, **settings}
        owners = self.job.owners
        hub = GrpcEndpoint(HUB, IDENTITIES[HUB], TRUST, peers=owners, listen="127.0.0.1:0", **settings)
        self.endpoints[HUB] = hub
        for name in owners:
            address = f"127.0.0.1:{hub.port}"
            if name in cuttable:
                self.wires[name] = CutLink(address)
                address = self.wires[name].address
            version = {"wire_version": versions[name]} if name in (versions or {}) else {}
            self.endpoints[name] = GrpcEndpoint(
                name, identities[name], TRUST, peers=[HUB], dial={HUB: address}, **settings, **version
            )
        return self

    def connect(self):
        """Wait until all are there."""
        for endpoint in self.endpoints.values():
            endpoint.wait_connected()
        return self

    def run(self, *, around=None, deadlines=None, signs=IDENTITIES, on_progress=None):
        """Play all roles, each in a thread, and end each as a process would; `around` wraps endpoints."""
        _, data = rows_of(len(self.job.owners))
        wrapped = {name: (around or {}).get(name, Recording)(each) for name, each in self.endpoints.items()}
        for name, endpoint in wrapped.items():
            how = {"deadline": (deadlines or {}).get(name, 20.0)}
            self.parties[name] = Party(endpoint, signs[name], TRUST, on_progress=on_progress, **how)
        started = time.monotonic()

        def live(name):
            try:
                self.results[name] = PROTOCOL.play(self.parties[name], self.job, data.get(name))
                self.endpoints[name].close()
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.errors[name] = error
                self.parties[name].abort(error)
            self.seconds[name] = time.monotonic() - started

        threads = [threading.Thread(target=live, args=(name,), daemon=True) for name in self.endpoints]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "somebody hangs"
        return self

    @property
    def model(self):
        """The coordinator's model."""
        assert self.errors == {}
        return self.results[HUB]

    def close(self):
        """End what has not ended."""
        for endpoint in self.endpoints.values():
            endpoint.abort(b"")
        for wire in self.wires.values():
            wire.close()


@pytest.fixture
def network():
    """A function that opens the endpoints of a job; they are closed after the test."""
    networks = []

    def make(job, **settings):
        networks.append(Network(job))
        return networks[-1].open(**settings)

    yield make
    for each in networks:
        each.close()


@pytest.fixture(scope="module", autouse=True)
def calm():
    """The job of three owners in memory, where nothing breaks; afterwards no deadline waits for a compiler."""
    played = play(PROTOCOL, job_of(3), rows_of(3)[1], around={"ben": Recording})
    assert played.errors == {}
    return played


@pytest.fixture(scope="module")
def wire_bytes(calm):
    """How many bytes pass over one owner's wire in an undisturbed run, which gives the model of the memory run."""
    undisturbed = Network(job_of(3)).open(cuttable=["ben"]).connect()
    before = undisturbed.wires["ben"].bytes_passed
    try:
        assert undisturbed.run().model.to_dict() == calm.results[HUB].to_dict()
        return undisturbed.wires["ben"].bytes_passed - before
    finally:
        undisturbed.close()


def expected_after(job, lost):
    """The plain engine's model when owners' rows are taken away at the first level of these trees."""
    pooled, data = rows_of(len(job.owners))
    owned = {name: range(k * ROWS, (k + 1) * ROWS) for k, name in enumerate(job.owners)}
    whole = play(PROTOCOL, job, data).results[HUB]
    return with_losses(job, pooled, owned, {name: (tree, 0) for name, tree in lost.items()}, whole)


def books(network, without=()):
    """The ledgers of those who stayed."""
    return {name: party.ledger for name, party in network.parties.items() if name not in without}


# --- a link that is cut and comes back -------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.03, 0.2, 0.5, 0.8, 0.97])
def test_a_cut_within_the_grace_period_changes_nothing(network, calm, wire_bytes, part):
    """Cut anywhere, in the search for edges or in the middle of a tree: same model, same books, nothing sent twice."""
    net = network(job_of(3), cuttable=["ben"], grace=5.0).connect()
    wire = net.wires["ben"]
    wire.cut_after(int(part * wire_bytes), for_seconds=0.2)
    net.run()
    assert net.model.to_dict() == calm.results[HUB].to_dict()
    assert wire.connections_made >= 2
    reconcile(books(net))
    for name, party in net.parties.items():
        mine, theirs = (p.meter.to_dict()["by_message"] for p in (party, calm.parties[name]))
        assert {m: t for m, t in mine.items() if m not in SIGNED} == {
            m: t for m, t in theirs.items() if m not in SIGNED
        }


def test_all_links_cut_at_once_and_again(network, calm):
    """The whole network is gone twice for a moment while trees are grown."""
    net = network(job_of(3), cuttable=NAMES[:3], grace=5.0).connect()

    def cut(done, _total):
        if done in (2, 4):
            for wire in net.wires.values():
                wire.cut()
                threading.Timer(0.15, wire.restore).start()

    assert net.run(on_progress=cut).model.to_dict() == calm.results[HUB].to_dict()
    assert all(wire.connections_made >= 3 for wire in net.wires.values())


# --- a link that is cut for good -------------------------------------------------------------------------------------


def cutting_after(net, lost):
    """A watcher that cuts owners' links when so many trees are done."""

    def watch(done, _total):
        for name, tree in lost.items():
            if done == tree:
                net.wires[name].cut()

    return watch


@pytest.mark.parametrize("lost", [{"ben": 2}, {"anna": 1, "dora": 4}, {"ben": 3, "carla": 3}])
def test_an_owner_that_stays_away_is_left_out(network, lost):
    """The others go on: the trees are those of the plain engine on the rows that are left. The lost one is told."""
    n_owners = 3 + len(lost)
    job = job_of(n_owners, min_owners=3)
    net = network(job, cuttable=list(lost), grace=BRIEFLY).connect()
    net.run(on_progress=cutting_after(net, lost))
    model = net.results[HUB]
    assert model.meta["lost_owners"] == lost
    assert document(model) == document(expected_after(job, lost))
    assert set(net.errors) == set(lost)
    for name in lost:
        assert isinstance(net.errors[name], PeerLost)
        assert "coordinator" in str(net.errors[name])
    for name in set(job.owners) - set(lost):
        assert document(net.results[name]) == document(model)
    reconcile(books(net, without=lost))
    words = str(PROTOCOL.statement(job, model.meta))
    assert f"{len(lost)} of {n_owners} owners were lost on the way" in words


def test_an_owner_that_is_lost_while_new_keys_are_made(network):
    """Keys are made a third time, among those who are still there."""
    job = job_of(5, min_owners=3)
    net = network(job, cuttable=["ben", "carla"], grace=BRIEFLY).connect()

    class GoesWhenAsked(Recording):
        """Is cut off on hearing that somebody else was lost."""

        def recv(self, sender, timeout):
            """The next frame, perhaps the last one."""
            frame = super().recv(sender, timeout)
            if peek(frame)[0] == NextStep.NAME and plan_of(decode(frame, NextStep)).new_round:
                net.wires["carla"].cut()
            return frame

    net.run(around={"carla": GoesWhenAsked}, on_progress=cutting_after(net, {"ben": 2}))
    lost = {"ben": 2, "carla": 2}
    assert net.results[HUB].meta["lost_owners"] == lost
    assert document(net.results[HUB]) == document(expected_after(job, lost))
    offered = net.parties["anna"]._endpoint.messages(MaskKey, "sent")
    assert [offer.round_id for offer in offered] == [1, 2, 3]
    assert len({offer.public for offer in offered}) == 3
    reconcile(books(net, without=lost))


def test_too_few_owners_left_is_a_clear_end(network):
    """The coordinator names who was lost, when, and how many are needed; the others are told; nobody has a model."""
    net = network(job_of(3), cuttable=["ben"], grace=BRIEFLY).connect()
    net.run(on_progress=cutting_after(net, {"ben": 2}))
    assert net.results == {}
    error = net.errors[HUB]
    assert isinstance(error, PeerLost)
    assert str(error) == (
        "ben was lost in tree 3 and only 2 of 3 owners are left; the job asks for at least 3 (min_owners)"
    )
    assert f"ben went away and did not come back within {BRIEFLY:g} s" in str(error.__cause__)
    for name in ("anna", "carla"):
        assert isinstance(net.errors[name], PeerFailed)
        assert net.errors[name].code is Reason.PEER_LOST
    assert isinstance(net.errors["ben"], PeerLost)
    assert root_cause({name: net.errors[name] for name in net.endpoints}) == (HUB, error)
    assert max(net.seconds.values()) < 10


@pytest.mark.parametrize("kind", [MaskKey, MaskedTotals, MaskedCounts])
def test_an_owner_lost_before_training_ends_the_run(network, kind):
    """Without all owners there are no common edges and no base score, however many would be enough later."""
    net = network(job_of(4, min_owners=3), cuttable=["ben"], grace=BRIEFLY).connect()

    class GoesBefore(Recording):
        """Is cut off before a certain message leaves."""

        def send(self, to, frame):
            """Hand over the frame, too late."""
            if peek(frame)[0] == kind.NAME:
                net.wires["ben"].cut()
            super().send(to, frame)

    net.run(around={"ben": GoesBefore})
    assert net.results == {}
    assert isinstance(net.errors[HUB], PeerLost)
    assert str(net.errors[HUB]).startswith("ben was lost before training began: ben went away")
    assert {type(net.errors[name]) for name in ("anna", "carla", "dora")} == {PeerFailed}
    assert {net.errors[name].code for name in ("anna", "carla", "dora")} == {Reason.PEER_LOST}


# --- a slow peer -----------------------------------------------------------------------------------------------------


def slow(seconds, tree):
    """An endpoint whose party takes its time over the first sums of a tree."""

    class Slow(Recording):
        """Sleeps once."""

        def send(self, to, frame):
            """Hand over the frame, late."""
            asked = [plan_of(step) for step in self.messages(NextStep, "received")]
            if peek(frame)[0] == MaskedHistogram.NAME and (asked[-1].tree, asked[-1].level) == (tree, 0):
                time.sleep(seconds)
            super().send(to, frame)

    return Slow


def test_a_slow_peer_within_the_deadline_is_waited_for(network, calm):
    """Longer than the grace period for broken links, but the link is not broken: the model is the same."""
    net = network(job_of(3), grace=1.0).connect()
    net.run(around={"ben": slow(1.5, tree=2)}, deadlines={HUB: 10.0})
    assert net.model.to_dict() == calm.results[HUB].to_dict()
    assert net.seconds[HUB] > 1.5


def test_a_slow_peer_beyond_the_deadline_is_left_out(network):
    """It counts as lost; its late answer, under keys that no longer hold, is never read, and it learns of it."""
    job = job_of(4, min_owners=3)
    net = network(job).connect()
    net.run(around={"ben": slow(2.5, tree=2)}, deadlines={HUB: 1.0})
    assert net.results[HUB].meta["lost_owners"] == {"ben": 2}
    assert document(net.results[HUB]) == document(expected_after(job, {"ben": 2}))
    assert set(net.errors) == {"ben"}
    assert isinstance(net.errors["ben"], PeerLost)
    assert "coordinator has closed the channel to ben" in str(net.errors["ben"])
    assert net.seconds[HUB] < 2.5 < net.seconds["ben"]
    heard = [line.number for line in net.parties[HUB].ledger.lines("learned", "ben") if line.message in SUMS]
    told = [line.number for line in net.parties["ben"].ledger.lines("disclosed") if line.message in SUMS]
    assert told == [*heard, heard[-1] + 1]  # the late one is in the sender's book, and in nobody else's


def test_slow_peers_are_left_out_also_where_all_have_the_same_deadline(network):
    """The other owners do not give up on the coordinator while it still waits for slow ones, one after the other."""
    job = job_of(5, min_owners=3)
    net = network(job).connect()
    late = {name: slow(3.0, tree=2) for name in ("ben", "dora")}
    net.run(around=late, deadlines=dict.fromkeys(net.endpoints, 1.0))
    assert set(net.errors) == {"ben", "dora"}
    assert net.results[HUB].meta["lost_owners"] == {"ben": 2, "dora": 2}


def test_a_slow_peer_that_is_needed_ends_the_run(network):
    """The error names the slow one and how many are needed; its cause says who waited for which message."""
    net = network(job_of(3)).connect()
    net.run(around={"ben": slow(2.5, tree=2)}, deadlines={HUB: 1.0})
    error = net.errors[HUB]
    assert isinstance(error, PeerLost)
    assert str(error).startswith("ben was lost in tree 3 and only 2 of 3 owners are left")
    assert isinstance(error.__cause__, DeadlineExceeded)
    assert "coordinator timed out waiting for horizontal.masked_histogram from ben" in str(error.__cause__)
    assert {type(net.errors[name]) for name in ("anna", "carla")} == {PeerFailed}


def test_a_slow_coordinator_is_named_by_the_owners(network):
    """Owners do not wait for ever either; what they waited for stands in the error."""
    net = network(job_of(3)).connect()

    class Dawdling(Recording):
        """Sleeps before the first step of the third tree goes out."""

        def send(self, to, frame):
            """Hand over the frame, late."""
            if peek(frame)[0] == NextStep.NAME and to == "anna":
                plan = plan_of(decode(frame, NextStep))
                if (plan.tree, plan.level) == (2, 0):
                    time.sleep(2.5)
            super().send(to, frame)

    net.run(around={HUB: Dawdling}, deadlines=dict.fromkeys(NAMES[:3], 0.5))  # and owners wait a multiple of it
    assert net.results == {}
    party, error = root_cause({name: net.errors[name] for name in ("anna", "ben", "carla")})
    assert isinstance(error, DeadlineExceeded)
    assert f"{party} timed out waiting for horizontal.next_step from coordinator" in str(error)


# --- peers of another version ----------------------------------------------------------------------------------------


def speaking(version, kind):
    """An endpoint whose party sends messages of a kind under another version."""

    class Foreign(Recording):
        """Says another number."""

        def send(self, to, frame):
            """Hand over the frame with the version changed: it follows the magic and the format's version."""
            if peek(frame)[0] == kind.NAME:
                frame = frame[:6] + version.to_bytes(2, "little") + frame[8:]
            super().send(to, frame)

    return Foreign


@pytest.mark.parametrize(
    ("who", "kind", "finds_out"), [("ben", MaskedTotals, HUB), (HUB, NextStep, "anna")], ids=["owner", "coordinator"]
)
def test_another_version_of_a_message_ends_the_run(network, who, kind, finds_out):
    """Refused with both versions named, before anything of it is used; everybody else is told."""
    net = network(job_of(3)).connect()
    net.run(around={who: speaking(7, kind)})
    assert net.results == {}
    found = net.errors[finds_out]
    assert isinstance(found, VersionMismatch)
    assert str(found) == (
        f"{finds_out} cannot take what {who} sent: {kind.NAME}: the peer speaks version 7, this is version {kind.VERSION}; "
        "this side needs a newer hedgerow"
    )
    assert isinstance(root_cause(net.errors)[1], VersionMismatch)
    assert {type(error) for error in net.errors.values()} <= {VersionMismatch, PeerFailed}
    assert not any(line.message == kind.NAME for line in net.parties[finds_out].ledger.lines("learned", who))


def test_another_wire_version_ends_the_run_before_any_message(network):
    """The coordinator and the odd owner name both versions; no sum has left anybody."""
    # An owner that has not reached the coordinator before it ends goes on trying for so long.
    net = network(job_of(3), versions={"ben": 1}, connect_timeout=3.0).run()
    assert net.results == {}
    for name in (HUB, "ben"):
        assert "ben speaks version 1 of the wire format, coordinator speaks version 2" in str(net.errors[name])
    assert {type(net.errors[name]) for name in (HUB, "ben")} == {VersionMismatch}
    assert net.parties[HUB].ledger.lines("learned", "ben") == []
    for party in net.parties.values():
        assert not SUMS.intersection(line.message for line in party.ledger)


# --- what was sent before, sent again --------------------------------------------------------------------------------


def test_a_repeated_request_is_refused_by_the_owner(network):
    """The same step a second time asks for sums under masks that are used up: the owner ends the run instead."""
    net = network(job_of(3)).connect()

    class Repeating(Recording):
        """Asks ben twice for the sums of one level."""

        def send(self, to, frame):
            """Hand over the frame, and once more."""
            super().send(to, frame)
            if to == "ben" and peek(frame)[0] == NextStep.NAME:
                plan = plan_of(decode(frame, NextStep))
                if (plan.tree, plan.level) == (1, 1):
                    super().send(to, frame)

    net.run(around={HUB: Repeating})
    assert net.results == {}
    assert root_cause(net.errors) == ("ben", net.errors["ben"])
    assert isinstance(net.errors["ben"], ProtocolError)
    assert "ben was asked for the sums of Position(purpose=3, tree=1, level=1, part=0)" in str(net.errors["ben"])
    asked = [
        (plan.tree, plan.level) for plan in map(plan_of, net.parties["ben"]._endpoint.messages(NextStep, "received"))
    ]
    assert asked.count((1, 1)) == 2
    assert len(net.parties["ben"]._endpoint.messages(MaskedHistogram, "sent")) == len(asked) - 1


def replaying(frame_of_old, kind):
    """An endpoint whose party sends a message of an earlier run in place of its own."""

    class Replaying(Recording):
        """Sends the old frame."""

        def send(self, to, frame):
            """Hand over the frame, or the old one."""
            super().send(to, frame_of_old if peek(frame)[0] == kind.NAME else frame)

    return Replaying


def test_a_key_of_an_earlier_run_is_refused_by_the_others(network):
    """Signatures are for one run: an old signed key, sent again, ends the run before any sum has left anybody."""
    earlier = network(Job(NAMES[:3], "yesterday", boosting=job_of(3).boosting, max_bins=32)).connect().run()
    assert earlier.errors == {}
    old = next(p.frame for p in earlier.parties["ben"]._endpoint.passed if peek(p.frame)[0] == MaskKey.NAME)
    net = network(job_of(3)).connect().run(around={"ben": replaying(old, MaskKey)})
    assert net.results == {}
    error = root_cause(net.errors)[1]
    assert isinstance(error, PeerRefused)
    assert str(error) == "a signature that is said to be of ben is not"
    for name in ("anna", "carla"):
        assert isinstance(net.errors[name], PeerRefused)
        assert not SUMS.intersection(line.message for line in net.parties[name].ledger.lines("disclosed"))


# --- strangers -------------------------------------------------------------------------------------------------------


def test_an_unknown_certificate_ends_before_any_message(network):
    """The stranger is refused; the coordinator has learned nothing of it, and no owner's sums have left."""
    net = network(job_of(3), identities=IDENTITIES | {"ben": Identity.create("ben")}, connect_timeout=6.0).run()
    assert net.results == {}
    assert isinstance(net.errors["ben"], PeerRefused)
    assert "does not accept the certificate of ben" in str(net.errors["ben"])
    assert isinstance(net.errors[HUB], PeerLost)
    assert "ben could not be reached within 6 s" in str(net.errors[HUB])
    assert net.parties[HUB].ledger.lines("learned", "ben") == []
    for name in ("anna", "carla"):
        assert {line.message for line in net.parties[name].ledger.lines("disclosed")} == {
            "horizontal.table_description"
        }


def test_a_key_signed_with_an_unknown_certificate_is_refused(network):
    """A party that the coordinator lets in must still prove to the owners that its masking key is its own."""
    net = network(job_of(3)).connect().run(signs=IDENTITIES | {"ben": Identity.create("ben")})
    assert net.results == {}
    for name in ("anna", "carla"):
        assert isinstance(net.errors[name], PeerRefused)
        assert "ben showed the certificate" in str(net.errors[name])
        assert not SUMS.intersection(line.message for line in net.parties[name].ledger.lines("disclosed"))
