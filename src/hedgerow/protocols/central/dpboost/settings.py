"""What fixes a training besides the records: all public, all checked before a record is looked at."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import Literal, NamedTuple

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.choices import SMALLEST_EPSILON
from hedgerow.privacy.events import Adjacency, up
from hedgerow.protocols.central.released import check_settings
from hedgerow.runtime.protocol import option
from hedgerow.schema import NumericColumn, Schema

ProtocolName = Literal["central.dpboost", "central.sequential", "central.parallel", "central.plain"]
LossName = Literal["squared", "logistic", "quantile"]
Assignment = Literal["independent", "paper"]
Binning = Literal["public", "private"]
Selection = Literal["exponential", "permute_and_flip"]
Gain = Literal["paper", "centred"]

COUNT_BITS = 24
GRADIENT_BITS = 14
MAX_ROWS = 2**COUNT_BITS - 1
"""A record is (q << 24) + 1, where q is its gradient in steps of 2^-14, at most 2^15 in absolute value. Sums over any
set of at most MAX_ROWS records keep their count in the low 24 bits and their gradient, below 2^39, in the 40 above.
The scale does not depend on the number of records, which is private: else one more could move everybody's q."""

WEIGHT_BITS = 8
"""Weights are whole numbers of 256ths of the largest that a record may have."""


class Scale(NamedTuple):
    """What the bits of a record mean, for kernels: the count in the low ones, the gradient above."""

    count_bits: int
    gradient_bits: int
    weight_bits: int

    @property
    def most_rows(self) -> int:
        """How many records can be summed exactly."""
        return int(2 ** (self.count_bits - self.weight_bits) - 1)


UNWEIGHTED = Scale(COUNT_BITS, GRADIENT_BITS, 0)
WEIGHTED = Scale(29, 12, WEIGHT_BITS)
"""With weights a record is (q w / 256 << 29) + w, with w from 1 to 256 and |q| <= 2^13 in steps of 2^-12, so that sums
of 2^21 - 1 records keep their weight in the low 29 bits, and their gradient, below 2^34, in the 35 above."""

MAX_DEPTH = 10
"""A complete tree of this depth has 1024 leaves: far more than noise leaves use for."""

MAX_VALUE_BINS = 254
"""Bins of values per numeric column: codes are bytes, one is for missing values."""

MAX_CLASSES = 256
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
    `n_classes` above 2 is softmax, whatever `loss` says: each tree has one structure, and a value per class in a leaf.
    `loss="quantile"` is the pinball loss of labels in [-1, 1]: its gradients are bounded by themselves.
    `weighted` records have weights from 0 to 1. `early_stopping` sets records apart, each by a secret coin of its own,
    and chooses the number of trees by them; they serve no tree, so that neither costs the other's records anything.
    `seed` decides which columns `colsample_...` leave to a tree, a level or a node, and nothing else.
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
    n_classes: int = option(2, "of the labels; 2 for a regression", at_least=2, at_most=MAX_CLASSES)
    quantile: float = option(0.5, "of the quantile loss", above=0, below=1)
    weighted: bool = option(False, "whether records have weights")
    monotone: tuple[int, ...] | None = None
    """Per column: 1 for predictions that do not fall, -1 for ones that do not rise, 0 for any."""
    interaction: tuple[tuple[int, ...], ...] | None = None
    """Groups of columns that may meet on one path; columns in no group are a group."""
    colsample_bytree: float = option(1.0, "of the columns, drawn for each tree", above=0, at_most=1)
    colsample_bylevel: float = option(1.0, "of those, drawn for each level", above=0, at_most=1)
    colsample_bynode: float = option(1.0, "of those, drawn for each node", above=0, at_most=1)
    seed: int = option(0, "of these draws", at_least=0)
    early_stopping: bool = option(False, "whether the number of trees is chosen")
    validation_fraction: float = option(0.1, "of the records are for that", above=0, below=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.protocol != "central.dpboost":
            self._check_baseline()
        if self.n_classes > 2 and self.monotone is not None:
            raise InvalidParameter(f"monotone constraints are for two classes or a regression, not {self.n_classes}")
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

    def _check_baseline(self) -> None:
        """The paper's baselines are as the paper has them."""
        more = {
            "more than two classes": self.n_classes > 2,
            "the quantile loss": self.loss == "quantile",
            "weights": self.weighted,
            "monotone constraints": self.monotone is not None,
            "interaction constraints": self.interaction is not None,
            "draws of columns": min(self.colsample_bytree, self.colsample_bylevel, self.colsample_bynode) < 1.0,
            "early_stopping": self.early_stopping,
        }
        for what, wanted in more.items():
            if wanted:
                raise InvalidParameter(f"{what}: for central.dpboost, not for the paper's baseline {self.protocol}")

    # --- what follows ------------------------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """Scores of a record, and values of a leaf: one, or one for each of more than two classes."""
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def scale(self) -> Scale:
        """How records are packed."""
        return WEIGHTED if self.weighted else UNWEIGHTED

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
        """g*: the largest absolute gradient at score 0; of K > 2 classes the length of a record's K gradients.

        At score 0 all probabilities are 1/K: the gradients are 1/K - 1 for the record's class and 1/K for K - 1 others,
        and their squares add up to 1 - 1/K.
        """
        if self.n_classes > 2:
            return math.sqrt(1.0 - 1.0 / self.n_classes)
        return 0.5 if self.loss == "logistic" else 1.0

    @property
    def gradient_bound_l1(self) -> float:
        """The same for the sum of the absolute values of a record's gradients: 2 (1 - 1/K) for K > 2 classes."""
        return 2.0 * (1.0 - 1.0 / self.n_classes) if self.n_classes > 2 else self.gradient_bound

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
        largest = 1.0 - 1.0 / self.n_classes if self.n_classes > 2 else self.gradient_bound
        return float(largest * (1.0 - self.learning_rate) ** place)

    def check_schema(self, schema: Schema) -> None:
        """The schema must say what the labels are, and the loss must be one for such labels."""
        if not isinstance(schema, Schema):
            raise InvalidParameter(f"schema must be a hedgerow Schema with public bounds and levels, got {schema!r}")
        if (schema.classes is None) == (schema.label_bounds is None):
            raise InvalidParameter("the schema must state either classes (classification) or label_bounds (regression)")
        n_classes = 2 if schema.classes is None else len(schema.classes)
        if n_classes != self.n_classes:
            raise InvalidParameter(f"the schema lists {n_classes} classes, but the settings are for {self.n_classes}")
        if schema.classes is None and self.loss == "logistic":
            raise InvalidParameter("the logistic loss is for classes, but the schema has label_bounds")
        if schema.classes is not None and self.loss == "quantile":
            raise InvalidParameter("the quantile loss is for numbers, but the schema lists classes")
        self._check_columns(schema)

    def _check_columns(self, schema: Schema) -> None:
        """Constraints must be about columns that there are, and directions about columns with an order."""
        n_columns = len(schema.columns)
        if self.monotone is not None:
            if len(self.monotone) != n_columns or any(sign not in (-1, 0, 1) for sign in self.monotone):
                raise InvalidParameter(
                    f"monotone must have -1, 0 or 1 for each of {n_columns} columns, got {self.monotone!r}"
                )
            for column, sign in zip(schema.columns, self.monotone, strict=True):
                if sign and not isinstance(column, NumericColumn):
                    raise InvalidParameter(f"column {column.name!r} has levels without order: no direction is possible")
        unknown = {column for group in self.interaction or () for column in group} - set(range(n_columns))
        if unknown:
            raise InvalidParameter(f"interaction names column {min(unknown)}, but there are {n_columns}")

    @property
    def epsilon_of_looks(self) -> float:
        """For what is learned from the records that are set apart: all that the trees cost the others."""
        return self.epsilon * self.share_of_trees * _SLIGHTLY_LESS


_SLIGHTLY_LESS = 1.0 - 2.0**-36
"""So that a sum of many shares, each rounded, is never above the whole."""
