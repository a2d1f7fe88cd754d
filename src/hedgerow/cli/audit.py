"""`hedgerow audit`: read and check the trails that parties keep, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import EXIT_CODES_HELP, ExitCode, Outcome, print_lines, verb, wrapped
from hedgerow.cli.telling import progress
from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hedgerow.node.audit import Report

MOST_CERTIFICATE_BYTES = 1 << 20

app = typer.Typer(
    name="audit",
    help="Read and check the trails that parties keep.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
)


@app.command("verify", epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.", is_long=True)
def verify(
    trails: Annotated[list[Path], typer.Argument(metavar="TRAIL...", help="Files audit.jsonl, one of each party.")],
    *,
    certificate: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A party's certificate (PEM), got from elsewhere; may be repeated."),
    ] = None,
) -> Outcome:
    """Check trails: chain, signatures, certificates; several also against each other. Exit code 9 if one is broken.

    Example: hedgerow audit verify bank/audit.jsonl shop/audit.jsonl --certificate bank.pem
    """
    from hedgerow.node import audit, audit_cross

    pems = [_certificate(path) for path in certificate or ()]
    if len(trails) == 1 and len(pems) > 1:
        raise InvalidParameter(f"--certificate: one trail has one certificate, got {len(pems)}")
    with progress("bytes checked") as on_progress:
        if len(trails) > 1:
            report = audit_cross.cross_check(trails, pems, on_progress)
        else:
            report = audit.verify(trails[0], pems[0] if pems else None, on_progress)
    code = ExitCode.OK if report.ok else ExitCode.TRAIL_BROKEN
    return Outcome({"command": "audit verify", **report.to_dict()}, lambda: print_lines(_verdict(report)), code)


@app.command("show", epilog=EXIT_CODES_HELP)
@verb("The lines of the trail as JSON on stdout.")
def show(
    trail: Annotated[Path, typer.Argument(metavar="TRAIL", help="A file audit.jsonl.")],
    *,
    kind: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Only lines of this kind.")] = None,
) -> Outcome:
    """Show what a trail says, line by line. Exit code 9 if it is broken; what can be read is shown all the same.

    Example: hedgerow audit show bank/audit.jsonl --kind refused
    """
    from hedgerow.node.audit import Reading
    from hedgerow.node.audit_lines import KINDS

    for each in kind or ():
        if each not in KINDS:
            raise InvalidParameter(f"--kind {each!r}: there are {', '.join(KINDS)}")
    reading = Reading(trail)
    entries = [entry._asdict() for _, entry in reading.entries if not kind or entry.kind in kind]
    findings = [str(finding) for finding in reading.findings]
    result = {"command": "audit show", "party": reading.party, "entries": entries, "findings": findings}

    def lines() -> list[str]:
        shown = [f"Trail of {reading.party or 'nobody'}"]
        shown += [f"{e['seq']:>5}  {e['at'][:19]}Z  {e['kind']:<15}  {_facts(e['facts'])}".rstrip() for e in entries]
        return [*shown, *(["", *_found(findings)] if findings else [])]

    code = ExitCode.TRAIL_BROKEN if findings else ExitCode.OK
    return Outcome(result, lambda: print_lines(lines()), code)


def _certificate(path: Path) -> bytes:
    """The certificate in a file. InvalidInput, naming the file, if there is none."""
    from hedgerow.transport.mtls import Certificate

    try:
        with path.open("rb") as file:
            pem = file.read(MOST_CERTIFICATE_BYTES)
        return Certificate.from_pem(pem).pem
    except (OSError, PeerRefused) as problem:
        raise InvalidInput(f"--certificate {path}: {problem}") from problem


def _verdict(report: Report) -> list[str]:
    lines = []
    for trail in report.trails:
        lines.append(f"{trail.trail}: {trail.n_lines} lines of {trail.party or 'nobody'}")
        lines.append(f"  from {trail.first} to {trail.last}")
        lines += [f"  certificate {fingerprint}" for fingerprint in trail.certificates]
        lines += ["  the certificate that you brought is one of its own"] * trail.vouched
        lines.append(f"  head {trail.head}")
    lines.append("")
    if report.ok:
        together = " Together, they tell the same story." if len(report.trails) > 1 else ""
        lines.append(f"Nothing is wrong: chain, signatures and certificates hold.{together}")
    else:
        lines += _found([str(finding) for finding in report.findings])
    for note in report.notes:
        lines += wrapped(f"Note: {note}")
    return lines


def _found(findings: list[str]) -> list[str]:
    lines = [f"BROKEN: {len(findings)} finding{'s' * (len(findings) != 1)}"]
    for finding in findings:
        lines += wrapped(finding, "  ")
    return lines


def _facts(facts: Mapping[str, Any]) -> str:
    """In one line; certificates are too long for it."""
    shown = {name: "..." if name == "certificate" else value for name, value in facts.items()}
    return "  ".join(f"{name}={_short(value)}" for name, value in shown.items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{_short(entry)}" for name, entry in value.items())
    if isinstance(value, list):
        return ",".join(_short(entry) for entry in value)
    text = str(value)
    return f"{text[:16]}..." if len(text) >= 64 and " " not in text else text
