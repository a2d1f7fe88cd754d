"""Rows: everything that happens to records, behind four verbs.

    bin          a table -> packed codes                         (once)
    gradients    scores and labels -> one packed integer a row   (start of a round of trees)
    histograms   sums per (node, column, code)                   (each level)
    descend      rows move to the children they belong to        (each level)

and, at the end of a tree, `finish_tree` adds the leaf values to the scores. Whoever sees the sums (the grower, a
coordinator, nobody) chooses the splits; rows only ever learn which way they go. The same verbs are offered by rows that
live elsewhere, so growth does not know where its rows are.

Each thread owns an interleaved set of row chunks for good and partitions only those, so no two threads ever touch the
same row, and their sums are merged by adding integers. Which of them are in which node: row numbers grouped by node,
split level by level. Two buffers take turns. A node's rows are a segment of one of them; splitting writes the left rows
to the front and the right rows to the back of the same segment of the other buffer:

    buffer A   | 4 0 6 1 5 2 3 |            segment of the parent
    go left?     1 0 1 1 0 0 1
    buffer B   | 4 6 1 3 | 2 5 0 |          left rows in order, right rows reversed (sums of integers do not care)

Children stay inside their parent's segment, so the segment of a node that became a leaf is never written again, in
whichever buffer it was: leaves need no copying.

Kernels of a protocol's own go over the rows of the active nodes like these: `segments` says where each thread's rows
are, `decisions` what its kernels need to look a split up, and `run` calls a kernel for every thread's share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine import losses
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import ROW_ID, SCORE, Bools, Bytes, Floats, Ints, RowIds, Scores
from hedgerow.engine.histogram import (
    Layout,
    PackedColumns,
    merge_histograms,
    node_histograms,
    pack,
    root_histogram,
)
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.scratch import Room
from hedgerow.engine.sparse import SparseCodes, SparseColumns, pack_sparse, sparse_histograms, written_out
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team

ROW_STEP = 0x9E3779B97F4A7C15  # what the number of a row is hashed with, for samples
CHUNK = 8192  # rows handed to threads in turn, so that sorted data still gives every thread its share of each node
CODES_WORTH_THREADS = 1_500_000  # rows x columns below which one thread trains faster than two
UPDATES_WORTH_A_THREAD = 200_000  # updates of about half a nanosecond below which waking a thread does not pay


@dataclass(frozen=True)
class _Part:
    """One thread's rows: chunk ranges of the table and the segment of the id buffers that holds them."""

    starts: Ints
    stops: Ints
    offset: int
    n_rows: int
    numbers: Ints  # of each range's first row, in the whole table


class Rows:
    """A block of binned records with labels, on this machine."""

    def __init__(
        self,
        packed: PackedColumns | SparseColumns,
        labels: Floats,
        weight: Floats | None,
        loss: Loss,
        base_scores: Floats,
        quantiser: Quantiser,
        *,
        n_threads: int = 1,
        scores: Scores | None = None,
        pieces: Ints | None = None,
    ) -> None:
        """`pieces` [pieces, 2] if these are not all rows of a table: how many neighbours, and the first one's number.

        Samples are drawn by the number of a row in the whole table, wherever the row is.
        """
        self.packed = packed
        self.layout: Layout = packed.layout
        self.loss = loss
        self.quantiser = quantiser
        self.n_rows = packed.n_rows
        if weight is None and quantiser.weight_unit != 1.0:  # others' rows have weights, and these count 1 each
            weight = np.ones(self.n_rows)
        self._weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
        self._bases = np.asarray(base_scores, np.float64)
        offset = self._bases[0] if loss.takes_base_off else 0.0
        self._labels = (np.asarray(labels, np.float64) - offset).astype(SCORE)
        self.scores = np.zeros((loss.n_outputs, self.n_rows), SCORE) if scores is None else scores
        self.gradients_packed = np.empty((loss.n_outputs, self.n_rows), np.int64)
        worth_it = self.n_rows * self.layout.n_columns >= CODES_WORTH_THREADS
        pieces = np.array([[self.n_rows, 0]]) if pieces is None else pieces
        self._parts = _share_out(pieces, n_threads if worth_it else 1)
        self._team = Team(len(self._parts))
        self.n_parts = len(self._parts)
        self._identity = np.empty(self.n_rows, ROW_ID)
        for part in self._parts:
            ranges = [np.arange(a, b, dtype=ROW_ID) for a, b in zip(part.starts, part.stops, strict=True)]
            self._identity[part.offset : part.offset + part.n_rows] = np.concatenate(ranges) if ranges else 0
        self._buffers = (np.empty(self.n_rows, ROW_ID), np.empty(self.n_rows, ROW_ID))
        self._output = 0
        self._sampled = False
        self._partial_cells = np.empty((self.n_parts - 1, 0, self.layout.n_cells), np.int64)

    @property
    def columns(self) -> Bytes:
        """Codes of all columns, [columns, rows]; those of sparse rows are written out for it."""
        return written_out(self.packed.codes if isinstance(self.packed, SparseColumns) else self.packed.columns)

    @classmethod
    def bin(cls, mapper: BinMapper, table: Table, labels: Floats, weight: Floats | None, **how: Any) -> Rows:
        """The rows of a table, coded by the edges and levels of `mapper`; `how` as for the constructor."""
        codes = mapper.transform(table, n_threads=how.get("n_threads", 1))
        return cls.from_codes(mapper, codes, labels, weight, **how)

    @classmethod
    def from_codes(
        cls,
        mapper: BinMapper,
        codes: Bytes | SparseCodes,
        labels: Floats,
        weight: Floats | None,
        *,
        room: Room = np.empty,
        **how: Any,
    ) -> Rows:
        """Rows that `mapper` has coded already: uint8 [features, rows]; `room` is where they are packed."""
        if isinstance(codes, SparseCodes):
            return cls(pack_sparse(codes, *bin_counts(mapper.features)), labels, weight, **how)
        packed = pack(codes, *bin_counts(mapper.features), n_threads=how.get("n_threads", 1), room=room)
        return cls(packed, labels, weight, **how)

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradients(self) -> None:
        """Quantise the gradients of every output from the present scores."""
        cuts = [self.n_rows * part // self.n_parts for part in range(self.n_parts + 1)]
        self.run(self._gradients_of, list(itertools.pairwise(cuts)), updates=self.n_rows)

    def _gradients_of(self, start: int, stop: int) -> None:
        outputs, labels = self.gradients_packed, self._labels[start:stop]
        packed, scores = outputs[0, start:stop], self.scores[0, start:stop]
        g_scale, h_scale = self.quantiser.unit_scales
        base, bound = np.float32(self._bases[0]), np.float32(self.loss.gradient_bound)
        if self.loss.name == "logistic":
            losses.logistic_gradients(scores, labels, base, g_scale, h_scale, packed)
        elif self.loss.name == "squared":
            losses.squared_gradients(scores, labels, bound, g_scale, h_scale, packed)
        elif self.loss.refits_leaves:
            too_low, too_high = map(np.float32, self.loss.slopes)
            losses.pinball_gradients(scores, labels, too_low, too_high, g_scale, h_scale, packed)
        elif self.loss.name == "poisson":
            losses.poisson_gradients(scores, labels, base, bound, g_scale, h_scale, packed)
        else:
            bases = self._bases.astype(SCORE)
            losses.softmax_gradients(self.scores, self._labels, bases, g_scale, h_scale, outputs, start, stop)
        if self._weight is not None:
            for output in outputs:
                losses.apply_weights(self._weight[start:stop], self.quantiser.weight_unit, output[start:stop])

    # --- one tree ----------------------------------------------------------------------------------------------------

    def start_tree(
        self, output: int = 0, *, sample: tuple[int, int, float] | None = None, rows: RowIds | None = None
    ) -> None:
        """All rows (or those that `sample` = (seed, tree, share) picks, or just `rows`) stand at the root.

        `rows` are different row numbers in any order; the caller does not change them until the tree is finished, and
        scores nobody but himself: like a sampled tree, such a tree is not added to the scores.
        """
        self._output = output
        self.values: Ints = self.gradients_packed[output]  # what this tree's histograms sum, by row
        self._current: RowIds = self._identity
        self._starts = np.array([[part.offset] for part in self._parts], np.int64)
        self._stops = np.array([[part.offset + part.n_rows] for part in self._parts], np.int64)
        self.node_counts: Ints = np.array([self.n_rows], np.int64)  # rows of each active node
        self._settled: list[_Settled] = []
        self._sampled = sample is not None or rows is not None
        if sample is not None:
            self._start_with_sample(*sample)
        if rows is not None:
            self._start_with_rows(rows)

    def _start_with_sample(self, seed: int, tree: int, share: float) -> None:
        threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
        into = self._buffers[1]
        which = (np.uint64(seed), np.uint64(tree), threshold)
        parts = [
            (part.starts, part.stops, part.numbers, into[part.offset : part.offset + part.n_rows])
            for part in self._parts
        ]
        chosen = self._team.run(sampled_rows, [(*which, *part) for part in parts])
        self._stops = self._starts + np.array(chosen, np.int64)[:, None]
        self.node_counts = _over_threads(self._stops - self._starts)
        self._current = into

    def _start_with_rows(self, rows: RowIds) -> None:
        """Shares of equal size, whichever thread's chunks the rows are from; one share where there is little to do."""
        n_shares = self.n_parts if len(rows) * self.layout.n_columns >= CODES_WORTH_THREADS else 1
        cuts = np.array([len(rows) * share // n_shares for share in range(n_shares + 1)], np.int64)
        self._starts, self._stops = cuts[:-1, None], cuts[1:, None]
        self.node_counts = np.array([len(rows)], np.int64)
        self._current = rows

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """Sum the gradients (or count the rows) of the active `nodes`: node nodes[i] into cells[slots[i]]."""
        layout = self.layout
        shape = (layout.first_cell, layout.n_codes, layout.columns_in_word)
        values, packed = self._ones if counts else self.values, self.packed
        at_root = self._current is self._identity
        summing: Callable[..., object] = root_histogram if at_root else node_histograms
        n_shares = len(self._starts)  # threads that hold rows of this tree
        own, partial = np.arange(len(nodes)), self._partial(len(nodes) if n_shares > 1 else 0)
        tasks: list[tuple[Any, ...]] = []
        for t in range(n_shares):
            where, out = (slots, cells) if t == 0 else (own, partial[t - 1])
            if isinstance(packed, SparseColumns):
                summing, entries = sparse_histograms, (packed.row_starts, packed.cells, packed.usual_cell)
                segment = (self._current, self._starts[t], self._stops[t])
                tasks.append((*entries, values, *segment, nodes, where, out, *shape[:2]))
            elif at_root:
                part = self._parts[t]
                tasks.append((packed.words, values, part.starts, part.stops, out[where[0]], *shape))
            else:
                segments = (self._current, self._starts[t : t + 1], self._stops[t : t + 1])
                tasks.append((packed.records, values, *segments, nodes, where, out, *shape))
        if n_shares == 1:  # nothing to merge; a federated level is too short for plans that one thread does not need
            summing(*tasks[0])
            return
        updates = layout.n_columns * (self.n_rows if at_root else int(self.node_counts[nodes].sum()))
        self.run(summing, tasks, updates=updates)
        shares = [slice(len(nodes) * t // n_shares, len(nodes) * (t + 1) // n_shares) for t in range(n_shares)]
        merges = [(cells, slots[h], partial[:, h], layout.first_cell, layout.n_codes) for h in shares]
        self.run(merge_histograms, merges, updates=len(nodes) * layout.n_cells)

    def _partial(self, n_nodes: int) -> Ints:
        """Histograms for what the second and further threads sum, to be merged."""
        if self._partial_cells.shape[1] < n_nodes:
            self._partial_cells = np.empty((self.n_parts - 1, n_nodes, self.layout.n_cells), np.int64)
        return self._partial_cells[:, :n_nodes]

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Move to the next level: node k splits on feature[k] (-1: it becomes a leaf), left where goes_left[k, bin].

        The children of the splitting nodes, left then right, in order, are the next active nodes. With `last` the rows
        stay where they are until `finish_tree` gives the leaves their values.
        """
        n_splitting = int(np.count_nonzero(feature >= 0))
        if last or n_splitting < len(feature):
            n_leaves = len(feature) - n_splitting + (2 * n_splitting if last else 0)
            self._settled.append(_Settled(self._current, self._starts, self._stops, feature, goes_left, last, n_leaves))
        child_starts = np.empty((len(self._starts), 0 if last else 2 * n_splitting), np.int64)
        child_stops = np.empty_like(child_starts)
        if not last and n_splitting:
            target = self._buffers[0] if self._current is not self._buffers[0] else self._buffers[1]
            decisions = self.decisions(feature, goes_left)
            tasks = [
                (*decisions, *segment, target, child_starts[t], child_stops[t])
                for t, segment in enumerate(self.segments())
            ]
            self.run(partition_nodes, tasks, updates=int((self._stops - self._starts).sum()))
            self._current = target
        self._starts, self._stops = child_starts, child_stops
        self.node_counts = _over_threads(child_stops - child_starts)

    def finish_tree(self, leaf_values: Scores) -> None:
        """Add the tree to the scores: one value per leaf, level by level, in the order of nodes, left before right."""
        used = 0
        for level in self._settled:
            values = leaf_values[used : used + level.n_leaves]
            used += level.n_leaves
            if not self._sampled:  # else the caller scores everybody, sampled or not, with the finished tree
                self._add_values(level, values, self.scores[self._output])

    def leaf_quantiles(self, n_leaves: int, counted: Bools | None = None) -> Floats:
        """For each leaf of the tree, in the order of `finish_tree`, the loss's quantile of what its rows still lack.

        Of a sample's rows, if the tree is grown on one, and of those that are `counted`. The order of rows and the
        number of threads do not matter.
        """
        numbers = np.arange(1, n_leaves + 1)
        leaf = np.zeros(self.n_rows, SCORE)  # whole numbers up to 2**24 are exact; 0: not in the sample
        used = 0
        for level in self._settled:
            self._add_values(level, numbers[used : used + level.n_leaves].astype(SCORE), leaf)
            used += level.n_leaves
        if counted is not None:
            leaf[~counted] = 0
        narrow = np.min_scalar_type(n_leaves)  # numpy sorts small numbers by counting
        order = np.argsort(leaf.astype(narrow), kind="stable")
        lacking, weight = (self._labels - self.scores[self._output])[order], losses.weights_in_steps(self._weight)
        weight = None if weight is None else weight[order]
        cuts = np.searchsorted(leaf[order], np.append(numbers, n_leaves + 1))
        spans = [slice(*limits) for limits in itertools.pairwise(cuts)]
        tasks = [(lacking[s], None if weight is None else weight[s], self.loss.quantile) for s in spans]
        return np.array(self._team.run(losses.weighted_quantile, tasks))

    def regroup(self, *, in_place: bool = False) -> None:
        """Lay the rows out in memory by the leaves of the tree just finished.

        Trees of one boosting run split alike, so rows of a node then mostly lie together and gathers hit the cache: 5
        to 20% less time. Row numbers change, nothing else does, because sums of integers ignore the order of rows. Not
        for sampled trees, whose draw goes by row number. `in_place`: the codes that these rows were made from are not
        needed any more, and may be written over. Sparse rows stay where they are.
        """
        if isinstance(self.packed, SparseColumns):
            return
        orders = [np.concatenate([level.segment(t) for level in self._settled]) for t in range(self.n_parts)]
        order = np.concatenate(orders)
        self.packed = self.packed.reordered(order, n_threads=self.n_parts, in_place=in_place)
        self._labels = self._labels[order]
        self._weight = None if self._weight is None else self._weight[order]
        self.scores = np.ascontiguousarray(self.scores[:, order])
        self._identity = np.arange(self.n_rows, dtype=ROW_ID)
        self._parts = [
            _Part(
                np.array([part.offset]), np.array([part.offset + part.n_rows]), part.offset, part.n_rows, part.numbers
            )
            for part in self._parts
        ]

    def _add_values(self, level: _Settled, values: Scores, scores: Scores) -> None:
        """To each row's score the value of its leaf, if that is on this level."""
        decisions = self.decisions(level.feature, level.goes_left)
        rest = (level.last, values, scores)
        tasks = [(*decisions, level.row_ids, level.starts[t], level.stops[t], *rest) for t in range(len(level.starts))]
        self.run(settle_leaves, tasks, updates=int((level.stops - level.starts).sum()))

    @cached_property
    def _ones(self) -> Ints:
        """What is summed to count rows."""
        return np.ones(self.n_rows, np.int64)

    # --- for kernels of a protocol's own -----------------------------------------------------------------------------

    def segments(self) -> list[tuple[RowIds, Ints, Ints]]:
        """Per thread with rows of this tree: row numbers, and where those of each active node start and stop."""
        return [(self._current, starts, stops) for starts, stops in zip(self._starts, self._stops, strict=True)]

    def of_node(self, node: int) -> RowIds:
        """The rows of an active node."""
        pieces = [row_ids[starts[node] : stops[node]] for row_ids, starts, stops in self.segments()]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def decisions(self, feature: Ints, goes_left: Bytes) -> tuple[Any, ...]:
        """What a kernel needs to find the side of a row: columns, what their codes mean, and the nodes' splits."""
        if isinstance(self.packed, SparseColumns):
            return (*self.packed.columns_of(feature), self.layout.bin_of_code, feature, goes_left)
        return (self.packed.columns, self.layout.column_of_feature, self.layout.bin_of_code, feature, goes_left)

    def run(self, kernel: Callable[..., object], tasks: Sequence[tuple[Any, ...]], *, updates: int) -> None:
        """Every thread's task: side by side when there is enough to do, else one after the other."""
        if updates >= UPDATES_WORTH_A_THREAD and len(tasks) > 1:
            self._team.run(kernel, tasks)
            return
        for task in tasks:
            kernel(*task)


@dataclass(frozen=True)
class _Settled:
    """A level with leaves: their rows are where they were when the level was current."""

    row_ids: RowIds
    starts: Ints  # [threads, nodes]
    stops: Ints
    feature: Ints
    goes_left: Bytes
    last: bool
    n_leaves: int

    def segment(self, part: int) -> RowIds:
        """The rows of one thread that ended here."""
        ended = np.flatnonzero((self.feature < 0) | self.last)
        limits = zip(self.starts[part, ended], self.stops[part, ended], strict=True)
        return np.concatenate([self.row_ids[a:b] for a, b in limits] or [self.row_ids[:0]])


def _over_threads(counts: Ints) -> Ints:
    total: Ints = counts[0] if len(counts) == 1 else counts.sum(axis=0)
    return total


def _share_out(pieces: Ints, n_threads: int) -> list[_Part]:
    """Chunks dealt to threads in turn."""
    starts, stops, numbers = np.concatenate([_chunks(*piece) for piece in _with_offsets(pieces)], axis=1)
    parts: list[_Part] = []
    offset = 0
    for t in range(n_threads):
        mine = slice(t, None, n_threads)
        size = int((stops[mine] - starts[mine]).sum())
        parts.append(_Part(starts[mine].copy(), stops[mine].copy(), offset, size, numbers[mine].copy()))
        offset += size
    return [part for part in parts if part.n_rows] or parts[:1]


def _with_offsets(pieces: Ints) -> list[tuple[int, int, int]]:
    """Of each piece: where it starts here, its rows, the number of the first."""
    offsets = np.cumsum(pieces[:, 0]) - pieces[:, 0]
    return [(int(offset), int(n), int(number)) for offset, (n, number) in zip(offsets, pieces, strict=True)]


def _chunks(offset: int, n_rows: int, number: int) -> Ints:
    """Starts and stops of the chunks of neighbouring rows, and the number of each one's first row: [3, chunks]."""
    edges = np.arange(0, n_rows + CHUNK, CHUNK, dtype=np.int64)
    edges[-1] = n_rows
    return np.stack([edges[:-1] + offset, edges[1:] + offset, edges[:-1] + number])


# --- kernels ---------------------------------------------------------------------------------------------------------


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
def sampled_rows(
    seed: np.uint64, tree: np.uint64, threshold: np.uint64, starts: Ints, stops: Ints, numbers: Ints, out: RowIds
) -> int:
    """Rows of one thread that take part in a tree; returns how many.

    The choice hashes (seed, tree, number of the row), so it depends neither on threads nor on who holds the row.
    """
    n_chosen = np.uint64(0)
    for chunk in range(starts.shape[0]):
        ahead = numbers[chunk] - starts[chunk]
        for row in range(starts[chunk], stops[chunk]):
            z = np.uint64(row + ahead) * np.uint64(ROW_STEP) + tree * np.uint64(0xD1B54A32D192ED03) + seed
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            out[n_chosen] = np.uint32(row)
            if z <= threshold:
                n_chosen += np.uint64(1)
    return int(n_chosen)
