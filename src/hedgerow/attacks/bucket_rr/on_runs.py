"""Attacks on recorded runs of vertical.bucket_rr."""

from __future__ import annotations

import numpy as np

from hedgerow.attacks.bucket_rr import bucket_bayes as bayes
from hedgerow.attacks.intervals import Interval, share
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.engine.dtypes import Bytes, Ints
from hedgerow.protocols.vertical.bucket_rr.buckets import Bucketing, codes_of, unpack
from hedgerow.protocols.vertical.bucket_rr.job import PRIVATE, QUANTILE, Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds
from hedgerow.transport.transcripts import RECEIVED, Transcript


def bucket_bayes(context: Context) -> list[Outcome]:
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
    beliefs = bayes.infer(answers, categories.tolist(), job.noise)
    both = (("own answer", beliefs.from_own), ("all answers", beliefs.from_all))
    truth = _truth(context, job, party, n_rows)
    if truth is None:
        found = [
            f"from {name}: a guess for each of {answers.size:,} values, by its own account right for "
            f"{np.mean([how(j).max(axis=1).mean() for j in range(len(answers))]):.3f} of them"
            for name, how in both
        ]
        return [aim.says(NOT_SCORED, words) for words in found]
    scored = [bayes.score(beliefs, column, own) for column, own in enumerate(truth)]
    return [
        _outcome(aim, f"the bucket of each value, from {name}", job, scored, own=name == "own answer")
        for name, _ in both
    ]


def _outcome(aim: Aim, found: str, job: Job, scored: list[bayes.Guessed], *, own: bool) -> Outcome:
    """Means over the columns; if one alone is beyond its ceiling, that one, so that the verdict follows from it."""
    guesses = [each.own if own else each.all for each in scored]
    ceilings = [each.ceiling_of_element if own else each.ceiling_of_record for each in scored]
    hits = [round(guess.accuracy.estimate * each.n_rows) for guess, each in zip(guesses, scored, strict=True)]
    bounds = [share(n, each.n_rows, CONFIDENCE) for n, each in zip(hits, scored, strict=True)]
    excess = [bound.low - ceiling for bound, ceiling in zip(bounds, ceilings, strict=True)]
    worst = int(np.argmax(excess))
    alone = job.is_noisy and excess[worst] > 0
    counted = [worst] if alone else list(range(len(scored)))
    promised = f"{'one element' if own else 'a record'} at epsilon {job.noise * (1 if own else len(scored)):g}"
    columns = f"column {worst + 1} of {len(scored)} alone" if alone else "the mean over columns"
    return aim.scored(
        f"{found}, {columns}; the ceiling is that for {promised}",
        "accuracy",
        Interval(*(float(np.mean([bounds[column][k] for column in counted])) for k in range(3))),
        chance=float(np.mean([scored[column].chance for column in counted])),
        ceiling=float(np.mean([ceilings[column] for column in counted])) if job.is_noisy else None,
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
