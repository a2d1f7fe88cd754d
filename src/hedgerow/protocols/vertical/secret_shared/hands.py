"""What label holder and feature holders do alike: play a level's tournament."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.lifting import gains
from hedgerow.crypto.rounds import Talk
from hedgerow.crypto.shares import SUM32, Array, Share
from hedgerow.crypto.tournament import tournament
from hedgerow.protocols.shares.columns import filled
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.secret_shared.messages import WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import Shape


def play_level(
    supply: Supply,
    mesh: Mesh,
    shape: Shape,
    level: int,
    sums: Array,
    first: tuple[Array, Array],
    handles: Array,
    *,
    is_first: bool,
) -> Array:
    """The winning handle of each node of a level, which all parties get to know.

    In: shares of G_L, H_L, G_R, H_R of all foreign candidates [4, nodes, candidates]; words of P and Q of the label
    holder's candidate, [nodes, limbs] each, and of all handles [nodes, 1 + candidates], its own among them: as they are
    at who knows them, 0 at the others. All blocks of nodes are played side by side.
    """
    n_nodes, per_block, scales = len(handles), shape.block_nodes(level), shape.scales

    def contest(block: int) -> Talk[Share]:
        """A share of the handle of the winner of each node of a block."""
        nodes, lane = slice(block * per_block, (block + 1) * per_block), shape.lane(block)
        gl, hl, gr, hr = (Share(filled(words[nodes], per_block), scales.sums) for words in sums)
        own = [filled(words[nodes], per_block) for words in first]
        if is_first:
            own[1][len(handles[nodes]) :, 0] = 1  # nodes without rows stop: P / Q = 0 / 1 comes first
        fractions = yield from gains(
            supply.step(lane), (gl, hl, gr, hr), scales.lambda_int, scales.wide, is_first=is_first
        )
        P, Q = (
            Share(np.concatenate([mine[:, None], share.words], axis=1), scales.wide)
            for mine, share in zip(own, fractions, strict=True)
        )
        entered = Share(filled(handles[nodes], per_block), SUM32)
        return (
            yield from tournament(
                lambda place: supply.step(lane, place + 1), P, Q, entered, shape.plan(level), is_first=is_first
            )
        )

    talks = [contest(block) for block in range(shape.n_blocks(level, n_nodes))]
    winners = Share(np.concatenate([winner.words for winner in mesh.talks(talks)]), SUM32)
    return mesh.reveal(WinnerShare, winners)[:n_nodes]
