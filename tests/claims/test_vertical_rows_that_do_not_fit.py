"""No row makes a private training between holders of columns fail: what does not fit the schema is mapped."""

import math

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation, Schema
from hedgerow.errors import InvalidParameter

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


@pytest.mark.parametrize("way", [way for way in WAYS if "histograms" in way])
def test_a_class_that_is_not_listed_is_mapped(way):
    """It counts as the first one that is; classes are the schema's, also where one of them does not occur."""
    bank, shop, y = tables()
    y[0] = "perhaps"
    assert fit(way, bank, shop, y).model.parts["bank"].to_dict() is not None
    run = fit(way, bank, shop, np.full(60, "yes", object))
    assert list(run.model.classes_) == ["no", "yes"]


def test_a_class_that_is_not_listed_is_mapped_in_noised_gradients():
    """With a public list of classes a third one ends no run, and counts as the first; else the statement says so."""
    bank, shop, y = tables()
    known = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
    assumed = known.fit("vertical.noised_gradients", epsilon=2.0, delta=1e-5, **SMALL).statement().assumed_of_data
    assert any("was read off the labels" in sentence for sentence in assumed)
    for label in ("perhaps", "no"):
        y[0] = label
        fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", y))
        run = fed.fit("vertical.noised_gradients", epsilon=math.inf, classes=["no", "yes"], **SMALL)
        assert list(run.model.classes_) == ["no", "yes"]
        scores = run.model.predict_proba({"bank": bank, "shop": shop})
        if label == "perhaps":
            other = scores
    assert np.array_equal(scores, other)
    with pytest.raises(InvalidParameter, match="classes must list the two classes"):
        known.fit("vertical.noised_gradients", epsilon=2.0, delta=1e-5, classes=["no"], **SMALL)
