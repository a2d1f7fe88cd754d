"""The package's front door: which names it has, and how little it loads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import hedgerow

HEAVY = "{'numba', 'numpy', 'pandas', 'polars', 'pyarrow', 'scipy', 'sklearn', 'typer', 'rich', 'grpc', 'ray'}"


def test_import_loads_nothing_heavy():
    """Importing hedgerow, and asking for its version and its names, loads no third-party library at all."""
    program = (
        "import sys, hedgerow; hedgerow.__version__; assert 'BoostedTreesClassifier' in dir(hedgerow)\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", hedgerow.__all__)
def test_every_public_name_can_be_loaded(name):
    """Each name in __all__ exists, is listed by dir() and is the same object each time."""
    assert name in dir(hedgerow)
    assert getattr(hedgerow, name) is getattr(hedgerow, name)


def test_estimators_are_the_ones_of_their_module():
    """The lazily loaded classes are those of hedgerow.estimators.plain, not copies."""
    from hedgerow.estimators import plain as estimators

    assert hedgerow.BoostedTreesClassifier is estimators.BoostedTreesClassifier
    assert hedgerow.BoostedTreesRegressor is estimators.BoostedTreesRegressor


def test_unknown_name_raises_attribute_error():
    """A name that does not exist raises what Python raises for any module."""
    with pytest.raises(AttributeError, match="module 'hedgerow' has no attribute 'Nonsense'"):
        hedgerow.Nonsense  # noqa: B018 - the access is what raises


def test_version_is_the_installed_one():
    """The version in the code is the one that pip sees, where the package is installed."""
    try:
        assert hedgerow.__version__ == version("hedgerow")
    except PackageNotFoundError:
        pytest.skip("hedgerow is not installed here, only importable")


def test_marked_as_typed():
    """Type checkers are told to read our annotations."""
    assert (Path(hedgerow.__file__).parent / "py.typed").is_file()


def test_runtime_needs_no_competitor():
    """XGBoost and LightGBM are compared with, never needed to run."""
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    needed = " ".join(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"])
    assert "xgboost" not in needed
    assert "lightgbm" not in needed
