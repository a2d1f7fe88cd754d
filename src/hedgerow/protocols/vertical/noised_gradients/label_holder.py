"""The label holder: it alone has labels, adds the noise, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import Loss
from hedgerow.engine.splitting import LevelSplits
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event, Repeated
from hedgerow.protocols.bad_rows import stamp_of
from hedgerow.protocols.vertical.common.joint_forest import JointForest
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.tables import begin_as_label_holder, check_table, finite_labels, fitted
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import (
    BestGains,
    NoisyGradients,
    NoisyLevel,
    Partition,
    StartWithoutNoise,
    WhichWay,
    Winners,
)
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser, spent
from hedgerow.protocols.vertical.noised_gradients.training import Columns, Trainer
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: NoisedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    as_they_are = [None] * len(data.table.columns)  # columns are not protected
    data, _ = fitted(me, job, data, as_they_are, classes=job.classes, on_bad_rows=job.on_bad_rows)
    labels, loss = _labels(me.name, job, data)
    columns = Columns(me.name, job, data)
    begin_as_label_holder(me, job, data)
    source: _Source
    if job.per == MESSAGE:
        source = _EveryLevel(me, job, columns, loss, labels)
    else:
        source = _EveryTree(me, job, columns, loss, labels) if job.has_noise else _Exact(me, job, columns, loss, labels)
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


def _labels(party: str, job: NoisedGradientsJob, data: PartyData) -> tuple[Floats, Loss]:
    """Labels within their range, and the loss."""
    labels = finite_labels(party, job, data)
    observed = (float(labels.min()), float(labels.max()))
    params = job.for_labels(None if data.classes is None else 2, observed)
    return labels, params.loss_for(labels)


# --- where gradients come from ---------------------------------------------------------------------------------------


class _Source(ABC):
    """Gives every tree its gradients, and tells the feature holders."""

    trainer: Trainer
    base_score: float

    def __init__(self, me: Party, job: NoisedGradientsJob, columns: Columns, loss: Loss, labels: Floats) -> None:
        self.me, self.job = me, job
        self.events: list[Event] = []
        self._prepare(columns, loss, labels)

    @abstractmethod
    def _prepare(self, columns: Columns, loss: Loss, labels: Floats) -> None:
        """Make the trainer."""

    @abstractmethod
    def begin_tree(self) -> None:
        """The gradients of the next tree."""

    def begin_level(self) -> None:  # noqa: B027 - most need nothing more
        """What a level needs beside."""

    def _start_exactly(self, columns: Columns, loss: Loss, labels: Floats) -> None:
        """A trainer as the pooled engine has it, on the own columns."""
        given = self.job.boosting.base_score
        self.base_score = float(loss.base_scores(labels)[0]) if given is None else float(given)
        quantiser = plain_quantiser(self.job, loss, columns.n_rows)
        self.trainer = Trainer(self.job, columns, loss, labels, self.base_score, quantiser)
        if not self.job.has_noise:
            self.me.send_all(self.job.feature_holders, StartWithoutNoise(self.base_score, *loss.label_range))


class _Exact(_Source):
    """epsilon = inf: the engine's own gradients."""

    def _prepare(self, columns: Columns, loss: Loss, labels: Floats) -> None:
        self._start_exactly(columns, loss, labels)

    def begin_tree(self) -> None:
        gradients = self.trainer.gradients()
        self.me.send_all(self.job.feature_holders, NoisyGradients(gradients.astype(np.int32)))
        self.trainer.use(gradients)
        self.trainer.begin_tree()


class _EveryTree(_Source):
    """per="tree", and per="run", where the first release serves all trees."""

    def _prepare(self, columns: Columns, loss: Loss, labels: Floats) -> None:
        self._noise = LabelNoise.plan(self.job, loss, columns.n_rows)
        planned = spent(self.job, [Repeated(self._noise.event, self.job.releases)])
        if not planned["epsilon"] <= self.job.budget[0]:
            raise ProtocolError(f"the noise costs epsilon {planned['epsilon']}, more than {self.job.epsilon}")
        self._exact = self._noise.from_labels(labels)
        self._from_labels: Ints | None = self._release(np.zeros(columns.n_rows, np.int64))
        self.base_score = self._noise.start(self.job, loss, self._from_labels)
        noise = self._noise
        quantiser, sigma = noise.quantiser(self.job, loss), noise.sigma_of_gradient
        self.trainer = Trainer(self.job, columns, loss, noise.centre, self.base_score, quantiser, sigma=sigma)

    def _release(self, from_scores: Ints) -> Ints:
        """One release, on top of what scores give, to all feature holders alike."""
        released, event = self._noise.release(self._exact, self.me.rng)
        self.events.append(event)
        message = NoisyGradients((from_scores + released).astype(np.int32))
        for party in self.job.feature_holders:
            self.me.send(party, message, event=event.to_dict())
        return released

    def begin_tree(self) -> None:
        from_scores = self.trainer.gradients()
        from_labels = self._release(from_scores) if self._from_labels is None else self._from_labels
        if self.job.per != RUN:
            self._from_labels = None
        self.trainer.use(from_scores + from_labels)
        self.trainer.begin_tree()


class _EveryLevel(_Source):
    """per="message": the own columns and the leaves are exact; feature holders get fresh noise at every level."""

    def _prepare(self, columns: Columns, loss: Loss, labels: Floats) -> None:
        self._noise = LevelNoise.plan(self.job, loss, columns.n_rows)
        self._start_exactly(columns, loss, labels)

    def begin_tree(self) -> None:
        self.trainer.use(self.trainer.gradients())
        self.trainer.begin_tree()

    def begin_level(self) -> None:
        for party in self.job.feature_holders:
            gradients, hessians, event = self._noise.release(self.trainer.packed(), self.me.rng)
            self.events.append(event)
            message = NoisyLevel(gradients.astype(np.int32), hessians.astype(np.int32))
            self.me.send(party, message, event=event.to_dict() if self.job.has_noise else None)


# --- trees -----------------------------------------------------------------------------------------------------------


class _Forest(JointForest):
    """Trees by gradients that everybody has."""

    WINNERS, WHICH_WAY, PARTITION = Winners, WhichWay, Partition

    def __init__(self, me: Party, job: NoisedGradientsJob, source: _Source) -> None:
        trainer = source.trainer
        super().__init__(me, job, trainer.rows, trainer.grower, tells_leaves=job.per != MESSAGE)
        self._source = source

    def _begin_tree(self) -> None:
        self._source.begin_tree()

    def _own_best(self) -> LevelSplits:
        self._source.begin_level()
        return self._grower.best()

    def _gains_of(self, party: str, n_nodes: int) -> Floats:
        return self._me.recv(party, BestGains, n_nodes=n_nodes).gains
