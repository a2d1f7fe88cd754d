"""`hedgerow audit`: read and check the trails that parties keep, and repeat a run from what they hand over. Offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import EXIT_CODES_HELP, ExitCode, Outcome, print_lines, verb, wrapped
from hedgerow.cli.telling import progress, say
from hedgerow.cli.unlocking import HomeOption
from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hedgerow.node.audit import Report
    from hedgerow.node.replay import Replayed

MOST_CERTIFICATE_BYTES = 1 << 20

CertificateOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A party's certificate (PEM), got from elsewhere; may be repeated."),
]
STEPS = {
    "trail": "trails are whole and signed, and tell the same story",
    "proposal": "all signed the proposal that the trails speak of",
    "commitment": "every table is the one that its party committed to",
    "match": "matched rows are the same records, and all of them",
    "part": "the repeated run gives the same parts, byte for byte",
}

app = typer.Typer(
    name="audit",
    help="Read and check the trails that parties keep, and repeat runs.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
)


@app.command("verify", epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.", is_long=True)
def verify(
    trails: Annotated[list[Path], typer.Argument(metavar="TRAIL...", help="Files audit.jsonl, one of each party.")],
    *,
    certificate: CertificateOption = None,
    extract: Annotated[
        bool, typer.Option("--extract", help="It is an extract, as packs have one: lines may be missing.")
    ] = False,
) -> Outcome:
    """Check trails: chain, signatures, certificates; several also against each other. Exit code 9 if one is broken.

    Example: hedgerow audit verify bank/audit.jsonl shop/audit.jsonl --certificate bank.pem
    """
    from hedgerow.node import audit, audit_cross

    pems = [_certificate(path) for path in certificate or ()]
    if len(trails) == 1 and len(pems) > 1:
        raise InvalidParameter(f"--certificate: one trail has one certificate, got {len(pems)}")
    if len(trails) > 1 and extract:
        raise InvalidParameter(f"--extract: extracts are checked one by one, got {len(trails)}")
    with progress("bytes checked") as on_progress:
        if len(trails) > 1:
            report = audit_cross.cross_check(trails, pems, on_progress)
        else:
            report = audit.verify(trails[0], pems[0] if pems else None, on_progress, is_extract=extract)
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


@app.command("export", epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The beginning of the run's id.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the bundle is put.")],
    home: HomeOption = None,
) -> Outcome:
    """Put together what an auditor needs to repeat a run. WHOEVER GETS IT HAS THIS PARTY'S DATA.

    The bundle has the papers, the trail up to the end of the run, all rows of the columns that took part, what opens
    the commitments to them, and this party's part of the model.

    Example: hedgerow audit export 3f9a --out for-the-auditor
    """
    from hedgerow.node import bundles
    from hedgerow.node.home import Home

    made = bundles.write(Home.find(home), run, out)
    files = sorted(path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file())
    lines = [f"What {made.party} has of the run {made.opening.run_id[:12]} is in {made.folder}:"]
    lines += [f"  {name}" for name in files]
    if bundles.TABLE in files:
        say(f"hedgerow: warning: {made.folder / bundles.TABLE} has the rows of {made.party}; give it to nobody else")
    result = {"command": "audit export", "party": made.party, "run_id": made.opening.run_id, "folder": made.folder}
    return Outcome({**result, "files": files}, lambda: print_lines(lines))


@app.command("replay", epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.", is_long=True)
def replay(
    bundles: Annotated[
        list[Path], typer.Argument(metavar="BUNDLE...", help="Folders of audit export, one of each party with data.")
    ],
    *,
    certificate: CertificateOption = None,
) -> Outcome:
    """Repeat a run from what its parties handed over: does it give the same model, byte for byte?

    Steps: trail, proposal, commitment, match, part. The first that fails is named, with exit code 9 for a trail and 11
    for all others. A run whose model has something drawn at random in it is refused, with exit code 2.

    Example: hedgerow audit replay from-bank from-shop --certificate bank.pem
    """
    from hedgerow.node.replay import TRAIL
    from hedgerow.node.replay import replay as played_again

    pems = [_certificate(path) for path in certificate or ()]
    with progress("repeating the run") as draw:
        report = played_again(bundles, pems, draw)
    code = ExitCode.OK
    if not report.ok:
        code = ExitCode.TRAIL_BROKEN if report.failed == TRAIL else ExitCode.REPLAY
    return Outcome({"command": "audit replay", **report.to_dict()}, lambda: print_lines(_steps(report)), code)


def _steps(report: Replayed) -> list[str]:
    lines = [
        f"Run {report.run_id[:12]} of {', '.join(report.parties)}" + (f", {report.protocol}" if report.protocol else "")
    ]
    for step, words in STEPS.items():
        made = "not reached" if step not in report.steps else "FAILED" if report.steps[step] else "ok"
        lines.append(f"  {step:<11} {made:<11}  {words}")
    lines.append("")
    if report.ok:
        lines.append("The run, repeated from committed inputs, gives the same model, byte for byte.")
    for finding in report.steps.get(report.failed or "", ()):
        lines += wrapped(f"{report.failed}: {finding}")
    for note in report.notes:
        lines += wrapped(f"Note: {note}")
    return lines


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
