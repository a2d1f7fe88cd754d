"""What every job says whose columns are split: public parameters, checked before any party is asked for anything.

    HoldersJob                who takes part, and who of them holds the labels
        VerticalJob           a training
        serving.ServiceJob    what parties do with a trained model

Where nobody holds labels yet (vertical.aligning), a job only has the check of its parties in common with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.runtime.protocol import Request

TASKS = ("classification", "regression")


def check_parties(name: str, parties: Sequence[str]) -> None:
    """InvalidParameter, naming the protocol, unless there are at least two parties with names of their own."""
    if len(parties) < 2:
        raise InvalidParameter(f"{name} needs at least 2 parties, got {len(parties)}")
    if len(set(parties)) < len(parties) or not all(isinstance(party, str) and party for party in parties):
        raise InvalidParameter(f"{name}: parties must have different names, got {list(parties)}")


@dataclass(frozen=True)
class HoldersJob:
    """What a label holder and feature holders must agree on. JSON-able; nothing in it is secret.

    A protocol's job is a subclass with `NAME` and fields of its own, which JSON can hold as they are; where it cannot,
    the subclass extends `to_dict` and `from_dict`.
    """

    NAME: ClassVar[str] = "vertical"

    parties: tuple[str, ...]  # in the order in which their columns count, which decides between equal splits
    label_holder: str
    run_id: str

    def __post_init__(self) -> None:
        check_parties(self.NAME, self.parties)
        if self.label_holder not in self.parties:
            raise InvalidParameter(
                f"{self.NAME}: the label holder must be one of {list(self.parties)}, got {self.label_holder!r}"
            )

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        return cls(**{**data, "parties": tuple(data["parties"])})


@dataclass(frozen=True)
class VerticalJob(HoldersJob):
    """What all parties of a vertical training must agree on."""

    task: str = "classification"
    boosting: BoostingParams = field(default_factory=BoostingParams)
    max_bins: int = MAX_BINS

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.NAME
        if self.task not in TASKS:
            raise InvalidParameter(f"{name}: task must be one of {', '.join(TASKS)}, got {self.task!r}")
        whole = isinstance(self.max_bins, int | np.integer) and not isinstance(self.max_bins, bool)
        if not whole or not 2 <= self.max_bins <= MAX_BINS:
            raise InvalidParameter(f"{name}: max_bins must be between 2 and {MAX_BINS}, got {self.max_bins!r}")
        if self.boosting.monotone is not None:
            raise InvalidParameter(
                f"{name}: monotonic_cst is not available where columns are split, got {self.boosting.monotone}"
            )

    def for_labels(self, n_classes: int | None, label_range: tuple[float, float]) -> BoostingParams:
        """The boosting parameters, for labels of so many classes (None: for a regression) and this range."""
        if n_classes is None:
            return replace(self.boosting, label_range=self.boosting.label_range or label_range)
        return replace(self.boosting, loss="logistic" if n_classes == 2 else "softmax", n_classes=n_classes)

    @classmethod
    def common_fields(cls, request: Request) -> dict[str, Any]:
        """The fields that every vertical job takes from a request."""
        if request.label_holder is None:
            raise InvalidParameter(f"{cls.NAME}: somebody must hold the labels")
        return {
            "parties": request.parties,
            "label_holder": request.label_holder,
            "run_id": request.run_id,
            "task": request.task,
            "boosting": request.boosting,
            "max_bins": request.max_bins,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return super().to_dict() | {"boosting": asdict(self.boosting)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        boosting = dict(data["boosting"])
        for name in ("monotone", "label_range"):
            boosting[name] = None if boosting[name] is None else tuple(boosting[name])
        return super().from_dict({**data, "boosting": BoostingParams(**boosting)})
