"""The dealer of vertical.mp_fedxgb: knows every mask and no data, and works ahead of the others."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.choosing import deal_choosing
from hedgerow.crypto.dealing import DealerStep, Label
from hedgerow.crypto.descent import deal_descent_start, deal_descent_turn
from hedgerow.crypto.division import deal_quotients
from hedgerow.crypto.lifting import deal_gains, deal_lift
from hedgerow.protocols.published.mp_fedxgb.argmax import deal_fractions, deal_multiplied
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.plan import (
    ARGMAX,
    COLUMNS,
    HISTOGRAMS,
    LEAVES,
    PREDICTIONS,
    SPLITS,
    Plan,
)
from hedgerow.protocols.shares.masked_columns import drawn_masks
from hedgerow.protocols.shares.rows_messages import LevelDone
from hedgerow.protocols.shares.sizes import told_sizes
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.runtime.party import Party

AHEAD = 4
"""Stages that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""


def dealer(me: Party, job: MpFedXgbJob) -> None:
    """The dealer, from seeds to the last predictions."""
    me.wait_longer(PATIENCE)
    plan = Plan.of(job, told_sizes(me, job))
    dealing = _Dealing(DealingOut(me, job.holders), plan, n_threads=job.boosting.n_threads)
    n_stages = job.boosting.n_iterations * plan.n_stages
    for number in range(n_stages):
        if number >= AHEAD:
            me.recv(job.label_holder, LevelDone)
        dealing.deal(*divmod(number, plan.n_stages))
    for _ in range(min(AHEAD, n_stages)):
        me.recv(job.label_holder, LevelDone)


class _Dealing:
    """What is dealt at each stage of a tree, in the order in which it is needed."""

    def __init__(self, out: DealingOut, plan: Plan, *, n_threads: int) -> None:
        self._out, self._plan, self._n_threads = out, plan, n_threads
        self._masks = drawn_masks(out.step(COLUMNS, Label()), plan.matrices)

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
                step = self._step(PREDICTIONS, label, number)
                deal_choosing(step, self._plan.choosing(rows))
                self._out.send(PREDICTIONS, step)

    def _step(self, lane: str, label: Label, number: int = 0) -> DealerStep:
        return self._out.step(lane, label._replace(step=number))

    def _deal_rows(self, label: Label) -> None:
        """Masks B of gradients and hessians and A B; masks a of sides and a B."""
        plan, sums = self._plan, self._plan.scales.sums
        n_nodes = plan.n_nodes(label.level)
        step = self._step(HISTOGRAMS, label)
        b = step.mask((2 * n_nodes, plan.n_rows), sums)
        step.share(rows_times(self._masks, b, sums, n_threads=self._n_threads), sums)
        self._out.send(HISTOGRAMS, step)
        step = self._step(SPLITS, label)
        a = step.mask((n_nodes, plan.n_rows), sums)
        step.share(sums.mul(np.repeat(a, 2, axis=0), b), sums)
        self._out.send(SPLITS, step)

    def _deal_fractions(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        n_nodes, wide = plan.n_nodes(label.level), plan.wide
        step = self._step(ARGMAX, label)
        deal_gains(step, n_nodes * plan.n_candidates(label.level), scales.sums, wide)
        self._out.send(ARGMAX, step)
        for number, played in enumerate(plan.rounds(label.level), start=1):
            step = self._step(ARGMAX, label, number)
            deal_fractions(step, n_nodes * played.n_pairs, wide)
            self._out.send(ARGMAX, step)
        number = 1 + len(plan.rounds(label.level))
        step = self._step(ARGMAX, label, number)
        deal_lift(step, (2, n_nodes), scales.sums, wide)
        self._out.send(ARGMAX, step)
        for shape in ((3, n_nodes), (1, n_nodes)):
            number += 1
            step = self._step(ARGMAX, label, number)
            deal_multiplied(step, shape, wide)
            self._out.send(ARGMAX, step)

    def _deal_division(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        division = plan.division(label.level)
        n_all = division.n
        step = self._step(ARGMAX, label)
        deal_lift(step, (2, n_all), scales.sums, division.kind)
        self._out.send(ARGMAX, step)
        step = self._step(ARGMAX, label, 1)
        deal_multiplied(step, (n_all,), division.kind)
        self._out.send(ARGMAX, step)
        steps: list[DealerStep] = []

        def next_step(number: int) -> DealerStep:
            if steps:
                self._out.send(ARGMAX, steps[-1])
            steps.append(self._step(ARGMAX, label, 2 + number))
            return steps[-1]

        deal_quotients(next_step, division)
        self._out.send(ARGMAX, steps[-1])

    def _deal_leaves(self, label: Label) -> None:
        plan, scales = self._plan, self._plan.scales
        step = self._step(LEAVES, label)
        deal_lift(step, (2, plan.n_leaves), scales.sums, plan.descent.kind)
        self._out.send(LEAVES, step)
        step = self._step(LEAVES, label, 1)
        masks = deal_descent_start(step, plan.descent)
        self._out.send(LEAVES, step)
        for turn in range(plan.descent.max_iterations):
            step = self._step(LEAVES, label, 2 + turn)
            deal_descent_turn(step, plan.descent, masks)
            self._out.send(LEAVES, step)
