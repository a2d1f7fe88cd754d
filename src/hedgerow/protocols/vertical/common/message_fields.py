"""Fields that messages of several protocols share: of the conversation about splits (`joint_forest`), of services."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np

from hedgerow.transport.frames import Float64s, Int32s, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Index, Shape, Within

LEAF, OTHERS, YOURS = 0, 1, 2
"""What becomes of a node."""
MOST_GAIN = float(np.finfo(np.float32).max)
"""What trees can write down; larger gains are told as this one."""

Gains: TypeAlias = Annotated[Float64s, Shape("n_nodes"), Within(-1.0, MOST_GAIN)]
"""-1 where no split is allowed."""
Roles: TypeAlias = Annotated[UInt8s, Shape("n_nodes"), Within(LEAF, YOURS)]
Handles: TypeAlias = Annotated[Int32s, Shape("n_won"), Index("most_handles")]
"""Of each node that was won: the next number for a new question, an earlier one for a question asked before."""
Sides: TypeAlias = Annotated[UInt8s, Shape("n_bytes"), Anything()]
"""One bit per row of the table, 1 for right."""


def bytes_for(n_rows: int) -> int:
    """Length of `Sides`."""
    return -(-n_rows // 8)


# --- services of a trained model -------------------------------------------------------------------------------------


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
