"""A slow reader of PMML that knows just the elements that our export writes, by what the standard says of them."""

from __future__ import annotations

import math
import re
from typing import Any
from xml.etree import ElementTree as ET

NS = "{http://www.dmg.org/PMML-4_4}"
PREDICATES = ("True", "SimplePredicate", "SimpleSetPredicate")


class NaivePmml:
    """A document, and the prediction of one row: a dict of numbers and levels, None for missing."""

    def __init__(self, text: bytes) -> None:
        self.root = ET.fromstring(text)  # noqa: S314 - our own export
        self.levels = {
            field.get("name"): [value.get("value") for value in field.findall(f"{NS}Value")]
            for field in self.root.findall(f"{NS}DataDictionary/{NS}DataField")
            if field.get("optype") == "categorical"
        }

    def predict(self, row: dict[str, Any]) -> Any:
        """A number, or {class: probability}."""
        return self.evaluate(self.root.findall(f"{NS}MiningModel")[0], dict(row))

    def evaluate(self, model: ET.Element, row: dict[str, Any]) -> Any:
        """What one model says; outputs go into the row."""
        for field in model.findall(f"{NS}MiningSchema/{NS}MiningField"):
            name = field.get("name")
            unknown = name in self.levels and row.get(name) is not None and written(row[name]) not in self.levels[name]
            if unknown and field.get("invalidValueTreatment") == "asMissing":
                row = {**row, name: None}
        if model.tag == f"{NS}TreeModel":
            result: Any = self.tree(model, row)
        elif model.tag == f"{NS}RegressionModel":
            result = self.regression(model, row)
        else:
            result = self.segments(model, row)
        for target in model.findall(f"{NS}Targets/{NS}Target"):
            result = min(max(result, float(target.get("min", -math.inf))), float(target.get("max", math.inf)))
        return result

    def segments(self, model: ET.Element, row: dict[str, Any]) -> Any:
        """The sum of all, or the last of a chain in which each gives its output to those behind it."""
        segmentation = model.find(f"{NS}Segmentation")
        assert segmentation is not None
        inner = [segment[1] for segment in segmentation.findall(f"{NS}Segment")]
        if segmentation.get("multipleModelMethod") == "sum":
            return sum(self.evaluate(each, row) for each in inner)
        assert segmentation.get("multipleModelMethod") == "modelChain"
        result = None
        for each in inner:
            result = self.evaluate(each, row)
            for output in each.findall(f"{NS}Output/{NS}OutputField"):
                if output.get("feature") == "predictedValue":
                    row[output.get("name")] = result
        return result

    def tree(self, model: ET.Element, row: dict[str, Any]) -> float:
        """Follow predicates; an answer that is not known leads to the default child."""
        assert model.get("missingValueStrategy") == "defaultChild"
        node = model.find(f"{NS}Node")
        while node is not None and (children := node.findall(f"{NS}Node")):
            below = None
            for child in children:
                answer = holds(child, row)
                if answer is None:
                    (below,) = [each for each in children if each.get("id") == node.get("defaultChild")]
                    break
                if answer:
                    below = child
                    break
            node = below
        assert node is not None
        return float(node.get("score"))

    def regression(self, model: ET.Element, row: dict[str, Any]) -> Any:
        """Tables of intercepts and coefficients, then the link."""
        scores = {
            table.get("targetCategory"): float(table.get("intercept"))
            + sum(row[p.get("name")] * float(p.get("coefficient")) for p in table.findall(f"{NS}NumericPredictor"))
            for table in model.findall(f"{NS}RegressionTable")
        }
        link = model.get("normalizationMethod")
        if link == "exp":
            return math.exp(scores[None])
        if link == "logit":
            (first, _), (second, score) = scores.items()
            return {first: 1 - 1 / (1 + math.exp(-score)), second: 1 / (1 + math.exp(-score))}
        assert link == "softmax"
        total = sum(map(math.exp, scores.values()))
        return {label: math.exp(score) / total for label, score in scores.items()}


def holds(node: ET.Element, row: dict[str, Any]) -> bool | None:
    """Whether the predicate of a node is true for a row; None: not known."""
    (predicate,) = [each for each in node if each.tag.removeprefix(NS) in PREDICATES]
    if predicate.tag == f"{NS}True":
        return True
    value, operator = row[predicate.get("field")], predicate.get("operator")
    if operator == "isNotMissing":
        return value is not None
    if value is None:
        return None
    if predicate.tag == f"{NS}SimpleSetPredicate":
        array = predicate.find(f"{NS}Array")
        assert array is not None
        members = re.findall(r'"((?:\\"|[^"])*)"|(\S+)', array.text or "")
        listed = [quoted.replace('\\"', '"') if quoted or not plain else plain for quoted, plain in members]
        assert len(listed) == int(array.get("n"))
        return (written(value) in listed) == (predicate.get("booleanOperator") == "isIn")
    threshold = float(predicate.get("value"))
    return value < threshold if operator == "lessThan" else value >= threshold


def written(value: Any) -> str:
    """A level as the file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
