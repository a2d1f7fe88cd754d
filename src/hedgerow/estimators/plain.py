"""Gradient-boosted trees with scikit-learn's rules: fit, predict, clone, grid search, pipelines.

`BoostedTreesClassifier` and `BoostedTreesRegressor` train the plain engine on one machine, on data in one table.
Nothing is protected here: the model may remember its rows. Parameters carry the names of scikit-learn's
HistGradientBoosting; `parameters.py` lists the XGBoost and LightGBM spellings that are taken as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError
from hedgerow.estimators.base import BoostedTrees, Path, takes_parameters
from hedgerow.estimators.labels import encode_classes, encode_like, exact_array, read_classes, read_targets

CLASSIFIER_LOSSES = ("logistic", "softmax", "squared")
"""The squared loss on labels -1 and 1 is how DPBoost classifies (`private.py`)."""

PRIVATE_ESTIMATORS = (
    "DPBoostClassifier",
    "DPBoostRegressor",
    "PrivateBoostingClassifier",
    "PrivateBoostingRegressor",
)
REGRESSOR_LOSSES = ("squared", "poisson")


class BoostedTreesClassifier(ClassifierMixin, BoostedTrees):
    """Gradient-boosted trees for two or more classes.

    Two classes are trained with the logistic loss, one tree per iteration; more with softmax, one tree per iteration
    and class. Labels may be strings, booleans or whole numbers. The parameters are explained in
    docs/reference/estimators.md. The same data gives the same model, bit for bit, for any number of threads and any
    order of the rows, unless early_stopping=True or subsample < 1 draw some of them.

    >>> from hedgerow import BoostedTreesClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]] * 10, ["no", "no", "yes", "yes"] * 10
    >>> model = BoostedTreesClassifier(max_iter=5).fit(X, y)
    >>> model.predict([[1.5], [3.5]]).tolist()
    ['no', 'yes']
    """

    _losses = CLASSIFIER_LOSSES
    classes_: npt.NDArray[Any]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row."""
        raw = self._raw(X)
        return self.classes_[_winner(raw)]

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class, [rows, classes], in the order of `classes_`."""
        return self._probabilities(self._raw(X))

    def decision_function(self, X: Any) -> Floats:
        """Raw scores: log odds of `classes_[1]` [rows] for two classes, else [rows, classes]."""
        raw = self._raw(X)
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """`predict` after each iteration."""
        for raw in self._staged_raw(X):
            yield self.classes_[_winner(raw)]

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """`predict_proba` after each iteration."""
        for raw in self._staged_raw(X):
            yield self._probabilities(raw)

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """`decision_function` after each iteration."""
        for raw in self._staged_raw(X):
            yield raw[:, 0] if raw.shape[1] == 1 else raw

    def _probabilities(self, raw: Floats) -> Floats:
        if self.ensemble_.loss == "squared":  # a score estimates P(second class) - P(first class)
            second = np.clip((raw[:, 0] + 1.0) / 2.0, 0.0, 1.0)
            return np.stack([1.0 - second, second], axis=1)
        return Loss(self.ensemble_.loss, n_outputs=raw.shape[1]).predictions(raw)

    def _learn_labels(self, y: Any, counted: npt.NDArray[Any], n_rows: int) -> Floats:
        """Labels as positions in `classes_`, which are learned here from the rows that count."""
        values = read_classes(y, n_rows)
        classes, labels = encode_classes(values[counted])
        if classes.size < 2:
            raise InvalidInput(
                f"y has only one class, {classes.tolist()[0]!r}; a classifier needs rows of at least 2 classes"
            )
        self.classes_ = classes
        full = np.zeros(n_rows)  # rows of weight 0 keep a 0 that nobody reads
        full[counted] = labels
        return full

    def _labels_like_training(self, y: Any, n_rows: int, where: str) -> Floats:
        return encode_like(read_classes(y, n_rows, where), self.classes_, where)

    def _loss_params(self) -> dict[str, Any]:
        n_classes = self.classes_.size
        if n_classes > 2 and self.monotonic_cst is not None:
            raise InvalidParameter(f"monotonic_cst needs two classes or a regressor, but y has {n_classes} classes")
        return {"loss": "logistic" if n_classes == 2 else "softmax", "n_classes": int(n_classes)}

    def _class_list(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def adopt(self, ensemble: Ensemble, path: Path) -> Self:
        """Become the estimator of a trained ensemble; classes without names are 0, 1, ..."""
        if ensemble.loss == "squared" and ensemble.classes is None:
            raise ModelFileError(f"{path}: a model with squared loss is none of a {type(self).__name__}")
        super().adopt(ensemble, path)
        n_classes = max(2, ensemble.n_outputs)
        classes = ensemble.classes if ensemble.classes is not None else range(n_classes)
        if len(classes) != n_classes:
            raise ModelFileError(f"{path}: the model distinguishes {n_classes} classes, but names {len(classes)}")
        self.classes_ = exact_array(list(classes))
        return self


@takes_parameters(of=BoostedTrees)
class BoostedTreesRegressor(RegressorMixin, BoostedTrees):
    """Gradient-boosted trees for numbers: squared error, or Poisson deviance for counts.

    `label_range=(low, high)` declares publicly what values labels can take, for jobs in which the data may not be
    looked at to find out; without it the smallest and largest label of the training rows are used. The other
    parameters are the classifier's, explained in docs/reference/estimators.md.

    >>> from hedgerow import BoostedTreesRegressor
    >>> model = BoostedTreesRegressor(max_iter=50, learning_rate=0.5).fit([[1.0], [2.0], [3.0], [4.0]], [1, 2, 3, 4])
    >>> model.predict([[1.0], [4.0]]).round().tolist()
    [1.0, 4.0]
    """

    _losses = REGRESSOR_LOSSES
    loss: Literal["squared_error", "poisson"] = "squared_error"
    label_range: tuple[float, float] | None = None

    def predict(self, X: Any) -> Floats:
        """The expected label of each row."""
        return self._expected(self._raw(X))

    def staged_predict(self, X: Any) -> Iterator[Floats]:
        """`predict` after each iteration."""
        for raw in self._staged_raw(X):
            yield self._expected(raw)

    def _expected(self, raw: Floats) -> Floats:
        expected = Loss(self.ensemble_.loss).predictions(raw)
        bounds = self.ensemble_.meta.get("prediction_bounds")  # a private model knows where labels can lie
        return expected if bounds is None else np.clip(expected, *bounds)

    def _learn_labels(self, y: Any, counted: npt.NDArray[Any], n_rows: int) -> Floats:
        labels = read_targets(y, n_rows)
        if self.loss == "poisson" and (labels[counted] < 0).any():
            row = int(counted[np.argmax(labels[counted] < 0)])
            raise InvalidInput(f"loss='poisson' needs labels of at least 0, but y is {labels[row]:g} in row {row}")
        if self.loss == "poisson" and not labels[counted].any():
            raise InvalidInput("loss='poisson' needs a label above 0, but y is 0 in every row")
        return labels

    def _labels_like_training(self, y: Any, n_rows: int, where: str) -> Floats:
        return read_targets(y, n_rows, where)

    def _loss_params(self) -> dict[str, Any]:
        loss = "squared" if self.loss == "squared_error" else "poisson"
        return {"loss": loss, "label_range": self.label_range}

    def _class_list(self) -> None:
        return None


def load_model(path: Path) -> BoostedTreesClassifier | BoostedTreesRegressor:
    """The estimator that a model file was saved from, ready to predict; a private one with its privacy statement."""
    ensemble = Ensemble.load(path)
    kind: type[BoostedTreesClassifier | BoostedTreesRegressor]
    if ensemble.meta.get("estimator") in PRIVATE_ESTIMATORS:
        from hedgerow.estimators import private

        kind = getattr(private, ensemble.meta["estimator"])
    elif ensemble.classes is None and ensemble.loss in REGRESSOR_LOSSES:
        kind = BoostedTreesRegressor
    else:
        kind = BoostedTreesClassifier
    return kind().adopt(ensemble, path)


def _winner(raw: Floats) -> npt.NDArray[np.intp]:
    """Position of the winning class; equal odds of two classes go to the first, as argmax of the probabilities does."""
    return (raw[:, 0] > 0).astype(np.intp) if raw.shape[1] == 1 else raw.argmax(axis=1)
