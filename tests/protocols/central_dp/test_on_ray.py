"""central.dpboost and its baselines with records in Ray's actors: what is released is what one machine releases."""

from __future__ import annotations

import math
import socket

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import DPBoostClassifier, DPBoostRegressor, Schema
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.rows_ray.actors import Crew, Own, own_of
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import ClusterError, InvalidInput, InvalidType
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.central.dpboost import on_ray, records
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from twins.ray_cluster import lent, small_cluster

PUBLIC = {
    "bounds": {"age": (-2, 2), "income": (-3, 3)},
    "levels": {"purpose": ["car", "house"]},
    "may_be_missing": ["age"],
}
CLASSES = Schema.from_public(**PUBLIC, classes=["no", "yes"])
LOSSES = Schema.from_public(**PUBLIC, label_bounds=(0, 2))
"""Some ages are beyond their bounds, and a purpose and a class are not listed: there are misfits, and rows that do not
count."""

SMALL = {"n_trees": 5, "trees_per_ensemble": 3, "max_depth": 3, "max_bins": 8}


def long(case):
    """A case for the long suite."""
    return pytest.param(case, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def ray():
    """A small cluster of its own for all tests here."""
    with small_cluster(4) as ray:
        yield ray


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """Rows in Parquet files of several row groups, and as one table. Of the last actor of three, no row counts."""
    rng = np.random.default_rng(7)
    n_rows = 1500
    numbers = rng.normal(size=(n_rows, 2)).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    purpose = np.array(["car", "house", "other"])[rng.integers(0, 3, n_rows)]
    risk = np.nan_to_num(numbers[:, 0]) + (purpose == "car") + rng.normal(size=n_rows) / 2
    repaid = np.where(risk > 0.3, "no", "yes")
    repaid[::50] = "who knows"
    repaid[900:] = "who knows"
    columns = {"age": numbers[:, 0], "income": numbers[:, 1], "purpose": purpose, "repaid": repaid, "loss": abs(risk)}
    table = pa.table(columns)
    folder = tmp_path_factory.mktemp("loans")
    for part in range(5):
        pq.write_table(table.slice(part * 300, 300), folder / f"part-{part}.parquet", row_group_size=130)
    return folder, table


@pytest.fixture(scope="module")
def shared_crew(ray):
    """Actors that all tests share: starting them takes longer than all else."""
    crew = Crew(ray, RayBackend(rebuilds=100), 3)
    yield crew
    crew.close()


@pytest.fixture
def crew(shared_crew):
    """Let trainings of this test run on the shared actors, as many of them as they ask for."""
    with lent(shared_crew, "hedgerow.protocols.central.on_ray"):
        yield shared_crew


def fit_both(loans, schema, settings, n_actors, on_progress=None, **how):
    """The same training with the same randomness, here and there."""
    folder, table = loans
    label = "repaid" if schema.classes else "loss"
    X = table.select([column.name for column in schema.columns])
    here = fit_central(X, table[label], schema, settings, SecureRandom.from_seed(bytes(32)), **how)
    random, backend = SecureRandom.from_seed(bytes(32)), RayBackend(actors=n_actors)
    how |= {"backend": backend, "on_progress": on_progress}
    there = fit_central(Blocks(folder, target=label), label, schema, settings, random, **how)
    return here, there


def assert_same(here, there):
    """Model, event and statement, to the last bit."""
    assert there.model.to_dict() == here.model.to_dict()
    assert there.event == here.event
    assert there.statement == here.statement


def test_classes_looks_and_constraints_are_the_same_there(crew, loans):
    """Three classes, rows set apart, groups and draws of columns: nothing differs."""
    assert len(crew.actors) == 3
    schema = Schema.from_public(**PUBLIC, classes=["no", "yes", "who knows"])
    options = {"n_classes": 3, "early_stopping": True, "interaction": ((0, 1),), "colsample_bynode": 0.5}
    here, there = fit_both(loans, schema, DPBoostSettings(epsilon=4.0, **options, **SMALL), 3)
    assert_same(here, there)


@pytest.mark.parametrize("n_actors", [1, 2, 3])
def test_a_training_releases_the_same_with_the_same_randomness(crew, loans, n_actors):
    """Private edges, misfits, assignment, choices and leaves: for any number of actors nothing differs."""
    assert len(crew.actors) == 3
    here, there = fit_both(loans, CLASSES, DPBoostSettings(epsilon=4.0, binning="private", **SMALL), n_actors)
    assert_same(here, there)
    assert len({tree.value.tobytes() for tree in here.model.trees}) == 5


@pytest.mark.parametrize(
    "case",
    [
        {"protocol": "central.plain", "epsilon": math.inf},
        long({"protocol": "central.plain", "binning": "private", "loss": "logistic", "epsilon": math.inf}),
        long({"protocol": "central.sequential", "epsilon": math.inf}),
        {"protocol": "central.sequential"},
        {"protocol": "central.parallel", "assignment": "paper"},
        long({"loss": "logistic", "filtering": True, "assignment": "paper"}),
        {"epsilon": math.inf, "clipped_count_share": 0.0},
        long({"selection": "permute_and_flip"}),
    ],
    ids=str,
)
def test_so_do_baselines_and_other_ways(crew, loans, case):
    """With noise and without; the plain engine on the same bins too."""
    assert len(crew.actors) == 3
    assert_same(*fit_both(loans, CLASSES, DPBoostSettings(**({"epsilon": 2.0} | SMALL | case)), 3))


def test_labels_may_be_numbers(crew, loans):
    """Clipped to their public bounds, as on one machine."""
    assert len(crew.actors) == 3
    assert_same(*fit_both(loans, LOSSES, DPBoostSettings(epsilon=2.0, **SMALL), 2))


@pytest.mark.long
@pytest.mark.parametrize("at", [1, 4])
def test_a_lost_actor_takes_the_released_trees(ray, crew, loans, at):
    """Killed after a tree, in the first or in the second ensemble: it reads its files again, and nothing differs."""
    before = crew.rebuilt

    def harm(number, _of):
        if number == at:
            ray.kill(crew.actors[1])

    assert_same(*fit_both(loans, CLASSES, DPBoostSettings(epsilon=4.0, **SMALL), 3, on_progress=harm))
    assert crew.rebuilt == before + 1


def test_an_actor_is_lost_in_the_middle_of_a_tree(ray, crew, loans, monkeypatch):
    """It is sent its rows of that tree once more, follows the levels so far, and nothing differs."""
    before, descend = crew.rebuilt, on_ray.RayRecords.descend
    levels = []

    def harm(rows, *arguments, **how):
        levels.append(how)
        if len(levels) == 8:  # of three levels a tree: the second of the third tree
            ray.kill(crew.actors[0])
        return descend(rows, *arguments, **how)

    monkeypatch.setattr(on_ray.RayRecords, "descend", harm)
    assert_same(*fit_both(loans, CLASSES, DPBoostSettings(epsilon=4.0, **SMALL), 2))
    assert crew.rebuilt == before + 1


def test_each_actor_is_sent_its_own_rows_and_no_others(crew, loans, monkeypatch):
    """All rows of an ensemble once, in numbers of the actor's own, four bytes each; forgotten with their tree."""
    sent, kept, queue, settle_as = [], [], Crew.queue, Crew.settle_as

    def look(crew, verb, **arguments):
        if verb == "start_subset":
            sent.append(arguments["ids"])
        queue(crew, verb, **arguments)

    def settle(crew, state):
        settle_as(crew, state)
        kept.append([verb for verb, _ in crew._commands])

    monkeypatch.setattr(Crew, "queue", look)
    monkeypatch.setattr(Crew, "settle_as", settle)
    fit_both(loans, CLASSES, DPBoostSettings(epsilon=4.0, **SMALL), 3)
    assert len(crew.actors) == 3
    for actor in range(3):
        first = np.sort(np.concatenate([own_of({"ids": ids}, actor)["ids"] for ids in sent[:3]]))
        second = np.sort(np.concatenate([own_of({"ids": ids}, actor)["ids"] for ids in sent[3:]]))
        assert first.dtype == np.uint32
        assert first.tolist() == second.tolist() == list(range(len(first)))
    assert sum(len(own) for ids in sent[:3] for own in ids.values) == 1500
    assert isinstance(sent[0], Own)
    assert "start_subset" not in {verb for verbs in kept for verb in verbs}


def test_estimators_read_files_on_ray(crew, loans):
    """Without noise the same seed gives the same model; a table in memory is refused."""
    folder, table = loans
    assert len(crew.actors) == 3
    for kind, schema, label in ((DPBoostClassifier, CLASSES, "repaid"), (DPBoostRegressor, LOSSES, "loss")):
        X = table.select([column.name for column in schema.columns])
        options = {"epsilon": np.inf, "schema": schema, "random_state": 0, "max_iter": 3, "max_depth": 3}
        here = kind(**options).fit(X, table[label])
        there = kind(**options, backend=RayBackend(actors=2)).fit(folder, label)
        assert there.ensemble_.trees == here.ensemble_.trees
        assert there.privacy_statement().stages == here.privacy_statement().stages
        with pytest.raises(InvalidType, match="reads Parquet files"):
            kind(**options, backend="ray").fit(X, table[label])


def test_too_many_rows_are_refused(loans, monkeypatch):
    """They could not be summed, by however many actors."""
    folder, _ = loans
    monkeypatch.setattr(records, "MAX_ROWS", 1000)
    settings = DPBoostSettings(epsilon=1.0, **SMALL)
    with pytest.raises(InvalidInput, match="at most 1,000 rows"):
        fit_central(Blocks(folder), "repaid", CLASSES, settings, SecureRandom(), backend=RayBackend())


def test_a_wrong_address_or_column_costs_nothing(loans, tmp_path):
    """Nobody answers, or a column is not there: that is found before the budget is charged."""
    folder, _ = loans
    budget = BudgetFile(tmp_path / "budget").open("loans", epsilon=1.0, delta=0.0)
    options = {"epsilon": 1.0, "schema": CLASSES, "budget": budget}
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        model = DPBoostClassifier(**options, backend=f"127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(ClusterError, match="nobody answers"):
            model.fit(folder, "repaid")
    with pytest.raises(InvalidInput, match="there is no column 'paid'"):
        DPBoostClassifier(**options, backend="ray").fit(folder, "paid")
    assert budget.entries() == ()
