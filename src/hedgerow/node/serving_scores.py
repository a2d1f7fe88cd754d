"""The label holder's side of a standing service: requests that come at once are one batch, and become scores.

While one batch is on its way, requests that come in wait, and go together with the next: so nobody waits for a batch to
fill, and under load batches grow by themselves, up to a bound.

    scorer = Scorer(trained, rows, partners, metrics)
    found = scorer.score(scorer.by_ids(["c00017", "c00018"]))      # in any thread
    found.scores, found.unknown
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.ensemble import predictions_from
from hedgerow.errors import HedgerowError, InvalidInput, JobError
from hedgerow.estimators.inputs import nearest
from hedgerow.node.proposal import NOT_SERVED
from hedgerow.node.serving import MOST_ROWS, REPLY_SECONDS, Absent, Limited, Partner, Places
from hedgerow.node.trained import OwnRows, Trained
from hedgerow.protocols.vertical.common.parts import LabelHolderPart

MOST_ASKED = 1000
"""Records of one request."""
MOST_WAITING = 256
"""Requests that wait for their turn; beyond that there are too many."""


class Found(NamedTuple):
    """The answer to a request: a score for each record in its order, None where it is not known."""

    scores: list[Any]
    unknown: list[Any]  # ids as they were asked
    n_rows: int


@dataclass
class Request:
    """Records that are to be scored together."""

    asked: Sequence[Any]  # ids as they came
    ids: tuple[str, ...]  # those with own columns, as parties write them
    codes: Bytes  # own bins of these, [columns, ids]
    places: Any  # of these in `asked`
    future: Future[tuple[Any, Floats | None]] = field(default_factory=Future)  # which are known, and their predictions


class Scorer:
    """Scores with this party's part, its rows in memory and its partners."""

    def __init__(
        self, trained: Trained, rows: OwnRows, partners: Sequence[Partner], *, most_rows: int = MOST_ROWS
    ) -> None:
        part = rows.part
        if not isinstance(part, LabelHolderPart):
            raise JobError(f"{part.party}: {NOT_SERVED}")
        self._part, self._partners, self._most_rows = part, tuple(partners), most_rows
        self._places = Places(trained, rows)
        self._codes = part.codes(rows.read())
        self._queue: queue.Queue[Request | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="hedgerow-scorer", daemon=True)
        self._warm_up()
        self._thread.start()

    @property
    def classes(self) -> list[Any] | None:
        """Of a classification."""
        return None if self._part.target.classes is None else list(self._part.target.classes)

    @property
    def absent(self) -> list[str]:
        """Partners that are needed and not there."""
        return [partner.name for partner in self._partners if not partner.is_there]

    def close(self) -> None:
        """Score what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    # --- requests, in any thread -------------------------------------------------------------------------------------

    def by_ids(self, asked: Sequence[Any]) -> Request:
        """Records whose own columns are in the rows that were loaded; InvalidInput for what is no id."""
        ids = [self._places.written(each) for each in asked]
        places = self._places.of(ids)
        here = np.flatnonzero(places >= 0)
        codes = np.ascontiguousarray(self._codes[:, places[here]])
        return Request(asked, tuple(ids[k] for k in here.tolist()), codes, here)

    def by_rows(self, asked: Sequence[Mapping[str, Any]]) -> Request:
        """Records whose own columns come along, beside "id"; InvalidInput for a column that is wrong or lacking."""
        names = [feature.name for feature in self._part.features]
        wanted = {"id", *names}
        for row in asked:
            for name in (*wanted, *row):
                if name not in row or name not in wanted:
                    near = nearest(name, list(wanted)) if name in row else None
                    hint = f"; did you mean {near!r}?" if near else ""
                    raise InvalidInput(f"a row {'has' if name in row else 'lacks'} the column {name!r}{hint}")
        ids = tuple(self._places.written(row["id"]) for row in asked)
        return Request([row["id"] for row in asked], ids, self._coded(asked), np.arange(len(ids)))

    def _coded(self, asked: Sequence[Mapping[str, Any]]) -> Bytes:
        import pyarrow as pa

        columns = {}
        for feature in self._part.features:
            values = [row[feature.name] for row in asked]
            kind = pa.float64() if feature.levels is None else None
            if feature.levels and isinstance(feature.levels[0], str):
                kind = pa.string()
            try:
                columns[feature.name] = pa.array(values, kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                wanted = "a number" if feature.levels is None else "one of its levels"
                raise InvalidInput(f"the column {feature.name!r} of a row must be {wanted}, or null") from None
        if not columns:
            return np.empty((0, len(asked)), np.uint8)
        return self._part.codes(self._part.read(pa.table(columns), "rows"))

    def score(self, request: Request, timeout: float = 4 * REPLY_SECONDS) -> Found:
        """Its scores. Absent if a partner is not there or too much waits, Limited if it allows no more rows."""
        if request.ids:
            for partner in self._partners:
                partner.present()
            try:
                self._queue.put_nowait(request)
                known, predictions = request.future.result(timeout)
            except queue.Full:
                raise Absent("too many requests wait for their turn") from None
            except FutureTimeout:
                raise Absent("the request was not answered in time") from None
        else:
            known, predictions = np.zeros(0, np.bool_), None
        scores: list[Any] = [None] * len(request.asked)
        for k in np.flatnonzero(known).tolist():
            scores[int(request.places[k])] = _plain(predictions, k)
        unknown = [each for each, found in zip(request.asked, scores, strict=True) if found is None]
        return Found(scores, unknown, len(request.asked))

    # --- batches, in one thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        held: Request | None = None
        while True:
            first = held or self._queue.get()
            held = None
            if first is None:
                return
            batch, n_rows = [first], len(first.ids)
            while n_rows < self._most_rows:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                if n_rows + len(more.ids) > self._most_rows:
                    held = more
                    break
                batch.append(more)
                n_rows += len(more.ids)
            self._answer(batch)

    def _answer(self, batch: list[Request]) -> None:
        try:
            ids = tuple(each for request in batch for each in request.ids)
            codes = np.concatenate([request.codes for request in batch], axis=1)
            known, predictions = self._scored(ids, codes)
        except Exception as problem:  # noqa: BLE001 - whoever waits is told, and the next batch is another matter
            for request in batch:
                request.future.set_exception(problem)
            return
        start = 0
        for request in batch:
            stop = start + len(request.ids)
            request.future.set_result((known[start:stop], predictions[start:stop]))
            start = stop

    def _scored(self, ids: tuple[str, ...], codes: Bytes) -> tuple[Any, Floats]:
        known = np.ones(len(ids), np.bool_)
        answers = {party: np.zeros((n, len(ids)), np.uint8) for party, n in self._part.handles.items()}
        problems: list[HedgerowError] = []
        with ExitStack() as held:
            asked = []
            for partner in self._partners:
                held.enter_context(partner.lock)
                try:
                    partner.send(ids)
                    asked.append(partner)
                except Absent as problem:
                    problems.append(problem)
            for partner in asked:  # all of them, also if one is away: each conversation goes on by itself
                try:
                    has, answers[partner.name] = partner.answers(len(ids))
                    known &= has
                except (Absent, Limited) as problem:
                    problems.append(problem)
        if problems:
            raise problems[0]
        return known, self._predicted(codes, answers)

    def _predicted(self, codes: Bytes, answers: Mapping[str, Bytes]) -> Floats:
        return predictions_from(self._part.target.loss, self._part.raw_scores(codes, answers))

    def _warm_up(self) -> None:
        """Kernels are compiled before the first request comes."""
        nothing = {party: np.zeros((n, 1), np.uint8) for party, n in self._part.handles.items()}
        self._predicted(np.ascontiguousarray(self._codes[:, :1]), nothing)


def _plain(predictions: Floats | None, row: int) -> Any:
    """A number: of two classes the probability of the second. Of more classes, a list of all probabilities."""
    if predictions is None:
        return None
    if predictions.ndim == 1:
        return float(predictions[row])
    return float(predictions[row, 1]) if predictions.shape[1] == 2 else predictions[row].tolist()
