"""`hedgerow warmup`: compile kernels ahead of time, so that nobody waits for them later."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, print_lines, verb
from hedgerow.cli.telling import progress
from hedgerow.errors import InvalidParameter

PLAIN = "plain"
_EPSILON = {"epsilon": 1.0}
_LEAKS = {"accept_known_leaks": True}
_OPTIONS: dict[str, dict[str, Any]] = {
    "vertical.bucket_rr": {**_EPSILON, "buckets": 32},
    "vertical.noised_gradients": {**_EPSILON, "delta": 1e-6},
    "vertical.private_histograms": _EPSILON,
    "vertical.masked_gradients": {"sigma1": 1.0, "sigma2": 1.0, "C": 0.0, **_LEAKS},
    "vertical.mp_fedxgb": _LEAKS,
}
"""What a protocol must be told before it can begin; kernels depend on little of it."""

_ROWS = 200


@verb("What was compiled, and how long it took, as JSON on stdout.", is_long=True)
def warmup(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Protocols, services or plain; without any, all that there are."),
    ] = None,
) -> Outcome:
    """Compile the kernels of all protocols, or of named ones, on made-up rows; what is compiled already is only loaded.

    Example: hedgerow warmup plain vertical.bucket_rr
    """
    from hedgerow.runtime.features import DPBOOST, GAUSSIAN
    from hedgerow.runtime.protocol import names as trainings
    from hedgerow.runtime.protocol import services

    known = (PLAIN, GAUSSIAN, DPBOOST, *trainings(), *services())
    for name in names or ():
        if name not in known:
            raise InvalidParameter(f"there are no kernels of {name!r}; there are {', '.join(known)}")
    wanted = tuple(dict.fromkeys(names or known))
    seconds: dict[str, float] = {}
    with progress("compiling") as on_progress:
        for done, name in enumerate(wanted):
            on_progress(done, len(wanted), name)
            began = time.perf_counter()
            _get_ready(name)
            seconds[name] = time.perf_counter() - began
        on_progress(len(wanted), len(wanted))
    lines = [f"{name}: ready after {took:.1f} s" for name, took in seconds.items()]
    return Outcome({"command": "warmup", "seconds": seconds}, lambda: print_lines(lines))


def _get_ready(name: str) -> None:
    """Run what needs the kernels on a few rows."""
    from hedgerow.compiling import told_otherwise
    from hedgerow.runtime.features import DPBOOST, GAUSSIAN
    from hedgerow.runtime.protocol import find, services
    from hedgerow.runtime.running import warm_up

    told_otherwise()
    if name == PLAIN:
        _fit_plain()
    elif name in (GAUSSIAN, DPBOOST):
        _fit_private(name)
    elif name in services():
        if (job := _service_job(name)) is not None:
            warm_up(find(name), job)
    else:
        warm_up(find(name), _job(name))


def _fit_plain() -> None:
    """One class or two and more, weighted or not, predictions and contributions."""
    import numpy as np

    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor

    rng = np.random.default_rng(0)
    X, y = _table(), rng.integers(0, 3, _ROWS)
    few: dict[str, Any] = {"max_iter": 2, "max_depth": 3, "random_state": 0}
    classifier = BoostedTreesClassifier(**few).fit(X, y == 1)
    classifier.predict_proba(X)
    classifier.contributions(X.slice(0, 10))
    BoostedTreesClassifier(subsample=0.5, **few).fit(X, y, sample_weight=y + 1.0).predict_proba(X)
    for loss in ("squared_error", "poisson", "absolute_error"):
        BoostedTreesRegressor(loss=loss, **few).fit(X, y).predict(X)


def _fit_private(name: str) -> None:
    from hedgerow.estimators.private import DPBoostClassifier, PrivateBoostingClassifier
    from hedgerow.protocols.made_up import made_up_schema
    from hedgerow.runtime.features import DPBOOST

    kind = DPBoostClassifier if name == DPBOOST else PrivateBoostingClassifier
    X = _table()
    kind(epsilon=1.0, schema=made_up_schema()).fit(X, [0, 1] * (_ROWS // 2)).predict_proba(X)


def _table() -> Any:
    """Numbers and levels, some missing, as the made-up schema describes them."""
    import pyarrow as pa

    from hedgerow.protocols.made_up import LEVELS

    count = range(_ROWS)
    return pa.table(
        {
            "wide": pa.array([None if k % 9 == 0 else float(k % 7) - 3 for k in count], pa.float64()),
            "narrow": pa.array([k % 5 / 2 for k in count], pa.float32()),
            "level": pa.array([LEVELS[k % len(LEVELS)] for k in count]),
        }
    )


def _job(name: str) -> Any:
    """A training of two or three parties."""
    from hedgerow.federation.federation import Chosen
    from hedgerow.protocols.made_up import made_up_schema
    from hedgerow.runtime.protocol import find

    partition, options = find(name).partition, dict(_OPTIONS.get(name, {}))
    if name in ("vertical.bucket_rr", "vertical.private_histograms"):
        options["schema"] = made_up_schema(levels=False)
    chosen = Chosen.of(name, options, partition=partition, task="classification")
    by_rows = partition == "rows"
    return chosen.job(("a", "b", "c") if by_rows else ("a", "b"), None if by_rows else "a", [])


def _service_job(name: str) -> Any:
    """A service on a made-up model; None where there is no kernel."""
    from hedgerow.protocols.made_up import MADE_UP
    from hedgerow.protocols.services.align.spec import SPEC as ALIGNING
    from hedgerow.runtime.protocol import find

    if name == ALIGNING.name:
        return None
    kind: Any = find(name).job
    return kind(("a", "b"), "a", "warmup", MADE_UP)
