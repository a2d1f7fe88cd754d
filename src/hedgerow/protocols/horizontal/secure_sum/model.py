"""A trained model as one message, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.engine.ensemble import Tree
from hedgerow.protocols.horizontal.secure_sum.messages import FinishedModel


def write_model(trees: Sequence[Tree]) -> FinishedModel:
    """All trees, their nodes one after the other."""
    return FinishedModel(
        tree_ends=np.cumsum([tree.n_nodes for tree in trees]).astype(np.int64),
        feature=np.concatenate([tree.feature for tree in trees]),
        bin=np.concatenate([tree.bin for tree in trees]),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        missing_left=np.concatenate([tree.missing_left for tree in trees]).view(np.uint8),
        left=np.concatenate([tree.left for tree in trees]),
        right=np.concatenate([tree.right for tree in trees]),
        value=np.concatenate([tree.value for tree in trees]),
        gain=np.concatenate([tree.gain for tree in trees]),
        cover=np.concatenate([tree.cover for tree in trees]),
        level_set=np.concatenate([tree.level_set for tree in trees]),
        set_ends=np.cumsum([len(tree.left_levels) for tree in trees]).astype(np.int64),
        left_levels=np.packbits(np.concatenate([tree.left_levels for tree in trees]), axis=1),
    )


def read_model(message: FinishedModel) -> list[Tree]:
    """The trees of a message; each is checked like one from a file."""
    levels = np.unpackbits(message.left_levels, axis=1).view(np.bool_)
    trees = []
    node, first_set = 0, 0
    for end, set_end in zip(message.tree_ends.tolist(), message.set_ends.tolist(), strict=True):
        here = slice(node, end)
        trees.append(
            Tree(
                feature=message.feature[here],
                bin=message.bin[here],
                threshold=message.threshold[here],
                missing_left=message.missing_left[here].view(np.bool_),
                left=message.left[here],
                right=message.right[here],
                value=message.value[here],
                gain=message.gain[here],
                cover=message.cover[here],
                level_set=message.level_set[here],
                left_levels=levels[first_set:set_end],
            )
        )
        node, first_set = end, set_end
    return trees
