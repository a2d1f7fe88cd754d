"""The model that training leaves behind: flat trees, what they are over, and prediction from them.

`Tree` and `Ensemble` hold what a model *is*; `prediction.py` knows how to run one fast, `model_file.py` how to write
one down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine import model_file, prediction
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Int32s, Scores
from hedgerow.engine.losses import LOSSES
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team
from hedgerow.engine.tree_layout import Prepared, TreeLayout, lay_out
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError

NODE_DTYPES: dict[str, Any] = {
    "feature": np.int32,
    "bin": np.int32,
    "threshold": np.float64,
    "missing_left": np.bool_,
    "left": np.int32,
    "right": np.int32,
    "value": np.float32,
    "gain": np.float32,
    "cover": np.float64,
    "level_set": np.int32,
}


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes. Breadth-first: the k-th inner node has children 2k + 1 and 2k + 2."""

    feature: Int32s
    """Feature of the split; -1 for a leaf."""
    bin: Int32s
    """Last bin of values that goes left, for a split of a numeric feature; else -1."""
    threshold: Floats
    """x < threshold goes left, for a split of a numeric feature; +inf: every value that is there does. Else NaN."""
    missing_left: Bools
    """Whether a missing value (or an unseen level) goes left; False for a leaf."""
    left: Int32s
    """Left child; -1 for a leaf."""
    right: Int32s
    """Right child; -1 for a leaf."""
    value: Scores
    """What a leaf adds to the raw score (learning rate included); for an inner node, what it would have added."""
    gain: Scores
    """How much the split reduced the loss; 0 for a leaf."""
    cover: Floats
    """Sum of the hessians of the training rows in the node."""
    level_set: Int32s
    """Row of `left_levels` for a split by levels; else -1."""
    left_levels: Bools
    """[sets, 256]: whether the level with this code goes left."""

    def __post_init__(self) -> None:
        for name, dtype in NODE_DTYPES.items():
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        object.__setattr__(self, "left_levels", np.ascontiguousarray(self.left_levels, np.bool_))
        self._check_shapes()
        self._check_order()

    @classmethod
    def as_grown(cls, **arrays: npt.NDArray[Any]) -> Tree:
        """A tree that is right by construction: the grower makes thousands a second and need not prove each one."""
        tree = object.__new__(cls)
        for name, array in arrays.items():
            object.__setattr__(tree, name, array)
        return tree

    def _check_shapes(self) -> None:
        shape = self.feature.shape
        if len(shape) != 1 or shape[0] == 0:
            raise InvalidInput(f"a tree has at least one node, and feature has one entry per node; got shape {shape}")
        for name in NODE_DTYPES:
            if getattr(self, name).shape != shape:
                raise InvalidInput(
                    f"{name} must have one entry per node, {shape[0]}; got shape {getattr(self, name).shape}"
                )
        if self.left_levels.ndim != 2 or self.left_levels.shape[1] != MAX_BINS:
            raise InvalidInput(f"left_levels must have {MAX_BINS} columns, got shape {self.left_levels.shape}")

    def _check_order(self) -> None:
        # Prediction follows children without looking, so nothing else may ever get into a Tree.
        inner = self.feature >= 0
        n_inner = np.count_nonzero(inner)
        if 2 * n_inner + 1 != self.n_nodes:
            raise InvalidInput(f"a tree of {n_inner} inner nodes has {2 * n_inner + 1} nodes, got {self.n_nodes}")
        # A child comes after its parent, so no node is its own ancestor, and every node but the root is a child once.
        first = np.arange(1, self.n_nodes, 2)
        parents = np.flatnonzero(inner)
        wrong = (self.left[inner] != first) | (self.right[inner] != first + 1) | (parents >= first)
        if wrong.any():
            node, k = parents[wrong][0], np.flatnonzero(wrong)[0]
            raise InvalidInput(
                f"nodes must be breadth-first: node {node}, inner node {k}, should have children {2 * k + 1} and "
                f"{2 * k + 2} after it, got {self.left[node]} and {self.right[node]}"
            )
        if (self.left[~inner] != -1).any() or (self.right[~inner] != -1).any():
            raise InvalidInput("a leaf has no children: left and right must be -1")
        by_levels = self.level_set >= 0
        if (by_levels & ~inner).any() or (self.level_set >= len(self.left_levels)).any():
            raise InvalidInput(
                f"level_set must name one of the {len(self.left_levels)} rows of left_levels, in inner nodes only"
            )
        if not np.array_equal(np.sort(self.level_set[by_levels]), np.arange(len(self.left_levels))):
            raise InvalidInput("every row of left_levels must belong to exactly one node")
        numeric = inner & ~by_levels
        if (self.bin[numeric] < 0).any() or (self.bin[~numeric] != -1).any() or (self.bin >= MAX_BINS - 1).any():
            raise InvalidInput("bin must be 0 to 254 in splits of numeric features and -1 elsewhere")

    @property
    def n_nodes(self) -> int:
        """Inner nodes and leaves."""
        return len(self.feature)

    @property
    def is_leaf(self) -> Bools:
        """Which nodes are leaves."""
        return self.feature < 0

    @property
    def n_leaves(self) -> int:
        """One more than the splits."""
        return self.n_nodes // 2 + 1

    @property
    def depth(self) -> int:
        """Splits on the longest way from the root to a leaf."""
        levels, nodes = 0, np.zeros(1, np.int32)
        while (inner := nodes[self.feature[nodes] >= 0]).size:
            nodes = np.concatenate([self.left[inner], self.right[inner]])
            levels += 1
        return levels

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name), equal_nan=f.name == "threshold")
            for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.feature.tobytes(), self.value.tobytes()))


class Ensemble:
    """Trees over binned features whose values add up, per output, to a raw score.

    Tree t belongs to output t % n_outputs. The raw score is base_scores + (float32 sum of leaf values in tree order),
    the last addition in float64: the same numbers as in training, to the last bit.
    """

    def __init__(
        self,
        mapper: BinMapper,
        loss: str,
        base_scores: Sequence[float] | Floats,
        *,
        trees: Iterable[Tree] = (),
        classes: Sequence[Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise InvalidParameter(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
        self.mapper = mapper
        self.loss = loss
        self.base_scores: Floats = np.array(base_scores, np.float64).reshape(-1)
        if not np.isfinite(self.base_scores).all() or not len(self.base_scores):
            raise InvalidParameter(f"base_scores must be finite, one per output, got {self.base_scores.tolist()}")
        if (loss == "softmax") != (self.n_outputs > 1):
            raise InvalidParameter(f"the {loss} loss does not go with {self.n_outputs} outputs")
        self.classes = None if classes is None else tuple(classes)
        self.meta: dict[str, Any] = dict(meta or {})
        self._trees: list[Tree] = []
        self._prepared: Prepared | None = None
        for tree in trees:
            self.append(tree)

    # --- what it holds -----------------------------------------------------------------------------------------------

    @property
    def features(self) -> tuple[FeatureBins, ...]:
        """What the trees are over."""
        return self.mapper.features

    @property
    def n_outputs(self) -> int:
        """Raw scores per row: 1, or the number of classes with the softmax loss."""
        return len(self.base_scores)

    @property
    def trees(self) -> tuple[Tree, ...]:
        """All trees, in the order in which they are added up; `append` is the way to add one."""
        return tuple(self._trees)

    @property
    def n_iterations(self) -> int:
        """Complete rounds of boosting: n_outputs trees each."""
        return len(self._trees) // self.n_outputs

    def append(self, tree: Tree, *, checked: bool = False) -> None:
        """Add a tree at the end; `checked` if it was grown on, or taken from an ensemble over, these features."""
        if not checked:
            self._check(tree)
        self._trees.append(tree)
        self._prepared = None

    def _check(self, tree: Tree) -> None:
        """What the tree asks must be what the features can answer."""
        inner = np.flatnonzero(tree.feature >= 0)
        asked, by_levels = tree.feature[inner], tree.level_set[inner] >= 0
        if asked.size and asked.max() >= len(self.features):
            raise InvalidInput(
                f"the tree splits feature {asked.max()}, but the ensemble has {len(self.features)} features"
            )
        wrong = by_levels != np.array([self.features[f].levels is not None for f in asked], np.bool_)
        if wrong.any():
            name = self.features[asked[wrong][0]].name
            raise InvalidInput(
                f"node {inner[wrong][0]} splits {name!r} by levels where it is numeric, or the other way round"
            )
        for node, feature in zip(inner[~by_levels].tolist(), asked[~by_levels].tolist(), strict=True):
            edges, last_bin = self.features[feature].edges, tree.bin[node]
            if edges is None:
                continue
            if last_bin > len(edges) or tree.threshold[node] != (edges[last_bin] if last_bin < len(edges) else np.inf):
                raise InvalidInput(
                    f"node {node} splits after bin {last_bin} at {tree.threshold[node]}, which is not that bin's edge"
                )

    def truncated(self, n_iterations: int) -> Ensemble:
        """The model after its first `n_iterations` rounds; the trees are shared."""
        shorter = Ensemble(self.mapper, self.loss, self.base_scores, classes=self.classes, meta=self.meta)
        for tree in self._trees[: self._n_trees(n_iterations)]:
            shorter.append(tree, checked=True)
        return shorter

    def importances(self, kind: str = "gain") -> Floats:
        """Per feature: the summed gain of its splits ("gain") or their number ("count"). Not normalised."""
        if kind not in ("gain", "count"):
            raise InvalidParameter(f'kind must be "gain" or "count", got {kind!r}')
        total = np.zeros(len(self.features))
        for tree in self._trees:
            inner = ~tree.is_leaf
            weights = tree.gain[inner].astype(np.float64) if kind == "gain" else None
            total += np.bincount(tree.feature[inner], weights, minlength=len(total))
        return total

    # --- prediction --------------------------------------------------------------------------------------------------

    def raw_scores(self, data: Table | npt.NDArray[Any], n_threads: int = 1, n_iterations: int | None = None) -> Floats:
        """Raw scores [rows, n_outputs] of a table (read with `like=features`) or of a matrix.

        A matrix has one column per feature: values, or codes of levels as numbers (anything else counts as unseen).
        """
        n_trees = self._n_trees(n_iterations)
        rows = prediction.RawRows(data, len(self.features), n_threads)
        layout, coding = self._ready().for_values(rows.dtype)
        out = np.empty((rows.n_rows, self.n_outputs))

        def score(start: int, stop: int) -> None:
            codes = rows.codes(coding, start, stop)
            scores = np.zeros((self.n_outputs, stop - start), np.float32)
            prediction.add_scores(layout, codes, 0, stop - start, n_trees, self.n_outputs, scores)
            np.add(scores.T, self.base_scores, out=out[start:stop])

        Team(n_threads).run(score, rows.ranges)
        return out

    def raw_scores_binned(self, codes: Bytes, n_threads: int = 1, n_iterations: int | None = None) -> Floats:
        """Raw scores [rows, n_outputs] of codes [features, rows] made with this model's mapper."""
        n_trees = self._n_trees(n_iterations)
        codes = checked_codes(codes, len(self.features))
        scores = np.zeros((self.n_outputs, codes.shape[1]), np.float32)
        _add_scores(self._ready().layout, codes, n_trees, scores, n_threads)
        return scores.T + self.base_scores

    def add_binned(self, codes: Bytes, tree: Tree, scores: Scores, n_threads: int = 1) -> None:
        """Add what `tree` alone says about each row of `codes` to `scores`, float32, one per row, in place."""
        codes = checked_codes(codes, len(self.features))
        n_rows = codes.shape[1]
        if scores.shape != (n_rows,) or scores.dtype != np.float32 or not scores.flags.c_contiguous:
            raise InvalidInput(
                f"scores must be contiguous float32, one per row of codes ({n_rows}); got {scores.dtype}{scores.shape}"
            )
        _add_scores(lay_out([tree], self.features), codes, 1, scores.reshape(1, -1), n_threads, most_rows=1 << 16)

    def apply(self, data: Table | npt.NDArray[Any], n_threads: int = 1) -> Int32s:
        """The leaf that each row reaches in each tree: int32 [rows, trees], numbers of nodes in their tree."""
        rows = prediction.RawRows(data, len(self.features), n_threads)
        layout, coding = self._ready().for_values(rows.dtype)
        leaves = np.empty((rows.n_rows, len(self._trees)), np.int32)

        def find(start: int, stop: int) -> None:
            prediction.find_leaves(layout, rows.codes(coding, start, stop), stop - start, leaves[start:stop])

        Team(n_threads).run(find, rows.ranges)
        return leaves

    def _n_trees(self, n_iterations: int | None) -> int:
        if n_iterations is None:
            return len(self._trees)
        if not 0 <= n_iterations <= self.n_iterations:
            raise InvalidParameter(f"n_iterations must be between 0 and {self.n_iterations}, got {n_iterations}")
        return n_iterations * self.n_outputs

    def _ready(self) -> Prepared:
        # Threads may predict at once: each sees a complete preparation or makes its own, equal one.
        prepared = self._prepared
        if prepared is None:
            prepared = self._prepared = Prepared(self._trees, self.features)
        return prepared

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": None}  # copies need not carry what they can make again

    # --- files -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, as documented in docs/reference/model_file.md."""
        return model_file.encode(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Ensemble:
        """The inverse of `to_dict`, exactly; ModelFileError says what is wrong with a damaged document."""
        trees, parts = model_file.decode(document)
        try:
            model = cls(**parts)
        except InvalidParameter as reason:
            raise ModelFileError(str(reason)) from None
        for number, tree in enumerate(trees):
            try:
                model.append(Tree(**tree))
            except InvalidInput as reason:
                raise ModelFileError(f"tree {number}: {reason}") from None
        return model

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model file; an existing one is replaced only once the new one is complete."""
        model_file.write(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Ensemble:
        """Read a model file."""
        return cls.from_dict(model_file.read(path))


def _add_scores(
    layout: TreeLayout, codes: Bytes, n_trees: int, scores: Scores, n_threads: int, most_rows: int = 1 << 14
) -> None:
    """What the first trees of a layout say about each row of `codes`, added to `scores` [outputs, rows]."""
    ranges = prediction.row_ranges(codes.shape[1], n_threads, most_rows)
    tasks = [(layout, codes, *limits, n_trees, len(scores), scores) for limits in ranges]
    Team(n_threads).run(prediction.add_scores, tasks)


def checked_codes(codes: Any, n_features: int) -> Bytes:
    """Codes [features, rows], contiguous."""
    if codes.ndim != 2 or codes.shape[0] != n_features or codes.dtype != np.uint8:
        raise InvalidInput(f"codes must be uint8 [{n_features} features, rows], got {codes.dtype}{list(codes.shape)}")
    return np.ascontiguousarray(codes)
