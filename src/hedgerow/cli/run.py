"""`hedgerow run`: this party's part of a run that all have accepted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, not_done, print_lines, verb
from hedgerow.cli.propose import ProposalArgument, WaitOption
from hedgerow.cli.telling import mention, progress, say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, unlocked
from hedgerow.errors import JobError

if TYPE_CHECKING:
    from hedgerow.ledger import Ledger
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Paper

MetricsOption = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="Answer Prometheus there while it runs; a port alone is one of 127.0.0.1."
    ),
]


RunDryOption = Annotated[
    bool, typer.Option("--dry-run", help="Check proposal, policy and data as far as this party can; ask nobody.")
]


@verb("The same as JSON on stdout.", is_long=True)
def run(
    proposal: ProposalArgument = None,
    *,
    wait: WaitOption = 600.0,
    metrics: MetricsOption = None,
    dry_run: RunDryOption = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Train: match rows if the proposal says so, then this party's role, until its part of the model is on the disk.

    Every party runs this command; the first ones wait for the others. Only a proposal that all have signed is run.

    Example: hedgerow run
    """
    return _played(proposal, wait, home, passphrase_file, metrics, resume=False, dry_run=dry_run)


@verb("The same as JSON on stdout.", is_long=True)
def resume(
    proposal: ProposalArgument = None,
    *,
    wait: WaitOption = 600.0,
    metrics: MetricsOption = None,
    dry_run: RunDryOption = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Take up a run that broke off, at any party, after the last tree that all have kept.

    Every party runs this command, also those whose own process did not fail. Nothing is charged or drawn a second time.

    Example: hedgerow resume
    """
    return _played(proposal, wait, home, passphrase_file, metrics, resume=True, dry_run=dry_run)


@verb("The same as JSON on stdout.")
def cancel(
    proposal: ProposalArgument = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which process would be told; tell none.")] = False,
    home: HomeOption = None,
) -> Outcome:
    """Stop a run of this party that is under way; the others are told that somebody here stopped it.

    It can be taken up again with hedgerow resume.

    Example: hedgerow cancel
    """
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Papers

    place = Home.find(home)
    found = Papers(place).find(proposal).proposal
    pid = running_pid(place.runs / found.run_id)
    if pid is None:
        raise JobError(f"the run of proposal {found.hash[:12]} is not running here; see hedgerow status")
    result = {"command": "cancel", "hash": found.hash, "pid": pid}
    if dry_run:
        return not_done(result, f"Process {pid} would be told to stop; it was not (--dry-run).")
    os.kill(pid, signal.SIGINT)
    lines = [f"The run of proposal {found.hash[:12]} was told to stop (process {pid})."]
    return Outcome(result, lambda: print_lines(lines))


def running_pid(folder: Path) -> int | None:
    """The process that plays a run here, if there is one: it holds a lock that ends with it."""
    path = folder / "lock"
    if (folder / "run.json").exists() or not path.exists():
        return None
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = file.read(20)
            return int(told) if told.isdigit() else None
    return None


def _played(
    proposal: str | None,
    wait: float,
    home: Path | None,
    passphrase_file: Path | None,
    metrics: str | None,
    *,
    resume: bool,
    dry_run: bool,
) -> Outcome:
    from hedgerow.node import logs
    from hedgerow.node.desk import Node
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Papers
    from hedgerow.node.playing import play

    place = Home.find(home)
    paper = Papers(place).find(proposal)
    hash_ = paper.proposal.hash
    if dry_run:
        return _checked(place, paper, resume=resume)
    if paper.refused_by:
        raise JobError(f"the proposal {hash_[:12]} is {paper.state}")
    identity = unlocked(place, passphrase_file)
    logs.of_run(paper.proposal.run_id)
    with (
        _measured(metrics, place.name, paper.proposal.run_id) as (books, count),
        Node(place, identity, paper.proposal.peers_of(place.name)) as node,
    ):
        mention(f"Proposal {hash_[:12]}: waiting for {', '.join(node.peers)} ...")
        with progress(paper.proposal.protocol) as draw:

            def on_progress(done: int, total: int) -> None:
                count(done, total)
                draw(done, total, "" if "ledger" in books else "matching rows")

            folder = play(node, paper, wait=wait, on_progress=on_progress, resume=resume, books=books, tell=mention)
    logs.LOGGER.info("the run is over; what %s has of it is in %s", place.name, folder)
    return _outcome("resume" if resume else "run", folder)


def _checked(home: Home, paper: Paper, *, resume: bool) -> Outcome:
    """What this party can see by itself: the proposal, its policy, its partners' certificates, columns of its data."""
    from hedgerow.node.playing import check_may_begin

    proposal, place = paper.proposal, check_may_begin(home, paper, resume=resume)
    result = {
        "command": "resume" if resume else "run",
        "hash": proposal.hash,
        "run_id": proposal.run_id,
        "protocol": proposal.protocol,
        "state": paper.state,
        "missing": list(paper.missing),
        "attempt": place.attempts + 1,
        "folder": place.folder,
    }
    ready = "can run" if paper.is_agreed else f"cannot run yet: it is {paper.state}"
    return not_done(result, f"Proposal {proposal.hash[:12]} {ready}; nobody was asked (--dry-run).")


@contextlib.contextmanager
def _measured(
    given: str | None, party: str, run_id: str
) -> Iterator[tuple[dict[str, Ledger], Callable[[int, int], Any]]]:
    """Where ledgers are watched and progress is counted; at a port of its own if one is given."""
    from hedgerow.node.addresses import is_local
    from hedgerow.node.metrics import Metrics, address_of

    if given is None:
        yield {}, lambda _done, _total: None
        return
    address = address_of(given)
    with Metrics(address, party=party, run_id=run_id) as metrics:
        mention(f"Metrics: http://{given if ':' in given else f'{address[0]}:{metrics.port}'}/metrics")
        if not is_local(address[0]):
            say(f"hedgerow: warning: whoever can reach {given} can read them; there is no password")
        yield metrics.books, metrics.on_progress


def _outcome(command: str, folder: Path) -> Outcome:
    from hedgerow.node.playing import read_run
    from hedgerow.runtime.saved_files import damage_told, read_object

    about = read_run(folder)
    stated = folder / "statement.json"
    total = about["traffic"]["ledger"]["total"]
    lines = [
        (
            f"The run is over after {about['seconds']:.1f} s: {total['bytes_sent'] / 1e6:.2f} MB sent, "
            f"{total['bytes_received'] / 1e6:.2f} MB received."
        ),
        *([] if about["n_matched"] is None else [f"{about['n_matched']:,} rows matched."]),
        f"What {about['party']} has of it is in {folder}:",
        *(f"  {path.name}" for path in sorted(folder.iterdir())),
        f"As a page for people who sign: hedgerow report {folder.name[:12]}",
    ]
    if stated.exists():
        with damage_told(f"{stated} is damaged"):
            lines += ["", *read_object(stated)["words"].splitlines()]
    return Outcome({"command": command, "folder": folder, **about}, lambda: print_lines(lines))
