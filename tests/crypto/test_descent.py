from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import Dealer, Hand, Label
from hedgerow.crypto.division import (
    PAPER_TURNS,
    Descent,
    deal_descent_start,
    deal_descent_turn,
    descended,
    iterations_needed,
    worst_iterations,
)
from hedgerow.crypto.shares import SUM64, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType
from twins.conversation import Conversation
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

EPS = 1e-6
MU = 2
SIX = limbs_kind(6)


def words(values, kind):
    """Python's integers as numbers of the ring."""
    return np.stack([limbs.constant(value, kind.limbs) for value in values])


def deal_all(step, plan, n_turns):
    """The start and some turns, in one step."""
    a = deal_descent_start(step, plan)
    for _ in range(n_turns):
        deal_descent_turn(step, plan, a)


def weights_at(table, a, b, totals, n_iterations, plan):
    """w 2**F of all leaves, opened."""
    a_shares, b_shares = (table.split(words(values, plan.kind), plan.kind) for values in (a, b))
    found = table.talk(
        lambda step: deal_all(step, plan, n_iterations),
        lambda step, me: descended(
            lambda _: step, a_shares[me], b_shares[me], totals, n_iterations, plan, is_first=me == 0
        ),
    )
    return limbs.to_ints(value_of(found))


def assert_near(found, a, b, totals, plan, eps=EPS):
    """The bound that the module's text derives, in exact fractions."""
    for weight, a_leaf, b_leaf, total in zip(found, a, b, totals, strict=True):
        error = abs(weight + Fraction(b_leaf << plan.fraction_bits, a_leaf))
        assert error <= Fraction(eps) * (1 << plan.fraction_bits) + Fraction(3 * total, 2 * a_leaf)


# Weights


@st.composite
def leaves(draw):
    """(lambda, leaves (a, b, total), largest weight): a from lambda on, sigma from 0 to mu lambda."""
    lambda_int = draw(st.one_of(st.sampled_from([1, 2**13]), st.integers(1, 2**20)))
    largest = draw(st.sampled_from([1, 30, 2**15, 10**8]))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        hessians = draw(st.one_of(st.sampled_from([0, 1, lambda_int, 2**31 - lambda_int]), st.integers(0, 2**30)))
        a = lambda_int + hessians
        sigma = draw(st.one_of(st.sampled_from([0, MU * lambda_int]), st.integers(0, MU * lambda_int)))
        b = draw(st.one_of(st.sampled_from([-largest * a, 0, largest * a]), st.integers(-largest * a, largest * a)))
        found.append((a, b, a + sigma))
    return lambda_int, found, largest


@settings(max_examples=25, deadline=None)
@given(leaves(), st.integers(2, 4), st.integers(0, 2**30))
def test_weights_are_within_eps(case, n_parties, run):
    """Any leaf, empty or full, any perturbation, weights up to 1e8: the error is at most eps and a few 2**-F."""
    lambda_int, found, largest = case
    a, b, totals = (list(column) for column in zip(*found, strict=True))
    plan = Descent(len(a), SIX, largest_total=2**31 + MU * 2**20, largest_weight=largest)
    n = iterations_needed(totals, MU * lambda_int, EPS / largest)
    assert 1 <= n <= PAPER_TURNS
    table = Table(n_parties, run)
    assert_near(weights_at(table, a, b, totals, n, plan), a, b, totals, plan)
    assert table.meter.rounds == n


def test_the_whole_range_in_one_batch():
    """Leaves from empty to 2**31 with every kind of perturbation, at the largest weight of a ring of 128 bits."""
    lambda_int, largest = 1 << 13, 1 << 15
    grid = [(lambda_int + h, s) for h in (0, 1, *(1 << p for p in range(6, 31))) for s in (0, 1, 5000, 2 * lambda_int)]
    a = [x for x, _ in grid]
    totals = [x + s for x, s in grid]
    b = [largest * x * (-1) ** i for i, x in enumerate(a)]
    plan = Descent(len(a), limbs_kind(4), largest_total=1 << 31, largest_weight=largest)
    assert plan.needed_bits <= 128
    n = iterations_needed(totals, MU * lambda_int, EPS / largest)
    assert_near(weights_at(Table(3), a, b, totals, n, plan), a, b, totals, plan)


def test_the_rule_needs_its_turns():
    """An empty leaf with the largest perturbation is the slowest: with two turns fewer it misses eps."""
    lambda_int, largest = 1 << 13, 100
    a, totals = [lambda_int], [3 * lambda_int]
    b = [largest * lambda_int]
    plan = Descent(1, SIX, largest_total=1 << 31, largest_weight=largest)
    n = iterations_needed(totals, MU * lambda_int, EPS / largest)
    for turns, is_near in ((n, True), (n - 2, False)):
        found = weights_at(Table(2), a, b, totals, turns, plan)
        error = abs(found[0] + (largest << plan.fraction_bits)) / 2**plan.fraction_bits
        assert (error <= EPS + 5 / 2**plan.fraction_bits) == is_near


def test_one_step_of_the_dealer_per_turn():
    """Turns in steps of their own, dealt ahead for more turns than are used."""
    n, kind, seeds = 3, SIX, [bytes([m]) * 32 for m in range(3)]
    plan = Descent(n, kind, largest_total=1 << 31, largest_weight=4, max_iterations=40)
    a, b, totals = [9000, 8192, 10**6], [-20000, 8192, 3], [9000 + 77, 3 * 8192, 10**6]
    dealer, parcels = Dealer(seeds), []
    mask = None
    for turn in range(plan.max_iterations + 1):
        step = dealer.step(Label(step=turn))
        if turn:
            deal_descent_turn(step, plan, mask)
        else:
            mask = deal_descent_start(step, plan)
        parcels.append(step.corrections())
    table = Table(3)
    shares = [table.split(words(values, kind), kind) for values in (a, b)]
    n_turns = iterations_needed(totals, 2 * 8192, EPS / 4)
    assert n_turns < plan.max_iterations

    def hand_steps(me):
        hand = Hand(seeds[me], me, 3)
        return lambda turn: hand.step(Label(step=turn), parcels[turn].get(me))

    talks = [
        Conversation(descended(hand_steps(me), shares[0][me], shares[1][me], totals, n_turns, plan, is_first=me == 0))
        for me in range(3)
    ]
    while not talks[0].is_over:
        sent = [talk.send() for talk in talks]
        for talk in talks:
            talk.receive(sent)
    assert_near(limbs.to_ints(value_of([talk.result for talk in talks])), a, b, totals, plan)


def test_bytes_and_rounds():
    """One number per leaf and turn, and one for a; four are dealt per turn."""
    n, turns, table = 50, 7, Table(3)
    plan = Descent(n, SIX, largest_total=1 << 31, largest_weight=1)
    weights_at(table, [5] * n, [2] * n, [6] * n, turns, plan)
    assert table.meter.rounds == turns
    assert table.meter.sent_bytes == (turns + 1) * n * 24
    assert 0 <= table.meter.dealt_bytes - 4 * turns * n * 24 <= 3 * 16


# How many turns


def test_the_papers_numbers():
    """47 turns at v = 1 and 80 at v = 1.5 for a ratio of 1e-14; one if the step is exact or nothing is asked."""
    assert iterations_needed([2000], 2000, 1e-14) == 47
    assert iterations_needed([3000], 2000, 1e-14) == 80 == worst_iterations(1e-14) == PAPER_TURNS
    assert iterations_needed([1000], 2000, 1e-14) == 1
    assert iterations_needed([2000 * 10**7], 2000, 1e-14) == 2
    assert iterations_needed([3000], 2000, 1.0) == 1
    assert iterations_needed([1000, 3000, 10**9], 2000, 1e-14) == 80


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2**24), st.integers(0, 2**31), st.floats(0, 1), st.floats(1e-18, 0.5))
def test_turns_suffice_and_are_bounded(lambda_int, hessians, part, ratio):
    """q**n <= ratio for the true q, whatever the leaf and its perturbation; and no more than in the worst case."""
    a, sigma = lambda_int + hessians, int(part * MU * lambda_int)
    n = iterations_needed([a + sigma], MU * lambda_int, ratio)
    assert 1 <= n <= worst_iterations(ratio)
    if sigma:
        assert n * math.log(sigma / (a + sigma)) <= math.log(ratio) * (1 - 1e-12)


def test_smaller_lambda_needs_more_than_eighty():
    """The paper's 80 take lambda >= 1 for granted: with 1e8 rows and lambda = 0.01 the ratio is 1e-16, and 91 it is."""
    assert iterations_needed([3000], 2000, 1e-16) == worst_iterations(1e-16) == 91


# What others see


def openings(run):
    """All that is opened for fixed leaves."""
    table = Table(3, run)
    plan = Descent(4, limbs_kind(4), largest_total=1 << 31, largest_weight=8)
    weights_at(table, [8192, 9000, 10**6, 8192], [5, -9000, 10**6, 0], [20000, 9000, 10**6 + 5, 8192], 6, plan)
    return table.opened


def test_no_mask_covers_two_values():
    """No two opened words move together from seed to seed, of all turns and leaves."""
    runs = [openings(run) for run in range(4)]
    assert len(runs[0]) == 7
    assert repeated_masks(runs) == []


def test_opened_bits_are_balanced():
    """For fixed leaves every opened bit is 1 in about half of the runs, also when w does not change any more."""
    runs = np.stack([np.stack([opening.words for opening in openings(run)]) for run in range(150)])
    bits = np.unpackbits(runs.reshape(150, -1).view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(150)


# Bad input


def test_plans_that_would_overflow():
    """A ring that is too narrow is refused, and it is said what would do."""
    with pytest.raises(InvalidParameter, match=r"limbs:4 has 128 bits, .* need 130: use a wider kind"):
        Descent(1, limbs_kind(4), largest_total=1 << 31, largest_weight=1 << 16)
    with pytest.raises(InvalidParameter, match="kind must be limbs, got sum64"):
        Descent(1, SUM64, largest_total=4, largest_weight=1)
    with pytest.raises(InvalidParameter, match="fraction_bits must be at least 4, got 3"):
        Descent(1, SIX, largest_total=4, largest_weight=1, fraction_bits=3)
    with pytest.raises(InvalidParameter, match="n must be at least 1, got 0"):
        Descent(0, SIX, largest_total=4, largest_weight=1)


def test_bad_calls():
    """Sums and numbers of turns that were not planned for, and totals below lambda."""
    plan = Descent(1, SIX, largest_total=100, largest_weight=1, max_iterations=5)
    share = Table(2).split(words([50], SIX), SIX)[0]
    for totals, n, match in (([101], 1, "between 1 and 100"), ([60], 6, "n_iterations .* got 6"), ([60], 0, "got 0")):
        with pytest.raises(InvalidParameter, match=match):
            next(descended(None, share, share, totals, n, plan, is_first=True))
    with pytest.raises(InvalidType, match="1 numbers each"):
        next(descended(None, share, share, [60, 60], 1, plan, is_first=True))
    with pytest.raises(InvalidParameter, match=r"at least lambda = 1000\.0"):
        iterations_needed([999], 2000, 1e-6)
    with pytest.raises(InvalidParameter, match="positive"):
        iterations_needed([999], 2000, 0.0)
