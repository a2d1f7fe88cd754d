"""What the attack on vertical.bucket_rr knows about each column: more figures than `hedgerow attack` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from experiments.found import Found
from hedgerow.attacks.bucket_rr.bucket_bayes import Beliefs, ceiling, infer
from hedgerow.attacks.results import Interval, share
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.errors import InvalidInput


class Guess(NamedTuple):
    """Posteriors of one column against its true buckets."""

    accuracy: Interval
    """How often the likeliest bucket is the true one."""
    surest: float
    """The same, among the tenth of the rows of which the adversary is most certain."""
    rank_error: float
    """How many buckets the middle of the posterior is off, on average."""
    correlation: float
    """Of the mean of the posterior with the true bucket."""


@dataclass(frozen=True)
class Guessed(Found):
    """What the adversary knows about one column, beside chance and beside what the guarantee allows."""

    column: int
    n_rows: int
    n_columns: int
    n_codes: int
    epsilon: float
    chance: float
    """How often the most frequent bucket is right."""
    chance_rank_error: float
    own: Guess
    """From the answer in that column alone."""
    all: Guess
    """From all answers of the row."""
    ceiling_of_element: float
    """The best accuracy if odds move by e^epsilon at most: what is promised to somebody with this one column."""
    ceiling_of_record: float
    """The best accuracy at e^(columns epsilon): what is promised to a record."""

    def verdict(self) -> str:
        """The outcome in words."""
        found = (
            f"column {self.column}: the true bucket is guessed for {self.own.accuracy} of {self.n_rows} rows from its "
            f"own answer and for {self.all.accuracy} from all {self.n_columns}; chance is {self.chance:.3f}, "
            f"{self.ceiling_of_element:.3f} is allowed for one element at epsilon {self.epsilon:g} and "
            f"{self.ceiling_of_record:.3f} for a record at {self.n_columns * self.epsilon:g}"
        )
        if self.all.accuracy.low > self.ceiling_of_record or self.own.accuracy.low > self.ceiling_of_element:
            return f"ALARM: {found}: the claim is false."
        if self.all.accuracy.low > self.ceiling_of_element:
            return f"{found}: other columns give this one away beyond its own epsilon."
        return f"{found}: it is not contradicted."


def attack(answers: Bytes, n_codes: Sequence[int], epsilon: float, truth: Bytes, **how: Any) -> list[Guessed]:
    """Infer every column and hold it against the true buckets [columns, rows]; `how` goes to `infer`."""
    beliefs = infer(answers, n_codes, epsilon, **how)
    return [score(beliefs, column, own) for column, own in enumerate(truth)]


def score(beliefs: Beliefs, column: int, truth: Bytes) -> Guessed:
    """Hold the posteriors of one column against its true buckets [rows]."""
    if truth.shape != beliefs.answers[column].shape:
        raise InvalidInput(f"one true bucket per row is needed, got {truth.shape} for {beliefs.answers.shape[1]} rows")
    true = np.asarray(truth, np.int64)
    counts = np.bincount(true, minlength=beliefs.n_codes[column])
    chance = float(counts.max() / len(true))
    middle = int(np.searchsorted(np.cumsum(counts), len(true) / 2.0))
    return Guessed(
        column=column,
        n_rows=len(true),
        n_columns=len(beliefs.answers),
        n_codes=beliefs.n_codes[column],
        epsilon=beliefs.epsilon,
        chance=chance,
        chance_rank_error=float(np.abs(true - middle).mean()),
        own=_guess(beliefs.from_own(column), true),
        all=_guess(beliefs.from_all(column), true),
        ceiling_of_element=ceiling(counts / len(true), beliefs.epsilon),
        ceiling_of_record=ceiling(counts / len(true), beliefs.epsilon * len(beliefs.answers)),
    )


def _guess(posterior: Floats, true: Ints) -> Guess:
    right = posterior.argmax(axis=1) == true
    surest = np.argsort(-posterior.max(axis=1), kind="stable")[: max(len(true) // 10, 1)]
    middle = (np.cumsum(posterior, axis=1) < 0.5).sum(axis=1)
    mean = posterior @ np.arange(posterior.shape[1])
    apart = min(float(mean.std()), float(true.std())) > 1e-12
    return Guess(
        share(int(right.sum()), len(true)),
        float(right[surest].mean()),
        float(np.abs(true - middle).mean()),
        float(np.corrcoef(mean, true)[0, 1]) if apart else 0.0,
    )
