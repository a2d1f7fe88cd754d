"""`hedgerow ledger`: who learned what in a saved run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.federation.federation import Federation
from hedgerow.federation.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a bank and two shops."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(150, 4))
    tables = {"bank": values[:, :1], "shop": values[:, 1:3], "club": values[:, 3:]}
    federation = Federation.vertical(tables, labels=("bank", (values.sum(axis=1) > 0).astype(int)))
    place = tmp_path_factory.mktemp("run")
    options = {"epsilon": 4.0, "edges": "quantile", "n_estimators": 2, "max_depth": 2}
    federation.fit("vertical.bucket_rr", **options, record=True).save(place)
    return place


def test_all_messages_are_told(folder: Path, run: Any) -> None:
    """With --json: every kind of message between every two parties, and totals that are the meters'."""
    told = run("ledger", folder, "--json").json
    saved = Run.load(folder)
    assert told["protocol"] == "vertical.bucket_rr"
    assert told["recorded"] == ["bank", "shop", "club"]
    assert sum(entry["number"] for entry in told["messages"]) == sum(
        len(book.lines("disclosed")) for book in saved.ledgers.values()
    )
    assert told["totals"] == {party: meter["total"] for party, meter in saved.traffic.items()}
    buckets = [entry for entry in told["messages"] if entry["message"] == "vertical.bucket_rr.buckets"]
    assert [(entry["from"], entry["to"], entry["with_noise"]) for entry in buckets] == [
        ("shop", "bank", 1),
        ("club", "bank", 1),
    ]
    assert buckets[0]["protection"].startswith("randomised by its owner")
    assert told["statement"] == saved.statement().to_dict()


def test_the_table_reads_well(folder: Path, run: Any) -> None:
    """In 80 columns: who learned what from whom, how it was protected, totals, and the statement."""
    shown = run("ledger", folder).stdout
    words = " ".join(shown.split())
    assert "What bank learned" in shown
    assert "the bucket of every value of the feature holder's columns (randomised by its owner;" in words
    assert "Recorded: the folder holds transcripts, which are as sensitive as the data." in words
    assert "In all party sent bytes received bytes bank" in words
    assert " ".join(str(Run.load(folder).statement()).split()) in words
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_one_party_is_enough(folder: Path, run: Any) -> None:
    """--party shows what this party learned and disclosed, and nothing between others."""
    told = run("ledger", folder, "--party", "club", "--json").json
    assert told["messages"]
    assert all("club" in (entry["from"], entry["to"]) for entry in told["messages"])
    assert list(told["totals"]) == ["club"]
    wrong = run("ledger", folder, "--party", "clubs", code=2)
    assert wrong.stderr == "hedgerow: --party 'clubs': the run has ledgers of bank, shop, club\n"


def test_books_that_disagree_are_refused(folder: Path, run: Any) -> None:
    """A line that one party changed afterwards: exit code 3, naming both."""
    book = folder / "ledgers" / "shop.jsonl"
    text = book.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    place = next(k for k, line in enumerate(lines) if line["direction"] == "disclosed")
    lines[place]["n_bytes"] += 1
    try:
        book.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        assert "from shop to bank: shop wrote" in run("ledger", folder, code=3).stderr
    finally:
        book.write_text(text, encoding="utf-8")


def test_a_folder_without_a_run_is_told_so(tmp_path: Path, run: Any) -> None:
    """Exit code 3 and one line; with --json an object too."""
    told = run("ledger", tmp_path, "--json", code=3)
    assert told.json["error"]["exit_code"] == 3
    assert "there is no saved run in it; run.save(folder) writes one" in told.stderr
