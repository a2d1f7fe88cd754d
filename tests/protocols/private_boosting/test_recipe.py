"""The recipe as a whole: who decides what from which numbers, what it costs, and how good the models are."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from hedgerow.datasets import load_adult
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_onnx import onnx_model
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.events import DiscreteGaussian, NonPrivate, Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.recipe import MEAN_CLIP, SHARES, Learned, Recipe, Size
from hedgerow.protocols.central.gaussian.requests import UNIT
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.schema import Schema
from twins.local_fit import fit_locally


def noise(seed=0):
    """Noise that a test can repeat."""
    return np.random.default_rng(seed)


def score(model: Ensemble, X):
    """Raw scores of a frame."""
    return model.raw_scores(read_table(X, like=model.features))[:, 0]


# --- laws ----------------------------------------------------------------------------------------------------------


def test_several_owners_are_one(task):
    """Without noise, rows divided among three owners give the model of all rows together, bit for bit."""
    schema, rows_of = task
    together = rows_of(900)
    parts = [
        PrivateRows(together._codes[:, a:b], together._labels[a:b], together.cells, together.loss)
        for a, b in ((0, 50), (50, 600), (600, 900))
    ]
    one = fit_locally([together], schema, epsilon=math.inf, delta=1e-6, random=noise())
    three = fit_locally(parts, schema, epsilon=math.inf, delta=1e-6, random=noise())
    assert three.model.to_dict() == one.model.to_dict()
    assert one.epsilon == math.inf
    assert set(one.events) == {NonPrivate("no noise was added")}


def test_the_model_follows_from_released_sums_alone(task):
    """From the noisy answers, the schema and the seed follow every request and the model: no rows are needed."""
    schema, rows_of = task
    rows, asked, answers = rows_of(600), [], []

    def release(request):
        asked.append(request)
        answers.append(
            discrete_gaussian(
                rows.answer(request), sensitivity=request.sensitivity, sigma=request.sigma, random=noise(len(asked))
            )
        )
        return answers[-1]

    model = Recipe(schema, epsilon=2.0, delta=1e-5, seed=7).run(release)
    replayed = iter(zip(asked, answers, strict=True))

    def replay(request):
        before, answer = next(replayed)
        for field in dataclasses.fields(request):
            np.testing.assert_array_equal(getattr(request, field.name), getattr(before, field.name))
        return answer

    again = Recipe(schema, epsilon=2.0, delta=1e-5, seed=7).run(replay)
    assert again.to_dict() == model.to_dict()


def test_scores_in_training_are_those_of_the_model(task):
    """The scores that the rows' gradients were computed from are what the finished model predicts."""
    schema, rows_of = task
    rows, last = rows_of(500), []

    def release(request):
        last.append(request)
        return discrete_gaussian(rows.answer(request), sensitivity=1.0, sigma=0.0, random=noise())

    model = Recipe(schema, epsilon=math.inf, delta=1e-6).run(release)
    bounds = schema.label_bounds
    scale = 1.0 if bounds is None else (bounds[1] - bounds[0]) * start_of(last).spread
    codes = np.stack([bins[own] for bins, own in zip(start_of(last).bins, rows._codes, strict=True)])
    # A feature's missing code in the model is the one after its value bins, as in the requests' bins.
    predicted = model.raw_scores_binned(codes)[:, 0] - model.base_scores[0]
    np.testing.assert_allclose(rows._scores[0] * scale, predicted, atol=2e-4)


def start_of(requests):
    """The request that set the bins."""
    (found,) = [request for request in requests if request.update == "start"]
    return found


# --- the last sum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_predictions_are_right_on_average(tables, loss):
    """Clipped gradients leave the mean off; one sum over all rows, not clipped, puts most of that right."""
    schema, make = tables[loss]
    frame, labels = make(3000)
    rows, asked = PrivateRows.read(frame, labels, schema, multiclass=True), []

    def release(request):
        asked.append(request)
        return discrete_gaussian(rows.answer(request), sensitivity=1.0, sigma=0.0, random=noise())

    recipe = Recipe(schema, epsilon=math.inf, delta=1e-6, multiclass=True)
    model = recipe.run(release)
    last = asked[-1]
    assert (last.number, last.kind, last.clip) == (recipe.n_requests, "leaf_sums", int(MEAN_CLIP[loss] * UNIT))
    assert not last.goes_right.any()
    assert len(asked) == recipe.n_requests
    raw = model.raw_scores(read_table(frame, like=model.features))
    begun = start_of(asked)
    if loss == "squared":
        low, high = schema.label_bounds
        off = raw[:, 0].mean() - np.clip(labels, low, high).mean()
        moved = model.base_scores - ((begun.centre + 0.5) * (high - low) + low)
        assert abs(off) < 0.2 * abs(off - moved[0])
        return
    bases = begun.update_values if loss == "softmax" else np.array([begun.base_score])
    moved = model.base_scores - bases
    truth = np.array([np.mean(labels == name) for name in schema.classes])

    def bias(scores):
        if loss == "logistic":
            scores = np.column_stack([np.zeros(len(scores)), scores])
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return np.abs(shares.mean(axis=0) - truth).sum()

    assert bias(raw) < 0.4 * bias(raw - moved)


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_noise_does_not_decide_on_the_base_score(tables, loss, size):
    """Whatever the noise is like beside the rows, a deviation of it moves a base score by less than half."""
    schema, _ = tables[loss]
    recipe = Recipe(schema, epsilon=1.0, delta=1e-6, multiclass=True)
    next(recipe.requests())
    hessians = {"logistic": np.array([0.01]), "squared": np.ones(1), "softmax": np.array([0.3, 0.2, 1e-3, 1e-6])}[loss]
    n_rows = size * 100.0
    begun = Learned([], Size(n_rows, (1.0, 1.0), 3, 100), np.zeros(recipe.n_outputs), hessians=hessians)
    asking = recipe.stage_3(begun, np.zeros((recipe.n_outputs, 8)))
    next(asking)
    one_sigma = np.zeros(4 * recipe.n_outputs, np.int64)
    one_sigma[: recipe.n_outputs] = round(recipe.noise) * (-1) ** np.arange(recipe.n_outputs)
    with pytest.raises(StopIteration) as done:
        asking.send(one_sigma)
    assert np.abs(done.value.value).max() < 0.5


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_shares_are_all_of_the_budget(loss):
    """They sum to 1."""
    assert sum(SHARES[loss]) == pytest.approx(1.0)


# --- budget --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("owners", "honest"), [(1, 1), (3, 3), (3, 2)])
def test_the_budget_is_kept_and_used(task, owners, honest):
    """All events together cost what was asked for, up to a millionth; zCDP confirms it from its own side."""
    schema, rows_of = task
    parts = [rows_of(200, seed) for seed in range(owners)]
    fit = fit_locally(parts, schema, epsilon=1.5, delta=1e-6, random=noise(), honest=honest)
    accountant, other = GaussianDP(), ZeroConcentratedDP()
    accountant.compose_all(fit.events)
    other.compose_all(fit.events)
    assert 1.5 * (1 - 1e-6) < accountant.epsilon(1e-6) == fit.epsilon <= 1.5
    assert 1.5 < other.epsilon(1e-6) < 1.5 * 1.15
    assert all(event.parties == honest for event in fit.events)
    assert len(fit.events) == (1 if schema.classes else 2) + 10 * 5 + fit.model.meta["n_trees"] + 1


def test_colluding_owners_mean_more_noise():
    """With one honest owner of four, each draws all the noise, and the recipe reckons with twice the scale."""
    schema = Schema.from_public(bounds={"a": (0, 1)}, classes=[0, 1])
    trusting, wary = (Recipe(schema, epsilon=1.0, delta=1e-6, owners=4, honest=honest) for honest in (4, 1))
    first = [next(recipe.requests()) for recipe in (trusting, wary)]
    assert first[0].sigma == first[1].sigma
    assert first[1].sigma_per_owner(1) == pytest.approx(2 * first[0].sigma_per_owner(4))
    assert wary.noise == pytest.approx(2 * trusting.noise)
    with pytest.raises(InvalidParameter, match="honest must be between 1 and the number of owners, 4; got 5"):
        Recipe(schema, epsilon=1.0, delta=1e-6, owners=4, honest=5)


@pytest.mark.parametrize(
    "worth",
    [
        lambda _: NonPrivate("forgotten"),
        lambda request: DiscreteGaussian(request.sensitivity, 0.999 * request.sigma, request.n_sums),
        lambda request: DiscreteGaussian(0.999 * request.sensitivity, request.sigma, request.n_sums),
        lambda request: DiscreteGaussian(request.sensitivity, request.sigma, request.n_sums - 1),
    ],
)
def test_an_answer_with_too_little_noise_ends_the_training(task, worth):
    """What an answer is worth is compared with what was asked for, every time."""
    schema, rows_of = task
    rows = rows_of(50)
    with pytest.raises(ProtocolError, match="request 1 was answered with"):
        Recipe(schema, epsilon=1.0, delta=1e-6).run(lambda request: Released(rows.answer(request), worth(request)))


@pytest.mark.parametrize("extra", [DiscreteGaussian(1.0, 1e4, 1), NonPrivate("a look at the rows")])
def test_a_run_that_spent_too_much_returns_no_model(task, extra):
    """A release beside the recipe, however small, breaks the budget, and the run fails closed at its end."""
    schema, rows_of = task
    rows = rows_of(50)
    recipe = Recipe(schema, epsilon=1.0, delta=1e-6)

    def release(request):
        if request.number == 1:
            recipe.budget.accountant.compose(extra)
        return discrete_gaussian(
            rows.answer(request), sensitivity=request.sensitivity, sigma=request.sigma, random=noise(request.number)
        )

    with pytest.raises(ProtocolError, match=r"more than 1\.0"):
        recipe.run(release)


def test_noise_is_wide_in_whole_number_units(task):
    """Even at a large epsilon shared by many owners, each draws noise of a scale above 64."""
    schema, _ = task
    recipe = Recipe(schema, epsilon=20.0, delta=1e-6, owners=32)
    asking = recipe.requests()
    request = next(asking)
    while request.kind in ("histograms", "squares"):
        assert request.sigma_per_owner(32) > 64
        request = asking.send(np.full(request.n_sums, 2**20))
    assert request.sigma_per_owner(32) > 64


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("logistic", 32_561, 0.24, 0.2681), (0.6, 5, 190)),
        (("logistic", 32_561, 0.24, 1.666), (0.75, 6, 190)),
        (("logistic", 100, 0.5, 0.1), (0.6, 3, 100)),
        (("logistic", 1e7, 0.5, 1.0), (0.75, 6, 800)),
        (("logistic", 1e4, 0.5, math.inf), (0.75, 6, 100)),
        (("squared", 1e4, 0.5, 1.0), (1.5, 6, 100)),
    ],
)
def test_the_size_of_a_task(arguments, wanted):
    """Clip, depth and number of trees by the rule, between their limits."""
    size = Size.of_task(*arguments)
    assert (size.clips[0], size.depth, size.n_trees) == wanted


# --- quality -------------------------------------------------------------------------------------------------------


def test_a_signal_is_found(task, frame_of):
    """With a generous budget the model explains most of what there is to explain, missing values included."""
    schema, rows_of = task
    frame, effect = frame_of(4000, seed=5)
    fit = fit_locally([rows_of(6000)], schema, epsilon=8.0, delta=1e-6, random=noise(1))
    assert np.corrcoef(score(fit.model, frame), effect)[0, 1] > 0.9
    twin = fit_locally([rows_of(6000)], schema, epsilon=math.inf, delta=1e-6, random=noise())
    assert np.corrcoef(score(twin.model, frame), effect)[0, 1] > 0.94


def test_the_model_is_an_ordinary_one(task, frame_of, tmp_path):
    """It survives its file, predicts rows never seen with gaps never announced, and can be exported."""
    schema, rows_of = task
    model = fit_locally([rows_of(300)], schema, epsilon=4.0, delta=1e-6, random=noise()).model
    model.save(tmp_path / "model.json")
    again = Ensemble.load(tmp_path / "model.json")
    frame, _ = frame_of(50, seed=9)
    frame["age"] = frame["age"].astype(float).where(frame["age"] > 30)
    assert score(again, frame).tolist() == score(model, frame).tolist()
    assert np.isfinite(score(model, frame)).all()
    assert (model.importances() >= 0).all()
    for tree in model.trees:
        model._check(tree)
    assert onnx_model(model).ByteSize() > 0  # XGBoost's format has no place for bounds of predictions


ADULT = {
    "bounds": {
        "age": (17, 90),
        "fnlwgt": (10_000, 1_500_000),
        "education-num": (1, 16),
        "capital-gain": (0, 100_000),
        "capital-loss": (0, 5_000),
        "hours-per-week": (1, 99),
    },
    "may_be_missing": ["workclass", "occupation", "native-country"],
}


@pytest.mark.parametrize(("epsilon", "floor"), [(0.5, 0.895), (1.0, 0.906), (4.0, 0.911)])
def test_adult(epsilon, floor):
    """On Adult, official split, delta 1e-5: the AUC stays above a floor some way below its usual value."""
    X, y = load_adult("train")
    levels = {
        name: column.chunk(0).dictionary.to_pylist()
        for name, column in zip(X.column_names, X.columns, strict=True)
        if name not in ADULT["bounds"]
    }
    schema = Schema.from_public(**ADULT, levels=levels, integers=list(ADULT["bounds"]), classes=[0, 1])
    fit = fit_locally([PrivateRows.read(X, y, schema)], schema, epsilon=epsilon, delta=1e-5, random=noise(3))
    X_test, y_test = load_adult("test")
    assert roc_auc_score(y_test, score(fit.model, X_test)) > floor
    assert fit.epsilon <= epsilon


def test_one_column_is_enough():
    """A single column, and a feature that is constant: shallow trees, no failure."""
    frame = pd.DataFrame({"a": np.linspace(0, 1, 200)})
    schema = Schema.from_public(bounds={"a": (0, 1)}, classes=[0, 1])
    rows = PrivateRows.read(frame, (frame["a"] > 0.4).astype(int), schema)
    fit = fit_locally([rows], schema, epsilon=8.0, delta=1e-5, random=noise())
    assert fit.model.meta["depth"] == 1
    assert roc_auc_score(frame["a"] > 0.4, score(fit.model, frame)) > 0.9
