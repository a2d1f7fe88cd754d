"""More than two classes: vectors of gradients whose length is bounded exactly, and models that tell classes apart."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_xgboost import xgboost_document
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.bad_rows import fit_labels
from hedgerow.protocols.central.gaussian import rows as rows_module
from hedgerow.protocols.central.gaussian.kernels import shorten
from hedgerow.protocols.central.gaussian.recipe import Recipe, Size
from hedgerow.protocols.central.gaussian.requests import (
    COUNT_UNIT,
    LARGEST_HESSIAN,
    UNIT,
    SumRequest,
    record_sensitivity_squared,
)
from hedgerow.protocols.central.gaussian.rows import PrivateRows, loss_of
from hedgerow.schema import Schema
from twins.local_fit import fit_locally

CELLS = (4, 3)
K = 4
IDENTITY = np.tile(np.arange(256, dtype=np.uint8), (2, 1))
BASES = np.array([-0.2, 0.4, 0.0, -1.0])


def random_rows(n, seed=0, **options):
    """Rows over two small columns, and their codes and labels."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, cells, n) for cells in CELLS]).astype(np.uint8)
    labels = rng.integers(0, K, n).astype(float)
    return PrivateRows(codes, labels, CELLS, "softmax", n_classes=K, **options), codes, labels


def ask(kind, number, clip=50_000, **fields):
    """A request with the true sensitivity and the right number of sums."""
    if kind == "histograms":
        n_sums = K * sum(CELLS)
    elif kind == "bin_sums":
        n_sums = 2 * K * CELLS[int(fields["features"][0])]
    else:
        n_sums = 2 * K << len(fields["features"])
    return SumRequest(number, kind, n_sums, record_sensitivity_squared(kind, "softmax", 2, clip), 0.0, clip, **fields)


def start(number=0, clip=50_000, bases=BASES):
    """The first request of training: bins are cells."""
    features = np.array([0], np.int32)
    return ask("bin_sums", number, clip, features=features, update="start", bins=IDENTITY, update_values=bases)


def slow_sums(positions, scores, labels, clip, n):
    """Gradients and hessians row by row, shortened as real vectors."""
    out = np.zeros((n, 2, K))
    for position, score, label in zip(positions, scores.T, labels, strict=True):
        weights = np.exp(score + BASES)
        p = weights / weights.sum()
        gradient = (np.arange(K) == label) - p
        out[position, 0] += gradient * min(1.0, clip / UNIT / np.linalg.norm(gradient)) * UNIT
        out[position, 1] += p * (1 - p) * UNIT
    return out.reshape(-1)


def test_the_longest_vector_of_hessians():
    """Sum (p (1 - p))^2 is at most 4/27 for any number of classes, and three equal ones reach it."""
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 4, 7, 20):
        p = rng.dirichlet(np.full(n_classes, 0.7), 20_000)
        assert ((p * (1 - p)) ** 2).sum(axis=1).max() <= 4 / 27
    thirds = np.full(3, 1 / 3)
    assert ((thirds * (1 - thirds)) ** 2).sum() == pytest.approx(4 / 27)
    assert LARGEST_HESSIAN["softmax"] ** 2 >= 4 / 27 * UNIT**2 > (LARGEST_HESSIAN["softmax"] - 1) ** 2


@pytest.mark.parametrize("longest", [1, 2, 1000, 50_000, 65_536])
def test_vectors_are_shortened_exactly(longest):
    """Never longer than allowed, and hardly shorter; the direction stays; short ones are left alone."""
    rng = np.random.default_rng(longest)
    for _ in range(200):
        vector = rng.integers(-UNIT, UNIT + 1, 7).astype(np.int32)
        short = vector.copy()
        shorten(short, longest)
        before, after = (int((v.astype(np.int64) ** 2).sum()) for v in (vector, short))
        assert after <= longest**2
        if before <= longest**2:
            assert short.tolist() == vector.tolist()
        elif longest >= 1000:
            assert after > (longest - 8) ** 2
            assert np.dot(short.astype(float), vector.astype(float)) > 0.999 * math.sqrt(float(before) * after)


def test_histograms_by_hand():
    """Every row is counted once per column, in its cell and class."""
    rows, codes, labels = random_rows(300)
    found = rows.answer(ask("histograms", 0))
    first, second = found[: K * CELLS[0]].reshape(-1, K), found[K * CELLS[0] :].reshape(-1, K)
    for own, part in ((codes[0], first), (codes[1], second)):
        for k in range(K):
            assert part[:, k].tolist() == (COUNT_UNIT * np.bincount(own[labels == k], minlength=len(part))).tolist()


def test_a_whole_conversation_equals_its_slow_twin():
    """Start, table, tables, leaves: each class has its own scores, and sums equal those of plain Python."""
    n, clip = 400, 50_000
    rows, codes, labels = random_rows(n)
    rng = np.random.default_rng(9)
    scores = np.zeros((K, n))

    def check(request, positions, size):
        found = rows.answer(request)
        assert np.abs(found - slow_sums(positions, scores, labels, clip, size)).max() <= 3 * n
        assert np.abs(found).sum() > 1000 * n

    check(start(), codes[0], 4)
    table = rng.normal(0, 0.5, (K, 256))
    scores += table[:, codes[1]]
    more = {"update": "table", "update_feature": 1, "update_values": table}
    check(ask("bin_sums", 1, features=np.array([1], np.int32), **more), codes[1], 3)
    tables = rng.normal(0, 0.7, (K, 2, 256))
    scores[:] = tables[:, 0][:, codes[0]] + tables[:, 1][:, codes[1]]
    features, bits = np.array([1, 0], np.int32), rng.integers(0, 2, (2, 256)).astype(np.uint8)
    leaves = 2 * bits[0][codes[1]] + bits[1][codes[0]]
    more = {"update": "tables", "update_values": tables}
    check(ask("leaf_sums", 2, features=features, goes_right=bits, **more), leaves, 4)
    values = rng.normal(0, 0.5, (K, 4))
    scores += values[:, leaves]
    more = {"update": "leaves", "update_values": values}
    check(ask("leaf_sums", 3, features=features, goes_right=bits, **more), leaves, 4)


def test_threads_do_not_change_sums(monkeypatch):
    """Sums are of whole numbers: any division of the rows gives the same, at any place in the kernel's blocks."""
    monkeypatch.setattr(rows_module, "ROWS_WORTH_A_THREAD", 10)
    one, several = random_rows(1001)[0], random_rows(1001, n_threads=3)[0]
    assert len(several._ranges) == 3
    for request in (ask("histograms", 0), start(1)):
        assert one.answer(request).tolist() == several.answer(request).tolist()


@settings(max_examples=60, deadline=None)
@given(
    codes=st.tuples(*(st.integers(0, cells - 1) for cells in CELLS)),
    label=st.integers(0, K - 1),
    table=st.lists(st.floats(-30, 30) | st.sampled_from([-1e6, 1e6, 0.0]), min_size=K, max_size=K),
    clip=st.integers(1, 2 * UNIT),
)
def test_one_record_moves_sums_by_no_more_than_stated(codes, label, table, clip):
    """Adding any record, at any scores, changes each answer by at most the sensitivity of its request, exactly."""
    base, base_codes, base_labels = random_rows(5)
    more = PrivateRows(
        np.concatenate([base_codes, np.array([codes], np.uint8).T], axis=1), np.append(base_labels, label), CELLS,
        "softmax", n_classes=K,
    )  # fmt: skip
    values = np.repeat(np.array(table)[:, np.newaxis], 256, axis=1)
    requests = [
        ask("histograms", 0),
        start(1, clip),
        ask("bin_sums", 2, clip, features=np.array([1], np.int32), update="table", update_feature=1,
            update_values=values),
    ]  # fmt: skip
    for request in requests:
        difference = (more.answer(request) - base.answer(request)).astype(object)
        assert int((difference**2).sum()) <= record_sensitivity_squared(request.kind, "softmax", 2, clip)


def test_stated_sensitivities_are_reached():
    """The bounds are not loose: a confident mistake reaches the clip, three equal classes the bound of hessians."""
    one = PrivateRows(np.zeros((2, 1), np.uint8), np.zeros(1), CELLS, "softmax", n_classes=K)
    sums = one.answer(start(1, clip=80_000, bases=np.array([-20.0, 20.0, -20.0, -20.0])))
    assert 79_999**2 < int((sums[:K] ** 2).sum()) <= 80_000**2
    sums = one.answer(start(2, bases=np.array([0.0, 0.0, 0.0, -60.0])))
    assert (LARGEST_HESSIAN["softmax"] - 3) ** 2 < int((sums[K : 2 * K] ** 2).sum()) <= LARGEST_HESSIAN["softmax"] ** 2
    assert (one.answer(ask("histograms", 3)) ** 2).sum() == record_sensitivity_squared("histograms", "softmax", 2, 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"update": "start", "bins": IDENTITY, "update_values": np.zeros(3)}, "update_values must be float64"),
        ({"update": "start", "bins": IDENTITY, "update_values": np.full(K, 1e9)}, "not within"),
        ({"update": "table", "update_feature": 0, "update_values": np.zeros(256)}, "update_values must be float64"),
        ({"update": "tables", "update_values": np.zeros((2, 256))}, "update_values must be float64"),
        ({"n_sums": 8}, "asks for 8 sums"),
        ({"kind": "squares", "n_sums": 1}, "a kind that there is not for the softmax loss"),
        ({"kind": "node_sums"}, "a kind that there is not for the softmax loss"),
        ({"sensitivity_squared": 50_000**2}, "claims a squared sensitivity"),
    ],
)
def test_a_wrong_request_is_refused(changes, sentence):
    """Arrays have one more axis; everything else is checked as for two classes."""
    rows = random_rows(20)[0]
    rows.answer(start())
    right = ask("bin_sums", 1, features=np.array([0], np.int32))
    with pytest.raises(ProtocolError, match=sentence):
        rows.answer(dataclasses.replace(right, **changes))
    rows.answer(right)


def test_a_sample_of_rows_is_for_one_output():
    """Samples of rows are not made for several outputs, nor for histograms."""
    rows = random_rows(20)[0]
    with pytest.raises(ProtocolError, match="a sample of rows is for gradient sums of one output"):
        rows.answer(start(), chosen=np.ones(20, np.uint8))


def test_only_those_who_ask_for_it_get_more_than_two_classes(many, tables):
    """Protocols that do not know of it keep refusing, with the same words, before a row is read."""
    schema, _ = many
    frame, labels = tables["softmax"][1](50)
    assert loss_of(schema, multiclass=True) == "softmax"
    for refused in (
        lambda: loss_of(schema),
        lambda: PrivateRows.read(frame, labels, schema),
        lambda: Recipe(schema, epsilon=1.0, delta=1e-6),
    ):
        with pytest.raises(InvalidParameter, match="for two classes, but the schema lists 4"):
            refused()
    with pytest.raises(InvalidParameter, match="at most 256 classes"):
        loss_of(Schema.from_public(bounds={"a": (0, 1)}, classes=list(range(257))), multiclass=True)


def test_labels_are_numbers_of_classes(many):
    """In the schema's order; others do not count, and codes that are none are refused."""
    schema, _ = many
    assert fit_labels(["none", "low", "high"], schema).values.tolist() == [3.0, 0.0, 2.0]
    assert not fit_labels(["none of these"], schema).counts.any()
    with pytest.raises(InvalidInput, match=r"labels must lie between 0\.0 and 3\.0"):
        PrivateRows(np.zeros((1, 1), np.uint8), np.array([4.0]), (1,), "softmax", n_classes=4)
    with pytest.raises(InvalidInput, match="2 to 256 classes, got 1"):
        PrivateRows(np.zeros((1, 1), np.uint8), np.array([0.0]), (1,), "softmax", n_classes=1)


# --- the recipe ----------------------------------------------------------------------------------------------------


def test_the_size_of_a_task_of_two_classes_is_the_same():
    """Counted by shares, two classes give what they give as positives; the clip is longer, as the vector is."""
    two = Size.of_task("logistic", 20_000, 0.3, 0.5)
    same = Size.of_task("softmax", 20_000, np.array([0.3, 0.7]), 0.5)
    assert (same.depth, same.n_trees) == (two.depth, two.n_trees)
    assert same.clips[0] == pytest.approx(math.sqrt(2) * two.clips[0])


def test_noise_that_no_row_can_make_is_taken_out(many):
    """Gradients of all classes sum to 0 in every bin; noise in that direction is removed, the rest left alone."""
    schema, _ = many
    recipe = Recipe(schema, epsilon=1.0, delta=1e-6, multiclass=True)
    sums = np.random.default_rng(0).integers(-(10**6), 10**6, 8 * 5)
    gradients, hessians = recipe.gradients(sums)
    parts = sums.reshape(5, 2, 4) / UNIT
    np.testing.assert_allclose(gradients.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.diff(gradients, axis=0), np.diff(parts[:, 0].T, axis=0))
    np.testing.assert_allclose(hessians, 4 / 3 * parts[:, 1].T)


def test_the_budget_is_kept_and_used(many):
    """All events together cost what was asked for, up to a millionth."""
    schema, rows_of = many
    fit = fit_locally([rows_of(300)], schema, epsilon=1.5, delta=1e-6, random=np.random.default_rng(0), multiclass=True)
    accountant = GaussianDP()
    accountant.compose_all(fit.events)
    assert 1.5 * (1 - 1e-6) < accountant.epsilon(1e-6) == fit.epsilon <= 1.5
    assert len(fit.events) == 1 + 10 * 5 + fit.model.meta["n_trees"] + 1
    assert fit.model.n_iterations == 5 + fit.model.meta["n_trees"]


def test_the_model_follows_from_released_sums_and_training_scores_from_the_model(many):
    """Answers alone give the model again; rows' scores are what the model predicts for them."""
    schema, rows_of = many
    rows, asked, answers = rows_of(400), [], []

    def release(request):
        asked.append(request)
        answers.append(
            discrete_gaussian(
                rows.answer(request), sensitivity=request.sensitivity, sigma=request.sigma,
                random=np.random.default_rng(len(asked)),
            )
        )  # fmt: skip
        return answers[-1]

    model = Recipe(schema, epsilon=3.0, delta=1e-5, seed=7, multiclass=True).run(release)
    replayed = iter(answers)
    again = Recipe(schema, epsilon=3.0, delta=1e-5, seed=7, multiclass=True).run(lambda _: next(replayed))
    assert again.to_dict() == model.to_dict()
    (first,) = [request for request in asked if request.update == "start"]
    codes = np.stack([bins[own] for bins, own in zip(first.bins, rows._codes, strict=True)])
    predicted = model.raw_scores_binned(codes) - model.base_scores
    np.testing.assert_allclose(rows._scores.T, predicted, atol=2e-4)


def test_classes_are_told_apart(many, tables, tmp_path):
    """Far better than the largest class; a class that nobody has is not predicted; files and export work."""
    schema, rows_of = many
    frame, labels = tables["softmax"][1](3000, seed=5)
    largest = max(np.mean(labels == name) for name in schema.classes)
    for epsilon, floor in ((4.0, 0.68), (math.inf, 0.72)):
        fit = fit_locally(
            [rows_of(5000)], schema, epsilon=epsilon, delta=1e-6, random=np.random.default_rng(1), multiclass=True
        )
        raw = fit.model.raw_scores(read_table(frame, like=fit.model.features))
        found = np.array(schema.classes)[raw.argmax(axis=1)]
        assert np.mean(found == labels) > floor > largest + 0.2
        assert "none" not in found
    fit.model.save(tmp_path / "model.json")
    again = Ensemble.load(tmp_path / "model.json")
    assert again.raw_scores(read_table(frame, like=again.features)).tolist() == raw.tolist()
    assert len(xgboost_document(fit.model)) > 0


def test_several_owners_are_one(many):
    """Without noise, rows divided among owners give the model of all rows together, bit for bit."""
    schema, rows_of = many
    whole = rows_of(500)
    parts = [
        PrivateRows(whole._codes[:, a:b], whole._labels[a:b], whole.cells, "softmax", n_classes=4)
        for a, b in ((0, 100), (100, 500))
    ]
    one, two = (
        fit_locally(owners, schema, epsilon=math.inf, delta=1e-6, random=np.random.default_rng(0), multiclass=True)
        for owners in ([whole], parts)
    )
    assert one.model.to_dict() == two.model.to_dict()
