"""Noise inside the ciphertext: how much, what it proves, and what the label holder makes of sums that have it.

With dp=(epsilon, delta) a feature holder adds discrete Gaussian noise of its own to the gradient and the hessian of
every sum that it sends. It still tells exactly which way rows go where it wins a node, so this is not differential
privacy. What holds, for one feature holder:

    Take two of its tables X and X' that differ in the values of one row, and a view of the label holder (all that it
    receives, and its own random numbers). A view is *alike* if every split that it asks about sends the row the same
    way in X and in X'. With A all views that are alike, and M(X) the view:  for every set S of views
    P[M(X) in S and A]  <=  e^epsilon P[M(X') in S and A] + delta.

Proof. A question is part of the view, and with the question the row's side is known for either table, so whether a view
is alike follows from the view. End the conversation before the first question whose answers differ: M~. On A nothing is
ended, so P[M(X) in S and A] = P[M~(X) in S and A], and the same for X'. It remains to see that M~ is (epsilon, delta)
private. All that depends on X in it are noisy sums: bins follow from a public schema, the order of columns is drawn
without regard to them, and sides are, until it ends, the same for both tables, so that the row is in the same node at
every level. Given all that was said before, gradients are the same numbers, by what the label holder encrypts. So one
level changes one node's sums: in each of C columns the row's (g, h) moves from one bin to another, which is

    2 C g^2  in the gradients and  2 C h^2  in the hessians, as squares of L2 distances,

with |g| and h at most what the quantiser gives to a row, which follows from the job and the number of rows. The sums of
all other nodes are the same for both tables, noise and sampler included. M~ is therefore an adaptive composition of at
most trees x levels releases of two Gaussian mechanisms each, and the accountant has their event. What the label holder
computes from it, siblings by subtraction included, is processing.

A level is released once: its noise is kept before it is sent, and a later attempt sends the same noise again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.crypto.additive import LIMIT, MOST_LIMIT, VALUES
from hedgerow.engine.dtypes import Floats, Ints, RowIds
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import PlannedBudget, mu_for, sigma_for_mu
from hedgerow.privacy.discrete_gaussian import RandomBytes, sample
from hedgerow.privacy.events import Adjacency, Composed, DiscreteGaussian, Event, Repeated
from hedgerow.protocols.vertical.common.states import OwnerState
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.noised_gradients.noise import plain_quantiser
from hedgerow.runtime.party import Party

ADJACENCY: Adjacency = "replace_one"
REACH = 40.0
"""Noise is below this many times its scale: the sampler's tables end at 17, and two or more of them add up."""
CODES = 256
"""Of a column at most."""
_MOST = LIMIT - 2**16
"""What absolute gradients of a column may add up to; rounding adds at most one for each code and level."""


@dataclass(frozen=True)
class SumNoise:
    """The noise of one feature holder's sums, from public numbers alone, so that both sides know it."""

    gradient_bound: int  # of one row, quantised
    hessian_bound: int
    gradient_sigma: float
    hessian_sigma: float
    n_columns: int
    releases: int

    @classmethod
    def plan(cls, job: HomomorphicJob, loss: Loss, n_rows: int, n_columns: int) -> SumNoise | None:
        """The least noise with which all levels of all trees cost the job's budget; None without noise."""
        if not job.has_noise:
            return None
        epsilon, delta = job.budget
        quantiser = plain_quantiser(job, loss, n_rows)
        gradient_bound = largest(loss.gradient_bound * quantiser.gradient_scale)
        hessian_bound = largest(loss.hessian_bound * quantiser.hessian_scale)
        releases = job.boosting.n_iterations * loss.n_outputs * job.levels
        share = mu_for(epsilon, delta) ** 2 / releases / VALUES
        moves = math.sqrt(2.0 * n_columns)
        sigmas = (sigma_for_mu(moves * gradient_bound, share), sigma_for_mu(moves * hessian_bound, share))
        if not LIMIT + REACH * max(sigmas) <= MOST_LIMIT:
            bits = math.floor(math.log2((MOST_LIMIT - LIMIT) / REACH / max(sigmas) * quantiser.gradient_scale)) - 1
            raise InvalidParameter(
                f"{job.NAME}: noise for dp={job.dp} on {n_columns} columns and {releases} levels of trees does not fit "
                f"sums that can be opened; take a larger epsilon, fewer trees or levels, or gradient_bits={bits}"
            )
        noise = cls(gradient_bound, hessian_bound, *sigmas, n_columns, releases)
        if not (cost := noise.spent(releases, delta)) <= epsilon:
            raise ProtocolError(f"the noise costs epsilon {cost}, more than {epsilon}")
        return noise

    @property
    def event(self) -> Event:
        """Of one level: a row is in one node, and there in one bin of every column."""
        moves, n_numbers = math.sqrt(2.0 * self.n_columns), CODES * self.n_columns
        return Composed(
            tuple(
                DiscreteGaussian(moves * bound, sigma, n_numbers, 1, ADJACENCY)
                for bound, sigma in (
                    (self.gradient_bound, self.gradient_sigma),
                    (self.hessian_bound, self.hessian_sigma),
                )
            )
        )

    def spent(self, levels: int, delta: float) -> float:
        """The epsilon of this many levels."""
        accountant = GaussianDP(ADJACENCY)
        accountant.compose(Repeated(self.event, levels))
        return accountant.epsilon(delta)

    def drawn(self, n: int, random: RandomBytes) -> Ints:
        """[n, (gradient, hessian)], in a time that depends on no data."""
        return np.column_stack([sample(sigma, n, random) for sigma in (self.gradient_sigma, self.hessian_sigma)])

    def check_rows(self, party: str, values: Ints) -> None:
        """What the label holder encrypts [rows, 2] must be within what the noise was made for."""
        largest_found = np.abs(values).max(axis=0, initial=0)
        if (largest_found > (self.gradient_bound, self.hessian_bound)).any():
            raise ProtocolError(f"{party}: a gradient is {largest_found}, beyond what the noise was made for")

    def facts(self, job: HomomorphicJob) -> dict[str, Any]:
        """For the model's meta."""
        epsilon, delta = job.budget
        return {
            "epsilon": epsilon,
            "delta": delta,
            "accountant": GaussianDP(ADJACENCY).description,
            "gradient_sigma": self.gradient_sigma,
            "hessian_sigma": self.hessian_sigma,
            "releases": self.releases,
        }


def largest(exact: float) -> int:
    """What a value of this size can be once it was computed in single precision and rounded."""
    return math.ceil(exact * (1.0 + 1e-6)) + 1


# --- the feature holder ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HolderState(OwnerState):
    """A feature holder's: the noise of levels of the next tree that may have been sent, and which nodes they had."""

    drawn: Ints | None = None  # [numbers of all these levels, 2], in the order of its own columns
    nodes: tuple[str, ...] = ()


def begin_keeping(me: Party) -> None:
    """Before anything is sent: InvalidParameter for an attempt that cannot know which noise earlier ones have sent."""
    kept = () if me.checkpoints is None else me.checkpoints.trees
    if me.attempt == 1 and kept:
        raise InvalidParameter(f"{me.name}: this run was begun before, so this is a later attempt, not the first")
    if me.attempt > 1 and 0 not in kept:
        raise InvalidParameter(
            f"{me.name}: a later attempt needs the checkpoints of the earlier ones, because their noise is sent again; "
            "begin a new run"
        )
    if me.attempt == 1:
        me.keep(0, HolderState())


def check_nothing_is_drawn_again(me: Party, n_trees: int) -> None:
    """InvalidInput where somebody has lost so much that noise would be drawn anew for trees that had theirs."""
    if me.most_kept > n_trees + 1:
        raise InvalidInput(
            f"{me.name}: a party has kept {n_trees} trees of {me.most_kept}; to grow the others again would release "
            "sums with new noise, so this run cannot go on"
        )


class LevelNoise:
    """The noise of one feature holder in one run, level by level: none is drawn twice, none that was not counted."""

    LEVELS = "levels"

    def __init__(self, me: Party, job: HomomorphicJob, noise: SumNoise, n_trees: int) -> None:
        self._me, self._noise = me, noise
        check_nothing_is_drawn_again(me, n_trees)
        last = me.kept(None, HolderState)
        self.released = 0 if last is None else last.released.get(self.LEVELS, 0)
        self._budget = PlannedBudget(*job.budget, GaussianDP(ADJACENCY))
        if self.released:
            self._budget.spend(Repeated(noise.event, self.released))

    @property
    def event(self) -> Event:
        """Of one level."""
        return self._noise.event

    def begin_tree(self, n_trees: int, state: OwnerState) -> None:
        """What an earlier attempt may have sent of this tree comes first; `state` is that of after `n_trees`."""
        kept = self._me.kept(n_trees, HolderState)
        self._n_trees, self._state, self._at, self._level = n_trees, state, 0, 0
        self._drawn = np.empty((0, VALUES), np.int64) if kept is None or kept.drawn is None else kept.drawn
        self._nodes = [] if kept is None else list(kept.nodes)

    def for_level(self, nodes: Sequence[RowIds], n_sums: int) -> Ints:
        """[nodes, sums, 2]: as it was sent before, or drawn now, counted, and kept before anybody sees it."""
        level, self._level = self._level, self._level + 1
        n = len(nodes) * n_sums
        if self._me.checkpoints is not None:
            name = _name_of(nodes)
            if level < len(self._nodes) and self._nodes[level] != name:
                raise InvalidInput(
                    f"{self._me.name}: an earlier attempt sent sums of other nodes of this tree, and their noise must "
                    "not serve twice; this run cannot go on"
                )
            self._nodes[level:] = self._nodes[level:] or [name]
        if self._at == len(self._drawn):
            self._budget.spend(self._noise.event)
            self._budget.check()
            self.released += 1
            self._drawn = np.concatenate([self._drawn, self._noise.drawn(n, self._me.rng)])
            self._me.keep(self._n_trees, self._kept(self._state, drawn=self._drawn, nodes=tuple(self._nodes)))
        self._at += n
        return self._drawn[self._at - n : self._at].reshape(len(nodes), n_sums, VALUES)

    def _kept(self, state: OwnerState, **of_tree: Any) -> HolderState:
        asked = {"questions": state.questions, "n_asked": state.n_asked}
        return HolderState(**asked, released={self.LEVELS: self.released}, **of_tree)

    def after_tree(self, state: OwnerState) -> HolderState:
        """What is kept after a tree: an earlier attempt may have drawn noise for the next one, and sent it."""
        before = self._me.kept(self._n_trees + 1, HolderState) or HolderState()
        return self._kept(state, drawn=before.drawn, nodes=before.nodes)


def _name_of(nodes: Sequence[RowIds]) -> str:
    """Of the rows of nodes: a digest."""
    digest = hashlib.sha256()
    for rows in nodes:
        digest.update(len(rows).to_bytes(8, "little") + np.sort(rows).astype("<u8").tobytes())
    return digest.hexdigest()


# --- the label holder ------------------------------------------------------------------------------------------------


def consistent(noisy: Ints, starts: Ints, totals: Ints, parents: Ints | None) -> Ints:
    """Sums [nodes, sums, 2] that could be those of real rows, near to noisy ones.

    `starts` are the first sums of columns, `totals` [nodes, 2] the nodes' own sums, which are exact, and `parents` what
    was made of the sums of their parents; None for a root. Of every column

        hessians    are at least 0, at most the parent's, and add up to the node's
        gradients   do not exceed 32 bits, whichever of them are added up; nor do the parent's less these

    so that packed sums can be added and subtracted without one half borrowing from the other.
    """
    n_codes = np.diff(np.append(starts, noisy.shape[1]))
    hessian = totals[:, 1:]
    most = np.repeat(hessian, noisy.shape[1], axis=1) if parents is None else parents[:, :, 1]
    hessians = _filled(_evened(noisy[:, :, 1], starts, n_codes, hessian), starts, n_codes, hessian, most)
    gradients = _evened(noisy[:, :, 0], starts, n_codes, totals[:, :1])
    before = np.zeros_like(gradients) if parents is None else parents[:, :, 0]
    of_parent = np.maximum(np.add.reduceat(most, starts, axis=1), 1)
    gradients = _bounded(gradients, starts, n_codes, before, hessian / of_parent)
    gradients[totals[:, 1] == 0] = 0  # nobody is there, or nobody counts
    return np.stack([gradients, hessians], axis=2)


def _evened(noisy: Ints, starts: Ints, n_codes: Ints, totals: Ints) -> Ints:
    """Moved so that every column adds up to the total, all of its bins alike, give or take one."""
    missing = totals - np.add.reduceat(noisy, starts, axis=1)
    each, more = np.divmod(missing, n_codes)
    within = np.arange(noisy.shape[1]) - np.repeat(starts, n_codes)
    evened: Ints = noisy + np.repeat(each, n_codes, axis=1) + (within < np.repeat(more, n_codes, axis=1))
    return evened


def _filled(values: Ints, starts: Ints, n_codes: Ints, totals: Ints, most: Ints) -> Ints:
    """Between 0 and `most`, every column adding up to the total, which is at most what its `most` add up to."""
    values = np.clip(values, 0, most)
    sums = np.add.reduceat(values, starts, axis=1)
    too_much = sums > totals  # products below stay below 2**62: all factors are below 2**31
    shrunk = values * totals // np.repeat(np.maximum(sums, 1), n_codes, axis=1)
    values = np.where(np.repeat(too_much, n_codes, axis=1), shrunk, values)
    for proportionally in (True, False):
        room = most - values
        missing = np.repeat(totals - np.add.reduceat(values, starts, axis=1), n_codes, axis=1)
        if proportionally:
            values = values + room * missing // np.repeat(
                np.maximum(np.add.reduceat(room, starts, axis=1), 1), n_codes, axis=1
            )
        else:  # what rounding left over: bin by bin
            before = np.cumsum(room, axis=1) - room
            before -= np.repeat(before[:, starts], n_codes, axis=1)
            values = values + np.clip(missing - before, 0, room)
    return values


def _bounded(noisy: Ints, starts: Ints, n_codes: Ints, parents: Ints, share: Floats) -> Ints:
    """Absolute values of each column, and of the parent's less these, add up to `_MOST`, or to what the parent's do.

    The parent's, times the node's share of it, would do. So what exceeds goes as far towards that as it must.
    """
    towards = np.repeat(share, n_codes, axis=1) * parents
    of_parent, of_noisy, of_rest = (
        np.add.reduceat(np.abs(each), starts, axis=1).astype(np.float64) for each in (parents, noisy, parents - noisy)
    )
    most = np.maximum(of_parent, _MOST)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_own = np.where(of_noisy > most, (most - share * of_parent) / (of_noisy - share * of_parent), 1.0)
        by_rest = np.where(
            of_rest > most, (most - (1.0 - share) * of_parent) / (of_rest - (1.0 - share) * of_parent), 1.0
        )
    kept = np.repeat(np.minimum(by_own, by_rest), n_codes, axis=1)
    moved = np.trunc(towards + kept * (noisy - towards)).astype(np.int64)
    return np.where(kept < 1.0, moved, noisy)
