"""vertical.bucket_rr with the label holder's rows on Ray: the model is that of one machine, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from hedgerow import Federation
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.rows_ray.actors import Crew
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.bucket_rr import on_ray, soft_rows
from hedgerow.protocols.vertical.bucket_rr.debias import train_debiased
from hedgerow.schema import Schema
from twins.ray_cluster import lent, small_cluster

ALLOWED = {"rows_in_object_store": True, "patience": 120.0}
N_CODES = 6


@pytest.fixture(scope="module")
def ray():
    """A small cluster of its own for all tests here."""
    with small_cluster(5) as ray:
        yield ray


@pytest.fixture(scope="module")
def shared_crew(ray):
    """Actors that most tests share."""
    crew = Crew(ray, RayBackend(**ALLOWED, rebuilds=100), 4)
    yield crew
    crew.close()


@pytest.fixture
def crew(shared_crew):
    """Let trainings of this process run on the shared actors, as many of them as they ask for."""
    with lent(shared_crew, "hedgerow.protocols.vertical.bucket_rr.on_ray", "hedgerow.engine.rows_ray.placing"):
        yield shared_crew


# --- trees from shares -----------------------------------------------------------------------------------------------


def shared_case(loss):
    """Codes of three exact and three randomised columns, and labels that depend on what these were."""
    rng = np.random.default_rng(3)
    n_rows = 2000
    true = rng.integers(0, N_CODES, (6, n_rows))
    driver = true[0] / 3 + (true[3] > 2) * (true[1] > 1) + true[4] / 4 + rng.normal(size=n_rows) / 2
    keep = np.array([1.0, 1.0, 1.0, 0.6, 0.6, 0.6])
    changed = np.where(rng.random(true.shape) < keep[:, None], true, rng.integers(0, N_CODES, true.shape))
    labels = np.digitize(driver, [1.2, 2.2]) if loss == "softmax" else driver > 1.7
    mapper = BinMapper(tuple(FeatureBins(f"x{j}", edges=np.arange(1.0, N_CODES)) for j in range(6)))
    sizes = np.array([N_CODES + 1] * 3 + [N_CODES] * 3)
    return mapper, changed.astype(np.uint8), labels.astype(float), {"keep": keep, "n_codes": sizes}


def params_for(loss="logistic", **more):
    """Three small iterations."""
    n_classes = 3 if loss == "softmax" else 2
    return BoostingParams(loss=loss, n_classes=n_classes, n_iterations=3, max_depth=4, learning_rate=0.3, **more)


@pytest.fixture
def many_pieces(monkeypatch):
    """Sixteen pieces of few rows."""
    monkeypatch.setattr(soft_rows, "ROWS_PER_SUM", 100)
    assert len(soft_rows.piece_bounds(2000)) == soft_rows.MOST_SUMS + 1


@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("n_actors", [2, 4, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))])
def test_shares_are_summed_alike_by_any_number_of_actors(crew, n_actors):
    """Sums of floats too: pieces are ranges of rows, whoever holds them. Scores are the same as well."""
    assert len(crew.actors) == 4
    mapper, codes, y, noise = shared_case("logistic")
    seen = []
    how = {**noise, "on_trees": lambda _model, rows: seen.append(rows.scores.copy())}
    here = train_debiased(params_for(), mapper, codes, y, **how)
    there = train_debiased(params_for(), mapper, codes, y, **how, backend=RayBackend(**ALLOWED, actors=n_actors))
    assert any((tree.feature > 2).any() for tree in here.trees)  # randomised columns are asked about
    assert there.trees == here.trees
    for mine, theirs in zip(seen[:3], seen[3:], strict=True):
        np.testing.assert_array_equal(theirs, mine)


@pytest.mark.usefixtures("many_pieces")
def test_the_order_of_pieces_is_what_fixes_the_last_bits(monkeypatch):
    """With one piece instead of sixteen some value differs: else the tests above would show nothing."""
    mapper, codes, y, noise = shared_case("logistic")
    sixteen = train_debiased(params_for(), mapper, codes, y, **noise)
    monkeypatch.setattr(soft_rows, "ROWS_PER_SUM", 10_000)
    one = train_debiased(params_for(), mapper, codes, y, **noise)
    assert [tree.feature.tolist() for tree in one.trees] == [tree.feature.tolist() for tree in sixteen.trees]
    covers = [np.concatenate([tree.cover for tree in model.trees]) for model in (one, sixteen)]
    assert not np.array_equal(*covers)
    np.testing.assert_allclose(*covers, rtol=1e-12)


@pytest.mark.usefixtures("many_pieces")
def test_a_training_goes_on_from_scores(crew):
    """Several outputs; every actor is given its own rows' scores."""
    assert len(crew.actors) == 4
    mapper, codes, y, noise = shared_case("softmax")
    kept = {}

    def keep(model, rows):
        kept[model.n_iterations] = (model.trees[:], rows.scores.copy())

    here = train_debiased(params_for("softmax"), mapper, codes, y, **noise, on_trees=keep)
    init, scores = kept[1]
    backend = RayBackend(**ALLOWED, actors=3)
    how = {**noise, "init": init, "scores": scores, "backend": backend}
    assert train_debiased(params_for("softmax"), mapper, codes, y, **how).trees == here.trees


@pytest.mark.usefixtures("many_pieces")
def test_a_lost_actor_follows_all_that_was_asked(ray, crew, monkeypatch):
    """Killed in the middle of the second tree: it gets its block again, and no bit differs."""
    mapper, codes, y, noise = shared_case("logistic")
    here = train_debiased(params_for(), mapper, codes, y, **noise)
    before, divide, levels = crew.rebuilt, on_ray.RaySoftRows.divide, []

    def harm(rows, *arguments, **how):
        levels.append(how)
        if len(levels) == 6:
            ray.kill(crew.actors[1])
        return divide(rows, *arguments, **how)

    monkeypatch.setattr(on_ray.RaySoftRows, "divide", harm)
    backend = RayBackend(**ALLOWED, actors=2)
    assert train_debiased(params_for(), mapper, codes, y, **noise, backend=backend).trees == here.trees
    assert crew.rebuilt == before + 1


# --- whole runs ------------------------------------------------------------------------------------------------------

SCHEMA = Schema.from_public(bounds={"basket": (-4, 4), "visits": (0, 6)}, integers=["visits"])


@pytest.fixture(scope="module")
def federation():
    """A bank with labels and a shop."""
    rng = np.random.default_rng(1)
    n_rows = 600
    X = {"age": rng.normal(size=n_rows), "income": rng.normal(size=n_rows)}
    theirs = {"basket": rng.normal(size=n_rows), "visits": rng.integers(0, 7, n_rows).astype(float)}
    y = (X["age"] + theirs["basket"] * (theirs["visits"] > 3) > 0).astype(int)
    return Federation.vertical({"bank": pa.table(X), "shop": pa.table(theirs)}, labels=("bank", y))


def model_of(run):
    """All that the label holder's part says, but for the name of the run."""
    told = run.model.parts["bank"].to_dict()
    return {name: value for name, value in told.items() if name != "run_id"}


@pytest.mark.parametrize("transport", ["memory", pytest.param("grpc", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "options", [{"epsilon": math.inf}, {"epsilon": 4.0, "debias": False}, {"epsilon": 4.0, "debias": True}], ids=str
)
def test_a_run_gives_the_same_model(ray, federation, shared_crew, tmp_path, options, transport):
    """Buckets are sent once, by a run on one machine that keeps them; the next run trains on them in actors."""
    assert ray.is_initialized()
    options |= {"schema": SCHEMA, "buckets": 5, "cache": str(tmp_path), "max_iter": 3, "max_depth": 3}
    here = federation.fit("vertical.bucket_rr", transport="memory", **options)
    backend = {"bank": RayBackend(**ALLOWED, actors=1)}
    with lent(shared_crew, "hedgerow.protocols.vertical.bucket_rr.on_ray", "hedgerow.engine.rows_ray.placing"):
        there = federation.fit("vertical.bucket_rr", transport=transport, backend=backend, **options)
    assert model_of(there) == model_of(here)
    assert there.statement().guarantee == here.statement().guarantee


def test_a_party_that_cannot_is_told_why(ray, federation):
    """The feature holder has nothing to do there; the label holder's rows would pass through the object store."""
    assert ray.is_initialized()
    options = {"schema": SCHEMA, "epsilon": 4.0, "max_depth": 3}
    with pytest.raises(InvalidParameter, match=r"shop: backend: the feature holder .* takes no part in the training"):
        federation.fit("vertical.bucket_rr", backend={"shop": "ray"}, **options)
    with pytest.raises(InvalidParameter, match=r"bank: backend: a table in memory .*rows_in_object_store=True"):
        federation.fit("vertical.bucket_rr", backend={"bank": "ray"}, **options)
