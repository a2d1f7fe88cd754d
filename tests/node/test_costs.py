"""The cost model: its law, how near it comes on points that had no part in the fit, and the verb that uses it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hedgerow.errors import InvalidParameter
from hedgerow.node import costs
from hedgerow.node.costs import QUANTITIES, TERMS, Predicted, Size, predict, shipped, size_of
from hedgerow.runtime.protocol import names
from hedgerow.transport.emulate import Link
from twins.homes import make_home, write_job

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
POINTS = BENCHMARKS / "results" / "scale.jsonl"
FEWEST_CHECKED = 3
BUCKETS = {"max_depth": 2, "epsilon": 4.0, "edges": "quantile"}


def cost_model() -> ModuleType:
    """The benchmark's module that fits."""
    spec = importlib.util.spec_from_file_location("cost_model", BENCHMARKS / "cost_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as slow as the machine that was measured; nothing is timed."""
    monkeypatch.setattr(costs, "slower_here", lambda: 2.0)


# --- the law ---------------------------------------------------------------------------------------------------------


def test_costs_are_of_protocols_that_there_are() -> None:
    """With coefficients of known terms that are not negative, and a largest size."""
    assert set(costs.known()) <= {costs.PLAIN, *names()}
    for protocol, by_quantity in shipped()["coefficients"].items():
        assert set(by_quantity) <= set(QUANTITIES)
        for coefficients in by_quantity.values():
            assert set(coefficients) <= set(TERMS)
            assert all(coefficient > 0 for coefficient in coefficients.values())
        assert shipped()["largest"][protocol]["rows"] > 0


def test_more_processors_take_less_time_and_send_the_same() -> None:
    """They share the work on rows, and nothing else."""
    law = {"start": 1.0, "values x levels": 1e-9}
    sizes = [Size(10**8, 28, processors=n) for n in (2, 100)]
    few, many = (costs.combined(law, "seconds", size) for size in sizes)
    assert (few - 1.0) == pytest.approx(50 * (many - 1.0))
    assert len({costs.combined(law, "bytes", size) for size in sizes}) == 1


# --- how near --------------------------------------------------------------------------------------------------------


def test_the_half_that_was_not_fitted_is_as_near_as_the_file_says() -> None:
    """Recomputed from the committed points: the largest factor, for each protocol and quantity."""
    module = cost_model()
    checked = {}
    for protocol, points in module.points_by_protocol(POINTS).items():
        for quantity in QUANTITIES:
            own = [point for point in points if quantity in point[1]]
            if quantity in shipped()["checked"].get(protocol, {}):
                factor, ratios = module.worst(own[1::2], quantity, shipped()["coefficients"][protocol][quantity])
                checked[protocol, quantity] = factor
                assert len(ratios) >= FEWEST_CHECKED
                assert factor <= module.BAR
    told = {(p, q): factor for p, by_quantity in shipped()["checked"].items() for q, factor in by_quantity.items()}
    assert checked == pytest.approx(told, abs=1e-3)


# --- sizes and the verb ----------------------------------------------------------------------------------------------


def test_sizes_are_read() -> None:
    """Names and whole numbers."""
    size = size_of("rows=1000000000, columns=28,parties=1000")
    assert size == Size(10**9, 28, parties=1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rows=5",
        "rows=5,columns=0",
        "rows=5,columns=2,rows=6",
        "rows=-5,columns=2",
        "rows=5,columns=2,depth=31",
        "rows=1e9,columns=2",
        "lines=5",
    ],
)
def test_what_is_not_a_size_is_refused(text: str) -> None:
    """With an example, or the name of what is wrong."""
    with pytest.raises(InvalidParameter):
        size_of(text)


def test_a_protocol_that_is_not_known_is_refused() -> None:
    """With those that are."""
    with pytest.raises(InvalidParameter, match=r"horizontal\.secure_sum.*and not of 'vertical\.nothing'"):
        predict("vertical.nothing", Size(10, 2))


def test_a_link_costs_rounds_and_bytes() -> None:
    """Half a round trip each, and the time of all bytes on one line."""
    assert Predicted(1.0, 10, 1_000).link_seconds(Link(0.2, 8_000)) == pytest.approx(1.0 + 1.0)
    assert Predicted(1.0, 10, 1_000).link_seconds(None) == 0.0


@pytest.mark.usefixtures("slow_machine")
def test_a_billion_rows_can_be_asked_for(run: Any) -> None:
    """It is marked as a prediction, beyond what was measured, and scaled to this machine."""
    asked = "rows=1000000000,columns=28,parties=4,trees=100,depth=6,bins=32"
    told = run("estimate", "vertical.secret_shared", "--size", asked, "--json").json
    assert told["is_prediction"]
    assert not told["within_measured"]
    assert told["rounds"] == round(predict("vertical.secret_shared", size_of(asked)).rounds)
    assert told["slower_than_measured"] == 2.0
    shown = run("estimate", "horizontal.secure_sum", "--size", "rows=1000000000,columns=28,parties=1000").stdout
    assert shown.startswith("PREDICTION for horizontal.secure_sum: 1,000,000,000 rows")
    assert "beyond every run that was measured" in " ".join(shown.split())
    assert "hold 268,435,456 rows today" in " ".join(shown.split())
    assert "not of" in run("estimate", "nothing", "--size", asked, code=2).stderr


@pytest.mark.usefixtures("slow_machine")
def test_a_job_can_be_predicted_without_probes(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is that of the job; nothing is run."""
    from hedgerow.node import estimate

    monkeypatch.setattr(estimate, "peaks_of_processes", None)  # without it nothing can be measured
    home = make_home(tmp_path, "bank", label="paid")
    path = write_job(home, "vertical.bucket_rr", ("bank", "shop"), n_estimators=7, **BUCKETS)
    told = run("estimate", path, "--home", home.path, "--columns", "shop=2", "--no-probes", "--json").json
    size = told["size"]
    assert (size["rows"], size["parties"], size["trees"], size["depth"]) == (300, 2, 7, 2)
    assert told["is_prediction"]
    whole = Size(**size)
    assert told["rounds"] == round(predict("vertical.bucket_rr", whole).rounds)
