"""Hedgerow: gradient-boosted trees on data that may not be pooled.

The public names are loaded when they are first used (PEP 562), so `import hedgerow` costs milliseconds and pulls in
neither numba nor scikit-learn nor pandas. That matters to the command line, which must answer `--help` at once, and to
a party's node, which may never train.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hedgerow._version import __version__

if TYPE_CHECKING:
    from hedgerow.engine.blocks import Blocks
    from hedgerow.engine.rows_ray.cluster import RayBackend
    from hedgerow.errors import HedgerowError
    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model
    from hedgerow.estimators.private import (
        DPBoostClassifier,
        DPBoostRegressor,
        PrivateBoostingClassifier,
        PrivateBoostingRegressor,
    )
    from hedgerow.estimators.search import PrivateSearch
    from hedgerow.federation.alignment import align
    from hedgerow.federation.federation import Federation
    from hedgerow.federation.run import Run
    from hedgerow.federation.vertical_model import VerticalModel
    from hedgerow.privacy.budget_file import BudgetFile
    from hedgerow.schema import Schema

__all__ = [
    "Blocks",
    "BoostedTreesClassifier",
    "BoostedTreesRegressor",
    "BudgetFile",
    "DPBoostClassifier",
    "DPBoostRegressor",
    "Federation",
    "HedgerowError",
    "PrivateBoostingClassifier",
    "PrivateBoostingRegressor",
    "PrivateSearch",
    "RayBackend",
    "Run",
    "Schema",
    "VerticalModel",
    "__version__",
    "align",
    "load_model",
]

_HOME_OF = {
    "Blocks": "hedgerow.engine.blocks",
    "BoostedTreesClassifier": "hedgerow.estimators.plain",
    "BoostedTreesRegressor": "hedgerow.estimators.plain",
    "BudgetFile": "hedgerow.privacy.budget_file",
    "DPBoostClassifier": "hedgerow.estimators.private",
    "DPBoostRegressor": "hedgerow.estimators.private",
    "Federation": "hedgerow.federation.federation",
    "HedgerowError": "hedgerow.errors",
    "PrivateBoostingClassifier": "hedgerow.estimators.private",
    "PrivateBoostingRegressor": "hedgerow.estimators.private",
    "PrivateSearch": "hedgerow.estimators.search",
    "RayBackend": "hedgerow.engine.rows_ray.cluster",
    "Run": "hedgerow.federation.run",
    "Schema": "hedgerow.schema",
    "VerticalModel": "hedgerow.federation.vertical_model",
    "align": "hedgerow.federation.alignment",
    "load_model": "hedgerow.estimators.plain",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use, and keep it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hedgerow' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
