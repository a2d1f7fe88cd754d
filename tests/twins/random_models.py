"""Trees and ensembles made of nothing but random numbers: models that no training would give, for tests of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Level

OUTPUTS = {"logistic": 1, "squared": 1, "poisson": 1, "softmax": 3, "absolute": 1, "quantile": 1}
"""Loss -> how many raw scores a row has in the models of `model_for`."""


def random_mapper(
    rng: np.random.Generator, n_numeric: int = 4, n_categorical: int = 1, n_bins: int = 12, n_levels: int = 9
) -> BinMapper:
    """Numeric features with float32 edges around 0, then categorical ones with levels "a", "b", ..."""
    names: Sequence[Level] = [chr(97 + k) if k < 26 else f"level {k}" for k in range(n_levels)]
    numeric = [
        FeatureBins(f"x{j}", np.unique(rng.normal(size=n_bins - 1).astype(np.float32))) for j in range(n_numeric)
    ]
    categorical = [FeatureBins(f"c{j}", levels=tuple(names)) for j in range(n_categorical)]
    return BinMapper((*numeric, *categorical))


def random_tree(rng: np.random.Generator, mapper: BinMapper, depth: int = 4, split_probability: float = 1.0) -> Tree:
    """A tree of at most `depth` levels in which a node above the last level is split with the given probability."""
    nodes: list[dict[str, Any]] = []
    sets: list[np.ndarray] = []
    levels = [0]
    while len(nodes) < len(levels):
        level = levels[len(nodes)]
        node: dict[str, Any] = {
            "feature": -1, "bin": -1, "threshold": np.nan, "missing_left": False, "left": -1, "right": -1,
            "value": rng.normal(), "gain": 0.0, "cover": rng.uniform(1, 100), "level_set": -1,
        }  # fmt: skip
        if level < depth and rng.random() < split_probability:
            node |= _random_split(rng, mapper, len(sets))
            if node["level_set"] >= 0:
                sets.append(_random_levels(rng, mapper.features[node["feature"]], node["missing_left"]))
            node |= {"left": len(levels), "right": len(levels) + 1}
            levels += [level + 1, level + 1]
        nodes.append(node)
    columns = {name: np.array([node[name] for node in nodes]) for name in nodes[0]}
    return Tree(left_levels=np.array(sets, np.bool_).reshape(-1, 256), **columns)


def _random_split(rng: np.random.Generator, mapper: BinMapper, n_sets: int) -> Mapping[str, Any]:
    feature = int(rng.integers(len(mapper.features)))
    bins = mapper.features[feature]
    split = {"feature": feature, "missing_left": rng.random() < 0.5, "gain": rng.uniform(0, 10)}
    if bins.edges is None:
        return split | {"level_set": n_sets}
    last = int(rng.integers(bins.n_value_bins))
    return split | {"bin": last, "threshold": np.append(bins.edges, np.inf)[last]}


def _random_levels(rng: np.random.Generator, bins: FeatureBins, missing_left: bool) -> np.ndarray:
    goes_left = np.zeros(256, np.bool_)
    goes_left[: bins.n_value_bins] = rng.random(bins.n_value_bins) < 0.5
    goes_left[bins.missing_code] = missing_left
    return goes_left


def random_ensemble(
    rng: np.random.Generator, mapper: BinMapper, n_trees: int = 5, n_outputs: int = 1, **shape: Any
) -> Ensemble:
    """`n_trees` random trees per output; `shape` goes to `random_tree`."""
    return Ensemble(
        mapper,
        "softmax" if n_outputs > 1 else "logistic",
        rng.normal(size=n_outputs),
        trees=[random_tree(rng, mapper, **shape) for _ in range(n_trees * n_outputs)],
        classes=[f"class {k}" for k in range(max(n_outputs, 2))],
        meta={"params": {"learning_rate": 0.1}},
    )


def model_for(loss: str, mapper: BinMapper, rng: np.random.Generator, bases: Any = None, n_trees: int = 10) -> Ensemble:
    """Small random trees, so that rates and odds stay in range."""
    n_outputs = OUTPUTS[loss]
    trees = [random_tree(rng, mapper, 5, 0.9) for _ in range(n_trees * n_outputs)]
    for tree in trees:
        tree.value[:] *= np.float32(0.1)
    return Ensemble(mapper, loss, rng.normal(size=n_outputs) if bases is None else bases, trees=trees)


def random_matrix(rng: np.random.Generator, mapper: BinMapper, n_rows: int, dtype: Any = np.float32) -> np.ndarray:
    """Values on and around the edges, infinities, missing values, levels, unseen levels."""
    columns = []
    for bins in mapper.features:
        if bins.edges is None:
            column = rng.integers(-1, bins.n_value_bins + 2, n_rows).astype(np.float64)
            column[rng.random(n_rows) < 0.05] += 0.5
        else:
            column = rng.choice(np.append(bins.edges, rng.normal(size=20)), n_rows)
            column[rng.random(n_rows) < 0.03] = np.inf
            column[rng.random(n_rows) < 0.03] = -np.inf
        column[rng.random(n_rows) < 0.1] = np.nan
        columns.append(column)
    return np.stack(columns, axis=1).astype(dtype)
