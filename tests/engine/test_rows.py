"""A tree on some of the rows is the tree on a table of just those rows."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.table import read_table

pytestmark = pytest.mark.usefixtures("threads_for_small_data")

LOSS, QUANTISER = Loss("logistic"), Quantiser(2.0**16, 2.0**16)


def make(mapper, codes, labels, n_threads):
    """Rows with their gradients, and a grower for them."""
    rows = Rows.from_codes(
        mapper, codes, labels, None, loss=LOSS, base_scores=np.zeros(1), quantiser=QUANTISER, n_threads=n_threads
    )
    rows.gradients()
    edges = [feature.edges for feature in mapper.features]
    return rows, TreeGrower(rows, BoostingParams(max_depth=4), LOSS, QUANTISER, edges, weighted=False)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_chosen", [1, 40, 300])
def test_a_subset_of_rows(n_threads, n_chosen):
    """In any order, with any number of threads; nobody's score changes; the next tree may have other rows."""
    rng = np.random.default_rng(n_chosen)
    X = rng.normal(size=(300, 5))
    X[:, 3] = rng.integers(0, 3, 300)
    y = (X[:, 0] > X[:, 1]).astype(float)
    mapper = BinMapper.fit(read_table(X), 16)
    codes = mapper.transform(read_table(X))
    rows, grower = make(mapper, codes, y, n_threads)
    for seed in range(3):
        chosen = np.random.default_rng(seed).permutation(300)[:n_chosen].astype(np.uint32)
        alone, alone_grower = make(mapper, np.ascontiguousarray(codes[:, chosen]), y[chosen], 1)
        rows.start_tree(rows=chosen.copy())
        alone.start_tree()
        assert rows.node_counts.tolist() == [n_chosen]
        assert grower.grow(seed) == alone_grower.grow(seed)
        assert not rows.scores.any()
    rows.start_tree()
    everybody, everybodys_grower = make(mapper, codes, y, 1)
    everybody.start_tree()
    assert grower.grow(3) == everybodys_grower.grow(3)
    assert np.array_equal(rows.scores, everybody.scores)
    assert rows.scores.any()


def test_no_rows_at_all():
    """An empty subset is a tree without a split."""
    X = np.random.default_rng(0).normal(size=(50, 2))
    mapper = BinMapper.fit(read_table(X), 16)
    rows, grower = make(mapper, mapper.transform(read_table(X)), (X[:, 0] > 0).astype(float), 2)
    rows.start_tree(rows=np.zeros(0, np.uint32))
    tree = grower.grow(0)
    assert tree.n_nodes == 1
    assert tree.value.tolist() == [0.0]
