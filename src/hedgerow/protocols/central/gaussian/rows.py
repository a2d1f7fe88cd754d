"""One owner's rows behind one verb: `answer` a request with exact whole-number sums.

The answers are NOT private: whoever calls `answer` adds noise (and masks) before anything leaves. Requests are
checked, also against the sensitivity that they claim: a wrong one raises before a row is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self, get_args

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.losses import logistic_gradients, squared_gradients
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.bad_rows import OnBadRows, fit_rows
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.central.gaussian.kernels import (
    add_chosen,
    add_class_gradients,
    add_gradients,
    add_ones,
    add_pairs,
    add_scores,
    add_tables,
    find_leaves,
    mark_outside,
)
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    LARGEST_HESSIAN,
    MAX_DEPTH,
    UNIT,
    Kind,
    LossName,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.schema import NumericColumn, Schema

MAX_ROWS = 2**40
"""So many rows of the largest fixed-point value, 2 * 2^16, still sum to less than 2^62."""

MAX_CLASSES = 256
"""A class fits a byte."""

ROWS_WORTH_A_THREAD = 1 << 15

_BEYOND_CLIP = np.float32(4.0)
"""Bound on real gradients before they are rounded: above every clip, so that the clip in whole numbers decides."""

_LARGEST_VALUE = 1e6
"""Of a table or leaf: scores stay finite in float32 through all updates."""


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
    ) -> None:
        """`codes` [columns, rows] on the public grid; `labels` 0 or 1, or (squared loss) scaled to -.5 to .5.

        With the softmax loss, `labels` are the numbers of classes, 0 to `n_classes` - 1.
        """
        self.loss = loss
        self.n_rows = codes.shape[1]
        self.n_outputs = n_classes if loss == "softmax" else 1
        """Scores per row."""
        self.n_misfits = 0
        """Rows with a value or a label that the schema does not allow. Exact, so not to be told as it is."""
        self._n_classes = n_classes
        self._cells = cells
        self._codes = np.ascontiguousarray(codes, np.uint8)
        self._binned = self._codes
        self._labels = np.ascontiguousarray(labels, np.float64)
        self._check_rows()
        self._targets: Scores = self._labels.astype(np.float32)
        self._classes: Bytes = self._labels.astype(np.uint8) if loss == "softmax" else np.empty(0, np.uint8)
        self._scores: Scores = np.zeros((self.n_outputs, self.n_rows), np.float32)
        self._packed: Ints = np.zeros(0 if loss == "softmax" else self.n_rows, np.int64)
        self._leaves: Bytes = np.zeros(self.n_rows, np.uint8)
        self._n_leaves = 0
        self._bases: Scores = np.zeros(self.n_outputs, np.float32)
        self._n_bins: tuple[int, ...] = ()
        self._last_number = -1
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
    ) -> Self:
        """Read a table and its labels as the schema describes them; `where` names the table in error messages.

        More than two classes are refused unless the caller can do with them (`multiclass`). What becomes of rows that
        do not fit the schema is said in protocols/bad_rows.py. `unread` [rows]: which did not fit when the table was
        first read (`PartyData.misfits`).
        """
        loss = loss_of(schema, multiclass=multiclass)
        given = fit_rows(X, y, schema, where=where, on_bad_rows=on_bad_rows)
        grid = grid_of(schema)
        codes, labels = grid.transform(given.table, n_threads), given.labels
        if not given.counts.all():  # a row that is not there adds nothing to any sum
            codes, labels = codes[:, given.counts], labels[given.counts]
        if schema.label_bounds is not None:
            low, high = schema.label_bounds
            labels = (labels - low) / (high - low) - 0.5
        rows = cls(codes, labels, cells_of(schema, grid), loss, n_threads, len(schema.classes or (0, 1)))
        misfits = given.misfits | outside_bounds(given.table, schema, n_threads)
        if unread is not None and len(unread):  # a table without rows has become one that does not count
            misfits |= unread
        rows.n_misfits = int(np.count_nonzero(misfits))
        return rows

    def answer(self, request: SumRequest, *, again: bool = False, chosen: Bytes | None = None) -> Ints:
        """The exact sums that were asked for, int64 [n_sums], after the request's update.

        A request is answered once. `again` repeats the last answer, without a second update, for a round that could not
        be finished; the caller sees to it that at most one of the two sums is ever opened, or pays for both.
        `chosen` [rows], for gradient sums of one output: only rows marked 1 are summed; all are updated.
        """
        if again and request.number != self._last_number:
            raise ProtocolError(f"request {request.number} cannot be repeated: the last was {self._last_number}")
        if chosen is not None and (self.loss == "softmax" or request.kind in ("misfits", "histograms", "squares")):
            raise ProtocolError(f"request {request.number}: a sample of rows is for gradient sums of one output")
        if not again:
            self._check(request)
            self._last_number = request.number
            self._update(request)
        return self._sums(request, chosen)

    def _sums(self, request: SumRequest, chosen: Bytes | None) -> Ints:
        if request.kind == "misfits":
            return np.array([self.n_misfits * COUNT_UNIT])
        if request.kind == "histograms":
            return self._histograms()
        if request.kind == "squares":
            return np.array([int(self._rounded(self._labels**2, UNIT).sum(dtype=np.int64))])
        if request.kind == "bin_sums":
            return self._gradient_sums(self._binned[request.features[0]], request, chosen)
        # Copies, because arrays from a message are read-only, and kernels would be compiled anew for those.
        features, goes_right = request.features.copy(), request.goes_right.copy()
        self._each_range(lambda start, stop: find_leaves(self._binned, features, goes_right, start, stop, self._leaves))
        self._n_leaves = 1 << len(request.features)
        return self._gradient_sums(self._leaves, request, chosen)

    # --- sums --------------------------------------------------------------------------------------------------------

    def _histograms(self) -> Ints:
        if self.loss == "logistic":
            first = np.where(self._labels > 0.5, COUNT_UNIT, 0).astype(np.int32)
            second = (COUNT_UNIT - first).astype(np.int32)
        elif self.loss == "squared":
            first = self._rounded(self._labels, UNIT)
            second = np.full(self.n_rows, UNIT // 2, np.int32)

        def of_column(cells: int, codes: Bytes) -> Ints:
            def add(start: int, stop: int, out: Ints) -> None:
                if self.loss == "softmax":
                    add_ones(codes, self._classes, self._n_classes, COUNT_UNIT, start, stop, out)
                else:
                    add_pairs(codes, first, second, start, stop, out)

            return self._summed(self._per_cell * cells, add)

        return np.concatenate([of_column(cells, codes) for cells, codes in zip(self._cells, self._codes, strict=True)])

    @property
    def _per_cell(self) -> int:
        """Numbers per cell in histograms."""
        return self._n_classes if self.loss == "softmax" else 2

    @property
    def _per_position(self) -> int:
        """Numbers per bin or leaf in gradient sums."""
        return 2 * self.n_outputs

    def _gradient_sums(self, positions: Any, request: SumRequest, chosen: Bytes | None = None) -> Ints:
        unit, clip, largest = np.float32(UNIT), request.clip, LARGEST_HESSIAN[self.loss]

        def add(start: int, stop: int, out: Ints) -> None:
            if self.loss == "softmax":
                scores, bases, classes = self._scores, self._bases, self._classes
                add_class_gradients(positions, scores, bases, classes, UNIT, clip, largest, start, stop, out)
                return
            mine, targets, packed = self._scores[0, start:stop], self._targets[start:stop], self._packed[start:stop]
            if self.loss == "logistic":
                logistic_gradients(mine, targets, self._bases[0], unit, unit, packed)
            else:
                squared_gradients(mine, targets, _BEYOND_CLIP, unit, np.float32(largest), packed)
            if chosen is None:
                add_gradients(positions, self._packed, clip, largest, start, stop, out)
            else:
                add_chosen(positions, self._packed, chosen, clip, largest, start, stop, out)

        return self._summed(request.n_sums, add)

    @staticmethod
    def _rounded(values: Floats, unit: int) -> Int32s:
        return np.rint(values * unit).astype(np.int32)

    def _summed(self, n_sums: int, add: Callable[[int, int, Ints], None]) -> Ints:
        outs = [np.zeros(n_sums, np.int64) for _ in self._ranges]
        self._team.run(add, [(*limits, out) for limits, out in zip(self._ranges, outs, strict=True)])
        total: Ints = outs[0] if len(outs) == 1 else np.sum(outs, axis=0)
        return total

    def _each_range(self, do: Callable[[int, int], None]) -> None:
        self._team.run(do, self._ranges)

    # --- updates -----------------------------------------------------------------------------------------------------

    def _update(self, request: SumRequest) -> None:
        if request.update == "start":
            # Codes without a cell cannot occur (checked when the rows were read), so their bins do not matter.
            self._binned = np.empty_like(self._codes)
            for bins, own, out in zip(request.bins, self._codes, self._binned, strict=True):
                np.take(bins, own, out=out, mode="clip")  # a byte is never beyond 256 bins; the mode spares a copy
            self._n_bins = bin_counts(request, self._cells)
            bases = request.update_values if self.loss == "softmax" else request.base_score
            self._bases = np.full(self.n_outputs, bases, np.float32)
            self._scores[:] = 0.0
            self._n_leaves = 0
            if self.loss == "squared":
                self._targets = ((self._labels - request.centre) / request.spread).astype(np.float32)
            return
        if request.update == "none":
            return
        values = request.update_values.astype(np.float32)
        for scores, own in zip(self._scores, values if self.loss == "softmax" else [values], strict=True):
            self._update_scores(request, own, scores)

    def _update_scores(self, request: SumRequest, values: Scores, scores: Scores) -> None:
        """The update of one output."""
        if request.update == "tables":
            self._each_range(lambda start, stop: add_tables(self._binned, values, start, stop, scores))
            return
        positions = self._leaves if request.update == "leaves" else self._binned[request.update_feature]
        self._each_range(lambda start, stop: add_scores(positions, values, start, stop, scores))

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_rows(self) -> None:
        if self.n_rows > MAX_ROWS:
            raise InvalidInput(f"at most 2^40 rows per owner can be summed without overflow, got {self.n_rows}")
        if len(self._codes) != len(self._cells) or self._labels.shape != (self.n_rows,):
            raise InvalidInput(
                f"codes {self._codes.shape}, labels {self._labels.shape} and {len(self._cells)} columns do not match"
            )
        too_large = [j for j, cells in enumerate(self._cells) if self.n_rows and int(self._codes[j].max()) >= cells]
        if too_large:
            raise InvalidInput(f"column {too_large[0]} has codes beyond its {self._cells[too_large[0]]} cells")
        if not 2 <= self._n_classes <= MAX_CLASSES:
            raise InvalidInput(f"there can be 2 to {MAX_CLASSES} classes, got {self._n_classes}")
        low, high = (-0.5, 0.5) if self.loss == "squared" else (0.0, self._n_classes - 1.0)
        if not ((self._labels >= low) & (self._labels <= high)).all():
            raise InvalidInput(f"labels must lie between {low} and {high} for the {self.loss} loss")

    def _check(self, request: SumRequest) -> None:
        """What the kernels rely on, and what the guarantee rests on."""
        n_columns = len(self._cells)
        if request.kind not in get_args(Kind) or (request.kind == "squares" and self.loss != "squared"):
            raise ProtocolError(
                f"request {request.number} is of a kind that there is not for the {self.loss} loss: {request.kind!r}"
            )
        if request.number <= self._last_number:
            raise ProtocolError(f"request {request.number} came after request {self._last_number}")
        true = record_sensitivity_squared(request.kind, self.loss, n_columns, request.clip)
        if request.sensitivity_squared < true:
            raise ProtocolError(
                f"request {request.number} claims a squared sensitivity of {request.sensitivity_squared}, "
                f"but one record can move its answer by {true}"
            )
        self._check_update(request)
        n_bins = bin_counts(request, self._cells) if request.update == "start" else self._n_bins
        if request.kind == "histograms":
            wanted = self._per_cell * sum(self._cells)
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
                wanted = self._per_position * n_bins[features[0]] if len(features) == 1 else -1
            else:
                wanted = self._per_position << len(features) if 1 <= len(features) <= MAX_DEPTH else -1
                _check_array(request, "goes_right", request.goes_right, np.uint8, (len(features), 256), 1)
        if request.n_sums != wanted:
            raise ProtocolError(f"request {request.number} ({request.kind}) asks for {request.n_sums} sums")

    def _check_update(self, request: SumRequest) -> None:
        n_columns, values = len(self._cells), request.update_values
        each = (self.n_outputs,) if self.loss == "softmax" else ()
        if request.update == "start":
            if self.loss == "softmax":
                _check_array(request, "update_values", values, np.float64, each, _LARGEST_VALUE)
            _check_array(request, "bins", request.bins, np.uint8, (n_columns, 256), 255)
            usable = math.isfinite(request.base_score) and math.isfinite(request.centre) and request.spread > 0.0
            if not usable or not math.isfinite(request.spread):
                raise ProtocolError(f"request {request.number} starts from numbers that are not finite")
            return
        if request.update != "none" and not self._n_bins:
            raise ProtocolError(f"request {request.number} updates scores before the start of training")
        if request.update == "table":
            _check_array(request, "update_values", values, np.float64, (*each, 256), _LARGEST_VALUE)
            if not 0 <= request.update_feature < n_columns:
                raise ProtocolError(f"request {request.number} updates column {request.update_feature}")
        elif request.update == "tables":
            _check_array(request, "update_values", values, np.float64, (*each, n_columns, 256), _LARGEST_VALUE)
        elif request.update == "leaves":
            if not self._n_leaves:
                raise ProtocolError(f"request {request.number} updates leaves before there was a tree")
            _check_array(request, "update_values", values, np.float64, (*each, self._n_leaves), _LARGEST_VALUE)
        elif request.update != "none":
            raise ProtocolError(f"request {request.number} has an unknown update, {request.update!r}")


def bin_counts(request: SumRequest, cells: tuple[int, ...]) -> tuple[int, ...]:
    """Bins per column that a start would set."""
    return tuple(int(bins[:n].max()) + 1 for bins, n in zip(request.bins, cells, strict=True))


def _check_array(
    request: SumRequest, name: str, array: Any, dtype: Any, shape: tuple[int, ...], largest: float
) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise ProtocolError(
            f"request {request.number}: {name} must be {np.dtype(dtype)}{list(shape)}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    if array.size and not float(np.abs(array).max()) <= largest:  # NaN fails it too
        raise ProtocolError(f"request {request.number}: {name} holds a value that is not within -+{largest:g}")


# --- labels --------------------------------------------------------------------------------------------------------


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


# --- bounds --------------------------------------------------------------------------------------------------------


def outside_bounds(table: Table, schema: Schema, n_threads: int = 1) -> Bools:
    """Which rows have a number outside its column's public bounds. A missing value is not outside."""
    outside = np.zeros(table.n_rows, np.bool_)
    bounded = [(j, column) for j, column in enumerate(schema.columns) if isinstance(column, NumericColumn)]
    if table.grid is None:
        for j, column in bounded:
            values = table.columns[j].values
            # Numbers of numpy's, so that float32 values are compared as they are: bounds are not rounded to float32.
            outside |= (values < np.float64(column.low)) | (values > np.float64(column.high))
        return outside
    # All columns lie together in memory, row by row, and are read so.
    low, high = np.array([(column.low, column.high) for _, column in bounded]).T.copy()
    limits = np.linspace(0, table.n_rows, n_threads + 1).astype(int).tolist()
    tasks = [(table.grid, low, high, start, stop, outside) for start, stop in pairwise(limits)]
    Team(n_threads).run(mark_outside, tasks)
    return outside
