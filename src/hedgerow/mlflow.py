"""Models, statements and reports in MLflow: what a training left behind, and never a row of what it was trained on.

    import hedgerow.mlflow

    with mlflow.start_run():
        logged = hedgerow.mlflow.log_model(model, "loans")          # an estimator, or a run of a federation
    hedgerow.mlflow.load_model(logged.model_uri)                    # the estimator again
    mlflow.pyfunc.load_model(logged.model_uri).predict(frame)       # anybody's way to predict

The run gets parameters, learning curves, statement.json, statement.txt and report.html; the model's folder holds the
last three as well, so that they go where the model goes. The model is our own JSON file: nothing is pickled, and
loading runs no code from the folder. There is no input example, because that would be rows.

Of a model whose columns were split, each party logs its own part to its own MLflow: `log_model(run, party="shop")`. A
part answers together with the others alone, so it has no pyfunc flavour.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

from hedgerow._version import __version__
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError
from hedgerow.estimators.plain import BoostedTrees
from hedgerow.estimators.plain import load_model as load_estimator
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.protocols.vertical.common.parts import Part, load_part, save_part
from hedgerow.statement import Statement

FLAVOR = "hedgerow"
FILES = {"model": "model.json", "part": "part.json"}
"""What a folder holds -> in which file; never read from elsewhere."""

MOST_METRICS = 1000
"""MLflow takes no more at a time."""

Method = Literal["predict", "predict_proba", "decision_function"]


@dataclass(frozen=True)
class _Subject:
    """What is to be kept of a training."""

    model: Any  # an estimator, or a party's part
    statement: Statement | None
    report: str
    params: dict[str, Any]
    metrics: dict[str, list[float]]
    tags: dict[str, str]

    @property
    def papers(self) -> Iterator[tuple[str, str]]:
        """Name and text of each file for people and machines beside the model."""
        if self.statement is not None:
            yield "statement.json", json.dumps(self.statement.to_dict(), indent=1)
            yield "statement.txt", f"{self.statement}\n"
        yield "report.html", self.report


def log_model(
    model: Any,
    name: str = "model",
    *,
    party: str | None = None,
    pyfunc_method: Method = "predict",
    signature: Any = None,
    registered_model_name: str | None = None,
) -> Any:
    """Log a fitted estimator or a run of a federation to the active MLflow run, or to a new one; MLflow's `ModelInfo`.

    `party` says who logs, where each party has a part of its own; without columns split, whose statement and report it
    is. `pyfunc_method` is what `mlflow.pyfunc` calls to predict. `signature` is one of MLflow's, if you have one.
    """
    mlflow = _mlflow()
    subject = _subject(model, party)
    _check_method(subject, pyfunc_method)
    run = mlflow.active_run() or mlflow.start_run()
    mlflow.log_params(subject.params)
    mlflow.set_tags(subject.tags)
    for file, text in subject.papers:
        mlflow.log_text(text, file)
    logged = mlflow.models.Model.log(
        None,
        sys.modules[__name__],
        name=name,
        registered_model_name=registered_model_name,
        model=model,
        party=party,
        pyfunc_method=pyfunc_method,
        signature=signature,
    )
    _log_metrics(run.info.run_id, logged.model_id, subject.metrics)
    return logged


def save_model(
    model: Any,
    path: str | Path,
    *,
    party: str | None = None,
    pyfunc_method: Method = "predict",
    signature: Any = None,
    mlflow_model: Any = None,
) -> None:
    """Write a folder in MLflow's format: MLmodel, the model, its statement and report. Arguments as for `log_model`."""
    mlflow = _mlflow()
    subject = _subject(model, party)
    _check_method(subject, pyfunc_method)
    place = Path(path)
    if place.exists() and any(place.iterdir()):
        raise InvalidInput(f"{place} is not empty; a model is saved into a folder of its own")
    place.mkdir(parents=True, exist_ok=True)
    kind = "part" if isinstance(subject.model, Part) else "model"
    if isinstance(subject.model, Part):
        save_part(subject.model, place / FILES[kind])
    else:
        subject.model.save_model(place / FILES[kind])
    for file, text in subject.papers:
        (place / file).write_text(text, encoding="utf-8")
    about = mlflow.models.Model() if mlflow_model is None else mlflow_model
    about.signature = signature
    about.add_flavor(FLAVOR, kind=kind, pyfunc_method=pyfunc_method, hedgerow_version=__version__)
    if kind == "model":
        environment = {"python": platform.python_version(), "dependencies": ["-r requirements.txt"]}
        (place / "requirements.txt").write_text(f"hedgerow[pandas]=={__version__}\n", encoding="utf-8")
        (place / "python_env.yaml").write_text(json.dumps(environment), encoding="utf-8")  # JSON is YAML
        mlflow.pyfunc.add_to_model(about, loader_module=__name__, python_env="python_env.yaml")
    about.save(str(place / "MLmodel"))


def load_model(model_uri: str, dst_path: str | Path | None = None) -> Any:
    """The estimator, or a party's part, that was logged or saved at a place that MLflow knows."""
    place = Path(
        _mlflow().artifacts.download_artifacts(model_uri, dst_path=None if dst_path is None else str(dst_path))
    )
    kind = _about(place)["kind"]
    return load_part(place / FILES[kind]) if kind == "part" else load_estimator(place / FILES[kind])


def _load_pyfunc(path: str) -> SimpleNamespace:
    """MLflow's door to a model that was saved here: the folder in, something with `predict` out."""
    place = Path(path)
    model = load_estimator(place / FILES["model"])
    return SimpleNamespace(predict=getattr(model, _about(place)["pyfunc_method"]))


# --- pieces ----------------------------------------------------------------------------------------------------------


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc  # needs pandas
    except ImportError:
        raise InvalidParameter(
            "hedgerow.mlflow needs the packages mlflow-skinny and pandas; install them with: pip install "
            "'hedgerow[mlflow]'"
        ) from None
    return mlflow


def _subject(model: Any, party: str | None) -> _Subject:
    if isinstance(model, VerticalModel):
        raise InvalidInput("the parts of a model in parts are logged with their run: log_model(run, party=...)")
    if isinstance(model, Run):
        return _of_run(model, party)
    if not isinstance(model, BoostedTrees):
        raise InvalidInput(f"model must be a fitted estimator or a run of Hedgerow, got {type(model).__name__}")
    if party is not None:
        raise InvalidParameter(f"party is for runs of several parties; leave it out for an estimator, got {party!r}")
    statement = getattr(model, "statement_", None)
    return _Subject(
        model,
        statement,
        model.report().html,
        _short(model.get_params(deep=False)),
        _curves(model),
        _tags("" if statement is None else statement.protocol, "" if statement is None else statement.stamp),
    )


def _of_run(run: Run, party: str | None) -> _Subject:
    """A run as one party has it; where rows were split, everybody has the model."""
    kept: Any = run.model
    if isinstance(kept, VerticalModel):
        if party not in kept.parts:
            raise InvalidParameter(
                f"party must say who logs, one of {', '.join(kept.parts)}: each keeps its own part of the model, and "
                f"no place may hold them all, got {party!r}"
            )
        kept = kept.parts[party]
    statement = run.statement(party)
    curves = {} if isinstance(kept, Part) else _curves(kept)
    return _Subject(
        kept,
        statement,
        run.report(party=party).html,
        _short({**run.job.to_dict(), "protocol": run.protocol, "transport": run.transport}),
        {**curves, "seconds": [run.seconds]},
        {**_tags(run.protocol, statement.stamp), **({} if party is None else {"hedgerow.party": party})},
    )


def _short(given: dict[str, Any]) -> dict[str, Any]:
    """Those parameters that are one number or word."""
    return {
        name: value for name, value in given.items() if value is None or isinstance(value, bool | int | float | str)
    }


def _curves(model: Any) -> dict[str, list[float]]:
    """Learning curves that `fit` has kept, by rows and metric; and how many rounds there are."""
    found = {"n_iter": [float(model.n_iter_)]}
    for rows, metrics in model.evals_result_.items():
        found |= {f"{rows}_{metric}": [float(value) for value in values] for metric, values in metrics.items()}
    return found


def _tags(protocol: str, stamp: str | None) -> dict[str, str]:
    said = {"version": __version__, "protocol": protocol, "stamp": stamp or ""}
    return {f"hedgerow.{name}": text for name, text in said.items() if text}


def _log_metrics(run_id: str, model_id: str, curves: dict[str, list[float]]) -> None:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    now = int(time.time() * 1000)
    points = [
        Metric(name, value, now, step, model_id=model_id, run_id=run_id)
        for name, values in curves.items()
        for step, value in enumerate(values)
    ]
    for first in range(0, len(points), MOST_METRICS):
        MlflowClient().log_batch(run_id, metrics=points[first : first + MOST_METRICS])


def _check_method(subject: _Subject, method: str) -> None:
    if method not in get_args(Method):
        raise InvalidParameter(f"pyfunc_method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if not isinstance(subject.model, Part) and not hasattr(subject.model, method):
        raise InvalidParameter(f"a {type(subject.model).__name__} has no {method}, got pyfunc_method={method!r}")


def _about(place: Path) -> dict[str, Any]:
    """Our flavour in MLmodel, checked."""
    flavors = _mlflow().models.Model.load(str(place)).flavors
    about = flavors.get(FLAVOR)
    if (
        not isinstance(about, dict)
        or about.get("kind") not in FILES
        or about.get("pyfunc_method") not in get_args(Method)
    ):
        raise ModelFileError(f"{place}: MLmodel does not describe a model of Hedgerow; it has {', '.join(flavors)}")
    return about
