"""The pages and JSON Schemas of party.toml and job.toml are what their formats say.

HEDGEROW_WRITE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from hedgerow.errors import HedgerowError
from hedgerow.node import job_file, party_file
from hedgerow.node.settings import Each, Key, Table

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
FORMATS = {
    "party": (party_file, party_file.read_party_file, "party_file.md"),
    "job": (job_file, job_file.read_job_file, "job_file_parties.md"),
}
MADE = re.compile(r"(<!-- From here on.*?-->\n).*", flags=re.DOTALL)


def up_to_date(path: Path, text: str) -> bool:
    """Whether the file has this text; written first, if that is asked for."""
    if os.environ.get("HEDGEROW_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8") == text


def tables(whole: Table) -> str:
    """The keys of a format, section by section, in Markdown."""
    parts = [""]
    for place, table in whole.sections():
        heading = f"`[{'.'.join(place)}]`" if place else "Keys at the top"
        rows = ["| key | must be | default | what it is |", "|---|---|---|---|"]
        for name, entry in table.entries.items():
            key, named = (entry.entry, True) if isinstance(entry, Each) else (entry, False)
            if isinstance(key, Key):
                default = key.otherwise or (f"`{json.dumps(key.default)}`" if key.default is not None else "none")
                shown = f"`[{'.'.join((*place, name))}]` `<{entry.name}>`" if named else f"`{name}`"
                cells = (shown, key.kind.words, "required" if key.needed else default, entry.help)
                rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append(f"## {heading}\n\n{table.help[:1].upper()}{table.help[1:]}." + "\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_is_up_to_date(name):
    """Every key with what it must be, its default and its meaning."""
    module, _, page = FORMATS[name]
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert MADE.search(text)
    assert up_to_date(REFERENCE / page, MADE.sub(lambda match: match[1] + tables(module.FORMAT), text))


@pytest.mark.parametrize("name", FORMATS)
def test_the_schema_for_editors_is_up_to_date(name):
    """The file in the documentation is what the program would write."""
    module = FORMATS[name][0]
    text = json.dumps(module.json_schema(), indent=2) + "\n"
    assert up_to_date(REFERENCE / "schemas" / f"{name}.schema.json", text)
    jsonschema.Draft202012Validator.check_schema(module.json_schema())


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_is_right_and_complete(name, tmp_path):
    """It is read without complaint, the schema takes it, and it shows every key."""
    module, read, page = FORMATS[name]
    text = re.search(r"^```toml\n(.*?)^```", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[
        1
    ]
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    read(tmp_path / "file.toml")
    jsonschema.Draft202012Validator(module.json_schema()).validate(tomllib.loads(text))
    keys = {
        key for _, table in module.FORMAT.sections() for key, entry in table.entries.items() if isinstance(entry, Key)
    }
    assert {key for key in keys if not re.search(rf"^{key} = ", text, re.MULTILINE)} == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("party", ""),
        ("party", 'nam = "bank"'),
        ("party", 'name = "a b"'),
        ("party", 'name = "bank"\nlog = "xml"'),
        ("party", 'name = "bank"\n[network]\nbind = "host"'),
        ("party", 'name = "bank"\n[data.a]'),
        ("party", 'name = "bank"\n[data.a]\nsource = "postgresql://a:b@c/d"'),
        ("party", 'name = "bank"\n[data.a]\nsource = "a.csv"\ndrop = "x"'),
        ("party", 'name = "bank"\n[policy]\nminimum_rows = 0'),
        ("party", 'name = "bank"\n[policy]\nprotocols = ["none"]'),
        ("party", 'name = "bank"\n[policy.budget]\ndelta = 0.1'),
        ("party", 'name = "bank"\n[policy.budget.peers.shop]\ndelta = 0.1'),
        ("job", "[parties.a]\n[parties.b]"),
        ("job", 'protocol = "none"\n[parties.a]\n[parties.b]'),
        ("job", 'protocol = "vertical.bucket_rr"'),
        ("job", 'protocol = "vertical.bucket_rr"\n[parties.a]\n[parties.b]\nrole = "guest"'),
        ("job", 'protocol = "vertical.bucket_rr"\n[parties.a]\n[parties.b]\n[matching]\nminimum = 1.5'),
        ("job", 'protocol = "vertical.bucket_rr"\nparties = {a = {}, b = {}}\noptions = 3'),
    ],
)
def test_what_a_reader_refuses_an_editor_marks(name, text, tmp_path):
    """Mistakes in names, types and ranges are refused by both."""
    module, read, _ = FORMATS[name]
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    with pytest.raises(HedgerowError):
        read(tmp_path / "file.toml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(module.json_schema()).validate(tomllib.loads(text))
