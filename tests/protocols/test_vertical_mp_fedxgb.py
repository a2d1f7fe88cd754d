"""vertical.mp_fedxgb: it opens what the paper says that it opens, and grows the pooled engine's trees."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Federation
from hedgerow.crypto import limbs
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.losses import Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.table import Column
from hedgerow.errors import FixedPointOverflow, InvalidInput, InvalidParameter, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.published.mp_fedxgb import holder, messages, plan
from hedgerow.protocols.published.mp_fedxgb.argmax import rounds
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.plan import Plan
from hedgerow.protocols.published.mp_fedxgb.spec import SPEC as PROTOCOL
from hedgerow.protocols.shares import mesh
from hedgerow.protocols.shares import messages as rows_messages
from hedgerow.protocols.shares.columns import Sizes
from hedgerow.protocols.shares.messages import MaskedWords, Seed
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as SECRET_SHARED
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import warm_up
from hedgerow.transport.frames import encode
from twins.naive_mp_fedxgb import Binned, NaiveMpFedXgb, Split
from twins.openings import Opening, repeated_masks
from twins.pooled_trees import first_difference, pooled_twin
from twins.uniformity import unlike_uniform
from twins.vertical import NAMES, make_data, outcomes_of, table_of
from twins.vertical import make_job as job_for
from twins.vertical import play as played
from twins.watched_openings import watched

UNIT = 2.0**32
"""Of weights: that many units are 1."""


def make_job(data, holder="anna", **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    return job_for(MpFedXgbJob, data, holder, **{"accept_known_leaks": True, **changes})


def play(job, data, **how):
    """All parties in memory: their parts, and the parties with their ledgers."""
    return played(PROTOCOL, job, data, **how)


# --- what a run should come to ---------------------------------------------------------------------------------------


class Expected:
    """The slow twin of a job, tree after tree; scores follow from the weights that the parties have found."""

    def __init__(self, job, data):
        self.job, self.scales = job, Scales.of(job, data[job.label_holder].table.n_rows)
        tables = [data[name].table for name in job.holders]
        mappers = [BinMapper.fit(table, job.max_bins) for table in tables]
        binned = [
            Binned(mapper.transform(table), [feature.n_value_bins for feature in mapper.features])
            for mapper, table in zip(mappers, tables, strict=True)
        ]
        self.naive = NaiveMpFedXgb(
            binned, self.scales.lambda_int, round(self.scales.threshold), job.depth, job.first_layer_mask
        )
        labels, loss = data[job.label_holder].labels, self.scales.loss
        base = job.boosting.base_score
        self.rows = Rows.from_codes(
            mappers[0],
            binned[0].codes,
            labels,
            None,
            loss=loss,
            base_scores=loss.base_scores(labels) if base is None else np.array([base]),
            quantiser=Quantiser.for_job(
                loss, float(len(labels)), n_rows=len(labels), gradient_bits=self.scales.gradient_bits
            ),
        )

    def next_tree(self):
        """From the gradients that follow from all trees so far."""
        self.rows.gradients()
        packed = self.rows.gradients_packed[0]
        return self.naive.grow(packed >> 32, packed & 0xFFFFFFFF)

    def add(self, tree, weights):
        """A tree with these weights."""
        for rows, weight in zip(tree.leaf_rows, weights, strict=True):
            change = np.float64(weight) * (self.job.boosting.learning_rate / UNIT)
            self.rows.scores[0, rows] += np.float32(change)


def splits_of(parts, job, tree):
    """The splits of a tree, breadth-first, from what each party knows of it; just one knows each."""
    trees = [parts[name].trees[tree] for name in job.holders]
    found = []
    for node in range(trees[0].n_nodes):
        owners = [place for place, each in enumerate(trees) if each.column[node] >= 0]
        assert len(owners) == (not trees[0].is_leaf[node])
        assert len({bool(each.is_leaf[node]) for each in trees}) == 1
        for place in owners:
            own = trees[place]
            found.append(Split(place, int(own.column[node]), int(own.bin[node]), bool(own.missing_left[node])))
        if not owners:
            found.append(None)
    return found


def weights_of(parts, job, tree):
    """What all parties' words of the leaves add up to."""
    return np.sum([parts[name].leaves[tree] for name in job.holders], axis=0, dtype=np.uint64).view(np.int64)


def pooled_splits(twin, job, tree):
    """The same of the pooled engine's tree."""
    pooled, found, nodes = twin.ensemble.trees[tree], [], [0]
    while nodes:
        node = nodes.pop(0)
        feature = int(pooled.feature[node])
        if feature < 0:
            found.append(None)
            continue
        owner = twin.owners[feature]
        column = feature - twin.owners.index(owner)
        found.append(Split(job.holders.index(owner), column, int(pooled.bin[node]), bool(pooled.missing_left[node])))
        nodes += [int(pooled.left[node]), int(pooled.right[node])]
    return found


def opened_in(seen, kind, tree):
    """(level, round), as far as it has them -> (who opened it, numbers) of one tree."""
    found = {}
    for party, openings in seen.openings.items():
        for _, fields, words in (each for each in openings if each.kind is kind and each.fields["tree"] == tree):
            key = tuple(fields.values())[1:]
            numbers = words.view(np.int64) if words.dtype == np.uint64 else limbs.to_ints(words)
            found.setdefault(key, []).append((party, numbers))
    return found


def run(job, data, **how):
    """Play a job, and hold all trees, all that was opened, all weights and values of rows against the formulas."""
    with watched() as seen:
        parts, parties = played(PROTOCOL, job, data, **how)
    expected = Expected(job, data)
    for number in range(job.boosting.n_iterations):
        tree = expected.next_tree()
        assert splits_of(parts, job, number) == tree.splits
        assert_opened(job, number, tree, seen)
        weights = weights_of(parts, job, number)
        assert_weights(weights / UNIT, tree, expected.scales.lambda_int)
        ((_, steps),) = opened_in(seen, messages.StepShare, number)[()]
        assert_perturbed(steps, tree, expected.scales.lambda_int)
        values = np.concatenate([words for _, words in opened_in(seen, messages.PredictionShare, number)[()]])
        for rows, weight in zip(tree.leaf_rows, weights, strict=True):
            assert (values[rows] == weight).all()
        expected.add(tree, weights)
    return parts, parties


def assert_opened(job, number, tree, seen):
    """Numerators to P2, denominators to P1, of the pairs and of the tests, and nothing else of that kind."""
    wanted = {
        messages.NumeratorShare: (job.numerators_to, tree.numerators),
        messages.DenominatorShare: (job.label_holder, tree.denominators),
        messages.TestNumeratorShare: (job.numerators_to, {(k,): v for k, v in tree.test_numerators.items()}),
        messages.TestDenominatorShare: (job.label_holder, {(k,): v for k, v in tree.test_denominators.items()}),
    }
    for kind, (receiver, values) in wanted.items():
        found = opened_in(seen, kind, number)
        assert found.keys() == values.keys()
        for key, ((party, numbers),) in found.items():
            assert party == receiver
            assert numbers.tolist() == values[key]


def assert_weights(weights, tree, lam):
    """-G / (H + lambda), but for the error at which the descent stops and a few roundings."""
    exact = [-G / (H + lam) for G, H in tree.leaf_sums]
    assert np.abs(weights - exact).max() < 1e-6 + 8 / UNIT


def assert_perturbed(steps, tree, lam):
    """H + lambda and up to two lambda more."""
    for step, (_, H) in zip(steps, tree.leaf_sums, strict=False):
        assert H + lam <= int(step) <= H + 3 * lam


def raw_scores(parts, job, data):
    """As `holder.Labels` adds them up, for rows that all parties have."""
    target, scores = parts[job.label_holder].target, 0.0
    for tree in range(len(parts[job.label_holder].trees)):
        in_leaf = leaves_of(parts, job, data, tree)
        scores = scores + in_leaf.T @ (weights_of(parts, job, tree) / UNIT) * target.learning_rate
    return target.base_scores[0] + scores


def leaves_of(parts, job, data, tree):
    """Which rows come to which leaf: [leaves, rows]."""
    found = [parts[name].indicators(tree, parts[name].codes(data[name].table)) for name in job.holders]
    in_leaf = np.prod(found, axis=0).T
    assert (in_leaf.sum(axis=0) == 1).all()
    return in_leaf


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (5, "emil")])
def test_it_is_the_published_protocol(n_parties, holder, task):
    """Law: what P1 and P2 open is the paper's, to the last digit; the first tree is the pooled engine's, and so on."""
    data = make_data(n_parties, 200, 2 * n_parties, task=task, holder=holder, missing=0.1)
    job = make_job(data, holder, task=task)
    parts, parties = run(job, data)
    twin = pooled_twin(job, data)
    assert splits_of(parts, job, 0) == pooled_splits(twin, job, 0)
    assert len(splits_of(parts, job, 0)) > 7
    scores = raw_scores(parts, job, data)
    assert np.abs(scores - twin.ensemble.raw_scores_binned(twin.codes)[:, 0]).max() < 1e-5
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("seed", range(10))
def test_small_random_tables(seed):
    """Few rows and bins, copied, mirrored and constant columns, gaps, labels of one kind: ties and stops everywhere."""
    rng = np.random.default_rng(seed)
    n_parties, task = int(rng.integers(2, 5)), ("classification", "regression")[seed % 2]
    missing = (0.0, 0.2)[seed // 2 % 2]
    data = make_data(n_parties, int(rng.integers(4, 90)), 3 * n_parties, task=task, missing=missing, seed=seed)
    if seed % 3 == 0:
        last = data[NAMES[n_parties - 1]].table
        data[NAMES[n_parties - 1]] = PartyData(table_of([Column("flat", np.ones(last.n_rows)), *last.columns]))
    if seed == 4:
        data["anna"] = replace(data["anna"], labels=np.ones(len(data["anna"].labels)))
    job = make_job(
        data,
        task=task,
        n_iterations=1,
        min_gain=float(rng.choice([0.0, 0.125])),
        l2=float(rng.choice([0.0, 0.3, 5.0])),
        max_bins=int(rng.integers(3, 10)),
        gradient_bits=None if seed % 4 else int(rng.integers(3, 14)),
    )
    parts, _ = run(job, data)
    assert splits_of(parts, job, 0) == pooled_splits(pooled_twin(job, data), job, 0)


@pytest.mark.parametrize(
    "trees",
    [
        {"max_depth": 1},
        {"max_depth": 1, "first_layer_mask": True},
        {"max_depth": 6, "min_gain": 0.5, "l2": 0.5, "n_rows": 23},  # leaves of one row, at all levels
        {"min_gain": 1e6},  # stops at the root
        {"gradient_bits": 1},  # most hessians are rounded to nothing
        {"gradient_bits": 21, "n_rows": 700},  # sums of 64 bits
        {"l2": 1e5},
        {
            "task": "regression",
            "label_range": (0.0, 1e-3),
            "l2": 1.0,
            "gradient_bits": 13,
            "n_rows": 12,
        },  # G far below H
        {"base_score": 0.7, "n_parties": 8},
    ],
)
def test_extremes(trees):
    """One leaf, leaves of one row, wide and narrow rings, eight parties."""
    n_rows, n_parties = trees.pop("n_rows", 83), trees.pop("n_parties", 2)
    task = trees.get("task", "classification")
    data = make_data(n_parties, n_rows, 8, task=task, missing=0.1)
    if task == "regression":
        data["anna"] = replace(data["anna"], labels=(data["anna"].labels + 5) * 1e-4)
    job = make_job(data, n_iterations=1, **{"max_depth": 2, **trees})
    run(job, data)


def test_rings_are_as_wide_as_what_is_computed_in_them():
    """Weights and denominators may need more bits than numerators; what no ring holds is refused by name."""
    data = make_data(2)
    sizes = [(3,), (3,)], [(False,), (False,)]
    narrow = Plan.of(make_job(data, gradient_bits=1, l2=1.0), Sizes(20, *sizes))
    assert narrow.scales.wide.limbs < narrow.descent.kind.limbs
    assert narrow.scales.wide.limbs < narrow.division(1).kind.limbs
    tiny = {"task": "regression", "label_range": (0.0, 0.001), "l2": 1.0, "gradient_bits": 13}
    unlike = Plan.of(make_job(data, **tiny), Sizes(12, *sizes))
    assert unlike.scales.wide.limbs < unlike.wide.limbs
    assert Plan.of(make_job(data, l2=0.0), Sizes(5_000, *sizes)).descent.largest_weight < 2**31
    with pytest.raises(FixedPointOverflow, match="l2=1e"):
        Plan.of(make_job(data, l2=1e40), Sizes(5_000, *sizes))
    with pytest.raises(InvalidParameter, match="max_depth=12 needs"):
        Plan.of(make_job(data, max_depth=12), Sizes(100_000, *sizes))


def test_the_threshold_is_a_whole_number_of_units():
    """A gain must be above min_gain rounded to units of 2**-gradient_bits, here quarters; equal is not enough."""
    side = np.repeat([0.0, 1.0], 2)
    other = Column("other", np.array([0.0, 1.0, 0.0, 1.0]))
    data = {"anna": PartyData(table_of([Column("side", side)]), 0.5 - side), "ben": PartyData(table_of([other]))}
    trees = {"task": "regression", "gradient_bits": 2, "base_score": 0.0, "max_depth": 1, "n_iterations": 1}
    for l2, min_gain, splits in (
        (0.25, 0.87, True),  # either side has G = 1 and H = 2: 2 / 2.25 = 0.89, and the threshold is 0.75
        (0.25, 0.88, False),  # the threshold is 1
        (2.0, 0.25, True),  # 2 / 4
        (2.0, 0.5, False),
    ):
        parts, _ = run(make_job(data, **trees, l2=l2, min_gain=min_gain), data)
        assert (parts["anna"].trees[0].n_nodes > 1) == splits


def test_the_same_first_tree_as_with_nothing_opened():
    """vertical.secret_shared grows it too."""
    data = make_data(3, missing=0.1)
    job = make_job(data, n_iterations=1)
    other = job_for(SecretSharedJob, data, n_iterations=1)
    twin = pooled_twin(other, data)
    assert first_difference(played(SECRET_SHARED, other, data)[0], other, twin) is None
    assert splits_of(run(job, data)[0], job, 0) == pooled_splits(twin, job, 0)


def test_the_first_layer_is_the_label_holders():
    """Law: its columns alone are tried at the root, and everybody's below; the rest is as without the mask."""
    data = make_data(3, 120, missing=0.1, holder="carla", seed=2)
    free, masked = make_job(data, "carla", max_depth=2), make_job(data, "carla", max_depth=2, first_layer_mask=True)
    roots = [[splits_of(run(job, data)[0], job, tree)[0].place for tree in range(2)] for job in (free, masked)]
    assert roots[0][0] > 0
    assert roots[1] == [0, 0]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_division_grows_the_same_first_tree(task):
    """Where no two splits gain the same: quotients are rounded by chance, so of equal ones any may win."""
    data = make_data(3, 150, 3, task=task)
    jobs = [make_job(data, task=task, n_iterations=1, max_depth=2, argmax=way) for way in ("fractions", "division")]
    with watched() as seen:
        parts = [play(job, data)[0] for job in jobs]
    leaves = [leaves_of(each, job, data, 0) for job, each in zip(jobs, parts, strict=True)]
    assert len(leaves[0]) == 4
    assert np.array_equal(*leaves)
    opened = [each.kind for each in seen.openings["anna"]]
    assert opened.count(messages.TestDenominatorShare) == 2  # of the other run: here there are none


def test_large_messages_go_in_blocks(monkeypatch):
    """Masked columns, gradients and predictions in blocks of few rows, the last of them shorter: all is the same."""
    data = make_data(3, 61, 6, missing=0.1)
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 300)
    monkeypatch.setattr(plan, "BLOCK_BYTES", 16 * 4 * 7)
    seen = []
    run(make_job(data, max_depth=2, n_iterations=1), data, watch=lambda *message: seen.append(message))
    for kind in (rows_messages.MaskedBins, messages.PredictionShare):
        assert sum(isinstance(message, kind) and receiver == "anna" for receiver, _, message in seen) > 10


def test_a_column_of_one_value_and_gaps():
    """Present or missing is a split; a party may have no other."""
    data = make_data(2, 60)
    signal = data["anna"].labels + np.random.default_rng(1).normal(size=60)
    data["ben"] = PartyData(table_of([Column("there", np.where(signal > 0.5, 1.0, np.nan))]))
    job = make_job(data, max_depth=2)
    parts, _ = run(job, data)
    assert any((tree.column >= 0).any() for tree in parts["ben"].trees)


# --- which splits are compared ---------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    columns=st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=7).filter(any),
)
def test_the_winner_is_the_first_of_all_that_gain_most(columns):
    """Law: for any numbers of candidates, columns without any among them; as many comparisons as candidates but one."""
    gains = np.array([gain for column in columns for gain in column])
    left = np.arange(len(gains))
    played_rounds = rounds([len(column) for column in columns])
    for each in played_rounds:
        pairs = each.first[:, None] + [0, 1]
        assert sorted([*pairs.reshape(-1), *each.odd]) == list(range(len(left)))
        first, second = gains[left[pairs]].T
        left = left[each.winners(second > first)]
    assert left.tolist() == [gains.argmax()]
    assert sum(each.n_pairs for each in played_rounds) == len(gains) - 1


def test_columns_are_compared_within_themselves_first():
    """Three columns of 5, 3 and 2 candidates, as the picture shows; several nodes at once."""
    first, second, third, *later = rounds([5, 0, 3, 2])
    assert (first.first.tolist(), first.odd.tolist()) == ([0, 2, 5, 8], [4, 7])
    assert (second.first.tolist(), second.odd.tolist()) == ([0, 3], [2, 5])
    assert (third.first.tolist(), third.odd.tolist()) == ([0], [2, 3])
    assert [(each.first.tolist(), each.odd.tolist()) for each in later] == [([0], [2]), ([0], [])]
    places = first.winners(np.array([[0, 0, 1, 1], [1, 0, 0, 0]]))
    assert places.tolist() == [[0, 2, 4, 6, 7, 9], [1, 2, 4, 5, 7, 8]]
    assert rounds([1]) == []


# --- what is masked --------------------------------------------------------------------------------------------------


def received_by(receiver, job, data, **how):
    """All that a party got: (sender, message)."""
    seen = []

    def watch(name, sender, message):
        if name == receiver:
            seen.append((sender, message))

    played(PROTOCOL, job, data, watch=watch, **how)
    return seen


@pytest.fixture
def steady_descent(monkeypatch):
    """As many turns in every run; otherwise it depends on the perturbations."""
    monkeypatch.setattr(holder, "iterations_needed", lambda *_, **__: 12)


@pytest.mark.usefixtures("steady_descent")
def test_masked_words_are_uniform_to_their_receiver():
    """Over runs in which the receiver draws the same random bytes and all others new ones; opened shares are not."""
    data = make_data(2, 29, 4, missing=0.1)
    job = make_job(data, n_iterations=1, max_depth=1, max_bins=4)
    runs = []
    for seed in range(1, 25):
        got = received_by("ben", job, data, seed=seed, steady="ben")
        kinds = (MaskedWords, rows_messages.MaskedBins)
        runs.append([np.concatenate([m.words for _, m in got if isinstance(m, kind)]) for kind in kinds])
    words, bins = (np.stack(each) for each in zip(*runs, strict=True))
    assert unlike_uniform(words) == []
    assert unlike_uniform(bins) == []
    assert bins.shape[1] > 29 * 4


@pytest.mark.usefixtures("steady_descent")
def test_no_mask_is_used_twice(monkeypatch):
    """Of all numbers that are opened to all in two trees, and of all masked columns: no two move together."""
    data = make_data(3, 40, 6, missing=0.1)
    job = make_job(data, max_depth=2, max_bins=4)
    found = []
    opens = mesh.Mesh.masked

    def watched(self, parts):
        values = opens(self, parts)
        if self.me.name == "anna":
            both = zip(parts, values, strict=True)
            found[-1] += [opening_of(part, value) for part, value in both if not part.kind.is_xor]
        return values

    monkeypatch.setattr(mesh.Mesh, "masked", watched)
    for seed in (1, 2, 3, 4):
        found.append([])
        got = received_by("anna", job, data, seed=seed)
        bins = [message.words.view(np.uint32) for _, message in got if isinstance(message, rows_messages.MaskedBins)]
        found[-1] += [Opening("bins", words) for words in bins]
    assert repeated_masks(found) == []
    assert {opening.name for opening in found[0]} >= {"rows", "lift", "pair", "factor", "descent", "value"}


def opening_of(part, value):
    """What was opened, as `repeated_masks` wants it."""
    return Opening(part.name, value, "limbs" if part.kind.limbs else "sum")


def test_the_dealer_hears_of_sizes_alone():
    """It knows every mask: one message too many, and it reads everything."""
    data = make_data(3, 50)
    got = received_by("dealer", make_job(data, max_depth=1), data)
    assert {type(message) for _, message in got} == {rows_messages.AllColumns, rows_messages.LevelDone, Seed}
    (sizes,) = (message for _, message in got if isinstance(message, rows_messages.AllColumns))
    assert (sizes.n_rows, sizes.n_columns.tolist()) == (50, [2, 3, 3])


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accept_known_leaks": False}, "numerators of gains to ben and denominators to anna.*sums of labels"),
        ({"accept_known_leaks": 1}, "accept_known_leaks must be True or False"),
        ({"first_layer_mask": "yes"}, "first_layer_mask must be True or False, got 'yes'"),
        ({"argmax": "guess"}, "argmax must be 'fractions' or 'division', got 'guess'"),
        ({"dealer": "ben"}, "dealer"),
        ({"min_child_weight": 1.0}, "min_child_weight"),
        ({"max_depth": 13}, "max_depth"),
        ({"task": "regression", "label_range": None}, "label_range"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(changes, words):
    """Before anybody is asked for anything."""
    with pytest.raises(InvalidParameter, match=words):
        make_job(make_data(2), **changes)


def test_jobs_and_parts_survive_json():
    """What is written down is the same."""
    data = make_data(2, 50)
    job = make_job(data, dealer="dana", first_layer_mask=True, argmax="division", max_depth=1, n_iterations=1)
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(job.to_dict()))) == job
    for part in play(replace(job, argmax="fractions"), data)[0].values():
        written = json.loads(json.dumps(part.to_dict()))
        assert PROTOCOL.result(written).to_dict() == written


@pytest.mark.parametrize("party", ["anna", "ben"])
def test_tables_that_cannot_be_split_are_refused(party):
    """Columns with levels, whoever has them, and constant ones: the party is named."""
    data = make_data(2, 50)
    levels = table_of([Column("kind", np.zeros(50, np.int32), ("a", "b"))])
    flat = table_of([Column("flat", np.ones(50))])
    for table, words in ((levels, f"{party}: column 'kind' has levels"), (flat, f"{party}: no column has values")):
        changed = {**data, party: replace(data[party], table=table)}
        with pytest.raises(InvalidInput, match=words):
            play(make_job(changed), changed)


def test_labels_outside_their_public_range_are_refused():
    """Gradients would be larger than the rings are made for."""
    data = make_data(2, 50, task="regression")
    with pytest.raises(InvalidInput, match="anna: some labels lie outside"):
        play(make_job(data, task="regression", label_range=(-1.0, 1.0)), data)


@pytest.mark.parametrize(
    ("leaver", "at"), [("dealer", rows_messages.LevelDone), ("ben", messages.Better), ("carla", messages.Steps)]
)
def test_who_leaves_is_named(leaver, at):
    """A dealer or a party that stops in the middle of a tree: all others end, and who notices first names it."""
    data = make_data(3, 50)

    def watch(receiver, _sender, message):
        if receiver == leaver and isinstance(message, at):
            raise ConnectionAbortedError

    outcomes, _ = outcomes_of(PROTOCOL, make_job(data, n_iterations=6, max_depth=1), data, watch=watch)
    assert isinstance(outcomes[leaver].error, ConnectionAbortedError)
    told = [str(outcome.error) for name, outcome in outcomes.items() if name != leaver]
    assert any(leaver in error for error in told)
    assert all(leaver in error or "another party stopped first" in error for error in told)


@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        MaskedWords, rows_messages.MaskedBins, messages.NumeratorShare, messages.DenominatorShare,
        messages.NumeratorSigns,
        messages.Better, messages.TestNumeratorShare, messages.StepShare, messages.Steps, messages.PredictionShare,
        rows_messages.ColumnSizes, rows_messages.AllColumns, rows_messages.SharingSeed,
    ],
)  # fmt: skip
def test_messages_of_a_wrong_size_are_refused(kind, longer, monkeypatch):
    """Too short or too long: who sent it is named, and nothing is made of it."""
    data = make_data(2, 50)
    field = {messages.NumeratorSigns: "bits", messages.Better: "bits", rows_messages.SharingSeed: "seed"}.get(
        kind, "words"
    )
    field = "has_missing" if kind in (rows_messages.ColumnSizes, rows_messages.AllColumns) else field
    original = Party._send

    def changed(party, to, message, frame, event):
        if isinstance(message, kind):
            whole = getattr(message, field)
            more = whole + b"x" if isinstance(whole, bytes) else np.append(whole, whole[:1])
            message = replace(message, **{field: more if longer else whole[:-1]})
            frame = encode(message)
        return original(party, to, message, frame, event)

    monkeypatch.setattr(Party, "_send", changed)
    with pytest.raises(ProtocolError, match=r"^(anna|ben) sent"):
        play(make_job(data, max_depth=1), data)


def test_shares_of_another_step_are_refused(monkeypatch):
    """Everybody says which tree, level and round its shares are of."""
    data = make_data(2, 50)
    original = Party._send

    def late(party, to, message, frame, event):
        if isinstance(message, messages.NumeratorShare):
            message = replace(message, round=message.round + 1)
            frame = encode(message)
        return original(party, to, message, frame, event)

    monkeypatch.setattr(Party, "_send", late)
    with pytest.raises(ProtocolError, match="anna sent shares of another step than"):
        play(make_job(data, max_depth=1), data)


# --- through the front door ------------------------------------------------------------------------------------------

FEW = {"n_estimators": 2, "max_depth": 2, "max_bins": 8, "learning_rate": 0.5}


def federation():
    """Two parties with two columns each."""
    data = make_data(2, 120, 4)
    tables = {name: {column.name: column.values for column in each.table.columns} for name, each in data.items()}
    tables = {name: pd.DataFrame(columns) for name, columns in tables.items()}
    labels = np.where(data["anna"].labels == 1, "yes", "no")
    return Federation.vertical(tables, labels=("anna", labels)), tables, labels


def test_through_the_federation_and_over_grpc():
    """disclosure="paper" leads here, in memory and between processes; the model scores on shares and is stamped."""
    fed, tables, labels = federation()
    paper = {"disclosure": "paper", "accept_known_leaks": True}
    runs = [
        fed.fit("vertical.secret_shared", **paper, **FEW),
        fed.fit("vertical.mp_fedxgb", accept_known_leaks=True, transport="grpc", **FEW),
    ]
    for each in runs:
        assert each.protocol == each.job.NAME == "vertical.mp_fedxgb"
        assert each.model.meta["stamp"].startswith("accepted known leaks")
        assert "KNOWN LEAKS" in str(each.statement())
        assert "first_layer_mask" in each.statement().to_dict()
    scores = [each.model.decision_function(tables) for each in runs]
    assert np.abs(scores[0] - scores[1]).max() < 1e-5  # perturbations are drawn anew
    plain = fed.fit("vertical.secret_shared", **FEW).model.decision_function(tables)
    assert np.abs(scores[0] - plain).max() < 1e-5
    chances = runs[0].model.predict_proba(tables)
    assert chances.shape == (120, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert runs[0].model.score(tables, labels) > 0.7


def test_options_of_the_paper_need_its_disclosure():
    """They are refused with the default, by name; and the paper's needs the word that its leaks are accepted."""
    fed, _, _ = federation()
    for option in ({"argmax": "division"}, {"first_layer_mask": True}, {"accept_known_leaks": True}):
        (name,) = option
        with pytest.raises(InvalidParameter, match=f'{name} is for disclosure="paper" alone'):
            fed.fit("vertical.secret_shared", **option, **FEW)
    with pytest.raises(InvalidParameter, match="accept_known_leaks=True runs this one all the same"):
        fed.fit("vertical.secret_shared", disclosure="paper", **FEW)


def test_a_rehearsal_plays_the_whole_job():
    """With made-up rows, on the ways that the job asks for."""
    data = make_data(2, 50)
    for argmax in ("fractions", "division"):
        warm_up(PROTOCOL, make_job(data, argmax=argmax, max_depth=1))


def test_masked_columns_go_in_turn(monkeypatch):
    """Nobody sends a second block before it has taken everybody's first: else all could wait for each other."""
    data = make_data(3, 61, 9)
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 300)
    events = {name: [] for name in data}
    send_all, recv = Party.send_all, Party.recv

    def sending(me, peers, message, **how):
        if isinstance(message, rows_messages.MaskedBins):
            events[me.name].append("sent")
        return send_all(me, peers, message, **how)

    def receiving(me, sender, kind, **how):
        if kind is rows_messages.MaskedBins:
            events[me.name].append("taken")
        return recv(me, sender, kind, **how)

    monkeypatch.setattr(Party, "send_all", sending)
    monkeypatch.setattr(Party, "recv", receiving)
    run(make_job(data, max_depth=1, n_iterations=1), data)
    for happened in events.values():
        assert happened[:9] == ["sent", "taken", "taken"] * 3
