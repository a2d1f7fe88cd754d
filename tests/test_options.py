"""Options are declared once: what is accepted, what is refused and in which words, and what JSON makes of them."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.runtime.protocol import Job, Option, Settled, find, names, option, options_of, services


@dataclass(frozen=True)
class Toy(Job):
    """A job with an option of each sort."""

    NAME = "toy"

    run_id: str
    epsilon: float | None = option(None, "the loss", above=0, or_inf=True, needed="epsilon, the loss of one row")
    buckets: int = option(16, "of a column", at_least=2, at_most=256)
    per: str = option("run", "what gets noise", one_of=("run", "tree"))
    debias: bool = option(True, "whether trees allow for noise")
    share: float = option(0.5, "of the budget", above=0, below=1)
    bins: int = option(4, "settled elsewhere", at_least=1, settled=True)

    def check(self):
        """A rule across options."""
        if self.per == "tree" and not self.debias:
            raise InvalidParameter("toy: per='tree' needs debias=True")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epsilon": None}, "toy needs epsilon, the loss of one row"),
        ({"epsilon": 0}, "toy: epsilon must be a number above 0, or math.inf, got 0"),
        ({"epsilon": True}, "toy: epsilon must be a number above 0, or math.inf, got True"),
        ({"epsilon": math.nan}, "epsilon must be .* got nan"),
        ({"epsilon": "4"}, "epsilon must be .* got '4'"),
        ({"epsilon": 10**400}, "epsilon must be"),
        ({"buckets": 1}, "toy: buckets must be a whole number between 2 and 256, got 1"),
        ({"buckets": 16.0}, "buckets must be"),
        ({"per": "week"}, "toy: per must be one of run, tree, got 'week'"),
        ({"debias": 1}, "toy: debias must be True or False, got 1"),
        ({"share": 1}, "toy: share must be a number above 0 and below 1, got 1"),
        ({"bins": 0}, "toy: bins must be a whole number of at least 1, got 0"),
        ({"per": "tree", "debias": False}, "needs debias=True"),
    ],
)
def test_what_is_refused_names_protocol_option_and_value(changes, sentence):
    """In one sentence, made from the declaration."""
    with pytest.raises(InvalidParameter, match=sentence):
        Toy(**{"run_id": "a run", "epsilon": 1.0, **changes})


@given(
    st.floats(min_value=0, exclude_min=True, allow_nan=False) | st.integers(1, 100) | st.just(math.inf),
    st.integers(2, 256),
    st.sampled_from(["run", "tree"]),
)
def test_a_job_survives_json_and_pickle(epsilon, buckets, per):
    """It is the same after both, infinity included; numbers are plain ones."""
    job = Toy("a run", np.float64(epsilon), np.int32(buckets), per)
    assert type(job.epsilon) is float
    assert type(job.buckets) is int
    assert Toy.from_dict(json.loads(json.dumps(job.to_dict(), allow_nan=False))) == job
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301 - our own, to see that copies are possible


def test_a_job_with_other_fields_is_refused():
    """As a whole: a file that holds more than we know may mean something else."""
    with pytest.raises(InvalidInput, match="Toy has no field 'colour'"):
        Toy.from_dict({"run_id": "a", "epsilon": 1.0, "colour": "red"})


def test_options_are_those_that_users_set():
    """In the order of fields, with types and defaults; what is settled elsewhere is marked."""
    found = {each.name: each for each in options_of(Toy)}
    assert list(found) == ["epsilon", "buckets", "per", "debias", "share", "bins"]
    assert (found["epsilon"].kind, found["epsilon"].or_none, found["bins"].settled) == (float, True, True)


def test_a_service_makes_no_job_of_a_training():
    """Who asks for one is told what to do instead."""
    with pytest.raises(InvalidParameter, match="toy trains nothing; make a Toy for a trained model"):
        Toy.from_user({}, Settled(("a", "b"), "a run", "classification", None, 8))


@pytest.mark.parametrize("name", [*names(), *services()])
def test_every_protocol_is_declared_whole(name):
    """It has the name it is registered under, messages that differ, and defaults that are allowed."""
    protocol = find(name)
    assert protocol.name == name
    assert len(set(protocol.messages)) == len(protocol.messages)
    assert all(kind.discloses for kind in protocol.messages)
    for each in options_of(protocol.job):
        if not each.needed and each.parse is None:
            assert each.checked(name, each.default) == each.default, each.name


def test_words_complete_the_sentence():
    """Where the range does not say it well."""
    assert Option(help="x", kind=int, at_least=2, words="even").accepts() == "even"
