from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.protocols.central.bins import public_bins
from hedgerow.protocols.central.dpboost.fit import CentralTraining, fit_central
from hedgerow.protocols.central.dpboost.records import read_labelled
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema
from twins.naive_dpboost import NaiveDPBoost, candidates_of, nested_tree

SCHEMA = Schema.from_public(
    bounds={"a": (-2.0, 2.0), "b": (0, 3), "c": (-1.0, 1.0)},
    levels={"d": ["u", "v", "w"], "e": ["n", "y"], "f": [1, 2, 3, 4]},
    integers=["b"],
    may_be_missing=["a", "d"],
    classes=[0, 1],
)


def table(n: int, seed: int = 0):
    """Numbers and levels, some missing, some out of bounds, some levels that nobody has."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    a = rng.normal(size=n) * 1.5
    b, c = rng.integers(0, 4, n), rng.uniform(-1, 1, n)
    d = rng.choice(["u", "v", None], n)
    e, f = rng.choice(["n", "y"], n), rng.choice([1, 3], n)
    y = (a + 0.5 * b * c + (e == "y") + rng.normal(size=n) * 0.5 > 0.5).astype(int)
    a[rng.random(n) < 0.2] = np.nan
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "e": e, "f": f}), y


def both(settings: DPBoostSettings, n: int = 150, seed: int = 3):
    """The trees of the fast and of the slow implementation, from the same stream."""
    X, y = table(n)
    fast = fit_central(X, y, SCHEMA, settings, np.random.default_rng(seed)).model
    bins = public_bins(SCHEMA, settings.max_bins)
    labelled = read_labelled(X, y, SCHEMA, settings.loss)
    naive = NaiveDPBoost(SCHEMA, bins, settings, np.random.default_rng(seed))
    slow = naive.fit(bins.transform(labelled.table), labelled.labels)
    return [nested_tree(tree) for tree in fast.trees], [_without_missing_cut(tree, bins) for tree in slow]


def _without_missing_cut(tree, bins):
    """The twin names the missing code where only missing values go left; a model's tree has no level there."""
    if len(tree) == 1:
        return tree
    feature, cut, missing_left, left, right = tree
    binned = bins.features[feature]
    cut = -1 if binned.is_categorical and cut == binned.missing_code else cut
    return (feature, cut, missing_left, _without_missing_cut(left, bins), _without_missing_cut(right, bins))


COMMON = {"n_trees": 5, "trees_per_ensemble": 3, "max_depth": 3, "max_bins": 6, "clipped_count_share": 0.0}
CASES = [
    {},
    {"l2": 0.0},
    {"assignment": "paper"},
    {"filtering": True},
    {"protocol": "central.parallel", "filtering": False},
    {"leaf_clipping": False},
    {"loss": "logistic"},
    {"protocol": "central.parallel"},
    {"protocol": "central.parallel", "assignment": "paper"},
    {"protocol": "central.sequential"},
    {"selection": "permute_and_flip", "gain": "paper"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("epsilon", [math.inf, 20.0, 1.0])
def test_fast_and_naive_give_the_same_trees(case, epsilon):
    """Choices, directions and leaf values are equal to the last bit, without noise and with."""
    fast, slow = both(DPBoostSettings(epsilon=epsilon, **(COMMON | case)))
    assert fast == slow


def test_the_list_of_candidates_is_the_naive_one():
    """Numbered questions mean the same codes on the left in both implementations."""
    bins = public_bins(SCHEMA, 6)
    training = CentralTraining(SCHEMA, DPBoostSettings(epsilon=1.0, max_bins=6), np.random.default_rng(0), 1)
    assert [f.n_value_bins for f in training.bins.features] == [f.n_value_bins for f in bins.features]
    from hedgerow.protocols.central.dpboost.growth import list_candidates

    fast = list_candidates(SCHEMA, bins)
    slow = candidates_of(SCHEMA, bins)
    assert len(fast.feature) == len(slow)
    assert fast.feature.tolist() == [c.feature for c in slow]
    assert fast.cut.tolist() == [c.cut for c in slow]
    assert fast.missing_left.tolist() == [c.missing_left for c in slow]
    # 2 * 6 - 1 of "a", 3 of "b", 5 of "c", 3 levels and missing of "d", one of two mirror images of "e", 4 of "f"
    assert np.diff(fast.first).tolist() == [11, 3, 5, 4, 1, 4]
