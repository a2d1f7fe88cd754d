"""`hedgerow predict`: rows in, predictions out; with a model file, or together with the other parties of a run."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli.files import csv_bytes, read_model, write_file
from hedgerow.cli.outcome import Outcome, verb
from hedgerow.cli.telling import OnProgress, mention, progress, say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, unlocked
from hedgerow.errors import InvalidInput, JobError
from hedgerow.node.sources import format_of, is_streamed, read_file, require_columns

STDOUT = Path("-")
BLOCK_ROWS = 1 << 17
_RUN_ID = re.compile(r"[0-9a-f]{1,32}")


@verb("What was done as JSON on stdout.", is_long=True)
def predict(
    context: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model file that `hedgerow train` wrote, or the beginning of the id of a run."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="Rows to predict, .parquet or .csv, or a folder; other columns are ignored. For a run also a dataset "
            "of party.toml.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write, .parquet or .csv; - for CSV on stdout.", show_default=False),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also a column of probabilities for each class; a run has them anyway.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of DATA to copy, such as an id; repeatable.")
    ] = None,
    predict_epsilon: Annotated[
        float | None,
        typer.Option(metavar="EPSILON", help="For a run: partners randomise each value of their rows with it."),
    ] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="For a run: how long to look for partners.")] = 600.0,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the model and the columns; write nothing.")] = False,
) -> Outcome:
    """Predict the rows of a table.

    With the id of a run, every party of its model calls this with its own rows: the label holder gets the scores, and
    the others only answer.

    Example: hedgerow predict loans.json new_loans.csv --out scored.csv --proba --keep customer_id

    Example: hedgerow predict 3f9a new_customers.parquet --out scores.parquet
    """
    if context.params["as_json"] and out == STDOUT:
        raise JobError("--json and --out - both want stdout; write the predictions to a file")
    if out is not None and out != STDOUT:
        format_of(out)
    if out is not None and data is not None and data.resolve() in (out.resolve(), out.resolve().parent):
        raise JobError(f"{out} is to be read and written; choose another --out")
    if not model.is_file() and _RUN_ID.fullmatch(str(model)):
        how = {"predict_epsilon": predict_epsilon, "wait": wait}
        return _run_together(
            str(model), data, out, how, keep=keep or [], dry_run=dry_run, home=home, passphrase_file=passphrase_file
        )
    if data is None or out is None:
        raise JobError("a model file needs rows and a place to write to: hedgerow predict MODEL DATA --out FILE")
    if predict_epsilon is not None:
        raise JobError("--predict-epsilon is for runs, whose partners answer; a model file is asked by nobody else")
    result = _run(model, data, out, proba=proba, keep=keep or [], dry_run=dry_run)
    done = f"{result['rows']} predictions written to {out}"
    if dry_run:
        done = f"{result['rows']} rows can be predicted with {model}; nothing written (--dry-run)"
    return Outcome(result, lambda: None if out == STDOUT and not dry_run else say(done))


def _run_together(
    run: str,
    data: Path | None,
    out: Path | None,
    how: dict[str, Any],
    *,
    keep: list[str],
    dry_run: bool,
    home: Path | None,
    passphrase_file: Path | None,
) -> Outcome:
    """Play one party's part of a scoring by all parties of a run."""
    from hedgerow.node.desk import Node
    from hedgerow.node.home import Home
    from hedgerow.node.scoring import columns_of, score
    from hedgerow.node.trained import Trained

    place = Home.find(home)
    trained = Trained.find(place, run)
    trained.check("batch")
    if trained.is_asking and out is None and not dry_run:
        raise JobError(f"{place.name} gets the scores: say where to write them, --out FILE")
    if not trained.is_asking and (out is not None or keep or how["predict_epsilon"] is not None):
        raise JobError(
            f"{place.name} only answers: --out, --keep and --predict-epsilon are for {trained.label_holder}, who gets "
            "the scores"
        )
    if (trained.part is None) != (data is None):
        said = (
            "takes part without rows; leave out DATA" if trained.part is None else "needs DATA, its own rows to score"
        )
        raise JobError(f"{place.name} {said}")
    rows = None if data is None else trained.rows(str(data), keep=keep)
    result: dict[str, Any] = {
        "command": "predict",
        "dry_run": dry_run,
        "run": trained.proposal.run_id,
        "data": None if data is None else str(data),
        "out": None if dry_run or out is None else str(out),
        "rows": 0 if rows is None else rows.n_rows,
    }
    if dry_run:
        done = f"{result['rows']} rows can be scored with {trained.proposal.run_id[:12]}; nobody was asked (--dry-run)"
        return Outcome(result, lambda: say(done))
    started = time.perf_counter()
    identity = unlocked(place, passphrase_file)
    with Node(place, identity, trained.proposal.peers_of(place.name)) as node:
        mention(f"Scoring with {', '.join(node.peers)} ...")
        with progress("scoring") as on_progress:
            scored = score(node, trained, rows, on_progress=on_progress, **how)
    result |= {"scored": scored.n_rows, "folder": scored.folder, "seconds": time.perf_counter() - started}
    done = f"{scored.n_rows} rows scored; {trained.label_holder} has the scores. The ledger is in {scored.folder}"
    if rows is not None and out is not None:
        columns = columns_of(scored, rows, keep)
        result["columns"] = list(columns)
        if out == STDOUT:
            sys.stdout.buffer.write(csv_bytes(columns))
        else:
            write_file(out, columns)
        lacking = rows.n_rows - scored.n_rows
        left = f", {lacking} rows left out that not all parties have" if lacking else ""
        done = f"{scored.n_rows} scores written to {out}{left}. The ledger is in {scored.folder}"
    return Outcome(result, lambda: say(done))


def _run(path: Path, data: Path, out: Path, *, proba: bool, keep: list[str], dry_run: bool) -> dict[str, Any]:
    import pyarrow as pa

    started = time.perf_counter()
    estimator = read_model(path)
    is_classifier = hasattr(estimator, "classes_")
    if proba and not is_classifier:
        raise JobError(f"--proba: {path} is a regressor, which has no probabilities")
    features = estimator.ensemble_.mapper.features
    numbers = {feature.name for feature in features if feature.levels is None}
    # Columns whose levels are text stay text, also where a CSV file's cells look like numbers.
    texts = {f.name: pa.string() for f in features if f.levels and isinstance(f.levels[0], str)}
    columns: Collection[str] = ()
    if is_streamed(data):
        n_rows, columns = _stream(estimator, data, out, proba=proba, keep=keep, dry_run=dry_run)
    else:
        table = read_file(data, texts, numbers)
        n_rows = table.num_rows
        require_columns(table.column_names, keep, data, "--keep names")
        X = model_columns(estimator, table, data)
        if not dry_run:
            with progress("predicting") as on_progress:
                found = prediction_columns(estimator, X, proba=proba, on_progress=on_progress)
            columns = {**{name: table.column(name) for name in keep}, **found}
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
        "rows": n_rows,
        "columns": list(columns),
        "seconds": time.perf_counter() - started,
    }


def _stream(
    estimator: Any, data: Path, out: Path, *, proba: bool, keep: list[str], dry_run: bool
) -> tuple[int, Collection[str]]:
    """Some rows at a time, from Parquet files into one; how many rows, and the columns that were written."""
    from hedgerow.engine.blocks import Blocks
    from hedgerow.estimators.streamed import write_predictions

    if out == STDOUT or format_of(out) != ".parquet":
        raise JobError(f"--out {out}: predictions of {data} are written some at a time; name a .parquet file")
    there = list(Blocks(data).types)
    require_columns(there, keep, data, "--keep names")
    names = [feature.name for feature in estimator.ensemble_.mapper.features]
    if hasattr(estimator, "feature_names_in_") or set(names) <= set(there):
        require_columns(there, names, data, "the model needs")
    else:
        names = there
    blocks = Blocks(data, columns=names)
    if dry_run:
        return blocks.n_rows, ()
    out.parent.mkdir(parents=True, exist_ok=True)
    with progress("predicting") as on_progress:
        return blocks.n_rows, write_predictions(estimator, blocks, out, proba=proba, keep=keep, on_progress=on_progress)


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


def prediction_columns(estimator: Any, X: Any, *, proba: bool, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """`prediction`, and `probability_<class>` if wanted; of some rows after the other, to have something to report."""
    import numpy as np
    import pyarrow as pa

    from hedgerow.estimators import streamed

    n_rows, found = len(X), []
    for start in range(0, max(n_rows, 1), BLOCK_ROWS):
        block = X[start : start + BLOCK_ROWS] if isinstance(X, np.ndarray) else X.slice(start, BLOCK_ROWS)
        found.append(streamed.prediction_columns(estimator, block, proba=proba))
        if on_progress is not None:
            on_progress(min(start + BLOCK_ROWS, n_rows), n_rows)
    return {name: pa.chunked_array([block[name] for block in found]) for name in found[0]}
