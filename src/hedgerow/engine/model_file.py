"""The model file: one JSON document, every field of which is described in docs/reference/model_file.md.

Writing is exact: Python writes the shortest decimal that reads back as the same number. Reading trusts nothing: a file
either gives a model that can be run without further checks, or a ModelFileError that says what is wrong with it.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins, WideBins
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidInput, ModelFileError

if TYPE_CHECKING:
    from hedgerow.engine.ensemble import Ensemble, Tree

FORMAT = "hedgerow-model"
VERSION = 2
"""Files of version 2 have features with a rule (dates, durations, groups of levels). Without one, version 1 is written,
which older releases read as well."""

MODEL_FIELDS = ("format", "version", "loss", "base_scores", "classes", "features", "trees", "meta")
TREE_FIELDS = (
    "feature", "bin", "threshold", "missing_left", "left", "right", "value", "gain", "cover", "level_set",
    "left_levels",
)  # fmt: skip

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_KINDS: dict[type, str] = {str: "text", list: "a list", dict: "an object"}


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(model: Ensemble) -> dict[str, Any]:
    """The document of a model: plain dicts, lists, numbers, text."""
    return {
        "format": FORMAT,
        "version": 1 if all(feature.rule is None for feature in model.features) else 2,
        "loss": model.loss,
        "base_scores": model.base_scores.tolist(),
        "classes": None if model.classes is None else [_plain_class(label) for label in model.classes],
        "features": [feature.to_dict() for feature in model.features],
        "trees": [_encode_tree(tree, model.features) for tree in model.trees],
        "meta": dict(model.meta),
    }


def _plain_class(label: Any) -> Any:
    plain = label.item() if isinstance(label, np.generic) else label
    if not isinstance(plain, str | int | float) or (isinstance(plain, float) and not math.isfinite(plain)):
        raise InvalidInput(f"a model file can hold classes that are text, numbers or booleans, got {label!r}")
    return plain


def _encode_tree(tree: Tree, features: Sequence[FeatureBins]) -> dict[str, Any]:
    document = {name: getattr(tree, name).tolist() for name in TREE_FIELDS}
    document["threshold"] = [x if math.isfinite(x) else None for x in document["threshold"]]
    feature_of_set = tree.feature[np.argsort(tree.level_set)][np.count_nonzero(tree.level_set < 0) :]
    document["left_levels"] = [
        np.flatnonzero(row[: features[feature].n_value_bins]).tolist()
        for row, feature in zip(tree.left_levels, feature_of_set.tolist(), strict=True)
    ]
    return document


def write(document: Mapping[str, Any], path: str | PathLike[str]) -> None:
    """Write next to `path` first and rename, so that a reader finds the old file or the new one, whole."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as reason:
        raise InvalidInput(f"the model's meta can hold only text, finite numbers, lists and dicts: {reason}") from None
    write_file(text.encode(), path)


def write_file(content: bytes, path: str | PathLike[str]) -> None:
    """Replace the file at `path` in one step, on disk before it gets its name."""
    target = Path(path).resolve()  # through a symbolic link, so that the link stays one
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        # A model may remember rows, so only its owner can read it, unless they decide otherwise.
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The JSON document in a file; `decode` checks what it says."""
    try:
        document = json.loads(
            Path(path).read_bytes(), object_pairs_hook=_without_repetition, parse_constant=_no_such_number
        )
    except ModelFileError as reason:
        raise ModelFileError(f"{path}: {reason}") from None
    except (ValueError, RecursionError) as reason:  # also what is not UTF-8
        raise ModelFileError(f"{path} is not a complete JSON document: {reason}") from None
    if not isinstance(document, dict):
        raise ModelFileError(f"{path} is not a Hedgerow model file: it holds no JSON object")
    return document


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ModelFileError(f"the field {next(n for n in names if names.count(n) > 1)!r} appears twice in one object")
    return document


def _no_such_number(name: str) -> Any:
    raise ModelFileError(f"{name} is not a JSON number")


def decode(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Check a document field by field; ModelFileError names the first that is wrong.

    Gives the keyword arguments of each `Tree`, and those of the `Ensemble`.
    """
    if document.get("format") != FORMAT:
        raise ModelFileError(f'not a Hedgerow model: "format" must be "{FORMAT}", got {_shown(document.get("format"))}')
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"version must be a whole number from 1 on, got {_shown(version)}")
    if version > VERSION:
        raise ModelFileError(
            f"the file has version {version}, but this Hedgerow reads versions up to {VERSION}: update it"
        )
    _check_fields(document, MODEL_FIELDS, "the model")
    features = _decode_features(document["features"], may_have_rules=version > 1)
    loss, meta, trees = document["loss"], document["meta"], document["trees"]
    _check_kind(loss, str, "loss")
    _check_kind(meta, dict, "meta")
    _check_kind(trees, list, "trees")
    base_scores = _numbers(document["base_scores"], "base_scores").tolist()
    if not base_scores:
        raise ModelFileError("base_scores must have at least one entry")
    if len(trees) % len(base_scores):
        raise ModelFileError(f"there are {len(trees)} trees, not a multiple of the {len(base_scores)} outputs")
    classes = _decode_classes(document["classes"])
    if classes is not None and len(classes) != max(2, len(base_scores)):
        raise ModelFileError(
            f"there are {len(classes)} classes, but {max(2, len(base_scores))} go with the base_scores"
        )
    decoded = [_decode_tree(tree, features, f"tree {t}") for t, tree in enumerate(trees)]
    mapper = BinMapper(features)
    return decoded, {"mapper": mapper, "loss": loss, "base_scores": base_scores, "classes": classes, "meta": meta}


def _decode_features(documents: Any, *, may_have_rules: bool) -> tuple[FeatureBins, ...]:
    _check_kind(documents, list, "features")
    features = []
    for j, document in enumerate(documents):
        where = f"feature {j}"
        if not isinstance(document, dict) or ("edges" in document) == ("levels" in document):
            raise ModelFileError(f"{where} must be an object with edges or with levels")
        rule = ("rule",) if may_have_rules and "rule" in document else ()
        _check_fields(document, ("name", "edges" if "edges" in document else "levels", *rule), where)
        for field in ("name", *rule):
            _check_kind(document[field], str, f"the {field} of {where}")
        if "edges" in document:
            _numbers(document["edges"], f"the edges of {where}")
        else:
            _check_kind(document["levels"], list, f"the levels of {where}")
        try:
            wide = len(document.get("edges", ())) > FeatureBins.MOST_EDGES
            features.append((WideBins if wide else FeatureBins).from_dict(document))
        except (ValueError, TypeError, OverflowError) as reason:
            raise ModelFileError(f"{where}: {reason}") from None
    names = [feature.name for feature in features]
    if len(set(names)) < len(names):
        raise ModelFileError(f"two features have the name {next(n for n in names if names.count(n) > 1)!r}")
    return tuple(features)


def _decode_classes(classes: Any) -> tuple[Any, ...] | None:
    if classes is None:
        return None
    if not isinstance(classes, list) or not all(isinstance(c, str | int | float) for c in classes):
        raise ModelFileError("classes must be null or a list of texts, numbers or booleans")
    if any(isinstance(c, float) and not math.isfinite(c) for c in classes):
        raise ModelFileError("classes must be finite where they are numbers")
    return tuple(classes)


def _decode_tree(document: Any, features: Sequence[FeatureBins], where: str) -> dict[str, Any]:
    """Lengths, types and ranges, and what a node says about its feature; `Tree` checks how nodes hang together."""
    _check_kind(document, dict, where)
    _check_fields(document, TREE_FIELDS, where)
    n_nodes = len(document["feature"]) if isinstance(document["feature"], list) else 0

    def column(name: str, read: Callable[..., np.ndarray], *limits: Any) -> np.ndarray:
        values = read(document[name], f"{name} of {where}", *limits)
        if len(values) != n_nodes:
            raise ModelFileError(f"{name} of {where} has {len(values)} entries, but feature has {n_nodes}")
        return values

    tree = {
        "feature": column("feature", _whole_numbers, -1, len(features) - 1),
        "bin": column("bin", _whole_numbers, -1, WideBins.MOST_EDGES),
        "missing_left": column("missing_left", _booleans),
        "left": column("left", _whole_numbers, -1, n_nodes - 1),
        "right": column("right", _whole_numbers, -1, n_nodes - 1),
        "value": column("value", _numbers, _FLOAT32_MAX),
        "gain": column("gain", _numbers, _FLOAT32_MAX),
        "cover": column("cover", _numbers),
    }
    sets = document["left_levels"]
    if not isinstance(sets, list):
        raise ModelFileError(f"left_levels of {where} must be a list of lists, got {_shown(sets)}")
    tree["level_set"] = column("level_set", _whole_numbers, -1, len(sets) - 1)
    tree["threshold"] = _decode_thresholds(document["threshold"], tree, features, where)
    tree["left_levels"] = _decode_level_sets(sets, tree, features, where)
    return tree


def _decode_thresholds(
    given: Any, tree: Mapping[str, np.ndarray], features: Sequence[FeatureBins], where: str
) -> np.ndarray:
    """Thresholds follow from bins and edges; the ones in the file must say the same."""
    if not isinstance(given, list) or len(given) != len(tree["feature"]):
        raise ModelFileError(f"threshold of {where} must have one entry per node, {len(tree['feature'])}")
    thresholds = np.full(len(given), np.nan)
    for node, (feature, last_bin) in enumerate(zip(tree["feature"].tolist(), tree["bin"].tolist(), strict=True)):
        expected = None
        edges = features[feature].edges if feature >= 0 else None
        if edges is not None and last_bin >= 0:
            if last_bin > len(edges):
                raise ModelFileError(
                    f"node {node} of {where} splits after bin {last_bin}, but there are {len(edges) + 1} bins"
                )
            expected = float(edges[last_bin]) if last_bin < len(edges) else None
            thresholds[node] = np.inf if expected is None else expected
        if type(given[node]) is bool or given[node] != expected:
            raise ModelFileError(
                f"node {node} of {where} has threshold {_shown(given[node])}, "
                f"but its bin and edges say {_shown(expected)}"
            )
    return thresholds


def _decode_level_sets(
    sets: list[Any], tree: Mapping[str, np.ndarray], features: Sequence[FeatureBins], where: str
) -> np.ndarray:
    left_levels = np.zeros((len(sets), MAX_BINS), np.bool_)
    for node in np.flatnonzero(tree["level_set"] >= 0).tolist():
        number, feature = tree["level_set"][node], tree["feature"][node]
        if feature < 0 or features[feature].levels is None:
            raise ModelFileError(f"node {node} of {where} splits by levels, but not a categorical feature")
        bins = features[feature]
        codes = _whole_numbers(sets[number], f"left_levels {number} of {where}", 0, bins.n_value_bins - 1)
        left_levels[number, codes] = True
        left_levels[number, bins.missing_code] = tree["missing_left"][node]
    return left_levels


# --- small checks ----------------------------------------------------------------------------------------------------


def _check_fields(document: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    absent = [name for name in names if name not in document]
    unknown = [name for name in document if name not in names]
    if absent:
        raise ModelFileError(f"{where} lacks the field {absent[0]!r}")
    if unknown:
        raise ModelFileError(f"{where} has a field {_shown(unknown[0])} that version {VERSION} does not know")


def _whole_numbers(values: Any, what: str, least: int, most: int) -> np.ndarray:
    wanted = f"whole numbers from {least} to {most}"
    return _checked(values, what, wanted, lambda value: type(value) is int and least <= value <= most, np.int32)


def _numbers(values: Any, what: str, largest: float = math.inf) -> np.ndarray:
    # A whole number may be too large for a float, and 1e999 is read as infinity.
    def fits(value: Any) -> bool:
        return type(value) in (int, float) and abs(value) <= min(largest, 1.7e308)

    return _checked(values, what, "finite numbers", fits, np.float64)


def _booleans(values: Any, what: str) -> np.ndarray:
    return _checked(values, what, "true and false", lambda value: type(value) is bool, np.bool_)


def _checked(values: Any, what: str, wanted: str, fits: Callable[[Any], bool], dtype: Any) -> np.ndarray:
    _check_kind(values, list, what)
    for value in values:
        if not fits(value):
            raise ModelFileError(f"{what} must hold {wanted}, got {_shown(value)}")
    return np.array(values, dtype)


def _check_kind(value: Any, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ModelFileError(f"{what} must be {_KINDS[kind]}, got {_shown(value)}")


def _shown(value: Any) -> str:
    """The value as JSON, shortened: a damaged file may hold anything of any length."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."
