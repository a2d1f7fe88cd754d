"""What the repository's texts promise: two commands, links that lead somewhere, no trace of any one machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from experiments.central_dp.page import as_html

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.~>)}-])/(?:work|root|opt|home/[\w.-]+|Users/[\w.-]+)/")
REGISTRY = re.compile(
    r"\b(?:pypi|pythonhosted|anaconda|conda-forge|jfrog|artifactory|devpi|nexus)\.[a-z]{2,}\b"
    r"|--(?:extra-)?index[-_]url|--find[-_]links|PIP_(?:EXTRA_)?INDEX",
    re.IGNORECASE,
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)")
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+")


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    """The lines of a text in which the pattern occurs."""
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def dead_links(markdown: str, folder: Path) -> list[str]:
    """Relative links of a page that lead to no file."""
    return [target for target in LINK.findall(markdown) if not (folder / target).exists()]


def not_pins(constraints: str) -> list[str]:
    """Lines that are neither a comment nor name==version."""
    lines = (line.split("#")[0].strip() for line in constraints.splitlines())
    return [line for line in lines if line and not PIN.fullmatch(line)]


def test_readme_has_the_two_commands(texts):
    """The README shows both commands, each on a line of its own, and the Makefile has both targets."""
    for command in ("make demo", "make test"):
        assert command in texts["README.md"].splitlines()
        assert re.search(rf"^{command.removeprefix('make ')}:", texts["Makefile"], re.MULTILINE)


def test_no_machine_paths(texts):
    """No text names a folder of the machine it was written on."""
    assert {path: lines for path, text in texts.items() if (lines := found(MACHINE_PATH, text))} == {}


def test_no_registry_hosts(texts):
    """No text says where packages come from: that is each installation's own affair."""
    assert {path: lines for path, text in texts.items() if (lines := found(REGISTRY, text))} == {}


def test_links_lead_to_files(texts, root):
    """Every relative link of every page leads to a file of the repository."""
    pages = {path: text for path, text in texts.items() if path.endswith(".md")}
    assert {path: dead for path, text in pages.items() if (dead := dead_links(text, (root / path).parent))} == {}


def test_constraints_are_names_and_versions(texts):
    """The constraints file has nothing but name==version, and pins every direct dependency."""
    assert not_pins(texts["constraints.txt"]) == []
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    wanted = [
        *project["dependencies"],
        *(need for extra in project["optional-dependencies"].values() for need in extra),
    ]
    names = {re.match(r"[\w.-]+", need).group().lower() for need in wanted} - {"hedgerow"}
    pinned = {line.split("==")[0].lower() for line in texts["constraints.txt"].splitlines() if "==" in line}
    assert names <= pinned


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATH, "cd /" + "work/main"),
        (MACHINE_PATH, "see '/" + "home/alice/data'"),
        (REGISTRY, "pip install --index" + "-url x"),
        (REGISTRY, "https://py" + "pi.org/simple"),
    ],
)
def test_a_trace_is_found(pattern, line):
    """Paths and hosts of one machine are found."""
    assert found(pattern, line) == [line]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATH, "../shared/work/x docs/work/y ~/work/z"),
        (MACHINE_PATH, "the root/leaf"),
        (REGISTRY, "pip install hedgerow"),
    ],
)
def test_no_trace_where_there_is_none(pattern, line):
    """Relative paths and plain words are not reported."""
    assert found(pattern, line) == []


def test_checkers_of_links_and_pins_can_fail(tmp_path):
    """A dead link, an address and an open range are found; a living link, a pin and a comment are not."""
    (tmp_path / "here.md").touch()
    assert dead_links("[a](here.md#top) [b](gone.md) [c](https://example.org)", tmp_path) == ["gone.md"]
    assert not_pins("# words\nnumpy==2.1\nscipy>=1\nx @ file:y\n") == ["scipy>=1", "x @ file:y"]


def missing_files(page: str, names: set[str]) -> list[str]:
    """Files that a page names by their path from the package on, and that are not there."""
    return [name for name in re.findall(r"`((?:\w+/)+\w+\.py)`", page) if name not in names]


def test_the_page_on_architecture_names_files_that_exist(texts):
    """A file that was moved or renamed is found, so that the page stays true."""
    names = {path.removeprefix("src/hedgerow/") for path in texts}
    assert missing_files(texts["docs/architecture.md"], names) == []
    assert missing_files("`engine/rows.py`, `engine/gone.py`, `tests/policy/test_islands.py`", names) == [
        "engine/gone.py"
    ]


RESULTS = [path.stem for path in (ROOT / "docs" / "results").glob("*.md") if path.stem != "README"]


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_results_are_in_the_site_and_in_one_file(name, texts):
    """Each page of results stands in the menu and in the index of results, and the page in one file is the same."""
    page = texts[f"docs/results/{name}.md"]
    assert f"results/{name}.md" in texts["mkdocs.yml"]
    assert f"]({name}.md)" in texts["docs/results/README.md"]
    assert (ROOT / "docs" / "results" / f"{name}.html").read_text(encoding="utf-8") == as_html(page)
