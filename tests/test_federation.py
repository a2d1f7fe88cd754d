"""Federations in memory: what may come in, what is refused and in which words, and what a finished run holds."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, PeerFailed
from hedgerow.estimators.inputs import UnknownParameter
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model
from hedgerow.federation.federation import Federation
from hedgerow.federation.run import Run
from hedgerow.ledger import Ledger, LedgerMismatch, Meter
from hedgerow.runtime import forks, running
from hedgerow.transport.emulate import Link

PROTOCOL = "horizontal.secure_sum"
OWNERS = ("ash", "elm", "oak")
FAST = {"n_estimators": 3, "max_depth": 3}
TOWNS = np.array(["Bern", "Chur", "Genf"])


def people(n_rows, seed):
    """A data frame with a number, a whole number and a category, and labels that follow from them."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(size=n_rows)
    income[rng.random(n_rows) < 0.1] = np.nan
    age = rng.integers(18, 90, n_rows)
    town = TOWNS[rng.integers(0, 3, n_rows)]
    y = (np.nan_to_num(income) + (age > 50) + (town == "Chur") + 0.3 * rng.normal(size=n_rows) > 2).astype(int)
    return pd.DataFrame({"income": income, "age": age.astype(float), "town": pd.Categorical(town)}), y


PEOPLE = {name: people(40 + 25 * k, seed=k) for k, name in enumerate(OWNERS)}
NUMBERS = {name: (X[["income", "age"]].to_numpy(), y) for name, (X, y) in PEOPLE.items()}
TARGETS = {name: (X, X[:, 1] / 10.0) for name, (X, _) in NUMBERS.items()}


def fit(data=NUMBERS, *, task="classification", **params):
    """Train on these owners' rows in memory."""
    return Federation.horizontal(data, task=task).fit(PROTOCOL, **(FAST | params))


def content(model):
    """All that a model is, but for what it says about its training."""
    return {key: value for key, value in model.ensemble_.to_dict().items() if key != "meta"}


@pytest.fixture(scope="module")
def run():
    """One finished run, on pandas tables with a category."""
    return fit(PEOPLE)


# --- tables ----------------------------------------------------------------------------------------------------------


def as_pandas(X, y):
    """As it is."""
    return X, pd.Series(y)


def as_polars(X, y):
    """The same in polars."""
    columns = {"income": X["income"].to_numpy(), "age": X["age"].to_numpy()}
    return pl.DataFrame(columns | {"town": pl.Series(list(X["town"])).cast(pl.Categorical)}), pl.Series(y)


def as_arrow(X, y):
    """The same in arrow."""
    return pa.table({"income": X["income"], "age": X["age"], "town": pa.array(list(X["town"]))}), pa.array(y)


@pytest.mark.parametrize("kind", [as_pandas, as_polars, as_arrow])
def test_every_kind_of_table_gives_the_same_model(run, kind):
    """Owners may bring pandas, polars or arrow tables; the model is the same, bit for bit."""
    data = {name: kind(X, y) for name, (X, y) in PEOPLE.items()}
    assert content(fit(data).model) == content(run.model)


def test_owners_may_bring_different_kinds_of_tables(run):
    """One has pandas, one polars, one arrow."""
    kinds = (as_arrow, as_pandas, as_polars)
    data = {name: kind(*PEOPLE[name]) for name, kind in zip(OWNERS, kinds, strict=True)}
    assert content(fit(data).model) == content(run.model)


def test_lists_will_do():
    """Rows and labels as plain lists give the model that arrays give."""
    lists = {name: [X.tolist(), y.tolist()] for name, (X, y) in NUMBERS.items()}
    assert content(fit(lists).model) == content(fit(NUMBERS).model)


def test_floats_integers_and_booleans_are_the_same_classes():
    """1, 1.0 and True are one class, whichever of them an owner writes."""
    kinds = (int, float, bool)
    mixed = {name: (NUMBERS[name][0], NUMBERS[name][1].astype(kind)) for name, kind in zip(OWNERS, kinds, strict=True)}
    assert content(fit(mixed).model) == content(fit(NUMBERS).model)


def test_text_classes_come_back_as_text():
    """The model predicts what the labels were."""
    model = fit({name: (X, np.where(y, "yes", "no")) for name, (X, y) in NUMBERS.items()}).model
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(NUMBERS["ash"][0])) == {"no", "yes"}


def test_three_classes():
    """With three classes there are three trees per iteration, and probabilities that add up to one."""
    model = fit({name: (X, y + (X[:, 1] > 70)) for name, (X, y) in NUMBERS.items()}).model
    assert list(model.classes_) == [0, 1, 2]
    assert len(model.ensemble_.trees) == 9
    np.testing.assert_allclose(model.predict_proba(NUMBERS["elm"][0]).sum(axis=1), 1.0, rtol=1e-6)


# --- regression ------------------------------------------------------------------------------------------------------


def test_regression():
    """Without a declared range of targets only who asks for the exact one gets a model; it has learned something."""
    with pytest.raises(InvalidParameter, match="a regression needs the range of its labels"):
        fit(TARGETS, task="regression", n_estimators=20)
    run = fit(TARGETS, task="regression", n_estimators=20, exact_label_range=True)
    assert "the owner's smallest and its largest label" in {line.what for line in run.ledgers["oak"].lines("disclosed")}
    assert "each owner's smallest and largest label exactly" in str(run.statement()).replace("\n  ", " ")
    model = run.model
    assert isinstance(model, BoostedTreesRegressor)
    X, y = TARGETS["oak"]
    assert np.mean((model.predict(X) - y) ** 2) < 0.1 * np.var(y)


@pytest.mark.parametrize(("low", "high"), [(0, 20), (-1000.0, -900.0), (500, 600)])
def test_a_declared_label_range_may_lie_anywhere(low, high):
    """Whole numbers or not, around zero or far from it."""
    moved = {name: (X, y + low) for name, (X, y) in TARGETS.items()}
    run = fit(moved, task="regression", label_range=(low, high), n_estimators=20)
    X, y = moved["oak"]
    assert np.abs(run.model.predict(X) - y).max() < 5


def test_counts():
    """loss="poisson" takes whole numbers from 0."""
    counts = {name: (X, np.floor(X[:, 1] / 20)) for name, (X, _) in NUMBERS.items()}
    model = fit(counts, task="regression", loss="poisson", label_range=(0, 100), n_estimators=20).model
    X, y = counts["oak"]
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9


def test_labels_outside_their_declared_range_name_the_owner():
    """The owner whose labels do not fit says so itself."""
    with pytest.raises(InvalidInput, match=r"^elm: labels lie in \[.*\], outside the declared label_range \(0, 20\)"):
        fit(TARGETS | {"elm": (TARGETS["elm"][0], TARGETS["elm"][1] + 15)}, task="regression", label_range=(0, 20))


# --- parameters ------------------------------------------------------------------------------------------------------


def test_other_libraries_spellings_are_the_same_parameters():
    """XGBoost's and LightGBM's names mean what scikit-learn's mean."""
    fed = Federation.horizontal(NUMBERS)
    one = fed.fit(PROTOCOL, max_iter=4, max_depth=2, learning_rate=0.2, l2_regularization=3.0, min_split_gain=0.1)
    two = fed.fit(PROTOCOL, n_estimators=4, max_depth=2, eta=0.2, reg_lambda=3.0, gamma=0.1)
    assert content(one.model) == content(two.model)
    assert two.model.get_params()["max_iter"] == 4
    other = fed.fit(PROTOCOL, n_estimators=4, max_depth=2, eta=0.3, reg_lambda=3.0, gamma=0.1)
    assert content(other.model) != content(two.model)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"max_dept": 3}, "has no parameter max_dept; did you mean max_depth?"),
        ({"quantile": "private"}, "has no parameter quantile; .*horizontal.secure_sum adds .*, quantiles, "),
        ({"learning_rate": -1}, "learning_rate must be a number above 0, got -1"),
        ({"max_iter": 7}, "max_iter is given twice, as n_estimators=3 and as max_iter=7"),
        ({"monotone_constraints": (1, 0, 0)}, "monotonic_cst has 3 entries, but X has 2 columns"),
        ({"warm_start": True}, "a federation takes no warm_start, got True; give fit the earlier model, init_model="),
        ({"eval_metric": len}, "eval_metric must be the name of a metric, which all parties know, got <built-in"),
        ({"transport": "tcp"}, "transport must be one of memory, grpc, got 'tcp'"),
        ({"deadline": 0}, "deadline must be a positive number of seconds, got 0"),
        ({"deadline": float("nan")}, "deadline must be a positive number of seconds, got nan"),
        ({"deadline": "soon"}, "deadline must be a positive number of seconds, got 'soon'"),
        (
            {"coordinator": "fir"},
            r"coordinator must be one of the owners \['ash', 'elm', 'oak'\], or left out, got 'fir'",
        ),
        ({"min_owners": 4}, "min_owners must be between 2 and 3, got 4"),
        ({"dp": 1.0}, "dp must be a list or a tuple, got 1.0"),
        ({"classes": "01"}, "classes must be a list or a tuple, got '01'"),
    ],
)
def test_parameters_that_cannot_be_are_refused(params, why):
    """Before anything is trained, with the parameter, its value and what may be meant."""
    with pytest.raises(InvalidParameter, match=why):
        fit(**params)


def test_an_unknown_parameter_is_a_type_error_too():
    """As in any Python call."""
    with pytest.raises(UnknownParameter):
        fit(max_dept=3)


def test_an_unknown_protocol_is_answered_with_those_there_are():
    """The error lists the names."""
    with pytest.raises(
        InvalidParameter, match=r"there is no protocol 'horizontal.sum'; there are horizontal.secure_sum"
    ):
        Federation.horizontal(NUMBERS).fit("horizontal.sum")


def test_numbers_of_numpy_will_do(tmp_path):
    """Parameters that come out of an array make a job that can be stored."""
    run = fit(min_owners=np.int64(3), classes=np.array([0, 1]), max_bins=np.int64(16))
    run.save(tmp_path)
    assert Run.load(tmp_path).job == run.job


def test_the_same_seed_gives_the_same_model():
    """Columns drawn for each tree depend on random_state alone."""
    one, two, other = (fit(random_state=seed, colsample_bytree=0.5, n_estimators=8) for seed in (1, 1, 2))
    assert content(one.model) == content(two.model) != content(other.model)


def test_an_owner_may_coordinate(run):
    """Then there is one party less, and the model is the same."""
    own = fit(PEOPLE, coordinator="elm")
    assert set(own.ledgers) == set(OWNERS)
    assert content(own.model) == content(run.model)


# --- who takes part --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "the bank", "-x", "x" * 64, "é", 3, None])
def test_names_that_no_certificate_can_hold_are_refused(name):
    """The sentence says what a name is made of, and shows the one that was given."""
    with pytest.raises(InvalidParameter, match=r"a party's name is 1 to 63 letters, .* got "):
        Federation.horizontal({name: NUMBERS["ash"]})


def test_an_owner_that_is_called_coordinator_must_be_it():
    """The name is taken, unless the owner of that name coordinates."""
    data = {"coordinator": NUMBERS["ash"], "elm": NUMBERS["elm"], "oak": NUMBERS["oak"]}
    with pytest.raises(InvalidParameter, match="an owner may not be called 'coordinator' unless"):
        fit(data)
    assert set(fit(data, coordinator="coordinator").ledgers) == set(data)


@pytest.mark.parametrize("data", [{}, [NUMBERS["ash"]], None, NUMBERS["ash"]])
def test_what_is_no_dict_of_owners_is_refused(data):
    """The error shows the form that is wanted."""
    with pytest.raises(InvalidInput, match=r"takes a dict: name of the owner -> \(X, y\)"):
        Federation.horizontal(data)


@pytest.mark.parametrize("pair", [NUMBERS["ash"][0], (NUMBERS["ash"][0],), None])
def test_an_owner_without_labels_is_refused(pair):
    """The owner is named."""
    with pytest.raises(InvalidInput, match=r"elm: an owner brings \(X, y\) or \(X, y, sample_weight\), got "):
        Federation.horizontal(NUMBERS | {"elm": pair})


@pytest.mark.parametrize(
    ("names", "why"), [(("ash",), "needs at least 2 owners, got 1"), (("ash", "elm"), "with 2 owners protects nothing")]
)
def test_too_few_owners_are_refused(names, why):
    """One owner needs no federation, and two cannot hide from each other."""
    with pytest.raises(InvalidParameter, match=why):
        fit({name: NUMBERS[name] for name in names})


def test_two_owners_without_masking_are_stamped():
    """Who accepts that nothing is hidden gets a model, and both say so."""
    run = fit({name: NUMBERS[name] for name in ("ash", "elm")}, accept_no_masking=True)
    assert run.statement().facts["stamp"] == "NO MASKING"
    assert "NO MASKING: with 2 owners the sums hide nobody" in str(run.statement())
    assert run.model.ensemble_.meta["stamp"] == "NO MASKING"


def test_a_task_is_classification_or_regression():
    """Anything else is refused, in both kinds of federation."""
    with pytest.raises(InvalidParameter, match="task must be 'classification' or 'regression', got 'ranking'"):
        Federation.horizontal(NUMBERS, task="ranking")
    with pytest.raises(InvalidParameter, match="task must be 'classification' or 'regression', got 'ranking'"):
        Federation.vertical({"ash": NUMBERS["ash"][0]}, labels=("ash", NUMBERS["ash"][1]), task="ranking")


def test_a_federation_shows_its_parties():
    """Names in order, with rows and columns."""
    fed = Federation.horizontal(NUMBERS)
    assert fed.parties == OWNERS
    assert repr(fed) == "Federation(rows split, ash: 40 x 2, elm: 65 x 2, oak: 90 x 2)"


# --- tables that cannot be used, or not together ---------------------------------------------------------------------


def with_elm(X=None, y=None):
    """The owners of PEOPLE, with another table or other labels at elm."""
    mine, labels = PEOPLE["elm"]
    return PEOPLE | {"elm": (mine if X is None else X, labels if y is None else y)}


ELM, LABELS = PEOPLE["elm"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (with_elm(y=LABELS[:-1]), "elm: y has 64"),
    ],
)
def test_data_that_cannot_be_used_name_their_owner(data, why):
    """At once, when the federation is made, with the column where there is one."""
    with pytest.raises(InvalidInput, match=why):
        Federation.horizontal(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (with_elm(y=np.where(LABELS, np.nan, 0.0)), "elm: y contains NaN"),
        (with_elm(y=np.linspace(0, 1, len(ELM))), "elm: y holds numbers with fractions"),
        (with_elm(y=np.array([1, "one"] * 32 + [1], object)), "elm: y mixes int and str"),
        (with_elm(X=ELM.assign(age=[*range(64), "?"])), "elm: X: column 'age' mixes text and numbers"),
        (with_elm(X=ELM.iloc[:0], y=LABELS[:0]), "elm: X: found array with 0 sample"),
    ],
)
def test_rows_that_cannot_be_trained_on_name_their_owner(data, why):
    """By `fit`, since a private protocol with a schema can do with them (tests/claims)."""
    fed = Federation.horizontal(data)
    with pytest.raises(InvalidInput, match=why):
        fed.fit(PROTOCOL, **FAST)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (with_elm(X=ELM.drop(columns="age")), "elm: .*elm lacks column 'age', which ash has"),
        (with_elm(X=ELM.assign(height=1.0)), "elm: .*elm has column 'height', which ash has not"),
        (with_elm(X=ELM[["age", "income", "town"]]), "elm: column 'age' stands where ash has 'income'"),
        (with_elm(X=ELM.assign(town=1.5)), "elm: column 'town' is numeric there and categorical at ash, oak"),
        (with_elm(X=ELM.assign(age=ELM["town"])), "elm: column 'age' is categorical there and numeric at ash, oak"),
        (
            with_elm(X=ELM.assign(town=pd.Categorical(ELM["town"].cat.codes))),
            "elm: the levels of column 'town' are text at ash, oak but numbers at elm",
        ),
        (
            with_elm(X=ELM.assign(town=ELM["town"].cat.rename_categories(str.upper))),
            r"elm: column 'town' has the levels \['BERN', .* and \['Bern', .* at the others, and none in common",
        ),
        (with_elm(y=np.where(LABELS, "yes", "no")), "elm: the labels are text at elm but numbers at ash, oak"),
        (with_elm(y=LABELS + 1), "elm: the label 2 does not occur at ash, whose labels are .0, 1."),
    ],
    ids=["lacks", "extra", "order", "numeric", "categorical", "coded", "no level in common", "text labels", "classes"],
)
@pytest.mark.parametrize("coordinator", [None, "oak"], ids=["apart", "an owner"])
def test_tables_that_do_not_fit_together_name_owner_and_column(data, why, coordinator):
    """Before training, and before anything but descriptions of tables has been sent."""
    with pytest.raises(InvalidInput, match=why):
        fit(data, coordinator=coordinator)


def test_an_owner_need_not_have_met_every_level_or_class():
    """Levels and classes that one owner lacks are not an error, and the model knows them all."""
    X, y = PEOPLE["elm"]
    few = (X["town"] != "Chur") & (y == 0)
    data = with_elm(X=X[few].assign(town=X["town"][few].cat.remove_unused_categories()), y=y[few])
    model = fit(data).model
    assert list(model.classes_) == [0, 1]
    assert model.ensemble_.mapper.features[2].levels == ("Bern", "Chur", "Genf")


def test_the_job_that_fits_no_memory_is_refused_beforehand(monkeypatch):
    """The owner that lacks it says how much it would need and how much there is."""
    from hedgerow.runtime import resources as memory

    n_rows = max(len(y) for _, y in PEOPLE.values())
    needed = memory.memory_needed(n_rows, 3, 256, FAST["max_depth"])
    monkeypatch.setattr(memory, "memory_available", lambda: needed - 1)
    with pytest.raises(InvalidInput, match=r"oak: 90 rows x 3 columns .* only 0\.0 GiB are available here"):
        fit(PEOPLE)
    monkeypatch.setattr(memory, "memory_available", lambda: needed)
    fit(PEOPLE)


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_told_after_every_iteration():
    """on_progress gets the iterations done and their number, each once and in order."""
    told = []
    fit(n_estimators=4, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_verbose_says_how_far_it_is(capsys):
    """One line per iteration on stderr, with the time that is left; every n-th with verbose=n, and the last one."""
    fit()  # kernels are there
    fit(n_estimators=3, verbose=1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ETA ")[0] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert lines[-1] == "[3/3] ETA 0.0s"
    fit(n_estimators=5, verbose=2)
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["[2/5]", "[4/5]", "[5/5]"]
    fit()
    assert capsys.readouterr() == ("", "")


def test_verbose_goes_to_the_log_where_somebody_listens(caplog, capsys):
    """With the logger switched on, lines go there, and on_progress is called as well."""
    fit()  # kernels are there
    told = []
    with caplog.at_level(logging.INFO, "hedgerow"):
        fit(n_estimators=2, verbose=1, on_progress=lambda *how_far: told.append(how_far))
    assert [record.getMessage().split()[0] for record in caplog.records] == ["[1/2]", "[2/2]"]
    assert told == [(1, 2), (2, 2)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_verbose_says_that_kernels_are_compiled(transport, capsys, monkeypatch):
    """One line if it takes long until they are there, none if it does not."""
    monkeypatch.setattr(running, "LONG_SECONDS", 0.0)
    slow = {"memory": (running, "warm_up"), "grpc": (forks, "forks_for")}[transport]
    prepared = getattr(*slow)
    monkeypatch.setattr(*slow, lambda *given: (time.sleep(0.3), prepared(*given))[1])
    fit(n_estimators=1, verbose=1, transport=transport)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [running.GETTING_READY, "[1/1] ETA 0.0s"]
    fit(n_estimators=1, transport=transport)
    assert capsys.readouterr().err == ""


def test_a_watcher_that_fails_ends_the_run():
    """What goes wrong in on_progress is what the caller reads, not what followed from it."""

    def watch(done, total):
        raise ZeroDivisionError(f"{done} of {total}")

    with pytest.raises(ZeroDivisionError, match="1 of 3") as caught:
        fit(on_progress=watch)
    assert caught.value.__notes__ == ["raised in the role of coordinator"]


# --- the run ---------------------------------------------------------------------------------------------------------


def test_the_model_predicts(run):
    """It is an estimator like any other, and better than chance on new rows."""
    assert isinstance(run.model, BoostedTreesClassifier)
    X, y = people(500, seed=99)
    assert roc_auc_score(y, run.model.predict_proba(X)[:, 1]) > 0.8
    assert list(run.model.feature_names_in_) == ["income", "age", "town"]
    assert run.model.ensemble_.meta["protocol"] == PROTOCOL


def test_every_party_has_a_ledger_and_they_agree(run):
    """Owners talk to the coordinator and to nobody else; what one disclosed the other learned."""
    assert set(run.ledgers) == {"coordinator", *OWNERS}
    for name in OWNERS:
        assert {line.peer for line in run.ledgers[name]} == {"coordinator"}
    assert {line.peer for line in run.ledgers["coordinator"]} == set(OWNERS)
    run.reconcile()


def test_a_run_with_a_forged_ledger_does_not_reconcile(run, tmp_path):
    """One line less at one owner is found out, also after loading."""
    run.save(tmp_path)
    path = tmp_path / "ledgers" / "elm.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerMismatch, match=r"coordinator disclosed .* messages to elm"):
        Run.load(tmp_path).reconcile()


def test_traffic_is_the_same_seen_from_both_sides(run):
    """What an owner sent is what the coordinator received from it, in bytes and messages, and the other way round."""
    hub = run.traffic["coordinator"]
    for name in OWNERS:
        mine, theirs = run.traffic[name]["total"], hub["by_peer"][name]
        assert mine["bytes_sent"] == theirs["bytes_received"] > 0
        assert mine["bytes_received"] == theirs["bytes_sent"] > 0
        assert mine["messages_sent"] == theirs["messages_received"]
    assert sum(run.traffic[name]["total"]["bytes_sent"] for name in OWNERS) == hub["total"]["bytes_received"]


def test_ledgers_and_meters_count_the_same_bytes(run):
    """The traffic of a party is what its book adds up to."""
    for name, ledger in run.ledgers.items():
        total = run.meters[name].total()
        assert sum(line.n_bytes for line in ledger.lines("disclosed")) == total.bytes_sent
        assert sum(line.n_bytes for line in ledger.lines("learned")) == total.bytes_received


def test_no_owner_sends_sums_in_the_clear(run):
    """Everything about an owner's rows beyond the description of its table leaves under masks."""
    for name in OWNERS:
        open_lines = {
            line.message for line in run.ledgers[name].lines("disclosed") if "only the sum" not in line.protection
        }
        about_rows = open_lines - {"horizontal.mask_key", "horizontal.sealed_seeds", "horizontal.unmasking"}
        assert about_rows == {"horizontal.table_description"}


def test_rounds_per_tree_are_its_depth(run):
    """Training takes as many rounds as the trees have levels; the search for edges at most 12 beside three others."""
    assert run.rounds["training"] == 3 * 3
    assert 3 < run.rounds["setup"] <= 12 + 3
    assert run.seconds > 0
    assert run.lost == {}


def test_a_slow_network_takes_its_time(run):
    """With an emulated link the model is the same, and every round takes a round trip."""
    slow = fit(PEOPLE, link=Link(round_trip=0.01, bandwidth=1e9))
    assert content(slow.model) == content(run.model)
    assert slow.seconds >= 0.01 * (slow.rounds["setup"] + slow.rounds["training"])
    assert slow.traffic["ash"]["by_message"].keys() == run.traffic["ash"]["by_message"].keys()


def test_the_statement_in_words(run):
    """It says who learned what, what is not protected, and what is not covered."""
    words = str(run.statement())
    assert words.startswith("Statement of a run of horizontal.secure_sum")
    assert "The coordinator learned sums over all owners" in words
    assert "not differentially private" in words
    assert "Not covered:\n- A party that lies" in words
    assert "lost" not in words.splitlines()[0]


def test_the_statement_as_facts(run):
    """The same for machines, as plain JSON."""
    facts = json.loads(json.dumps(run.statement().to_dict()))
    assert facts["words"] == str(run.statement())
    assert facts["protocol"] == PROTOCOL
    assert facts["owners"] == list(OWNERS)
    assert facts["masked"] is True
    assert facts["model_is_private"] is False
    assert facts["lost_owners"] == {}
    assert facts["stamp"] is None
    assert facts["rounds"] == run.rounds


def test_a_saved_run_is_the_same_run(run, tmp_path):
    """Model, ledgers, traffic, seconds, job and statement come back as they were."""
    run.save(tmp_path / "a" / "b")
    again = Run.load(tmp_path / "a" / "b")
    assert again.model.ensemble_.to_dict() == run.model.ensemble_.to_dict()
    X, _ = people(50, seed=7)
    np.testing.assert_array_equal(again.model.predict_proba(X), run.model.predict_proba(X))
    assert {name: list(book) for name, book in again.ledgers.items()} == {n: list(b) for n, b in run.ledgers.items()}
    assert again.traffic == run.traffic
    assert again.job == run.job
    assert (again.protocol, again.transport, again.seconds) == (run.protocol, run.transport, run.seconds)
    assert again.statement().to_dict() == run.statement().to_dict()
    again.reconcile()
    assert again.rounds == run.rounds


def test_the_files_of_a_saved_run_stand_for_themselves(run, tmp_path):
    """The model file is an ordinary one, and run.json tells what happened without Hedgerow."""
    run.save(tmp_path)
    assert content(load_model(tmp_path / "model.json")) == content(run.model)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["statement"]["words"] == str(run.statement())
    assert about["parties"] == ["coordinator", *OWNERS]
    assert Meter.from_dict(about["traffic"]["ash"]) == run.meters["ash"]
    assert len(Ledger.from_json_lines("ash", (tmp_path / "ledgers" / "ash.jsonl").read_text())) == len(
        run.ledgers["ash"]
    )


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"format": 99}'])
def test_what_is_no_saved_run_is_refused(tmp_path, text):
    """A folder without a run, a damaged file, one of another version."""
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"holds no saved run|is not a run of a kind that this version can read"):
        Run.load(tmp_path)


def test_a_run_shows_itself(run):
    """Protocol, parties, transport and time in one line."""
    assert repr(run) == f"Run('horizontal.secure_sum', 4 parties, memory, {run.seconds:.2f} s)"


def test_errors_of_a_run_are_errors_of_ours():
    """Whoever catches HedgerowError catches the root cause, never a peer's echo of it."""
    with pytest.raises(HedgerowError) as caught:
        fit(with_elm(y=LABELS + 1))
    assert not isinstance(caught.value, PeerFailed)


# --- columns ---------------------------------------------------------------------------------------------------------


COLUMNS = {"bank": ELM[["income"]], "shop": ELM[["age", "town"]]}


def test_a_vertical_federation_reads_everybodys_columns():
    """Columns come from each party, labels from one of them."""
    fed = Federation.vertical(COLUMNS, labels=("shop", LABELS))
    assert fed.parties == ("bank", "shop")
    assert repr(fed) == "Federation(columns split, bank: 65 x 1, shop: 65 x 2)"


def test_a_protocol_for_rows_is_refused_for_columns():
    """The error says which split the protocol is for and which one this is."""
    fed = Federation.vertical(COLUMNS, labels=("shop", LABELS))
    with pytest.raises(InvalidParameter, match=r"horizontal\.secure_sum is for data split by rows, not by columns"):
        fed.fit(PROTOCOL, **FAST)


@pytest.mark.parametrize("labels", [("farm", LABELS), LABELS, ("shop",), None, (LABELS, "shop")])
def test_labels_belong_to_one_of_the_parties(labels):
    """The error shows the form and the names there are."""
    with pytest.raises(InvalidInput, match=r"labels must be \(name of a party, y\), with one of .*'bank', 'shop'"):
        Federation.vertical(COLUMNS, labels=labels)


def test_all_parties_must_hold_the_same_rows():
    """A party with fewer rows than the holder of the labels is named, with both numbers."""
    with pytest.raises(InvalidInput, match="bank has 60 rows and shop has 65; rows of all parties must be the same"):
        Federation.vertical(COLUMNS | {"bank": ELM[["income"]][:60]}, labels=("shop", LABELS))


def test_labels_must_be_as_many_as_rows():
    """The holder of the labels is named."""
    with pytest.raises(InvalidInput, match="shop: y has 60"):
        Federation.vertical(COLUMNS, labels=("shop", LABELS[:60]))


@pytest.mark.parametrize("data", [{}, [ELM], None])
def test_what_is_no_dict_of_columns_is_refused(data):
    """The error shows the form that is wanted."""
    with pytest.raises(InvalidInput, match="takes a dict: name of the party -> X"):
        Federation.vertical(data, labels=("shop", LABELS))


def test_columns_that_cannot_be_used_name_their_party():
    """Also at a party without labels."""
    waves = np.full(len(LABELS), 1j)
    with pytest.raises(InvalidInput, match="bank: X: column 'wave' has dtype complex128"):
        Federation.vertical(COLUMNS | {"bank": pd.DataFrame({"wave": waves})}, labels=("shop", LABELS))


def test_an_interrupt_ends_a_party_that_trains_alone():
    """Ctrl-C while the label holder of bucket_rr grows trees without a message: it stops after the current one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a library has done to it
    rng = np.random.default_rng(0)
    X, done = rng.normal(size=(200, 4)), []

    def interrupt(tree, _):
        if not done:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        done.append(tree)

    fed = Federation.vertical({"bank": X[:, :2], "shop": X[:, 2:]}, labels=("bank", (X[:, 0] > 0).astype(int)))
    with pytest.raises(KeyboardInterrupt):
        fed.fit("vertical.bucket_rr", epsilon=np.inf, edges="quantile", n_estimators=10**6, on_progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("party-")]
