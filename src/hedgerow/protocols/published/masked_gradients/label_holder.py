"""The label holder: it puts gradients behind noise that others have made, compares scores, and ends with the trees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.codec import to_json
from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.engine.dtypes import MAX_BINS, Floats, Ints
from hedgerow.engine.growth import LevelSplits
from hedgerow.engine.losses import Quantiser
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.masked_gradients import messages, vectors
from hedgerow.protocols.published.masked_gradients.job import STAMP, MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.theorems import MaskedNoise, added_up
from hedgerow.protocols.published.masked_gradients.vectors import Float32s, LevelRows
from hedgerow.protocols.vertical.common.agreement import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    going_on,
    labels_and_loss,
    start_of,
)
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import Course, JointForest
from hedgerow.protocols.vertical.common.messages import MOST_CLASSES
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.states import ForestState
from hedgerow.protocols.vertical.common.watching import Watch, watched_rows
from hedgerow.protocols.vertical.noised_gradients.noise import plain_quantiser
from hedgerow.protocols.vertical.noised_gradients.training import Learning, Trainer, tell_learning
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

ATTACK = "least squares of one message on [1, B]"

AnyFloats = npt.NDArray[np.floating[Any]]


def label_holder(me: Party, job: MaskedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data, earlier = going_on(me.name, check_table(me.name, data))
    watched = watched_rows(me.name, job, data)
    draw = RowDraw(job.boosting, data.table.n_rows, watched)
    labels, loss, weight = labels_and_loss(me.name, job, data, most_classes=MOST_CLASSES, learned=draw.learned)
    columns = OwnColumns(me.name, job, data, learned=draw.learned)
    noise = job.noise_for(columns.n_rows, loss, 1.0 if weight is None else float(weight.max()))
    n_columns = begin_as_label_holder(me, job, data)
    rules = ColumnRules(job.NAME, job.boosting, n_columns) if ColumnRules.matter(job.boosting) else None
    learning = Learning(draw, weight, rules, max(loss.n_outputs, 2), 0 if earlier is None else earlier.n_trees)
    tell_learning(me, job, learning, watched)
    learned_weight = None if weight is None else weight[draw.learned]
    base_scores, scores = start_of(me.name, job, loss, labels[draw.learned], learned_weight, data)
    quantiser, nothing = plain_quantiser(job, loss, columns.n_rows, learning.weights), np.zeros(1, np.int64)
    n_trees, state = me.go_on(ForestState, job)
    how: dict[str, Any] = {"learning": learning, "party": me.name, "scores": scores if state is None else state.scores}
    trainer = Trainer(job, columns, loss, labels, base_scores, quantiser, lambda _from_scores: nothing, **how)
    # A generator for each feature holder: what one gets must not depend on how another's candidates are grouped.
    guests = [
        _Guest(me, job, party, noise, quantiser, n_columns[party] * MAX_BINS, columns.n_threads, weight is not None)
        for party in job.feature_holders
    ]
    me.send_all(job.feature_holders, messages.Scales(quantiser.gradient_scale, quantiser.hessian_scale))
    watch = None
    if watched is not None:
        first = 0 if earlier is None else earlier.ensemble.n_iterations
        watch = Watch(job, loss, data, watched, base_scores, me, n_trees // loss.n_outputs, first=first)
    forest = _Forest(me, job, trainer, guests, labels, Course(draw, rules, watch, earlier))
    if state is not None:
        forest.go_on(state)
    forest.grow()
    n_masked = {guest.party: guest.n_masked for guest in guests}
    most, per_candidate = max(n_masked.values()), 2 if job.sends_hessians(weighted=weight is not None) else 1
    added = None if job.is_given else added_up(noise, messages_ap=per_candidate * most, messages_pp=most)
    meta = {
        "privacy": None,
        "stamp": STAMP,
        "noise": noise.to_dict(),
        "candidates_masked": n_masked,
        "theorems_would_add_up_to": to_json(added),
        "label_recovery": forest.recovery,
        "rounds": {"setup": 1, "training": forest.rounds},
        **({} if weight is None else {"weighted": True}),
        **forest.record,
    }
    return forest.foreign.part(job, columns.features, forest.trees, loss, base_scores, data.classes, meta)


class _Forest(JointForest):
    """Trees by gradients that feature holders get behind noise of their own."""

    WORDS = messages

    def __init__(
        self,
        me: Party,
        job: MaskedGradientsJob,
        trainer: Trainer,
        guests: list[_Guest],
        labels: Floats,
        course: Course,
    ) -> None:
        super().__init__(me, job, trainer.rows, trainer.grower, trainer.begin_tree, tells_leaves=False, course=course)
        # Of more than two classes the first tree's gradients say which rows are of the first one.
        self._guests, self._labels = guests, labels if trainer.rows.loss.n_outputs == 1 else (labels == 0) * 1.0
        self._two_classes = job.task == "classification"
        self.recovery: Mapping[str, Any] | None = None
        self._trainer = trainer
        if (last := me.kept(None, ForestState)) is not None:
            self.recovery = last.recovery
            for guest in guests:
                guest.n_masked = last.released.get(guest.party, 0)

    def state(self) -> ForestState:
        """How the rows stand too, and what was masked so far."""
        masked = {guest.party: guest.n_masked for guest in self._guests}
        return replace(super().state(), released=masked, recovery=self.recovery, **self._trainer.standing)

    def own_best(self) -> LevelSplits:
        # How many candidates will come is not known yet: if the tree is broken off, the most that can come count.
        self.keep_released({guest.party: guest.n_masked + guest.most_candidates for guest in self._guests})
        splits = self.grower.best(self.own_allowed)  # while the feature holders make their noise
        packed, level = self.rows.values, LevelRows.of(self.rows)
        sums, ordered = level.sums(packed), packed[level.order]
        exact = ((ordered >> 32).astype(np.float32), (ordered & 0xFFFFFFFF).astype(np.float32))
        waiting = [guest.serve(level, exact, (sums >> 32, sums & 0xFFFFFFFF)) for guest in self._guests]
        while waiting:  # every feature holder's candidates, a message of each in turn
            waiting = [serving for serving in waiting if next(serving, False)]
            self.rounds += 1
            if self.recovery is None:
                self._try_recovery()
        return splits

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        return self.me.recv(party, messages.BestScores, n_nodes=n_nodes).scores

    def _try_recovery(self) -> None:
        """What the receiver of the run's first message can do with it, measured on the labels. It holds no label."""
        guest = next((guest for guest in self._guests if guest.first_message is not None), None)
        if guest is not None and guest.first_message is not None:
            found = label_recovery(*guest.first_message, self._labels, two_classes=self._two_classes)
            self.recovery = {**found, "by": guest.party, "tree": 1}
            guest.first_message = None


class _Guest:
    """What the label holder does for one feature holder: its noise in, masked gradients out."""

    def __init__(
        self,
        me: Party,
        job: MaskedGradientsJob,
        party: str,
        noise: MaskedNoise,
        quantiser: Quantiser,
        most_candidates: int,
        n_threads: int,
        weighted: bool,
    ) -> None:
        """`most_candidates` of a level: no party has more with its number of columns."""
        self._weighted, self._sends_hessians = weighted, job.sends_hessians(weighted=weighted)
        self._me, self._job, self.party, self._noise, self._quantiser = me, job, party, noise, quantiser
        self.most_candidates, self._n_threads = most_candidates, n_threads
        self._most_noise = vectors.MOST_NORMAL * math.sqrt(4.0 * noise.sigma1**2 + noise.sigma2**2)
        self._random = SecureRandom.from_seed(me.rng.bytes(KEY_BYTES))
        self.n_masked, self._has_served = 0, False  # candidates, over all levels and trees; whether there was one here
        self.first_message: tuple[Float32s, Float32s] | None = None  # masked, and the noise behind it

    def serve(self, level: LevelRows, exact: tuple[Float32s, Float32s], node_sums: tuple[Ints, Ints]) -> Iterator[bool]:
        """Answer the messages of a level; after each of them, whether another one will come.

        `exact` are gradients and hessians of its rows, in units and in its order, `node_sums` those of its nodes.
        """
        n_nodes, n_rows, n_vectors = level.n_nodes, level.n_rows, self._noise.n_vectors
        radius = np.sqrt(np.array([self._noise.C_for(count) for count in level.counts.tolist()]))
        # For each candidate first c, then d, so that the grouping of candidates changes nothing.
        radii = np.concatenate([radius * self._quantiser.gradient_scale, radius * self._quantiser.hessian_scale])
        at_once = max(self._job.candidates_at_once(n_rows, weighted=self._weighted), 1)
        n_done, last = 0, False
        while not last:
            most = min(at_once, self.most_candidates - n_done)
            message = self._receive(n_rows, 0, least=min(n_done, 1), most=most)
            n_candidates = len(message.vectors)
            factors = vectors.on_spheres(self._random, n_candidates, radii, n_vectors).astype(np.float32)
            gradients = np.empty((n_candidates, n_rows), np.float32)
            hessians = np.empty(gradients.shape if self._sends_hessians else (0, 0), np.float32)
            seen: list[Float32s] = []  # of the first candidate
            n_seen = 0
            while True:
                part = slice(n_seen, n_seen + message.vectors.shape[1])
                chosen_by = (factors[:, :n_nodes, part], factors[:, n_nodes:, part])
                for values, chosen, out in zip(exact, chosen_by, (gradients, hessians), strict=True):
                    if len(out):
                        noise, fresh = message.vectors, n_seen == 0
                        common = (values, noise, np.ascontiguousarray(chosen), level.starts, fresh, out)
                        vectors.side_by_side(self._n_threads, vectors.add_noise, n_candidates, noise.size, *common)
                seen += [] if self._has_served or not n_candidates else [message.vectors[0]]
                n_seen = part.stop
                if n_seen == n_vectors:
                    break
                self._me.send(self.party, messages.NextVectors())
                yield True
                message = self._receive(n_rows, n_seen, least=n_candidates, most=n_candidates)
            self._me.send(self.party, messages.MaskedGradients(gradients, hessians, *node_sums))
            if seen:
                self.first_message = (gradients[0], np.concatenate(seen))
            self.n_masked += n_candidates
            self._has_served |= n_candidates > 0
            n_done += n_candidates
            last = message.last
            yield not last

    def _receive(self, n_rows: int, n_seen: int, *, least: int, most: int) -> messages.NoiseVectors:
        """The next noise: of new candidates, or further vectors of the same ones."""
        message = self._me.recv(
            self.party,
            messages.NoiseVectors,
            n_seen=n_seen,
            n_left=self._noise.n_vectors - n_seen,
            least_candidates=least,
            most_candidates=most,
            n_rows=n_rows,
            least_noise=-self._most_noise,
            most_noise=self._most_noise,
        )
        if not message.last and len(message.vectors) == 0:
            raise ProtocolError(f"{self.party} sent noise of no candidate, and says that more comes")
        return message


# --- taking the mask off ---------------------------------------------------------------------------------------------


def unmask(masked: AnyFloats, noise: AnyFloats) -> Floats:
    """Gradients from one masked vector [rows] and the noise vectors [vectors, rows] behind it; same units.

    What a feature holder computes from one message, without knowing any label. It has drawn B itself, so of masked =
    g + B c only W numbers are unknown to it. Regressing the message on [1, B] finds them: g is independent of B, so
    what least squares makes of it is of the order of sqrt(W / n). What is left, with the intercept, is g. Its sign is
    the label, since g = p - y and 0 < p < 1, whatever the score is.
    """
    noise = np.asarray(noise, np.float64).reshape(-1, len(masked))
    strength = np.sqrt((noise**2).mean(axis=1, keepdims=True))
    basis = np.column_stack([np.ones(len(masked)), (noise / np.where(strength > 0.0, strength, 1.0)).T])
    target = np.asarray(masked, np.float64)
    # Normal equations: the columns of the basis are nearly orthogonal and of length sqrt(n).
    coefficients = np.linalg.lstsq(basis.T @ basis, basis.T @ target, rcond=None)[0]
    found: Floats = target - basis[:, 1:] @ coefficients[1:]
    return found


def label_recovery(masked: AnyFloats, noise: AnyFloats, labels: Floats, *, two_classes: bool) -> dict[str, Any]:
    """How much of the labels one message gives away, measured against the labels; beside chance.

    Two classes: the share of labels found. Else the share of the labels' variance that is explained, r2, for labels up
    to a constant: the first tree's gradients are the base score less the label.
    """
    found = unmask(masked, noise)
    facts = {"attack": ATTACK, "rows": len(labels)}
    if two_classes:
        share = float(np.mean(labels))
        accuracy = float(np.mean((found < 0.0) == labels))  # the gradient p - y of a label 1 is below 0
        return {**facts, "measure": "accuracy", "value": accuracy, "chance": max(share, 1.0 - share)}
    spread = float(np.std(found)) * float(np.std(labels))
    if spread == 0.0:
        return {**facts, "measure": "r2", "value": 0.0, "chance": 0.0}
    moments = (found - found.mean()) * (labels - labels.mean())
    return {**facts, "measure": "r2", "value": float((moments.mean() / spread) ** 2), "chance": 0.0}
