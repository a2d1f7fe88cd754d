"""A run before any contract: the real protocol by local processes on made-up rows, and what would leave whose house.

    rehearsed = rehearse(cast_of(job, schemas), rows=1_000)
    rehearsed.sent            # who sent what to whom, how often, how many bytes
    rehearsed.outcomes        # what curious parties found out, where there are attacks on the protocol

Every party is a process with its own rows, over mutual TLS, as between organisations. Columns, bounds and levels are
those of the schemas; the rows are made up, and everything that is told says so. So nothing about quality can be learned
from it, and the attacks are against made-up truth: a verdict says what the messages allow, not what real rows are like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hedgerow.attacks.registry import Context, Outcome, attacked
from hedgerow.errors import HedgerowError
from hedgerow.federation.run import Run
from hedgerow.node.made_up import ID, STAMP, Cast, MadeUp, make_up
from hedgerow.node.manifest import Announced, Sent, after, before, unannounced
from hedgerow.node.words import matching_cast
from hedgerow.runtime.progress import OnProgress
from hedgerow.runtime.protocol import find


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """What a rehearsal came to."""

    cast: Cast
    n_rows: int
    run: Run
    announced: list[Announced]
    sent: list[Sent]
    outcomes: list[Outcome]
    not_attacked: str | None = None  # why, where attacks could not be tried

    def to_dict(self) -> dict[str, Any]:
        """For programs; the stamp comes first."""
        run = self.run
        return {
            "stamp": STAMP,
            "protocol": run.protocol,
            "parties": dict(run.job.cast),
            "n_rows": self.n_rows,
            "notes": list(self.cast.notes),
            "seconds": run.seconds,
            "announced": [each._asdict() for each in self.announced],
            "sent": [each._asdict() for each in self.sent],
            "unannounced": [each._asdict() for each in unannounced(self.announced, self.sent)],
            "traffic": {party: meter.total()._asdict() for party, meter in run.meters.items()},
            "attacks": [{"stamp": STAMP, **outcome.to_dict()} for outcome in self.outcomes],
            "not_attacked": self.not_attacked,
            "statement": {**run.statement().to_dict(), "rows": STAMP},
        }


def rehearse(
    cast: Cast,
    rows: int = 1_000,
    *,
    seed: int = 0,
    transport: str = "grpc",
    attack: bool = True,
    on_progress: OnProgress | None = None,
) -> Rehearsed:
    """Make up tables of this many rows each, run the job on them, and see what went over the wire."""
    made = make_up(cast, rows, seed)
    run = made.federation.fit(
        cast.job.protocol, transport=transport, record=attack, on_progress=on_progress, **cast.params
    )
    spec = find(run.protocol)
    announced = before([spec], run.job.cast)
    books = dict(run.ledgers)
    sent = after(books)
    if run.alignment is not None:
        matching = run.alignment.job
        announced = [*before([find(matching.NAME)], matching_cast(matching)), *announced]
        sent = [*after(run.alignment.ledgers), *sent]
    outcomes, problem = _attacked(run, made) if attack else ([], "it was not asked for")
    return Rehearsed(cast, rows, run, announced, sent, outcomes, problem)


def _attacked(run: Run, made: MadeUp) -> tuple[list[Outcome], str | None]:
    tables = {
        name: table.drop_columns([ID]) if ID in table.column_names else table for name, table in made.tables.items()
    }
    try:
        return attacked(Context(run, made.labels, tables)), None
    except HedgerowError as problem:
        return [], str(problem)
