"""The label holder: it puts gradients behind noise that others have made, compares scores, and ends with the trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.masked import MaskedNoise, added_up
from hedgerow.protocols.memory import check_memory
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import begin_as_label_holder, check_table
from hedgerow.protocols.vertical.foreign_splits import ForeignSplits
from hedgerow.protocols.vertical.joint_growth import JointGrower, JointRows, choose_winners, packed_columns, theirs
from hedgerow.protocols.vertical.masked_gradients.job import STAMP, MaskedGradientsJob
from hedgerow.protocols.vertical.masked_gradients.messages import (
    LEAF,
    OTHERS,
    YOURS,
    BestScores,
    MaskedGradients,
    NextVectors,
    NoiseVectors,
    Partition,
    Scales,
    WhichWay,
    Winners,
)
from hedgerow.protocols.vertical.masked_gradients.recovery import label_recovery
from hedgerow.protocols.vertical.masked_gradients.vectors import (
    Float32s,
    LevelRows,
    add_noise,
    on_spheres,
    side_by_side,
)
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER
from hedgerow.protocols.vertical.noised_gradients.label_holder import unpacked
from hedgerow.protocols.vertical.noised_gradients.noise import first_order_loss
from hedgerow.protocols.vertical.parts import LabelHolderPart, composite_features


def label_holder(me: Party, job: MaskedGradientsJob, data: PartyData | None) -> LabelHolderPart:
    """The label holder, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels, loss = _labels(me.name, job, data)
    table, params = data.table, job.boosting
    check_memory(me.name, table.n_rows, len(table.columns), job.max_bins, params.max_depth, params.max_leaves)
    noise = job.noise_for(table.n_rows, loss)
    mapper = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)
    begin_as_label_holder(me, job, data)
    forest = _Forest(me, job, data, mapper, loss, labels, noise)
    for done in range(params.n_iterations):
        me.report(done, params.n_iterations)
        forest.grow()
    me.report(params.n_iterations, params.n_iterations)
    handles = forest.n_handles
    ensemble = Ensemble(
        composite_features(mapper.features, handles),
        loss.name,
        [forest.base_score],
        trees=forest.trees(len(mapper.features)),
        classes=data.classes,
        meta=forest.meta(),
    )
    return LabelHolderPart(me.name, job.NAME, job.run_id, ensemble, handles)


def _labels(party: str, job: MaskedGradientsJob, data: PartyData) -> tuple[Floats, Loss]:
    """Labels, and the loss."""
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
    given, observed = job.boosting.label_range, (float(labels.min()), float(labels.max()))
    if classes is None and given is not None and (observed[0] < given[0] or observed[1] > given[1]):
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {given}")
    return labels, job.for_labels(None if classes is None else 2, observed).loss_for(labels)


class _Forest:
    """Grows trees together with the feature holders, and remembers whose each split is."""

    def __init__(
        self,
        me: Party,
        job: MaskedGradientsJob,
        data: PartyData,
        mapper: BinMapper,
        loss: Loss,
        labels: Floats,
        noise: MaskedNoise,
    ) -> None:
        self._me, self._job, self._noise, self._labels = me, job, noise, labels
        self._two_classes = data.classes is not None
        self._n_threads = data.n_threads
        self._place = job.parties.index(me.name)
        n_rows = data.table.n_rows
        counted_as = first_order_loss(loss) if job.score == FIRST_ORDER else loss
        bits = job.boosting.gradient_bits
        plain = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows, gradient_bits=bits)
        ones = Quantiser.for_job(counted_as, float(n_rows), n_rows=n_rows)
        by_first_order = job.score == FIRST_ORDER
        self._quantiser = Quantiser(plain.gradient_scale, (ones if by_first_order else plain).hessian_scale)
        self._one = round(ones.hessian_scale) if by_first_order else None
        given = job.boosting.base_score
        self.base_score = float(loss.base_scores(labels)[0]) if given is None else float(given)
        codes = packed_columns(mapper.transform(data.table, data.n_threads), mapper.features, data.n_threads)
        base = np.array([self.base_score])
        self._rows = JointRows(codes, labels, None, loss, base, self._quantiser, n_threads=data.n_threads)
        rules = job.boosting.growth_rules()
        self._grower = JointGrower(self._rows, rules, counted_as, self._quantiser, mapper.features)
        self._level = LevelRows(n_rows)
        # A generator for each feature holder: what one gets must not depend on how another's candidates are grouped.
        self._guests = {
            party: _Guest(me, job, party, noise, self._quantiser, data.n_threads) for party in job.feature_holders
        }
        me.send_all(job.feature_holders, Scales(self._quantiser.gradient_scale, self._quantiser.hessian_scale))
        self._trees: list[Tree] = []
        self._foreign = ForeignSplits(job.parties, job.label_holder)
        self._recovery: dict[str, Any] | None = None
        self._rounds = 0

    def grow(self) -> None:
        """One tree."""
        rows = self._rows
        rows.gradients()
        packed = rows.gradients_packed[0]
        if self._one is not None:
            packed[:] = ((packed >> 32) << 32) + self._one
        rows.start_tree()
        self._grower.begin()
        self._level.restart()
        self._foreign.begin_tree()
        while self._grow_level():
            pass
        self._trees.append(self._grower.finish())

    def _grow_level(self) -> bool:
        me, job, grower, rows = self._me, self._job, self._grower, self._rows
        splits = grower.best()
        self._mask_for_all()
        own = np.where(splits.feature >= 0, splits.gain, -1.0)
        gains = np.array([own if party == me.name else self._scores_of(party, len(own)) for party in job.parties])
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
        splitting = winner >= 0
        theirs(splits, splitting & (winner != self._place), rows.spare_feature)
        if not grower.is_last(int(splitting.sum())):
            self._tell_sides(winner)
            self._level.descend(splitting, rows.sides)
        return grower.divide(splits)

    def _mask_for_all(self) -> None:
        """Every feature holder's candidates, a message of each in turn."""
        packed, level = self._rows.gradients_packed[0], self._level
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
        self._rounds += rounds + 2

    def _try_recovery(self) -> None:
        """What the receiver of the run's first message can do with it, measured on the labels. It holds no label."""
        for guest in self._guests.values():
            if guest.first_message is not None and guest.n_masked:
                masked, noise = guest.first_message
                found = label_recovery(masked, noise, self._labels, two_classes=self._two_classes)
                self._recovery = {**found, "by": guest.party, "tree": 1}
                guest.first_message = None
                return

    def _scores_of(self, party: str, n_nodes: int) -> Floats:
        scores = self._me.recv(party, BestScores).scores
        if scores.shape != (n_nodes,) or np.isnan(scores).any():
            raise ProtocolError(f"{party} sent scores of shape {scores.shape} for {n_nodes} nodes, or no numbers")
        return scores

    def _ask_winners(self, winner: Ints) -> None:
        """Which way the rows go in nodes that others won, and what they call those splits."""
        rows = self._rows
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
        """Everybody's bits to those who need them: not to the winner of all nodes."""
        message: Partition | None = None
        for place, party in enumerate(self._job.parties):
            if party != self._me.name and ((winner >= 0) & (winner != place)).any():
                message = message or Partition(np.packbits(self._rows.sides))
                self._me.send(party, message)

    @property
    def n_handles(self) -> dict[str, int]:
        """Questions of each feature holder."""
        return self._foreign.n_handles

    def trees(self, n_own: int) -> list[Tree]:
        """All trees over own columns and handles."""
        return self._foreign.in_trees(self._trees, n_own)

    def meta(self) -> dict[str, Any]:
        """What the model says about its training."""
        per_candidate = 2 if self._job.sends_hessians else 1
        messages = {guest.party: guest.n_masked for guest in self._guests.values()}
        theorems = None
        if not self._job.is_given:
            most = max(messages.values())
            added = added_up(self._noise, messages_ap=per_candidate * most, messages_pp=most)
            theorems = {side: total.to_dict() for side, total in added.items()}
        return {
            "privacy": None,
            "stamp": STAMP,
            "noise": self._noise.to_dict(),
            "candidates_masked": messages,
            "theorems_would_add_up_to": theorems,
            "label_recovery": self._recovery,
            "rounds": {"setup": 1, "training": self._rounds},
        }


class _Exact:
    """Gradients of the rows of a level, in units and in the order of the level, and sums of its nodes."""

    def __init__(self, gradients: Float32s, hessians: Float32s, gradient_sums: Ints, hessian_sums: Ints) -> None:
        self.gradients, self.hessians = gradients, hessians
        self.gradient_sums, self.hessian_sums = gradient_sums, hessian_sums


class _Guest:
    """What the label holder does for one feature holder: its noise in, masked gradients out."""

    def __init__(
        self, me: Party, job: MaskedGradientsJob, party: str, noise: MaskedNoise, quantiser: Quantiser, n_threads: int
    ) -> None:
        self._me, self._noise, self._quantiser, self._n_threads = me, noise, quantiser, n_threads
        self.party = party
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

    def serve(self, exact: _Exact) -> bool:
        """Answer one message; whether another one will come at this level."""
        message = self._me.recv(self.party, NoiseVectors)
        self._check(message)
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
            self._me.send(self.party, NextVectors())
            return True
        sums = (exact.gradient_sums, exact.hessian_sums)
        self._me.send(self.party, MaskedGradients(self._gradients, self._hessians, *sums))
        self.n_masked += n_candidates
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

    def _check(self, message: NoiseVectors) -> None:
        shape, all_vectors = message.vectors.shape, self._noise.n_vectors
        fits = len(shape) == 3 and shape[2] == self._level.n_rows and message.first_vector == self._n_seen
        fits = fits and 1 <= shape[1] <= all_vectors - self._n_seen
        fits = fits and (self._n_seen == 0 or shape[0] == len(self._gradients))
        if not fits or not np.isfinite(message.vectors).all():
            raise ProtocolError(
                f"{self.party} sent noise of shape {shape} from vector {message.first_vector} on, where vectors of "
                f"{self._level.n_rows} finite numbers from {self._n_seen} on were due"
            )

    def _remember(self, vectors: Float32s) -> None:
        """The first candidate's message and noise, for measuring what they give away."""
        before = np.empty((0, vectors.shape[2]), np.float32) if self.first_message is None else self.first_message[1]
        self.first_message = (self._gradients[0], np.concatenate([before, vectors[0]]))
