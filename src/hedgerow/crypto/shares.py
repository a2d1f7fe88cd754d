"""Values that nobody holds: each party has words that look random, and only all of them together give the value.

    value = [x]_0 + [x]_1 + ... + [x]_(M-1)        modulo 2**32, 2**64 or 2**(32 L), or by exclusive or of bits

A `Kind` says how the words of the parties are put together; a `Share` is one party's words with their kind. A share is
made to be hard to look at: it is not a number and has no truth value, prints only its shape, is not an array for numpy
and cannot be stored. `words` is for the kernels of this package and for whoever sends them where they are opened.

**Opening.** All parties open masked words to each other, one message per round. What a party does in a conversation is
a generator, a `Talk`: it yields what it wants to have opened, is sent back what the words of all parties make, and
returns its share of the result. So each protocol stands in one place, and one may be part of another (`yield from`).
All parties yield words of the same kinds and shapes in every round: these follow from public numbers alone. Who carries
the messages holds it round by round (`protocols.shares.mesh`).

Whatever is yielded is `Masked`: uniform to whoever receives it. A result is returned as a share, and opened by
whoever names the message that says so. `Masked` is made in this package alone.

A talk draws what was dealt while it goes on, so its step stays open until it is over. Who works ahead meanwhile, or
holds several conversations at once, does so in other lanes (`dealing`). The words go from party to party. The dealer
must not see them: it knows every mask.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.crypto import limbs
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Shape = int | tuple[int, ...]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Kind:
    """How the words of the parties make a value, and in which ring values are added and multiplied.

    "sum32", "sum64"   numbers modulo 2**32 or 2**64, one word each
    "limbs:L"          numbers modulo 2**(32 L): uint32 [..., L], the lowest limb first
    "xor8" ... "xor64" bits packed in words: addition is exclusive or, multiplication is and

    Shapes are those of the numbers: the axis of the limbs is added by `words_shape`.
    """

    name: str
    dtype: np.dtype[Any]
    limbs: int = 0  # 0: a number is one word
    is_xor: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def number_bytes(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize * max(self.limbs, 1)

    def words_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of the words of numbers of that shape."""
        numbers = (shape,) if isinstance(shape, int) else tuple(shape)
        return (*numbers, self.limbs) if self.limbs else numbers

    def check(self, words: Array) -> Array:
        """The words, if they can be of this kind; otherwise InvalidType."""
        if not isinstance(words, np.ndarray) or words.dtype != self.dtype:
            got = getattr(words, "dtype", type(words).__name__)
            raise InvalidType(f"words of kind {self.name} must be an array of {self.dtype}, got {got}")
        if self.limbs and (words.ndim == 0 or words.shape[-1] != self.limbs):
            raise InvalidType(f"words of kind {self.name} must have {self.limbs} limbs in their last axis")
        return words

    def constant(self, value: int) -> Array:
        """A public number as words of this ring."""
        if self.limbs:
            return limbs.constant(value, self.limbs)
        return np.array(value % (1 << (8 * self.dtype.itemsize)), self.dtype)

    def add(self, x: Array, y: Array, out: Array | None = None) -> Array:
        """x + y in this ring; `out` may be x or y."""
        if self.limbs:
            return limbs.add(x, y, out)
        return np.asarray((np.bitwise_xor if self.is_xor else np.add)(x, y, out=out))

    def sub(self, x: Array, y: Array, out: Array | None = None) -> Array:
        """x - y in this ring; `out` may be x or y."""
        if self.limbs:
            return limbs.subtract(x, y, out)
        return np.asarray((np.bitwise_xor if self.is_xor else np.subtract)(x, y, out=out))

    def mul(self, x: Array, y: Array) -> Array:
        """x * y in this ring."""
        if self.limbs:
            return limbs.multiply(x, y)
        return np.asarray((np.bitwise_and if self.is_xor else np.multiply)(x, y))

    def add_product(self, total: Array, x: Array, y: Array) -> None:
        """total += x * y in this ring."""
        if self.limbs:
            limbs.add_product(total, x, y)
        else:
            self.add(total, self.mul(x, y), out=total)

    def subtract_product(self, total: Array, x: Array, y: Array) -> None:
        """total -= x * y in this ring."""
        if self.limbs:
            limbs.subtract_product(total, x, y)
        else:
            self.sub(total, self.mul(x, y), out=total)

    def total(self, parts: Sequence[Array]) -> Array:
        """What the words of all parties make: a value, if nobody's are missing."""
        if not parts:
            raise ProtocolError("nothing can be opened from the words of nobody")
        shapes = {self.check(part).shape for part in parts}
        if len(shapes) > 1:
            raise ProtocolError(f"parties sent words of different shapes: {sorted(shapes)}")
        value = parts[0].copy()
        for part in parts[1:]:
            self.add(value, part, out=value)
        return value


SUM32 = Kind("sum32", np.dtype(np.uint32))
SUM64 = Kind("sum64", np.dtype(np.uint64))
XOR8 = Kind("xor8", np.dtype(np.uint8), is_xor=True)
XOR16 = Kind("xor16", np.dtype(np.uint16), is_xor=True)
XOR32 = Kind("xor32", np.dtype(np.uint32), is_xor=True)
XOR64 = Kind("xor64", np.dtype(np.uint64), is_xor=True)


@cache
def limbs_kind(n_limbs: int) -> Kind:
    """Numbers modulo 2**(32 n_limbs)."""
    if not 1 <= n_limbs <= limbs.MAX_LIMBS:
        raise InvalidParameter(f"n_limbs must be between 1 and {limbs.MAX_LIMBS}, got {n_limbs}")
    return Kind(f"limbs:{n_limbs}", np.dtype(np.uint32), limbs=n_limbs)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Share:
    """One party's words of shared values: [x]_m.

    1. Adding and subtracting shares of one kind, and multiplying them by public numbers, is local.
    2. A public number is added by one party alone: `plus(number, is_first=...)`.
    3. Everything else needs a protocol (`beaver`). What opens a value is sending `words` to whoever may read it.
    """

    words: Array
    kind: Kind

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers, without the axis of limbs."""
        return self.words.shape[:-1] if self.kind.limbs else self.words.shape

    def __repr__(self) -> str:
        return f"Share({self.kind.name}, shape={self.shape})"

    def __add__(self, other: Share) -> Share:
        return Share(self.kind.add(self.words, self._partner(other)), self.kind)

    def __sub__(self, other: Share) -> Share:
        return Share(self.kind.sub(self.words, self._partner(other)), self.kind)

    def __neg__(self) -> Share:
        return self if self.kind.is_xor else Share(self.kind.sub(np.zeros_like(self.words), self.words), self.kind)

    def __getitem__(self, index: Any) -> Share:
        """Some of the numbers, always with all their limbs."""
        if self.kind.limbs:
            axes = index if isinstance(index, tuple) else (index,)
            rest = () if any(axis is Ellipsis for axis in axes) else (Ellipsis,)
            index = (*axes, *rest, slice(None))
        return Share(np.asarray(self.words[index]), self.kind)

    def reshape(self, *shape: int) -> Share:
        """The same numbers in another shape."""
        return Share(self.words.reshape(self.kind.words_shape(shape)), self.kind)

    def plus(self, public: Array, *, is_first: bool) -> Share:
        """x + public: one party adds the number, all others keep their words."""
        self.kind.check(public)
        return Share(self.kind.add(self.words, public), self.kind) if is_first else self

    def times(self, public: Array) -> Share:
        """x * public: everybody multiplies."""
        return Share(self.kind.mul(self.words, self.kind.check(public)), self.kind)

    def _partner(self, other: Share) -> Array:
        if not isinstance(other, Share):
            raise InvalidType(f"a share goes with shares only, got {type(other).__name__}; public numbers: plus, times")
        if other.kind is not self.kind and other.kind != self.kind:
            raise InvalidType(f"shares of kinds {self.kind.name} and {other.kind.name} do not go together")
        return other.words

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InvalidType(
            "a share is not a number, a truth value or an array: its words say nothing by themselves, and together "
            "with the others' they say everything. Open the value to whoever may know it"
        )

    __bool__ = __float__ = __int__ = __index__ = __complex__ = _refuse
    __len__ = __iter__ = __contains__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __array__ = _refuse
    __array_ufunc__ = None  # array + share: numpy leaves it to the share, which refuses

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProtocolError("a share cannot be copied or stored: it belongs to one run")


# --- opening ---------------------------------------------------------------------------------------------------------


class Masked(NamedTuple):
    """Words that a party sends to all, under masks of which it knows its own share only. Each mask is used once."""

    name: str  # what they are for, in tests and errors: "lift", "sign", "and", ...
    words: Array
    kind: Kind
    n_bits: int | None = None  # of packed bits: how many count


Talk = Generator[list[Masked], list[Array], Result]
"""A party's side of a conversation: yields what it sends, gets what all sent make, and returns a result."""


def masked(name: str, x: Share, mask: Share) -> Masked:
    """[x]_m - [a]_m: the words that party m sends so that x - a is opened; never use the mask a again."""
    return Masked(name, (x - mask).words, x.kind)


def opened(part: Masked) -> Talk[Array]:
    """One round: what the words of all parties make."""
    (value,) = yield [part]
    return value


def check_masked(parts: Sequence[Masked]) -> None:
    """InvalidType for anything that is not under a mask: a result is opened by whoever names what it tells."""
    for part in parts:
        if not isinstance(part, Masked):
            raise InvalidType(f"only masked words can be opened without saying what they tell, got {part!r:.60}")


def blocks_of(n: int, size: int) -> list[slice]:
    """0..n in blocks of this size; the last may be smaller."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def as_bytes(words: Array) -> Bytes:
    """The words as they are sent: flat, little-endian bytes, as those of every machine are that numba knows."""
    return np.ascontiguousarray(words).reshape(-1).view(np.uint8)


def joined(parts: Sequence[Masked]) -> Bytes:
    """Words of one round as bytes, one part after another."""
    pieces = [as_bytes(part.words) for part in parts]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def total_of(parts: Sequence[Masked], sent: Sequence[Bytes]) -> list[Array]:
    """What all parties sent in a round makes, part by part."""
    values = []
    start = 0
    for part in parts:
        end = start + part.words.nbytes
        pieces = [message[start:end].view(part.kind.dtype).reshape(part.words.shape) for message in sent]
        values.append(part.kind.total(pieces))
        start = end
    return values
