"""Laws of the one codec: what is written is read again, and what does not fit is refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.codec import from_json, to_json
from hedgerow.errors import InvalidInput


@dataclass(frozen=True)
class Inner:
    """With a kind, so that it can be told from others."""

    KIND: ClassVar[str] = "inner"

    low: float
    high: float = math.inf


@dataclass(frozen=True)
class Other:
    """Another kind."""

    KIND: ClassVar[str] = "other"

    names: tuple[str, ...]


@dataclass(frozen=True)
class Outer:
    """A field of each sort."""

    run_id: str
    way: Literal["there", "back"] = "there"
    number: int | float | None = None
    span: tuple[float, float] | None = None
    parts: tuple[Inner | Other, ...] = ()
    table: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    anything: Any = None


floats = st.floats(allow_nan=False)
inners = st.builds(Inner, floats, floats) | st.builds(Other, st.lists(st.text(), max_size=3).map(tuple))
outers = st.builds(
    Outer,
    st.text(),
    st.sampled_from(["there", "back"]),
    st.none() | st.integers() | floats,
    st.none() | st.tuples(floats, floats),
    st.lists(inners, max_size=3).map(tuple),
    st.dictionaries(st.text(), st.lists(floats, max_size=3).map(tuple), max_size=3),
)


@given(outers)
def test_a_round_trip_changes_nothing(value):
    """Through text, infinities included."""
    assert from_json(Outer, json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@dataclass(frozen=True, eq=False)
class Scores:
    """Numbers by the thousand."""

    raw: npt.NDArray[np.float64]


@pytest.mark.parametrize("shape", [(0,), (3, 2), (2, 0, 4)])
def test_arrays_are_the_same_bit_for_bit(shape):
    """Type, shape and every bit."""
    raw = np.random.default_rng(0).normal(size=shape)
    found = from_json(Scores, json.loads(json.dumps(to_json(Scores(raw))))).raw
    assert found.dtype == raw.dtype
    assert found.tobytes() == raw.tobytes()
    assert found.shape == shape


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({}, "Outer lacks the field 'run_id'"),
        ({"run_id": "a", "colour": 1}, "Outer has no field 'colour'"),
        ({"run_id": 4}, "Outer.run_id must be of type str, got 4"),
        ({"run_id": "a", "way": "up"}, r"Outer.way must be one of \['there', 'back'\], got 'up'"),
        ({"run_id": "a", "span": [1.0]}, "Outer.span must be a list of 2"),
        ({"run_id": "a", "number": True}, "Outer.number must be a number, got True"),
        ({"run_id": "a", "table": {"x": [10**400]}}, r"Outer.table.x\[0\] must be a number, got 1000"),
        ({"run_id": "a", "parts": [{"kind": "third"}]}, r"Outer.parts\[0\].kind must be 'inner', got"),
        ({"run_id": "a", "table": {"x": [None]}}, r"Outer.table.x\[0\] must be a number, got None"),
        ([], "Outer must be an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(document, sentence):
    """The sentence names the field and the value."""
    with pytest.raises(InvalidInput, match=sentence):
        from_json(Outer, document)


@pytest.mark.parametrize(
    "raw", [None, {"dtype": "<f8", "shape": [2], "base64": "AA=="}, {"dtype": "<f8", "shape": [0]}]
)
def test_damaged_arrays_are_refused(raw):
    """Whatever is wrong with them."""
    with pytest.raises(InvalidInput, match="an array"):
        from_json(Scores, {"raw": raw})
