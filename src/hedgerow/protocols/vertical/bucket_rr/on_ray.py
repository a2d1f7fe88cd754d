"""The label holder's rows on a Ray cluster of its own, for trees from shares: actors hold whole pieces of the rows.

Codes, own ones and the randomised buckets of others, reach the actors through the object store, in blocks of
neighbouring rows. Histograms are added up. The sums over leaves, which are sums of floats, are put side by side in the
order of the pieces, and added up by the driver as on one machine. So the model is the same, bit for bit.

An actor that is lost gets its block again and follows all commands so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import bin_counts
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.histogram import Layout
from hedgerow.engine.rows_ray.actors import CodedRows, Command, Crew, Holder, Own, used_cells
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.rows import blocks_in_memory
from hedgerow.protocols.vertical.bucket_rr.soft_rows import LeafSums, SoftSetup


class RaySoftRows:
    """All actors' rows; see `SoftRows`. What gives nothing back is queued, and travels with the next question."""

    def __init__(self, crew: Crew, setup: SoftSetup, first_rows: Sequence[int]) -> None:
        self.layout = Layout.plain(*bin_counts(setup.mapper.features))
        self._crew, self._first_rows = crew, first_rows
        self._used = used_cells(self.layout)
        self.n_rows = sum(crew.prepare(setup))

    @property
    def scores(self) -> Scores:
        """Of all rows [outputs, rows]."""
        found: list[Scores] = self._crew.after_commands(scores_of, side_by_side)
        return np.concatenate(found, axis=1)

    def set_scores(self, scores: Scores) -> None:
        """Stand as rows stood with these scores [outputs, rows]; every actor gets its own."""
        limits = itertools.pairwise([*self._first_rows, self.n_rows])
        self._crew.queue("set_scores", scores=Own([scores[:, start:stop] for start, stop in limits]))

    def gradients(self) -> None:
        """Quantise the gradients of every output from the present scores."""
        self._crew.queue("gradients")

    def count_only(self, counted: Bools) -> None:
        """The gradients of all other rows are 0, until there are new ones; every actor gets its own."""
        limits = itertools.pairwise([*self._first_rows, self.n_rows])
        self._crew.queue("count_only", counted=Own([counted[start:stop] for start, stop in limits]))

    def start_soft(self, output: int) -> None:
        """All rows stand at the root, entirely."""
        self._crew.queue("start_soft", output=output)

    def level_cells(self) -> Ints:
        """The sums of every node of the level."""
        found = self._crew.sums(cells_of)[0]
        cells = np.zeros((len(found), self.layout.n_cells), np.int64)
        cells[:, self._used] = found
        return cells

    def divide(self, feature: Ints, goes_left: Bytes, to_left: Floats, *, last: bool) -> None:
        """Move to the next level."""
        copies = {"feature": feature.copy(), "goes_left": goes_left.copy(), "to_left": to_left.copy()}
        self._crew.queue("divide", **copies, last=last)

    def leaf_sums(self, feature: Int32s, left: Int32s) -> LeafSums:
        """Of every piece, in their order."""
        found: list[LeafSums] = self._crew.after_commands(leaf_sums_of, side_by_side, feature=feature, left=left)
        overlap, g, h = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return overlap, g, h

    def add_values(self, feature: Int32s, left: Int32s, value: Scores) -> None:
        """Add a finished tree to the scores, by shares."""
        self._crew.queue("add_values", feature=feature.copy(), left=left.copy(), value=value.copy())


def scores_of(holder: Holder, first: int, commands: Sequence[Command]) -> list[Scores]:
    """Those of an actor's rows."""
    holder.follow(first, commands)
    return [holder.rows.scores]


def cells_of(holder: Holder, first: int, commands: Sequence[Command]) -> list[Ints]:
    """The histograms of an actor's rows, cells in use only."""
    holder.follow(first, commands)
    return [holder.rows.level_cells()[:, used_cells(holder.rows.layout)]]


def leaf_sums_of(
    holder: Holder, first: int, commands: Sequence[Command], feature: Int32s, left: Int32s
) -> list[LeafSums]:
    """What an actor's pieces add to the values of leaves."""
    holder.follow(first, commands)
    return [holder.rows.leaf_sums(feature.copy(), left.copy())]


def side_by_side(mine: list[Any], theirs: list[Any]) -> list[Any]:
    """In the order of actors, which is that of rows."""
    return mine + theirs


@contextmanager
def soft_rows_on_ray(
    backend: RayBackend, setup: SoftSetup, codes: Bytes, labels: Floats, weight: Floats | None = None
) -> Iterator[RaySoftRows]:
    """Rows in actors, for as long as the block lasts, of which each holds a run of pieces."""
    with connected(backend) as ray:
        n_pieces = len(setup.bounds) - 1
        n_actors = min(n_actors_of(ray, backend), n_pieces)
        cuts = [setup.bounds[n_pieces * actor // n_actors] for actor in range(n_actors + 1)]
        held = CodedRows(codes, labels, weight, np.empty((0, 2), np.int64))
        blocks = blocks_in_memory(ray, backend, held, cuts)
        with closing(Crew(ray, backend, n_actors)) as crew:
            crew.assign(blocks)
            yield RaySoftRows(crew, replace(setup, n_threads=backend.threads), cuts[:-1])
