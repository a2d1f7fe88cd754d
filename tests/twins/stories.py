"""Every way in which nodes train a model, small: parties with their roles, options, and homes for all of them.

homes = vertical_homes(folder)                           # bank, shop, notary: for every vertical story
text = STORIES["secret_shared"].job                      # a job file
homes = homes_of_owners(folder)                          # anna, ben, carla: for rows that are divided
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hedgerow.estimators.plain import load_model
from hedgerow.federation.federation import Federation
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node.home import Home
from hedgerow.node.proposal import Proposal
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.schema import Schema
from twins.homes import pair
from twins.organisations import (
    DEALT,
    HOLDERS,
    TREES,
    VERTICAL,
    as_one_program,
    customers,
    job_text,
    make_home,
    two_organisations,
)

COLUMNS = ("x0", "x1", "x2", "x3", "x4")
SCHEMA = Schema.from_public(bounds=dict.fromkeys(COLUMNS, (-4.0, 4.0)), classes=[0, 1])
DP = {"epsilon": 3.0, "delta": 1e-6}
OWNERS = ("anna", "ben", "carla")
_SMALL = {"n_estimators": 3, "max_depth": 2, "random_state": 7}


@dataclass(frozen=True)
class Story:
    """One way to train, and what can be said of its model."""

    protocol: str
    parties: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    trees: Mapping[str, Any] = field(default_factory=lambda: TREES)
    is_exact: bool = True  # two runs give the same trees, bit for bit
    payers: tuple[str, ...] = ()  # whose budgets a run is charged to

    @property
    def is_vertical(self) -> bool:
        """Whether columns are divided."""
        return "owner" not in self.parties.values()

    @property
    def job(self) -> str:
        """Its job file; a schema lies beside it."""
        text = job_text(self.protocol, {**self.trees, **self.options}, self.parties, matching=self.is_vertical)
        return text if self.is_vertical else text.replace('"coordinator"', '"coordinator"\ndataset = "customers"')


_COORDINATED = {**dict.fromkeys(OWNERS, "owner"), "anna": "coordinator"}
_BESIDE = {"schema": "schema.json"}
STORIES = {
    **{name.partition(".")[2]: Story(name, *VERTICAL[name]) for name in VERTICAL},
    "masked_gradients": Story(
        "vertical.masked_gradients",
        HOLDERS,
        {"sigma1": 0.0, "sigma2": 0.0, "C": 0.0, "reading": "record", "accept_known_leaks": True},
    ),
    "bucket_rr, noised": Story(
        "vertical.bucket_rr", HOLDERS, {"epsilon": 1.0, **_BESIDE}, is_exact=False, payers=("shop",)
    ),
    "noised_gradients, noised": Story(
        "vertical.noised_gradients", HOLDERS, {**DP, "per": "tree"}, is_exact=False, payers=("bank",)
    ),
    "private_histograms": Story(
        "vertical.private_histograms", DEALT, {**DP, **_BESIDE}, _SMALL, is_exact=False, payers=("bank", "shop")
    ),
    "private_histograms, smooth": Story(
        "vertical.private_histograms",
        DEALT,
        {**DP, **_BESIDE, "policy": "smooth_then_trees"},
        {"random_state": 7},
        is_exact=False,
        payers=("bank", "shop"),
    ),
    "secure_sum": Story("horizontal.secure_sum", _COORDINATED),
    "secure_sum, dp": Story(
        "horizontal.secure_sum",
        _COORDINATED,
        {"dp": (DP["epsilon"], DP["delta"]), **_BESIDE},
        {"random_state": 7},
        is_exact=False,
        payers=OWNERS,
    ),
}
_NAMES = sorted({story.protocol for story in STORIES.values() if story.is_vertical})
VERTICAL_POLICY, OWNERS_POLICY = f"protocols = {_NAMES}".replace("'", '"'), "minimum_rows = 10"
BUDGET = "[policy.budget]\nepsilon = 100.0\ndelta = 1e-3"


def vertical_homes(folder: Path, payers: Collection[str] = ()) -> dict[str, Home]:
    """A bank, a shop and a notary who let every vertical story happen; payers have a budget."""
    return _ready(two_organisations(folder, "notary"), VERTICAL_POLICY, payers)


def homes_of_owners(folder: Path, payers: Collection[str] = ()) -> dict[str, Home]:
    """Three owners of rows, of whom the first listens and knows the others; payers have a budget."""
    table, homes = customers(), {}
    for k, name in enumerate(OWNERS):
        homes[name] = make_home(folder, name, rows_of_owner(table, name), listens=k == 0, label="bad")
        text = homes[name].party_toml.read_text()
        homes[name].party_toml.write_text(text.replace('id = "customer"\n', ""))
    homes = _ready(homes, OWNERS_POLICY, payers)
    for other in OWNERS[1:]:
        pair(homes[OWNERS[0]], homes[other])
    return homes


def _ready(homes: Mapping[str, Home], policy: str, payers: Collection[str]) -> dict[str, Home]:
    """Homes whose party.toml says so; and schemas beside job files."""
    for name, home in homes.items():
        said = f"[policy]\n{policy}\n{BUDGET if name in payers else ''}"
        home.party_toml.write_text(home.party_toml.read_text().replace("[policy]", said))
        SCHEMA.save(home.path / "schema.json")
    return {name: Home(home.path) for name, home in homes.items()}


def rows_of_owner(table: pa.Table, name: str) -> pa.Table:
    """The part of all people that an owner has."""
    return table.slice(80 * OWNERS.index(name), 80).drop_columns(["customer"])


def check_same_model(homes: Mapping[str, Home], proposal: Proposal, story: Story) -> None:
    """Everybody's result is that of one program; with shared leaves up to the last bit of a quotient."""
    folders = {name: home.runs / proposal.run_id for name, home in homes.items()}
    if not story.is_vertical:
        table = customers()
        data = {name: rows_of_owner(table, name) for name in OWNERS}
        brought = {name: (rows.select(COLUMNS), rows.column("bad")) for name, rows in data.items()}
        how = {**story.trees, **story.options, "coordinator": OWNERS[0]}
        expected = Federation.horizontal(brought).fit(story.protocol, **how).model.predict_proba(table.select(COLUMNS))
        for folder in folders.values():
            assert np.array_equal(load_model(folder / "model.json").predict_proba(table.select(COLUMNS)), expected)
        return
    results = as_one_program(homes, proposal, folders)
    parts = {name: load_part(folders[name] / "part.json") for name in proposal.owners_of_data}
    rows = new_rows()
    there = {name: results[name] for name in parts}
    scores = [VerticalModel(each).decision_function(rows) for each in (parts, there)]
    np.testing.assert_allclose(*scores, rtol=0.0, atol=1e-6 if story.protocol == "vertical.mp_fedxgb" else 0.0)


def new_rows() -> dict[str, pa.Table]:
    """People whom no model has seen, in the columns of each party."""
    more = customers(seed=6)
    return {"bank": more.select(["x0", "x1"]), "shop": more.select(["x2", "x3", "x4"])}
