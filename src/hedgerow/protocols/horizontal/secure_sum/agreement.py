"""Do the owners' tables fit together? Decided from their descriptions, before anything else moves.

Columns must agree in name, order and kind. Levels and classes are united, because an owner need not have met every rare
level; levels that are too many for a byte are put into public groups (`engine/level_groups.py`) by all. But an owner
that shares none of its levels with the others, or whose classes are neither among the others' nor include them, codes
them differently, and that is an error which names it. What a peer says is checked before: a message
that no table can have is a ProtocolError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.level_groups import MOST_GROUPS, groups_fit
from hedgerow.engine.table import Level, Rule
from hedgerow.errors import InvalidInput
from hedgerow.protocols.horizontal.secure_sum.messages import Agreement, TableDescription, refuse
from hedgerow.protocols.number_line import KINDS, common_kind
from hedgerow.schema import hash_groups
from hedgerow.times import TIME_RULES
from hedgerow.transport.frames import Message

Levels = list[Any]

LEVELS, HASHED = "levels", "hashed levels"
WITH_LEVELS = (LEVELS, HASHED)
"""The kinds of a categorical column, beside those of number lines and of times (`times.TimeRule`)."""

_WORDS = {LEVELS: "categorical", HASHED: "categorical", "time": "dates or times", "duration": "durations"}

MOST_LEVELS = 2**16
"""Of one list; how many of them are supported is another question, with an error of its own."""


def agree(
    descriptions: Mapping[str, TableDescription],
    *,
    classes: Sequence[Any] | None = None,
    declared: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    weighs_classes: bool = False,
) -> Agreement:
    """What all owners go by; InvalidInput names the owner and the column that do not fit.

    `declared`: levels of columns for which a public schema has them; then nothing is united, and others are refused.
    Rows are weighted if those of any owner are, or if classes are weighed.
    """
    names = list(descriptions)
    first = names[0]
    for owner in names[1:]:
        _same_columns(first, descriptions[first], owner, descriptions[owner])
    kinds, levels = [], []
    for position, column in enumerate(descriptions[first].columns):
        theirs = {owner: d.kinds[position] for owner, d in descriptions.items()}
        kind = _common_kind(column, theirs)
        found = {owner: json.loads(d.levels[position]) for owner, d in descriptions.items() if kind in WITH_LEVELS}
        if column in declared and kind in WITH_LEVELS:
            common = list(declared[column]) if kind == HASHED else _declared_levels(column, found, declared[column])
        else:
            kind, common = _united_levels(column, kind, found)
        kinds.append(kind)
        levels.append(json.dumps(common) if kind in WITH_LEVELS else "")
    weighted = weighs_classes or any(description.weighted for description in descriptions.values())
    return Agreement(tuple(kinds), tuple(levels), _common_classes(descriptions, classes), weighted)


def _same_columns(first: str, theirs: TableDescription, owner: str, mine: TableDescription) -> None:
    if theirs.columns == mine.columns:
        return
    missing = [name for name in theirs.columns if name not in mine.columns]
    extra = [name for name in mine.columns if name not in theirs.columns]
    if missing or extra:
        parts = [f"lacks column {missing[0]!r}, which {first} has"] if missing else []
        parts += [f"has column {extra[0]!r}, which {first} has not"] if extra else []
        raise InvalidInput(f"{owner}: the tables do not fit together: {owner} {' and '.join(parts)}")
    position = next(k for k, (a, b) in enumerate(zip(theirs.columns, mine.columns, strict=True)) if a != b)
    raise InvalidInput(
        f"{owner}: column {mine.columns[position]!r} stands where {first} has {theirs.columns[position]!r}; "
        "bring the columns into the same order"
    )


def _common_kind(column: str, theirs: Mapping[str, str]) -> str:
    """The narrowest kind that holds everybody's values."""
    words = {owner: _WORDS.get(kind, "numeric") for owner, kind in theirs.items()}
    if len(set(words.values())) > 1:
        by_words = {word: [owner for owner in words if words[owner] == word] for word in words.values()}
        (odd_word, odd), (word, others) = sorted(by_words.items(), key=lambda item: len(item[1]))[:2]
        raise InvalidInput(f"{odd[0]}: column {column!r} is {odd_word} there and {word} at {', '.join(others)}")
    kinds = set(theirs.values())
    if kinds <= set(WITH_LEVELS):
        return HASHED if HASHED in kinds else LEVELS
    return kinds.pop() if kinds <= set(TIME_RULES) else common_kind(kinds)


def _declared_levels(column: str, found: Mapping[str, Levels], declared: Sequence[Any]) -> Levels:
    for owner, levels in found.items():
        unknown = [level for level in levels if level not in declared]
        if unknown:
            raise InvalidInput(
                f"{owner}: column {column!r} has the level {unknown[0]!r}, which the schema does not list"
            )
    return list(declared)


def _check_alike(what: str, found: Mapping[str, Levels], advice: str = "") -> None:
    """All text, or all numbers."""
    text = [owner for owner, values in found.items() if isinstance(values[0], str)]
    numbers = [owner for owner in found if owner not in text]
    if text and numbers:
        odd = text if len(text) < len(numbers) else numbers
        raise InvalidInput(
            f"{odd[0]}: {what} are text at {', '.join(text)} but numbers at {', '.join(numbers)}{advice}"
        )


def _united_levels(column: str, kind: str, found: Mapping[str, Levels]) -> tuple[str, Levels]:
    """All levels that somebody has; or, where they are too many for somebody or for all together, public groups."""
    if kind == HASHED:
        return HASHED, list(hash_groups(MOST_GROUPS))
    _check_alike(f"the levels of column {column!r}", {owner: levels for owner, levels in found.items() if levels})
    for owner, levels in found.items():
        others: set[Any] = set().union(*(found[name] for name in found if name != owner))
        if levels and others and not others.intersection(levels):
            raise InvalidInput(
                f"{owner}: column {column!r} has the levels {_some(levels)} there and {_some(sorted(others))} at the "
                "others, and none in common; code them alike"
            )
    united = sorted(set().union(*found.values()))
    return (kind, united) if len(united) < MAX_BINS else (HASHED, list(hash_groups(MOST_GROUPS)))


def _common_classes(descriptions: Mapping[str, TableDescription], declared: Sequence[Any] | None) -> str:
    found = {owner: json.loads(d.classes) for owner, d in descriptions.items() if d.classes}
    if not found:
        return ""
    _check_alike("the labels", found, "; code them alike")
    united = sorted(set().union(*found.values())) if declared is None else list(declared)
    for owner, classes in found.items():
        unknown = [label for label in classes if label not in united]
        if unknown:
            raise InvalidInput(f"{owner}: the label {unknown[0]!r} is not among the declared classes {_some(united)}")
    if declared is None and all(len(classes) < len(united) for classes in found.values()):
        fullest = max(found, key=lambda owner: len(found[owner]))
        for owner, classes in found.items():
            odd_labels = [label for label in classes if label not in found[fullest]]
            if odd_labels:
                raise InvalidInput(
                    f"{owner}: the label {odd_labels[0]!r} does not occur at {fullest}, whose labels are "
                    f"{_some(found[fullest])}; code them alike, or declare classes=[...] if all of them are meant"
                )
    if len(united) < 2:
        raise InvalidInput(f"the labels of all owners together have one class only, {united[0]!r}")
    return json.dumps(united)


def same_model(descriptions: Mapping[str, TableDescription]) -> str:
    """The digest of the model that all owners go on from, "" for none; InvalidInput names one that has another."""
    first = next(iter(descriptions))
    for owner, description in descriptions.items():
        if description.earlier != descriptions[first].earlier:
            have = {True: "goes on from a model", False: "begins anew"}
            raise InvalidInput(
                f"{owner}: {have[bool(description.earlier)]}, and {first} {have[bool(descriptions[first].earlier)]}"
                f"{' that is another' * bool(description.earlier and descriptions[first].earlier)}; all owners must "
                "bring the same earlier model, or none"
            )
    return descriptions[first].earlier


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(repr(value) for value in values[:5])
    return f"[{shown}{', ...' if len(values) > 5 else ''}]"


# --- what owners and coordinator say ---------------------------------------------------------------------------------


def read_list(sender: str, message: Message, name: str, text: str) -> list[Level]:
    """A JSON list of different levels or classes: all texts, or all finite numbers."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) > MOST_LEVELS:
        raise refuse(sender, message, f"with {name} that is not a list of at most {MOST_LEVELS} values")
    texts = sum(isinstance(value, str) for value in values)
    usable = texts == len(values) or (texts == 0 and all(map(_is_number, values)))
    if not usable or len(set(values)) < len(values):
        raise refuse(sender, message, f"with {name} that are not all texts or all numbers, without repetition")
    return values


def rules_of(kinds: Sequence[str]) -> list[Rule | None]:
    """What becomes of the values of each column first, as its kind says."""
    rules: dict[str, Rule] = {HASHED: "hash", "time": "time", "duration": "duration"}
    return [rules.get(kind) for kind in kinds]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def check_description(sender: str, message: TableDescription, *, has_classes: bool) -> None:
    """Names, kinds, levels and classes as a table can have them."""
    if len(set(message.columns)) < len(message.columns):
        raise refuse(sender, message, "with two columns of one name")
    _check_columns(sender, message)
    if bool(message.classes) != has_classes:
        raise refuse(sender, message, "with classes where there are none, or without where there are")
    if message.classes and not read_list(sender, message, "classes", message.classes):
        raise refuse(sender, message, "without a single class")


def _check_columns(sender: str, message: TableDescription | Agreement) -> None:
    for kind, levels in zip(message.kinds, message.levels, strict=True):
        if kind not in (*KINDS, *TIME_RULES, *WITH_LEVELS) or bool(levels) != (kind in WITH_LEVELS):
            raise refuse(sender, message, f"with a column of kind {kind[:32]!r} that has levels, or none where it must")
        if levels:
            listed = read_list(sender, message, "levels", levels)
            if kind == HASHED and not groups_fit(listed, "hash"):
                raise refuse(sender, message, "with groups of levels that the public rule does not give")


def check_agreement(sender: str, message: Agreement, mine: TableDescription) -> None:
    """It must leave room for everything in this owner's own description."""
    _check_columns(sender, message)
    if bool(message.classes) != bool(mine.classes):
        raise refuse(sender, message, "with classes where there are none, or without where there are")
    if mine.weighted and not message.weighted:
        raise refuse(sender, message, "without weights, which this owner's rows have")
    pairs = [("classes", message.classes, mine.classes, MOST_LEVELS)] if mine.classes else []
    for kind, own_kind, levels, own in zip(message.kinds, mine.kinds, message.levels, mine.levels, strict=True):
        differs = (kind in WITH_LEVELS) != (own_kind in WITH_LEVELS)
        if differs or (own_kind == HASHED and (kind, levels) != (HASHED, own)):
            raise refuse(sender, message, f"that takes a column for {kind!r}, which is {own_kind!r} here")
        if kind == LEVELS:
            pairs.append(("levels", levels, own, MAX_BINS - 1))
    for name, text, own, most in pairs:
        common = read_list(sender, message, name, text)
        if len(common) > most or not set(json.loads(own)) <= set(common):
            raise refuse(sender, message, f"with {name} that lack some of this owner's, or too many")
    if message.classes and len(json.loads(message.classes)) < 2:
        raise refuse(sender, message, "with one class only")
