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

from typing import Any

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.dtypes import MAX_BINS, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.errors import InvalidInput, PeerLost, ProtocolError
from hedgerow.privacy.calibrate import Budget
from hedgerow.privacy.events import Event, Released
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.central.gaussian.grid import cells_of, grid_of
from hedgerow.protocols.central.gaussian.recipe import MISFITS_SHARE, Recipe
from hedgerow.protocols.central.gaussian.requests import SumRequest
from hedgerow.protocols.central.gaussian.rows import PrivateRows, loss_of
from hedgerow.protocols.horizontal.secure_sum.checks import (
    check_increasing,
    read_request,
    request_ranges,
    start_ranges,
    write_request,
)
from hedgerow.protocols.horizontal.secure_sum.double import OwnMasks
from hedgerow.protocols.horizontal.secure_sum.gathering import Gathering
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import NOISY, agree_on_secrets, make_masks
from hedgerow.protocols.horizontal.secure_sum.messages import LARGEST_SCORE, NoisySum, Start, SumWanted
from hedgerow.protocols.horizontal.secure_sum.model import hand_out, receive_model
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import add_up
from hedgerow.protocols.horizontal.secure_sum.owner import PATIENCE, common_bins, write_start
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema

DONE = -1
MOST_TREES = 2**16
MOST_NODES = 2**24
"""Of a private model; the recipe makes a tree of at most 511 nodes per column, and at most 800 of 127."""


def private_owner(me: Party, data: PartyData, job: Job) -> Ensemble:
    """One owner under dp, from its table to the model that all owners get."""
    owner = PrivateOwner(me, data, job)
    to = job.coordinator
    me.wait_longer(PATIENCE)
    _, secrets = agree_on_secrets(me, job, round_id=1)
    masks, own_masks = make_masks(me, secrets), OwnMasks.for_round(me, job, secrets)
    ranges = owner.request_ranges
    while (wanted := me.recv(to, SumWanted, **ranges)).number != DONE:
        answer, event = owner.answer(to, wanted)
        if own_masks is None:
            hidden = masks.hide(answer.values, Position(NOISY, wanted.number))
        elif own_masks.share_seeds():
            hidden = own_masks.hide(answer.values)
        else:
            raise PeerLost(f"{to} has lost another owner, which ends a private training")
        me.send(to, NoisySum(hidden, answer.sensitivity, answer.sigma), event=event.to_dict())
        if own_masks is not None:
            own_masks.help_to_open()
    schema = _schema(job)
    start = me.recv(to, Start, **_start_ranges(schema))
    check_increasing(to, start, start.edges, start.ends, MAX_BINS - 2)
    columns = grid_of(schema).features
    mapper = common_bins([c.name for c in columns], [c.levels for c in columns], start.edges, start.ends)
    model = Ensemble(mapper, loss_of(schema), start.base_scores.copy(), classes=schema.classes)
    return receive_model(me, job, model, MOST_TREES, most_nodes=MOST_NODES)


def _start_ranges(schema: Schema) -> dict[str, Any]:
    """Symbols of `Start`, which says nothing of the number of rows here."""
    n_numeric = sum(feature.edges is not None for feature in grid_of(schema).features)
    low, high = schema.label_bounds or (-LARGEST_SCORE, LARGEST_SCORE)
    reach = LARGEST_SCORE * (high - low)  # base scores move by what was learned, which noise may push out of bounds
    return start_ranges(n_numeric, (low - reach, high + reach), n_outputs=1, rows=(0, 0))


class PrivateOwner:
    """One owner's rows: answers leave it with noise, and not without."""

    def __init__(self, me: Party, data: PartyData, job: Job) -> None:
        if data.labels is None:
            raise InvalidInput(f"{me.name}: an owner needs labels")
        schema = _schema(job)
        labels = data.labels
        if data.classes is not None:
            labels = np.array(data.classes, dtype=object)[data.labels.astype(np.intp)]
        if job.on_bad_rows == "raise" and data.misfits is not None and data.misfits.any():
            raise InvalidInput(f"{me.name}: a row has a value that its column in the schema cannot hold")
        self._rows = PrivateRows.read(
            data.table, labels, schema, n_threads=data.n_threads, where=me.name, on_bad_rows=job.on_bad_rows,
            unread=data.misfits,
        )  # fmt: skip
        self._me, self._job = me, job
        self._cells = cells_of(schema, grid_of(schema))
        # The owner keeps its own account: what the coordinator asks for beyond the job's budget is not answered.
        self._budget = Budget(*budget_of(job))

    @property
    def request_ranges(self) -> dict[str, Any]:
        """Symbols of `SumWanted`."""
        return request_ranges(len(self._cells), sum(self._cells))

    def answer(self, sender: str, wanted: SumWanted) -> tuple[NoisySum, Event]:
        """The sums that are asked for, with this owner's noise, and the event of that noise."""
        request = read_request(sender, wanted, len(self._cells))
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
    recipe = Recipe(
        schema, epsilon=epsilon, delta=delta, seed=job.boosting.seed, owners=len(job.owners), honest=honest,
        reserve=MISFITS_SHARE,
    )  # fmt: skip

    def release(request: SumRequest) -> Released[Ints]:
        wanted = write_request(request)
        gathering.tell(wanted)
        expected = {"sensitivity": request.sensitivity, "sigma": request.sigma_per_owner(honest)}
        parts, readable = gathering.noisy_sums(NoisySum, n_values=request.n_sums, **expected)
        if own is not None:
            parts[me.name], _ = own.answer(me.name, wanted)
        if recipe.n_requests is not None:
            me.report(request.number + 1, recipe.n_requests)
        return add_up(parts, honest, readable)

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
    gathering.tell(_no_more())
    edges = [feature.edges for feature in model.mapper.features if feature.edges is not None]
    gathering.tell(write_start(edges, model.base_scores, n_rows=0))
    return hand_out(gathering.tell, job, model)


def _no_more() -> SumWanted:
    return write_request(SumRequest(number=DONE, kind="squares", n_sums=0, sensitivity_squared=1, sigma=0.0))


def budget_of(job: Job) -> tuple[float, float]:
    """The (epsilon, delta) of a job that has one."""
    if job.dp is None:
        raise ProtocolError("a private training needs a budget")
    return job.dp


def _schema(job: Job) -> Schema:
    if job.schema is None:
        raise ProtocolError("a private sum needs a public schema")
    return job.schema
