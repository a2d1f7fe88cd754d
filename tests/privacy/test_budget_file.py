"""Budget files: real files, real processes, real kills."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from hedgerow.errors import BudgetExceeded, HedgerowError, InvalidInput, InvalidParameter
from hedgerow.privacy.accountants import BasicComposition, GaussianDP, PrivacyLoss, ZeroConcentratedDP
from hedgerow.privacy.budget_file import BudgetFile, epsilon_of
from hedgerow.privacy.calibrate import mu_for, sigma_for_mu
from hedgerow.privacy.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
)

pytestmark = pytest.mark.usefixtures("remembered_deltas")

CHOICE = Exponential(1.0, 0.5)


@pytest.fixture
def file(tmp_path):
    """A budget file with one dataset of epsilon 1 and delta 1e-6."""
    file = BudgetFile(tmp_path / "budgets.sqlite")
    file.open("rows", 1.0, 1e-6)
    return file


def charge(dataset, event, what="a test", delta=0.0):
    """Reserve, and let it stand."""
    with dataset.reserve(event, what=what, delta=delta):
        pass


def noise_for(epsilon, delta):
    """Gaussian noise that uses up an epsilon at a delta."""
    return DiscreteGaussian(5.0, sigma_for_mu(5.0, mu_for(epsilon, delta) ** 2), 3)


def test_all_of_it_can_be_spent_but_no_more(file):
    """Two halves fit; a third charge, however small, does not, and the error has all numbers."""
    rows = file.dataset("rows")
    charge(rows, CHOICE)
    assert rows.spent() == (0.5, 0.0)
    assert rows.remaining == 0.5
    charge(rows, DiscreteLaplace(1.0, 2.0))
    numbers = r"'rows': epsilon does not fit: asked 0\.001, spent 1, left 0, together 1\.001, allowed 1$"
    with pytest.raises(BudgetExceeded, match=numbers):
        charge(rows, Exponential(1.0, 0.001))
    assert [entry.state for entry in rows.entries()] == ["kept", "kept"]
    assert rows.remaining == 0.0


@pytest.mark.parametrize("composition", ["basic", "gaussian"])
def test_a_fit_for_the_whole_budget_fits(file, composition):
    """Gaussian noise calibrated to exactly the dataset's numbers passes, once."""
    rows = file.open(composition, 1.0, 1e-6, composition=composition)
    charge(rows, noise_for(1.0, 1e-6), delta=1e-6)
    with pytest.raises(BudgetExceeded):
        charge(rows, noise_for(1.0, 1e-6), delta=1e-6)
    assert 0.999 < rows.spent().epsilon <= 1.0
    assert rows.spent().delta == 1e-6


def test_epsilons_and_deltas_add_up(file):
    """Three trainings of epsilon 1 and delta 1e-6 fit three times that; a fourth does not, and what lacks is told."""
    rows = file.open("three", 3.0, 3e-6)
    for _ in range(3):
        charge(rows, noise_for(1.0, 1e-6), delta=1e-6)
    assert rows.spent().epsilon == pytest.approx(3.0, rel=1e-6)
    assert rows.spent().delta == pytest.approx(3e-6, rel=1e-12)
    both = r"epsilon does not fit: asked 1, spent 3, .*; delta does not fit: asked 1e-06, spent 3e-06, left 0, "
    with pytest.raises(BudgetExceeded, match=both):
        charge(rows, noise_for(1.0, 1e-6), delta=1e-6)
    wide = file.open("wide", 30.0, 1e-6)
    charge(wide, noise_for(1.0, 1e-6), delta=1e-6)
    with pytest.raises(BudgetExceeded, match=r"'wide': delta does not fit: .*, together 2e-06, allowed 1e-06$"):
        charge(wide, noise_for(1.0, 1e-6), delta=1e-6)
    charge(wide, CHOICE)  # needs no delta
    assert wide.spent().delta == 1e-6
    many = file.open("many", 0.3, 0.0)
    for _ in range(3):
        charge(many, Exponential(1.0, 0.1))  # 0.1 + 0.1 + 0.1 is a little more than 0.3


def test_gaussian_composition_adds_squares(file):
    """Trainings whose epsilons would add up to far more fit together; pure ones are taken, samples are not."""
    rows = file.open("many", 1.0, 1e-6, composition="gaussian")
    each = DiscreteGaussian(5.0, sigma_for_mu(5.0, mu_for(1.0, 1e-6) ** 2 / 26), 3)
    for _ in range(24):
        charge(rows, each)
    together = GaussianDP()
    together.compose(each, 24)
    together.compose(Exponential(1.0, 0.02))
    charge(rows, Exponential(1.0, 0.02))
    assert rows.spent() == (together.epsilon(1e-6), 1e-6)
    assert sum(entry.epsilon for entry in rows.entries()) > 4.0
    with pytest.raises(BudgetExceeded, match=r"'many': epsilon does not fit: asked .*, together 3\.\d+, allowed 1$"):
        charge(rows, CHOICE)
    with pytest.raises(InvalidParameter, match=r"composition='gaussian', which cannot take poisson_sampled events"):
        charge(rows, Composed((PoissonSampled(0.01, Gaussian(1.0, 10.0)),)))
    assert len(rows.entries()) == 25


def test_noise_needs_a_delta(file):
    """Gaussian noise has no finite epsilon at delta 0: refused by name, and nothing is charged. Nor at no delta."""
    rows = file.dataset("rows")
    with pytest.raises(InvalidParameter, match=r"no finite epsilon can be proved for this event at delta = 0; give"):
        charge(rows, Gaussian(1.0, 50.0))
    for delta in (-1e-6, 1.0, math.nan, "0", True):
        with pytest.raises(InvalidParameter, match="delta must be at least 0 and below 1"):
            charge(rows, CHOICE, delta=delta)
    assert rows.entries() == ()
    with pytest.raises(InvalidParameter, match="needs a delta above 0"):
        file.open("none", 1.0, 0.0, composition="gaussian")


def test_refused_before_anything_runs(file):
    """The body of `with` is not entered when there is not enough left."""
    entered = []
    with pytest.raises(BudgetExceeded), file.dataset("rows").reserve(Repeated(CHOICE, 3), what="too much"):
        entered.append(True)
    assert entered == []
    assert file.dataset("rows").entries() == ()


def test_settling_lowers_and_never_raises(file):
    """Less than planned is charged as such; more is refused, and the reservation stays; twice is refused."""
    rows = file.dataset("rows")
    with rows.reserve(Repeated(CHOICE, 2), what="planned 2, ran 1") as held:
        held.settle(CHOICE)
        with pytest.raises(InvalidParameter, match="can be settled once"):
            held.settle(CHOICE)
    assert rows.spent().epsilon == 0.5
    with rows.reserve(Exponential(1.0, 0.25), what="more") as held, pytest.raises(BudgetExceeded, match="was used"):
        held.settle(CHOICE)
    assert rows.spent().epsilon == 0.75
    with pytest.raises(InvalidParameter, match="closed"):
        held.settle(Exponential(1.0, 0.1))
    assert [entry.state for entry in rows.entries()] == ["settled", "kept"]


@pytest.mark.parametrize("composition", ["basic", "gaussian"])
def test_nothing_at_all_costs_nothing(file, composition):
    """Settled to nothing, an entry has neither epsilon nor delta, and stays in the file."""
    rows = file.open(composition, 1.0, 1e-6, composition=composition)
    with rows.reserve(noise_for(1.0, 1e-6), what="nothing ran", delta=1e-6) as held:
        held.settle(Composed(()))
    assert (rows.spent().epsilon, rows.remaining) == (0.0, 1.0)
    assert [(entry.epsilon, entry.delta, entry.state) for entry in rows.entries()] == [(0.0, 0.0, "settled")]
    charge(rows, noise_for(1.0, 1e-6), delta=1e-6)


def test_with_a_delta_the_plan_is_charged(file):
    """Half of the noise planned: under Gaussian DP half is charged, in basic composition all of it; more is refused."""
    whole, half = noise_for(1.0, 1e-6), noise_for(0.5, 1e-6)
    for composition, charged in [("basic", 1.0), ("gaussian", 0.5)]:
        rows = file.open(composition, 1.0, 1e-6, composition=composition)
        with rows.reserve(whole, what="half", delta=1e-6) as held:
            held.settle(half)
        assert rows.spent().epsilon == pytest.approx(charged, rel=1e-4)
        assert rows.entries()[0].event == half
        other = file.open(f"{composition} 2", 1.0, 1e-6, composition=composition)
        with other.reserve(half, what="more", delta=1e-6) as held, pytest.raises(BudgetExceeded, match="was used"):
            held.settle(whole)
        assert other.spent().epsilon == pytest.approx(0.5, rel=1e-4)


def test_stopping_early_could_be_unlucky_twice():
    """Why an entry with a delta keeps its epsilon: settled to what ran, this analyst would be unlucky twice.

    It runs a little noise; if the loss is beyond its epsilon at delta, it stops, otherwise it adds much less noise, and
    spends the rest of the budget on pure choices. By the settled epsilons it stays within budget at delta.
    """
    delta, small, large = 1e-3, 0.3, 3.0
    first = _loss_beyond(small, delta)
    both = _loss_beyond(math.hypot(small, large), delta)
    z, w = np.random.default_rng(0).standard_normal((2, 4_000_000))
    one = small * z + small**2 / 2
    two = one + large * w + large**2 / 2
    unlucky = np.where(one > first, -np.expm1(np.minimum(first - one, 0)), -np.expm1(np.minimum(both - two, 0)))
    assert unlucky.mean() > 1.8 * delta


def _loss_beyond(mu, delta):
    """The epsilon of a Gaussian at delta."""
    accountant = GaussianDP()
    accountant.compose(Gaussian(mu, 1.0))
    return accountant.epsilon(delta)


def test_an_error_in_between_stays_charged(file):
    """Something may have been released before it failed."""
    rows = file.dataset("rows")
    with pytest.raises(ZeroDivisionError), rows.reserve(CHOICE, what="fails"):
        _ = 1 / 0
    assert rows.spent().epsilon == 0.5


def run(code, *arguments):
    """Start a process that runs the code."""
    program = textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_killed_process_stays_charged(file):
    """SIGKILL between reserve and settle: the reservation is on disk and the file is in order."""
    process = run(
        """
        import sys, time
        from hedgerow.privacy.budget_file import BudgetFile
        from hedgerow.privacy.events import Exponential
        with BudgetFile(sys.argv[1]).dataset("rows").reserve(Exponential(1.0, 0.75), what="killed"):
            print("reserved", flush=True)
            time.sleep(60)
        """,
        file.path,
    )
    assert process.stdout.readline() == "reserved\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    rows = BudgetFile(file.path).dataset("rows")
    assert rows.spent().epsilon == 0.75
    assert [(entry.what, entry.state) for entry in rows.entries()] == [("killed", "reserved")]
    with pytest.raises(BudgetExceeded):
        charge(rows, CHOICE)


def test_the_last_epsilon_is_given_once(file):
    """Four processes ask for half of the budget at the same moment: two get it."""
    code = """
        import sys
        from hedgerow.errors import BudgetExceeded
        from hedgerow.privacy.budget_file import BudgetFile
        from hedgerow.privacy.events import Exponential
        rows = BudgetFile(sys.argv[1]).dataset("rows")
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            with rows.reserve(Exponential(1.0, 0.5), what="race"):
                print("got it")
        except BudgetExceeded:
            print("refused")
    """
    processes = [run(code, file.path) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = sorted(process.communicate()[0].strip() for process in processes)
    assert answers == ["got it", "got it", "refused", "refused"]
    assert file.dataset("rows").spent().epsilon == 1.0


def test_several_datasets_are_charged_in_one_transaction_or_none(file):
    """One that is too small takes back what was entered in the others before it."""
    rows, small = file.dataset("rows"), file.open("small", 0.25, 0.0)
    own = rows.own(CHOICE, 0.0, allow_not_private=False)
    with pytest.raises(BudgetExceeded, match="'small'"), file.transaction() as cursor:
        _ = [each.enter(cursor, CHOICE, own, what="both") for each in (rows, small)]
    assert rows.entries() == small.entries() == ()
    large = file.open("large", 2.0, 0.0)
    with file.transaction() as cursor:
        charges = [each.enter(cursor, CHOICE, own, what="both") for each in (rows, large)]
    assert [entry.state for each in (rows, large) for entry in each.entries()] == ["reserved", "reserved"]
    for held in charges:
        held.close()
    assert [each.spent().epsilon for each in (rows, large)] == [0.5, 0.5]


def test_a_charge_that_is_taken_up_adds_nothing(file):
    """A training that goes on holds the entry that it had, and may settle it."""
    rows = file.dataset("rows")
    charge(rows, Repeated(CHOICE, 2), "interrupted")
    (entry,) = rows.entries()
    with file.transaction() as cursor:
        held = rows.take_up(cursor, entry)
    assert [(entry.state, entry.epsilon) for entry in rows.entries()] == [("reserved", 1.0)]
    with pytest.raises(BudgetExceeded, match="was used"):
        held.settle(Repeated(CHOICE, 3))
    held.settle(CHOICE)
    assert [(entry.state, entry.epsilon) for entry in rows.entries()] == [("settled", 0.5)]


def test_opening_again(file):
    """The same numbers change nothing, other ones are refused, and an unknown dataset is named."""
    charge(file.dataset("rows"), CHOICE)
    assert file.open("rows", 1.0, 1e-6).spent().epsilon == 0.5
    for other in [(2.0, 1e-6), (1.0, 1e-5), (1.0, 1e-6, "replace_one"), (1.0, 1e-6, "add_remove", "gaussian")]:
        with pytest.raises(InvalidParameter, match="a budget cannot be changed"):
            file.open("rows", *other)
    with pytest.raises(InvalidParameter, match=r"no dataset 'row'; known are \['rows'\]"):
        file.dataset("row")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("x", 0.0, 0.0), "epsilon must be a finite number above 0, got 0.0"),
        (("x", math.nan, 0.0), "epsilon must be"),
        (("x", math.inf, 0.0), "epsilon must be"),
        (("x", "1", 0.0), "epsilon must be"),
        (("x", True, 0.0), "epsilon must be"),
        (("x", 1.0, 1.0), "delta must be"),
        (("x", 1.0, math.nan), "delta must be"),
        ((" ", 1.0, 0.0), "dataset must be a name"),
        (("x", 1.0, 0.0, "swap"), "adjacency must be"),
        (("x", 1.0, 0.0, "add_remove", "best"), "composition must be one of"),
    ],
)
def test_impossible_budgets_are_refused(file, arguments, sentence):
    """Each mistake is named."""
    with pytest.raises(InvalidParameter, match=sentence):
        file.open(*arguments)


def test_names_are_free_text(tmp_path):
    """Quotes, semicolons, newlines and other scripts are names like any other, of datasets and of files."""
    name = "Robert'); DROP TABLE entries;--\n\u60a3\u8005 \U0001f33f"
    file = BudgetFile(tmp_path / "a 'b' ?mode=ro#\u00e4.db")
    file.open(name, 1.0, 0.0)
    charge(file.dataset(name), CHOICE, what=name)
    assert file.dataset(name).entries()[0].what == name
    assert file.datasets() == [name]


def test_without_guarantee_only_on_request_and_for_ever(file):
    """NonPrivate is refused, or recorded; afterwards the dataset is not private and takes nothing ordinary."""
    rows = file.dataset("rows")
    leak = Composed((CHOICE, NonPrivate("exact edges")))
    with pytest.raises(BudgetExceeded, match="without guarantee"):
        charge(rows, leak)
    assert rows.is_private
    with (
        pytest.raises(BudgetExceeded, match=r"allowed 1$"),
        rows.reserve(Repeated(CHOICE, 9), what="too much", allow_not_private=True),
    ):
        pass
    with rows.reserve(leak, what="a study", allow_not_private=True):
        pass
    assert (rows.is_private, rows.spent().epsilon, rows.remaining) == (False, math.inf, 0.0)
    assert "NOT PRIVATE" in rows.to_text()
    with pytest.raises(BudgetExceeded):
        charge(rows, Exponential(1.0, 0.01))
    with rows.reserve(leak, what="said to be harmless later", allow_not_private=True) as held:
        held.settle(CHOICE)
    assert [entry.epsilon for entry in rows.entries()] == [math.inf, math.inf]
    with (
        rows.reserve(CHOICE, what="turned out worse", allow_not_private=True) as held,
        pytest.raises(BudgetExceeded, match="epsilon inf was used"),
    ):
        held.settle(leak)


def test_entries_cannot_be_deleted(file):
    """Not even by somebody with a SQL shell who means well."""
    charge(file.dataset("rows"), CHOICE)
    connection = sqlite3.connect(file.path)
    for table in ("entries", "datasets"):
        with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - two fixed names
    connection.close()


def test_one_event_has_the_best_of_all_accounts():
    """Pure: the sum. Gaussian noise: Gaussian DP. Mixtures: zCDP. Samples: loss distributions."""
    noise, sample = DiscreteGaussian(1.0, 50.0, 4), PoissonSampled(0.01, Gaussian(1.0, 1.0))
    mixture = Composed((Repeated(noise, 9), Repeated(Exponential(1.0, 0.05), 100)))
    for make, event, delta in [
        (BasicComposition, Repeated(CHOICE, 3), 0.0),
        (GaussianDP, Repeated(noise, 9), 1e-6),
        (ZeroConcentratedDP, mixture, 1e-6),
        (PrivacyLoss, Repeated(sample, 5), 1e-6),
    ]:
        accountant = make()
        accountant.compose(event)
        assert epsilon_of(event, delta) == accountant.epsilon(delta) < math.inf
    assert epsilon_of(Composed(()), 0.0) == 0.0
    assert epsilon_of(NonPrivate("?"), 0.5) == math.inf


def test_samples_are_charged_one_training_at_a_time(file):
    """Each has its own epsilon from loss distributions, and these add up."""
    rows = file.open("samples", 2.0, 1e-5)
    sample = Repeated(PoissonSampled(0.01, Gaussian(1.0, 1.0)), 5)
    charge(rows, sample, delta=1e-6)
    charge(rows, sample, delta=1e-6)
    assert rows.spent() == (2.0 * epsilon_of(sample, 1e-6), 2e-6)
    with rows.reserve(sample, what="as planned", delta=1e-6) as held:
        held.settle(sample)
    assert rows.entries()[2].state == "settled"


def test_what_is_not_understood_is_refused(file):
    """Another adjacency, or no event at all: not charged."""
    with pytest.raises(InvalidParameter, match="no accountant understands"):
        charge(file.dataset("rows"), Gaussian(1.0, 1.0, "replace_one"))
    with pytest.raises(InvalidParameter, match="only events"):
        charge(file.dataset("rows"), "gaussian")
    assert file.dataset("rows").entries() == ()


def test_files_that_are_no_budget_files(tmp_path):
    """A folder, a missing folder, a text, an empty file, another database, another version: each told, none touched."""
    (tmp_path / "text").write_text("not a database, but long enough to have a header of its own " * 20)
    (tmp_path / "empty").touch()
    for name, statement in [("other", "CREATE TABLE t (x)"), ("future", "PRAGMA user_version = 9")]:
        if name == "future":
            BudgetFile(tmp_path / name)
        connection = sqlite3.connect(tmp_path / name)
        connection.execute(statement)
        connection.commit()
        connection.close()
    for name, sentence in [
        (".", "is a folder"),
        ("missing/x", "does not exist"),
        ("text", "not a database"),
        ("empty", "is empty"),
        ("other", "not a budget file"),
        ("future", "version 9"),
    ]:
        before = (tmp_path / name).read_bytes() if (tmp_path / name).is_file() else None
        with pytest.raises(InvalidInput, match=sentence):
            BudgetFile(tmp_path / name)
        assert before is None or (tmp_path / name).read_bytes() == before


def test_damaged_and_read_only_files(file):
    """An unreadable event, a cut file, or a file without permission to write: clear errors."""
    charge(file.dataset("rows"), CHOICE)
    whole = file.path.read_bytes()
    connection = sqlite3.connect(file.path)
    connection.execute("UPDATE entries SET event = '{'")
    connection.commit()
    connection.close()
    with pytest.raises(InvalidInput, match="damaged"):
        file.dataset("rows").spent()
    file.path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match=r"damaged|cannot be used"):
        BudgetFile(file.path)
    file.path.write_bytes(whole)
    file.path.chmod(0o400)
    if os.access(file.path, os.W_OK):
        pytest.skip("this user may write to everything")
    with pytest.raises(InvalidInput, match="cannot be written to"):
        charge(file.dataset("rows"), CHOICE)


def test_a_table_for_people(file):
    """When, what, each entry's epsilon and delta, and what they come to, rounded up; nothing yet is said too."""
    rows = file.dataset("rows")
    assert "nothing was charged yet" in rows.to_text()
    charge(rows, CHOICE, "first")
    charge(rows, noise_for(1 / 3, 1e-6), "second\nline", delta=1e-6)
    head, how, first, second, total = rows.to_text().splitlines()
    assert "epsilon 1, delta 1e-06, add_remove" in head
    assert how == "basic composition: epsilons and deltas add up"
    assert re.search(r"kept +epsilon +0\.5  delta +0  first$", first)
    assert re.search(r"kept +epsilon +0\.333334  delta +1e-06  second line$", second)
    assert total == "spent: epsilon 0.833334, delta 1e-06"
    other = file.open("squares", 1.0, 1e-6, composition="gaussian")
    charge(other, Exponential(1.0, 0.05))
    assert "Gaussian DP: each epsilon below is what the entry alone would cost" in other.to_text()
    assert json.dumps([entry.event.to_dict() for entry in rows.entries()])
    assert issubclass(BudgetExceeded, HedgerowError)
    assert issubclass(BudgetExceeded, RuntimeError)
