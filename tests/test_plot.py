"""Pictures of models: what is drawn is what the model has, nobody sees another party's values, nothing global moves."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("matplotlib", reason="pip install 'hedgerow[plot]'")

import matplotlib as mpl
from matplotlib.figure import Figure

from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor, Federation, PrivateBoostingClassifier, Schema, plot
from hedgerow.engine.boosting import area_under_curve
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, InvalidType
from hedgerow.estimators.plain import load_model
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.plot.curves import MOST_ROUNDS
from hedgerow.protocols.vertical.common.parts import load_part, save_part
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart, Target

N = 300
RNG = np.random.default_rng(7)
INCOME = np.where(np.arange(N) % 11 == 0, np.nan, RNG.lognormal(8, 0.5, N))
REGIONS = ("east", "north", "south", "west")
TABLE = pa.table(
    {"income": INCOME, "age": RNG.integers(18, 90, N).astype(np.float64), "region": RNG.choice(REGIONS, N)}
)
SHOP = pa.table({"basket": RNG.normal(size=N), "visits": RNG.integers(0, 30, N).astype(np.float64)})
SCORE = np.nan_to_num(np.log(INCOME) - 8) * 2 + (TABLE["age"].to_numpy() - 54) / 30
SCORE = SCORE + SHOP["basket"].to_numpy() + (np.asarray(TABLE["region"]) == "north")
LABELS = np.where(SCORE > 0, "yes", "no")
X = {"bank": TABLE.select(["income", "age"]), "shop": SHOP}


@pytest.fixture(scope="module")
def whole():
    """A model of one table with levels and missing values, which has watched some rows."""
    model = BoostedTreesClassifier(max_iter=12, max_depth=3, categorical_features=["region"])
    return model.fit(TABLE.slice(0, 200), LABELS[:200], X_val=TABLE.slice(200), y_val=LABELS[200:])


@pytest.fixture(scope="module")
def vertical():
    """A bank with the labels, and a shop."""
    trees = {"n_estimators": 4, "max_depth": 3, "learning_rate": 0.3}
    federation = Federation.vertical(X, labels=("bank", LABELS))
    return federation.fit("vertical.noised_gradients", epsilon=50.0, delta=1e-5, **trees)


@pytest.fixture(scope="module")
def horizontal():
    """Three owners of rows."""
    thirds = {"a": slice(0, 100), "b": slice(100, 200), "c": slice(200, N)}
    federation = Federation.horizontal(
        {name: (SHOP.take(np.arange(N)[rows]), LABELS[rows]) for name, rows in thirds.items()}
    )
    return federation.fit("horizontal.secure_sum", n_estimators=3, max_depth=2)


def private(epsilon):
    """A model that may be released."""
    schema = Schema.from_public(bounds={"basket": (-4, 4), "visits": (0, 30)}, classes=["no", "yes"])
    return PrivateBoostingClassifier(epsilon=epsilon, delta=1e-5, schema=schema).fit(SHOP, LABELS)


def shared_part(party, own):
    """The part of one of three parties of a model whose leaf values are shared: one tree, one split of its own."""
    features = load_features(party)
    column = np.where(np.array(own), 0, [-2, -2, -1, -1, -1])
    one = PartialTree(column, np.where(column >= 0, 1, -1), np.zeros(5, np.bool_))
    target = Target("logistic", (0.0,), 1.0, ("no", "yes")) if party == "bank" else None
    holders = ("bank", "shop", "telco")
    return SharedLeavesPart(
        party, "bank", holders, "vertical.x", "r", features, (one,), (np.arange(3, dtype=np.uint64),), 16, target
    )


def load_features(party):
    """One column of a party."""
    from hedgerow.engine.binning import FeatureBins

    return (FeatureBins(f"{party}_column", np.array([1.0, 2.5])),)


def texts(ax):
    """What stands in the picture, title and axes aside."""
    return [each.get_text() for each in ax.texts]


def lengths(ax):
    """Of all bars, from the top."""
    return [bar.get_width() for bar in sorted(ax.patches, key=lambda bar: bar.get_y())]


def names(ax):
    """Beside the bars."""
    return [each.get_text() for each in ax.get_yticklabels()]


# --- importances -----------------------------------------------------------------------------------------------------


def test_bars_are_the_importances(whole):
    """One bar for each column, the longest first, as long as its share of the gain."""
    ax = plot.importances(whole)
    expected = sorted(zip(whole.feature_importances_, whole.feature_names_in_, strict=True), reverse=True)
    assert names(ax) == [name for _, name in expected]
    assert lengths(ax) == pytest.approx([share for share, _ in expected])


def test_the_least_important_are_left_out(whole):
    """With `most`, which the title says."""
    ax = plot.importances(whole, most=2)
    assert len(ax.patches) == 2
    assert ax.get_title().endswith("(2 of 3)")


def test_everybodys_columns_for_whoever_has_all_parts(vertical):
    """By party and column, as the service that explains models has them."""
    ax = plot.importances(vertical)
    gains = {f"{p}: {c}": g for p, own in vertical.model.importances().items() for c, g in own.items()}
    assert dict(zip(names(ax), lengths(ax), strict=True)) == pytest.approx(
        {name: gain / sum(gains.values()) for name, gain in gains.items()}
    )


def test_a_party_sees_what_it_knows(vertical, tmp_path):
    """The label holder others as one bar, a feature holder its own columns; from its part at home the same."""
    assert set(names(plot.importances(vertical, party="bank"))) == {"income", "age", "all columns of shop"}
    ax = plot.importances(vertical, party="shop")
    asked = np.bincount(vertical.model.parts["shop"].questions.column, minlength=2)
    assert lengths(ax) == sorted(asked.tolist(), reverse=True)
    save_part(vertical.model.parts["shop"], tmp_path / "part.json")
    at_home = plot.importances(load_part(tmp_path / "part.json"))
    assert (names(at_home), lengths(at_home)) == (names(ax), lengths(ax))


@pytest.mark.parametrize("party", ["telco", ""])
def test_nobody_elses_bars(vertical, whole, party):
    """A party that has no part, and a party of a model that is whole, are refused."""
    for model in (vertical, whole, vertical.model.parts["shop"]):
        with pytest.raises(InvalidParameter, match=f"party='{party}'"):
            plot.importances(model, party=party)


# --- learning curves -------------------------------------------------------------------------------------------------


def test_the_line_is_what_fit_has_watched(whole):
    """Of a model, and of its log alone."""
    for given in (whole, whole.evals_result_):
        line = plot.learning_curves(given).lines[0]
        (values,) = whole.evals_result_["valid"].values()
        np.testing.assert_array_equal(line.get_ydata(), values)
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(values) + 1))


def test_given_rows_after_each_round(whole, tmp_path):
    """The same line as that of watched rows, of a model that was read from a file."""
    whole.save_model(tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    line = plot.learning_curves(read, TABLE.slice(200), LABELS[200:]).lines[0]
    (values,) = whole.evals_result_["valid"].values()
    np.testing.assert_allclose(line.get_ydata(), values[: read.n_iter_], rtol=1e-12)


def test_rows_of_a_model_in_parts(vertical):
    """The last point is the loss of the whole model's predictions, the first one that of its first tree alone."""
    line = plot.learning_curves(vertical, X, LABELS).lines[0]
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
    second = vertical.model.predict_proba(X)[:, 1]
    loss = -np.mean(np.log(np.where(LABELS == "yes", second, 1 - second)))
    assert line.get_ydata()[-1] == pytest.approx(loss)
    assert line.get_ydata()[0] > loss
    assert len(line.get_xdata()) <= MOST_ROUNDS


def test_curves_that_nobody_has(whole, vertical):
    """Refused with the way out: models without a log, rows without labels, metrics that were not watched, a part."""
    with pytest.raises(InvalidInput, match=r"kept no learning curve.*plot.learning_curves\(model, X, y\)"):
        plot.learning_curves(vertical)
    with pytest.raises(InvalidParameter, match="X and y go together"):
        plot.learning_curves(whole, TABLE)
    with pytest.raises(InvalidParameter, match="metric='auc' was not watched; there are "):
        plot.learning_curves(whole, metric="auc")
    with pytest.raises(InvalidInput, match="predicts nothing alone"):
        plot.learning_curves(vertical.model.parts["shop"], X, LABELS)
    with pytest.raises(InvalidInput, match="this one is empty"):
        plot.learning_curves({})


def test_shared_leaves_have_no_curve():
    """Scores after each round would have to be opened."""
    model = shared_model()
    with pytest.raises(InvalidInput, match="a closed scoring opens the last ones only"):
        plot.learning_curves(model, X, LABELS)


# --- epsilon against AUC ---------------------------------------------------------------------------------------------


def test_points_are_means_with_bars_of_one_deviation():
    """Sorted by epsilon; an infinite one and references are horizontal lines."""
    points = {4.0: [0.8, 0.9, 0.85], 1: [0.6, 0.7], 2: 0.75, math.inf: [0.91]}
    ax = plot.epsilon_against_auc(points, reference={"not private": 0.95})
    line, _, bars = ax.containers[0]
    np.testing.assert_allclose(line.get_xydata(), [(1, 0.65), (2, 0.75), (4, 0.85)])
    half = [(high - low) / 2 for (_, low), (_, high) in bars[0].get_segments()]
    np.testing.assert_allclose(half, [np.std([0.6, 0.7], ddof=1), 0.0, np.std([0.8, 0.9, 0.85], ddof=1)], atol=1e-12)
    flat = {each.get_label(): each.get_ydata()[0] for each in ax.lines if len(set(each.get_ydata())) == 1}
    assert {"epsilon infinite: 0.910": 0.91, "not private: 0.950": 0.95}.items() <= flat.items()


def test_models_are_scored_and_grouped_by_their_own_epsilon():
    """Models of equal epsilon are repetitions; the epsilon and its unit are those of their statements."""
    models = [private(1.0), private(1.0), private(8.0)]
    ax = plot.epsilon_against_auc(models, SHOP, LABELS)
    found = [area_under_curve((LABELS == "yes").astype(float), model.predict_proba(SHOP)) for model in models]
    np.testing.assert_allclose(ax.containers[0][0].get_xydata(), [(1, np.mean(found[:2])), (8, found[2])])
    assert "one row, added or removed" in ax.get_xlabel()


def test_several_methods_and_runs(vertical):
    """A line each; a run brings its own epsilon, rows by party, and says what its epsilon is for."""
    ax = plot.epsilon_against_auc({"a": {1: 0.6, 2: 0.7}, "b": {1: 0.5, 2: 0.6}})
    assert [each.get_text() for each in ax.get_legend().get_texts()] == ["a", "b"]
    ax = plot.epsilon_against_auc([vertical], X, LABELS)
    assert ax.containers[0][0].get_xydata()[:, 0] == pytest.approx([50.0])
    assert "one label" in ax.get_xlabel()


def test_epsilons_of_different_things_do_not_share_an_axis(vertical):
    """One row and one label are not the same unit."""
    with pytest.raises(InvalidInput, match="protect different things"):
        plot.epsilon_against_auc({"central": [private(1.0)], "labels": [vertical]}, X, LABELS)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ({}, "points is empty"),
        ({0: 0.5}, "above 0, got 0"),
        ({"one": 0.5}, "above 0, got 'one'"),
        ({1: 1.5}, "between 0 and 1"),
        ({1: []}, "must have one AUC"),
        ({1: 0.5, "a": {1: 0.5}}, "not some of each"),
        ([], "models need rows"),
    ],
)
def test_points_that_mean_nothing(points, sentence):
    """Refused, with the value."""
    with pytest.raises(HedgerowError, match=sentence):
        plot.epsilon_against_auc(points)


def test_a_model_without_epsilon_is_a_reference(whole):
    """Which is what the refusal says."""
    with pytest.raises(InvalidInput, match=r"BoostedTreesClassifier has no epsilon.*reference"):
        plot.epsilon_against_auc([whole], TABLE, LABELS)


# --- trees -----------------------------------------------------------------------------------------------------------


def expected_texts(model, i):
    """Naively, node by node: the question, or what a leaf adds."""
    found, one = [], model.ensemble_.trees[i]
    for node in range(one.n_nodes):
        feature = model.ensemble_.features[one.feature[node]]
        missing = one.missing_left[node]
        if one.feature[node] < 0:
            found.append(f"{one.value[node]:+.3g}")
        elif feature.levels is None and math.isinf(one.threshold[node]):
            found.append(f"{feature.name} not missing")
        elif feature.levels is None:
            found.append(f"{feature.name} < {one.threshold[node]:.6g}" + "\nor missing" * int(missing))
        else:
            left = [level for k, level in enumerate(feature.levels) if one.left_levels[one.level_set[node]][k]]
            found.append(f"{feature.name} in\n{{{', '.join(left)}}}" + " or missing" * int(missing))
    return found


def test_texts_are_the_splits(whole):
    """Of every tree, in the order of its nodes, and a line for each child."""
    for i in range(len(whole.ensemble_.trees)):
        ax = plot.tree(whole, i)
        assert [text for text in texts(ax) if text != "yes is up, no is down"] == expected_texts(whole, i)
        assert len(ax.lines) == whole.ensemble_.trees[i].n_nodes - 1
    assert any(" in\n" in text for i in range(5) for text in expected_texts(whole, i))


def test_yes_is_up(whole):
    """The left child of a node is above the right one, and no two leaves are at one height."""
    one = whole.ensemble_.trees[0]
    heights = [text.get_position()[1] for text in plot.tree(whole, 0).texts][: one.n_nodes]
    inner = np.flatnonzero(~one.is_leaf)
    assert all(heights[one.left[node]] < heights[node] < heights[one.right[node]] for node in inner)  # y points down
    assert len({heights[node] for node in np.flatnonzero(one.is_leaf)}) == one.n_leaves


def test_deep_trees_do_not_overlap():
    """No two boxes of a tree of depth 6 touch, at the size of the figure that is made for it."""
    rng = np.random.default_rng(0)
    columns = {f"a_rather_long_name_{k}": rng.normal(size=2000) for k in range(4)}
    label = (sum(columns.values()) + rng.normal(size=2000) > 0).astype(int)
    model = BoostedTreesClassifier(max_iter=1, max_depth=6).fit(pa.table(columns), label)
    assert model.ensemble_.trees[0].depth == 6
    ax = plot.tree(model, 0)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent().padded(2) for text in ax.texts if text.get_bbox_patch()]
    assert len(boxes) == model.ensemble_.trees[0].n_nodes > 60
    touching = [(a, b) for k, a in enumerate(boxes) for b in boxes[:k] if a.overlaps(b)]
    assert touching == []


def test_splits_of_others_are_known_by_number(vertical):
    """The bank sees "split of shop" where it asks the shop, and no name or value of the shop's anywhere."""
    part = vertical.model.parts["bank"]
    found = []
    for i, one in enumerate(part.ensemble.trees):
        drawn = texts(plot.tree(vertical, i))
        for node, column in enumerate(one.feature.tolist()):
            if column >= part.n_own:
                assert drawn[node] == f"split of shop\n(question {column - part.n_own})"
                found.append(column)
            elif column >= 0:
                assert part.features[column].name in drawn[node]
        assert not any("basket" in text or "visits" in text for text in drawn)
    assert found


def test_a_feature_holder_has_no_tree(vertical):
    """By name, and with its part alone; the sentence says who has them."""
    for given, who in ((vertical, {"party": "shop"}), (vertical.model.parts["shop"], {})):
        with pytest.raises(InvalidInput, match=r"shop has questions .* trees are with bank"):
            plot.tree(given, 0, **who)


def shared_model():
    """Three parties; the bank's split is the root, the shop's is below it."""
    own = {"bank": (1, 0, 0, 0, 0), "shop": (0, 1, 0, 0, 0), "telco": (0, 0, 0, 0, 0)}
    return VerticalModel({party: shared_part(party, splits) for party, splits in own.items()})


def test_shared_leaves_have_no_values():
    """Each party sees its own split with its threshold, and that there are others, and nobody a leaf's value."""
    leaves = [f"leaf {k}, value shared" for k in range(3)]
    other = "split of another party"
    model = shared_model()
    assert texts(plot.tree(model, 0))[:5] == ["bank_column < 2.5", other, *leaves]
    assert texts(plot.tree(model, 0, party="shop"))[:5] == [other, "shop_column < 2.5", *leaves]
    assert texts(plot.tree(model.parts["telco"], 0))[:5] == [other, other, *leaves]
    assert names(plot.importances(model, party="shop")) == ["shop_column"]


@pytest.mark.parametrize("i", [-1, 1000, 1.0, True, "first"])
def test_trees_that_are_not_there(whole, i):
    """Refused, with the numbers there are."""
    with pytest.raises(InvalidParameter, match="i must be the number of a tree, 0 to"):
        plot.tree(whole, i)


# --- partial dependence ----------------------------------------------------------------------------------------------


def naive(model, table, name, value):
    """Overwrite the column in the table itself, and predict."""
    place = table.column_names.index(name)
    column = pa.array([value] * table.num_rows, table.schema.field(name).type)
    changed = table.set_column(place, name, column)
    return np.mean(model.predict_proba(changed) if hasattr(model, "classes_") else model.predict(changed), axis=0)


def stairs_at(ax, number, value):
    """The height of a staircase at a value."""
    drawn = ax.patches[number].get_data()
    return drawn.values[np.searchsorted(drawn.edges, value, side="right") - 1]


@pytest.mark.parametrize("name", ["income", "age"])
def test_dependence_is_that_of_overwritten_rows(whole, name):
    """At every value of the rows, and for a missing one, to the last bits."""
    ax = plot.partial_dependence(whole, TABLE, name)
    for value in sorted({v for v in TABLE[name].to_pylist() if not math.isnan(v)})[::7]:
        assert stairs_at(ax, 0, value) == pytest.approx(naive(whole, TABLE, name, value)[1], rel=1e-12)
    missing = [line.get_ydata()[0] for line in ax.lines if "missing" in line.get_label()]
    assert missing == ([] if name == "age" else pytest.approx([naive(whole, TABLE, name, math.nan)[1]]))


def test_dependence_on_levels(whole):
    """A dot for each level."""
    ax = plot.partial_dependence(whole, TABLE, "region")
    assert [each.get_text() for each in ax.get_xticklabels()] == list(REGIONS)
    expected = [naive(whole, TABLE, "region", level)[1] for level in REGIONS]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)


def test_dependence_of_numbers_classes_and_private_models():
    """A line for a number, one for each of three classes; a private model of two classes has one."""
    number = BoostedTreesRegressor(max_iter=5).fit(SHOP, SCORE)
    ax = plot.partial_dependence(number, SHOP, "basket")
    assert stairs_at(ax, 0, 0.5) == pytest.approx(naive(number, SHOP, "basket", 0.5))
    three = BoostedTreesClassifier(max_iter=3).fit(SHOP, np.digitize(SCORE, [-1, 1]))
    ax = plot.partial_dependence(three, SHOP, "visits")
    heights = [stairs_at(ax, k, 12.0) for k in range(3)]
    np.testing.assert_allclose(heights, naive(three, SHOP, "visits", 12.0))
    released = private(4.0)
    ax = plot.partial_dependence(released, SHOP, "basket")
    assert stairs_at(ax, 0, 0.5) == pytest.approx(naive(released, SHOP, "basket", 0.5)[1])


def test_dependence_of_a_model_in_parts(vertical):
    """On the label holder's own column, by scoring rows in which it is overwritten."""
    ax = plot.partial_dependence(vertical, X, "age")
    for value in (20.0, 50.0, 80.0):
        changed = {**X, "bank": X["bank"].set_column(1, "age", pa.array([value] * N))}
        expected = vertical.model.predict_proba(changed)[:, 1].mean()
        assert stairs_at(ax, 0, value) == pytest.approx(expected)


def test_other_columns_are_refused_with_the_reason(vertical, whole):
    """Another party's, one that is not there, a part alone, and rows that are not given by party."""
    with pytest.raises(
        InvalidInput, match=r"'basket' is shop's. bank learns the scores and cannot .*model.contributions"
    ):
        plot.partial_dependence(vertical, X, "basket")
    with pytest.raises(InvalidInput, match="no column 'height'; there are income, age, region"):
        plot.partial_dependence(whole, TABLE, "height")
    with pytest.raises(InvalidInput, match="predicts nothing alone"):
        plot.partial_dependence(vertical.model.parts["bank"], X["bank"], "age")
    with pytest.raises(InvalidInput, match="rows are given by party"):
        plot.partial_dependence(vertical, X["bank"], "age")


# --- all of them -----------------------------------------------------------------------------------------------------


def test_every_kind_of_model(whole, vertical, horizontal, tmp_path):
    """Importances and a tree of estimators, private ones, runs, and what was read from files."""
    vertical.save(tmp_path / "run")
    for model in (whole, private(2.0), horizontal, horizontal.model, vertical.model, Run.load(tmp_path / "run")):
        assert plot.importances(model).patches
        assert plot.tree(model, 0).texts


def test_nothing_global_moves(whole):
    """Neither settings nor the current figure; given Axes are drawn on and returned."""
    from matplotlib import pyplot as plt

    settings = dict(mpl.rcParams)
    before = plt.get_fignums()
    figure = Figure()
    mine = figure.subplots(2, 2).ravel()
    drawn = [
        plot.importances(whole, ax=mine[0]),
        plot.learning_curves(whole, ax=mine[1]),
        plot.tree(whole, 0, ax=mine[2]),
        plot.partial_dependence(whole, TABLE, "age", ax=mine[3]),
    ]
    assert all(a is b for a, b in zip(drawn, mine, strict=True))
    plot.epsilon_against_auc({1: 0.5})
    assert (dict(mpl.rcParams), plt.get_fignums()) == (settings, before)


def test_notebooks_show_the_picture(whole):
    """The Axes of a new figure are a PNG to a notebook, without a backend."""
    assert plot.importances(whole)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", [plot.importances, plot.learning_curves, plot.tree])
def test_what_is_no_fitted_model(draw):
    """Said so."""
    with pytest.raises(InvalidType, match="needs a fitted model"):
        draw(BoostedTreesClassifier())
    with pytest.raises(InvalidType, match="needs a model, a run or a part"):
        draw(3)


def test_without_matplotlib():
    """Importing the module loads none; drawing then says what to install, as an ImportError of ours."""
    program = (
        "import sys\nfrom hedgerow import plot\nfrom hedgerow.errors import HedgerowError\n"
        "assert 'matplotlib' not in sys.modules\nsys.modules['matplotlib'] = None\n"
        "try:\n    plot.epsilon_against_auc({1: 0.5})\n"
        "except ImportError as problem:\n    assert isinstance(problem, HedgerowError); print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "pip install 'hedgerow[plot]'" in done.stdout
