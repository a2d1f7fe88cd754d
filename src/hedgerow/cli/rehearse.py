"""`hedgerow rehearse`: a run on made-up rows, before any contract; what would leave whose house."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, aligned, print_lines, verb, wrapped
from hedgerow.cli.telling import progress
from hedgerow.cli.unlocking import HomeOption
from hedgerow.errors import InvalidParameter, JobError

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.schema import Schema

JobArgument = Annotated[Path, typer.Argument(metavar="JOB.toml", help="The run, as it would be proposed.")]
SchemaOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PARTY=FILE", help="A party's public schema, as JSON; repeatable."),
]


@verb("The same as JSON on stdout.", is_long=True)
def rehearse(
    job: JobArgument,
    *,
    rows: Annotated[int, typer.Option(min=20, help="How many rows are made up on each side.")] = 1_000,
    schema: SchemaOption = None,
    attack: Annotated[bool, typer.Option(help="Also try what curious parties could find out.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Rows are made up from it.")] = 0,
    home: HomeOption = None,
) -> Outcome:
    """Run a job on made-up rows: all parties as processes of this machine, over mutual TLS, from schemas alone.

    Nobody's rows are read, and nobody is asked. It shows who would send what to whom, how much, how long it takes, and
    what attacks on the protocol come to.

    Example: hedgerow rehearse job.toml --schema shop=shop.schema.json
    """
    from hedgerow.node.job_file import read_job_file
    from hedgerow.node.made_up import cast_of
    from hedgerow.node.rehearse import rehearse as rehearsed

    wanted = read_job_file(job)
    cast = cast_of(wanted, schemas_of(schema), home_if_any(home))
    with progress(wanted.protocol) as on_progress:
        found = rehearsed(cast, rows, seed=seed, attack=attack, on_progress=on_progress)
    result = {"command": "rehearse", "job": str(job), **found.to_dict()}
    return Outcome(result, lambda: print_lines(_lines(result)))


def schemas_of(given: list[str] | None) -> dict[str, Schema]:
    """Party -> schema, from options PARTY=FILE."""
    from hedgerow.schema import Schema

    found = {}
    for text in given or []:
        party, _, path = text.partition("=")
        if not party or not path:
            raise JobError(f"--schema takes PARTY=FILE, got {text!r}")
        found[party] = Schema.load(path)
    return found


def home_if_any(given: Path | None) -> Home | None:
    """The party's folder; None if the command was not given one and is not run in one."""
    from hedgerow.node.home import Home

    try:
        return Home.find(given)
    except InvalidParameter:
        if given is not None:
            raise
        return None


def egress_lines(sent: list[dict[str, Any]]) -> list[str]:
    """Who sent what to whom, as a table with what it discloses below each line."""
    if not sent:
        return ["  nothing"]
    header = ("from", "to", "message", "count", "bytes")
    cells = [(e["sender"], e["receiver"], e["message"], f"{e['messages']:,}", f"{e['bytes']:,}") for e in sent]
    head, *rows = aligned([header, *cells], n_left=3)
    lines = [f"  {head}"]
    for row, entry in zip(rows, sent, strict=True):
        lines += [f"  {row}", *wrapped(f"{entry['what']} ({entry['protection']})", "      ")]
    return lines


def _lines(result: dict[str, Any]) -> list[str]:
    stamp = result["stamp"]
    lines = wrapped(
        f"{stamp}: a rehearsal of {result['protocol']} with {result['n_rows']:,} rows on each side, which mean nothing."
    )
    lines += [line for note in result["notes"] for line in wrapped(f"Note: {note}.")]
    lines += ["", f"Training took {result['seconds']:.2f} s on this machine.", "", f"What left whose house ({stamp}):"]
    lines += egress_lines(result["sent"])
    lines += ["", f"Attacks ({stamp}):"]
    for outcome in result["attacks"]:
        value = outcome["value"]
        shown = "" if value is None else f", {outcome['measure']} {value['estimate']:.3f}"
        lines += wrapped(f"{outcome['attack']} by {outcome['attacker']}: {outcome['verdict']}{shown}", "  ")
    if not result["attacks"]:
        lines += wrapped(result["not_attacked"] or "there are none for this protocol", "  ")
    return lines
