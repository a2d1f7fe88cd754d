"""central.gaussian: one owner of all rows trains under (epsilon, delta) and releases the model.

    1. The plan: what will be released, at which cost, follows from the settings. Nothing has been read so far.
    2. The rows are read as the public schema says. How many did not fit it is released with noise.
    3. The policy asks for sums (or, one of them, for choices); noise is added to each; in the end there is a model.
    4. What was really released is added up again. Only if it is within (epsilon, delta) is the model handed out.

Whoever gets the model learns it, the statement, and nothing else of the rows than these say.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.choices import exponential
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Event, Gaussian, NonPrivate, PoissonSampled, Released, chance_beyond
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.bad_rows import MISFITS, MISFITS_FACT, OnBadRows
from hedgerow.protocols.central.gaussian.on_ray import rows_on_ray
from hedgerow.protocols.central.gaussian.policies import POLICIES, Policy
from hedgerow.protocols.central.gaussian.recipe import Recipe
from hedgerow.protocols.central.gaussian.requests import NodeRequest, SumRequest
from hedgerow.protocols.central.gaussian.rows import GrowingRows
from hedgerow.protocols.central.gaussian.training import GaussianSettings, Training
from hedgerow.protocols.central.released import CentralFit, audit_of, given_up
from hedgerow.protocols.central.weighing import Weighing
from hedgerow.runtime.progress import OnProgress
from hedgerow.schema import Schema
from hedgerow.statement import PrivacyStatement, Stage

PROTOCOL = "central.gaussian"


def planned_event(settings: GaussianSettings) -> Event:
    """An upper bound of what the training will cost, known before the rows are read."""
    if math.isinf(settings.epsilon):
        return NonPrivate("no noise was asked for")
    if settings.policy != "smooth_then_trees":
        return POLICIES[settings.policy].planned_event(settings)
    # mu_for keeps a billionth back; discrete noise may use it up.
    return Gaussian(mu_for(settings.epsilon, settings.delta) * (1.0 + 1e-9), 1.0)


def fit_gaussian(
    X: Any,
    y: Any,
    schema: Schema,
    settings: GaussianSettings,
    random: RandomBytes,
    *,
    n_threads: int = 1,
    on_progress: OnProgress | None = None,
    on_bad_rows: OnBadRows = "map",
    backend: RayBackend | None = None,
    weighing: Weighing | None = None,
    sample_weight: Any = None,
) -> CentralFit:
    """Train on a table that the schema describes.

    `random` makes noise and samples and must be secret; production code passes `SecureRandom()`. With a `backend`, `X`
    are Parquet files that Ray's actors read, and `y` is the name of a column; noise is drawn here all the same.
    """
    training = training_of(schema, settings)
    with ExitStack() as stack:
        if backend is None:
            multiclass = settings.policy == "smooth_then_trees"
            how: dict[str, Any] = {"n_threads": n_threads, "multiclass": multiclass, "on_bad_rows": on_bad_rows}
            how |= {"weighing": weighing, "sample_weight": sample_weight}
            rows: Answers = GrowingRows.read(X, y, schema, **how)
        else:
            rows = stack.enter_context(rows_on_ray(backend, X, y, schema, settings, on_bad_rows))
        return _train(training, settings, rows, random, on_progress, on_bad_rows)


def _train(
    training: Training,
    settings: GaussianSettings,
    rows: Answers,
    random: RandomBytes,
    on_progress: OnProgress | None,
    on_bad_rows: OnBadRows,
) -> CentralFit:
    def release(request: SumRequest) -> Released[Any]:
        released = _release(rows, training, request, random)
        if on_progress is not None and request.kind != "misfits" and training.n_requests is not None:
            on_progress(request.number, training.n_requests)
        return released

    model = training.run(release)
    event = training.budget.accountant.event
    return CentralFit(model, event, _statement(settings, training, event, on_bad_rows))


def training_of(schema: Schema, settings: GaussianSettings) -> Training:
    """The training by the policy that the settings name."""
    if settings.policy != "smooth_then_trees":
        return POLICIES[settings.policy](schema, settings)
    return Recipe(
        schema,
        epsilon=settings.epsilon,
        delta=settings.delta,
        seed=settings.seed,
        reserve=settings.clipped_count_share,
        multiclass=True,
    )


class Answers(Protocol):
    """Rows that answer requests exactly, wherever they are."""

    n_rows: int

    def answer(self, request: SumRequest, *, chosen: Bytes | None = None) -> Ints:
        """Sums of columns, of leaves or of all rows."""
        ...

    def node_answer(self, request: NodeRequest) -> Ints:
        """Sums of nodes."""
        ...

    def node_gains(self, request: NodeRequest, described: BinMapper) -> Floats:
        """Gains of splits."""
        ...


# --- releases ------------------------------------------------------------------------------------------------------


def _release(rows: Answers, training: Training, request: SumRequest, random: RandomBytes) -> Released[Any]:
    """The answer to a request, with noise."""
    if isinstance(request, NodeRequest) and request.kind == "node_gains" and isinstance(training, Policy):
        gains = rows.node_gains(request, training.described)
        n_nodes, n_candidates = gains.shape
        chosen, event = exponential(
            gains.reshape(-1),
            starts=np.arange(n_nodes + 1) * n_candidates,
            multiplicity=np.ones(gains.size, np.int64),
            sensitivity=request.gain_sensitivity,
            epsilon=request.choice_epsilon,
            random=random,
            magnitude=request.largest_gain,
        )
        return Released(chosen.group % n_candidates, event)
    rate = training.rate if request.kind != "misfits" else 1.0
    if isinstance(request, NodeRequest):
        exact = rows.node_answer(request)
    else:
        exact = rows.answer(request, chosen=None if rate == 1.0 else sample_of(rows.n_rows, rate, random))
    released = discrete_gaussian(exact, sensitivity=request.sensitivity, sigma=request.sigma, random=random)
    if rate == 1.0 or isinstance(released.event, NonPrivate):
        return released
    return Released(released.values, PoissonSampled(rate, released.event))


def sample_of(n_rows: int, rate: float, random: RandomBytes) -> Bytes:
    """1 for each row that takes part: with chance `rate`, a multiple of 2^-32, for each by itself."""
    words = np.frombuffer(random.bytes(4 * n_rows), "<u4")
    return (words < int(rate * 2.0**32)).astype(np.uint8)


# --- words ---------------------------------------------------------------------------------------------------------


def _statement(
    settings: GaussianSettings, training: Training, event: Event, on_bad_rows: OnBadRows
) -> PrivacyStatement:
    facts: dict[str, Any] = {"policy": settings.policy}
    if training.n_misfits is not None:
        facts[MISFITS_FACT] = training.n_misfits
    stages = training.stages()
    if training.reserve:
        how = "discrete Gaussian noise on a count"
        stages.insert(0, Stage("number of misfits", how, share=training.reserve, releases=1, words=MISFITS))
    accountant = training.budget.accountant
    return PrivacyStatement(
        protocol=PROTOCOL,
        epsilon=settings.epsilon,  # not what was spent: that may be less, but depends on what was released
        delta=settings.delta,
        adjacency=accountant.adjacency,
        event=event,
        stages=tuple(stages),
        accountant=accountant.description,
        not_private=given_up(PROTOCOL, settings.epsilon, on_bad_rows),
        chance_beyond=None if math.isinf(settings.epsilon) else _chance_beyond(settings, accountant),
        audit=audit_of(PROTOCOL, settings.epsilon) if settings.policy == "smooth_then_trees" else None,
        facts=facts,
    )


def _chance_beyond(settings: GaussianSettings, accountant: Accountant) -> float:
    """From the larger of two curves: that of the plan, which is what is claimed, and that of what was released.

    The latter has the distance of real samplers to ideal ones, which plans leave out. With samples of rows both are the
    same releases, and one is enough.
    """
    if settings.subsample < 1.0:
        return chance_beyond(settings.epsilon, accountant.delta)
    planned = type(accountant)(accountant.adjacency)
    planned.compose(planned_event(settings))
    return chance_beyond(settings.epsilon, lambda t: max(planned.delta(t), accountant.delta(t)))
