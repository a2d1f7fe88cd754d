"""What label holder and feature holders do alike: grow trees level by level, and play a level's tournament."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from hedgerow.crypto.lifting import gains
from hedgerow.crypto.limits import as_limbs, limited
from hedgerow.crypto.shares import SUM32, Array, Share, Talk
from hedgerow.crypto.tournament import tournament
from hedgerow.engine.dtypes import Ints
from hedgerow.protocols.shares.columns import filled
from hedgerow.protocols.shares.playing import Player
from hedgerow.protocols.vertical.secret_shared.allowed import AllowedColumns
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import GroupsAsked, LevelDone, WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import Shape
from hedgerow.runtime.party import Party


class Growing(Player[SecretSharedJob]):
    """One party's side of growing trees, all nodes of a level together."""

    DONE = LevelDone

    def __init__(self, me: Party, job: SecretSharedJob, n_threads: int, shape: Shape) -> None:
        super().__init__(me, job, n_threads)
        self.shape = shape
        self.allowed = AllowedColumns(job, shape) if shape.n_columns else None
        self._n_leaves = 1

    def train(self, done: int) -> int:
        """All iterations after those that are done, until the last or until somebody says so; how many are kept."""
        n_iterations, n_outputs = self.job.boosting.n_iterations, self.shape.n_outputs
        for iteration in self.trees(done):
            if self.job.stops_early and iteration and (n_kept := self.onward()):
                return n_kept
            self.begin_iteration()
            for tree in range(iteration * n_outputs, (iteration + 1) * n_outputs):
                self.grow(tree)
            self.keep(iteration + 1)
        return self.onward() if self.job.stops_early else n_iterations

    @abstractmethod
    def begin_iteration(self) -> None:
        """Its trees grow from the same scores."""

    @abstractmethod
    def keep(self, n_iterations: int) -> None:
        """Keep what is needed to go on after this many iterations."""

    @abstractmethod
    def onward(self) -> int:
        """With early stopping: how many iterations are kept if training ends after these; 0 if it goes on."""

    def grow(self, tree: int) -> None:
        """One tree."""
        parents: Array | None = None
        self._n_leaves = 1
        if self.allowed is not None:
            self.allowed.begin_tree(tree)
        for level in range(self.job.depth):
            with self.stage(tree, level, self.shape.n_parcels(level)):
                if parents is None or len(parents):
                    parents = self.grow_level(level, parents)

    @abstractmethod
    def grow_level(self, level: int, parents: Array | None) -> Array:
        """All nodes of a level, by shares of their parents' histograms; those of the nodes that split."""

    # --- a level -----------------------------------------------------------------------------------------------------

    def room(self, owners: Ints) -> int | None:
        """How many of the nodes that splits have won may split; None if all may."""
        most, n_won = self.job.boosting.max_leaves, int((owners >= 0).sum())
        room = n_won if most is None else most - self._n_leaves
        return room if room < n_won else None

    def go_on(self, level: int, owners: Ints, column: Ints, histograms: Array) -> Array:
        """The histograms of the nodes that split, if there is a next level.

        In: whose each node is, and its own column where it is its own; others are ignored.
        """
        splitting = owners >= 0
        self._n_leaves += int(splitting.sum())
        if level + 1 == self.job.depth or self._n_leaves == self.job.boosting.max_leaves:
            return histograms[:0]
        if self.allowed is not None and self.allowed.are_apart and splitting.any():
            self.allowed.split(self._groups_of(self.allowed, owners, column))
        return histograms[splitting]

    def _groups_of(self, allowed: AllowedColumns, owners: Ints, column: Ints) -> Ints:
        """One round: columns that stand for those of all splits of the level, -1 for leaves."""
        told = np.full(len(owners), -1, np.int64)
        for place, party in enumerate(self.job.holders):
            nodes = np.flatnonzero(owners == place)
            if not len(nodes):
                continue
            if place == self.place:
                mine = allowed.told(place, column[nodes])
                told[nodes] = mine
                self.me.send_all([other for other in self.job.holders if other != party], GroupsAsked(mine))
            else:
                sent = self.me.recv(party, GroupsAsked, n_won=len(nodes), n_columns=allowed.n_all)
                told[nodes] = sent.columns
        return told

    # --- its tournament ----------------------------------------------------------------------------------------------

    def play(self, level: int, left: Array, totals: Array, first: tuple[Array, Array], handles: Array) -> Array:
        """The winning handle of each node of a level, which all parties get to know.

        In: shares of G_L, H_L (and of the rows, where they count) of all foreign candidates [2 or 3, nodes,
        candidates]; the nodes' own sums [2 or 3, nodes]; words of P and Q of the label holder's candidate, [nodes,
        limbs] each, and of all handles [nodes, 1 + candidates], its own among them: as they are at who knows them, 0 at
        the others. All blocks of nodes are played side by side.
        """
        shape, n_nodes, is_first = self.shape, len(handles), self.is_first
        per_block, scales = shape.block_nodes(level), shape.scales

        def contest(block: int) -> Talk[Share]:
            """A share of the handle of the winner of each node of a block."""
            nodes, lane = slice(block * per_block, (block + 1) * per_block), shape.lane(block)
            lefts = [filled(words[nodes], per_block) for words in left]
            total = [filled(words[nodes], per_block)[:, None] for words in totals]
            if shape.limits.n_checks:
                lefts = yield from self._within_limits(block, lefts, total)
            gl, hl = lefts[:2]
            sums = [Share(words, scales.sums) for words in (gl, hl, total[0] - gl, total[1] - hl)]
            own = [filled(words[nodes], per_block) for words in first]
            if is_first:
                own[1][len(handles[nodes]) :, 0] = 1  # nodes without rows stop: P / Q = 0 / 1 comes first
            step = self.supply.step(lane)
            fractions = yield from gains(
                step, (sums[0], sums[1], sums[2], sums[3]), scales.lambda_int, scales.wide, is_first=is_first
            )
            P, Q = (
                Share(np.concatenate([mine[:, None], share.words], axis=1), scales.wide)
                for mine, share in zip(own, fractions, strict=True)
            )
            entered = Share(filled(handles[nodes], per_block), SUM32)
            steps = self.steps(lane, 1)
            return (yield from tournament(steps, P, Q, entered, shape.plan(level), is_first=is_first))

        talks = [contest(block) for block in range(shape.n_blocks(level, n_nodes))]
        winners = Share(np.concatenate([winner.words for winner in self.mesh.talks(talks)]), SUM32)
        return self.mesh.reveal(WinnerShare, winners)[:n_nodes]

    def _within_limits(self, block: int, lefts: list[Array], totals: list[Array]) -> Talk[list[Array]]:
        """The left sums of candidates, set to 0 where a child would be lighter, or have fewer rows, than it may."""
        shape, sums, n = self.shape, self.shape.scales.sums, lefts[0].size
        checks = []
        for limit, left, total in zip((0, *shape.limits), lefts, totals, strict=False):
            if limit:
                least = sums.dtype.type(limit if self.is_first else 0)
                checks += [left - least, total - left - least]
        checked = as_limbs(np.stack(checks).reshape(len(checks), n), sums)
        x = Share(np.stack(lefts[:2]).reshape(2, n), sums)
        step = self.supply.step(shape.limits_lane(block))
        counted = yield from limited(step, x, checked, is_first=self.is_first)
        return list(counted.words.reshape(2, *lefts[0].shape))
