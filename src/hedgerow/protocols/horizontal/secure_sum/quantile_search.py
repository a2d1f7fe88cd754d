"""Edges of numeric columns whose rows lie with several owners, found by asking only "how many rows are below?".

    owners:       answer, for a list of probes, the number of their rows with value < probe (`counts_below`)
    coordinator:  sees the sums of these answers over all owners; from them it chooses the next probes, and in the end
                  the edges that `binning.py` would choose on the pooled rows, up to a tolerance

What is known of a column at any time are boundaries, "this many rows lie below here", and intervals between them:

    rows below    0          310   355               700            1000
                  |-----------|-----|-----------------|---------------|
    cuts due at                 333             667

With three bins the cuts are due after 333 and 667 rows. 355 is near enough for the first, 700 for the second unless the
tolerance is small; then the interval before it is probed further, and so are those of all cuts of all columns at once.
An interval with one row, or with a single representable number, cannot be divided: there a cut goes to the nearer end,
as it must on pooled rows too. So ties end the search instead of stalling it (FederBoost's Protocol 3 has no end where
no value has exactly the wanted rank), a heavy value gets an edge on both sides, and distinct values that fit the bins
get a bin each. No smallest or largest value is ever asked for.

Everything is computed from whole numbers, so the edges depend on the sums alone and not on how rows are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.compiling import inline_kernel, kernel
from hedgerow.engine.binning import edges_between, rounded_up
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.table import Column, SparseColumn
from hedgerow.errors import InvalidInput
from hedgerow.protocols.number_line import NumberLine, first_look

TOLERANCE = 1 / 8
MAX_ROUNDS = 12
PROBES_PER_COLUMN = 4096

_FEWEST_PROBES, _PROBES_PER_BIN = 1024, 17
"""No more probes than these per column and round, where that is less: they are to be sent, and they tell something."""

_CUT_WEIGHT, _MOST_PROBES = 4, 64
"""An interval has this weight for each cut that waits in it, and at most so many probes per weight."""

_GUESSES = 5
"""Guesses at a tied value per interval, see `divide_intervals`."""


# --- an owner's side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SortedTally:
    """Values in order that stand for several rows each: those of a sparse column, of which the zeros are one."""

    values: np.ndarray
    below: Ints  # [values + 1] rows before each, and all of them

    def __len__(self) -> int:
        return int(self.below[-1])


SortedColumn = np.ndarray | SortedTally


def sorted_values(column: Column) -> SortedColumn:
    """A numeric column's values in order and in their own type, without missing ones; its length is their number."""
    if isinstance(column, SparseColumn):
        values, n_rows = column.tally()
        order = np.argsort(values)[: len(values) - int(np.isnan(values).sum())]  # NaN goes last
        return SortedTally(values[order], np.concatenate([[0], np.cumsum(n_rows[order])]))
    ordered = np.sort(column.values)
    nan = ordered.dtype.type(np.nan)  # of the column's own type, else searchsorted would convert it
    return ordered[: np.searchsorted(ordered, nan)]


def counts_below(columns: Sequence[SortedColumn], probes: Floats, offsets: Ints) -> Ints:
    """For each probe the number of rows with value < probe; column j's are `probes[offsets[j]:offsets[j + 1]]`.

    `columns` are sorted, and the probes of each increase.
    """
    each = zip(columns, np.split(probes, offsets[1:-1]), strict=True)
    return np.concatenate([_counts_below(ordered, some) for ordered, some in each])


def _counts_below(ordered: SortedColumn, probes: Floats) -> Ints:
    # Probes of the column's own type that divide its values alike, else searchsorted would convert these.
    if isinstance(ordered, SortedTally):
        below: Ints = ordered.below[np.searchsorted(ordered.values, rounded_up(probes, ordered.values.dtype))]
        return below
    return np.searchsorted(ordered, rounded_up(probes, ordered.dtype))


# --- the coordinator's -----------------------------------------------------------------------------------------------


class QuantileSearch:
    """The search for all numeric columns at once: `next_probes` and `update` in turn until there are none.

    `kinds`: "float64", "float32" or "integer" per column, which says where its values can lie. `n_present`: its rows
    with a value, over all owners. `n_bins`: bins for values, so at most `n_bins - 1` edges. `tolerance`: how far, as a
    share of an even bin, a cut may lie from where it is due. At most `max_rounds` rounds of at most `probes_per_column`
    probes per column; a cut that has not come within its tolerance by then goes to the nearest boundary found.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        n_present: Ints,
        n_bins: int,
        *,
        tolerance: float = TOLERANCE,
        max_rounds: int = MAX_ROUNDS,
        probes_per_column: int = PROBES_PER_COLUMN,
    ) -> None:
        self._columns = [
            _Column(j, NumberLine(kind), int(n), n_bins - 1, tolerance)
            for j, (kind, n) in enumerate(zip(kinds, n_present, strict=True))
        ]
        self._budget = min(probes_per_column, max(_FEWEST_PROBES, _PROBES_PER_BIN * n_bins))
        self._max_rounds = max_rounds
        self._asked: list[Ints] | None = None
        self.rounds = 0
        """Rounds of probes so far."""

    @property
    def converged(self) -> bool:
        """Whether every cut is within its tolerance, or where ties put it."""
        return all(column.done for column in self._columns)

    def next_probes(self) -> tuple[Floats, Ints] | None:
        """The probes of all columns, one after the other, and the offset of each column's; None at the end."""
        if self._asked is None:
            if self.rounds == self._max_rounds or self.converged:
                return None
            self._asked = [column.places_to_ask(self.rounds, self._budget) for column in self._columns]
        offsets = np.zeros(len(self._columns) + 1, np.int64)
        np.cumsum([len(places) for places in self._asked], out=offsets[1:])
        numbers = [column.line.numbers(places) for column, places in zip(self._columns, self._asked, strict=True)]
        return np.concatenate(numbers), offsets

    def update(self, counts: Ints) -> None:
        """Take the counts of rows below each of the last probes, summed over all owners."""
        start = 0
        for column, places in zip(self._columns, self._asked or (), strict=True):
            column.learn(places, counts[start : start + len(places)])
            start += len(places)
        self._asked = None
        self.rounds += 1

    def edges(self) -> list[Floats]:
        """Per column at most `n_bins - 1` edges, finite and increasing; before the end, the best ones so far."""
        return [column.edges() for column in self._columns]


class _Column:
    """What is known of one column.

    Boundary i: `below[i]` rows lie below any number from place `first[i]` to place `last[i]`, both included. The first
    and the last boundary are the ends of the line and no possible cuts. Interval i lies between boundaries i and i + 1;
    `possible[i]` more boundaries may turn up in it, and `cuts_in[i]` cuts wait for that. `guesses` are the last
    probes at places where float32 has no number, in intervals where it has some.
    """

    def __init__(self, index: int, line: NumberLine, n_rows: int, n_cuts: int, tolerance: float) -> None:
        self.line = line
        self.done = n_rows < 2 or n_cuts == 0
        self._index, self._n_rows, self._n_cuts, self._tolerance = index, n_rows, n_cuts, tolerance
        self._first = np.array([-line.largest, line.largest + 1], np.int64)
        self._last = self._first.copy()
        self._below = np.array([0, n_rows], np.int64)
        self._possible = np.full(1, n_rows, np.int64)
        self._cuts_in = np.zeros(1, np.int64)
        self._guesses = np.empty(0, np.int64)

    def places_to_ask(self, round_number: int, budget: int) -> Ints:
        """The next probes as places on the line, increasing."""
        if self.done:
            return np.empty(0, np.int64)
        if round_number == 0:
            return first_look(self.line.kind, budget)
        weights = np.maximum(_CUT_WEIGHT * self._cuts_in, self._worth_a_look(round_number, budget))
        wanted = np.flatnonzero(weights)
        weights = weights[wanted]
        shares = np.minimum((budget - _GUESSES * len(wanted)) * weights // weights.sum(), _MOST_PROBES * weights)
        low, high = self._last[wanted], self._first[wanted + 1]
        # In the second round a cut is most often just not there yet; guesses are for intervals that hold it up.
        guesses = _guesses(self.line, low, high) if round_number > 1 else low
        grain = self.line.grain
        self._guesses = guesses[(guesses % grain != 0) & ((high - 1) // grain > low // grain)]
        places = np.empty(int(shares.sum()) + _GUESSES * len(wanted), np.int64)
        return places[: divide_intervals(low, high, shares, guesses, grain, places)]

    def _worth_a_look(self, round_number: int, budget: int) -> Bools:
        """Intervals without a waiting cut that get a few probes nevertheless, the heaviest ones that can be divided.

        Where a cut meets a tie, those after it move, and may come to lie in any of them. Not in the second round of a
        column with many boundaries: it has few ties, or none.
        """
        rows = np.where(self._possible > 0, np.diff(self._below), 0)
        n_looks = 2 * self._n_cuts if round_number == 1 else budget // 16
        if len(rows) <= n_looks:
            return np.greater(rows, 0)
        if round_number == 1:
            return np.zeros(len(rows), np.bool_)
        return np.greater(rows, int(np.partition(rows, -n_looks - 1)[-n_looks - 1]))

    def learn(self, places: Ints, counts: Ints) -> None:
        """Take the number of rows below each of some places."""
        if not len(places):
            return
        places, counts = self._without_failed_guesses(places, counts)
        first, last, below = np.empty((3, len(self._below) + len(places)), np.int64)
        size = merge_boundaries(self._first, self._last, self._below, places, counts, first, last, below)
        if size < 0:
            raise InvalidInput(
                f"the counts of numeric column {self._index} are impossible: rows below a probe must grow with the "
                f"probe, up to the {self._n_rows} rows that have a value"
            )
        first, last, below = first[:size], last[:size], below[:size]
        self._first, self._last, self._below = first, last, below
        self._possible = np.minimum(np.diff(below), first[1:] - last[:-1]) - 1  # fewer than rows, and than places
        self._cuts_in, _ = self._lay_cuts(self._possible)
        self.done = not self._cuts_in.any()

    def _without_failed_guesses(self, places: Ints, counts: Ints) -> tuple[Ints, Ints]:
        """Forget the guesses at numbers that no row has: float32 cannot hold them, so they would make poor edges."""
        at = np.searchsorted(places[:-1], self._guesses)
        guessed = (places[at] == self._guesses) & (places[np.minimum(at + 1, len(places) - 1)] == self._guesses + 1)
        at = at[guessed]
        failed = at[counts[at] == counts[at + 1]]
        kept = np.ones(len(places), np.bool_)
        kept[failed] = kept[failed + 1] = False
        return places[kept], counts[kept]

    def edges(self) -> Floats:
        """The best edges that the boundaries known so far allow."""
        _, chosen = self._lay_cuts(np.zeros_like(self._possible))
        first, last = self.line.numbers(self._first[chosen]), self.line.numbers(self._last[chosen])
        # Between the place before `first` and `last` there are no rows, except on the former: as between two values.
        edges = edges_between(self.line.numbers(self._first[chosen] - 1), last)
        rounded = _rounded_up_to_float32(first)
        return np.where((edges != _rounded_up_to_float32(edges)) & (rounded <= last), rounded, edges)

    def _lay_cuts(self, possible: Ints) -> tuple[Ints, Ints]:
        cuts_in = np.zeros(len(possible), np.int64)
        chosen = np.empty(self._n_cuts, np.int64)
        size = lay_cuts(self._below, possible, self._n_cuts, self._tolerance, cuts_in, chosen)
        return cuts_in, chosen[:size]


def _rounded_up_to_float32(numbers: Floats) -> Floats:
    return rounded_up(numbers, np.dtype(np.float32)).astype(np.float64) + 0.0  # no negative zeros


def _guesses(line: NumberLine, low: Ints, high: Ints) -> Ints:
    """Per interval the place of its roundest decimal number: where rows are tied, this is often their value.

    A tie is settled once the number and its neighbour have been probed, instead of halving on to the last bit. `low`
    itself stands for no guess: it and its neighbour are probed anyhow.
    """
    a, b = line.numbers(low), line.numbers(high)
    guesses = low.copy()
    with np.errstate(over="ignore"):
        digits = np.clip(np.floor(-np.log10(b - a)), -22, 21)  # powers of ten up to 22 are exact
        for more in (1, 0):
            power = digits + more
            up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
            number = np.ceil(a * up / down) * down / up
            inside = (number > a) & (number < b)
            guesses[inside] = line.places(number[inside])
    return np.where(guesses == low + 1, low, guesses)


@kernel
def merge_boundaries(
    old_first: Any, old_last: Any, old_below: Any, places: Any, counts: Any, first: Any, last: Any, below: Any
) -> int:
    """Boundaries with new ones merged in by place; those with the same number of rows below become one.

    In: the old boundaries; increasing `places` with their `counts`. Out: `first`, `last`, `below`.
    Returns how many there are, or -1 if the counts contradict themselves or the old boundaries.
    """
    size = 1
    first[0], last[0], below[0] = old_first[0], old_last[0], old_below[0]
    i = 1
    p = 0
    while i < len(old_below):
        if p < len(places) and places[p] < old_first[i]:
            f, t, b = places[p], places[p], counts[p]
            p += 1
        else:
            f, t, b = old_first[i], old_last[i], old_below[i]
            i += 1
        if b < below[size - 1]:
            return -1
        if b == below[size - 1]:
            last[size - 1] = t
        else:
            first[size], last[size], below[size] = f, t, b
            size += 1
    return size


@kernel
def lay_cuts(below: Any, possible: Any, n_cuts: int, tolerance: float, cuts_in: Any, chosen: Any) -> int:
    """Choose boundaries for the cuts, from left to right, each nearest to an even share of the rows.

    A cut is settled if its nearest boundary is within the tolerance, or if its interval cannot be divided. Where this
    leaves it more than half a share from where it is due, the rows from there on are shared out anew, as in
    `spread_cuts`: what a heavy value took beyond its share is missing from the others' alike. All other cuts stay
    due where they are from round to round, so that what was learned about them remains of use.

    In: `below`, rows below each boundary, the ends of the line included; `possible`, per interval the boundaries that
    may still turn up. Out: `chosen`, boundaries in order (returns how many); `cuts_in`, per interval the cuts that are
    not settled. If none is, the same boundaries are chosen with `possible` all zero.
    """
    n_inner = len(below) - 2
    total = below[n_inner + 1]
    later = np.empty(n_inner + 1, np.int64)  # boundaries after boundary i, known ones and those that may turn up
    after = 0
    for i in range(n_inner, -1, -1):
        after += possible[i]
        later[i] = after
        after += 1
    if later[0] <= n_cuts:  # every distinct value can have its bin
        _want_all(possible, 0, cuts_in)
        for i in range(n_inner):
            chosen[i] = i + 1
        return n_inner
    size = 0
    lowest = 1
    anchor, bins, step = 0, n_cuts + 1, 1  # the cut is due at anchor + step / bins of the rows after it
    for k in range(n_cuts):
        due = anchor * bins + (total - anchor) * step  # rows times `bins`, so that shares are whole
        low, high = lowest, n_inner + 1
        while low < high:  # the first boundary that is not below the cut
            middle = (low + high) // 2
            if below[middle] * bins >= due:
                high = middle
            else:
                low = middle + 1
        interval = low - 1
        choice = low
        nearer = due - below[interval] * bins <= below[low] * bins - due
        if interval >= lowest and (nearer or low > n_inner):
            choice = interval
        distance = abs(below[choice] * bins - due)
        near = distance <= tolerance * (total - anchor) or 2 * distance <= bins  # half a row is always near enough
        divisible = possible[interval] > 0
        step += 1
        if divisible and (choice > n_inner or not near):
            cuts_in[interval] += 1
            lowest = low
            continue
        if choice > n_inner:  # only one value is left
            break
        moved = 2 * distance > total - anchor
        if later[choice] < n_cuts - 1 - k:  # leave a boundary for each cut to come
            moved = True
            while choice > lowest and later[choice] < n_cuts - 1 - k:
                choice -= 1
            # Even the leftmost may not leave enough: then the missing ones can only turn up before it.
            before = 1 if later[choice] < n_cuts - 1 - k else 0
            _want_all(possible, choice - before, cuts_in)
        if moved:
            anchor, bins, step = below[choice], n_cuts - k, 1
        chosen[size] = choice
        size += 1
        lowest = choice + 1
    return size


@inline_kernel
def _want_all(possible: Any, start: int, cuts_in: Any) -> None:
    """Mark every interval from `start` on that can be divided."""
    for i in range(start, len(possible)):
        if possible[i] > 0:
            cuts_in[i] = max(cuts_in[i], 1)


@kernel
def divide_intervals(low: Any, high: Any, shares: Any, guesses: Any, grain: int, places: Any) -> int:
    """Places strictly inside some intervals, increasing: about `shares[i]` evenly spread ones, and a few guesses.

    Multiples of `grain` as long as there are any, so that edges are numbers that float32 can hold; rounded to a part of
    their distance, so that they are round numbers. Guesses are `low[i]` and `guesses[i]`: probes at them, just after
    and at the next multiple of `grain` show whether they are tied values, and leave room for an edge behind.
    Out: `places`; returns how many.
    """
    size = 0
    for i in range(len(low)):
        unit = grain
        base = low[i] // grain
        inside = (high[i] - 1) // grain - base
        if inside < 1:
            unit = 1
            base = low[i]
            inside = high[i] - 1 - low[i]
        start = size
        parts = min(shares[i], inside) + 1
        width = (inside + 1) // parts
        rest = (inside + 1) % parts
        rounding = 0
        while (width >> (rounding + 4)) > 0:
            rounding += 1
        for j in range(1, parts):
            place = base + width * j + rest * j // parts  # width and rest apart: their sum times j could overflow
            places[size] = ((place >> rounding) << rounding) * unit
            size += 1
        for guess in (low[i], guesses[i]):
            for place in (guess, guess + 1, (guess // grain + 1) * grain):
                if low[i] < place < high[i]:
                    size = _insert(place, places, start, size)
    return size


@inline_kernel
def _insert(place: int, places: Any, start: int, size: int) -> int:
    """Put a place where it belongs among increasing ones, unless it is there already; the new size."""
    position = size
    while position > start and places[position - 1] >= place:
        position -= 1
    if position == size or places[position] != place:
        for i in range(size, position, -1):
            places[i] = places[i - 1]
        places[position] = place
        size += 1
    return size
