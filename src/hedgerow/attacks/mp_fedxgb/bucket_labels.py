"""From the number of positive rows in every bucket to the labels of rows.

Who holds columns knows which rows are in which bucket. When it also learns how many rows of each bucket are positive,
as `argmax_opened` does,

    1  a bucket without any positive row, or with no other, gives all its labels away; these are taken off the counts of
       the other buckets that the rows are in, and more of them may then be clear
    2  for the others: the labels' probabilities that are the least surprising ones with all those counts. That is the
       logistic regression on its buckets which it would have trained with the labels: it needs no more than the counts
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from hedgerow.engine.dtypes import Floats, Ints

UNKNOWN = -1
PRIOR = 1e-2
"""Weight of a penalty on coefficients, so that those of pure buckets stay finite."""


class Buckets(NamedTuple):
    """One way to put rows into buckets: a column, of all rows or of those of a node."""

    codes: Ints  # [rows] bucket of each row, -1 for rows that are in none
    positives: Ints  # [buckets]


def certain_labels(buckets: Sequence[Buckets], n_rows: int) -> Ints:
    """[rows] labels that follow from the counts, -1 where they do not."""
    labels = np.full(n_rows, UNKNOWN, np.int64)
    n_before = -1
    while n_before != (n_certain := int((labels != UNKNOWN).sum())):
        n_before = n_certain
        for codes, positives in buckets:
            is_open, inside = labels == UNKNOWN, codes >= 0
            n_open = np.bincount(codes[inside & is_open], minlength=len(positives))
            left = positives - np.bincount(codes[inside & (labels == 1)], minlength=len(positives))
            clear = np.where(left == 0, 0, np.where(left == n_open, 1, UNKNOWN))
            rows = np.flatnonzero(inside & is_open)
            labels[rows] = clear[codes[rows]]
    return labels


def likely_labels(buckets: Sequence[Buckets], n_rows: int) -> Floats:
    """[rows] probabilities of label 1, with which all buckets have as many positive rows as they should."""
    sizes = np.cumsum([0, *[len(positives) for _, positives in buckets]])
    wanted = np.concatenate([positives for _, positives in buckets]).astype(np.float64)
    inside = [np.flatnonzero(codes >= 0) for codes, _ in buckets]
    places = [codes[rows] + first for (codes, _), rows, first in zip(buckets, inside, sizes, strict=False)]

    def scores(weights: Floats) -> Floats:
        total = np.zeros(n_rows)
        for rows, place in zip(inside, places, strict=True):
            total[rows] += weights[place]
        return total

    def surprise(weights: Floats) -> tuple[float, Floats]:
        total = scores(weights)
        p = expit(total)
        expected = np.zeros(len(wanted))
        for rows, place in zip(inside, places, strict=True):
            expected += np.bincount(place, p[rows], minlength=len(wanted))
        loss = float(np.logaddexp(0.0, total).sum() - weights @ wanted + PRIOR / 2.0 * weights @ weights)
        return loss, expected - wanted + PRIOR * weights

    best = minimize(surprise, np.zeros(len(wanted)), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(expit(scores(best.x)), np.float64)


def all_labels(buckets: Sequence[Buckets], n_rows: int) -> tuple[Ints, Floats]:
    """[rows] labels that are certain, and of all the probabilities of label 1, which are then 0 or 1."""
    certain, likely = certain_labels(buckets, n_rows), likely_labels(buckets, n_rows)
    return certain, np.where(certain == UNKNOWN, likely, certain)
