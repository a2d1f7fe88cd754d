"""What a message says about its numbers is checked before anybody sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from hedgerow.errors import InvalidType, ProtocolError
from hedgerow.transport.frames import Bools, Float32s, Float64s, Int32s, Int64s, Message, UInt8s, decode, encode
from hedgerow.transport.ranges import FINITE, Anything, Ends, Free, Index, Shape, Within, check, require, unstated

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
