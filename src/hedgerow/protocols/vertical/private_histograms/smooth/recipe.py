"""The recipe of `central.gaussian` where the columns of a row are with several parties.

All that differs from rows of one owner:

    stage 0    each party counts its own columns, without labels, and the number of positive rows is one number more:
               bins cost less so, and the number of rows is known to all
    stages     sums of gradients alone over the bins of a column, whose rows are known from stage 0 well enough; sums of
    1 and 2    gradients and numbers of rows in leaves. A row's hessian is that of the start, p0 (1 - p0)
    clip       there is none: |y - p| <= g*, 1 and what the series on shares can be wrong by (`series`)
    trees      as many as the schedule has, which does not know how many rows are positive

**One label.** Feature holders may know a row but for its label. If that changes, y - p changes by just 1, which is less
than g*, the number of positive rows by 1, and nothing else does: what is proved for a row that counts for nothing holds
for another label of one row, with the same noise. A clip at tau < 1 would break this: a label would move a gradient by
up to 1, and a row by tau only.

**What it costs.** On six public datasets, mean test AUC over three splits at epsilon 1, 2, 4 and 8, simulated: .8663
.8707 .8746 .8764; true hessians instead .8659 .8709 .8746 .8758; a clip at .6 or .75 as in the recipe, which protects
labels less, .8687 .8725 .8754 .8764; rows of one owner .8688 .8727 .8747 .8764.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.protocols.central.gaussian.recipe import MEAN_CLIP, Learned, Recipe
from hedgerow.protocols.central.gaussian.requests import AnyKind, SumRequest
from hedgerow.protocols.central.gaussian.tables import Bins
from hedgerow.protocols.vertical.private_histograms.columns import NOISES_PER_BIN, merged_at_most
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import (
    COUNT_UNIT,
    ROW_WEIGHT_BITS,
    SHARES,
    Schedule,
)
from hedgerow.schema import NumericColumn


class SharedRecipe(Recipe):
    """Asks for sums that are computed on shares; see `holder` for who answers."""

    def __init__(self, schedule: Schedule) -> None:
        """The schema is that of all parties' columns together; the seed is public."""
        job = schedule.job
        super().__init__(schedule.layout.schema, epsilon=job.noise, delta=job.delta, seed=job.boosting.seed)
        self.precision = schedule.precision
        self._schedule = schedule
        self.shares = tuple(SHARES.values())
        self._kind = ""  # of the last request
        self._mass: Floats = np.empty(0)  # of the column's bins
        self._bins: list[Bins] = []
        self._hessian = 0.25  # of a row at the start

    # --- stages ------------------------------------------------------------------------------------------------------

    def stage_0(self) -> Generator[SumRequest, Ints, Learned]:
        """Noisy counts of cells and the noisy number of positive rows: bins, base score, size of the task."""
        n_rows = float(self._schedule.n_rows)
        cells = yield self.request("counts", sum(self.cells), self.shares[0], 1)
        noise = self.noise / COUNT_UNIT
        positives = yield self.request("positives", 1, self.shares[1], 1)
        share = min(max(float(positives[0]) / COUNT_UNIT, 1.0), n_rows - 1.0) / n_rows
        start = self.start_of_classes(np.array([share, 1.0 - share]), n_rows)
        start.size = self._schedule.size
        target = max(n_rows / self._schedule.job.max_bins, NOISES_PER_BIN * noise)
        parts = np.split(cells / COUNT_UNIT, np.cumsum(self.cells)[:-1])
        for column, cap, part in zip(self.schema.columns, self._schedule.caps, parts, strict=True):
            ordered = len(part) - column.may_be_missing if isinstance(column, NumericColumn) else 0
            start.bins.append(merged_at_most(cap, part, ordered, target, 1.05))
        self._bins, self._hessian = start.bins, float(start.hessians[0])
        return start

    def stage_3(self, start: Learned, last_leaves: Floats) -> Generator[SumRequest, Ints, Floats]:
        """The last step of the base score, with gradients that are not clipped and true hessians."""
        sums = yield self.request(
            "mean", 2, self.shares[4], 1, MEAN_CLIP[self.loss], update="leaves", update_values=last_leaves[0]
        )
        gradients, hessians = self.gradients(sums)
        return self.shift(start, gradients[:, 0], hessians[:, 0])

    # --- pieces ------------------------------------------------------------------------------------------------------

    def request(
        self, kind: AnyKind, n_sums: int, share: float, rounds: int, clip: float = 0.0, **fields: Any
    ) -> SumRequest:
        """One of `rounds` requests that have `share` of the budget together."""
        if kind == "bin_sums":
            n_sums //= 2  # gradients alone
        del clip  # gradients are as they are: see above
        largest = self._schedule.sensitivity_squared(kind)
        request: SumRequest = self.make_request(SumRequest, kind, n_sums, largest, share, rounds, **fields)
        self._kind = kind
        if kind == "bin_sums":
            self._mass = self._bins[int(request.features[0])].mass
        return request

    def gradients(self, sums: Ints) -> tuple[Floats, Floats]:
        """Noisy sums of minus gradients and of hessians, each [1, positions]."""
        numbers = np.ldexp(sums.astype(np.float64), -self.precision.bits)[np.newaxis]
        if self._kind == "bin_sums":
            return numbers, (self._mass * self._hessian)[np.newaxis]
        second = 1.0 if self._kind == "mean" else self._hessian * 2.0**ROW_WEIGHT_BITS
        return numbers[:, 0::2], numbers[:, 1::2] * second

    def meta(self, start: Learned) -> dict[str, Any]:
        """What the model file says about the training."""
        meta = super().meta(start)
        del meta["clips"], meta["n_rows_estimate"]  # there is none, and it is known
        return meta

    @property
    def gradient_noise(self) -> float:
        """Standard deviation of the noise in what `gradients` made of the last sums."""
        return math.ldexp(self.noise, -self.precision.bits)

    @property
    def hessian_noise(self) -> float:
        """Standard deviation of the noise in the last hessians of leaves."""
        return self.gradient_noise * self._hessian * 2.0**ROW_WEIGHT_BITS
