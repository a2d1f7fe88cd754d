"""A party with data in the policy smooth_then_trees. All answer alike; the label holder also asks."""

from __future__ import annotations

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.dealing import HandStep
from hedgerow.crypto.ring import histogram
from hedgerow.crypto.shares import SUM32, Array, Shape
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.events import Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.requests import SumRequest
from hedgerow.protocols.central.gaussian.tables import Bins
from hedgerow.protocols.central.gaussian.trees import merged_feature
from hedgerow.protocols.shares.masked_columns import Matrices, exchanged
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import LevelDone
from hedgerow.protocols.shares.playing import begin, checked_labels
from hedgerow.protocols.shares.supply import Supply
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part, Questions, divide
from hedgerow.protocols.vertical.common.tables import (
    check_table,
    fitted,
)
from hedgerow.protocols.vertical.private_histograms.accounts import Accounts, Noisy, signed
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.columns import (
    OwnColumns,
    agreed_layout,
    merged_bins,
)
from hedgerow.protocols.vertical.private_histograms.smooth.dealer import COLUMNS, NOISE, SINES, SUMS, VALUES
from hedgerow.protocols.vertical.private_histograms.smooth.groups import GroupSums, ways_of
from hedgerow.protocols.vertical.private_histograms.smooth.messages import (
    LARGEST_VALUE,
    SmoothAsked,
    SmoothBinSums,
    SmoothCounts,
    SmoothLeafSums,
    SmoothMean,
    SmoothPositives,
    SmoothQuestions,
)
from hedgerow.protocols.vertical.private_histograms.smooth.recipe import SharedRecipe
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import COUNT_UNIT, ROW_WEIGHT_BITS, Schedule
from hedgerow.protocols.vertical.private_histograms.smooth.series import (
    LOGISTIC,
    SCORE_BITS,
    SLOPE,
    Series,
    parcels,
    turned,
)
from hedgerow.protocols.vertical.private_histograms.statement import stamp
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.resources import check_room


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Part:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data, needs_values=False)
    described = job.own_columns(me.name, data.table)
    data, _ = fitted(me, job, data, described, classes=job.listed_classes, on_bad_rows=job.on_bad_rows)
    labels = checked_labels(me.name, job, data) if me.name == job.label_holder else None
    columns = OwnColumns(me.name, job, data)
    begin(me, job, data)
    schedule = Schedule.of(job, agreed_layout(me, job, columns), columns.n_rows)
    answering = Answering(me, job, columns, schedule, labels, n_threads=data.n_threads)
    if labels is None:
        return _as_feature_holder(me, job, answering)
    return _as_label_holder(me, job, data, answering)


# --- the label holder, who asks --------------------------------------------------------------------------------------


def _as_label_holder(me: Party, job: PrivateHistogramsJob, data: PartyData, answering: Answering) -> LabelHolderPart:
    model = SharedRecipe(answering.schedule).run(Asking(me, job, answering))
    model = Ensemble(
        model.mapper, model.loss, model.base_scores, trees=model.trees, classes=data.classes,
        meta={**model.meta, **answering.meta()},
    )  # fmt: skip
    owners = [job.holders[owner] for owner in answering.schedule.layout.owners]
    part, questions = divide(model, owners, job.label_holder, protocol=job.NAME, run_id=job.run_id)
    for party in job.feature_holders:
        asked = questions[party]
        levels = np.packbits(asked.left_levels, axis=1)
        me.send(party, SmoothQuestions(asked.column, asked.bin, asked.missing_left, levels))
    return part


class Asking:
    """Passes the requests of the recipe on to everybody."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, answering: Answering) -> None:
        self._me, self._job, self._answering = me, job, answering

    def __call__(self, request: SumRequest) -> Released[Ints]:
        """Answer a request together with all others."""
        schedule = self._answering.schedule
        asked = self._asked(request)
        self._me.send_all(self._job.feature_holders, asked)
        values = self._answering.answer(asked)
        if request.kind != "counts":
            self._me.send(self._job.dealer, LevelDone())
        self._me.report(request.number, len(schedule.kinds))
        return Released(values, schedule.event(request.kind, request.n_sums))

    @staticmethod
    def _asked(request: SumRequest) -> SmoothAsked:
        values = request.update_values
        if request.update == "start":
            values = np.array([request.base_score])
        units = np.clip(np.rint(np.ldexp(values, SCORE_BITS)), -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
        features = request.features if request.kind == "leaf_sums" else np.empty(0, np.int32)
        return SmoothAsked(request.number, features, request.goes_right, units.reshape(-1), request.bins)


# --- a feature holder, who is asked ----------------------------------------------------------------------------------


def _as_feature_holder(me: Party, job: PrivateHistogramsJob, answering: Answering) -> OwnerPart:
    for _ in answering.schedule.kinds:
        answering.answer(me.recv(job.label_holder, SmoothAsked, **answering.due()))
    told = me.recv(job.label_holder, SmoothQuestions, n_columns=answering.n_own)
    levels = np.unpackbits(told.left_levels, axis=1).astype(np.bool_)
    questions = Questions(told.column, told.bin, told.missing_left, levels)
    return OwnerPart(me.name, job.label_holder, job.NAME, job.run_id, answering.features(), questions, answering.meta())


# --- all holders, who answer -----------------------------------------------------------------------------------------


class Answering:
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
        self.schedule, self._layout, self._precision = schedule, schedule.layout, schedule.precision
        self._me, self._job, self._columns, self._n_threads = me, job, columns, n_threads
        self._place = job.holders.index(me.name)
        self._own = self._layout.of(self._place)
        self.n_own = len(self._own)
        self._accounts = Accounts(job, GaussianDP())
        self._supply = Supply(me, job.dealer, job.holders)
        self._mesh = Mesh(me, job.holders)
        self._groups = GroupSums(me, self._mesh, job.holders, schedule)
        self._positives = 0 if labels is None else int(labels.sum())
        self._labels = None if labels is None else labels.astype(np.uint32)
        self._scores = np.zeros(columns.n_rows, np.uint32)
        self._n_bins: list[int] = []
        self._last_number = 0

    # --- what all do --------------------------------------------------------------------------------------------------

    def answer(self, asked: SmoothAsked) -> Ints:
        """The noisy sums that are due; their kind and noise follow from the schedule."""
        self._last_number = asked.number
        kind = self.schedule.kinds[asked.number - 1]
        update = self.schedule.update(asked.number)
        if kind == "counts":
            return self._counts()
        self._supply.begin(asked.number, 0, self._n_parcels(asked.number))
        if update != "none":
            self._update(asked, update)
        if kind == "positives":
            noisy = self._noisy(kind, np.array([self._positives * COUNT_UNIT], np.int64).astype(np.uint32), 1)
            words = self._mesh.reveal(SmoothPositives, noisy.sums, event=noisy.event)
        elif kind == "bin_sums":
            column = self.schedule.column(asked.number)
            noisy = self._noisy(kind, self._bin_sums(column), self.schedule.caps[column])
            words = self._mesh.reveal(SmoothBinSums, noisy.sums, event=noisy.event)
        elif kind == "leaf_sums":
            sums = self._leaf_sums(asked)
            noisy = self._noisy(kind, sums, sums.shape)
            words = self._mesh.reveal(SmoothLeafSums, noisy.sums, event=noisy.event)
        else:
            noisy = self._noisy(kind, self._mean(), 2)
            words = self._mesh.reveal(SmoothMean, noisy.sums, event=noisy.event)
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
        sines = 0 if kind == "positives" else len(parcels(schedule.n_rows))
        return 1 + sums + sines + (schedule.update(number) == "leaves" and schedule.most_shared > 0)

    def _counts(self) -> Ints:
        """Rows in public cells: everybody's, with noise that each draws for its own columns."""
        others = [party for party in self._job.holders if party != self._me.name]
        found: list[Ints] = []
        events = [self.schedule.counts_event(place) for place in range(len(self._job.holders))]
        for event in events:
            self._accounts.spend(event)
        for place, party in enumerate(self._job.holders):
            if place == self._place:
                released = discrete_gaussian(
                    self._columns.counts() * COUNT_UNIT,
                    sensitivity=COUNT_UNIT * len(self._own) ** 0.5 * (1.0 + 2.0**-48),
                    sigma=self.schedule.sigma("counts"),
                    random=self._me.rng,
                )
                for other in others:
                    self._me.send(other, SmoothCounts(released.values), event=events[place].to_dict())
                found.append(released.values)
            else:
                n_cells = sum(self._layout.n_cells[j] for j in self._layout.of(place))
                found.append(self._me.recv(party, SmoothCounts, n_cells=n_cells).counts)
        return np.concatenate(found)

    def _noisy(self, kind: str, sums: Array, dealt: Shape) -> Noisy:
        """The sums of a request, and all that was dealt for it is used or thrown away."""
        event = self.schedule.event(kind, sums.size)
        noisy = self._accounts.noisy(sums, self._supply.step(NOISE), event, dealt)
        self._supply.finish()
        return noisy

    # --- labels and scores -------------------------------------------------------------------------------------------

    def _update(self, asked: SmoothAsked, update: str) -> None:
        words = asked.update_values.astype(np.uint32)
        if update == "start":
            self._start(asked.bins, words)
        elif update == "table":
            column = self.schedule.column(asked.number - 1)
            if self._layout.owners[column] == self._place:
                self._scores += words[self._columns.codes[self._own.index(column)]]
        elif update == "tables":
            self._scores = np.full(self._columns.n_rows, self._base, np.uint32)
            for j, codes in zip(self._own, self._columns.codes, strict=True):
                self._scores += words[256 * j :][codes]
        else:
            self._scores += self._groups.values(lambda: self._supply.step(VALUES), words)

    def _start(self, bins: Bytes, base: Array) -> None:
        """Bins are known: masked columns are exchanged, and all scores are the first."""
        schedule, n_rows = self.schedule, self._columns.n_rows
        self._n_bins = merged_bins(bins, self._layout.n_cells, schedule.caps)
        self._columns.merge(bins[self._own])
        self._of_cell = bins[self._own]
        n_hidden = sum(self._n_bins) - len(self._n_bins)
        check_room(self._me.name, SUM32.number_bytes * n_rows * n_hidden, f"{n_hidden:,} bins of {n_rows:,} rows")
        self._bin_starts = np.concatenate([[0], np.cumsum(np.array(self._n_bins) - 1)]).tolist()
        in_use = [  # of the rows for which there are masks, those that a party's matrix has
            np.concatenate([np.arange(schedule.caps[j] - 1) < self._n_bins[j] - 1 for j in self._layout.of(place)])
            for place in range(schedule.n_holders)
        ]
        matrices = Matrices(tuple(int(used.sum()) for used in in_use), n_rows, SUM32)
        step, holders = self._supply.without_parcel(COLUMNS), self._job.holders
        self._hidden = exchanged(self._me, holders, step, self._columns, matrices, keep_own=False, in_use=in_use)
        self._base = base[0] if self._place == 0 else np.uint32(0)
        self._scores = np.full(n_rows, self._base, np.uint32)

    def _values_of(self, *series: Series) -> list[Array]:
        """Shares of series at the scores of all rows."""
        found = [np.empty(self._columns.n_rows, np.uint32) for _ in series]
        for number, rows in enumerate(parcels(self._columns.n_rows)):
            step: HandStep = self._supply.step(SINES, number)
            angles = self._mesh.talk(turned(step, self._scores[rows], self._precision))
            for out, each in zip(found, series, strict=True):
                out[rows] = angles.shares(each, is_first=self._place == 0)
        return found

    def gradients(self) -> Array:
        """Shares of y - p of all rows, in units of 2**-gradient_bits."""
        return self._minus_gradients(self._values_of(LOGISTIC)[0])

    def _minus_gradients(self, p: Array) -> Array:
        if self._labels is None:
            return np.negative(p)
        return np.asarray((self._labels << np.uint32(self._precision.bits)) - p)

    # --- sums --------------------------------------------------------------------------------------------------------

    def _bin_sums(self, feature: int) -> Array:
        """Shares of sums over the bins of a column; see `groups` for what is sent and dealt."""
        gradients, n_bins, cap = self.gradients(), self._n_bins[feature], self.schedule.caps[feature]
        total = np.asarray(gradients.sum(keepdims=True, dtype=np.uint32))
        if n_bins == 1:
            return total
        step = self._supply.step(SUMS)
        b = step.mask((1, len(gradients)), SUM32, (self._place,)).words
        (f,) = self._mesh.masked_rows(SUM32, (gradients[None], b))
        made = step.share((1, cap - 1), SUM32).words[0, : n_bins - 1].copy()
        if self._layout.owners[feature] == self._place:
            codes = self._columns.codes[self._own.index(feature)]
            made += histogram(codes[None], f + b, n_bins, n_threads=self._n_threads)[0, 0, :-1]
        else:
            start = self._bin_starts[feature]
            made += rows_times(self._hidden[start : start + n_bins - 1], b, SUM32, n_threads=self._n_threads)[0]
        return np.concatenate([made, total - made.sum(keepdims=True, dtype=np.uint32)])

    def _leaf_sums(self, asked: SmoothAsked) -> Array:
        """Shares of sums of gradients and of weighted numbers of rows in each leaf: [leaves, 2]."""
        owners = [self._layout.owners[feature] for feature in asked.features.tolist()]
        mine = [k for k, owner in enumerate(owners) if owner == self._place]
        places = [self._own.index(int(asked.features[k])) for k in mine]
        ways = ways_of(self._columns.codes[places], asked.goes_right[mine])
        gradients = self.gradients()
        sums = self._groups.sums(lambda position: self._supply.step(SUMS, position), gradients, owners, ways)
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

    def meta(self) -> dict[str, object]:
        """What the model says about its training."""
        privacy = self._accounts.privacy()
        return {
            "privacy": privacy,
            "stamp": stamp(self._job),
            "policy": SMOOTH,
            "gradient_bits": self._precision.bits,
            "rounds": {"setup": 4, "training": self._mesh.rounds + self._groups.rounds},
        }
