"""What files of all kinds of parts have in common: their heading, and reading that refuses what it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.errors import ModelFileError

FORMAT = "hedgerow part of a vertical model"
VERSION = 1


def check_fields(data: Mapping[str, Any], names: Sequence[str]) -> None:
    """ModelFileError unless just these fields are there."""
    absent, unknown = [n for n in names if n not in data], [n for n in data if n not in names]
    if absent:
        raise ModelFileError(f"the field {absent[0]!r} is lacking")
    if unknown:
        raise ModelFileError(f"there is a field {str(unknown[0])[:40]!r} that version {VERSION} does not know")


def listed(data: Mapping[str, Any], name: str) -> list[Any]:
    """A field that must be a list."""
    if not isinstance(data.get(name), list):
        raise ModelFileError(f"{name} must be a list")
    found: list[Any] = data[name]
    return found


def text(data: Mapping[str, Any], name: str) -> str:
    """A field that must be text."""
    if not isinstance(data.get(name), str):
        raise ModelFileError(f"{name} must be text")
    return str(data[name])


def meta_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The field `meta`, which may hold anything."""
    if not isinstance(data.get("meta"), Mapping):
        raise ModelFileError("meta must be an object")
    return dict(data["meta"])


def features_of(data: Mapping[str, Any]) -> tuple[FeatureBins, ...]:
    """The field `features`: columns with names of their own."""
    features = tuple(FeatureBins.from_dict(entry) for entry in listed(data, "features"))
    if len({feature.name for feature in features}) < len(features):
        raise ModelFileError("two columns have the same name")
    return features


def threshold_of(last_bin: int, feature: FeatureBins) -> float | None:
    """What a split of a numeric column after a bin is written as: an edge, or None if all values go left."""
    edges = np.empty(0) if feature.edges is None else feature.edges
    return float(edges[last_bin]) if last_bin < len(edges) else None


def bin_of(threshold: Any, feature: FeatureBins, split: str) -> int:
    """The inverse of `threshold_of`; ModelFileError, naming the split, if it is no edge of the column."""
    edges = np.empty(0) if feature.edges is None else feature.edges
    if threshold is None:
        return len(edges)
    places = {edge: place for place, edge in enumerate(edges.tolist())}
    if type(threshold) not in (int, float) or threshold not in places:
        raise ModelFileError(f"the threshold of {split} is not an edge of column {feature.name!r}")
    return places[threshold]
