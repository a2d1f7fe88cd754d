"""A trained model as one message, and back: only what cannot be computed from the rest is sent.

What rows were in a node is no part of it. From the exact sum of the hessians in a node (`cover`), or from its gain or
the value that an inner node would have had, an owner can compute how many of the others' rows are there. So those
numbers go to nobody unless the job asks for them (share_cover=True) or they come from noisy sums (dp). In their place
every party puts the same stand-ins, computed from the leaf values alone: each split sends half of its cover each way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np

from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.growth import FlatEdges
from hedgerow.errors import ProtocolError
from hedgerow.protocols.central.dpboost.growth import spread_evenly
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import FinishedModel, NodeStatistics
from hedgerow.runtime.party import Party
from hedgerow.transport.frames import Message


def write_model(trees: Sequence[Tree]) -> FinishedModel:
    """All trees, their nodes one after the other."""
    feature = _joined(trees, "feature")
    return FinishedModel(
        feature=feature,
        bin=_joined(trees, "bin"),
        missing_left=_joined(trees, "missing_left").view(np.uint8),
        value=np.where(feature < 0, _joined(trees, "value"), np.float32(0)),
        tree_ends=np.cumsum([tree.n_nodes for tree in trees]).astype(np.int64),
        left_levels=np.packbits(_joined(trees, "left_levels"), axis=1),
    )


def _joined(trees: Sequence[Tree], name: str) -> np.ndarray:
    return np.concatenate([getattr(tree, name) for tree in trees])


def hand_out(tell: Callable[[Message], None], job: Job, model: Ensemble, n_earlier: int = 0) -> Ensemble:
    """Coordinator's side: `tell` all owners the model; returns the one that all parties have in the end.

    The first `n_earlier` trees are those of an earlier model, which all have.
    """
    trees = model.trees[n_earlier:]
    tell(write_model(trees))
    if job.shares_cover:
        tell(NodeStatistics(*(_joined(trees, name) for name in ("value", "gain", "cover"))))
    return as_handed_out(job, model, n_earlier)


def as_handed_out(job: Job, model: Ensemble, n_earlier: int = 0) -> Ensemble:
    """The model that all parties have in the end: itself, or with stand-ins for what the job does not share."""
    if job.shares_cover:
        return model
    same = Ensemble(model.mapper, model.loss, model.base_scores, classes=model.classes, meta=model.meta)
    for number, tree in enumerate(model.trees):
        same.append(tree if number < n_earlier else with_stand_ins(tree), checked=True)
    return same


def receive_model(me: Party, job: Job, model: Ensemble, most_trees: int, *, most_nodes: int) -> Ensemble:
    """Owner's side: the model with all trees."""
    to = job.coordinator
    message = me.recv(
        to, FinishedModel, n_features=len(model.features), most_trees=most_trees, most_nodes=min(most_nodes, 2**31)
    )
    n_nodes = len(message.feature)
    statistics = me.recv(to, NodeStatistics, n_nodes=n_nodes) if job.shares_cover else None
    for tree in read_model(to, message, statistics, model.mapper):
        model.append(tree, checked=True)
    return model


def with_stand_ins(tree: Tree) -> Tree:
    """The same tree with values, gains and covers of inner nodes that follow from its leaf values."""
    n_nodes = tree.n_nodes
    value, gain, cover = tree.value.copy(), np.zeros(n_nodes, np.float32), np.zeros(n_nodes)
    spread_evenly(tree.left.astype(np.int64), value, gain, cover)
    kept = {field.name: getattr(tree, field.name) for field in fields(tree)}
    return Tree.as_grown(**kept | {"value": value, "gain": gain, "cover": cover})


def read_model(sender: str, message: FinishedModel, statistics: NodeStatistics | None, mapper: BinMapper) -> list[Tree]:
    """The trees of a message. Nothing in it is believed: prediction follows children and looks up bins unchecked.

    All trees are checked at once, and children, thresholds and level sets are computed rather than read: the k-th inner
    node of a tree has children 2k + 1 and 2k + 2, and its threshold is an edge of its feature.
    """
    ends, feature, last_bin = message.tree_ends, message.feature, message.bin
    n_nodes = len(feature)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)

    def _require(holds: bool, what: str) -> None:
        if not holds:
            raise ProtocolError(f"{sender} sent a model that is not one: {what}")

    _require(bool((starts < ends).all()), "a tree without a node")
    inner = feature >= 0
    n_inner = np.add.reduceat(inner, starts, dtype=np.int64)
    _require(bool((ends - starts == 2 * n_inner + 1).all()), "a tree with too many or too few leaves")
    rank = _rank_within(inner, starts, ends)
    position = np.arange(n_nodes) - np.repeat(starts, ends - starts)
    _require(bool((position < 2 * rank + 1)[inner].all()), "a child that comes before its parent")

    n_value_bins, is_categorical = bin_counts(mapper.features)
    edges = FlatEdges([f.edges for f in mapper.features])
    by_levels = inner & is_categorical[feature]
    numeric = inner & ~by_levels
    _require(bool((last_bin[~numeric] == -1).all()), "a bin where there is no split by value")
    in_range = (last_bin[numeric] >= 0) & (last_bin[numeric] < n_value_bins[feature[numeric]])
    _require(bool(in_range.all()), "a bin that the feature has not")
    _require(message.left_levels.shape == (int(by_levels.sum()), 32), "too many or too few sets of levels")

    threshold = np.full(n_nodes, np.nan)
    threshold[numeric] = edges.flat[edges.first[feature[numeric]] + last_bin[numeric]]
    left = np.where(inner, 2 * rank + 1, -1).astype(np.int32)
    right = np.where(inner, 2 * rank + 2, -1).astype(np.int32)
    level_set = np.where(by_levels, _rank_within(by_levels, starts, ends), -1).astype(np.int32)
    values, gains, covers = message.value, message.value, np.zeros(0)
    if statistics is not None:
        values, gains, covers = statistics.value, statistics.gain, statistics.cover
        same = values[~inner].tobytes() == message.value[~inner].tobytes()
        _require(same, "leaf values that differ from those of its statistics")
    n_sets = np.add.reduceat(by_levels, starts, dtype=np.int64)
    sets = np.split(np.unpackbits(message.left_levels, axis=1).view(np.bool_), np.cumsum(n_sets)[:-1])
    trees = [
        Tree.as_grown(
            feature=feature[here],
            bin=last_bin[here],
            threshold=threshold[here],
            missing_left=message.missing_left[here].view(np.bool_),
            left=left[here],
            right=right[here],
            value=values[here],
            gain=gains[here],
            cover=covers[here],
            level_set=level_set[here],
            left_levels=levels,
        )
        for here, levels in zip(map(slice, starts.tolist(), ends.tolist()), sets, strict=True)
    ]
    return trees if statistics is not None else [with_stand_ins(tree) for tree in trees]


def _rank_within(chosen: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many of the chosen nodes come before each node in its tree."""
    before = np.cumsum(chosen) - chosen
    ranks: np.ndarray = before - np.repeat(before[starts], ends - starts)
    return ranks
