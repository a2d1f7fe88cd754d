"""Edges found block by block are those of the whole column, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hedgerow.engine import edge_search
from hedgerow.engine.binning import choose_edges
from hedgerow.engine.edge_search import EdgeSearch, Question, merge, summarise

N_SEEDS = 2**32 - 1


def edges_by_blocks(blocks, n_bins, weights=None):
    """The edges, and how many questions they took; `blocks` are columns, `weights` one array for each."""
    weights = [None] * len(blocks) if weights is None else weights
    total = sum(len(block) if each is None else int(each.sum()) for block, each in zip(blocks, weights, strict=True))
    search, questions = EdgeSearch(total, n_bins), 0
    while search.question is not None:
        questions += 1
        answers = [summarise(search.question, block, each) for block, each in zip(blocks, weights, strict=True)]
        half = len(answers) // 2
        search.learn(merge([merge(group) for group in (answers[half:], answers[:half]) if group]))
        assert questions < 20
    return search.edges, questions


def cut_up(rng, values, n_blocks):
    """The same values in blocks of any size, some empty, in any order."""
    order = rng.permutation(len(values)) if rng.random() < 0.5 else np.argsort(values)
    limits = np.sort(rng.integers(0, len(values) + 1, n_blocks - 1)).tolist()
    blocks = [order[a:b] for a, b in itertools.pairwise([0, *limits, len(values)])]
    return [blocks[k] for k in rng.permutation(n_blocks)]


def made_up(rng, n_rows):
    """Columns of all kinds: even, ties, a heavy value, gaps, holes, infinities, values that only differ in float64."""
    kind = rng.integers(8)
    values = rng.normal(size=n_rows)
    if kind == 1:
        values = np.round(values * 10 ** rng.integers(0, 4)) / 10
    elif kind == 2:
        values[rng.random(n_rows) < rng.random()] = rng.normal()
    elif kind == 3:
        values = rng.exponential(size=n_rows) ** rng.integers(1, 30)
    elif kind == 4:
        values = 1.0 + rng.integers(0, 10**6, n_rows) * 2.0**-50
    elif kind == 5:
        values = rng.integers(0, rng.integers(1, 1000), n_rows).astype(float)
    elif kind == 6:
        values = np.sort(rng.zipf(1.3, n_rows)).astype(float)
    values[rng.random(n_rows) < rng.choice([0.0, 0.3])] = np.nan
    values[rng.random(n_rows) < rng.choice([0.0, 0.05])] = np.inf
    values[rng.random(n_rows) < rng.choice([0.0, 0.05])] = -np.inf
    return values.astype(rng.choice([np.float32, np.float64]))


@pytest.mark.parametrize("weighted", [False, True])
@given(seed=st.integers(0, N_SEEDS), n_bins=st.integers(1, 40), points=st.sampled_from([1, 8, 100, 1000, 1 << 18]))
@example(seed=0, n_bins=255, points=1000)
def test_any_blocks_in_any_order_give_the_edges_of_the_whole(weighted, seed, n_bins, points):
    """However few points are told at first, and whatever the column holds."""
    rng = np.random.default_rng(seed)
    values = made_up(rng, int(rng.integers(1, 3000)))
    weights = rng.integers(0, 5, len(values)) if weighted else None
    (expected,) = choose_edges([values], n_bins, weights)
    rows = cut_up(rng, values, int(rng.integers(1, 9)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_search, "POINTS", points)
        patch.setattr(edge_search, "FIRST_WINDOW", rng.choice([0.01, 0.5, 4.0]))
        found, _ = edges_by_blocks(
            [values[each] for each in rows], n_bins, None if weights is None else [weights[each] for each in rows]
        )
    assert found.tobytes() == expected.tobytes()


@given(
    values=hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(width=64)),
    limits=st.lists(st.integers(0, 60), max_size=4),
    n_bins=st.integers(1, 6),
)
def test_any_numbers_at_all(values, limits, n_bins):
    """Numbers that nobody would think of, thinned as far as can be."""
    (expected,) = choose_edges([values], n_bins)
    blocks = np.split(values, sorted(limit for limit in limits if limit <= len(values)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_search, "POINTS", 1)
        found, _ = edges_by_blocks(blocks, n_bins)
    assert found.tobytes() == expected.tobytes()


def test_a_large_even_column_takes_two_questions_and_little_memory():
    """The second one asks for a few percent of the rows only."""
    rng = np.random.default_rng(1)
    blocks = [rng.normal(size=131_072).astype(np.float32) for _ in range(12)]
    (expected,) = choose_edges([np.concatenate(blocks)], 255)
    found, questions = edges_by_blocks(blocks, 255)
    assert found.tobytes() == expected.tobytes()
    assert questions == 2
    search = EdgeSearch(12 * 131_072, 255)
    search.learn(merge([summarise(search.question, block) for block in blocks]))
    answer = merge([summarise(search.question, block) for block in blocks])
    assert len(answer.values) < 0.1 * 12 * 131_072


def test_few_distinct_values_take_one_question():
    """Whole numbers below 500, a million of them."""
    blocks = np.random.default_rng(2).integers(0, 500, (8, 131_072)).astype(np.float32)
    (expected,) = choose_edges([blocks.reshape(-1)], 255)
    found, questions = edges_by_blocks(list(blocks), 255)
    assert found.tobytes() == expected.tobytes()
    assert questions == 1


SPECIAL = st.sampled_from([np.nan, np.inf, -np.inf, -0.0])


@given(
    hnp.arrays(np.float32, st.integers(0, 700), elements=st.floats(-4, 4, width=16) | SPECIAL),
    st.lists(st.floats(-4, 4, width=16), max_size=20, unique=True),
    st.booleans(),
    st.booleans(),
)
def test_what_is_told_of_windows_is_what_a_loop_finds(values, ends, is_open, is_weighted):
    """Values inside with their weights, and the weight before, between and after windows, of which ends may be open."""
    ends = sorted(np.array(ends) + 0.0)
    weights = np.arange(len(values)) % 3 if is_weighted else None
    question = Question(1, 2, np.array(ends), is_open)
    found = summarise(question, values, weights)
    inside, gaps = {}, [0] * ((len(ends) + 1) // 2 if is_open else len(ends) // 2 + 1)
    for value, weight in zip(values.tolist(), np.ones(len(values)) if weights is None else weights, strict=True):
        below = sum(end <= value for end in ends) + is_open
        if not np.isnan(value) and weight:
            if below % 2:
                inside[value + 0.0] = inside.get(value + 0.0, 0) + weight
            else:
                gaps[below // 2 - is_open] += weight
    assert dict(zip(found.values.tolist(), found.weights.tolist(), strict=True)) == inside
    assert found.between.tolist() == gaps
