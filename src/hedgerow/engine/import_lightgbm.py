"""A model that `lightgbm.Booster.save_model` has written, a text file, becomes an ensemble that predicts the same.

LightGBM is not needed. What is equal, and how far:

* Every row reaches the same leaves. LightGBM asks x <= t in float64, which is x < (the number after t); numbers from
  -1e-35 to 1e-35 are 0 to it.
* Missing values: where the file says missing_type NaN, NaN goes the default way; where it says None, NaN is taken for
  0; where it says Zero (`zero_as_missing`), NaN and all numbers from -1e-35 to 1e-35 go the default way. The last is no
  single threshold where 0 would go the other way by its value: such a split becomes three (`zero_is_missing.py`).
* LightGBM has leaf values in float64, we have float32, added in float32; the middle of the first tree's values becomes
  the base score in float64. With T trees for an output raw scores differ by at most
  2**-23 * (T + 1) * (sum over trees of the largest |leaf value|), the base score taken out of the first tree.

Categories: those of a data frame are in the file by name, and are the levels; otherwise levels are the whole numbers
that the file lists for the column. Missing and unknown ones go right. (A number with a fraction is rounded towards zero
by LightGBM, and an unseen level here.) The cover of a node is its number of rows, as in LightGBM's own contributions.

A `sigmoid` other than 1 is multiplied into the leaves, and so is the mean of a random forest (`average_output`).
Refused: other objectives, linear trees, categorical columns with more than 255 categories that some tree asks about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS, Bools, Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.foreign_trees import MOST_NODES, ForeignTree, assemble, breadth_first, check_levels, whole_number
from hedgerow.engine.table import MAX_LEVELS, Level, default_names
from hedgerow.engine.zero_is_missing import ZERO, Crossing, expanded
from hedgerow.errors import ModelFileError

LOSSES = {
    "binary": "logistic",
    "multiclass": "softmax",
    "regression": "squared",
    "poisson": "poisson",
    "regression_l1": "absolute",
    "quantile": "quantile",
}
"""LightGBM's objective -> loss."""
CATEGORICAL, DEFAULT_LEFT = 1, 2
NONE, ZERO_IS_MISSING, NAN = 0, 1, 2
"""Bits of a decision_type, and its missing_type above them."""
_MOST_CLASSES = 1 << 16
_UNNAMED = re.compile(r"Column_\d+")


def import_lightgbm(content: bytes) -> Ensemble:
    """The model in the bytes of a file; ModelFileError if they are not one, or one that cannot be expressed here."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ModelFileError("this is not a text file of LightGBM: it is not UTF-8") from None
    head, *blocks = re.split(r"^Tree=", text.partition("\nend of trees")[0], flags=re.MULTILINE)
    if "\nend of trees" not in text or not head.startswith("tree"):
        raise ModelFileError("this is not a complete text file of LightGBM: it lacks its beginning or `end of trees`")
    header = _fields(head, "the header")
    loss, factor = _objective(header.get("objective", ""))
    n_outputs = whole_number(header.get("num_tree_per_iteration"), "num_tree_per_iteration", 1, _MOST_CLASSES)
    if (loss == "softmax") != (n_outputs > 1) or len(blocks) % n_outputs:
        raise ModelFileError(f"{len(blocks)} trees, {n_outputs} in each iteration, do not go with this objective")
    if "average_output" in head.split() and blocks:  # a random forest
        factor /= len(blocks) // n_outputs
    n_features = whole_number(header.get("max_feature_idx"), "max_feature_idx", 0, MOST_NODES) + 1
    names = tuple(header.get("feature_names", "").split(" "))
    if len(names) != n_features:
        raise ModelFileError(f"feature_names must be the names of {n_features} columns, got {len(names)}")
    has_names = not all(map(_UNNAMED.fullmatch, names))
    trees, asked = [], []
    for t, block in enumerate(blocks):
        tree, sets = _tree(_fields(block.partition("\n")[2], f"tree {t}"), n_features, f"tree {t}")
        tree.value = tree.value * factor
        trees.append(tree)
        asked.append(sets)
    levels = _levels(header, text, names, [(tree.feature, sets) for tree, sets in zip(trees, asked, strict=True)])
    for tree, sets in zip(trees, asked, strict=True):
        for node, categories in sets.items():
            codes, _ = levels[int(tree.feature[node])]
            tree.left_levels[node] = _goes_left([codes[c] for c in categories if c in codes])
    by_output = [trees[k::n_outputs] for k in range(n_outputs)]
    return assemble(
        by_output,
        names if has_names else default_names(n_features),
        {j: those for j, (_, those) in levels.items()},
        loss=loss,
        base_scores=[_take_base(own) for own in by_output],
        meta={"imported": {"from": "lightgbm", "objective": header["objective"]}, "has_feature_names": has_names},
    )


def _fields(text: str, where: str) -> dict[str, str]:
    """Lines of the form name=value; a name that is there twice is refused."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not equals:
            continue
        if name in found:
            raise ModelFileError(f"{where} says twice what {name[:40]!r} is")
        found[name] = value
    return found


def _objective(text: str) -> tuple[str, float]:
    """The loss, and what leaf values are multiplied with."""
    name, *options = text.split() or [""]
    if name not in LOSSES or "sqrt" in options:
        raise ModelFileError(
            f"the model was trained with the objective {text[:60]!r}; those that can be read are "
            f"{', '.join(LOSSES)} (without sqrt)"
        )
    sigmoid = [option.removeprefix("sigmoid:") for option in options if option.startswith("sigmoid:")]
    factor = float(_numbers(sigmoid[0], "sigmoid", 1)[0]) if sigmoid else 1.0
    if not 0 < factor < 1e6:
        raise ModelFileError(f"sigmoid must be above 0 and below a million, got {factor:g}")
    return LOSSES[name], factor


def _tree(fields: Mapping[str, str], n_features: int, where: str) -> tuple[ForeignTree, dict[int, list[int]]]:
    """The nodes, inner ones first, and for those that split by categories the numbers that go left."""
    n_leaves = whole_number(fields.get("num_leaves"), f"num_leaves of {where}", 1, MOST_NODES)
    if fields.get("is_linear", "0") != "0":
        raise ModelFileError(f"{where} has linear models in its leaves, which trees here have not")
    n = n_leaves - 1
    values = _numbers(fields.get("leaf_value", ""), f"leaf_value of {where}", n_leaves)
    counts = _numbers(fields.get("leaf_count", "0" if not n else ""), f"leaf_count of {where}", n_leaves)

    def column(name: str, least: int, most: int) -> Ints:
        return _whole_numbers(fields.get(name, ""), f"{name} of {where}", n, least, most)

    def numbers(name: str) -> Floats:
        return _numbers(fields.get(name, ""), f"{name} of {where}", n)

    none = np.zeros(n_leaves)
    feature = column("split_feature", 0, n_features - 1)
    decision = column("decision_type", 0, 11)
    threshold = numbers("threshold")
    missing_type, by_levels = decision >> 2, decision & CATEGORICAL != 0
    if (missing_type > NAN).any():
        raise ModelFileError(f"decision_type of {where} names a way to treat missing values that is not known")
    default_left = (decision & DEFAULT_LEFT != 0) & ~by_levels
    zero_left = threshold >= 0.0
    children = [column(name, -n_leaves, n - 1) for name in ("left_child", "right_child")]
    left, right = (np.where(child < 0, n - 1 - child, child) for child in children)  # ~leaf, behind the inner nodes
    tree = ForeignTree(
        feature=np.append(feature, np.full(n_leaves, -1)),
        threshold=np.append(_edges(threshold), none),
        missing_left=np.append(np.where(missing_type == NONE, zero_left & ~by_levels, default_left), none > 0),
        left=np.append(left, np.full(n_leaves, -1)),
        right=np.append(right, np.full(n_leaves, -1)),
        value=np.append(numbers("internal_value"), values),
        gain=np.append(numbers("split_gain"), none),
        cover=np.append(numbers("internal_count"), counts),
    )
    sets = _categories(fields, threshold, by_levels, where)
    tree.threshold[:n][by_levels] = np.nan
    # Numbers around 0 count as missing where the file says so; by their value they may go the other way.
    crossing = (missing_type == ZERO_IS_MISSING) & ~by_levels & (zero_left != default_left)
    if crossing.any():
        breadth_first(tree, where)  # copies are made of what can be followed
        tree, came_from = expanded(tree, Crossing(np.flatnonzero(crossing), default_left), where)
        sets = {node: sets[old] for node, old in enumerate(came_from.tolist()) if old in sets}
    return tree, sets


def _edges(threshold: Floats) -> Floats:
    """x <= t as x < edge. LightGBM takes numbers around 0 for 0, so that none of them is between two that are."""
    with np.errstate(over="ignore"):  # after the largest number comes infinity: every value goes left
        after = np.nextafter(threshold, np.inf)
    around_zero = np.abs(threshold) <= ZERO
    return np.where(around_zero, np.where(threshold >= 0, np.nextafter(ZERO, np.inf), -ZERO), after)


def _categories(fields: Mapping[str, str], threshold: Floats, by_levels: Bools, where: str) -> dict[int, list[int]]:
    """The numbers whose bits are set in the words of each split by categories."""
    if not by_levels.any():
        return {}
    n_sets = whole_number(fields.get("num_cat"), f"num_cat of {where}", 1, MOST_NODES)
    ends = _whole_numbers(
        fields.get("cat_boundaries", ""), f"cat_boundaries of {where}", n_sets + 1, 0, MOST_NODES
    ).tolist()
    words = _whole_numbers(fields.get("cat_threshold", ""), f"cat_threshold of {where}", None, 0, 2**32 - 1)
    found = {}
    for node in np.flatnonzero(by_levels).tolist():
        number = threshold[node]
        if (
            not 0 <= number < n_sets
            or number != int(number)
            or not ends[int(number)] < ends[int(number) + 1] <= len(words)
        ):
            raise ModelFileError(f"{where} splits by categories, and does not say by which")
        own = words[ends[int(number)] : ends[int(number) + 1]].astype("<u4")
        found[node] = np.flatnonzero(np.unpackbits(own.view(np.uint8), bitorder="little")).tolist()
    return found


_Levels = tuple[dict[int, int], tuple[Level, ...]]


def _levels(
    header: Mapping[str, str], text: str, names: Sequence[str], asked: Sequence[tuple[Ints, dict[int, list[int]]]]
) -> dict[int, _Levels]:
    """For each categorical column: the code of each number that the trees know, and the levels themselves.

    Categories that no tree asks about go right everywhere, as unknown ones do: they are left out if there are too many.
    """
    infos = header.get("feature_infos", "").split(" ")
    if len(infos) != len(names):
        raise ModelFileError(f"feature_infos must say something about each of {len(names)} columns")
    in_sets: dict[int, set[int]] = {}
    for feature, sets in asked:
        for node, categories in sets.items():
            in_sets.setdefault(int(feature[node]), set()).update(categories)
    listed = {j: info for j, info in enumerate(infos) if re.fullmatch(r"-?\d+(:-?\d+)*", info)}
    named = _data_frame_levels(text)
    frame_columns = sorted(listed.keys() | in_sets.keys())
    if named and len(named) != len(frame_columns):
        raise ModelFileError(
            f"the file names categories of {len(named)} columns of a data frame, but {len(frame_columns)} columns are "
            "categorical: it is not clear which are which. Train with all of them as categories of the data frame, "
            "and without constant ones"
        )
    by_name = dict(zip(frame_columns, named, strict=True)) if named else {}
    found: dict[int, _Levels] = {}
    for j in frame_columns:
        needed = in_sets.get(j, set())
        if j in by_name:
            numbers = list(range(len(by_name[j])))
        else:
            numbers = [int(part) for part in listed.get(j, "").split(":") if part[:12].isdigit() and len(part) < 12]
            numbers = sorted(needed.union(numbers))
        if len(numbers) > MAX_LEVELS:
            numbers = sorted(needed)
        check_levels(names[j], len(numbers))
        values = tuple(by_name[j][k] if j in by_name else k for k in numbers if j not in by_name or k < len(by_name[j]))
        found[j] = {number: code for code, number in enumerate(numbers)}, values
    return found


def _data_frame_levels(text: str) -> list[list[Level]]:
    """The last line of a file that was trained on a pandas data frame lists the categories of its columns."""
    line = text.rpartition("\npandas_categorical:")[2].strip() if "\npandas_categorical:" in text else "null"
    try:
        lists = json.loads(line)
    except (ValueError, RecursionError) as reason:
        raise ModelFileError(f"pandas_categorical is not a list in JSON: {reason}") from None
    if lists is None:
        return []
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        raise ModelFileError("pandas_categorical must be a list of lists")
    if not all(isinstance(level, str | int | float) for each in lists for level in each):
        raise ModelFileError("the categories in pandas_categorical must be texts or numbers")
    return lists


def _goes_left(codes: Sequence[int]) -> Bools:
    goes_left = np.zeros(MAX_BINS, np.bool_)
    goes_left[list(codes)] = True
    return goes_left


def _take_base(trees: Sequence[ForeignTree]) -> float:
    """LightGBM has the mean of the labels in the first tree; taken out of it, less is lost in float32."""
    if not trees:
        return 0.0
    first = trees[0]
    leaves = first.value[first.feature < 0]
    base = float(leaves.min() * 0.5 + leaves.max() * 0.5)
    if not np.isfinite(base):
        raise ModelFileError("the first tree has a leaf value that is not finite")
    first.value = first.value - base
    return base


def _numbers(text: str, what: str, n: int | None) -> Floats:
    parts = text.split()
    if n is not None and len(parts) != n:
        raise ModelFileError(f"{what} must have {n} entries, got {len(parts)}")
    try:
        return np.array([float(part) for part in parts], np.float64)
    except ValueError:
        raise ModelFileError(f"{what} must hold numbers") from None


def _whole_numbers(text: str, what: str, n: int | None, least: int, most: int) -> Ints:
    numbers: Any = _numbers(text, what, n)
    if not ((numbers >= least) & (numbers <= most) & (numbers == np.floor(numbers))).all():
        raise ModelFileError(f"{what} must hold whole numbers from {least} to {most}")
    return np.asarray(numbers.astype(np.int64))
