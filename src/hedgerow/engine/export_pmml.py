"""PMML 4.4, an XML file that scoring engines of banks and insurers read: it predicts what the ensemble predicts.

The trees are `TreeModel`s in a `MiningModel` that adds them up; the base score is a tree of one node. Probabilities and
rates are a `RegressionModel` behind it, in a chain. Thresholds are float64 and exact, and PMML knows x < t, missing
values (`defaultChild`) and sets of levels, so every row reaches the same leaves. A level that the model does not know
is treated as missing, here as there. Leaf values are added in float64 by most engines: with T trees for an output raw
scores then differ by at most 2**-24 * T * (sum over trees of the largest |leaf value|).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from xml.etree import ElementTree as ET

import numpy as np

from hedgerow._version import __version__
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import notes, refuse_scores_of_classes
from hedgerow.engine.model_file import write_file
from hedgerow.engine.table import Level
from hedgerow.errors import ExportRefused

NAMESPACE = "http://www.dmg.org/PMML-4_4"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TYPES: dict[type, tuple[str, str]] = {
    bool: ("boolean", "string"), str: ("string", "string"), int: ("integer", "int"), float: ("double", "real")
}  # fmt: skip
"""Type of levels or classes -> dataType of a field, and type of an array."""


def export_pmml(model: Ensemble, path: str | PathLike[str]) -> None:
    """Write the model as PMML; ExportRefused if PMML has no words for it."""
    root = pmml_element(model)
    ET.indent(root)
    write_file(ET.tostring(root, encoding="utf-8", xml_declaration=True), path)


def pmml_element(model: Ensemble) -> ET.Element:
    """The document that `export_pmml` writes."""
    refuse_scores_of_classes(model, "PMML")
    features, classes = model.features, _classes(model)
    names = [feature.name for feature in features]
    for name in (*names, *(level for each in (*(f.levels or () for f in features), classes or ()) for level in each)):
        if isinstance(name, str) and _NOT_XML.search(name):
            raise ExportRefused(f"XML has no way to write {name!r}")
    target = _free("label", names)
    root = ET.Element("PMML", {"xmlns": NAMESPACE, "version": "4.4"})
    header = ET.SubElement(root, "Header", {"description": "gradient-boosted trees"})
    for name, value in notes(model).items():
        ET.SubElement(header, "Extension", {"extender": "hedgerow", "name": name, "value": _NOT_XML.sub("?", value)})
    ET.SubElement(header, "Application", {"name": "Hedgerow", "version": __version__})
    dictionary = ET.SubElement(root, "DataDictionary", {"numberOfFields": str(len(features) + 1)})
    for feature in features:
        _data_field(dictionary, feature.name, feature.levels)
    _data_field(dictionary, target, classes)
    raw_names = [_free(f"raw_score_{k}" if model.n_outputs > 1 else "raw_score", names) for k in range(model.n_outputs)]
    kind = "regression" if classes is None else "classification"
    link = {"logistic": "logit", "softmax": "softmax", "poisson": "exp"}.get(model.loss)
    if link is None:
        _sum_of_trees(root, model, 0, target)
        return root
    chain = ET.SubElement(root, "MiningModel", {"functionName": kind, "modelName": "hedgerow"})
    _mining_schema(chain, features, target)
    segments = ET.SubElement(chain, "Segmentation", {"multipleModelMethod": "modelChain"})
    for k, raw in enumerate(raw_names):
        _sum_of_trees(_segment(segments, k + 1), model, k, raw, is_output=True)
    last = ET.SubElement(
        _segment(segments, len(raw_names) + 1), "RegressionModel", {"functionName": kind, "normalizationMethod": link}
    )
    schema = ET.SubElement(last, "MiningSchema")
    ET.SubElement(schema, "MiningField", {"name": target, "usageType": "target"})
    for raw in raw_names:
        ET.SubElement(schema, "MiningField", {"name": raw})
    if classes is not None:
        _probabilities(last, classes)
    for k, label in enumerate(classes if classes is not None else (None,)):
        table = ET.SubElement(last, "RegressionTable", {"intercept": "0"})
        if label is not None:
            table.set("targetCategory", _text(label))
        asked = raw_names[k] if model.loss != "logistic" else raw_names[0] if k == 1 else None
        if asked is not None:  # of two classes the first has the score 0
            ET.SubElement(table, "NumericPredictor", {"name": asked, "coefficient": "1"})
    return root


def _classes(model: Ensemble) -> tuple[Level, ...] | None:
    """What the target can be; of a model whose file names no classes, numbers from 0 on."""
    if model.loss not in ("logistic", "softmax"):
        return None
    return model.classes if model.classes is not None else tuple(range(max(2, model.n_outputs)))


def _sum_of_trees(parent: ET.Element, model: Ensemble, output: int, target: str, *, is_output: bool = False) -> None:
    """The raw score of one output, as a model of its own; within the bounds of the predictions, if there are any."""
    whole = ET.SubElement(parent, "MiningModel", {"functionName": "regression"})
    _mining_schema(whole, model.features, None if is_output else target)
    if is_output:
        given = {"name": target, "optype": "continuous", "dataType": "double", "feature": "predictedValue"}
        ET.SubElement(ET.SubElement(whole, "Output"), "OutputField", given)
    bounds = model.meta.get("prediction_bounds")
    if bounds is not None:
        targets = ET.SubElement(whole, "Targets")
        ET.SubElement(
            targets, "Target", {"field": target, "min": repr(float(bounds[0])), "max": repr(float(bounds[1]))}
        )
    segments = ET.SubElement(whole, "Segmentation", {"multipleModelMethod": "sum"})
    base = ET.SubElement(_segment(segments, 1), "TreeModel", _TREE)
    _mining_schema(base, (), None)
    _leaf(ET.SubElement(base, "Node"), float(model.base_scores[output]))
    for t, tree in enumerate(model.trees[output :: model.n_outputs]):
        element = ET.SubElement(_segment(segments, t + 2), "TreeModel", _TREE)
        _mining_schema(element, [model.features[j] for j in np.unique(tree.feature[~tree.is_leaf]).tolist()], None)
        _nodes(element, tree, model.features)


_TREE = {"functionName": "regression", "splitCharacteristic": "binarySplit", "missingValueStrategy": "defaultChild"}


def _segment(segments: ET.Element, number: int) -> ET.Element:
    segment = ET.SubElement(segments, "Segment", {"id": str(number)})
    ET.SubElement(segment, "True")
    return segment


def _mining_schema(parent: ET.Element, features: Sequence[FeatureBins], target: str | None) -> None:
    schema = ET.SubElement(parent, "MiningSchema")
    for feature in features:
        treatment = "asIs" if feature.levels is None else "asMissing"
        ET.SubElement(schema, "MiningField", {"name": feature.name, "invalidValueTreatment": treatment})
    if target is not None:
        ET.SubElement(schema, "MiningField", {"name": target, "usageType": "target"})


def _data_field(dictionary: ET.Element, name: str, values: Sequence[Level] | None) -> None:
    if values is None:
        ET.SubElement(dictionary, "DataField", {"name": name, "optype": "continuous", "dataType": "double"})
        return
    given = {"name": name, "optype": "categorical", "dataType": _type_of(values, name)[0]}
    field = ET.SubElement(dictionary, "DataField", given)
    for value in values:
        ET.SubElement(field, "Value", {"value": _text(value)})


def _type_of(values: Sequence[Level], name: str) -> tuple[str, str]:
    kinds = {type(value.item() if isinstance(value, np.generic) else value) for value in values}
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1:
        raise ExportRefused(f"the values of {name!r} are of several types, and a field of PMML has one")
    return _TYPES[kinds.pop()] if kinds else _TYPES[str]


def _nodes(parent: ET.Element, tree: Tree, features: Sequence[FeatureBins]) -> None:
    """The root, and below each node its two children, each with the question that leads to it."""
    waiting = [(0, ET.SubElement(parent, "Node"))]
    ET.SubElement(waiting[0][1], "True")
    while waiting:
        node, element = waiting.pop()
        element.set("id", str(node))
        if tree.feature[node] < 0:
            _leaf(element, float(tree.value[node]))
            continue
        left, right = int(tree.left[node]), int(tree.right[node])
        element.set("defaultChild", str(left if tree.missing_left[node] else right))
        for child, goes_left in ((left, True), (right, False)):
            below = ET.SubElement(element, "Node")
            _question(below, tree, node, features[tree.feature[node]], goes_left=goes_left)
            waiting.append((child, below))


def _leaf(element: ET.Element, value: float) -> None:
    element.set("score", repr(value))
    if element.find("*") is None:  # the root of a tree of one node has no question yet
        ET.SubElement(element, "True")


def _question(element: ET.Element, tree: Tree, node: int, feature: FeatureBins, *, goes_left: bool) -> None:
    if feature.levels is not None:
        left = tree.left_levels[tree.level_set[node], : feature.n_value_bins]
        levels = [feature.levels[code] for code in np.flatnonzero(left).tolist()]
        how = {"field": feature.name, "booleanOperator": "isIn" if goes_left else "isNotIn"}
        array = ET.SubElement(
            ET.SubElement(element, "SimpleSetPredicate", how),
            "Array",
            {"n": str(len(levels)), "type": _type_of(feature.levels, feature.name)[1]},
        )
        array.text = " ".join(_quoted(level) for level in levels)
    elif np.isposinf(tree.threshold[node]):  # every value that is there goes left
        if goes_left and not tree.missing_left[node]:
            ET.SubElement(element, "SimplePredicate", {"field": feature.name, "operator": "isNotMissing"})
        else:
            ET.SubElement(element, "True")
    else:
        how = {"field": feature.name, "operator": "lessThan" if goes_left else "greaterOrEqual"}
        ET.SubElement(element, "SimplePredicate", how | {"value": repr(float(tree.threshold[node]))})


def _probabilities(model: ET.Element, classes: Sequence[Level]) -> None:
    output = ET.SubElement(model, "Output")
    for label in classes:
        given = {"optype": "continuous", "dataType": "double", "feature": "probability", "value": _text(label)}
        ET.SubElement(output, "OutputField", {"name": f"probability({_text(label)})", **given})


def _text(value: Level) -> str:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return plain if isinstance(plain, str) else repr(plain)


def _quoted(level: Level) -> str:
    text = _text(level)
    if not isinstance(level, str):
        return text
    if text.endswith("\\") or '\\"' in text:
        raise ExportRefused(f"PMML cannot tell the backslash in {text!r} from one that stands for a quotation mark")
    return '"' + text.replace('"', '\\"') + '"'


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
