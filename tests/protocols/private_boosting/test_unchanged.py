"""The same rows, seed and noise give the same model as ever: a change of the code alone changes no result.

A deliberate change of the recipe's constants changes these figures; then write the new ones down. They are sums of the
model's numbers rather than a hash, because libraries of mathematics differ in the last bit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.protocols.private_boosting.local import fit_locally


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
        105, 1539, -0.2893491785934831, 32950.35330826044, -4.875222579557798, 20.032583152864504, -529.5910573031279,
        41.82486200030918, -48.824265084314135, 14.876841309547604,
    ),
    ("logistic", math.inf): (
        105, 6969, -0.30520442314398344, 991529.6781807046, -3.8645593384317705, 49.45196037509031, 1152.9973482408677,
        -88.61629602811942, 2186.576629693168, -10.008869236684628,
    ),
    ("squared", 1.0): (
        105, 1545, -0.11281032858272777, 40749.31810080516, 0.47066579824022237, 53.994748458467534,
        -1675.8970714549105, -0.8506998832639395, -5.557558440680613, -1.894649841193635,
    ),
    ("squared", math.inf): (
        105, 6969, -0.2692546299525671, 991529.6781807046, -3.6850039520983744, 64.79712922905745, -6244.397998426419,
        -29.642457499895556, -463.7674134575041, -19.142033472894013,
    ),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_results_do_not_change(task, epsilon):
    """Two classes and regression, with noise and without."""
    schema, rows_of = task
    rows = rows_of(700)
    model = fit_locally([rows], schema, epsilon=epsilon, delta=1e-5, random=np.random.default_rng(11), seed=5).model
    assert fingerprint(model) == pytest.approx(KNOWN[rows.loss, epsilon], rel=1e-6, abs=1e-6)
