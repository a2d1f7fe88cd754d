"""Files that commands read: what a CSV cell means, and the exit code of whatever is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import Federation, Schema
from hedgerow.node.sources import read_file

DEEP = "[" * 20_000


def csv(path: Path, *lines: str) -> Path:
    """A CSV file of these lines."""
    path.write_text("\n".join(lines) + "\n")
    return path


def test_only_an_empty_cell_is_missing_in_a_column_of_text(tmp_path: Path) -> None:
    """The country code NA is a country; words for missing count in columns of numbers, truth values and dates."""
    table = read_file(
        csv(
            tmp_path / "a.csv",
            "country,pay,member,since,all_na,none,quoted",
            'NA,1.5,true,2020-01-01,NA,,""',
            "NULL,NA,NA,NA,NA,,NA",
            ",nan,false,,NA,,x",
            "nan,2,,null,,,nan",
        )
    )
    assert table.column("country").to_pylist() == ["NA", "NULL", None, "nan"]
    assert table.column("pay").to_pylist()[1] is None
    assert table.column("pay").null_count == 2
    assert table.column("member").to_pylist() == [True, None, False, None]
    assert table.column("since").null_count == 3
    assert table.column("all_na").to_pylist() == ["NA", "NA", "NA", None]
    assert table.column("none").null_count == 4
    assert table.column("quoted").to_pylist() == [None, "NA", "x", "nan"]


def test_a_column_that_must_be_numbers_is(tmp_path: Path) -> None:
    """Of a model's column of numbers all cells may be "NA"; with the training file's types nothing is guessed."""
    path = csv(tmp_path / "a.csv", "pay,town", "NA,NA", "NA,NA")
    assert read_file(path, {"town": pa.string()}, {"pay"}).to_pydict() == {"pay": [None, None], "town": ["NA", "NA"]}


def test_whole_numbers_beyond_int64_keep_their_values(tmp_path: Path) -> None:
    """Up to 2^64; beyond that, or beside fractions, a column of numbers is one of floats."""
    path = csv(tmp_path / "a.csv", "big,mixed,negative", "9223372036854775809,9223372036854775809,-1", "3,0.5,1e19")
    table = read_file(path)
    assert table.column("big").to_pylist() == [2**63 + 1, 3]
    assert [str(table.schema.field(name).type) for name in ("mixed", "negative")] == ["double", "double"]


def test_a_country_can_be_learned_from(tmp_path: Path, run: Any) -> None:
    """NA is a level of the model, and predicted from; before, its rows were missing."""
    rows = [f"{country},{answer}" for country, answer in (("NA", "yes"), ("DE", "no"), ("", "no")) for _ in range(40)]
    data = csv(tmp_path / "train.csv", "country,answer", *rows)
    run("train", "--data", data, "--label", "answer", "--out", tmp_path / "m.json", "--set", "max_iter=5", "--quiet")
    assert json.loads((tmp_path / "m.json").read_text())["features"][0]["levels"] == ["DE", "NA"]
    new = csv(tmp_path / "new.csv", "country", "NA", "DE")
    shown = run("predict", tmp_path / "m.json", new, "--out", "-").stdout
    assert [line.strip('"') for line in shown.split()] == ["prediction", "yes", "no"]


def test_columns_of_one_name_are_refused(tmp_path: Path, run: Any) -> None:
    """In CSV and Parquet, in a training and in a dry run: exit code 3, and the name."""
    table = pa.table([pa.array([1, 2]), pa.array([1, 2]), pa.array(["a", "b"])], names=["x", "x", "y"])
    pq.write_table(table, tmp_path / "a.parquet")
    csv(tmp_path / "a.csv", "x,x,y", "1,2,a", "3,4,b")
    for name in ("a.parquet", "a.csv"):
        for more in ([], ["--dry-run"]):
            told = run("train", "--data", tmp_path / name, "--label", "y", *more, code=3).stderr
            assert f"{name}: 2 columns are called 'x'; rename all but one" in " ".join(told.split())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"deep = {DEEP}", "nested too deeply"),
        (f"[model]\nmax_iter = {DEEP}", "nested too deeply"),
        (f"[privacy]\nepsilon = {'9' * 400}", "epsilon is too large for a number, got 999"),
        (f"[privacy]\ndelta = {'9' * 400}", "delta is too large for a number"),
        ("[privacy]\nepsilon = 1e400", "the number 1e400... is too large"),
        (f"[privacy]\nepsilon = {'9' * 5000}", "4300"),
        (f"[model]\nmax_iter = {'9' * 400}", "max_iter"),
        (f"[model]\nlearning_rate = {'9' * 400}", "learning_rate"),
        (f"[model]\nreg_lambda = {'9' * 400}", "l2_regularization"),
        (f"[model]\nrandom_state = {'9' * 400}", "random_state"),
    ],
)
def test_job_files_that_cannot_be_meant(tmp_path: Path, run: Any, text: str, sentence: str) -> None:
    """Nesting and numbers beyond reason: exit code 2 and one line, not a traceback."""
    csv(tmp_path / "a.csv", "x,y", *(f"{k},{'ab'[k % 2]}" for k in range(40)))
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\ntrain = "a.csv"\nlabel = "y"\n{text}\n' if text.startswith("[") else text)
    told = run("train", job, code=2).stderr
    assert sentence in told
    assert len(told) < 1000


@pytest.mark.parametrize("text", [DEEP, '{"columns": 3}', '{"columns": [], "label_bounds": null, "classes": 5}'])
def test_schemas_that_are_none(tmp_path: Path, run: Any, text: str) -> None:
    """Exit code 3, and which file."""
    (tmp_path / "s.json").write_text(text)
    data = csv(tmp_path / "a.csv", "x,y", "1,a", "2,b")
    told = run("train", "--data", data, "--label", "y", "--epsilon", "1", "--schema", tmp_path / "s.json", code=3)
    assert told.stderr


def test_a_schema_with_a_bound_of_400_digits(tmp_path: Path, run: Any) -> None:
    """It is a wrong bound, in a sentence."""
    Schema.from_public(bounds={"x": (0, 7)}, classes=["a", "b"]).save(tmp_path / "s.json")
    (tmp_path / "s.json").write_text((tmp_path / "s.json").read_text().replace("7.0", "9" * 400))
    data = csv(tmp_path / "a.csv", "x,y", "1,a", "2,b")
    told = run("train", "--data", data, "--label", "y", "--epsilon", "1", "--schema", tmp_path / "s.json", code=2)
    assert "bounds of column 'x' must be two finite numbers" in told.stderr


# --- saved runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run of two companies that found their common customers first."""
    rng = np.random.default_rng(0)
    ids = [f"c{k}" for k in range(60)]
    bank = pd.DataFrame({"id": ids, "income": rng.normal(size=60)})
    shop = pd.DataFrame({"id": ids[10:], "basket": rng.normal(size=50)})
    companies = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", rng.integers(0, 2, 60)), id="id")
    place = tmp_path_factory.mktemp("matched")
    edges = {"basket": [-1.0, 0.0, 1.0]}
    companies.fit("vertical.bucket_rr", epsilon=4.0, edges=edges, n_estimators=2, max_depth=2).save(place)
    return place


def test_the_ledger_shows_the_matching(matched: Path, run: Any) -> None:
    """Its messages, totals and statement come before those of the training, in words and as JSON."""
    told = run("ledger", matched, "--json").json["matching"]
    names = {entry["message"] for entry in told["messages"]}
    assert names
    assert names.isdisjoint(entry["message"] for entry in run("ledger", matched, "--json").json["messages"])
    assert told["totals"].keys() == {"bank", "shop"}
    shown = run("ledger", matched).stdout
    assert shown.index("Before it, matching by ids") < shown.index(min(names)) < shown.index("The training")
    assert " ".join(told["statement"]["words"].split()) in " ".join(shown.split())
    assert run("ledger", matched, "--party", "shop", "--json").json["matching"]["totals"].keys() == {"shop"}


def test_damaged_runs_end_a_command_in_one_line(matched: Path, run: Any) -> None:
    """Exit code 3 for the run and its ledgers, 4 for its model; 70 for none of them."""
    for name, text, code in [
        ("run.json", DEEP, 3),
        ("run.json", '{"format": 1}', 3),
        ("run.json", '{"format": 1, "protocol": "none"}', 3),
        ("ledgers/bank.jsonl", DEEP, 3),
        ("ledgers/bank.jsonl", '{"party": "bank"}', 3),
        ("alignment/alignment.json", DEEP, 3),
        ("alignment/bank/rows.npy", "no rows", 3),
        ("model/parties.json", DEEP, 4),
        ("model/parties.json", '{"parties": ["../bank"]}', 4),
        ("model/bank/part.json", DEEP, 4),
    ]:
        path = matched / name
        whole = path.read_bytes()
        path.write_text(text)
        for verb in ("ledger", "attack"):
            told = run(verb, matched, code=code).stderr
            assert len(told.splitlines()) == 1
            assert "Traceback" not in told
        path.write_bytes(whole)
    run("ledger", matched)
