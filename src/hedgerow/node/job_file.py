"""job.toml of a run between parties: who plays what, by which protocol, with which options.

Format: docs/reference/job_file_parties.md, made from `FORMAT`. `hedgerow train` has a job file of its own
(cli/job_file.py), because it has one table and nobody to agree with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, JobError
from hedgerow.node.settings import (
    PATH,
    TEXT,
    Anything,
    Document,
    Each,
    Key,
    Kind,
    Table,
    WrongKind,
    one_of,
    read_toml,
    real,
    whole,
)
from hedgerow.runtime.protocol import COORDINATOR, DEALER, FEATURE_HOLDER, LABEL_HOLDER, OWNER
from hedgerow.runtime.protocol import names as protocol_names
from hedgerow.schema import Schema
from hedgerow.transport.mtls import check_party_name, check_party_names

ROLES = (LABEL_HOLDER, FEATURE_HOLDER, DEALER, OWNER, COORDINATOR)
TASKS = ("classification", "regression")
SCORINGS = ("no", "batch", "standing")
"""What parties do with a model after its training: nothing together, scores of tables, or also of single records."""
LONGEST_DAYS = 366.0


@dataclass(frozen=True)
class Seat:
    """A party's part in the run."""

    role: str | None = None
    dataset: str | None = None
    schema: Path | None = None


@dataclass(frozen=True)
class Matching:
    """How records of several parties are matched by their ids."""

    rule: Mapping[str, Any] | None = None
    duplicates: str = "refuse"
    minimum: int = 2


@dataclass(frozen=True)
class JobFile:
    """All that job.toml says. Options are as written, but for `schema`, which is loaded, and "none", which is None."""

    path: Path
    protocol: str
    parties: Mapping[str, Seat]
    task: str = "classification"
    matching: Matching | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    expires_days: float = 7.0
    scoring: str = "batch"


# --- the format ------------------------------------------------------------------------------------------------------


def _truth(value: Any, _folder: Path) -> bool:
    if not isinstance(value, bool):
        raise WrongKind
    return value


FORMAT = Table(
    "a run between parties, to be proposed to the others",
    {
        "protocol": Key(one_of(*protocol_names()), "how the model is trained", needed=True),
        "task": Key(one_of(*TASKS), "whether labels are classes or amounts", default="classification"),
        "expires_days": Key(
            real(0, below=LONGEST_DAYS), "days after which nobody can accept the proposal any more", default=7.0
        ),
        "scoring": Key(
            one_of(*SCORINGS),
            "what the parties do with the model afterwards, where columns are divided: no (nothing together), batch "
            "(hedgerow predict), or standing (hedgerow serve as well)",
            default="batch",
        ),
        "parties": Each(
            "party",
            "who takes part, in the order of their columns",
            Table(
                "a party's part in the run",
                {
                    "role": Key(
                        one_of(*ROLES), "what it does", otherwise="follows from the protocol and who has labels"
                    ),
                    "dataset": Key(TEXT, "the name of the dataset in that party's own party.toml"),
                    "schema": Key(PATH, "a file with the public schema of its columns; only to rehearse and estimate"),
                },
            ),
            check=check_party_name,
            needed=True,
        ),
        "matching": Table(
            "how records are matched by ids; without it all parties must have the same rows in the same order",
            {
                "rule": Table(
                    "how ids are written before they are compared",
                    {
                        "kind": Key(one_of("text", "integer"), "what ids are", default="text"),
                        "unicode_form": Key(
                            one_of("NFC", "NFKC", "as_is"), "one spelling for what looks the same", default="NFC"
                        ),
                        "case": Key(
                            one_of("keep", "fold"), "whether capitals count: keep; or not: fold", default="keep"
                        ),
                        "strip": Key(
                            Kind("true or false", {"type": "boolean"}, _truth),
                            "whether white space at both ends is taken off",
                            default=True,
                        ),
                    },
                ),
                "duplicates": Key(
                    one_of("refuse", "first"), "what becomes of an id that stands in two rows", default="refuse"
                ),
                "minimum": Key(whole(1), "common ids that there must be before anybody learns any of them", default=2),
            },
        ),
        "options": Anything(
            "parameters of the trees and options of the protocol, which checks them; schema is the path of a schema"
        ),
    },
)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_job_file(path: Path) -> JobFile:
    """The file, checked but for its options; JobError with the line of what is wrong."""
    document = read_toml(path, "job file")
    found = FORMAT.read(document)
    parties = {name: Seat(**entries) for name, entries in found.pop("parties").items()}
    if len(parties) < 2:
        said = "a run needs two parties or more, each with a section [parties.<name>]"
        raise JobError(f"{document.where('parties')}: {said}, got {len(parties)}")
    try:
        check_party_names(tuple(parties))
    except HedgerowError as problem:
        raise JobError(f"{document.where('parties')}: {problem}") from None
    matching = found.pop("matching", None)
    return JobFile(
        path=path,
        parties=parties,
        matching=None if matching is None else _matching(matching, document),
        options=_options(found.pop("options", {}), document),
        **found,
    )


def _matching(given: dict[str, Any], document: Document) -> Matching:
    """With the whole rule, also where the file gives a part of it and the rest is as usual."""
    from hedgerow.crypto.identifiers import IdRule

    if "rule" in given:
        try:
            given["rule"] = IdRule(**given["rule"]).to_dict()
        except HedgerowError as problem:
            raise JobError(f"{document.where('matching', 'rule')}: {problem}") from None
    return Matching(**given)


def _options(given: Mapping[str, Any], document: Document) -> dict[str, Any]:
    found = {
        name: None if isinstance(value, str) and value.lower() == "none" else value for name, value in given.items()
    }
    schema = found.get("schema")
    if schema is not None:
        where = document.where("options", "schema")
        if not isinstance(schema, str) or not schema or "\0" in schema:
            raise JobError(f"{where}: schema must be the path of a file, in quotes")
        try:
            found["schema"] = Schema.load(document.path.parent / schema)
        except HedgerowError as problem:
            raise JobError(f"{where}: schema: {problem}") from None
    return found


def json_schema() -> dict[str, Any]:
    """The format as JSON Schema, by which editors complete and check the file while it is written."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Hedgerow: job.toml of a run between parties",
        **FORMAT.schema(),
    }
