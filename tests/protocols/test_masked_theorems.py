"""MaskedXGBoost's theorems, put right: against matrices, simulation, and figures computed elsewhere."""

import math

import numpy as np
import pytest

from hedgerow.codec import to_json
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.curves import gaussian_delta
from hedgerow.protocols.published.masked_gradients.theorems import (
    MaskedNoise,
    added_up,
    calibrate_masked,
    circulant_entries,
    compose_theorem2,
    eigenvalues,
    gaussian_curve,
    largest_ratio,
    tail,
    theorem2_R,
    theorem3_delta,
)

N = 30_000


def kappa(noise, n_active, n_rows):
    """Standard deviation of the noise of a sum over n_active of the n_rows rows of a node: Theorem 1."""
    return math.sqrt(n_active * noise.C_for(n_rows)) * noise.sigma2


def covariances(ratio, n):
    """Sigma_1 (the first row is not in the active set) and Sigma_2 (it is), for sigma2 = 1."""

    def chain(m):
        return (2 * ratio + 1) * np.eye(m) - ratio * (np.roll(np.eye(m), 1, 0) + np.roll(np.eye(m), -1, 0))

    without = np.zeros((n, n))
    without[0, 0] = 2 * ratio + 1
    without[1:, 1:] = chain(n - 1)
    return without, chain(n)


@pytest.mark.parametrize("ratio", [0.01, 0.3, 2.0, 10.0])
@pytest.mark.parametrize("n", [5, 12, 40])
def test_entries_and_eigenvalues_are_those_of_the_matrices(ratio, n):
    """The closed form of a, b, c, and k as eigenvalues of Sigma_2^-1 Sigma_1 - I, both ways."""
    without, with_it = covariances(ratio, n)
    inverse = ratio * np.linalg.inv(with_it)
    assert np.allclose(circulant_entries(ratio, n), inverse[0, :3])
    for reverse, matrix in ((False, np.linalg.solve(with_it, without)), (True, np.linalg.solve(without, with_it))):
        found = np.linalg.eigvals(matrix - np.eye(n)).real
        largest = found[np.argsort(-np.abs(found))[:3]]
        assert np.allclose(sorted(eigenvalues(ratio, n, reverse=reverse)), sorted(largest), atol=1e-9)


@pytest.mark.parametrize("ratio", [0.05, 0.5, 3.0])
def test_the_determinant_lies_between_a_quarter_and_two(ratio):
    """What the proof of Theorem 3 uses of both directions."""
    for n in (4, 9, 30):
        without, with_it = covariances(ratio, n)
        assert 0.25 < np.linalg.det(with_it) / np.linalg.det(without) < 2.0


@pytest.mark.parametrize("k", [(0.4, 0.3, -0.7), (0.5, 0.5, -0.1), (0.8, -0.2, -0.3), (1.2, -0.6, -0.01)])
def test_tails_against_simulation(k):
    """The integral gives the chance that a million draws show."""
    y = np.random.default_rng(1).normal(size=(1_000_000, 3)) ** 2
    for t in (0.5, 2.0, 5.0):
        chance = tail(k, t)
        assert np.mean(y @ np.array(k) >= t) == pytest.approx(chance, abs=4 * math.sqrt(chance / 1e6) + 1e-6)


@pytest.mark.parametrize(
    ("W", "epsilon", "ratio", "digits"),
    [
        (1, 0.7, 0.0007, 4),
        (1, 1.0, 0.033, 3),
        (1, 2.0, 0.155, 3),
        (1, 4.0, 0.47, 2),
        (1, 8.0, 1.34, 2),
        (3, 2.2, 0.0037, 4),
        (3, 3.0, 0.029, 3),
        (3, 8.0, 0.22, 2),
    ],
)
def test_largest_ratio_as_published(W, epsilon, ratio, digits):
    """The theorem's own direction, delta = 1/n: the figures of the claims; both directions allow less."""
    published = largest_ratio(epsilon, 1 / N, N, W, direction="forward")
    assert published == pytest.approx(ratio, abs=1.01 * 10**-digits)
    assert theorem3_delta(epsilon, published, N, W, direction="forward") <= 1 / N
    assert theorem3_delta(epsilon, published, N, W, direction="reverse") > 1 / N
    assert 0.0 < largest_ratio(epsilon, 1 / N, N, W) < published


def test_the_reverse_tail_is_larger():
    """Where the theorem's tail is .001, that of the other direction is .0074, .0051 and .0032."""
    for epsilon, expected in ((1.0, 0.0074), (4.0, 0.0051), (8.0, 0.0032)):
        ratio = largest_ratio(epsilon, 1e-3, N, direction="forward")
        assert theorem3_delta(epsilon, ratio, N, direction="reverse") == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("epsilon", "R", "snr"), [(0.5, 0.0175, 0.066), (1, 0.067, 0.13), (4, 0.92, 0.48), (8, 3.04, 0.87)]
)
def test_the_signal_is_below_the_noise(epsilon, R, snr):
    """Theorem 2 asks for so much noise that no sum exceeds it, for any number of rows."""
    found = theorem2_R(epsilon, 1e-3)
    L = math.log(1e3)
    assert found == pytest.approx(2 * (epsilon + 2 * L - 2 * math.sqrt(L * (L + epsilon))), rel=1e-9)
    assert found == pytest.approx(R, rel=0.02)
    assert math.sqrt(found) / 2 == pytest.approx(snr, abs=6e-3)
    for n in (100, 10_000):
        noise = calibrate_masked(epsilon, 1e-3, 4.0, 1e-3, n, least_snr=0.0)
        for n_active in (n // 10, n):
            assert n_active * noise.mu / 2 / kappa(noise, n_active, n) <= noise.snr_bound * (1 + 1e-12)
        with pytest.raises(InvalidParameter, match=r"signal-to-noise ratio can exceed 0\.\d+, for any number"):
            calibrate_masked(epsilon, 1e-3, 4.0, 1e-3, n)


def test_theorem_2_is_a_gaussian_tail():
    """R is conservative: Gaussian noise of mu^2 = R has at most this delta, were B unknown."""
    for epsilon in (0.5, 2.0, 8.0):
        assert gaussian_delta(math.sqrt(theorem2_R(epsilon, 1e-3)), epsilon) <= 1e-3


def test_what_all_messages_would_add_up_to():
    """60 trees of depth 6 with 32 candidates, g and h: 23,040 messages."""
    half, one, eight = (compose_theorem2(epsilon, 1e-3, 23_040) for epsilon in (0.5, 1.0, 8.0))
    assert half.basic == (11_520.0, pytest.approx(23.04))
    assert half.gaussian == pytest.approx(262, abs=1)
    assert one.gaussian == pytest.approx(899, abs=1)
    assert eight.gaussian == pytest.approx(35_833, abs=10)
    for mu, epsilon in ((0.3, 1.0), (2.0, 4.0), (20.0, 262.0)):
        assert gaussian_curve(mu, epsilon) == pytest.approx(gaussian_delta(mu, epsilon), rel=1e-6)


def test_calibration_meets_both_theorems():
    """C from the first, the ratio from the second, both used up; a smaller node needs a smaller C."""
    noise = calibrate_masked(12.0, 1e-3, 2.0, 1 / N, N, 2, mu=1.5)
    assert noise.sigma2 == 1.0
    assert N * 1.5**2 / (noise.C * noise.sigma2**2) == pytest.approx(noise.R)
    assert theorem3_delta(2.0, noise.ratio, N, 2) == pytest.approx(1 / N, rel=1e-5)
    assert noise.C_for(N // 2) == pytest.approx(noise.C / 2)
    assert 0.0 < noise.harmless_share < 0.5
    record = calibrate_masked(2.0, 1e-3, 2.0, 1 / N, N, mu=1.0, reading="record")
    assert record.C == record.C_for(7) == pytest.approx(1 / record.R)
    total = added_up(noise, messages_ap=10, messages_pp=5)
    assert total["pp"].basic == (10.0, pytest.approx(5 / N))
    assert to_json(total["ap"])["messages"] == 10
    assert noise.to_dict()["eps_pp"] == 2.0


def test_empty_theorems_are_refused_with_their_numbers():
    """eps_pp at or below W ln 2; what is no budget at all; no theorem for given strengths."""
    with pytest.raises(InvalidParameter, match=r"empty for eps_pp=1: with W=3 .* W ln 2 = 2\.0794"):
        calibrate_masked(12.0, 1e-3, 1.0, 1e-4, N, 3)
    with pytest.raises(InvalidParameter, match=r"W ln 2 = 0\.6931"):
        calibrate_masked(12.0, 1e-3, 0.69, 1e-4, N)
    assert theorem3_delta(0.69, 0.1, N) == math.inf
    for changes in ({"delta_ap": 0.0}, {"delta_pp": 1.0}, {"eps_ap": -1.0}, {"eps_pp": math.inf}):
        given = {"eps_ap": 12.0, "delta_ap": 1e-3, "eps_pp": 2.0, "delta_pp": 1e-4} | changes
        with pytest.raises(InvalidParameter, match=rf"{next(iter(changes))[-2:]} must be"):
            calibrate_masked(**given, n=N)
    for changes in ({"n": 2}, {"n": N, "W": 0}, {"n": N, "mu": 0.0}, {"n": N, "reading": "neither"}):
        with pytest.raises(InvalidParameter, match="must be"):
            calibrate_masked(12.0, 1e-3, 2.0, 1e-4, **changes)
    with pytest.raises(InvalidParameter, match="no theorem to add up"):
        added_up(MaskedNoise(1.0, 1.0, 1.0, N), messages_ap=1, messages_pp=1)
    with pytest.raises(InvalidParameter, match="direction must be"):
        theorem3_delta(2.0, 0.1, N, direction="sideways")
    with pytest.raises(InvalidParameter, match="one or two"):
        tail((-1.0, -1.0, -1.0), 1.0)
