"""`hedgerow train`: flags, job files, environment, results, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from hedgerow.estimators.plain import BoostedTreesClassifier, load_model

SMALL = ("--set", "max_iter=5", "--set", "max_depth=3")
AWAY = ("--drop", "id", "--drop", "amount", "--drop", "weight")


def write_job(folder: Path, text: str) -> Path:
    """A job file in that folder."""
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_alone_train_a_classifier(run: Any, people: Path) -> None:
    """The model file predicts, the result says what was done, the summary fits 80 columns."""
    args = ("train", "--data", people / "train.parquet", "--label", "answer", *AWAY, *SMALL)
    shown = run(*args, "--out", people / "m.json")
    assert "A classifier for 'answer': 5 iterations" in shown.stdout
    assert max(len(line) for line in shown.stdout.splitlines()) <= 80
    assert f"model written to {people / 'm.json'}" in shown.stderr
    told = run(*args, "--test", people / "test.parquet", "--out", people / "out", "--json").json
    assert told["classes"] == ["no", "yes"]
    assert told["rows"] == {"train": 300, "test": 300}
    assert (told["columns"], told["categorical_columns"]) == (3, 1)
    assert set(told["scores"]["test"]) == {"auc", "accuracy", "logloss"}
    assert told["scores"]["test"]["auc"] > 0.95
    assert json.loads((people / "out" / "result.json").read_text()) == told
    assert (
        load_model(people / "out" / "model.json")
        .predict(pq.read_table(people / "test.parquet").select(["town", "age", "income"]))
        .tolist()
        .count("yes")
    )


def test_the_command_trains_what_the_library_trains(run: Any, people: Path) -> None:
    """The same rows and parameters give the same model, bit for bit."""
    run("train", "--data", people / "train.csv", "--label", "answer", *AWAY, *SMALL, "--out", people / "m.json")
    table = pc.read_csv(people / "train.csv")
    X = table.select(["town", "age", "income"])
    ours = BoostedTreesClassifier(max_iter=5, max_depth=3).fit(X, table.column("answer"))
    np.testing.assert_array_equal(load_model(people / "m.json").predict_proba(X), ours.predict_proba(X))


def test_csv_and_parquet_give_the_same_model(run: Any, people: Path) -> None:
    """How a table is stored does not matter."""
    for kind in ("csv", "parquet"):
        args = ("train", "--data", people / f"train.{kind}", "--label", "answer", *AWAY, *SMALL)
        run(*args, "--out", people / f"{kind}.json")
    assert (people / "csv.json").read_text() == (people / "parquet.json").read_text()


def test_a_job_file_says_it_all(run: Any, people: Path) -> None:
    """Relative paths start from the job file; validation rows stop the training; test predictions are written."""
    job = write_job(
        people,
        """
        [data]
        train = "train.parquet"
        valid = "valid.csv"
        test = "test.parquet"
        label = "answer"
        weight = "weight"
        drop = ["id", "amount"]
        categorical = ["age"]

        [model]
        kind = "classifier"
        n_estimators = 300
        learning_rate = 0.5
        max_leaf_nodes = "none"

        [output]
        model = "out/model.json"
        result = "out/result.json"
        predictions = "out/test.csv"
        """,
    )
    told = run("train", job, "--json").json
    assert told["params"] == {"max_iter": 300, "learning_rate": 0.5, "max_leaf_nodes": None}
    assert told["rows"] == {"train": 300, "valid": 300, "test": 300}
    assert told["categorical_columns"] == 2
    assert told["iterations"] == told["best_iteration"] + 1 < 300
    written = pc.read_csv(people / "out" / "test.csv")
    assert written.column_names == ["prediction", "probability_no", "probability_yes"]
    assert written.num_rows == 300
    assert (people / "out" / "result.json").exists()


def test_a_flag_beats_the_environment_which_beats_the_file(
    run: Any, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sources, one order."""
    job = write_job(
        people,
        '[data]\ntrain="train.parquet"\nlabel="answer"\n[model]\nmax_iter=2\nmax_depth=2\n[output]\nmodel="m.json"\n',
    )
    assert run("train", job, "--json").json["iterations"] == 2
    monkeypatch.setenv("HEDGEROW_MODEL_MAX_ITER", "3")
    monkeypatch.setenv("HEDGEROW_DATA_DROP", "id, amount")
    told = run("train", job, "--json").json
    assert (told["iterations"], told["columns"]) == (3, 4)
    assert run("train", job, "--set", "max_iter=4", "--json").json["iterations"] == 4


def test_a_regressor_follows_from_fractions(run: Any, people: Path) -> None:
    """Labels with fractions need no --kind; whole numbers that could be either do."""
    args = ("train", "--data", people / "train.parquet", *SMALL, "--out", people / "m.json", "--json")
    told = run(*args, "--label", "amount", "--drop", "id").json
    assert told["kind"] == "regressor"
    assert set(told["scores"]["train"]) == {"rmse", "mae", "r2"}
    assert "say --kind classifier" in run(*args, "--label", "age", code=2).stderr
    assert run(*args, "--label", "age", "--kind", "regressor", "--set", "loss=poisson").json["kind"] == "regressor"


def test_a_dry_run_checks_and_writes_nothing(run: Any, people: Path) -> None:
    """Columns and parameters are looked at; no model appears."""
    args = (
        "train",
        "--data",
        people / "train.parquet",
        "--label",
        "answer",
        "--out",
        people / "new" / "m.json",
        "--dry-run",
    )
    told = run(*args, "--json").json
    assert told["dry_run"] is True
    assert told["files"]["train"]["rows"] == 300
    assert "would write model" in run(*args).stdout
    assert not (people / "new").exists()
    run(*args[:-1], "--drop", "nothing", "--dry-run", code=3)


def test_progress_goes_to_stderr_on_request(run: Any, people: Path) -> None:
    """--verbose gives a line per iteration, --quiet gives nothing at all."""
    args = ("train", "--data", people / "train.parquet", "--label", "answer", *SMALL, "--out", people / "m.json")
    assert run(*args, "--verbose").stderr.count("train-logloss:") == 5
    silent = run(*args, "--quiet")
    assert (silent.stdout, silent.stderr) == ("", "")


JOB_MISTAKES = {
    'lable = "x"': "line 4: unknown key 'lable' in [data]; did you mean 'label'?",
    "label = 3": "line 4: label must be text in quotes, got 3",
    "drop = 3": "line 4: drop must be a list of column names",
    "label = ": "Invalid value (at line 4",
    "[modle]": "line 4: unknown section or key 'modle'; did you mean 'model'?",
    "[model]\nmax_itre = 3": "line 5: [model] has no parameter max_itre; did you mean max_iter?",
    "[model]\nreg_alpha = 3": "line 5: [model] has no parameter reg_alpha: there is no L1 penalty",
    '[model]\nkind = "tree"': "line 5: kind must be 'classifier' or 'regressor', got 'tree'",
    "[model]\nmax_iter = 3\nn_estimators = 4": "max_iter is given twice",
    '[model]\ncategorical_features = "x"': "line 5: name categorical columns with [data] categorical",
    "[model]\nlearning_rate = -1": "learning_rate must be a number above 0, got -1",
    "# no label": "the job does not say [data] label; write it in the job file or give --label COLUMN",
    'label = "answer"\n[output]\nmodel = "train.parquet"': "is to be read and written; choose another output",
    'label = "answer"\n[output]\npredictions = "p.csv"': "[output] predictions needs [data] test",
    'label = "answer"\n[output]\npredictions = "p.txt"': "must end in .parquet or .csv",
}


@pytest.mark.parametrize("mistake", JOB_MISTAKES)
def test_a_mistake_in_the_job_file_is_told_with_its_line(mistake: str, run: Any, people: Path) -> None:
    """Exit code 2, one line, the line number, the nearest key."""
    job = write_job(people, f'# a job\n[data]\ntrain = "train.parquet"\n{mistake}\n')
    label = ("--label", "answer") if "[model]" in mistake else ()
    told = run("train", job, *label, code=2)
    assert JOB_MISTAKES[mistake] in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not list(people.glob("*.json"))


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["no_such_job.toml"], 2, "there is no such job file"),
        ([], 2, "does not say [data] train"),
        (["--data", "train.txt", "--label", "answer"], 2, "must end in .parquet or .csv"),
        (["--data", "nothing.csv", "--label", "answer"], 3, "nothing.csv: there is no such file"),
        (
            ["--data", "train.csv", "--label", "answr"],
            3,
            "no column 'answr', which is the label; did you mean 'answer'?",
        ),
        (["--data", "broken.parquet", "--label", "answer"], 3, "cannot be read as parquet"),
        (["--data", "empty.csv", "--label", "a"], 3, "empty.csv"),
        (["--data", "train.csv", "--label", "answer", "--weight", "wait"], 3, "no column 'wait'"),
        (["--data", "train.csv", "--label", "town", "--set", "max_bins=1"], 2, "max_bins must be between 2 and 256"),
        (["--data", "train.csv", "--label", "answer", "--set", "max_iter"], 2, "--set max_iter: write it as"),
        (
            ["--data", "train.csv", "--label", "answer", "--set", "dta.drop=x"],
            2,
            "unknown section 'dta'; did you mean 'data'?",
        ),
        (["--data", "train.csv", "--label", "answer", "--kind", "tree"], 2, "kind must be"),
        (["--data", "train.csv", "--label", "answer", "--set", "monotonic_cst=[1]"], 2, "monotonic_cst has 1 entries"),
        (["--data", "train.csv", "--label", "income"], 3, "Input y contains NaN"),
    ],
)
def test_mistakes_have_exit_codes_and_one_line(
    args: list[str], code: int, words: str, run: Any, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage is 2, data is 3; there is no traceback, and with --json the error is an object."""
    monkeypatch.chdir(people)
    (people / "broken.parquet").write_bytes(b"PAR1 not really")
    (people / "empty.csv").write_text("a,b\n", encoding="utf-8")
    told = run("train", *args, "--json", code=code)
    assert words in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert told.json["error"]["exit_code"] == code
    assert words in told.json["error"]["message"]
    assert not (people / "model.json").exists()
