"""Attacks on real trainings: what P1 and P2 were shown in the first tree, used as they would, held against the truth.

All parties run in one process, so the words that are opened to one of them are read off as it puts them together. The
attacks get these, what is public, and what the attacker knows of its own columns; the truth only for the score.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from experiments import label_guesses
from experiments.mp_fedxgb.cells import IN_BUCKETS, PAPER, Cell
from experiments.mp_fedxgb.datasets import PARTIES, Ints, columns_of, in_buckets, load, rows_of
from experiments.mp_fedxgb.methods import fit
from hedgerow.attacks.mp_fedxgb import bucket_labels
from hedgerow.attacks.mp_fedxgb.argmax_opened import Rules, Side, SumsOfLabels, from_score, sums_of_labels
from hedgerow.attacks.mp_fedxgb.denominators_opened import sums_of_hessians
from hedgerow.attacks.mp_fedxgb.seen_openings import OpenedNode, Pair
from hedgerow.crypto import limbs
from hedgerow.protocols.published.mp_fedxgb.argmax import rounds
from hedgerow.protocols.published.mp_fedxgb.messages import (
    DenominatorShare,
    NumeratorShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import Revealed
from hedgerow.protocols.shares.scales import Scales

DATASET = "give_me_some_credit"
SIZES = (3_000, 30_000)
DEPTH = 3
P1, P2 = PARTIES[:2]

Seen = dict[tuple[type, int, int], list[list[int]]]
"""(kind, level, round) -> the numbers of each node, in the first tree."""


@dataclass(frozen=True)
class Node:
    """A node of the first tree: what was opened about it, and the rows that it has in truth."""

    to_p2: OpenedNode
    to_p1: OpenedNode
    rows: Ints


@dataclass(frozen=True)
class Attacked:
    """A training and its truth."""

    codes: Ints  # [columns, rows]
    labels: Ints
    nodes: list[Node]
    scales: Scales

    @property
    def candidates(self) -> list[tuple[int, int]]:
        """(column, last bucket at the left) of every possible split, in order."""
        return [(column, k) for column, code in enumerate(self.codes) for k in range(code.max())]

    @property
    def chains(self) -> list[list[int]]:
        """Candidates of each column, in the order of buckets."""
        ends = np.cumsum([code.max() for code in self.codes]).tolist()
        return [list(range(end - int(code.max()), end)) for code, end in zip(self.codes, ends, strict=True)]

    def of(self, party: str) -> list[int]:
        """A party's candidates."""
        own = columns_of(len(self.codes))[party]
        return [number for number, (column, _) in enumerate(self.candidates) if column in own]

    def sides(self, node: Node) -> list[Side]:
        """What every candidate sends left at a node."""
        positive = self.labels[node.rows] == 1
        lefts = (self.codes[column, node.rows] <= cut for column, cut in self.candidates)
        return [Side(int(left.sum()), int((left & positive).sum())) for left in lefts]


def run(quick: bool) -> list[dict[str, Any]]:
    """What was recovered, and how much of it was right."""
    return [line for n_rows in (SIZES[:1] if quick else SIZES) for line in _lines(n_rows)]


def _lines(n_rows: int) -> Iterator[dict[str, Any]]:
    tree = trained(n_rows)
    shown = sum(len(node.to_p2.pairs) + 1 for node in tree.nodes)
    found = as_p2(tree)
    for who, candidates in (
        ("own", tree.of(P2)),
        ("others'", sorted(set(range(len(tree.candidates))) - {*tree.of(P2)})),
    ):
        yield _line(n_rows, f"P2: positive rows left of {who} splits", shown, p2_score(tree, found, candidates))
    guessed = label_guesses.from_buckets(known_buckets(tree, found), tree.labels)
    labels = {"exactly": guessed.certain_right, "but for left and right": 0, "of": n_rows}
    what = f"P2: labels of rows for certain (all rows ranked by guesses: AUC {guessed.area.estimate:.3f})"
    yield _line(n_rows, what, shown, labels)
    foreign = sorted(set(range(len(tree.candidates))) - {*tree.of(P1)})
    yield _line(n_rows, "P1: rows left of foreign splits", shown, p1_score(tree, foreign))


def _line(n_rows: int, what: str, shown: int, score: dict[str, int]) -> dict[str, Any]:
    return {"rows": n_rows, "who finds what, first tree": what, "numbers opened to it": shown, **score}


# --- trainings -------------------------------------------------------------------------------------------------------


def trained(n_rows: int) -> Attacked:
    """One tree by the published protocol."""
    X, y = _rows(n_rows)
    seen: Seen = {}
    with _watched(seen):
        job = fit(Cell(DATASET, PAPER, trees=1, depth=DEPTH), X, y, transport="memory").job
    tree = Attacked(X.T.astype(np.int64), y, [], Scales.of(job, n_rows))
    level: list[tuple[Ints, tuple[int, bool] | None]] = [(np.arange(n_rows), None)]
    for depth in range(DEPTH):
        level = _grown(tree, seen, depth, level)
    return tree


def _rows(n_rows: int) -> tuple[Any, Ints]:
    """Every value as the number of its bucket."""
    data = load(DATASET)
    train, _ = rows_of(data.y, "file", 0, n_rows, 0)
    return in_buckets(data.X[train], np.arange(n_rows), IN_BUCKETS), data.y[train]


@contextmanager
def _watched(seen: Seen) -> Iterator[None]:
    """Keeps what P1 and P2 put together in the first tree."""
    original = Mesh.reveal

    def reveal(self: Mesh, kind: type[Revealed], share: Any, *, to: str, fields: dict[str, int]) -> Any:
        value = original(self, kind, share, to=to, fields=fields)
        if value is not None and "level" in fields and fields["tree"] == 0:
            numbers = limbs.to_ints(value).reshape(len(value), -1).tolist()
            seen[kind, fields["level"], fields.get("round", 0)] = numbers
        return value

    with patch.object(Mesh, "reveal", reveal):
        yield


def _grown(
    tree: Attacked, seen: Seen, level: int, nodes: list[tuple[Ints, tuple[int, bool] | None]]
) -> list[tuple[Ints, tuple[int, bool] | None]]:
    """Add the nodes of a level to the tree; the rows of those below."""
    played = rounds([int(code.max()) for code in tree.codes])
    below = []
    for place, (rows, above) in enumerate(nodes):
        alive = np.arange(len(tree.candidates))
        pairs: dict[type, list[Pair]] = {NumeratorShare: [], DenominatorShare: []}
        for number, each in enumerate(played):
            for kind, listed in pairs.items():
                opened = seen[kind, level, number][place]
                listed.extend(map(Pair, alive[each.first].tolist(), alive[each.first + 1].tolist(), opened))
            signs = np.array(seen[NumeratorShare, level, number][place], object) < 0
            alive = alive[each.winners(signs.astype(np.int64))]
        winner, (gain,) = int(alive[0]), seen[TestNumeratorShare, level, 0][place]
        (test,) = seen[TestDenominatorShare, level, 0][place]
        to_p2 = OpenedNode(tuple(pairs[NumeratorShare]), winner, gain, above)
        tree.nodes.append(Node(to_p2, OpenedNode(tuple(pairs[DenominatorShare]), winner, test, above), rows))
        if gain > 0:
            column, cut = tree.candidates[winner]
            left = tree.codes[column, rows] <= cut
            here = len(tree.nodes) - 1
            below += [(rows[left], (here, True)), (rows[~left], (here, False))]
    return below


# --- P2 --------------------------------------------------------------------------------------------------------------


def counts_of_p2(tree: Attacked) -> dict[int, dict[int, int]]:
    """Of nodes whose rows P2 knows, the root and what its own splits make of it: rows left of its own candidates."""
    own, known = tree.of(P2), {}
    for place, node in enumerate(tree.nodes):
        above = node.to_p2.above
        if above is None or (above[0] in known and tree.nodes[above[0]].to_p2.winner in own):
            sides = tree.sides(node)
            known[place] = {candidate: sides[candidate].rows for candidate in own}
    return known


def as_p2(tree: Attacked) -> list[SumsOfLabels | None]:
    """The attack; scores begin at 0, which is public."""
    scales, opened = tree.scales, [node.to_p2 for node in tree.nodes]
    rules = Rules(scales.lambda_int, scales.threshold)
    known = from_score(0.0, scales.quantiser)
    return sums_of_labels(opened, len(tree.labels), counts_of_p2(tree), tree.chains, known, rules)


def p2_score(tree: Attacked, found: list[SumsOfLabels | None], candidates: list[int]) -> dict[str, int]:
    """Over all nodes."""
    answers = []
    for node, result in zip(tree.nodes, found, strict=True):
        whole, truth = Side(len(node.rows), int(tree.labels[node.rows].sum())), tree.sides(node)
        for candidate in candidates:
            sides = set() if result is None else set(result.sides.get(candidate, ()))
            answers.append((sides, truth[candidate], truth[candidate].mirrored(whole)))
    return _score(answers)


def known_buckets(tree: Attacked, found: list[SumsOfLabels | None]) -> list[bucket_labels.Buckets]:
    """P2's own columns at nodes whose rows it knows, with the positives of each bucket that it found."""
    out = []
    for place in counts_of_p2(tree):
        result, rows = found[place], tree.nodes[place].rows
        for column in columns_of(len(tree.codes))[P2]:
            sides = [] if result is None else [result.sides.get(c, ()) for c in tree.chains[column]]
            if result is None or not all(len(each) == 1 for each in sides):
                continue
            codes = np.full(len(tree.labels), bucket_labels.UNKNOWN)
            codes[rows] = tree.codes[column, rows]
            positives = np.diff([0, *(each[0].positives for each in sides), result.whole.positives])
            out.append(bucket_labels.Buckets(codes, positives))
    return out


# --- P1 --------------------------------------------------------------------------------------------------------------


def p1_score(tree: Attacked, candidates: list[int]) -> dict[str, int]:
    """Sums of hessians at the left are numbers of rows in the first tree; P1 knows how many rows each node has."""
    scales = tree.scales
    hessian = from_score(0.0, scales.quantiser)(0).hessian
    answers = []
    for node in tree.nodes:
        total = len(node.rows) * hessian
        found = sums_of_hessians(node.to_p1, total, scales.lambda_int, tree.chains)
        truth = tree.sides(node)
        for candidate in candidates:
            left = truth[candidate].rows * hessian
            answers.append((set(found.get(candidate, ())), left, total - left))
    return _score(answers)


def _score(answers: list[tuple[set[Any], Any, Any]]) -> dict[str, int]:
    """From (what was found, the truth, the truth of the other side)."""
    exactly = sum(found == {truth} for found, truth, _ in answers)
    mirrored = sum(found == {truth, other} and truth != other for found, truth, other in answers)
    return {"exactly": exactly, "but for left and right": mirrored, "of": len(answers)}
