"""What type checkers are told about constructors is what the constructors take."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hedgerow
from hedgerow.estimators import parameters
from hedgerow.estimators.inputs import _ROUNDS_NAMES, ALIASES

KINDS = {
    "BoostedTreesClassifier": parameters.ClassifierParameters,
    "BoostedTreesRegressor": parameters.RegressorParameters,
    "DPBoostClassifier": parameters.DPBoostClassifierParameters,
    "DPBoostRegressor": parameters.DPBoostRegressorParameters,
    "PrivateBoostingClassifier": parameters.GaussianClassifierParameters,
    "PrivateBoostingRegressor": parameters.GaussianParameters,
}
SNIPPET = """
from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor, DPBoostClassifier, PrivateBoostingClassifier

BoostedTreesClassifier(max_depth=3, n_estimators=5, class_weight="balanced")
BoostedTreesRegressor(eta=0.3, loss="quantile", quantile=0.9)
DPBoostClassifier(epsilon=1.0, n_estimators=3)
PrivateBoostingClassifier(delta=1e-6, max_iter=None)
BoostedTreesClassifier(max_dept=3)  # line 8
BoostedTreesRegressor(max_iter="many")  # line 9
DPBoostClassifier(epsilo=1.0)  # line 10
PrivateBoostingClassifier(detla=1e-6)  # line 11
"""


@pytest.mark.parametrize("name", KINDS)
def test_typed_parameters_are_those_of_the_constructor(name):
    """Our names and, of those, the other libraries' spellings; nothing else."""
    taken = set(inspect.signature(getattr(hedgerow, name)).parameters)
    spellings = {alias for alias, ours in ALIASES.items() if ours in taken}
    if name == "BoostedTreesClassifier":  # it takes objectives that say what it does anyway, and has no loss
        spellings |= {"objective"}
    assert set(KINDS[name].__annotations__) == taken | spellings
    assert spellings >= _ROUNDS_NAMES or "n_iter_no_change" not in taken


@pytest.mark.long
def test_mypy_marks_a_parameter_that_does_not_exist(tmp_path):
    """`max_dept` is an error of the type checker, and the spellings of XGBoost are not."""
    (tmp_path / "snippet.py").write_text(SNIPPET)
    here = Path(hedgerow.__file__).parents[1]
    program = ["-m", "mypy", "--config-file", str(here.parent / "pyproject.toml"), str(tmp_path / "snippet.py")]
    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        check=False,
        cwd=here.parent,
        env={"MYPYPATH": str(here)},
    )
    errors = [line for line in done.stdout.splitlines() if "snippet.py" in line and ": error:" in line]
    assert [int(line.split("snippet.py:")[1].split(":")[0]) for line in errors] == [8, 9, 10, 11], done.stdout
    assert 'did you mean "max_depth"?' in errors[0]
