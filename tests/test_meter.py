"""Meters: sums per peer and per message, and that they can be added and stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput
from hedgerow.ledger import Meter, Traffic

names = st.sampled_from(["a", "b", "c"])
entries = st.lists(st.tuples(st.booleans(), names, names, st.integers(0, 2**40)))


def metered(frames):
    """A meter that has counted these frames: (sent?, peer, message, bytes)."""
    meter = Meter()
    for sent, peer, message, n_bytes in frames:
        (meter.sent if sent else meter.received)(peer, message, n_bytes)
    return meter


def test_counts_in_both_directions():
    """Messages and bytes are counted apart for each peer, each message and each direction."""
    meter = metered([(True, "bank", "sums", 100), (True, "bank", "sums", 50), (False, "bank", "splits", 7)])
    meter.received("shop", "splits", 1)
    assert meter.total() == Traffic(2, 150, 2, 8)
    assert meter.by_peer() == {"bank": Traffic(2, 150, 1, 7), "shop": Traffic(0, 0, 1, 1)}
    assert meter.by_message() == {"splits": Traffic(0, 0, 2, 8), "sums": Traffic(2, 150, 0, 0)}
    assert repr(meter) == "<Meter: 150 bytes sent, 8 bytes received>"


def test_a_new_meter_has_counted_nothing():
    """Totals of nothing are zero."""
    assert Meter().total() == Traffic(0, 0, 0, 0)
    assert Meter().by_peer() == Meter().by_message() == {}


@settings(deadline=None)
@given(entries, entries)
def test_sum_of_meters_is_the_meter_of_all_frames(one, other):
    """Adding meters is counting all frames with one, and changes neither of the two."""
    a, b = metered(one), metered(other)
    assert a + b == metered(one + other) == b + a
    assert (a, b) == (metered(one), metered(other))
    assert sum((b,), a) == a + b


@settings(deadline=None)
@given(entries)
def test_totals_are_sums_of_their_parts(frames):
    """Whichever way they are grouped, the same frames add up to the same."""
    meter = metered(frames)
    for groups in (meter.by_peer(), meter.by_message()):
        assert Traffic(*(sum(column) for column in zip(Traffic(), *groups.values(), strict=True))) == meter.total()


@settings(deadline=None)
@given(entries)
def test_documents_bring_meters_back(frames):
    """A meter written as JSON and read back is the same meter, whatever the order of frames was."""
    meter = metered(frames)
    document = json.loads(json.dumps(meter.to_dict()))
    assert Meter.from_dict(document) == meter
    assert document == metered(frames[::-1]).to_dict()


def test_a_sum_does_not_share_counts_with_its_parts():
    """Counting on after an addition leaves the sum as it was."""
    meter = metered([(True, "a", "x", 1)])
    total = meter + Meter()
    meter.sent("a", "x", 1)
    assert total.total() == Traffic(1, 1, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": None},
        {"counts": [{"peer": "a"}]},
        {"counts": []},
        {"counts": [{"peer": "a", "message": "x", **Traffic(1, -1, 0, 0)._asdict()}]},
        {"counts": [{"peer": "a", "message": "x", **Traffic(1, 1.5, 0, 0)._asdict()}]},
        {"total": Traffic(1, 2, 0, 0)._asdict()},
    ],
)
def test_documents_that_no_meter_wrote_are_refused(change):
    """Missing or negative counts, and totals that are not their sums."""
    document = metered([(True, "a", "x", 1)]).to_dict()
    with pytest.raises(InvalidInput):
        Meter.from_dict(document | change)
    with pytest.raises(InvalidInput, match="not the document of a meter"):
        Meter.from_dict({})


def test_meters_are_no_keys():
    """A meter changes with every frame, so it has no hash; and it adds only to meters."""
    with pytest.raises(TypeError):
        hash(Meter())
    with pytest.raises(TypeError):
        Meter() + 1
