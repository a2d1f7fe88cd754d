"""The dealer of vertical.mp_fedxgb: knows every mask and no data, and works ahead of the others."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from hedgerow.crypto.beaver import deal_product
from hedgerow.crypto.choosing import deal_choosing
from hedgerow.crypto.dealing import DealerStep, Label
from hedgerow.crypto.division import deal_descent_start, deal_descent_turn, deal_quotients
from hedgerow.crypto.lifting import deal_gains, deal_lift
from hedgerow.crypto.ring import rows_times
from hedgerow.protocols.published.mp_fedxgb.argmax import deal_fractions
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.plan import Lane, Plan
from hedgerow.protocols.shares.columns import drawn_masks, told_sizes
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.playing import deal_iterations
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.runtime.party import Party


def dealer(me: Party, job: MpFedXgbJob, done: int) -> None:
    """The dealer, from seeds to the last predictions."""
    plan = Plan.of(job, told_sizes(me, job))
    dealing = _Dealing(DealingOut(me, job.holders), plan, n_threads=job.boosting.n_threads)
    deal_iterations(me, job, LevelDone, done, plan.n_stages, lambda n: dealing.deal(*divmod(n, plan.n_stages)))


class _Dealing:
    """What is dealt at each stage of a tree, in the order in which it is needed."""

    def __init__(self, out: DealingOut, plan: Plan, *, n_threads: int) -> None:
        self._out, self._plan, self._n_threads = out, plan, n_threads
        self._masks = drawn_masks(out.step(Lane.COLUMNS, Label()), plan.matrices)

    def deal(self, tree: int, stage: int) -> None:
        """One stage of one tree."""
        label = Label(tree=tree, level=stage)
        if stage < self._plan.depth:
            self._deal_rows(label)
            self._deal_division(label) if self._plan.argmax == DIVISION else self._deal_fractions(label)
        elif stage == self._plan.depth:
            self._deal_leaves(label)
        else:
            for number, rows in enumerate(self._plan.row_blocks()):
                with self._out.parcel(Lane.PREDICTIONS, label, number) as step:
                    deal_choosing(step, self._plan.choosing(rows))

    def _deal_rows(self, label: Label) -> None:
        """Masks B of gradients and hessians and A B; masks a of sides and a B."""
        plan, sums = self._plan, self._plan.scales.sums
        n_nodes = plan.n_nodes(label.level)
        with self._out.parcel(Lane.HISTOGRAMS, label) as step:
            b = step.mask((2 * n_nodes, plan.n_rows), sums)
            step.share(rows_times(self._masks, b, n_threads=self._n_threads), sums)
        with self._out.parcel(Lane.SPLITS, label) as step:
            a = step.mask((n_nodes, plan.n_rows), sums)
            step.share(sums.mul(np.repeat(a, 2, axis=0), b), sums)

    def _deal_fractions(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        n_nodes, wide = plan.n_nodes(label.level), plan.wide
        with self._out.parcel(Lane.ARGMAX, label) as step:
            deal_gains(step, n_nodes * plan.n_candidates(label.level), scales.sums, wide)
        for number, played in enumerate(plan.rounds(label.level), start=1):
            with self._out.parcel(Lane.ARGMAX, label, number) as step:
                deal_fractions(step, n_nodes * played.n_pairs, wide)
        after = 1 + len(plan.rounds(label.level))
        with self._out.parcel(Lane.ARGMAX, label, after) as step:
            deal_lift(step, (2, n_nodes), scales.sums, wide)
        for number, shape in enumerate(((3, n_nodes), (1, n_nodes)), start=after + 1):
            with self._out.parcel(Lane.ARGMAX, label, number) as step:
                deal_product(step, shape, wide)

    def _deal_division(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        division = plan.division(label.level)
        n_all = division.n
        with self._out.parcel(Lane.ARGMAX, label) as step:
            deal_lift(step, (2, n_all), scales.sums, division.kind)
        with self._out.parcel(Lane.ARGMAX, label, 1) as step:
            deal_product(step, (n_all,), division.kind)
        with ExitStack() as last:

            def next_step(number: int) -> DealerStep:
                last.close()
                return last.enter_context(self._out.parcel(Lane.ARGMAX, label, 2 + number))

            deal_quotients(next_step, division)

    def _deal_leaves(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        with self._out.parcel(Lane.LEAVES, label) as step:
            deal_lift(step, (2, plan.n_leaves), scales.sums, plan.descent.kind)
        with self._out.parcel(Lane.LEAVES, label, 1) as step:
            masks = deal_descent_start(step, plan.descent)
        for turn in range(plan.descent.max_iterations):
            with self._out.parcel(Lane.LEAVES, label, 2 + turn) as step:
                deal_descent_turn(step, plan.descent, masks)
