"""`hedgerow simulate` and `hedgerow schema`: a run between parties with all tables here, and files about tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from hedgerow import Federation, Run, Schema

OPTIONS = "[options]\nn_estimators = 2\nmax_depth = 2\nseed = 1\nepsilon = inf\nedges = 'quantile'\nbuckets = 8\n"
SEATS = "[parties.bank]\nrole = 'label holder'\n[parties.shop]\nrole = 'feature holder'\n"
TABLES = ("--data", "bank=bank.csv", "--data", "shop=shop.parquet", "--label", "late")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two tables of the same people, in different orders, and a job."""
    rng = np.random.default_rng(0)
    bank = pa.table({"customer": np.arange(80), "income": rng.normal(size=80)})
    late = (bank["income"].to_numpy() + rng.normal(size=80) > 0).astype(int)
    pc.write_csv(bank.append_column("late", pa.array(late)), tmp_path / "bank.csv")
    shop = {"customer": np.arange(80)[::-1], "basket": rng.normal(size=80), "region": rng.choice(["n", "s"], 80)}
    pq.write_table(pa.table(shop), tmp_path / "shop.parquet")
    (tmp_path / "job.toml").write_text(f"protocol = 'vertical.bucket_rr'\n{SEATS}[matching]\nminimum = 2\n{OPTIONS}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_runs_with_the_tables_of_all_parties(place: Path, run: Any) -> None:
    """The model is the one that a federation in Python trains; the run is saved, and cross-validated if asked."""
    words = ("simulate", "job.toml", *TABLES, "--id", "customer", "--out", "saved")
    told = run(*words, "--cv", "2", "--json").json
    assert told["parties"] == {"bank": "label holder", "shop": "feature holder"}
    assert len(told["cross_validation"]["scores"]) == 2
    assert told["cross_validation"]["costs"]["shop"]["epsilon"] in (float("inf"), None)
    tables = {"bank": pc.read_csv(place / "bank.csv"), "shop": pq.read_table(place / "shop.parquet")}
    labels, tables["bank"] = tables["bank"]["late"], tables["bank"].drop_columns(["late"])
    federation = Federation.vertical(tables, labels=("bank", labels), id="customer")
    options = {"epsilon": np.inf, "edges": "quantile", "buckets": 8}
    same = federation.fit("vertical.bucket_rr", n_estimators=2, max_depth=2, seed=1, **options)
    saved = Run.load(place / "saved")
    np.testing.assert_array_equal(saved.model.decision_function(tables), same.model.decision_function(tables))
    shown = run(*words)
    assert "What went from whom to whom:" in shown.stdout
    assert "saved in saved" in shown.stdout


def test_owners_of_rows_are_simulated_too(place: Path, run: Any) -> None:
    """Every owner's table has the label."""
    table = pc.read_csv(place / "bank.csv").drop_columns(["customer"])
    pc.write_csv(table.slice(0, 40), place / "anna.csv")
    pc.write_csv(table.slice(40), place / "ben.csv")
    (place / "job.toml").write_text(
        "protocol = 'horizontal.secure_sum'\n[parties.anna]\nrole = 'owner'\n[parties.ben]\nrole = 'owner'\n"
        "[options]\nn_estimators = 2\naccept_no_masking = true\n"
    )
    words = ("simulate", "job.toml", "--data", "anna=anna.csv", "--data", "ben=ben.csv", "--label", "late")
    assert run(*words, "--json").json["iterations"] == 2


def test_what_does_not_fit_the_job_is_refused(place: Path, run: Any) -> None:
    """A party without a table, a table of nobody, a label that nobody has, matching without a column."""
    assert "give --data shop=FILE" in run("simulate", "job.toml", *TABLES[:2], "--label", "late", code=2).stderr
    more = (*TABLES, "--data", "post=bank.csv")
    assert "post brings no data in the job" in run("simulate", "job.toml", *more, code=2).stderr
    assert "say by which column, --id COLUMN" in run("simulate", "job.toml", *TABLES, code=2).stderr
    wrong = (*TABLES[:-1], "nothing", "--id", "customer")
    assert "nothing" in run("simulate", "job.toml", *wrong, code=3).stderr
    assert not (place / "run").exists()


def test_a_schema_is_made_to_be_filled_in(place: Path, run: Any) -> None:
    """Names and types are there, no value is; gaps are named until they are filled."""
    told = run("schema", "make", "shop.parquet", "--drop", "customer", "--out", "shop.json", "--json").json
    assert told["to_fill_in"] == ["the lowest and highest value of 'basket'", "the levels of 'region'"]
    assert (
        "to be filled in: the lowest and highest value of 'basket'"
        in run("schema", "check", "shop.json", code=3).stderr
    )
    document = json.loads((place / "shop.json").read_text())
    document["columns"][0]["bounds"], document["columns"][1]["levels"] = [-9, 9], ["n", "s"]
    (place / "shop.json").write_text(json.dumps(document))
    told = run("schema", "check", "shop.json", "--data", "shop.parquet", "--json").json
    assert told["columns"] == ["basket", "region"]
    assert told["not_described"] == ["customer"]
    assert Schema.load(place / "shop.json")["basket"].low == -9
    assert "there is no column 'basket'" in run("schema", "check", "shop.json", "--data", "bank.csv", code=3).stderr


def test_a_public_table_gives_its_schema(place: Path, run: Any) -> None:
    """Bounds, levels and classes are read off it, and nothing is left to fill in."""
    run("schema", "make", "bank.csv", "--label", "late", "--public", "--out", "bank.json")
    schema = Schema.load(place / "bank.json")
    assert schema.classes == (0, 1)
    assert schema["customer"].high >= 79
    assert run("schema", "make", "bank.csv", "--label", "late", "--out", "other.json", "--json").json["to_fill_in"][
        -1
    ] == ("the classes")
