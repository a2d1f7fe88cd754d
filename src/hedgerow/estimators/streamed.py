"""Rows of an estimator that are in Parquet files: the same as a table in memory, read some at a time.

    fit("loans/", "defaulted")                           a folder or a file, and the column of labels
    fit(Blocks("loans/", target="defaulted", ...))       with a say about columns and about where to put what is made

Labels, weights and which rows take part are in memory, a few bytes a row; codes are in files (`engine/scratch.py`), and
the values themselves are never all in one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import BinMapper, whole_weights
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.level_groups import ManyLevels
from hedgerow.engine.losses import MOST_ROWS
from hedgerow.engine.scratch import Room, Scratch
from hedgerow.engine.streaming import RowChoice, code_blocks, fit_bins
from hedgerow.errors import InvalidInput, InvalidParameter

ReadLabels = Callable[[Any, npt.NDArray[Any], int], Floats]
"""Labels as somebody gave them, the rows that count, and how many rows there are, to labels as numbers."""


def opened(X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Blocks | None, Any, Any]:
    """`X` as blocks, if it is some or the path of some, with labels and weights; what names a column is one of theirs.

    Without labels or weights given, they are those that the blocks name.
    """
    if not isinstance(X, (Blocks, str, PathLike)):
        return None, y, sample_weight
    blocks = copy(X) if isinstance(X, Blocks) else Blocks(X)
    y = blocks.target if y is None else y
    sample_weight = blocks.weight if sample_weight is None else sample_weight
    for name in (y, sample_weight):
        if isinstance(name, str):
            blocks.require(name)
            blocks.names = tuple(each for each in blocks.names if each != name)
    blocks.target = y if isinstance(y, str) else None
    blocks.weight = sample_weight if isinstance(sample_weight, str) else None
    if not blocks.names:
        raise InvalidInput(f"{blocks.where}: there are no columns beside those of labels and weights")
    return blocks, y, sample_weight


def read_column(blocks: Blocks | None, values: Any) -> Any:
    """A column of the blocks by its name, as one array; anything else is what somebody gave instead of a name."""
    if blocks is None or not isinstance(values, str):
        return values
    return np.concatenate([batch.column(0).to_numpy() for _, batch in blocks.batches([values])])


def read_labels(blocks: Blocks | None, y: Any, counted: npt.NDArray[Any], n_rows: int, read: ReadLabels) -> Floats:
    """The labels of all rows, as `read` reads them; of blocks, each different text is looked at only once."""
    if blocks is None:
        return read(y, counted, n_rows)
    if y is None:
        raise InvalidParameter(
            f"{blocks.where}: which column holds the labels? Say fit(folder, 'label') or Blocks(folder, target='label')"
        )
    if n_rows > MOST_ROWS:
        raise InvalidInput(f"{blocks.where}: {n_rows:,} rows are too many; at most {MOST_ROWS:,} can be trained on")
    import pyarrow as pa

    kind = blocks.types[y] if isinstance(y, str) else None
    if kind is None or not (pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return read(read_column(blocks, y), counted, n_rows)
    places: dict[Any, int] = {}
    codes = np.empty(n_rows, np.int32)
    for first, batch in blocks.batches([y]):
        column = batch.column(0).combine_chunks()
        if column.null_count:
            row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidInput(
                f"{blocks.where}: the label {y!r} is missing in row {row}; drop these rows or fill them in"
            )
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        own = np.array([places.setdefault(value, len(places)) for value in coded.dictionary.to_pylist()], np.int32)
        codes[first : first + batch.num_rows] = own[coded.indices.to_numpy()]
    used = np.unique(codes[counted])
    labels = np.zeros(len(places))
    labels[used] = read(np.array(list(places), object)[used], np.arange(len(used)), len(used))
    return labels[codes]


@dataclass(frozen=True)
class BlockRows:
    """Rows to learn from, or to check against: which ones of the blocks, their labels as numbers, their weights."""

    blocks: Blocks
    labels: Floats
    weight: Floats | None
    categorical_features: Any = "from_dtype"
    many_levels: ManyLevels = "refuse"
    keep: Bools | None = None  # by row of the blocks; labels and weights are of those that are kept

    def __post_init__(self) -> None:
        n_columns = len(self.blocks.names)
        words = 2 * 8 * -(-n_columns // 8)  # rows are packed into words of eight columns, in two orders
        Scratch(self.blocks.scratch).check(len(self.labels) * (n_columns + words))

    @property
    def room(self) -> Room:
        """Where arrays are that do not fit memory."""
        return Scratch(self.blocks.scratch).empty

    def take(self, rows: Ints) -> BlockRows:
        """Only these, in order."""
        keep = np.zeros(self.blocks.n_rows, np.bool_)
        keep[rows if self.keep is None else np.flatnonzero(self.keep)[rows]] = True
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, labels=self.labels[rows], weight=weight, keep=keep)

    def bins(self, max_bins: int, n_threads: int) -> BinMapper:
        """As `BinMapper.fit` would choose them."""
        weights = None if self.weight is None else whole_weights(self.weight)
        if weights is not None and self.keep is not None:
            spread = np.zeros(self.blocks.n_rows, np.int64)
            spread[self.keep] = weights
            weights = spread
        choice = RowChoice(self.keep, weights)
        levels: dict[str, Any] = {
            "categorical_features": self.categorical_features,
            "many_levels": self.many_levels,
        }
        return fit_bins(self.blocks, max_bins, choice, **levels, n_threads=n_threads)

    def codes(self, mapper: BinMapper, n_threads: int) -> Bytes:
        """Codes uint8 [features, rows], in a file."""
        codes = self.room((len(mapper.features), len(self.labels)), np.uint8)
        code_blocks(self.blocks, mapper, RowChoice(self.keep), codes, n_threads=n_threads)
        return codes


# --- prediction ------------------------------------------------------------------------------------------------------


def names_like(model: Any, blocks: Blocks) -> list[str]:
    """The columns of the model; all there are if it knows no names, or an error will have to say which are missing."""
    names = [feature.name for feature in model.ensemble_.features]
    return names if set(names) <= blocks.types.keys() else list(blocks.names)


def prediction_columns(model: Any, X: Any, *, proba: bool) -> dict[str, Any]:
    """`prediction`, and `probability_<class>` for each class if wanted, as arrow arrays."""
    if not proba:
        return {"prediction": _column(model.predict(X))}
    shares = model.predict_proba(X)
    columns = {"prediction": _column(model.classes_[shares.argmax(axis=1)])}
    for number, label in enumerate(model.classes_.tolist()):
        columns[f"probability_{label}"] = _column(shares[:, number])
    return columns


def _column(values: Any) -> Any:
    """Text as text: numpy's fixed-width strings are foreign to arrow."""
    import pyarrow as pa

    return pa.array(values.tolist() if values.dtype.kind in "UOT" else values)


def write_predictions(
    model: Any,
    blocks: Blocks,
    path: Path,
    *,
    proba: bool,
    keep: Sequence[str],
    on_progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Predictions as a Parquet file, some rows at a time, beside columns to keep; returns the names of its columns.

    The file is there when it is complete, and not before.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in keep:
        blocks.require(name)
    names = names_like(model, blocks)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    with ExitStack() as closing:
        closing.callback(partial.unlink, missing_ok=True)
        writer: Any = None
        for first, batch in blocks.batches(list(dict.fromkeys([*names, *keep]))):
            found = prediction_columns(model, batch.select(names), proba=proba)
            table = pa.table({**{name: batch.column(name) for name in keep}, **found})
            if writer is None:
                writer = closing.enter_context(pq.ParquetWriter(partial, table.schema))
            writer.write_table(table)
            if on_progress is not None:
                on_progress(first + batch.num_rows, blocks.n_rows)
        writer.close()
        partial.replace(path)
    return list(table.column_names)
