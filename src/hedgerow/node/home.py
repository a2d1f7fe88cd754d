"""A party's folder: what it brings and allows, its key, whom it knows, what was proposed and run.

    bank/
      party.toml              what this party brings and allows; for people to edit
      key.pem certificate.pem  old-keys/
      peers/<name>.json       who is paired
      revoked.json            who is never accepted again
      proposals/  runs/       what was proposed, what was run
      budget.sqlite           privacy that is spent
      audit.jsonl             what happened

Everything in it is for its owner alone to read (folders have mode 700).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.node import keys
from hedgerow.node.documents import write_whole
from hedgerow.node.peers import Peers
from hedgerow.runtime.saved_files import private_folder
from hedgerow.transport.mtls import Certificate, Identity, check_party_names

if TYPE_CHECKING:
    from hedgerow.node.party_file import PartyFile

VARIABLE = "HEDGEROW_HOME"


class Home:
    """The folder of one party. Making the object reads nothing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.party_toml = self.path / "party.toml"
        self.key = self.path / keys.KEY_FILE
        self.certificate_file = self.path / keys.CERTIFICATE_FILE
        self.peers_folder = self.path / "peers"
        self.revoked = self.path / "revoked.json"
        self.proposals = self.path / "proposals"
        self.runs = self.path / "runs"
        self.budget = self.path / "budget.sqlite"
        self.audit = self.path / "audit.jsonl"

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        name: str,
        *,
        days: float = keys.DAYS,
        passphrase: str | None = None,
        **said: Any,
    ) -> Home:
        """A new folder with a key, a certificate and a commented party.toml, which says what `template` is told.

        A folder that is there may be used if it holds no key; a party.toml in it is kept.
        """
        from hedgerow.node.party_file import SCHEMA_FILE, json_schema, template

        text = template(name, **said)
        home = cls(path)
        home.check_free(name)
        for folder in (home.path, home.peers_folder, home.proposals, home.runs):
            private_folder(folder)
        keys.make(home.path, name, days=days, passphrase=passphrase)
        if not home.party_toml.exists():
            write_whole(home.party_toml, text.encode())
        write_whole(home.path / SCHEMA_FILE, json.dumps(json_schema(), indent=2).encode())
        return home

    def check_free(self, name: str) -> None:
        """An error unless a party of that name can be made here."""
        check_party_names((name,))
        if self.path.exists() and not self.path.is_dir():
            raise InvalidInput(f"{self.path} is a file; give another folder with --home")
        keys.check_no_key(self.path)

    @classmethod
    def find(cls, given: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ) -> Home:
        """The folder that was given, that of HEDGEROW_HOME, or the working directory if it has a party.toml."""
        variable = environment.get(VARIABLE)
        home = cls(given or variable or Path())
        if home.party_toml.is_file():
            return home
        where = "--home" if given else VARIABLE if variable else ""
        if where:
            raise InvalidParameter(f"{where}: there is no party.toml in {home.path}; hedgerow init NAME makes one")
        raise InvalidParameter(
            f"this folder is not a party's: it has no party.toml. Go to one, give --home FOLDER or set {VARIABLE}; "
            "hedgerow init NAME makes one"
        )

    @property
    def certificate(self) -> Certificate:
        """The party's own certificate, as it is on the disk now."""
        return keys.read_certificate(self.path)

    @cached_property
    def name(self) -> str:
        """The party's name, as its certificate has it."""
        names = self.certificate.names
        if not names:
            raise InvalidInput(f"{self.certificate_file} has no name in it (subject alternative name, DNS)")
        check_party_names(names[:1])
        return names[0]

    @cached_property
    def party_file(self) -> PartyFile:
        """What party.toml says, read once."""
        from hedgerow.node.party_file import read_party_file

        found = read_party_file(self.party_toml)
        if found.name not in self.certificate.names:
            raise InvalidInput(
                f"{self.party_toml} says that this party is called {found.name!r}, but its certificate is made for "
                f"{self.certificate.owner}; write that name there, or make another home for another name"
            )
        return found

    def identity(self, passphrase: keys.Passphrase = None) -> Identity:
        """The party's key and certificate; an encrypted key needs a passphrase, or HEDGEROW_PASSPHRASE."""
        return keys.load(self.path, passphrase)

    @property
    def peers(self) -> Peers:
        """Whom this party knows. Its own authority, if party.toml names one, vouches for others."""
        return Peers(self.peers_folder, self.revoked, authority=lambda: self.party_file.network.authority)
