"""The label holder's labels and scores, from which gradients are made anew for each tree."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.shares import Array
from hedgerow.engine.dtypes import SCORE
from hedgerow.engine.rows import Rows
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.plan import Plan
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.shares.sharing import checked_labels
from hedgerow.protocols.vertical.common.joint_growth import packed_columns
from hedgerow.protocols.vertical.common.part_files import Target
from hedgerow.runtime.protocol import PartyData


class Labels:
    """Of the label holder alone."""

    def __init__(self, party: str, job: MpFedXgbJob, data: PartyData) -> None:
        self._job, self._labels, self._classes = job, checked_labels(party, job, data), data.classes
        self._n_threads = data.n_threads

    def begin(self, plan: Plan, columns: OneHotColumns) -> None:
        """Scores are those before the first tree."""
        loss, params = plan.scales.loss, self._job.boosting
        base = float(loss.base_scores(self._labels)[0] if params.base_score is None else params.base_score)
        packed = packed_columns(columns.codes, columns.features, self._n_threads)
        self._rows = Rows(
            packed, self._labels, None, loss, np.array([base]), plan.scales.quantiser, n_threads=self._n_threads
        )
        self._dtype, self._unit = plan.scales.sums.dtype, 2.0**-plan.descent.fraction_bits
        self.target = Target(loss.name, (base,), params.learning_rate, self._classes)

    def gradients(self) -> Array:
        """Gradients and hessians of all rows as words: [2, rows]."""
        self._rows.gradients()
        packed = self._rows.gradients_packed[0]
        # a negative gradient wraps round, as it should
        return np.stack([(packed >> 32).astype(self._dtype), (packed & 0xFFFFFFFF).astype(self._dtype)])

    def add(self, values: Array) -> None:
        """Add a tree's values, 64-bit words with `fraction_bits` after the point, to the scores."""
        self._rows.scores[0] += (values.view(np.int64) * (self._unit * self.target.learning_rate)).astype(SCORE)
