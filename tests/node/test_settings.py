"""TOML with the line of every key, and what is said about a value that is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, JobError
from hedgerow.node.settings import (
    MOST_BYTES,
    NAMES,
    NUMBER,
    PATH,
    TEXT,
    lines_of,
    one_of,
    read_toml,
    real,
    shown,
    whole,
)

TEXT_OF_EVERY_SORT = '''\
# comment = "no key"
top = 1
"quoted key" = "a = 1 # [x]"
dotted.key = 2

[table] # [other]
list = [
  1, # one
  "two]",
  {in_list = 3, "more" = 4},
]
long = """
fake = 1
[fake]
\\""" ""\"""
after = \'\'\'
[fake]'\'\'\'\'
inline = {a = 1, b = {c = 2}, 'd' = [{e = 1}]}

[table.under."a.b"]
x = 1979-05-27T07:32:00Z
[[many]]
y = +inf
[[many]]
z = 1.5
[ spaced . header ]
"\\u0061\\"" = 0'''


def test_every_key_has_the_line_it_is_written_on():
    """Headers, dotted and quoted keys, inline tables; not what looks like a key inside strings and comments."""
    tomllib.loads(TEXT_OF_EVERY_SORT)
    assert lines_of(TEXT_OF_EVERY_SORT) == {
        ("top",): 2,
        ("quoted key",): 3,
        ("dotted",): 4,
        ("dotted", "key"): 4,
        ("table",): 6,
        ("table", "list"): 7,
        ("table", "list", "in_list"): 10,
        ("table", "list", "more"): 10,
        ("table", "long"): 12,
        ("table", "after"): 16,
        ("table", "inline"): 18,
        ("table", "inline", "a"): 18,
        ("table", "inline", "b"): 18,
        ("table", "inline", "b", "c"): 18,
        ("table", "inline", "d"): 18,
        ("table", "inline", "d", "e"): 18,
        ("table", "under"): 20,
        ("table", "under", "a.b"): 20,
        ("table", "under", "a.b", "x"): 21,
        ("many",): 22,
        ("many", "y"): 23,
        ("many", "z"): 25,
        ("spaced",): 26,
        ("spaced", "header"): 26,
        ("spaced", "header", 'a"'): 27,
    }


NAME = st.text("ab.\"'# =[]{}\\é", min_size=1, max_size=4)
SCALAR = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.text("ab\"'#=[]\\\n", max_size=8)
)


def toml(value):
    """A value as TOML writes it, on one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {toml(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str) and "'''" not in value and value[-1:] != "'":
        return f"'''\n{value}'''"  # several lines
    return json.dumps(value, ensure_ascii=False)


@given(
    st.dictionaries(
        NAME,
        st.dictionaries(
            NAME, st.recursive(SCALAR, lambda v: st.lists(v, max_size=2) | st.dictionaries(NAME, v, max_size=2))
        ),
        max_size=3,
    ),
    st.lists(st.integers(0, 2)),
)
def test_lines_are_right_in_whatever_is_written(tables, gaps):
    """Any names and values, with empty lines and comments between: each key is found on the line it was put on."""
    lines, expected = [], {}
    for table, entries in tables.items():
        expected[table,] = len(lines) + 1
        lines.append(f"[{json.dumps(table, ensure_ascii=False)}]")
        for key, value in entries.items():
            lines += ["", "# a = 'comment"][: gaps.pop() if gaps else 0]
            expected[table, key] = len(lines) + 1
            lines += f"{json.dumps(key, ensure_ascii=False)} = {toml(value)}".split("\n")
    text = "\n".join(lines)
    assert tomllib.loads(text) is not None
    found = lines_of(text)
    assert {place: line for place, line in found.items() if len(place) <= 2} == expected


@given(st.text() | st.text("ab=.\"'[]{}#\n, 1", max_size=60))
@example('a = """')
@example("[a.b")
def test_the_search_for_lines_takes_any_text(text):
    """Whatever tomllib accepts, it is searched without an error, and every table and key at the top has a line."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    assert {place[0] for place in lines_of(text)} == set(content)


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"a" + b".a" * 50_000 + b" = 1")  # tomllib takes a minute for it
@example(b"a = '" + b"a" * 1_000_000 + b"'")
@example(b"a = " + b"[" * 500 + b"]" * 500)
@example(b"a = " + b"{b=" * 90 + b"1" + b"}" * 90)
@example(b"a = 1e999")
@example(b"a = " + b"9" * 5000)
@example(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    """With a JobError that names the file, and nothing else."""
    path = tmp_path_factory.mktemp("any") / "a.toml"
    path.write_bytes(data)
    said = str(path)
    try:
        read_toml(path, "party file")
    except JobError as problem:
        said = str(problem)
    assert str(path) in said


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, "there is no such party file"),
        (lambda path: path.mkdir(), "the party file cannot be read"),
        (lambda path: path.write_bytes(b"a = '\xff'"), "the party file cannot be read: 'utf-8'"),
        (lambda path: path.write_text("a = 1\nb = \n"), "line 2"),
        (lambda path: path.write_text("a = 1\na = 2"), "Cannot overwrite a value"),
        (lambda path: path.write_text("a = " + "[" * 70 + "]" * 70), "the party file is nested too deeply"),
        (lambda path: path.write_text("#" * (MOST_BYTES + 1)), "the party file is larger than 1 MiB"),
        (lambda path: path.write_text("a = 1e400"), "the number 1e400... is too large; write inf"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, make, sentence):
    """Each in one sentence that names the file."""
    path = tmp_path / "party.toml"
    make(path)
    with pytest.raises(JobError, match=r"party\.toml: ") as caught:
        read_toml(path, "party file")
    assert sentence in str(caught.value)


def test_a_byte_order_mark_and_windows_lines_are_taken(tmp_path):
    """As editors on Windows write them; the lines are right all the same."""
    path = tmp_path / "party.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\n\r\n[b]\r\nc = 2\r\n")
    document = read_toml(path, "party file")
    assert document.content == {"a": 1, "b": {"c": 2}}
    assert document.where("b", "c") == f"{path}, line 4"
    assert document.where("b", "not there") == f"{path}, line 3"
    assert document.where("not there") == str(path)


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (TEXT, 3, "k must be text in quotes, got 3"),
        (TEXT, "", "k must be text in quotes, got ''"),
        (PATH, "a\0b", "k must be text in quotes"),
        (NAMES, "age", "k must be a list of column names, got 'age'"),
        (NAMES, [1], "k must be a list of column names, got [1]"),
        (NUMBER, True, "k must be a number, got True"),
        (NUMBER, 10**400, "k is too large for a number, got 1000"),
        (real(0), -0.5, "k must be a number of at least 0, or inf, got -0.5"),
        (real(0), float("nan"), "k must be a number of at least 0, or inf, got nan"),
        (real(0, below=1), 1, "k must be a number of at least 0 and below 1, got 1"),
        (whole(1), 2.0, "k must be a whole number of at least 1, got 2.0"),
        (whole(1), 0, "k must be a whole number of at least 1, got 0"),
        (whole(1), True, "k must be a whole number of at least 1, got True"),
        (whole(1), 2**62, "k is too large for a number, got 46"),
        (one_of("text", "json"), "jason", "k: there is no 'jason'; did you mean 'json'?"),
        (one_of("text", "json"), "xml", "k: there is no 'xml'; there are text, json"),
        (one_of("text", "json"), 3, "k must be one of text, json, got 3"),
    ],
)
def test_what_is_refused(kind, value, sentence):
    """Says where it was written, the key, what it must be, and the value."""
    with pytest.raises(JobError) as caught:
        kind.checked("k", value, "party.toml, line 3", Path())
    assert str(caught.value).startswith("party.toml, line 3: ")
    assert sentence in str(caught.value)


def test_what_is_accepted():
    """Whole numbers are numbers, there may be no limit, paths start from the file's folder, doubles count once."""
    assert real(0).checked("k", float("inf"), "", Path()) == float("inf")
    assert real(0).checked("k", 3, "", Path()) == 3.0
    assert PATH.checked("k", "a/b", "", Path("folder")) == Path("folder/a/b")
    assert NAMES.checked("k", ["b", "a", "b"], "", Path()) == ("b", "a")


@given(st.text(min_size=100) | st.lists(st.integers(), min_size=100))
def test_values_in_errors_are_short(value):
    """Whatever their length."""
    assert len(shown(value)) < 100
    with pytest.raises(HedgerowError) as caught:
        one_of("text", "json").checked("k", value, "", Path())
    assert len(str(caught.value)) < 500
