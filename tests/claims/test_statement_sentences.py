"""Every sentence of a central privacy statement says what is proved, and no more."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from hedgerow import DPBoostClassifier, PrivateBoostingClassifier, Schema
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, ZeroConcentratedDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Composed, Exponential, Gaussian, Parallel, Repeated, up
from hedgerow.statement import PrivacyStatement, Registry
from twins.statements import statement_of

SCHEMA = Schema.from_public(bounds={"x0": (0, 1), "x1": (0, 1)}, classes=[0, 1])
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(size=(60, 2)), RNG.integers(0, 2, 60)


def words(statement):
    """The text without line breaks."""
    return " ".join(str(statement).split())


def stated(kind=PrivateBoostingClassifier, **params):
    """The statement of a small training."""
    return kind(schema=SCHEMA, **params).fit(X, Y).privacy_statement()


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 20), (0.1, 149)])
def test_the_chance_of_results_beyond_the_factor_is_printed(epsilon, least):
    """It is Phi(mu/2 - epsilon/mu) for Gaussian noise, many times delta; what is printed is not below it."""
    statement = stated(epsilon=epsilon, delta=1e-6)
    mu = mu_for(epsilon, 1e-6)
    chance = NormalDist().cdf(mu / 2 - epsilon / mu)
    assert least * 1e-6 < chance <= statement.chance_beyond < 4 * chance
    assert float(up(statement.chance_beyond, 3)) >= statement.chance_beyond
    text = words(statement)
    assert f"is at most {up(statement.chance_beyond, 3)}: delta is not that chance." in text
    assert "plus 1e-6; and the other way round" in text
    assert "unlucky" not in text
    assert statement.to_dict()["chance_beyond"] == statement.chance_beyond
    assert PrivacyStatement.from_dict(statement.to_dict()).chance_beyond == statement.chance_beyond


@pytest.mark.parametrize("accountant", [GaussianDP, ZeroConcentratedDP, BasicComposition])
def test_the_chance_comes_from_the_accountants_own_curve(accountant):
    """Whichever accountant proves the epsilon, also that of pure mechanisms at a delta above 0.

    For Exponential choices the worst case of the pure curve is randomised response, whose whole mass is at epsilon.
    """
    counted = accountant()
    counted.compose(Exponential(1.0, 0.5), 4)
    made = statement_of(counted, 1e-3, protocol="x", stages=())
    bounds = [counted.delta(t) / -math.expm1(t - made.epsilon) for t in np.linspace(0.0, made.epsilon, 999)[:-1]]
    assert made.chance_beyond == pytest.approx(min(1.0, *bounds), rel=0.05)
    assert made.delta <= made.chance_beyond


@pytest.mark.parametrize("policy", ["random", "cyclic", "histogram", "exponential"])
def test_every_policy_says_what_delta_is_not(policy):
    """Each has a chance from a curve, at least that of Gaussian noise of the whole budget or of its own accountant."""
    statement = stated(policy=policy, max_iter=2, delta=1e-5)
    assert 1e-5 < statement.chance_beyond < 1e-2
    assert "delta is not that chance" in words(statement)


def test_nothing_is_rounded_in_our_favour():
    """(1.0004, 1.0049e-6) is not printed as (1, 1e-06), nor a ten-billionth more than 1 as 1."""
    text = words(stated(epsilon=1.0004, delta=1.0049e-6))
    assert "epsilon = 1.0004 and delta = 1.0049e-6" in text
    assert "1e-06" not in text
    assert "epsilon = 1 " not in text
    assert "epsilon = 1.0001 and" in words(stated(epsilon=1.0 + 1e-10))
    assert "chance of 0.1001" in words(stated(policy="random", max_iter=2, subsample=0.10001, epsilon=4.0))


DISJOINT = "It counts on disjoint rows"
EACH_BY_ITSELF = "for each record by itself"


@pytest.mark.parametrize(
    ("params", "sentences", "never"),
    [
        ({"max_iter": 4}, (f"{DISJOINT}: of 4 parts of the training a row was in one at most.", EACH_BY_ITSELF), ()),
        (
            {"max_iter": 6, "trees_per_ensemble": 2},
            ("3 groups of parts of the training", "of all of them in up to 3.", "3 ensembles, each for all records"),
            ("of 2 parts of the training",),
        ),
        (
            {"max_iter": 4, "protocol": "central.sequential"},
            ("Every tree sees all records, so their costs add up.", "No sampling of rows is counted on."),
            (DISJOINT, EACH_BY_ITSELF, "disjoint"),
        ),
        ({"max_iter": 3, "trees_per_ensemble": 1}, ("Every tree sees all records",), (DISJOINT, EACH_BY_ITSELF)),
        (
            {"max_iter": 4, "protocol": "central.parallel"},
            (f"{DISJOINT}: of 4 parts", EACH_BY_ITSELF, "about half of the records"),
            (),
        ),
        (
            {"max_iter": 4, "assignment": "paper"},
            (
                "for all records together",
                "exchanging one row of the table for any other",
                "with one row as with another in its place",
                "which of the two rows was there",
                "That a record is in the table is not protected",
            ),
            (EACH_BY_ITSELF, "whether the row was there", "adding one row"),
        ),
    ],
    ids=["dpboost", "several ensembles", "sequential", "ensembles of one tree", "parallel", "paper"],
)
def test_disjoint_rows_are_claimed_where_there_are_any(params, sentences, never):
    """One row affects one part at most only within one ensemble; its place is its own only if it was drawn so."""
    text = words(stated(DPBoostClassifier, max_depth=2, **params))
    for sentence in sentences:
        assert sentence in text
    for sentence in (*never, "did not depend on other rows", "affects one of them at most"):
        assert sentence not in text


def test_groups_of_an_event_that_is_repeated_are_all_counted():
    """Three times two parts are three groups; a part alone is none."""
    parts = Parallel((Gaussian(1.0, 2.0), Gaussian(1.0, 2.0)))
    for times in (3, 10**12):
        event = Composed((Repeated(parts, times), Parallel((Gaussian(1.0, 2.0),))))
        made = PrivacyStatement(
            "x", epsilon=9.0, delta=1e-6, adjacency="add_remove", event=event, stages=(), accountant="Gaussian DP"
        )
        assert f"{times:,} groups of parts" in words(made)


@pytest.mark.parametrize(
    ("kind", "params", "flavour", "unit"),
    [
        (PrivateBoostingClassifier, {}, "approximate", "one row, added or removed"),
        (DPBoostClassifier, {"max_iter": 2}, "pure", "one row, added or removed"),
        (DPBoostClassifier, {"max_iter": 2, "assignment": "paper"}, "pure", "one row, exchanged"),
        (DPBoostClassifier, {"max_iter": 2, "epsilon": math.inf}, "none", "one row, added or removed"),
    ],
)
def test_the_fields_of_the_public_registry(kind, params, flavour, unit):
    """Flavour, loss, unit, model, accounting and implementation, named as in the statements of federations."""
    statement = stated(kind, **params)
    registry = statement.to_dict()["registry"]
    assert set(registry) == set(Registry("", {}, "", "", "").to_dict())
    assert (registry["flavour"], registry["unit"], registry["model"]) == (flavour, unit, "central")
    assert registry["accounting"] == statement.accountant
    assert registry["implementation"].startswith("Hedgerow ")
    assert registry["loss"]["delta"] == statement.delta


def test_the_statement_is_dated():
    """With the time when the training began, in UTC: the time it ended would tell how long it took."""
    statement = stated()
    assert statement.date.endswith("+00:00")
    assert f"The training began at {statement.date}." in words(statement)
