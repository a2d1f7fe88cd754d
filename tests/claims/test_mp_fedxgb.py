"""MP-FedXGB's claims about what its openings hide, held against real runs of vertical.mp_fedxgb. They are false.

Attacks get what one party received or computed itself. Truth is there to count with only.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.attacks.mp_fedxgb.argmax_opened import (
    Rules,
    Side,
    from_base_rate,
    from_score,
    known_rows,
    own_counts,
    sums_of_labels,
)
from hedgerow.attacks.mp_fedxgb.denominators_opened import leaf_sizes, sums_of_hessians
from hedgerow.attacks.mp_fedxgb.seen_openings import (
    DENOMINATORS,
    NUMERATORS,
    Columns,
    OpenedNode,
    Pair,
    opened_nodes,
    opened_steps,
    opened_values,
    outcome,
    plan_of,
)
from hedgerow.crypto import limbs
from hedgerow.datasets.adult import load_adult
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import PredictionShare, Steps, StepShare
from hedgerow.protocols.published.mp_fedxgb.spec import SPEC as PROTOCOL
from hedgerow.protocols.shares.messages import MaskedWords
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as MINIMAL
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import Recording
from twins.opened_rows import leaves_of_rows
from twins.watched_openings import watched

N_ROWS = 1500
HOLDERS = ("anna", "ben", "carla")
P1, P2, P3 = range(3)
TREES = BoostingParams(n_iterations=2, max_depth=3, learning_rate=0.3, min_child_weight=0.0)


@cache
def make_data():
    """People of the adult dataset: columns of three parties, some with gaps."""
    people = load_adult("train", as_frame="pandas")
    X, rng = people.X.iloc[:N_ROWS], np.random.default_rng(0)
    values = {name: X[name].to_numpy(np.float64) for name in X if not hasattr(X[name], "cat")}
    for name, level in (("sex", "Female"), ("marital-status", "Married-civ-spouse"), ("relationship", "Own-child")):
        values[level] = (X[name] == level).to_numpy(np.float64)
    for name in ("age", "hours-per-week"):
        values[name] = np.where(rng.random(N_ROWS) < 0.1, np.nan, values[name])

    def table(*names):
        return Table(tuple(Column(name, values[name]) for name in names), N_ROWS, names, has_names=True)

    return {
        "anna": PartyData(table("education-num", "fnlwgt", "Female"), people.y[:N_ROWS].astype(np.float64), (0, 1)),
        "ben": PartyData(table("age", "capital-gain", "Married-civ-spouse")),
        "carla": PartyData(table("hours-per-week", "capital-loss", "Own-child")),
    }


@cache
def run(base_score=None, *, first_layer_mask=False):
    """A run of the published protocol: what was opened to whom, and the truth."""
    boosting = BoostingParams(**{**vars_of(TREES), "base_score": base_score})
    job = MpFedXgbJob(
        HOLDERS,
        "anna",
        "a run",
        boosting=boosting,
        max_bins=12,
        first_layer_mask=first_layer_mask,
        accept_known_leaks=True,
    )
    data = make_data()
    with watched() as seen:
        played = play(PROTOCOL, job, data, around=dict.fromkeys(HOLDERS, Recording))
    assert played.errors == {}
    columns = Columns.of(job, plan_of(played.recording("carla").transcript(), job), data)
    scales = columns.plan.scales
    known = from_base_rate(N_ROWS, scales.quantiser) if base_score is None else from_score(base_score, scales.quantiser)
    rules = Rules(scales.lambda_int, round(scales.threshold))
    return SimpleNamespace(
        seen=seen, played=played, columns=columns, known=known, rules=rules, labels=data["anna"].labels == 1
    )


def vars_of(params):
    """The fields of parameters."""
    return {name: getattr(params, name) for name in params.__dataclass_fields__}


def nodes_of(done, party, tree):
    """What was opened to P1 or P2 about a tree."""
    kinds = NUMERATORS if party == P2 else DENOMINATORS
    return opened_nodes(done.played.recording(HOLDERS[party]).transcript(), kinds, tree, done.columns.plan)


def as_p2(done):
    """P2's attack on the first tree: nodes, its own counts, what it found."""
    nodes = nodes_of(done, P2, 0)
    own = own_counts(nodes, done.columns.of_party(P2))
    own = {place: {c: n for c, n in counts.items() if c in nodes[place].candidates} for place, counts in own.items()}
    return nodes, own, sums_of_labels(nodes, N_ROWS, own, done.columns.candidates, done.known, done.rules)


def p2_score(done, nodes, own, found):
    """Candidates by what was found: exactly so, among left and right, or else; own ones of known rows, and others."""
    score = {"own": [0, 0, 0], "others": [0, 0, 0]}
    for place, (node, rows, result) in enumerate(
        zip(nodes, known_rows(nodes, done.columns.goes_left).values(), found, strict=True)
    ):
        whole = Side(int(rows.sum()), int(done.labels[rows].sum()))
        for candidate in node.candidates:
            left = rows & done.columns.goes_left[candidate]
            truth = Side(int(left.sum()), int((left & done.labels).sum()))
            sides = set(() if result is None else result.sides.get(candidate, ()))
            how = 0 if sides == {truth} else 1 if sides == {truth, truth.mirrored(whole)} else 2
            score["own" if candidate in own.get(place, {}) else "others"][how] += 1
    return score


# --- C1, C3: numerators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base_score", [0.0, None])
def test_p2_computes_every_sum_of_labels_of_the_first_tree(base_score):
    """All sums come from G alone, of its own buckets and of others: "H and G are confused thoroughly" is false."""
    done = run(base_score)
    nodes, own, found = as_p2(done)
    assert len(nodes) == 7
    score = p2_score(done, nodes, own, found)
    assert sum(score["own"]) >= 20
    assert score["own"][1:] == [0, 0]
    assert score["others"][2] == 0
    assert score["others"][0] >= 0.9 * sum(score["others"])
    assert outcome(nodes, [result.sides for result in found]).verdict().startswith("ALARM")


# --- C2: denominators ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [0, 1])
def test_p1_computes_every_sum_of_hessians(tree):
    """In any tree: every left sum of the others' columns is found, and most without left and right."""
    done = run()
    nodes, hessians = nodes_of(done, P1, tree), done.seen.gradients[tree][1]
    own = done.columns.of_party(P1)
    exact = among = n = 0
    for node, rows in zip(nodes, known_rows(nodes, done.columns.goes_left).values(), strict=True):
        mine = {c: int(hessians[rows & left].sum()) for c, left in own.items()}
        total = int(hessians[rows].sum())
        found = sums_of_hessians(node, total, done.rules.lambda_int, done.columns.candidates, mine)
        for candidate in node.candidates - own.keys():
            truth = int(hessians[rows & done.columns.goes_left[candidate]].sum())
            n += 1
            exact += found.get(candidate) == (truth,)
            among += truth in found.get(candidate, ())
    assert n > 100
    assert among == n
    assert exact >= 0.6 * n


# --- C4: steps -------------------------------------------------------------------------------------------------------


def test_everybody_learns_the_rows_of_leaves():
    """P1 tells all what was opened: a leaf's sum but for 2 lambda, whatever its size."""
    done = run(0.0)
    (opened,) = done.seen.opened("anna", StepShare, 0)
    told = done.played.recording("carla").messages(Steps, "received", "anna")[0]
    assert np.array_equal(told.words.view(np.uint32), opened.reshape(-1))
    hessian = done.known(0).hessian
    steps = opened_steps(done.played.recording("carla").transcript(), done.columns.plan, 0)
    assert steps == limbs.to_ints(opened).tolist()
    leaves = leaf_sizes(steps, done.rules.lambda_int, hessian)
    (tree,) = leaves_of_rows(values_of(done, 0)[None], *(each[None] for each in done.seen.gradients[0]))
    sizes = sorted(np.bincount(tree.leaf).tolist())
    used = sorted(leaves, key=lambda leaf: leaf.estimate)[-len(sizes) :]
    assert all(leaf.low <= n <= leaf.high for leaf, n in zip(used, sizes, strict=True))
    assert all(abs(leaf.estimate - n) <= 4.0 for leaf, n in zip(used, sizes, strict=True))


def values_of(done, tree):
    """What was opened to P1 of a tree: a value for every row."""
    values = opened_values(done.played.recording("anna").transcript(), tree)
    in_memory = np.concatenate(done.seen.opened("anna", PredictionShare, tree)).reshape(-1).view(np.int64)
    assert np.array_equal(values, in_memory)
    return values


# --- C5: shares of real numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "certain"), [(1.0, 0.5), (10.0, 0.05)])
def test_shares_over_the_reals_show_labels(width, certain):
    """A label minus a random number of a range: outside of what both labels can make, it is plain."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 100_000)
    shares = labels - rng.uniform(-width, width, len(labels))
    plain = (shares < 1.0 - width) | (shares > width)
    assert plain.mean() == pytest.approx(certain, abs=0.01)
    assert ((shares > 0.5) == labels)[plain].all()


# --- C6: First-Layer-Mask --------------------------------------------------------------------------------------------


def test_first_layer_mask_does_not_stop_p2():
    """P2 has no candidate at the root and knows the rows of no node; the root's test is start enough."""
    done = run(first_layer_mask=True)
    nodes, own, found = as_p2(done)
    assert {done.columns.plan.owner_of_cut[c] for c in nodes[0].candidates} == {P1}
    assert not any(own.values())
    score = p2_score(done, nodes, own, found)
    assert score["own"] == [0, 0, 0]
    assert score["others"][2] == 0
    assert score["others"][0] >= 0.9 * sum(score["others"])


# --- C7: predictions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [0, 1])
def test_p1_learns_the_leaf_of_every_row(tree):
    """Rows with equal values are those of one leaf; with its gradients P1 has the sums, and the weight, itself."""
    done = run()
    values, (g, h) = values_of(done, tree), done.seen.gradients[tree]
    (found,) = leaves_of_rows(values[None], g[None], h[None])
    truth = true_leaves(done, tree)
    assert len(found.values) == len(np.unique(truth)) > 4
    assert len(np.unique(found.leaf * 1000 + truth)) == len(found.values)
    weights = -found.gradients / (found.hessians + done.rules.lambda_int)
    unit = 2.0**-done.columns.plan.descent.fraction_bits
    assert found.values * unit == pytest.approx(weights, abs=1e-5)


def true_leaves(done, tree):
    """A number per row that says where it comes to rest."""
    nodes = nodes_of(done, P1, tree)
    parents = {node.above[0] for node in nodes if node.above is not None}
    last_level = {place for place in range(len(nodes)) if depth_of(nodes, place) == TREES.max_depth - 1}
    splits = nodes_of(done, P2, tree)
    leaf = np.zeros(N_ROWS, np.int64)
    for place, (node, rows) in enumerate(zip(nodes, known_rows(nodes, done.columns.goes_left).values(), strict=True)):
        leaf[rows] = 2 * place
        if place in parents or (place in last_level and splits[place].test > 0):
            leaf[rows & ~done.columns.goes_left[node.winner]] += 1
    return leaf


def depth_of(nodes, place):
    """Levels above a node."""
    above = nodes[place].above
    return 0 if above is None else 1 + depth_of(nodes, above[0])


# --- vertical.secret_shared has none of it ---------------------------------------------------------------------------


def test_minimal_disclosure_leaves_nothing_to_work_on():
    """No party gets a message of the published openings; and masked words, taken for numerators, fit nothing."""
    data = make_data()
    job = SecretSharedJob(HOLDERS, "anna", "a run", boosting=TREES, max_bins=12)
    played = play(MINIMAL, job, data, around=dict.fromkeys(HOLDERS, Recording))
    assert played.errors == {}
    kinds = {peek(passed.frame)[0] for name in HOLDERS for passed in played.recording(name).passed}
    assert not any(kind.startswith("vertical.mp_fedxgb.") for kind in kinds)
    assert outcome([], []).n_opened == 0
    done = run()
    received = played.recording("ben").messages(MaskedWords, "received", "anna")
    stream = np.concatenate([message.words for message in received])
    width = 4 * done.columns.plan.scales.wide.limbs
    words = iter(stream[: len(stream) // width * width].reshape(-1, width))
    nodes, own, _ = as_p2(done)
    fed = [fed_with(node, words) for node in nodes]
    found = sums_of_labels(fed, N_ROWS, own, done.columns.candidates, done.known, done.rules)
    assert found == [None] * len(nodes)


def fed_with(node, words):
    """The node with received bytes in place of what the published protocol opens."""

    def number():
        return int.from_bytes(next(words).tobytes(), "little", signed=True)

    return OpenedNode(tuple(Pair(i, j, number()) for i, j, _ in node.pairs), node.winner, number(), node.above)
