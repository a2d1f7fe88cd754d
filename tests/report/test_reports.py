"""Reports of real runs and models: five questions on the first screen, the statement as it is, nothing of others."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor, Federation, PrivateBoostingClassifier, Schema
from hedgerow.attacks.registry import Context, attacked
from hedgerow.errors import InvalidParameter
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.ledger import Ledger
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.report.measure import calibration, roc
from hedgerow.report.sections import EVERYTHING, FIRST, FROM_ROWS, NOTHING, QUESTIONS
from hedgerow.report.told import read_statement
from twins.pages import parsed

N = 300
SCREEN = 3_000
"""Characters that one reads on a screen of a laptop, in columns."""


def columns(names, seed):
    """A table of numbers."""
    rng = np.random.default_rng(seed)
    return pa.table({name: rng.normal(size=N) for name in names})


TABLES = {
    "bank": columns(["bank_income", "bank_debt"], 0),
    "shop": columns(["shop_basket", "shop_visits", "shop_<b>"], 1),
    "telco": columns([f"telco_calls_{k}" for k in range(7)], 2),
}
SCORE = TABLES["bank"]["bank_income"].to_numpy() + TABLES["shop"]["shop_basket"].to_numpy()
SCORE = SCORE + TABLES["telco"]["telco_calls_0"].to_numpy()
LABELS = np.where(SCORE > 0, "repaid_yes", "repaid_no")
TREES = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.3}


@pytest.fixture(scope="module")
def vertical():
    """A recorded run in which a bank, a shop and a telco each have columns."""
    federation = Federation.vertical(TABLES, labels=("bank", LABELS))
    return federation.fit("vertical.bucket_rr", epsilon=4.0, buckets=8, edges="quantile", record=True, **TREES)


@pytest.fixture(scope="module")
def horizontal():
    """Three owners of rows."""
    thirds = np.array_split(np.arange(N), 3)
    table = TABLES["shop"]
    return Federation.horizontal(
        {name: (table.take(rows), LABELS[rows]) for name, rows in zip("abc", thirds, strict=True)}
    ).fit("horizontal.secure_sum", **TREES)


@pytest.fixture(scope="module")
def private():
    """A model of one table that may be released."""
    schema = Schema.from_public(bounds=dict.fromkeys(TABLES["shop"].column_names, (-4, 4)), classes=sorted(set(LABELS)))
    return PrivateBoostingClassifier(epsilon=1.0, delta=1e-6, schema=schema).fit(TABLES["shop"], LABELS)


# --- five questions --------------------------------------------------------------------------------------------------


def answers(page):
    """Question -> what the first screen says to it, before anything is opened, and all it says."""
    first = parsed(page.html).by_id("first")
    cards = {
        card.first("h2").text: card
        for card in first.all("div")
        if "card" in (card.attributes.get("class") or "").split()
    }
    return first, cards


@pytest.mark.parametrize("party", [None, "bank", "shop", "telco"])
def test_the_first_screen_answers_five_questions(vertical, party):
    """What is guaranteed, what that does not cover, what was trained, with whom, what left: in words of the run."""
    page = vertical.report(party=party)
    first, cards = answers(page)
    assert parsed(page.html).first("main").children[0] is not None
    assert tuple(cards) == QUESTIONS
    assert len(first.seen) < SCREEN
    statement = vertical.statement(party)
    guaranteed, not_covered, trained, with_whom, left = cards.values()
    for sentence in statement.guarantee[:FIRST]:
        assert sentence in guaranteed.seen
    gaps = statement.to_dict()["not_covered"]
    assert all(gap in not_covered.text for gap in gaps)
    assert all(gap in not_covered.seen for gap in gaps[:FIRST])
    assert f"{len(gaps) - FIRST} more" in not_covered.seen
    assert "One model to tell classes apart, by vertical.bucket_rr" in trained.seen
    for name, role in (("bank", "label holder"), ("shop", "feature holder"), ("telco", "feature holder")):
        assert f"{name} ({role}{', whose report this is' * (name == party)}): has " in with_whom.seen
    books = vertical.ledgers if party is None else {party: vertical.ledgers[party]}
    sent = [line for book in books.values() for line in book.lines("disclosed")]
    assert f"{len(sent)} messages" in left.seen
    for line in sent:
        assert (line.protection == "public") or (f"{line.what} ({line.protection})" in left.text)


def test_the_first_screen_of_a_central_model(private):
    """One table: the same five questions, with the three sentences of its statement."""
    first, cards = answers(private.report())
    assert tuple(cards) == QUESTIONS
    assert len(first.seen) < SCREEN
    guaranteed, not_covered, trained, with_whom, left = (card.seen for card in cards.values())
    statement = private.privacy_statement()
    assert all(sentence in guaranteed for sentence in statement.guarantee[:FIRST])
    assert "differential privacy with epsilon = 1 and delta = 1e-6" in guaranteed
    assert statement.not_covered[0] in not_covered
    assert "to tell 2 classes apart (repaid_no, repaid_yes)" in trained
    assert "nobody" in with_whom
    assert "Nothing was sent" in left


def test_a_plain_model_promises_nothing():
    """The page of an estimator without protection says so, and no more."""
    model = BoostedTreesClassifier(max_iter=3).fit(TABLES["shop"], LABELS)
    _, cards = answers(model.report())
    guaranteed, not_covered, *_ = (card.seen for card in cards.values())
    assert guaranteed.endswith(NOTHING)
    assert not_covered.endswith(EVERYTHING)


def test_a_model_of_a_run_sends_the_reader_to_its_statement(horizontal):
    """A whole model that parties trained has no statement of its own, and its page does not say that there is none."""
    _, cards = answers(horizontal.model.report())
    assert NOTHING not in cards[QUESTIONS[0]].text
    assert "horizontal.secure_sum, and the statement is with the run" in cards[QUESTIONS[0]].text


def test_the_stamp_comes_before_everything(vertical):
    """What a user must not overlook stands first on the first screen."""
    exact = replace(vertical, job=replace(vertical.job, epsilon=math.inf))
    stamp = exact.statement().stamp
    assert stamp
    first = parsed(exact.report(party="shop").html).by_id("first")
    assert first.children[0].attributes["class"] == "stamp"
    assert first.text.startswith(f"{stamp}.")
    model = PrivateBoostingClassifier(epsilon=math.inf, bounds="from_data").fit(TABLES["shop"], LABELS)
    assert parsed(model.report().html).by_id("first").text.startswith("NOT PRIVATE: ")


# --- the statement, word for word ------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", [None, "bank", "shop"])
def test_the_page_says_what_the_statement_says(vertical, party):
    """Every sentence is there in its order, and the section holds no other sentence but where it comes from."""
    section = parsed(vertical.report(party=party).html).by_id("statement")
    said = [each.text for each in section.all("li", "p") if each.attributes.get("class") is None]
    assert said == [sentence for _, sentences in vertical.statement(party).sections() for sentence in sentences]
    notes = [each.text for each in section.all("p") if each.attributes.get("class") == "quiet"]
    assert len(notes) == (party == "shop")
    assert all("bank has the statement with all that was counted" in note for note in notes)


def test_a_statement_comes_back_from_its_file(vertical):
    """What a node reads from statement.json says the same as the run."""
    stated = vertical.statement()
    assert read_statement(stated.to_dict()).text() == stated.text()


# --- a party's report holds nothing of others ------------------------------------------------------------------------


@pytest.mark.parametrize("party", ["bank", "shop", "telco"])
def test_a_report_has_own_columns_only(vertical, party):
    """Names of its own columns are there, those of others are not; classes are the label holder's alone."""
    text = parsed(vertical.report(party=party).html).text
    for name, table in TABLES.items():
        for column in table.column_names:
            assert (column in text) == (name == party), column
    assert ("repaid_yes" in text) <= (party == "bank")


@pytest.mark.parametrize("party", ["shop", "telco", "bank"])
def test_a_report_does_not_depend_on_what_others_know(vertical, party):
    """Other parties' columns, ledgers and records may be anything: the page is the same, byte for byte."""
    parts = dict(vertical.model.parts)
    for name, part in parts.items():
        if name != party and isinstance(part, OwnerPart):
            renamed = tuple(replace(feature, name=f"other {k}") for k, feature in enumerate(part.features))
            parts[name] = replace(part, features=renamed, meta={"columns": 99})
    ledgers = {name: book if name == party else Ledger(name) for name, book in vertical.ledgers.items()}
    other = replace(vertical, model=VerticalModel(parts), ledgers=ledgers, meters={}, transcripts={})
    before = replace(vertical, transcripts={}).report(party=party).html
    meta = vertical.model.asking.meta
    kept = dict(meta)
    try:
        if party != "bank":
            meta |= {"rounds": {"setup": 77, "training": 7777}, "transfers": {}, "stamp": "others' stamp"}
        assert other.report(party=party).html == before
    finally:
        meta.clear()
        meta |= kept


def test_numbers_of_other_parties_columns_stay_with_the_label_holder(vertical):
    """The label holder counts how many columns the telco sent; the shop's report does not say."""
    assert "7 columns" in vertical.report(party="bank").html
    assert "7 columns" not in vertical.report(party="shop").html
    assert vertical.statement("shop").facts["transfers"] == {}
    assert set(vertical.statement("bank").facts["transfers"]) == {"shop", "telco"}


SMALL = {name: table.slice(0, 150) for name, table in TABLES.items() if name != "telco"}
PUBLIC = Schema.from_public(
    bounds={column: (-5, 5) for table in SMALL.values() for column in table.column_names}, classes=sorted(set(LABELS))
)
LEAKS = {"accept_known_leaks": True}
PROTOCOLS = {
    "vertical.bucket_rr": {"epsilon": 4.0, "schema": PUBLIC},
    "vertical.noised_gradients": {"epsilon": 4.0, "delta": 1e-5},
    "vertical.homomorphic": {},
    "vertical.secret_shared": {"max_bins": 8},
    "vertical.private_histograms": {"epsilon": 4.0, "delta": 1e-5, "schema": PUBLIC, "max_bins": 8},
    "vertical.mp_fedxgb": {"max_bins": 8, **LEAKS},
    "vertical.masked_gradients": {
        "max_bins": 8,
        "eps_ap": 8.0,
        "delta_ap": 1e-3,
        "eps_pp": 1.0,
        "reading": "record",
        "accept_low_snr": True,
        **LEAKS,
    },
}


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_party_of_every_protocol_has_a_report(protocol):
    """Label holder, feature holder and dealer, with their stamps; others' columns are in public settings at most."""
    federation = Federation.vertical(SMALL, labels=("bank", LABELS[:150]))
    run = federation.fit(protocol, n_estimators=1, max_depth=2, **PROTOCOLS[protocol])
    for party in run.ledgers:
        main = parsed(run.report(party=party).html).first("main")
        told = " ".join(section.text for section in main.children if section.attributes["id"] != "repeat")
        assert set(secrets_of(told)) <= {party}
        assert run.statement().stamp is None or run.statement().stamp in told
        assert ("model" in [section.attributes["id"] for section in main.children]) == (party in SMALL)
    assert set(secrets_of(parsed(run.report().html).text)) == set(SMALL)
    assert "What is guaranteed?" in run.model._repr_html_()


def secrets_of(text):
    """Whose columns a text names."""
    return [name for name, table in SMALL.items() if any(column in text for column in table.column_names)]


def test_matching_is_told_too():
    """Where rows were found by ids, a party's report shows what it learned from that, and a statement about it."""
    tables = {name: table.append_column("id", pa.array(map(str, range(150)))) for name, table in SMALL.items()}
    federation = Federation.vertical(tables, labels=("bank", LABELS[:150]), id="id")
    run = federation.fit("vertical.bucket_rr", n_estimators=1, **PROTOCOLS["vertical.bucket_rr"])
    tree = parsed(run.report(party="shop").html)
    ids = [each.attributes["id"] for each in tree.walk() if "id" in each.attributes]
    assert len(set(ids)) == len(ids)
    assert "every party's number of different ids (in the clear)" in tree.by_id("who1").text
    assert "150 ids are common to all (bank 150, shop 150)." in tree.by_id("statement").text


def test_labels_are_judged_in_the_label_holders_report_only(vertical):
    """ROC and calibration need labels: asked for in another party's report, they are refused."""
    page = parsed(vertical.report(party="bank", X=TABLES, y=LABELS).html)
    assert {"ROC curve", "Calibration"} <= {title.text for title in page.by_id("quality").all("title")}
    with pytest.raises(InvalidParameter, match="y is for the report of bank"):
        vertical.report(party="shop", X=TABLES, y=LABELS)
    with pytest.raises(InvalidParameter, match="y needs X"):
        vertical.report(party="bank", y=LABELS)
    own = parsed(vertical.report(party="shop", X=TABLES).html)
    assert "Contributions of columns of shop" in own.text
    assert "bank_income" not in own.text


def test_a_party_that_is_not_there_is_named(vertical):
    """The error says who has a ledger."""
    with pytest.raises(
        InvalidParameter, match=r"party='nobody' has no ledger in this run; there are bank, shop, telco"
    ):
        vertical.report(party="nobody")


# --- other parts -----------------------------------------------------------------------------------------------------


def test_attacks_show_their_verdicts_and_keep_what_they_found(vertical):
    """All verdicts are shown; what an attacker says it found only in its own report, and in that of everybody."""
    outcomes = attacked(Context(vertical, labels={"bank": LABELS}, tables=TABLES))
    assert outcomes
    attacker = outcomes[0].attacker
    page = parsed(vertical.report(attacks=outcomes).html)
    assert FROM_ROWS in page.by_id("first").seen
    whole = page.by_id("attacks").text
    assert all(outcome.verdict in whole and outcome.found in whole for outcome in outcomes)
    other = next(name for name in TABLES if name != attacker)
    theirs = parsed(vertical.report(party=other, attacks=outcomes).html).by_id("attacks").text
    assert outcomes[0].verdict in theirs
    assert outcomes[0].found not in theirs


def test_owners_of_rows_share_the_model(horizontal):
    """Every owner has the whole model, so every owner's report has its columns; traffic is the owner's own."""
    for party in ("a", "coordinator"):
        tree = parsed(horizontal.report(party=party).html)
        assert "shop_basket" in tree.by_id("model").text
        total = horizontal.meters[party].total()
        assert f"{total.messages_sent:,} messages" in tree.by_id("first").text


def test_whole_models_are_judged_on_rows(tmp_path):
    """Classifier and regressor: scores, learning curves on rows that are given, contributions; written to a file."""
    table = TABLES["shop"]
    model = BoostedTreesClassifier(max_iter=5).fit(table, LABELS, X_val=table, y_val=LABELS)
    tree = parsed(model.report(tmp_path / "model.html", table, LABELS).html)
    assert (tmp_path / "model.html").exists()
    assert {"Learning curve: logloss", "Learning curve: log loss", "ROC curve"} <= {e.text for e in tree.all("title")}
    assert "Contributions" in tree.by_id("model").text
    numbers = BoostedTreesRegressor(max_iter=5).fit(table, SCORE)
    tree = parsed(numbers.report(None, table, SCORE).html)
    assert "root mean squared error" in tree.by_id("quality").text


def test_what_no_guarantee_covers_is_said(private, vertical):
    """Numbers from rows have no noise: a page that shows some says so on its first screen, and no other does."""
    with_rows, without = (private.report(X=X, y=y) for X, y in ((TABLES["shop"], LABELS), (None, None)))
    assert FROM_ROWS in parsed(with_rows.html).by_id("first").seen
    assert FROM_ROWS not in parsed(without.html).text
    assert FROM_ROWS in parsed(vertical.report(party="shop", X=TABLES).html).by_id("first").seen
    assert "This page shows what shop knows, and is for shop." in parsed(vertical.report(party="shop").html).text
    assert "is for whoever may see all of it" in parsed(vertical.report().html).by_id("first").seen


def test_a_budget_is_shown_with_what_is_left(tmp_path, private):
    """A private model that was charged to a dataset says what is spent of it."""
    dataset = BudgetFile(tmp_path / "budget.sqlite").open("patients", 3.0, 1e-5)
    model = PrivateBoostingClassifier(epsilon=1.0, delta=1e-6, schema=private.schema, budget=dataset)
    tree = parsed(model.fit(TABLES["shop"], LABELS).report().html)
    row = tree.by_id("budget").first("tbody").text
    assert row.startswith("patients epsilon 1, delta 1e-06 epsilon 2")
    (tmp_path / "budget.sqlite").unlink()
    assert model._repr_html_()


def test_notebooks_show_runs_and_models(vertical, private):
    """Runs, models in parts and estimators have the same parts there; one that is not fitted shows its parameters."""
    assert "What is guaranteed?" in vertical._repr_html_()
    assert "shop_basket" in vertical.model._repr_html_()
    assert private.privacy_statement().guarantee[0] in parsed(private.privacy_statement()._repr_html_()).text
    assert "What is guaranteed?" in private._repr_html_()
    assert "What is guaranteed?" not in BoostedTreesClassifier()._repr_html_()
    assert "What is guaranteed?" in private._repr_mimebundle_()["text/html"]


def test_a_saved_run_may_hold_its_reports(vertical, tmp_path):
    """Reports lie in the run's folder, and the run can be saved there again."""
    vertical.save(tmp_path / "run")
    vertical.report(tmp_path / "run" / "report-shop.html", "shop")
    vertical.save(tmp_path / "run")
    assert Run.load(tmp_path / "run").report(party="shop").sections


def test_roc_and_calibration_are_those_of_the_definition():
    """Against shares that are counted one threshold at a time, with ties."""
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 9, 200) / 8, rng.integers(0, 2, 200).astype(float)
    expected = [(0.0, 0.0)] + [
        (float((scores[labels == 0] >= t).mean()), float((scores[labels == 1] >= t).mean()))
        for t in sorted(set(scores), reverse=True)
    ]
    assert np.allclose(roc(labels, scores), expected)
    groups = calibration(labels, scores)
    assert sum(n for _, _, n in groups) == 200
    assert np.average([seen for _, seen, _ in groups], weights=[n for *_, n in groups]) == pytest.approx(labels.mean())
    assert [predicted for predicted, _, _ in groups] == sorted(predicted for predicted, _, _ in groups)
