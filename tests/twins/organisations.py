"""Organisations of one test: each with a folder of its own, paired with the others, on this machine's loopback."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.inputs import read_inputs
from hedgerow.node.job_file import read_job_file
from hedgerow.node.papers import Papers, answer
from hedgerow.node.playing import play
from hedgerow.node.proposal import Proposal, propose
from hedgerow.runtime.running import run_together

N_ROWS = 240
TREES = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.3, "max_bins": 16, "random_state": 7}
HOLDERS = {"bank": "label holder", "shop": "feature holder"}
DEALT = {**HOLDERS, "notary": "dealer"}
VERTICAL = {
    "vertical.bucket_rr": (HOLDERS, {"epsilon": math.inf, "edges": "quantile", "buckets": 8}),
    "vertical.noised_gradients": (HOLDERS, {"epsilon": math.inf}),
    "vertical.homomorphic": (HOLDERS, {}),
    "vertical.secret_shared": (DEALT, {}),
    "vertical.mp_fedxgb": (DEALT, {"accept_known_leaks": True}),
}
LEAKS = 'protocols = ["vertical.mp_fedxgb"]'


def free_port() -> int:
    """A port that nobody has right now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def customers(seed: int = 5, n_rows: int = N_ROWS) -> pa.Table:
    """People with numbers in five columns, a label that follows from them, and an id."""
    rng = np.random.default_rng(seed)
    columns = {f"x{k}": rng.normal(size=n_rows).round(3) for k in range(5)}
    score = columns["x0"] - columns["x3"] * (columns["x1"] > 0) + rng.normal(size=n_rows) * 0.3
    ids = [f"c{number:04d}" for number in range(n_rows)]
    return pa.table({"customer": ids, **columns, "bad": (score > 0).astype(np.int64)})


def bank_and_shop(table: pa.Table, *, shuffled: bool = True) -> dict[str, pa.Table]:
    """The same people at two organisations; the shop has them in another order, and some of its own."""
    bank = table.select(["customer", "x0", "x1", "bad"])
    shop = table.select(["customer", "x2", "x3", "x4"])
    if shuffled:
        more = pa.table({"customer": ["z1", "z2"], **{name: [0.0, 1.0] for name in ("x2", "x3", "x4")}})
        order = np.random.default_rng(9).permutation(table.num_rows + 2)
        shop = pa.concat_tables([shop, more]).take(pa.array(order))
    return {"bank": bank, "shop": shop}


def make_home(
    folder: Path,
    name: str,
    table: pa.Table | None,
    *,
    listens: bool,
    label: str | None = None,
    policy: str = "",
    bind: str | None = None,
    advertise: str | None = None,
) -> Home:
    """A party's folder with a dataset "customers", if it has one; it listens at a port of this machine, if not told."""
    home = Home.create(folder / name, name)
    lines = [f'name = "{name}"']
    if listens:
        address = bind or f"127.0.0.1:{free_port()}"
        lines += ["[network]", f'bind = "{address}"', f'advertise = "{advertise or address}"']
    if table is not None:
        pq.write_table(table, home.path / "customers.parquet")
        lines += ["[data.customers]", 'source = "customers.parquet"', 'id = "customer"']
        lines += [f'label = "{label}"'] if label else []
    lines += ["[policy]", policy]
    home.party_toml.write_text("\n".join(lines) + "\n")
    return Home(home.path)


def pair_all(homes: Mapping[str, Home]) -> None:
    """Everybody has pinned everybody's certificate, as after pairing."""
    for home in homes.values():
        for other in homes.values():
            if other is not home:
                network = other.party_file.network
                home.peers.add(other.name, other.certificate, network.advertise, how="a test")


def two_organisations(folder: Path, *others: str, policy: str = "", shuffled: bool = True) -> dict[str, Home]:
    """A bank that listens and has labels, a shop that only dials, and parties without data, which listen."""
    tables = bank_and_shop(customers(), shuffled=shuffled)
    homes = {
        "bank": make_home(folder, "bank", tables["bank"], listens=True, label="bad", policy=policy),
        "shop": make_home(folder, "shop", tables["shop"], listens=False),
        **{name: make_home(folder, name, None, listens=True) for name in others},
    }
    pair_all(homes)
    return homes


def three_owners(folder: Path) -> tuple[dict[str, Home], Proposal]:
    """Anna, who coordinates, Ben and Carla with 80 people each, and what they have agreed on."""
    homes = {}
    for k, name in enumerate(("anna", "ben", "carla")):
        rows = customers().slice(80 * k, 80).drop_columns(["customer"])
        homes[name] = make_home(folder, name, rows, listens=name == "anna", label="bad", policy="minimum_rows = 10")
        text = homes[name].party_toml.read_text()
        homes[name].party_toml.write_text(text.replace('id = "customer"\n', ""))
    homes = {name: Home(home.path) for name, home in homes.items()}
    pair_all(homes)
    text = job_text("horizontal.secure_sum", TREES, dict.fromkeys(homes, "owner"), matching=False)
    text = text.replace('[parties.anna]\nrole = "owner"', '[parties.anna]\nrole = "coordinator"\ndataset = "customers"')
    proposal = proposed(homes["anna"], text)
    agreed_by_all(homes, proposal)
    return homes, proposal


def job_text(protocol: str, options: Mapping[str, Any], parties: Mapping[str, str], *, matching: bool = True) -> str:
    """A job file."""
    lines = [f'protocol = "{protocol}"']
    for name, role in parties.items():
        lines += [f"[parties.{name}]", f'role = "{role}"']
    if matching:
        lines += ["[matching]", "minimum = 20"]
    lines.append("[options]")
    lines += [f"{name} = {_toml(value)}" for name, value in options.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def proposed(home: Home, text: str) -> Proposal:
    """What the party of this home proposes, signed and kept by it."""
    path = home.path / "job.toml"
    path.write_text(text)
    proposal = propose(read_job_file(path), home)
    Papers(home).keep(proposal, [answer(proposal, home.identity(), "accept")])
    return proposal


def agreed_by_all(homes: Mapping[str, Home], proposal: Proposal) -> None:
    """Everybody has accepted, and everybody knows."""
    answers = [answer(proposal, home.identity(), "accept") for home in homes.values()]
    for home in homes.values():
        Papers(home).keep(proposal, answers)


def at_every_node(homes: Mapping[str, Home], call: Callable[[Node], Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """The call at all of these nodes at the same time; what each returned, or the error that it raised."""
    found: dict[str, Any] = {}

    def at(home: Home) -> None:
        try:
            with Node(home, home.identity()) as node:
                found[home.name] = call(node)
        except Exception as problem:  # noqa: BLE001 - what it is, is for the test to say
            found[home.name] = problem

    threads = [threading.Thread(target=at, args=(homes[name],)) for name in names or homes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def trained(homes: Mapping[str, Home], proposal: Proposal) -> dict[str, Path]:
    """Everybody's folder of the run; fails with the first error."""
    agreed_by_all(homes, proposal)
    return or_raise(at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=60.0)))


def or_raise(found: dict[str, Any]) -> dict[str, Any]:
    """What came of it everywhere; the first error, if there is one."""
    for each in found.values():
        if isinstance(each, BaseException):
            raise each
    return found


class Interrupted(Exception):
    """What a test stops a run with."""


def attempted(
    homes: Mapping[str, Home], proposal: Proposal, *, stop_after: int | None = None, resume: bool = False
) -> dict[str, Any]:
    """Everybody's outcome of one attempt, which the proposer breaks off after a number of trees."""
    n_trees = proposal.params["n_estimators"]

    def stop(done: int, total: int) -> None:
        if (done, total) == (stop_after, n_trees):
            raise Interrupted

    def at(node: Node) -> Path:
        watch = stop if node.name == proposal.proposed_by and stop_after is not None else None
        return play(node, node.papers.get(proposal.hash), wait=60.0, on_progress=watch, resume=resume)

    return at_every_node(homes, at)


def data_of(homes, proposal):
    """What everybody brings to a job; where columns are divided, the rows that all have."""
    data = {}
    for name in proposal.owners_of_data:
        inputs = read_inputs(proposal, homes[name])
        brought = inputs.brought(proposal, name)
        if proposal.matching is not None:
            # Rows of all parties by id: their order does not matter to a model.
            ids = np.array(inputs.ids.to_pylist())
            common = np.flatnonzero(np.char.startswith(ids, "c"))
            brought.rows = common[np.argsort(ids[common])]
        data[name] = proposal.chosen.read(brought)
    return data


def as_one_program(homes, proposal, folders):
    """The results of the same job played by threads of one program, on the rows that were matched."""
    data = data_of(homes, proposal)
    results, *_ = run_together(proposal.chosen.protocol, proposal.job, data)
    assert folders.keys() >= results.keys()
    return results
