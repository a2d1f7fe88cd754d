"""Laws that every accountant keeps, over every kind of event it understands - those of another project included."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.curves import gaussian_delta, pure_delta, pure_mu
from hedgerow.privacy.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GumbelChoice,
    Laplace,
    NonPrivate,
    Parallel,
    PermuteAndFlip,
    PoissonSampled,
    RandomisedResponse,
    Repeated,
    from_dict,
)

pytestmark = pytest.mark.usefixtures("remembered_deltas")

ALL = [BasicComposition, ZeroConcentratedDP, GaussianDP, PrivacyLoss]
NOISE = [Gaussian(1.0, 4.0), DiscreteGaussian(2.0, 30.0, coordinates=10, parties=3)]
PURE = [Exponential(1.0, 0.3), PermuteAndFlip(2.0, 0.2), DiscreteLaplace(3.0, 7.0), Laplace(0.5, 2.5)]
NEARLY_PURE = [GumbelChoice(1.0, 0.3, 2.0**-130)]
SAMPLED = [PoissonSampled(0.1, NOISE[0]), PoissonSampled(0.25, PURE[0])]
UNDERSTOOD = {
    BasicComposition: PURE,
    ZeroConcentratedDP: [*NOISE, *PURE, *NEARLY_PURE],
    GaussianDP: [*NOISE, *PURE, *NEARLY_PURE],
    PrivacyLoss: [*NOISE, *PURE, *NEARLY_PURE, *SAMPLED],
}
CASES = [(make, event) for make in ALL for event in UNDERSTOOD[make]]
every_accountant = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
every_case = pytest.mark.parametrize(
    ("make", "event"), CASES, ids=[f"{make.__name__}-{event.KIND}" for make, event in CASES]
)
DELTA = 1e-6
CLOSE = 1.0 + 1e-8
"""Numerical composition is pessimistic by an amount that differs a little between two ways of saying the same."""


def spent(make, *events, delta=DELTA, adjacency="add_remove"):
    """The epsilon of these events."""
    accountant = make(adjacency)
    accountant.compose_all(events)
    return accountant.epsilon(delta)


def mixtures(make):
    """Trees of events that the accountant understands, up to three deep."""
    leaves = st.sampled_from(UNDERSTOOD[make])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda events: Composed(tuple(events))),
            st.lists(inner, min_size=1, max_size=3).map(lambda events: Parallel(tuple(events))),
            st.tuples(inner, st.integers(1, 4)).map(lambda pair: Repeated(*pair)),
        ),
        max_leaves=4,
    )


def law(examples=15):
    """A property over all accountants; few examples for the one that computes distributions."""

    def decorate(check):
        @every_accountant
        def test(make):
            settings(max_examples=4 if make is PrivacyLoss else examples, deadline=None)(
                given(mixtures(make))(lambda event: check(make, event))
            )()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


@every_case
def test_n_at_once_is_one_n_times(make, event):
    """compose(e, n), n times compose(e), and Repeated(e, n): the same number, exactly, and more than one of them."""
    at_once, one_by_one = make(), make()
    at_once.compose(event, 7)
    for _ in range(7):
        one_by_one.compose(event)
    assert at_once.epsilon(DELTA) == one_by_one.epsilon(DELTA) == spent(make, Repeated(event, 7))
    assert at_once.epsilon(DELTA) > spent(make, event)


@law()
def test_trees_repeat_as_often_as_they_say(make, event):
    """The same for whole trees."""
    twice = make()
    twice.compose(event)
    twice.compose(event)
    assert twice.epsilon(DELTA) == spent(make, Repeated(event, 2)) == spent(make, Composed((event, event)))


@law()
def test_order_does_not_matter(make, event):
    """The same events the other way round cost the same, exactly."""
    other = UNDERSTOOD[make][-1]
    assert spent(make, event, other) == spent(make, other, event)


@law()
def test_monotone(make, event):
    """One event more never costs less; a larger delta never more."""
    other = UNDERSTOOD[make][0]
    base = spent(make, event)
    assert base <= spent(make, event, other) * CLOSE
    assert spent(make, event, delta=1e-3) <= base <= spent(make, event, delta=1e-9)


@law()
def test_parallel_is_the_dearest_branch(make, event):
    """Parallel(e, e) costs e; Parallel(e, f) at least either, and at most both composed."""
    other = UNDERSTOOD[make][-1]
    assert spent(make, Parallel((event, event))) == pytest.approx(spent(make, event), rel=1e-8)
    both = spent(make, Parallel((event, other)))
    assert max(spent(make, event), spent(make, other)) <= both * CLOSE
    assert both <= spent(make, Composed((event, other))) * CLOSE


@law()
def test_epsilon_and_delta_agree(make, event):
    """At the epsilon for a delta, the delta is that one or less."""
    accountant = make()
    accountant.compose(event, 3)
    for delta in (1e-3, 1e-6, 1e-9):
        assert accountant.delta(accountant.epsilon(delta)) <= delta


@law()
def test_json_keeps_the_account(make, event):
    """An event that was written down and read again costs the same; so does all that was counted, as one event."""
    assert spent(make, from_dict(event.to_dict())) == spent(make, event)
    accountant = make()
    accountant.compose(event, 2)
    assert spent(make, accountant.event) == pytest.approx(accountant.epsilon(DELTA), rel=1e-8)


@every_case
def test_no_guarantee_is_infinite_wherever_it_hides(make, event):
    """NonPrivate in any structure: epsilon infinite, delta 1."""
    leak = NonPrivate("a mistake")
    for hidden in (leak, Composed((event, leak)), Parallel((event, leak)), Repeated(Parallel((leak,)), 2)):
        accountant = make()
        accountant.compose(hidden)
        assert (accountant.epsilon(DELTA), accountant.delta(9.0), accountant.is_private) == (math.inf, 1.0, False)
        assert make().cost(hidden) == math.inf


@dataclass(frozen=True, slots=True)
class Unheard(Event):
    """An event that no accountant knows."""

    KIND: ClassVar[str] = "unheard"


@every_case
def test_unknown_events_are_refused_wherever_they_hide(make, event):
    """Nothing is added when a part is not understood."""
    for hidden in (Unheard(), Composed((event, Unheard())), Parallel((event, Repeated(Unheard(), 2)))):
        accountant = make()
        with pytest.raises(InvalidParameter, match="cannot account for"):
            accountant.compose(hidden)
        assert accountant.epsilon(DELTA) == 0.0


@every_accountant
def test_adjacencies_do_not_mix(make):
    """An event under another adjacency is refused, also inside; randomised response is only for replace_one."""
    event = UNDERSTOOD[make][0]
    with pytest.raises(InvalidParameter, match="this accountant is for replace_one, but the event for add_remove"):
        spent(make, Parallel((event,)), adjacency="replace_one")
    response = RandomisedResponse(4, 0.5)
    assert spent(make, response, adjacency="replace_one") > 0.0
    with pytest.raises(InvalidParameter, match="but the event for replace_one"):
        spent(make, response)


@pytest.mark.parametrize("make", [BasicComposition, ZeroConcentratedDP, GaussianDP])
def test_samples_are_for_loss_distributions(make):
    """Everybody else refuses Poisson sampling, even of what is understood; nobody takes a sample of a sample."""
    with pytest.raises(InvalidParameter, match="PrivacyLoss can"):
        spent(make, PoissonSampled(0.5, UNDERSTOOD[make][0]))
    with pytest.raises(InvalidParameter, match="a sample of a sample"):
        spent(PrivacyLoss, PoissonSampled(0.5, SAMPLED[0]))
    with pytest.raises(InvalidParameter, match="not with both"):
        spent(PrivacyLoss, PoissonSampled(0.5, Composed((NOISE[0], PURE[0]))))
    with pytest.raises(InvalidParameter, match="under add_remove"):
        spent(PrivacyLoss, PoissonSampled(0.5, Gaussian(1.0, 1.0, "replace_one")), adjacency="replace_one")


@every_accountant
@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 1), (0.5, 1), (2.0, 1), (0.25, 4), (1.0, 3)])
def test_nobody_claims_less_than_the_truth_about_randomised_response(make, epsilon, times):
    """Its composition summed up exactly: every accountant's delta is at least that, at every epsilon."""
    accountant = make("replace_one")
    accountant.compose(RandomisedResponse(2, epsilon), times)
    told = 1.0 / (1.0 + math.exp(-epsilon))
    losses = [((times - 2 * k) * epsilon, math.comb(times, k) * (1 - told) ** k * told ** (times - k))
              for k in range(times + 1)]  # fmt: skip
    for at in [0.0, 0.05, 0.3 * times * epsilon, 0.9 * times * epsilon, times * epsilon]:
        truth = math.fsum(mass * -math.expm1(at - loss) for loss, mass in losses if loss > at)
        assert truth <= accountant.delta(at) * (1 + 1e-12) + 1e-16
        if make is PrivacyLoss:
            assert accountant.delta(at) <= truth * 1.001 + 1e-9


@pytest.mark.parametrize("sigma", [0.7, 2.0, 20.0])
def test_nobody_claims_less_than_the_truth_about_gaussian_noise(sigma):
    """The exact curve of one Gaussian lies below every accountant's."""
    for make in (ZeroConcentratedDP, GaussianDP, PrivacyLoss):
        accountant = make()
        accountant.compose(Gaussian(1.0, sigma))
        for at in (0.01, 0.1, 1.0, 3.0):
            assert gaussian_delta(1.0 / sigma, at) * (1 - 1e-9) <= accountant.delta(at)


@settings(max_examples=50)
@given(st.floats(0.01, 10), st.floats(0, 10))
def test_the_pure_curve(total, epsilon):
    """0 from the total on, a probability before, and never above the total variation at 0."""
    assert (pure_delta(total, epsilon) == 0.0) == (epsilon >= total)
    assert pure_delta(total, epsilon) <= pure_delta(total, 0.0) <= math.tanh(total / 2) * (1 + 1e-9)


@settings(max_examples=200)
@given(st.floats(1e-9, 50), st.floats(0, 1))
def test_a_pure_mechanism_is_gaussian_dp(epsilon, level):
    """At every level of a test, the best one misses randomised response more often than a Gaussian of that mu."""
    normal, mu = NormalDist(), pure_mu(epsilon)
    missed = max(0.0, 1.0 - math.exp(epsilon) * level, math.exp(-epsilon) * (1.0 - level))
    if 1e-12 < level < 1.0 - 1e-12:
        assert normal.cdf(normal.inv_cdf(1.0 - level) - mu) <= missed + 1e-12
    assert 0.0 < mu <= min(1.2534 * epsilon, math.sqrt(8.0 * epsilon) * 1.0001)


@pytest.mark.parametrize("epsilon", [1e-6, 9e-4, 1e-3, 0.1, 1.0, 5.0, 30.0, 36.0])
def test_no_smaller_mu_would_do(epsilon):
    """Where the two chords meet, the Gaussian is at most a, and with a millionth less of mu it would be above."""
    mu, level = pure_mu(epsilon), 1.0 / (1.0 + math.exp(epsilon))
    assert math.erfc(mu / math.sqrt(8.0)) / 2.0 <= level * (1.0 + 1e-15)
    assert math.erfc(mu * (1.0 - 1e-6) / math.sqrt(8.0)) / 2.0 > level * (1.0 - 1e-16) or epsilon < 1e-5


def test_large_epsilons_have_a_mu_too():
    """Where 1 / (1 + e^epsilon) is 0 in floating point the closed bound takes over; it never falls."""
    found = [pure_mu(float(epsilon)) for epsilon in (0.0, 100.0, 599.0, 601.0, 1e4, 1e300)]
    assert found == sorted(found)
    assert math.isfinite(found[-1])


def test_delta_zero_is_for_pure_events_only():
    """Where the curve only underflows, nothing is claimed; where it ends, the sum of all epsilons is."""
    for make in (ZeroConcentratedDP, GaussianDP, PrivacyLoss):
        assert spent(make, Gaussian(1.0, 50.0), delta=0.0) == math.inf
    assert spent(BasicComposition, Exponential(1.0, 0.25), Exponential(1.0, 0.5), delta=0.0) == 0.75
    assert spent(PrivacyLoss, Exponential(1.0, 0.25), delta=0.0) == pytest.approx(0.25, rel=1e-9)


# --- speed -----------------------------------------------------------------------------------------------------------


def trees(ensembles, each):
    """Ensembles of trees on disjoint rows, six choices and the leaves in each, no two trees alike."""
    return Composed(
        tuple(
            Parallel(
                tuple(
                    Composed((*(Exponential(1.0, 1e-3 + 1e-6 * (each * e + t)),) * 6, Laplace(1.0, 1e3 + each * e + t)))
                    for t in range(each)
                )
            )
            for e in range(ensembles)
        )
    )


@pytest.mark.parametrize("make", [BasicComposition, ZeroConcentratedDP, GaussianDP], ids=lambda make: make.__name__)
def test_a_thousand_trees_are_quick(make):
    """Checked, counted and searched in a fraction of a second, also if read from a file, without shared parts."""
    event = from_dict(trees(20, 50).to_dict())
    accountant = make()
    started = time.process_time()
    accountant.compose(event)
    assert accountant.epsilon(DELTA) > 0.0
    assert time.process_time() - started < 2.0  # 0.2 s on an idle machine; before, more than 15 s


@every_accountant
def test_what_was_added_up_is_added_up_again_after_more(make):
    """A question between two events does not freeze the answer."""
    asked, unasked = make(), make()
    for event in UNDERSTOOD[make]:
        for accountant in (asked, unasked):
            accountant.compose(event)
        assert (asked.epsilon(DELTA), asked.is_private) > (0.0, False)
    assert asked.epsilon(DELTA) == unasked.epsilon(DELTA)
    assert asked.total == unasked.total
    asked.compose(NonPrivate("a mistake"))
    assert (asked.epsilon(DELTA), asked.is_private) == (math.inf, False)


@pytest.mark.parametrize("make", [BasicComposition, ZeroConcentratedDP, GaussianDP], ids=lambda make: make.__name__)
def test_shared_parts_are_counted_as_often_as_they_are_held(make):
    """Thirty doublings of one object are a billion events; too deep is refused."""
    event = tiny = Exponential(1.0, 1e-9)
    for _ in range(30):
        event = Composed((event, event))
    assert make().cost(event) == make().cost(Repeated(tiny, 2**30))
    for _ in range(20):
        event = Composed((event, event))
    with pytest.raises(InvalidParameter, match="40 deep"):
        make().check(event)


# --- the laws, held over another project's accountants ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "make_event", "kept"),
    [
        ("pld", lambda dp: dp.GaussianDpEvent(5.0), True),
        ("rdp", lambda dp: dp.GaussianDpEvent(5.0), True),
        ("rdp", lambda dp: dp.RandomizedResponseDpEvent(0.9, 4), True),
        ("pld", lambda dp: dp.RandomizedResponseDpEvent(0.9, 4), False),
    ],
)
def test_repetition_in_dp_accounting(kind, make_event, kept):
    """Its accountant of loss distributions, which we do not use, forgets repeated randomised responses in 0.6.0."""
    dp = pytest.importorskip("dp_accounting")
    make = {"pld": dp.pld.PLDAccountant, "rdp": dp.rdp.RdpAccountant}[kind]
    relation = dp.NeighboringRelation.REPLACE_ONE
    at_once, one_by_one = make(neighboring_relation=relation), make(neighboring_relation=relation)
    at_once.compose(make_event(dp), 5)
    for _ in range(5):
        one_by_one.compose(make_event(dp))
    same = at_once.get_epsilon(DELTA) == pytest.approx(one_by_one.get_epsilon(DELTA), rel=1e-3)
    if not kept and same:
        pytest.skip("mended in the version that is installed")
    assert same == kept
