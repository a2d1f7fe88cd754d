"""A party with data in the policy smooth_then_trees. All answer alike; the label holder also asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from hedgerow.crypto.dealing import HandStep
from hedgerow.crypto.ring import histogram, rows_times
from hedgerow.crypto.shares import SUM32, Array, Shape, Share, blocks_of
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.privacy.events import Event, Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.requests import SumRequest
from hedgerow.protocols.central.gaussian.tables import Bins
from hedgerow.protocols.central.gaussian.trees import merged_feature
from hedgerow.protocols.shares.columns import Matrices, exchanged
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.playing import begin, check_rows_kept
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part, Questions, divide
from hedgerow.protocols.vertical.private_histograms.columns import OwnColumns, agreed_layout, merged_bins
from hedgerow.protocols.vertical.private_histograms.holding import Holding, newest_kept, signed
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    LARGEST_VALUE,
    SmoothAsked,
    SmoothBinSums,
    SmoothCounts,
    SmoothLeafSums,
    SmoothMean,
    SmoothPositives,
    SmoothQuestions,
    StepsThatFit,
)
from hedgerow.protocols.vertical.private_histograms.plan import Lane
from hedgerow.protocols.vertical.private_histograms.smooth.groups import GroupSums, ways_of
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import (
    COUNT_UNIT,
    ROW_WEIGHT_BITS,
    Schedule,
    SharedRecipe,
)
from hedgerow.protocols.vertical.private_histograms.smooth.series import (
    DEALT_ROWS,
    LOGISTIC,
    SCORE_BITS,
    SLOPE,
    Series,
    values_of,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_room


@dataclass(frozen=True, eq=False)
class Kept:
    """A party's state when it has answered some requests, with what follows from them in its share of the scores."""

    counts: Ints  # of its own cells, with noise that is drawn once in a run
    begun: Ints
    answers: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # at the label holder: all that was released
    sizes: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of each answer
    bins: Bytes = field(default_factory=lambda: np.empty((0, 256), np.uint8))  # of each cell of each column
    scores: Array = field(default_factory=lambda: np.empty(0, np.uint32))
    base: int = 0
    n_left_out: int = 0
    rounds: int = 0


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData, labels: Floats | None) -> Part:
    """A party with data, from its table, which fits the schema, to its part of the model."""
    columns = OwnColumns(me.name, job, data)
    done, kept = me.go_on(Kept, job)
    newest = newest_kept(me, job, Kept)
    begin(me, job, data)
    schedule = Schedule.of(job, agreed_layout(me, job, columns), columns.n_rows)
    answering = Answering(me, job, columns, schedule, labels, n_threads=data.n_threads)
    answering.take_up(done, kept, newest)
    if labels is None:
        return _as_feature_holder(me, job, answering)
    return _as_label_holder(me, job, data, answering)


# --- the label holder, who asks --------------------------------------------------------------------------------------


def _as_label_holder(me: Party, job: PrivateHistogramsJob, data: PartyData, answering: Answering) -> LabelHolderPart:
    schedule = answering.schedule

    def released(request: SumRequest) -> Released[Ints]:
        if request.number <= answering.n_before:
            return Released(answering.answers[request.number - 1], schedule.event(request.kind, request.n_sums))
        asked = asked_for(request)
        me.send_all(job.feature_holders, asked)
        values = answering.answer(asked)
        if request.kind != "counts":
            me.send(job.dealer, LevelDone())
        me.report(request.number, len(schedule.kinds))
        return Released(values, schedule.event(request.kind, request.n_sums))

    model = SharedRecipe(schedule).run(released)
    answering.keep()
    model = Ensemble(
        model.mapper, model.loss, model.base_scores, trees=model.trees, classes=data.classes,
        meta={**model.meta, **answering.about},
    )  # fmt: skip
    owners = [job.holders[owner] for owner in schedule.layout.owners]
    part, questions = divide(model, owners, job.label_holder, protocol=job.NAME, run_id=job.run_id)
    for party in job.feature_holders:
        asked = questions[party]
        levels = np.packbits(asked.left_levels, axis=1)
        me.send(party, SmoothQuestions(asked.column, asked.bin, asked.missing_left, levels))
    return part


def asked_for(request: SumRequest) -> SmoothAsked:
    """What is open about a request of the recipe, for everybody who answers it."""
    values = request.update_values
    if request.update == "start":
        values = np.array([request.base_score])
    units = np.clip(np.rint(np.ldexp(values, SCORE_BITS)), -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    features = request.features if request.kind == "leaf_sums" else np.empty(0, np.int32)
    return SmoothAsked(request.number, features, request.goes_right, units.reshape(-1), request.bins)


# --- a feature holder, who is asked ----------------------------------------------------------------------------------


def _as_feature_holder(me: Party, job: PrivateHistogramsJob, answering: Answering) -> OwnerPart:
    for _ in answering.schedule.kinds[answering.n_before :]:
        answering.answer(me.recv(job.label_holder, SmoothAsked, **answering.due()))
    answering.keep()
    told = me.recv(job.label_holder, SmoothQuestions, n_columns=answering.n_own)
    levels = np.unpackbits(told.left_levels, axis=1).astype(np.bool_)
    questions = Questions(told.column, told.bin, told.missing_left, levels)
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, answering.features(), questions, answering.about)


# --- all holders, who answer -----------------------------------------------------------------------------------------


class Answering(Holding):
    """One party's side of all sums: its own columns, and its shares of labels and scores."""

    def __init__(
        self,
        me: Party,
        job: PrivateHistogramsJob,
        columns: OwnColumns,
        schedule: Schedule,
        labels: Floats | None,
        *,
        n_threads: int,
    ) -> None:
        super().__init__(me, job, n_threads)
        self.schedule, self._layout, self._precision = schedule, schedule.layout, schedule.precision
        self._columns = columns
        self._own = self._layout.of(self.place)
        self.n_own = len(self._own)
        self._groups = GroupSums(me, self.mesh, job.holders, schedule)
        positives = 0 if labels is None else int(labels.sum()) * COUNT_UNIT
        self._positives = np.array([positives], np.int64).astype(np.uint32)
        self._labels = None if labels is None else labels.astype(np.uint32)
        self._scores = np.zeros(columns.n_rows, np.uint32)
        self._bins: Bytes = np.empty((0, 256), np.uint8)
        self._n_bins: list[int] = []
        self._base = np.uint32(0)
        self._last_number = self._n_answered = self.n_before = 0  # the last by earlier attempts
        self._own_counts: Ints = np.empty(0, np.int64)  # of cells, with noise, once they are drawn
        self.answers: list[Ints] = []  # at the label holder
        self._rounds = self._rounds_before = 0

    # --- attempts ----------------------------------------------------------------------------------------------------

    def take_up(self, done: int, kept: Kept | None, newest: Kept | None) -> None:
        """Go on after so many requests, with all that was drawn and spent, and as many more as still fit."""
        planned = self.schedule
        releases = [planned.largest_event(number) for number in range(2, len(planned.kinds) + 1)]
        self.take_up_spending(releases, None if newest is None else newest.begun)
        self._own_counts = self._own_counts if newest is None else newest.counts
        self._last_number = self._n_answered = self.n_before = done
        if self.me.attempt == 1:
            return
        counted = [planned.counts_event(place) for place in range(planned.n_holders)]
        if kept is not None:
            for event in counted:
                self.count(event)
            self.answers = np.split(kept.answers, np.cumsum(kept.sizes))[:-1]
            self._rounds = self._rounds_before = kept.rounds
            if len(kept.bins):
                check_rows_kept(self.me.name, len(kept.scores), self._columns.n_rows)
                self._scores, self._base = kept.scores, np.uint32(kept.base)
                self._merge(kept.bins)
        self.schedule = self._that_fits(done, [] if kept else counted, kept.n_left_out if kept else 0)
        if self.is_first:
            self.me.send(self.job.dealer, StepsThatFit(len(self.schedule.kinds)))
        if len(self._own_counts):
            self.keep()  # in place of later requests, whose shares others may not have

    def _that_fits(self, done: int, before: list[Event], n_left_out: int) -> Schedule:
        """With as many trees as there is room for; without the last step if that is all that is left, and too much."""
        schedule = replace(self.schedule, n_trees_left_out=n_left_out)
        n_trees_done = done - len(schedule.columns) - 2
        while not self.fits([*before, *map(schedule.largest_event, range(max(done, 1) + 1, len(schedule.kinds) + 1))]):
            if schedule.n_trees > max(n_trees_done, 1):
                schedule = schedule.shortened(len(schedule.kinds) - 1)
            elif n_trees_done > 0:
                return replace(schedule, has_mean=False)
            else:
                raise self.no_room()
        return schedule

    @property
    def _all_rounds(self) -> int:
        """Of all requests, and what is done of the one that is due."""
        return self._rounds_before + self.mesh.rounds + self._groups.rounds

    def keep(self) -> None:
        """After the requests whose answers are in the scores, with what was spent since."""
        answers, sizes = [self.begun[:0], *self.answers], [len(each) for each in self.answers]
        state = Kept(
            self._own_counts, self.begun, np.concatenate(answers), np.array(sizes, np.int64),
            self._bins, self._scores if len(self._bins) else self._scores[:0], int(self._base),
            self.schedule.n_trees_left_out, self._rounds,
        )  # fmt: skip
        self.me.keep(self._n_answered, state)

    # --- what all do --------------------------------------------------------------------------------------------------

    def answer(self, asked: SmoothAsked) -> Ints:
        """The noisy sums that are due; their kind and noise follow from the schedule."""
        self._last_number = asked.number
        values = self._answer(asked)
        self._n_answered, self._rounds = asked.number, self._all_rounds
        if self.is_first:
            self.answers.append(values)
        return values

    def _answer(self, asked: SmoothAsked) -> Ints:
        kind = self.schedule.kinds[asked.number - 1]
        update = self.schedule.update(asked.number)
        if kind == "counts":
            return self._counts()
        self.supply.begin(asked.number, 0, self._n_parcels(asked.number))
        if self._is_updated(asked.number):
            self._exchange()
        elif update != "none":
            self._update(asked, update)
        self._rounds = self._all_rounds
        if kind == "positives":
            noisy, event = self._with_noise(asked, self._positives, 1)
            words = self.mesh.reveal(SmoothPositives, noisy, event=event)
        elif kind == "bin_sums":
            column = self.schedule.column(asked.number)
            noisy, event = self._with_noise(asked, self._bin_sums(column), self.schedule.caps[column])
            words = self.mesh.reveal(SmoothBinSums, noisy, event=event)
        elif kind == "leaf_sums":
            sums = self._leaf_sums(asked)
            noisy, event = self._with_noise(asked, sums, sums.shape)
            words = self.mesh.reveal(SmoothLeafSums, noisy, event=event)
        else:
            noisy, event = self._with_noise(asked, self._mean(), 2)
            words = self.mesh.reveal(SmoothMean, noisy, event=event)
        return signed(words).reshape(-1)

    def due(self) -> dict[str, int]:
        """What the ranges of the next request refer to: it has to be what the schedule has at its place."""
        number, n_columns, depth = self._last_number + 1, len(self._layout.owners), self.schedule.depth
        update = self.schedule.update(number)
        n_values = {"none": 0, "start": 1, "table": 256, "tables": n_columns * 256, "leaves": 1 << depth}[update]
        return {
            "due": number,
            "n_levels": depth if self.schedule.kinds[number - 1] == "leaf_sums" else 0,
            "n_columns": n_columns,
            "n_values": n_values,
            "n_binned": n_columns if update == "start" else 0,
        }

    def _n_parcels(self, number: int) -> int:
        """Messages of the dealer for a request: noise, sums, sines, values of the last tree."""
        schedule, kind = self.schedule, self.schedule.kinds[number - 1]
        sums = {"leaf_sums": len(schedule.expansions) + 1}.get(kind, 0)
        if kind == "bin_sums":
            sums = schedule.caps[schedule.column(number)] > 1
        sines = 0 if kind == "positives" else len(blocks_of(schedule.n_rows, DEALT_ROWS))
        shares_leaves = schedule.update(number) == "leaves" and not self._is_updated(number)
        return 1 + sums + sines + (shares_leaves and schedule.most_shared > 0)

    def _is_updated(self, number: int) -> bool:
        """Whether an earlier attempt has done what happens to scores before this request."""
        return number == self.n_before + 1 and len(self._bins) > 0

    def _counts(self) -> Ints:
        """Rows in public cells: everybody's, with noise that each draws for its own columns."""
        others = [party for party in self.job.holders if party != self.me.name]
        found: list[Ints] = []
        events = [self.schedule.counts_event(place) for place in range(len(self.job.holders))]
        for event in events:
            self.count(event)
        if not len(self._own_counts):
            self._own_counts = discrete_gaussian(
                self._columns.counts() * COUNT_UNIT,
                sensitivity=COUNT_UNIT * len(self._own) ** 0.5 * (1.0 + 2.0**-48),
                sigma=self.schedule.sigma("counts"),
                random=self.me.rng,
            ).values
        self.keep()
        for place, party in enumerate(self.job.holders):
            if place == self.place:
                for other in others:
                    self.me.send(other, SmoothCounts(self._own_counts), event=events[place])
                found.append(self._own_counts)
            else:
                n_cells = sum(self._layout.n_cells[j] for j in self._layout.of(place))
                found.append(self.me.recv(party, SmoothCounts, n_cells=n_cells).counts)
        return np.concatenate(found)

    def _with_noise(self, asked: SmoothAsked, sums: Array, dealt: Shape) -> tuple[Share, Event]:
        """The sums of a request, and all that was dealt for it is used or thrown away."""
        kinds = self.schedule.kinds
        event = self.schedule.event(kinds[asked.number - 1], sums.size)
        release = -1 if kinds[asked.number - 1] == "mean" else asked.number - 2  # wherever it comes, the mean is last
        noisy = self.noisy(sums, Lane.NOISE, release, event, dealt)
        self.supply.finish()
        return noisy, event

    # --- labels and scores -------------------------------------------------------------------------------------------

    def _update(self, asked: SmoothAsked, update: str) -> None:
        words = asked.update_values.astype(np.uint32)
        if update == "start":
            self._start(asked.bins, words)
        elif update == "table":
            column = self.schedule.column(asked.number - 1)
            if self._layout.owners[column] == self.place:
                self._scores += words[self._columns.codes[self._own.index(column)]]
        elif update == "tables":
            self._scores = np.full(self._columns.n_rows, self._base, np.uint32)
            for j, codes in zip(self._own, self._columns.codes, strict=True):
                self._scores += words[256 * j :][codes]
        else:
            self._scores += self._groups.values(lambda: self.supply.step(Lane.VALUES), words)

    def _start(self, bins: Bytes, base: Array) -> None:
        """Bins are known: masked columns are exchanged, and all scores are the first."""
        self._merge(bins)
        self._exchange()
        self._base = base[0] if self.is_first else np.uint32(0)
        self._scores = np.full(self._columns.n_rows, self._base, np.uint32)

    def _merge(self, bins: Bytes) -> None:
        schedule = self.schedule
        self._bins = bins
        self._n_bins = merged_bins(bins, self._layout.n_cells, schedule.caps)
        self._columns.merge(bins[self._own])
        self._of_cell = bins[self._own]

    def _exchange(self) -> None:
        """Everybody's columns under masks, which are new in every attempt."""
        schedule, n_rows = self.schedule, self._columns.n_rows
        n_hidden = sum(self._n_bins) - len(self._n_bins)
        check_room(self.me.name, SUM32.number_bytes * n_rows * n_hidden, f"{n_hidden:,} bins of {n_rows:,} rows")
        self._bin_starts = np.concatenate([[0], np.cumsum(np.array(self._n_bins) - 1)]).tolist()
        in_use = [  # of the rows for which there are masks, those that a party's matrix has
            np.concatenate([np.arange(schedule.caps[j] - 1) < self._n_bins[j] - 1 for j in self._layout.of(place)])
            for place in range(schedule.n_holders)
        ]
        matrices = Matrices(tuple(int(used.sum()) for used in in_use), n_rows, SUM32)
        step, holders = self.supply.without_parcel(Lane.COLUMNS), self.job.holders
        self._hidden = exchanged(self.me, holders, step, self._columns.minus, matrices, keep_own=False, in_use=in_use)

    def _values_of(self, *series: Series) -> list[Array]:
        """Shares of series at the scores of all rows."""
        found = [np.empty(self._columns.n_rows, np.uint32) for _ in series]
        for number, rows in enumerate(blocks_of(self._columns.n_rows, DEALT_ROWS)):
            step: HandStep = self.supply.step(Lane.SINES, number)
            talk = values_of(step, self._scores[rows], self._precision, *series, is_first=self.is_first)
            for out, values in zip(found, self.mesh.talk(talk), strict=True):
                out[rows] = values
        return found

    def _minus_gradients(self, p: Array) -> Array:
        """Shares of y - p of all rows, in units of 2**-gradient_bits."""
        if self._labels is None:
            return np.negative(p)
        return np.asarray((self._labels << np.uint32(self._precision.bits)) - p)

    # --- sums --------------------------------------------------------------------------------------------------------

    def _bin_sums(self, feature: int) -> Array:
        """Shares of sums over the bins of a column; see `groups` for what is sent and dealt."""
        gradients = self._minus_gradients(*self._values_of(LOGISTIC))
        n_bins, cap = self._n_bins[feature], self.schedule.caps[feature]
        total = np.asarray(gradients.sum(keepdims=True, dtype=np.uint32))
        if n_bins == 1:
            return total
        step = self.supply.step(Lane.SUMS)
        b = step.mask((1, len(gradients)), SUM32, (self.place,)).words
        (f,) = self.mesh.masked_rows(SUM32, (gradients[None], b))
        made = step.share((1, cap - 1), SUM32).words[0, : n_bins - 1].copy()
        if self._layout.owners[feature] == self.place:
            codes = self._columns.codes[self._own.index(feature)]
            made += histogram(codes[None], f + b, n_bins, n_threads=self.n_threads)[0, 0, :-1]
        else:
            start = self._bin_starts[feature]
            made += rows_times(self._hidden[start : start + n_bins - 1], b, n_threads=self.n_threads)[0]
        return np.concatenate([made, total - made.sum(keepdims=True, dtype=np.uint32)])

    def _leaf_sums(self, asked: SmoothAsked) -> Array:
        """Shares of sums of gradients and of weighted numbers of rows in each leaf: [leaves, 2]."""
        owners = [self._layout.owners[feature] for feature in asked.features.tolist()]
        mine = [k for k, owner in enumerate(owners) if owner == self.place]
        places = [self._own.index(int(asked.features[k])) for k in mine]
        ways = ways_of(self._columns.codes[places], asked.goes_right[mine])
        gradients = self._minus_gradients(*self._values_of(LOGISTIC))
        sums = self._groups.sums(lambda position: self.supply.step(Lane.SUMS, position), gradients, owners, ways)
        sums[:, 1] *= np.uint32(1 << (self._precision.bits - ROW_WEIGHT_BITS))
        return sums

    def _mean(self) -> Array:
        """Shares of sums over all rows: gradients, and slopes."""
        p, slopes = self._values_of(LOGISTIC, SLOPE)
        return np.array([each.sum(dtype=np.uint32) for each in (self._minus_gradients(p), slopes)])

    # --- the end -----------------------------------------------------------------------------------------------------

    def features(self) -> tuple[FeatureBins, ...]:
        """Its own columns as they were binned."""
        return tuple(
            merged_feature(cells, Bins(of_cell, n_bins, 0, np.ones(n_bins)))
            for cells, of_cell, n_bins in zip(self._columns.grid, self._of_cell, self._columns.n_bins, strict=True)
        )

    @property
    def about(self) -> dict[str, object]:
        """What the model says about its training."""
        meta = self.meta(self._precision.bits, 4, self._rounds, self.schedule.n_trees_left_out)
        return meta if self.schedule.has_mean else meta | {"last_step_left_out": True}
