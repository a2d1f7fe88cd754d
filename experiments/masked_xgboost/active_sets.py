"""More about active sets: the attacker of the MaskedXGBoost paper, and the order of a column's rows.

`smallest_sum` is the attacker of the paper (section 6.6): of all sets of the right size, the one with the smallest sum.
Candidates of one column are nested, so what `attacks.masked_gradients.active_set` finds about each of them says
together which bin a row is in: `bins`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, logsumexp
from scipy.stats import rankdata

from experiments.found import Found
from hedgerow.attacks.masked_gradients.active_set import N_KEPT, SURE, decoded
from hedgerow.attacks.results import Interval, area_under_roc, share
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.errors import InvalidInput, InvalidParameter

_GIVEN = 6.0
"""What candidates say to each other is cut off here, so that each can still be heard beside the others."""


# --- all that was seen about a candidate -----------------------------------------------------------------------------


class SeenNoise(NamedTuple):
    """Noise vectors for one candidate at one node, as the label holder got them."""

    noise: Floats  # [rows of the node, W]
    rows: Ints | None = None  # their numbers, ascending; None for all rows, as at a root


def chain(
    messages: Sequence[SeenNoise],
    sigma1: float,
    sigma2: float,
    *,
    n_rows: int | None = None,
    prior: npt.ArrayLike = 0.5,
    n_kept: int = N_KEPT,
) -> Floats:
    """[rows] log-odds that a row is active, from all messages about one candidate, whatever their trees and nodes.

    Messages about the same rows are one. Nodes with other rows come in turn, each beginning with what the others have
    found.

    `prior` is the share of active rows, or the chance of each row. `n_rows` is needed where no message is about all.
    """
    if not (sigma1 > 0.0 and sigma2 >= 0.0):
        raise InvalidParameter(f"sigma1 must be above 0 and sigma2 not below, got {sigma1} and {sigma2}")
    groups = _by_rows(messages, n_rows)
    size = n_rows if n_rows is not None else max(int(rows[-1]) + 1 for rows, _ in groups)
    log_odds: Floats = np.clip(logit(np.broadcast_to(np.asarray(prior, np.float64), size)), -SURE, SURE)
    for rows, noise in groups:
        log_odds[rows] = decoded(noise, log_odds[rows], sigma1, sigma2, n_kept)
    return log_odds


def _by_rows(messages: Sequence[SeenNoise], n_rows: int | None) -> list[tuple[Ints, Floats]]:
    """Messages about the same rows side by side, the largest nodes first."""
    if not messages:
        raise InvalidInput("there is no noise to look at")
    groups: dict[bytes, tuple[Ints, list[Floats]]] = {}
    for message in messages:
        noise = np.asarray(message.noise, np.float64)
        rows = np.arange(len(noise)) if message.rows is None else np.asarray(message.rows, np.int64)
        fits = noise.ndim == 2 and rows.shape == noise.shape[:1] and len(rows) and np.isfinite(noise).all()
        if not fits or (np.diff(rows) <= 0).any() or rows[0] < 0 or (n_rows is not None and rows[-1] >= n_rows):
            raise InvalidInput(f"noise [rows, W] and ascending rows are needed, got {noise.shape} and {rows.shape}")
        groups.setdefault(rows.tobytes(), (rows, []))[1].append(noise)
    pooled = [(rows, np.ascontiguousarray(np.hstack(noises))) for rows, noises in groups.values()]
    return sorted(pooled, key=lambda group: -group[1].size)


# --- how well an attacker did ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecoveredSet(Found):
    """How many rows' sides were found, beside chance."""

    n_rows: int
    n_vectors: int
    how: str
    accuracy: Interval
    """Of the likelier side of each row."""
    area: Interval | None
    """Under the ROC curve, over all rows; None where the attack gives sides alone."""
    chance: float
    """Accuracy of who says the same of all rows."""

    @property
    def succeeds(self) -> bool:
        """Whether sides are told apart by more than chance explains."""
        return self.accuracy.low > self.chance or (self.area is not None and self.area.low > 0.5)

    def verdict(self) -> str:
        """The outcome in words."""
        if self.succeeds:
            return f"ALARM: {self}. The noise tells which rows the split sends left."
        return f"{self}. The split was not found."


def recovered(
    how: str, scores: Floats | None, found: Bools, true: Bools, n_vectors: int, confidence: float
) -> RecoveredSet:
    """Sides that were found, and scores of them if there are any, held against the true ones."""
    n_rows, n_active = len(true), int(true.sum())
    return RecoveredSet(
        n_rows=n_rows,
        n_vectors=n_vectors,
        how=how,
        accuracy=share(int((found == true).sum()), n_rows, confidence),
        area=None if scores is None else area_under_roc(scores[true], scores[~true], confidence),
        chance=max(n_active, n_rows - n_active) / n_rows,
    )


def attack_chain(
    messages: Sequence[SeenNoise],
    sigma1: float,
    sigma2: float,
    active: npt.ArrayLike,
    *,
    prior: float | None = None,
    confidence: float = 0.95,
) -> RecoveredSet:
    """Decode, and hold the result against the truth, `active` [rows]; rows that no message is about do not count.

    The adversary knows the share of active rows, as that of the paper does, or has the `prior` for it.
    """
    true = np.asarray(active, np.bool_)
    share_active = float(true.mean()) if prior is None else prior
    found = chain(messages, sigma1, sigma2, n_rows=len(true), prior=share_active)
    seen = np.zeros(len(true), np.bool_)
    for message in messages:
        seen[slice(None) if message.rows is None else message.rows] = True
    n_vectors = sum(np.shape(message.noise)[1] for message in messages)
    return recovered("the chain", found[seen], found[seen] > 0.0, true[seen], n_vectors, confidence)


# --- the paper's attacker --------------------------------------------------------------------------------------------

_MOST_SETS = 50_000


def smallest_sum(noise: npt.ArrayLike, n_active: int, *, n_tries: int = 2_000, seed: int = 0) -> Bools:
    """[rows] the set of `n_active` rows over which the noise vectors add up to the least.

    All sets are looked at where there are few. Otherwise rows of a random set are exchanged as long as the sum falls:
    among that many sets there are countless ones with a sum near 0.
    """
    B = np.asarray(noise, np.float64)
    if B.ndim != 2 or not 0 < n_active < len(B):
        raise InvalidInput(f"noise [rows, W] and fewer active rows than rows are needed, got {B.shape}, {n_active}")
    chosen = np.zeros(len(B), np.bool_)
    if math.comb(len(B), n_active) <= _MOST_SETS:
        sets = np.array(list(itertools.combinations(range(len(B)), n_active)))
        chosen[sets[np.argmin((B[sets].sum(axis=1) ** 2).sum(axis=1))]] = True
        return chosen
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(B))
    inside, outside = order[:n_active], order[n_active:]
    total = B[inside].sum(axis=0)
    for _ in range(n_tries):
        goes, comes = rng.integers(0, len(inside), 64), rng.integers(0, len(outside), 64)
        sums = total - B[inside[goes]] + B[outside[comes]]
        best = int(np.argmin((sums**2).sum(axis=1)))
        if sums[best] @ sums[best] < total @ total:
            total = sums[best]
            inside[goes[best]], outside[comes[best]] = outside[comes[best]], inside[goes[best]]
    chosen[inside] = True
    return chosen


def attack_smallest_sum(
    noise: npt.ArrayLike, active: npt.ArrayLike, *, seed: int = 0, confidence: float = 0.95
) -> RecoveredSet:
    """The paper's attacker, who knows how many rows are active, against the truth."""
    true = np.asarray(active, np.bool_)
    found = smallest_sum(noise, int(true.sum()), seed=seed)
    return recovered("the smallest sum", None, found, true, np.shape(noise)[1], confidence)


# --- the bins of a column ------------------------------------------------------------------------------------------


def bins(
    candidates: Sequence[Sequence[SeenNoise]],
    sigma1: float,
    sigma2: float,
    *,
    shares: npt.ArrayLike | None = None,
    n_rows: int | None = None,
    n_rounds: int = 3,
    n_kept: int = N_KEPT,
) -> Floats:
    """[rows, bins] how likely each bin of a column is, from the noise of its candidates in the order of their edges.

    Candidate k sends the bins 0 to k left. `shares` of bins are equal if not given. From the second round on each
    candidate is decoded with what the others have said about each row.
    """
    n_bins = len(candidates) + 1
    priors = np.full(n_bins, 1.0 / n_bins) if shares is None else np.asarray(shares, np.float64)
    if priors.shape != (n_bins,) or not (priors > 0.0).all():
        raise InvalidInput(f"one share above 0 per bin is needed, got {priors.shape} for {n_bins} bins")
    goes_left = np.arange(n_bins)[None, :] <= np.arange(n_bins - 1)[:, None]  # [candidates, bins]
    said: list[Floats] = []  # per candidate: log-odds of each row, less those it was given
    for _ in range(n_rounds):
        total = sum(said[1:], said[0]) if said else None
        new = []
        for k, messages in enumerate(candidates):
            if total is None:
                given = np.asarray(priors[goes_left[k]].sum())
            else:
                others = np.log(priors) + total - said[k]
                odds = logsumexp(others[:, goes_left[k]], axis=1) - logsumexp(others[:, ~goes_left[k]], axis=1)
                given = expit(np.clip(odds, -_GIVEN, _GIVEN))
            found = chain(messages, sigma1, sigma2, n_rows=n_rows, prior=given, n_kept=n_kept)
            more = found - np.clip(logit(given), -SURE, SURE)
            new.append(more[:, None] * goes_left[k])
        said = new
    logs = np.log(priors) + sum(said[1:], said[0])
    likely: Floats = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    return likely


@dataclass(frozen=True, kw_only=True)
class RecoveredBins(Found):
    """How well the order and the bins of a column's rows were found."""

    n_rows: int
    n_bins: int
    correlation: float
    """Of Spearman, between expected bins and true ones: 0 for nothing."""
    exact: Interval
    """Rows whose likeliest bin is the right one."""
    chance: float
    """The most frequent bin."""

    def __str__(self) -> str:
        return (
            f"{self.n_bins} bins: rank correlation {self.correlation:.3f}, exact bin {self.exact}, "
            f"chance {self.chance:.3f}"
        )

    @property
    def succeeds(self) -> bool:
        """Whether ranks go together by more than chance explains: four standard deviations."""
        return self.correlation > 4.0 / math.sqrt(self.n_rows - 1)

    def verdict(self) -> str:
        """The outcome in words."""
        if self.succeeds:
            return f"ALARM: {self}. The noise tells the order of values."
        return f"{self}. The order of values was not found."


def score_bins(likely: Floats, true: npt.ArrayLike, *, confidence: float = 0.95) -> RecoveredBins:
    """Hold the outcome of `bins` against the true bins of all rows."""
    codes = np.asarray(true)
    n_rows, n_bins = likely.shape
    if codes.shape != (n_rows,):
        raise InvalidInput(f"one bin per row is needed, got {codes.shape} for {n_rows} rows")
    expected = np.round(likely @ np.arange(n_bins), 6)  # what is sure is a tie
    together = np.corrcoef(rankdata(expected), rankdata(codes))[0, 1]
    hits = int((likely.argmax(axis=1) == codes).sum())
    counts = np.bincount(codes, minlength=n_bins)
    return RecoveredBins(
        n_rows=n_rows,
        n_bins=n_bins,
        correlation=float(together),
        exact=share(hits, n_rows, confidence),
        chance=int(counts.max()) / n_rows,
    )
