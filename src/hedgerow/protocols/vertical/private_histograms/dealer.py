"""The dealer of vertical.private_histograms: knows every mask and all noise, no data, and nothing that was released."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.compare import deal_absolute
from hedgerow.crypto.dealing import Ints, Label, deal_noise
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import SUM32, blocks_of
from hedgerow.crypto.sigmoid import deal_sigmoid
from hedgerow.crypto.tournament import deal_level
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.shares.columns import Matrices, drawn_masks, told_sizes
from hedgerow.protocols.shares.full_tree import TreeDealing
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.supply import DealingOut, deal_ahead
from hedgerow.protocols.vertical.private_histograms.columns import told_layout
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, WINNER, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import StepsThatFit
from hedgerow.protocols.vertical.private_histograms.plan import Lane, Plan
from hedgerow.protocols.vertical.private_histograms.smooth.groups import GroupDealing, without
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import Schedule
from hedgerow.protocols.vertical.private_histograms.smooth.series import DEALT_ROWS, deal_sines
from hedgerow.runtime.party import Party


def dealer(me: Party, job: PrivateHistogramsJob, done: int) -> None:
    """The dealer, from seeds to what is released last."""
    dealing: GrownDealing | SmoothDealing
    if job.policy == SMOOTH:
        dealing = SmoothDealing(me, job, Schedule.of(job, *told_layout(me, job)), done)
    else:
        dealing = GrownDealing(me, job, Plan.of(job, told_sizes(me, job)))
    n_steps = dealing.n_steps
    if me.attempt > 1:
        n_steps = me.recv(job.label_holder, StepsThatFit, least=done, most=n_steps).n_steps
    deal_ahead(me, job.label_holder, LevelDone, dealing.begun(done, n_steps), dealing.deal)


class _Dealing:
    """What both policies deal: noise is drawn here."""

    def __init__(self, me: Party, job: PrivateHistogramsJob) -> None:
        self._me, self._job, self._n_threads = me, job, job.boosting.n_threads
        self._out = DealingOut(me, job.holders)

    def _noise(self, lane: str, label: Label, shape: tuple[int, ...], sigma: float) -> None:
        with self._out.parcel(lane, label) as step:
            deal_noise(step, shape, lambda shape: self.gaussian(shape, sigma))

    def gaussian(self, shape: tuple[int, ...], sigma: float) -> Ints:
        """Discrete Gaussian noise in units of what is released."""
        if not self._job.is_noisy:
            return np.zeros(shape, np.int64)
        return sample(sigma, int(np.prod(shape)), self._me.rng).reshape(shape)


class GrownDealing(_Dealing):
    """What is dealt at each stage of a tree, in the order in which it is needed."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, plan: Plan) -> None:
        super().__init__(me, job)
        self._plan = plan
        self.n_steps = plan.n_trees
        masks = drawn_masks(self._out.step(Lane.COLUMNS, Label()), plan.matrices)
        self._tree = TreeDealing(masks, plan.matrices, plan.depth, n_threads=self._n_threads)

    def begun(self, done: int, n_trees: int) -> range:
        """The stages of all trees after those that are done; before the first, noise on the number of positive rows."""
        if not done:
            self._noise(Lane.START, Label(), (1,), self._plan.spending.start_sigma)
        return range(done * self._plan.n_stages, n_trees * self._plan.n_stages)

    def deal(self, number: int) -> None:
        """One stage of one tree; labels of trees begin with 1."""
        plan = self._plan
        tree, stage = divmod(number, plan.n_stages)
        label = Label(tree=tree + 1, level=stage)
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
                n_sums = 2 * plan.block_nodes(level) * plan.n_candidates  # left and right
                deal_absolute(step, n_sums, plan.tournament.circuit)
        with self._out.parcel(Lane.WINNER, label) as step:
            deal_noise(step, plan.n_candidates, self.choice_noise)
        for place, played in enumerate(plan.tournament.levels(), start=1):
            with self._out.parcel(Lane.WINNER, label, place) as step:
                deal_level(step, played, plan.tournament)

    def choice_noise(self, shape: tuple[int, ...]) -> Ints:
        """Gumbel noise, from 0 up: what is the same for all candidates makes no difference."""
        choice = self._plan.spending.choice
        if choice is None:
            return np.zeros(shape, np.int64)
        return choice.draw(shape, self._me.rng) - choice.lowest


class SmoothDealing(_Dealing):
    """What is dealt for each request of smooth_then_trees, in the order in which it is needed."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, schedule: Schedule, done: int) -> None:
        super().__init__(me, job)
        self._schedule, self._done = schedule, done
        self.n_steps = len(schedule.kinds)
        self._groups = GroupDealing(schedule)
        rows = tuple(sum(schedule.caps[j] - 1 for j in schedule.layout.of(place)) for place in range(len(job.holders)))
        self._masks = drawn_masks(self._out.step(Lane.COLUMNS, Label()), Matrices(rows, schedule.n_rows, SUM32))
        self._starts = np.concatenate([[0], np.cumsum(np.array(schedule.caps) - 1)]).tolist()

    def begun(self, done: int, n_requests: int) -> range:
        """The requests after those that are done; nothing is dealt for the first, whose noise is the owners'."""
        self._schedule = self._schedule.shortened(n_requests)
        return range(max(done, 1) + 1, n_requests + 1)

    def deal(self, number: int) -> None:
        """All that is needed to answer request `number`; leaves before the first of an attempt are in the scores."""
        schedule, label = self._schedule, Label(tree=number)
        kind, update = schedule.kinds[number - 1], schedule.update(number)
        if update == "leaves" and schedule.most_shared and number > self._done + 1:
            with self._out.parcel(Lane.VALUES, label) as step:
                self._groups.deal_values(step)
        if kind != "positives":
            for parcel, rows in enumerate(blocks_of(schedule.n_rows, DEALT_ROWS)):
                with self._out.parcel(Lane.SINES, label, parcel) as step:
                    deal_sines(step, rows.stop - rows.start, schedule.precision)
        if kind == "bin_sums":
            column = schedule.column(number)
            self._deal_bins(label, column)
            shape: tuple[int, ...] = (schedule.caps[column],)
        elif kind == "leaf_sums":
            self._deal_leaves(label)
            shape = (1 << schedule.depth, 2)
        else:
            shape = (1,) if kind == "positives" else (2,)
        self._noise(Lane.NOISE, label, shape, schedule.sigma(kind))

    def _deal_bins(self, label: Label, column: int) -> None:
        """Products for all bins that the column can have, but its last."""
        schedule = self._schedule
        if schedule.caps[column] == 1:
            return
        with self._out.parcel(Lane.SUMS, label) as step:
            own = [step.mask((1, schedule.n_rows), SUM32, (place,)) for place in range(schedule.n_holders)]
            others = without(own, schedule.layout.owners[column])
            masks = self._masks[self._starts[column] : self._starts[column + 1]]
            step.share(rows_times(masks, others, n_threads=self._n_threads), SUM32)

    def _deal_leaves(self, label: Label) -> None:
        n_expansions = len(self._schedule.expansions)
        for position in range(n_expansions + 1):
            with self._out.parcel(Lane.SUMS, label, position) as step:
                if position < n_expansions:
                    self._groups.deal_expansion(step, position)
                else:
                    self._groups.deal_last(step)
