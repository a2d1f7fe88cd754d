"""The whole training, for one process that draws all noise: records in, model and statement out.

Records are on this machine (`records`) or in Ray's actors (`on_ray`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import ROW_ID, Bools, Bytes, Floats, Ints, RowIds, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import FlatEdges
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import ProtocolError
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event, Parallel
from hedgerow.protocols.bad_rows import OnBadRows
from hedgerow.protocols.central import bins
from hedgerow.protocols.central.dpboost.assignment import set_apart, streams, subsets
from hedgerow.protocols.central.dpboost.growth import (
    Candidates,
    ManyOutputs,
    TreeGrower,
    list_candidates,
    released_tree,
)
from hedgerow.protocols.central.dpboost.on_ray import rows_on_ray
from hedgerow.protocols.central.dpboost.plan import (
    look_rounds,
    planned_event,
    release_counts,
    release_looks,
    statement_of,
    with_looks,
)
from hedgerow.protocols.central.dpboost.records import Labelled, read_labelled
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.released import CentralFit
from hedgerow.protocols.central.weighing import Weighing
from hedgerow.runtime.progress import OnProgress
from hedgerow.schema import NumericColumn, Schema


def fit_central(
    X: Any,
    y: Any,
    schema: Schema,
    settings: DPBoostSettings,
    random: RandomBytes,
    *,
    n_threads: int = 1,
    on_progress: OnProgress | None = None,
    on_bad_rows: OnBadRows = "map",
    backend: RayBackend | None = None,
    weighing: Weighing | None = None,
    sample_weight: Any = None,
    earlier: Ensemble | None = None,
) -> CentralFit:
    """Train on a table that the schema describes.

    `random` makes noise and assignment and must be secret; production code passes `SecureRandom()`. With a `backend`,
    `X` are Parquet files that Ray's actors read, and `y` is the name of a column; noise and assignment are drawn here
    all the same. `earlier` is a released model to go on from: its scores follow from it and from a record alone, so
    they cost nothing; what it cost itself is not part of this event.
    """
    if settings.weighted != (weighing is not None):
        raise ProtocolError("settings and weights do not agree on whether records have weights")
    planned = planned_event(settings, schema)
    training = CentralTraining(schema, settings, random, n_threads, earlier)
    list_candidates(schema, training.bins)  # a schema without anything to ask is refused before the rows are read
    with ExitStack() as stack:
        if backend is None:
            table: TableLike = training.read(X, y, on_bad_rows, weighing, sample_weight)
        else:
            table = stack.enter_context(rows_on_ray(backend, X, y, schema, settings.loss, on_bad_rows))
            training.draw_streams()
        training.find_edges(table)
        if settings.protocol == "central.plain":
            model = training.plain(table)
            return CentralFit(model, planned, statement_of(settings, schema, planned, None, on_bad_rows))
        records = training.load(table)
        n_misfits = training.count_misfits(records)
        model = training.boost(records, on_progress)
    event = Composed(tuple(training.events))
    if event != planned:
        raise ProtocolError("what was released is not what was planned; the model is not private as stated")
    return CentralFit(model, event, statement_of(settings, schema, event, n_misfits, on_bad_rows))


class RecordsLike(ManyOutputs, Protocol):
    """Rows that a tree can be grown on, any subset of them at a time, wherever they are; see `Records`."""

    n_rows: int

    @property
    def n_misfits(self) -> int:
        """Rows with a value or a label that the schema does not allow. Not private."""
        ...

    def start_subset(self, ids: RowIds, bound: int, *, filtering: bool) -> None:
        """Let these rows stand at the root, with gradients of at most `bound`."""
        ...

    def losses_of(self, ids: RowIds) -> tuple[int, int]:
        """What these rows lose by the trees so far, and how many they are, by weight."""
        ...

    def start_from(self, scores_of: Callable[[Bytes], Scores]) -> None:
        """Let an earlier model's scores be where trees start."""
        ...

    def add_released(self, chosen: Ints, missing_left: Bools, child: Ints, values: Scores) -> None:
        """Add a released tree to the scores."""
        ...


class TableLike(Protocol):
    """A table with labels, wherever its rows are; see `Labelled`. Nothing that it says is private."""

    def cell_counts(self, columns: Mapping[int, NumericColumn]) -> Ints:
        """Rows in each cell of these columns."""
        ...

    def records(
        self, bins: BinMapper, candidates: Candidates, settings: DPBoostSettings, n_threads: int
    ) -> RecordsLike:
        """The rows in the form that trees are grown on."""
        ...

    def train(self, params: BoostingParams, bins: BinMapper) -> Ensemble:
        """The engine's model of the rows that count."""
        ...


class CentralTraining:
    """One run: bins, then trees, with the events of all releases."""

    def __init__(
        self,
        schema: Schema,
        settings: DPBoostSettings,
        random: RandomBytes,
        n_threads: int,
        earlier: Ensemble | None = None,
    ) -> None:
        self._earlier = earlier
        self._schema, self._settings, self._random, self._n_threads = schema, settings, random, n_threads
        self._streams: list[RandomBytes] = []
        self._apart: RandomBytes | None = None
        self.bins: BinMapper = bins.public_bins(schema, settings.max_bins)
        self.events: list[Event] = []

    def read(
        self,
        X: Any,
        y: Any,
        on_bad_rows: OnBadRows = "map",
        weighing: Weighing | None = None,
        sample_weight: Any = None,
    ) -> Labelled:
        """The table and its labels; then, before any noise is drawn, the secrets that assign records to trees."""
        labelled = read_labelled(X, y, self._schema, self._settings.loss, on_bad_rows, weighing, sample_weight)
        self.draw_streams()
        return labelled

    def draw_streams(self) -> None:
        """The secrets that assign records to trees: the first that a training draws."""
        if self._settings.protocol != "central.plain":
            self._streams = streams(self._settings, self._random)
        if self._settings.early_stopping:
            self._apart = SecureRandom.from_seed(self._random.bytes(32))

    def find_edges(self, table: TableLike) -> None:
        """Edges of bins from a noisy histogram, where they are not public."""
        settings, schema = self._settings, self._schema
        counted = bins.counted_columns(schema, settings.max_bins)
        if settings.binning == "private" and counted:
            exact = table.cell_counts(counted)
            counts, event = release_counts(settings, len(counted), exact, self._random)
            self.events.append(event)
            edges = bins.edges_from_counts(counts, counted, settings.max_bins)
            self.bins = bins.with_edges(self.bins, edges)

    def load(self, table: TableLike) -> RecordsLike:
        """The rows in the form that trees are grown on."""
        return table.records(self.bins, list_candidates(self._schema, self.bins), self._settings, self._n_threads)

    def count_misfits(self, records: RecordsLike) -> int | None:
        """The noisy number of rows that did not fit the schema, if it is wanted."""
        if not self._settings.clipped_count_share:
            return None
        count, event = release_counts(self._settings, 0, np.array([records.n_misfits], np.int64), self._random)
        self.events.append(event)
        return max(int(count[0]), 0)

    def boost(self, records: RecordsLike, on_progress: OnProgress | None = None) -> Ensemble:
        """All ensembles, one after the other; then, with early stopping, as many trees as the rows set apart choose."""
        settings, features = self._settings, self.bins.features
        candidates = list_candidates(self._schema, self.bins)
        grower = TreeGrower(records, candidates, settings, self._random)
        edges = FlatEdges([feature.edges for feature in features])
        is_categorical = np.array([feature.is_categorical for feature in features])
        bound, filtering = _gradient_limit(settings)
        step = settings.learning_rate * settings.n_outputs  # softmax: near even chances a Newton step is K times this
        model, ensembles = self._empty_model(), list[Event]()
        if self._earlier is not None:
            records.start_from(self._scores_of(self._earlier))
            for tree in self._earlier.trees:
                model.append(tree)
        n_earlier = model.n_iterations
        watched = None if self._apart is None else set_apart(settings, records.n_rows, self._apart)
        looks: list[tuple[int, int]] = []
        for n_trees, stream in zip(settings.ensembles, self._streams, strict=True):
            events: list[Event] = []
            for place, drawn in enumerate(subsets(settings, records.n_rows, n_trees, stream)):
                rows = drawn if watched is None else drawn[~watched[drawn]]
                records.start_subset(rows, bound, filtering=filtering)
                grown = grower.grow(place, model.n_iterations)
                values: Scores = (grown.leaf_value * step).astype(np.float32)
                records.add_released(*grown.asked, values)
                for shown in self._in_units(grown.leaf_value * step):
                    model.append(released_tree(grown.asked, candidates, is_categorical, edges, shown), checked=True)
                events.append(grown.event)
                if watched is not None:
                    looks.append(records.losses_of(np.flatnonzero(watched).astype(ROW_ID)))
                if on_progress is not None:
                    on_progress(model.n_iterations - n_earlier, settings.n_trees)
            ensembles.append(Parallel(tuple(events)))
        if watched is None:
            self.events += ensembles
            return model
        return self._stopped(model, ensembles, looks)

    def _stopped(self, model: Ensemble, ensembles: list[Event], looks: list[tuple[int, int]]) -> Ensemble:
        """The model with as many trees as the rows set apart choose, and its noisy learning curve."""
        settings = self._settings
        losses, sizes = np.array(looks, np.int64).T
        n_kept, curve, events = release_looks(settings, losses, int(sizes[0]), self._random)
        self.events.append(with_looks(ensembles, events))
        size, *points = np.maximum(curve.values, 0).tolist()
        name, units = metric_of(settings, self._schema)
        kept = model.truncated(model.n_iterations - settings.n_trees + n_kept)
        kept.meta |= {
            "best_iteration": kept.n_iterations - 1,
            "learning_curve": {name: [min(point / max(size, 1), 1.0) * units for point in points]},
            "learning_curve_after": look_rounds(settings),
        }
        return kept

    def plain(self, table: TableLike) -> Ensemble:
        """The engine on the same bins, without noise, sampling or clipping."""
        settings = self._settings
        params = BoostingParams(
            loss=settings.loss,
            n_iterations=settings.n_trees,
            learning_rate=settings.learning_rate,
            max_depth=settings.max_depth,
            l2=settings.l2,
            base_score=0.0,
            label_range=(-1.0, 1.0) if settings.loss == "squared" else None,
            n_threads=self._n_threads,
        )
        model = self._empty_model()
        for tree in table.train(params, self.bins).trees:
            model.append(replace(tree, value=self._in_units(tree.value.astype(np.float64))))
        return model

    def _empty_model(self) -> Ensemble:
        settings, schema = self._settings, self._schema
        meta: dict[str, Any] = {"protocol": settings.protocol}
        base = 0.0
        if schema.label_bounds is not None:
            low, high = schema.label_bounds
            base = (low + high) / 2.0
            meta["prediction_bounds"] = [low, high]
        elif settings.loss == "squared" and settings.n_outputs == 1:
            meta["probability"] = "clip((score + 1) / 2, 0, 1)"
        if settings.n_outputs > 1:
            return Ensemble(self.bins, "softmax", [0.0] * settings.n_outputs, classes=schema.classes, meta=meta)
        loss = "squared" if settings.loss == "quantile" else settings.loss  # what is predicted is the score itself
        return Ensemble(self.bins, loss, [base], classes=schema.classes, meta=meta)

    def _scores_of(self, earlier: Ensemble) -> Callable[[Bytes], Scores]:
        """A released model's scores of coded rows [outputs, rows], as the loss has them."""
        low, high = self._schema.label_bounds or (-1.0, 1.0)

        def scores(codes: Bytes) -> Scores:
            raw = earlier.raw_scores_binned(codes, self._n_threads) - earlier.base_scores
            return np.ascontiguousarray((raw.T * (2.0 / (high - low))).astype(np.float32))

        return scores

    def _in_units(self, values: Floats) -> Scores:
        """Leaf values in the units of the labels: those of scores in [-1, 1] times half the width of the bounds."""
        low, high = self._schema.label_bounds or (-1.0, 1.0)
        return (values * ((high - low) / 2.0)).astype(np.float32)


def _gradient_limit(settings: DPBoostSettings) -> tuple[int, bool]:
    """The largest absolute gradient in steps, and whether records beyond it are left out (else clipped).

    Without noise, and without subsets that would have to be bounded, there is nothing to protect: the sequential
    baseline then is the plain engine, whose gradients have twice the bound.
    """
    steps = 2**settings.scale.gradient_bits
    if settings.protocol == "central.sequential" and math.isinf(settings.epsilon):
        return round(2.0 * settings.gradient_bound * steps), False
    return round(settings.gradient_bound * steps), settings.filters


def metric_of(settings: DPBoostSettings, schema: Schema) -> tuple[str, float]:
    """What the losses of rows that are set apart are called, and how much the largest is, in units of the label."""
    if schema.label_bounds is None:
        return "brier", 1.0
    width = schema.label_bounds[1] - schema.label_bounds[0]
    if settings.loss == "squared":
        return "squared_error", width**2
    return "pinball", width * max(settings.quantile, 1.0 - settings.quantile)
