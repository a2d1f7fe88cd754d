"""Sparse and dense give the same model, bit for bit; and a sparse table is never made dense."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import BoostedTreesClassifier, DPBoostClassifier, PrivateBoostingClassifier, Schema
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.sparse import written_out
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

FORMATS = [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array]
FAST = {"max_iter": 3, "max_depth": 3, "min_child_weight": 0.0, "random_state": 0}


@st.composite
def tables(draw):
    """Mostly zeros, some of them stored; gaps, negative numbers, ties, and columns without a single entry."""
    n_rows, n_columns = draw(st.integers(6, 60)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    filled = rng.random((n_rows, n_columns)) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    numbers = rng.integers(-3, 9, (n_rows, n_columns)) * draw(st.sampled_from([1.0, 0.1]))
    numbers[rng.random((n_rows, n_columns)) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    dense = np.where(filled, numbers, 0.0).astype(draw(st.sampled_from([np.float32, np.float64])))
    return dense, rng


@settings(max_examples=150)
@given(tables(), st.sampled_from(FORMATS), st.sampled_from([2, 5, 256]), st.booleans())
def test_bins_and_codes_are_those_of_the_dense_table(table, kind, max_bins, weighted):
    """Edges and codes, with weights and without; entries that are stored zeros are zeros."""
    dense, rng = table
    weight = rng.integers(0, 3, len(dense)).astype(float) + (np.arange(len(dense)) == 0) if weighted else None
    ours, theirs = read_table(kind(dense)), read_table(dense)
    mapper = BinMapper.fit(theirs, max_bins, weight)
    assert BinMapper.fit(ours, max_bins, weight) == mapper
    codes = mapper.transform(theirs)
    np.testing.assert_array_equal(mapper.transform(ours), codes)
    found = mapper.sparse_codes(ours)
    np.testing.assert_array_equal(written_out(found), codes)
    some = rng.permutation(len(dense))[: 1 + len(dense) // 2]
    np.testing.assert_array_equal(written_out(found.taken(some)), codes[:, some])
    np.testing.assert_array_equal(found.are_constant(), codes.min(axis=1) == codes.max(axis=1))
    np.testing.assert_array_equal(written_out(mapper.sparse_codes(ours.taken(some))), codes[:, some])


def same_models(one, other):
    """All but what is only good to know."""
    documents = [{**model.ensemble_.to_dict(), "meta": None} for model in (one, other)]
    assert documents[0] == documents[1]


PARAMETERS = [
    {},
    {"n_jobs": 2, "max_bins": 4},
    {"subsample": 0.6},
    {"min_samples_leaf": 3},
    {"early_stopping": True, "validation_fraction": 0.3},
    {"categorical_features": [0]},
    {"warm_start": True},
]


@settings(max_examples=30)
@given(tables(), st.sampled_from(FORMATS), st.sampled_from(PARAMETERS))
def test_sparse_and_dense_give_the_same_model(table, kind, params):
    """Trees, leaves and predictions, whatever parameters there are."""
    dense, rng = table
    dense = np.column_stack([dense, np.where(rng.random(len(dense)) < 0.5, np.arange(len(dense)), 0)])
    labels = (np.nan_to_num(dense).sum(axis=1) + rng.normal(size=len(dense)) > 0).astype(int)
    labels[:4] = [0, 1, 0, 1]
    models = [BoostedTreesClassifier(**FAST, **params).fit(X, labels) for X in (dense, kind(dense))]
    if "warm_start" in params:
        models = [m.set_params(max_iter=5).fit(X, labels) for m, X in zip(models, (dense, kind(dense)), strict=True)]
    same_models(*models)
    for method in ("predict_proba", "apply"):
        np.testing.assert_array_equal(getattr(models[1], method)(kind(dense)), getattr(models[0], method)(dense))
    assert models[0].constant_features_ == models[1].constant_features_


@pytest.mark.parametrize("binning", ["public", "private"])
def test_private_training_without_noise_is_the_same(binning):
    """DPBoost on sparse rows is DPBoost on dense ones, with values outside the bounds and with bad labels."""
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((200, 5)) < 0.3, rng.normal(size=(200, 5)), 0.0)
    labels = (dense[:, 0] > dense[:, 1]).astype(int)
    labels[7] = 3
    schema = Schema.from_public(bounds={f"x{j}": (-1.0, 1.0) for j in range(5)}, classes=[0, 1])
    how = {"schema": schema, "epsilon": float("inf"), "max_iter": 3, "max_depth": 3, "binning": binning}
    models = [
        DPBoostClassifier(**how, protocol="central.sequential").fit(X, labels) for X in (dense, sp.csr_array(dense))
    ]
    same_models(*models)


def test_private_training_with_the_same_noise_is_the_same():
    """Subsets of rows, scores that are brought up to date, choices and leaves: sparse rows change none of them."""
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((400, 6)) < 0.2, rng.random((400, 6)), 0.0)
    labels = (dense[:, 0] + dense[:, 1] > 0.1).astype(int)
    schema = Schema.from_public(bounds={f"x{j}": (0.0, 1.0) for j in range(6)}, may_be_missing=["x2"], classes=[0, 1])
    settings_ = DPBoostSettings(epsilon=3.0, n_trees=8, max_depth=3)
    fits = [
        fit_central(X, labels, schema, settings_, SecureRandom.from_seed(bytes(32)))
        for X in (dense, sp.csr_matrix(dense))
    ]
    assert fits[0].model.to_dict() == fits[1].model.to_dict()


def test_private_boosting_takes_sparse_rows():
    """With a code of a byte for each value, as for a dense table; gaps go where the schema says."""
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((300, 3)) < 0.3, rng.random((300, 3)), 0.0)
    dense[4, 1] = np.nan
    schema = Schema.from_public(bounds={f"x{j}": (0.0, 1.0) for j in range(3)}, classes=[0, 1])
    model = PrivateBoostingClassifier(schema=schema, epsilon=5.0, delta=1e-6)
    assert len(model.fit(sp.csr_matrix(dense), (dense[:, 0] > 0).astype(int)).predict(sp.csr_matrix(dense))) == 300


def test_what_is_no_sparse_table():
    """Numbers that lie outside the matrix, and one dimension; entries given twice are added up, as scipy has it."""
    broken = sp.csc_array(np.eye(3))
    broken.indices[1] = 7
    with pytest.raises(InvalidInput, match="X is not a sparse matrix"):
        read_table(broken)
    with pytest.raises(InvalidInput, match="Expected 2D array, got 1D sparse array"):
        read_table(sp.coo_array(np.ones(3)))
    with pytest.raises(InvalidInput, match="Complex data not supported"):
        read_table(sp.csr_array(np.eye(2) * 1j))
    twice = sp.csc_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 3])), (2, 1))
    np.testing.assert_array_equal(read_table(twice).columns[0].values, [1.0, 2.0])
    assert twice.nnz == 3  # what the caller has stays as it is


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ["plain", "dpboost"])
def test_memory_follows_the_entries(what):
    """Of 20,000 x 12,000, which dense would fill 1.9 GB as numbers and 240 MB as codes, training takes a small part."""
    script = Path(__file__).parents[2] / "benchmarks" / "sparse.py"
    size = ["--rows", "20000", "--columns", "12000", "--trees", "2", "--depth", "4"]
    command = [sys.executable, str(script), what, *size]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(said.splitlines()[-1])["peak_gib"] * 2**30 < 0.5 * 20_000 * 12_000 * 8
