"""Charts: round numbers on axes, few points, every number readable without the picture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.report import charts
from hedgerow.report.flows import Arrow, Flow
from hedgerow.report.picture import picture
from twins.pages import HOSTILE, parsed


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_and_lie_inside(low, width):
    """Between one and ten round numbers between the two ends."""
    found = charts.ticks(low, low + width)
    assert 1 <= len(found) <= 10
    assert all(low - 1e-6 * width <= tick <= low + width * (1 + 1e-6) for tick in found)


def test_long_lines_are_thinned_and_keep_their_ends():
    """A line of 100,000 points has 160 in the page, the first and the last among them."""
    points = [(float(k), float(k % 7)) for k in range(100_000)]
    found = charts.thinned(points)
    assert len(found) == charts.MOST_POINTS
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert charts.thinned(points[:5]) == points[:5]


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1234567, "", "1,234,567"),
        (0.12345678, "", "0.1235"),
        (float("inf"), "", "infinite"),
        (float("nan"), "", "unknown"),
        (0.1234, "share", "12.3%"),
        (999, "bytes", "999 bytes"),
        (1_500_000, "bytes", "1.5 MB"),
        (12_345_678_901, "bytes", "12.3 GB"),
    ],
)
def test_numbers_read_well(value, unit, words):
    """As people write them."""
    assert charts.number(value, unit) == words


def test_a_chart_can_be_heard():
    """It has a title, a description, and its numbers as a table; a flat line and an empty one are drawn too."""
    axes = charts.Axis("rounds"), charts.Axis("loss")
    lines = [charts.Line("train", [(1, 0.5), (2, 0.5)]), charts.Line("none", [])]
    tree = parsed(charts.lines("c", "Learning curve", "It is flat.", *axes, lines))
    svg = tree.first("svg")
    assert svg.attributes["aria-labelledby"] == "c-title c-desc"
    assert [tree.by_id(name).text for name in ("c-title", "c-desc")] == ["Learning curve", "It is flat."]
    assert "train 1 0.5 train 2 0.5" in tree.first("table").text


def test_a_picture_shows_every_arrow_as_a_link():
    """Star, circle and a group that talks to itself: as many links as arrows, each with words and a target."""
    flow = Flow("a", "b", "m", "what", "in the clear", 3, 100, None)
    star = [Arrow("a", "b", (flow,)), Arrow("b", "a", (flow,))]
    mesh = [Arrow(x, y, (flow,)) for x in "abcd" for y in "abcd" if x != y]
    loop = [Arrow("7 owners", "7 owners", (flow,)), *star]
    for number, found in enumerate((star, mesh, loop)):
        roles = dict.fromkeys([end for arrow in found for end in arrow[:2]], "owner")
        tree = parsed(picture("who", found, roles))
        links = tree.all("a")
        assert [link.attributes["href"] for link in links] == [f"#who-{k}" for k in range(1, len(found) + 1)], number
        assert all("3 messages, 100 bytes, in the clear" in link.attributes["aria-label"] for link in links)


def test_a_hostile_party_is_a_name_in_the_picture():
    """Nothing of it becomes an element."""
    flow = Flow(HOSTILE, "b", "m", "what", "public", 3, 100, None)
    tree = parsed(picture("who", [Arrow(HOSTILE, "b", (flow,))], {HOSTILE: "owner", "b": ""}, own=HOSTILE))
    assert {element.name for element in tree.walk()} <= {
        "",
        "svg",
        "title",
        "desc",
        "a",
        "path",
        "circle",
        "text",
        "g",
        "rect",
    }


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("2026-11-17T20:28:28+00:00", "17 November 2026, 20:28 UTC"),
        ("2026-01-01T00:30:00+02:00", "31 December 2025, 22:30 UTC"),
        ("2026-11-17T20:28:28", "2026-11-17T20:28:28"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_moments_are_written_as_people_do(iso, words):
    """In UTC; what has no place in time is left as it is."""
    assert charts.moment(iso) == words
