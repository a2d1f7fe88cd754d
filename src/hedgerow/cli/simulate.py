"""`hedgerow simulate`: a run between parties on this machine alone, with tables that all are here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, not_done, print_lines, verb
from hedgerow.cli.rehearse import egress_lines
from hedgerow.cli.telling import progress
from hedgerow.errors import JobError

if TYPE_CHECKING:
    from hedgerow.federation.federation import Federation
    from hedgerow.node.job_file import JobFile


@verb("The result as JSON on stdout.", is_long=True)
def simulate(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The run, as it would be proposed.")],
    *,
    data: Annotated[
        list[str], typer.Option(metavar="PARTY=FILE", help="A party's table, .parquet or .csv; one for each party.")
    ],
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to predict; where columns are split, its party's labels.")
    ],
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Match rows by this column, which all tables have.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of row weights, beside the labels.")
    ] = None,
    cv: Annotated[
        int | None, typer.Option(metavar="FOLDS", min=2, help="Cross-validate first, and tell what that cost.")
    ] = None,
    transport: Annotated[
        str, typer.Option(metavar="HOW", help="memory: parties are threads; grpc: processes, over mutual TLS.")
    ] = "memory",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to save the run: model, ledgers, statement.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the job and the tables' columns; train nothing.")
    ] = False,
) -> Outcome:
    """Run a job between parties on this machine, with all their tables: to try it, or where one house holds them.

    The job file is that of `hedgerow propose`. What protects parties from each other protects nobody here, since this
    machine sees everything; the model, the messages and the ledgers are those of the real run.

    Example: hedgerow simulate job.toml --data bank=bank.csv --data shop=shop.csv --label late --id customer --out run
    """
    from hedgerow.node.job_file import read_job_file
    from hedgerow.runtime.running import check_how

    wanted = read_job_file(job)
    check_how(transport, 1.0)
    federation = _federation(wanted, _tables_of(data), label, id_column, weight)
    params = _params(wanted, federation)
    plan = federation.plan(wanted.protocol, **params)
    protocol, cast = plan.chosen.protocol.name, dict(plan.job.cast)
    about: dict[str, Any] = {"command": "simulate", "job": str(job), "protocol": protocol, "parties": cast}
    if dry_run:
        return not_done(about, f"{federation} can be trained by {about['protocol']}; nothing was (--dry-run)")
    tried: dict[str, Any] | None = None
    if cv is not None:
        trial = federation.cross_validate(wanted.protocol, cv=cv, transport=transport, **params)
        costs = {party: cost._asdict() for party, cost in trial.costs.items()}
        tried = {"scoring": trial.scoring, "scores": trial.scores.tolist(), "costs": costs, "words": str(trial)}
    with progress(wanted.protocol) as on_progress:
        run = federation.fit(wanted.protocol, transport=transport, on_progress=on_progress, **params)
    if out is not None:
        run.save(out)
    from hedgerow.node.manifest import after

    sent = [each._asdict() for each in after(dict(run.ledgers))]
    result = {
        **about,
        "run": None if out is None else str(out),
        "iterations": run.model.n_iter_,
        "best_iteration": run.best_iteration,
        "seconds": run.seconds,
        "traffic": {party: meter.total()._asdict() for party, meter in run.meters.items()},
        "sent": sent,
        "cross_validation": tried,
        "statement": run.statement().to_dict(),
    }
    lines = [f"{run.protocol}: {run.model.n_iter_} iterations in {run.seconds:.2f} s"]
    lines += [f"cross-validation: {tried['words']}"] if tried else []
    lines += ["", "What went from whom to whom:", *egress_lines(sent)]
    lines += [] if out is None else ["", f"saved in {out}: hedgerow ledger {out}, hedgerow report {out}"]
    return Outcome(result, lambda: print_lines(lines))


def _tables_of(given: list[str]) -> dict[str, Any]:
    """Party -> table, from options PARTY=FILE."""
    from hedgerow.node.sources import read_file, read_folder

    found: dict[str, Any] = {}
    for text in given:
        party, _, path = text.partition("=")
        if not party or not path or party in found:
            raise JobError(f"--data takes PARTY=FILE, once for each party, got {text!r}")
        found[party] = read_folder(Path(path)) if Path(path).is_dir() else read_file(Path(path), None)
    return found


def _federation(
    job: JobFile, tables: dict[str, Any], label: str, id_column: str | None, weight: str | None
) -> Federation:
    """The parties of the job file with their tables."""
    from hedgerow.federation.federation import Federation
    from hedgerow.runtime.protocol import COORDINATOR, DEALER, LABEL_HOLDER, ROWS, find

    bringing = [name for name, seat in job.parties.items() if seat.role != DEALER and name != COORDINATOR]
    odd = next((name for name in (*bringing, *tables) if (name in tables) != (name in bringing)), None)
    if odd is not None:
        said = "brings data: give --data" if odd in bringing else "brings no data in the job: leave out --data"
        raise JobError(f"{job.path}: {odd} {said} {odd}=FILE")
    with_labels = [name for name in bringing if label in tables[name].column_names]
    is_rows = find(job.protocol).partition == ROWS
    holders = [name for name, seat in job.parties.items() if seat.role == LABEL_HOLDER] or with_labels
    if (is_rows and len(with_labels) < len(bringing)) or (not is_rows and len(holders) != 1):
        whose = ", ".join(with_labels) or "nobody"
        raise JobError(
            f"the label {label!r} is a column of {whose}; "
            + ("every owner of rows needs it" if is_rows else "of one party it must be, or say whose by its role")
        )
    split = {name: _split(tables[name], label, weight) for name in (bringing if is_rows else holders)}
    tables = {name: split[name][0] if name in split else tables[name] for name in bringing}
    if is_rows:
        if id_column is not None or job.matching is not None:
            raise JobError("ids are matched where columns are split; owners of rows have different rows")
        owners = {name: (X, *(each for each in rest if each is not None)) for name, (X, *rest) in split.items()}
        return Federation.horizontal(owners, task=job.task)
    holder = next(iter(split))
    how: dict[str, Any] = {}
    if id_column is not None:
        how = {"id": id_column}
        if job.matching is not None:
            how |= {
                "id_rule": job.matching.rule,
                "duplicates": job.matching.duplicates,
                "minimum": job.matching.minimum,
            }
    elif job.matching is not None:
        raise JobError(f"{job.path} has [matching]: say by which column, --id COLUMN")
    _, y, weights = split[holder]
    return Federation.vertical(tables, labels=(holder, y), sample_weight=weights, task=job.task, **how)


def _split(table: Any, label: str, weight: str | None) -> tuple[Any, Any, Any]:
    from hedgerow.node.sources import require_columns

    require_columns(table.column_names, [label, *([weight] if weight else [])], "the table", "the command names")
    away = [label, *([weight] if weight else [])]
    return table.drop_columns(away), table.column(label), table.column(weight) if weight else None


def _params(job: JobFile, federation: Federation) -> dict[str, Any]:
    """The options of the job file, and who deals or coordinates."""
    from hedgerow.runtime.protocol import COORDINATOR, DEALER

    params = dict(job.options)
    for name, seat in job.parties.items():
        if seat.role == DEALER:
            params.setdefault("dealer", name)
        if seat.role == COORDINATOR and name in federation.parties:
            params["coordinator"] = name
    return params
