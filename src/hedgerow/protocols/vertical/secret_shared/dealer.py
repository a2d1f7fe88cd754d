"""The dealer: knows every mask and no data. It works ahead of the others, and hears nothing of what they open."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import deal_private_product, rows_times
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.lifting import deal_gains
from hedgerow.crypto.shares import XOR8
from hedgerow.crypto.tournament import deal_level
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.job import MOST_ROWS
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import LevelDone, Sizes
from hedgerow.protocols.vertical.secret_shared.shape import COLUMNS, HISTOGRAMS, SPLITS, Shape
from hedgerow.runtime.party import Party

AHEAD = 4
"""Levels that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""


def dealer(me: Party, job: SecretSharedJob) -> None:
    """The dealer, from seeds to the last level of the last tree."""
    me.wait_longer(PATIENCE)
    shape = received_shape(me, job)
    shape.check_room(me.name, job.depth, sum(shape.bins))
    dealing = _Dealing(DealingOut(me, job.holders), job, shape)
    n_levels = job.boosting.n_iterations * job.depth
    for number in range(n_levels):
        if number >= AHEAD:
            me.recv(job.label_holder, LevelDone)
        dealing.deal(*divmod(number, job.depth))
    for _ in range(min(AHEAD, n_levels)):
        me.recv(job.label_holder, LevelDone)


def received_shape(me: Party, job: SecretSharedJob, n_rows: int | None = None) -> Shape:
    """What the label holder says about sizes, to a party with this many rows; the dealer has none."""
    most_bins = job.most_columns * job.max_bins
    sizes = me.recv(
        job.label_holder,
        Sizes,
        least_rows=n_rows or 1,
        most_rows=n_rows or MOST_ROWS,
        n_others=len(job.feature_holders),
        most_bins=most_bins,
        most_candidates=2 * most_bins,
    )
    if not ((sizes.bins <= sizes.candidates) & (sizes.candidates < 2 * sizes.bins)).all():
        raise ProtocolError(
            f"{job.label_holder} speaks of {sizes.candidates.tolist()} possible splits of {sizes.bins.tolist()} bins, "
            "which no columns have"
        )
    bins, candidates = tuple(sizes.bins.tolist()), tuple(sizes.candidates.tolist())
    return Shape(sizes.n_rows, bins, candidates, Scales.of(job, sizes.n_rows))


class _Dealing:
    """What is dealt at each level, in the order in which it is needed."""

    def __init__(self, out: DealingOut, job: SecretSharedJob, shape: Shape) -> None:
        self._out, self._job, self._shape = out, job, shape
        self._others = range(1, shape.n_holders)
        self._masks = self._masks_of_columns()

    def _masks_of_columns(self) -> np.ndarray:
        """A of all feature holders, one below the other."""
        shape, sums = self._shape, self._shape.scales.sums
        masks = np.empty((sum(shape.bins), shape.n_rows), sums.dtype)
        step = self._out.step(COLUMNS, Label())
        for place in self._others:
            of_party = masks[shape.bins_of(place)]
            for bins in shape.bin_blocks(place):
                of_party[bins] = step.mask(of_party[bins].shape, sums, (place,))
        return masks

    def deal(self, tree: int, level: int) -> None:
        """One level of one tree."""
        label = Label(tree=tree, level=level)
        self._deal_histograms(label)
        step = self._out.step(SPLITS, label)
        bits = (self._shape.n_nodes(level), self._shape.bytes_of_bits)
        deal_private_product(step, bits, XOR8, reader=0, others=self._others)
        self._out.send(SPLITS, step)
        for block in range(self._shape.n_blocks(level)):
            self._deal_tournament(label, self._shape.lane(block))

    def _deal_histograms(self, label: Label) -> None:
        """The mask B of two vectors for each family to the label holder, and A B to it and each owner."""
        shape, sums = self._shape, self._shape.scales.sums
        step = self._out.step(HISTOGRAMS, label)
        b = step.mask((2 * shape.n_families(label.level), shape.n_rows), sums, (0,))
        products = rows_times(self._masks, b, sums, n_threads=self._job.boosting.n_threads)
        for place in self._others:
            step.share(np.ascontiguousarray(products[:, shape.bins_of(place)]), sums, (0, place))
        self._out.send(HISTOGRAMS, step)

    def _deal_tournament(self, label: Label, lane: str) -> None:
        scales, plan = self._shape.scales, self._shape.plan(label.level)
        step = self._out.step(lane, label)
        deal_gains(step, plan.n_nodes * self._shape.n_candidates, scales.sums, scales.wide)
        self._out.send(lane, step)
        for place, level in enumerate(plan.levels(), start=1):
            step = self._out.step(lane, label._replace(step=place))
            deal_level(step, level, plan)
            self._out.send(lane, step)
