"""The dealer of vertical.private_histograms: knows every mask and all noise, and no data."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.compare import deal_absolute
from hedgerow.crypto.dealing import Ints, Label, deal_noise
from hedgerow.crypto.shares import SUM64
from hedgerow.crypto.sigmoid import deal_sigmoid
from hedgerow.crypto.tournament import deal_level
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.shares.full_tree import TreeDealing
from hedgerow.protocols.shares.masked_columns import drawn_masks
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.sizes import told_sizes
from hedgerow.protocols.shares.supply import DealingOut, deal_ahead
from hedgerow.protocols.vertical.common.tables import PATIENCE
from hedgerow.protocols.vertical.private_histograms.job import WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.plan import Lane, Plan
from hedgerow.runtime.party import Party


def dealer(me: Party, job: PrivateHistogramsJob) -> None:
    """The dealer, from seeds to the leaves of the last tree."""
    me.wait_longer(PATIENCE)
    plan = Plan.of(job, told_sizes(me, job))
    dealing = Dealing(me, DealingOut(me, job.holders), plan, n_threads=job.boosting.n_threads)
    dealing.deal_start()
    n_stages = plan.n_trees * plan.n_stages
    deal_ahead(me, job.label_holder, LevelDone, n_stages, lambda number: dealing.deal(*divmod(number, plan.n_stages)))


class Dealing:
    """What is dealt at each stage of a tree, in the order in which it is needed; noise is drawn here."""

    def __init__(self, me: Party, out: DealingOut, plan: Plan, *, n_threads: int) -> None:
        self._me, self._out, self._plan = me, out, plan
        masks = drawn_masks(out.step(Lane.COLUMNS, Label()), plan.matrices)
        self._tree = TreeDealing(masks, plan.matrices, plan.depth, n_threads=n_threads)

    def deal_start(self) -> None:
        """Noise on the number of positive rows."""
        self._noise(Lane.START, Label(), (1,), self._plan.spending.start_sigma)

    def deal(self, tree: int, stage: int) -> None:
        """One stage of one tree; labels of trees begin with 1."""
        plan, label = self._plan, Label(tree=tree + 1, level=stage)
        if stage == 0:
            with self._out.parcel(Lane.GRADIENTS, label) as step:
                deal_sigmoid(step, plan.sigmoid)
            with self._out.parcel(Lane.SUMS, label) as step:
                self._tree.deal_tree(step)
        elif stage <= plan.depth:
            self._deal_level(tree, label, stage - 1)
        else:
            self._noise(Lane.LEAVES, label, (1 << plan.depth, 2), plan.spending.leaf_sigma)

    def _deal_level(self, tree: int, label: Label, level: int) -> None:
        plan, spending = self._plan, self._plan.spending
        if plan.reveal == WINNER:
            self._deal_winner(label, level)
        else:
            if plan.has_survey(tree, level):
                self._noise(Lane.SURVEY, label, (spending.released.n_bins,), spending.survey_sigma)
            self._noise(Lane.HISTOGRAMS, label, (1 << level, spending.released.most_bins), spending.histogram_sigma)
        with self._out.parcel(Lane.SIDES, label) as step:
            self._tree.deal_sides(step, level)

    def _deal_winner(self, label: Label, level: int) -> None:
        plan = self._plan
        for block in range(plan.n_blocks(level)):
            with self._out.parcel(plan.lane(block), label) as step:
                deal_absolute(step, plan.block_sums(level), plan.tournament.circuit)
        with self._out.parcel(Lane.WINNER, label) as step:
            deal_noise(step, plan.n_candidates, SUM64, self.choice_noise)
        for place, played in enumerate(plan.tournament.levels(), start=1):
            with self._out.parcel(Lane.WINNER, label, place) as step:
                deal_level(step, played, plan.tournament)

    def choice_noise(self, shape: tuple[int, ...]) -> Ints:
        """Gumbel noise, from 0 up: what is the same for all candidates makes no difference."""
        choice = self._plan.spending.choice
        if choice is None:
            return np.zeros(shape, np.int64)
        return choice.draw(shape, self._me.rng) - choice.lowest

    def _noise(self, lane: str, label: Label, shape: tuple[int, ...], sigma: float) -> None:
        with self._out.parcel(lane, label) as step:
            deal_noise(step, shape, SUM64, lambda shape: self.gaussian(shape, sigma))

    def gaussian(self, shape: tuple[int, ...], sigma: float) -> Ints:
        """Discrete Gaussian noise in units of what is released."""
        if not self._plan.spending.job.is_noisy:
            return np.zeros(shape, np.int64)
        return sample(sigma, int(np.prod(shape)), self._me.rng).reshape(shape)
