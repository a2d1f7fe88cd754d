"""Labels from noisy gradients: as much as the guarantee allows, no more, and everything where there is no noise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from experiments.label_guesses import from_noised_gradients as attack
from experiments.label_guesses import total_mu
from hedgerow.attacks.noised_gradients.noised_labels import label_scores
from hedgerow.attacks.results import ceiling
from hedgerow.errors import InvalidInput, InvalidParameter

N_ROWS = 20_000


def released(sigma, n_trees, seed=0, noise_factor=1.0, ones=0.3):
    """Labels, noisy gradients and p of every tree; scores follow the released gradients alone, as the protocol asks."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(N_ROWS) < ones).astype(np.int64)
    groups = (rng.integers(0, 20, N_ROWS) + 6 * labels) % 25  # a column that says something about the label
    scores = np.zeros(N_ROWS)
    gradients, probabilities = [], []
    for _ in range(n_trees):
        p = 1.0 / (1.0 + np.exp(-scores))
        noisy = p - labels + noise_factor * sigma * rng.normal(size=N_ROWS)
        gradients.append(noisy)
        probabilities.append(p)
        scores -= 2.0 * (np.bincount(groups, noisy) / np.bincount(groups))[groups]
    return labels, np.array(gradients), np.array(probabilities)


@pytest.mark.parametrize(("sigma", "n_trees"), [(20.0, 10), (5.0, 10), (3.0, 20), (1.0, 1)])
def test_the_adversary_reaches_the_ceiling_and_does_not_pass_it(sigma, n_trees):
    """The area is Phi(mu / sqrt 2), mu = sqrt(trees) / sigma, up to what so many rows can show."""
    labels, gradients, probabilities = released(sigma, n_trees)
    result = attack(gradients, probabilities, [sigma] * n_trees, labels, confidence=0.999)
    assert result.mu == pytest.approx(math.sqrt(n_trees) / sigma)
    assert result.area.low <= result.ceiling <= result.area.high
    assert result.area.estimate == pytest.approx(result.ceiling, abs=0.012)
    assert not result.refutes
    assert result.accuracy.estimate > result.chance - 0.01
    assert "not contradicted" in result.verdict()


def test_ceilings_of_the_usual_epsilons():
    """At delta 1e-5 epsilon 0.5, 1, 2, 4 and 8 are these mu, and allow these areas."""
    mus = (0.1422, 0.2681, 0.5016, 0.9249, 1.6660)
    assert [round(ceiling(mu), 3) for mu in mus] == [0.540, 0.575, 0.639, 0.743, 0.881]


def test_every_tree_is_one_more_look():
    """The same noise per tree: more trees, more labels."""
    areas = [attack(g, p, [5.0] * n, y).area.estimate for n in (1, 10, 60) for y, g, p in [released(5.0, n)]]
    assert areas[0] + 0.1 < areas[1]
    assert areas[1] + 0.1 < areas[2]


def test_noise_that_is_too_weak_is_noticed():
    """Half the noise that is claimed: the area is above the ceiling, and that is no chance."""
    labels, gradients, probabilities = released(5.0, 10, noise_factor=0.5)
    result = attack(gradients, probabilities, [5.0] * 10, labels, confidence=0.999)
    assert result.refutes
    assert result.verdict().startswith("ALARM")


def test_without_noise_labels_are_plain():
    """The sign of a gradient is the label, whether p is known or not, after one tree or after ten."""
    labels, gradients, probabilities = released(0.0, 10)
    for n_trees, known in ((1, None), (10, None), (10, probabilities)):
        result = attack(gradients[:n_trees], known, [0.0] * n_trees, labels)
        assert result.accuracy.estimate == 1.0
        assert result.ceiling == 1.0


def test_one_tree_without_noise_is_enough():
    """It has all the weight: the noise of the others does not matter."""
    labels, gradients, probabilities = released(5.0, 3)
    gradients[1] = probabilities[1] - labels
    result = attack(gradients, probabilities, [5.0, 0.0, 5.0], labels)
    assert result.accuracy.estimate == 1.0
    assert result.mu == math.inf


def test_who_does_not_know_the_model_sees_less():
    """Without p the adversary takes the model's own progress for noise."""
    labels, gradients, probabilities = released(2.0, 20)
    known = attack(gradients, probabilities, [2.0] * 20, labels)
    unknown = attack(gradients, None, [2.0] * 20, labels)
    assert 0.6 < unknown.area.estimate < known.area.estimate
    assert (known.knows_scores, unknown.knows_scores) == (True, False)


def test_looks_are_weighted_by_their_noise():
    """Trees with different noise: weights 1 / sigma^2, and mu is that of all together."""
    rng = np.random.default_rng(1)
    labels = (rng.random(N_ROWS) < 0.5).astype(np.int64)
    sigmas = [1.0, 4.0, 4.0, 8.0]
    gradients = np.array([0.5 - labels + sigma * rng.normal(size=N_ROWS) for sigma in sigmas])
    result = attack(gradients, np.full((4, 1), 0.5), sigmas, labels, confidence=0.999)
    assert result.mu == pytest.approx(math.sqrt(1 + 2 / 16 + 1 / 64))
    assert result.area.low <= result.ceiling <= result.area.high
    assert label_scores(gradients, np.full((4, 1), 0.5), sigmas) == pytest.approx(
        0.5 - np.average(gradients, axis=0, weights=[64, 4, 4, 1])
    )


def test_results_are_json():
    """For statements; infinity, which JSON does not have, is null."""
    labels, gradients, probabilities = released(5.0, 2)
    read = json.loads(json.dumps(attack(gradients, probabilities, [5.0, 5.0], labels).to_dict(), allow_nan=False))
    assert read["n_releases"] == 2
    assert read["area"]["low"] < read["area"]["high"]
    plain = attack(gradients, None, [0.0, 0.0], labels).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["mu"] is None


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"gradients": np.zeros(4)}, InvalidInput, "per release and row"),
        ({"gradients": np.full((2, 4), np.nan)}, InvalidInput, "finite"),
        ({"probabilities": np.zeros((2, 2, 4))}, InvalidInput, "do not fit"),
        ({"labels": np.array([0, 1, 2, 0])}, InvalidInput, "0 or 1"),
        ({"labels": np.array([0, 1])}, InvalidInput, "per row"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, words):
    """With the reason."""
    given = {"gradients": np.zeros((2, 4)), "probabilities": None, "sigmas": [1.0, 1.0], "labels": np.arange(4) % 2}
    with pytest.raises(error, match=words):
        attack(**(given | change))


def test_every_release_needs_its_sigma():
    """A negative one is none."""
    with pytest.raises(InvalidParameter, match="sigma"):
        total_mu([1.0, -1.0])
    with pytest.raises(InvalidParameter, match="sigma"):
        total_mu([])
