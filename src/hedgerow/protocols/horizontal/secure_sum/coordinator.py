"""The coordinator's side: adds up what owners send, grows trees from the sums, tells owners how to go on."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores, Words
from hedgerow.engine.ensemble import Ensemble, TreeStack
from hedgerow.engine.exact_sums import N_LIMBS, nearest_above
from hedgerow.engine.growth import LevelLost, TreeGrower
from hedgerow.engine.losses import LABEL_STEPS, MOST_ROWS, BoostingParams, Loss, Quantiser
from hedgerow.errors import InvalidInput, InvalidParameter, PeerLost, ProtocolError
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.agreement import (
    WITH_LEVELS,
    agree,
    check_description,
    rules_of,
    same_model,
)
from hedgerow.protocols.horizontal.secure_sum.earlier import check_goes_on, read_earlier
from hedgerow.protocols.horizontal.secure_sum.gathering import CoordinatorState, Gathering, SumLost
from hedgerow.protocols.horizontal.secure_sum.job import BALANCED, Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.model import hand_out
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.owner import Begun, Owner, common_bins, write_start
from hedgerow.protocols.horizontal.secure_sum.quantile_search import QuantileSearch
from hedgerow.protocols.horizontal.secure_sum.watching import SummedMetric, Watch
from hedgerow.protocols.horizontal.secure_sum.weights import class_factors, common_weights, n_sums
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.times import TIME_RULES

NOTHING = np.empty(0, np.int64)


def coordinator(me: Party, job: Job, data: PartyData | None = None) -> Ensemble:
    """The coordinator, from the owners' descriptions to the model; `data` if it is an owner itself."""
    if data is None:
        return _coordinate(me, job, None)
    own = Owner(me.name, data, job)
    with own.opened:
        return _coordinate(me, job, own)


def _coordinate(me: Party, job: Job, own: Owner | None) -> Ensemble:
    gathering = Gathering(me, job, own)
    n_begun, taken_up = _taken_up(gathering, job)
    state = taken_up or _set_up(gathering, job)
    agreement, start = state.agreement, state.start
    params, loss = _params(job, agreement, state.label_range)
    n_earlier = state.n_earlier
    gathering.all_until = n_begun * loss.n_outputs
    levels = [None if not these else tuple(json.loads(these)) for these in agreement.levels]
    mapper = common_bins(state.columns, levels, rules_of(agreement.kinds), start.edges, start.ends)
    n_rows = start.n_rows
    quantiser = Quantiser.for_job(loss, start.total_weight, n_rows=n_rows, gradient_bits=params.gradient_bits)
    classes = tuple(json.loads(agreement.classes)) if agreement.classes else None
    ensemble = Ensemble(mapper, loss.name, start.base_scores, trees=state.trees.trees(), classes=classes)
    gathering.with_own(lambda owner: owner.add_trees(ensemble))
    watch = None
    if job.stops_early:
        watch = Watch(params, SummedMetric.of(params, loss, start.watched), n_earlier)
        watch.go_on(state.curve, state.curve_begins)
    _grow(gathering, ensemble, params, loss, quantiser, state, watch)
    if watch is not None:
        ensemble = ensemble.truncated(watch.best_iteration + 1)
    ensemble = hand_out(gathering.tell, job, ensemble, n_earlier * loss.n_outputs)
    if watch is not None:
        ensemble.meta["learning_curve"] = {watch.metric.metric.name: watch.curve}
        ensemble.meta["best_iteration"] = watch.best_iteration
    if agreement.weighted:
        ensemble.meta["weighted"] = True
    ensemble.meta["rounds"] = {"setup": gathering.setup_rounds, "training": gathering.rounds - gathering.setup_rounds}
    if state.edges_privacy is not None:
        ensemble.meta["edges_privacy"] = dict(state.edges_privacy)
    if gathering.lost:
        ensemble.meta["lost_owners"] = {name: int(tree) for name, tree in gathering.lost.items()}
    return ensemble


def _taken_up(gathering: Gathering, job: Job) -> tuple[float, CoordinatorState | None]:
    """In a later attempt: iterations that may have been begun, and where all go on from; None: they begin anew."""
    me = gathering.me
    if me.attempt == 1:
        return 0, None
    last = gathering.last_kept
    n_begun = math.inf if me.checkpoints is None or last is None else 1 + me.checkpoints.trees[-1]
    lost = {} if last is None else last.lost
    _, state = me.go_on(CoordinatorState, job, without=lost)
    if last is None and me.most_kept and not job.ends_with_a_loss:
        raise InvalidInput(
            f"{me.name}: has kept nothing of this run, which others have kept {me.most_kept} trees of; without knowing "
            "which owners were lost, it cannot go on"
        )
    for owner, tree in lost.items():
        if state is None or tree >= len(state.trees.ends):
            raise PeerLost(
                f"{owner} was lost in tree {tree + 1}, which not all have kept: it can be grown again neither with "
                "its rows nor without them, so this run cannot go on"
            )
    gathering.go_on(state)
    if state is not None:
        agreement, label_range, start = state.agreement, state.label_range, state.start
        gathering.with_own(lambda owner: owner.agree(me.name, agreement, label_range))
        gathering.exchange_keys()
        gathering.with_own(lambda owner: owner.start(me.name, start))
    return n_begun, state


def _set_up(gathering: Gathering, job: Job) -> CoordinatorState:
    """All that comes before the first tree."""
    me = gathering.me
    columns, agreement, label_range, earlier = _agree(gathering, job)
    gathering.exchange_keys()
    weights = _weights(gathering, job, agreement) if agreement.weighted else {}
    totals = _totals(gathering, job, agreement, label_range, weights.get("total_weight"))
    edges_privacy = None
    if earlier is None:
        edges, edges_privacy = _find_edges(gathering, job, columns, agreement, totals.n_present)
    else:
        edges = [feature.edges for feature in earlier.features if feature.edges is not None]
    base_scores = totals.base_scores if earlier is None else earlier.base_scores
    gathering.setup_rounds = gathering.rounds
    start = write_start(edges, base_scores, totals.n_rows, watched=totals.watched, **weights)
    gathering.tell(start, lambda owner: owner.start(me.name, start))
    if me.kept(0, Begun) is None:
        me.keep(0, Begun())
    begun = CoordinatorState(columns, agreement, label_range, start, edges_privacy)
    if earlier is None:
        return begun
    return replace(begun, trees=TreeStack.of(earlier.trees), n_earlier=earlier.n_iterations)


def _params(job: Job, agreement: messages.Agreement, label_range: tuple[float, float]) -> tuple[BoostingParams, Loss]:
    """What follows from the classes, or from the range of the labels."""
    params = job.for_labels(len(json.loads(agreement.classes)) if agreement.classes else 0, label_range)
    return params, params.loss_for(np.array(label_range))


class _Agreed(NamedTuple):
    """Columns, what all go by, the range of the labels, and the model that all go on from, if there is one."""

    columns: tuple[str, ...]
    agreement: messages.Agreement
    label_range: tuple[float, float]
    earlier: Ensemble | None


def _agree(gathering: Gathering, job: Job) -> _Agreed:
    """What the owners' descriptions come to."""
    descriptions = gathering.each(messages.TableDescription, lambda owner: owner.description())
    for name, description in descriptions.items():
        check_description(name, description, has_classes=job.task == "classification")
    by_owner = {name: descriptions[name] for name in job.owners}
    earlier = _earlier_model(gathering, job, same_model(by_owner))
    levels = {} if job.schema is None else job.schema.levels
    classes = job.classes
    if earlier is not None:
        levels, classes = {f.name: f.levels for f in earlier.features if f.levels is not None}, earlier.classes
    agreement = agree(by_owner, classes=classes, declared=levels, weighs_classes=job.weighs_classes)
    if job.weighs_classes:
        n_classes = len(json.loads(agreement.classes))
        class_factors(job, json.loads(agreement.classes), np.ones(n_classes))  # refuses weights of other classes
    gathering.tell(agreement)
    label_range = job.label_range or _exact_label_range(gathering)
    gathering.with_own(lambda owner: owner.agree(gathering.me.name, agreement, label_range))
    if earlier is not None:
        check_goes_on(gathering.me.name, earlier, _params(job, agreement, label_range)[1])
    return _Agreed(descriptions[job.owners[0]].columns, agreement, label_range, earlier)


def _earlier_model(gathering: Gathering, job: Job, digest: str) -> Ensemble | None:
    """The model of this digest: the coordinator's own if it is an owner, else one owner sends it."""
    if not digest:
        return None
    own: list[Ensemble | None] = []
    gathering.with_own(lambda owner: own.append(owner.earlier))
    if own:
        return own[0]
    sender = job.masked_owners[0]
    return read_earlier(sender, gathering.me.recv(sender, messages.EarlierModel), digest)


def _exact_label_range(gathering: Gathering) -> tuple[float, float]:
    """From the smallest to the largest label of anybody."""
    ranges = gathering.each(messages.OwnLabelRange, lambda owner: messages.OwnLabelRange(*owner.label_range))
    for name, message in ranges.items():
        if message.low > message.high:
            raise messages.refuse(name, message, f"with low = {message.low} above high = {message.high}")
    common = messages.CommonLabelRange(min(m.low for m in ranges.values()), max(m.high for m in ranges.values()))
    gathering.tell(common)
    return common.low, common.high


def _weights(gathering: Gathering, job: Job, agreement: messages.Agreement) -> dict[str, Any]:
    """The total weight of all owners' rows, and each class's if they are to be balanced."""

    def ask(n_classes: int) -> Floats:
        n_values = n_sums(n_classes or 1)
        sums = gathering.sum(messages.MaskedWeights, lambda owner: owner.weight_sums(n_classes), n_values=n_values)
        common = common_weights(sums)
        gathering.tell(common, lambda owner: owner.weigh(n_classes, common))
        return common.totals

    balanced = ask(len(json.loads(agreement.classes))) if job.class_weight == BALANCED else None
    return {"class_totals": balanced, "total_weight": float(ask(0)[0])}


class _Totals(NamedTuple):
    """Over all owners."""

    n_rows: int
    base_scores: Floats
    n_present: Ints  # values, of each numeric column
    watched: float  # weight of the rows that are watched


def _totals(
    gathering: Gathering,
    job: Job,
    agreement: messages.Agreement,
    label_range: tuple[float, float],
    total_weight: float | None,
) -> _Totals:
    """What is summed before bins are made."""
    params, loss = _params(job, agreement, label_range)
    n_label_totals = 1 + (loss.n_outputs if loss.name == "softmax" else 1)
    n_numeric = sum(kind not in WITH_LEVELS for kind in agreement.kinds)
    n_values = 1 + n_label_totals + n_numeric + (N_LIMBS if job.stops_early else 0)
    sums = gathering.sum(messages.MaskedTotals, lambda owner: owner.totals(), n_values=n_values).view(np.int64)
    n_rows, totals, rest = int(sums[0]), sums[1 : 1 + n_label_totals], sums[1 + n_label_totals :].copy()
    n_present, watched = rest[:n_numeric], nearest_above(rest[n_numeric:])
    _check_totals(loss, n_rows, totals, n_present, total_weight)
    if job.stops_early and not 0 < watched <= messages.LARGEST_WEIGHT:
        raise InvalidInput(
            f"{job.NAME}: early_stopping needs rows to watch, of a weight above 0 and at most "
            f"{messages.LARGEST_WEIGHT}; those of all owners add up to {watched}"
        )
    if params.base_score is None:
        base_scores = loss.base_scores_from(totals)
    else:
        base_scores = np.full(loss.n_outputs, float(params.base_score))
    return _Totals(n_rows, base_scores, n_present, watched)


def _check_totals(loss: Loss, n_rows: int, label_totals: Ints, n_present: Ints, total_weight: float | None) -> None:
    """Sums over all owners that no rows can have: whoever sent wrong numbers cannot be told."""
    rows, *parts = (int(total) for total in label_totals)
    rounding = 0
    expected = float(n_rows * LABEL_STEPS)
    if total_weight is not None:
        unit = Quantiser.for_job(loss, total_weight, n_rows=max(1, min(n_rows, MOST_ROWS))).weight_unit
        expected, rounding = total_weight / unit * LABEL_STEPS, n_rows  # each row is rounded
    fits = 1 <= n_rows <= MOST_ROWS and abs(rows - expected) <= rounding + expected * 2.0**-40 * (rounding > 0)
    fits = fits and all(-rounding <= part <= rows + rounding for part in parts)
    if loss.name == "softmax":
        fits = fits and abs(sum(parts) - rows) <= rounding
    if not fits or not bool(((n_present >= 0) & (n_present <= n_rows)).all()):
        raise ProtocolError("the totals of all owners do not belong to any rows: one of them sent wrong numbers")


def _find_edges(
    gathering: Gathering, job: Job, columns: Sequence[str], agreement: messages.Agreement, n_present: Ints
) -> tuple[list[Floats], dict[str, float] | None]:
    """The edges of every numeric column, and what they cost where they were paid for."""
    numeric = [name for name, kind in zip(columns, agreement.kinds, strict=True) if kind not in WITH_LEVELS]
    if job.quantiles == "given":
        return _given_edges(job, numeric), None
    if job.quantiles == "private":
        grid = NoisyGrid(job, numeric)
        expected = {"n_values": grid.n_cells, "sensitivity": grid.sensitivity, "sigma": grid.sigma_per_owner}
        totals = gathering.sum(messages.NoisyCells, lambda owner: owner.noisy_cells(gathering.me)[0].values, **expected)
        return grid.edges(totals.view(np.int64)), grid.spent()
    lines = ["float64" if kind in TIME_RULES else kind for kind in agreement.kinds if kind not in WITH_LEVELS]
    search = QuantileSearch(lines, n_present, job.max_bins - 1)
    while numeric and (probes := search.next_probes()) is not None:
        points, offsets = probes
        message = messages.Probes(points, offsets[1:])
        gathering.tell(message)
        count = partial(Owner.counts, sender=gathering.me.name, probes=message)
        search.update(gathering.sum(messages.MaskedCounts, count, n_values=len(points)).view(np.int64))
    gathering.tell(messages.Probes(np.empty(0), np.zeros(len(numeric), np.int64)))
    return (search.edges() if numeric else []), None


def _given_edges(job: Job, numeric: Sequence[str]) -> list[Floats]:
    given = job.edges or {}
    for name in numeric:
        if name not in given:
            raise InvalidParameter(f"edges has no entry for the numeric column {name!r}")
    for name in given:
        if name not in numeric:
            raise InvalidParameter(f"edges names {name!r}, which is not a numeric column of the owners' tables")
    return [np.asarray(given[name], np.float64) for name in numeric]


def _grow(
    gathering: Gathering,
    ensemble: Ensemble,
    params: BoostingParams,
    loss: Loss,
    quantiser: Quantiser,
    state: CoordinatorState,
    watch: Watch | None,
) -> None:
    """All trees. A tree whose first sum was lost begins again with the owners that are left."""
    me, n_lost = gathering.me, len(gathering.lost)
    rows = OwnersRows(gathering, ensemble)
    edges = [feature.edges for feature in ensemble.mapper.features]
    grower = TreeGrower(rows, params, loss, quantiser, edges, weighted=state.agreement.weighted)
    rows.with_counts = grower.with_counts
    for iteration in range(ensemble.n_iterations, state.n_earlier + params.n_iterations):
        if watch is not None and watch.wants_to_stop:
            break
        for output in range(loss.n_outputs):
            tree = None
            while tree is None:
                rows.start_tree(iteration * loss.n_outputs + output, output)
                try:
                    tree = grower.grow(rows.tree)
                except LevelLost:
                    continue
            ensemble.append(tree, checked=True)
        if watch is not None:
            total = rows.watched_loss()
            watch.see(total, lost=len(gathering.lost) > n_lost)
            n_lost = len(gathering.lost)
        if me.checkpoints is not None:
            trees, rounds, before = TreeStack.of(ensemble.trees), gathering.rounds, gathering.setup_rounds
            after = replace(state, trees=trees, lost=gathering.lost, rounds=rounds, setup_rounds=before)
            if watch is not None:
                after = replace(after, curve=tuple(watch.curve), curve_begins=watch.begins)
            me.keep(iteration + 1, after)
        me.report(iteration + 1 - state.n_earlier, params.n_iterations)
    rows.finish()


@dataclass
class _Pending:
    """What owners are to be told with the next message."""

    feature: Ints = field(default_factory=lambda: NOTHING)
    goes_left: Bytes = field(default_factory=lambda: np.empty((0, 32), np.uint8))
    last: bool = False
    leaf_values: Scores = field(default_factory=lambda: np.empty(0, np.float32))
    start: int = -1


class OwnersRows:
    """All owners' rows behind the verbs of `engine.rows.Rows`: what the tree grower works on.

    Verbs are remembered and told together with the next wish for sums, so a level is one message each way.
    """

    n_parts = 1
    with_counts = False

    def __init__(self, gathering: Gathering, ensemble: Ensemble) -> None:
        self._gathering = gathering
        self._exchanged = ExchangedCells(ensemble.mapper)
        self.layout = self._exchanged.layout
        self.node_counts: Ints = NOTHING
        self.tree = 0
        self._level = self._part = 0
        self._pending = _Pending()
        self._counts: Words = np.empty((0, 0), np.uint64)

    def start_tree(self, tree: int, output: int) -> None:
        """The next sums are those of a new tree's root."""
        self.tree, self._level, self._part = tree, 0, 0
        self._pending.start = output
        self._parent_rows = NOTHING
        self._merged = False

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """The sums of some nodes over all owners; LevelLost if one of them was lost."""
        if counts:  # they came with the gradients
            self._exchanged.scatter(self._counts, slots, cells)
            return
        if self._gathering.is_short and self._level > 0:
            raise LevelLost  # sums without the lost owner would give away its part of the parents' sums
        step, plan = self._tell(nodes)
        try:
            sums = self._gathering.level_sum(step, plan, (1 + self.with_counts) * len(nodes), self._exchanged.n_cells)
        except SumLost:
            raise LevelLost from None
        self._part += 1
        self._exchanged.scatter(sums[: len(nodes)], slots, cells)
        if self.with_counts:
            self._counts = sums[len(nodes) :]
            self._learn_row_counts(nodes)

    def _learn_row_counts(self, nodes: Ints) -> None:
        """Rows of every active node: of the summed ones from their cells, of their siblings by subtraction."""
        first_feature = self._counts[:, : self._exchanged.first[1]]
        summed = first_feature.sum(axis=1).astype(np.int64)
        if self._level == 0:
            self.node_counts = summed
            return
        if len(self.node_counts) != 2 * len(self._parent_rows):
            self.node_counts = np.repeat(self._parent_rows, 2)
        self.node_counts[nodes] = summed
        if len(nodes) == len(self._parent_rows):  # one of each pair of siblings
            siblings = nodes ^ 1
            self.node_counts[siblings] = self._parent_rows[nodes // 2] - summed

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Remember how the rows move."""
        self._level += 1
        self._part = 0
        if len(self._pending.feature):  # the level was lost before owners were told how to get there: it is the last
            self._pending.last = self._merged = True
            return
        self._pending.feature = feature
        self._pending.goes_left = np.packbits(goes_left, axis=1)
        self._pending.last = last
        if self.with_counts and not last:  # the counts of a level that was lost are not known, nor needed
            self._parent_rows = self.node_counts[feature >= 0]
        self.node_counts = NOTHING

    def finish_tree(self, leaf_values: Scores) -> None:
        """Remember the leaves' values, in the order in which owners come to them."""
        feature = self._pending.feature
        n_leaves = len(feature) + int(np.count_nonzero(feature >= 0))
        if self._merged:
            # Owners make one level of two: a node that does not split comes between the children of its neighbours.
            level = np.concatenate([np.flatnonzero(feature < 0), np.repeat(np.flatnonzero(feature >= 0), 2)])
            settled = leaf_values[len(leaf_values) - n_leaves :][np.argsort(level, kind="stable")]
            leaf_values = np.concatenate([leaf_values[: len(leaf_values) - n_leaves], settled])
        self._pending.leaf_values = leaf_values

    def watched_loss(self) -> Words:
        """What the rows that are watched add up to after the last tree; without an owner that was lost meanwhile."""
        while True:
            self._tell(NOTHING, watch=1)
            self._part += 1
            with contextlib.suppress(SumLost):
                return self._gathering.metric_sum()

    def finish(self) -> None:
        """Tell the owners the last tree's end."""
        self._tell(NOTHING)

    def _tell(self, build: Ints, watch: int = 0) -> tuple[messages.NextStep, messages.Plan]:
        pending, self._pending = self._pending, _Pending()
        plan = messages.Plan(0, int(pending.last), pending.start, self.tree, self._level, self._part, watch)
        return self._gathering.step(plan, pending.feature, pending.goes_left, pending.leaf_values, build)
