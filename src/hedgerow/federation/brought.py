"""What a party brings to a federation, and the two ways to read it.

    strictly         what cannot be trained on is an error that names the row: for protocols that protect no rows
    as declared      for protocols with public rules for rows that do not fit (`Protocol.maps_rows`): by the public
                     schema, classes and range of labels. No row makes it fail; what cannot be read counts as missing,
                     and what becomes of that is for the protocol to say.

Which of the two it will be is known when a protocol is chosen. So a table whose rows cannot be read strictly is taken,
and `strictly` raises what was wrong. A table of which nothing could be made in either way is refused at once: for the
names or types of its columns, or if rows and labels are not equally many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.engine.sources import open_source
from hedgerow.engine.table import Table, read_table
from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.estimators.labels import encode_classes, read_classes, read_targets
from hedgerow.protocols.bad_rows import feature_of, features_of, fit_rows, read_labels
from hedgerow.protocols.tolerant import read_tolerantly
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Column, Schema


@dataclass(frozen=True)
class Declared:
    """What is public about tables and labels before anybody looks at a row."""

    schema: Schema | None = None
    classes: tuple[Any, ...] | None = None
    label_range: tuple[float, float] | None = None

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], label_range: tuple[float, float] | None) -> Declared:
        """From the parameters of a training, of which nothing has been checked yet."""
        given = options.get("schema")
        schema = given if isinstance(given, Schema) else None
        if task == "regression":
            return cls(schema, None, label_range or (None if schema is None else schema.label_bounds))
        classes = options.get("classes", None if schema is None else schema.classes)
        return cls(schema, tuple(classes) if isinstance(classes, list | tuple) else None)

    @property
    def about_labels(self) -> bool:
        """Whether it says what a label can be."""
        return self.classes is not None or self.label_range is not None

    def of_column(self, party: str, name: str) -> Column | None:
        """What the schema says about a party's column, under "party.column" or "column"."""
        known = {} if self.schema is None else {column.name: column for column in self.schema.columns}
        return known.get(f"{party}.{name}", known.get(name))


class Brought:
    """One party's table, and its labels if it has any."""

    def __init__(
        self, name: str, X: Any, y: Any = None, *, task: str, categorical_features: Any, has_labels: bool = True
    ) -> None:
        self.name = name
        self.rows: Ints | None = None
        """Which rows to take, in this order, once they have been aligned; None: all."""
        self._X, self._y, self._has_labels = X, y, has_labels
        self._task, self._categorical = task, categorical_features
        self._strict: PartyData | None = None
        self._problem: HedgerowError | None = None
        try:
            self._strict = self._read()
        except HedgerowError as problem:
            self._problem = problem
        except (TypeError, ValueError, OverflowError) as problem:  # objects that numpy and others choke on
            self._problem = InvalidInput(f"{name}: X or y cannot be read: {problem}")
        if self._strict is None:
            names, n_rows = self._look()
        else:
            names, n_rows = self._strict.table.names, self._strict.table.n_rows
        self.names, self._n_rows = names, n_rows

    @property
    def n_rows(self) -> int:
        """How many rows there are to train on."""
        return self._n_rows if self.rows is None else len(self.rows)

    def strictly(self) -> PartyData:
        """Everything as it is; raises what is wrong with a row."""
        if self._strict is None:
            raise self._why
        return self._taken(self._strict)

    def as_rows(self, schema: Schema) -> PartyData:
        """A whole table of the schema's columns, and labels; rows that do not fit are still there."""
        table, misfits = read_tolerantly(self._X, like=features_of(schema.columns), where=self.name)
        labels = read_labels(self._y, schema.classes, where=self.name)
        classes = None if schema.classes is None else (*schema.classes, None)
        return self._taken(PartyData(table, labels, classes, misfits=misfits))

    def fitted(self, schema: Schema) -> PartyData:
        """The rows that count, as the schema has them."""
        fitted = fit_rows(self._X, self._y, schema, where=self.name)
        return taken(PartyData(fitted.table, fitted.labels, schema.classes), np.flatnonzero(fitted.counts))

    def refuse_bad_rows(self, schema: Schema) -> None:
        """InvalidInput if a row does not fit: for rows that are public."""
        fit_rows(self._X, self._y, schema, where=self.name, on_bad_rows="raise")

    def as_columns(self, declared: Declared) -> PartyData:
        """Columns that are declared, read by that; the others strictly. Labels too, where it is declared what they are.

        Raises what is wrong with a row only where that is in a column, or a label, of which nothing is declared.
        """
        entries = [declared.of_column(self.name, name) for name in self.names]
        if not any(entries) and not declared.about_labels:
            return self.strictly()
        table, misfits = self._described(entries)
        if not self._has_labels:
            return self._taken(PartyData(table, misfits=misfits))
        if not declared.about_labels:
            strict = self.strictly() if self._strict is None else self._strict
            return self._taken(replace(strict, table=table, misfits=misfits))
        labels = read_labels(self._y, declared.classes, where=self.name)
        classes = None if declared.classes is None else (*declared.classes, None)
        return self._taken(PartyData(table, labels, classes, misfits=misfits))

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _read(self) -> PartyData:
        table = read_table(self._X, categorical_features=self._categorical, where=f"{self.name}: X")
        if not self._has_labels:
            return PartyData(table)
        where = f"{self.name}: y"
        if self._task == "regression":
            return PartyData(table, read_targets(self._y, table.n_rows, where))
        found, codes = encode_classes(read_classes(self._y, table.n_rows, where), where)
        return PartyData(table, codes, tuple(_plain_class(label) for label in found.tolist()))

    @property
    def _why(self) -> HedgerowError:
        return self._problem or InvalidInput(f"{self.name}: cannot be read")

    def _look(self) -> tuple[tuple[str, ...], int]:
        """Names of columns and number of rows; raises the problem if it is not one of rows alone."""
        try:
            names = open_source(self._X, self.name).names
            table, _ = read_tolerantly(self._X, like=[_any_numbers(name) for name in names], where=self.name)
            n_labels = len(read_labels(self._y, None, where=self.name)) if self._has_labels else table.n_rows
        except HedgerowError:
            raise self._why from None
        if n_labels != table.n_rows:
            raise self._why
        return names, table.n_rows

    def _described(self, entries: Sequence[Column | None]) -> tuple[Table, Bools | None]:
        """The table with columns that are described read so, and the others strictly.

        And which rows had cells that could not be read, where all columns are described.
        """
        if not any(entries):
            return self._strict_table(), None
        pairs = list(zip(self.names, entries, strict=True))
        like = [_any_numbers(name) if entry is None else feature_of(entry, name) for name, entry in pairs]
        table, misfits = read_tolerantly(self._X, like=like, where=f"{self.name}: X")
        if all(entries):
            return table, misfits
        strict = self._strict_table()
        columns = zip(entries, table.columns, strict.columns, strict=True)
        return replace(strict, columns=tuple(old if entry is None else new for entry, new, old in columns)), None

    def _strict_table(self) -> Table:
        if self._strict is not None:
            return self._strict.table
        return read_table(self._X, categorical_features=self._categorical, where=f"{self.name}: X")

    def _taken(self, data: PartyData) -> PartyData:
        return data if self.rows is None else taken(data, self.rows)


def taken(brought: PartyData, rows: Ints) -> PartyData:
    """Some rows of what a party brings, in this order."""
    table = brought.table
    columns = tuple(replace(column, values=column.values[rows]) for column in table.columns)
    labels = None if brought.labels is None else brought.labels[rows]
    misfits = None if brought.misfits is None else brought.misfits[rows]
    table = Table(columns, len(rows), table.names, table.has_names)
    return replace(brought, table=table, labels=labels, misfits=misfits)


def _any_numbers(name: str) -> FeatureBins:
    """For reading a column of which nothing is known."""
    return FeatureBins(name, edges=np.empty(0))


def _plain_class(label: Any) -> Any:
    """1.0 and 1 are the same class, so that one owner's floats do not differ from another's integers."""
    return int(label) if isinstance(label, float | np.floating) and float(label).is_integer() else label
