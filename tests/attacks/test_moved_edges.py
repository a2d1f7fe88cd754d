"""One value that moves, and the buckets of all rows: exact likelihood ratios, with edges from the rows and without."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from experiments.moved_edges import compare, log_ratio, neighbour, surplus
from hedgerow.attacks.central.audit import audit_mechanism
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.mechanisms import randomised_response
from hedgerow.protocols.vertical.bucket_rr.buckets import bucketing_of, codes_of
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.schema import Schema

N_BUCKETS = 16


def buckets(values, edges):
    """A column's buckets and their number, as a feature holder of vertical.bucket_rr makes them."""
    schema = Schema.from_public(bounds={"income": (0.0, 1100.0)})
    job = Job(("bank", "shop"), "bank", "r", epsilon=1.0, buckets=N_BUCKETS, edges=edges, schema=schema)
    table = read_table(pd.DataFrame({"income": values}))
    found = bucketing_of("shop", table, job)
    return codes_of("shop", table, found)[0], int(found.categories[0])


def pair(edges, values=None):
    """Buckets of a column and of its neighbour."""
    column = np.arange(960.0) if values is None else values
    first, n_codes = buckets(column, edges)
    return first, buckets(neighbour(column), edges)[0], n_codes


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_quantile_edges_cost_one_epsilon_per_bucket(epsilon):
    """From smallest to largest: every edge takes one row along, and sixteen buckets change."""
    result = compare(*pair("quantile"), epsilon)
    assert result.changed == N_BUCKETS
    assert result.epsilon_of_element == N_BUCKETS * epsilon
    assert result.refutes
    assert result.delta_needed > 0.0
    assert result.verdict().startswith("ALARM")


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_public_edges_keep_the_promise(epsilon):
    """The same move with edges that are fixed beforehand changes the bucket of that row only."""
    result = compare(*pair("public"), epsilon)
    assert result.changed == 1
    assert not result.refutes
    assert result.delta_needed == 0.0
    stays = math.exp(epsilon) / (math.exp(epsilon) + N_BUCKETS - 1)
    assert result.advantage == pytest.approx(stays * (1.0 - math.exp(-epsilon)))
    assert result.advantage < result.ceiling
    assert "not contradicted" in result.verdict()


def test_the_best_test_beats_what_epsilon_allows():
    """With quantile edges it is an advantage that epsilon-LDP rules out; at epsilon 4 it is certainty."""
    quantile = [compare(*pair("quantile"), epsilon) for epsilon in (1.0, 4.0)]
    assert quantile[0].advantage > quantile[0].ceiling + 0.1
    assert quantile[1].advantage > 0.999


def test_tied_values_cross_an_edge_together():
    """Where values repeat, a moved edge takes whole groups along: even buckets times epsilon is no upper bound."""
    result = compare(*pair("quantile", np.repeat(np.arange(40.0), 24)), 1.0)
    assert result.changed > 10 * N_BUCKETS
    assert result.advantage > 0.99


def test_the_surplus_has_its_exact_distribution():
    """Against the sum over all answers of three rows with four codes."""
    epsilon, n_codes, first, second = 0.8, 4, np.array([0, 1, 2], np.uint8), np.array([1, 2, 3], np.uint8)
    stays = math.exp(epsilon) / (math.exp(epsilon) + n_codes - 1)
    comes = (1.0 - stays) / (n_codes - 1)
    expected, total_variation, hockey_stick = np.zeros(7), 0.0, 0.0
    for given in product(range(n_codes), repeat=3):
        answers = np.array(given, np.uint8)
        p, q = (math.prod(np.where(answers == true, stays, comes).tolist()) for true in (first, second))
        assert log_ratio(answers, first, second, epsilon) == pytest.approx(math.log(p / q))
        expected[3 + round(math.log(p / q) / epsilon)] += p
        total_variation += abs(p - q) / 2.0
        hockey_stick += max(p - math.exp(epsilon) * q, 0.0)
    assert surplus(3, n_codes, epsilon) == pytest.approx(expected)
    result = compare(first, second, n_codes, epsilon)
    assert result.advantage == pytest.approx(total_variation)
    assert result.delta_needed == pytest.approx(hockey_stick)


@pytest.mark.parametrize(("edges", "refuted"), [("quantile", True), ("public", False)])
def test_an_audit_of_the_mechanism_sees_the_same(edges, refuted):
    """Real answers, many times, and a lower bound on epsilon: above the claim where edges follow the rows."""
    first, second, n_codes = pair(edges)
    epsilon, rng = 1.0, np.random.default_rng(0)
    differ = np.flatnonzero(first != second)

    def sample(codes, n):
        return randomised_response(
            np.tile(codes[differ], (n, 1)), categories=n_codes, epsilon=epsilon, random=rng
        ).values

    def statistic(answers):
        return log_ratio(answers, first[differ], second[differ], epsilon)

    result = audit_mechanism(sample, first, second, n_samples=20_000, statistic=statistic)
    assert result.refutes(epsilon) == refuted
    assert result.epsilon_lower > (2.0 if refuted else 0.7)


def test_results_are_json():
    """For statements."""
    read = json.loads(json.dumps(compare(*pair("quantile"), 1.0).to_dict()))
    assert (read["changed"], read["epsilon_of_element"]) == (N_BUCKETS, 16.0)


def test_columns_must_fit():
    """Two columns of the same rows, and a number for epsilon."""
    column = np.zeros(3, np.uint8)
    with pytest.raises(InvalidInput, match="equally many rows"):
        compare(column, column[:2], 4, 1.0)
    with pytest.raises(InvalidParameter, match="epsilon"):
        compare(column, column, 4, math.inf)
