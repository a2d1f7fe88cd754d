"""Noise and what came back behind it in a run of vertical.masked_gradients, candidate by candidate, from a transcript.

At the root of each tree all rows are there, in order; below it a level's rows stand node by node, which these attacks
do not need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.protocols.published.masked_gradients.messages import MaskedGradients, NoiseVectors, Scales
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript


class SeenCandidate(NamedTuple):
    """One candidate of a feature holder at the root of a tree."""

    tree: int
    candidate: int
    noise: Floats  # [rows, W]
    gradients: Floats  # [rows] g + B c
    hessians: Floats | None  # [rows] h + B d
    total: float  # of the gradients, which is sent with them


def root_candidates(transcript: Transcript, peer: str, n_vectors: int) -> Iterator[SeenCandidate]:
    """All candidates at roots, in order, from the transcript of one of the two parties; `peer` is the other one."""
    scales = next(message for way in (SENT, RECEIVED) for message in transcript.messages(Scales, way, peer))
    parts: list[np.ndarray] = []
    waiting: deque[tuple[bool, np.ndarray]] = deque()  # noise that was not answered yet
    tree, candidate = -1, 0
    for _, other, frame in transcript:
        name = peek(frame)[0] if other == peer else ""
        if name == NoiseVectors.NAME:
            sent = decode(frame, NoiseVectors)
            parts.append(sent.vectors)
            if sum(part.shape[1] for part in parts) == n_vectors:
                waiting.append((sent.last, np.concatenate(parts, axis=1)))
                parts = []
        elif name == MaskedGradients.NAME:
            answer = decode(frame, MaskedGradients)
            last, noise = waiting.popleft()
            if len(answer.gradient_sums) > 1:  # children come in pairs, so one node is a root
                continue
            tree += candidate == 0
            for k, vectors in enumerate(noise):
                yield SeenCandidate(
                    tree,
                    candidate + k,
                    vectors.T.astype(np.float64),
                    answer.gradients[k] / scales.gradient_scale,
                    answer.hessians[k] / scales.hessian_scale if len(answer.hessians) else None,
                    float(answer.gradient_sums[0] / scales.gradient_scale),
                )
            candidate = 0 if last else candidate + len(noise)
