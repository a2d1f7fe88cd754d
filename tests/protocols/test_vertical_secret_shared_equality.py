"""vertical.secret_shared grows the pooled engine's trees, bit for bit, for any number of parties and any columns."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.datasets import load_adult
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.splitting import MIN_GAIN
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.own_rows import next_below, stopping
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import root_cause
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.memory import MemoryNetwork
from twins.pooled_trees import first_difference, pooled_twin

KINDS = (
    "normal", "counts", "skewed", "constant", "rare", "gaps", "counts with gaps", "present or not",
    "copy", "mirror", "copy with gaps", "coarse",
)  # fmt: skip
SMALL = {"n_iterations": 2, "max_depth": 3, "learning_rate": 0.4, "min_child_weight": 0.0}


def column_of(kind, rng, n_rows, earlier):
    """Values of one kind; copies are of any column so far, whoever has it."""
    if kind in ("copy", "mirror", "copy with gaps", "coarse") and earlier:
        other = earlier[rng.integers(len(earlier))]
        if kind == "coarse":
            return np.where(np.isnan(other), np.nan, np.floor(other))
        values = -other if kind == "mirror" else other.copy()
        return values if kind != "copy with gaps" else np.where(rng.random(n_rows) < 0.2, np.nan, values)
    if kind in ("counts", "counts with gaps"):
        values = rng.integers(0, 4, n_rows).astype(np.float64)
    elif kind == "skewed":
        values = np.exp(2 * rng.normal(size=n_rows))
    elif kind in ("constant", "present or not"):
        values = np.ones(n_rows)
    elif kind == "rare":
        values = (rng.permutation(n_rows) == 0).astype(np.float64)
    else:
        values = rng.normal(size=n_rows)
    missing = rng.random(n_rows) < 0.3 if kind in ("gaps", "counts with gaps", "present or not") else False
    return np.where(missing, np.nan, values)


def table_of(columns):
    """A table; its columns are called x0, x1, ..., as are those of every other party."""
    named = tuple(Column(f"x{k}", values) for k, values in enumerate(columns))
    return Table(named, len(columns[0]), tuple(column.name for column in named), has_names=True)


def make_data(seed, kinds_by_party, n_rows, *, task="classification", labels="mixed", holder=0):
    """What each party has. Every party has a column of two values, so that there is something to split by."""
    rng = np.random.default_rng(seed)
    earlier, tables = [], []
    for kinds in kinds_by_party:
        own = []
        for kind in (*kinds, "rare"):
            own.append(column_of(kind, rng, n_rows, earlier))
            earlier.append(own[-1])
        tables.append(table_of(own))
    signal = sum(np.nan_to_num(values, nan=2.0) * rng.normal() for values in earlier) + rng.normal(size=n_rows)
    if labels == "one value":
        y = np.ones(n_rows)
    elif task == "classification":
        y = (signal > np.median(signal)).astype(np.float64)
    else:
        y = np.clip(np.round(signal, 1), -5.0, 5.0)
    data = {f"party{k}": PartyData(table) for k, table in enumerate(tables)}
    name = f"party{holder}"
    data[name] = replace(data[name], labels=y, classes=(0, 1) if task == "classification" else None)
    return data, name


def make_job(data, holder, task="classification", max_bins=6, **trees):
    """A small job."""
    loss = {"loss": "squared", "label_range": (-5.0, 5.0)} if task == "regression" else {}
    boosting = BoostingParams(**{**SMALL, **loss, **trees})
    return SecretSharedJob(tuple(data), holder, "a test", task=task, boosting=boosting, max_bins=max_bins)


def grow(job, data):
    """All parties in memory, with fixed random bytes: their parts."""
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names)
    parties = in_memory(network, names)
    for number, party in enumerate(parties.values()):
        party.rng = SecureRandom.from_seed(bytes([number]) * 32)
    outcomes = network.run({name: role(PROTOCOL, parties[name], job, data.get(name)) for name in names})
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if errors:
        raise root_cause(errors)[1]
    return {name: outcome.value for name, outcome in outcomes.items()}


# --- any columns, any number of parties ------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(st.lists(st.sampled_from(KINDS), max_size=2), min_size=2, max_size=8),
    n_rows=st.integers(4, 90),
    task=st.sampled_from(["classification", "regression"]),
    labels=st.sampled_from(["mixed", "mixed", "mixed", "one value"]),
    holder=st.integers(0, 7),
    trees=st.fixed_dictionaries(
        {
            "min_gain": st.sampled_from([0.0, 0.03, 0.3]),
            "l2": st.sampled_from([0.0, 0.3, 1.0, 7.0]),
            "max_depth": st.integers(1, 4),
            "gradient_bits": st.sampled_from([None, None, 2, 6]),
        }
    ),
    max_bins=st.integers(3, 9),
)
def test_the_trees_are_the_pooled_engines(seed, kinds, n_rows, task, labels, holder, trees, max_bins):
    """Law: 2 to 8 parties, copies and mirror images of anybody's columns, gaps, constants, few rows: every node."""
    data, name = make_data(seed, kinds, n_rows, task=task, labels=labels, holder=holder % len(kinds))
    job = make_job(data, name, task, max_bins, **trees)
    assert first_difference(grow(job, data), job, pooled_twin(job, data)) is None


@pytest.mark.parametrize("n_parties", range(2, 9))
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_two_to_eight_parties(n_parties, task):
    """Law: however many parties hold the columns, and wherever the labels are; foreign splits win at many nodes."""
    kinds = [(KINDS[k % 3], KINDS[5 + k % 7]) for k in range(n_parties)]
    data, name = make_data(n_parties, kinds, 200, task=task, holder=n_parties // 2)
    job = make_job(data, name, task, 8, min_gain=0.05, l2=0.7, max_depth=4, n_iterations=1)
    parts, twin = grow(job, data), pooled_twin(job, data)
    assert first_difference(parts, job, twin) is None
    (tree,) = twin.ensemble.trees
    owners = {twin.owners[feature] for feature in tree.feature[tree.feature >= 0]}
    assert len(owners) >= min(n_parties, 3)
    assert sum(part.n_handles for party, part in parts.items() if party in job.feature_holders) >= 3


@pytest.mark.parametrize("holder", [0, 1])
@pytest.mark.parametrize(("min_gain", "splits"), [(18.0, True), (np.nextafter(18.0, 19.0), False)])
def test_a_gain_of_just_the_least_gain_is_enough(holder, min_gain, splits):
    """As in the engine, whoever owns the split; a gain that is smaller in the last bit of a float is not."""
    side = np.repeat([0.0, 1.0], 3)
    data = {"party0": PartyData(table_of([side])), "party1": PartyData(table_of([np.arange(6.0) % 2]))}
    name = f"party{holder}"
    data[name] = replace(data[name], labels=2.0 - 4.0 * side)  # (3 * 2)^2 / (3 + 1) on either side, nothing before
    job = make_job(data, name, "regression", min_gain=min_gain, l2=1.0, base_score=0.0, max_depth=1, n_iterations=1)
    parts, twin = grow(job, data), pooled_twin(job, data)
    assert first_difference(parts, job, twin) is None
    assert bool(twin.ensemble.trees[0].n_nodes > 1) == splits


@given(
    value=st.fractions(min_value=0, max_value=40, max_denominator=3000),
    most=st.integers(1, 60),
    or_equal=st.booleans(),
)
def test_the_next_smaller_fraction(value, most, or_equal):
    """No fraction with such a denominator lies between it and the value: all are tried."""
    found = next_below(value, most, or_equal=or_equal)
    tried = []
    for q in range(1, most + 1):
        p = value.numerator * q // value.denominator
        tried.append(Fraction(p - (not or_equal and p * value.denominator == value.numerator * q), q))
    assert found == max(tried)
    assert found.denominator <= most


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    bits=st.sampled_from([1, 2, 5, 12]),
    min_gain=st.sampled_from([0.0, 0.03, 0.3, 2.0]),
    l2=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_stopping_decides_as_the_exact_threshold_does(seed, bits, min_gain, l2):
    """All possible splits of six rows, in exact arithmetic; both numbers fit what the ring is made for."""
    data, name = make_data(0, [(), ()], 6)
    job = make_job(data, name, gradient_bits=bits, min_gain=min_gain, l2=l2)
    scales = Scales.of(job, 6)
    rng = np.random.default_rng(seed)
    g = rng.integers(-scales.bounds.largest_gradient, scales.bounds.largest_gradient + 1, 6).tolist()
    h = rng.integers(0, scales.bounds.largest_hessian + 1, 6).tolist()
    lam, unit = scales.lambda_int, Fraction(2) ** bits
    P, Q = stopping(scales, sum(g), sum(h))
    most = scales.bounds.largest_denominator
    assert 0 < Q <= most
    assert P * most < 1 << (32 * scales.wide.limbs - 1)
    for sides in range(1 << 6):
        left = [k for k in range(6) if sides >> k & 1]
        gl, hl = sum(g[k] for k in left), sum(h[k] for k in left)
        gr, hr = sum(g) - gl, sum(h) - hl
        ours = gl**2 * (hr + lam) + gr**2 * (hl + lam), (hl + lam) * (hr + lam)
        gain = (Fraction(*ours) - Fraction(sum(g) ** 2, sum(h) + lam)) / unit
        assert (ours[0] * Q > P * ours[1]) == (gain > Fraction(MIN_GAIN) and gain >= Fraction(min_gain))


# --- columns that several parties have -------------------------------------------------------------------------------


def overlapping():
    """Three parties with columns in common, some under the same name; labels follow from all different ones."""
    rng = np.random.default_rng(4)
    income, age, basket, calls = rng.normal(size=(4, 400))
    basket = np.where(rng.random(400) < 0.2, np.nan, basket)
    tables = {
        "shop": pd.DataFrame({"income": income, "basket": basket, "years": age}),
        "bank": pd.DataFrame({"income": income, "age": age}),
        "telco": pd.DataFrame({"salary": income, "basket": basket, "calls": calls}),
    }
    y = (income * age + np.nan_to_num(basket, nan=1.5) + calls + rng.normal(scale=0.3, size=400) > 0).astype(int)
    return tables, y


def test_columns_that_several_parties_have():
    """Law: a copy of anybody's column, under the same name or another, is a tie, and the first of the order wins it.

    New rows with a value missing in every column go where the pooled engine sends them.
    """
    tables, y = overlapping()
    fed = Federation.vertical(tables, labels=("bank", y))
    trees = {"n_estimators": 3, "max_depth": 4, "max_bins": 16, "learning_rate": 0.4}
    run = fed.fit("vertical.secret_shared", **trees)
    data = {name: PartyData(read_table(table)) for name, table in tables.items()}
    data["bank"] = replace(data["bank"], labels=y.astype(np.float64), classes=(0, 1))
    twin = pooled_twin(run.job, data)
    parts = run.model.parts
    assert first_difference(parts, run.job, twin) is None
    asked = {
        party: {parts[party].features[column].name for column in parts[party].questions.column}
        for party in ("shop", "telco")
    }
    assert asked == {"shop": {"basket"}, "telco": {"calls"}}  # no copy ever wins
    holes = {name: table.mask(np.random.default_rng(9).random(table.shape) < 0.4) for name, table in tables.items()}
    everything = np.column_stack([holes[name].to_numpy() for name in run.job.holders])
    scores = run.model.decision_function(holes)
    assert np.array_equal(scores, twin.ensemble.raw_scores(read_table(everything))[:, 0])
    plain = BoostedTreesClassifier(  # the words of the protocol's page
        **trees, gradient_bits=run.meta["gradient_bits"], l2_regularization=run.meta["l2"], min_child_weight=0,
        missing_unseen="right",
    )  # fmt: skip
    plain.fit(np.column_stack([tables[name].to_numpy() for name in run.job.holders]), y)
    assert np.array_equal(scores, plain.decision_function(everything))


def test_a_party_may_bring_nothing_but_copies():
    """It takes part, wins nothing, and the model is that of the others."""
    tables, y = overlapping()
    more = {**tables, "echo": tables["bank"].rename(columns={"age": "years"})}
    few = {"n_estimators": 2, "max_depth": 3, "max_bins": 8}
    model, larger = (
        Federation.vertical(some, labels=("bank", y)).fit("vertical.secret_shared", **few).model
        for some in (tables, more)
    )
    assert larger.parts["echo"].n_handles == 0
    assert np.array_equal(larger.decision_function(more), model.decision_function(tables))


# --- a real table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_parties", [2, 5])
def test_adult_with_a_column_per_level(n_parties):
    """Law: 1,500 people, categories as columns of zeros and ones, dealt out in turn: every node is the engine's."""
    people = load_adult("train", as_frame="pandas")
    drawn = np.random.default_rng(1).permutation(len(people.y))[:1500]
    X = pd.get_dummies(people.X.iloc[drawn], dtype=np.float64)
    y = np.asarray(people.y)[drawn].astype(np.float64)
    names = [f"party{k}" for k in range(n_parties)]
    data = {
        name: PartyData(table_of([column for column in X.to_numpy().T[k::n_parties] if np.ptp(column) > 0]))
        for k, name in enumerate(names)
    }
    data[names[0]] = replace(data[names[0]], labels=y, classes=(0, 1))
    job = make_job(data, names[0], max_bins=16, max_depth=4, l2=1.0)
    twin = pooled_twin(job, data)
    assert first_difference(grow(job, data), job, twin) is None
    assert sum(tree.n_nodes for tree in twin.ensemble.trees) > 40


# --- the comparison itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["value", "gain", "cover", "missing_left", "bin", "feature"])
def test_a_difference_is_found_and_named(field):
    """One number of one node of the twin is changed: the comparison says which."""
    data, name = make_data(3, [("normal", "gaps"), ("normal", "counts")], 120)
    job = make_job(data, name, max_depth=2, n_iterations=1)
    parts, twin = grow(job, data), pooled_twin(job, data)
    (tree,) = twin.ensemble.trees
    node = int(np.flatnonzero(tree.feature >= 0)[-1])
    numbers = getattr(tree, field).copy()
    numbers[node] = not numbers[node] if field == "missing_left" else numbers[node] + 1
    object.__setattr__(tree, field, numbers)
    assert first_difference(parts, job, twin).startswith(f"tree 0, node {node}: ")
