"""What fixes a training besides the records: all public, all checked before a record is looked at."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import Literal

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.choices import SMALLEST_EPSILON
from hedgerow.privacy.events import Adjacency, up
from hedgerow.protocols.central.released import check_settings
from hedgerow.runtime.protocol import option
from hedgerow.schema import Schema

ProtocolName = Literal["central.dpboost", "central.sequential", "central.parallel", "central.plain"]
LossName = Literal["squared", "logistic"]
Assignment = Literal["independent", "paper"]
Binning = Literal["public", "private"]
Selection = Literal["exponential", "permute_and_flip"]
Gain = Literal["paper", "centred"]

COUNT_BITS = 24
GRADIENT_BITS = 14
UNIT = 2.0**-GRADIENT_BITS
MAX_ROWS = 2**COUNT_BITS - 1
"""A record is (q << 24) + 1, where q is its gradient in steps of 2^-14, at most 2^15 in absolute value. Sums over any
set of at most MAX_ROWS records keep their count in the low 24 bits and their gradient, below 2^39, in the 40 above.
The scale does not depend on the number of records, which is private: else one more could move everybody's q."""

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

    epsilon: float = option(MISSING, "", above=0, or_inf=True, words="a number above 0, or inf for no noise at all")
    protocol: ProtocolName = option("central.dpboost", "this, or one of the paper's baselines")
    n_trees: int = option(50, "of all ensembles", at_least=1)
    trees_per_ensemble: int = option(50, "which see disjoint records", at_least=1)
    max_depth: int = option(6, "of every tree", at_least=1, at_most=MAX_DEPTH)
    learning_rate: float = option(0.1, "eta", above=0, below=1)
    l2: float = option(0.1, "added to counts of records", at_least=0, words="finite and at least 0")
    loss: LossName = option("squared", "of labels in [-1, 1], or of two classes")
    assignment: Assignment = option("independent", "of records to trees")
    binning: Binning = option("public", "where edges come from")
    binning_share: float = option(0.05, "for private edges", above=0, below=1)
    max_bins: int = option(32, "of values, per numeric column", at_least=2, at_most=MAX_VALUE_BINS)
    selection: Selection = option("exponential", "how splits are chosen")
    clipped_count_share: float = option(0.01, "for the number of rows that did not fit", at_least=0, below=1)
    leaf_share: float = option(0.5, "of what a tree costs", above=0, below=1)
    filtering: bool | None = option(None, "as above", words="True, False or None")
    leaf_clipping: bool = option(True, "as above")
    gain: Gain = option("centred", "as above")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.protocol == "central.plain" and not math.isinf(self.epsilon):
            raise InvalidParameter(f"central.plain is not private: epsilon must be inf, got {self.epsilon!r}")
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
