"""Blocks to bins and codes, some rows at a time: what `read_table` and `BinMapper` do to a table in memory.

    see_levels      which levels categorical columns have
    ask             answers to questions about numeric columns, from which `EdgeSearch` finds their edges
    write_codes     codes of the rows

Each is done for some batches of rows, and what it returns is merged with that of others, wherever they are: here, in
another process, on another machine. `fit_bins` does the first two for all rows here. Bins and codes are the same, bit
for bit, as those of the whole table in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from hedgerow.engine.binning import BinMapper, FeatureBins, check_max_bins
from hedgerow.engine.blocks import Blocks, Piece
from hedgerow.engine.dtypes import Bools, Bytes, Ints
from hedgerow.engine.edge_search import POINTS, EdgeSearch, Question, Summary, merge, summarise
from hedgerow.engine.level_groups import ManyLevels, check_many_levels
from hedgerow.engine.table import (
    Level,
    Raw,
    Rule,
    are_categorical,
    as_coded,
    family_of,
    open_source,
    plain_levels,
    read_table,
    rows_of_levels,
    sorted_levels,
    time_rules,
)
from hedgerow.engine.threads import Team

COLUMNS_SEARCHED, COLUMNS_READ = 8, 64
"""Columns of many rows whose edges are searched together, for each takes some tens of megabytes meanwhile; and columns
of a wide table that are read together, so that a batch has many rows of each."""

Batches = Iterable[tuple[int, Any]]
"""What `Blocks.batches` gives: the number of a first row, and an arrow table."""


class RowChoice(NamedTuple):
    """Which rows take part, and with what weight; both by row, from row `offset` on. None: all, and alike."""

    keep: Bools | None = None
    weights: Ints | None = None  # whole numbers (`binning.whole_weights`)
    offset: int = 0

    def part(self, first: int, batch: Any) -> tuple[Any, Ints | None]:
        """Those rows of a batch that take part, and their weights."""
        rows = slice(first - self.offset, first - self.offset + batch.num_rows)
        weights = None if self.weights is None else self.weights[rows]
        if self.keep is None or self.keep[rows].all():
            return batch, weights
        import pyarrow as pa

        kept = self.keep[rows]
        return batch.filter(pa.array(kept)), None if weights is None else weights[kept]


# --- levels ----------------------------------------------------------------------------------------------------------


@dataclass
class LevelsSeen:
    """The levels of a categorical column: those that its type declares, and those that rows have."""

    n_rows: dict[Level, int] = field(default_factory=dict)  # by level: how many rows have it

    def add(self, raw: Raw, label: str) -> None:
        """The levels of some more rows."""
        coded = as_coded(raw, label)
        family_of(coded.values, label)
        self.join(LevelsSeen(rows_of_levels(plain_levels(coded), coded.codes)))

    def join(self, other: LevelsSeen) -> None:
        """Those that were seen elsewhere."""
        for level, count in other.n_rows.items():
            self.n_rows[level] = self.n_rows.get(level, 0) + count

    def levels(self, label: str, many_levels: ManyLevels) -> tuple[tuple[Level, ...], Rule | None]:
        """All of them, or groups of them by a rule, as for a column in memory."""
        return sorted_levels(self.n_rows, self.n_rows, label, many_levels, declared=True)


def see_levels(batches: Batches, where: str) -> dict[str, LevelsSeen]:
    """The levels in some rows of categorical columns."""
    seen: dict[str, LevelsSeen] = {}
    for _, batch in batches:
        source = open_source(batch, where)
        for name, raw in zip(source.names, source.columns, strict=True):
            seen.setdefault(name, LevelsSeen()).add(raw, f"{where}: column {name!r}")
    return seen


# --- edges -----------------------------------------------------------------------------------------------------------


class _Pile:
    """Summaries that are merged once they have become many, so that they take no more memory than they must."""

    def __init__(self, question: Question) -> None:
        self._waiting = [summarise(question, np.empty(0))]  # there may be no rows
        self._merged = 0

    def add(self, summary: Summary) -> None:
        self._waiting.append(summary)
        if sum(len(each.values) for each in self._waiting) > 2 * self._merged + 2 * POINTS:
            self._waiting = [self.all()]
            self._merged = len(self._waiting[0].values)

    def all(self) -> Summary:
        return merge(self._waiting)


def ask(
    batches: Batches,
    features: Sequence[FeatureBins],
    questions: Mapping[str, Question],
    choice: RowChoice,
    *,
    n_threads: int = 1,
    where: str = "X",
) -> dict[str, Summary]:
    """What some rows answer, by column; `features` say how the columns of the batches are to be read."""
    piles = {name: _Pile(question) for name, question in questions.items()}
    team = Team(n_threads)
    for first, batch in batches:
        rows, weights = choice.part(first, batch)
        if not rows.num_rows:
            continue
        table = read_table(rows, like=features, parse_text=True, where=where)
        tasks = [(questions[column.name], column.values, weights) for column in table.columns]
        for column, summary in zip(table.columns, team.run(summarise, tasks), strict=True):
            piles[column.name].add(summary)
    found = team.run(_Pile.all, [(pile,) for pile in piles.values()])
    return dict(zip(piles, found, strict=True))


class Answers(Protocol):
    """What rows say about their columns, wherever they are."""

    total_weight: int
    """Of all rows that take part."""
    at_a_time: int
    """Numeric columns to ask about together."""

    def levels(self, names: Sequence[str]) -> dict[str, LevelsSeen]:
        """The levels of categorical columns."""
        ...

    def ask(self, features: Sequence[FeatureBins], questions: Mapping[str, Question]) -> dict[str, Summary]:
        """Answers about numeric columns."""
        ...


class AnswersHere:
    """Those of all rows of some blocks, read here."""

    def __init__(self, blocks: Blocks, choice: RowChoice, n_threads: int) -> None:
        self._blocks, self._choice, self._n_threads = blocks, choice, n_threads
        # Of few rows more columns, up to the same memory: all files are opened again for every group of columns.
        fitting = COLUMNS_SEARCHED * 4 * POINTS // blocks.n_rows
        self.at_a_time = max(COLUMNS_SEARCHED, min(COLUMNS_READ, fitting))
        self.total_weight = total_weight(blocks.n_rows, choice)

    def levels(self, names: Sequence[str]) -> dict[str, LevelsSeen]:
        """The levels of categorical columns."""
        return see_levels(self._blocks.batches(names), self._blocks.where)

    def ask(self, features: Sequence[FeatureBins], questions: Mapping[str, Question]) -> dict[str, Summary]:
        """Answers about numeric columns."""
        batches, where = self._blocks.batches(list(questions)), self._blocks.where
        return ask(batches, features, questions, self._choice, n_threads=self._n_threads, where=where)


def fit_bins(
    blocks: Blocks,
    max_bins: int,
    choice: RowChoice = RowChoice(),  # noqa: B008 - a tuple of None
    *,
    categorical_features: Any = "from_dtype",
    many_levels: ManyLevels = "refuse",
    n_threads: int = 1,
) -> BinMapper:
    """The bins that `BinMapper.fit` gives for all rows that were chosen; levels are those of all rows there are."""
    return find_bins(blocks, max_bins, AnswersHere(blocks, choice, n_threads), categorical_features, many_levels)


def find_bins(
    blocks: Any,
    max_bins: int,
    answers: Answers,
    categorical_features: Any = "from_dtype",
    many_levels: ManyLevels = "refuse",
) -> BinMapper:
    """The bins of the columns of `blocks`, from what their rows answer."""
    check_max_bins(max_bins)
    check_many_levels(many_levels)
    is_categorical = dict(zip(blocks.names, are_categorical(blocks.empty(), categorical_features), strict=True))
    by_levels = [name for name in blocks.names if is_categorical[name]]
    seen: dict[str, LevelsSeen] = {}
    for group in in_groups(by_levels, COLUMNS_READ):
        seen |= answers.levels(group)
    rules = time_rules(blocks.empty(), blocks.where)
    features = {
        name: FeatureBins(name, None, *seen[name].levels(f"{blocks.where}: column {name!r}", many_levels))
        if is_categorical[name]
        else FeatureBins(name, edges=np.empty(0), rule=rules[name])
        for name in blocks.names
    }
    numeric = [name for name in blocks.names if not is_categorical[name]]
    for group in in_groups(numeric, answers.at_a_time):
        found = _with_edges([features[name] for name in group], max_bins, answers)
        features |= {feature.name: feature for feature in found}
    return BinMapper(tuple(features.values()))


def _with_edges(features: Sequence[FeatureBins], max_bins: int, answers: Answers) -> list[FeatureBins]:
    rules = {feature.name: feature.rule for feature in features}
    searches = {feature.name: EdgeSearch(answers.total_weight, max_bins - 1) for feature in features}
    while questions := {name: s.question for name, s in searches.items() if s.question is not None}:
        asked = [feature for feature in features if feature.name in questions]
        for name, answer in answers.ask(asked, questions).items():
            searches[name].learn(answer)
    return [FeatureBins(name, edges=search.edges, rule=rules[name]) for name, search in searches.items()]


def in_groups(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """At most this many at a time."""
    return [names[start : start + size] for start in range(0, len(names), size)]


def total_weight(n_rows: int, choice: RowChoice) -> int:
    """What `EdgeSearch` must know of all rows beforehand."""
    if choice.weights is not None:
        return int(choice.weights.sum())
    return n_rows if choice.keep is None else int(choice.keep.sum())


# --- codes -----------------------------------------------------------------------------------------------------------


def write_codes(
    batches: Batches,
    mapper: BinMapper,
    choice: RowChoice,
    codes: Bytes,
    *,
    at: int = 0,
    n_threads: int = 1,
    where: str = "X",
) -> int:
    """Codes of the rows that were chosen into `codes` [features, rows] from row `at` on; returns where they end."""
    for first, batch in batches:
        rows, _ = choice.part(first, batch)
        if rows.num_rows:
            table = read_table(rows, like=mapper.features, parse_text=True, where=where)
            mapper.transform_into(codes, at, table, n_threads)
            at += rows.num_rows
    return at


def code_blocks(
    blocks: Blocks,
    mapper: BinMapper,
    choice: RowChoice,
    codes: Bytes,
    *,
    pieces: Sequence[Piece] | None = None,
    n_threads: int = 1,
) -> None:
    """Codes of all rows, or those of some pieces, that were chosen, into `codes` [features, rows]."""
    features = {feature.name: feature for feature in mapper.features}
    groups = in_groups(list(features), COLUMNS_READ)
    if features.keys() != set(blocks.names):  # columns that go by position, or an error that says what is missing
        batches = blocks.batches(blocks.names, pieces)
        write_codes(batches, mapper, choice, codes, n_threads=n_threads, where=blocks.where)
        return
    for number, group in enumerate(groups):
        part = BinMapper(tuple(features[name] for name in group))
        own = codes[number * COLUMNS_READ : number * COLUMNS_READ + len(group)]
        write_codes(blocks.batches(group, pieces), part, choice, own, n_threads=n_threads, where=blocks.where)
