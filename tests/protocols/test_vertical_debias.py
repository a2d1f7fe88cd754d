"""Trees from shares of rows: equal to the naive twin, to the engine if nothing is randomised, true on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr import debias, soft_nodes
from hedgerow.protocols.vertical.bucket_rr.buckets import keep_probability
from hedgerow.protocols.vertical.bucket_rr.debias import DEEPEST, train_debiased
from twins.naive_shares import NaiveNode, NaiveShares, posterior

KINDS = ("exact number", "exact levels", "random number", "random levels", "random number", "random levels")


@dataclass(frozen=True)
class Case:
    """Codes, changed where they are randomised, and labels that depend on what they were."""

    mapper: BinMapper
    codes: Bytes
    y: Floats
    keep: Floats
    n_codes: Ints

    def train(self, params: BoostingParams, n_threads: int = 1) -> Ensemble:
        """By the kernels."""
        return train_debiased(
            params, self.mapper, self.codes, self.y, keep=self.keep, n_codes=self.n_codes, n_threads=n_threads
        )

    def train_naively(self, params: BoostingParams) -> list[list[NaiveNode]]:
        """By the twin."""
        features = debias.randomised_features(self.codes, self.keep, self.n_codes)
        doubt = np.where(features.place >= 0, np.append(features.doubt, 0.0)[features.place], 0.0)
        twin = NaiveShares(
            params, self.mapper, self.codes, self.y, keep=self.keep, n_codes=self.n_codes, doubt=doubt
        )  # fmt: skip
        return twin.train()


def randomised(codes: Ints, n_codes: int, epsilon: float, rng: np.random.Generator) -> Ints:
    """Randomised response with a plain generator."""
    others = rng.integers(0, n_codes - 1, len(codes))
    stays = rng.random(len(codes)) < keep_probability(n_codes, epsilon)
    return np.where(stays, codes, others + (others >= codes))


def labels_for(loss: str, driver: Floats, rng: np.random.Generator) -> Floats:
    """Labels of the kind that a loss wants."""
    noise = rng.normal(size=len(driver))
    if loss == "logistic":
        return (driver + noise > 0).astype(np.float64)
    if loss == "softmax":
        return np.digitize(driver + noise / 2, [-0.5, 0.5]).astype(np.float64)
    return rng.poisson(np.exp(driver / 2)).astype(np.float64) if loss == "poisson" else driver + noise


def make_case(
    seed: int, loss: str = "logistic", *, n_rows: int = 250, kinds: Sequence[str] = KINDS, epsilon: float = 2.0
) -> Case:
    """Columns of some kinds in any order, some with missing values."""
    rng = np.random.default_rng(seed)
    driver = rng.normal(size=n_rows)
    features: list[FeatureBins] = []
    codes, keep, n_codes = [], [], []
    for number, kind in enumerate(rng.permutation(list(kinds)).tolist()):
        n_bins, gaps = int(rng.integers(2, 9)), bool(rng.integers(2))
        true = np.clip(((driver + rng.normal(size=n_rows)) * n_bins / 4 + n_bins / 2).astype(int), 0, n_bins - 1)
        if kind.endswith("levels"):
            features.append(FeatureBins(f"x{number}", levels=tuple("abcdefgh"[:n_bins])))
            true = rng.permutation(n_bins)[true]
        else:
            features.append(FeatureBins(f"x{number}", edges=np.arange(1.0, n_bins)))
        true[gaps & (rng.random(n_rows) < 0.15)] = n_bins
        is_exact = kind.startswith("exact")
        n_codes.append(n_bins + 1 if is_exact else n_bins + gaps)
        keep.append(1.0 if is_exact else keep_probability(n_codes[-1], epsilon))
        codes.append(true if is_exact else randomised(true, n_codes[-1], epsilon, rng))
    y = labels_for(loss, driver, rng)
    return Case(BinMapper(tuple(features)), np.array(codes, np.uint8), y, np.array(keep), np.array(n_codes, np.int64))


def params_for(loss: str = "logistic", **changes: Any) -> BoostingParams:
    """Two small trees."""
    standard = BoostingParams(
        loss=loss, n_classes=3 if loss == "softmax" else 2, n_iterations=2, learning_rate=0.3, max_depth=3
    )
    return replace(standard, **changes)


def check_same(model: Ensemble, twins: list[list[NaiveNode]], precision: float = 1e-6) -> None:
    """The same questions, and values that differ by rounding."""
    assert len(model.trees) == len(twins)
    for tree, nodes in zip(model.trees, twins, strict=True):
        assert tree.feature.tolist() == [node.feature for node in nodes]
        assert tree.bin.tolist() == [node.bin for node in nodes]
        assert tree.missing_left.tolist() == [node.missing_left for node in nodes]
        assert tree.left.tolist() == [node.children[0] if node.children else -1 for node in nodes]
        for number in np.flatnonzero(tree.level_set >= 0):
            assert np.array_equal(tree.left_levels[tree.level_set[number]], nodes[number].left_codes)
        np.testing.assert_allclose(tree.value, [node.value for node in nodes], rtol=precision, atol=precision)
        np.testing.assert_allclose(tree.cover, [node.cover for node in nodes], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(tree.gain, [node.gain for node in nodes], rtol=1e-4, atol=1e-4)


def check_valid(model: Ensemble) -> None:
    """Trees are made without checks; here they are checked."""
    for tree in model.trees:
        arrays = {f.name: getattr(tree, f.name) for f in fields(Tree)}
        whole = Tree(**arrays)
        assert whole == tree
        assert all(getattr(whole, name).dtype == array.dtype for name, array in arrays.items())
        Ensemble(model.mapper, model.loss, model.base_scores).append(tree)
        assert np.isfinite(tree.value).all()
        assert (tree.cover >= 0).all()


def randomised_splits(case: Case, model: Ensemble) -> int:
    """How many splits ask about randomised columns."""
    return sum(int((case.keep[tree.feature[tree.feature >= 0]] < 1).sum()) for tree in model.trees)


# --- equal to the twin -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax", "poisson"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"l2": 0.0},
        {"l2": 0.0, "min_child_weight": 0.0, "max_depth": 2},
        {"min_child_weight": 8.0},
        {"min_gain": 3.0},
        {"max_leaves": 5, "max_depth": 4},
        {"colsample_bytree": 0.6, "seed": 5},
        {"colsample_bynode": 0.5, "seed": 6},
        {"base_score": 0.25, "gradient_bits": 12},
        {"missing_unseen": "right"},
    ],
    ids=str,
)
def test_trees_equal_those_of_the_naive_twin(loss: str, changes: dict[str, Any]) -> None:
    """Structure, level sets, directions of missing values; values, covers and gains to rounding."""
    case, params = make_case(len(str(changes)), loss), params_for(loss, **changes)
    model = case.train(params)
    check_same(model, case.train_naively(params), 1e-6 if params.l2 else 1e-5)
    check_valid(model)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    epsilon=st.sampled_from([0.3, 1.0, 3.0, 8.0]),
    n_rows=st.integers(20, 300),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=5),
)
def test_any_columns_give_the_twins_trees(seed: int, epsilon: float, n_rows: int, kinds: list[str]) -> None:
    """Any mixture of columns, few rows and many."""
    case = make_case(seed, n_rows=n_rows, kinds=kinds, epsilon=epsilon)
    check_same(case.train(params_for()), case.train_naively(params_for()))


def test_a_deep_tree_equals_the_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As deep as may be, where a row is in very many leaves; some of them hardly hold anything."""
    monkeypatch.setattr(debias, "DOUBT", 0.0)
    case = make_case(3, n_rows=120, kinds=("random number", "random levels", "random number", "exact number"))
    params = params_for(max_depth=DEEPEST, n_iterations=1, min_child_weight=1e-3, l2=0.1)
    model = case.train(params)
    assert model.trees[0].depth == DEEPEST
    assert model.trees[0].n_leaves > 40
    check_same(model, case.train_naively(params))


def test_codes_that_are_nearly_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 0.001 shares hardly differ between rows; trees are finite all the same, with and without l2."""
    monkeypatch.setattr(debias, "DOUBT", 0.0)
    case = make_case(4, epsilon=1e-3, kinds=("random number", "random levels", "exact number"))
    params = params_for()
    model = case.train(params)
    check_same(model, case.train_naively(params))
    assert randomised_splits(case, case.train(params_for(l2=0.0, min_child_weight=0.0)))
    check_valid(case.train(params_for(l2=0.0, min_child_weight=0.0)))


def test_columns_that_say_nothing() -> None:
    """Constant columns, a column of one code, one where all rows are in one bucket of many; then two codes alone."""
    rng = np.random.default_rng(5)
    n_rows = 200
    features = (
        FeatureBins("one code", edges=np.empty(0)),
        FeatureBins("constant", edges=np.arange(1.0, 4.0)),
        FeatureBins("one bucket", edges=np.arange(1.0, 16.0)),
        FeatureBins("two codes", edges=np.array([1.0])),
    )
    two = rng.integers(0, 2, n_rows)
    codes = np.zeros((4, n_rows), np.uint8)
    codes[1], codes[2], codes[3] = 2, 7, randomised(two, 2, 1.0, rng)
    keep = np.array([keep_probability(1, 1.0), 1.0, keep_probability(16, 1.0), keep_probability(2, 1.0)])
    y = ((two + rng.normal(size=n_rows) / 2) > 0.5).astype(np.float64)
    case = Case(BinMapper(features), codes, y, keep, np.array([1, 5, 16, 2]))
    model = case.train(params_for())
    check_valid(model)
    check_same(model, case.train_naively(params_for()))
    assert set(model.trees[0].feature.tolist()) <= {-1, 2, 3}
    assert model.trees[0].feature[0] == 3


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
def test_labels_that_are_all_alike(loss: str) -> None:
    """There is nothing to ask: one leaf that changes nothing."""
    case = replace(make_case(6), y=np.ones(250))
    model = case.train(params_for(loss))
    check_valid(model)
    assert [tree.n_nodes for tree in model.trees] == [1, 1]
    np.testing.assert_allclose(model.trees[0].value, 0.0, atol=1e-6)


def test_a_table_of_chances_is_bayes_rule() -> None:
    """sure(z) [x = z] + (1 - sure(z)) prior(x), restricted to allowed codes, is the posterior of the full table."""
    counts, keep = np.array([50, 10, 300, 5, 80]), keep_probability(5, 1.5)
    codes = np.repeat(np.arange(5), counts).astype(np.uint8)[None]
    features = debias.randomised_features(codes, np.array([keep]), np.array([5]))
    table = posterior(counts, keep)
    allowed, goes_left = np.zeros(256, np.bool_), np.zeros(256, np.uint8)
    allowed[[0, 2, 3]], goes_left[[0, 1, 3]] = True, 1
    found = np.empty(256)
    soft_nodes.share_of_code(features, 0, 0, allowed, goes_left, found)
    np.testing.assert_allclose(found[:5], table[:, [0, 3]].sum(axis=1) / table[:, [0, 2, 3]].sum(axis=1), rtol=1e-12)
    assert (features.prior[0, :5] >= debias.RAREST / 2).all()
    assert features.prior[0].sum() == pytest.approx(1.0)


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax", "poisson"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"l2": 0.0}, {"max_leaves": 6}, {"colsample_bytree": 0.5, "colsample_bynode": 0.7, "seed": 9}],
    ids=str,
)
def test_without_noise_the_trees_are_the_engines(loss: str, changes: dict[str, Any]) -> None:
    """Bit for bit: exact columns go through the engine's own kernels, and whole rows have the engine's sums."""
    case = make_case(11, loss, n_rows=3_000, kinds=("exact number", "exact levels") * 3)
    params = params_for(loss, n_iterations=4, max_depth=5, **changes)
    ours, theirs = case.train(params), train(params, case.mapper, case.codes, case.y).ensemble
    assert ours.trees == theirs.trees


def test_threads_change_nothing() -> None:
    """Bit for bit, with enough rows for several pieces, and work for threads."""
    case = make_case(12, n_rows=40_000, kinds=(*KINDS, *KINDS))
    params = params_for(n_iterations=3, max_depth=5)
    one, three = case.train(params), case.train(params, n_threads=3)
    assert randomised_splits(case, one) > 5
    assert one.trees == three.trees


def test_the_order_of_rows_is_rounding() -> None:
    """The same questions, and nearly the same values."""
    case = make_case(13, n_rows=20_000)
    order = np.random.default_rng(14).permutation(20_000)
    one, other = (
        case.train(params_for()),
        replace(case, codes=case.codes[:, order], y=case.y[order]).train(params_for()),
    )
    assert randomised_splits(case, one) > 2
    for tree, again in zip(one.trees, other.trees, strict=True):
        assert tree.feature.tolist() == again.feature.tolist()
        assert tree.bin.tolist() == again.bin.tolist()
        assert np.array_equal(tree.left_levels, again.left_levels)
        np.testing.assert_allclose(tree.value, again.value, rtol=1e-5, atol=1e-6)


def test_leaf_values_recover_the_true_effect() -> None:
    """At epsilon 1 and 16 buckets: right within its error in each of six draws and on the average, not ten times less.

    The error is that of least squares with the rows' shares, for labels whose noise contains what shares leave open.
    """
    n_rows, effect, epsilon = 40_000, 2.0, 1.0
    mapper, keep = BinMapper((FeatureBins("x", edges=np.arange(1.0, 16.0)),)), keep_probability(16, epsilon)
    params = params_for("squared", n_iterations=1, learning_rate=1.0, max_depth=1, l2=0.0)
    surprises, plain = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        true = rng.integers(0, 16, n_rows)
        y = effect * (true >= 8) + rng.normal(size=n_rows)
        codes = randomised(true, 16, epsilon, rng).astype(np.uint8)[None]
        case = Case(mapper, codes, y, np.array([keep]), np.array([16]))
        tree = case.train(params).trees[0]
        assert tree.bin[0] == 7
        share = posterior(np.bincount(codes[0], minlength=16), keep)[:, 8:].sum(axis=1)[codes[0]]
        error = np.sqrt((1 + effect**2 * np.mean(share * (1 - share))) / (n_rows * np.var(share)))
        surprises.append((tree.value[2] - tree.value[1] - effect) / error)
        value = train(params, mapper, codes, y).ensemble.trees[0].value
        plain.append(value[2] - value[1])
        assert error < effect / 10
    assert np.abs(surprises).max() < 3
    assert abs(np.mean(surprises)) < 3 / np.sqrt(6)
    assert np.abs(plain).max() < effect / 4


def test_values_that_training_never_saw_have_a_way() -> None:
    """Where nobody is missing, a missing value or an unknown level goes where most of the weight went."""
    rng = np.random.default_rng(15)
    true = rng.integers(0, 4, 4_000)
    y = (true == 3).astype(np.float64)
    for feature, rows in (
        (FeatureBins("x", edges=np.arange(1.0, 4.0)), np.array([[0.0], [3.0], [np.nan]])),
        (FeatureBins("x", levels=("a", "b", "c", "d")), np.array([["a"], ["d"], ["e"]], object)),
    ):
        codes = randomised(true, 4, 3.0, rng).astype(np.uint8)[None]
        case = Case(BinMapper((feature,)), codes, y, np.array([keep_probability(4, 3.0)]), np.array([4]))
        model = case.train(params_for(max_depth=1))
        light, heavy, unknown = (
            model.raw_scores(read_table(rows[k : k + 1], like=model.features))[0, 0] for k in (1, 0, 2)
        )
        assert unknown == heavy != light


def test_refused_parameters() -> None:
    """What shares do not know is named."""
    case = make_case(16)
    for changes in ({"max_depth": None}, {"max_depth": DEEPEST + 1}, {"min_samples_leaf": 3}):
        with pytest.raises(InvalidParameter, match=next(iter(changes))):
            case.train(params_for(**changes))
