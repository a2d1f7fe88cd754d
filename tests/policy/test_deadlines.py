"""No property test fails because a machine is busy: hypothesis times no example."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hypothesis import settings


def timed(tree: ast.Module) -> Iterator[int]:
    """Lines on which hypothesis is given a deadline, or a profile is registered that keeps its default of 200 ms."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).removeprefix("hypothesis.")
        given = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "deadline"]
        if called == "settings" and given not in ([], ["None"]):
            yield node.lineno
        if called == "settings.register_profile" and given != ["None"]:
            yield node.lineno


def test_no_test_has_a_deadline(python_files):
    """Neither a test nor a profile sets one, and the profile that this run uses has none."""
    tests = [source for source in python_files if source.path.startswith("tests/")]
    assert {source.path: lines for source in tests if (lines := list(timed(source.tree)))} == {}
    assert settings().deadline is None


def test_a_deadline_is_found():
    """In milliseconds, as a name, in a profile, and where a profile says nothing; None is not reported."""
    code = """
@settings(max_examples=4, deadline=500)
def a(): ...
patient = hypothesis.settings(deadline=LIMIT)
settings.register_profile("ci", derandomize=True)
settings.register_profile("quick", deadline=200)
settings.register_profile("steady", deadline=None)
party = Party(endpoint, deadline=20.0)
relaxed = settings(max_examples=3, deadline=None)
plain = settings(max_examples=3)
"""
    assert list(timed(ast.parse(code))) == [2, 4, 5, 6]
