"""Categories with more levels than a byte has codes: which of them share a bin, by a rule that the model states.

    hash        a level's group is blake2b of its text, modulo the number of groups: the same for everybody, known
                before any row is seen, and nothing about rows is in the model. A level that was never seen has a group
                like any other.
    frequent    the levels that most rows have keep bins of their own, in their order, and the last bin is for all
                others, those never seen included. Which levels are frequent is told by the model.
    refuse      an error that names the column.

Under a rule levels are texts, numbers as Python writes them (3 for 3.0), so that a column of numbers and one of texts
that say the same have the same groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, get_args

from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.errors import InvalidParameter
from hedgerow.schema import hash_groups

ManyLevels = Literal["hash", "frequent", "refuse"]
GroupRule = Literal["hash", "frequent"]
GROUP_RULES: tuple[GroupRule, ...] = ("hash", "frequent")

MOST_GROUPS = MAX_BINS - 2
"""One code fewer than there could be levels, so that the last one can stand for all that are not listed."""

REST = "(all other levels)"


def check_many_levels(value: Any) -> None:
    """Raise unless it is one of the three ways."""
    if value not in get_args(ManyLevels):
        raise InvalidParameter(f"many_levels must be 'hash', 'frequent' or 'refuse', got {value!r}")


def group_of(level: Any, count: int) -> int:
    """The group of a level, by its text alone."""
    digest = blake2b(text_of(level).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % count


def text_of(level: Any) -> str:
    """A level as text; True is 1, as it is among numbers."""
    return str(int(level)) if isinstance(level, bool) else str(level)


def frequent_levels(n_rows: Mapping[Any, int]) -> tuple[str, ...]:
    """From rows by level: those with most rows, of equal ones the first by text; sorted, with the rest behind them."""
    by_text: dict[str, int] = {}
    for level, count in n_rows.items():
        by_text[text_of(level)] = by_text.get(text_of(level), 0) + count
    first = sorted(by_text, key=lambda text: (-by_text[text], text))[:MOST_GROUPS]
    rest = REST
    while rest in first:
        rest += "*"
    return (*sorted(first), rest)


def places(values: Sequence[Any], levels: Sequence[Any], rule: str) -> list[int]:
    """The code of each value, -1 where it is None."""
    if rule == "hash":
        return [-1 if value is None else group_of(value, len(levels)) for value in values]
    index = {level: code for code, level in enumerate(levels[:-1])}
    return [-1 if value is None else index.get(text_of(value), len(levels) - 1) for value in values]


def groups_fit(levels: Sequence[Any], rule: str) -> bool:
    """Whether these are levels that the rule gives."""
    if rule == "hash":
        return len(levels) >= 2 and tuple(levels) == hash_groups(len(levels))
    return len(levels) >= 2 and all(isinstance(level, str) for level in levels)
