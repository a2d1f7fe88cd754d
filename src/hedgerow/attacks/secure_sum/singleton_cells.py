"""Cells that hold one record: histogram sums give away its bin and its label.

The adversary sees, for nodes of growing trees, sums of gradients g and hessians h per feature and bin, as a coordinator
of horizontal.secure_sum does (of all owners' rows), or a partner where there is nobody else to hide among.

    1  siblings that were not sent follow by subtraction from their parents
    2  a record of the logistic loss has g = p - y and h = p (1 - p), so h = |g| (1 - |g|): whatever its score was. Sums
       over several records do not have that property, but for rare accidents; so a cell that has it holds one record
    3  its label is 1 where g is negative, its bin is that of the cell; what the node's path says about it comes on top
    4  a node with such a cell in every feature holds one record in all: every bin of it is known

FederBoost (Tian et al.) holds that horizontal training needs no differential privacy; this is why it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.losses import Loss, Quantiser

LEAST_HESSIAN = 64
"""In quanta. Below that rounding hides whether h = |g| (1 - |g|), and a guess would be worth nothing."""


@dataclass(frozen=True, eq=False)
class SeenLevel:
    """Sums of some nodes of one level, as somebody saw them."""

    tree: int
    level: int
    splits: Ints  # [nodes of the level before] feature that each splits on, -1 for a leaf; empty at a root
    goes_left: Bytes  # [nodes of the level before, 256] where each code goes
    nodes: Ints  # [sums] nodes of this level, children of splitting nodes in order, left before right
    sums: Ints  # [sums, cells] packed (g << 32) + h, feature after feature, missing last

    def without(self, known: Ints) -> SeenLevel:
        """The same level without a part of the sums that the adversary knows, for instance its own."""
        return SeenLevel(self.tree, self.level, self.splits, self.goes_left, self.nodes, self.sums - known)


@dataclass(frozen=True)
class Public:
    """What everybody who takes part knows: where features begin in a vector, and the units of sums."""

    first: Ints  # [features + 1]
    gradient_unit: float
    hessian_unit: float

    @classmethod
    def of_job(cls, first: Ints, n_rows: int, gradient_bits: int | None = None) -> Public:
        """From the bins and the number of rows over all owners, which the coordinator tells everybody."""
        quantiser = Quantiser.for_job(Loss("logistic"), float(n_rows), n_rows=n_rows, gradient_bits=gradient_bits)
        return cls(first, 1.0 / quantiser.gradient_scale, 1.0 / quantiser.hessian_scale)


class ExposedCell(NamedTuple):
    """One record, as far as the adversary knows."""

    tree: int
    level: int
    node: int
    feature: int
    bin: int
    label: int


def find_single_records(levels: Iterable[SeenLevel], public: Public) -> list[ExposedCell]:
    """All cells of all nodes that seem to hold one record."""
    found = []
    for tree, level, node, cells in all_nodes(levels):
        alone, label = _single(cells, public)
        for place in np.flatnonzero(alone).tolist():
            feature = int(np.searchsorted(public.first, place, side="right")) - 1
            code = place - int(public.first[feature])
            found.append(ExposedCell(tree, level, node, feature, code, int(label[place])))
    return found


def all_nodes(levels: Iterable[SeenLevel]) -> Iterator[tuple[int, int, int, Ints]]:
    """(tree, level, node, cells) of all nodes whose sums were seen or follow by subtraction."""
    above: dict[int, Ints] = {}
    for seen in levels:
        here = dict(zip(seen.nodes.tolist(), seen.sums, strict=True))
        if seen.level:
            splitting = np.flatnonzero(seen.splits >= 0).tolist()
            for k, parent in enumerate(splitting):
                for child, sibling in ((2 * k, 2 * k + 1), (2 * k + 1, 2 * k)):
                    if child not in here and sibling in here and parent in above:
                        here[child] = above[parent] - here[sibling]
        for node, cells in here.items():
            yield seen.tree, seen.level, node, cells
        above = here


def _single(cells: Ints, public: Public) -> tuple[Bools, Ints]:
    gradient = (cells >> 32) * public.gradient_unit
    quanta = cells & 0xFFFFFFFF
    hessian = quanta * public.hessian_unit
    size = np.abs(gradient)
    # Both fields were rounded to the nearest quantum, once per record.
    slack = public.hessian_unit + public.gradient_unit
    alone = (quanta >= LEAST_HESSIAN) & (size < 1.0) & (np.abs(hessian - size * (1.0 - size)) <= slack)
    return alone, (gradient < 0).astype(np.int64)


# --- how well it did, for those who have the rows ------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """The attack against the truth."""

    cells: int
    """Cells that the adversary believes to hold one record."""
    right_cells: int
    """Those of them that do, with that label."""
    records: int
    """Records whose label, and one bin or more, the adversary has right."""
    whole_records: int
    """Those that it has alone in a node: all their bins are known."""
    n_records: int

    @property
    def label_accuracy(self) -> float:
        """Of the cells that were claimed, those that were right; 0 where nothing was claimed."""
        return self.right_cells / self.cells if self.cells else 0.0

    @property
    def share_of_records(self) -> float:
        """How many of all records were exposed."""
        return self.records / self.n_records


def score(found: Sequence[ExposedCell], levels: Sequence[SeenLevel], codes: Bytes, labels: Floats) -> Score:
    """Hold what was found against the rows it is about: `codes` [features, rows] and labels 0 or 1."""
    place = _nodes_of_rows(levels, codes)
    right, exposed, whole = 0, set(), set()
    for cell in found:
        rows = np.flatnonzero((place[cell.tree, cell.level] == cell.node) & (codes[cell.feature] == cell.bin))
        if len(rows) == 1 and labels[rows[0]] == cell.label:
            right += 1
            exposed.add(int(rows[0]))
            if np.count_nonzero(place[cell.tree, cell.level] == cell.node) == 1:
                whole.add(int(rows[0]))
    return Score(len(found), right, len(exposed), len(whole), codes.shape[1])


def _nodes_of_rows(levels: Sequence[SeenLevel], codes: Bytes) -> dict[tuple[int, int], Ints]:
    """(tree, level) -> the node of each row there, -1 where it has come to rest before."""
    n_rows = codes.shape[1]
    places: dict[tuple[int, int], Ints] = {}
    current = np.zeros(n_rows, np.int64)
    for seen in levels:
        if (seen.tree, seen.level) in places:  # a level that was seen in parts
            continue
        current = _descended(current, seen, codes) if seen.level else np.zeros(n_rows, np.int64)
        places[seen.tree, seen.level] = current
    return places


def _descended(current: Ints, seen: SeenLevel, codes: Bytes) -> Ints:
    number = np.cumsum(seen.splits >= 0) - 1  # among the splitting nodes
    moved = np.full_like(current, -1)
    for node, feature in enumerate(seen.splits.tolist()):
        if feature >= 0:
            here = np.flatnonzero(current == node)
            left = seen.goes_left[node, codes[feature, here]].astype(np.bool_)
            moved[here] = 2 * number[node] + np.where(left, 0, 1)
    return moved
