"""The parts of a vertical model: together they are the pooled model, alone each says only what is its party's own."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.protocols.vertical.common.parts import (
    LabelHolderPart,
    OwnerPart,
    Questions,
    composite_features,
    divide,
    load_part,
    part_from_dict,
    save_part,
)
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from twins.pooled_trees import thresholds_of
from twins.random_models import random_ensemble
from twins.random_parts import random_vertical, table_of

RNG = np.random.default_rng


def joint_scores(model, tables):
    """Scores by the parts, without any protocol between them."""
    codes = {party: part.codes(part.read(tables[party], party)) for party, part in model.parts.items()}
    asks = model.parts[model.label_holder]
    answers = {party: model.parts[party].answers(codes[party]) for party in asks.handles}
    return asks.raw_scores(codes[model.label_holder], answers)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("label_holder", ["shop", "bank", "clinic"])
def test_the_parts_together_are_the_pooled_model(label_holder, n_outputs):
    """Raw scores are equal to the last bit, for every kind of column and value."""
    rng = RNG(7)
    for depth in (1, 4, 7):
        model = random_vertical(rng, label_holder=label_holder, n_trees=6, n_outputs=n_outputs, depth=depth)
        tables = model.rows(rng, 500)
        assert np.array_equal(joint_scores(model, tables), model.pooled_scores(tables))


def test_equal_questions_have_one_handle_in_the_order_of_columns():
    """Handles are different questions, sorted by column and bin: no order of trees is left in them."""
    model = random_vertical(RNG(1), n_trees=30, depth=5, n_bins=4)
    for party in ("shop", "clinic"):
        q = model.parts[party].questions
        levels = [row.tobytes() for row in q.left_levels]
        keys = list(zip(q.column.tolist(), q.bin.tolist(), q.missing_left.tolist(), levels, strict=True))
        assert len(set(keys)) == len(keys)
        assert [key[:3] for key in keys] == sorted(key[:3] for key in keys)
    n_splits = sum(np.count_nonzero(tree.feature >= 0) for tree in model.pooled.trees)
    assert sum(model.parts["bank"].handles.values()) < n_splits


def test_the_owners_part_holds_no_tree_and_the_label_holders_no_foreign_threshold():
    """What is written down for a party names nothing that another party keeps for itself."""
    model = random_vertical(RNG(2), n_trees=5)
    shop, bank = (json.dumps(model.parts[party].to_dict()) for party in ("shop", "bank"))
    assert "tree" not in shop
    assert "value" not in shop
    assert "bank x" not in shop
    assert "shop x" not in bank
    assert "shop level" not in bank
    asks = model.parts["bank"]
    for tree in asks.ensemble.trees:  # nor does it say where missing values go, or which levels
        foreign = tree.feature >= asks.n_own
        assert set(tree.threshold[foreign]) <= {0.5}
        assert not tree.missing_left[foreign].any()
        assert (tree.level_set[foreign] < 0).all()
    for feature in model.parts["shop"].features[:3]:
        assert not any(str(edge) in bank for edge in feature.edges.tolist())


def test_answers_follow_the_values():
    """A handle is x < threshold, or a group of levels; missing and unseen values go where the split says."""
    features = (FeatureBins("x", [1.0, 2.0]), FeatureBins("c", levels=("a", "b", "d")))
    levels = np.zeros((4, 256), np.bool_)
    levels[3, [0, 2]] = True
    questions = Questions(
        np.array([0, 0, 0, 1], np.int32),
        np.array([0, 1, 2, -1], np.int32),
        np.array([True, False, False, True]),
        levels,
    )
    part = OwnerPart("shop", "bank", "vertical.bucket_rr", "r", features, questions)
    assert np.array_equal(thresholds_of(part), [1.0, 2.0, np.inf, np.nan], equal_nan=True)
    columns = [
        Column("c", np.array([0, 1, 3, -1, 2], np.int32), ("a", "b", "d", "z")),
        Column("x", np.array([0.5, 1.0, np.inf, np.nan, 1.5])),
    ]
    table = part.read(table_of(columns, 5), "shop")
    assert part.answers(part.codes(table)).tolist() == [
        [0, 1, 1, 0, 1],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 0],
        [0, 1, 0, 0, 0],
    ]


def test_files_give_the_same_part_back(tmp_path):
    """Written and read, a part is the same document, and scores the same."""
    rng = RNG(3)
    model = random_vertical(rng, n_trees=5, n_outputs=3)
    tables = model.rows(rng, 200)
    expected = joint_scores(model, tables)
    read = {}
    for party, part in model.parts.items():
        save_part(part, tmp_path / f"{party}.json")
        read[party] = load_part(tmp_path / f"{party}.json")
        assert type(read[party]) is type(part)
        assert read[party].to_dict() == part.to_dict()
    for ours, theirs in zip(model.parts["shop"].questions, read["shop"].questions, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    assert np.array_equal(joint_scores(type(model)(model.pooled, model.owners, "bank", read), tables), expected)


def broken_documents():
    """Documents with one thing wrong, and a word of the error."""
    model = random_vertical(RNG(4), n_trees=3)
    owner, asks = model.parts["shop"].to_dict(), model.parts["bank"].to_dict()
    numeric = next(k for k, split in enumerate(owner["splits"]) if split.get("threshold") is not None)
    by_levels = next(k for k, split in enumerate(owner["splits"]) if "left_levels" in split)

    def changed(document, *path_and_value):
        *path, last, value = path_and_value
        inner = changed_copy = copy.deepcopy(document)
        for key in path:
            inner = inner[key]
        inner[last] = value
        return changed_copy

    yield [], "part of a vertical model"
    yield {}, "part of a vertical model"
    yield changed(owner, "format", "hedgerow-model"), "part of a vertical model"
    yield changed(owner, "version", 3), "version 3"
    yield changed(owner, "version", True), "version True"
    yield changed(owner, "role", "coordinator"), "role must be"
    yield changed(owner, "role", ["label_holder"]), "role must be"
    yield changed(owner, "role", "label_holder"), "lacking"
    yield changed(owner, "secret", 1), "'secret'"
    yield {key: value for key, value in owner.items() if key != "meta"}, "'meta' is lacking"
    yield changed(owner, "meta", []), "meta"
    yield changed(owner, "party", 3), "party must be text"
    yield changed(owner, "features", {}), "features must be a list"
    yield changed(owner, "features", 0, 3), "feature"
    yield changed(owner, "features", 0, "edges", [2.0, 1.0]), "strictly increasing"
    yield changed(owner, "features", 0, "edges", ["1"]), "edges of feature"
    yield changed(owner, "features", 1, "name", owner["features"][0]["name"]), "same name"
    yield changed(owner, "splits", None), "splits must be a list"
    yield changed(owner, "splits", 0, 3), "split 0"
    yield changed(owner, "splits", 0, "column", "other"), "split 0"
    yield changed(owner, "splits", 0, "column", []), "split 0"
    yield changed(owner, "splits", 0, "missing_left", 1), "missing values go left"
    yield changed(owner, "splits", 0, "gain", 1.0), "'gain'"
    yield changed(owner, "splits", numeric, "threshold", 0.123), "not an edge"
    yield changed(owner, "splits", numeric, "threshold", 10**400), "not an edge"
    yield changed(owner, "splits", numeric, "threshold", "1"), "not an edge"
    yield changed(owner, "splits", by_levels, "left_levels", ["level 99"]), "a level that column"
    yield changed(owner, "splits", by_levels, "left_levels", [["level 1"]]), "a level that column"
    yield changed(owner, "splits", by_levels, "left_levels", "level 1"), "must be a list"
    yield changed(asks, "handles", []), "handles"
    yield changed(asks, "handles", "shop", -1), "handles"
    yield changed(asks, "handles", "shop", True), "handles"
    yield changed(asks, "handles", "shop", 10**6), "fewer columns than there are handles"
    yield changed(asks, "handles", "bank", 0), "asks nothing of itself"
    yield changed(asks, "handles", "shop", asks["handles"]["shop"] + 1), "stands for a handle"
    yield changed(asks, "model", None), "lacks its model"
    yield changed(asks, "model", "trees", 0, "left", 0, 5), "breadth-first"
    yield changed(asks, "model", "features", -1, "edges", [0.25]), "threshold"


@pytest.mark.parametrize(("document", "says"), list(broken_documents()))
def test_a_broken_file_is_refused(tmp_path, document, says):
    """One error for whatever is wrong with a file, which names the file and the fault."""
    with pytest.raises(ModelFileError, match=says):
        part_from_dict(document)
    path = tmp_path / "part.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=r"part\.json"):
        load_part(path)


def test_half_a_file_is_refused(tmp_path):
    """A file that was cut off is not a part."""
    path = tmp_path / "part.json"
    save_part(random_vertical(RNG(5)).parts["shop"], path)
    path.write_text(path.read_text()[:-100])
    with pytest.raises(ModelFileError, match="complete JSON"):
        load_part(path)


def test_a_question_that_does_not_fit_its_column_is_refused():
    """A part cannot be made with handles for columns, bins or levels that are not there."""
    features = (FeatureBins("x", [1.0]), FeatureBins("c", levels=("a",)))
    nothing = np.zeros((1, 256), np.bool_)

    def asking(column, last_bin):
        q = Questions(np.array([column], np.int32), np.array([last_bin], np.int32), np.array([True]), nothing)
        return OwnerPart("shop", "bank", "p", "r", features, q)

    assert asking(0, 1).n_handles == 1
    for column, last_bin in ((2, 0), (-1, 0), (0, 2), (0, -1), (1, 0)):
        with pytest.raises(InvalidInput, match="shop: handle 0"):
            asking(column, last_bin)


def test_names_of_handles_never_clash_with_columns(tmp_path):
    """The label holder may have a column that is called as a handle would be."""
    own = [FeatureBins("shop #0", [0.0]), FeatureBins("shop #0'", [0.0])]
    names = [feature.name for feature in composite_features(own, {"shop": 2}).features]
    assert len(set(names)) == 4
    features = (*own, FeatureBins("y", [0.0, 1.0]))
    pooled = random_ensemble(RNG(6), BinMapper(features), n_trees=5)
    asks, _ = divide(pooled, ["bank", "bank", "shop"], "bank", protocol="p", run_id="r")
    save_part(asks, tmp_path / "part.json")
    assert isinstance(load_part(tmp_path / "part.json"), LabelHolderPart)


def test_parties_without_columns_or_splits():
    """A label holder without columns only asks; a party that is never asked has no handle."""
    features = (FeatureBins("x", [0.0, 1.0]),)
    pooled = random_ensemble(RNG(8), BinMapper(features), n_trees=4, depth=2)
    asks, questions = divide(pooled, ["shop"], "bank", protocol="p", run_id="r")
    assert asks.n_own == 0
    owner = OwnerPart("shop", "bank", "p", "r", features, questions["shop"])
    codes = RNG(9).integers(0, 4, (1, 50)).astype(np.uint8)
    scores = asks.raw_scores(asks.codes(table_of([], 50)), {"shop": owner.answers(codes)})
    assert np.array_equal(scores, pooled.raw_scores_binned(codes))
    leaves = random_ensemble(RNG(8), BinMapper(features), n_trees=2, depth=0)
    asks, questions = divide(leaves, ["shop"], "bank", protocol="p", run_id="r")
    assert asks.handles == {"shop": 0}
    assert questions["shop"].n_handles == 0
    assert asks.first_column("shop") == 0


def test_the_examples_on_the_page_are_parts_of_one_model():
    """What docs/reference/vertical_model.md shows can be read, fits together, and is what would be written."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "vertical_model.md"
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)]
    owner, asks, shared = (part_from_dict(example) for example in examples)
    assert [owner.to_dict(), asks.to_dict(), shared.to_dict()] == examples
    assert isinstance(shared, SharedLeavesPart)
    assert shared.trees[0].n_leaves == len(shared.leaves[0]) == 3
    assert isinstance(asks, LabelHolderPart)
    assert asks.handles == {owner.party: owner.n_handles}
    assert asks.run_id == owner.run_id
    codes = owner.codes(owner.read(table_of([Column("basket", np.array([17.0, 17.5])), region(2)], 2), "shop"))
    own = asks.codes(table_of([Column("income", np.array([2999.0, 2999.0]))], 2))
    assert asks.raw_scores(own, {"shop": owner.answers(codes)}).ravel().tolist() == [-0.4 + 0.25, -0.4 - 0.125]


def region(n_rows):
    """A column in which all is east."""
    return Column("region", np.zeros(n_rows, np.int32), ("east",))
