"""What each column adds to a row's score: path-dependent TreeSHAP (Lundberg, Erion, Lee) in the engine's own way.

The players of a tree's game are columns, or groups of features given as one player. With the players of a set S known,
a row goes its own way at their nodes; at all other nodes both ways count, each by its share of the cover. So a leaf of
value v gives v * prod(o_j for j in S) * prod(z_j for j not in S), where for each player j on the path to the leaf

    o_j   1 if the row goes the leaf's way at all nodes of the player, else 0
    z_j   the product of the shares of the cover that go the leaf's way at these nodes

The Shapley weights of sets are integrals, |S|! (d - |S| - 1)! / d! = integral of t^|S| (1 - t)^(d - |S| - 1) over
[0, 1], and sums of products are products of sums. So with d players on its path a leaf adds to player i

    v * (o_i - z_i) * integral of prod(t o_j + (1 - t) z_j for j != i) dt,

the integral of a polynomial of degree d - 1, for which ceil(d / 2) points of Gauss and Legendre are exact. All terms
are products of numbers between 0 and 1; nothing is divided or cancels, however deep the tree is.

A row matters to a leaf only by its o, a pattern of d bits: rows of the same pattern share one calculation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, checked_codes
from hedgerow.engine.threads import Team
from hedgerow.engine.tree_layout import TreeLayout, joined, lay_out
from hedgerow.errors import InvalidInput

MOST_PLAYERS = 64
"""Different players on the way to one leaf: the bits of a pattern."""

MOST_REMEMBERED = 10
"""Players up to which a leaf keeps the shares of all patterns, for a tile of rows, in a table of 80 kB at most."""

TILE_BYTES = 1 << 20
"""Sums of one tile of rows, all players: within the second-level cache."""


class Game(NamedTuple):
    """What contributions need beside the trees' own layout (`tree_layout.py`). M nodes."""

    player: Any  # int64[features]
    share: Any  # float64[M]: of the cover of the node and its sibling together
    reach: Any  # float64[M]: product of the shares on the way to the node
    depth: int  # of the deepest tree


class Way(NamedTuple):
    """What belongs to the nodes between the root and where a kernel is in a tree, by level, for a tile of rows."""

    player: Any  # int64[levels, slots]: players so far
    zero: Any  # float64[levels, slots]: their z
    n_slots: Any  # int64[levels]
    pattern: Any  # uint64[levels, rows]: bit k is the o of the player in slot k; bits that no player has are set
    goes_left: Any  # uint64[levels, rows]: 1 if the row goes left at the node


class Desk(NamedTuple):
    """Points and weights of the quadrature, and room to work with one leaf."""

    points: Any  # float64[points + 1, points]
    weights: Any  # float64[points + 1, points]
    before: Any  # float64[slots]: products over the slots before each
    shares: Any  # float64[slots]: what the leaf adds
    seen: Any  # bool[patterns]: whether the table holds this pattern
    table: Any  # float64[slots, patterns]
    place: Any  # int64[rows]: the pattern of each row, as a place in the table


def contributions(ensemble: Ensemble, codes: Bytes, group_of_feature: Ints | None = None, n_threads: int = 1) -> Floats:
    """What each player adds to the raw scores of the rows of `codes` uint8 [features, rows]; then what is expected.

    float64 [rows, players + 1, outputs]. Features of equal numbers in `group_of_feature` are one player; without it
    each feature is one. The last entry is the same for all rows: the base score and, of each tree, the mean of the leaf
    values, weighted with the cover. Over all players and it the sum is the raw score. A node with less cover than
    none, as noise can make it, counts as one with none; where both children have none, each gets half.
    """
    codes = checked_codes(codes, len(ensemble.features))
    player_of = checked_groups(group_of_feature, len(ensemble.features))
    n_players = int(player_of.max(initial=-1)) + 1
    layout, game = game_of(ensemble, player_of)
    n_rows, n_outputs = codes.shape[1], ensemble.n_outputs
    out = np.zeros((n_rows, n_players + 1, n_outputs))
    out[:, n_players] = expected_scores(ensemble, layout, game)
    tile = min(max(TILE_BYTES // (8 * max(n_players, 1)), 128), 2048, max(n_rows, 1))
    rule = quadrature(min(MOST_PLAYERS, game.depth))
    tasks = [(layout, game, codes, first, min(first + tile, n_rows), *rule, out) for first in range(0, n_rows, tile)]
    if not all(Team(n_threads).run(add_contributions, tasks)):
        raise too_many_players()
    return out


def too_many_players() -> InvalidInput:
    """What is raised for trees with longer patterns than a word has bits."""
    return InvalidInput(
        f"a leaf is reached through splits of more than {MOST_PLAYERS} different columns; contributions cannot be "
        "calculated for such trees"
    )


def game_of(ensemble: Ensemble, player_of: Ints) -> tuple[TreeLayout, Game]:
    """The trees' layout, and the shares of the cover on every way."""
    layout = lay_out(ensemble.trees, ensemble.features)
    cover = joined(ensemble.trees, "cover", np.float64)
    share, reach = np.ones(len(cover)), np.ones(len(cover))
    depth = follow_cover(layout.node_left, cover, share, reach)
    return layout, Game(player_of, share, reach, depth)


def checked_groups(group_of_feature: Ints | None, n_features: int) -> Ints:
    """The player of each feature."""
    if group_of_feature is None:
        return np.arange(n_features)
    groups = np.asarray(group_of_feature)
    if groups.shape != (n_features,) or groups.dtype.kind not in "iu" or (groups < 0).any():
        raise InvalidInput(f"group_of_feature must hold a number from 0 on for each of {n_features} features")
    return groups.astype(np.int64)


def expected_scores(ensemble: Ensemble, layout: TreeLayout, game: Game) -> Floats:
    """Per output: base score and mean of the leaf values by cover."""
    leaf = layout.node_left == np.arange(len(layout.node_left))
    n_nodes = np.diff(layout.node_start)
    output = np.repeat(np.arange(len(n_nodes)) % ensemble.n_outputs, n_nodes)
    means = np.bincount(output[leaf], (layout.node_value * game.reach)[leaf], minlength=ensemble.n_outputs)
    return ensemble.base_scores + means


def quadrature(most_players: int) -> tuple[Floats, Floats]:
    """Points and weights on [0, 1]: row k is exact for polynomials of degree 2k - 1, such as those of 2k players."""
    most = max((most_players + 1) // 2, 1)
    points, weights = np.zeros((most + 1, most)), np.zeros((most + 1, most))
    for k in range(1, most + 1):
        x, w = np.polynomial.legendre.leggauss(k)
        points[k, :k], weights[k, :k] = (x + 1) / 2, w / 2
    return points, weights


@kernel
def follow_cover(left: Any, cover: Any, share: Any, reach: Any) -> int:
    """Shares of the cover and products of them on the way (out, 1 at the roots); returns the greatest depth."""
    level = np.zeros(left.shape[0], np.int64)
    deepest = 0
    for node in range(left.shape[0]):  # a parent comes before its children; a leaf is its own left child
        if left[node] == node:
            continue
        one, two = max(cover[left[node]], 0.0), max(cover[left[node] + 1], 0.0)
        # Not divided by the parent's cover: sums of floats may differ from it, and shares must add up to one.
        part = one / (one + two) if one + two > 0.0 else 0.5
        for side in range(2):
            child = left[node] + side
            share[child] = part if side == 0 else 1.0 - part
            reach[child] = reach[node] * share[child]
            level[child] = level[node] + 1
            deepest = max(deepest, level[child])
    return deepest


@kernel
def write_shares(pattern: Any, n_slots: int, zero: Any, value: float, desk: Any) -> None:
    """What a leaf adds to each player of its path, for rows of one pattern, into the `shares` of the desk (out)."""
    shares, before = desk.shares, desk.before
    one = np.uint64(1)
    n_points = (n_slots + 1) // 2
    for slot in range(n_slots):
        shares[slot] = 0.0
    for q in range(n_points):
        t = desk.points[n_points, q]
        product = desk.weights[n_points, q]
        for slot in range(n_slots):
            before[slot] = product
            product *= t * np.float64((pattern >> np.uint64(slot)) & one) + (1.0 - t) * zero[slot]
        after = 1.0
        for slot in range(n_slots - 1, -1, -1):
            shares[slot] += before[slot] * after
            after *= t * np.float64((pattern >> np.uint64(slot)) & one) + (1.0 - t) * zero[slot]
    for slot in range(n_slots):
        shares[slot] *= value * (np.float64((pattern >> np.uint64(slot)) & one) - zero[slot])


@kernel
def add_leaf(level: int, value: float, way: Any, desk: Any, total: Any) -> None:
    """Add what the leaf at this level of the way gives to each row of the tile to `total` [players, rows] (out)."""
    n_slots, player, zero, pattern = way.n_slots[level], way.player[level], way.zero[level], way.pattern[level]
    table, place = desk.table, desk.place
    wanted = ~np.uint64(0) >> np.uint64(64 - n_slots)  # the bits that players have; n_slots is never 0 here
    if n_slots > MOST_REMEMBERED:
        for i in range(pattern.shape[0]):
            write_shares(pattern[i] & wanted, n_slots, zero, value, desk)
            for slot in range(n_slots):
                total[player[slot], i] += desk.shares[slot]
        return
    desk.seen[: 1 << n_slots] = False
    for i in range(pattern.shape[0]):
        bits = pattern[i] & wanted
        place[i] = np.int64(bits)
        if not desk.seen[place[i]]:
            desk.seen[place[i]] = True
            write_shares(bits, n_slots, zero, value, desk)
            for slot in range(n_slots):
                table[slot, place[i]] = desk.shares[slot]
    for slot in range(n_slots):
        into = player[slot]
        for i in range(pattern.shape[0]):
            total[into, i] += table[slot, place[i]]


@kernel
def find_left(layout: Any, node: int, codes: Any, start: int, goes_left: Any) -> None:
    """Which rows of `codes` from `start` on go left at an inner node, 0 or 1 for each row of the tile (out)."""
    column, cut, table = layout.node_key[node] >> 8, layout.node_key[node] & 255, layout.node_table[node]
    feature = layout.column_feature[column]
    values = codes[feature, start : start + goes_left.shape[0]]
    if table < 0:
        highest = layout.missing_code[feature] - np.uint8(1) if layout.column_low[column] else np.uint8(255)
        for i in range(goes_left.shape[0]):
            code = values[i] if values[i] <= highest else np.uint8(0)
            goes_left[i] = np.uint64(code <= cut)
    else:
        for i in range(goes_left.shape[0]):
            goes_left[i] = np.uint64(1 - layout.goes_right[table, values[i]])


@kernel
def step_down(layout: Any, game: Any, node: int, above: int, level: int, way: Any) -> bool:
    """Fill a level of the way for `node` from that of its parent `above` (in, out); False if there is no slot left."""
    player = game.player[layout.column_feature[layout.node_key[above] >> 8]]
    slots = way.n_slots[level - 1]
    slot = slots
    for k in range(slots):
        way.player[level, k] = way.player[level - 1, k]
        way.zero[level, k] = way.zero[level - 1, k]
        if way.player[level, k] == player:
            slot = k
    if slot == way.player.shape[1]:
        return False
    if slot == slots:
        way.player[level, slot], way.zero[level, slot] = player, 1.0
        slots += 1
    way.n_slots[level] = slots
    way.zero[level, slot] *= game.share[node]
    is_left = np.uint64(node == layout.node_left[above])
    pattern, pattern_above, goes_left = way.pattern[level], way.pattern[level - 1], way.goes_left[level - 1]
    for i in range(pattern.shape[0]):
        pattern[i] = pattern_above[i] & ~((goes_left[i] ^ is_left) << np.uint64(slot))
    return True


@kernel
def add_tree(layout: Any, game: Any, tree: int, codes: Any, start: int, way: Any, desk: Any, total: Any) -> bool:
    """Add what a tree gives to rows of `codes` from `start` on to `total` [players, rows of the tile] (out).

    Depth first: both children read their parent's level of the way before another node of that level is visited.
    False if a path has more players than a pattern has bits; `total` is then not complete.
    """
    waiting = np.zeros((game.depth + 2, 3), np.int64)  # node, its parent, its level
    waiting[0, 0] = layout.node_start[tree]
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node, above, level = waiting[n_waiting]
        if level > 0 and not step_down(layout, game, node, above, level, way):
            return False
        left = layout.node_left[node]
        if left != node:
            find_left(layout, node, codes, start, way.goes_left[level])
            for side in range(2):
                waiting[n_waiting, 0], waiting[n_waiting, 1] = left + side, node
                waiting[n_waiting, 2] = level + 1
                n_waiting += 1
        elif level > 0:  # a tree of one leaf says the same of all rows
            add_leaf(level, np.float64(layout.node_value[node]), way, desk, total)
    return True


@kernel
def add_contributions(
    layout: Any, game: Any, codes: Any, start: int, stop: int, points: Any, weights: Any, out: Any
) -> bool:
    """Contributions to rows start..stop-1 of `codes` (in) into `out` [rows, players + 1, outputs] (out).

    False if a path has more players than a pattern has bits; `out` is then not complete.
    """
    size, n_players, n_outputs = stop - start, out.shape[1] - 1, out.shape[2]
    n_levels, most = game.depth + 1, min(game.depth + 1, MOST_PLAYERS)
    n_kept = min(most, MOST_REMEMBERED)
    way = Way(
        np.zeros((n_levels, most), np.int64),
        np.zeros((n_levels, most)),
        np.zeros(n_levels, np.int64),
        np.full((n_levels, size), ~np.uint64(0)),
        np.zeros((n_levels, size), np.uint64),
    )
    desk = Desk(
        points,
        weights,
        np.zeros(most),
        np.zeros(most),
        np.zeros(1 << n_kept, np.bool_),
        np.zeros((n_kept, 1 << n_kept)),
        np.zeros(size, np.int64),
    )
    total = np.zeros((n_players, size))
    for output in range(n_outputs):
        total[:] = 0.0
        for tree in range(output, layout.node_start.shape[0] - 1, n_outputs):
            if not add_tree(layout, game, tree, codes, start, way, desk, total):
                return False
        for i in range(size):
            for k in range(n_players):
                out[start + i, k, output] = total[k, i]
    return True
