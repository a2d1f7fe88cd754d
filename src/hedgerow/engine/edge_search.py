"""Edges of a column that nobody sees as a whole: the same ones, bit for bit, as `binning.choose_edges` on all its rows.

    search = EdgeSearch(total weight of all rows, n_bins)
    while search.question is not None:
        summaries = [summarise(search.question, values, weights) for the values of each block]
        search.learn(merge(summaries))
    search.edges

Blocks may be of any size, come in any order and be merged in any grouping. A column with few distinct values takes one
question, any other usually two:

1. What does the column look like? A block sorts its values. Few distinct ones are told as they are, with their weights.
   Of many it tells one out of s rows, which stands for all s. If no block had many, all is known.
2. The cuts are tried out on these points. Each true cut lies near the place that this gives: an error of up to s / 2
   rows from each of B blocks adds up to about s * sqrt(B / 12), and the search looks four times as far. Blocks tell
   the weight of the rows between these windows, and all distinct values inside them.

    values    ---------[.....]-------------[......]----------[....]------
                row 100   row 140    row 480   row 530                       below a value in a window: exactly known

With that, the rule of `binning.spread_cuts` is carried out once more. Its choice is the true one if every cut it took,
and the boundary that decided against the next one, lies between two neighbours of which nothing is unknown in between.
Otherwise (ties that tipped the other way and moved all later cuts) the question is asked again with windows eight times
as wide, around the places that are now better known, until they are wide enough; in the end that would be everything.

So memory is bounded by the number of points (2**18, or a sixteenth of the rows if many are alike) and by what lies in
the windows, some percent of the rows. Luck decides about the number of questions, never about the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hedgerow.engine.binning import edges_between, edges_of, rounded_up, sorted_with_weights, spread_cuts
from hedgerow.engine.dtypes import Bools, Floats, Ints

POINTS = 1 << 18
"""Of a column, at most about this many are told in the first answer."""

MANY_ROWS = 16
"""Where values have this many rows on average, a block tells them all: ties are what moves cuts most."""

FIRST_WINDOW, WIDER = 4.0, 8.0
"""Half of a window in standard deviations of where a cut is, and by how much it grows if that was not enough."""


class Question(NamedTuple):
    """What a block is asked about a column."""

    stride: int  # weight that a point stands for
    fewest: int  # distinct values of a block that are told in any case
    windows: Floats | None = None  # [2 x windows] start of each and, not included, its stop; None: the first question
    is_open: bool = False  # the first window has no start: it begins at the smallest value


class Summary(NamedTuple):
    """A block's answer, or those of many blocks together."""

    values: Floats  # [points] increasing and different
    weights: Ints  # [points] rows (or their weight) that have the value; of a thinned block, that it stands for
    between: Ints  # [windows + 1, or 0] weight of the rows before, between and after the windows
    variance: float  # of the weight below a point; 0 if all is exact


def summarise(question: Question, values: np.ndarray, weights: Ints | None = None) -> Summary:
    """One block of a column, float32 or float64; NaN and rows of weight 0 take no part. Weights are whole numbers."""
    if weights is None:
        ordered = np.sort(values)  # NaN goes last
        ordered = ordered[: np.searchsorted(ordered, values.dtype.type(np.nan))]
    else:
        ordered, weights = sorted_with_weights(values, weights)
    upto = np.arange(0) if weights is None else np.append(0, np.cumsum(weights))  # of the first i rows
    if question.windows is not None:
        return _look_into_windows(question, question.windows, ordered, upto)
    total = len(ordered) if weights is None else int(upto[-1])
    few = max(total // question.stride, question.fewest, len(ordered) // MANY_ROWS)
    if np.count_nonzero(ordered[1:] != ordered[:-1]) < few:
        return Summary(*_collapsed(ordered, weights), np.empty(0, np.int64), 0.0)
    # The middle of every run of `stride` rows stands for all of them, so that errors do not add up to one side.
    starts = np.arange(0, total, question.stride)
    stops = np.minimum(starts + question.stride, total)
    middles = (starts + stops) // 2
    chosen = middles if weights is None else np.searchsorted(upto[1:], middles, side="right")
    return Summary(*_collapsed(ordered[chosen], stops - starts), np.empty(0, np.int64), question.stride**2 / 12.0)


def _look_into_windows(question: Question, windows: Floats, ordered: np.ndarray, upto: Ints) -> Summary:
    ends = np.searchsorted(ordered, rounded_up(windows, ordered.dtype))
    limits = np.concatenate([[0], ends, [len(ordered)]])  # outside and inside of windows in turn, or inside first
    pieces = list(pairwise(limits.tolist()))
    outside, inside = (pieces[1::2], pieces[::2]) if question.is_open else (pieces[::2], pieces[1::2])
    found = np.concatenate([ordered[:0], *(ordered[a:b] for a, b in inside)])
    if not len(upto):
        return Summary(*_collapsed(found, None), np.array([b - a for a, b in outside], np.int64), 0.0)
    weights = np.diff(upto)
    counted = np.concatenate([weights[:0], *(weights[a:b] for a, b in inside)])
    return Summary(*_collapsed(found, counted), np.array([upto[b] - upto[a] for a, b in outside], np.int64), 0.0)


def _collapsed(ordered: np.ndarray, weights: Ints | None) -> tuple[Floats, Ints]:
    """Different values, with the weights of equal ones together; None: 1 each."""
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    if weights is None:
        together = np.diff(np.append(first, len(ordered)))
    else:
        together = np.add.reduceat(weights, first) if len(first) else weights
    return ordered[first].astype(np.float64), together


def merge(summaries: Sequence[Summary]) -> Summary:
    """Answers to the same question as one; in any order, and answers of merged blocks may be merged again."""
    if len(summaries) == 1:
        return summaries[0]
    values, weights = np.concatenate([s.values for s in summaries]), np.concatenate([s.weights for s in summaries])
    order = np.argsort(values, kind="stable")
    between = np.sum([s.between for s in summaries], axis=0)
    return Summary(*_collapsed(values[order], weights[order]), between, sum(s.variance for s in summaries))


class EdgeSearch:
    """The edges of one column, asked for in rounds; `question` is None once `edges` are known."""

    def __init__(self, total_weight: int, n_bins: int) -> None:
        self._n_bins = n_bins
        # A block with less than two distinct values per bin tells them all: a thinned column has cuts to choose from.
        first = Question(max(1, -(-total_weight // POINTS)), 2 * n_bins)
        self.question: Question | None = first if n_bins > 1 else None
        self._guide: Summary | None = None
        self._window = FIRST_WINDOW
        self.edges: Floats = np.empty(0)

    def learn(self, answer: Summary) -> None:
        """Take the answer of all blocks together; the next question, if any, is in `question`."""
        if self.question is None:
            return
        if self.question.windows is None:
            if answer.variance == 0.0:
                self._finish(edges_of(answer.values, answer.weights, self._n_bins))
                return
            self._guide = answer
            below = np.cumsum(answer.weights) - answer.weights
            self._ask(answer.values, below, int(answer.weights.sum()), self.question.stride)
            return
        known = _known(self.question, answer)
        chosen = _exact_cuts(known, self._n_bins)
        if chosen is not None:
            self._finish(edges_between(known.values[chosen - 1], known.values[chosen]))
            return
        self._window *= WIDER
        self._ask(*self._better_guess(known), known.total)

    def _finish(self, edges: Floats) -> None:
        self.edges, self.question, self._guide = edges, None, None

    def _ask(self, values: Floats, below: Ints, total: int, granularity: int = 0) -> None:
        """Windows around the cuts that these places of values give; where there are too few of them, everything."""
        if self._guide is None or self.question is None:
            return
        n_cuts = self._n_bins - 1
        reach = int(self._window * (self._guide.variance + 1.0) ** 0.5) + 2 * self.question.stride
        windows: list[tuple[int, int]] = [(0, len(values))]
        if len(values) > n_cuts:
            at = _places_of_cuts(below, total, n_cuts, granularity)
            starts = np.searchsorted(below, at - reach, side="right") - 1
            stops = np.searchsorted(below, at + reach, side="left") + 1
            windows = _joined(np.maximum(starts, 0), np.minimum(stops, len(values)))
        # The window up to the last known value goes on to the end: rows may lie beyond what is known.
        ends = [float(values[i]) for window in windows for i in window if i < len(values)]
        is_open = windows[0][0] == 0
        self.question = self.question._replace(windows=np.array(ends[1:] if is_open else ends), is_open=is_open)

    def _better_guess(self, known: _Known) -> tuple[Floats, Ints]:
        """Known values, and between them the points of the first answer, moved to fit."""
        guide = self._guide
        if guide is None or not len(known.values):
            return known.values, known.below
        guessed = np.cumsum(guide.weights) - guide.weights
        at = np.searchsorted(guide.values, known.values)
        estimates = np.append(guessed, known.total)[at]
        moved = guessed + np.interp(guessed, estimates, known.below - estimates)
        values = np.concatenate([known.values, guide.values])
        below = np.concatenate([known.below, moved.astype(np.int64)])
        values, first = np.unique(values, return_index=True)  # the first of equals is the known one
        return values, np.maximum.accumulate(np.clip(below[first], 0, known.total))


class _Known(NamedTuple):
    """Values whose place among all rows is exactly known."""

    values: Floats
    below: Ints  # weight of all rows with smaller values
    follows: Bools  # there is no row between the value before and this one
    total: int
    is_complete: bool  # no row has a larger value than the last


def _known(question: Question, answer: Summary) -> _Known:
    """The values in the windows, in their places."""
    windows = np.empty(0) if question.windows is None else question.windows
    starts = windows[1::2] if question.is_open else windows[::2]
    # In front of a value lie the rows of all values before it that are in windows, and those before its window.
    gaps_before = np.searchsorted(starts, answer.values, side="right")
    outside = np.cumsum(answer.between)
    inside = np.cumsum(answer.weights) - answer.weights
    below = inside + np.append(0, outside)[gaps_before]
    through = below + answer.weights
    follows = np.append(below[:1] == 0, below[1:] == through[:-1])
    total = int(answer.weights.sum() + answer.between.sum())
    return _Known(answer.values, below, follows, total, bool(len(through)) and int(through[-1]) == total)


def _exact_cuts(known: _Known, n_bins: int) -> Ints | None:
    """The values that cuts lie before, if what is known leaves no doubt about any of them."""
    n_cuts = n_bins - 1
    first = int(np.searchsorted(known.below, 0, side="right"))  # nothing lies before the smallest value
    below, follows = known.below[first:], known.follows[first:]
    if len(below) < n_cuts:
        return None
    chosen = np.empty(n_cuts, np.int64)
    spread_cuts(below, known.total, chosen)
    bins_left = np.arange(n_bins, 1, -1)
    reached = np.append(0, below[chosen[:-1]])
    is_enough = below[chosen] * bins_left >= reached * bins_left + (known.total - reached)
    # A cut before its share is full was nearer than the next boundary, or the last one that leaves some for the others:
    # then all that follow must be known.
    decided_by_next = ~is_enough & (chosen < len(below) - np.arange(n_cuts, 0, -1))
    at_the_end = ~is_enough & ~decided_by_next
    sure = follows[chosen].all() and follows[chosen[decided_by_next] + 1].all()
    if at_the_end.any():
        sure = sure and known.is_complete and bool(follows[chosen[at_the_end][0] :].all())
    return chosen + first if sure else None


def _places_of_cuts(below: Ints, total: int, n_cuts: int, granularity: int) -> Floats:
    """About where the rule puts its cuts: weight below each, of values with this weight below them.

    A step of no more than `granularity` may only look like one because points are told and not all values: then a cut
    can be right at its share, else every rounding to a point would move all later ones a little further.
    """
    places, reached, first, sorted_places = np.empty(n_cuts), 0.0, 1, below.astype(np.float64)
    for k in range(n_cuts):
        share = reached + (total - reached) / (n_cuts + 1 - k)
        at = min(max(int(np.searchsorted(sorted_places, share)), first), len(below) - 1)
        before, here = float(below[at - 1]), float(below[at])
        if here - before <= granularity:
            reached, first = max(share, reached), at
        else:
            at -= int(at > first and share - before <= here - share)
            reached, first = float(below[at]), at + 1
        places[k] = reached
    return places


def _joined(starts: Ints, stops: Ints) -> list[tuple[int, int]]:
    """Windows in order, those that overlap or touch as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined
