"""What a closed scoring is to do, and in which blocks of rows: all parties and the dealer must agree on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hedgerow.crypto.choosing import DEALT_BYTES, Choosing
from hedgerow.errors import ProtocolError
from hedgerow.protocols.services.score_closed.messages import MOST_LEAVES, ScoresWanted
from hedgerow.protocols.vertical.common.job import WithDealer
from hedgerow.protocols.vertical.common.serving import ServiceJob
from hedgerow.runtime.options import option
from hedgerow.runtime.party import Party
from hedgerow.transport.ranges import MOST

NAME = "vertical.closed_scoring"
BATCH_ROWS = 1 << 16
BLOCK_BYTES = 1 << 24
"""What is dealt for a block, at most; but a block has one row at least."""


@dataclass(frozen=True)
class ClosedScoringJob(WithDealer, ServiceJob):
    """What all parties of a closed scoring must agree on. JSON-able; nothing in it is secret."""

    NAME = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    dealer: str = option("dealer", "the party that deals correlated randomness and has no data")
    batch_rows: int = option(BATCH_ROWS, "rows in one block, at most; fewer if there are many leaves", at_least=1)


@dataclass(frozen=True)
class Blocks:
    """The sizes of a scoring."""

    n_rows: int
    block_rows: int
    n_leaves: tuple[int, ...]  # by output
    n_parties: int

    @classmethod
    def planned(cls, job: ClosedScoringJob, n_rows: int, n_leaves: tuple[int, ...]) -> Blocks:
        """As large as memory and the job allow."""
        room = BLOCK_BYTES // (DEALT_BYTES * max(sum(n_leaves), 1))
        return cls(n_rows, max(min(room, job.batch_rows, n_rows), 1), n_leaves, len(job.holders))

    @classmethod
    def told(cls, job: ClosedScoringJob, me: Party, n_rows: int | None = None) -> Blocks:
        """What the label holder says, about this many rows if they are known; ProtocolError if it does not add up."""
        least, most = (1, MOST) if n_rows is None else (n_rows, n_rows)
        wanted = me.recv(job.label_holder, ScoresWanted, least_rows=least, most_rows=most)
        blocks = cls.planned(job, wanted.n_rows, tuple(wanted.n_leaves.tolist()))
        if blocks.block_rows != wanted.block_rows or sum(blocks.n_leaves) > MOST_LEAVES:
            raise ProtocolError(
                f"{job.label_holder} wants scores of {wanted.block_rows} rows at a time, by {sum(blocks.n_leaves)} "
                f"leaves; {blocks.block_rows} rows can be"
            )
        return blocks

    @property
    def message(self) -> ScoresWanted:
        """What the label holder tells all others."""
        return ScoresWanted(self.n_rows, self.block_rows, np.array(self.n_leaves, np.int64))

    @property
    def n_outputs(self) -> int:
        """Scores of a row."""
        return len(self.n_leaves)

    def rows(self) -> Iterator[slice]:
        """The rows of each block."""
        starts = range(0, self.n_rows, self.block_rows)
        return (slice(start, min(start + self.block_rows, self.n_rows)) for start in starts)

    def plans(self, rows: slice) -> list[Choosing]:
        """What is chosen of these rows, by output."""
        return [Choosing(rows.stop - rows.start, n, self.n_parties) for n in self.n_leaves]


def lane_of(output: int) -> str:
    """Outputs are chosen side by side, so each has a lane of its own."""
    return f"output {output}"
