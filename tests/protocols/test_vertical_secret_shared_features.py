"""vertical.secret_shared with what users of a boosting library expect: the pooled engine's trees, and who learns what.

That every feature, alone and with another one, gives the pooled engine's scores is `laws/test_features.py`. Here is
what these do not see: messages, parts of the model, weights of any size, levels that nobody had, and earlier models.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.vertical.common.messages import Onward
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.own_rows import renumbered, with_room_for
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from twins.vertical import make_data, outcomes_of, table_of
from twins.vertical import make_job as job_for
from twins.vertical import play as played

USUAL = {kind for kind in PROTOCOL.messages if kind not in (Onward, messages.NodesKept, messages.GroupsAsked)}


def make_job(data, **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    return job_for(SecretSharedJob, data, "anna", **changes)


def play(job, data):
    """Everybody's part, the parties, and all messages as (receiver, sender, message)."""
    seen = []
    parts, parties = played(PROTOCOL, job, data, watch=lambda *passed: seen.append(passed))
    return parts, parties, seen


def scores_of(parts, data):
    """What the joint model says about everybody's rows."""
    mine = parts["anna"]
    answers = {name: parts[name].answers(parts[name].codes(data[name].table)) for name in mine.handles}
    return mine.raw_scores(mine.codes(data["anna"].table), answers)


def pooled_table(data, parties=None):
    """All columns in one table."""
    columns = [column for name in parties or data for column in data[name].table.columns]
    named = tuple(replace(column, name=f"c{k}") for k, column in enumerate(columns))
    return Table(named, len(columns[0].values), tuple(column.name for column in named), has_names=True)


def engine_rules(job, meta, **more):
    """The parameters with which the pooled engine grows the same trees."""
    told = {"l2": meta["l2"], "gradient_bits": meta["gradient_bits"], "missing_unseen": "right", **more}
    return replace(job.boosting, early_stopping_rounds=None, **told)


# --- early stopping --------------------------------------------------------------------------------------------------


def watched_data(seed=1):
    """Rows of which a quarter are watched."""
    data = make_data(3, n_rows=200, seed=seed)
    mask = np.random.default_rng(seed).random(200) < 0.25
    return {**data, "anna": replace(data["anna"], validation=mask)}


def test_early_stopping_opens_one_number_per_iteration():
    """Law: by all ledgers, one Onward to each other party after each iteration is all that is new."""
    data = watched_data()
    job = make_job(data, n_iterations=12, learning_rate=0.9, early_stopping_rounds=1)
    parts, parties, seen = play(job, data)
    reconcile({name: party.ledger for name, party in parties.items()})
    assert {type(message) for *_, message in seen} == USUAL | {Onward}
    curve = parts["anna"].meta["learning_curve"]["logloss"]
    for receiver in ("ben", "carla", job.dealer):
        told = [message.n_kept for to, _, message in seen if to == receiver and isinstance(message, Onward)]
        assert told == [0] * (len(curve) - 1) + [int(np.argmin(curve)) + 1]
    assert len(curve) < 12
    assert parts["anna"].meta["best_iteration"] == np.argmin(curve)
    assert parts["anna"].n_trees == np.argmin(curve) + 1


def test_what_only_later_iterations_asked_is_forgotten_by_all():
    """Parts have as many questions as the trees that are kept ask, and fit together."""
    data = watched_data(3)
    job = make_job(data, n_iterations=9, learning_rate=0.9, early_stopping_rounds=2)
    parts, *_ = play(job, data)
    mine = parts["anna"]
    assert mine.handles == {name: parts[name].n_handles for name in ("ben", "carla")}
    shorter = replace(job, boosting=replace(job.boosting, n_iterations=mine.n_trees))
    again, *_ = play(shorter, data)
    assert again["anna"].handles == mine.handles
    assert np.array_equal(scores_of(again, data), scores_of(parts, data))


@pytest.mark.parametrize("mask", [None, np.zeros(200, np.bool_), np.ones(200, np.bool_)])
def test_rows_to_watch_and_rows_to_learn_from_are_needed(mask):
    """Nobody is sent anything before the label holder has both."""
    data = watched_data()
    data["anna"] = replace(data["anna"], validation=mask)
    with pytest.raises(InvalidInput, match="anna: early stopping needs rows to watch"):
        play(make_job(data, early_stopping_rounds=1), data)


# --- weights ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-6, 0.3, 1.0, 40.0, 1e9]),
    zeros=st.booleans(),
    bits=st.sampled_from([None, 8]),
    mcw=st.sampled_from([0.0, 2.0]),
)
def test_weights_of_any_size(seed, size, zeros, bits, mcw):
    """Law: the pooled engine's trees, with weights far from 1, whose unit is told, and rows of weight 0 left out."""
    rng = np.random.default_rng(seed)
    data = make_data(2, n_rows=120, n_columns=4, seed=seed % 1000)
    weight = size * rng.exponential(size=120)
    if zeros:
        weight[rng.random(120) < 0.3] = 0.0
    table = tuple(replace(c, values=np.round(c.values, 0)) for c in data["anna"].table.columns)
    data["anna"] = replace(data["anna"], weight=weight, table=table_of(list(table)))
    data["ben"] = PartyData(table_of([replace(c, values=np.round(c.values, 0)) for c in data["ben"].table.columns]))
    job = make_job(data, gradient_bits=bits, min_child_weight=mcw * size, l2=size, max_bins=32)
    parts, *_ = play(job, data)
    learned = weight > 0
    whole = pooled_table(data)
    some = replace(whole, n_rows=int(learned.sum()), columns=tuple(
        replace(c, values=c.values[learned]) for c in whole.columns
    ))  # fmt: skip
    mapper = BinMapper.fit(some, job.max_bins, weight[learned])
    model = train(
        engine_rules(job, parts["anna"].meta),
        mapper,
        mapper.transform(some),
        data["anna"].labels[learned],
        weight[learned],
    ).ensemble
    assert np.array_equal(scores_of(parts, data), model.raw_scores(whole))
    assert parts["anna"].meta["weighted"] is True


def test_only_the_size_of_weights_is_told():
    """What feature holders and dealer hear of weights is one power of two: the same for all weights of that size."""
    told = []
    for seed in (1, 2):
        data = make_data(2)
        weight = np.random.default_rng(seed).integers(1, 4, 300).astype(np.float64)
        data["anna"] = replace(data["anna"], weight=weight)
        *_, seen = play(make_job(data, n_iterations=1, max_depth=1), data)
        sizes = {(m.n_units, m.unit_exponent) for *_, m in seen if isinstance(m, messages.Sizes)}
        assert len(sizes) == 1
        told += sizes
    assert told == [(1024, 0)] * 2


# --- levels ----------------------------------------------------------------------------------------------------------


def with_levels(seed=8, missing=0.0):
    """A feature holder with a column of five levels that matters, one of which is rare."""
    rng = np.random.default_rng(seed)
    data = make_data(2, n_rows=400, missing=missing)
    levels = rng.choice(5, 400, p=[0.3, 0.3, 0.2, 0.19, 0.01]).astype(np.int32)
    labels = (levels % 2 == 0) ^ (data["anna"].table.columns[0].values > 0)
    levels[rng.random(400) < missing] = -1
    kind = Column("kind", levels, tuple("abcde"))
    data["ben"] = PartyData(table_of([kind, *data["ben"].table.columns]))
    data["anna"] = replace(data["anna"], labels=labels.astype(np.float64))
    return data


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_levels_of_feature_holders_are_split_one_against_the_others(missing):
    """Law: the pooled engine's trees with that rule; a question has one level; unseen ones go with missing values."""
    data = with_levels(missing=missing)
    job = make_job(data, max_depth=4, n_iterations=3)
    parts, *_ = play(job, data)
    whole = pooled_table(data)
    mapper = BinMapper.fit(whole, job.max_bins)
    foreign = len(data["anna"].table.columns)
    rules = engine_rules(job, parts["anna"].meta, one_hot_levels=(foreign,))
    model = train(rules, mapper, mapper.transform(whole), data["anna"].labels).ensemble
    assert np.array_equal(scores_of(parts, data), model.raw_scores(whole))
    asked = parts["ben"].questions
    by_level = asked.bin < 0
    assert by_level.sum() >= 2
    assert (asked.left_levels[by_level].sum(axis=1) == 1).all()
    new = data["ben"].table
    values = new.columns[0].values.copy()
    values[::2] = -1  # missing, as a level is that the training never had
    shown = {**data, "ben": PartyData(table_of([replace(new.columns[0], values=values), *new.columns[1:]]))}
    assert np.array_equal(scores_of(parts, shown), model.raw_scores(pooled_table(shown)))


def test_a_column_of_one_level_can_split_by_its_gaps():
    """One level against missing values is a question; without gaps such a column has none."""
    data = make_data(2, n_rows=200)
    levels = np.where(data["anna"].labels > 0, 0, -1).astype(np.int32)
    data["ben"] = PartyData(table_of([Column("kind", levels, ("a",)), *data["ben"].table.columns]))
    parts, *_ = play(make_job(data, n_iterations=1), data)
    assert -1 in parts["ben"].questions.bin


# --- leaves and constraints ------------------------------------------------------------------------------------------


def test_where_leaves_are_limited_all_forget_the_splits_that_are_not_made():
    """NodesKept is sent at one level of each tree at most; parts fit together; trees have the leaves they may have."""
    data = make_data(3, n_rows=400)
    job = make_job(data, max_leaves=6, max_depth=5, n_iterations=4)
    parts, _, seen = play(job, data)
    told = [message for to, _, message in seen if to == "ben" and isinstance(message, messages.NodesKept)]
    assert 1 <= len(told) <= 4
    assert all(0 < message.kept.sum() < len(message.kept) for message in told)
    mine = parts["anna"]
    assert mine.handles == {name: parts[name].n_handles for name in ("ben", "carla")}
    used = np.concatenate([tree.feature for tree in mine.ensemble.trees])
    assert set(range(mine.n_own, len(mine.ensemble.features))) <= set(used.tolist())
    assert all((tree.feature < 0).sum() == 6 for tree in mine.ensemble.trees)


def test_the_best_nodes_have_room():
    """Those that gain most, the first of equal ones; leaves stay leaves; new handles move up."""
    owner = np.array([1, -1, 0, 2, 1])
    gains = np.array([3.0, 9.0, 5.0, 3.0, 1.0])
    assert with_room_for(owner, gains, 2).tolist() == [1, -1, 0, -1, -1]
    assert with_room_for(owner, gains, None) is owner
    assert renumbered(np.array([1, 7, 4, 7]), 3).tolist() == [1, 3, 4, 3]


def test_a_label_holder_that_keeps_more_nodes_than_there_is_room_for_is_found_out():
    """Feature holders count leaves themselves."""
    data = make_data(2, n_rows=400)
    job = make_job(data, max_leaves=6, max_depth=5)

    def spoil(message):
        return messages.NodesKept(np.ones_like(message.kept)) if isinstance(message, messages.NodesKept) else message

    outcomes, _ = outcomes_of(PROTOCOL, job, data, spoil=spoil)
    assert isinstance(outcomes["ben"].error, ProtocolError)
    assert "room is for another number" in str(outcomes["ben"].error)


def test_columns_of_the_same_groups_are_not_told_apart():
    """What is told of a split names the first column that is in the same groups, whoever's it is."""
    data = make_data(3, n_rows=300, n_columns=6)
    job = make_job(data, interaction=((0, 2, 4), (1, 3, 5)), max_depth=3, n_iterations=3)
    parts, _, seen = play(job, data)
    told = Counter(
        column
        for *_, message in seen
        if isinstance(message, messages.GroupsAsked)
        for column in message.columns.tolist()
    )
    assert set(told) == {0, 1}
    assert sum(parts[name].n_handles for name in ("ben", "carla")) > 2


def test_columns_are_told_only_where_it_matters_which_is_which():
    """Without draws and groups nobody hears how many columns the label holder has."""
    data = make_data(2)
    for rules, told in (({}, [0, 0]), ({"colsample_bytree": 0.5}, [4, 4])):
        *_, seen = play(make_job(data, n_iterations=1, max_depth=1, **rules), data)
        sizes = next(message for *_, message in seen if isinstance(message, messages.Sizes))
        assert sizes.n_columns.tolist() == told


def test_nothing_more_is_said_or_dealt_unless_it_is_asked_for():
    """A regression with the default rules checks no limits, and no message is of a kind that only a feature needs."""
    data = make_data(2, task="regression")
    parts, _, seen = play(make_job(data, task="regression", n_iterations=1), data)
    assert {type(message) for *_, message in seen} == USUAL
    limited, *_ = play(make_job(data, task="regression", n_iterations=1, min_samples_leaf=9), data)
    extra = limited["anna"].meta["rounds"]["training"] - parts["anna"].meta["rounds"]["training"]
    assert extra == 4 * limited["anna"].meta["levels"]


# --- going on --------------------------------------------------------------------------------------------------------


def goes_on(parts, data, scores):
    """What everybody brings to go on from a model: its part, and the label holder what its trees add up to."""
    brought = {name: replace(own, part=parts.get(name)) for name, own in data.items()}
    brought["anna"] = replace(brought["anna"], init_scores=scores.astype(np.float32))
    return brought


def tree_sums(parts, data):
    """What the trees of a model add up to, in the engine's own way."""
    mine = parts["anna"]
    answers = {name: parts[name].answers(parts[name].codes(data[name].table)) for name in mine.handles}
    codes = mine.all_codes(mine.codes(data["anna"].table), answers)
    scores = np.zeros((mine.ensemble.n_outputs, codes.shape[1]), np.float32)
    for number, tree in enumerate(mine.ensemble.trees):
        mine.ensemble.add_binned(codes, tree, scores[number % mine.ensemble.n_outputs])
    return scores


@pytest.mark.parametrize("more", [{}, {"subsample": 0.6, "colsample_bytree": 0.6}])
def test_two_trainings_are_one(more):
    """Law: two iterations and two more are four, whatever is drawn; equal questions keep their handles."""
    data = make_data(3, n_rows=200)
    job = make_job(data, n_iterations=2, **more)
    first, *_ = play(job, data)
    second, *_ = play(replace(job, run_id="again"), goes_on(first, data, tree_sums(first, data)))
    whole, *_ = play(replace(job, boosting=replace(job.boosting, n_iterations=4)), data)
    assert second["anna"].handles == whole["anna"].handles
    assert np.array_equal(scores_of(second, data), scores_of(whole, data))
    assert second["anna"].meta["continues"] == "a test"


def test_going_on_with_another_partner():
    """A partner who is not there any more stays a party of the model, with its questions; a new one has its own."""
    data = make_data(3, n_rows=200)
    before = {name: data[name] for name in ("anna", "ben")}
    job = make_job(before, n_iterations=2)
    first, *_ = play(job, before)
    after = goes_on({"anna": first["anna"]}, {name: data[name] for name in ("anna", "carla")}, tree_sums(first, before))
    second, *_ = play(replace(job, parties=("anna", "carla"), run_id="again"), after)
    handles = second["anna"].handles
    assert handles == {"carla": second["carla"].n_handles, "ben": first["ben"].n_handles}
    assert handles["carla"] > 0
    parts = {**second, "ben": first["ben"]}
    assert second["anna"].n_trees == 4
    assert np.isfinite(scores_of(parts, data)).all()
