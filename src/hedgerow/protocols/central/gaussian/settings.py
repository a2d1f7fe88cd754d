"""What fixes a training by `central.gaussian` besides the rows: all public, all checked before a row is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.central.gaussian.recipe import MISFITS_SHARE
from hedgerow.protocols.central.gaussian.requests import MAX_DEPTH

PolicyName = Literal["smooth_then_trees", "random", "cyclic", "exponential", "histogram"]


@dataclass(frozen=True)
class GaussianSettings:
    """How to train. All of it is public. None means that the policy decides."""

    epsilon: float
    delta: float
    policy: PolicyName = "smooth_then_trees"
    seed: int = 0
    """Decides orders, columns and thresholds; never noise."""
    subsample: float = 1.0
    """Chance of a row to take part in a release (policies random and cyclic)."""
    n_trees: int | None = None
    max_depth: int | None = None
    learning_rate: float | None = None
    l2: float | None = None
    clipped_count_share: float = MISFITS_SHARE
    """Share of the budget for the number of rows that did not fit the schema; 0 for not telling it."""

    def __post_init__(self) -> None:
        mu_for(self.epsilon, self.delta)  # refuses what is no budget
        if self.policy not in get_args(PolicyName):
            raise InvalidParameter(f"policy must be one of {', '.join(get_args(PolicyName))}, got {self.policy!r}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise InvalidParameter(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if not 0.0 <= self.clipped_count_share <= 0.5:
            raise InvalidParameter(f"clipped_count_share must be between 0 and 0.5, got {self.clipped_count_share!r}")
        for name, value, most in (("n_trees", self.n_trees, 10**6), ("max_depth", self.max_depth, MAX_DEPTH)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and 1 <= value <= most):
                raise InvalidParameter(f"{name} must be a whole number from 1 to {most}, got {value!r}")
        rate, l2, share = self.learning_rate, self.l2, self.subsample
        if rate is not None and not (_is_number(rate) and 0.0 < rate <= 10.0):
            raise InvalidParameter(f"learning_rate must be above 0 and at most 10, got {rate!r}")
        if l2 is not None and not (_is_number(l2) and 0.0 <= l2 < math.inf):
            raise InvalidParameter(f"l2 must be a finite number of at least 0, got {l2!r}")
        if not (_is_number(share) and 0.0 < share <= 1.0):
            raise InvalidParameter(f"subsample must be above 0 and at most 1, got {share!r}")
        if self.policy == "smooth_then_trees":
            for name in ("n_trees", "max_depth", "learning_rate", "l2", "subsample"):
                if getattr(self, name) != (1.0 if name == "subsample" else None):
                    raise InvalidParameter(
                        f"the policy smooth_then_trees sets {name} by its own rule, from noisy counts; "
                        "leave it away, or choose another policy"
                    )
        if self.subsample < 1.0 and self.policy not in ("random", "cyclic"):
            raise InvalidParameter(f"subsample is for the policies random and cyclic, not for {self.policy}")

    @property
    def rate(self) -> float:
        """`subsample` as 32 random bits can have it: a multiple of 2^-32, rounded down."""
        return max(math.floor(self.subsample * 2.0**32), 1) / 2.0**32


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
