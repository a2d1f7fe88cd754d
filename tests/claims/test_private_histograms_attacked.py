"""Recorded runs of vertical.private_histograms under attack: least squares on everything that was opened.

Labels are coins that columns say nothing about, so whatever is found out about a label was given away by it. Without
noise the same attack has every label: it is one.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hedgerow import Federation, Schema
from hedgerow.attacks import registry
from hedgerow.attacks.private_histograms import noisy_sums as private_histograms
from hedgerow.attacks.registry import AS_STATED, BROKEN, HOLDS, NOT_RUN, NOT_SCORED, Context, attacked
from hedgerow.attacks.results import ceiling
from hedgerow.cli import app
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.shares.full_tree import FullTree
from hedgerow.runtime.party import Party

DELTA = 1e-5
SUMS = ("unmask_least_squares", "all_but_one")
SLACK = 0.05  # an area over 400 rows has a standard deviation of 0.03
OWN = {"bank": ["a", "b"], "shop": ["c", "d", "e"]}
COLUMNS = [column for columns in OWN.values() for column in columns]
SCHEMA = Schema.from_public(bounds=dict.fromkeys(COLUMNS, (-3.0, 3.0)), may_be_missing=["e"], classes=[0, 1])


class Case(NamedTuple):
    """A run."""

    epsilon: float
    reveal: str
    n_rows: int = 400
    n_trees: int = 16
    signal: float = 0.0


FEW_ROWS = {"n_rows": 60, "n_trees": 24}


@cache
def people(n_rows, signal=0.0):
    """Tables of two parties, one with gaps, and labels: coins, or such as follow from columns of both."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame(rng.normal(size=(n_rows, len(COLUMNS))), columns=COLUMNS)
    labels = (signal * (table["a"] + table["c"]) + rng.logistic(size=n_rows) > 0).astype(int)
    table["e"] = table["e"].where(rng.random(n_rows) > 0.2)
    return {party: table[columns] for party, columns in OWN.items()}, labels.to_numpy()


@cache
def recorded(case):
    """A run with all that was said, and the same noise every time."""
    made = Party.__init__

    def steady(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.rng = SecureRandom.from_seed(hashlib.sha256(self.name.encode()).digest())

    tables, labels = people(case.n_rows, case.signal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Party, "__init__", steady)
        return Federation.vertical(tables, labels=("bank", labels)).fit(
            "vertical.private_histograms",
            record=True,
            epsilon=case.epsilon,
            delta=DELTA,
            schema=SCHEMA,
            reveal=case.reveal,
            n_estimators=case.n_trees,
            max_depth=3,
            max_bins=16,
            learning_rate=0.8,
            random_state=0,
        )


@cache
def outcomes(case):
    """By attacker, with all tables and labels there to count with."""
    tables, labels = people(case.n_rows, case.signal)
    found = attacked(Context(recorded(case), labels={"bank": labels}, tables=tables), SUMS)
    return {outcome.attacker: outcome for outcome in found}


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_least_squares_stays_below_the_ceiling(epsilon, reveal):
    """By each feature holder, by who has all columns, and by who knows all labels or all rows but one."""
    allowed = ceiling(mu_for(epsilon, DELTA))
    found = outcomes(Case(epsilon, reveal))
    assert list(found) == ["shop", "all columns", "all but one label", "all but one row"]
    for outcome in found.values():
        assert (outcome.measure, outcome.chance, outcome.verdict) == ("AUC", 0.5, HOLDS)
        assert outcome.ceiling == pytest.approx(allowed, abs=1e-3)
        assert outcome.value.estimate < allowed + SLACK
    # Nobody can know more than these two, who are measured by the noise itself; and they do know something.
    for name in ("all but one label", "all but one row"):
        assert found[name].value.estimate < allowed
        assert found[name].value.low > 0.5 + 0.3 * (allowed - 0.5)


@pytest.mark.parametrize("case", [Case(math.inf, "winner", **FEW_ROWS), Case(math.inf, "histogram")], ids=str)
def test_without_noise_it_has_the_labels(case):
    """Many sums for each row, knowing the leaves: at least 98 of 100 labels. Nothing is claimed, and it says so."""
    found = outcomes(case)
    for outcome in found.values():
        assert (outcome.ceiling, outcome.verdict) == (None, AS_STATED)
    assert found["all columns"].value.estimate > 0.99
    accuracy = float(found["all columns"].found.split("accuracy ")[1].split(",")[0])
    assert accuracy >= 0.98
    assert found["all but one label"].value.low > 0.999
    assert found["all but one row"].value.low > 0.999
    assert found["shop"].value.estimate > 0.6
    assert recorded(case).statement().facts["stamp"].startswith("NOT PRIVATE")


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_too_little_noise_is_called_broken(reveal, monkeypatch):
    """Control: noise for epsilon 30 under a statement that says 1."""
    tables, labels = people(60)
    run = recorded(Case(30.0, reveal, n_rows=60, n_trees=8))
    told = {"epsilon": 1.0, "delta": DELTA}
    facts = {**run.statement().facts, private_histograms.LABELS: told, private_histograms.RECORDS: told}
    monkeypatch.setattr(registry.Context, "facts", facts)
    found = {each.attacker: each for each in attacked(Context(run, labels={"bank": labels}, tables=tables), SUMS)}
    assert found["all but one label"].verdict == BROKEN
    assert found["all but one row"].verdict == BROKEN
    assert found["all columns"].value.estimate > found["all columns"].ceiling


def test_a_useful_model_is_no_leak():
    """Columns that do say something about labels: everybody ranks them, and among like rows hardly anybody does."""
    outcome = outcomes(Case(1.0, "histogram", 3000, 8, signal=2.0))["all columns"]
    assert float(outcome.found.split("all pairs: AUC ")[1][:5]) > outcome.ceiling + 0.15
    assert outcome.value.estimate < outcome.ceiling + SLACK
    assert outcome.verdict == HOLDS


def test_without_tables_or_labels_it_says_what_it_needs():
    """Tables to know which rows are in a sum, labels to count."""
    tables, _ = people(400)
    run = recorded(Case(4.0, "histogram"))
    found = {each.attacker: each for each in attacked(Context(run, tables={"shop": tables["shop"]}), SUMS)}
    assert [each.verdict for each in found.values()] == [NOT_SCORED, NOT_RUN, NOT_RUN, NOT_RUN]
    assert found["all columns"].found.endswith("--table bank=FILE")
    everything = attacked(Context(run, tables=tables), ("all_but_one",))
    assert [each.verdict for each in everything] == [NOT_SCORED, NOT_SCORED]


def test_on_the_command_line(tmp_path):
    """From transcripts in a folder and tables in files."""
    tables, labels = people(400)
    recorded(Case(4.0, "histogram")).save(tmp_path / "run")
    args = ["attack", str(tmp_path / "run"), "--column", "label"]
    for party, table in tables.items():
        given = table.assign(label=labels) if party == "bank" else table
        given.to_csv(tmp_path / f"{party}.csv", index=False)
        args += ["--table", f"{party}={tmp_path / party}.csv"]
    told = CliRunner().invoke(app, [*args, "--json", "--attack", SUMS[0], "--attack", SUMS[1]])
    assert told.exit_code == 0
    expected = [outcome.to_dict() for outcome in outcomes(Case(4.0, "histogram")).values()]
    assert [each["verdict"] for each in json.loads(told.stdout)["outcomes"]] == [HOLDS] * len(expected)
    assert json.loads(told.stdout)["outcomes"] == json.loads(json.dumps(expected))
    shown = CliRunner().invoke(app, [*args, "--attack", "all_but_one"]).stdout
    assert "all but one label  AUC 0." in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


# --- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_no_mask_is_used_twice(reveal):
    """As each party sees it in a whole run."""
    found = attacked(Context(recorded(Case(4.0, reveal))), ("mask_reuse",))
    assert [(each.attacker, each.verdict) for each in found] == [("bank", HOLDS), ("shop", HOLDS)]
    n_rounds = int(found[0].found.split("no two of ")[1].split(" rounds")[0].replace(",", ""))
    assert n_rounds > (400 if reveal == "winner" else 100)


def test_masks_that_are_used_twice_are_found(monkeypatch):
    """Control: all nodes of a tree under the masks of its root."""
    begin = FullTree.begin

    def again(self, step, gradients):
        begin(self, step, gradients)
        self._masks[:] = self._masks[:1]

    monkeypatch.setattr(FullTree, "begin", again)
    tables, labels = people(60)
    run = Federation.vertical(tables, labels=("bank", labels)).fit(
        "vertical.private_histograms", record=True, epsilon=4.0, schema=SCHEMA, n_estimators=1
    )
    found = attacked(Context(run), ("mask_reuse",))
    assert [each.verdict for each in found] == [BROKEN, BROKEN]
