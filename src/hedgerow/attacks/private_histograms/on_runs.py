"""Attacks on recorded runs of vertical.private_histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hedgerow.attacks.intervals import area_under_roc
from hedgerow.attacks.private_histograms import noisy_sums
from hedgerow.attacks.private_histograms.seen_releases import (
    Known,
    Model,
    Released,
    in_the_open,
    looks_at_rows,
    sums_of_labels,
)
from hedgerow.attacks.registry import (
    BROKEN,
    CONFIDENCE,
    INCONCLUSIVE,
    NOT_RUN,
    NOT_SCORED,
    Aim,
    Context,
    Outcome,
    n_rows_of,
)
from hedgerow.attacks.results import ceiling
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


def unmask_least_squares(context: Context) -> list[Outcome]:
    """Labels from noisy sums: by each feature holder with its own columns, and by one who has everybody's."""
    job: PrivateHistogramsJob = context.job
    lines = [_recovered(context, job, party, (party,)) for party in job.feature_holders]
    return [*lines, _recovered(context, job, ALL_COLUMNS, job.holders)]


def _recovered(context: Context, job: PrivateHistogramsJob, attacker: str, knows: Sequence[str]) -> Outcome:
    aim = Aim("unmask_least_squares", attacker, f"labels of {job.label_holder}")
    problem, seen = _seen(context, job, knows)
    if problem:
        return aim.says(NOT_RUN, problem)
    found = f"how much each of {seen.n_rows:,} rows looks like class 1, from {_count(seen.sums):,} sums of rows"
    truth = context.ones(job.label_holder, seen.n_rows)
    if truth is None:
        return aim.says(NOT_SCORED, found)
    mu = _mu(context, LABELS)
    result = noisy_sums.attack(
        seen.sums,
        truth,
        positives=seen.released.positives,
        strata=strata_of(np.concatenate(seen.known.codes), truth),
        mu=mu,
        confidence=CONFIDENCE,
    )
    words = (
        f"{found}; counted are pairs of rows about which these columns say the same (all pairs: AUC "
        f"{result.area.estimate:.3f}); accuracy {result.accuracy.estimate:.3f}, the more frequent label "
        f"{result.chance:.3f}"
    )
    if math.isinf(mu):
        return aim.scored(words, "AUC", result.matched, chance=0.5)
    # Rows are matched as well as other rows allow. What is left of what columns say is no leak: noise that keeps a
    # label from who knows all others keeps it from who knows less.
    alone = noisy_sums.all_but_one(noisy_sums.looks_at_labels(seen.sums, truth), CONFIDENCE)
    beyond = BROKEN if alone.low > result.ceiling else INCONCLUSIVE
    return aim.scored(words, "AUC", result.matched, chance=0.5, ceiling=result.ceiling, beyond=beyond)


def all_but_one(context: Context) -> list[Outcome]:
    """A label by who knows all else, and whether a row counts by who knows all others: by the noise that was drawn."""
    job: PrivateHistogramsJob = context.job
    label = Aim("all_but_one", "all but one label", f"a label of {job.label_holder}")
    row = Aim("all_but_one", "all but one row", "whether a row counts, its columns and its label")
    problem, seen = _seen(context, job, job.holders)
    if problem:
        return [label.says(NOT_RUN, problem), row.says(NOT_RUN, problem)]
    found = f"from {_count(seen.sums):,} noisy sums, by the noise that was really drawn"
    truth = context.ones(job.label_holder, seen.n_rows)
    if truth is None:
        return [label.says(NOT_SCORED, found), row.says(NOT_SCORED, found)]
    at_labels = noisy_sums.looks_at_labels(seen.sums, truth)
    at_rows = list(looks_at_rows(seen.released, seen.model, seen.known, truth))
    outcomes = []
    for aim, looks, fact in ((label, at_labels, LABELS), (row, at_rows, RECORDS)):
        mu = _mu(context, fact)
        promised = None if math.isinf(mu) else ceiling(mu)
        area = noisy_sums.all_but_one(looks, CONFIDENCE)
        outcomes.append(aim.scored(found, "AUC", area, chance=0.5, ceiling=promised))
    return outcomes


class _Seen(NamedTuple):
    """What some parties know together."""

    n_rows: int
    released: Released
    model: Model
    known: Known
    sums: Sequence[noisy_sums.Sums]


def _seen(context: Context, job: PrivateHistogramsJob, knows: Sequence[str]) -> tuple[str, _Seen]:
    """What they know, and why it is of no use, if so. All holders see the same sums; columns are their own."""
    missing = [party for party in knows if party not in context.tables]
    nothing = _Seen(0, Released(0.0, 0.0, [], [], [], 1.0), Model(0.0, []), Known([], []), [])
    if missing:
        options = " ".join(f"--table {party}=FILE" for party in missing)
        return f"it needs columns to know which sums a row is in: {options}", nothing
    if job.policy != GROWN:
        return f"it takes sums of policy={GROWN!r}, and this run has those of policy={job.policy!r}", nothing
    listener = next(party for party in knows if party != job.label_holder)
    parts: dict[str, SharedLeavesPart] = dict(context.run.model.parts)
    transcript = in_the_open(context.run.transcript(listener))
    try:
        released = Released.seen_by(transcript, context.run.ledgers[listener], parts[listener])
    except InvalidInput as problem:
        return f"this attack does not take such a run: {problem}", nothing
    n_rows, model = n_rows_of(transcript), Model.of(parts)
    known = Known([parts[party] for party in knows], [_codes(context, parts[party], n_rows) for party in knows])
    return "", _Seen(n_rows, released, model, known, list(sums_of_labels(released, model, known)))


def _count(seen: Sequence[noisy_sums.Sums]) -> int:
    return sum(len(each.sums) for each in seen)


def _mu(context: Context, fact: str) -> float:
    """What the statement claims, in Gaussian DP; infinite for a model that is stamped."""
    privacy = context.facts[fact]
    return math.inf if privacy is None else mu_for(privacy["epsilon"], privacy["delta"])


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
