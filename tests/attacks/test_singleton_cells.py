"""The attack on single cells by hand: what it must find, what it must not, and how it is scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.attacks.secure_sum.singleton_cells import (
    ExposedCell,
    Public,
    SeenLevel,
    all_nodes,
    find_single_records,
    score,
)

PUBLIC = Public(np.array([0, 4]), 2.0**-20, 2.0**-20)
NOTHING = np.empty(0, np.int64)
NEGATIVE = (2**19 << 32) + 2**18  # p = 1/2, y = 0: g = 1/2, h = 1/4
POSITIVE = (-(2**19) << 32) + 2**18  # y = 1: g = -1/2


def record(p, y):
    """One record's gradient and hessian, rounded as the engine does."""
    return (round((p - y) * 2**20) << 32) + round(p * (1 - p) * 2**20)


def root(cells):
    """The sums of a root."""
    return SeenLevel(0, 0, NOTHING, np.empty((0, 256), np.uint8), np.zeros(1, np.int64), np.array([cells]))


def below(nodes, sums, splits=(0,)):
    """The sums of some nodes of the next level; codes 0 and 1 go left."""
    goes_left = np.zeros((len(splits), 256), np.uint8)
    goes_left[:, :2] = 1
    return SeenLevel(0, 1, np.array(splits), goes_left, np.array(nodes), np.array(sums))


def test_records_that_are_alone_are_found_with_their_labels():
    """Bin and label of each single record, whatever its score; empty cells and cells of several are left alone."""
    found = find_single_records([root([0, NEGATIVE, 0, POSITIVE])], PUBLIC)
    assert [(cell.feature, cell.bin, cell.label) for cell in found] == [(0, 1, 0), (0, 3, 1)]
    several = [0, NEGATIVE + POSITIVE, 2 * NEGATIVE, 3 * NEGATIVE]
    assert find_single_records([root(several)], PUBLIC) == []


@pytest.mark.parametrize("p", [0.003, 0.1, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("y", [0, 1])
def test_any_score_gives_the_label_away(p, y):
    """h = |g| (1 - |g|) holds for one record and for no two, so no guess about scores is needed."""
    cells = [record(p, y), record(p, y) + record(0.4, 0), record(p, y) + record(0.3, 1), record(0.2, 0)]
    found = find_single_records([root(cells)], PUBLIC)
    assert [(cell.bin, cell.label) for cell in found] == [(0, y), (3, 0)]


def test_siblings_follow_by_subtraction():
    """One child was sent; the other is its parent less that."""
    parent = [NEGATIVE, 0, POSITIVE, NEGATIVE]
    levels = [root(parent), below([1], [[0, 0, POSITIVE, NEGATIVE]])]
    nodes = {(level, node): cells.tolist() for _, level, node, cells in all_nodes(levels)}
    assert nodes[1, 0] == [NEGATIVE, 0, 0, 0]
    assert nodes[1, 1] == [0, 0, POSITIVE, NEGATIVE]
    assert set(nodes) == {(0, 0), (1, 0), (1, 1)}


def test_leaves_have_no_children():
    """The children of splitting nodes are numbered among themselves; what is not known is not made up."""
    levels = [root([NEGATIVE] * 4), below([0, 1, 2], np.zeros((3, 4), np.int64), splits=(-1, 0, 0))]
    assert sorted(node for _, level, node, _ in all_nodes(levels) if level == 1) == [0, 1, 2]


def test_own_part_is_taken_off():
    """What the adversary knows of a sum is subtracted before it looks."""
    both = root([NEGATIVE + POSITIVE, 0, 0, 0])
    seen = replace(both, sums=both.sums - np.array([[POSITIVE, 0, 0, 0]]))
    assert [cell.label for cell in find_single_records([seen], PUBLIC)] == [0]


def test_claims_are_held_against_the_rows():
    """Right cells, records behind them, records that are alone in a node; a wrong label or a full cell counts not."""
    codes, labels = np.array([[0, 2, 3, 3]], np.uint8), np.array([0.0, 1.0, 0.0, 0.0])
    levels = [root([0] * 4), below([0], [[0] * 4])]
    claims = [
        ExposedCell(0, 0, 0, 0, 0, 0),  # row 0, right
        ExposedCell(0, 1, 0, 0, 0, 0),  # row 0 again, now alone in its node
        ExposedCell(0, 0, 0, 0, 2, 0),  # row 1 with the wrong label
        ExposedCell(0, 1, 1, 0, 2, 1),  # row 1, right
        ExposedCell(0, 1, 1, 0, 3, 0),  # two rows
        ExposedCell(0, 0, 0, 0, 1, 0),  # none
    ]
    result = score(claims, levels, codes, labels)
    assert (result.cells, result.right_cells, result.records, result.whole_records) == (6, 3, 2, 1)
    assert result.right_cells / result.cells == 0.5
    assert result.records / result.n_records == 0.5
    assert score([], levels, codes, labels).cells == 0
