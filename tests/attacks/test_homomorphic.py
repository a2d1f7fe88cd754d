"""What vertical.homomorphic states that it does not hide: label clusters of nodes, and values behind exact sums."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation
from hedgerow.attacks.homomorphic.bin_sums import bin_sums, gradients_of_trees, kinds_of, rows_of_bins
from hedgerow.attacks.homomorphic.label_clusters import label_scores, seen_nodes
from hedgerow.attacks.registry import AS_STATED, NOT_RUN, NOT_SCORED, Context, attacked
from hedgerow.crypto import elgamal
from hedgerow.protocols.vertical.homomorphic.label_holder import ForeignColumns
from hedgerow.schema import Schema

N_ROWS = 500
TREES = {"n_estimators": 4, "max_depth": 4, "learning_rate": 0.3, "max_bins": 8}


def people(n_rows=N_ROWS, seed=3):
    """Columns that go with the label more or less."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n_rows, 5)), columns=["income", "age", "basket", "visits", "calls"])
    table["repaid"] = np.where(table.sum(axis=1) + rng.normal(size=n_rows) > 0, "yes", "no")
    return table


TABLE = people()
COLUMNS = {"bank": ["income", "age"], "shop": ["basket", "visits"], "telco": ["calls"]}
TABLES = {party: TABLE[columns] for party, columns in COLUMNS.items()}


class Seen:
    """A recorded run, the sums that its label holder opened, and the gradients that it encrypted."""

    def __init__(self, labels, **options):
        self.opened, self.encrypted = [], []
        take, encrypt = ForeignColumns.take, elgamal.TreeKey.encrypt

        def taking(foreign, where, sums, totals):
            self.opened.append((foreign._party, np.sort(sums.reshape(len(where.built), -1, 2), axis=1)))
            take(foreign, where, sums, totals)

        def encrypting(key, randomness, first, values):
            self.encrypted.append(values.copy())
            return encrypt(key, randomness, first, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ForeignColumns, "take", taking)
            patch.setattr(elgamal.TreeKey, "encrypt", encrypting)
            fed = Federation.vertical(TABLES, labels=("bank", labels))
            self.run = fed.fit("vertical.homomorphic", record=True, **(TREES | options))
        self.opened = [each for each in self.opened if each[0] in TABLES]  # not those of the warm-up
        self.encrypted = [values for values in self.encrypted if len(values) == N_ROWS]


@pytest.fixture(scope="module")
def seen():
    """One run."""
    return Seen(TABLE["repaid"])


@pytest.fixture(scope="module")
def context(seen):
    """With all that is needed to count."""
    return Context(seen.run, labels={"bank": TABLE["repaid"]}, tables=TABLES)


# --- rows of nodes ---------------------------------------------------------------------------------------------------


def test_both_sides_see_the_same_rows_of_nodes(seen):
    """The label holder's transcript and each feature holder's: every node but those of the last level."""
    views = [
        seen_nodes(seen.run.transcript(party), peer, N_ROWS)
        for party, peer in (("bank", "shop"), ("bank", "telco"), ("shop", "bank"), ("telco", "bank"))
    ]
    assert all(len(view) == TREES["n_estimators"] for view in views)
    for trees in zip(*views, strict=True):
        for level in range(TREES["max_depth"]):
            assert all(np.array_equal(trees[0][level], tree[level]) for tree in trees)


def test_rows_of_nodes_do_not_depend_on_the_scheme(seen):
    """Encrypted otherwise, the trees are the same, and so is what a transcript shows."""
    fed = Federation.vertical(TABLES, labels=("bank", TABLE["repaid"]))
    run = fed.fit("vertical.homomorphic", record=True, scheme="ou", **TREES)
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        one, other = (seen_nodes(each.transcript(party), peer, N_ROWS) for each in (seen.run, run))
        assert len(one) == len(other) == TREES["n_estimators"]
        assert all(np.array_equal(np.stack(a), np.stack(b)) for a, b in zip(one, other, strict=True))


def test_labels_follow_from_rows_of_nodes(context):
    """Forty labels and the nodes: far above chance, as the statement says, and by every feature holder."""
    outcomes = attacked(context, ("label_clusters",))
    assert [outcome.attacker for outcome in outcomes] == ["shop", "telco"]
    for outcome in outcomes:
        assert (outcome.verdict, outcome.measure, outcome.chance) == (AS_STATED, "AUC", 0.5)
        assert outcome.value.low > 0.6
    assert "from which labels can be guessed" in str(context.run.statement()).replace("\n", " ")


def test_nothing_follows_from_nodes_of_labels_that_mean_nothing():
    """Labels that are tossed: forty of them say nothing of the others, and nothing is found."""
    labels = np.random.default_rng(9).permutation(np.repeat(["yes", "no"], N_ROWS // 2))
    seen = Seen(labels, n_estimators=1, max_depth=1)
    outcome = attacked(Context(seen.run, labels={"bank": labels}), ("label_clusters",))[0]
    assert outcome.value.low < 0.6


def test_scores_add_up_what_is_known_of_nodes():
    """Two trees of two nodes: a row in the nodes of known ones is above one in those of known zeros."""
    trees = [
        [np.zeros(6, np.int64), np.array([0, 0, 0, 1, 1, 1])],
        [np.zeros(6, np.int64), np.array([0, 0, 1, 1, 1, 0])],
    ]
    scores = label_scores(trees, np.array([0, 4]), np.array([1.0, 9, 9, 9, 0, 9]))
    assert scores[1] > scores[2] == pytest.approx(0.0) == scores[5] > scores[3]


# --- sums of bins ----------------------------------------------------------------------------------------------------


def test_the_sums_made_again_are_those_that_were_opened(seen, context):
    """Gradients of every tree and the root's sums of every column, bit for bit."""
    gradients = gradients_of_trees(context, context.job, N_ROWS)
    assert len(gradients) == len(seen.encrypted)
    for packed, values in zip(gradients, seen.encrypted, strict=True):
        assert np.array_equal(np.column_stack([packed >> 32, packed & 0xFFFFFFFF]), values)
    part = seen.run.model.parts["shop"]
    codes = part.codes(context.table("shop", part.features))
    n_codes = [feature.n_value_bins + 1 for feature in part.features]
    made = np.concatenate([bin_sums(gradients[0], column, n) for column, n in zip(codes, n_codes, strict=True)])
    party, sums = seen.opened[0]
    assert party == "shop"
    assert np.array_equal(np.sort(np.column_stack([made >> 32, made & 0xFFFFFFFF]), axis=0), sums[0])


def test_a_small_node_tells_the_bin_of_each_row():
    """Against all subsets of eight rows, with two alike: what one subset alone explains is found."""
    rng = np.random.default_rng(5)
    g, h = rng.integers(-(2**20), 2**20, 8), rng.integers(1, 2**20, 8)
    g[7], h[7] = g[6], h[6]
    packed = (g << 32) + h
    codes = np.array([0, 1, 2, 0, 1, 2, 0, 1], np.uint8)
    sums = bin_sums(packed, codes, 4)
    told = rows_of_bins(kinds_of(packed), sums)
    subsets = [set(s) for n in range(9) for s in itertools.combinations(range(8), n)]
    for row in range(8):
        sure = [code for code in range(4) if all(row in s for s in subsets if packed[list(s)].sum() == sums[code])]
        assert told[row] == (sure[0] if sure else -1)
    assert told[:6].tolist() == codes[:6].tolist()
    assert told[6:].tolist() == [-1, -1]


def test_rows_that_are_alike_cannot_be_told_apart():
    """In the first tree there are two kinds of rows, so a bin with some of each names nobody."""
    packed = np.repeat(np.array([(5 << 32) + 3, (-7 << 32) + 3]), 4)
    assert (rows_of_bins(kinds_of(packed), bin_sums(packed, np.array([0, 1] * 4, np.uint8), 2)) == -1).all()
    assert kinds_of(np.arange(40) << 32) is None


def test_densities_and_rows_on_a_run(context):
    """All numbers of rows in bins, exactly; bins of rows in small nodes, of which none is wrong."""
    outcomes = attacked(context, ("bin_sums",))
    assert [(o.attacker, o.target) for o in outcomes] == [
        ("bank", f"{what} of {party}")
        for party in ("shop", "telco")
        for what in ("numbers of rows in bins", "bins of rows")
    ]
    for counts, rows in (outcomes[:2], outcomes[2:]):
        assert counts.value.estimate == 1.0
        assert {counts.verdict, rows.verdict} == {AS_STATED}
        assert rows.value.estimate > 0.05
        claims, right = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", rows.found))
        assert claims == right > 40


def claims_of(outcome):
    """How often a bin was claimed, and how often that was right."""
    return tuple(int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", outcome.found))


@pytest.fixture(scope="module")
def guarded():
    """What the label holder finds about the shop, by how its sums are protected."""
    found = {}
    schema = Schema.from_public(bounds=dict.fromkeys(COLUMNS["shop"] + COLUMNS["telco"], (-3.0, 3.0)))
    for name, options in {
        "nothing": {},
        "min_rows": {"min_rows_per_sum": 40},
        "bins": {"schema": schema},
        "dp": {"schema": schema, "dp": (1.0, 1e-6)},
    }.items():
        fed = Federation.vertical(TABLES, labels=("bank", TABLE["repaid"]))
        run = fed.fit("vertical.homomorphic", record=True, **(TREES | options))
        context = Context(run, labels={"bank": TABLE["repaid"]}, tables=TABLES)
        found[name] = attacked(context, ("bin_sums",))[:2]
    return found


def test_a_minimum_of_rows_takes_small_nodes_away(guarded):
    """Numbers of rows stay known; with 40 rows in every node hardly any row is placed, where many were."""
    assert guarded["min_rows"][0].value.estimate == 1.0
    assert claims_of(guarded["nothing"][1])[1] > 10 * claims_of(guarded["min_rows"][1])[1]


def test_noise_takes_both_away(guarded):
    """Numbers of rows are wrong as a rule, and what is claimed of rows is mostly wrong, where all of it was right."""
    assert guarded["bins"][0].value.estimate == 1.0
    assert guarded["dp"][0].value.estimate < 0.2
    claims, right = claims_of(guarded["bins"][1])
    assert claims == right > 40
    claims, right = claims_of(guarded["dp"][1])
    assert right < 0.5 * claims


def test_without_truth_nothing_is_counted(seen):
    """Both say what they claim; regressions are left alone."""
    assert {outcome.verdict for outcome in attacked(Context(seen.run))} == {NOT_SCORED}
    numbers = TABLE["income"] + TABLE["basket"]
    fed = Federation.vertical(TABLES, labels=("bank", numbers), task="regression")
    run = fed.fit("vertical.homomorphic", record=True, n_estimators=1, max_depth=1, max_bins=4)
    assert {outcome.verdict for outcome in attacked(Context(run))} == {NOT_RUN}


def test_what_attacks_are_not_for_is_said():
    """Three classes are none of theirs, and sums of rows whose weights nobody has recorded cannot be made again."""
    labels, weight = np.where(np.arange(N_ROWS) % 3, TABLE["repaid"], "later"), np.arange(N_ROWS) % 2 + 0.5
    few = {**TREES, "n_estimators": 1}
    three = Federation.vertical(TABLES, labels=("bank", labels)).fit("vertical.homomorphic", record=True, **few)
    outcomes = attacked(Context(three, labels={"bank": labels}, tables=TABLES))
    assert {(each.verdict, each.found) for each in outcomes} == {
        (NOT_RUN, "labels are of 3 classes; this attack is on two")
    }
    fed = Federation.vertical(TABLES, labels=("bank", TABLE["repaid"]), sample_weight=weight)
    weighted = fed.fit("vertical.homomorphic", record=True, **few)
    outcomes = attacked(Context(weighted, labels={"bank": TABLE["repaid"]}, tables=TABLES))
    verdicts = {(each.attack, each.verdict) for each in outcomes}
    assert verdicts == {("label_clusters", AS_STATED), ("bin_sums", NOT_RUN)}
