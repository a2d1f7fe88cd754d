"""`hedgerow export`: a model file in, another library's model file out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.files import read_model
from hedgerow.cli.outcome import Outcome, verb, whole_file
from hedgerow.cli.telling import say
from hedgerow.errors import JobError

FORMATS = ("xgboost", "lightgbm", "onnx", "pmml", "treelite")


@verb("What was done as JSON on stdout.")
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `hedgerow train` wrote.")],
    *,
    fmt: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="xgboost: for xgboost.Booster.load_model; lightgbm: for lightgbm.Booster; onnx: for onnxruntime; "
            "pmml: PMML 4.4; treelite: for treelite.Model.deserialize.",
        ),
    ] = "xgboost",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write; XGBoost reads .json, onnxruntime .onnx.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check that the model can be exported; write nothing.")
    ] = False,
) -> Outcome:
    """Write a model in another library's format, such that it predicts the same.

    Example: hedgerow export loans.json --format xgboost --out loans_xgboost.json
    """
    if fmt not in FORMATS:
        raise JobError(f"--format must be one of {', '.join(FORMATS)}, got {fmt!r}")
    if out.resolve() == model.resolve():
        raise JobError(f"{out} is to be read and written; choose another --out")
    estimator = read_model(model)
    write = {
        "xgboost": estimator.export_xgboost,
        "lightgbm": estimator.export_lightgbm,
        "onnx": estimator.export_onnx,
        "pmml": estimator.export_pmml,
        "treelite": estimator.export_treelite,
    }
    if dry_run:
        with tempfile.TemporaryDirectory() as folder:
            write[fmt](Path(folder) / out.name)
    else:
        with whole_file(out) as partial:
            write[fmt](partial)
    result = {
        "command": "export",
        "dry_run": dry_run,
        "format": fmt,
        "model": str(model),
        "out": None if dry_run else str(out),
        "trees": len(estimator.ensemble_.trees),
    }
    done = f"{model} can be exported; nothing written (--dry-run)" if dry_run else f"{fmt} model written to {out}"
    return Outcome(result, lambda: say(done))
