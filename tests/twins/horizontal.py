"""Rows split between owners, and the slow, obvious twin of horizontal.secure_sum: the plain engine on pooled rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hedgerow.attacks.secure_sum.singleton_cells import SummedLevel, plan_of
from hedgerow.engine.boosting import train
from hedgerow.engine.dtypes import Bytes, Floats, Ints, RowIds, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import LevelLost, TreeGrower
from hedgerow.engine.losses import BoostingParams, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.table import Column, Level, Table, read_table
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import Agreement, NextStep, Start
from hedgerow.protocols.horizontal.secure_sum.model import as_handed_out
from hedgerow.protocols.horizontal.secure_sum.owner import Owner
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import Vanishing
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import Recording

NAMES = ("anna", "ben", "carla", "dora", "emil", "fritz", "greta", "hans")
MISSING = -1


@dataclass(frozen=True, eq=False)
class Pooled:
    """All rows in one place: numeric columns as floats, others as codes into their levels (-1 for missing)."""

    columns: tuple[Column, ...]
    labels: Floats
    classes: tuple[Level, ...] | None = None

    @property
    def n_rows(self) -> int:
        """Rows of all owners."""
        return len(self.labels)

    @property
    def table(self) -> Table:
        """As the engine takes it."""
        return Table(self.columns, self.n_rows, tuple(column.name for column in self.columns), has_names=True)

    def rows(self, chosen: Any) -> Pooled:
        """Some of the rows, with the levels and classes of all."""
        columns = tuple(Column(c.name, c.values[chosen], c.levels) for c in self.columns)
        return Pooled(columns, self.labels[chosen], self.classes)

    def as_owned(self, chosen: Any) -> PartyData:
        """Some of the rows as an owner has them: only the levels and classes that occur there."""
        columns = []
        for column in self.columns:
            values = column.values[chosen]
            if column.levels is None:
                columns.append(Column(column.name, values))
                continue
            here = np.unique(values[values >= 0])
            codes = np.where(values < 0, MISSING, np.searchsorted(here, values)).astype(np.int32)
            columns.append(Column(column.name, codes, tuple(column.levels[k] for k in here.tolist())))
        labels, classes = self.labels[chosen], None
        if self.classes is not None:
            found, places = np.unique(labels, return_inverse=True)
            labels, classes = places.astype(np.float64), tuple(self.classes[int(k)] for k in found.tolist())
        table = Table(tuple(columns), len(labels), tuple(c.name for c in columns), has_names=True)
        return PartyData(table, labels, classes)


def make_pooled(
    rng: np.random.Generator,
    n_rows: int,
    *,
    task: str = "classification",
    n_classes: int = 2,
    n_numeric: int = 3,
    n_levels: int = 5,
    missing: float = 0.1,
) -> Pooled:
    """Made-up rows: numeric columns of several kinds, one with few values, one with levels; labels follow from them."""
    columns = []
    signal = rng.normal(scale=0.5, size=n_rows)
    for k in range(n_numeric):
        values = rng.normal(size=n_rows) * 10.0**k
        if k % 3 == 1:
            values = np.round(values)
        signal = signal + np.sin(values / 10.0**k * (k + 1))
        gaps = rng.random(n_rows) < missing
        columns.append(Column(f"x{k}", np.where(gaps, np.nan, values)))
    few = rng.integers(0, 3, n_rows)
    columns.append(Column("few", few.astype(np.float32)))
    if n_levels:
        codes = rng.integers(0, n_levels, n_rows)
        signal = signal + (codes % 3) - 1
        gaps = rng.random(n_rows) < missing
        levels = tuple(f"level {chr(97 + k)}" for k in range(n_levels))
        columns.append(Column("kind", np.where(gaps, MISSING, codes).astype(np.int32), levels))
    if task == "regression":
        return Pooled(tuple(columns), signal)
    if task == "counts":
        return Pooled(tuple(columns), rng.poisson(np.exp(np.clip(signal / 2, -2, 2))).astype(np.float64))
    cuts = np.quantile(signal, np.arange(1, n_classes) / n_classes)
    return Pooled(tuple(columns), np.digitize(signal, cuts).astype(np.float64), tuple(range(n_classes)))


def share_out(pooled: Pooled, sizes: Sequence[int]) -> dict[str, PartyData]:
    """The rows in blocks of these sizes, one block to each owner."""
    ends = [0, *itertools.accumulate(sizes)]
    return {
        name: pooled.as_owned(np.arange(start, stop))
        for name, (start, stop) in zip(NAMES, itertools.pairwise(ends), strict=False)
    }


def job_for(data: Mapping[str, PartyData], **changes: Any) -> Job:
    """A small job of these owners; `changes` are parameters of trees and of the job alike."""
    names = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in names}
    boosting = BoostingParams(**{"n_iterations": 4, "max_depth": 3, "learning_rate": 0.3, **trees})
    if changes.get("task") == "regression" and boosting.label_range is None:
        changes = {"exact_label_range": True, **changes}
    return Job(owners=tuple(data), run_id="a test", boosting=boosting, **changes)


def pooled_params(job: Job, pooled: Pooled) -> BoostingParams:
    """What the engine is told to train the same model."""
    observed = (float(pooled.labels.min()), float(pooled.labels.max()))
    return job.for_labels(len(pooled.classes or ()), job.boosting.label_range or observed)


def pooled_model(job: Job, pooled: Pooled, like: Ensemble) -> Ensemble:
    """The plain engine on the pooled rows, with the bins of `like`."""
    codes = codes_of(pooled, like)
    model = train(pooled_params(job, pooled), like.mapper, codes, pooled.labels).ensemble
    model.classes = pooled.classes
    return as_handed_out(job, model)


def codes_of(pooled: Pooled, like: Ensemble) -> Bytes:
    """The rows coded by the bins of a model."""
    return like.mapper.transform(read_table(pooled.table, like=like.mapper.features, where="pooled rows"))


def document(model: Ensemble) -> dict[str, Any]:
    """All that a model is, but for what it says about its training."""
    return {key: value for key, value in model.to_dict().items() if key != "meta"}


# --- what becomes of a training that loses owners ------------------------------------------------------------------


def with_losses(
    job: Job, pooled: Pooled, owned: Mapping[str, Iterable[int]], lost: Mapping[str, tuple[int, int]], like: Ensemble
) -> Ensemble:
    """The plain engine on rows that are taken away in the middle: lost[owner] = (tree, level) of its first silence.

    The tree at hand ends at the level before; if that is no level at all, it begins again without the owner's rows.
    """
    engine = _LosingEngine(job, pooled, like)
    left = {name: list(rows) for name, rows in owned.items()}
    engine.take(left)
    for number in range(engine.params.n_iterations * engine.loss.n_outputs):
        gone = {name: level for name, (tree, level) in lost.items() if tree == number}
        finished = engine.grow(number, min(gone.values(), default=None))
        left = {name: rows for name, rows in left.items() if name not in gone}
        if gone:
            engine.take(left)
        if not finished:
            engine.grow(number, None)
    return as_handed_out(job, engine.model)


class _LosingEngine:
    """Trees one at a time, on rows that may become fewer between them."""

    def __init__(self, job: Job, pooled: Pooled, like: Ensemble) -> None:
        self.params = params = pooled_params(job, pooled)
        self.loss = loss = params.loss_for(pooled.labels)
        n_rows = pooled.n_rows
        self._quantiser = Quantiser.for_job(loss, float(n_rows), n_rows=n_rows, gradient_bits=params.gradient_bits)
        self._codes, self._labels = codes_of(pooled, like), pooled.labels
        self.model = Ensemble(like.mapper, loss.name, loss.base_scores(pooled.labels), classes=pooled.classes)

    def take(self, owned: Mapping[str, Iterable[int]]) -> None:
        """Go on with these rows only."""
        chosen = np.sort(np.concatenate([np.asarray(rows, np.int64) for rows in owned.values()]))
        model, loss = self.model, self.loss
        codes = np.ascontiguousarray(self._codes[:, chosen])
        rows = StoppingRows.from_codes(
            model.mapper,
            codes,
            self._labels[chosen],
            None,
            loss=loss,
            base_scores=model.base_scores,
            quantiser=self._quantiser,
        )
        self._rows = cast("StoppingRows", rows)
        edges = [feature.edges for feature in model.mapper.features]
        self._grower = TreeGrower(rows, self.params, loss, self._quantiser, edges, weighted=False)
        # Gradients are those of the scores at the beginning of a round of trees, one for each output.
        begun = len(model.trees) // loss.n_outputs * loss.n_outputs
        for number, tree in enumerate(model.trees):
            if number == begun:
                rows.gradients()
            model.add_binned(codes, tree, rows.scores[number % loss.n_outputs])
        if begun == len(model.trees):
            rows.gradients()

    def grow(self, number: int, stop_at: int | None) -> bool:
        """One more tree, whose sums stop at a level; False if that is the first one, and there is no tree."""
        output = number % self.loss.n_outputs
        if output == 0:
            self._rows.gradients()
        self._rows.start_tree(output)
        self._rows.stop_at = stop_at
        try:
            self.model.append(self._grower.grow(number))
        except LevelLost:
            return False
        return True


class StoppingRows(Rows):
    """Rows whose sums stop coming at a level of each tree."""

    stop_at: int | None = None
    _level = 0

    def start_tree(
        self, output: int = 0, *, sample: tuple[int, int, float] | None = None, rows: RowIds | None = None
    ) -> None:
        """A new tree."""
        self._level = 0
        super().start_tree(output, sample=sample, rows=rows)

    def histograms(self, nodes: Ints, slots: Ints, cells: Ints, *, counts: bool = False) -> None:
        """The sums of some nodes; LevelLost from the level on at which they stop."""
        if self._level == self.stop_at:
            raise LevelLost
        super().histograms(nodes, slots, cells, counts=counts)

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """Move to the next level."""
        self._level += 1
        super().descend(feature, goes_left, last=last)


# --- what passes at a coordinator, and owners that vanish ----------------------------------------------------------


def vanishing_at(tree: int, level: int, *, having_sent: bool = False) -> Callable[[Endpoint], Vanishing]:
    """A party that is asked for the sums of this level and answers with silence, or goes right after its answer."""

    def wrap(endpoint: Endpoint) -> Vanishing:
        asked: list[tuple[int, int]] = []

        def when(direction: str, frame: bytes) -> bool:
            if direction == "received" and peek(frame)[0] == NextStep.NAME:
                if having_sent and (tree, level) in asked:
                    return True
                plan = plan_of(decode(frame, NextStep))
                asked.append((plan.tree, plan.level))
                return not having_sent and asked[-1] == (tree, level)
            return False

        return Vanishing(endpoint, when)

    return wrap


def positions(levels: Iterable[SummedLevel]) -> dict[tuple[int, int, int], list[SummedLevel]]:
    """(tree, level, part) -> all attempts to sum it."""
    found: dict[tuple[int, int, int], list[SummedLevel]] = {}
    for level in levels:
        plan = level.plan
        found.setdefault((plan.tree, plan.level, plan.part), []).append(level)
    return found


def own_parts(recording: Recording, data: PartyData, job: Job) -> list[Words]:
    """What an owner itself contributed to each level, from its rows and the messages it received."""
    owner = Owner(recording.name, data, job)
    to = job.coordinator
    owner.agree(to, recording.messages(Agreement, "received")[0], job.label_range or owner.label_range)
    owner.totals()
    owner.start(to, recording.messages(Start, "received")[0])
    parts = [owner.take(step, plan_of(step)) for step in recording.messages(NextStep, "received")]
    return [part for part in parts if part is not None]
