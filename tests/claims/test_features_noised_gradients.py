"""What vertical.noised_gradients proves with classes, weights and early stopping, and what its statement says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow import Federation
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.boosting import METRICS
from hedgerow.engine.losses import Loss
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.events import Repeated, from_dict
from hedgerow.protocols.vertical.common.messages import LearningRows, Onward
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.looks import STEPS, Looks, terms
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients
from hedgerow.protocols.vertical.noised_gradients.noise import ADJACENCY, LabelNoise
from twins.vertical import make_data, make_job

RNG = np.random.default_rng(3)
N_ROWS = 120
X = {"bank": RNG.normal(size=(N_ROWS, 2)), "shop": RNG.normal(size=(N_ROWS, 2))}
Y = (X["bank"][:, 0] + X["shop"][:, 0] > 0).astype(np.int64)
SMALL = {"epsilon": 2.0, "delta": 1e-5, "max_iter": 4, "max_depth": 2, "random_state": 5}


def job(**options):
    """A job with noise."""
    return make_job(NoisedGradientsJob, make_data(2, n_rows=40, n_columns=4), epsilon=2.0, delta=1e-5, **options)


def fit(y=Y, **more):
    """A small run between a bank and a shop, everything recorded."""
    own = {name: more.pop(name) for name in ("sample_weight", "validation") if name in more}
    federation = Federation.vertical(X, labels=("bank", y), **own)
    return federation.fit("vertical.noised_gradients", **SMALL, **more, record=True)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_changed_label_moves_two_gradients_of_its_row(n_classes):
    """In L2 by exactly what the event says, whichever classes: sqrt(2) times what one class is worth."""
    noise = LabelNoise.plan(job(), Loss("softmax", n_classes), 40)
    labels = RNG.integers(0, n_classes, 40).astype(np.float64)
    exact = noise.from_labels(labels)
    assert exact.shape == (n_classes, 40)
    for other in range(n_classes):
        changed = labels.copy()
        changed[7] = other
        moved = noise.from_labels(changed) - exact
        assert np.linalg.norm(moved) == (0.0 if other == labels[7] else pytest.approx(noise.sensitivity))
        assert not moved[:, np.arange(40) != 7].any()
    assert noise.event.coordinates == n_classes * 40


@pytest.mark.parametrize(("loss", "metric"), [("logistic", "logloss"), ("logistic", "error"), ("softmax", "mlogloss")])
def test_one_label_moves_a_look_by_one_term_at_most(loss, metric):
    """What a row adds lies between 0 and the bound, whatever the score says."""
    n_classes = 2 if loss == "logistic" else 4
    raw = RNG.normal(scale=30.0, size=(50, 1 if n_classes == 2 else n_classes))
    for label in range(n_classes):
        values, bound = terms(metric, Loss(loss, 1 if n_classes == 2 else n_classes), np.full(50, float(label)), raw)
        assert ((values >= 0.0) & (values <= bound + 1e-12)).all()


def test_looks_at_numbers_are_bounded_by_the_label_range():
    """Predictions and labels far outside count as its ends."""
    for metric, most in (("rmse", 16.0), ("mae", 4.0)):
        values, bound = terms(
            metric, Loss("squared", 1, (-1.0, 3.0)), RNG.normal(size=9) * 50, RNG.normal(size=(9, 1)) * 50
        )
        assert bound == most
        assert values.max() <= most


def test_all_looks_together_cost_the_budget():
    """The accountant says so for as many looks as there can be."""
    planned = job(n_iterations=7)
    accountant = GaussianDP(ADJACENCY)
    accountant.compose(Repeated(Looks.plan(planned).event, 7))
    assert accountant.epsilon(1e-5) == pytest.approx(2.0, rel=1e-3)
    assert accountant.epsilon(1e-5) <= 2.0


def test_a_look_has_the_noise_that_its_event_states():
    """Standard deviation of many looks at the same rows, beside that of the event."""
    looks, random = Looks.plan(job(n_iterations=3)), SecureRandom.from_seed(bytes(32))
    labels, raw = np.zeros(1000), np.zeros((1000, 1))
    found = [looks.look(METRICS["error"], Loss("logistic"), labels, raw, None, random) for _ in range(2000)]
    assert np.std(found) == pytest.approx(looks.sigma / STEPS / 1000, rel=0.08)


def test_labels_that_are_watched_are_in_no_gradient():
    """The same noise for other labels of watched rows: the shop receives the same gradients, bit for bit."""
    watched = np.arange(N_ROWS) % 4 == 0
    seen = []
    for y in (Y, np.where(watched, 1 - Y, Y)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hedgerow.runtime.party.SecureRandom", lambda: SecureRandom.from_seed(bytes(32)))
            run = fit(y, validation=watched, early_stopping=True)
        (message,) = run.transcripts["shop"].messages(NoisyGradients, "received")
        seen.append(message.gradients)
        assert not message.gradients[watched].any()
    np.testing.assert_array_equal(*seen)


def test_early_stopping_is_paid_and_said():
    """Every answer stands in the ledger with the event of a look; the statement says who knows what."""
    run = fit(early_stopping=True, validation_fraction=0.25, n_iter_no_change=1)
    events = [line.event for line in run.ledgers["bank"] if line.message == Onward.NAME]
    assert events
    assert {from_dict(event) for event in events} == {Looks.plan(run.job).event}
    privacy = run.model.meta["privacy"]
    assert privacy["epsilon"] <= 2.0
    assert len(run.model.meta["learning_curve"]["logloss"]) == len(events)
    text = " ".join(str(run.statement()).split())
    for words in (
        "shop know which rows are watched for early stopping",
        "Labels of rows that are watched were sent to nobody",
        "no label is both learned from and watched",
        "Which rows are watched is public and was not chosen by these labels",
        "After each iteration shop learned whether the rows that bank watches still improve",
    ):
        assert words in text


def test_rows_to_watch_are_drawn_without_regard_to_labels():
    """Other labels, the same draw: it is told to everybody."""
    drawn = []
    for y in (Y, RNG.permutation(Y)):
        run = fit(y, early_stopping=True)
        (told,) = run.transcripts["shop"].messages(LearningRows, "received")
        drawn.append(told.watched.tobytes())
    assert drawn[0] == drawn[1]


def test_weights_are_told_and_the_statement_says_so():
    """The shop gets them as they are; noise does not depend on them."""
    weight = RNG.integers(1, 4, N_ROWS).astype(np.float64)
    run = fit(sample_weight=weight)
    (told,) = run.transcripts["shop"].messages(LearningRows, "received")
    np.testing.assert_array_equal(told.weight, weight)
    noise, plain = (LabelNoise.plan(run.job, Loss("logistic"), N_ROWS, given) for given in (weight, None))
    assert noise.sigma_of_gradient == pytest.approx(plain.sigma_of_gradient, rel=1e-3)
    text = " ".join(str(run.statement()).split())
    assert "shop know the weights of rows. Noise is the same for all of them." in text
    assert "Weights of rows are public and were not made from these labels." in text


@pytest.mark.parametrize("more", [{}, {"subsample": 0.7}, {"colsample_bytree": 0.6}, {"per": "tree"}])
def test_three_classes_with_noise_cost_what_was_asked_for(more):
    """The model is of three classes, and its releases add up to the budget."""
    y = Y + (RNG.random(N_ROWS) < 0.3)
    run = fit(y, **more)
    assert run.model.predict_proba(X).shape == (N_ROWS, 3)
    assert math.isclose(run.model.meta["privacy"]["epsilon"], 2.0, rel_tol=1e-2)


def test_with_monotone_columns_noise_is_not_allowed_for():
    """Scores rise with a column that must rise, under noise too."""
    run = fit(monotonic_cst=[1, 0, 0, 0])
    grid = {"bank": np.column_stack([np.linspace(-2, 2, 30), np.zeros(30)]), "shop": np.zeros((30, 2))}
    assert (np.diff(run.model.decision_function(grid)) >= 0).all()
