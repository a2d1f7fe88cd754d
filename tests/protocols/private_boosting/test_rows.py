"""One owner's rows: sums equal a slow twin, a record moves them no further than stated, wrong requests are refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.central.gaussian import rows as rows_module
from hedgerow.protocols.central.gaussian.kernels import find_leaves
from hedgerow.protocols.central.gaussian.requests import COUNT_UNIT, UNIT, SumRequest, record_sensitivity_squared
from hedgerow.protocols.central.gaussian.rows import PrivateRows, loss_of
from hedgerow.schema import Schema

CELLS = (4, 3, 6)
IDENTITY = np.tile(np.arange(256, dtype=np.uint8), (3, 1))


def random_rows(n, loss, seed=0, **options):
    """Rows over three small columns, and their codes and labels."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, cells, n) for cells in CELLS]).astype(np.uint8)
    labels = rng.integers(0, 2, n).astype(float) if loss == "logistic" else rng.uniform(-0.5, 0.5, n)
    return PrivateRows(codes, labels, CELLS, loss, **options), codes, labels


def ask(kind, loss, number=0, clip=40_000, **fields):
    """A request with the true sensitivity and the right number of sums."""
    n_sums = {"histograms": 2 * sum(CELLS), "squares": 1}.get(kind)
    if kind == "bin_sums":
        n_sums = 2 * CELLS[int(fields["features"][0])]
    elif kind == "leaf_sums":
        n_sums = 2 << len(fields["features"])
    return SumRequest(number, kind, n_sums, record_sensitivity_squared(kind, loss, 3, clip), 0.0, clip, **fields)


def start(loss, number=0, feature=0, **fields):
    """The first request of training: bins are cells."""
    options = {"bins": IDENTITY, "base_score": -0.7, "centre": 0.1, "spread": 0.3} | fields
    return ask("bin_sums", loss, number, features=np.array([feature], np.int32), update="start", **options)


@pytest.mark.parametrize(
    "right",
    [[], range(256), [0], [255], range(40, 200), range(41), range(17, 256), [*range(9), *range(200, 256)],
     range(1, 256), range(255), [3, 5], range(0, 256, 2)],
)  # fmt: skip
def test_leaves_are_looked_up_or_compared(right):
    """Codes that go right in one run, around the end, in several runs, all or none: the leaf is that of the table."""
    codes = np.tile(np.arange(256, dtype=np.uint8), (2, 3))
    bits = np.zeros((3, 256), np.uint8)
    bits[[0, 2], np.array(right, int)[:, np.newaxis]] = 1
    bits[1] = np.random.default_rng(0).integers(0, 2, 256)
    leaves = np.full(768, 99, np.uint8)
    find_leaves(codes, np.array([0, 1, 0], np.int32), bits, 5, 700, leaves)
    wanted = 4 * bits[0][codes[0]] + 2 * bits[1][codes[1]] + bits[2][codes[0]]
    assert leaves[5:700].tolist() == wanted[5:700].tolist()
    assert set(leaves[:5]) == set(leaves[700:]) == {99}


def slow_sums(positions, scores, labels, loss, clip, n):
    """Rounded and clipped gradients and hessians, row by row."""
    out = np.zeros(2 * n, np.int64)
    for position, score, label in zip(positions, scores, labels, strict=True):
        if loss == "logistic":
            p = 1 / (1 + math.exp(-(score - 0.7)))
            gradient, hessian = (label - p) * UNIT, p * (1 - p) * UNIT
        else:
            gradient, hessian = ((label - 0.1) / 0.3 - score) * UNIT, UNIT / 2
        out[2 * position] += min(max(round(gradient), -clip), clip)
        out[2 * position + 1] += round(hessian)
    return out


both_losses = pytest.mark.parametrize("loss", ["logistic", "squared"])


@both_losses
def test_histograms_by_hand(loss):
    """Every row is counted once per column, in its cell, as its label says."""
    rows, codes, labels = random_rows(300, loss)
    found = np.split(rows.answer(ask("histograms", loss)), 2 * np.cumsum(CELLS)[:-1])
    for own, cells, part in zip(codes, CELLS, found, strict=True):
        first = labels * COUNT_UNIT if loss == "logistic" else np.rint(labels * UNIT)
        second = (1 - labels) * COUNT_UNIT if loss == "logistic" else np.full(300, UNIT // 2)
        assert part[0::2].tolist() == np.bincount(own, first, cells).tolist()
        assert part[1::2].tolist() == np.bincount(own, second, cells).tolist()


def test_squares_by_hand():
    """The sum of squared labels in fixed point."""
    rows, _, labels = random_rows(50, "squared")
    assert rows.answer(ask("squares", "squared")).tolist() == [sum(round(z * z * UNIT) for z in labels)]


@both_losses
def test_a_whole_conversation_equals_its_slow_twin(loss):
    """Start, table, tables, leaves: scores follow the updates, sums equal those of plain Python up to last digits."""
    n = 500
    rows, codes, labels = random_rows(n, loss)
    rng = np.random.default_rng(9)
    scores, clip = np.zeros(n), 40_000
    tolerance = 3 * n  # float32 scores may round a row's gradient to the next whole number

    def check(request, positions, size):
        found = rows.answer(request)
        assert found.dtype == np.int64
        assert np.abs(found - slow_sums(positions, scores, labels, loss, clip, size)).max() <= tolerance
        assert found[1::2].sum() > 100 * tolerance

    check(start(loss, 0, 1), codes[1], 3)
    table = rng.normal(0, 0.5, 256)
    scores += table[codes[1]]
    check(
        ask("bin_sums", loss, 1, features=np.array([2], np.int32), update="table", update_feature=1,
            update_values=table), codes[2], 6,
    )  # fmt: skip
    tables = rng.normal(0, 0.5, (3, 256))
    scores[:] = sum(tables[j][codes[j]] for j in range(3))
    features, bits = np.array([2, 0], np.int32), rng.integers(0, 2, (2, 256)).astype(np.uint8)
    leaves = 2 * bits[0][codes[2]] + bits[1][codes[0]]
    check(
        ask("leaf_sums", loss, 2, features=features, goes_right=bits, update="tables", update_values=tables), leaves, 4
    )
    values = rng.normal(0, 0.5, 4)
    scores += values[leaves]
    bits = bits[::-1].copy()
    leaves = 2 * bits[0][codes[2]] + bits[1][codes[0]]
    request = ask("leaf_sums", loss, 3, features=features, goes_right=bits, update="leaves", update_values=values)
    check(request, leaves, 4)


@both_losses
@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_sums(loss, n_threads, monkeypatch):
    """Sums are of whole numbers: any division of the rows gives the same."""
    monkeypatch.setattr(rows_module, "ROWS_WORTH_A_THREAD", 10)
    one, several = random_rows(101, loss)[0], random_rows(101, loss, n_threads=n_threads)[0]
    assert len(several._ranges) == n_threads
    tables = np.random.default_rng(1).normal(0, 1, (3, 256))
    bits = np.random.default_rng(2).integers(0, 2, (3, 256)).astype(np.uint8)
    for request in (
        ask("histograms", loss, 0),
        start(loss, 1),
        ask("leaf_sums", loss, 2, features=np.array([0, 1, 2], np.int32), goes_right=bits, update="tables",
            update_values=tables),
    ):  # fmt: skip
        assert one.answer(request).tolist() == several.answer(request).tolist()


@both_losses
@settings(max_examples=40, deadline=None)
@given(
    codes=st.tuples(*(st.integers(0, cells - 1) for cells in CELLS)),
    label=st.floats(0, 1),
    table=st.floats(-50, 50) | st.sampled_from([-1e6, 1e6]),
    clip=st.integers(1, 2 * UNIT),
)
def test_one_record_moves_sums_by_no_more_than_stated(loss, codes, label, table, clip):
    """Adding any record, at any score, changes each answer by at most the sensitivity of its request, exactly."""
    label = float(label > 0.5) if loss == "logistic" else label - 0.5
    base, base_codes, base_labels = random_rows(5, loss)
    more = PrivateRows(
        np.concatenate([base_codes, np.array([codes], np.uint8).T], axis=1), np.append(base_labels, label), CELLS, loss
    )
    bits = np.random.default_rng(3).integers(0, 2, (2, 256)).astype(np.uint8)
    requests = [
        ask("histograms", loss, 0),
        *([ask("squares", loss, 1)] if loss == "squared" else []),
        dataclasses.replace(start(loss, 2), clip=clip, sensitivity_squared=2**60),
        ask("leaf_sums", loss, 3, clip, features=np.array([0, 2], np.int32), goes_right=bits, update="table",
            update_feature=1, update_values=np.full(256, table)),
    ]  # fmt: skip
    for request in requests:
        moved = int(((more.answer(request) - base.answer(request)).astype(object) ** 2).sum())
        assert moved <= record_sensitivity_squared(request.kind, loss, 3, clip)


def test_stated_sensitivities_are_reached():
    """The bounds are not loose: for each kind some record moves the answer by (almost) that much."""
    empty = PrivateRows(np.zeros((3, 0), np.uint8), np.zeros(0), CELLS, "logistic")
    one = PrivateRows(np.zeros((3, 1), np.uint8), np.ones(1), CELLS, "logistic")
    assert empty.answer(ask("histograms", "logistic")).tolist() == [0] * 26
    assert (one.answer(ask("histograms", "logistic")) ** 2).sum() == record_sensitivity_squared(
        "histograms", "logistic", 3, 0
    )
    moved = (one.answer(start("logistic", 1, base_score=0.0)) ** 2).sum()
    assert moved == (UNIT // 2) ** 2 + (UNIT // 4) ** 2  # p = 1/2: the hessian at its bound
    moved = one.answer(start("logistic", 2, base_score=-20.0))
    assert moved[0] == 40_000  # the gradient at its clip


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"number": 0}, "request 0 came after request 0"),
        ({"sensitivity_squared": 5}, "claims a squared sensitivity of 5, but one record can move its answer by"),
        ({"kind": "rows"}, "a kind that there is not for the logistic loss: 'rows'"),
        ({"kind": "squares", "n_sums": 1}, "a kind that there is not for the logistic loss: 'squares'"),
        ({"update": "more"}, "unknown update, 'more'"),
        ({"n_sums": 10}, "asks for 10 sums"),
        ({"clip": 0}, "a clip of 0"),
        ({"features": np.array([3], np.int32)}, "columns that do not exist"),
        ({"features": np.array([-1], np.int32)}, "columns that do not exist"),
        ({"features": np.array([0, 1], np.int32)}, "asks for"),
        ({"update": "table", "update_feature": 0, "update_values": np.zeros(3)}, "update_values must be float64"),
        ({"update": "table", "update_feature": 7, "update_values": np.zeros(256)}, "updates column 7"),
        ({"update": "table", "update_feature": 0, "update_values": np.full(256, np.nan)}, "not within"),
        ({"update": "tables", "update_values": np.full((3, 256), 1e9)}, "not within"),
        ({"update": "leaves", "update_values": np.zeros(4)}, "leaves before there was a tree"),
        ({"update": "start", "bins": IDENTITY[:2]}, "bins must be uint8"),
        ({"update": "start", "bins": IDENTITY, "base_score": math.inf}, "not finite"),
        ({"update": "start", "bins": IDENTITY, "spread": 0.0}, "not finite"),
        ({"kind": "leaf_sums", "n_sums": 4, "goes_right": np.full((1, 256), 2, np.uint8)}, "goes_right"),
        ({"kind": "leaf_sums", "n_sums": 4, "goes_right": np.zeros((2, 256), np.uint8)}, "goes_right must be"),
    ],
)
def test_a_wrong_request_is_refused(changes, sentence):
    """Kernels do not look where they read, and the guarantee rests on stated sensitivities: so requests are checked."""
    rows = random_rows(20, "logistic")[0]
    rows.answer(start("logistic"))
    right = ask("bin_sums", "logistic", 1, features=np.array([0], np.int32))
    with pytest.raises(ProtocolError, match=sentence):
        rows.answer(dataclasses.replace(right, **changes))
    rows.answer(right)


def test_nothing_before_the_start():
    """Gradient sums and updates need bins first."""
    rows = random_rows(20, "logistic")[0]
    right = ask("bin_sums", "logistic", 1, features=np.array([0], np.int32))
    with pytest.raises(ProtocolError, match="before the start of training"):
        rows.answer(right)
    table = {"update": "table", "update_feature": 0, "update_values": np.zeros(256)}
    with pytest.raises(ProtocolError, match="updates scores before the start"):
        rows.answer(dataclasses.replace(right, **table))


# --- reading -------------------------------------------------------------------------------------------------------


def test_reading_follows_the_schema(task):
    """Every row is in a cell of each column, whatever the loss."""
    schema, rows_of = task
    rows = rows_of(50)
    assert rows.loss == loss_of(schema)
    assert rows.n_rows == 50
    n_sums = 2 * sum(rows.cells)
    request = SumRequest(0, "histograms", n_sums, 2**60, 0.0)
    unit = COUNT_UNIT if rows.loss == "logistic" else UNIT // 2
    counted = rows.answer(request)
    total = counted.sum() if rows.loss == "logistic" else counted[1::2].sum()
    assert total == 50 * len(schema.columns) * unit


SCHEMA = Schema.from_public(bounds={"a": (0, 10)}, levels={"b": ["x", "y"]}, classes=[0, 1])


@pytest.mark.parametrize(
    ("a", "b", "y", "sentence"),
    [
        ([1.0, np.nan], ["x", "y"], [0, 1], "clinic: column 'a' has missing values or levels"),
        ([1.0, 2.0], ["x", "z"], [0, 1], "clinic: column 'b' has missing values or levels"),
        ([1.0, 2.0], ["x", "y"], [0, 2], "clinic: a label is not one of the schema's classes"),
        ([1.0, 2.0], ["x", "y"], [0], "clinic: rows and labels are not equally many"),
        ([1.0, 2.0], ["x", "y"], [[0], [1]], "clinic: labels must be one per row"),
    ],
)
def test_data_that_contradict_the_schema_are_refused(a, b, y, sentence):
    """Where rows are public, the owner and the column are named, before anything is released."""
    pd = pytest.importorskip("pandas")
    with pytest.raises(InvalidInput, match=sentence):
        PrivateRows.read(pd.DataFrame({"a": a, "b": b}), y, SCHEMA, where="clinic", on_bad_rows="raise")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [({}, "either classes"), ({"classes": [0, 1], "label_bounds": (0, 1)}, "either classes"),
     ({"classes": [0, 1, 2]}, "two classes, but the schema lists 3")],
)  # fmt: skip
def test_a_schema_without_a_task_is_refused(labels, sentence):
    """Either two classes or label bounds."""
    with pytest.raises(InvalidParameter, match=sentence):
        loss_of(Schema.from_public(bounds={"a": (0, 1)}, **labels))


def test_impossible_rows_are_refused():
    """Codes beyond the cells, labels beyond their range, and lengths that differ."""
    codes = np.zeros((1, 2), np.uint8)
    with pytest.raises(InvalidInput, match="codes beyond its 3 cells"):
        PrivateRows(codes + np.uint8(3), np.zeros(2), (3,), "logistic")
    with pytest.raises(InvalidInput, match="labels must lie between"):
        PrivateRows(codes, np.array([0.0, np.nan]), (3,), "logistic")
    with pytest.raises(InvalidInput, match="do not match"):
        PrivateRows(codes, np.zeros(3), (3,), "logistic")
