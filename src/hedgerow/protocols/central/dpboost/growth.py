"""One tree: a noisy choice per node and level, a noisy value per leaf.

    histograms of the smaller children  ->  siblings by subtraction  ->  groups of equal candidates  ->  noisy choice

All nodes of a level are chosen together, because they hold disjoint records and so cost no more than one. With noise,
every tree is complete. Without (epsilon = inf) a node that has nothing to gain becomes a leaf, as in the plain engine,
whose trees these then are.

`released_tree` makes an ordinary `Tree` of it, so that files, prediction and export need not know where it came from.
It holds the choices and the noisy leaves, and nothing else that was ever near a record. Covers are those of rows spread
evenly over a complete tree; the value of an inner node is the average of the leaves below it by these covers, and its
gain the weighted variance between its two sides.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.building import FlatEdges
from hedgerow.engine.dtypes import Bools, Floats, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.histogram import Histograms, plan_histograms
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.privacy.choices import exponential, permute_and_flip
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event
from hedgerow.protocols.central.dpboost.candidates import (
    COUNT_BITS,
    MAX_ROWS,
    UNIT,
    Answers,
    Candidates,
    Groups,
    Spread,
    follow_heavier_side,
    read_choices,
    score_families,
)
from hedgerow.protocols.central.dpboost.plan import choice_sensitivity, release_leaves
from hedgerow.protocols.central.dpboost.records import Asked
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

_ZERO = np.zeros(1, np.int64)


class GrownTree(NamedTuple):
    """What was released: nodes breadth-first, the k-th node that splits has children 2k + 1 and 2k + 2."""

    asked: Asked
    leaf_value: Floats  # [nodes] noisy, without the learning rate; 0 for inner nodes
    event: Event


class TreeGrower:
    """Grows trees on the rows that stand at the root; keeps its buffers from tree to tree."""

    def __init__(self, rows: Rows, candidates: Candidates, settings: DPBoostSettings, random: RandomBytes) -> None:
        self._rows, self._candidates, self._settings, self._random = rows, candidates, settings, random
        most_nodes = 2 ** (settings.max_depth - 1)
        self._spread = Spread.over(rows.layout)
        self._cells = np.empty((most_nodes, rows.layout.n_cells), np.int64)
        self._groups = Groups.room_for(most_nodes, len(candidates.feature))
        self._choose = exponential if settings.selection == "exponential" else permute_and_flip
        self._how_to_choose: dict[str, Any] = {
            "sensitivity": choice_sensitivity(settings),
            "epsilon": settings.epsilon_per_level,
            "random": random,
            "magnitude": settings.gradient_bound**2 * MAX_ROWS,
            "adjacency": settings.adjacency,
        }

    def grow(self, place: int) -> GrownTree:
        """The tree at this place of its ensemble; `rows.start_tree` has been called."""
        depth = self._settings.max_depth
        where = Histograms(slot=_ZERO, built=_ZERO, derived=_ZERO - 1)
        levels: list[Answers] = []
        totals = [self._root_total()]  # packed, by level
        events: list[Event] = []
        for number in range(depth):
            if number:
                self._rows.histograms(where.built, where.slot[where.built], self._cells)
            answers, event = self._choose_splits(where, totals[-1])
            levels.append(answers)
            events.append(event)
            totals.append(answers.children)
            last = number == depth - 1 or not len(answers.children)
            self._rows.descend(answers.feature, answers.goes_left, last=last)
            if last:
                events += [event] * (depth - len(events))  # without noise only: a choice among nothing
                break
            where = plan_histograms(self._rows.node_counts, answers.feature, where.slot)
        return self._finish(place, levels, np.concatenate(totals), events)

    # --- one level -------------------------------------------------------------------------------------------------

    def _root_total(self) -> Ints:
        """Sum the root's histogram; any column's cells add up to the sum over all rows."""
        layout = self._rows.layout
        self._rows.histograms(_ZERO, _ZERO, self._cells)
        first_column = slice(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0])
        total: Ints = self._cells[0, first_column].sum(keepdims=True)
        return total

    def _choose_splits(self, where: Histograms, totals: Ints) -> tuple[Answers, Event]:
        settings, groups, candidates, layout = self._settings, self._groups, self._candidates, self._rows.layout
        score_families(
            candidates, layout, self._spread, where.built, where.derived, where.slot, self._cells, totals,
            settings.l2, not settings.noisy, groups,
        )  # fmt: skip
        starts = groups.starts[: len(totals) + 1]
        n_groups = starts[-1]
        picked, event = self._choose(
            groups.utility[:n_groups], starts=starts, multiplicity=groups.size[:n_groups], **self._how_to_choose
        )
        answers = Answers.room_for(len(totals))
        least = -math.inf if settings.noisy else MIN_GAIN
        n_splitting = read_choices(candidates, layout, groups, *picked, totals, least, answers)
        if not settings.noisy:
            follow_heavier_side(layout, self._spread, where.slot, self._cells, totals, answers)
        return answers._replace(children=answers.children[: 2 * n_splitting]), event

    # --- leaves ----------------------------------------------------------------------------------------------------

    def _finish(self, place: int, levels: list[Answers], totals: Ints, events: list[Event]) -> GrownTree:
        settings = self._settings
        n_leaves = len(levels[-1].children)  # of the last level
        chosen = np.concatenate([level.candidate for level in levels] + [np.full(n_leaves, -1)])
        missing_left = np.concatenate([level.missing_left for level in levels] + [np.zeros(n_leaves, np.bool_)])
        splits = chosen >= 0
        child = np.where(splits, 2 * np.cumsum(splits) - 1, -1)
        leaves = leaf_values(totals[~splits], settings.l2)
        noisy, event = release_leaves(settings, place, leaves, self._random)
        value = np.zeros(len(totals))
        value[~splits] = noisy
        return GrownTree(Asked(chosen, missing_left & splits, child), value, Composed((*events, event)))


def leaf_values(totals: Ints, l2: float) -> Floats:
    """-S / (n + l2) of packed sums; 0 where that has no meaning."""
    gradient = (totals >> COUNT_BITS) * UNIT
    denominator = (totals & MAX_ROWS) + l2
    values: Floats = np.divide(-gradient, denominator, out=np.zeros(len(totals)), where=denominator > 0.0)
    return values


# --- the model's tree ------------------------------------------------------------------------------------------------


def released_tree(tree: Asked, candidates: Candidates, is_categorical: Bools, edges: FlatEdges, values: Scores) -> Tree:
    """The model's tree; `values` per node, of which those of leaves count."""
    n_nodes = len(tree.chosen)
    splits = tree.chosen >= 0
    asked = np.where(splits, tree.chosen, 0)
    feature = np.where(splits, candidates.feature[asked], -1)
    cut = candidates.cut[asked]
    by_level = splits & is_categorical[feature]
    numeric = splits & ~by_level
    threshold = np.full(n_nodes, np.nan)
    threshold[numeric] = edges.flat[edges.first[feature[numeric]] + cut[numeric]]
    value = values.copy()
    gain, cover = np.zeros(n_nodes, np.float32), np.zeros(n_nodes)
    spread_evenly(tree.child, value, gain, cover)
    levels = (np.arange(256) == cut[by_level, None]) & ~tree.missing_left[by_level, None]  # "missing" is no level
    return Tree.as_grown(
        feature=feature.astype(np.int32),
        bin=np.where(numeric, cut, -1).astype(np.int32),
        threshold=threshold,
        missing_left=tree.missing_left,
        left=tree.child.astype(np.int32),
        right=np.where(splits, tree.child + 1, -1).astype(np.int32),
        value=value,
        gain=gain,
        cover=cover,
        level_set=np.where(by_level, np.cumsum(by_level) - 1, -1).astype(np.int32),
        left_levels=levels,
    )


@kernel
def spread_evenly(child: Ints, value: Scores, gain: Scores, cover: Floats) -> None:
    """Covers from the root down, then values and gains from the leaves up; leaves have their values."""
    cover[0] = 1.0
    for node in range(child.shape[0]):
        if child[node] >= 0:
            cover[child[node]] = cover[child[node] + 1] = cover[node] / 2.0
    for node in range(child.shape[0] - 1, -1, -1):
        if child[node] >= 0:
            left, right = np.float64(value[child[node]]), np.float64(value[child[node] + 1])
            value[node] = (left + right) / 2.0
            gain[node] = (left - right) * (left - right) * cover[node] / 4.0
