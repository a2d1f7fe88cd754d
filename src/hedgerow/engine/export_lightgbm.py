"""A text file that `lightgbm.Booster(model_file=...)` reads and that predicts what the ensemble predicts.

LightGBM is not needed. The trees are the same trees. LightGBM asks x <= t in float64, which is our x < (the number
after t), and takes NaN for missing, so every row reaches the same leaves: those of float64 and of float32, but for two
kinds of numbers. LightGBM takes those from -1e-35 to 1e-35 for 0; a threshold among them is refused. And where every
value goes left, infinity does not. Leaf values are added in float64, the base score is in the first tree: with T trees
for an output raw scores differ by at most 2**-24 * T * (sum over trees of the largest |leaf value|).

Levels are codes, their places in `FeatureBins.levels`; the last line of the file has the levels themselves, by which
LightGBM matches the categories of a pandas data frame. In LightGBM missing and unseen levels go right; where ours go
left, the children change places. (A code with a fraction is rounded towards zero there, and an unseen level here.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import at_most, notes, refuse_bounds, refuse_scores_of_classes, silent_tree
from hedgerow.engine.import_lightgbm import CATEGORICAL, DEFAULT_LEFT, NAN
from hedgerow.engine.model_file import write_file
from hedgerow.engine.zero_is_missing import ZERO
from hedgerow.errors import ExportRefused

_OBJECTIVES = {
    "logistic": "binary sigmoid:1",
    "softmax": "multiclass num_class:{}",
    "squared": "regression",
    "poisson": "poisson",
    "absolute": "regression_l1",
    "quantile": "quantile",
}
_LARGEST = float(np.finfo(np.float64).max)
_NOT_IN_NAMES = ' \t\r\n",:[]{}='


def export_lightgbm(model: Ensemble, path: str | PathLike[str]) -> None:
    """Write the model as LightGBM's text; ExportRefused if LightGBM could not predict the same."""
    write_file(lightgbm_text(model).encode(), path)


def lightgbm_text(model: Ensemble) -> str:
    """The text that `export_lightgbm` writes."""
    refuse_scores_of_classes(model, "LightGBM")
    refuse_bounds(model, "LightGBM")
    features, n_outputs = model.features, model.n_outputs
    for feature in features:
        if any(mark in feature.name for mark in _NOT_IN_NAMES) or not feature.name:
            raise ExportRefused(
                f'LightGBM does not accept spaces or any of ",:[]{{}}= in the name of a feature, as in {feature.name!r}'
            )
    trees = list(model.trees) or [silent_tree()] * n_outputs
    blocks = []
    for t, tree in enumerate(trees):
        base = float(model.base_scores[t]) if t < n_outputs else 0.0
        blocks.append(f"Tree={t}\n{_tree_lines(tree, features, base)}\n\n")
    header = {
        "version": "v4",
        "num_class": n_outputs,
        "num_tree_per_iteration": n_outputs,
        "label_index": 0,
        "max_feature_idx": len(features) - 1,
        "objective": _OBJECTIVES[model.loss].format(n_outputs),
        "feature_names": " ".join(feature.name for feature in features),
        "feature_infos": " ".join(_info(feature) for feature in features),
        "tree_sizes": " ".join(str(len(block)) for block in blocks),
    }
    levels = [list(feature.levels) for feature in features if feature.levels is not None]
    about = "".join(f"{name}={' '.join(text.split())}\n" for name, text in notes(model).items())
    return (
        "tree\n"
        + "".join(f"{name}={value}\n" for name, value in header.items())
        + "\n"
        + "".join(blocks)
        + f"end of trees\n\nfeature_importances:\n\n{about}\n"
        + f"pandas_categorical:{json.dumps(levels or None)}\n"
    )


def _tree_lines(tree: Tree, features: Sequence[FeatureBins], base: float) -> str:
    inner, leaves = np.flatnonzero(~tree.is_leaf), np.flatnonzero(tree.is_leaf)
    number = np.empty(tree.n_nodes, np.int64)  # inner nodes from 0 on, leaves as -1, -2, ...
    number[inner], number[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
    left, right = number[tree.left[inner]], number[tree.right[inner]]
    by_levels = tree.level_set[inner] >= 0
    swapped = by_levels & tree.missing_left[inner]
    thresholds = np.minimum(at_most(tree.threshold[inner]), _LARGEST)
    _check_thresholds(tree, inner, features)
    sets: list[Ints] = []
    for k in np.flatnonzero(by_levels).tolist():
        node = inner[k]
        goes_left = tree.left_levels[tree.level_set[node], : features[tree.feature[node]].n_value_bins]
        thresholds[k] = len(sets)
        sets.append(_words(np.flatnonzero(goes_left != swapped[k])))
    kinds = NAN << 2 | np.where(by_levels, CATEGORICAL, DEFAULT_LEFT * tree.missing_left[inner])
    fields: dict[str, Any] = {"num_leaves": len(leaves), "num_cat": len(sets)}
    values = tree.value.astype(np.float64) + base
    if len(inner):
        cover = np.rint(np.clip(tree.cover, 0, 2**31 - 1)).astype(np.int64)
        fields |= {
            "split_feature": tree.feature[inner],
            "split_gain": tree.gain[inner],
            "threshold": thresholds,
            "decision_type": kinds,
            "left_child": np.where(swapped, right, left),
            "right_child": np.where(swapped, left, right),
            "leaf_value": values[leaves],
            "leaf_weight": tree.cover[leaves],
            "leaf_count": cover[leaves],
            "internal_value": values[inner],
            "internal_weight": tree.cover[inner],
            "internal_count": cover[inner],
        }
        if sets:
            fields["cat_boundaries"] = np.cumsum([0, *map(len, sets)])
            fields["cat_threshold"] = np.concatenate(sets)
    else:
        fields["leaf_value"] = values
    fields |= {"is_linear": 0, "shrinkage": 1}
    return "\n".join(f"{name}={_written(value)}" for name, value in fields.items())


def _check_thresholds(tree: Tree, inner: Ints, features: Sequence[FeatureBins]) -> None:
    for node in inner[(np.abs(tree.threshold[inner]) <= ZERO) & (tree.threshold[inner] != 0.0)].tolist():
        raise ExportRefused(
            f"feature {features[tree.feature[node]].name!r} is split at {tree.threshold[node]!r}, and LightGBM takes "
            "numbers from -1e-35 to 1e-35 for 0; scale the column"
        )


def _words(codes: Ints) -> Ints:
    """A set of codes as words of 32 bits, one at least."""
    bits = np.zeros(32 * (int(codes.max(initial=0)) // 32 + 1), np.uint8)
    bits[codes] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.int64)


def _info(feature: FeatureBins) -> str:
    """What LightGBM says about a column: its categories, or its range; `none` if no tree can ask about it."""
    if feature.levels is not None:
        return ":".join(map(str, range(len(feature.levels)))) or "none"
    edges = np.zeros(0) if feature.edges is None else feature.edges
    return f"[{edges[0]!r}:{edges[-1]!r}]".replace("np.float64(", "").replace(")", "") if len(edges) else "none"


def _written(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)
    return " ".join(str(x) if isinstance(x, int) else repr(x) for x in value.tolist())
