"""What the coordinator of horizontal.secure_sum can add up: from its transcript to `singleton_cells`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.attacks.secure_sum.singleton_cells import SeenLevel
from hedgerow.engine.dtypes import Words
from hedgerow.protocols.horizontal.secure_sum.double import nth, opened
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep, Plan, Unmasking
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Passed


def plan_of(step: NextStep) -> Plan:
    """The numbers of a step by their names."""
    return Plan(*step.plan.tolist())


@dataclass(frozen=True, eq=False)
class SummedLevel:
    """What the coordinator asked for in one step of training, and what came."""

    step: NextStep
    parts: Mapping[str, Words]  # owner -> the masked vector that came from it; those of lost owners are missing
    asked: tuple[str, ...]
    answers: Mapping[str, Unmasking]  # what owners told to take off the masks of their own, where they had any
    number: int  # of this sum among those with such masks, since the last keys

    @property
    def plan(self) -> Plan:
        """The numbers of the step."""
        return plan_of(self.step)

    @property
    def is_complete(self) -> bool:
        """Whether everybody who was asked has answered, so that masks cancel."""
        return set(self.parts) == set(self.asked)

    @property
    def masked_sums(self) -> Words:
        """The sum over all who sent something; masks of pairs cancel in it if that is everybody."""
        total: Words = np.sum(list(self.parts.values()), axis=0, dtype=np.uint64)
        return total

    @property
    def sums(self) -> Words:
        """The sum without the owners' own masks as well, where they helped to take them off."""
        total = self.masked_sums
        return opened(total, nth(self.number), frozenset(self.parts), self.answers) if self.answers else total


def summed_levels(transcript: Iterable[Passed]) -> Iterator[SummedLevel]:
    """The levels of all trees from what passed at a coordinator, in order."""
    order: list[tuple[NextStep, list[str], dict[str, Words], dict[str, Unmasking]]] = []
    last_frame = b""
    for direction, peer, frame in transcript:
        name = peek(frame)[0]
        if direction == SENT and name == NextStep.NAME:
            if frame != last_frame:
                order.append((decode(frame, NextStep), [], {}, {}))
                last_frame = frame
            order[-1][1].append(peer)
        elif direction == RECEIVED and name == MaskedHistogram.NAME and order:
            order[-1][2][peer] = decode(frame, MaskedHistogram).values
        elif direction == RECEIVED and name == Unmasking.NAME and order:
            order[-1][3][peer] = decode(frame, Unmasking)
    n_opened = 0
    for step, owners, parts, answers in order:
        n_opened = 0 if plan_of(step).new_round else n_opened
        if len(step.build):
            yield SummedLevel(step, parts, tuple(owners), answers, n_opened)
        n_opened += bool(answers)


def as_seen(levels: Iterable[SummedLevel], take: Callable[[SummedLevel], Words]) -> list[SeenLevel]:
    """The levels with the sums that `take` gives for each: of all who answered, or of one of them."""
    seen = []
    for summed in levels:
        plan, step = summed.plan, summed.step
        sums = take(summed)[: len(step.build)].view(np.int64)  # counts of rows, if any, come after the gradients
        goes_left = np.unpackbits(step.goes_left, axis=1) if plan.level else np.empty((0, 256), np.uint8)
        splits = np.asarray(step.feature, np.int64) if plan.level else np.empty(0, np.int64)
        seen.append(SeenLevel(plan.tree, plan.level, splits, goes_left, np.asarray(step.build, np.int64), sums))
    return seen
