"""Homes of parties that have trained a model together, made without a network: for tests of what follows a training.

The model is trained by a `Federation` in memory. Its parts are then laid into the homes as a run between the parties
would have left them, with a proposal that all have signed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hedgerow import Federation
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node.home import Home
from hedgerow.node.job_file import read_job_file
from hedgerow.node.papers import Papers, answer
from hedgerow.node.proposal import propose
from hedgerow.protocols.vertical.common.parts import save_part

N = 300
ID = "customer"
EXACT = {"epsilon": "inf", "edges": "quantile"}
NOISED = {"epsilon": 4.0, "delta": 1e-6}


@dataclass(frozen=True)
class Trained:
    """Homes by party, the model as a federation has it, and all parties' rows, row for row."""

    homes: Mapping[str, Home]
    model: VerticalModel
    tables: Mapping[str, pa.Table]
    ids: list[str]
    run_id: str

    def expected(self, places: Sequence[int]) -> np.ndarray:
        """What a federation predicts for some rows."""
        rows = {name: table.take(pa.array(list(places))) for name, table in self.tables.items()}
        dealer = {"dealer": "notary"} if self.model.is_shared else {}
        return self.model.predict_proba(rows, **dealer)


def made_up(*, numeric: bool, several: bool = False) -> tuple[dict[str, pa.Table], list[str], list[str]]:
    """Rows of a bank and a shop, their ids, and the bank's labels."""
    random = np.random.default_rng(11)
    age, debt = random.integers(18, 90, N).astype(float), random.exponential(500, N).round(1)
    basket = np.where(random.random(N) < 0.1, np.nan, random.lognormal(3, 1, N))
    visits = random.poisson(4, N).astype(float)
    region = random.choice(["north", "east", "south"], N)
    noise = random.normal(size=N)
    labels = np.where(age / 20 + np.nan_to_num(basket) / 20 + visits / 3 + (region == "east") + noise > 6, "yes", "no")
    labels = np.where(debt > 800, "later", labels) if several else labels
    bank = {"age": age, "debt": debt}
    shop: dict[str, Any] = {"basket": basket, "visits": visits}
    if not numeric:
        shop["region"] = region
    return {"bank": pa.table(bank), "shop": pa.table(shop)}, [f"c{k:04d}" for k in range(N)], labels.tolist()


def free_port() -> int:
    """One that nobody listens on just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def trained_homes(
    folder: Path,
    protocol: str = "vertical.bucket_rr",
    options: Mapping[str, Any] = EXACT,
    *,
    scoring: str = "standing",
    dealer: bool = False,
    several: bool = False,
    matching: bool = True,
    policy: Mapping[str, str] | None = None,
) -> Trained:
    """A bank with labels and a shop, and a notary if there is to be a dealer; the shop's rows are in another order.

    With `several` there are three classes.
    """
    tables, ids, labels = made_up(numeric=dealer, several=several)
    trees = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3}
    given = {name: float("inf") if value == "inf" else value for name, value in options.items()}
    run = Federation.vertical(tables, labels=("bank", labels)).fit(
        protocol, **trees, **given, **({"dealer": "notary"} if dealer else {})
    )
    names = ["bank", "shop", *(["notary"] if dealer else [])]
    homes = {name: Home.create(folder / name, name) for name in names}
    listening = ["bank", *(["shop"] if dealer else [])]
    addresses = {name: f"127.0.0.1:{free_port()}" for name in listening}
    shuffled = np.random.default_rng(3).permutation(N) if matching else np.arange(N)
    for name, home in homes.items():
        for other, theirs in homes.items():
            if other != name:
                home.peers.add(other, theirs.certificate, addresses.get(other), how="test")
        lines = [f'name = "{name}"', "[network]"]
        if name in addresses:
            lines.append(f'bind = "{addresses[name]}"')
        if name in tables:
            lines += ["[data.customers]", 'source = "customers.parquet"', f'id = "{ID}"']
            lines += ['label = "repaid"'] * (name == "bank")
            table = tables[name].append_column(ID, pa.array(ids))
            table = (
                table.append_column("repaid", pa.array(labels)) if name == "bank" else table.take(pa.array(shuffled))
            )
            pq.write_table(table, home.path / "customers.parquet")
        lines += ["[policy]", f'protocols = ["{protocol}"]', (policy or {}).get(name, "")]
        home.party_toml.write_text("\n".join(lines) + "\n")
    job = ["[parties.bank]", 'dataset = "customers"', "[parties.shop]", 'dataset = "customers"']
    job += ["[parties.notary]", 'role = "dealer"'] * dealer + ["[matching]"] * matching + ["[options]"]
    job += [
        f"{name} = {json.dumps(value) if value != 'inf' else 'inf'}" for name, value in {**trees, **options}.items()
    ]
    place = folder / "job.toml"
    place.write_text("\n".join([f'protocol = "{protocol}"', f'scoring = "{scoring}"', *job]) + "\n")
    proposal = propose(read_job_file(place), homes["bank"])
    answers = [answer(proposal, home.identity(), "accept") for home in homes.values()]
    parts = {name: replace(part, run_id=proposal.run_id) for name, part in run.model.parts.items()}
    for name, home in homes.items():
        Papers(home).keep(proposal, answers)
        folder_of_run = home.runs / proposal.run_id
        folder_of_run.mkdir()
        (folder_of_run / "run.json").write_text(json.dumps({"proposal": proposal.hash}))
        if name in parts:
            save_part(parts[name], folder_of_run / "part.json")
    return Trained(homes, VerticalModel(parts), tables, ids, proposal.run_id)
