"""The owner's side: rows stay here, sums leave under masks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Floats, Ints, Scores, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.exact_sums import exact_limbs
from hedgerow.engine.growth import DEEPEST, split_rules
from hedgerow.engine.losses import MOST_ROWS, Loss, Quantiser
from hedgerow.engine.rows import ROW_STEP, Rows
from hedgerow.engine.rows_ray.rows import RayRows
from hedgerow.engine.table import Level, Rule
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.agreement import check_agreement, rules_of
from hedgerow.protocols.horizontal.secure_sum.earlier import (
    check_columns,
    check_goes_on,
    check_same_start,
    digest_of,
    document_of,
)
from hedgerow.protocols.horizontal.secure_sum.job import BALANCED, Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells, Nodes
from hedgerow.protocols.horizontal.secure_sum.masks import COUNTS, TOTALS, TREES, WEIGHTS, Masks
from hedgerow.protocols.horizontal.secure_sum.model import receive_model
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.own_table import Learned, Rules, learned_from, table_of
from hedgerow.protocols.horizontal.secure_sum.quantile_search import MAX_ROUNDS, PROBES_PER_COLUMN
from hedgerow.protocols.horizontal.secure_sum.watching import SummedMetric
from hedgerow.protocols.horizontal.secure_sum.weights import class_factors, weight_sums
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
            owner.start(job.coordinator, state.start, state.scores, state.watched)
        _train(me, owner, masks, state)
        return receive_model(me, job, owner.without_trees(), owner.n_trees, most_nodes=owner.most_nodes)


def _set_up(me: Party, owner: Owner, masks: Masks, job: Job) -> OwnerState:
    """All that comes before the first tree."""
    to = job.coordinator
    description = owner.description()
    me.send(to, description)
    if owner.earlier is not None and to not in job.owners and me.name == job.masked_owners[0]:
        me.send(to, messages.EarlierModel(document_of(owner.earlier)))
    agreement = me.recv(to, messages.Agreement, n_columns=len(description.columns))
    label_range = agree_on_label_range(me, owner, job)
    owner.agree(to, agreement, label_range)
    masks.agree(round_id=1)
    if agreement.weighted:
        for number, n_totals in enumerate(owner.weight_rounds):
            sums = masks.hide(owner.weight_sums(n_totals), Position(WEIGHTS, number))
            me.send(to, messages.MaskedWeights(sums))
            owner.weigh(n_totals, me.recv(to, messages.CommonWeights, n_totals=n_totals or 1, **owner.row_ranges))
    me.send(to, messages.MaskedTotals(masks.hide(owner.totals(), Position(TOTALS))))
    if owner.earlier is not None:
        pass  # its bins stay
    elif job.quantiles == "private":
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
            after = replace(state, scores=owner.scores, watched=owner.watched_scores)
            me.keep((plan.tree + (sums is None)) // owner.loss.n_outputs, after)
        if plan.watch:
            sums = owner.watched_loss()
        if sums is None:
            return
        hidden = masks.hide_sum(sums, position, is_first=plan.start >= 0 or plan.watch == 1)
        if hidden is not None:
            me.send(to, messages.MaskedMetric(hidden) if plan.watch else messages.MaskedHistogram(hidden))
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
    """What an owner keeps: what all go by, its scores, and those of its rows that are watched."""

    agreement: messages.Agreement
    label_range: tuple[float, float]
    start: messages.Start
    scores: Scores | None = None
    watched: Scores | None = None


@dataclass(frozen=True)
class Begun:
    """What is kept before the first tree: cells with this owner's noise in them; at the coordinator, who is lost."""

    drawn: Words | None = None
    lost: Mapping[str, int] = field(default_factory=dict)


class _Way(NamedTuple):
    """How the rows of a level's nodes went."""

    feature: Ints
    goes_left: Bytes
    last: bool


@dataclass
class Watched:
    """An owner's rows that are watched for early stopping; none where the job stops for nothing."""

    labels: Floats
    weight: Floats | None
    rows: Rows | None = None

    @property
    def weight_digits(self) -> Ints:
        """The exact sum of their weights."""
        return exact_limbs(np.ones(len(self.labels)) if self.weight is None else self.weight)


def sample_seed(seed: int, owner: int) -> int:
    """What an owner's draws of rows hash in place of the seed: as if its rows were numbered from `owner` * 2**32 on.

    So no two rows of different owners have one number, and nobody has to know how many rows the others have. The
    number of a row is hashed as that many steps (`engine.rows.sampled_rows`).
    """
    return (seed + (owner << 32) * ROW_STEP) % 2**64


class Owner:
    """One owner's rows and what it computes on them. What it returns is exact: masking is the caller's duty.

    Rows may be in memory, in files, or in actors (`own_table.py`), which live until `opened` is closed. Rows of weight
    0 are not there. Rows that are watched for early stopping are rows apart: they walk down all trees, and nothing is
    learned from them.
    """

    def __init__(self, name: str, data: PartyData, job: Job) -> None:
        if data.labels is None:
            raise InvalidInput(f"{name}: an owner needs labels")
        labels = data.labels
        if not job.stops_early:
            data = replace(data, validation=None)
        self._name, self._data, self._job = name, data, job
        self.earlier: Ensemble | None = data.part
        """The model that training goes on from."""
        if job.weighs_classes and data.blocks is not None and data.backend is not None:
            raise InvalidInput(
                f"{name}: class_weight and scale_pos_weight are for rows in memory, or in files that this machine "
                "reads; where a cluster reads the files, put the weights into a column: Blocks(..., weight='column')"
            )
        learned = slice(None) if (some := learned_from(data)) is None else some
        self._labels = labels[learned]
        self._own_weight = self._weight = None if data.weight is None else data.weight[learned]
        watched = slice(0) if data.validation is None else data.validation
        self._watched = Watched(labels[watched], None if data.weight is None else data.weight[watched])
        self.coordinator = job.coordinator
        params = job.boosting
        if data.blocks is None:
            check_memory(
                name, data.table.n_rows, len(data.table.columns), job.max_bins, params.max_depth, params.max_leaves
            )
        self._table = table_of(name, data)
        self.opened = self._table.opened
        if self.earlier is not None:
            check_columns(name, job, self.earlier, self._table.names, self._table.levels)

    def description(self) -> messages.TableDescription:
        """What must fit together with the other owners'."""
        table, classes = self._table, self._classes()
        # Levels that the earlier model does not know are to this one what they are to that: unseen.
        levels = table.levels if self.earlier is None else tuple(feature.levels for feature in self.earlier.features)
        return messages.TableDescription(
            columns=table.names,
            kinds=table.kinds,
            levels=tuple("" if these is None else json.dumps(list(these)) for these in levels),
            classes="" if classes is None else json.dumps(list(classes)),
            weighted=self._own_weight is not None,
            earlier="" if self.earlier is None else digest_of(self.earlier),
        )

    def _classes(self) -> tuple[Any, ...] | None:
        """Those of its labels, but for classes of which no row counts."""
        known = self._data.classes
        if known is None or self._data.labels is None or learned_from(self._data) is None:
            return known
        counted = np.union1d(self._labels, self._watched.labels)
        gone = np.setdiff1d(self._data.labels, counted).tolist()
        return tuple(label for code, label in enumerate(known) if code not in gone)

    @property
    def label_range(self) -> tuple[float, float]:
        """The smallest and the largest label. Exact, so told only where the job asks for it."""
        return float(self._labels.min()), float(self._labels.max())

    def agree(self, sender: str, agreement: messages.Agreement, label_range: tuple[float, float]) -> None:
        """Go by the common levels, classes and label range."""
        check_agreement(sender, agreement, self.description())
        self._levels = [None if not levels else tuple(json.loads(levels)) for levels in agreement.levels]
        self._rules = rules_of(agreement.kinds)
        self.is_weighted = agreement.weighted
        labels = self._labels
        self.classes: tuple[Any, ...] | None = None
        if self._data.classes is not None:
            self.classes = tuple(json.loads(agreement.classes))
            places = {label: float(code) for code, label in enumerate(self.classes)}
            place = np.array([places.get(label, -1.0) for label in self._data.classes])
            labels = place[labels.astype(np.intp)]
            self._watched.labels = place[self._watched.labels.astype(np.intp)]
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
        self.n_earlier = 0
        if self.earlier is not None:
            check_goes_on(self._name, self.earlier, self.loss)
            self.n_earlier = len(self.earlier.trees)

    @property
    def weight_rounds(self) -> tuple[int, ...]:
        """For each sum of weights that is told: of how many classes apart; 0: of all together."""
        return (len(self.classes or ()), 0) if self._job.class_weight == BALANCED else (0,)

    @property
    def row_ranges(self) -> dict[str, int]:
        """Between how many rows all owners have together."""
        return {"fewest_rows": max(self._table.n_rows, 1), "most_rows": MOST_ROWS}

    def weight_sums(self, n_classes: int) -> Words:
        """Number of rows and exact sums of weights: of each class's own weights, or of all rows' final ones."""
        if n_classes:
            return weight_sums(self._labels, self._own_weight, n_classes)
        if self._job.weighs_classes and self._job.class_weight != BALANCED:
            self._weigh_classes(np.empty(0))
        return weight_sums(self._labels, self._weight)

    def weigh(self, n_classes: int, common: messages.CommonWeights) -> None:
        """Go by what all weights add up to."""
        if n_classes:
            self._weigh_classes(common.totals)
        else:
            self._weight_unit = self._quantiser(common.n_rows, float(common.totals[0])).weight_unit

    def _weigh_classes(self, totals: Floats) -> None:
        factors = class_factors(self._job, self.classes or (), totals)[self._labels.astype(np.intp)]
        self._weight = factors if self._own_weight is None else factors * self._own_weight

    def _quantiser(self, n_rows: int, total_weight: float) -> Quantiser:
        return Quantiser.for_job(self.loss, total_weight, n_rows=n_rows, gradient_bits=self._job.boosting.gradient_bits)

    def totals(self) -> Words:
        """Number of rows, label totals, values present in each numeric column, weight of the rows that are watched."""
        unit = self._weight_unit if self.is_weighted else 1.0
        weight = self._weight if self._weight is not None or unit == 1.0 else np.ones(len(self._labels))
        totals = [self._table.n_rows, *self.loss.label_totals(self._labels, weight, unit), *self._table.n_present()]
        watched = self._watched.weight_digits if self._job.stops_early else np.empty(0, np.int64)
        return np.concatenate([np.array(totals, np.int64), watched]).view(np.uint64)

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
        if self.earlier is not None:
            scores = (float(self.earlier.base_scores.min()), float(self.earlier.base_scores.max()))
        rows = (max(self._table.n_rows, 1), MOST_ROWS)
        n_class_totals = self.weight_rounds[0] if self.is_weighted else 0
        return start_ranges(self.n_numeric, scores, self.loss.n_outputs, rows, n_class_totals)

    def start(
        self, sender: str, start: messages.Start, scores: Scores | None = None, watched: Scores | None = None
    ) -> None:
        """Bin the rows with the common edges; `scores` (and those of watched rows) if there are trees already."""
        most = self._job.max_bins if self.earlier is None else MAX_BINS
        check_increasing(sender, start, start.edges, start.ends, most - 2)
        table, job = self._table, self._job
        self.mapper = common_bins(table.names, self._levels, self._rules, start.edges, start.ends)
        if self.earlier is not None:
            check_same_start(sender, start, self.mapper, self.earlier)
        if job.weighs_classes:
            self._weigh_classes(start.class_totals)
        quantiser = self._quantiser(start.n_rows, start.total_weight)
        self._base_scores = start.base_scores.copy()
        common = Rules(self.loss, self._base_scores, quantiser)
        learned = Learned(self._labels, self.classes, self._weight, scores)
        self._rows = table.rows(self.mapper, learned, common)
        self._watch(start, common, watched)
        if scores is None and self.earlier is not None:
            self._add_trees(self.earlier, 0)
        self._exchanged = ExchangedCells(self.mapper)
        rules = split_rules(job.boosting, self.loss, quantiser, weighted=self.is_weighted)
        self._with_counts = rules.min_samples_leaf > 0
        self._cells = np.empty((0, self._rows.layout.n_cells), np.int64)
        self._slots = np.empty(0, np.int64)
        self.nodes = Nodes(
            len(table.names), self.loss.n_outputs, self.n_earlier + self.n_trees, self._exchanged.n_cells,
            job.boosting.max_depth, watches=job.stops_early,
        )  # fmt: skip
        depth = min(job.boosting.max_depth or DEEPEST, DEEPEST)
        self.most_nodes = self.n_trees * (2 * min(1 << depth, start.n_rows) - 1)

    def take(self, step: messages.NextStep, plan: messages.Plan) -> Words | None:
        """Do what the coordinator asks for; the sums of the nodes it wants, or None when training is over."""
        # Received arrays are read-only, for which kernels would be compiled once more; copies of a few numbers are not.
        if len(step.feature):
            way = _Way(step.feature.copy(), np.unpackbits(step.goes_left, axis=1), bool(plan.last))
            for rows in self._walking:
                rows.descend(*way[:2], last=way.last)
            self._ways.append(way)
        if len(step.leaf_values):
            self._finish_tree(step.leaf_values.copy())
        if plan.start >= 0:
            self._start_tree(plan.tree, plan.start)
        if not len(step.build):
            return None
        return self._sums(step.build.copy())

    @property
    def _walking(self) -> list[Rows | RayRows]:
        """All that walk down a tree."""
        return [self._rows, *([] if self._watched.rows is None else [self._watched.rows])]

    def _start_tree(self, tree: int, output: int) -> None:
        rows, params = self._rows, self._job.boosting
        self._ways: list[_Way] = []
        self._output = output
        if output == 0:
            rows.gradients()
        sample = None
        if params.subsample < 1.0:
            seed = sample_seed(params.seed, self._job.owners.index(self._name))
            sample = (seed, tree // self.loss.n_outputs, params.subsample)
        rows.start_tree(output, sample=sample)
        if self._watched.rows is not None:
            self._watched.rows.start_tree(output)

    def _finish_tree(self, leaf_values: Scores) -> None:
        """Add the tree to all scores; rows that were not in its sample walk down now, and the others again."""
        for rows in self._walking:
            rows.finish_tree(leaf_values)
        if self._job.boosting.subsample < 1.0:
            self._rows.start_tree(self._output)
            for way in self._ways:
                self._rows.descend(*way[:2], last=way.last)
            self._rows.finish_tree(leaf_values)

    # --- rows that are watched ---------------------------------------------------------------------------------------

    def _watch(self, start: messages.Start, common: Rules, scores: Scores | None) -> None:
        """Code the rows that are watched, if there are any."""
        if not self._job.stops_early:
            return
        self._metric = SummedMetric.of(self.params, self.loss, start.watched)
        if len(self._watched.labels):
            codes = self._table.codes(self.mapper, watched=True)
            how: dict[str, Any] = {**common._asdict(), "n_threads": self._data.n_threads, "scores": scores}
            self._watched.rows = Rows.from_codes(self.mapper, codes, self._watched.labels, None, **how)

    def watched_loss(self) -> Words:
        """What the rows that are watched add to the metric."""
        watched = self._watched
        if watched.rows is None:
            return np.zeros(1, np.uint64)
        raw = watched.rows.scores.T.astype(np.float64) + self._base_scores
        return self._metric.total(watched.labels, raw, watched.weight)

    @property
    def watched_scores(self) -> Scores | None:
        """What all trees add to the rows that are watched; None: there are none."""
        return None if self._watched.rows is None else self._watched.rows.scores

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
        """Add trees to the scores that were not grown here; those of the earlier model are in them."""
        self._add_trees(ensemble, self.n_earlier)

    def _add_trees(self, ensemble: Ensemble, first: int) -> None:
        trees = [(tree, number % ensemble.n_outputs) for number, tree in enumerate(ensemble.trees)][first:]
        for rows in self._walking if trees else []:
            if isinstance(rows, RayRows):
                for tree, output in trees:
                    rows.add_tree(tree, output)
                continue
            codes = self._table.codes(self.mapper, watched=rows is self._watched.rows)
            for tree, output in trees:
                ensemble.add_binned(codes, tree, rows.scores[output], n_threads=self._data.n_threads)

    def without_trees(self) -> Ensemble:
        """What the owner knows of the model before it gets the new trees."""
        known = Ensemble(self.mapper, self.loss.name, self._base_scores, classes=self.classes)
        for tree in () if self.earlier is None else self.earlier.trees:
            known.append(tree, checked=True)
        return known


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


def write_start(
    edges: Sequence[Floats],
    base_scores: Floats,
    n_rows: int,
    *,
    total_weight: float | None = None,
    class_totals: Floats | None = None,
    watched: float = 0.0,
) -> messages.Start:
    """The message that training begins with: the edges of all numeric columns, one after the other."""
    ends = np.cumsum([len(these) for these in edges]).astype(np.int64)
    total_weight = float(n_rows) if total_weight is None else total_weight
    class_totals = np.empty(0) if class_totals is None else class_totals
    weights = (total_weight, class_totals, watched)
    return messages.Start(np.concatenate([*edges, np.empty(0)]), ends, base_scores, n_rows, *weights)


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


def start_ranges(
    n_numeric: int, scores: tuple[float, float], n_outputs: int, rows: tuple[int, int], n_class_totals: int = 0
) -> dict[str, Any]:
    """Symbols of `Start`: base scores and the number of rows may be anything between two limits."""
    return {
        "n_class_totals": n_class_totals,
        "n_numeric": n_numeric, "most_edges": n_numeric * (MAX_BINS - 2), "n_outputs": n_outputs,
        "lowest_score": scores[0], "highest_score": scores[1], "fewest_rows": rows[0], "most_rows": rows[1],
    }  # fmt: skip
