"""The model that training leaves behind: flat trees, what they are over, and prediction from them.

Every prediction runs on codes (`binning.py`), so raw values and binned values cannot disagree: raw rows are coded with
the model's own edges, some thousands at a time, and go through the trees in blocks of 256. The ways through a tree:

choosing     most trees: from the leaves up, all rows of the block at once, without a jump (`tree_layout.py`)
descending   what lies below the choices of a large tree: all rows of the block, one level at a time
walking      a handful of rows, or trees with a great many sets of levels: row by row from the root

All of them add the same float32 leaf values in the order of the trees, so their scores are equal to the last bit.
`model_file.py` knows how to write a model down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.engine import model_file, vectors, wide
from hedgerow.engine.binning import BinMapper, CodingTables, FeatureBins, WideBins, code_values, coding_tables
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.losses import LOSSES
from hedgerow.engine.sparse import SparseCodes
from hedgerow.engine.table import SparseColumn, Table
from hedgerow.engine.threads import Team
from hedgerow.engine.tree_layout import MOST_CHOICES, TreeLayout, lay_out
from hedgerow.engine.vectors import BLOCK
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType, ModelFileError

FEW_ROWS = 16
"""Below this many rows of a block, walking costs less than choosing for all 256."""

CODES_IN_CACHE = 1 << 19
"""Bytes of codes made at a time when predicting from raw values: they stay in the second-level cache."""

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
        if (self.bin[numeric] < 0).any() or (self.bin[~numeric] != -1).any():
            raise InvalidInput("bin must be from 0 on in splits of numeric features and -1 elsewhere")

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


@dataclass(frozen=True, eq=False)
class TreeStack:
    """Many trees as few arrays, to be written down often and quickly: `nodes` by name, one tree's after the other's."""

    nodes: Mapping[str, npt.NDArray[Any]]
    left_levels: Bools
    ends: Ints  # [trees, 2] nodes and sets of levels up to here

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> TreeStack:
        """These trees."""
        sets = [np.zeros((0, MAX_BINS), np.bool_), *(tree.left_levels for tree in trees)]
        sizes = np.array([(tree.n_nodes, len(tree.left_levels)) for tree in trees], np.int64).reshape(-1, 2)
        nodes = {
            name: np.concatenate([np.empty(0, dtype), *(getattr(tree, name) for tree in trees)], dtype=dtype)
            for name, dtype in NODE_DTYPES.items()
        }
        return cls(nodes, np.concatenate(sets), np.cumsum(sizes, axis=0))

    def trees(self) -> list[Tree]:
        """The inverse of `of`."""
        n_nodes, n_sets = self.ends[:-1].T
        split = {name: np.split(values, n_nodes) for name, values in self.nodes.items()}
        levels = np.split(self.left_levels, n_sets)
        return [
            Tree(**{name: split[name][k] for name in NODE_DTYPES}, left_levels=levels[k]) for k in range(len(self.ends))
        ]


class Prepared(NamedTuple):
    """What prediction needs, made from the trees."""

    layout: TreeLayout
    features: tuple[FeatureBins, ...]  # that rows are coded for
    column_of_feature: Ints
    coding: dict[np.dtype[Any], CodingTables]


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
        rows = RawRows(data, len(self.features), n_threads)
        layout, coding, n_codes = self._ready_for(rows.dtype)
        out = np.empty((rows.n_rows, self.n_outputs))

        def score(start: int, stop: int) -> None:
            codes = rows.codes(coding, n_codes, start, stop)
            scores = np.zeros((self.n_outputs, stop - start), np.float32)
            add_scores(layout, codes, 0, stop - start, n_trees, self.n_outputs, scores)
            np.add(scores.T, self.base_scores, out=out[start:stop])

        Team(n_threads).run(score, rows.ranges)
        return out

    def raw_scores_binned(self, codes: Bytes, n_threads: int = 1, n_iterations: int | None = None) -> Floats:
        """Raw scores [rows, n_outputs] of codes [features, rows] made with this model's mapper."""
        n_trees = self._n_trees(n_iterations)
        codes = checked_codes(codes, len(self._ready().features))
        scores = np.zeros((self.n_outputs, codes.shape[1]), np.float32)
        _add_scores(self._ready().layout, codes, n_trees, scores, n_threads)
        return scores.T + self.base_scores

    def add_binned(self, codes: Bytes | SparseCodes, tree: Tree, scores: Scores, n_threads: int = 1) -> None:
        """Add what `tree` alone says about each row of `codes` to `scores`, float32, one per row, in place."""
        layout = lay_out([tree], self.features)
        if isinstance(codes, SparseCodes):  # those that the tree asks for are written out
            used = layout.column_feature
            here = np.arange(len(used), dtype=np.int32)
            layout = layout._replace(column_feature=here, missing_code=layout.missing_code[used])
            codes = codes.dense(used)
        else:
            codes = checked_codes(codes, len(self.features))
        n_rows = codes.shape[1]
        if scores.shape != (n_rows,) or scores.dtype != np.float32 or not scores.flags.c_contiguous:
            raise InvalidInput(
                f"scores must be contiguous float32, one per row of codes ({n_rows}); got {scores.dtype}{scores.shape}"
            )
        _add_scores(layout, codes, 1, scores.reshape(1, -1), n_threads, most_rows=1 << 16)

    def apply(self, data: Table | npt.NDArray[Any], n_threads: int = 1) -> Int32s:
        """The leaf that each row reaches in each tree: int32 [rows, trees], numbers of nodes in their tree."""
        rows = RawRows(data, len(self.features), n_threads)
        layout, coding, n_codes = self._ready_for(rows.dtype)
        leaves = np.empty((rows.n_rows, len(self._trees)), np.int32)

        def find(start: int, stop: int) -> None:
            find_leaves(layout, rows.codes(coding, n_codes, start, stop), stop - start, leaves[start:stop])

        Team(n_threads).run(find, rows.ranges)
        return leaves

    def predictions(self, raw: Floats) -> Floats:
        """Raw scores to what this model predicts: probabilities [rows, classes], or labels [rows] within its bounds."""
        if self.classes is not None and self.loss == "squared":  # a score estimates P(second class) - P(first class)
            second = np.clip((raw[:, 0] + 1.0) / 2.0, 0.0, 1.0)
            return np.stack([1.0 - second, second], axis=1)
        expected = predictions_from(self.loss, raw)
        bounds = self.meta.get("prediction_bounds")  # a private model of numbers knows where labels can lie
        return expected if bounds is None else np.clip(expected, *bounds)

    def _n_trees(self, n_iterations: int | None) -> int:
        if n_iterations is None:
            return len(self._trees)
        if not 0 <= n_iterations <= self.n_iterations:
            raise InvalidParameter(f"n_iterations must be between 0 and {self.n_iterations}, got {n_iterations}")
        return n_iterations * self.n_outputs

    def _ready(self) -> Prepared:
        """What prediction needs of the trees, made once for as long as none is added; and the edges, by dtype."""
        # Threads may predict at once: each sees a complete preparation or makes its own, equal one.
        prepared = self._prepared
        if prepared is None:
            narrow, column_of_feature = self.narrowed()
            layout = lay_out(narrow.trees, narrow.features)
            prepared = self._prepared = Prepared(layout, narrow.features, column_of_feature, {})
        return prepared

    def _ready_for(self, dtype: np.dtype[Any]) -> tuple[TreeLayout, CodingTables, int]:
        """The trees, the edges for values of one dtype, and how many features these are cut into."""
        layout, features, column_of_feature, coding = self._ready()
        if dtype not in coding:
            coding[dtype] = coding_tables(features, np.unique(layout.column_feature), dtype, column_of_feature)
        return layout, coding[dtype], len(features)

    def narrowed(self) -> tuple[Ensemble, Ints]:
        """The same trees over features whose bins fit a byte, and the column of each: itself, but for `WideBins`."""
        if not any(isinstance(feature, WideBins) for feature in self.features):
            return self, np.arange(len(self.features))
        trees, features, column_of_feature = wide.narrowed(self._trees, self.features)
        narrow = Ensemble(BinMapper(features), self.loss, self.base_scores, classes=self.classes, meta=self.meta)
        for tree in trees:
            narrow.append(tree, checked=True)
        return narrow, column_of_feature

    def codes(self, data: Table | npt.NDArray[Any], n_threads: int = 1) -> Bytes:
        """The codes of all values that the trees ask about: uint8 [features of `narrowed`, rows]; not of others."""
        rows = RawRows(data, len(self.features), n_threads)
        _, coding, n_codes = self._ready_for(rows.dtype)
        made = [rows.codes(coding, n_codes, start, stop) for start, stop in rows.ranges]
        return np.concatenate(made, axis=1)

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


def predictions_from(loss: str, raw: Floats) -> Floats:
    """Raw scores [rows, outputs] to probabilities of each class, or to the expected label [rows]."""
    if loss == "logistic":
        positive = 1.0 / (1.0 + np.exp(-raw[:, 0]))
        return np.column_stack([1.0 - positive, positive])
    if loss == "softmax":
        shifted = np.exp(raw - raw.max(axis=1, keepdims=True))
        share: Floats = shifted / shifted.sum(axis=1, keepdims=True)
        return share
    return np.exp(raw[:, 0]) if loss == "poisson" else raw[:, 0]


def _add_scores(
    layout: TreeLayout, codes: Bytes, n_trees: int, scores: Scores, n_threads: int, most_rows: int = 1 << 14
) -> None:
    """What the first trees of a layout say about each row of `codes`, added to `scores` [outputs, rows]."""
    ranges = row_ranges(codes.shape[1], n_threads, most_rows)
    tasks = [(layout, codes, *limits, n_trees, len(scores), scores) for limits in ranges]
    Team(n_threads).run(add_scores, tasks)


def checked_codes(codes: Any, n_features: int) -> Bytes:
    """Codes [features, rows], contiguous."""
    if codes.ndim != 2 or codes.shape[0] != n_features or codes.dtype != np.uint8:
        raise InvalidInput(f"codes must be uint8 [{n_features} features, rows], got {codes.dtype}{list(codes.shape)}")
    return np.ascontiguousarray(codes)


def row_ranges(n_rows: int, n_threads: int, most: int = 16384) -> list[tuple[int, int]]:
    """Ranges of whole blocks, at most about `most` rows each and a few per thread; one, empty, for no rows."""
    size = max(1024, min(most, n_rows // (4 * n_threads)) // BLOCK * BLOCK)
    return [(start, min(start + size, n_rows)) for start in range(0, max(n_rows, 1), size)]


class RawRows:
    """A table, or a matrix in any order of axes, whose rows can be coded a range at a time."""

    def __init__(self, data: Table | npt.NDArray[Any], n_features: int, n_threads: int) -> None:
        self._source = data if isinstance(data, Table) else _checked_matrix(data)
        if isinstance(self._source, Table):
            self.n_rows, n_columns = self._source.n_rows, len(self._source.columns)
            self.dtype = self._source.common_dtype
        else:
            self.n_rows, n_columns = self._source.shape
            self.dtype = self._source.dtype
        if n_columns != n_features:
            raise InvalidInput(f"the data has {n_columns} columns, but the model was trained on {n_features}")
        self._n_features = n_features
        self._is_sparse = isinstance(self._source, Table) and self._source.is_sparse
        # Of sparse rows more at a time: only columns that are asked for are ever written.
        n_coded = 1 if self._is_sparse else max(n_features, 1)
        self.ranges = row_ranges(self.n_rows, n_threads, CODES_IN_CACHE // n_coded)

    def codes(self, coding: CodingTables, n_codes: int, start: int, stop: int) -> Bytes:
        """Codes uint8 [n_codes, rows]; only the features that `coding` knows are filled."""
        if isinstance(self._source, Table) and self._is_sparse:
            return self._sparse_codes(self._source, coding, n_codes, start, stop)
        flat, first, row_stride, column_stride = self._flat(start, stop)
        flat = flat.view()
        flat.flags.writeable = False  # numba compiles once more for read-only arrays, so let all be
        codes = np.empty((n_codes, stop - start), np.uint8)
        code_values(coding, flat, first, row_stride, column_stride, codes, 0, stop - start)
        return codes

    def _sparse_codes(self, source: Table, coding: CodingTables, n_codes: int, start: int, stop: int) -> Bytes:
        codes = np.empty((n_codes, stop - start), np.uint8)
        for u, feature in enumerate(coding.feature.tolist()):
            column = source.columns[coding.column[u]]
            n_edges, missing, own = coding.n_edges[u], coding.missing_code[u], codes[feature]
            if not isinstance(column, SparseColumn):
                own[:] = np.where(column.values[start:stop] < 0, missing, column.values[start:stop])
                continue
            edges = coding.edges[u, :n_edges]
            first, last = np.searchsorted(column.rows, [start, stop])
            stored = column.stored[first:last].astype(edges.dtype)
            own[:] = np.searchsorted(edges, edges.dtype.type(0), side="right")
            found = np.searchsorted(edges, stored, side="right").astype(np.uint8)
            own[column.rows[first:last] - start] = np.where(np.isnan(stored), missing, found)
        return codes

    def _flat(self, start: int, stop: int) -> tuple[npt.NDArray[Any], int, int, int]:
        """The values as one axis, where row `start` begins, and the steps to the next row and to the next column."""
        source = self._source
        if isinstance(source, Table):
            return source.matrix(start, stop).reshape(-1), 0, self._n_features, 1
        if source.flags.c_contiguous:
            return source.reshape(-1), start * self._n_features, self._n_features, 1
        return source.T.reshape(-1), start, 1, self.n_rows


def _checked_matrix(data: Any) -> npt.NDArray[Any]:
    matrix = np.asarray(data)
    if matrix.ndim != 2:
        raise InvalidInput(f"a matrix of rows and features is needed, got {matrix.ndim} dimension(s)")
    if not matrix.flags.c_contiguous and not matrix.flags.f_contiguous:
        matrix = np.ascontiguousarray(matrix)
    if matrix.dtype in (np.float32, np.float64):
        return matrix
    if matrix.dtype.kind not in "fiub":
        raise InvalidType(f"a matrix of numbers is needed, got dtype {matrix.dtype}")
    return matrix.astype(np.float32 if matrix.dtype == np.float16 else np.float64)


# --- codes to scores and leaves --------------------------------------------------------------------------------------


@kernel
def fill_block(
    column_feature: Any, column_low: Any, missing_code: Any, codes: Any, start: int, size: int, block: Any
) -> None:
    """The columns that the trees ask about, for `size` rows of `codes` (in) from `start` on, into `block` (out)."""
    n_rows, flat = codes.shape[1], codes.reshape(-1)
    for column in range(column_feature.shape[0]):
        feature = np.int64(column_feature[column])
        highest = missing_code[feature] - np.uint8(1) if column_low[column] else np.uint8(255)
        if size == BLOCK:
            vectors.copy_codes(block, np.int64(column), flat, np.int64(feature * n_rows + start), np.uint8(highest))
        else:
            for i in range(size):
                code = codes[feature, start + i]
                block[column, i] = code if code <= highest else np.uint8(0)


@kernel
def answer_tables(goes_right: Any, table_column: Any, tables: Any, n_columns: int, size: int, block: Any) -> None:
    """One column of zeros and ones for each of the tables of a tree, behind the columns of codes."""
    start, stop = tables
    for table in range(start, stop):
        column, answer = table_column[table], n_columns + table - start
        for i in range(size):
            block[answer, i] = goes_right[table, block[column, i]]


@kernel
def choose(choice: Any, start: int, stop: int, block: Any, result: Any) -> None:
    """Make a tree's choices for a whole block; row 0 of `result` holds the number of each row's exit."""
    for c in range(start, stop):
        word = choice[c]
        column, into, cut = word >> 32, word >> 24 & 127, np.uint8(word)
        left, right = word >> 8 & 127, word >> 16 & 127
        if not word & 0x808000:
            vectors.choose_leaf_leaf(result, into, left, right, block, column, cut)
        elif word & 0x808000 == 0x808000:
            vectors.choose_row_row(result, into, left, right, block, column, cut)
        elif word & 0x8000:
            vectors.choose_row_leaf(result, into, left, right, block, column, cut)
        else:
            vectors.choose_leaf_row(result, into, left, right, block, column, cut)


@kernel
def walk(node_key: Any, node_left: Any, node_table: Any, goes_right: Any, block: Any, size: int, reached: Any) -> None:
    """Move each of the first `size` rows from the node in `reached` to the leaf below it (in and out)."""
    for i in range(size):
        node = np.int64(reached[i])
        left = np.int64(node_left[node])
        while left != node:
            key, table = node_key[node], node_table[node]
            code = block[key >> 8, i]
            node = left + (np.int64(goes_right[table, code]) if table >= 0 else np.int64(code > (key & 255)))
            left = np.int64(node_left[node])
        reached[i] = node


@kernel
def add_scores(layout: Any, codes: Any, start: int, stop: int, n_trees: int, n_outputs: int, scores: Any) -> None:
    """Add the leaf values of trees 0..n_trees-1 for rows start..stop-1 of `codes` uint8 [F, n] (in).

    `scores` float32 [n_outputs, n] (out): tree t adds to row t % n_outputs, one addition after the other.
    """
    node_start, node_key = layout.node_start, layout.node_key
    node_left, node_table = layout.node_left, layout.node_table
    goes_right, table_start, levels_left = layout.goes_right, layout.table_start, layout.levels_left
    choice, choice_start, node_value = layout.choice, layout.choice_start, layout.node_value
    exit_node, exit_start, exit_value = layout.exit_node, layout.exit_start, layout.exit_value
    n_columns = layout.column_feature.shape[0]
    # One row more than there are columns: `descend` reads codes four at a time.
    block = np.zeros((n_columns + layout.most_tables + 1, BLOCK), np.uint8)
    result = np.zeros((MOST_CHOICES + 1, BLOCK), np.uint8)
    total = np.zeros(n_outputs * BLOCK, np.float32)
    reached = np.zeros(BLOCK, np.int32)
    for first in range(start, stop, BLOCK):
        size = min(BLOCK, stop - first)
        fill_block(layout.column_feature, layout.column_low, layout.missing_code, codes, first, size, block)
        for output in range(n_outputs):
            for i in range(size):
                total[output * BLOCK + i] = scores[output, first + i]
        for tree in range(n_trees):
            into = np.int64((tree % n_outputs) * BLOCK)
            if size < FEW_ROWS or choice_start[tree + 1] == choice_start[tree]:
                reached[:] = node_start[tree]
                walk(node_key, node_left, node_table, goes_right, block, size, reached)
            else:
                if table_start[tree + 1] > table_start[tree]:
                    tables = table_start[tree], table_start[tree + 1]
                    answer_tables(goes_right, layout.table_column, tables, n_columns, size, block)
                choose(choice, choice_start[tree], choice_start[tree + 1], block, result)
                if levels_left[tree] == 0:
                    vectors.add_looked_up(total, into, exit_value, np.int64(exit_start[tree]), result)
                    continue
                for i in range(BLOCK):
                    reached[i] = exit_node[exit_start[tree] + np.int64(result[0, i])]
                if levels_left[tree] > 0:
                    vectors.descend(reached, node_key, node_left, block, np.int64(levels_left[tree]))
                else:
                    walk(node_key, node_left, node_table, goes_right, block, size, reached)
            for i in range(size):
                total[into + i] += node_value[reached[i]]
        for output in range(n_outputs):
            for i in range(size):
                scores[output, first + i] = total[output * BLOCK + i]


@kernel
def find_leaves(layout: Any, codes: Any, n_rows: int, leaves: Any) -> None:
    """The leaf of each row in each tree, as the node's number in its tree, into `leaves` int32 [n_rows, T] (out)."""
    block = np.zeros((layout.column_feature.shape[0], BLOCK), np.uint8)
    reached = np.zeros(BLOCK, np.int32)
    for first in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - first)
        fill_block(layout.column_feature, layout.column_low, layout.missing_code, codes, first, size, block)
        for tree in range(leaves.shape[1]):
            reached[:] = layout.node_start[tree]
            walk(layout.node_key, layout.node_left, layout.node_table, layout.goes_right, block, size, reached)
            for i in range(size):
                leaves[first + i, tree] = reached[i] - layout.node_start[tree]
