"""`hedgerow manifest`: what leaves this party's house in a run, before it and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hedgerow.cli.outcome import Outcome, print_lines, verb, wrapped
from hedgerow.cli.propose import ProposalArgument
from hedgerow.cli.rehearse import egress_lines
from hedgerow.cli.unlocking import HomeOption

if TYPE_CHECKING:
    from hedgerow.ledger import Ledger
    from hedgerow.node.home import Home
    from hedgerow.node.proposal import Proposal

_BOOKS = ("matching", "ledger")  # of a run, in the order in which they were written


@verb("The same as JSON on stdout.")
def manifest(proposal: ProposalArgument = None, *, home: HomeOption = None) -> Outcome:
    """Show what would leave this party's house in a run, and after it what did, from the ledger.

    Give the beginning of a proposal's hash or of a run's id.

    Example: hedgerow manifest 3f9a
    """
    from hedgerow.node.home import Home
    from hedgerow.node.manifest import after, unannounced
    from hedgerow.node.papers import Papers

    place = Home.find(home)
    wanted = Papers(place).find(proposal).proposal
    announced = announced_by(wanted)
    own = [each for each in announced if each.sender == place.name]
    books = books_of(place, wanted.run_id)
    left = [each for book in books for each in after({place.name: book})]
    came = [each for book in books for each in after({place.name: book}, "learned")]
    result = {
        "command": "manifest",
        "hash": wanted.hash,
        "run_id": wanted.run_id,
        "protocol": wanted.protocol,
        "party": place.name,
        "announced": [each._asdict() for each in announced],
        "has_run": bool(books),
        "sent": [each._asdict() for each in left],
        "received": [each._asdict() for each in came],
        "unannounced": [each._asdict() for each in unannounced(own, left)],
    }
    return Outcome(result, lambda: print_lines(_lines(result)))


def announced_by(proposal: Proposal) -> list[Any]:
    """What parties may send in all parts of the run."""
    from hedgerow.node.manifest import before
    from hedgerow.node.words import matching_cast
    from hedgerow.runtime.protocol import find

    job = proposal.matching_job
    found = [] if job is None else before([find(job.NAME)], matching_cast(job))
    return [*found, *before([proposal.chosen.protocol], proposal.job.cast)]


def books_of(home: Home, run_id: str) -> list[Ledger]:
    """The ledgers of a run, of its matching and of its training, as far as they are there."""
    from hedgerow.ledger import Ledger
    from hedgerow.node.documents import told_of

    books = []
    for path in (home.runs / run_id / f"{name}.jsonl" for name in _BOOKS):
        if path.exists():
            with told_of(path):
                books.append(Ledger.from_json_lines(home.name, path.read_text(encoding="utf-8")))
    return books


def _lines(result: dict[str, Any]) -> list[str]:
    party = result["party"]
    lines = [f"Run {result['run_id'][:12]} by {result['protocol']}, seen by {party}."]
    lines += ["", f"What may leave {party}:"]
    for each in result["announced"]:
        if each["sender"] == party:
            lines += wrapped(f"{each['message']} to {each['to']}, {each['size']}", "  ")
            lines += wrapped(f"{each['what']} ({each['protection']})", "      ")
    if not result["has_run"]:
        return [*lines, "", "It has not run."]
    lines += ["", f"What left {party}:", *egress_lines(result["sent"])]
    lines += ["", f"What {party} received:", *egress_lines(result["received"])]
    said = "Everything that left had been announced."
    return [*lines, "", f"NOT ANNOUNCED: {len(result['unannounced'])} kinds." if result["unannounced"] else said]
