"""`hedgerow propose`, `inspect`, `accept`, `refuse`: what all parties of a run agree on before anything moves."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import WIDTH, Outcome, not_done, print_lines, verb
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, agreed, unlocked
from hedgerow.errors import InvalidParameter, JobError

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Paper

ProposalArgument = Annotated[
    str | None,
    typer.Argument(metavar="PROPOSAL", help="The beginning of its hash; not needed if there is only one open."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Check a proposal that is here already; sign and send nothing, and ask nobody."),
]
WaitOption = Annotated[float, typer.Option(metavar="SECONDS", help="How long to look for partners.")]


@verb("The same as JSON on stdout.")
def propose(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="What to train, with whom.")],
    *,
    wait: WaitOption = 600.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be proposed; sign and send nothing.")
    ] = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Propose a run to its parties: sign it, hand it over, and wait for their answers.

    What you propose you accept. Without --wait 0 it waits until all have answered; what is signed stays signed if you
    interrupt it, and `hedgerow run` hands it over as well.

    Example: hedgerow propose job.toml
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.home import Home
    from hedgerow.node.job_file import read_job_file
    from hedgerow.node.papers import Papers, answer
    from hedgerow.node.proposal import propose as made_from
    from hedgerow.node.words import view

    place = Home.find(home)
    proposal = made_from(read_job_file(job), place)
    seen = view(proposal, place)
    if seen.refusals:
        raise JobError(f"your own policy does not allow it: {seen.refusals[0].sentence}")
    if dry_run:
        return Outcome(
            {"command": "propose", "dry_run": True, **seen.to_dict()}, lambda: print_lines(_folded(seen.lines()))
        )
    identity = unlocked(place, passphrase_file)
    trail = Trail(place.audit, identity)
    names = [seat.name for seat in proposal.parties]
    trail.append("proposed", proposal=proposal.hash, protocol=proposal.protocol, parties=names, run_id=proposal.run_id)
    trail.append("accepted", proposal=proposal.hash, party=place.name, fingerprint=identity.fingerprint)
    paper = Papers(place).keep(proposal, [answer(proposal, identity, "accept")])
    say(f"Proposed {proposal.hash}.")
    if wait > 0:
        paper = _hand_over(place, identity, paper, wait)
    return _told("propose", paper)


@verb("The same as JSON on stdout.")
def inspect(
    proposal: ProposalArgument = None,
    *,
    wait: WaitOption = 10.0,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Read a proposal in plain words: what of yours would take part, what would leave, what would hold.

    Partners are asked for new proposals first. Nothing is signed, and no row is read where a look at the file will do.

    Example: hedgerow inspect
    """
    from hedgerow.node.home import Home
    from hedgerow.node.words import view

    place = Home.find(home)
    paper = _fetched(place, proposal, wait, passphrase_file)
    seen = view(paper.proposal, place)
    result = {"command": "inspect", "state": paper.state, **seen.to_dict()}
    return Outcome(result, lambda: print_lines(_folded([*seen.lines(), "", f"It is {paper.state}."])))


@verb("The same as JSON on stdout; the question stays on stderr.")
def accept(
    proposal: ProposalArgument = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; only for hashes in [policy] approved.")] = False,
    wait: WaitOption = 60.0,
    dry_run: DryRunOption = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Accept a proposal: read it, answer the question, and its hash is signed with your key.

    Example: hedgerow accept
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Papers, answer
    from hedgerow.node.words import view

    place = Home.find(home)
    paper = _fetched(place, proposal, 0.0 if dry_run else wait, passphrase_file)
    paper.proposal.check_now()
    seen = view(paper.proposal, place, unattended=yes)
    if seen.refusals:
        raise JobError(f"your policy does not allow it: {seen.refusals[0].sentence}")
    for name in paper.proposal.peers_of(place.name):
        place.peers.get(name)  # whoever is not paired cannot be talked to later either
    if dry_run:
        shown = _folded([*seen.lines(), "", "It can be accepted; nothing was signed (--dry-run)."])
        return Outcome({"command": "accept", "dry_run": True, **seen.to_dict()}, lambda: print_lines(shown))
    if not yes:
        for line in _folded(seen.lines()):
            say(line)
        if not agreed("Accept it?"):
            raise JobError("it was not accepted; nothing was signed. hedgerow refuse tells the others")
    identity = unlocked(place, passphrase_file)
    facts = {"proposal": paper.proposal.hash, "party": place.name, "fingerprint": identity.fingerprint}
    Trail(place.audit, identity).append("accepted", **facts, unattended=yes)
    paper = Papers(place).keep(paper.proposal, [answer(paper.proposal, identity, "accept")])
    return _told("accept", _hand_over(place, identity, paper, min(wait, 10.0), once=True))


@verb("The same as JSON on stdout.")
def refuse(
    proposal: ProposalArgument = None,
    *,
    wait: WaitOption = 10.0,
    dry_run: DryRunOption = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Refuse a proposal. The others learn that you did, and one code from a public list; never the sentence.

    The code is that of the first thing your policy has against it, otherwise that somebody here refused.

    Example: hedgerow refuse 3f9a
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Papers, answer
    from hedgerow.node.policy import RefusalCode
    from hedgerow.node.words import view

    place = Home.find(home)
    paper = _fetched(place, proposal, 0.0 if dry_run else wait, passphrase_file)
    against = view(paper.proposal, place).refusals
    code = against[0].code if against else RefusalCode.BY_HAND
    if dry_run:
        result = {"command": "refuse", "hash": paper.proposal.hash, "code": int(code), "words": code.words}
        return not_done(result, f"The others would be told: {code.words}. Nothing was signed (--dry-run).")
    identity = unlocked(place, passphrase_file)
    Trail(place.audit, identity).append(
        "refused",
        proposal=paper.proposal.hash,
        party=place.name,
        codes=[int(each.code) for each in against] or [int(code)],
    )
    paper = Papers(place).keep(paper.proposal, [answer(paper.proposal, identity, "refuse", code)])
    return _told("refuse", _hand_over(place, identity, paper, wait, once=True))


# --- papers on their way ---------------------------------------------------------------------------------------------


def _fetched(home: Home, start: str | None, wait: float, passphrase_file: Path | None) -> Paper:
    """The proposal that is meant; if it is not here, partners are asked for it."""
    from hedgerow.node.desk import Node
    from hedgerow.node.papers import Papers

    papers = Papers(home)
    try:
        return papers.find(start)
    except InvalidParameter:
        if not home.peers.names() or wait <= 0:
            raise
    with Node(home, unlocked(home, passphrase_file)) as node:
        node.exchange_until(lambda: _is_there(papers, start), node.peers, wait, say)
    return papers.find(start)


def _is_there(papers: Any, start: str | None) -> bool:
    try:
        papers.find(start)
    except InvalidParameter:
        return False
    return True


def _hand_over(home: Home, identity: Any, paper: Paper, wait: float, *, once: bool = False) -> Paper:
    """Look for the parties until all have answered, or only until each has been met once."""
    from hedgerow.node.desk import Node

    hash_ = paper.proposal.hash
    peers = paper.proposal.peers_of(home.name)
    with Node(home, identity, peers) as node:

        def is_answered() -> bool:
            now = node.papers.get(hash_)
            return not once and (not now.missing or bool(now.refused_by))

        node.exchange_until(is_answered, peers, wait, say, once=once)
        return node.papers.get(hash_)


def _told(command: str, paper: Paper) -> Outcome:
    proposal = paper.proposal
    refused = {name: {"code": int(code), "words": code.words} for name, code in paper.refused_by.items()}
    result = {
        "command": command,
        "hash": proposal.hash,
        "run_id": proposal.run_id,
        "state": paper.state,
        "accepted": [name for name, said in paper.answers.items() if said["says"] == "accept"],
        "refused": refused,
        "missing": list(paper.missing),
    }
    lines = [f"Proposal {proposal.hash[:12]} is {paper.state}."]
    lines += [f"  {name}: {code.words}" for name, code in paper.refused_by.items()]
    if paper.is_agreed:
        lines.append(f"Next, at every party: hedgerow run {proposal.hash[:12]}")
    return Outcome(result, lambda: print_lines(lines))


def _folded(lines: list[str]) -> list[str]:
    """In the width of a terminal; what belongs to a point stands below it."""
    return [
        part
        for line in lines
        for part in (textwrap.wrap(line, WIDTH, subsequent_indent="  " * line.startswith("- ")) or [""])
    ]
