"""The loop over trees: sampling, evaluation, early stopping, warm start, callbacks, errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import METRICS, EvalSet, area_under_curve, find_metric, poisson_deviance, train
from hedgerow.engine.losses import LOSSES, BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter


def problem(n_rows=800, loss="logistic", seed=0):
    """A learnable problem, binned, in two halves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 - 1 + rng.normal(scale=0.5, size=n_rows)
    y = {
        "logistic": signal > 0,
        "softmax": np.digitize(signal, [-0.7, 0.7]),
        "squared": 100 + signal,
        "absolute": np.round(100 + signal, 1),
        "quantile": 100 + signal,
        "poisson": rng.poisson(np.exp(np.clip(signal, -2, 2))),
    }[loss].astype(float)
    table = read_table(X)
    mapper = BinMapper.fit(table, 64)
    return X, mapper, mapper.transform(table), y


def halves(codes, y):
    """Even rows to train on, odd rows to evaluate."""
    return np.ascontiguousarray(codes[:, ::2]), y[::2], np.ascontiguousarray(codes[:, 1::2]), y[1::2]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("subsample", [1.0, 0.5])
def test_scores_while_training_equal_prediction(loss, subsample):
    """The logged metric of the training rows is that of the finished model's own raw scores; and it falls."""
    X, mapper, codes, y = problem(loss=loss)
    params = BoostingParams(loss=loss, n_classes=3, n_iterations=8, subsample=subsample, seed=5)
    result = train(params, mapper, codes, y, eval_sets=[EvalSet("train", codes, y)])
    ensemble = result.ensemble
    for tree in ensemble.trees:
        ensemble.truncated(0).append(tree)  # with the checks that training skips
    raw = ensemble.raw_scores(X)
    np.testing.assert_array_equal(raw, ensemble.raw_scores_binned(codes))
    the_loss = params.loss_for(y)
    metric = find_metric(None, the_loss)
    history = result.evals_log["train"][metric.name]
    assert metric(the_loss, y, raw, None) == history[-1]
    assert history[-1] < history[0]


def test_row_sampling_is_a_draw_by_seed_that_ignores_threads():
    """Same seed, same model for any number of threads; another seed, another model."""
    _, mapper, codes, y = problem()
    models = [
        train(BoostingParams(n_iterations=3, subsample=0.5, seed=s, n_threads=t), mapper, codes, y).ensemble.to_dict()
        for s, t in ((1, 1), (1, 3), (2, 1))
    ]
    assert models[0]["trees"] == models[1]["trees"]
    assert models[0]["trees"] != models[2]["trees"]


def test_row_sampling_takes_about_the_asked_share():
    """The root's cover is near the share of all rows' hessians."""
    _, mapper, codes, y = problem(n_rows=20_000, loss="squared")
    result = train(BoostingParams(loss="squared", n_iterations=3, subsample=0.3), mapper, codes, y)
    for tree in result.ensemble.trees:
        assert 0.28 * len(y) < tree.cover[0] < 0.32 * len(y)


def test_warm_start_equals_training_in_one_go():
    """Five trees and then five more are the ten trees of one training."""
    _, mapper, codes, y = problem()
    whole = train(BoostingParams(n_iterations=10), mapper, codes, y).ensemble
    first = train(BoostingParams(n_iterations=5), mapper, codes, y).ensemble
    both = train(BoostingParams(n_iterations=5), mapper, codes, y, init=first).ensemble
    assert first.n_iterations == 5
    assert both.to_dict()["trees"] == whole.to_dict()["trees"]


@pytest.mark.parametrize("metric", [None, "auc"])
def test_early_stopping_keeps_the_best_iteration(metric):
    """Training stops once the metric has not improved for the given rounds; the model ends at its best."""
    _, mapper, codes, y = problem(n_rows=300)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.3, 1 - y, y)
    a, ya, b, yb = halves(codes, y)
    params = BoostingParams(n_iterations=300, learning_rate=0.5, early_stopping_rounds=5)
    result = train(params, mapper, a, ya, eval_sets=[EvalSet("valid", b, yb)], eval_metric=metric)
    history = result.evals_log["valid"][metric or "logloss"]
    best = int(np.argmax(history)) if metric == "auc" else int(np.argmin(history))
    assert result.best_iteration == best
    assert len(history) == best + 1 + 5
    assert result.ensemble.n_iterations == best + 1


def test_callbacks_see_each_iteration_and_can_stop():
    """`after_iteration` gets the model so far; returning True ends training; the other hooks are optional."""
    _, mapper, codes, y = problem()
    seen = []

    class Recorder:
        def before_training(self, model):
            seen.append(("before", model.n_iterations))

        def after_iteration(self, model, epoch, evals_log):
            seen.append((epoch, model.n_iterations, len(evals_log["e"]["error"])))
            return epoch == 3

        def after_training(self, model):
            seen.append(("after", model.n_iterations))

    result = train(
        BoostingParams(n_iterations=50), mapper, codes, y,
        eval_sets=[EvalSet("e", codes, y)], eval_metric="error", callbacks=[Recorder()],
    )  # fmt: skip
    assert seen == [("before", 0), (0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4), ("after", 4)]
    assert result.ensemble.n_iterations == 4


def test_own_metric_is_a_function_of_labels_and_predictions():
    """A callable metric is logged under its own name."""
    _, mapper, codes, y = problem()

    def brier(labels, shares):
        return float(((labels - shares[:, 1]) ** 2).mean())

    result = train(
        BoostingParams(n_iterations=2), mapper, codes, y, eval_sets=[EvalSet("t", codes, y)], eval_metric=brier
    )
    assert len(result.evals_log["t"]["brier"]) == 2


def test_large_offset_of_labels_costs_no_precision():
    """Labels around 1e9 are learned as well as labels around 0."""
    X, mapper, codes, y = problem(loss="squared")
    params = BoostingParams(loss="squared", n_iterations=20)
    near = train(params, mapper, codes, y - 100).ensemble.raw_scores(X)[:, 0]
    far = train(params, mapper, codes, y - 100 + 1e9).ensemble.raw_scores(X)[:, 0] - 1e9
    assert np.abs(near - far).max() < 1e-3


def test_area_under_curve_counts_ties_half_and_uses_weights():
    """Against the definition over all pairs."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60).astype(float)
    share = rng.integers(0, 5, 60) / 5
    w = rng.uniform(0, 2, 60)
    pairs = won = 0.0
    for i in range(60):
        for j in range(60):
            if y[i] == 1 and y[j] == 0:
                pairs += w[i] * w[j]
                won += w[i] * w[j] * (1.0 if share[i] > share[j] else 0.5 if share[i] == share[j] else 0.0)
    assert area_under_curve(y, np.column_stack([1 - share, share]), w) == pytest.approx(won / pairs)
    assert np.isnan(area_under_curve(np.ones(3), np.full((3, 2), 0.5)))


def test_poisson_deviance_is_zero_for_perfect_means():
    """Also where the label is zero."""
    y = np.array([0.0, 1.0, 4.0])
    assert poisson_deviance(y, np.maximum(y, 1e-15)) == pytest.approx(0.0, abs=1e-12)
    assert poisson_deviance(y, y + 1) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_iterations": 0}, "n_iterations"),
        ({"subsample": 0.0}, "subsample"),
        ({"seed": -1}, "seed"),
        ({"tol": -1.0}, "tol"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds"),
        ({"base_score": float("nan")}, "base_score"),
        ({"n_threads": 0}, "n_threads"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(change, message):
    """The error names the parameter."""
    with pytest.raises(InvalidParameter, match=message):
        BoostingParams(**change)


def test_bad_input_is_refused_before_training():
    """Shapes, labels, weights and constraints are checked, each with its own sentence."""
    _, mapper, codes, y = problem(n_rows=50)
    p = BoostingParams(n_iterations=1)
    cases = [
        (p, codes[:4], y, None, "5 features"),
        (p, codes, y[:-1], None, "50 rows but 49 labels"),
        (p, codes, np.where(np.arange(50) == 7, np.nan, y), None, "label of row 7"),
        (p, codes, y + 1, None, "class numbers 0 to 1"),
        (p, codes, y, np.ones(3), "one value per row"),
        (p, codes, y, -np.ones(50), "not negative"),
        (p, codes, y, np.zeros(50), "every sample_weight is zero"),
        (BoostingParams(loss="squared", label_range=(0, 0.5)), codes, y, None, "outside the declared label_range"),
        (BoostingParams(loss="poisson"), codes, y - 5, None, "poisson"),
        (BoostingParams(monotone=(1,)), codes, y, None, "monotone has 1 entries for 5"),
    ]
    for params, some_codes, labels, weight, message in cases:
        with pytest.raises((InvalidInput, InvalidParameter), match=message):
            train(params, mapper, some_codes, labels, weight)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_metric_for_another_loss_is_refused(name):
    """A metric knows which losses it fits."""
    params = BoostingParams(loss="squared")
    loss = params.loss_for(np.array([0.0, 1.0]))
    if "squared" in METRICS[name].losses:
        assert find_metric(name, loss).name == name
    else:
        with pytest.raises(InvalidParameter, match="does not fit"):
            find_metric(name, loss)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["absolute", "quantile"])
def test_losses_that_refit_leaves_ignore_threads_and_the_order_of_rows(loss, weighted):
    """The model is the same, bit for bit, with rows of the whole weights repeated too."""
    _, mapper, codes, y = problem(n_rows=3000, loss=loss)
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float) if weighted else None
    params = BoostingParams(loss=loss, quantile=0.8, n_iterations=4, n_threads=1)
    plain = train(params, mapper, codes, y, weight).ensemble
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = np.ascontiguousarray(codes[:, order])
    moved = None if weight is None else weight[order]
    assert train(replace(params, n_threads=3), mapper, shuffled, y[order], moved).ensemble.to_dict() == plain.to_dict()
    if weight is not None:
        twice = np.repeat(np.arange(len(y)), weight.astype(int))
        repeated = train(params, mapper, np.ascontiguousarray(codes[:, twice]), y[twice]).ensemble
        assert repeated.to_dict() == plain.to_dict()


def test_quantile_loss_predicts_the_quantile():
    """About the asked share of labels lies below what is predicted, far better than the mean would do."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 2))
    y = X[:, 0] * 10 + rng.exponential(1 + 4 * X[:, 1])
    table = read_table(X)
    mapper = BinMapper.fit(table, 64)
    codes = mapper.transform(table)
    for quantile in (0.1, 0.5, 0.9):
        params = BoostingParams(loss="quantile", quantile=quantile, n_iterations=60, max_depth=3, min_samples_leaf=20)
        raw = train(params, mapper, codes, y).ensemble.raw_scores(X)[:, 0]
        assert abs((y < raw).mean() - quantile) < 0.03


def test_monotone_constraints_do_not_go_with_refitted_leaves():
    """Quantiles of single leaves keep to no order, so that it is refused."""
    _, mapper, codes, y = problem(loss="absolute")
    with pytest.raises(InvalidParameter, match="monotone does not go with the absolute loss"):
        train(BoostingParams(loss="absolute", monotone=(1, 0, 0, 0, 0)), mapper, codes, y)
