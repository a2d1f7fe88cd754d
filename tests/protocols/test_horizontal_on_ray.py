"""Owners whose rows are in Parquet files, or on a Ray cluster: the same model as in memory, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import Blocks, Federation, Schema
from hedgerow.engine.rows_ray import actors
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import ClusterError, InvalidInput, InvalidParameter
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.horizontal.secure_sum import noisy_sums, own_table, private
from twins.resuming import Broken, resumed

NAME = "horizontal.secure_sum"
TREES = {"max_iter": 3, "max_depth": 3, "max_bins": 24, "learning_rate": 0.4}
BOUNDS = {"narrow": (-4.0, 4.0), "wide": (0.0, 30.0), "whole": (0.0, 50.0)}
TASKS = {
    "two classes": {},
    "three classes": {"label": "three"},
    "numbers": {"label": "amount", "task": "regression", "label_range": (-20.0, 20.0)},
    "counts": {"label": "count", "task": "regression", "loss": "poisson", "label_range": (0.0, 200.0)},
}
LABELS = ("late", "three", "amount", "count")


@pytest.fixture(scope="module")
def ray():
    """A small cluster of its own for all tests here."""
    from twins.ray_cluster import small_cluster  # actors import this file, but know nothing of twins

    with small_cluster(6) as ray:
        yield ray


def rows_of(seed, n_rows):
    """One owner's rows: numbers of three kinds with gaps, levels, and labels of all sorts."""
    rng = np.random.default_rng(seed)
    narrow, wide = rng.normal(size=n_rows).astype(np.float32), rng.lognormal(size=n_rows)
    whole, kind = rng.integers(0, 50, n_rows), rng.choice(["x", "y", "z"], n_rows)
    signal = narrow + np.log(wide) + (kind == "x") + rng.normal(size=n_rows) / 2
    return pa.table(
        {
            "narrow": narrow,
            "wide": pa.array(np.minimum(wide, 29.0), mask=rng.random(n_rows) < 0.1),
            "whole": whole,
            "kind": pa.array(kind).dictionary_encode(),
            "late": np.where(signal > 0, "yes", "no"),
            "three": np.digitize(signal, [-0.5, 0.5]),
            "amount": np.clip(signal, -15, 15),
            "count": rng.poisson(np.exp(np.clip(signal, -2, 2))).astype(float),
        }
    )


@pytest.fixture(scope="module")
def tables():
    """Three owners' tables."""
    return {name: rows_of(seed, 300 + 40 * seed) for seed, name in enumerate(("anna", "ben", "carla"))}


@pytest.fixture
def folders(tables, tmp_path):
    """The same rows, each owner's in three files of two row groups."""
    for name, table in tables.items():
        (tmp_path / name).mkdir()
        for part in range(3):
            pq.write_table(table.slice(part * 130, 130), tmp_path / name / f"{part}.parquet", row_group_size=70)
    return {name: tmp_path / name for name in tables}


def in_memory(tables, *, label="late", task="classification", **more):
    """A federation of tables, and the parameters of its trees."""
    data = {name: (table.drop_columns(list(LABELS)), table.column(label)) for name, table in tables.items()}
    return Federation.horizontal(data, task=task), TREES | more


def from_files(folders, *, label="late", task="classification", **_more):
    """The same of files."""
    data = {
        name: (Blocks(folder, target=label, drop=[other for other in LABELS if other != label]), None)
        for name, folder in folders.items()
    }
    return Federation.horizontal(data, task=task)


def model_of(run):
    """All of it, but for rounds and attempts."""
    document = run.model.ensemble_.to_dict()
    return {key: value for key, value in document.items() if key != "meta"}


@pytest.fixture
def same_noise(monkeypatch):
    """Noise that depends on the number of values alone, so that two runs differ only if their exact sums do."""
    for module in (noisy_sums, private):
        draw = module.discrete_gaussian

        def fixed(exact, *, draw=draw, sigma, **how):
            noise = np.rint(np.random.default_rng(len(exact)).normal(scale=sigma, size=len(exact))).astype(np.int64)
            return draw(exact, sigma=sigma, **how)._replace(values=exact + noise)

        monkeypatch.setattr(module, "discrete_gaussian", fixed)


def private_params():
    """A training with dp by a public schema."""
    schema = Schema.from_public(bounds=BOUNDS, levels={"kind": ["x", "y", "z"]}, classes=["no", "yes"])
    return {"dp": (4.0, 1e-6), "schema": schema, "random_state": 0}


# --- without Ray -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_files_are_read_some_rows_at_a_time_and_train_the_same_model(tables, folders, task, monkeypatch):
    """Whatever the labels are; and no file is ever read whole into a table."""
    memory, params = in_memory(tables, **TASKS[task])
    expected = memory.fit(NAME, **params, min_samples_leaf=3)
    monkeypatch.setattr(own_table, "COLUMNS_READ", 2)
    assert model_of(from_files(folders, **TASKS[task]).fit(NAME, **params, min_samples_leaf=3)) == model_of(expected)


@pytest.mark.usefixtures("same_noise")
def test_private_edges_and_private_trainings_read_files_too(tables, folders):
    """The same noise on the same sums; labels that no class is listed for count for nothing in both."""
    schema = Schema.from_public(bounds=BOUNDS, levels={"kind": ["x", "y", "z"]}, classes=["no", "yes"])
    edges = {"quantiles": "private", "quantile_epsilon": 1.0, "quantile_delta": 1e-6, "schema": schema}
    for more in (edges, private_params()):
        memory, params = in_memory(tables, **more)
        params = params if "quantiles" in more else more
        assert model_of(from_files(folders).fit(NAME, **params)) == model_of(memory.fit(NAME, **params))


def test_what_files_cannot_be_is_said(folders):
    """Labels beside the files, negative weights, a schema without dp; before anything moves."""
    X = {"anna": (folders["anna"], np.zeros(300)), "ben": (folders["ben"], "late")}
    with pytest.raises(InvalidParameter, match="anna: labels of files are in a column of theirs"):
        Federation.horizontal(X)
    weighted = Blocks(folders["anna"], target="late", weight="amount")
    data = {"anna": (weighted, None), **{name: (folders[name], "late") for name in ("ben", "carla")}}
    with pytest.raises(InvalidInput, match=r"anna: sample_weight: .*in row 3; weights must be at least 0"):
        Federation.horizontal(data).fit(NAME, **TREES)
    schema = private_params()["schema"]
    with pytest.raises(InvalidInput, match="anna: rows in files are not mapped"):
        Federation.horizontal({n: (f, "late") for n, f in folders.items()}, schema=schema).fit(NAME, **TREES)


def test_a_file_that_vanishes_is_named(folders):
    """It was there when the federation was made."""
    federation = from_files(folders)
    (folders["ben"] / "1.parquet").unlink()
    with pytest.raises(InvalidInput, match=r"ben/1\.parquet: there is no such file any more"):
        federation.fit(NAME, **TREES)


# --- with Ray --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ray")
def test_owners_on_ray_and_others_train_the_same_model_together(tables, folders):
    """One reads files by two actors, one has its table in one actor's memory, one is as always."""
    memory, params = in_memory(tables)
    expected = model_of(memory.fit(NAME, **params))
    files = {"anna": (Blocks(folders["anna"], target="late", drop=list(LABELS[1:])), None)}
    rest = {name: (t.drop_columns(list(LABELS)), t.column("late")) for name, t in tables.items() if name != "anna"}
    backend = {"anna": RayBackend(actors=2), "ben": RayBackend(actors=1, rows_in_object_store=True)}
    run = Federation.horizontal({**files, **rest}).fit(NAME, backend=backend, **params)
    assert model_of(run) == expected


@pytest.mark.usefixtures("ray")
def test_what_cannot_be_reached_costs_nothing(tables, folders, tmp_path):
    """A wrong address, and a table that may not pass through the object store: nothing was charged or sent."""
    federation, _ = in_memory(tables)
    book = BudgetFile(tmp_path / "anna.sqlite")
    book.open("rows", epsilon=8.0, delta=1e-5)
    how = {"budget": {"anna": book.dataset("rows")}, **private_params()}
    with pytest.raises(InvalidParameter, match="anna: backend: a table in memory reaches Ray's actors only through"):
        federation.fit(NAME, backend={"anna": "ray"}, **how)
    with pytest.raises(
        ClusterError, match=r"ben: backend: this process is connected to Ray at .*, not to 127\.0\.0\.1:1"
    ):
        from_files(folders).fit(NAME, backend={"ben": "127.0.0.1:1"}, **how)
    assert not book.dataset("rows").entries()


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("n_actors", [1, 3])
@pytest.mark.usefixtures("ray")
def test_any_number_of_actors_gives_the_same_model(tables, folders, task, n_actors):
    """All owners on Ray, whatever the labels are."""
    memory, params = in_memory(tables, **TASKS[task])
    expected = memory.fit(NAME, **params, min_samples_leaf=3)
    backend = {"anna": RayBackend(actors=n_actors), "ben": RayBackend(actors=1)}
    run = from_files(folders, **TASKS[task]).fit(NAME, **params, min_samples_leaf=3, backend=backend)
    assert model_of(run) == model_of(expected)


@pytest.mark.long
@pytest.mark.usefixtures("ray", "same_noise")
def test_private_sums_are_those_of_one_machine(tables, folders):
    """With dp and with private edges, from files and from memory: the same noise gives the same model."""
    schema = private_params()["schema"]
    edges = {"quantiles": "private", "quantile_epsilon": 1.0, "quantile_delta": 1e-6, "schema": schema}
    for more in (TREES | edges, private_params()):
        memory, _ = in_memory(tables)
        expected = model_of(memory.fit(NAME, **more))
        assert model_of(from_files(folders).fit(NAME, backend={"ben": RayBackend(actors=3)}, **more)) == expected
        held = {"carla": RayBackend(actors=2, rows_in_object_store=True)}
        assert model_of(memory.fit(NAME, backend=held, **more)) == expected


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_over_processes_it_is_the_same_too(tables, folders):
    """Each process makes its own connection to the cluster that this one is connected to."""
    memory, params = in_memory(tables)
    backend = {"anna": RayBackend(actors=2), "ben": RayBackend(actors=1)}
    run = from_files(folders).fit(NAME, backend=backend, transport="grpc", **params)
    assert model_of(run) == model_of(memory.fit(NAME, **params))


def planned(federation, backend, **params):
    """Job, protocol and data of a training, for whoever plays it by hand."""
    chosen, data, job = federation.plan(NAME, **params)
    return chosen.protocol, job, {name: replace(each, backend=backend.get(name)) for name, each in data.items()}


def results(end):
    """Everybody's model, but for what tells of attempts and rounds."""
    found = {name: model.to_dict() for name, model in end.results.items()}
    for document in found.values():
        for fact in ("attempts", "rounds"):
            document["meta"].pop(fact, None)
    return found


@pytest.mark.long
@pytest.mark.parametrize("coordinator", ["coordinator", "anna"])
@pytest.mark.usefixtures("ray")
def test_a_run_that_was_broken_off_goes_on(tables, folders, coordinator):
    """With other actors than before; what was kept are scores, whoever has held them."""
    memory, params = in_memory(tables)
    params |= {"coordinator": None if coordinator == "coordinator" else coordinator}
    protocol, job, data = planned(memory, {}, **params)
    calm = results(resumed(protocol, job, data, []))
    backend = {"anna": RayBackend(actors=2), "ben": RayBackend(actors=1)}
    _, _, stored = planned(from_files(folders), backend, **params)
    for party in (coordinator, "ben"):
        end = resumed(protocol, job, stored, [Broken(party, keeping=3, done=True)], deadline=60.0)
        assert len(end.attempts) == 2
        assert results(end) == calm


@pytest.mark.long
@pytest.mark.usefixtures("ray", "same_noise")
def test_a_private_run_that_was_broken_off_goes_on(tables, folders):
    """Scores and leaves of all actors are kept, and given back to others."""
    memory, _ = in_memory(tables)
    protocol, job, data = planned(memory, {}, **private_params())
    calm = results(resumed(protocol, job, data, []))
    _, _, stored = planned(from_files(folders), {"ben": RayBackend(actors=2)}, **private_params())
    end = resumed(protocol, job, stored, [Broken("ben", keeping=12, done=True)], deadline=60.0)
    assert len(end.attempts) == 2
    assert results(end) == calm


@pytest.mark.long
def test_an_actor_that_is_killed_on_the_way_is_replaced(ray, tables, folders, monkeypatch):
    """The next one reads the same files and follows all steps so far; without rebuilds left, the run ends."""
    memory, params = in_memory(tables)
    params |= {"max_iter": 6}
    expected = model_of(memory.fit(NAME, **params))
    crews, begin = [], actors.Crew.prepare

    def prepare(crew, *args):
        counts = begin(crew, *args)
        crews.append(crew)
        return counts

    monkeypatch.setattr(actors.Crew, "prepare", prepare)
    asked, ask = [], actors.Crew.sums

    def sums(crew, *args, **named):
        asked.append(crew)
        if len(asked) == 9:  # in the third tree
            ray.kill(crew.actors[0], no_restart=True)
        return ask(crew, *args, **named)

    monkeypatch.setattr(actors.Crew, "sums", sums)
    run = from_files(folders).fit(NAME, backend={"anna": RayBackend(actors=2, patience=60.0)}, **params)
    assert model_of(run) == expected
    assert crews[-1].rebuilt == 1
    asked.clear()
    with pytest.raises(ClusterError, match=r"anna: .*rebuilds=0 lost actors were replaced already"):
        from_files(folders).fit(NAME, backend={"anna": RayBackend(actors=2, rebuilds=0, patience=60.0)}, **params)


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_a_file_that_vanishes_on_the_way_ends_the_run(folders, monkeypatch):
    """Actors look at every file each time they read it."""
    federation = from_files(folders)
    begin = own_table.StoredTable.counts_below

    def counts_below(table, *args):
        (folders["anna"] / "2.parquet").unlink(missing_ok=True)
        return begin(table, *args)

    monkeypatch.setattr(own_table.StoredTable, "counts_below", counts_below)
    with pytest.raises(InvalidInput, match=r"anna/2\.parquet: there is no such file any more"):
        federation.fit(NAME, backend={"anna": RayBackend(actors=1)}, **TREES)
