"""The label holder's side: receives buckets once, trains by itself, tells each owner what the model asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import EvalSet, TrainingResult, boost, check_rules, start_model, train
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Int32s, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, TreeStack
from hedgerow.engine.losses import BoostingParams, Quantiser, check_weight
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.rows_ray.placing import placed_rows
from hedgerow.engine.rows_ray.rows import RayRows
from hedgerow.errors import InvalidInput, ProtocolError, TransportError
from hedgerow.protocols.vertical.bucket_rr import buckets, messages
from hedgerow.protocols.vertical.bucket_rr.buckets import History, Kinds
from hedgerow.protocols.vertical.bucket_rr.cache import Kept, Shelf
from hedgerow.protocols.vertical.bucket_rr.debias import SoftRowsLike, train_debiased
from hedgerow.protocols.vertical.bucket_rr.job import NAME, Job
from hedgerow.protocols.vertical.common.agreement import begin_as_label_holder, check_table, fitted
from hedgerow.protocols.vertical.common.drawing import ColumnRules
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, divide
from hedgerow.protocols.vertical.common.watching import watched_rows
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def label_holder(me: Party, job: Job, brought: PartyData | None) -> LabelHolderPart:
    """The whole role of the label holder."""
    data = check_table(me.name, brought, needs_values=job.on_bad_rows == "raise")
    if data.labels is None:
        raise InvalidInput(f"{me.name}: is to hold the labels, but brings none")
    expected = [job.expected(me.name, column.name) for column in data.table.columns]
    data, counts = fitted(me, job, data, expected, classes=job.listed_classes, on_bad_rows=job.on_bad_rows)
    rows, labels = _that_count(data, counts)
    learned, watched, weight = _that_are_learned(me.name, job, data, rows)
    params = _params(job, data, labels[learned])
    shelf = None if job.cache is None else Shelf(me.name, job.cache, job, data.table.n_rows)
    kept: dict[str, Kept | None] = {}
    if shelf is not None and job.transfer == "once":
        kept = {party: shelf.find(party) for party in job.feature_holders}
    received = me.kept(0, Received) if me.attempt > 1 else None
    for party in job.feature_holders if kept or me.attempt > 1 else ():
        transfer = kept.get(party)
        has = "" if transfer is None else transfer.transfer_id
        me.send(party, messages.HaveTransfer(has if received is None else messages.OF_THIS_RUN))
    n_columns = begin_as_label_holder(me, job, data)
    known = np.arange(data.table.n_rows) if rows is None else rows
    table = data.table if rows is None and watched is None else data.table.taken(known[learned])
    own = BinMapper.fit(table, job.max_bins, n_threads=data.n_threads)  # while the others randomise
    own_codes = own.transform(data.table, data.n_threads)
    if received is None:
        foreign = _receive_all(me, job, n_columns, data.table.n_rows, kept, shelf)
        if me.checkpoints is not None:
            me.keep(0, Received.of(foreign))
    else:
        foreign = received.foreign()
    pool = _Pool.of(job, own, own_codes, foreign, data.n_threads)
    if rows is not None:
        pool = replace(pool, codes=np.ascontiguousarray(pool.codes[:, rows]))
    _check_columns(job, n_columns, foreign)
    ensemble = _train(me, job, params, pool, _Labels(labels, weight, learned, watched), data.backend)
    ensemble.classes = data.classes if job.task == "classification" else None
    transfers = {party: buckets.about_transfer(job, theirs.kinds, theirs.history) for party, theirs in foreign.items()}
    ensemble.meta |= {"rounds": {"setup": 3 if kept else 2, "training": 0}, "transfers": transfers}
    part, questions = divide(ensemble, pool.owners, me.name, protocol=NAME, run_id=job.run_id)
    for party in job.feature_holders:
        asked = questions[party]
        levels = np.packbits(asked.left_levels, axis=1)
        me.send(party, messages.OwnSplits(asked.column, asked.bin, asked.missing_left, levels))
    return part


def _that_count(data: PartyData, counts: Bools) -> tuple[Ints | None, Floats]:
    """Which rows have a label, None for all, and their labels. If none has, one row of any label stands for them."""
    labels = np.zeros(0) if data.labels is None else data.labels
    if counts.all():
        return None, labels
    if not counts.any():
        return np.zeros(1, np.int64), np.nan_to_num(labels[:1])
    return np.flatnonzero(counts), labels[counts]


def _that_are_learned(
    party: str, job: Job, data: PartyData, rows: Ints | None
) -> tuple[Ints | slice, Ints | None, Floats | None]:
    """Of rows that have a label: which are learned from, which are watched for early stopping, and their weights.

    If the rows to watch or to learn from have no label at all, none is watched, and training goes to its end.
    """
    weight = data.weight
    if weight is not None:
        check_weight(party, weight, data.table.n_rows)
        weight = weight if rows is None else weight[rows]
        weight = weight if weight.any() else None  # of rows that have a label nobody counts
    mask = watched_rows(party, job, data)
    if mask is None:
        return slice(None), None, weight
    mask = mask if rows is None else mask[rows]
    if mask.all() or not mask.any() or (weight is not None and not (weight[mask].any() and weight[~mask].any())):
        return slice(None), None, weight
    return np.flatnonzero(~mask), np.flatnonzero(mask), weight


def _check_columns(job: Job, n_columns: Mapping[str, int], foreign: Mapping[str, _Foreign]) -> None:
    """InvalidInput where columns have constraints by their numbers, and a party has left some of them out."""
    for party, theirs in foreign.items() if ColumnRules.follow_splits(job.boosting) else ():
        if len(theirs.kinds.n_values) < n_columns[party]:
            raise InvalidInput(
                f"{party}: sends {len(theirs.kinds.n_values)} of its {n_columns[party]} columns, because the others "
                "have one bucket only; constraints go by the numbers of columns, so leave these columns out"
            )


def _params(job: Job, data: PartyData, labels: Floats) -> BoostingParams:
    """What the engine would refuse is refused before anybody has paid for a transfer."""
    n_classes = len(data.classes or ()) if job.task == "classification" else None
    if n_classes is not None and n_classes < 2:
        raise InvalidInput(f"{job.label_holder}: labels must be of at least two classes, got {n_classes}")
    params = job.for_labels(n_classes, (float(labels.min()), float(labels.max())))
    return replace(params, n_threads=data.n_threads)


# --- what comes from feature holders ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Foreign:
    """One feature holder's columns, as far as the label holder knows them."""

    kinds: Kinds
    packed: Bytes  # buckets of all columns
    history: History

    def features(self, party: str) -> list[FeatureBins]:
        """Columns with a number for a name; a value is the number of its bucket."""
        kinds = zip(self.kinds.n_values.tolist(), self.kinds.has_levels.tolist(), strict=True)
        return [
            FeatureBins(f"{party}[{j}]", levels=tuple(range(n)))
            if by_levels
            else FeatureBins(f"{party}[{j}]", edges=np.arange(1.0, n))
            for j, (n, by_levels) in enumerate(kinds)
        ]

    def unpack(self, party: str, out: Bytes, n_threads: int) -> None:
        """All buckets, straight to where training reads them."""
        try:
            buckets.unpack(self.packed, self.kinds.categories, out, n_threads)
        except InvalidInput as problem:
            raise ProtocolError(f"what {party} sent cannot be used: {problem}") from None


@dataclass(frozen=True)
class Transferred:
    """One feature holder's transfer, but for the buckets."""

    n_values: Int32s
    has_levels: Bools
    may_be_missing: Bools
    n_bytes: int
    history: History


@dataclass(frozen=True)
class Received:
    """What the label holder keeps before the first tree: everybody's buckets as they came."""

    packed: Bytes  # one party's after the other's
    transfers: Mapping[str, Transferred]

    @classmethod
    def of(cls, foreign: Mapping[str, _Foreign]) -> Received:
        """From what was received."""
        transfers = {
            party: Transferred(*theirs.kinds, len(theirs.packed), theirs.history) for party, theirs in foreign.items()
        }
        return cls(np.concatenate([theirs.packed for theirs in foreign.values()]), transfers)

    def foreign(self) -> dict[str, _Foreign]:
        """The inverse of `of`."""
        ends = np.cumsum([each.n_bytes for each in self.transfers.values()])
        pieces = zip(self.transfers.items(), np.split(self.packed, ends[:-1]), strict=True)
        return {
            party: _Foreign(Kinds(each.n_values, each.has_levels, each.may_be_missing), piece, each.history)
            for (party, each), piece in pieces
        }


def _receive_all(
    me: Party,
    job: Job,
    n_columns: Mapping[str, int],
    n_rows: int,
    kept: Mapping[str, Kept | None],
    shelf: Shelf | None,
) -> dict[str, _Foreign]:
    """Everybody's buckets. If one party fails, the others' are still put on the shelf: they have been paid for."""
    foreign: dict[str, _Foreign] = {}
    problem: TransportError | None = None
    for party in job.feature_holders:
        try:
            transfer = kept.get(party)
            if transfer is None:
                foreign[party] = _receive(me, job, party, n_columns[party], n_rows, shelf)
            else:  # if it agrees that they are still right
                history = History.told(me.recv(party, messages.SameAsBefore))
                foreign[party] = _Foreign(transfer.kinds, transfer.packed, history)
        except TransportError as failure:
            if shelf is None:
                raise
            problem = problem or failure
    if problem is not None:
        raise problem
    return foreign


def _receive(me: Party, job: Job, party: str, n_columns: int, n_rows: int, shelf: Shelf | None) -> _Foreign:
    """One party's buckets, of some of its columns."""
    told = me.recv(party, messages.ColumnKinds, most_columns=n_columns, most_values=buckets.MOST_VALUES)
    kinds = Kinds(told.n_values, told.has_levels, told.may_be_missing)
    sizes = buckets.packed_sizes(kinds.categories, n_rows)
    ranges = list(buckets.portions(sizes))
    _check_kinds(party, told, len(ranges), is_kept=shelf is not None)
    pieces = [
        me.recv(party, messages.Buckets, start=start, n_bytes=sum(sizes[start:stop])).packed for start, stop in ranges
    ]
    packed = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    if shelf is not None:
        shelf.keep(party, Kept(told.transfer_id, kinds, packed), buckets.event_of(job, kinds))
    return _Foreign(kinds, packed, History.told(told))


def _check_kinds(party: str, kinds: messages.ColumnKinds, n_messages: int, *, is_kept: bool) -> None:
    """ProtocolError for what ranges cannot say."""
    if (kinds.n_values + kinds.may_be_missing < 2).any():
        raise ProtocolError(f"{party} describes a column of fewer than 2 buckets, which tells nothing")
    if kinds.n_messages != n_messages:
        raise ProtocolError(f"{party} announces {kinds.n_messages} messages of buckets that take {n_messages}")
    if is_kept and len(kinds.transfer_id) != messages.ID_LETTERS:
        raise ProtocolError(f"{party} gives its transfer no number, so it cannot be kept")


# --- training --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pool:
    """Everybody's columns, in the order of the parties, as the engine takes them."""

    owners: list[str]  # of each column
    mapper: BinMapper
    codes: Bytes  # [columns, rows]
    keep: Floats  # chance that a code is the true one
    n_codes: Ints  # codes that noise may have put in its place, and itself

    @classmethod
    def of(cls, job: Job, own: BinMapper, own_codes: Bytes, foreign: Mapping[str, _Foreign], n_threads: int) -> _Pool:
        """Own codes are copied, foreign ones unpacked into their place."""
        owners: list[str] = []
        features: list[FeatureBins] = []
        n_codes: list[int] = []
        n_columns = len(own_codes) + sum(len(f.kinds.n_values) for f in foreign.values())
        codes = np.empty((n_columns, own_codes.shape[1]), np.uint8)
        keep = np.ones(n_columns)
        for party in job.parties:
            start = len(owners)
            if party == job.label_holder:
                codes[start : start + len(own_codes)] = own_codes
                features += own.features
                n_codes += [feature.n_codes for feature in own.features]
            else:
                theirs = foreign[party]
                categories = theirs.kinds.categories.tolist()
                stop = start + len(categories)
                theirs.unpack(party, codes[start:stop], n_threads)
                features += theirs.features(party)
                n_codes += categories
                keep[start:stop] = [buckets.keep_probability(n, job.noise) for n in categories]
            owners += [party] * (len(features) - start)
        return cls(owners, BinMapper(tuple(features)), codes, keep, np.array(n_codes, np.int64))


class _Labels(NamedTuple):
    """Labels and weights of all rows of the pool, and which of them are learned from or watched."""

    values: Floats
    weight: Floats | None
    learned: Ints | slice
    watched: Ints | None

    def of(self, rows: Ints | slice) -> tuple[Floats, Floats | None]:
        """Labels and weights of some rows."""
        return self.values[rows], None if self.weight is None else self.weight[rows]


@dataclass(frozen=True)
class Boosted:
    """What the label holder keeps after an iteration."""

    trees: TreeStack = field(default_factory=lambda: TreeStack.of(()))
    scores: Scores | None = None
    base_scores: Floats | None = None


def _train(
    me: Party, job: Job, params: BoostingParams, pool: _Pool, given: _Labels, backend: RayBackend | None
) -> Ensemble:
    """All trees, or those that an earlier attempt has not kept: only the label holder has any.

    With early stopping it begins anew: trees cost no message and nothing is drawn, so they are the same ones.
    """
    before, n_trees = Boosted(), params.n_iterations
    if me.attempt > 1 and me.checkpoints is not None and me.checkpoints.trees[-1] and given.watched is None:
        before = me.kept(None, Boosted) or before
    labels, weight = given.of(given.learned)
    codes = pool.codes if given.watched is None else np.ascontiguousarray(pool.codes[:, given.learned])

    def after(model: Ensemble, rows: SoftRowsLike | None) -> None:
        if me.checkpoints is not None:
            scores = None if rows is None else rows.scores
            me.keep(model.n_iterations, Boosted(TreeStack.of(model.trees), scores, model.base_scores))
        me.report(model.n_iterations, n_trees)

    if not (job.is_noisy and job.debias):
        init = None
        if before.base_scores is not None:
            loss = params.loss_for(labels).name
            init = Ensemble(pool.mapper, loss, before.base_scores, trees=before.trees.trees())
            if init.n_iterations == n_trees:
                return init
            params = replace(params, n_iterations=n_trees - init.n_iterations)
        told: Any = SimpleNamespace(after_iteration=lambda model, *_: after(model, None))
        sets = []
        if given.watched is not None:
            sets = [EvalSet("valid", np.ascontiguousarray(pool.codes[:, given.watched]), *given.of(given.watched))]
        looking: dict[str, Any] = {"callbacks": [told], "eval_sets": sets, "eval_metric": params.eval_metric}
        if backend is None:
            return _recorded(train(params, pool.mapper, codes, labels, weight, **looking, init=init))
        return _recorded(_train_on_ray(backend, params, pool.mapper, codes, (labels, weight), looking, init))
    return train_debiased(
        params,
        pool.mapper,
        pool.codes,
        given.values,
        weight=given.weight,
        watched=given.watched,
        keep=pool.keep,
        n_codes=pool.n_codes,
        on_trees=after,
        n_threads=params.n_threads,
        init=before.trees.trees(),
        scores=before.scores,
        backend=backend,
    )


def _recorded(result: TrainingResult) -> Ensemble:
    """The model, which says how early stopping went."""
    if result.best_iteration is not None:
        curves = {name: list(curve) for name, curve in result.evals_log["valid"].items()}
        result.ensemble.meta |= {"learning_curve": curves, "best_iteration": result.best_iteration}
    return result.ensemble


def _train_on_ray(
    backend: RayBackend,
    params: BoostingParams,
    mapper: BinMapper,
    codes: Bytes,
    labelled: tuple[Floats, Floats | None],
    looking: dict[str, Any],
    init: Ensemble | None,
) -> TrainingResult:
    """The engine's trees, with own codes and received buckets in actors."""
    labels, weight = labelled
    check_rules(params, mapper, labels)
    loss = params.loss_for(labels if weight is None else labels[weight > 0])
    ensemble = start_model(params, mapper, loss, labels, weight, init)
    quantiser = Quantiser.for_rows(loss, len(labels), weight, gradient_bits=params.gradient_bits)
    rules: dict[str, Any] = {"loss": loss, "base_scores": ensemble.base_scores, "quantiser": quantiser}
    placed = placed_rows(
        backend, mapper, codes, labels, weight, **rules, n_threads=params.n_threads, ensemble=ensemble,
        counts_first=params.min_rows_per_sum > 1,
    )  # fmt: skip
    with placed as there:
        rows = cast("RayRows", there)
        how: dict[str, Any] = {"weighted": weight is not None, **looking, "after_iteration": rows.crew.settle}
        return boost(params, loss, rows, ensemble, rows.add_tree, **how)
