"""A proposal in plain words: what this party would bring, what would leave its house, to whom, with which guarantee.

Nothing on the page is made up here. What leaves follows from the message classes of the protocol, what holds from its
statement for a run that comes to its end as planned, the epsilon from the accountant; columns and rows from a look at
the party's own source, whose rows are not read where it can be told without.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.ledger import Disclosure, Public
from hedgerow.node import sources
from hedgerow.node.budgets import to_look_at
from hedgerow.node.policy import Asked, Refusal, refusals
from hedgerow.node.proposal import Proposal
from hedgerow.privacy.events import NonPrivate, up, without_guarantee
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.runtime.budgets import epsilon_of
from hedgerow.runtime.party import Abort
from hedgerow.runtime.protocol import PartyData, Planned, Protocol, find
from hedgerow.transport.frames import Message

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.party_file import Dataset

_WAY = re.compile(r"(?P<sender>[A-Z][a-z ]+?) to (?P<receiver>[a-z ]+?)s?(?P<relayed>, to be passed on)?[:.] ")
_ANYBODY = ("anybody", "party", "node", "every party")
_ALL = ("all peer", "each other", "the other", "party", "node")


# --- what messages say of themselves ---------------------------------------------------------------------------------


class Way(NamedTuple):
    """Who sends a message to whom."""

    sender: str
    receiver: str
    relayed: bool  # the receiver passes it on

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver}" + (", who passes it on" if self.relayed else "")


def way_of(kind: type[Message]) -> Way:
    """Sender and receiver, which the first words of every message's docstring state: "Owner to coordinator: ..."."""
    found = _WAY.match(inspect.getdoc(kind) or "")
    if found is None:
        raise ProtocolError(f"the docstring of {kind.__name__} must begin with its way, as 'Owner to coordinator: ...'")
    return Way(found["sender"].lower(), found["receiver"], found["relayed"] is not None)


def disclosure_of(kind: type[Message]) -> Disclosure:
    """What the receiver of a message learns."""
    disclosure = getattr(kind, "discloses", None)
    if not isinstance(disclosure, Disclosure):
        raise ProtocolError(f"{kind.__name__} does not state what it discloses")
    return disclosure


class Leaving(NamedTuple):
    """One kind of message that a role may send."""

    message: str
    to: str
    what: str
    protection: str
    is_public: bool


def leaving(protocol: Protocol, role: str) -> list[Leaving]:
    """What a role may send, kind by kind; an abort may always come in place of the next message."""
    found = []
    kinds: tuple[type[Message], ...] = (*protocol.messages, Abort)
    for kind in kinds:
        way, disclosure = way_of(kind), disclosure_of(kind)
        if role in way.sender or way.sender in _ANYBODY:
            to = "everybody it talks to" if way.receiver in _ALL else way.receiver
            is_public = isinstance(disclosure, Public)
            found.append(Leaving(kind.NAME, to, disclosure.of, disclosure.protection, is_public))
    return found


def matching_cast(job: AligningJob) -> dict[str, str]:
    """Who does what while rows are matched, in the words of its messages."""
    return {name: "comparer" if name == job.comparer else "party" for name in job.cast}


# --- one party's view of a proposal ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brings:
    """What a party would bring to a run."""

    dataset: str
    columns: tuple[str, ...]
    id: str | None
    label: str | None
    weight: str | None
    n_rows: int | None
    data: PartyData  # without rows


def brings(proposal: Proposal, home: Home) -> Brings | None:
    """From a look at the party's own source; None for a party without data."""
    if home.name not in proposal.owners_of_data:
        return None
    dataset = chosen_dataset(proposal, home)
    look = sources.look(dataset, home.path)
    columns = columns_of(dataset, look.columns)
    needs_label = proposal.label_holder in (None, home.name)
    if needs_label and dataset.label is None:
        raise InvalidParameter(
            f"{home.party_toml}: [data.{dataset.name}] has no label, and {home.name} is to bring the labels"
        )
    if proposal.matching is not None and dataset.id is None:
        raise InvalidParameter(f"{home.party_toml}: [data.{dataset.name}] has no id, and rows are to be matched by ids")
    weight = dataset.weight if needs_label else None
    if weight is not None:
        chosen = proposal.chosen
        chosen.protocol.check_weights(chosen.options, f"{home.party_toml}: [data.{dataset.name}] has a weight")
    wanted = [name for name in (dataset.id, dataset.label, weight, *columns) if name is not None]
    sources.require_columns(list(look.columns), wanted, dataset.source, f"[data.{dataset.name}] names")
    kinds = {name: _has_levels(look.columns[name]) or name in dataset.categorical for name in columns}
    none = np.empty(0)
    empty = tuple(Column(name, none, () if has_levels else None) for name, has_levels in kinds.items())
    table = Table(empty, look.n_rows or 1, tuple(columns), has_names=True)
    label = dataset.label if needs_label else None
    return Brings(dataset.name, columns, dataset.id, label, weight, look.n_rows, PartyData(table))


def chosen_dataset(proposal: Proposal, home: Home) -> Dataset:
    """The dataset that the proposal names, or the only one there is; InvalidParameter if there is none such."""
    datasets, wanted = home.party_file.data, proposal.place(home.name).dataset
    if wanted is None and len(datasets) == 1:
        return next(iter(datasets.values()))
    if wanted is None or wanted not in datasets:
        asked = "the proposal leaves open which" if wanted is None else f"the proposal asks for {wanted!r}"
        there = ", ".join(datasets) or "none"
        raise InvalidParameter(f"{home.party_toml}: {asked}, and the datasets under [data] are {there}")
    return datasets[wanted]


def columns_of(dataset: Dataset, there: Iterable[str]) -> tuple[str, ...]:
    """Those that take part: the ones that the party lists, or all but its id, label and weight and what it drops."""
    if dataset.columns:
        return dataset.columns
    left_out = {dataset.id, dataset.label, dataset.weight, *dataset.drop}
    return tuple(name for name in there if name not in left_out)


def _has_levels(kind: str) -> bool:
    return "string" in kind or kind.startswith("dictionary")


@dataclass(frozen=True)
class View:
    """A proposal as one party sees it."""

    proposal: Proposal
    name: str
    role: str
    brings: Brings | None
    planned: Planned | None
    refusals: tuple[Refusal, ...]  # what this party's policy has against it

    @property
    def epsilon(self) -> float | None:
        """What the run may cost this party's rows at most; None if nothing depends on them, infinite without noise."""
        if self.planned is None:
            return None
        return math.inf if isinstance(self.planned.event, NonPrivate) else epsilon_of(self.planned)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        proposal, stated = self.proposal, statement_before(self.proposal)
        own = None
        if self.brings is not None:
            names = ("dataset", "id", "label", "weight", "n_rows")
            own = {name: getattr(self.brings, name) for name in names} | {"columns": list(self.brings.columns)}
        return {
            "hash": proposal.hash,
            "run_id": proposal.run_id,
            "proposed_by": proposal.proposed_by,
            "expires": proposal.expires,
            "protocol": proposal.protocol,
            "task": proposal.task,
            "parties": [place.to_dict() for place in proposal.parties],
            "params": dict(proposal.params),
            "matching": None if proposal.matching is None else dict(proposal.matching),
            "scoring": proposal.scoring,
            "you": {"name": self.name, "role": self.role, "brings": own, "epsilon": self.epsilon},
            "leaves": [entry._asdict() for entry in self._leaves()],
            "guarantee": list(stated.guarantee),
            "not_covered": list(stated.not_covered),
            "policy": [{"code": int(each.code), "sentence": each.sentence} for each in self.refusals],
        }

    def _leaves(self) -> list[Leaving]:
        job, before = self.proposal.matching_job, []
        if job is not None and self.name in job.cast:  # a dealer has no rows to match
            before = leaving(find(job.NAME), matching_cast(job)[self.name])
        return [*before, *leaving(self.proposal.chosen.protocol, self.role)]

    def lines(self) -> list[str]:
        """For people: who, what of yours, what leaves, what holds, what is against it."""
        proposal, stated = self.proposal, statement_before(self.proposal)
        seats = [f"  {place.name}: {place.role}{' (you)' * (place.name == self.name)}" for place in proposal.parties]
        told = [entry for entry in self._leaves() if not entry.is_public]
        leaves = [f"- to {entry.to}: {entry.what} ({entry.protection})" for entry in told]
        policy = [f"- {each.sentence}" for each in self.refusals] or ["- nothing"]
        settings = ", ".join(f"{k} = {_short(v)}" for k, v in proposal.params.items())
        return [
            f"{proposal.proposed_by} proposes to train one model for {proposal.task} together, by {proposal.protocol}.",
            *seats,
            f"With {settings}.",
            f"It can be accepted until {proposal.expires}. Its hash is {proposal.hash}.",
            "",
            "What you would bring:",
            *self._about_data(),
            "",
            "What would leave your house, beside what is public:",
            *dict.fromkeys(leaves),
            "",
            "What would hold after it:",
            *(f"- {sentence}" for sentence in stated.guarantee),
            "",
            "What would not be covered:",
            *(f"- {sentence}" for sentence in stated.not_covered),
            "",
            "What may be done with the model afterwards:",
            *self._afterwards(),
            "",
            "What your policy has against it:",
            *policy,
        ]

    def _afterwards(self) -> list[str]:
        """In what ways new rows may be scored together."""
        proposal = self.proposal
        if proposal.label_holder is None:
            return ["- what its owners like: everybody has the whole model"]
        if proposal.scoring == "no":
            return ["- nothing together: no new rows are scored with it"]
        holder = proposal.label_holder
        batch = (
            f"- {holder} may have tables scored (hedgerow predict), if you take part each time; it learns the scores, "
            "and unless leaf values are shared or answers randomised, which way rows go at each split"
        )
        told = [batch]
        if proposal.scoring == "standing":
            told.append(
                f"- {holder} may ask about single records while you serve (hedgerow serve): feature holders learn "
                "which ones and when, and answer in the clear"
            )
        return told

    def _about_data(self) -> list[str]:
        if self.brings is None:
            return ["- no data: you would take part without rows of your own"]
        rows = "an unknown number of" if self.brings.n_rows is None else f"{self.brings.n_rows:,}"
        lines = [f"- {rows} rows of the dataset {self.brings.dataset}, columns {', '.join(self.brings.columns)}"]
        if self.brings.label is not None:
            lines.append(f"- labels: {self.brings.label}")
        if self.brings.weight is not None:
            lines.append(f"- weights of rows: {self.brings.weight}")
        if self.proposal.matching is not None:
            lines.append(
                f"- of these rows those whose {self.brings.id} all parties have; the ids themselves are not shown"
            )
        if self.epsilon is None:
            lines.append("- nothing that is released depends on your rows")
        elif math.isinf(self.epsilon):
            lines.append(f"- there is no epsilon for your rows: {self._why_no_epsilon()}")
        else:
            delta = self.planned.delta if self.planned is not None else 0.0
            lines.append(f"- it may cost your rows epsilon = {up(self.epsilon)} at delta = {delta:g}")
        return lines

    def _why_no_epsilon(self) -> str:
        event = None if self.planned is None else self.planned.event
        if event is None or isinstance(event, NonPrivate):
            return "what is released about them has no noise"
        return "; ".join(without_guarantee(event))


def view(proposal: Proposal, home: Home, *, unattended: bool = False, is_begun: bool = False) -> View:
    """How this party sees a proposal, with all that its policy has against it.

    `is_begun`: the run was charged to its budgets when it began, and is not held against them a second time.
    """
    own = brings(proposal, home)
    spec, job = proposal.chosen.protocol, proposal.job
    planned = None if own is None else spec.planned(job, home.name, own.data)
    asked = Asked(
        hash=proposal.hash,
        protocol=spec.name,
        peers=proposal.peers_of(home.name),
        dataset=None if own is None else own.dataset,
        columns=() if own is None else own.columns,
        n_rows=None if own is None else own.n_rows,
        planned=planned,
    )
    policy = home.party_file.policy
    with to_look_at(home.budget, policy) as budgets:
        against = refusals(
            policy,
            asked,
            paired=home.peers.names(),
            datasets=tuple(home.party_file.data),
            budgets=None if is_begun else budgets,
            unattended=unattended,
        )
    return View(proposal, home.name, proposal.place(home.name).role, own, planned, tuple(against))


def statement_before(proposal: Proposal) -> Any:
    """What the statement of the run will say if it comes to its end as planned."""
    spec, job = proposal.chosen.protocol, proposal.job
    return spec.statement(job, spec.expected(job))


def _short(value: Any) -> str:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return "(see --json)" if len(str(value)) > 60 else str(value)
    return str(value)
