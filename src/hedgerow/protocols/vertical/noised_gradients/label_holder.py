"""The label holder: it alone has labels, adds the noise, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

from dataclasses import replace

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
from hedgerow.protocols.vertical.common.joint_forest import ForestState, JointForest
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, TREE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.noise import (
    LabelNoise,
    LevelNoise,
    exact_start,
    plain_quantiser,
    spent,
)
from hedgerow.protocols.vertical.noised_gradients.training import Trainer
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: NoisedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    as_they_are = [None] * len(data.table.columns)  # columns are not protected
    data, _ = fitted(me, job, data, as_they_are, classes=job.classes, on_bad_rows=job.on_bad_rows)
    labels, loss, _ = labels_and_loss(me.name, job, data)
    columns = OwnColumns(me.name, job, data)
    begin_as_label_holder(me, job, data)
    n_trees, state = me.go_on(ForestState, job)
    if me.checkpoints is not None and job.has_noise and job.per != RUN:
        _check_nothing_is_drawn_again(me, n_trees, max(me.most_kept, *me.checkpoints.trees, 0))
    events: list[Event] = []
    if job.has_noise and job.per != MESSAGE:
        trainer = _noisy_trainer(me, job, columns, loss, labels, events, state)
    else:
        trainer = _exact_trainer(me, job, columns, loss, labels, state)
    forest = _Forest(me, job, trainer, loss, events)
    if state is not None:
        forest.go_on(state)
    forest.grow()
    meta = {
        "privacy": spent(job, events) if job.has_noise else None,
        "stamp": stamp(job),
        "rounds": {"setup": 1, "training": forest.rounds},
    }
    return forest.foreign.part(job, columns.features, forest.trees, loss, [trainer.base_score], data.classes, meta)


def stamp(job: NoisedGradientsJob) -> str | None:
    """What must be written on everything that comes out of the run."""
    usual = "PER MESSAGE" if job.per == MESSAGE else None
    return stamp_of(usual if job.has_noise else "NOT PRIVATE", job.on_bad_rows)


def _check_nothing_is_drawn_again(me: Party, n_trees: int, most_kept: int) -> None:
    """InvalidInput where somebody has lost so much that noise would be drawn anew for trees that had theirs."""
    if most_kept > n_trees + 1:
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
) -> Trainer:
    """per="run" and per="tree": its own columns and the leaves follow from what everybody gets."""
    noise = LabelNoise.plan(job, loss, columns.n_rows)
    planned = spent(job, [Repeated(noise.event, job.releases)])
    if not planned["epsilon"] <= job.budget[0]:
        raise ProtocolError(f"the noise costs epsilon {planned['epsilon']}, more than {job.epsilon}")
    exact = noise.from_labels(labels)

    if state is not None:
        events += [noise.event] * (len(state.trees.ends) if job.per == TREE else 1)

    def release(from_scores: Ints) -> Ints:
        """What was drawn for this tree before goes out as it was; what is drawn now is kept before it goes out."""
        before, event = me.kept(len(events), ForestState) or ForestState(), noise.event
        released = before.drawn
        if released is None:
            released, event = noise.release(exact, me.rng)
            me.keep(len(events), replace(before, drawn=released))
        events.append(event)
        message = messages.NoisyGradients((from_scores + released).astype(np.int32))
        for party in job.feature_holders:
            me.send(party, message, event=event)
        return released

    return Trainer.noisy(job, columns, loss, noise, release, state)


def _exact_trainer(
    me: Party, job: NoisedGradientsJob, columns: OwnColumns, loss: Loss, labels: Floats, state: ForestState | None
) -> Trainer:
    """epsilon=inf and per="message": its own columns and the leaves are as in the pooled engine."""
    base_score, nothing = exact_start(job, loss, labels), np.zeros(1, np.int64)
    if not job.has_noise:
        me.send_all(job.feature_holders, messages.StartWithoutNoise(base_score, *loss.label_range))

    def tell(gradients: Ints) -> Ints:
        if job.per != MESSAGE:
            me.send_all(job.feature_holders, messages.NoisyGradients(gradients.astype(np.int32)))
        return nothing

    quantiser = plain_quantiser(job, loss, columns.n_rows)
    return Trainer(job, columns, loss, labels, base_score, quantiser, tell, standing=state)


class _Forest(JointForest):
    """Trees by gradients that everybody has."""

    WORDS = messages

    def __init__(self, me: Party, job: NoisedGradientsJob, trainer: Trainer, loss: Loss, events: list[Event]) -> None:
        tells_leaves = job.per != MESSAGE
        super().__init__(me, job, trainer.rows, trainer.grower, trainer.begin_tree, tells_leaves=tells_leaves)
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
        return self.grower.best()

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        return self.me.recv(party, messages.BestGains, n_nodes=n_nodes).gains
