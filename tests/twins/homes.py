"""Homes of parties for tests, with passphrases that are stretched by next to nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow.errors import HedgerowError
from hedgerow.node import keys, pairing
from hedgerow.node.desk import Node
from hedgerow.node.greeting import Clock, greet
from hedgerow.node.home import Home
from hedgerow.transport.mtls import Identity


def simplify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that open without 64 MiB, answers without waiting."""
    monkeypatch.setattr(keys, "_SCRYPT_N", 2**4)
    monkeypatch.setattr(pairing, "ANSWER_SECONDS", 0.0)
    for variable in ("HEDGEROW_HOME", "HEDGEROW_PASSPHRASE"):
        monkeypatch.delenv(variable, raising=False)


def introduce(*homes: Home) -> None:
    """Each has pinned all others."""
    for home in homes:
        for other in homes:
            if other is not home:
                home.peers.add(other.name, other.certificate, f"{other.name}.example.org:7341", how="test")


PEOPLE = 300


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def make_home(folder: Path, name: str, *, bind: str | None = None, label: str | None = None) -> Home:
    """A party with 300 people, three columns named after it, an id, and a label if it is to have one."""
    home = Home.create(folder / name, name)
    rng = np.random.default_rng(len(name))
    table = {f"{name}_{k}": rng.normal(size=PEOPLE) for k in range(3)}
    columns = {"customer": [f"c{k}" for k in range(PEOPLE)], **table}
    if label is not None:
        columns[label] = (table[f"{name}_0"] > 0).astype(np.int64)
    pq.write_table(pa.table(columns), home.path / "people.parquet")
    network = "" if bind is None else f'bind = "{bind}"\nadvertise = "{bind}"\n'
    labels = "" if label is None else f'label = "{label}"\n'
    home.party_toml.write_text(
        f'name = "{name}"\n[network]\n{network}[data.people]\nsource = "people.parquet"\nid = "customer"\n{labels}',
        encoding="utf-8",
    )
    return Home(home.path)


def pair(one: Home, other: Home) -> None:
    """Pin each other's certificate, with the addresses of their party.toml."""
    for home, peer in ((one, other), (other, one)):
        network = peer.party_file.network
        home.peers.add(peer.name, peer.certificate, network.advertise or network.bind, how="test")


def key_of(home: Home) -> Identity:
    """The party's key, which has no passphrase."""
    return home.identity()


def write_job(home: Home, protocol: str, parties: tuple[str, ...], **options: float | str) -> Path:
    """job.toml in a party's folder: everybody brings its people, which are matched by nothing."""
    seats = "".join(f'[parties.{name}]\ndataset = "people"\n' for name in parties)
    listed = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in options.items())
    path = home.path / "job.toml"
    path.write_text(f'protocol = "{protocol}"\n{seats}[options]\n{listed}', encoding="utf-8")
    return path


@contextmanager
def answering(home: Home, peer: str, clock: Clock = time.time) -> Iterator[None]:
    """A node that is up and answers at its desk, as propose and run do while they wait."""
    over = threading.Event()

    def work() -> None:
        with Node(home, key_of(home), [peer]) as node:
            while not over.is_set():
                with suppress(HedgerowError), node.at_desk(home.peers.get(peer), 1.0) as me:
                    greet(me, peer, node.papers.open_with(peer), clock=clock)
                    node.hand_over(me, peer)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()
