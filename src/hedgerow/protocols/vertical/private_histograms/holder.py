"""A party with data in vertical.private_histograms. All do the same; the label holder also says what follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from hedgerow.crypto.compare import absolute
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.shares import SUM32, SUM64, Array, Share
from hedgerow.crypto.sigmoid import sigmoid
from hedgerow.crypto.tournament import secret_handles, tournament
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import ProtocolError
from hedgerow.privacy.events import Event, Repeated
from hedgerow.protocols.shares.columns import OneHotColumns, agreed_sizes, exchanged, tell_dealer
from hedgerow.protocols.shares.full_tree import FullTree
from hedgerow.protocols.shares.playing import begin, check_rows_kept
from hedgerow.protocols.shares.supply import Sharing
from hedgerow.protocols.vertical.common.parts import Target
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart
from hedgerow.protocols.vertical.private_histograms.columns import (
    OwnColumns,
    binned_columns,
    check_tree_memory,
    noisy_counts,
)
from hedgerow.protocols.vertical.private_histograms.holding import Holding, newest_kept, signed
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    Chosen,
    CountedColumns,
    HistogramShare,
    LeafShare,
    StartShare,
    StepsThatFit,
    WinnerShare,
)
from hedgerow.protocols.vertical.private_histograms.plan import (
    COLUMNS_PER_LEVEL,
    LARGEST_SCORE,
    SCORE_BITS,
    Lane,
    Plan,
    edge_event,
    edge_sigma,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

LARGEST_STEP = 4.0
"""Of a leaf before the learning rate, in log odds."""

LARGEST_VALUE = LARGEST_SCORE << SCORE_BITS
"""Of a score, and hence of a leaf, in units of 2**-SCORE_BITS."""

_UNIT = 2.0**-SCORE_BITS


@dataclass(frozen=True, eq=False)
class Kept:
    """A party's state after a tree: its share of the scores, what it knows of trees, and what was drawn and spent."""

    counts: tuple[Ints, ...]  # of its own cells, with noise that is drawn once in a run
    begun: Ints
    trees: tuple[PartialTree, ...] = ()
    values: tuple[Ints, ...] = ()
    scores: Array = field(default_factory=lambda: np.empty(0, np.uint32))
    importance: Floats = field(default_factory=lambda: np.empty(0))
    first_score: int = 0
    reached: int = 0
    curvature: float = 0.0
    rounds: int = 0


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData, labels: Floats | None) -> SharedLeavesPart:
    """A party with data, from its table, which fits the schema, to its part of the model."""
    check_tree_memory(me.name, job, data.table)
    cells = OwnColumns(me.name, job, data)
    done, kept = me.go_on(Kept, job)
    newest = newest_kept(me, job, Kept)
    begin(me, job, data)
    sigma = edge_sigma(job, len(cells.counted))
    if newest is None:
        counts = noisy_counts(cells, sigma, me.rng)
    else:
        counts = dict(zip(cells.counted, newest.counts, strict=True))
    begun = np.zeros(0, np.int64) if newest is None else newest.begun
    state = replace(kept or Kept((), begun), counts=tuple(counts.values()), begun=begun)
    if newest is None:
        me.keep(0, state)  # before edges are told
    columns = binned_columns(me.name, cells, counts, sigma, job.max_bins)
    edges = _all_edges(me, job, len(cells.counted))
    sizes = agreed_sizes(me, job, columns)
    plan = Plan.of(job, sizes)
    tell_dealer(me, job, sizes)
    growing = Growing(me, job, plan, columns, edges, n_threads=data.n_threads)
    growing.take_up(state, newest)
    n_trees = growing.n_that_fit(done)
    growing.share_labels(labels)
    if not done:
        growing.start()
    for tree in growing.trees(done, n_trees):
        growing.grow(tree)
        growing.keep()
    return growing.part(data.classes if labels is not None else None)


def _all_edges(me: Party, job: PrivateHistogramsJob, n_mine: int) -> list[Event]:
    """What everybody's edges cost: this party's own are told to all others before the numbers of its bins."""
    events = []
    for party in job.holders:
        if party == me.name:
            event = edge_event(job, n_mine)
            for other in job.holders:
                if other != me.name:
                    me.send(other, CountedColumns(n_mine), event=event)
        else:
            n_counted = me.recv(party, CountedColumns, most_columns=job.most_columns).n_counted
            event = edge_event(job, n_counted)
        events += [] if event is None else [event]
    return events


class Growing(Holding):
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
        super().__init__(me, job, n_threads)
        self._plan, self._columns = plan, columns
        self._sharing = Sharing(me, job.holders)
        step = self.supply.without_parcel(Lane.COLUMNS)
        hidden = exchanged(me, job.holders, step, columns.minus, plan.matrices, keep_own=False)
        self._tree = FullTree(self.mesh, hidden, columns, plan.matrices, plan.depth, self.place, n_threads=n_threads)
        self._follow_up = FollowUp(plan, job.boosting.learning_rate)
        for event in edges:
            self.count(event)
        self._trees: list[PartialTree] = []
        self._values: list[Ints] = []
        self._importance: Floats = np.empty(0)  # of all columns, at the label holder

    # --- attempts ----------------------------------------------------------------------------------------------------

    def take_up(self, kept: Kept, newest: Kept | None) -> None:
        """Go on from what was kept, if anything, with all that was spent."""
        self.take_up_spending(self._plan.spending.releases(), None if newest is None else newest.begun)
        self._counts, self._rounds, self._rounds_before = kept.counts, kept.rounds, kept.rounds
        self._trees, self._values = list(kept.trees), list(kept.values)
        self._scores, self._first_score = kept.scores, kept.first_score
        if self._trees:
            check_rows_kept(self.me.name, len(kept.scores), self._plan.n_rows)
            self._follow_up.reached, self._follow_up.curvature = kept.reached, kept.curvature
        if len(kept.importance):
            self._importance = kept.importance
            self._draws = Columns(kept.importance, self.job.boosting.seed)
            for _ in self._trees:
                self._draws.draw(self._plan.depth)
        if self.me.attempt > 1:
            self.keep()  # in place of later trees, whose shares others may not have

    def keep(self) -> None:
        """After the trees that are finished, with what was spent since."""
        follow_up = self._follow_up
        state = Kept(
            self._counts, self.begun, tuple(self._trees), tuple(self._values), self._scores, self._importance,
            self._first_score, follow_up.reached, follow_up.curvature, self._rounds,
        )  # fmt: skip
        self.me.keep(len(self._trees), state)

    def n_that_fit(self, done: int) -> int:
        """How many trees there will be, with those of earlier attempts; BudgetExceeded if there is room for none."""
        plan, spending = self._plan, self._plan.spending
        if self.me.attempt == 1:
            return plan.n_trees
        start, *after = spending.releases()
        before = [] if done else [start, *after[plan.depth + 1 :]]  # the survey
        n_trees = plan.n_trees
        while n_trees > done and not self.fits([*before, Repeated(spending.tree_event(), n_trees - done)]):
            n_trees -= 1
        if not n_trees:
            raise self.no_room()
        if self.is_first:
            self.me.send(self.job.dealer, StepsThatFit(n_trees))
        return n_trees

    def _told(self, say: Callable[[], Ints], n: int, lowest: int, highest: int) -> Ints:
        """What follows from released numbers: the label holder computes it, so that all have the same."""
        if self.is_first:
            values = say()
            self.me.send_all(self.job.feature_holders, Chosen(values))
            return values
        return self.me.recv(self.job.label_holder, Chosen, n_values=n, lowest=lowest, highest=highest).values

    # --- trees -------------------------------------------------------------------------------------------------------

    def share_labels(self, labels: Floats | None) -> None:
        """Shares of the labels, new ones in every attempt."""
        if labels is not None:
            self._labels = self._sharing.share(labels.astype(np.uint32), SUM32, Label()).words
        else:
            self._labels = self._sharing.take(self.job.label_holder, self._plan.n_rows, SUM32, Label()).words

    def start(self) -> None:
        """The first score follows from the noisy number of positive rows."""
        plan = self._plan
        self.supply.begin(0, 0, 1)
        total = np.asarray([self._labels.sum(dtype=np.uint32)])
        event = plan.spending.start_event()
        noisy = self.noisy(total, Lane.START, 0, event, 1)
        positives = int(signed(self.mesh.reveal(StartShare, noisy, event=event))[0])
        self.supply.finish()
        first = self._told(lambda: self._follow_up.first_score(positives), 1, -LARGEST_VALUE, LARGEST_VALUE)
        self._follow_up.reach(first)
        self._first_score = int(first[0])
        self._scores = np.full(plan.n_rows, self._first_score if self.is_first else 0, np.int64).astype(np.uint32)

    def grow(self, tree: int) -> None:
        """One tree."""
        plan = self._plan
        with self._stage(tree, 0):
            gradients = self.gradients()
            self._tree.begin(self.supply.step(Lane.SUMS), gradients)
        levels: list[int] = []
        for level in range(plan.depth):
            with self._stage(tree, level + 1):
                sums = self._tree.sums()
                levels.append(self._winner(level, sums) if plan.reveal == WINNER else self._best(level, sums))
                self._tree.divide(self.supply.step(Lane.SIDES), self._shared_sides(tree, level, levels[-1]))
        with self._stage(tree, plan.depth + 1):
            self._settle()
        self._trees.append(self._partial(levels))
        self._rounds = self._rounds_before + self.mesh.rounds

    def _stage(self, tree: int, number: int) -> AbstractContextManager[None]:
        return self.stage(tree + 1, number, self._plan.n_parcels(tree, number))

    def gradients(self) -> Array:
        """Shares of p - y of all rows, in units of 2**-gradient_bits."""
        plan = self._plan
        scores = Share(self._scores.astype(np.uint64), SUM64)  # 32 bits are enough for a sine: modulo 2**32
        talk = sigmoid(self.supply.step(Lane.GRADIENTS), scores, plan.sigmoid, is_first=self.is_first)
        p = self.mesh.talk(talk).words.astype(np.uint32)
        return p - (self._labels << np.uint32(plan.gradient_bits))

    # --- splits ------------------------------------------------------------------------------------------------------

    def _winner(self, level: int, histograms: Array) -> int:
        """The possible split that won a level, if it is this party's own; else -1 - its owner."""
        plan = self._plan
        own = plan.owner_of_cut == self.place
        mine = secret_handles(self.me.rng, 1, int(plan.first_cut[self.place]), int(own.sum()))[0]
        handles = np.zeros((1, plan.n_candidates), np.uint32)
        handles[0, own] = mine
        utilities = self._utilities(level, histograms)
        event = plan.spending.choice_event()
        self.spend(1 + level, event)
        winner = self._contest(utilities, handles)
        won = int(self.mesh.reveal(WinnerShare, winner, event=event)[0])
        if won >= plan.n_candidates:
            raise ProtocolError("a winner's handle is nobody's: some party sent words that are not shares of it")
        owner = int(plan.owner_of_cut[won])
        if owner != self.place:
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
            step = self.supply.step(plan.lane(block))
            talks.append(absolute(step, Share(own, SUM32), plan.tournament.circuit, is_first=self.is_first))
        sizes = [share.words.reshape(-1, plan.n_candidates) for share in self.mesh.talks(talks)]
        return np.asarray(np.concatenate(sizes).sum(axis=0, dtype=np.uint32))

    def _contest(self, utilities: Array, handles: Array) -> Share:
        """A share of the handle of the winner, by utilities with noise that nobody knows."""
        plan, first = self._plan, self.is_first
        noise = self.supply.step(Lane.WINNER).share(plan.n_candidates, SUM64).words.astype(np.uint32)
        whole = plan.tournament.kind
        one = np.full((1, plan.n_candidates, 1), first, np.uint32)  # whole numbers are fractions over 1
        talk = tournament(
            self.steps(Lane.WINNER, 1),
            Share((utilities + noise).reshape(1, -1, 1), whole),
            Share(one, whole),
            Share(handles, SUM32),
            plan.tournament,
            is_first=first,
        )
        return self.mesh.talk(talk)

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
                    f"{self.job.label_holder} chose columns {by_level.tolist()}, which are not in order"
                )
            self._columns_of_level = by_level.tolist()
        columns = self._columns_of_level[level]
        sums, event = self._bins_of(columns, histograms), spending.histogram_event(level)
        noisy = self.noisy(sums, Lane.HISTOGRAMS, 1 + level, event, (len(sums), spending.released.most_bins))
        seen = signed(self.mesh.reveal(HistogramShare, noisy, event=event))
        cut = int(self._told(lambda: np.array([self._follow_up.best(seen, columns)]), 1, 0, plan.n_candidates - 1)[0])
        owner = int(plan.owner_of_cut[cut])
        return cut if owner == self.place else -1 - owner

    def _take_survey(self, histograms: Array) -> None:
        """Noisy histograms of all columns at the first root: which ones matter, to whoever draws columns."""
        every = list(range(len(self._plan.codes)))
        sums, event = self._bins_of(every, histograms)[0], self._plan.spending.survey_event()
        noisy = self.noisy(sums, Lane.SURVEY, len(self.begun) - 1, event, len(sums))
        seen = signed(self.mesh.reveal(HistogramShare, noisy, event=event))
        if self.is_first:
            self._importance = self._follow_up.importance(seen)
            self._draws = Columns(self._importance, self.job.boosting.seed)

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
            packed = self._columns.goes_left(cut - int(plan.first_cut[self.place]))
            left = np.unpackbits(packed, count=plan.n_rows).astype(np.uint32)
            return self._sharing.share(left, SUM32, label).words
        return self._sharing.take(self.job.holders[-1 - cut], plan.n_rows, SUM32, label).words

    # --- leaves ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Values of leaves from noisy sums, and shares of the scores with them."""
        plan = self._plan
        sums, event = self._tree.totals, plan.spending.leaf_event()
        sums[:, 1] *= np.uint32(plan.spending.count_unit)
        noisy = self.noisy(sums, Lane.LEAVES, 1 + plan.depth, event, sums.shape)
        seen = signed(self.mesh.reveal(LeafShare, noisy, event=event))
        values = self._told(lambda: self._follow_up.leaf_values(seen), len(seen), -LARGEST_VALUE, LARGEST_VALUE)
        self._follow_up.reach(values)
        self._values.append(values)
        weights = values.astype(np.uint32)
        for leaf, weight in enumerate(weights):  # a few vectors over all rows, without a copy of all of them
            self._scores += self._tree.y[leaf, 1] * weight

    def _partial(self, levels: list[int]) -> PartialTree:
        """What this party knows of a full tree."""
        cut = np.repeat([*levels, -1], [1 << level for level in range(self._plan.depth + 1)])
        own = np.where(cut >= 0, cut - self._plan.first_cut[self.place], -1)
        return self._columns.known_of(own, np.arange(len(cut)) >= (1 << self._plan.depth) - 1)

    def part(self, classes: tuple[object, ...] | None) -> SharedLeavesPart:
        """Its part of the model; leaf values are with the label holder."""
        job, plan = self.job, self._plan
        first_score = self._first_score * 2.0**-SCORE_BITS
        target = Target("logistic", (first_score,), 1.0, classes) if self.is_first else None
        leaves = [
            values.astype(np.uint64) if self.is_first else np.zeros(len(values), np.uint64) for values in self._values
        ]
        meta = self.meta(plan.gradient_bits, 3, self._rounds, plan.n_trees - len(self._trees))
        return SharedLeavesPart(
            self.me.name, job.label_holder, job.holders, job.NAME, job.run_id, self._columns.features,
            tuple(self._trees), tuple(leaves), SCORE_BITS, target, meta,
        )  # fmt: skip


# --- what follows from released numbers ------------------------------------------------------------------------------


class FollowUp:
    """Scores and leaf values are whole numbers in units of 2**-SCORE_BITS, sums in units of 2**-gradient_bits.

    The label holder computes what follows, and everybody keeps count of how far scores can be from 0 by now: beyond
    LARGEST_SCORE the logistic function on shares is wrong, gradients are not bounded, and nothing would be private.
    """

    def __init__(self, plan: Plan, learning_rate: float) -> None:
        self._plan, self._rate = plan, learning_rate
        self._unit = 2.0**-plan.gradient_bits
        self.reached = 0  # no score is further from 0
        self.curvature = 0.25

    def first_score(self, positives: int) -> Ints:
        """Log odds of the noisy share of positive rows, kept away from 0 and 1."""
        n_rows = self._plan.n_rows
        least = min(max(0.5 / n_rows, 1e-4), 0.5)
        share = min(max(positives / n_rows, least), 1.0 - least)
        self.curvature = share * (1.0 - share)
        return np.array([round(math.log(share / (1.0 - share)) / _UNIT)], np.int64)

    def leaf_values(self, noisy: Ints) -> Ints:
        """A Newton step for each leaf, with the curvature of the first score; noise in the denominator shrinks it."""
        spending = self._plan.spending
        gradient = noisy[:, 0] * self._unit
        count = np.maximum(noisy[:, 1] / spending.count_unit, 0.0)
        noise = spending.leaf_sigma * self._unit
        step = -gradient / (count * self.curvature + self._plan.lambda_int + noise)
        step = self._rate * np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        room = LARGEST_VALUE - self.reached
        values: Ints = np.clip(np.trunc(step / _UNIT), -room, room).astype(np.int64)
        return values

    def reach(self, values: Ints) -> None:
        """Everybody: rows get these scores more. ProtocolError if some could be beyond LARGEST_SCORE."""
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if self.reached + largest > LARGEST_VALUE:
            raise ProtocolError(
                f"the label holder chose values with which scores can be beyond {LARGEST_SCORE}: gradients would not "
                "be bounded, and what is released would not be private"
            )
        self.reached += largest

    def importance(self, survey: Ints) -> Floats:
        """Of each of all columns: the utility of its best split at the first root, less what noise alone would give."""
        every = list(range(len(self._plan.codes)))
        utilities = self._utilities(survey[None], every, self._plan.spending.survey_sigma)
        found = np.zeros(len(every))
        np.maximum.at(found, self._plan.column_of_cut, utilities)
        return found

    def best(self, noisy: Ints, columns: list[int]) -> int:
        """The split of a level with the largest noisy utility, less what noise alone would give."""
        return int(np.argmax(self._utilities(noisy, columns, self._plan.spending.histogram_sigma)))

    def _utilities(self, noisy: Ints, columns: list[int], sigma: float) -> Floats:
        """Of all possible splits, -1 for those of other columns, from noisy histograms [nodes, bins of the columns]."""
        plan = self._plan
        found = np.full(plan.n_candidates, -1.0)
        ends = np.cumsum([plan.codes[column] for column in columns])[:-1]
        for column, sums in zip(columns, np.split(noisy * self._unit, ends, axis=1), strict=True):
            own = np.flatnonzero(plan.column_of_cut == column)
            last, missing_left = plan.all_cuts.bin[own], plan.all_cuts.missing_left[own]
            left = np.cumsum(sums, axis=1)[:, last] + sums[:, -1:] * missing_left
            n_left = last + 1 + missing_left
            sides = ((left, n_left), (sums.sum(axis=1, keepdims=True) - left, sums.shape[1] - n_left))
            found[own] = sum(
                np.maximum(np.abs(side) - sigma * self._unit * np.sqrt(n), 0.0).sum(axis=0) for side, n in sides
            )
        return found


class Columns:
    """Which columns' histograms are released: the more a column mattered at first, the likelier; public randomness."""

    def __init__(self, importance: Floats, seed: int) -> None:
        chances = importance + max(float(importance.mean()), 1e-9)
        self._chances, self._rng = chances / chances.sum(), np.random.default_rng(seed)

    def draw(self, depth: int) -> Ints:
        """For each level of a tree, in ascending order: [depth, columns]."""
        n = len(self._chances)
        drawn = [
            np.sort(self._rng.choice(n, min(COLUMNS_PER_LEVEL, n), replace=False, p=self._chances))
            for _ in range(depth)
        ]
        return np.array(drawn, np.int64)
