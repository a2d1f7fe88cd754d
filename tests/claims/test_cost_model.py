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


def test_a_law_that_there_is_is_found(tmp_path):
    """The half that had no part in the fit is predicted, and terms of the law have their coefficients."""
    found = model.fit_all(points(tmp_path / "points.jsonl"))["made.up"]
    assert {name: each["checked"] for name, each in found.items()} == {"seconds": 1.0, "bytes": 1.0}
    coefficients = found["seconds"]["coefficients"]
    assert {term: coefficients[term] for term in LAW["seconds"]} == pytest.approx(LAW["seconds"], rel=1e-6)


def test_points_that_follow_no_law_are_told(tmp_path, capsys):
    """Every second point, that is all those for checking, is twice as large."""
    found = model.fit_all(points(tmp_path / "points.jsonl", off=lambda number: 1.0 + number % 2))["made.up"]
    assert all(each["checked"] == pytest.approx(2.0) for each in found.values())
    assert capsys.readouterr().out.count("BEYOND") == 2


def test_seconds_of_a_busy_machine_are_not_learned_from(tmp_path):
    """Bytes are."""
    assert set(model.fit_all(points(tmp_path / "points.jsonl", free_cores=0.5))["made.up"]) == {"bytes"}


@given(
    st.sampled_from(sorted(model.TERMS)),
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
    assert model.TERMS[term](more) >= model.TERMS[term](size)
