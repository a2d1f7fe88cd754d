"""`hedgerow demo`: the plain engine on a real dataset that comes with the package."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from hedgerow import __version__
from hedgerow.cli.outcome import one_line_errors, print_json
from hedgerow.cli.progress_bar import progress_bar, waiting_for

PARAMS: dict[str, Any] = {"max_iter": 200, "learning_rate": 0.1, "max_depth": 5, "early_stopping": False}
NOT_PROTECTED = (
    "Nothing is protected in this mode: all rows lay in one table on this machine, and the model may remember some of "
    "them. It shows the engine, not a way to train on data that may not be pooled."
)


def demo(*, as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False) -> None:
    """Train on the shipped Adult census data and show what came out.

    Example: hedgerow demo
    """
    with one_line_errors(as_json=as_json):
        result = run()
        if as_json:
            print_json(result)
        else:
            _print(result)


def run() -> dict[str, Any]:
    """Train on the official training split, score the official test split."""
    from hedgerow.cli.scores import scores
    from hedgerow.datasets import load_adult
    from hedgerow.engine.threads import available_cores
    from hedgerow.estimators import BoostedTreesClassifier

    people, incomes = load_adult("train")
    others, their_incomes = load_adult("test")
    with waiting_for("getting kernels ready (compiled once per machine, about 20 s)"):
        compile_seconds = _first_call(people, incomes)
    started = time.perf_counter()
    with progress_bar(PARAMS["max_iter"]) as callbacks:
        model = BoostedTreesClassifier(**PARAMS, callbacks=callbacks).fit(people, incomes)
    fitted = time.perf_counter()
    test_scores = scores(model, others, their_incomes, None)
    names = model.feature_names_in_.tolist()
    return {
        "command": "demo",
        "version": __version__,
        "dataset": "adult",
        "rows": {"train": people.num_rows, "test": others.num_rows},
        "columns": people.num_columns,
        "categorical_columns": sum(feature.levels is not None for feature in model.ensemble_.mapper.features),
        "params": PARAMS,
        "cores": available_cores(),
        "iterations": model.n_iter_,
        "seconds": {
            "compile_or_load": compile_seconds,
            "fit": fitted - started,
            "predict": time.perf_counter() - fitted,
        },
        "scores": {"test": test_scores},
        "importances": dict(zip(names, model.feature_importances_.tolist(), strict=True)),
        "protection": NOT_PROTECTED,
    }


def _first_call(people: Any, incomes: Any) -> float:
    """Seconds until every kernel is ready: compiled on this machine's first run, loaded from disk ever after."""
    from hedgerow.estimators import BoostedTreesClassifier

    started = time.perf_counter()
    few = people.slice(0, 2000)
    BoostedTreesClassifier(**{**PARAMS, "max_iter": 2}).fit(few, incomes[:2000]).predict_proba(few)
    return time.perf_counter() - started


def _print(result: dict[str, Any]) -> None:
    from rich.text import Text

    from hedgerow.cli.summary import console, importance_table, score_table
    from hedgerow.progress import duration

    out = console()
    rows, seconds, params = result["rows"], result["seconds"], result["params"]
    out.print(Text("Who earns more than 50,000 dollars a year? (Adult census data, 1994)", style="bold"))
    out.print(
        f"Trained {result['iterations']} trees of depth {params['max_depth']} on {rows['train']:,} people with "
        f"{result['columns']} columns\n({result['categorical_columns']} of them categorical, some values missing) "
        f"in [bold]{duration(seconds['fit'])}[/bold] on {result['cores']} "
        f"core{'s' if result['cores'] > 1 else ''}.",
        highlight=False,
    )
    out.print(Text(_kernel_line(seconds["compile_or_load"], duration), style="dim"))
    out.print()
    out.print(score_table({f"on {rows['test']:,} other people": result["scores"]["test"]}))
    out.print()
    out.print(importance_table(result["importances"], top=6))
    out.print()
    out.print(Text(result["protection"]))
    out.print()
    out.print(Text("Next, on your own table: hedgerow train --data FILE --label COLUMN", style="dim"))


def _kernel_line(seconds: float, duration: Any) -> str:
    if seconds > 5:
        return f"Before that, {duration(seconds)} went into compiling kernels; the next run finds them on disk."
    return f"Before that, {duration(seconds)} went into loading the compiled kernels."
