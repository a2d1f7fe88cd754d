"""Messages of every protocol on shares: to and from the dealer, and the rounds in which words are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from hedgerow.crypto.csprng import KEY_BYTES
from hedgerow.ledger import Disclosure, Exact
from hedgerow.transport.frames import MAX_FRAME_BYTES, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Shape, Within

Words: TypeAlias = Annotated[UInt8s, Shape("n_bytes"), Anything()]
"""Words as bytes (`mesh.as_bytes`), as many as the receiver expects; under masks they may be anything."""
SeedBytes: TypeAlias = Annotated[bytes, Shape(KEY_BYTES)]
Number: TypeAlias = Annotated[int, Within(0, MOST)]
"""Of a tree, level, round or step; the receiver compares it with the one that is due."""
_LANE_LENGTH = Free("lane_length", at_least=1, at_most=64)


@dataclass(frozen=True, slots=True)
class Hidden(Disclosure):
    """Uniformly random to the receiver: it lacks a part of the mask, and every mask is used once."""

    PROTECTION: ClassVar[str] = "under a mask of which the receiver lacks a part"


class Revealed(Message, is_base=True):
    """Base of messages for `Mesh.reveal`: shares of a result, in `words`. Each class states what is learned from it."""

    __slots__ = ()

    words: UInt8s


@dataclass(frozen=True, slots=True)
class Seed(Message, name="vertical.on_shares.seed", version=1):
    """Label holder or feature holder to dealer: random bytes from which the two make the same words."""

    discloses = Exact("random bytes that say nothing about data, and that nobody else may know")
    seed: SeedBytes


@dataclass(frozen=True, slots=True)
class Dealt(Message, name="vertical.on_shares.dealt", version=1):
    """Dealer to label holder or feature holder: what makes its words shares of what was dealt in one step."""

    discloses = Hidden("products of masks, which say nothing about data")
    tree: Number
    level: Number
    lane: Annotated[str, Shape(_LANE_LENGTH)]
    step: Number
    # Empty where the receiver's words are its shares already; drawing on it finds a byte too many or too few.
    corrections: Annotated[UInt8s, Shape(Free("n_bytes", at_most=MAX_FRAME_BYTES)), Anything()]


@dataclass(frozen=True, slots=True)
class MaskedWords(Message, name="vertical.on_shares.masked_words", version=1):
    """Label holder or feature holder to each other: shares of masked words, which are opened so; one per round."""

    discloses = Hidden("what is computed from labels and columns on the way to a result")
    words: Words
