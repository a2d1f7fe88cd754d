"""What parties keep after a tree, to go on from there if the run is broken off: how rows stand, trees, questions.

`Standing` is what both sides have in common, `ForestState` the label holder's, `OwnerState` a feature holder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hedgerow.engine.dtypes import Floats, Ints, Scores
from hedgerow.engine.ensemble import TreeStack


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a party's rows stand, and how much it has released, or received, that is drawn anew if a tree is."""

    scores: Scores | None = None
    base_scores: Floats | None = None
    from_labels: Ints | None = None  # the part of gradients that serves all trees
    released: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ForestState(Standing):
    """The label holder's: its trees too, and the noise that it has drawn for the next one."""

    trees: TreeStack = field(default_factory=lambda: TreeStack.of(()))
    foreign: Ints | None = None  # as `ForeignSplits` has them
    rounds: int = 0
    drawn: Ints | None = None
    began: Scores | None = None  # the scores that the iteration began with, if it has trees still to come
    recovery: Mapping[str, Any] | None = None  # vertical.masked_gradients: what its first message gave away
    curve: tuple[float, ...] = ()  # of rows that are watched: the metric of each iteration


@dataclass(frozen=True, kw_only=True)
class OwnerState(Standing):
    """A feature holder's: its questions too."""

    questions: tuple[tuple[int, int, bool, str], ...] = ()
    n_asked: tuple[int, ...] = ()  # questions after each tree
