"""The label holder: it puts gradients behind noise that others have made, compares scores, and ends with the trees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.engine.dtypes import MAX_BINS, Floats, Ints
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.splitting import LevelSplits
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.masked_gradients import messages
from hedgerow.protocols.published.masked_gradients.job import STAMP, MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.recovery import label_recovery
from hedgerow.protocols.published.masked_gradients.theorems import MaskedNoise, added_up
from hedgerow.protocols.published.masked_gradients.vectors import (
    MOST_NORMAL,
    Float32s,
    LevelRows,
    add_noise,
    on_spheres,
    side_by_side,
)
from hedgerow.protocols.vertical.common.joint_forest import JointForest
from hedgerow.protocols.vertical.common.joint_growth import JointGrower, JointRows, packed_columns
from hedgerow.protocols.vertical.common.parts import LabelHolderPart
from hedgerow.protocols.vertical.common.tables import (
    OwnColumns,
    begin_as_label_holder,
    check_table,
    labels_and_loss,
)
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER
from hedgerow.protocols.vertical.noised_gradients.noise import exact_start, first_order_loss, plain_quantiser
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: MaskedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels, loss = labels_and_loss(me.name, job, data)
    columns = OwnColumns(me.name, job, data)
    noise = job.noise_for(columns.n_rows, loss)
    n_columns = begin_as_label_holder(me, job, data)
    forest = _Forest(me, job, columns, loss, labels, noise, n_columns)
    forest.grow()
    return forest.part(job, data, columns.features, loss, forest.base_score, forest.meta())


class _Forest(JointForest):
    """Trees by gradients that feature holders get behind noise of their own."""

    WINNERS, WHICH_WAY, PARTITION = messages.Winners, messages.WhichWay, messages.Partition

    def __init__(
        self,
        me: Party,
        job: MaskedGradientsJob,
        columns: OwnColumns,
        loss: Loss,
        labels: Floats,
        noise: MaskedNoise,
        n_columns: Mapping[str, int],
    ) -> None:
        self._job, self._noise, self._labels = job, noise, labels
        self._two_classes = job.task == "classification"
        counted_as = first_order_loss(loss) if job.score == FIRST_ORDER else loss
        self._quantiser = plain_quantiser(job, loss, columns.n_rows)
        self._one = round(self._quantiser.hessian_scale) if job.score == FIRST_ORDER else None
        self.base_score = exact_start(job, loss, labels)
        packed = packed_columns(columns.codes, columns.features, columns.n_threads)
        base = np.array([self.base_score])
        rows = JointRows(packed, labels, None, loss, base, self._quantiser, n_threads=columns.n_threads)
        rules = job.boosting
        grower = JointGrower(rows, rules, counted_as, self._quantiser, columns.features)
        super().__init__(me, job, rows, grower, tells_leaves=False)
        self._level = LevelRows(columns.n_rows)
        # A generator for each feature holder: what one gets must not depend on how another's candidates are grouped.
        self._guests = {
            party: _Guest(me, job, party, noise, self._quantiser, columns.n_threads, n_columns[party] * MAX_BINS)
            for party in job.feature_holders
        }
        me.send_all(job.feature_holders, messages.Scales(self._quantiser.gradient_scale, self._quantiser.hessian_scale))
        self._recovery: dict[str, Any] | None = None

    def begin_tree(self) -> None:
        rows = self.rows
        rows.gradients()
        packed = rows.gradients_packed[0]
        if self._one is not None:
            packed[:] = ((packed >> 32) << 32) + self._one
        rows.start_tree()
        self.grower.begin()
        self._level.restart()

    def own_best(self) -> LevelSplits:
        splits = self.grower.best()  # while the feature holders make their noise
        self._mask_for_all()
        return splits

    def gains_of(self, party: str, n_nodes: int) -> Floats:
        return self.me.recv(party, messages.BestScores, n_nodes=n_nodes).scores

    def tell_sides(self, winner: Ints) -> None:
        super().tell_sides(winner)
        self._level.descend(winner >= 0, self.rows.sides)

    def _mask_for_all(self) -> None:
        """Every feature holder's candidates, a message of each in turn."""
        packed, level = self.rows.gradients_packed[0], self._level
        sums = level.sums(packed)
        ordered = packed[level.order]
        exact = _Exact(
            (ordered >> 32).astype(np.float32),
            (ordered & 0xFFFFFFFF).astype(np.float32),
            sums >> 32,
            sums & 0xFFFFFFFF,
        )
        waiting = [self._guests[party] for party in self._job.feature_holders]
        for guest in waiting:
            guest.begin_level(level)
        rounds = 0
        while waiting:
            waiting = [guest for guest in waiting if guest.serve(exact)]
            rounds += 1
            if self._recovery is None:
                self._try_recovery()
        self.rounds += rounds

    def _try_recovery(self) -> None:
        """What the receiver of the run's first message can do with it, measured on the labels. It holds no label."""
        for guest in self._guests.values():
            if guest.first_message is not None and guest.n_masked:
                masked, noise = guest.first_message
                found = label_recovery(masked, noise, self._labels, two_classes=self._two_classes)
                self._recovery = {**found, "by": guest.party, "tree": 1}
                guest.first_message = None
                return

    def meta(self) -> dict[str, Any]:
        """What the model says about its training."""
        per_candidate = 2 if self._job.sends_hessians else 1
        n_masked = {guest.party: guest.n_masked for guest in self._guests.values()}
        theorems = None
        if not self._job.is_given:
            most = max(n_masked.values())
            added = added_up(self._noise, messages_ap=per_candidate * most, messages_pp=most)
            theorems = {side: total.to_dict() for side, total in added.items()}
        return {
            "privacy": None,
            "stamp": STAMP,
            "noise": self._noise.to_dict(),
            "candidates_masked": n_masked,
            "theorems_would_add_up_to": theorems,
            "label_recovery": self._recovery,
            "rounds": {"setup": 1, "training": self.rounds},
        }


class _Exact(NamedTuple):
    """Gradients of the rows of a level, in units and in the order of the level, and sums of its nodes."""

    gradients: Float32s
    hessians: Float32s
    gradient_sums: Ints
    hessian_sums: Ints


class _Guest:
    """What the label holder does for one feature holder: its noise in, masked gradients out."""

    def __init__(
        self,
        me: Party,
        job: MaskedGradientsJob,
        party: str,
        noise: MaskedNoise,
        quantiser: Quantiser,
        n_threads: int,
        most_candidates: int,
    ) -> None:
        """`most_candidates` of a level: no party has more with its number of columns."""
        self._me, self._noise, self._quantiser, self._n_threads = me, noise, quantiser, n_threads
        self.party, self._job = party, job
        self._most_candidates = most_candidates
        self._most_noise = MOST_NORMAL * math.sqrt(4.0 * noise.sigma1**2 + noise.sigma2**2)
        self._random = SecureRandom.from_seed(me.rng.bytes(KEY_BYTES))
        self._sends_hessians = job.sends_hessians
        self.n_masked = 0  # candidates, over all levels and trees
        self._n_seen = 0
        self.first_message: tuple[Float32s, Float32s] | None = None
        self._is_first = True

    def begin_level(self, level: LevelRows) -> None:
        """New nodes."""
        self._level = level
        self._radius = np.sqrt(np.array([self._noise.C_for(count) for count in level.counts.tolist()]))
        self._n_seen = 0
        self._n_before = 0  # candidates of this level that are done

    def serve(self, exact: _Exact) -> bool:
        """Answer one message; whether another one will come at this level."""
        message = self._receive()
        vectors = message.vectors
        n_candidates, n_vectors = vectors.shape[:2]
        if self._n_seen == 0:
            self._begin_block(n_candidates)
        part = slice(self._n_seen, self._n_seen + n_vectors)
        for exact_values, factors, out in (
            (exact.gradients, self._for_gradients, self._gradients),
            (exact.hessians, self._for_hessians, self._hessians),
        ):
            if len(out):
                chosen = np.ascontiguousarray(factors[:, :, part])
                fresh = self._n_seen == 0
                common = (exact_values, vectors, chosen, self._level.starts, fresh, out)
                side_by_side(self._n_threads, add_noise, n_candidates, vectors.size, *common)
        self._n_seen += n_vectors
        if self._is_first and n_candidates:
            self._remember(vectors)
        if self._n_seen < self._noise.n_vectors:
            self._me.send(self.party, messages.NextVectors())
            return True
        sums = (exact.gradient_sums, exact.hessian_sums)
        self._me.send(self.party, messages.MaskedGradients(self._gradients, self._hessians, *sums))
        self.n_masked += n_candidates
        self._n_before += n_candidates
        self._n_seen = 0
        self._is_first = False
        return not message.last

    def _begin_block(self, n_candidates: int) -> None:
        n_rows, n_nodes, n_vectors = self._level.n_rows, self._level.n_nodes, self._noise.n_vectors
        # For each candidate first c, then d, so that the grouping of candidates changes nothing.
        radius = np.concatenate([self._radius * self._quantiser.gradient_scale] * 2)
        radius[n_nodes:] = self._radius * self._quantiser.hessian_scale
        factors = on_spheres(self._random, n_candidates, radius, n_vectors).astype(np.float32)
        self._for_gradients, self._for_hessians = factors[:, :n_nodes], factors[:, n_nodes:]
        self._gradients = np.empty((n_candidates, n_rows), np.float32)
        self._hessians = np.empty((n_candidates, n_rows) if self._sends_hessians else (0, 0), np.float32)

    def _receive(self) -> messages.NoiseVectors:
        """The next noise: of new candidates, or further vectors of the same ones."""
        if self._n_seen:
            least = most = len(self._gradients)
        else:
            at_once = max(self._job.candidates_at_once(self._level.n_rows), 1)
            least, most = min(self._n_before, 1), min(at_once, self._most_candidates - self._n_before)
        message = self._me.recv(
            self.party,
            messages.NoiseVectors,
            n_seen=self._n_seen,
            n_left=self._noise.n_vectors - self._n_seen,
            least_candidates=least,
            most_candidates=most,
            n_rows=self._level.n_rows,
            least_noise=-self._most_noise,
            most_noise=self._most_noise,
        )
        if not message.last and len(message.vectors) == 0:
            raise ProtocolError(f"{self.party} sent noise of no candidate, and says that more comes")
        return message

    def _remember(self, vectors: Float32s) -> None:
        """The first candidate's message and noise, for measuring what they give away."""
        before = np.empty((0, vectors.shape[2]), np.float32) if self.first_message is None else self.first_message[1]
        self.first_message = (self._gradients[0], np.concatenate([before, vectors[0]]))
