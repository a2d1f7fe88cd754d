"""`hedgerow manifest`: what leaves this party's house in a run, before it and after it."""

from __future__ import annotations

from typing import Any

from hedgerow.cli.outcome import Outcome, print_lines, verb, wrapped
from hedgerow.cli.propose import ProposalArgument
from hedgerow.cli.rehearse import egress_lines
from hedgerow.cli.unlocking import HomeOption


@verb("The same as JSON on stdout.")
def manifest(proposal: ProposalArgument = None, *, home: HomeOption = None) -> Outcome:
    """Show what would leave this party's house in a run, and after it what did, from the ledger.

    Give the beginning of a proposal's hash or of a run's id.

    Example: hedgerow manifest 3f9a
    """
    from hedgerow.node.home import Home
    from hedgerow.node.manifest import of_run
    from hedgerow.node.papers import Papers

    place = Home.find(home)
    result = {"command": "manifest", **of_run(place, Papers(place).find(proposal).proposal)}
    return Outcome(result, lambda: print_lines(_lines(result)))


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
