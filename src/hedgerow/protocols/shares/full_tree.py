"""A tree with one split for all nodes of a level, grown on shared rows: nobody knows which rows a node has.

Every node v has two shared vectors over all rows, y_v = (g_v, s_v): gradients of its rows and 0 elsewhere, and 1 for
its rows and 0 elsewhere. With dealt masks B_v of y_v, A of the bins X (E = X - A was sent once), a of sides:

    open      F_v = y_v - B_v                          the root and left children; right ones are differences of opened
    sums      X g_v = X (F_v + [B_v]_o)                at the owner o of X, who knows its own share of B_v
                      + E [B_v]_m + A (B_v - [B_v]_o)  at all others m; the last product is dealt;
                                                       right children are differences of shares; only of gradients
    sides     t, 1 for rows that go left               known to the owner of the level's split, who shares it by seeds
    open      e = t - a
    left      t y = a B + e B + F a + e F              [a B] dealt; right: y - t y

Masks of right children are B_parent - B_left, at the dealer and at everybody: F_right = F_parent - F_left is open then,
and nothing new about y is shown by it. Each a covers one t, whatever the number of nodes.

B and A B of a whole tree are dealt before it is begun, and E [B] is computed at once for all of its nodes: E, which is
by far the largest thing, is read once for each tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import Array
from hedgerow.protocols.shares.columns import Matrices, OneHotColumns, children_of
from hedgerow.protocols.shares.mesh import Mesh

VECTORS = 2
"""Of each node."""


def n_nodes(level: int) -> int:
    """Of a full tree."""
    return 1 << level


def _new_nodes(level: int) -> slice:
    """Nodes of a level whose vectors are opened, the root or left children, among all such nodes of a tree."""
    return slice(n_nodes(level) // 2, n_nodes(level))


def _with_right(parents: Array, new: Array, level: int) -> Array:
    """Of all nodes of a level, from what is known of the new ones; the root is one of them."""
    return children_of(parents, new) if level else new


@dataclass
class TreeDealing:
    """What the dealer deals for one tree after the other: B and A B of all levels, then a and a B of each."""

    masks: Array
    matrices: Matrices
    depth: int
    n_threads: int

    def __post_init__(self) -> None:
        self._new = self._b = np.empty(0, self.matrices.kind.dtype)

    def deal_tree(self, step: DealerStep) -> None:
        """For `FullTree.begin`."""
        matrices, n_vectors = self.matrices, VECTORS * n_nodes(self.depth - 1)
        kind, shape = matrices.kind, (n_vectors, matrices.n_rows)
        own = [step.mask(shape, kind, (place,)) for place in range(len(matrices.bins))]
        total = np.sum(own, axis=0, dtype=kind.dtype)
        products = np.empty((n_vectors // VECTORS, matrices.n_bins), kind.dtype)
        for place, mine in enumerate(own):
            bins = matrices.of(place)
            others = total[::VECTORS] - mine[::VECTORS]  # of gradients
            products[:, bins] = rows_times(self.masks[bins], others, n_threads=self.n_threads)
        step.share(products, kind)
        self._new = total.reshape(-1, VECTORS, matrices.n_rows)

    def deal_sides(self, step: DealerStep, level: int) -> None:
        """For `FullTree.divide`, one level after the other."""
        kind = self.matrices.kind
        self._b = _with_right(self._b, self._new[_new_nodes(level)], level)
        a = step.mask(self.matrices.n_rows, kind)
        step.share(np.asarray(a * self._b), kind)


@dataclass
class FullTree:
    """One party's side of one tree after the other. Arrays are [nodes, 2, rows] or [nodes, bins]."""

    mesh: Mesh
    hidden: Array
    columns: OneHotColumns
    matrices: Matrices
    depth: int
    place: int  # the first adds what is public
    n_threads: int

    def begin(self, step: HandStep, gradients: Array) -> None:
        """All rows at the root, with these shares of gradients."""
        matrices, n_vectors = self.matrices, VECTORS * n_nodes(self.depth - 1)
        masks = step.mask((n_vectors, matrices.n_rows), self.matrices.kind, (self.place,)).words
        made = step.share((n_vectors // VECTORS, matrices.n_bins), self.matrices.kind).words
        mine, of_gradients = matrices.of(self.place), np.ascontiguousarray(masks[::VECTORS])
        for others in (slice(0, mine.start), slice(mine.stop, matrices.n_bins)):
            hidden = self.hidden[others]
            made[:, others] += rows_times(hidden, of_gradients, n_threads=self.n_threads)
        self._masks = masks.reshape(-1, VECTORS, matrices.n_rows)
        self._made = made  # all but what the owners of columns add
        ones = np.full_like(gradients, int(self.place == 0))
        self.y = np.stack([gradients, ones])[None]
        self._level = 0
        self._shown = self._b = self.y[:0]  # of the newest level, once `sums` was called
        self._histograms = made[:0]

    @property
    def totals(self) -> Array:
        """Shares of sums over the rows of each node: [nodes, 2]."""
        return np.asarray(self.y.sum(axis=2, dtype=self.y.dtype))

    def sums(self) -> Array:
        """Shares of the histograms of gradients of all nodes of the newest level: [nodes, bins]."""
        level, new = self._level, _new_nodes(self._level)
        y = self.y if level == 0 else self.y[::2]
        b, made = self._masks[new], self._made[new]
        (shown,) = self.mesh.masked_rows(self.matrices.kind, (y, b))
        made[:, self.matrices.of(self.place)] += self.columns.histograms(shown[:, 0] + b[:, 0], self.n_threads)
        self._b = _with_right(self._b, b, level)
        self._shown = _with_right(self._shown, shown, level)
        self._histograms = _with_right(self._histograms, made, level)
        return self._histograms

    def divide(self, step: HandStep, sides: Array) -> None:
        """Children of all nodes, from shares of which rows go left [rows]; `sums` was called before."""
        kind, nodes = self.matrices.kind, n_nodes(self._level)
        a = step.mask(self.matrices.n_rows, kind).words
        dealt = step.share((nodes, VECTORS, self.matrices.n_rows), kind).words
        (e,) = self.mesh.masked_rows(kind, (sides, a))
        children = np.empty((2 * nodes, *dealt.shape[1:]), dealt.dtype)
        divide(dealt, e, a, self._b, self._shown, self.y, self.place == 0, children)
        self.y = children
        self._level += 1


@kernel
def divide(dealt: Array, e: Array, a: Array, b: Array, shown: Array, y: Array, is_first: bool, children: Array) -> None:
    """Left and right children in turn. In: `dealt` = [a B], `b`, `shown`, `y` [nodes, 2, rows]; `e`, `a` [rows].

    Out: `children` [2 nodes, 2, rows], t y = a B + e B + F a, and e F at the first party, then y - t y.
    """
    for node in range(y.shape[0]):
        for vector in range(y.shape[1]):
            for i in range(y.shape[2]):
                F = shown[node, vector, i]
                B = b[node, vector, i]
                if is_first:
                    B += F
                left = dealt[node, vector, i] + e[i] * B + F * a[i]
                children[2 * node, vector, i] = left
                children[2 * node + 1, vector, i] = y[node, vector, i] - left
