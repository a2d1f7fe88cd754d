"""Fits the coefficients of `hedgerow.node.costs` to half of the points of scale.py, and checks them on the other half.

Used by `python benchmarks/scale.py model`. Which terms a protocol is made of follows from what it does, and is written
down here, settled with all points in view. Their coefficients are those of the smallest squares of relative errors,
none of them negative; every second point of a protocol is for checking, and has no part in them.

Of a size that was measured several times the fastest run counts: other work makes runs slower and never faster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from hedgerow.node.costs import PLAIN, QUANTITIES, Size, combined, yardstick

BAR = 1.3
FEWEST = 6  # points
CURVES_OF_FITS = ("rows", "columns", "bins", "depth", "trees", "actors", "xgboost")
QUIET = 0.5  # of the cores were free: seconds of a busier machine mean nothing
Point = tuple[Size, dict[str, float]]

ON_SHARES = ["start", "parties", "levels x parties", "levels x pairs", "rows x levels x parties", "cells x parties"]
MADE_OF: dict[str, dict[str, list[str]]] = {
    PLAIN: {
        "seconds": ["start", "values", "values x columns", "rows x trees", "cells", "cluster", "merged cells",
                    "calls of actors"],
    },
    "horizontal.secure_sum": {
        "seconds": ["start", "columns x parties", "nodes", "levels x pairs", "cells x pairs", "values"],
        "rounds": ["start", "levels", "trees of more than three"],
        "bytes": ["pairs", "columns x halvings x parties", "cells x parties"],
    },
    "vertical.bucket_rr": {
        "seconds": ["start", "parties", "values", "values x trees", "cells"],
        "rounds": ["start"],
        "bytes": ["others", "others' values"],
    },
    "vertical.noised_gradients": {
        "seconds": ["parties", "columns x parties", "levels x parties", "nodes", "rows x levels x others"],
        "rounds": ["start", "trees", "levels", "trees of more than three"],
        "bytes": ["others", "rows x others", "rows x trees x others", "rows x levels x others"],
    },
    "vertical.homomorphic": {
        "seconds": ["parties", "levels x parties", "values x trees", "cells"],
        "rounds": ["start", "trees", "levels"],
        "bytes": ["others", "rows x trees x others", "rows x levels x others", "others' cells"],
    },
    "vertical.masked_gradients": {
        "seconds": ["start", "levels x parties", "levels x pairs", "candidates"],
        "rounds": ["start", "trees", "levels", "levels x halvings"],
        "bytes": ["others", "others' candidates"],
    },
    "vertical.private_histograms": {
        "seconds": ON_SHARES,
        "rounds": ["start", "trees", "levels"],
        "bytes": ["parties", "rows x levels x parties", "cells x parties", "cells x pairs"],
    },
    "vertical.secret_shared": {
        "seconds": ON_SHARES,
        "rounds": ["start", "trees", "levels x halvings"],
        "bytes": ["parties", "values", "values x levels", "rows x levels x parties", "cells x parties",
                  "cells x pairs"],
    },
    "vertical.mp_fedxgb": {
        "seconds": ON_SHARES,
        "rounds": ["start", "trees", "levels x halvings"],
        "bytes": ["parties", "values x levels", "rows x levels x parties", "cells x parties", "cells x pairs"],
    },
}  # fmt: skip
"""What each quantity is a sum of."""


def points_by_protocol(path: Path) -> dict[str, list[Point]]:
    """All points that came out, in the order of the file; one of each size, with the fastest run's seconds."""
    found: dict[str, dict[Size, dict[str, float]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        about = line["found"]
        if "failed" in about or line["kind"] == "xgboost" or line.get("transport") == "memory":
            continue
        if line["kind"] != "protocol" and line["curve"] not in CURVES_OF_FITS:
            continue
        is_quiet = line.get("free_cores", 0.0) >= QUIET
        point = found.setdefault(line.get("protocol", PLAIN), {}).setdefault(size_of_line(line), {})
        for name in QUANTITIES:
            if about.get(name) and (is_quiet or name != "seconds"):
                point[name] = min(about[name], point.get(name, about[name]))
    return {protocol: list(points.items()) for protocol, points in found.items()}


def size_of_line(line: dict[str, Any]) -> Size:
    """The size of a point; actors beyond the number of cores do no more work."""
    sizes = {name: line[name] for name in ("rows", "columns", "trees", "depth", "bins")}
    cores, actors = line["machine"]["cores"], line.get("actors", 0)
    processors = min(actors or line.get("threads", cores), cores)
    return Size(**sizes, parties=line.get("parties", 1), processors=processors, actors=actors)


def fitted(points: Sequence[Point], quantity: str, terms: Sequence[str]) -> dict[str, float]:
    """Term -> coefficient, from the points for fitting."""
    A = np.array([[combined({t: 1.0}, quantity, size) for t in terms] for size, _ in points])
    A /= np.array([[about[quantity]] for _, about in points])
    scale = A.max(axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(A / scale, np.ones(len(A)))
    return {term: float(c) for term, c in zip(terms, solution / scale, strict=True) if c > 0}


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
            if len(own) < FEWEST or quantity not in MADE_OF[protocol]:
                continue
            found = fitted(own[::2], quantity, MADE_OF[protocol][quantity])
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
