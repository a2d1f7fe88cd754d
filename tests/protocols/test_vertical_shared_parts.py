"""Parts whose leaf values are shared: together they are the pooled model, and files are read strictly."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.protocols.vertical.common.parts import (
    Target,
    load_part,
    part_from_dict,
    save_part,
)
from hedgerow.protocols.vertical.common.shared_parts import (
    FOREIGN,
    LEAF,
    PartialTree,
    SharedLeavesPart,
    all_indicators,
    as_owner,
    partial_trees_of,
    shapes_of,
)
from twins.random_parts import random_shared, random_vertical, table_of

RNG = np.random.default_rng


def walked(tree, features, values):
    """Leaves that own splits leave for one row, by walking both ways where another party splits."""
    leaves, found = np.flatnonzero(tree.column == LEAF).tolist(), set()

    def walk(node):
        if tree.column[node] == LEAF:
            found.add(leaves.index(node))
            return
        k = int(np.count_nonzero(tree.column[:node] != LEAF))
        left, right = 2 * k + 1, 2 * k + 2
        if tree.column[node] == FOREIGN:
            walk(left)
            walk(right)
            return
        value, feature = values[tree.column[node]], features[tree.column[node]]
        edges = [*feature.edges, np.inf]
        goes_left = tree.missing_left[node] if np.isnan(value) else value < edges[tree.bin[node]]
        if value == np.inf and tree.bin[node] == len(feature.edges):
            goes_left = True  # every value that is there goes left
        walk(left if goes_left else right)

    walk(0)
    return [int(leaf in found) for leaf in range(tree.n_leaves)]


def test_indicators_are_those_of_a_walk_for_each_row():
    """Values on and around edges, gaps, infinities; every party, trees of depth 0 to 5."""
    rng = RNG(1)
    for depth in (0, 1, 3, 5):
        model = random_shared(rng, n_trees=3, depth=depth)
        tables = model.rows(rng, 60)
        for party, part in model.parts.items():
            table = part.read(tables[party], party)
            codes = part.codes(table)
            values = np.array([column.values for column in table.columns], np.float64).T
            for number, tree in enumerate(part.trees):
                expected = [walked(tree, part.features, row) for row in values]
                found = part.indicators(number, codes)
                assert found.dtype == np.uint8
                assert found.flags.c_contiguous
                assert found.tolist() == expected


def test_all_parties_leave_one_leaf_of_each_tree():
    """The product of everybody's indicators is the leaf of the pooled model, and the shares of it make its value."""
    rng = RNG(2)
    model = random_shared(rng, n_trees=2, n_outputs=3, depth=4)
    tables = model.rows(rng, 100)
    codes = {party: part.codes(part.read(tables[party], party)) for party, part in model.parts.items()}
    scores = np.tile(model.pooled.base_scores, (100, 1))
    for number in range(6):
        bits = [part.indicators(number, codes[party]) for party, part in model.parts.items()]
        left = np.prod(bits, axis=0)
        assert (left.sum(axis=1) == 1).all()
        words = np.sum([part.leaves[number] for part in model.parts.values()], axis=0, dtype=np.uint64)
        scores[:, number % 3] += 0.5 * 2.0**-40 * words.view(np.int64)[left.argmax(axis=1)]
    assert np.allclose(scores, model.exact_scores(tables), rtol=0, atol=2 * 2.0**-41)
    assert len({shapes_of(part.trees) for part in model.parts.values()}) == 1
    assert shapes_of(model.parts["bank"].trees[1:]) != shapes_of(model.parts["bank"].trees)


@pytest.mark.parametrize("label_holder", ["shop", "bank", "clinic"])
def test_partial_trees_of_an_ordinary_part(label_holder):
    """From the label holder's part everybody's view of the trees: together they leave the pooled model's leaf."""
    rng = RNG(3)
    model = random_vertical(rng, label_holder=label_holder, n_trees=5, depth=5)
    tables = model.rows(rng, 150)
    asks = model.parts[label_holder]
    views = partial_trees_of(asks)
    assert set(views) == set(model.parties)
    product = np.uint8(1)
    for party, part in model.parts.items():
        codes = part.codes(part.read(tables[party], party))
        owner = as_owner(asks)[0] if party == label_holder else part
        answers = owner.answers(codes)
        product = product * all_indicators(views[party], answers, [2] * len(answers))
    leaves = model.pooled.apply(model.pooled_rows(tables))
    start = 0
    for number, tree in enumerate(model.pooled.trees):
        here = product[:, start : start + tree.n_leaves]
        start += tree.n_leaves
        assert np.array_equal(np.flatnonzero(tree.is_leaf)[here.argmax(axis=1)], leaves[:, number])
        assert (here.sum(axis=1) == 1).all()
        own = [view[number].column for view in views.values()]
        assert np.array_equal((np.array(own) >= 0).sum(axis=0), tree.feature >= 0)  # every split is one party's


def test_files_give_the_same_part_back(tmp_path):
    """Written and read, a part is the same document; words and splits are the same."""
    model = random_shared(RNG(4), n_trees=3, n_outputs=3, depth=3)
    for party, part in model.parts.items():
        save_part(part, tmp_path / f"{party}.json")
        read = load_part(tmp_path / f"{party}.json")
        assert isinstance(read, SharedLeavesPart)
        assert read.to_dict() == part.to_dict()
        assert all(np.array_equal(a, b) for a, b in zip(read.leaves, part.leaves, strict=True))
        assert read.target == part.target
        for a, b in zip(read.trees, part.trees, strict=True):
            assert np.array_equal(a.column, b.column)
            assert np.array_equal(a.bin, b.bin)
            assert np.array_equal(a.missing_left, b.missing_left)
    assert "base" not in json.dumps(model.parts["shop"].to_dict())
    assert "bank x" not in json.dumps(model.parts["shop"].to_dict())


def test_classes_of_any_plain_kind_survive():
    """Texts, numbers and numpy's numbers."""
    for classes in (("no", "yes"), (0, 1), (np.int64(3), np.int64(7)), (np.bool_(False), np.bool_(True))):
        target = Target("logistic", (0.25,), 0.1, classes)
        assert Target.from_dict(json.loads(json.dumps(target.to_dict()))) == target


def small():
    """The part of a label holder with one tree: own split at the root, another's on the left."""
    trees = (PartialTree(np.array([0, -2, -1, -1, -1]), np.array([1, -1, -1, -1, -1]), np.array([True] + 4 * [False])),)
    features = (FeatureBins("income", [10.0, 20.0]), FeatureBins("town", levels=("a", "b")))
    words = (np.array([2**64 - 1, 0, 5], np.uint64),)
    target = Target("logistic", (0.5,), 0.1, ("no", "yes"))
    return SharedLeavesPart(
        "bank", "bank", ("bank", "shop"), "vertical.mp_fedxgb", "r", features, trees, words, 40, target, {"n": 1}
    )


def changed(*path_and_value):
    """The document of `small` with one thing changed."""
    document = copy.deepcopy(small().to_dict())
    *path, last, value = path_and_value
    place = document
    for step in path:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


NODE = ("trees", 0, "nodes", 0)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (changed("role", "shared"), "role must be one of"),
        (changed("target", ...), "'target' is lacking"),
        (changed("extra", 1), "'extra' that version 2 does not know"),
        (changed("holders", ["bank", 3]), "holders must be names"),
        (changed("holders", ["shop", "bank"]), "the label holder, then all others"),
        (changed("holders", ["bank", "shop", "shop"]), "at least 2 different holders"),
        (changed("holders", ["bank"]), "at least 2 different holders"),
        (changed("party", "shop"), "and no other does"),
        (changed("target", None), "and no other does"),
        (changed("target", []), "target must be null or an object"),
        (changed("target", "loss", "cubic"), "'cubic' does not go with 1 base scores"),
        (changed("target", "base_scores", [0.0, 1.0]), "'logistic' does not go with 2 base scores"),
        (changed("target", "base_scores", ["0"]), "must be numbers"),
        (changed("target", "learning_rate", True), "must be numbers"),
        (changed("target", "learning_rate", ...), "'learning_rate' is lacking"),
        (changed("target", "classes", ["no"]), "1 classes do not go with 1 base scores"),
        (changed("target", "classes", [None, 1]), "classes must be null or a list"),
        (changed("target", "classes", "yes"), "classes must be a list"),
        (changed("fraction_bits", 63), "fraction_bits must be between 0 and 62"),
        (changed("fraction_bits", 1.0), "fraction_bits must be between"),
        (changed("features", [{"name": "x", "edges": []}] * 2), "two columns have the same name"),
        (changed("trees", {}), "trees must be a list"),
        (changed("trees", [3]), "tree 0 must be an object"),
        (changed("trees", 0, "nodes", 3), "nodes must be a list"),
        (changed("trees", 0, "nodes", []), "0 inner nodes of 0 do not make a tree"),
        (changed("trees", 0, "nodes", [None, "other", None]), "do not make a tree, breadth-first"),
        (changed("trees", 0, "nodes", ["other", None]), "1 inner nodes of 2"),
        (changed("trees", 0, "nodes", 1, "another"), "must be null, 'other' or an object"),
        (changed(*NODE, "column", "debt"), r"node 0 of tree 0 is not about one of the columns \['income', 'town'\]"),
        (changed(*NODE, "column", ["income"]), "is not about one of the columns"),
        (changed(*NODE, "column", "town"), "splits column 'town', which has levels"),
        (changed(*NODE, "threshold", 11.0), "the threshold of node 0 of tree 0 is not an edge of column 'income'"),
        (changed(*NODE, "threshold", True), "is not an edge"),
        (changed(*NODE, "missing_left", 0), "must say whether missing values go left"),
        (changed(*NODE, "missing_left", ...), "'missing_left' is lacking"),
        (changed("trees", 0, "leaves", "AAAAAAAAAAA="), "tree 0 has 3 leaves, but words of shape"),
        (changed("trees", 0, "leaves", "!"), "the leaves of tree 0 are no words"),
        (changed("trees", 0, "leaves", "AAAA"), "the leaves of tree 0 are no words"),
        (changed("trees", 0, "leaves", [0, 0, 0]), "leaves must be text"),
        (changed("meta", 3), "meta must be an object"),
    ],
)
def test_damaged_documents_are_refused(document, says):
    """ModelFileError says what is wrong; the same document unchanged is read."""
    assert part_from_dict(small().to_dict()).to_dict() == small().to_dict()
    with pytest.raises(ModelFileError, match=says):
        part_from_dict(json.loads(json.dumps(document)))


def test_trees_that_cannot_be():
    """A tree says something about own splits and nothing about others; a part's trees fit its columns and words."""
    for column, last_bin, missing in (
        ([0, -1, -1], [-1, -1, -1], [False] * 3),
        ([-2, -1, -1], [0, -1, -1], [False] * 3),
        ([-3, -1, -1], [-1, -1, -1], [False] * 3),
        ([-2, -1, -1], [-1, -1, -1], [True, False, False]),
        ([-2, -1, -1], [-1, -1], [False] * 3),
    ):
        with pytest.raises(InvalidInput, match="a tree"):
            PartialTree(np.array(column), np.array(last_bin), np.array(missing))
    part = small()
    fields = {name: getattr(part, name) for name in SharedLeavesPart.__dataclass_fields__}
    stump = PartialTree(np.array([2, -1, -1]), np.array([0, -1, -1]), np.zeros(3, np.bool_))
    with pytest.raises(InvalidInput, match="bank: tree 0 splits a column that is not there"):
        SharedLeavesPart(**{**fields, "trees": (stump,), "leaves": (np.zeros(2, np.uint64),)})
    with pytest.raises(InvalidInput, match="there are 1 trees, but leaves of 2"):
        SharedLeavesPart(**{**fields, "leaves": 2 * part.leaves})


def test_a_part_reads_rows_by_name():
    """Columns in any order; a column that lacks is named."""
    part = small()
    columns = [Column("town", np.array([0, 1], np.int32), ("a", "b")), Column("income", np.array([5.0, np.nan]))]
    codes = part.codes(part.read(table_of(columns, 2), "bank"))
    assert codes.tolist() == [[0, 3], [0, 1]]
    assert part.indicators(0, codes).tolist() == [[0, 1, 1], [0, 1, 1]]  # missing values go left
    with pytest.raises(InvalidInput, match="income"):
        part.read(table_of(columns[:1], 2), "bank")
