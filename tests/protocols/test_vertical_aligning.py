from __future__ import annotations

import collections
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.identifiers import IdRule, prepare_ids
from hedgerow.crypto.psi import BlindingKey, to_point
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType, JobDiffers, PeerFailed, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.services.align import messages, roles
from hedgerow.protocols.services.align.roles import AlignedRows, AligningJob, packed, unpacked
from hedgerow.protocols.services.align.spec import SPEC as PROTOCOL
from hedgerow.runtime import protocol as protocols
from hedgerow.runtime.party import root_cause
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.memory import MemoryNetwork
from policy.who_learns_what import way_of
from twins.parties import asked

NAMES = ("carla", "anna", "dmitri", "ben")


class Conversation:
    """An aligning in memory: all frames that were sent, and how every party ended."""

    def __init__(self, ids, job, *, jobs=None, tamper=None, seed=None):
        self.frames = []
        names = PROTOCOL.parties(job)
        network = MemoryNetwork(names)
        put = network.put

        def record(channel, frame):
            sender, receiver = channel.sender.name, channel.receiver.name
            if not callable(frame):  # a channel's end is a function that makes the error
                frame = frame if tamper is None else tamper(sender, receiver, frame)
                self.frames.append((sender, receiver, frame))
            put(channel, frame)

        network.put = record
        self.parties = in_memory(network, names)
        for number, party in enumerate(self.parties.values()):
            if seed is not None:
                party.rng = SecureRandom.from_seed(bytes([seed + number]) * 32)
        data = {name: brought(column) for name, column in ids.items()}
        jobs = jobs or {}
        outcomes = network.run(
            {name: role(PROTOCOL, self.parties[name], jobs.get(name, job), data.get(name)) for name in names}
        )
        self.results = {name: outcome.value for name, outcome in outcomes.items()}
        self.errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}

    def sent(self, kind):
        """(sender, receiver, message) of all messages of a kind."""
        return [
            (sender, receiver, decode(frame, kind))
            for sender, receiver, frame in self.frames
            if peek(frame)[0] == kind.NAME
        ]

    @property
    def cause(self):
        """The error that all others follow from."""
        return root_cause({name: self.errors[name] for name in self.parties if name in self.errors})[1]


def brought(column):
    """A party that has nothing but ids."""
    ids = column if isinstance(column, np.ndarray) else packed([column])
    return PartyData(Table((), len(column), (), has_names=False), ids=ids)


def job_for(names, **options):
    """A small job."""
    return AligningJob(tuple(names), options.pop("run_id", "run"), **{"block": 256, **options})


def talk(ids, **options):
    """A whole conversation that must not fail."""
    done = Conversation(ids, job_for(ids, **options))
    assert not done.errors
    return done


def column(rng, n_ids, pool):
    """So many different ids of a pool, in random order."""
    return [f"id-{number}" for number in rng.permutation(pool)[:n_ids].tolist()]


def assert_joined(ids, results):
    """Everybody's rows are those of the common ids, in one order, each once."""
    common = set.intersection(*map(set, ids.values()))
    lists = [[ids[name][row] for row in results[name].rows.tolist()] for name in ids]
    assert all(one == lists[0] for one in lists)
    assert len(lists[0]) == len(common)
    assert set(lists[0]) == common
    for name, result in results.items():
        assert result.party == name
        assert result.n_common == len(common)
        assert result.n_ids == {party: len(values) for party, values in ids.items()}
        assert result.rows.dtype == np.int64


# The law


@pytest.mark.parametrize("n_parties", [2, 3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_result_is_the_join(n_parties, seed):
    """On random columns the result is the plain join, whoever compares, and all books agree."""
    rng = np.random.default_rng([n_parties, seed])
    names = rng.permutation(NAMES)[:n_parties].tolist()
    ids = {name: column(rng, int(rng.integers(20, 40)), 41) for name in names}
    done = talk(ids, comparer=str(rng.choice(names)), minimum=1)
    assert_joined(ids, done.results)
    reconcile({name: party.ledger for name, party in done.parties.items()})


@pytest.mark.parametrize("sizes", [(700, 1, 300), (256, 512), (257, 3, 255, 40), (1, 1)])
def test_sets_of_very_different_sizes(sizes):
    """Sets of one or several blocks go round together, and blocks are full but for the last of a set."""
    rng = np.random.default_rng(len(sizes))
    ids = {name: ["id-0", *column(rng, n, 900)][:n] for name, n in zip(NAMES, sizes, strict=False)}
    ids = {name: list(dict.fromkeys(values)) for name, values in ids.items()}
    done = talk(ids, minimum=1)
    assert_joined(ids, done.results)
    for owner, values in ids.items():
        sent = [len(m.points) for _, _, m in done.sent(messages.BlindedIds) if m.owner == owner]
        once = [256] * (len(values) // 256) + [len(values) % 256] * (len(values) % 256 > 0)
        assert sorted(sent) == sorted(once * (len(ids) - 1))


def test_places_go_back_in_parts(monkeypatch):
    """A result that does not fit into one message goes back in several, and is the same join."""
    monkeypatch.setattr(roles, "PLACES", 7)
    rng = np.random.default_rng(5)
    ids = {name: column(rng, 40, 45) for name in NAMES[:3]}
    done = talk(ids, comparer="anna")
    assert_joined(ids, done.results)
    assert max(len(m.places) for _, _, m in done.sent(messages.CommonPlaces)) == 7


def test_a_narrow_window_changes_nothing(monkeypatch):
    """However few blocks are sent ahead, nobody waits for ever."""
    monkeypatch.setattr(roles, "WINDOW_BYTES", 0)
    rng = np.random.default_rng(6)
    ids = {name: column(rng, n, 800) for name, n in zip(NAMES, (700, 30, 520), strict=False)}
    assert_joined(ids, talk(ids).results)


def test_threads_change_nothing():
    """Blocks that are dealt out to threads give the same rows."""
    ids = {"anna": column(np.random.default_rng(1), 60, 70), "ben": column(np.random.default_rng(2), 60, 70)}
    job = job_for(ids)
    runs = []
    for n_threads in (1, 3):
        network = MemoryNetwork(PROTOCOL.parties(job))
        parties = in_memory(network, PROTOCOL.parties(job))
        for number, party in enumerate(parties.values()):
            party.rng = SecureRandom.from_seed(bytes([number]) * 32)
        data = {name: replace(brought(values), n_threads=n_threads) for name, values in ids.items()}
        outcomes = network.run({name: role(PROTOCOL, parties[name], job, data[name]) for name in parties})
        runs.append({name: outcome.value.rows.tolist() for name, outcome in outcomes.items()})
    assert runs[0] == runs[1]


def test_common_order_does_not_depend_on_rows():
    """With the same keys the common order is the same, however the parties' rows are ordered."""
    rng = np.random.default_rng(3)
    ids = {name: column(rng, 30, 35) for name in NAMES[:3]}
    orders = []
    for _ in range(3):
        done = Conversation(ids, job_for(ids), seed=9)
        orders.append([ids["anna"][row] for row in done.results["anna"].rows.tolist()])
        ids = {name: rng.permutation(values).tolist() for name, values in ids.items()}
    assert orders[0] == orders[1] == orders[2]
    assert orders[0] not in (sorted(orders[0]), [value for value in ids["anna"] if value in orders[0]])


def test_common_order_is_new_in_every_run():
    """Two runs with keys of their own order the common ids differently."""
    ids = {name: [f"id-{i}" for i in range(25)] for name in NAMES[:2]}
    one, other = (talk(ids).results["anna"].rows.tolist() for _ in range(2))
    assert sorted(one) == sorted(other) == list(range(25))
    assert one != other


def test_ids_of_whole_numbers():
    """Arrays of numbers are aligned by the rule for whole numbers, also with text of digits elsewhere."""
    ids = {"anna": np.array([7, 5, 300], np.uint16), "ben": ["0300", " 7"], "carla": np.array([91, 7, 300])}
    done = talk(ids, rule=IdRule("integer").to_dict())
    found = {name: {int(ids[name][row]) for row in result.rows} for name, result in done.results.items()}
    assert all(values == {7, 300} for values in found.values())


# What is sent


def test_no_id_digest_or_bare_point_is_sent():
    """No frame holds an id, its digest or its point H(x), of anybody, nor any half of them."""
    rng = np.random.default_rng(0)
    ids = {name: [f"customer-{number:06}" for number in rng.permutation(60)[:40].tolist()] for name in NAMES[:3]}
    done = talk(ids, run_id="the run")
    wire = b"".join(frame for _, _, frame in done.frames)
    for name, values in ids.items():
        digests = prepare_ids(values, IdRule(), context="the run", party=name).digests
        for value, digest in zip(values, digests, strict=True):
            bare = to_point(digest.tobytes()).public_numbers().x.to_bytes(32, "big")
            for secret in (value.encode(), digest.tobytes(), bare):
                assert secret not in wire
                assert secret[:16] not in wire
                assert secret[-16:] not in wire


def test_every_digest_is_bound_to_the_run():
    """The run's id is part of every digest: with the same keys, two runs share no point."""
    ids = {name: [f"id-{i}" for i in range(20)] for name in NAMES[:2]}
    points = []
    for run_id in ("one", "other", "one"):
        done = Conversation(ids, job_for(ids, run_id=run_id), seed=4)
        kinds = (messages.BlindedIds, messages.FullyBlinded)
        points.append({bytes(row) for kind in kinds for _, _, m in done.sent(kind) for row in m.points})
    assert points[0] == points[2]
    assert not points[0] & points[1]


def test_points_of_two_runs_differ():
    """Keys are new in every run: the same job, run twice over the same ids, shares no point."""
    ids = {name: [f"id-{i}" for i in range(20)] for name in NAMES[:3]}
    kinds = (messages.BlindedIds, messages.FullyBlinded)
    runs = [talk(ids) for _ in range(2)]
    one, other = ({bytes(row) for kind in kinds for _, _, m in run.sent(kind) for row in m.points} for run in runs)
    assert len(one) == len(other) == 20 * (3 + 3 + 1)  # 3 sets under one key, 3 under two, and under all they are equal
    assert not one & other


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_only_the_comparer_sees_comparable_points(n_parties):
    """With equal ids everywhere, no point comes to a party twice, but to the comparer those under all keys."""
    names = NAMES[:n_parties]
    ids = {name: [f"id-{i}" for i in range(9)] for name in names}
    done = talk(ids, comparer=names[-1])
    for me in names:
        seen = collections.Counter(
            bytes(row)
            for kind in (messages.BlindedIds, messages.FullyBlinded)
            for _, to, message in done.sent(kind)
            for row in message.points
            if to == me
        )
        in_full = {bytes(row) for _, to, m in done.sent(messages.FullyBlinded) if to == me for row in m.points}
        assert len(in_full) == (9 if me == names[-1] else 0)
        assert all(times == (n_parties - 1 if point in in_full else 1) for point, times in seen.items())


def test_a_set_is_shuffled_at_every_stop():
    """Neither the rows of its owner nor the order of its arrival explain in which order a set is passed on."""
    ids = {name: [f"id-{i:03}" for i in range(200)] for name in NAMES[:3]}
    job, done = job_for(ids), talk(ids)
    for owner in ids:
        # The comparer keeps the places of the set that ended with it.
        back = [m.places for _, _, m in done.sent(messages.CommonPlaces) if m.owner == owner]
        assert len(back) == 2 + (job.way(owner)[-1] != job.comparer)
        # All ids are common, so places are whole permutations; none is another one's, and none is the rows.
        assert all(sorted(places.tolist()) == list(range(200)) for places in back)
        moved = [np.mean(one == other) for one, other in itertools.combinations([*back, done.results[owner].rows], 2)]
        assert max(moved) < 0.1


def test_the_next_party_is_not_told_rows():
    """The places that the first party on a way sends back to the owner are in the owner's random order, not rows."""
    ids = {"anna": [f"id-{i:03}" for i in range(100)], "ben": [f"id-{i:03}" for i in range(50)]}
    done = talk(ids)
    (places,) = [m.places for sender, to, m in done.sent(messages.CommonPlaces) if (sender, to) == ("ben", "anna")]
    assert set(done.results["anna"].rows.tolist()) == set(range(50))
    assert len(set(places.tolist()) & set(range(50))) < 45


def test_sizes_of_messages_tell_numbers_only():
    """Ids of any length and spelling give frames of the same kinds and sizes, if numbers are the same."""
    short = {"anna": ["a", "b", "c"], "ben": ["a", "b", "x", "y"], "carla": ["b", "a"]}
    long = {name: [value * 700 for value in reversed(values)] for name, values in short.items()}
    sizes = [[(a, b, peek(frame), len(frame)) for a, b, frame in talk(ids).frames] for ids in (short, long)]
    assert sizes[0] == sizes[1]


# Who learns what


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_ledgers_show_what_each_learned(n_parties):
    """Comparer and others learn exactly the kinds of messages that are claimed, from their neighbours only."""
    names = NAMES[:n_parties]
    ids = {name: [f"id-{i}" for i in range(10)] for name in names}
    comparer = names[0]
    done = talk(ids)
    for name, party in done.parties.items():
        learned = {line.message for line in party.ledger.lines("learned")}
        common = {"vertical.blinded_ids", "vertical.common_places"}
        of_comparer = {"vertical.ids_description", "vertical.fully_blinded"}
        of_others = {"vertical.ids_agreed", "vertical.aligning_blocks_read", "vertical.verdict"}
        assert learned == common | (of_comparer if name == comparer else of_others)
        ring = sorted(names)
        place = ring.index(name)
        before, after = ring[place - 1], ring[(place + 1) % n_parties]
        assert {line.peer for line in party.ledger.lines("learned") if line.message == "vertical.blinded_ids"} == {
            before
        }
        peers = {line.peer for line in party.ledger.lines("learned") if line.message == "vertical.common_places"}
        assert peers <= {after, comparer}
        assert all(line.protection != "in the clear" or "number" in line.what for line in party.ledger)


def test_sizes_are_in_the_ledger():
    """What discloses everybody's number of ids says so, and holds the numbers."""
    ids = {"anna": ["a", "b", "c"], "ben": ["a", "b", "x", "y"]}
    done = talk(ids)
    (told,) = done.sent(messages.IdsAgreed)
    assert dict(zip(told[2].parties, told[2].n_ids.tolist(), strict=True)) == {"anna": 3, "ben": 4}
    assert any("number of different ids" in line.what for line in done.parties["ben"].ledger.lines("learned"))


@pytest.mark.parametrize("n_parties", [2, 3, 4, 5, 6])
def test_links_are_those_that_are_used(n_parties):
    """The pairs that talk are exactly the links of the job, each pair once."""
    names = [f"p{i}" for i in range(n_parties)]
    ids = {name: ["a", "b", "c"] for name in names}
    job = job_for(names, comparer=names[n_parties // 2])
    done = Conversation(ids, job)
    links = job.links
    assert len({frozenset(link) for link in links}) == len(links)
    assert {frozenset(pair) for *pair, _ in done.frames} == {frozenset(link) for link in links}


def test_messages_state_their_way():
    """Every message says who sends it to whom, and what it discloses."""
    kinds = protocols.find("vertical.aligning").messages
    assert {kind.__name__ for kind in kinds} == {
        "IdsDescription", "IdsAgreed", "BlindedIds", "AtWork", "FullyBlinded", "BlocksRead", "Verdict", "CommonPlaces",
    }  # fmt: skip
    assert {way_of(kind)[:2] for kind in kinds} == {
        ("party", "comparer"), ("comparer", "party"), ("party", "next party"), ("party", "party before"),
    }  # fmt: skip
    assert all(kind.discloses.words for kind in kinds)


def test_statement_says_who_learned_what():
    """In words and facts; with two parties the comparer learned nothing beside."""
    two = PROTOCOL.statement(job_for(["anna", "ben"]), {"n_ids": {"anna": 5, "ben": 7}, "n_common": 3})
    assert "anna, which compared blinded ids, learned nothing beside" in str(two)
    assert "3 ids are common to all (anna 5, ben 7)" in str(two)
    three = PROTOCOL.statement(job_for(NAMES[:3], duplicates="first", rule=IdRule("integer").to_dict()), {})
    assert "carla, which compared blinded ids, also learned how many ids each group" in str(three)
    assert "as whole numbers; of several rows with one id the first was taken" in str(three)
    assert json.loads(json.dumps(three.to_dict()))["comparer_learned_numbers_for_groups"] is True


# Too few, and other errors


@pytest.mark.parametrize("n_common", [0, 1, 4])
def test_too_few_common_ids_are_not_told(n_common):
    """Below the minimum all parties end with the same error, no place is sent, and no message holds the number."""
    common = [f"id-{i}" for i in range(n_common)]
    ids = {name: [*common, *(f"{name}-{i}" for i in range(6))] for name in NAMES[:3]}
    done = Conversation(ids, job_for(ids, minimum=5))
    assert set(done.errors) == set(ids)
    for name, error in done.errors.items():
        assert isinstance(error, InvalidInput)
        assert str(error).startswith(f"{name}: fewer than 5 ids are common to all parties")
    assert done.sent(messages.CommonPlaces) == []
    assert [(m.enough, m.n_common) for _, _, m in done.sent(messages.Verdict)] == [(False, -1)] * 2


def test_the_minimum_itself_is_enough():
    """A result of exactly the smallest allowed number is shown."""
    ids = {name: ["a", "b", f"own of {name}"] for name in NAMES[:3]}
    assert talk(ids, minimum=2).results["anna"].n_common == 2
    assert Conversation(ids, job_for(ids, minimum=3)).errors


def test_another_rule_is_refused_before_any_point_moves():
    """A party that writes ids by another rule is named, before anything is sent."""
    ids = {name: ["a", "b"] for name in NAMES[:3]}
    job = job_for(ids)
    other = replace(job, rule=IdRule(case="fold").to_dict())
    done = Conversation(ids, job, jobs={"anna": other})
    assert isinstance(done.cause, JobDiffers)
    assert "anna has another job than carla: they differ in rule.case" in str(done.cause)
    assert {peek(frame)[0] for _, _, frame in done.frames} <= {"vertical.ids_description"}


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ([], InvalidInput, "ben: column 'customer' holds no ids"),
        (["secret", None], InvalidInput, "ben: column 'customer' holds 1 missing ids of 2"),
        (["secret", ""], InvalidInput, "ben: column 'customer' holds 1 missing ids of 2"),
        (
            ["secret", "b", "secret "],
            InvalidInput,
            "ben: column 'customer' holds 1 rows of 3 whose id stands in an ear",
        ),
        (["secret", 7], InvalidType, "ben: column 'customer' holds 1 ids of 2 that are not text"),
        (["secret", False], InvalidType, "ben: column 'customer' holds 1 ids of 2 that are not text"),
    ],
)
def test_bad_ids_are_told_by_party_column_and_count(values, kind, words):
    """The error names party, column and counts and never an id; no point was sent."""
    done = Conversation({"anna": ["a", "secret"], "ben": values}, job_for(["anna", "ben"], column="customer"))
    assert isinstance(done.cause, kind)
    assert str(done.cause).startswith(words)
    assert all("secret" not in str(error) for error in done.errors.values())
    assert isinstance(done.errors["anna"], PeerFailed)
    assert done.sent(messages.BlindedIds) == []


def test_the_first_of_several_rows_is_taken_if_wanted():
    """duplicates="first" links the earliest row of an id, and counts different ids."""
    ids = {"anna": ["y", "x", "x", "z", "y"], "ben": ["x", "y", "q"]}
    done = talk(ids, duplicates="first")
    pairs = dict(zip(done.results["anna"].rows.tolist(), done.results["ben"].rows.tolist(), strict=True))
    assert pairs == {0: 1, 1: 0}
    assert done.results["ben"].n_ids == {"anna": 3, "ben": 3}


def test_nobody_brings_more_ids_than_agreed():
    """Who has more than most_ids is told so by itself, before anybody else hears how many."""
    done = Conversation({"anna": ["a", "b"], "ben": ["a", "b", "c"]}, job_for(["anna", "ben"], most_ids=2))
    assert str(done.cause).startswith("ben: column 'id' holds 3 ids, more than most_ids=2")
    assert done.sent(messages.IdsDescription) == []


def test_a_party_without_ids_is_named():
    """Whoever brings none at all is told so."""
    job = job_for(["anna", "ben"])
    done = Conversation({"anna": ["a"]}, job)
    assert str(done.cause) == "ben: brings no ids to align by"


def tampering(kind, change, sender=None):
    """Replaces the first message of a kind."""
    left = [True]

    def tamper(a, _b, frame):
        if peek(frame)[0] == kind.NAME and left[0] and sender in (None, a):
            left[0] = False
            return encode(change(decode(frame, kind)))
        return frame

    return tamper


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (messages.BlindedIds, lambda m: replace(m, owner="ben"), "with owner of shape"),
        (messages.BlindedIds, lambda m: replace(m, points=m.points[:-1]), "with points of shape"),
        (messages.BlindedIds, lambda m: replace(m, points=np.full_like(m.points, 255)), "not in the group"),
        (messages.FullyBlinded, lambda m: replace(m, points=m.points[[0, *range(len(m.points) - 1)]]), "twice"),
        (messages.FullyBlinded, lambda m: replace(m, points=m.points[:, :31].copy()), "with points of shape"),
        (messages.CommonPlaces, lambda m: replace(m, places=m.places + 1000), "which is not an index"),
        (messages.CommonPlaces, lambda m: replace(m, places=m.places * 0), "twice"),
        (messages.CommonPlaces, lambda m: replace(m, places=m.places[:-1]), "with places of shape"),
        (messages.CommonPlaces, lambda m: replace(m, owner="x" * len(m.owner)), "where the set of"),
        (messages.IdsAgreed, lambda m: replace(m, n_ids=m.n_ids * 2), "numbers of ids"),
        (messages.IdsAgreed, lambda m: replace(m, parties=m.parties[:-1]), "with parties of shape"),
        (messages.IdsAgreed, lambda m: replace(m, n_ids=m.n_ids + 10**8), "which is not between 1 and most_ids"),
        (messages.IdsDescription, lambda m: replace(m, n_ids=0), "which is not between 1 and most_ids"),
        (messages.IdsDescription, lambda m: replace(m, n_ids=10**9), "which is not between 1 and most_ids"),
        (messages.Verdict, lambda m: replace(m, n_common=1), "fewer common ids"),
    ],
)
def test_what_does_not_fit_is_refused(kind, change, words):
    """Blocks, places and numbers other than those that are due end the run with an error that says so."""
    ids = {name: [f"id-{i}" for i in range(12)] for name in NAMES[:3]}
    done = Conversation(ids, job_for(ids), tamper=tampering(kind, change))
    own = [error for error in done.errors.values() if not isinstance(error, PeerFailed)]
    assert any(isinstance(error, ProtocolError | InvalidInput) and words in str(error) for error in own)


def waits_of(monkeypatch, ids, **options):
    """For each kind of message, how long parties were ready to wait for it."""
    waits = collections.defaultdict(set)
    from hedgerow.runtime.party import Party  # the class whose door is watched

    recv = Party.recv

    def watched(self, sender, kind, *, timeout=None, **symbols):
        waits[kind.__name__].add(round(timeout))
        return recv(self, sender, kind, timeout=timeout, **symbols)

    monkeypatch.setattr(Party, "recv", watched)
    talk(ids, **options)
    return waits


def test_waiting_time_grows_with_the_work_before_a_message(monkeypatch):
    """Beside its deadline, a party waits as long as a slow machine needs for two blocks of each party, and so on."""
    monkeypatch.setattr(roles, "POINTS_PER_SECOND", 2)
    monkeypatch.setattr(roles, "MOVED_PER_SECOND", 1)
    monkeypatch.setattr(roles, "SORTED_PER_SECOND", 0.1)
    monkeypatch.setattr(roles, "PLACES", 2)
    ids = {name: [f"id-{i}" for i in range(n)] for name, n in zip(NAMES, (10, 600, 10), strict=False)}
    turn = 300 + 2 * 3 * 256 / 2
    assert waits_of(monkeypatch, ids) == {
        "IdsDescription": {300},
        "IdsAgreed": {750},
        "BlindedIds": {turn, turn + 600},
        "AtWork": {turn},
        "FullyBlinded": {turn, turn + 600},
        "BlocksRead": {2 * (turn + 600)},
        "Verdict": {300 + 620 / 0.1},
        "CommonPlaces": {300 + 3 * 2 / 0.1},
    }


def test_in_every_turn_everybody_sends_something():
    """A party whose set has ended says that it is at work for as long as a larger one travels; so does the comparer."""
    ids = {name: [f"id-{i}" for i in range(n)] for name, n in zip(NAMES, (10, 700, 300), strict=False)}
    done = talk(ids)
    turns = [*done.sent(messages.BlindedIds), *done.sent(messages.AtWork)]
    assert collections.Counter(sender for sender, _, _ in turns) == dict.fromkeys(ids, 2 * 3)
    assert len(done.sent(messages.BlindedIds)) == 2 * (1 + 3 + 2)
    assert len(done.sent(messages.BlocksRead)) == 2 * 3


# The job and the protocol


def test_job_goes_through_json():
    """A job and a result that were written down come back as they were."""
    job = job_for(NAMES, comparer="ben", minimum=7, duplicates="first", rule=IdRule(case="fold").to_dict())
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(job.to_dict()))) == job
    rows = AlignedRows("anna", np.array([4, 2]), {"anna": 5, "ben": 2}, 2)
    back = PROTOCOL.result(json.loads(json.dumps(rows.to_dict())))
    assert (back.party, back.rows.tolist(), back.n_ids, back.n_common) == ("anna", [4, 2], {"anna": 5, "ben": 2}, 2)


@pytest.mark.parametrize(
    "bad",
    [
        {"parties": ("anna",)},
        {"parties": ("anna", "anna")},
        {"parties": ("anna", "")},
        {"comparer": "eve"},
        {"rule": {"kind": "text"}},
        {"rule": "text"},
        {"duplicates": "last"},
        {"minimum": 0},
        {"minimum": True},
        {"minimum": 2.5},
        {"block": 255},
        {"block": 1 << 21},
    ],
)
def test_bad_jobs_are_refused(bad):
    """Every parameter is checked before anybody is asked for anything, and the error shows it."""
    with pytest.raises(InvalidParameter):
        AligningJob(**{"parties": ("anna", "ben"), "run_id": "run", **bad})


def test_protocol_is_a_service():
    """It is found by its name, makes a job of a request, and has the comparer first."""
    found = protocols.find("vertical.aligning")
    assert found is PROTOCOL
    assert "vertical.aligning" in protocols.services()
    options = {"comparer": "ben", "rule": IdRule("integer"), "minimum": np.int64(4)}
    job = asked(found, ("anna", "ben"), "run", "classification", None, 256, options)
    assert (job.minimum, job.rule["kind"], found.parties(job)) == (4, "integer", ("ben", "anna"))
    assert json.loads(json.dumps(job.to_dict()))["minimum"] == 4
    assert asked(found, ("anna", "ben"), "run", "classification", None, 256).comparer == "anna"


def test_packed_ids_come_back():
    """Text of all kinds, numbers and gaps are the same after packing; other arrays are left alone."""
    values = ["a", "", "\x00", "水\ud800", "x" * 5000, 12, 2**80, None, False]
    assert list(unpacked(packed([values[:1], values[1:]]))) == values
    small = np.frombuffer(b"[1]", np.uint8)
    assert unpacked(small) is small


def test_keys_come_from_the_partys_generator():
    """A key is drawn from the generator that it is given."""
    one, other = (BlindingKey.generate(SecureRandom.from_seed(bytes(32))) for _ in range(2))
    digests = prepare_ids(["a"], IdRule(), context="run", party="anna").digests
    assert np.array_equal(one.blind(digests), other.blind(digests))
