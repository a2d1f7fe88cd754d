"""Messages of every protocol on shares: to and from the dealer, and the rounds in which masked words are opened."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Disclosure, Exact
from hedgerow.transport.frames import Message, UInt8s


@dataclass(frozen=True, slots=True)
class Hidden(Disclosure):
    """Uniformly random to the receiver: it lacks a part of the mask, and every mask is used once."""

    @property
    def protection(self) -> str:
        """How it is protected, in words."""
        return "under a mask of which the receiver lacks a part"


@dataclass(frozen=True, slots=True)
class Seed(Message, name="vertical.on_shares.seed", version=1):
    """Label holder or feature holder to dealer: random bytes from which the two make the same words."""

    discloses = Exact("random bytes that say nothing about data, and that nobody else may know")
    seed: bytes


@dataclass(frozen=True, slots=True)
class Dealt(Message, name="vertical.on_shares.dealt", version=1):
    """Dealer to label holder or feature holder: what makes its words shares of what was dealt in one step."""

    discloses = Hidden("products of masks, which say nothing about data")
    tree: int
    level: int
    lane: str
    step: int
    corrections: UInt8s  # empty where the receiver's words are its shares already


@dataclass(frozen=True, slots=True)
class MaskedWords(Message, name="vertical.on_shares.masked_words", version=1):
    """Label holder or feature holder to each other: shares of masked words, which are opened so; one per round."""

    discloses = Hidden("what is computed from labels and columns on the way to a result")
    words: UInt8s
