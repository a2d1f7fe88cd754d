"""What a party with data does in either policy: it takes what is dealt, opens sums with noise, and keeps account.

What is released is counted, and the count kept, before it is sent. So a later attempt of a run that broke off knows of
all that may have left, at whichever party: a tree that is grown again has new noise, and both of its releases are
spent. If that leaves no room for all trees, there are fewer; never is more released than was planned.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from hedgerow.crypto.shares import SUM32, SUM64, Array, Shape, Share
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import BudgetExceeded, InvalidParameter
from hedgerow.privacy.events import Event
from hedgerow.protocols.shares.playing import Player, checked_labels
from hedgerow.protocols.vertical.common.agreement import check_table, fitted
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import ReleasesBegun
from hedgerow.protocols.vertical.private_histograms.plan import accountant_of
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData


def fitted_table(me: Party, job: PrivateHistogramsJob, data: PartyData | None) -> tuple[PartyData, Floats | None]:
    """A party's table as the schema has it, and the labels of the label holder."""
    data = check_table(me.name, data, needs_values=False)
    described = job.own_columns(me.name, data.table)
    data, _ = fitted(me, job, data, described, classes=job.listed_classes, on_bad_rows=job.on_bad_rows)
    return data, checked_labels(me.name, job, data) if me.name == job.label_holder else None


def signed(words: Array) -> Ints:
    """Released words as numbers."""
    return np.asarray(words.view(np.int32).astype(np.int64))


State = TypeVar("State")


def newest_kept(me: Party, job: PrivateHistogramsJob, kind: type[State]) -> State | None:
    """What this party kept last in earlier attempts, wherever all go on from: what it drew and spent counts."""
    if me.attempt == 1:
        if me.checkpoints is not None and me.checkpoints.trees and job.is_noisy:
            raise InvalidParameter(f"{me.name}: this run was begun before, so this is a later attempt, not the first")
        return None
    if me.checkpoints is None and job.is_noisy:
        raise InvalidParameter(
            f"{me.name}: a later attempt needs the checkpoints of the earlier ones: what they released is spent"
        )
    return me.kept(None, kind)


class Holding(Player[PrivateHistogramsJob]):
    """What one party saw released, in all attempts, and the door that does not open for more."""

    def __init__(self, me: Party, job: PrivateHistogramsJob, n_threads: int) -> None:
        super().__init__(me, job, n_threads)
        self._accountant = accountant_of(job)
        self.begun: Ints = np.zeros(0, np.int64)  # how often each release was begun, in all attempts

    @abstractmethod
    def keep(self) -> None:
        """What is needed to go on from here; called after a release was counted, before it is sent."""

    def take_up_spending(self, releases: Sequence[Event], kept: Ints | None) -> None:
        """Count what earlier attempts have begun to release, as often as anybody has kept: all of it stays spent."""
        self.begun = np.zeros(len(releases), np.int64)
        if kept is not None and len(kept):
            self.begun += kept
        if self.me.attempt == 1:
            return
        me, others = self.me, [party for party in self.job.holders if party != self.me.name]
        me.send_all(others, ReleasesBegun(self.begun))
        told = {party: me.recv(party, ReleasesBegun, n_releases=len(releases)).counts for party in others}
        self.begun = np.max([self.begun, *told.values()], axis=0)
        # Nobody goes on to the next release before all others have counted the last one.
        behind = [party for party, counts in told.items() if counts.sum() < self.begun.sum() - 1]
        behind += [me.name] if kept is None and self.begun.any() else []
        if behind and self.job.is_noisy:
            raise BudgetExceeded(
                f"{behind[0]} took part in more releases of earlier attempts than it has kept; without the rest nobody "
                "can say what was spent"
            )
        for event, times in zip(releases, self.begun.tolist(), strict=True):
            if times:
                self._accountant.compose(event, times)

    def fits(self, events: Iterable[Event]) -> bool:
        """Whether all of that may still be released."""
        if not self.job.is_noisy:
            return True
        accountant = copy.deepcopy(self._accountant)
        accountant.compose_all(events)
        return accountant.delta(self.job.noise) <= self.job.delta

    def noisy(self, sums: Array, lane: str, release: int, event: Event, dealt: Shape) -> Share:
        """Sums with dealt noise, ready to be revealed; both modulo 2**32, sums below 2**30.

        If noise was dealt for more numbers than there are (along the last axis), what is left of it is not used.
        """
        step = self.supply.step(lane)
        noise = step.share(dealt, SUM64).words.astype(np.uint32)  # a share modulo 2**64 is one modulo 2**32
        self.spend(release, event)
        return Share(sums + noise[..., : sums.shape[-1]], SUM32)

    def spend(self, release: int, event: Event) -> None:
        """Before it is released: BudgetExceeded if that would be more than was allowed; and who breaks off knows."""
        self.count(event)
        self.begun[release] += 1
        self.keep()

    def count(self, event: Event) -> None:
        """BudgetExceeded if this would be more than was allowed."""
        self._accountant.compose(event)
        job = self.job
        if job.is_noisy and not self._accountant.delta(job.noise) <= job.delta:
            raise BudgetExceeded(
                f"what was released costs epsilon={self._accountant.epsilon(job.delta):.6g} at delta={job.delta:g}, "
                f"which is above epsilon={job.noise:g}: the run ends here, and no model is kept"
            )

    def no_room(self) -> BudgetExceeded:
        """What to raise if not even one tree fits any more."""
        return BudgetExceeded(
            f"earlier attempts of this run have released so much that no tree fits into epsilon={self.job.noise:g} any "
            "more: it needs a new run, and a budget of its own"
        )

    def meta(self, gradient_bits: int, setup: int, training: int, left_out: int) -> dict[str, object]:
        """What the model says about its training: rounds, and what the accountant says that saw every release."""
        job, privacy = self.job, None
        if job.is_noisy:
            # the search for epsilon is right to some digits
            epsilon = min(self._accountant.epsilon(job.delta), job.noise)
            privacy = {"epsilon": epsilon, "delta": job.delta, "accountant": self._accountant.description}
        return {
            "privacy": privacy,
            "stamp": job.stamp,
            **({"policy": SMOOTH} if job.policy == SMOOTH else {"reveal": job.reveal}),
            "gradient_bits": gradient_bits,
            "rounds": {"setup": setup, "training": training},
            **({"trees_left_out": left_out} if left_out else {}),
        }
