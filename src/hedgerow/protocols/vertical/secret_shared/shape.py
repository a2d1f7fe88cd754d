"""The shape of a training, which is public: what is dealt, compared and sent at each level follows from it.

A tree is dealt for as if every node split. Nodes of a level are played in blocks of a few, each with randomness of its
own lane, so that what was dealt for blocks without nodes can be thrown away. A block that is not full is filled up with
nodes of no rows, which stop.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from hedgerow.crypto.compare import Circuit
from hedgerow.crypto.tournament import MAX_GROUP, Plan, Select
from hedgerow.engine.dtypes import MAX_BINS, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.shares.columns import Matrices
from hedgerow.protocols.shares.job import MOST_ROWS
from hedgerow.protocols.shares.mesh import blocks
from hedgerow.protocols.shares.scales import Limits, Scales, Weighing
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import Sizes
from hedgerow.runtime.party import Party
from hedgerow.runtime.resources import check_room

BLOCK_NODES = 8
MANY_CANDIDATES = 4096
SMALL_GROUPS = (3, 4, 4)
USUAL_GROUP = 6
_DEALT_NUMBERS = 32  # for each possible split at a node (`crypto.lifting.deal_gains`)

NO_LIMITS = Limits(0, 0)
STOP, LABEL_HOLDERS = 0, 1
"""Handles: the node is a leaf; a split of the label holder's columns won. Those of feature holders come after."""

COLUMNS, HISTOGRAMS, SPLITS = "columns", "histograms", "splits"
"""Lanes of what is dealt; those of tournaments are `Shape.lane`, and of what goes before them `Shape.limits_lane`."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a training and the scales that follow."""

    n_rows: int
    bins: tuple[int, ...]  # of each feature holder: rows of its one-hot matrix
    candidates: tuple[int, ...]  # of each feature holder
    scales: Scales
    limits: Limits = NO_LIMITS
    n_columns: tuple[int, ...] = ()  # of each holder, where columns are drawn or kept apart
    n_before: int = 0  # likewise: trees of an earlier training

    @property
    def n_outputs(self) -> int:
        """Trees of an iteration."""
        return self.scales.loss.n_outputs

    @property
    def n_holders(self) -> int:
        """Parties with data."""
        return 1 + len(self.bins)

    @property
    def n_candidates(self) -> int:
        """Of all feature holders."""
        return sum(self.candidates)

    @property
    def bytes_of_bits(self) -> int:
        """Bytes for one bit per row."""
        return -(-self.n_rows // 8)

    @property
    def matrices(self) -> Matrices:
        """The one-hot matrices of all holders; the label holder needs none."""
        return Matrices((0, *self.bins), self.n_rows, self.scales.sums)

    def candidates_of(self, place: int) -> slice:
        """Where its candidates are among those of all feature holders."""
        start = sum(self.candidates[: place - 1])
        return slice(start, start + self.candidates[place - 1])

    def first_handle(self, place: int) -> int:
        """Its first handle; it has as many as candidates."""
        return LABEL_HOLDERS + 1 + sum(self.candidates[: place - 1])

    def owners(self, handles: np.ndarray) -> Ints:
        """Who won: -1 for nobody (a leaf), 0 for the label holder, 1, 2, ... for feature holders.

        ProtocolError for a handle that nobody has: handles are what all parties' words make, true or not.
        """
        ends = np.cumsum([STOP + 1, 1, *self.candidates])
        if (handles >= ends[-1]).any():
            raise ProtocolError("a winner's handle is nobody's: some party sent words that are not shares of it")
        return np.asarray(np.searchsorted(ends, handles, side="right") - 1, np.int64)

    def check_room(self, party: str, depth: int, n_bins: int) -> None:
        """InvalidInput, naming the party, unless these bins, a level's rows and a block's possible splits fit."""
        masked = (n_bins + self.n_vectors(depth - 1)) * self.n_rows * self.scales.sums.number_bytes
        dealt = _DEALT_NUMBERS * self.block_nodes(depth - 1) * self.n_candidates * self.scales.wide.number_bytes
        what = f"{n_bins:,} bins of {self.n_rows:,} rows, and {self.n_candidates:,} possible splits of others,"
        check_room(party, masked + dealt, what)

    # --- one level -------------------------------------------------------------------------------------------------

    @staticmethod
    def n_nodes(level: int) -> int:
        """Nodes at most."""
        return 1 << level

    @staticmethod
    def n_families(level: int) -> int:
        """Nodes whose histograms are made: the root, then left children."""
        return 1 << max(level - 1, 0)

    def n_vectors(self, level: int) -> int:
        """Of all families: gradients, hessians, and rows where they count."""
        return self.limits.n_vectors * self.n_families(level)

    def family_pieces(self, n_families: int) -> list[slice]:
        """How the vectors of a level, two or three for each family, are cut into messages."""
        each = self.limits.n_vectors
        pieces = blocks(n_families, each * self.scales.sums.number_bytes * self.n_rows)
        return [slice(each * piece.start, each * piece.stop) for piece in pieces]

    def block_nodes(self, level: int) -> int:
        """Nodes of a block."""
        return min(BLOCK_NODES, self.n_nodes(level))

    def n_blocks(self, level: int, n_nodes: int | None = None) -> int:
        """Blocks for this many nodes, or for all that there can be."""
        nodes = self.n_nodes(level) if n_nodes is None else n_nodes
        return -(-nodes // self.block_nodes(level))

    @staticmethod
    def lane(block: int) -> str:
        """The lane of a block's tournament."""
        return f"tournament {block}"

    @staticmethod
    def limits_lane(block: int) -> str:
        """The lane of what is checked before a block's tournament."""
        return f"limits {block}"

    def plan(self, level: int) -> Plan:
        """The tournament of a block: few levels, and among those with as many the groups that send least.

        With very many candidates bytes count for more than rounds, the dealer's too: small groups first, lean choices.
        """
        n, limbs, nodes = 1 + self.n_candidates, self.scales.wide.limbs, self.block_nodes(level)
        if n <= MANY_CANDIDATES:
            return Plan(nodes, n, limbs, thrifty_groups(n, limbs))
        left, n_large = -(-n // math.prod(SMALL_GROUPS)), 1
        while MAX_GROUP**n_large < left:
            n_large += 1
        first = max(2, -(-left // MAX_GROUP ** (n_large - 1)))
        groups = (*SMALL_GROUPS, first, *[MAX_GROUP] * (n_large - 1))
        lean: tuple[Select, ...] = ("lean",)
        return Plan(nodes, n, limbs, groups, (*lean * (len(groups) - 1), "table"), Circuit(4, 4))

    def n_parcels(self, level: int) -> int:
        """Messages that the dealer sends to each party: histograms, splits, and the steps of each block."""
        steps = 1 + bool(self.limits.n_checks) + sum(1 for _ in self.plan(level).levels())
        return 2 + self.n_blocks(level) * steps


@cache
def thrifty_groups(n: int, n_limbs: int) -> tuple[int, ...]:
    """Sizes of groups for n candidates: as many levels as groups of USUAL_GROUP need, then the fewest bytes opened."""
    n_levels = 1
    while USUAL_GROUP**n_levels < n:
        n_levels += 1
    sizes = itertools.combinations_with_replacement(range(2, MAX_GROUP + 1), n_levels)
    enough = [groups for groups in sizes if math.prod(groups) >= n]
    return min(enough, key=lambda groups: (sum(Plan(BLOCK_NODES, n, n_limbs, groups).openings()), groups))


def tells_columns(job: SecretSharedJob) -> bool:
    """Whether everybody must know how many columns the others have: they are drawn, or kept apart, by number."""
    trees = job.boosting
    shares = (trees.colsample_bytree, trees.colsample_bylevel, trees.colsample_bynode)
    return min(shares) < 1.0 or trees.interaction is not None


def most_bins_of(job: SecretSharedJob) -> int:
    """How many bins a column can have: `max_bins` is for numbers, levels have one each."""
    return max(job.max_bins, MAX_BINS - 1)


def received_shape(me: Party, job: SecretSharedJob, n_rows: int | None = None) -> Shape:
    """What the label holder says about sizes, to a party with this many rows; the dealer has none."""
    most_bins = job.most_columns * most_bins_of(job)
    sizes = me.recv(
        job.label_holder,
        Sizes,
        least_rows=n_rows or 1,
        most_rows=n_rows or MOST_ROWS,
        n_others=len(job.feature_holders),
        n_holders=len(job.holders),
        most_bins=most_bins,
        most_candidates=2 * most_bins,
    )
    if not ((sizes.bins <= sizes.candidates) & (sizes.candidates <= 2 * sizes.bins)).all():
        raise ProtocolError(
            f"{job.label_holder} speaks of {sizes.candidates.tolist()} possible splits of {sizes.bins.tolist()} bins, "
            "which no columns have"
        )
    if bool(sizes.n_columns.all()) != tells_columns(job):
        raise ProtocolError(f"{job.label_holder} says that parties have {sizes.n_columns.tolist()} columns")
    return shape_of(job, sizes)


def shape_of(job: SecretSharedJob, sizes: Sizes) -> Shape:
    """What follows from the sizes."""
    bins, candidates = tuple(sizes.bins.tolist()), tuple(sizes.candidates.tolist())
    weighing = Weighing(sizes.n_units, sizes.unit_exponent)
    scales = Scales.of(job, sizes.n_rows, weighing, sizes.n_classes)
    columns = tuple(sizes.n_columns.tolist()) if tells_columns(job) else ()
    return Shape(sizes.n_rows, bins, candidates, scales, scales.limits(job.boosting), columns, sizes.n_before)
