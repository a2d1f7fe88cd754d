"""No row of an owner makes a private training of several owners fail, or tells anything that was not paid for.

The same for rows that a federation reads before any protocol has begun, also those of holders of columns.
"""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Federation, Schema
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter
from hedgerow.federation.federation import Brought, Declared
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.bad_rows import MISFITS_FACT
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import COUNT_UNIT, SumRequest, record_sensitivity_squared
from hedgerow.protocols.central.gaussian.training import MISFITS_SHARE
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import NoisySum, SumWanted
from hedgerow.protocols.horizontal.secure_sum.private import PrivateOwner
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.runtime.party_process import _read_data, describe, rows_file
from hedgerow.runtime.protocol import agreed
from hedgerow.testing.transcripts import play
from hedgerow.transport.transcripts import Recording

NAME = "horizontal.secure_sum"
COLUMNS = {
    "bounds": {"age": (0, 120), "share": (0.0, 1.0)},
    "levels": {"place": ["town", "country"]},
    "integers": ["age"],
    "may_be_missing": ["share"],
}
SCHEMAS = {
    "classification": Schema.from_public(**COLUMNS, classes=["no", "yes"]),
    "regression": Schema.from_public(**COLUMNS, label_bounds=(0.0, 10.0)),
}
TASKS = list(SCHEMAS)
NO_NOISE = (math.inf, 1e-6)


def people(task="classification", n=30):
    """Rows that fit the schema, as Python objects, the label last."""
    rng = np.random.default_rng(1)
    labels = rng.uniform(0, 10, n) if task == "regression" else rng.choice(["no", "yes"], n)
    cells = [rng.integers(0, 121, n), rng.uniform(size=n), rng.choice(["town", "country"], n), labels]
    return [list(row) for row in zip(*(column.tolist() for column in cells), strict=True)]


def table(rows):
    """Rows as a data frame of objects, and their labels."""
    frame = pd.DataFrame([row[:3] for row in rows], columns=["age", "share", "place"], dtype=object)
    labels = np.empty(len(rows), object)
    labels[:] = [row[3] for row in rows]
    return frame, labels


def fit(rows, task="classification", dp=NO_NOISE, **how):
    """Ash has these rows; elm and oak have others, that fit."""
    clean = people(task, 60)
    data = {"ash": table(rows), "elm": table(clean[30:45]), "oak": table(clean[45:])}
    fed = Federation.horizontal(data, task=task)
    return fed.fit(NAME, dp=dp, schema=SCHEMAS[task], random_state=0, **how)


def brought(rows, task="classification", name="ash"):
    """What an owner of these rows hands to its role."""
    return Brought(name, *table(rows), task=task, categorical_features="from_dtype").as_rows(SCHEMAS[task])


def trees(rows, task):
    """The model of rows, without noise, and how many did not fit."""
    run = fit(rows, task)
    model = run.model.ensemble_
    return model.to_dict()["trees"], model.base_scores.tolist(), run.statement().facts[MISFITS_FACT]


# --- what becomes of a row -------------------------------------------------------------------------------------------

DIRTY = {
    "an age that is none": (0, "unknown", 60),
    "no age": (0, None, 60),
    "an age beyond all": (0, 10**400, 120),
    "an infinite age": (0, -math.inf, 0),
    "a share that is none": (1, "?", None),
    "a list for a share": (1, [1], None),
    "a place that is not listed": (2, "moon", "town"),
    "a number for a place": (2, 17.5, "town"),
    "no place": (2, math.nan, "town"),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_row_that_does_not_fit_is_a_row_with_the_default(task):
    """Bit for bit, without noise; and it is counted."""
    clean, found = people(task), {}
    for place, dirty, default in DIRTY.values():
        for value in (dirty, default):
            key = place, str(value)
            if key not in found:
                found[key] = trees([[*clean[0][:place], value, *clean[0][place + 1 :]], *clean[1:]], task)
        first, second = found[place, str(dirty)], found[place, str(default)]
        assert first[:2] == second[:2]
        assert (first[2], second[2]) == (1, 0)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("label", [None, math.nan, "perhaps", [1]], ids=["none", "nan", "unlisted", "list"])
def test_a_row_with_an_unknown_label_is_a_row_that_is_not_there(task, label):
    """Bit for bit, without noise; of the counts only that of misfits moves."""
    clean = people(task)
    first, second = trees(clean, task), trees([*clean, *([30, 0.5, "town", label] for _ in range(3))], task)
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == (0, 3)


@pytest.mark.parametrize(("label", "nearest"), [(math.inf, 10.0), (-1e300, 0.0), (10**400, 10.0), ("12", 10.0)])
def test_a_label_beyond_its_bounds_is_the_nearest(label, nearest):
    """As with one owner of all rows."""
    clean = people("regression")
    first, second = (trees([[*clean[0][:3], own], *clean[1:]], "regression") for own in (label, nearest))
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == (1, 0)


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=1),
    st.dictionaries(st.integers(), st.integers(), max_size=1), st.binary(max_size=2), st.complex_numbers(),
    st.sampled_from(["town", "yes", "no", 30, "30", 0.5, math.inf, 10**400, pd.NA, pd.NaT, pd.Timestamp(0)]),
)  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=6, deadline=None)
@given(rows=st.lists(st.lists(CELLS, min_size=4, max_size=4), max_size=5), n_clean=st.integers(0, 8))
def test_training_is_total(task, rows, n_clean):
    """Whatever rows an owner has, also none, all come to the end, and nobody stops with a code."""
    run = fit(people(task)[:n_clean] + rows, task, dp=(1.0, 1e-5))
    stopped = [line for ledger in run.ledgers.values() for line in ledger if line.message == "runtime.abort"]
    assert stopped == []
    assert run.statement().stamp is None


@pytest.mark.parametrize(
    "labels", [[0, 1, [1]] * 10, [0, 1, "?"] * 10, [0.0, 1.0, None] * 10], ids=["list", "text", "none"]
)
def test_one_odd_label_in_a_list_does_not_change_the_others(labels):
    """A list becomes text, or objects, because of one label; the others are still what they were."""
    X, schema = [[float(n)] for n in range(30)], Schema.from_public(bounds={"x0": (0.0, 30.0)}, classes=[0, 1])
    kept = [n for n in range(30) if n % 3 < 2]
    found = []
    for own, y in ((X, labels), ([X[n] for n in kept], [labels[n] for n in kept])):
        data = {"ash": (own, y), "elm": (X, [0, 1] * 15), "oak": (X, [1, 0] * 15)}
        run = Federation.horizontal(data).fit(NAME, dp=NO_NOISE, schema=schema, random_state=0)
        found.append((run.model.ensemble_.to_dict()["trees"], run.statement().facts[MISFITS_FACT]))
    assert found[0][0] == found[1][0]
    assert [n for _, n in found] == [10, 0]


# --- what it tells ---------------------------------------------------------------------------------------------------


def owner_of(rows, task):
    """The owner's side of a private training, on these rows."""
    schema = SCHEMAS[task]
    job = Job(owners=("ash", "elm", "oak"), run_id="r", task=task, dp=NO_NOISE, schema=schema)
    return rows_of(job, brought(rows, task))


def rows_of(job, data):
    """Ash's rows as its role has read them."""
    return PrivateOwner(SimpleNamespace(name="ash"), data, job)._rows


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=40, deadline=None)
@given(row=st.lists(CELLS, min_size=4, max_size=4))
def test_no_row_moves_a_sum_farther_than_stated(task, row):
    """Neighbours, from the table as it was given to the owner's sums: whatever one row more holds."""
    clean, schema = people(task, 5), SCHEMAS[task]
    kinds = {"misfits": 1, "histograms": 2 * sum(cells_of(schema, grid_of(schema)))}
    answers = []
    for rows in (clean, [*clean, row]):
        own = owner_of(rows, task)
        allowed = {kind: record_sensitivity_squared(kind, own.loss, 3, 0) for kind in kinds}
        requests = [SumRequest(n, kind, kinds[kind], allowed[kind], 0.0) for n, kind in enumerate(kinds)]
        answers.append([own.answer(request) for request in requests])
    for before, after, most in zip(*answers, allowed.values(), strict=True):
        assert int(((after - before) ** 2).sum()) <= most


def test_the_number_of_misfits_is_told_with_noise_and_paid_for():
    """One more sum, before all others, under masks; its event is in every ledger, its share is what is stated."""
    odd = [["?", None, "moon", None]] * 5
    clean = people(n=60)
    schema, data = SCHEMAS["classification"], {}
    for name, rows in {"ash": [*clean[:20], *odd], "elm": clean[20:40], "oak": clean[40:]}.items():
        data[name] = brought(rows, name=name)
    job = Job(owners=tuple(data), run_id="r", dp=(1.0, 1e-5), schema=schema)
    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    assert played.errors == {}
    recording = played.recording("coordinator")
    wanted = recording.messages(SumWanted, "sent", "ash")[0]
    assert (wanted.number, wanted.kind, wanted.n_sums, wanted.sensitivity_squared) == (0, "misfits", 1, COUNT_UNIT**2)
    parts = {name: recording.messages(NoisySum, "received", name)[0] for name in data}
    assert len({int(part.values[0]) for part in parts.values()}) == 3
    total = int(np.sum([part.values for part in parts.values()], axis=0, dtype=np.uint64).view(np.int64)[0])
    noise = total / COUNT_UNIT - 5
    assert noise != round(noise)  # an exact number of rows would be whole
    assert abs(noise) < 8 * wanted.sigma * math.sqrt(3 / 2) / COUNT_UNIT
    meta = played.results["coordinator"].meta
    told = max(round(total / COUNT_UNIT), 0)
    assert meta["n_misfits_estimate"] == told
    statement = PROTOCOL.statement(job, meta)
    assert statement.facts[MISFITS_FACT] == statement.to_dict()[MISFITS_FACT] == told
    assert f"With noise it is {told}." in " ".join(str(statement).split())
    for name in data:
        first, second, *_ = played.parties[name].ledger.events()
        of_first, of_second = ((event["sensitivity"] / event["sigma"]) ** 2 for event in (first, second))
        assert of_first / of_second == pytest.approx(MISFITS_SHARE / ((1.0 - MISFITS_SHARE) * 0.15), rel=1e-6)
    assert "n_misfits_estimate" not in played.results["ash"].meta


def test_rows_that_fit_and_rows_that_do_not_look_the_same():
    """Same messages, same sizes, same lines in everybody's ledger, until the number of trees, which is a noisy one."""
    clean = people(n=30)
    seen = []
    for rows in (clean, [*clean[:-2], ["?", 10**400, "moon", None], [None, math.inf, None, math.nan]]):
        run = fit(rows, dp=(0.1, 1e-5))
        lines = [
            [(line.message, line.peer) for line in run.ledgers[name].lines("disclosed")] for name in ("ash", "elm")
        ]
        seen.append([own[: 2 + 1 + 10 * 3] for own in lines])
    assert seen[0] == seen[1]


# --- raise -----------------------------------------------------------------------------------------------------------


def test_what_raises_on_rows_is_not_for_budgets_and_says_so(tmp_path):
    """on_bad_rows="raise" is refused with a budget, whatever the rows are; without one, everything is stamped."""
    account = BudgetFile(tmp_path / "b").open("patients", epsilon=5.0, delta=1e-4)
    clean = people()
    odd = [*clean, ["?", 0.5, "town", "yes"]]
    for rows in (clean, odd):
        with pytest.raises(HedgerowError, match=r"budget .*on_bad_rows='raise'"):
            fit(rows, dp=(1.0, 1e-5), on_bad_rows="raise", budget={"ash": account})
    assert account.entries() == ()
    run = fit(clean, dp=(1.0, 1e-5), on_bad_rows="raise")
    statement = run.statement()
    assert str(statement).startswith("NOT PRIVATE.")
    assert "on_bad_rows='raise': that every row fits the schema was told exactly" in " ".join(str(statement).split())
    assert statement.to_dict()["stamp"] == run.model.ensemble_.meta["stamp"] == "NOT PRIVATE"
    assert statement.registry is None
    assert not statement.facts["model_is_private"]
    assert "No message and no error depends on which they are" not in str(statement)


@pytest.mark.parametrize(
    "row",
    [["?", 0.5, "town", "yes"], [30, "?", "town", "yes"], [None, 0.5, "town", "yes"], [30, 0.5, "moon", "yes"],
     [30, 0.5, "town", "perhaps"], [30, 0.5, "town", None]],
    ids=str,
)  # fmt: skip
def test_rows_that_do_not_fit_raise_where_that_is_asked_for(row):
    """With the name of the owner."""
    with pytest.raises(HedgerowError, match="ash"):
        fit([*people(), row], dp=(1.0, 1e-5), on_bad_rows="raise")


def test_a_role_raises_too():
    """Where tables were read by somebody else: an owner's own program goes by its own job."""
    schema = SCHEMAS["classification"]
    rows = [*people(), [30, "?", "town", "yes"]]
    data = brought(rows)
    for how, error in (("map", None), ("raise", InvalidInput)):
        job = Job(owners=("ash", "elm", "oak"), run_id="r", dp=(1.0, 1e-5), schema=schema, on_bad_rows=how)
        if error is None:
            assert rows_of(job, data).n_misfits == 1
        else:
            with pytest.raises(error, match="ash"):
                rows_of(job, data)


def test_it_is_part_of_the_job():
    """All parties must have asked for the same; without dp there is nothing to ask for."""
    jobs = [
        Job(owners=("ash", "elm", "oak"), run_id="r", dp=(1.0, 1e-5), schema=SCHEMAS["classification"], **more)
        for more in ({}, {"on_bad_rows": "map"}, {"on_bad_rows": "raise"})
    ]
    digests = [agreed(PROTOCOL, job) for job in jobs]
    assert digests[0] == digests[1] != digests[2]
    assert Job.from_dict(jobs[2].to_dict()).on_bad_rows == "raise"
    with pytest.raises(InvalidParameter, match="on_bad_rows must be 'map' or 'raise', got 'ignore'"):
        fit(people(), on_bad_rows="ignore")
    data = {name: table(people()) for name in ("ash", "elm", "oak")}
    for how in ("map", "raise"):
        with pytest.raises(InvalidParameter, match="on_bad_rows is for dp"):
            Federation.horizontal(data).fit(NAME, n_estimators=1, on_bad_rows=how)


# --- what a federation reads itself ----------------------------------------------------------------------------------


def test_without_dp_an_odd_row_is_an_error_of_fit():
    """Nothing is protected then, and nothing says what it should be."""
    data = {name: table(people()) for name in ("ash", "elm", "oak")}
    for odd in (["?", 0.5, "town", "yes"], [30, 0.5, "town", None]):
        fed = Federation.horizontal(data | {"ash": table([*people(), odd])})
        with pytest.raises(InvalidInput, match="ash"):
            fed.fit(NAME, n_estimators=1)


def test_unread_rows_reach_a_process_of_their_own():
    """Over the file without a name, with labels that are none of the classes."""
    rows = [*people(n=4), [30, "?", "town", None]]
    data = brought(rows)
    with rows_file(data) as file:
        again = _read_data(os.dup(file.fileno()), describe(data), PROTOCOL)
    assert again.misfits.tolist() == [False] * 4 + [True]
    assert again.classes == ("no", "yes", None)
    assert again.labels.tolist()[-1] == 2.0


SMALL = {"n_estimators": 1, "max_depth": 1}


def tables(z):
    """Two holders of columns."""
    rng = np.random.default_rng(0)
    shop = pd.DataFrame({"z": pd.Series(z, dtype=object), "w": rng.normal(size=len(z))})
    return {"bank": pd.DataFrame({"x": rng.normal(size=len(z))}), "shop": shop}


@pytest.mark.parametrize("label", [None, math.nan, "perhaps", [1], 10**400], ids=str)
def test_a_label_that_is_none_reaches_noised_gradients(label):
    """It counts as the first class, which is for the protocol to say; without a list of classes it is an error."""
    y = np.array(["no", "yes"] * 20, object)
    models = []
    for own in (label, "no"):
        y[0] = own
        fed = Federation.vertical(tables(range(40)), labels=("bank", y))
        run = fed.fit("vertical.noised_gradients", epsilon=math.inf, classes=["no", "yes"], **SMALL)
        models.append(run.model.predict_proba(tables(range(40))).tolist())
        if own is None:
            with pytest.raises(InvalidInput, match="bank: y"):
                fed.fit("vertical.noised_gradients", epsilon=2.0, delta=1e-5, **SMALL)
    assert models[0] == models[1]


@pytest.mark.parametrize("cell", ["?", [1], None, 10**400], ids=str)
@pytest.mark.parametrize("protocol", ["vertical.bucket_rr", "vertical.private_histograms"])
def test_a_cell_that_is_none_reaches_protocols_with_a_schema(protocol, cell):
    """A feature holder's column with text among numbers, in a private protocol: no error."""
    bounds = {"x": (-3, 3), "z": (0, 40), "w": (-3, 3)}
    schema = Schema.from_public(bounds=bounds, classes=["no", "yes"])
    fed = Federation.vertical(tables([cell, *range(1, 40)]), labels=("bank", ["no", "yes"] * 20))
    assert fed.fit(protocol, epsilon=2.0, schema=schema, **SMALL).model is not None
    if cell in ("?", [1]):
        with pytest.raises(HedgerowError, match="shop: X: column 'z'"):
            fed.fit("vertical.secret_shared", **SMALL)


def test_columns_of_which_nothing_is_declared_are_read_strictly():
    """And what is declared of one column does not change how another is read."""
    frame = pd.DataFrame({"z": ["1", "?", "3"], "w": ["a", "b", "a"]})
    declared = Declared(Schema.from_public(bounds={"shop.z": (0, 9)}))
    how = {"task": "classification", "categorical_features": "from_dtype", "has_labels": False}
    found = Brought("shop", frame, **how).as_columns(declared)
    z, w = found.table.columns
    np.testing.assert_array_equal(z.values, [1.0, math.nan, 3.0])
    assert (w.levels, w.values.tolist()) == (("a", "b"), [0, 1, 0])
    assert found.misfits is None
    assert Brought("shop", frame[["z"]], **how).as_columns(declared).misfits.tolist() == [False, True, False]
    mixed = Brought("shop", frame.assign(w=["a", 1, "a"]), **how)
    with pytest.raises(InvalidInput, match="column 'w' mixes text and numbers"):
        mixed.as_columns(declared)
