"""Each company keeps its own part of a vertical model; no file holds the whole."""

from __future__ import annotations

import copy
import io
import json
import pickle

import joblib
import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.errors import ExportRefused


@pytest.fixture(scope="module")
def run():
    """A run of a bank and a shop."""
    X = np.random.default_rng(0).normal(size=(80, 4))
    companies = Federation.vertical(
        {"bank": X[:, :2], "shop": X[:, 2:]}, labels=("bank", (X[:, 0] > X[:, 3]).astype(int))
    )
    edges = {"x0": [-0.5, 0.0, 0.5], "x1": [-0.5, 0.0, 0.5]}
    return companies.fit("vertical.bucket_rr", epsilon=4.0, edges=edges, n_estimators=2, max_depth=2)


@pytest.mark.parametrize("write", [pickle.dumps, lambda thing: joblib.dump(thing, io.BytesIO())])
def test_pickle_and_joblib_are_refused(run, write):
    """They would write all parts into one file; the error says how parts are saved. A run holds the model too."""
    for thing in (run.model, run, {"model": run.model}):
        with pytest.raises(
            ExportRefused, match=r"with pickle or joblib.*save\(folder\) writes one part for each party"
        ):
            write(thing)


def test_a_copy_in_memory_is_no_file(run):
    """Copies predict the same."""
    X = np.random.default_rng(1).normal(size=(9, 4))
    rows = {"bank": X[:, :2], "shop": X[:, 2:]}
    expected = run.model.predict_proba(rows)
    for made in (copy.copy(run.model), copy.deepcopy(run.model)):
        np.testing.assert_array_equal(made.predict_proba(rows), expected)


def test_no_saved_file_holds_two_parts(run, tmp_path):
    """Of a saved run: the shop's splits are in its own file alone, the bank's trees in the bank's."""
    run.save(tmp_path / "run")
    part = json.loads((tmp_path / "run" / "model" / "bank" / "part.json").read_text())
    trees = json.dumps(part["model"]["trees"], separators=(",", ":"))
    texts = {path.parent.name: path.read_text() for path in (tmp_path / "run").rglob("*.json*")}
    assert texts.keys() == {"run", "model", "bank", "shop", "ledgers"}
    assert [name for name, text in texts.items() if '"splits":[{' in text] == ["shop"]
    assert [name for name, text in texts.items() if trees in text] == ["bank"]
