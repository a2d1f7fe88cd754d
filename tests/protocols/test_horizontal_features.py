"""What users of a boosting library expect, where rows are divided: equal to the plain engine on one table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Blocks, BoostedTreesClassifier, BoostedTreesRegressor, Federation, Schema
from hedgerow.engine.boosting import find_metric
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.losses import BoostingParams, Loss
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, MaskedMetric, MaskedWeights
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC
from hedgerow.protocols.horizontal.secure_sum.watching import SummedMetric
from hedgerow.testing.transcripts import play

PROTOCOL = "horizontal.secure_sum"
SMALL = {
    "max_iter": 3,
    "max_depth": 3,
    "learning_rate": 0.3,
    "max_bins": 32,
    "random_state": 3,
    "min_child_weight": 0.0,
}
OWNERS = ("anna", "ben", "carla")


def problem(seed=0, n_rows=180, n_classes=2):
    """Columns of few values, so that bins are the same however they are found, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 9, (n_rows, 4)).astype(np.float64)
    X[rng.random(X.shape) < 0.05] = np.nan
    signal = np.nan_to_num(X[:, 0]) - np.nan_to_num(X[:, 1]) + rng.normal(size=n_rows) * 2
    return X, np.digitize(signal, np.quantile(signal, np.linspace(0, 1, n_classes + 1)[1:-1]))


def divided(X, y, weight=None, *, n_owners=3, **how):
    """The rows of several owners."""
    parts = np.array_split(np.arange(len(y)), n_owners)
    rows = {f"{chr(97 + k)}": part for k, part in enumerate(parts)}
    brought = {
        name: (X[part], y[part]) if weight is None else (X[part], y[part], weight[part]) for name, part in rows.items()
    }
    if (validation := how.pop("validation", None)) is not None:
        how["validation"] = {name: validation[part] for name, part in rows.items()}
    return Federation.horizontal(brought, **how)


def same(model, pooled, X):
    """Whether two models score alike, bit for bit."""
    np.testing.assert_array_equal(model.decision_function(X), pooled.decision_function(X))


def n_received(run, kind):
    """Messages of a kind that the coordinator got."""
    return sum(line.message == kind.NAME for line in run.ledgers["coordinator"])


WEIGHTS = {
    "whole, and some 0": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "fractions": lambda rng, n: rng.random(n) + 0.01,
    "very different": lambda rng, n: np.exp(rng.normal(size=n) * 8),
    "large": lambda rng, n: rng.random(n) * 1e6,
    "tiny": lambda rng, n: rng.random(n) * 1e-9,
}


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("coordinator", [{}, {"coordinator": "b"}], ids=["", "by an owner"])
def test_weights_of_any_kind_give_the_pooled_model(kind, coordinator):
    """Whole or not, large or small: the same trees, since weights are summed exactly."""
    X, y = problem()
    weight = WEIGHTS[kind](np.random.default_rng(1), len(y))
    run = divided(X, y, weight).fit(PROTOCOL, **SMALL, **coordinator)
    same(run.model, BoostedTreesClassifier(**SMALL).fit(X, y, weight), X)
    assert run.model.ensemble_.meta["weighted"] is True


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from(sorted(WEIGHTS)))
def test_weights_however_rows_are_divided(seed, n_classes, kind):
    """Any classes, any weights, any division of rows."""
    X, y = problem(seed, n_classes=n_classes)
    weight = WEIGHTS[kind](np.random.default_rng(seed), len(y))
    run = divided(X, y, weight, n_owners=3 + seed % 3).fit(PROTOCOL, **SMALL, min_samples_leaf=1 + seed % 7)
    same(run.model, BoostedTreesClassifier(**SMALL, min_samples_leaf=1 + seed % 7).fit(X, y, weight), X)


def test_an_owner_without_weights_has_rows_of_weight_1():
    """Where only some owners bring weights, the others' rows count 1 each, whatever the unit of weights is."""
    X, y = problem()
    for scale in (1.0, 1e4):
        weight = np.where(np.arange(len(y)) < 60, scale * np.random.default_rng(2).random(len(y)), 1.0)
        own = [(X[:60], y[:60], weight[:60]), (X[60:120], y[60:120]), (X[120:], y[120:])]
        run = Federation.horizontal(dict(zip(OWNERS, own, strict=True))).fit(PROTOCOL, **SMALL)
        same(run.model, BoostedTreesClassifier(**SMALL).fit(X, y, weight), X)


def test_without_weights_nothing_is_asked_about_them():
    """A feature that is off costs no round and no message."""
    X, y = problem()
    run = divided(X, y).fit(PROTOCOL, **SMALL)
    assert n_received(run, MaskedWeights) == n_received(run, MaskedMetric) == 0
    weighted = divided(X, y, np.ones(len(y))).fit(PROTOCOL, **SMALL)
    assert weighted.rounds["setup"] == run.rounds["setup"] + 1
    assert weighted.rounds["training"] == run.rounds["training"]
    same(weighted.model, run.model, X)


@pytest.mark.parametrize(
    "how", [{"class_weight": "balanced"}, {"class_weight": {1: 2.5}}, {"scale_pos_weight": 3.0}], ids=str
)
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_classes_are_those_of_the_estimators(how, weighted):
    """By name or balanced, with weights of rows besides or without."""
    X, y = problem(5)
    weight = np.random.default_rng(3).integers(1, 5, len(y)).astype(float) if weighted else None
    run = divided(X, y, weight).fit(PROTOCOL, **SMALL, **how)
    same(run.model, BoostedTreesClassifier(**SMALL, **how).fit(X, y, weight), X)


def test_a_class_that_an_owner_lacks_is_weighed_all_the_same():
    """Balanced means over all owners."""
    X, y = problem(6, n_classes=3)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    run = divided(X, y).fit(PROTOCOL, **SMALL, class_weight="balanced", classes=[0, 1, 2])
    same(run.model, BoostedTreesClassifier(**SMALL, class_weight="balanced").fit(X, y), X)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"class_weight": {7: 2.0}}, "class_weight names 7, which is not among the classes"),
        ({"class_weight": {1: 0.0}}, "class_weight must hold numbers above 0, got 0.0 for 1"),
        ({"class_weight": "even"}, "class_weight must be 'balanced' or a dict"),
        ({"early_stopping": True, "eval_metric": "auc"}, "eval_metric='auc' is no sum over rows"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(how, sentence):
    """With the parameter, its value and a way out."""
    X, y = problem()
    with pytest.raises(HedgerowError, match=sentence):
        divided(X, y).fit(PROTOCOL, **SMALL, **how)


# --- early stopping ---------------------------------------------------------------------------------------------------

STOPPING = {**SMALL, "max_iter": 30, "learning_rate": 0.9, "early_stopping": True, "n_iter_no_change": 2}


@pytest.mark.parametrize(
    ("n_classes", "how"),
    [
        (2, {}),
        (2, {"eval_metric": "error"}),
        (3, {}),
        (3, {"eval_metric": "merror", "coordinator": "a"}),
        (2, {"subsample": 0.99, "double_masking": True}),
    ],
    ids=str,
)
def test_all_stop_where_the_pooled_engine_stops(n_classes, how):
    """The same iterations, the same best one, the same trees; the metric is the same but for last bits."""
    X, y = problem(8, n_classes=n_classes)
    watched = np.random.default_rng(4).random(len(y)) < 0.3
    run = divided(X, y, validation=watched).fit(PROTOCOL, **STOPPING, **how)
    meta = run.model.ensemble_.meta
    (name, curve), n_kept = next(iter(meta["learning_curve"].items())), run.model.n_iter_
    assert n_kept < len(curve) < 30
    assert meta["best_iteration"] == n_kept - 1
    assert len(curve) == n_kept + 2
    if "subsample" in how:
        return
    pooled = BoostedTreesClassifier(**STOPPING, eval_metric=how.get("eval_metric"))
    pooled.fit(X[~watched], y[~watched], X_val=X[watched], y_val=y[watched])
    same(run.model, pooled, X)
    assert pooled.n_iter_ == n_kept
    np.testing.assert_allclose(curve, pooled.evals_result_["valid"][name], rtol=1e-9)


@pytest.mark.parametrize(("loss", "metric"), [("squared_error", None), ("poisson", None), ("poisson", "mae")])
def test_regressions_stop_early(loss, metric):
    """With weights, too, which count in the metric."""
    X, y = problem(9, n_classes=9)
    y, weight = y.astype(float), np.random.default_rng(5).random(len(y)) + 0.5
    watched = np.random.default_rng(4).random(len(y)) < 0.3
    how = {**STOPPING, "loss": loss, "label_range": (0.0, 8.0), "eval_metric": metric}
    run = divided(X, y, weight, validation=watched, task="regression").fit(PROTOCOL, **how)
    pooled = BoostedTreesRegressor(**how)
    rows = {"X_val": X[watched], "y_val": y[watched], "sample_weight_val": weight[watched]}
    pooled.fit(X[~watched], y[~watched], weight[~watched], **rows)
    np.testing.assert_array_equal(run.model.predict(X), pooled.predict(X))
    curve = next(iter(run.model.ensemble_.meta["learning_curve"].values()))
    np.testing.assert_allclose(curve, next(iter(pooled.evals_result_["valid"].values())), rtol=1e-9)


def test_one_number_is_opened_per_iteration():
    """The ledgers have one masked word from each owner for every iteration, and one more round."""
    X, y = problem(8)
    watched = np.random.default_rng(4).random(len(y)) < 0.3
    run = divided(X, y, validation=watched).fit(PROTOCOL, **STOPPING)
    n_iterations = len(run.model.ensemble_.meta["learning_curve"]["logloss"])
    for name in "abc":
        assert sum(line.message == MaskedMetric.NAME for line in run.ledgers[name]) == n_iterations
    calm = divided(X[~watched], y[~watched]).fit(
        PROTOCOL, **{**STOPPING, "early_stopping": False, "max_iter": n_iterations}
    )
    assert run.rounds["training"] == calm.rounds["training"] + n_iterations


def test_weights_and_early_stopping_between_processes():
    """Over mutual TLS the same model, bit for bit, and the same curve."""
    X, y = problem(10)
    weight, watched = np.random.default_rng(6).random(len(y)) + 0.2, np.random.default_rng(7).random(len(y)) < 0.25
    federation = divided(X, y, weight, validation=watched)
    runs = [federation.fit(PROTOCOL, **STOPPING, transport=transport) for transport in ("memory", "grpc")]
    first, second = (run.model.ensemble_.to_dict() for run in runs)
    assert first["trees"] == second["trees"]
    assert first["meta"]["learning_curve"] == second["meta"]["learning_curve"]


def test_rows_to_watch_must_be_there():
    """No rows to watch, and nobody starts."""
    X, y = problem()
    federation = divided(X, y)
    plan = federation.plan(PROTOCOL, **STOPPING)
    data = {name: replace(brought, validation=np.zeros(60, np.bool_)) for name, brought in plan.data.items()}
    played = play(SPEC, plan.job, data)
    assert "early_stopping needs rows to watch" in str(played.errors["coordinator"])


@pytest.mark.parametrize(
    ("name", "metric"),
    [("logistic", "logloss"), ("softmax", "mlogloss"), ("squared", "rmse"), ("poisson", "poisson-deviance")],
)
def test_the_summed_metric_is_that_of_the_engine(name, metric):
    """Divided among owners, summed as whole numbers: the metric but for last bits, whatever the weights are."""
    rng = np.random.default_rng(0)
    loss = Loss(name, 3 if name == "softmax" else 1, (0.0, 1.0) if name in ("logistic", "softmax") else (0.0, 9.0))
    labels = rng.integers(0, 2 if name == "logistic" else 3, 500).astype(float)
    raw = rng.normal(size=(500, loss.n_outputs))
    for weight in (None, rng.random(500), rng.random(500) * 1e12, rng.random(500) * 1e-12):
        total = 500.0 if weight is None else float(weight.sum())
        summed = SummedMetric.of(BoostingParams(loss=name, n_classes=3), loss, total)
        assert summed.metric.name == metric
        cuts = [slice(0, 100), slice(100, 250), slice(250, 500)]
        words = sum(summed.total(labels[c], raw[c], None if weight is None else weight[c]) for c in cuts)
        wanted = find_metric(None, loss)(loss, labels, raw, weight)
        assert summed.value(words) == pytest.approx(wanted, rel=1e-12)
    assert len(predictions_from(name, raw)) == 500


# --- draws of rows, warm start, files ---------------------------------------------------------------------------------


def test_each_tree_is_grown_on_a_draw_of_rows():
    """Another seed, another draw; the same seed, the same trees, wherever the coordinator is."""
    X, y = problem(11)
    fed = divided(X, y)
    first, second, other = (
        fed.fit(PROTOCOL, **{**SMALL, "random_state": seed}, subsample=0.5, **how).model
        for seed, how in ((1, {}), (1, {"coordinator": "c"}), (2, {}))
    )
    same(first, second, X)
    assert not np.array_equal(first.decision_function(X), other.decision_function(X))


def go_on(federation, model, **params):
    """A training that goes on from a model which every owner brings."""
    plan = federation.plan(PROTOCOL, **params)
    data = {name: replace(brought, part=model) for name, brought in plan.data.items()}
    return play(SPEC, plan.job, data)


@pytest.mark.parametrize("how", [{}, {"coordinator": "b"}, {"share_cover": True}, {"subsample": 1.0}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_training_goes_on_from_an_earlier_model(how, n_classes):
    """More trees, on other rows of other owners: as the plain engine's warm start on these rows."""
    X, y = problem(12, n_classes=n_classes)
    earlier = divided(X[:90], y[:90]).fit(PROTOCOL, **SMALL).model.ensemble_
    played = go_on(divided(X[60:], y[60:], n_owners=4), earlier, **SMALL, **how)
    assert played.errors == {}
    pooled = BoostedTreesClassifier(**SMALL).fit(X[:90], y[:90])
    pooled.set_params(warm_start=True, max_iter=6).fit(X[60:], y[60:])
    for model in played.results.values():
        assert model.n_iterations == 6
        np.testing.assert_array_equal(model.raw_scores(X), pooled.ensemble_.raw_scores(X))
        assert model.trees[: 3 * earlier.n_outputs] == earlier.trees


def test_going_on_stops_early_too():
    """Early stopping counts the new iterations, and keeps all of the earlier ones."""
    X, y = problem(13)
    earlier = divided(X, y).fit(PROTOCOL, **SMALL).model.ensemble_
    watched = np.random.default_rng(4).random(len(y)) < 0.3
    played = go_on(divided(X, y, validation=watched), earlier, **STOPPING)
    model = played.results["coordinator"]
    curve = model.meta["learning_curve"]["logloss"]
    assert model.n_iterations == 3 + int(np.argmin(curve)) + 1
    assert model.meta["best_iteration"] == model.n_iterations - 1


def test_owners_must_go_on_from_the_same_model():
    """An owner that brings another model, or none, is named."""
    X, y = problem(14)
    federation = divided(X, y)
    models = [federation.fit(PROTOCOL, **SMALL, l2_regularization=l2).model.ensemble_ for l2 in (1.0, 2.0)]
    plan = federation.plan(PROTOCOL, **SMALL)
    for odd in (models[1], None):
        data = {name: replace(brought, part=models[0]) for name, brought in plan.data.items()}
        data["c"] = replace(data["c"], part=odd)
        played = play(SPEC, plan.job, data)
        assert isinstance(played.errors["coordinator"], InvalidInput)
        assert str(played.errors["coordinator"]).startswith("c: ")


def test_a_model_of_another_loss_is_not_gone_on_from():
    """Before any sum is asked for."""
    X, y = problem(15, n_classes=3)
    three = divided(X, y).fit(PROTOCOL, **SMALL).model.ensemble_
    played = go_on(
        divided(X, np.minimum(y, 1).astype(float), task="regression"), three, **SMALL, label_range=(0.0, 1.0)
    )
    assert any(isinstance(error, InvalidParameter) for error in played.errors.values())


def test_files_with_weights_and_rows_to_watch(tmp_path):
    """Rows in Parquet files, with a column of weights: as from memory, bit for bit."""
    X, y = problem(16)
    weight = np.random.default_rng(8).integers(0, 3, len(y)) * 0.7
    watched = np.random.default_rng(9).random(len(y)) < 0.3
    names = [f"x{k}" for k in range(4)]
    brought, masks = {}, {}
    for name, rows in zip("abc", np.array_split(np.arange(len(y)), 3), strict=True):
        table = pa.table({**{n: X[rows, k] for k, n in enumerate(names)}, "late": y[rows], "w": weight[rows]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=17)
        masks[name] = watched[rows]
        path = tmp_path / f"{name}.parquet"
        brought[name] = (path, "late", "w") if name != "b" else (Blocks(path, target="late", weight="w"), None)
    stored = Federation.horizontal(brought, validation=masks).fit(PROTOCOL, **STOPPING).model.ensemble_
    held = divided(X, y, weight, validation=watched).fit(PROTOCOL, **STOPPING).model.ensemble_
    assert [tree.value.tolist() for tree in stored.trees] == [tree.value.tolist() for tree in held.trees]
    assert stored.meta["learning_curve"] == held.meta["learning_curve"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"early_stopping": True}, "with dp nothing is stopped early: the budget decides"),
        ({"class_weight": "balanced"}, "with dp all rows count the same"),
        ({"subsample": 0.5}, "with dp the recipe decides on trees.*subsample"),
    ],
    ids=str,
)
def test_what_the_private_recipe_does_not_do(how, sentence):
    """It is refused with the reason, before any data moves."""
    X, y = problem()
    schema = Schema.from_public(bounds={f"x{k}": (0, 9) for k in range(4)}, classes=[0, 1])
    with pytest.raises(InvalidParameter, match=sentence):
        divided(X, y).fit(PROTOCOL, dp=(1.0, 1e-6), schema=schema, random_state=1, **how)


def test_masked_sums_of_trees_are_as_many_as_without_watching():
    """Watching adds its own sums, and changes none of the others'."""
    X, y = problem(8)
    watched = np.random.default_rng(4).random(len(y)) < 0.3
    run = divided(X, y, validation=watched).fit(PROTOCOL, **STOPPING)
    n_iterations = len(run.model.ensemble_.meta["learning_curve"]["logloss"])
    calm = divided(X[~watched], y[~watched]).fit(
        PROTOCOL, **{**STOPPING, "early_stopping": False, "max_iter": n_iterations}
    )
    assert n_received(run, MaskedHistogram) == n_received(calm, MaskedHistogram)
