"""A feature holder: columns but no labels. It ends with its own questions, not with trees or leaf values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Ints
from hedgerow.engine.losses import Loss
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.vertical.common.agreement import OwnColumns, begin_as_feature_holder, check_table
from hedgerow.protocols.vertical.common.joint_forest import Asked, told_gains
from hedgerow.protocols.vertical.common.parts import OwnerPart
from hedgerow.protocols.vertical.common.states import OwnerState
from hedgerow.protocols.vertical.common.watching import hear
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, TREE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import stamp
from hedgerow.protocols.vertical.noised_gradients.messages import MOST_UNITS
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser, spent
from hedgerow.protocols.vertical.noised_gradients.training import Learning, Trainer, hear_learning
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def feature_holder(
    me: Party, job: NoisedGradientsJob, data: PartyData | None, on_scores: Callable[[Ints], None] | None = None
) -> OwnerPart:
    """A feature holder, from its table to its part of the model.

    `on_scores` gets, before each tree, what the scores add to the gradients of all rows, in units: no secret of anybody
    else's, and what an attack on labels begins with.
    """
    data = check_table(me.name, data)
    columns = OwnColumns(me.name, job, data)
    begin_as_feature_holder(me, job, data)
    learning = hear_learning(me, job, columns)
    n_trees, state = me.go_on(OwnerState, job)
    told = _Told(me, job, columns, n_trees, state, learning)
    trainer = told.trainer
    trainer.on_scores = on_scores
    asked, n_outputs, n_looks = Asked(state), trainer.rows.loss.n_outputs, 0
    stops_early = job.boosting.early_stopping_rounds is not None
    for done in range(n_trees, job.boosting.n_iterations * n_outputs + stops_early):
        if stops_early and done and done % n_outputs == 0:
            n_looks = done // n_outputs
            if n_kept := hear(me, job):
                asked.keep_first(n_kept * n_outputs)
                break
        learning.begin_tree(trainer.rows, done, n_outputs)
        trainer.begin_tree()
        while _grow_level(me, job, told, asked, done):
            pass
        if job.per != MESSAGE:  # else leaf values are the label holder's alone
            trainer.grower.finish()
        asked.end_tree()
        if me.checkpoints is not None and (done + 1) % n_outputs == 0:
            me.keep(done + 1, asked.state(released={MESSAGE: len(told.events)}, **trainer.standing))
    meta = {"privacy": spent(job, told.events, n_looks) if job.has_noise else None, "stamp": stamp(job)}
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, columns.features, asked.questions(), meta)


def _grow_level(me: Party, job: NoisedGradientsJob, told: _Told, asked: Asked, n_trees: int) -> bool:
    told.begin_level(n_trees)
    to, splits = job.label_holder, told.trainer.best()
    me.send(to, messages.BestGains(told_gains(splits)))
    return told.trainer.settle_level(me, to, messages, splits, asked)


class _Told:
    """What the label holder tells about gradients: for every tree, once for all, or with per="message" every level."""

    def __init__(
        self,
        me: Party,
        job: NoisedGradientsJob,
        columns: OwnColumns,
        n_trees: int,
        state: OwnerState | None,
        learning: Learning,
    ) -> None:
        self._me, self._job, self._n_rows = me, job, columns.n_rows
        self.events: list[Event] = []
        n_classes = learning.n_classes if job.task == "classification" else None
        self._n_outputs = 1 if n_classes in (None, 2) else learning.n_classes
        start = None if job.has_noise else self._start()
        loss = self._loss(n_classes, None if start is None else (start.label_low, start.label_high))
        common: dict[str, Any] = {"learning": learning, "party": me.name}
        scores = None if state is None else state.scores
        self._every_level = LevelNoise.plan(job, loss, self._n_rows) if job.per == MESSAGE else None
        if self._every_level is not None:
            how = (np.zeros(1), self._every_level.quantiser)
            self.trainer = Trainer(job, columns, loss, 0.0, *how, **common, scores=scores)
            if job.has_noise and (last := me.kept(None, OwnerState)) is not None:
                self.events += [self._every_level.event] * last.released.get(MESSAGE, 0)
        elif start is not None:
            quantiser = plain_quantiser(job, loss, self._n_rows, learning.weights)
            exact = (start.base_scores, quantiser, self._from_labels)
            self.trainer = Trainer(job, columns, loss, 0.0, *exact, **common, scores=scores)
        else:
            self._noise = LabelNoise.plan(job, loss, self._n_rows, learning.weights)
            n_released = n_trees // self._n_outputs if job.per == TREE else min(n_trees, 1)
            self.events += [self._noise.event] * n_released
            self.trainer = Trainer.noisy(job, columns, loss, self._noise, self._from_labels, state, **common)

    def _start(self) -> messages.StartWithoutNoise:
        """What all begin with."""
        start = self._me.recv(self._job.label_holder, messages.StartWithoutNoise, n_outputs=self._n_outputs)
        if start.label_low > start.label_high:
            raise ProtocolError(f"{self._job.label_holder} sent a range of labels that ends before it begins")
        return start

    def _loss(self, n_classes: int | None, label_range: tuple[float, float] | None) -> Loss:
        """As the label holder has it: of classes, or a regression over this range, public unless there is no noise."""
        given = self._job.boosting.label_range or label_range or (0.0, 1.0)
        params = self._job.for_labels(n_classes, given)
        return params.loss_for(np.array(given))

    def _from_labels(self, from_scores: Ints) -> Ints:
        """What is left of the gradients of all rows, as they were sent."""
        n_gradients = self._n_outputs * self._n_rows
        message = self._me.recv(self._job.label_holder, messages.NoisyGradients, n_gradients=n_gradients)
        if self._job.has_noise:
            self.events.append(self._noise.event)
        return np.array([self._checked(each) for each in message.gradients.reshape(from_scores.shape)]) - from_scores

    def begin_level(self, n_trees: int) -> None:
        """The gradients of a level, where it has its own. They count also if the tree is broken off."""
        noise, job = self._every_level, self._job
        if noise is None:
            return
        n_hessians = self._n_rows if noise.sends_hessians else 0
        told = self._me.recv(job.label_holder, messages.NoisyLevel, n_rows=self._n_rows, n_hessians=n_hessians)
        ones = np.array([round(noise.quantiser.hessian_scale)])
        self.trainer.use(self._checked(told.gradients), self._checked(told.hessians) if n_hessians else ones)
        if job.has_noise:
            self.events.append(noise.event)
        if self._me.checkpoints is not None:
            before = self._me.kept(n_trees, OwnerState) or OwnerState()
            self._me.keep(n_trees, replace(before, released={MESSAGE: len(self.events)}))

    def _checked(self, values: np.ndarray) -> Ints:
        """As they are summed up; ProtocolError if the sum over some rows would not fit its field."""
        units = values.astype(np.int64)
        total, size = int(units.sum()), int(np.abs(units).sum())
        if size + abs(total) > 2 * MOST_UNITS:  # the larger one of all that is above 0, and all below
            raise ProtocolError(f"{self._job.label_holder} sent units whose sums can exceed {MOST_UNITS}")
        return units
