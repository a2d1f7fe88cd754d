"""Transcripts: what one party sent and received, frame by frame and in order, in memory or in a file.

    endpoint = Recording(endpoint)                    keeps what passes; the role that uses it notices nothing
    for direction, peer, frame in transcript: ...     "sent", "received" or "noted"
    transcript.messages(NoisyGradients, "received")

A transcript is as sensitive as the data: whoever has a party's transcript knows what that party knows. "noted" are
frames that were sent to nobody: what a party computed from shares of its own, which are on no wire (`Party.note`).

A file (all numbers little-endian) is

    opening   "HDGRTRNS", format version (u16), number of texts (u16); per text its length (u8) and UTF-8 bytes: the
              run's id, the party, then its peers; checksum (u32)
    records   1 sent, 2 received, 3 noted (u8), zero (u8), number of the peer, the party itself being 0 (u16), length
              of the frame (u64), the frame, checksum (u32)
    end       zero (u8), zero (u8), zero (u16), number of records (u64), checksum (u32)

A checksum is the CRC-32 of everything before it in the file but other checksums. So a file that was cut, or whose
records were changed, left out or exchanged by accident, is refused at the first wrong record. It is not signed: who
can write the file can write another.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Self, TypeVar

from hedgerow.errors import FrameError, InvalidInput
from hedgerow.transport.endpoint import Agreed, Endpoint, LastWord, Wrapped
from hedgerow.transport.frames import MAX_FRAME_BYTES, Message, decode, peek

M = TypeVar("M", bound=Message)

SENT, RECEIVED, NOTED = "sent", "received", "noted"
SUFFIX = ".frames"
FORMAT_VERSION = 1

_MAGIC = b"HDGRTRNS"
_OPENING = struct.Struct("<8sHH")
_HEAD = struct.Struct("<BxHQ")
_CHECKSUM = struct.Struct("<I")
_CODES = {SENT: 1, RECEIVED: 2, NOTED: 3}
_DIRECTIONS = {code: direction for direction, code in _CODES.items()}
_END = 0


class Passed(NamedTuple):
    """One frame, as one party saw it."""

    direction: str  # "sent", "received" or "noted"
    peer: str  # the party itself, for what it noted
    frame: bytes


class Transcript:
    """All that passed at one party, in order. Of a file nothing is kept: it is read anew with each iteration."""

    def __init__(
        self, party: str, peers: Iterable[str], passed: Iterable[Passed], run_id: str = "", path: Path | None = None
    ) -> None:
        """What passed, or the file that it is read from."""
        self.party, self.peers, self.run_id, self.path = party, tuple(peers), run_id, path
        self._passed = passed

    @classmethod
    def open(cls, path: str | Path) -> Transcript:
        """That of a file. InvalidInput if it is none; whether its records are whole shows when they are read."""
        place = Path(path)
        run_id, party, *peers = next(_contents_of(place))
        return cls(party, peers, (), run_id, place)

    @classmethod
    def read(cls, file: IO[bytes]) -> Transcript:
        """That of a file that is open and has no name, kept in memory."""
        file.seek(0)
        contents = _contents(Path("an open file"), file)
        run_id, party, *peers = next(contents)
        return cls(party, peers, list(contents), run_id)

    def __iter__(self) -> Iterator[Passed]:
        return iter(self._passed) if self.path is None else itertools.islice(_contents_of(self.path), 1, None)

    def __repr__(self) -> str:
        return f"Transcript({self.party!r}, with {', '.join(self.peers)})"

    def messages(self, kind: type[M], direction: str, peer: str | None = None) -> list[M]:
        """All messages of one kind that went one way, with one peer or with all."""
        return [message for other, message in self.messages_by_peer(kind, direction) if peer in (None, other)]

    def messages_by_peer(self, kind: type[M], direction: str) -> Iterator[tuple[str, M]]:
        """The same one after the other, each with the peer it came from or went to."""
        for passed in self:
            if passed.direction == direction and peek(passed.frame)[0] == kind.NAME:
                yield passed.peer, decode(passed.frame, kind)

    def kinds(self) -> set[str]:
        """Names of all messages in it."""
        return {peek(passed.frame)[0] for passed in self}

    def save(self, path: str | Path) -> None:
        """Write it as a file that only its owner can read, whole or not at all."""
        place = Path(path)
        if self.path is not None and self.path.resolve() == place.resolve():
            return
        partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
        try:
            with TranscriptFile(partial, self.party, self.peers, self.run_id) as file:
                for passed in self:
                    file.add(passed)
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)


# --- files -----------------------------------------------------------------------------------------------------------


class TranscriptFile:
    """A transcript that is being written. Until it is closed without an error it has no end, and is refused."""

    def __init__(self, path: str | Path | int, party: str, peers: Sequence[str], run_id: str = "") -> None:
        """A new file at a path, or one that is open: its descriptor."""
        self.path = Path("an open file" if isinstance(path, int) else path)
        texts = [text.encode() for text in (run_id, party, *peers)]
        if any(len(text) > 255 for text in texts) or len(texts) > 0xFFFF:
            raise InvalidInput(f"{self.path}: the names of a run and its parties are too long for a transcript")
        self._numbers = {name: number for number, name in enumerate((party, *peers))}
        self._n_records = self._checksum = 0
        if not isinstance(path, int):
            # A new file, whatever was there: neither the mode of an old one nor what a link points to counts.
            self.path.unlink(missing_ok=True)
            path = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(path, "wb")
        opening = _OPENING.pack(_MAGIC, FORMAT_VERSION, len(texts))
        self._write(opening + b"".join(bytes([len(text)]) + text for text in texts))

    def add(self, passed: Passed) -> None:
        """One more frame."""
        head = _HEAD.pack(_CODES[passed.direction], self._numbers[passed.peer], len(passed.frame))
        self._write(head, passed.frame)
        self._n_records += 1

    def _write(self, *parts: bytes) -> None:
        for part in parts:
            self._checksum = zlib.crc32(part, self._checksum)
            self._file.write(part)
        self._file.write(_CHECKSUM.pack(self._checksum))

    def close(self) -> None:
        """Nothing more will come."""
        if not self._file.closed:
            self._write(_HEAD.pack(_END, 0, self._n_records))
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # without an end
            self._file.close()


def _contents_of(path: Path) -> Iterator[Any]:
    try:
        return _contents(path, path.open("rb"))
    except OSError as problem:
        raise InvalidInput(f"{path}: the transcript cannot be read: {problem.strerror}") from problem


def _contents(path: Path, file: IO[bytes]) -> Iterator[Any]:
    """The texts of the opening, then all records, each checked before it is given out."""
    file_size = os.fstat(file.fileno()).st_size
    checksum = 0

    def read(size: int, where: str) -> bytes:
        nonlocal checksum
        data = file.read(min(size, file_size))  # asks for no more memory than there can be bytes
        if len(data) < size:
            raise InvalidInput(
                f"{path}: the transcript breaks off in {where}: the file was cut, or its run did not come to its end"
            )
        checksum = zlib.crc32(data, checksum)
        return data

    def check(where: str) -> None:
        nonlocal checksum
        expected = checksum
        (found,) = _CHECKSUM.unpack(read(_CHECKSUM.size, where))
        checksum = expected
        if found != expected:
            raise InvalidInput(f"{path}: {where} of the transcript is damaged: its checksum is wrong")

    with file:
        beginning = "the beginning"
        magic, version, n_texts = _OPENING.unpack(read(_OPENING.size, beginning))
        if magic != _MAGIC:
            raise InvalidInput(f"{path} is no transcript")
        if version != FORMAT_VERSION:
            raise InvalidInput(f"{path}: transcripts of format {version} cannot be read, only {FORMAT_VERSION}")
        encoded = [read(read(1, beginning)[0], beginning) for _ in range(n_texts)]
        check("the names of the parties")
        if n_texts < 2:
            raise InvalidInput(f"{path}: the transcript names no party")
        try:
            texts = [text.decode() for text in encoded]
        except UnicodeDecodeError as problem:
            raise InvalidInput(f"{path}: a name in the transcript is not UTF-8: {problem}") from problem
        yield texts
        for number in itertools.count(1):
            where = f"record {number}"
            what, peer, size = _HEAD.unpack(read(_HEAD.size, where))
            if what == _END:
                break
            if what not in _DIRECTIONS or peer >= n_texts - 1 or size > MAX_FRAME_BYTES:
                raise InvalidInput(f"{path}: {where} of the transcript is damaged")
            frame = read(size, where)
            check(where)
            yield Passed(_DIRECTIONS[what], texts[1 + peer], frame)
        check("the end")
        if size != number - 1 or peer:
            raise InvalidInput(f"{path}: the transcript ends after {number - 1} records, of {size}")
        if file.read(1):
            raise InvalidInput(f"{path}: there is something after the end of the transcript")


class SavedTranscripts(Mapping[str, Transcript]):
    """The transcripts of a run in a folder, by party. Each is opened when it is asked for."""

    def __init__(self, folder: str | Path, parties: Iterable[str], run_id: str) -> None:
        self._folder, self._parties, self._run_id = Path(folder), tuple(parties), run_id

    def __getitem__(self, party: str) -> Transcript:
        if party not in self._parties:
            raise KeyError(party)
        path = self._folder / f"{party}{SUFFIX}"
        found = Transcript.open(path)
        if found.party != party or found.run_id != self._run_id:
            raise InvalidInput(
                f"{path}: this is the transcript of {found.party} in run {found.run_id!r}, not that of {party} in run "
                f"{self._run_id!r}"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._parties)

    def __len__(self) -> int:
        return len(self._parties)


# --- on the way ------------------------------------------------------------------------------------------------------


class Recording(Wrapped):
    """An endpoint that keeps every frame that it sent or received, in order: in `passed`, or in a file if given one."""

    def __init__(self, endpoint: Endpoint, file: TranscriptFile | None = None) -> None:
        super().__init__(endpoint)
        self.passed: list[Passed] = []
        self._keep = self.passed.append if file is None else file.add
        self._ended: set[str] = set()  # peers whose last word is kept

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame."""
        # As in the ledger: what may have left the house is written down first.
        self._keep(Passed(SENT, to, frame))
        try:
            super().send(to, frame)
        except LastWord as last:
            self._keep_last(to, last)
            raise

    def _keep_last(self, peer: str, last: LastWord) -> None:
        if last.frame and peer not in self._ended:
            self._ended.add(peer)
            self._keep(Passed(RECEIVED, peer, last.frame))

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame."""
        try:
            frame = super().recv(sender, timeout)
        except LastWord as last:
            self._keep_last(sender, last)
            raise
        self._keep(Passed(RECEIVED, sender, frame))
        return frame

    def note(self, frame: bytes) -> None:
        """Keep a frame that goes to nobody."""
        self._keep(Passed(NOTED, self.name, frame))

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame."""
        if last_word:
            for peer in self.peers:
                self._keep(Passed(SENT, peer, last_word))
        super().abort(last_word)

    def __iter__(self) -> Iterator[Passed]:
        return iter(self.passed)

    def transcript(self, run_id: str = "") -> Transcript:
        """What was kept in memory so far."""
        return Transcript(self.name, self.peers, self.passed, run_id)

    def messages(self, kind: type[M], direction: str, peer: str | None = None) -> list[M]:
        """All messages of one kind that went one way, with one peer or with all."""
        return self.transcript().messages(kind, direction, peer)


class Replaying:
    """An endpoint that hands a party what it received before, from a transcript; what it sends goes nowhere.

    So a role can be played again by one party alone, which shows what that party could know.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.name, self.peers = transcript.party, transcript.peers
        self._frames: dict[str, list[bytes]] = {peer: [] for peer in self.peers}
        for direction, peer, frame in transcript:
            if direction == RECEIVED:
                self._frames[peer].append(frame)
        for frames in self._frames.values():
            frames.reverse()  # the next one is taken from the end

    def agree(self, job: Agreed) -> None:
        """Nobody has another one."""

    def send(self, to: str, frame: bytes) -> None:
        """Nobody listens."""

    def recv(self, sender: str, timeout: float) -> bytes:  # noqa: ARG002 - nothing has to be waited for
        """The sender's next frame of those in the transcript."""
        if not self._frames[sender]:
            raise FrameError(f"the transcript of {self.name} has no further frame from {sender}")
        return self._frames[sender].pop()

    def drop(self, peer: str) -> None:
        """There is no channel."""

    def abort(self, last_word: bytes) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """There is nothing to close."""
