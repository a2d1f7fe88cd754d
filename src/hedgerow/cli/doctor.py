"""`hedgerow doctor`: why this party and a peer do not come together, and what to do about it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import ExitCode, Outcome, print_lines, say, verb, wrapped
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, unlocked

_MARKS = {"ok": "ok  ", "failed": "FAIL", "seen by the peer": "    ", "not reached": "    "}


@verb("The same as JSON on stdout.")
def doctor(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The name of a party that you are paired with.")],
    *,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long the peer may take to appear.")] = 30.0,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Go from the peer's address to the hash of your proposals, and name the first step that fails, with its fix.

    Run it on both sides at once, or while the peer proposes, accepts or waits to run. Exit code 10 if a step fails.

    Example: hedgerow doctor shop
    """
    from hedgerow.node.doctor import examine
    from hedgerow.node.home import Home

    place = Home.find(home)
    found = examine(place, unlocked(place, passphrase_file), peer, wait=wait, tell=say)
    result = {"command": "doctor", **found.to_dict()}
    code = ExitCode.OK if found.first_failure is None else ExitCode.DOCTOR
    return Outcome(result, lambda: print_lines(_lines(result)), code)


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['party']} and {result['peer']}; {result['dials']} dials."]
    for step in result["steps"]:
        about = step["seen"] or step["state"]
        first, *more = wrapped(f"{_MARKS[step['state']]}  {step['name']:<9} {about}") or [""]
        lines += [first, *(f"{'':16} {line}" for line in more)]
    if result["is_well"]:
        return [*lines, "", "All is well."]
    return [*lines, "", *wrapped(f"First failing step: {result['failed']}."), *wrapped(f"Fix: {result['fix']}.")]
