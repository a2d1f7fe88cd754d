"""`hedgerow ledger`: who learned what in a saved run."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.files import read_run
from hedgerow.cli.outcome import WIDTH, Outcome, aligned, print_lines, verb, wrapped
from hedgerow.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hedgerow.federation.alignment import Alignment
    from hedgerow.federation.run import Run
    from hedgerow.ledger import Ledger, Meter


@verb("The same as JSON on stdout.")
def ledger(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that run.save(folder) wrote.")],
    *,
    party: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this party learned and disclosed.")
    ] = None,
) -> Outcome:
    """Show who learned what in a run: messages, bytes, what they disclosed, how it was protected.

    Example: hedgerow ledger runs/loans --party shop
    """
    result = _result(read_run(run), party)
    return Outcome(result, lambda: print_lines(_lines(result)))


def _result(run: Run, party: str | None) -> dict[str, Any]:
    if party is not None and party not in run.ledgers:
        raise InvalidParameter(f"--party {party!r}: the run has ledgers of {', '.join(run.ledgers)}")
    run.reconcile()  # what is shown below is what both sides wrote
    matching = None
    if run.alignment is not None:
        run.alignment.reconcile()
        matching = {"protocol": "vertical.aligning", **_told(run.alignment, party)}
    return {
        "command": "ledger",
        "protocol": run.protocol,
        "recorded": list(run.transcripts),
        "lost": run.lost,
        "party": party,
        "matching": matching,
        **_told(run, party),
    }


def _told(found: Run | Alignment, party: str | None) -> dict[str, Any]:
    """What passed between all, or between one party and the others, how much that was, and what was promised."""
    return {
        "transport": found.transport,
        "seconds": found.seconds,
        "messages": [entry for entry in _entries(found.ledgers) if party in (None, entry["from"], entry["to"])],
        "totals": {name: _total(found.meters, name) for name in found.ledgers if party in (None, name)},
        "statement": found.statement().to_dict(),
    }


def _entries(ledgers: Mapping[str, Ledger]) -> list[dict[str, Any]]:
    """One for each sender, receiver and kind of message, as the sender wrote it; of lost senders as was received."""
    from hedgerow.report.flows import flows

    return [
        {
            "message": flow.message,
            "from": flow.sender,
            "to": flow.receiver,
            "number": flow.number,
            "bytes": flow.n_bytes,
            "with_noise": flow.with_noise,
            "what": flow.what,
            "protection": flow.protection,
        }
        for flow in flows(ledgers)
    ]


def _total(meters: Mapping[str, Meter], party: str) -> dict[str, int]:
    total = meters[party].total()._asdict() if party in meters else {}
    return {name: int(value) for name, value in total.items()}


# --- for people ------------------------------------------------------------------------------------------------------


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [f"A run of {result['protocol']} over {result['transport']}, {result['seconds']:.2f} s"]
    if result["lost"]:
        lines.append(f"Lost on the way: {', '.join(result['lost'])}")
    if result["recorded"]:
        lines += wrapped("Recorded: the folder holds transcripts, which are as sensitive as the data.")
    if result["matching"] is not None:
        matching = result["matching"]
        lines += ["", f"Before it, matching by ids over {matching['transport']}, {matching['seconds']:.2f} s"]
        lines += [*_passed(matching), "", "The training"]
    return lines + _passed(result)


def _passed(result: dict[str, Any]) -> list[str]:
    """What each party learned, the totals and the statement, of a training or of a matching."""
    lines: list[str] = []
    for receiver in dict.fromkeys(entry["to"] for entry in result["messages"]):
        entries = [entry for entry in result["messages"] if entry["to"] == receiver]
        lines += ["", *_learned(receiver, entries)]
    totals: list[tuple[str, ...]] = [("party", "sent", "bytes", "received", "bytes")]
    for party, total in result["totals"].items():
        counts = (total.get(key, 0) for key in ("messages_sent", "bytes_sent", "messages_received", "bytes_received"))
        totals.append((party, *(f"{count:,}" for count in counts)))
    lines += ["", "In all", *(f"  {row}" for row in aligned(totals, n_left=1)), ""]
    for sentence in result["statement"]["words"].replace("\n  ", " ").splitlines():  # each was a line or more
        lines += textwrap.wrap(sentence, WIDTH, subsequent_indent="  " if sentence.startswith("- ") else "") or [""]
    return lines


def _learned(receiver: str, entries: list[dict[str, Any]]) -> list[str]:
    """A table of what one party received, each kind of message with what it told below it."""
    rows: list[tuple[str, ...]] = [("from", "message", "number", "bytes")]
    rows += [(e["from"], e["message"], f"{e['number']:,}", f"{e['bytes']:,}") for e in entries]
    head, *body = aligned(rows, n_left=2)
    lines = [f"What {receiver} learned", f"  {head}"]
    for row, entry in zip(body, entries, strict=True):
        lines += [f"  {row}", *wrapped(f"{entry['what']} ({entry['protection']})", "      ")]
    return lines
