"""Early stopping where columns are split: rows that are watched, and when all parties stop.

Rows that are watched (`PartyData.validation`) belong to the label holder's secrets as all labels do. They walk down the
trees with the others, so that their scores are known, and count in nothing. After an iteration the label holder looks
at the metric of their scores, and tells all feature holders whether to go on (`Onward`); the last one says how many
iterations are kept, and everybody forgets what only later ones needed. All that is told follows from one number for
each iteration, which stays with the label holder.

    label holder      watch.see(scores)  after an iteration;    n_kept = watch.tell(me, job)  before the next, and at the end
    feature holder    n_kept = hear(me, job)  likewise

What was told before a run was broken off is told again, from the numbers that were kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.boosting import BestRound, Metric, find_metric
from hedgerow.engine.dtypes import Bools, Floats, Scores
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput
from hedgerow.protocols.vertical.common.agreement import VerticalJob
from hedgerow.protocols.vertical.common.messages import Onward
from hedgerow.protocols.vertical.common.states import ForestState
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

Look = Callable[[Metric, Loss, Floats, Floats, Floats | None], float]
"""How a metric of labels, raw scores and weights becomes the number that decides: as it is, or with noise."""


def watched_rows(party: str, job: VerticalJob, data: PartyData) -> Bools | None:
    """The rows that are watched; None without early stopping. InvalidInput unless some are, and some are learned."""
    if job.boosting.early_stopping_rounds is None:
        return None
    mask = data.validation
    if mask is None or mask.shape != (data.table.n_rows,) or mask.all() or not mask.any():
        raise InvalidInput(
            f"{party}: early stopping needs rows to watch and rows to learn from: validation=..., or validation_fraction"
        )
    return mask


def only(data: PartyData, rows: slice | np.ndarray) -> PartyData:
    """Some of the rows, without their columns: labels and weights."""
    labels = None if data.labels is None else data.labels[rows]
    return replace(data, labels=labels, weight=None if data.weight is None else data.weight[rows])


def exactly(metric: Metric, loss: Loss, labels: Floats, raw: Floats, weight: Floats | None) -> float:
    """The metric as it is."""
    return metric(loss, labels, raw, weight)


class Watch:
    """The label holder's side."""

    def __init__(
        self,
        job: VerticalJob,
        loss: Loss,
        data: PartyData,
        watched: Bools,
        base_scores: Floats,
        me: Party,
        n_done: int = 0,
        look: Look = exactly,
        first: int = 0,
        known: Sequence[float] | None = None,
    ) -> None:
        """`n_done` iterations were kept before the run was broken off; `first` are those of an earlier model.

        `known` is what was seen before, where the party does not keep it as a `ForestState`.
        """
        rows = only(data, np.flatnonzero(watched))
        self._job, self._loss, self._rows, self._where, self._look = job, loss, rows, watched, look
        self._bases, self._first = np.asarray(base_scores, np.float64), first
        self._best = BestRound(job.boosting, find_metric(job.boosting.eval_metric, loss))
        kept = None if me.attempt == 1 or known is not None else me.kept(None, ForestState)
        self._known = kept.curve if kept is not None else tuple(known or ())  # also of iterations to be repeated
        for value in self._known[:n_done]:
            self._best.see(value)

    @property
    def curve(self) -> tuple[float, ...]:
        """The metric of each iteration so far."""
        return tuple(self._best.curve)

    def see(self, scores: Scores) -> None:
        """The scores [outputs, rows] of all rows after one more iteration."""
        n_seen = len(self._best.curve)
        if n_seen < len(self._known):  # in an earlier attempt, whose noise is not drawn again
            self._best.see(self._known[n_seen])
            return
        raw = scores[:, self._where].T.astype(np.float64) + self._bases
        labels: Floats = np.asarray(self._rows.labels, np.float64)
        self._best.see(self._look(self._best.metric, self._loss, labels, raw, self._rows.weight))

    def tell(self, me: Party, job: VerticalJob) -> int:
        """Whether it goes on, to all: 0 if it does, else how many iterations are kept."""
        ends = self._best.wants_to_stop or len(self._best.curve) == job.boosting.n_iterations
        n_kept = 0 if not ends else (self._best.best_iteration or 0) + 1
        me.send_all(job.feature_holders, Onward(n_kept))
        return n_kept

    @property
    def record(self) -> dict[str, Any]:
        """What the model says of it."""
        best = self._first + (self._best.best_iteration or 0)
        return {"learning_curve": {self._best.metric.name: list(self.curve)}, "best_iteration": best}


def hear(me: Party, job: VerticalJob) -> int:
    """A feature holder's side: 0 if it goes on, else how many iterations are kept."""
    return me.recv(job.label_holder, Onward, n_iterations=job.boosting.n_iterations).n_kept
