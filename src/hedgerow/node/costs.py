"""What a run would take, at once and without a probe: terms with a meaning, times coefficients that were measured.

    predicted = predict("horizontal.secure_sum", Size(rows=10**9, columns=28, parties=1000, trees=100, depth=6))
    predicted.seconds, predicted.rounds, predicted.bytes

For every protocol, and for the plain engine ("plain"), `costs.json` beside this module has coefficients, none of them
negative, so nothing gets cheaper with more of it. `benchmarks/scale.py model` fits them to half of the small runs that
it has measured, and checks them on the other half: `checked` in the file has the largest factor by which any of those
was off. What was off by more than 1.3 has no coefficients, and is not predicted. The file says on what machine that
was; `slower_here` compares this one. Which terms a protocol is made of is in `benchmarks/cost_model.py`.

All of it is a prediction. Far beyond the sizes that were measured it only says what happens if nothing else gets in the
way.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hedgerow.errors import InvalidParameter

if TYPE_CHECKING:
    from hedgerow.transport.emulate import Link

PLAIN = "plain"
FILE = Path(__file__).with_name("costs.json")
LARGEST = 10**15
"""Of any number in a size."""
_YARDSTICK_RUNS = 3


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    rows: int  # of all parties together where rows are divided, else of each
    columns: int  # of all parties together where columns are divided, else of each
    parties: int = 1
    trees: int = 100
    depth: int = 6
    bins: int = 256
    processors: int = 2  # that share the work on rows: threads, actors on Ray, or owners each on a machine of its own
    actors: int = 0  # whose sums are merged; 0: not on Ray

    def __post_init__(self) -> None:
        """Refuse what no run has."""
        for each in fields(self):
            value, least = getattr(self, each.name), 0 if each.name == "actors" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                raise InvalidParameter(f"a size has a whole number of {each.name} from {least} on, got {value!r}")
        if self.depth > 30:
            raise InvalidParameter(f"a size has a depth of at most 30 levels, got {self.depth}")

    @property
    def rows_each(self) -> float:
        """What one processor works on."""
        return self.rows / self.processors

    @property
    def cells(self) -> float:
        """Sums that all nodes of all trees need."""
        return self.trees * (2.0**self.depth - 1) * self.columns * self.bins


TERMS: Mapping[str, Callable[[Size], float]] = MappingProxyType(
    {
        "start": lambda _: 1.0,
        "parties": lambda s: s.parties,
        "others": lambda s: s.parties - 1,
        "pairs": lambda s: s.parties**2,
        "trees": lambda s: s.trees,
        "trees of more than three": lambda s: s.trees if s.parties > 3 else 0.0,
        "nodes": lambda s: s.trees * (2.0**s.depth - 1),
        "levels": lambda s: s.trees * s.depth,
        "levels x halvings": lambda s: s.trees * s.depth * math.ceil(math.log2(s.columns * s.bins)),
        "levels x parties": lambda s: s.trees * s.depth * s.parties,
        "levels x pairs": lambda s: s.trees * s.depth * s.parties**2 / s.processors,
        "columns x parties": lambda s: s.columns * s.parties,
        "columns x halvings x parties": lambda s: s.columns * math.ceil(math.log2(s.bins)) * s.parties,
        "rows x others": lambda s: s.rows_each * (s.parties - 1),
        "rows x trees": lambda s: s.rows_each * s.trees,
        "rows x trees x others": lambda s: s.rows_each * s.trees * (s.parties - 1),
        "rows x levels x others": lambda s: s.rows_each * s.trees * s.depth * (s.parties - 1),
        "rows x levels x parties": lambda s: s.rows_each * s.trees * s.depth * s.parties,
        "values": lambda s: s.rows_each * s.columns,
        "values x columns": lambda s: s.rows_each * s.columns**2,
        "others' values": lambda s: s.rows_each * s.columns * (1 - 1 / s.parties),
        "values x trees": lambda s: s.rows_each * s.columns * s.trees,
        "values x levels": lambda s: s.rows_each * s.columns * s.trees * s.depth,
        "candidates": lambda s: s.rows_each * s.columns * s.bins * s.trees * s.depth,
        "others' candidates": lambda s: s.rows_each * s.columns * s.bins * s.trees * s.depth * (1 - 1 / s.parties),
        "cells": lambda s: s.cells,
        "others' cells": lambda s: s.cells * (1 - 1 / s.parties),
        "cells x parties": lambda s: s.cells * s.parties,
        "cells x pairs": lambda s: s.cells * s.parties**2 / s.processors,
        "merged cells": lambda s: s.cells * math.ceil(math.log2(s.actors)) if s.actors else 0.0,
        "cluster": lambda s: 1.0 if s.actors else 0.0,
        "calls of actors": lambda s: s.trees * s.depth * (1 + math.ceil(math.log2(s.actors))) if s.actors else 0.0,
    }
)
"""What work, bytes and rounds are made of; each grows, or stays, with everything in a size but processors."""

QUANTITIES = ("seconds", "rounds", "bytes")


class Predicted(NamedTuple):
    """What a run would take; None where no fit came near enough on the points that it was checked on."""

    seconds: float | None
    rounds: float | None
    bytes: float | None  # sent by all parties together

    def link_seconds(self, link: Link | None) -> float:
        """What a link adds if all bytes pass one line, and nothing overlaps."""
        if link is None or self.rounds is None or self.bytes is None:
            return 0.0
        return self.rounds * link.round_trip / 2 + 8 * self.bytes / link.bandwidth


@functools.cache
def shipped() -> Mapping[str, Any]:
    """What was measured: coefficients by protocol and quantity, the machine, and how long the yardstick took there."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return MappingProxyType(found)


def known() -> tuple[str, ...]:
    """What can be predicted."""
    return tuple(shipped()["coefficients"])


def predict(protocol: str, size: Size, *, slower: float = 1.0) -> Predicted:
    """What a run of this size would take on the machine that was measured, or on one that is slower by a factor."""
    if protocol not in known():
        raise InvalidParameter(f"costs are known of {', '.join(known())}, and not of {protocol!r}")
    by_quantity = shipped()["coefficients"][protocol]
    sums = {name: combined(by_quantity[name], name, size) if name in by_quantity else None for name in QUANTITIES}
    if sums["seconds"] is not None:
        sums["seconds"] *= slower
    return Predicted(**sums)


def is_within_measured(protocol: str, size: Size) -> bool:
    """Whether nothing in a size is larger than in some run that was measured."""
    largest = shipped()["largest"][protocol]
    return all(getattr(size, name) <= most for name, most in largest.items())


def combined(coefficients: Mapping[str, float], quantity: str, size: Size) -> float:
    """The sum of the terms; only time gets less with more processors."""
    size = size if quantity == "seconds" else replace(size, processors=1)
    return float(sum(coefficient * TERMS[term](size) for term, coefficient in coefficients.items()))


def slower_here() -> float:
    """By what factor this machine is slower than the one that was measured: a small plain training on both."""
    return yardstick() / float(shipped()["yardstick_seconds"])


def yardstick() -> float:
    """Seconds of a small plain training, the fastest of a few."""
    import numpy as np

    from hedgerow import BoostedTreesClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 20)).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 2] > 0
    taken = []
    for _ in range(_YARDSTICK_RUNS + 1):  # the first one compiles
        start = time.perf_counter()
        BoostedTreesClassifier(max_iter=10, max_depth=6).fit(X, y)
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def size_of(text: str) -> Size:
    """A size from "rows=1000000000,columns=28,parties=1000"."""
    names = {each.name for each in fields(Size)}
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        if name not in names or name in given or not number.isdecimal() or len(number) > 16:
            raise InvalidParameter(f"a size is {', '.join(sorted(names))} as in rows=1000000,columns=28; got {part!r}")
        given[name] = int(number)
    for name in ("rows", "columns"):
        if name not in given:
            raise InvalidParameter(f"a size needs rows and columns, as in rows=1000000,columns=28; got {text!r}")
    return Size(**given)
