"""vertical.bucket_rr: without noise the pooled engine's trees, with noise exactly the noise it states, charged once."""

from __future__ import annotations

import io
import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.events import NonPrivate, RandomisedResponse, from_dict
from hedgerow.protocols.vertical.bucket_rr import buckets, cache
from hedgerow.protocols.vertical.bucket_rr.buckets import (
    bits_for,
    bucketing_of,
    codes_of,
    keep_probability,
    pack,
    packed_sizes,
    portions,
    unpack,
)
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds, HaveTransfer, OwnSplits, SameAsBefore
from hedgerow.protocols.vertical.bucket_rr.spec import SPEC as PROTOCOL
from hedgerow.protocols.vertical.common.parts import divide
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import PartyData, find
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import Vanishing, play
from hedgerow.transport.frames import peek
from hedgerow.transport.ranges import check
from hedgerow.transport.transcripts import Recording
from twins.damage import as_often, damaged
from twins.parties import asked
from twins.pooled_trees import thresholds_of

PARTIES = ("shop", "bank", "post")  # the label holder's columns come second
BANK = "bank"
SCHEMA = Schema.from_public(
    bounds={"basket": (-4, 4), "visits": (0, 6), "post.weight": (-4, 4), "few": (0, 2)},
    levels={"region": ["east", "north", "south", "west"]},
    integers=["visits", "few"],
    may_be_missing=["basket", "region"],
)


def table_of(columns):
    """A table of named columns; a pair is codes and levels."""
    made = tuple(
        Column(name, *values) if isinstance(values, tuple) else Column(name, values) for name, values in columns.items()
    )
    return Table(made, len(made[0].values), tuple(columns), has_names=True)


def make_data(n_rows=300, *, seed=0, task="classification", n_classes=2):
    """Three parties' tables: floats with gaps, whole numbers, levels with gaps, float32; labels follow from all."""
    rng = np.random.default_rng(seed)
    basket, income, weight = rng.normal(size=(3, n_rows))
    visits, few = rng.integers(0, 7, n_rows), rng.integers(0, 3, n_rows)
    region = rng.integers(0, 4, n_rows)
    signal = np.sin(2 * basket) + income * (weight > 0) + (visits > 3) + (region % 2) + 0.3 * rng.normal(size=n_rows)
    gaps = rng.random((2, n_rows)) < 0.1
    shop = {
        "basket": np.where(gaps[0], np.nan, basket),
        "visits": visits.astype(np.float64),
        "region": (np.where(gaps[1], -1, region).astype(np.int32), ("east", "north", "south", "west")),
    }
    bank = {"income": income, "age": np.round(10 * basket + income)}
    post = {"weight": weight.astype(np.float32), "few": few.astype(np.float32)}
    if task == "regression":
        labels, classes = signal, None
    else:
        cuts = np.quantile(signal, np.arange(1, n_classes) / n_classes)
        labels, classes = np.digitize(signal, cuts).astype(np.float64), tuple(range(n_classes))
    return {
        "shop": PartyData(table_of(shop)),
        BANK: PartyData(table_of(bank), labels, classes),
        "post": PartyData(table_of(post)),
    }


def make_job(epsilon=math.inf, **changes):
    """A small job; `changes` are parameters of trees and of the job alike."""
    names = set(BoostingParams.__dataclass_fields__)
    trees = {name: changes.pop(name) for name in list(changes) if name in names}
    boosting = BoostingParams(**{"n_iterations": 6, "max_depth": 3, "learning_rate": 0.3, **trees})
    return Job(
        **{
            "parties": PARTIES,
            "label_holder": BANK,
            "run_id": "a test",
            "boosting": boosting,
            "epsilon": epsilon,
            "schema": SCHEMA,
            **changes,
        }
    )


def run(job, data, **how):
    """All parties' parts, with the books of all compared."""
    played = play(PROTOCOL, job, data, around=dict.fromkeys(PARTIES, Recording), **how)
    assert played.errors == {}
    reconcile({name: party.ledger for name, party in played.parties.items()})
    return played


def failure(job, data):
    """The first cause of a run that fails, whoever had it."""
    errors = play(PROTOCOL, job, data).errors
    return next(error for error in errors.values() if isinstance(error, InvalidInput | InvalidParameter))


def kinds_of(played):
    """Names of the messages that feature holders sent."""
    return [line.message.rpartition(".")[2] for name in ("shop", "post") for line in sent_by(played, name)]


def sent_by(played, name):
    """What a feature holder disclosed."""
    return played.parties[name].ledger.lines("disclosed")


def total_of(events):
    """What they cost one record, by the accountant of pure epsilons."""
    accountant = BasicComposition("replace_one")
    accountant.compose_all(events)
    return accountant.total


# --- the law -------------------------------------------------------------------------------------------------------


def pooled_twin(job, data, played):
    """The plain engine on all columns in one table, with the parties' own edges, then divided."""
    tables, features, owners = [], [], []
    for name in job.parties:
        part = played.results[name]
        mine = part.features
        table = read_table(data[name].table, like=mine, where=name)
        tables += table.columns
        features += mine
        owners += [name] * len(mine)
    table = Table(tuple(tables), len(tables[0].values), tuple(c.name for c in tables), has_names=True)
    mapper = BinMapper(tuple(features))
    labels, classes = data[BANK].labels, data[BANK].classes
    observed = (float(labels.min()), float(labels.max()))
    params = job.for_labels(None if classes is None else len(classes), observed)
    ensemble = train(params, mapper, mapper.transform(table), labels).ensemble
    ensemble.classes = classes
    part, questions = divide(ensemble, owners, BANK, protocol=job.NAME, run_id=job.run_id)
    return ensemble, mapper.transform(table), part, questions


def assert_equals_pooled(job, data):
    """Trees, thresholds and scores are those of the pooled engine, bit for bit."""
    played = run(job, data)
    pooled, codes, twin, questions = pooled_twin(job, data, played)
    part = played.results[BANK]
    assert part.handles == twin.handles
    assert part.ensemble.trees == twin.ensemble.trees
    assert len(part.ensemble.trees) == job.boosting.n_iterations * part.ensemble.n_outputs
    np.testing.assert_array_equal(part.ensemble.base_scores, twin.ensemble.base_scores)
    thresholds = {}
    for name in ("shop", "post"):
        owner = played.results[name]
        for ours, theirs in zip(owner.questions, questions[name], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        thresholds[name] = thresholds_of(owner)
    asked = {
        (pooled.features[f].name, t)
        for tree in pooled.trees
        for f, t, s in zip(tree.feature, tree.threshold.tolist(), tree.level_set, strict=True)
        if f >= 0 and s < 0
    }
    ours = {
        (played.results[name].features[c].name, t)
        for name in ("shop", "post")
        for c, t in zip(played.results[name].questions.column, thresholds[name].tolist(), strict=True)
        if not math.isnan(t)
    }
    own = {f.name for f in part.features}
    assert ours == {(name, t) for name, t in asked if name not in own}
    answers = {
        name: owner.answers(owner.codes(owner.read(data[name].table, name)))
        for name, owner in played.results.items()
        if name != BANK
    }
    scores = part.raw_scores(part.codes(data[BANK].table), answers)
    np.testing.assert_array_equal(scores, pooled.raw_scores_binned(codes))
    return played


@pytest.mark.parametrize("edges", ["public", "quantile", {"basket": [-1.0, 0.0, 0.5], "post.weight": [0.25]}], ids=str)
def test_without_noise_trees_are_the_pooled_engines(edges):
    """With public, equal-frequency and given edges alike."""
    played = assert_equals_pooled(make_job(edges=edges), make_data())
    assert all(played.results[name].n_handles > 0 for name in ("shop", "post"))


@pytest.mark.parametrize(
    "changes",
    [
        {"buckets": 256, "edges": "quantile"},
        {"subsample": 0.5, "seed": 3},
        {"colsample_bytree": 0.5, "seed": 4},
        {"min_samples_leaf": 9},
        {"max_bins": 8, "max_depth": 5},
        {"max_leaves": 5, "max_depth": None},
        {"base_score": 0.25},
        {"debias": False},
    ],
    ids=str,
)
def test_every_parameter_of_trees_means_the_same(changes):
    """Whatever is asked of the trees, the parties together and the pooled engine do the same."""
    assert_equals_pooled(make_job(**changes), make_data())


def test_two_buckets():
    """The fewest there can be: above or below, and for a column with gaps, there or missing."""
    data = make_data()
    data["shop"] = PartyData(table_of({column.name: column.values for column in data["shop"].table.columns[:2]}))
    played = assert_equals_pooled(make_job(buckets=2, edges="quantile"), data)
    assert [feature.n_value_bins for feature in played.results["shop"].features] == [1, 2]


def test_more_classes_and_numbers_as_labels():
    """Softmax and the squared loss: the same law."""
    assert_equals_pooled(make_job(n_iterations=3), make_data(n_classes=4))
    assert_equals_pooled(make_job(task="regression", loss="squared"), make_data(task="regression"))


def test_order_of_parties_decides_between_equal_splits():
    """Two parties with the very same column: the one whose columns come first is asked."""
    data = make_data()
    twin = table_of({"weight": data["post"].table.columns[0].values})
    data["shop"], data["post"] = PartyData(twin), PartyData(twin)
    schema = Schema.from_public(bounds={"weight": (-4, 4)})
    for parties in (("shop", "post", BANK), ("post", BANK, "shop")):
        played = run(make_job(parties=parties, schema=schema), data)
        counts = {name: played.results[name].n_handles for name in ("shop", "post")}
        assert counts[parties[0]] > 0
        assert sum(counts.values()) == counts[parties[0]]


# --- what is sent ---------------------------------------------------------------------------------------------------


@pytest.fixture
def seeded(monkeypatch):
    """Every party draws the same secret numbers in every test."""
    monkeypatch.setattr("hedgerow.runtime.party.SecureRandom", lambda: SecureRandom.from_seed(bytes(range(32))))


def received_codes(played, name, n_rows):
    """The buckets as the label holder got them."""
    recording = played.recording(BANK)
    (kinds,) = recording.messages(ColumnKinds, "received", name)
    categories = kinds.n_values.astype(np.int64) + kinds.may_be_missing
    out = np.empty((len(categories), n_rows), np.uint8)
    messages = recording.messages(Buckets, "received", name)
    stops = [message.first for message in messages[1:]] + [len(categories)]
    for message, stop in zip(messages, stops, strict=True):
        unpack(message.packed, categories[message.first : stop], out[message.first : stop])
    return out, categories


@pytest.mark.usefixtures("seeded")
def test_each_column_is_randomised_over_its_own_buckets():
    """A code stays with e^eps / (e^eps + c - 1) and is any other equally often, missing included: 5 sigma."""
    data, job = make_data(20_000), make_job(2.0, debias=False, n_iterations=1)
    played = run(job, data)
    for name in ("shop", "post"):
        noisy, categories = received_codes(played, name, 20_000)
        bucketing = bucketing_of(name, data[name].table, job)
        true = codes_of(name, data[name].table, bucketing)
        np.testing.assert_array_equal(categories, bucketing.categories)
        for before, after, c in zip(true, noisy, categories.tolist(), strict=True):
            keep = keep_probability(c, 2.0)
            sigma = math.sqrt(keep * (1 - keep) / 20_000)
            assert abs(np.mean(before == after) - keep) < 5 * sigma
            moved = (after.astype(int) - before)[before != after] % c  # every distance equally often
            share = np.bincount(moved, minlength=c)[1:] / len(moved)
            assert np.abs(share - 1 / (c - 1)).max() < 5 * math.sqrt(1 / (c - 1) / len(moved))
    assert keep_probability(16, 4.0) == pytest.approx(math.exp(4) / (math.exp(4) + 15), rel=1e-15)


def test_ledger_charges_every_column_once():
    """However many messages there are, their events add up to columns x epsilon."""
    job, data = make_job(1.5, debias=False), make_data()
    for most in (16 << 20, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(buckets, "MESSAGE_BYTES", most)
            played = run(job, data)
        events = [from_dict(event) for event in played.parties["shop"].ledger.events()]
        assert len(events) == (1 if most > 100 else 3)
        assert total_of(events) == 4.5
        assert [leaf.categories for event in events for leaf, _ in event.leaves()] == [16, 7, 5]
        assert played.parties[BANK].ledger.events() == []


def test_no_noise_and_edges_from_data_are_said_to_be_not_private():
    """Neither is hidden behind an epsilon."""
    free = run(make_job(), make_data()).parties["shop"].ledger.events()
    assert all(isinstance(leaf, NonPrivate) for event in free for leaf, _ in from_dict(event).leaves())
    noisy = run(make_job(1.0, edges="quantile", debias=False), make_data()).parties["shop"].ledger.events()
    leaves = [leaf for event in noisy for leaf, _ in from_dict(event).leaves()]
    assert [type(leaf) for leaf in leaves] == [NonPrivate, *[RandomisedResponse] * 3]


def test_one_transfer_no_names_and_winners_to_their_owner_only():
    """Three messages from each feature holder, none with a name or a level in it; splits of one's own columns only."""
    played = run(make_job(), make_data())
    assert kinds_of(played) == ["ready_to_train", "column_kinds", "buckets"] * 2
    for name in ("shop", "post"):
        frames = b"".join(passed.frame for passed in played.recording(name).passed if passed.direction == "sent")
        assert not any(word in frames for word in (b"basket", b"visits", b"region", b"weight", b"north"))
        (asked,) = played.recording(name).messages(OwnSplits, "received")
        assert asked.column.max() < len(played.results[name].features)
        assert len(asked.column) == played.results[name].n_handles == played.results[BANK].handles[name]
    assert played.results[BANK].meta["rounds"] == {"setup": 2, "training": 0}


def test_four_bits_for_sixteen_buckets():
    """20,000 values in at most 16 buckets take 10,000 bytes, those of 2 buckets 2,500."""
    assert [bits_for(n) for n in (2, 3, 4, 5, 16, 17, 256)] == [1, 2, 2, 4, 4, 8, 8]
    assert packed_sizes(np.array([16, 2, 17]), 20_001) == [10_001, 2_501, 20_001]
    assert list(portions([5, 5])) == [(0, 2)]


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 64])
def test_packing_is_undone(n_rows):
    """Codes of every width come back, and what cannot have been packed is refused."""
    categories = np.array([2, 4, 16, 256, 3, 9], np.int64)
    codes = np.random.default_rng(n_rows).integers(0, categories[:, None], (6, n_rows)).astype(np.uint8)
    packed, out = pack(codes, categories), np.empty_like(codes)
    unpack(packed, categories, out)
    np.testing.assert_array_equal(out, codes)
    with pytest.raises(InvalidInput, match="were announced"):
        unpack(packed[:-1], categories, out)
    with pytest.raises(InvalidInput, match="not one of those"):
        unpack(pack(np.full((1, n_rows), 3, np.uint8), np.array([4])), np.array([3]), out[:1])


def test_wrong_kinds_of_columns_are_refused():
    """Sizes that come over the wire are checked before tables are made from them."""
    played = run(make_job(), make_data())
    (kinds,) = played.recording(BANK).messages(ColumnKinds, "received", "shop")
    from hedgerow.protocols.vertical.bucket_rr.label_holder import _check_kinds

    def taken(kinds):
        check("shop", kinds, {"most_columns": 3, "most_values": 255})
        _check_kinds("shop", kinds, 1, is_kept=False)

    taken(kinds)
    one = np.ones(3, np.int32)
    for changes in (
        {"n_values": one},
        {"n_values": 256 * one},
        {"n_values": -one},
        {"n_values": one[:2]},
        {"n_values": one[:0], "has_levels": kinds.has_levels[:0], "may_be_missing": kinds.may_be_missing[:0]},
        {"n_messages": 0},
        {"n_messages": 2},
    ):
        with pytest.raises(ProtocolError, match="shop"):
            taken(replace(kinds, **changes))


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_noisy_training_with_and_without_debiasing(task):
    """Both ways give a model that tells something, and report each iteration."""
    loss = {"loss": "squared"} if task == "regression" else {}
    data = make_data(2000, task=task)
    for debias in (True, False):
        told = []
        played = run(
            make_job(3.0, debias=debias, task=task, **loss), data, on_progress=lambda *at, told=told: told.append(at)
        )
        assert told == [(k, 6) for k in range(1, 7)]
        part = played.results[BANK]
        answers = {
            name: o.answers(o.codes(o.read(data[name].table, name)))
            for name, o in played.results.items()
            if name != BANK
        }
        scores = part.raw_scores(part.codes(data[BANK].table), answers)[:, 0]
        assert np.corrcoef(scores, data[BANK].labels)[0, 1] > 0.5


# --- buckets --------------------------------------------------------------------------------------------------------


def bucketed(columns, **changes):
    """The buckets of one party's columns."""
    return bucketing_of("shop", table_of(columns), make_job(**changes))


def test_public_cells_are_equally_wide_and_do_not_see_the_data():
    """Also with outliers; whole numbers get one cell each where they fit, and are never torn apart."""
    schema = Schema.from_public(
        bounds={"x": (0, 8), "age": (0, 99), "few": (1, 3), "gaps": (0, 3)},
        integers=["age", "few"],
        may_be_missing=["gaps"],
    )
    columns = {name: np.array([-1e9, 1.0, np.inf]) for name in ("x", "age", "few", "gaps")}
    found = bucketed(columns, schema=schema, buckets=4)
    x, age, few, gaps = (feature.edges for feature in found.features)
    assert x.tolist() == [2, 4, 6]
    assert age.tolist() == [25, 50, 75]
    assert few.tolist() == [2, 3]
    assert gaps.tolist() == [1, 2]
    assert found.categories.tolist() == [4, 4, 3, 4]
    assert codes_of("shop", table_of(columns), found).tolist() == [[0, 0, 3], [0, 0, 3], [0, 0, 2], [0, 1, 2]]
    wide = bucketed({"x": np.zeros(2)}, schema=schema, buckets=256)
    assert wide.categories.tolist() == [255]


def test_levels_come_from_the_schema_or_from_the_data():
    """In the schema's order, absent ones too; with quantile edges those that the table has. Numbers may be levels."""
    codes = (np.array([0, 1, -1, 1], np.int32), ("b", "c"))
    schema = Schema.from_public(levels={"k": ["c", "a", "b"], "n": [7, 5]}, may_be_missing=["k"])
    table = {"k": codes, "n": np.array([5.0, 7.0, 5.0, 5.0])}
    found = bucketed(table, schema=schema)
    assert [feature.levels for feature in found.features] == [("c", "a", "b"), (7, 5)]
    assert codes_of("shop", table_of(table), found).tolist() == [[2, 0, 3, 0], [1, 0, 1, 1]]
    own = bucketed({"k": codes}, edges="quantile")
    assert (own.features[0].levels, own.categories.tolist()) == (("b", "c"), [3])


def test_quantile_buckets_hold_equally_many_rows():
    """A bucket for missing values only where there are some; few distinct values get one each."""
    values = np.random.default_rng(0).normal(size=1600)
    gaps = values.copy()
    gaps[:100] = np.nan
    columns = {"all": values, "gaps": gaps, "few": np.arange(1600.0) % 5}
    found = bucketed(columns, edges="quantile")
    codes = codes_of("shop", table_of(columns), found)
    assert found.categories.tolist() == [16, 16, 5]
    assert np.bincount(codes[0]).tolist() == [100] * 16
    assert np.bincount(codes[1]).tolist() == [100] * 16
    assert np.bincount(codes[2]).tolist() == [320] * 5


def test_a_column_with_one_bucket_stays_at_home(caplog):
    """It is left out with a warning, the part still reads the whole table, and numbers of columns stay right."""
    data = make_data()
    columns = data["post"].table.columns
    more = {"still": np.ones(300), columns[0].name: columns[0].values, columns[1].name: columns[1].values}
    data["post"] = PartyData(table_of(more))
    with caplog.at_level(logging.WARNING, "hedgerow"):
        played = assert_equals_pooled(make_job(edges="quantile"), data)
    assert "post: left out" in caplog.text
    assert "'still'" in caplog.text
    part = played.results["post"]
    assert [feature.name for feature in part.features] == ["still", "weight", "few"]
    assert part.questions.column.min() == 1
    assert played.results[BANK].meta["transfers"]["post"]["columns"] == 2


def test_paper_buckets_leak_more_than_epsilon():
    """With equal-frequency edges one value that moves from end to end changes as many buckets as there are."""
    values = np.arange(160.0)
    moved = values.copy()
    moved[0] = 1000.0
    before, after = (
        codes_of("shop", table_of({"x": v}), bucketed({"x": v}, edges="quantile"))[0] for v in (values, moved)
    )
    assert np.count_nonzero(before != after) == 16
    schema = Schema.from_public(bounds={"x": (0, 160)})
    before, after = (
        codes_of("shop", table_of({"x": v}), bucketed({"x": v}, schema=schema))[0] for v in (values, moved)
    )
    assert np.count_nonzero(before != after) == 1


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, "needs epsilon"),
        ({"epsilon": 0}, "epsilon must be a number above 0"),
        ({"epsilon": -1.0}, "got -1.0"),
        ({"epsilon": math.nan}, "got nan"),
        ({"epsilon": True}, "got True"),
        ({"epsilon": "1"}, "got '1'"),
        ({"epsilon": 1e7}, "at most 1e"),
        ({"epsilon": 1e-7}, "nothing to debias, got 1e-07"),
        ({"buckets": 1}, "buckets must be a whole number between 2 and 256, got 1"),
        ({"buckets": 257}, "got 257"),
        ({"buckets": 16.0}, "got 16.0"),
        ({"edges": "deciles"}, "got 'deciles'"),
        ({"edges": {"x": [1.0, 1.0]}}, "'x' must be finite and strictly increasing"),
        ({"edges": {"x": [2.0, 1.0]}}, "strictly increasing"),
        ({"edges": {"x": ["a"]}}, "must be a list of numbers"),
        ({"edges": {"x": [math.nan]}}, "finite"),
        ({"edges": {"x": 3.0}}, "'x' must be finite and strictly"),
        ({"edges": {"x": [[1.0], [2.0, 3.0]]}}, "vertical.bucket_rr"),
        ({"edges": {3: [1.0]}}, "by the column's name"),
        ({"schema": None}, "edges='public' needs"),
        ({"schema": {"x": 1}}, "must be a Schema"),
        ({"transfer": "twice"}, "got 'twice'"),
        ({"debias": 1}, "got 1"),
        ({"cache": 3}, "must be a folder"),
        ({"cache": ""}, "must be a folder"),
        ({"cache": "here", "parties": ("shop", "bank", "../post")}, "a party's name"),
    ],
    ids=str,
)
def test_bad_parameters(changes, words):
    """Each is refused with its name and value before anybody is asked for anything."""
    with pytest.raises(InvalidParameter) as caught:
        make_job(**{"epsilon": math.inf, **changes})
    assert words in str(caught.value)


def with_column(name, column, values):
    """The usual data, with one more column of a party."""
    data = make_data()
    old = {c.name: c.values if c.levels is None else (c.values, c.levels) for c in data[name].table.columns}
    data[name] = replace(data[name], table=table_of({**old, column: values}))
    return data


MANY = (np.arange(300, dtype=np.int32) % 17, tuple(f"l{k:02}" for k in range(17)))
GAP = np.where(np.arange(300) < 1, np.nan, 1.0)
LEVELLED = Schema.from_public(
    bounds={"basket": (0, 1), "visits": (0, 1)}, levels={"new": MANY[1], "region": ["a"]}, may_be_missing=True
)
CONSTANT = PartyData(table_of({"weight": np.ones(300)}))
RAISE = {"on_bad_rows": "raise"}
NARROW = {"task": "regression", "loss": "squared", "label_range": (0.0, 0.1)}
MORE = Schema.from_public(
    bounds={**{c.name: (c.low, c.high) for c in SCHEMA.columns[:4]}, "new": (0, 1)},
    levels=SCHEMA.levels,
    may_be_missing=["basket", "region"],
)


def test_gaps_that_are_not_stated_go_to_a_public_bucket():
    """The middle one, whatever other rows hold: no error says that there is one."""
    for party, column, changes in (("shop", "visits", {}), ("post", "few", {"edges": {"few": [1.0]}})):
        data, job = with_column(party, column, GAP), make_job(**changes)
        table = data[party].table
        bucketing = bucketing_of(party, table, job)
        codes = codes_of(party, table, bucketing)
        place = [bucketing.features[j].name for j in bucketing.sent.tolist()].index(column)
        assert codes[place, 0] == bucketing.features[bucketing.sent[place]].n_value_bins // 2
        assert (codes[place] < bucketing.categories[bucketing.sent[place]]).all()


@pytest.mark.parametrize(
    ("data", "changes", "words"),
    [
        (with_column("shop", "new", np.full(300, np.nan)), {"edges": "quantile"}, "shop: column 'new' is empty"),
        (with_column(BANK, "new", np.full(300, np.nan)), RAISE, "bank: column 'new' is empty"),
        (with_column("shop", "new", np.ones(300)), {}, "column 'new' of shop has no entry in the schema"),
        (with_column("shop", "new", np.ones(300)), {"edges": {"few": [1.0]}}, "no entry in edges or the schema"),
        (with_column("shop", "new", MANY), {"edges": "quantile"}, "'new' of shop has 17 levels, more than buckets=16"),
        (
            with_column("shop", "new", MANY),
            {"schema": LEVELLED},
            "'new' of shop has 17 levels and missing values, more than buckets=16; raise buckets",
        ),
        (with_column("shop", "new", MANY), {"schema": MORE, **RAISE}, "shop: column 'new' is numeric in the model"),
        (with_column("shop", "region", np.ones(300)), RAISE, "shop: column 'region'"),
        (make_data(), {"edges": {"region": [1.0]}}, "'region' of shop, which has levels"),
        (make_data(), {"edges": {"shop.weight": [1.0]}}, "name 'shop.weight', but shop has no such column"),
        ({**make_data(), "post": CONSTANT}, {"edges": "quantile"}, "post: every column"),
        ({**make_data(), "post": PartyData(Table((), 300, (), has_names=True))}, {}, "post: brings no column"),
        ({**make_data(), "post": PartyData(table_of({"weight": np.ones(299)}))}, {}, "post: has 299 rows"),
        ({**make_data(), BANK: replace(make_data()[BANK], labels=None)}, {}, "bank: is to hold the labels"),
        ({**make_data(), BANK: replace(make_data()[BANK], labels=np.ones(299))}, {}, "bank: 299 labels for 300 rows"),
        ({**make_data(), BANK: replace(make_data()[BANK], classes=(1,))}, {}, "bank: labels must be of at least two"),
        (make_data(task="regression"), {**NARROW, **RAISE}, "bank: some labels lie outside"),
        ({k: v for k, v in make_data().items() if k != "post"}, {}, "post: brings no table"),
    ],
    ids=range(18),
)  # fmt: skip
def test_bad_tables(data, changes, words):
    """Party and column are named, and no bucket has left the house."""
    job = make_job(**changes)
    assert words in str(failure(job, data))
    played = play(PROTOCOL, job, data)
    assert "buckets" not in kinds_of(played)


def test_given_edges_need_no_schema():
    """Where all columns have edges, under either name; gaps are still refused without a word about them."""
    data = make_data()
    data["shop"] = PartyData(table_of({"visits": data["shop"].table.columns[1].values}))
    job = make_job(schema=None, edges={"shop.visits": [2.0, 5.0], "weight": [0.0], "few": (1.0,)})
    played = run(job, data)
    assert [feature.edges.tolist() for feature in played.results["shop"].features] == [[2.0, 5.0]]


# --- the cache ------------------------------------------------------------------------------------------------------


def lines_of(folder, name):
    """A feature holder's book."""
    return [json.loads(line) for line in (folder / name / cache.BOOK).read_text().splitlines()]


def test_tuning_is_free(tmp_path):
    """A second training sends and charges nothing, and has the same noisy buckets; other trees are possible."""
    data, job = make_data(), make_job(2.0, cache=str(tmp_path))
    first = run(job, data)
    second = run(job, data)
    assert kinds_of(first) == ["ready_to_train", "column_kinds", "buckets"] * 2
    assert kinds_of(second) == ["ready_to_train", "same_as_before"] * 2
    assert second.parties["shop"].ledger.events() == []
    assert second.results[BANK].ensemble.trees == first.results[BANK].ensemble.trees
    np.testing.assert_array_equal(thresholds_of(second.results["shop"]), thresholds_of(first.results["shop"]))
    deeper = run(replace(job, boosting=replace(job.boosting, max_depth=4), debias=False), data)
    assert "buckets" not in kinds_of(deeper)
    assert len(lines_of(tmp_path, "shop")) == len(lines_of(tmp_path, "post")) == 1
    history = deeper.results["shop"].meta["history"]
    assert history == {"transfers": 1, "others": 0, "per_element": 2.0, "per_record": 6.0, "is_bound": True}
    assert deeper.results[BANK].meta["transfers"]["shop"]["history"] == history
    (asked,) = second.recording("shop").messages(HaveTransfer, "received")
    assert asked.transfer_id == lines_of(tmp_path, "shop")[0]["transfer"]
    assert len(second.recording(BANK).messages(SameAsBefore, "received")) == 2


def test_what_is_sent_again_is_charged_again(tmp_path):
    """transfer="again" and another epsilon both cost, with fresh noise, and the statement adds all up."""
    data, job = make_data(), make_job(2.0, cache=str(tmp_path))
    first = run(job, data)
    again = run(replace(job, transfer="again"), data)
    assert kinds_of(again) == kinds_of(first)
    one, two = (received_codes(played, "shop", 300)[0] for played in (first, again))
    assert (one != two).any()
    assert again.results["shop"].meta["history"]["per_record"] == 12.0
    other = run(replace(job, epsilon=0.5), data)
    assert "buckets" in kinds_of(other)
    history = other.results[BANK].meta["transfers"]["shop"]["history"]
    assert history == {"transfers": 3, "others": 0, "per_element": 4.5, "per_record": 13.5, "is_bound": True}
    words = " ".join(str(PROTOCOL.statement(replace(job, epsilon=0.5), other.results[BANK].meta)).split())
    assert "sent 3 times so far, which adds up to 4.5 for one element and 13.5 for a record" in words
    charged = [from_dict(line["event"]) for line in lines_of(tmp_path, "shop")]
    assert total_of(charged) == 13.5
    told = [from_dict(e) for played in (first, again, other) for e in played.parties["shop"].ledger.events()]
    assert told == charged
    latest = run(job, data)  # the label holder has kept the newer one of those with epsilon 2
    assert "buckets" not in kinds_of(latest)
    assert latest.results[BANK].ensemble.trees == again.results[BANK].ensemble.trees


def test_changed_data_is_noticed(tmp_path):
    """One value, the order of rows, or the bounds have changed: an error that names the party, and no byte is sent."""
    data, job = make_data(), make_job(2.0, cache=str(tmp_path))
    run(job, data)
    old = {c.name: c.values if c.levels is None else (c.values, c.levels) for c in data["shop"].table.columns}
    nudged = old["visits"].copy()
    nudged[7] = 6.0 - nudged[7]
    for changed in ({**old, "visits": nudged}, {**old, "visits": old["visits"][::-1]}):
        problem = failure(job, {**data, "shop": PartyData(table_of(changed))})
        assert str(problem).startswith("shop: the cached transfer")
        assert "transfer='again' sends anew, which costs epsilon again" in str(problem)
    wider = Schema.from_public(
        bounds={c.name: (c.low, 9) for c in SCHEMA.columns[:4]},
        levels=SCHEMA.levels,
        may_be_missing=["basket", "region"],
    )
    assert "bounds, levels or edges have changed" in str(failure(replace(job, schema=wider), data))
    assert len(lines_of(tmp_path, "shop")) == 1
    again = run(replace(job, transfer="again"), {**data, "shop": PartyData(table_of({**old, "visits": nudged}))})
    assert again.results["shop"].meta["history"] == {
        "transfers": 1, "others": 1, "per_element": 2.0, "per_record": 6.0, "is_bound": True
    }  # fmt: skip
    words = str(PROTOCOL.statement(replace(job, transfer="again"), again.results[BANK].meta))
    assert "transfers of other values (1)" in words


def test_nothing_is_sent_again_in_silence(tmp_path):
    """If the label holder has lost what it got, or never got it, the feature holder does not just send it again."""
    data, job = make_data(), make_job(2.0, cache=str(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "pack", None)  # the run breaks after the charge
        assert play(PROTOCOL, job, data).errors
    assert len(lines_of(tmp_path, "shop")) == 1
    assert "these buckets were sent to bank before" in str(failure(job, data))
    run(replace(job, transfer="again"), data)
    for path in (tmp_path / BANK).glob("shop.*.npz"):
        path.unlink()
    problem = failure(job, data)
    assert str(problem).startswith("shop: these buckets were sent to bank before")


def test_what_others_have_paid_for_is_kept(tmp_path):
    """One party vanishes instead of sending, or refuses: the other's transfer is not lost, or was not made."""
    data, job = make_data(), make_job(2.0, parties=("post", BANK, "shop"), cache=str(tmp_path))

    def silent(endpoint):
        return Vanishing(endpoint, lambda way, frame: way == "sending" and peek(frame)[0] == ColumnKinds.NAME)

    assert BANK in play(PROTOCOL, job, data, around={"post": silent}, deadline=0.3).errors
    assert len(list((tmp_path / BANK).glob("shop.*.npz"))) == 1
    assert len(lines_of(tmp_path, "shop")) == len(lines_of(tmp_path, "post")) == 1
    assert "post: these buckets were sent" in str(failure(replace(job), data))
    elsewhere = replace(job, epsilon=1.0)
    (tmp_path / "post" / cache.BOOK).write_text("damaged")
    assert "line 1" in str(failure(elsewhere, data))
    assert len(lines_of(tmp_path, "shop")) == 1


def rewritten(path, **changes):
    """The bytes of a file of arrays, some of which are changed."""
    with np.load(path) as stored:
        arrays = {name: changes.get(name, lambda array: array)(stored[name]) for name in stored}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def test_damaged_files_are_errors(tmp_path):
    """Of the book and of what was kept, whatever is wrong with them; and nothing is sent or written then."""
    data, job = make_data(), make_job(2.0, cache=str(tmp_path))
    run(job, data)
    book, (kept,) = tmp_path / "shop" / cache.BOOK, (tmp_path / BANK).glob("shop.*.npz")
    (bins,) = (tmp_path / "shop").glob("[0-9a-f]*.json")
    good = {path: path.read_bytes() for path in (book, kept, bins)}
    line = json.loads(good[book])
    flipped = bytearray(good[kept])
    flipped[len(flipped) // 2] ^= 1
    other = make_job(2.0, cache=str(tmp_path / "other"))
    run(replace(other, buckets=12), data)
    (elsewhere,) = (tmp_path / "other" / BANK).glob("shop.*.npz")
    for path, content, words in [
        (book, good[book][:-1], "line 1 of"),
        (book, good[book] + b'{"transfer": 1}\n', "line 2 of"),
        (book, b"\xff\xfe\n", "line 1 of"),
        (book, json.dumps({**line, "per_element": -1}).encode() + b"\n", "not a positive number"),
        (book, json.dumps({**line, "event": {"kind": "new"}}).encode() + b"\n", "unknown event"),
        (book, b"", "does not know of"),
        (kept, good[kept][:100], "bank: "),
        (kept, bytes(flipped), "bank: "),
        (kept, b"", "bank: "),
        (kept, elsewhere.read_bytes(), "does not hold what its name says"),
        (kept, rewritten(kept, packed=lambda packed: packed[:-1]), "does not hold what its name says"),
        (kept, rewritten(kept, n_values=lambda n_values: n_values * 0), "does not hold what its name says"),
        (kept, rewritten(kept, n_values=lambda n_values: n_values[:1]), "does not hold what its name says"),
        (bins, b"{}", "shop: "),
        (bins, good[bins].replace(b"may_be", b"can_be"), "shop: "),
    ]:
        path.write_bytes(content)
        assert words in str(failure(job, data))
        assert "buckets" not in kinds_of(play(PROTOCOL, job, data))
        assert path.read_bytes() == content
        path.write_bytes(good[path])
    assert kinds_of(run(job, data)) == ["ready_to_train", "same_as_before"] * 2


@pytest.mark.parametrize(
    ("pattern", "contents"),
    [(f"shop/{cache.BOOK}", "jsonl"), (f"{BANK}/shop.*.npz", "npz"), ("shop/[0-9a-f]*.json", "json")],
)
@given(drawn=st.data())
@as_often(8)
def test_any_damage_is_an_error_of_ours(tmp_path_factory, pattern, contents, drawn):
    """Any byte and any value in any place: read as it was meant, or refused in words."""
    folder = tmp_path_factory.mktemp("cache")
    data, job = make_data(), make_job(2.0, cache=str(folder))
    run(job, data)
    (path,) = folder.glob(pattern)
    path.write_bytes(drawn.draw(damaged(path.read_bytes(), contents)))
    for problem in play(PROTOCOL, job, data).errors.values():
        assert isinstance(problem, HedgerowError), problem


def test_files_are_private_and_apart(tmp_path):
    """Each party writes into its own sub-folder, readable by its owner only, and no value of a row is in a book."""
    run(make_job(2.0, cache=str(tmp_path)), make_data())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "post", "shop"]
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    assert all(path.suffix == ".npz" for path in (tmp_path / BANK).iterdir())


def test_no_noise_in_the_cache_is_infinite(tmp_path):
    """A transfer without noise makes every later sum infinite, as JSON can say it."""
    data = make_data()
    run(make_job(cache=str(tmp_path)), data)
    job = make_job(1.0, cache=str(tmp_path), debias=False)
    later = run(job, data)
    assert later.results["shop"].meta["history"]["per_element"] == "inf"
    assert "adds up to infinite" in str(PROTOCOL.statement(job, later.results[BANK].meta))


def test_edges_from_the_data_stay_in_the_sum(tmp_path):
    """A sum with a transfer of equal-frequency buckets in it is a lower bound, also after a run with public ones."""
    data, job = make_data(), make_job(1.0, cache=str(tmp_path), debias=False)
    run(replace(job, edges="quantile"), data)
    later = run(job, data)
    history = later.results["shop"].meta["history"]
    assert history == {"transfers": 2, "others": 0, "per_element": 17.0, "per_record": 51.0, "is_bound": False}
    words = " ".join(str(PROTOCOL.statement(job, later.results[BANK].meta)).split())
    assert "shop: epsilon = 1 for one element" in words
    assert "adds up to no less than 17 for one element and 51 for a record" in words


# --- the statement --------------------------------------------------------------------------------------------------


def test_statement_says_what_is_covered_and_what_is_not():
    """Per element, per record, edges' share, labels and model; as words and as JSON."""
    job = make_job(4.0, n_iterations=1)
    meta = run(job, make_data()).results[BANK].meta
    stated = PROTOCOL.statement(job, meta)
    for words in (
        "shop: epsilon = 4 for one element, 3 columns x 4 = 12 for one record.",
        "post: epsilon = 4 for one element, 2 columns x 4 = 8 for one record.",
        "edges of the buckets are public",
        "Not covered: - the labels",
        "the model itself",
        "a party that lies",
    ):
        assert words in " ".join(str(stated).split())
    facts = json.loads(json.dumps(stated.to_dict(), allow_nan=False))
    assert (facts["per_element"], facts["is_bound"], facts["stamp"]) == (4.0, True, None)
    assert facts["transfers"]["shop"]["per_record"] == 12.0
    data_edges = make_job(4.0, edges="quantile")
    worse = PROTOCOL.statement(data_edges, run(data_edges, make_data()).results[BANK].meta)
    assert "16 x 4 = 64" in str(worse)
    assert "no less than epsilon = 64 for one element, 3 columns x 64 = 192 for one record" in " ".join(
        str(worse).split()
    )
    assert (worse.facts["per_element"], worse.facts["is_bound"]) == (64.0, False)
    assert "as often that for a record as it has columns" in str(PROTOCOL.statement(job, {}))


def test_no_noise_is_stamped():
    """An infinite epsilon is said in the first lines, and JSON holds it."""
    job = make_job()
    stated = PROTOCOL.statement(job, run(job, make_data()).results[BANK].meta)
    assert "NO NOISE" in str(stated)
    facts = json.loads(json.dumps(stated.to_dict(), allow_nan=False))
    assert (facts["stamp"], facts["epsilon"], facts["per_element"]) == ("NO NOISE", "inf", "inf")


# --- the job, elsewhere ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"epsilon": 2}, {"edges": {"x": np.array([1, 2])}}, {"edges": "quantile", "schema": None}], ids=str
)
def test_job_goes_through_json(changes):
    """An infinite epsilon, a schema and edges come back equal."""
    job = make_job(**{"epsilon": math.inf, **changes})
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(job.to_dict(), allow_nan=False))) == job


def test_job_from_a_request():
    """The protocol is found by its name, and takes its options."""
    protocol = find("vertical.bucket_rr")
    request = (PARTIES, "r", "classification", BoostingParams(), 256, {"epsilon": 1, "edges": "quantile"}, BANK)
    job = asked(protocol, *request)
    assert (job.noise, protocol.parties(job)) == (1.0, (BANK, "shop", "post"))
    assert job.links == ((BANK, "shop"), (BANK, "post"))
    with pytest.raises(InvalidParameter, match="hold the labels"):
        asked(protocol, *request[:-1], None)


def test_over_processes_with_a_cache(tmp_path):
    """Each party as a process of its own: the same parts as in memory, and a second run sends nothing."""
    data, job = make_data(), make_job(cache=str(tmp_path / "memory"))
    here = run(job, data)
    elsewhere = replace(job, cache=str(tmp_path / "processes"))
    results, ledgers, _, _ = run_in_processes(PROTOCOL, elsewhere, data, None, 60.0, None)
    reconcile(ledgers)
    for name in PARTIES:
        assert results[name].to_dict() == json.loads(json.dumps(here.results[name].to_dict()))
    assert kinds_of(run(elsewhere, data)) == ["ready_to_train", "same_as_before"] * 2
