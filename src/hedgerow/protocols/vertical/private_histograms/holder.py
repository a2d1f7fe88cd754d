"""A party with data in vertical.private_histograms. All do the same; the label holder also says what follows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hedgerow.crypto.dealing import HandStep, Label
from hedgerow.crypto.dealt_noise import noise_times, take_noise
from hedgerow.crypto.lifting import gains
from hedgerow.crypto.rounds import Conversation, Masked, Talk, opened
from hedgerow.crypto.shares import SUM32, SUM64, Array, Share
from hedgerow.crypto.sigmoid import sigmoid
from hedgerow.crypto.tournament import secret_handles, tournament
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.events import Event
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import begin_as_feature_holder, begin_as_label_holder, check_table
from hedgerow.protocols.vertical.on_shares.columns import OneHotColumns
from hedgerow.protocols.vertical.on_shares.full_tree import FullTree
from hedgerow.protocols.vertical.on_shares.labels import checked_labels
from hedgerow.protocols.vertical.on_shares.masked_columns import exchanged
from hedgerow.protocols.vertical.on_shares.mesh import Mesh
from hedgerow.protocols.vertical.on_shares.rows_messages import LevelDone, MaskedBins
from hedgerow.protocols.vertical.on_shares.sharing import Sharing
from hedgerow.protocols.vertical.on_shares.sizes import agreed_sizes, tell_dealer
from hedgerow.protocols.vertical.on_shares.supply import Supply
from hedgerow.protocols.vertical.private_histograms.choosing import FollowUp
from hedgerow.protocols.vertical.private_histograms.columns import public_columns
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    Chosen,
    HistogramShare,
    LeafShare,
    StartShare,
    WinnerShare,
)
from hedgerow.protocols.vertical.private_histograms.plan import (
    COLUMNS,
    GRADIENTS,
    HISTOGRAMS,
    LEAVES,
    SCORE_BITS,
    SIDES,
    START,
    SUMS,
    Plan,
)
from hedgerow.protocols.vertical.private_histograms.statement import NOT_PRIVATE
from hedgerow.protocols.vertical.shared_parts import FOREIGN, LEAF, PartialTree, SharedLeavesPart, Target

_START, _WINNER, _HISTOGRAM, _LEAF = "noisy start", "noisy winner", "noisy histogram", "noisy leaf"
_RESULTS = {_START: StartShare, _WINNER: WinnerShare, _HISTOGRAM: HistogramShare, _LEAF: LeafShare}


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> SharedLeavesPart:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = checked_labels(me.name, job, data) if me.name == job.label_holder else None
    columns = public_columns(me.name, job, data)
    if labels is None:
        begin_as_feature_holder(me, job, data)
    else:
        begin_as_label_holder(me, job, data)
    sizes = agreed_sizes(me, job, columns)
    plan = Plan.of(job, sizes)
    tell_dealer(me, job, sizes)
    growing = Growing(me, job, plan, columns, n_threads=data.n_threads)
    growing.start(labels)
    for tree in range(plan.n_trees):
        if labels is not None:
            me.report(tree, plan.n_trees)
        growing.grow(tree)
    if labels is not None:
        me.report(plan.n_trees, plan.n_trees)
    return growing.part(data.classes if labels is not None else None)


class Growing:
    """Grows trees of which all know the noisy splits and leaves, and nobody the rows."""

    def __init__(
        self, me: Party, job: PrivateHistogramsJob, plan: Plan, columns: OneHotColumns, *, n_threads: int
    ) -> None:
        self._me, self._job, self._plan, self._columns = me, job, plan, columns
        self._place = job.holders.index(me.name)
        self._is_first = self._place == 0
        self._supply = Supply(me, job.dealer, job.holders)
        self._sharing = Sharing(me, job.holders)
        self._mesh = Mesh(me, job.holders, _RESULTS)
        step = self._supply.without_parcel(COLUMNS)
        hidden = exchanged(me, job.holders, step, columns, plan.matrices, MaskedBins, keep_own=False)
        self._tree = FullTree(self._mesh, hidden, columns, plan.matrices, plan.depth, self._place, n_threads=n_threads)
        self._follow_up = FollowUp(plan, job.boosting.learning_rate)
        self._accountant = plan.spending.accountant()
        self._trees: list[PartialTree] = []
        self._values: list[Ints] = []

    # --- what is opened ----------------------------------------------------------------------------------------------

    def released(self, name: str, sums: Array, step: HandStep, event: Event) -> Ints:
        """Sums with noise, which all get to know; shares modulo 2**32 of numbers below 2**30, noise modulo 2**32."""
        noise = take_noise(step, sums.shape, SUM64).words.astype(np.uint32)  # a share modulo 2**64 is one modulo 2**32
        self._spend(event)
        words = self._talk(opened(Masked(name, sums + noise, SUM32)), event)
        return np.asarray(words.view(np.int32).astype(np.int64))

    def _spend(self, event: Event) -> None:
        """Before it is released: BudgetExceeded if that would be more than was allowed."""
        self._accountant.compose(event)
        self._plan.spending.require(self._accountant)

    def _talk(self, talk: Talk[Array], event: Event | None = None) -> Array:
        return self._mesh.talk([Conversation(talk)], None if event is None else event.to_dict())[0]

    def _told(self, say: Callable[[], Ints], n: int) -> Ints:
        """What follows from released numbers: the label holder computes it, so that all have the same."""
        if self._is_first:
            values = say()
            self._me.send_all(self._job.feature_holders, Chosen(values))
            return values
        values = self._me.recv(self._job.label_holder, Chosen).values
        if values.shape != (n,):
            raise ProtocolError(f"{self._job.label_holder} sent {values.shape} numbers where {n} are due")
        return values

    # --- trees -------------------------------------------------------------------------------------------------------

    def start(self, labels: Floats | None) -> None:
        """Share the labels; the first score follows from the noisy number of positive ones."""
        plan, label = self._plan, Label()
        if labels is not None:
            self._labels = self._sharing.share(labels.astype(np.uint32), SUM32, label).words
        else:
            self._labels = self._sharing.take(self._job.label_holder, plan.n_rows, SUM32, label).words
        self._supply.begin(0, 0, 1)
        total = np.asarray([self._labels.sum(dtype=np.uint32)])
        positives = self.released(_START, total, self._supply.step(START), plan.spending.start_event())
        self._supply.finish()
        first = self._told(lambda: self._follow_up.first_score(int(positives[0])), 1)
        self._follow_up.reach(first)
        self._first_score = int(first[0])
        self._scores = np.full(plan.n_rows, self._first_score if self._is_first else 0, np.int64).astype(np.uint32)

    def grow(self, tree: int) -> None:
        """One tree."""
        plan = self._plan
        self._begin(tree, 0)
        gradients = self.gradients()
        self._tree.begin(self._supply.step(SUMS), gradients)
        self._end()
        levels: list[Ints] = []
        for level in range(plan.depth):
            self._begin(tree, level + 1)
            histograms = self._tree.sums()
            cuts = self._winners(level, histograms) if plan.reveal == WINNER else self._best(level, histograms)
            levels.append(cuts)
            self._tree.divide(self._supply.step(SIDES), self._shared_sides(tree, level, cuts))
            self._end()
        self._begin(tree, plan.depth + 1)
        self._settle()
        self._end()
        self._trees.append(self._partial(levels))

    def _begin(self, tree: int, stage: int) -> None:
        self._supply.begin(tree + 1, stage, self._plan.n_parcels(stage))

    def _end(self) -> None:
        self._supply.finish()
        if self._is_first:
            self._me.send(self._job.dealer, LevelDone())

    def gradients(self) -> Array:
        """Shares of p - y of all rows, in units of 2**-gradient_bits."""
        plan = self._plan
        scores = Share(self._scores.astype(np.uint64), SUM64)  # 32 bits are enough for a sine: modulo 2**32
        talk = sigmoid(self._supply.step(GRADIENTS), scores, plan.sigmoid, is_first=self._is_first)
        p = self._mesh.talk([Conversation(talk)])[0].words.astype(np.uint32)
        return p - (self._labels << np.uint32(plan.gradient_bits))

    # --- splits ------------------------------------------------------------------------------------------------------

    def _sums(self, histograms: Array) -> list[Array]:
        """G_L, n_L, G_R, n_R of all possible splits: [nodes, splits] each."""
        cuts = self._plan.cuts
        node = self._tree.totals[:, :, None]
        left = cuts.left(histograms) + node * cuts.missing_left
        right = node - left
        return [left[:, 0], left[:, 1], right[:, 0], right[:, 1]]

    def _winners(self, level: int, histograms: Array) -> Ints:
        """The possible split that won each node, as far as this party knows it; others' are -1 - their owner."""
        plan, n_nodes = self._plan, len(histograms)
        own = plan.owner_of_cut == self._place
        mine = secret_handles(self._me.rng, n_nodes, int(plan.first_cut[self._place]), int(own.sum()))
        handles = np.zeros((n_nodes, plan.n_candidates), np.uint32)
        handles[:, own] = mine
        sums = self._sums(histograms)
        per_block = plan.block_nodes(level)
        conversations = []
        for block in range(plan.n_blocks(level)):
            nodes = slice(block * per_block, (block + 1) * per_block)
            four = [Share(np.ascontiguousarray(words[nodes]), SUM32) for words in sums]
            conversations.append(Conversation(self._contest(plan.lane(block), level, four, handles[nodes])))
        event = plan.spending.choice_event()
        self._spend(event)
        won = np.concatenate(self._mesh.talk(conversations, event.to_dict())).astype(np.int64)
        if (won >= plan.n_candidates).any():
            raise ProtocolError("a winner's handle is nobody's: some party sent words that are no shares of it")
        owner = plan.owner_of_cut[won]
        cuts = -1 - owner
        for node in np.flatnonzero(owner == self._place).tolist():
            cuts[node] = plan.first_cut[self._place] + int(np.argmax(mine[node] == won[node]))
        return np.asarray(cuts)

    def _contest(self, lane: str, level: int, sums: list[Share], handles: Array) -> Talk[Array]:
        """The handle of each node's winner, by gains with noise that nobody knows."""
        plan, first = self._plan, self._is_first
        four = (sums[0], sums[1], sums[2], sums[3])
        P, Q = yield from gains(self._supply.step(lane), four, plan.lambda_int, plan.wide, is_first=first)
        noise = yield from noise_times(self._supply.step(lane, 1), Q)
        winner = yield from tournament(
            lambda place: self._supply.step(lane, place + 2),
            P + noise,
            Q,
            Share(handles, SUM32),
            plan.tournament(level),
            is_first=first,
        )
        return (yield from opened(Masked(_WINNER, winner.words, SUM32)))

    def _best(self, level: int, histograms: Array) -> Ints:
        """The split of each node that noisy histograms speak for, which everybody knows."""
        plan = self._plan
        scaled = np.concatenate([histograms, self._tree.totals[:, :, None]], axis=2)
        scaled[:, 1] *= np.uint32(plan.spending.count_unit)
        event = plan.spending.histogram_event(level)
        noisy = self.released(_HISTOGRAM, scaled, self._supply.step(HISTOGRAMS), event)
        cuts = self._told(lambda: self._follow_up.best(noisy), len(noisy))
        if not ((cuts >= 0) & (cuts < plan.n_candidates)).all():
            raise ProtocolError(f"{self._job.label_holder} chose a split that there is not")
        return np.where(plan.owner_of_cut[cuts] == self._place, cuts, -1 - plan.owner_of_cut[cuts])

    def _shared_sides(self, tree: int, level: int, cuts: Ints) -> Array:
        """Shares of which rows go left at each node, shared by the owner of its split."""
        plan, label = self._plan, Label(tree=tree + 1, level=level)
        owner = np.where(cuts >= 0, self._place, -1 - cuts)
        sides = np.empty((len(cuts), plan.n_rows), np.uint32)
        for place, party in enumerate(self._job.holders):
            theirs = owner == place
            if not theirs.any():
                continue
            if place == self._place:
                own = (cuts[theirs] - plan.first_cut[place]).tolist()
                packed = np.stack([self._columns.goes_left(cut) for cut in own])
                left = np.unpackbits(packed, axis=1, count=plan.n_rows).astype(np.uint32)
                sides[theirs] = self._sharing.share(left, SUM32, label).words
            else:
                sides[theirs] = self._sharing.take(party, (int(theirs.sum()), plan.n_rows), SUM32, label).words
        return sides

    # --- leaves ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Values of leaves from noisy sums, and shares of the scores with them."""
        plan = self._plan
        sums = self._tree.totals
        sums[:, 1] *= np.uint32(plan.spending.count_unit)
        noisy = self.released(_LEAF, sums, self._supply.step(LEAVES), plan.spending.leaf_event())
        values = self._told(lambda: self._follow_up.leaf_values(noisy), len(noisy))
        self._follow_up.reach(values)
        self._values.append(values)
        weights = values.astype(np.uint32)
        for leaf, weight in enumerate(weights):  # a few vectors over all rows, without a copy of all of them
            self._scores += self._tree.y[leaf, 1] * weight

    def _partial(self, levels: list[Ints]) -> PartialTree:
        """What this party knows of a full tree."""
        own = self._columns.cuts
        cut = np.concatenate([*levels, np.full(1 << self._plan.depth, -1)])
        n_inner = (1 << self._plan.depth) - 1
        column = np.where(np.arange(len(cut)) < n_inner, FOREIGN, LEAF)
        last_bin, missing_left = np.full(len(cut), -1), np.zeros(len(cut), np.bool_)
        mine = np.flatnonzero(cut >= 0)
        number = cut[mine] - self._plan.first_cut[self._place]
        column[mine], last_bin[mine], missing_left[mine] = own.column[number], own.bin[number], own.missing_left[number]
        return PartialTree(column, last_bin, missing_left)

    def part(self, classes: tuple[object, ...] | None) -> SharedLeavesPart:
        """Its part of the model; leaf values are with the label holder."""
        job, plan = self._job, self._plan
        first_score = self._first_score * 2.0**-SCORE_BITS
        target = Target("logistic", (first_score,), 1.0, classes) if self._is_first else None
        leaves = [
            values.astype(np.uint64) if self._is_first else np.zeros(len(values), np.uint64) for values in self._values
        ]
        meta = {
            "privacy": self._privacy(),
            "stamp": None if plan.spending.is_noisy else NOT_PRIVATE,
            "reveal": job.reveal,
            "gradient_bits": plan.gradient_bits,
            "rounds": {"setup": 3, "training": self._mesh.rounds},
        }
        return SharedLeavesPart(
            self._me.name, job.label_holder, job.holders, job.NAME, job.run_id, self._columns.features,
            tuple(self._trees), tuple(leaves), SCORE_BITS, target, meta,
        )  # fmt: skip

    def _privacy(self) -> dict[str, object] | None:
        """What the accountant says that saw every release."""
        if not self._plan.spending.is_noisy:
            return None
        epsilon = self._plan.spending.spent(self._accountant)
        return {"epsilon": epsilon, "delta": self._job.delta, "accountant": self._accountant.description}
