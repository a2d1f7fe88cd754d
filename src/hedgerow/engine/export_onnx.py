"""An ONNX file that predicts what the ensemble predicts, in onnxruntime and wherever else ONNX is read.

    X float64 [rows, columns] --sides of levels--> X and sides --TreeEnsembleRegressor--> raw scores --> predictions

Trees are those of `ai.onnx.ml` 3, which all runtimes have. It knows no sets of levels, so each set that a tree asks for
is a column of its own, looked up by the code of the level: 0 left, 1 right, missing and unseen levels as the tree has
it. All thresholds are float64 and exact (`exporting.py`), so every row of float32 or float64 numbers reaches the leaves
that it reaches here; ties at an edge, missing values and infinities too.

Leaf values are float32 here and there. We add them one after the other in float32; the operator adds float64 and rounds
the sum to float32 once. Either is at most T roundings away from the true sum of T values, so raw scores differ by at
most 2**-24 * (T + 1) * (sum over trees of the largest |leaf value|). The base score is added in float64, as here.

Outputs: `raw_scores` [rows, outputs]; of a classifier `label` [rows] and `probabilities` [rows, classes], of a
regressor `prediction` [rows]. Columns with levels take codes, the places of the levels in the note "hedgerow.features".
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from hedgerow._version import __version__
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import at_most, missing, notes, silent_tree
from hedgerow.engine.model_file import write_file
from hedgerow.errors import ExportRefused

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
MOST_BYTES = 2**31 - 1
"""Protocol buffers end there, and ONNX files are one of them."""


def export_onnx(model: Ensemble, path: str | PathLike[str]) -> None:
    """Write the model as an ONNX file; ExportRefused if ONNX could not predict the same."""
    document = onnx_model(model)
    if document.ByteSize() > MOST_BYTES:
        raise ExportRefused(f"the model has {document.ByteSize():,} bytes as ONNX, which allows {MOST_BYTES:,}")
    write_file(document.SerializeToString(deterministic=True), path)


def onnx_model(model: Ensemble) -> Any:
    """The `onnx.ModelProto` that `export_onnx` writes."""
    try:
        import onnx
    except ImportError:
        raise missing("onnx") from None
    graph = _Graph(onnx)
    trees = list(model.trees) or [silent_tree()] * model.n_outputs
    columns, side_of = _sides(graph, model, trees)
    graph.add("TreeEnsembleRegressor", [columns], "sums", domain="ai.onnx.ml", **_forest(graph, model, trees, side_of))
    graph.add("Cast", ["sums"], "wide_sums", to=onnx.TensorProto.DOUBLE)
    graph.add("Add", ["wide_sums", graph.constant(model.base_scores)], "raw_scores")
    outputs = _answers(graph, model)
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "hedgerow",
            [onnx.helper.make_tensor_value_info("X", onnx.TensorProto.DOUBLE, [None, len(model.features)])],
            [onnx.helper.make_tensor_value_info(*each) for each in outputs],
            graph.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="hedgerow",
        producer_version=__version__,
        doc_string=(model.meta.get("privacy") or {}).get("words", ""),
    )
    onnx.helper.set_model_props(made, notes(model))
    onnx.checker.check_model(made)
    return made


class _Graph:
    """Nodes and constants in the order in which they are made."""

    def __init__(self, onnx: Any) -> None:
        self._make_node, self.tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """One step; its output has a name of its own unless one is given."""
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Numbers or texts that are part of the model."""
        self.constants.append(self.tensor(np.asarray(values), f"constant_{len(self.constants)}"))
        return str(self.constants[-1].name)


def _sides(graph: _Graph, model: Ensemble, trees: Sequence[Tree]) -> tuple[str, dict[tuple[int, int], int]]:
    """X with a column behind it for each set of levels that is asked for; and (tree, set) -> its column."""
    asked: dict[int, dict[bytes, list[tuple[int, int]]]] = {}  # feature -> set -> who asks for it
    for number, tree in enumerate(trees):
        for node in np.flatnonzero(tree.level_set >= 0).tolist():
            feature, row = int(tree.feature[node]), int(tree.level_set[node])
            unseen = model.features[feature].missing_code
            right = ~np.append(tree.left_levels[row, :unseen], tree.missing_left[node])
            asked.setdefault(feature, {}).setdefault(right.tobytes(), []).append((number, row))
    column_of: dict[tuple[int, int], int] = {}
    parts, width = ["X"], len(model.features)
    for feature, sets in asked.items():
        unseen = model.features[feature].missing_code
        code = graph.add("Gather", ["X", graph.constant(np.int64(feature))], axis=1)
        is_level = graph.add(
            "And",
            [
                graph.add("Equal", [graph.add("Floor", [code]), code]),  # false for NaN, true for infinities
                graph.add(
                    "And",
                    [
                        graph.add("GreaterOrEqual", [code, graph.constant(0.0)]),
                        graph.add("Less", [code, graph.constant(float(unseen))]),
                    ],
                ),
            ],
        )
        known = graph.add("Where", [is_level, code, graph.constant(float(unseen))])
        place = graph.add("Cast", [known], to=7)  # int64
        table = np.stack([np.frombuffer(each, np.bool_) for each in sets], axis=1).astype(np.float64)
        parts.append(graph.add("Gather", [graph.constant(table), place], axis=0))
        for askers in sets.values():
            column_of |= dict.fromkeys(askers, width)
            width += 1
    return (graph.add("Concat", parts, axis=1) if len(parts) > 1 else "X"), column_of


def _forest(
    graph: _Graph, model: Ensemble, trees: Sequence[Tree], side_of: dict[tuple[int, int], int]
) -> dict[str, Any]:
    """The attributes of the operator, one entry per node of all trees."""
    tree_ids = np.repeat(np.arange(len(trees)), [tree.n_nodes for tree in trees])
    node_ids = np.concatenate([np.arange(tree.n_nodes) for tree in trees])
    leaf = np.concatenate([tree.is_leaf for tree in trees])
    features, values = [], []
    for number, tree in enumerate(trees):
        feature, value = tree.feature.copy(), at_most(tree.threshold)
        for node in np.flatnonzero(tree.level_set >= 0).tolist():
            feature[node], value[node] = side_of[number, int(tree.level_set[node])], 0.5
        feature[tree.is_leaf], value[tree.is_leaf] = 0, 0.0
        features.append(feature)
        values.append(value)
    children = {
        name: np.where(leaf, 0, np.concatenate([getattr(tree, side) for tree in trees])).tolist()
        for name, side in (("nodes_truenodeids", "left"), ("nodes_falsenodeids", "right"))
    }
    weights = np.concatenate([tree.value for tree in trees])[leaf].astype(np.float64)
    return {
        "nodes_treeids": tree_ids.tolist(),
        "nodes_nodeids": node_ids.tolist(),
        "nodes_featureids": np.concatenate(features).tolist(),
        "nodes_values_as_tensor": graph.tensor(np.concatenate(values), "thresholds"),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        **children,
        "nodes_missing_value_tracks_true": np.concatenate([tree.missing_left for tree in trees]).astype(int).tolist(),
        "target_treeids": tree_ids[leaf].tolist(),
        "target_nodeids": node_ids[leaf].tolist(),
        "target_ids": (tree_ids[leaf] % model.n_outputs).tolist(),
        "target_weights_as_tensor": graph.tensor(weights, "leaves"),
        "n_targets": model.n_outputs,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
    }


def _answers(graph: _Graph, model: Ensemble) -> list[tuple[str, int, list[Any]]]:
    """From raw scores to what `predict` and `predict_proba` say; name, type and shape of each output."""
    double, raw = 11, ("raw_scores", 11, [None, model.n_outputs])
    if model.classes is None and model.loss not in ("logistic", "softmax"):
        expected = graph.add("Exp", ["raw_scores"]) if model.loss == "poisson" else "raw_scores"
        bounds = model.meta.get("prediction_bounds")
        if bounds is not None:
            expected = graph.add("Clip", [expected, *(graph.constant(np.float64(bound)) for bound in bounds)])
        graph.add("Reshape", [expected, graph.constant(np.array([-1]))], "prediction")
        return [("prediction", double, [None]), raw]
    if model.loss == "softmax":
        graph.add("Softmax", ["raw_scores"], "probabilities", axis=1)
        winner = graph.add("ArgMax", ["raw_scores"], axis=1, keepdims=0)
    else:
        one = graph.constant(1.0)
        if model.loss == "logistic":
            second = graph.add(
                "Div", [one, graph.add("Add", [one, graph.add("Exp", [graph.add("Neg", ["raw_scores"])])])]
            )
        else:  # a score estimates P(second class) - P(first class)
            half = graph.add("Mul", [graph.add("Add", ["raw_scores", one]), graph.constant(0.5)])
            second = graph.add("Clip", [half, graph.constant(0.0), one])
        graph.add("Concat", [graph.add("Sub", [one, second]), second], "probabilities", axis=1)
        is_second = graph.add("Greater", ["raw_scores", graph.constant(0.0)])  # equal odds go to the first class
        winner = graph.add("Reshape", [graph.add("Cast", [is_second], to=7), graph.constant(np.array([-1]))])
    classes = _class_tensor(model)
    graph.add("Gather", [graph.constant(classes), winner], "label")
    kind = {"U": 8, "O": 8, "i": 7, "b": 9, "f": 11}[classes.dtype.kind]  # text, int64, bool, double
    return [("label", kind, [None]), ("probabilities", double, [None, len(classes)]), raw]


def _class_tensor(model: Ensemble) -> np.ndarray:
    """The classes as an array of one type that ONNX has."""
    classes = model.classes if model.classes is not None else tuple(range(max(2, model.n_outputs)))
    kinds = {type(each.item() if isinstance(each, np.generic) else each) for each in classes}
    arrays = {str: object, bool: np.bool_, int: np.int64, float: np.float64}
    if len(kinds) != 1 or not kinds <= arrays.keys() or any(kinds == {int} and abs(each) >= 2**63 for each in classes):
        raise ExportRefused(
            f"ONNX has labels that are all text, all whole numbers of 64 bits, all booleans or all fractions, got "
            f"{list(classes)[:5]}; train with labels of one kind"
        )
    return np.array([each.item() if isinstance(each, np.generic) else each for each in classes], arrays[kinds.pop()])
