"""Histograms as parties exchange them: one long vector per node, feature after feature, without gaps or bundles.

    own layout      column 0 | column 1 = features 1 and 2 bundled | ...      differs from owner to owner
    exchanged       feature 0: bins, missing | feature 1: bins, missing | ... the same for all

Sums of the exchanged vectors are sums over all owners' rows, whatever each owner's own layout.
"""

from __future__ import annotations

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import Ints, Words
from hedgerow.engine.layout import Layout
from hedgerow.engine.splitting import sums_of_feature


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
