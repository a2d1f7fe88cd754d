"""Correlated randomness from a dealer who knows no data: seeds once, then one correction per dealt value.

    dealer                              anna (seed a)        ben (seed b)         carla (seed c)
    mask:   r = w_a + w_b + w_c         [r] = w_a            [r] = w_b            [r] = w_c            nothing is sent
    share:  c = x - w_a - w_b           [x] = w_a            [x] = w_b            [x] = c              c goes to carla

1. Each party shares a seed of 32 bytes with the dealer (how it gets there is the protocol's business). Both derive the
   same key, and read the same words w of AES-256-CTR under it, beginning at a counter that names the step (`Label`).
2. A mask is the sum of the words that its parties read next: uniform, known to the dealer, and free on the wire.
3. A value that the dealer chooses (a product of masks, bits of a mask, a table) is shared by words too, but for one
   party, who gets the correction c instead of reading words. The receiver goes round with the labels and the shares of
   a step, so that no party gets all corrections. c is uniform to all who lack one of the other parties' words.
4. Both may be `among` some of the parties only: the others' words are not read and they hold nothing.

All parties of a draw and the dealer must make the same draws in the same order within a step. Nothing that is dealt
depends on data or results, so the dealer can work ahead of the parties by as many steps as it likes; what is not used
is thrown away.

What it rests on: the dealer does not work together with a party and sees nothing that parties open to each other (it
knows every mask). A word must hide one value only: a label is spent before its words are made, only later labels
remain, and neither a copy nor a forked process can go back. An object forgets with its process: after a restart,
exchange new seeds. One seed with one `lane` is for one object; work that runs ahead of the rest, with labels of its own
order, needs another lane.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.csprng import CHUNK_BYTES, KEY_BYTES, Keystream, Spent, Unshared, nonce_at
from hedgerow.crypto.masking import derived
from hedgerow.crypto.shares import SUM64, Array, Kind, Shape, Share, as_bytes
from hedgerow.errors import FixedPointOverflow, InvalidParameter, InvalidType, ProtocolError

Bytes = npt.NDArray[np.uint8]

_LABEL = struct.Struct(">HIBHH")  # leaves 40 bits for the number of the block within the step
_RANGES = "a label is (attempt below 2**16, tree below 2**32, level below 2**8, step and part below 2**16)"
MAX_STEP_BYTES = 2**44
"""Bytes that one party may read in one step; the counter has room for just these, so two steps never meet."""

_ALIGNED = 8  # corrections begin at multiples of this many bytes in their buffer


class Label(NamedTuple):
    """Which step the words are for. With one seed and lane, labels must increase, compared from left to right.

    One label may name all the work of a level: many values can be dealt within a step, of any kind.
    """

    attempt: int = 0  # below 2**16
    tree: int = 0  # below 2**32
    level: int = 0  # below 2**8
    step: int = 0  # below 2**16
    part: int = 0  # below 2**16


class _Lane(Unshared):
    """The streams of one dealer or one party: labels are spent here, and one step at a time is open."""

    def __init__(self, seeds: Sequence[bytes], n_parties: int, name: str) -> None:
        super().__init__()
        if n_parties < 2:
            raise ProtocolError("dealing needs at least two parties: one alone would know every value")
        for seed in seeds:
            if not isinstance(seed, bytes):
                raise InvalidType(f"a seed must be bytes, got {type(seed).__name__}")
            if len(seed) != KEY_BYTES:
                raise InvalidParameter(f"a seed must have {KEY_BYTES} bytes, got {len(seed)}")
        self.n_parties = n_parties
        self.lane = name
        self.streams = [Keystream(derived(seed, "dealt words v1", name)) for seed in seeds]
        self._taken = [0] * len(seeds)  # bytes of the step that is open
        self._spent = Spent("this seed was", "a new seed")
        self._opened = 0

    def spend(self, label: Label) -> tuple[Label, int]:
        """Take a label out of use for ever, or raise; the streams then stand at its beginning. The step's number."""
        label = Label(*_LABEL.unpack_from(nonce_at(_LABEL, label, _RANGES)))
        self._spent.spend(label)
        self._opened += 1
        self._taken = [0] * len(self.streams)
        for stream in self.streams:
            stream.start(_heading(label))
        return label, self._opened

    def read(
        self, step: int, readers: Sequence[int], shape: tuple[int, ...], kind: Kind, value: Array | None = None
    ) -> Array:
        """The sum of the next words of some streams, or value - that sum; made piece by piece in the cache.

        Raises if the step is over, or if its streams would run into the next label's.
        """
        total = np.empty(shape, kind.dtype)
        if step != self._opened:
            raise ProtocolError("a later step was begun: what was not dealt in this one cannot be dealt any more")
        for reader in readers:
            self._taken[reader] += total.nbytes
            if self._taken[reader] > MAX_STEP_BYTES:
                raise ProtocolError("one label has no more than 2**44 bytes for a party: use another label")
        numbers = (-1, kind.limbs) if kind.limbs else (-1,)
        flat = total.reshape(numbers)
        values = None if value is None else value.reshape(numbers)
        rows = CHUNK_BYTES // kind.number_bytes
        scratch = np.empty_like(flat[:rows]) if len(readers) > 1 else flat[:0]
        first, *others = (self.streams[reader] for reader in readers)
        for start in range(0, len(flat), rows):
            piece = flat[start : start + rows]
            first.fill(piece.reshape(-1).view(np.uint8).data)
            for stream in others:
                words = scratch[: len(piece)]
                stream.fill(words.reshape(-1).view(np.uint8).data)
                kind.add(piece, words, out=piece)
            if values is not None:
                kind.sub(values[start : start + rows], piece, out=piece)
        return total


class _Step:
    """One label of a lane, and what is drawn under it."""

    def __init__(self, lane: _Lane, label: Label) -> None:
        self.label, self._number = lane.spend(label)
        self._lane = lane
        self._given: dict[tuple[int, ...], int] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"

    def _members(self, among: Sequence[int] | None, least: int) -> Sequence[int]:
        if among is None:
            return range(self._lane.n_parties)
        parties, n, got = sorted(among), self._lane.n_parties, tuple(among)
        if len(set(parties)) != len(parties) or not all(0 <= party < n for party in parties):
            raise InvalidParameter(f"among must be different parties between 0 and {n - 1}, got {got}")
        if len(parties) < least:
            raise ProtocolError(f"among must be at least {least} parties, or the value is not a secret, got {got}")
        return parties

    def _next_receiver(self, parties: Sequence[int]) -> int:
        """Who gets the next correction: in turn among the parties of a share, beginning with another at each label.

        Counted for each set of parties by itself, because the others do not see the shares among these.
        """
        members = tuple(parties)
        given = self._given.get(members, 0)
        self._given[members] = given + 1
        return members[(sum(self.label) + sum(members) + given) % len(members)]


class Dealer(_Lane):
    """The dealer's side: knows every mask, and makes the corrections.

    1. `Dealer(seeds)`: one seed per party, in the order of parties.
    2. `step(label)`: spends the label and begins a step; the step before it is over.
    3. step.mask(...), step.share(...), in the order in which the parties draw; then step.corrections().
    """

    def __init__(self, seeds: Sequence[bytes], *, lane: str = "main") -> None:
        super().__init__(seeds, len(seeds), lane)
        if len(set(seeds)) < len(seeds):
            raise ProtocolError("two parties have the same seed; each needs its own")

    def __repr__(self) -> str:
        return f"Dealer({self.n_parties} parties, lane={self.lane!r})"

    def step(self, label: Label) -> DealerStep:
        """Begin the step of this label."""
        with self.turn():
            return DealerStep(self, label)


class DealerStep(_Step):
    """One step at the dealer; made by `Dealer.step`."""

    def __init__(self, dealer: Dealer, label: Label) -> None:
        super().__init__(dealer, label)
        self._corrections: dict[int, list[Array]] = {}

    def mask(self, shape: Shape, kind: Kind, among: Sequence[int] | None = None) -> Array:
        """The sum of the next words of the parties: uniform numbers, of which party m holds [r]_m = its words."""
        parties = self._members(among, least=1)
        with self._lane.turn():
            return self._lane.read(self._number, parties, kind.words_shape(shape), kind)

    def share(self, value: Array, kind: Kind, among: Sequence[int] | None = None) -> int:
        """Share a value: all parties but one hold their next words, that one the correction, value - those words.

        The correction is kept for `corrections`; the number of who will get it is given back.
        """
        parties = self._members(among, least=2)
        kind.check(value)
        with self._lane.turn():
            receiver = self._next_receiver(parties)
            readers = [party for party in parties if party != receiver]
            correction = self._lane.read(self._number, readers, value.shape, kind, value)
            self._corrections.setdefault(receiver, []).append(correction)
        return receiver

    def corrections(self) -> dict[int, Bytes]:
        """Party -> all its corrections of this step in one buffer, for `Hand.step`; parties without any are left out.

        The label in 16 bytes, then the corrections in order, little-endian, each padded to a multiple of 8 bytes.
        """
        heading = np.frombuffer(_heading(self.label), np.uint8)
        return {party: _joined(heading, arrays) for party, arrays in sorted(self._corrections.items())}


class Hand(_Lane):
    """A party's side: the shares that it was dealt.

    1. `Hand(seed, me, n_parties)`: the seed that it shares with the dealer, and its number.
    2. `step(label, corrections)`: spends the label and begins a step; the step before it is over. The corrections are
       what the dealer's step has for this party, None if it has none.
    3. step.mask(...), step.share(...), in the dealer's order; then step.finish(), which finds what was left over.
    """

    def __init__(self, seed: bytes, me: int, n_parties: int, *, lane: str = "main") -> None:
        super().__init__([seed], n_parties, lane)
        if not 0 <= me < n_parties:
            raise InvalidParameter(f"me must be between 0 and {n_parties - 1}, got {me}")
        self.me = me

    def __repr__(self) -> str:
        return f"Hand(party {self.me} of {self.n_parties}, lane={self.lane!r})"

    def step(self, label: Label, corrections: Bytes | None = None) -> HandStep:
        """Begin the step of this label."""
        with self.turn():
            return HandStep(self, label, corrections)


class HandStep(_Step):
    """One step at a party; made by `Hand.step`."""

    def __init__(self, hand: Hand, label: Label, corrections: Bytes | None) -> None:
        super().__init__(hand, label)
        self._me = hand.me
        self._corrections = np.zeros(0, np.uint8) if corrections is None else corrections
        self._taken = 0  # bytes of them
        if corrections is not None:
            if not isinstance(corrections, np.ndarray) or corrections.dtype != np.uint8 or corrections.ndim != 1:
                raise InvalidType("corrections must be an array of bytes")
            heading = _heading(self.label)
            if corrections[: len(heading)].tobytes() != heading:
                raise ProtocolError(f"the dealer's corrections are not those for {self.label}")
            self._taken = len(heading)

    def mask(self, shape: Shape, kind: Kind, among: Sequence[int] | None = None) -> Share:
        """The party's words of a mask: [r]_m = its next words."""
        self._placed(among, least=1)
        with self._lane.turn():
            return Share(self._lane.read(self._number, (0,), kind.words_shape(shape), kind), kind)

    def share(self, shape: Shape, kind: Kind, among: Sequence[int] | None = None) -> Share:
        """The party's share of a value that the dealer chose: its next words, or the next correction."""
        parties = self._placed(among, least=2)
        words_shape = kind.words_shape(shape)
        with self._lane.turn():
            if self._next_receiver(parties) == self._me:
                return Share(self._corrected(words_shape, kind), kind)
            return Share(self._lane.read(self._number, (0,), words_shape, kind), kind)

    def finish(self) -> None:
        """Raise if the dealer sent more than was drawn: the two did not draw the same."""
        if left := len(self._corrections) - self._taken:
            raise ProtocolError(f"{left} bytes of the dealer's corrections for {self.label} were not used")

    def _placed(self, among: Sequence[int] | None, least: int) -> Sequence[int]:
        parties = self._members(among, least)
        if self._me not in parties:
            raise InvalidParameter(f"among must include this party ({self._me}), got {tuple(parties)}")
        return parties

    def _corrected(self, shape: tuple[int, ...], kind: Kind) -> Array:
        words = np.empty(shape, kind.dtype)
        start, end = self._taken, self._taken + words.nbytes
        if end > len(self._corrections):
            raise ProtocolError(f"the dealer's corrections for {self.label} are missing or end too early")
        words.reshape(-1).view(np.uint8)[:] = self._corrections[start:end]
        self._taken = min(end + -end % _ALIGNED, len(self._corrections))
        return words


def _heading(label: Label) -> bytes:
    return nonce_at(_LABEL, label, _RANGES)


def _joined(heading: Bytes, arrays: Sequence[Array]) -> Bytes:
    sizes = [array.nbytes + -array.nbytes % _ALIGNED for array in arrays]
    start = len(heading)
    buffer = np.zeros(start + sum(sizes), np.uint8)
    buffer[:start] = heading
    for array, size in zip(arrays, sizes, strict=True):
        buffer[start : start + array.nbytes] = as_bytes(array)
        start += size
    return buffer


# --- noise -----------------------------------------------------------------------------------------------------------

Ints = npt.NDArray[np.int64]
Draw = Callable[[tuple[int, ...]], Ints]
"""Gives independent whole numbers of this shape, int64, from secret randomness of the dealer."""


def deal_noise(step: DealerStep, shape: Shape, draw: Draw) -> None:
    """Noise that nobody but the dealer knows, as shares: what is opened after it was added is noisy for everybody.

        dealer     nu = draw(shape)                 from its own secret randomness, by a sampler of the privacy part
        dealt      [nu] modulo 2**64                one number is sent for each; it is a share modulo 2**32 too
        parties    [x] + [nu]                       and only that is opened, or compared

    **What it rests on.** The dealer has no data, works together with nobody and sees nothing that parties open: noise
    that an adversary knows is no noise. Who lacks the share of one party knows nothing of nu, so one noise is enough
    against any coalition but that of all parties, who have all data anyway. Noise that each party draws would have to
    be enough by itself, because all others can take theirs off: M times the variance.

    **What is not known of the draws here.** The sampler is a parameter: whole numbers in, whole numbers out. That they
    have the wanted distribution, and what the result costs, is said where it was made (`privacy.discrete_gaussian`,
    `privacy.gumbel`). Noise that does not fit the ring is refused, since it would wrap round.
    """
    axes = SUM64.words_shape(shape)
    noise = draw(axes)
    if not isinstance(noise, np.ndarray) or noise.dtype != np.int64 or noise.shape != axes:
        got = f"{noise.dtype} {noise.shape}" if isinstance(noise, np.ndarray) else type(noise).__name__
        raise InvalidType(f"draw must give an array of int64 of shape {axes}, got {got}")
    if noise.size and max(int(noise.max()), -int(noise.min())) > 1 << 62:
        # No number is named: what was drawn is a secret, even if it is not used.
        raise FixedPointOverflow("a noise is beyond 2**62, a quarter of what 64 bits hold: use a coarser unit")
    step.share(noise.astype(np.uint64), SUM64)
