"""A hundred hostile connections of each kind while two nodes are at work: the same model, no leak, words in the log."""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from hedgerow.errors import HedgerowError
from hedgerow.node.audit import Reading
from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.pairing import Listener, dial
from hedgerow.node.papers import Papers
from hedgerow.node.playing import play
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.transport import grpc_channel
from hedgerow.transport.mtls import Identity, now
from twins.attackers import ATTACKS, N, Target
from twins.homes import answering, simplify
from twins.organisations import (
    HOLDERS,
    TREES,
    agreed_by_all,
    as_one_program,
    bank_and_shop,
    customers,
    job_text,
    make_home,
    pair_all,
    proposed,
)

PATIENCE = 60.0
MOST_MEMORY = 160 << 20
"""By which a process may grow under all attacks together; a run alone takes some of it."""


@pytest.fixture
def houses(tmp_path, monkeypatch):
    """A bank with labels, which dials; a shop, which listens; a mill that both know; a farm that both have revoked."""
    simplify(monkeypatch)
    tables = bank_and_shop(customers())
    homes = {
        "bank": make_home(tmp_path, "bank", tables["bank"], listens=False, label="bad"),
        "shop": make_home(tmp_path, "shop", tables["shop"], listens=True),
        "mill": make_home(tmp_path, "mill", None, listens=False),
        "farm": make_home(tmp_path, "farm", None, listens=False),
    }
    pair_all(homes)
    for name in ("bank", "shop"):
        homes[name].peers.revoke("farm")
    return homes


@pytest.fixture
def overheard(monkeypatch):
    """Every HELLO that a channel of this process has made."""
    heard = []
    made = grpc_channel.PeerChannel._hello

    def hear(channel):
        hello = made(channel)
        heard.append(hello.encode())
        return hello

    monkeypatch.setattr(grpc_channel.PeerChannel, "_hello", hear)
    return heard


def target_of(homes, overheard):
    """The shop's port, and what attackers have."""
    identities = {
        "partner": homes["bank"].identity(),
        "other": homes["mill"].identity(),
        "revoked": homes["farm"].identity(),
        "unknown": Identity.create("bank"),
        "expired": Identity.create("bank", days=1, valid_from=now() - timedelta(days=3)),
    }
    port = int(homes["shop"].party_file.network.bind.rpartition(":")[2])
    hello = lambda: overheard[-1] if overheard else b""  # noqa: E731 - one word is enough
    return Target("shop", port, homes["shop"].certificate.pem, identities, hello)


def open_files(pid="self"):
    """How many files and connections a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@dataclass(frozen=True)
class Use:
    """What a process has in use."""

    memory: int
    files: int
    threads: int

    @classmethod
    def of(cls, pid):
        """Right now."""
        about = dict(line.partition(":")[::2] for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        memory = int(about["VmRSS"].split()[0]) << 10
        return cls(memory, open_files(pid), int(about["Threads"]))


def until(is_so):
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_a_run_is_not_disturbed(houses, overheard, tmp_path):
    """Two parties train while one kind of attack after the other goes on; all is as if there had been none."""
    parties = {name: houses[name] for name in HOLDERS}
    options = {**TREES, "n_estimators": len(ATTACKS) + 4, "epsilon": math.inf}
    proposal = proposed(parties["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
    agreed_by_all(parties, proposal)
    target, waiting, uses, going = target_of(houses, overheard), list(ATTACKS.items()), [], []

    def on_progress(_done, _total):
        """After each tree another attack begins, and goes on while the next tree is grown."""
        for attack in going:
            attack.join(PATIENCE)
        going.clear()
        uses.append(Use.of(shop.pid))
        if not waiting:  # what was closed is given back
            until(lambda: Use.of(shop.pid).files <= uses[0].files + 2)
            uses.append(Use.of(shop.pid))
        if waiting:
            kind, attack = waiting.pop(0)
            going.append(threading.Thread(target=attack, args=(target, kind, 1.0)))
            going[0].start()

    log = tmp_path / "shop.log"
    command = [sys.executable, "-m", "hedgerow.cli", "run", "--wait", "60", "--home", str(parties["shop"].path)]
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr, stdout=stderr) as shop:
        try:
            with Node(parties["bank"], parties["bank"].identity(), ["shop"]) as node:
                folder = play(node, node.papers.get(proposal.hash), wait=PATIENCE, on_progress=on_progress)
            assert shop.wait(PATIENCE) == 0, log.read_text()
        finally:
            shop.kill()
    # The model is that of one program, bit for bit.
    folders = {"bank": folder, "shop": parties["shop"].runs / proposal.run_id}
    results = as_one_program(parties, proposal, folders)
    proposal.chosen.sign(results["bank"], proposal.job, has_names=True)
    for name, place in folders.items():
        assert load_part(place / "part.json").to_dict() == results[name].to_dict()
    # All attacks came, none got in, and nothing is left of them.
    assert not waiting
    assert set(target.outcomes) == set(ATTACKS)
    for kind, ended in target.outcomes.items():
        assert sum(ended.values()) == N, kind
        assert ended.keys() <= ENDS.get(kind, {"closed"}), kind
    assert max(use.memory for use in uses) - uses[0].memory < MOST_MEMORY
    assert uses[-1].files <= uses[0].files + 2
    assert uses[-1].threads <= uses[0].threads + 4
    # The log says what was turned away, not more than a few lines of it, and nothing about anybody.
    told = log.read_text()
    assert "turned away a connection: bank is connected with shop already" in told
    assert "without a HELLO in its header" in told
    assert re.search(r"turned away \d+ connections in all", told)
    assert told.count("turned away") <= 11
    assert not re.search(r"\bc0\d\d\d\b|BEGIN|127\.0\.0\.1", told)  # whole words: a hash may hold the digits of an id
    assert Reading(parties["shop"].audit, parties["shop"].certificate.pem).findings == []


ENDS = {
    **{kind: {"open", "closed"} for kind in ("says nothing", "half a handshake", "slow bytes", "HTTP/2 without gRPC")},
    "a partner of another run": {"UNAVAILABLE"},
    "a HELLO again": {"ALREADY_EXISTS", "RESOURCE_EXHAUSTED"},
    "no HELLO": {"PERMISSION_DENIED", "RESOURCE_EXHAUSTED"},
    "a huge header": {"RESOURCE_EXHAUSTED"},
    "unknown methods": {"UNIMPLEMENTED", "RESOURCE_EXHAUSTED"},
}
"""How connections may end within a second; those that say nothing have five."""


def test_papers_are_handed_over_meanwhile(houses, overheard):
    """A node at its desk is attacked a hundred times in each of five ways; its partner comes and is heard."""
    parties = {name: houses[name] for name in HOLDERS}
    target, bank = target_of(houses, overheard), parties["bank"]
    with answering(parties["shop"], "bank"), Node(bank, bank.identity(), ["shop"]) as node:
        node.exchange(bank.peers.get("shop"), PATIENCE)
        before = open_files()
        text = job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS)
        proposal = proposed(bank, text)
        for kind in ("says nothing", "an unknown certificate", "HTTP/2 without gRPC", "no HELLO", "unknown methods"):
            attack = threading.Thread(target=ATTACKS[kind], args=(target, kind, 0.3))
            attack.start()
            node.exchange(bank.peers.get("shop"), PATIENCE)
            attack.join(PATIENCE)
        assert Papers(parties["shop"]).get(proposal.hash).state == "waiting for shop"
        until(lambda: open_files() <= before + 4)
    assert all(sum(ended.values()) == N for ended in target.outcomes.values())
    assert sorted(path.name for path in parties["shop"].proposals.iterdir()) == [proposal.hash]


def test_pairing_goes_on_meanwhile(houses, tmp_path):
    """Two hundred who say nothing or nonsense cost no attempt; a hundred who guess get three, and then nobody pairs."""
    shop, inn = houses["shop"], Home.create(tmp_path / "inn", "inn")
    told, before = [], open_files()
    with listening(shop, told) as (listener, outcome):
        target = Target("shop", listener.port, shop.certificate.pem, {})
        for kind in ("says nothing", "half a handshake", "HTTP/1.1", "no certificate"):
            ATTACKS[kind](target, kind, 0.1)
        dial(inn.identity(), "inn", inn.peers, f"127.0.0.1:{listener.port}", listener.code)
        outcome.join(PATIENCE)
    assert shop.peers.get("inn").certificate.fingerprint == inn.certificate.fingerprint
    assert not any("attempts left" in text for text in told)
    shop.peers.revoke("inn")
    ends = []

    def guess(k):
        """One of a hundred codes."""
        try:
            dial(houses["mill"].identity(), "mill", inn.peers, f"127.0.0.1:{listener.port}", f"{k:04d}-0000")
        except HedgerowError as problem:
            ends.append(type(problem))

    told.clear()
    with listening(shop, told) as (listener, outcome):
        listener.code = "9999-9999"
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(guess, range(100)))
        outcome.join(PATIENCE)
        assert not outcome.is_alive()
    assert len(ends) == 100
    assert sum("attempts left" in text for text in told) <= 3
    assert "inn" not in shop.peers.names()
    until(lambda: open_files() <= before + 4)
    assert all(text.isprintable() for text in told)


@contextlib.contextmanager
def listening(home, told):
    """A party that waits to be paired, in a thread."""

    def wait():
        with contextlib.suppress(HedgerowError):
            listener.wait()
        listener.close()

    with Listener(home.identity(), home.name, home.peers, "127.0.0.1:0", minutes=1.0, told=told.append) as listener:
        thread = threading.Thread(target=wait)
        thread.start()
        yield listener, thread
