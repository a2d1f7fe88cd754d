"""Peers that announce much work to come, and then say nothing more: they are given up soon, not after hours."""

from __future__ import annotations

import contextlib
import hashlib
import time
from concurrent import futures
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.crypto.psi import BlindingKey
from hedgerow.errors import DeadlineExceeded, PeerLost
from hedgerow.protocols.services.align.messages import AtWork, BlindedIds, BlocksRead, IdsAgreed, IdsDescription
from hedgerow.protocols.services.align.roles import MOST_IDS, AligningJob, packed
from hedgerow.protocols.services.align.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, agreed
from hedgerow.transport import grpc_channel
from twins.parties import connect_star, make_identities, trust_in
from twins.vertical import make_columns, table_of

BLOCK, N_IDS, DEADLINE = 256, 30, 0.5
TURN = DEADLINE + 2 * 2 * BLOCK / 2000  # what the page of the protocol says: about one second here


@pytest.fixture
def bank_and_shop():
    """Both are connected; the bank compares. The shop plays by the rules; what the bank says is up to the test."""
    job = AligningJob(("bank", "shop"), "a matching", block=BLOCK)
    identities = make_identities(job.parties)
    endpoints = connect_star("bank", ["shop"], identities=identities, job=agreed(PROTOCOL, job))
    with contextlib.ExitStack() as stack:
        for endpoint in endpoints.values():
            stack.callback(endpoint.close)
        trust = trust_in(identities.values())
        made = {name: Party(endpoints[name], identities[name], trust, deadline=DEADLINE) for name in job.parties}
        yield SimpleNamespace(job=job, **made)


def own_data():
    """What the honest party has."""
    table = table_of(make_columns(np.random.default_rng(0), N_IDS, 1))
    return PartyData(table, ids=packed([[f"id-{k}" for k in range(N_IDS)]]))


def points(n):
    """Points of the group that stand for no ids of anybody."""
    digests = [hashlib.sha256(bytes([k % 256, k // 256])).digest() for k in range(n)]
    return BlindingKey.generate().blind(np.frombuffer(b"".join(digests), np.uint8).reshape(n, 32))


def given_up_by(party, job):
    """How many seconds the honest party goes on, and what it says then."""
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught:
        PROTOCOL.play(party, job, own_data())
    return time.monotonic() - began, str(caught.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("n_blocks", [0, 2])
def test_a_comparer_with_very_many_ids_that_falls_silent(bank_and_shop, n_blocks):
    """After none or some blocks of a hundred million ids: the next one is due after a few blocks' work."""
    job, bank = bank_and_shop.job, bank_and_shop.bank
    bank.send("shop", IdsAgreed(job.parties, np.array([MOST_IDS, N_IDS])))
    for _ in range(n_blocks):
        bank.send("shop", BlindedIds("bank", points(BLOCK)))
    seconds, said = given_up_by(bank_and_shop.shop, job)
    assert "shop timed out waiting for vertical.blinded_ids from bank" in said
    assert seconds < TURN + 5  # of which most is for a busy machine


@pytest.mark.timeout(60)
def test_a_party_with_very_many_ids_that_falls_silent(bank_and_shop):
    """The same, seen from the comparer."""
    job, shop = bank_and_shop.job, bank_and_shop.shop
    shop.send("bank", IdsDescription(job.id_rule.fingerprint, MOST_IDS))
    seconds, said = given_up_by(bank_and_shop.bank, job)
    assert "bank timed out waiting for vertical.blinded_ids from shop" in said
    assert seconds < TURN + 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("n_read", [0, 1])
def test_a_comparer_that_stops_reading(bank_and_shop, n_read):
    """It took part in the tour with ids enough for two blocks; then it reads, or seems to read, no more than one."""
    job, bank = bank_and_shop.job, bank_and_shop.bank
    bank.send("shop", IdsAgreed(job.parties, np.array([BLOCK + 1, N_IDS])))
    for n in (BLOCK, 1):
        bank.send("shop", BlindedIds("bank", points(n)))
    for _ in range(n_read):
        bank.send("shop", BlocksRead())
    seconds, said = given_up_by(bank_and_shop.shop, job)
    assert "shop timed out waiting for vertical.aligning_blocks_read from bank" in said
    assert seconds < 2 * TURN + 5
    received = [bank.recv("shop", kind, **symbols) for kind, symbols in _due_at_the_bank(job)]
    assert len(received) == 3


def _due_at_the_bank(job):
    yield IdsDescription, {"most_ids": job.most_ids}
    yield BlindedIds, {"owner_letters": 4, "n_points": N_IDS}
    yield AtWork, {}


@pytest.mark.timeout(60)
def test_a_peer_that_takes_nothing_is_given_up(monkeypatch):
    """It is connected and answers pings, but reads nothing; whoever sends to it does not wait for ever (here: 1 s)."""
    monkeypatch.setattr(grpc_channel, "_STALL_SECONDS", 1.0)
    endpoints = connect_star("bank", ["shop"], max_unacked_bytes=10_000)
    with contextlib.ExitStack() as stack:
        for endpoint in endpoints.values():
            stack.callback(endpoint.close)

        def send_much():
            for _ in range(100):
                endpoints["shop"].send("bank", bytes(1000))

        with pytest.raises(PeerLost, match="bank is there, but took nothing that shop sent for 1 s"):
            send_much()


def test_a_slow_peer_is_not_given_up(monkeypatch):
    """As long as it takes something now and then, all may last longer than that."""
    monkeypatch.setattr(grpc_channel, "_STALL_SECONDS", 2.0)
    endpoints = connect_star("bank", ["shop"], max_unacked_bytes=3000)
    with contextlib.ExitStack() as stack, futures.ThreadPoolExecutor(1) as reading:
        for endpoint in endpoints.values():
            stack.callback(endpoint.close)

        def read_slowly():
            for _ in range(30):
                time.sleep(0.1)
                endpoints["bank"].recv("shop", 20)

        done = reading.submit(read_slowly)
        for _ in range(30):
            endpoints["shop"].send("bank", bytes(1000))
        done.result(30)
