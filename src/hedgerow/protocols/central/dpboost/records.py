"""The private side: packed rows with labels, their gradients in whole numbers, and their scores, made when needed.

A record's score follows from the record and from released trees only. It is brought up to date when the record's turn
comes: one that serves the tenth tree of an ensemble is never scored by the forty after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.boosting import train
from hedgerow.engine.dtypes import ROW_ID, SCORE, Bools, Bytes, Floats, Int32s, Ints, RowIds, Scores, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.histogram import Layout, PackedColumns, pack
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser, logistic_gradients, squared_gradients
from hedgerow.engine.rows import Rows
from hedgerow.engine.sparse import SparseCodes, SparseColumns, pack_sparse, written_out
from hedgerow.engine.table import Table
from hedgerow.engine.threads import Team
from hedgerow.errors import InvalidInput
from hedgerow.protocols.bad_rows import OnBadRows, fit_rows, outside_bounds
from hedgerow.protocols.central.bins import cell_counts
from hedgerow.protocols.central.dpboost.growth import Candidates
from hedgerow.protocols.central.dpboost.plan import LOOK_UNIT
from hedgerow.protocols.central.dpboost.settings import (
    MAX_ROWS,
    UNWEIGHTED,
    WEIGHT_BITS,
    WEIGHTED,
    DPBoostSettings,
    LossName,
    Scale,
)
from hedgerow.protocols.central.weighing import Weighing
from hedgerow.schema import NumericColumn, Schema

_BLOCK = 256
_FULL_WEIGHT = np.ones(1, np.int64)
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
    weights: Ints | None = None
    """In units of 2^-WEIGHT_BITS, from 0 to 1; a row of weight 0 does not count."""

    def cell_counts(self, columns: Mapping[int, NumericColumn]) -> Ints:
        """Rows in each cell of these columns. Not private."""
        return cell_counts(self.table, columns, self.counts)

    def coded(self, bins: BinMapper, n_threads: int) -> CodedRecords:
        """The rows by their bins."""
        codes = bins.sparse_codes(self.table) if self.table.is_sparse else bins.transform(self.table, n_threads)
        return CodedRecords(codes, self.labels, self.counts, self.n_misfits, self.weights)

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
    weights: Ints | None = None

    def that_count(self) -> tuple[Bytes | SparseCodes, Floats]:
        """Codes and labels of the rows that count."""
        if isinstance(self.codes, SparseCodes):
            return self.codes.taken(np.flatnonzero(self.counts)), self.labels[self.counts]
        return self.codes[:, self.counts], self.labels[self.counts]


def read_labelled(
    X: Any,
    y: Any,
    schema: Schema,
    loss: LossName,
    on_bad_rows: OnBadRows = "map",
    weighing: Weighing | None = None,
    sample_weight: Any = None,
) -> Labelled:
    """Read a table and its labels as the schema describes them; with `weighing`, also how much each row counts."""
    given = fit_rows(X, y, schema, on_bad_rows=on_bad_rows)
    check_size(given.table.n_rows, UNWEIGHTED if weighing is None else WEIGHTED)
    counts, misfits, weights = given.counts, given.misfits, None
    if weighing is not None:
        shares, odd = weighing.of_rows(given, sample_weight, on_bad_rows=on_bad_rows)
        weights = whole_weights(shares)
        counts, misfits = counts & (weights > 0), misfits | odd
    if schema.label_bounds is not None:
        low, high = schema.label_bounds
        labels = 2.0 * ((given.labels - low) / (high - low) - 0.5)
    else:
        labels = given.labels if loss == "logistic" or len(schema.classes or ()) > 2 else 2.0 * given.labels - 1.0
    misfits = misfits | outside_bounds(given.table, schema)
    return Labelled(given.table, labels, counts, int(np.count_nonzero(misfits)), weights)


def whole_weights(shares: Floats) -> Ints:
    """Weights from 0 to 1 in units of 2^-WEIGHT_BITS, to the nearest; what is above 0 is 1 unit at least."""
    units: Ints = np.rint(shares * 2**WEIGHT_BITS).astype(np.int64)
    return np.where(shares > 0.0, np.clip(units, 1, 2**WEIGHT_BITS), 0)


def check_size(n_rows: int, scale: Scale = UNWEIGHTED) -> None:
    """Raise for more rows than can be summed; that there are no more is taken to be public (plan.py)."""
    most = min(MAX_ROWS, scale.most_rows)
    if n_rows > most:
        raise InvalidInput(f"X: at most {most:,} rows can be summed exactly, and there are more")


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
        n_outputs, unused = settings.n_outputs, Quantiser(1.0, 1.0)
        loss = Loss("softmax" if n_outputs > 1 else "squared", n_outputs, (-1.0, 1.0))  # for its number of outputs
        packed: PackedColumns | SparseColumns
        if isinstance(coded.codes, SparseCodes):
            packed = pack_sparse(coded.codes, *bin_counts(bins.features))
        else:
            packed = pack(coded.codes, *bin_counts(bins.features), bundle=bundle, n_threads=n_threads)
        super().__init__(packed, coded.labels, None, loss, np.zeros(n_outputs), unused, n_threads=n_threads)
        self._codes = coded.codes
        self.n_misfits = coded.n_misfits
        """Rows with a value or a label that the schema does not allow. Not private."""
        self._targets: Scores = coded.labels.astype(SCORE)
        self._counts = None if coded.counts.all() else coded.counts
        self._seen = np.zeros(self.n_rows, np.int32)  # trees that are in a row's score already
        self._candidates = candidates
        self._settings = settings
        self._weights = coded.weights
        self._walkable = Walkable.room_for(n_outputs, settings.n_trees, 2 ** (settings.max_depth + 1) - 1)
        self._n_trees = 0
        self._depth = settings.max_depth
        self._places = _byte_places(self.layout)
        self._walkers = Team(n_threads)

    def start_subset(self, ids: RowIds, bound: int, *, filtering: bool) -> None:
        """Bring rows up to date, compute their gradients, and let those that may take part stand at the root.

        `bound` is g* in steps: beyond it a record is left out, or without `filtering` its gradient is clipped.
        """
        ids = self._scored(ids if self._counts is None else ids[self._counts[ids]])
        settings, scale = self._settings, self._settings.scale
        weights = _FULL_WEIGHT if self._weights is None else self._weights[ids]
        if settings.n_outputs > 1:
            limit = (settings.gradient_bound, settings.gradient_bound_l1)
            kept = class_gradients(
                ids, self.scores, self._targets, weights, limit, filtering, scale, self.gradients_packed
            )
        else:
            packed = self._gradients_at(ids, np.float32(2.0**scale.gradient_bits))
            kept = keep_bounded(ids, packed, weights, bound, filtering, scale, self.gradients_packed[0])
        self.start_tree(rows=ids[:kept])

    def start_from(self, scores_of: Callable[[Bytes], Scores]) -> None:
        """Let an earlier model's scores be where trees start."""
        self.scores[:] = scores_of(written_out(self._codes))

    def show_output(self, output: int) -> None:
        """Whose gradients are summed from now on."""
        self.values = self.gradients_packed[output]

    def _gradients_at(self, ids: RowIds, unit: np.float32) -> Ints:
        """Of one output: packed as the engine has them, the gradient in the high 32 bits."""
        packed = np.empty(len(ids), np.int64)
        scores, labels = self.scores[0, ids], self._targets[ids]
        if self._settings.loss == "squared":
            squared_gradients(scores, labels, np.float32(2.0), unit, np.float32(1.0), packed)
        elif self._settings.loss == "logistic":
            logistic_gradients(scores, labels, np.float32(0.0), unit, np.float32(1.0), packed)
        else:
            above = float(self._settings.quantile)
            most = max(above, 1.0 - above)  # so that the largest gradient is 1
            steps = np.rint(np.where(scores > labels, 1.0 - above, -above) / most * unit).astype(np.int64)
            packed[:] = np.where(scores == labels, 0, steps) << 32
        return packed

    def losses_of(self, ids: RowIds) -> tuple[int, int]:
        """What these rows lose by the trees so far, and how many they are: whole numbers of LOOK_UNIT, by weight.

        A row's loss is from 0 to 1 whatever its score is: the sum over both rests on `losses_to_units` alone.
        """
        ids = self._scored(ids if self._counts is None else ids[self._counts[ids]])
        weights = np.full(len(ids), 2**WEIGHT_BITS) if self._weights is None else self._weights[ids]
        lost = bounded_losses(self._settings, self.scores[:, ids].astype(np.float64), self._targets[ids])
        return losses_to_units(lost, weights), losses_to_units(np.ones(len(ids)), weights)

    def add_released(self, chosen: Ints, missing_left: Bools, child: Ints, values: Scores) -> None:
        """A released tree, as `growth.Asked` has it, and the values [outputs, nodes] of each node that is a leaf.

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
        common = (self.layout.bin_of_code, self._walkable, self._n_trees, self._depth, self._seen, self.scores)
        self._walkers.run(walk, [(records, ids[cuts[t] : cuts[t + 1]], *common) for t in range(n_tasks)])


def _byte_places(layout: Layout) -> Ints:
    """Where each column's byte is in a row's record: words of eight bytes, the first column lowest."""
    places = [8 * word + k for word, columns in enumerate(layout.columns_in_word.tolist()) for k in range(columns)]
    return np.array(places, np.int64)


def bounded_losses(settings: DPBoostSettings, scores: Floats, labels: Scores) -> Floats:
    """Each row's loss, from 0 to 1, given `scores` [outputs, rows].

    Of classes it is the Brier score, half the squared distance between probabilities and the truth; of numbers the
    squared error, or the pinball loss, as a share of the largest that is possible between the bounds.
    """
    lost: Floats
    off = (np.clip(scores[0], -1.0, 1.0) - labels) / 2.0
    if settings.n_outputs > 1:
        chances = np.exp(scores - scores.max(axis=0))
        chances /= chances.sum(axis=0)
        truth = np.arange(settings.n_outputs)[:, None] == labels
        lost = ((chances - truth) ** 2).sum(axis=0) / 2.0
    elif settings.loss == "logistic":
        lost = (1.0 / (1.0 + np.exp(-np.clip(scores[0], -500.0, 500.0))) - labels) ** 2
    elif settings.loss == "quantile":
        above = settings.quantile
        lost = np.maximum(off * (1.0 - above), -off * above) / max(above, 1.0 - above)
    else:
        lost = off**2
    return lost


def losses_to_units(lost: Floats, weights: Ints) -> int:
    """The sum of losses as a whole number, to which a row adds between 0 and LOOK_UNIT, whatever its loss."""
    units = np.rint(np.clip(lost, 0.0, 1.0) * LOOK_UNIT).astype(np.int64)
    return int((units * weights >> WEIGHT_BITS).sum())


@kernel
def keep_bounded(
    ids: RowIds, packed: Ints, weights: Ints, bound: int, filtering: bool, scale: Scale, values: Ints
) -> int:
    """Write (q, 1) of each record that takes part to `values`, and move its number to the front of `ids`.

    In: `packed`, the engine's gradient in the high 32 bits; `weights`, in units, one for each or a single 1. The
    sensitivity rests on this loop alone: whatever goes out, |q| <= bound, and with weight w, |q| <= bound w. Returns
    how many take part.
    """
    kept = 0
    for k in range(ids.shape[0]):
        q = packed[k] >> np.int64(32)
        if q > bound or q < -bound:
            if filtering:
                continue
            q = bound if q > 0 else -bound
        row = ids[k]
        weight = weights[k] if weights.shape[0] > 1 else weights[0]
        values[np.uint64(row)] = weighed(np.int64(q), weight, scale)
        ids[kept] = row
        kept += 1
    return kept


@inline_kernel
def weighed(q: np.int64, weight: np.int64, scale: Scale) -> np.int64:
    """A gradient and a weight as one number; the product is rounded towards 0, so that it is never beyond q's share."""
    bits = np.int64(scale.weight_bits)
    product = (q * weight) >> bits if q >= 0 else -((-q * weight) >> bits)
    return (product << np.int64(scale.count_bits)) + weight


@kernel
def class_gradients(
    ids: RowIds,
    scores: Scores,  # in  [outputs, rows]
    labels: Scores,  # in  [rows] number of the class
    weights: Ints,  # in  in units, one for each of `ids` or a single 1
    limit: tuple[float, float],  # in  of the length of a record's gradients, and of the sum of their absolute values
    filtering: bool,
    scale: Scale,
    values: Ints,  # out [outputs, rows]
) -> int:
    """Write the softmax gradients of each record that takes part, as `keep_bounded` does for one output.

    They are made shorter until both limits hold, then rounded towards 0, which lengthens nothing; and because floats
    may err, the whole numbers are looked at once more: a record that is beyond a limit all the same has no gradients.
    """
    n_outputs = scores.shape[0]
    unit = np.float64(np.int64(1) << np.int64(scale.gradient_bits))
    most_squared, most_sum = np.int64(limit[0] * unit * (limit[0] * unit)), np.int64(limit[1] * unit)
    gradients = np.empty(n_outputs, np.float64)
    steps = np.empty(n_outputs, np.int64)
    kept = 0
    for k in range(ids.shape[0]):
        row = np.uint64(ids[k])
        largest = np.float64(scores[0, row])
        for output in range(1, n_outputs):
            largest = max(largest, np.float64(scores[output, row]))
        total = 0.0
        for output in range(n_outputs):
            gradients[output] = np.exp(np.float64(scores[output, row]) - largest)
            total += gradients[output]
        squared, absolute = 0.0, 0.0
        own = np.int64(labels[row])
        for output in range(n_outputs):
            gradients[output] = gradients[output] / total - (1.0 if output == own else 0.0)
            squared += gradients[output] * gradients[output]
            absolute += abs(gradients[output])
        shorter = 1.0
        if squared > limit[0] * limit[0] or absolute > limit[1]:
            shorter = min(limit[0] / np.sqrt(squared), limit[1] / absolute)
        if filtering and shorter < 1.0 - 1e-6:
            continue
        whole_squared, whole_sum = np.int64(0), np.int64(0)
        for output in range(n_outputs):
            steps[output] = np.int64(gradients[output] * shorter * unit)  # towards 0
            whole_squared += steps[output] * steps[output]
            whole_sum += abs(steps[output])
        if whole_squared > most_squared or whole_sum > most_sum:
            steps[:] = 0
        weight = weights[k] if weights.shape[0] > 1 else weights[0]
        for output in range(n_outputs):
            values[output, row] = weighed(steps[output], weight, scale)
        ids[kept] = ids[k]
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
    value: Scores  # [outputs, trees, nodes]

    @classmethod
    def room_for(cls, n_outputs: int, n_trees: int, n_nodes: int) -> Walkable:
        """Arrays that `write_walkable` fills, tree by tree."""
        shape = (n_trees, n_nodes)
        return cls(np.zeros(shape, np.uint64), np.zeros(shape, np.int32), np.zeros((n_outputs, *shape), SCORE))


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
        for output in range(values.shape[0]):
            value[output, tree, node] = values[output, node]
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
    scores: Scores,  # in/out [outputs, rows]
) -> None:
    """Add the values of trees seen..n_trees, in order, block by block: steps of different rows overlap."""
    keys, children, values = walkable
    n_bytes = np.uint64(records.shape[1])
    bins = bin_of_code.reshape(-1)
    block = np.empty(_BLOCK * records.shape[1], np.uint8)
    node = np.empty(_BLOCK, np.int32)
    n_outputs = scores.shape[0]
    total = np.empty((n_outputs, _BLOCK), np.float32)
    place_bits, code_bits = np.uint64(0xFFFFF), np.uint64(0xFF)
    for start in range(0, ids.shape[0], _BLOCK):
        size = min(_BLOCK, ids.shape[0] - start)
        first = n_trees
        for i in range(size):
            row = ids[start + i]
            first = min(first, seen[row])
            for output in range(n_outputs):
                total[output, i] = scores[output, row]
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
            for output in range(n_outputs):
                for i in range(size):
                    if tree >= seen[ids[start + i]]:
                        total[output, i] += values[output, tree, node[i]]
        for i in range(size):
            row = ids[start + i]
            for output in range(n_outputs):
                scores[output, row] = total[output, i]
            seen[row] = n_trees
