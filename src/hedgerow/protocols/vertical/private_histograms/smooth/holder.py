"""A party with data in the policy smooth_then_trees. All answer alike; the label holder also asks."""

from __future__ import annotations

import math

import numpy as np

from hedgerow.crypto.beaver import rows_times
from hedgerow.crypto.dealing import HandStep
from hedgerow.crypto.dealt_noise import take_noise
from hedgerow.crypto.ring import histogram
from hedgerow.crypto.rounds import Conversation, Masked, opened
from hedgerow.crypto.shares import SUM32, SUM64, Array
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.events import Event
from hedgerow.privacy.mechanisms import Released, discrete_gaussian
from hedgerow.protocols.memory import memory_available
from hedgerow.protocols.private_boosting.requests import SumRequest
from hedgerow.protocols.private_boosting.tables import Bins
from hedgerow.protocols.private_boosting.trees import merged_feature
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.agreement import begin_as_feature_holder, begin_as_label_holder, check_table
from hedgerow.protocols.vertical.on_shares.labels import checked_labels
from hedgerow.protocols.vertical.on_shares.masked_columns import Matrices, exchanged
from hedgerow.protocols.vertical.on_shares.mesh import Mesh
from hedgerow.protocols.vertical.on_shares.rows_messages import LevelDone, MaskedBins
from hedgerow.protocols.vertical.on_shares.supply import Supply
from hedgerow.protocols.vertical.parts import LabelHolderPart, OwnerPart, Part, Questions, divide
from hedgerow.protocols.vertical.private_histograms.accounts import Accounts, event_of
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.smooth.columns import (
    Layout,
    OwnColumns,
    agreed_layout,
    merged_bins,
)
from hedgerow.protocols.vertical.private_histograms.smooth.dealer import COLUMNS, NOISE, SINES, SUMS, VALUES
from hedgerow.protocols.vertical.private_histograms.smooth.groups import (
    GroupSums,
    dealt_bytes,
    groups_of,
    shown,
    ways_of,
)
from hedgerow.protocols.vertical.private_histograms.smooth.messages import (
    LARGEST_VALUE,
    SmoothAhead,
    SmoothAsked,
    SmoothBins,
    SmoothBinSums,
    SmoothCounts,
    SmoothLeafSums,
    SmoothMean,
    SmoothPositives,
    SmoothQuestions,
    SmoothRows,
)
from hedgerow.protocols.vertical.private_histograms.smooth.recipe import (
    COUNT_UNIT,
    ROW_WEIGHT_BITS,
    SharedRecipe,
    sensitivity_squared,
)
from hedgerow.protocols.vertical.private_histograms.smooth.series import (
    COARSEST,
    FINEST,
    LOGISTIC,
    SCORE_BITS,
    SLOPE,
    Precision,
    Series,
    parcels,
    turned,
)
from hedgerow.protocols.vertical.private_histograms.statement import NOT_PRIVATE
from hedgerow.transport.frames import MAX_FRAME_BYTES

POLICY = "smooth_then_trees"
_RESULTS = {
    "positives": SmoothPositives,
    "bin_sums": SmoothBinSums,
    "leaf_sums": SmoothLeafSums,
    "mean": SmoothMean,
}
_LAST = -1
_ROOM = 1 << 16  # of a frame, for what is not an array


def holder(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> Part:
    """A party with data, from its table to its part of the model."""
    data = check_table(me.name, data)
    labels = checked_labels(me.name, job, data) if me.name == job.label_holder else None
    columns = OwnColumns(me.name, job, data)
    if labels is None:
        begin_as_feature_holder(me, job, data)
    else:
        begin_as_label_holder(me, job, data)
        me.send(job.dealer, SmoothRows(columns.n_rows))
    layout = agreed_layout(me, job, columns)
    answering = Answering(me, job, columns, layout, labels, n_threads=data.n_threads)
    if labels is None:
        return _as_feature_holder(me, job, answering)
    return _as_label_holder(me, job, data, answering)


# --- the label holder, who asks --------------------------------------------------------------------------------------


def _as_label_holder(me: Party, job: PrivateHistogramsJob, data: PartyData, answering: Answering) -> LabelHolderPart:
    layout, budget = answering.layout, {"epsilon": job.noise, "delta": job.delta}
    recipe = SharedRecipe(layout.schema, data.table.n_rows, job.max_bins, **budget, seed=job.boosting.seed)
    asking = Asking(me, job, recipe, answering)
    model = recipe.run(asking)
    me.send_all(job.feature_holders, asking.last())
    model = Ensemble(
        model.mapper, model.loss, model.base_scores, trees=model.trees, classes=data.classes,
        meta={**model.meta, **answering.meta()},
    )  # fmt: skip
    owners = [job.holders[owner] for owner in layout.owners]
    part, questions = divide(model, owners, job.label_holder, protocol=job.NAME, run_id=job.run_id)
    for party in job.feature_holders:
        asked = questions[party]
        levels = np.packbits(asked.left_levels, axis=1)
        me.send(party, SmoothQuestions(asked.column, asked.bin, asked.missing_left, levels))
    return part


class Asking:
    """Passes the requests of the recipe on to everybody, and says to the dealer what is coming."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, recipe: SharedRecipe, answering: Answering) -> None:
        self._me, self._job, self._recipe, self._answering = me, job, recipe, answering
        self._left = 0  # requests that the dealer was told of

    def __call__(self, request: SumRequest) -> Released[Ints]:
        """Answer a request together with all others."""
        recipe, layout = self._recipe, self._answering.layout
        asked = self._asked(request)
        self._me.send_all(self._job.feature_holders, asked)
        if request.update == "start":
            n_bins = merged_bins(request.bins, layout.n_cells)
            rows = [sum(n_bins[j] - 1 for j in layout.of(place)) for place in range(len(self._job.holders))]
            self._me.send(self._job.dealer, SmoothBins(np.array(rows, np.int32), recipe.precision.bits))
        if request.kind != "counts" and not self._left:
            self._tell(request)
        values = self._answering.answer(asked)
        if request.kind != "counts":
            self._left -= 1
            self._me.send(self._job.dealer, LevelDone())
        if recipe.n_requests is not None:
            self._me.report(request.number, recipe.n_requests)
        return Released(values, event_of(request.sensitivity_squared, request.sigma, request.n_sums))

    def last(self) -> SmoothAsked:
        """That there is nothing more to be asked."""
        no_bytes, no_values = np.empty((0, 256), np.uint8), np.empty(0, np.int64)
        return SmoothAsked(_LAST, "", 0.0, np.empty(0, np.int32), no_bytes, "none", -1, no_values, no_bytes, 0)

    def _tell(self, request: SumRequest) -> None:
        """The dealer works ahead for the whole stage."""
        layout, ahead = self._answering.layout, self._recipe.ahead
        if request.kind in ("positives", "mean"):
            ahead = [[]]
        places = [[layout.owners[j] for j in features] for features in ahead]
        owners = np.array(places, np.int32).reshape(len(ahead), -1)
        if request.kind == "leaf_sums":
            self._check_messages(places)
        bins, starts = np.zeros(0, np.int32), np.zeros(0, np.int32)
        if request.kind == "bin_sums":
            n_bins = np.array(merged_bins(request.bins, layout.n_cells), np.int32)
            first = np.concatenate([[0], np.cumsum(n_bins - 1)]).astype(np.int32)
            columns = [features[0] for features in ahead]
            bins, starts = n_bins[columns], first[columns]
        self._me.send(self._job.dealer, SmoothAhead(request.kind, request.sigma, owners, bins, starts))
        self._left = len(ahead)

    def _check_messages(self, places: list[list[int]]) -> None:
        """InvalidParameter if what is dealt for a tree does not fit a message; before it is dealt."""
        n_rows = self._answering.n_rows
        largest = max(dealt_bytes(groups_of(owners), n_rows) for owners in places)
        if largest > MAX_FRAME_BYTES - _ROOM:
            raise InvalidParameter(
                f"{self._job.NAME}: policy={POLICY!r} with {n_rows:,} rows of {len(self._job.holders)} parties needs "
                f"{largest >> 20:,} MB in one message of the dealer, and {MAX_FRAME_BYTES >> 20} MB can be had: use "
                "fewer rows, or policy='grown_trees'"
            )

    def _asked(self, request: SumRequest) -> SmoothAsked:
        values = request.update_values
        if request.update == "start":
            values = np.array([request.base_score])
        units = np.clip(np.rint(np.ldexp(values, SCORE_BITS)), -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
        return SmoothAsked(
            request.number, request.kind, request.sigma, request.features, request.goes_right, request.update,
            request.update_feature, units.reshape(-1), request.bins, self._recipe.precision.bits,
        )  # fmt: skip


# --- a feature holder, who is asked ----------------------------------------------------------------------------------


def _as_feature_holder(me: Party, job: PrivateHistogramsJob, answering: Answering) -> OwnerPart:
    n_columns, n_own = len(answering.layout.owners), len(answering.layout.of(job.holders.index(me.name)))
    while True:
        asked = me.recv(job.label_holder, SmoothAsked, n_columns=n_columns, most_values=256 * n_columns)
        if asked.number == _LAST:
            break
        answering.answer(asked)
    told = me.recv(job.label_holder, SmoothQuestions, n_columns=n_own)
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
        layout: Layout,
        labels: Floats | None,
        *,
        n_threads: int,
    ) -> None:
        self.layout = layout
        self._me, self._job, self._columns, self._n_threads = me, job, columns, n_threads
        self._place = job.holders.index(me.name)
        self._own = layout.of(self._place)
        self._accounts = Accounts(job, GaussianDP())
        self._supply = Supply(me, job.dealer, job.holders)
        self._mesh = Mesh(me, job.holders, _RESULTS)
        self._groups = GroupSums(me, self._mesh, job.holders)
        self._positives = 0 if labels is None else int(labels.sum())
        self._labels = None if labels is None else labels.astype(np.uint32)
        self._scores = np.zeros(columns.n_rows, np.uint32)
        self._precision = Precision(0, 0)
        self._n_bins: list[int] = []
        self._last_number = self._released = 0
        self._last_owners: list[int] = []

    @property
    def n_rows(self) -> int:
        """Rows of all tables."""
        return self._columns.n_rows

    # --- what all do --------------------------------------------------------------------------------------------------

    def answer(self, asked: SmoothAsked) -> Ints:
        """The noisy sums that were asked for."""
        if asked.number != self._last_number + 1:
            raise ProtocolError(f"request {asked.number} came after request {self._last_number}")
        self._last_number = asked.number
        if asked.kind == "counts":
            return self._counts(asked)
        if asked.kind not in _RESULTS:
            raise ProtocolError(f"{self._job.label_holder} asks for {asked.kind!r}, which there is not")
        self._take_precision(asked)
        if asked.update == "start":
            self._take_bins(asked.bins)
        if asked.kind != "positives" and not self._n_bins:
            raise ProtocolError(f"{self._job.label_holder} asks for {asked.kind!r} before there are bins")
        owners = self._owners_of(asked)
        with_values = asked.update == "leaves" and len(set(self._last_owners)) > 1
        self._released += 1
        self._begin(asked, with_values=with_values)
        if asked.update != "none":
            self._update(asked, with_values=with_values)
        if asked.kind == "positives":
            sums = np.array([self._positives * COUNT_UNIT], np.int64).astype(np.uint32)
        elif asked.kind == "bin_sums":
            sums = self._bin_sums(int(asked.features[0]))
        elif asked.kind == "leaf_sums":
            sums = self._leaf_sums(asked, owners)
        else:
            sums = self._mean()
        return self._noisy(asked, sums.reshape(-1))

    def _begin(self, asked: SmoothAsked, *, with_values: bool) -> None:
        parcels_of = {"positives": 1, "mean": 1, "leaf_sums": 2, "bin_sums": 2}[asked.kind]
        if asked.kind != "positives":
            parcels_of += len(parcels(self._columns.n_rows))
        if asked.kind == "bin_sums" and self._n_bins[int(asked.features[0])] == 1:
            parcels_of -= 1
        self._supply.begin(self._released, 0, parcels_of + with_values)

    def _counts(self, asked: SmoothAsked) -> Ints:
        """Rows in public cells: everybody's, with noise that each draws for its own columns."""
        others = [party for party in self._job.holders if party != self._me.name]
        found: list[Ints] = []
        events: list[Event] = []
        for place in range(len(self._job.holders)):
            theirs = self.layout.of(place)
            n_cells = sum(self.layout.n_cells[j] for j in theirs)
            events.append(event_of(len(theirs) * COUNT_UNIT**2, asked.sigma, n_cells))
            self._accounts.spend(events[-1])
        for place, party in enumerate(self._job.holders):
            if place == self._place:
                released = discrete_gaussian(
                    self._columns.counts() * COUNT_UNIT,
                    sensitivity=COUNT_UNIT * len(self._own) ** 0.5 * (1.0 + 2.0**-48),
                    sigma=asked.sigma if self._job.is_noisy else 0.0,
                    random=self._me.rng,
                )
                for other in others:
                    self._me.send(other, SmoothCounts(released.values), event=events[place].to_dict())
                found.append(released.values)
            else:
                n_cells = sum(self.layout.n_cells[j] for j in self.layout.of(place))
                found.append(self._me.recv(party, SmoothCounts, n_cells=n_cells).counts)
        return np.concatenate(found)

    def _noisy(self, asked: SmoothAsked, sums: Array) -> Ints:
        """Sums with noise, which all get to know; shares modulo 2**32, noise modulo 2**32."""
        largest = sensitivity_squared(asked.kind, 1, self._precision)
        event = event_of(largest, asked.sigma, len(sums))
        noise = self._noise_of(asked.kind, sums)
        self._supply.finish()
        self._accounts.spend(event)
        talk = opened(Masked(asked.kind, sums + noise, SUM32))
        words = self._mesh.talk([Conversation(talk)], event.to_dict())[0]
        return np.asarray(words.view(np.int32).astype(np.int64))

    def _noise_of(self, kind: str, sums: Array) -> Array:
        shape = (len(sums) // 2, 2) if kind == "leaf_sums" else sums.shape
        noise = take_noise(self._supply.step(NOISE), shape, SUM64).words
        return noise.astype(np.uint32).reshape(-1)  # a share modulo 2**64 is one modulo 2**32

    # --- labels and scores -------------------------------------------------------------------------------------------

    def _take_precision(self, asked: SmoothAsked) -> None:
        bits, n_rows = asked.gradient_bits, self._columns.n_rows
        if bits != self._precision.bits:
            if asked.kind != "positives" or not COARSEST <= bits <= FINEST or n_rows << bits >= 1 << 31:
                raise ProtocolError(f"gradients of {bits} bits cannot be added up over {n_rows} rows")
            self._precision = Precision.of(bits)

    def _take_bins(self, bins: Bytes) -> None:
        if self._n_bins or bins.shape != (len(self.layout.owners), 256):
            raise ProtocolError(f"{self._job.label_holder} put the cells of {bins.shape} columns together")
        self._n_bins = merged_bins(bins, self.layout.n_cells)

    def _update(self, asked: SmoothAsked, *, with_values: bool) -> None:
        n_columns = len(self.layout.owners)
        shapes: dict[str, tuple[int, ...] | None] = {
            "start": (1,),
            "table": (256,) if asked.update_feature >= 0 else None,
            "tables": (n_columns, 256),
            "leaves": (1 << len(self._last_owners),) if self._last_owners else None,
        }
        shape = shapes.get(asked.update)
        if shape is None or asked.update_values.size != math.prod(shape) or not self._n_bins:
            raise ProtocolError(f"{self._job.label_holder} asks for an update by {asked.update!r} that cannot be")
        words = asked.update_values.astype(np.uint32).reshape(shape)
        if asked.update == "start":
            self._start(asked.bins, words)
        elif asked.update == "table":
            if self.layout.owners[asked.update_feature] == self._place:
                self._scores += words[self._columns.codes[self._own.index(asked.update_feature)]]
        elif asked.update == "tables":
            self._scores = np.full(self._columns.n_rows, self._base, np.uint32)
            for j, codes in zip(self._own, self._columns.codes, strict=True):
                self._scores += words[j][codes]
        else:
            step = self._supply.step(VALUES) if with_values else None
            self._scores += self._groups.values(step, words)

    def _start(self, bins: Bytes, base: Array) -> None:
        """Bins are known: masked columns are exchanged, and all scores are the first."""
        n_rows, kind = self._columns.n_rows, SUM32
        self._columns.merge(bins[self._own])
        self._of_cell = bins[self._own]
        rows = [sum(self._n_bins[j] - 1 for j in self.layout.of(place)) for place in range(len(self._job.holders))]
        needed, available = kind.number_bytes * n_rows * sum(rows), memory_available()
        if available is not None and needed > available:
            raise InvalidInput(
                f"{self._me.name}: {sum(rows):,} bins of {n_rows:,} rows need about {needed / 2**30:.1f} GiB, but only "
                f"{available / 2**30:.1f} GiB are available here; a smaller max_bins takes less"
            )
        self._bin_starts = np.concatenate([[0], np.cumsum(np.array(self._n_bins) - 1)]).tolist()
        step = self._supply.without_parcel(COLUMNS)
        matrices = Matrices(tuple(rows), n_rows, kind)
        self._hidden = exchanged(self._me, self._job.holders, step, self._columns, matrices, MaskedBins, keep_own=False)
        self._base = base[0] if self._place == 0 else np.uint32(0)
        self._scores = np.full(n_rows, self._base, np.uint32)

    def _values_of(self, *series: Series) -> list[Array]:
        """Shares of series at the scores of all rows."""
        found = [np.empty(self._columns.n_rows, np.uint32) for _ in series]
        for number, rows in enumerate(parcels(self._columns.n_rows)):
            step: HandStep = self._supply.step(SINES, number)
            talk = Conversation(turned(step, self._scores[rows], self._precision))
            angles = self._mesh.talk([talk])[0]
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
        gradients, n_bins = self.gradients(), self._n_bins[feature]
        total = np.asarray(gradients.sum(keepdims=True, dtype=np.uint32))
        if n_bins == 1:
            return total
        step = self._supply.step(SUMS)
        b = step.mask((1, len(gradients)), SUM32, (self._place,)).words
        f = shown(self._mesh, gradients[None] - b)
        made = step.share((1, n_bins - 1), SUM32).words[0]
        if self.layout.owners[feature] == self._place:
            codes = self._columns.codes[self._own.index(feature)]
            made += histogram(codes[None], f + b, n_bins, n_threads=self._n_threads)[0, 0, :-1]
        else:
            start = self._bin_starts[feature]
            made += rows_times(self._hidden[start : start + n_bins - 1], b, SUM32, n_threads=self._n_threads)[0]
        return np.concatenate([made, total - made.sum(keepdims=True, dtype=np.uint32)])

    def _leaf_sums(self, asked: SmoothAsked, owners: list[int]) -> Array:
        """Shares of sums of gradients and of weighted numbers of rows in each leaf: [leaves, 2]."""
        mine = [k for k, owner in enumerate(owners) if owner == self._place]
        places = [self._own.index(int(asked.features[k])) for k in mine]
        ways = ways_of(self._columns.codes[places], asked.goes_right[mine])
        gradients = self.gradients()
        sums = self._groups.sums(self._supply.step(SUMS), gradients, owners, ways)
        self._last_owners = owners
        sums[:, 1] *= np.uint32(1 << (self._precision.bits - ROW_WEIGHT_BITS))
        return sums

    def _mean(self) -> Array:
        """Shares of sums over all rows: gradients, and slopes."""
        p, slopes = self._values_of(LOGISTIC, SLOPE)
        return np.array([each.sum(dtype=np.uint32) for each in (self._minus_gradients(p), slopes)])

    def _owners_of(self, asked: SmoothAsked) -> list[int]:
        """Of the columns that a request names."""
        features = asked.features.tolist()
        wanted = {"bin_sums": len(features) == 1, "leaf_sums": 1 <= len(features) <= 8}.get(asked.kind, not features)
        known = range(len(self._n_bins))  # before the start there are no bins, and nothing to be summed over them
        if not wanted or not all(feature in known for feature in features):
            raise ProtocolError(f"{self._job.label_holder} asks for {asked.kind} of columns {features}")
        if asked.kind == "leaf_sums" and asked.goes_right.shape != (len(features), 256):
            raise ProtocolError(f"{self._job.label_holder} asks for a tree whose levels do not fit each other")
        owners = [self.layout.owners[feature] for feature in features]
        if owners and dealt_bytes(groups_of(owners), self.n_rows) > MAX_FRAME_BYTES:
            raise ProtocolError(f"{self._job.label_holder} asks for a tree that no message of the dealer can hold")
        return owners

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
            "stamp": None if privacy else NOT_PRIVATE,
            "policy": POLICY,
            "gradient_bits": self._precision.bits,
            "rounds": {"setup": 4, "training": self._mesh.rounds + self._groups.rounds},
        }
