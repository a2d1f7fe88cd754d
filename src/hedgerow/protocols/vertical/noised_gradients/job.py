"""What a run of vertical.noised_gradients is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hedgerow.engine.table import Level
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.bad_rows import OnBadRows, on_bad_rows
from hedgerow.protocols.vertical.common.agreement import VerticalJob
from hedgerow.protocols.vertical.common.drawing import ColumnRules
from hedgerow.runtime.protocol import option

XGBOOST, FIRST_ORDER = "xgboost", "first_order"
RUN, TREE, MESSAGE = "run", "tree", "message"


def _parse_classes(protocol: str, given: Any) -> tuple[Any, ...]:
    listed = tuple(given) if isinstance(given, list | tuple) else ()
    if len(set(listed)) < max(len(listed), 2):
        raise InvalidParameter(f"{protocol}: classes must list two or more different classes of a label, got {given!r}")
    return listed


class GradientsJob(VerticalJob):
    """A job whose trees go by gradients that every party gets in some way."""

    BY_COLUMN: ClassVar[bool] = True

    score: str


@dataclass(frozen=True)
class NoisedGradientsJob(GradientsJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.noised_gradients"

    epsilon: float | None = option(
        None,
        "of the whole run; with per='message' of one message; math.inf is without noise",
        words="a number above 0, or math.inf",
        or_inf=True,
    )
    delta: float | None = option(None, "of the whole run, beside epsilon", words="a number between 0 and 1")
    score: str = option(XGBOOST, "how splits are rated", one_of=(XGBOOST, FIRST_ORDER))
    per: str = option(RUN, "what gets noise of its own", one_of=(RUN, TREE, MESSAGE))
    classes: tuple[Level, ...] | None = option(
        None,
        "all classes, if they are public; a label that is not listed counts as the first",
        parse=_parse_classes,
    )
    on_bad_rows: OnBadRows = on_bad_rows()
    noise_aware: bool | None = option(
        None,
        "whether splits and leaves allow for the noise; by default wherever they can",
        words="one of None, True, False",
    )

    def check(self) -> None:
        """A budget that can be proved, and trees that go with it."""
        super().check()
        if self.classes is not None and self.task == "regression":
            raise InvalidParameter(f"{self.NAME}: classes are for a classification, got {self.classes!r}")
        if self.epsilon is None or (self.delta is None and self.epsilon != math.inf):
            raise InvalidParameter(
                f"{self.NAME} needs epsilon and delta, got {self.epsilon!r} and {self.delta!r}; epsilon=math.inf is "
                "without noise, and NOT PRIVATE"
            )
        if self.has_noise:
            mu_for(self.epsilon, self.delta or 0.0)  # refuses what is no budget, and what cannot be proved
        self._check_trees()

    def _check_trees(self) -> None:
        name, trees = self.NAME, self.boosting
        if trees.loss in ("absolute", "quantile") and self.task == "regression":
            raise InvalidParameter(
                f"{name}: the {trees.loss} loss needs quantiles of labels in each leaf, and parties have noisy gradients "
                "alone; vertical.homomorphic takes it"
            )
        if self.per == MESSAGE and (
            trees.subsample < 1.0 or trees.early_stopping_rounds is not None or ColumnRules.matter(trees)
        ):
            raise InvalidParameter(
                f"{name}: per='message' is as published: it uses all rows and columns for every tree, without "
                "constraints and early stopping; per='run' and per='tree' have these"
            )
        if self.noise_aware and not self.allows_for_noise:
            raise InvalidParameter(
                f"{name}: noise_aware=True goes with noise whose scale all know, with per='tree' or 'run' and without "
                f"monotonic_cst, got epsilon={self.epsilon}, per={self.per!r} and monotonic_cst={trees.monotone}"
            )
        if self.has_noise and self.boosting.gradient_bits is not None:
            raise InvalidParameter(
                f"{name}: with noise the scale of gradients follows from the noise; leave out "
                f"gradient_bits={self.boosting.gradient_bits}"
            )
        if self.has_noise and self.task == "regression" and self.boosting.label_range is None:
            raise InvalidParameter(
                f"{name}: with noise a regression needs label_range=(low, high), which must be public; labels outside "
                "are clipped"
            )

    @property
    def has_noise(self) -> bool:
        """Whether gradients get noise at all."""
        return self.epsilon != math.inf

    @property
    def budget(self) -> tuple[float, float]:
        """(epsilon, delta)."""
        return float(self.epsilon or 0.0), float(self.delta or 0.0)

    @property
    def allows_for_noise(self) -> bool:
        """Whether splits and leaves can take the noise into account, and are to.

        Values that are shrunk by the noise of each leaf do not keep to an order: monotone columns are without it.
        """
        can = self.has_noise and self.per != MESSAGE and self.boosting.monotone is None
        return can and self.noise_aware is not False

    @property
    def releases(self) -> int:
        """How often the budget is divided: noisy vectors that one feature holder gets, or one message."""
        return self.boosting.n_iterations if self.per == TREE else 1
