"""`hedgerow train --epsilon`: a private model from the shell, with its statement, and nothing about the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hedgerow.estimators.plain import load_model
from hedgerow.estimators.private import DPBoostClassifier, PrivateBoostingClassifier, PrivateBoostingRegressor
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.schema import Schema

DROP = ("--drop", "id", "--drop", "weight")
COLUMNS = {
    "bounds": {"age": (0, 120), "income": (0, 50)},
    "levels": {"town": ["ash", "elm", "oak"]},
    "integers": ["age"],
    "may_be_missing": ["income"],
}


@pytest.fixture
def schema(people: Path) -> Path:
    """The public facts about the answers, in a file."""
    Schema.from_public(**COLUMNS, classes=["no", "yes"]).save(people / "schema.json")
    return people / "schema.json"


def flags(people: Path, *more: Any) -> tuple[Any, ...]:
    """A job on the training rows, with the answer as label."""
    return (
        "train", "--data", people / "train.parquet", "--label", "answer", *DROP, "--drop", "amount",
        "--out", people / "model.json", *more,
    )  # fmt: skip


def test_a_private_model_comes_with_its_statement(run: Any, people: Path, schema: Path) -> None:
    """The statement is printed and in the file; of the training rows neither scores nor their number are told."""
    result = run(*flags(people, "--epsilon", 2, "--delta", 1e-5, "--schema", schema, "--json")).json
    assert result["privacy"]["epsilon"] <= 2.0
    assert "adding one row" in result["statement"]
    assert result["scores"] == {}
    assert result["rows"] == {}
    model = load_model(people / "model.json")
    assert isinstance(model, PrivateBoostingClassifier)
    assert model.privacy_statement().text(80) == result["statement"]


def test_people_read_the_statement(run: Any, people: Path, schema: Path) -> None:
    """The summary ends with it, and scores test rows if there are any."""
    shown = run(*flags(people, "--epsilon", 2, "--schema", schema, "--test", people / "test.parquet")).stdout
    assert "The guarantee: differential privacy with epsilon = 2" in " ".join(shown.split())
    assert "accuracy" in shown
    assert "300 train" not in shown


def test_another_protocol_and_its_parameters(run: Any, people: Path, schema: Path) -> None:
    """--protocol chooses, --set passes what that estimator takes; delta is not for pure epsilon."""
    more = ("--epsilon", 5, "--schema", schema, "--protocol", "central.dpboost")
    result = run(*flags(people, *more, "--set", "n_estimators=7", "--json")).json
    assert result["iterations"] == 7
    assert result["privacy"]["delta"] == 0.0
    assert isinstance(load_model(people / "model.json"), DPBoostClassifier)
    refused = run(*flags(people, *more, "--delta", 1e-5), code=2)
    assert "delta is for central.gaussian" in refused.stderr


def test_a_schema_with_label_bounds_makes_a_regressor(run: Any, people: Path) -> None:
    """The schema says what the label is."""
    path = people / "amounts.json"
    Schema.from_public(**COLUMNS, label_bounds=(0, 130)).save(path)
    run("train", "--data", people / "train.parquet", "--label", "amount", *DROP, "--drop", "answer",
        "--epsilon", 2, "--schema", path, "--out", people / "model.json")  # fmt: skip
    assert isinstance(load_model(people / "model.json"), PrivateBoostingRegressor)


def test_a_job_file_with_a_budget(run: Any, people: Path, schema: Path) -> None:
    """Charged to the dataset of the budget file; what goes beyond it ends with exit code 6 and no model."""
    BudgetFile(people / "people.budget").open("answers", epsilon=1.5, delta=1e-5)
    (people / "job.toml").write_text(
        '[data]\ntrain = "train.parquet"\nlabel = "answer"\ndrop = ["id", "weight", "amount"]\n'
        '[output]\nmodel = "model.json"\n'
        f'[privacy]\nepsilon = 1.0\nschema = "{schema.name}"\nbudget = "people.budget"\ndataset = "answers"\n'
    )
    run("train", people / "job.toml")
    (people / "model.json").unlink()
    result = run("train", people / "job.toml", "--json", code=6).json
    assert result["error"]["type"] == "BudgetExceeded"
    assert not (people / "model.json").exists()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--epsilon", 1), 2, "does not say [privacy] schema"),
        (("--schema", "schema.json"), 2, "does not say [privacy] epsilon"),
        (("--epsilon", -1, "--schema", "schema.json"), 2, "epsilon must be a number above 0"),
        (("--epsilon", 1, "--schema", "nowhere.json"), 3, "the schema cannot be read"),
        (("--epsilon", 1, "--schema", "schema.json", "--protocol", "central"), 2, "protocol must be one of"),
        (("--epsilon", 1, "--schema", "schema.json", "--weight", "age"), 2, "weight cannot be used with [privacy]"),
        (("--epsilon", 1, "--schema", "schema.json", "--valid", "valid.parquet"), 2, "valid cannot be used"),
        (("--epsilon", 1, "--schema", "schema.json", "--set", "early_stopping=true"), 2, "early_stopping"),
        (("--epsilon", 1, "--schema", "schema.json", "--set", "privacy.dataset=x"), 2, "belong together"),
    ],
)
def test_mistakes_are_told(
    more: tuple[Any, ...], code: int, words: str, run: Any, people: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, with the remedy where there is one, before anything is trained."""
    monkeypatch.chdir(schema.parent)
    assert words in run(*flags(people, *more), code=code).stderr
    assert not (people / "model.json").exists()


def test_what_a_dry_run_says(run: Any, people: Path, schema: Path) -> None:
    """A private job can be checked without being charged."""
    BudgetFile(people / "people.budget").open("answers", epsilon=1.5, delta=1e-5)
    budget = ("--set", f"privacy.budget={people / 'people.budget'}", "--set", "privacy.dataset=answers")
    run(*flags(people, "--epsilon", 1, "--schema", schema, *budget, "--dry-run"))
    assert BudgetFile(people / "people.budget").dataset("answers").spent().epsilon == 0.0


def test_predictions_of_a_private_model(run: Any, people: Path, schema: Path) -> None:
    """`hedgerow predict` takes the file like any other."""
    run(*flags(people, "--epsilon", 5, "--schema", schema, "--protocol", "central.dpboost"))
    run("predict", people / "model.json", people / "test.parquet", "--out", people / "out.csv", "--proba")
    header = (people / "out.csv").read_text().splitlines()[0]
    assert "probability_yes" in header
    assert json.loads((people / "model.json").read_text())["meta"]["privacy"]
