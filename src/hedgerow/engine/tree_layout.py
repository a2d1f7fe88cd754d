"""An ensemble laid out for prediction: its nodes in a row, the columns they ask about, and the choices of each tree.

Choices are how a block of rows goes through a tree from the leaves up, without any jump. Each inner node turns the
results of its two children, one byte per row, into one result per row:

    result[node] = result[right] where code[column] > cut, else result[left]         a leaf's result is its number

so 64 rows cost one comparison and one selection per node, whatever way the rows take; the root's result is the leaf's
number. Of a large tree only the top is chosen through; the numbers are then those of the nodes right below it.

Missing values cost nothing. A missing value has the highest code, hence goes right. For nodes that send it left, there
is one more column, with missing values at code 0. A split by levels asks about a column of zeros and ones, looked up
in the node's table, with cut 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Ints
from hedgerow.errors import InvalidInput

if TYPE_CHECKING:
    from hedgerow.engine.ensemble import Tree

MOST_CHOICES = 127
"""Choices per tree: seven full levels. Below them, going on level by level is faster. They have 128 exits at most."""

WALK_COST, CHOICE_COST, TABLE_COST = 4.0, 0.02, 0.6
"""Nanoseconds per row: one level of a walk; one choice; one look-up of a level. They decide only which way is taken."""


class TreeLayout(NamedTuple):
    """The trees of an ensemble as the kernels read them. M nodes, T trees; a tree's nodes keep their order."""

    column_feature: Any  # int32[V]: feature that a column of the block is taken from
    column_low: Any  # uint8[V]: 1 = missing values count as the lowest code in this column
    missing_code: Any  # uint8[F]
    node_start: Any  # int64[T + 1]
    node_key: Any  # int32[M]: 256 * column of the block + cut; codes above the cut go right. 255 for leaves: none does
    node_left: Any  # int32[M]: left child among all M nodes, the right one follows; for leaves: the leaf itself
    node_table: Any  # int32[M]: row of goes_right for a split by levels, else -1
    node_value: Any  # float32[M]
    goes_right: Any  # uint8[S, 256]: one row per set of levels: code -> 1 if it goes right
    table_column: Any  # int32[S]: column of the block that the set is asked about
    table_start: Any  # int64[T + 1]
    most_tables: int  # in one tree
    choice: Any  # int64[C]: column, into, right, left, cut in one word (see write_choices); children first
    choice_start: Any  # int64[T + 1]; a tree without choices is walked
    exit_node: Any  # int32[E]: where a row is after the choices, by the number that came out
    exit_value: Any  # float32[E]: the value of that node
    exit_start: Any  # int64[T + 1]
    levels_left: Any  # int32[T]: levels below the choices; -1: they are walked too


def lay_out(trees: Sequence[Tree], features: Sequence[FeatureBins]) -> TreeLayout:
    """Concatenate the trees and write down the choices of each."""
    node_start, table_start = _starts([t.n_nodes for t in trees]), _starts([len(t.left_levels) for t in trees])
    feature, missing_left = joined(trees, "feature", np.int32), joined(trees, "missing_left", np.bool_)
    level_set, left = joined(trees, "level_set", np.int32), joined(trees, "left", np.int32)
    inner, by_levels = feature >= 0, level_set >= 0
    tree_of_node = np.repeat(np.arange(len(trees)), np.diff(node_start))

    # A column of the block for each (feature, where missing values count) that some node asks about.
    wanted = 2 * feature[inner] + (missing_left[inner] & ~by_levels[inner])
    columns = np.unique(wanted)
    node_column = np.zeros(len(feature), np.int32)
    node_column[inner] = np.searchsorted(columns, wanted)

    node_table = np.where(by_levels, level_set + table_start[tree_of_node], -1).astype(np.int32)
    missing_code = np.array([f.missing_code for f in features], np.uint8)
    goes_right = (~joined(trees, "left_levels", np.bool_)).view(np.uint8).reshape(-1, MAX_BINS)
    table_column = np.zeros(len(goes_right), np.int32)
    table_column[node_table[by_levels]] = node_column[by_levels]
    for node in np.flatnonzero(by_levels).tolist():  # codes from the missing one on follow the node's missing direction
        goes_right[node_table[node], missing_code[feature[node]] :] = not missing_left[node]

    node_left = np.where(inner, left + node_start[tree_of_node], np.arange(len(feature))).astype(np.int32)
    cut = np.where(inner, np.where(by_levels, 0, joined(trees, "bin", np.int32)), 255)
    if cut.max(initial=0) >= MAX_BINS:
        raise InvalidInput(f"a node splits after bin {cut.max()}, which no byte can hold")
    node_key = (256 * node_column + cut).astype(np.int32)
    node_value = joined(trees, "value", np.float32)

    last_chosen, levels_left = np.empty(len(trees), np.int64), np.empty(len(trees), np.int32)
    find_tops(node_start, node_left, table_start, last_chosen, levels_left)
    most = int(np.minimum(np.diff(node_start) // 2, MOST_CHOICES).sum())
    choice, choice_start = np.empty(most, np.int64), np.zeros(len(trees) + 1, np.int64)
    exit_node, exit_start = np.empty(most + len(trees), np.int32), np.zeros(len(trees) + 1, np.int64)
    write_choices(
        node_start, node_key, node_left, node_table, table_start, len(columns), last_chosen,
        choice, choice_start, exit_node, exit_start,
    )  # fmt: skip
    exit_node = exit_node[: exit_start[-1]]
    return TreeLayout(
        column_feature=(columns // 2).astype(np.int32),
        column_low=(columns % 2).astype(np.uint8),
        missing_code=missing_code,
        node_start=node_start,
        node_key=node_key,
        node_left=node_left,
        node_table=node_table,
        node_value=node_value,
        goes_right=goes_right,
        table_column=table_column,
        table_start=table_start,
        most_tables=int(np.diff(table_start).max(initial=0)),
        choice=choice,
        choice_start=choice_start,
        exit_node=exit_node,
        exit_value=node_value[exit_node],
        exit_start=exit_start,
        levels_left=levels_left,
    )


def _starts(lengths: Sequence[int]) -> Ints:
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def joined(trees: Sequence[Tree], name: str, dtype: Any) -> Any:
    """One array of all trees' nodes."""
    if not trees:
        return np.zeros(0, dtype)
    return np.concatenate([getattr(tree, name) for tree in trees])


@kernel
def find_tops(node_start: Any, node_left: Any, table_start: Any, last_chosen: Any, levels_left: Any) -> None:
    """Per tree: the last node that is chosen through (out; -1: none, the tree is walked) and the levels below it (out).

    Nodes are breadth-first, so the top of a tree is its first MOST_CHOICES inner nodes, and the next inner node is on
    the highest level that is not chosen through.
    """
    level = np.zeros(node_left.shape[0], np.int32)
    for tree in range(last_chosen.shape[0]):
        n_inner, depth, top, below = 0, 0, -1, -1
        for node in range(node_start[tree], node_start[tree + 1]):
            left = node_left[node]
            depth = max(depth, level[node])
            if left != node:
                level[left], level[left + 1] = level[node] + 1, level[node] + 1
                n_inner += 1
                if n_inner <= MOST_CHOICES:
                    top = node
                elif below < 0:
                    below = level[node]
        n_tables = table_start[tree + 1] - table_start[tree]
        cost = CHOICE_COST * min(n_inner, MOST_CHOICES) + TABLE_COST * n_tables
        last_chosen[tree] = top if cost <= WALK_COST * depth else -1
        levels_left[tree] = 0 if below < 0 else depth - below
        if n_tables > 0 and below >= 0:
            levels_left[tree] = -1


@kernel
def write_choices(
    node_start: Any, node_key: Any, node_left: Any, node_table: Any, table_start: Any, n_columns: int, last_chosen: Any,
    choice: Any, choice_start: Any, exit_node: Any, exit_start: Any,
) -> None:  # fmt: skip
    """The choices for the top of each tree, and the nodes that they lead to.

    Choices come in an order that puts children first: that of a depth-first visit from the root, backwards. So the
    right subtree of a node is finished before the left one starts, and the left one must spare the row of results that
    holds the right one's. As few rows as the tree is deep are needed; they stay in the first-level cache. The root has
    row 0.

    A choice is one word: column << 32 | into << 24 | right << 16 | left << 8 | cut. `left` and `right` are the number
    of an exit, or 128 + the row of an earlier result.
    """
    n_nodes = node_left.shape[0]
    waiting, row, number = np.empty(n_nodes + 1, np.int32), np.zeros(n_nodes, np.int64), np.full(n_nodes, -1, np.int64)
    n_choices, n_exits = 0, 0
    for tree in range(last_chosen.shape[0]):
        start, last = node_start[tree], last_chosen[tree]
        if last >= 0:
            for node in range(start, node_left[last] + 2):  # up to the right child of the last node chosen through
                if node_left[node] == node or node > last:
                    number[node] = n_exits - exit_start[tree]
                    exit_node[n_exits] = node
                    n_exits += 1
            n_choices += n_exits - exit_start[tree] - 1
            place = n_choices
            waiting[0], n_waiting = start, 1
            while n_waiting > 0:
                n_waiting -= 1
                place -= 1
                node = waiting[n_waiting]
                left = np.int64(node_left[node])
                right = left + 1
                row[right] = row[node]
                row[left] = row[node] + (0 if number[right] >= 0 else 1)
                for child in (right, left):
                    if number[child] < 0:
                        waiting[n_waiting] = child
                        n_waiting += 1
                column = np.int64(node_key[node] >> 8)
                if node_table[node] >= 0:
                    column = n_columns + node_table[node] - table_start[tree]
                on_left = number[left] if number[left] >= 0 else row[left] + 128
                on_right = number[right] if number[right] >= 0 else row[right] + 128
                choice[place] = column << 32 | row[node] << 24 | on_right << 16 | on_left << 8 | (node_key[node] & 255)
        choice_start[tree + 1], exit_start[tree + 1] = n_choices, n_exits
