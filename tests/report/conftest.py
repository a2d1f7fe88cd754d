from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow.node.home import Home
from hedgerow.node.proposal import Proposal
from twins.browser import chromium
from twins.homes import simplify
from twins.organisations import HOLDERS, TREES, job_text, proposed, trained, two_organisations


class Story(NamedTuple):
    """Two organisations after a run with noise."""

    homes: dict[str, Home]
    proposal: Proposal
    folders: dict[str, Any]


def make_odd(path: Any, seed: int) -> None:
    """Give every number so many digits that it stands nowhere else by chance."""
    table, rng = pq.read_table(path), np.random.default_rng(seed)
    for k, name in enumerate(table.column_names):
        if name.startswith("x"):
            column = table.column(name).to_numpy() + rng.uniform(1e-4, 1e-3, table.num_rows)
            table = table.set_column(k, name, pa.array(column))
    pq.write_table(table, path)


@pytest.fixture(scope="package")
def story(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Played once; tests only read what is in the homes."""
    policy = "[policy.budget]\nepsilon = 50.0\ndelta = 1e-5"
    with pytest.MonkeyPatch.context() as patch:
        simplify(patch)
        homes = two_organisations(tmp_path_factory.mktemp("organisations"), policy=policy)
        for k, home in enumerate(homes.values()):
            make_odd(home.path / "customers.parquet", k)
        options = {**TREES, "epsilon": 4.0, "delta": 1e-6}
        proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
        folders = trained(homes, proposal)
    return Story(homes, proposal, folders)


@pytest.fixture(scope="module")
def browser() -> Any:
    """One for all tests of a file."""
    with chromium() as found:
        yield found
