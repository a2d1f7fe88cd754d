"""Fields that messages of several services of a trained model have in common."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from hedgerow.transport.frames import UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Shape, Within

MOST_OUTPUTS = 1 << 12
"""Scores of a row: as many as there are classes, if there are more than two."""

Brought: TypeAlias = Annotated[int, Within(0, MOST)]
"""How much of something a party says it brings; that it fits is compared afterwards, for an error with advice."""
RunId: TypeAlias = Annotated[str, Shape(Free("letters", 0, 1000))]
NRows: TypeAlias = Annotated[int, Within("n_rows", "n_rows")]
BatchRows: TypeAlias = Annotated[int, Within(1, "most_batch_rows")]
FirstRow: TypeAlias = Annotated[int, Within("start", "start")]
AnswerBits: TypeAlias = Annotated[UInt8s, Shape("n_handles", "n_bytes"), Anything()]
"""8 rows in a byte, the first one in its highest bit; 1 for right."""
