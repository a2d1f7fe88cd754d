"""What no file of the package may do: unpickle, evaluate text, share a random state, or compile in its own way.

Each rule is a function from a syntax tree to the lines that break it. The rules are held over all of src/, and each is
shown to find what it is for, so none can pass by being blind.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

import pytest

Rule = Callable[[ast.Module], Iterator[int]]

PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"}
PICKLING_CALLS = {"read_pickle", "to_pickle"}
EVALUATORS = {"eval", "exec", "compile"}
OWN_GENERATORS = {
    "numpy.random": {"default_rng", "Generator", "BitGenerator", "SeedSequence", "PCG64", "Philox", "RandomState"},
    "random": {"Random", "SystemRandom"},
}
"""What makes a generator of one's own, or is the type of one that a caller may pass in."""
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "generated_jit", "cfunc", "stencil", "jitclass"}


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, walked once for all rules."""
    return tuple(ast.walk(tree))


@cache
def full_names(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """(line, dotted name with import aliases resolved) of every import and every use of an imported name."""
    return tuple(_full_names(tree))


def _full_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    aliases: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in nodes(tree):
        first, *rest = dotted(node)
        if first in aliases:
            yield node.lineno, ".".join([aliases[first], *rest])


def dotted(node: ast.AST) -> list[str]:
    """The parts of a.b.c; [""] for anything that is not such a chain, as a().b."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := dotted(node.value)) != [""]:
        return [*parts, node.attr]
    return [""]


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call in the tree."""
    return (node for node in nodes(tree) if isinstance(node, ast.Call))


def pickles(tree: ast.Module) -> Iterator[int]:
    """Anything that can run code while it reads data: pickle and its relatives, also through numpy and pandas."""
    yield from (line for line, name in full_names(tree) if name.split(".")[0] in PICKLERS)
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in PICKLING_CALLS:
            yield node.lineno
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.value.lineno


def evaluates(tree: ast.Module) -> Iterator[int]:
    """Text turned into running code."""
    for call in calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id in EVALUATORS:
            yield call.lineno
    yield from (
        line for line, name in full_names(tree) if name in {f"builtins.{evaluator}" for evaluator in EVALUATORS}
    )


def shares_random_state(tree: ast.Module) -> Iterator[int]:
    """The process-wide generators of numpy and of the standard library, which any other code can move.

    scikit-learn's `check_random_state(None)` hands out numpy's, so it counts too.
    """
    for line, name in full_names(tree):
        for module, own in OWN_GENERATORS.items():
            if name.startswith(f"{module}.") and name.removeprefix(f"{module}.").split(".")[0] not in own:
                yield line
        if name.startswith("sklearn.utils") and name.endswith(".check_random_state"):
            yield line


def relaxes_floats(tree: ast.Module) -> Iterator[int]:
    """`fastmath` in any spelling: sums could then depend on the machine."""
    for node in nodes(tree):
        if isinstance(node, ast.keyword) and node.arg == "fastmath":
            yield node.value.lineno
        if isinstance(node, ast.Constant) and node.value in {"fastmath", "NUMBA_FASTMATH"}:
            yield node.lineno


def uses_numba_threads(tree: ast.Module) -> Iterator[int]:
    """numba's own thread layers, which abort or hang when entered from two threads or after a fork."""
    for line, name in full_names(tree):
        if name in {"numba.prange", "numba.set_num_threads", "numba.threading_layer"}:
            yield line
    for call in calls(tree):
        parallel = any(keyword.arg == "parallel" for keyword in call.keywords)
        if parallel and ast.unparse(call.func).split(".")[-1] in COMPILERS:
            yield call.lineno


def compiles(tree: ast.Module) -> Iterator[int]:
    """A numba compiler used directly; kernels take their options from the decorators of compiling.py."""
    for line, name in full_names(tree):
        if name.split(".")[0] == "numba" and name.split(".")[-1] in COMPILERS:
            yield line


RULES: list[tuple[Rule, frozenset[str]]] = [
    (pickles, frozenset()),
    (evaluates, frozenset({"src/hedgerow/transport/ranges.py"})),
    (shares_random_state, frozenset()),
    (relaxes_floats, frozenset()),
    (uses_numba_threads, frozenset()),
    (compiles, frozenset({"src/hedgerow/compiling.py"})),
]
"""Each rule with the files that may break it."""


@pytest.mark.parametrize(("rule", "except_in"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_package_keeps_the_rule(rule, except_in, package):
    """No file of the package breaks the rule."""
    broken = [
        f"{source.path}:{line}"
        for source in package
        if source.path not in except_in
        for line in sorted(set(rule(source.tree)))
    ]
    assert broken == []


def test_every_exception_is_needed(package):
    """A file that may break a rule does, once: compiling.py compiles, and ranges.py runs what it wrote."""
    sources = {source.path: source.tree for source in package}
    for rule, except_in in RULES:
        assert all(list(rule(sources[path])) != [] for path in except_in)
    (_,) = set(evaluates(sources["src/hedgerow/transport/ranges.py"]))


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (pickles, "import pickle"),
        (pickles, "from joblib import dump"),
        (pickles, "def f():\n    import cloudpickle as c"),
        (pickles, "np.load(path, allow_pickle=True)"),
        (pickles, "pd.read_pickle(path)"),
        (evaluates, "eval('1')"),
        (evaluates, "exec(text)"),
        (evaluates, "from builtins import eval as e"),
        (shares_random_state, "import numpy as np\nnp.random.seed(1)"),
        (shares_random_state, "import numpy\nnumpy.random.rand(3)"),
        (shares_random_state, "from numpy.random import shuffle"),
        (shares_random_state, "from numpy import random as r\nr.normal()"),
        (shares_random_state, "import numpy.random as r\nr.choice(3)"),
        (shares_random_state, "import random\nrandom.random()"),
        (shares_random_state, "from random import shuffle"),
        (shares_random_state, "from sklearn.utils import check_random_state"),
        (relaxes_floats, "numba.njit(fastmath=True)(f)"),
        (relaxes_floats, "OPTIONS = {'fastmath': True}"),
        (uses_numba_threads, "from numba import prange"),
        (uses_numba_threads, "import numba\nnumba.njit(parallel=True)"),
        (compiles, "import numba\n@numba.njit\ndef f(): ..."),
        (compiles, "from numba import njit"),
        (compiles, "import numba as nb\nnb.vectorize(f)"),
        (compiles, "from numba.experimental import jitclass"),
    ],
)
def test_a_breach_is_found(rule, code):
    """Each way of breaking a rule is found."""
    assert list(rule(ast.parse(code))) != []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (pickles, "import json\nnp.load(path, allow_pickle=False)"),
        (evaluates, "import re\nre.compile('a')\nframe.eval('a')\nliteral_eval(text)"),
        (shares_random_state, "import numpy as np\nrng = np.random.default_rng(seed)\nrng.random(3)"),
        (shares_random_state, "import numpy as np\ndef f(rng: np.random.Generator): rng.shuffle(x)"),
        (shares_random_state, "import random\nrandom.Random(3).random()"),
        (shares_random_state, "def f(random): return random.random()"),
        (relaxes_floats, "numba.njit(cache=True)(f)"),
        (uses_numba_threads, "import numba\nnumba.njit(nogil=True)\nrun(parallel=True)"),
        (compiles, "import numba\nfrom hedgerow.compiling import kernel\nnumba.types.int64"),
    ],
)
def test_what_is_permitted_is_left_alone(rule, code):
    """Near neighbours of a breach are not reported."""
    assert list(rule(ast.parse(code))) == []


# --- what kernels give back to Python --------------------------------------------------------------------------------


def kernels_that_make_named_tuples(trees: list[ast.Module]) -> list[str]:
    """Kernels that Python may call and whose result is a NamedTuple of the package."""
    classes = [node for tree in trees for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    named = {each.name for each in classes if "NamedTuple" in map(ast.unparse, each.bases)}
    functions = [node for tree in trees for node in nodes(tree) if isinstance(node, ast.FunctionDef)]
    kernels = [each for each in functions if "kernel" in map(ast.unparse, each.decorator_list)]
    return [each.name for each in kernels if each.returns is not None and ast.unparse(each.returns) in named]


def test_no_kernel_gives_back_a_named_tuple(package):
    """numba would call Python to make it, and Ctrl-C in that moment ends in a segmentation fault."""
    assert kernels_that_make_named_tuples([source.tree for source in package]) == []
    bad = ast.parse("class Pair(NamedTuple):\n    a: int\n\n@kernel\ndef pair() -> Pair:\n    return Pair(1)\n")
    assert kernels_that_make_named_tuples([bad]) == ["pair"]
