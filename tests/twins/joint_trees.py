"""For tests of protocols whose splits are open: pooled columns dealt out, and how parts differ from pooled trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.protocols.vertical.common.agreement import VerticalJob
from hedgerow.protocols.vertical.common.parts import Questions, divide
from hedgerow.runtime.protocol import PartyData
from twins.horizontal import Pooled
from twins.vertical import table_of

OF_TREES = ("left", "right", "value", "gain", "cover")


def deal_columns(
    pooled: Pooled, names: Sequence[str], holder: str, weight: Floats | None = None
) -> dict[str, PartyData]:
    """The columns of pooled rows in blocks, one for each party; the labels, and weights of rows, to one of them."""
    cuts = np.linspace(0, len(pooled.columns), len(names) + 1).astype(int)
    data = {}
    for k, name in enumerate(names):
        data[name] = PartyData(table_of(pooled.columns[cuts[k] : cuts[k + 1]]))
        if name == holder:
            data[name] = replace(data[name], labels=pooled.labels, classes=pooled.classes, weight=weight)
    return data


class _FirstOrderRows(Rows):
    """Rows whose hessians are all 1."""

    def gradients(self) -> None:
        """Write the gradients, then a one into every hessian."""
        super().gradients()
        ones = np.int64(self.quantiser.hessian_scale)
        self.gradients_packed[:] = ((self.gradients_packed >> 32) << 32) + ones


def first_order_twin(params: BoostingParams, mapper: BinMapper, codes: Bytes, labels: Floats) -> Ensemble:
    """The pooled engine's trees for two classes, with every hessian set to 1."""
    n_rows = len(labels)
    loss, ones = Loss("logistic"), Loss("squared")
    quantiser = Quantiser(
        Quantiser.for_job(loss, n_rows, n_rows=n_rows).gradient_scale,
        Quantiser.for_job(ones, n_rows, n_rows=n_rows).hessian_scale,
    )
    bases = loss.base_scores(labels)
    rows = _FirstOrderRows.from_codes(mapper, codes, labels, None, loss=loss, base_scores=bases, quantiser=quantiser)
    edges = [feature.edges for feature in mapper.features]
    grower = TreeGrower(rows, params, ones, quantiser, edges, weighted=False)
    twin = Ensemble(mapper, "logistic", bases)
    for number in range(params.n_iterations):
        rows.gradients()
        rows.start_tree()
        twin.append(grower.grow(number))
    return twin


def joint_scores(parts: Mapping[str, Any], job: VerticalJob, data: Mapping[str, PartyData]) -> Scores:
    """Predictions of all parties together."""
    holder = parts[job.label_holder]
    answers = {name: parts[name].answers(parts[name].codes(data[name].table)) for name in job.feature_holders}
    scores: Scores = holder.raw_scores(holder.codes(data[job.label_holder].table), answers)
    return scores


def difference_from_pooled(
    parts: Mapping[str, Any], job: VerticalJob, data: Mapping[str, PartyData], twin: Ensemble, codes: Bytes
) -> str | None:
    """Where parts first differ from the model of pooled rows; None if trees, questions and scores are the same bits."""
    owners = [name for name in job.parties for _ in data[name].table.columns]
    expected, questions = divide(twin, owners, job.label_holder, protocol="", run_id="")
    mine = parts[job.label_holder]
    if mine.n_own != expected.n_own or not np.array_equal(mine.ensemble.base_scores, twin.base_scores):
        return "own columns or base scores"
    if mine.handles != {name: questions[name].n_handles for name in job.feature_holders}:
        return "numbers of questions"
    if len(mine.ensemble.trees) != len(twin.trees):
        return "number of trees"
    for number, (ours, theirs) in enumerate(zip(mine.ensemble.trees, twin.trees, strict=True)):
        for name in OF_TREES:
            if not np.array_equal(getattr(ours, name), getattr(theirs, name)):
                return f"{name} of tree {number}"
    for name in job.feature_holders:
        if _listed(parts[name].questions) != _listed(questions[name]):
            return f"questions of {name}"
    return None if np.array_equal(joint_scores(parts, job, data), twin.raw_scores_binned(codes)) else "scores"


def _listed(questions: Questions) -> set[tuple[Any, ...]]:
    return {(*map(int, row[:3]), row[3].tobytes()) for row in zip(*questions, strict=True)}
