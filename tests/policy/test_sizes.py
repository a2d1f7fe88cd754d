"""The package stays small, and its modules are neither crumbs nor, on the whole, too long to read."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

MOST_LINES = 50_000
FEWEST_LINES_OF_A_MODULE = 40
MEDIAN_MODULE = (130, 260)
GROWING = (
    "src/hedgerow/engine/blocks.py",
    "src/hedgerow/engine/edge_search.py",
    "src/hedgerow/engine/rows_ray/",
    "src/hedgerow/engine/scratch.py",
    "src/hedgerow/engine/streaming.py",
    "src/hedgerow/estimators/on_ray.py",
    "src/hedgerow/estimators/streamed.py",
    "src/hedgerow/protocols/central/gaussian/on_ray.py",
    "src/hedgerow/cli/",
    "src/hedgerow/node/",
    "src/hedgerow/report/",
    "src/hedgerow/plot/",
    "src/hedgerow/mlflow.py",
    "src/hedgerow/engine/exporting.py",
    "src/hedgerow/engine/export_onnx.py",
    "src/hedgerow/engine/export_treelite.py",
    "src/hedgerow/protocols/vertical/homomorphic/",
    "src/hedgerow/attacks/homomorphic/",
    "src/hedgerow/crypto/field25519.py",
    "src/hedgerow/crypto/edwards25519.py",
    "src/hedgerow/crypto/elgamal.py",
    "src/hedgerow/crypto/additive.py",
    "src/hedgerow/crypto/montgomery.py",
    "src/hedgerow/crypto/packed.py",
    "src/hedgerow/crypto/paillier.py",
    "src/hedgerow/crypto/okamoto_uchiyama.py",
)
"""New verbs and what stands behind them, pages for people, and a protocol that is being built; all else must not grow
along with them."""
MAY_BE_SMALL = ("__init__.py", "__main__.py", "_version.py")


def lengths(package) -> dict[str, int]:
    """Lines of each file of the package."""
    return {source.path: len(source.text.splitlines()) for source in package}


def modules(lines: Mapping[str, int]) -> dict[str, int]:
    """Lines of those files that are modules of their own right, and not a folder's front door."""
    return {path: count for path, count in lines.items() if path.rsplit("/", 1)[-1] not in MAY_BE_SMALL}


def small(lines: Mapping[str, int]) -> list[str]:
    """Modules with too few lines."""
    return [path for path, count in modules(lines).items() if count < FEWEST_LINES_OF_A_MODULE]


def test_the_package_stays_small(package, ratchet):
    """All lines of src/ together, docstrings included, but for the rooms that are being built."""
    lines = sum(count for path, count in lengths(package).items() if not path.startswith(GROWING))
    ratchet.hold_number("lines of src", lines, MOST_LINES)


def test_no_module_is_a_crumb(package, ratchet):
    """What fits on half a screen belongs to something."""
    ratchet.hold_list("small modules", small(lengths(package)))


def test_modules_have_a_readable_length(package):
    """One idea each: the median is between two and five screens."""
    shortest, longest = MEDIAN_MODULE
    assert shortest <= median(modules(lengths(package)).values()) <= longest


def test_a_crumb_is_found():
    """39 lines are too few for a module, and enough for a folder's front door."""
    lines = {"src/a.py": 39, "src/b.py": 40, "src/c/__init__.py": 3, "src/_version.py": 2}
    assert small(lines) == ["src/a.py"]
    assert modules(lines) == {"src/a.py": 39, "src/b.py": 40}
