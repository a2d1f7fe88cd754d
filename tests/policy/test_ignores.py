"""Whoever switches a check off says why, on the same line."""

from __future__ import annotations

import io
import re
import tokenize

import pytest

EXPLAINED_NOQA = re.compile(r"# noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)* - \w.*")
EXPLAINED_TYPE_IGNORE = re.compile(r"# type: ignore\[[\w, -]+\] +(?:#|-) ?\w.*")
SWITCHES = ("noqa", "type: ignore", "ruff: noqa", "mypy: ignore")
LISTS = re.compile(r"^(?:ignore|\"[^\"]+\"|filterwarnings) = \[$")


def unexplained_in_code(text: str) -> list[str]:
    """Comments that switch off a check without naming it or without a reason."""
    if not any(switch in text for switch in SWITCHES):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    switches = [comment for comment in comments if comment.lstrip("# ").startswith(SWITCHES)]
    return [
        comment for comment in switches if not (EXPLAINED_NOQA.match(comment) or EXPLAINED_TYPE_IGNORE.match(comment))
    ]


def unexplained_in_settings(toml: str) -> list[str]:
    """Entries of the lists of ignores (ruff) and of tolerated warnings (pytest) with no comment on or above them."""
    bad: list[str] = []
    inside, above = False, False
    for line in (raw.strip() for raw in toml.splitlines()):
        if LISTS.match(line):
            inside, above = True, False
        elif line.startswith("]"):
            inside = False
        elif inside and line.startswith("#"):
            above = True
        elif inside and line:
            if not above and not re.search(r"#\s*\S", line) and line != '"error",':
                bad.append(line)
            above = False
    return bad


def test_code_explains_its_exceptions(python_files):
    """Every noqa and type: ignore names its rule and gives a reason."""
    assert {source.path: bad for source in python_files if (bad := unexplained_in_code(source.text))} == {}


def test_settings_explain_their_exceptions(texts):
    """Every ignored rule and every tolerated warning in pyproject.toml carries a comment."""
    assert unexplained_in_settings(texts["pyproject.toml"]) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: E501",
        "# noqa: E501 -",
        "# noqa because",
        "# type: ignore",
        "# type: ignore[misc]",
        "# ruff: noqa",
        "# mypy: ignore-errors",
    ],
)
def test_an_unexplained_exception_is_found(comment):
    """A switch without a rule or without a reason is found."""
    assert unexplained_in_code(f"x = 1  {comment}\n") == [comment]


@pytest.mark.parametrize(
    "comment",
    ["# noqa: E501 - a table", "# noqa: E501, PLR0912 - a table of cases", "# type: ignore[misc]  # why"],
)
def test_an_explained_exception_is_left_alone(comment):
    """A switch with rule and reason passes."""
    assert unexplained_in_code(f"x = 1  {comment}\n") == []


def test_an_unexplained_setting_is_found():
    """An entry of an ignore list without a comment on its line or on the line above is found."""
    toml = """
ignore = [
    "A",  # why
    "B",
    # why
    "C",
    "D",
]
"tests/**" = [
    "E",
]
filterwarnings = [
    "error",
    "ignore:x",
]
"""
    assert unexplained_in_settings(toml) == ['"B",', '"D",', '"E",', '"ignore:x",']
