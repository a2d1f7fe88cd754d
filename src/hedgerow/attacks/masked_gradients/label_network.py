"""The attacker of the MaskedXGBoost paper (section 6.5): a network that learns on made-up messages to unmask real ones.

A feature holder knows its noise vectors and its split. It makes up labels and scores, masks their gradients and
hessians as the label holder would, and trains a network of five layers, with an L2 penalty of 0.01, that takes one
row's noise, masked gradient and masked hessian and gives the plain ones. Then it feeds it the message that it really
received; the sign of the gradient is the label.

The paper finds an accuracy of 0.51 and takes that for evidence of privacy. It is evidence of a weak attacker: a row
alone does not tell which c the label holder drew, and made-up messages have another one each. All rows together do, by
least squares (`unmask_least_squares`). The network is here so that both figures can stand side by side.

Where masks are weak it finds labels, with three noise vectors as with one. With one (W = 1) c is either of two numbers,
and a row alone tells which if the noise is large against the gradient; some draws of it the network unmasks then, some
not. Behind the noise of Theorem 2 it finds nothing, with one vector or three.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from hedgerow.attacks.masked_gradients.active_set import active_rows
from hedgerow.attacks.masked_gradients.unmask_least_squares import Masked, first_candidates, labels_of
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import scored
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob

HIDDEN_LAYERS = (64, 64, 64, 64)
"""With the one that gives the answer, five layers. Their widths are not in the paper."""

PENALTY = 0.01
N_MADE_UP = 5_000
"""Rows of made-up messages that the network learns from in a recorded run: seconds on one core."""


def gradients_by_network(
    message: Masked,
    active: Bools,
    square_sum: float,
    *,
    n_made_up: int = 20_000,
    n_rounds: int = 30,
    hidden_layers: tuple[int, ...] = HIDDEN_LAYERS,
    seed: int = 0,
) -> Floats:
    """Train on made-up messages about the same candidate, then guess the gradients behind the real one.

    `active` [rows] says which rows the candidate sends left; `square_sum` is C, the public sum of the squares of c.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    inputs, wanted = _made_up(message, active, square_sum, n_made_up, np.random.default_rng(seed))
    middle, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-12)
    network = MLPRegressor(hidden_layer_sizes=hidden_layers, alpha=PENALTY, max_iter=n_rounds, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # how many rounds there are is the caller's choice
        network.fit((inputs - middle) / scale, wanted)
    found = np.asarray(network.predict((_inputs(message, active) - middle) / scale), np.float64)
    return found.reshape(len(found), -1)[:, 0]


def _inputs(message: Masked, active: Bools) -> Floats:
    """[rows, W + 2 or 3] all that the adversary has about each row."""
    seen = [message.noise, message.gradients[:, None], np.asarray(active, np.float64)[:, None]]
    if message.hessians is not None:
        seen.append(message.hessians[:, None])
    return np.hstack(seen)


def _made_up(
    message: Masked, active: Bools, square_sum: float, n_wanted: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Inputs and plain values of messages with made-up labels and scores, each with numbers c and d of its own."""
    n_rows, n_vectors = message.noise.shape
    inputs, plain = [], []
    for first in range(0, n_wanted, n_rows):
        rows = rng.permutation(n_rows)[: n_wanted - first]
        p = rng.random(len(rows))
        values = [p - (rng.random(len(rows)) < 0.5)]
        if message.hessians is not None:
            values.append(p * (1.0 - p))
        noise = message.noise[rows]
        masked = [each + noise @ _on_sphere(n_vectors, square_sum, rng) for each in values]
        inputs.append(_inputs(Masked(noise, masked[0], masked[1] if len(masked) > 1 else None), active[rows]))
        plain.append(np.column_stack(values))
    wanted = np.concatenate(plain)
    return np.concatenate(inputs), wanted if wanted.shape[1] > 1 else wanted[:, 0]


def _on_sphere(n: int, square_sum: float, rng: np.random.Generator) -> Floats:
    c = rng.normal(size=n)
    scaled: Floats = c * math.sqrt(square_sum / float(c @ c))
    return scaled


def on_run(context: Context) -> list[Outcome]:
    """The attacker of the paper: a network that looks at one row at a time."""
    job: MaskedGradientsJob = context.job
    attacker = next((party for party in job.feature_holders if party in context.tables), job.feature_holders[0])
    aim = Aim("label_network", attacker, f"labels of {job.label_holder}")
    transcript = context.run.transcript(attacker)
    n_rows, seen = n_rows_of(transcript), first_candidates(job, transcript)
    if isinstance(seen, str):
        return [aim.says(NOT_RUN, seen)]
    if (active := active_rows(context, attacker, n_rows)) is None:
        return [aim.says(NOT_RUN, f"the attacker's own table is needed: --table {attacker}=FILE")]
    if (truth := context.ones(job.label_holder, n_rows)) is None:
        return [aim.says(NOT_RUN, "it is trained to be counted only: --labels FILE --column NAME")]
    strength = job.noise_for(n_rows).C_for(n_rows)
    found = gradients_by_network(seen[0], active[0], strength, n_made_up=N_MADE_UP)
    result = scored(truth, -found, labels_of(found) == 1, CONFIDENCE)
    words = f"a guess for every row, after {N_MADE_UP:,} made-up ones; AUC {result.area.estimate:.3f}"
    return [aim.scored(words, "accuracy", result.accuracy, chance=result.chance)]
