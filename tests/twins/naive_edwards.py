"""edwards25519 with Python's integers, straight from its equation."""

from __future__ import annotations

from hedgerow.crypto.edwards25519 import BASE, D
from hedgerow.crypto.field25519 import P

NEUTRAL = (0, 1)
ORDER_2 = (0, P - 1)
_ROOT = pow(2, (P - 1) // 4, P)
ORDER_4 = (_ROOT, 0)
_Y_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
ORDER_8 = (_Y_8 * pow(_ROOT, -1, P) % P, _Y_8)  # y = root x: the double has y = 0


def add(one, other):
    """The sum of two points."""
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def negative(point):
    """The point that cancels it."""
    return -point[0] % P, point[1]


def multiple(k, point=BASE):
    """k times a point."""
    total = NEUTRAL
    while k:
        if k & 1:
            total = add(total, point)
        point = add(point, point)
        k >>= 1
    return total


def is_on_curve(point):
    """Whether the equation holds."""
    x, y = point
    return (y * y - x * x - 1 - D * x * x * y * y) % P == 0
