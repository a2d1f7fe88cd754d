"""vertical.secret_shared claims that no share is used again, whatever is resumed: a connection, a run, or a role.

- A connection that breaks comes back: frames that did not arrive are sent again as they are, and no others are made.
- A run that is started again, with the same job and data, begins with new seeds.
- A role that is started again, the dealer's or any other, cannot go on within a run: the others end it.
- Within a run no label is dealt twice, and no party takes what was dealt for another label.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import HedgerowError, PeerFailed, ProtocolError
from hedgerow.federation.federation import Federation
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.protocols.vertical.secret_shared import dealer as dealers
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party, root_cause
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import Vanished, Vanishing, identity_of
from hedgerow.transport import grpc_envelope
from hedgerow.transport.frames import peek
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.grpc_channel import PeerChannel
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import TrustStore
from hedgerow.transport.transcripts import Recording
from twins.cut_link import CutLink
from twins.openings import Opening, repeated_masks
from twins.parties import make_identities, trust_in
from twins.simulated_shares import Leaked, ideal, rounds_of

N_ROWS = 200
HOLDERS = ("anna", "ben", "carla")
JOB = SecretSharedJob(
    HOLDERS, "anna", "a run", boosting=BoostingParams(n_iterations=3, max_depth=3, min_child_weight=0.0), max_bins=8
)
NAMES = PROTOCOL.parties(JOB)


@cache
def make_data():
    """Columns of three parties, and labels that follow from all of them."""
    rng = np.random.default_rng(6)
    columns = rng.normal(size=(6, N_ROWS))
    data = {}
    for k, name in enumerate(HOLDERS):
        listed = tuple(Column(f"x{j}", columns[2 * k + j]) for j in range(2))
        data[name] = PartyData(Table(listed, N_ROWS, ("x0", "x1"), has_names=True))
    labels = (columns[::2].sum(axis=0) > 0).astype(np.float64)
    data["anna"] = PartyData(data["anna"].table, labels, (0, 1))
    return data


def coins(name):
    """The random bytes of a party, where they are to be the same in two runs."""
    return hashlib.sha256(name.encode()).digest()


def outcomes_in_memory(*, with_coins=False, around=None, roles=None):
    """A run in memory: outcomes and records. `around` wraps endpoints; `roles` are others than the protocol's."""
    network = MemoryNetwork(NAMES)
    records = {name: (around or {}).get(name, Recording)(network.endpoint(name)) for name in NAMES}
    parties = {name: Party(record, identity_of(name), TrustStore()) for name, record in records.items()}

    def role(name):
        party = parties[name]
        if with_coins:
            party.rng = SecureRandom.from_seed(coins(name))
        play = (roles or {}).get(name, PROTOCOL.play)
        return lambda: play(party, JOB, make_data().get(name))

    return network.run({name: role(name) for name in NAMES}), records


def play(**how):
    """The same, which must not fail: parts and records."""
    outcomes, records = outcomes_in_memory(**how)
    assert [outcome.error for outcome in outcomes.values() if outcome.error is not None] == []
    return SimpleNamespace(parts={name: each.value for name, each in outcomes.items()}, records=records)


def frames(records):
    """(sender, receiver) -> all frames that the sender handed over, in order."""
    found = {}
    for name, record in records.items():
        for passed in record.passed:
            if passed.direction == "sent":
                found.setdefault((name, passed.peer), []).append(passed.frame)
    return found


# --- a connection ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calm():
    """The run with fixed coins, in memory, where nothing breaks."""
    return play(with_coins=True)


@pytest.fixture
def written(monkeypatch):
    """(sender, receiver, number) -> all that was written to the wire under this number, from any thread."""
    seen = {}
    write = PeerChannel._write

    def watching(channel, envelope):
        kind, number, _ = grpc_envelope.unpack_numbered(envelope)
        if kind != grpc_envelope.ACK:
            frame = envelope[grpc_envelope.HEADER_BYTES :]
            seen.setdefault((channel.terms.me, channel.peer, number), []).append((kind, frame))
        write(channel, envelope)

    monkeypatch.setattr(PeerChannel, "_write", watching)
    return seen


class Connected:
    """All parties as threads of this process, joined over loopback; some links can be cut."""

    def __init__(self, cuttable):
        identities = make_identities(NAMES)
        trust = trust_in(identities.values())
        self.wires, self.endpoints = {}, {}
        for name in NAMES:
            dial = {}
            for listener, dialler in JOB.links:
                if dialler == name:
                    dial[listener] = f"127.0.0.1:{self.endpoints[listener].port}"
                    if (listener, name) in cuttable:
                        wire = self.wires[listener, name] = CutLink(dial[listener])
                        dial[listener] = wire.address
            listens = {} if name == NAMES[-1] else {"listen": "127.0.0.1:0"}
            self.endpoints[name] = GrpcEndpoint(
                name,
                identities[name],
                trust,
                peers=[other for other in NAMES if other != name],
                dial=dial,
                run_id=JOB.run_id,
                grace=5.0,
                connect_timeout=20.0,
                **listens,
            )
        for endpoint in self.endpoints.values():
            endpoint.wait_connected()

    def run(self):
        """Parts and records."""
        records = {name: Recording(endpoint) for name, endpoint in self.endpoints.items()}
        parts, errors = {}, {}

        def live(name):
            party = Party(records[name], identity_of(name), TrustStore(), deadline=20.0)
            party.rng = SecureRandom.from_seed(coins(name))
            try:
                parts[name] = PROTOCOL.play(party, JOB, make_data().get(name))
                self.endpoints[name].close()
            except Exception as error:  # noqa: BLE001 - looked at below
                errors[name] = error
                party.abort(error)

        threads = [threading.Thread(target=live, args=(name,), daemon=True) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "somebody hangs"
        assert errors == {}
        return SimpleNamespace(parts=parts, records=records)

    def close(self):
        """End what has not ended."""
        for endpoint in self.endpoints.values():
            endpoint.abort(b"")
        for wire in self.wires.values():
            wire.close()


@pytest.mark.parametrize("part", [0.3, 0.8])
def test_a_link_that_is_cut_and_resumed_carries_the_same_frames_and_no_others(calm, written, part):
    """The same trees; every frame is that of the run in which nothing broke; what is sent again is sent as it was.

    So no mask covers two values: there are no words beside those of the calm run.
    """
    cuttable = [("anna", "ben"), ("ben", "dealer")]
    sent = frames(calm.records)
    net = Connected(cuttable)
    try:
        for a, b in cuttable:
            n_bytes = sum(len(frame) for pair in ((a, b), (b, a)) for frame in sent[pair])
            net.wires[a, b].cut_after(int(part * n_bytes), for_seconds=0.1)
        resumed = net.run()
        assert all(wire.connections_made >= 2 for wire in net.wires.values())
    finally:
        net.close()
    for name in HOLDERS:
        assert resumed.parts[name].to_dict() == calm.parts[name].to_dict()
    assert frames(resumed.records) == sent
    for (sender, receiver), listed in sent.items():
        got = resumed.records[receiver].passed
        assert [each.frame for each in got if (each.direction, each.peer) == ("received", sender)] == listed
    again = [copies for copies in written.values() if len(copies) > 1]
    assert again
    assert all(copy == copies[0] for copies in again for copy in copies)


# --- a run -----------------------------------------------------------------------------------------------------------


def opened_words(played, receiver):
    """All words under additive masks that a party was sent, of each sender by itself and opened."""
    record = played.records[receiver]
    others = [name for name in HOLDERS if name != receiver]
    anna = played.records["anna"]
    shapes = {name: anna.messages(messages.ColumnShapes, "received", name)[0] for name in HOLDERS[1:]}
    shape = Leaked(played.records["ben"].messages(messages.Sizes, "received")[0], shapes).shape(JOB)
    levels = [level for tree in ideal(played.parts, JOB, make_data()) for level in range(len(tree))]
    found = []
    for sender in others:
        for kind, field in ((messages.MaskedColumns, "words"), (messages.LevelInput, "sums")):
            listed = record.messages(kind, "received", sender)
            found += [
                Opening(f"{kind.NAME} {k} of {sender}", getattr(m, field).view(np.uint32)) for k, m in enumerate(listed)
            ]
    sent = [record.messages(MaskedWords, "received", name) for name in others]
    sent.append(record.messages(MaskedWords, "sent", others[0]))
    rounds = [pieces for level in levels for pieces in list(rounds_of(shape, level))[:-1]]
    for number, (pieces, *words) in enumerate(zip(rounds, *sent, strict=True)):
        start = 0
        for piece in pieces:
            end = start + piece.n_bytes
            if not piece.kind.is_xor:
                parts = [each.words[start:end].view(piece.kind.dtype) for each in words]
                parts = [part.reshape(piece.kind.words_shape(piece.n)) for part in parts]
                how = "limbs" if piece.kind.limbs else "sum"
                found.append(Opening(f"{piece.name} {number} opened", piece.kind.total(parts), how))
                found += [Opening(f"{piece.name} {number} of {k}", part, how) for k, part in enumerate(parts[:-1])]
            start = end
    return found


def test_a_job_that_is_run_again_uses_no_mask_again():
    """Four runs of one job, with one run_id and the same data, as they are started: same trees, nothing else alike."""
    runs = [play() for _ in range(4)]
    assert all(each.parts["ben"].to_dict() == runs[0].parts["ben"].to_dict() for each in runs)
    seeds = [played.records["dealer"].messages(Seed, "received", name)[0].seed for played in runs for name in HOLDERS]
    assert len(set(seeds)) == len(seeds)
    for name in HOLDERS:
        dealt = [played.records[name].messages(Dealt, "received", "dealer") for played in runs]
        for one, other in zip(*dealt[:2], strict=True):
            if len(one.corrections) > 1000:
                assert (one.corrections == other.corrections).mean() < 0.1
    for name in HOLDERS[:2]:
        seen = [opened_words(played, name) for played in runs]
        assert sum(opening.words.size for opening in seen[0]) > 10_000
        assert repeated_masks(seen) == []


def test_a_job_that_is_run_again_with_the_same_seed_is_found():
    """Control: with the same random bytes both times no word moves, and `repeated_masks` says so."""
    seen = [opened_words(play(with_coins=True), "ben") for _ in range(3)]
    assert len(repeated_masks(seen)) > 10_000


def test_random_state_does_not_fix_what_is_dealt(monkeypatch):
    """What makes trees repeatable in `Federation.fit` must not make masks so."""
    seeds = []
    recv = Party.recv

    def watching(party, sender, kind, **how):
        message = recv(party, sender, kind, **how)
        if kind is Seed:
            seeds.append(message.seed)
        return message

    monkeypatch.setattr(Party, "recv", watching)
    X = np.random.default_rng(1).normal(size=(60, 3))
    fed = Federation.vertical({"anna": X[:, :1], "ben": X[:, 1:]}, labels=("anna", (X.sum(axis=1) > 0).astype(int)))
    for _ in range(2):
        fed.fit("vertical.secret_shared", n_estimators=1, max_depth=2, random_state=7)
    assert len(seeds) >= 4
    assert len(set(seeds)) == len(seeds)


# --- a role ----------------------------------------------------------------------------------------------------------


def begun_again(name, kind, after):
    """A role that is lost after so many messages of a kind, and then begins again; with its endpoint."""
    counts = [0]

    def when(_direction, frame):
        counts[0] += peek(frame)[0] == kind.NAME
        return counts[0] == after

    def twice(party, job, data):
        try:
            PROTOCOL.play(party, job, data)
        except Vanished:
            counts[0] = after + 1
        return PROTOCOL.play(party, job, data)

    return {"around": {name: lambda endpoint: Vanishing(endpoint, when)}, "roles": {name: twice}}


@pytest.mark.parametrize(("name", "kind"), [("dealer", Dealt), ("ben", MaskedWords), ("anna", MaskedWords)])
def test_a_role_that_begins_again_within_a_run_ends_it(name, kind):
    """It has lost its place. Nobody goes on with it, so nothing is opened under the masks of the first time."""
    outcomes, records = outcomes_in_memory(**begun_again(name, kind, 40))
    errors = {each: outcome.error for each, outcome in outcomes.items()}
    assert all(isinstance(error, HedgerowError) for error in errors.values())
    assert any(name in str(error) for each, error in errors.items() if each != name)
    sent = records[name].messages(Seed, "sent", "dealer")
    assert len({message.seed for message in sent}) == len(sent)


def test_a_dealer_that_deals_a_level_twice_fails(monkeypatch):
    """The label is spent: no second set of corrections is made for the same words."""
    deal = dealers._Dealing.deal

    def twice(dealing, tree, level):
        deal(dealing, tree, level)
        if (tree, level) == (1, 0):
            deal(dealing, tree, level)

    monkeypatch.setattr(dealers._Dealing, "deal", twice)
    outcomes, _ = outcomes_in_memory()
    assert isinstance(outcomes["dealer"].error, ProtocolError)
    assert "this seed was already used" in str(outcomes["dealer"].error)
    for name in HOLDERS:
        assert isinstance(outcomes[name].error, PeerFailed)
        assert outcomes[name].error.party in {"dealer", *HOLDERS}


@pytest.mark.parametrize("trick", ["old corrections", "old message", "every message twice"])
def test_what_was_dealt_before_is_not_taken_again(monkeypatch, trick):
    """Corrections of an earlier level under the name of this one, an earlier message, or all of them twice."""
    kept = {}
    send = Party.send

    def replaying(party, to, message, **how):
        if isinstance(message, Dealt):
            key = (to, message.lane, message.step, message.level)
            old = kept.setdefault(key, message)
            if message.tree and trick == "old corrections":
                message = Dealt(message.tree, message.level, message.lane, message.step, old.corrections)
            elif message.tree and trick == "old message":
                message = old
            elif trick == "every message twice":
                send(party, to, message, **how)
        send(party, to, message, **how)

    monkeypatch.setattr(Party, "send", replaying)
    outcomes, _ = outcomes_in_memory()
    party, error = root_cause({name: each.error for name, each in outcomes.items() if each.error is not None})
    assert party in HOLDERS
    assert isinstance(error, ProtocolError)
    assert "dealer" in str(error)


def test_lanes_of_a_run_share_no_words(monkeypatch):
    """All lanes begin at the same label with the same seed, and none reads what another one reads."""
    first = []
    step = DealingOut.step

    def watching(out, lane, label):
        if lane not in out._lanes:
            begun = step(out, lane, label)
            stream = out._lanes[lane].streams[0]
            first.append(stream)
            return begun
        return step(out, lane, label)

    monkeypatch.setattr(DealingOut, "step", watching)
    play()
    words = []
    for stream in first:
        stream.start(bytes(16))
        buffer = bytearray(64)
        stream.fill(memoryview(buffer))
        words.append(bytes(buffer))
    assert len(words) >= 4
    assert len(set(words)) == len(words)
