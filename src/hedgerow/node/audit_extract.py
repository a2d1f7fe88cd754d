"""What a trail says about one run, for somebody who is to see that and nothing else of it.

    found = extract(home.audit, proposal)
    (folder / "audit_extract.jsonl").write_bytes(found.content)
    verify(folder / "audit_extract.jsonl", certificate_pem, is_extract=True)         # offline, by anybody

Lines are taken as they are, each with its number, its link to the line before and its signature. Beside those about the
run there are the first line of the trail, which has the certificate, and every change of keys up to the last line that
is taken; and the lines that say how the certificates of the run's parties were pinned. So every signature in the
extract can be checked without the rest of the trail, and every link between two lines that were neighbours.

What an extract cannot show: what the lines say that were left out, and that none was left out that speaks of the run.
For that the whole trail is needed, and the trails of the others (`audit_cross`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.node.audit import Reading, Report
from hedgerow.node.audit_lines import INIT, ROTATED, Entry

if TYPE_CHECKING:
    from hedgerow.node.proposal import Proposal

TRAIL, EXTRACT = "audit.jsonl", "audit_extract.jsonl"
"""What the two are called in reports: where they lie on a machine is nobody else's business."""


@dataclass(frozen=True)
class Extract:
    """The lines of a trail about a run, and what a check of the trail and of these lines came to."""

    entries: tuple[Entry, ...]
    trail: Report  # of the whole, as it was when the extract was made
    checked: Report  # of the extract alone, as its reader can repeat it

    @property
    def content(self) -> bytes:
        """As it is written."""
        return b"".join(entry.line + b"\n" for entry in self.entries)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with either."""
        return self.trail.ok and self.checked.ok

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, "trail": self.trail.to_dict(), "extract": self.checked.to_dict()}


def extract(trail: Path, proposal: Proposal, certificate_pem: bytes | None = None) -> Extract:
    """From a trail that is checked as a whole. A broken one is told in the report, and what can be read is taken."""
    reading = Reading(trail, certificate_pem)
    entries = [entry for _, entry in reading.entries]
    fingerprints = {place.fingerprint for place in proposal.parties}
    about = {k for k, entry in enumerate(entries) if _is_about(entry, proposal, fingerprints)}
    until = max(about, default=-1)
    keys = {k for k, entry in enumerate(entries) if entry.kind in (INIT, ROTATED) and k <= until}
    taken = [entries[k] for k in sorted(about | keys)]
    with tempfile.TemporaryDirectory(prefix="hedgerow-extract-") as folder:
        place = Path(folder) / EXTRACT
        place.write_bytes(b"".join(entry.line + b"\n" for entry in taken))
        checked = _named(Reading(place, certificate_pem, is_extract=True).report, EXTRACT)
    return Extract(tuple(taken), _named(reading.report, TRAIL), checked)


def _is_about(entry: Entry, proposal: Proposal, fingerprints: set[str]) -> bool:
    facts = entry.facts
    if entry.kind == "paired":
        return facts["fingerprint"] in fingerprints
    return facts.get("proposal") == proposal.hash or str(facts.get("run_id", "")).startswith(proposal.run_id)


def _named(report: Report, name: str) -> Report:
    """The same report, about a file of this name."""
    (summary,) = report.trails
    return Report(
        (replace(summary, trail=name),),
        tuple(replace(finding, trail=name) for finding in report.findings),
        tuple(note.replace(summary.trail, name) for note in report.notes),
    )
