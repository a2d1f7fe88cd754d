"""Fits the coefficients of `hedgerow.node.costs` to half of the points of scale.py, and checks them on the other half.

Used by `python benchmarks/scale.py model`. For each protocol and quantity, terms are added one by one as long as that
helps: each time the one that predicts best a point that was left out, only among the points for fitting. Coefficients
are those of the smallest squares of relative errors, none of them negative. Every second point of a protocol is for
checking, and has no part in any of this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from hedgerow.node.costs import PLAIN, QUANTITIES, TERMS, Size, combined, yardstick

BAR = 1.3
MOST_TERMS = 6
HELPS = 0.95  # a term is taken if it makes errors this much smaller
CURVES_OF_FITS = ("rows", "columns", "bins", "depth", "actors", "xgboost")
WAITS = {"start", "trees", "trees of more than three", "levels", "levels x halvings", "rows x trees", "rows x levels"}
"""What rounds can be made of."""
QUIET = 0.9
Point = tuple[Size, dict[str, float]]


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


def fit_all(path: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """What goes into costs.json; prints how near predictions come on the points that had no part in the fit."""
    coefficients: dict[str, dict[str, dict[str, float]]] = {}
    checked: dict[str, dict[str, float]] = {}
    largest: dict[str, dict[str, int]] = {}
    for protocol, points in points_by_protocol(path).items():
        coefficients[protocol], checked[protocol] = {}, {}
        largest[protocol] = {each.name: max(getattr(size, each.name) for size, _ in points) for each in fields(Size)}
        for quantity in QUANTITIES:
            own = [point for point in points if quantity in point[1]]
            if len(own) < 6:
                continue
            found = fitted(own[::2], quantity)
            factor, _ = worst(own[1::2], quantity, found)
            if factor <= BAR:
                coefficients[protocol][quantity], checked[protocol][quantity] = found, round(factor, 3)
            verdict = "within" if factor <= BAR else "BEYOND"
            print(f"{protocol:28s} {quantity:8s} {factor:6.3f} {verdict} {BAR}   {' + '.join(found)}")
    coefficients = {protocol: found for protocol, found in coefficients.items() if found}
    return {
        "machine": machine,
        "yardstick_seconds": yardstick(),
        "checked": {protocol: checked[protocol] for protocol in coefficients},
        "largest": {protocol: largest[protocol] for protocol in coefficients},
        "coefficients": coefficients,
    }
