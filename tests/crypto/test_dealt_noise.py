"""Noise that the dealer alone knows: it adds up and hides, and makes a tournament a private choice."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from hedgerow.crypto import limbs
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import Label, deal_noise, take_noise
from hedgerow.crypto.lifting import bits_of
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, limbs_kind
from hedgerow.crypto.tournament import Plan, tournament
from hedgerow.errors import FixedPointOverflow, InvalidParameter, InvalidType
from hedgerow.privacy import discrete_gaussian
from hedgerow.privacy.gumbel import GumbelNoise
from twins.share_table import Table, deal_tournament, value_of

KINDS = [SUM32, SUM64, limbs_kind(1), limbs_kind(2), limbs_kind(5)]


def secret(seed):
    """The dealer's own randomness, the same each time."""
    return SecureRandom.from_seed(seed.to_bytes(32, "little"))


def as_ints(words, kind):
    """Signed integers."""
    if kind.limbs:
        return limbs.to_ints(words)
    return words.view(np.dtype(f"i{kind.dtype.itemsize}")).astype(object)


def as_words(values, kind):
    """Whole numbers of up to 64 bits in the ring."""
    values = np.asarray(values, np.int64)
    return limbs.from_int64(values, kind.limbs) if kind.limbs else values.astype(kind.dtype)


def fixed(values):
    """A sampler that gives just these."""
    return lambda shape: np.asarray(values, np.int64).reshape(shape)


def alone(share):
    """A conversation that says nothing."""
    yield from ()
    return share


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("n_parties", [2, 3])
def test_shares_add_up_to_the_noise(kind, n_parties):
    """All kinds of numbers, the largest that fit included, in any shape; one number is sent for each."""
    end = 1 << (min(bits_of(kind), 64) - 2)
    values = [[0, 1, -1], [end, -end, 12345]]
    table = Table(n_parties)
    found = table.talk(
        lambda step: deal_noise(step, (2, 3), kind, fixed(values)),
        lambda step, _: alone(take_noise(step, (2, 3), kind)),
    )
    assert as_ints(value_of(found), kind).tolist() == values
    assert table.meter.rounds == 0
    assert table.meter.dealt_bytes <= 6 * kind.number_bytes + 16 + 7


def test_gaussian_noise_on_a_shared_sum():
    """What is opened is the sum with noise of the asked variance, and no party's share tells any of it."""
    n, sigma = 20_000, 40.0
    x = np.arange(n) * 1000
    table, random = Table(3), secret(5)
    shares = table.split(as_words(x, SUM64), SUM64)
    taken = []

    def noised(step, me):
        taken.append(take_noise(step, n, SUM64))
        return alone(shares[me] + taken[-1])

    def draw(shape):
        return discrete_gaussian.sample(sigma, int(np.prod(shape)), random).reshape(shape)

    found = table.talk(lambda step: deal_noise(step, n, SUM64, draw), noised)
    noise = as_ints(value_of(found), SUM64).astype(np.int64) - x
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
        deal_noise(step, shape, kind, lambda shape: noise.draw(shape, random) - noise.lowest)
        deal_tournament(lambda _: step, plan)

    def play(step, me):
        noised = P[me] + take_noise(step, shape, kind)
        return (yield from tournament(lambda _: step, noised, Q[me], handles[me], plan, is_first=me == 0))

    counts = np.bincount(value_of(table.talk(deal, play)), minlength=4)
    weights = np.exp(p / float(beta))
    assert chisquare(counts, weights / weights.sum() * nodes).pvalue > 1e-3


# Bad input


def test_noise_that_does_not_fit():
    """It would wrap round. The error names no number."""
    step = Table(2).dealer.step(Label())
    for kind, bits in ((SUM32, 30), (limbs_kind(1), 30), (SUM64, 62), (limbs_kind(4), 62)):
        for value in ((1 << bits) + 1, -(1 << bits) - 1):
            with pytest.raises(FixedPointOverflow, match=rf"beyond 2\*\*{bits}, a quarter"):
                deal_noise(step, 1, kind, fixed([value]))


@pytest.mark.parametrize("noise", [np.zeros(3, np.int32), np.zeros(3), np.zeros((3, 1), np.int64), [0, 0, 0]])
def test_samplers_that_give_something_else(noise):
    """Other types and other shapes."""
    with pytest.raises(InvalidType, match=r"int64 of shape \(3,\)"):
        deal_noise(Table(2).dealer.step(Label()), 3, SUM64, lambda _: noise)


def test_bits_have_no_noise():
    """Neither at the dealer nor at a party."""
    with pytest.raises(InvalidParameter, match="not of bits, got xor8"):
        deal_noise(Table(2).dealer.step(Label()), 1, XOR8, fixed([0]))
    with pytest.raises(InvalidParameter, match="not of bits, got xor8"):
        take_noise(None, 1, XOR8)
