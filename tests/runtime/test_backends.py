"""A party's backend: who may have one, where it goes, and what is refused before anything moves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter
from hedgerow.runtime import backends
from hedgerow.runtime.party_process import describe
from hedgerow.runtime.protocol import PartyData, find, names

PARTIES = ("a", "b")
ROOT = Path(__file__).parents[2]


def test_one_backend_is_everybodys_and_a_mapping_is_by_party():
    """None and "local" are this machine, and such parties are left out; n_jobs is for each actor."""
    assert backends.backends_of(None, PARTIES, None) == {}
    assert backends.backends_of("ray", PARTIES, 2) == dict.fromkeys(PARTIES, RayBackend(threads=2))
    given = {"a": RayBackend(actors=3), "b": "local"}
    assert backends.backends_of(given, PARTIES, None) == {"a": RayBackend(actors=3)}
    with pytest.raises(InvalidParameter, match="backend names 'c', which is not one of"):
        backends.backends_of({"c": "ray"}, PARTIES, None)
    with pytest.raises(InvalidParameter, match="b: backend: 'nowhere' is not an address"):
        backends.backends_of({"b": "nowhere"}, PARTIES, None)


def test_a_backend_reaches_a_process_as_json():
    """All of it, and None as well."""
    backend = RayBackend("host:6379", 3, 2, rows_in_object_store=True, rebuilds=0, patience=5.0)
    for each in (backend, None):
        data = PartyData(read_table(np.zeros((2, 1))), backend=each)
        assert backends.read(json.loads(json.dumps(describe(data)))["backend"]) == each


def test_roles_that_cannot_use_ray_say_why_before_anything_moves():
    """The error names the party, its role, the protocol and the reason."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] > 0
    federation = Federation.vertical({"bank": X, "shop": X[:, :1]}, labels=("bank", y))
    with pytest.raises(InvalidParameter, match=r"shop: backend: the feature holder of vertical\.secret_shared cannot"):
        federation.fit("vertical.secret_shared", max_iter=1, backend={"shop": "ray"})
    with pytest.raises(InvalidParameter, match="a federation takes no backend"):
        federation.plan("vertical.secret_shared", backend="ray")


def test_every_role_is_said_to_run_on_ray_or_why_it_does_not():
    """`Protocol.on_ray` names all roles, and docs/scale.md says the same of each protocol."""
    page = (ROOT / "docs/scale.md").read_text("utf-8")
    table = page.split("### What runs on Ray\n\n", 1)[1].split("\n\n", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    for name in names():
        protocol = find(name)
        assert set(protocol.on_ray) == set(protocol.roles), name
        (row,) = [line for line in rows if f"`{name}`" in line.split("|")[1]]
        assert ("nothing" in row.split("|")[2]) == (None not in protocol.on_ray.values()), name
        for role, reason in protocol.on_ray.items():
            assert reason is None or reason in row, (name, role)
