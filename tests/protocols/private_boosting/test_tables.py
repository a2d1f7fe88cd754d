from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.protocols.private_boosting.tables import (
    LEARNING_RATE,
    RIDGE,
    SMOOTHNESS,
    Bins,
    FeatureTable,
    merged,
    order_of,
    padded,
    split_shares,
    spread,
)


def test_cells_are_merged_up_to_the_target():
    """Cells join until a bin holds the target; a cell that fills a bin alone is not mixed with its forerunner."""
    bins = merged(np.array([3.0, 4, 5, 4, 30, 1, 1, 10, 2]), n_ordered=8, target=10)
    #                       \____ 12 __/  4  |30| \___ 12 __/  missing
    assert bins.of_cell[:9].tolist() == [0, 0, 0, 1, 2, 3, 3, 3, 4]
    assert bins.mass.tolist() == [12, 4, 30, 12, 2]
    assert (bins.n_bins, bins.n_ordered) == (5, 4)


def test_a_small_rest_joins_its_neighbour():
    """A last bin below half the target is not kept."""
    assert merged(np.array([10.0, 10, 3]), n_ordered=3, target=10).of_cell[:3].tolist() == [0, 1, 1]
    assert merged(np.array([10.0, 10, 6]), n_ordered=3, target=10).of_cell[:3].tolist() == [0, 1, 2]
    assert merged(np.array([-3.0, -1, 2]), n_ordered=3, target=10).n_bins == 1


def test_levels_are_not_merged():
    """Each level keeps its own bin, however few rows it has; noisy masses are at least 1."""
    bins = merged(np.array([100.0, -5, 0.2]), n_ordered=0, target=50)
    assert (bins.n_bins, bins.n_ordered) == (3, 0)
    assert bins.mass.tolist() == [100, 1, 1]


@given(st.lists(st.floats(-50, 100), min_size=1, max_size=255), st.booleans(), st.floats(0.1, 80))
def test_bins_are_runs_of_cells(counts, missing, target):
    """Whatever the noise: bins are numbered without gaps, in order, and the missing cell stays alone."""
    n_ordered = len(counts) - missing
    if not n_ordered:
        return
    bins = merged(np.array(counts), n_ordered=n_ordered, target=target)
    steps = np.diff(bins.of_cell[: len(counts)].astype(int))
    assert set(steps.tolist()) <= {0, 1}
    assert bins.of_cell[len(counts) - 1] == bins.n_bins - 1
    assert (bins.of_cell[: len(counts)] == bins.n_bins - 1).sum() == 1 or not missing


@pytest.mark.parametrize("n_ordered", [0, 1, 5, 7])
def test_a_step_solves_its_equations(n_ordered):
    """The tridiagonal solution equals that of the dense equations written down from the definition."""
    rng = np.random.default_rng(n_ordered)
    table = FeatureTable(Bins(np.zeros(256, np.uint8), 7, n_ordered, np.ones(7)), rng.uniform(5, 50, 7))
    table.values = rng.normal(0, 1, 7)
    before, start = table.values.copy(), table.hessians.copy()
    gradients, hessians, noise = rng.normal(0, 9, 7), rng.uniform(-5, 60, 7), 13.0
    step = table.update(gradients, hessians, noise)

    known = np.maximum(0.5 * start + 0.5 * hessians, 1)
    trust = known / (known + noise)
    prior = RIDGE * np.eye(7)
    for i in range(n_ordered - 1):
        q = 2 / (1 / (SMOOTHNESS * n_ordered) + (before[i + 1] - before[i]) ** 2)
        prior[i : i + 2, i : i + 2] += q * np.array([[1, -1], [-1, 1]])
    wanted = LEARNING_RATE * np.linalg.solve(np.diag(trust * known) + prior, trust * gradients - prior @ before)
    np.testing.assert_allclose(step, wanted, rtol=1e-10)
    np.testing.assert_allclose(table.values, before + step)


def test_hessians_are_averaged():
    """The first update halves the weight of the start; later ones never count for less than a tenth."""
    table = FeatureTable(Bins(np.zeros(256, np.uint8), 1, 0, np.ones(1)), np.array([8.0]))
    seen = []
    for _ in range(12):
        table.update(np.zeros(1), np.zeros(1), 1.0)
        seen.append(float(table.hessians[0]))
    kept = np.array(seen) / np.array([8.0, *seen[:-1]])
    np.testing.assert_allclose(kept, [1 - max(1 / (t + 2), 0.1) for t in range(12)])


def test_orders_and_shares():
    """Numeric bins keep their order, levels go by effect; shares favour mass and steepness and sum to 1."""
    numeric = Bins(np.zeros(256, np.uint8), 4, 3, np.array([10.0, 10, 10, 99]))
    levels = Bins(np.zeros(256, np.uint8), 3, 0, np.array([10.0, 20, 70]))
    table = np.array([0.0, 0.0, 5.0, 1.0])
    assert order_of(table, numeric).tolist() == [0, 1, 2]
    assert order_of(np.array([2.0, -1, 0]), levels).tolist() == [1, 2, 0]
    shares = split_shares(table, numeric)
    assert shares.sum() == pytest.approx(1)
    assert shares[2] > shares[0]
    assert split_shares(np.zeros(3), levels).tolist() == [0.1, 0.2, 0.7]
    assert spread(np.array([1.0, 1, 1]), levels) == 0.0
    assert spread(np.array([0.0, 0, 1]), levels) == pytest.approx(np.sqrt(0.21))


def test_padding():
    """Tables become rows of 256, zeros behind."""
    out = padded([np.array([1.0, 2]), np.array([3.0])])
    assert out.shape == (2, 256)
    assert out[:, :3].tolist() == [[1, 2, 0], [3, 0, 0]]
