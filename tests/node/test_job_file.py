"""job.toml of a run between parties: what it may say, and each refusal with its line."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import Schema
from hedgerow.crypto.identifiers import IdRule
from hedgerow.errors import HedgerowError, JobError
from hedgerow.node.job_file import FORMAT, JobFile, Matching, Seat, json_schema, read_job_file
from hedgerow.node.settings import Key

START = """\
protocol = "vertical.secret_shared"
[parties.bank]
dataset = "customers"
[parties.shop]
"""
WHOLE = """\
protocol = "vertical.bucket_rr"
task = "regression"
expires_days = 3
[parties.shop]
role = "feature holder"
dataset = "loyalty cards"
[parties.bank]
role = "label holder"
dataset = "customers"
[matching]
rule = {kind = "text", case = "fold", unicode_form = "NFKC", strip = false}
duplicates = "first"
minimum = 50
[options]
n_estimators = 20
epsilon = inf
max_depth = "none"
edges.basket = [-1.0, 0, 1.5]
debias = true
"""


def parsed(tmp_path: Path, text: str) -> JobFile:
    """The job file of this text."""
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    return read_job_file(path)


def test_a_file_that_says_everything(tmp_path):
    """Parties are in the order of the file; options are as written, but for "none", which TOML lacks."""
    job = parsed(tmp_path, WHOLE)
    rule = IdRule(case="fold", unicode_form="NFKC", strip=False)
    assert job == JobFile(
        path=tmp_path / "job.toml",
        protocol="vertical.bucket_rr",
        parties={"shop": Seat("feature holder", "loyalty cards"), "bank": Seat("label holder", "customers")},
        task="regression",
        matching=Matching(rule.to_dict(), "first", 50),
        options={
            "n_estimators": 20,
            "epsilon": math.inf,
            "max_depth": None,
            "edges": {"basket": [-1.0, 0, 1.5]},
            "debias": True,
        },
        expires_days=3.0,
    )
    assert list(job.parties) == ["shop", "bank"]
    assert IdRule.from_dict(job.matching.rule) == rule


def test_a_file_that_says_as_little_as_possible(tmp_path):
    """A protocol and two parties; the rest is as in the dataclasses, and a rule is completed."""
    job = parsed(tmp_path, START)
    seats = {"bank": Seat(dataset="customers"), "shop": Seat()}
    assert job == JobFile(tmp_path / "job.toml", "vertical.secret_shared", seats)
    assert parsed(tmp_path, f"{START}[matching]").matching == Matching()
    assert parsed(tmp_path, f'{START}[matching.rule]\nkind = "integer"').matching.rule == IdRule("integer").to_dict()


def test_the_schema_is_loaded(tmp_path):
    """From a path that starts at the folder of the file."""
    schema = Schema.from_public(bounds={"age": (0, 120)}, classes=[0, 1])
    (tmp_path / "public").mkdir()
    schema.save(tmp_path / "public" / "schema.json")
    assert parsed(tmp_path, f'{START}[options]\nschema = "public/schema.json"').options["schema"] == schema


REFUSED = {
    'protocl = "x"': (5, "unknown key 'protocl' in [parties.shop]"),
    "[party.bank]": (5, "unknown section or key 'party'; did you mean 'parties'?"),
    "[option]": (5, "unknown section or key 'option'; did you mean 'options'?"),
    'role = "lable holder"': (5, "role: there is no 'lable holder'; did you mean 'label holder'?"),
    "dataset = 3": (5, "dataset must be text in quotes, got 3"),
    "[parties.'a b']": (5, "a party's name is 1 to 63 letters"),
    "[parties.Bank]": (2, "differ only in capitals"),
    "[matching]\nminimum = 0": (6, "minimum must be a whole number of at least 1, got 0"),
    '[matching]\nduplicates = "last"': (6, "duplicates: there is no 'last'"),
    "[matching]\nduplicate = 1": (6, "unknown key 'duplicate' in [matching]; did you mean 'duplicates'?"),
    '[matching]\nrule = "text"': (6, "rule must be a section, written [matching.rule], got text"),
    '[matching.rule]\nkind = "txt"': (6, "kind: there is no 'txt'; did you mean 'text'?"),
    '[matching.rule]\nstrip = "yes"': (6, "strip must be true or false, got 'yes'"),
    '[matching.rule]\nkind = "integer"\ncase = "fold"': (5, "for ids of kind 'text' only"),
    '[options]\nschema = "none.json"': (6, "none.json: the schema cannot be read"),
    "[options]\nschema = 3": (6, "schema must be the path of a file, in quotes"),
    "[options]\nseed = 1\nday = 2020-01-01": (7, "day must not hold a date or a time; write it as text, in quotes"),
    "[options]\ndays = [{a = [07:32:00]}]": (6, "days must not hold a date or a time"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_has_a_line_and_a_way_out(tmp_path, text):
    """One sentence: file, line, key, value, and the nearest name or what it must be."""
    line, sentence = REFUSED[text]
    with pytest.raises(JobError) as caught:
        parsed(tmp_path, START + text)
    assert str(caught.value).startswith(f"{tmp_path / 'job.toml'}, line {line}: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "job.toml: protocol is missing at the top: how the model is trained"),
        (
            START.replace("secret_shared", "secret_share"),
            "line 1: protocol: there is no 'vertical.secret_share'; did you mean",
        ),
        ('protocol = "vertical.secret_shared"', "job.toml: parties is missing at the top: who takes part"),
        ('protocol = "vertical.secret_shared"\n[parties.bank]', "line 2: a run needs two parties or more"),
        (START.replace("\n", '\ntask = "regresion"\n', 1), "line 2: task: there is no 'regresion'; did you mean"),
        (START.replace("\n", "\nexpires_days = -1\n", 1), "line 2: expires_days must be a number of at least 0"),
        (START.replace("\n", "\nexpires_days = inf\n", 1), "line 2: expires_days must be a number of at least 0"),
        ("parties = 3\n" + START.split("\n", maxsplit=1)[0], "line 1: parties must be a section, written [parties]"),
    ],
)
def test_what_a_job_needs(tmp_path, text, sentence):
    """A protocol that there is, and two parties."""
    with pytest.raises(JobError, match=re.escape(sentence)):
        parsed(tmp_path, text)


def test_defaults_are_those_of_the_dataclasses():
    """What the reference and the editor say about a key that is left out is what happens."""
    owners = {
        (): JobFile,
        ("parties", "<party>"): Seat,
        ("matching",): Matching,
        ("matching", "rule"): IdRule,
    }
    for place, table in FORMAT.sections():
        for name, entry in table.entries.items():
            if isinstance(entry, Key) and not entry.needed:
                assert owners[place].__dataclass_fields__[name].default == entry.default, name


def told(attempt, path) -> str:
    """What a HedgerowError says; the path itself if there is none."""
    try:
        attempt(path)
    except HedgerowError as problem:
        return str(problem)
    return str(path)


@given(st.text(max_size=100) | st.binary(max_size=100) | st.text(max_size=20).map(START.__add__))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    """With a HedgerowError and no other exception."""
    path = tmp_path_factory.mktemp("any") / "job.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert str(path) in told(read_job_file, path)


VALUES = (
    "3",
    "-1",
    "inf",
    "nan",
    "true",
    '""',
    '"a"',
    "[]",
    '["a"]',
    "{}",
    "{a = 1}",
    "[[1]]",
    "2020-01-01",
    "1" * 400,
)


@given(st.integers(0, len(WHOLE.splitlines()) - 1), st.sampled_from(VALUES) | st.text(max_size=8))
def test_any_value_in_any_place_is_read_or_refused(tmp_path_factory, line, value):
    """A valid file with one value exchanged: a job that the JSON Schema takes too, or a HedgerowError."""
    lines = WHOLE.splitlines()
    lines[line] = lines[line].split("=")[0] + f"= {value}" if "=" in lines[line] else value
    path = tmp_path_factory.mktemp("any") / "job.toml"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    said = told(read_job_file, path)
    assert str(path) in said
    if said == str(path):
        jsonschema.Draft202012Validator(json_schema()).validate(tomllib.loads(path.read_text(encoding="utf-8")))
