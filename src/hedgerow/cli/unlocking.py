"""What verbs of a party have in common: which folder is its home, its passphrase, questions on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli.telling import say
from hedgerow.errors import InvalidParameter

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.peers import Peer
    from hedgerow.transport.mtls import Identity

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="FOLDER", help="The party's folder; otherwise HEDGEROW_HOME or the working directory."
    ),
]
PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Its first line is the key's passphrase; otherwise HEDGEROW_PASSPHRASE or a question."
    ),
]


def unlocked(home: Home, passphrase_file: Path | None) -> Identity:
    """The party's key. The passphrase is asked for only if the key needs one; an expiring certificate is told.

    From here on the log is written as party.toml says: whatever talks to others comes by here.
    """
    from hedgerow.node import logs
    from hedgerow.node.keys import expiry_warning

    logs.start(home)
    identity = home.identity(lambda: passphrase(passphrase_file, f"Passphrase of {home.key}"))
    warning = expiry_warning(identity.certificate, home.name)
    if warning:
        say(f"hedgerow: warning: {warning}")
    return identity


def write_paired(home: Home, identity: Identity, peer: Peer) -> None:
    """Write into the party's trail that it has pinned a certificate."""
    from hedgerow.node.audit import Trail

    facts = {"peer": peer.name, "fingerprint": peer.certificate.fingerprint, "how": peer.how}
    Trail(home.audit, identity).append("paired", **facts, **({"address": peer.address} if peer.address else {}))


def passphrase(file: Path | None, question: str, *, twice: bool = False) -> str:
    """From the file, the environment or a question, in that order."""
    from hedgerow.node.keys import VARIABLE, stored_passphrase

    stored = stored_passphrase(file)
    if stored is not None:
        return stored
    if not sys.stdin.isatty():
        raise InvalidParameter(f"a passphrase is needed: give --passphrase-file FILE or set {VARIABLE}")
    return asked(question, hidden=True, twice=twice)


def asked(question: str, *, hidden: bool = False, twice: bool = False) -> str:
    """An answer from the terminal, or from what stdin is connected to. The question goes to stderr."""
    try:
        answer: str = typer.prompt(question, hide_input=hidden, confirmation_prompt=twice, err=True)
    except typer.Abort as end:
        raise _unanswered(question, end) from None
    return answer


def agreed(question: str) -> bool:
    """Yes or no; no answer is an error, because neither would be the user's word."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as end:
        raise _unanswered(question, end) from None


def _unanswered(question: str, end: BaseException) -> BaseException:
    """The terminal library makes one thing of Ctrl-C and of the end of stdin; they are two."""
    if isinstance(end.__context__, KeyboardInterrupt):
        return KeyboardInterrupt()
    return InvalidParameter(f"{question!r} was not answered; nothing was done")
