"""A file that `treelite.Model.deserialize` reads and that predicts what the ensemble predicts.

Thresholds are float64 and exact (`exporting.py`), and treelite turns every input into float64 for such a model. So
every row of float32 or float64 numbers reaches the leaves that it reaches here: ties at an edge, missing values and
infinities too. Treelite adds leaf values and base score in float64; we add leaf values in float32, so margins differ
by at most 2**-24 * T * (sum over trees of the largest |leaf value|) for T trees, and roundings of float64.

Levels are codes, their places in the note "hedgerow.features". A missing value goes where ours goes, and so does an
unseen level given as NaN, as a negative number or as any whole number from the number of levels on. (A code with a
fraction is rounded towards zero by treelite, and an unseen level here.)
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.exporting import at_most, missing, notes, refuse_bounds, refuse_scores_of_classes, silent_tree
from hedgerow.engine.model_file import write_file

_TASKS = {
    "logistic": ("kBinaryClf", "sigmoid"),
    "squared": ("kRegressor", "identity"),
    "softmax": ("kMultiClf", "softmax"),
    "poisson": ("kRegressor", "exponential"),
    "absolute": ("kRegressor", "identity"),
    "quantile": ("kRegressor", "identity"),
}
"""Loss -> what treelite calls the task, and what makes a prediction of a margin."""


def export_treelite(model: Ensemble, path: str | PathLike[str]) -> None:
    """Write the model in treelite's format; ExportRefused if treelite could not predict the same."""
    write_file(bytes(treelite_model(model).serialize_bytes()), path)


def treelite_model(model: Ensemble) -> Any:
    """The `treelite.Model` that `export_treelite` writes."""
    try:
        from treelite import model_builder as treelite
    except ImportError:
        raise missing("treelite") from None
    refuse_scores_of_classes(model, "treelite")
    refuse_bounds(model, "treelite")
    trees = list(model.trees) or [silent_tree()] * model.n_outputs
    task, postprocessor = _TASKS[model.loss]
    builder = treelite.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=treelite.Metadata(
            num_feature=len(model.features),
            task_type=task,
            average_tree_output=False,
            num_target=1,
            num_class=[model.n_outputs],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=treelite.TreeAnnotation(
            num_tree=len(trees), target_id=[0] * len(trees), class_id=[t % model.n_outputs for t in range(len(trees))]
        ),
        postprocessor=treelite.PostProcessorFunc(name=postprocessor),
        base_scores=model.base_scores.tolist(),
        attributes=notes(model),
    )
    for tree in trees:
        _add_tree(builder, model, tree)
    return builder.commit()


def _add_tree(builder: Any, model: Ensemble, tree: Tree) -> None:
    thresholds = at_most(tree.threshold)
    builder.start_tree()
    for node in range(tree.n_nodes):
        builder.start_node(node)
        feature, default_left = int(tree.feature[node]), bool(tree.missing_left[node])
        children = {"left_child_key": int(tree.left[node]), "right_child_key": int(tree.right[node])}
        if feature < 0:
            builder.leaf(float(tree.value[node]))
        elif tree.level_set[node] < 0:
            how: dict[str, Any] = {"default_left": default_left, "opname": "<=", **children}
            builder.numerical_test(feature, float(thresholds[node]), **how)
        else:
            # Treelite lists those of one side; what is not listed, unseen levels too, goes to the other.
            left = tree.left_levels[tree.level_set[node], : model.features[feature].missing_code]
            listed = np.flatnonzero(left != default_left).tolist()
            how = {"default_left": default_left, "category_list": listed, "category_list_right_child": default_left}
            builder.categorical_test(feature, **how, **children)
        builder.end_node()
    builder.end_tree()
