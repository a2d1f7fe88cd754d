"""What vertical.noised_gradients claims and does not claim, put to the test on what feature holders really received."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from experiments.label_guesses import from_noised_gradients as attack
from hedgerow.attacks.noised_gradients.noised_labels import gradients_of_scores
from hedgerow.attacks.results import ceiling
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams, Loss
from hedgerow.engine.table import read_table
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import from_dict
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients, NoisyLevel
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, plain_quantiser
from hedgerow.protocols.vertical.noised_gradients.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import play, replay
from hedgerow.transport.transcripts import Recording

N_ROWS, N_TREES, DELTA = 8000, 8, 1e-5
LOSS = Loss("logistic", 2)


def make_data(seed=0):
    """Labels and a column with the bank, three columns with the shop; all of them say something about the labels."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(N_ROWS, 4))
    labels = (values @ [0.5, 1.0, 0.7, 0.3] + rng.normal(size=N_ROWS) > 0.5).astype(np.float64)
    tables = [
        read_table(pd.DataFrame(own)) for own in ({"a": values[:, 0]}, dict(zip("bcd", values.T[1:], strict=True)))
    ]
    return labels, tables


class Run:
    """A run of bank and shop, and what the shop received."""

    def __init__(self, labels=None, **options):
        given, (own, theirs) = make_data()
        self.labels = given if labels is None else labels
        settings = {"epsilon": 4.0, "delta": DELTA, "per": "tree"} | options
        self.job = NoisedGradientsJob(
            ("bank", "shop"), "bank", "r", boosting=BoostingParams(n_iterations=N_TREES, max_depth=3), **settings
        )
        self.shop = PartyData(theirs)
        data = {"bank": PartyData(own, self.labels, (0, 1)), "shop": self.shop}
        with pytest.MonkeyPatch.context() as patch:  # the same noise every time
            patch.setattr("hedgerow.runtime.party.SecureRandom", lambda: SecureRandom.from_seed(bytes(32)))
            self.played = play(PROTOCOL, self.job, data, around={"bank": Recording, "shop": Recording})
        assert self.played.errors == {}
        self.meta = self.played.results["bank"].ensemble.meta

    def received(self, kind=NoisyGradients):
        """All messages of one kind, as the shop got them."""
        return self.played.recording("shop").messages(kind, "received", "bank")

    def attacked(self, sigma=None, confidence=0.999):
        """Labels from what the shop received, by a shop that follows the scores."""
        noise = LabelNoise.plan(self.job, LOSS, N_ROWS)
        gradients = np.array([message.gradients for message in self.received()]) / noise.scale
        seen = gradients_of_scores(self.played.recording("shop").transcript(), self.shop, self.job)
        scores = seen[: len(gradients)] / noise.scale
        scores[0] = 0.0  # the first message is about the labels alone
        sigmas = [noise.sigma_of_gradient if sigma is None else sigma] * len(gradients)
        return attack(gradients, 0.5 + scores, sigmas, self.labels, confidence=confidence)


# --- what holds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1.0},
        {"epsilon": 4.0},
        {"epsilon": 8.0},
        {"epsilon": 8.0, "per": "run"},
        {"epsilon": 8.0, "score": "first_order"},
    ],
    ids=str,
)
def test_the_best_attack_reaches_the_ceiling_and_no_more(options):
    """A shop that knows all scores and adds up all trees: Phi(mu / sqrt 2), and mu is that of the budget."""
    run = Run(**options)
    result = run.attacked()
    assert result.n_releases == (1 if run.job.per == "run" else N_TREES)
    assert result.mu == pytest.approx(mu_for(options["epsilon"], DELTA), rel=1e-3)
    assert result.mu == pytest.approx(run.meta["privacy"]["mu"], rel=1e-3)
    assert result.area.low <= result.ceiling <= result.area.high
    assert not result.refutes
    assert run.meta["stamp"] is None


def test_noise_that_is_too_weak_is_caught(monkeypatch):
    """Half of the noise that the event states: the attack is above the ceiling."""

    def weak(self, exact, random):
        released = honest(self, exact, random)
        return released._replace(values=exact + (released.values - exact) // 2)

    honest = LabelNoise.release
    monkeypatch.setattr(LabelNoise, "release", weak)
    result = Run(epsilon=4.0).attacked()
    assert result.refutes
    assert result.verdict().startswith("ALARM")


def test_everything_the_bank_says_follows_from_the_noisy_gradients(monkeypatch):
    """Other labels, but the same released numbers: the shop gets the same frames, and the model is the same.

    So splits, winners, leaf values and base score are processing of what was released. With exact leaf values, for
    instance, later gradients would depend on labels in ways that no noise was made for.
    """
    drawn = np.random.default_rng(5)
    numbers = [drawn.normal(scale=2e5, size=N_ROWS).astype(np.int64) for _ in range(N_TREES)]

    def fixed(self, exact, random):
        released = honest(self, exact, random)
        return released._replace(values=next(stream))

    honest = LabelNoise.release
    monkeypatch.setattr(LabelNoise, "release", fixed)
    runs = []
    for labels in (make_data()[0], 1.0 - make_data(seed=1)[0]):
        stream = iter(numbers)
        runs.append(Run(labels))
    first, second = ([passed.frame for passed in run.played.recording("shop").passed] for run in runs)
    assert len(first) > 3 * N_TREES
    assert first == second
    models = [run.played.results["bank"].to_dict() for run in runs]
    assert models[0] == models[1]


def test_the_shop_could_play_its_role_alone():
    """What it ends with follows from its columns and the frames it received: that is all it knows."""
    run = Run()
    again = replay(PROTOCOL, run.job, run.shop, run.played.recording("shop"))
    assert again.to_dict() == run.played.results["shop"].to_dict()


def test_the_ledger_adds_up_to_the_budget():
    """Every noisy message stands in the bank's ledger with its event; together they cost what was asked for."""
    run = Run(epsilon=2.0)
    accountant = GaussianDP("replace_one")
    lines = [line for line in run.played.parties["bank"].ledger if line.message == NoisyGradients.NAME]
    for line in lines:
        accountant.compose(from_dict(line.event))
    assert len(lines) == N_TREES
    assert accountant.epsilon(DELTA) == pytest.approx(2.0, rel=1e-3)
    assert accountant.epsilon(DELTA) <= 2.0


def test_two_shops_together_know_no_more_than_one():
    """All feature holders get the same noisy numbers, so there is nothing to average between them."""
    labels, (own, theirs) = make_data()
    job = NoisedGradientsJob(
        ("bank", "shop", "club"),
        "bank",
        "r",
        boosting=BoostingParams(n_iterations=3, max_depth=2),
        epsilon=4.0,
        delta=DELTA,
        per="tree",
    )
    data = {"bank": PartyData(own, labels, (0, 1)), "shop": PartyData(theirs), "club": PartyData(own)}
    played = play(PROTOCOL, job, data, around=dict.fromkeys(data, Recording))
    assert played.errors == {}
    both = [played.recording(name).messages(NoisyGradients, "received", "bank") for name in ("shop", "club")]
    assert len(both[0]) == 3
    assert all((one.gradients == other.gradients).all() for one, other in zip(*both, strict=True))


# --- what does not hold, and is not claimed --------------------------------------------------------------------------


def test_without_noise_every_label_is_plain():
    """epsilon=inf: the signs of the first message are the labels, and the model is stamped for it."""
    run = Run(epsilon=math.inf, delta=None)
    scale = plain_quantiser(run.job, LOSS, N_ROWS).gradient_scale
    gradients = np.array([message.gradients for message in run.received()]) / scale
    for n_trees in (1, N_TREES):
        result = attack(gradients[:n_trees], None, [0.0] * n_trees, run.labels)
        assert result.accuracy.estimate >= 0.98
    assert run.meta["stamp"] == "NOT PRIVATE"


def test_an_epsilon_per_message_is_none_of_the_run():
    """per="message", as published: each message keeps to its epsilon, their mean tells far more. It is stamped."""
    run = Run(epsilon=1.0, per="message")
    noise = LevelNoise.plan(run.job, LOSS, N_ROWS)
    messages = run.received(NoisyLevel)
    gradients = np.array([message.gradients for message in messages]) / noise.gradient_scale
    sigma = noise.gradient_sigma / noise.gradient_scale
    allowed = ceiling(mu_for(1.0, DELTA))
    assert len(messages) >= 2 * N_TREES
    first = attack(gradients[:1], None, [sigma], run.labels, confidence=0.999)
    assert first.area.low <= allowed
    together = attack(gradients, None, [sigma] * len(gradients), run.labels, confidence=0.999)
    assert together.area.low > allowed + 0.05
    assert run.meta["stamp"] == "PER MESSAGE"
    assert run.meta["privacy"]["epsilon"] is None
