"""MP-FedXGB opens numerators to one party and denominators to another. Each of them alone gets the sums behind them.

For two possible splits i and j of a node SecureArgmax opens, with a = H_L + lambda, b = H_R + lambda, T = a + b,

    to P2     P_i Q_j - P_j Q_i        P = G_L^2 b + G_R^2 a
    to P1     Q_i Q_j                  Q = a b

and at last whether the winner is better than no split. "H and G are confused thoroughly", says the paper. But all sums
are whole numbers of known units, and which candidates were compared is public, so:

P2, in the first tree, where all rows have the same hessian and one of two gradients
    1  of its own candidates it knows a and b. Modulo a the opened number is G_L^2 b Q_j, modulo b it is G_R^2 a Q_j: a
       handful of G_L and G_R fit. Those of both candidates must add up to one G, and fit the number itself
    2  T P = (T G_L - a G)^2 + Q G^2. From a known candidate to one that it was compared with: for every possible number
       of rows at the left there is one square to check. So everybody's candidates follow, one comparison after another
    3  the winner's two sides are the nodes below; there the test of the winner takes the place of step 1
   All of it holds as well with all labels exchanged. Who knows which label is the rarer one knows which.

P1, in every tree: `denominators_opened`.

Which of a candidate's sides is the left one follows for most: left sides grow from bin to bin of a column, and those of
two sibling nodes add up to their parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from hedgerow.attacks.mp_fedxgb.seen_openings import OpenedNode, Pair, in_order
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.losses import Quantiser, logistic_gradients

MANY_OPTIONS = 100_000
"""A comparison that more combinations of left and right sums than this would fit is left out."""
MANY_SIDES = 50
"""Of one candidate that fit: from more than this nothing is concluded."""


class Side(NamedTuple):
    """Rows at the left, and positive ones among them."""

    rows: int
    positives: int

    def mirrored(self, whole: Side) -> Side:
        """The other side of a whole."""
        return Side(whole.rows - self.rows, whole.positives - self.positives)

    def holds(self, larger: Side) -> bool:
        """Whether these rows can be among those."""
        return 0 <= larger.positives - self.positives <= larger.rows - self.rows


class Gradients(NamedTuple):
    """In the first tree: of a row with label 0, of one with label 1, and the hessian of all; whole numbers."""

    zero: int
    one: int
    hessian: int


GradientsFor = Callable[[int], Gradients]
"""From the number of positive rows, of which the score at the start may be made."""


def from_score(score: float, quantiser: Quantiser) -> GradientsFor:
    """All rows start from a score that everybody knows."""
    fixed = _gradients(np.array([score]), quantiser)[0]
    return lambda _: fixed


def from_base_rate(n_rows: int, quantiser: Quantiser) -> GradientsFor:
    """All rows start from the best constant, which tells the number of positives and is not told."""
    rate = np.clip(np.arange(n_rows + 1) / n_rows, 1e-15, 1.0 - 1e-15)
    listed = _gradients(np.log(rate / (1.0 - rate)), quantiser)
    return lambda positives: listed[positives]


def _gradients(scores: Floats, quantiser: Quantiser) -> list[Gradients]:
    found = []
    for label in (0.0, 1.0):
        packed = np.empty(len(scores), np.int64)
        labels = np.full(len(scores), label, np.float32)
        logistic_gradients(scores.astype(np.float32), labels, np.float32(0.0), *quantiser.unit_scales, packed)
        found.append(packed)
    listed = zip((found[0] >> 32).tolist(), (found[1] >> 32).tolist(), (found[0] & 0xFFFFFFFF).tolist(), strict=True)
    return [Gradients(*each) for each in listed]


@dataclass(frozen=True)
class Rules:
    """What everybody knows: lambda and what a split must gain, in units of the whole numbers."""

    lambda_int: int
    threshold: int = 0


# --- P2: from numerators to sums of labels ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """A node whose rows and positives are known, or supposed: what any candidate of it would have opened."""

    whole: Side
    gradients: Gradients
    rules: Rules

    def sums(self, side: Side) -> tuple[int, int]:
        """Of gradients and of hessians."""
        zero, one, hessian = self.gradients
        return zero * (side.rows - side.positives) + one * side.positives, hessian * side.rows

    def fraction(self, side: Side) -> tuple[int, int]:
        """P and Q of a candidate with this left side."""
        (G, H), (G_L, H_L), lam = self.sums(self.whole), self.sums(side), self.rules.lambda_int
        a, b = H_L + lam, H - H_L + lam
        return G_L**2 * b + (G - G_L) ** 2 * a, a * b

    def difference(self, first: Side, second: Side) -> int:
        """What is opened about two candidates."""
        (P, Q), (P_other, Q_other) = self.fraction(first), self.fraction(second)
        return P * Q_other - P_other * Q

    def test(self, winner: Side) -> int:
        """What is opened about the winner and no split."""
        (P, Q), (G, H), lam = self.fraction(winner), self.sums(self.whole), self.rules.lambda_int
        return P * (H + lam) - (G**2 + self.rules.threshold * (H + lam)) * Q

    def winners(self, value: int, rows: Ints) -> list[Side]:
        """The sides that would have opened this test, among those with `rows` rows."""
        (G, H), lam = self.sums(self.whole), self.rules.lambda_int
        Q = self._denominators(rows)
        numerators = (float(value) / float(H + lam)) + Q * (float(G**2) / float(H + lam) + float(self.rules.threshold))
        return [side for side in self._sides(rows, numerators) if self.test(side) == value]

    def compared(self, known: Side, value: int, rows: Ints, *, known_is_first: bool) -> list[Side]:
        """The sides that would have opened this number against a known one, among those with `rows` rows."""
        P_known, Q_known = self.fraction(known)
        signed = value if known_is_first else -value
        numerators = self._denominators(rows) * (P_known / Q_known) - signed / Q_known
        return [side for side in self._sides(rows, numerators) if self.difference(known, side) == signed]

    def _denominators(self, rows: Ints) -> Floats:
        a = rows * float(self.gradients.hessian) + self.rules.lambda_int
        total: Floats = a * (float(self.sums(self.whole)[1] + 2 * self.rules.lambda_int) - a)
        return total

    def _sides(self, rows: Ints, P: Floats) -> list[Side]:
        """Whole numbers of positives with which the numerator is about P: T P = (T G_L - a G)^2 + Q G^2."""
        (G, H), (zero, one, hessian) = self.sums(self.whole), self.gradients
        T, a = float(H + 2 * self.rules.lambda_int), rows * float(hessian) + self.rules.lambda_int
        rest = self._denominators(rows) * float(G**2)
        root = np.sqrt(np.maximum(T * P - rest, 0.0))
        slack = 1e-3 + 1e-7 * self.whole.rows  # rounding moves the root by much less
        found: set[Side] = set()
        for signed in (root, -root):
            k = ((a * G + signed) / T - zero * rows) / float(one - zero)
            near = np.rint(k)
            others = self.whole.positives - near
            fits = (np.abs(k - near) < slack) & (near >= 0) & (near <= rows)
            fits &= (others >= 0) & (others <= self.whole.rows - rows) & (T * P - rest > -1e-6 * (T * np.abs(P) + rest))
            found |= {Side(int(n), int(p)) for n, p in zip(rows[fits], near[fits], strict=True)}
        return sorted(found)


@dataclass(frozen=True)
class SumsOfLabels:
    """What P2 finds out about one node: the left side of each candidate, all that fit where several do."""

    whole: Side
    sides: Mapping[int, tuple[Side, ...]]
    n_candidates: int

    @property
    def missing(self) -> int:
        """Candidates of which nothing is known."""
        return self.n_candidates - len(self.sides)


def sums_of_labels(
    nodes: Sequence[OpenedNode],
    n_rows: int,
    own: Mapping[int, Mapping[int, int]],
    columns: Sequence[Sequence[int]],
    gradients: GradientsFor,
    rules: Rules,
    *,
    positives_are_rarer: bool = True,
) -> list[SumsOfLabels | None]:
    """All nodes of the first tree, root first, parents before children; None where nothing fits or nothing is known.

    `own` says of nodes whose rows P2 knows, the root and what its own splits made of it, how many rows each of its own
    candidates sends left there. `columns` are candidates whose left sides grow, one list per column (two for one with
    missing values, which go right in the first and left in the second).
    """
    if not nodes:
        return []
    known = own.get(0, {})
    roots = [Side(n_rows, p) for p in positive_rows(nodes[0], n_rows, known, gradients, rules)]
    fitting = _best([_explained(nodes[0], Totals(root, gradients(root.positives), rules), known) for root in roots])
    fitting.sort(key=lambda result: result.whole.positives, reverse=not positives_are_rarer)
    if not fitting:
        return [None] * len(nodes)
    start = gradients(fitting[0].whole.positives)
    found: list[SumsOfLabels | None] = [_grown(fitting[0], columns)]
    for place, node in enumerate(nodes[1:], start=1):
        wholes = _wholes(node, nodes, found)
        if len(wholes) > 1:
            found = _settled(nodes, found, columns)
            wholes = _wholes(node, nodes, found)
        fitting = _best([_explained(node, Totals(whole, start, rules), own.get(place, {})) for whole in wholes])
        found.append(_grown(fitting[0], columns) if len(fitting) == 1 else None)
    return _settled(nodes, found, columns)


def _best(results: Sequence[SumsOfLabels]) -> list[SumsOfLabels]:
    """Those that explain most."""
    least = min((result.missing for result in results), default=0)
    return [result for result in results if result.missing == least]


def _wholes(node: OpenedNode, nodes: Sequence[OpenedNode], found: Sequence[SumsOfLabels | None]) -> list[Side]:
    """What a node below the root may hold: one side of its parent's split."""
    if node.above is None or (parent := found[node.above[0]]) is None:
        return []
    lefts = parent.sides.get(nodes[node.above[0]].winner, ())
    return sorted(left if node.above[1] else left.mirrored(parent.whole) for left in lefts)


def _settled(
    nodes: Sequence[OpenedNode], found: Sequence[SumsOfLabels | None], columns: Sequence[Sequence[int]]
) -> list[SumsOfLabels | None]:
    """With what nodes tell about each other; twice, as what becomes clear about one may make others clear."""
    settled = list(found)
    for _ in range(2):
        _agree(nodes[: len(settled)], settled)
        settled = [None if result is None else _grown(result, columns) for result in settled]
    return settled


def _grown(result: SumsOfLabels, columns: Sequence[Sequence[int]]) -> SumsOfLabels:
    """Without left sides that do not fit the others of their column."""
    sides = dict(result.sides)
    for candidates in columns:
        listed = [candidate for candidate in candidates if candidate in sides]
        sides |= zip(listed, in_order([sides[candidate] for candidate in listed], Side.holds), strict=True)
    return SumsOfLabels(result.whole, sides, result.n_candidates)


def _explained(node: OpenedNode, totals: Totals, own: Mapping[int, int]) -> SumsOfLabels:
    """From the winner's test to all candidates."""
    half = np.arange(totals.whole.rows // 2 + 1)

    def rows(candidate: int) -> Ints:
        return np.array([own[candidate]]) if candidate in own else half

    neighbours: dict[int, list[tuple[int, int, bool]]] = {node.winner: []}
    for i, j, value in node.pairs:
        neighbours.setdefault(i, []).append((j, value, True))
        neighbours.setdefault(j, []).append((i, value, False))
    first = totals.winners(node.test, rows(node.winner))
    # Of each candidate: side -> those of its neighbour that it was found from.
    sides: dict[int, dict[Side, list[Side]]] = {node.winner: {side: [] for side in first}} if first else {}
    came_from: dict[int, int] = {}
    for here in (queue := list(sides)):
        for other, value, is_first in neighbours[here]:
            if other in sides or len(sides[here]) > MANY_SIDES:
                continue
            options: dict[Side, list[Side]] = {}
            for known in sides[here]:
                for side in totals.compared(known, value, rows(other), known_is_first=is_first):
                    options.setdefault(side, []).append(known)
            if options:
                sides[other], came_from[other] = options, here
                queue.append(other)
    _pruned(sides, came_from, queue)
    oriented = {
        candidate: set(options)
        if candidate in own
        else set(options) | {side.mirrored(totals.whole) for side in options}
        for candidate, options in sides.items()
    }
    listed = {candidate: tuple(sorted(options)) for candidate, options in oriented.items()}
    return SumsOfLabels(totals.whole, listed, len(neighbours))


def _pruned(sides: dict[int, dict[Side, list[Side]]], came_from: Mapping[int, int], order: Sequence[int]) -> None:
    """Leave out sides that led to nothing, and then those that only such sides led to."""
    for candidate in reversed(order[1:]):
        origin = came_from[candidate]
        useful = {known for origins in sides[candidate].values() for known in origins}
        sides[origin] = {side: origins for side, origins in sides[origin].items() if side in useful}
    for candidate in order[1:]:
        left = sides[came_from[candidate]]
        sides[candidate] = {
            side: origins for side, origins in sides[candidate].items() if any(known in left for known in origins)
        }


def _agree(nodes: Sequence[OpenedNode], found: list[SumsOfLabels | None]) -> None:
    """Left and right children of a node have together what it has, candidate by candidate."""
    children: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        if node.above is not None:
            children.setdefault(node.above[0], []).append(place)
    for parent, (left, right) in ((parent, both) for parent, both in children.items() if len(both) == 2):
        places = (parent, left, right)
        family = [result for result in (found[place] for place in places) if result is not None]
        if len(family) < len(places):
            continue
        sides = [dict(result.sides) for result in family]
        for candidate, wholes in family[0].sides.items():
            fitting = _families(wholes, *(result.sides.get(candidate, ()) for result in family[1:]))
            for better, options in zip(sides, zip(*fitting, strict=True), strict=False):  # none if nothing fits
                better[candidate] = tuple(sorted(set(options)))
        for place, result, better in zip(places, family, sides, strict=True):
            found[place] = SumsOfLabels(result.whole, better, result.n_candidates)


def _families(wholes: Sequence[Side], lefts: Sequence[Side], rights: Sequence[Side]) -> list[tuple[Side, Side, Side]]:
    """Sides at a node and at its children that go together; a child of which nothing is known may have any."""
    found = []
    for whole in wholes:
        for left in lefts or [right.mirrored(whole) for right in rights]:
            right = left.mirrored(whole)
            if (right in rights or not rights) and Side(0, 0).holds(left) and Side(0, 0).holds(right):
                found.append((whole, left, right))
    return found


def own_counts(nodes: Sequence[OpenedNode], goes_left: Mapping[int, Bools]) -> dict[int, dict[int, int]]:
    """Of nodes whose rows P2 knows: how many rows each of its own candidates sends left, from where they send all."""
    rows = known_rows(nodes, goes_left)
    return {place: {c: int((here & left).sum()) for c, left in goes_left.items()} for place, here in rows.items()}


def known_rows(nodes: Sequence[OpenedNode], goes_left: Mapping[int, Bools]) -> dict[int, Bools]:
    """Of the nodes that P2 knows the rows of, by their place: the root, and what its own splits made of it."""
    rows: dict[int, Bools] = {}
    for place, node in enumerate(nodes):
        if node.above is None:
            rows[place] = np.ones(len(next(iter(goes_left.values()), ())), np.bool_)
        elif node.above[0] in rows and nodes[node.above[0]].winner in goes_left:
            left = goes_left[nodes[node.above[0]].winner]
            rows[place] = rows[node.above[0]] & (left if node.above[1] else ~left)
    return rows


def positive_rows(
    node: OpenedNode, n_rows: int, own: Mapping[int, int], gradients: GradientsFor, rules: Rules
) -> list[int]:
    """How many rows of the root are positive: all numbers that fit the comparisons between P2's own candidates.

    Where there are none (First-Layer-Mask), those that fit the winner's test with any number of rows at its left, and
    its last comparison. That takes time with the square of the rows: seconds for some thousand.
    """
    pairs = [pair for pair in node.pairs if pair.first in own and pair.second in own and pair.value]
    pairs.sort(key=lambda pair: min(min(own[c], n_rows - own[c]) for c in pair[:2]))
    if not pairs:
        return _by_test(node, n_rows, gradients, rules)
    if gradients(0) != gradients(n_rows // 2):
        return [p for p in range(1, n_rows) if _fitting(pairs[0], n_rows, own, gradients(p), rules, {p})]
    possible: set[int] | None = None
    for pair in pairs:
        possible = _fitting(pair, n_rows, own, gradients(0), rules, possible)
        if possible is not None and len(possible) <= 2:  # all labels exchanged fit as well
            break
    return sorted(possible or ())


def _by_test(node: OpenedNode, n_rows: int, gradients: GradientsFor, rules: Rules) -> list[int]:
    half = np.arange(n_rows // 2 + 1)
    found = []
    for p in range(n_rows + 1):
        totals = Totals(Side(n_rows, p), gradients(p), rules)
        winners = totals.winners(node.test, half)
        for first, second, value in node.pairs[-1:]:
            is_first = first == node.winner
            if node.winner in (first, second):
                winners = [w for w in winners if totals.compared(w, value, half, known_is_first=is_first)]
        if winners:
            found.append(p)
    return found


def _fitting(
    pair: Pair, n_rows: int, own: Mapping[int, int], gradients: Gradients, rules: Rules, among: set[int] | None
) -> set[int] | None:
    """Numbers of positive rows that fit a comparison of two own candidates: of those `among`, None for all."""
    totals = Totals(Side(n_rows, 0), gradients, rules)
    lefts = [own[pair.first], own[pair.second]]
    a = [totals.sums(Side(n, 0))[1] + rules.lambda_int for n in lefts]
    b = [totals.sums(totals.whole)[1] + 2 * rules.lambda_int - each for each in a]
    Q = [a[0] * b[0], a[1] * b[1]]
    # Left and right of the first, whose P is multiplied by the other's Q; then of the second, whose P is taken off.
    parts = [(lefts[0], a[0], b[0] * Q[1]), (n_rows - lefts[0], b[0], a[0] * Q[1])]
    parts += [(lefts[1], a[1], -b[1] * Q[0]), (n_rows - lefts[1], b[1], -a[1] * Q[0])]
    options: dict[int, list[int]] = {}
    for place in sorted(range(4), key=lambda place: parts[place][0]):
        n, modulus, factor = parts[place]
        options[place] = _square_fits(n, modulus, factor, pair.value, gradients)
        if not options[place]:
            return set()
    if max(len(options[0]) * len(options[1]), len(options[2]) * len(options[3])) > MANY_OPTIONS:
        return among
    found = set()
    first, second = _by_sum(options[0], options[1]), _by_sum(options[2], options[3])
    for p in first.keys() & second.keys() & (first.keys() if among is None else among):
        whole = Totals(Side(n_rows, p), gradients, rules)
        both = product((Side(lefts[0], k) for k in first[p]), (Side(lefts[1], k) for k in second[p]))
        if any(whole.difference(*sides) == pair.value for sides in both):
            found.add(p)
    return found


def _square_fits(n: int, modulus: int, factor: int, value: int, gradients: Gradients) -> list[int]:
    """Positives among n rows with G^2 factor = value modulo the modulus."""
    number = np.int64 if modulus < 1 << 31 else object
    k = np.arange(n + 1).astype(number)
    G = (gradients.zero * n + (gradients.one - gradients.zero) * k) % modulus
    fits = (G * G % modulus) * (factor % modulus) % modulus == value % modulus
    return [int(place) for place in np.flatnonzero(fits)]


def _by_sum(lefts: Iterable[int], rights: Sequence[int]) -> dict[int, list[int]]:
    """Numbers at the left, by the sum of left and right."""
    found: dict[int, list[int]] = {}
    for left in lefts:
        for right in rights:
            found.setdefault(left + right, []).append(left)
    return found
