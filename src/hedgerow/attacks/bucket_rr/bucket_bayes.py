"""Joint inference from randomised buckets: all columns of a row together tell about one of them.

The adversary is the label holder of vertical.bucket_rr. It has received, for every row and every column of a feature
holder, a bucket that went through randomised response, once and for all. Each alone is epsilon-LDP. But columns of one
person go together, and the noise of each is fresh, so that it averages out over columns as it would over repetitions:

    1  an answer shows bucket k with chance p' + (p - p') P(k), so the marginals follow from the counts of answers
    2  the joint distribution is taken for a mixture: rows of one class have independent columns. It is fitted to the
       answers themselves, by expectation and maximisation with the noise in the likelihood; no true bucket is needed
    3  the posterior over a row's true bucket in one column follows from all its answers

The claim is not refuted by that. It is about one element whose other columns do not follow it; for a whole record the
epsilons of its columns add up. What the attack shows is that this is not a formality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import Interval, share
from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.vertical.bucket_rr.buckets import Bucketing, codes_of, keep_probability, unpack
from hedgerow.protocols.vertical.bucket_rr.job import PRIVATE, QUANTILE, Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds
from hedgerow.transport.transcripts import RECEIVED, Transcript

N_CLASSES = 24
"""Of the mixture. More than the rows can feed do little harm: they share their rows with their neighbours."""

N_ROUNDS = 200
"""Of expectation and maximisation. With little noise 50 would do; at epsilon 1 guesses still get better after 100."""

_STEADY_ROWS = 2.0
"""Rows that look like everybody, which each class is given: one of few rows must not be sure of what it never saw."""


# --- what randomised response does, and what an answer says about the truth ------------------------------------------


def chances(n_codes: int, epsilon: float) -> tuple[float, float]:
    """The chance that a bucket stays, and that of each other one to take its place."""
    stays = keep_probability(n_codes, epsilon)
    return stays, stays * math.exp(-epsilon)


def debiased(answers: Bytes, n_codes: int, epsilon: float) -> Floats:
    """The distribution of one column's true buckets, from its randomised ones."""
    stays, comes = chances(n_codes, epsilon)
    seen = np.bincount(answers, minlength=n_codes) / len(answers)
    true = np.maximum((seen - comes) / (stays - comes), 0.0)
    shares: Floats = true / true.sum()
    return shares


def ceiling(shares: npt.ArrayLike, epsilon: float) -> float:
    """How often the best guess can be right, at most, if nobody's odds move by more than e^epsilon.

    `shares` are those of the buckets. Let a_k be how often k is guessed where it is true; elsewhere it is guessed at
    least e^-epsilon a_k often, and guesses of one row add up to 1: a_j + e^-epsilon (sum of all other a_k) <= 1. The
    largest sum of shares_k a_k under that is reached by randomised response among the m most frequent buckets.
    """
    largest = np.cumsum(np.sort(np.asarray(shares, np.float64))[::-1])
    return float(np.max(largest / (1.0 + np.arange(len(largest)) * math.exp(-epsilon))))


# --- the attack ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What the adversary has made of the answers."""

    answers: Bytes  # [columns, rows]
    n_codes: tuple[int, ...]
    epsilon: float
    marginals: tuple[Floats, ...]
    classes: Floats  # [rows, classes] how likely each row's class is
    codes: tuple[Floats, ...]  # per column [classes, codes] how likely each bucket is in each class

    def from_own(self, column: int) -> Floats:
        """How likely each bucket is, [rows, codes], from the answer in that column alone."""
        by_answer = self._of_answers(self.marginals[column][None, :], column)[:, 0, :]
        posterior: Floats = by_answer[self.answers[column]]
        return posterior

    def from_all(self, column: int) -> Floats:
        """How likely each bucket is, [rows, codes], from all answers of the row."""
        by_answer = self._of_answers(self.codes[column], column)
        out = np.empty((self.answers.shape[1], self.n_codes[column]))
        for answer in range(self.n_codes[column]):
            rows = np.flatnonzero(self.answers[column] == answer)
            out[rows] = self.classes[rows] @ by_answer[answer]
        return out

    def _of_answers(self, prior: Floats, column: int) -> Floats:
        """[answers, classes, codes]: the posterior from one answer, where `prior` [classes, codes] holds before it."""
        stays, comes = chances(self.n_codes[column], self.epsilon)
        channel = np.full((self.n_codes[column],) * 2, comes)
        np.fill_diagonal(channel, stays)
        joint = channel[:, None, :] * prior[None, :, :]
        posterior: Floats = joint / np.maximum(joint.sum(axis=2, keepdims=True), 1e-300)
        return posterior


def infer(
    answers: Bytes,
    n_codes: Sequence[int],
    epsilon: float,
    *,
    n_classes: int = N_CLASSES,
    n_rounds: int = N_ROUNDS,
    seed: int = 0,
) -> Beliefs:
    """Fit the mixture to what was received: `answers` uint8 [columns, rows], each below its column's `n_codes`."""
    _check(answers, n_codes, epsilon, n_classes)
    marginals = [debiased(own, n, epsilon) for own, n in zip(answers, n_codes, strict=True)]
    first = np.concatenate([[0], np.cumsum(n_codes)])
    n_columns, n_rows = answers.shape
    cells = (answers.T + first[:-1]).astype(np.int32)
    seen = csr_array(
        (np.ones(cells.size, np.float32), cells.reshape(-1), np.arange(n_rows + 1) * n_columns),
        (n_rows, int(first[-1])),
    )
    seen_by_cell = csr_array(seen.T)
    both = np.array([chances(n, epsilon) for n in n_codes])
    stays, comes = (np.repeat(both[:, k], n_codes)[:, None] for k in (0, 1))
    everybody = np.concatenate(marginals)[:, None]

    rows = _starting_classes(answers, n_classes, seed)
    # Classes must begin apart: from one and the same distribution for all, the first steps would be tiny.
    began = (seen_by_cell @ rows).astype(np.float64) / rows.sum(axis=0)
    codes = np.maximum((began - comes) / (stays - comes), 0.0) + 0.1 * everybody  # [cells, classes]
    codes /= np.repeat(np.add.reduceat(codes, first[:-1], axis=0), n_codes, axis=0)
    for _ in range(n_rounds):
        counts = (seen_by_cell @ rows).astype(np.float64)
        shown = np.maximum(comes + (stays - comes) * codes, 1e-300)  # without noise there are answers nobody gives
        # Of the answers y, those whose truth is k: codes[k] * sum over y of counts[y] P(y | k) / shown[y].
        lift = counts / shown
        in_all = np.repeat(np.add.reduceat(lift, first[:-1], axis=0), n_codes, axis=0)
        true = codes * (comes * in_all + (stays - comes) * lift) + _STEADY_ROWS * everybody
        codes = true / np.repeat(np.add.reduceat(true, first[:-1], axis=0), n_codes, axis=0)
        weight = rows.sum(axis=0, dtype=np.float64) + 1.0
        logs = np.log(comes + (stays - comes) * codes + 1e-300).astype(np.float32)
        rows = seen @ logs + np.log(weight / weight.sum()).astype(np.float32)
        rows -= rows.max(axis=1, keepdims=True)
        np.exp(rows, out=rows)
        rows /= rows.sum(axis=1, keepdims=True)
    by_column = tuple(np.ascontiguousarray(own.T) for own in np.split(codes, first[1:-1]))
    return Beliefs(answers, tuple(n_codes), epsilon, tuple(marginals), rows.astype(np.float64), by_column)


def _starting_classes(answers: Bytes, n_classes: int, seed: int) -> Scores:
    """[rows, classes]: neighbours along the direction in which answers vary most, and a little chance.

    Noise adds to the variance of each column alone, not to what they have in common, so the direction is still there.
    """
    n_rows = answers.shape[1]
    scaled = answers - answers.mean(axis=1, keepdims=True)
    scaled /= np.maximum(scaled.std(axis=1, keepdims=True), 1e-9)
    main = np.linalg.eigh(scaled @ scaled.T / n_rows)[1][:, -1]
    place = np.argsort(np.argsort(main @ scaled)) / n_rows
    middles = (np.arange(n_classes) + 0.5) / n_classes
    near = np.exp(-0.5 * ((place[:, None] - middles) * n_classes) ** 2)
    near *= np.random.default_rng(seed).uniform(0.5, 1.5, near.shape)
    shares: Scores = (near / near.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares


def _check(answers: Bytes, n_codes: Sequence[int], epsilon: float, n_classes: int) -> None:
    if answers.ndim != 2 or answers.dtype != np.uint8 or 0 in answers.shape or len(n_codes) != len(answers):
        raise InvalidInput(
            f"codes must be uint8 [columns, rows] with a number of codes for each column, got {answers.dtype} "
            f"{answers.shape} and {len(n_codes)}"
        )
    if any(n < 2 for n in n_codes) or any(own.max() >= n for own, n in zip(answers, n_codes, strict=True)):
        raise InvalidInput(f"a code is not below its column's number of codes, or that is below 2: {list(n_codes)}")
    if not epsilon > 0.0:
        raise InvalidParameter(f"epsilon must be above 0, got {epsilon!r}")
    if n_classes < 1:
        raise InvalidParameter(f"n_classes must be at least 1, got {n_classes!r}")


# --- a recorded run --------------------------------------------------------------------------------------------------


def on_run(context: Context) -> list[Outcome]:
    """The label holder guesses every bucket of every feature holder, from one answer and from all of a row."""
    job: Job = context.job
    transcript = context.run.transcript(job.label_holder)
    return [outcome for party in job.feature_holders for outcome in _against(context, job, transcript, party)]


def _against(context: Context, job: Job, transcript: Transcript, party: str) -> list[Outcome]:
    aim = Aim("bucket_bayes", job.label_holder, f"columns of {party}")
    sent = transcript.messages(ColumnKinds, RECEIVED, party)
    if not sent:
        return [aim.says(NOT_RUN, "the buckets were kept from an earlier run, not sent in this one")]
    n_rows = n_rows_of(transcript)
    categories = sent[0].n_values.astype(np.int64) + sent[0].may_be_missing
    answers = _received(transcript, party, categories, n_rows)
    beliefs = infer(answers, categories.tolist(), job.noise)
    # What is promised to one element goes by its own epsilon, what is promised to a record by that of all its columns.
    ways = (
        ("own answer", beliefs.from_own, "one element", job.noise),
        ("all answers", beliefs.from_all, "a record", job.noise * len(answers)),
    )
    truth = _truth(context, job, party, n_rows)
    if truth is None:
        found = [
            f"from {name}: a guess for each of {answers.size:,} values, by its own account right for "
            f"{np.mean([how(j).max(axis=1).mean() for j in range(len(answers))]):.3f} of them"
            for name, how, _, _ in ways
        ]
        return [aim.says(NOT_SCORED, words) for words in found]
    return [
        outcome_of(
            aim,
            f"the bucket of each value, from {name}",
            f"{whose} at epsilon {epsilon:g}",
            [guessed(how(column), true, epsilon) for column, true in enumerate(truth)],
            is_noisy=job.is_noisy,
        )
        for name, how, whose, epsilon in ways
    ]


class Guessed(NamedTuple):
    """How often the likeliest bucket of a column is the true one, beside chance and beside what is allowed."""

    right: Interval
    chance: float
    ceiling: float


def guessed(posterior: Floats, truth: Bytes, epsilon: float) -> Guessed:
    """Hold the posterior of a column [rows, codes] against its true buckets [rows]."""
    shares = np.bincount(truth, minlength=posterior.shape[1]) / len(truth)
    hits = int((posterior.argmax(axis=1) == truth).sum())
    return Guessed(share(hits, len(truth), CONFIDENCE), float(shares.max()), ceiling(shares, epsilon))


def outcome_of(aim: Aim, found: str, promised: str, scored: list[Guessed], *, is_noisy: bool) -> Outcome:
    """Means over the columns; if one alone is beyond its ceiling, that one, so that the verdict follows from it."""
    excess = [each.right.low - each.ceiling for each in scored]
    worst = int(np.argmax(excess))
    alone = is_noisy and excess[worst] > 0
    counted = [scored[worst]] if alone else scored
    columns = f"column {worst + 1} of {len(scored)} alone" if alone else "the mean over columns"
    return aim.scored(
        f"{found}, {columns}; the ceiling is that for {promised}",
        "accuracy",
        Interval.mean([each.right for each in counted]),
        chance=float(np.mean([each.chance for each in counted])),
        ceiling=float(np.mean([each.ceiling for each in counted])) if is_noisy else None,
    )


def _received(transcript: Transcript, party: str, categories: Ints, n_rows: int) -> Bytes:
    """The randomised buckets [columns, rows]."""
    messages = transcript.messages(Buckets, RECEIVED, party)
    answers = np.empty((len(categories), n_rows), np.uint8)
    stops = [message.first for message in messages[1:]] + [len(categories)]
    for message, stop in zip(messages, stops, strict=True):
        unpack(message.packed, categories[message.first : stop], answers[message.first : stop])
    return answers


def _truth(context: Context, job: Job, party: str, n_rows: int) -> Bytes | None:
    """The buckets before the noise, by the edges that the feature holder used."""
    features = context.run.model.parts[party].features
    table = context.table(party, features, n_rows)
    if table is None:
        return None
    gaps = []
    for column, feature in zip(table.columns, features, strict=True):
        described = job.described(party, feature.name)
        missing = column.values < 0 if column.levels is not None else np.isnan(column.values)
        from_data = job.edges_mode == QUANTILE and bool(missing.any())
        in_public = job.edges_mode != QUANTILE and described is not None and described.may_be_missing
        gaps.append(job.edges_mode == PRIVATE or from_data or in_public)
    return codes_of(party, table, Bucketing(features, tuple(gaps)))
