"""`hedgerow report`: of a saved run, of a run in a party's home, of a model file; what comes beside them is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.federation.run import Run
from twins.documented import blocks
from twins.organisations import HOLDERS, TREES, job_text, proposed, trained, two_organisations
from twins.pages import parsed

LABELS = np.random.default_rng(0).integers(0, 2, 300)


def tables() -> dict[str, pa.Table]:
    """What both parties have."""
    rng = np.random.default_rng(1)
    return {name: pa.table({f"{name}_{k}": rng.normal(size=300) for k in range(2)}) for name in ("bank", "shop")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of two parties."""
    federation = Federation.vertical(tables(), labels=("bank", LABELS))
    folder = tmp_path_factory.mktemp("saved") / "run"
    options = {"epsilon": 4.0, "delta": 1e-5, "n_estimators": 2, "max_depth": 2, "record": True}
    federation.fit("vertical.noised_gradients", **options).save(folder)
    return folder


def test_a_saved_run_gets_its_reports(saved: Path, run: Any) -> None:
    """One file for each party and one for all, in the run's folder; JSON says what was written."""
    whole, shop = run("report", saved, "--json").json, run("report", saved, "--party", "shop", "--json").json
    assert [Path(each["out"]).name for each in (whole, shop)] == ["report.html", "report-shop.html"]
    assert shop["bytes"] == (saved / "report-shop.html").stat().st_size
    assert shop["party"] == "shop"
    text = (saved / "report-shop.html").read_text()
    assert all(sentence in parsed(text).text for sentence in shop["guarantee"])
    assert "bank_0" not in text
    assert "file://" in run("report", saved, "--party", "shop").stdout
    assert "SHA-256 of ledgers/shop.jsonl" in text
    assert "hedgerow: --party" not in text


def test_what_is_given_beside_a_run_is_shown(saved: Path, run: Any, tmp_path: Path) -> None:
    """Attacks, and rows that were scored with their labels."""
    pq.write_table(pa.table({"y": LABELS}), tmp_path / "labels.parquet")
    found = run("attack", saved, "--labels", tmp_path / "labels.parquet", "--column", "y", "--json")
    (tmp_path / "attacks.json").write_text(found.stdout)
    second = np.random.default_rng(2).random(300)
    scored = {"y": LABELS, "probability_0": 1 - second, "probability_1": second}
    pq.write_table(pa.table(scored), tmp_path / "scored.parquet")
    words = ("--attacks", tmp_path / "attacks.json", "--scored", tmp_path / "scored.parquet", "--label", "y")
    told = run("report", saved, *words, "--out", tmp_path / "r.html", "--json").json
    assert {"Attacks", "How good it is"} <= set(told["sections"])
    assert "300 rows of scored.parquet" in parsed((tmp_path / "r.html").read_text()).by_id("quality").text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"outcomes": [{}]}',
        '{"outcomes": [{"attack": "a", "attacker": 1, "target": "", "verdict": "holds"}]}',
        '{"outcomes": [{"attack": "a", "attacker": "b", "target": "", "verdict": "holds", "chance": "x"}]}',
        '{"outcomes": [{"attack": "a", "attacker": "b", "target": "", "verdict": "x", "measure": "m", "value": {}}]}',
    ],
)
def test_a_damaged_file_of_attacks_is_refused(saved: Path, run: Any, tmp_path: Path, content: str) -> None:
    """The file is named, and nothing is written."""
    (tmp_path / "attacks.json").write_text(content)
    told = run("report", saved, "--attacks", tmp_path / "attacks.json", "--out", tmp_path / "r.html", code=3)
    assert "attacks.json is not what hedgerow attack --json prints" in told.stderr
    assert not (tmp_path / "r.html").exists()


def test_a_model_file_has_a_report(run: Any, tmp_path: Path) -> None:
    """Beside the model; options of runs are refused."""
    table = pa.table({"x": np.arange(100.0), "y": np.arange(100.0) % 7})
    BoostedTreesClassifier(max_iter=2).fit(table, LABELS[:100]).save_model(tmp_path / "model.json")
    told = run("report", tmp_path / "model.json", "--json").json
    assert told["out"] == str(tmp_path / "model.report.html")
    assert told["guarantee"] == []
    assert "is a model" in run("report", tmp_path / "model.json", "--party", "shop", code=2).stderr
    assert "--label is a column of --scored" in run("report", tmp_path / "model.json", "--label", "y", code=2).stderr
    (tmp_path / "scored.csv").write_text("y,prediction\n0,no\n")
    words = ("report", tmp_path / "model.json", "--scored", tmp_path / "scored.csv")
    assert "needs --label" in run(*words, code=2).stderr
    assert "predict them with --proba" in run(*words, "--label", "y", code=3).stderr
    (tmp_path / "scored.csv").write_text("y,probability_0,probability_1\n0,0.5,1.5\n")
    assert "between 0 and 1" in run(*words, "--label", "y", code=3).stderr


def test_every_party_of_a_run_between_organisations_has_a_report(tmp_path: Path, run: Any) -> None:
    """From its own folder alone: its own columns, ledger, matched rows, budget, signed proposal and digests."""
    homes = two_organisations(tmp_path, policy="[policy.budget]\nepsilon = 50.0\ndelta = 0.1")
    text = job_text("vertical.noised_gradients", {**TREES, "epsilon": 2.0, "delta": 1e-6}, HOLDERS)
    proposal = proposed(homes["bank"], text)
    folders = trained(homes, proposal)
    for name, home in homes.items():
        told = run("report", proposal.run_id[:8], "--home", home.path, "--json").json
        assert told["out"] == str(folders[name] / "report.html")
        page = parsed(Path(told["out"]).read_text())
        own, others = ("x0", "x3") if name == "bank" else ("x3", "x0")
        listed = [cell.text for cell in page.by_id("model").all("th")]
        assert own in listed
        assert others not in listed
        assert "240 rows were matched by their ids" in page.by_id("first").text
        assert "One label: epsilon = 2 and delta = 1e-6" in page.by_id("first").seen
        assert proposal.hash in page.by_id("repeat").text
        assert "Who learned what: matching rows by ids" in told["sections"]
        assert ("Budget" in told["sections"]) == (name == "bank")
    assert run("report", folders["shop"], "--json").json["party"] == "shop"
    assert "reports for itself only" in run("report", folders["shop"], "--party", "bank", code=2).stderr
    statement = folders["bank"] / "statement.json"
    statement.write_text(json.dumps({"words": "nothing"}))
    assert "statement.json" in run("report", folders["bank"], code=3).stderr
    (folders["shop"] / "ledger.jsonl").write_text("{}\n")
    assert "ledger" in run("report", folders["shop"], code=3).stderr


def test_the_commands_of_the_page(saved: Path, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of report.md, typed as they are printed; and its Python."""
    homes = two_organisations(tmp_path)
    text = job_text("vertical.noised_gradients", {**TREES, "epsilon": 2.0, "delta": 1e-6}, HOLDERS)
    proposal = proposed(homes["shop"], text)
    trained(homes, proposal)
    monkeypatch.chdir(homes["shop"].path)
    Path("runs/loans").symlink_to(saved)
    model = BoostedTreesClassifier(max_iter=2).fit(tables()["bank"], LABELS)
    model.save_model("loans.json")
    commands, python = blocks("reference/report.md")
    assert [words[:2] for words in commands.commands] == [["hedgerow", "report"]] * 3
    for words in commands.commands:
        run(*(proposal.run_id[:8] if word == "3f9a" else word for word in words[1:]))
    names = {"rows": tables(), "labels": LABELS, "model": model, "X_test": tables()["bank"], "y_test": LABELS}
    exec(python.text, {"run": Run.load(saved), **names})  # noqa: S102 - our own page
    written = {name: parsed(Path(f"{name}.html").read_text()).text for name in ("report", "shop", "bank", "model")}
    assert "How good it is" in written["bank"]
    assert "How good it is" not in written["shop"]
