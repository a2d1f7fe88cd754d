"""The same rows, seed and noise give the same model as ever: a change of the code alone changes no result.

A deliberate change of the recipe's constants changes these figures; then write the new ones down. They are sums of the
model's numbers rather than a hash, because libraries of mathematics differ in the last bit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from twins.local_fit import fit_locally


def fingerprint(model):
    """A few sums over all trees, each sensitive to any change: values, gains, covers, questions, edges, base scores."""
    trees = model.trees
    places = np.concatenate([np.cos(np.arange(tree.n_nodes) + t) for t, tree in enumerate(trees)])

    def along(name):
        values = np.concatenate([np.asarray(getattr(tree, name), np.float64) for tree in trees])
        return float(places @ np.where(np.isfinite(values), values, 0.0))

    edges = np.concatenate([feature.edges for feature in model.features if feature.edges is not None])
    return (
        len(trees),
        sum(tree.n_nodes for tree in trees),
        float(model.base_scores @ (1.0 + np.arange(model.n_outputs))),
        float(edges.sum()),
        *(along(name) for name in ("value", "gain", "cover", "feature", "bin", "missing_left")),
    )


KNOWN = {
    ("logistic", 1.0): (
        105, 1539, -0.4562343763501968, 32950.35330826044, -5.291823807089931, 52.84387153943397, -66.87557954223388,
        -6.293441684755617, -27.719838166330852, 8.159825560898113,
    ),
    ("logistic", math.inf): (
        105, 6969, -0.26638279299053436, 991529.6781807046, -6.275212744056767, 27.031830589787802, 929.539899904476,
        -64.70660231070116, 1332.815156066248, -1.8177382521483518,
    ),
    ("squared", 1.0): (
        105, 1545, -0.10655634840397193, 40749.31810080516, 0.39319078035344956, 116.59528395808563, 3950.79870435341,
        14.257294470339822, -13.81430940562035, 10.064330992529866,
    ),
    ("squared", math.inf): (
        105, 6969, -0.26232795400354714, 991529.6781807046, -5.672127105952811, 50.43689180901197, -6184.781854538198,
        -45.40787602746965, 1820.138163751597, -2.1064547317147397,
    ),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_results_do_not_change(task, epsilon):
    """Two classes and regression, with noise and without."""
    schema, rows_of = task
    rows = rows_of(700)
    model = fit_locally([rows], schema, epsilon=epsilon, delta=1e-5, random=np.random.default_rng(11), seed=5).model
    assert fingerprint(model) == pytest.approx(KNOWN[rows.loss, epsilon], rel=1e-6, abs=1e-6)
