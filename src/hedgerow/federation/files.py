"""What an owner brings that has its rows in Parquet files: the same as `Brought`, without a table in memory.

    Federation.horizontal({"a": ("loans/", "late"), "b": (Blocks("more/", target="late", drop=["id"]), None)})
    Federation.horizontal({"a": ("loans/", "late", "weight"), ...})

Labels and weights are read here, a few bytes a row, unless the protocol reads them as a public schema says; then
whoever reads the rest of a row reads its label too. Nothing else is read before the role begins.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.engine.table import Column, Table, are_categorical, time_rules
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators.inputs import encode_classes, plain_class, read_classes, read_targets, read_weights
from hedgerow.estimators.streamed import opened, read_column, read_labels
from hedgerow.protocols.bad_rows import check_columns
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema


def are_files(X: Any) -> bool:
    """Whether somebody brings files in place of a table."""
    return isinstance(X, (Blocks, str, PathLike))


class BroughtFiles:
    """One owner's files."""

    has_labels = True

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any,
        weight: Any = None,
        *,
        task: str,
        categorical_features: Any,
    ) -> None:
        self.name, self._task = name, task
        blocks, target, weight = opened(X, y, weight)
        if blocks is None or not isinstance(target, str):
            raise InvalidParameter(
                f"{name}: labels of files are in a column of theirs; write (folder, 'label') or "
                "(Blocks(folder, target='label'), None)"
            )
        if weight is not None and not isinstance(weight, str):
            raise InvalidParameter(
                f"{name}: weights of rows in files are in a column of theirs; write (folder, 'label', 'weight')"
            )
        self._blocks, self.has_weights = blocks, weight is not None
        self.validation: Bools | None = None
        """Rows that are watched, if somebody names them."""
        self.names, self.n_rows = blocks.names, blocks.n_rows
        by_levels = are_categorical(blocks.empty(), categorical_features, f"{name}: X")
        nothing = np.empty(0, np.float32)
        rules = time_rules(blocks.empty(), f"{name}: X")
        columns = [
            Column(each, nothing, () if levels else None, rules[each])
            for each, levels in zip(self.names, by_levels, strict=True)
        ]
        self._table = Table(tuple(columns), 0, self.names, has_names=True)
        self._strict: PartyData | None = None

    def strictly(self) -> PartyData:
        """Labels, and where the rest is; raises what is wrong with a label."""
        if self._strict is None:
            classes: list[Any] = []

            def read(values: Any, counted: Any, n_rows: int) -> Floats:
                where = f"{self.name}: y"
                if self._task == "regression":
                    return read_targets(values, n_rows, where)
                found, codes = encode_classes(read_classes(values, n_rows, where)[counted], where)
                classes[:] = [plain_class(label) for label in found.tolist()]
                labels = np.zeros(n_rows)  # rows of weight 0 keep a 0 that nobody reads
                labels[counted] = codes
                return labels

            blocks, n_rows = self._blocks, self._blocks.n_rows
            weight = read_weights(read_column(blocks, blocks.weight), n_rows, f"{self.name}: sample_weight")
            counted = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
            labels = read_labels(blocks, blocks.target, counted, n_rows, read)
            known = None if self._task == "regression" else tuple(classes)
            own: dict[str, Any] = {"weight": weight, "validation": self.validation, "blocks": blocks}
            self._strict = PartyData(self._table, labels, known, **own)
        return self._strict

    def as_rows(self, schema: Schema) -> PartyData:
        """Columns that the schema has are there; rows are read as it says by whoever reads them."""
        check_columns(self._blocks.empty(), schema, where=self.name)
        return PartyData(self._table, blocks=self._blocks)

    def fitted(self, schema: Schema) -> PartyData:
        """Not from files, unless the protocol reads rows by the schema itself."""
        raise InvalidInput(
            f"{self.name}: rows in files are not mapped to the {len(schema.columns)} columns of a schema without dp; "
            "leave the schema of the Federation out, or bring a table in memory"
        )
