"""Kernels over one owner's rows: positions in, exact whole-number sums out.

Every sum is of integers, so neither the order of rows nor their division into ranges matters. Loops run over slices
from 0: the compiler then knows that no index is negative (those count from the end), and makes them twice as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.losses import exponential

_BLOCK = 256
"""Rows whose class shares are held at a time: they stay in the first-level cache, and loops are vectorised."""


@kernel
def find_leaves(codes: Any, features: Any, goes_right: Any, start: int, stop: int, leaves: Any) -> None:
    """The leaf of each row in an oblivious tree: one bit per level, the first level's the highest.

    In: `codes` [columns, rows], `features` [levels], `goes_right` [levels, 256]. Out: `leaves` [rows].
    Mostly the codes that go right are neighbours (255 and 0 count as such); then one comparison does, for many rows at
    a time, instead of a look into the table for each.
    """
    found = leaves[start:stop]
    found[:] = 0
    for level in range(len(features)):
        column = codes[features[level]][start:stop]
        bit = goes_right[level]
        n_runs, first, length = 0, 0, 0
        for code in range(256):
            length += bit[code]
            if bit[code] and not bit[(code - 1) & 255]:
                n_runs += 1
                first = code
        if n_runs == 1:
            low, size = np.uint8(first), np.uint8(length)
            for i in range(len(found)):
                found[i] = (found[i] << np.uint8(1)) | np.uint8(np.uint8(column[i] - low) < size)
        else:
            for i in range(len(found)):
                found[i] = (found[i] << np.uint8(1)) | bit[column[i]]


@kernel
def add_tables(codes: Any, tables: Any, start: int, stop: int, scores: Any) -> None:
    """Scores become the sum over columns of tables[column, bin]. Out: `scores` [rows]."""
    own = scores[start:stop]
    own[:] = np.float32(0.0)
    for j in range(len(codes)):
        column = codes[j][start:stop]
        table = tables[j]
        for i in range(len(own)):
            own[i] += table[column[i]]


@kernel
def add_scores(positions: Any, values: Any, start: int, stop: int, scores: Any) -> None:
    """values[position] is added to each row's score."""
    own, places = scores[start:stop], positions[start:stop]
    for i in range(len(own)):
        own[i] += values[places[i]]


@kernel
def add_gradients(positions: Any, packed: Any, clip: int, largest: int, start: int, stop: int, out: Any) -> None:
    """Sums of MINUS the gradient and of the hessian per position, each clipped as a whole number.

    In: `packed` [rows], a gradient and a hessian in one integer (engine/dtypes.py). Out: `out`, interleaved.
    Whatever the packed values are, a row adds at most `clip` and at most `largest` in absolute value: the sensitivity
    rests on this loop alone.
    """
    own, places = packed[start:stop], positions[start:stop]
    for i in range(len(own)):
        gradient = -(own[i] >> 32)
        hessian = own[i] & 0xFFFFFFFF
        place = np.uint64(2) * np.uint64(places[i])
        out[place] += min(max(gradient, -clip), clip)
        out[place + np.uint64(1)] += min(hessian, largest)


@kernel
def weigh(packed: Any, clip: int, largest: int, weights: Any, start: int, stop: int) -> None:
    """Clip as `add_gradients` will, then take each row's share. In/out: `packed`. In: `weights` [rows], 2^16 for 1.

    Products are rounded towards 0. What is clipped before is not clipped after: the order makes shares of rows exact.
    """
    own, shares = packed[start:stop], weights[start:stop]
    for i in range(len(own)):
        gradient = min(max(own[i] >> 32, -clip), clip)
        hessian = min(own[i] & 0xFFFFFFFF, largest)
        sized = (abs(gradient) * shares[i]) >> 16
        own[i] = ((sized if gradient >= 0 else -sized) << 32) + ((hessian * shares[i]) >> 16)


@kernel
def add_shares(
    codes: Any, labels: Any, n_classes: int, unit: int, weights: Any, start: int, stop: int, out: Any
) -> None:
    """As `add_ones`, each row's share of `unit`; `weights` [rows], 2^16 for 1 and never more."""
    for i in range(start, stop):
        share = (unit * min(weights[i], 1 << 16)) >> 16
        out[np.uint64(codes[i]) * np.uint64(n_classes) + np.uint64(labels[i])] += share


@kernel
def add_ones(codes: Any, labels: Any, n_classes: int, unit: int, start: int, stop: int, out: Any) -> None:
    """`unit` per row and (cell, class). In: `codes`, `labels` [rows]. Out: `out` [cells * classes]."""
    for i in range(start, stop):
        out[np.uint64(codes[i]) * np.uint64(n_classes) + np.uint64(labels[i])] += unit


@kernel
def shorten(vector: Any, longest: int) -> None:
    """Scale a vector of whole numbers towards 0 until the sum of its squares is at most longest^2, exactly.

    Entries are at most 2^16 to begin with, so nothing overflows. Each turn makes every entry that is not 0 smaller, so
    there is an end to it; one turn is usual, because entries are rounded towards 0.
    """
    limit = np.int64(longest) * np.int64(longest)
    squares = np.int64(0)
    for k in range(len(vector)):
        squares += np.int64(vector[k]) * np.int64(vector[k])
    while squares > limit:
        factor = (float(longest) / np.sqrt(float(squares))) * (1.0 - 2.0**-30)
        squares = np.int64(0)
        for k in range(len(vector)):
            vector[k] = np.int32(float(vector[k]) * factor)  # drops the fraction: towards 0
            squares += np.int64(vector[k]) * np.int64(vector[k])


@kernel
def take_share(vector: Any, weight: int) -> None:
    """A vector of whole numbers times a weight, 2^16 for 1 and never more, each rounded towards 0."""
    share = min(np.int64(weight), np.int64(1 << 16))
    for k in range(len(vector)):
        sized = (abs(np.int64(vector[k])) * share) >> 16
        vector[k] = sized if vector[k] >= 0 else -sized


@kernel
def add_class_gradients(
    positions: Any,
    scores: Any,
    bases: Any,
    labels: Any,
    unit: int,
    clip: int,
    largest: int,
    weights: Any,
    start: int,
    stop: int,
    out: Any,
) -> None:
    """Sums per position of a row's vector of MINUS gradients, [y = k] - p_k, and of hessians, p_k (1 - p_k).

    In: `scores` float32 [classes, rows], `bases` [classes], `labels` uint8 [rows], `weights` [rows], 2^16 for 1 and
    never more, or none at all. Out: `out` [positions * 2 classes].
    Each vector is shortened as whole numbers to a length of at most `clip` and of at most `largest`, whatever the
    scores are: the sensitivity rests on `shorten` alone.
    """
    n_classes = len(scores)
    shares = np.empty((n_classes, _BLOCK), np.float32)
    gradients = np.empty((n_classes, _BLOCK), np.int32)
    hessians = np.empty((n_classes, _BLOCK), np.int32)
    top = np.empty(_BLOCK, np.float32)
    total = np.empty(_BLOCK, np.float32)
    lengths = np.empty((2, _BLOCK), np.float64)  # squared; sums of fewer than 2^21 squares of 2^16 are exact
    one, half, scale = np.float32(1.0), np.float32(0.5), np.float32(unit)
    for block in range(start, stop, _BLOCK):
        size = min(_BLOCK, stop - block)
        for i in range(size):
            top[i] = scores[0, block + i] + bases[0]
        for k in range(1, n_classes):
            for i in range(size):
                top[i] = max(top[i], scores[k, block + i] + bases[k])
        total[:] = np.float32(0.0)
        for k in range(n_classes):
            for i in range(size):
                shares[k, i] = exponential(scores[k, block + i] + bases[k] - top[i])
                total[i] += shares[k, i]
        for i in range(size):
            total[i] = one / total[i]
        lengths[:] = 0.0
        for k in range(n_classes):
            for i in range(size):
                share = shares[k, i] * total[i]
                pull = (one if k == labels[block + i] else np.float32(0.0)) - share
                gradient = min(max(np.int32(np.floor(pull * scale + half)), np.int32(-unit)), np.int32(unit))
                hessian = min(max(np.int32(share * (one - share) * scale), np.int32(0)), np.int32(unit))
                gradients[k, i] = gradient
                hessians[k, i] = hessian
                lengths[0, i] += np.float64(gradient) * np.float64(gradient)
                lengths[1, i] += np.float64(hessian) * np.float64(hessian)
        for i in range(size):
            if lengths[0, i] > float(clip) * float(clip):
                shorten(gradients[:, i], clip)
            if lengths[1, i] > float(largest) * float(largest):
                shorten(hessians[:, i], largest)
            place = np.uint64(positions[block + i]) * np.uint64(2 * n_classes)
            if len(weights):
                take_share(gradients[:, i], weights[block + i])
                take_share(hessians[:, i], weights[block + i])
            for k in range(n_classes):
                out[place + np.uint64(k)] += gradients[k, i]
                out[place + np.uint64(n_classes + k)] += hessians[k, i]


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
