"""The label holder: it alone has labels, adds the noise, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import Loss
from hedgerow.engine.splitting import LevelSplits
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event, Repeated
from hedgerow.protocols.bad_rows import stamp_of
from hedgerow.protocols.vertical.common.joint_forest import JointForest
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.tables import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    fitted,
    labels_and_loss,
)
from hedgerow.protocols.vertical.noised_gradients import messages
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, NoisedGradientsJob
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
    labels, loss = labels_and_loss(me.name, job, data)
    columns = OwnColumns(me.name, job, data)
    begin_as_label_holder(me, job, data)
    kind = _EveryLevel if job.per == MESSAGE else _EveryTree if job.has_noise else _Source
    source = kind(me, job, columns, loss, labels)
    forest = _Forest(me, job, source)
    forest.grow()
    meta = {
        "privacy": spent(job, source.events) if job.has_noise else None,
        "stamp": stamp(job),
        "rounds": {"setup": 1, "training": forest.rounds},
    }
    return forest.part(job, data, columns.features, loss, source.base_score, meta)


def stamp(job: NoisedGradientsJob) -> str | None:
    """What must be written on everything that comes out of the run."""
    usual = "PER MESSAGE" if job.per == MESSAGE else None
    return stamp_of(usual if job.has_noise else "NOT PRIVATE", job.on_bad_rows)


# --- where gradients come from ---------------------------------------------------------------------------------------


class _Source:
    """Gives every tree its gradients, and tells the feature holders. This one, for epsilon = inf, adds no noise."""

    trainer: Trainer
    base_score: float

    def __init__(self, me: Party, job: NoisedGradientsJob, columns: OwnColumns, loss: Loss, labels: Floats) -> None:
        self.me, self.job = me, job
        self.events: list[Event] = []
        self.prepare(columns, loss, labels)

    def prepare(self, columns: OwnColumns, loss: Loss, labels: Floats) -> None:
        """Make the trainer: as the pooled engine has it, on its own columns."""
        self.base_score = exact_start(self.job, loss, labels)
        quantiser = plain_quantiser(self.job, loss, columns.n_rows)
        self.trainer = Trainer(self.job, columns, loss, labels, self.base_score, quantiser)
        if not self.job.has_noise:
            self.me.send_all(self.job.feature_holders, messages.StartWithoutNoise(self.base_score, *loss.label_range))

    def begin_tree(self) -> None:
        """All rows at the root of the next tree, with its gradients."""
        self.trainer.use(self.released(self.trainer.gradients()))
        self.trainer.begin_tree()

    def released(self, gradients: Ints) -> Ints:
        """The gradients that trees grow by, from those that scores and the trainer's labels give."""
        self.me.send_all(self.job.feature_holders, messages.NoisyGradients(gradients.astype(np.int32)))
        return gradients

    def begin_level(self) -> None:
        """What a level needs beside."""


class _EveryTree(_Source):
    """per="tree", and per="run", where the first release serves all trees."""

    def prepare(self, columns: OwnColumns, loss: Loss, labels: Floats) -> None:
        noise = self._noise = LabelNoise.plan(self.job, loss, columns.n_rows)
        planned = spent(self.job, [Repeated(noise.event, self.job.releases)])
        if not planned["epsilon"] <= self.job.budget[0]:
            raise ProtocolError(f"the noise costs epsilon {planned['epsilon']}, more than {self.job.epsilon}")
        self._exact = noise.from_labels(labels)
        self._from_labels: Ints | None = self._release(np.zeros(columns.n_rows, np.int64))
        self.base_score = noise.start(self.job, loss, self._from_labels)
        quantiser, sigma = noise.quantiser(self.job, loss), noise.sigma_of_gradient
        self.trainer = Trainer(self.job, columns, loss, noise.centre, self.base_score, quantiser, sigma=sigma)

    def _release(self, from_scores: Ints) -> Ints:
        """One release, on top of what scores give, to all feature holders alike."""
        released, event = self._noise.release(self._exact, self.me.rng)
        self.events.append(event)
        message = messages.NoisyGradients((from_scores + released).astype(np.int32))
        for party in self.job.feature_holders:
            self.me.send(party, message, event=event.to_dict())
        return released

    def released(self, gradients: Ints) -> Ints:
        from_labels = self._release(gradients) if self._from_labels is None else self._from_labels
        self._from_labels = from_labels if self.job.per == RUN else None
        return gradients + from_labels


class _EveryLevel(_Source):
    """per="message": its own columns and the leaves are exact; feature holders get fresh noise at every level."""

    def prepare(self, columns: OwnColumns, loss: Loss, labels: Floats) -> None:
        self._noise = LevelNoise.plan(self.job, loss, columns.n_rows)
        super().prepare(columns, loss, labels)

    def released(self, gradients: Ints) -> Ints:
        return gradients

    def begin_level(self) -> None:
        for party in self.job.feature_holders:
            gradients, hessians, event = self._noise.release(self.trainer.packed(), self.me.rng)
            self.events.append(event)
            message = messages.NoisyLevel(gradients.astype(np.int32), hessians.astype(np.int32))
            self.me.send(party, message, event=event.to_dict() if self.job.has_noise else None)


# --- trees -----------------------------------------------------------------------------------------------------------


class _Forest(JointForest):
    """Trees by gradients that everybody has."""

    WINNERS, WHICH_WAY, PARTITION = messages.Winners, messages.WhichWay, messages.Partition

    def __init__(self, me: Party, job: NoisedGradientsJob, source: _Source) -> None:
        trainer = source.trainer
        super().__init__(me, job, trainer.rows, trainer.grower, tells_leaves=job.per != MESSAGE)
        self._source = source

    def begin_tree(self) -> None:
        self._source.begin_tree()

    def own_best(self) -> LevelSplits:
        self._source.begin_level()
        return self.grower.best()

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        return self.me.recv(party, messages.BestGains, n_nodes=n_nodes).gains
