"""Gradients from behind their masks: whoever drew a mask can take it off.

The adversary is a feature holder of vertical.masked_gradients. For each candidate split of a node it drew W noise
vectors, the columns of B, and sent them to the label holder. It got back g + B c, and h + B d, where c and d are W
numbers each that only the label holder knows. However large the noise is, what it received lies in a known flat of W
dimensions around g:

    one message     least squares of g + B c on [1, B] finds c but for O(sqrt(W / n)), and what is left is g. The sum G
                    of the node's gradients, which comes with it, is one exact equation more: for W = 1 that is c itself
    two messages    of one node: their difference B1 c1 - B2 c2 has no g in it. n equations for 2 W numbers: c1, c2 and
                    g exactly, for any loss

Where hessians come along, one message is exact as well: h = |g| (1 - |g|) for any score, and no other c and d fit that.

The sign of g = p - y is the label, whatever the score was. No epsilon says anything about this: for two different g the
possible answers do not overlap. A feature holder that sends B = 0 need not even compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import scored
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.errors import InvalidInput
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.messages import MaskedGradients, NoiseVectors, Scales
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript

N_MESSAGES = 2
"""About different candidates of one node: enough to unmask it exactly."""


class Masked(NamedTuple):
    """One candidate of one node: what the feature holder drew, and what it got back."""

    noise: Floats  # [rows, W], B
    gradients: Floats  # [rows], g + B c
    hessians: Floats | None = None  # [rows], h + B d; None where only gradients are sent (score="first_order")
    total: float | None = None  # of the gradients, which is sent with them
    tree: int = 0
    candidate: int = 0  # its number among those of the feature holder


# --- the ways --------------------------------------------------------------------------------------------------------


def one_message(noise: npt.ArrayLike, masked: npt.ArrayLike, total: float | None = None) -> Floats:
    """[rows] the values behind one masked vector, by least squares; `total` is their sum if it was told as well."""
    B, seen = _checked(noise, masked)
    middle = B.mean(axis=0)
    c = _solved(B - middle, seen - seen.mean())
    if total is not None:
        # The best fit among those with the right sum: (sum of B) c = sum of what was received - total.
        lean = _solved((B - middle).T @ (B - middle), middle)
        along = float(middle @ lean)
        if along > 0.0:
            c += lean * (float(seen.mean()) - total / len(seen) - float(middle @ c)) / along
    found: Floats = seen - B @ c
    return found


def several_messages(messages: Sequence[Masked]) -> Floats:
    """Gradients behind messages about different candidates of one node: exactly.

    Two messages are enough for a node of 2 W rows; as many are used as the node needs.
    """
    if len(messages) < 2:
        raise InvalidInput(f"two messages about one node are needed, got {len(messages)}")
    n_rows, n_vectors = np.shape(messages[0].noise)
    used = next((k for k in range(2, len(messages)) if (k - 1) * n_rows >= k * n_vectors), len(messages))
    noises, masked = zip(*(_checked(each.noise, each.gradients) for each in messages[:used]), strict=True)
    return behind_all(noises, masked)


def behind_all(noises: Sequence[Floats], masked: Sequence[Floats]) -> Floats:
    """The vector that all of them hide: B1 c1 - Bk ck = the difference of the first and the k-th."""
    first, width = noises[0], noises[0].shape[1]
    n_rows = len(first)
    equations = np.zeros(((len(noises) - 1) * n_rows, len(noises) * width))
    for k in range(1, len(noises)):
        here = slice((k - 1) * n_rows, k * n_rows)
        equations[here, :width] = first
        equations[here, k * width : (k + 1) * width] = -noises[k]
    c = _solved(equations, np.concatenate([masked[0] - each for each in masked[1:]]))
    found: Floats = masked[0] - first @ c[:width]
    return found


def _solved(equations: Floats, right: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(equations, right, rcond=None)[0], np.float64)


def _checked(noise: npt.ArrayLike, masked: npt.ArrayLike) -> tuple[Floats, Floats]:
    B, seen = np.asarray(noise, np.float64), np.asarray(masked, np.float64)
    if B.ndim != 2 or seen.shape != B.shape[:1] or not (np.isfinite(B).all() and np.isfinite(seen).all()):
        raise InvalidInput(f"finite noise [rows, W] and a masked value per row are needed, got {B.shape}, {seen.shape}")
    return B, seen


# --- what they are worth ---------------------------------------------------------------------------------------------


def labels_of(gradients: npt.ArrayLike) -> Ints:
    """Labels of the logistic loss: g = p - y is negative where y is 1, for any p."""
    return (np.asarray(gradients) < 0.0).astype(np.int64)


def behind(messages: Sequence[Masked], total: float | None) -> tuple[str, Floats]:
    """How gradients are found behind messages about one node, and those.

    One message is taken for itself, with the node's sum of gradients `total` if it was told. Several are put together.
    """
    if not messages:
        raise InvalidInput("there is no message to unmask")
    if len(messages) > 1:
        return f"{len(messages)} messages", several_messages(messages)
    how = "one message" if total is None else "one message and the sum"
    return how, one_message(messages[0].noise, messages[0].gradients, total)


# --- a recorded run --------------------------------------------------------------------------------------------------


def on_run(context: Context) -> list[Outcome]:
    """Every feature holder takes its own noise off again: from one message, and from two."""
    job: MaskedGradientsJob = context.job
    return [outcome for party in job.feature_holders for outcome in _unmasked(context, job, party)]


def _unmasked(context: Context, job: MaskedGradientsJob, attacker: str) -> list[Outcome]:
    aim = Aim("unmask_least_squares", attacker, f"labels of {job.label_holder}")
    transcript = context.run.transcript(attacker)
    seen = first_candidates(job, transcript)
    if isinstance(seen, str):
        return [aim.says(NOT_RUN, seen)]
    truth = context.ones(job.label_holder, n_rows_of(transcript))
    outcomes = []
    for count in range(1, len(seen) + 1):
        how, found = behind(seen[:count], seen[0].total)
        if truth is None:
            ones = int(labels_of(found).sum())
            words = (
                f"from {count} of its messages: every gradient, and so every label; {ones:,} of {len(found):,} are 1"
            )
            outcomes.append(aim.says(NOT_SCORED, words))
            continue
        result = scored(truth, -found, labels_of(found) == 1, CONFIDENCE)
        words = f"{how}: the label of every row; AUC {result.area.estimate:.3f}"
        outcomes.append(aim.scored(words, "accuracy", result.accuracy, chance=result.chance))
    return outcomes


def first_candidates(job: MaskedGradientsJob, transcript: Transcript) -> list[Masked] | str:
    """Those of the first root, or why there are none."""
    if job.task != "classification":
        return "labels are numbers; this attack is on two classes"
    seen = islice(root_candidates(transcript, job.label_holder, job.n_vectors), N_MESSAGES)
    return [each for each in seen if each.tree == 0] or "no candidate was sent"


def root_candidates(transcript: Transcript, peer: str, n_vectors: int) -> Iterator[Masked]:
    """All candidates at roots, in order, from the transcript of one of the two parties; `peer` is the other one.

    There all rows stand in order; below, a level's rows stand node by node, which these attacks do not need.
    """
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
                yield Masked(
                    vectors.T.astype(np.float64),
                    answer.gradients[k] / scales.gradient_scale,
                    answer.hessians[k] / scales.hessian_scale if len(answer.hessians) else None,
                    float(answer.gradient_sums[0] / scales.gradient_scale),
                    tree,
                    candidate + k,
                )
            candidate = 0 if last else candidate + len(noise)
