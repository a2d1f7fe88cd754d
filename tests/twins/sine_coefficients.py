"""The coefficients of the logistic function's sines (`crypto.sigmoid`): least squares in decimal arithmetic."""

from __future__ import annotations

import decimal
from fractions import Fraction

from hedgerow.crypto.sigmoid import _FINE_BITS, _UNIT_BITS, _turns

_DIGITS = 60
_POINTS = 384


def coefficients(n_sines: int, bound: Fraction, period: Fraction) -> list[int]:
    """b_k in units of 2**-30: least squares with the weight 1 / sqrt(1 - (x / bound)^2), by elimination.

    The points are the middles of equal steps, (j + 1/2) bound / _POINTS, so k times their angle is k (2 j + 1) times
    that of half a step.
    """
    with decimal.localcontext(_context()):
        unit = decimal.Decimal(1 << _FINE_BITS)
        turns = _turns(bound / (2 * _POINTS) / period, n_sines * 2 * _POINTS)
        sines = [[turns[k * (2 * j + 1)][1] / unit for j in range(_POINTS)] for k in range(1, n_sines + 1)]
        places = [decimal.Decimal(2 * j + 1) / (2 * _POINTS) for j in range(_POINTS)]
        weights = [1 / (1 - place * place).sqrt() for place in places]
        whole = decimal.Decimal(bound.numerator) / bound.denominator
        target = [1 / (1 + (-whole * place).exp()) - decimal.Decimal("0.5") for place in places]
        weighted = [[w * s for w, s in zip(weights, row, strict=True)] for row in sines]
        rows = [[_dot(left, right) for right in [*sines, target]] for left in weighted]
        solution = _solved(rows)
        return [int((b * (1 << _UNIT_BITS)).to_integral_value()) for b in solution]


def _dot(x: list[decimal.Decimal], y: list[decimal.Decimal]) -> decimal.Decimal:
    return sum((a * b for a, b in zip(x, y, strict=True)), decimal.Decimal(0))


def _solved(rows: list[list[decimal.Decimal]]) -> list[decimal.Decimal]:
    """The solution of A b = y from rows [A, y], A positive definite: elimination needs no exchange of rows."""
    n = len(rows)
    for i in range(n):
        for below in rows[i + 1 :]:
            factor = below[i] / rows[i][i]
            for j in range(i, n + 1):
                below[j] -= factor * rows[i][j]
    solution = [decimal.Decimal(0)] * n
    for i in reversed(range(n)):
        solution[i] = (rows[i][n] - _dot(rows[i][i + 1 : n], solution[i + 1 :])) / rows[i][i]
    return solution


def _context() -> decimal.Context:
    """A context of our own: whoever calls may have changed the thread's."""
    return decimal.Context(
        prec=_DIGITS,
        rounding=decimal.ROUND_HALF_EVEN,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )
