"""All owners as the coordinator sees them: told the same things, answering with parts of a sum.

Where the coordinator is an owner itself, its own part is computed here and added in the clear: it never leaves.

Dropouts. An owner that is gone, or silent beyond the deadline, ends the sum at hand: what the others have sent for it
is read and thrown away, the lost owner's channel is closed for good, and the rest agree on new keys under the next
round id before they send anything else. Sums that were finished with the lost owner are never asked for again without
it: the difference of the two would be its own part (see `engine.growth.LevelLost` for what becomes of the tree).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from hedgerow.crypto.double_masking import SHARE_BYTES
from hedgerow.engine.dtypes import Bytes, Ints, Scores, Words
from hedgerow.engine.ensemble import TreeStack
from hedgerow.errors import DeadlineExceeded, PeerLost
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.masks import nth, opened, passed_on, relayed_to, sealed_bytes
from hedgerow.protocols.horizontal.secure_sum.owner import Begun, Owner
from hedgerow.runtime.party import Party
from hedgerow.transport.frames import Message

M = TypeVar("M", bound=Message)


class SumLost(Exception):
    """An owner was lost on the way to a sum; the run goes on without it, the sum does not."""


@dataclass(frozen=True)
class CoordinatorState:
    """What the coordinator keeps: what all go by, the trees, and who is lost."""

    columns: tuple[str, ...]
    agreement: messages.Agreement
    label_range: tuple[float, float]
    start: messages.Start
    edges_privacy: Mapping[str, float] | None
    trees: TreeStack = field(default_factory=lambda: TreeStack.of(()))
    lost: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 0
    setup_rounds: int = 0
    curve: tuple[float, ...] = ()
    curve_begins: int = 0
    n_earlier: int = 0  # iterations of an earlier model that this one goes on from


class Gathering:
    """The owners that are still there."""

    def __init__(self, me: Party, job: Job, own: Owner | None) -> None:
        self.me, self._job, self._own = me, job, own
        self.owners = list(job.masked_owners)
        self.round_id = 1
        self.rounds = 0  # of messages to the coordinator and back
        self.setup_rounds = 0
        self.lost: dict[str, int] = {}  # owner -> number of the tree that it was lost in
        self._newly_lost: list[str] = []
        self._gave_up_seeds = False
        self._n_opened = 0  # sums with masks of the owners' own, since the last keys
        self._tree = 0
        self.all_until = 0.0  # no owner may be missing before this tree

    @property
    def last_kept(self) -> CoordinatorState | Begun | None:
        """The coordinator's own last state."""
        trees = () if self.me.checkpoints is None else self.me.checkpoints.trees
        kind: type[CoordinatorState | Begun] = CoordinatorState if max(trees, default=0) else Begun
        return self.me.kept(None, kind)

    def go_on(self, state: CoordinatorState | None) -> None:
        """In a later attempt, trees that an earlier one may have begun are grown with the same owners.

        Sums of theirs may be open already: with an owner more or less, the difference would be its own part.
        """
        self.all_until = math.inf  # until more is known
        if state is not None:
            self.owners = [owner for owner in self.owners if owner not in state.lost]
            self.lost, self._tree = dict(state.lost), len(state.trees.ends)
            self.rounds, self.setup_rounds = state.rounds, state.setup_rounds

    # --- telling and asking ------------------------------------------------------------------------------------------

    def tell(self, message: Message, own: Callable[[Owner], object] | None = None) -> None:
        """The same message to all owners; `own` does with the coordinator's own rows what owners do on receiving it."""
        self.me.send_all(self.owners, message, even_if_lost=True)  # a loss is noticed when an answer is waited for
        if own is not None:
            self.with_own(own)

    def with_own(self, do: Callable[[Owner], object]) -> None:
        """Do something with the coordinator's own rows, if it has any."""
        if self._own is not None:
            do(self._own)

    def each(self, kind: type[M], own: Callable[[Owner], M] | None = None, **symbols: Any) -> dict[str, M]:
        """Every owner's own answer, whose ranges refer to `symbols`. PeerLost if one is gone."""
        wait = self.me.common_deadline()
        answers = {owner: self.me.recv(owner, kind, timeout=wait(), **symbols) for owner in self.owners}
        if self._own is not None and own is not None:
            answers[self.me.name] = own(self._own)
        self.rounds += 1
        return answers

    def sum(self, kind: type[M], own: Callable[[Owner], Words | None], **symbols: Any) -> Words:
        """The sum of all owners' answers modulo 2**64, in which the masks cancel. SumLost if an owner is gone."""
        self.rounds += 1
        total = None if self._own is None else own(self._own)
        for _, part in self._arriving(kind, **symbols):
            values: Words = part.values  # type: ignore[attr-defined]  # all parts have them
            if total is None:
                total = values.copy()
            else:
                total += values
        if self._newly_lost or total is None:
            raise SumLost
        return total

    # --- training steps ----------------------------------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether somebody was lost since the last keys: no sum may be asked for before there are new ones."""
        return bool(self._newly_lost)

    def level_sum(self, step: messages.NextStep, plan: messages.Plan, n_sums: int, n_cells: int) -> Words:
        """The sums of the nodes that a step asked for."""
        symbols = {"n_sums": n_sums, "n_cells": n_cells}
        is_first = plan.start >= 0
        return self._opened_sum(messages.MaskedHistogram, lambda o: o.take(step, plan), symbols, is_first=is_first)

    def metric_sum(self) -> Words:
        """What the rows that are watched add up to. Like a tree's first sum it may be asked for again after a loss."""
        return self._opened_sum(messages.MaskedMetric, Owner.watched_loss, {}, is_first=True)

    def _opened_sum(
        self, kind: type[M], own: Callable[[Owner], Words | None], symbols: Mapping[str, Any], *, is_first: bool
    ) -> Words:
        """A sum over all owners, with their own masks taken off where there are some."""
        is_double = len(self.owners) > 1 and self._job.has_own_masks(is_first=is_first)
        try:
            if is_double:
                self._relay_seeds()
            total = self.sum(kind, own, **symbols)
        except SumLost:
            if is_double and not self._gave_up_seeds:  # let nobody answer for a sum that is not complete
                self.tell(messages.WhoSent((), tuple(self._newly_lost)))
            self._gave_up_seeds = False
            raise
        return self._open(total) if is_double else total

    def noisy_sum(self, kind: type[M], own: Callable[[], Words] | None, **symbols: Any) -> Words:
        """The sum of all owners' noisy parts, and of the coordinator's `own`. PeerLost if one is gone."""
        is_double = len(self.owners) > 1 and self._job.has_own_masks(is_first=True)
        if is_double:
            self._relay_seeds()
        parts: list[Any] = list(self.each(kind, **symbols).values())
        mine = [] if own is None else [own()]
        total: Words = np.sum([*(part.values for part in parts), *mine], axis=0, dtype=np.uint64)
        return self._open(total) if is_double else total

    def _relay_seeds(self) -> None:
        """Pass on the sealed seeds of the next sums, where they are due."""
        if nth(self._n_opened).level:
            return
        n_peers = len(self.owners) - 1
        sealed = dict(self._arriving(messages.SealedSeeds, n_peers=n_peers, n_bytes=sealed_bytes(n_peers)))
        self.rounds += 1
        if self._newly_lost:
            self.tell(relayed_to("", {}))
            self._gave_up_seeds = True
            raise SumLost
        for owner in self.owners:
            self.me.send_all([owner], relayed_to(owner, sealed), even_if_lost=True)

    def _open(self, total: Words) -> Words:
        """Take the owners' own masks off; those who do not answer any more are lost, but not their sums."""
        owners = frozenset(self.owners)
        self.tell(messages.WhoSent(tuple(self.owners), ()))
        n_bytes = len(owners) * (1 + SHARE_BYTES)
        answers = dict(self._arriving(messages.Unmasking, n_owners=len(owners), n_bytes=n_bytes))
        self.rounds += 1
        self._n_opened += 1
        return opened(total, nth(self._n_opened - 1), owners, answers)

    def _arriving(self, kind: type[M], **symbols: Any) -> Iterator[tuple[str, M]]:
        """The answers of those who are there, as they come; the others are lost."""
        wait = self.me.common_deadline()
        for owner in list(self.owners):
            try:
                answer = self.me.recv(owner, kind, timeout=wait(), **symbols)
            except (PeerLost, DeadlineExceeded) as problem:
                self._lose(owner, problem)
            else:
                yield owner, answer

    def step(
        self, plan: messages.Plan, feature: Ints, goes_left: Bytes, leaf_values: Scores, build: Ints
    ) -> tuple[messages.NextStep, messages.Plan]:
        """Tell all owners how to go on, after new keys if somebody was lost."""
        self._tree = plan.tree
        if self._newly_lost:
            self.round_id += 1
            plan = plan._replace(new_round=self.round_id)
            self._newly_lost = []
        message = messages.NextStep(np.array(plan, np.int64), feature, goes_left, leaf_values, build)
        self.tell(message)
        if plan.new_round:
            self.exchange_keys()
        if self._own is not None and not len(build):
            self._own.take(message, plan)
        return message, plan

    # --- keys and dropouts -------------------------------------------------------------------------------------------

    def exchange_keys(self) -> None:
        """Pass every owner's signed key on to all others; begin again with those that are left if one is lost."""
        while True:
            offers = dict(self._arriving(messages.MaskKey, round_id=self.round_id))
            self.rounds += 1
            if not self._newly_lost:
                break
            self._newly_lost = []
            self.round_id += 1
            self.tell(passed_on(self.round_id, {}))  # nobody's: make keys for this round instead
        self._n_opened = 0
        self.tell(passed_on(self.round_id, offers))

    def _lose(self, owner: str, problem: Exception) -> None:
        """Go on without an owner, if the job allows it."""
        self.owners.remove(owner)
        self.me.drop(owner)
        self.lost[owner] = self._tree
        self._newly_lost.append(owner)
        if self._tree < self.all_until:
            raise PeerLost(
                f"{owner} was lost while a tree was grown that an earlier attempt may have begun with it"
            ) from problem
        n_left = len(self.owners) + (self._own is not None)
        if not self.setup_rounds:
            raise PeerLost(f"{owner} was lost before training began: {problem}") from problem
        if n_left < self._job.fewest_owners:
            raise PeerLost(
                f"{owner} was lost in tree {self._tree + 1} and only {n_left} of {len(self._job.owners)} owners are "
                f"left; the job asks for at least {self._job.fewest_owners} (min_owners)"
            ) from problem
        if self._job.dp is not None:  # no sum may be asked for again where noise was paid for
            raise PeerLost(f"{owner} was lost, which ends a private training") from problem
        if self.me.checkpoints is not None and (last := self.last_kept) is not None:
            # Before anything is asked without it: this tree can be grown again neither with this owner nor without.
            self.me.keep(self.me.checkpoints.trees[-1], replace(last, lost=self.lost))
        self.me.log.warning("%s was lost; going on with %d owners", owner, n_left)
