"""One owner's rows behind one verb: `answer` a request with exact whole-number sums.

The answers are NOT private: whoever calls `answer` adds noise (and masks) before anything leaves. Requests are
checked, also against the sensitivity that they claim: a wrong one raises before a row is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.losses import logistic_gradients, squared_gradients
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.bad_rows import OnBadRows, fit_rows, outside_bounds
from hedgerow.protocols.central.gaussian.checks import bin_counts, check_node_request, check_request
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.central.gaussian.kernels import (
    add_class_gradients,
    add_gradients,
    add_node_sums,
    add_ones,
    add_scores,
    add_tables,
    descend,
    find_leaves,
)
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    LARGEST_HESSIAN,
    UNIT,
    LossName,
    NodeRequest,
    SumRequest,
)
from hedgerow.schema import Schema

MAX_ROWS = 2**40
"""This many rows of the largest fixed-point value, 2 * 2^16, still sum to less than 2^62."""

MAX_CLASSES = 256
"""A class fits a byte."""

ROWS_WORTH_A_THREAD = 1 << 15

_BEYOND_CLIP = np.float32(4.0)
"""Bound on real gradients before they are rounded: above every clip, so that the clip in whole numbers decides."""


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
        self.n_classes = n_classes
        self.cells = cells
        self.n_bins: tuple[int, ...] = ()
        self.n_leaves = 0
        self.last_number = -1
        self._codes = np.ascontiguousarray(codes, np.uint8)
        self._binned = self._codes
        self._labels = np.ascontiguousarray(labels, np.float64)
        self._check_rows()
        self._targets: Scores = self._labels.astype(np.float32)
        self._classes: Bytes = self._labels.astype(np.uint8) if loss == "softmax" else np.empty(0, np.uint8)
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
            return np.array([int(np.rint(self._labels**2 * UNIT).astype(np.int64).sum())])
        if request.kind == "bin_sums":
            return self._gradient_sums(self._binned[request.features[0]], request, chosen)
        # Copies, because arrays from a message are read-only, and kernels would be compiled anew for those.
        features, goes_right = request.features.copy(), request.goes_right.copy()
        self._team.run(
            lambda start, stop: find_leaves(self._binned, features, goes_right, start, stop, self._leaves), self._ranges
        )
        self.n_leaves = 1 << len(request.features)
        return self._gradient_sums(self._leaves, request, chosen)

    # --- sums --------------------------------------------------------------------------------------------------------

    def _histograms(self) -> Ints:
        if self.loss == "logistic":
            first = np.where(self._labels > 0.5, COUNT_UNIT, 0)
            packed = _packed(first, COUNT_UNIT - first)
        elif self.loss == "squared":
            packed = _packed(np.rint(self._labels * UNIT).astype(np.int64), UNIT // 2)

        def of_column(cells: int, codes: Bytes) -> Ints:
            def add(start: int, stop: int, out: Ints) -> None:
                if self.loss == "softmax":
                    add_ones(codes, self._classes, self.n_classes, COUNT_UNIT, start, stop, out)
                else:
                    add_gradients(codes, packed, UNIT, UNIT, start, stop, out)

            return self._summed(self.n_classes * cells, add)

        return np.concatenate([of_column(cells, codes) for cells, codes in zip(self.cells, self._codes, strict=True)])

    def _gradient_sums(self, positions: Any, request: SumRequest, chosen: Bytes | None = None) -> Ints:
        clip, largest = request.clip, LARGEST_HESSIAN[self.loss]

        def add(start: int, stop: int, out: Ints) -> None:
            if self.loss == "softmax":
                scores, bases, classes = self._scores, self._bases, self._classes
                add_class_gradients(positions, scores, bases, classes, UNIT, clip, largest, start, stop, out)
                return
            self._compute_gradients(start, stop)
            if chosen is not None:
                self._packed[start:stop] *= chosen[start:stop]
            add_gradients(positions, self._packed, clip, largest, start, stop, out)

        return self._summed(request.n_sums, add)

    def _compute_gradients(self, start: int, stop: int) -> None:
        """Of one output, packed."""
        scores, targets, packed = self._scores[0, start:stop], self._targets[start:stop], self._packed[start:stop]
        unit = np.float32(UNIT)
        if self.loss == "logistic":
            logistic_gradients(scores, targets, self._bases[0], unit, unit, packed)
        else:
            squared_gradients(scores, targets, _BEYOND_CLIP, unit, np.float32(LARGEST_HESSIAN[self.loss]), packed)

    def _summed(self, n_sums: int, add: Callable[[int, int, Ints], None]) -> Ints:
        outs = [np.zeros(n_sums, np.int64) for _ in self._ranges]
        self._team.run(add, [(*limits, out) for limits, out in zip(self._ranges, outs, strict=True)])
        total: Ints = outs[0] if len(outs) == 1 else np.sum(outs, axis=0)
        return total

    # --- updates -----------------------------------------------------------------------------------------------------

    def _update(self, request: SumRequest) -> None:
        if request.update == "start":
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
        for scores, own in zip(self._scores, values if self.loss == "softmax" else [values], strict=True):
            self._update_scores(request, own, scores)

    def _update_scores(self, request: SumRequest, values: Scores, scores: Scores) -> None:
        """The update of one output."""
        if request.update == "tables":
            self._team.run(lambda start, stop: add_tables(self._binned, values, start, stop, scores), self._ranges)
            return
        positions = self._leaves if request.update == "leaves" else self._binned[request.update_feature]
        self._team.run(lambda start, stop: add_scores(positions, values, start, stop, scores), self._ranges)

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


class GrowingRows(PrivateRows):
    """Rows that also stand in the nodes of a growing tree, for policies that grow level by level."""

    def node_answer(self, request: NodeRequest) -> Ints:
        """Exact sums, int64 [n_sums], as for `answer`."""
        self._step_down(request)
        if request.kind == "node_leaves":
            return self._gradient_sums(self._leaves, request)
        self._compute_gradients(0, self.n_rows)
        parts = [self._node_sums(feature, request)[:, :, :2] for feature in request.features.tolist()]
        return np.concatenate([part.reshape(-1) for part in parts])

    def node_gains(self, request: NodeRequest, described: BinMapper) -> Floats:
        """Exact gains [nodes, candidates], up to the rounding that a choice allows for."""
        self._step_down(request)
        self._compute_gradients(0, self.n_rows)
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


def _packed(first: Ints, second: Ints | int) -> Ints:
    """Pairs as `add_gradients` takes them: minus the first in the high 32 bits, the second in the low ones."""
    packed: Ints = (-first << 32) + second
    return packed


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
