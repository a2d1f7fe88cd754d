"""dp=(epsilon, delta): the recipe of `private_boosting` on secure sums, each with every owner's noise inside.

    coordinator -> owner   SumWanted   update your scores so, then sum this; with so much noise
    owner -> coordinator   NoisySum    own sums + own discrete Gaussian noise, under masks

Nothing is told in the clear: columns, levels and classes come from the public schema, which each owner holds its table
against by itself. An owner checks the sensitivity that a request claims, draws its noise from its own generator, and
writes the event into its ledger with the message that carries it. Noise is split so that that of `assumed_honest`
owners alone gives the guarantee; the others', who might work with the coordinator, is not counted on.

An owner that is lost ends the run: its noise is missing from the sum, and asking again would be paid for twice.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.party import Party
from hedgerow.privacy.budget import Budget
from hedgerow.privacy.events import Event
from hedgerow.privacy.mechanisms import Released, discrete_gaussian
from hedgerow.protocols.horizontal.secure_sum.gathering import Gathering
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import NOISY, agree_on_secrets, make_masks
from hedgerow.protocols.horizontal.secure_sum.messages import FinishedModel, NoisySum, Start, SumWanted
from hedgerow.protocols.horizontal.secure_sum.model import read_model, write_model
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import add_up
from hedgerow.protocols.horizontal.secure_sum.owner import PATIENCE
from hedgerow.protocols.private_boosting.grid import grid_of
from hedgerow.protocols.private_boosting.recipe import Recipe
from hedgerow.protocols.private_boosting.requests import SumRequest
from hedgerow.protocols.private_boosting.rows import PrivateRows, loss_of
from hedgerow.protocols.protocol import PartyData
from hedgerow.schema import Schema

DONE = -1


def private_owner(me: Party, data: PartyData, job: Job) -> Ensemble:
    """One owner under dp, from its table to the model that all owners get."""
    owner = PrivateOwner(me, data, job)
    to = job.coordinator
    me.wait_longer(PATIENCE)
    _, secrets = agree_on_secrets(me, job, round_id=1)
    masks = make_masks(me, secrets)
    while (wanted := me.recv(to, SumWanted)).number != DONE:
        answer, event = owner.answer(wanted)
        hidden = masks.hide(answer.values, Position(NOISY, wanted.number))
        me.send(to, NoisySum(hidden, answer.sensitivity, answer.sigma), event=event.to_dict())
    start = me.recv(to, Start)
    mapper = _mapper(_schema(job), start.edges, start.ends)
    ensemble = Ensemble(mapper, loss_of(_schema(job)), start.base_scores.copy(), classes=_schema(job).classes)
    for tree in read_model(me.recv(to, FinishedModel), mapper):
        ensemble.append(tree, checked=True)
    return ensemble


class PrivateOwner:
    """One owner's rows: answers leave it with noise, and not without."""

    def __init__(self, me: Party, data: PartyData, job: Job) -> None:
        if data.labels is None:
            raise InvalidInput(f"{me.name}: an owner needs labels")
        schema = _schema(job)
        labels = data.labels
        if data.classes is not None:
            labels = np.array(data.classes, dtype=object)[data.labels.astype(np.intp)]
        self._rows = PrivateRows.read(data.table, labels, schema, n_threads=data.n_threads, where=me.name)
        self._me, self._job = me, job
        # The owner keeps its own account: what the coordinator asks for beyond the job's budget is not answered.
        self._budget = Budget(*budget_of(job))

    def answer(self, wanted: SumWanted) -> tuple[NoisySum, Event]:
        """The sums that are asked for, with this owner's noise, and the event of that noise."""
        request = _request(wanted)
        honest = self._job.assumed_honest
        self._budget.spend(request.event(honest))
        values, event = discrete_gaussian(
            self._rows.answer(request),
            sensitivity=request.sensitivity,
            sigma=request.sigma_per_owner(honest),
            random=self._me.rng,
            parties=honest,
        )
        return NoisySum(values.view(np.uint64), request.sensitivity, request.sigma_per_owner(honest)), event


def private_coordinator(me: Party, job: Job, data: PartyData | None) -> Ensemble:
    """The coordinator under dp: all that it learns are noisy sums."""
    schema, (epsilon, delta) = _schema(job), budget_of(job)
    own = None if data is None else PrivateOwner(me, data, job)
    gathering = Gathering(me, job, None)
    gathering.exchange_keys()
    gathering.setup_rounds = gathering.rounds
    honest = job.assumed_honest
    recipe = Recipe(schema, epsilon=epsilon, delta=delta, seed=job.boosting.seed, owners=len(job.owners), honest=honest)

    def release(request: SumRequest) -> Released[Ints]:
        wanted = SumWanted(**{f.name: getattr(request, f.name) for f in fields(SumRequest)})
        gathering.tell(wanted)
        parts = gathering.each(NoisySum)
        if own is not None:
            parts[me.name], _ = own.answer(wanted)
        if recipe.n_requests is not None:
            me.report(request.number + 1, recipe.n_requests)
        return add_up(parts, request.n_sums, honest)

    model = recipe.run(release)
    model.meta["privacy"] = {
        "epsilon": epsilon,  # checked; what was spent may be less, but depends on what was released
        "delta": delta,
        "asked": [epsilon, delta],
        "adjacency": "add or remove one row of one owner",
        "accountant": recipe.accountant.NAME,
        "mechanism": "discrete Gaussian, split between owners, inside a masked sum",
        "honest_owners_assumed": honest,
        "releases": gathering.rounds - gathering.setup_rounds,
    }
    model.meta["rounds"] = {"setup": gathering.setup_rounds, "training": gathering.rounds - gathering.setup_rounds}
    gathering.tell(_no_more())
    edges = [feature.edges for feature in model.mapper.features if feature.edges is not None]
    ends = np.cumsum([len(these) for these in edges]).astype(np.int64)
    gathering.tell(Start(np.concatenate([*edges, np.empty(0)]), ends, np.asarray(model.base_scores), 0))
    gathering.tell(write_model(model.trees))
    return model


def _request(wanted: SumWanted) -> SumRequest:
    values: dict[str, Any] = {f.name: getattr(wanted, f.name) for f in fields(SumRequest)}
    return SumRequest(**values)


def _no_more() -> SumWanted:
    nothing = SumRequest(number=DONE, kind="squares", n_sums=0, sensitivity_squared=1, sigma=0.0)
    return SumWanted(**{f.name: getattr(nothing, f.name) for f in fields(SumRequest)})


def _mapper(schema: Schema, edges: Floats, ends: Ints) -> BinMapper:
    pieces = iter(np.split(edges, ends[:-1]) if len(ends) else [])
    return BinMapper(
        tuple(
            feature if feature.edges is None else type(feature)(feature.name, next(pieces))
            for feature in grid_of(schema).features
        )
    )


def budget_of(job: Job) -> tuple[float, float]:
    """The (epsilon, delta) of a job that has one."""
    if job.dp is None:
        raise ProtocolError("a private training needs a budget")
    return job.dp


def _schema(job: Job) -> Schema:
    if job.schema is None:
        raise ProtocolError("a private sum needs a public schema")
    return job.schema
