"""The slow, obvious twin of every fast kernel. Tests assert that fast equals naive, exactly.

One section per module of the engine; nothing here is ever used outside tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import BoostingParams, Loss, Quantiser
from hedgerow.engine.splitting import LEVEL_SMOOTHING, MIN_GAIN

# --- binning -------------------------------------------------------------------------------------------------------


def edges(values: Iterable[float], n_bins: int, weights: Iterable[float] | None = None) -> list[float]:
    """The cuts of one column, from a dictionary of its distinct values and a walk along them."""
    rows = [(float(value), 1.0) for value in values]
    if weights is not None:
        rows = [(value, float(weight)) for (value, _), weight in zip(rows, weights, strict=True)]
    heaviest = max(weight for _, weight in rows)
    bits = min(31, 52 - len(rows).bit_length())
    mass: dict[float, int] = {}
    for value, weight in rows:
        if weight > 0 and not math.isnan(value):
            mass[value] = mass.get(value, 0) + max(1, round(weight / heaviest * 2**bits))
    distinct = sorted(mass)
    boundaries = list(range(len(distinct) - 1))  # boundary j lies after the j-th distinct value
    if len(distinct) > n_bins:
        below = [sum(mass[value] for value in distinct[: j + 1]) for j in boundaries]
        boundaries = _spread(below, sum(mass.values()), n_bins - 1)
    found = [_edge(distinct[j], distinct[j + 1]) for j in boundaries]
    return [edge for edge in found if edge is not None]


def _spread(below: Sequence[int], total: int, n_cuts: int) -> list[int]:
    """Each cut at the boundary nearest to an even share of the weight that is left; the left one of two equals."""
    chosen: list[int] = []
    for k in range(n_cuts):
        start = below[chosen[-1]] if chosen else 0
        target = start + Fraction(total - start, n_cuts + 1 - k)
        first = chosen[-1] + 1 if chosen else 0
        possible = range(first, len(below) - (n_cuts - k) + 1)  # leave a boundary for each cut to come
        distances = [abs(below[j] - target) for j in possible]
        chosen.append(possible[distances.index(min(distances))])
    return chosen


def _edge(a: float, b: float) -> float | None:
    """The edge between two neighbouring values, None if they differ only by being infinite."""
    largest, largest32 = float(np.finfo(np.float64).max), float(np.finfo(np.float32).max)
    a, b = max(a, -largest), min(b, largest)
    if a == b:
        return None

    def to32(x: float) -> float:
        return float(np.float32(min(max(x, -largest32), largest32)))

    for edge in (to32(a / 2 + b / 2), to32(b)):
        if to32(a) < edge <= b:
            return edge + 0.0
    return b + 0.0


def code(value: float, edges: Sequence[float]) -> int:
    """The bin of one number, by counting."""
    return len(edges) + 1 if math.isnan(value) else sum(edge <= value for edge in edges)


# --- histogram, splitting, growth ----------------------------------------------------------------------------------


def sigmoid(margin: np.ndarray) -> np.ndarray:
    """The rational sigmoid of the gradient kernel, one numpy operation at a time."""
    f = np.float32
    x = np.clip(margin.astype(f) * f(0.5), f(-9), f(9))
    z = x * x
    p = f(-2.76076847742355e-16) * z + f(2.00018790482477e-13)
    for c in (
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ):
        p = p * z + f(c)
    q = f(1.19825839466702e-06) * z + f(1.18534705686654e-04)
    for c in (2.26843463243900e-03, 4.89352518554385e-03):
        q = q * z + f(c)
    result: np.ndarray = f(0.5) + f(0.5) * (x * p / q)
    return result


def exponential(x: np.ndarray) -> np.ndarray:
    """The exponential of the gradient kernels, one numpy operation at a time."""
    f = np.float32
    x = np.clip(x.astype(f), f(-87), f(88))
    k = np.floor(x * f(1.44269504) + f(0.5))
    r = (x - k * f(0.693359375)) - k * f(-2.12194440e-4)
    p = f(1.98756915e-4) * r + f(1.39819994e-3)
    for c in (8.33345205e-3, 4.16657962e-2, 1.66666654e-1, 5.00000012e-1):
        p = p * r + f(c)
    result: np.ndarray = np.ldexp(p * r * r + r + f(1), k.astype(np.int64))
    return result


def quantised(
    loss: Loss,
    quantiser: Quantiser,
    scores: np.ndarray,
    labels: np.ndarray,
    bases: np.ndarray,
    weight: np.ndarray | None,
) -> list[list[tuple[int, int]]]:
    """(g, h) of every row as Python integers, per output. `scores` is float32 [outputs, rows]."""
    f = np.float32
    g_scale, h_scale = quantiser.unit_scales
    labels32 = (labels - (bases[0] if loss.name in ("squared", "absolute", "quantile") else 0.0)).astype(f)
    result = []
    margins = [scores[k] + f(bases[k]) for k in range(loss.n_outputs)]
    shares = []
    if loss.name == "softmax":
        powers = [exponential(margin - np.max(margins, axis=0)) for margin in margins]
        total = np.zeros(len(labels), f)
        for power in powers:
            total = total + power
        shares = [power / total for power in powers]
    g: np.ndarray
    h: np.ndarray
    for k in range(loss.n_outputs):
        if loss.name == "logistic":
            p = sigmoid(margins[0])
            g, h = p - labels32, p * (f(1) - p)
        elif loss.name == "squared":
            bound = f(loss.gradient_bound)
            g = np.minimum(np.maximum(scores[0] - labels32, -bound), bound)
            h = np.ones_like(labels32)
        elif loss.name in ("absolute", "quantile"):
            low, high = (1.0, 1.0) if loss.name == "absolute" else (loss.quantile, 1.0 - loss.quantile)
            g = np.select([scores[0] < labels32, scores[0] > labels32], [f(-low), f(high)], f(0))
            h = np.ones_like(labels32)
        elif loss.name == "poisson":
            mean = np.minimum(exponential(margins[0]), f(loss.gradient_bound))
            g, h = mean - labels32, mean
        else:
            g = shares[k] - (labels == k).astype(f)
            h = f(2) * shares[k] * (f(1) - shares[k])
        rows = []
        for row in range(len(labels)):
            gi, hi = math.floor(g[row] * g_scale + f(0.5)), math.floor(h[row] * h_scale + f(0.5))
            if weight is not None:
                factor = weight[row] / quantiser.weight_unit
                gi, hi = math.floor(gi * factor + 0.5), math.floor(hi * factor + 0.5)
            rows.append((gi, hi))
        result.append(rows)
    return result


def quantile_of(values: Sequence[float], weights: Sequence[float], quantile: float) -> float:
    """The middle of the numbers that cost least; what they cost is convex, so one of the values is at either end."""
    heavy = [(Fraction(float(v)), Fraction(float(w))) for v, w in zip(values, weights, strict=True) if w > 0]
    share = Fraction(quantile).limit_denominator(10**6)

    def cost(constant: Fraction) -> Fraction:
        return sum((w * max(share * (v - constant), (share - 1) * (v - constant)) for v, w in heavy), Fraction(0))

    costs = {v: cost(v) for v, _ in heavy}
    best = [v for v, c in costs.items() if c == min(costs.values())]
    return float((min(best) + max(best)) / 2) if best else 0.0


def histogram(
    codes: np.ndarray, pairs: list[tuple[int, int]], rows: Iterable[int], feature: int, n_codes: int
) -> list[list[int]]:
    """[g sum, h sum, count] per code of one feature over `rows`."""
    cells = [[0, 0, 0] for _ in range(n_codes)]
    for row in rows:
        cell = cells[codes[feature, row]]
        cell[0] += pairs[row][0]
        cell[1] += pairs[row][1]
        cell[2] += 1
    return cells


@dataclass
class NaiveSplit:
    """A split as the set of codes that go left."""

    gain: float
    feature: int
    bin: int
    missing_left: bool
    left_codes: frozenset[int]
    left_sum: tuple[int, int]


def best_split(
    codes: np.ndarray,
    pairs: list[tuple[int, int]],
    rows: list[int],
    features: Sequence[FeatureBins],
    rules: BoostingParams,
    quantiser: Quantiser,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    path: frozenset[int] = frozenset(),
) -> NaiveSplit | None:
    """Try every cut of every feature, missing right before missing left, and keep the first best.

    With groups that may interact: of every feature that is in one group with all of the node's `path`.
    """
    grouped = {f for group in rules.interaction or () for f in group}
    groups = [set(group) for group in rules.interaction or ()] + [set(range(len(features))) - grouped]
    ug, uh, l2 = 1 / quantiser.gradient_scale, 1 / quantiser.hessian_scale, rules.l2
    total_g, total_h = sum(pairs[r][0] for r in rows), sum(pairs[r][1] for r in rows)
    best: NaiveSplit | None = None
    for f, feature in enumerate(features):
        if not any({f, *path} <= group for group in groups):
            continue
        n_bins = feature.n_value_bins
        cells = histogram(codes, pairs, rows, f, n_bins + 1)
        missing = cells[n_bins]
        has_missing = (missing[0], missing[1]) != (0, 0)
        alone = f in rules.one_hot_levels
        if feature.levels is None or alone:
            order = list(range(n_bins))
        else:
            present = [level for level in range(n_bins) if (cells[level][0], cells[level][1]) != (0, 0)]
            order = sorted(present, key=lambda level: cells[level][0] * ug / (cells[level][1] * uh + LEVEL_SMOOTHING))
        for missing_left in (False, True) if has_missing else (False,):
            n_cuts = len(order) if has_missing and not missing_left else len(order) - 1
            if alone and len(order) > 1:
                n_cuts = len(order)
            for cut in range(n_cuts):
                values_left = [order[cut]] if alone else order[: cut + 1]
                left = [*values_left, *([n_bins] if missing_left else [])]
                lg, lh, lc = (sum(cells[code][k] for code in left) for k in range(3))
                if min(lc, len(rows) - lc) < rules.min_samples_leaf:
                    continue
                gl, hl, g, h = lg * ug, lh * uh, total_g * ug, total_h * uh
                direction = rules.monotone[f] if rules.monotone else 0
                gain = _gain(gl, hl, g, h, l2, rules, direction, bounds)
                if gain is None or gain <= 0 or (best is not None and gain <= best.gain):
                    continue
                unseen_left = rules.missing_unseen == "heavier" and 2 * lh >= total_h
                goes = missing_left if has_missing else unseen_left
                absent = [c for c in range(n_bins) if feature.levels is not None and not alone and c not in order]
                codes_left = {*values_left, *(absent if goes else []), *([n_bins] if goes else [])}
                bin_ = cut if feature.levels is None else -1
                best = NaiveSplit(gain, f, bin_, goes, frozenset(codes_left), (lg, lh))
    return best


def _gain(
    gl: float,
    hl: float,
    g: float,
    h: float,
    l2: float,
    rules: BoostingParams,
    direction: int,
    bounds: tuple[float, float],
) -> float | None:
    """XGBoost's loss reduction, or None where the cut is not allowed."""
    gr, hr = g - gl, h - hl
    dl, dr = hl + l2, hr + l2
    if min(hl, hr) < rules.min_child_weight or dl <= 0 or dr <= 0:
        return None
    if rules.monotone is None:
        return (gl * gl * dr + gr * gr * dl) / (dl * dr) - g * g / (h + l2)

    def clipped(gradient: float, denominator: float) -> float:
        return min(max(-gradient / denominator, bounds[0]), bounds[1])

    def reduction(gradient: float, denominator: float, value: float) -> float:
        return -(2.0 * gradient * value + denominator * value * value)

    vl, vr, v = clipped(gl, dl), clipped(gr, dr), clipped(g, h + l2)
    if direction * (vr - vl) < 0:
        return None
    return reduction(gl, dl, vl) + reduction(gr, dr, vr) - reduction(g, h + l2, v)


@dataclass
class NaiveNode:
    """A node of a naively grown tree; `split` is None for leaves."""

    value: np.float32
    rows: list[int]
    path: frozenset[int] = frozenset()
    split: NaiveSplit | None = None
    left: int = -1
    right: int = -1


def grow_tree(
    codes: np.ndarray,
    pairs: list[tuple[int, int]],
    features: Sequence[FeatureBins],
    rules: BoostingParams,
    quantiser: Quantiser,
) -> list[NaiveNode]:
    """Breadth-first growth straight from the definition."""
    ug, uh = 1 / quantiser.gradient_scale, 1 / quantiser.hessian_scale

    def raw_value(rows: list[int], bounds: tuple[float, float]) -> float:
        denominator = sum(pairs[r][1] for r in rows) * uh + rules.l2
        value = -sum(pairs[r][0] for r in rows) * ug / denominator if denominator > 0 else 0.0
        return min(max(value, bounds[0]), bounds[1])

    everyone = list(range(codes.shape[1]))
    open_bounds = (-math.inf, math.inf)
    nodes = [NaiveNode(np.float32(raw_value(everyone, open_bounds) * rules.learning_rate), everyone)]
    frontier, fewest = [(0, open_bounds)] if len(everyone) >= rules.min_rows_per_sum else [], rules.min_rows_per_sum
    n_leaves, depth = 1, 0
    while frontier and (rules.max_depth is None or depth < rules.max_depth):
        common = (features, rules, quantiser)
        found = [(best_split(codes, pairs, nodes[i].rows, *common, b, nodes[i].path), i, b) for i, b in frontier]
        good = [(s, i, b) for s, i, b in found if s is not None and s.gain > MIN_GAIN and s.gain >= rules.min_gain]
        if rules.max_leaves is not None:
            room = rules.max_leaves - n_leaves
            chosen = {i for _, i, _ in sorted(good, key=lambda entry: -entry[0].gain)[:room]}
            good = [entry for entry in good if entry[1] in chosen]
        n_leaves += len(good)
        frontier = []
        for split, i, bounds in good:
            node = nodes[i]
            node.split, node.left, node.right = split, len(nodes), len(nodes) + 1
            sides = (
                [r for r in node.rows if int(codes[split.feature, r]) in split.left_codes],
                [r for r in node.rows if int(codes[split.feature, r]) not in split.left_codes],
            )
            middle = (raw_value(sides[0], bounds) + raw_value(sides[1], bounds)) / 2
            direction = rules.monotone[split.feature] if rules.monotone else 0
            limits = {
                0: (bounds, bounds),
                1: ((bounds[0], middle), (middle, bounds[1])),
                -1: ((middle, bounds[1]), (bounds[0], middle)),
            }
            for side, limit in zip(sides, limits[direction], strict=True):
                frontier += [(len(nodes), limit)] if fewest == 1 or min(map(len, sides)) >= fewest else []
                value = np.float32(raw_value(side, limit) * rules.learning_rate)
                nodes.append(NaiveNode(value, side, node.path | {split.feature}))
        depth += 1
    return nodes


def refit_leaves(nodes: list[NaiveNode], lacking: np.ndarray, weight: np.ndarray, loss: Loss, rate: float) -> None:
    """Give each leaf the quantile of what its rows still lack, and nodes that split nothing."""
    for node in nodes:
        quantile = quantile_of(lacking[node.rows].tolist(), weight[node.rows].tolist(), loss.quantile)
        node.value = np.float32(0.0 if node.split else quantile * rate)


# --- prediction ----------------------------------------------------------------------------------------------------


def leaf_of(tree: Tree, features: Sequence[FeatureBins], row: Sequence[float]) -> int:
    """The leaf that one row of raw values reaches: by thresholds and levels, without any codes."""
    node = 0
    while tree.feature[node] >= 0:
        x, bins = float(row[tree.feature[node]]), features[tree.feature[node]]
        if bins.levels is not None:
            seen = x in range(len(bins.levels))
            goes_left = tree.left_levels[tree.level_set[node], int(x)] if seen else tree.missing_left[node]
        elif math.isnan(x):
            goes_left = tree.missing_left[node]
        else:
            goes_left = x < tree.threshold[node] or tree.bin[node] == bins.n_value_bins - 1
        node = int(tree.left[node] if goes_left else tree.right[node])
    return node


def leaves(model: Ensemble, matrix: np.ndarray) -> np.ndarray:
    """The leaf of each row in each tree."""
    result = [[leaf_of(tree, model.features, row) for tree in model.trees] for row in matrix.tolist()]
    return np.array(result, np.int32).reshape(len(matrix), len(model.trees))


def raw_scores(model: Ensemble, matrix: np.ndarray) -> np.ndarray:
    """Float32 sums of leaf values in the order of the trees, one per output; then the base score, in float64."""
    scores = np.zeros((len(matrix), model.n_outputs), np.float32)
    for t, reached in enumerate(leaves(model, matrix).T):
        scores[:, t % model.n_outputs] += model.trees[t].value[reached]
    return model.base_scores + scores
