"""What label holder and feature holders do alike: rows with the common gradients, and trees over its own columns.

vertical.masked_gradients grows its trees with this too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np

from hedgerow.engine.dtypes import Bools, Floats, Ints, Scores
from hedgerow.engine.growth import Children, LevelSplits
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.errors import ProtocolError
from hedgerow.protocols.vertical.common.agreement import OwnColumns
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import (
    Asked,
    JointGrower,
    JointRows,
    descend_by_sides,
    mark_foreign_splits,
    new_sides,
    packed_columns,
    receive_roles,
    with_spare,
)
from hedgerow.protocols.vertical.common.messages import (
    LEAF,
    OTHERS,
    YOURS,
    LearningRows,
    PlaceOfColumns,
    SplitColumns,
    bytes_for,
)
from hedgerow.protocols.vertical.common.states import Standing
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, RUN, GradientsJob, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, first_order_loss
from hedgerow.protocols.vertical.noised_gradients.noise_aware import NoiseAwareGrower
from hedgerow.runtime.party import Party

Exchange = Callable[[Ints], Ints]
"""What scores give to the gradients of all rows [outputs, rows] -> what labels give, with noise, as all get to know it."""


class Learning(NamedTuple):
    """Which rows count, how much, and what may be asked of them: what all parties know alike."""

    draw: RowDraw
    weight: Floats | None = None  # None: 1 for each row
    columns: ColumnRules | None = None
    n_classes: int = 2
    n_earlier: int = 0  # trees of an earlier model

    @property
    def weights(self) -> Floats:
        """Of all rows, 0 for those that are watched."""
        counted = np.zeros(self.draw.n_rows)
        counted[self.draw.learned] = 1.0 if self.weight is None else self.weight[self.draw.learned]
        return counted

    def begin_tree(self, rows: JointRows, number: int, n_outputs: int) -> None:
        """What is drawn for a tree of this run."""
        rows.counted = self.draw.for_iteration((self.n_earlier + number) // n_outputs)
        if self.columns is not None:
            self.columns.begin_tree(self.n_earlier + number)


def tell_learning(me: Party, job: GradientsJob, learning: Learning, watched: Bools | None) -> None:
    """The label holder's word to all feature holders."""
    bits = np.empty(0, np.uint8) if watched is None else np.packbits(watched)
    weight = np.empty(0) if learning.weight is None else learning.weight
    me.send_all(job.feature_holders, LearningRows(learning.n_earlier, learning.n_classes, weight, bits))
    rules = learning.columns
    for party in job.feature_holders if rules is not None else ():
        me.send(party, PlaceOfColumns(rules.first(party), rules.n_all))


def hear_learning(me: Party, job: GradientsJob, columns: OwnColumns) -> Learning:
    """A feature holder's side of `tell_learning`."""
    n_rows, n_own, stops = columns.n_rows, len(columns.features), job.boosting.early_stopping_rounds is not None
    told = me.recv(job.label_holder, LearningRows, n_rows=n_rows, n_watched_bytes=bytes_for(n_rows) if stops else 0)
    if len(told.weight) not in (0, n_rows) or (len(told.weight) and not told.weight.any()):
        raise ProtocolError(f"{job.label_holder} sent weights of {len(told.weight)} rows, but there are {n_rows}")
    watched = np.unpackbits(told.watched, count=n_rows).astype(np.bool_) if stops else None
    if watched is not None and (watched.all() or not watched.any()):
        raise ProtocolError(f"{job.label_holder} watches all rows or none")
    rules = None
    if ColumnRules.matter(job.boosting):
        place = me.recv(job.label_holder, PlaceOfColumns)
        after = place.n_columns - place.n_before - n_own
        if after < 0:
            raise ProtocolError(f"{job.label_holder} leaves no room for the columns of {me.name}")
        rules = ColumnRules(job.NAME, job.boosting, {"before": place.n_before, me.name: n_own, "after": after})
    weight = told.weight if len(told.weight) else None
    return Learning(RowDraw(job.boosting, n_rows, watched), weight, rules, told.n_classes, told.n_earlier)


class Trainer:
    """One party's rows and grower.

    `labels` are the true ones where gradients come from them; where they are known with noise only, any public number,
    the middle of their range, and the rest of the gradient is exchanged: for every tree, or once for all.
    """

    signs: Ints | None = None
    was_split: Bools
    on_scores: Callable[[Ints], None] | None = None  # gets, before each tree, what scores give to gradients

    def __init__(
        self,
        job: GradientsJob,
        columns: OwnColumns,
        loss: Loss,
        labels: Floats | float,
        base_scores: Floats,
        quantiser: Quantiser,
        exchange: Exchange | None = None,
        *,
        learning: Learning,
        party: str,
        from_labels: Ints | None = None,
        is_noisy: bool = False,
        is_kept: bool = False,
        sigma: float | None = None,
        scores: Scores | None = None,
    ) -> None:
        """Without `exchange` gradients change from level to level; `sigma`: noise to allow for.

        `is_noisy`: what is exchanged is as it was released, without weights.
        """
        self.base_scores, self._exchange, self._from_labels, self._is_kept = base_scores, exchange, from_labels, is_kept
        self.learning, self._party = learning, party
        weight, self._follows_splits = learning.weight, ColumnRules.follow_splits(job.boosting)
        self._label_weight = weight if is_noisy else None
        self._ones: Ints | None = None
        if job.score == FIRST_ORDER:
            self._ones = np.rint(quantiser.hessian_scale * (np.ones(1) if weight is None else weight)).astype(np.int64)
        self._output = 0
        self.rows = JointRows(
            packed_columns(columns.codes, columns.features, columns.n_threads),
            np.broadcast_to(np.asarray(labels, np.float64), columns.n_rows),
            weight,
            loss,
            base_scores,
            quantiser,
            n_threads=columns.n_threads,
            scores=scores,
        )
        counted_as = loss if self._ones is None else first_order_loss(loss)
        common = (self.rows, job.boosting, counted_as, quantiser, columns.features)
        signs = None if learning.columns is None else learning.columns.signs(party)
        how: dict[str, Any] = {"weighted": weight is not None, "signs": signs}
        self.grower: JointGrower
        if sigma is not None:
            self.grower = NoiseAwareGrower(*common, **how, sigma=sigma)
        else:
            self.grower = JointGrower(*common, **how) if exchange is not None else AfreshGrower(*common, **how)

    @classmethod
    def noisy(
        cls,
        job: NoisedGradientsJob,
        columns: OwnColumns,
        loss: Loss,
        noise: LabelNoise,
        exchange: Exchange,
        standing: Standing | None,
        *,
        learning: Learning,
        party: str,
        start: tuple[Floats, Scores] | None = None,
    ) -> Self:
        """Where all of it, the first scores too, follows from what is exchanged: with per="run" the first time.

        `start`: base scores and scores of an earlier model.
        """
        first: Ints | None
        scores = None if start is None else start[1]
        if standing is None or standing.base_scores is None:
            middle = np.zeros((loss.n_outputs, columns.n_rows), np.int64)  # scores in the middle give nothing
            first = exchange(middle) if start is None or job.per == RUN else None
            base_scores = noise.start(job, loss, first) if start is None and first is not None else (start or ())[0]
        else:
            first, base_scores, scores = standing.from_labels, standing.base_scores, standing.scores
        how = (noise.centre, base_scores, noise.quantiser(job, loss), exchange)
        allows = job.allows_for_noise and learning.weight is None
        more: dict[str, Any] = {"is_kept": job.per == RUN, "sigma": noise.sigma_of_gradient if allows else None}
        return cls(
            *(job, columns, loss, *how),
            **more,
            learning=learning,
            party=party,
            from_labels=first,
            is_noisy=True,
            scores=scores,
        )

    @property
    def standing(self) -> dict[str, Any]:
        """After a tree: fields of `Standing`."""
        return {"scores": self.rows.scores, "base_scores": self.base_scores, "from_labels": self._from_labels}

    def begin_tree(self) -> None:
        """All rows stand at the root of a new tree, with its gradients; those of an iteration are from its start."""
        output, self._output = self._output, (self._output + 1) % self.rows.loss.n_outputs
        if self._exchange is not None and output == 0:
            self.rows.gradients()
            from_scores: Ints = self.rows.gradients_packed >> 32
            if self.on_scores is not None:
                self.on_scores(from_scores.reshape(-1))
            from_labels = self._exchange(from_scores) if self._from_labels is None else self._from_labels
            self._from_labels = from_labels if self._is_kept else None
            if self._label_weight is not None:
                from_labels = np.rint(from_labels * self._label_weight).astype(np.int64)
            self.use(from_scores + from_labels)
        self.rows.start_tree(output)
        self.grower.begin()

    def best(self) -> LevelSplits:
        """The best splits of a level among its own columns; a feature holder's side."""
        rules = self.learning.columns
        if rules is None:
            return self.grower.best()
        rules.begin_level(self.grower.n_active)
        return self.grower.best(rules.allowed(self._party))

    def use(self, gradients: Ints, hessians: Ints | None = None) -> None:
        """Grow by these gradients from now on; hessians are those of the scores unless given."""
        packed = self.rows.gradients_packed
        hessians = hessians if self._ones is None else self._ones
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
        self.signs, self.was_split = None, splitting  # of the level
        if self._follows_splits:
            self.signs = self._signs_of_splits(me, label_holder, splits, mine, splitting)
        keeps_scores = self._exchange is not None  # and so needs the sides of all rows, also below the last split
        if others.any() and (keeps_scores or not grower.is_last(int(splitting.sum()))):
            partition = me.recv(label_holder, words.Partition, n_bytes=bytes_for(rows.n_rows))
            in_others = partial(rows.count_sides, nodes=others)
            rows.sides[:] |= new_sides(label_holder, partition, rows.n_rows, in_others, known=rows.sides)
        splits.feature[:] = -1
        mark_foreign_splits(splits, splitting, rows.spare_feature, self.signs)
        splits.gain[:] = np.inf  # the label holder has compared gains already, with the others' too
        return grower.divide(splits)

    def _signs_of_splits(
        self, me: Party, label_holder: str, splits: LevelSplits, mine: Bools, splitting: Bools
    ) -> Ints:
        """Those of the columns by which nodes split: it tells its own, and is told all."""
        rules = self.learning.columns
        if rules is None:
            raise ProtocolError("columns have constraints, but nobody knows which are whose")
        own = rules.first(me.name) + splits.feature[mine]
        if mine.any():
            me.send(label_holder, SplitColumns(own.astype(np.int32)))
        ends = {"first": -1, "last": rules.n_all - 1}
        told = me.recv(label_holder, SplitColumns, n_nodes=len(mine), **ends).columns.astype(np.int64)
        if not np.array_equal(told >= 0, splitting) or not np.array_equal(told[mine], own):
            raise ProtocolError(f"{label_holder} sent columns that are not those of the nodes that split")
        return rules.split(told)


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

    def best(self, allowed: Bools | None = None) -> LevelSplits:
        """The best split of every node of the newest level, from the present gradients."""
        sums, _ = self.joint.sums_of_sides(np.ones(self._n_nodes, np.bool_))
        unbounded = np.full(self._n_nodes, np.inf)
        nodes = Children(sums.sum(axis=1), -unbounded, unbounded)
        return self.evaluate(nodes, None if allowed is None else with_spare(allowed))

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
