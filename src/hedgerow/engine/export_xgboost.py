"""A file that `xgboost.Booster.load_model` reads and that predicts what the ensemble predicts. XGBoost is not needed.

The trees are the same trees: same nodes, same order, same leaf values, same ways for missing values. What is left to
differ is arithmetic, and by how much is known:

* XGBoost turns every input into float32 first. For inputs that are float32, every row reaches the same leaves. A
  threshold that float32 cannot express is replaced by the next float32 above it, which divides the float32 numbers in
  the same way; where the threshold itself, rounded as XGBoost would round it, ended up on the other side, or where two
  thresholds would become one, the export is refused.
* XGBoost adds base score and leaf values in float32, we add the base score last and in float64. Either sum of T leaf
  values is at most (T + 1) roundings away from the true one, so margins differ by at most
  2**-23 * (T + 2) * (|base score| + sum over trees of the largest |leaf value|).
* XGBoost keeps the base score of a probability or a rate as that probability or rate, in float32. The part of our base
  score that gets lost there (noticeable only close to 0 or 1) is added to the leaves of the first tree of that output.

Levels: the file carries their names when all are text or whole numbers, and XGBoost then matches the categories of a
data frame by name (and may refuse one with categories that the model does not know). In a plain matrix levels are
codes, their places in `FeatureBins.levels`. A missing value goes where ours goes, and so does an unseen level given as
NaN or as any code from the number of levels to 255.

Made for XGBoost 3.1 and later, where the base score is one number per output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import notes, refuse_bounds, refuse_scores_of_classes, silent_tree
from hedgerow.engine.model_file import write_file
from hedgerow.errors import ExportRefused

_OBJECTIVES: dict[str, dict[str, Any]] = {
    "logistic": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
    "squared": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
    "softmax": {"name": "multi:softprob"},
    "poisson": {"name": "count:poisson", "poisson_regression_param": {"max_delta_step": "0.699999988"}},
    "absolute": {"name": "reg:absoluteerror"},
    "quantile": {"name": "reg:quantileerror"},
}
_NO_PARENT = 2**31 - 1
_WHOLE_NUMBERS = 15
"""XGBoost's own number for "64-bit whole numbers" as the kind of a feature's levels."""


def export_xgboost(model: Ensemble, path: str | PathLike[str]) -> None:
    """Write the model as XGBoost's JSON; ExportRefused if XGBoost could not predict the same."""
    text = json.dumps(xgboost_document(model), ensure_ascii=False, separators=(",", ":"))
    write_file(text.encode(), path)


def xgboost_document(model: Ensemble) -> dict[str, Any]:
    """The document that `export_xgboost` writes."""
    features, n_outputs = model.features, model.n_outputs
    _check_names(features)
    thresholds = [_float32_edges(feature, _split_bins(model.trees, j)) for j, feature in enumerate(features)]
    refuse_scores_of_classes(model, "XGBoost")
    refuse_bounds(model, "XGBoost")
    bases = [_expressed_base(model.loss, float(base)) for base in model.base_scores]
    trees = list(model.trees) or [silent_tree()] * n_outputs
    documents = []
    for t, tree in enumerate(trees):
        lost = bases[t % n_outputs][1] if t < n_outputs else 0.0
        documents.append(_tree_document(t, tree, features, thresholds, lost))
    objective = dict(_OBJECTIVES[model.loss])
    if model.loss == "softmax":
        objective["softmax_multiclass_param"] = {"num_class": str(n_outputs)}
    if model.loss == "quantile":
        objective["quantile_loss_param"] = {"quantile_alpha": f"[{model.meta.get('params', {}).get('quantile', 0.5)}]"}
    named = model.meta.get("has_feature_names", [f.name for f in features] != [f"x{j}" for j in range(len(features))])
    return {
        "version": [3, 2, 0],
        "learner": {
            "attributes": notes(model),
            "feature_names": [f.name for f in features] if named else [],
            "feature_types": ["float" if f.levels is None else "c" for f in features],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(0, len(trees) + 1, n_outputs)),
                    "tree_info": [t % n_outputs for t in range(len(trees))],
                    "trees": documents,
                    **_level_names(features),
                },
            },
            "learner_model_param": {
                "base_score": "[" + ",".join(str(base) for base, _ in bases) + "]",
                "boost_from_average": "1",
                "num_class": str(n_outputs if model.loss == "softmax" else 0),
                "num_feature": str(len(features)),
                "num_target": "1",
            },
            "objective": objective,
        },
    }


def _check_names(features: Sequence[FeatureBins]) -> None:
    for feature in features:
        if any(mark in feature.name for mark in "[]<"):
            raise ExportRefused(f"XGBoost does not accept [, ] or < in the name of a feature, as in {feature.name!r}")


def _split_bins(trees: Sequence[Tree], feature: int) -> Ints:
    """The bins after which some tree splits the feature."""
    bins = [tree.bin[(tree.feature == feature) & (tree.level_set < 0)] for tree in trees]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *bins]))


def _float32_edges(feature: FeatureBins, split_bins: Ints) -> Scores:
    """The float32 thresholds that stand for the edges, and one more, +inf, for "every value that is there"."""
    edges = np.zeros(0) if feature.edges is None else feature.edges
    with np.errstate(over="ignore"):
        near = edges.astype(np.float32)
    used = split_bins[split_bins < len(edges)]
    refused = (near < edges)[used] | ~np.isfinite(near[used])
    refused[1:] |= near[used][1:] == near[used][:-1]
    if refused.any():
        edge = float(edges[used][refused][0])
        raise ExportRefused(
            f"feature {feature.name!r} is split at {edge!r}, where XGBoost, which rounds every value to float32, "
            "cannot tell apart what the model tells apart; train on float32 values, or on values shifted or scaled "
            "to fit them"
        )
    return np.append(near, np.float32(np.inf))


def _expressed_base(loss: str, base: float) -> tuple[np.float32, float]:
    """XGBoost's base_score for a raw base score, and the part of the raw score that it does not express."""
    if loss == "logistic":
        # XGBoost takes no probability below 1e-6 or above 1 - 1e-6; from 0.999 on it would lose most digits.
        with np.errstate(over="ignore"):
            probability = np.clip(1 / (1 + np.exp(np.float64(-base))), 1e-5, 0.999).astype(np.float32)
        return probability, _if_noticeable(base, -np.log(np.float32(1) / probability - np.float32(1)))
    if loss == "poisson":
        with np.errstate(over="ignore", under="ignore"):
            rate = np.clip(np.exp(np.float64(base)), 1e-30, 1e30).astype(np.float32)
        return rate, _if_noticeable(base, np.log(rate))
    return np.float32(base), 0.0


def _if_noticeable(base: float, expressed: np.float32) -> float:
    """The difference, unless it is within the last place of the float32 sum that it would be added to."""
    lost = base - float(expressed)
    return lost if abs(lost) > 2.0**-23 * max(1.0, abs(base)) else 0.0


def _tree_document(
    number: int, tree: Tree, features: Sequence[FeatureBins], thresholds: Sequence[Scores], lost: float
) -> dict[str, Any]:
    leaf = tree.is_leaf
    inner = np.flatnonzero(~leaf)
    value = tree.value if lost == 0.0 else (tree.value + lost).astype(np.float32)
    condition = value.copy()  # of a leaf: its value
    for node in inner.tolist():
        by_levels = tree.level_set[node] >= 0
        condition[node] = 0.0 if by_levels else thresholds[tree.feature[node]][tree.bin[node]]
    parents = np.full(tree.n_nodes, _NO_PARENT)
    parents[tree.left[inner]] = parents[tree.right[inner]] = inner
    level_nodes = np.flatnonzero(tree.level_set >= 0)
    right_codes = [_right_codes(tree, node, features).tolist() for node in level_nodes.tolist()]
    return {
        "base_weights": _shortest(value),
        "categories": [code for codes in right_codes for code in codes],
        "categories_nodes": level_nodes.tolist(),
        "categories_segments": np.cumsum([0, *map(len, right_codes)])[:-1].tolist(),
        "categories_sizes": [len(codes) for codes in right_codes],
        "default_left": tree.missing_left.astype(int).tolist(),
        "id": number,
        "left_children": tree.left.tolist(),
        "loss_changes": _shortest(tree.gain),
        "parents": parents.tolist(),
        "right_children": tree.right.tolist(),
        "split_conditions": _shortest(condition),
        "split_indices": np.where(leaf, 0, tree.feature).tolist(),
        "split_type": (tree.level_set >= 0).astype(int).tolist(),
        "sum_hessian": _shortest(tree.cover.astype(np.float32)),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(features)),
            "num_nodes": str(tree.n_nodes),
            "size_leaf_vector": "1",
        },
    }


def _right_codes(tree: Tree, node: int, features: Sequence[FeatureBins]) -> Ints:
    """XGBoost sends the listed categories right and all others left, so unseen ones that go right have to be listed.

    It wants at least one in the list: where all go left, that is 256, which is nobody's code.
    """
    goes_left = tree.left_levels[tree.level_set[node]].copy()
    goes_left[features[tree.feature[node]].missing_code :] = tree.missing_left[node]
    return np.flatnonzero(~goes_left) if not goes_left.all() else np.array([MAX_BINS])


def _level_names(features: Sequence[FeatureBins]) -> dict[str, Any]:
    """The levels of every feature, as far as XGBoost has a way to write them down."""
    levels = [feature.levels or () for feature in features]
    whole = [all(type(v) is int and abs(v) < 2**63 for v in values) for values in levels]
    text = [all(isinstance(v, str) for v in values) for values in levels]
    if not any(levels) or not all(w or t for w, t in zip(whole, text, strict=True)):
        return {}
    encoded = []
    for values, as_numbers in zip(levels, whole, strict=True):
        if values and as_numbers:
            encoded.append({"type": _WHOLE_NUMBERS, "values": list(values)})
        else:
            names = [str(v).encode() for v in values]
            offsets = np.cumsum([0, *map(len, names)]).tolist() if names else []
            encoded.append({"offsets": offsets, "values": list(b"".join(names))})
    return {
        "cats": {
            "enc": encoded,
            "feature_segments": np.cumsum([0, *map(len, levels)]).tolist(),
            "sorted_idx": [k for values in levels for k in _in_order(values)],
        }
    }


def _in_order(values: Sequence[Any]) -> list[int]:
    keys = [v.encode() if isinstance(v, str) else v for v in values]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _shortest(values: Scores) -> list[float]:
    """Numbers whose decimals are as short as float32 allows: that is how many XGBoost's reader takes exactly."""
    return [float(str(value)) for value in values]
