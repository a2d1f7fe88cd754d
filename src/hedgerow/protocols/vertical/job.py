"""What every job says whose columns are split: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.engine.boosting import BoostingParams
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.protocol import Request

TASKS = ("classification", "regression")


@dataclass(frozen=True)
class VerticalJob:
    """What all parties of a vertical training must agree on. JSON-able; nothing in it is secret.

    A protocol's job is a subclass with `NAME` and fields of its own, which JSON can hold as they are; where it cannot,
    the subclass extends `to_dict` and `from_dict`.
    """

    NAME: ClassVar[str] = "vertical"

    parties: tuple[str, ...]  # in the order in which their columns count, which decides between equal splits
    label_holder: str
    run_id: str
    task: str = "classification"
    boosting: BoostingParams = field(default_factory=BoostingParams)
    max_bins: int = MAX_BINS

    def __post_init__(self) -> None:
        name = self.NAME
        if len(self.parties) < 2:
            raise InvalidParameter(f"{name} needs at least 2 parties, got {len(self.parties)}")
        if len(set(self.parties)) < len(self.parties) or not all(isinstance(p, str) and p for p in self.parties):
            raise InvalidParameter(f"{name}: parties must have different names, got {list(self.parties)}")
        if self.label_holder not in self.parties:
            raise InvalidParameter(
                f"{name}: the label holder must be one of {list(self.parties)}, got {self.label_holder!r}"
            )
        if self.task not in TASKS:
            raise InvalidParameter(f"{name}: task must be one of {', '.join(TASKS)}, got {self.task!r}")
        whole = isinstance(self.max_bins, int | np.integer) and not isinstance(self.max_bins, bool)
        if not whole or not 2 <= self.max_bins <= MAX_BINS:
            raise InvalidParameter(f"{name}: max_bins must be between 2 and {MAX_BINS}, got {self.max_bins!r}")
        if self.boosting.monotone is not None:
            raise InvalidParameter(
                f"{name}: monotonic_cst is not available where columns are split, got {self.boosting.monotone}"
            )

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

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
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["boosting"] = asdict(self.boosting)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also after a way through JSON."""
        values = dict(data)
        boosting = dict(values["boosting"])
        for name in ("monotone", "label_range"):
            boosting[name] = None if boosting[name] is None else tuple(boosting[name])
        values["boosting"] = BoostingParams(**boosting)
        values["parties"] = tuple(values["parties"])
        return cls(**values)
