"""Noise that the dealer alone knows: it adds up and hides, and makes a tournament a private choice."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from hedgerow.crypto import limbs
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import Label, deal_noise
from hedgerow.crypto.shares import SUM32, SUM64, Share
from hedgerow.crypto.tournament import Plan, tournament
from hedgerow.errors import FixedPointOverflow, InvalidType
from hedgerow.privacy import discrete_gaussian
from hedgerow.privacy.gumbel import GumbelNoise
from twins.share_table import Table, deal_tournament, value_of


def secret(seed):
    """The dealer's own randomness, the same each time."""
    return SecureRandom.from_seed(seed.to_bytes(32, "little"))


def as_words(values, kind):
    """Whole numbers of up to 64 bits in the ring."""
    values = np.asarray(values, np.int64)
    return limbs.from_words(values, kind.limbs) if kind.limbs else values.astype(kind.dtype)


def fixed(values):
    """A sampler that gives just these."""
    return lambda shape: np.asarray(values, np.int64).reshape(shape)


def alone(share):
    """A conversation that says nothing."""
    yield from ()
    return share


@pytest.mark.parametrize("n_parties", [2, 3])
def test_shares_add_up_to_the_noise(n_parties):
    """The largest numbers that fit included, in any shape; one number is sent for each."""
    end = 1 << 62
    values = [[0, 1, -1], [end, -end, 12345]]
    table = Table(n_parties)
    found = table.talk(
        lambda step: deal_noise(step, (2, 3), fixed(values)),
        lambda step, _: alone(step.share((2, 3), SUM64)),
    )
    assert value_of(found).view(np.int64).tolist() == values
    assert table.meter.rounds == 0
    assert table.meter.dealt_bytes <= 6 * 8 + 16


def test_gaussian_noise_on_a_shared_sum():
    """What is opened is the sum with noise of the asked variance, and no party's share tells any of it."""
    n, sigma = 20_000, 40.0
    x = np.arange(n) * 1000
    table, random = Table(3), secret(5)
    shares = table.split(as_words(x, SUM64), SUM64)
    taken = []

    def noised(step, me):
        taken.append(step.share(n, SUM64))
        return alone(shares[me] + taken[-1])

    def draw(shape):
        return discrete_gaussian.sample(sigma, int(np.prod(shape)), random).reshape(shape)

    found = table.talk(lambda step: deal_noise(step, n, draw), noised)
    noise = value_of(found).view(np.int64) - x
    assert abs(noise.mean()) < 5 * sigma / np.sqrt(n)
    assert abs(noise.var() / sigma**2 - 1.0) < 5 * np.sqrt(2.0 / n)
    for share in taken:
        bits = np.unpackbits(share.words.view(np.uint8).reshape(n, 8), axis=1)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(n)


def test_a_tournament_with_gumbel_noise_is_a_private_choice():
    """Winners of 3,000 nodes against the exponential mechanism; scores are whole numbers, fractions over 1.

    Noise is raised by its lower end, for all alike, so that nothing is negative.
    """
    nodes, p = 3000, np.array([0, 3, 2, 4])
    beta = Fraction(2)
    noise, random = GumbelNoise(beta, 10), secret(6)
    plan = Plan(nodes, 4, 1)
    kind, shape = plan.kind, (nodes, 4)
    table = Table(2, keeps_openings=False)
    one = np.ones(4, np.int64)
    P, Q = (table.split(as_words(np.broadcast_to(x, shape).copy(), kind), kind) for x in (p * 2**10, one))
    handles = table.split(np.broadcast_to(np.arange(4, dtype=np.uint32), shape).copy(), SUM32)

    def deal(step):
        deal_noise(step, shape, lambda shape: noise.draw(shape, random) - noise.lowest)
        deal_tournament(lambda _: step, plan)

    def play(step, me):
        noise_of_32 = step.share(shape, SUM64).words.astype(np.uint32)[..., None]
        noised = P[me] + Share(noise_of_32, kind)
        return (yield from tournament(lambda _: step, noised, Q[me], handles[me], plan, is_first=me == 0))

    counts = np.bincount(value_of(table.talk(deal, play)), minlength=4)
    weights = np.exp(p / float(beta))
    assert chisquare(counts, weights / weights.sum() * nodes).pvalue > 1e-3


# Bad input


def test_noise_that_does_not_fit():
    """It would wrap round. The error names no number."""
    step = Table(2).dealer.step(Label())
    for value in ((1 << 62) + 1, -(1 << 62) - 1):
        with pytest.raises(FixedPointOverflow, match=r"beyond 2\*\*62, a quarter"):
            deal_noise(step, 1, fixed([value]))


@pytest.mark.parametrize("noise", [np.zeros(3, np.int32), np.zeros(3), np.zeros((3, 1), np.int64), [0, 0, 0]])
def test_samplers_that_give_something_else(noise):
    """Other types and other shapes."""
    with pytest.raises(InvalidType, match=r"int64 of shape \(3,\)"):
        deal_noise(Table(2).dealer.step(Label()), 3, lambda _: noise)
