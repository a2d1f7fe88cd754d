"""The picture of who sent what to whom: boxes for parties, a numbered arrow for each way between two of them.

An arrow's colour and dashes say how what is protected least in it is protected; its number is that of the list below
the picture, to which it is a link. Where all messages go through one party, that one stands on the left and the others
on the right; otherwise parties stand in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hedgerow.report.charts import count, short, size
from hedgerow.report.flows import PROTECTIONS, Arrow
from hedgerow.report.html import Markup, joined, tag

_WIDTH, _BOX, _TALL, _ROW = 460, 128, 46, 92
_RADII = (162, 150)
Point = tuple[float, float]


class Box(NamedTuple):
    """A party, or a group of them, in the picture."""

    name: str
    role: str
    middle: Point
    height: float
    is_group: bool
    is_own: bool


class _Placed(NamedTuple):
    """An arrow as it is drawn, the place of its number, and words on it."""

    arrow: Arrow
    line: Markup
    badge: Point
    words: Markup | None = None


def picture(id_: str, arrows: Sequence[Arrow], roles: Mapping[str, str], own: str | None = None) -> Markup:
    """Arrows between parties or groups; `roles` has each of them with what it does, in order."""
    hub = _hub(arrows, own)
    height, boxes, placed = _beside(arrows, roles, hub, own) if hub is not None else _around(arrows, roles, own)
    drawn = [_linked(f"{id_}-{number}", number, *each) for number, each in enumerate(placed, start=1)]
    words = f"{count(len(boxes), 'box', 'boxes')}, {count(len(arrows), 'arrow')}. The list after it says the same."
    return tag(
        "svg",
        tag("title", "Who sent what to whom", id=f"{id_}-title"),
        tag("desc", words, id=f"{id_}-desc"),
        drawn,
        (_drawn_box(box) for box in boxes),
        viewBox=f"0 0 {_WIDTH} {height:.0f}",
        role="group",
        aria_labelledby=f"{id_}-title {id_}-desc",
    )


def legend() -> Markup:
    """What colours and dashes mean."""
    entries = []
    for kind, words in PROTECTIONS.items():
        sample = tag(
            "svg",
            tag("path", d="M1 6H39", class_=f"arrow {kind}"),
            viewBox="0 0 40 12",
            aria_hidden="true",
            focusable="false",
        )
        entries.append(tag("li", tag("span", sample, class_="sample"), words))
    return tag("ul", entries, class_="legend", aria_label="What the arrows mean")


def _hub(arrows: Sequence[Arrow], own: str | None) -> str | None:
    """The party that takes part in every arrow, if there is one."""
    if not arrows or any(arrow.sender == arrow.receiver for arrow in arrows):
        return None
    common = set.intersection(*({arrow.sender, arrow.receiver} for arrow in arrows))
    return next((name for name in (own, arrows[0].sender, arrows[0].receiver) if name in common), None)


def _beside(
    arrows: Sequence[Arrow], roles: Mapping[str, str], hub: str, own: str | None
) -> tuple[float, list[Box], list[_Placed]]:
    """The hub on the left, as tall as all others together; arrows lie flat."""
    others = [name for name in roles if name != hub and any(name in (a.sender, a.receiver) for a in arrows)]
    height = _ROW * max(len(others), 1)
    left, right = _BOX / 2 + 3, _WIDTH - _BOX / 2 - 8
    boxes = [_box(hub, roles, (left, height / 2), own, height - 14)]
    middles = {name: _ROW * (k + 0.5) for k, name in enumerate(others)}
    boxes += [_box(name, roles, (right, middle), own, _TALL + 14) for name, middle in middles.items()]
    ends = (left + _BOX / 2 + 3, right - _BOX / 2 - 3)
    drawn = []
    for arrow in arrows:
        outward = arrow.sender == hub
        level = middles[arrow.receiver] - 12 if outward else middles[arrow.sender] + 24
        start, end = ends if outward else ends[::-1]
        words = tag(
            "text",
            f"{count(arrow.number, 'message')}, {size(arrow.n_bytes)}",
            x=(ends[0] + ends[1]) / 2,
            y=level - 13,
            text_anchor="middle",
            class_="small",
        )
        near = (start + (16 if outward else -16), level)
        drawn.append(_Placed(arrow, _line(arrow, (start, level), (end, level)), near, words))
    return height, boxes, drawn


def _around(
    arrows: Sequence[Arrow], roles: Mapping[str, str], own: str | None
) -> tuple[float, list[Box], list[_Placed]]:
    """Parties in a circle, the first one on top."""
    names = [name for name in roles if any(name in (a.sender, a.receiver) for a in arrows)]
    middle = (_WIDTH / 2, _RADII[1] + _TALL / 2 + 24)
    boxes = []
    for k, name in enumerate(names):
        angle = 2 * math.pi * k / len(names) - math.pi / 2
        place = (middle[0] + _RADII[0] * math.cos(angle), middle[1] + _RADII[1] * math.sin(angle))
        boxes.append(_box(name, roles, place, own, _TALL))
    places = {box.name: box.middle for box in boxes}
    drawn = []
    for arrow in arrows:
        if arrow.sender == arrow.receiver:
            drawn.append(_loop(arrow, places[arrow.sender]))
        else:
            start, end = _between(places[arrow.sender], places[arrow.receiver])
            third = (0.7 * start[0] + 0.3 * end[0], 0.7 * start[1] + 0.3 * end[1])
            drawn.append(_Placed(arrow, _line(arrow, start, end), third))
    return 2 * middle[1] - 8, boxes, drawn


def _between(start: Point, end: Point) -> tuple[Point, Point]:
    """From the edge of one box to that of another, a little to the right of the straight line."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    aside = (-8 * uy, 8 * ux)

    def edge(box: Point, sign: float) -> Point:
        """Where the line beside the straight one leaves a box, in the direction of `sign`."""
        reach = min(
            (half - math.copysign(1.0, sign * u) * a) / abs(u)
            for half, u, a in ((_BOX / 2 + 4, ux, aside[0]), (_TALL / 2 + 4, uy, aside[1]))
            if abs(u) > 1e-9
        )
        return box[0] + aside[0] + sign * reach * ux, box[1] + aside[1] + sign * reach * uy

    return edge(start, 1.0), edge(end, -1.0)


def _box(name: str, roles: Mapping[str, str], middle: Point, own: str | None, height: float) -> Box:
    role = roles.get(name, "")
    return Box(name, role, middle, height, is_group=name.endswith(f" {role}s") and bool(role), is_own=name == own)


def _drawn_box(box: Box) -> Markup:
    x, y = box.middle[0] - _BOX / 2, box.middle[1] - box.height / 2
    behind = [
        tag("rect", x=x + k, y=y - k, width=_BOX, height=box.height, rx=7, class_="box")
        for k in ((7, 3.5) if box.is_group else ())
    ]
    below = "" if box.is_group or box.role == box.name else "this report" if box.is_own and not box.role else box.role
    words = [
        tag("title", f"{box.name}: {box.role}" if below else box.name),
        tag("rect", x=x, y=y, width=_BOX, height=box.height, rx=7, class_="box own" if box.is_own else "box"),
        tag("text", short(box.name, 15), x=box.middle[0], y=box.middle[1] - (2 if below else -4), text_anchor="middle"),
    ]
    if below:
        words.append(tag("text", below, x=box.middle[0], y=box.middle[1] + 14, text_anchor="middle", class_="small"))
    return tag("g", behind, words)


def _line(arrow: Arrow, start: Point, end: Point) -> Markup:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    neck = (end[0] - 9 * ux, end[1] - 9 * uy)
    sides = [(neck[0] - 5 * uy, neck[1] + 5 * ux), (neck[0] + 5 * uy, neck[1] - 5 * ux)]
    return joined(
        tag("path", d=f"M{_at(start)}L{_at(neck)}", class_=f"arrow {arrow.kind}"),
        tag("path", d=f"M{_at(end)}L{_at(sides[0])}L{_at(sides[1])}Z", class_=f"head {arrow.kind}"),
    )


def _loop(arrow: Arrow, place: Point) -> _Placed:
    """Of a group whose parties send to each other."""
    x, y = place[0] + _BOX / 2 - 36, place[1] - _TALL / 2
    drawn = tag("path", d=f"M{x:.1f} {y:.1f}c0 -26 34 -26 34 -2", class_=f"arrow {arrow.kind}")
    return _Placed(arrow, drawn, (x + 17, y - 19))


def _linked(id_: str, number: int, arrow: Arrow, line: Markup, badge: Point, words: Markup | None) -> Markup:
    """An arrow with its number, as a link to its entry in the list."""
    told = (
        f"{number}: {arrow.sender} to {arrow.receiver}, {count(arrow.number, 'message')}, {size(arrow.n_bytes)}, "
        f"{PROTECTIONS[arrow.kind]}"
    )
    x, y = badge
    return tag(
        "a",
        tag("title", told),
        line,
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=9.5, class_=f"badge {arrow.kind}"),
        tag("text", number, x=f"{x:.1f}", y=f"{y + 4:.1f}", text_anchor="middle", class_="small"),
        words,
        href=f"#{id_}",
        aria_label=told,
    )


def _at(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"
