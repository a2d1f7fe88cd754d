"""`hedgerow protocols`: which protocols there are, and the options of one, as its job declares them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, print_lines, verb


@verb("One JSON object on stdout.")
def protocols(
    name: Annotated[str | None, typer.Argument(help="One of them: show its options.", metavar="NAME")] = None,
) -> Outcome:
    """List the protocols that several parties can run together, or the options of one.

    Example: hedgerow protocols vertical.bucket_rr
    """
    from hedgerow.runtime.protocol import find, names, services

    if name is None:
        listed = {"trainings": list(names()), "services": list(services())}
        lines = [line for kind, found in listed.items() for line in (f"{kind}:", *(f"  {each}" for each in found))]
        return Outcome(listed, lambda: print_lines(lines))
    options = described(find(name).job)
    lines = []
    for each in options:
        lines.append(f"{each['name']}  (default: {each['default']})")
        lines.append(f"    {each['meaning']}; must be {each['must be']}")
    return Outcome({"protocol": name, "options": options}, lambda: print_lines(lines))


def described(job: Any) -> list[dict[str, str]]:
    """The options of a job, in its order."""
    from hedgerow.runtime.protocol import options_of

    return [
        {
            "name": each.name,
            "must be": each.accepts() + (", or None" if each.or_none and not each.needed else ""),
            "default": "required" if each.needed else repr(each.default),
            "meaning": each.help,
        }
        for each in options_of(job)
        if not each.settled
    ]
