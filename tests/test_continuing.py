"""Models that go on from earlier ones, and joint models that match rows by ids as their training did."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.federation.continuing import where_columns_are_split, where_rows_are_split
from hedgerow.federation.vertical_model import VerticalModel
from twins.features import HOLDERS, OPTIONS, SMALL, Case, federation_of

BUCKETS = {**SMALL, **OPTIONS["vertical.bucket_rr"]}


def shops(n_rows=120):
    """Two tables with a column of ids: the second lacks some rows, and has its own order."""
    rng = np.random.default_rng(3)
    bank = pd.DataFrame({"customer": np.arange(1000, 1000 + n_rows), "income": rng.normal(size=n_rows)})
    shop = pd.DataFrame({"customer": bank["customer"], "basket": rng.normal(size=n_rows)})
    labels = (bank["income"] + shop["basket"] > 0).astype(int).to_numpy()
    return bank, shop.sample(frac=0.8, random_state=1), labels


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_a_model_matches_rows_by_ids_as_its_training_did(tmp_path, transport):
    """Scores are those of the common rows, in the label holder's order; a saved model still knows."""
    bank, shop, labels = shops()
    federation = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", labels), id="customer")
    run = federation.fit("vertical.bucket_rr", **BUCKETS)
    run.model.save(tmp_path / "model")
    model = VerticalModel.load(tmp_path / "model")
    scoring = model.scoring({"bank": bank, "shop": shop}, transport=transport)
    both = bank.merge(shop, on="customer")
    np.testing.assert_array_equal(bank["customer"].to_numpy()[scoring.rows], both["customer"])
    row_by_row = model.scoring({"bank": both[["income"]], "shop": both[["basket"]]})
    np.testing.assert_array_equal(scoring.raw, row_by_row.raw)
    assert row_by_row.rows is None
    assert model.score({"bank": bank, "shop": shop}, labels) > 0.8
    assert len(model.predict({"bank": bank[bank["customer"] == both["customer"][0]], "shop": shop})) == 1


def test_ids_at_one_party_alone_are_refused():
    """Rows are matched by ids everywhere, or nowhere."""
    bank, shop, labels = shops()
    federation = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", labels), id="customer")
    model = federation.fit("vertical.bucket_rr", **BUCKETS).model
    with pytest.raises(InvalidInput, match="shop: its table has no column 'customer', by which the others' rows"):
        model.predict({"bank": bank, "shop": shop.drop(columns="customer")})


def test_what_belongs_to_the_federation_is_sent_there():
    """`fit` names where a thing belongs, and no parameter of an estimator that nobody made."""
    federation = federation_of(Case.of(), "vertical.bucket_rr")
    with pytest.raises(InvalidParameter, match=r"fit takes no sample_weight: weights of rows belong to Federation\."):
        federation.fit("vertical.bucket_rr", sample_weight=np.ones(160), **BUCKETS)
    with pytest.raises(InvalidParameter, match=r"fit takes no eval_set: .*validation=mask"):
        federation.fit("vertical.bucket_rr", eval_set=[], **BUCKETS)


# --- going on --------------------------------------------------------------------------------------------------------


def test_the_label_holder_goes_on_from_what_the_trees_add_up_to():
    """Everybody brings its part, and the label holder what all trees say about each row, without the base score."""
    case = Case.of("levels")
    federation = federation_of(case, "vertical.bucket_rr")
    model = federation.fit("vertical.bucket_rr", **BUCKETS).model
    data = federation.plan("vertical.bucket_rr", **BUCKETS).data
    earlier = where_columns_are_split(model, data, "anna", "logistic", None, {})
    assert {name: brought.part for name, brought in earlier.data.items()} == model.parts
    raw = earlier.data["anna"].init_scores[0] + model.target.base_scores[0]
    np.testing.assert_array_equal(raw, model.decision_function(case.tables))
    assert earlier.record == {"iterations": model.n_iter_, "run_id": model.asking.run_id}


def test_an_earlier_partner_scores_and_keeps_its_part():
    """Who takes no part now is asked about the rows before; without its table that is refused."""
    case = Case.of()
    model = federation_of(case, "vertical.bucket_rr").fit("vertical.bucket_rr", **BUCKETS).model
    tables = {name: table for name, table in case.tables.items() if name != "ben"}
    federation = Federation.vertical(tables, labels=("anna", case.labels))
    data = federation.plan("vertical.bucket_rr", **BUCKETS).data
    with pytest.raises(InvalidInput, match=r"ben has a part of init_model .*: init_tables=\{'ben': X\}"):
        where_columns_are_split(model, data, "anna", "logistic", None, {})
    earlier = where_columns_are_split(model, data, "anna", "logistic", {"ben": case.tables["ben"]}, {})
    assert list(earlier.left) == ["ben"]
    assert set(earlier.scoring.ledgers) == set(HOLDERS)


def test_what_cannot_be_gone_on_from_is_refused():
    """Another loss, other labels, other classes, a model of another kind: with the reason."""
    case = Case.of()
    federation = federation_of(case, "vertical.bucket_rr")
    model = federation.fit("vertical.bucket_rr", **BUCKETS).model
    data = federation.plan("vertical.bucket_rr", **BUCKETS).data
    with pytest.raises(InvalidParameter, match="trained with labels of anna, and this federation's are ben's"):
        where_columns_are_split(model, data, "ben", "logistic", None, {})
    with pytest.raises(InvalidParameter, match="init_model must be the joint model of an earlier run"):
        where_columns_are_split("model.json", data, "anna", "logistic", None, {})
    with pytest.raises(InvalidParameter, match="init_model must be the model of an earlier run"):
        where_rows_are_split(model, data, "logistic")
    strange = Case.of("classes")
    others = federation_of(strange, "vertical.bucket_rr").plan("vertical.bucket_rr", **BUCKETS).data
    with pytest.raises(InvalidInput, match=r"anna: y has the class 2, and init_model knows \[0, 1\]"):
        where_columns_are_split(model, others, "anna", "logistic", None, {})
    numbers = federation_of(Case.of("squared"), "vertical.bucket_rr").plan("vertical.bucket_rr", **BUCKETS).data
    with pytest.raises(InvalidParameter, match="trained with the logistic loss, which this training cannot go on from"):
        where_columns_are_split(model, numbers, "anna", "squared", None, {})
    with pytest.raises(InvalidParameter, match="init_tables are for scoring rows with an init_model"):
        federation.fit("vertical.bucket_rr", init_tables={"ben": 1}, **BUCKETS)
    assert math.isinf(BUCKETS["epsilon"])
