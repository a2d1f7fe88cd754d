"""One tree: a noisy choice per node and level, a noisy value per leaf.

    histograms of the smaller children  ->  siblings by subtraction  ->  groups of equal candidates  ->  noisy choice

All nodes of a level are chosen together, because they hold disjoint records and so cost no more than one. With noise,
every tree is complete. Without (epsilon = inf) a node that has nothing to gain becomes a leaf, as in the plain engine,
whose trees these then are.

`released_tree` makes an ordinary `Tree` of it, so that files, prediction and export need not know where it came from.
It holds the choices and the noisy leaves, and nothing else that was ever near a record. Covers are those of rows spread
evenly over a complete tree; the value of an inner node is the average of the leaves below it by these covers, and its
gain the weighted variance between its two sides.

**Candidates**, the public questions a node may ask, are numbered feature after feature:

    numeric        cuts 0..: bins up to the cut go left and missing values right, then, where the column may be
                   missing, the same cuts once more with missing values on the left. All values against the missing
                   ones is a cut too; all values against nothing is not.
    categorical    each level alone on the left, all others on the right; then "missing" alone on the left, where the
                   column may be missing. Of the two mirror images that two levels have, only the first.

The list follows from the schema and the bins: neither the rows of a node nor their labels have a say in it. Utility of
a candidate that sends sum S_L of n_L records left and S_R of n_R records right, with 0/0 = 0:

    S_L^2 / (n_L + l2) + S_R^2 / (n_R + l2)

Neighbours in the list that send the same records left (cuts with nobody between them, levels that nobody has) have
equal utilities, and are handed on as one group with its multiplicity; an empty node is a single group.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.growth import FlatEdges, RowsLike
from hedgerow.engine.histogram import Histograms, Layout, plan_histograms, subtract_siblings
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.choices import exponential, permute_and_flip
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event
from hedgerow.protocols.central.dpboost.plan import choice_sensitivity, release_leaves
from hedgerow.protocols.central.dpboost.settings import COUNT_BITS, MAX_ROWS, UNIT, DPBoostSettings
from hedgerow.schema import Schema

_ZERO = np.zeros(1, np.int64)


class Candidates(NamedTuple):
    """The numbered questions: small arrays that kernels take whole."""

    first: Ints  # [features + 1] number of each feature's first candidate
    may_be_missing: Bools  # [features]
    feature: Ints  # [candidates]
    cut: Ints  # [candidates] last bin that goes left, or the level that does (the missing code for "missing")
    missing_left: Bools  # [candidates]


def list_candidates(schema: Schema, bins: BinMapper) -> Candidates:
    """Every question that the schema and the bins allow."""
    feature: list[int] = []
    cut: list[int] = []
    missing_left: list[bool] = []
    first = [0]
    for number, (column, binned) in enumerate(zip(schema.columns, bins.features, strict=True)):
        n, gaps = binned.n_value_bins, column.may_be_missing
        if binned.is_categorical:
            codes = n + gaps
            own = [(code, code == n) for code in range(codes if codes > 2 else codes - 1)]
        else:
            own = [(b, False) for b in range(n if gaps else n - 1)]
            own += [(b, True) for b in range(n - 1)] if gaps else []
        feature += [number] * len(own)
        cut += [code for code, _ in own]
        missing_left += [left for _, left in own]
        first.append(len(feature))
    if not feature:
        raise InvalidParameter("the schema leaves nothing to split on: every column has a single value")
    return Candidates(
        np.array(first, np.int64),
        np.array([column.may_be_missing for column in schema.columns], np.bool_),
        np.array(feature, np.int64),
        np.array(cut, np.int64),
        np.array(missing_left, np.bool_),
    )


class Asked(NamedTuple):
    """What the nodes of a tree ask, breadth-first."""

    chosen: Ints  # number of the node's candidate; -1 for a leaf
    missing_left: Bools  # that of the candidate, or (without noise) where most rows went if nobody was missing
    child: Ints  # left child; -1 for a leaf


class GrownTree(NamedTuple):
    """What was released: nodes breadth-first, the k-th node that splits has children 2k + 1 and 2k + 2."""

    asked: Asked
    leaf_value: Floats  # [nodes] noisy, without the learning rate; 0 for inner nodes
    event: Event


class TreeGrower:
    """Grows trees on the rows that stand at the root, wherever they are; keeps its buffers from tree to tree."""

    def __init__(self, rows: RowsLike, candidates: Candidates, settings: DPBoostSettings, random: RandomBytes) -> None:
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
        """The tree at this place of its ensemble; `start_subset` has been called."""
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
            where = Histograms(*plan_histograms(answers.children & MAX_ROWS, answers.feature, where.slot))
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


# --- what each candidate is worth in every node of a level -----------------------------------------------------------


class Groups(NamedTuple):
    """Runs of equal candidates, node after node; room for as many as there are candidates."""

    utility: Floats
    first: Ints  # number of the run's first candidate
    size: Ints  # candidates in the run
    left: Ints  # packed sum of what they send left
    starts: Ints  # [nodes + 1] where each node's groups begin

    @classmethod
    def room_for(cls, n_nodes: int, n_candidates: int) -> Groups:
        """Arrays that `score_families` fills."""
        most = n_nodes * n_candidates
        first, size, left = np.empty((3, most), np.int64)
        return cls(np.empty(most), first, size, left, np.zeros(n_nodes + 1, np.int64))


@inline_kernel
def unpacked(packed: np.int64) -> tuple[float, float]:
    """The gradient, from the high bits, and the number of records, from the low ones."""
    gradient = np.float64(packed >> np.int64(COUNT_BITS)) * UNIT
    return gradient, np.float64(packed & np.int64(MAX_ROWS))


@inline_kernel
def utility_of(left: np.int64, gradient: float, count: float, l2: float) -> float:
    """One division where both sides have a denominator, in the engine's order of operations."""
    gl, nl = unpacked(left)
    gr = gradient - gl
    dl = nl + l2
    dr = (count - nl) + l2
    if dl > 0.0 and dr > 0.0:
        return (gl * gl * dr + gr * gr * dl) / (dl * dr)
    if dl > 0.0:
        return gl * gl / dl
    return gr * gr / dr if dr > 0.0 else 0.0


class Spread(NamedTuple):
    """Where the sums of a column's codes go in a vector of all features' bins, feature after feature.

    The engine has the same in `exchange.gather_features`, feature by feature over all codes. Nodes of private trees
    hold few rows, so here the few codes that occur are looked at, and each is added to all features of its bundle.
    """

    first: Ints  # [features] where its bins begin
    n_members: Ints  # [columns] features that share it
    table: Ints  # [columns] where its own part of `target` begins: n_codes times n_members places
    target: Int32s

    @classmethod
    def over(cls, layout: Layout) -> Spread:
        """From the layout of packed rows."""
        first = np.concatenate([[0], np.cumsum(layout.n_value_bins + 1)])
        parts = []
        n_members = np.bincount(layout.column_of_feature, minlength=layout.n_columns)
        by_column = np.split(np.argsort(layout.column_of_feature, kind="stable"), np.cumsum(n_members)[:-1])
        for column, members in enumerate(by_column):
            codes = int(layout.n_codes[column])
            parts.append((first[members, None] + layout.bin_of_code[members, :codes]).T.reshape(-1))
        table = np.concatenate([[0], np.cumsum([len(part) for part in parts])])[:-1]
        return cls(first[:-1], n_members, table.astype(np.int64), np.concatenate(parts).astype(np.int32))


@inline_kernel
def spread_cells(spread: Spread, cells: Ints, n_codes: Ints, first_cell: Ints, bins: Ints) -> None:
    """A node's histogram as sums per bin of each feature. Out: `bins`."""
    n_members, table, target = spread.n_members, spread.table, spread.target
    for place in range(bins.shape[0]):
        bins[place] = 0
    for column in range(n_codes.shape[0]):
        begin, members, cell = table[column], n_members[column], first_cell[column]
        if members == 1:
            start = target[begin]
            for code in range(n_codes[column]):
                bins[start + code] = cells[cell + code]
            continue
        for code in range(n_codes[column]):
            value = cells[cell + code]
            if value != 0:
                for k in range(begin + code * members, begin + (code + 1) * members):
                    bins[np.uint64(target[k])] += value


@inline_kernel
def left_sums(candidates: Candidates, layout: Layout, first_bin: Ints, bins: Ints, left: Ints) -> None:
    """What each candidate sends left in one node, from its sums per bin. Out: `left` [candidates]."""
    first, may_be_missing = candidates.first, candidates.may_be_missing
    n_value_bins, is_categorical = layout.n_value_bins, layout.is_categorical
    for feature in range(n_value_bins.shape[0]):
        start, stop, begin, n_bins = first[feature], first[feature + 1], first_bin[feature], n_value_bins[feature]
        if is_categorical[feature]:
            for k in range(stop - start):
                left[start + k] = bins[begin + k]  # the missing code is the last
            continue
        n_right = min(stop - start, n_bins if may_be_missing[feature] else n_bins - 1)  # cuts, missing to the right
        running = np.int64(0)
        for cut in range(n_right):
            running += bins[begin + cut]
            left[start + cut] = running
        missing = bins[begin + n_bins]
        for cut in range(stop - start - n_right):
            left[start + n_right + cut] = left[start + cut] + missing


@kernel
def score_families(
    candidates: Candidates,
    layout: Layout,
    spread: Spread,
    built: Ints,  # in  [families] node whose histogram was summed
    derived: Ints,  # in  [families] its sibling, to be had by subtraction; -1 for none
    slots: Ints,  # in  [nodes] histogram of each node; a derived node's slot holds its parent's
    cells: Ints,  # in/out [slots, cells]
    totals: Ints,  # in  [nodes] packed
    l2: float,
    above_parent: bool,  # in  utilities count from that of not splitting, as the engine's gains do
    groups: Groups,  # out
) -> None:
    """Siblings by subtraction, then the groups of all nodes, in the order of nodes."""
    first_cell, n_codes = layout.first_cell, layout.n_codes
    subtract_siblings(built, derived, slots, cells, first_cell, n_codes)
    utility, first, size, left_out, starts = groups
    n_candidates = candidates.feature.shape[0]
    first_bin = spread.first
    bins = np.empty(first_bin[-1] + layout.n_value_bins[-1] + 1, np.int64)
    left = np.empty(n_candidates, np.int64)
    n_groups = 0
    for node in range(totals.shape[0]):
        starts[node] = n_groups
        gradient, count = unpacked(totals[node])
        if count == 0.0:
            utility[n_groups], first[n_groups], size[n_groups], left_out[n_groups] = 0.0, 0, n_candidates, 0
            n_groups += 1
            continue
        parent = gradient * gradient / (count + l2) if above_parent else 0.0
        spread_cells(spread, cells[slots[node]], n_codes, first_cell, bins)
        left_sums(candidates, layout, first_bin, bins, left)
        begin = 0
        for candidate in range(1, n_candidates + 1):
            if candidate < n_candidates and left[candidate] == left[begin]:
                continue
            utility[n_groups] = utility_of(left[begin], gradient, count, l2) - parent
            first[n_groups] = begin
            size[n_groups] = candidate - begin
            left_out[n_groups] = left[begin]
            n_groups += 1
            begin = candidate
    starts[totals.shape[0]] = n_groups


class Answers(NamedTuple):
    """What a level's nodes chose and what follows from it; room for the widest level."""

    candidate: Ints  # [nodes] -1 for a node that becomes a leaf
    feature: Ints  # [nodes] that of the candidate, or -1
    missing_left: Bools  # [nodes]
    goes_left: Bytes  # [nodes, 256] by the feature's code
    children: Ints  # [2 x nodes] packed sums, left and right of each splitting node in turn

    @classmethod
    def room_for(cls, n_nodes: int) -> Answers:
        """Arrays that `read_choices` fills."""
        return cls(
            candidate=np.empty(n_nodes, np.int64),
            feature=np.empty(n_nodes, np.int64),
            missing_left=np.empty(n_nodes, np.bool_),
            goes_left=np.empty((n_nodes, 256), np.uint8),
            children=np.empty(2 * n_nodes, np.int64),
        )


@kernel
def read_choices(
    candidates: Candidates,
    layout: Layout,
    groups: Groups,
    group: Ints,  # in  [nodes] the chosen group of each
    member: Ints,  # in  [nodes] and which of its candidates
    totals: Ints,  # in  [nodes] packed
    least: float,  # in  a node whose utility is not above becomes a leaf; -inf with noise
    answers: Answers,  # out
) -> int:
    """Look the chosen candidates up; returns how many nodes split."""
    candidate_of, feature_of, missing_left, goes_left, children = answers
    n_splitting = 0
    for node in range(group.shape[0]):
        chosen = group[node]
        candidate = groups.first[chosen] + member[node]
        feature = candidates.feature[candidate]
        cut = candidates.cut[candidate]
        missing_left[node] = candidates.missing_left[candidate]
        splits = groups.utility[chosen] > least
        candidate_of[node] = candidate if splits else -1
        feature_of[node] = feature if splits else -1
        answer = goes_left[node]
        lowest = cut if layout.is_categorical[feature] else 0
        for code in range(256):
            answer[code] = (code >= lowest) & (code <= cut)
        answer[layout.n_value_bins[feature]] = missing_left[node]
        if splits:
            children[2 * n_splitting] = groups.left[chosen]
            children[2 * n_splitting + 1] = totals[node] - groups.left[chosen]
            n_splitting += 1
    return n_splitting


@kernel
def follow_heavier_side(
    layout: Layout, spread: Spread, slots: Ints, cells: Ints, totals: Ints, answers: Answers
) -> None:
    """Where nobody in a node is missing, both directions are worth the same; the engine takes the heavier side.

    Only without noise: which side is heavier is nobody's business otherwise.
    """
    bins = np.empty(spread.first[-1] + layout.n_value_bins[-1] + 1, np.int64)
    n_splitting = 0
    for node in range(totals.shape[0]):
        feature = answers.feature[node]
        if feature < 0:
            continue
        left = answers.children[2 * n_splitting]
        n_splitting += 1
        missing_code = layout.n_value_bins[feature]
        spread_cells(spread, cells[slots[node]], layout.n_codes, layout.first_cell, bins)
        if not layout.is_categorical[feature] and bins[spread.first[feature] + missing_code] == 0:
            heavier_left = 2.0 * unpacked(left)[1] >= unpacked(totals[node])[1]
            answers.missing_left[node] = heavier_left
            answers.goes_left[node, missing_code] = heavier_left


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
