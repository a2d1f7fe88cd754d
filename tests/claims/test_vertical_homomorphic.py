"""Every sentence of the statement of vertical.homomorphic, held against runs; and what it costs, by a formula."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto import elgamal
from hedgerow.crypto.field25519 import from_words
from hedgerow.engine.table import Column
from hedgerow.protocols.vertical.homomorphic import label_holder, messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.runtime.protocol import find
from hedgerow.transport.frames import encode
from twins import vertical
from twins.naive_edwards import P, add
from twins.uniformity import unlike_uniform

PROTOCOL = find("vertical.homomorphic")
N_ROWS, N_TREES = 160, 3
DATA = vertical.make_data(3, N_ROWS, 6, missing=0.1)
JOB = vertical.make_job(HomomorphicJob, DATA, n_iterations=N_TREES)
POINTS = (messages.RowPoints, messages.EncryptedRows, messages.NodeTotals, messages.EncryptedSums)


class Watched:
    """A run, and all messages by who received them from whom."""

    def __init__(self, job=JOB, data=DATA, **how):
        self.seen = []
        self.parts, self.parties = vertical.play(
            PROTOCOL, job, data, watch=lambda to, sender, message: self.seen.append((sender, to, message)), **how
        )

    def of(self, kind, sender=None, to=None):
        """Messages of a kind."""
        wanted = ((a, b, m) for a, b, m in self.seen if sender in (None, a) and to in (None, b))
        return [m for _, _, m in wanted if isinstance(m, kind)]

    def trees_of_rows(self, to="ben"):
        """[trees, rows, values] points of the rows, as Python integers (x, y)."""
        received = [affine(m.points) for m in self.of(messages.EncryptedRows, to=to)]
        assert len(received) == N_TREES  # one block each
        return received


def affine(points):
    """[...] of (x, y)."""
    flat = points.reshape(-1, 8)
    pairs = [(from_words(point[:4]), from_words(point[4:])) for point in flat]
    return [pairs[k : k + messages.KEYS] for k in range(0, len(pairs), messages.KEYS)]


@pytest.fixture(scope="module")
def run():
    """One run."""
    return Watched()


@pytest.fixture(scope="module")
def stated(run):
    """What is said about it."""
    return PROTOCOL.statement(JOB, run.parts["anna"].ensemble.meta)


# --- "Gradients and hessians left anna encrypted only, in every tree." -----------------------------------------------


def test_every_tree_is_encrypted(run, stated):
    """As many encrypted gradients as rows, for every tree and feature holder, under new keys; no other numbers."""
    assert stated.guarantee[0].startswith("Gradients and hessians left anna encrypted only, in every tree.")
    for party in ("ben", "carla"):
        assert sum(len(m.points) for m in run.of(messages.EncryptedRows, to=party)) == N_TREES * N_ROWS
        keys = [key.tobytes() for m in run.of(messages.TreeKeys, to=party) for key in m.keys]
        assert len(set(keys)) == messages.KEYS * N_TREES
    sent = {type(m) for sender, _, m in run.seen if sender == "anna"}
    numbers = {kind for kind in sent if kind.__module__ == messages.__name__} - {*POINTS, messages.TreeKeys}
    assert numbers == {messages.Winners, messages.YourSplits, messages.Partition}


def test_no_message_has_a_gradient_in_clear(monkeypatch):
    """Every number that is encrypted is looked for in all frames, as four and as eight bytes and as a float."""
    values = []
    encrypt = elgamal.TreeKey.encrypt

    def watching(key, randomness, first, rows):
        values.append(rows.copy())
        return encrypt(key, randomness, first, rows)

    monkeypatch.setattr(elgamal.TreeKey, "encrypt", watching)
    run = Watched()
    assert len(values) == N_TREES
    frames = b"|".join(encode(message) for _, _, message in run.seen)
    rare = {int(v) for v in np.unique(np.concatenate(values)) if len(set(np.int32(v).tobytes())) == 4}
    assert len(rare) > 20
    for value in rare:
        for text in (np.int32(value), np.int64(value), np.float64(value)):
            assert text.tobytes() not in frames


def test_points_look_random(run):
    """Equal gradients have different ciphertexts, and their bytes are uniform in every place."""
    words = np.concatenate([m.points.reshape(-1, 8) for m in run.of(messages.EncryptedRows, to="ben")])
    assert len(np.unique(words, axis=0)) == len(words) == N_TREES * N_ROWS * messages.KEYS
    bytes_of_y = np.ascontiguousarray(words[:, 4:]).view(np.uint8)[:, :31]  # the last has fewer bits
    assert unlike_uniform(bytes_of_y) == []


def repeated_differences(run):
    """How many rows have the same difference of ciphertexts between two trees as another row."""
    first, second = (tree[:N_ROWS] for tree in run.trees_of_rows()[:2])
    differences = Counter(add(a[0], (P - b[0][0], b[0][1])) for a, b in zip(first, second, strict=True))
    return sum(n for n in differences.values() if n > 1)


def test_one_key_for_two_trees_would_be_noticed(run, monkeypatch):
    """Then rows of one leaf and class have one difference; with keys of their own no two rows have."""
    assert repeated_differences(run) == 0
    kept = []

    def same(*given):
        kept.append(honest(*given))
        kept[0]._next_row = 0
        return kept[0]

    honest = elgamal.TreeKey
    monkeypatch.setattr(elgamal, "TreeKey", same)
    assert repeated_differences(Watched()) > N_ROWS // 2


# --- "ben and carla learned which rows are in each node, ... and no gradient, sum, gain or leaf value." --------------


def test_feature_holders_learn_the_rows_of_nodes_and_nothing_else(stated):
    """Labels of twice the size have other gradients, gains and leaves, but the same splits: so only points differ."""
    assert "learned which rows are in each node" in stated.guarantee[1]
    assert stated.guarantee[1].endswith("and no gradient, sum, gain or leaf value.")
    data = vertical.make_data(3, N_ROWS, 6, missing=0.1, task="regression")
    halves = np.round(data["anna"].labels * 8) / 8
    runs = []
    for factor in (1.0, 2.0):
        data["anna"] = replace(data["anna"], labels=halves * factor)
        job = vertical.make_job(HomomorphicJob, data, task="regression", label_range=(-5.0 * factor, 5.0 * factor))
        runs.append(Watched(job, data))
    one, other = ([encode(m) for _, to, m in run.seen if to == "ben" and not has_points(m)] for run in runs)
    assert one == other
    assert len(one) > 8
    values = [run.parts["anna"].ensemble.trees[0].value for run in runs]
    assert not np.array_equal(*values)
    assert np.allclose(values[1], 2 * values[0])
    for name in ("ben", "carla"):
        part = runs[0].parts[name].to_dict()
        assert "trees" not in part
        assert part["splits"] == runs[1].parts[name].to_dict()["splits"]


def has_points(message):
    """Whether there are points in it."""
    return isinstance(message, (*POINTS, messages.TreeKeys))


def test_what_feature_holders_receive_is_on_the_list(run):
    """Beside the beginning: points, keys, what becomes of nodes, their own splits, sides of rows."""
    for party in ("ben", "carla"):
        received = {type(m).__name__ for _, to, m in run.seen if to == party}
        assert received <= {
            *("GoAhead", "RowPoints", "TreeKeys", "EncryptedRows", "NodeTotals"),
            *("Winners", "YourSplits", "Partition"),
        }


# --- "anna learned the exact sums ... Columns come in another order with every tree." --------------------------------


def test_the_label_holder_opens_exact_sums_of_every_bin(monkeypatch, stated):
    """What it opens at the root is what its gradients add up to over the feature holder's codes, column by column."""
    assert "learned the exact sums of gradients and hessians of every bin" in stated.guarantee[2]
    opened, values = [], []
    take, encrypt = label_holder.ForeignColumns.take, elgamal.TreeKey.encrypt

    def watching(self, where, sums, totals):
        opened.append((self._party, sums.reshape(len(where.built), self.n_sums, 2)))
        return take(self, where, sums, totals)

    def noting(key, randomness, first, rows):
        values.append(rows.copy())
        return encrypt(key, randomness, first, rows)

    monkeypatch.setattr(label_holder.ForeignColumns, "take", watching)
    monkeypatch.setattr(elgamal.TreeKey, "encrypt", noting)
    run = Watched()
    gradients = values[0]
    party, root = opened[0]
    assert party == "ben"
    part, table = run.parts["ben"], DATA["ben"].table
    codes = part.codes(table)
    expected = Counter()
    for column, feature in zip(codes, part.features, strict=True):
        sums = np.stack([gradients[column == code].sum(axis=0) for code in range(feature.n_value_bins + 1)])
        expected[sums.tobytes()] += 1
    order = run.of(messages.ColumnOrder, sender="ben")[0]
    ends = np.cumsum(order.n_bins + 1)
    found = Counter(np.ascontiguousarray(s).tobytes() for s in np.split(root[0], ends[:-1]))
    assert found == expected


def test_the_order_of_columns_is_drawn_for_every_tree(stated):
    """Over many trees every order of three columns is seen; where numbers of bins differ, they say which is which."""
    assert stated.guarantee[2].endswith(
        "Columns come in another order with every tree, and can be linked by their numbers of bins and by their sums."
    )
    data = {
        "anna": DATA["anna"],
        "ben": replace(
            DATA["ben"],
            table=vertical.table_of([Column(f"c{k}", np.arange(N_ROWS, dtype=np.float64) % k) for k in (2, 3, 5)]),
        ),
    }
    job = vertical.make_job(HomomorphicJob, data, n_iterations=40, max_depth=1)
    orders = Counter(tuple(m.n_bins.tolist()) for m in Watched(job, data).of(messages.ColumnOrder))
    assert set(orders) == {(2, 3, 5), (2, 5, 3), (3, 2, 5), (3, 5, 2), (5, 2, 3), (5, 3, 2)}


def test_sums_do_not_tell_which_rows_were_added():
    """The label holder knows every R, and no sum that it gets has one that is made of them: all differ in every run."""
    again = Watched(seed=4, steady="anna")
    for kind in (messages.RowPoints, messages.EncryptedRows):
        one, other = ([m.points.tobytes() for m in each.of(kind)] for each in (Watched(seed=5, steady="anna"), again))
        assert one == other  # the same keys, the same randomness of rows
    rows = [
        {p.tobytes() for m in each.of(messages.EncryptedSums, sender="ben") for p in m.points.reshape(-1, 8)}
        for each in (Watched(seed=5, steady="anna"), again)
    ]
    assert all(len(points) > 100 for points in rows)
    assert not rows[0] & rows[1]


# --- "anna learned whose each split is, and which rows go which way." ------------------------------------------------


def test_whose_splits_and_which_rows(run, stated):
    """Every foreign split of its trees has an owner and a handle, and sides arrive for each."""
    assert stated.guarantee[3] == "anna learned whose each split is, and which rows go which way."
    told = run.of(messages.WhichWay)
    assert sum(len(m.handles) for m in told) > 0
    handles = run.parts["anna"].handles
    assert {name: len(run.parts[name].questions.column) for name in ("ben", "carla")} == dict(handles)


# --- "Values, edges and names of columns stay with their owner." -----------------------------------------------------


def test_values_edges_and_names_stay(stated):
    """Other names and other values in the same order: what the feature holder sends is the same, byte for byte."""
    assert stated.guarantee[4] == "Values, edges and names of columns stay with their owner."
    data = dict(DATA)
    columns = [Column(f"other {k}", column.values * 4 + 1024) for k, column in enumerate(DATA["ben"].table.columns)]
    data["ben"] = replace(data["ben"], table=vertical.table_of(columns))
    one, other = ([encode(m) for sender, _, m in Watched(JOB, each).seen if sender == "ben"] for each in (DATA, data))
    assert one == other
    assert len(one) > 10


def test_nothing_is_promised_of_the_model(stated):
    """Not differentially private, in words and as facts; nothing that a budget could count."""
    assert stated.guarantee[5].endswith("The model is not differentially private.")
    assert stated.facts["model_is_private"] is False
    assert stated.facts["privacy"] is None
    assert stated.registry is None or stated.registry.flavour == "none"
    assert any(words.startswith("values of columns, towards the label holder") for words in stated.not_covered)


# --- costs -----------------------------------------------------------------------------------------------------------


def levels_of(tree):
    """How many nodes of each level split."""
    level, counts = [0], []
    while level:
        splitting = [node for node in level if tree.left[node] != node and tree.left[node] > 0]
        counts.append(len(splitting))
        level = [int(child) for node in splitting for child in (tree.left[node], tree.right[node])]
    return counts


@pytest.mark.parametrize("options", [{}, {"compressed": True}, {"fresh_randomness": True}])
def test_traffic_is_what_the_formula_says(options):
    """Within 1.02: bytes per row and tree, per node that is summed, per sum; half of it with compressed points.

    A point takes w = 64 bytes, or 32. To every feature holder: w n per run (or tree), 2 w (n + 1) per tree, 3 w per
    node that is summed (the root, and one of the two children of each split above the last level), n / 8 per level in
    which others won. From it: 3 w per node, column and bin, with that for gaps; n / 8 per level that it won.
    """
    n_rows, n_trees, depth = 1500, 2, 3
    data = vertical.make_data(2, n_rows, 10, missing=0.1)
    job = vertical.make_job(HomomorphicJob, data, n_iterations=n_trees, max_depth=depth, max_bins=32, **options)
    run = Watched(job, data)
    point = 32 if options.get("compressed") else 64
    trees = run.parts["anna"].ensemble.trees
    n_summed = sum(1 + sum(levels_of(tree)[: depth - 1]) for tree in trees)
    n_bins = sum(feature.n_value_bins + 1 for feature in run.parts["ben"].features)
    sides = -(-n_rows // 8)
    n_random = n_trees if options.get("fresh_randomness") else 1
    to_ben = point * (n_random * n_rows + 2 * n_trees * (n_rows + 1) + 3 * n_summed)
    to_ben += sides * len(run.of(messages.Partition))
    from_ben = 3 * point * n_summed * n_bins + sides * len(run.of(messages.WhichWay))
    sent = {name: run.parties[name].meter.total().bytes_sent for name in data}
    assert to_ben <= sent["anna"] <= 1.02 * to_ben
    assert from_ben <= sent["ben"] <= 1.02 * from_ben
