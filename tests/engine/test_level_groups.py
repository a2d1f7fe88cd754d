"""More than 255 levels: groups by a rule that the model states."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import BoostedTreesClassifier, DPBoostClassifier, Federation, Schema, load_model
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.level_groups import REST, frequent_levels, group_of
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError
from hedgerow.schema import hash_groups

RNG = np.random.default_rng(3)
SHOPS = [f"shop {k}" for k in RNG.zipf(1.2, 4000) % 700]
LATE = [int(sum(map(ord, shop)) % 3 == 0) for shop in SHOPS]
TABLE = pa.table({"shop": SHOPS, "x": RNG.normal(size=4000)})


def column(X, **how):
    """The first column, as it is read."""
    return read_table(X, **how).columns[0]


def test_hash_groups_are_public():
    """Fixed for good, of the text alone: these numbers are part of the format of the model file."""
    assert [group_of(level, 254) for level in ("a", "shop 1", "", 7, "7", 7.5, "\N{SNOWMAN}")] == [
        group_of(str(level), 254) for level in ("a", "shop 1", "", "7", 7, "7.5", "\N{SNOWMAN}")
    ]
    assert (group_of("a", 254), group_of("shop 1", 254), group_of(True, 254)) == (98, 192, 218)


def test_hash_does_not_depend_on_rows():
    """A level has the group of its text, whatever other levels there are; an unseen one has its own as well."""
    read = column(TABLE, many_levels="hash")
    assert (read.rule, read.levels) == ("hash", hash_groups(254))
    assert read.values.tolist() == [group_of(shop, 254) for shop in SHOPS]
    like = [FeatureBins("shop", levels=read.levels, rule="hash")]
    unseen = column(pa.table({"shop": ["nowhere", None]}), like=like)
    assert unseen.values.tolist() == [group_of("nowhere", 254), -1]


def test_frequent_levels_have_bins_of_their_own():
    """The 254 with most rows; all others, and those never seen, share the last bin; what is missing has none."""
    read = column(TABLE, many_levels="frequent")
    counts = Counter(SHOPS)
    assert (len(read.levels), read.levels[-1], read.rule) == (255, REST, "frequent")
    fewest = min(counts[level] for level in read.levels[:-1])
    assert all(count <= fewest for shop, count in counts.items() if shop not in read.levels)
    assert all(read.levels[code] in (shop, REST) for shop, code in zip(SHOPS, read.values.tolist(), strict=True))
    like = [FeatureBins("shop", levels=read.levels, rule="frequent")]
    assert column(pa.table({"shop": ["nowhere", None]}), like=like).values.tolist() == [254, -1]


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 5), min_size=256, max_size=300), st.randoms())
def test_frequent_levels_do_not_depend_on_the_order_of_rows(counts, random):
    """Levels with equally many rows are taken by their text."""
    items = list(counts.items())
    random.shuffle(items)
    assert frequent_levels(dict(items)) == frequent_levels(counts)


def test_a_level_that_is_called_like_the_rest():
    """It keeps its bin, and the rest gets another name."""
    found = frequent_levels({REST: 10, **{str(k): 1 for k in range(300)}})
    assert found[-1] == f"{REST}*"
    assert REST in found[:-1]


def test_refusing_names_the_column_and_the_ways_out():
    """As before there were rules."""
    with pytest.raises(InvalidInput, match=r"'shop' has .* at most 255 .* many_levels='hash' or 'frequent'"):
        column(TABLE, many_levels="refuse")
    with pytest.raises(InvalidInput, match="at most 255"):
        BoostedTreesClassifier(many_levels="refuse").fit(TABLE, LATE)
    with pytest.raises(InvalidParameter, match="many_levels must be 'hash', 'frequent' or 'refuse', got 'guess'"):
        BoostedTreesClassifier(many_levels="guess").fit(TABLE, LATE)


def test_few_levels_are_left_alone():
    """A rule is for columns that have too many."""
    few = pa.table({"shop": ["b", "a", None]})
    for many_levels in ("hash", "frequent", "refuse"):
        read = column(few, many_levels=many_levels)
        assert (read.levels, read.rule) == (("a", "b"), None)


def test_numbers_that_are_levels():
    """Whole numbers declared to be categories have the groups of their text."""
    codes = RNG.integers(0, 900, 3000)
    read = column(codes[:, None].astype(float), categorical_features=[0], many_levels="hash")
    assert read.values.tolist() == [group_of(str(code), 254) for code in codes]
    frequent = column(codes[:, None], categorical_features=[0], many_levels="frequent")
    assert all(isinstance(level, str) for level in frequent.levels)


@pytest.mark.parametrize("many_levels", ["hash", "frequent"])
def test_the_model_file_keeps_the_rule(many_levels, tmp_path):
    """The model that a file holds predicts the same, unseen levels included; it is version 2."""
    model = BoostedTreesClassifier(max_iter=5, many_levels=many_levels).fit(TABLE, LATE)
    model.save_model(tmp_path / "model.json")
    again, others = load_model(tmp_path / "model.json"), pa.table({"shop": ["new", *SHOPS[:50]], "x": np.zeros(51)})
    np.testing.assert_array_equal(again.predict_proba(others), model.predict_proba(others))
    document = model.ensemble_.to_dict()
    assert (document["version"], document["features"][0]["rule"]) == (2, many_levels)
    if many_levels == "hash":
        document["features"][0]["levels"][3] = "another"
        with pytest.raises(ModelFileError, match="are not those of its rule"):
            type(model.ensemble_).from_dict(document)


def test_exports_take_codes_of_groups(tmp_path):
    """As they take codes of levels: rows whose groups are written as codes are predicted alike."""
    xgboost = pytest.importorskip("xgboost")
    model = BoostedTreesClassifier(max_iter=3, many_levels="hash").fit(TABLE, LATE)
    model.export_xgboost(tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    codes = read_table(TABLE, like=model.ensemble_.features).matrix(dtype=np.float32)
    rows = xgboost.DMatrix(codes, feature_names=["shop", "x"], feature_types=["c", "q"])
    np.testing.assert_allclose(booster.predict(rows), model.predict_proba(TABLE)[:, 1], rtol=1e-5)


# --- between parties, and in private ---------------------------------------------------------------------------------


def test_owners_with_few_and_with_many_levels():
    """One owner has few levels, the other too many: all go by public groups, and train what the pooled engine does."""
    order = np.argsort([shop not in ("shop 1", "shop 2") for shop in SHOPS], kind="stable")
    whole = TABLE.set_column(1, "x", [np.rint(TABLE.column("x").to_numpy())])
    table, labels, params = whole.take(order), np.array(LATE)[order], {"max_iter": 2, "max_depth": 3}
    cut = sum(shop in ("shop 1", "shop 2") for shop in SHOPS)
    ends = {"a": (0, cut), "b": (cut - 9, 3000), "c": (3000, 4000)}
    owners = {name: (table.slice(start, end - start), labels[start:end]) for name, (start, end) in ends.items()}
    run = Federation.horizontal(owners).fit("horizontal.secure_sum", **params)
    assert run.model.ensemble_.features[0].rule == "hash"
    both = pa.concat_tables([rows for rows, _ in owners.values()])
    everybodys = np.concatenate([theirs for _, theirs in owners.values()])
    pooled = BoostedTreesClassifier(many_levels="hash", **params).fit(both, everybodys)
    np.testing.assert_array_equal(run.model.predict_proba(whole), pooled.predict_proba(whole))


def test_a_schema_puts_levels_into_public_groups(tmp_path):
    """Nobody lists them, and the number of groups may be smaller; file and private training know the rule."""
    schema = Schema.from_public(bounds={"x": (-5, 5)}, levels={"shop": "hash"}, classes=[0, 1], columns=["shop", "x"])
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    model = DPBoostClassifier(schema=schema, epsilon=float("inf"), max_iter=2, max_depth=2).fit(TABLE, LATE)
    assert model.ensemble_.features[0].rule == "hash"
    assert len(model.predict(pa.table({"shop": ["never seen"], "x": [0.0]}))) == 1
    few = Schema.from_public(levels={"shop": 31}, classes=[0, 1])
    assert few["shop"].levels == hash_groups(31)
    assert Schema.from_public(TABLE)["shop"].rule == "hash"
    for wrong in (1, 255, True, "frequent"):
        with pytest.raises(InvalidParameter, match="levels of column 'shop'"):
            Schema.from_public(levels={"shop": wrong})
    with pytest.raises(InvalidParameter, match=r"'hash'.* puts any number of them into 254 public groups"):
        Schema.from_public(levels={"shop": [str(k) for k in range(300)]})


def test_buckets_of_public_groups():
    """A feature holder's many levels go into as many public groups as there are buckets for."""
    schema = Schema.from_public(levels={"shop": 15}, bounds={"x": (-5, 5)}, may_be_missing=["shop"])
    parties = {"bank": TABLE.select(["x"]), "mall": TABLE.select(["shop"])}
    run = Federation.vertical(parties, labels=("bank", LATE)).fit(
        "vertical.bucket_rr", epsilon=8.0, schema=schema, buckets=16, max_iter=2, max_depth=3
    )
    feature = run.model.parts["mall"].features[0]
    assert (feature.rule, len(feature.levels)) == ("hash", 15)
    assert len(run.model.predict({"bank": TABLE.select(["x"]), "mall": pa.table({"shop": ["new"] * 4000})})) == 4000


def test_a_pandas_category_with_many_levels():
    """Declared levels that no row has do not count, as ever."""
    declared = pd.Categorical(SHOPS[:100], categories=[f"shop {k}" for k in range(700)])
    assert column(pd.DataFrame({"shop": declared}), many_levels="hash").rule is None
    everything = pd.Categorical(SHOPS)
    assert column(pd.DataFrame({"shop": everything}), many_levels="hash").rule == "hash"
