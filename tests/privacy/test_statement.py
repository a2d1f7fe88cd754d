from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hedgerow import __version__
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, PrivacyLoss
from hedgerow.privacy.events import (
    Composed,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    NonPrivate,
    Parallel,
    PoissonSampled,
)
from hedgerow.statement import ASSUMED_OF_DATA, ASSUMPTIONS, NOT_COVERED, PrivacyStatement, Stage
from twins.statements import statement_of

EVENT = Parallel((Composed((Exponential(1.0, 0.5), DiscreteLaplace(1.0, 2.0))),))
STAGES = (
    Stage("splits", "exponential mechanism", epsilon=0.5, share=0.5, releases=300, words="One for each level."),
    Stage("leaves", "Laplace noise", epsilon=0.5, releases=1),
)


def statement(**changes):
    """A statement of a pure mechanism."""
    accountant = BasicComposition()
    accountant.compose(EVENT)
    made = statement_of(accountant, 0.0, protocol="central.dpboost", stages=STAGES, facts={"trees": 50})
    return replace(made, **changes)


def words(made):
    """The text without line breaks."""
    return " ".join(str(made).split())


def test_the_words_have_all_that_is_wanted():
    """Unit, adjacency, numbers, stages, accountant, sampling, assumptions and limits are in the text."""
    text = words(statement())
    for wanted in [
        "central.dpboost",
        __version__,
        "one row of the table",
        "adding one row to the table, or removing one",
        "epsilon = 1 (and delta = 0)",
        "at most 73.11 of 100 cases",
        "splits: exponential mechanism (epsilon 0.5, 50 per cent of the budget, 300 releases). One for each level.",
        "leaves: Laplace noise (epsilon 0.5, 1 release).",
        "Accounting: basic composition of pure epsilons.",
        *(" ".join(line.split()) for line in (*ASSUMPTIONS, *ASSUMED_OF_DATA, *NOT_COVERED)),
    ]:
        assert wanted in text
    assert "NOT PRIVATE" not in text
    assert max(map(len, str(statement()).splitlines())) <= 100


def test_numbers_in_words_are_rounded_against_us():
    """Epsilon and delta up, but the last bit of a float is no news."""
    assert "epsilon = 1.0001 and delta = 0.00012346," in words(statement(epsilon=1.00001, delta=1.234551e-4))
    assert "delta = 1.2346e-6," in words(statement(delta=1.234551e-6))
    assert "epsilon = 1 and" in words(statement(epsilon=1.0000000000000002, delta=1e-6))
    assert "epsilon = 0.1 and" in words(statement(epsilon=0.1, delta=1e-6))
    assert "right in at most 100 of 100" in words(statement(epsilon=50.0))


@pytest.mark.parametrize("changes", [{"epsilon": math.inf}, {"not_private": ("bounds were taken from the data",)}])
def test_not_private_comes_first(changes):
    """An infinite epsilon, or a reason, is the first thing one reads, and the stamp."""
    made = statement(**changes)
    assert str(made).startswith("NOT PRIVATE: ")
    assert made.to_dict()["stamp"] == "NOT PRIVATE"
    assert not made.is_private


def test_infinite_epsilon_says_so_plainly():
    """No guarantee, and why; no sentence about what one may rely on."""
    made = statement(epsilon=math.inf, event=NonPrivate("no noise was added"))
    assert "NOT PRIVATE: no noise was added." in words(made)
    assert "There is no guarantee" in words(made)
    assert "The guarantee:" not in words(made)


def test_a_reason_takes_the_guarantee_back():
    """With a finite epsilon and a reason, the text says that the numbers do not hold."""
    text = words(statement(not_private=("bounds were taken from the data",)))
    assert text.startswith("NOT PRIVATE: bounds were taken from the data.")
    assert "does NOT hold" in text


def test_audit():
    """A lower bound below the claim is told; one above it takes the claim back."""
    canary = {"confidence": 0.95, "attack": "a canary in 1,000 trainings", "runs": 1000}
    fine = statement(audit={"lower_bound": 0.43219, **canary})
    assert "no epsilon below 0.4321 could be promised (confidence 95 per cent)" in words(fine)
    assert fine.is_private
    assert fine.audit["runs"] == 1000
    broken = statement(audit={"lower_bound": 1.2, **canary})
    assert str(broken).startswith("NOT PRIVATE: an attack measured an epsilon of at least 1.2")
    assert "ABOVE what is claimed" in words(broken)


def test_sampling_is_told():
    """A guarantee that counts on secret sampling says so."""
    accountant = PrivacyLoss()
    accountant.compose(PoissonSampled(0.1, Gaussian(1.0, 2.0)))
    made = statement_of(accountant, 1e-6, protocol="x", stages=())
    assert "each row took part with a chance of 0.1" in words(made)
    assert "dp-accounting 0." in words(made)
    assert "No sampling of rows is counted on." in words(statement(event=Exponential(1.0, 1.0)))


@pytest.mark.parametrize(
    "made",
    [
        statement(),
        statement(epsilon=math.inf, delta=1e-6, stages=(Stage("all", "no noise", epsilon=math.inf),)),
        statement(not_private=("a", "b"), facts={"bound": math.inf, "deep": [{"low": -math.inf}, None, True, "x"]}),
        statement(audit={"lower_bound": 0.1, "confidence": 0.9, "attack": "x", "scores": (1, 2.5)}),
        statement(facts={"numpy": np.float64(0.5), "count": np.int64(3), "text": "inf"}, version="0.0.1"),
        statement(delta=1e-6, chance_beyond=5e-5, date="2026-01-01T00:00:00+00:00"),
    ],
    ids=range(6),
)
def test_json_and_back(made):
    """Everything survives strict JSON, infinities included, and says the same words again."""
    again = PrivacyStatement.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert again == made
    assert str(again) == str(made)
    assert again.to_dict() == made.to_dict()


@pytest.mark.parametrize("change", [{"format": 9}, {"event": {"kind": "?"}}, {"delta": 2.0}, {"stages": [{"x": 1}]}])
def test_what_is_no_statement_is_refused(change):
    """Another format, or damage."""
    with pytest.raises(InvalidInput):
        PrivacyStatement.from_dict({**statement().to_dict(), **change})
    with pytest.raises(InvalidInput):
        PrivacyStatement.from_dict([])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epsilon": math.nan}, "epsilon must be at least 0"),
        ({"delta": 1.0}, "delta must be"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"adjacency": "replace_one"}, "cannot rest on"),
        ({"event": Composed((EVENT, NonPrivate("exact edges")))}, "a release had no guarantee: .*exact edges"),
        ({"facts": {"x": math.nan}}, r"facts\.x: JSON cannot hold nan"),
        ({"facts": {1: 2}}, "names must be texts"),
        ({"chance_beyond": 1.5}, "chance_beyond must be between 0 and 1"),
        ({"date": 2026}, "date must be text"),
    ],
)
def test_a_statement_that_cannot_be_true_is_refused(changes, sentence):
    """Among them a finite epsilon over a release without guarantee."""
    with pytest.raises(InvalidParameter, match=sentence):
        statement(**changes)


@pytest.mark.parametrize("bad", [{"epsilon": -1.0}, {"share": 1.5}, {"releases": -1}])
def test_an_impossible_stage_is_refused(bad):
    """Each mistake is named, with the stage."""
    with pytest.raises(InvalidParameter, match="stage 'x'"):
        Stage("x", "noise", **bad)


def test_statements_of_earlier_versions_are_read():
    """They have no date, no chance of results beyond the factor, and all assumptions in one list."""
    data = statement(delta=1e-6).to_dict()
    for name in ("date", "chance_beyond", "assumed_of_data", "best_guess", "registry"):
        data.pop(name)
    again = PrivacyStatement.from_dict(data)
    assert (again.date, again.chance_beyond, again.assumed_of_data) == (None, None, ())
    assert "may be above delta: delta is not that chance" in words(again)
    assert "What is assumed: -" in words(again)


def test_the_order_is_that_of_the_pyramid():
    """When, unit, epsilon, what is proved; then what is assumed of the implementation, then of the data."""
    made = statement(delta=1e-6, date="2026-01-01T00:00:00+00:00")
    wanted = ["The training began at 2026-01-01T00:00:00+00:00.", "What is protected: one row", "The guarantee: ",
              "Whatever anybody asks", "How it was spent:", "Accounting:", "What is assumed of the implementation",
              "What is assumed of the data:", "What is not covered:"]  # fmt: skip
    places = [words(made).index(line) for line in wanted]
    assert places == sorted(places)
