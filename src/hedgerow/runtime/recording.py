"""Keeping the transcripts of a run: in memory, or in a folder while it goes on.

    fed.fit(..., record=True)          run.transcripts["shop"]; run.save(folder) writes folder/transcripts/shop.frames
    fed.fit(..., record=folder)        folder/transcripts/shop.frames from the start, nothing in memory

A run that did not come to its end leaves folder/ledgers there as well: what was disclosed until then.
Without `record` nothing is kept, and nothing is spent on it. Transcripts are as sensitive as the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Ledger
from hedgerow.runtime.saved_files import private_folder, write_private
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.transcripts import SUFFIX, Recording, Transcript, TranscriptFile

FOLDER, LEDGERS = "transcripts", "ledgers"


class Records:
    """The transcripts of one run, by party, once it has come to its end."""

    def __init__(self, run_id: str, folder: Path | None = None) -> None:
        self.run_id = run_id
        self.transcripts: dict[str, Transcript] = {}
        self._place = None if folder is None else private_folder(folder)
        self._folder = None if self._place is None else private_folder(self._place / FOLDER)
        self._files = ExitStack()
        self._recordings: dict[str, Recording] = {}

    def path(self, party: str) -> Path | None:
        """The file that a party's transcript goes to; None: memory."""
        return None if self._folder is None else (self._folder / f"{party}{SUFFIX}").resolve()

    def around(self, endpoint: Endpoint) -> Recording:
        """The same endpoint, recorded."""
        path, file = self.path(endpoint.name), None
        if path is not None:
            file = self._files.enter_context(TranscriptFile(path, endpoint.name, endpoint.peers, self.run_id))
        self._recordings[endpoint.name] = Recording(endpoint, file)
        return self._recordings[endpoint.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run is over. Files of one that failed have no end, so nobody takes them for whole."""
        self._files.__exit__(kind, error, trace)
        for name, recording in self._recordings.items() if kind is None else ():
            path = self.path(name)
            self.transcripts[name] = recording.transcript(self.run_id) if path is None else Transcript.open(path)

    def take(self, written: Path | IO[bytes]) -> None:
        """A transcript that a party's process has written."""
        found = Transcript.open(written) if isinstance(written, Path) else Transcript.read(written)
        self.transcripts[found.party] = found

    def keep_ledgers(self, ledgers: Mapping[str, Ledger]) -> None:
        """What everybody disclosed and learned in a run that failed, beside the transcripts if those have a folder."""
        if self._place is not None:
            folder = private_folder(self._place / LEDGERS)
            for party, ledger in ledgers.items():
                write_private(folder / f"{party}.jsonl", ledger.to_json_lines())


def records_for(record: Any, run_id: str) -> Records | None:
    """From the parameter `record` of `fit`."""
    if record is False or record is None:
        return None
    if record is True:
        return Records(run_id)
    if not isinstance(record, str | Path):
        raise InvalidParameter(f"record must be True, False or a folder, got {record!r}")
    folder = Path(record)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidParameter(f"record must be a folder that is new or empty; there is something in {folder}")
    return Records(run_id, folder)
