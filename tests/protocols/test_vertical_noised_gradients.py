"""vertical.noised_gradients: equal to the pooled engine without noise; with noise, what is claimed and no more."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.boosting import train
from hedgerow.engine.histogram import pack, with_spare_column
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.ledger import reconcile
from hedgerow.privacy import events
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.protocols.vertical.common.joint_forest import JointRows, choose_winners, packed_columns
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.noised_gradients import noise as noise_module
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients, NoisyLevel
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, LevelNoise, fit, plain_quantiser
from hedgerow.protocols.vertical.noised_gradients.noise_aware import NoiseAwareGrower
from hedgerow.runtime.protocol import find
from hedgerow.runtime.running import in_memory, role, warm_up
from hedgerow.transport.memory import MemoryNetwork
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns, difference_from_pooled, first_order_twin, joint_scores
from twins.parties import asked
from twins.vertical import table_of

PROTOCOL = find("vertical.noised_gradients")
NAMES = ("anna", "ben", "carla", "dora")
N_ROWS = 700


def make_data(n_parties=3, holder="anna", task="classification", n_rows=N_ROWS, seed=1):
    """Pooled rows (numbers, levels, gaps) and what each party has of them."""
    pooled = make_pooled(np.random.default_rng(seed), n_rows, task=task, n_numeric=5)
    return pooled, deal_columns(pooled, NAMES[:n_parties], holder)


def make_job(data, holder="anna", **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    known = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in known}
    boosting = BoostingParams(**{"n_iterations": 4, "max_depth": 3, "learning_rate": 0.3, **trees})
    options = {"epsilon": math.inf, "delta": 1e-5, "max_bins": 40, **changes}
    if options.get("task") == "regression" and "loss" not in trees:
        boosting = replace(boosting, loss="squared")
    return NoisedGradientsJob(tuple(data), holder, "a test", boosting=boosting, **options)


def play(job, data, **how):
    """All parties in memory: their parts, and the parties with their ledgers."""
    return vertical.play(PROTOCOL, job, data, **how)


def joined_codes(pooled, max_bins=40):
    """The pooled twin's bins and codes."""
    mapper = BinMapper.fit(pooled.table, max_bins)
    return mapper, mapper.transform(pooled.table)


def assert_equal_to_pooled(parts, job, data, pooled, twin):
    """Same trees, same questions, same scores, to the last bit."""
    assert difference_from_pooled(parts, job, data, twin, joined_codes(pooled)[1]) is None


# --- without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["run", "tree", "message"])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (4, "dora")])
def test_equal_to_the_pooled_engine(n_parties, holder, task, per):
    """Law: without noise the model is the pooled engine's, bit for bit, wherever the labels are."""
    pooled, data = make_data(n_parties, holder, task)
    job = make_job(data, holder, task=task, per=per)
    parts, parties = play(job, data)
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(parts, job, data, pooled, twin)
    reconcile({name: party.ledger for name, party in parties.items()})


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
@pytest.mark.parametrize("per", ["tree", "message"])
def test_rules_of_growth_are_the_engines(trees, per):
    """Limits on leaves, rows, gains and weights hold across parties as they do in one table."""
    pooled, data = make_data()
    job = make_job(data, per=per, **trees)
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(play(job, data)[0], job, data, pooled, twin)


def test_poisson_equals_the_pooled_engine():
    """Counts, with the loss that is for them."""
    pooled, data = make_data(task="counts")
    job = make_job(data, task="regression", loss="poisson")
    twin = train(job.boosting, *joined_codes(pooled), pooled.labels).ensemble
    assert_equal_to_pooled(play(job, data)[0], job, data, pooled, twin)


@pytest.mark.parametrize("per", ["tree", "message"])
def test_first_order_equals_its_twin(per):
    """score="first_order" is the pooled engine with every hessian set to 1, in scores, leaves and limits."""
    pooled, data = make_data()
    job = make_job(data, score="first_order", per=per, min_samples_leaf=3, min_child_weight=20.0)
    twin = first_order_twin(job.boosting, *joined_codes(pooled), pooled.labels)
    assert_equal_to_pooled(play(job, data)[0], job, data, pooled, twin)
    assert twin.trees[0].cover[0] == N_ROWS


def test_a_difference_from_the_pooled_engine_is_found():
    """A twin that learns at another rate, or has a tree more, is not the same."""
    pooled, data = make_data(2)
    job = make_job(data, n_iterations=1)
    mapper, codes = joined_codes(pooled)
    parts, _ = play(job, data)
    for changes, where in (
        ({}, None),
        ({"learning_rate": 0.2}, "value of tree 0"),
        ({"n_iterations": 2}, "number"),
        ({"base_score": 0.5}, "own columns or base scores"),
    ):
        twin = train(replace(job.boosting, **changes), mapper, codes, pooled.labels).ensemble
        found = difference_from_pooled(parts, job, data, twin, codes)
        assert (found is None) if where is None else found.startswith(where)


def test_the_earlier_party_wins_a_tie():
    """The same column at two parties: the first in the order of parties is asked, as in one table."""
    _, data = make_data(2, "ben")
    twice = {"anna": replace(data["anna"], table=data["ben"].table), "ben": data["ben"]}
    parts, _ = play(make_job(twice, "ben"), twice)
    assert parts["anna"].n_handles > 0
    columns = np.concatenate([tree.feature for tree in parts["ben"].ensemble.trees])
    assert (columns[columns >= 0] >= parts["ben"].n_own).all()


def test_threads_change_nothing(monkeypatch):
    """Two threads, each with its own rows, give the same parts as one."""
    monkeypatch.setattr("hedgerow.engine.rows.CODES_WORTH_THREADS", 0)
    monkeypatch.setattr("hedgerow.engine.rows.CHUNK", 64)
    _, data = make_data()
    for changes in ({}, {"epsilon": 4.0}):
        job = make_job(data, **changes)
        two = {name: replace(mine, n_threads=2) for name, mine in data.items()}
        one_part, two_parts = play(job, data)[0], play(job, two)[0]
        for name in data:
            assert one_part[name].to_dict() == two_parts[name].to_dict()


# --- with noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("per", "n_releases"), [("run", 1), ("tree", 4)])
def test_ledger_statement_and_accountant_agree(per, n_releases):
    """Every noisy message has its event in the ledger, and the statement says what the accountant makes of them."""
    _, data = make_data()
    job = make_job(data, per=per, epsilon=2.0)
    parts, parties = play(job, data)
    accountants = []
    for name in job.feature_holders:
        lines = parties["anna"].ledger.lines("disclosed", name)
        noisy = [line for line in lines if line.message == NoisyGradients.NAME]
        assert [line.event is not None for line in lines] == [line.message == NoisyGradients.NAME for line in lines]
        assert len(noisy) == n_releases
        accountant = GaussianDP("replace_one")
        for line in noisy:
            event = events.from_dict(line.event)
            assert isinstance(event, events.DiscreteGaussian)
            assert event.coordinates == N_ROWS
            accountant.compose(event)
        accountants.append(accountant.epsilon(1e-5))
    privacy = parts["anna"].meta["privacy"]
    assert accountants == [privacy["epsilon"]] * 2
    assert 1.999 < privacy["epsilon"] <= 2.0
    assert all(parts[name].meta["privacy"] == privacy for name in job.feature_holders)
    stated = PROTOCOL.statement(job, parts["anna"].meta)
    assert stated.guarantee[0].startswith("One label: epsilon = 2 and delta = 1e-5, towards the feature holders")
    assert stated.facts["stamp"] is None
    assert stated.facts["model_is_private"]
    assert "Columns are not protected" in str(stated)


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 20.0])
@pytest.mark.parametrize("per", ["run", "tree"])
def test_sigma_is_what_gaussian_dp_asks_for(epsilon, per):
    """mu = sqrt(releases) / sigma for two classes, up to the discretisation."""
    _, data = make_data()
    job = make_job(data, epsilon=epsilon, per=per)
    noise = LabelNoise.plan(job, Loss("logistic"), N_ROWS)
    mu = math.sqrt(job.releases) / noise.sigma_of_gradient
    assert mu == pytest.approx(mu_for(epsilon, 1e-5), rel=1e-6)
    assert noise.sensitivity == noise.scale


def first_release(data, job, **how):
    """What each feature holder receives first, of gradients."""
    seen = {}

    def watch(name, _, message):
        if isinstance(message, NoisyGradients):
            seen.setdefault(name, message.gradients.astype(np.int64))

    play(job, data, watch=watch, **how)
    return seen


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_one_label_changes_one_coordinate(task):
    """With the same noise, one changed label moves one released number, by the sensitivity at most."""
    _, data = make_data(task=task)
    more = {"task": task, "label_range": (-3.0, 3.0)} if task == "regression" else {}
    job = make_job(data, epsilon=1.0, n_iterations=1, **more)
    labels = np.clip(data["anna"].labels, -3.0, 3.0)
    low, high = (0.0, 1.0) if task == "classification" else (-3.0, 3.0)
    labels[17] = low
    other = labels.copy()
    other[17] = high
    releases = []
    for these in (labels, other):
        seen = first_release({**data, "anna": replace(data["anna"], labels=these)}, job)
        assert np.array_equal(seen["ben"], seen["carla"])
        releases.append(seen["ben"])
    moved = releases[0] - releases[1]
    noise = LabelNoise.plan(job, Loss("squared", 1, (low, high)) if task == "regression" else Loss("logistic"), N_ROWS)
    assert np.flatnonzero(moved).tolist() == [17]
    assert moved[17] == noise.sensitivity


def test_the_noise_has_its_variance():
    """What was released less what was exact is centred and as wide as the event says."""
    _, data = make_data(n_rows=4000)
    job = make_job(data, epsilon=1.0, n_iterations=1)
    noise = LabelNoise.plan(job, Loss("logistic"), 4000)
    left = first_release(data, job)["ben"] - noise.from_labels(data["anna"].labels)
    assert left.std() == pytest.approx(noise.sigma, rel=0.05)
    assert abs(left.mean()) < 4 * noise.sigma / math.sqrt(4000)


@pytest.mark.parametrize("per", ["run", "tree"])
def test_the_model_follows_from_what_was_released(per, monkeypatch):
    """R-hidden: other labels with the same released numbers give the very same parts at every party."""
    pooled, data = make_data()
    rng = np.random.default_rng(9)
    job = make_job(data, epsilon=20.0, per=per)
    fixed = 0.5 - pooled.labels + rng.normal(scale=0.2, size=(job.releases, N_ROWS))
    plain = LabelNoise.release
    used = []

    def release(self, exact, random):
        used.append(np.rint(fixed[len(used) % job.releases] * self.scale).astype(np.int64))
        return plain(self, exact, random)._replace(values=used[-1])

    monkeypatch.setattr(LabelNoise, "release", release)
    parts = []
    for labels in (data["anna"].labels, 1.0 - data["anna"].labels):
        found, _ = play(job, {**data, "anna": replace(data["anna"], labels=labels)})
        parts.append({name: part.to_dict() for name, part in found.items()})
    assert parts[0] == parts[1]
    assert any(tree.n_nodes > 1 for tree in part_from_dict(parts[0]["anna"]).ensemble.trees)


@pytest.mark.parametrize("noise_aware", [True, False])
@pytest.mark.parametrize("score", ["xgboost", "first_order"])
@pytest.mark.parametrize("per", ["run", "tree"])
def test_noisy_models_learn(per, score, noise_aware):
    """With a generous epsilon, the noisy model ranks rows nearly as one without noise does."""
    pooled, data = make_data(n_rows=3000)
    job = make_job(data, per=per, score=score, noise_aware=noise_aware, epsilon=15.0)
    parts, _ = play(job, data)
    scores = joint_scores(parts, job, data)[:, 0]
    positive, negative = scores[pooled.labels == 1], scores[pooled.labels == 0]
    assert np.mean(positive[:, None] > negative[None, :]) > 0.7
    # The scores that feature holders keep are those of the model: a later tree would have gone astray otherwise.
    assert abs(scores.mean()) < 1.0


def test_regression_with_noise_learns():
    """Labels beyond the declared range are clipped, and the base score comes from the release."""
    pooled, data = make_data(task="regression", n_rows=3000)
    job = make_job(data, task="regression", epsilon=15.0, label_range=(-2.0, 2.0), n_iterations=10)
    parts, _ = play(job, data)
    target = np.clip(pooled.labels, -2.0, 2.0)
    assert np.corrcoef(joint_scores(parts, job, data)[:, 0], target)[0, 1] > 0.5
    assert parts["anna"].ensemble.base_scores[0] == pytest.approx(target.mean(), abs=0.05)


def test_counts_with_noise_learn():
    """The poisson loss, whose base score is a logarithm and whose hessians are means."""
    pooled, data = make_data(task="counts", n_rows=3000)
    job = make_job(data, task="regression", loss="poisson", epsilon=20.0, label_range=(0.0, 6.0), n_iterations=10)
    parts, _ = play(job, data)
    target = np.clip(pooled.labels, 0.0, 6.0)
    means = np.exp(joint_scores(parts, job, data)[:, 0])
    assert np.corrcoef(means, target)[0, 1] > 0.3
    assert means.mean() == pytest.approx(target.mean(), rel=0.2)


def test_base_score_from_the_first_release_or_as_given():
    """Near the share of ones for two classes; what the job says where it says something."""
    _, data = make_data(n_rows=3000)
    labels = (np.arange(3000) % 10 == 0).astype(np.float64)
    data["anna"] = replace(data["anna"], labels=labels)
    found = play(make_job(data, epsilon=8.0, n_iterations=1), data)[0]["anna"].ensemble.base_scores[0]
    assert 1 / (1 + math.exp(-found)) == pytest.approx(0.1, abs=0.04)
    given = play(make_job(data, epsilon=8.0, n_iterations=1, base_score=0.25), data)[0]
    assert given["anna"].ensemble.base_scores.tolist() == [0.25]


# --- per message -----------------------------------------------------------------------------------------------------


def test_per_message_is_stamped_and_claims_no_total():
    """Fresh noise for every level and party; (epsilon, delta) of one message; what they compose to; no guarantee."""
    _, data = make_data()
    job = make_job(data, per="message", epsilon=1.0, n_iterations=2)
    seen = []
    parts, parties = play(job, data, watch=lambda _to, _by, m: seen.append(m) if isinstance(m, NoisyLevel) else None)
    vectors = [m.gradients for m in seen]
    assert len(vectors) == 2 * 2 * 3  # parties, trees, levels
    assert len({v.tobytes() for v in vectors}) == len(vectors)
    assert all((m.hessians >= 0).all() and len(m.hessians) == N_ROWS for m in seen)
    in_ledger = [events.from_dict(event) for event in parties["anna"].ledger.events()]
    one, all_of_them = GaussianDP("replace_one"), GaussianDP("replace_one")
    one.compose(in_ledger[0])
    all_of_them.compose_all(in_ledger)
    assert 0.999 < one.epsilon(1e-5) <= 1.0
    privacy = parts["anna"].meta["privacy"]
    assert privacy["epsilon"] is None
    assert privacy["releases"] == 12
    assert privacy["composed_if_leaves_were_noisy"] == all_of_them.epsilon(1e-5)
    stated = PROTOCOL.statement(job, parts["anna"].meta)
    assert stated.facts["stamp"] == parts["anna"].meta["stamp"] == parts["ben"].meta["stamp"] == "PER MESSAGE"
    assert not stated.facts["model_is_private"]
    assert "NO total guarantee is claimed" in str(stated)
    assert "12 such messages" in str(stated)


def test_per_message_leaves_are_exact():
    """As published, the label holder's leaves come from exact gradients, whatever the feature holders saw."""
    pooled, data = make_data()
    job = make_job(data, per="message", epsilon=0.1, n_iterations=1)
    parts, _ = play(job, data)
    tree = parts["anna"].ensemble.trees[0]
    share = pooled.labels.mean()
    gradient = float(np.sum(share - pooled.labels))
    assert tree.cover[0] == pytest.approx(N_ROWS * share * (1 - share), rel=1e-4)
    assert tree.value[0] == pytest.approx(-0.3 * gradient / (tree.cover[0] + 1.0), abs=1e-5)


def test_first_order_sends_no_hessians_per_message():
    """Where every hessian is 1, gradients alone are sent."""
    _, data = make_data(2)
    seen = []
    job = make_job(data, per="message", score="first_order", epsilon=3.0, n_iterations=1)
    play(job, data, watch=lambda _to, _by, m: seen.append(m) if isinstance(m, NoisyLevel) else None)
    assert [len(m.hessians) for m in seen] == [0, 0, 0]


def test_without_noise_it_is_stamped():
    """NOT PRIVATE in both parts and in the statement; no event in the ledger."""
    _, data = make_data(2)
    job = make_job(data)
    parts, parties = play(job, data)
    stated = PROTOCOL.statement(job, parts["anna"].meta)
    assert stated.facts["stamp"] == parts["anna"].meta["stamp"] == parts["ben"].meta["stamp"] == "NOT PRIVATE"
    assert "NOT PRIVATE" in str(stated)
    assert parties["anna"].ledger.events() == []


# --- what lies below -------------------------------------------------------------------------------------------------


def test_a_spare_column_changes_no_histogram():
    """One more feature to descend by; cells, words and all other features stay."""
    codes = np.random.default_rng(0).integers(0, 5, (6, 300)).astype(np.uint8)
    plain = pack(codes, np.full(6, 4), np.zeros(6, np.bool_))
    wider = with_spare_column(plain)
    assert wider.layout.n_features == plain.layout.n_features + 1
    assert wider.layout.n_cells == plain.layout.n_cells
    assert wider.layout.n_value_bins[-1] == 0
    assert not wider.columns[-1].any()
    assert np.array_equal(wider.columns[:-1], plain.columns)
    assert wider.words is plain.words


def noisy_grower(rng, n_rows, sigma, *, gaps=1, **rules):
    """A noise-aware grower on two columns, one of them with levels, and some gaps."""
    features = (FeatureBins("x", np.arange(1.0, 6.0)), FeatureBins("kind", None, ("a", "b", "c", "d")))
    codes = np.stack([rng.integers(0, 6 + gaps, n_rows), rng.integers(0, 4 + gaps, n_rows)]).astype(np.uint8)
    quantiser = Quantiser(2.0**8, 2.0**16)
    rows = JointRows(packed_columns(codes, features), np.zeros(n_rows), None, Loss("logistic"), np.zeros(1), quantiser)
    rules = BoostingParams(l2=2.0, min_child_weight=3.0, max_depth=1, **rules)
    grower = NoiseAwareGrower(rows, rules, Loss("logistic"), quantiser, features, sigma=sigma)
    g = rng.normal(codes[0] - 3.0 + (codes[1] == 2), 0.5 + sigma) / 6.0
    h = rng.uniform(0.05, 0.25, n_rows)
    whole_g, whole_h = np.rint(g * 2**8).astype(np.int64), np.rint(h * 2**16).astype(np.int64)
    rows.gradients_packed[0] = (whole_g << 32) + whole_h
    rows.start_tree()
    grower.begin()
    return grower, codes, whole_g / 2**8, whole_h / 2**16


def best_by_hand(codes, g, h, sigma):
    """Gain and rows that go left of the best split, all cuts tried one after the other."""

    def score(side):
        doubt = 2.0 * sigma * math.sqrt(side.sum())
        return max(g[side].sum() ** 2 - doubt**2, 0.0) / (h[side].sum() + 2.0 + doubt)

    best, best_side = 0.0, None
    everyone = np.ones(len(g), np.bool_)
    for column, missing_code in ((codes[0], 6), (codes[1], 4)):
        order = list(range(missing_code))
        if missing_code == 4:
            weight = [h[column == k].sum() + 10 + 2.0 * sigma * math.sqrt(np.sum(column == k)) for k in order]
            order.sort(key=lambda k: g[column == k].sum() / weight[k])
        for missing_left in (False, True):
            for cut in range(1, missing_code + 1):
                left = np.isin(column, order[:cut]) | (missing_left & (column == missing_code))
                heavy = all(
                    h[side].sum() >= max(3.0, sigma * math.sqrt(side.sum())) and side.any() for side in (left, ~left)
                )
                gain = score(left) + score(~left) - score(everyone) if heavy else -1.0
                if gain > best + 1e-12:
                    best, best_side = gain, left
    return best, best_side


@pytest.mark.parametrize("sigma", [0.01, 0.3, 1.0])
def test_noise_aware_splits_and_leaves_by_hand(sigma):
    """The kernel finds what a loop over all cuts finds, and leaves are shrunk by twice their noise."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        grower, codes, g, h = noisy_grower(rng, 250, sigma)
        splits = grower.best()
        gain, left = best_by_hand(codes, g, h, sigma)
        assert splits.gain[0] == pytest.approx(gain, rel=1e-9)
        if left is None:
            assert splits.feature[0] == -1
            continue
        rows = grower.joint
        rows.write_sides(splits.feature, splits.goes_left)
        assert np.array_equal(rows.sides == 0, left)
        assert not grower.divide(splits)
        tree = grower.finish()
        for node, side in ((1, left), (2, ~left)):
            expected = -0.1 * g[side].sum() / (h[side].sum() + 2.0 + 2.0 * sigma * math.sqrt(side.sum()))
            assert tree.value[node] == pytest.approx(expected, rel=1e-5)
        assert np.array_equal(rows.scores[0], np.where(left, tree.value[1], tree.value[2]))


def test_noise_aware_splits_send_unseen_missing_values_where_they_are_told():
    """With most of the weight, or right; nothing else changes."""
    found = {}
    for unseen in ("heavier", "right"):
        rng = np.random.default_rng(6)
        growers = [noisy_grower(rng, 250, 0.01, gaps=0, missing_unseen=unseen)[0] for _ in range(8)]
        found[unseen] = [grower.best() for grower in growers]
    for heavier, right in zip(found["heavier"], found["right"], strict=True):
        assert (heavier.feature[0], heavier.bin[0], heavier.gain[0]) == (right.feature[0], right.bin[0], right.gain[0])
        assert not right.missing_left[0]
    assert any(heavier.missing_left[0] for heavier in found["heavier"])


def test_winners_ties_and_room():
    """The first of equal gains wins; too small a gain does not; with little room the best nodes split."""
    gains = np.array([[1.0, 5.0, -1.0, 0.0], [1.0, 6.0, -1.0, 3.0]])
    assert choose_winners(gains, 4, 0.0).tolist() == [0, 1, -1, 1]
    assert choose_winners(gains, 4, 2.0).tolist() == [-1, 1, -1, 1]
    assert choose_winners(gains, 1, 0.0).tolist() == [-1, 1, -1, -1]
    assert choose_winners(gains, 0, 0.0).tolist() == [-1, -1, -1, -1]


@pytest.mark.parametrize("n_rows", [50, 200_000, 20_000_000])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 30.0])
def test_no_sum_can_overflow(n_rows, epsilon):
    """Typical sums fit 32 bits by the choice of the scale; whatever else may come is clipped until it does."""
    _, data = make_data(2)
    for per in ("run", "tree"):
        job = make_job(data, epsilon=epsilon, per=per, n_iterations=20)
        noise = LabelNoise.plan(job, Loss("logistic"), n_rows)
        typical = n_rows * (noise.reach + noise.sigma / math.sqrt(2 * math.pi) + noise.most_from_score)
        assert typical < noise_module.MOST
        assert noise.scale <= plain_quantiser(job, Loss("logistic"), n_rows).gradient_scale
    level = LevelNoise.plan(make_job(data, epsilon=epsilon, per="message"), Loss("logistic"), n_rows)
    assert n_rows * (level.gradient_scale + level.gradient_sigma / 2) < noise_module.MOST
    assert n_rows * (level.hessian_scale / 4 + level.hessian_sigma / 2) < noise_module.MOST


def test_fit_clips_only_where_needed():
    """Sums of either sign stay within the limit; what fits is left alone."""
    values = np.array([5, -7, 2], np.int64)
    assert fit(values, 7) is values
    clipped = fit(np.array([100, 90, -3, -2], np.int64), 60)
    assert clipped[clipped > 0].sum() <= 60
    assert clipped.tolist() == [25, 25, -3, -2]


def test_too_much_noise_for_so_many_rows_is_refused():
    """Where no scale is left on which a label is at least one unit."""
    _, data = make_data(2)
    with pytest.raises(InvalidParameter, match="does not fit 32-bit sums"):
        LabelNoise.plan(make_job(data, epsilon=1e-4, n_iterations=10_000, per="tree"), Loss("logistic"), 10_000_000)


# --- over the wire, and on paper -------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"epsilon": 3.0}])
def test_over_grpc_it_is_the_same(changes):
    """The transport changes nothing."""
    _, data = make_data()
    job = make_job(data, n_iterations=2, **changes)
    expected, _ = play(job, data)
    results = vertical.play_over_grpc(PROTOCOL, job, data)
    assert {name: part.to_dict() for name, part in results.items()} == {
        name: part.to_dict() for name, part in expected.items()
    }


@pytest.mark.parametrize("changes", [{}, {"epsilon": 2.0, "per": "tree", "score": "first_order", "noise_aware": False}])
def test_jobs_and_parts_survive_json(changes):
    """A job, and each part, is the same after a way through strict JSON."""
    _, data = make_data(2)
    job = make_job(data, n_iterations=1, **changes)
    text = json.dumps(job.to_dict(), allow_nan=False)
    assert PROTOCOL.job.from_dict(json.loads(text)) == job
    for part in play(job, data)[0].values():
        written = json.dumps(part.to_dict(), allow_nan=False)
        assert PROTOCOL.result(json.loads(written)).to_dict() == part.to_dict()


@pytest.mark.parametrize("per", ["run", "tree", "message"])
def test_rehearsals_run(per):
    """Every mode can be rehearsed, whatever the real job's size."""
    _, data = make_data(3)
    warm_up(PROTOCOL, make_job(data, per=per, epsilon=1.0, n_iterations=500, max_depth=12))
    warm_up(PROTOCOL, make_job(data, per=per, task="regression", label_range=(5.0, 9.0), epsilon=1.0))


def test_progress_is_reported():
    """Tree by tree, by the label holder."""
    _, data = make_data(2)
    job = make_job(data)
    network = MemoryNetwork(job.parties)
    seen = []
    parties = in_memory(network, job.parties, on_progress=lambda done, total: seen.append((done, total)))
    network.run({name: role(PROTOCOL, parties[name], job, data[name]) for name in job.parties})
    assert seen == [(k, 4) for k in range(5)]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, "needs epsilon and delta"),
        ({"epsilon": 1.0, "delta": None}, "needs epsilon and delta"),
        ({"epsilon": -1.0}, "epsilon must be a number above 0"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta must be"),
        ({"score": "second_order"}, "score must be one of xgboost, first_order"),
        ({"per": "row"}, "per must be one of run, tree, message"),
        ({"noise_aware": "yes"}, "noise_aware must be one of"),
        ({"noise_aware": True}, "noise_aware=True goes with noise"),
        ({"noise_aware": True, "epsilon": 1.0, "per": "message"}, "noise_aware=True goes with noise"),
        ({"subsample": 0.5, "per": "message"}, "uses all rows and columns"),
        ({"colsample_bytree": 0.5, "per": "message"}, "uses all rows and columns"),
        ({"early_stopping_rounds": 1, "per": "message"}, "uses all rows and columns"),
        ({"early_stopping_rounds": 1, "epsilon": 1.0, "eval_metric": "auc"}, "a mean over rows, .* got 'auc'"),
        ({"epsilon": 1.0, "gradient_bits": 8}, "leave out gradient_bits=8"),
        ({"epsilon": 1.0, "task": "regression"}, "needs label_range"),
        ({"monotone": (1,), "epsilon": 1.0, "noise_aware": True}, "without monotonic_cst"),
    ],
)
def test_bad_parameters_are_refused(changes, words):
    """By name and value, before anybody is asked for anything."""
    _, data = make_data(2)
    with pytest.raises(InvalidParameter, match=words):
        make_job(data, **changes)


def test_a_request_becomes_a_job():
    """Options reach the job; numpy's numbers become plain ones."""
    options = {"epsilon": np.float64(2.0), "delta": 1e-6, "per": "tree"}
    request = (("a", "b"), "run", "classification", BoostingParams(), 64, options, "b")
    job = asked(PROTOCOL, *request)
    assert (job.label_holder, job.epsilon, job.per, type(job.epsilon)) == ("b", 2.0, "tree", float)
    assert PROTOCOL.parties(job) == ("b", "a")
    with pytest.raises(InvalidParameter, match="somebody must hold the labels"):
        asked(PROTOCOL, *request[:-1], None)


def broken(data, name, **changes):
    """The same data with something wrong at one party."""
    return {**data, name: replace(data[name], **changes)}


def test_bad_data_is_refused():
    """Naming the party, before anything about rows has left anybody."""
    pooled, data = make_data()
    job = make_job(data)
    labels = data["anna"].labels
    not_a_number = np.where(np.arange(N_ROWS) == 5, np.nan, labels)
    empty = table_of([Column("gone", np.full(N_ROWS, np.nan))])
    short = table_of([Column("x", np.arange(10.0))])
    cases = [
        (broken(data, "anna", labels=None), "anna: the label holder needs labels"),
        (broken(data, "anna", weight=np.zeros(N_ROWS)), "anna: every sample_weight is zero"),
        (broken(data, "anna", labels=labels[:-1]), "anna: 699 labels for 700 rows"),
        (broken(data, "anna", classes=None), "anna: the labels are not those of a classification"),
        (broken(data, "ben", table=empty), "ben: column 'gone' is empty"),
        (broken(data, "ben", table=short), "ben: has 10 rows, but anna has 700"),
        ({**data, "carla": None}, "carla: brings no table"),
    ]
    for wrong, words in cases:
        with pytest.raises(InvalidInput, match=words):
            play(job, wrong)
    numbers = make_pooled(np.random.default_rng(0), N_ROWS, task="regression")
    outside = broken(data, "anna", labels=numbers.labels, classes=None)
    with pytest.raises(InvalidInput, match="outside the declared label_range"):
        play(make_job(data, task="regression", label_range=(0.0, 0.1), on_bad_rows="raise"), outside)
    with pytest.raises(InvalidInput, match="anna: a label is missing"):
        play(make_job(data, on_bad_rows="raise"), broken(data, "anna", labels=not_a_number))
    assert pooled.n_rows == N_ROWS
