"""One law: the model does not depend on how the work is arranged.

Threads, the order of rows, bundling, and where the rows are cut into blocks: the trees are equal, bit for bit.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine import boosting
from hedgerow.engine import rows as rows_module
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.histogram import Layout
from hedgerow.engine.losses import LOSSES, BoostingParams, Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import marginal
from hedgerow.engine.table import read_table

pytestmark = pytest.mark.usefixtures("threads_for_small_data")


def problem(seed, n_rows=600, loss="logistic"):
    """Numeric columns with missing values, small ones that bundle, and labels for the loss."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 7))
    X[:, 4:] = rng.integers(0, 3, (n_rows, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    signal = np.nansum(X[:, :3], axis=1) + np.nan_to_num(X[:, 4]) + rng.normal(size=n_rows)
    y = {
        "logistic": signal > 0,
        "softmax": np.digitize(signal, [-1, 1]),
        "squared": signal,
        "absolute": signal,
        "quantile": signal,
        "poisson": rng.poisson(np.exp(np.clip(signal / 3, -3, 2))),
    }[loss].astype(float)
    weight = rng.integers(0, 4, n_rows).astype(float)
    return X, y, weight


def fit(X, y, weight, loss, **params):
    """Bins and trees from raw rows."""
    table = read_table(X)
    mapper = BinMapper.fit(table, 64, weight)
    settings_ = BoostingParams(loss=loss, n_classes=3, n_iterations=4, max_depth=4, **params)
    return train(settings_, mapper, mapper.transform(table), y, weight).ensemble


@settings(max_examples=16, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.booleans())
def test_order_of_rows_and_threads_do_not_matter(seed, loss, weighted):
    """Rows shuffled, one, two or three threads: the same edges, base score and trees."""
    X, y, weight = problem(seed, loss=loss)
    weight = weight if weighted else None
    order = np.random.default_rng(seed).permutation(len(y))
    reference = fit(X, y, weight, loss)
    shuffled = fit(X[order], y[order], None if weight is None else weight[order], loss, n_threads=2)
    threaded = fit(X, y, weight, loss, n_threads=3)
    assert reference.to_dict() == shuffled.to_dict() == threaded.to_dict()


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_size_of_chunks_does_not_matter(chunk, monkeypatch):
    """However rows are dealt to threads, the trees are the same."""
    X, y, _ = problem(1)
    reference = fit(X, y, None, "logistic")
    monkeypatch.setattr(rows_module, "CHUNK", chunk)
    assert fit(X, y, None, "logistic", n_threads=3).to_dict() == reference.to_dict()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES), st.sampled_from([1, 2]))
def test_regrouping_rows_in_memory_does_not_matter(seed, loss, n_threads):
    """Laying rows out by the first tree's leaves changes where they are, not what is learned."""
    X, y, weight = problem(seed, loss=loss)
    reference = fit(X, y, weight, loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "ROW_TREES_WORTH_REGROUPING", 0)
        assert fit(X, y, weight, loss, n_threads=n_threads).to_dict() == reference.to_dict()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["logistic", "squared"]))
def test_whole_weights_equal_repeated_rows(seed, loss):
    """Weight k is the row k times, weight 0 the row left out."""
    X, y, weight = problem(seed, n_rows=200, loss=loss)
    repeats = weight.astype(int)
    weighted = fit(X, y, weight, loss)
    repeated = fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats), None, loss)
    assert weighted.to_dict()["trees"] == repeated.to_dict()["trees"]


def test_several_trainings_at_once_do_not_disturb_each_other():
    """Python threads that train at the same time share helper threads, and each gets its own model."""
    problems = [problem(seed) for seed in range(4)]
    alone = [fit(X, y, None, "logistic").to_dict() for X, y, _ in problems]
    together = [None] * len(problems)

    def train_one(number):
        X, y, _ = problems[number]
        together[number] = fit(X, y, None, "logistic", n_threads=2).to_dict()

    workers = [threading.Thread(target=train_one, args=(number,)) for number in range(len(problems))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert together == alone


class BlocksOfRows:
    """Several owners' rows behind the same verbs: sums are merged in the features' own layout, rows stay apart."""

    n_parts = 1

    def __init__(self, blocks, n_value_bins, is_categorical):
        self.blocks = blocks
        self.layout = Layout.plain(n_value_bins, is_categorical)

    @property
    def node_counts(self):
        """Rows of each active node, over all blocks."""
        return sum(block.node_counts for block in self.blocks)

    def histograms(self, nodes, slots, cells, *, counts=False):
        """The blocks' sums, feature by feature."""
        cells[slots] = 0
        for block in self.blocks:
            own = np.zeros((len(nodes), block.layout.n_cells), np.int64)
            block.histograms(nodes, np.arange(len(nodes)), own, counts=counts)
            for which, slot in enumerate(slots):
                for f in range(self.layout.n_features):
                    column = block.layout.column_of_feature[f]
                    theirs = own[which, block.layout.first_cell[column] :][:256]
                    sums = np.zeros(256, np.int64)
                    n_codes = self.layout.n_codes[f]
                    marginal(theirs, block.layout.bin_of_code[f], block.layout.n_codes[column], n_codes, sums)
                    first = self.layout.first_cell[f]
                    cells[slot, first : first + n_codes] += sums[:n_codes]

    def descend(self, feature, goes_left, *, last=False):
        """Each block moves its own rows."""
        for block in self.blocks:
            block.descend(feature, goes_left, last=last)

    def finish_tree(self, leaf_values):
        """Each block scores its own rows."""
        for block in self.blocks:
            block.finish_tree(leaf_values)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(["logistic", "squared"]), st.sampled_from([1, 5]))
def test_rows_in_blocks_grow_the_same_trees(seed, n_blocks, loss_name, min_samples_leaf):
    """Any split of the rows into blocks (also an empty one) gives the trees and scores of the rows together."""
    X, y, _ = problem(seed, n_rows=300, loss=loss_name)
    table = read_table(X)
    mapper = BinMapper.fit(table, 32)
    n_value_bins = np.array([f.n_value_bins for f in mapper.features])
    categorical = np.zeros(len(mapper.features), bool)
    loss = Loss(loss_name, 1, (float(y.min()), float(y.max())))
    bases, quantiser = loss.base_scores(y), Quantiser.for_job(loss, float(len(y)), n_rows=len(y))
    rules = BoostingParams(max_depth=4, min_samples_leaf=min_samples_leaf, min_child_weight=0.1)

    codes = mapper.transform(table)
    how = {"loss": loss, "base_scores": bases, "quantiser": quantiser}

    def rows_of(part):
        return Rows.from_codes(mapper, codes[:, part], y[part], None, **how)

    cuts = np.sort(np.random.default_rng(seed).integers(0, len(y) + 1, n_blocks - 1))
    parts = np.split(np.arange(len(y)), cuts)
    whole = Rows.bin(mapper, table, y, None, **how)
    blocks = [rows_of(part) for part in parts]
    together = BlocksOfRows(blocks, n_value_bins, categorical)
    edges = [f.edges for f in mapper.features]
    trees = []
    for rows, everyone in ((whole, [whole]), (together, blocks)):
        grower = TreeGrower(rows, rules, loss, quantiser, edges, weighted=False)
        grown = []
        for number in range(3):
            for block in everyone:
                block.gradients()
                block.start_tree()
            grown.append(grower.grow(number))
        trees.append(grown)
    assert trees[0] == trees[1]
    np.testing.assert_array_equal(np.concatenate([b.scores[0] for b in blocks]), whole.scores[0])
