"""The label holder: it alone has labels, adds the noise, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.privacy.events import Event, Repeated
from hedgerow.protocols.bad_rows import stamp_of
from hedgerow.protocols.vertical.common.agreement import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    fitted,
    labels_and_loss,
)
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import Course, JointForest
from hedgerow.protocols.vertical.common.messages import MOST_CLASSES
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.states import ForestState
from hedgerow.protocols.vertical.common.watching import Watch, exactly, watched_rows
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, TREE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.looks import Looks
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser, spent
from hedgerow.protocols.vertical.noised_gradients.training import Learning, Trainer, tell_learning
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: NoisedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    as_they_are = [None] * len(data.table.columns)  # columns are not protected
    data, _ = fitted(me, job, data, as_they_are, classes=job.classes, on_bad_rows=job.on_bad_rows)
    watched = watched_rows(me.name, job, data)
    draw = RowDraw(job.boosting, data.table.n_rows, watched)
    labels, loss, weight = labels_and_loss(me.name, job, data, most_classes=MOST_CLASSES, learned=draw.learned)
    if job.per == MESSAGE and (loss.n_outputs > 1 or weight is not None):
        raise InvalidInput(f"{me.name}: per='message' is as published, for two classes or numbers, and without weights")
    if job.noise_aware and weight is not None:
        raise InvalidInput(f"{me.name}: noise_aware=True is for rows of equal weight, whose noise is alike")
    columns = OwnColumns(me.name, job, data, learned=draw.learned)
    n_columns = begin_as_label_holder(me, job, data)
    rules = ColumnRules(job.NAME, job.boosting, n_columns) if ColumnRules.matter(job.boosting) else None
    learning = Learning(draw, weight, rules, max(loss.n_outputs, 2))
    tell_learning(me, job, learning, watched)
    n_trees, state = me.go_on(ForestState, job)
    if me.checkpoints is not None and job.has_noise and job.per != RUN:
        _check_nothing_is_drawn_again(me, n_trees, max(me.most_kept, *me.checkpoints.trees, 0), loss.n_outputs)
    events: list[Event] = []
    if job.has_noise and job.per != MESSAGE:
        trainer = _noisy_trainer(me, job, columns, loss, labels, events, state, learning)
    else:
        trainer = _exact_trainer(me, job, columns, loss, labels, state, learning)
    watch = None
    if watched is not None:
        look = partial(Looks.plan(job).look, random=me.rng) if job.has_noise else exactly
        watch = Watch(job, loss, data, watched, trainer.base_scores, me, n_trees // loss.n_outputs, look)
    forest = _Forest(me, job, trainer, loss, events, Course(draw, rules, watch))
    if state is not None:
        forest.go_on(state)
    forest.grow()
    n_looks = 0 if watch is None else len(watch.curve)
    meta = {
        "privacy": spent(job, events, n_looks) if job.has_noise else None,
        "stamp": stamp(job),
        "rounds": {"setup": 1, "training": forest.rounds},
        **({} if weight is None else {"weighted": True}),
        **forest.record,
    }
    return forest.foreign.part(job, columns.features, forest.trees, loss, trainer.base_scores, data.classes, meta)


def stamp(job: NoisedGradientsJob) -> str | None:
    """What must be written on everything that comes out of the run."""
    usual = "PER MESSAGE" if job.per == MESSAGE else None
    return stamp_of(usual if job.has_noise else "NOT PRIVATE", job.on_bad_rows)


def _check_nothing_is_drawn_again(me: Party, n_trees: int, most_kept: int, n_outputs: int) -> None:
    """InvalidInput where somebody has lost so much that noise would be drawn anew for trees that had theirs."""
    if most_kept > n_trees + n_outputs:
        raise InvalidInput(
            f"{me.name}: a party has kept {n_trees} trees of {most_kept}; to grow the others again would release "
            "labels with noise once more, so this run cannot go on"
        )


def _noisy_trainer(
    me: Party,
    job: NoisedGradientsJob,
    columns: OwnColumns,
    loss: Loss,
    labels: Floats,
    events: list[Event],
    state: ForestState | None,
    learning: Learning,
) -> Trainer:
    """per="run" and per="tree": its own columns and the leaves follow from what everybody gets."""
    noise = LabelNoise.plan(job, loss, columns.n_rows, learning.weights)
    planned = spent(job, [Repeated(noise.event, job.releases)])
    if not planned["epsilon"] <= job.budget[0]:
        raise ProtocolError(f"the noise costs epsilon {planned['epsilon']}, more than {job.epsilon}")
    exact = noise.from_labels(labels)

    if state is not None:
        events += [noise.event] * (len(state.trees.ends) // loss.n_outputs if job.per == TREE else 1)

    def release(from_scores: Ints) -> Ints:
        """What was drawn for this tree before goes out as it was; what is drawn now is kept before it goes out."""
        number, event = len(events) * loss.n_outputs, noise.event
        before = me.kept(number, ForestState) or ForestState()
        released = before.drawn
        if released is None:
            released, event = noise.release(exact, me.rng)
            me.keep(number, replace(before, drawn=released))
        events.append(event)
        message = messages.NoisyGradients((from_scores + released).astype(np.int32).reshape(-1))
        for party in job.feature_holders:
            me.send(party, message, event=event)
        return released

    return Trainer.noisy(job, columns, loss, noise, release, state, learning=learning, party=me.name)


def _exact_trainer(
    me: Party,
    job: NoisedGradientsJob,
    columns: OwnColumns,
    loss: Loss,
    labels: Floats,
    state: ForestState | None,
    learning: Learning,
) -> Trainer:
    """epsilon=inf and per="message": its own columns and the leaves are as in the pooled engine."""
    learned = learning.draw.learned
    weight = None if learning.weight is None else learning.weight[learned]
    base_scores, nothing = job.boosting.base_scores(loss, labels[learned], weight), np.zeros(1, np.int64)
    if not job.has_noise:
        me.send_all(job.feature_holders, messages.StartWithoutNoise(base_scores, *loss.label_range))

    def tell(gradients: Ints) -> Ints:
        if job.per != MESSAGE:
            me.send_all(job.feature_holders, messages.NoisyGradients(gradients.astype(np.int32).reshape(-1)))
        return nothing

    quantiser = plain_quantiser(job, loss, columns.n_rows, learning.weights)
    scores = None if state is None else state.scores
    how: dict[str, Any] = {"learning": learning, "party": me.name, "scores": scores}
    return Trainer(job, columns, loss, labels, base_scores, quantiser, tell, **how)


class _Forest(JointForest):
    """Trees by gradients that everybody has."""

    WORDS = messages

    def __init__(
        self, me: Party, job: NoisedGradientsJob, trainer: Trainer, loss: Loss, events: list[Event], course: Course
    ) -> None:
        how: dict[str, Any] = {"tells_leaves": job.per != MESSAGE, "course": course}
        super().__init__(me, job, trainer.rows, trainer.grower, trainer.begin_tree, **how)
        self._job, self._events, self._trainer = job, events, trainer
        self._noise = LevelNoise.plan(job, loss, trainer.rows.n_rows) if job.per == MESSAGE else None
        if self._noise is not None and job.has_noise and (last := me.kept(None, ForestState)) is not None:
            events += [self._noise.event] * last.released.get(MESSAGE, 0)

    def state(self) -> ForestState:
        """How the rows stand too."""
        return replace(super().state(), released={MESSAGE: len(self._events)}, **self._trainer.standing)

    def own_best(self) -> LevelSplits:
        """With per="message" feature holders first get fresh noise, each its own."""
        if self._noise is not None:
            self.keep_released({MESSAGE: len(self._events) + len(self._job.feature_holders)})
            for party in self._job.feature_holders:
                gradients, hessians, event = self._noise.release(self.rows.gradients_packed[0], self.me.rng)
                self._events.append(event)
                message = messages.NoisyLevel(gradients.astype(np.int32), hessians.astype(np.int32))
                self.me.send(party, message, event=event if self._job.has_noise else None)
        return self.grower.best(self.own_allowed)

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        return self.me.recv(party, messages.BestGains, n_nodes=n_nodes).gains
