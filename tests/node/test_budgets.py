"""A party's budgets: several limits in one file, charged together, by processes side by side that may be killed."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import BudgetExceeded, InvalidParameter, ProtocolError
from hedgerow.federation import federation
from hedgerow.node.budgets import Budgets, Charged, State
from hedgerow.node.party_file import Limits, Policy
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.privacy.events import Composed, DiscreteGaussian, Exponential, Laplace, NonPrivate, RandomisedResponse
from hedgerow.runtime.budgets import notion_of

HALF = Exponential(1.0, 0.5)
ANSWER = RandomisedResponse(2, 0.5)
POLICY = Policy(
    budget=Limits(2.0, 1e-5),
    budget_of_peers={"shop": Limits(1.0, 1e-5), "club": Limits(1.5, 1e-5)},
    budget_of_datasets={"customers": Limits(1.25, 1e-5)},
)


@pytest.fixture
def path(tmp_path):
    """Where the budget is."""
    return tmp_path / "budget.sqlite"


def charge(budgets, event, what, *peers, dataset=None, delta=0.0, **how):
    """Reserve, and let it stand."""
    with budgets.of_run(peers=peers, dataset=dataset, **how).reserve(event, what=what, delta=delta):
        pass


def spent(budgets):
    """Limit -> epsilon spent."""
    return {state.limit: state.spent_epsilon for state in budgets.states()}


def test_every_limit_that_applies_is_charged(path):
    """In all, each peer of the run and the dataset; others are left alone."""
    budgets = Budgets(path, POLICY)
    charge(budgets, HALF, "run 1", "shop", dataset="customers")
    assert spent(budgets) == {"all": 0.5, "peer:shop": 0.5, "peer:club": 0.0, "data:customers": 0.5}
    charge(budgets, HALF, "run 2", "club", "somebody", dataset="others")
    assert spent(budgets) == {"all": 1.0, "peer:shop": 0.5, "peer:club": 0.5, "data:customers": 0.5}
    assert budgets.states()[0] == State("all", 2.0, 1e-5, 1.0, 0.0)


def test_if_one_limit_is_too_small_none_is_charged(path):
    """The last one that is looked at refuses, and those before it are as they were."""
    budgets = Budgets(path, POLICY)
    charge(budgets, HALF, "run 1", "somebody", dataset="customers")
    charge(budgets, HALF, "run 2", "somebody", dataset="customers")
    before = path.read_bytes()
    with pytest.raises(
        BudgetExceeded, match=r"'data:customers': epsilon does not fit: asked 0\.5, spent 1, left 0\.25"
    ):
        charge(budgets, HALF, "run 3", "shop", dataset="customers")
    assert path.read_bytes() == before
    with pytest.raises(BudgetExceeded, match="data:customers"):
        budgets.of_run(peers=("shop",), dataset="customers").check(HALF)
    budgets.of_run(peers=("shop",), dataset="others").check(HALF)
    assert path.read_bytes() == before


def test_without_limits_there_is_nothing_to_charge(path):
    """No file is made, and whatever is released is let through."""
    budgets = Budgets(path, Policy())
    charge(budgets, NonPrivate("?"), "run 1", "shop")
    assert (budgets.states(), path.exists()) == ([], False)


def test_no_guarantee_no_run(path):
    """With a limit anywhere a release without guarantee is refused, also where no limit applies to the run."""
    budgets = Budgets(path, Policy(budget_of_peers={"shop": Limits(1.0)}))
    for peer in ("shop", "club"):
        with pytest.raises(BudgetExceeded, match="without a guarantee"):
            charge(budgets, Composed((HALF, NonPrivate("?"))), "run 1", peer)
    charge(budgets, Exponential(1.0, 50.0), "run 2", "club")


def test_both_notions_of_neighbours_share_a_limit(path):
    """Runs that add or remove a record and runs that exchange one add up: the limit is not given twice."""
    budgets = Budgets(path, Policy(budget=Limits(1.25)))
    charge(budgets, HALF, "run 1", "shop")
    charge(budgets, ANSWER, "run 2", "shop")
    assert spent(budgets) == {"all": pytest.approx(1.0)}
    for event in (HALF, ANSWER):
        with pytest.raises(BudgetExceeded):
            charge(budgets, event, "run 3", "shop")
    charge(budgets, Exponential(1.0, 0.125), "run 4", "shop")
    charge(budgets, RandomisedResponse(2, 0.125), "run 5", "shop")
    with pytest.raises(InvalidParameter, match="two notions"):
        charge(budgets, Composed((Laplace(1.0, 9.0), RandomisedResponse(2, 0.01))), "run 6", "shop")
    assert notion_of(Composed(())) == "add_remove"


def test_a_run_settles_in_all_limits(path):
    """What did not happen is given back everywhere; a run that raises keeps all of it."""
    budgets = Budgets(path, POLICY)
    mine = budgets.of_run(peers=("shop",), dataset="customers")
    with mine.reserve(Composed((HALF, HALF)), what="run 1") as held:
        held.settle(HALF)
    with pytest.raises(ZeroDivisionError), mine.reserve(Exponential(1.0, 0.25), what="run 1"):
        _ = 1 / 0
    assert spent(budgets) == {"all": 0.75, "peer:shop": 0.75, "peer:club": 0.0, "data:customers": 0.75}


def test_charges_are_told_once_they_are_on_disk(path):
    """With the limits, the epsilon and the delta; nothing is told of what is refused or taken up."""
    told = []
    budgets = Budgets(path, POLICY)
    charge(budgets, HALF, "run 1", "shop", on_charged=told.append)
    charge(budgets, HALF, "run 1", "shop", on_charged=told.append, resumed=True)
    with pytest.raises(BudgetExceeded):
        charge(budgets, Exponential(1.0, 9.0), "run 2", "shop", on_charged=told.append)
    assert told == [Charged(("all", "peer:shop"), 0.5, 0.0)]


# --- limits that change ----------------------------------------------------------------------------------------------


def test_a_lower_limit_takes_effect(path):
    """At once, also below what has been spent; back up to what it was opened with is allowed."""
    charge(Budgets(path, Policy(budget=Limits(2.0))), HALF, "run 1", "shop")
    for epsilon in (0.75, 0.25):
        lower = Budgets(path, Policy(budget=Limits(epsilon)))
        with pytest.raises(BudgetExceeded, match=f"allowed {epsilon}"):
            charge(lower, HALF, "run 2", "shop")
    charge(Budgets(path, Policy(budget=Limits(2.0))), HALF, "run 3", "shop")


def test_a_higher_limit_is_refused(path):
    """Of epsilon or of delta, of any limit; the sentence has both numbers and a way out."""
    Budgets(path, POLICY)
    with pytest.raises(InvalidParameter, match=r"allows epsilon 3 for 'all', but .* opened with 2: .* Write 2 or less"):
        Budgets(path, Policy(budget=Limits(3.0)))
    with pytest.raises(InvalidParameter, match=r"allows delta 0\.1 for 'peer:shop'"):
        Budgets(path, Policy(budget_of_peers={"shop": Limits(1.0, 0.1)}))


def test_a_limit_that_is_left_out_stays(path):
    """Taking it out of party.toml would be raising it."""
    Budgets(path, POLICY)
    budgets = Budgets(path, Policy())
    charge(budgets, Exponential(1.0, 1.0), "run 1", "shop")
    with pytest.raises(BudgetExceeded, match="peer:shop"):
        charge(budgets, HALF, "run 2", "shop")


# --- runs that go on -------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_charged_once(path):
    """It takes up what it finds, adds what it does not find, and what it settles is settled once."""
    budgets = Budgets(path, POLICY)
    with suppress(ZeroDivisionError), budgets.of_run(peers=("shop",), dataset=None).reserve(HALF, what="run 1"):
        _ = 1 / 0
    again = Budgets(path, POLICY).of_run(peers=("shop",), dataset=None, resumed=True)
    with again.reserve(HALF, what="run 1") as held:
        held.settle(HALF)
    assert spent(budgets)["all"] == 0.5
    assert [entry.state for entry in BudgetFile(path).dataset("all").entries()] == ["settled"]
    with again.reserve(HALF, what="run 1"):
        pass  # the same amount a second time in one life is a second charge
    assert spent(budgets)["all"] == 1.0
    charge(budgets, Exponential(1.0, 0.25), "run 2", "club", resumed=True)
    assert spent(budgets)["all"] == 1.25


def test_several_charges_of_one_run_are_told_apart(path):
    """A run that charges twice on its way finds both when it goes on."""
    budgets = Budgets(path, POLICY)
    for resumed in (False, True, True):
        mine = budgets.of_run(peers=("club",), dataset=None, resumed=resumed)
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(mine.reserve(HALF, what="run 1"))
        assert spent(budgets)["peer:club"] == 1.0


def test_a_limit_that_is_new_since_the_crash_is_charged_too(path):
    """What a run finds it takes up, limit by limit."""
    charge(Budgets(path, Policy(budget=Limits(1.0))), HALF, "run 1", "shop")
    budgets = Budgets(path, Policy(budget=Limits(1.0), budget_of_peers={"shop": Limits(1.0)}))
    charge(budgets, HALF, "run 1", "shop", resumed=True)
    assert spent(budgets) == {"all": 0.5, "peer:shop": 0.5}


def test_a_run_does_not_begin_twice(path):
    """With the id of an earlier run it would draw its noise anew for nothing."""
    budgets = Budgets(path, POLICY)
    charge(budgets, HALF, "run 1", "shop")
    with pytest.raises(ProtocolError, match=r"run 1 is in .* already, charged on .*: resume it, or propose a new run"):
        charge(budgets, HALF, "run 1", "shop")
    assert spent(budgets)["all"] == 0.5


def test_settled_to_less_covers_no_more_than_that(path):
    """A run that goes on with more than it was settled to pays for it."""
    budgets = Budgets(path, POLICY)
    with budgets.of_run(peers=(), dataset=None).reserve(Composed((HALF, HALF)), what="run 1") as held:
        held.settle(HALF)
    charge(budgets, Composed((HALF, HALF)), "run 1", resumed=True)
    assert spent(budgets)["all"] == 1.5


# --- in a run --------------------------------------------------------------------------------------------------------


def test_a_role_is_played_on_it(path, monkeypatch):
    """`running.role` takes it in place of a dataset: what a real run costs is in every limit, under the run's id."""
    monkeypatch.setattr(federation, "checked_budgets", lambda budget, *_: budget)
    rng = np.random.default_rng(0)
    bank, shop = rng.normal(size=(2, 60, 2))
    parties = federation.Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", bank[:, 0] + shop[:, 1] > 0))
    options = {"epsilon": 1.0, "delta": 1e-6, "n_estimators": 1, "max_depth": 1}
    budgets = Budgets(path, POLICY)
    budget = {"bank": budgets.of_run(peers=("shop",), dataset="customers")}
    run = parties.fit("vertical.noised_gradients", budget=budget, **options)
    used = spent(budgets)
    assert used["all"] == used["peer:shop"] == used["data:customers"] == pytest.approx(1.0)
    entries = BudgetFile(path).dataset("replace_one:all").entries()
    assert [(entry.what, entry.state) for entry in entries] == [
        (f"vertical.noised_gradients, run {run.job.run_id}", "settled")
    ]


# --- side by side ----------------------------------------------------------------------------------------------------

RACER = textwrap.dedent(
    """
    import random, sys
    sys.path.insert(0, sys.argv[4])
    from hedgerow.node.party_file import Limits, Policy
    from hedgerow.errors import BudgetExceeded
    from hedgerow.node.budgets import Budgets
    from hedgerow.privacy.events import Exponential
    path, heat, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    policy = Policy(budget=Limits(2.0), budget_of_peers={"shop": Limits(1.0), "club": Limits(1.5)},
                    budget_of_datasets={"customers": Limits(1.25)})
    draw = random.Random(f"{heat} {number}")
    budgets = Budgets(path, policy)
    print("ready", flush=True)
    sys.stdin.readline()
    for k in range(12):
        peers, dataset = draw.choice([("shop",), ("club",), ("shop", "club")]), draw.choice(["customers", None])
        event, what = Exponential(1.0, draw.choice([0.0625, 0.03125])), f"run-{heat}-{number}-{k}"
        try:
            with budgets.of_run(peers=peers, dataset=dataset).reserve(event, what=what) as held:
                print(what, event.epsilon, ",".join(peers), dataset or "-", flush=True)
                if draw.random() < 0.2:
                    held.settle(event)
        except BudgetExceeded:
            print("refused", flush=True)
    """
)
LIMITS = {"all": 2.0, "peer:shop": 1.0, "peer:club": 1.5, "data:customers": 1.25}


def race(path, heat, tests):
    """Eight processes, ready to go."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), heat, str(number), str(tests)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    return racers


def limits_for(peers, dataset):
    """The limits that apply to a run, as a racer printed it."""
    return {"all", *(f"peer:{peer}" for peer in peers.split(",")), *([] if dataset == "-" else [f"data:{dataset}"])}


def check_book(path, told):
    """No limit is exceeded; what a process was given is in every limit that applies, and no run is in a part of them.

    Gives the names of all runs in the book.
    """
    runs = {}
    for name, limit in LIMITS.items():
        entries = BudgetFile(path).dataset(name).entries()
        assert math.fsum(entry.epsilon for entry in entries) <= limit * (1 + 1e-9)
        assert len({entry.what for entry in entries}) == len(entries)
        for entry in entries:
            runs.setdefault(entry.what, {})[name] = entry.epsilon
    for what, epsilon, peers, dataset in told:
        assert runs[what] == dict.fromkeys(limits_for(peers, dataset), float(epsilon))
    for charged in runs.values():
        assert "all" in charged
        assert {"peer:shop", "peer:club"} & set(charged)
        assert len(set(charged.values())) == 1
    return set(runs)


def given_runs(lines):
    """(what, epsilon, peers, dataset) of each run that a process could still print before it was killed."""
    words = [line.split() for line in lines if line.startswith("run-") and line.endswith("\n")]
    return [tuple(found) for found in words if len(found) == 4]


def test_eight_processes_never_overspend(path, pytestconfig):
    """All ask at once until nothing is left: each limit holds, and what was given is written down, all or none."""
    racers = race(path, "first", pytestconfig.rootpath / "tests")
    told = [run for racer in racers for run in given_runs(racer.communicate()[0].splitlines(keepends=True))]
    assert check_book(path, told) == {run[0] for run in told}
    assert BudgetFile(path).dataset("all").spent().epsilon > 1.5


def test_processes_that_are_killed_never_overspend(path, pytestconfig):
    """SIGKILL at any moment, twice over: the book is whole, limits hold, and whatever was given is charged."""
    draw = random.Random(0)
    for heat in ("first", "second"):
        racers = race(path, heat, pytestconfig.rootpath / "tests")
        lines = []
        for racer in draw.sample(racers, 4):
            lines += [racer.stdout.readline() for _ in range(draw.randrange(4))]
            os.kill(racer.pid, signal.SIGKILL)
        for racer in racers:
            lines += racer.communicate()[0].splitlines(keepends=True)
        told = given_runs(lines)
        assert {run[0] for run in told} <= check_book(path, told)


# --- laws ------------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run 1", "run 2", "run 3"]),
        st.sampled_from([HALF, ANSWER, Exponential(1.0, 0.25), DiscreteGaussian(1.0, 40.0, 1)]),
        st.sets(st.sampled_from(["shop", "club"])),
        st.sampled_from(["customers", None]),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=30)
@given(STEPS)
def test_no_order_of_runs_exceeds_a_limit(tmp_path_factory, steps):
    """Whatever is begun, resumed or refused in whatever order, each limit holds, both notions together."""
    path = tmp_path_factory.mktemp("budget") / "budget.sqlite"
    for what, event, peers, dataset, resumed in steps:
        with suppress(BudgetExceeded, ProtocolError):
            charge(Budgets(path, POLICY), event, what, *peers, dataset=dataset, delta=1e-6, resumed=resumed)
        for state in Budgets(path, POLICY).states():
            assert state.spent_epsilon <= state.epsilon * (1 + 1e-8)
            assert state.spent_delta <= state.delta * (1 + 1e-8)
