"""`hedgerow estimate`: what a run will take before it begins."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, aligned, print_lines, verb, wrapped
from hedgerow.cli.rehearse import SchemaOption, home_if_any, schemas_of
from hedgerow.cli.telling import mention, progress
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, unlocked
from hedgerow.errors import InvalidParameter, JobError

if TYPE_CHECKING:
    from hedgerow.node.costs import Size
    from hedgerow.node.home import Home
    from hedgerow.transport.emulate import Link

_CACHE = "estimates.json"


@verb("The same as JSON on stdout.", is_long=True)
def estimate(
    job: Annotated[
        Path, typer.Argument(metavar="JOB.toml", help="The run, as it would be proposed; with --size, a protocol.")
    ],
    *,
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="[PARTY=]N", help="How many rows a party brings, or all parties; repeatable."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY=N", help="How many columns a party brings whose schema is not known."),
    ] = None,
    schema: SchemaOption = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="BANDWIDTH/ROUND TRIP", help="Between parties, as in 100Mbit/10ms; none: this machine."),
    ] = None,
    peer: Annotated[
        str | None, typer.Option(metavar="PEER", help="Measure the round trip to this peer, which must be up.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="What the estimate may take, about.")] = 60.0,
    probes: Annotated[bool, typer.Option(help="Run probes; without, predict from known costs.")] = True,
    size: Annotated[
        str | None,
        typer.Option(metavar="rows=N,columns=N,...", help="Predict a run of this size, without a job file."),
    ] = None,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Say how long a run will take, how much memory each party needs, and how much is sent, before it begins.

    The job is probed on made-up rows on this machine: a part of the rows, few trees. Probes are kept in the party's
    folder. Of your own rows only the number is looked up. With --no-probes or --size nothing is run but a short
    comparison of machines, and what comes out is a prediction.

    Example: hedgerow estimate job.toml --columns shop=12 --link 100Mbit/10ms
    """
    from hedgerow.node.costs import size_of
    from hedgerow.node.estimate import estimate as estimated
    from hedgerow.node.estimate import predicted_size
    from hedgerow.node.job_file import read_job_file
    from hedgerow.node.links import link_of
    from hedgerow.node.made_up import cast_of, plain_columns

    if size is not None:
        return _predicted(str(job), str(job), size_of(size), None if link is None else link_of(link))
    place = home_if_any(home)
    given = schemas_of(schema)
    for name, n_columns in _counts("--columns", columns).items():
        given[name] = plain_columns(name, n_columns)
    cast = cast_of(read_job_file(job), given, place)
    between = None if link is None else link_of(link)
    if peer is not None:
        between = _measured(place, peer, between, passphrase_file)
    counts = _rows(_counts("--rows", rows), cast)
    if not probes:
        protocol, whole = predicted_size(cast, counts)
        return _predicted(str(job), protocol, whole, between)
    cache = None if place is None else place.path / _CACHE
    with progress("seconds of probing") as on_progress:
        found = estimated(cast, counts, link=between, seconds=seconds, cache=cache, on_progress=on_progress)
    result = {"command": "estimate", "job": str(job), "protocol": cast.job.protocol, "notes": list(cast.notes)}
    result |= found.to_dict()
    return Outcome(result, lambda: print_lines(_lines(result)))


def _predicted(job: str, protocol: str, size: Size, link: Link | None) -> Outcome:
    """From the cost model, scaled to this machine."""
    from hedgerow.engine.losses import MOST_ROWS
    from hedgerow.node import costs
    from hedgerow.node.links import told_bytes

    costs.predict(protocol, size)  # refuses what it does not know, before anything is timed
    slower = costs.slower_here()
    predicted = costs.predict(protocol, size, slower=slower)
    waiting = predicted.link_seconds(link)
    result = {
        "command": "estimate",
        "job": job,
        "protocol": protocol,
        "is_prediction": True,
        "size": asdict(size),
        "link": None if link is None else asdict(link),
        "seconds": None if predicted.seconds is None else predicted.seconds + waiting,
        "seconds_of_work": predicted.seconds,
        "seconds_of_link": waiting,
        "rounds": None if predicted.rounds is None else round(predicted.rounds),
        "bytes": None if predicted.bytes is None else round(predicted.bytes),
        "slower_than_measured": slower,
        "within_measured": costs.is_within_measured(protocol, size),
    }
    sizes = ", ".join(f"{number:,} {name}" for name, number in asdict(size).items() if number)
    lines = wrapped(f"PREDICTION for {protocol}: {sizes}.")
    if predicted.seconds is None:
        lines.append(f"  seconds are not known well enough; the link takes {waiting:,.1f} s")
    else:
        lines.append(f"  {predicted.seconds + waiting:,.1f} s, of which {waiting:,.1f} s for the link")
    if predicted.rounds is not None and predicted.bytes is not None:
        lines.append(f"  {round(predicted.rounds):,} rounds, {told_bytes(predicted.bytes)} sent by all parties")
    note = "Nothing was run but a comparison of machines; see docs/scale.md for what the terms are."
    if not result["within_measured"]:
        note = f"This lies beyond every run that was measured. {note}"
    if size.rows > MOST_ROWS:
        note = f"{note} Sums of gradients hold {MOST_ROWS:,} rows today, and a training of more is refused."
    return Outcome(result, lambda: print_lines([*lines, "", *wrapped(note)]))


def _counts(flag: str, given: list[str] | None) -> dict[str, int]:
    found = {}
    for text in given or []:
        party, equals, number = text.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or (equals and not party) or (flag == "--columns" and not equals):
            raise JobError(f"{flag} takes {'PARTY=N' if flag == '--columns' else 'N or PARTY=N'}, got {text!r}")
        found[party] = int(number)
    return found


def _rows(given: dict[str, int], cast: Any) -> dict[str, int]:
    """By party: what was given for it, what its source holds, what was given for all, what the label holder has."""
    found = {}
    for name in cast.schemas:
        known = given.get(name) or cast.rows.get(name) or given.get("")
        if known is None and cast.label_holder is not None:
            known = given.get(cast.label_holder) or cast.rows.get(cast.label_holder)
        if known is None and cast.label_holder is not None:
            known = next(iter([*given.values(), *cast.rows.values()]), None)
        if known is None:
            raise JobError(f"how many rows {name} brings is not known: give --rows {name}=N")
        found[name] = known
    return found


def _measured(home: Home | None, peer: str, link: Link | None, passphrase_file: Path | None) -> Link:
    """The link to a peer: its round trip as measured, its bandwidth as given, or without a limit."""
    from hedgerow.node.doctor import examine
    from hedgerow.transport.emulate import Link

    if home is None:
        raise InvalidParameter("--peer needs a party's folder: go to one, or give --home FOLDER")
    met = examine(home, unlocked(home, passphrase_file), peer, tell=mention)
    if met.greeted is None:
        failure = met.first_failure
        raise JobError(f"{peer} could not be reached: {'' if failure is None else failure.seen}; see hedgerow doctor")
    mention(f"Round trip to {peer}: {1e3 * met.greeted.round_trip:.2f} ms")
    return Link(met.greeted.round_trip) if link is None else Link(met.greeted.round_trip, link.bandwidth)


def _lines(result: dict[str, Any]) -> list[str]:
    from hedgerow.node.links import told_bytes

    most = max(result["rows"].values())
    lines = wrapped(f"{result['protocol']}, {most:,} rows, {result['trees']} trees:")
    lines.append(
        f"  {result['seconds']:.1f} s: {result['seconds_of_work']:.1f} s as on this machine, and "
        f"{result['seconds_of_link']:.1f} s for the link"
    )
    lines.append(f"  {result['rounds']:,} rounds: messages that wait for each other, half a round trip each")
    cells = [("", "sends", "receives", "messages", "memory")]
    for name, about in result["parties"].items():
        sizes = (told_bytes(about[key]) for key in ("bytes_sent", "bytes_received"))
        cells.append((name, *sizes, f"{about['messages_sent']:,}", told_bytes(about["memory"])))
    lines += ["", *(f"  {line}" for line in aligned(cells, 1))]
    lines += [line for note in result["notes"] for line in wrapped(f"Note: {note}.")]
    return [*lines, "", *wrapped("Probed with all parties on this machine; apart, each has a machine of its own.")]
