"""What parties put together from shares in runs of vertical.mp_fedxgb, and the label holder's gradients.

    with watched() as seen:
        play(PROTOCOL, job, data)
    seen.opened("anna", StepShare, 0), seen.gradients[0]

Numbers come in their shapes, straight from memory: the twin of `attacks.mp_fedxgb.seen_openings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from hedgerow.crypto.shares import Array, Share
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.protocols.published.mp_fedxgb.holder import Growing, Labels
from hedgerow.protocols.shares.mesh import Mesh


class Seen(NamedTuple):
    """One opening to a party, or the bits by which all learn what it says."""

    kind: type[Any] | None  # None for bits
    fields: dict[str, int]
    words: Array


@dataclass
class Watched:
    """Of all parties that run meanwhile."""

    openings: dict[str, list[Seen]] = field(default_factory=dict)
    gradients: list[Ints] = field(default_factory=list)
    """The label holder's, of each tree: gradients and hessians [2, rows]."""

    def opened(self, party: str, kind: type[Any], tree: int) -> list[Array]:
        """All openings of a kind to a party, of one tree."""
        return [seen.words for seen in self.openings[party] if seen.kind is kind and seen.fields["tree"] == tree]


@contextmanager
def watched() -> Iterator[Watched]:
    """Openings by party, in order, and the label holder's gradients."""
    seen = Watched()
    opens, tells, makes = Mesh.reveal, Growing.told, Labels.gradients

    def reveal(self: Mesh, kind: type[Any], share: Share, *, to: str, fields: dict[str, int]) -> Array | None:
        value = opens(self, kind, share, to=to, fields=fields)
        if value is not None:
            seen.openings.setdefault(to, []).append(Seen(kind, fields, np.array(value)))
        return value

    def told(
        self: Growing, numerators: Array | None, denominators: Array | None, n: int, judge: Callable[[Array], Bools]
    ) -> Bools:
        bits = tells(self, numerators, denominators, n, judge)
        seen.openings.setdefault(self.me.name, []).append(Seen(None, {}, np.array(bits)))
        return bits

    def gradients(self: Labels, tree: int) -> Array:
        words = makes(self, tree)
        signed = np.int32 if words.dtype == np.uint32 else np.int64
        seen.gradients.append(words.view(signed).astype(np.int64))
        return words

    with (
        patch.object(Mesh, "reveal", reveal),
        patch.object(Growing, "told", told),
        patch.object(Labels, "gradients", gradients),
    ):
        yield seen
