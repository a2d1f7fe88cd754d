"""What a run takes as a sum of terms with a meaning: fitted to half of the points of scale.py, checked on the others.

    python benchmarks/scale.py protocols      points, on a quiet machine
    python benchmarks/scale.py model          for each protocol and quantity: terms, and the largest factor between
                                              predicted and measured among the points that had no part in the fit

Terms are added one by one as long as that helps: each time the one that predicts best a point that was left out, only
among the points for fitting. Coefficients are those of the smallest squares of relative errors, none of them negative,
so nothing gets cheaper with more of it. Every second point of a protocol is for checking. Seconds of a machine that was
not quiet are left out: a fit would learn what else was going on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

PLAIN = "plain"
QUANTITIES = ("seconds", "rounds", "bytes")


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

    @property
    def rows_each(self) -> float:
        """What one processor works on."""
        return self.rows / self.processors

    @property
    def cells(self) -> float:
        """Sums that all nodes of all trees need."""
        return self.trees * (2.0**self.depth - 1) * self.columns * self.bins


TERMS: dict[str, Callable[[Size], float]] = {
    "start": lambda _: 1.0,
    "parties": lambda s: s.parties,
    "pairs of parties": lambda s: s.parties**2,
    "trees": lambda s: s.trees,
    "trees of more than three": lambda s: s.trees if s.parties > 3 else 0.0,
    "levels": lambda s: s.trees * s.depth,
    "levels x halvings": lambda s: s.trees * s.depth * math.ceil(math.log2(s.columns * s.bins)),
    "messages": lambda s: s.trees * s.depth * s.parties,
    "nodes": lambda s: s.trees * (2.0**s.depth - 1),
    "rows": lambda s: s.rows_each,
    "values": lambda s: s.rows_each * s.columns,
    "others' values": lambda s: s.rows_each * s.columns * (1 - 1 / s.parties),
    "rows x trees": lambda s: s.rows_each * s.trees,
    "rows x trees x parties": lambda s: s.rows_each * s.trees * s.parties,
    "rows x levels": lambda s: s.rows_each * s.trees * s.depth,
    "rows x levels x parties": lambda s: s.rows_each * s.trees * s.depth * s.parties,
    "values x trees": lambda s: s.rows_each * s.columns * s.trees,
    "values x levels": lambda s: s.rows_each * s.columns * s.trees * s.depth,
    "cells": lambda s: s.cells,
    "cells x parties": lambda s: s.cells * s.parties,
    "cells x pairs of parties": lambda s: s.cells * s.parties**2 / s.processors,
    "columns x parties": lambda s: s.columns * s.parties,
    "columns x bins x parties": lambda s: s.columns * s.bins * s.parties,
    "rows x columns x bins": lambda s: s.rows_each * s.columns * s.bins,
    "merged cells": lambda s: s.cells * math.ceil(math.log2(s.actors)) if s.actors else 0.0,
    "calls of actors": lambda s: s.trees * s.depth * s.actors,
}
"""What work, bytes and rounds are made of; each grows, or stays, with everything in a size but processors."""

BAR = 1.3
MOST_TERMS = 6
FEWEST = 6  # points
HELPS = 0.95  # a term is taken if it makes errors this much smaller
CURVES_OF_FITS = ("rows", "columns", "bins", "depth", "actors", "xgboost")
WAITS = {"start", "trees", "trees of more than three", "levels", "levels x halvings", "rows x trees", "rows x levels"}
"""What rounds can be made of."""
QUIET = 0.9
Point = tuple[Size, dict[str, float]]


def combined(coefficients: Mapping[str, float], quantity: str, size: Size) -> float:
    """The sum of the terms; only time gets less with more processors."""
    size = size if quantity == "seconds" else replace(size, processors=1)
    return float(sum(coefficient * TERMS[term](size) for term, coefficient in coefficients.items()))


def points_by_protocol(path: Path) -> dict[str, list[Point]]:
    """All points that came out, in the order of the file; the last one of those of the same size."""
    found: dict[str, dict[Size, dict[str, float]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        about = line["found"]
        if "failed" in about or line["kind"] == "xgboost" or line.get("transport") == "memory":
            continue
        if line["kind"] != "protocol" and line["curve"] not in CURVES_OF_FITS:
            continue
        protocol, size = line.get("protocol", PLAIN), size_of_line(line)
        is_quiet = line.get("free_cores", 0.0) >= QUIET
        wanted = [name for name in QUANTITIES if about.get(name) and (is_quiet or name != "seconds")]
        found.setdefault(protocol, {})[size] = {name: about[name] for name in wanted}
    return {protocol: list(points.items()) for protocol, points in found.items()}


def size_of_line(line: dict[str, Any]) -> Size:
    """The size of a point; actors beyond the number of cores do no more work."""
    sizes = {name: line[name] for name in ("rows", "columns", "trees", "depth", "bins")}
    cores, actors = line["machine"]["cores"], line.get("actors", 0)
    processors = min(actors or line.get("threads", cores), cores)
    return Size(**sizes, parties=line.get("parties", 1), processors=processors, actors=actors)


def fitted(points: Sequence[Point], quantity: str) -> dict[str, float]:
    """Term -> coefficient, from the points for fitting."""
    sizes = [size for size, _ in points]
    y = np.array([about[quantity] for _, about in points])
    columns = {t: np.array([combined({t: 1.0}, quantity, size) for size in sizes]) / y for t in TERMS}
    if quantity == "rounds":  # small runs alone would not tell what goes on growing
        columns = {term: columns[term] for term in WAITS}
    columns = {term: column for term, column in columns.items() if column.any()}
    chosen: list[str] = []
    error = np.inf
    while len(chosen) < min(MOST_TERMS, len(points) - 2):
        errors = {term: _left_out(columns, [*chosen, term]) for term in columns if term not in chosen}
        best = min(errors, key=lambda term: errors[term])
        if errors[best] > HELPS * error and len(chosen) > 0:
            break
        chosen, error = [*chosen, best], errors[best]
    coefficients = _solved(columns, chosen, np.ones(len(points), np.bool_))
    return {term: float(c) for term, c in zip(chosen, coefficients, strict=True) if c > 0}


def _solved(columns: dict[str, np.ndarray], terms: Sequence[str], used: np.ndarray) -> np.ndarray:
    A = np.column_stack([columns[term][used] for term in terms])
    scale = np.abs(A).max(axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(A / scale, np.ones(len(A)))
    return np.asarray(solution / scale)


def _left_out(columns: dict[str, np.ndarray], terms: Sequence[str]) -> float:
    """How far off predictions are of points that were left out, each in turn: root of the mean square of logarithms."""
    n_points = len(columns[terms[0]])
    off = []
    for left_out in range(n_points):
        solution = _solved(columns, terms, np.arange(n_points) != left_out)
        told = sum(c * columns[term][left_out] for c, term in zip(solution, terms, strict=True))
        off.append(np.log(max(told, 1e-3)))
    return float(np.sqrt(np.mean(np.square(off))))


def worst(points: Sequence[Point], quantity: str, coefficients: dict[str, float]) -> tuple[float, list[float]]:
    """The largest factor between predicted and measured, and all ratios."""
    ratios = [combined(coefficients, quantity, size) / about[quantity] for size, about in points if quantity in about]
    return max((max(ratio, 1 / ratio) for ratio in ratios), default=1.0), ratios


def fit_all(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """By protocol and quantity: coefficients, and the largest factor on the points for checking; prints a line each."""
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for protocol, points in points_by_protocol(path).items():
        for quantity in QUANTITIES:
            own = [point for point in points if quantity in point[1]]
            if len(own) < FEWEST:
                print(f"{protocol:28s} {quantity:8s} {len(own)} points, {FEWEST} are needed")
                continue
            found = fitted(own[::2], quantity)
            factor, _ = worst(own[1::2], quantity, found)
            told.setdefault(protocol, {})[quantity] = {"coefficients": found, "checked": round(factor, 3)}
            verdict = "within" if factor <= BAR else "BEYOND"
            print(f"{protocol:28s} {quantity:8s} {factor:6.3f} {verdict} {BAR}   {' + '.join(found)}")
    return told
