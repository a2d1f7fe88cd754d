"""vertical.masked_gradients: the published protocol, equal to the pooled engine without masks, and broken with them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.federation.federation import Federation
from hedgerow.ledger import reconcile
from hedgerow.protocols.published.masked_gradients import feature_holder as feature_holder_module
from hedgerow.protocols.published.masked_gradients.job import STAMP, MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.label_holder import label_recovery, unmask
from hedgerow.protocols.published.masked_gradients.messages import MaskedGradients, NextVectors, NoiseVectors
from hedgerow.protocols.published.masked_gradients.vectors import (
    LevelRows,
    fill_noise,
    on_spheres,
    random_words,
    standard_normals,
)
from hedgerow.protocols.vertical.common.joint_forest import JointRows, descend_by_sides, packed_columns
from hedgerow.runtime.protocol import PartyData, find
from hedgerow.runtime.running import warm_up
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns, difference_from_pooled, first_order_twin, joint_scores
from twins.parties import asked
from twins.vertical import table_of

PROTOCOL = find("vertical.masked_gradients")
NAMES = ("anna", "ben", "carla", "dora")
N_ROWS = 700
NOISY = {"sigma1": 2.0, "sigma2": 0.5, "C": 9.0}


def make_data(n_parties=3, holder="anna", task="classification", n_rows=N_ROWS, seed=1):
    """Pooled rows (numbers, levels, gaps) and what each party has of them."""
    pooled = make_pooled(np.random.default_rng(seed), n_rows, task=task, n_numeric=5)
    return pooled, deal_columns(pooled, NAMES[:n_parties], holder)


def make_job(data, holder="anna", **changes):
    """A small job, without masks unless `changes` say so; they are parameters of trees and of the job alike."""
    known = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in known}
    boosting = BoostingParams(**{"n_iterations": 3, "max_depth": 3, "learning_rate": 0.3, **trees})
    if changes.get("task") == "regression" and "loss" not in trees:
        boosting = replace(boosting, loss="squared")
    plain = {} if "eps_ap" in changes else {"sigma1": 1.0, "sigma2": 1.0, "C": 0.0}
    options = {"max_bins": 20, "accept_known_leaks": True, **plain, **changes}
    return MaskedGradientsJob(tuple(data), holder, "a test", boosting=boosting, **options)


def play(job, data, **how):
    """All parties in memory: their parts, and the parties with their ledgers."""
    return vertical.play(PROTOCOL, job, data, **how)


def joined_codes(pooled, max_bins=20):
    """The pooled twin's bins and codes."""
    mapper = BinMapper.fit(pooled.table, max_bins)
    return mapper, mapper.transform(pooled.table)


def assert_equal_to_pooled(parts, job, data, pooled, twin):
    """Same trees, same questions, same scores, to the last bit."""
    assert difference_from_pooled(parts, job, data, twin, joined_codes(pooled)[1]) is None


# --- without masks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (4, "dora")])
def test_equal_to_the_pooled_engine(n_parties, holder, task):
    """Law: with C = 0 the model is the pooled engine's, bit for bit: numbers, levels, gaps, wherever the labels are."""
    pooled, data = make_data(n_parties, holder, task)
    job = make_job(data, holder, task=task)
    parts, parties = play(job, data)
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(parts, job, data, pooled, twin)
    reconcile({name: party.ledger for name, party in parties.items()})
    assert parts["ben" if holder == "anna" else "anna"].n_handles > 0


def test_equal_to_the_pooled_engine_where_the_noise_vanishes():
    """Law: with sigma2 = 0 masks are large and sums exact but for float32, so trees have the same splits."""
    pooled, data = make_data()
    job = make_job(data, sigma1=3.0, sigma2=0.0, C=4.0, n_iterations=1, max_depth=2)
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    parts, _ = play(job, data)
    assert np.array_equal(parts["anna"].ensemble.trees[0].value, twin.trees[0].value)
    assert np.allclose(parts["anna"].ensemble.trees[0].gain, twin.trees[0].gain, rtol=1e-3)


@pytest.mark.parametrize(
    "trees",
    [
        {"max_leaves": 5, "max_depth": None},
        {"min_samples_leaf": 40},
        {"min_gain": 4.0, "l2": 3.0},
        {"min_child_weight": 30.0, "base_score": 0.7},
        {"max_depth": 1},
        {"min_child_weight": 1e6},  # no split at all
        {"gradient_bits": 8},
        {"missing_unseen": "right"},
    ],
)
def test_rules_of_growth_are_the_engines(trees):
    """Limits on leaves, rows, gains and weights hold across parties as they do in one table."""
    pooled, data = make_data()
    job = make_job(data, **trees)
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(play(job, data)[0], job, data, pooled, twin)


def test_poisson_equals_the_pooled_engine():
    """Counts, whose hessians are sent as well."""
    pooled, data = make_data(task="counts")
    job = make_job(data, task="regression", loss="poisson")
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(play(job, data)[0], job, data, pooled, twin)


def test_first_order_equals_its_twin():
    """score="first_order" is the pooled engine with every hessian set to 1; hessians are not sent."""
    pooled, data = make_data()
    job = make_job(data, score="first_order", min_samples_leaf=3, min_child_weight=20.0)
    twin = first_order_twin(job.boosting, *joined_codes(pooled), pooled.labels)
    seen = []
    parts, _ = play(job, data, watch=lambda _to, _by, m: seen.append(m) if isinstance(m, MaskedGradients) else None)
    assert_equal_to_pooled(parts, job, data, pooled, twin)
    assert all(m.hessians.size == 0 for m in seen)


def test_a_party_without_candidates_takes_part():
    """A constant column has no cut; its owner answers, and never wins."""
    pooled, data = make_data(2)
    data["ben"] = PartyData(table_of([Column("same", np.ones(N_ROWS))]))
    parts, _ = play(make_job(data, **NOISY), data)
    assert parts["ben"].n_handles == 0
    assert parts["anna"].meta["label_recovery"] is None
    assert "was not measured" in " ".join(PROTOCOL.statement(make_job(data), parts["anna"].meta).guarantee)
    assert pooled.n_rows == N_ROWS


# --- noise -----------------------------------------------------------------------------------------------------------


def test_normals_are_normal():
    """The words' quantiles, right to a few parts in a million, and a million of them look like a normal sample."""
    rng = SecureRandom.from_seed(bytes(32))
    words = random_words(rng, (1_000_000,))
    words = np.concatenate([words, np.array([0, -1, 2**31 - 1, -(2**31), 1, 12345], np.int32)])
    made = np.empty(len(words), np.float32)
    standard_normals(words, made)
    folded = np.where(words < 0, ~words.astype(np.int64), words)
    expected = np.where(words < 0, 1.0, -1.0) * ndtri((folded + 0.5) / 2.0**32)
    error = np.abs(made - expected)
    assert error[np.abs(expected) < 5.0].max() < 5e-6
    assert error.max() < 3e-3
    assert np.abs(made).max() < 6.5
    assert kstest(made, "norm").pvalue > 0.01
    assert made.var() == pytest.approx(1.0, abs=0.006)


def noise_of(active_rows, n_rows, n_draws, sigma1, sigma2, seed=5):
    """Many draws of B for one candidate in one node: [draws, rows]."""
    codes = np.zeros((1, n_rows), np.uint8)
    codes[0, active_rows] = 1
    active = np.zeros((n_draws, 256), np.uint8)
    active[:, 1] = 1
    root = math.sqrt(4 * sigma1**2 + sigma2**2)
    factors = [np.float32(x) for x in ((root + sigma2) / 2, (root - sigma2) / 2, math.sqrt(2 * sigma1**2 + sigma2**2))]
    words = random_words(SecureRandom.from_seed(bytes([seed]) * 32), (n_draws, 1, n_rows))
    out = np.empty(words.shape, np.float32)
    fill_noise(
        0, n_draws, words, active, np.zeros(n_draws, np.int64), codes, np.array([0, n_rows]), *factors, out
    )  # fmt: skip
    return out[:, 0].astype(np.float64)


@pytest.mark.parametrize("n_active", [0, 1, 2, 3, 6])
@pytest.mark.parametrize(("sigma1", "sigma2"), [(1.0, 0.3), (0.5, 1.0), (2.0, 0.0)])
def test_the_law_of_the_noise(n_active, sigma1, sigma2):
    """One draw per entry has the covariance of the paper's construction, for active sets of any size."""
    n_rows, n_draws = 8, 60_000
    active = np.array([1, 2, 4, 5, 6, 7])[:n_active]
    drawn = noise_of(active, n_rows, n_draws, sigma1, sigma2)
    expected = np.eye(n_rows) * (2 * sigma1**2 + sigma2**2)
    shift = np.roll(np.eye(n_active), 1, axis=0) if n_active else np.eye(0)
    differences = np.eye(n_active) - shift
    expected[np.ix_(active, active)] = sigma1**2 * differences @ differences.T + sigma2**2 * np.eye(n_active)
    found = drawn.T @ drawn / n_draws
    assert np.abs(found - expected).max() < 6 * (2 * sigma1**2 + sigma2**2) / math.sqrt(n_draws)
    sums = drawn[:, active].sum(axis=1)
    assert sums.var() == pytest.approx(n_active * sigma2**2, rel=0.03, abs=1e-9)


def test_chains_close_within_each_node():
    """Two nodes of one level: in each the sum over the active set is free of sigma1."""
    codes = np.random.default_rng(0).integers(0, 2, (1, 600)).astype(np.uint8)
    active = np.zeros((1, 256), np.uint8)
    active[0, 1] = 1
    words = random_words(SecureRandom.from_seed(bytes([8]) * 32), (1, 1, 600))
    out = np.empty(words.shape, np.float32)
    one = np.float32(1.0)
    fill_noise(0, 1, words, active, np.zeros(1, np.int64), codes, np.array([0, 250, 600]), one, one, one, out)
    for part in (slice(0, 250), slice(250, 600)):
        chosen = out[0, 0, part][codes[0, part] == 1].astype(np.float64)
        assert len(chosen) > 50
        assert abs(chosen.sum()) < 1e-4
        assert np.abs(chosen).max() > 1.0


def test_points_on_spheres():
    """Of the right radius in each node, and in every direction."""
    radius = np.array([2.0, 0.0, 5.0])
    points = on_spheres(SecureRandom.from_seed(bytes(32)), 4000, radius, 3)
    assert np.allclose(np.linalg.norm(points, axis=2), radius)
    assert np.abs(points.mean(axis=0)).max() < 0.2
    assert np.allclose((points[:, 2] ** 2).mean(axis=0), 25 / 3, rtol=0.05)
    signs = on_spheres(SecureRandom.from_seed(bytes(32)), 4000, radius, 1)[:, 0, 0]
    assert np.allclose(np.abs(signs), 2.0)
    assert abs(signs.mean()) < 0.15


def test_rows_of_a_level_keep_their_order():
    """Node by node, by number; leaves are left out."""
    one_bin = packed_columns(np.zeros((1, 10), np.uint8), [FeatureBins("x", edges=np.empty(0))])
    rows = JointRows(one_bin, np.zeros(10), None, Loss("squared"), np.zeros(1), Quantiser(1.0, 1.0))
    rows.start_tree()
    rows.sides[:] = np.arange(10) % 3 == 0
    descend_by_sides(rows, np.array([True]), last=False)
    level = LevelRows.of(rows)
    assert level.order.tolist() == [1, 2, 4, 5, 7, 8, 0, 3, 6, 9]
    assert level.starts.tolist() == [0, 6, 10]
    assert level.sums(np.arange(10)).tolist() == [27, 18]
    rows.sides[:] = np.arange(10) > 4
    descend_by_sides(rows, np.array([False, True]), last=False)
    level = LevelRows.of(rows)
    assert (level.order.tolist(), level.starts.tolist()) == ([0, 3, 6, 9], [0, 2, 4])


def messages_of(job, data, **how):
    """All noise vectors and masked gradients, in order, per receiver."""
    seen = []
    kinds = (NoiseVectors, MaskedGradients, NextVectors)
    parts, _ = play(job, data, watch=lambda name, _, m: seen.append((name, m)) if isinstance(m, kinds) else None, **how)
    return parts, seen


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_blocks_change_nothing(n_vectors):
    """Law: however few candidates fit a message, and even if the vectors of one do not, the parts are the same."""
    _, data = make_data(3)
    whole = make_job(data, n_vectors=n_vectors, n_iterations=2, **NOISY)
    expected, few = messages_of(whole, data)
    smaller, many = messages_of(replace(whole, block_bytes=5 * 4 * N_ROWS * 4 if n_vectors == 1 else 1 << 10), data)
    assert len(many) > 3 * len(few)
    for name in data:
        one, other = expected[name].to_dict(), smaller[name].to_dict()
        for part in (one, other):
            part.get("model", {"meta": {}})["meta"].pop("rounds", None)
        assert one == other
    assert any(isinstance(m, NextVectors) for _, m in many) == (n_vectors == 3)


def test_messages_stay_within_block_bytes():
    """Law: whatever rows, candidates and vectors, two messages and their answers fit block_bytes."""
    _, data = make_data(2, n_rows=3000)
    for n_vectors in (1, 8):
        limit = 200_000
        job = make_job(data, n_vectors=n_vectors, n_iterations=1, block_bytes=limit, **NOISY)
        for _, message in messages_of(job, data)[1]:
            size = sum(
                getattr(message, name).nbytes for name in ("vectors", "gradients", "hessians") if hasattr(message, name)
            )
            assert size <= limit // 2


def test_threads_change_nothing(monkeypatch):
    """Two threads give the same parts as one."""
    monkeypatch.setattr("hedgerow.engine.rows.CODES_WORTH_THREADS", 0)
    monkeypatch.setattr("hedgerow.engine.rows.CHUNK", 64)
    monkeypatch.setattr("hedgerow.protocols.published.masked_gradients.vectors._ENTRIES_WORTH_A_THREAD", 0)
    _, data = make_data()
    job = make_job(data, **NOISY)
    two = {name: replace(mine, n_threads=2) for name, mine in data.items()}
    one_part, two_parts = play(job, data)[0], play(job, two)[0]
    for name in data:
        assert one_part[name].to_dict() == two_parts[name].to_dict()


@pytest.mark.parametrize("n_vectors", [1, 2])
def test_what_is_sent_is_masked_and_sums_have_the_noise_that_theorem_1_says(n_vectors):
    """g + B c with |c|^2 = C at the root; summed over an active set, noise of variance n_A C sigma2^2."""
    pooled, data = make_data(2, n_rows=2000)
    job = make_job(data, n_vectors=n_vectors, n_iterations=8, max_depth=1, **NOISY)
    _, seen = messages_of(job, data)
    scale = Quantiser.for_job(Loss("logistic"), 2000.0, n_rows=2000).gradient_scale
    share = pooled.labels.mean()
    exact = share - pooled.labels
    noise, masked = seen[0][1].vectors, seen[1][1].gradients / scale
    coefficients = [
        np.linalg.lstsq(noise[k].T.astype(np.float64), masked[k] - exact, rcond=None)[0] for k in range(len(noise))
    ]
    assert np.allclose([np.sum(c**2) for c in coefficients], 9.0, rtol=1e-3)
    assert seen[1][1].gradient_sums[0] / scale == pytest.approx(exact.sum(), abs=1e-2)
    codes = BinMapper.fit(data["ben"].table, 20).transform(data["ben"].table)
    errors = []
    for cut in range(19):
        active = codes[0] <= cut
        errors.append((masked[cut] - exact)[active].sum() / math.sqrt(active.sum() * 9.0 * 0.25))
    assert 0.5 < np.std(errors) < 1.6


def test_noisy_models_learn():
    """With moderate noise the model still ranks rows."""
    pooled, data = make_data(n_rows=3000)
    for score in ("xgboost", "first_order"):
        job = make_job(data, sigma1=2.0, sigma2=0.1, C=1.0, score=score, n_iterations=6)
        scores = joint_scores(play(job, data)[0], job, data)[:, 0]
        positive, negative = scores[pooled.labels == 1], scores[pooled.labels == 0]
        assert np.mean(positive[:, None] > negative[None, :]) > 0.7


# --- what it gives away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_vectors", [1, 3])
@pytest.mark.parametrize("block_bytes", [64 << 20, 1 << 10])
def test_the_statement_prints_the_measured_recovery(n_vectors, block_bytes):
    """KNOWN LEAKS; the label holder's measurement is what the feature holder's own attack finds."""
    pooled, data = make_data()
    how = {"eps_ap": 0.5, "delta_ap": 1e-3, "eps_pp": 3.0, "accept_low_snr": True, "n_vectors": n_vectors}
    job = make_job(data, block_bytes=block_bytes, n_iterations=2, **how)
    parts, seen = messages_of(job, data)
    meta = parts["anna"].meta
    found = meta["label_recovery"]
    assert found["by"] == "ben"
    assert found["value"] > 0.98
    assert found["chance"] < 0.8
    # The same from what ben really sent and received:
    noise, taken = [], None
    for name, message in seen:
        if isinstance(message, NoiseVectors) and name == "anna" and taken is None:
            noise.append(message.vectors[0])
            if message.first_vector + message.vectors.shape[1] == n_vectors:
                break
    taken = next(m.gradients[0] for name, m in seen if isinstance(m, MaskedGradients) and name == "ben")
    assert np.mean((unmask(taken, np.concatenate(noise)) < 0) == pooled.labels) == found["value"]
    assert np.mean((taken < 0) == pooled.labels) < 0.65  # without the attack it looks hidden
    stated = PROTOCOL.statement(job, meta)
    assert "KNOWN LEAKS" in str(stated)
    assert f"recovers {found['value']:.2%} of the labels" in " ".join(str(stated).split())
    assert stated.facts["stamp"] == STAMP == meta["stamp"] == parts["ben"].meta["stamp"]
    assert not stated.facts["model_is_private"]
    total = meta["theorems_would_add_up_to"]
    assert total["ap"]["messages"] == 2 * total["pp"]["messages"] == 2 * max(meta["candidates_masked"].values())
    assert total["ap"]["basic"][0] == pytest.approx(0.5 * total["ap"]["messages"])
    assert meta["noise"]["snr_bound"] == pytest.approx(0.066, abs=1e-3)


def test_recovery_of_numbers_and_of_nothing():
    """A regression: the share of variance; noise of strength 0 does not upset it."""
    rng = np.random.default_rng(3)
    labels, noise = rng.normal(size=500), rng.normal(size=(2, 500))
    found = label_recovery(-labels + 100.0 * noise[0], noise, labels, two_classes=False)
    assert found["measure"] == "r2"
    assert found["value"] > 0.98
    assert label_recovery(0.5 - np.round(labels > 0), noise * 0.0, labels > 0, two_classes=True)["value"] == 1.0
    assert label_recovery(np.ones(500), noise, labels, two_classes=False)["value"] < 0.1
    _, data = make_data(2, task="regression")
    job = make_job(data, task="regression", **NOISY)
    meta = play(job, data)[0]["anna"].meta
    assert meta["label_recovery"]["value"] > 0.98
    assert "of the labels' variance" in " ".join(PROTOCOL.statement(job, meta).guarantee)


# --- over the wire, and on paper -------------------------------------------------------------------------------------


def test_over_grpc_it_is_the_same():
    """The transport changes nothing."""
    _, data = make_data()
    job = make_job(data, n_iterations=2, **NOISY)
    expected, _ = play(job, data)
    results = vertical.play_over_grpc(PROTOCOL, job, data)
    assert {name: part.to_dict() for name, part in results.items()} == {
        name: part.to_dict() for name, part in expected.items()
    }


def test_jobs_and_parts_survive_json():
    """A job, and each part, is the same after a way through strict JSON."""
    _, data = make_data(2)
    for changes in (NOISY, {"eps_ap": 12.0, "delta_ap": 1e-3, "eps_pp": 2.0, "n_vectors": 2, "score": "first_order"}):
        job = make_job(data, n_iterations=1, **changes)
        text = json.dumps(job.to_dict(), allow_nan=False)
        assert PROTOCOL.job.from_dict(json.loads(text)) == job
        for part in play(job, data)[0].values():
            written = json.dumps(part.to_dict(), allow_nan=False)
            assert PROTOCOL.result(json.loads(written)).to_dict() == part.to_dict()


def test_rehearsals_run():
    """Every mode can be rehearsed, whatever the real job's size."""
    _, data = make_data(3)
    warm_up(PROTOCOL, make_job(data, n_iterations=500, max_depth=12, n_vectors=2, **NOISY))
    warm_up(PROTOCOL, make_job(data, task="regression", label_range=(5.0, 9.0)))


def test_through_a_federation():
    """fit with the options, predict, and the statement of the run."""
    pooled, data = make_data(2)
    tables = {
        name: np.column_stack([c.values for c in mine.table.columns if c.levels is None]) for name, mine in data.items()
    }
    federation = Federation.vertical(tables, labels=("anna", pooled.labels))
    run = federation.fit(
        "vertical.masked_gradients", n_estimators=2, max_depth=3, max_bins=20, accept_known_leaks=True, **NOISY
    )
    assert run.model.predict(tables).shape == (N_ROWS,)
    assert "KNOWN LEAKS" in str(run.statement())


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accept_known_leaks": False}, "take it off by least squares, which recovers every label"),
        ({"C": None}, "all three and nothing else"),
        ({"eps_pp": 1.0}, "all three and nothing else"),
        ({"sigma1": None, "sigma2": None, "C": None}, "needs eps_ap, delta_ap, eps_pp"),
        ({"sigma2": -1.0}, "sigma2 must be a number of at least 0"),
        ({"C": math.inf}, "C must be a number"),
        ({"eps_ap": 12.0, "delta_ap": 1e-3, "eps_pp": 1.0, "n_vectors": 3}, r"W ln 2 = 2\.0794"),
        ({"eps_ap": 8.0, "delta_ap": 1e-3, "eps_pp": 1.0}, r"signal-to-noise ratio can exceed 0\.87"),
        ({"score": "second_order"}, "score must be one of xgboost, first_order"),
        ({"reading": "word"}, "reading must be one of vector, record"),
        ({"n_vectors": 0}, "n_vectors must be a whole number of at least 1"),
        ({"block_bytes": 1.5}, "block_bytes must be a whole number"),
        ({"accept_known_leaks": 3}, "accept_known_leaks must be one of"),
    ],
)
def test_bad_parameters_are_refused(changes, words):
    """By name and value, before anybody is asked for anything."""
    _, data = make_data(2)
    with pytest.raises(InvalidParameter, match=words):
        make_job(data, **changes)


def test_a_request_becomes_a_job():
    """Options reach the job; numpy's numbers become plain ones."""
    options = {"sigma1": np.float64(2.0), "sigma2": 1e-6, "C": 1.0, "accept_known_leaks": True}
    request = (("a", "b"), "run", "classification", BoostingParams(), 64, options, "b")
    job = asked(PROTOCOL, *request)
    assert (job.label_holder, job.sigma1, type(job.sigma1)) == ("b", 2.0, float)
    assert PROTOCOL.parties(job) == ("b", "a")


def test_bad_data_is_refused():
    """Naming the party, before anything about rows has left anybody."""
    _, data = make_data()
    job = make_job(data)
    labels = data["anna"].labels
    short = table_of([Column("x", np.arange(10.0))])
    cases = [
        ("anna", {"labels": None}, "anna: the label holder needs labels"),
        ("anna", {"weight": np.zeros(N_ROWS)}, "anna: every sample_weight is zero"),
        ("anna", {"labels": np.where(np.arange(N_ROWS) == 5, np.nan, labels)}, "anna: label of row 5"),
        ("anna", {"labels": labels[:-1]}, "anna: 699 labels for 700 rows"),
        ("anna", {"classes": None}, "anna: the labels are not those of a classification"),
        ("ben", {"table": short}, "ben: has 10 rows, but anna has 700"),
    ]
    for name, changes, words in cases:
        with pytest.raises(InvalidInput, match=words):
            play(job, {**data, name: replace(data[name], **changes)})
    numbers = {**data, "anna": replace(data["anna"], classes=None)}
    with pytest.raises(InvalidInput, match="outside the declared label_range"):
        play(make_job(data, task="regression", label_range=(0.0, 0.1)), numbers)


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        (NoiseVectors, "vectors", np.zeros((1, 1, 5), np.float32), "ben sent .*noise_vectors with vectors of shape"),
        (NoiseVectors, "first_vector", 1, "ben sent .*noise_vectors with first_vector = 1"),
        (
            NoiseVectors,
            "vectors",
            np.full((1, 1, N_ROWS), np.nan, np.float32),
            "ben sent .*noise_vectors with vectors = nan",
        ),
        (
            MaskedGradients,
            "gradients",
            np.zeros((1, 5), np.float32),
            "anna sent .*masked_gradients with gradients of shape",
        ),
        (
            MaskedGradients,
            "gradient_sums",
            np.zeros(7, np.int64),
            "anna sent .*masked_gradients with gradient_sums of shape",
        ),
    ],
)
def test_messages_that_do_not_fit_are_refused(kind, field, value, words):
    """A wrong shape, or what is no number, ends the run with the sender's name."""
    _, data = make_data(2)
    job = make_job(data, **NOISY)

    def spoil(message):
        return replace(message, **{field: value}) if isinstance(message, kind) else message

    with pytest.raises(ProtocolError, match=words):
        play(job, data, spoil=spoil)
    assert feature_holder_module.UNDER_WAY == 2
