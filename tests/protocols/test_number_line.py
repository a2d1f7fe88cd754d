"""Places on a number line are in the order of the numbers, and nothing is lost on the way there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.protocols.number_line import KINDS, NumberLine, common_kind, first_look

finite = {
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "integer": st.one_of(
        st.integers(-(10**18), 10**18).map(float),
        st.floats(allow_nan=False, allow_infinity=False, min_value=2.0**52).map(np.floor),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_places_keep_order_and_numbers(kind, data):
    """There and back gives the same numbers, and the larger number has the larger place."""
    numbers = np.unique(np.array(data.draw(st.lists(finite[kind], min_size=1, max_size=30))) + 0.0)
    line = NumberLine(kind)
    places = line.places(numbers)
    assert line.numbers(places).tolist() == numbers.tolist()
    assert (places[1:] > places[:-1]).all()
    assert (np.abs(places) <= line.largest).all()


@pytest.mark.parametrize("kind", KINDS)
def test_neighbouring_places_are_neighbouring_numbers(kind):
    """No representable number lies between two places, and zero has one place whatever its sign."""
    line = NumberLine(kind)
    starts = [0, 1, 5, 2**20, line.largest - 3, -7, -(2**20)] + ([2**53 - 1, 2**53 + 5] if kind == "integer" else [])
    places = np.array(starts, np.int64)
    here, there = line.numbers(places), line.numbers(places + 1)
    if kind == "integer":
        small = np.abs(here) < 2**53
        assert (there[small] == here[small] + 1).all()
        assert (there[~small] == np.nextafter(here[~small], math.inf)).all()
    else:
        narrow = here.astype(kind)
        assert (np.nextafter(narrow, narrow.dtype.type(math.inf)) == there).all()
    assert line.places(np.array([-0.0, 0.0])).tolist() == [0, 0]
    assert not np.signbit(line.numbers(np.zeros(1, np.int64)))[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [64, 300, 1024, 4096, 4097])
def test_first_look_spans_the_line_within_its_budget(kind, budget):
    """Increasing, no more than asked for, with zero and its neighbours, and inside the finite numbers."""
    line = NumberLine(kind)
    places = first_look(kind, budget)
    assert len(places) <= budget
    assert (np.diff(places.astype(object)) > 0).all()  # Python's integers: differences may exceed 64 bits
    assert {-1, 0, 1} <= set(places.tolist())
    assert -line.largest < places[0] < places[-1] < line.largest


def test_first_look_has_every_small_whole_number():
    """Ages, counts and codes are separated at once."""
    assert set(range(-128, 129)) <= set(first_look("integer", 4096).tolist())


def test_common_kind():
    """Whole only if all are; float64 if any is; else float32."""
    assert common_kind({"integer"}) == "integer"
    assert common_kind({"integer", "float32"}) == "float32"
    assert common_kind({"integer", "float32", "float64"}) == "float64"
