"""Rows on a Ray cluster: the same model as on one machine, whatever happens to actors on the way."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor, PrivateBoostingClassifier, Schema
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.boosting import train
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.growth import TreeGrower
from hedgerow.engine.losses import LOSSES, BoostingParams, Quantiser
from hedgerow.engine.rows_ray import cluster
from hedgerow.engine.rows_ray.actors import CodedRows, Crew, Setup, add_arrays, merged_by
from hedgerow.engine.rows_ray.cluster import RayBackend, backend_of, connected
from hedgerow.engine.rows_ray.rows import RayRows, blocks_in_memory
from hedgerow.engine.table import read_table
from hedgerow.errors import ClusterError, InvalidInput, InvalidParameter, InvalidType
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.central.gaussian.central import fit_gaussian
from hedgerow.protocols.central.gaussian.training import GaussianSettings

ALLOWED = RayBackend(rows_in_object_store=True, patience=60.0)
N_ACTORS = 4


@pytest.fixture(scope="module")
def ray():
    """A small cluster of its own for all tests here."""
    from twins.ray_cluster import small_cluster  # actors import this file, but know nothing of twins

    with small_cluster(N_ACTORS + 2) as ray:
        yield ray


@pytest.fixture(scope="module")
def crew(ray):
    """Actors that all tests share: starting them takes longer than all else."""
    crew = Crew(ray, RayBackend(rows_in_object_store=True, patience=60.0, rebuilds=100), N_ACTORS)
    yield crew
    crew.close()


def problem(n_rows=3000, loss="logistic", seed=0):
    """A learnable problem, binned: numbers with gaps, and levels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 4] = rng.integers(0, 5, n_rows)
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 - 1 + (X[:, 4] == 2) + rng.normal(size=n_rows) / 2
    y = {
        "logistic": signal > 0,
        "softmax": np.digitize(signal, [-0.7, 0.7]),
        "squared": 100 + signal,
        "poisson": rng.poisson(np.exp(np.clip(signal, -2, 2))),
    }[loss].astype(float)
    table = read_table(X, categorical_features=[4])
    mapper = BinMapper.fit(table, 64)
    return mapper, mapper.transform(table), y


def train_on(crew, ray, params, mapper, codes, y, weight=None, *, order=None, before_tree=None):
    """The loop of `boosting.train` over actors, with blocks in any order; `before_tree(number)` may do harm."""
    loss = params.loss_for(y)
    ensemble = Ensemble(mapper, loss.name, params.base_scores(loss, y, weight))
    quantiser = Quantiser.for_rows(loss, len(y), weight, gradient_bits=params.gradient_bits)
    blocks = blocks_in_memory(ray, ALLOWED, CodedRows(codes, y, weight, np.empty((0, 2))), len(crew.actors))
    crew.assign([blocks[k] for k in order or range(len(blocks))])
    setup = Setup(mapper, loss, ensemble.base_scores, quantiser, 1)
    rows = RayRows(crew, setup, ensemble, counts_first=params.min_rows_per_sum > 1)
    edges = [feature.edges for feature in mapper.features]
    grower = TreeGrower(rows, params, loss, quantiser, edges, weighted=weight is not None)
    for iteration in range(params.n_iterations):
        rows.gradients()
        sample = None if params.subsample == 1.0 else (params.seed, iteration, params.subsample)
        for output in range(loss.n_outputs):
            rows.start_tree(output, sample=sample)
            number = iteration * loss.n_outputs + output
            if before_tree is not None:
                before_tree(number)
            tree = grower.grow(number)
            ensemble.append(tree)
            if sample is not None:
                rows.add_tree(tree, output)
        crew.settle(ensemble)
    return ensemble


# --- the same model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in ("absolute", "quantile")])
def test_trees_are_those_of_one_machine(ray, crew, loss):
    """Whatever the loss, with samples of rows, weights, counts and fewest rows per sum: no bit differs."""
    mapper, codes, y = problem(loss=loss)
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    cases = [
        ({}, None),
        ({"subsample": 0.5, "seed": 3}, None),
        ({"min_samples_leaf": 20, "subsample": 0.7}, weight),
        ({"min_rows_per_sum": 50, "colsample_bynode": 0.6}, None),
    ]
    for options, weights in cases:
        params = BoostingParams(loss=loss, n_classes=3, n_iterations=3, max_depth=4, **options)
        one = train(params, mapper, codes, y, weights).ensemble
        assert train_on(crew, ray, params, mapper, codes, y, weights).trees == one.trees, options


@pytest.mark.parametrize("order", [(3, 1, 0, 2), (1, 0, 3, 2)])
def test_the_order_of_blocks_does_not_matter(ray, crew, order):
    """Samples go by a row's number in the whole table, sums by integers: actors may hold blocks in any order."""
    mapper, codes, y = problem()
    params = BoostingParams(n_iterations=3, subsample=0.5)
    one = train(params, mapper, codes, y).ensemble
    assert train_on(crew, ray, params, mapper, codes, y, order=order).trees == one.trees


@pytest.mark.parametrize("n_actors", [1, 2, 3])
def test_the_number_of_actors_does_not_matter(ray, crew, n_actors):
    """Fewer actors with larger blocks give the same trees."""
    fewer = FewerActors(crew, n_actors)
    mapper, codes, y = problem()
    params = BoostingParams(n_iterations=3, subsample=0.8)
    one = train(params, mapper, codes, y).ensemble
    assert train_on(fewer, ray, params, mapper, codes, y).trees == one.trees


class FewerActors(Crew):
    """The first actors of another crew."""

    def __init__(self, crew, n_actors):
        self.__dict__.update(crew.__dict__)
        self.actors = crew.actors[:n_actors]


@pytest.mark.parametrize("n_actors", range(1, 18))
def test_every_actor_is_merged_once(n_actors):
    """Everybody but actor 0 gives its sums to one other, and no way to actor 0 is longer than a tree is deep."""
    given = [other for number in range(n_actors) for other in merged_by(number, n_actors)]
    assert sorted(given) == list(range(1, n_actors))
    assert len(merged_by(0, n_actors)) == (n_actors - 1).bit_length()


def test_arrays_of_two_actors_are_added():
    """One by one, and as many on both sides."""
    mine, theirs = [np.array([1, 2]), np.array([3])], [np.array([10, 20]), np.array([30])]
    assert [a.tolist() for a in add_arrays(mine, theirs)] == [[11, 22], [33]]


# --- actors that are lost --------------------------------------------------------------------------------------------


def pid_of(crew, number):
    """The process of an actor."""
    return crew.each(process_id)[number]


def process_id(_holder):
    """Of the actor that runs it."""
    return os.getpid()


@pytest.mark.parametrize(
    ("loss", "subsample"),
    [
        ("softmax", 0.6),
        pytest.param("softmax", 1.0, marks=pytest.mark.long),
        pytest.param("logistic", 0.6, marks=pytest.mark.long),
        pytest.param("logistic", 1.0, marks=pytest.mark.long),
    ],
)
def test_a_killed_actor_is_rebuilt(ray, crew, loss, subsample):
    """Killed at the root of a tree in the middle of an iteration: read again, scored again, and the same model."""
    mapper, codes, y = problem(loss=loss)
    params = BoostingParams(loss=loss, n_classes=3, n_iterations=3, subsample=subsample)
    one = train(params, mapper, codes, y).ensemble
    at, victims = (4, [1, 3]) if loss == "softmax" else (1, [0])
    before = crew.rebuilt

    def kill(number):
        if number == at:
            for victim in victims:
                ray.kill(crew.actors[victim])

    assert train_on(crew, ray, params, mapper, codes, y, before_tree=kill).trees == one.trees
    assert crew.rebuilt == before + len(victims)


@pytest.mark.long
def test_a_process_that_dies_in_the_middle_of_a_level_is_rebuilt(ray, crew):
    """SIGKILL from outside, at any moment: the sums of the level are asked for once more, by all."""
    mapper, codes, y = problem()
    params = BoostingParams(n_iterations=8)
    one = train(params, mapper, codes, y).ensemble
    before, timers = crew.rebuilt, []

    def kill(number):
        if number in (1, 4):
            timers.append(threading.Timer(0.004, os.kill, (pid_of(crew, 2), signal.SIGKILL)))
            timers[-1].start()

    assert train_on(crew, ray, params, mapper, codes, y, before_tree=kill).trees == one.trees
    for timer in timers:
        timer.join()
    assert before < crew.rebuilt <= before + 2  # the second may die after the last sums that anybody asks for


def test_actors_are_not_rebuilt_for_ever(ray):
    """An actor that runs out of memory would do so again: after `rebuilds` times it is said, and what to do."""
    crew = Crew(ray, RayBackend(rows_in_object_store=True, rebuilds=1), 1)
    try:
        with pytest.raises(ClusterError, match=r"rebuilds=1 .*more actors"):
            crew.merged(exit_at_once, {}, add_arrays)
        assert crew.rebuilt == 2
    finally:
        crew.close()


def exit_at_once(_holder):
    """What the kernel's and Ray's memory monitors do to a process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_allocation_that_fails_is_said(crew):
    """numpy's MemoryError comes back as one of our errors, with a way out; the actor is still there."""
    with pytest.raises(ClusterError, match=r"ran out of memory .* more actors or more machines"):
        crew.merged(take_too_much, {}, add_arrays)
    assert len(crew.each(process_id)) == N_ACTORS


def take_too_much(_holder):
    """A petabyte."""
    return [np.ones(2**50)]


def test_what_an_actor_raises_reaches_the_caller(crew):
    """An error of ours as it is, a file that is gone as one about the file, anything else by its name."""
    for kind, expected, words in (
        ("ours", InvalidInput, "column 'age'"),
        ("file", InvalidInput, "part-7.parquet is not there any more"),
        ("other", ClusterError, "an actor failed: ZeroDivisionError"),
    ):
        with pytest.raises(expected, match=words):
            crew.merged(raise_error, {"kind": kind}, add_arrays)


def raise_error(_holder, kind):
    """One of three."""
    if kind == "ours":
        raise InvalidInput("column 'age' is text")
    if kind == "file":
        raise FileNotFoundError(2, "No such file", "part-7.parquet")
    return 1 / 0


def test_a_failed_step_is_never_merged(crew):
    """If one of the merges on the way fails, the others' sums are not taken for all."""
    with pytest.raises(ClusterError, match="ValueError"):
        crew.merged(one_array, {}, fail_for_two)


def one_array(_holder):
    """Something to add."""
    return [np.ones(1)]


def fail_for_two(mine, theirs):
    """Adds a single actor's array to another's, but raises when both are sums already."""
    if mine[0][0] == 1 and theirs[0][0] == 1:
        raise ValueError("no")
    return add_arrays(mine, theirs)


@pytest.mark.long
def test_an_actor_that_hangs_is_replaced(ray, monkeypatch):
    """A stopped process says nothing; after `patience` it counts as lost."""
    monkeypatch.setattr("hedgerow.engine.rows_ray.actors.PING_SECONDS", 4.0)
    crew = Crew(ray, RayBackend(patience=8.0), 1)
    try:
        (pid,) = crew.each(process_id)
        os.kill(pid, signal.SIGSTOP)
        assert crew.each(process_id) != [pid]
        assert crew.rebuilt == 1
    finally:
        crew.close()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_rows_stay_out_of_the_object_store_unless_allowed(ray):
    """A table in memory has no other way to an actor, so it is refused, with both ways out."""
    mapper, codes, y = problem(100)
    rows = CodedRows(codes, y, None, np.empty((0, 2)))
    with pytest.raises(InvalidParameter, match=r"Give Parquet files .*rows_in_object_store=True"):
        blocks_in_memory(ray, RayBackend(), rows, 2)
    assert len(mapper.features) == 5


def test_more_actors_than_processors_are_refused(ray):
    """Ray would wait for ever."""
    with pytest.raises(InvalidParameter, match="20 actors of 1 threads need 20 processors, and the Ray cluster has 6"):
        Crew(ray, RayBackend(), 20)


def test_actors_that_find_no_room_are_not_waited_for(ray, crew, monkeypatch):
    """Processors that others hold may never become free."""
    monkeypatch.setattr("hedgerow.engine.rows_ray.actors.PLACE_SECONDS", 0.5)
    assert len(crew.actors) == N_ACTORS
    with pytest.raises(ClusterError, match=r"[123] of 3 actors .* found no room"):
        Crew(ray, RayBackend(), 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("local", None),
        ("ray", RayBackend()),
        ("auto", RayBackend(address="auto")),
        ("10.0.0.1:6379", RayBackend(address="10.0.0.1:6379")),
        ("ray://head", RayBackend(address="ray://head")),
        (ALLOWED, ALLOWED),
    ],
)
def test_a_backend_is_a_word_an_address_or_all_of_it(given, expected):
    """What somebody writes, and what it means."""
    assert backend_of(given) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("spark", "'spark' is not an address"),
        ("host:99999", "is not an address"),
        (7, "got 7"),
    ],
)
def test_a_backend_that_is_none_is_refused(given, words):
    """With what would be one."""
    with pytest.raises(InvalidParameter, match=words):
        backend_of(given)


@pytest.mark.parametrize(("name", "value"), [("actors", 0), ("threads", True), ("rebuilds", -1), ("patience", 0.0)])
def test_options_of_a_backend_have_ranges(name, value):
    """Each is named with its value."""
    with pytest.raises(InvalidParameter, match=f"{name} must be .* got {value!r}"):
        RayBackend(**{name: value})


def test_a_connection_to_another_cluster_is_refused(ray):
    """A process has one connection at a time."""
    with (
        pytest.raises(ClusterError, match=r"is connected to Ray at .* already"),
        connected(RayBackend("10.0.0.1:6379")),
    ):
        pass
    with connected(RayBackend()) as same:
        assert same is ray
    assert ray.is_initialized()  # whoever connected disconnects


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_wrong_address_is_said_at_once(scheme):
    """Nobody there, or somebody who is not Ray: no minutes of attempts."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(ClusterError, match=f"nobody answers at 127.0.0.1:{port}"):
            cluster._connect(None, RayBackend(f"{scheme}127.0.0.1:{port}"))


def test_a_cluster_that_has_ended_is_not_waited_for(monkeypatch, tmp_path):
    """Ray leaves a note of the last one on a machine, and `auto` believes it; any note is read or left alone."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        note.write_text(f"127.0.0.1:{nobody.getsockname()[1]}\n")
        with pytest.raises(ClusterError, match=r"nobody answers at 127\.0\.0\.1"):
            cluster._connect(None, RayBackend("auto"))
    for damaged in (b"", b"\xff\xfe", b"host:", b":1", b"host:port"):
        note.write_bytes(damaged)
        assert cluster._running_here() is None
    note.unlink()
    assert cluster._running_here() is None


def test_somebody_who_is_not_ray_is_recognised(monkeypatch):
    """A port that takes connections and says nothing."""
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ClusterError, match="is not Ray"):
            cluster._connect(None, RayBackend(f"127.0.0.1:{silent.getsockname()[1]}"))


def test_without_the_package_the_extra_is_named(monkeypatch):
    """pip's command, ready to be copied."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'hedgerow\[ray\]'"):
        cluster.import_ray()


# --- token authentication --------------------------------------------------------------------------------------------

ASK_AN_ACTOR = """
    import sys
    from hedgerow.engine.rows_ray.actors import Crew, Holder
    from hedgerow.engine.rows_ray.cluster import RayBackend, connected
    from hedgerow.errors import ClusterError
    try:
        with connected(RayBackend(sys.argv[1] if len(sys.argv) > 1 else None)) as ray:
            crew = Crew(ray, RayBackend(), 1)
            print("answers:", crew.each(Holder.ping))
    except ClusterError as problem:
        print("refused:", problem)
"""


def run_with_token(token, *arguments):
    """A process of its own: Ray reads its settings once."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token"} | ({"RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_TOKEN_PATH": "/nowhere"})
    command = [sys.executable, "-c", textwrap.dedent(ASK_AN_ACTOR), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.long
def test_it_works_with_ray_s_token_authentication():
    """With a token the actors answer; without one the error says which variables to set."""
    pytest.importorskip("ray")
    done = run_with_token("0123456789abcdef0123456789abcdef")
    assert "answers: [True]" in done.stdout, done.stderr
    done = run_with_token(None)
    assert "refused:" in done.stdout, done.stderr
    assert "RAY_AUTH_TOKEN" in done.stdout


def test_pairs_of_cuts_cover_all_rows(ray):
    """Blocks of a table in memory are neighbours, none is empty, and they know their rows' numbers."""
    _, codes, y = problem(101)
    blocks = blocks_in_memory(ray, ALLOWED, CodedRows(codes, y, None, np.empty((0, 2))), 4)
    pieces = np.concatenate([block.read(BinMapper(()), 1).pieces for block in blocks])
    assert pieces[:, 0].sum() == 101
    assert pieces[0, 1] == 0
    assert all(a[1] + a[0] == b[1] for a, b in itertools.pairwise(pieces))


# --- estimators -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """Rows in many Parquet files, and the same as one table: numbers, levels, labels as text, some weights of 0."""
    rng = np.random.default_rng(7)
    n_rows = 2400
    numbers = rng.normal(size=(n_rows, 3)).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    purpose = np.array(["car", "house", "other"])[rng.integers(0, 3, n_rows)]
    risk = np.nan_to_num(numbers[:, 0]) + (purpose == "car") + rng.normal(size=n_rows) / 2
    table = pa.table(
        {
            **{name: numbers[:, j] for j, name in enumerate(("age", "income", "debt"))},
            "purpose": purpose,
            "repaid": np.where(risk > 0.3, "no", "yes"),
            "loss": np.abs(risk),
            "weight": rng.integers(0, 3, n_rows).astype(float) * 0.7,
        }
    )
    folder = tmp_path_factory.mktemp("loans")
    for part in range(4):
        pq.write_table(table.slice(part * 600, 600), folder / f"part-{part}.parquet", row_group_size=250)
    return folder, table


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("repaid", BoostedTreesClassifier),
        pytest.param("loss", BoostedTreesRegressor, marks=pytest.mark.long),
    ],
)
def test_an_estimator_on_parquet_files_is_that_of_one_machine(ray, loans, label, kind):
    """Bins, trees and predictions, with weights, levels and samples; one that goes on from a model, too."""
    folder, table = loans
    assert ray.is_initialized()
    features = table.select(["age", "income", "debt", "purpose"])
    options = {"subsample": 0.7, "max_bins": 40, "random_state": 3}
    one = kind(max_iter=4, **options).fit(features, table[label], sample_weight=table["weight"])
    drop = [name for name in ("repaid", "loss") if name != label]
    blocks = Blocks(folder, target=label, weight="weight", drop=drop)
    there = kind(max_iter=2, warm_start=True, backend=RayBackend(actors=2), **options).fit(blocks)
    there.set_params(max_iter=4).fit(blocks)
    assert there.ensemble_.features == one.ensemble_.features
    assert there.ensemble_.trees == one.ensemble_.trees
    np.testing.assert_array_equal(there.predict(features), one.predict(features))


def test_a_table_in_memory_is_trained_on_where_that_is_allowed(ray, loans):
    """And refused, before anything else happens, where it is not."""
    _, table = loans
    assert ray.is_initialized()
    features = table.select(["age", "income", "purpose"])
    one = BoostedTreesClassifier(max_iter=3).fit(features, table["repaid"])
    there = BoostedTreesClassifier(max_iter=3, backend=RayBackend(actors=2, rows_in_object_store=True))
    assert there.fit(features, table["repaid"]).ensemble_.trees == one.ensemble_.trees
    with pytest.raises(InvalidParameter, match="a table in memory reaches"):
        BoostedTreesClassifier(backend="ray").fit(features, table["repaid"])


def test_a_file_that_vanishes_ends_the_run(ray, loans, tmp_path, monkeypatch):
    """A lost actor has to read it again, and cannot: the file is named, no actor stays, no model is there."""
    folder, table = loans
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    crews = []
    prepare = Crew.prepare

    def remember(crew, *arguments):
        crews.append(crew)
        return prepare(crew, *arguments)

    class Harm:
        def after_iteration(self, _model, epoch, _log):
            if epoch == 1:
                (tmp_path / "part-3.parquet").unlink()
                ray.kill(crews[0].actors[1])
            return False

    monkeypatch.setattr(Crew, "prepare", remember)
    model = BoostedTreesClassifier(max_iter=4, callbacks=[Harm()], backend=RayBackend(actors=2))
    with pytest.raises(InvalidInput, match=r"part-3\.parquet: there is no such file any more"):
        model.fit(Blocks(tmp_path, target="repaid", drop=["loss", "weight"]))
    assert crews[0].actors == []
    assert not hasattr(model, "ensemble_")
    assert table.num_rows == 2400


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")  # it warns of an option of its own
def test_a_dataset_of_ray_data_is_read_block_by_block(ray, loans):
    """Allowed, it gives the same model; not allowed, it is refused."""
    _, table = loans
    assert ray.is_initialized()
    import ray.data

    rows = table.select(["age", "income", "purpose", "repaid"])
    one = BoostedTreesClassifier(max_iter=3).fit(rows.drop_columns(["repaid"]), table["repaid"])
    dataset = ray.data.from_arrow(rows).repartition(4)
    there = BoostedTreesClassifier(max_iter=3, backend=RayBackend(actors=2, rows_in_object_store=True))
    assert there.fit(dataset, "repaid").ensemble_.trees == one.ensemble_.trees
    with pytest.raises(InvalidParameter, match="the blocks of a Ray dataset are in"):
        BoostedTreesClassifier(backend="ray").fit(dataset, "repaid")


def test_what_actors_cannot_know_is_refused(ray, loans):
    """Labels that are not in the files, and rows set apart by a draw."""
    folder, table = loans
    assert ray.is_initialized()
    blocks = Blocks(folder, drop=["repaid", "loss", "weight"])
    with pytest.raises(InvalidParameter, match="give them as names of columns"):
        BoostedTreesClassifier(backend="ray").fit(blocks, table["repaid"].to_pylist())
    blocks = Blocks(folder, target="repaid", drop=["loss", "weight"])
    with pytest.raises(InvalidParameter, match="give X_val and y_val"):
        BoostedTreesClassifier(backend="ray", early_stopping=True).fit(blocks)


# --- private trainings ------------------------------------------------------------------------------------------------

PUBLIC = Schema.from_public(
    bounds={"age": (-3, 3), "income": (-3, 3), "debt": (-2, 2)},
    levels={"purpose": ["car", "house"]},
    classes=["no", "yes"],
    may_be_missing=["age", "income", "debt"],
)
"""Some ages are beyond their bounds, and a purpose is not listed: there are misfits."""


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [2.0, np.inf])
def test_a_private_training_releases_the_same_with_the_same_noise(ray, loans, epsilon, monkeypatch):
    """Noise is drawn on the driver: with the same randomness all is equal, although an actor was lost on the way."""
    folder, table = loans
    settings = GaussianSettings(epsilon=epsilon, delta=1e-6, seed=4)
    X = table.select([column.name for column in PUBLIC.columns])
    here = fit_gaussian(X, table["repaid"], PUBLIC, settings, SecureRandom.from_seed(bytes(32)))
    crews = []
    prepare = Crew.prepare
    monkeypatch.setattr(Crew, "prepare", lambda crew, *given: crews.append(crew) or prepare(crew, *given))

    def harm(number, _of):
        if number == 3:
            ray.kill(crews[0].actors[0])

    there = fit_gaussian(
        Blocks(folder, target="repaid"),
        "repaid",
        PUBLIC,
        settings,
        SecureRandom.from_seed(bytes(32)),
        backend=RayBackend(actors=2),
        on_progress=harm,
    )
    assert there.model.to_dict() == here.model.to_dict()
    assert there.event == here.event
    assert there.statement == here.statement
    assert crews[0].rebuilt == 1


@pytest.mark.long
def test_a_private_estimator_reads_files_on_ray(ray, loans):
    """Its statement is that of one machine; a table in memory and policies for study are refused before a charge."""
    folder, table = loans
    assert ray.is_initialized()
    X = table.select([column.name for column in PUBLIC.columns])
    options = {"epsilon": np.inf, "schema": PUBLIC, "random_state": 0}
    here = PrivateBoostingClassifier(**options).fit(X, table["repaid"])
    there = PrivateBoostingClassifier(**options, backend=RayBackend(actors=2)).fit(folder, "repaid")
    assert there.ensemble_.trees == here.ensemble_.trees
    assert there.privacy_statement().stages == here.privacy_statement().stages
    with pytest.raises(InvalidType, match="reads Parquet files"):
        PrivateBoostingClassifier(**options, backend="ray").fit(X, table["repaid"])
    with pytest.raises(InvalidParameter, match="policy='random' runs on one machine"):
        PrivateBoostingClassifier(**options, policy="random", backend="ray").fit(folder, "repaid")


def test_a_wrong_address_costs_a_private_training_nothing(loans, tmp_path):
    """Nobody answers: that is found before the budget is charged."""
    folder, _ = loans
    budget = BudgetFile(tmp_path / "budget").open("loans", epsilon=1.0, delta=1e-6)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        options = {"epsilon": 1.0, "delta": 1e-6, "schema": PUBLIC, "budget": budget}
        model = PrivateBoostingClassifier(**options, backend=f"127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(ClusterError, match="nobody answers"):
            model.fit(folder, "repaid")
    assert budget.entries() == ()
