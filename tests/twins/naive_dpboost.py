"""The slow, obvious twin of protocols/central_dp: lists of rows, one candidate at a time. Tests assert equal trees.

It draws its noise from the same mechanisms in the same order, so with the same stream it gives the same trees with
noise, too. Everything else is done again: places, gradients, candidates, utilities, groups, leaves, scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.ensemble import Tree
from hedgerow.privacy.choices import exponential, permute_and_flip
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.mechanisms import laplace
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema

STEPS = 2**14
MIN_GAIN = 1e-6
Nested = tuple[Any, ...]
"""(feature, cut, missing_left, left, right) for a split, (value,) for a leaf. `cut` is a bin, or a level's number."""


@dataclass(frozen=True)
class Candidate:
    """One question: which codes of a feature go left."""

    feature: int
    cut: int
    missing_left: bool
    left: frozenset[int]


def candidates_of(schema: Schema, bins: BinMapper) -> list[Candidate]:
    """In the public order."""
    found: list[Candidate] = []
    for number, (column, binned) in enumerate(zip(schema.columns, bins.features, strict=True)):
        n, gaps = binned.n_value_bins, column.may_be_missing
        if binned.is_categorical:
            codes = list(range(n + gaps))
            alone = codes if len(codes) > 2 else codes[:-1]
            found += [Candidate(number, code, code == n, frozenset([code])) for code in alone]
            continue
        found += [Candidate(number, b, False, frozenset(range(b + 1))) for b in range(n if gaps else n - 1)]
        if gaps:
            found += [Candidate(number, b, True, frozenset([*range(b + 1), n])) for b in range(n - 1)]
    return found


class NaiveDPBoost:
    """`fit` gives the trees as nested tuples; leaves with the learning rate, for labels as the loss has them."""

    def __init__(self, schema: Schema, bins: BinMapper, settings: DPBoostSettings, random: RandomBytes) -> None:
        self._settings, self._random = settings, random
        self._candidates = candidates_of(schema, bins)
        self._missing = [feature.missing_code for feature in bins.features]
        self._categorical = [feature.is_categorical for feature in bins.features]

    def fit(self, codes: Bytes, labels: Floats) -> list[Nested]:
        """Train on codes [features, rows]."""
        settings = self._settings
        rows = [tuple(row) for row in codes.T.tolist()]
        trees: list[Nested] = []
        draws = settings.protocol != "central.sequential"
        seeds = [self._random.bytes(32) if draws else b"" for _ in settings.ensembles]
        for n_trees, seed in zip(settings.ensembles, seeds, strict=True):
            places = self._places(SecureRandom.from_seed(seed), len(rows), n_trees) if draws else [0] * len(rows)
            for place in range(n_trees):
                gradients: dict[int, int] = {}
                for row, own in enumerate(places):
                    q = self._gradient(trees, rows[row], labels[row]) if own == place else None
                    if q is not None:
                        gradients[row] = q
                trees.append(self._grow(rows, gradients, place))
        return trees

    # --- places ------------------------------------------------------------------------------------------------------

    def _places(self, random: RandomBytes, n_rows: int, n_trees: int) -> list[int]:
        settings = self._settings
        if settings.protocol == "central.parallel":
            shares = [Fraction(1, 2 ** (k + 1)) for k in range(n_trees)]
        else:
            eta = Fraction(settings.learning_rate)
            shares = [eta * (1 - eta) ** k / (1 - (1 - eta) ** n_trees) for k in range(n_trees)]
        words = [int.from_bytes(random.bytes(8), "little") for _ in range(n_rows)]
        if settings.assignment == "independent":
            return [_drawn(Fraction(word, 2**64), shares) for word in words]
        places, unused = [n_trees] * n_rows, sorted(range(n_rows), key=lambda row: words[row])
        for tree, share in enumerate(shares):
            size = len(unused) // 2 if settings.protocol == "central.parallel" else math.floor(share * n_rows)
            for row in unused[:size]:
                places[row] = tree
            unused = unused[size:]
        return places

    # --- gradients ---------------------------------------------------------------------------------------------------

    def _gradient(self, trees: Sequence[Nested], row: tuple[int, ...], label: float) -> int | None:
        """In steps, or None where the record is left out of this tree."""
        settings = self._settings
        score = np.float32(0.0)
        for tree in trees:
            score += np.float32(self._value(tree, row))
        if settings.loss == "logistic":
            g = float(np.float32(1.0 / (1.0 + math.exp(-float(score)))) - np.float32(label))
        else:
            g = float(np.clip(score - np.float32(label), np.float32(-2.0), np.float32(2.0)))
        q = math.floor(g * STEPS + 0.5)
        if settings.protocol == "central.sequential" and math.isinf(settings.epsilon):
            return q
        bound = STEPS if settings.loss == "squared" else STEPS // 2
        if abs(q) > bound:
            return None if settings.filters else (bound if q > 0 else -bound)
        return q

    def _value(self, tree: Nested, row: tuple[int, ...]) -> float:
        while len(tree) > 1:
            feature, cut, missing_left, left, right = tree
            code = row[feature]
            if code == self._missing[feature]:
                goes_left = missing_left
            else:
                goes_left = code == cut if self._categorical[feature] else code <= cut
            tree = left if goes_left else right
        return float(tree[0])

    # --- one tree ----------------------------------------------------------------------------------------------------

    def _grow(self, rows: Sequence[tuple[int, ...]], gradients: dict[int, int], place: int) -> Nested:
        """Level by level; a node is a list [rows, split or None, left child, right child]."""
        root: list[Any] = [sorted(gradients), None, None, None]
        level = [root]
        for _ in range(self._settings.max_depth):
            splits = self._choose(rows, gradients, [node[0] for node in level]) if level else []
            below = []
            for node, split in zip(level, splits, strict=True):
                if split is None:
                    continue
                candidate, missing_left = split
                goes_left = [rows[row][candidate.feature] in candidate.left for row in node[0]]
                node[1] = (candidate.feature, candidate.cut, missing_left)
                for child, side in ((2, True), (3, False)):
                    node[child] = [
                        [r for r, left in zip(node[0], goes_left, strict=True) if left is side],
                        None,
                        None,
                        None,
                    ]
                below += [node[2], node[3]]
            level = below
        return self._with_leaves(root, gradients, place)

    def _choose(
        self, rows: Sequence[tuple[int, ...]], gradients: dict[int, int], nodes: Sequence[list[int]]
    ) -> list[tuple[Candidate, bool] | None]:
        settings = self._settings
        utilities: list[float] = []
        members: list[list[Candidate]] = []
        starts = [0]
        for own in nodes:
            total = (sum(gradients[row] for row in own), len(own))
            last = None
            for candidate in self._candidates:
                gone = [row for row in own if rows[row][candidate.feature] in candidate.left]
                left = (sum(gradients[row] for row in gone), len(gone))
                if left == last:
                    members[-1].append(candidate)
                else:
                    members.append([candidate])
                    utilities.append(self._utility(left, total))
                last = left
            starts.append(len(utilities))
        three_or_two = 2.0 if settings.gain == "centred" and settings.protocol == "central.dpboost" else 3.0
        picked, _ = (exponential if settings.selection == "exponential" else permute_and_flip)(
            np.array(utilities),
            starts=np.array(starts),
            multiplicity=np.array([len(group) for group in members]),
            sensitivity=(three_or_two if settings.adjacency == "add_remove" else 4.0) * settings.gradient_bound**2,
            epsilon=settings.epsilon_per_level,
            random=self._random,
            magnitude=settings.gradient_bound**2 * (2**24 - 1),
            adjacency=settings.adjacency,
        )
        chosen: list[tuple[Candidate, bool] | None] = []
        for own, group, member in zip(nodes, picked.group.tolist(), picked.member.tolist(), strict=True):
            candidate = members[group][member]
            missing_left = candidate.missing_left
            if math.isinf(settings.epsilon):
                if utilities[group] <= MIN_GAIN:
                    chosen.append(None)
                    continue
                n_left = sum(rows[row][candidate.feature] in candidate.left for row in own)
                missing = self._missing[candidate.feature]
                nobody = all(rows[row][candidate.feature] != missing for row in own)
                if nobody and not self._categorical[candidate.feature]:
                    missing_left = 2 * n_left >= len(own)
            chosen.append((candidate, missing_left))
        return chosen

    def _utility(self, left: tuple[int, int], total: tuple[int, int]) -> float:
        l2 = self._settings.l2
        gl, g = left[0] / STEPS, total[0] / STEPS
        gr, dl, dr = g - gl, left[1] + l2, total[1] - left[1] + l2
        if total[1] == 0:
            return 0.0
        if dl > 0 and dr > 0:
            value = (gl * gl * dr + gr * gr * dl) / (dl * dr)
        else:
            value = gl * gl / dl if dl > 0 else gr * gr / dr
        return value - g * g / (total[1] + l2) if math.isinf(self._settings.epsilon) else value

    def _with_leaves(self, root: list[Any], gradients: dict[int, int], place: int) -> Nested:
        settings = self._settings
        order: list[list[Any]] = [root]
        for node in order:  # breadth-first: the list grows while it is read
            order += [node[2], node[3]] if node[1] is not None else []
        leaves = [node for node in order if node[1] is None]
        clip = math.inf
        if settings.protocol == "central.dpboost" and settings.leaf_clipping:
            clip = settings.gradient_bound * (1.0 - settings.learning_rate) ** place
        values = []
        for node in leaves:
            denominator = len(node[0]) + settings.l2
            value = -(sum(gradients[row] for row in node[0]) / STEPS) / denominator if denominator > 0 else 0.0
            values.append(min(max(value, -clip), clip))
        records = 1.0 if settings.adjacency == "add_remove" else 2.0
        noisy, _ = laplace(
            np.array(values),
            sensitivity=records * min(settings.gradient_bound / (1.0 + settings.l2), 2.0 * clip),
            epsilon=settings.epsilon_of_leaves,
            random=self._random,
            bounds=None if math.isinf(clip) else (-clip, clip),
            adjacency=settings.adjacency,
        )
        for node, value in zip(leaves, noisy.tolist(), strict=True):
            node[0] = float(np.float32(value * settings.learning_rate))
        return _nested(root)


def _drawn(uniform: Fraction, shares: Sequence[Fraction]) -> int:
    below = Fraction(0)
    for place, share in enumerate(shares):
        below += share
        if uniform < Fraction(math.floor(below * 2**64), 2**64):
            return place
    return len(shares)


def _nested(node: list[Any]) -> Nested:
    if node[1] is None:
        return (node[0],)
    return (*node[1], _nested(node[2]), _nested(node[3]))


def nested_tree(tree: Tree, node: int = 0) -> Nested:
    """A tree of a model in the same form."""
    if tree.feature[node] < 0:
        return (float(tree.value[node]),)
    cut = int(tree.bin[node])
    if tree.level_set[node] >= 0:
        levels = np.flatnonzero(tree.left_levels[tree.level_set[node]])
        cut = int(levels[0]) if len(levels) else -1  # none: only what is missing goes left
    children = (nested_tree(tree, int(tree.left[node])), nested_tree(tree, int(tree.right[node])))
    return (int(tree.feature[node]), cut, bool(tree.missing_left[node]), *children)
