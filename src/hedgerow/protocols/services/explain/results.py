"""What each party has in the end: importances or contributions of its own columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from hedgerow.codec import AsJson
from hedgerow.engine.dtypes import Floats


@dataclass(frozen=True, eq=False)
class Importances(AsJson):
    """Per own column, what all splits of it are worth; the label holder also knows what each other party's are."""

    KIND: ClassVar[str] = "importances"

    party: str
    columns: tuple[str, ...]
    values: Floats  # [columns] summed gains, or numbers of splits
    others: Mapping[str, float] = field(default_factory=dict)  # feature holder -> total; the label holder's only


@dataclass(frozen=True, eq=False)
class Contributions(AsJson):
    """Per row and own column, what it adds to the raw scores.

    All parties' values and the label holder's `expected` add up to the raw score; so do, at the label holder alone,
    its own values, `others` and `expected`.
    """

    KIND: ClassVar[str] = "contributions"

    party: str
    columns: tuple[str, ...]
    values: Floats  # [rows, columns, outputs]; 0 for a column that no split asks about
    expected: Floats | None = None  # [outputs] the score before anything is known of a row; the label holder's only
    others: Mapping[str, Floats] = field(default_factory=dict)  # feature holder -> total [rows, outputs]; as above
