"""What a run of horizontal.secure_sum is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.losses import NO_MIN_ROWS, BoostingParams
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.bad_rows import OnBadRows, on_bad_rows
from hedgerow.protocols.horizontal.secure_sum.watching import NO_SUM, is_sum
from hedgerow.runtime.protocol import COORDINATOR, OWNER, Settled, option
from hedgerow.runtime.protocol import Job as AnyJob
from hedgerow.schema import Schema

NAME = "horizontal.secure_sum"
FEWEST_MASKED_OWNERS = 3
TASKS = ("classification", "regression")
LARGEST = 1e100
"""Weight of a class."""
BINS = f"between 2 and {MAX_BINS}"
NOT_WITH_DP = {
    "n_iterations": "max_iter (n_estimators)",
    "learning_rate": "learning_rate",
    "max_depth": "max_depth",
    "max_leaves": "max_leaf_nodes",
    "l2": "l2_regularization (reg_lambda)",
    "min_gain": "min_split_gain (gamma)",
    "min_child_weight": "min_child_weight",
    "min_samples_leaf": "min_samples_leaf",
    "subsample": "subsample",
    "colsample_bytree": "colsample_bytree",
    "colsample_bylevel": "colsample_bylevel",
    "colsample_bynode": "max_features",
    "monotone": "monotonic_cst",
    "interaction": "interaction_cst",
    "base_score": "base_score",
    "gradient_bits": "gradient_bits",
    "missing_unseen": "missing_unseen",
}
"""Parameters of trees that the private recipe does not ask for -> their names outside."""
BALANCED = "balanced"
NO_QUANTILES = (
    "a leaf's value would be what one single row still lacks, and so its label, which every owner would be told; sums "
    "over all owners hide single rows, quantiles name one"
)
GIVEN_EDGES = ": quantiles='given' and edges={column: [...]} go together"
NO_BAD_ROWS = (
    ": on_bad_rows is for dp=(epsilon, delta), where a schema says what fits; without dp what cannot be trained "
    "on is an error; leave on_bad_rows out"
)


def _parse_list(name: str) -> Callable[[str, Any], Any]:
    """An option that is a list of plain values."""

    def parse(protocol: str, given: Any) -> tuple[Any, ...]:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidParameter(f"{protocol}: {name} must be a list or a tuple, got {given!r}")
        return tuple(entry.item() if isinstance(entry, np.generic) else entry for entry in given)

    return parse


def _parse_class_weight(protocol: str, given: Any) -> str | tuple[tuple[Any, float], ...]:
    if given == BALANCED:
        return BALANCED
    if isinstance(given, str) or not isinstance(given, Mapping | tuple | list):
        raise InvalidParameter(
            f"{protocol}: class_weight must be 'balanced' or a dict of weights by class, got {given!r}"
        )
    pairs = dict(given).items()
    for label, factor in pairs:
        if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0 < factor < LARGEST:
            raise InvalidParameter(
                f"{protocol}: class_weight must hold numbers above 0, got {factor!r} for {label!r}; leave rows out "
                "that are not to count"
            )
    return tuple((label.item() if isinstance(label, np.generic) else label, float(factor)) for label, factor in pairs)


def _parse_edges(protocol: str, given: Any) -> dict[str, tuple[float, ...]]:
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"{protocol}{GIVEN_EDGES}")
    return {name: tuple(map(float, edges)) for name, edges in given.items()}


@dataclass(frozen=True)
class Job(AnyJob):
    """Everything that owners and coordinator must agree on. Nothing in it is secret."""

    NAME = NAME

    owners: tuple[str, ...]
    run_id: str
    task: str = option("classification", "what is predicted", one_of=TASKS, settled=True)
    boosting: BoostingParams = field(default_factory=BoostingParams)
    max_bins: int = option(MAX_BINS, "bins of a column", words=BINS, at_least=2, at_most=MAX_BINS, settled=True)
    coordinator: str = option(COORDINATOR, "the owner that coordinates; by default a party without rows does")
    quantiles: str = option("search", "how the edges of bins are found", one_of=("search", "private", "given"))
    edges: Mapping[str, tuple[float, ...]] | None = option(
        None, "of bins, by column; with quantiles='given'", words="{column: [edges]}", parse=_parse_edges
    )
    schema: Schema | None = option(None, "public bounds and levels; needed with dp and with quantiles='private'")
    quantile_epsilon: float | None = option(None, "of private quantiles")
    quantile_delta: float | None = option(None, "of private quantiles")
    classes: tuple[Any, ...] | None = option(
        None, "all classes, if they are public", words="a list", parse=_parse_list("classes")
    )
    class_weight: str | tuple[tuple[Any, float], ...] | None = option(
        None,
        "weights of classes: by class, or 'balanced' as if all had equally many rows",
        words="'balanced' or {class: weight}",
        parse=_parse_class_weight,
    )
    scale_pos_weight: float | None = option(None, "the weight of the second of two classes", above=0)
    dp: tuple[float, float] | None = option(
        None, "(epsilon, delta) of the model, for one row", words="(epsilon, delta)", parse=_parse_list("dp")
    )
    honest_owners: int | None = option(None, "owners whose noise is counted on; by default all but one")
    accept_no_masking: bool = option(False, "needed with two owners and no dp: nothing is protected")
    min_owners: int | None = option(None, "the run stops when fewer owners are left; by default two thirds")
    double_masking: bool | None = option(
        None, "masks of owners' own beside those of pairs; by default where a sum may be asked for again"
    )
    share_cover: bool = option(False, "whether owners get gains and covers of nodes")
    exact_label_range: bool = option(False, "whether owners tell their smallest and largest label")
    on_bad_rows: OnBadRows = on_bad_rows()

    def check(self) -> None:
        """Owners, choices, noise and labels; the first rule that is broken is the error."""
        rules = (self._about_owners, self._about_choices, self._about_noise, self._about_labels)
        for problem in itertools.chain.from_iterable(rule() for rule in rules):
            raise InvalidParameter(f"{NAME}{problem}")

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data."""
        parties = settled.parties
        own = dict(options)
        if "on_bad_rows" in own and own.get("dp") is None:
            raise InvalidParameter(f"{NAME}{NO_BAD_ROWS}")
        wanted = own.pop("coordinator", None)
        if wanted is not None and wanted not in parties:
            raise InvalidParameter(
                f"{NAME}: coordinator must be one of the owners {list(parties)}, or left out, got {wanted!r}"
            )
        if wanted is None and COORDINATOR in parties:
            raise InvalidParameter(
                f"{NAME}: an owner may not be called {COORDINATOR!r} unless coordinator={COORDINATOR!r} makes it one"
            )
        settings = {name: getattr(settled, name) for name in ("run_id", "task", "boosting", "max_bins")}
        return cls(owners=parties, coordinator=wanted or COORDINATOR, **settings, **own)

    @property
    def cast(self) -> Mapping[str, str]:
        """The coordinator, who listens, then the owners."""
        owners = (name for name in self.owners if name != self.coordinator)
        return {self.coordinator: COORDINATOR, **dict.fromkeys(owners, OWNER)}

    def _about_owners(self) -> Iterator[str]:
        n_owners = len(self.owners)
        if n_owners < 2:
            yield f" needs at least 2 owners, got {n_owners}; one owner alone trains locally"
        if len(set(self.owners)) < n_owners or not all(isinstance(name, str) and name for name in self.owners):
            yield f": owners must have different names, got {list(self.owners)}"
        if n_owners < FEWEST_MASKED_OWNERS and self.dp is None and not self.accept_no_masking:
            yield (
                f" with {n_owners} owners protects nothing: whoever knows the sum and one owner's part knows the "
                "other's. Take 3 or more owners, or dp=(epsilon, delta), or write accept_no_masking=True, which is "
                "stamped on the model"
            )
        if self.min_owners is not None and not 2 <= self.min_owners <= n_owners:
            yield f": min_owners must be between 2 and {n_owners}, got {self.min_owners}"
        if self.double_masking and len(self.masked_owners) < FEWEST_MASKED_OWNERS:
            yield f": double_masking needs at least 3 owners beside the coordinator, got {len(self.masked_owners)}"

    def _about_choices(self) -> Iterator[str]:
        if (self.quantiles == "given") != (self.edges is not None):
            yield GIVEN_EDGES
        if self.boosting.min_rows_per_sum > 1:
            yield f": {NO_MIN_ROWS}, got {self.boosting.min_rows_per_sum}"
        if self.stops_early and not is_sum(self.boosting.eval_metric):
            yield NO_SUM.format(name=self.boosting.eval_metric)
        if self.weighs_classes and self.task == "regression":
            yield ": class_weight and scale_pos_weight are for classes; give rows of a regression weights of their own"
        if self.boosting.loss in ("absolute", "quantile"):
            yield f" has no {self.boosting.loss} loss: {NO_QUANTILES}; use squared_error"
        if self.quantiles == "private" and self.schema is None:
            yield (
                ": quantiles='private' needs the columns' public bounds: "
                "schema=Schema.from_public(bounds={column: (low, high)})"
            )

    def _about_labels(self) -> Iterator[str]:
        if self.exact_label_range and (self.task != "regression" or self.label_range is not None):
            yield ": exact_label_range is for regressions without a declared range of labels; leave it out"
        if self.label_range is None and not self.exact_label_range:
            yield (
                ": a regression needs the range of its labels, and it must be public: label_range=(low, high), "
                "or a schema with label_bounds. exact_label_range=True tells the coordinator each owner's smallest and "
                "largest label instead, and all owners those of everybody together"
            )

    def _about_noise(self) -> Iterator[str]:
        if self.dp is not None:
            if len(list(self.dp)) != 2:  # whatever its type says: a user wrote it
                yield f": dp must be (epsilon, delta), got {self.dp!r}"
            yield from _about_budget("dp", *self.dp)
            yield from self._about_what_the_recipe_decides()
            if self.schema is None:
                yield (
                    ": dp needs the public bounds and levels of the columns: schema=Schema.from_public(...); "
                    "bounds taken from the data would not be private"
                )
            if self.share_cover:
                yield (
                    ": with dp the covers of all nodes come from noisy sums and are in every model; leave out "
                    "share_cover"
                )
        elif self.on_bad_rows != "map":
            yield NO_BAD_ROWS
        for name in ("quantile_epsilon", "quantile_delta"):
            if self.quantiles != "private" and getattr(self, name) is not None:
                yield f": {name} goes with quantiles='private' only, got {getattr(self, name)}"
        if self.honest_owners is not None and self.dp is None and self.quantiles != "private":
            given = self.honest_owners
            yield f": honest_owners says whose noise is counted on, but no noise was asked for, got {given}"
        if self.quantiles == "private":
            yield from _about_budget("quantile_epsilon and quantile_delta", self.quantile_epsilon, self.quantile_delta)
        most = len(self.owners) - 1
        if self.honest_owners is not None and not 1 <= self.honest_owners <= most:
            yield (
                f": honest_owners must be between 1 and {most}, got {self.honest_owners}; whoever looks at the "
                "model may be an owner itself, and knows its own noise"
            )

    def _about_what_the_recipe_decides(self) -> Iterator[str]:
        """With dp the number of trees and all else follows from the budget: a wish that would be ignored is refused."""
        default = BoostingParams()
        for name, outside in NOT_WITH_DP.items():
            value = getattr(self.boosting, name)
            if value != getattr(default, name):
                yield (
                    f": with dp the recipe decides on trees and rates by the budget; leave out {outside}, which "
                    f"was given as {value}"
                )
        if self.stops_early:
            yield (
                ": with dp nothing is stopped early: the budget decides how many trees there are, and a look at rows "
                "that are watched would have to be paid for after every one; leave out early_stopping"
            )
        if self.weighs_classes:
            yield ": with dp all rows count the same; leave out class_weight and scale_pos_weight"
        if self.boosting.loss == "poisson":
            yield ": dp is for two classes or the squared loss, got loss='poisson'"
        if self.boosting.label_range is not None or self.classes is not None:
            yield ": with dp classes and label bounds come from the schema; leave them out here"
        if self.quantiles != "search" or self.max_bins != MAX_BINS:
            yield ": with dp the recipe decides on the bins; leave out quantiles and max_bins"

    @property
    def stops_early(self) -> bool:
        """Whether rows are watched, and training ends when they no longer improve."""
        return self.boosting.early_stopping_rounds is not None

    @property
    def weighs_classes(self) -> bool:
        """Whether rows count by their class."""
        return self.class_weight is not None or self.scale_pos_weight is not None

    @property
    def fewest_owners(self) -> int:
        """The run stops when fewer owners than this are left."""
        if self.min_owners is not None:
            return self.min_owners
        return min(len(self.owners), max(FEWEST_MASKED_OWNERS, math.ceil(2 * len(self.owners) / 3)))

    @property
    def assumed_honest(self) -> int:
        """Owners whose noise is counted on: by default all but one; the noise of that many gives the guarantee."""
        return self.honest_owners or max(1, len(self.owners) - 1)

    @property
    def label_range(self) -> tuple[float, float] | None:
        """Of the labels as they are trained on, if it is public: of classes always, of numbers where declared."""
        if self.task == "classification":
            return 0.0, 1.0
        return self.boosting.label_range or (None if self.schema is None else self.schema.label_bounds)

    @property
    def shares_cover(self) -> bool:
        """Whether owners get gains and covers of nodes: on request, or where those come from noisy sums."""
        return self.share_cover or self.dp is not None

    def has_own_masks(self, *, is_first: bool) -> bool:
        """Whether a sum (the first of a tree?) carries masks of its owners' own beside those of pairs.

        By default the first sums of trees do: they are the only ones that are asked for again, without an owner that is
        silent, so its late message and the others' would open its part. Where a loss ends the run, as it does under dp
        and where no owner can be spared, no sum is ever asked for again, and they do without.
        """
        if self.double_masking is not None:
            return self.double_masking
        return is_first and not self.ends_with_a_loss and len(self.masked_owners) >= FEWEST_MASKED_OWNERS

    @property
    def ends_with_a_loss(self) -> bool:
        """Whether a run ends when any owner is lost. Owners see to it: they agree on no keys with fewer."""
        return self.dp is not None or self.fewest_owners == len(self.owners)

    @property
    def masked_owners(self) -> tuple[str, ...]:
        """Owners whose sums leave them; the coordinator's own never do."""
        return tuple(sorted(name for name in self.owners if name != self.coordinator))

    def for_labels(self, n_classes: int, label_range: tuple[float, float]) -> BoostingParams:
        """The boosting parameters, now that classes and label range are agreed on."""
        if self.task == "regression":
            return replace(self.boosting, label_range=label_range)
        return replace(self.boosting, loss="logistic" if n_classes == 2 else "softmax", n_classes=n_classes)


def _about_budget(name: str, epsilon: Any, delta: Any) -> Iterator[str]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (epsilon, delta))
    if not numbers or not epsilon > 0 or not 0 < delta < 1:
        yield f": {name} must be an epsilon above 0 and a delta between 0 and 1, got {epsilon!r} and {delta!r}"
    mu_for(epsilon, delta)  # refuses what cannot be proved
