"""What every job says whose columns are split: public parameters, checked before any party is asked for anything.

    HoldersJob                who takes part, and who of them holds the labels
        VerticalJob           a training
        serving.ServiceJob    what parties do with a trained model

Where nobody holds labels yet (vertical.aligning), a job only has the check of its parties in common with these.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.runtime.options import Job, Settled, option
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER
from hedgerow.schema import Column, Level, Schema

TASKS = ("classification", "regression")
BINS = f"between 2 and {MAX_BINS}"


def check_parties(name: str, parties: Sequence[str]) -> None:
    """InvalidParameter, naming the protocol, unless there are at least two parties with names of their own."""
    if len(parties) < 2:
        raise InvalidParameter(f"{name} needs at least 2 parties, got {len(parties)}")
    if len(set(parties)) < len(parties) or not all(isinstance(party, str) and party for party in parties):
        raise InvalidParameter(f"{name}: parties must have different names, got {list(parties)}")


@dataclass(frozen=True)
class HoldersJob(Job):
    """What a label holder and feature holders must agree on. Nothing in it is secret."""

    NAME = "vertical"

    parties: tuple[str, ...]  # in the order in which their columns count, which decides between equal splits
    label_holder: str
    run_id: str

    def check(self) -> None:
        """The label holder is one of the parties."""
        check_parties(self.NAME, self.parties)
        if self.label_holder not in self.parties:
            raise InvalidParameter(
                f"{self.NAME}: the label holder must be one of {list(self.parties)}, got {self.label_holder!r}"
            )

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

    @property
    def holders(self) -> tuple[str, ...]:
        """Who has data: the label holder, then the feature holders. Shares and columns go by this order."""
        return (self.label_holder, *self.feature_holders)

    @property
    def cast(self) -> Mapping[str, str]:
        """The label holder, who listens, then the feature holders."""
        return {self.label_holder: LABEL_HOLDER, **dict.fromkeys(self.feature_holders, FEATURE_HOLDER)}


class WithDealer(HoldersJob):
    """A job with one more party, which has no data."""

    dealer: str

    def check(self) -> None:
        """The dealer is nobody else."""
        super().check()
        if not isinstance(self.dealer, str) or not self.dealer or self.dealer in self.parties:
            raise InvalidParameter(
                f"{self.NAME}: the dealer must be a party of its own, beside {list(self.parties)}, got {self.dealer!r}"
            )

    @property
    def cast(self) -> Mapping[str, str]:
        """Who has data, the label holder first, and the dealer."""
        return {**super().cast, self.dealer: DEALER}

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.cast, 2))


class WithSchema(HoldersJob):
    """A job with public facts about columns and labels."""

    schema: Schema | None

    @property
    def listed_classes(self) -> tuple[Level, ...] | None:
        """The classes of the public schema, if it has any."""
        return None if self.schema is None else self.schema.classes

    def described(self, party: str, column: str) -> Column | None:
        """What the schema says about a party's column, under "party.column" or "column"."""
        known = {} if self.schema is None else {entry.name: entry for entry in self.schema.columns}
        return known.get(f"{party}.{column}", known.get(column))


@dataclass(frozen=True)
class VerticalJob(HoldersJob):
    """What all parties of a vertical training must agree on."""

    task: str = option("classification", "what is predicted", one_of=TASKS, settled=True)
    boosting: BoostingParams = field(default_factory=BoostingParams)
    max_bins: int = option(MAX_BINS, "bins of a column", words=BINS, at_least=2, at_most=MAX_BINS, settled=True)

    def check(self) -> None:
        """What trees cannot do where columns are split."""
        super().check()
        if self.boosting.monotone is not None:
            raise InvalidParameter(
                f"{self.NAME}: monotonic_cst is not available where columns are split, got {self.boosting.monotone}"
            )

    def for_labels(self, n_classes: int | None, label_range: tuple[float, float]) -> BoostingParams:
        """The boosting parameters, for labels of this many classes (None: for a regression) and this range."""
        if n_classes is None:
            return replace(self.boosting, label_range=self.boosting.label_range or label_range)
        return replace(self.boosting, loss="logistic" if n_classes == 2 else "softmax", n_classes=n_classes)

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data."""
        if settled.label_holder is None:
            raise InvalidParameter(f"{cls.NAME}: somebody must hold the labels")
        return cls(**settled._asdict(), **options)
