"""A pack as files: each made from the run alone, listed with its digest, in a folder or in a ZIP.

The same inputs give the same bytes, in a ZIP too: files are in the order of their names, with one fixed date and mode.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hedgerow.codec import to_json
from hedgerow.node.documents import write_whole
from hedgerow.report.pack import attacked, pages, roles, sbom, stated, technical_file
from hedgerow.report.pack.attacked import Tests
from hedgerow.report.pack.blocks import Page, as_markdown
from hedgerow.report.pack.page import as_html
from hedgerow.report.pack.subject import Subject
from hedgerow.runtime.saved_files import whole_folder

SUMS = "SHA256SUMS"
FILES = (
    *(
        "pack.html",
        "statement.json",
        "registry.json",
        "manifest.json",
        "audit_extract.jsonl",
        "audit_verification.json",
    ),
    *("proposal.json", "answers/*.json", "attacks.json", "roles.json", "technical_file.md", "model_card.md"),
    *("sbom.cdx.json", SUMS),
)
"""All that can be in the folder of a pack; one that holds other files is not replaced."""

_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a ZIP can have
_MODE = 0o100600 << 16


def put_together(subject: Subject, tests: Iterable[Tests] = ()) -> dict[str, bytes]:
    """Name -> contents, in the order of names; the list of digests comes last."""
    tests = tuple(tests)
    card, technical = pages.model_card(subject), technical_file.page(subject)
    chapters: tuple[Page, ...] = (
        pages.summary(subject),
        stated.page(subject),
        stated.registry_page(subject),
        pages.manifest(subject),
        pages.audit(subject),
        attacked.page(tests, subject),
        technical,
        roles.page(subject),
        card,
    )
    bill = sbom.bill()
    found: dict[str, bytes] = {
        "statement.json": _json({**to_json(subject.statement), **subject.facts, "is_planned": subject.is_planned}),
        "registry.json": _json(stated.registry_of(subject)),
        "manifest.json": _json(subject.manifest),
        "attacks.json": _json(attacked.to_dict(tests, subject)),
        "roles.json": _json(roles.roles_of(subject)),
        "technical_file.md": as_markdown(technical).encode(),
        "model_card.md": as_markdown(card).encode(),
        "sbom.cdx.json": _json(bill),
        **subject.papers,
    }
    if subject.trail is not None:
        found["audit_extract.jsonl"] = subject.trail.content
        found["audit_verification.json"] = _json(subject.trail.to_dict())
    found["pack.html"] = as_html(subject, chapters, bill, _digests(found)).encode()
    sums = "".join(f"{digest}  {name}\n" for name, digest in _digests(found).items())
    return {**dict(sorted(found.items())), SUMS: sums.encode()}


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def _json(document: Any) -> bytes:
    return (json.dumps(to_json(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode()


def as_zip(files: Mapping[str, bytes]) -> bytes:
    """All of it in one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr, entry.create_system = _MODE, 3  # as on Unix, wherever it is made
            archive.writestr(entry, content)
    return made.getvalue()


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Into a ZIP if the name ends so, else into a folder; for its owner's eyes, and whole or not at all."""
    if out.suffix.lower() == ".zip":
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, as_zip(files))
        return
    with whole_folder(out, FILES) as place:
        for name, content in files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(content)
