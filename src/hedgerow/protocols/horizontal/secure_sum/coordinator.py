"""The coordinator's side: adds up what owners send, grows trees from the sums, tells owners how to go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores, Words
from hedgerow.engine.ensemble import Ensemble, TreeStack
from hedgerow.engine.growth import LevelLost, TreeGrower
from hedgerow.engine.losses import LABEL_STEPS, MOST_ROWS, BoostingParams, Loss, Quantiser
from hedgerow.engine.times import TIME_RULES
from hedgerow.errors import InvalidInput, InvalidParameter, PeerLost, ProtocolError
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.agreement import WITH_LEVELS, agree, check_description, rules_of
from hedgerow.protocols.horizontal.secure_sum.gathering import CoordinatorState, Gathering, SumLost
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.model import hand_out
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.owner import Begun, Owner, common_bins, write_start
from hedgerow.protocols.horizontal.secure_sum.quantile_search import QuantileSearch
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

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
    gathering.all_until = n_begun * loss.n_outputs
    levels = [None if not these else tuple(json.loads(these)) for these in agreement.levels]
    mapper = common_bins(state.columns, levels, rules_of(agreement.kinds), start.edges, start.ends)
    n_rows = start.n_rows
    quantiser = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows, gradient_bits=params.gradient_bits)
    classes = tuple(json.loads(agreement.classes)) if agreement.classes else None
    ensemble = Ensemble(mapper, loss.name, start.base_scores, trees=state.trees.trees(), classes=classes)
    if ensemble.trees:
        gathering.with_own(lambda owner: owner.add_trees(ensemble))
    _grow(gathering, ensemble, params, loss, quantiser, state)
    ensemble = hand_out(gathering.tell, job, ensemble)
    ensemble.meta["rounds"] = {"setup": gathering.setup_rounds, "training": gathering.rounds - gathering.setup_rounds}
    if state.edges_privacy is not None:
        ensemble.meta["edges_privacy"] = dict(state.edges_privacy)
    if gathering.lost:
        ensemble.meta["lost_owners"] = {name: int(tree) for name, tree in gathering.lost.items()}
    return ensemble


def _taken_up(gathering: Gathering, job: Job) -> tuple[int, CoordinatorState | None]:
    """In a later attempt: iterations that may have been begun, and where all go on from; None: they begin anew."""
    me = gathering.me
    if me.attempt == 1:
        return 0, None
    last = gathering.last_kept
    n_begun = job.boosting.n_iterations if me.checkpoints is None or last is None else 1 + me.checkpoints.trees[-1]
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
    columns, agreement, label_range = _agree(gathering, job)
    gathering.exchange_keys()
    n_rows, base_scores, n_present = _totals(gathering, job, agreement, label_range)
    edges, edges_privacy = _find_edges(gathering, job, columns, agreement, n_present)
    gathering.setup_rounds = gathering.rounds
    start = write_start(edges, base_scores, n_rows)
    gathering.tell(start, lambda owner: owner.start(me.name, start))
    if me.kept(0, Begun) is None:
        me.keep(0, Begun())
    return CoordinatorState(columns, agreement, label_range, start, edges_privacy)


def _params(job: Job, agreement: messages.Agreement, label_range: tuple[float, float]) -> tuple[BoostingParams, Loss]:
    """What follows from the classes, or from the range of the labels."""
    params = job.for_labels(len(json.loads(agreement.classes)) if agreement.classes else 0, label_range)
    return params, params.loss_for(np.array(label_range))


def _agree(gathering: Gathering, job: Job) -> tuple[tuple[str, ...], messages.Agreement, tuple[float, float]]:
    """Columns, what all go by, and the range of the labels."""
    descriptions = gathering.each(messages.TableDescription, lambda owner: owner.description())
    for name, description in descriptions.items():
        check_description(name, description, has_classes=job.task == "classification")
    by_owner = {name: descriptions[name] for name in job.owners}
    levels = {} if job.schema is None else job.schema.levels
    agreement = agree(by_owner, classes=job.classes, declared=levels)
    gathering.tell(agreement)
    label_range = job.label_range or _exact_label_range(gathering)
    gathering.with_own(lambda owner: owner.agree(gathering.me.name, agreement, label_range))
    return descriptions[job.owners[0]].columns, agreement, label_range


def _exact_label_range(gathering: Gathering) -> tuple[float, float]:
    """From the smallest to the largest label of anybody."""
    ranges = gathering.each(messages.OwnLabelRange, lambda owner: messages.OwnLabelRange(*owner.label_range))
    for name, message in ranges.items():
        if message.low > message.high:
            raise messages.refuse(name, message, f"with low = {message.low} above high = {message.high}")
    common = messages.CommonLabelRange(min(m.low for m in ranges.values()), max(m.high for m in ranges.values()))
    gathering.tell(common)
    return common.low, common.high


def _totals(
    gathering: Gathering, job: Job, agreement: messages.Agreement, label_range: tuple[float, float]
) -> tuple[int, Floats, Ints]:
    """Number of rows, base score and values present per numeric column, over all owners."""
    params, loss = _params(job, agreement, label_range)
    n_label_totals = 1 + (loss.n_outputs if loss.name == "softmax" else 1)
    n_numeric = sum(kind not in WITH_LEVELS for kind in agreement.kinds)
    n_values = 1 + n_label_totals + n_numeric
    sums = gathering.sum(messages.MaskedTotals, lambda owner: owner.totals(), n_values=n_values).view(np.int64)
    totals, n_present = sums[1 : 1 + n_label_totals], sums[1 + n_label_totals :].copy()
    _check_totals(loss, int(sums[0]), totals, n_present)
    if params.base_score is None:
        base_scores = loss.base_scores_from(totals)
    else:
        base_scores = np.full(loss.n_outputs, float(params.base_score))
    return int(sums[0]), base_scores, n_present


def _check_totals(loss: Loss, n_rows: int, label_totals: Ints, n_present: Ints) -> None:
    """Sums over all owners that no rows can have: whoever sent wrong numbers cannot be told."""
    rows, *parts = (int(total) for total in label_totals)
    fits = 1 <= n_rows <= MOST_ROWS and rows == n_rows * LABEL_STEPS and all(0 <= part <= rows for part in parts)
    if loss.name == "softmax":
        fits = fits and sum(parts) == rows
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
) -> None:
    """All trees. A tree whose first sum was lost begins again with the owners that are left."""
    me = gathering.me
    rows = OwnersRows(gathering, ensemble)
    edges = [feature.edges for feature in ensemble.mapper.features]
    grower = TreeGrower(rows, params, loss, quantiser, edges, weighted=False)
    rows.with_counts = grower.with_counts
    for iteration in range(ensemble.n_iterations, params.n_iterations):
        for output in range(loss.n_outputs):
            tree = None
            while tree is None:
                rows.start_tree(iteration * loss.n_outputs + output, output)
                try:
                    tree = grower.grow(rows.tree)
                except LevelLost:
                    continue
            ensemble.append(tree, checked=True)
        if me.checkpoints is not None:
            trees, rounds, before = TreeStack.of(ensemble.trees), gathering.rounds, gathering.setup_rounds
            after = replace(state, trees=trees, lost=gathering.lost, rounds=rounds, setup_rounds=before)
            me.keep(iteration + 1, after)
        me.report(iteration + 1, params.n_iterations)
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

    def finish(self) -> None:
        """Tell the owners the last tree's end."""
        self._tell(NOTHING)

    def _tell(self, build: Ints) -> tuple[messages.NextStep, messages.Plan]:
        pending, self._pending = self._pending, _Pending()
        plan = messages.Plan(0, int(pending.last), pending.start, self.tree, self._level, self._part)
        return self._gathering.step(plan, pending.feature, pending.goes_left, pending.leaf_values, build)
