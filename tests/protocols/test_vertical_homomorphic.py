"""vertical.homomorphic: the pooled engine's trees, from sums that nobody but the label holder can read."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.federation.federation import taken
from hedgerow.ledger import reconcile
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.runtime.protocol import Settled, find, names
from hedgerow.schema import Schema
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns, difference_from_pooled
from twins.vertical import table_of

PROTOCOL = find("vertical.homomorphic")
NAMES = ("anna", "ben", "carla", "dora")
N_ROWS = 300


WEIGHTS = {
    "none": lambda _rng, _n_rows: None,
    "whole": lambda rng, n_rows: rng.integers(0, 4, n_rows).astype(np.float64),
    "any": lambda rng, n_rows: rng.exponential(size=n_rows),
    "tiny": lambda rng, n_rows: rng.exponential(1e-7, n_rows) * (rng.random(n_rows) < 0.8),
    "huge": lambda rng, n_rows: 1e6 * rng.lognormal(sigma=2.0, size=n_rows),
}


def make_data(n_parties=3, holder="anna", task="classification", n_rows=N_ROWS, seed=1, n_classes=2, weights="none"):
    """Pooled rows (numbers, levels, gaps) and what each party has of them."""
    rng = np.random.default_rng(seed)
    pooled = make_pooled(rng, n_rows, task=task, n_numeric=5, n_classes=n_classes)
    return pooled, deal_columns(pooled, NAMES[:n_parties], holder, WEIGHTS[weights](rng, n_rows))


def make_job(data, holder="anna", **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    known = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in known}
    boosting = BoostingParams(**{"n_iterations": 2, "max_depth": 3, "learning_rate": 0.3, **trees})
    options = {"max_bins": 12, **changes}
    if options.get("task") == "regression" and "loss" not in trees:
        boosting = replace(boosting, loss="squared")
    return HomomorphicJob(tuple(data), holder, "a test", boosting=boosting, **options)


def difference(parts, job, data, pooled):
    """From the pooled engine's model; None if there is none."""
    table = table_of(pooled.columns)
    mapper = BinMapper.fit(table, job.max_bins)
    codes = mapper.transform(table)
    params = job.boosting
    if len(pooled.classes or ()) > 2:
        params = replace(params, loss="softmax", n_classes=len(pooled.classes))
    twin = train(params, mapper, codes, pooled.labels, data[job.label_holder].weight).ensemble
    return difference_from_pooled(parts, job, data, twin, codes)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("n_parties", "holder"), [(2, "anna"), (3, "ben"), (4, "dora")])
def test_equal_to_the_pooled_engine(n_parties, holder, task):
    """Law: numbers, levels and gaps, any number of parties: the pooled engine's model, bit for bit."""
    pooled, data = make_data(n_parties, holder, task)
    job = make_job(data, holder, task=task)
    parts, parties = vertical.play(PROTOCOL, job, data)
    assert difference(parts, job, data, pooled) is None
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("n_parties", "holder", "n_classes"), [(2, "ben", 2), (2, "anna", 3), (3, "ben", 5)])
def test_classes_and_weights(n_parties, holder, n_classes, weights):
    """Law: a tree for each class, rows of any weight (0 too): the pooled engine's model, bit for bit."""
    pooled, data = make_data(n_parties, holder, n_classes=n_classes, weights=weights)
    job = make_job(data, holder, **({"min_child_weight": 0.0, "l2": 0.0} if weights == "tiny" else {}))
    parts, parties = vertical.play(PROTOCOL, job, data)
    assert difference(parts, job, data, pooled) is None
    mine = parts[holder].ensemble
    assert (mine.n_outputs, mine.classes) == (1 if n_classes == 2 else n_classes, tuple(range(n_classes)))
    assert any((tree.feature >= 0).sum() > 1 for tree in mine.trees)
    assert mine.meta.get("weighted", False) == (weights != "none")
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_numbers_with_weights(loss):
    """Law: so with labels that are numbers, whose range is that of rows which count."""
    pooled, data = make_data(task="counts", weights="whole")
    labels = np.where(data["anna"].weight == 0, 100.0, pooled.labels)
    pooled, data["anna"] = replace(pooled, labels=labels), replace(data["anna"], labels=labels)
    job = make_job(data, task="regression", loss=loss)
    assert difference(vertical.play(PROTOCOL, job, data)[0], job, data, pooled) is None


def test_weight_two_is_the_row_twice():
    """And weight 0 the row left out, if bins stay as they are; a weight of 1 everywhere is none."""
    pooled, data = make_data(2, n_classes=3, weights="whole")
    few = [replace(c, values=c.values.round().clip(-4, 4)) if c.levels is None else c for c in pooled.columns]
    pooled = replace(pooled, columns=few)
    weight = data["anna"].weight
    data = deal_columns(pooled, NAMES[:2], "anna", weight)
    rows = np.repeat(np.arange(N_ROWS), weight.astype(int))
    again = {name: taken(replace(each, weight=None), rows) for name, each in data.items()}
    ones = {name: taken(each, rows) for name, each in data.items()}
    ones["anna"] = replace(ones["anna"], weight=np.ones(len(rows)))
    trees = []
    for brought in (data, again, ones):
        parts, _ = vertical.play(PROTOCOL, make_job(data, max_bins=16), brought)
        trees.append([tree.value.tolist() for tree in parts["anna"].ensemble.trees])
    assert trees[0] == trees[1] == trees[2]


def test_over_grpc():
    """Several classes and weights, over mutual TLS: the pooled engine's model, bit for bit."""
    pooled, data = make_data(n_classes=3, weights="any")
    job = make_job(data, compressed=True)
    assert difference(vertical.play_over_grpc(PROTOCOL, job, data), job, data, pooled) is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.ones(N_ROWS - 1), r"anna: sample_weight must have one value per row, got shape \(299,\) for 300 rows"),
        (np.full(N_ROWS, -1.0), "anna: sample_weight must be finite and not negative"),
        (np.full(N_ROWS, np.inf), "anna: sample_weight must be finite and not negative"),
        (np.zeros(N_ROWS), "anna: every sample_weight is zero"),
    ],
)
def test_weights_that_are_none_are_refused_before_anything_is_sent(wrong, says):
    """By the role itself, too: the rows that all have may all be of weight 0."""
    _, data = make_data()
    data["anna"] = replace(data["anna"], weight=wrong)
    sent = []
    with pytest.raises(InvalidInput, match=says):
        vertical.play(PROTOCOL, make_job(data), data, watch=lambda *seen: sent.append(seen))
    assert not [kind for to, _, kind in sent if to != "anna"]


@pytest.mark.parametrize(
    "changes",
    [
        *({"compressed": True}, {"fresh_randomness": True}, {"max_leaves": 5}, {"max_depth": 1}, {"min_gain": 0.5}),
        *({"min_rows_per_sum": 40}, {"min_rows_per_sum": 25, "max_leaves": 6, "max_depth": 6}),
        {"min_rows_per_sum": N_ROWS + 1},
    ],
)
def test_options_change_no_tree(changes):
    """How points are sent and drawn does not matter; limits of trees are the pooled engine's."""
    pooled, data = make_data()
    job = make_job(data, **changes)
    assert difference(vertical.play(PROTOCOL, job, data)[0], job, data, pooled) is None


@pytest.mark.parametrize(
    "options", [{"scheme": "ou"}, {"scheme": "paillier"}, {"scheme": "ou", "key_bits": 3072}, {"scheme": "elgamal"}]
)
def test_schemes_change_no_tree(options):
    """Whatever gradients are encrypted by, the trees are the pooled engine's, bit for bit."""
    pooled, data = make_data(3, "ben", n_rows=150)
    job = make_job(data, "ben", **options)
    parts, parties = vertical.play(PROTOCOL, job, data)
    assert difference(parts, job, data, pooled) is None
    reconcile({name: party.ledger for name, party in parties.items()})


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.sampled_from([9, 40, 150]),
    limits=st.fixed_dictionaries(
        {
            "max_depth": st.integers(1, 5),
            "max_bins": st.sampled_from([2, 3, 8, 64, 256]),
            "min_child_weight": st.sampled_from([0.0, 0.5, 5.0]),
            "l2": st.sampled_from([0.0, 1.0]),
            "max_leaves": st.sampled_from([None, 2, 5]),
            "min_rows_per_sum": st.sampled_from([1, 1, 2, 7, 30]),
            "task": st.sampled_from(["classification", "regression"]),
            "compressed": st.booleans(),
        }
    ),
    n_classes=st.sampled_from([2, 3]),
    weights=st.sampled_from(list(WEIGHTS)),
)
def test_any_rows_and_limits(seed, n_rows, limits, n_classes, weights):
    """Law: few rows or many, two bins or all, any limits on growth: the pooled engine's model, bit for bit."""
    pooled, data = make_data(2, "ben", limits["task"], n_rows, seed, n_classes, weights)
    job = make_job(data, "ben", **limits)
    assert difference(vertical.play(PROTOCOL, job, data)[0], job, data, pooled) is None


def test_of_equal_columns_the_first_wins():
    """Columns that stand twice: whatever the order of a tree, the owner asks about its first one."""
    pooled, _ = make_data()
    copies = [replace(column, name=f"{column.name} again") for column in reversed(pooled.columns)]
    pooled = replace(pooled, columns=[*pooled.columns[:1], *copies, *pooled.columns[1:]])
    data = deal_columns(pooled, NAMES[:2], "ben")
    job = make_job(data, "ben", n_iterations=4)
    parts, _ = vertical.play(PROTOCOL, job, data)
    assert len(parts["anna"].questions.column) > 0
    assert difference(parts, job, data, pooled) is None


@pytest.mark.parametrize("towards", ["no", "yes"])
def test_gaps_among_levels_go_either_way(towards):
    """Gaps that say yes or no, levels that few nodes have: what is told is taken, and it is the pooled engine's."""
    rng = np.random.default_rng(2)
    pooled = make_pooled(rng, N_ROWS, n_numeric=3)
    levels = rng.choice(np.array(list("abcdefg"), object), N_ROWS)
    is_gap = rng.random(N_ROWS) < 0.2
    likely = np.where(is_gap, towards == "yes", np.isin(levels, list("abc")))
    labels = np.where(rng.random(N_ROWS) < 0.9, likely, ~likely).astype(np.float64)
    levels[is_gap] = None
    column = read_table(pd.DataFrame({"levels": levels})).columns[0]
    pooled = replace(pooled, columns=[*pooled.columns, column], labels=labels)
    data = deal_columns(pooled, NAMES[:2], "anna")
    job = make_job(data, n_iterations=3)
    parts, _ = vertical.play(PROTOCOL, job, data)
    asked = parts["ben"].questions
    assert (asked.missing_left & (asked.bin == -1)).any()
    assert difference(parts, job, data, pooled) is None


def test_a_minimum_of_rows_makes_other_trees():
    """It is not there for show: with 40 rows of 300 fewer nodes split, and with 301 none does."""
    _, data = make_data()
    leaves = []
    for fewest in (1, 40, N_ROWS + 1):
        parts, _ = vertical.play(PROTOCOL, make_job(data, max_depth=5, min_rows_per_sum=fewest), data)
        leaves.append(sum(int((tree.feature < 0).sum()) for tree in parts["anna"].ensemble.trees))
    assert leaves[0] > leaves[1] > leaves[2] == 2


ELSEWHERE = {
    "horizontal.secure_sum": {},
    "vertical.bucket_rr": {"epsilon": 4.0, "edges": "quantile"},
    "vertical.noised_gradients": {"epsilon": 2.0, "delta": 1e-5},
    "vertical.masked_gradients": {"sigma1": 0.5, "sigma2": 1.0, "C": 4.0, "accept_known_leaks": True},
    "vertical.private_histograms": {"epsilon": 2.0, "schema": Schema.from_public(bounds={"x": (0, 1)}, classes=[0, 1])},
    "vertical.secret_shared": {},
    "vertical.mp_fedxgb": {"accept_known_leaks": True},
}
"""All other protocols, with what they need."""


@pytest.mark.parametrize("name", sorted(set(names()) - {PROTOCOL.name}))
def test_other_protocols_refuse_a_minimum_of_rows(name):
    """In words, and before anything is asked: it is no wish that is quietly dropped."""
    for fewest in (1, 5):
        trees = BoostingParams(min_rows_per_sum=fewest, max_depth=3)
        settled = Settled(("a", "b", "c"), "run", "classification", trees, 256, "a")
        refused = pytest.raises(InvalidParameter, match=rf"{name}: min_rows_per_sum is for .*, got 5")
        with nullcontext() if fewest == 1 else refused:
            find(name).job.from_user(ELSEWHERE[name], settled)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key_bits": 2048}, r"key_bits is for scheme='paillier' and 'ou', got 2048 with 'elgamal'; leave it out"),
        ({"scheme": "ou", "key_bits": 1024}, "key_bits must be one of 2048, 3072, got 1024"),
        ({"scheme": "rsa"}, "scheme must be one of elgamal, paillier, ou, got 'rsa'"),
        ({"scheme": "ou", "compressed": True}, "compressed is for scheme='elgamal', got compressed=True with 'ou'"),
        ({"scheme": "paillier", "fresh_randomness": True}, "fresh_randomness is for scheme='elgamal'"),
    ],
)
def test_options_that_do_not_go_with_the_scheme_are_refused(options, said):
    """With the parameter, its value and a way out."""
    _, data = make_data()
    with pytest.raises(InvalidParameter, match=said):
        make_job(data, **options)


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_a_missing_package_is_told_before_anything_is_sent(scheme, monkeypatch):
    """By the extra that brings it; elgamal does not need it."""
    _, data = make_data(2)
    monkeypatch.setitem(sys.modules, "gmpy2", None)
    sent = []

    def watch(*seen):
        sent.append(seen)

    with pytest.raises(InvalidParameter, match=r"need the package gmpy2; .*hedgerow\[homomorphic\]"):
        vertical.play(PROTOCOL, make_job(data, scheme=scheme), data, watch=watch)
    assert sent == []
    vertical.play(PROTOCOL, make_job(data, max_depth=1), data)


def test_the_rehearsal_is_of_the_same_scheme():
    """Its kernels are those of the run; keys of any length share them, so it takes short ones."""
    _, data = make_data()
    small, _ = PROTOCOL.warmup(make_job(data, scheme="ou", key_bits=3072))
    assert (small.scheme, small.modulus_bits) == ("ou", 2048)
