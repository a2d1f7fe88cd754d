"""What edges="private" claims of the edges themselves: the exact chances of all outcomes, for all small columns."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.privacy.choices import Chosen, exponential
from hedgerow.privacy.events import NonPrivate, Released
from hedgerow.privacy.mechanisms import discrete_laplace
from hedgerow.protocols.vertical.bucket_rr import private_edges as module
from hedgerow.protocols.vertical.bucket_rr.private_edges import Candidates, level_sensitivities, private_edges
from hedgerow.schema import NumericColumn

EDGES_EPSILON = 1.0


class MoreToChoose(Exception):
    """A level of choices that no outcome was prescribed for; how many candidates each choice has."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes


class Prescribed:
    """Takes the place of both mechanisms: outcomes are prescribed, and their exact chance is added up."""

    def __init__(self, path):
        self.path, self.level, self.log_chance = path, 0, 0.0
        self.counts, self.scale = None, math.nan

    def choose(self, utilities, *, starts, multiplicity, sensitivity, epsilon, **_):
        """The exponential mechanism of the textbook, on single candidates."""
        slices = [slice(a, b) for a, b in pairwise(starts)]
        if self.level == len(self.path):
            raise MoreToChoose([int(multiplicity[s].sum()) for s in slices])
        found = []
        for part, wanted in zip(slices, self.path[self.level], strict=True):
            weights = np.repeat(np.exp(epsilon * utilities[part] / (2 * sensitivity)), multiplicity[part])
            self.log_chance += math.log(weights[wanted] / weights.sum())
            ends = np.cumsum(multiplicity[part])
            group = int(np.searchsorted(ends, wanted, side="right"))
            found.append((part.start + group, wanted - (ends[group] - multiplicity[part][group])))
        self.level += 1
        return Released(Chosen(*np.array(found).T), NonPrivate("a test"))

    def count(self, values, *, sensitivity, epsilon, **_):
        """No noise; its loss for two columns is known from the distance of their counts."""
        self.counts, self.scale = values.copy(), sensitivity / epsilon
        return Released(values, NonPrivate("a test"))


def outcomes(values, n_buckets, candidates, edges_epsilon=EDGES_EPSILON):
    """For all outcomes of all levels: the logarithm of their chance, the counts after them, the scale of the noise."""
    found, waiting = {}, [()]
    while waiting:
        path = waiting.pop()
        prescribed = Prescribed(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "exponential", prescribed.choose)
            patch.setattr(module, "discrete_laplace", prescribed.count)
            try:
                private_edges(np.array(values), n_buckets, edges_epsilon, candidates, SecureRandom())
            except MoreToChoose as more:
                waiting += [(*path, outcome) for outcome in product(*map(range, more.sizes))]
                continue
        found[path] = (prescribed.log_chance, prescribed.counts, prescribed.scale)
    return found


def largest_loss(n_values, n_buckets, highest, edges_epsilon=EDGES_EPSILON):
    """The largest log ratio of chances, over all columns of whole numbers or gaps that differ in one value.

    Noise of scale s on counts at an L1 distance of d has the log ratio d / s for some outcome, and never more.
    """
    candidates = Candidates.of(NumericColumn("x", 0, highest, integer=True))
    domain = [*map(float, range(highest + 1)), math.nan]
    columns = {
        which: outcomes([domain[k] for k in which], n_buckets, candidates, edges_epsilon)
        for which in combinations_with_replacement(range(len(domain)), n_values)
    }
    largest = 0.0
    for which, mine in columns.items():
        assert math.fsum(math.exp(chance) for chance, _, _ in mine.values()) == pytest.approx(1.0, abs=1e-12)
        for k, other in product(range(n_values), range(len(domain))):
            theirs = columns[tuple(sorted((*which[:k], other, *which[k + 1 :])))]
            assert mine.keys() == theirs.keys()
            for path, (chance, counts, scale) in mine.items():
                loss = chance - theirs[path][0] + np.abs(counts - theirs[path][1]).sum() / scale
                largest = max(largest, loss)
    return largest


@pytest.mark.parametrize(
    ("n_values", "n_buckets", "highest", "edges_epsilon", "reached"),
    [
        (1, 2, 6, 1.0, 0.3),
        (2, 2, 6, 1.0, 0.7),
        (3, 2, 5, 1.0, 0.65),
        (2, 3, 6, 1.0, 0.5),  # parts of three cells
        (4, 2, 5, 32.0, 0.8),
    ],
)
def test_no_two_neighbours_differ_by_more_than_edges_epsilon(n_values, n_buckets, highest, edges_epsilon, reached):
    """All columns, all neighbours, all outcomes. Gaps are values too; and what is charged is not too much by far."""
    assert reached < largest_loss(n_values, n_buckets, highest, edges_epsilon) / edges_epsilon <= 1.0


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        # "Parts are disjoint, and a value more or less moves a utility by a half": but a replaced one moves two parts.
        ("level_sensitivities", lambda n_cells: tuple(s / 2 for s in level_sensitivities(n_cells))),
        ("COUNT_SENSITIVITY", 1.0),  # "one value, one count"
    ],
)
def test_too_little_noise_is_caught(monkeypatch, name, broken):
    """The same enumeration refutes the claim of a twin that allows for less than one value can do."""
    monkeypatch.setattr(module, name, broken)
    assert largest_loss(3, 2, 5) > EDGES_EPSILON


def test_edges_without_noise_are_caught(monkeypatch):
    """Plain quantiles of the values: some outcome is impossible for one column, and certain for its neighbour."""

    def plain(utilities, **how):
        return exponential(utilities, **{**how, "epsilon": math.inf})

    monkeypatch.setattr(module, "exponential", plain)
    monkeypatch.setattr(module, "discrete_laplace", lambda values, **_: Released(values, NonPrivate("a test")))
    candidates = Candidates.of(NumericColumn("x", 0, 9, integer=True))
    found = [
        private_edges(np.array(values), 2, EDGES_EPSILON, candidates, SecureRandom()).values.tolist()
        for values in ([1.0, 2.0, 3.0], [9.0, 2.0, 3.0])
    ]
    assert found[0] != found[1]


def test_what_runs_is_what_was_enumerated():
    """Edges of the real mechanism come as often as the textbook says: 5 sigma for each outcome."""
    candidates = Candidates.of(NumericColumn("x", 0, 5, integer=True))
    values, n_draws = np.array([0.0, 0.0, 5.0, math.nan, 3.0, 3.0, 3.0, 0.0]), 4000
    chances = {}
    for path, (chance, _, _) in outcomes(values, 2, candidates).items():
        first = 1 + path[0][0]
        parts = [part for part in ((0, first), (first, 6)) if part[1] - part[0] > 1]
        second = [low + 1 + cut for (low, _), cut in zip(parts, path[1], strict=True)] if len(path) > 1 else []
        edges = tuple(sorted([first, *second]))
        chances[edges] = chances.get(edges, 0.0) + math.exp(chance)
    random = SecureRandom.from_seed(bytes(32))
    column = module._Counts.of(candidates.cells(values[~np.isnan(values)]), len(values))
    share = module._share(2, EDGES_EPSILON)
    drawn = [tuple(module._halve(column, 4, share, candidates.count, random).tolist()) for _ in range(n_draws)]
    assert set(drawn) <= set(chances)
    for edges, chance in chances.items():
        assert abs(drawn.count(edges) / n_draws - chance) < 5 * math.sqrt(chance / n_draws)


def test_noise_on_counts_has_the_scale_that_is_charged():
    """The counts' event is that of the mechanism which is called: sensitivity 2, the share of one step."""
    share = module._share(15, EDGES_EPSILON)
    event = discrete_laplace(
        np.zeros(1, np.int64), sensitivity=2.0, epsilon=share, random=SecureRandom(), adjacency="replace_one"
    ).event
    assert module.planned(15, EDGES_EPSILON).events[-1] == event
