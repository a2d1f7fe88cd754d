"""Two openings under one mask: their difference is the difference of what they hide.

A value x is opened as x + r, r uniform: it shows nothing. A second value y under the same r shows x - y. The adversary
is any party that sees both, in a recorded run of a training on shares. It knows only that hidden values are small
numbers, as sums in fixed point are. Two words of 32 bits may be near each other by chance, but in two rounds under the
same masks word after word is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.registry import BROKEN, HOLDS, Aim, Context, Outcome
from hedgerow.protocols.shares.messages import MaskedWords
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript

FEWEST, LOOKED_AT = 8, 64
"""Words of a round that `in_rounds` needs, and that it looks at."""

Words = npt.NDArray[np.uint32]


def on_run(context: Context) -> list[Outcome]:
    """By each party with data, from all that was opened under masks in its presence."""
    return [_looked_at(context.run.transcript(party), context.job.holders) for party in context.job.holders]


def _looked_at(transcript: Transcript, holders: Sequence[str]) -> Outcome:
    rounds = opened_rounds(transcript, holders)
    n_rounds = sum(len(words) >= FEWEST for words in rounds)
    found = in_rounds(rounds)
    aim = Aim("mask_reuse", transcript.party, "what masks hide")
    if not found:
        return aim.says(HOLDS, f"nothing: no two of {n_rounds:,} rounds had the same masks, as far as it can see")
    return aim.says(BROKEN, f"differences of what is hidden: {len(found):,} pairs of {n_rounds:,} rounds share masks")


def opened_rounds(transcript: Transcript, holders: Sequence[str]) -> list[Words]:
    """What everybody's words of each round make together, the first of them: sums modulo 2**32.

    Bits that are opened by exclusive or come out as noise.
    """
    others = [party for party in holders if party != transcript.party]
    sent: dict[tuple[str, str], list[Words]] = {}
    for direction, peer, frame in transcript:
        if direction in (SENT, RECEIVED) and peek(frame)[0] == MaskedWords.NAME:
            sent.setdefault((direction, peer), []).append(_first_words(decode(frame, MaskedWords)))
    everybody = [sent.get((SENT, others[0]), []), *(sent.get((RECEIVED, party), []) for party in others)]
    return [np.sum(words, axis=0, dtype=np.uint32) for words in zip(*everybody, strict=False)]


def _first_words(message: MaskedWords) -> Words:
    n_bytes = min(len(message.words) // 4, LOOKED_AT) * 4
    return np.ascontiguousarray(message.words[:n_bytes]).view("<u4").astype(np.uint32)


def in_rounds(rounds: Sequence[Words], value_bits: int = 20) -> list[tuple[int, int]]:
    """Pairs of rounds whose opened words are near each other, or each other's opposites, one after the other.

    Looked at are the first words of each round, up to LOOKED_AT; rounds with fewer than FEWEST say nothing. Two of them
    are a pair if at least half of what both have is near, FEWEST words or more: by chance below 2**-80.
    """
    long = [number for number, words in enumerate(rounds) if len(words) >= FEWEST]
    sizes = np.array([min(len(rounds[number]), LOOKED_AT) for number in long])
    words = np.zeros((len(long), LOOKED_AT), np.uint32)
    for place, number in enumerate(long):
        words[place, : sizes[place]] = rounds[number][: sizes[place]]
    limit = np.uint32(1 << value_bits)
    found = []
    for place in range(len(long) - 1):
        later, both = words[place + 1 :], np.minimum(sizes[place], sizes[place + 1 :])
        inside = np.arange(LOOKED_AT) < both[:, None]
        for together in (later - words[place], later + words[place]):
            near = (together + limit < 2 * limit) & inside
            pairs = np.flatnonzero(near.sum(axis=1) >= np.maximum(FEWEST, both // 2))
            found += [(long[place], long[place + 1 + other]) for other in pairs.tolist()]
    return found
