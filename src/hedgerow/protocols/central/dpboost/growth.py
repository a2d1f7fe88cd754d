"""One tree: a noisy choice per node and level, a noisy value per leaf.

    histograms of the smaller children  ->  siblings by subtraction  ->  groups of equal candidates  ->  noisy choice

All nodes of a level are chosen together, because they hold disjoint records and so cost no more than one. With noise,
every tree is complete. Without (epsilon = inf) a node that has nothing to gain becomes a leaf, as in the plain engine,
whose trees these then are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.histogram import plan_slots
from hedgerow.engine.rows import Rows
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event
from hedgerow.privacy.mechanisms import exponential, permute_and_flip
from hedgerow.protocols.central.dpboost.candidates import (
    COUNT_BITS,
    GRADIENT_BITS,
    MAX_ROWS,
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

_UNIT = 2.0**-GRADIENT_BITS
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
        self._groups = Groups.room_for(most_nodes, candidates.n_candidates)
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
        level = _Level(totals=self._root_total(), slots=_ZERO, built=_ZERO, derived=_ZERO - 1)
        levels: list[Answers] = []
        totals = [level.totals]
        events: list[Event] = []
        for number in range(depth):
            if number:
                self._rows.histograms(level.built, level.slots[level.built], self._cells)
            answers, event = self._choose_splits(level)
            levels.append(answers)
            events.append(event)
            totals.append(answers.children)
            last = number == depth - 1 or not len(answers.children)
            self._rows.descend(answers.feature, answers.goes_left, last=last)
            if last:
                events += [event] * (depth - len(events))  # without noise only: a choice among nothing
                break
            level = self._next_level(level, answers)
        return self._finish(place, levels, np.concatenate(totals), events)

    # --- one level -------------------------------------------------------------------------------------------------

    def _root_total(self) -> Ints:
        """Sum the root's histogram; any column's cells add up to the sum over all rows."""
        layout = self._rows.layout
        self._rows.histograms(_ZERO, _ZERO, self._cells)
        first_column = slice(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0])
        total: Ints = self._cells[0, first_column].sum(keepdims=True)
        return total

    def _choose_splits(self, level: _Level) -> tuple[Answers, Event]:
        settings, groups, candidates, layout = self._settings, self._groups, self._candidates, self._rows.layout
        score_families(
            candidates, layout, self._spread, level.built, level.derived, level.slots, self._cells, level.totals,
            _UNIT, settings.l2, not settings.noisy, groups,
        )  # fmt: skip
        starts = groups.starts[: len(level.totals) + 1]
        n_groups = starts[-1]
        picked, event = self._choose(
            groups.utility[:n_groups], starts=starts, multiplicity=groups.size[:n_groups], **self._how_to_choose
        )
        answers = Answers.room_for(len(level.totals))
        least = -math.inf if settings.noisy else MIN_GAIN
        n_splitting = read_choices(candidates, layout, groups, *picked, level.totals, least, answers)
        if not settings.noisy:
            follow_heavier_side(layout, self._spread, level.slots, self._cells, level.totals, answers)
        return answers._replace(children=answers.children[: 2 * n_splitting]), event

    def _next_level(self, parents: _Level, answers: Answers) -> _Level:
        """The smaller child is summed, in a new slot; the larger one takes over its parent's."""
        n_children = len(answers.children)
        slots, built, derived = (np.empty(n, np.int64) for n in (n_children, n_children // 2, n_children // 2))
        plan_slots(self._rows.node_counts, answers.feature, parents.slots, slots, built, derived)
        return _Level(answers.children, slots, built, derived)

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
    gradient = (totals >> COUNT_BITS) * _UNIT
    denominator = (totals & MAX_ROWS) + l2
    values: Floats = np.divide(-gradient, denominator, out=np.zeros(len(totals)), where=denominator > 0.0)
    return values


class _Level(NamedTuple):
    """Nodes to choose for: their sums, where their histograms are, and which of these are summed from rows."""

    totals: Ints  # [nodes] packed
    slots: Ints  # [nodes]
    built: Ints  # [families]
    derived: Ints  # [families] siblings that get theirs by subtraction, -1 for none
