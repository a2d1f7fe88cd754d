"""What a run of vertical.noised_gradients is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hedgerow.engine.table import Level
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.bad_rows import OnBadRows, check_on_bad_rows
from hedgerow.protocols.vertical.common.job import VerticalJob

XGBOOST, FIRST_ORDER = "xgboost", "first_order"
RUN, TREE, MESSAGE = "run", "tree", "message"
NOT_OFFERED = {"subsample": "subsample", "colsample_bytree": "colsample_bytree", "colsample_bynode": "max_features"}
"""Parameters of trees that draw rows or columns at random -> their names outside."""


@dataclass(frozen=True)
class NoisedGradientsJob(VerticalJob):
    """Everything that the parties must agree on."""

    NAME: ClassVar[str] = "vertical.noised_gradients"

    epsilon: float | None = None  # of the whole run; with per="message" of one message
    delta: float | None = None
    score: str = XGBOOST
    per: str = RUN
    classes: tuple[Level, ...] | None = None  # public; a label that is not listed counts as the first
    on_bad_rows: OnBadRows = "map"  # of labels; or "raise", for public ones
    noise_aware: bool | None = None  # None: wherever there is noise and per is not "message"

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.NAME
        for option, value, allowed in (
            ("score", self.score, (XGBOOST, FIRST_ORDER)),
            ("per", self.per, (RUN, TREE, MESSAGE)),
            ("noise_aware", self.noise_aware, (None, True, False)),
        ):
            if value not in allowed:
                raise InvalidParameter(f"{name}: {option} must be one of {', '.join(map(str, allowed))}, got {value!r}")
        check_on_bad_rows(self.on_bad_rows)
        if self.classes is not None:
            listed = tuple(self.classes) if isinstance(self.classes, list | tuple) else ()
            if len(set(listed)) != 2 or len(listed) != 2 or self.task == "regression":
                raise InvalidParameter(f"{name}: classes must list the two classes of a label, got {self.classes!r}")
            object.__setattr__(self, "classes", listed)
        if self.epsilon is None or (self.delta is None and self.epsilon != math.inf):
            raise InvalidParameter(
                f"{name} needs epsilon and delta, got {self.epsilon!r} and {self.delta!r}; epsilon=math.inf is without "
                "noise, and NOT PRIVATE"
            )
        if self.has_noise:
            mu_for(self.epsilon, self.delta or 0.0)  # refuses what is no budget, and what cannot be proved
        self._check_trees()

    def _check_trees(self) -> None:
        name = self.NAME
        for parameter, outside in NOT_OFFERED.items():
            value = getattr(self.boosting, parameter)
            if value != 1.0:
                raise InvalidParameter(f"{name} uses all rows and columns for every tree; leave out {outside}={value}")
        if self.noise_aware and not self.allows_for_noise:
            raise InvalidParameter(
                f"{name}: noise_aware=True goes with noise whose scale all know and with per='tree' or 'run', got "
                f"epsilon={self.epsilon} and per={self.per!r}"
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
        """Whether splits and leaves can take the noise into account, and are to."""
        return self.has_noise and self.per != MESSAGE and self.noise_aware is not False

    @property
    def releases(self) -> int:
        """How often the budget is divided: noisy vectors that one feature holder gets, or one message."""
        return self.boosting.n_iterations if self.per == TREE else 1

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; JSON has no infinite number."""
        data = super().to_dict()
        return {**data, "epsilon": data["epsilon"] if self.has_noise else "inf"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        return super().from_dict({**data, "epsilon": None if data["epsilon"] is None else float(data["epsilon"])})
