"""A party with data in vertical.mp_fedxgb. All do the same on shares; who has labels, or opens something, does more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.choosing import chosen
from hedgerow.crypto.dealing import HandStep, Label
from hedgerow.crypto.descent import descended, iterations_needed
from hedgerow.crypto.division import quotients
from hedgerow.crypto.lifting import gains, lift
from hedgerow.crypto.rounds import Conversation, Masked, Talk, opened
from hedgerow.crypto.shares import SUM64, Array, Share
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.mp_fedxgb.argmax import fractions, multiplied, public
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, STAMP, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.labels import Labels
from hedgerow.protocols.published.mp_fedxgb.messages import (
    DenominatorShare,
    NumeratorShare,
    PredictionShare,
    Steps,
    StepShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.published.mp_fedxgb.openings import Openings, is_negative, is_positive
from hedgerow.protocols.published.mp_fedxgb.plan import (
    ARGMAX,
    COLUMNS,
    HISTOGRAMS,
    LEAVES,
    MU,
    PREDICTIONS,
    SPLITS,
    Plan,
)
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.shares.masked_columns import exchanged
from hedgerow.protocols.shares.mesh import Mesh, as_bytes, as_words
from hedgerow.protocols.shares.rows_messages import LevelDone, MaskedBins
from hedgerow.protocols.shares.sharing import Sharing
from hedgerow.protocols.shares.sizes import agreed_sizes, tell_dealer
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.common.shared_parts import FOREIGN, LEAF, PartialTree, SharedLeavesPart
from hedgerow.protocols.vertical.common.tables import begin_as_feature_holder, begin_as_label_holder, check_table
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

Result = TypeVar("Result")


def holder(me: Party, job: MpFedXgbJob, data: PartyData | None) -> SharedLeavesPart:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = Labels(me.name, job, data) if me.name == job.label_holder else None
    columns = OneHotColumns.by_quantiles(me.name, job, data)
    if labels is None:
        begin_as_feature_holder(me, job, data)
    else:
        begin_as_label_holder(me, job, data)
    plan = _agreed_plan(me, job, columns)
    growing = _Growing(me, job, plan, columns, n_threads=data.n_threads)
    if labels is not None:
        labels.begin(plan, columns)
    trees = job.boosting.n_iterations
    for tree in range(trees):
        if labels is not None:
            me.report(tree, trees)
        growing.grow(tree, labels)
    if labels is not None:
        me.report(trees, trees)
    return growing.part(labels)


def _agreed_plan(me: Party, job: MpFedXgbJob, columns: OneHotColumns) -> Plan:
    """Sizes of everybody's columns, which everybody gets to know."""
    sizes = agreed_sizes(me, job, columns)
    plan = Plan.of(job, sizes)
    tell_dealer(me, job, sizes)
    return plan


class _Growing:
    """Grows trees on shares. Arrays of rows are [2 x nodes, rows]: gradients and hessians of each node in turn."""

    def __init__(self, me: Party, job: MpFedXgbJob, plan: Plan, columns: OneHotColumns, *, n_threads: int) -> None:
        self._me, self._job, self._plan, self._columns, self._n_threads = me, job, plan, columns, n_threads
        self._place = job.holders.index(me.name)
        self._is_first = self._place == 0
        self._supply = Supply(me, job.dealer, job.holders)
        self._sharing = Sharing(me, job.holders)
        self._mesh, self._openings = Mesh(me, job.holders), Openings(me, job)
        step = self._supply.without_parcel(COLUMNS)
        self._hidden = exchanged(me, job.holders, step, columns, plan.matrices, MaskedBins)
        self._trees: list[PartialTree] = []
        self._weights: list[Array] = []

    # --- trees -------------------------------------------------------------------------------------------------------

    def grow(self, tree: int, labels: Labels | None) -> None:
        """One tree."""
        y = self._shared_gradients(tree, labels)
        levels: list[Ints] = []
        leaves: list[Array] = []
        for level in range(self._plan.depth):
            self._begin(tree, level)
            if len(y):
                cut, y_next = self._grow_level(tree, level, y)
                levels.append(cut)
                leaves.append(_totals(y).reshape(-1, 2)[cut < 0])
                y = y_next
            self._end()
        leaves.append(_totals(y).reshape(-1, 2))
        self._trees.append(self._partial(levels))
        self._begin(tree, self._plan.depth)
        weights = self._leaf_weights(tree, np.concatenate(leaves))
        self._weights.append(weights)
        self._end()
        self._begin(tree, self._plan.depth + 1)
        values = self._predict(tree, weights)
        self._end()
        if labels is not None and values is not None:
            labels.add(values)

    def _begin(self, tree: int, stage: int) -> None:
        self._supply.begin(tree, stage, self._plan.n_parcels(stage))

    def _end(self) -> None:
        self._supply.finish()
        if self._is_first:
            self._me.send(self._job.dealer, LevelDone())

    def _talk(self, talk: Talk[Result]) -> Result:
        return self._mesh.talk([Conversation(talk)])[0]

    def _steps(self, lane: str, first: int) -> Callable[[int], HandStep]:
        return lambda number: self._supply.step(lane, first + number)

    def _shared_gradients(self, tree: int, labels: Labels | None) -> Array:
        """SHR: gradients and hessians of all rows, at the root."""
        sums, label = self._plan.scales.sums, Label(tree=tree)
        if labels is not None:
            return self._sharing.share(labels.gradients(), sums, label).words
        return self._sharing.take(self._job.label_holder, (2, self._plan.n_rows), sums, label).words

    def _grow_level(self, tree: int, level: int, y: Array) -> tuple[Ints, Array]:
        """What each node is split by, and shares of the children's gradients and hessians."""
        plan, sums = self._plan, self._plan.scales.sums
        step = self._supply.step(HISTOGRAMS)
        n_vectors = 2 * plan.n_nodes(level)
        b = step.mask((n_vectors, plan.n_rows), sums).words[: len(y)]
        dealt = step.share((n_vectors, plan.matrices.n_bins), sums).words[: len(y)]
        shown = self._opened_rows(y - b)
        histograms = rows_times(self._hidden, b, sums, n_threads=self._n_threads)
        histograms += dealt
        histograms[:, plan.matrices.of(self._place)] += self._columns.histograms(shown, self._n_threads)
        n_nodes = len(y) // 2
        argmax = self._by_division if plan.argmax == DIVISION else self._by_fractions
        cut = argmax(tree, level, self._sums(level, histograms, _totals(y)), _totals(y).reshape(n_nodes, 2))
        return cut, self._divided(tree, level, cut, y, b, shown)

    def _opened_rows(self, words: Array) -> Array:
        """What everybody's words [vectors, rows] make, in messages of bounded size."""
        sums = self._plan.scales.sums
        blocks = [
            self._talk(opened(Masked("rows", np.ascontiguousarray(words[:, rows]), sums)))
            for rows in self._plan.vector_blocks(len(words))
        ]
        return np.concatenate(blocks, axis=1)

    def _sums(self, level: int, histograms: Array, totals: Array) -> tuple[Array, Array, Array, Array]:
        """G_L, H_L, G_R, H_R of all possible splits: [nodes, splits] each."""
        cuts = self._plan.cuts(level)
        left = cuts.left(histograms.reshape(-1, 2, histograms.shape[-1]))
        node = totals.reshape(-1, 2, 1)
        left += node * cuts.missing_left
        right = node - left
        return left[:, 0], left[:, 1], right[:, 0], right[:, 1]

    # --- SecureArgmax ------------------------------------------------------------------------------------------------

    def _by_fractions(self, tree: int, level: int, sums: tuple[Array, ...], totals: Array) -> Ints:
        """The possible split that won each node, or -1, by numerators that P2 sees and denominators that P1 sees."""
        plan, scales, first = self._plan, self._plan.scales, self._is_first
        n_nodes, n_full = len(totals), plan.n_nodes(level)
        steps = self._steps(ARGMAX, 0)
        four = [Share(_filled(words, n_full), scales.sums) for words in sums]
        P, Q = self._talk(
            gains(steps(0), (four[0], four[1], four[2], four[3]), scales.lambda_int, plan.wide, is_first=first)
        )
        left = np.tile(np.arange(plan.n_candidates(level)), (n_full, 1))
        played = plan.rounds(level)
        for number, compared in enumerate(played, start=1):
            second = compared.first + 1
            pairs = np.stack([compared.first, second], axis=-1)
            talk = fractions(steps(number), _pairs(P, pairs), _pairs(Q, pairs), is_first=first)
            numerators, denominators = (share.reshape(n_full, compared.n_pairs)[:n_nodes] for share in self._talk(talk))
            is_better = self._signs(numerators, denominators, tree, level, number - 1)
            places = compared.winners(_filled(is_better.reshape(n_nodes, compared.n_pairs), n_full))
            left = np.take_along_axis(left, places, axis=1)
            P, Q = (Share(np.take_along_axis(x.words, places[..., None], axis=1), plan.wide) for x in (P, Q))
        gained = self._gains_anything(tree, level, P[:, 0], Q[:, 0], totals, len(played) + 1)
        return np.where(gained, left[:n_nodes, 0], -1)

    def _signs(self, numerators: Share, denominators: Share, tree: int, level: int, number: int) -> Bools:
        """Whether the second of each pair is better."""
        job, where = self._job, {"tree": tree, "level": level, "round": number}
        n = int(np.prod(numerators.shape))
        above = self._openings.to(job.numerators_to, numerators, NumeratorShare, **where)
        below = self._openings.to(job.label_holder, denominators, DenominatorShare, **where)
        return self._openings.signs(above, below, n, is_negative)

    def _gains_anything(self, tree: int, level: int, P: Share, Q: Share, totals: Array, number: int) -> Bools:
        """Whether P / Q - G^2 / (H + lambda) is above the threshold, by P (H + lambda) - (G^2 + t (H + lambda)) Q."""
        scales, first, job = self._plan.scales, self._is_first, self._job
        steps, wide = self._steps(ARGMAX, number), self._plan.wide
        node = Share(_filled(totals, len(P.words)).T.copy(), scales.sums)
        lifted = self._talk(lift(steps(0), node, wide, is_first=first))
        gradient = lifted[0]
        hessian = lifted[1].plus(public(scales.lambda_int, wide), is_first=first)
        left = Share(np.stack([gradient.words, hessian.words, hessian.words]), wide)
        right = Share(np.stack([gradient.words, P.words, Q.words]), wide)
        products = self._talk(multiplied(steps(1), left, right, is_first=first))
        squared, above, below = products[0], products[1], products[2]
        stopped = squared + hessian.times(public(round(scales.threshold), wide))
        times = self._talk(multiplied(steps(2), stopped.reshape(1, -1), Q.reshape(1, -1), is_first=first))
        n, where = len(totals), {"tree": tree, "level": level}
        numerators = self._openings.to(job.numerators_to, (above - times[0])[:n], TestNumeratorShare, **where)
        denominators = self._openings.to(job.label_holder, below[:n], TestDenominatorShare, **where)
        return self._openings.signs(numerators, denominators, n, is_positive)

    def _by_division(self, tree: int, level: int, sums: tuple[Array, ...], totals: Array) -> Ints:
        """The same by quotients: differences of gains are opened to P2, and there are no denominators.

        A quotient is rounded up or down by chance, so of possible splits that gain the same any may win.
        """
        plan, scales, first = self._plan, self._plan.scales, self._is_first
        steps, division = self._steps(ARGMAX, 0), plan.division(level)
        n_nodes, n_full, wide = len(totals), plan.n_nodes(level), division.kind
        gl, hl, gr, hr = (_filled(words, n_full) for words in sums)
        node = _filled(totals, n_full)
        both = np.stack([np.concatenate([gl, gr, node[:, :1]], axis=1), np.concatenate([hl, hr, node[:, 1:]], axis=1)])
        lifted = self._talk(lift(steps(0), Share(both.reshape(2, -1), scales.sums), wide, is_first=first))
        squared = self._talk(multiplied(steps(1), lifted[0], lifted[0], is_first=first))
        hessians = lifted[1].plus(public(scales.lambda_int, wide), is_first=first)
        parts = self._talk(quotients(self._steps(ARGMAX, 2), squared, hessians, division, is_first=first))
        n = plan.n_candidates(level)
        parts = parts.reshape(n_full, 2 * n + 1)
        gained = parts[:, :n] + parts[:, n : 2 * n]
        left = np.tile(np.arange(n), (n_full, 1))
        for number, compared in enumerate(plan.rounds(level)):
            difference = (gained[:, compared.first] - gained[:, compared.first + 1])[:n_nodes]
            is_better = self._sign_of_difference(difference, tree, level, number)
            places = compared.winners(_filled(is_better.reshape(n_nodes, compared.n_pairs), n_full))
            left = np.take_along_axis(left, places, axis=1)
            gained = Share(np.take_along_axis(gained.words, places[..., None], axis=1), wide)
        enough = public(-round(scales.threshold * 2**division.fraction_bits), wide)
        last = (gained[:, 0] - parts[:, 2 * n]).plus(enough, is_first=first)[:n_nodes]
        where = {"tree": tree, "level": level}
        above = self._openings.to(self._job.numerators_to, last, TestNumeratorShare, **where)
        wins = self._openings.signs(above, self._ones(n_nodes), n_nodes, is_positive)
        return np.where(wins, left[:n_nodes, 0], -1)

    def _sign_of_difference(self, difference: Share, tree: int, level: int, number: int) -> Bools:
        n = int(np.prod(difference.shape))
        where = {"tree": tree, "level": level, "round": number}
        above = self._openings.to(self._job.numerators_to, difference, NumeratorShare, **where)
        return self._openings.signs(above, self._ones(n), n, is_negative)

    def _ones(self, n: int) -> Array | None:
        """Denominators of what is no fraction, at P1."""
        return np.ones((n, 1), np.uint32) if self._is_first else None

    # --- rows of children --------------------------------------------------------------------------------------------

    def _divided(self, tree: int, level: int, cut: Ints, y: Array, b: Array, shown: Array) -> Array:
        """[t y] of each node that splits, and [y] - [t y]; t is 1 for rows that go left, and known to the owner."""
        plan, sums = self._plan, self._plan.scales.sums
        step = self._supply.step(SPLITS)
        n_full, nodes = plan.n_nodes(level), np.flatnonzero(cut >= 0)
        a = step.mask((n_full, plan.n_rows), sums).words[nodes]
        ab = step.share((2 * n_full, plan.n_rows), sums).words.reshape(n_full, 2, -1)[nodes]
        if not len(nodes):
            return y[:0]
        sides = self._shared_sides(tree, level, cut[nodes])
        e = self._opened_rows(sides - a)[:, None]
        F, B = shown.reshape(-1, 2, plan.n_rows)[nodes], b.reshape(-1, 2, plan.n_rows)[nodes]
        left = ab + e * B + F * a[:, None]
        if self._is_first:
            left += e * F
        children = np.empty((len(nodes), 2, 2, plan.n_rows), sums.dtype)
        children[:, 0] = left
        children[:, 1] = y.reshape(-1, 2, plan.n_rows)[nodes] - left
        return children.reshape(-1, plan.n_rows)

    def _shared_sides(self, tree: int, level: int, cuts: Ints) -> Array:
        """Shares of which rows go left, shared by the owner of each split."""
        plan, sums = self._plan, self._plan.scales.sums
        owners, label = plan.owner_of_cut[cuts], Label(tree=tree, level=level, step=1)
        sides = np.empty((len(cuts), plan.n_rows), sums.dtype)
        for place, party in enumerate(self._job.holders):
            mine = owners == place
            if not mine.any():
                continue
            if place == self._place:
                own = [self._columns.goes_left(cut) for cut in (cuts[mine] - plan.first_cut[place]).tolist()]
                left = np.unpackbits(np.stack(own), axis=1, count=plan.n_rows).astype(sums.dtype)
                sides[mine] = self._sharing.share(left, sums, label).words
            else:
                sides[mine] = self._sharing.take(party, (int(mine.sum()), plan.n_rows), sums, label).words
        return sides

    # --- SecureLeafWeight --------------------------------------------------------------------------------------------

    def _leaf_weights(self, tree: int, totals: Array) -> Array:
        """Shares modulo 2**64 of all weights, from shares of G and H [leaves, 2]."""
        plan, scales, first = self._plan, self._plan.scales, self._is_first
        n, wide = len(totals), plan.descent.kind
        sums = Share(_filled(totals, plan.n_leaves).T.copy(), scales.sums)
        lifted = self._talk(lift(self._supply.step(LEAVES), sums, wide, is_first=first))
        b = lifted[0]
        a = lifted[1].plus(public(scales.lambda_int, wide), is_first=first)
        steps = self._opened_steps(tree, a)
        turns = iterations_needed(steps[:n], MU * scales.lambda_int, plan.ratio, mu=MU)
        weights = self._talk(descended(self._steps(LEAVES, 1), a, b, steps, turns, plan.descent, is_first=first))
        return np.ascontiguousarray(weights.words[:n, :2]).view(np.uint64)[:, 0]

    def _opened_steps(self, tree: int, a: Share) -> list[int]:
        """a + sigma of all leaves; each party adds a perturbation of its own."""
        plan, job, wide = self._plan, self._job, a.kind
        most = MU * plan.scales.lambda_int // plan.n_holders
        sigma = limbs.from_words(self._me.rng.below(most + 1, plan.n_leaves), wide.limbs)
        perturbed = Share(wide.add(a.words, sigma), wide)
        shown = self._openings.to(job.label_holder, perturbed, StepShare, tree=tree)
        self._openings.rounds += 2
        if shown is not None:
            self._me.send_all(job.feature_holders, Steps(tree, as_bytes(shown)))
        else:
            sent = self._me.recv(job.label_holder, Steps, n_bytes=perturbed.words.nbytes)
            if sent.tree != tree:
                raise ProtocolError(f"{job.label_holder} sent the steps of tree {sent.tree}, not of {tree}")
            shown = as_words(job.label_holder, sent.words, wide.dtype, perturbed.words.shape)
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
        plan, own = self._plan, self._columns.cuts
        n_last = 2 * int(np.count_nonzero(levels[-1] >= 0))
        cut = np.concatenate([*levels, np.full(n_last, -1)])
        column = np.where(cut < 0, LEAF, FOREIGN)
        last_bin, missing_left = np.full(len(cut), -1), np.zeros(len(cut), np.bool_)
        mine = np.flatnonzero((cut >= 0) & (plan.owner_of_cut[cut] == self._place))
        number = cut[mine] - plan.first_cut[self._place]
        column[mine], last_bin[mine], missing_left[mine] = own.column[number], own.bin[number], own.missing_left[number]
        return PartialTree(column, last_bin, missing_left)

    def _predict(self, tree: int, weights: Array) -> Array | None:
        """The tree's value for every row, with `fraction_bits` bits after the point, at the label holder."""
        plan, columns = self._plan, self._columns
        missing_codes = [feature.missing_code for feature in columns.features]
        filled = Share(_filled(weights, plan.n_leaves), SUM64)
        values = np.empty(plan.n_rows, np.uint64)
        found: Array | None = None
        for number, rows in enumerate(plan.row_blocks()):
            bits = np.zeros((rows.stop - rows.start, plan.n_leaves), np.uint8)
            bits[:, : len(weights)] = self._trees[-1].indicators(columns.codes[:, rows], missing_codes)
            talk = chosen(self._supply.step(PREDICTIONS, number), bits, filled, plan.choosing(rows), me=self._place)
            found = self._openings.to(self._job.label_holder, self._talk(talk), PredictionShare, tree=tree)
            self._openings.rounds += 1
            if found is not None:
                values[rows] = found
        if found is None:
            return None
        largest = plan.descent.largest_weight + 1 << plan.descent.fraction_bits  # and what rounding adds
        signed = values.view(np.int64)
        if int(signed.min()) < -largest or int(signed.max()) > largest:
            raise ProtocolError(
                "a tree's value for a row is beyond that of any leaf: some party sent words that are no shares of it"
            )
        return values

    def part(self, labels: Labels | None) -> SharedLeavesPart:
        """Its part of the model."""
        job, plan = self._job, self._plan
        meta = {
            "privacy": None,
            "stamp": STAMP,
            "argmax": job.argmax,
            "first_layer_mask": job.first_layer_mask,
            "gradient_bits": plan.scales.gradient_bits,
            "rounds": {"setup": 3, "training": self._mesh.rounds + self._openings.rounds},
        }
        return SharedLeavesPart(
            self._me.name,
            job.label_holder,
            job.holders,
            job.NAME,
            job.run_id,
            self._columns.features,
            tuple(self._trees),
            tuple(self._weights),
            plan.descent.fraction_bits,
            None if labels is None else labels.target,
            meta,
        )


def _totals(y: Array) -> Array:
    """Sums over all rows, in the ring: [vectors]."""
    return np.asarray(y.sum(axis=1, dtype=y.dtype))


def _pairs(share: Share, pairs: Ints) -> Share:
    """[nodes x pairs, 2] from [nodes, splits]."""
    return share[:, pairs].reshape(-1, 2)


def _filled(words: Array, n: int) -> Array:
    """The words with zeros for nodes or leaves that are not there."""
    if len(words) == n:
        return words
    filled = np.zeros((n, *words.shape[1:]), words.dtype)
    filled[: len(words)] = words
    return filled
