"""The command `hedgerow`: one file per verb. Heavy things (numba, scikit-learn, arrow) load when a verb runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from hedgerow.cli import (
    attack,
    audit,
    demo,
    doctor,
    estimate,
    export,
    init,
    keys,
    ledger,
    manifest,
    pack,
    pair,
    predict,
    propose,
    protocols,
    rehearse,
    report,
    run,
    schema,
    serve,
    simulate,
    status,
    train,
    version,
    warmup,
    watch,
)
from hedgerow.cli.outcome import EXIT_CODES_HELP, ExitCode, Verbs, one_line_errors
from hedgerow.cli.telling import say

app = typer.Typer(
    name="hedgerow",
    cls=Verbs,
    help="Gradient-boosted trees on data that may not be pooled.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def hedgerow(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --version: versions, cores and kernels as JSON.")
    ] = False,
) -> None:
    """Answer --version; everything else is a verb's."""
    if show_version:
        with one_line_errors(as_json=as_json):
            version.show(as_json=as_json)
        raise typer.Exit(ExitCode.OK)
    if context.invoked_subcommand is None:
        raise typer.BadParameter("say what to do, for instance: hedgerow demo")


VERBS = (
    train,
    predict,
    export,
    ledger,
    report,
    attack,
    protocols,
    demo,
    init,
    pair,
    propose,
    run,
    serve,
    status,
    doctor,
    rehearse,
    simulate,
    manifest,
    estimate,
    pack,
    watch,
    warmup,
)
for verb in VERBS:
    app.command(epilog=EXIT_CODES_HELP)(getattr(verb, verb.__name__.rpartition(".")[2]))
for function in (propose.inspect, propose.accept, propose.refuse, run.resume, run.cancel):
    app.command(epilog=EXIT_CODES_HELP)(function)
for group in (keys, audit, schema):
    app.add_typer(group.app)


def main() -> None:
    """The entry point of the installed command."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # a peer that is not there yet is told in our words, not in grpc's
    try:
        app(prog_name="hedgerow")
    except KeyboardInterrupt:  # before or after a verb, which answers for itself
        say("hedgerow: interrupted")
        sys.exit(ExitCode.INTERRUPTED)
