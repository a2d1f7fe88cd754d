"""What the house rules still forgive can only become less."""

from __future__ import annotations

import json

import pytest


def test_a_number_may_not_rise(made_up_ratchet):
    """Up to what is forgiven passes, one more fails, and the forgiven number does not go below the bar."""
    ratchet = made_up_ratchet({"lines": 12})
    ratchet.hold_number("lines", 12, bar=10)
    with pytest.raises(AssertionError, match="lines: 13, and at most 12 are forgiven"):
        ratchet.hold_number("lines", 13, bar=10)
    with pytest.raises(AssertionError, match="nothing below the bar of 20"):
        ratchet.hold_number("lines", 5, bar=20)


def test_a_list_names_the_offenders_of_today_and_no_others(made_up_ratchet):
    """A new offender fails, and so does an entry whose offender is gone."""
    ratchet = made_up_ratchet({"small": ["a", "b"]})
    ratchet.hold_list("small", ["b", "a"])
    with pytest.raises(AssertionError, match="small: new"):
        ratchet.hold_list("small", ["a", "b", "c"])
    with pytest.raises(AssertionError, match="small: gone"):
        ratchet.hold_list("small", ["a"])


def test_lowering_takes_off_and_adds_nothing(made_up_ratchet):
    """Numbers sink to what is there, but not below the bar; lists lose what is gone; new offenders still fail."""
    ratchet = made_up_ratchet({"lines": 12, "small": ["a", "b"]}, lower=True)
    ratchet.hold_number("lines", 11, bar=10)
    ratchet.hold_list("small", ["a"])
    assert json.loads(ratchet.path.read_text(encoding="utf-8")) == {"lines": 11, "small": ["a"]}
    ratchet.hold_number("lines", 3, bar=10)
    assert json.loads(ratchet.path.read_text(encoding="utf-8"))["lines"] == 10
    with pytest.raises(AssertionError, match="small: new"):
        ratchet.hold_list("small", ["a", "b"])
