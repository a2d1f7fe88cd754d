"""The owner's side: rows stay here, sums leave under masks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Floats, Ints, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import DEEPEST, split_rules
from hedgerow.engine.losses import MOST_ROWS, Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.table import Column, Level, Table, read_table
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.checks import (
    LEVELS,
    Nodes,
    check_agreement,
    check_increasing,
    possible_base_scores,
    probe_ranges,
    start_ranges,
)
from hedgerow.protocols.horizontal.secure_sum.double import OwnMasks
from hedgerow.protocols.horizontal.secure_sum.exchange import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import COUNTS, TOTALS, TREES, Masks, agree_on_secrets, make_masks
from hedgerow.protocols.horizontal.secure_sum.model import receive_model
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.quantile_search import MAX_ROUNDS, PROBES_PER_COLUMN
from hedgerow.protocols.horizontal.secure_sum.sorted_columns import SortedColumns
from hedgerow.protocols.number_line import kind_of
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory

PATIENCE = 2.5
"""How much longer than the coordinator owners wait: it may first have to wait for another owner, and then make keys."""


def data_owner(me: Party, data: PartyData, job: Job) -> Ensemble:
    """One owner, from its table to the model that all owners get."""
    owner = Owner(me.name, data, job)
    to = job.coordinator
    me.wait_longer(PATIENCE)
    me.send(to, owner.description())
    owner.agree(to, me.recv(to, messages.Agreement, n_columns=owner.n_columns), agree_on_label_range(me, owner, job))
    round_id, secrets = agree_on_secrets(me, job, round_id=1)
    masks = make_masks(me, secrets)
    me.send(to, messages.MaskedTotals(masks.hide(owner.totals(), Position(TOTALS))))
    if job.quantiles == "private":
        cells, event = owner.noisy_cells(me)
        hidden = masks.hide(cells.values, Position(COUNTS))
        me.send(to, messages.NoisyCells(hidden, cells.sensitivity, cells.sigma), event=event.to_dict())
    elif job.quantiles == "search":
        _count_at_probes(me, owner, masks, to)
    owner.start(to, me.recv(to, messages.Start, **owner.start_ranges))
    _train(me, owner, job, round_id, secrets, masks)
    return receive_model(me, job, owner.without_trees(), owner.n_trees, most_nodes=owner.most_nodes)


def agree_on_label_range(me: Party, owner: Owner, job: Job) -> tuple[float, float]:
    """What the job declares; where it asks for the exact range instead, that of all owners' labels together."""
    if job.label_range is not None:
        return job.label_range
    low, high = owner.label_range
    me.send(job.coordinator, messages.OwnLabelRange(low, high))
    common = me.recv(job.coordinator, messages.CommonLabelRange, own_low=low, own_high=high)
    return common.low, common.high


def _train(me: Party, owner: Owner, job: Job, round_id: int, secrets: dict[str, bytes], masks: Masks) -> None:
    """Step by step until the coordinator has no more wishes."""
    to, last = job.coordinator, Position(TOTALS)
    own_masks = OwnMasks.for_round(me, job, secrets)
    while True:
        step = me.recv(to, messages.NextStep)
        plan = messages.Plan(*step.plan.tolist())
        position = Position(TREES, plan.tree, plan.level, plan.part)
        if position <= last and not (plan.new_round and plan.level == 0 and position == last):
            # With new keys a sum could be asked for that was already given with the old ones; only a first sum of a
            # tree, which nobody can have finished, may be repeated among those who are left.
            raise ProtocolError(f"{me.name} was asked for the sums of {position} after those of {last}")
        last = position
        owner.nodes.follow(to, step)
        if plan.new_round:
            if plan.new_round <= round_id:
                raise ProtocolError(f"{me.name} was asked to go back from key round {round_id} to {plan.new_round}")
            round_id, secrets = agree_on_secrets(me, job, plan.new_round)
            masks = make_masks(me, secrets)
            own_masks = OwnMasks.for_round(me, job, secrets)
        sums = owner.take(step, plan)
        if sums is None:
            return
        if own_masks is None or not job.has_own_masks(is_first=plan.start >= 0):
            me.send(to, messages.MaskedHistogram(masks.hide(sums, position, out=sums)))
        elif own_masks.share_seeds():
            me.send(to, messages.MaskedHistogram(own_masks.hide(sums)))
            own_masks.help_to_open()


def _count_at_probes(me: Party, owner: Owner, masks: Masks, to: str) -> None:
    ranges = probe_ranges(len(owner.numeric_columns))
    round_number = 0
    while len((probes := me.recv(to, messages.Probes, **ranges)).points):
        if round_number == MAX_ROUNDS:
            raise ProtocolError(f"{me.name} was asked to count at probes more than {MAX_ROUNDS} times")
        me.send(to, messages.MaskedCounts(masks.hide(owner.counts(to, probes), Position(COUNTS, round_number))))
        round_number += 1


class Owner:
    """One owner's rows and what it computes on them. What it returns is exact: masking is the caller's duty."""

    def __init__(self, name: str, data: PartyData, job: Job) -> None:
        if data.labels is None:
            raise InvalidInput(f"{name}: an owner needs labels")
        self._name, self._data, self._job, self._labels = name, data, job, data.labels
        params = job.boosting
        check_memory(
            name, data.table.n_rows, len(data.table.columns), job.max_bins, params.max_depth, params.max_leaves
        )

    def description(self) -> messages.TableDescription:
        """What must fit together with the other owners'."""
        columns, classes = self._data.table.columns, self._data.classes
        return messages.TableDescription(
            columns=tuple(column.name for column in columns),
            kinds=tuple(_kind(column) for column in columns),
            levels=tuple("" if column.levels is None else json.dumps(list(column.levels)) for column in columns),
            classes="" if classes is None else json.dumps(list(classes)),
        )

    @property
    def n_columns(self) -> int:
        """Of the table."""
        return len(self._data.table.columns)

    @property
    def label_range(self) -> tuple[float, float]:
        """The smallest and the largest label. Exact, so told only where the job asks for it."""
        return float(self._labels.min()), float(self._labels.max())

    def agree(self, sender: str, agreement: messages.Agreement, label_range: tuple[float, float]) -> None:
        """Go by the common levels, classes and label range."""
        check_agreement(sender, agreement, self.description())
        self._kinds = agreement.kinds
        self._levels = [None if not levels else tuple(json.loads(levels)) for levels in agreement.levels]
        labels = self._labels
        self.classes: tuple[Any, ...] | None = None
        if self._data.classes is not None:
            self.classes = tuple(json.loads(agreement.classes))
            place = np.array([self.classes.index(label) for label in self._data.classes], np.float64)
            labels = place[labels.astype(np.intp)]
        low, high = label_range
        if self._data.classes is None and (labels.min() < low or labels.max() > high):
            raise InvalidInput(
                f"{self._name}: labels lie in [{labels.min():g}, {labels.max():g}], outside the declared label_range "
                f"({low:g}, {high:g})"
            )
        self._labels = labels
        self.params = self._job.for_labels(len(self.classes or ()), (low, high))
        self.loss: Loss = self.params.loss_for(np.array([low, high]))
        self.n_trees = self.params.n_iterations * self.loss.n_outputs

    def totals(self) -> Words:
        """Number of rows, label totals, values present in each numeric column."""
        table, numeric = self._data.table, self.numeric_columns
        self._sorted = SortedColumns(Table(numeric, table.n_rows, tuple(c.name for c in numeric), has_names=True))
        totals = [table.n_rows, *self.loss.label_totals(self._labels).tolist(), *self._sorted.n_present.tolist()]
        return np.array(totals, np.int64).view(np.uint64)

    @property
    def numeric_columns(self) -> tuple[Column, ...]:
        """Columns that have edges, once all have agreed on their kinds."""
        columns = zip(self._data.table.columns, self._kinds, strict=True)
        return tuple(column for column, kind in columns if kind != LEVELS)

    def noisy_cells(self, me: Party) -> tuple[messages.NoisyCells, Event]:
        """Rows per cell of the public grid with this owner's noise, and the event of that noise."""
        numeric = self.numeric_columns
        return NoisyGrid(self._job, [column.name for column in numeric]).cells(me, numeric)

    def counts(self, sender: str, probes: messages.Probes) -> Words:
        """Rows below each probe."""
        check_increasing(sender, probes, probes.points, probes.ends, PROBES_PER_COLUMN)
        offsets = np.concatenate([[0], probes.ends]).astype(np.int64)
        return self._sorted.counts_below(probes.points, offsets).view(np.uint64)

    @property
    def start_ranges(self) -> dict[str, Any]:
        """What `Start` may say."""
        scores = possible_base_scores(self.loss, self.params.base_score)
        rows = (max(self._data.table.n_rows, 1), MOST_ROWS)
        return start_ranges(len(self.numeric_columns), scores, self.loss.n_outputs, rows)

    def start(self, sender: str, start: messages.Start) -> None:
        """Bin the rows with the common edges."""
        check_increasing(sender, start, start.edges, start.ends, self._job.max_bins - 2)
        del self._sorted
        table, job = self._data.table, self._job
        self.mapper = common_bins([c.name for c in table.columns], self._levels, start.edges, start.ends)
        quantiser = Quantiser.for_job(
            self.loss, float(start.n_rows), n_rows=start.n_rows, gradient_bits=job.boosting.gradient_bits
        )
        self._base_scores = start.base_scores.copy()
        self._rows = Rows.bin(
            self.mapper,
            read_table(table, like=self.mapper.features, where=self._name),
            self._labels,
            None,
            loss=self.loss,
            base_scores=self._base_scores,
            quantiser=quantiser,
            n_threads=self._data.n_threads,
        )
        self._exchanged = ExchangedCells(self.mapper)
        rules = split_rules(job.boosting, self.loss, quantiser, weighted=False)
        self._with_counts = rules.min_samples_leaf > 0
        self._cells = np.empty((0, self._rows.layout.n_cells), np.int64)
        self._slots = np.empty(0, np.int64)
        self.nodes = Nodes(
            len(table.columns), self.loss.n_outputs, self.n_trees, self._exchanged.n_cells, job.boosting.max_depth
        )
        depth = min(job.boosting.max_depth or DEEPEST, DEEPEST)
        self.most_nodes = self.n_trees * (2 * min(1 << depth, start.n_rows) - 1)

    def take(self, step: messages.NextStep, plan: messages.Plan) -> Words | None:
        """Do what the coordinator asks for; the sums of the nodes it wants, or None when training is over."""
        rows = self._rows
        # Received arrays are read-only, for which kernels would be compiled once more; copies of a few numbers are not.
        if len(step.feature):
            rows.descend(step.feature.copy(), np.unpackbits(step.goes_left, axis=1), last=bool(plan.last))
        if len(step.leaf_values):
            rows.finish_tree(step.leaf_values.copy())
        if plan.start >= 0:
            if plan.start == 0:
                rows.gradients()
            rows.start_tree(plan.start)
        if not len(step.build):
            return None
        return self._sums(step.build.copy())

    def _sums(self, nodes: Ints) -> Words:
        n_nodes = len(nodes)
        if len(self._cells) < n_nodes:
            self._cells = np.empty((n_nodes, self._rows.layout.n_cells), np.int64)
            self._slots = np.arange(n_nodes)
        sums = np.empty(((1 + self._with_counts) * n_nodes, self._exchanged.n_cells), np.uint64)
        for counts in range(1 + self._with_counts):
            self._rows.histograms(nodes, self._slots[:n_nodes], self._cells, counts=bool(counts))
            self._exchanged.gather(self._cells, n_nodes, self._rows.layout, sums[counts * n_nodes :])
        return sums

    def without_trees(self) -> Ensemble:
        """What the owner knows of the model before it gets the trees."""
        return Ensemble(self.mapper, self.loss.name, self._base_scores, classes=self.classes)


def common_bins(
    names: Sequence[str], levels: Sequence[tuple[Level, ...] | None], edges: Floats, ends: Ints
) -> BinMapper:
    """The bins that all parties use: given edges for numeric columns, agreed levels for the others."""
    numeric_edges = iter(np.split(edges, ends[:-1]) if len(ends) else [])
    features = [
        FeatureBins(name, None, these) if these is not None else FeatureBins(name, next(numeric_edges))
        for name, these in zip(names, levels, strict=True)
    ]
    return BinMapper(tuple(features))


def write_start(edges: Sequence[Floats], base_scores: Floats, n_rows: int) -> messages.Start:
    """The message that training begins with: the edges of all numeric columns, one after the other."""
    ends = np.cumsum([len(these) for these in edges]).astype(np.int64)
    return messages.Start(np.concatenate([*edges, np.empty(0)]), ends, base_scores, n_rows)


def _kind(column: Column) -> str:
    return LEVELS if column.levels is not None else kind_of(column.values)
