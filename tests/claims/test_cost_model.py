"""benchmarks/cost_model.py: a law that there is, is found; and nothing gets cheaper with more of it."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.node.costs import PLAIN, QUANTITIES, TERMS
from hedgerow.runtime.protocol import names

spec = spec_from_file_location("cost_model", Path(__file__).parents[2] / "benchmarks" / "cost_model.py")
model = sys.modules["cost_model"] = module_from_spec(spec)
spec.loader.exec_module(model)

LAW = {"seconds": {"start": 0.25, "rows x trees": 3e-6, "cells": 2e-7}, "bytes": {"cells x parties": 8.0}}
SHAPES = [(r, c, t, d, p) for r in (1_000, 100_000) for c in (6, 60) for t in (5, 50) for d in (2, 6) for p in (2, 5)]
random.Random(0).shuffle(SHAPES)  # so that both halves have some of everything


def points(path, off=lambda _number: 1.0, free_cores=1.0):
    """What scale.py would have written down if the law were true, but for some error."""
    with path.open("w") as file:
        for number, (rows, columns, trees, depth, parties) in enumerate(SHAPES):
            about = {"rows": rows, "columns": columns, "trees": trees, "depth": depth, "bins": 32, "parties": parties}
            size = model.Size(**about, processors=2)
            found = {name: model.combined(law, name, size) * off(number) for name, law in LAW.items()}
            line = {"kind": "protocol", "curve": "protocols", "protocol": "made.up", "machine": {"cores": 2}, **about}
            file.write(json.dumps({**line, "free_cores": free_cores, "found": found}) + "\n")
    return path


@pytest.fixture(autouse=True)
def nothing_is_timed(monkeypatch):
    """How fast this machine is has no part in it."""
    monkeypatch.setattr(model, "yardstick", lambda: 0.5)
    terms = {"seconds": ["start", "parties", "rows x trees", "values", "cells"], "bytes": ["pairs", "cells x parties"]}
    monkeypatch.setitem(model.MADE_OF, "made.up", terms)


def test_a_law_that_there_is_is_found(tmp_path):
    """The half that had no part in the fit is predicted, and terms of the law have their coefficients."""
    told = model.fit_all(points(tmp_path / "points.jsonl"), {"cores": 2})
    assert told["checked"] == {"made.up": {"seconds": 1.0, "bytes": 1.0}}
    assert told["largest"]["made.up"]["rows"] == 100_000
    assert (told["machine"], told["yardstick_seconds"]) == ({"cores": 2}, 0.5)
    coefficients = told["coefficients"]["made.up"]["seconds"]
    assert {term: coefficients[term] for term in LAW["seconds"]} == pytest.approx(LAW["seconds"], rel=1e-6)


def test_points_that_follow_no_law_are_told_and_left_out(tmp_path, capsys):
    """Every second point, that is all those for checking, is twice as large."""
    told = model.fit_all(points(tmp_path / "points.jsonl", off=lambda number: 1.0 + number % 2), {})
    assert told["coefficients"] == {}  # nothing that cannot be relied on is predicted
    assert capsys.readouterr().out.count("2.000 BEYOND") == 2


def test_seconds_of_a_busy_machine_are_not_learned_from(tmp_path):
    """Bytes are."""
    told = model.fit_all(points(tmp_path / "points.jsonl", free_cores=0.4), {})
    assert set(told["coefficients"]["made.up"]) == {"bytes"}


@given(
    st.sampled_from(sorted(TERMS)),
    st.sampled_from(["rows", "columns", "parties", "trees", "depth", "bins", "actors"]),
    st.builds(
        model.Size,
        rows=st.integers(1, 10**9),
        columns=st.integers(1, 5_000),
        parties=st.integers(1, 1_000),
        trees=st.integers(1, 1_000),
        depth=st.integers(1, 10),
        bins=st.integers(2, 256),
        actors=st.integers(0, 100),
    ),
)
@settings(deadline=None)
def test_nothing_gets_cheaper_with_more_of_it(term, name, size):
    """Of rows, columns, parties, trees, levels, bins and actors."""
    more = replace(size, **{name: getattr(size, name) + 1})
    assert TERMS[term](more) >= TERMS[term](size)


def test_every_protocol_is_made_of_terms_that_there_are():
    """And every quantity of it; there are no messages where all rows are in one place."""
    assert set(model.MADE_OF) - {"made.up"} == {PLAIN, *names()}
    assert all(set(model.MADE_OF[name]) == set(QUANTITIES) for name in names())
    used = {term for quantities in model.MADE_OF.values() for terms in quantities.values() for term in terms}
    assert used == set(TERMS)
