"""Estimators on Parquet files: the model of the same rows in memory, bit for bit, and nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import Blocks, BoostedTreesClassifier, BoostedTreesRegressor, PrivateBoostingClassifier, Schema
from hedgerow.engine import blocks as reading
from hedgerow.engine import boosting, edge_search, scratch
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

N_ROWS = 3000
QUICK = {"max_iter": 6, "max_depth": 4, "max_bins": 40, "n_jobs": 2, "random_state": 3}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch, tmp_path):
    """Several batches in a row group, points of few values; scratch files in a folder of the test, empty at the end."""
    monkeypatch.setattr(reading, "BATCH_VALUES", 1500)
    monkeypatch.setattr(reading, "FEWEST_ROWS", 50)
    monkeypatch.setattr(edge_search, "POINTS", 300)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    yield
    assert list((tmp_path / "scratch").iterdir()) == []


def table_of(n_rows=N_ROWS, seed=0) -> pa.Table:
    """Numbers, holes, text and small whole numbers, with labels of every kind and weights."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n_rows), rng.integers(0, 6, n_rows)
    city = np.array(["york", "bath", "hull", "ely"])[rng.integers(0, 4, n_rows)]
    score = x + (city == "ely") - 0.3 * z + rng.normal(size=n_rows)
    three = np.digitize(score, [-0.5, 0.5])
    return pa.table(
        {
            "x": x.astype(np.float32),
            "hole": pa.array(rng.normal(size=n_rows), mask=rng.random(n_rows) < 0.2),
            "z": z,
            "city": pa.array(city.tolist(), mask=rng.random(n_rows) < 0.1),
            "kind": pa.array(city.tolist()).dictionary_encode(),
            "amount": score,
            "count": np.maximum(np.floor(score), 0).astype(np.int32),
            "yes": score > 0,
            "word": pa.array(np.array(["low", "mid", "high"])[three].tolist()),
            "level": pa.array(np.array(["low", "mid", "high"])[three].tolist()).dictionary_encode(),
            "three": three,
            "weight": rng.choice([0.0, 1.0, 2.5], n_rows),
        }
    )


FEATURES = ["x", "hole", "z", "city", "kind"]


def folder_of(path, table, n_files, row_group_size=700):
    """The table as this many files of a folder."""
    path.mkdir()
    limits = np.linspace(0, table.num_rows, n_files + 1).astype(int)
    for number in range(n_files):
        part = table.slice(limits[number], limits[number + 1] - limits[number])
        pq.write_table(part, path / f"{number:02}.parquet", row_group_size=row_group_size)
    return path


def in_memory(table):
    """The features as a table."""
    return table.select(FEATURES)


def same(model, other):
    """The same model, to the last bit, but for what it says of its parameters."""
    assert model.ensemble_.mapper == other.ensemble_.mapper
    assert model.ensemble_.trees == other.ensemble_.trees
    assert model.ensemble_.base_scores.tobytes() == other.ensemble_.base_scores.tobytes()
    assert model.ensemble_.to_dict() == other.ensemble_.to_dict()
    assert model.evals_result_ == other.evals_result_


CASES = {
    "two classes": (BoostedTreesClassifier, "yes", {}),
    "text": (BoostedTreesClassifier, "word", {}),
    "categories": (BoostedTreesClassifier, "level", {}),
    "three classes": (BoostedTreesClassifier, "three", {}),
    "numbers": (BoostedTreesRegressor, "amount", {}),
    "counts": (BoostedTreesRegressor, "count", {"loss": "poisson"}),
    "a quantile": (BoostedTreesRegressor, "amount", {"loss": "quantile", "quantile": 0.8}),
    "some rows": (BoostedTreesRegressor, "amount", {"subsample": 0.6}),
    "levels by name": (BoostedTreesRegressor, "amount", {"categorical_features": ["z", "city", "kind"]}),
    "rows set apart": (BoostedTreesClassifier, "word", {"early_stopping": True, "n_iter_no_change": 2}),
    "with lines": (BoostedTreesClassifier, "yes", {"verbose": 5}),
}


class TestSameModel:
    """However the rows are divided into files."""

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("case", CASES)
    def test_any_label_and_weights(self, tmp_path, monkeypatch, case, weighted):
        """Classes, numbers and counts; missing values and categories; rows of weight 0; rows laid out anew."""
        monkeypatch.setattr(boosting, "ROW_TREES_WORTH_REGROUPING", 1)
        table = table_of()
        kind, target, more = CASES[case]
        weight = table["weight"].to_numpy() if weighted else None
        expected = kind(**QUICK, **more).fit(in_memory(table), table[target], weight)
        blocks = Blocks(
            folder_of(tmp_path / "rows", table, 3),
            target=target,
            weight="weight" if weighted else None,
            columns=FEATURES,
        )
        same(kind(**QUICK, **more).fit(blocks), expected)

    @pytest.mark.parametrize("n_files", [1, 2, 7])
    def test_any_number_of_files(self, tmp_path, n_files):
        """A path and the name of a column are enough."""
        table = table_of().select([*FEATURES, "yes"])
        folder = folder_of(tmp_path / "rows", table, n_files, row_group_size=10**9 if n_files == 1 else 500)
        expected = BoostedTreesClassifier(**QUICK).fit(in_memory(table), table["yes"])
        same(BoostedTreesClassifier(**QUICK).fit(str(folder), "yes"), expected)

    def test_any_order_of_files(self, tmp_path):
        """Files in another order are rows in another order, which changes no model."""
        table = table_of().select([*FEATURES, "amount"])
        folder = folder_of(tmp_path / "rows", table, 4)
        paths = sorted(folder.iterdir(), reverse=True)
        first = BoostedTreesRegressor(**QUICK).fit(folder, "amount")
        same(BoostedTreesRegressor(**QUICK).fit(Blocks(paths, target="amount")), first)

    def test_rows_to_watch(self, tmp_path):
        """In files too, or in memory, for the same stop after the same tree."""
        table, other = (table_of(seed=seed).select([*FEATURES, "yes", "weight"]) for seed in (0, 1))
        many = {**QUICK, "max_iter": 60, "learning_rate": 0.5, "n_iter_no_change": 3}
        expected = BoostedTreesClassifier(**many).fit(
            in_memory(table),
            table["yes"],
            X_val=in_memory(other),
            y_val=other["yes"],
            sample_weight_val=other["weight"],
        )
        assert expected.best_iteration_ is not None
        learn = Blocks(folder_of(tmp_path / "learn", table, 2), target="yes", drop=["weight"])
        watch = folder_of(tmp_path / "watch", other, 2)
        in_files = BoostedTreesClassifier(**many).fit(learn, X_val=watch, y_val="yes", sample_weight_val="weight")
        same(in_files, expected)
        beside = BoostedTreesClassifier(**many).fit(
            learn, X_val=in_memory(other), y_val=other["yes"], sample_weight_val=other["weight"]
        )
        same(beside, expected)

    def test_a_training_goes_on(self, tmp_path):
        """With warm_start, in files as in memory."""
        table = table_of().select([*FEATURES, "word"])
        folder = folder_of(tmp_path / "rows", table, 2)
        models = []
        for X, y in ((in_memory(table), table["word"]), (folder, "word")):
            model = BoostedTreesClassifier(**QUICK, warm_start=True).fit(X, y)
            models.append(model.set_params(max_iter=9).fit(X, y))
        same(*models)

    def test_labels_may_be_in_memory(self, tmp_path):
        """An array of as many labels as there are rows."""
        table = table_of()
        blocks = Blocks(folder_of(tmp_path / "rows", table, 2), columns=FEATURES)
        expected = BoostedTreesRegressor(**QUICK).fit(in_memory(table), table["amount"])
        same(BoostedTreesRegressor(**QUICK).fit(blocks, table["amount"]), expected)
        with pytest.raises(InvalidInput, match="X has 3000, y has 2"):
            BoostedTreesRegressor(**QUICK).fit(blocks, [1.0, 2.0])


class TestPredictions:
    """Rows to predict may be in files as well."""

    @pytest.fixture
    def table(self):
        """What the models are trained on."""
        return table_of()

    @pytest.mark.parametrize("target", ["yes", "word", "amount"])
    def test_equal_those_in_memory(self, tmp_path, table, target):
        """As an array, and as a file with columns to keep; other columns are left alone."""
        kind = BoostedTreesRegressor if target == "amount" else BoostedTreesClassifier
        model = kind(**QUICK).fit(in_memory(table), table[target])
        folder = folder_of(tmp_path / "rows", table, 3)
        np.testing.assert_array_equal(model.predict(folder), model.predict(in_memory(table)))
        np.testing.assert_array_equal(model.apply(folder), model.apply(in_memory(table)))
        model.write_predictions(folder, tmp_path / "out.parquet", keep=["count", "x"])
        written = pq.read_table(tmp_path / "out.parquet")
        assert written.column_names == ["count", "x", "prediction"]
        assert written["prediction"].to_pylist() == model.predict(in_memory(table)).tolist()
        assert written["x"].to_pylist() == table["x"].to_pylist()
        if target != "amount":
            shares = model.predict_proba(in_memory(table))
            np.testing.assert_array_equal(model.predict_proba(folder), shares)
            model.write_predictions(folder, tmp_path / "out.parquet", proba=True)
            last = pq.read_table(tmp_path / "out.parquet").columns[-1]
            np.testing.assert_array_equal(last.to_numpy(), shares[:, -1])

    def test_batches_one_by_one(self, tmp_path, table):
        """What `Blocks` gives can be predicted, wherever the predictions are to go."""
        model = BoostedTreesRegressor(**QUICK).fit(in_memory(table), table["amount"])
        blocks = Blocks(folder_of(tmp_path / "rows", table, 3), columns=FEATURES)
        found = [model.predict(batch) for _, batch in blocks.batches(blocks.names)]
        np.testing.assert_array_equal(np.concatenate(found), model.predict(in_memory(table)))

    def test_nothing_is_half_written(self, tmp_path, table):
        """A file that vanishes leaves neither a part of the new predictions, nor takes the old ones away."""
        model = BoostedTreesRegressor(**QUICK).fit(in_memory(table), table["amount"])
        folder = folder_of(tmp_path / "rows", table, 3)
        blocks = Blocks(folder)
        (folder / "02.parquet").unlink()
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "old.parquet").write_bytes(b"old")
        with pytest.raises(InvalidInput, match=r"02\.parquet: there is no such file any more"):
            model.write_predictions(blocks, tmp_path / "out" / "old.parquet")
        assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"old"]

    def test_columns_that_are_missing_are_named(self, tmp_path, table):
        """As for a table in memory."""
        model = BoostedTreesRegressor(**QUICK).fit(in_memory(table), table["amount"])
        folder = folder_of(tmp_path / "rows", table.drop_columns(["hole"]), 1)
        with pytest.raises(InvalidInput, match="yet now missing:\n- hole"):
            model.predict(folder)
        with pytest.raises(InvalidInput, match="there is no column 'nix'"):
            model.write_predictions(folder, tmp_path / "out.parquet", keep=["nix"])
        with pytest.raises(InvalidType, match="reads Parquet files, not a Table"):
            model.write_predictions(table, tmp_path / "out.parquet")


class TestRefusals:
    """What cannot be trained on is said in words, and no earlier model is left."""

    def test_labels(self, tmp_path):
        """That are not named, not there, or missing in a row."""
        table = table_of(50).select([*FEATURES, "yes"])
        table = table.append_column("gap", pa.array(["a"] * 30 + [None] + ["b"] * 19))
        table = table.append_column("hollow", pa.array([1] * 30 + [None] + [2] * 19))
        folder = folder_of(tmp_path / "rows", table, 2)
        with pytest.raises(InvalidParameter, match=r"rows: which column holds the labels\? Say fit"):
            BoostedTreesClassifier().fit(folder)
        with pytest.raises(InvalidInput, match="there is no column 'nope'"):
            BoostedTreesClassifier().fit(folder, "nope")
        with pytest.raises(InvalidInput, match="the label 'gap' is missing in row 30"):
            BoostedTreesClassifier().fit(folder, "gap")
        with pytest.raises(InvalidInput, match=r"contains NaN.*the first is row 30"):
            BoostedTreesClassifier().fit(folder, "hollow")
        with pytest.raises(InvalidInput, match="must hold numbers, got 'a'"):
            BoostedTreesRegressor().fit(Blocks(min(folder.iterdir())), "gap")

    def test_estimators_that_need_the_table(self, tmp_path):
        """Private ones say that they do."""
        folder = folder_of(tmp_path / "rows", table_of(50), 1)
        schema = Schema.from_public(bounds={"x": (-9, 9)}, classes=[False, True])
        for X in (str(folder), folder, Blocks(folder)):
            with pytest.raises(InvalidType, match="only the plain estimators read"):
                PrivateBoostingClassifier(schema=schema).fit(X, "yes")

    def test_a_file_that_changes(self, tmp_path, monkeypatch):
        """In the middle of the work: the error names it, and the estimator has no model."""
        folder = folder_of(tmp_path / "rows", table_of().select([*FEATURES, "yes"]), 3)
        model = BoostedTreesClassifier(**QUICK).fit(folder, "yes")
        bins = reading.Blocks.batches

        def touched(self, names, pieces=None):
            if len(names) > 1:
                os.utime(folder / "01.parquet", ns=(1, 1))
            return bins(self, names, pieces)

        monkeypatch.setattr(reading.Blocks, "batches", touched)
        with pytest.raises(InvalidInput, match=r"01\.parquet: the file has changed since the work began"):
            model.fit(folder, "yes")
        assert not hasattr(model, "ensemble_")


@pytest.mark.long
def test_memory_grows_by_less_than_a_row(tmp_path):
    """A row of 28 numbers is 224 bytes; codes count, although they are in files that the system may drop."""
    rng, peaks = np.random.default_rng(0), []
    program = (
        "import re, sys; from hedgerow import Blocks, BoostedTreesRegressor\n"
        "BoostedTreesRegressor(max_iter=3).fit(Blocks(sys.argv[1:], target='x0'))\n"
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])"
    )
    paths = []
    for number in range(5):
        paths.append(str(tmp_path / f"{number}.parquet"))
        table = pa.table({f"x{j}": rng.normal(size=300_000) for j in range(29)})
        pq.write_table(table, paths[-1], compression="none", use_dictionary=False)
        if number in (0, 4):
            run = subprocess.run([sys.executable, "-c", program, *paths], check=True, capture_output=True, text=True)
            peaks.append(1024 * int(run.stdout))
    assert (peaks[1] - peaks[0]) / 1_200_000 < 200


class TestScratch:
    """Where the codes are."""

    def test_a_full_disk_is_said_before_anything_is_read(self, tmp_path, monkeypatch):
        """With the folder, what is needed, and a way out."""
        folder = folder_of(tmp_path / "rows", table_of().select([*FEATURES, "yes"]), 1)
        monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 5000}))
        with pytest.raises(InvalidInput, match=r"GiB are needed in .*scratch, but only 0\.0 GiB are free; make room"):
            BoostedTreesClassifier(**QUICK).fit(folder, "yes")

    @pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
    def test_a_disk_that_fills_up_meanwhile(self, tmp_path, monkeypatch, problem):
        """Is an error of ours, and not a crash when a page is written."""
        folder = folder_of(tmp_path / "rows", table_of().select([*FEATURES, "yes"]), 1)

        def refuse(*_arguments):
            raise OSError(problem, os.strerror(problem))

        monkeypatch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(InvalidInput, match=r"scratch: .*(are needed in|cannot be written to)"):
            BoostedTreesClassifier(**QUICK).fit(folder, "yes")

    def test_a_folder_of_its_own(self, tmp_path):
        """Is used if it is named, and must be there."""
        folder = folder_of(tmp_path / "rows", table_of().select([*FEATURES, "yes"]), 1)
        (tmp_path / "mine").mkdir()
        BoostedTreesClassifier(**QUICK).fit(Blocks(folder, target="yes", scratch=tmp_path / "mine"))
        assert list((tmp_path / "mine").iterdir()) == []
        with pytest.raises(InvalidInput, match="other is not a folder"):
            BoostedTreesClassifier(**QUICK).fit(Blocks(folder, target="yes", scratch=tmp_path / "other"))

    def test_arrays_keep_what_is_written(self, tmp_path):
        """As others do; also those of no size."""
        array = scratch.Scratch(tmp_path).empty((3, 5), np.uint64)
        array[:] = np.arange(15).reshape(3, 5)
        assert array.sum() == 105
        assert scratch.Scratch(tmp_path).empty((0, 5), np.uint8).shape == (0, 5)

    def test_nothing_is_left_by_a_process_that_is_killed(self, tmp_path):
        """Not even by one that had no chance to tidy up."""
        program = (
            "import sys, numpy as np; from hedgerow.engine.scratch import Scratch\n"
            "array = Scratch(sys.argv[1]).empty((1000, 1000), np.uint8); array[:] = 1\n"
            "print('ready', flush=True); sys.stdin.read()"
        )
        (tmp_path / "mine").mkdir()
        command = [sys.executable, "-c", program, str(tmp_path / "mine")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGKILL)
        assert list((tmp_path / "mine").iterdir()) == []
