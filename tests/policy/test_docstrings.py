"""Every test says in one sentence what must hold."""

from __future__ import annotations

import ast

TESTS = (ast.FunctionDef, ast.AsyncFunctionDef)


def silent_tests(tree: ast.Module) -> list[str]:
    """Names of the test functions without a docstring."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, TESTS) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]


def test_every_test_has_a_docstring(python_files):
    """No test function lacks its sentence."""
    tests = [source for source in python_files if source.path.startswith("tests/")]
    assert len(tests) > 1
    assert {source.path: silent for source in tests if (silent := silent_tests(source.tree))} == {}


def test_a_silent_test_is_found():
    """A test without a docstring is found, also inside a class; helpers are not asked for one."""
    code = '''
def test_told():
    """It holds."""
def helper(): ...
def test_silent(): ...
class TestGroup:
    async def test_hidden(self): ...
'''
    assert silent_tests(ast.parse(code)) == ["test_silent", "test_hidden"]
