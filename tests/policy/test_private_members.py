"""What begins with an underscore is used by those who made it: its own class or, for functions, its own module.

Offences, read from the syntax tree: `x._name` where x is neither `self` nor `cls` nor `super()`, nor the class around
it or one that it extends in the same module, and the class around it does not define `_name` itself (then x is taken to
be another object of that class); `self._name` where only a base class in another module defines `_name`; and
`from module import _name`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

OWN = {"self", "cls", "super()", "type(self)"}
PUBLIC_ALL_THE_SAME = {
    "_asdict": "of a NamedTuple, documented",
    "_fields": "of a NamedTuple, documented",
    "_make": "of a NamedTuple, documented",
    "_replace": "of a NamedTuple, documented",
    "_exit": "os._exit, documented",
    "_version": "hedgerow._version, a module",
}
NO_OTHER_WAY = {
    "compiling.py:keep_compiled dispatcher._cache": "numba has no public way to keep a kernel beside its source",
    **{
        f"estimators/{where}": "a public name would be one of the estimator's, which are its users'"
        for where in (
            "private.py:PrivateEstimator self._check_names",
            "private.py:PrivateEstimator self._seed",
        )
    },
}
"""Uses of private members -> why there is no other way."""


def private(name: str) -> bool:
    """One underscore in front, and not a name that is public in spite of it."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in PUBLIC_ALL_THE_SAME


class Class(NamedTuple):
    """A class of the package: its module, its bases as (module, name), and the private names it defines."""

    module: str
    node: ast.ClassDef
    bases: tuple[tuple[str, str], ...]
    made: frozenset[str]
    assigned: frozenset[str]


def module_of(path: str) -> str:
    """src/hedgerow/engine/rows.py -> hedgerow.engine.rows."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def defined(node: ast.ClassDef) -> tuple[frozenset[str], frozenset[str]]:
    """Private names that a class makes in its body (methods, attributes, slots), and those it assigns to `self`."""
    made: set[str] = set()
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(part.name)
        elif isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            made.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            if "__slots__" in made and part.value is not None:
                made.update(each.value for each in ast.walk(part.value) if isinstance(each, ast.Constant))
    assigned = {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) in OWN
    }
    return frozenset(made), frozenset(assigned)


def classes(sources: Iterable[tuple[str, ast.Module]]) -> dict[tuple[str, str], Class]:
    """All classes of the package, by module and name, with bases that are found through imports."""
    known = {}
    for path, tree in sources:
        module = module_of(path)
        origin = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(base).split("[")[0] for base in node.bases]
                bases = []
                for name in names:
                    first, _, rest = name.partition(".")
                    home, real = origin.get(first, (module, first))
                    bases.append((f"{home}.{real}", rest) if rest else (home, real))
                known[module, node.name] = Class(module, node, tuple(bases), *defined(node))
    return known


def ancestors(one: Class, known: dict[tuple[str, str], Class]) -> list[Class]:
    """The classes of the package that a class extends, however far up."""
    found: dict[tuple[str, str], Class] = {}
    ahead = list(one.bases)
    while ahead:
        name = ahead.pop()
        if name in known and name not in found:
            found[name] = known[name]
            ahead += known[name].bases
    return list(found.values())


def reached_into(one: Class, known: dict[tuple[str, str], Class]) -> set[str]:
    """Private names that a class uses on itself and that a base class in another module defines.

    A method that it defines anew is its own; state that both assign is shared behind the base's back.
    """
    above = ancestors(one, known)
    here = [one, *(base for base in above if base.module == one.module)]
    there = {name for base in above if base.module != one.module for name in base.made | base.assigned}
    own = {name for each in here for name in each.made} | ({name for each in here for name in each.assigned} - there)
    used = {
        part.attr
        for part in ast.walk(one.node)
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) in OWN and private(part.attr)
    }
    return (used & there) - own


def others(tree: ast.AST, local: set[str], family: frozenset[str] = frozenset(), inside: str = "") -> Iterator[str]:
    """`place x._name` for each private member of something else.

    `local` are the classes of the module; `family` holds the names of the classes around a place, of those local ones
    that they extend, and the private names they define.
    """
    for node in ast.iter_child_nodes(tree):
        around, place = family, inside
        if isinstance(node, ast.ClassDef):
            around = family.union({node.name}, local.intersection(map(ast.unparse, node.bases)), *defined(node))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{inside}.{node.name}" if inside else node.name
        if isinstance(node, ast.Attribute) and private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in OWN | around and node.attr not in around:
                yield f"{place or '<module>'} {owner.splitlines()[0]}.{node.attr}"
        if isinstance(node, ast.ImportFrom):
            yield from (f"{place or '<module>'} import {alias.name}" for alias in node.names if private(alias.name))
        yield from others(node, local, around, place)


def trespasses(sources: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Every use of a private member by somebody else."""
    sources = list(sources)
    known = classes(sources)
    by_module = defaultdict(list)
    for one in known.values():
        by_module[one.module].append(one)
    found = set()
    for path, tree in sources:
        short = path.removeprefix("src/hedgerow/")
        mine = by_module[module_of(path)]
        found.update(f"{short}:{what}" for what in others(tree, {one.node.name for one in mine}))
        for one in mine:
            found.update(f"{short}:{one.node.name} self.{name}" for name in reached_into(one, known))
    return sorted(found)


def test_private_members_stay_private(package, ratchet):
    """Nothing in src/ uses what another class or module keeps for itself."""
    found = set(trespasses((source.path, source.tree) for source in package))
    assert sorted(NO_OTHER_WAY.keys() - found) == [], "no longer needed in NO_OTHER_WAY"
    ratchet.hold_list("private members", found - NO_OTHER_WAY.keys())


BASE = """
class Base:
    __slots__ = ("_state", "_slot")
    shared = 1
    def __init__(self): self._state = 1
    def _step(self): return self._state
"""


@pytest.mark.parametrize(
    ("code", "offence"),
    [
        ("def f(x): return x._state", "f x._state"),
        ("class C:\n    def f(self): return self.inner._state", "C.f self.inner._state"),
        ("class C:\n    def f(self, x): x._state = 1", "C.f x._state"),
        ("import m\nm._go()", "<module> m._go"),
        ("from m import _go", "<module> import _go"),
        ("class A:\n    _x = 1\nclass C:\n    def f(self): return A._x", "C.f A._x"),
        ("from hedgerow.base import Base\nclass C(Base):\n    def f(self): return self._state", "C self._state"),
        ("from hedgerow.base import Base\nclass C(Base):\n    def f(self): Base._step(self)", "C.f Base._step"),
        ("from hedgerow.base import Base\nclass C(Base):\n    def f(self): return self._slot", "C self._slot"),
        ("from hedgerow.base import Base\nclass C(Base):\n    def f(self): self._state = 2", "C self._state"),
        ("from hedgerow.base import Base as B\nclass C(B[int]):\n    def f(self): self._step()", "C self._step"),
        ("from hedgerow import base\nclass C(base.Base):\n    def f(self): self._step()", "C self._step"),
        (
            "from hedgerow.base import Base\nclass C(Base): ...\nclass D(C):\n    def f(self): self._step()",
            "D self._step",
        ),
    ],
)
def test_a_trespass_is_found(code, offence):
    """On another object, in a module, in an import, and in a base class elsewhere, however far up and however named."""
    sources = [("src/hedgerow/base.py", ast.parse(BASE)), ("src/hedgerow/other.py", ast.parse(code))]
    assert trespasses(sources) == [f"other.py:{offence}"]


@pytest.mark.parametrize(
    "code",
    [
        "class C:\n    def f(self): self._x = 1\n    def g(self): return self._x",
        "class C:\n    def f(self): self._x = 1\n    def __eq__(self, other): return self._x == other._x",
        "class C:\n    _x = 1\n    def f(self): return C._x + type(self)._x",
        "class A:\n    def f(self): self._x = 1\nclass C(A):\n    def g(self): return self._x + A._x",
        "from hedgerow.base import Base\nclass C(Base):\n    def f(self): return self.shared",
        "from hedgerow.base import Base\nclass C(Base):\n    def _step(self): return 2\n    def f(self): self._step()",
        "from elsewhere import Base\nclass C(Base):\n    def f(self): return self._state",
        "point._replace(x=1)",
        "x.__dict__",
        "from m import go as _go\n_go()",
    ],
)
def test_what_is_ones_own_is_left_alone(code):
    """Also on another object of the class, in a base of the same module, made anew, and public by documentation."""
    sources = [("src/hedgerow/base.py", ast.parse(BASE)), ("src/hedgerow/other.py", ast.parse(code))]
    assert trespasses(sources) == []
