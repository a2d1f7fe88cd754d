"""The formulas of bytes and rounds of vertical.secret_shared, against what meters of real runs count."""

import dataclasses
import runpy
import typing
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.shares import mesh
from hedgerow.protocols.shares.columns import Cuts, masked_rows
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import BLOCK_NODES, Shape
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import in_memory
from hedgerow.transport.frames import ArrayOf, encode, registered
from hedgerow.transport.memory import MemoryNetwork

FORMULAS = Path(__file__).parents[2] / "experiments" / "mp_fedxgb" / "costs.py"
costs = SimpleNamespace(**runpy.run_path(str(FORMULAS)))

COUNTED = ("masked_columns", "dealt", "level_input", "masked_words", "winner_share", "which_way")


def make_data(n_parties, n_rows, n_columns, *, missing=0.0, noise=1.0, seed=5):
    """What each party has; labels follow from the columns of all, so that all win splits."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    X[:, 1] = rng.integers(0, 3, n_rows)
    labels = (X.sum(axis=1) + noise * rng.normal(size=n_rows) > 0).astype(np.float64)
    if missing:
        X[:, ::2][rng.random(X[:, ::2].shape) < missing] = np.nan
    data = {}
    for number, part in enumerate(np.array_split(X, n_parties, axis=1)):
        columns = tuple(Column(f"x{k}", part[:, k].copy()) for k in range(part.shape[1]))
        table = Table(columns, n_rows, tuple(column.name for column in columns), has_names=True)
        mine = {"labels": labels, "classes": (0, 1)} if number == 0 else {}
        data[f"party-{number}"] = PartyData(table, **mine)
    return data


def make_job(data, **trees):
    """Two trees of three levels unless said."""
    boosting = {"n_iterations": 2, "max_depth": 3, "learning_rate": 0.3, "min_child_weight": 0.0, **trees}
    return SecretSharedJob(tuple(data), "party-0", "a test", boosting=BoostingParams(**boosting), max_bins=8)


def shape_of(job, data):
    """From the columns, without any message."""
    bins, candidates = [], []
    for name in job.feature_holders:
        values = [column.values for column in data[name].table.columns]
        n_bins = [min(len(np.unique(v[~np.isnan(v)])), job.max_bins - 1) for v in values]
        gaps = [bool(np.isnan(v).any()) for v in values]
        bins.append(masked_rows(n_bins, gaps))
        candidates.append(len(Cuts.of(n_bins, gaps).bin))
    n_rows = data[job.label_holder].table.n_rows
    return Shape(n_rows, tuple(bins), tuple(candidates), Scales.of(job, n_rows))


def run(job, data):
    """All parties in memory: the label holder's part, and what the meter of each party has counted."""
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names)
    parties = in_memory(network, names)
    roles = {name: lambda name=name: PROTOCOL.play(parties[name], job, data.get(name)) for name in names}
    outcomes = network.run(roles)
    assert not [outcome.error for outcome in outcomes.values() if outcome.error is not None]
    return outcomes[job.label_holder].value, {name: parties[name].meter.to_dict()["counts"] for name in names}


def heading_of(message):
    """Bytes of a frame of this class with nothing in it."""
    cls = registered()[message]
    hints = typing.get_type_hints(cls, include_extras=True)
    nothing = {int: 0, str: "", bytes: b""}
    empty = []
    for field in dataclasses.fields(cls):
        marks = [mark for mark in getattr(hints[field.name], "__metadata__", ()) if isinstance(mark, ArrayOf)]
        empty.append(np.zeros(0, marks[0].scalar) if marks else nothing[typing.get_args(hints[field.name])[0]])
    return len(encode(cls(*empty)))


def levels_of(part, job):
    """Per tree and level: how many nodes are played, and how many of them each feature holder wins."""
    first = np.cumsum([part.n_own, *part.handles.values()])
    for tree in part.ensemble.trees:
        nodes, levels = [0], []
        for _ in range(job.depth):
            if not nodes:
                break
            owners = [int(np.searchsorted(first, tree.feature[n], side="right")) for n in nodes if tree.left[n] >= 0]
            levels.append((len(nodes), Counter(place for place in owners if place)))
            nodes = [child for n in nodes if tree.left[n] >= 0 for child in (tree.left[n], tree.right[n])]
        yield levels


def expected(job, shape, part):
    """(sender, receiver, message) -> sizes of the bodies of each message, by the formulas; and the rounds."""
    holders, found, rounds = job.holders, Counter(), 0
    sent = {}

    def add(sender, to, message, bodies):
        sent.setdefault((sender, to, message), []).append(bodies)

    for place, name in enumerate(job.feature_holders, start=1):
        for size in costs.masked_columns(shape, place):
            add(name, job.label_holder, "masked_columns", [size])
    for number, levels in enumerate(levels_of(part, job)):
        for level in range(job.depth):
            lanes = [parcel.lane for parcel in costs.parcels(shape, level)]
            for name, sizes in zip(holders, costs.dealt(shape, number, level), strict=True):
                for lane, size in zip(lanes, sizes, strict=True):
                    add(job.dealer, name, "dealt", [len(lane), size])
        for level, (n_nodes, won) in enumerate(levels):
            rounds += costs.rounds(shape, level, asks_owner=bool(won))
            for name in job.feature_holders:
                for bodies in costs.level_input(shape, n_nodes):
                    add(job.label_holder, name, "level_input", bodies)
            *words, winner = costs.openings(shape, level, n_nodes)
            for one, other in ((a, b) for a in holders for b in holders if a != b):
                for size in words:
                    add(one, other, "masked_words", [size])
                add(one, other, "winner_share", [winner])
            for place, n_won in won.items():
                add(holders[place], job.label_holder, "which_way", costs.which_way(shape, n_won))
            found.update(won)
    assert set(found) == set(range(1, len(holders)))  # all feature holders win something, or the test says little
    return sent, rounds


CASES = {
    "two parties": ({"n_parties": 2, "n_rows": 203, "n_columns": 5}, {}),
    "three parties with gaps": ({"n_parties": 3, "n_rows": 300, "n_columns": 7, "missing": 0.2}, {}),
    "four parties, a block of nodes not full": ({"n_parties": 4, "n_rows": 260, "n_columns": 8}, {"max_depth": 5}),
    "sums of 64 bits": ({"n_parties": 3, "n_rows": 300, "n_columns": 6}, {"gradient_bits": 22, "n_iterations": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_formulas_give_what_meters_count(case):
    """Every message of every kind between every two parties: number, and bytes with their frames; and all rounds."""
    made, trees = CASES[case]
    data = make_data(**made)
    job = make_job(data, **trees)
    shape = shape_of(job, data)
    part, counts = run(job, data)
    if case == "sums of 64 bits":
        assert shape.scales.sums.number_bytes == 8
    if "not full" in case:  # some level has more than one block, the last of them with room left
        played = [nodes for levels in levels_of(part, job) for nodes, _ in levels]
        assert any(nodes > BLOCK_NODES and nodes % BLOCK_NODES for nodes in played)
    sent, rounds = expected(job, shape, part)
    assert part.meta["rounds"]["training"] == rounds
    headings = {entry["message"].rpartition(".")[2]: heading_of(entry["message"]) for entry in counts[job.dealer]}
    metered = {}
    for name, entries in counts.items():
        for entry in entries:
            kind = entry["message"].rpartition(".")[2]
            headings.setdefault(kind, heading_of(entry["message"]) if kind in COUNTED else 0)
            if kind in COUNTED and entry["messages_sent"]:
                metered[name, entry["peer"], kind] = (entry["messages_sent"], entry["bytes_sent"])
    by_formula = {
        key: (len(messages), sum(costs.framed(headings[key[2]], bodies) for bodies in messages))
        for key, messages in sent.items()
    }
    assert metered == by_formula


def test_pieces_of_large_messages(monkeypatch):
    """What is cut into several messages has the same bytes in all, and is counted message by message."""
    data = make_data(2, 400, 5)
    job = make_job(data, max_depth=4, n_iterations=1)
    monkeypatch.setattr(mesh, "MESSAGE_BYTES", 4000)
    shape = shape_of(job, data)
    part, counts = run(job, data)
    sent, _ = expected(job, shape, part)
    for kind in ("masked_columns", "level_input"):
        n_messages = [e["messages_sent"] for es in counts.values() for e in es if e["message"].endswith(kind)]
        mine = [messages for key, messages in sent.items() if key[2] == kind]
        assert sum(n_messages) == sum(map(len, mine)) > (1 if kind == "masked_columns" else job.depth)


def test_a_full_tree_is_the_sum_of_its_levels_and_of_the_tournaments():
    """50,000 x 15 with 32 bins, three parties: as by hand, and as the plan of the tournament counts itself."""
    data = make_data(3, 50, 6)
    job = make_job(data)
    shape = Shape(50_000, (155, 155), (155, 155), Scales.of(job, 50_000))
    tree = costs.full_tree(shape, 4)
    plans = [shape.plan(level) for level in range(4)]
    assert tree.opened == sum(16 * 310 * p.n_nodes + sum(p.openings()) + 4 * p.n_nodes for p in plans)
    assert tree.rounds == sum(1 + 1 + len(p.openings()) + 1 + 1 for p in plans)
    assert tree.input == 8 * 2 * 4 * 50_000 + 15 * 6_250
    assert tree.answers == 15 * (4 + 2 * 6_250)
    assert costs.node(shape, 3).winner == 12_504
    assert costs.node(shape, 3).label_holder - costs.node(shape, 3).feature_holder == 4 * 50_000 + 6_250


def test_the_first_design_as_it_was_written_down():
    """100,000 rows, 20 columns, 32 bins: 1.6 MB + 0.01 MB + 0.16 MB; 116 rounds. Ours is a fraction of it."""
    first = costs.first_design(100_000, 20, 32)
    assert first == (1_600_000 + 16 * 641 + 64 * 620 + 190 * 619, 116)
    job = make_job(make_data(2, 50, 6))
    shape = Shape(100_000, (310,), (310,), Scales.of(job, 100_000))
    ours = costs.node(shape, 3)
    assert ours.label_holder < first.opened / 3
    assert ours.feature_holder < first.opened / 20
    assert costs.rounds(shape, 3) < first.rounds / 4
