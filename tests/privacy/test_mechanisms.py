from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare, kstest

from hedgerow.errors import FixedPointOverflow, InvalidInput, InvalidParameter
from hedgerow.privacy.events import DiscreteGaussian, DiscreteLaplace, NonPrivate, RandomisedResponse
from hedgerow.privacy.mechanisms import discrete_gaussian, discrete_laplace, laplace, randomised_response


class NoBytes:
    """Randomness that must not be asked for."""

    def bytes(self, length):
        """Fails."""
        pytest.fail(f"{length} random bytes were drawn")


# --- discrete Gaussian -----------------------------------------------------------------------------------------------


def test_value_and_event_are_born_together():
    """The noise has the scale that the event states, in the shape of the values, around the values."""
    values = np.full((300, 100), 10**12)
    released = discrete_gaussian(values, sensitivity=3.0, sigma=500.0, random=np.random.default_rng(0), parties=4)
    assert released.event == DiscreteGaussian(3.0, 500.0, coordinates=30_000, parties=4)
    noise = released.values - values
    assert noise.shape == (300, 100)
    assert abs(noise.std() / 500 - 1) < 0.02
    assert abs(noise.mean()) < 15
    assert (values == 10**12).all()


def test_no_noise_is_named():
    """Sigma 0 gives a copy of the values, and an event that says so."""
    values = np.arange(3)
    released = discrete_gaussian(values, sensitivity=1.0, sigma=0.0, random=np.random.default_rng(0))
    assert isinstance(released.event, NonPrivate)
    assert released.values.tolist() == [0, 1, 2]
    assert released.values is not values


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros(3, np.int32), [1, 2]])
def test_only_whole_numbers_of_64_bits(values):
    """Floats are refused: rounding them here would change their sensitivity unseen."""
    with pytest.raises(InvalidParameter, match="int64"):
        discrete_gaussian(values, sensitivity=1.0, sigma=1.0, random=np.random.default_rng(0))


@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_sums_leave_room_for_noise(value):
    """A sum near the end of 64 bits is refused, so that noise never wraps round."""
    with pytest.raises(FixedPointOverflow, match="room for noise"):
        discrete_gaussian(np.array([value]), sensitivity=1.0, sigma=1.0, random=np.random.default_rng(0))


# --- discrete Laplace ------------------------------------------------------------------------------------------------


def test_discrete_laplace_noise_is_what_its_event_says():
    """The scale is sensitivity / epsilon, rounded up by nothing that shows, and so is the noise's."""
    values = np.full((200, 500), -(10**12))
    released = discrete_laplace(values, sensitivity=3.0, epsilon=0.7, random=np.random.default_rng(0))
    assert isinstance(released.event, DiscreteLaplace)
    assert released.event.epsilon <= 0.7
    assert released.event.scale == pytest.approx(3 / 0.7, rel=1e-14)
    noise = released.values - values
    assert noise.shape == (200, 500)
    q = math.exp(-0.7 / 3)
    assert abs((noise == 0).mean() - (1 - q) / (1 + q)) < 5 * math.sqrt(0.12 * 0.88 / 1e5)
    assert abs((noise**2).mean() / (2 * q / (1 - q) ** 2) - 1) < 0.05


@pytest.mark.parametrize("epsilon", [1 / 3, 0.1, 7.7, 1e-6, 123.456])
@pytest.mark.parametrize("sensitivity", [1.0, 1 / 3, 17.0, 1e5])
def test_no_event_has_more_epsilon_than_asked_for(epsilon, sensitivity):
    """As exact fractions, not only as floats."""
    for mechanism, values in ((discrete_laplace, np.zeros(0, np.int64)), (laplace, np.zeros(0))):
        event = mechanism(values, sensitivity=sensitivity, epsilon=epsilon, random=NoBytes()).event
        assert Fraction(event.sensitivity) / Fraction(event.scale) <= Fraction(epsilon)
        assert event.epsilon == pytest.approx(epsilon, rel=1e-12)


def test_empirical_loss_of_discrete_laplace_is_below_the_claim():
    """Outcomes for counts 0 and 1 differ in frequency by a factor of about e^epsilon, and by no more."""
    n, epsilon = 300_000, 1.0
    first, second = (
        discrete_laplace(
            np.full(n, value), sensitivity=1.0, epsilon=epsilon, random=np.random.default_rng(value)
        ).values
        for value in (0, 1)
    )
    for limit in (-2, 0, 1, 3):
        low, high = sorted([(first <= limit).mean(), (second <= limit).mean()])
        assert math.log(high / low) <= epsilon + 5 * math.sqrt(2 / (n * low))
    assert math.log((first <= 0).mean() / (second <= 0).mean()) > 0.95 * epsilon


# --- Laplace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(0.9, 0.5), (1e-3, 20.0), (1e6, 1e-3), (2.0, 1e6)])
def test_laplace_noise_is_laplace_noise(sensitivity, epsilon):
    """By a Kolmogorov-Smirnov test against the real distribution, which the grid is too fine to tell from."""
    values = np.full(50_000, 0.123 * sensitivity)
    released = laplace(values, sensitivity=sensitivity, epsilon=epsilon, random=np.random.default_rng(1))
    scale = sensitivity / epsilon
    assert released.event.scale == pytest.approx(scale, rel=1e-5)
    assert released.event.scale > scale
    assert kstest((released.values - values) / scale, "laplace").pvalue > 1e-4


def test_laplace_values_lie_on_a_public_grid():
    """The grid is a power of two that depends on sensitivity, epsilon and bounds alone, never on the values."""
    for bounds, grid in ((None, 2.0**-20), ((-1.0, 1.0), 2.0**-20), ((-1e12, 0.0), 2.0**-12)):
        for value in (0.0, 1 / 3, -0.9999999):
            released = laplace(
                np.full(100, value), sensitivity=0.75, epsilon=0.5, random=np.random.default_rng(0), bounds=bounds
            ).values
            inside = released[np.abs(released) < 1e12]
            inside = inside if bounds is None else inside[(inside > bounds[0]) & (inside < bounds[1])]
            assert (inside % grid == 0.0).all()
            assert (inside % (2 * grid) != 0.0).any()


def test_values_are_rounded_to_the_nearest_half_to_even():
    """Seen where bounds ask for a coarse grid of 1/4, and the noise is far too small to be anything but 0."""
    values = np.array([0.3, 0.4, 0.125, 0.375, -0.375, -0.6])
    released = laplace(values, sensitivity=1e-9, epsilon=1e8, random=np.random.default_rng(0), bounds=(-1e15, 1e15))
    assert released.values.tolist() == [0.25, 0.5, 0.0, 0.5, -0.5, -0.5]


@pytest.mark.parametrize(("adjacency", "moved"), [("add_remove", 1), ("replace_one", 2)])
def test_rounding_is_part_of_the_sensitivity(adjacency, moved):
    """Whole numbers of neighbours, rounded the worst way, differ by no more grid units than the event allows for."""
    sensitivity, grid = 0.75, 2.0**-20
    event = laplace(np.zeros(0), sensitivity=sensitivity, epsilon=1.0, random=NoBytes(), adjacency=adjacency).event
    assert event.adjacency == adjacency
    units = event.sensitivity / grid
    assert units == sensitivity / grid + 2 * moved
    rng = np.random.default_rng(0)
    for _ in range(200):
        first = rng.uniform(-1, 1, moved)
        second = first + sensitivity * rng.dirichlet(np.ones(moved)) * rng.choice([-1, 1], moved)
        computed = [np.rint((side + rng.choice([-grid, grid], moved) / 4) / grid) for side in (first, second)]
        assert np.abs(computed[0] - computed[1]).sum() <= units


def test_values_are_clipped_before_and_after():
    """A value beyond the bounds counts as the bound, and no released value is beyond them."""
    settings = {"sensitivity": 1.0, "epsilon": 1.0, "bounds": (-0.5, 2.0)}
    inside, beyond, infinite = (
        laplace(np.full(5000, value), random=np.random.default_rng(0), **settings).values
        for value in (2.0, 1e300, math.inf)
    )
    assert (inside == beyond).all()
    assert (inside == infinite).all()
    assert (inside.min(), inside.max()) == (-0.5, 2.0)


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
def test_laplace_without_noise_is_named(bounds):
    """An infinite epsilon gives the values, within their bounds, and no random bytes are drawn."""
    values = np.array([[0.1, -5.0]])
    released = laplace(values, sensitivity=1.0, epsilon=math.inf, random=NoBytes(), bounds=bounds)
    assert released.event == NonPrivate("no noise was added")
    assert released.values.tolist() == [[0.1, -5.0 if bounds is None else -1.0]]
    assert released.values is not values
    whole = discrete_laplace(np.arange(3), sensitivity=1.0, epsilon=math.inf, random=NoBytes())
    assert whole.values.tolist() == [0, 1, 2]
    assert whole.event == NonPrivate("no noise was added")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, InvalidParameter, "epsilon"),
        ({"epsilon": math.nan}, InvalidParameter, "epsilon"),
        ({"epsilon": 2.0**-60}, InvalidParameter, "scale"),
        ({"sensitivity": 0.0}, InvalidParameter, "sensitivity"),
        ({"sensitivity": math.inf}, InvalidParameter, "sensitivity"),
        ({"sensitivity": 1e-300}, InvalidParameter, "other units"),
        ({"bounds": (1.0, 0.0)}, InvalidParameter, "bounds"),
        ({"bounds": (0.0, math.inf)}, InvalidParameter, "bounds"),
        ({"bounds": (0.0, 1e300)}, InvalidParameter, "other units"),
        ({"adjacency": "both"}, InvalidParameter, "adjacency"),
        ({"values": np.zeros(3, np.float32)}, InvalidParameter, "float64"),
        ({"values": np.array([0.0, math.nan])}, InvalidInput, "missing"),
        ({"values": np.array([0.0, 1e12])}, FixedPointOverflow, "bounds"),
        ({"values": np.array([0.0, -math.inf])}, FixedPointOverflow, "bounds"),
    ],
)
def test_laplace_refuses_what_it_cannot_do(change, error, words):
    """Each with its name."""
    settings = {"values": np.zeros(3), "sensitivity": 1.0, "epsilon": 1.0, "random": np.random.default_rng(0)} | change
    with pytest.raises(error, match=words):
        laplace(**settings)


# --- randomised response ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
@pytest.mark.parametrize(("categories", "epsilon"), [(2, 0.5), (5, 2.0), (200, 6.0)])
def test_codes_are_kept_or_replaced_by_any_other(dtype, categories, epsilon):
    """The true code with its probability, all others alike, by a chi-square test; kind and shape stay."""
    n, true = 200_000, categories - 2
    codes = np.full((n // 4, 4), true, dtype)
    released = randomised_response(codes, categories=categories, epsilon=epsilon, random=np.random.default_rng(2))
    assert released.event == RandomisedResponse(categories, epsilon)
    assert (released.values.dtype, released.values.shape) == (codes.dtype, codes.shape)
    assert (codes == true).all()
    keep = math.exp(epsilon) / (math.exp(epsilon) + categories - 1)
    expected = np.full(categories, n * (1 - keep) / (categories - 1))
    expected[true] = n * keep
    found = np.bincount(released.values.ravel(), minlength=categories)
    assert chisquare(found, expected, sum_check=False).pvalue > 1e-4


def test_empirical_loss_of_randomised_response_is_the_claim():
    """The frequency of an answer for two different codes differs by a factor of e^epsilon."""
    n, epsilon = 400_000, 1.2
    answers = [
        randomised_response(np.full(n, code), categories=4, epsilon=epsilon, random=np.random.default_rng(code)).values
        for code in (0, 3)
    ]
    for answer in (0, 3):
        low, high = sorted((given == answer).mean() for given in answers)
        assert abs(math.log(high / low) - epsilon) < 5 * math.sqrt(2 / (n * low))


def test_randomised_response_against_opendp(opendp):
    """opendp's randomised response at the probability of our epsilon has our epsilon and our distribution."""
    epsilon = 1.5
    keep = math.exp(epsilon) / (math.exp(epsilon) + 3)
    reference = opendp.m.make_randomized_response([0, 1, 2, 3], prob=keep)
    assert reference.map(1) == pytest.approx(epsilon)
    theirs = np.bincount([reference(1) for _ in range(3000)], minlength=4)
    ours = randomised_response(
        np.ones(60_000, np.int64), categories=4, epsilon=epsilon, random=np.random.default_rng(0)
    )
    assert chi2_contingency(np.array([theirs, np.bincount(ours.values)])).pvalue > 1e-6


def test_256_categories_fit_a_byte():
    """All codes of a byte can be given and come out; one more category does not fit."""
    codes = np.tile(np.arange(256, dtype=np.uint8), 100)
    released = randomised_response(codes, categories=256, epsilon=0.1, random=np.random.default_rng(0)).values
    assert len(np.unique(released)) == 256
    assert (released == codes).mean() < 0.02
    with pytest.raises(InvalidParameter, match="fit uint8"):
        randomised_response(codes, categories=257, epsilon=0.1, random=NoBytes())


def test_answers_without_noise_are_named():
    """An infinite epsilon gives a copy, and says so."""
    codes = np.array([0, 1, 1])
    released = randomised_response(codes, categories=2, epsilon=math.inf, random=NoBytes())
    assert released.event == NonPrivate("no noise was added")
    assert released.values.tolist() == [0, 1, 1]
    assert released.values is not codes


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, InvalidParameter, "epsilon"),
        ({"epsilon": 1e7}, InvalidParameter, "infinite"),
        ({"categories": 1}, InvalidParameter, "categories"),
        ({"codes": np.array([0, 3])}, InvalidInput, "0 .. 2"),
        ({"codes": np.array([0, -1])}, InvalidInput, "0 .. 2"),
        ({"codes": np.array([0.0])}, InvalidParameter, "uint8 or int64"),
        ({"codes": [0, 1]}, InvalidParameter, "uint8 or int64"),
    ],
)
def test_randomised_response_refuses_what_it_cannot_do(change, error, words):
    """Each with its name, and without the codes."""
    settings = {"codes": np.array([0, 1]), "categories": 3, "epsilon": 1.0, "random": NoBytes()} | change
    with pytest.raises(error, match=words):
        randomised_response(**settings)


def test_the_same_bytes_give_the_same_answers():
    """All mechanisms depend on the random bytes alone."""
    codes, values = np.arange(70_000) % 7, np.linspace(-1, 1, 70_000)
    for run in (
        lambda seed: randomised_response(codes, categories=7, epsilon=1.0, random=np.random.default_rng(seed)),
        lambda seed: laplace(values, sensitivity=1.0, epsilon=1.0, random=np.random.default_rng(seed)),
        lambda seed: discrete_laplace(codes, sensitivity=1.0, epsilon=1.0, random=np.random.default_rng(seed)),
    ):
        assert (run(0).values == run(0).values).all()
        assert (run(0).values != run(1).values).any()
