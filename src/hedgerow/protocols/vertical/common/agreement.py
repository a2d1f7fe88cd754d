"""What label holders and feature holders agree on before anything else moves: a job, and that what they bring fits it.

    HoldersJob              who takes part, and who of them holds the labels
        VerticalJob         a training: everybody brings a table, and says that it is in order
        ServiceJob          what is done with a trained model: everybody brings its part of it, and columns of the rows

No row makes a private run fail (`protocols.bad_rows`). How many rows did not fit what is public is for the party's own
log: no message has it, and no file that others may get. Where nobody holds labels yet (vertical.aligning), a job only
has the check of its parties in common with these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import MAX_BINS, SCORE, Bools, Bytes, Floats, Ints, Scores
from hedgerow.engine.losses import NO_MIN_ROWS, BoostingParams, Loss, check_weight
from hedgerow.engine.table import Coded, Table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.bad_rows import FittedLabels, OnBadRows, entry_for, fit_described, gaps_of, places_of
from hedgerow.protocols.made_up import MADE_UP, made_up_model
from hedgerow.protocols.vertical.common.messages import Classes, GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part, Target
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Job, PartyData, Rehearsal, Settled, option
from hedgerow.runtime.resources import check_memory
from hedgerow.schema import Column, Level, Schema

PATIENCE = 2.5
"""How much longer than the label holder feature holders wait: it may first have to wait for another one."""
TASKS = ("classification", "regression")
ALL_ROWS = slice(None)
BINS = f"between 2 and {MAX_BINS}"


def check_parties(name: str, parties: Sequence[str]) -> None:
    """InvalidParameter, naming the protocol, unless there are at least two parties with names of their own."""
    if len(parties) < 2:
        raise InvalidParameter(f"{name} needs at least 2 parties, got {len(parties)}")
    if len(set(parties)) < len(parties) or not all(isinstance(party, str) and party for party in parties):
        raise InvalidParameter(f"{name}: parties must have different names, got {list(parties)}")


@dataclass(frozen=True)
class HoldersJob(Job):
    """What a label holder and feature holders must agree on. Nothing in it is secret."""

    NAME = "vertical"

    parties: tuple[str, ...]  # in the order in which their columns count, which decides between equal splits
    label_holder: str
    run_id: str

    def check(self) -> None:
        """The label holder is one of the parties."""
        check_parties(self.NAME, self.parties)
        if self.label_holder not in self.parties:
            raise InvalidParameter(
                f"{self.NAME}: the label holder must be one of {list(self.parties)}, got {self.label_holder!r}"
            )

    @property
    def feature_holders(self) -> tuple[str, ...]:
        """Everybody but the label holder."""
        return tuple(party for party in self.parties if party != self.label_holder)

    @property
    def others(self) -> str:
        """The feature holders' names in a row, for sentences."""
        *names, last = self.feature_holders
        return f"{', '.join(names)} and {last}" if names else last

    @property
    def facts(self) -> dict[str, Any]:
        """Who took part, as the facts of a statement begin."""
        return {"protocol": self.NAME, "label_holder": self.label_holder, "feature_holders": list(self.feature_holders)}

    @property
    def holders(self) -> tuple[str, ...]:
        """Who has data: the label holder, then the feature holders. Shares and columns go by this order."""
        return (self.label_holder, *self.feature_holders)

    @property
    def cast(self) -> Mapping[str, str]:
        """The label holder, who listens, then the feature holders."""
        return {self.label_holder: LABEL_HOLDER, **dict.fromkeys(self.feature_holders, FEATURE_HOLDER)}


class WithDealer(HoldersJob):
    """A job with one more party, which has no data."""

    dealer: str

    def check(self) -> None:
        """The dealer is nobody else."""
        super().check()
        if not isinstance(self.dealer, str) or not self.dealer or self.dealer in self.parties:
            raise InvalidParameter(
                f"{self.NAME}: the dealer must be a party of its own, beside {list(self.parties)}, got {self.dealer!r}"
            )

    @property
    def cast(self) -> Mapping[str, str]:
        """Who has data, the label holder first, and the dealer."""
        return {**super().cast, self.dealer: DEALER}

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Everybody with everybody: what parties open to each other must not pass through the dealer."""
        return tuple(itertools.combinations(self.cast, 2))


class WithSchema(HoldersJob):
    """A job with public facts about columns and labels."""

    schema: Schema | None

    @property
    def listed_classes(self) -> tuple[Level, ...] | None:
        """The classes of the public schema, if it has any."""
        return None if self.schema is None else self.schema.classes

    def described(self, party: str, column: str) -> Column | None:
        """What the schema says about a party's column, under "party.column" or "column"."""
        return entry_for(self.schema, party, column)


@dataclass(frozen=True)
class VerticalJob(HoldersJob):
    """What all parties of a vertical training must agree on."""

    OPENS_SUMS: ClassVar[bool] = False  # of nodes whose rows all parties know, so that there may be a minimum of them
    BY_COLUMN: ClassVar[bool] = (
        False  # whether the label holder knows all rows of nodes, and by which column they split
    )

    task: str = option("classification", "what is predicted", one_of=TASKS, settled=True)
    boosting: BoostingParams = field(default_factory=BoostingParams)
    max_bins: int = option(MAX_BINS, "bins of a column", words=BINS, at_least=2, at_most=MAX_BINS, settled=True)

    def check(self) -> None:
        """What trees cannot do where columns are split."""
        super().check()
        if self.boosting.monotone is not None and not self.BY_COLUMN:
            raise InvalidParameter(
                f"{self.NAME}: monotonic_cst is not available where columns are split, got {self.boosting.monotone}"
            )
        if self.boosting.min_rows_per_sum > 1 and not self.OPENS_SUMS:
            raise InvalidParameter(f"{self.NAME}: {NO_MIN_ROWS}, got {self.boosting.min_rows_per_sum}")

    def for_labels(self, n_classes: int | None, label_range: tuple[float, float]) -> BoostingParams:
        """The boosting parameters, for labels of this many classes (None: for a regression) and this range."""
        if n_classes is None:
            return replace(self.boosting, label_range=self.boosting.label_range or label_range)
        return replace(self.boosting, loss="logistic" if n_classes == 2 else "softmax", n_classes=n_classes)

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data."""
        if settled.label_holder is None:
            raise InvalidParameter(f"{cls.NAME}: somebody must hold the labels")
        return cls(**settled._asdict(), **options)


# --- a training: tables ----------------------------------------------------------------------------------------------


def check_table(
    party: str, data: PartyData | None, *, needs_columns: bool = True, needs_values: bool = True
) -> PartyData:
    """InvalidInput, naming party and column, for a table that nothing can be trained on.

    Without `needs_values` nothing depends on what rows hold, as it must be where they are protected.
    """
    if data is None:
        raise InvalidInput(f"{party}: brings no table")
    table = data.table
    if needs_columns and not table.columns:
        raise InvalidInput(f"{party}: brings no column; a party that takes part needs at least one")
    for column in table.columns if needs_values else ():
        if gaps_of(column).all():
            raise InvalidInput(f"{party}: column {column.name!r} is empty, every value is missing; leave it out")
    return data


class OwnColumns:
    """A party's own columns, binned by itself: by their values, by a public `mapper`, or as an earlier part was.

    Who knows which rows are `learned` goes by the values of these.
    """

    def __init__(
        self,
        party: str,
        job: VerticalJob,
        data: PartyData,
        mapper: BinMapper | None = None,
        learned: Ints | slice = ALL_ROWS,
    ) -> None:
        table, params = data.table, job.boosting
        check_memory(party, table.n_rows, len(table.columns), job.max_bins, params.max_depth, params.max_leaves)
        if data.part is not None:
            mapper = BinMapper(data.part.features)
        elif mapper is None:
            seen = table if isinstance(learned, slice) else table.taken(learned)
            mapper = BinMapper.fit(seen, job.max_bins, n_threads=data.n_threads)
        self.features, self.n_rows, self.n_threads = mapper.features, table.n_rows, data.n_threads
        self.codes = mapper.transform(table, data.n_threads)


def fitted(
    me: Party,
    job: VerticalJob,
    data: PartyData,
    described: Sequence[Column | None],
    *,
    classes: Sequence[Level] | None,
    on_bad_rows: OnBadRows,
) -> tuple[PartyData, Bools]:
    """The same data with columns as `described`, labels as the list of classes has them; and which rows have a label.

    Feature holders have none, and there all rows count.
    """
    table, misfits = fit_described(data.table, described, where=me.name, on_bad_rows=on_bad_rows)
    if data.misfits is not None:
        if on_bad_rows == "raise" and data.misfits.any():
            raise InvalidInput(f"{me.name}: a value or a label could not be read as the schema has it")
        misfits = misfits | data.misfits
    counts = np.ones(table.n_rows, np.bool_)
    if me.name == job.label_holder:
        labels = _fit_own_labels(me.name, job, data, classes, on_bad_rows)
        counts, misfits = labels.counts, misfits | labels.misfits
        known = data.classes if classes is None or data.classes is None else tuple(classes)
        data = replace(data, labels=labels.values, classes=known)
    if misfits.any():
        me.log.warning(
            "%s: %d of its rows did not fit what is public about them, and were mapped; no other party is told",
            me.name,
            int(misfits.sum()),
        )
    return replace(data, table=table), counts


def _fit_own_labels(
    party: str, job: VerticalJob, data: PartyData, listed: Sequence[Level] | None, on_bad_rows: OnBadRows
) -> FittedLabels:
    """Labels as places in a public list of classes, or as numbers within the public range; and which rows have one.

    One that is missing or not listed becomes the first class, or the middle of the range; without a range it is NaN.
    What becomes of a label depends on that label alone, so no error and no number of classes depends on a row. Without
    a list classes are read off the labels.
    """
    labels = _one_per_row(party, data)
    if data.classes is not None:
        codes = np.where(np.isfinite(labels), labels, -1.0).astype(np.int64)
        if listed is not None:  # one that is not listed has the class None
            codes = places_of(Coded(codes, list(data.classes), declared=True), listed)[0].astype(np.int64)
        values, counts = codes.astype(np.float64), codes >= 0
        misfits, default = ~counts, 0.0
    else:
        low, high = job.boosting.label_range or (-math.inf, math.inf)
        low = max(low, 0.0) if job.boosting.loss == "poisson" else low
        values = np.clip(labels, low, high)
        counts = np.isfinite(values)
        misfits = ~counts | (values != labels)
        default = low + (high - low) / 2.0 if math.isfinite(high - low) else math.nan
    if on_bad_rows == "raise" and misfits.any():
        if data.classes is None and counts.all():
            what = f"some labels lie outside the declared label_range {job.boosting.label_range}"
        else:
            what = "a label is missing" + ("" if listed is None else f", or not one of the classes {list(listed)}")
        raise InvalidInput(f"{party}: {what}")
    return FittedLabels(np.where(counts, values, default), counts, misfits)


def finite_labels(party: str, job: VerticalJob, data: PartyData, *, most_classes: int = 2) -> Floats:
    """One number for each row: of this many classes at most, or of a regression. Their range is the caller's affair."""
    labels = _one_per_row(party, data)
    if not np.isfinite(labels).all():
        raise InvalidInput(f"{party}: label of row {int(np.argmin(np.isfinite(labels)))} is not a finite number")
    if (data.classes is None) != (job.task == "regression"):
        raise InvalidInput(f"{party}: the labels are not those of a {job.task}")
    if data.classes is not None and len(data.classes) > most_classes:
        most = "two" if most_classes == 2 else f"at most {most_classes:,}"
        raise InvalidInput(f"{party}: {job.NAME} is for {most} classes, but the labels have {len(data.classes)}")
    return labels


def labels_and_loss(
    party: str, job: VerticalJob, data: PartyData, *, most_classes: int = 2, learned: Ints | slice = ALL_ROWS
) -> tuple[Floats, Loss, Floats | None]:
    """Finite labels within the declared range, the loss that goes with them, and the rows' weights if they have any.

    The range is that of rows that are `learned` from; where none is declared, rows of weight 0 do not count either.
    """
    labels = finite_labels(party, job, data, most_classes=most_classes)
    weight = data.weight
    if weight is not None:
        check_weight(party, weight, len(labels))
        if not weight[learned].any():
            raise InvalidInput(f"{party}: every sample_weight of rows to learn from is zero")
    given, known = job.boosting.label_range, labels[learned]
    counted = known if weight is None else known[weight[learned] > 0]
    if data.classes is None and given is not None and (known.min() < given[0] or known.max() > given[1]):
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {given}")
    n_classes = None if data.classes is None else max(len(data.classes), 2)
    params = job.for_labels(n_classes, (float(counted.min()), float(counted.max())))
    return labels, params.loss_for(counted), weight


def going_on(party: str, data: PartyData) -> tuple[PartyData, Any]:
    """What a party brings, read as its part of an earlier model reads rows; and that part, None if there is none."""
    part = data.part
    if part is None:
        return data, None
    if part.party != party:
        raise InvalidInput(f"{party}: brings the part of {part.party}")
    return replace(data, table=rows_of(part, data.table)), part


def start_of(
    party: str, job: VerticalJob, loss: Loss, labels: Floats, weight: Floats | None, data: PartyData
) -> tuple[Floats, Scores | None]:
    """Base scores, and the scores [outputs, rows] that rows begin with: none, or those of an earlier model."""
    if data.part is None:
        return job.boosting.base_scores(loss, labels, weight), None
    target = data.part.target
    if target is None or target.loss != loss.name or target.n_outputs != loss.n_outputs:
        raise InvalidInput(f"{party}: the earlier model is not one for the {loss.name} loss")
    shape = (loss.n_outputs, data.table.n_rows)
    if data.init_scores is None or data.init_scores.shape != shape or not np.isfinite(data.init_scores).all():
        raise InvalidInput(f"{party}: to go on from an earlier model takes its finite scores of all rows, {shape}")
    return np.array(target.base_scores), np.ascontiguousarray(data.init_scores, SCORE).copy()


def _one_per_row(party: str, data: PartyData) -> Floats:
    if data.labels is None:
        raise InvalidInput(f"{party}: the label holder needs labels")
    labels = np.ascontiguousarray(data.labels, np.float64)
    if labels.shape != (data.table.n_rows,):
        raise InvalidInput(f"{party}: {len(labels)} labels for {data.table.n_rows} rows")
    return labels


def begin_as_feature_holder(me: Party, job: VerticalJob, data: PartyData) -> None:
    """Say that its own table is in order, and wait until everybody's is."""
    me.wait_longer(PATIENCE)
    me.send(job.label_holder, ReadyToTrain(data.table.n_rows, len(data.table.columns)))
    me.recv(job.label_holder, GoAhead, n_rows=data.table.n_rows)


def begin_as_label_holder(me: Party, job: VerticalJob, data: PartyData) -> dict[str, int]:
    """Wait until all are ready, and check that they have equally many rows. Returns everybody's number of columns."""
    n_rows = data.table.n_rows
    n_columns = {me.name: len(data.table.columns)}
    for party in job.feature_holders:
        ready = me.recv(party, ReadyToTrain)
        check_rows(party, ready.n_rows, me.name, n_rows, ", align them first")
        n_columns[party] = ready.n_columns
    me.send_all(job.feature_holders, GoAhead(n_rows))
    return {party: n_columns[party] for party in job.parties}


def tell_classes(me: Party, job: VerticalJob, loss: Loss) -> None:
    """Let feature holders know how many trees there will be, where that depends on the labels."""
    if job.task == "classification":
        me.send_all(job.feature_holders, Classes(max(loss.n_outputs, 2)))


def trees_to_grow(me: Party, job: VerticalJob) -> int:
    """How many there will be, as the label holder tells it: one per iteration and class, of two classes one."""
    n_classes = me.recv(job.label_holder, Classes).n_classes if job.task == "classification" else 2
    return job.boosting.n_iterations * (1 if n_classes == 2 else n_classes)


def check_rows(party: str, brings: int, label_holder: str, n_rows: int, advice: str = "") -> None:
    """InvalidInput unless a feature holder brings as many rows as the label holder."""
    if brings != n_rows:
        raise InvalidInput(
            f"{party}: has {brings} rows, but {label_holder} has {n_rows}; the rows of all parties must be the same "
            f"ones in the same order{advice}"
        )


# --- a service: parts and rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServiceJob(HoldersJob):
    """What all parties of a service must agree on. A service's job is a subclass with fields of its own."""

    MODEL_IS: ClassVar[str] = "to be used"  # what the job wants with its model, as errors put it
    TAKES_PART_IN: ClassVar[str] = "the service"  # what parties do together, likewise

    model_run_id: str  # of the training that the model comes from; `run_id` is that of the service


def own_part(party: str, job: ServiceJob, data: PartyData | None) -> tuple[Part, PartyData]:
    """A party's own part of the right model, of any kind, with all that it brings. InvalidInput if it is another."""
    if data is None or data.part is None:
        raise InvalidInput(f"{party}: brings no part of a model")
    part: Part = data.part
    if part.party != party:
        raise InvalidInput(f"{party}: brings the part of {part.party}")
    if part.run_id != job.model_run_id:
        raise InvalidInput(
            f"{party}: its part is of another model, that of run {part.run_id!r}; "
            f"{job.MODEL_IS} is that of run {job.model_run_id!r}"
        )
    return part, data


def as_feature_holder(part: Part, job: ServiceJob) -> OwnerPart:
    """The part, if it is that of a feature holder."""
    _check_is_open(part, job)
    if not isinstance(part, OwnerPart) or part.label_holder != job.label_holder:
        raise InvalidInput(f"{part.party}: brings a part that is not one of a feature holder of {job.label_holder}")
    return part


def as_label_holder(part: Part, job: ServiceJob) -> LabelHolderPart:
    """The part, if it is the label holder's and everybody takes part whose columns are asked about."""
    _check_is_open(part, job)
    if not isinstance(part, LabelHolderPart):
        raise InvalidInput(f"{part.party}: brings the part of a feature holder, but holds the labels")
    absent = [other for other, n_handles in part.handles.items() if n_handles and other not in job.feature_holders]
    unknown = [other for other in job.feature_holders if other not in part.handles]
    if absent:
        raise InvalidInput(
            f"{absent[0]}: the model asks about its columns, but it does not take part in {job.TAKES_PART_IN}"
        )
    if unknown:
        raise InvalidInput(f"{unknown[0]}: took no part in the training of the model")
    return part


def _check_is_open(part: Part, job: ServiceJob) -> None:
    if isinstance(part, SharedLeavesPart):
        raise InvalidInput(
            f"{part.party}: the leaf values of its model are shared, and nobody knows them: {job.NAME} cannot use it, "
            "vertical.closed_scoring can"
        )


class FittingParts:
    """The parts of one model, by party; InvalidInput unless they are all of its parts and fit together."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        others = [part for part in parts.values() if isinstance(part, LabelHolderPart | SharedLeavesPart)]
        asking = [(part, part.target) for part in others if part.target is not None]
        if len(asking) != 1:
            raise InvalidInput(f"a model has one label holder's part, got {len(asking)} among {list(parts)}")
        self.asking: LabelHolderPart | SharedLeavesPart  # the label holder's
        self.target: Target  # how scores become predictions
        self.asking, self.target = asking[0]
        for name, part in parts.items():
            if part.party != name or part.run_id != self.asking.run_id:
                raise InvalidInput(f"{name}: its part is that of {part.party} in run {part.run_id!r}, of another model")
            if isinstance(part, SharedLeavesPart) != self.is_shared:
                raise InvalidInput(f"{name}: its part is of another kind than that of {self.asking.party}")
        absent = [party for party in self.all_parties if party not in parts]
        if absent:
            raise InvalidInput(f"{absent[0]}: its part of the model is not there")
        self.parts = dict(parts)

    @property
    def is_shared(self) -> bool:
        """Whether leaf values are shared, so that nobody knows them."""
        return isinstance(self.asking, SharedLeavesPart)

    @property
    def all_parties(self) -> tuple[str, ...]:
        """Whose parts the label holder's part speaks of."""
        part = self.asking
        return part.holders if isinstance(part, SharedLeavesPart) else tuple(part.handles)


def rows_of(part: Part, table: Table) -> Table:
    """The table with the columns and levels of the part; as it is, if it was read so already."""
    as_needed = [(feature.name, feature.levels, feature.rule) for feature in part.features]
    if [(column.name, column.levels, column.rule) for column in table.columns] != as_needed:
        return part.read(table, part.party)
    if table.n_rows == 0:
        raise InvalidInput(f"{part.party}: brings no rows")
    return table


def check_ready(party: str, ready: Any, part: LabelHolderPart, n_rows: int) -> None:
    """InvalidInput unless what a feature holder says it brings fits the label holder's part and number of rows."""
    if ready.model_run_id != part.run_id or ready.n_handles != part.handles[party]:
        raise InvalidInput(
            f"{party}: its part is of another model: it is of run {ready.model_run_id!r} with {ready.n_handles} "
            f"handles, that of {part.party} is of run {part.run_id!r} and has {part.handles[party]} of them"
        )
    check_rows(party, ready.n_rows, part.party, n_rows)


def wait_for_all(me: Party, job: ServiceJob, kind: type[Any], part: LabelHolderPart, n_rows: int) -> None:
    """Nothing about the model is said before everybody's part and rows fit; `kind` is the service's `Ready`."""
    for party in job.feature_holders:
        check_ready(party, me.recv(party, kind), part, n_rows)


def answered(
    me: Party, part: LabelHolderPart, kind: type[Any], own: Bytes, batch_rows: int
) -> Iterator[tuple[slice, Bytes]]:
    """Rows of each batch, and their codes of all columns of the ensemble: `own` ones, and everybody's answers.

    Who is asked nothing sends no message. `kind` is the service's `Answers`.
    """
    n_rows = own.shape[1]
    for start in range(0, n_rows, batch_rows):
        stop = min(start + batch_rows, n_rows)
        answers = dict.fromkeys(part.handles, np.empty((0, stop - start), np.uint8))
        for party, n_handles in part.handles.items():
            if n_handles:
                message = me.recv(party, kind, start=start, n_handles=n_handles, n_bytes=(stop - start + 7) // 8)
                answers[party] = np.unpackbits(message.bits, axis=1, count=stop - start)
        yield slice(start, stop), part.all_codes(own[:, start:stop], answers)
        me.report(stop, n_rows)


def warmup(job: Any, **changes: Any) -> Rehearsal:
    """The same service on a few made-up rows, with a made-up model of two parties."""
    small = replace(job, parties=("a", "b"), label_holder="a", model_run_id=MADE_UP, **changes)
    return small, lambda: made_up_model(job.NAME)
