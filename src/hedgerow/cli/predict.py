"""`hedgerow predict`: a model file and a table in, a table of predictions out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli.files import csv_bytes, format_of, read_file, read_model, require_columns, write_file
from hedgerow.cli.outcome import one_line_errors, print_json, say
from hedgerow.errors import InvalidInput, JobError

STDOUT = Path("-")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `hedgerow train` wrote.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Rows to predict, .parquet or .csv; other columns are ignored.")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write, .parquet or .csv; - for CSV on stdout.")],
    proba: Annotated[bool, typer.Option("--proba", help="Also a column of probabilities for each class.")] = False,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of DATA to copy, such as an id; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the model and the columns; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was done as JSON on stdout.")] = False,
) -> None:
    """Predict the rows of a table.

    Example: hedgerow predict loans.json new_loans.csv --out scored.csv --proba --keep customer_id
    """
    with one_line_errors(as_json=as_json):
        if as_json and out == STDOUT:
            raise JobError("--json and --out - both want stdout; write the predictions to a file")
        if out != STDOUT:
            format_of(out)
        if out.resolve() == data.resolve():
            raise JobError(f"{out} is to be read and written; choose another --out")
        result = _run(model, data, out, proba=proba, keep=keep or [], dry_run=dry_run)
        if as_json:
            print_json(result)
        elif dry_run:
            say(f"{result['rows']} rows can be predicted with {model}; nothing written (--dry-run)")
        elif out != STDOUT:
            say(f"{result['rows']} predictions written to {out}")


def _run(path: Path, data: Path, out: Path, *, proba: bool, keep: list[str], dry_run: bool) -> dict[str, Any]:
    started = time.perf_counter()
    estimator = read_model(path)
    is_classifier = hasattr(estimator, "classes_")
    if proba and not is_classifier:
        raise JobError(f"--proba: {path} is a regressor, which has no probabilities")
    numbers = {feature.name for feature in estimator.ensemble_.mapper.features if feature.levels is None}
    table = read_file(data, _text_columns(estimator), numbers)
    require_columns(table.column_names, keep, data, "--keep names")
    X = model_columns(estimator, table, data)
    columns: dict[str, Any] = {}
    if not dry_run:
        columns = {**{name: table.column(name) for name in keep}, **prediction_columns(estimator, X, proba=proba)}
        if out == STDOUT:
            sys.stdout.buffer.write(csv_bytes(columns))
        else:
            write_file(out, columns)
    return {
        "command": "predict",
        "dry_run": dry_run,
        "model": str(path),
        "data": str(data),
        "out": None if dry_run else str(out),
        "kind": "classifier" if is_classifier else "regressor",
        "rows": table.num_rows,
        "columns": list(columns),
        "seconds": time.perf_counter() - started,
    }


def _text_columns(estimator: Any) -> dict[str, Any]:
    """Columns whose levels are text stay text, also where a CSV file's cells look like numbers."""
    import pyarrow as pa

    features = estimator.ensemble_.mapper.features
    return {feature.name: pa.string() for feature in features if feature.levels and isinstance(feature.levels[0], str)}


def model_columns(estimator: Any, table: Any, path: Path) -> Any:
    """The model's columns, by name; by position for a model that was trained without names, if the counts agree."""
    names = [feature.name for feature in estimator.ensemble_.mapper.features]
    if hasattr(estimator, "feature_names_in_") or set(names) <= set(table.column_names):
        require_columns(table.column_names, names, path, "the model needs")
        return table.select(names)
    import numpy as np

    if table.num_columns != len(names):
        raise InvalidInput(
            f"{path}: the model was trained on {len(names)} columns without names, but the file has {table.num_columns}"
        )
    return np.column_stack([column.to_numpy() for column in table.columns])


def prediction_columns(estimator: Any, X: Any, *, proba: bool) -> dict[str, Any]:
    """`prediction`, and `probability_<class>` for each class if wanted."""
    if not proba:
        return {"prediction": _column(estimator.predict(X))}
    shares = estimator.predict_proba(X)
    columns = {"prediction": _column(estimator.classes_[shares.argmax(axis=1)])}
    for number, label in enumerate(estimator.classes_.tolist()):
        columns[f"probability_{label}"] = shares[:, number]
    return columns


def _column(values: Any) -> Any:
    """Text that arrow writes as text: numpy's fixed-width strings are foreign to it."""
    return values.tolist() if values.dtype.kind in "UOT" else values
