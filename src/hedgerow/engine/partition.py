"""Which rows are in which node: row numbers grouped by node, split in place level by level.

Two buffers take turns. A node's rows are a segment of one of them; splitting writes the left rows to the front and the
right rows to the back of the same segment of the other buffer:

    buffer A   | 4 0 6 1 5 2 3 |            segment of the parent
    go left?     1 0 1 1 0 0 1
    buffer B   | 4 6 1 3 | 2 5 0 |          left rows in order, right rows reversed (sums of integers do not care)

Children stay inside their parent's segment, so the segment of a node that became a leaf is never written again, in
whichever buffer it was: leaves need no copying.
"""

from __future__ import annotations

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Bytes, Ints, RowIds, Scores


@kernel
def translate(by_bin: Bytes, bin_of_code: Bytes, by_code: Bytes) -> None:
    """A decision per bin of a feature as a decision per code of its column (they differ for bundled features)."""
    for code in range(256):
        by_code[code] = by_bin[np.uint64(bin_of_code[code])]


@kernel
def partition_nodes(
    columns: Bytes,  # in  [columns, rows]
    column_of_feature: Ints,
    bin_of_code: Bytes,  # in  [features, 256]
    feature: Ints,  # in  [nodes] feature that decides; -1: the node is a leaf and stays
    goes_left: Bytes,  # in  [nodes, 256] by the feature's bin
    source: RowIds,  # in
    starts: Ints,  # in  [nodes] this thread's segments
    stops: Ints,
    target: RowIds,  # out
    child_starts: Ints,  # out [2 x splitting nodes] left and right child of each in turn
    child_stops: Ints,
) -> None:
    """Split the segments of one thread. Branch-free: a select picks the end to write to, and that end moves."""
    by_code = np.empty(256, np.uint8)
    child = 0
    for node in range(feature.shape[0]):
        if feature[node] < 0:
            continue
        column = columns[column_of_feature[feature[node]]]
        translate(goes_left[node], bin_of_code[feature[node]], by_code)
        start = starts[node]
        stop = stops[node]
        front = np.uint64(start)
        back = np.uint64(stop - 1)
        rows = source[start:stop]
        for k in range(rows.shape[0]):
            row = rows[k]
            left = np.uint64(by_code[np.uint64(column[np.uint64(row)])])
            target[front if left else back] = row
            front += left
            back += left - np.uint64(1)
        child_starts[child] = start
        child_stops[child] = np.int64(front)
        child_starts[child + 1] = np.int64(front)
        child_stops[child + 1] = stop
        child += 2


@kernel
def settle_leaves(
    columns: Bytes,
    column_of_feature: Ints,
    bin_of_code: Bytes,
    feature: Ints,  # in  [nodes] as for partition_nodes
    goes_left: Bytes,
    row_ids: RowIds,  # in  the buffer that holds the level's rows
    starts: Ints,  # in  [nodes] this thread's segments
    stops: Ints,
    last: bool,  # in  the splitting nodes were not partitioned: their children are leaves too
    values: Scores,  # in  leaf values in the order of nodes; left before right
    scores: Scores,  # in/out [rows]
) -> None:
    """Add a level's leaves to the scores. Rows of the last level look their side up instead of being moved first."""
    by_code = np.empty(256, np.uint8)
    sides = np.empty(2, np.float32)
    used = 0
    for node in range(feature.shape[0]):
        rows = row_ids[starts[node] : stops[node]]
        if feature[node] < 0:
            value = values[used]
            used += 1
            for k in range(rows.shape[0]):
                scores[np.uint64(rows[k])] += value
        elif last:
            sides[1] = values[used]
            sides[0] = values[used + 1]
            used += 2
            column = columns[column_of_feature[feature[node]]]
            translate(goes_left[node], bin_of_code[feature[node]], by_code)
            for k in range(rows.shape[0]):
                row = np.uint64(rows[k])
                scores[row] += sides[np.uint64(by_code[np.uint64(column[row])])]


@kernel
def sampled_rows(seed: np.uint64, tree: np.uint64, threshold: np.uint64, starts: Ints, stops: Ints, out: RowIds) -> int:
    """Rows of one thread that take part in a tree; returns how many.

    The choice hashes (seed, tree, row), so it does not depend on threads.
    """
    n_chosen = np.uint64(0)
    for chunk in range(starts.shape[0]):
        for row in range(starts[chunk], stops[chunk]):
            z = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + tree * np.uint64(0xD1B54A32D192ED03) + seed
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            out[n_chosen] = np.uint32(row)
            if z <= threshold:
                n_chosen += np.uint64(1)
    return int(n_chosen)
