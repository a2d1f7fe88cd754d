"""Matching ids with actors: the same rows as on one machine, and nothing else for anybody to see."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.identifiers import IdRule, prepare_ids
from hedgerow.crypto.psi import BlinderHere, BlindingKey, one_ahead
from hedgerow.engine.rows_ray.actors import Crew
from hedgerow.engine.rows_ray.cluster import RayBackend, n_actors_of
from hedgerow.engine.table import Table
from hedgerow.errors import ClusterError, InvalidParameter, ProtocolError
from hedgerow.federation.alignment import align
from hedgerow.federation.federation import Federation
from hedgerow.protocols.services.align import on_ray
from hedgerow.protocols.services.align.on_ray import KeyOfParty, RayBlinder
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.protocols.services.align.spec import SPEC as PROTOCOL
from hedgerow.runtime.backends import backends_of, with_backends
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.memory import MemoryNetwork

NUMBER = 0x1234567890ABCDEF1234567890
NAMES = ("anna", "ben", "carla")


@pytest.fixture(scope="module")
def ray():
    """A small cluster of its own for all tests here."""
    from twins.ray_cluster import small_cluster  # actors import this file, but know nothing of twins

    with small_cluster(5) as ray:
        yield ray


@pytest.fixture(scope="module")
def crew(ray):
    """Two actors that tests share: starting them takes longer than all else."""
    crew = Crew(ray, RayBackend(patience=60.0, rebuilds=100), 2)
    yield crew
    crew.close()


@pytest.fixture
def shared_crew(crew, monkeypatch):
    """The party that asks for actors gets those two, and does not end them."""
    monkeypatch.setattr(on_ray, "FEWEST_POINTS", 1)
    monkeypatch.setattr(on_ray, "Crew", lambda *_given: crew)
    monkeypatch.setattr(crew, "close", lambda: None)


@pytest.fixture
def blinder(crew, monkeypatch):
    """Anna's; every block is divided among both actors."""
    monkeypatch.setattr(on_ray, "FEWEST_POINTS", 1)
    crew.assign([KeyOfParty("anna", NUMBER)] * 2)
    return RayBlinder(crew, 1)


def digests(n):
    """Of some ids."""
    return prepare_ids(map(str, range(n)), IdRule(), context="run", party="anna").digests


def in_blocks(table, size):
    """Cut."""
    return (table[start : start + size] for start in range(0, len(table), size))


@pytest.mark.parametrize("most_points", [7, 2048])
def test_actors_multiply_as_one_process_does(blinder, most_points, monkeypatch):
    """Own digests and points of others, whatever the pieces; the answers of several blocks are in order."""
    monkeypatch.setattr(on_ray, "MOST_POINTS", most_points)
    here = BlinderHere(BlindingKey.from_number(NUMBER))
    own = digests(70)
    there = np.concatenate(list(one_ahead(blinder.blind(block) for block in in_blocks(own, 33))))
    np.testing.assert_array_equal(there, here.blind(own)())
    again = np.concatenate(list(one_ahead(blinder.reblind(block, "ben") for block in in_blocks(there, 33))))
    np.testing.assert_array_equal(again, here.reblind(there, "ben")())


def test_a_point_that_is_none_is_named_with_its_sender(blinder):
    """What an actor finds is raised as if it had been found here."""
    points = np.concatenate([blinder.blind(digests(9))(), np.full((1, 32), 255, np.uint8)])
    with pytest.raises(ProtocolError, match="ben sent 1 points of 5 that are not in the group"):
        blinder.reblind(points, "ben")()


def test_a_lost_actor_is_replaced_and_its_blocks_are_done_again(ray, crew, blinder):
    """Blocks that were on their way to it as well as later ones; the key is told to the new one."""
    before = crew.rebuilt
    own = digests(60)
    blocks = list(in_blocks(own, 20))
    started = [blinder.blind(block) for block in blocks[:2]]
    ray.kill(crew.actors[1])
    started.append(blinder.blind(blocks[2]))
    made = np.concatenate([later() for later in started])
    assert crew.rebuilt == before + 1
    np.testing.assert_array_equal(made, BlindingKey.from_number(NUMBER).blind(own))


def test_too_many_lost_actors_end_the_run_with_the_partys_name(ray, crew, blinder, monkeypatch):
    """The error says what the actors were for, and how many were replaced."""
    monkeypatch.setattr(crew, "_backend", RayBackend(rebuilds=crew.rebuilt))
    ray.kill(crew.actors[0])  # first: an actor that was quick would have answered before it was lost
    with pytest.raises(ClusterError, match=r"the actor of anna's multiplications was lost, and rebuilds="):
        blinder.blind(digests(20))()
    monkeypatch.undo()
    crew.assign([KeyOfParty("anna", NUMBER)] * 2)  # replaces it, for the next test
    crew.rebuilt = 0


def test_nothing_of_a_run_enters_the_object_store(ray, blinder):
    """Full pieces travel within calls: other jobs cannot fetch them, and Ray cannot write them to disks."""
    from ray._private.internal_api import memory_summary

    blinder.blind(np.zeros((3 * on_ray.MOST_POINTS, 32), np.uint8))()
    assert "Plasma memory usage 0 MiB, 0 objects" in memory_summary(
        ray.get_runtime_context().gcs_address, stats_only=True
    )


def test_a_key_does_not_show_itself():
    """Not where an error or a log shows an argument."""
    assert repr(KeyOfParty("anna", NUMBER)) == "KeyOfParty('anna', hidden)"


def frames_and_rows(ids, backends):
    """All that is sent in a run with given randomness, and what everybody has in the end."""
    job = AligningJob(tuple(ids), "run", rule=IdRule("integer"), block=256)
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names)
    put, frames = network.put, []

    def record(channel, frame):
        if not callable(frame):
            frames.append((channel.sender.name, channel.receiver.name, bytes(frame)))
        put(channel, frame)

    network.put = record
    parties = in_memory(network, names)
    for number, party in enumerate(parties.values()):
        party.rng = SecureRandom.from_seed(bytes([number]) * 32)
    data = {
        name: PartyData(Table((), len(own), (), has_names=False), ids=own, backend=backends.get(name))
        for name, own in ids.items()
    }
    outcomes = network.run({name: role(PROTOCOL, parties[name], job, data[name]) for name in names})
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    by_channel = {}
    for sender, receiver, frame in frames:
        by_channel.setdefault((sender, receiver), []).append(frame)
    return by_channel, {name: outcome.value.rows.tolist() for name, outcome in outcomes.items()}


@pytest.mark.usefixtures("shared_crew")
@pytest.mark.parametrize("n_parties", [2, 3])
def test_peers_see_the_same_frames_and_rows_are_the_same(n_parties):
    """With the same randomness, every byte that any party sends, in order; also if only one of them has actors."""
    rng = np.random.default_rng(n_parties)
    ids = {name: rng.permutation(900)[: 600 + 50 * k].astype(np.int64) for k, name in enumerate(NAMES[:n_parties])}
    ids = {name: own[own % 7 > 0] for name, own in ids.items()}
    here = frames_and_rows(ids, {})
    there = frames_and_rows(ids, {"ben": RayBackend(actors=2)})
    assert there == here
    assert len(here[1]["ben"]) > 100


@pytest.mark.long
def test_a_matching_leaves_no_actor_behind(ray):
    """Every party has actors of its own, and gives their processors back."""
    rng = np.random.default_rng(0)
    ids = {name: rng.permutation(400)[:300] for name in NAMES[:2]}
    found = align(ids, backend=RayBackend(actors=1), block=256)
    lists = [ids[name][found.rows[name]].tolist() for name in ids]
    assert lists[0] == lists[1]
    assert sorted(lists[0]) == sorted(set(ids["anna"].tolist()) & set(ids["ben"].tolist()))
    crew = Crew(ray, RayBackend(), 3)  # room for three beside those that tests share
    crew.close()


def test_parties_that_share_a_cluster_share_its_processors():
    """`backend="ray"` for all is enough: nobody takes what another one needs."""
    pytest.importorskip("ray")

    class Cluster:
        def cluster_resources(self):
            return {"CPU": 9.0}

    job = AligningJob(NAMES, "run")
    data = {name: PartyData(Table((), 0, (), has_names=False), ids=np.zeros(0, np.int64)) for name in NAMES}
    for given, expected in (("ray", [3, 3, 3]), ({"ben": "ray"}, [None, 9, None]), (RayBackend(actors=5), [5, 5, 5])):
        brought = with_backends(PROTOCOL, job, data, backends_of(given, NAMES, None))
        backends = [brought[name].backend for name in NAMES]
        assert [each and n_actors_of(Cluster(), each) for each in backends] == expected


@pytest.mark.long
def test_a_federation_matches_ids_with_actors_over_grpc(ray):
    """Processes connect to the cluster by its address; one of three parties stays on its machine."""
    rng = np.random.default_rng(0)
    ids = {name: rng.permutation(400)[:300] for name in NAMES}
    address = ray.get_runtime_context().gcs_address
    backend = RayBackend(address, actors=1)
    found = align(ids, backend={"anna": backend, "carla": backend}, transport="grpc", block=256)
    lists = [ids[name][found.rows[name]].tolist() for name in ids]
    assert lists[0] == lists[1] == lists[2]
    assert sorted(lists[0]) == sorted(set.intersection(*(set(own.tolist()) for own in ids.values())))


def test_a_wrong_address_is_said_before_anything_is_sent(monkeypatch):
    """No party starts; the error has the name of the one whose address it is."""
    pytest.importorskip("ray")
    monkeypatch.setattr("hedgerow.federation.alignment.run_together", lambda *_given, **_how: pytest.fail("it ran"))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"ben: backend: nobody answers at 127\.0\.0\.1:{port}"):
            align({"anna": [1, 2], "ben": [2, 3]}, backend={"ben": f"127.0.0.1:{port}"})
        monkeypatch.setattr("hedgerow.federation.federation.align", align)
        table = np.arange(8.0).reshape(4, 2)
        fed = Federation.vertical({"anna": table, "ben": table}, labels=("anna", np.array([0, 1, 0, 1])), id=0)
        with pytest.raises(ClusterError, match=rf"ben: backend: nobody answers at 127\.0\.0\.1:{port}"):
            fed.align(backend={"ben": f"127.0.0.1:{port}"})
    with pytest.raises(InvalidParameter, match="backend names 'eve'"):
        align({"anna": [1, 2], "ben": [2, 3]}, backend={"eve": "ray"})
