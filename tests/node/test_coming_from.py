"""The page for those who come from other systems: every name that it says is ours is one."""

from __future__ import annotations

import re

import pytest

from hedgerow.estimators.inputs import UNSUPPORTED, own_names
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor
from hedgerow.node.job_file import FORMAT as JOB
from hedgerow.node.job_file import ROLES
from hedgerow.node.party_file import FORMAT as PARTY
from hedgerow.runtime.protocol import find, names, options_of, services
from twins.documented import DOCS
from twins.documented import options_of as options_of_verb

PAGE = (DOCS / "coming_from.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without their own headings."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"^\|.*(?:\n\|.*)*", section, flags=re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def keys_of(schema: dict) -> set[str]:
    """All keys and sections that a format knows, at any depth."""
    found = set()
    for key, value in schema.items():
        if key == "properties":
            found |= set(value)
        inner = value.values() if key == "properties" else [value]
        for each in inner:
            if isinstance(each, dict):
                found |= keys_of(each)
    return found


def is_ours(text: str) -> bool:
    """A verb, a parameter of trees, a protocol, an option of one, a file, or a key or section of a file."""
    if text.startswith("hedgerow "):
        return bool(options_of_verb(text.split()[1]))
    options = {each.name for name in (*names(), *services()) for each in options_of(find(name).job)}
    keys = keys_of(JOB.schema()) | keys_of(PARTY.schema())
    return text.strip("[]") in {
        *BoostedTreesRegressor().get_params(),
        *BoostedTreesClassifier().get_params(),
        *names(),
        *services(),
        *options,
        *keys,
        "party.toml",
        "job.toml",
    }


@pytest.mark.parametrize("heading", ["Parameters", "Which protocol"])
def test_what_is_said_to_be_ours_is_ours(heading):
    """Each name in the last columns exists under that name."""
    column = {"Parameters": -1, "Which protocol": 1}[heading]
    ours = [text for row in rows(heading) for text in CODE.findall(row[column])]
    assert len(ours) > 5
    assert [text for text in ours if not is_ours(text)] == []


def test_names_of_xgboost_are_accepted_as_they_are():
    """Each becomes the name that the table has in its last column."""
    for theirs, *_, ours in (row for row in rows("Parameters") if len(row) == 4):
        for name in CODE.findall(theirs):
            value = "reg:squarederror" if name == "objective" else 1
            kind = BoostedTreesClassifier if name == "scale_pos_weight" else BoostedTreesRegressor
            (accepted,) = own_names(kind, {name: value})
            assert accepted in CODE.findall(ours), name


def test_roles_are_those_of_the_job_file():
    """The page explains each of them, and no other."""
    explained = [row[0].partition(":")[0] for row in rows("Who is who") if ":" in row[0]]
    assert sorted(explained) == sorted(ROLES)


def test_what_is_missed_is_missing():
    """What the page says is not there is refused between parties."""
    assert "init_model" not in keys_of(JOB.schema())
    assert {"alpha", "grow_policy", "device", "sampling_method"} <= set(UNSUPPORTED)


def test_a_name_of_nobody_is_found():
    """The check can fail."""
    assert not is_ours("num_trees")
    assert not is_ours("hedgerow submit")
