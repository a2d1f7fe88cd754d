"""A feature holder: columns but no labels. It ends with its own questions, not with trees or leaf values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hedgerow.engine.dtypes import Ints
from hedgerow.engine.losses import Loss
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.vertical.common.joint_forest import Asked, new_sides, receive_roles, told_gains
from hedgerow.protocols.vertical.common.joint_growth import mark_foreign_splits
from hedgerow.protocols.vertical.common.messages import LEAF, OTHERS, YOURS, bytes_for
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.tables import OwnColumns, begin_as_feature_holder, check_table
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import stamp
from hedgerow.protocols.vertical.noised_gradients.messages import MOST_UNITS
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser, spent
from hedgerow.protocols.vertical.noised_gradients.training import Trainer
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

OnScores = Callable[[Ints], None]


def feature_holder(
    me: Party, job: NoisedGradientsJob, data: PartyData | None, on_scores: OnScores | None = None
) -> OwnerPart:
    """A feature holder, from its table to its part of the model.

    `on_scores` gets, before each tree, what the scores add to the gradients of all rows, in units: no secret of anybody
    else's, and what an attack on labels begins with.
    """
    data = check_table(me.name, data)
    columns = OwnColumns(me.name, job, data)
    begin_as_feature_holder(me, job, data)
    kind = _EveryLevel if job.per == MESSAGE else _EveryTree if job.has_noise else _Sink
    sink = kind(me, job, columns, on_scores)
    asked = Asked()
    for _ in range(job.boosting.n_iterations):
        sink.begin_tree()
        while _grow_level(me, job, sink, asked):
            pass
        sink.end_tree()
    meta = {"privacy": spent(job, sink.events) if job.has_noise else None, "stamp": stamp(job)}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, asked.questions(), meta)


def _grow_level(me: Party, job: NoisedGradientsJob, sink: _Sink, asked: Asked) -> bool:
    sink.begin_level()
    grower, rows, to = sink.trainer.grower, sink.trainer.rows, job.label_holder
    splits = grower.best()
    me.send(to, messages.BestGains(told_gains(splits)))
    roles = receive_roles(me, to, messages.Winners, splits, room=grower.room, counts=rows.node_counts)
    mine, splitting = roles == YOURS, roles != LEAF
    rows.sides[:] = 0
    if mine.any():
        rows.write_sides(np.where(mine, splits.feature, -1), splits.goes_left)
        me.send(to, messages.WhichWay(asked.handles(splits, np.flatnonzero(mine)), np.packbits(rows.sides)))
    unneeded = job.per == MESSAGE and grower.is_last(int(splitting.sum()))
    others = roles == OTHERS
    if others.any() and not unneeded:
        partition = me.recv(to, messages.Partition, n_bytes=bytes_for(rows.n_rows))
        in_others = partial(rows.count_sides, nodes=others)
        rows.sides[:] |= new_sides(to, partition, rows.n_rows, in_others, known=rows.sides)
    splits.feature[:] = -1
    mark_foreign_splits(splits, splitting, rows.spare_feature)
    splits.gain[:] = np.inf  # the label holder has compared gains already, with the others' too
    return grower.divide(splits)


# --- where gradients come from ---------------------------------------------------------------------------------------


class _Sink:
    """Takes what the label holder sends about gradients. This one, for epsilon = inf: exact ones for every tree."""

    trainer: Trainer

    def __init__(self, me: Party, job: NoisedGradientsJob, columns: OwnColumns, on_scores: OnScores | None) -> None:
        self.me, self.job, self.on_scores = me, job, on_scores
        self.events: list[Event] = []
        self.n_rows = columns.n_rows
        self.prepare(columns)

    def prepare(self, columns: OwnColumns) -> None:
        """Make the trainer."""
        start = self.start()
        loss = self.loss((start.label_low, start.label_high))
        quantiser = plain_quantiser(self.job, loss, self.n_rows)
        self.trainer = Trainer(self.job, columns, loss, 0.0, start.base_score, quantiser)

    def begin_tree(self) -> None:
        """All rows at the root of the next tree, with its gradients."""
        self.use_gradients()
        self.trainer.begin_tree()

    def use_gradients(self) -> None:
        """Those of the next tree."""
        gradients = self.gradients()
        self.trainer.gradients()  # for the hessians
        self.trainer.use(gradients)

    def begin_level(self) -> None:
        """What a level needs beside."""

    def end_tree(self) -> None:
        """Add the tree to the scores."""
        self.trainer.grower.finish()

    def loss(self, label_range: tuple[float, float] | None = None) -> Loss:
        """As the label holder has it: two classes, or a regression over this range, public unless there is no noise."""
        given = self.job.boosting.label_range or label_range or (0.0, 1.0)
        params = self.job.for_labels(2 if self.job.task == "classification" else None, given)
        return params.loss_for(np.array(given))

    def gradients(self) -> Ints:
        """Those of all rows, as they were sent."""
        return self.checked(self.me.recv(self.job.label_holder, messages.NoisyGradients, n_rows=self.n_rows).gradients)

    def checked(self, values: np.ndarray) -> Ints:
        """As they are summed up; ProtocolError if the sum over some rows would not fit its field."""
        units = values.astype(np.int64)
        total, size = int(units.sum()), int(np.abs(units).sum())
        if size + abs(total) > 2 * MOST_UNITS:  # the larger one of all that is above 0, and all below
            raise ProtocolError(f"{self.job.label_holder} sent units whose sums can exceed {MOST_UNITS}")
        return units

    def start(self) -> messages.StartWithoutNoise:
        """What all begin with."""
        start = self.me.recv(self.job.label_holder, messages.StartWithoutNoise)
        if start.label_low > start.label_high:
            raise ProtocolError(f"{self.job.label_holder} sent a range of labels that ends before it begins")
        return start


class _EveryTree(_Sink):
    """per="tree", and per="run", where the first release serves all trees."""

    def prepare(self, columns: OwnColumns) -> None:
        loss = self.loss()
        noise = self._noise = LabelNoise.plan(self.job, loss, self.n_rows)
        self._from_labels: Ints | None = self.gradients()  # of scores in the middle, which give nothing themselves
        self.events.append(noise.event)
        base_score = noise.start(self.job, loss, self._from_labels)
        quantiser, sigma = noise.quantiser(self.job, loss), noise.sigma_of_gradient
        self.trainer = Trainer(self.job, columns, loss, noise.centre, base_score, quantiser, sigma=sigma)

    def use_gradients(self) -> None:
        from_scores = self.trainer.gradients()
        if self.on_scores is not None:
            self.on_scores(from_scores)
        if self._from_labels is not None:
            gradients = from_scores + self._from_labels
        else:
            gradients = self.gradients()
            self.events.append(self._noise.event)
        if self.job.per != RUN:
            self._from_labels = None
        self.trainer.use(gradients)


class _EveryLevel(_Sink):
    """per="message": fresh gradients at every level; scores stay unknown here."""

    def prepare(self, columns: OwnColumns) -> None:
        observed = None
        if not self.job.has_noise:
            start = self.start()
            observed = (start.label_low, start.label_high)
        loss = self.loss(observed)
        self._noise = LevelNoise.plan(self.job, loss, self.n_rows)
        quantiser = self._noise.quantiser
        self._ones = np.array([round(quantiser.hessian_scale)])
        self.trainer = Trainer(self.job, columns, loss, 0.0, 0.0, quantiser, afresh=True)

    def use_gradients(self) -> None:
        """They come level by level."""

    def begin_level(self) -> None:
        n_hessians = self.n_rows if self._noise.sends_hessians else 0
        message = self.me.recv(self.job.label_holder, messages.NoisyLevel, n_rows=self.n_rows, n_hessians=n_hessians)
        hessians = self.checked(message.hessians) if self._noise.sends_hessians else self._ones
        self.trainer.use(self.checked(message.gradients), hessians)
        if self.job.has_noise:
            self.events.append(self._noise.event)

    def end_tree(self) -> None:
        """Nothing: leaf values are the label holder's alone."""
