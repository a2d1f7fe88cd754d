"""A party's tables as arrow has them: from Parquet and CSV files, folders of them, and databases (node/databases.py).

    read(dataset, base=folder)    the rows
    look(dataset, folder)         names and types of the columns, without the rows where that is possible

A folder's files are its parts: together they are read as the one file that they would be, end to end, in the order of
their names.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hedgerow.engine.blocks import check_names, parts_of, same_names, types_differ
from hedgerow.errors import HedgerowError, InvalidInput, JobError
from hedgerow.node.databases import check_source, fetch, is_database
from hedgerow.runtime.resources import memory_available

if TYPE_CHECKING:
    from hedgerow.node.party_file import Dataset

MOST_HEADER = 1 << 20
"""Bytes of the line with the names of the columns."""


class Look(NamedTuple):
    """What a source holds: column -> type, and the number of rows; None where only reading them would tell."""

    columns: dict[str, str]
    n_rows: int | None


def read(dataset: Dataset, *, base: Path, columns: Sequence[str] | None = None) -> Any:
    """The dataset's rows; of these columns in this order, or of all. Relative paths start from `base`."""
    check_source(dataset.source)
    if is_database(dataset.source):
        table = fetch(dataset.source, dataset.query or "", base)
        check_names(table.column_names, dataset.source)
        if table.num_rows == 0:
            raise InvalidInput(f"{dataset.source}: the query of dataset {dataset.name!r} gives no rows")
    else:
        path = base / dataset.source
        table = read_folder(path, columns) if _is_folder(path) else read_file(path, columns=columns)
    if columns is None:
        return table
    require_columns(table.column_names, columns, dataset.source, f"dataset {dataset.name!r} is asked for")
    return table.select(list(columns))


def look(dataset: Dataset, base: Path) -> Look:
    """The columns of a dataset with their types, and the number of rows. A CSV file has to be read for it."""
    check_source(dataset.source)
    if is_database(dataset.source):
        schema = fetch(dataset.source, dataset.query or "", base, rows=False).schema
        check_names(schema.names, dataset.source)
        return Look(_types(schema), None)
    return look_at(base / dataset.source)


def look_at(path: Path) -> Look:
    """The columns of a file or a folder."""
    if not _is_folder(path):
        return look_at_file(path)
    parts = _parts(path)
    if format_of(parts[0]) == ".csv":
        table = read_folder(path)
        return Look(_types(table.schema), table.num_rows)
    looks = [look_at_file(part) for part in parts]
    types = dict(looks[0].columns)
    for part, one in zip(parts, looks, strict=True):
        for name, kind in same_names(part, one.columns, types).items():
            types[name] = kind if types[name] == "null" else types[name]
            if kind not in {types[name], "null"}:
                raise types_differ(part, name, kind, types[name])
    return Look(types, sum(one.n_rows or 0 for one in looks))


def require_columns(there: Sequence[str], names: Sequence[str], path: Path | str, wanted_by: str) -> None:
    """Raise for the first column that is wanted and not there, with the nearest one that is."""
    from hedgerow.estimators.inputs import nearest

    for name in names:
        if name not in there:
            near = nearest(name, there)
            hint = f"; did you mean {near!r}?" if near else f"; it has {', '.join(there[:20])}"
            raise InvalidInput(f"{path}: there is no column {name!r}, which {wanted_by}{hint}")


# --- one file --------------------------------------------------------------------------------------------------------


def format_of(path: Path) -> str:
    """`.parquet` or `.csv`; anything else is a mistake in the command."""
    suffix = path.suffix.lower()
    if suffix in {".parquet", ".pq"}:
        return ".parquet"
    if suffix != ".csv":
        raise JobError(f"{path}: the file must end in .parquet or .csv")
    return suffix


def read_file(
    path: Path,
    types: Mapping[str, Any] | None = None,
    numbers: Collection[str] = (),
    columns: Sequence[str] | None = None,
) -> Any:
    """The whole file as an arrow table; of a Parquet file no columns but these, if they are given.

    `types` are column types to use for a CSV file, whose columns otherwise get the types that their text looks like;
    with the training file's types, a validation file cannot be read differently by accident. `numbers` are columns that
    hold no text, whatever their cells look like: if all are "NA", all are missing.
    """
    with _reading(path) as fmt:
        table = _read_csv((path,), types or {}, numbers) if fmt == ".csv" else _read_parquet(path, columns)
    check_names(table.column_names, path)
    if table.num_rows == 0:
        raise InvalidInput(f"{path}: the file has no rows")
    return table


def look_at_file(path: Path) -> Look:
    """The columns of a file with their types, and the number of its rows."""
    if format_of(path) == ".csv":
        table = read_file(path)
        return Look(_types(table.schema), table.num_rows)
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as parquet:
        check_names(parquet.schema_arrow.names, path)
        return Look(_types(parquet.schema_arrow), parquet.metadata.num_rows)


@contextmanager
def _reading(path: Path) -> Iterator[str]:
    """The format of a file that is there; what arrow or the disk says against it names the file."""
    import pyarrow as pa

    fmt = format_of(path)
    try:
        if not path.is_file():
            raise InvalidInput(f"{path}: there is no such file")
        yield fmt
    except HedgerowError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{path}: cannot be read as {fmt[1:]}: {problem}") from problem


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as parquet:  # pq.read_table takes "key=value" folders in the path for columns
        there = parquet.schema_arrow.names
        check_names(there, path)
        if columns is None:
            return parquet.read()
        require_columns(there, columns, path, "is asked for")
        table = parquet.read(columns=list(columns)) if columns else parquet.read()
        return table.select(list(columns))  # arrow takes "a" for "a.b" too


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


# --- folders ---------------------------------------------------------------------------------------------------------


def read_folder(folder: Path, columns: Sequence[str] | None = None) -> Any:
    """All parts as one table, in the order of their names; they must have the same columns."""
    import pyarrow as pa

    parts = _parts(folder)
    if format_of(parts[0]) == ".csv":
        table = _read_csv_parts(folder, parts)
    else:
        first = look_at_file(parts[0]).columns
        tables = []
        for part in parts:
            same_names(part, look_at_file(part).columns, first)
            with _reading(part):
                tables.append(_read_parquet(part, columns))
        types: dict[str, Any] = {}
        for part, one in zip(parts, tables, strict=True):
            for field in one.schema:
                if pa.types.is_null(types.setdefault(field.name, field.type)):
                    types[field.name] = field.type
                elif field.type != types[field.name] and not pa.types.is_null(field.type):
                    raise types_differ(part, field.name, field.type, types[field.name])
        schema = pa.schema(list(types.items()))
        table = pa.concat_tables([one.replace_schema_metadata(None).cast(schema) for one in tables])
        table = table.unify_dictionaries()  # each part may number the levels of a column in its own way
    if table.num_rows == 0:
        raise InvalidInput(f"{folder}: the files of the folder have no rows")
    return table


def is_streamed(path: Path) -> bool:
    """Whether a table is better read some rows at a time: a folder of Parquet files, or a file too large for memory."""
    if _is_folder(path) or not holds_parquet(path):
        return holds_parquet(path)
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as parquet:
        about = parquet.metadata
        n_bytes = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    available = memory_available()
    return available is not None and n_bytes > available // 3


def holds_parquet(path: Path) -> bool:
    """Whether this is a Parquet file, or a folder of them."""
    return format_of(_parts(path)[0] if _is_folder(path) else path) == ".parquet"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as problem:  # a name that is too long, a folder that may not be entered
        raise InvalidInput(f"{path}: cannot be read: {problem}") from None


def _parts(folder: Path) -> list[Path]:
    """The files of a folder by name, all of one format."""
    parts = parts_of(folder)
    if not parts:
        raise InvalidInput(f"{folder}: there is no .parquet or .csv file in the folder")
    for part in parts:
        if format_of(part) != format_of(parts[0]):
            raise InvalidInput(
                f"{part}: a folder holds either Parquet or CSV files, and {parts[0].name} is {format_of(parts[0])}"
            )
    return parts


def _read_csv_parts(folder: Path, parts: Sequence[Path]) -> Any:
    import pyarrow as pa

    first: list[str] = []
    for part in parts:
        with _reading(part), part.open("rb") as stream:
            names = _header_of(part, stream)
        check_names(names, part)
        first = first or names
        same_names(part, names, first)
    try:
        table = _read_csv(parts, {}, ())
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        for part in parts:  # to name the one that is to blame
            with _reading(part):
                _read_csv((part,), {}, ())
        raise InvalidInput(f"{folder}: cannot be read as csv: {problem}") from problem
    if table.column_names != first:
        raise InvalidInput(f"{parts[0]}: the first line goes on in the next one; names of columns must be on one line")
    return table


def _header_of(part: Path, stream: Any) -> list[str]:
    """The names of the columns; the stream then stands at the first row."""
    import pyarrow as pa
    import pyarrow.csv as pcsv

    line = stream.readline(MOST_HEADER)
    while line and not line.strip():
        line = stream.readline(MOST_HEADER)
    if not line:
        raise InvalidInput(f"{part}: the file is empty; its first line must have the names of the columns")
    if len(line) == MOST_HEADER or b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
        raise InvalidInput(f"{part}: the first line does not end; lines of a part must end in LF or CR LF")
    names: list[str] = pcsv.read_csv(pa.BufferReader(line.rstrip(b"\r\n") + b"\n")).column_names
    return names


class _EndToEnd(io.RawIOBase):
    """CSV files one after the other, with the first one's header alone."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self._paths = list(paths)
        self._stream: Any = None
        self._last = b"\n"
        self._is_first = True

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while True:
            if self._stream is None:
                if not self._paths:
                    return 0
                if self._last not in b"\r\n":  # a part whose last line has no end
                    into[:1] = self._last = b"\n"
                    return 1
                path = self._paths.pop(0)
                self._stream = path.open("rb")
                if not self._is_first:
                    _header_of(path, self._stream)
                self._is_first = False
            n_read = self._stream.readinto(into)
            if n_read:
                self._last = bytes(into[n_read - 1 : n_read])
                return int(n_read)
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        super().close()


def _read_csv(paths: Sequence[Path], types: Mapping[str, Any], numbers: Collection[str]) -> Any:
    """Arrow's reading, but for two things: in columns of text "NA" is text, and whole numbers stay whole to 2^64.

    An empty cell is missing everywhere. In columns whose other cells are numbers, truth values or dates, "NA", "NULL",
    "nan" and the like are missing too: taken for text, one of them would turn the whole column into categories.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv

    def read(chosen: Mapping[str, Any]) -> Any:
        options = pcsv.ConvertOptions(column_types=dict(chosen))
        if len(paths) == 1:
            return pcsv.read_csv(paths[0], convert_options=options)
        with _EndToEnd(paths) as stream:
            return pcsv.read_csv(stream, convert_options=options)

    table = read(types)
    empty = [f.name for f in table.schema if pa.types.is_null(f.type) and f.name not in {*types, *numbers}]
    if empty:  # or all "NA", which may be text
        table = read({**types, **dict.fromkeys(empty, pa.string())})
    types = {f.name: f.type for f in table.schema}
    large = [f.name for f in table.schema if pa.types.is_floating(f.type) and _is_beyond_int64(table, f.name)]
    for name in large:
        try:
            table = read({**types, name: pa.uint64()})
        except pa.ArrowInvalid:  # they have fractions, a sign, or exponents
            continue
        types[name] = pa.uint64()
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(place)
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
            nothing = field.name in empty and column.null_count == table.num_rows
            table = table.set_column(place, field.name, pa.nulls(table.num_rows) if nothing else column)
    return table


def _is_beyond_int64(table: Any, name: str) -> bool:
    import pyarrow.compute as pc

    largest = pc.max(table.column(name)).as_py() if table.column_names.count(name) == 1 else None
    return largest is not None and 2**63 <= largest < 2**64
