"""No function only hands its arguments on to one other call: whoever reads it follows a hop and learns nothing.

A function offends if all it does, apart from its docstring, is one call with exactly its own parameters, in order and
unchanged; a method without parameters, if it calls another one of the same name. Left alone are special methods (the
language asks for them), decorated functions (the decorator does something), and those listed below with a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import hedgerow

TRANSPARENT = {"property", "staticmethod", "classmethod", "override", "abstractmethod"}
"""Decorators that leave a function what it is."""

FACES = {*hedgerow.__all__, "VerticalModel"}
"""What users call: their public methods may forward to where the work is done."""

INTERFACES = {
    "crypto/csprng.py:Keystream.start": "what the cipher calls reset_nonce",
    "crypto/identifiers.py:IdRule.to_dict": "public: a rule is written down by those who agreed on it",
    "engine/ensemble.py:Ensemble.to_dict": "every result of a role has one",
    "engine/table.py:Column.with_values": "a sparse column does more",
    "estimators/plain.py:BoostedTreesRegressor._labels_like_training": "the classifier's does more",
    "privacy/calibrate.py:PlannedBudget.spend": "a budget that is held at the end",
    "privacy/mechanisms.py:Coin.bits": "kept for equal coins",
    **{
        f"transport/endpoint.py:Wrapped.{name}": "an endpoint around an endpoint"
        for name in ("agree", "send", "recv", "drop", "abort", "close")
    },
    "transport/frames.py:cached": "functools.cache under a type that mypy accepts",
}
"""Methods that an interface asks for -> why this one has nothing to add."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(
    tree: ast.AST, inside: tuple[str, ...] = (), *, in_class: bool = False
) -> Iterator[tuple[str, Function, bool]]:
    """(qualified name, function, is it a method) of all functions of a module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield ".".join([*inside, node.name]), node, in_class
        named = isinstance(node, Function | ast.ClassDef)
        deeper = (*inside, node.name) if named else inside
        yield from functions(node, deeper, in_class=isinstance(node, ast.ClassDef) or (in_class and not named))


def only_call(function: Function) -> ast.Call | None:
    """The call that is all a function does."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):  # a docstring
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return None
    value = body[0].value
    if isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def parameters(function: Function) -> list[str]:
    """As they are handed on: `a`, `*rest`, `key=key`, `**more`."""
    args = function.args
    return [
        *(arg.arg for arg in (*args.posonlyargs, *args.args)),
        *([f"*{args.vararg.arg}"] if args.vararg else []),
        *(f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs),
        *([f"**{args.kwarg.arg}"] if args.kwarg else []),
    ]


def handed_on(call: ast.Call) -> list[str]:
    """What a call is given, in the same form; a keyword with its own name is the same as its place."""
    named = [
        f"{word.arg}={ast.unparse(word.value)}" if word.arg else f"**{ast.unparse(word.value)}"
        for word in call.keywords
    ]
    return [*(ast.unparse(arg) for arg in call.args), *named]


def same(own: list[str], given: list[str]) -> bool:
    """Are these the function's own parameters, whether by place or by name?"""
    bare = [
        [name.split("=")[0] for name in names if "=" not in name or len(set(name.split("="))) == 1]
        for names in (own, given)
    ]
    return len(bare[1]) == len(given) and bare[0] == bare[1]


def called_by_name(callee: ast.expr) -> bool:
    """Is it a dotted name (or `super().name`), so that nothing is computed to find it?"""
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    return isinstance(callee, ast.Name) or ast.unparse(callee) == "super()"


def forwards(function: Function, *, method: bool) -> bool:
    """Does it only forward?"""
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    call = only_call(function)
    if call is None or decorators - TRANSPARENT or (function.name.startswith("__") and function.name.endswith("__")):
        return False
    own, given = parameters(function), handed_on(call)
    bound = own[1:] if method and "staticmethod" not in decorators else own
    start = ast.unparse(call.func).split(".")[0]
    if not called_by_name(call.func) or start in bound:
        return False
    if not bound and not given:  # another name for it says something, the same name does not
        return method and ast.unparse(call.func).endswith(f".{function.name}")
    return same(bound, given) or (own != bound and same(own, given))


def forwarders(tree: ast.Module, path: str) -> list[str]:
    """The functions of a module that only forward, but for the public methods of faces."""
    return [
        f"{path}:{name}".removeprefix("src/hedgerow/")
        for name, function, method in functions(tree)
        if forwards(function, method=method) and not (name.split(".")[0] in FACES and not function.name.startswith("_"))
    ]


def test_no_function_only_forwards(package, ratchet):
    """Public faces and interfaces aside, a call is one hop from where it is written to where it is done."""
    found = {place for source in package for place in forwarders(source.tree, source.path)}
    assert sorted(INTERFACES.keys() - found) == [], "no longer needed in INTERFACES"
    ratchet.hold_list("only forward", found - INTERFACES.keys())


@pytest.mark.parametrize(
    "code",
    [
        "def f(a, b): return g(a, b)",
        "def f(a, *rest, key, **more):\n    'Words.'\n    return m.g(a, *rest, key=key, **more)",
        "def f(a, b): g(a, b=b)",
        "async def f(a): return await g(a)",
        "def f(a): yield from g(a)",
        "class C:\n    def f(self, a): return self.inner.f(a)",
        "class C:\n    def f(self, a): return super().f(a)",
        "class C:\n    def f(self): return g(self)",
        "class C:\n    def close(self): self.inner.close()",
        "class C:\n    @staticmethod\n    def f(a): return g(a)",
        "class Run:\n    def _f(self, a): return g(a)",
        "def f(a):\n    def inner(b): return g(b)\n    return inner(a + 1)",
    ],
)
def test_a_forwarder_is_found(code):
    """As a function, as a method, with or without words, with keywords, and inside another function."""
    assert len(forwarders(ast.parse(code), "src/hedgerow/x.py")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "def f(a, b): return g(b, a)",
        "def f(a): return g(a, 1)",
        "def f(a): return g(a + 1)",
        "def f(a): return g(b=a)",
        "def f(a): return a.g()",
        "def f(a): return g(a)(a)",
        "def f(a): return a",
        "def f(): return g()",
        "@cache\ndef f(a): return g(a)",
        "class C:\n    def __call__(self, a): return self.f(a)",
        "class C:\n    def stall(self): self.flowing.clear()",
        "class Run:\n    def f(self, a): return g(a)",
        "def f(a): ...",
    ],
)
def test_what_does_something_is_left_alone(code):
    """Another order, another argument, a decorator, a name that says more, the language's own, a public face."""
    assert forwarders(ast.parse(code), "src/hedgerow/x.py") == []
