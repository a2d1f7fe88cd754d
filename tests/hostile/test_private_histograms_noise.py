"""A hostile label holder of vertical.private_histograms gets neither less noise dealt nor more questions answered.

What is dealt and asked for follows from the job, and sizes are told by everybody.
"""

import dataclasses
from unittest.mock import patch

import numpy as np
import pytest

from hedgerow.errors import FrameError, ProtocolError
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.shares.messages import AllColumns, LevelDone
from hedgerow.protocols.vertical.private_histograms.columns import layout_of
from hedgerow.protocols.vertical.private_histograms.dealer import SmoothDealing
from hedgerow.protocols.vertical.private_histograms.job import GROWN, SMOOTH, PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import SmoothAsked, SmoothQuestions, SmoothSizes
from hedgerow.protocols.vertical.private_histograms.smooth.schedule import Schedule
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.schema import NumericColumn, Schema
from twins.vertical import make_data, make_job, outcomes_of

N_ROWS, N_COLUMNS = 120, 3


def setting(policy=SMOOTH):
    """A small job of two parties, with its data."""
    data = make_data(2, N_ROWS, N_COLUMNS)
    columns = tuple(NumericColumn(c.name, -4.0, 4.0) for party in data.values() for c in party.table.columns)
    own = {"epsilon": 1.0, "schema": Schema(columns, classes=(0, 1)), "max_bins": 8, "policy": policy}
    return make_job(PrivateHistogramsJob, data, "anna", l2=1.0, n_iterations=1, max_depth=1, **own), data


def with_lies(policy, lie):
    """How all ended when what anna sends is what `lie` makes of it: a list of messages."""
    job, data = setting(policy)
    send = Party.send

    def lying(self, to, message, **how):
        for each in lie(to, message) if self.name == "anna" else [message]:
            send(self, to, each, **how)

    def lying_to_all(self, peers, message):
        for to in peers:
            lying(self, to, message)

    with patch.object(Party, "send", lying), patch.object(Party, "send_all", lying_to_all):
        outcomes, _ = outcomes_of(PROTOCOL, job, data)
    return outcomes


def test_no_message_says_how_much_noise_is_to_be_drawn():
    """The label holder has no field in which it could ask for less, or for another kind of sum."""
    told = {
        field.name for kind in (SmoothSizes, SmoothAsked, LevelDone, AllColumns) for field in dataclasses.fields(kind)
    }
    assert not {name for name in told if "sigma" in name or "noise" in name or "kind" in name}


def test_the_dealer_draws_the_noise_that_the_job_asks_for():
    """Every sigma follows from epsilon, delta and public sizes: squared costs of all draws add up to the budget."""
    job, data = setting()
    drawn, gaussian = [], SmoothDealing.gaussian

    def watching(self, shape, sigma):
        drawn.append((self._schedule.kinds[len(drawn) + 1], sigma))
        return gaussian(self, shape, sigma)

    with patch.object(SmoothDealing, "gaussian", watching):
        outcomes, _ = outcomes_of(PROTOCOL, job, data)
    assert all(outcome.error is None for outcome in outcomes.values())
    schedule = public_schedule(job)
    spent = sum(schedule.sensitivity_squared(kind) / sigma**2 for kind, sigma in drawn)
    assert (
        0.93 < spent / (mu_for(job.noise, job.delta) ** 2 * 0.95) <= 1.0
    )  # 5% are for counts, whose noise is not dealt
    assert len(drawn) == len(schedule.kinds) - 1


def public_schedule(job):
    """The schedule of the job, from public sizes."""
    cut = N_COLUMNS // 2
    return Schedule.of(job, layout_of(job, [np.arange(cut), np.arange(cut, N_COLUMNS)], []), N_ROWS)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rows": N_ROWS + 1},
        {"n_rows": 1},
        {"places": np.array([0, 1, 1], np.int32)},
        {"n_columns": np.array([2, 1], np.int32)},
    ],
)
def test_a_lie_about_sizes_is_refused_by_the_dealer(changes):
    """Noise follows from sizes, so a label holder that tells others than its peers do ends the run."""
    outcomes = with_lies(
        SMOOTH, lambda _, m: [dataclasses.replace(m, **changes)] if isinstance(m, SmoothSizes) else [m]
    )
    assert isinstance(outcomes["dealer"].error, ProtocolError)
    assert "anna and ben told different sizes" in str(outcomes["dealer"].error)


@pytest.mark.parametrize("changes", [{"n_rows": N_ROWS // 2}, {"n_bins": np.array([2, 2, 2], np.int32)}])
def test_a_lie_about_sizes_is_refused_with_grown_trees(changes):
    """The same where trees are grown."""
    outcomes = with_lies(GROWN, lambda _, m: [dataclasses.replace(m, **changes)] if isinstance(m, AllColumns) else [m])
    assert isinstance(outcomes["dealer"].error, ProtocolError)
    assert "anna and ben told different sizes" in str(outcomes["dealer"].error)


def test_one_more_tree_is_refused():
    """A request beyond the schedule, in place of the end, is none that a feature holder answers."""
    asked = []

    def lie(_, message):
        if isinstance(message, SmoothAsked):
            asked.append(message)
        if isinstance(message, SmoothQuestions):
            return [dataclasses.replace(asked[-2], number=asked[-1].number + 1)]
        return [message]

    outcomes = with_lies(SMOOTH, lie)
    assert isinstance(outcomes["ben"].error, FrameError)
    assert "expected vertical.private_histograms.smooth_questions" in str(outcomes["ben"].error)


def test_fewer_trees_are_refused():
    """The last sum, asked for before all trees were, does not fit the schedule: its noise would be that of a tree."""
    last_tree = len(public_schedule(setting()[0]).kinds) - 1

    def lie(_, message):
        if isinstance(message, SmoothAsked) and message.number == last_tree:
            return [dataclasses.replace(message, features=message.features[:0], goes_right=message.goes_right[:0])]
        return [message]

    outcomes = with_lies(SMOOTH, lie)
    assert isinstance(outcomes["ben"].error, ProtocolError)
    assert "features of shape (0,)" in str(outcomes["ben"].error)
