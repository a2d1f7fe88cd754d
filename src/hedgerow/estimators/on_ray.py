"""An estimator's rows on a Ray cluster: placed, binned and trained on by actors.

    with placed(backend, rows, classes) as there:        actors start, and know which rows are theirs
        mapper = there.bins(max_bins)                    edges as one machine would choose them
        result = there.train(params, mapper, ...)        the loop over trees runs here, all sums there

Rows in Parquet files are read by the actors themselves; the driver has labels and weights only, a few bytes a row, and
rows that are watched. Rows in memory, and those of a dataset of Ray Data, pass through Ray's object store, where
that is allowed. The model is that of one machine, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import BinMapper, steps_of
from hedgerow.engine.boosting import TrainingResult, boost, check_rules, start_model
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows_ray.actors import CodedRows, Crew, Setup
from hedgerow.engine.rows_ray.cluster import RayBackend, connected, n_actors_of
from hedgerow.engine.rows_ray.rows import RayRows, blocks_in_memory, check_allowed
from hedgerow.engine.rows_ray.stored import (
    CrewAnswers,
    LabelColumn,
    StoredBlock,
    code_ranges,
    join_ranges,
    stored_blocks,
)
from hedgerow.engine.sparse import written_out
from hedgerow.engine.streaming import find_bins
from hedgerow.errors import InvalidParameter
from hedgerow.estimators.streamed import BlockRows


class _Place:
    """Rows, and the crew that holds them."""

    def __init__(self, ray: Any, backend: RayBackend, rows: Any, classes: npt.NDArray[Any] | None) -> None:
        self._ray, self._backend, self._rows = ray, backend, rows
        n_actors = n_actors_of(ray, backend)
        self._stored: list[StoredBlock] = []
        if isinstance(rows, BlockRows):
            blocks = rows.blocks
            if rows.keep is not None and rows.weight is None:
                raise InvalidParameter(
                    "early_stopping=True would set rows apart, and actors would not know which; give X_val and y_val"
                )
            if not isinstance(blocks.target, str) or (rows.weight is not None and not isinstance(blocks.weight, str)):
                raise InvalidParameter(
                    "backend: actors read labels and weights from the files themselves; give them as names of columns"
                )
            self._stored = stored_blocks(
                blocks,
                backend,
                n_actors,
                target=blocks.target,
                weight=None if rows.weight is None else blocks.weight,
                keep=rows.keep,
                weights=rows.weight,
                read_labels=LabelColumn(None if classes is None else tuple(classes.tolist())),
            )
            n_actors = len(self._stored)
        else:
            n_actors = min(n_actors, len(rows.labels))
        self.crew = Crew(ray, backend, n_actors)

    def bins(self, max_bins: int, n_threads: int) -> BinMapper:
        """As one machine would choose them."""
        rows = self._rows
        if not self._stored:
            mapper: BinMapper = rows.bins(max_bins, n_threads)
            return mapper
        self.crew.assign(self._stored)
        steps = None if rows.weight is None else steps_of(rows.weight)
        total = len(rows.labels) if steps is None else int(steps.whole(rows.weight).sum())
        answers = CrewAnswers(self.crew, total)
        return find_bins(rows.blocks, max_bins, answers, rows.categorical_features, rows.many_levels)

    def train(
        self, params: BoostingParams, mapper: BinMapper, init: Ensemble | None, **watched: Any
    ) -> tuple[TrainingResult, list[str]]:
        """The model, and the columns in which all rows are alike."""
        labels, weight = self._rows.labels, self._rows.weight
        check_rules(params, mapper, labels)
        loss = params.loss_for(labels)
        ensemble = start_model(params, mapper, loss, labels, weight, init)
        quantiser = Quantiser.for_rows(loss, len(labels), weight, gradient_bits=params.gradient_bits)
        if self._stored:
            self.crew.assign(self._stored)
        else:
            codes = written_out(self._rows.codes(mapper, params.n_threads))
            held = CodedRows(codes, labels, weight, np.empty((0, 2), np.int64))
            self.crew.assign(blocks_in_memory(self._ray, self._backend, held, len(self.crew.actors)))
        setup = Setup(mapper, loss, ensemble.base_scores, quantiser, self._backend.threads)
        counts_first = params.min_rows_per_sum > 1
        rows = RayRows(self.crew, setup, ensemble, n_threads=params.n_threads, counts_first=counts_first)
        low, high = self.crew.merged(code_ranges, {}, join_ranges)
        constant = [feature.name for feature, alike in zip(mapper.features, low == high, strict=True) if alike]
        if len(constant) == len(mapper.features):
            return TrainingResult(ensemble), constant
        weighted = weight is not None
        how = {"weighted": weighted, "after_iteration": self.crew.settle, **watched}
        return boost(params, loss, rows, ensemble, rows.add_tree, **how), constant


@contextmanager
def placed(backend: RayBackend, rows: Any, classes: npt.NDArray[Any] | None) -> Iterator[_Place]:
    """The rows of a fit on the cluster, for as long as it lasts; `classes` are those of its labels, if it has some."""
    if not isinstance(rows, BlockRows):
        check_allowed(backend, "a table in memory reaches Ray's actors only through its object store")
    with connected(backend) as ray:
        place = _Place(ray, backend, rows, classes)
        try:
            yield place
        finally:
            place.crew.close()
