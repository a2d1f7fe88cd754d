from __future__ import annotations

import json

import pytest

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
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
    walk,
)

EVENTS = [
    NonPrivate("epsilon=inf"),
    Gaussian(1.0, 2.5),
    DiscreteGaussian(3.0, 64.0, coordinates=7, parties=3, adjacency="replace_one"),
    Composed((Gaussian(1.0, 2.0), Repeated(DiscreteGaussian(1.0, 8.0, 1), 5))),
    Repeated(Composed((Gaussian(1.0, 2.0),)), 2),
    DiscreteLaplace(1.0, 2.0),
    Laplace(0.5, 2.0, "replace_one"),
    Exponential(3.0, 0.5),
    PermuteAndFlip(3.0, 0.5),
    GumbelChoice(3.0, 0.5, 1e-30),
    RandomisedResponse(4, 1.0),
    Parallel((Exponential(1.0, 0.1), Composed((Laplace(1.0, 1.0), NonPrivate("?"))))),
    PoissonSampled(0.25, Repeated(Gaussian(1.0, 2.0), 3)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.KIND)
def test_json_and_back(event):
    """Every event survives JSON, and equal events are equal keys."""
    again = from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert hash(again) == hash(event)


def test_leaves_count_what_ran():
    """Structure is taken apart: five times two is ten."""
    inner = Gaussian(1.0, 2.0)
    event = Repeated(Composed((inner, Repeated(inner, 4), NonPrivate("x"))), 2)
    assert list(event.leaves()) == [(inner, 2), (inner, 8), (NonPrivate("x"), 2)]


def test_every_part_is_seen():
    """`walk` looks into every structure, and `leaves` finds what ran in each branch and sample."""
    leak, noise = NonPrivate("x"), Gaussian(1.0, 2.0)
    event = Repeated(Parallel((PoissonSampled(0.5, Composed((noise, leak))), noise)), 3)
    assert [part.KIND for part in walk(event)] == [
        "repeated", "parallel", "poisson_sampled", "composed", "gaussian", "non_private", "gaussian",
    ]  # fmt: skip
    assert list(event.leaves()) == [(noise, 3), (leak, 3), (noise, 3)]


@pytest.mark.parametrize(
    "data",
    [
        3,
        {},
        {"kind": "laplace", "scale": 1.0},
        {"kind": "gaussian", "sensitivity": 1.0},
        {"kind": "gaussian", "sensitivity": 1.0, "sigma": 1.0, "adjacency": "add_remove", "more": 1},
        {"kind": "composed", "events": {}},
        {"kind": "composed", "events": [{"kind": "?"}]},
        {"kind": "repeated", "event": {"kind": "non_private", "reason": ""}},
    ],
)
def test_an_unknown_description_is_refused(data):
    """What is not understood is not guessed."""
    with pytest.raises(InvalidInput):
        from_dict(data)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Gaussian(0.0, 1.0), "gaussian: sensitivity must be a finite number above 0, got 0.0"),
        (lambda: Gaussian(1.0, float("nan")), "gaussian: sigma"),
        (lambda: Gaussian(1.0, True), "gaussian: sigma"),
        (lambda: Gaussian(1.0, 1.0, "swap"), "adjacency must be one of"),
        (lambda: DiscreteGaussian(1.0, 1.0, 0), "coordinates must be a whole number of at least 1, got 0"),
        (lambda: DiscreteGaussian(1.0, 1.0, 1, 1.5), "parties must be a whole number"),
        (lambda: DiscreteGaussian(1.0, float("inf"), 1), "discrete_gaussian: sigma"),
        (lambda: Composed((3,)), "only events"),
        (lambda: Repeated(Gaussian(1.0, 1.0), 0), "times must be"),
        (lambda: Repeated("gaussian", 2), "only events"),
        (lambda: Parallel((3,)), "only events"),
        (lambda: PoissonSampled(0.0, Gaussian(1.0, 1.0)), "rate must be above 0 and at most 1, got 0.0"),
        (lambda: PoissonSampled(float("nan"), Gaussian(1.0, 1.0)), "rate must be"),
        (lambda: RandomisedResponse(1, 1.0), "at least 2 categories"),
        (lambda: RandomisedResponse(2, 1.0, "add_remove"), "adjacency 'replace_one'"),
        (lambda: Exponential(1.0, float("inf")), "exponential: epsilon"),
    ],
)
def test_an_impossible_event_is_refused(make, sentence):
    """An event that cannot have happened never comes into being."""
    with pytest.raises(InvalidParameter, match=sentence):
        make()
