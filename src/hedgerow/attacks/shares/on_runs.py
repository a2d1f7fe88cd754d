"""Masks in recorded runs of trainings on shares: did any hide two values?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.registry import BROKEN, HOLDS, Aim, Context, Outcome
from hedgerow.attacks.shares.mask_reuse import FEWEST, LOOKED_AT, in_rounds
from hedgerow.protocols.shares.messages import MaskedWords
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript

Words = npt.NDArray[np.uint32]


def mask_reuse(context: Context) -> list[Outcome]:
    """By each party with data, from all that was opened under masks in its presence."""
    return [_looked_at(context.transcript(party), context.job.holders) for party in context.job.holders]


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
