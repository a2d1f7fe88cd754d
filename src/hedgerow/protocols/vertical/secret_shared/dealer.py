"""The dealer: knows every mask and no data. It works ahead of the others, and hears nothing of what they open."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import deal_private_product
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.lifting import deal_gains
from hedgerow.crypto.limits import deal_limited
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import XOR8
from hedgerow.crypto.tournament import deal_level
from hedgerow.protocols.shares.columns import drawn_masks
from hedgerow.protocols.shares.playing import deal_iterations
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import LevelDone
from hedgerow.protocols.vertical.secret_shared.shape import COLUMNS, HISTOGRAMS, SPLITS, Shape, received_shape
from hedgerow.runtime.party import Party


def dealer(me: Party, job: SecretSharedJob, done: int) -> None:
    """The dealer, from seeds to the last level of the last tree."""
    shape = received_shape(me, job)
    shape.check_room(me.name, job.depth, sum(shape.bins))
    dealing = _Dealing(DealingOut(me, job.holders), job, shape)
    per_iteration = shape.n_outputs * job.depth
    deal_iterations(me, job, LevelDone, done, per_iteration, lambda n: dealing.deal(*divmod(n, job.depth)))


class _Dealing:
    """What is dealt at each level, in the order in which it is needed."""

    def __init__(self, out: DealingOut, job: SecretSharedJob, shape: Shape) -> None:
        self._out, self._job, self._shape = out, job, shape
        self._others = range(1, shape.n_holders)
        self._masks = drawn_masks(out.step(COLUMNS, Label()), shape.matrices)

    def deal(self, tree: int, level: int) -> None:
        """One level of one tree."""
        label = Label(tree=tree, level=level)
        self._deal_histograms(label)
        bits = (self._shape.n_nodes(level), self._shape.bytes_of_bits)
        with self._out.parcel(SPLITS, label) as step:
            deal_private_product(step, bits, XOR8, reader=0, others=self._others)
        for block in range(self._shape.n_blocks(level)):
            self._deal_limits(label, self._shape.limits_lane(block))
            self._deal_tournament(label, self._shape.lane(block))

    def _deal_histograms(self, label: Label) -> None:
        """The mask B of two vectors for each family to the label holder, and A B to it and each owner."""
        shape, sums = self._shape, self._shape.scales.sums
        with self._out.parcel(HISTOGRAMS, label) as step:
            b = step.mask((shape.n_vectors(label.level), shape.n_rows), sums, (0,))
            products = rows_times(self._masks, b, n_threads=self._job.boosting.n_threads)
            for place in self._others:
                step.share(np.ascontiguousarray(products[:, shape.matrices.of(place)]), sums, (0, place))

    def _deal_limits(self, label: Label, lane: str) -> None:
        shape, n_checks = self._shape, self._shape.limits.n_checks
        if n_checks:
            with self._out.parcel(lane, label) as step:
                n = shape.block_nodes(label.level) * shape.n_candidates
                deal_limited(step, n, n_checks, 2, shape.scales.sums)

    def _deal_tournament(self, label: Label, lane: str) -> None:
        scales, plan = self._shape.scales, self._shape.plan(label.level)
        with self._out.parcel(lane, label) as step:
            deal_gains(step, plan.n_nodes * self._shape.n_candidates, scales.sums, scales.wide)
        for place, level in enumerate(plan.levels(), start=1):
            with self._out.parcel(lane, label, place) as step:
                deal_level(step, level, plan)
