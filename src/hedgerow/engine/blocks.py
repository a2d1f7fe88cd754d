"""Rows that are read some at a time: a Parquet file, a list of them, or a folder of them, larger than memory or not.

    blocks = Blocks("loans/", target="defaulted")     looks at every file's schema; no row is read yet
    blocks.pieces                                     what can be read by itself: a row group of a file
    blocks.batches(names, pieces)                     some rows at a time of some columns, as arrow has them

The order of rows is that of the files (by name in a folder, as given in a list) and, in a file, its own: row 0 is the
first row of the first file. Columns that have no values in some files take the type that they have in the others.

Files must stay as they are while they are worked on. Every read looks whether the file is still the one that was there
at the beginning, by its size and time of change, and says which one is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

BATCH_VALUES, FEWEST_ROWS = 1 << 22, 1 << 13
"""Values that are decoded at a time: enough to keep threads busy, few enough not to count beside what is kept. But of
very many columns at least this many rows, else there would be more calls than values."""

HIDDEN = (".", "_")
"""How names begin that are not parts of a folder: hidden files, and marks that other programs leave, as _SUCCESS."""

AnyPath = str | PathLike[str]


class Piece(NamedTuple):
    """A row group: the least that can be read by itself."""

    file: int  # its place in `Blocks.files`
    group: int
    first_row: int  # its first row's number among all rows
    n_rows: int


@dataclass(frozen=True)
class _File:
    path: Path
    stamp: tuple[int, int, int]
    metadata: Any
    types: dict[str, Any]


class Blocks:
    """Rows of Parquet files with the same columns.

    `target` and `weight` name the columns of labels and of row weights, `columns` the features in their order (unless
    given, all other columns), `drop` columns to leave out. `scratch` is the folder for what does not fit memory; by
    default the system's folder for temporary files.
    """

    def __init__(
        self,
        paths: AnyPath | Sequence[AnyPath],
        *,
        target: str | None = None,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        scratch: AnyPath | None = None,
    ) -> None:
        self.files = [_look_at(path) for path in _paths(paths)]
        self.target, self.weight, self.scratch = target, weight, scratch
        self.types = _common_types(self.files)
        self.where = fspath(paths) if isinstance(paths, (str, PathLike)) else f"{fspath(paths[0])} and others"
        if isinstance(columns, str) or isinstance(drop, str):
            raise InvalidParameter("columns and drop are lists of names of columns")
        apart = [name for name in (target, weight) if name is not None]
        for name in (*apart, *drop, *(columns or ())):
            self.require(name)
        left_out = {*apart, *drop}
        self.names = tuple(name for name in (self.types if columns is None else columns) if name not in left_out)
        self.pieces = tuple(_pieces(self.files))
        self.n_rows = sum(piece.n_rows for piece in self.pieces)
        if not self.n_rows:
            raise InvalidInput(f"{self.where}: there are no rows")
        check_names(self.names, self.where)
        if not self.names:
            raise InvalidInput(f"{self.where}: there are no columns beside {', '.join(map(repr, left_out))}")
        from hedgerow.engine.table import open_source  # here, for commands look at files without numpy

        list(open_source(self.empty(), self.where).columns)  # refuses types that are neither numbers nor levels

    def described(self) -> dict[str, Any]:
        """For another process on this machine, as JSON: which files, and which of their columns."""
        return {
            "paths": [str(file.path.absolute()) for file in self.files],
            "where": self.where,
            "target": self.target,
            "weight": self.weight,
            "columns": list(self.names),
            "scratch": None if self.scratch is None else str(Path(self.scratch).absolute()),
        }

    @classmethod
    def opened_again(cls, about: Mapping[str, Any]) -> Blocks:
        """What `described` says."""
        blocks = cls(**{name: value for name, value in about.items() if name != "where"})
        blocks.where = about["where"]
        return blocks

    def require(self, name: object) -> None:
        """Raise if there is no column of this name."""
        if name not in self.types:
            some = ", ".join(map(repr, list(self.types)[:20]))
            raise InvalidInput(f"{self.where}: there is no column {name!r}; it has {some}")

    def empty(self) -> Any:
        """The features, as a table of no rows."""
        import pyarrow as pa

        return pa.schema([(name, self.types[name]) for name in self.names]).empty_table()

    def parts(self, count: int) -> list[tuple[Piece, ...]]:
        """The pieces in at most `count` runs of about as many rows, none of them empty."""
        runs: list[list[Piece]] = [[] for _ in range(count)]
        for piece in self.pieces:
            middle = 2 * piece.first_row + piece.n_rows
            runs[middle * count // (2 * self.n_rows)].append(piece)
        return [tuple(run) for run in runs if run]

    def batches(self, names: Sequence[str], pieces: Sequence[Piece] | None = None) -> Iterator[tuple[int, Any]]:
        """Some rows after the other of these columns: the first one's number, and an arrow table of them."""
        import pyarrow as pa

        for piece in self.pieces if pieces is None else pieces:
            file, first, end = self.files[piece.file], piece.first_row, piece.first_row + piece.n_rows
            for batch in _read(file, piece.group, names):
                first, at = first + batch.num_rows, first
                if first > end:
                    break
                yield at, self._of_common_types(batch, names)
            if first != end:  # arrays have the size that the file says, and nothing is written beyond them
                raise InvalidInput(
                    f"{file.path}: row group {piece.group} does not hold the {piece.n_rows} rows it says"
                )
        pa.default_memory_pool().release_unused()  # arrow keeps what it has freed, which may be much

    def _of_common_types(self, batch: Any, names: Sequence[str]) -> Any:
        import pyarrow as pa

        table = pa.Table.from_batches([batch]).select(list(names))  # arrow takes "a" for "a.b" too
        schema = pa.schema([(name, self.types[name]) for name in names])
        return table if table.schema.equals(schema) else table.cast(schema)


# --- files -----------------------------------------------------------------------------------------------------------


def parts_of(folder: Path) -> list[Path]:
    """The files of a folder by name; it holds nothing else."""
    try:
        parts = sorted((part for part in folder.iterdir() if not part.name.startswith(HIDDEN)), key=lambda p: p.name)
    except OSError as problem:
        raise InvalidInput(f"{folder}: the folder cannot be read: {problem}") from None
    for part in parts:
        if part.is_dir():
            raise InvalidInput(f"{part}: this is a folder; all parts must lie in {folder} itself")
    return parts


def same_names(part: Path, names: Any, first: Any) -> Any:
    """`names` themselves, if they are those of the first part, in the same order."""
    if list(names) != list(first):
        lacks = [repr(name) for name in first if name not in names]
        adds = [repr(name) for name in names if name not in first]
        said = [f"lacks {', '.join(lacks[:5])}"] * bool(lacks) + [f"has {', '.join(adds[:5])} besides"] * bool(adds)
        raise InvalidInput(
            f"{part}: the file {' and '.join(said) or 'has the columns in another order'}; "
            "all files of a folder must have the same columns"
        )
    return names


def check_names(names: Sequence[str], path: Path | str) -> None:
    """Raise if a name is there twice."""
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInput(f"{path}: {times} columns are called {name!r}; rename all but one")


def types_differ(part: Path, name: str, kind: object, first: object) -> InvalidInput:
    """What to raise for a column that has another type than in the files before."""
    return InvalidInput(
        f"{part}: column {name!r} is {kind} here and {first} in the files before; all files must have the same types"
    )


def _paths(given: AnyPath | Sequence[AnyPath]) -> list[Path]:
    if not isinstance(given, (str, PathLike)):
        if not isinstance(given, Sequence) or not all(isinstance(each, (str, PathLike)) for each in given):
            raise InvalidType(f"Blocks takes a Parquet file, a list of them or a folder, got {type(given).__name__}")
        if not given:
            raise InvalidInput("Blocks: the list of files is empty")
        return [Path(each) for each in given]
    path = Path(given)
    if not path.is_dir():
        return [path]
    parts = parts_of(path)
    if not parts:
        raise InvalidInput(f"{path}: there is no Parquet file in the folder")
    return parts


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes when somebody writes the file, or puts another one in its place."""
    try:
        about = path.stat()
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file") from None
    except OSError as problem:
        raise InvalidInput(f"{path}: cannot be read: {problem}") from None
    return about.st_size, about.st_mtime_ns, about.st_ino


def _look_at(path: Path) -> _File:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stamp = _stamp(path)
    try:
        with pq.ParquetFile(path) as parquet:
            metadata, schema = parquet.metadata, parquet.schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{path}: cannot be read as Parquet: {problem}") from problem
    check_names(schema.names, path)
    return _File(path, stamp, metadata, {field.name: field.type for field in schema})


def _common_types(files: Sequence[_File]) -> dict[str, Any]:
    import pyarrow as pa

    types = dict(files[0].types)
    for file in files:
        for name, kind in same_names(file.path, file.types, types).items():
            if pa.types.is_null(types[name]):
                types[name] = kind
            elif kind != types[name] and not pa.types.is_null(kind):
                raise types_differ(file.path, name, kind, types[name])
    return types


def _pieces(files: Sequence[_File]) -> Iterator[Piece]:
    first = 0
    for number, file in enumerate(files):
        for group in range(file.metadata.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            if n_rows:
                yield Piece(number, group, first, n_rows)
            first += n_rows


def _read(file: _File, group: int, names: Sequence[str]) -> Iterator[Any]:
    """The batches of a row group, of a file that is still what it was; checked before any of them is given away."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_unchanged(file)
    try:
        with pq.ParquetFile(file.path, metadata=file.metadata) as parquet:
            n_rows = max(FEWEST_ROWS, BATCH_VALUES // max(len(names), 1))
            for batch in parquet.iter_batches(n_rows, row_groups=[group], columns=list(names)):
                _check_unchanged(file)
                yield batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        _check_unchanged(file)
        raise InvalidInput(f"{file.path}: cannot be read as Parquet: {problem}") from problem


def _check_unchanged(file: _File) -> None:
    try:
        unchanged = _stamp(file.path) == file.stamp
    except InvalidInput as problem:
        raise InvalidInput(f"{problem} any more, but it was there when the work began; nothing was kept") from None
    if not unchanged:
        raise InvalidInput(f"{file.path}: the file has changed since the work began; nothing was kept, start again")
