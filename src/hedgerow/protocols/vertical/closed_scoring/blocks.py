"""Rows in blocks: how much is dealt and opened at a time, which all parties and the dealer must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hedgerow.crypto.choosing import DEALT_BYTES, Choosing
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.closed_scoring.job import ClosedScoringJob
from hedgerow.protocols.vertical.closed_scoring.messages import ScoresWanted

BLOCK_BYTES = 1 << 24
"""What is dealt for a block, at most; but a block has one row at least."""


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
    def told(cls, job: ClosedScoringJob, wanted: ScoresWanted) -> Blocks:
        """What the label holder says; ProtocolError if that cannot be."""
        fits = wanted.n_leaves.ndim == 1 and len(wanted.n_leaves) and (wanted.n_leaves >= 0).all()
        if not fits or wanted.n_rows < 1 or not 1 <= wanted.block_rows <= min(job.batch_rows, wanted.n_rows):
            raise ProtocolError(f"{job.label_holder} wants scores of a shape that cannot be")
        return cls(wanted.n_rows, wanted.block_rows, tuple(wanted.n_leaves.tolist()), len(job.holders))

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
