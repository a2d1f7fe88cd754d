"""Bins merged from noisy cells, and the smoothed step of a table against the dense equations that define it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.protocols.central.gaussian.tables import (
    LEARNING_RATE,
    LEVEL_VARIANCE,
    LEVELS_WORTH,
    RIDGE,
    SMOOTHNESS,
    TREND_VARIANCE,
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


def dense_step(table, before, start, gradients, hessians, noise, together):
    """The first step of a table by dense algebra, written down from the definition; every inverse is a plain one."""
    bins = table.bins
    known = np.maximum(0.5 * start + 0.5 * hessians, 1)
    trust = known / (known + noise)
    sure = np.minimum(trust * known, 1)
    ridge = (LEVELS_WORTH + sure.sum()) / (LEVELS_WORTH * LEVEL_VARIANCE + sure @ before**2)
    walk = (RIDGE if bins.n_ordered else ridge) * np.eye(bins.n_bins)
    for i in range(bins.n_ordered - 1):
        q = 2 / (1 / (SMOOTHNESS * together * bins.n_ordered) + (before[i + 1] - before[i]) ** 2)
        walk[i : i + 2, i : i + 2] += q * np.array([[1, -1], [-1, 1]])
    own = bins.mass[: bins.n_ordered]
    line = np.zeros(bins.n_bins)
    line[: bins.n_ordered] = [(own[:i].sum() + own[i] / 2) / own.sum() - 0.5 for i in range(bins.n_ordered)]
    prior = np.linalg.inv(np.linalg.inv(walk) + TREND_VARIANCE / together * np.outer(line, line))
    return LEARNING_RATE * np.linalg.solve(np.diag(trust * known) + prior, trust * gradients - prior @ before)


SHAPES = {
    "levels": (7, 0),
    "one level": (1, 0),
    "one ordered bin": (1, 1),
    "one ordered bin and missing": (2, 1),
    "two ordered bins": (2, 2),
    "ordered": (7, 7),
    "ordered and missing": (7, 6),
    "many ordered and missing": (251, 250),
}


@pytest.mark.parametrize(("n_numeric", "together"), [(0, 3), (1, 3), (8, 8), (99, 18)])
@pytest.mark.parametrize("noise", [0.0, 13.0, 1e9], ids=["no noise", "noise", "nothing but noise"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_solves_its_equations(shape, noise, n_numeric, together):
    """The quick solution equals that of the dense equations, whatever bins there are and whatever the noise is."""
    n_bins, n_ordered = SHAPES[shape]
    rng = np.random.default_rng(n_bins)
    mass = rng.uniform(1, 9, n_bins)
    bins = Bins(np.zeros(256, np.uint8), n_bins, n_ordered, mass)
    table = FeatureTable(bins, rng.uniform(5, 50, n_bins), n_numeric)
    table.values = rng.normal(0, 1, n_bins)
    before, start = table.values.copy(), table.hessians.copy()
    gradients, hessians = rng.normal(0, 9, n_bins), rng.uniform(-5, 60, n_bins)
    step = table.update(gradients, hessians, noise)
    wanted = dense_step(table, before, start, gradients, hessians, noise, together)
    np.testing.assert_allclose(step, wanted, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(table.values, before + step)


def test_a_line_is_believed_before_any_bin_is():
    """Under noise that drowns every bin, a straight trend gets through; as many signs at random do not."""
    n, rng = 200, np.random.default_rng(0)
    bins = Bins(np.zeros(256, np.uint8), n, n, np.full(n, 100.0))
    trend = np.sign(np.arange(n) - n / 2 + 0.5)
    found = []
    for signs in (trend, rng.permutation(trend)):
        table = FeatureTable(bins, np.full(n, 20.0), 8)
        for _ in range(10):
            table.update(20.0 * (signs - table.values), np.full(n, 20.0), 2000.0)
        found.append(spread(table.values, bins))
    assert found[0] > 5 * found[1]


def test_levels_that_do_not_matter_are_held_near_0():
    """Levels are shrunk more while none of them has shown an effect than when all others have."""
    shrunk = []
    for effect in (0.0, 2.0):
        table = FeatureTable(Bins(np.zeros(256, np.uint8), 9, 0, np.full(9, 50.0)), np.full(9, 10.0), 3)
        truth = np.array([0.5, *np.tile([effect, -effect], 4)])
        for _ in range(40):
            table.update(10.0 * (truth - table.values), np.full(9, 10.0), 30.0)
        shrunk.append(float(table.values[0]))
    assert 0.0 < shrunk[0] < 0.7 * shrunk[1] < 0.5


def test_hessians_are_averaged():
    """The first update halves the weight of the start; later ones never count for less than a tenth."""
    table = FeatureTable(Bins(np.zeros(256, np.uint8), 1, 0, np.ones(1)), np.array([8.0]), 1)
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
