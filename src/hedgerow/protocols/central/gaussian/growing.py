"""Rows that stand in the nodes of a growing tree: sums and gains per node, for policies that grow level by level.

One more request, `NodeRequest`, and rows that answer it. Central only: no message carries it.

    kind          the answer                                                  how far one record moves it (L2, squared)
    node_sums     per column, node and bin: sums of -gradients, of hessians   columns * (clip^2 + largest hessian^2)
    node_leaves   per node: the same                                          clip^2 + largest hessian^2
    node_gains    per node and candidate split, for a choice:                 see privacy/sensitivity.py
                  S_L^2 / (n_L + l2) + S_R^2 / (n_R + l2)

Candidates. Of a numeric column: after each bin but the last; missing values go right. Of a categorical one: each level
on its own goes left. Which they are follows from the schema alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints
from hedgerow.engine.losses import logistic_gradients, squared_gradients
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.events import Event, Exponential, NonPrivate
from hedgerow.privacy.sensitivity import centred_gain_sensitivity
from hedgerow.protocols.central.gaussian.requests import LARGEST_HESSIAN, MAX_DEPTH, UNIT, LossName, SumRequest
from hedgerow.protocols.central.gaussian.rows import PrivateRows, bin_counts

MOST_ROWS = 2**32
"""A public limit on rows: with it gains have a public limit too."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest(SumRequest):
    """A question to the nodes of the tree that is growing. Its rows step down by the splits before it is answered."""

    depth: int = 0
    """Level of the nodes asked about: 2^depth of them. 0 begins a new tree."""
    split_features: Int32s = field(default_factory=lambda: np.empty(0, np.int32))
    """Column of the split of each node of the level above."""
    split_right: Bytes = field(default_factory=lambda: np.empty((0, 256), np.uint8))
    """[nodes of the level above, 256]: 1 where rows of this bin go right."""
    l2: float = 0.0
    choice_epsilon: float = 0.0
    """node_gains: of the choice that the gains are for."""

    @property
    def gain_sensitivity(self) -> float:
        """Half the width of what one record can do to a node's gains."""
        return centred_gain_sensitivity(self.clip / UNIT)

    @property
    def largest_gain(self) -> float:
        """S^2 / n <= n clip^2 on either side."""
        return MOST_ROWS * (self.clip / UNIT) ** 2

    def event(self, honest: int = 1) -> Event:
        """What the answer is worth."""
        if self.kind != "node_gains":
            return SumRequest.event(self, honest)
        if np.isinf(self.choice_epsilon):
            return NonPrivate("no noise was asked for")
        return Exponential(self.gain_sensitivity, self.choice_epsilon)


def node_sensitivity_squared(kind: str, loss: LossName, n_features: int, clip: int) -> int:
    """How far one record can move the exact sums, L2 and squared: it is in one node, and in one bin of each feature."""
    return (n_features if kind == "node_sums" else 1) * (clip**2 + LARGEST_HESSIAN[loss] ** 2)


class Candidates(NamedTuple):
    """All splits that a node may be given, as parallel arrays."""

    feature: Int32s
    goes_right: Bytes
    """[candidates, 256]."""

    @classmethod
    def of(cls, described: BinMapper) -> Candidates:
        """Those of the bins of all columns."""
        features, rows = [], []
        for j, feature in enumerate(described.features):
            codes = np.arange(256)
            n_cuts = feature.n_value_bins - (not feature.is_categorical)
            for b in range(n_cuts):
                features.append(j)
                rows.append(codes != b if feature.is_categorical else codes > b)
        if not features:
            raise InvalidInput("the schema leaves nothing to split: every column has a single bin")
        return cls(np.array(features, np.int32), np.array(rows, np.uint8))


class GrowingRows(PrivateRows):
    """Rows that also know their node."""

    def node_answer(self, request: NodeRequest) -> Ints:
        """Exact sums, int64 [n_sums], as for `answer`."""
        self._check_node_request(request)
        self._step_down(request)
        n_nodes = 1 << request.depth
        if request.kind == "node_leaves":
            return self._gradient_sums(self._leaves, request)
        self._compute_gradients()
        parts = [self._of_nodes(feature, n_nodes, request.clip) for feature in request.features.tolist()]
        return np.concatenate([part[:, :, :2].reshape(-1) for part in parts])

    def _of_nodes(self, column: int, n_nodes: int, clip: int) -> Ints:
        """Sums of minus gradients, of hessians, and counts: [nodes, bins, 3]."""
        out = np.zeros((n_nodes, self._n_bins[column], 3), np.int64)
        add_node_sums(self._binned[column], self._leaves, self._packed, clip, LARGEST_HESSIAN[self.loss], out)
        return out

    def node_gains(self, request: NodeRequest, described: BinMapper) -> Floats:
        """Exact gains [nodes, candidates], up to the rounding that a choice allows for."""
        self._check_node_request(request)
        self._step_down(request)
        self._compute_gradients()
        n_nodes = 1 << request.depth
        gains = []
        for j, feature in enumerate(described.features):
            sums = self._of_nodes(j, n_nodes, request.clip)
            total = sums.sum(axis=1, keepdims=True)
            n_cuts = feature.n_value_bins - (not feature.is_categorical)
            left = sums[:, :n_cuts] if feature.is_categorical else np.cumsum(sums[:, :n_cuts], axis=1)
            gains.append(_gain(left, request.l2) + _gain(total - left, request.l2))
        return np.concatenate(gains, axis=1)

    def _compute_gradients(self) -> None:
        unit = np.float32(UNIT)
        if self.loss == "logistic":
            logistic_gradients(self._scores[0], self._targets, self._bases[0], unit, unit, self._packed)
        else:
            largest = np.float32(LARGEST_HESSIAN[self.loss])
            squared_gradients(self._scores[0], self._targets, np.float32(4.0), unit, largest, self._packed)

    def _step_down(self, request: NodeRequest) -> None:
        self._last_number = request.number
        self._update(request)
        if request.depth == 0:
            self._leaves[:] = 0
        else:
            descend(self._binned, request.split_features, request.split_right, self._leaves)
        self._n_leaves = 1 << request.depth

    def _check_node_request(self, request: NodeRequest) -> None:
        """As `_check` does for the other kinds."""
        if self.loss == "softmax" or self.n_rows > MOST_ROWS:
            raise ProtocolError(f"request {request.number}: trees are grown for one output and at most 2^32 rows")
        if request.number <= self._last_number:
            raise ProtocolError(f"request {request.number} came after request {self._last_number}")
        self._check_update(request)
        n_bins = bin_counts(request, self._cells) if request.update == "start" else self._n_bins
        n_nodes = 1 << request.depth
        features = request.features.tolist()
        before = 0 if request.depth == 0 else n_nodes // 2
        right = request.split_right
        possible = (
            0 <= request.depth <= MAX_DEPTH
            and (request.depth == 0 or self._n_leaves == before)
            and len(set(features)) == len(features)
            and all(0 <= f < len(self._cells) for f in [*features, *request.split_features.tolist()])
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
        true = node_sensitivity_squared(request.kind, self.loss, len(features), request.clip)
        if request.n_sums != 2 * n_nodes * each or request.sensitivity_squared < true:
            raise ProtocolError(
                f"request {request.number} asks for {request.n_sums} sums at a squared sensitivity of "
                f"{request.sensitivity_squared}; it would be {2 * n_nodes * each} sums at {true}"
            )


def _gain(sums: Ints, l2: float) -> Floats:
    """S^2 / (n + l2) for sums [..., (gradients in units, hessians, counts)]; 0 where there is nobody."""
    gradient, count = sums[..., 0] / UNIT, sums[..., 2]
    out: Floats = np.divide(gradient**2, count + l2, out=np.zeros(count.shape), where=count > 0)
    return out


@kernel
def add_node_sums(codes: Any, nodes: Any, packed: Any, clip: int, largest: int, out: Any) -> None:
    """Minus the gradient, the hessian, clipped as in `add_gradients`, and 1 per row. Out: `out` [nodes, bins, 3]."""
    for i in range(len(codes)):
        place = out[nodes[i], codes[i]]
        place[0] += min(max(-(packed[i] >> 32), -clip), clip)
        place[1] += min(packed[i] & 0xFFFFFFFF, largest)
        place[2] += 1


@kernel
def descend(codes: Any, features: Any, goes_right: Any, nodes: Any) -> None:
    """Each row goes to the left or right child of its node. In and out: `nodes` [rows]."""
    for i in range(len(nodes)):
        node = nodes[i]
        nodes[i] = (node << np.uint8(1)) | goes_right[node, codes[features[node], i]]
