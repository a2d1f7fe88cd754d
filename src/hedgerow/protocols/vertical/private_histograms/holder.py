"""A party with data in vertical.private_histograms. All do the same; the label holder also says what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hedgerow.crypto.compare import absolute
from hedgerow.crypto.dealing import Label, take_noise
from hedgerow.crypto.shares import SUM32, SUM64, Array, Share
from hedgerow.crypto.sigmoid import sigmoid
from hedgerow.crypto.tournament import secret_handles, tournament
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.shares.full_tree import FullTree
from hedgerow.protocols.shares.masked_columns import exchanged
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.playing import begin, checked_labels
from hedgerow.protocols.shares.sizes import agreed_sizes, tell_dealer
from hedgerow.protocols.shares.supply import Sharing, Supply
from hedgerow.protocols.vertical.common.part_files import Target
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart
from hedgerow.protocols.vertical.common.tables import (
    check_table,
    fitted,
)
from hedgerow.protocols.vertical.private_histograms.accounts import Accounts, signed
from hedgerow.protocols.vertical.private_histograms.choosing import LARGEST_VALUE, Columns, FollowUp
from hedgerow.protocols.vertical.private_histograms.columns import binned_columns, noisy_counts, public_cells
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    Chosen,
    CountedColumns,
    HistogramShare,
    LeafShare,
    StartShare,
    WinnerShare,
)
from hedgerow.protocols.vertical.private_histograms.plan import SCORE_BITS, Lane, Plan
from hedgerow.protocols.vertical.private_histograms.spending import COLUMNS_PER_LEVEL, EdgeNoise
from hedgerow.protocols.vertical.private_histograms.statement import stamp
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> SharedLeavesPart:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data, needs_values=False)
    described = job.own_columns(me.name, data.table)
    data, _ = fitted(me, job, data, described, classes=job.listed_classes, on_bad_rows=job.on_bad_rows)
    labels = checked_labels(me.name, job, data) if me.name == job.label_holder else None
    cells = public_cells(me.name, job, data)
    begin(me, job, data)
    noise = EdgeNoise(job, len(cells.counted))
    counts = noisy_counts(cells, noise.sigma, me.rng)
    columns = binned_columns(me.name, cells, counts, noise.sigma, job.max_bins)
    edges = _all_edges(me, job, noise)
    sizes = agreed_sizes(me, job, columns)
    plan = Plan.of(job, sizes)
    tell_dealer(me, job, sizes)
    growing = Growing(me, job, plan, columns, edges, n_threads=data.n_threads)
    growing.start(labels)
    for tree in range(plan.n_trees):
        if labels is not None:
            me.report(tree, plan.n_trees)
        growing.grow(tree)
    if labels is not None:
        me.report(plan.n_trees, plan.n_trees)
    return growing.part(data.classes if labels is not None else None)


def _all_edges(me: Party, job: PrivateHistogramsJob, mine: EdgeNoise) -> list[Event]:
    """What everybody's edges cost: this party's own are told to all others before the numbers of its bins."""
    events = []
    for party in job.holders:
        if party == me.name:
            event = mine.event()
            for other in job.holders:
                if other != me.name:
                    me.send(other, CountedColumns(mine.n_counted), event=None if event is None else event.to_dict())
        else:
            n_counted = me.recv(party, CountedColumns, most_columns=job.most_columns).n_counted
            event = EdgeNoise(job, n_counted).event()
        events += [] if event is None else [event]
    return events


class Growing:
    """Grows trees of which all know the noisy splits and leaves, and nobody the rows."""

    def __init__(
        self,
        me: Party,
        job: PrivateHistogramsJob,
        plan: Plan,
        columns: OneHotColumns,
        edges: Sequence[Event],
        *,
        n_threads: int,
    ) -> None:
        self._me, self._job, self._plan, self._columns = me, job, plan, columns
        self._place = job.holders.index(me.name)
        self._is_first = self._place == 0
        self._supply = Supply(me, job.dealer, job.holders)
        self._sharing = Sharing(me, job.holders)
        self._mesh = Mesh(me, job.holders)
        step = self._supply.without_parcel(Lane.COLUMNS)
        hidden = exchanged(me, job.holders, step, columns, plan.matrices, keep_own=False)
        self._tree = FullTree(self._mesh, hidden, columns, plan.matrices, plan.depth, self._place, n_threads=n_threads)
        self._follow_up = FollowUp(plan, job.boosting.learning_rate)
        self._accounts = Accounts(job, plan.spending.accountant())
        for event in edges:
            self._accounts.spend(event)
        self._trees: list[PartialTree] = []
        self._values: list[Ints] = []

    def _told(self, say: Callable[[], Ints], n: int, lowest: int, highest: int) -> Ints:
        """What follows from released numbers: the label holder computes it, so that all have the same."""
        if self._is_first:
            values = say()
            self._me.send_all(self._job.feature_holders, Chosen(values))
            return values
        return self._me.recv(self._job.label_holder, Chosen, n_values=n, lowest=lowest, highest=highest).values

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
        noisy = self._accounts.noisy(total, self._supply.step(Lane.START), plan.spending.start_event(), 1)
        positives = int(signed(self._mesh.reveal(StartShare, noisy.sums, event=noisy.event))[0])
        self._supply.finish()
        first = self._told(lambda: self._follow_up.first_score(positives), 1, -LARGEST_VALUE, LARGEST_VALUE)
        self._follow_up.reach(first)
        self._first_score = int(first[0])
        self._scores = np.full(plan.n_rows, self._first_score if self._is_first else 0, np.int64).astype(np.uint32)

    def grow(self, tree: int) -> None:
        """One tree."""
        plan = self._plan
        self._begin(tree, 0)
        gradients = self.gradients()
        self._tree.begin(self._supply.step(Lane.SUMS), gradients)
        self._end()
        levels: list[int] = []
        for level in range(plan.depth):
            self._begin(tree, level + 1)
            histograms = self._tree.sums()
            levels.append(self._winner(level, histograms) if plan.reveal == WINNER else self._best(level, histograms))
            self._tree.divide(self._supply.step(Lane.SIDES), self._shared_sides(tree, level, levels[-1]))
            self._end()
        self._begin(tree, plan.depth + 1)
        self._settle()
        self._end()
        self._trees.append(self._partial(levels))

    def _begin(self, tree: int, stage: int) -> None:
        self._supply.begin(tree + 1, stage, self._plan.n_parcels(tree, stage))

    def _end(self) -> None:
        self._supply.finish()
        if self._is_first:
            self._me.send(self._job.dealer, LevelDone())

    def gradients(self) -> Array:
        """Shares of p - y of all rows, in units of 2**-gradient_bits."""
        plan = self._plan
        scores = Share(self._scores.astype(np.uint64), SUM64)  # 32 bits are enough for a sine: modulo 2**32
        talk = sigmoid(self._supply.step(Lane.GRADIENTS), scores, plan.sigmoid, is_first=self._is_first)
        p = self._mesh.talk(talk).words.astype(np.uint32)
        return p - (self._labels << np.uint32(plan.gradient_bits))

    # --- splits ------------------------------------------------------------------------------------------------------

    def _winner(self, level: int, histograms: Array) -> int:
        """The possible split that won a level, if it is this party's own; else -1 - its owner."""
        plan = self._plan
        own = plan.owner_of_cut == self._place
        mine = secret_handles(self._me.rng, 1, int(plan.first_cut[self._place]), int(own.sum()))[0]
        handles = np.zeros((1, plan.n_candidates), np.uint32)
        handles[0, own] = mine
        utilities = self._utilities(level, histograms)
        event = plan.spending.choice_event()
        self._accounts.spend(event)
        winner = self._contest(utilities, handles)
        won = int(self._mesh.reveal(WinnerShare, winner, event=event.to_dict())[0])
        if won >= plan.n_candidates:
            raise ProtocolError("a winner's handle is nobody's: some party sent words that are no shares of it")
        owner = int(plan.owner_of_cut[won])
        if owner != self._place:
            return -1 - owner
        return int(plan.first_cut[owner]) + int(np.argmax(mine == won))

    def _utilities(self, level: int, histograms: Array) -> Array:
        """Shares of the sum over all nodes of |G_L| + |G_R|, for each possible split: signs stay hidden."""
        plan, cuts = self._plan, self._plan.all_cuts
        node = self._tree.totals[:, :1]
        left = cuts.left(histograms) + node * cuts.missing_left
        sides = np.stack([left, node - left], axis=1)  # [nodes, 2, splits]
        per_block = plan.block_nodes(level)
        talks = []
        for block in range(plan.n_blocks(level)):
            own = np.ascontiguousarray(sides[block * per_block : (block + 1) * per_block]).reshape(-1)
            step = self._supply.step(plan.lane(block))
            talks.append(absolute(step, Share(own, SUM32), plan.tournament.circuit, is_first=self._is_first))
        sizes = [share.words.reshape(-1, plan.n_candidates) for share in self._mesh.talks(talks)]
        return np.asarray(np.concatenate(sizes).sum(axis=0, dtype=np.uint32))

    def _contest(self, utilities: Array, handles: Array) -> Share:
        """A share of the handle of the winner, by utilities with noise that nobody knows."""
        plan, first = self._plan, self._is_first
        noise = take_noise(self._supply.step(Lane.WINNER), plan.n_candidates, SUM64).words.astype(np.uint32)
        whole = plan.tournament.kind
        one = np.full((1, plan.n_candidates, 1), first, np.uint32)  # whole numbers are fractions over 1
        talk = tournament(
            lambda place: self._supply.step(Lane.WINNER, place + 1),
            Share((utilities + noise).reshape(1, -1, 1), whole),
            Share(one, whole),
            Share(handles, SUM32),
            plan.tournament,
            is_first=first,
        )
        return self._mesh.talk(talk)

    def _best(self, level: int, histograms: Array) -> int:
        """The split of a level that noisy histograms of a few columns speak for, which everybody knows."""
        plan, spending = self._plan, self._plan.spending
        if level == 0:
            if plan.has_survey(len(self._trees), level):
                self._take_survey(histograms)
            n_drawn = plan.depth * min(COLUMNS_PER_LEVEL, len(plan.codes))
            drawn = self._told(lambda: self._draws.draw(plan.depth).reshape(-1), n_drawn, 0, len(plan.codes) - 1)
            by_level = drawn.reshape(plan.depth, -1)
            if (by_level[:, 1:] <= by_level[:, :-1]).any():  # noise is dealt for different columns
                raise ProtocolError(
                    f"{self._job.label_holder} chose columns {by_level.tolist()}, which are not in order"
                )
            self._columns_of_level = by_level.tolist()
        columns = self._columns_of_level[level]
        sums, event = self._bins_of(columns, histograms), spending.histogram_event(level)
        noisy = self._accounts.noisy(
            sums, self._supply.step(Lane.HISTOGRAMS), event, (len(sums), spending.released.most_bins)
        )
        seen = signed(self._mesh.reveal(HistogramShare, noisy.sums, event=noisy.event))
        cut = int(self._told(lambda: np.array([self._follow_up.best(seen, columns)]), 1, 0, plan.n_candidates - 1)[0])
        owner = int(plan.owner_of_cut[cut])
        return cut if owner == self._place else -1 - owner

    def _take_survey(self, histograms: Array) -> None:
        """Noisy histograms of all columns at the first root: which ones matter, to who draws columns."""
        every = list(range(len(self._plan.codes)))
        sums, event = self._bins_of(every, histograms)[0], self._plan.spending.survey_event()
        noisy = self._accounts.noisy(sums, self._supply.step(Lane.SURVEY), event, len(sums))
        seen = signed(self._mesh.reveal(HistogramShare, noisy.sums, event=noisy.event))
        if self._is_first:
            self._draws = Columns(self._follow_up.importance(seen), self._job.boosting.seed)

    def _bins_of(self, columns: Sequence[int], histograms: Array) -> Array:
        """Shares of the sums in all bins of some columns, one after the other; a column's last is what is left."""
        node, parts = self._tree.totals[:, 0], []
        for column in columns:
            bins = histograms[:, self._plan.bins_of_column[column]]
            parts += [bins, (node - bins.sum(axis=1, dtype=np.uint32))[:, None]]
        return np.concatenate(parts, axis=1)

    def _shared_sides(self, tree: int, level: int, cut: int) -> Array:
        """Shares of which rows go left at a level, shared by the owner of its split."""
        plan, label = self._plan, Label(tree=tree + 1, level=level)
        if cut >= 0:
            packed = self._columns.goes_left(cut - int(plan.first_cut[self._place]))
            left = np.unpackbits(packed, count=plan.n_rows).astype(np.uint32)
            return self._sharing.share(left, SUM32, label).words
        return self._sharing.take(self._job.holders[-1 - cut], plan.n_rows, SUM32, label).words

    # --- leaves ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Values of leaves from noisy sums, and shares of the scores with them."""
        plan = self._plan
        sums = self._tree.totals
        sums[:, 1] *= np.uint32(plan.spending.count_unit)
        noisy = self._accounts.noisy(sums, self._supply.step(Lane.LEAVES), plan.spending.leaf_event(), sums.shape)
        seen = signed(self._mesh.reveal(LeafShare, noisy.sums, event=noisy.event))
        values = self._told(lambda: self._follow_up.leaf_values(seen), len(seen), -LARGEST_VALUE, LARGEST_VALUE)
        self._follow_up.reach(values)
        self._values.append(values)
        weights = values.astype(np.uint32)
        for leaf, weight in enumerate(weights):  # a few vectors over all rows, without a copy of all of them
            self._scores += self._tree.y[leaf, 1] * weight

    def _partial(self, levels: list[int]) -> PartialTree:
        """What this party knows of a full tree."""
        cut = np.repeat([*levels, -1], [1 << level for level in range(self._plan.depth + 1)])
        own = np.where(cut >= 0, cut - self._plan.first_cut[self._place], -1)
        return self._columns.known_of(own, np.arange(len(cut)) >= (1 << self._plan.depth) - 1)

    def part(self, classes: tuple[object, ...] | None) -> SharedLeavesPart:
        """Its part of the model; leaf values are with the label holder."""
        job, plan = self._job, self._plan
        first_score = self._first_score * 2.0**-SCORE_BITS
        target = Target("logistic", (first_score,), 1.0, classes) if self._is_first else None
        leaves = [
            values.astype(np.uint64) if self._is_first else np.zeros(len(values), np.uint64) for values in self._values
        ]
        meta = {
            "privacy": self._accounts.privacy(),
            "stamp": stamp(job),
            "reveal": job.reveal,
            "gradient_bits": plan.gradient_bits,
            "rounds": {"setup": 3, "training": self._mesh.rounds},
        }
        return SharedLeavesPart(
            self._me.name, job.label_holder, job.holders, job.NAME, job.run_id, self._columns.features,
            tuple(self._trees), tuple(leaves), SCORE_BITS, target, meta,
        )  # fmt: skip
