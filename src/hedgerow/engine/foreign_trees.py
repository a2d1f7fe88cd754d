"""Trees that another library has trained, on their way to an ensemble: what a file says is checked here, once.

A reader (`import_xgboost`, `import_lightgbm`) turns each tree of its file into a `ForeignTree`: nodes in any order,
thresholds as float64 numbers with x < threshold going left. `assemble` puts the nodes into our order, makes the
features' edges from all thresholds that occur, and gives an `Ensemble`. A column with more thresholds than a byte can
tell apart becomes `WideBins`. Files are not trusted: nodes that are reached twice or never end, children and columns
that do not exist, and numbers that are not finite are refused with a ModelFileError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import BinMapper, FeatureBins, WideBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import silent_tree
from hedgerow.engine.table import MAX_LEVELS, Level
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError

MOST_NODES = 1 << 24
"""Of one tree, and columns of one model: a file that claims more is not believed."""
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass
class ForeignTree:
    """One tree as its file has it; node 0 is the root. Leaves have feature -1."""

    feature: Ints
    threshold: Floats  # x < threshold goes left; of a split by levels and of a leaf: anything
    missing_left: Bools
    left: Ints
    right: Ints
    value: Floats  # learning rate and all weights included
    gain: Floats
    cover: Floats
    left_levels: dict[int, Bools] = field(default_factory=dict)  # node -> [256] by code; missing ones: missing_left


def assemble(
    trees: Sequence[Sequence[ForeignTree]],
    names: Sequence[str],
    levels: Mapping[int, tuple[Level, ...]],
    *,
    loss: str,
    base_scores: Sequence[float],
    meta: Mapping[str, Any],
) -> Ensemble:
    """The ensemble of trees that are given by output; an output with fewer trees than another gets silent ones."""
    flat = [(tree, f"tree {t} of output {k}") for k, own in enumerate(trees) for t, tree in enumerate(own)]
    for tree, where in flat:
        _check(tree, len(names), levels, where)
    features = _features([tree for tree, _ in flat], names, levels)
    n_rounds = max((len(own) for own in trees), default=0)
    made = [[_our_tree(tree, features) for tree in own] for own in trees]
    try:
        return Ensemble(
            BinMapper(features),
            loss,
            base_scores,
            trees=[own[r] if r < len(own) else silent_tree() for r in range(n_rounds) for own in made],
            meta=meta,
        )
    except (InvalidInput, InvalidParameter) as reason:
        raise ModelFileError(str(reason)) from None


def _check(tree: ForeignTree, n_features: int, levels: Mapping[int, Any], where: str) -> None:
    """Put the nodes into breadth-first order, and refuse what could not be followed."""
    inner = tree.feature >= 0
    if (tree.feature >= n_features).any():
        raise ModelFileError(f"{where} splits column {tree.feature.max()}, but the model has {n_features} columns")
    by_levels = np.zeros(len(inner), np.bool_)
    by_levels[list(tree.left_levels)] = True
    has_levels = np.isin(tree.feature, list(levels))
    if (has_levels & inner & ~by_levels).any() or (by_levels & ~has_levels).any():
        raise ModelFileError(f"{where} splits a column by categories where another node splits it by a threshold")
    thresholds = tree.threshold[inner & ~by_levels]
    if np.isnan(thresholds).any() or np.isneginf(thresholds).any():
        raise ModelFileError(f"{where} has a threshold that is not a number")
    for what, numbers, largest in (
        ("leaf value", tree.value, _FLOAT32_MAX),
        ("gain", tree.gain, _FLOAT32_MAX),
        ("cover", tree.cover, math.inf),
    ):
        if not np.isfinite(numbers).all() or (np.abs(numbers) > largest).any():
            raise ModelFileError(f"{where} has a {what} that is not finite, or beyond single precision")
    order = breadth_first(tree, where)
    place = {int(node): k for k, node in enumerate(order.tolist())}
    tree.left_levels = {place[node]: codes for node, codes in tree.left_levels.items() if node in place}
    for name in ("feature", "threshold", "missing_left", "left", "right", "value", "gain", "cover"):
        setattr(tree, name, getattr(tree, name)[order])


def breadth_first(tree: ForeignTree, where: str) -> Ints:
    """The nodes that the root leads to, level by level."""
    n_nodes = len(tree.feature)
    levels, found = [np.zeros(1, np.int64)], 1
    while (inner := levels[-1][tree.feature[levels[-1]] >= 0]).size:
        below = np.stack([tree.left[inner], tree.right[inner]], axis=1).reshape(-1)
        found += below.size
        if found > n_nodes or (below < 0).any() or (below >= n_nodes).any():
            raise ModelFileError(f"{where}: a node has children that do not exist, or that are its own ancestors")
        levels.append(below)
    order = np.concatenate(levels)
    if len(np.unique(order)) < len(order):
        raise ModelFileError(f"{where}: a node is the child of two nodes")
    return order


def _features(
    trees: Sequence[ForeignTree], names: Sequence[str], levels: Mapping[int, tuple[Level, ...]]
) -> tuple[FeatureBins, ...]:
    """Edges are all thresholds that some tree has; +inf, where every value goes left, needs none."""
    feature = np.concatenate([np.zeros(0, np.int64), *(tree.feature for tree in trees)])
    threshold = np.concatenate([np.zeros(0), *(tree.threshold for tree in trees)])
    used = np.isfinite(threshold) & (feature >= 0)
    order = np.lexsort((threshold[used], feature[used]))
    feature, threshold = feature[used][order], threshold[used][order]
    ends = np.searchsorted(feature, np.arange(len(names) + 1))
    made: list[FeatureBins] = []
    try:
        for j, name in enumerate(names):
            if j in levels:
                made.append(FeatureBins(name, levels=levels[j]))
                continue
            edges = np.unique(threshold[ends[j] : ends[j + 1]] + 0.0)
            made.append((WideBins if len(edges) > FeatureBins.MOST_EDGES else FeatureBins)(name, edges))
    except InvalidInput as reason:
        raise ModelFileError(str(reason)) from None
    if len(set(names)) < len(names):
        raise ModelFileError("two columns have the same name")
    return tuple(made)


def _our_tree(tree: ForeignTree, features: Sequence[FeatureBins]) -> Tree:
    """A tree whose nodes are in our order already."""
    inner = tree.feature >= 0
    by_levels = np.zeros(len(inner), np.bool_)
    by_levels[list(tree.left_levels)] = True
    numeric = inner & ~by_levels
    last_bin = np.full(len(inner), -1, np.int32)
    for j in np.unique(tree.feature[numeric]).tolist():
        own = numeric & (tree.feature == j)
        last_bin[own] = np.searchsorted(_edges(features[j]), tree.threshold[own] + 0.0)
    left: Int32s = np.full(len(inner), -1, np.int32)
    left[inner] = 2 * np.arange(np.count_nonzero(inner)) + 1
    level_set = np.full(len(inner), -1, np.int32)
    level_set[by_levels] = np.arange(np.count_nonzero(by_levels))
    sets = [tree.left_levels[node] for node in np.flatnonzero(by_levels).tolist()]
    return Tree(
        feature=np.where(inner, tree.feature, -1),
        bin=last_bin,
        threshold=np.where(numeric, tree.threshold, np.nan),
        missing_left=tree.missing_left & inner,
        left=left,
        right=np.where(inner, left + 1, -1),
        value=tree.value.astype(np.float32),
        gain=np.where(inner, tree.gain, 0.0).astype(np.float32),
        cover=tree.cover,
        level_set=level_set,
        left_levels=np.array(sets, np.bool_).reshape(-1, MAX_BINS),
    )


def _edges(feature: FeatureBins) -> npt.NDArray[np.float64]:
    return np.zeros(0) if feature.edges is None else feature.edges


# --- what readers have in common -------------------------------------------------------------------------------------


def whole_array(values: Any, what: str, n: int | None, least: int, most: int) -> Ints:
    """Whole numbers of a file, as many as expected, each in its range; booleans count as 0 and 1."""
    array = _array(values, what, n)
    if array.dtype.kind not in "biu" or (array.size and (array.min() < least or array.max() > most)):
        raise ModelFileError(f"{what} must hold whole numbers from {least} to {most}")
    return array.astype(np.int64)


def number_array(values: Any, what: str, n: int | None) -> Floats:
    """Numbers of a file, as many as expected; infinities and NaN are for the reader to judge."""
    array = _array(values, what, n)
    if array.dtype.kind not in "iuf":
        raise ModelFileError(f"{what} must hold numbers")
    return array.astype(np.float64)


def _array(values: Any, what: str, n: int | None) -> npt.NDArray[Any]:
    if not isinstance(values, list | np.ndarray):
        raise ModelFileError(f"{what} must be a list")
    if n is not None and len(values) != n:
        raise ModelFileError(f"{what} must have {n} entries, got {len(values)}")
    if isinstance(values, list) and not all(type(value) in (int, float, bool) for value in values):
        raise ModelFileError(f"{what} must hold numbers")
    try:
        array = np.array(values) if len(values) else np.zeros(0, np.int64)
    except (ValueError, OverflowError):
        raise ModelFileError(f"{what} must hold numbers") from None
    if array.dtype == object or array.ndim != 1:
        raise ModelFileError(f"{what} must hold numbers of 64 bits")
    return array


def whole_number(text: Any, what: str, least: int, most: int) -> int:
    """A whole number that the file has as text or as a number."""
    if type(text) in (int, str) and len(str(text)[:12]) < 12:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if least <= number <= most:
            return number
    raise ModelFileError(f"{what} must be a whole number from {least} to {most}, got {str(text)[:40]!r}")


def check_levels(name: str, n_levels: int) -> None:
    """ModelFileError if a byte cannot tell the levels apart."""
    if n_levels > MAX_LEVELS:
        raise ModelFileError(
            f"column {name!r} is split by {n_levels} categories; a column may have {MAX_LEVELS} here. Train with "
            "fewer, rare ones grouped"
        )
