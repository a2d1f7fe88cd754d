"""One owner's rows behind one verb: `answer` a request with exact whole-number sums.

The answers are NOT private: whoever calls `answer` adds noise (and masks) before anything leaves. Requests are
checked, also against the sensitivity that they claim: a wrong one raises before a row is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Self, get_args

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.losses import logistic_gradients, squared_gradients
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.bad_rows import OnBadRows, fit_rows, outside_bounds
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.kernels import (
    add_class_gradients,
    add_gradients,
    add_node_sums,
    add_ones,
    add_scores,
    add_shares,
    add_tables,
    descend,
    find_leaves,
    weigh,
)
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    LARGEST_HESSIAN,
    MAX_DEPTH,
    MOST_ROWS,
    UNIT,
    Kind,
    LossName,
    NodeRequest,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.weighing import Weighing
from hedgerow.schema import Schema

MAX_ROWS = 2**40
"""This many rows of the largest fixed-point value, 2 * 2^16, still sum to less than 2^62."""

MAX_CLASSES = 256
"""A class fits a byte."""

ROWS_WORTH_A_THREAD = 1 << 15

_BEYOND_CLIP = np.float32(4.0)
"""Bound on real gradients before they are rounded: above every clip, so that the clip in whole numbers decides."""

_LARGEST_VALUE = 1e6
"""Of a table or leaf: scores stay finite in float32 through all updates."""


_NO_WEIGHTS = np.zeros(0, np.int64)


class PrivateRows:
    """Cell codes, labels and current scores of one owner's rows."""

    def __init__(
        self,
        codes: Bytes,
        labels: Floats,
        cells: tuple[int, ...],
        loss: LossName,
        n_threads: int = 1,
        n_classes: int = 2,
        weights: Floats | None = None,
    ) -> None:
        """`codes` [columns, rows] on the public grid; `labels` 0 or 1, or (squared loss) scaled to -.5 to .5.

        With the softmax loss, `labels` are the numbers of classes, 0 to `n_classes` - 1. `weights` [rows] from 0 to 1:
        what a row adds to any sum is multiplied by its weight and rounded towards 0, so it moves a sum by no more than
        without one, and sensitivities stay.
        """
        self.loss = loss
        self.n_rows = codes.shape[1]
        self.n_outputs = n_classes if loss == "softmax" else 1
        """Scores per row."""
        self.n_misfits = 0
        """Rows with a value or a label that the schema does not allow. Exact, so not to be told as it is."""
        self.n_classes = n_classes
        self.cells = cells
        self.n_bins: tuple[int, ...] = ()
        self.n_leaves = 0
        self.last_number = -1
        self._started: SumRequest | None = None
        self._codes = np.ascontiguousarray(codes, np.uint8)
        self._binned = self._codes
        self._labels = np.ascontiguousarray(labels, np.float64)
        self._weights = None if weights is None else np.rint(np.clip(weights, 0.0, 1.0) * 2**16).astype(np.int64)
        self._check_rows()
        self._targets: Scores = self._labels.astype(np.float32)
        # The numbers of classes; of two, positives come first.
        self._classes: Bytes = (self._labels if loss == "softmax" else self._labels <= 0.5).astype(np.uint8)
        self._scores: Scores = np.zeros((self.n_outputs, self.n_rows), np.float32)
        self._packed: Ints = np.zeros(0 if loss == "softmax" else self.n_rows, np.int64)
        self._leaves: Bytes = np.zeros(self.n_rows, np.uint8)
        self._bases: Scores = np.zeros(self.n_outputs, np.float32)
        self._team = Team(n_threads)
        n_ranges = max(1, min(n_threads, self.n_rows // ROWS_WORTH_A_THREAD))
        bounds = np.linspace(0, self.n_rows, n_ranges + 1).astype(int).tolist()
        self._ranges = list(pairwise(bounds))

    @classmethod
    def read(
        cls,
        X: Any,
        y: Any,
        schema: Schema,
        *,
        n_threads: int = 1,
        where: str = "X",
        multiclass: bool = False,
        on_bad_rows: OnBadRows = "map",
        unread: Bools | None = None,
        weighing: Weighing | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Read a table and its labels as the schema describes them; `where` names the table in error messages.

        More than two classes are refused unless the caller can do with them (`multiclass`). What becomes of rows that
        do not fit the schema is said in protocols/bad_rows.py. `unread` [rows]: which did not fit when the table was
        first read (`PartyData.misfits`). With `weighing` rows have weights, of their own or of their classes.
        """
        how: dict[str, Any] = {"n_threads": n_threads, "where": where, "on_bad_rows": on_bad_rows, "unread": unread}
        how |= {"weighing": weighing, "sample_weight": sample_weight}
        return cls.read_some([(X, y)], schema, multiclass=multiclass, **how)

    @classmethod
    def read_some(
        cls, tables: Iterable[tuple[Any, Any]], schema: Schema, *, n_threads: int, multiclass: bool, **how: Any
    ) -> Self:
        """The same for the rows of several tables, of which one at a time is in memory."""
        loss, grid = loss_of(schema, multiclass=multiclass), grid_of(schema)
        read = [code_rows(X, y, schema, grid, n_threads, **how) for X, y in tables]
        codes, labels = np.concatenate([r[0] for r in read], axis=1), np.concatenate([r[1] for r in read])
        weights = None if read[0][3] is None else np.concatenate([r[3] for r in read])
        rows = cls(codes, labels, cells_of(schema, grid), loss, n_threads, len(schema.classes or (0, 1)), weights)
        rows.n_misfits = sum(r[2] for r in read)
        return rows

    def answer(self, request: SumRequest, *, chosen: Bytes | None = None) -> Ints:
        """The exact sums that were asked for, int64 [n_sums], after the request's update. A request is answered once.

        `chosen` [rows], for gradient sums of one output: only rows marked 1 are summed; all are updated.
        """
        if chosen is not None and (self.loss == "softmax" or request.kind in ("misfits", "histograms", "squares")):
            raise ProtocolError(f"request {request.number}: a sample of rows is for gradient sums of one output")
        check_request(self, request)
        self.last_number = request.number
        self._update(request)
        if request.kind == "misfits":
            return np.array([self.n_misfits * COUNT_UNIT])
        if request.kind == "histograms":
            return self._histograms()
        if request.kind == "squares":
            squares = np.rint(self._labels**2 * UNIT).astype(np.int64)
            return np.array([int((squares if self._weights is None else squares * self._weights >> 16).sum())])
        if request.kind == "bin_sums":
            return self._gradient_sums(self._binned[request.features[0]], request, chosen)
        # Copies, because arrays from a message are read-only, and kernels would be compiled anew for those.
        features, goes_right = request.features.copy(), request.goes_right.copy()
        tasks = [(self._binned, features, goes_right, *limits, self._leaves) for limits in self._ranges]
        self._team.run(find_leaves, tasks)
        self.n_leaves = 1 << len(request.features)
        return self._gradient_sums(self._leaves, request, chosen)

    def standing(self) -> dict[str, Any]:
        """How the rows stand after the last request, by the names of what `go_on` takes."""
        started, scores, leaves = self._started, self._scores, self._leaves
        return {"started": started, "scores": scores, "leaves": leaves, "n_leaves": self.n_leaves}

    def go_on(self, last_number: int, started: SumRequest | None, scores: Scores, leaves: Bytes, n_leaves: int) -> None:
        """Stand as after an earlier request; `started` is the one that has set bins."""
        if started is not None:
            self._update(started)
        self._scores[:], self._leaves[:] = scores, leaves
        self.n_leaves, self.last_number = n_leaves, last_number

    # --- sums --------------------------------------------------------------------------------------------------------

    def _histograms(self) -> Ints:
        halves = UNIT // 2 - (np.rint(self._labels * UNIT).astype(np.int64) << 32)  # as gradients are packed: minus z
        weights = self._weights
        if weights is not None:
            weigh(halves, UNIT // 2, UNIT // 2, weights, 0, self.n_rows)

        def of_column(cells: int, codes: Bytes) -> Ints:
            def add(start: int, stop: int, out: Ints) -> None:
                if self.loss == "squared":
                    add_gradients(codes, halves, UNIT, UNIT, start, stop, out)
                elif weights is not None:
                    add_shares(codes, self._classes, self.n_classes, COUNT_UNIT, weights, start, stop, out)
                else:
                    add_ones(codes, self._classes, self.n_classes, COUNT_UNIT, start, stop, out)

            return self._summed(self.n_classes * cells, add)

        return np.concatenate([of_column(cells, codes) for cells, codes in zip(self.cells, self._codes, strict=True)])

    def _gradient_sums(self, positions: Any, request: SumRequest, chosen: Bytes | None = None) -> Ints:
        clip, largest = request.clip, LARGEST_HESSIAN[self.loss]

        def add(start: int, stop: int, out: Ints) -> None:
            if self.loss == "softmax":
                scores, bases, classes = self._scores, self._bases, self._classes
                weights = _NO_WEIGHTS if self._weights is None else self._weights
                add_class_gradients(positions, scores, bases, classes, UNIT, clip, largest, weights, start, stop, out)
                return
            self._compute_gradients(start, stop, clip)
            if chosen is not None:
                self._packed[start:stop] *= chosen[start:stop]
            add_gradients(positions, self._packed, clip, largest, start, stop, out)

        return self._summed(request.n_sums, add)

    def _compute_gradients(self, start: int, stop: int, clip: int) -> None:
        """Of one output, packed; with weights, clipped and weighed."""
        scores, targets, packed = self._scores[0, start:stop], self._targets[start:stop], self._packed[start:stop]
        unit = np.float32(UNIT)
        if self.loss == "logistic":
            logistic_gradients(scores, targets, self._bases[0], unit, unit, packed)
        else:
            squared_gradients(scores, targets, _BEYOND_CLIP, unit, np.float32(LARGEST_HESSIAN[self.loss]), packed)
        if self._weights is not None:
            weigh(self._packed, clip, LARGEST_HESSIAN[self.loss], self._weights, start, stop)

    def _summed(self, n_sums: int, add: Callable[[int, int, Ints], None]) -> Ints:
        outs = [np.zeros(n_sums, np.int64) for _ in self._ranges]
        self._team.run(add, [(*limits, out) for limits, out in zip(self._ranges, outs, strict=True)])
        total: Ints = outs[0] if len(outs) == 1 else np.sum(outs, axis=0)
        return total

    # --- updates -----------------------------------------------------------------------------------------------------

    def _update(self, request: SumRequest) -> None:
        if request.update == "start":
            self._started = request
            # Codes without a cell cannot occur (checked when the rows were read), so their bins do not matter.
            self._binned = np.empty_like(self._codes)
            for bins, own, out in zip(request.bins, self._codes, self._binned, strict=True):
                np.take(bins, own, out=out, mode="clip")  # a byte is never beyond 256 bins; the mode spares a copy
            self.n_bins = bin_counts(request, self.cells)
            bases = request.update_values if self.loss == "softmax" else request.base_score
            self._bases = np.full(self.n_outputs, bases, np.float32)
            self._scores[:] = 0.0
            self.n_leaves = 0
            if self.loss == "squared":
                self._targets = ((self._labels - request.centre) / request.spread).astype(np.float32)
            return
        if request.update == "none":
            return
        values = request.update_values.astype(np.float32)
        positions = self._leaves if request.update == "leaves" else self._binned[request.update_feature]
        for scores, own in zip(self._scores, values if self.loss == "softmax" else [values], strict=True):
            if request.update == "tables":
                self._team.run(add_tables, [(self._binned, own, *limits, scores) for limits in self._ranges])
            else:
                self._team.run(add_scores, [(positions, own, *limits, scores) for limits in self._ranges])

    def _check_rows(self) -> None:
        if self.n_rows > MAX_ROWS:
            raise InvalidInput(f"at most 2^40 rows per owner can be summed without overflow, got {self.n_rows}")
        if len(self._codes) != len(self.cells) or self._labels.shape != (self.n_rows,):
            raise InvalidInput(
                f"codes {self._codes.shape}, labels {self._labels.shape} and {len(self.cells)} columns do not match"
            )
        too_large = [j for j, cells in enumerate(self.cells) if self.n_rows and int(self._codes[j].max()) >= cells]
        if too_large:
            raise InvalidInput(f"column {too_large[0]} has codes beyond its {self.cells[too_large[0]]} cells")
        if not 2 <= self.n_classes <= MAX_CLASSES:
            raise InvalidInput(f"there can be 2 to {MAX_CLASSES} classes, got {self.n_classes}")
        low, high = (-0.5, 0.5) if self.loss == "squared" else (0.0, self.n_classes - 1.0)
        if not ((self._labels >= low) & (self._labels <= high)).all():
            raise InvalidInput(f"labels must lie between {low} and {high} for the {self.loss} loss")


def code_rows(
    X: Any,
    y: Any,
    schema: Schema,
    grid: BinMapper,
    n_threads: int,
    *,
    where: str = "X",
    on_bad_rows: OnBadRows = "map",
    unread: Bools | None = None,
    weighing: Weighing | None = None,
    sample_weight: Any = None,
) -> tuple[Bytes, Floats, int, Floats | None]:
    """Codes and labels of the rows that count, how many did not fit the schema, and weights, if there are any."""
    given = fit_rows(X, y, schema, where=where, on_bad_rows=on_bad_rows)
    codes, labels = grid.transform(given.table, n_threads), given.labels
    weights, odd = None, np.zeros(given.table.n_rows, np.bool_)
    if weighing is not None:
        weights, odd = weighing.of_rows(given, sample_weight, on_bad_rows=on_bad_rows)
    if not given.counts.all():  # a row that is not there adds nothing to any sum
        codes, labels = codes[:, given.counts], labels[given.counts]
        weights = None if weights is None else weights[given.counts]
    if schema.label_bounds is not None:
        low, high = schema.label_bounds
        labels = (labels - low) / (high - low) - 0.5
    misfits = given.misfits | odd | outside_bounds(given.table, schema, n_threads)
    if unread is not None and len(unread):  # a table without rows has become one that does not count
        misfits |= unread
    return codes, labels, int(np.count_nonzero(misfits)), weights


class GrowingRows(PrivateRows):
    """Rows that also stand in the nodes of a growing tree, for policies that grow level by level."""

    def node_answer(self, request: NodeRequest) -> Ints:
        """Exact sums, int64 [n_sums], as for `answer`."""
        self._step_down(request)
        if request.kind == "node_leaves":
            return self._gradient_sums(self._leaves, request)
        self._compute_gradients(0, self.n_rows, request.clip)
        parts = [self._node_sums(feature, request)[:, :, :2] for feature in request.features.tolist()]
        return np.concatenate([part.reshape(-1) for part in parts])

    def node_gains(self, request: NodeRequest, described: BinMapper) -> Floats:
        """Exact gains [nodes, candidates], up to the rounding that a choice allows for."""
        self._step_down(request)
        if self._weights is not None:
            raise ProtocolError(f"request {request.number}: gains count rows, and these have weights")
        self._compute_gradients(0, self.n_rows, request.clip)
        gains = []
        for j, feature in enumerate(described.features):
            sums = self._node_sums(j, request)
            total = sums.sum(axis=1, keepdims=True)
            n_cuts = feature.n_value_bins - (not feature.is_categorical)
            left = sums[:, :n_cuts] if feature.is_categorical else np.cumsum(sums[:, :n_cuts], axis=1)
            gains.append(_gain(left, request.l2) + _gain(total - left, request.l2))
        return np.concatenate(gains, axis=1)

    def _node_sums(self, column: int, request: NodeRequest) -> Ints:
        """Sums of minus gradients, of hessians, and counts: [nodes, bins, 3]."""
        out = np.zeros((self.n_leaves, self.n_bins[column], 3), np.int64)
        add_node_sums(self._binned[column], self._leaves, self._packed, request.clip, LARGEST_HESSIAN[self.loss], out)
        return out

    def _step_down(self, request: NodeRequest) -> None:
        """Update the scores, and let each row go to its child."""
        check_node_request(self, request)
        self.last_number = request.number
        self._update(request)
        if request.depth == 0:
            self._leaves[:] = 0
        else:
            descend(self._binned, request.split_features, request.split_right, self._leaves)
        self.n_leaves = 1 << request.depth


def _gain(sums: Ints, l2: float) -> Floats:
    """S^2 / (n + l2) for sums [..., (gradients in units, hessians, counts)]; 0 where there is nobody."""
    gradient, count = sums[..., 0] / UNIT, sums[..., 2]
    out: Floats = np.divide(gradient**2, count + l2, out=np.zeros(count.shape), where=count > 0)
    return out


def loss_of(schema: Schema, *, multiclass: bool = False) -> LossName:
    """Classification where the schema lists classes, regression where it bounds the labels.

    More than two classes are for callers who say that they can do with them: `multiclass`.
    """
    if (schema.classes is None) == (schema.label_bounds is None):
        raise InvalidParameter("the schema must state either classes (classification) or label_bounds (regression)")
    if schema.classes is None:
        return "squared"
    if len(schema.classes) == 2:
        return "logistic"
    if not multiclass:
        raise InvalidParameter(f"private boosting is for two classes, but the schema lists {len(schema.classes)}")
    if len(schema.classes) > MAX_CLASSES:
        raise InvalidParameter(
            f"at most {MAX_CLASSES} classes are possible, but the schema lists {len(schema.classes)}"
        )
    return "softmax"


# --- what is made sure of before an answer: what kernels rely on, and the guarantee ----------------------------------


def check_request(rows: PrivateRows, request: SumRequest) -> None:
    """Raise ProtocolError unless the request can be answered, and claims no less than its true sensitivity."""
    n_columns = len(rows.cells)
    if request.kind not in get_args(Kind) or (request.kind == "squares" and rows.loss != "squared"):
        raise ProtocolError(
            f"request {request.number} is of a kind that there is not for the {rows.loss} loss: {request.kind!r}"
        )
    _check_order(rows, request)
    true = record_sensitivity_squared(request.kind, rows.loss, n_columns, request.clip)
    if request.sensitivity_squared < true:
        raise ProtocolError(
            f"request {request.number} claims a squared sensitivity of {request.sensitivity_squared}, "
            f"but one record can move its answer by {true}"
        )
    n_bins = _check_update(rows, request)
    per_position = 2 * rows.n_outputs
    if request.kind == "histograms":
        wanted = rows.n_classes * sum(rows.cells)
    elif request.kind in ("misfits", "squares"):
        wanted = 1
    elif not n_bins:
        raise ProtocolError(f"request {request.number} asks for {request.kind} before the start of training")
    else:
        if not 1 <= request.clip <= 2 * UNIT:
            raise ProtocolError(f"request {request.number} has a clip of {request.clip}")
        features = request.features
        if features.ndim != 1 or not all(0 <= f < n_columns for f in features.tolist()):
            raise ProtocolError(f"request {request.number} names columns that do not exist: {features.tolist()}")
        if request.kind == "bin_sums":
            wanted = per_position * n_bins[features[0]] if len(features) == 1 else -1
        else:
            wanted = per_position << len(features) if 1 <= len(features) <= MAX_DEPTH else -1
            _check_array(request, "goes_right", np.uint8, (len(features), 256), 1)
    if request.n_sums != wanted:
        raise ProtocolError(f"request {request.number} ({request.kind}) asks for {request.n_sums} sums")


def check_node_request(rows: PrivateRows, request: NodeRequest) -> None:
    """The same for the nodes of a growing tree."""
    if rows.loss == "softmax" or rows.n_rows > MOST_ROWS:
        raise ProtocolError(f"request {request.number}: trees are grown for one output and at most 2^32 rows")
    _check_order(rows, request)
    n_bins = _check_update(rows, request)
    n_nodes = 1 << request.depth
    features = request.features.tolist()
    before = 0 if request.depth == 0 else n_nodes // 2
    right = request.split_right
    possible = (
        0 <= request.depth <= MAX_DEPTH
        and (request.depth == 0 or rows.n_leaves == before)
        and len(set(features)) == len(features)
        and all(0 <= f < len(rows.cells) for f in [*features, *request.split_features.tolist()])
        and request.split_features.shape == (before,)
        and right.shape == (before, 256)
        and right.dtype == np.uint8
        and (right <= 1).all()
        and 1 <= request.clip <= 2 * UNIT
        and bool(n_bins)
    )
    if not possible:
        raise ProtocolError(f"request {request.number} does not fit the tree that is growing")
    if request.kind == "node_gains":
        return
    each = sum(n_bins[f] for f in features) if request.kind == "node_sums" else 1
    true = record_sensitivity_squared(request.kind, rows.loss, len(features), request.clip)
    if request.n_sums != 2 * n_nodes * each or request.sensitivity_squared < true:
        raise ProtocolError(
            f"request {request.number} asks for {request.n_sums} sums at a squared sensitivity of "
            f"{request.sensitivity_squared}; it would be {2 * n_nodes * each} sums at {true}"
        )


def bin_counts(request: SumRequest, cells: tuple[int, ...]) -> tuple[int, ...]:
    """Bins per column that a start would set."""
    return tuple(int(bins[:n].max()) + 1 for bins, n in zip(request.bins, cells, strict=True))


def _check_order(rows: PrivateRows, request: SumRequest) -> None:
    if request.number <= rows.last_number:
        raise ProtocolError(f"request {request.number} came after request {rows.last_number}")


def _check_update(rows: PrivateRows, request: SumRequest) -> tuple[int, ...]:
    """Raise unless the update is possible; returns the bins per column after it."""
    n_columns = len(rows.cells)
    each = (rows.n_outputs,) if rows.loss == "softmax" else ()
    if request.update == "start":
        if rows.loss == "softmax":
            _check_array(request, "update_values", np.float64, each, _LARGEST_VALUE)
        _check_array(request, "bins", np.uint8, (n_columns, 256), 255)
        usable = math.isfinite(request.base_score) and math.isfinite(request.centre) and request.spread > 0.0
        if not usable or not math.isfinite(request.spread):
            raise ProtocolError(f"request {request.number} starts from numbers that are not finite")
        return bin_counts(request, rows.cells)
    if request.update != "none" and not rows.n_bins:
        raise ProtocolError(f"request {request.number} updates scores before the start of training")
    if request.update == "table":
        _check_array(request, "update_values", np.float64, (*each, 256), _LARGEST_VALUE)
        if not 0 <= request.update_feature < n_columns:
            raise ProtocolError(f"request {request.number} updates column {request.update_feature}")
    elif request.update == "tables":
        _check_array(request, "update_values", np.float64, (*each, n_columns, 256), _LARGEST_VALUE)
    elif request.update == "leaves":
        if not rows.n_leaves:
            raise ProtocolError(f"request {request.number} updates leaves before there was a tree")
        _check_array(request, "update_values", np.float64, (*each, rows.n_leaves), _LARGEST_VALUE)
    elif request.update != "none":
        raise ProtocolError(f"request {request.number} has an unknown update, {request.update!r}")
    return rows.n_bins


def _check_array(request: SumRequest, name: str, dtype: Any, shape: tuple[int, ...], largest: float) -> None:
    array = getattr(request, name)
    if array.dtype != dtype or array.shape != shape:
        raise ProtocolError(
            f"request {request.number}: {name} must be {np.dtype(dtype)}{list(shape)}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    if array.size and not float(np.abs(array).max()) <= largest:  # NaN fails it too
        raise ProtocolError(f"request {request.number}: {name} holds a value that is not within -+{largest:g}")
