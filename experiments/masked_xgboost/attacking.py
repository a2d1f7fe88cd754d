"""Attacks on recorded runs of vertical.masked_gradients: the paper's attackers and ours, on the same messages.

An attacker has its transcript and its own columns. The truth is for the score. Only roots of trees are looked at, so
trees have one level.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import label_guesses
from experiments.masked_xgboost.active_sets import SeenNoise, attack_chain, attack_smallest_sum
from experiments.masked_xgboost.cells import VECTOR, Cell
from experiments.masked_xgboost.datasets import FEATURE_HOLDER, LABEL_HOLDER, Split, split
from experiments.masked_xgboost.methods import DELTA_AP, fit
from hedgerow.attacks.masked_gradients.unmask_least_squares import root_candidates
from hedgerow.attacks.results import ceiling
from hedgerow.federation.run import Run
from hedgerow.protocols.published.masked_gradients.candidates import Candidates
from hedgerow.protocols.published.masked_gradients.theorems import theorem2_R

N_MADE_UP = 5_000
"""Rows that the network learns from."""
MOST_COLUMNS = 10
"""Of the feature holder: a recorded run keeps every noise vector."""
ATTACKED_BINS = 8
N_COLUMNS = 4
"""One candidate of each of this many columns has its active set decoded."""

Bools = NDArray[np.bool_]


def on_labels(cell: Cell) -> dict[str, Any]:
    """A feature holder's guess of every label from the first root, as the paper's network makes it, and by algebra."""
    here, run = _recorded(cell)
    sides = Sides.of(run, here)
    balanced = sides.most_balanced(2)
    transcript = run.transcript(FEATURE_HOLDER)
    seen = [each for each in root_candidates(transcript, LABEL_HOLDER, cell.vectors) if each.candidate in balanced]
    seen.sort(key=lambda each: balanced.index(each.candidate))
    first = seen[0]
    n_rows, y = len(here.y), here.y
    strength = run.job.noise_for(n_rows).C_for(n_rows)
    network = label_guesses.by_network(first, sides.active[first.candidate], strength, y, n_made_up=N_MADE_UP)
    one = label_guesses.from_masked_gradients(seen[:1], y, total=first.total)
    several = label_guesses.from_masked_gradients(seen, y)
    claimed = ceiling(math.sqrt(theorem2_R(cell.epsilon or 0.0, DELTA_AP)))
    found: dict[str, Any] = {"chance": network.chance, "claimed": claimed}
    for name, result in (("network", network), ("one", one), ("two", several)):
        found |= {name: result.accuracy.estimate, f"{name}_auc": result.area.estimate}
    return found


def on_active_sets(cell: Cell) -> dict[str, Any]:
    """The label holder's guess of which rows go left: by the smallest sum, and by the chain, of one tree and of all."""
    here, run = _recorded(cell)
    sides = Sides.of(run, here)
    chosen = sides.most_balanced(N_COLUMNS)
    noise = run.job.noise_for(len(here.y))
    seen: dict[int, list[SeenNoise]] = {candidate: [] for candidate in chosen}
    for each in root_candidates(run.transcript(LABEL_HOLDER), FEATURE_HOLDER, cell.vectors):
        if each.candidate in seen:
            seen[each.candidate].append(SeenNoise(each.noise))
    results: dict[str, list[Any]] = {"sum": [], "chain": [], "trees": []}
    for candidate, messages in seen.items():
        true = sides.active[candidate]
        results["sum"].append(attack_smallest_sum(messages[0].noise, true))
        results["chain"].append(attack_chain(messages[:1], noise.sigma1, noise.sigma2, true))
        results["trees"].append(attack_chain(messages, noise.sigma1, noise.sigma2, true))
    found: dict[str, Any] = {"ratio": noise.ratio, "chance": _mean([each.chance for each in results["sum"]])}
    shares = [sides.active[candidate].mean() for candidate in chosen]
    found["same_size"] = _mean([share**2 + (1.0 - share) ** 2 for share in shares])
    for name, each in results.items():
        found[name] = _mean([result.accuracy.estimate for result in each])
        if name != "sum":
            found[f"{name}_auc"] = _mean([result.area.estimate for result in each])
    bound = math.exp(cell.eps_pp)
    return found | {"claimed": (bound + 1.0 / len(here.y)) / (1.0 + bound)}


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _recorded(cell: Cell) -> tuple[Split, Run]:
    here = split(cell.dataset, cell.index, cell.rows, MOST_COLUMNS)
    return here, fit(cell, here, method=VECTOR, max_bins=ATTACKED_BINS, record=True)


class Sides(NamedTuple):
    """Which rows each candidate of the feature holder sends left, and whose candidate it is."""

    active: Bools  # [candidates, rows]
    column: NDArray[np.int64]  # [candidates]

    @classmethod
    def of(cls, run: Run, here: Split) -> Sides:
        """As the feature holder knows them."""
        part = run.model.parts[FEATURE_HOLDER]
        codes = part.codes(part.read(here.tables(here.train)[FEATURE_HOLDER], FEATURE_HOLDER))
        known = Candidates.of(part.features, codes)
        sides = [active[codes[column]] for active, column in zip(known.active, known.column, strict=True)]
        return cls(np.stack(sides).astype(np.bool_), known.column)

    def most_balanced(self, n: int) -> list[int]:
        """Of `n` columns the candidate that is nearest to a half, the nearest first."""
        off = np.abs(self.active.mean(axis=1) - 0.5)
        ranked = sorted(range(len(off)), key=lambda candidate: float(off[candidate]))
        first_of = {int(self.column[candidate]): candidate for candidate in reversed(ranked)}
        return sorted(first_of.values(), key=lambda candidate: float(off[candidate]))[:n]
