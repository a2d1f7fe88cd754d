"""`hedgerow train` and `hedgerow predict` on folders of Parquet files: as on one file, some rows at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hedgerow.engine import blocks as reading
from hedgerow.node import sources


@pytest.fixture
def folders(people: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same rows as files of folders beside the single ones."""
    monkeypatch.setattr(reading, "BATCH_VALUES", 300)
    monkeypatch.setattr(reading, "FEWEST_ROWS", 50)
    for name in ("train", "valid", "test"):
        table = pq.read_table(people / f"{name}.parquet")
        (people / name).mkdir()
        for number in range(3):
            pq.write_table(table.slice(100 * number, 100), people / name / f"{number}.parquet")
    return people


def model_of(path: Path) -> Any:
    """What a model file says."""
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", ["answer", "amount", "age"])
def test_a_folder_gives_the_model_of_the_file(label: str, run: Any, folders: Path) -> None:
    """With weights, rows to watch, categories by name and columns left out."""
    more = [
        "--weight",
        "weight",
        "--drop",
        "id",
        "--categorical",
        "town",
        "--set",
        "max_iter=5",
        "--set",
        "max_bins=20",
    ]
    kind = ["--kind", "regressor"] if label == "age" else []
    models = []
    for suffix in (".parquet", ""):
        data = [f"--{name}={folders / which}{suffix}" for name, which in (("data", "train"), ("valid", "valid"))]
        out = folders / f"out{suffix}.json"
        data += ["--test", f"{folders / 'test'}{suffix}", "--label", label, "--out", str(out)]
        told = run("train", *data, *more, *kind, "--json").json
        models.append(model_of(out))
        assert told["rows"] == {"train": 300, "valid": 300, "test": 300}
        assert sorted(told["scores"]) == (["test", "train", "valid"] if suffix else ["test", "valid"])
    assert models[0] == models[1]


def test_predictions_of_a_folder_are_those_of_the_file(run: Any, folders: Path) -> None:
    """With columns to keep, and as an output of a training too."""
    model = folders / "model.json"
    run("train", "--data", folders / "train", "--label", "answer", "--out", model, "--set", "max_iter=3",
        "--test", folders / "test", "--set", f"output.predictions={folders / 'trained.parquet'}")  # fmt: skip
    for data in ("test", "test.parquet"):
        out = folders / f"scored-{data}.parquet"
        told = run("predict", model, folders / data, "--out", out, "--proba", "--keep", "id", "--json").json
        assert told["rows"] == 300
        assert told["columns"] == ["id", "prediction", "probability_no", "probability_yes"]
    scored = pq.read_table(folders / "scored-test.parquet")
    assert scored.equals(pq.read_table(folders / "scored-test.parquet.parquet"))
    assert pq.read_table(folders / "trained.parquet").equals(scored.drop_columns(["id"]))


def test_a_dry_run_looks_at_the_columns_only(run: Any, folders: Path) -> None:
    """And writes nothing."""
    told = run("train", "--data", folders / "train", "--label", "answer", "--dry-run", "--json").json
    assert told["files"]["train"]["rows"] == 300
    run("train", "--data", folders / "train", "--label", "answer", "--out", folders / "m.json", "--set", "max_iter=2")
    told = run(
        "predict", folders / "m.json", folders / "test", "--out", folders / "o.parquet", "--dry-run", "--json"
    ).json
    assert told["rows"] == 300
    assert not (folders / "o.parquet").exists()


def test_a_large_file_is_read_some_rows_at_a_time(run: Any, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would fill a third of the memory."""
    assert not sources.is_streamed(folders / "train.parquet")
    monkeypatch.setattr(sources, "memory_available", lambda: 1000)
    assert sources.is_streamed(folders / "train.parquet")
    assert not sources.is_streamed(folders / "train.csv")
    told = run("train", "--data", folders / "train.parquet", "--label", "answer", "--set", "max_iter=2", "--json",
               "--out", folders / "m.json").json  # fmt: skip
    assert told["scores"] == {}


def test_mistakes_are_told(run: Any, folders: Path) -> None:
    """Columns that are not there, formats that cannot be written some at a time, outputs among what is read."""
    train = ("train", "--data", folders / "train")
    assert "did you mean 'answer'" in run(*train, "--label", "anser", code=3).stderr
    assert (
        "is to be read and written"
        in run(*train, "--label", "answer", "--out", folders / "train" / "m.json", code=2).stderr
    )
    run(*train, "--label", "answer", "--out", folders / "m.json", "--set", "max_iter=2")
    predict = ("predict", folders / "m.json", folders / "test", "--out")
    assert "name a .parquet file" in run(*predict, folders / "o.csv", code=2).stderr
    assert "is to be read and written" in run(*predict, folders / "test" / "o.parquet", code=2).stderr
    (folders / "test" / "9.parquet").write_bytes(b"no")
    assert "9.parquet: cannot be read as Parquet" in run(*predict, folders / "o.parquet", code=3).stderr
    assert not (folders / "o.parquet").exists()


def test_a_cluster_that_is_not_there_is_told(run: Any, folders: Path) -> None:
    """By flag, and in the job file; one file too is left to the actors, and not read into memory."""
    pytest.importorskip("ray")
    train = ("train", "--data", folders / "train.parquet", "--label", "answer", "--out", folders / "m.json")
    for more in (("--backend", "127.0.0.1:1"), ("--set", "backend=127.0.0.1:1")):
        assert "backend: nobody answers at 127.0.0.1:1" in run(*train, *more, code=3).stderr
    assert "backend: 'nowhere' is not an address" in run(*train, "--backend", "nowhere", code=2).stderr
    assert not (folders / "m.json").exists()


@pytest.mark.long
def test_actors_train_the_model_of_the_file(run: Any, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster that is there for as long as the training."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for name, more in (("here", ()), ("there", ("--backend", "ray"))):
        run("train", "--data", folders / "train", "--label", "answer", "--drop", "id", "--set", "max_iter=3",
            "--out", folders / f"{name}.json", *more)  # fmt: skip
    here, there = model_of(folders / "here.json"), model_of(folders / "there.json")
    assert here["trees"] == there["trees"]
