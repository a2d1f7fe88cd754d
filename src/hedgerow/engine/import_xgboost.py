"""A model that `xgboost.Booster.save_model` has written, as JSON or UBJSON, becomes an ensemble that predicts the same.

XGBoost is not needed. What is equal, and how far:

* Every row reaches the same leaves. XGBoost rounds each value to float32 and asks x < t. For a value of 64 bits that is
  the same as x < e, where e is the smallest number that float32 rounds to t or above; e is the edge here, and for
  values of 32 bits it is t again. (Infinities are the exception: XGBoost refuses them.)
* XGBoost adds base score and leaf values in float32, we add the base score last and in float64. With T trees for an
  output, margins differ by at most 2**-23 * (T + 2) * (|base score| + sum over trees of the largest |leaf value|).
* The base score of a probability or a rate is kept as that; its margin is calculated in float32, as XGBoost does.

Categories: a file of XGBoost 3.1 or later has their names if it was trained on a data frame, and they are the levels.
Otherwise levels are the codes 0 to 254, since a file tells only codes that go right somewhere. A code that the file
does not know goes left in XGBoost and the way of missing values here.

All trees are used, as `Booster.predict` does: of a training that stopped early, save `booster[: best_iteration + 1]`.
Weights of DART are multiplied into the leaves. Refused: other objectives, linear boosters, trees with vector leaves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS, Bools, Floats, Ints, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.foreign_trees import (
    MOST_NODES,
    ForeignTree,
    assemble,
    check_levels,
    number_array,
    whole_array,
    whole_number,
)
from hedgerow.engine.table import MAX_LEVELS, Level, default_names
from hedgerow.engine.ubjson import read_ubjson
from hedgerow.errors import ModelFileError

LOSSES = {
    "binary:logistic": "logistic",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    "reg:squarederror": "squared",
    "count:poisson": "poisson",
    "reg:absoluteerror": "absolute",
    "reg:quantileerror": "quantile",
}
"""XGBoost's objective -> loss."""
_MOST_CLASSES = 1 << 16
_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "text"}


def import_xgboost(content: bytes) -> Ensemble:
    """The model in the bytes of a file; ModelFileError if they are not one, or one that cannot be expressed here."""
    if content[1:2] in (b"i", b"U", b"I", b"l", b"L"):
        return from_document(read_ubjson(content))
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as reason:  # also what is not UTF-8
        raise ModelFileError(f"this is not a complete JSON document: {reason}") from None
    return from_document(document)


def from_document(document: Any) -> Ensemble:
    """The model that a document in XGBoost's schema describes."""
    learner = _field(_mapping(document, "the file"), "learner", dict, "the file")
    param = _field(learner, "learner_model_param", dict, "learner")
    objective = _field(_field(learner, "objective", dict, "learner"), "name", str, "objective")
    if objective not in LOSSES:
        raise ModelFileError(
            f"the model was trained with the objective {objective[:60]!r}; those that can be read are "
            f"{', '.join(LOSSES)}"
        )
    loss = LOSSES[objective]
    if whole_number(param.get("num_target", "1"), "num_target", 0, MOST_NODES) > 1:
        raise ModelFileError("the model predicts several targets at once, which no model here does")
    n_classes = whole_number(param.get("num_class", "0"), "num_class", 0, _MOST_CLASSES)
    n_outputs = n_classes if loss == "softmax" else 1
    if loss == "softmax" and n_classes < 2:
        raise ModelFileError(f"a model for classes must have at least 2, got num_class {n_classes}")
    n_features = whole_number(param.get("num_feature"), "num_feature", 1, MOST_NODES)
    model, weights = _booster(_field(learner, "gradient_booster", dict, "learner"))
    trees = _field(model, "trees", list, "gradient_booster")
    owner = whole_array(model.get("tree_info"), "tree_info", len(trees), 0, n_outputs - 1)
    drop = np.ones(len(trees)) if weights is None else number_array(weights, "weight_drop", len(trees))
    names, has_names = _names(learner.get("feature_names"), n_features)
    attributes = learner.get("attributes")
    is_ours = isinstance(attributes, dict) and "hedgerow.version" in attributes  # written by `export_xgboost`
    known = _known_levels(model.get("cats"), n_features, is_ours=is_ours)
    by_output: list[list[ForeignTree]] = [[] for _ in range(n_outputs)]
    levels: dict[int, tuple[Level, ...]] = dict(known)
    for t, (tree, output) in enumerate(zip(trees, owner.tolist(), strict=True)):
        read, categories = _tree(_mapping(tree, f"tree {t}"), n_features, f"tree {t}")
        read.value = read.value * drop[t]
        for feature in np.unique(read.feature[list(categories)]).tolist():
            if feature not in levels:
                levels[feature] = tuple(range(MAX_LEVELS))
        for node, codes in categories.items():
            if int(read.feature[node]) not in known and not is_ours:  # our export also lists codes that no level has
                check_levels(names[read.feature[node]], int(codes.max(initial=0)) + 1)
            read.left_levels[node] = _goes_left(codes, len(levels[int(read.feature[node])]), read.missing_left[node])
        by_output[output].append(read)
    return assemble(
        by_output,
        names,
        {j: those for j, those in levels.items() if those},
        loss=loss,
        base_scores=_base_scores(param.get("base_score"), loss, n_outputs),
        meta={"imported": {"from": "xgboost", "objective": objective}, "has_feature_names": has_names},
    )


def _booster(booster: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The trees' own object and, of DART, the weights of trees."""
    name, weights = _field(booster, "name", str, "gradient_booster"), None
    if name == "dart":
        weights = booster.get("weight_drop")
        booster = _field(booster, "gbtree", dict, "gradient_booster")
    elif name != "gbtree":
        raise ModelFileError(f"the booster is {name[:40]!r}; only boosters of trees can be read, gbtree and dart")
    return _field(booster, "model", dict, "gradient_booster"), weights


def _tree(document: Mapping[str, Any], n_features: int, where: str) -> tuple[ForeignTree, dict[int, Ints]]:
    """The nodes, and for those that split by categories the codes that go right."""
    left = whole_array(document.get("left_children"), f"left_children of {where}", None, -1, MOST_NODES)
    n = len(left)
    param = _field(document, "tree_param", dict, where)
    if whole_number(param.get("size_leaf_vector", "1"), f"size_leaf_vector of {where}", 0, MOST_NODES) > 1:
        raise ModelFileError(
            f"{where} has a vector of values in each leaf; train with multi_strategy='one_output_per_tree'"
        )
    if not n:
        raise ModelFileError(f"{where} has no nodes")

    def numbers(name: str) -> Floats:
        return number_array(document.get(name), f"{name} of {where}", n)

    feature = whole_array(document.get("split_indices"), f"split_indices of {where}", n, 0, n_features - 1)
    kinds = document.get("split_type", [0] * n)
    is_leaf = left < 0
    condition = numbers("split_conditions")
    with np.errstate(over="ignore"):
        thresholds = float64_edges(condition.astype(np.float32))
    tree = ForeignTree(
        feature=np.where(is_leaf, -1, feature),
        threshold=np.where(is_leaf, np.nan, thresholds),
        missing_left=whole_array(document.get("default_left"), f"default_left of {where}", n, 0, 1).astype(np.bool_),
        left=left,
        right=whole_array(document.get("right_children"), f"right_children of {where}", n, -1, MOST_NODES),
        value=np.where(is_leaf, condition, numbers("base_weights")),
        gain=numbers("loss_changes"),
        cover=numbers("sum_hessian"),
    )
    by_levels = (whole_array(kinds, f"split_type of {where}", n, 0, 1) == 1) & ~is_leaf
    tree.threshold[by_levels] = np.nan
    return tree, _categories(document, by_levels, where)


def _categories(document: Mapping[str, Any], by_levels: Bools, where: str) -> dict[int, Ints]:
    if not by_levels.any():
        return {}
    n = len(by_levels)
    codes = whole_array(document.get("categories"), f"categories of {where}", None, 0, MOST_NODES)
    nodes = whole_array(document.get("categories_nodes"), f"categories_nodes of {where}", None, 0, n - 1)
    starts = whole_array(
        document.get("categories_segments"), f"categories_segments of {where}", len(nodes), 0, len(codes)
    )
    sizes = whole_array(document.get("categories_sizes"), f"categories_sizes of {where}", len(nodes), 0, len(codes))
    found = {
        node: codes[start : start + size]
        for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    }
    wanted = np.flatnonzero(by_levels).tolist()
    if any(node not in found for node in wanted) or (starts + sizes > len(codes)).any():
        raise ModelFileError(f"{where} splits by categories, and does not say by which")
    return {node: found[node] for node in wanted}


def _goes_left(right_codes: Ints, n_levels: int, missing_left: Any) -> Bools:
    """XGBoost lists the codes that go right; all others of the column go left."""
    goes_left = np.zeros(MAX_BINS, np.bool_)
    goes_left[:n_levels] = True
    goes_left[right_codes[right_codes < n_levels]] = False
    goes_left[n_levels:] = missing_left
    return goes_left


def float64_edges(thresholds: Scores) -> Floats:
    """For each float32 number t the smallest float64 number that rounds to t or above: x < t, but for all of float64.

    Half-way between two float32 numbers, rounding goes to the one whose last bit is 0.
    """
    t = thresholds + np.float32(0.0)
    below = np.nextafter(t, np.float32(-np.inf))
    with np.errstate(invalid="ignore"):
        middle = below.astype(np.float64) * 0.5 + t.astype(np.float64) * 0.5
    edges: Floats = np.where(t.view(np.int32) & 1 == 0, middle, np.nextafter(middle, np.inf))
    return np.where(np.isfinite(t) & np.isfinite(below), edges, t.astype(np.float64))


def _base_scores(text: Any, loss: str, n_outputs: int) -> list[float]:
    """XGBoost up to 3.0 has one number, later versions a list as text, one for each output or one for all."""
    if not isinstance(text, str) or len(text) > 64 * (_MOST_CLASSES + 1):
        raise ModelFileError("base_score must be text: a number, or a list of them")
    try:
        given = np.array([float(part) for part in text.strip().removeprefix("[").removesuffix("]").split(",")])
    except ValueError:
        raise ModelFileError(f"base_score must be a number or a list of them, got {text[:40]!r}") from None
    if len(given) not in (1, n_outputs) or not np.isfinite(given).all():
        raise ModelFileError(f"base_score must have a finite number for each of {n_outputs} outputs, got {text[:40]!r}")
    with np.errstate(over="ignore"):
        bases = np.broadcast_to(given, n_outputs).astype(np.float32)
    low, high = {"logistic": (0.0, 1.0), "poisson": (0.0, np.inf)}.get(loss, (-np.inf, np.inf))
    if ((bases <= low) | (bases >= high)).any():
        raise ModelFileError(f"base_score must lie between {low:g} and {high:g} for this objective, got {text[:40]!r}")
    if loss == "logistic":
        bases = -np.log(np.float32(1.0) / bases - np.float32(1.0))
    elif loss == "poisson":
        bases = np.log(bases)
    return [float(margin) for margin in bases]


def _names(given: Any, n_features: int) -> tuple[tuple[str, ...], bool]:
    """Names of columns, and whether the file has any."""
    if not isinstance(given, list) or not given:
        return default_names(n_features), False
    if len(given) != n_features or not all(isinstance(name, str) for name in given):
        raise ModelFileError(f"feature_names must be the names of {n_features} columns")
    return tuple(given), True


def _known_levels(cats: Any, n_features: int, *, is_ours: bool) -> dict[int, tuple[Level, ...]]:
    """Columns whose categories the file names: text, as one run of bytes with offsets, or numbers."""
    if not isinstance(cats, dict) or not isinstance(cats.get("enc"), list) or not cats["enc"]:
        return {}
    if len(cats["enc"]) != n_features:
        raise ModelFileError(f"cats must say something about each of {n_features} columns")
    levels: dict[int, tuple[Level, ...]] = {}
    for j, encoded in enumerate(cats["enc"]):
        where = f"the categories of column {j}"
        entry = _mapping(encoded, where)
        if "offsets" in entry:
            found: Sequence[Any] = _texts(entry, where)
            if not is_ours and not all(text.isascii() for text in found):
                raise ModelFileError(
                    f"{where} have names beyond ASCII, which XGBoost (3.2) cuts in the wrong places when it saves a "
                    "model; give them other names, or train on codes"
                )
        else:
            found = _numbers_as_levels(entry.get("values"), where)
        if found:
            check_levels(str(j), len(found))
            if len(set(found)) < len(found):
                raise ModelFileError(f"{where} are not all different")
            levels[j] = tuple(found)
    return levels


def _texts(entry: Mapping[str, Any], where: str) -> list[str]:
    bytes_of = whole_array(entry.get("values"), where, None, -128, 255).astype(np.uint8).tobytes()
    offsets = whole_array(entry.get("offsets"), f"offsets of {where}", None, 0, len(bytes_of)).tolist()
    try:
        return [bytes_of[a:b].decode() for a, b in pairwise(offsets)]
    except UnicodeDecodeError:
        raise ModelFileError(f"{where} are not UTF-8") from None


def _numbers_as_levels(values: Any, where: str) -> list[Level]:
    numbers = number_array(values, where, None)
    if not np.isfinite(numbers).all():
        raise ModelFileError(f"{where} must be finite")
    return [int(x) if x == int(x) else x for x in numbers.tolist()]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelFileError(f"{where} must be an object")
    return value


def _field(document: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    if not isinstance(document.get(name), kind):
        raise ModelFileError(f"{where} must have {_KINDS[kind]} {name!r}, as XGBoost's files do")
    return document[name]
