"""Every example in the documentation of estimators, federations and the command line runs as written."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from hedgerow import Federation, Schema
from hedgerow.cli.job_file import KEYS, SECTIONS, Job, read_job
from hedgerow.errors import InvalidParameter
from twins.documented import BLOCK, DOCS, blocks, commands_of
from twins.random_models import random_ensemble, random_mapper


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
        "protocols/vertical_private_histograms.md",
        "protocols/vertical_aligning.md",
        "reference/vertical_explanations.md",
        "reference/plot.md",
        "attacks.md",
        "scale.md",
    ],
)
def test_the_examples_run(page: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks share their names, commands run in the same folder, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = GIVEN[page]() if page in GIVEN else {}
    shown, typed = blocks(page), []
    assert shown
    for block in shown:
        if block.language == "python":
            exec(compile(block.text, page, "exec"), names)  # noqa: S102 - our own documentation
        for words in block.commands if block.language == "console" else ():
            run(*words[1:])
            typed.append(words)
    assert typed == commands_of(f"docs/{page}")


def _two_tables() -> dict[str, Any]:
    """Customers of a bank and of a shop, of whom 20 are the same."""
    ids = [f"c{k}" for k in range(50)]
    return {
        "bank": pa.table({"customer": ids[:30], "age": list(range(30))}),
        "shop": pa.table({"customer": ids[10:], "spent": list(range(40))}),
    }


def _an_ensemble() -> dict[str, Any]:
    """Trees, and codes of rows."""
    rng = np.random.default_rng(0)
    ensemble = random_ensemble(rng, random_mapper(rng))
    return {"ensemble": ensemble, "codes": rng.integers(0, 9, (len(ensemble.features), 20), np.uint8)}


def _a_private_training() -> dict[str, Any]:
    """A mechanism of epsilon = 1 that stands for a training: how many rows have a label, with noise."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(40, 2)), np.zeros(40, np.int64)

    def my_private_training(_table: Any, labels: Any) -> float:
        return float(np.sum(np.asarray(labels) == 1) + rng.laplace())

    return {
        "schema": Schema.from_public(bounds={"x0": (0, 1), "x1": (0, 1)}, classes=[0, 1]),
        "X": X,
        "y": y,
        "my_private_training": my_private_training,
        "score_at": lambda model, _canary: model,
    }


GIVEN = {
    "protocols/vertical_aligning.md": _two_tables,
    "reference/vertical_explanations.md": _an_ensemble,
    "attacks.md": _a_private_training,
}
"""What the example of a page takes for given."""


def test_the_command_line_of_the_readme(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What README.md shows of it, line by line in its order; the demo is played in test_command.py."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    loans = pa.table({"income": rng.normal(size=300), "age": rng.integers(18, 90, 300)})
    pc.write_csv(loans, "new_loans.csv")
    pq.write_table(loans.append_column("defaulted", [["no", "yes"] * 150]), "loans.parquet")
    Path("job.toml").write_text('[data]\ntrain = "loans.parquet"\nlabel = "defaulted"\n', encoding="utf-8")
    bounds = {"income": (-5, 5), "age": (18, 90)}
    Schema.from_public(bounds=bounds, integers=["age"], classes=["no", "yes"]).save("loans_schema.json")
    X = {name: rng.normal(size=(300, 2)) for name in ("bank", "shop")}
    federation = Federation.vertical(X, labels=("bank", rng.integers(0, 2, 300)))
    options = {"epsilon": 4.0, "delta": 1e-5, "n_estimators": 2, "record": True}
    federation.fit("vertical.noised_gradients", **options).save("RUN")
    shown = commands_of("README.md")[8:]
    assert [words[1] for words in shown] == [
        *("demo", *["train"] * 3, "predict", "export"),
        *("ledger", "report", "watch", "pack", "attack"),
    ]
    for words in shown[1:]:
        if words[1] == "watch":  # until it is told to stop, as in tests/report/test_live.py
            continue
        if words[2] == "...":  # what the first of them says
            words[2:3] = shown[1][2:6]
        run(*words[1:])
    assert len(Path("scored.csv").read_text(encoding="utf-8").splitlines()) == 301


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
