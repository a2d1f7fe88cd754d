"""One level of a growing tree, as it passes between owners and coordinator: sums one way, the next step the other.

Histograms are exchanged as one long vector per node, feature after feature, without gaps or bundles:

    own layout      column 0 | column 1 = features 1 and 2 bundled | ...      differs from owner to owner
    exchanged       feature 0: bins, missing | feature 1: bins, missing | ... the same for all

Sums of the exchanged vectors are sums over all owners' rows, whatever each owner's own layout. `Nodes` follows the
nodes of the growing tree, so that an owner knows which splits, leaf values and sums a step can be about.
"""

from __future__ import annotations

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import Ints, Words
from hedgerow.engine.growth import DEEPEST, HISTOGRAM_BYTES
from hedgerow.engine.histogram import Layout
from hedgerow.engine.splitting import sums_of_feature
from hedgerow.protocols.horizontal.secure_sum.messages import LATEST_ROUND, NextStep, Plan, refuse


class ExchangedCells:
    """Where each feature's bins are in an exchanged vector; the same at every party, from the bins alone."""

    def __init__(self, mapper: BinMapper) -> None:
        self.layout = Layout.plain(*bin_counts(mapper.features))
        self.first = np.concatenate([[0], np.cumsum(self.layout.n_codes)]).astype(np.int64)

    @property
    def n_cells(self) -> int:
        """Length of one node's vector."""
        return int(self.first[-1])

    def gather(self, cells: Ints, n_nodes: int, own: Layout, out: Words) -> None:
        """The first histograms of `cells`, in the layout of the rows they come from, as vectors [nodes, cells]."""
        gather_features(cells, n_nodes, own, self.first, out.view(np.int64))

    def scatter(self, sums: Words, slots: Ints, cells: Ints) -> None:
        """Exchanged vectors as histograms in the plain layout: sums[i] to cells[slots[i]]."""
        scatter_features(sums.view(np.int64), slots, self.layout.first_cell, self.first, cells)


@kernel
def gather_features(cells: Ints, n_nodes: int, own: Layout, first: Ints, out: Ints) -> None:
    """A bundled feature's bins are marginals of its bundle's cells; others are copied."""
    buffer = np.empty(256, np.int64)
    for node in range(n_nodes):
        mine, theirs = cells[node], out[node]
        for feature in range(first.shape[0] - 1):
            sums = sums_of_feature(mine, feature, own, buffer)
            start = first[feature]
            for b in range(first[feature + 1] - start):
                theirs[start + b] = sums[b]


@kernel
def scatter_features(sums: Ints, slots: Ints, first_cell: Ints, first: Ints, cells: Ints) -> None:
    """The other way round, into a layout without bundles."""
    for which in range(slots.shape[0]):
        mine, theirs = cells[slots[which]], sums[which]
        for feature in range(first_cell.shape[0]):
            start = first[feature]
            for b in range(first[feature + 1] - start):
                mine[first_cell[feature] + b] = theirs[start + b]


class Nodes:
    """The active nodes of the growing tree and the leaves it has so far, as the coordinator's steps make them."""

    def __init__(
        self, n_features: int, n_outputs: int, n_trees: int, n_cells: int, max_depth: int | None, *, watches: bool
    ) -> None:
        self._n_features, self._n_outputs = n_features, n_outputs
        deepest = min(max_depth or DEEPEST, DEEPEST)
        highest = Plan(LATEST_ROUND, 1, n_outputs - 1, n_trees - 1, deepest + 1, 2**16 - 1, int(watches))
        self._highest = np.array(highest, np.int64)
        self._most_built = max(1, HISTOGRAM_BYTES // (8 * n_cells))
        self.n_active = self.n_leaves = 0

    def follow(self, sender: str, step: NextStep) -> None:
        """Refuse a step that cannot follow on the last."""
        n_active, n_leaves = _after(
            self.n_active, self.n_leaves, self._n_features, self._n_outputs, self._highest, self._most_built,
            step.plan, step.feature, len(step.leaf_values), step.build,
        )  # fmt: skip
        if n_active < 0:
            raise refuse(sender, step, self._what_is_wrong(step)[-n_active])
        self.n_active, self.n_leaves = n_active, n_leaves

    def _what_is_wrong(self, step: NextStep) -> dict[int, str]:
        plan, highest = step.plan.tolist(), self._highest.tolist()
        return {
            _BEYOND: f"with the plan {plan}, which is beyond {highest}",
            _SPLITS: f"with splits of {len(step.feature)} nodes, there are {self.n_active}",
            _FEATURE: f"with feature = {step.feature.tolist()[:8]}, there are {self._n_features} features",
            _LEAVES: f"with {len(step.leaf_values)} leaf values, which is not how many leaves the tree has",
            _BEGINS: f"that begins tree {Plan(*plan).tree} before the last one has ended",
            _BUILD: f"that asks for sums of nodes {step.build.tolist()[:8]}, which are not among those there are",
            _ENDS: "that ends training in the middle of a tree",
            _WATCHES: "that asks for the metric in the middle of an iteration",
        }


_BEYOND, _SPLITS, _FEATURE, _LEAVES, _BEGINS, _BUILD, _ENDS, _WATCHES = range(1, 9)


@kernel
def _after(
    n_active: int, n_leaves: int, n_features: int, n_outputs: int, highest: Ints, most_built: int,
    plan: Ints, feature: Ints, n_values: int, build: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Active nodes and leaves after a step; or minus what is wrong with it. Compiled, since every level has a step."""
    for i in range(7):
        if plan[i] < (-1 if i == 2 else 0) or plan[i] > highest[i]:  # start is -1 for no tree
            return -_BEYOND, 0
    new_round, last, start, tree, watch = plan[0], plan[1], plan[2], plan[3], plan[6]
    if len(feature):
        if len(feature) != n_active:
            return -_SPLITS, 0
        n_split = 0
        for node_feature in feature:
            if node_feature < -1 or node_feature >= n_features:
                return -_FEATURE, 0
            n_split += node_feature >= 0
        n_leaves += n_active - n_split + 2 * n_split * last
        n_active = 0 if last else 2 * n_split
    if n_values:
        if n_active or n_values != n_leaves:
            return -_LEAVES, 0
        n_leaves = 0
    if start >= 0:
        again = new_round > 0 and n_active == 1  # a root whose sum was lost
        if n_leaves or (n_active and not again) or start != tree % n_outputs:
            return -_BEGINS, 0
        n_active = 1
    previous = -1
    for node in build[: most_built + 1]:
        if node <= previous or node >= n_active or len(build) > most_built:
            return -_BUILD, 0
        previous = node
    ends_early = not len(build) and (n_active or n_leaves)
    if ends_early or (watch and (len(build) or (tree + 1) % n_outputs)):
        return -(_ENDS if ends_early else _WATCHES), 0
    return n_active, n_leaves
