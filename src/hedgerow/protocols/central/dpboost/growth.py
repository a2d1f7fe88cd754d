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

(with several outputs: the sum of that over all of them; with weights n is a sum of weights). Which columns a node may
ask about is public, too: it follows from a seed and from what was released before. Monotone constraints are kept by the
released leaves, after the noise, which costs nothing: nobody looks at a record for that.

Neighbours in the list that send the same records left (cuts with nobody between them, levels that nobody has) have
equal utilities, and are handed on as one group with its multiplicity; an empty node is a single group.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import Tree
from hedgerow.engine.feature_choice import FeatureDraw, InteractionPaths
from hedgerow.engine.growth import FlatEdges, RowsLike
from hedgerow.engine.histogram import Histograms, Layout, plan_histograms, subtract_siblings
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.choices import exponential, permute_and_flip
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event
from hedgerow.protocols.central.dpboost.plan import choice_sensitivity, release_leaves
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings, Scale
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
    leaf_value: Floats  # [outputs, nodes] noisy, without the learning rate; 0 for inner nodes
    event: Event


class ManyOutputs(RowsLike, Protocol):
    """Rows with a gradient for each output."""

    def show_output(self, output: int) -> None:
        """Whose gradients are summed from now on."""
        ...


class TreeGrower:
    """Grows trees on the rows that stand at the root, wherever they are; keeps its buffers from tree to tree."""

    def __init__(
        self, rows: ManyOutputs, candidates: Candidates, settings: DPBoostSettings, random: RandomBytes
    ) -> None:
        self._rows, self._candidates, self._settings, self._random = rows, candidates, settings, random
        most_nodes, n_outputs, self._scale = 2 ** (settings.max_depth - 1), settings.n_outputs, settings.scale
        self._spread = Spread.over(rows.layout)
        self._cells = np.empty((n_outputs, most_nodes, rows.layout.n_cells), np.int64)
        self._groups = Groups.room_for(n_outputs, most_nodes, len(candidates.feature))
        self._choose = exponential if settings.selection == "exponential" else permute_and_flip
        self._how_to_choose: dict[str, Any] = {
            "sensitivity": choice_sensitivity(settings),
            "epsilon": settings.epsilon_per_level,
            "random": random,
            "magnitude": settings.gradient_bound**2 * self._scale.most_rows,
            "adjacency": settings.adjacency,
        }

    def grow(self, place: int, number: int) -> GrownTree:
        """The tree at this place of its ensemble, and with this number of all; `start_subset` has been called."""
        depth = self._settings.max_depth
        where = Histograms(slot=_ZERO, built=_ZERO, derived=_ZERO - 1)
        columns = _Columns(self._settings, self._candidates, number)
        levels: list[Answers] = []
        totals = [self._root_total()]  # packed, by level
        events: list[Event] = []
        for level in range(depth):
            if level:
                self._sum(where.built, where.slot[where.built])
            answers, event = self._choose_splits(where, totals[-1], columns.for_nodes(totals[-1].shape[1]))
            columns.split(answers.feature)
            levels.append(answers)
            events.append(event)
            totals.append(answers.children)
            last = level == depth - 1 or not answers.children.shape[1]
            self._rows.descend(answers.feature, answers.goes_left, last=last)
            if last:
                events += [event] * (depth - len(events))  # without noise only: a choice among nothing
                break
            counts = answers.children[0] & ((1 << self._scale.count_bits) - 1)
            where = Histograms(*plan_histograms(counts, answers.feature, where.slot))
        return self._finish(place, levels, np.concatenate(totals, axis=1), events)

    # --- one level -------------------------------------------------------------------------------------------------

    def _sum(self, nodes: Ints, slots: Ints) -> None:
        """The histograms of these nodes, of every output."""
        for output, cells in enumerate(self._cells):
            if len(self._cells) > 1:
                self._rows.show_output(output)
            self._rows.histograms(nodes, slots, cells)

    def _root_total(self) -> Ints:
        """Sum the root's histogram; any column's cells add up to the sum over all rows."""
        layout = self._rows.layout
        self._sum(_ZERO, _ZERO)
        first_column = slice(layout.first_cell[0], layout.first_cell[0] + layout.n_codes[0])
        total: Ints = self._cells[:, 0, first_column].sum(axis=1, keepdims=True)
        return total

    def _choose_splits(self, where: Histograms, totals: Ints, allowed: Bools) -> tuple[Answers, Event]:
        settings, groups, candidates, layout = self._settings, self._groups, self._candidates, self._rows.layout
        score_families(
            candidates, layout, self._spread, where.built, where.derived, where.slot, self._cells, totals, allowed,
            self._scale, settings.l2, not settings.noisy, groups,
        )  # fmt: skip
        n_nodes = totals.shape[1]
        starts = groups.starts[: n_nodes + 1]
        n_groups = starts[-1]
        picked, event = self._choose(
            groups.utility[:n_groups], starts=starts, multiplicity=groups.size[:n_groups], **self._how_to_choose
        )
        answers = Answers.room_for(len(totals), n_nodes)
        least = -math.inf if settings.noisy else MIN_GAIN
        n_splitting = read_choices(candidates, layout, groups, *picked, totals, least, answers)
        if not settings.noisy:
            follow_heavier_side(layout, self._spread, where.slot, self._cells[0], totals[0], self._scale, answers)
        return answers._replace(children=answers.children[:, : 2 * n_splitting]), event

    # --- leaves ----------------------------------------------------------------------------------------------------

    def _finish(self, place: int, levels: list[Answers], totals: Ints, events: list[Event]) -> GrownTree:
        settings = self._settings
        n_leaves = levels[-1].children.shape[1]  # of the last level
        chosen = np.concatenate([level.candidate for level in levels] + [np.full(n_leaves, -1)])
        missing_left = np.concatenate([level.missing_left for level in levels] + [np.zeros(n_leaves, np.bool_)])
        splits = chosen >= 0
        child = np.where(splits, 2 * np.cumsum(splits) - 1, -1)
        leaves = leaf_values(totals[:, ~splits], settings.l2, self._scale)
        noisy, event = release_leaves(settings, place, leaves, self._random)
        if len(totals) > 1:
            noisy = noisy - noisy.mean(axis=0)  # as those of exact leaves do, the values of a leaf add up to nothing
        value = np.zeros(totals.shape)
        value[:, ~splits] = noisy
        if settings.monotone is not None:
            direction = np.array(settings.monotone, np.int64)[self._candidates.feature[np.where(splits, chosen, 0)]]
            make_monotone(child, np.where(splits, direction, 0), value[0])
        return GrownTree(Asked(chosen, missing_left & splits, child), value, Composed((*events, event)))


class _Columns:
    """Which columns the nodes of one tree may ask about: always one at least that there is a question about."""

    def __init__(self, settings: DPBoostSettings, candidates: Candidates, number: int) -> None:
        n_columns = len(candidates.first) - 1
        drawing = BoostingParams(
            colsample_bytree=settings.colsample_bytree,
            colsample_bylevel=settings.colsample_bylevel,
            colsample_bynode=settings.colsample_bynode,
            seed=settings.seed,
        )
        self._draw = FeatureDraw(drawing, n_columns, number)
        self._paths = None if settings.interaction is None else InteractionPaths(settings.interaction, n_columns)
        self._asked = np.diff(candidates.first) > 0

    def for_nodes(self, n_nodes: int) -> Bools:
        """[nodes, columns]. Where draw and groups leave nothing, what the groups allow.

        That is never nothing: a node below another may ask about the column that the other asked about.
        """
        groups = self._asked[None] if self._paths is None else self._asked & self._paths.allowed
        both = np.broadcast_to(self._draw.for_nodes(n_nodes) & groups, (n_nodes, len(self._asked)))
        allowed: Bools = np.where(both.any(axis=1, keepdims=True), both, groups)
        return np.ascontiguousarray(allowed)

    def split(self, feature: Ints) -> None:
        """The column that each node asked about, -1 for a leaf."""
        if self._paths is not None:
            self._paths.split(feature)


def leaf_values(totals: Ints, l2: float, scale: Scale) -> Floats:
    """-S / (n + l2) of packed sums; 0 where that has no meaning."""
    gradient = (totals >> scale.count_bits) * 2.0**-scale.gradient_bits
    denominator = (totals & ((1 << scale.count_bits) - 1)) * 2.0**-scale.weight_bits + l2
    values: Floats = np.divide(-gradient, denominator, out=np.zeros(totals.shape), where=denominator > 0.0)
    return values


@kernel
def make_monotone(child: Ints, direction: Ints, value: Floats) -> None:
    """Move the leaf values of a complete tree so that predictions follow the directions of the nodes' columns.

    In: `direction` [nodes], of the column that a node asks about: 1, -1 or 0. In/out: `value` [nodes]. From the root
    down, the leaves below the two sides of a node with a direction are moved to either side of the middle of the two
    sides' averages. Two rows that differ in that column alone part at such a node, if at all: the rest follows.
    """
    n_nodes = child.shape[0]
    low, high = np.full(n_nodes, -np.inf), np.full(n_nodes, np.inf)
    mean = value.copy()
    for node in range(n_nodes - 1, -1, -1):
        if child[node] >= 0:
            mean[node] = (mean[child[node]] + mean[child[node] + 1]) / 2.0
    for node in range(n_nodes):
        left, right = child[node], child[node] + 1
        if left < 0:
            value[node] = min(max(value[node], low[node]), high[node])
            continue
        low[left] = low[right] = low[node]
        high[left] = high[right] = high[node]
        if direction[node] != 0:
            middle = min(max((mean[left] + mean[right]) / 2.0, low[node]), high[node])
            if direction[node] > 0:
                high[left], low[right] = middle, middle
            else:
                low[left], high[right] = middle, middle


# --- what each candidate is worth in every node of a level -----------------------------------------------------------


class Groups(NamedTuple):
    """Runs of equal candidates, node after node; room for as many as there are candidates."""

    utility: Floats
    first: Ints  # number of the run's first candidate
    size: Ints  # candidates in the run
    left: Ints  # [outputs, runs] packed sum of what they send left
    starts: Ints  # [nodes + 1] where each node's groups begin

    @classmethod
    def room_for(cls, n_outputs: int, n_nodes: int, n_candidates: int) -> Groups:
        """Arrays that `score_families` fills."""
        most = n_nodes * n_candidates
        first, size = np.empty((2, most), np.int64)
        left = np.empty((n_outputs, most), np.int64)
        return cls(np.empty(most), first, size, left, np.zeros(n_nodes + 1, np.int64))


@inline_kernel
def unpacked(packed: np.int64, scale: Scale) -> tuple[float, float]:
    """The gradient, from the high bits, and the number or the weight of records, from the low ones."""
    count_bits = np.int64(scale.count_bits)
    gradient = np.float64(packed >> count_bits) / np.float64(np.int64(1) << np.int64(scale.gradient_bits))
    count = packed & ((np.int64(1) << count_bits) - np.int64(1))
    return gradient, np.float64(count) / np.float64(np.int64(1) << np.int64(scale.weight_bits))


@inline_kernel
def utility_of(left: np.int64, gradient: float, count: float, l2: float, scale: Scale) -> float:
    """One division where both sides have a denominator, in the engine's order of operations."""
    gl, nl = unpacked(left, scale)
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
    cells: Ints,  # in/out [outputs, slots, cells]
    totals: Ints,  # in  [outputs, nodes] packed
    allowed: Bools,  # in  [nodes, features] what a node may ask about
    scale: Scale,
    l2: float,
    above_parent: bool,  # in  utilities count from that of not splitting, as the engine's gains do
    groups: Groups,  # out
) -> None:
    """Siblings by subtraction, then the groups of all nodes, in the order of nodes."""
    first_cell, n_codes = layout.first_cell, layout.n_codes
    n_outputs = totals.shape[0]
    for output in range(n_outputs):
        subtract_siblings(built, derived, slots, cells[output], first_cell, n_codes)
    utility, first, size, left_out, starts = groups
    n_candidates = candidates.feature.shape[0]
    n_features = allowed.shape[1]
    first_bin = spread.first
    bins = np.empty(first_bin[-1] + layout.n_value_bins[-1] + 1, np.int64)
    left = np.empty((n_outputs, n_candidates), np.int64)
    n_groups = 0
    for node in range(totals.shape[1]):
        starts[node] = n_groups
        empty = unpacked(totals[0, node], scale)[1] == 0.0
        parent = 0.0
        for output in range(n_outputs):
            if empty:
                left[output, :] = 0
                continue
            if above_parent:
                gradient, count = unpacked(totals[output, node], scale)
                parent += gradient * gradient / (count + l2)
            spread_cells(spread, cells[output, slots[node]], n_codes, first_cell, bins)
            left_sums(candidates, layout, first_bin, bins, left[output])
        begin = -1
        for feature in range(n_features):
            if not allowed[node, feature]:
                begin = -1
                continue
            for candidate in range(candidates.first[feature], candidates.first[feature + 1]):
                alike = begin >= 0
                for output in range(n_outputs):
                    alike = alike and left[output, candidate] == left[output, begin]
                if alike:
                    size[n_groups - 1] += 1
                    continue
                begin = candidate
                worth = 0.0
                for output in range(n_outputs):
                    gradient, count = unpacked(totals[output, node], scale)
                    if not empty:
                        worth += utility_of(left[output, begin], gradient, count, l2, scale)
                    left_out[output, n_groups] = left[output, begin]
                utility[n_groups], first[n_groups], size[n_groups] = worth - parent, begin, 1
                n_groups += 1
    starts[totals.shape[1]] = n_groups


class Answers(NamedTuple):
    """What a level's nodes chose and what follows from it; room for the widest level."""

    candidate: Ints  # [nodes] -1 for a node that becomes a leaf
    feature: Ints  # [nodes] that of the candidate, or -1
    missing_left: Bools  # [nodes]
    goes_left: Bytes  # [nodes, 256] by the feature's code
    children: Ints  # [outputs, 2 x nodes] packed sums, left and right of each splitting node in turn

    @classmethod
    def room_for(cls, n_outputs: int, n_nodes: int) -> Answers:
        """Arrays that `read_choices` fills."""
        return cls(
            candidate=np.empty(n_nodes, np.int64),
            feature=np.empty(n_nodes, np.int64),
            missing_left=np.empty(n_nodes, np.bool_),
            goes_left=np.empty((n_nodes, 256), np.uint8),
            children=np.empty((n_outputs, 2 * n_nodes), np.int64),
        )


@kernel
def read_choices(
    candidates: Candidates,
    layout: Layout,
    groups: Groups,
    group: Ints,  # in  [nodes] the chosen group of each
    member: Ints,  # in  [nodes] and which of its candidates
    totals: Ints,  # in  [outputs, nodes] packed
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
            for output in range(totals.shape[0]):
                children[output, 2 * n_splitting] = groups.left[output, chosen]
                children[output, 2 * n_splitting + 1] = totals[output, node] - groups.left[output, chosen]
            n_splitting += 1
    return n_splitting


@kernel
def follow_heavier_side(
    layout: Layout, spread: Spread, slots: Ints, cells: Ints, totals: Ints, scale: Scale, answers: Answers
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
        left = answers.children[0, 2 * n_splitting]
        n_splitting += 1
        missing_code = layout.n_value_bins[feature]
        spread_cells(spread, cells[slots[node]], layout.n_codes, layout.first_cell, bins)
        if not layout.is_categorical[feature] and bins[spread.first[feature] + missing_code] == 0:
            heavier_left = 2.0 * unpacked(left, scale)[1] >= unpacked(totals[node], scale)[1]
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
