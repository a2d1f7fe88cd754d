"""Attacks on recorded runs of vertical.masked_gradients: noise and what came back behind it, candidate by candidate.

At the root of each tree all rows are there, in order; below it a level's rows stand node by node, which these attacks
do not need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from hedgerow.attacks.intervals import Interval, area_under_roc
from hedgerow.attacks.masked_gradients import active_set as sets
from hedgerow.attacks.masked_gradients import label_network as network
from hedgerow.attacks.masked_gradients import unmask_least_squares as unmask
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.protocols.published.masked_gradients.candidates import Candidates
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.messages import MaskedGradients, NoiseVectors, Scales
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript


def root_candidates(transcript: Transcript, peer: str, n_vectors: int) -> Iterator[unmask.Masked]:
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
                yield unmask.Masked(
                    vectors.T.astype(np.float64),
                    answer.gradients[k] / scales.gradient_scale,
                    answer.hessians[k] / scales.hessian_scale if len(answer.hessians) else None,
                    float(answer.gradient_sums[0] / scales.gradient_scale),
                    tree,
                    candidate + k,
                )
            candidate = 0 if last else candidate + len(noise)


N_MESSAGES = 2
"""About different candidates of one node: enough to unmask it exactly."""
N_MADE_UP = 5_000
"""Rows of made-up messages that the network learns from: seconds on one core."""
N_CANDIDATES = 6
"""Of each feature holder whose active sets are decoded, evenly spread: all would take long and tell the same."""


# --- a feature holder: labels ----------------------------------------------------------------------------------------


def unmask_least_squares(context: Context) -> list[Outcome]:
    """Every feature holder takes its own noise off again: from one message, and from two."""
    job: MaskedGradientsJob = context.job
    return [outcome for party in job.feature_holders for outcome in _unmasked(context, job, party)]


def _unmasked(context: Context, job: MaskedGradientsJob, attacker: str) -> list[Outcome]:
    aim = Aim("unmask_least_squares", attacker, f"labels of {job.label_holder}")
    transcript = context.run.transcript(attacker)
    problem, seen = _first_candidates(job, transcript)
    if problem:
        return [aim.says(NOT_RUN, problem)]
    truth = context.ones(job.label_holder, n_rows_of(transcript))
    outcomes = []
    for count in range(1, len(seen) + 1):
        messages, total = seen[:count], seen[0].total if count == 1 else None
        if truth is None:
            found = unmask.one_message(messages[0].noise, messages[0].gradients, total)
            found = found if count == 1 else unmask.several_messages(messages).gradients
            ones = int(unmask.labels_of(found).sum())
            words = (
                f"from {count} of its messages: every gradient, and so every label; {ones:,} of {len(found):,} are 1"
            )
            outcomes.append(aim.says(NOT_SCORED, words))
            continue
        result = unmask.attack(messages, truth, total=total, confidence=CONFIDENCE)
        words = f"{result.how}: the label of every row; AUC {result.area.estimate:.3f}"
        outcomes.append(aim.scored(words, "accuracy", result.accuracy, chance=result.chance))
    return outcomes


def label_network(context: Context) -> list[Outcome]:
    """The attacker of the paper: a network that looks at one row at a time."""
    job: MaskedGradientsJob = context.job
    attacker = next((party for party in job.feature_holders if party in context.tables), job.feature_holders[0])
    aim = Aim("label_network", attacker, f"labels of {job.label_holder}")
    transcript = context.run.transcript(attacker)
    problem, seen = _first_candidates(job, transcript)
    n_rows = n_rows_of(transcript)
    truth, active = context.ones(job.label_holder, n_rows), _active_rows(context, attacker, n_rows)
    if not problem and active is None:
        problem = f"the attacker's own table is needed: --table {attacker}=FILE"
    if not problem and truth is None:
        problem = "it is trained to be counted only: --labels FILE --column NAME"
    if problem or active is None or truth is None:
        return [aim.says(NOT_RUN, problem)]
    strength = job.noise_for(n_rows).C_for(n_rows)
    result = network.attack(seen[0], active[0], strength, truth, n_made_up=N_MADE_UP, confidence=CONFIDENCE)
    words = f"a guess for every row, after {N_MADE_UP:,} made-up ones; AUC {result.area.estimate:.3f}"
    return [aim.scored(words, "accuracy", result.accuracy, chance=result.chance)]


def _first_candidates(job: MaskedGradientsJob, transcript: Transcript) -> tuple[str, list[unmask.Masked]]:
    """Those of the first root, and why they are of no use, if so."""
    if job.task != "classification":
        return "labels are numbers; this attack is on two classes", []
    seen = list(islice(root_candidates(transcript, job.label_holder, job.n_vectors), N_MESSAGES))
    seen = [each for each in seen if each.tree == 0]
    return ("" if seen else "no candidate was sent"), seen


# --- the label holder: which rows go left ----------------------------------------------------------------------------


def active_set(context: Context) -> list[Outcome]:
    """The label holder decodes which rows candidates send left, from their noise at the roots of all trees."""
    job: MaskedGradientsJob = context.job
    return [outcome for party in job.feature_holders for outcome in _decoded(context, job, party)]


def _decoded(context: Context, job: MaskedGradientsJob, party: str) -> list[Outcome]:
    aim = Aim("active_set", job.label_holder, f"columns of {party}")
    transcript = context.run.transcript(job.label_holder)
    n_rows = n_rows_of(transcript)
    noise = job.noise_for(n_rows)
    if not noise.sigma1:
        return [aim.says(NOT_RUN, "without sigma1 neighbours in the noise are not correlated")]
    n_candidates = sum(1 for each in root_candidates(transcript, party, job.n_vectors) if each.tree == 0)
    chosen = np.unique(np.linspace(0, n_candidates - 1, N_CANDIDATES).astype(int)).tolist() if n_candidates else []
    seen: dict[int, list[Floats]] = {candidate: [] for candidate in chosen}
    for each in root_candidates(transcript, party, job.n_vectors):
        if each.candidate in seen:
            seen[each.candidate].append(each.noise)
    odds = {
        candidate: sets.decoded(np.hstack(vectors), np.zeros(n_rows), noise.sigma1, noise.sigma2)
        for candidate, vectors in seen.items()
    }
    active = _active_rows(context, party, n_rows)
    words = f"{len(chosen)} of {n_candidates} candidates, {job.boosting.n_iterations} trees: which rows each sends left"
    if active is None:
        sure = [np.abs(found) > 3.0 for found in odds.values()]
        claim = f"{words}; surer than 20 to 1 of {np.mean(sure) if sure else 0.0:.1%} of them"
        return [aim.says(NOT_SCORED, claim)]
    areas = []
    for candidate, found in odds.items():
        true = active[candidate]
        if 2 <= true.sum() <= n_rows - 2:
            areas.append(area_under_roc(found[true], found[~true], CONFIDENCE))
    if not areas:
        return [aim.says(NOT_RUN, "no candidate divides the rows")]
    value = Interval(*(float(np.mean([area[k] for area in areas])) for k in range(3)))
    return [aim.scored(words, "AUC", value, chance=0.5)]


def _active_rows(context: Context, party: str, n_rows: int) -> Bools | None:
    """[candidates, rows] which rows each candidate of a feature holder sends left, if its table was given."""
    part = context.run.model.parts[party]
    table = context.table(party, part.features, n_rows)
    if table is None:
        return None
    codes = part.codes(table)
    candidates = Candidates.of(part.features, codes)
    found: Bools = np.stack(
        [active[codes[column]] for active, column in zip(candidates.active, candidates.column, strict=True)]
    ).astype(np.bool_)
    return found
