"""Commitments in a trail: they bind a party to its inputs and its part of a model, and tell nothing about either.

    opening = Opening.of_run(folder, "bank", run_id)         # the salt of this run: made once, then read
    trail.append("committed", run_id=..., inputs=opening.commit("inputs", inputs.blocks()))
    ...
    opening.commit("inputs", brought.blocks()) == line       # later, by whoever was given salt and table

A commitment is HMAC-SHA-256 under a salt of 32 random bytes, of what it is for and of the bytes that it is to.

**It hides.** A plain digest of a small table is found by trying all tables. Here who tries does not know the key. That
HMAC-SHA-256 under a secret random key cannot be told from a random function is what HMAC is built for; then the lines
of a trail are random numbers to everybody without the salt, whatever the table is, and a guess cannot be confirmed
without guessing 256 bits of salt too. One salt serves all commitments of one run at one party: what each is for goes in
first, so no two are of the same bytes unless they are to the same thing. Runs and parties have salts of their own, so
equal tables do not show as equal. What does show is that two attempts of one run brought the same table.

**It binds.** All salts have 32 bytes, so two different pairs of salt and bytes with the same HMAC would be a collision
of SHA-256, in the inner or the outer hash; and different inputs have different bytes (`Inputs.blocks`). This holds also
for a party that chooses its salt as it likes.

The salt is in `opening.json`, in the party's folder of the run. Who has lost it cannot open its commitments any more.
Who gives it away has given away the protection above: from then on guesses can be tried.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from hedgerow.errors import HedgerowError, InvalidInput, plain
from hedgerow.node import documents
from hedgerow.node.inputs import How, Inputs, StoredInputs

FORMAT = "hedgerow opening"
FILE = "opening.json"
SALT_BYTES = 32
MOST_BYTES = 16 << 20
"""Of the file, which has the names of all columns."""
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "party": str,
    "run_id": str,
    "salt": str,
    "how": (dict, type(None)),
    "inputs": (str, type(None)),
}
Of = Literal["inputs", "rows", "model", "ledger"]


@dataclass(frozen=True)
class Opening:
    """What opens the commitments of one party in one run."""

    party: str
    run_id: str
    salt: bytes
    how: How | None = None  # the inputs were read, in the last attempt; None: there are none
    inputs: str | None = None  # the commitment to them

    @classmethod
    def of_run(cls, folder: Path, party: str, run_id: str) -> Self:
        """That of this folder; with a new salt, on the disk, if there is none yet."""
        path = folder / FILE
        if path.exists():
            return cls.read(path)
        made = cls(party, run_id, secrets.token_bytes(SALT_BYTES))
        made.write(path)
        return made

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file; InvalidInput for anything else."""
        found = documents.read(path, FORMAT, _FIELDS, MOST_BYTES)
        try:
            salt = bytes.fromhex(found["salt"])
            how = None if found["how"] is None else How.from_dict(found["how"])
        except (HedgerowError, ValueError, TypeError) as problem:
            raise InvalidInput(f"{path} is damaged: {plain(str(problem))}") from None
        if len(salt) != SALT_BYTES:
            raise InvalidInput(f"{path} is damaged: a salt has {SALT_BYTES} bytes, and this one {len(salt)}")
        return cls(found["party"], found["run_id"], salt, how, found["inputs"])

    def write(self, path: Path) -> None:
        """For the party alone to read."""
        documents.write(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """As it is written."""
        how = None if self.how is None else self.how.to_dict()
        about = {"party": self.party, "run_id": self.run_id, "salt": self.salt.hex(), "how": how, "inputs": self.inputs}
        return {"format": FORMAT, "version": documents.VERSION, **about}

    def commit(self, of: Of, blocks: Iterable[Any]) -> str:
        """The commitment to these bytes, in hexadecimal digits."""
        made = hmac.new(self.salt, f"hedgerow commitment to {of}, version 1\0".encode(), "sha256")
        for block in blocks:
            made.update(block)
        return made.hexdigest()

    def with_inputs(self, inputs: Inputs | StoredInputs) -> Self:
        """The same salt, for what is brought now."""
        return replace(self, how=inputs.how, inputs=self.commit("inputs", inputs.blocks()))
