"""What this party lets happen: the rules of `[policy]` in party.toml, held against what a proposal asks.

    for refusal in refusals(policy, asked): ...        # none: nothing in the policy is against it

A refusal has a code, which is all that the peer is told, and a sentence, which stays at home: it may name columns, rows
and what is left of a budget.

Rules are only ever against something: a run that fits a policy fits every looser one. What is not known yet (rows that
nobody has counted, matches before matching) is not held against a proposal, so ask again when it is known. What has a
limit on epsilon anywhere is not let into a run whose cost nobody can name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.node.budgets import ALL, DATA, PEER, Budgets, limits_of
from hedgerow.runtime.budgets import epsilon_of
from hedgerow.runtime.protocol import Planned, names, services

if TYPE_CHECKING:
    from hedgerow.node.party_file import Policy

LEAKING = frozenset({"vertical.masked_gradients", "vertical.mp_fedxgb"})
"""Protocols as published, which do not hold what their papers say: a policy that wants one has to name it."""

_MOST_NAMED = 5
_ROUNDING = 1e-9
"""As in `privacy.budget_file`: what is calibrated to an epsilon may exceed it by a computer's rounding."""


class RefusalCode(IntEnum):
    """Why a proposal is refused. The peer is told this number and nothing else; numbers never change their meaning."""

    PROTOCOL = 1
    PEER = 2
    DATASET = 3
    COLUMN = 4
    TOO_FEW_ROWS = 5
    TOO_FEW_MATCHED = 6
    EPSILON = 7
    BUDGET = 8
    NOT_APPROVED = 9
    BY_HAND = 10
    SCORING = 11
    ROWS_PER_DAY = 12

    @property
    def words(self) -> str:
        """What a peer reads."""
        return _WORDS[self]


_WORDS = {
    RefusalCode.PROTOCOL: "its policy does not allow this protocol",
    RefusalCode.PEER: "its policy does not allow a run with one of these parties",
    RefusalCode.DATASET: "it does not offer the dataset that the proposal names",
    RefusalCode.COLUMN: "its policy does not allow one of these columns",
    RefusalCode.TOO_FEW_ROWS: "its dataset has fewer rows than its policy asks for",
    RefusalCode.TOO_FEW_MATCHED: "fewer rows match than its policy asks for",
    RefusalCode.EPSILON: "the run would cost its rows more than its policy allows for one run",
    RefusalCode.BUDGET: "its privacy budget does not allow this run",
    RefusalCode.NOT_APPROVED: "nobody has approved this proposal beforehand, and it was to be accepted unattended",
    RefusalCode.BY_HAND: "somebody there has read it and refused",
    RefusalCode.SCORING: "it has not agreed to this way of scoring with this model",
    RefusalCode.ROWS_PER_DAY: "its policy does not let this many rows be scored in one day",
}

DATA_DEPENDENT = frozenset({RefusalCode.TOO_FEW_ROWS, RefusalCode.TOO_FEW_MATCHED})
"""Codes that follow from the rows themselves: that one was told says that there are fewer than a number."""


@dataclass(frozen=True)
class Refusal:
    """One reason: the code is for the peer, the sentence for this party alone."""

    code: RefusalCode
    sentence: str


@dataclass(frozen=True)
class Asked:
    """What a proposal asks of this party.

    `planned` is what the run may cost the rows of this party at most, None if nothing that is released depends on them.
    """

    hash: str
    protocol: str
    peers: tuple[str, ...]
    dataset: str | None
    columns: tuple[str, ...]
    n_rows: int | None = None  # None: not counted yet
    n_matched: int | None = None  # None: not matched yet
    planned: Planned | None = None


def refusals(
    policy: Policy,
    asked: Asked,
    *,
    paired: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
    budgets: Budgets | None = None,
    unattended: bool = False,
) -> list[Refusal]:
    """All that the policy has against a proposal, in the order of the codes.

    `paired` and `datasets` are the peers and datasets that this party has, `budgets` what is left of its limits; where
    they are not given, they are not looked at. `unattended`: nobody reads the proposal (`--yes`).
    """
    found = [
        *_against_protocol(policy, asked.protocol),
        *_against_peers(policy, asked.peers, paired),
        *_against_data(policy, asked, datasets),
        *_against_cost(policy, asked, budgets),
    ]
    if unattended and asked.hash not in policy.approved:
        found.append(
            Refusal(
                RefusalCode.NOT_APPROVED,
                f"the proposal {asked.hash} is not in [policy] approved, so --yes does not work for it: read it and "
                "accept it by hand, or add its hash there",
            )
        )
    return found


def _against_protocol(policy: Policy, protocol: str) -> Iterator[Refusal]:
    if policy.protocols is not None:
        if protocol not in policy.protocols:
            allowed = ", ".join(policy.protocols) or "none"
            yield Refusal(RefusalCode.PROTOCOL, f"[policy] protocols does not list {protocol!r}; it lists {allowed}")
    elif protocol in LEAKING:
        yield Refusal(
            RefusalCode.PROTOCOL,
            f"{protocol} is run as published, and leaks: it takes part only in policies that list it in protocols",
        )
    elif protocol not in (*names(), *services()):
        yield Refusal(RefusalCode.PROTOCOL, f"there is no protocol {protocol!r} here")


def _against_peers(policy: Policy, peers: tuple[str, ...], paired: Collection[str] | None) -> Iterator[Refusal]:
    if policy.peers is not None and (strangers := [peer for peer in peers if peer not in policy.peers]):
        yield Refusal(RefusalCode.PEER, f"[policy] peers does not list {_listed(strangers)}")
    elif paired is not None and (strangers := [peer for peer in peers if peer not in paired]):
        yield Refusal(RefusalCode.PEER, f"not paired with {_listed(strangers)}; hedgerow pair does that")


def _against_data(policy: Policy, asked: Asked, datasets: Collection[str] | None) -> Iterator[Refusal]:
    name = asked.dataset
    if name is None:
        if asked.columns:
            yield Refusal(RefusalCode.DATASET, f"columns are asked for ({_listed(asked.columns)}), but of no dataset")
        return
    if datasets is not None and name not in datasets:
        known = ", ".join(sorted(datasets)) or "none"
        yield Refusal(RefusalCode.DATASET, f"party.toml has no [data.{name}]; there are {known}")
    if policy.columns and (others := [c for c in asked.columns if c not in policy.columns.get(name, ())]):
        yield Refusal(
            RefusalCode.COLUMN,
            f"[policy.columns] does not let {_listed(others)} of {name!r} take part; a column that is not listed never "
            "does",
        )
    if asked.n_rows is not None and asked.n_rows < policy.minimum_rows:
        yield Refusal(
            RefusalCode.TOO_FEW_ROWS,
            f"{name!r} has {asked.n_rows} rows, [policy] minimum_rows is {policy.minimum_rows}",
        )
    if asked.n_matched is not None and asked.n_matched < policy.minimum_matched:
        yield Refusal(
            RefusalCode.TOO_FEW_MATCHED,
            f"{asked.n_matched} rows match, [policy] minimum_matched is {policy.minimum_matched}",
        )


def _against_cost(policy: Policy, asked: Asked, budgets: Budgets | None) -> Iterator[Refusal]:
    """What does not fit the limit of one run, or one on sums over runs, alone or with what has been spent."""
    planned, limits = asked.planned, dict(limits_of(policy))
    if planned is None or not (limits or policy.epsilon_per_run is not None or budgets is not None):
        return
    try:
        epsilon = epsilon_of(planned)
    except InvalidParameter as unknown:
        yield Refusal(RefusalCode.EPSILON, f"what the run costs cannot be counted: {unknown}")
        return
    if math.isinf(epsilon):
        if limits or policy.epsilon_per_run is not None or (budgets is not None and budgets.limits):
            yield Refusal(
                RefusalCode.EPSILON,
                "[policy] limits epsilon, and the run releases something of these rows without a guarantee",
            )
        return
    if policy.epsilon_per_run is not None and not epsilon <= policy.epsilon_per_run * (1.0 + _ROUNDING):
        yield Refusal(
            RefusalCode.EPSILON,
            f"the run would cost epsilon {epsilon:.6g} at delta {planned.delta:g}, [policy] epsilon_per_run is "
            f"{policy.epsilon_per_run:g}",
        )
    applies = {ALL, *(PEER + peer for peer in asked.peers), *([] if asked.dataset is None else [DATA + asked.dataset])}
    too_much = [
        f"the run alone would cost {what} {asks:.6g}; the limit {name!r} of [policy.budget] is {allowed:g}"
        for name, limit in limits.items()
        for what, asks, allowed in (("epsilon", epsilon, limit.epsilon), ("delta", planned.delta, limit.delta))
        if name in applies and not asks <= allowed * (1.0 + _ROUNDING)
    ]
    yield from (Refusal(RefusalCode.BUDGET, sentence) for sentence in too_much)
    if budgets is not None and not too_much:
        try:
            budgets.of_run(peers=asked.peers, dataset=asked.dataset).check(planned.event, delta=planned.delta)
        except BudgetExceeded as problem:
            yield Refusal(RefusalCode.BUDGET, str(problem))


def _listed(several: Collection[str]) -> str:
    """The first few, for a sentence."""
    shown = ", ".join(repr(each[:60]) for each in list(several)[:_MOST_NAMED])
    return shown + (f" and {len(several) - _MOST_NAMED} more" if len(several) > _MOST_NAMED else "")
