"""The largest of many shared fractions P / Q, in groups: nothing is opened but, at the end, the handle of the winner.

    candidates   0 1 2 3 | 4 5 6 7 | 8 9 - -        each with [P], [Q] and a handle [h]; "-" fills up: P = 0, Q = 1
    winners         1    |    4    |    8           in each group: [W_i] = 1 for the best, else 0;  [P] = sum of W_i P_i
    winner                    4                     the handle of the winner, shared

All groups of all nodes go through a level together, in 5 or 6 rounds. P >= 0 and Q > 0, so candidate i is at least as
good as j if P_i Q_j - P_j Q_i >= 0. Candidates have a public order, that of their positions: of equal ones the first
wins. Who alone knows a candidate enters it as a share that is zero at all others; a label holder's own best split (or
stopping) comes so at position 0, and its handle with it.

Handles say what others may know of the winner, and are the business of who enters them. The owner of a candidate can
choose them: `secret_handles` numbers its candidates in an order that only it knows, anew for every node, so that an
opened handle names the owner and tells nothing else to anybody else.

A level, for one group of g candidates:

1. Everybody sends [P_i] - [a_i], [Q_i] - [b_i], [h_i] - [k_i]: 8 L + 4 bytes per candidate. Opened: e, f, o.
2. `cross_products`: [d_ij] for all i < j, locally. `signs`: [z_ij] = [d_ij >= 0]; 3 or 4 rounds.
3. The winner. W_i is the product of z_ij for all j after i and of 1 - z_ji for all j before i.
   a. "table", one round. Dealt: masks rho_ij of the bits, and for each i > 0 a table over all values v of the g - 1
      bits that decide on i: 1, a_i - a_0, b_i - b_0 and k_i - k_0 where v are the masks of these bits, and 0 elsewhere.
      Opened: z_ij ^ rho_ij, one bit per pair. It names the place in each table where W_i times these numbers stands.
   b. "lean", two rounds. Dealt: masks rho_ij; for each i > 0 the products of all subsets of its g - 1 masks. Opened:
      one bit per pair. [W_i] is then an exclusive or of dealt bits. Dealt: masks sigma_i as bits, and as numbers
      sigma_i, sigma_i (a_i - a_0), sigma_i (b_i - b_0), sigma_i (k_i - k_0). Opened: W_i ^ sigma_i, one bit per
      candidate. If it is 0, W_i is sigma_i and else 1 - sigma_i, and so for the products. With g = 2, W_1 = 1 - z_01:
      one round.
4. [P] = [P_0] + sum over i > 0 of (e_i - e_0) [W_i] + [W_i (a_i - a_0)], and so [Q] and [h]. The last level needs only
   [h], so only that is dealt for.

Which plan. Later levels have few groups, so they may be large, and the last, where only handles are dealt for, may have
a table. For 311 candidates, (5, 8, 8) with ("lean", "lean", "table") takes 17 rounds, (3, 4, 4, 8) with tables takes 20
and is dealt and opened a little less.

What takes memory. With g = 4 and L = 5, in bytes per candidate, at each party at a time: 44 for what was opened, 48 for
masks, 30 for d, and up to 400 for the circuit of the signs, which is forgotten when its rounds are over. The tables are
(g - 1) 2**(g-1) (12 L + 4) bytes per group (1.5 KB with g = 4, 24 KB with g = 7), lean (g - 1) (12 L + 4) (0.2 and 0.4
KB). So wide data want lean levels, and small groups first: 8 nodes with 19,051 candidates, lean, g = 4, took 0.55 GB
for the dealer and two parties in one process, lifting included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto import limbs
from hedgerow.crypto.beaver import cross_products, deal_cross_products, pairs_of, take_cross_products
from hedgerow.crypto.compare import MAX_FAN_IN, Circuit, deal_signs, opened_bits, parity, products_of, signs
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import DealerStep, HandStep
from hedgerow.crypto.shares import SUM32, XOR8, XOR32, Array, Kind, Masked, Share, Talk, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType

Select = Literal["table", "lean"]
MAX_GROUP = 8
DEFAULT_CIRCUIT = Circuit()


class Level(NamedTuple):
    """How one level of a tournament is played."""

    n_groups: int  # of all nodes together
    group: int
    padding: int  # candidates to be added for each node
    select: Select
    is_last: bool

    @property
    def n_pairs(self) -> int:
        """Comparisons in a group."""
        return self.group * (self.group - 1) // 2

    @property
    def asks_twice(self) -> bool:
        """Whether choosing takes two rounds."""
        return self.select == "lean" and self.group > 2


@dataclass(frozen=True, slots=True)
class Plan:
    """A tournament for some nodes with equally many candidates each; all of it is public."""

    n_nodes: int
    n_candidates: int
    n_limbs: int
    groups: tuple[int, ...] = (4, 4, 4, 5)  # the size of groups at each level; the last is repeated as long as needed
    select: Select | tuple[Select, ...] = "table"  # for all levels, or for each; the last is repeated
    circuit: Circuit = DEFAULT_CIRCUIT

    def __post_init__(self) -> None:
        if self.n_nodes < 1 or self.n_candidates < 1:
            raise InvalidParameter(
                f"a tournament needs nodes and candidates, got n_nodes={self.n_nodes}, n_candidates={self.n_candidates}"
            )
        if not self.groups or not all(2 <= group <= MAX_GROUP for group in self.groups):
            raise InvalidParameter(f"groups must be sizes between 2 and {MAX_GROUP}, got {self.groups}")
        if not self.selects or not all(select in {"table", "lean"} for select in self.selects):
            raise InvalidParameter(f'select must be "table" or "lean", or one of these per level, got {self.select!r}')
        limbs_kind(self.n_limbs)

    @property
    def kind(self) -> Kind:
        """The ring of P and Q."""
        return limbs_kind(self.n_limbs)

    @property
    def selects(self) -> tuple[Select, ...]:
        """How each level chooses."""
        return (self.select,) if isinstance(self.select, str) else self.select

    def levels(self) -> Iterator[Level]:
        """The levels of the tournament; none with one candidate."""
        left, place = self.n_candidates, 0
        while left > 1:
            group = min(self.groups[min(place, len(self.groups) - 1)], left)
            per_node = math.ceil(left / group)
            yield Level(
                self.n_nodes * per_node,
                group,
                per_node * group - left,
                self.selects[min(place, len(self.selects) - 1)],
                per_node == 1,
            )
            left, place = per_node, place + 1

    def openings(self) -> list[int]:
        """Bytes that each party sends to each other, round by round; then handles are opened, 4 bytes per node."""
        found = []
        for level in self.levels():
            n_pairs = level.n_groups * level.n_pairs
            found.append(level.n_groups * level.group * (2 * self.kind.number_bytes + SUM32.number_bytes))
            found += [*self.circuit.openings(n_pairs, self.n_limbs), math.ceil(n_pairs / 8)]
            found += [math.ceil(level.n_groups * (level.group - 1) / 8)] * level.asks_twice
        return found


def deal_level(step: DealerStep, level: Level, plan: Plan) -> None:
    """All that is dealt for a level, in the order in which the parties use it: cross products, signs, choosing."""
    kind, (n, g) = plan.kind, level[:2]
    a, b = deal_cross_products(step, n, g, kind)
    k = step.mask((n, g), SUM32)
    deal_signs(step, n * level.n_pairs, kind, plan.circuit)
    rho = step.mask(n, XOR32)
    deciding = _bits_deciding(rho, g)
    differences = None if level.is_last else _differences(np.stack([a, b]))
    k_differences = k[:, 1:] - k[:, :1]
    if level.select == "table":
        _deal_table(step, deciding, differences, k_differences, kind)
        return
    if level.asks_twice:
        subsets = _subsets_of_masks(deciding, g - 1)
        step.share(subsets, products_of(min(g - 1, MAX_FAN_IN)).kind)
        sigma = _bits_of(step.mask(n, XOR8), g - 1)
    else:
        sigma = rho[:, None] & np.uint32(1)
    _deal_chosen(step, sigma, differences, k_differences, kind)


def play_level(
    step: HandStep, fractions: Array, handles: Array, level: Level, plan: Plan, *, is_first: bool
) -> Talk[tuple[Array, Array]]:
    """A party's words of the winners, from those of all candidates.

    In: P and Q as one array [2, groups, g, L], and handles [groups, g]. Out: [2, groups, L] (of no meaning after the
    last level) and [groups].
    """
    kind, (n, g) = plan.kind, level[:2]
    triple = take_cross_products(step, n, g, kind)
    masks = np.stack([triple.a.words, triple.b.words])
    k = step.mask((n, g), SUM32).words
    seen, o = yield [Masked("fractions", limbs.subtract(fractions, masks), kind), Masked("handles", handles - k, SUM32)]
    d = cross_products(seen[0], seen[1], triple, is_first=is_first)
    z = (yield from signs(step, d, plan.circuit, is_first=is_first)).words
    if is_first:
        z ^= np.uint8(1)  # 1 where the first of the pair is at least as good
    choose = _choose_by_table if level.select == "table" else _choose_lean
    chosen = yield from choose(step, z, masks, k, level, is_first)
    handles = handles[:, 0] + ((o[:, 1:] - o[:, :1]) * chosen.w + chosen.times_k).sum(axis=1, dtype=np.uint32)
    if chosen.wide is None:
        return fractions[:, :, 0], handles
    terms = limbs.multiply(_differences(seen), chosen.wide[:1])
    limbs.add(terms, chosen.wide[1:], terms)
    total = fractions[:, :, 0].copy()
    for i in range(g - 1):
        limbs.add(total, terms[:, :, i], total)
    return total, handles


def tournament(
    steps: Callable[[int], HandStep], P: Share, Q: Share, handles: Share, plan: Plan, *, is_first: bool
) -> Talk[Share]:
    """[handle] of the winner of each node, from [P], [Q] (limbs) and [handle] (sum32) of its candidates.

    All three are [nodes, candidates], in the public order. `steps` gives the step for level 0, 1, ..., as the dealer's.
    """
    shape, kind = (plan.n_nodes, plan.n_candidates), plan.kind
    if P.kind != kind or Q.kind != kind or handles.kind != SUM32:
        raise InvalidType(f"P, Q and handles must be of kinds {kind}, {kind}, sum32, got {P}, {Q}, {handles}")
    if not P.shape == Q.shape == handles.shape == shape:
        raise InvalidType(f"P, Q and handles must be of shape {shape}, got {P}, {Q}, {handles}")
    fractions, words = np.stack([P.words, Q.words]), handles.words
    for place, level in enumerate(plan.levels()):
        groups = _grouped(fractions, words, level, plan, is_first=is_first)
        fractions, words = yield from play_level(steps(place), *groups, level, plan, is_first=is_first)
    return Share(words.reshape(plan.n_nodes), SUM32)


def secret_handles(random: SecureRandom, n_nodes: int, first: int, n: int) -> npt.NDArray[np.uint32]:
    """The numbers first .. first + n - 1 in a secret order of their own for each node: uint32 [nodes, n]."""
    order = np.argsort(random.words((n_nodes, n)), axis=1)
    return (order + first).astype(np.uint32)


def _grouped(fractions: Array, handles: Array, level: Level, plan: Plan, *, is_first: bool) -> tuple[Array, Array]:
    """The words of candidates by node, filled up with P = 0, Q = 1, handle 0, in groups."""
    nodes, n_limbs = plan.n_nodes, plan.n_limbs
    fractions, handles = fractions.reshape(2, nodes, -1, n_limbs), handles.reshape(nodes, -1)
    if level.padding:
        filler = np.zeros((2, nodes, level.padding, n_limbs), np.uint32)
        filler[1, ..., 0] = is_first
        fractions = np.concatenate([fractions, filler], axis=2)
        handles = np.concatenate([handles, filler[0, ..., 0]], axis=1)
    shape = (level.n_groups, level.group)
    return fractions.reshape(2, *shape, n_limbs), handles.reshape(shape)


# Choosing: what is dealt, and what is made of it


class _Chosen(NamedTuple):
    """A party's words for all candidates but the first of each group."""

    w: Array  # [groups, g - 1]: W_i, as words
    times_k: Array  # [groups, g - 1]: W_i (k_i - k_0)
    wide: Array | None  # [3, groups, g - 1, L]: W_i, W_i (a_i - a_0), W_i (b_i - b_0); not at the last level


def _differences(numbers: Array) -> Array:
    """x_i - x_0 for all i > 0: [..., g - 1, L]."""
    return limbs.subtract(numbers[..., 1:, :], numbers[..., :1, :])


def _deal_products(step: DealerStep, w: Array, times_k: Array, wide: Array | None, kind: Kind) -> None:
    """Words of a `_Chosen`, or tables of them; W alone where there is nothing wide."""
    if wide is None:
        step.share(np.stack([w, times_k]), SUM32)
    else:
        step.share(wide, kind)
        step.share(times_k, SUM32)


def _taken_products(step: HandStep, shape: tuple[int, ...], kind: Kind, *, is_last: bool) -> _Chosen:
    """What `_deal_products` dealt."""
    if is_last:
        w, times_k = step.share((2, *shape), SUM32).words
        return _Chosen(w, times_k, None)
    wide = step.share((3, *shape), kind).words
    return _Chosen(wide[0, ..., 0], step.share(shape, SUM32).words, wide)


def _deal_chosen(step: DealerStep, sigma: Array, differences: Array | None, k_differences: Array, kind: Kind) -> None:
    """Shares of sigma, as numbers, and of its products."""
    words, wide = sigma.astype(np.uint32), None
    if differences is not None:
        chosen = np.where(words[..., None] == 1, differences, np.uint32(0))
        wide = np.stack([limbs.from_words(words, kind.limbs), *chosen])
    _deal_products(step, words, words * k_differences, wide, kind)


def _choose_lean(step: HandStep, z: Array, masks: Array, k: Array, level: Level, is_first: bool) -> Talk[_Chosen]:
    """Step 3b."""
    n, g = level[:2]
    kind = limbs_kind(masks.shape[-1])
    rho = step.mask(n, XOR32).words
    if level.asks_twice:
        tables = products_of(min(g - 1, MAX_FAN_IN))
        subsets = step.share((n, g - 1, 1 << max(0, g - 1 - MAX_FAN_IN)), tables.kind).words
        sigma = step.mask(n, XOR8).words
        seen = yield from opened_bits("pairs", _joined(z) ^ rho, level.n_pairs)
        wins = np.empty(n, np.uint8)
        _product_of_deciding(subsets, _places(seen, g), tables.choices[0], wins)
        shown = yield from opened_bits("winners", wins ^ sigma, g - 1)
    else:
        hidden = z[:, 0] ^ rho.astype(np.uint8)
        shown = (yield from opened_bits("pairs", hidden, 1)) ^ np.uint8(1)  # W_1 = 1 - z_01
    words = _bits_of(shown, g - 1).astype(np.uint32)  # W is 1 - sigma where it is 1
    w, times_k, wide = _taken_products(step, (n, g - 1), kind, is_last=level.is_last)
    times_k = _flipped(times_k, words) + words * (k[:, 1:] - k[:, :1])
    if wide is None:
        w = _flipped(w, words)
        return _Chosen(w + words if is_first else w, times_k, None)
    is_other = words[..., None] == 1
    wide = np.where(is_other, limbs.subtract(limbs.constant(0, kind.limbs), wide), wide)
    limbs.add(wide[1:], np.where(is_other, _differences(masks), np.uint32(0)), wide[1:])
    if is_first:
        limbs.add(wide[0], limbs.from_words(words, kind.limbs), wide[0])
    return _Chosen(wide[0, ..., 0], times_k, wide)


def _flipped(words: Array, where: Array) -> Array:
    """-words where `where` is 1."""
    return np.asarray((words ^ (np.uint32(0) - where)) + where)


def _deal_table(step: DealerStep, deciding: Array, differences: Array | None, k_differences: Array, kind: Kind) -> None:
    """For each candidate but the first a table with its numbers at the place that its masks name."""
    at, wide = _at(deciding), None
    w, times_k = np.zeros((2, *deciding.shape, 1 << deciding.shape[1]), np.uint32)
    w[at], times_k[at] = 1, k_differences
    if differences is not None:
        wide = np.zeros((3, *w.shape, kind.limbs), np.uint32)
        wide[0, ..., 0] = w
        wide[1][at], wide[2][at] = differences
    _deal_products(step, w, times_k, wide, kind)


def _at(places: Array) -> tuple[Any, ...]:
    """The index of one place [groups, g - 1] in each table [groups, g - 1, 2**(g-1), ...]."""
    return (*np.indices(places.shape, sparse=True), places)


def _choose_by_table(step: HandStep, z: Array, masks: Array, _k: Array, level: Level, _is_first: bool) -> Talk[_Chosen]:
    """Step 3a."""
    n, g = level[:2]
    seen = yield from opened_bits("pairs", _joined(z) ^ step.mask(n, XOR32).words, level.n_pairs)
    at = _at(_places(seen, g) ^ ((1 << (g - 1)) - 1))  # the masks with which all of the bits are 1
    shape, kind = (n, g - 1, 1 << (g - 1)), limbs_kind(masks.shape[-1])
    w, times_k, wide = _taken_products(step, shape, kind, is_last=level.is_last)
    return _Chosen(w[at], times_k[at], None if wide is None else wide[(slice(None), *at)])


# Bits of pairs


@cache
def _deciding(g: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each candidate i > 0 the g - 1 pairs that it is in, and a word with a 1 where it is the second of them."""
    first, second = pairs_of(g)
    pairs = np.array([np.flatnonzero((first == i) | (second == i)) for i in range(1, g)])
    is_second = second[pairs] == np.arange(1, g)[:, None]
    return pairs, (is_second << np.arange(g - 1)).sum(axis=1)


def _joined(bits: Array) -> Array:
    """Bits [n, pairs] of each group as one word: uint32 [n]."""
    places = np.arange(bits.shape[1], dtype=np.uint32)
    return np.asarray((bits.astype(np.uint32) << places).sum(axis=1, dtype=np.uint32))


def _bits_of(words: Array, n_bits: int) -> Array:
    """The low bits of words [n]: [n, n_bits]."""
    places = np.arange(n_bits, dtype=words.dtype)
    return np.asarray((words[:, None] >> places) & words.dtype.type(1))


def _bits_deciding(words: Array, g: int) -> Array:
    """For each candidate i > 0 the bits of its pairs as one number: int64 [n, g - 1]."""
    out = np.empty((len(words), g - 1), np.int64)
    _gather(words, _deciding(g)[0], out)
    return out


def _places(seen: Array, g: int) -> Array:
    """For each candidate i > 0 what was opened of the bits that decide on it: int64 [n, g - 1]."""
    return np.asarray(_bits_deciding(seen, g) ^ _deciding(g)[1])


def _subsets_of_masks(deciding: Array, q: int) -> Array:
    """Products of all subsets of the masks of each candidate: [n, g - 1, words]; with 7 masks two words of 64."""
    low = products_of(min(q, MAX_FAN_IN)).of_masks[deciding & ((1 << MAX_FAN_IN) - 1)]
    if q <= MAX_FAN_IN:
        return np.asarray(low[..., None])
    return np.stack([low, np.where(deciding >> MAX_FAN_IN, low, low.dtype.type(0))], axis=-1)


@kernel
def _gather(words: Array, pairs: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
    """Bits `pairs` [g - 1, g - 1] of words [n], as numbers. Out: `out` [n, g - 1]."""
    for n in range(out.shape[0]):
        word = np.int64(words[n])
        for i in range(out.shape[1]):
            number = 0
            for place in range(pairs.shape[1]):
                number |= (word >> pairs[i, place] & 1) << place
            out[n, i] = number


@kernel
def _product_of_deciding(subsets: Array, seen: npt.NDArray[np.int64], choose: Array, out: Array) -> None:
    """The product of the bits that decide on each candidate. In: `subsets` [n, g - 1, words], `seen` [n, g - 1].

    Out: `out` [n], bit i - 1 for candidate i. If there are seven bits, the product of the first six is taken once with
    and once without the mask of the seventh, which was dealt for both.
    """
    n_words = subsets.shape[2]
    for n in range(seen.shape[0]):
        wins = 0
        for i in range(seen.shape[1]):
            if n_words == 1:
                bit = int(parity(subsets[n, i, 0] & choose[seen[n, i]]))
            else:
                keep = choose[seen[n, i] & 63]
                bit = int(parity(subsets[n, i, 1] & keep))
                if seen[n, i] >> 6:
                    bit ^= int(parity(subsets[n, i, 0] & keep))
            wins |= bit << i
        out[n] = wins
