"""Every example in the documentation of estimators, federations and the command line runs as written."""

from __future__ import annotations

import ast
import os
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hedgerow.cli.job_file import KEYS, SECTIONS, Job, read_job
from hedgerow.errors import InvalidParameter

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|console|toml)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        "tutorials/first_model.md",
        "tutorials/three_owners.md",
        "tutorials/shared_customers.md",
        "reference/estimators.md",
        "reference/federation.md",
        "tutorials/private_model.md",
        "reference/private_estimators.md",
        "protocols/vertical_mp_fedxgb.md",
    ],
)
def test_the_examples_run(page: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks share their names, commands run in the same folder, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert blocks
    for language, text in blocks:
        if language == "python":
            exec(compile(text, page, "exec"), names)  # noqa: S102 - our own documentation
        for line in text.splitlines() if language == "console" else ():
            program, *args = shlex.split(line.removeprefix("$ "))
            assert program == "hedgerow"
            run(*args)


def test_the_job_file_of_the_reference_is_valid_and_complete(tmp_path: Path) -> None:
    """Both examples, the plain and the private one, are read without complaint; together they show every key."""
    page = (DOCS / "reference" / "job_file.md").read_text(encoding="utf-8")
    path = tmp_path / "job.toml"
    jobs, shown = [], {section: set() for section in SECTIONS}
    for text in [text for language, text in BLOCK.findall(page) if language == "toml"]:
        path.write_text(text, encoding="utf-8")
        jobs.append(read_job(path, {}, {}))
        for section, entries in tomllib.loads(text).items():
            shown[section] |= set(entries)
    plain, private = jobs
    assert isinstance(plain, Job)
    assert plain.params["max_depth"] is None
    assert private.privacy is not None
    assert {section: set(keys) for section, keys in KEYS.items()} == {name: shown[name] for name in KEYS}


def test_every_parameter_is_documented() -> None:
    """The table of parameters has each one's name and default, and every alias."""
    from hedgerow.estimators.inputs import ALIASES
    from hedgerow.estimators.plain import BoostedTreesRegressor

    page = (DOCS / "reference" / "estimators.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, flags=re.MULTILINE))
    for name, default in BoostedTreesRegressor().get_params().items():
        assert ast.literal_eval(rows[name].strip("` ")) == default, name
    assert [alias for alias in ALIASES if alias not in page] in ([], ["early_stopping_round"])


def documented_options(page: str) -> dict[str, Any]:
    """Parameters and defaults, from the table of a protocol's page."""
    text = (DOCS / "protocols" / page).read_text(encoding="utf-8").split("## Parameters")[1]
    table = re.split(r"^## |^\*\*Limits", text, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| `([^`]+)` \|", table, flags=re.MULTILINE)
    return {name: ast.literal_eval(default) for names, default in rows for name in re.findall(r"\w+", names)}


def test_every_option_of_secure_sum_is_documented() -> None:
    """The table of its page has each parameter of its own with its default, and no other."""
    from hedgerow.protocols.horizontal.secure_sum.job import Job
    from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL

    defaults = {field.name: field.default for field in fields(Job) if field.name in PROTOCOL.options}
    # left out, the coordinator becomes a party of its own
    assert documented_options("horizontal_secure_sum.md") == defaults | {"coordinator": None}


def test_every_option_of_mp_fedxgb_is_documented() -> None:
    """The same for the published protocol on shares."""
    from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
    from hedgerow.protocols.published.mp_fedxgb.spec import SPEC as PROTOCOL

    defaults = {field.name: field.default for field in fields(MpFedXgbJob) if field.name in PROTOCOL.options}
    assert documented_options("vertical_mp_fedxgb.md") == defaults


def reference_page() -> str:
    """docs/reference/options.md: the options of all protocols."""
    from hedgerow.cli.protocols import described
    from hedgerow.runtime.protocol import find, names, services

    parts = [
        "# Options of the protocols",
        (
            "Beside the [parameters of the trees](estimators.md#parameters), `Federation.fit(protocol, ...)` takes "
            "these. The page is made from the declarations of the protocols, as are the checks and the sentences of "
            "errors. `hedgerow protocols NAME` shows the same."
        ),
    ]
    for name in (*names(), *services()):
        rows = ["| option | must be | default | what it is |", "|---|---|---|---|"]
        for each in described(find(name).job):
            cells = (f"`{each['name']}`", each["must be"], f"`{each['default']}`", each["meaning"])
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts += [f"## {name}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def test_the_page_of_options_is_up_to_date() -> None:
    """The reference of options is what the protocols declare; HEDGEROW_WRITE_GOLDEN=1 writes it anew."""
    page = DOCS / "reference" / "options.md"
    if os.environ.get("HEDGEROW_WRITE_GOLDEN"):
        page.write_text(reference_page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference_page()


def test_every_option_says_what_it_is_and_what_it_must_be() -> None:
    """No option of any protocol is without words, and an error is made of the same ones."""
    from hedgerow.runtime.protocol import find, names, options_of, services

    for name in (*names(), *services()):
        for each in options_of(find(name).job):
            assert each.help, (name, each.name)
            assert each.accepts(), (name, each.name)
            if each.kind in (int, float) and each.parse is None:
                with pytest.raises(InvalidParameter, match=re.escape(f"{name}: {each.name} must be {each.accepts()}")):
                    each.checked(name, "nine")


def test_protocols_and_their_options_are_listed(run) -> None:
    """By name, and one by one; what is unknown is refused with exit code 2."""
    assert "vertical.bucket_rr" in run("protocols").stdout
    assert "epsilon  (default: required)" in run("protocols", "vertical.bucket_rr").stdout
    listed = run("protocols", "vertical.secret_shared", "--json").json
    assert {"dealer", "disclosure"} <= {each["name"] for each in listed["options"]}
    assert "there is no protocol 'vertical.best'" in run("protocols", "vertical.best", code=2).stderr
