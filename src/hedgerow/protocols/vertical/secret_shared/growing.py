"""What label holder and feature holders do alike: grow trees level by level, and play a level's tournament."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from hedgerow.crypto.lifting import gains
from hedgerow.crypto.shares import SUM32, Array, Share, Talk
from hedgerow.crypto.tournament import tournament
from hedgerow.protocols.shares.columns import filled
from hedgerow.protocols.shares.playing import Player
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import LevelDone, WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import Shape
from hedgerow.runtime.party import Party


class Growing(Player[SecretSharedJob]):
    """One party's side of growing trees, all nodes of a level together."""

    DONE = LevelDone

    def __init__(self, me: Party, job: SecretSharedJob, n_threads: int, shape: Shape) -> None:
        super().__init__(me, job, n_threads)
        self.shape = shape

    def grow(self, tree: int) -> None:
        """One tree."""
        parents: Array | None = None
        for level in range(self.job.depth):
            with self.stage(tree, level, self.shape.n_parcels(level)):
                if parents is None or len(parents):
                    parents = self.grow_level(level, parents)

    @abstractmethod
    def grow_level(self, level: int, parents: Array | None) -> Array:
        """All nodes of a level, by shares of their parents' histograms; those of the nodes that split."""

    def play(self, level: int, sums: Array, first: tuple[Array, Array], handles: Array) -> Array:
        """The winning handle of each node of a level, which all parties get to know.

        In: shares of G_L, H_L, G_R, H_R of all foreign candidates [4, nodes, candidates]; words of P and Q of the label
        holder's candidate, [nodes, limbs] each, and of all handles [nodes, 1 + candidates], its own among them: as they
        are at who knows them, 0 at the others. All blocks of nodes are played side by side.
        """
        shape, n_nodes, is_first = self.shape, len(handles), self.is_first
        per_block, scales = shape.block_nodes(level), shape.scales

        def contest(block: int) -> Talk[Share]:
            """A share of the handle of the winner of each node of a block."""
            nodes, lane = slice(block * per_block, (block + 1) * per_block), shape.lane(block)
            gl, hl, gr, hr = (Share(filled(words[nodes], per_block), scales.sums) for words in sums)
            own = [filled(words[nodes], per_block) for words in first]
            if is_first:
                own[1][len(handles[nodes]) :, 0] = 1  # nodes without rows stop: P / Q = 0 / 1 comes first
            step = self.supply.step(lane)
            fractions = yield from gains(step, (gl, hl, gr, hr), scales.lambda_int, scales.wide, is_first=is_first)
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
