"""The dealer of vertical.private_histograms: knows every mask and all noise, and no data."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.absolute import deal_absolute
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.dealt_noise import Ints, deal_noise
from hedgerow.crypto.shares import SUM64
from hedgerow.crypto.sigmoid import deal_sigmoid
from hedgerow.crypto.tournament import deal_level
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.shares.full_tree import TreeDealing
from hedgerow.protocols.shares.masked_columns import drawn_masks
from hedgerow.protocols.shares.rows_messages import LevelDone
from hedgerow.protocols.shares.sizes import told_sizes
from hedgerow.protocols.shares.supply import DealingOut
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.plan import (
    COLUMNS,
    GRADIENTS,
    HISTOGRAMS,
    LEAVES,
    SIDES,
    START,
    SUMS,
    SURVEY,
    WINNER_OF_LEVEL,
    Plan,
)
from hedgerow.runtime.party import Party

AHEAD = 4
"""Stages that the dealer may be ahead of the label holder: what it has sent waits in the others' memory."""


def dealer(me: Party, job: PrivateHistogramsJob) -> None:
    """The dealer, from seeds to the leaves of the last tree."""
    me.wait_longer(PATIENCE)
    plan = Plan.of(job, told_sizes(me, job))
    dealing = Dealing(me, DealingOut(me, job.holders), plan, n_threads=job.boosting.n_threads)
    dealing.deal_start()
    n_stages = plan.n_trees * plan.n_stages
    for number in range(n_stages):
        if number >= AHEAD:
            me.recv(job.label_holder, LevelDone)
        dealing.deal(*divmod(number, plan.n_stages))
    for _ in range(min(AHEAD, n_stages)):
        me.recv(job.label_holder, LevelDone)


class Dealing:
    """What is dealt at each stage of a tree, in the order in which it is needed; noise is drawn here."""

    def __init__(self, me: Party, out: DealingOut, plan: Plan, *, n_threads: int) -> None:
        self._me, self._out, self._plan = me, out, plan
        masks = drawn_masks(out.step(COLUMNS, Label()), plan.matrices)
        self._tree = TreeDealing(masks, plan.matrices, plan.depth, n_threads=n_threads)

    def deal_start(self) -> None:
        """Noise on the number of positive rows."""
        self._noise(START, Label(), (1,), self._plan.spending.start_sigma)

    def deal(self, tree: int, stage: int) -> None:
        """One stage of one tree; labels of trees begin with 1."""
        plan, label = self._plan, Label(tree=tree + 1, level=stage)
        if stage == 0:
            step = self._out.step(GRADIENTS, label)
            deal_sigmoid(step, plan.sigmoid)
            self._out.send(GRADIENTS, step)
            step = self._out.step(SUMS, label)
            self._tree.deal_tree(step)
            self._out.send(SUMS, step)
        elif stage <= plan.depth:
            self._deal_level(tree, label, stage - 1)
        else:
            self._noise(LEAVES, label, (1 << plan.depth, 2), plan.spending.leaf_sigma)

    def _deal_level(self, tree: int, label: Label, level: int) -> None:
        plan, spending = self._plan, self._plan.spending
        if plan.reveal == WINNER:
            self._deal_winner(label, level)
        else:
            if plan.has_survey(tree, level):
                self._noise(SURVEY, label, (spending.released.n_bins,), spending.survey_sigma)
            self._noise(HISTOGRAMS, label, (1 << level, spending.released.most_bins), spending.histogram_sigma)
        step = self._out.step(SIDES, label)
        self._tree.deal_sides(step, level)
        self._out.send(SIDES, step)

    def _deal_winner(self, label: Label, level: int) -> None:
        plan = self._plan
        for block in range(plan.n_blocks(level)):
            step = self._out.step(plan.lane(block), label)
            deal_absolute(step, plan.block_sums(level), plan.tournament.circuit)
            self._out.send(plan.lane(block), step)
        step = self._out.step(WINNER_OF_LEVEL, label)
        deal_noise(step, plan.n_candidates, SUM64, self.choice_noise)
        self._out.send(WINNER_OF_LEVEL, step)
        for place, played in enumerate(plan.tournament.levels(), start=1):
            step = self._out.step(WINNER_OF_LEVEL, label._replace(step=place))
            deal_level(step, played, plan.tournament)
            self._out.send(WINNER_OF_LEVEL, step)

    def choice_noise(self, shape: tuple[int, ...]) -> Ints:
        """Gumbel noise, from 0 up: what is the same for all candidates makes no difference."""
        choice = self._plan.spending.choice
        if choice is None:
            return np.zeros(shape, np.int64)
        return choice.draw(shape, self._me.rng) - choice.lowest

    def _noise(self, lane: str, label: Label, shape: tuple[int, ...], sigma: float) -> None:
        step = self._out.step(lane, label)
        deal_noise(step, shape, SUM64, lambda shape: self.gaussian(shape, sigma))
        self._out.send(lane, step)

    def gaussian(self, shape: tuple[int, ...], sigma: float) -> Ints:
        """Discrete Gaussian noise in units of what is released."""
        if not self._plan.spending.is_noisy:
            return np.zeros(shape, np.int64)
        return sample(sigma, int(np.prod(shape)), self._me.rng).reshape(shape)
