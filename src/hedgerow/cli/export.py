"""`hedgerow export`: a model file in, another library's model file out; or one party's part of a model, to be read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli.files import read_model, read_run
from hedgerow.cli.outcome import Outcome, verb, whole_file
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption
from hedgerow.errors import JobError

FORMATS = ("xgboost", "lightgbm", "onnx", "pmml", "treelite", "json")
_RUN_ID = re.compile(r"[0-9a-f]{1,32}")


@verb("What was done as JSON on stdout.")
def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A model file: `hedgerow train`'s, XGBoost's or LightGBM's. For json a saved run, or the beginning of "
            "the id of a run of this party.",
        ),
    ],
    *,
    fmt: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="xgboost: for xgboost.Booster.load_model; lightgbm: for lightgbm.Booster; onnx: for onnxruntime; "
            "pmml: PMML 4.4; treelite: for treelite.Model.deserialize; json: one party's part of a model in parts.",
        ),
    ] = "xgboost",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write; XGBoost reads .json, onnxruntime .onnx.")],
    party: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a saved run: whose part.", show_default=False)
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check that the model can be exported; write nothing.")
    ] = False,
) -> Outcome:
    """Write a model in another library's format, such that it predicts the same.

    A model in parts leaves one part at a time, as JSON for other tools: a feature holder's questions, each with a
    condition in SQL, or the label holder's trees.

    Example: hedgerow export loans.json --format xgboost --out loans_xgboost.json

    Example: hedgerow export runs/first --party shop --format json --out shop.json
    """
    if fmt not in FORMATS:
        raise JobError(f"--format must be one of {', '.join(FORMATS)}, got {fmt!r}")
    if out.resolve() == model.resolve():
        raise JobError(f"{out} is to be read and written; choose another --out")
    if party is not None and fmt != "json":
        raise JobError(f"--party is for --format json, which writes one party's part; got --format {fmt}")
    result: dict[str, Any] = {"command": "export", "dry_run": dry_run, "format": fmt, "model": str(model)}
    if fmt == "json":
        owner, write = _part_of(model, party, home)
        result["party"] = owner
    else:
        estimator = read_model(model)
        write = getattr(estimator, f"export_{fmt}")
        result["trees"] = len(estimator.ensemble_.trees)
    if dry_run:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / out.name)
    else:
        with whole_file(out) as partial:
            write(partial)
    result["out"] = None if dry_run else str(out)
    done = f"{model} can be exported; nothing written (--dry-run)" if dry_run else f"{fmt} model written to {out}"
    return Outcome(result, lambda: say(done))


def _part_of(model: Path, party: str | None, home: Path | None) -> tuple[str, Callable[[Path], None]]:
    """Whose part it is, and what writes it: of a saved run the part of `party`, of a run of this home its own."""
    from hedgerow.federation.vertical_model import VerticalModel
    from hedgerow.node.home import Home
    from hedgerow.node.trained import Trained
    from hedgerow.protocols.vertical.common.readable import export_part

    if not model.exists() and _RUN_ID.fullmatch(str(model)):
        place = Home.find(home)
        part = Trained.find(place, str(model)).part
        if party not in (None, place.name) or part is None:
            raise JobError(f"{place.name} has no part of {party or 'its own'} in the run {model}; each exports its own")
        return place.name, lambda path: export_part(part, path)
    if not model.is_dir():
        raise JobError(f"{model}: --format json is for a model in parts: a folder that run.save wrote, or a run's id")
    whole = read_run(model).model if (model / "run.json").is_file() else VerticalModel.load(model)
    if not isinstance(whole, VerticalModel):
        raise JobError(f"{model}: its model is whole, in model.json; export that file in another --format")
    if party is None:
        raise JobError(f"--party must say whose part of {model} to write: {', '.join(whole.parties)}")
    return party, lambda path: whole.export(party, path)
