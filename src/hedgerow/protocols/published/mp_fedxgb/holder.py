"""A party with data in vertical.mp_fedxgb. All do the same on shares; who has labels, or opens something, does more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import multiplied
from hedgerow.crypto.choosing import chosen
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.division import descended, iterations_needed, quotients
from hedgerow.crypto.lifting import gains, lift
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import SUM64, Array, Share, as_bytes
from hedgerow.engine.dtypes import SCORE, Bools, Ints
from hedgerow.engine.rows import Rows
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.mp_fedxgb.argmax import Round, fractions, is_negative, is_positive
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, STAMP, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import (
    Better,
    DenominatorShare,
    NumeratorShare,
    NumeratorSigns,
    PredictionShare,
    Steps,
    StepShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.published.mp_fedxgb.plan import MU, Lane, Plan
from hedgerow.protocols.shares.columns import OneHotColumns, agreed_sizes, exchanged, filled, tell_dealer
from hedgerow.protocols.shares.full_tree import divide
from hedgerow.protocols.shares.playing import Player, begin, check_rows_kept, checked_labels
from hedgerow.protocols.shares.supply import Sharing
from hedgerow.protocols.vertical.common.agreement import check_table
from hedgerow.protocols.vertical.common.drawing import ColumnRules, RowDraw
from hedgerow.protocols.vertical.common.joint_forest import packed_columns
from hedgerow.protocols.vertical.common.messages import Onward
from hedgerow.protocols.vertical.common.parts import Target
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart
from hedgerow.protocols.vertical.common.watching import Watch, hear, watched_rows
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


@dataclass(frozen=True, eq=False)
class Kept:
    """A party's state after a tree: what it knows of trees, its shares of their leaves, and P1's scores.

    Perturbations of the next tree's leaves are kept before they are sent. A tree that breaks is grown again from the
    same scores, so what is opened with them is the same number: with new ones P1 could take the mean of several.
    """

    trees: tuple[PartialTree, ...]
    weights: tuple[Array, ...]
    scores: Array  # [1, rows] at the label holder
    perturbations: Array  # of the next tree; none if they are still to be drawn
    rounds: int
    curve: tuple[float, ...] = ()  # of rows that the label holder watches: the metric after each tree


def holder(me: Party, job: MpFedXgbJob, data: PartyData | None) -> SharedLeavesPart:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = Labels(me.name, job, data) if me.name == job.label_holder else None
    columns = OneHotColumns.by_quantiles(me.name, job, data)
    done, kept = me.go_on(Kept, job)
    begin(me, job, data)
    sizes = agreed_sizes(me, job, columns)
    plan = Plan.of(job, sizes)
    tell_dealer(me, job, sizes)
    growing = Growing(me, job, data.n_threads, plan, columns, labels)
    if me.attempt > 1:
        growing.take_up(kept or me.kept(0, Kept))
        growing.keep()  # in place of later trees, whose shares others may not have
    return growing.part(growing.train(done))


class Labels:
    """The label holder's labels and scores, from which gradients are made anew for each tree."""

    def __init__(self, party: str, job: MpFedXgbJob, data: PartyData) -> None:
        self._job, self._labels, self._classes = job, checked_labels(party, job, data), data.classes
        self._n_threads, self._data = data.n_threads, data
        self._watched = watched_rows(party, job, data)
        self._draw = RowDraw(job.boosting, data.table.n_rows, self._watched)
        self.watch: Watch | None = None

    def begin(self, me: Party, plan: Plan, columns: OneHotColumns) -> None:
        """Scores are those before the first tree."""
        loss, params = plan.scales.loss, self._job.boosting
        bases = params.base_scores(loss, self._labels[self._draw.learned])
        base = float(bases[0])
        if self._watched is not None:
            self.watch = Watch(self._job, loss, self._data, self._watched, bases, me, known=())
        packed = packed_columns(columns.codes, columns.features, self._n_threads)
        self._rows = Rows(
            packed, self._labels, None, loss, np.array([base]), plan.scales.quantiser, n_threads=self._n_threads
        )
        self._scales, self._unit = plan.scales, 2.0**-plan.descent.fraction_bits
        self.target = Target(loss.name, (base,), params.learning_rate, self._classes)

    @property
    def scores(self) -> Array:
        """Of all rows: [1, rows]."""
        return self._rows.scores

    def take_up(self, me: Party, kept: Kept) -> None:
        """Go on from the scores of an earlier attempt."""
        check_rows_kept(me.name, kept.scores.shape[1], self._rows.n_rows)
        self._rows.scores[:] = kept.scores
        if self._watched is not None:
            loss, bases, n_done = self._scales.loss, np.array(self.target.base_scores), len(kept.curve)
            self.watch = Watch(self._job, loss, self._data, self._watched, bases, me, n_done, known=kept.curve)

    def gradients(self, tree: int) -> Array:
        """Gradients and hessians of all rows as words: [2, rows]; 0 of rows that do not count in this tree."""
        self._rows.gradients()
        packed, counted = self._rows.gradients_packed[0], self._draw.for_iteration(tree)
        return np.stack(self._scales.words(packed if counted is None else np.where(counted, packed, 0)))

    def add(self, values: Array) -> None:
        """Add a tree's values, 64-bit words with `fraction_bits` after the point, to the scores."""
        self._rows.scores[0] += (values.view(np.int64) * (self._unit * self.target.learning_rate)).astype(SCORE)


class Growing(Player[MpFedXgbJob]):
    """Grows trees on shares. Arrays of rows are [2 x nodes, rows]: gradients and hessians of each node in turn."""

    def __init__(
        self,
        me: Party,
        job: MpFedXgbJob,
        n_threads: int,
        plan: Plan,
        columns: OneHotColumns,
        labels: Labels | None,
    ) -> None:
        super().__init__(me, job, n_threads)
        self._plan, self._columns, self._labels = plan, columns, labels
        self._sharing = Sharing(me, job.holders)
        self._hidden = exchanged(
            me, job.holders, self.supply.without_parcel(Lane.COLUMNS), columns.minus, plan.matrices
        )
        self._trees: list[PartialTree] = []
        self._weights: list[Array] = []
        self._perturbations: Array = np.empty(0, np.uint64)
        self._rounds = self._other_rounds = 0  # of all trees; those beside the mesh's
        self._rules = column_rules(job, [len(bins) for bins in plan.sizes.n_bins])
        if labels is not None:
            labels.begin(me, plan, columns)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """What is needed to go on after the trees whose leaves have weights."""
        n_trees, scores = len(self._weights), np.empty((1, 0)) if self._labels is None else self._labels.scores
        trees, weights = tuple(self._trees[:n_trees]), tuple(self._weights)
        watch = None if self._labels is None else self._labels.watch
        curve = () if watch is None else watch.curve
        self.me.keep(n_trees, Kept(trees, weights, scores, self._perturbations, self._rounds, curve))

    def take_up(self, kept: Kept | None) -> None:
        """Go on from what an earlier attempt has kept."""
        if kept is not None:
            self._trees, self._weights, self._perturbations = list(kept.trees), list(kept.weights), kept.perturbations
            self._other_rounds = self._rounds = kept.rounds
            if self._labels is not None:
                self._labels.take_up(self.me, kept)

    # --- trees -------------------------------------------------------------------------------------------------------

    def train(self, done: int) -> int:
        """All trees after those that are done, or as many as rows that are watched are the better for; how many."""
        for tree in self.trees(done):
            if self.job.stops_early and tree and (n_kept := self._onward()):
                return n_kept
            self.grow(tree)
            self.keep()
        return self._onward() if self.job.stops_early else self.job.boosting.n_iterations

    def _onward(self) -> int:
        """The label holder says whether it goes on: 0 if it does, else how many trees are kept."""
        watch = None if self._labels is None else self._labels.watch
        if watch is None:
            return hear(self.me, self.job)
        n_kept = watch.tell(self.me, self.job)
        self.me.send(self.job.dealer, Onward(n_kept))
        return n_kept

    def grow(self, tree: int) -> None:
        """One tree."""
        plan = self._plan
        if self._rules is not None:
            self._rules.begin_tree(tree)
        y = self._shared_gradients(tree)
        levels: list[Ints] = []
        leaves: list[Array] = []
        for level in range(plan.depth):
            with self.stage(tree, level, plan.n_parcels(level)):
                if len(y):
                    cut, y_next = self._grow_level(tree, level, y)
                    levels.append(cut)
                    leaves.append(_totals(y).reshape(-1, 2)[cut < 0])
                    y = y_next
        leaves.append(_totals(y).reshape(-1, 2))
        self._trees.append(self._partial(levels))
        with self.stage(tree, plan.depth, plan.n_parcels(plan.depth)):
            weights = self._leaf_weights(tree, np.concatenate(leaves))
        with self.stage(tree, plan.depth + 1, plan.n_parcels(plan.depth + 1)):
            values = self._predict(tree, weights)
        if self._labels is not None and values is not None:
            self._labels.add(values)
            if self._labels.watch is not None:
                self._labels.watch.see(self._labels.scores)
        self._weights.append(weights)
        self._perturbations = self._perturbations[:0]
        self._rounds = self.mesh.rounds + self._other_rounds

    def _shared_gradients(self, tree: int) -> Array:
        """SHR: gradients and hessians of all rows, at the root."""
        sums, label = self._plan.scales.sums, Label(tree=tree)
        if self._labels is not None:
            return self._sharing.share(self._labels.gradients(tree), sums, label).words
        return self._sharing.take(self.job.label_holder, (2, self._plan.n_rows), sums, label).words

    def _grow_level(self, tree: int, level: int, y: Array) -> tuple[Ints, Array]:
        """What each node is split by, and shares of the children's gradients and hessians."""
        plan, sums = self._plan, self._plan.scales.sums
        step = self.supply.step(Lane.HISTOGRAMS)
        n_vectors = 2 * plan.n_nodes(level)
        b = step.mask((n_vectors, plan.n_rows), sums).words[: len(y)]
        dealt = step.share((n_vectors, plan.matrices.n_bins), sums).words[: len(y)]
        (shown,) = self.mesh.masked_rows(sums, (y, b))
        histograms = rows_times(self._hidden, b, n_threads=self.n_threads)
        histograms += dealt
        histograms[:, plan.matrices.of(self.place)] += self._columns.histograms(shown, self.n_threads)
        n_nodes = len(y) // 2
        argmax = self._by_division if plan.argmax == DIVISION else self._by_fractions
        cut = argmax(tree, level, self._sums(level, histograms, _totals(y)), _totals(y).reshape(n_nodes, 2))
        if self._rules is not None:
            first = np.array([self._rules.first(party) for party in self.job.holders])
            column = first[plan.owner_of_cut[cut]] + plan.all_cuts.column[cut]
            self._rules.split(np.where(cut >= 0, column, -1))
        return cut, self._divided(tree, level, cut, y, b, shown)

    def _sums(self, level: int, histograms: Array, totals: Array) -> tuple[Array, Array, Array, Array]:
        """G_L, H_L, G_R, H_R of all possible splits: [nodes, splits] each."""
        cuts = self._plan.cuts(level)
        left = cuts.left(histograms.reshape(-1, 2, histograms.shape[-1]))
        node = totals.reshape(-1, 2, 1)
        left += node * cuts.missing_left
        if self._rules is not None:
            self._rules.begin_level(len(left))
            left *= self._allowed(self._rules)[:, None, : len(cuts.bin)]  # what has nothing on its left gains nothing
        right = node - left
        return left[:, 0], left[:, 1], right[:, 0], right[:, 1]

    def _allowed(self, rules: ColumnRules) -> Bools:
        """Which possible splits nodes of the level may have: [nodes or 1, splits]."""
        by_party = zip(self.job.holders, self._plan.cuts_by_holder, strict=True)
        return np.concatenate([rules.allowed(party)[:, cuts.column] for party, cuts in by_party], axis=1)

    # --- SecureArgmax ------------------------------------------------------------------------------------------------

    def _by_fractions(self, tree: int, level: int, sums: tuple[Array, ...], totals: Array) -> Ints:
        """The possible split that won each node, or -1, by numerators that P2 sees and denominators that P1 sees."""
        plan, scales, first = self._plan, self._plan.scales, self.is_first
        n_nodes, n_full = len(totals), plan.n_nodes(level)
        steps = self.steps(Lane.ARGMAX)
        four = [Share(filled(words, n_full), scales.sums) for words in sums]
        P, Q = self.mesh.talk(
            gains(steps(0), (four[0], four[1], four[2], four[3]), scales.lambda_int, plan.wide, is_first=first)
        )

        def compare(number: int, played: Round, entered: list[Share]) -> list[Share]:
            pairs = np.stack([played.first, played.first + 1], axis=-1)
            talk = fractions(steps(number + 1), *(each[:, pairs].reshape(-1, 2) for each in entered), is_first=first)
            return [share.reshape(n_full, played.n_pairs)[:n_nodes] for share in self.mesh.talk(talk)]

        left, (P, Q) = self._knocked_out(tree, level, n_nodes, [P, Q], compare)
        gained = self._gains_anything(tree, level, P, Q, totals, len(plan.rounds(level)) + 1)
        return np.where(gained, left, -1)

    def _knocked_out(
        self,
        tree: int,
        level: int,
        n_nodes: int,
        entered: list[Share],
        compare: Callable[[int, Round, list[Share]], list[Share]],
    ) -> tuple[Ints, list[Share]]:
        """The possible split that is left at each node, and its part of what was entered, [full nodes, splits] each.

        `compare` says of each pair of a round by how much the first is better: a fraction, or a number.
        """
        plan, n_full = self._plan, self._plan.n_nodes(level)
        left = np.tile(np.arange(plan.n_candidates(level)), (n_full, 1))
        for number, played in enumerate(plan.rounds(level)):
            where = {"tree": tree, "level": level, "round": number}
            is_better = self._which_is_better(where, *compare(number, played, entered))
            places = played.winners(filled(is_better.reshape(n_nodes, played.n_pairs), n_full))
            left = np.take_along_axis(left, places, axis=1)
            entered = [Share(np.take_along_axis(x.words, places[..., None], axis=1), x.kind) for x in entered]
        return left[:n_nodes, 0], [x[:, 0] for x in entered]

    def _which_is_better(self, where: dict[str, int], numerators: Share, denominators: Share | None = None) -> Bools:
        """Whether the second of each pair is better."""
        above = self.mesh.reveal(NumeratorShare, numerators, to=self.job.numerators_to, fields=where)
        below = None
        if denominators is not None:
            below = self.mesh.reveal(DenominatorShare, denominators, to=self.job.label_holder, fields=where)
        return self.told(above, below, int(np.prod(numerators.shape)), is_negative)

    def told(
        self, numerators: Array | None, denominators: Array | None, n: int, judge: Callable[[Array], Bools]
    ) -> Bools:
        """P2 judges numerators and tells P1; P1, whose denominators, if any, are all positive, tells everybody."""
        p1, p2, n_bytes = self.job.label_holder, self.job.numerators_to, -(-n // 8)
        self._other_rounds += 3  # both openings are one round
        if numerators is not None:
            self.me.send(p1, NumeratorSigns(np.packbits(judge(numerators).reshape(-1))))
        if self.me.name == p1:
            if denominators is not None and not is_positive(denominators).all():
                raise ProtocolError("a denominator is not positive: some party sent words that are not shares of it")
            bits = self.me.recv(p2, NumeratorSigns, n_bytes=n_bytes).bits
            self.me.send_all(self.job.feature_holders, Better(bits))
        else:
            bits = self.me.recv(p1, Better, n_bytes=n_bytes).bits
        return np.unpackbits(bits, count=n).astype(np.bool_)

    def _gains_anything(self, tree: int, level: int, P: Share, Q: Share, totals: Array, number: int) -> Bools:
        """Whether P / Q - G^2 / (H + lambda) is above the threshold, by P (H + lambda) - (G^2 + t (H + lambda)) Q."""
        scales, first, job = self._plan.scales, self.is_first, self.job
        steps, wide = self.steps(Lane.ARGMAX, number), self._plan.wide
        node = Share(filled(totals, len(P.words)).T.copy(), scales.sums)
        lifted = self.mesh.talk(lift(steps(0), node, wide, is_first=first))
        gradient = lifted[0]
        hessian = lifted[1].plus(wide.constant(scales.lambda_int), is_first=first)
        left = Share(np.stack([gradient.words, hessian.words, hessian.words]), wide)
        right = Share(np.stack([gradient.words, P.words, Q.words]), wide)
        products = self.mesh.talk(multiplied(steps(1), left, right, is_first=first))
        squared, above, below = products[0], products[1], products[2]
        stopped = squared + hessian.times(wide.constant(round(scales.threshold)))
        times = self.mesh.talk(multiplied(steps(2), stopped.reshape(1, -1), Q.reshape(1, -1), is_first=first))
        n, where = len(totals), {"tree": tree, "level": level}
        numerators = self.mesh.reveal(TestNumeratorShare, (above - times[0])[:n], to=job.numerators_to, fields=where)
        denominators = self.mesh.reveal(TestDenominatorShare, below[:n], to=job.label_holder, fields=where)
        return self.told(numerators, denominators, n, is_positive)

    def _by_division(self, tree: int, level: int, sums: tuple[Array, ...], totals: Array) -> Ints:
        """The same by quotients: differences of gains are opened to P2, and there are no denominators.

        A quotient is rounded up or down by chance, so of possible splits that gain the same any may win.
        """
        plan, scales, first = self._plan, self._plan.scales, self.is_first
        steps, division = self.steps(Lane.ARGMAX), plan.division(level)
        n_nodes, n_full, wide = len(totals), plan.n_nodes(level), division.kind
        gl, hl, gr, hr = (filled(words, n_full) for words in sums)
        node = filled(totals, n_full)
        both = np.stack([np.concatenate([gl, gr, node[:, :1]], axis=1), np.concatenate([hl, hr, node[:, 1:]], axis=1)])
        lifted = self.mesh.talk(lift(steps(0), Share(both.reshape(2, -1), scales.sums), wide, is_first=first))
        squared = self.mesh.talk(multiplied(steps(1), lifted[0], lifted[0], is_first=first))
        hessians = lifted[1].plus(wide.constant(scales.lambda_int), is_first=first)
        parts = self.mesh.talk(quotients(self.steps(Lane.ARGMAX, 2), squared, hessians, division, is_first=first))
        n = plan.n_candidates(level)
        parts = parts.reshape(n_full, 2 * n + 1)
        gained = parts[:, :n] + parts[:, n : 2 * n]

        def compare(_number: int, played: Round, entered: list[Share]) -> list[Share]:
            return [(entered[0][:, played.first] - entered[0][:, played.first + 1])[:n_nodes]]

        left, (best,) = self._knocked_out(tree, level, n_nodes, [gained], compare)
        enough = wide.constant(-round(scales.threshold * 2**division.fraction_bits))
        last = (best - parts[:, 2 * n]).plus(enough, is_first=first)[:n_nodes]
        where = {"tree": tree, "level": level}
        above = self.mesh.reveal(TestNumeratorShare, last, to=self.job.numerators_to, fields=where)
        wins = self.told(above, None, n_nodes, is_positive)
        return np.where(wins, left, -1)

    # --- rows of children --------------------------------------------------------------------------------------------

    def _divided(self, tree: int, level: int, cut: Ints, y: Array, b: Array, shown: Array) -> Array:
        """[t y] of each node that splits, and [y] - [t y]; t is 1 for rows that go left, and known to the owner."""
        plan, sums = self._plan, self._plan.scales.sums
        step = self.supply.step(Lane.SPLITS)
        n_full, nodes = plan.n_nodes(level), np.flatnonzero(cut >= 0)
        a = step.mask((n_full, plan.n_rows), sums).words[nodes]
        ab = step.share((2 * n_full, plan.n_rows), sums).words.reshape(n_full, 2, -1)[nodes]
        if not len(nodes):
            return y[:0]
        sides = self._shared_sides(tree, level, cut[nodes])
        (e,) = self.mesh.masked_rows(sums, (sides, a))
        shown, b, y = (each.reshape(-1, 1, 2, plan.n_rows) for each in (shown, b, y))
        children = np.empty((len(nodes), 2, 2, plan.n_rows), sums.dtype)
        for k, node in enumerate(nodes):
            divide(ab[k : k + 1], e[k], a[k], b[node], shown[node], y[node], self.is_first, children[k])
        return children.reshape(-1, plan.n_rows)

    def _shared_sides(self, tree: int, level: int, cuts: Ints) -> Array:
        """Shares of which rows go left, shared by the owner of each split."""
        plan, sums = self._plan, self._plan.scales.sums
        owners, label = plan.owner_of_cut[cuts], Label(tree=tree, level=level, step=1)
        sides = np.empty((len(cuts), plan.n_rows), sums.dtype)
        for place, party in enumerate(self.job.holders):
            mine = owners == place
            if not mine.any():
                continue
            if place == self.place:
                own = [self._columns.goes_left(cut) for cut in (cuts[mine] - plan.first_cut[place]).tolist()]
                left = np.unpackbits(np.stack(own), axis=1, count=plan.n_rows).astype(sums.dtype)
                sides[mine] = self._sharing.share(left, sums, label).words
            else:
                sides[mine] = self._sharing.take(party, (int(mine.sum()), plan.n_rows), sums, label).words
        return sides

    # --- SecureLeafWeight --------------------------------------------------------------------------------------------

    def _leaf_weights(self, tree: int, totals: Array) -> Array:
        """Shares modulo 2**64 of all weights, from shares of G and H [leaves, 2]."""
        plan, scales, first = self._plan, self._plan.scales, self.is_first
        n, wide = len(totals), plan.descent.kind
        sums = Share(filled(totals, plan.n_leaves).T.copy(), scales.sums)
        lifted = self.mesh.talk(lift(self.supply.step(Lane.LEAVES), sums, wide, is_first=first))
        b = lifted[0]
        a = lifted[1].plus(wide.constant(scales.lambda_int), is_first=first)
        steps = self._opened_steps(tree, a)
        turns = iterations_needed(steps[:n], MU * scales.lambda_int, plan.ratio, mu=MU)
        weights = self.mesh.talk(
            descended(self.steps(Lane.LEAVES, 1), a, b, steps, turns, plan.descent, is_first=first)
        )
        return np.ascontiguousarray(weights.words[:n, :2]).view(np.uint64)[:, 0]

    def _opened_steps(self, tree: int, a: Share) -> list[int]:
        """a + sigma of all leaves; each party adds a perturbation of its own."""
        plan, job, wide = self._plan, self.job, a.kind
        most = MU * plan.scales.lambda_int // plan.n_holders
        if not len(self._perturbations):
            self._perturbations = self.me.rng.below(most + 1, plan.n_leaves)
            self.keep()
        sigma = limbs.from_words(self._perturbations, wide.limbs)
        perturbed = Share(wide.add(a.words, sigma), wide)
        shown = self.mesh.reveal(StepShare, perturbed, to=job.label_holder, fields={"tree": tree})
        self._other_rounds += 2
        if shown is not None:
            self.me.send_all(job.feature_holders, Steps(tree, as_bytes(shown)))
        else:
            sent = self.me.recv(job.label_holder, Steps, n_bytes=perturbed.words.nbytes)
            if sent.tree != tree:
                raise ProtocolError(f"{job.label_holder} sent the steps of tree {sent.tree}, not of {tree}")
            shown = sent.words.view(wide.dtype).reshape(perturbed.words.shape)
        steps = [int(step) for step in limbs.to_ints(shown)]
        low, high = plan.scales.lambda_int, plan.descent.largest_total
        if not all(low <= step <= high for step in steps):
            raise ProtocolError(
                f"the sums of hessians of leaves are not between {low} and {high}: some party sent words that are no "
                "shares of them"
            )
        return steps

    # --- SecurePredict -----------------------------------------------------------------------------------------------

    def _partial(self, levels: list[Ints]) -> PartialTree:
        """What this party knows of a tree, from the number of the possible split at each node, or -1."""
        plan = self._plan
        n_last = 2 * int(np.count_nonzero(levels[-1] >= 0))
        cut = np.concatenate([*levels, np.full(n_last, -1)])
        is_mine = (cut >= 0) & (plan.owner_of_cut[cut] == self.place)
        return self._columns.known_of(np.where(is_mine, cut - plan.first_cut[self.place], -1), cut < 0)

    def _predict(self, tree: int, weights: Array) -> Array | None:
        """The tree's value for every row, with `fraction_bits` bits after the point, at the label holder."""
        plan, columns = self._plan, self._columns
        missing_codes = [feature.missing_code for feature in columns.features]
        leaves = Share(filled(weights, plan.n_leaves), SUM64)
        values = np.empty(plan.n_rows, np.uint64)
        found: Array | None = None
        for number, rows in enumerate(plan.row_blocks()):
            bits = np.zeros((rows.stop - rows.start, plan.n_leaves), np.uint8)
            bits[:, : len(weights)] = self._trees[-1].indicators(columns.codes[:, rows], missing_codes)
            talk = chosen(self.supply.step(Lane.PREDICTIONS, number), bits, leaves, plan.choosing(rows), me=self.place)
            found = self.mesh.reveal(
                PredictionShare, self.mesh.talk(talk), to=self.job.label_holder, fields={"tree": tree}
            )
            self._other_rounds += 1
            if found is not None:
                values[rows] = found
        if found is None:
            return None
        largest = plan.descent.largest_weight + 1 << plan.descent.fraction_bits  # and what rounding adds
        signed = values.view(np.int64)
        if int(signed.min()) < -largest or int(signed.max()) > largest:
            raise ProtocolError(
                "a tree's value for a row is beyond that of any leaf: some party sent words that are not shares of it"
            )
        return values

    def part(self, n_trees: int) -> SharedLeavesPart:
        """Its part of the model, with the first trees."""
        job, plan = self.job, self._plan
        meta = {
            "privacy": None,
            "stamp": STAMP,
            "argmax": job.argmax,
            "first_layer_mask": job.first_layer_mask,
            "gradient_bits": plan.scales.gradient_bits,
            "rounds": {"setup": 3, "training": self._rounds},
        }
        if self._labels is not None and self._labels.watch is not None:
            meta |= self._labels.watch.record
        return SharedLeavesPart(
            self.me.name,
            job.label_holder,
            job.holders,
            job.NAME,
            job.run_id,
            self._columns.features,
            tuple(self._trees[:n_trees]),
            tuple(self._weights[:n_trees]),
            plan.descent.fraction_bits,
            None if self._labels is None else self._labels.target,
            meta,
        )


def column_rules(job: MpFedXgbJob, n_columns: Sequence[int]) -> ColumnRules | None:
    """What nodes may ask about, by the numbers of all holders' columns; None if they may ask about all."""
    if not ColumnRules.matter(job.boosting):
        return None
    counts = dict(zip(job.holders, n_columns, strict=True))
    return ColumnRules(job.NAME, job.boosting, {party: counts[party] for party in job.parties})


def _totals(y: Array) -> Array:
    """Sums over all rows, in the ring: [vectors]."""
    return np.asarray(y.sum(axis=1, dtype=y.dtype))
