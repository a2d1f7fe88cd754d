"""What label holder and feature holders do alike: rows with the common gradients, a grower over its own columns."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.building import Children
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import LevelSplits
from hedgerow.protocols.vertical.common.joint_growth import JointGrower, JointRows, descend_by_sides, packed_columns
from hedgerow.protocols.vertical.common.tables import OwnColumns
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.noise import first_order_loss
from hedgerow.protocols.vertical.noised_gradients.noise_aware import NoiseAwareGrower


class Trainer:
    """One party's rows and grower.

    `labels` are the true ones where gradients come from them; where they are known with noise only, any public number,
    the middle of their range, and the rest of the gradient is added.
    """

    def __init__(
        self,
        job: NoisedGradientsJob,
        columns: OwnColumns,
        loss: Loss,
        labels: Floats | float,
        base_score: float,
        quantiser: Quantiser,
        *,
        sigma: float = 0.0,
        afresh: bool = False,
    ) -> None:
        """`sigma`: noise to allow for; `afresh`: gradients change from level to level."""
        self._ones = round(quantiser.hessian_scale) if job.score == FIRST_ORDER else None
        self.rows = JointRows(
            packed_columns(columns.codes, columns.features, columns.n_threads),
            np.broadcast_to(np.asarray(labels, np.float64), columns.n_rows),
            None,
            loss,
            np.array([base_score]),
            quantiser,
            n_threads=columns.n_threads,
        )
        counted_as = loss if self._ones is None else first_order_loss(loss)
        common = (self.rows, job.boosting, counted_as, quantiser, columns.features)
        self.grower: JointGrower
        if job.allows_for_noise:
            self.grower = NoiseAwareGrower(*common, sigma=sigma)
        else:
            self.grower = AfreshGrower(*common) if afresh else JointGrower(*common)

    def gradients(self) -> Ints:
        """Gradients that follow from the present scores and from `labels`."""
        self.rows.gradients()
        gradients: Ints = self.rows.gradients_packed[0] >> 32
        return gradients

    def packed(self) -> Ints:
        """The same with hessians."""
        packed: Ints = self.rows.gradients_packed[0]
        return packed

    def use(self, gradients: Ints, hessians: Ints | None = None) -> None:
        """Grow by these gradients from now on; hessians are those of the scores unless given."""
        packed = self.rows.gradients_packed[0]
        if self._ones is not None:
            hessians = np.array([self._ones])
        kept = packed & 0xFFFFFFFF if hessians is None else hessians
        packed[:] = (gradients << 32) + kept

    def begin_tree(self) -> None:
        """All rows stand at the root of a new tree."""
        self.rows.start_tree()
        self.grower.begin()


class AfreshGrower(JointGrower):
    """For gradients that come with fresh noise at every level: all nodes are summed anew, and nothing is remembered."""

    def begin(self) -> None:
        """A new tree; its first gradients need not be there yet."""
        self.store.batched = True
        self._n_nodes, self.depth, self._n_leaves = 1, 0, 1

    @property
    def n_active(self) -> int:
        """Nodes of the newest level."""
        return self._n_nodes

    @property
    def n_leaves(self) -> int:
        """Leaves of the tree so far."""
        return self._n_leaves

    def best(self) -> LevelSplits:
        """The best split of every node of the newest level, from the present gradients."""
        sums, _ = self.joint.sums_of_sides(np.ones(self._n_nodes, np.bool_))
        unbounded = np.full(self._n_nodes, np.inf)
        return self.evaluate(Children(sums.sum(axis=1), -unbounded, unbounded))

    def divide(self, splits: LevelSplits, *, last: bool = False) -> bool:
        """Move the rows; whether the tree goes on."""
        splitting = splits.feature >= 0
        n_splitting = int(splitting.sum())
        last = last or self.is_last(n_splitting)
        descend_by_sides(self.joint, splitting, last=last)
        self.depth += 1
        self._n_leaves += n_splitting
        self._n_nodes = 2 * n_splitting
        return not last and n_splitting > 0
