"""`hedgerow protocols`: which protocols there are, and the options of one, as its job declares them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import one_line_errors, print_json


def protocols(
    name: Annotated[str | None, typer.Argument(help="One of them: show its options.", metavar="NAME")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the protocols that several parties can run together, or the options of one.

    Example: hedgerow protocols vertical.bucket_rr
    """
    with one_line_errors(as_json=as_json):
        from hedgerow.runtime.protocol import find, names, services

        if name is None:
            listed = {"trainings": list(names()), "services": list(services())}
            print_json(listed) if as_json else typer.echo(
                "\n".join(f"{kind}:\n" + "\n".join(f"  {each}" for each in found) for kind, found in listed.items())
            )
        elif as_json:
            print_json({"protocol": name, "options": described(find(name).job)})
        else:
            for each in described(find(name).job):
                typer.echo(f"{each['name']}  (default: {each['default']})")
                typer.echo(f"    {each['meaning']}; must be {each['must be']}")


def described(job: Any) -> list[dict[str, str]]:
    """The options of a job, in its order."""
    from hedgerow.runtime.options import options_of

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
