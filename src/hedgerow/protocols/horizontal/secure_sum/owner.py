"""The owner's side: rows stay here, sums leave under masks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Floats, Ints, Scores, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import DEEPEST, split_rules
from hedgerow.engine.losses import MOST_ROWS, Loss, Quantiser
from hedgerow.engine.rows_ray.rows import RayRows
from hedgerow.engine.table import Level, Rule
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.agreement import check_agreement, rules_of
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells, Nodes
from hedgerow.protocols.horizontal.secure_sum.masks import COUNTS, TOTALS, TREES, Masks
from hedgerow.protocols.horizontal.secure_sum.model import receive_model
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.own_table import Rules, table_of
from hedgerow.protocols.horizontal.secure_sum.quantile_search import MAX_ROUNDS, PROBES_PER_COLUMN
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_memory
from hedgerow.transport.frames import Message

LARGEST_LOG = 800.0
"""Base scores of losses with a logarithm as their link: log-odds of what rows fit into memory are far below."""

PATIENCE = 2.5
"""How much longer than the coordinator owners wait: it may first have to wait for another owner, and then make keys."""


def data_owner(me: Party, data: PartyData, job: Job) -> Ensemble:
    """One owner, from its table to the model that all owners get."""
    owner = Owner(me.name, data, job)
    with owner.opened:
        masks = Masks(me, job)
        me.wait_longer(PATIENCE)
        _, state = me.go_on(OwnerState, job)
        if state is None:
            state = _set_up(me, owner, masks, job)
        else:
            owner.agree(job.coordinator, state.agreement, state.label_range)
            masks.agree(round_id=1)
            owner.start(job.coordinator, state.start, state.scores)
        _train(me, owner, masks, state)
        return receive_model(me, job, owner.without_trees(), owner.n_trees, most_nodes=owner.most_nodes)


def _set_up(me: Party, owner: Owner, masks: Masks, job: Job) -> OwnerState:
    """All that comes before the first tree."""
    to = job.coordinator
    description = owner.description()
    me.send(to, description)
    agreement = me.recv(to, messages.Agreement, n_columns=len(description.columns))
    label_range = agree_on_label_range(me, owner, job)
    owner.agree(to, agreement, label_range)
    masks.agree(round_id=1)
    me.send(to, messages.MaskedTotals(masks.hide(owner.totals(), Position(TOTALS))))
    if job.quantiles == "private":
        cells, event = owner.noisy_cells(me)
        hidden = masks.hide(cells.values, Position(COUNTS))
        me.send(to, messages.NoisyCells(hidden, cells.sensitivity, cells.sigma), event=event)
    elif job.quantiles == "search":
        _count_at_probes(me, owner, masks, to)
    start = me.recv(to, messages.Start, **owner.start_ranges)
    owner.start(to, start)
    return OwnerState(agreement, label_range, start)


def agree_on_label_range(me: Party, owner: Owner, job: Job) -> tuple[float, float]:
    """What the job declares; where it asks for the exact range instead, that of all owners' labels together."""
    if job.label_range is not None:
        return job.label_range
    low, high = owner.label_range
    me.send(job.coordinator, messages.OwnLabelRange(low, high))
    common = me.recv(job.coordinator, messages.CommonLabelRange, own_low=low, own_high=high)
    return common.low, common.high


def _train(me: Party, owner: Owner, masks: Masks, state: OwnerState) -> None:
    """Step by step until the coordinator has no more wishes."""
    to, last = owner.coordinator, Position(TOTALS)
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
            masks.agree(plan.new_round)
        sums = owner.take(step, plan)
        if me.checkpoints is not None and len(step.leaf_values) and plan.start <= 0:  # an iteration is complete
            me.keep((plan.tree + (sums is None)) // owner.loss.n_outputs, replace(state, scores=owner.scores))
        if sums is None:
            return
        hidden = masks.hide_sum(sums, position, is_first=plan.start >= 0)
        if hidden is not None:
            me.send(to, messages.MaskedHistogram(hidden))
            masks.help_to_open()


def _count_at_probes(me: Party, owner: Owner, masks: Masks, to: str) -> None:
    n_numeric = owner.n_numeric
    ranges = {"n_numeric": n_numeric, "most_points": n_numeric * PROBES_PER_COLUMN}
    round_number = 0
    while len((probes := me.recv(to, messages.Probes, **ranges)).points):
        if round_number == MAX_ROUNDS:
            raise ProtocolError(f"{me.name} was asked to count at probes more than {MAX_ROUNDS} times")
        me.send(to, messages.MaskedCounts(masks.hide(owner.counts(to, probes), Position(COUNTS, round_number))))
        round_number += 1


@dataclass(frozen=True)
class OwnerState:
    """What an owner keeps: what all go by, and its scores."""

    agreement: messages.Agreement
    label_range: tuple[float, float]
    start: messages.Start
    scores: Scores | None = None


@dataclass(frozen=True)
class Begun:
    """What is kept before the first tree: cells with this owner's noise in them; at the coordinator, who is lost."""

    drawn: Words | None = None
    lost: Mapping[str, int] = field(default_factory=dict)


class Owner:
    """One owner's rows and what it computes on them. What it returns is exact: masking is the caller's duty.

    Rows may be in memory, in files, or in actors (`own_table.py`), which live until `opened` is closed.
    """

    def __init__(self, name: str, data: PartyData, job: Job) -> None:
        if data.labels is None:
            raise InvalidInput(f"{name}: an owner needs labels")
        self._name, self._data, self._job, self._labels = name, data, job, data.labels
        self.coordinator = job.coordinator
        params = job.boosting
        if data.blocks is None:
            check_memory(
                name, data.table.n_rows, len(data.table.columns), job.max_bins, params.max_depth, params.max_leaves
            )
        self._table = table_of(name, data)
        self.opened = self._table.opened

    def description(self) -> messages.TableDescription:
        """What must fit together with the other owners'."""
        table, classes = self._table, self._data.classes
        return messages.TableDescription(
            columns=table.names,
            kinds=table.kinds,
            levels=tuple("" if levels is None else json.dumps(list(levels)) for levels in table.levels),
            classes="" if classes is None else json.dumps(list(classes)),
        )

    @property
    def label_range(self) -> tuple[float, float]:
        """The smallest and the largest label. Exact, so told only where the job asks for it."""
        return float(self._labels.min()), float(self._labels.max())

    def agree(self, sender: str, agreement: messages.Agreement, label_range: tuple[float, float]) -> None:
        """Go by the common levels, classes and label range."""
        check_agreement(sender, agreement, self.description())
        self._levels = [None if not levels else tuple(json.loads(levels)) for levels in agreement.levels]
        self._rules = rules_of(agreement.kinds)
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
        n_present = self._table.n_present().tolist()
        totals = [self._table.n_rows, *self.loss.label_totals(self._labels).tolist(), *n_present]
        return np.array(totals, np.int64).view(np.uint64)

    @property
    def n_numeric(self) -> int:
        """Columns that have edges."""
        return sum(levels is None for levels in self._table.levels)

    def noisy_cells(self, me: Party) -> tuple[messages.NoisyCells, Event]:
        """Rows per cell of the public grid with this owner's noise, and the event of that noise.

        It is drawn once in a run: kept before it is sent, and sent as it was in a later attempt.
        """
        table, before = self._table, me.kept(0, Begun)
        grid = NoisyGrid(self._job, [n for n, levels in zip(table.names, table.levels, strict=True) if levels is None])
        cells, event = grid.cells(me, np.concatenate([*table.cell_counts(grid.features), np.empty(0, np.int64)]))
        if before is not None and before.drawn is not None:
            return replace(cells, values=before.drawn), event
        me.keep(0, Begun(cells.values))
        return cells, event

    def counts(self, sender: str, probes: messages.Probes) -> Words:
        """Rows below each probe."""
        check_increasing(sender, probes, probes.points, probes.ends, PROBES_PER_COLUMN)
        offsets = np.concatenate([[0], probes.ends]).astype(np.int64)
        return self._table.counts_below(probes.points, offsets).view(np.uint64)

    @property
    def start_ranges(self) -> dict[str, Any]:
        """What `Start` may say."""
        base_score, loss = self.params.base_score, self.loss
        low, high = loss.label_range if loss.name == "squared" else (-LARGEST_LOG, LARGEST_LOG)
        rounding = 1e-9 * max(abs(low), abs(high))
        scores = (low - rounding, high + rounding) if base_score is None else (float(base_score), float(base_score))
        rows = (max(self._table.n_rows, 1), MOST_ROWS)
        return start_ranges(self.n_numeric, scores, self.loss.n_outputs, rows)

    def start(self, sender: str, start: messages.Start, scores: Scores | None = None) -> None:
        """Bin the rows with the common edges; `scores` if there are trees already."""
        check_increasing(sender, start, start.edges, start.ends, self._job.max_bins - 2)
        table, job = self._table, self._job
        self.mapper = common_bins(table.names, self._levels, self._rules, start.edges, start.ends)
        quantiser = Quantiser.for_job(
            self.loss, float(start.n_rows), n_rows=start.n_rows, gradient_bits=job.boosting.gradient_bits
        )
        self._base_scores = start.base_scores.copy()
        common = Rules(self.loss, self._base_scores, quantiser)
        self._rows = table.rows(self.mapper, self._labels, self.classes, common, scores)
        self._exchanged = ExchangedCells(self.mapper)
        rules = split_rules(job.boosting, self.loss, quantiser, weighted=False)
        self._with_counts = rules.min_samples_leaf > 0
        self._cells = np.empty((0, self._rows.layout.n_cells), np.int64)
        self._slots = np.empty(0, np.int64)
        self.nodes = Nodes(
            len(table.names), self.loss.n_outputs, self.n_trees, self._exchanged.n_cells, job.boosting.max_depth
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

    @property
    def scores(self) -> Scores:
        """What all trees add to its rows, by output."""
        return self._rows.scores

    def add_trees(self, ensemble: Ensemble) -> None:
        """Add trees to the scores that were not grown here."""
        rows, n_outputs = self._rows, ensemble.n_outputs
        if isinstance(rows, RayRows):
            for number, tree in enumerate(ensemble.trees):
                rows.add_tree(tree, number % n_outputs)
            return
        codes = self._table.codes(self.mapper)
        for number, tree in enumerate(ensemble.trees):
            ensemble.add_binned(codes, tree, rows.scores[number % n_outputs], n_threads=self._data.n_threads)

    def without_trees(self) -> Ensemble:
        """What the owner knows of the model before it gets the trees."""
        return Ensemble(self.mapper, self.loss.name, self._base_scores, classes=self.classes)


def common_bins(
    names: Sequence[str],
    levels: Sequence[tuple[Level, ...] | None],
    rules: Sequence[Rule | None],
    edges: Floats,
    ends: Ints,
) -> BinMapper:
    """The bins that all parties use: given edges for numeric columns, agreed levels for the others."""
    numeric_edges = iter(np.split(edges, ends[:-1]) if len(ends) else [])
    features = [
        FeatureBins(name, None, these, rule) if these is not None else FeatureBins(name, next(numeric_edges), rule=rule)
        for name, these, rule in zip(names, levels, rules, strict=True)
    ]
    return BinMapper(tuple(features))


def write_start(edges: Sequence[Floats], base_scores: Floats, n_rows: int) -> messages.Start:
    """The message that training begins with: the edges of all numeric columns, one after the other."""
    ends = np.cumsum([len(these) for these in edges]).astype(np.int64)
    return messages.Start(np.concatenate([*edges, np.empty(0)]), ends, base_scores, n_rows)


# --- what ranges of single fields cannot say --------------------------------------------------------------------------


def check_increasing(sender: str, message: Message, points: Floats, ends: Ints, most: int) -> None:
    """The numbers of each column, `most` at most, in strictly increasing order."""
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if bool((ends - starts > most).any()):
        raise messages.refuse(sender, message, f"with more than {most} numbers for a column")
    rising = points[1:] > points[:-1]
    first = starts[(starts > 0) & (starts < len(points))]
    rising[first - 1] = True  # from one column to the next they may fall
    if not bool(rising.all()):
        raise messages.refuse(sender, message, "with numbers of a column that do not increase")


def start_ranges(n_numeric: int, scores: tuple[float, float], n_outputs: int, rows: tuple[int, int]) -> dict[str, Any]:
    """Symbols of `Start`: base scores and the number of rows may be anything between two limits."""
    return {
        "n_numeric": n_numeric, "most_edges": n_numeric * (MAX_BINS - 2), "n_outputs": n_outputs,
        "lowest_score": scores[0], "highest_score": scores[1], "fewest_rows": rows[0], "most_rows": rows[1],
    }  # fmt: skip
