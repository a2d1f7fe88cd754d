"""The shape of a training with vertical.mp_fedxgb, which is public: what is dealt and compared follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hedgerow.crypto.choosing import DEALT_BYTES, Choosing
from hedgerow.crypto.division import PAPER_ITERATIONS, Descent, Division, worst_iterations
from hedgerow.crypto.limbs import LIMB_BITS, MAX_LIMBS
from hedgerow.crypto.shares import Kind, limbs_kind
from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.protocols.published.mp_fedxgb.argmax import Round, rounds
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, MpFedXgbJob
from hedgerow.protocols.shares.columns import Cuts, Matrices, OfAllColumns, Sizes
from hedgerow.protocols.shares.mesh import blocks
from hedgerow.protocols.shares.scales import Scales
from hedgerow.transport.frames import MAX_FRAME_BYTES

MU = 2
"""The perturbations of a leaf's sum add up to at most MU lambda."""
EPSILON = 1e-6
"""What a leaf's weight may be wrong by."""
BLOCK_BYTES = 64 << 20

_WIDEST = limbs_kind(MAX_LIMBS)


class Lane:
    """Of what is dealt."""

    COLUMNS, HISTOGRAMS, SPLITS = "columns", "histograms", "splits"
    ARGMAX, LEAVES, PREDICTIONS = "argmax", "leaves", "predictions"


@dataclass(frozen=True)
class Plan(OfAllColumns):
    """Sizes of a training."""

    scales: Scales
    depth: int
    argmax: str
    first_layer_mask: bool

    @classmethod
    def of(cls, job: MpFedXgbJob, sizes: Sizes) -> Plan:
        """For the columns of all holders."""
        n_rows = sizes.n_rows
        scales = Scales.of(job, n_rows)
        plan = cls(sizes, scales, job.depth, job.argmax, job.first_layer_mask)
        n_bytes = 2 * plan.n_nodes(plan.depth - 1) * n_rows * scales.sums.number_bytes
        if n_bytes > MAX_FRAME_BYTES // 2:
            raise InvalidParameter(
                f"max_depth={plan.depth} needs {n_bytes >> 20:,} MB of every party for the rows of the nodes of one "
                f"level ({n_rows:,} rows), and as much in one message of the dealer: use a smaller one"
            )
        return plan

    # --- columns -----------------------------------------------------------------------------------------------------

    @cached_property
    def matrices(self) -> Matrices:
        """The one-hot matrices of all holders."""
        return Matrices(self.sizes.bins, self.n_rows, self.scales.sums)

    def cuts(self, level: int) -> Cuts:
        """All possible splits of a level, in the engine's order."""
        return self.cuts_by_holder[0] if level == 0 and self.first_layer_mask else self.all_cuts

    def n_candidates(self, level: int) -> int:
        """Possible splits of a node."""
        return len(self.cuts(level).bin)

    def rounds(self, level: int) -> list[Round]:
        """Who is compared with whom."""
        holders = self.cuts_by_holder[:1] if level == 0 and self.first_layer_mask else self.cuts_by_holder
        per_column = [
            np.bincount(cuts.column, minlength=len(bins)).tolist()
            for cuts, bins in zip(holders, self.sizes.n_bins, strict=False)
        ]
        return rounds([n for counts in per_column for n in counts])

    # --- levels ------------------------------------------------------------------------------------------------------

    @staticmethod
    def n_nodes(level: int) -> int:
        """Nodes of a level at most."""
        return 1 << level

    @property
    def n_leaves(self) -> int:
        """Leaves of a tree at most."""
        return 1 << self.depth

    @property
    def n_stages(self) -> int:
        """Of a tree: its levels, then the weights of leaves, then predictions."""
        return self.depth + 2

    def n_parcels(self, stage: int) -> int:
        """Messages that the dealer sends to each party."""
        if stage == self.depth:
            return 2 + self.descent.max_iterations
        if stage == self.depth + 1:
            return len(self.row_blocks())
        if self.argmax == DIVISION:
            return 2 + 2 + self.division(stage).n_iterations + 2
        return 2 + 1 + len(self.rounds(stage)) + 3

    @cached_property
    def wide(self) -> Kind:
        """The ring of comparisons. Denominators are opened here, so it must hold products of two of them as well."""
        return self._at_least((self.scales.bounds.largest_denominator**2).bit_length() + 1)

    def _at_least(self, bits: int) -> Kind:
        """The ring that numerators need, or a wider one."""
        n_limbs = max(self.scales.wide.limbs, -(-bits // LIMB_BITS))
        if n_limbs > MAX_LIMBS:
            raise FixedPointOverflow(
                f"{bits} bits are needed for lambda {self.scales.lambda_int:.3g} and sums up to "
                f"{self._largest_gradient:,}, and {LIMB_BITS * MAX_LIMBS} are available: use a smaller l2 or fewer "
                "gradient_bits"
            )
        return limbs_kind(n_limbs)

    def division(self, level: int) -> Division:
        """Two quotients for each possible split of a level, and one for each node."""
        roomy = Division.of(
            self.n_nodes(level) * (2 * self.n_candidates(level) + 1),
            _WIDEST,
            low=self.scales.lambda_int,
            high=self._largest_total,
            largest_numerator=self._largest_gradient**2,
            least_iterations=PAPER_ITERATIONS,
        )
        return replace(roomy, kind=self._at_least(roomy.needed_bits))

    @property
    def _largest_total(self) -> int:
        """Of H + lambda."""
        return self.n_rows * self.scales.bounds.largest_hessian + self.scales.lambda_int

    @property
    def _largest_gradient(self) -> int:
        return self.n_rows * self.scales.bounds.largest_gradient

    @cached_property
    def descent(self) -> Descent:
        """How weights are found. |w| is at most G / lambda, below 2**31 as all sums are, so 64 bits hold w 2**32."""
        roomy = Descent(
            self.n_leaves,
            _WIDEST,
            largest_total=self._largest_total + MU * self.scales.lambda_int,
            largest_weight=-(-self._largest_gradient // self.scales.lambda_int),
            max_iterations=worst_iterations(self.ratio, mu=MU),
        )
        return replace(roomy, kind=self._at_least(roomy.needed_bits))

    @property
    def ratio(self) -> float:
        """What a eps / |b| is at least."""
        return EPSILON / math.ceil(self._largest_gradient / self.scales.lambda_int)

    # --- rows --------------------------------------------------------------------------------------------------------

    def row_blocks(self) -> list[slice]:
        """Rows whose leaves are found together."""
        return blocks(self.n_rows, DEALT_BYTES * self.n_leaves, BLOCK_BYTES)

    def choosing(self, rows: slice) -> Choosing:
        """How the leaves of some rows are found."""
        return Choosing(rows.stop - rows.start, self.n_leaves, self.n_holders)
