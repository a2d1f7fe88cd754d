"""The dealer of the policy smooth_then_trees: knows all masks and all noise, no data, nothing that was released."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.dealing import Ints, Label, deal_noise
from hedgerow.crypto.shares import SUM32, SUM64
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.shares.masked_columns import Matrices, drawn_masks
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.supply import DealingOut, deal_ahead
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.columns import told_layout
from hedgerow.protocols.vertical.private_histograms.smooth.groups import GroupDealing, without
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import Schedule
from hedgerow.protocols.vertical.private_histograms.smooth.series import deal_sines, parcels
from hedgerow.runtime.party import Party

COLUMNS, SINES, SUMS, VALUES, NOISE = "columns", "sines", "sums", "values", "noise"
"""Lanes of what is dealt."""


def dealer(me: Party, job: PrivateHistogramsJob) -> None:
    """The dealer, from seeds to the last sum."""
    me.wait_longer(PATIENCE)
    schedule = Schedule.of(job, *told_layout(me, job))
    dealing = Dealing(me, job, schedule)
    n_dealt = len(schedule.kinds) - 1  # counts have noise of their owners
    deal_ahead(me, job.label_holder, LevelDone, n_dealt, lambda number: dealing.deal(number + 2))


class Dealing:
    """What is dealt for each request, in the order in which it is needed; noise is drawn here."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, schedule: Schedule) -> None:
        self._me, self._job, self._schedule = me, job, schedule
        self._n_threads = job.boosting.n_threads
        self._out = DealingOut(me, job.holders)
        self._groups = GroupDealing(schedule)
        places = range(schedule.n_holders)
        rows = tuple(sum(schedule.mask_rows(place)) for place in places)
        self._masks = drawn_masks(self._out.step(COLUMNS, Label()), Matrices(rows, schedule.n_rows, SUM32))
        self._starts = np.concatenate([[0], np.cumsum(np.array(schedule.caps) - 1)]).tolist()

    def deal(self, number: int) -> None:
        """All that is needed to answer request `number`."""
        schedule, label = self._schedule, Label(tree=number)
        kind = schedule.kinds[number - 1]
        if schedule.update(number) == "leaves" and schedule.most_shared:
            with self._out.parcel(VALUES, label) as step:
                self._groups.deal_values(step)
        if kind != "positives":
            self._deal_sines(label)
        if kind == "bin_sums":
            column = schedule.column(number)
            self._deal_bins(label, column)
            shape: tuple[int, ...] = (schedule.caps[column],)
        elif kind == "leaf_sums":
            self._deal_leaves(label)
            shape = (1 << schedule.depth, 2)
        else:
            shape = (1,) if kind == "positives" else (2,)
        with self._out.parcel(NOISE, label) as step:
            deal_noise(step, shape, SUM64, lambda shape: self.gaussian(shape, schedule.sigma(kind)))

    def _deal_sines(self, label: Label) -> None:
        for number, rows in enumerate(parcels(self._schedule.n_rows)):
            with self._out.parcel(SINES, label, number) as step:
                deal_sines(step, rows.stop - rows.start, self._schedule.precision)

    def _deal_bins(self, label: Label, column: int) -> None:
        """Products for all bins that the column can have, but its last."""
        schedule = self._schedule
        if schedule.caps[column] == 1:
            return
        with self._out.parcel(SUMS, label) as step:
            own = [step.mask((1, schedule.n_rows), SUM32, (place,)) for place in range(schedule.n_holders)]
            others = without(own, schedule.layout.owners[column])
            masks = self._masks[self._starts[column] : self._starts[column + 1]]
            step.share(rows_times(masks, others, SUM32, n_threads=self._n_threads), SUM32)

    def _deal_leaves(self, label: Label) -> None:
        n_expansions = len(self._schedule.expansions)
        for position in range(n_expansions + 1):
            with self._out.parcel(SUMS, label, position) as step:
                if position < n_expansions:
                    self._groups.deal_expansion(step, position)
                else:
                    self._groups.deal_last(step)

    def gaussian(self, shape: tuple[int, ...], sigma: float) -> Ints:
        """Discrete Gaussian noise in units of what is released."""
        if not self._job.is_noisy:
            return np.zeros(shape, np.int64)
        return sample(sigma, int(np.prod(shape)), self._me.rng).reshape(shape)
