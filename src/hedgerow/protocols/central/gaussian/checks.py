"""What the rows make sure of before they answer: what their kernels rely on, and what the guarantee rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from hedgerow.errors import ProtocolError
from hedgerow.protocols.central.gaussian.requests import (
    MAX_DEPTH,
    MOST_ROWS,
    UNIT,
    Kind,
    NodeRequest,
    SumRequest,
    record_sensitivity_squared,
)

if TYPE_CHECKING:
    from hedgerow.protocols.central.gaussian.rows import PrivateRows

_LARGEST_VALUE = 1e6
"""Of a table or leaf: scores stay finite in float32 through all updates."""


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
