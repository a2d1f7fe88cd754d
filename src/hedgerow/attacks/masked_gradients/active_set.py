"""Which rows a split sends left, from the noise that was to hide it.

The adversary is the label holder of vertical.masked_gradients. For each candidate of each node it gets W noise vectors
b. On the rows that go left (the active set) they are differences p_k - p_(k-1) of neighbours among those rows, plus r;
elsewhere they are independent, with the same variance. So a row shows nothing by itself, but each active row goes
against the active row before it. Everybody knows the order of rows.

`decoded` follows that:

    1  if the last active row was a, the adversary has an estimate of its p from the past, by Kalman's filter
    2  the next active row i has b_i = p_i - p_a + r: how well b_i fits that, against a b_i on its own, is one factor of
       the likelihood. Hypotheses with the same last three active rows are put together, and the likeliest are kept
    3  from the end back to the beginning: how likely each row is active, given all of b. That the first active row
       goes against the last one is left out
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from hedgerow.attacks.masked_gradients.unmask_least_squares import root_candidates
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import Interval, area_under_roc
from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.errors import InvalidInput
from hedgerow.protocols.published.masked_gradients.candidates import Candidates
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob

N_KEPT = 64
"""Hypotheses that are kept at each row. Four times as many find no more in any case we tried."""

_NONE, _UNUSED = -1, -2

N_CANDIDATES = 6
"""Of each feature holder whose active sets are decoded, evenly spread: all would take long and tell the same."""

SURE = 30.0
"""Log-odds are cut off here: what is sure must not become infinite."""


def decoded(noise: Floats, log_odds: Floats, sigma1: float, sigma2: float, n_kept: int = N_KEPT) -> Floats:
    """[rows] log-odds of being active, from noise [rows, vectors] about one candidate and the odds before that.

    Candidates are the same in every tree, noise is fresh: at the root the vectors of all trees stand side by side.
    """
    if not np.isfinite(noise).all():
        raise InvalidInput("noise must be finite")
    n_rows, n_vectors = noise.shape
    n_live = 2 * n_kept
    live = Hypotheses(
        np.full(n_live, _NONE),
        np.full(n_live, _NONE),
        np.full(n_live, _NONE),
        np.zeros(n_live),
        np.full(n_live, sigma1**2),
        np.zeros((n_live, n_vectors)),
    )
    steps = Steps(np.full((n_rows, n_kept), _UNUSED), np.full((n_rows, n_kept), _UNUSED), np.zeros((n_rows, n_kept)))
    ends = np.full((n_rows, n_kept), -np.inf)
    follows = np.zeros((n_rows, n_kept))
    _forward(np.ascontiguousarray(noise), log_odds, sigma1**2, sigma2**2, live, steps, ends)
    _backward(log_odds, steps, follows.reshape(-1))
    everything = float(logsumexp(np.append(ends, 0.0)))
    active = np.minimum(logsumexp(ends + follows, axis=1) - everything, -math.exp(-SURE))
    sides: Floats = np.clip(active - np.log(-np.expm1(active)), -SURE, SURE)
    return sides


class Hypotheses(NamedTuple):
    """About all rows so far; those with the same last three active rows are one."""

    name: Ints  # a number for it, (row, place) as row x kept + place; _NONE: no row is active
    last: Ints  # the last active row
    before: Ints  # the active row before that
    weight: Floats  # log, relative to "no row is active"
    variance: Floats  # of the estimate of the last active row's p
    mean: Floats  # [hypotheses, vectors] the estimate


class Steps(NamedTuple):
    """[rows, kept] every "this row is the next active one": from which hypothesis to which, and how well it fits."""

    start: Ints
    end: Ints
    gain: Floats


@kernel
def _forward(
    noise: Floats, log_odds: Floats, v1: float, v2: float, live: Hypotheses, steps: Steps, ends: Floats
) -> None:
    """Write all steps, and in `ends` [rows, kept] the log-weights of hypotheses that end with each row."""
    n_rows, n_kept = ends.shape
    weights = np.empty(n_kept)
    size = 1
    for i in range(n_rows):
        _fit_row(i, size, noise[i], v1, v2, live, steps)
        n_new = _name_new(i, size, live, steps)
        for new in range(n_new):
            highest, total = -np.inf, 0.0
            for k in range(size):
                if steps.end[i, k] == i * n_kept + new:
                    weights[k] = live.weight[k] + steps.gain[i, k]
                    highest = max(highest, weights[k])
            for k in range(size):
                if steps.end[i, k] == i * n_kept + new:
                    weights[k] = np.exp(weights[k] - highest)
                    total += weights[k]
            ends[i, new] = live.weight[size + new] = highest + np.log(total) + log_odds[i]
            _merge(i, size, size + new, noise[i], v1, v2, weights, total, live, steps)
        size = _keep_likeliest(size + n_new, n_kept, live)


@kernel
def _fit_row(i: int, size: int, row: Floats, v1: float, v2: float, live: Hypotheses, steps: Steps) -> None:
    """How much better row i fits as the next active one of each hypothesis than by itself."""
    n_vectors = row.shape[0]
    alone = 2.0 * v1 + v2
    square = 0.0
    for j in range(n_vectors):
        square += row[j] * row[j]
    for k in range(size):
        spread = v1 + live.variance[k] + v2
        error = 0.0
        for j in range(n_vectors):
            error += (row[j] + live.mean[k, j]) ** 2
        steps.gain[i, k] = -0.5 * (n_vectors * np.log(spread / alone) + error / spread - square / alone)


@kernel
def _name_new(i: int, size: int, live: Hypotheses, steps: Steps) -> int:
    """One new hypothesis for each pair of last active rows; returns their number."""
    n_kept = steps.start.shape[1]
    n_new = 0
    for k in range(size):
        new = 0
        while new < n_new:
            other = size + new
            if live.before[other] == live.last[k] and live.name[other] == live.before[k]:
                break
            new += 1
        if new == n_new:  # `name` holds the third row until all are found
            live.last[size + new], live.before[size + new] = i, live.last[k]
            live.name[size + new] = live.before[k]
            n_new += 1
        steps.start[i, k], steps.end[i, k] = live.name[k], i * n_kept + new
    for new in range(n_new):
        live.name[size + new] = i * n_kept + new
    return n_new


@kernel
def _merge(
    i: int,
    size: int,
    new: int,
    row: Floats,
    v1: float,
    v2: float,
    weights: Floats,
    total: float,
    live: Hypotheses,
    steps: Steps,
) -> None:
    """The estimate of row i's p: Kalman's, averaged over what was merged, with what lies between them."""
    mean = live.mean[new]
    mean[:] = 0.0
    for k in range(size):
        if steps.end[i, k] == live.name[new]:
            factor = weights[k] / total * v1 / (v1 + live.variance[k] + v2)
            for j in range(row.shape[0]):
                mean[j] += factor * (row[j] + live.mean[k, j])
    variance = 0.0
    for k in range(size):
        if steps.end[i, k] == live.name[new] and weights[k] > 0.0:
            factor = v1 / (v1 + live.variance[k] + v2)
            between = 0.0
            for j in range(row.shape[0]):
                between += (factor * (row[j] + live.mean[k, j]) - mean[j]) ** 2
            variance += weights[k] / total * (v1 - factor * v1 + between / row.shape[0])
    live.variance[new] = variance


@kernel
def _keep_likeliest(size: int, n_kept: int, live: Hypotheses) -> int:
    """Drop all but the likeliest hypotheses; returns how many are left."""
    while size > n_kept:
        size -= 1
        place = np.argmin(live.weight[: size + 1])
        live.name[place], live.last[place], live.before[place] = live.name[size], live.last[size], live.before[size]
        live.weight[place], live.variance[place] = live.weight[size], live.variance[size]
        live.mean[place] = live.mean[size]
    return size


@kernel
def _backward(log_odds: Floats, steps: Steps, follows: Floats) -> None:
    """follows[hypothesis] = log of the weight of all that may come after it, "nothing" included; 0 before the call."""
    n_rows, n_kept = steps.start.shape
    for i in range(n_rows - 1, -1, -1):
        for k in range(n_kept):
            start = steps.start[i, k]
            if start == _UNUSED:
                break
            if start >= 0:
                path = steps.gain[i, k] + log_odds[i] + follows[steps.end[i, k]]
                highest = max(path, follows[start])
                follows[start] = highest + np.log(np.exp(path - highest) + np.exp(follows[start] - highest))


# --- a recorded run --------------------------------------------------------------------------------------------------


def on_run(context: Context) -> list[Outcome]:
    """The label holder decodes which rows candidates send left, from their noise at the roots of all trees."""
    job: MaskedGradientsJob = context.job
    return [outcome for party in job.feature_holders for outcome in _decoded(context, job, party)]


def _decoded(context: Context, job: MaskedGradientsJob, party: str) -> list[Outcome]:
    aim = Aim("active_set", job.label_holder, f"columns of {party}")
    transcript = context.run.transcript(job.label_holder)
    n_rows = n_rows_of(transcript)
    noise = job.noise_for(n_rows)
    if not noise.sigma1:
        return [aim.says(NOT_RUN, "without sigma1 neighbours in the noise are not correlated")]
    n_candidates = sum(1 for each in root_candidates(transcript, party, job.n_vectors) if each.tree == 0)
    chosen = np.unique(np.linspace(0, n_candidates - 1, N_CANDIDATES).astype(int)).tolist() if n_candidates else []
    seen: dict[int, list[Floats]] = {candidate: [] for candidate in chosen}
    for each in root_candidates(transcript, party, job.n_vectors):
        if each.candidate in seen:
            seen[each.candidate].append(each.noise)
    odds = {
        candidate: decoded(np.hstack(vectors), np.zeros(n_rows), noise.sigma1, noise.sigma2)
        for candidate, vectors in seen.items()
    }
    active = active_rows(context, party, n_rows)
    words = f"{len(chosen)} of {n_candidates} candidates, {job.boosting.n_iterations} trees: which rows each sends left"
    if active is None:
        sure = [np.abs(found) > 3.0 for found in odds.values()]
        claim = f"{words}; surer than 20 to 1 of {np.mean(sure) if sure else 0.0:.1%} of them"
        return [aim.says(NOT_SCORED, claim)]
    areas = []
    for candidate, found in odds.items():
        true = active[candidate]
        if 2 <= true.sum() <= n_rows - 2:
            areas.append(area_under_roc(found[true], found[~true], CONFIDENCE))
    if not areas:
        return [aim.says(NOT_RUN, "no candidate divides the rows")]
    return [aim.scored(words, "AUC", Interval.mean(areas), chance=0.5)]


def active_rows(context: Context, party: str, n_rows: int) -> Bools | None:
    """[candidates, rows] which rows each candidate of a feature holder sends left, if its table was given."""
    part = context.run.model.parts[party]
    table = context.table(party, part.features, n_rows)
    if table is None:
        return None
    codes = part.codes(table)
    candidates = Candidates.of(part.features, codes)
    found: Bools = np.stack(
        [active[codes[column]] for active, column in zip(candidates.active, candidates.column, strict=True)]
    ).astype(np.bool_)
    return found
