"""dp=(epsilon, delta): the recipe of `central.gaussian` on secure sums, each with every owner's noise inside.

    coordinator -> owner   SumWanted   update your scores so, then sum this; with so much noise
    owner -> coordinator   NoisySum    own sums + own discrete Gaussian noise, under masks

The first sum is the number of rows that did not fit the schema (`protocols/bad_rows.py`); the others make the model.
Nothing is told in the clear: columns, levels and classes come from the public schema, which each owner holds its table
against by itself. An owner checks the sensitivity that a request claims, draws its noise from its own generator, and
writes the event into its ledger with the message that carries it. Noise is split so that that of `assumed_honest`
owners alone gives the guarantee; the others', who might work with the coordinator, is not counted on.

An owner that is lost ends the run: its noise is missing from the sum, and asking again would be paid for twice.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.dtypes import MAX_BINS, Bytes, Ints, Scores, Words
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput, InvalidParameter, PeerLost, ProtocolError
from hedgerow.privacy.calibrate import Budget
from hedgerow.privacy.events import Event, Gaussian, Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.on_ray import RayAnswers, answering_actors, answering_coded
from hedgerow.protocols.central.gaussian.recipe import Recipe
from hedgerow.protocols.central.gaussian.requests import Kind, SumRequest, Update
from hedgerow.protocols.central.gaussian.rows import PrivateRows, code_rows, loss_of
from hedgerow.protocols.central.gaussian.training import MISFITS_SHARE
from hedgerow.protocols.horizontal.secure_sum.gathering import Gathering
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.masks import NOISY, Masks
from hedgerow.protocols.horizontal.secure_sum.messages import LARGEST_SCORE, NoisySum, Start, SumWanted, refuse
from hedgerow.protocols.horizontal.secure_sum.model import hand_out, receive_model
from hedgerow.protocols.horizontal.secure_sum.owner import (
    PATIENCE,
    check_increasing,
    common_bins,
    start_ranges,
    write_start,
)
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema
from hedgerow.transport.frames import encode

DONE = -1
MOST_TREES = 2**16
MOST_NODES = 2**24
"""Of a private model; the recipe makes a tree of at most 511 nodes per column, and at most 800 of 127."""


def private_owner(me: Party, data: PartyData, job: Job) -> Ensemble:
    """One owner under dp, from its table to the model that all owners get."""
    owner = PrivateOwner(me, data, job)
    with owner.opened:
        _answer_all(me, owner, job)
    to = job.coordinator
    schema = _schema(job)
    columns = grid_of(schema).features
    n_numeric = sum(column.edges is not None for column in columns)
    low, high = schema.label_bounds or (-LARGEST_SCORE, LARGEST_SCORE)
    reach = LARGEST_SCORE * (high - low)  # base scores move by what was learned, which noise may push out of bounds
    scores = (low - reach, high + reach)
    # Nothing is said of the number of rows here.
    start = me.recv(to, Start, **start_ranges(n_numeric, scores, n_outputs=1, rows=(0, 0)))
    check_increasing(to, start, start.edges, start.ends, MAX_BINS - 2)
    about = ([c.name for c in columns], [c.levels for c in columns], [c.rule for c in columns])
    mapper = common_bins(*about, start.edges, start.ends)
    model = Ensemble(mapper, loss_of(schema), start.base_scores.copy(), classes=schema.classes)
    return receive_model(me, job, model, MOST_TREES, most_nodes=MOST_NODES)


def _answer_all(me: Party, owner: PrivateOwner, job: Job) -> None:
    """Request after request, until the coordinator has no more wishes."""
    to = job.coordinator
    me.wait_longer(PATIENCE)
    owner.go_on(*me.go_on(PrivateState, job))
    masks = Masks(me, job)
    masks.agree(round_id=1)
    ranges = owner.request_ranges
    while (wanted := me.recv(to, SumWanted, **ranges)).number != DONE:
        answer, event = owner.answer(to, wanted)
        if me.checkpoints is not None:  # before it is sent, and under masks that are of this attempt
            me.keep(wanted.number + 1, owner.state(wanted=digest_of(wanted), drawn=answer.values))
        hidden = masks.hide_sum(answer.values, Position(NOISY, wanted.number), is_first=True)
        if hidden is None:
            raise PeerLost(f"{to} has lost another owner, which ends a private training")
        me.send(to, NoisySum(hidden, answer.sensitivity, answer.sigma), event=event)
        masks.help_to_open()


@dataclass(frozen=True, kw_only=True)
class PrivateState:
    """What is kept under a number of requests: by owners how their rows stand, and their answer to the last one.

    By the coordinator all noisy sums, one after the other, and how its own rows stand if it has any.
    """

    wanted: str = ""
    drawn: Words | None = None
    sums: Ints | None = None
    ends: Ints | None = None
    rounds: int = 0
    spent: float = 0.0
    started: SumRequest | None = None
    scores: Scores | None = None
    leaves: Bytes | None = None
    n_leaves: int = 0


class PrivateOwner:
    """One owner's rows: answers leave it with noise, and not without."""

    def __init__(self, me: Party, data: PartyData, job: Job) -> None:
        schema = _schema(job)
        if data.part is not None:
            raise InvalidParameter(
                f"{me.name}: with dp training does not go on from an earlier model: the budget covers what this run "
                "releases, and not what that model tells; leave out init_model"
            )
        self._me, self._job = me, job
        self.opened = ExitStack()
        """Actors, if there are any, until it is closed."""
        self._rows = self._read(data, schema)
        self._cells = cells_of(schema, grid_of(schema))
        # The owner keeps its own account: what the coordinator asks for beyond the job's budget is not answered.
        self._budget = Budget(*budget_of(job))

    def _read(self, data: PartyData, schema: Schema) -> PrivateRows | RayAnswers:
        """Codes on the public grid, and labels: of a table in memory, or of files, read here or by actors."""
        where, how = self._me.name, self._job.on_bad_rows
        loss_of(schema)  # refuses schemas that owners cannot train by
        if data.blocks is not None:
            target = data.blocks.target
            if target is None:
                raise InvalidInput(f"{where}: an owner needs labels")
            if data.backend is not None:
                actors = answering_actors(data.backend, data.blocks, target, schema, how)
                return self.opened.enter_context(actors)
            names = [column.name for column in schema.columns]
            batches = data.blocks.batches([*names, target])
            tables = ((batch.select(names), batch.column(target)) for _, batch in batches)
            about: dict[str, Any] = {"n_threads": data.n_threads, "on_bad_rows": how, "where": where}
            return PrivateRows.read_some(tables, schema, multiclass=False, **about)
        if data.labels is None:
            raise InvalidInput(f"{where}: an owner needs labels")
        labels = data.labels
        if data.classes is not None:
            labels = np.array(data.classes, dtype=object)[data.labels.astype(np.intp)]
        if how == "raise" and data.misfits is not None and data.misfits.any():
            raise InvalidInput(f"{where}: a row has a value that its column in the schema cannot hold")
        bad: dict[str, Any] = {"where": where, "on_bad_rows": how, "unread": data.misfits}
        if data.backend is None:
            return PrivateRows.read(data.table, labels, schema, n_threads=data.n_threads, **bad)
        codes, known, misfits, _ = code_rows(data.table, labels, schema, grid_of(schema), data.n_threads, **bad)
        return self.opened.enter_context(answering_coded(data.backend, codes, known, misfits, schema))

    def go_on(self, n_requests: int, state: PrivateState | None) -> None:
        """In a later attempt: stand as after so many requests. What was spent on more than these stays spent."""
        last, kept = self._me.kept(None, PrivateState), self._me.checkpoints
        if last is not None and kept is not None and kept.trees[-1] <= n_requests + 1:
            last = state  # the answer to the next request is there already, and is sent as it was
        if last is not None and 0.0 < last.spent < math.inf:
            self._budget.spend(Gaussian(math.sqrt(last.spent), 1.0))
        if state is not None and state.scores is not None and state.leaves is not None:
            self._rows.go_on(n_requests - 1, state.started, state.scores, state.leaves, state.n_leaves)

    def state(self, **more: Any) -> PrivateState:
        """What is kept of it."""
        return PrivateState(spent=self._budget.accountant.total, **self._rows.standing(), **more)

    @property
    def request_ranges(self) -> dict[str, int]:
        """Symbols of `SumWanted`."""
        n_columns, n_cells = len(self._cells), sum(self._cells)
        return {
            "n_columns": n_columns,
            "most_sums": 2 * max(n_cells, MAX_BINS),
            "most_update_values": n_columns * MAX_BINS,
        }

    def answer(self, sender: str, wanted: SumWanted) -> tuple[NoisySum, Event]:
        """The sums that are asked for, with this owner's noise, and the event of that noise."""
        request = read_request(sender, wanted, len(self._cells))
        honest = self._job.assumed_honest
        self._budget.spend(request.event(honest))
        exact, sigma = self._rows.answer(request), request.sigma_per_owner(honest)
        before = self._me.kept(wanted.number + 1, PrivateState)
        if before is not None and before.drawn is not None:  # an earlier attempt may have sent it
            if before.wanted != digest_of(wanted):
                raise refuse(sender, wanted, f"with number {wanted.number}, under which an earlier attempt asked else")
            return NoisySum(before.drawn, request.sensitivity, sigma), request.event(honest)
        values, event = discrete_gaussian(
            exact, sensitivity=request.sensitivity, sigma=sigma, random=self._me.rng, parties=honest
        )
        return NoisySum(values.view(np.uint64), request.sensitivity, sigma), event


def private_coordinator(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """The coordinator under dp: all that it learns are noisy sums."""
    if data is None:
        return _coordinate(me, job, None)
    own = PrivateOwner(me, data, job)
    with own.opened:
        return _coordinate(me, job, own)


def _coordinate(me: Party, job: Job, own: PrivateOwner | None) -> Ensemble:
    schema, (epsilon, delta) = _schema(job), budget_of(job)
    gathering = Gathering(me, job, None)
    n_requests, state = me.go_on(PrivateState, job)
    if own is not None:
        own.go_on(n_requests, state)
    gathering.exchange_keys()
    gathering.setup_rounds = gathering.rounds
    sums: list[Ints] = []
    if state is not None and state.sums is not None and state.ends is not None:
        gathering.rounds += state.rounds
        sums = np.split(state.sums, state.ends[:-1])
    honest = job.assumed_honest
    recipe = Recipe(
        schema, epsilon=epsilon, delta=delta, seed=job.boosting.seed, owners=len(job.owners), honest=honest,
        reserve=MISFITS_SHARE,
    )  # fmt: skip

    def release(request: SumRequest) -> Released[Ints]:
        if request.number < n_requests:
            return Released(sums[request.number], request.event(honest))
        wanted = write_request(request)
        gathering.tell(wanted)
        expected = {"sensitivity": request.sensitivity, "sigma": request.sigma_per_owner(honest)}
        mine = None if own is None else lambda: own.answer(me.name, wanted)[0].values
        total = gathering.noisy_sum(NoisySum, mine, n_values=request.n_sums, **expected)
        if recipe.n_requests is not None:
            me.report(request.number + 1, recipe.n_requests)
        released = Released(total.view(np.int64), request.event(honest))
        if me.checkpoints is not None:
            sums.append(released.values)
            rounds, ends = gathering.rounds - gathering.setup_rounds, np.cumsum([len(each) for each in sums])
            known: dict[str, Any] = {"sums": np.concatenate(sums), "ends": ends, "rounds": rounds}
            me.keep(request.number + 1, PrivateState(**known) if own is None else own.state(**known))
        return released

    model = recipe.run(release)
    model.meta["privacy"] = {
        "epsilon": epsilon,  # checked; what was spent may be less, but depends on what was released
        "delta": delta,
        "asked": [epsilon, delta],
        "adjacency": "add or remove one row of one owner",
        "accountant": recipe.budget.accountant.NAME,
        "mechanism": "discrete Gaussian, split between owners, inside a masked sum",
        "honest_owners_assumed": honest,
        "releases": 1 + (recipe.n_requests or 0),  # that of misfits, and those that the recipe has planned
    }
    model.meta["n_misfits_estimate"] = recipe.n_misfits
    model.meta["rounds"] = {"setup": gathering.setup_rounds, "training": gathering.rounds - gathering.setup_rounds}
    gathering.tell(write_request(SumRequest(number=DONE, kind="squares", n_sums=0, sensitivity_squared=1, sigma=0.0)))
    edges = [feature.edges for feature in model.mapper.features if feature.edges is not None]
    gathering.tell(write_start(edges, model.base_scores, n_rows=0))
    return hand_out(gathering.tell, job, model)


def read_request(sender: str, wanted: SumWanted, n_columns: int) -> SumRequest:
    """The request in a message; whether it fits the rows is for `PrivateRows` to say."""
    if wanted.kind not in get_args(Kind) or wanted.update not in get_args(Update):
        raise refuse(sender, wanted, f"with kind {wanted.kind!r} and update {wanted.update!r}")
    values: dict[str, Any] = {name: getattr(wanted, name) for name in SumRequest.__dataclass_fields__}
    if wanted.update == "tables":
        if wanted.update_values.size != n_columns * MAX_BINS:
            raise refuse(sender, wanted, f"with {wanted.update_values.size} values of tables")
        values["update_values"] = wanted.update_values.reshape(n_columns, MAX_BINS)
    return SumRequest(**values)


def write_request(request: SumRequest) -> SumWanted:
    """The message of a request."""
    values: dict[str, Any] = {name: getattr(request, name) for name in SumRequest.__dataclass_fields__}
    return SumWanted(**{**values, "update_values": request.update_values.ravel()})


def digest_of(wanted: SumWanted) -> str:
    """Of all that a request says."""
    return hashlib.sha256(encode(wanted)).hexdigest()


def budget_of(job: Job) -> tuple[float, float]:
    """The (epsilon, delta) of a job that has one."""
    if job.dp is None:
        raise ProtocolError("a private training needs a budget")
    return job.dp


def _schema(job: Job) -> Schema:
    if job.schema is None:
        raise ProtocolError("a private sum needs a public schema")
    return job.schema
