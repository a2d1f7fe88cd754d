"""Choices: the probabilities that run, taken from the weights themselves, and samples against them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.choices import (
    Chosen,
    _by_weight,
    _Groups,
    _heads,
    _rate,
    _weights,
    exponential,
    permute_and_flip,
)
from hedgerow.privacy.events import Exponential, NonPrivate, PermuteAndFlip

BOTH = pytest.mark.parametrize("choose", [exponential, permute_and_flip])


class Scripted:
    """Random bytes that a test has chosen: (number, how many bytes), in order."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def bytes(self, length):
        """The next number, which must have been meant to be of this length."""
        number, wanted = self.numbers.pop(0)
        assert wanted == length
        return number.to_bytes(length, "little")


def ones(n):
    """Multiplicities of n groups of one."""
    return np.ones(n, np.int64)


def one_choice(utilities, multiplicity=None):
    """The arguments of a single choice."""
    utilities = np.array(utilities, np.float64)
    multiplicity = ones(len(utilities)) if multiplicity is None else np.array(multiplicity)
    return {"utilities": utilities, "starts": np.array([0, len(utilities)]), "multiplicity": multiplicity}


def many(choose, utilities, n, seed=0, multiplicity=None, **settings):
    """n choices of the same kind in one call: groups and members chosen, counted from the choice's first group."""
    m = len(utilities)
    settings = {"sensitivity": 1.0, "epsilon": 1.0, "magnitude": 100.0} | settings
    chosen = choose(
        np.tile(np.array(utilities, np.float64), n),
        starts=np.arange(n + 1) * m,
        multiplicity=np.tile(ones(m) if multiplicity is None else np.array(multiplicity), n),
        random=np.random.default_rng(seed),
        **settings,
    ).values
    return Chosen(chosen.group - np.arange(n) * m, chosen.member)


def weights_that_run(utilities, *, epsilon, sensitivity=1.0, magnitude=1e-6, multiplicity=None):
    """The weights of one choice as fractions, without any rounding after them: what probabilities are made of."""
    groups = _Groups(**one_choice(utilities, multiplicity))
    weights = _weights(groups, _rate(sensitivity, epsilon, magnitude, 1), magnitude).floats
    return [Fraction(weight) for weight in weights.tolist()]


def by_weight(weights):
    """Probabilities of the exponential mechanism."""
    return [weight / sum(weights) for weight in weights]


def by_coins(weights):
    """Probabilities of permute-and-flip, over all outcomes of all coins."""
    chances = [Fraction(0)] * len(weights)
    for heads in product((False, True), repeat=len(weights)):
        p = math.prod(w if shown else 1 - w for w, shown in zip(weights, heads, strict=True))
        for i, shown in enumerate(heads):
            chances[i] += p / sum(heads) if shown and p else 0
    return chances


# --- distributions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("utilities", [[0, 1, 2, 3.5], [5, 5, 5], [-3, 0, -0.5, -0.5, 2, 1], [1, 0]])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize(("choose", "exact"), [(exponential, by_weight), (permute_and_flip, by_coins)])
def test_choices_have_their_probabilities(choose, exact, utilities, epsilon):
    """Twenty thousand choices at once follow exp(epsilon u / 2), or the coins, by a chi-square test."""
    n = 20_000
    best = max(utilities)
    ideal = [Fraction(math.exp(epsilon / 2 * (u - best))) for u in utilities]
    group, member = many(choose, utilities, n, epsilon=epsilon)
    expected = [n * float(p) for p in exact(ideal)]
    assert chisquare(np.bincount(group, minlength=len(utilities)), expected, sum_check=False).pvalue > 1e-4
    assert not member.any()


@BOTH
def test_a_group_is_as_good_as_its_members_alone(choose):
    """Groups with multiplicities are chosen as often as their members together; members are equally likely."""
    n, utilities, multiplicity = 30_000, [0.0, 1.0, 3.0], [7, 4, 1]
    group, member = many(choose, utilities, n, multiplicity=multiplicity)
    single, _ = many(choose, np.repeat(utilities, multiplicity), n, seed=1)
    flat = np.array([0, 7, 11])[group] + member
    table = np.array([np.bincount(chosen, minlength=12) for chosen in (flat, single)])
    assert chi2_contingency(table).pvalue > 1e-4
    assert chisquare(table[0, :7]).pvalue > 1e-4
    assert chisquare(table[0, 7:11]).pvalue > 1e-4


def test_permute_and_flip_is_never_worse():
    """At the same epsilon its expected utility is at least that of the exponential mechanism."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        utilities = rng.normal(size=5) * rng.choice([0.1, 1, 5])
        weights = weights_that_run(utilities, epsilon=1.0, magnitude=50.0)
        worth = [
            float(sum(p * Fraction(u) for p, u in zip(f(weights), utilities, strict=True)))
            for f in (by_weight, by_coins)
        ]
        assert worth[1] >= worth[0] - 1e-12


def test_against_gumbel_noise():
    """The largest with Gumbel noise, drawn in floats, is of the same distribution as far as samples can tell."""
    n, utilities = 30_000, np.array([0.0, 1.0, 2.5, 2.0])
    group, _ = many(exponential, utilities, n, epsilon=1.5)
    noise = np.random.default_rng(5).gumbel(size=(n, 4))
    twin = np.argmax(utilities * (1.5 / 2.0) + noise, axis=1)
    table = np.array([np.bincount(group), np.bincount(twin)])
    assert chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize(("choose", "measure"), [(exponential, "zCDP"), (permute_and_flip, "pure")])
def test_against_opendp(opendp, choose, measure):
    """Noisy maximum of opendp, with Gumbel or exponential noise, is of the same distribution and worth the same."""
    utilities, scale = [0.0, 1.0, 2.0, 2.5], 2.0
    space = opendp.vector_domain(opendp.atom_domain(T=float, nan=False)), opendp.linf_distance(T=float)
    divergence = opendp.max_divergence() if measure == "pure" else opendp.zero_concentrated_divergence()
    reference = opendp.m.make_noisy_max(*space, divergence, scale=scale)
    epsilon = 2.0 / scale
    assert reference.map(1.0) == pytest.approx(epsilon if measure == "pure" else epsilon**2 / 8)
    theirs = [reference(utilities) for _ in range(3000)]
    ours, _ = many(choose, utilities, 100_000, epsilon=epsilon)
    assert chi2_contingency(np.array([np.bincount(theirs, minlength=4), np.bincount(ours)])).pvalue > 1e-6


# --- privacy of what runs --------------------------------------------------------------------------------------------


def neighbours(rng, m, magnitude):
    """Two lists of utilities that differ by at most 1 each, and by up to the rounding error that is allowed for."""
    first = rng.normal(size=m) * rng.choice([0.1, 1, 30])
    second = first + rng.choice([-1.0, 1.0], m)
    error = magnitude * 2.0**-48
    return first + rng.choice([-error, error], m), second + rng.choice([-error, error], m)


@pytest.mark.parametrize("exact", [by_weight, by_coins])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_no_outcome_is_more_than_e_to_the_epsilon_times_likelier(exact, epsilon):
    """Exact probabilities of neighbours, with worst-case rounding errors of the utilities, never exceed epsilon."""
    rng = np.random.default_rng(3)
    magnitude = 2.0**36  # errors of 2^-12, so that they would show
    largest = 0.0
    for _ in range(40):
        settings = {"epsilon": epsilon, "magnitude": magnitude}
        p, q = (exact(weights_that_run(u, **settings)) for u in neighbours(rng, 5, magnitude))
        largest = max(largest, *(abs(math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)))
    assert largest <= epsilon
    assert largest > 0.3 * epsilon


@pytest.mark.parametrize("exact", [by_weight, by_coins])
def test_the_bound_is_reached(exact):
    """One candidate up by 1, all others down by 1: the loss comes close to epsilon, so nothing is wasted."""
    m = 10
    first, second = np.zeros(m), np.full(m, -1.0)
    second[0] = 1.0
    if exact is by_coins:  # the worst case there: a candidate far behind comes a little less far behind
        first[0], second[0] = -20.0, -19.0
        first[1:], second[1:] = 0.0, -1.0
        first[2:] -= 1e6
        second[2:] -= 1e6
    p, q = (exact(weights_that_run(u, epsilon=0.1, magnitude=1e7)) for u in (first, second))
    loss = math.log(q[0]) - math.log(p[0])
    assert 0.85 * 0.1 < loss <= 0.1
    if exact is by_coins:
        assert loss > 0.99 * 0.1


def test_only_the_width_of_a_change_counts():
    """Changes between -3 and 1 are as private at sensitivity 2 as changes between -2 and 2."""
    rng = np.random.default_rng(4)
    for exact in (by_weight, by_coins):
        for _ in range(30):
            first = rng.normal(size=5) * 4
            second = first + rng.choice([-3.0, 1.0], 5)
            p, q = (exact(weights_that_run(u, epsilon=1.0, sensitivity=2.0, magnitude=1e3)) for u in (first, second))
            assert max(abs(math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)) <= 1.0


def test_weights_are_near_the_ideal_ones_and_never_0():
    """A relative error below 2^-46, as the proof says, and at least 2^-41 however far behind a candidate is."""
    rate = _rate(1.0, 2.0, 1e6, 1)
    utilities = np.concatenate([[0.0], -np.random.default_rng(0).exponential(12.0, 500), [-1e5, -1e300]])
    weights = _weights(_Groups(**one_choice(utilities)), rate, 1e6).floats
    assert weights[0] == 1.0
    for weight, u in zip(weights.tolist(), utilities.tolist(), strict=True):
        x = min(-Fraction(u) * Fraction(rate), 28)
        ideal = Fraction(float(x))  # e^-x = e^-float(x) (1 - (x - float(x)))
        near = Fraction(math.exp(-float(ideal))) * (1 - (x - ideal))
        assert abs(Fraction(weight) / near - 1) < Fraction(1, 2**46)
        assert weight > 2.0**-41


def test_what_is_kept_back_pays_for_rounding():
    """The rate is below epsilon / (2 sensitivity), more so for large magnitudes and two choices that move."""
    assert 0.5 * (1 - 1e-6) < _rate(1.0, 1.0, 1e-6, 1) < 0.5 * (1 - 2.0**-27)
    assert _rate(1.0, 1.0, 2.0**47, 1) == pytest.approx(0.25)
    assert _rate(1.0, 1.0, 2.0**47, 2) == pytest.approx(1 / 6)
    alone, several = _Groups(**one_choice([1, 2])), _Groups(np.zeros(2), np.arange(3), ones(2))
    assert [g.moved(a) for g in (alone, several) for a in ("add_remove", "replace_one")] == [1, 1, 1, 2]


# --- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidates", [6, 2**20])
def test_each_group_owns_its_share_of_whole_numbers(candidates):
    """Every boundary between groups, and the number below it, goes where big-integer arithmetic says."""
    utilities = np.array([0.0, -3.0, -70.0, -55.5, -0.1, -1e3, -1e3, -1e3])
    multiplicity = np.array([1, 2, 1, 1, 1, 1, 1, 1]) * max(candidates // 8, 1)
    starts = np.array([0, 5, 8])
    groups = _Groups(utilities, starts, multiplicity)
    weights = _weights(groups, 1.0, 1e4)
    s = 62 - groups.candidates.bit_length()
    shares = [int(Fraction(w) * 4**s) * int(n) for w, n in zip(weights.floats.tolist(), multiplicity, strict=True)]
    if s >= 47:
        assert shares == [
            Fraction(w) * 4**s * int(n) for w, n in zip(weights.floats.tolist(), multiplicity, strict=True)
        ]
    totals = [sum(shares[:5]), sum(shares[5:])]
    bits = [(total >> s).bit_length() for total in totals]
    for group in range(8):
        choice = int(group >= 5)
        begin = sum(shares[5 * choice : group])
        for number in (begin, begin + shares[group] - 1):
            drawn = [number, 0] if choice == 0 else [0, number]
            upper = [(d >> s) << (64 - b) for d, b in zip(drawn, bits, strict=True)]
            lower = [(d % 2**s) << (64 - s) for d in drawn]
            words = sum(word << 64 * place for place, word in enumerate(upper + lower))
            chosen = _by_weight(groups, weights, Scripted((words, 32), (0, 16)))
            assert chosen.group.tolist() == ([group, 5] if choice == 0 else [0, group])


def test_long_and_short_choices_do_not_move_a_boundary():
    """Choices of one group to thousands: the first and the last number of random groups fall to them, to the unit."""
    rng = np.random.default_rng(6)
    sizes = np.concatenate(
        [rng.integers(1, 9, 200), rng.integers(200, 300, 20), [5000, 1, 12_000, 256, 257, 1], rng.integers(1, 9, 3000)]
    )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    multiplicity = rng.integers(1, 200, starts[-1])
    groups = _Groups(-rng.exponential(15.0, starts[-1]), starts, multiplicity)
    weights = _weights(groups, 1.0, 1e4)
    s = 62 - groups.candidates.bit_length()
    assert s < 47  # so that rounding down is part of it
    floats = weights.floats.tolist()
    shares = [int(Fraction(w) * 4**s) * n for w, n in zip(floats, multiplicity.tolist(), strict=True)]
    for last in (False, True):
        wanted = starts[:-1] + rng.integers(0, sizes)
        begins = [sum(shares[start:group]) for start, group in zip(starts[:-1], wanted, strict=True)]
        numbers = [begin + (shares[group] - 1 if last else 0) for begin, group in zip(begins, wanted, strict=True)]
        totals = [sum(shares[start:stop]) for start, stop in pairwise(starts)]
        upper, lower, shifts = weights.totals.tolist()
        assert [(u << s) + v for u, v in zip(upper, lower, strict=True)] == totals
        halves = [(n >> s) << shift for n, shift in zip(numbers, shifts, strict=True)]
        halves += [(n % 2**s) << (64 - s) for n in numbers]
        words = int.from_bytes(np.array(halves, "<u8").tobytes(), "little")
        script = Scripted((words, 8 * len(halves)), (0, 8 * len(numbers)))
        assert _by_weight(groups, weights, script).group.tolist() == wanted.tolist()


def test_numbers_that_are_too_large_are_drawn_again():
    """The sum itself is no number below the sum: it is rejected, and only that choice draws again."""
    groups = _Groups(np.array([0.0, 0.0, 0.0]), np.array([0, 3]), ones(3))
    weights = _weights(groups, 1.0, 1.0)
    assert groups.candidates.bit_length() == 2
    shift = 64 - (3 << 60).bit_length()
    words = [(3 << 60) << shift, 0], [((3 << 60) - 1) << shift, 2**64 - 1]
    script = Scripted(*((low + (high_ << 64), 16) for low, high_ in words), (0, 8))
    assert _by_weight(groups, weights, script).group.tolist() == [2]
    assert script.numbers == []


def test_coins_compare_128_bits():
    """16 bits settle a coin unless they are those of the weight; then 112 more do, to the last one."""
    weight = math.exp(-27.9)
    exact = int(Fraction(weight) * 2**128)
    first, rest = divmod(exact, 2**112)
    assert Fraction(exact, 2**128) == Fraction(weight)
    for number, heads in ((exact, []), (exact - 1, [0])):
        script = (
            Scripted((number >> 112, 2), (number % 2**112, 14)) if number >> 112 == first else Scripted((number, 2))
        )
        assert _heads(np.array([weight]), ones(1), script).tolist() == heads
    assert rest > 0
    # A weight of 1 shows heads whatever is drawn; among several members each has its own coin.
    assert _heads(np.array([1.0]), ones(1), Scripted((2**16 - 1, 2))).tolist() == [0]
    assert _heads(np.array([0.75, 0.5]), np.array([2, 1]), Scripted((0x7FFF_C001_BFFF, 6))).tolist() == [0, 2]


@BOTH
def test_the_same_bytes_give_the_same_choices(choose):
    """Choices depend on the random bytes alone."""
    utilities = np.random.default_rng(0).normal(size=40)
    first, second, other = (many(choose, utilities, 500, seed=seed).group for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


@BOTH
def test_more_candidates_than_one_round_holds(choose):
    """Long lists of uneven choices, cut anywhere: a clear favourite in each is found, wherever it stands."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 3000, 60)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    best = starts[:-1] + rng.integers(0, sizes)
    utilities = np.zeros(starts[-1])
    utilities[best] = 1e4
    multiplicity = rng.integers(1, 40, len(utilities))
    multiplicity[rng.integers(0, len(utilities))] = 40_000
    chosen, event = choose(
        utilities, starts=starts, multiplicity=multiplicity, sensitivity=1.0, epsilon=1.0, random=rng, magnitude=1e5
    )
    assert (chosen.group == best).all()
    assert (chosen.member < multiplicity[best]).all()
    assert event.epsilon == 1.0


# --- edges -----------------------------------------------------------------------------------------------------------


@BOTH
def test_the_event_says_what_was_asked_for(choose):
    """Sensitivity, epsilon and adjacency as they were given."""
    kind = Exponential if choose is exponential else PermuteAndFlip
    settings = {"sensitivity": 3.0, "epsilon": 0.25, "magnitude": 10.0, "random": np.random.default_rng(0)}
    assert choose(**one_choice([1, 2]), **settings).event == kind(3.0, 0.25)
    assert choose(**one_choice([1, 2]), **settings, adjacency="replace_one").event == kind(3.0, 0.25, "replace_one")


@BOTH
def test_no_noise_is_named(choose):
    """An infinite epsilon takes the first of the best groups and its first member, and no random bytes."""
    released = choose(
        np.array([1.0, 3.0, 3.0, -2.0, -2.0, 0.0]),
        starts=np.array([0, 3, 5, 6]),
        multiplicity=np.array([1, 5, 5, 2, 2, 9]),
        sensitivity=1.0,
        epsilon=math.inf,
        random=Scripted(),
        magnitude=1.0,
    )
    assert released.event == NonPrivate("no noise was added")
    assert released.values.group.tolist() == [1, 3, 5]
    assert released.values.member.tolist() == [0, 0, 0]


@BOTH
@pytest.mark.parametrize("utility", [0.0, -1e300, 1e300, 5e-324])
def test_a_single_candidate_is_chosen(choose, utility):
    """Whatever its utility is."""
    settings = {"sensitivity": 1.0, "epsilon": 0.1, "magnitude": 1.0, "random": np.random.default_rng(0)}
    assert choose(**one_choice([utility]), **settings).values.group.tolist() == [0]


@BOTH
def test_utilities_beyond_the_magnitude_count_as_that(choose):
    """Two that exceed the public bound are equally good, and one far below is as good as one at the lower end."""
    group, _ = many(choose, [1e9, 2.0, -5.0, -1e9], 20_000, magnitude=2.0)
    found = np.bincount(group, minlength=4)
    assert abs(found[0] - found[1]) < 5 * math.sqrt(found[0] + found[1])
    assert abs(found[2] - found[3]) < 5 * math.sqrt(found[2] + found[3])
    assert found[1] > 2 * found[2] > 0


@BOTH
def test_a_huge_epsilon_takes_the_best(choose):
    """Far-behind candidates have a chance of 2^-40 each, which nobody meets."""
    group, _ = many(choose, [0.0, 1.0, 0.5], 2000, epsilon=1e6)
    assert (group == 1).all()


@BOTH
def test_the_largest_parameters_do_not_overflow(choose):
    """No warning and no NaN at the ends of what is accepted."""
    for sensitivity, epsilon in ((2.0**-250, 2.0**250), (2.0**250, 2.0**-20)):
        group, _ = many(
            choose, [-(2.0**250), 2.0**250, 1.0], 50, sensitivity=sensitivity, epsilon=epsilon, magnitude=2.0**250
        )
        assert set(group) <= {0, 1, 2} if sensitivity > 1 else set(group) == {1}


@BOTH
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 2.0**-21}, "at least 2\\^-20"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"sensitivity": 1e200}, "sensitivity"),
        ({"magnitude": 0.0}, "magnitude"),
        ({"magnitude": math.inf}, "magnitude"),
        ({"adjacency": "both"}, "adjacency"),
    ],
)
def test_bad_parameters_are_refused(choose, change, words):
    """Each with its name."""
    settings = {"sensitivity": 1.0, "epsilon": 1.0, "magnitude": 1.0, "random": Scripted()} | change
    with pytest.raises(InvalidParameter, match=words):
        choose(**one_choice([1, 2]), **settings)


@BOTH
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"utilities": np.array([1.0, math.nan, 3.0])}, "not a finite number"),
        ({"utilities": np.array([1.0, math.inf, 3.0])}, "not a finite number"),
        ({"utilities": np.array([1.0, -math.inf, 3.0])}, "not a finite number"),
        ({"utilities": np.array([1, 2, 3])}, "utilities must be"),
        ({"utilities": np.zeros((3, 1))}, "utilities must be"),
        ({"starts": [0, 3]}, "starts must be"),
        ({"starts": np.array([0, 0, 3])}, "a candidate in every choice"),
        ({"starts": np.array([0, 2])}, "starts must rise"),
        ({"starts": np.array([0])}, "starts must rise"),
        ({"starts": np.array([0, 2, 1, 3])}, "starts must rise"),
        ({"multiplicity": np.array([1, 0, 1])}, "at least 1 candidate"),
        ({"multiplicity": np.array([1, 1])}, "3 utilities came with 2"),
        ({"multiplicity": np.array([1, 2**62, 2**62])}, "at most 2\\^26"),
        ({"multiplicity": np.array([2**25, 2**25, 1])}, "at once"),
    ],
)
def test_bad_candidates_are_refused(choose, change, words):
    """Arrays of other kinds, other lengths, or without meaning."""
    given = one_choice([1, 2, 3]) | change
    with pytest.raises(InvalidInput, match=words):
        choose(**given, sensitivity=1.0, epsilon=1.0, magnitude=1.0, random=Scripted())
