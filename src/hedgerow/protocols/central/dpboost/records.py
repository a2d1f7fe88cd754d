"""The private side: packed rows with labels, their gradients in whole numbers, and their scores, made when needed.

A record's score follows from the record and from released trees only. It is brought up to date when the record's turn
comes: one that serves the tenth tree of an ensemble is never scored by the forty after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.boosting import train
from hedgerow.engine.dtypes import ROW_ID, SCORE, Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.histogram import Layout, PackedColumns, pack
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser, logistic_gradients, squared_gradients
from hedgerow.engine.rows import Rows
from hedgerow.engine.sparse import SparseCodes, SparseColumns, pack_sparse
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput
from hedgerow.protocols.bad_rows import OnBadRows, fit_rows, outside_bounds
from hedgerow.protocols.central.bins import cell_counts
from hedgerow.protocols.central.dpboost.growth import Candidates
from hedgerow.protocols.central.dpboost.settings import COUNT_BITS, GRADIENT_BITS, MAX_ROWS, DPBoostSettings, LossName
from hedgerow.schema import NumericColumn, Schema

_BLOCK = 256
_ROWS_WORTH_A_THREAD = 1 << 14


class Labelled(NamedTuple):
    """A table that was read, and its labels as the loss wants them."""

    table: Table
    labels: Floats
    """In [-1, 1] for the squared loss, 0 or 1 for the logistic one."""
    counts: Bools
    """Whether a row counts. One that does not keeps its place, so that it moves no other, and is in no sum."""
    n_misfits: int
    """Rows with a value or a label that the schema does not allow. Not private."""

    def cell_counts(self, columns: Mapping[int, NumericColumn]) -> Ints:
        """Rows in each cell of these columns. Not private."""
        return cell_counts(self.table, columns, self.counts)

    def coded(self, bins: BinMapper, n_threads: int) -> CodedRecords:
        """The rows by their bins."""
        codes = bins.sparse_codes(self.table) if self.table.is_sparse else bins.transform(self.table, n_threads)
        return CodedRecords(codes, self.labels, self.counts, self.n_misfits)

    def records(self, bins: BinMapper, candidates: Candidates, settings: DPBoostSettings, n_threads: int) -> Records:
        """The rows in the form that trees are grown on."""
        return Records(bins, self.coded(bins, n_threads), candidates, settings, n_threads)

    def train(self, params: BoostingParams, bins: BinMapper) -> Ensemble:
        """The engine's model of the rows that count. Not private."""
        codes, labels = self.coded(bins, params.n_threads).that_count()
        return train(params, bins, codes, labels).ensemble


class CodedRecords(NamedTuple):
    """The same without the table: what is kept of it once bins are known."""

    codes: Bytes | SparseCodes  # [features, rows]
    labels: Floats
    counts: Bools
    n_misfits: int

    def that_count(self) -> tuple[Bytes | SparseCodes, Floats]:
        """Codes and labels of the rows that count."""
        if isinstance(self.codes, SparseCodes):
            return self.codes.taken(np.flatnonzero(self.counts)), self.labels[self.counts]
        return self.codes[:, self.counts], self.labels[self.counts]


def read_labelled(X: Any, y: Any, schema: Schema, loss: LossName, on_bad_rows: OnBadRows = "map") -> Labelled:
    """Read a table and its labels as the schema describes them."""
    given = fit_rows(X, y, schema, on_bad_rows=on_bad_rows)
    check_size(given.table.n_rows)
    if schema.label_bounds is not None:
        low, high = schema.label_bounds
        labels = 2.0 * ((given.labels - low) / (high - low) - 0.5)
    else:
        labels = given.labels if loss == "logistic" else 2.0 * given.labels - 1.0
    misfits = given.misfits | outside_bounds(given.table, schema)
    return Labelled(given.table, labels, given.counts, int(np.count_nonzero(misfits)))


def check_size(n_rows: int) -> None:
    """Raise for more rows than can be summed; that there are no more is taken to be public (plan.py)."""
    if n_rows > MAX_ROWS:
        raise InvalidInput(f"X: at most {MAX_ROWS:,} rows can be summed exactly, and there are more")


class Records(Rows):
    """Rows that a tree can be grown on, any subset of them at a time."""

    def __init__(
        self,
        bins: BinMapper,
        coded: CodedRecords,
        candidates: Candidates,
        settings: DPBoostSettings,
        n_threads: int,
        *,
        bundle: bool = True,
    ) -> None:
        """`bundle`: columns of few levels may share bytes; not where a layout is common to several machines."""
        loss, unused = Loss(settings.loss, label_range=(-1.0, 1.0)), Quantiser(1.0, 1.0)
        packed: PackedColumns | SparseColumns
        if isinstance(coded.codes, SparseCodes):
            packed = pack_sparse(coded.codes, *bin_counts(bins.features))
        else:
            packed = pack(coded.codes, *bin_counts(bins.features), bundle=bundle, n_threads=n_threads)
        super().__init__(packed, coded.labels, None, loss, np.zeros(1), unused, n_threads=n_threads)
        self.n_misfits = coded.n_misfits
        """Rows with a value or a label that the schema does not allow. Not private."""
        self._targets: Scores = coded.labels.astype(SCORE)
        self._counts = None if coded.counts.all() else coded.counts
        self._seen = np.zeros(self.n_rows, np.int32)  # trees that are in a row's score already
        self._candidates = candidates
        self._walkable = Walkable.room_for(settings.n_trees, 2 ** (settings.max_depth + 1) - 1)
        self._n_trees = 0
        self._depth = settings.max_depth
        self._places = _byte_places(self.layout)
        self._walkers = Team(n_threads)

    def start_subset(self, ids: RowIds, bound: int, *, filtering: bool) -> None:
        """Bring rows up to date, compute their gradients, and let those that may take part stand at the root.

        `bound` is g* in steps: beyond it a record is left out, or without `filtering` its gradient is clipped.
        """
        ids = self._scored(ids if self._counts is None else ids[self._counts[ids]])
        packed = np.empty(len(ids), np.int64)
        scores, labels = self.scores[0, ids], self._targets[ids]
        unit = np.float32(2.0**GRADIENT_BITS)
        if self.loss.name == "squared":
            squared_gradients(scores, labels, np.float32(2.0), unit, np.float32(1.0), packed)
        else:
            logistic_gradients(scores, labels, np.float32(0.0), unit, np.float32(1.0), packed)
        kept = keep_bounded(ids, packed, bound, filtering, self.gradients_packed[0])
        self.start_tree(rows=ids[:kept])

    def add_released(self, chosen: Ints, missing_left: Bools, child: Ints, values: Scores) -> None:
        """A released tree, as `growth.Asked` has it, and the value of each node that is a leaf.

        Sparse rows are all scored at once, since the columns that the tree asks for are then written out once.
        """
        records = None
        if isinstance(self.packed, SparseColumns):
            columns, self._places = self.packed.columns_of(self._candidates.feature[chosen[chosen >= 0]])
            records = np.ascontiguousarray(columns.T)
        asked = (self._candidates, self.layout, self._places, chosen, missing_left, child)
        write_walkable(*asked, values, self._n_trees, self._walkable)
        self._n_trees += 1
        if records is not None:
            self._walk(records, np.arange(self.n_rows, dtype=ROW_ID))

    def _scored(self, ids: RowIds) -> RowIds:
        """The same rows, scored by all trees so far, those that had seen fewest first (so that blocks are alike)."""
        seen = self._seen[ids]
        if len(seen) and int(seen.min()) < int(seen.max()):
            ids = ids[np.argsort(seen.astype(np.int16) if self._n_trees < 2**15 else seen, kind="stable")]
        else:
            ids = ids.copy()
        if isinstance(self.packed, PackedColumns):
            self._walk(self.packed.records.view(np.uint8), ids)
        return ids

    def _walk(self, records: Bytes, ids: RowIds) -> None:
        """Score rows by all trees that they have not seen; `records` [rows, bytes] hold the columns asked for."""
        n_tasks = max(1, min(self._walkers.n_threads, len(ids) // _ROWS_WORTH_A_THREAD))
        cuts = [len(ids) * task // n_tasks for task in range(n_tasks + 1)]
        common = (self.layout.bin_of_code, self._walkable, self._n_trees, self._depth, self._seen, self.scores[0])
        self._walkers.run(walk, [(records, ids[cuts[t] : cuts[t + 1]], *common) for t in range(n_tasks)])


def _byte_places(layout: Layout) -> Ints:
    """Where each column's byte is in a row's record: words of eight bytes, the first column lowest."""
    places = [8 * word + k for word, columns in enumerate(layout.columns_in_word.tolist()) for k in range(columns)]
    return np.array(places, np.int64)


@kernel
def keep_bounded(ids: RowIds, packed: Ints, bound: int, filtering: bool, values: Ints) -> int:
    """Write (q, 1) of each record that takes part to `values`, and move its number to the front of `ids`.

    In: `packed`, the engine's gradient in the high 32 bits. The sensitivity rests on this loop alone: whatever goes
    out, |q| <= bound. Returns how many take part.
    """
    kept = 0
    for k in range(ids.shape[0]):
        q = packed[k] >> np.int64(32)
        if q > bound or q < -bound:
            if filtering:
                continue
            q = bound if q > 0 else -bound
        row = ids[k]
        values[np.uint64(row)] = (np.int64(q) << np.int64(COUNT_BITS)) + np.int64(1)
        ids[kept] = row
        kept += 1
    return kept


# --- scores ----------------------------------------------------------------------------------------------------------


class Walkable(NamedTuple):
    """Released trees in a form that rows walk down fast: [trees, nodes] each.

    A key holds, from its lowest bit, the place of the column's byte in a record (20 bits), the feature (20), and three
    codes of 8 bits: low, high - low, and another. A code goes left if it is between low and high, or if it is the
    other. A leaf lets every code "left", to itself.
    """

    key: Words
    child: Int32s  # left; the right one comes next
    value: Scores

    @classmethod
    def room_for(cls, n_trees: int, n_nodes: int) -> Walkable:
        """Arrays that `write_walkable` fills, tree by tree."""
        shape = (n_trees, n_nodes)
        return cls(np.zeros(shape, np.uint64), np.zeros(shape, np.int32), np.zeros(shape, SCORE))


@kernel
def write_walkable(
    candidates: Candidates,
    layout: Layout,
    places: Ints,
    chosen: Ints,
    missing_left: Bools,
    child: Ints,
    values: Scores,
    tree: int,
    walkable: Walkable,
) -> None:
    """One tree, nodes breadth-first. Out: row `tree` of `walkable`."""
    key, child_of, value = walkable
    for node in range(chosen.shape[0]):
        candidate = chosen[node]
        value[tree, node] = values[node]
        if candidate < 0:
            key[tree, node] = np.uint64(255) << np.uint64(48)
            child_of[tree, node] = node
            continue
        feature = candidates.feature[candidate]
        high = candidates.cut[candidate]
        low = high if layout.is_categorical[feature] else 0
        other = layout.n_value_bins[feature] if missing_left[node] else low
        key[tree, node] = (
            np.uint64(places[layout.column_of_feature[feature]])
            | np.uint64(feature) << np.uint64(20)
            | np.uint64(low) << np.uint64(40)
            | np.uint64(high - low) << np.uint64(48)
            | np.uint64(other) << np.uint64(56)
        )
        child_of[tree, node] = child[node]


@kernel
def walk(
    records: Bytes,  # in  [rows, bytes]
    ids: RowIds,  # in  rows to score
    bin_of_code: Bytes,  # in  [features, 256]
    walkable: Walkable,
    n_trees: int,
    depth: int,
    seen: Int32s,  # in/out [rows] trees that are in the score
    scores: Scores,  # in/out [rows]
) -> None:
    """Add the values of trees seen..n_trees, in order, block by block: steps of different rows overlap."""
    keys, children, values = walkable
    n_bytes = np.uint64(records.shape[1])
    bins = bin_of_code.reshape(-1)
    block = np.empty(_BLOCK * records.shape[1], np.uint8)
    node = np.empty(_BLOCK, np.int32)
    total = np.empty(_BLOCK, np.float32)
    place_bits, code_bits = np.uint64(0xFFFFF), np.uint64(0xFF)
    for start in range(0, ids.shape[0], _BLOCK):
        size = min(_BLOCK, ids.shape[0] - start)
        first = n_trees
        for i in range(size):
            row = ids[start + i]
            first = min(first, seen[row])
            total[i] = scores[row]
            block[np.uint64(i) * n_bytes : np.uint64(i + 1) * n_bytes] = records[row]
        for tree in range(first, n_trees):
            key, child = keys[tree], children[tree]
            for i in range(size):
                node[i] = 0
            for _ in range(depth):
                for i in range(size):
                    at = np.uint64(node[i])
                    word = key[at]
                    byte = np.uint64(block[np.uint64(i) * n_bytes + (word & place_bits)])
                    feature = (word >> np.uint64(20)) & place_bits
                    code = np.uint64(bins[(feature << np.uint64(8)) + byte])
                    from_low = (code - (word >> np.uint64(40))) & code_bits
                    left = (from_low <= ((word >> np.uint64(48)) & code_bits)) | (code == (word >> np.uint64(56)))
                    node[i] = child[at] + np.int32(1) - np.int32(left)
            for i in range(size):
                if tree >= seen[ids[start + i]]:
                    total[i] += values[tree, node[i]]
        for i in range(size):
            row = ids[start + i]
            scores[row] = total[i]
            seen[row] = n_trees
