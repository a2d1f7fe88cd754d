"""The four verbs over actors: what growth, boosting and protocols take for a `Rows`.

A verb that gives nothing back (gradients, start_tree, descend, finish_tree) is only queued. It travels with the next
question, so a level of a tree is one batch of messages: the way down, then the sums. How many rows a node has is
therefore known with its sums and not before, unless somebody has to know (`counts_first`), which costs another batch.

    table in memory   -> InMemory blocks: slices of codes, through the object store, where that is allowed
    Parquet files     -> each actor reads its own
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import Bytes, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.histogram import Layout
from hedgerow.engine.losses import Quantiser
from hedgerow.engine.rows_ray.actors import CodedRows, Crew, Holder, Loader, join_parts, scores_of, used_cells
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import InvalidParameter

_UNKNOWN = np.empty(0, np.int64)


class RowsLoader(Loader, Protocol):
    """What makes `Rows` of an actor's block; `Setup` is the plain engine's."""

    @property
    def mapper(self) -> BinMapper:
        """The bins."""
        ...

    @property
    def quantiser(self) -> Quantiser:
        """The scale of gradients."""
        ...


class RayRows:
    """Binned records with labels, in the actors of a crew."""

    def __init__(
        self,
        crew: Crew,
        setup: RowsLoader,
        ensemble: Ensemble | None = None,
        *,
        n_threads: int = 1,
        counts_first: bool = False,
    ) -> None:
        self.layout: Layout = Layout.plain(*bin_counts(setup.mapper.features))
        self.quantiser = setup.quantiser
        self.n_parts = n_threads
        """Threads that look for splits here; actors have their own."""
        self.crew, self._counts_first = crew, counts_first
        self._used = used_cells(self.layout)
        self._with_counts = False
        self._held_counts: tuple[Ints, Ints] | None = None
        self.node_counts: Ints = _UNKNOWN
        self.n_rows = sum(crew.prepare(setup, ensemble if ensemble is not None and ensemble.trees else None))

    def gradients(self) -> None:
        """Quantise the gradients of every output from the present scores."""
        self.crew.queue("gradients")

    def start_tree(self, output: int = 0, *, sample: tuple[int, int, float] | None = None) -> None:
        """All rows, or those that `sample` = (seed, tree, share) picks, stand at the root."""
        self.crew.queue("start_tree", output=output, sample=sample)
        self.node_counts = _UNKNOWN if sample is not None else np.array([self.n_rows], np.int64)

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """Sum the gradients (or count the rows) of the active `nodes`: node nodes[i] into cells[slots[i]].

        Whoever once wanted counts beside the sums gets both in one batch from then on.
        """
        if counts:
            if self._held_counts is None or not np.array_equal(self._held_counts[0], nodes):
                self._with_counts = True
                self._held_counts = nodes, self._ask(nodes, sums=False, counts=True)[0]
            found, self._held_counts = self._held_counts[1], None
        else:
            found, *rest = self._ask(nodes, sums=True, counts=self._with_counts)
            self._held_counts = (nodes.copy(), rest[0]) if rest else None
        cells[slots[:, None], self._used] = found

    def _ask(self, nodes: Ints, *, sums: bool, counts: bool) -> list[Ints]:
        self.node_counts, *found = self.crew.sums(Holder.sums, nodes=nodes, sums=sums, counts=counts)
        return found

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Move to the next level, as `Rows.descend` does."""
        # A bit for each code: commands are kept for actors that are lost later.
        self.crew.queue("descend", feature=feature.copy(), goes_left=np.packbits(goes_left, axis=1), last=last)
        self.node_counts, self._held_counts = _UNKNOWN, None
        if self._counts_first and not last and (feature >= 0).any():
            self._ask(_UNKNOWN, sums=False, counts=False)

    def finish_tree(self, leaf_values: Scores) -> None:
        """Add the tree to the scores of the rows that walked down it."""
        self.crew.queue("finish_tree", leaf_values=leaf_values.copy())

    def add_tree(self, tree: Tree, output: int) -> None:
        """Add a tree to the scores of all rows: after a sampled one, which not all have walked down."""
        self.crew.queue("add_tree", tree=tree, output=output)

    @property
    def scores(self) -> Scores:
        """What all trees add to the rows of the whole table [outputs, rows], unless they have been regrouped."""
        parts = self.crew.after_commands(scores_of, join_parts)
        return np.concatenate([parts[first] for first in sorted(parts)], axis=1)

    def set_scores(self, scores: Scores) -> None:
        """Let the rows of the whole table have these scores [outputs, rows]."""
        self.crew.queue("set_scores", scores=scores)

    def regroup(self, *, in_place: bool = True) -> None:
        """Lay rows out in memory by the leaves of the tree just finished, each actor its own."""
        self.crew.queue("regroup", in_place=in_place)


class InMemory:
    """A block of a table that somebody has in memory, on its way through the object store."""

    def __init__(self, name: str, ref: Any) -> None:
        self.name = name
        self._ref = [ref]  # in a list: Ray hands what stands here over as it is, and the actor asks for it

    def read(self, _mapper: BinMapper, _n_threads: int) -> CodedRows:
        """A copy of its own: memory of the object store is not for keeping."""
        import ray

        codes, labels, weight, pieces = ray.get(self._ref[0])
        return CodedRows(codes.copy(), labels.copy(), None if weight is None else weight.copy(), pieces.copy())


def check_allowed(backend: RayBackend, why: str) -> None:
    """Raise unless rows may be in the object store."""
    if not backend.rows_in_object_store:
        raise InvalidParameter(
            f"backend: {why}, which every job on the cluster can read. Give Parquet files instead, which actors read "
            "by themselves, or allow it with backend=RayBackend(rows_in_object_store=True)"
        )


def blocks_in_memory(ray: Any, backend: RayBackend, rows: CodedRows, n_actors: int | Sequence[int]) -> list[InMemory]:
    """A table in memory, cut into this many blocks of neighbouring rows, or at these rows."""
    check_allowed(backend, "a table in memory reaches Ray's actors only through its object store")
    n_rows = len(rows.labels)
    cuts = [n_rows * k // n_actors for k in range(n_actors + 1)] if isinstance(n_actors, int) else n_actors
    blocks = []
    for start, stop in itertools.pairwise(cuts):
        weight = None if rows.weight is None else rows.weight[start:stop]
        pieces = np.array([[stop - start, start]])
        block = CodedRows(np.ascontiguousarray(rows.codes[:, start:stop]), rows.labels[start:stop], weight, pieces)
        blocks.append(InMemory(f"rows {start:,} to {stop - 1:,}", ray.put(tuple(block))))
    return blocks
