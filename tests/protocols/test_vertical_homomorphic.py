"""vertical.homomorphic: the pooled engine's trees, from sums that nobody but the label holder can read."""

from __future__ import annotations

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
from hedgerow.errors import InvalidParameter
from hedgerow.ledger import reconcile
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.runtime.protocol import find
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns, difference_from_pooled
from twins.vertical import table_of

PROTOCOL = find("vertical.homomorphic")
NAMES = ("anna", "ben", "carla", "dora")
N_ROWS = 300


def make_data(n_parties=3, holder="anna", task="classification", n_rows=N_ROWS, seed=1):
    """Pooled rows (numbers, levels, gaps) and what each party has of them."""
    pooled = make_pooled(np.random.default_rng(seed), n_rows, task=task, n_numeric=5)
    return pooled, deal_columns(pooled, NAMES[:n_parties], holder)


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
    twin = train(job.boosting, mapper, codes, pooled.labels).ensemble
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


@pytest.mark.parametrize(
    "changes",
    [{"compressed": True}, {"fresh_randomness": True}, {"max_leaves": 5}, {"max_depth": 1}, {"min_gain": 0.5}],
)
def test_options_change_no_tree(changes):
    """How points are sent and drawn does not matter; limits of trees are the pooled engine's."""
    pooled, data = make_data()
    job = make_job(data, **changes)
    assert difference(vertical.play(PROTOCOL, job, data)[0], job, data, pooled) is None


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
            "task": st.sampled_from(["classification", "regression"]),
            "compressed": st.booleans(),
        }
    ),
)
def test_any_rows_and_limits(seed, n_rows, limits):
    """Law: few rows or many, two bins or all, any limits on growth: the pooled engine's model, bit for bit."""
    pooled, data = make_data(2, "ben", limits["task"], n_rows, seed)
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


def test_what_cannot_be_had_is_refused_before_anything_is_sent():
    """With the parameter, its value and a way out."""
    _, data = make_data()
    with pytest.raises(InvalidParameter, match=r"min_samples_leaf is not available.*got 5\. min_child_weight works"):
        make_job(data, min_samples_leaf=5)
