"""Charts as inline SVG: lines, bars beside the rows of a table, one full and empty bar. No library, no script.

Every chart has a title and a description for those who hear it, and its numbers stand in a table beside or below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from hedgerow.report.html import Markup, joined, tag

MOST_POINTS = 160
"""Of one line: more are not seen."""
_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 30, 46
Point = tuple[float, float]
T = TypeVar("T")


class Line(NamedTuple):
    """One line of a chart: a name and points (x, y)."""

    name: str
    points: Sequence[Point]
    dots: bool = False


class Axis(NamedTuple):
    """What an axis shows, and from where to where; None: as the points have it."""

    name: str
    low: float | None = None
    high: float | None = None
    unit: str = ""  # "bytes": written as kB, MB; "count": whole numbers


def lines(id_: str, title: str, summary: str, x: Axis, y: Axis, drawn: Sequence[Line], *, even: bool = False) -> Markup:
    """A chart of lines, with a description for screen readers and its numbers in a table; `even` adds a diagonal."""
    drawn = [line._replace(points=thinned(line.points)) for line in drawn]
    span_x, span_y = (_span(axis, drawn, place) for place, axis in enumerate((x, y)))

    def at(point: Point) -> Point:
        share_x = (point[0] - span_x[0]) / (span_x[1] - span_x[0])
        share_y = (point[1] - span_y[0]) / (span_y[1] - span_y[0])
        return _LEFT + share_x * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - share_y * (_HEIGHT - _TOP - _BOTTOM)

    body = [_grid(x, y, span_x, span_y, at)]
    if even:
        low, high = max(span_x[0], span_y[0]), min(span_x[1], span_y[1])
        body.append(_path([at((low, low)), at((high, high))], "even"))
    for number, line in enumerate(drawn, start=1):
        placed = [at(point) for point in line.points]
        body.append(_path(placed, f"line-{number}"))
        if line.dots:
            body += [tag("circle", cx=f"{u:.1f}", cy=f"{v:.1f}", r=4, class_="dot") for u, v in placed]
    if len(drawn) > 1:
        body.append(_legend([line.name for line in drawn]))
    svg = tag(
        "svg",
        tag("title", title, id=f"{id_}-title"),
        tag("desc", summary, id=f"{id_}-desc"),
        *body,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_labelledby=f"{id_}-title {id_}-desc",
    )
    return tag("figure", svg, tag("figcaption", tag("strong", title), ". ", summary), _numbers(title, x, y, drawn))


def _numbers(title: str, x: Axis, y: Axis, drawn: Sequence[Line]) -> Markup:
    """The points as a table that opens: some of them, the last one included."""
    named = len(drawn) > 1
    head = (["line"] if named else []) + [x.name, y.name]
    rows = [
        [*([line.name] if named else []), number(px, x.unit), number(py, y.unit)]
        for line in drawn
        for px, py in thinned(line.points, 12)
    ]
    return tag("details", tag("summary", "The same as a table"), table(title, head, rows, n_left=int(named)))


def thinned(points: Sequence[T], most: int = MOST_POINTS) -> list[T]:
    """At most this many of the points, evenly chosen, with the first and the last."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(k * step)] for k in range(most)]


def _span(axis: Axis, drawn: Iterable[Line], place: int) -> Point:
    values = [point[place] for line in drawn for point in line.points]
    low = min(values, default=0.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _grid(x: Axis, y: Axis, span_x: Point, span_y: Point, place: Callable[[Point], Point]) -> Markup:
    made = []
    for value in ticks(*span_y, whole=y.unit == "count"):
        u, v = place((span_x[0], value))
        made += [
            tag("path", d=f"M{u:.1f} {v:.1f}H{_WIDTH - _RIGHT}", class_="grid"),
            tag("text", number(value, y.unit), x=f"{u - 6:.1f}", y=f"{v + 4:.1f}", text_anchor="end", class_="small"),
        ]
    for value in ticks(*span_x, whole=x.unit == "count"):
        u, v = place((value, span_y[0]))
        made.append(
            tag("text", number(value, x.unit), x=f"{u:.1f}", y=f"{v + 17:.1f}", text_anchor="middle", class_="small")
        )
    middle, base = (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BOTTOM
    return joined(
        made,
        tag("path", d=f"M{_LEFT} {_TOP}V{base}H{_WIDTH - _RIGHT}", class_="axis"),
        tag("text", x.name, x=middle, y=_HEIGHT - 8, text_anchor="middle"),
        tag("text", y.name, x=4, y=_TOP - 14, class_="small"),
    )


def _legend(names: Sequence[str]) -> Markup:
    made = []
    for k, name in enumerate(names, start=1):
        height = _TOP + 8 + 18 * k
        made += [
            _path([(_LEFT + 10, height), (_LEFT + 40, height)], f"line-{k}"),
            tag("text", short(name, 40), x=_LEFT + 46, y=height + 4, class_="small"),
        ]
    return joined(made)


def _path(points: Sequence[Point], class_: str) -> Markup:
    return tag("path", d="M" + "L".join(f"{u:.1f} {v:.1f}" for u, v in points), class_=class_) if points else Markup()


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """A few round numbers between two ends."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    step = max(round(step + 0.1), 1) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


# --- tables and bars -------------------------------------------------------------------------------------------------

_FITS = 3
"""Columns of a table that needs no scrolling on a telephone."""


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], *, n_left: int = 1, wide: int | None = None
) -> Markup:
    """A table with a caption; the first cell of a row is its heading, cells from `n_left` on are numbers.

    A cell that is markup is put in as it is, and to the left. The column `wide` holds sentences.
    """

    def class_of(place: int, cell: object = "") -> str | None:
        if place == wide:
            return "sentences"
        return None if place < n_left or isinstance(cell, Markup) else "number"

    def row(cells: Sequence[object]) -> Markup:
        first, *rest = cells
        made = [tag("td", cell, class_=class_of(place, cell)) for place, cell in enumerate(rest, start=1)]
        return tag("tr", tag("th", first, scope="row", class_=class_of(0, first)), made)

    heads = [tag("th", name, scope="col", class_=class_of(place)) for place, name in enumerate(head)]
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", heads)), tag("tbody", map(row, rows)))
    if len(head) <= _FITS:
        return whole
    return tag("div", whole, class_="scroll", tabindex=0, role="group", aria_label=caption)


def bars(caption: str, head: tuple[str, str], values: Mapping[str, float], unit: str = "") -> Markup:
    """A table of names and numbers, the largest first, with a bar in each row."""
    ranked = sorted(values.items(), key=lambda item: -item[1])
    largest = max((value for _, value in ranked), default=0.0) or 1.0
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", bar(value / largest), class_="bar"),
            tag("td", number(value, unit), class_="number"),
        )
        for name, value in ranked
    ]
    heads = (
        tag("th", head[0], scope="col"),
        tag("td"),
        tag("th", head[1], scope="col", class_="number"),
    )
    return tag("table", tag("caption", caption), tag("thead", tag("tr", heads)), tag("tbody", rows))


def bar(share: float) -> Markup:
    """A bar that is full by a share; what it shows stands beside it."""
    width = 100.0 * min(max(share, 0.0), 1.0)
    return tag(
        "svg",
        tag("rect", x=0, y=0, width=100, height=12, class_="empty"),
        tag("rect", x=0, y=0, width=f"{width:.2f}", height=12, class_="fill"),
        viewBox="0 0 100 12",
        preserveAspectRatio="none",
        class_="share",
        aria_hidden="true",
        focusable="false",
    )


# --- numbers as people write them ------------------------------------------------------------------------------------


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def number(value: float, unit: str = "") -> str:
    """1,234; 0.123; 3.4 MB; 12.5%."""
    if unit == "bytes":
        return size(value)
    if unit == "share":
        return f"{100 * value:.1f}%"
    if math.isinf(value) or math.isnan(value):
        return "infinite" if math.isinf(value) else "unknown"
    if value == round(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}"


def size(n_bytes: float) -> str:
    """Bytes in the unit that is easiest to read."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.3g} {unit}" if n_bytes < 999.5 * factor else f"{n_bytes / factor:,.0f} {unit}"
    return f"{n_bytes:.0f} bytes"


def moment(iso: str) -> str:
    """A moment of ISO 8601 as people write it, in UTC: 17 November 2026, 20:28 UTC; as it is, if it is none."""
    try:
        when = datetime.fromisoformat(iso)
        if when.tzinfo is None:
            return iso
        when = when.astimezone(UTC)
    except (ValueError, OverflowError):
        return iso
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}, {when:%H:%M} UTC"


def count(n: int, one: str, several: str | None = None) -> str:
    """1 message, 12 messages."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def short(name: str, most: int) -> str:
    """A name that fits; its whole stands elsewhere."""
    return name if len(name) <= most else name[: most - 1] + "…"
