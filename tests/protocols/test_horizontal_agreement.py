"""Tables that do not fit together are refused before training, by owner and column; those that do are united."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.federation.federation import Federation
from hedgerow.protocols.horizontal.secure_sum.agreement import agree, check_agreement, check_description
from hedgerow.protocols.horizontal.secure_sum.messages import TableDescription
from hedgerow.runtime import resources as memory
from hedgerow.schema import hash_groups

PROTOCOL = "horizontal.secure_sum"


def describe(columns=("age", "town"), kinds=("float64", "levels"), levels=("", '["a", "b"]'), classes=(0, 1)):
    """One owner's description."""
    text = json.dumps(list(classes)) if classes is not None else ""
    return TableDescription(tuple(columns), tuple(kinds), tuple(levels), text)


def owners(*descriptions):
    """Their descriptions under the names anna, ben, carla."""
    return dict(zip(["anna", "ben", "carla"], descriptions, strict=False))


# --- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        ({"columns": ("age",), "kinds": ("float64",), "levels": ("",)}, "ben lacks column 'town', which anna has"),
        (
            {"columns": ("age", "town", "pay"), "kinds": ("float64", "levels", "float64"), "levels": ("", '["a"]', "")},
            "ben has column 'pay', which anna has not",
        ),
        ({"columns": ("age", "city")}, "ben lacks column 'town', which anna has and has column 'city', which anna has"),
        (
            {"columns": ("town", "age"), "kinds": ("levels", "float64"), "levels": ('["a"]', "")},
            "ben: column 'town' stands where anna has 'age'; bring the columns into the same order",
        ),
        ({"kinds": ("float64", "float64"), "levels": ("", "")}, "ben: column 'town' is numeric there and categorical"),
        ({"kinds": ("levels", "levels"), "levels": ('["x"]', '["a"]')}, "ben: column 'age' is categorical there"),
        ({"levels": ("", "[1, 2]")}, "ben: the levels of column 'town' are text at anna, carla but numbers at ben"),
        (
            {"levels": ("", '["A", "B"]')},
            r"ben: column 'town' has the levels \['A', 'B'\] there and \['a', 'b'\] at the others, and none in common",
        ),
        ({"classes": ("no", "yes")}, "ben: the labels are text at ben but numbers at anna, carla; code them alike"),
        ({"classes": (1, 2)}, "ben: the label 2 does not occur at anna"),
        ({"classes": (-1, 1)}, "ben: the label -1 does not occur at anna"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_odd_one_is_named(odd, sentence):
    """Each way of not fitting has a sentence that names the owner and the column or label."""
    with pytest.raises(InvalidInput, match=sentence):
        agree(owners(describe(), describe(**odd), describe()))


def test_the_minority_is_the_odd_one():
    """Where two agree and the first does not, it is the first that is named."""
    with pytest.raises(InvalidInput, match=r"^anna: column 'town' is numeric there and categorical at ben, carla"):
        agree(owners(describe(kinds=("float64", "float64"), levels=("", "")), describe(), describe()))
    with pytest.raises(InvalidInput, match=r"^anna: the labels are text at anna but numbers at ben, carla"):
        agree(owners(describe(classes=("n", "y")), describe(), describe()))


def test_classes_must_be_among_the_declared_ones():
    """A label that was not declared is named with its owner."""
    with pytest.raises(InvalidInput, match="ben: the label 3 is not among the declared classes"):
        agree(owners(describe(), describe(classes=(0, 3)), describe()), classes=(0, 1, 2))


def test_one_class_is_nothing_to_learn():
    """All owners together need two classes."""
    with pytest.raises(InvalidInput, match="one class only, 1"):
        agree(owners(describe(classes=(1,)), describe(classes=(1,)), describe(classes=(1,))))


def test_too_many_levels_over_all_owners():
    """A union that no byte can code, or an owner with too many, makes public groups of them, for all."""
    many = [json.dumps([f"l{k:03}" for k in range(start, start + 150)]) for start in (0, 100, 110)]
    groups = json.dumps(hash_groups(254))
    found = agree(owners(*(describe(levels=("", levels)) for levels in many)))
    assert (found.kinds, found.levels) == (("float64", "hashed levels"), ("", groups))
    hashed = describe(kinds=("float64", "hashed levels"), levels=("", groups))
    assert agree(owners(describe(), hashed, describe())).levels == ("", groups)
    for mine in (describe(), hashed):
        check_agreement("anna", found, mine)


def test_groups_are_those_of_the_rule():
    """Neither an owner nor the coordinator can bring groups of its own, or take them from somebody who has them."""
    groups = json.dumps(hash_groups(254))
    with pytest.raises(ProtocolError, match="groups of levels that the public rule does not give"):
        check_description("ben", describe(kinds=("float64", "hashed levels")), has_classes=True)
    hashed = describe(kinds=("float64", "hashed levels"), levels=("", groups))
    with pytest.raises(ProtocolError, match="takes a column for"):
        check_agreement("anna", agree(owners(describe(), describe(), describe())), hashed)


def test_dates_go_with_dates_alone():
    """A column of times at one owner and of numbers at another is named; alike they keep their kind."""
    dates = describe(kinds=("time", "levels"))
    assert agree(owners(dates, dates, dates)).kinds == ("time", "levels")
    with pytest.raises(InvalidInput, match="ben: column 'age' is dates or times there and numeric at"):
        agree(owners(describe(), dates, describe()))


# --- what does -----------------------------------------------------------------------------------------------------


def test_levels_are_united_and_sorted():
    """An owner need not have met every level; one that has met none says nothing about their coding."""
    found = agree(
        owners(describe(levels=("", '["b", "d"]')), describe(levels=("", '["a", "b"]')), describe(levels=("", "[]")))
    )
    assert found.levels == ("", '["a", "b", "d"]')
    assert found.kinds == ("float64", "levels")
    numbers = agree(owners(*(describe(levels=("", levels)) for levels in ("[10, 2]", "[2, 3.5]", "[2]"))))
    assert json.loads(numbers.levels[1]) == [2, 3.5, 10]


def test_kinds_widen_to_hold_everybodys_values():
    """Whole numbers here and floats there are floats; single and double precision are double."""
    kinds = ["integer", "float32", "float64"]

    def common(*which):
        described = [describe(kinds=(kind, "levels")) for kind in which]
        return agree(dict(zip("abc", described, strict=False))).kinds[0]

    assert common("integer", "integer", "integer") == "integer"
    assert common("integer", "float32", "integer") == "float32"
    assert common(*kinds) == "float64"


@pytest.mark.parametrize(
    ("theirs", "united"),
    [
        ([(0, 1), (0,), (1,)], [0, 1]),
        ([(0,), (1, 0), (0,)], [0, 1]),
        ([(2,), (0, 1, 2), (1, 0)], [0, 1, 2]),
        ([("b", "c"), ("a", "b", "c"), ("a",)], ["a", "b", "c"]),
    ],
)
def test_classes_are_those_of_the_fullest(theirs, united):
    """Owners may lack classes as long as somebody has all of them."""
    found = agree(owners(*(describe(classes=classes) for classes in theirs)))
    assert json.loads(found.classes) == united


def test_classes_that_nobody_has_all_of_can_be_declared():
    """Two owners with one class each are suspicious until the classes are declared."""
    described = owners(describe(classes=(0,)), describe(classes=(1,)), describe(classes=(0,)))
    with pytest.raises(InvalidInput, match="or declare classes="):
        agree(described)
    assert json.loads(agree(described, classes=(0, 1)).classes) == [0, 1]


def test_numbers_have_no_classes():
    """Regression: nothing about labels is agreed on here."""
    assert agree(owners(*[describe(classes=None)] * 3)).classes == ""


# --- as people meet it ---------------------------------------------------------------------------------------------


def frames(n_rows=60, seed=0):
    """Three owners' tables and labels that fit together."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in ("anna", "ben", "carla"):
        frame = pd.DataFrame({"age": rng.normal(50, 9, n_rows), "town": rng.choice(["x", "y", "z"], n_rows)})
        made[name] = (frame, (frame["age"] + rng.normal(size=n_rows) > 50).astype(int).to_numpy())
    return made


def fit(data, **params):
    """A short federated training."""
    return Federation.horizontal(data).fit(PROTOCOL, n_estimators=2, max_depth=2, **params)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X: X.drop(columns="town"), "ben lacks column 'town', which anna has"),
        (lambda X: X[["town", "age"]], "ben: column 'town' stands where anna has 'age'"),
        (lambda X: X.assign(town=np.arange(len(X)) % 3), "ben: column 'town' is numeric there and categorical at"),
        (lambda X: X.assign(town=X["town"].str.upper()), "ben: column 'town' has the levels"),
        (
            lambda X: X.assign(town=pd.Categorical(np.arange(len(X)) % 3)),
            "ben: the levels of column 'town' are text at anna, carla but numbers at ben",
        ),
    ],
    ids=["lacks", "order", "numbers", "levels", "coded"],
)
def test_the_error_people_read_is_that_of_the_odd_owner(change, sentence):
    """`fit` raises InvalidInput, not a peer's complaint, and nobody has sent a single sum by then."""
    data = frames()
    data["ben"] = (change(data["ben"][0]), data["ben"][1])
    with pytest.raises(InvalidInput, match=sentence):
        fit(data)


def test_label_codings_that_differ():
    """1 and 2 here, 0 and 1 there: refused with the label and the owner."""
    data = frames()
    data["carla"] = (data["carla"][0], data["carla"][1] + 1)
    with pytest.raises(InvalidInput, match="carla: the label 2 does not occur at anna"):
        fit(data)


def test_libraries_and_number_types_may_differ():
    """pandas here, polars there, floats for integers, True for 1: what means the same fits together."""
    data = frames()
    X, y = data["ben"]
    data["ben"] = (pl.DataFrame({"age": X["age"].to_numpy(), "town": X["town"].tolist()}), y.astype(float))
    X, y = data["carla"]
    data["carla"] = (X.assign(age=X["age"].astype(np.float32)), y.astype(bool))
    run = fit(data)
    assert run.model.classes_.tolist() == [0, 1]
    assert run.model.predict(data["anna"][0]).shape == (60,)


def test_a_job_that_does_not_fit_says_so_beforehand(monkeypatch):
    """Too little memory is said before anything is sent, by the owner that has it, with what would help."""
    monkeypatch.setattr(memory, "memory_available", lambda: 100_000)
    data = frames() | {"ben": frames(5000)["ben"]}
    with pytest.raises(InvalidInput, match=r"^ben: 5,000 rows x 2 columns .* need about .* GiB .* fewer bins"):
        fit(data)
    assert len(fit(frames()).model.ensemble_.trees) == 2


def test_a_job_fits_where_nobody_knows_the_memory(monkeypatch):
    """A system that does not tell how much memory there is refuses nothing."""
    monkeypatch.setattr(memory, "memory_available", lambda: None)
    assert len(fit(frames()).model.ensemble_.trees) == 2


def test_memory_needed_grows_with_all_that_takes_memory():
    """More rows, columns, bins or levels need more; what histograms need is bounded, as in the engine."""
    base = memory.memory_needed(10_000, 20, 64, 4)
    assert memory.memory_needed(20_000, 20, 64, 4) > base
    assert memory.memory_needed(10_000, 30, 64, 4) > base
    assert memory.memory_needed(10_000, 20, 128, 4) > base
    assert memory.memory_needed(10_000, 20, 64, 5) > base
    assert memory.memory_needed(10_000, 20, 256, None) <= 10_000 * (20 * 12 + 40) + 3 * memory.HISTOGRAM_LIMIT
    memory.check_memory("anna", 1000, 5, 256, 6)
