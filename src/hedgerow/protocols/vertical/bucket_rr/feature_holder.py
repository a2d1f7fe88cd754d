"""A feature holder's side: buckets, noise, one transfer; in the end it learns what the model asks about its columns."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.bucket_rr.buckets import (
    Bucketing,
    History,
    about_transfer,
    bucketing_of,
    codes_of,
    costs,
    event_of,
    pack,
    packed_sizes,
    portions,
    randomise,
    together,
)
from hedgerow.protocols.vertical.bucket_rr.cache import Book, fingerprints
from hedgerow.protocols.vertical.bucket_rr.job import NAME, QUANTILE, Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds, HaveTransfer, OwnSplits, SameAsBefore
from hedgerow.protocols.vertical.common.parts import OwnerPart, Questions
from hedgerow.protocols.vertical.common.tables import begin_as_feature_holder, check_table, fitted
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: Job, brought: PartyData | None) -> OwnerPart:
    """The whole role of a feature holder."""
    brought = check_table(me.name, brought, needs_values=job.edges_mode == QUANTILE)
    expected = [job.expected(me.name, column.name) for column in brought.table.columns]
    data, _ = fitted(me, job, brought, expected, classes=None, on_bad_rows=job.on_bad_rows)
    # Private edges that are drawn here and not used, because a kept transfer has its own, tell nobody anything.
    bucketing = bucketing_of(me.name, data.table, job, data.n_threads, me.rng)
    codes = codes_of(me.name, data.table, bucketing, data.n_threads)
    left_out = [repr(bucketing.features[j].name) for j in np.flatnonzero(bucketing.categories < 2).tolist()]
    if left_out:
        me.log.warning("%s: left out, because they have one bucket only: %s", me.name, ", ".join(left_out))
    if job.cache is not None:
        bucketing, history = _send_unless_kept(me, job, brought, bucketing, codes, Book(me.name, job.cache))
    else:
        begin_as_feature_holder(me, job, data)
        history = History(1, 0, *_costs(job, bucketing), job.is_noisy and job.edges_mode != QUANTILE)
        _send(me, job, bucketing, codes, history, data.n_threads)
    return _part(me, job, bucketing, history)


def _costs(job: Job, bucketing: Bucketing) -> tuple[float, float]:
    has_levels = bucketing.kinds.has_levels
    return costs(job, len(has_levels), int(has_levels.sum()))


def _send_unless_kept(
    me: Party, job: Job, data: PartyData, bucketing: Bucketing, codes: Bytes, book: Book
) -> tuple[Bucketing, History]:
    """With a book: what the label holder has kept is not sent, and what is sent is charged before.

    The book knows rows as they were brought, whatever a schema makes of them.
    """
    now = fingerprints(me.name, data.table, job)
    book.transfers()  # what is wrong with the book or the transfer stops the run before anybody sends anything
    kept = me.recv(job.label_holder, HaveTransfer).transfer_id if job.transfer == "once" else ""
    if kept:
        bucketing = book.find(kept, job.label_holder, now)
        begin_as_feature_holder(me, job, data)
        history = book.history(now)
        me.send(job.label_holder, SameAsBefore(**asdict(history)))
        return bucketing, history
    if job.transfer == "once":
        book.check_not_sent(job.label_holder, now)
    event = event_of(job, bucketing.kinds)
    me.charge(event)  # before the book has it: what is charged and not sent is no harm
    begin_as_feature_holder(me, job, data)
    number = book.write(job.label_holder, now, bucketing, _costs(job, bucketing), event)
    history = book.history(now)
    _send(me, job, bucketing, codes, history, data.n_threads, number)
    return bucketing, history


def _send(
    me: Party, job: Job, bucketing: Bucketing, codes: Bytes, history: History, n_threads: int, number: str = ""
) -> None:
    """The one transfer: kinds of columns, then their buckets, each message with the event of its own columns."""
    kinds = bucketing.kinds
    categories, has_levels = kinds.categories, kinds.has_levels.tolist()
    ranges = list(portions(packed_sizes(categories, codes.shape[1])))
    announced = ColumnKinds(**kinds._asdict(), n_messages=len(ranges), transfer_id=number, **asdict(history))
    me.send(job.label_holder, announced)
    for start, stop in ranges:
        noisy = randomise(codes[start:stop], categories[start:stop], job.noise, me.rng)
        message = Buckets(start, pack(noisy.values, categories[start:stop], n_threads))
        event = together(job, noisy.event.parts(), has_levels[start:stop])
        me.send(job.label_holder, message, event=event.to_dict())


def _part(me: Party, job: Job, bucketing: Bucketing, history: History) -> OwnerPart:
    """Wait for what the model asks about its own columns; only here it meets their thresholds."""
    sent, kinds = bucketing.sent, bucketing.kinds
    n_values = np.where(kinds.has_levels, 0, kinds.n_values)  # levels are not split after a bucket
    asked = me.recv(job.label_holder, OwnSplits, n_columns=len(sent), n_values=n_values)
    if (asked.bin[~kinds.has_levels[asked.column]] < 0).any():
        raise ProtocolError(f"{job.label_holder} splits a column of {me.name} by levels that has none")
    questions = Questions(
        sent[asked.column].astype(np.int32),
        asked.bin,
        asked.missing_left,
        np.unpackbits(asked.left_levels, axis=1).view(np.bool_),
    )
    about = about_transfer(job, kinds, history)
    meta = {**about, "epsilon": job.to_dict()["epsilon"], "edges": job.edges_mode}
    if job.edges_epsilon is not None:
        meta["edges_epsilon"] = job.edges_epsilon
    return OwnerPart(me.name, job.label_holder, NAME, job.run_id, bucketing.features, questions, meta)
