"""`hedgerow train`: a table with labels in, a model file and its scores out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow import __version__
from hedgerow.cli.files import write_file
from hedgerow.cli.job_file import Job, Privacy, flags, private_owner, read_job, set_flags
from hedgerow.cli.outcome import Outcome, json_text, verb, whole_file
from hedgerow.cli.telling import FitCallback, progress
from hedgerow.errors import JobError
from hedgerow.node.settings import number
from hedgerow.node.sources import (
    format_of,
    holds_parquet,
    is_streamed,
    look_at,
    read_file,
    read_folder,
    require_columns,
)


@verb("The result as JSON on stdout.", is_long=True)
def train(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB.toml", help="The job file; flags below override it.")
    ] = None,
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Training rows, .parquet or .csv, or a folder.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")] = None,
    valid: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows that decide when to stop.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows to score the finished model on.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of row weights.")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; repeatable.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of numbers that are categories; repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="classifier or regressor.")] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", parser=number, help="Train a differentially private model; needs --schema."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", parser=number, help="Its delta, for central.gaussian; by default 1e-6."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public bounds and levels, written by Schema.save.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME", help="central.gaussian (default), central.dpboost, ...")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Where rows are: ray, or the address of a Ray cluster; by default here."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Model file (.json), or a folder for model.json and result.json."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A model parameter, or section.key; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the job and the files' columns; train nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="One line per iteration on stderr.")] = False,
) -> Outcome:
    """Train a model on a table.

    Example: hedgerow train --data loans.parquet --label defaulted --out loans.json --set max_iter=200
    """
    given = {
        **flags("data", train=data, label=label, valid=valid, test=test, weight=weight),
        **flags("data", drop=drop, categorical=categorical),
        **flags("model", kind=kind, backend=backend),
        **flags("privacy", epsilon=epsilon, delta=delta, schema=schema, protocol=protocol),
        **_out_flags(out),
        **set_flags(settings or ()),
    }
    plan = read_job(job, os.environ, given)
    _check_outputs(plan)
    result = _dry_run(plan) if dry_run else _run(plan, verbose=verbose)

    def show() -> None:
        from hedgerow.cli.summary import print_dry_run, print_training

        (print_dry_run if dry_run else print_training)(result)

    return Outcome(result, show)


def _out_flags(out: Path | None) -> Any:
    if out is None or out.suffix == ".json":
        return flags("output", model=out)
    return flags("output", model=out / "model.json", result=out / "result.json")


def _check_outputs(job: Job) -> None:
    """Nothing may be written over what is read, and no format may turn out unknown after an hour of training."""
    inputs = {path.resolve() for path in (job.train, job.valid, job.test) if path}
    for path in (job.model, job.result, job.predictions):
        if path is not None and inputs & {path.resolve(), path.resolve().parent}:
            raise JobError(f"{path} is to be read and written; choose another output")
    if job.predictions is not None:
        fmt = format_of(job.predictions)
        if job.test is None:
            raise JobError("[output] predictions needs [data] test, whose rows are predicted")
        if fmt != ".parquet" and is_streamed(job.test):
            raise JobError(f"{job.predictions}: predictions of a folder are written as .parquet, some at a time")


@dataclass(frozen=True)
class _Labelled:
    """A file split into what the model may see, the labels and the weights.

    Files that are read some rows at a time: `Blocks`, and the names of the columns.
    """

    X: Any
    y: Any
    weight: Any
    types: dict[str, Any]

    @property
    def is_streamed(self) -> bool:
        return isinstance(self.y, str)


def _run(job: Job, *, verbose: bool) -> dict[str, Any]:
    started = time.perf_counter()
    private = None if job.privacy is None else _private_estimator(job, job.privacy)
    on_ray = job.params.get("backend") not in (None, "local") and holds_parquet(job.train)  # actors read files
    tables = {"train": _streamed(job, job.train, None) if on_ray else _read(job, job.train)}
    for name, path in (("valid", job.valid), ("test", job.test)):
        if path is not None:
            tables[name] = _read(job, path, tables["train"].types)
    read = time.perf_counter()
    if private is not None:
        model = private.set_params(verbose=int(verbose))
        with progress("training", wanted=not verbose) as on_progress:
            model.watch(on_progress).fit(tables["train"].X, tables["train"].y)
    else:
        model = _fitted(job, tables, verbose=verbose)
    fitted = time.perf_counter()
    result = _result(job, model, tables)
    result["seconds"] = {"read": read - started, "fit": fitted - read, "total": time.perf_counter() - started}
    _write(job, model, tables.get("test"), result)
    return result


def _fitted(job: Job, tables: dict[str, _Labelled], *, verbose: bool) -> Any:
    """The plain engine's model."""
    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor

    rows, valid = tables["train"], tables.get("valid")
    kind = job.kind or _kind_of(rows, job.label)
    # A job gives the same model each time it runs, so the seed is fixed unless the job says otherwise.
    params = {"random_state": 0, **job.params, "verbose": int(verbose)}
    if job.categorical:
        params["categorical_features"] = sorted(job.categorical)
    model = (BoostedTreesClassifier if kind == "classifier" else BoostedTreesRegressor)(**params)
    watched = {} if valid is None else {"X_val": valid.X, "y_val": valid.y, "sample_weight_val": valid.weight}
    with progress("training", wanted=not verbose) as on_progress:
        model.set_params(callbacks=[FitCallback(on_progress, model.max_iter)])
        model.fit(rows.X, rows.y, rows.weight, **watched)
    return model.set_params(callbacks=None)


def _private_estimator(job: Job, privacy: Privacy) -> Any:
    """The estimator of a private job, with schema and budget, before a row is read."""
    from hedgerow.privacy.budget_file import BudgetFile
    from hedgerow.schema import Schema

    schema = Schema.load(privacy.schema)
    kind = job.kind or ("regressor" if schema.classes is None else "classifier")
    asked: dict[str, Any] = {"epsilon": privacy.epsilon, "schema": schema}
    if privacy.protocol != "central.gaussian":
        asked["protocol"] = privacy.protocol
    if privacy.delta is not None:
        if privacy.protocol != "central.gaussian":
            raise JobError(f"[privacy] delta is for central.gaussian; {privacy.protocol} has none")
        asked["delta"] = privacy.delta
    if privacy.budget is not None and privacy.dataset is not None:
        asked["budget"] = BudgetFile(privacy.budget).dataset(privacy.dataset)
    return private_owner(privacy, kind)(**asked, **{"random_state": 0, **job.params})


def _read(job: Job, path: Path, types: dict[str, Any] | None = None) -> _Labelled:
    if job.privacy is None and is_streamed(path):
        return _streamed(job, path, types)
    table = read_folder(path) if path.is_dir() else read_file(path, types)
    require_columns(table.column_names, [job.label], path, "is the label")
    require_columns(table.column_names, [job.weight] if job.weight else [], path, "is the weight")
    require_columns(table.column_names, [*job.drop, *job.categorical] if types is None else [], path, "the job names")
    types = types or {field.name: field.type for field in table.schema}
    away = {job.label, job.weight, *job.drop}
    features = [name for name in table.column_names if name not in away]
    weight = table.column(job.weight).to_numpy() if job.weight else None
    return _Labelled(table.select(features), table.column(job.label), weight, types)


def _streamed(job: Job, path: Path, types: dict[str, Any] | None) -> _Labelled:
    from hedgerow.engine.blocks import Blocks

    there = list(Blocks(path).types) if types is None else list(types)
    require_columns(there, [job.label], path, "is the label")
    require_columns(there, [job.weight] if job.weight else [], path, "is the weight")
    require_columns(there, [*job.drop, *job.categorical], path, "the job names")
    blocks = Blocks(path, target=job.label, weight=job.weight, drop=[name for name in job.drop if name in there])
    return _Labelled(blocks, job.label, job.weight, blocks.types)


def _kind_of(rows: _Labelled, name: str) -> str:
    """Text, booleans and two whole numbers are classes, fractions are not; between these the person must say."""
    import numpy as np
    import pyarrow as pa

    from hedgerow.estimators.streamed import read_column

    label_type = rows.types[name]
    if pa.types.is_floating(label_type):
        return "regressor"
    if not pa.types.is_integer(label_type):
        return "classifier"
    labels = np.asarray(read_column(rows.X, name) if rows.is_streamed else rows.y.drop_null())
    if len(np.unique(labels[labels == labels])) <= 2:  # noqa: PLR0124 - only NaN, a missing label, differs from itself
        return "classifier"
    raise JobError(
        f"the label {name!r} holds whole numbers, which may be classes or amounts; "
        "say --kind classifier or --kind regressor"
    )


def _result(job: Job, model: Any, tables: dict[str, _Labelled]) -> dict[str, Any]:
    told = {}
    if job.privacy is not None:  # neither scores on the training rows nor their number are covered by the guarantee
        tables = {name: rows for name, rows in tables.items() if name != "train"}
        statement = model.privacy_statement()
        told = {"privacy": statement.to_dict(), "statement": statement.text(80)}
    features = model.ensemble_.mapper.features
    share = dict(zip((feature.name for feature in features), model.feature_importances_.tolist(), strict=True))
    return {
        "command": "train",
        "version": __version__,
        "kind": "classifier" if hasattr(model, "classes_") else "regressor",
        "model": str(job.model),
        "label": job.label,
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "rows": {name: rows.X.n_rows if rows.is_streamed else rows.X.num_rows for name, rows in tables.items()},
        "columns": len(features),
        "categorical_columns": sum(feature.levels is not None for feature in features),
        "constant_columns": list(model.constant_features_),
        "iterations": model.n_iter_,
        "best_iteration": model.best_iteration_,
        "scores": {name: _scores(model, rows) for name, rows in tables.items() if not _is_too_much(name, rows)},
        "importances": dict(sorted(share.items(), key=lambda item: -item[1])),
        "params": job.params,
        **told,
    }


def _is_too_much(name: str, rows: _Labelled) -> bool:
    """Training rows that were read some at a time are not read once more, only to be scored."""
    return name == "train" and rows.is_streamed


def _scores(model: Any, rows: _Labelled) -> dict[str, float]:
    from hedgerow.cli.summary import scores
    from hedgerow.estimators.streamed import read_column

    if not rows.is_streamed:
        return scores(model, rows.X, rows.y, rows.weight)
    return scores(model, rows.X, read_column(rows.X, rows.y), read_column(rows.X, rows.weight))


def _write(job: Job, model: Any, test: _Labelled | None, result: dict[str, Any]) -> None:
    with whole_file(job.model) as partial:
        model.save_model(partial)
    if job.result is not None:
        with whole_file(job.result) as partial:
            partial.write_text(json_text(result), encoding="utf-8")
    if job.predictions is not None and test is not None:
        from hedgerow.cli.predict import prediction_columns

        proba = hasattr(model, "classes_")
        if test.is_streamed:
            job.predictions.parent.mkdir(parents=True, exist_ok=True)
            model.write_predictions(test.X, job.predictions, proba=proba)
        else:
            write_file(job.predictions, prediction_columns(model, test.X, proba=proba))


def _dry_run(job: Job) -> dict[str, Any]:
    """What would run, after a look at the files' columns."""
    files: dict[str, dict[str, Any]] = {}
    for name, path in (("train", job.train), ("valid", job.valid), ("test", job.test)):
        if path is None:
            continue
        columns, n_rows = look_at(path)
        require_columns(list(columns), [job.label, *([job.weight] if job.weight else [])], path, "the job names")
        files[name] = {"path": str(path), "rows": n_rows, "columns": columns}
    require_columns(list(files["train"]["columns"]), [*job.drop, *job.categorical], job.train, "the job names")
    outputs = {"model": job.model, "result": job.result, "predictions": job.predictions}
    written = {name: str(path) for name, path in outputs.items() if path}
    return {
        "command": "train",
        "dry_run": True,
        "kind": job.kind,
        "label": job.label,
        "files": files,
        "params": job.params,
        "output": written,
    }
