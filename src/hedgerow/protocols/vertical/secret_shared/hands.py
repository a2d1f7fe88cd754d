"""What label holder and feature holders do alike: play a level's tournament."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hedgerow.crypto.dealing import HandStep
from hedgerow.crypto.lifting import gains
from hedgerow.crypto.rounds import Talk
from hedgerow.crypto.shares import SUM32, Array, Share
from hedgerow.crypto.tournament import tournament
from hedgerow.protocols.shares.columns import filled
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.secret_shared.messages import WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import Shape


def contest(
    steps: Callable[[int], HandStep],
    sums: tuple[Share, Share, Share, Share],
    first: tuple[Array, Array],
    handles: Array,
    shape: Shape,
    level: int,
    *,
    is_first: bool,
) -> Talk[Share]:
    """A share of the handle of the winner of each node of a block.

    In: G_L, H_L, G_R, H_R of all foreign candidates [nodes, candidates] as shares; words of P and Q of the label
    holder's candidate, [nodes, limbs] each, and of all handles [nodes, 1 + candidates], its own among them: as they are
    at who knows them, 0 at the others.
    """
    scales, plan = shape.scales, shape.plan(level)
    P, Q = yield from gains(steps(0), sums, scales.lambda_int, scales.wide, is_first=is_first)
    numerators, denominators = (
        Share(np.concatenate([own[:, None], share.words], axis=1), scales.wide)
        for own, share in zip(first, (P, Q), strict=True)
    )
    return (
        yield from tournament(
            lambda place: steps(place + 1), numerators, denominators, Share(handles, SUM32), plan, is_first=is_first
        )
    )


def play_level(
    supply: Supply,
    mesh: Mesh,
    shape: Shape,
    level: int,
    sums: tuple[Array, Array, Array, Array],
    first: tuple[Array, Array],
    handles: Array,
    *,
    is_first: bool,
) -> Array:
    """The winning handle of each node of a level, which all parties get to know; arrays as for `contest`, of all nodes.

    All blocks of nodes are played side by side.
    """
    n_nodes, per_block = len(handles), shape.block_nodes(level)
    talks = []
    for block in range(shape.n_blocks(level, n_nodes)):
        nodes = slice(block * per_block, (block + 1) * per_block)
        shares = [Share(filled(words[nodes], per_block), shape.scales.sums) for words in sums]
        numerators, denominators = (filled(words[nodes], per_block) for words in first)
        if is_first:
            denominators[len(handles[nodes]) :, 0] = 1  # nodes without rows stop: P / Q = 0 / 1 comes first
        talk = contest(
            _steps_of(supply, shape.lane(block)),
            (shares[0], shares[1], shares[2], shares[3]),
            (numerators, denominators),
            filled(handles[nodes], per_block),
            shape,
            level,
            is_first=is_first,
        )
        talks.append(talk)
    winners = Share(np.concatenate([winner.words for winner in mesh.talks(talks)]), SUM32)
    return mesh.reveal(WinnerShare, winners)[:n_nodes]


def _steps_of(supply: Supply, lane: str) -> Callable[[int], HandStep]:
    return lambda step: supply.step(lane, step)
