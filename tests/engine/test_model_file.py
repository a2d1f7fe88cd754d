"""The model file: exact both ways, strict on the way in, and what its page says it is."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine import model_file
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput, ModelFileError
from twins.random_models import random_ensemble, random_mapper, random_matrix

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "model_file.md"


def small_model(seed: int = 0, **shape: Any) -> Ensemble:
    """A random model with numeric and categorical features."""
    rng = np.random.default_rng(seed)
    return random_ensemble(rng, random_mapper(rng, 3, 1), **({"depth": 3, "split_probability": 0.9} | shape))


def same(one: Ensemble, other: Ensemble) -> bool:
    """Equal in everything that a model is."""
    return (
        one.features == other.features
        and one.trees == other.trees
        and one.base_scores.tobytes() == other.base_scores.tobytes()
        and (one.loss, one.classes, one.meta) == (other.loss, other.classes, other.meta)
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_outputs=st.sampled_from([1, 3]), depth=st.integers(0, 5))
def test_what_is_saved_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n_outputs: int, depth: int
) -> None:
    """Every number of a model comes back the same to the last bit, through a dict and through a file."""
    model = small_model(seed, n_outputs=n_outputs, depth=depth)
    path = tmp_path_factory.mktemp("models") / "model.json"
    model.save(path)
    assert same(Ensemble.load(path), model)
    assert same(Ensemble.from_dict(model.to_dict()), model)
    matrix = random_matrix(np.random.default_rng(seed), model.mapper, 50)
    assert np.array_equal(Ensemble.load(path).raw_scores(matrix), model.raw_scores(matrix))


@pytest.mark.parametrize("classes", [None, (False, True), (np.int64(3), np.int64(9)), ("no", "yes"), (0.5, 2.0)])
def test_classes_keep_their_type(classes: Any, tmp_path: Path) -> None:
    """Text, numbers and booleans are told apart after loading; numpy's become Python's."""
    model = small_model()
    model.classes = classes
    model.save(tmp_path / "model.json")
    loaded = Ensemble.load(tmp_path / "model.json").classes
    plain = None if classes is None else tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    assert loaded == plain
    assert list(map(type, loaded or ())) == list(map(type, plain or ()))


def test_extreme_numbers_come_back(tmp_path: Path) -> None:
    """The smallest, the largest and negative zero."""
    model = small_model()
    model.trees[0].value[-1] = np.float32(1e-45)
    model.trees[0].value[-2] = np.finfo(np.float32).max
    model.trees[0].cover[0] = 5e-324
    model.base_scores[0] = -0.0
    model.save(tmp_path / "model.json")
    assert same(Ensemble.load(tmp_path / "model.json"), model)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    """What cannot be written is refused in words, the file of before stays, and no half-written one lies about."""
    path = tmp_path / "model.json"
    model = small_model()
    model.save(path)
    before = path.read_bytes()
    model.meta["loss_history"] = [float("nan")]
    with pytest.raises(InvalidInput, match="meta can hold only"):
        model.save(path)
    model.classes = (b"yes", b"no")
    with pytest.raises(InvalidInput, match="classes"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """Saving to a symbolic link replaces what it points to, not the link."""
    (tmp_path / "link.json").symlink_to(tmp_path / "model.json")
    small_model().save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert same(Ensemble.load(tmp_path / "model.json"), small_model())


# --- the page --------------------------------------------------------------------------------------------------------


def documented(heading: str) -> list[str]:
    """Names in the first column of the table under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_the_page_lists_every_field_that_is_written_and_no_other() -> None:
    """docs/reference/model_file.md and the writer agree on the fields of model, feature and tree."""
    document = small_model(n_trees=30).to_dict()
    assert documented("The document") == list(document)
    assert documented("A tree") == list(document["trees"][0])
    fields = {name for feature in document["features"] for name in feature}
    assert sorted(documented("A feature")) == sorted({*fields, "rule"})  # of dates and groups of levels alone
    assert set(document) == set(model_file.MODEL_FIELDS)
    assert set(document["trees"][0]) == set(model_file.TREE_FIELDS)


def test_the_page_is_enough_to_predict() -> None:
    """Following the page step by step on the bare document gives the raw scores to the last bit."""
    model = small_model(n_outputs=2)
    document = json.loads(json.dumps(model.to_dict()))
    matrix = random_matrix(np.random.default_rng(1), model.mapper, 40)
    expected = model.raw_scores(matrix)
    for row, scores in zip(matrix.tolist(), expected, strict=True):
        for k, base in enumerate(document["base_scores"]):
            total = np.float32(0)
            for tree in document["trees"][k :: len(document["base_scores"])]:
                total += np.float32(tree["value"][_leaf_by_the_page(tree, document["features"], row)])
            assert base + float(total) == scores[k]


def _leaf_by_the_page(tree: dict[str, Any], features: list[dict[str, Any]], row: list[float]) -> int:
    node = 0
    while tree["feature"][node] >= 0:
        feature, x = features[tree["feature"][node]], row[tree["feature"][node]]
        if math.isnan(x) or ("levels" in feature and x not in range(len(feature["levels"]))):
            left = tree["missing_left"][node]
        elif "levels" in feature:
            left = x in tree["left_levels"][tree["level_set"][node]]
        else:
            left = tree["threshold"][node] is None or x < tree["threshold"][node]
        node = tree["left"][node] if left else tree["right"][node]
    return node


# --- damage ----------------------------------------------------------------------------------------------------------


def by_levels(tree: dict[str, Any]) -> int:
    """The first node that splits by levels."""
    return next(node for node, number in enumerate(tree["level_set"]) if number >= 0)


def numeric(tree: dict[str, Any]) -> int:
    """The first node that splits a numeric feature."""
    return next(node for node, number in enumerate(tree["bin"]) if number >= 0)


def change(path: str, value: Any) -> Any:
    """A damage: the entry at `a.b.0` of the document becomes `value`."""

    def damage(document: dict[str, Any]) -> None:
        *way, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(".")]
        place: Any = document
        for step in way:
            place = place[step]
        place[last] = value

    return damage


def extra_field(document: dict[str, Any]) -> None:
    """A field that nobody knows."""
    document["trees"][0]["colour"] = []


def lacking_field(document: dict[str, Any]) -> None:
    """A field too few."""
    del document["trees"][0]["gain"]


def same_names(document: dict[str, Any]) -> None:
    """Two features of one name."""
    document["features"][1]["name"] = document["features"][0]["name"]


def level_that_does_not_exist(document: dict[str, Any]) -> None:
    """A set with the code of no level."""
    tree = document["trees"][0]
    tree["left_levels"][0] = [9]


def shared_set(document: dict[str, Any]) -> None:
    """A set that no node uses."""
    tree = document["trees"][0]
    tree["left_levels"].append([0])


def leaf_with_children(document: dict[str, Any]) -> None:
    """A leaf that goes on."""
    tree = document["trees"][0]
    leaf = tree["feature"].index(-1)
    tree["left"][leaf] = 1


def bin_that_does_not_exist(document: dict[str, Any]) -> None:
    """A bin beyond the last."""
    tree = document["trees"][0]
    tree["bin"][numeric(tree)] = 200


def threshold_beside_the_edge(document: dict[str, Any]) -> None:
    """A threshold that is not the bin's edge."""
    tree = document["trees"][0]
    tree["threshold"][numeric(tree)] = 17.0


def number_split_by_levels(document: dict[str, Any]) -> None:
    """A numeric feature with a set of levels."""
    tree = document["trees"][0]
    tree["feature"][by_levels(tree)] = 0


def level_split_by_number(document: dict[str, Any]) -> None:
    """A categorical feature with a threshold."""
    tree = document["trees"][0]
    tree["feature"][numeric(tree)] = 3
    tree["threshold"][numeric(tree)] = None


DAMAGES = [
    (change("format", "xgboost"), 'not a Hedgerow model: "format" must be "hedgerow-model", got "xgboost"'),
    (change("version", 3), "the file has version 3, but this Hedgerow reads versions up to 2"),
    (change("version", "1"), 'version must be a whole number from 1 on, got "1"'),
    (change("loss", "hinge"), "loss must be one of logistic, squared, softmax, poisson, absolute, quantile"),
    (change("loss", 3), "loss must be text, got 3"),
    (change("base_scores", []), "base_scores must have at least one entry"),
    (change("base_scores.0", None), "base_scores must hold finite numbers, got null"),
    (change("base_scores.0", 10**400), "base_scores must hold finite numbers, got 1000"),
    (change("base_scores", [0.0, 0.0]), "there are 5 trees, not a multiple of the 2 outputs"),
    (change("classes", [None]), "classes must be null or a list"),
    (change("classes", ["a"]), "there are 1 classes, but 2 go with the base_scores"),
    (change("loss", "softmax"), "the softmax loss does not go with 1 outputs"),
    (change("meta", []), r"meta must be an object, got \[\]"),
    (change("trees", {}), "trees must be a list"),
    (change("trees.1", 5), "tree 1 must be an object, got 5"),
    (change("features", {}), "features must be a list"),
    (change("features.0", {"name": "x"}), "feature 0 must be an object with edges or with levels"),
    (change("features.0.name", 7), "the name of feature 0 must be text, got 7"),
    (
        change("features.0.edges", [2.0, 1.0]),
        "feature 0: the edges of feature 'x0' must be finite and strictly increasing",
    ),
    (change("features.0.edges", ["a"]), 'the edges of feature 0 must hold finite numbers, got "a"'),
    (change("features.0.edges", list(range(255))), "has threshold .*, but its bin and edges say"),
    (change("features.3.levels", [f"{k}" for k in range(256)]), "feature 3: feature 'c0' has 256 levels"),
    (change("features.3.levels", ["a", "a"]), "without repetition"),
    (change("features.3.levels", [{}]), "feature 3: "),
    (same_names, "two features have the name 'x0'"),
    (extra_field, 'tree 0 has a field "colour" that version 2 does not know'),
    (lacking_field, "tree 0 lacks the field 'gain'"),
    (change("trees.0.value.0", None), "value of tree 0 must hold finite numbers, got null"),
    (change("trees.0.value.0", 1e39), r"value of tree 0 must hold finite numbers, got 1e\+39"),
    (change("trees.0.value", [1.0]), "value of tree 0 has 1 entries, but feature has"),
    (change("trees.0.feature", []), "bin of tree 0 has .* entries, but feature has 0"),
    (change("trees.0.feature.0", 4), "feature of tree 0 must hold whole numbers from -1 to 3, got 4"),
    (change("trees.0.feature.0", 1.0), "feature of tree 0 must hold whole numbers from -1 to 3, got 1.0"),
    (change("trees.0.missing_left.0", 1), "missing_left of tree 0 must hold true and false, got 1"),
    (change("trees.0.left.0", 10**6), "left of tree 0 must hold whole numbers from -1 to .*, got 1000000"),
    (
        change("trees.0.left.0", 0),
        "tree 0: nodes must be breadth-first: node 0, inner node 0, should have children 1 and 2",
    ),
    (change("trees.0.right.0", 1), "tree 0: nodes must be breadth-first"),
    (leaf_with_children, "tree 0: a leaf has no children"),
    (change("trees.0.threshold", []), "threshold of tree 0 must have one entry per node"),
    (bin_that_does_not_exist, "splits after bin 200, but there are 12 bins"),
    (threshold_beside_the_edge, "has threshold 17.0, but its bin and edges say"),
    (change("trees.0.left_levels", 1), "left_levels of tree 0 must be a list of lists"),
    (level_that_does_not_exist, "left_levels 0 of tree 0 must hold whole numbers from 0 to 8, got 9"),
    (shared_set, "tree 0: every row of left_levels must belong to exactly one node"),
    (number_split_by_levels, "splits by levels, but not a categorical feature"),
    (level_split_by_number, "tree 0: node .* splits 'c0' by levels where it is numeric, or the other way round"),
]


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES, ids=[sentence[:40] for _, sentence in DAMAGES])
def test_damage_is_named(damage: Any, sentence: str, tmp_path: Path) -> None:
    """Each kind of damage gives its own sentence, from a file as from a dict."""
    document = copy.deepcopy(small_model(3).to_dict())
    damage(document)
    with pytest.raises(ModelFileError, match=sentence):
        Ensemble.from_dict(document)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=sentence):
        Ensemble.load(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is not a complete JSON document"),
        (b'{"format": "hedgerow-model", "ver', "is not a complete JSON document"),
        (b"[1, 2]", "holds no JSON object"),
        (b"\xff\xfe\x00", "is not a complete JSON document"),
        (b"[" * 100_000, "is not a complete JSON document"),
        (b'{"format": "hedgerow-model", "format": 1}', "the field 'format' appears twice"),
        (b'{"format": "hedgerow-model", "version": 1, "base_scores": [NaN]}', "NaN is not a JSON number"),
        (b'{"version": ' + b"9" * 5000 + b"}", "is not a complete JSON document"),
        (b'{"format": "hedgerow-model", "version": 1}', "the model lacks the field 'loss'"),
    ],
    ids=range(9),
)
def test_what_is_not_a_model_file_is_named(text: bytes, sentence: str, tmp_path: Path) -> None:
    """Cut short, another kind of JSON, not text at all: the sentence says which file and what is wrong."""
    path = tmp_path / "model.json"
    path.write_bytes(text)
    with pytest.raises(ModelFileError, match=sentence):
        Ensemble.load(path)


def test_a_truncated_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    """No prefix of a model file is a model file."""
    path = tmp_path / "model.json"
    small_model().save(path)
    whole = path.read_bytes()
    for end in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError):
            Ensemble.load(path)


WHOLE = json.dumps(small_model(5, n_trees=2, depth=2).to_dict(), separators=(",", ":")).encode()
TOKENS = [
    b"",
    b"-",
    b"0",
    b"1",
    b"7",
    b"9" * 30,
    b"e",
    b".",
    b",",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"null",
    b"true",
    b"1e400",
    b"\\",
    b"\xc3",
]


@settings(max_examples=400, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 6), st.sampled_from(TOKENS)), min_size=1, max_size=3
    )
)
def test_a_mutated_file_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, bytes]]
) -> None:
    """Whatever is done to the bytes, the outcome is a model that predicts or a ModelFileError, and nothing else."""
    text = WHOLE
    for start, length, token in edits:
        text = text[:start] + token + text[start + length :]
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    path.write_bytes(text)
    try:
        model = Ensemble.load(path)
    except ModelFileError:
        return
    assert model.raw_scores(np.zeros((3, len(model.features)), np.float32)).shape == (3, model.n_outputs)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=2), st.just([]), st.just({}), st.just([[]]),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_document_with_one_wrong_value_loads_or_is_refused(data: st.DataObject) -> None:
    """Any entry at any depth replaced by any value: a model that predicts, or a ModelFileError."""
    document = json.loads(WHOLE)
    place: Any = document
    for _ in range(4):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(VALUES)
    try:
        model = Ensemble.from_dict(document)
    except ModelFileError:
        return
    assert np.isfinite(model.raw_scores(np.zeros((20, len(model.features)), np.float32))).all()
