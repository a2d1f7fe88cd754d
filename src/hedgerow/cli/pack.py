"""`hedgerow pack`: what whoever answers for a run hands to a regulator, a customer or an auditor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.outcome import ExitCode, Outcome, print_lines, verb
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption


@verb("The same as JSON on stdout.")
def pack(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The beginning of a run's id, or a folder that run.save wrote.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.zip", help="Where it is put; otherwise pack-ID.zip in the working directory."
        ),
    ] = None,
    attacks: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What hedgerow attack --json printed, or rehearse --json; repeatable."),
    ] = None,
    home: HomeOption = None,
) -> Outcome:
    """Put together the papers of a run: statement, manifest, trail, attacks, technical file, software, model card.

    One page that prints well, and files for machines, with a list of digests. It holds no rows, no values out of rows
    and no keys, and says of no law or standard that it is met. Boxes are for people. Exit code 9: the trail is broken.

    Example: hedgerow pack 3f9a --out pack.zip
    """
    from hedgerow.node.home import Home
    from hedgerow.report.pack import attacked
    from hedgerow.report.pack.files import put_together, write
    from hedgerow.report.pack.subject import find_subject

    subject = find_subject(run, None if home is None else Home.find(home))
    tests = attacked.read_all(attacks or (), subject)
    files = put_together(subject, tests)
    place = out or Path(f"pack-{subject.run_id[:12]}.zip")
    write(files, place)
    is_whole = subject.trail is None or subject.trail.ok
    if not is_whole:
        say("hedgerow: warning: the trail is broken; the pack says so, and hedgerow audit verify says more")
    result = {
        "command": "pack",
        "run_id": subject.run_id,
        "protocol": subject.protocol,
        "party": subject.party,
        "out": place,
        "files": list(files),
        "tested": bool(tests),
        "trail_ok": None if subject.trail is None else subject.trail.ok,
        "statement_is_planned": subject.is_planned,
    }
    lines = [f"The pack of run {subject.run_id[:12]} is in {place}:", *(f"  {name}" for name in files)]
    lines += ["", "Open pack.html; its boxes are for people to fill in. It says of no law that it is met."]
    return Outcome(result, lambda: print_lines(lines), ExitCode.OK if is_whole else ExitCode.TRAIL_BROKEN)
