"""What parts of all kinds have in common: whose they are, their columns, how scores become predictions, and a file.

Reading refuses what it does not know. What the file of each kind says: docs/reference/vertical_model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.losses import LOSSES
from hedgerow.engine.table import Table, read_table
from hedgerow.errors import InvalidInput, ModelFileError

FORMAT = "hedgerow part of a vertical model"
VERSION = 1
HEADING = ("format", "version", "role")
_TEXTS = ("party", "label_holder", "protocol", "run_id")


class HeldPart:
    """One party's part of a model. Each kind is a dataclass whose file has these fields, and some of its own."""

    ROLE: ClassVar[str]  # what the file calls this kind
    FIELDS: ClassVar[tuple[str, ...]]  # of the file, in their order, after HEADING

    party: str
    protocol: str
    run_id: str
    features: tuple[FeatureBins, ...]  # its own columns, as they were binned for training

    def check_names(self) -> None:
        """InvalidInput unless its columns can be told apart."""
        if not _have_names(self.features):
            raise InvalidInput(f"{self.party}: two columns have the same name")

    def read(self, X: Any, where: str) -> Table:
        """A table with this party's columns, found by name where there are names."""
        return read_table(X, like=self.features, where=where)

    def codes(self, table: Table, n_threads: int = 1) -> Bytes:
        """Bins of all values of a table that `read` has read: uint8 [columns, rows]."""
        if not self.features:
            return np.empty((0, table.n_rows), np.uint8)
        return BinMapper(self.features).transform(table, n_threads)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the fields of its file."""
        document = {"format": FORMAT, "version": VERSION, "role": self.ROLE}
        written = self.written()
        return document | {name: written[name] if name in written else getattr(self, name) for name in self.FIELDS}

    def written(self) -> dict[str, Any]:
        """Those fields of the file that are not texts or numbers of the part itself."""
        return {"features": [feature.to_dict() for feature in self.features]}


def _have_names(features: Sequence[FeatureBins]) -> bool:
    """Whether each has one of its own."""
    return len({feature.name for feature in features}) == len(features)


@dataclass(frozen=True)
class Target(AsJson):
    """How scores become predictions, which the label holder keeps for itself."""

    loss: str
    base_scores: tuple[float, ...]  # one for each output
    learning_rate: float  # raw score = base score + learning rate x sum of leaf values
    classes: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_scores", tuple(float(score) for score in self.base_scores))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))
        if self.classes is not None:
            plain = (c.item() if isinstance(c, np.generic) else c for c in self.classes)
            object.__setattr__(self, "classes", tuple(plain))
        if self.loss not in LOSSES or (self.loss == "softmax") != (len(self.base_scores) > 1):
            raise InvalidInput(f"the loss {self.loss!r} does not go with {len(self.base_scores)} base scores")
        if not all(math.isfinite(number) for number in (*self.base_scores, self.learning_rate)):
            raise InvalidInput("base scores and learning rate must be finite")
        if self.classes is not None and len(self.classes) != max(2, len(self.base_scores)):
            raise InvalidInput(f"{len(self.classes)} classes do not go with {len(self.base_scores)} base scores")

    @property
    def n_outputs(self) -> int:
        """Raw scores per row; tree t belongs to output t % n_outputs."""
        return len(self.base_scores)

    @classmethod
    def from_dict(cls, data: Any) -> Target:
        """The inverse of `to_dict`, from a file."""
        if not isinstance(data, Mapping):
            raise ModelFileError("target must be null or an object")
        check_fields(data, [field.name for field in fields(cls)])
        scores, classes = expect(data, "base_scores", list), data["classes"]
        if not all(type(number) in (int, float) for number in (*scores, data["learning_rate"])):
            raise ModelFileError("base_scores and learning_rate must be numbers")
        if classes is not None and not all(isinstance(c, str | int | float) for c in expect(data, "classes", list)):
            raise ModelFileError("classes must be null or a list of texts, numbers or booleans")
        return cls(expect(data, "loss", str), scores, data["learning_rate"], classes)


# --- reading ---------------------------------------------------------------------------------------------------------


_CALLED: dict[type, str] = {list: "a list", str: "text", Mapping: "an object"}


def check_fields(data: Mapping[str, Any], names: Sequence[str]) -> None:
    """ModelFileError unless just these fields are there."""
    absent, unknown = [n for n in names if n not in data], [n for n in data if n not in names]
    if absent:
        raise ModelFileError(f"the field {absent[0]!r} is lacking")
    if unknown:
        raise ModelFileError(f"there is a field {str(unknown[0])[:40]!r} that version {VERSION} does not know")


def expect(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field that must be a list, text or an object."""
    if not isinstance(data.get(name), kind):
        raise ModelFileError(f"{name} must be {_CALLED[kind]}")
    return data[name]


def common_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that files of several kinds have, as the part takes them: texts, `features`, `meta`."""
    found: dict[str, Any] = {name: expect(data, name, str) for name in _TEXTS if name in data}
    if "features" in data:
        found["features"] = tuple(FeatureBins.from_dict(entry) for entry in expect(data, "features", list))
        if not _have_names(found["features"]):
            raise ModelFileError("two columns have the same name")
    if "meta" in data:
        found["meta"] = dict(expect(data, "meta", Mapping))
    return found


def threshold_of(last_bin: int, feature: FeatureBins) -> float | None:
    """What a split of a numeric column after a bin is written as: an edge, or None if all values go left."""
    edges = np.empty(0) if feature.edges is None else feature.edges
    return float(edges[last_bin]) if last_bin < len(edges) else None


def column_of(split: Any, features: Sequence[FeatureBins], where: str) -> int:
    """The place of the column that a split in a file is about, if the file says all of it; its bin is in `bin_of`."""
    names = [feature.name for feature in features]
    name = split.get("column") if isinstance(split, Mapping) else None
    if name not in names:
        raise ModelFileError(f"{where} is not about one of the columns {names}")
    column = names.index(name)
    by = "threshold" if features[column].levels is None else "left_levels"
    check_fields(split, ("column", "missing_left", by))
    if not isinstance(split["missing_left"], bool):
        raise ModelFileError(f"{where} of column {name!r} must say whether missing values go left")
    return column


def bin_of(threshold: Any, feature: FeatureBins, where: str) -> int:
    """The inverse of `threshold_of`; ModelFileError, naming the split, if it is no edge of the column."""
    edges = np.empty(0) if feature.edges is None else feature.edges
    if threshold is None:
        return len(edges)
    places = {edge: place for place, edge in enumerate(edges.tolist())}
    if type(threshold) not in (int, float) or threshold not in places:
        raise ModelFileError(f"the threshold of {where} is not an edge of column {feature.name!r}")
    return places[threshold]
