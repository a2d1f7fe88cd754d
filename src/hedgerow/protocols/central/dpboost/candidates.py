"""The public list of questions a node may ask, and what each is worth in every node of a level.

Candidates are numbered feature after feature:

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

from typing import NamedTuple

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints
from hedgerow.engine.histogram import subtract_siblings
from hedgerow.engine.layout import Layout
from hedgerow.errors import InvalidParameter
from hedgerow.schema import Schema

COUNT_BITS = 24
GRADIENT_BITS = 14
UNIT = 2.0**-GRADIENT_BITS
MAX_ROWS = 2**COUNT_BITS - 1
"""A record is (q << 24) + 1, where q is its gradient in steps of 2^-14, at most 2^15 in absolute value. Sums over any
set of at most MAX_ROWS records keep their count in the low 24 bits and their gradient, below 2^39, in the 40 above.
The scale does not depend on the number of records, which is private: else one more could move everybody's q."""


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
        n_members = np.zeros(layout.n_columns, np.int64)
        for column in range(layout.n_columns):
            members = np.flatnonzero(layout.column_of_feature == column)
            n_members[column] = len(members)
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
