"""`hedgerow schema`: a file to fill in with what is public about a table, and a check of one that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import EXIT_CODES_HELP, Outcome, not_done, print_lines, verb, whole_file
from hedgerow.errors import InvalidInput, JobError

app = typer.Typer(
    name="schema",
    help="What is public about a table: make a file to fill in, and check it.\n\n"
    "Example: hedgerow schema check loans.schema.json",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
)


@app.command(epilog=EXIT_CODES_HELP)
@verb("What was written as JSON on stdout.")
def make(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The table, .parquet or .csv, or a folder.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the schema, as JSON.")],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels.")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; repeatable.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The table is public: read bounds, levels and classes off it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at the columns; write nothing.")] = False,
) -> Outcome:
    """Make a schema file for a table: names and types of its columns, and gaps where people know the field.

    Bounds and levels are left for people to fill in: read off the rows, they would tell who earns most. With --public,
    for a table that anybody may see, they are read off it.

    Example: hedgerow schema make loans.parquet --label defaulted --out loans.schema.json
    """
    from hedgerow.node.sources import look_at, require_columns

    columns, _ = look_at(data)
    away = [*([] if label is None else [label]), *(drop or [])]
    require_columns(list(columns), away, data, "the command names")
    document = _read_off(data, label, drop or []) if public else _to_fill_in(columns, label, away)
    gaps = _gaps(document)
    result = {"command": "schema make", "schema": str(out), "columns": len(document["columns"]), "to_fill_in": gaps}
    if dry_run:
        return not_done(
            result, f"a schema of {len(document['columns'])} columns can be made; nothing was written (--dry-run)"
        )
    with whole_file(out) as partial:
        partial.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = [f"{out}: {len(document['columns'])} columns"]
    if gaps:
        lines += [f"  to fill in: {gap}" for gap in gaps]
        lines += [f"then: hedgerow schema check {out} --data {data}"]
    return Outcome(result, lambda: print_lines(lines))


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The file.")],
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DATA", help="A table that it should describe, by names of columns.")
    ] = None,
) -> Outcome:
    """Check a schema file: whether everything is filled in, and whether it describes a table's columns.

    No row of the table is read. Exit code 3 if the file is not a whole schema, or describes another table.

    Example: hedgerow schema check loans.schema.json --data loans.parquet
    """
    from hedgerow.schema import Schema

    try:
        document = json.loads(schema.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{schema}: not a schema that can be read: {problem}") from None
    gaps = _gaps(document)
    if gaps:
        raise InvalidInput(f"{schema}: to be filled in: {'; '.join(gaps)}")
    whole = Schema.load(schema)
    result: dict[str, Any] = {"command": "schema check", "schema": str(schema), "columns": list(whole.names)}
    lines = [f"{schema}: a schema of {len(whole.names)} columns"]
    if data is not None:
        from hedgerow.node.sources import look_at, require_columns

        there, n_rows = look_at(data)
        require_columns(list(there), list(whole.names), data, "the schema describes")
        others = [name for name in there if name not in whole.names]
        result |= {"data": str(data), "rows": n_rows, "not_described": others}
        lines += [f"  {data} has all of them" + (f", and besides: {', '.join(others)}" if others else "")]
    return Outcome(result, lambda: print_lines(lines))


def _to_fill_in(types: dict[str, str], label: str | None, away: list[str]) -> dict[str, Any]:
    """Names and types alone; null and empty lists are the gaps."""
    columns: list[dict[str, Any]] = []
    for name, kind in types.items():
        if name in away:
            continue
        if _has_levels(kind):
            columns.append({"name": name, "levels": [], "may_be_missing": False})
        else:
            whole = kind.startswith(("int", "uint"))
            columns.append({"name": name, "bounds": [None, None], "integer": whole, "may_be_missing": False})
    if not columns:
        raise JobError("a schema needs at least one column beside the label and those left out")
    is_amount = label is not None and types[label].startswith(("float", "double", "half", "decimal"))
    about: dict[str, Any] = {"label_bounds": [None, None] if is_amount else None, "classes": None}
    if label is not None and not is_amount:
        about["classes"] = []
    return {"columns": columns, **about}


def _has_levels(kind: str) -> bool:
    return "string" in kind or kind.startswith(("dictionary", "bool"))


def _read_off(data: Path, label: str | None, drop: list[str]) -> dict[str, Any]:
    from hedgerow.node.sources import read_file, read_folder
    from hedgerow.schema import Schema

    table = read_folder(data) if data.is_dir() else read_file(data, None)
    return Schema.from_public(table.drop_columns(drop), label=label).to_dict()


def _gaps(document: Any) -> list[str]:
    """What a person has yet to say; nothing is said about what is no schema at all."""
    if not isinstance(document, dict) or not isinstance(document.get("columns"), list):
        return []
    found = []
    for column in document["columns"]:
        if isinstance(column, dict) and isinstance(bounds := column.get("bounds"), list) and None in bounds:
            found.append(f"the lowest and highest value of {column.get('name')!r}")
        if isinstance(column, dict) and column.get("levels") == []:
            found.append(f"the levels of {column.get('name')!r}")
    if isinstance(bounds := document.get("label_bounds"), list) and None in bounds:
        found.append("the lowest and highest label")
    if document.get("classes") == []:
        found.append("the classes")
    return found
