"""What a message says about its numbers is checked before anybody sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.frames import Bools, Float32s, Float64s, Int32s, Int64s, Message, UInt8s, decode, encode
from hedgerow.transport.ranges import (
    FINITE,
    Anything,
    Ends,
    Free,
    Index,
    Shape,
    Within,
    check,
    look_closely,
    quick_check,
    require,
)
from twins.unstated import unstated

N_SPLITS = Free("n_splits", at_most="most_splits")


@dataclass(frozen=True, slots=True)
class Splits(Message, name="test.ranged_splits", version=1):
    """Every kind of mark."""

    n_rows: Annotated[int, Within(1, 1000)]
    share: Annotated[float, Within(0.0, 1.0)]
    key: Annotated[bytes, Shape(4)]
    owners: Annotated[tuple[str, ...], Shape("n_owners")]
    column: Annotated[Int32s, Shape(N_SPLITS), Index("n_columns", lowest=-1)]
    bin: Annotated[Int32s, Shape(N_SPLITS), Index("n_bins", by="column")]
    sides: Annotated[Bools, Shape("n_rows")]
    blob: Annotated[UInt8s, Shape(Free("n_bytes")), Anything()]
    ends: Annotated[Int64s, Shape("n_owners"), Ends("blob")]
    values: Annotated[Float64s, Shape(N_SPLITS, 2), FINITE]


KNOWN = {"n_owners": 2, "most_splits": 3, "n_columns": 2, "n_bins": np.array([4, 8])}


def message(**changes):
    """One that is as its class says, but for the changes."""
    return Splits(
        **{
            "n_rows": 5,
            "share": 0.5,
            "key": b"1234",
            "owners": ("a", "b"),
            "column": np.array([0, 1], np.int32),
            "bin": np.array([3, 7], np.int32),
            "sides": np.zeros(5, np.bool_),
            "blob": np.zeros(6, np.uint8),
            "ends": np.array([2, 6]),
            "values": np.zeros((2, 2)),
            **changes,
        }
    )


def test_a_message_within_its_ranges_passes():
    """Also after a round trip through its frame, and with as little in it as is allowed."""
    check("ben", decode(encode(message()), Splits), KNOWN)
    none = np.zeros(0, np.int32)
    check("ben", message(column=none, bin=none, values=np.zeros((0, 2))), KNOWN)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n_rows", 0, "n_rows = 0, which is not between 1 and 1000"),
        ("n_rows", 2**40, "n_rows = 1099511627776"),
        ("n_rows", 6, "sides of shape"),
        ("share", float("nan"), "share = nan"),
        ("share", 1.5, "share = 1.5"),
        ("key", b"123", r"key of shape \(3,\), expected \(4,\)"),
        ("owners", ("a",), "owners of shape"),
        ("column", np.array([0, 2], np.int32), "column = 2, which is not an index below n_columns"),
        ("column", np.array([0, -2], np.int32), "column = -2"),
        ("column", np.zeros(4, np.int32), "column of length 4, expected 0 to 3"),
        ("column", np.zeros((2, 1), np.int32), "column of 2 dimensions, expected 1"),
        ("bin", np.array([4, 7], np.int32), "bin = 4"),
        ("bin", np.array([3], np.int32), "bin of shape"),
        ("ends", np.array([6, 2]), "ends = "),
        ("ends", np.array([-1, 6]), "ends = "),
        ("ends", np.array([2, 7]), "ends = "),
        ("values", np.full((2, 2), np.nan), "values = nan"),
        ("values", np.full((2, 2), np.inf), "values = inf"),
    ],
)
def test_what_is_outside_is_a_protocol_error(field, value, words):
    """The error names the sender, the message, the field and the value."""
    with pytest.raises(ProtocolError, match=f"^ben sent test.ranged_splits with .*{words}"):
        check("ben", message(**{field: value}), KNOWN)


def test_limits_are_not_rounded_to_the_type_of_an_array():
    """1e300 is not infinite because no float32 is as large."""

    @dataclass(frozen=True, slots=True)
    class Narrow(Message, name="test.narrow", version=1):
        values: Annotated[Float32s, Shape(2), Within(-1e300, 1e300)]

    check("ben", Narrow(np.full(2, np.finfo(np.float32).max, np.float32)), {})
    for value in (np.inf, -np.inf, np.nan):
        with pytest.raises(ProtocolError, match="with values = "):
            check("ben", Narrow(np.array([0.0, value], np.float32)), {})


@dataclass(frozen=True, slots=True)
class Quick(Message, name="test.quickly_checked", version=1):
    """Every mark that is decided without a closer look."""

    n_rows: Annotated[int, Within(1, "most_rows")]
    share: Annotated[float, Within(0.0, math.inf)]
    feature: Annotated[Int64s, Shape(Free("n_nodes", 1, "most_nodes")), Index("n_features", lowest=-1)]
    sides: Annotated[Bools, Shape("n_nodes", "n_rows")]
    ends: Annotated[Int64s, Shape(2), Ends("feature")]
    values: Annotated[Float32s, Shape(Free("n_values"), Free("n_nodes")), FINITE]


_numbers = st.sampled_from([0, 1, 2, 3, -1, -2, 200, 2**62, -(2**63)])
_floats = st.sampled_from([0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 3e38, -3e38])


def _array(elements, kind):
    shapes = st.sampled_from([(0,), (1,), (2,), (3,), (2, 2), (1, 3), (0, 2), (200, 2), (200,)])
    return st.builds(lambda shape, fill, last: _filled(shape, fill, last, kind), shapes, elements, elements)


def _filled(shape, fill, last, kind):
    values = np.full(shape, fill, kind)
    values[..., -1:] = last
    return values


@given(
    st.builds(
        Quick,
        _numbers,
        _floats,
        _array(_numbers, np.int64),
        st.sampled_from([np.zeros(shape, np.bool_) for shape in ((1, 1), (2, 1), (2, 3), (3, 2), (2,), (0, 0))]),
        _array(_numbers, np.int64),
        _array(_floats, np.float32),
    )
)
def test_the_quick_function_passes_nothing_that_a_closer_look_refuses(message):
    """`check` is the quick one first; its naive twin goes through the marks."""
    known = {"most_rows": 3, "most_nodes": 3, "n_features": 2}
    assert _refused(check, message, known) == _refused(look_closely, message, known)


def _refused(checked, message, known):
    try:
        checked("ben", message, known)
    except ProtocolError as error:
        return str(error)
    return None


def test_the_quick_function_alone_passes_what_is_right():
    """No closer look is needed, so levels of trees cost little; an array as a limit always takes one."""
    right = Quick(2, 0.5, np.array([-1, 1]), np.zeros((2, 2), np.bool_), np.array([0, 2]), np.zeros((0, 2), np.float32))
    known = {"most_rows": 3, "most_nodes": 3, "n_features": 2}
    assert quick_check(Quick)(right, known)
    assert not quick_check(Quick)(right, {**known, "n_features": np.array([2, 2])})
    assert not quick_check(Splits)(message(), KNOWN)  # `by`


def test_exactly_the_symbols_of_a_message_are_required():
    """A role that forgets one, or passes one that nothing refers to, fails at once and always."""
    require(Splits, KNOWN)
    with pytest.raises(InvalidType, match="n_bins"):
        require(Splits, {name: value for name, value in KNOWN.items() if name != "n_bins"})
    with pytest.raises(InvalidType, match="more"):
        require(Splits, {**KNOWN, "more": 1})


def test_fields_that_state_no_range_are_found():
    """Numbers need limits, arrays, bytes and texts a size; a bool needs neither."""

    @dataclass(frozen=True, slots=True)
    class Vague(Message, name="test.vague", version=1):
        flag: bool
        number: int
        sized: Annotated[UInt8s, Shape(3)]
        ranged: Annotated[UInt8s, Anything()]
        whole: Annotated[UInt8s, Shape(3), Anything()]
        key: bytes

    assert unstated(Vague) == ["number", "sized", "ranged", "key"]
    assert unstated(Splits) == []
