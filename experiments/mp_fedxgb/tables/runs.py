"""Trainings whose time is measured: which there are, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from experiments.mp_fedxgb.cells import MINIMAL, PAPER, Cell, Result
from experiments.mp_fedxgb.methods import published_is_there
from experiments.mp_fedxgb.tables.common import measured, median

PAPER_SECONDS = 50.0
"""About, of 10,000 x 10, 3 trees of depth 3, on the authors' machine."""
BUCKETS = 10.0
DATASET = "give_me_some_credit"


class Curve(NamedTuple):
    """A protocol and what carries its messages."""

    method: str
    transport: str
    repetitions: int

    def __str__(self) -> str:
        return f"{self.method}, {'in memory' if self.transport == 'memory' else 'processes over gRPC'}"


CURVES = (Curve(MINIMAL, "memory", 3), Curve(MINIMAL, "grpc", 1), Curve(PAPER, "memory", 1))


def curves() -> tuple[Curve, ...]:
    """Those that this version has."""
    return tuple(curve for curve in CURVES if curve.method == MINIMAL or published_is_there())


def repeated(*, quick: bool, **size: int) -> list[Cell]:
    """The cells of one point; with `quick` only the first curve, once where nothing else follows it."""
    wanted = curves()[:1] if quick else curves()
    return [
        Cell(DATASET, curve.method, index=i, buckets=BUCKETS, transport=curve.transport, **size)  # type: ignore[arg-type]  # numbers by name
        for curve in wanted
        for i in range(curve.repetitions)
    ]


def of(results: Iterable[Result], curve: Curve, what: str, **wanted: Any) -> list[float]:
    """What was measured of one point."""
    return measured(results, what, method=curve.method, transport=curve.transport, **wanted)


def shown_rounds(results: list[Result], points: Iterable[Mapping[str, int]]) -> list[list[str]]:
    """A line for each protocol: how many rounds it took."""
    lines, points = [], list(points)
    for curve in curves():
        rounds = [median(of(results, curve, "rounds", **point)) for point in points]
        if curve.transport == "memory" and any(rounds):
            lines.append([f"{curve.method}, rounds", *("" if n is None else f"{n:.0f}" for n in rounds)])
    return lines
