"""A feature holder's side: buckets, noise, one transfer; in the end it learns what the model asks about its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.protocols.vertical.bucket_rr import buckets, messages
from hedgerow.protocols.vertical.bucket_rr.buckets import Bucketing, History, Kinds
from hedgerow.protocols.vertical.bucket_rr.cache import Book, fingerprints
from hedgerow.protocols.vertical.bucket_rr.job import NAME, QUANTILE, Job, told
from hedgerow.protocols.vertical.common.agreement import begin_as_feature_holder, check_table, fitted
from hedgerow.protocols.vertical.common.parts import OwnerPart, Questions
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(me: Party, job: Job, brought: PartyData | None) -> OwnerPart:
    """The whole role of a feature holder."""
    brought = check_table(me.name, brought, needs_values=job.edges_mode == QUANTILE)
    expected = [job.expected(me.name, column.name) for column in brought.table.columns]
    data, _ = fitted(me, job, brought, expected, classes=None, on_bad_rows=job.on_bad_rows)
    # Private edges that are drawn here and not used, because a kept transfer has its own, tell nobody anything.
    bucketing = buckets.bucketing_of(me.name, data.table, job, data.n_threads, me.rng)
    codes = buckets.codes_of(me.name, data.table, bucketing, data.n_threads)
    left_out = [repr(bucketing.features[j].name) for j in np.flatnonzero(bucketing.categories < 2).tolist()]
    if left_out:
        me.log.warning("%s: left out, because they have one bucket only: %s", me.name, ", ".join(left_out))
    keeps = job.cache is not None and job.transfer == "once"
    has = me.recv(job.label_holder, messages.HaveTransfer).transfer_id if keeps or me.attempt > 1 else ""
    before = me.kept(0, Sent)
    if has == messages.OF_THIS_RUN or (before is not None and not has):
        bucketing, history = _as_before(me, job, data, before, has)
    elif job.cache is not None:
        bucketing, history = _send_unless_kept(me, job, brought, bucketing, codes, Book(me.name, job.cache), has)
    else:
        begin_as_feature_holder(me, job, data)
        history = History(1, 0, *_costs(job, bucketing), job.is_noisy and job.edges_mode != QUANTILE)
        _send(me, job, bucketing, codes, history, data.n_threads)
    return _part(me, job, bucketing, history)


def _costs(job: Job, bucketing: Bucketing) -> tuple[float, float]:
    has_levels = bucketing.kinds.has_levels
    return buckets.costs(job, len(has_levels), int(has_levels.sum()))


@dataclass(frozen=True)
class Sent:
    """What a feature holder keeps before it sends it: its buckets with their noise, and what they stand for."""

    bucketing: Bucketing
    history: History
    number: str
    packed: Bytes


def _as_before(me: Party, job: Job, data: PartyData, before: Sent | None, has: str) -> tuple[Bucketing, History]:
    """In a later attempt: what was drawn is sent as it was, and not at all where the label holder has kept it."""
    if before is None:
        raise InvalidInput(
            f"{me.name}: {job.label_holder} has kept the buckets of this run, but {me.name} has not kept what they "
            "stand for; nothing is sent again, so this run cannot go on"
        )
    begin_as_feature_holder(me, job, data)
    if not has:
        kinds, n_rows = before.bucketing.kinds, data.table.n_rows
        sizes = buckets.packed_sizes(kinds.categories, n_rows)
        stops = np.cumsum([sum(sizes[start:stop]) for start, stop in buckets.portions(sizes)])
        _tell(me, job, kinds, before.history, before.number, n_rows, np.split(before.packed, stops[:-1]))
    return before.bucketing, before.history


def _send_unless_kept(
    me: Party, job: Job, data: PartyData, bucketing: Bucketing, codes: Bytes, book: Book, kept: str
) -> tuple[Bucketing, History]:
    """With a book: what the label holder has kept is not sent, and what is sent is charged before.

    The book knows rows as they were brought, whatever a schema makes of them.
    """
    now = fingerprints(me.name, data.table, job)
    book.transfers()  # what is wrong with the book or the transfer stops the run before anybody sends anything
    if kept:
        bucketing = book.find(kept, job.label_holder, now)
        begin_as_feature_holder(me, job, data)
        history = book.history(now)
        me.send(job.label_holder, messages.SameAsBefore(**asdict(history)))
        return bucketing, history
    if job.transfer == "once":
        book.check_not_sent(job.label_holder, now)
    event = buckets.event_of(job, bucketing.kinds)
    me.charge(event)  # before the book has it: what is charged and not sent is no harm
    begin_as_feature_holder(me, job, data)
    number = book.write(job.label_holder, now, bucketing, _costs(job, bucketing), event)
    history = book.history(now)
    _send(me, job, bucketing, codes, history, data.n_threads, number)
    return bucketing, history


def _send(
    me: Party, job: Job, bucketing: Bucketing, codes: Bytes, history: History, n_threads: int, number: str = ""
) -> None:
    """The one transfer, with noise that is drawn now; it is kept before the first of it is sent."""
    kinds, n_rows = bucketing.kinds, codes.shape[1]
    categories = kinds.categories

    def drawn() -> Iterator[Bytes]:
        for start, stop in buckets.portions(buckets.packed_sizes(categories, n_rows)):
            noisy = buckets.randomise(codes[start:stop], categories[start:stop], job.noise, me.rng)
            yield buckets.pack(noisy.values, categories[start:stop], n_threads)

    pieces: Iterable[Bytes] = drawn()
    if me.checkpoints is not None:
        pieces = list(pieces)
        me.keep(0, Sent(bucketing, history, number, np.concatenate(pieces)))
    _tell(me, job, kinds, history, number, n_rows, pieces)


def _tell(
    me: Party, job: Job, kinds: Kinds, history: History, number: str, n_rows: int, pieces: Iterable[Bytes]
) -> None:
    """Kinds of columns, then their buckets, each message with the event of its own columns."""
    ranges = list(buckets.portions(buckets.packed_sizes(kinds.categories, n_rows)))
    announced = messages.ColumnKinds(**kinds._asdict(), n_messages=len(ranges), transfer_id=number, **asdict(history))
    me.send(job.label_holder, announced)
    for (start, stop), packed in zip(ranges, pieces, strict=True):
        me.send(
            job.label_holder,
            messages.Buckets(start, packed),
            event=buckets.event_of(job, kinds.of_columns(start, stop)),
        )


def _part(me: Party, job: Job, bucketing: Bucketing, history: History) -> OwnerPart:
    """Wait for what the model asks about its own columns; only here it meets their thresholds."""
    sent, kinds = bucketing.sent, bucketing.kinds
    n_values = np.where(kinds.has_levels, 0, kinds.n_values)  # levels are not split after a bucket
    asked = me.recv(job.label_holder, messages.OwnSplits, n_columns=len(sent), n_values=n_values)
    if (asked.bin[~kinds.has_levels[asked.column]] < 0).any():
        raise ProtocolError(f"{job.label_holder} splits a column of {me.name} by levels that has none")
    questions = Questions(
        sent[asked.column].astype(np.int32),
        asked.bin,
        asked.missing_left,
        np.unpackbits(asked.left_levels, axis=1).view(np.bool_),
    )
    about = buckets.about_transfer(job, kinds, history)
    meta = {**about, "epsilon": told(job.noise), "edges": job.edges_mode}
    if job.edges_epsilon is not None:
        meta["edges_epsilon"] = job.edges_epsilon
    return OwnerPart(me.name, job.label_holder, NAME, job.run_id, bucketing.features, questions, meta)
