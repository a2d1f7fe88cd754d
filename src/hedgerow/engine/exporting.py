"""What exports to other libraries have in common: thresholds, notes that travel along, and what is refused.

Thresholds here are float64 and exact. Ours send x < t left. For numbers of 64 bits, and so for those of 32, that is the
same as x <= (the number before t), which every library has; +inf stays +inf, where every value that is there goes left.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hedgerow._version import __version__
from hedgerow.engine.dtypes import MAX_BINS, Floats
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.errors import ExportRefused, InvalidParameter


def at_most(threshold: Floats) -> Floats:
    """The largest float64 that still goes left, for splits that send x < threshold there."""
    before: Floats = np.nextafter(threshold, -np.inf)
    return np.where(np.isposinf(threshold), threshold, before)


def silent_tree() -> Tree:
    """One leaf that adds nothing: formats that want a tree get it of a model without any."""
    none, zero = np.full(1, -1, np.int32), np.zeros(1, np.float32)
    return Tree(
        feature=none, bin=none, threshold=np.full(1, np.nan), missing_left=np.zeros(1, np.bool_), left=none, right=none,
        value=zero, gain=zero, cover=np.zeros(1), level_set=none, left_levels=np.zeros((0, MAX_BINS), np.bool_),
    )  # fmt: skip


def notes(model: Ensemble) -> dict[str, str]:
    """What the file says about itself: a private model's statement, the columns and the codes of their levels."""
    features = [
        {"name": each.name, **({"levels": list(each.levels)} if each.levels else {})} for each in model.features
    ]
    said: dict[str, Any] = {"version": __version__, "features": features, "classes": model.classes}
    privacy = model.meta.get("privacy") or {}
    said |= {"statement" if "words" in privacy else "privacy": privacy or None}
    said |= {key: model.meta.get(key) for key in ("protocol", "stamp")}
    return {
        f"hedgerow.{key}": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in said.items()
        if value is not None
    }


def refuse_scores_of_classes(model: Ensemble, library: str) -> None:
    """DPBoost's classifier has scores from -1 to 1 that are made probabilities in a way few libraries know."""
    if model.loss == "squared" and model.classes is not None:
        raise ExportRefused(
            f"a classifier trained with the squared loss gives scores from -1 to 1, which {library} has no objective "
            "for; ONNX can express it"
        )


def refuse_bounds(model: Ensemble, library: str) -> None:
    """Predictions of a private regression stay within public bounds; trees alone may leave them."""
    bounds = model.meta.get("prediction_bounds")
    if bounds is None:
        return
    lowest = highest = float(model.base_scores[0])
    for tree in model.trees:
        leaves = tree.value[tree.is_leaf]
        lowest, highest = lowest + float(leaves.min()), highest + float(leaves.max())
    if lowest < bounds[0] or highest > bounds[1]:
        raise ExportRefused(
            f"predictions of this model are kept between {bounds[0]:g} and {bounds[1]:g}, and its trees alone may "
            f"reach {lowest:g} to {highest:g}: {library}'s format has no place for bounds; ONNX can express them"
        )


def missing(package: str) -> InvalidParameter:
    """What is raised where a package is not there that an export needs."""
    return InvalidParameter(
        f"exporting to {package} needs the package {package}; install it with: pip install 'hedgerow[{package}]'"
    )
