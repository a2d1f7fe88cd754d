"""A feature holder's side: buckets, noise, one transfer; in the end it learns what the model asks about its columns."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.vertical.bucket_rr.buckets import (
    Bucketing,
    bucketing_of,
    codes_of,
    costs,
    pack,
    packed_sizes,
    planned_events,
    portions,
    randomise,
    together,
)
from hedgerow.protocols.vertical.bucket_rr.cache import Book, History, about_transfer, fingerprints
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
    left_out = [feature.name for feature in bucketing.features if feature.name not in _names(bucketing)]
    if left_out:
        me.log.warning("%s: left out, because they have one bucket only: %s", me.name, ", ".join(map(repr, left_out)))
    book = None if job.cache is None else Book(me.name, job.cache)
    if book is None:
        begin_as_feature_holder(me, job, data)
        is_bound = job.is_noisy and job.edges_mode != QUANTILE
        history = History(1, 0, *costs(job, len(codes), _n_with_levels(bucketing)), is_bound)
        _send(me, job, bucketing, codes, history, data.n_threads)
    else:
        bucketing, history = _send_unless_kept(me, job, brought, bucketing, codes, book)
    return _part(me, job, bucketing, history)


def _names(bucketing: Bucketing) -> set[str]:
    return {bucketing.features[j].name for j in bucketing.sent.tolist()}


def _has_levels(bucketing: Bucketing) -> list[bool]:
    """Of each column that is sent."""
    return [bucketing.features[j].is_categorical for j in bucketing.sent.tolist()]


def _n_with_levels(bucketing: Bucketing) -> int:
    return sum(_has_levels(bucketing))


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
    elif job.transfer == "once":
        book.check_not_sent(job.label_holder, now)
    event = _event(job, bucketing)
    if not kept:
        me.charge(event)  # before the book has it: what is charged and not sent is no harm
    begin_as_feature_holder(me, job, data)
    if kept:
        history = book.history(now)
        me.send(job.label_holder, SameAsBefore(*history))
        return bucketing, history
    cost = costs(job, len(codes), _n_with_levels(bucketing))
    number = book.write(job.label_holder, now, bucketing, cost, event)
    history = book.history(now)
    _send(me, job, bucketing, codes, history, data.n_threads, number)
    return bucketing, history


def _event(job: Job, bucketing: Bucketing) -> Event:
    """What a transfer costs one record."""
    return together(job, planned_events(job, bucketing.categories[bucketing.sent]), _has_levels(bucketing))


def _send(
    me: Party, job: Job, bucketing: Bucketing, codes: Bytes, history: History, n_threads: int, number: str = ""
) -> None:
    """The one transfer: kinds of columns, then their buckets, each message with the event of its own columns."""
    sent = bucketing.sent
    categories = bucketing.categories[sent]
    has_levels = _has_levels(bucketing)
    ranges = list(portions(packed_sizes(categories, codes.shape[1])))
    kinds = ColumnKinds(
        n_values=np.array([bucketing.features[j].n_value_bins for j in sent.tolist()], np.int32),
        has_levels=np.array(has_levels, np.bool_),
        may_be_missing=np.array(bucketing.may_be_missing, np.bool_)[sent],
        n_messages=len(ranges),
        transfer_id=number,
        transfers=history.transfers,
        others=history.others,
        per_element=history.per_element,
        per_record=history.per_record,
        is_bound=history.is_bound,
    )
    me.send(job.label_holder, kinds)
    for start, stop in ranges:
        noisy = randomise(codes[start:stop], categories[start:stop], job.noise, me.rng)
        message = Buckets(start, pack(noisy.values, categories[start:stop], n_threads))
        event = together(job, noisy.event.parts(), has_levels[start:stop])
        me.send(job.label_holder, message, event=event.to_dict())


def _part(me: Party, job: Job, bucketing: Bucketing, history: History) -> OwnerPart:
    """Wait for what the model asks about the own columns; only here it meets their thresholds."""
    sent, has_levels = bucketing.sent, np.array(_has_levels(bucketing), np.bool_)
    n_values = np.array([bucketing.features[j].n_value_bins for j in sent.tolist()], np.int64)
    n_values[has_levels] = 0  # these are split by levels, not after a bucket
    asked = me.recv(job.label_holder, OwnSplits, n_columns=len(sent), n_values=n_values)
    if (asked.bin[~has_levels[asked.column]] < 0).any():
        raise ProtocolError(f"{job.label_holder} splits a column of {me.name} by levels that has none")
    questions = Questions(
        sent[asked.column].astype(np.int32),
        asked.bin,
        asked.missing_left,
        np.unpackbits(asked.left_levels, axis=1).view(np.bool_),
    )
    about = about_transfer(job, len(sent), _n_with_levels(bucketing), history)
    meta = {**about, "epsilon": job.to_dict()["epsilon"], "edges": job.edges_mode}
    if job.edges_epsilon is not None:
        meta["edges_epsilon"] = job.edges_epsilon
    return OwnerPart(me.name, job.label_holder, NAME, job.run_id, bucketing.features, questions, meta)
