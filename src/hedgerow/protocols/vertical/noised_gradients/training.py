"""What label holder and feature holders do alike: rows with the common gradients, and trees over its own columns.

vertical.masked_gradients grows its trees with this too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Self

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.growth import Children, LevelSplits
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.protocols.vertical.common.agreement import OwnColumns
from hedgerow.protocols.vertical.common.joint_forest import (
    Asked,
    JointGrower,
    JointRows,
    Standing,
    descend_by_sides,
    mark_foreign_splits,
    new_sides,
    packed_columns,
    receive_roles,
)
from hedgerow.protocols.vertical.common.messages import LEAF, OTHERS, YOURS, bytes_for
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, RUN, GradientsJob, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, first_order_loss
from hedgerow.protocols.vertical.noised_gradients.noise_aware import NoiseAwareGrower
from hedgerow.runtime.party import Party

Exchange = Callable[[Ints], Ints]
"""What scores give to the gradient of every row -> what its label gives, with noise, as all parties get to know it."""


class Trainer:
    """One party's rows and grower.

    `labels` are the true ones where gradients come from them; where they are known with noise only, any public number,
    the middle of their range, and the rest of the gradient is exchanged: for every tree, or once for all.
    """

    on_scores: Callable[[Ints], None] | None = None  # gets, before each tree, what scores give to gradients

    def __init__(
        self,
        job: GradientsJob,
        columns: OwnColumns,
        loss: Loss,
        labels: Floats | float,
        base_score: float,
        quantiser: Quantiser,
        exchange: Exchange | None = None,
        *,
        from_labels: Ints | None = None,
        is_kept: bool = False,
        sigma: float | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Without `exchange` gradients change from level to level; `sigma`: noise to allow for."""
        self.base_score, self._exchange, self._from_labels, self._is_kept = base_score, exchange, from_labels, is_kept
        self._ones = round(quantiser.hessian_scale) if job.score == FIRST_ORDER else None
        self.rows = JointRows(
            packed_columns(columns.codes, columns.features, columns.n_threads),
            np.broadcast_to(np.asarray(labels, np.float64), columns.n_rows),
            None,
            loss,
            np.array([base_score]),
            quantiser,
            n_threads=columns.n_threads,
            scores=None if standing is None else standing.scores,
        )
        counted_as = loss if self._ones is None else first_order_loss(loss)
        common = (self.rows, job.boosting, counted_as, quantiser, columns.features)
        self.grower: JointGrower
        if sigma is not None:
            self.grower = NoiseAwareGrower(*common, sigma=sigma)
        else:
            self.grower = JointGrower(*common) if exchange is not None else AfreshGrower(*common)

    @classmethod
    def noisy(
        cls,
        job: NoisedGradientsJob,
        columns: OwnColumns,
        loss: Loss,
        noise: LabelNoise,
        exchange: Exchange,
        standing: Standing | None,
    ) -> Self:
        """Where all of it, the first scores too, follows from what is exchanged: with per="run" the first time."""
        first: Ints | None
        if standing is None:
            first = exchange(np.zeros(columns.n_rows, np.int64))  # scores in the middle give nothing
            base_score = noise.start(job, loss, first)
        else:
            first, base_score = standing.from_labels, standing.base_score
        how = (noise.centre, base_score, noise.quantiser(job, loss), exchange)
        sigma = noise.sigma_of_gradient if job.allows_for_noise else None
        more: dict[str, Any] = {"is_kept": job.per == RUN, "sigma": sigma, "standing": standing}
        return cls(job, columns, loss, *how, from_labels=first, **more)

    @property
    def standing(self) -> dict[str, Any]:
        """After a tree: fields of `Standing`."""
        return {"scores": self.rows.scores, "base_score": self.base_score, "from_labels": self._from_labels}

    def begin_tree(self) -> None:
        """All rows stand at the root of a new tree, with its gradients."""
        if self._exchange is not None:
            self.rows.gradients()
            from_scores: Ints = self.rows.gradients_packed[0] >> 32
            if self.on_scores is not None:
                self.on_scores(from_scores)
            from_labels = self._exchange(from_scores) if self._from_labels is None else self._from_labels
            self._from_labels = from_labels if self._is_kept else None
            self.use(from_scores + from_labels)
        self.rows.start_tree()
        self.grower.begin()

    def use(self, gradients: Ints, hessians: Ints | None = None) -> None:
        """Grow by these gradients from now on; hessians are those of the scores unless given."""
        packed = self.rows.gradients_packed[0]
        if self._ones is not None:
            hessians = np.array([self._ones])
        kept = packed & 0xFFFFFFFF if hessians is None else hessians
        packed[:] = (gradients << 32) + kept

    def settle_level(self, me: Party, label_holder: str, words: ModuleType, splits: LevelSplits, asked: Asked) -> bool:
        """A feature holder's side of what becomes of a level, once it has told how much its best splits gain.

        `words` are the protocol's messages. Whether the tree goes on.
        """
        grower, rows = self.grower, self.rows
        roles = receive_roles(me, label_holder, words.Winners, splits, room=grower.room, counts=rows.node_counts)
        mine, others, splitting = roles == YOURS, roles == OTHERS, roles != LEAF
        rows.sides[:] = 0
        if mine.any():
            rows.write_sides(np.where(mine, splits.feature, -1), splits.goes_left)
            handles = asked.handles(splits, np.flatnonzero(mine))
            me.send(label_holder, words.WhichWay(handles, np.packbits(rows.sides)))
        keeps_scores = self._exchange is not None  # and so needs the sides of all rows, also below the last split
        if others.any() and (keeps_scores or not grower.is_last(int(splitting.sum()))):
            partition = me.recv(label_holder, words.Partition, n_bytes=bytes_for(rows.n_rows))
            in_others = partial(rows.count_sides, nodes=others)
            rows.sides[:] |= new_sides(label_holder, partition, rows.n_rows, in_others, known=rows.sides)
        splits.feature[:] = -1
        mark_foreign_splits(splits, splitting, rows.spare_feature)
        splits.gain[:] = np.inf  # the label holder has compared gains already, with the others' too
        return grower.divide(splits)


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
