"""How much two columns add to a row's score only together: interaction values of path-dependent TreeSHAP, exactly.

The game is that of `contributions.py`, and so are o, z and the integral. Lundberg, Erion and Lee divide what players i
and j add together, beyond what each adds alone, half and half between [i, j] and [j, i]:

    sum over sets S without i, j of |S|! (d - |S| - 2)! / (2 (d - 1)!) * (what i and j add to S together - each alone)

The weights are half of an integral of t^|S| (1 - t)^(d - |S| - 2), so that a leaf of value v adds to both

    v / 2 * (o_i - z_i) * (o_j - z_j) * integral of prod(t o_k + (1 - t) z_k for k other than i and j) dt,

of a polynomial of degree d - 2. What is left of a column's contribution is its own, [i, i]: so each row of the matrix
sums up to the column's contribution, and all of it to the score. Nothing is divided; no set of columns is gone through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.contributions import (
    MOST_PLAYERS,
    Way,
    checked_groups,
    contributions,
    find_left,
    game_of,
    quadrature,
    step_down,
    too_many_players,
)
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, checked_codes
from hedgerow.engine.threads import Team

MOST_REMEMBERED = 7
"""Players up to which a leaf keeps the pairs of all patterns, for a tile of rows."""
TILE_BYTES = 1 << 20


class PairDesk(NamedTuple):
    """Points and weights of the quadrature, and room to work with one leaf."""

    points: Any  # float64[points + 1, points]
    weights: Any  # float64[points + 1, points]
    term: Any  # float64[slots]: t o + (1 - t) z at one point
    after: Any  # float64[slots + 1]: products over the slots from each on
    pairs: Any  # float64[slots, slots]: what the leaf adds, above the diagonal
    seen: Any  # bool[patterns]
    table: Any  # float64[patterns, slots, slots]


def interactions(ensemble: Ensemble, codes: Bytes, group_of_feature: Ints | None = None, n_threads: int = 1) -> Floats:
    """What each pair of players adds to the raw scores of the rows of `codes` uint8 [features, rows].

    float64 [rows, players + 1, players + 1, outputs], symmetric; the sum over the second axis is `contributions`, which
    says what the last player is and what `group_of_feature` does. Of the last row and column only the corner is not 0.
    """
    codes = checked_codes(codes, len(ensemble.features))
    player_of = checked_groups(group_of_feature, len(ensemble.features))
    alone = contributions(ensemble, codes, player_of, n_threads)
    n_rows, n_players = len(alone), alone.shape[1] - 1
    out = np.zeros((n_rows, n_players + 1, n_players + 1, ensemble.n_outputs))
    layout, game = game_of(ensemble, player_of)
    tile = min(max(TILE_BYTES // (8 * max(n_players, 1) ** 2), 64), 2048, max(n_rows, 1))
    rule = quadrature(min(MOST_PLAYERS, game.depth))
    tasks = [(layout, game, codes, first, min(first + tile, n_rows), *rule, out) for first in range(0, n_rows, tile)]
    if not all(Team(n_threads).run(add_interactions, tasks)):
        raise too_many_players()
    of_itself = alone - out.sum(axis=2)
    for player in range(n_players + 1):
        out[:, player, player] = of_itself[:, player]
    return out


@kernel
def write_pairs(pattern: Any, n_slots: int, zero: Any, value: float, desk: Any) -> None:
    """What a leaf adds to each pair of players of its path, for rows of one pattern, into the `pairs` (out)."""
    pairs, term, after = desk.pairs, desk.term, desk.after
    one = np.uint64(1)
    n_points = max(n_slots // 2, 1)
    for i in range(n_slots):
        for j in range(i + 1, n_slots):
            pairs[i, j] = 0.0
    for q in range(n_points):
        t = desk.points[n_points, q]
        after[n_slots] = 1.0
        for k in range(n_slots - 1, -1, -1):
            term[k] = t * np.float64((pattern >> np.uint64(k)) & one) + (1.0 - t) * zero[k]
            after[k] = after[k + 1] * term[k]
        before = desk.weights[n_points, q]
        for i in range(n_slots):
            between = before
            for j in range(i + 1, n_slots):
                pairs[i, j] += between * after[j + 1]
                between *= term[j]
            before *= term[i]
    for i in range(n_slots):
        own = 0.5 * value * (np.float64((pattern >> np.uint64(i)) & one) - zero[i])
        for j in range(i + 1, n_slots):
            pairs[i, j] *= own * (np.float64((pattern >> np.uint64(j)) & one) - zero[j])


@kernel
def add_leaf_pairs(level: int, value: float, way: Any, desk: Any, start: int, output: int, out: Any) -> None:
    """Add what the leaf at this level of the way gives to each row of the tile to `out` (out)."""
    n_slots, player, zero, pattern = way.n_slots[level], way.player[level], way.zero[level], way.pattern[level]
    wanted = ~np.uint64(0) >> np.uint64(64 - n_slots)  # the bits that players have; n_slots is never 0 here
    remembers = n_slots <= MOST_REMEMBERED
    if remembers:
        desk.seen[: 1 << n_slots] = False
    for row in range(pattern.shape[0]):
        bits = pattern[row] & wanted
        place = np.int64(bits) if remembers else 0
        if not remembers or not desk.seen[place]:
            write_pairs(bits, n_slots, zero, value, desk)
            if remembers:
                desk.seen[place] = True
            for i in range(n_slots):
                for j in range(i + 1, n_slots):
                    desk.table[place, i, j] = desk.pairs[i, j]
        for i in range(n_slots):
            for j in range(i + 1, n_slots):
                pair = desk.table[place, i, j]
                out[start + row, player[i], player[j], output] += pair
                out[start + row, player[j], player[i], output] += pair


@kernel
def add_tree_pairs(
    layout: Any, game: Any, tree: int, codes: Any, start: int, way: Any, desk: Any, output: int, out: Any
) -> bool:
    """Add what a tree gives to rows of `codes` from `start` on to `out` (out), depth first, as `add_tree` does.

    False if a path has more players than a pattern has bits; `out` is then not complete.
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
        elif level > 0 and way.n_slots[level] > 1:
            add_leaf_pairs(level, np.float64(layout.node_value[node]), way, desk, start, output, out)
    return True


@kernel
def add_interactions(
    layout: Any, game: Any, codes: Any, start: int, stop: int, points: Any, weights: Any, out: Any
) -> bool:
    """Pairs of players for rows start..stop-1 of `codes` (in), added to `out`, which `interactions` describes (out).

    False if a path has more players than a pattern has bits; `out` is then not complete.
    """
    size, n_outputs = stop - start, out.shape[3]
    n_levels, most = game.depth + 1, min(game.depth + 1, MOST_PLAYERS)
    n_kept = min(most, MOST_REMEMBERED)
    way = Way(
        np.zeros((n_levels, most), np.int64),
        np.zeros((n_levels, most)),
        np.zeros(n_levels, np.int64),
        np.full((n_levels, size), ~np.uint64(0)),
        np.zeros((n_levels, size), np.uint64),
    )
    desk = PairDesk(
        points,
        weights,
        np.zeros(most),
        np.zeros(most + 1),
        np.zeros((most, most)),
        np.zeros(1 << n_kept, np.bool_),
        np.zeros((1 << n_kept, most, most)),
    )
    for output in range(n_outputs):
        for tree in range(output, layout.node_start.shape[0] - 1, n_outputs):
            if not add_tree_pairs(layout, game, tree, codes, start, way, desk, output, out):
                return False
    return True
