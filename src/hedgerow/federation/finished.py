"""What everything leaves behind that parties have done together: ledgers, traffic, time. And how these are saved.

An `Alignment`, a `Run` and a `Scoring` are this, each with a result of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hedgerow.errors import InvalidInput
from hedgerow.ledger import Ledger, Meter, reconcile
from hedgerow.runtime.saved_files import damage_told, read_object


@dataclass(frozen=True, eq=False, kw_only=True)
class Finished:
    """A job that parties have done. `seconds` is from the first message to the last result, without starting processes.

    A subclass says in `lost` whom the others went on without; what those wrote down has no end.
    """

    job: Any
    transport: str
    ledgers: Mapping[str, Ledger] = field(repr=False)
    meters: Mapping[str, Meter] = field(repr=False)
    seconds: float

    @property
    def traffic(self) -> dict[str, Any]:
        """Bytes and messages of each party: in all, by peer and by kind of message, sent and received."""
        return {party: meter.to_dict() for party, meter in self.meters.items()}

    @property
    def lost(self) -> dict[str, int]:
        """Parties that were lost on the way, and the number of the tree in which that was noticed."""
        return {}

    def reconcile(self) -> None:
        """LedgerMismatch unless everything that one party says it disclosed is what the other says it learned."""
        reconcile({party: ledger for party, ledger in self.ledgers.items() if party not in self.lost})


# --- files -----------------------------------------------------------------------------------------------------------


def read_heading(file: Path, what: str, heading: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object in a file of something saved, `what`. InvalidInput if it does not begin as it should."""
    with damage_told(f"{file.parent} holds no saved {what}"):
        about = read_object(file)
    if any(about.get(name) != value for name, value in heading.items()):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(f"{file} is not {article} {what} of a kind that this version can read")
    return about


def read_what_it_took(about: Mapping[str, Any]) -> dict[str, Any]:
    """Transport, traffic and seconds, as a `Finished` has them; for use inside `damage_told`."""
    meters = {party: Meter.from_dict(meter) for party, meter in about["traffic"].items()}
    return {"transport": str(about["transport"]), "meters": meters, "seconds": float(about["seconds"])}


def read_ledgers(files: Mapping[str, Path], sentence: str) -> dict[str, Ledger]:
    """Everybody's ledger, by party."""
    with damage_told(sentence):
        return {party: Ledger.from_json_lines(party, file.read_text()) for party, file in files.items()}
