"""`hedgerow --version`: the version; with --json also what it runs on and which kernels are compiled."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import typer

from hedgerow import __version__
from hedgerow.cli.outcome import print_json

LIBRARIES = ("numba", "numpy", "scikit-learn", "pyarrow", "pandas", "polars", "xgboost-cpu", "xgboost")


def show(*, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print_json(report())
    else:
        typer.echo(f"hedgerow {__version__}")


def report() -> dict[str, Any]:
    """Versions, machine, and for each kernel whether its machine code is on disk already."""
    from hedgerow.engine.threads import available_cores

    libraries = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            libraries[name] = installed_version(name)
    kernels = {name: _state(kernel) for name, kernel in _kernels()}
    return {
        "version": __version__,
        "python": platform.python_version(),
        **libraries,
        "platform": platform.platform(),
        "cores": available_cores(),
        "kernels_cached": sum(state == "cached" for state in kernels.values()),
        "kernels": kernels,
    }


def _kernels() -> Iterator[tuple[str, Any]]:
    """Every compiled function of the engine under the name of the module that defines it."""
    import hedgerow.engine

    for module_info in pkgutil.iter_modules(hedgerow.engine.__path__, "hedgerow.engine."):
        module = importlib.import_module(module_info.name)
        for name, value in sorted(vars(module).items()):
            # One with machine code of its own: inlined helpers live inside their callers.
            compiled = hasattr(value, "py_func") and hasattr(value, "stats")
            if not compiled or value.targetoptions.get("inline", "never") != "never":
                continue
            if value.py_func.__module__ == module.__name__:
                yield f"{module.__name__.removeprefix('hedgerow.')}.{name}", value


def _state(kernel: Any) -> str:
    """`compiled` in this process, `cached` on disk from an earlier one, or `not compiled yet`."""
    if kernel.signatures:
        return "compiled"
    folder = kernel.stats.cache_path
    function = kernel.py_func
    pattern = (
        f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-{function.__code__.co_firstlineno}.*.nbi"
    )
    if folder and any(Path(folder).glob(pattern)):
        return "cached"
    return "not compiled yet"
