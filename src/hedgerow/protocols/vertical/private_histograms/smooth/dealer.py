"""The dealer of the policy smooth_then_trees: knows every mask and all noise, and no data."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.dealt_noise import Ints, deal_noise
from hedgerow.crypto.shares import SUM32, SUM64
from hedgerow.errors import ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.memory import check_room
from hedgerow.protocols.vertical.agreement import PATIENCE
from hedgerow.protocols.vertical.on_shares.dealing_out import DealingOut
from hedgerow.protocols.vertical.on_shares.job import MOST_ROWS
from hedgerow.protocols.vertical.on_shares.masked_columns import Matrices, drawn_masks
from hedgerow.protocols.vertical.on_shares.rows_messages import LevelDone
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.groups import (
    GroupDealing,
    dealt_bytes,
    groups_of,
    without,
)
from hedgerow.protocols.vertical.private_histograms.smooth.messages import SmoothAhead, SmoothBins, SmoothRows
from hedgerow.protocols.vertical.private_histograms.smooth.series import (
    COARSEST,
    FINEST,
    Precision,
    deal_sines,
    parcels,
)
from hedgerow.transport.frames import MAX_FRAME_BYTES

COLUMNS, SINES, SUMS, VALUES, NOISE = "columns", "sines", "sums", "values", "noise"
"""Lanes of what is dealt."""

AHEAD = 4
"""Requests that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""


def dealer(me: Party, job: PrivateHistogramsJob) -> None:
    """The dealer, from seeds to the last sum."""
    me.wait_longer(PATIENCE)
    dealing = Dealing(me, job, me.recv(job.label_holder, SmoothRows, most_rows=MOST_ROWS).n_rows)
    dealing.deal_all("positives")
    dealing.begin()
    for kind in ("bin_sums", "leaf_sums", "mean"):
        dealing.deal_all(kind)


class Dealing:
    """What is dealt for each request, in the order in which it is needed; noise is drawn here."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, n_rows: int) -> None:
        self._me, self._job, self._n_rows = me, job, n_rows
        self._n_threads = job.boosting.n_threads
        self._out = DealingOut(me, job.holders)
        self._groups = GroupDealing(len(job.holders), n_rows)
        self._number = 0
        self._values_due = False

    def begin(self) -> None:
        """Masks of all bins, once these are known."""
        job = self._job
        bins = self._me.recv(
            job.label_holder, SmoothBins, n_holders=len(job.holders), most_bins=256 * job.most_columns,
            coarsest=COARSEST, finest=FINEST,
        )  # fmt: skip
        n_bins = tuple(bins.n_bins.tolist())
        what = f"{sum(n_bins):,} bins of {self._n_rows:,} rows"
        check_room(self._me.name, SUM32.number_bytes * sum(n_bins) * self._n_rows, what)
        self._matrices = Matrices(n_bins, self._n_rows, SUM32)
        self._masks = drawn_masks(self._out.step(COLUMNS, Label()), self._matrices)
        self._precision = Precision.of(bins.gradient_bits)

    def deal_all(self, kind: str) -> None:
        """All requests of a stage, as the label holder gets on with them."""
        ahead = self._ahead(kind)
        n_requests = len(ahead.owners)
        for number in range(n_requests):
            if number >= AHEAD:
                self._me.recv(self._job.label_holder, LevelDone)
            self._deal(ahead, number)
        for _ in range(min(AHEAD, n_requests)):
            self._me.recv(self._job.label_holder, LevelDone)

    def _ahead(self, kind: str) -> SmoothAhead:
        """What is asked for next; ProtocolError unless it can be dealt."""
        job = self._job
        n_bins = self._matrices.n_bins if kind == "bin_sums" else 0
        ahead = self._me.recv(job.label_holder, SmoothAhead, n_holders=len(job.holders), n_bins=n_bins)
        n_requests, n_levels = ahead.owners.shape
        wanted = {"bin_sums": n_levels == 1, "leaf_sums": n_levels > 0}.get(kind, (n_requests, n_levels) == (1, 0))
        n_asked = n_requests if kind == "bin_sums" else 0
        if ahead.kind != kind or not wanted or len(ahead.bins) != n_asked:
            raise ProtocolError(f"{job.label_holder} asks for {ahead.kind!r} in a way that is not due")
        if (ahead.starts.astype(np.int64) + ahead.bins - 1 > n_bins).any():
            raise ProtocolError(f"{job.label_holder} asks for bins beyond the {n_bins} that there are")
        for owners in ahead.owners.tolist() if kind == "leaf_sums" else []:
            if dealt_bytes(groups_of(owners), self._n_rows) > MAX_FRAME_BYTES:
                raise ProtocolError(f"{job.label_holder} asks for a tree for which no message has room")
        return ahead

    def _deal(self, ahead: SmoothAhead, number: int) -> None:
        self._number += 1
        label = Label(tree=self._number)
        if self._values_due:
            step = self._out.step(VALUES, label)
            self._groups.deal_values(step)
            self._out.send(VALUES, step)
            self._values_due = False
        if ahead.kind != "positives":
            self._deal_sines(label)
        owners = ahead.owners[number].tolist()
        if ahead.kind == "bin_sums":
            n_bins = int(ahead.bins[number])
            self._deal_bins(label, owners[0], int(ahead.starts[number]), n_bins)
            shape: tuple[int, ...] = (n_bins,)
        elif ahead.kind == "leaf_sums":
            groups = groups_of(owners)
            step = self._out.step(SUMS, label)
            self._groups.deal_sums(step, groups)
            self._out.send(SUMS, step)
            self._values_due = len(groups) > 1
            shape = (1 << len(owners), 2)
        else:
            shape = (1,) if ahead.kind == "positives" else (2,)
        step = self._out.step(NOISE, label)
        deal_noise(step, shape, SUM64, lambda shape: self.gaussian(shape, ahead.sigma))
        self._out.send(NOISE, step)

    def _deal_sines(self, label: Label) -> None:
        for number, rows in enumerate(parcels(self._n_rows)):
            step = self._out.step(SINES, label._replace(step=number))
            deal_sines(step, rows.stop - rows.start, self._precision)
            self._out.send(SINES, step)

    def _deal_bins(self, label: Label, owner: int, start: int, n_bins: int) -> None:
        if n_bins == 1:
            return
        step = self._out.step(SUMS, label)
        own = [step.mask((1, self._n_rows), SUM32, (place,)) for place in range(len(self._job.holders))]
        others = without(own, owner)
        masks = self._masks[start : start + n_bins - 1]
        step.share(rows_times(masks, others, SUM32, n_threads=self._n_threads), SUM32)
        self._out.send(SUMS, step)

    def gaussian(self, shape: tuple[int, ...], sigma: float) -> Ints:
        """Discrete Gaussian noise in units of what is released."""
        if not self._job.is_noisy:
            return np.zeros(shape, np.int64)
        return sample(sigma, int(np.prod(shape)), self._me.rng).reshape(shape)
