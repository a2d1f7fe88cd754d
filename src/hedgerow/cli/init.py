"""`hedgerow init`: a folder for a party, with a key that is made here and never leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, print_lines, verb
from hedgerow.cli.unlocking import PassphraseFileOption, passphrase
from hedgerow.errors import InvalidParameter


@verb("The same as JSON on stdout.")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What this party is called; its certificate says so.")],
    *,
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to make it; otherwise a folder of that name.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A table to bring: a file, a folder, or a database.")
    ] = None,
    id: Annotated[  # noqa: A002 - what users call it
        str | None, typer.Option(metavar="COLUMN", help="The column of it that records are matched by.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of it that is to be predicted, if it has one.")
    ] = None,
    dataset: Annotated[str, typer.Option(metavar="NAME", help="What to call the table.")] = "main",
    bind: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; without it this party only dials.")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where partners dial it, if that is not --bind.")
    ] = None,
    days: Annotated[float, typer.Option(help="How long the certificate is valid.")] = 825.0,
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt the key with a passphrase.")] = False,
    passphrase_file: PassphraseFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show party.toml as it would be; make nothing.")] = False,
) -> Outcome:
    """Make a folder for a party: its key, its certificate and a commented party.toml.

    What the options say stands in party.toml, where it can be changed later.

    Example: hedgerow init bank --data loans.parquet --id customer --label defaulted --bind 0.0.0.0:7341
    """
    from hedgerow.node import party_file
    from hedgerow.node.databases import is_database
    from hedgerow.node.home import Home
    from hedgerow.node.keys import check_passphrase, grouped

    secret = None
    if encrypt or passphrase_file is not None:
        secret = check_passphrase(passphrase(passphrase_file, "A new passphrase for the key", twice=True))
    brings = None
    if data is not None:
        source = data if is_database(data) else str(Path(data).absolute())
        brings = party_file.Dataset(dataset, source, id=id, label=label)
    elif id is not None or label is not None:
        raise InvalidParameter("--id and --label are columns of --data, which is missing")
    said: dict[str, Any] = {"dataset": brings, "bind": bind, "advertise": advertise}
    if dry_run:
        planned = Home(home or Path(name))
        planned.check_free(name)
        text = party_file.template(name, **said)
        plan = {"command": "init", "dry_run": True, "name": name, "home": planned.path, "party_toml": text}
        return Outcome(plan, lambda: print_lines([text, f"{planned.path} can be made; nothing was (--dry-run)."]))
    made = Home.create(home or Path(name), name, days=days, passphrase=secret, **said)
    certificate = made.certificate
    result = {
        "command": "init",
        "name": name,
        "home": made.path,
        "party_file": made.party_toml,
        "certificate": made.certificate_file,
        "fingerprint": certificate.fingerprint,
        "valid_until": certificate.x509.not_valid_after_utc.isoformat(),
        "encrypted": secret is not None,
    }
    lines = [
        f"{made.path} is the home of {name}.",
        f"  party.toml       what {name} brings and allows: edit it",
        f"  key.pem          its key{'' if secret is None else ', encrypted'}: keep it, show it to nobody",
        f"  certificate.pem  for partners; valid until {certificate.x509.not_valid_after_utc:%Y-%m-%d}",
        "Its fingerprint:",
        *(f"  {line}" for line in grouped(certificate.fingerprint)),
        f"Next: cd {home or name}, edit party.toml, then hedgerow pair with a partner.",
    ]
    return Outcome(result, lambda: print_lines(lines))
