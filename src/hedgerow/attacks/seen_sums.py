"""What the coordinator of horizontal.secure_sum can add up: from its transcript to `attacks.singleton_cells`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.attacks.singleton_cells import SeenLevel
from hedgerow.engine.dtypes import Words
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep, Plan
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

    @property
    def plan(self) -> Plan:
        """The numbers of the step."""
        return plan_of(self.step)

    @property
    def is_complete(self) -> bool:
        """Whether everybody who was asked has answered, so that masks cancel."""
        return set(self.parts) == set(self.asked)

    @property
    def sums(self) -> Words:
        """The sum over all who answered; without masks only if that is everybody."""
        total: Words = np.sum(list(self.parts.values()), axis=0, dtype=np.uint64)
        return total


def summed_levels(transcript: Iterable[Passed]) -> Iterator[SummedLevel]:
    """The levels of all trees from what passed at a coordinator, in order."""
    order: list[tuple[NextStep, list[str], dict[str, Words]]] = []
    current: tuple[NextStep, list[str], dict[str, Words]] | None = None
    last_frame = b""
    for direction, peer, frame in transcript:
        name = peek(frame)[0]
        if direction == SENT and name == NextStep.NAME:
            if current is None or frame != last_frame:
                current = (decode(frame, NextStep), [], {})
                order.append(current)
                last_frame = frame
            current[1].append(peer)
        elif direction == RECEIVED and name == MaskedHistogram.NAME and current is not None:
            current[2][peer] = decode(frame, MaskedHistogram).values
    for step, owners, parts in order:
        if len(step.build):
            yield SummedLevel(step, parts, tuple(owners))


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
