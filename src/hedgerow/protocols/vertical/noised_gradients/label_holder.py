"""The label holder: it alone has labels, adds the noise, compares gains, and ends with trees and leaf values."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.events import Event, Repeated
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import begin_as_label_holder, check_table
from hedgerow.protocols.vertical.foreign_splits import ForeignSplits
from hedgerow.protocols.vertical.joint_growth import choose_winners, theirs
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, RUN, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import (
    LEAF,
    OTHERS,
    YOURS,
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
from hedgerow.protocols.vertical.parts import LabelHolderPart, composite_features


def label_holder(me: Party, job: NoisedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels, loss = _labels(me.name, job, data)
    columns = Columns(me.name, job, data)
    begin_as_label_holder(me, job, data)
    source: _Source
    if job.per == MESSAGE:
        source = _EveryLevel(me, job, columns, loss, labels)
    else:
        source = _EveryTree(me, job, columns, loss, labels) if job.has_noise else _Exact(me, job, columns, loss, labels)
    forest = _Forest(me, job, source)
    for done in range(job.boosting.n_iterations):
        me.report(done, job.boosting.n_iterations)
        forest.grow()
    me.report(job.boosting.n_iterations, job.boosting.n_iterations)
    meta = {
        "privacy": spent(job, source.events) if job.has_noise else None,
        "stamp": stamp(job),
        "rounds": {"setup": 1, "training": forest.rounds},
    }
    handles = forest.n_handles
    ensemble = Ensemble(
        composite_features(columns.features, handles),
        loss.name,
        [source.base_score],
        trees=forest.trees(len(columns.features)),
        classes=data.classes,
        meta=meta,
    )
    return LabelHolderPart(me.name, job.NAME, job.run_id, ensemble, handles)


def stamp(job: NoisedGradientsJob) -> str | None:
    """What must be written on everything that comes out of the run."""
    if not job.has_noise:
        return "NOT PRIVATE"
    return "PER MESSAGE" if job.per == MESSAGE else None


def _labels(party: str, job: NoisedGradientsJob, data: PartyData) -> tuple[Floats, Loss]:
    """Labels within their range, and the loss."""
    if data.labels is None:
        raise InvalidInput(f"{party}: the label holder needs labels")
    labels = np.ascontiguousarray(data.labels, np.float64)
    if labels.shape != (data.table.n_rows,):
        raise InvalidInput(f"{party}: {len(labels)} labels for {data.table.n_rows} rows")
    if not np.isfinite(labels).all():
        raise InvalidInput(f"{party}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
    classes = data.classes
    if (classes is None) != (job.task == "regression"):
        raise InvalidInput(f"{party}: the labels are not those of a {job.task}")
    if classes is not None and len(classes) > 2:
        raise InvalidInput(f"{party}: {job.NAME} is for two classes, but the labels have {len(classes)}")
    given = job.boosting.label_range
    observed = (float(labels.min()), float(labels.max()))
    if classes is None and given is not None:
        if not job.has_noise and (observed[0] < given[0] or observed[1] > given[1]):
            raise InvalidInput(f"{party}: some labels lie outside the declared label_range {given}")
        labels = np.clip(labels, *given)
    params = job.for_labels(None if classes is None else 2, observed)
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


class _Forest:
    """Grows trees together with the feature holders, and remembers whose each split is."""

    def __init__(self, me: Party, job: NoisedGradientsJob, source: _Source) -> None:
        self._me, self._job, self._source = me, job, source
        self._place = job.parties.index(me.name)
        self._trees: list[Tree] = []
        self._foreign = ForeignSplits(job.parties, job.label_holder)
        self.rounds = 0

    def grow(self) -> None:
        """One tree."""
        self._source.begin_tree()
        self._foreign.begin_tree()
        while self._grow_level():
            pass
        self._trees.append(self._source.trainer.grower.finish())

    def _grow_level(self) -> bool:
        me, job, grower, rows = self._me, self._job, self._source.trainer.grower, self._source.trainer.rows
        self._source.begin_level()
        splits = grower.best()
        own = np.where(splits.feature >= 0, splits.gain, -1.0)
        gains = np.array([own if party == me.name else self._gains_of(party, len(own)) for party in job.parties])
        winner = choose_winners(gains, grower.room, job.boosting.min_gain)
        for place, party in enumerate(job.parties):
            if party != me.name:
                roles = np.where(winner < 0, LEAF, np.where(winner == place, YOURS, OTHERS)).astype(np.uint8)
                me.send(party, Winners(roles))
        splits.gain[:] = gains.max(axis=0)
        splits.feature[winner != self._place] = -1
        rows.sides[:] = 0
        rows.write_sides(splits.feature, splits.goes_left)
        self._ask_winners(winner)
        theirs(splits, (winner >= 0) & (winner != self._place), rows.spare_feature)
        self._tell_sides(winner)
        self.rounds += 2
        return grower.divide(splits)

    def _gains_of(self, party: str, n_nodes: int) -> Floats:
        gains = self._me.recv(party, BestGains).gains
        if gains.shape != (n_nodes,) or np.isnan(gains).any():
            raise ProtocolError(f"{party} sent gains of shape {gains.shape} for {n_nodes} nodes, or no numbers")
        return gains

    def _ask_winners(self, winner: Ints) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows = self._source.trainer.rows
        handles = np.zeros(len(winner), np.int64)
        for place, party in enumerate(self._job.parties):
            nodes = np.flatnonzero(winner == place)
            if party == self._me.name or not len(nodes):
                continue
            answer = self._me.recv(party, WhichWay)
            if answer.handles.shape != (len(nodes),) or (answer.handles < 0).any():
                raise ProtocolError(f"{party} won {len(nodes)} nodes, but sent {answer.handles.shape} handles")
            handles[nodes] = answer.handles
            np.bitwise_or(rows.sides, unpacked(party, answer.sides, rows.n_rows), out=rows.sides)
        foreign = (winner >= 0) & (winner != self._place)
        self._foreign.add_level(winner[foreign], handles[foreign])

    def _tell_sides(self, winner: Ints) -> None:
        """Everybody's bits to those who need them: not to the winner of all nodes, and at times not for leaves."""
        splitting, grower = winner >= 0, self._source.trainer.grower
        if self._job.per == MESSAGE and grower.is_last(int(splitting.sum())):
            return
        message: Partition | None = None
        for place, party in enumerate(self._job.parties):
            if party != self._me.name and (splitting & (winner != place)).any():
                message = message or Partition(np.packbits(self._source.trainer.rows.sides))
                self._me.send(party, message)

    @property
    def n_handles(self) -> dict[str, int]:
        """Questions of each feature holder."""
        return self._foreign.n_handles

    def trees(self, n_own: int) -> list[Tree]:
        """All trees over own columns and handles."""
        return self._foreign.in_trees(self._trees, n_own)


def unpacked(party: str, sides: np.ndarray, n_rows: int) -> np.ndarray:
    """One byte per row from one bit per row."""
    if sides.shape != (-(-n_rows // 8),):
        raise ProtocolError(f"{party} sent sides of shape {sides.shape} for {n_rows} rows")
    return np.unpackbits(sides, count=n_rows)
