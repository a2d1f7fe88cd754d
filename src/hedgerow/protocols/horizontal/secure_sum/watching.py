"""Early stopping: each owner sums the losses of its rows that are watched; the sum over all owners is one number.

    owner          a loss for each row, times its weight, as a whole number of 1 / scale; their sum, under masks
    coordinator    the sum over all owners -> the metric -> go on or stop (`engine.boosting.BestRound`)

The scale follows from public things: the metric, the range of the labels and the total weight of the rows that are
watched. The sum over all of them stays below 2**62 and is known to 62 bits, less those of the bound, so the metric is
that of the plain engine but for its last bits. A row's loss counts at most as much as `bound` says.

Metrics that are no sums over rows cannot be watched so: for the area under the curve, owners would have to compare
their rows' scores with each other's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.engine import boosting
from hedgerow.engine.boosting import BestRound, Metric, find_metric
from hedgerow.engine.dtypes import Floats, Words
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.losses import BoostingParams, Loss
from hedgerow.errors import InvalidParameter

SUM_BITS = 62
OVERSHOOT = 4.0
"""A prediction that is further from a label than this many times their range counts as that far."""

_BY_ROW: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "logloss": boosting.log_losses,
    "mlogloss": boosting.log_losses,
    "error": boosting.errors,
    "merror": boosting.errors,
    "rmse": boosting.squared_errors,
    "mae": boosting.absolute_errors,
    "poisson-deviance": boosting.half_deviances,
}
"""What is summed over rows, by the name of a metric."""

NO_SUM = (
    ": eval_metric={name!r} is no sum over rows: owners would have to compare their rows with each other's; use one of "
    f"{', '.join(_BY_ROW)}"
)


def is_sum(name: str | None) -> bool:
    """Whether a metric is a function of one sum over rows; the losses' own metrics (None) are."""
    return name is None or name in _BY_ROW


@dataclass(frozen=True)
class SummedMetric:
    """A metric as one sum over rows, on a public scale. `weight` is that of all rows that are watched."""

    metric: Metric
    loss: Loss
    weight: float

    @classmethod
    def of(cls, params: BoostingParams, loss: Loss, weight: float) -> SummedMetric:
        """The one that a job asks for."""
        metric = find_metric(params.eval_metric, loss)
        if metric.name not in _BY_ROW:
            raise InvalidParameter(f"horizontal.secure_sum{NO_SUM.format(name=metric.name)}")
        return cls(metric, loss, weight)

    @property
    def bound(self) -> float:
        """The most that a row of weight 1 counts."""
        low, high = self.loss.label_range
        reach = OVERSHOOT * (max(high - low, high if self.loss.name == "poisson" else 0.0) or 1.0)
        if self.metric.name == "rmse":
            return reach**2
        if self.metric.name == "poisson-deviance":
            return reach - high * math.log(boosting.SMALLEST) + high * max(math.log(max(high, 1.0)), 0.0)
        return reach if self.metric.name == "mae" else max(1.0, -math.log(boosting.SMALLEST))

    @property
    def _scale(self) -> float:
        most = self.bound * self.weight
        return float(2.0 ** min(SUM_BITS - math.ceil(math.log2(most)), 1000)) if most > 0 else 1.0

    def total(self, labels: Floats, raw: Floats, weight: Floats | None) -> Words:
        """What some rows with raw scores [rows, outputs] add, as one word."""
        losses = _BY_ROW[self.metric.name](labels, predictions_from(self.loss.name, raw))
        steps = self._scale * (np.ones(len(labels)) if weight is None else weight)
        whole = np.rint(np.minimum(losses, self.bound) * steps).astype(np.int64)
        return np.array([whole.sum()], np.int64).view(np.uint64)

    def value(self, total: Words) -> float:
        """The metric for the sum over all rows."""
        mean = int(total.view(np.int64)[0]) / self._scale / self.weight
        if self.metric.name == "rmse":
            return math.sqrt(max(mean, 0.0))
        return 2 * mean if self.metric.name == "poisson-deviance" else mean


class Watch:
    """What the coordinator remembers of the metric: all values, and the best since the last loss of an owner.

    With an owner less there are other rows to watch: what came before is nothing to compare with.
    """

    def __init__(self, params: BoostingParams, metric: SummedMetric, first: int) -> None:
        self.metric, self._params, self._first = metric, params, first
        self.curve: list[float] = []
        self.begins = 0
        """Which value of the curve is the first one over the rows that are watched now."""
        self._best = self._anew()

    def _anew(self) -> BestRound:
        return BestRound(self._params, self.metric.metric, self._first + self.begins)

    def go_on(self, curve: Sequence[float], begins: int) -> None:
        """Stand as an earlier attempt has stood."""
        self.curve, self.begins = list(curve), begins
        self._best = self._anew()
        for value in self.curve[begins:]:
            self._best.see(value)

    def see(self, total: Words, *, lost: bool) -> None:
        """The sum after one more iteration; `lost`: fewer owners' rows are in it than in the last one."""
        if lost:
            self.begins = len(self.curve)
            self._best = self._anew()
        self.curve.append(self.metric.value(total))
        self._best.see(self.curve[-1])

    @property
    def wants_to_stop(self) -> bool:
        """Whether there was nothing better for long enough."""
        return self._best.wants_to_stop

    @property
    def best_iteration(self) -> int:
        """The last iteration that is kept."""
        if self._best.best_iteration is None:
            return self._first + len(self.curve) - 1
        return self._best.best_iteration
