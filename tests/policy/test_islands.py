"""engine, privacy, crypto and transport are islands: they import neither each other nor anything that sits above them.

The architecture in one rule: islands at the bottom, `runtime` and `ledger` beside them, `protocols` the place where
islands meet, everything that people touch above. Imports are read from the syntax tree, so also those inside functions
and under `if TYPE_CHECKING` count.
"""

from __future__ import annotations

import ast

import pytest

ISLANDS = ("engine", "privacy", "crypto", "transport")
COMMON = ("errors", "aborts", "_version", "__version__", "schema", "compiling", "codec", "times")
"""What every part may import; these import nothing of ours themselves, but for the errors."""

PAGES = ("html", "style", "page", "charts", "flows", "picture", "told", "sections")
"""Modules of `report` that write facts down as pages, and know nothing of runs, nodes and models. A statement and a
ledger use them to show themselves in a notebook; the rest of `report` gathers facts, and sits above."""

MAY_IMPORT = {
    **{island: (island, *COMMON) for island in ISLANDS},
    "aborts": (),
    "errors": ("aborts",),
    "_version": (),
    "schema": ("errors", "codec", "times"),
    "times": ("errors",),
    "codec": ("errors",),
    "compiling": (),
    "ledger": ("report.page", "report.sections", *COMMON),
    "statement": ("privacy", "report.page", "report.sections", *COMMON),
    "protocols": ("protocols", *ISLANDS, "runtime", "ledger", "statement", *COMMON),
    "datasets": ("datasets", *COMMON),
    **{f"report.{name}": (*(f"report.{other}" for other in PAGES), "ledger", "statement", *COMMON) for name in PAGES},
}
"""Part of the package, or module of one -> parts it may import. What is not listed sits above and may import all."""

DYNAMIC = {"import_module", "__import__"}


def module_name(path: str) -> str:
    """src/hedgerow/engine/rows.py -> hedgerow.engine.rows."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: ast.Module, module: str, *, is_package: bool = False) -> list[tuple[int, str]]:
    """(line, full name) of all that a module imports; "?" where the name is computed at run time."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in DYNAMIC:
            name = node.args[0] if node.args else None
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            found.append((node.lineno, name.value if literal else "?"))
    return found


def trespasses(tree: ast.Module, path: str) -> list[str]:
    """The imports of one file that its part of the package may not make."""
    module = module_name(path)
    part = module.split(".")[1] if "." in module else ""
    rule = MAY_IMPORT.get(module.removeprefix("hedgerow."), MAY_IMPORT.get(part))
    if rule is None:
        return []
    allowed = tuple(f"hedgerow.{name}" for name in rule)
    bad = []
    for line, name in imports(tree, module, is_package=path.endswith("/__init__.py")):
        ours = name == "hedgerow" or name.startswith("hedgerow.")
        permitted = any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)
        if (ours and not permitted) or name == "?":
            bad.append(f"{path}:{line} imports {name}")
    return bad


def test_islands_stay_apart(package):
    """No part of the package imports a part that it may not know."""
    assert [bad for source in package for bad in trespasses(source.tree, source.path)] == []


def test_engine_is_looked_at(package):
    """The rule is applied to real files: the engine's are among them."""
    assert any(source.path.startswith("src/hedgerow/engine/") for source in package)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("engine/rows.py", "import hedgerow.privacy.mechanisms"),
        ("engine/rows.py", "from hedgerow.crypto import ring"),
        ("engine/rows.py", "from hedgerow import transport"),
        ("engine/rows.py", "import hedgerow"),
        ("engine/rows.py", "from hedgerow import BoostedTreesClassifier"),
        ("engine/rows.py", "from hedgerow.estimators.plain import BoostedTreesClassifier"),
        ("engine/rows.py", "from ..privacy import events"),
        ("engine/__init__.py", "from ..privacy import events"),
        ("engine/rows.py", "from .. import crypto"),
        ("engine/rows.py", "def f():\n    import hedgerow.cli"),
        ("engine/rows.py", "import importlib\nimportlib.import_module('hedgerow.protocols')"),
        ("engine/rows.py", "import importlib\nimportlib.import_module(name)"),
        ("privacy/events.py", "from hedgerow.engine.dtypes import BIN"),
        ("crypto/ring.py", "from hedgerow.testing import naive"),
        ("transport/frames.py", "from hedgerow.federation.federation import Federation"),
        ("protocols/central/dpboost.py", "from hedgerow.node import policy"),
        ("ledger.py", "from hedgerow.runtime.party import Party"),
        ("errors.py", "from hedgerow import engine"),
        ("report/sections.py", "from hedgerow.federation.run import Run"),
        ("report/html.py", "from hedgerow.report.of_run import told_of_run"),
        ("statement.py", "from hedgerow.report.of_node import told_of_node"),
    ],
)
def test_a_trespass_is_found(path, line):
    """Each way of writing a forbidden import is found."""
    assert trespasses(ast.parse(line), f"src/hedgerow/{path}") != []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            "engine/rows.py",
            "import numpy as np\nfrom hedgerow.engine import binning\nfrom hedgerow.engine.dtypes import BIN",
        ),
        ("engine/rows.py", "from hedgerow.errors import InvalidInput\nfrom hedgerow import errors"),
        ("engine/__init__.py", "from . import rows"),
        ("engine/rows.py", "from .binning import BinMapper"),
        ("engine/model_file.py", "from hedgerow import __version__"),
        ("protocols/central/dpboost.py", "from hedgerow.engine import rows\nfrom hedgerow.privacy import events"),
        ("estimators.py", "from hedgerow.engine import boosting\nfrom hedgerow.privacy import events"),
        ("report/of_run.py", "from hedgerow.federation.run import Run\nfrom hedgerow.report.told import Told"),
        ("ledger.py", "from hedgerow.report.sections import ledger_part"),
    ],
)
def test_a_permitted_import_is_left_alone(path, line):
    """Imports within an island, of the common errors, and from above are not reported."""
    assert trespasses(ast.parse(line), f"src/hedgerow/{path}") == []
