"""Why one random point per row serves all trees: steps of the proof in decision 0027, by counting in small fields.

The proof moves from masks x_k R_i to uniform ones by way of masks that are products of matrices of growing width, each
step from one challenge of decisional Diffie-Hellman. Every step is a statement about numbers modulo L, true for every
prime L. For small L all choices can be enumerated, and distributions are compared exactly.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest


def all_choices(prime, shapes):
    """Arrays [choices, *shape], one per shape: together all that can be drawn."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    number = np.arange(prime ** sum(sizes))
    digits = number[:, None] // prime ** np.arange(sum(sizes)) % prime
    parts = np.split(digits, np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def distribution(prime, *seen):
    """How likely each outcome is, when all choices are."""
    flat = np.concatenate([each.reshape(len(each), -1) % prime for each in seen], axis=1)
    codes = flat @ prime ** np.arange(flat.shape[1])
    found, counts = np.unique(codes, return_counts=True)
    return {int(code): Fraction(int(n), len(codes)) for code, n in zip(found, counts, strict=True)}


def masks(prime, n_rows, n_keys, width):
    """H_w: (r, x, a b'), where r and x are the first columns of a [rows, w] and b [keys, w]; H_1 is the scheme."""
    a, b = all_choices(prime, [(n_rows, width), (n_keys, width)])
    return distribution(prime, a[:, :, 0], b[:, :, 0], a @ b.transpose(0, 2, 1))


def simulated(prime, n_rows, n_keys, width, wider, *, real):
    """What the reduction makes of a challenge (a G, b G, c G): c = a b if it is real, else any c."""
    more = wider - width
    l1, l2, t1, t2, a, b, c = all_choices(
        prime, [(n_rows, width), (n_rows, more), (n_keys, width), (n_keys, more), *[(1, 1)] * 3]
    )
    if real:
        c = a * b
    first = slice(0, more)

    def product(left, right):
        return left @ right.transpose(0, 2, 1)

    r, x = l1[:, :, :1] + a * l2[:, :, :1], t1[:, :, :1] + b * t2[:, :, :1]
    mask = product(l1, t1) + b * product(l1[:, :, first], t2) + a * product(l2, t1[:, :, first]) + c * product(l2, t2)
    return distribution(prime, r, x, mask)


CASES = [
    (2, 2, 2, 1, 2),
    (2, 2, 2, 2, 3),
    (2, 2, 2, 2, 4),
    (2, 1, 3, 2, 4),
    (3, 1, 2, 1, 2),
    (3, 1, 2, 2, 3),
    (3, 2, 1, 1, 2),
    (5, 1, 1, 1, 2),
]


@pytest.mark.parametrize(("prime", "n_rows", "n_keys", "width", "wider"), CASES)
def test_a_challenge_takes_masks_from_one_width_to_the_next(prime, n_rows, n_keys, width, wider):
    """From a real challenge come exactly the masks of one width, from a random one those of up to twice the width.

    But for c = a b by chance, once in L times.
    """
    narrow, wide = (masks(prime, n_rows, n_keys, each) for each in (width, wider))
    assert simulated(prime, n_rows, n_keys, width, wider, real=True) == narrow
    chance, expected = Fraction(1, prime), Counter()
    for part, weight in ((narrow, chance), (wide, 1 - chance)):
        for outcome, probability in part.items():
            expected[outcome] += weight * probability
    assert simulated(prime, n_rows, n_keys, width, wider, real=False) == dict(expected)


@pytest.mark.parametrize(("prime", "n_rows", "n_keys"), [(2, 2, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (5, 1, 1)])
def test_masks_wider_than_there_are_keys_are_uniform(prime, n_rows, n_keys):
    """Points, keys and masks of the last width are uniform and independent, but for one chance in L - 1."""
    last = masks(prime, n_rows, n_keys, n_keys + 1)
    each = Fraction(1, prime ** (n_rows + n_keys + n_rows * n_keys))
    away = sum((probability - each for probability in last.values() if probability > each), Fraction(0))
    assert away < Fraction(1, prime - 1)
    assert len(last) == 1 / each
