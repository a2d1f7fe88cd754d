"""The pooled engine's trees beside those of vertical.secret_shared: node by node, and the first that differs.

twin = pooled_twin(job, data)                          all columns in one table, in the order of the job
first_difference(parts, job, twin)                     None: equal to the last bit
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, threshold_of
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.runtime.protocol import PartyData

NUMBERS = ("left", "right", "value", "gain", "cover")
"""What must be the same in every node, whoever owns the split."""


class Twin(NamedTuple):
    """The engine's model over all columns, and the codes of all rows."""

    ensemble: Ensemble
    codes: Bytes
    owners: tuple[str, ...]  # of each column


class Split(NamedTuple):
    """One question, whoever asks it."""

    owner: str
    column: int  # among the owner's
    bin: int
    threshold: float
    missing_left: bool
    levels: bytes  # that go left; empty for numbers


def pooled_twin(job: SecretSharedJob, data: Mapping[str, PartyData]) -> Twin:
    """The label holder's columns first, then those of the feature holders in the order of the job.

    Names do not matter: two parties may call their columns alike.
    """
    owned = [(name, column) for name in job.holders for column in data[name].table.columns]
    columns = tuple(Column(f"column {k}", column.values, column.levels) for k, (_, column) in enumerate(owned))
    holder = data[job.label_holder]
    table = Table(columns, holder.table.n_rows, tuple(column.name for column in columns), has_names=True)
    mapper = BinMapper.fit(table, job.max_bins)
    codes = mapper.transform(table)
    n_classes = 2 if job.task == "classification" else None
    labels = np.asarray(holder.labels, np.float64)
    params = job.for_labels(n_classes, job.boosting.label_range or (0.0, 1.0))
    ensemble = train(Scales.of(job, table.n_rows).boosting(params), mapper, codes, labels).ensemble
    return Twin(ensemble, codes, tuple(name for name, _ in owned))


def first_difference(parts: Mapping[str, Any], job: SecretSharedJob, twin: Twin) -> str | None:
    """In words, the first node that is not the pooled engine's; None if all are, values and directions included."""
    mine: LabelHolderPart = parts[job.label_holder]
    pooled = twin.ensemble
    if not np.array_equal(mine.ensemble.base_scores, pooled.base_scores):
        return f"base score {mine.ensemble.base_scores[0]!r}, pooled {pooled.base_scores[0]!r}"
    if len(mine.ensemble.trees) != len(pooled.trees):
        return f"{len(mine.ensemble.trees)} trees, pooled {len(pooled.trees)}"
    for number, (ours, theirs) in enumerate(zip(mine.ensemble.trees, pooled.trees, strict=True)):
        for node in range(max(ours.n_nodes, theirs.n_nodes)):
            different = _difference(ours, theirs, node, parts, job, twin)
            if different is not None:
                return f"tree {number}, node {node}: {different}"
    return None


def _difference(
    ours: Tree, theirs: Tree, node: int, parts: Mapping[str, Any], job: SecretSharedJob, twin: Twin
) -> str | None:
    if node >= min(ours.n_nodes, theirs.n_nodes):
        return f"there are {ours.n_nodes} nodes, pooled {theirs.n_nodes}"
    asked, wanted = _asked(ours, node, parts, job), _wanted(theirs, node, twin)
    if asked != wanted:
        return f"{asked}, pooled {wanted}"
    for name in NUMBERS:
        one, other = getattr(ours, name)[node], getattr(theirs, name)[node]
        if one != other:
            return f"{name} {one!r}, pooled {other!r}"
    return None


def _wanted(tree: Tree, node: int, twin: Twin) -> Split | None:
    """The pooled engine's split."""
    feature = int(tree.feature[node])
    if feature < 0:
        return None
    owner = twin.owners[feature]
    return _own(tree, node, owner, feature - twin.owners.index(owner))


def _asked(tree: Tree, node: int, parts: Mapping[str, Any], job: SecretSharedJob) -> Split | None:
    """The label holder's own split, or what the owner of a handle asks."""
    mine: LabelHolderPart = parts[job.label_holder]
    feature = int(tree.feature[node])
    if feature < 0:
        return None
    if feature < mine.n_own:
        return _own(tree, node, job.label_holder, feature)
    owner = next(
        name for name in reversed(job.feature_holders) if mine.handles[name] and feature >= mine.first_column(name)
    )
    part: OwnerPart = parts[owner]
    handle, asked = feature - mine.first_column(owner), part.questions
    return Split(
        owner,
        int(asked.column[handle]),
        int(asked.bin[handle]),
        float(thresholds_of(part)[handle]),
        bool(asked.missing_left[handle]),
        b"",
    )


def _own(tree: Tree, node: int, owner: str, column: int) -> Split:
    by_levels = tree.level_set[node] >= 0
    return Split(
        owner,
        column,
        int(tree.bin[node]),
        0.0 if by_levels else float(tree.threshold[node]),  # none for levels
        bool(tree.missing_left[node]),
        tree.left_levels[tree.level_set[node]].tobytes() if by_levels else b"",
    )


def thresholds_of(part: OwnerPart) -> np.ndarray:
    """By handle: x < threshold goes left; +inf: every value that is there does; NaN for a split by levels."""
    out = np.full(part.n_handles, np.nan)
    for k, (column, last_bin) in enumerate(zip(part.questions.column, part.questions.bin, strict=True)):
        if part.features[column].levels is None:
            threshold = threshold_of(last_bin, part.features[column])
            out[k] = np.inf if threshold is None else threshold
    return out
