"""Files: Parquet and CSV, in and out, as arrow tables (the extension says which), and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.cli.outcome import whole_file
from hedgerow.errors import InvalidInput, JobError, ModelFileError

if TYPE_CHECKING:
    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor
    from hedgerow.federation.run import Run


def format_of(path: Path) -> str:
    """`.parquet` or `.csv`; anything else is a mistake in the command."""
    suffix = path.suffix.lower()
    if suffix in {".parquet", ".pq"}:
        return ".parquet"
    if suffix != ".csv":
        raise JobError(f"{path}: the file must end in .parquet or .csv")
    return suffix


def read_file(path: Path, types: Mapping[str, Any] | None = None, numbers: Collection[str] = ()) -> Any:
    """The whole file as an arrow table.

    `types` are column types to use for a CSV file, whose columns otherwise get the types that their text looks like;
    with the training file's types, a validation file cannot be read differently by accident. `numbers` are columns that
    hold no text, whatever their cells look like: if all are "NA", all are missing.
    """
    with _reading(path) as fmt:
        table = _read_parquet(path) if fmt == ".parquet" else _read_csv(path, types or {}, numbers)
    _check_names(table.column_names, path)
    if table.num_rows == 0:
        raise InvalidInput(f"{path}: the file has no rows")
    return table


@contextmanager
def _reading(path: Path) -> Iterator[str]:
    """The format of a file that is there; what arrow or the disk says against it names the file."""
    import pyarrow as pa

    fmt = format_of(path)
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    try:
        yield fmt
    except (pa.ArrowException, OSError) as problem:
        raise InvalidInput(f"{path}: cannot be read as {fmt[1:]}: {problem}") from problem


def _check_names(names: Sequence[str], path: Path) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInput(f"{path}: {times} columns are called {name!r}; rename all but one")


def read_schema(path: Path) -> tuple[dict[str, str], int | None]:
    """Column names with their types, and the number of rows where the file tells it without being read."""
    if format_of(path) == ".csv":
        table = read_file(path)
        return {field.name: str(field.type) for field in table.schema}, table.num_rows
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as parquet:
        _check_names(parquet.schema_arrow.names, path)
        return {field.name: str(field.type) for field in parquet.schema_arrow}, parquet.metadata.num_rows


def write_file(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns as a Parquet or CSV file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    fmt = format_of(path)
    table = pa.table(dict(columns))
    with whole_file(path) as partial:
        if fmt == ".parquet":
            pq.write_table(table, partial)
        else:
            pc.write_csv(table, partial)


def csv_bytes(columns: Mapping[str, Any]) -> bytes:
    """Columns as the text of a CSV file, for stdout."""
    import pyarrow as pa
    import pyarrow.csv as pc

    sink = pa.BufferOutputStream()
    pc.write_csv(pa.table(dict(columns)), sink)
    text: bytes = sink.getvalue().to_pybytes()
    return text


def require_columns(there: Sequence[str], names: Sequence[str], path: Path, wanted_by: str) -> None:
    """Raise for the first column that is wanted and not there, with the nearest one that is."""
    from hedgerow.estimators.parameters import nearest

    for name in names:
        if name not in there:
            near = nearest(name, there)
            hint = f"; did you mean {near!r}?" if near else f"; it has {', '.join(there[:20])}"
            raise InvalidInput(f"{path}: there is no column {name!r}, which {wanted_by}{hint}")


def read_model(path: Path) -> BoostedTreesClassifier | BoostedTreesRegressor:
    """The estimator in a model file."""
    from hedgerow.estimators.plain import load_model

    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such model file")
    try:
        return load_model(path)
    except ModelFileError as problem:
        raise ModelFileError(str(problem) if str(path) in str(problem) else f"{path}: {problem}") from problem


def _read_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    # Not pq.read_table: that one takes "key=value" folders in the path for columns.
    with pq.ParquetFile(path) as parquet:
        return parquet.read()


def _read_csv(path: Path, types: Mapping[str, Any], numbers: Collection[str]) -> Any:
    """Arrow's reading, but for two things: in columns of text "NA" is text, and whole numbers stay whole to 2^64.

    An empty cell is missing everywhere. In columns whose other cells are numbers, truth values or dates, "NA", "NULL",
    "nan" and the like are missing too: taken for text, one of them would turn the whole column into categories.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv

    def read(chosen: Mapping[str, Any]) -> Any:
        return pcsv.read_csv(path, convert_options=pcsv.ConvertOptions(column_types=dict(chosen)))

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


def read_run(folder: Path) -> Run:
    """The run in a folder that `run.save(folder)` wrote."""
    from hedgerow.federation.run import Run

    if not (folder / "run.json").is_file():
        raise InvalidInput(f"{folder}: there is no saved run in it; run.save(folder) writes one")
    return Run.load(folder)
