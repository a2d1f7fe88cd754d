"""Damage for files and messages, as hypothesis draws it: bytes that flip or go, values that do not belong there."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

DEEP = "[" * 20_000 + "]" * 20_000
_DEEP_MARK = "put twenty thousand brackets here"
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2, 2**63, 10**400, 1e308, float("nan"), float("-inf"), 0.5),
    *("", "../../x", "/etc/passwd", "\ud800", "\0", "\x1b[2J", "x" * 70_000, "1" * 5_000),
    *([], {}, [[]], {"a": 1}, [None] * 1000, _DEEP_MARK),
)
"""Values that no reader waits for."""
_TOML = ("true", "0", "-1", "1" * 400, "1" * 5000, "nan", "-1e999", '""', '"\\u0000"', "[]", "[1, [2]]", "{}", DEEP)


def as_often(few: int) -> settings:
    """As many examples; twenty times as many with HEDGEROW_ALL_TWISTS=1."""
    n = 20 * few if os.environ.get("HEDGEROW_ALL_TWISTS") else few
    phases = (Phase.explicit, Phase.generate)  # a damaged file is not clearer for being shorter
    return settings(max_examples=n, deadline=None, phases=phases, suppress_health_check=list(HealthCheck))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, kind: str) -> bytes:
    """Another file in place of this one; `kind` is json, jsonl, toml or anything else, which is taken for bytes."""
    ways = [_flipped, _cut, _left_out, _put_in]
    ways += {"json": [_json] * 6, "jsonl": [_one_line] * 6, "toml": [_toml] * 6}.get(kind, [])
    return draw(st.sampled_from(ways))(draw, whole)


def _flipped(draw: st.DrawFn, whole: bytes) -> bytes:
    place = draw(st.integers(0, max(len(whole) - 1, 0)))
    return whole[:place] + bytes([draw(st.integers(0, 255))]) + whole[place + 1 :]


def _cut(draw: st.DrawFn, whole: bytes) -> bytes:
    return whole[: draw(st.integers(0, len(whole)))]


def _left_out(draw: st.DrawFn, whole: bytes) -> bytes:
    start = draw(st.integers(0, len(whole)))
    return whole[:start] + whole[start + draw(st.integers(1, 64)) :]


def _put_in(draw: st.DrawFn, whole: bytes) -> bytes:
    place = draw(st.integers(0, len(whole)))
    junk = st.sampled_from([b"\0", b"\xff\xfe", b"\n", b'"', b"{", b"\x00" * 5000, DEEP.encode(), whole])
    return whole[:place] + draw(junk | st.binary(max_size=20)) + whole[place:]


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside: Any = ()
    if isinstance(document, dict):
        inside = document.items()
    elif isinstance(document, list):
        inside = list(enumerate(document))[:5]  # of a thousand numbers each is as good as the others
    return [path, *(each for key, value in inside for each in _places(value, (*path, key)))]


def _json(draw: st.DrawFn, whole: bytes) -> bytes:
    """One value is another one, is not there, or is there twice."""
    document = json.loads(whole)
    path = draw(st.sampled_from(_places(document)))
    what = draw(st.sampled_from(["other", "other", "other", "gone", "twice", "more"]))
    if not path or what == "other":
        return _written(_with(document, path, draw(st.sampled_from(ODD))))
    *above, last = path
    document = copy.deepcopy(document)
    at = document
    for key in above:
        at = at[key]
    if isinstance(at, list):
        at.extend(at[:1] * 3)
    elif what == "gone":
        del at[last]
    elif what == "more":
        at["a key that nobody knows"] = draw(st.sampled_from(ODD))
    else:
        at["put it here twice"] = draw(st.sampled_from(ODD))
        return _written(document).replace(b'"put it here twice"', json.dumps(last).encode())
    return _written(document)


def _one_line(draw: st.DrawFn, whole: bytes) -> bytes:
    lines = whole.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = _json(draw, lines[place]).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


def _toml(draw: st.DrawFn, whole: bytes) -> bytes:
    lines = whole.decode().splitlines()
    place = draw(st.sampled_from([k for k, line in enumerate(lines) if " = " in line]))
    lines[place] = f"{lines[place].partition(' = ')[0]} = {draw(st.sampled_from(_TOML))}"
    return "\n".join(lines).encode()


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.copy(document)
    document[path[0]] = _with(document[path[0]], path[1:], value)
    return document


def _written(document: Any) -> bytes:
    return json.dumps(document).replace(f'"{_DEEP_MARK}"', DEEP).encode()
