"""Files that commands write, as Parquet or CSV (the extension says which), and models and runs that they read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.cli.outcome import whole_file
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.node.sources import format_of

if TYPE_CHECKING:
    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor
    from hedgerow.federation.run import Run


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


def read_model(path: Path) -> BoostedTreesClassifier | BoostedTreesRegressor:
    """The estimator in a model file."""
    from hedgerow.estimators.plain import load_model

    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such model file")
    try:
        return load_model(path)
    except ModelFileError as problem:
        raise ModelFileError(str(problem) if str(path) in str(problem) else f"{path}: {problem}") from problem


def read_run(folder: Path) -> Run:
    """The run in a folder that `run.save(folder)` wrote."""
    from hedgerow.federation.run import Run

    if not (folder / "run.json").is_file():
        raise InvalidInput(f"{folder}: there is no saved run in it; run.save(folder) writes one")
    return Run.load(folder)
