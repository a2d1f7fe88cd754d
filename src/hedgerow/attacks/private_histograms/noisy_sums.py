"""Labels from noisy sums: the best linear estimate of each row's label from all sums that it is part of.

The adversary saw sums of gradients of rows, with noise, over leaves of many trees. It knows the scores before each tree
(they follow from released leaf values), so what it has is

    sum of p - noisy sum of (p - y) = sum of y + noise        for each leaf whose rows it can tell

a linear equation about labels, one for each leaf. Rows that it cannot tell apart are put together until their sum is
known. All equations together are solved by least squares: each has the weight of its noise, and labels lie around their
mean as much as those of two classes do. That is the best linear estimate (Gauss-Markov with a prior). Without noise and
with more different leaves than rows, it is the labels.

What a model says about rows like a given one is not a leak of that row's own label, and no guarantee forbids it. So a
row is compared with rows about which columns say the same (`strata`): P(the row with label 1 scores higher). In
Gaussian DP with mu for one label that is at most Phi(mu / sqrt 2).

The strongest adversary knows all labels but one. Then every sum is one look at that label, with the noise of the sum,
and its area is Phi(mu' / sqrt 2), where mu'^2 is the sum of 1 / variance of all sums that the row is in. Who counts has
all labels, so the variance is measured on the noise that was really drawn (`area_of_one`): columns have no part in it.
In the same way all rows but one may be known, and the question is whether that row counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsmr
from scipy.special import ndtr
from scipy.stats import chi2

from hedgerow.attacks import registry
from hedgerow.attacks.private_histograms import seen_releases as releases
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome
from hedgerow.attacks.results import Interval, area_under_roc, ceiling, checked_confidence, matched_area, scored
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.errors import InvalidInput
from hedgerow.estimators.plain import BoostedTreesClassifier
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.protocols.vertical.private_histograms.job import GROWN, PrivateHistogramsJob

ALL_COLUMNS = "all columns"
"""Who has everybody's columns, the label holder's too, but no label: it knows which leaf every row is in."""
LABELS, RECORDS = "labels_towards_feature_holders", "records_towards_label_holder"
"""Where a run's statement says what is promised."""
N_FOLDS = 5
DEPTHS = (1, 2, 3)
ROWS_OF_STRATUM = 40
MOST_STRATA = 100
_MOST_STEPS = 4_000
_LEAST_VARIANCE = 1e-10  # of a sum without noise; weights stay finite


def label_scores(seen: Sequence[releases.Sums], n_rows: int, positives: float | None = None) -> Floats:
    """[rows] the best linear estimate of each label from all sums; `positives` is their number, as far as known."""
    mean = 0.5 if positives is None else min(max(positives / n_rows, 0.5 / n_rows), 1.0 - 0.5 / n_rows)
    if not seen:
        return np.full(n_rows, mean)
    columns, rows, weights, right = [], [], [], []
    first = 0
    for each in seen:
        place, sums, variance = each.checked(n_rows)
        weight = 1.0 / np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        inside = np.flatnonzero(place != releases.NOWHERE)
        columns.append(inside)
        rows.append(first + place[inside])
        weights.append(weight[place[inside]])
        counts = np.bincount(place[inside], minlength=len(sums))
        right.append((sums - mean * counts) * weight)
        first += len(sums)
    indices = (np.concatenate(rows), np.concatenate(columns))
    equations = csr_matrix((np.concatenate(weights), indices), shape=(first, n_rows))
    damping = 1.0 / math.sqrt(mean * (1.0 - mean))
    steps = min(_MOST_STEPS, 4 * (first + n_rows))
    found = lsmr(equations, np.concatenate(right), damp=damping, atol=1e-10, btol=1e-10, conlim=0.0, maxiter=steps)[0]
    scores: Floats = mean + found
    return scores


def area_of_one(looks: Sequence[releases.Look], confidence: float = 0.95) -> Interval:
    """The area under the ROC curve for the row about which all looks together say most, by the noise that was drawn.

    Noise is taken for Gaussian, and its stated variances for right but for one factor, which is measured.
    """
    risk = (1.0 - checked_confidence(confidence)) / 2.0
    n_sums, squares = sum(len(look.noise) for look in looks), 0.0
    precision = np.zeros(len(looks[0].place) if looks else 0)
    for look in looks:
        variance = np.maximum(look.variance, _LEAST_VARIANCE)
        squares += float((look.noise**2 / variance).sum())
        precision += np.where(look.place != releases.NOWHERE, look.amount**2 / variance[look.place], 0.0)
    if not squares:
        raise InvalidInput("there is no noise to measure")
    factors = (squares / n_sums, squares / chi2.ppf(risk, n_sums), squares / chi2.ppf(1.0 - risk, n_sums))
    return Interval(*(float(ndtr(math.sqrt(precision.max() / factor / 2.0))) for factor in factors))


# --- a recorded run --------------------------------------------------------------------------------------------------


def unmask_least_squares(context: Context) -> list[Outcome]:
    """Labels from noisy sums: by each feature holder with its own columns, and by one who has everybody's."""
    job: PrivateHistogramsJob = context.job
    lines = [_recovered(context, job, party, (party,)) for party in job.feature_holders]
    return [*lines, _recovered(context, job, ALL_COLUMNS, job.holders)]


def _recovered(context: Context, job: PrivateHistogramsJob, attacker: str, knows: Sequence[str]) -> Outcome:
    aim = Aim("unmask_least_squares", attacker, f"labels of {job.label_holder}")
    seen = _seen(context, job, knows)
    if isinstance(seen, str):
        return aim.says(NOT_RUN, seen)
    found = f"how much each of {seen.n_rows:,} rows looks like class 1, from {_count(seen.sums):,} sums of rows"
    truth = context.ones(job.label_holder, seen.n_rows)
    if truth is None:
        return aim.says(NOT_SCORED, found)
    scores = label_scores(seen.sums, seen.n_rows, seen.released.positives)
    result = scored(truth, scores, scores > 0.5, CONFIDENCE)
    matched = matched_area(scores, truth, strata_of(np.concatenate(seen.known.codes), truth), CONFIDENCE)
    words = (
        f"{found}; counted are pairs of rows about which these columns say the same (all pairs: AUC "
        f"{result.area.estimate:.3f}); accuracy {result.accuracy.estimate:.3f}, the more frequent label "
        f"{result.chance:.3f}"
    )
    promised = _promised(context, LABELS)
    if promised is None:
        return aim.scored(words, "AUC", matched, chance=0.5)
    # Rows are matched as well as other rows allow. What is left of what columns say is no leak: noise that keeps a
    # label from who knows all others keeps it from who knows less.
    alone = area_of_one(releases.looks_at_labels(seen.sums, truth), CONFIDENCE)
    beyond = registry.BROKEN if alone.low > promised else registry.INCONCLUSIVE
    return aim.scored(words, "AUC", matched, chance=0.5, ceiling=promised, beyond=beyond)


def all_but_one(context: Context) -> list[Outcome]:
    """A label by who knows all else, and whether a row counts by who knows all others: by the noise that was drawn."""
    job: PrivateHistogramsJob = context.job
    label = Aim("all_but_one", "all but one label", f"a label of {job.label_holder}")
    row = Aim("all_but_one", "all but one row", "whether a row counts, its columns and its label")
    seen = _seen(context, job, job.holders)
    if isinstance(seen, str):
        return [label.says(NOT_RUN, seen), row.says(NOT_RUN, seen)]
    found = f"from {_count(seen.sums):,} noisy sums, by the noise that was really drawn"
    truth = context.ones(job.label_holder, seen.n_rows)
    if truth is None:
        return [label.says(NOT_SCORED, found), row.says(NOT_SCORED, found)]
    at_labels = releases.looks_at_labels(seen.sums, truth)
    at_rows = list(releases.looks_at_rows(seen.released, seen.model, seen.known, truth))
    outcomes = []
    for aim, looks, fact in ((label, at_labels, LABELS), (row, at_rows, RECORDS)):
        area = area_of_one(looks, CONFIDENCE)
        outcomes.append(aim.scored(found, "AUC", area, chance=0.5, ceiling=_promised(context, fact)))
    return outcomes


class _Seen(NamedTuple):
    """What some parties know together."""

    n_rows: int
    released: releases.Released
    model: releases.Model
    known: releases.Known
    sums: Sequence[releases.Sums]


def _seen(context: Context, job: PrivateHistogramsJob, knows: Sequence[str]) -> _Seen | str:
    """What they know, or why it is of no use. All holders see the same sums; columns are their own."""
    missing = [party for party in knows if party not in context.tables]
    if missing:
        options = " ".join(f"--table {party}=FILE" for party in missing)
        return f"it needs columns to know which sums a row is in: {options}"
    if job.policy != GROWN:
        return f"it takes sums of policy={GROWN!r}, and this run has those of policy={job.policy!r}"
    listener = next(party for party in knows if party != job.label_holder)
    model: Any = context.run.model
    parts: dict[str, SharedLeavesPart] = dict(model.parts)
    transcript = releases.in_the_open(context.run.transcript(listener))
    try:
        released = releases.Released.seen_by(transcript, context.run.ledgers[listener], parts[listener])
    except InvalidInput as problem:
        return f"this attack does not take such a run: {problem}"
    n_rows, model = registry.n_rows_of(transcript), releases.Model.of(parts)
    codes = [_codes(context, parts[party], n_rows) for party in knows]
    known = releases.Known([parts[party] for party in knows], codes)
    return _Seen(n_rows, released, model, known, list(releases.sums_of_labels(released, model, known)))


def _count(seen: Sequence[releases.Sums]) -> int:
    return sum(len(each.sums) for each in seen)


def _promised(context: Context, fact: str) -> float | None:
    """The largest area that the statement allows, if it claims anything: a model that is stamped does not."""
    privacy = context.facts[fact]
    if privacy is None or math.isinf(mu := mu_for(privacy["epsilon"], privacy["delta"])):
        return None
    return ceiling(mu)


def _codes(context: Context, part: SharedLeavesPart, n_rows: int) -> Bytes:
    table = context.table(part.party, part.features, n_rows)
    if table is None:
        raise InvalidInput(f"{part.party}: its table is needed")
    return part.codes(table)


def strata_of(codes: Bytes, labels: Floats) -> Ints:
    """[rows] the same number for rows about which columns, `codes` [columns, rows], say about the same.

    Every row is scored by trees without noise that saw most of the others, and not the row itself; of several depths
    by the one that ranks labels best.
    """
    n_rows = codes.shape[1]
    n_strata = min(MOST_STRATA, n_rows // ROWS_OF_STRATUM)
    if n_strata < 2 or not 2 <= labels.sum() <= n_rows - 2:
        return np.zeros(n_rows, np.int64)
    scored = [_scores_of_others(codes, labels, depth) for depth in DEPTHS]
    scores = max(scored, key=lambda each: area_under_roc(each[labels == 1], each[labels == 0]).estimate)
    strata: Ints = np.argsort(np.argsort(scores, kind="stable"), kind="stable") * n_strata // n_rows
    return strata


def _scores_of_others(codes: Bytes, labels: Floats, depth: int) -> Floats:
    X, y = codes.T.astype(np.float64), labels.astype(np.int64)
    fold = np.random.default_rng(0).permutation(len(y)) % N_FOLDS
    scores = np.zeros(len(y))
    for k in range(N_FOLDS):
        others, here = fold != k, fold == k
        if 0 < y[others].sum() < others.sum():
            trees = BoostedTreesClassifier(max_depth=depth, early_stopping=False, n_jobs=1)
            scores[here] = trees.fit(X[others], y[others]).decision_function(X[here])
    return scores
