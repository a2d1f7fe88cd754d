"""What fixes a training besides the records: all public, all checked before a record is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.choices import SMALLEST_EPSILON
from hedgerow.privacy.events import Adjacency
from hedgerow.privacy.wording import up
from hedgerow.schema import Schema

ProtocolName = Literal["central.dpboost", "central.sequential", "central.parallel", "central.plain"]
LossName = Literal["squared", "logistic"]
Assignment = Literal["independent", "paper"]
Binning = Literal["public", "private"]
Selection = Literal["exponential", "permute_and_flip"]
Gain = Literal["paper", "centred"]

MAX_DEPTH = 10
"""A complete tree of this depth has 1024 leaves: far more than noise leaves use for."""

MAX_VALUE_BINS = 254
"""Bins of values per numeric column: codes are bytes, one is for missing values."""

LARGEST_EPSILON = 1e6
SMALLEST_CLIP = 1e-100
"""Of leaves: geometric clipping shrinks them from tree to tree, and numbers must not run out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DPBoostSettings:
    """One training of `central.dpboost` or of one of its baselines. Shares are of the whole epsilon.

    `filtering=True` leaves records with gradients beyond g* out of a tree, as the paper has it; False clips the
    gradients instead, which is as private and keeps the records that are still wrong. None: clip, but filter in the
    baselines.
    `leaf_clipping=False` lets leaves be as they are, for studies of what that step is worth; as private as the rest.
    `gain="centred"` uses a smaller bound on the sensitivity of choices than the paper's (privacy/sensitivity.py);
    the baselines always have the paper's.
    """

    epsilon: float
    protocol: ProtocolName = "central.dpboost"
    n_trees: int = 50
    trees_per_ensemble: int = 50
    max_depth: int = 6
    learning_rate: float = 0.1
    l2: float = 0.1
    loss: LossName = "squared"
    assignment: Assignment = "independent"
    binning: Binning = "public"
    binning_share: float = 0.05
    max_bins: int = 32
    selection: Selection = "exponential"
    clipped_count_share: float = 0.01
    leaf_share: float = 0.5
    filtering: bool | None = None
    leaf_clipping: bool = True
    gain: Gain = "centred"

    def __post_init__(self) -> None:
        self._check_choices()
        _check_number("epsilon", self.epsilon, "a number above 0, or inf for no noise at all", lambda v: v > 0)
        if self.protocol == "central.plain" and not math.isinf(self.epsilon):
            raise InvalidParameter(f"central.plain is not private: epsilon must be inf, got {self.epsilon!r}")
        _check_whole("n_trees", self.n_trees, 1)
        _check_whole("trees_per_ensemble", self.trees_per_ensemble, 1)
        _check_whole("max_depth", self.max_depth, 1, MAX_DEPTH)
        _check_whole("max_bins", self.max_bins, 2, MAX_VALUE_BINS)
        _check_number("learning_rate", self.learning_rate, "above 0 and below 1", lambda v: 0 < v < 1)
        _check_number("l2", self.l2, "finite and at least 0", lambda v: 0 <= v < math.inf)
        _check_number("leaf_share", self.leaf_share, "above 0 and below 1", lambda v: 0 < v < 1)
        _check_number("binning_share", self.binning_share, "above 0 and below 1", lambda v: 0 < v < 1)
        _check_number("clipped_count_share", self.clipped_count_share, "at least 0 and below 1", lambda v: 0 <= v < 1)
        if self.leaf_clip(self.ensembles[0] - 1) < SMALLEST_CLIP:
            raise InvalidParameter(
                f"learning_rate={self.learning_rate!r} leaves nothing for the last of {self.ensembles[0]} trees of an "
                "ensemble; use a smaller one, or fewer trees_per_ensemble"
            )
        if self.noisy and self.epsilon > LARGEST_EPSILON:
            raise InvalidParameter(
                f"epsilon above {LARGEST_EPSILON:g} protects nobody, got {self.epsilon!r}; inf says so plainly"
            )
        if self.share_of_trees <= 0:
            raise InvalidParameter(
                f"binning_share and clipped_count_share leave nothing for the trees: {self.binning_share!r} and "
                f"{self.clipped_count_share!r}"
            )
        if self.epsilon_per_level < SMALLEST_EPSILON:
            raise InvalidParameter(
                f"epsilon={self.epsilon!r} leaves {up(self.epsilon_per_level, 2)} for a choice, too little for any; "
                "use a larger one, or fewer trees"
            )

    def _check_choices(self) -> None:
        kinds: dict[str, Any] = {
            "protocol": ProtocolName,
            "loss": LossName,
            "assignment": Assignment,
            "binning": Binning,
            "selection": Selection,
            "gain": Gain,
        }
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(repr(value) for value in get_args(kind))
                raise InvalidParameter(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if not isinstance(self.leaf_clipping, bool):
            raise InvalidParameter(f"leaf_clipping must be True or False, got {self.leaf_clipping!r}")
        if not isinstance(self.filtering, bool | None):
            raise InvalidParameter(f"filtering must be True, False or None, got {self.filtering!r}")

    # --- what follows ------------------------------------------------------------------------------------------------

    @property
    def adjacency(self) -> Adjacency:
        """The paper's subsets have sizes that depend on the number of records: private only where that is public."""
        return "replace_one" if self.assignment == "paper" else "add_remove"

    @property
    def filters(self) -> bool:
        """Whether records with gradients beyond g* are left out; else their gradients are clipped."""
        return self.protocol != "central.dpboost" if self.filtering is None else self.filtering

    @property
    def noisy(self) -> bool:
        """Whether there is noise at all."""
        return not math.isinf(self.epsilon)

    @property
    def gradient_bound(self) -> float:
        """g*: the largest absolute gradient at score 0."""
        return 1.0 if self.loss == "squared" else 0.5

    @property
    def share_of_trees(self) -> float:
        """Of epsilon, after bins and the count of rows that did not fit."""
        return 1.0 - (self.binning_share if self.binning == "private" else 0.0) - self.clipped_count_share

    @property
    def ensembles(self) -> tuple[int, ...]:
        """Trees of each ensemble: trees within one see disjoint records, ensembles see the same ones."""
        if self.protocol == "central.parallel":
            return (self.n_trees,)
        size = 1 if self.protocol == "central.sequential" else min(self.trees_per_ensemble, self.n_trees)
        full, rest = divmod(self.n_trees, size)
        return (size,) * full + ((rest,) if rest else ())

    @property
    def epsilon_per_tree(self) -> float:
        """The same for all trees: an ensemble costs what one of its trees does."""
        return self.epsilon * self.share_of_trees * _SLIGHTLY_LESS / len(self.ensembles)

    @property
    def epsilon_per_level(self) -> float:
        """For the choices of one level of a tree."""
        return self.epsilon_per_tree * (1.0 - self.leaf_share) / self.max_depth

    @property
    def epsilon_of_leaves(self) -> float:
        """For all leaves of a tree."""
        return self.epsilon_per_tree * self.leaf_share

    @property
    def epsilon_of_bins(self) -> float:
        """For the edges of bins; 0 where they are public."""
        return self.epsilon * self.binning_share * _SLIGHTLY_LESS if self.binning == "private" else 0.0

    @property
    def epsilon_of_count(self) -> float:
        """For the number of rows that did not fit the schema; 0 where it is not released."""
        return self.epsilon * self.clipped_count_share * _SLIGHTLY_LESS if self.clipped_count_share else 0.0

    def leaf_clip(self, place: int) -> float:
        """tau of the tree at this place of its ensemble, from 0; infinite where leaves are not clipped."""
        if self.protocol != "central.dpboost" or not self.leaf_clipping:
            return math.inf
        return float(self.gradient_bound * (1.0 - self.learning_rate) ** place)

    def check_schema(self, schema: Schema) -> None:
        """The schema must say what the labels are, and the loss must be one for such labels."""
        if not isinstance(schema, Schema):
            raise InvalidParameter(f"schema must be a hedgerow Schema with public bounds and levels, got {schema!r}")
        if (schema.classes is None) == (schema.label_bounds is None):
            raise InvalidParameter("the schema must state either classes (classification) or label_bounds (regression)")
        if schema.classes is not None and len(schema.classes) != 2:
            raise InvalidParameter(
                f"{self.protocol} is for two classes, but the schema lists {len(schema.classes)}; "
                "PrivateBoostingClassifier is for more"
            )
        if schema.classes is None and self.loss == "logistic":
            raise InvalidParameter("the logistic loss is for two classes, but the schema has label_bounds")


_SLIGHTLY_LESS = 1.0 - 2.0**-36
"""So that a sum of many shares, each rounded, is never above the whole."""


def _check_number(name: str, value: Any, what: str, holds: Callable[[float], bool]) -> None:
    is_number = isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)  # larger ones are no floats
    if not is_number or not holds(value):
        raise InvalidParameter(f"{name} must be {what}, got {value!r}")


def _check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        span = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidParameter(f"{name} must be a whole number, {span}, got {value!r}")
