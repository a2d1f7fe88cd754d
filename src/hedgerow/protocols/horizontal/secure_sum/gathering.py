"""All owners as the coordinator sees them: told the same things, answering with parts of a sum.

Where the coordinator is an owner itself, its own part is computed here and added in the clear: it never leaves.

Dropouts. An owner that is gone, or silent beyond the deadline, ends the sum at hand: what the others have sent for it
is read and thrown away, the lost owner's channel is closed for good, and the rest agree on new keys under the next
round id before they send anything else. Sums that were finished with the lost owner are never asked for again without
it: the difference of the two would be its own part (see `engine.growth.LevelLost` for what becomes of the tree).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from hedgerow.crypto.masking import Position
from hedgerow.engine.dtypes import Bytes, Ints, Scores, Words
from hedgerow.errors import DeadlineExceeded, FrameError, PeerLost
from hedgerow.party import Party
from hedgerow.protocols.horizontal.secure_sum.double import opened, relayed_to
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.keys import TREES, begin_again, pack_blobs, pass_on_keys
from hedgerow.protocols.horizontal.secure_sum.messages import (
    MaskedHistogram,
    MaskKey,
    NextStep,
    Plan,
    RelayedSeeds,
    SealedSeeds,
    Unmasking,
    WhoSent,
)
from hedgerow.protocols.horizontal.secure_sum.owner import Owner
from hedgerow.transport.frames import Message

M = TypeVar("M", bound=Message)


class SumLost(Exception):
    """An owner was lost on the way to a sum; the run goes on without it, the sum does not."""


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
        self._tree = 0

    # --- telling and asking ------------------------------------------------------------------------------------------

    def tell(self, message: Message, own: Callable[[Owner], object] | None = None) -> None:
        """The same message to all owners; `own` does with the coordinator's own rows what owners do on receiving it."""
        self.me.send_all(self.owners, message, even_if_lost=True)  # a loss is noticed when an answer is waited for
        if own is not None and self._own is not None:
            own(self._own)

    def each(self, kind: type[M], own: Callable[[Owner], M] | None = None) -> dict[str, M]:
        """Every owner's own answer. PeerLost if one is gone."""
        wait = self.me.common_deadline()
        answers = {owner: self.me.recv(owner, kind, timeout=wait()) for owner in self.owners}
        if self._own is not None and own is not None:
            answers[self.me.name] = own(self._own)
        self.rounds += 1
        return answers

    def sum(self, kind: type[M], shape: tuple[int, ...], own: Callable[[Owner], Words | None]) -> Words:
        """The sum of all owners' answers modulo 2**64, in which the masks cancel. SumLost if an owner is gone."""
        self.rounds += 1
        total = None if self._own is None else own(self._own)
        wait = self.me.common_deadline()
        for owner in list(self.owners):
            try:
                values: Words = self.me.recv(owner, kind, timeout=wait()).values  # type: ignore[attr-defined]  # all parts have them
            except (PeerLost, DeadlineExceeded) as problem:
                self._lose(owner, problem)
                continue
            if values.shape != shape:
                raise FrameError(f"{owner} sent {kind.NAME} of shape {values.shape}, but {shape} was asked for")
            if total is None:
                total = values.copy()
            else:
                total += values
        if self._newly_lost or total is None:
            raise SumLost
        return total

    # --- training steps ----------------------------------------------------------------------------------------------

    @property
    def double_masking(self) -> bool:
        """Whether owners add masks of their own."""
        return self._job.double_masking

    @property
    def is_short(self) -> bool:
        """Whether somebody was lost since the last keys: no sum may be asked for before there are new ones."""
        return bool(self._newly_lost)

    def level_sum(self, step: NextStep, plan: Plan, shape: tuple[int, ...]) -> Words:
        """The sums of the nodes that a step asked for."""
        try:
            if self._job.double_masking and plan.start >= 0:
                self._relay_seeds()
            total = self.sum(MaskedHistogram, shape, lambda owner: owner.take(step, plan))
        except SumLost:
            if self._job.double_masking:
                self._give_up_sum()
            raise
        return self._open(total, plan) if self._job.double_masking else total

    def _relay_seeds(self) -> None:
        """Pass on the sealed seeds of a tree."""
        sealed = self._from_each(SealedSeeds)
        self.rounds += 1
        if self._newly_lost:
            self.tell(RelayedSeeds((), *pack_blobs([])))
            self._gave_up_seeds = True
            raise SumLost
        for owner in self.owners:
            self.me.send_all([owner], relayed_to(owner, sealed), even_if_lost=True)

    def _give_up_sum(self) -> None:
        """Let nobody answer for a sum that is not complete."""
        if not self._gave_up_seeds:
            self.tell(WhoSent((), tuple(self._newly_lost)))
        self._gave_up_seeds = False

    def _open(self, total: Words, plan: Plan) -> Words:
        """Take the owners' own masks off; those who do not answer any more are lost, but not their sums."""
        owners = frozenset(self.owners)
        self.tell(WhoSent(tuple(self.owners), ()))
        answers = self._from_each(Unmasking)
        self.rounds += 1
        return opened(total, Position(TREES, plan.tree, plan.level, plan.part), owners, answers)

    def _from_each(self, kind: type[M]) -> dict[str, M]:
        """The answers of those who are there; the others are lost."""
        answers: dict[str, M] = {}
        wait = self.me.common_deadline()
        for owner in list(self.owners):
            try:
                answers[owner] = self.me.recv(owner, kind, timeout=wait())
            except (PeerLost, DeadlineExceeded) as problem:
                self._lose(owner, problem)
        return answers

    def step(
        self, plan: Plan, feature: Ints, goes_left: Bytes, leaf_values: Scores, build: Ints
    ) -> tuple[NextStep, Plan]:
        """Tell all owners how to go on, after new keys if somebody was lost."""
        self._tree = plan.tree
        if self._newly_lost:
            self.round_id += 1
            plan = plan._replace(new_round=self.round_id)
            self._newly_lost = []
        message = NextStep(np.array(plan, np.int64), feature, goes_left, leaf_values, build)
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
            offers = self._from_each(MaskKey)
            self.rounds += 1
            if not self._newly_lost:
                break
            self._newly_lost = []
            self.round_id += 1
            begin_again(self.me, self.owners, self.round_id)
        pass_on_keys(self.me, self.owners, self.round_id, offers)

    def _lose(self, owner: str, problem: Exception) -> None:
        """Go on without an owner, if the job allows it."""
        self.owners.remove(owner)
        self.me.drop(owner)
        self.lost[owner] = self._tree
        self._newly_lost.append(owner)
        n_left = len(self.owners) + (self._own is not None)
        if not self.setup_rounds:
            raise PeerLost(f"{owner} was lost before training began: {problem}") from problem
        if n_left < self._job.fewest_owners:
            raise PeerLost(
                f"{owner} was lost in tree {self._tree + 1} and only {n_left} of {len(self._job.owners)} owners are "
                f"left; the job asks for at least {self._job.fewest_owners} (min_owners)"
            ) from problem
        self.me.log.warning("%s was lost; going on with %d owners", owner, n_left)
