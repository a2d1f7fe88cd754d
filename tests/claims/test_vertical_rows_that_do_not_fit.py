"""No row makes a private training between holders of columns fail: what does not fit the schema is mapped."""

import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation, Schema
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.runtime import protocol as protocols
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import agreed

SMALL = {"n_estimators": 1, "max_depth": 1}
WAYS = {
    "vertical.bucket_rr": {"epsilon": 2.0, **SMALL},
    "vertical.bucket_rr, private edges": {"epsilon": 2.0, "edges": "private", **SMALL},
    "vertical.private_histograms": {"epsilon": 2.0, **SMALL},
    "vertical.private_histograms, smooth": {"epsilon": 2.0, "policy": "smooth_then_trees"},
}


def tables(n_rows=60):
    """Two parties, all of whose values fit."""
    rng = np.random.default_rng(0)
    bank = pd.DataFrame({"x": rng.normal(size=n_rows)})
    shop = pd.DataFrame({"z": rng.normal(size=n_rows), "w": rng.normal(size=n_rows)})
    return bank, shop, np.where(bank["x"] > 0, "yes", "no").astype(object)


def fit(way, bank, shop, y, **more):
    """A run with a schema that allows neither gaps nor other classes."""
    schema = Schema.from_public(bounds={"x": (-3, 3), "z": (-3, 3), "w": (-3, 3)}, levels=more, classes=["no", "yes"])
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    return fed.fit(way.split(",")[0], schema=schema, **WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_a_gap_where_none_is_allowed_is_mapped(way):
    """One missing value, or a whole column of them: the run ends, and no error tells."""
    for rows in (slice(0, 1), slice(None)):
        bank, shop, y = tables()
        shop.loc[shop.index[rows], "z"] = np.nan
        assert fit(way, bank, shop, y).model is not None


@pytest.mark.parametrize(
    "way", ["vertical.bucket_rr", "vertical.bucket_rr, private edges", "vertical.private_histograms, smooth"]
)
def test_a_level_that_is_not_listed_is_mapped(way):
    """A town that the schema does not know."""
    bank, shop, y = tables()
    shop["town"] = pd.Categorical(["rome", *["oslo", "bern"] * 29, "oslo"])
    assert fit(way, bank, shop, y, town=["bern", "oslo"]).model is not None


# --- without noise: the same as with the row replaced by hand -------------------------------------------------------

NUMBERS = Schema.from_public(bounds={"x": (-3, 3), "z": (-3, 3), "w": (-3, 3)}, classes=["no", "yes"])
EXACT = {
    "vertical.bucket_rr": {"epsilon": math.inf, "n_estimators": 2, "max_depth": 2},
    "vertical.private_histograms": {"epsilon": math.inf, "n_estimators": 2, "max_depth": 2},
    "vertical.private_histograms, open": {
        "epsilon": math.inf, "reveal": "histogram", "n_estimators": 2, "max_depth": 2, "random_state": 0,
    },
    "vertical.private_histograms, smooth": {"epsilon": math.inf, "policy": "smooth_then_trees", "random_state": 0},
    "vertical.noised_gradients": {"epsilon": math.inf, "n_estimators": 2, "max_depth": 2},
}  # fmt: skip
BY_SCHEMA = [way for way in EXACT if "noised" not in way]


def with_cell(table, column, cell):
    """The same table with something else in row 7 of a column, which then holds objects."""
    values = table[column].astype(object)
    values.iloc[7] = cell
    return table.assign(**{column: values})


def exactly(way, bank, shop, y, schema=NUMBERS, **more):
    """A run without noise, by the schema; or where a protocol has none, by its list of classes."""
    public = {"classes": list(schema.classes)} if "noised" in way else {"schema": schema}
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    return fed.fit(way.split(",")[0], **public, **EXACT[way], **more)


def parts(run):
    """All parts of a model, but for the number of the run and what is said about it."""
    found = {}
    for name, part in run.model.parts.items():
        told = part.to_dict()
        for key in ("run_id", "meta"):
            told.pop(key, None)
        found[name] = json.dumps(told, sort_keys=True, default=str).replace(run.job.run_id, "")
    return found


def lines(run):
    """Messages and their sizes, as all ledgers have them."""
    return {
        name: [(line.direction, line.peer, line.message, line.n_bytes) for line in ledger]
        for name, ledger in run.ledgers.items()
    }


def frames(run):
    """All that was sent and received, byte for byte, by party and peer."""
    return {
        name: sorted((peer, [p.frame for p in transcript if p.peer == peer]) for peer in {p.peer for p in transcript})
        for name, transcript in run.transcripts.items()
    }


@pytest.fixture
def same_randomness(monkeypatch):
    """A party's masks and shares are the same in every run: rounding on shares depends on them."""
    made = Party.__init__

    def seeded(self, *given, **options):
        made(self, *given, **options)
        self.rng = SecureRandom.from_seed(hashlib.sha256(self.name.encode()).digest())

    monkeypatch.setattr(Party, "__init__", seeded)


@pytest.mark.parametrize("way", BY_SCHEMA)
@pytest.mark.parametrize("cell", ["n/a", {"an": "object"}, "1e300"], ids=str)
@pytest.mark.usefixtures("same_randomness")
def test_a_cell_that_does_not_fit_counts_as_the_default(way, cell):
    """At the feature holder and at the label holder alike: the middle of the bounds, or the nearest bound."""
    bank, shop, y = tables()
    shown = 3.0 if cell == "1e300" else 0.0
    # Who trains alone makes bins of its own columns as it likes, and needs no bounds.
    odd_bank, plain_bank = (bank, bank) if shown and "rr" in way else (with_cell(bank, "x", v) for v in (cell, shown))
    odd = exactly(way, odd_bank, with_cell(shop, "z", cell), y, record=True)
    by_hand = exactly(way, plain_bank, with_cell(shop, "z", shown), y, record=True)
    assert parts(odd) == parts(by_hand)
    assert lines(odd) == lines(by_hand)
    assert frames(odd) == frames(by_hand)


@pytest.mark.parametrize("way", BY_SCHEMA)
@pytest.mark.usefixtures("same_randomness")
def test_text_that_was_read_as_levels_counts_as_numbers(way):
    """A file in which one number is "n/a" is read as text without a schema; only that row is mapped."""
    bank, shop, y = tables()
    by_hand = exactly(way, bank, with_cell(shop, "z", 0.0).astype({"z": float}), y)
    text = shop.assign(z=with_cell(shop, "z", "n/a")["z"].map(str))
    assert parts(exactly(way, bank, text, y)) == parts(by_hand)


@pytest.mark.parametrize("label", [None, "perhaps"])
@pytest.mark.parametrize("way", EXACT)
@pytest.mark.usefixtures("same_randomness")
def test_a_label_that_does_not_fit(way, label):
    """It counts as the first class where others hold shares or gradients of it; who trains alone leaves the row out."""
    bank, shop, y = tables()
    bad, first = y.copy(), y.copy()
    bad[7], first[7] = label, "no"
    run = exactly(way, bank, shop, bad)
    assert list(run.model.classes_) == ["no", "yes"]
    if "bucket_rr" in way:
        others = np.arange(60) != 7
        assert parts(run) == parts(exactly(way, bank[others], shop[others], y[others]))
    else:
        assert parts(run) == parts(exactly(way, bank, shop, first))


@pytest.mark.parametrize("way", EXACT)
def test_labels_none_of_which_fits(way):
    """Or all of which are the same."""
    bank, shop, y = tables()
    for label in (None, "yes"):
        run = exactly(way, bank, shop, np.full(60, label, object))
        assert list(run.model.classes_) == ["no", "yes"]
    assert len(y) == 60


@pytest.mark.parametrize("way", ["vertical.bucket_rr", "vertical.noised_gradients"])
def test_a_number_that_does_not_fit_as_a_label(way):
    """One beyond the declared range counts as its end; a missing one as its middle, or not at all."""
    bank, shop, _ = tables()
    target = np.clip(bank["x"].to_numpy(), -2, 2)
    options = {"label_range": (-2.0, 2.0), **EXACT[way]}
    options |= {"schema": NUMBERS} if "bucket" in way else {}

    def trained(values, rows=slice(None)):
        tables = {"bank": bank[rows], "shop": shop[rows]}
        return parts(Federation.vertical(tables, labels=("bank", values[rows]), task="regression").fit(way, **options))

    def with_label(value):
        return np.where(np.arange(60) == 7, value, target)

    assert trained(with_label(77.0)) == trained(with_label(2.0))
    assert trained(with_label(-math.inf)) == trained(with_label(-2.0))
    others = np.arange(60) != 7
    without = trained(target, others) if "bucket" in way else trained(with_label(0.0))
    assert trained(with_label(math.nan)) == without


# --- who is told -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", EXACT)
@pytest.mark.usefixtures("same_randomness")
def test_only_the_own_log_has_the_number(way, caplog):
    """Neither messages nor the model nor the statement depend on how many rows were mapped."""
    bank, shop, y = tables()
    first = np.where(np.arange(60) < 9, "no", y).astype(object)
    bad = np.where(np.arange(60) < 9, "perhaps", y).astype(object)
    odd = shop.assign(z=np.where(np.arange(60) < 13, np.nan, shop["z"]))
    plain = shop.assign(z=np.where(np.arange(60) < 13, 0.0, shop["z"])) if "noised" not in way else odd
    by_hand = exactly(way, bank, plain, first)
    assert not caplog.messages
    run = exactly(way, bank, odd, bad)
    told = sorted(caplog.messages)
    assert told[0].startswith("bank: 9 of its rows did not fit")
    assert len(told) == (1 if "noised" in way else 2)
    assert all(message.startswith("shop: 13 of its rows did not fit") for message in told[1:])
    if "bucket_rr" not in way:  # which leaves rows out, so that the model asks something else
        assert lines(run) == lines(by_hand)
        assert [part.meta for part in run.model.parts.values()] == [part.meta for part in by_hand.model.parts.values()]
    with_dates = [replace(each.statement(), date=None).words for each in (run, by_hand)]
    assert with_dates[0] == with_dates[1]
    assert "in the log of the party that has them, and in no message" in with_dates[0].replace("\n  ", " ")


# --- public rows ------------------------------------------------------------------------------------------------------

NOISY = {
    "vertical.bucket_rr": {"epsilon": 2.0, "schema": NUMBERS, **SMALL},
    "vertical.private_histograms": {"epsilon": 2.0, "schema": NUMBERS, **SMALL},
    "vertical.private_histograms, smooth": {"epsilon": 2.0, "schema": NUMBERS, "policy": "smooth_then_trees"},
    "vertical.noised_gradients": {"epsilon": 2.0, "delta": 1e-6, "classes": ["no", "yes"], **SMALL},
}


@pytest.mark.parametrize("way", NOISY)
def test_an_error_for_a_row_costs_the_guarantee(way, tmp_path):
    """on_bad_rows="raise": the statement is stamped and claims nothing, and no budget allows it."""
    bank, shop, y = tables()
    protocol, options = way.split(",")[0], {**NOISY[way], "on_bad_rows": "raise"}
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    run = fed.fit(protocol, **options)
    statement = run.statement()
    assert str(statement).startswith("NOT PRIVATE: on_bad_rows='raise'")
    assert run.model.parts["bank"].meta["stamp"].startswith("NOT PRIVATE: on_bad_rows='raise'")
    assert statement.facts["model_is_private"] is False
    assert (statement.registry.flavour, statement.registry.loss) == ("none", {})
    assert "epsilon" not in " ".join(statement.guarantee)
    owner, adjacency = ("bank" if "noised" in way else "shop"), ("add_remove" if "histograms" in way else "replace_one")
    budget = BudgetFile(tmp_path / "budget").open("rows", 1000.0, 1e-3, adjacency)
    with pytest.raises(HedgerowError, match="on_bad_rows='raise'"):
        fed.fit(protocol, budget={owner: budget}, **options)
    if "bucket" in way:
        with pytest.raises(HedgerowError, match="on_bad_rows='raise'"):
            fed.fit(protocol, budget={owner: budget}, cache=str(tmp_path / "kept"), **options)
    assert not budget.entries()


@pytest.mark.parametrize("way", NOISY)
def test_what_raises(way):
    """A label, and where columns are protected a value; all parties must have agreed to it."""
    bank, shop, y = tables()
    protocol, options = way.split(",")[0], {**NOISY[way], "on_bad_rows": "raise"}
    bad = y.copy()
    bad[7] = "perhaps"
    with pytest.raises(InvalidInput, match="bank: a label is missing, or not one of the classes"):
        Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", bad)).fit(protocol, **options)
    if "noised" not in way:
        gap = shop.assign(z=np.where(np.arange(60) == 7, np.nan, shop["z"]))
        with pytest.raises(InvalidInput, match="shop: column 'z' has missing values"):
            Federation.vertical({"bank": bank, "shop": gap}, labels=("bank", y)).fit(protocol, **options)
        tolerant = {"bank": bank, "shop": with_cell(shop, "z", "n/a")}
        with pytest.raises(InvalidInput, match="shop: "):
            Federation.vertical(tolerant, labels=("bank", y)).fit(protocol, **options)
    with pytest.raises(InvalidParameter, match="on_bad_rows must be 'map' or 'raise', got 'drop'"):
        Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y)).fit(
            protocol, **{**options, "on_bad_rows": "drop"}
        )
    job = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y)).fit(protocol, **NOISY[way]).job
    found = protocols.find(protocol)
    assert agreed(found, job) != agreed(found, replace(job, on_bad_rows="raise"))
    assert (
        found.job.from_dict(json.loads(json.dumps(replace(job, on_bad_rows="raise").to_dict()))).on_bad_rows == "raise"
    )


def test_misfits_are_known_to_the_process_of_their_party():
    """Text in a column that may have gaps is a gap when it is read; that it was a misfit is not forgotten."""
    bank, shop, y = tables()
    gaps = Schema.from_public(
        bounds={"x": (-3, 3), "z": (-3, 3), "w": (-3, 3)}, may_be_missing=["z"], classes=["no", "yes"]
    )
    odd, gap = with_cell(shop, "z", "n/a"), with_cell(shop, "z", None)
    assert parts(exactly("vertical.bucket_rr", bank, odd, y, gaps, transport="grpc")) == parts(
        exactly("vertical.bucket_rr", bank, gap, y, gaps)
    )
    exactly("vertical.bucket_rr", bank, gap, y, gaps, on_bad_rows="raise")
    with pytest.raises(InvalidInput, match="shop: X: column 'z' mixes text and numbers"):
        exactly("vertical.bucket_rr", bank, odd, y, gaps, on_bad_rows="raise", transport="grpc")


def test_a_column_of_numbers_costs_its_edges_also_if_one_is_text():
    """A budget is charged by what the schema says about a column, not by what its cells look like."""
    bank, shop, y = tables()
    text = shop.assign(z=with_cell(shop, "z", "n/a")["z"].map(str))
    options = {"schema": NUMBERS, "edges": "private", "epsilon": 1.0, **SMALL}
    runs = [Federation.vertical({"bank": bank, "shop": each}, labels=("bank", y)) for each in (shop, text)]
    job, found = runs[0].fit("vertical.bucket_rr", **options).job, protocols.find("vertical.bucket_rr")
    plain, odd = (found.planned(job, "shop", fed._brought["shop"].strictly()) for fed in runs)
    assert runs[1]._brought["shop"].strictly().table.columns[0].levels is not None
    assert plain == odd


# --- what is public ---------------------------------------------------------------------------------------------------


def test_rows_and_labels_must_be_equally_many():
    """How many there are of each is not for logs, and is not a matter of single rows."""
    bank, shop, y = tables()
    with pytest.raises(InvalidInput, match="bank"):
        Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y[1:]))


def test_where_classes_are_not_listed_the_statement_says_so():
    """They are read off the labels then."""
    bank, shop, y = tables()
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    without = replace(NUMBERS, classes=None)
    for way, options in NOISY.items():
        if "bucket" in way:
            continue
        more = {"classes": None} if "noised" in way else {"schema": without}
        assumed = fed.fit(way.split(",")[0], **{**options, **more}).statement().assumed_of_data
        assert any("was read off the labels" in sentence for sentence in assumed)
    with pytest.raises(InvalidParameter, match="classes must list two or more different classes"):
        fed.fit("vertical.noised_gradients", epsilon=2.0, delta=1e-5, classes=["no"], **SMALL)
