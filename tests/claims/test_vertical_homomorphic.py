"""Every sentence of the statement of vertical.homomorphic, held against runs; and what it costs, by a formula."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto import elgamal
from hedgerow.crypto.additive import VALUES
from hedgerow.crypto.edwards25519 import AFFINE
from hedgerow.crypto.field25519 import from_words
from hedgerow.engine.table import Column
from hedgerow.protocols.vertical.common.messages import Classes
from hedgerow.protocols.vertical.homomorphic import label_holder, messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.sums import ColumnSums
from hedgerow.runtime.protocol import find
from hedgerow.schema import Schema
from hedgerow.transport.frames import encode
from twins import vertical
from twins.naive_edwards import P, add
from twins.uniformity import unlike_uniform

PROTOCOL = find("vertical.homomorphic")
N_ROWS, N_TREES = 160, 3
DATA = vertical.make_data(3, N_ROWS, 6, missing=0.1)
JOB = vertical.make_job(HomomorphicJob, DATA, n_iterations=N_TREES)
HARD = "hard, also for randomness with exponents of 260 bits."
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
        received = [affine(m.words) for m in self.of(messages.EncryptedRows, to=to)]
        assert len(received) == N_TREES  # one block each
        return received


def affine(points):
    """[...] of (x, y)."""
    flat = points.reshape(-1, 8)
    pairs = [(from_words(point[:4]), from_words(point[4:])) for point in flat]
    return [pairs[k : k + VALUES] for k in range(0, len(pairs), VALUES)]


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
        assert sum(len(m.words) for m in run.of(messages.EncryptedRows, to=party)) == N_TREES * N_ROWS
        keys = [key.tobytes() for m in run.of(messages.TreeKeys, to=party) for key in m.words.reshape(-1, 8)]
        assert len(set(keys)) == VALUES * N_TREES
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
    words = np.concatenate([m.words.reshape(-1, 8) for m in run.of(messages.EncryptedRows, to="ben")])
    assert len(np.unique(words, axis=0)) == len(words) == N_TREES * N_ROWS * VALUES
    bytes_of_y = np.ascontiguousarray(words[:, 4:]).view(np.uint8)[:, :31]  # the last has fewer bits
    assert unlike_uniform(bytes_of_y) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_every_row_and_total_has_a_random_point_of_its_own(fresh):
    """Rows for the run, or anew for every tree; totals always. All feature holders have the same ones."""
    run = Watched(replace(JOB, fresh_randomness=fresh))
    of_rows = [np.concatenate([m.words for m in run.of(messages.RowPoints, to=name)]) for name in ("ben", "carla")]
    of_totals = np.concatenate([m.words[:, :AFFINE] for m in run.of(messages.NodeTotals, to="ben")])
    assert np.array_equal(*of_rows)
    assert len(of_rows[0]) == N_ROWS * (N_TREES if fresh else 1)
    points = np.concatenate([of_rows[0], of_totals])
    assert len(np.unique(points, axis=0)) == len(points)


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {},
            (
                "elliptic curve ElGamal on edwards25519, a curve of about 126 bits, if decisional Diffie-Hellman is "
                "hard on it."
            ),
        ),
        (
            {"scheme": "paillier"},
            (
                "Paillier with a modulus of 2048 bits, a length that is rated at about 112 bits, if "
                f"decisional composite residuosity is {HARD}"
            ),
        ),
        (
            {"scheme": "ou", "key_bits": 3072},
            (
                "Okamoto-Uchiyama with a modulus of 3072 bits, a length that is rated at about 128 bits, if the "
                f"p-subgroup problem is {HARD}"
            ),
        ),
    ],
)
def test_the_scheme_is_named_as_it_is(options, said):
    """Its name, its length, its bits and what must be hard; and what is said against it, if it is Okamoto-Uchiyama."""
    job = replace(JOB, **options)
    stated = PROTOCOL.statement(job, {})
    assert stated.guarantee[0].endswith(f"ben and carla cannot read them: {said}")
    assert any("what is said against Okamoto-Uchiyama" in words for words in stated.not_covered) == (job.scheme == "ou")


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_other_schemes_encrypt_every_tree(scheme):
    """One ciphertext per row, tree and feature holder, all different; a key for the run, exactly as long as is said."""
    job = replace(JOB, scheme=scheme, boosting=replace(JOB.boosting, max_depth=2))
    run = Watched(job)
    for party in ("ben", "carla"):
        rows = np.concatenate([m.words for m in run.of(messages.EncryptedRows, to=party)])
        assert rows.shape == (N_TREES * N_ROWS, 64 if scheme == "paillier" else 32)
        assert len(np.unique(rows, axis=0)) == len(rows)
        bytes_of = np.ascontiguousarray(rows).view(np.uint8)[:, : 8 * (rows.shape[1] - 1)]  # the rest is below N's
        assert unlike_uniform(bytes_of) == []
        (key,) = run.of(messages.PublicKey, to=party)
        assert from_words(key.words[:32]).bit_length() == 2048
        assert not run.of(messages.TreeKeys) + run.of(messages.RowPoints)
    everything = [words.tobytes() for kind in POINTS for m in run.of(kind, to="ben") for words in m.words]
    assert len(set(everything)) == len(everything)
    back = [words.tobytes() for m in run.of(messages.EncryptedSums) for words in m.words]
    assert len(set(back)) == len(back)
    assert not set(back) & set(everything)


# --- "ben and carla learned which rows are in each node, ... and no gradient, weight, sum, gain or leaf value." ------


def test_feature_holders_learn_the_rows_of_nodes_and_nothing_else(stated):
    """Labels of twice the size have other gradients, gains and leaves, but the same splits: so only points differ."""
    assert "learned which rows are in each node" in stated.guarantee[1]
    assert stated.guarantee[1].endswith("and no gradient, weight, sum, gain or leaf value.")
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


def told_in_clear(data, **trees):
    """What ben receives, but for points, of a run whose splits do not depend on the size of gradients."""
    run = Watched(vertical.make_job(HomomorphicJob, data, l2=0.0, **trees), data)
    return [encode(m) for _, to, m in run.seen if to == "ben" and not has_points(m)], run


def test_feature_holders_learn_nothing_of_weights():
    """Not that there are any, if all are 1, and not how large they are; where they change the trees, that shows."""
    weight = np.random.default_rng(1).integers(0, 5, N_ROWS) / 4.0
    data = [{**DATA, "anna": replace(DATA["anna"], weight=w)} for w in (None, np.ones(N_ROWS), weight, 4.0 * weight)]
    (none, _), (ones, _), (some, one), (larger, other) = map(told_in_clear, data)
    assert none == ones
    assert some == larger != none
    covers = [run.parts["anna"].ensemble.trees[0].cover[0] for run in (one, other)]
    assert np.isclose(4.0 * covers[0], covers[1], rtol=1e-5)
    sizes = [[len(encode(m)) for _, to, m in run.seen if to == "ben" and has_points(m)] for run in (one, other)]
    assert sizes[0] == sizes[1]


def test_feature_holders_learn_how_many_classes_there_are(run, stated):
    """And are told nothing more of them: a run of other classes, as many, has the same frames in clear."""
    assert ", how many classes the labels have, and no " in stated.guarantee[1]
    assert [m.n_classes for m in run.of(Classes, to="ben")] == [2]
    anna = DATA["anna"]
    labels = anna.labels + (anna.table.columns[0].values > 0.5)
    frames = []
    for classes in (("a", "b", "c"), (7, 8, 9)):
        data = {**DATA, "anna": replace(anna, labels=labels, classes=classes)}
        told, of_three = told_in_clear(data)
        assert [m.n_classes for m in of_three.of(Classes, to="ben")] == [3]
        assert len(of_three.of(messages.TreeKeys, to="ben")) == 2 * 3  # a tree of each class, in each of two iterations
        frames.append(told)
    assert frames[0] == frames[1]
    numbers = vertical.make_data(3, N_ROWS, 6, task="regression")
    job = vertical.make_job(HomomorphicJob, numbers, task="regression")
    assert not Watched(job, numbers).of(Classes)
    assert "classes" not in PROTOCOL.statement(job, {}).guarantee[1]


def has_points(message):
    """Whether there are points in it."""
    return isinstance(message, (*POINTS, messages.TreeKeys))


def test_what_feature_holders_receive_is_on_the_list(run):
    """Beside the beginning: points, keys, what becomes of nodes, their own splits, sides of rows."""
    for party in ("ben", "carla"):
        received = {type(m).__name__ for _, to, m in run.seen if to == party}
        assert received <= {
            *("GoAhead", "Classes", "RowPoints", "TreeKeys", "EncryptedRows", "NodeTotals"),
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
        one, other = ([m.words.tobytes() for m in each.of(kind)] for each in (Watched(seed=5, steady="anna"), again))
        assert one == other  # the same keys, the same randomness of rows
    rows = [
        {p.tobytes() for m in each.of(messages.EncryptedSums, sender="ben") for p in m.words.reshape(-1, 8)}
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


# --- min_rows_per_sum: "No sum that it got ... is over all rows of a node with fewer rows." ---------------------------


def test_no_sum_is_over_a_node_with_fewer_rows(monkeypatch):
    """Every node that is summed, and every sibling, has the rows; without the rule some have fewer."""
    sizes = []
    encrypted = ColumnSums.encrypted

    def noting(columns, holder, nodes, *rest):
        sizes.append([len(rows) for rows in nodes])
        return encrypted(columns, holder, nodes, *rest)

    monkeypatch.setattr(ColumnSums, "encrypted", noting)
    smallest = {}
    for fewest in (1, 20):
        sizes.clear()
        job = vertical.make_job(HomomorphicJob, DATA, n_iterations=N_TREES, max_depth=5, min_rows_per_sum=fewest)
        run = Watched(job)
        smallest[fewest] = min(size for level in sizes for size in level)
        stated = PROTOCOL.statement(job, run.parts["anna"].ensemble.meta)
    assert smallest[1] < 20 <= smallest[20]
    assert stated.guarantee[2].startswith(
        "anna learned the exact sums of gradients and hessians of every bin of every column in every node of 20 rows"
    )
    assert stated.guarantee[3].startswith("No sum that it got, or can find by subtraction, is over all rows of a node")
    assert "A bin may have fewer, and sums of many trees tell more" in stated.guarantee[3]
    assert stated.facts["min_rows_per_sum"] == 20


# --- dp: "Which way rows go was told exactly ...", "Covered is ..." ---------------------------------------------------

PUBLIC = Schema.from_public(bounds={f"x{k}": (-4.0, 4.0) for k in range(6)}, may_be_missing=True)
NOISY = vertical.make_job(HomomorphicJob, DATA, n_iterations=2, max_depth=2, schema=PUBLIC, dp=(3.0, 1e-5))


def test_with_noise_the_statement_says_what_is_covered_and_what_is_not():
    """The budget, whose, towards whom, and sides that are exact; nothing is claimed of the model."""
    run = Watched(NOISY)
    stated = PROTOCOL.statement(NOISY, run.parts["anna"].ensemble.meta)
    words = " ".join(stated.guarantee)
    assert "anna learned the noisy sums" in words
    assert "is NOT covered, so this is not differential privacy of columns." in words
    assert "Covered is which of several values a row has that no split tells apart: epsilon = 3 and delta = " in words
    assert "is at most 20.1 times as large with one as with the other, plus 0.00001." in words.replace(
        "1e-5", "0.00001"
    )
    assert stated.facts["privacy"] is None
    assert stated.facts["model_is_private"] is False
    assert set(stated.facts["columns_towards_label_holder"]) == {"ben", "carla"}
    assert stated.not_covered[0].startswith("on which side of a split that was asked about a value lies")
    assert any("anna encrypts such gradients" in words for words in stated.assumed_of_parties)


def test_with_noise_sides_are_exact():
    """At every root that a feature holder won the label holder is told of each row on which side its value lies."""
    job = replace(NOISY, boosting=replace(NOISY.boosting, max_depth=1, n_iterations=6))
    run = Watched(job)
    told = [(sender, m) for sender, _, m in run.seen if isinstance(m, messages.WhichWay)]
    assert len(told) > 1
    for party, message in told:
        part = run.parts[party]
        answers = part.answers(part.codes(DATA[party].table))
        assert np.array_equal(np.unpackbits(message.sides)[:N_ROWS], answers[message.handles[0]])


def test_with_noise_bins_tell_nothing_of_values():
    """Beside noisy sums and sides, what a feature holder sends is the same whatever its values are."""
    data = dict(DATA)
    columns = [replace(c, values=np.full(N_ROWS, 1e9)) for c in DATA["ben"].table.columns]
    data["ben"] = replace(data["ben"], table=vertical.table_of(columns))
    sent = []
    for each in (DATA, data):
        mine = [m for sender, _, m in Watched(NOISY, each).seen if sender == "ben"]
        assert {type(m).__name__ for m in mine} <= {"ReadyToTrain", "ColumnOrder", "NoisySums", "WhichWay"}
        sent.append([encode(m) for m in mine if not isinstance(m, messages.NoisySums | messages.WhichWay)])
    assert [len(frame) for frame in sent[0]] == [len(frame) for frame in sent[1]]
    assert sent[0][:2] == sent[1][:2]


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


@pytest.mark.parametrize(("scheme", "size", "pack", "key"), [("ou", 256, 10, 512), ("paillier", 512, 31, 256)])
def test_traffic_of_other_schemes_is_what_the_formula_says(scheme, size, pack, key):
    """Within 1.02: a ciphertext per row and tree and per node that is summed; sums packed, node by node."""
    n_rows, n_trees, depth = 600, 2, 2
    data = vertical.make_data(2, n_rows, 6, missing=0.1)
    job = vertical.make_job(HomomorphicJob, data, n_iterations=n_trees, max_depth=depth, max_bins=32, scheme=scheme)
    run = Watched(job, data)
    trees = run.parts["anna"].ensemble.trees
    n_summed = sum(1 + sum(levels_of(tree)[: depth - 1]) for tree in trees)
    n_bins = sum(feature.n_value_bins + 1 for feature in run.parts["ben"].features)
    sides = -(-n_rows // 8)
    to_ben = key + size * (n_trees * n_rows + n_summed) + sides * len(run.of(messages.Partition))
    from_ben = size * n_summed * -(-n_bins // pack) + sides * len(run.of(messages.WhichWay))
    sent = {name: run.parties[name].meter.total().bytes_sent for name in data}
    assert to_ben <= sent["anna"] <= 1.02 * to_ben
    assert from_ben <= sent["ben"] <= 1.02 * from_ben + 2000  # frames of a few hundred bytes have heads too
