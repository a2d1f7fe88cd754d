"""Labels from noisy gradients: what a feature holder of vertical.noised_gradients can add up over all releases.

For the logistic loss a row's gradient is g = p - y. The label holder sends g + noise, once or once per tree, with fresh
noise each time. Scores come from released values only, so an adversary who has the whole model knows p. We give it that
much:

    1  p - (g + noise) = y - noise: every release is one more look at the label
    2  looks are averaged, each with the weight 1 / sigma^2 of its noise; nothing else in them depends on y
    3  what is left is y + N(0, 1 / mu^2), where mu^2 is the sum over the releases of 1 / sigma^2

mu is what Gaussian DP allows for one label (a label moves one gradient by 1), so nobody can rank labels better than
AUC = Phi(mu / sqrt 2) from the release, and this adversary reaches it. Without noise the sign of one gradient is the
label, whatever p was.

That ceiling is about what a row's own label adds. What a useful model says about rows like it is on top for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import area_under_roc, ceiling
from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidInput
from hedgerow.protocols.vertical.noised_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients, NoisyLevel
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.transcripts import RECEIVED, Replaying, Transcript


def label_scores(gradients: npt.ArrayLike, probabilities: npt.ArrayLike | None, sigmas: Sequence[float]) -> Floats:
    """How much each row looks like label 1: its label plus noise where p is known, else minus its mean gradient.

    `gradients` [releases, rows] as received, in units of the gradient; `probabilities` [releases, rows], or broadcast
    to that, are p at the time. An adversary without the model has None of them.
    """
    seen = np.asarray(gradients, np.float64)
    if seen.ndim != 2 or len(seen) != len(sigmas) or not np.isfinite(seen).all():
        raise InvalidInput(f"one finite gradient per release and row is needed, got {seen.shape} for {len(sigmas)}")
    exact = [sigma == 0.0 for sigma in sigmas]
    weights = np.array(exact if any(exact) else [sigma**-2.0 for sigma in sigmas], np.float64)
    known = np.zeros(1) if probabilities is None else np.asarray(probabilities, np.float64)
    looks = known - seen
    if looks.shape != seen.shape:
        raise InvalidInput(f"probabilities {known.shape} do not fit gradients {seen.shape}")
    scores: Floats = weights @ looks / weights.sum()
    return scores


# --- a recorded run ------------------------------------------------------------------------------------------------


class _Looks(NamedTuple):
    """What the feature holder has."""

    gradients: Floats  # [releases, rows]
    probabilities: Floats | None
    sigmas: Sequence[float]
    words: str


def on_run(context: Context) -> list[Outcome]:
    """A feature holder adds up all noisy gradients. All feature holders get the same, so one is enough."""
    job: NoisedGradientsJob = context.job
    attacker = next((party for party in job.feature_holders if party in context.tables), job.feature_holders[0])
    aim = Aim("noised_labels", attacker, f"labels of {job.label_holder}")
    if job.task != "classification":
        return [aim.says(NOT_RUN, "labels are numbers; this attack is on two classes")]
    transcript = context.run.transcript(attacker)
    n_rows = n_rows_of(transcript)
    looks = _looks(context, job, transcript, n_rows)
    n = len(looks.sigmas)
    count = f"{n:,} message{'s' if n > 1 else ''}"
    found = f"how much each of {n_rows:,} rows looks like class 1, from {count}; {looks.words}"
    truth = context.ones(job.label_holder, n_rows)
    if truth is None:
        return [aim.says(NOT_SCORED, found)]
    scores = label_scores(looks.gradients, looks.probabilities, looks.sigmas)
    area = area_under_roc(scores[truth == 1], scores[truth == 0], CONFIDENCE)
    facts = context.facts
    promised = None if facts["stamp"] or facts["privacy"] is None else ceiling(facts["privacy"]["mu"])
    return [aim.scored(found, "AUC", area, chance=0.5, ceiling=promised)]


def _looks(context: Context, job: NoisedGradientsJob, transcript: Transcript, n_rows: int) -> _Looks:
    loss = Loss("logistic", 2)
    if job.per == MESSAGE:
        noise = LevelNoise.plan(job, loss, n_rows)
        received = np.array([m.gradients for m in transcript.messages(NoisyLevel, RECEIVED)])
        sigma = noise.gradient_sigma / noise.gradient_scale
        return _Looks(received / noise.gradient_scale, None, [sigma] * len(received), "scores stay unknown")
    received = np.array([m.gradients for m in transcript.messages(NoisyGradients, RECEIVED)])
    if not job.has_noise:
        scale = plain_quantiser(job, loss, n_rows).gradient_scale
        return _Looks(received / scale, None, [0.0] * len(received), "there is no noise")
    planned = LabelNoise.plan(job, loss, n_rows)
    sigmas = [planned.sigma_of_gradient] * len(received)
    scores = np.zeros(received.shape)  # the first message is about the labels alone
    words = "one message shows all there is"
    if len(received) > 1:
        own = context.data(transcript.party, n_rows)
        words = f"scores before each tree taken for a half: with --table {transcript.party}=FILE it follows them"
        if own is not None:
            scores[1:] = gradients_of_scores(transcript, own, job)[1 : len(received)] / planned.scale
            words = f"scores before each tree follow from what {transcript.party} received and from its columns"
    return _Looks(received / planned.scale, 0.5 + scores, sigmas, words)


def gradients_of_scores(transcript: Transcript, data: PartyData, job: NoisedGradientsJob) -> Ints:
    """[trees, rows] what the scores before each tree add to gradients, in units, by the feature holder's own account.

    Its role is played again on what it received, so all of this follows from released numbers.
    """
    seen: list[Ints] = []
    again = Party(Replaying(transcript), Identity.create(transcript.party, days=1), TrustStore())
    feature_holder(again, job, data, lambda gradients: seen.append(gradients.copy()))
    return np.array(seen)
