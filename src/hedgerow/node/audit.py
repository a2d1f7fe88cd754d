"""The trail of a party: what it did with whom, line by line, so that a third person can check it without trusting it.

    trail = Trail(home / "audit.jsonl", identity)
    trail.append("accepted", proposal=hash, party="shop")
    report = verify(home / "audit.jsonl", certificate_pem)        # offline; report.findings are sentences

A line is a JSON object of seven members, in this order and without spaces:

    seq          1, 2, 3, ...
    at           when, in UTC, by the clock of the party
    kind, facts  what: one of `audit_lines.KINDS`, with the facts that are declared for it and no others
    prev         SHA-256 of the line before, without its end of line; 64 zeros in the first
    certificate  fingerprint of the certificate whose key has signed the line
    signature    by that key, over the line without this member (hexadecimal)

So no line can be changed, left out, put in or moved without the key. The first line has the certificate itself. A new
one is entered by a line that the old key signs (`rotated`), and from there on the new key signs. What the holder of
the key can do, nobody can see in the trail alone: write something else from the start, or from some line on. Therefore
parties write down digests of all messages between them, and where each other's trails had got to (`heads`), and
`node.audit_cross` compares their trails.

The last lines can be cut off without breaking a chain. A file beside the trail, `audit.jsonl.head`, has the number and
the digest of the last line: a trail that is shorter, or does not have that line, is broken. Who can write both files
can put back older ones; that shows in the trails of others.

Appending is safe with several processes (a lock on the file) and after a crash: a line counts when `append` has
returned, and is on the disk then. A last line without an end was never finished. It is put aside as
`audit.jsonl.torn-SEQ`, and the trail goes on with a line that says so (`torn`).

No personal data: facts are names of parties, digests, numbers and short words.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hedgerow import __version__
from hedgerow.errors import InvalidInput, InvalidParameter, plain
from hedgerow.node.audit_lines import (
    INIT,
    MAX_LINE,
    NOTHING_BEFORE,
    ROTATED,
    TORN,
    Entry,
    as_json,
    checked_facts,
    digest_of,
    is_hex,
    is_signed,
    read_line,
)
from hedgerow.runtime.progress import OnProgress
from hedgerow.transport.mtls import Certificate, Identity

MOST_FINDINGS = 100


# --- writing ---------------------------------------------------------------------------------------------------------


class Trail:
    """The trail of a party that has its key. The file is made with the first line."""

    def __init__(self, path: str | os.PathLike[str], identity: Identity) -> None:
        self.path, self.identity = Path(path), identity

    def append(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Add a line, which is on the disk when this returns; gives the line. A new trail gets its first one before.

        InvalidParameter for facts that are not declared, InvalidInput for a trail that is not whole at its end or that
        another key goes on with.
        """
        if kind == INIT:
            facts = {**self._opening(), **facts}
        checked = checked_facts(kind, facts)
        with self._locked() as file:
            last = self._last(file)
            if last is None and kind != INIT:
                last = self._write(file, None, INIT, checked_facts(INIT, self._opening()))
            elif last is not None and kind == INIT:
                raise InvalidInput(f"{self.path} has begun already, on {last.at}; a trail begins once")
            if last is not None and (torn := self._untold(last)) is not None:
                part = torn.read_bytes()
                last = self._write(file, last, TORN, {"n_bytes": len(part), "sha256": digest_of(part)})
            return self._write(file, last, kind, checked)._asdict()

    @property
    def head(self) -> str | None:
        """Where it has got to: its number of lines and the digest of the last, for the trails of others."""
        if not self.path.exists():
            return None
        with self._locked() as file:
            last = self._last(file)
        return None if last is None else f"{last.seq}:{digest_of(last.line)}"

    def _opening(self) -> dict[str, Any]:
        certificate = self.identity.certificate
        return {"party": certificate.names[0], "version": __version__, "certificate": certificate.pem.decode()}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open and for this process alone."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self.path, flags, 0o600)
        except OSError as problem:
            raise InvalidInput(f"the trail {self.path} cannot be opened: {problem}") from problem
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        except OSError as problem:
            raise InvalidInput(f"the trail {self.path} cannot be written: {problem}") from problem
        finally:
            os.close(file)  # and the lock is gone

    def _last(self, file: int) -> Entry | None:
        """The last line, which must be one that this key may go on from. A part of a line after it is put aside."""
        size = os.fstat(file).st_size
        start = max(0, size - 2 * MAX_LINE)
        tail = os.pread(file, size - start, start)
        whole, _, torn = tail.rpartition(b"\n")
        if not whole:
            if size > 0 and (start > 0 or b"\n" in tail):
                raise InvalidInput(f"{self._broken()}: it does not end in a line")
            self._begin(file, torn)
            return None
        try:
            last = read_line(whole.rpartition(b"\n")[2])
        except InvalidInput as problem:
            raise InvalidInput(f"{self._broken()} in its last line: {problem}") from None
        self._check_goes_on(last)
        if torn:
            self._put_torn_aside(file, last.seq + 1, torn)
        return last

    def _put_torn_aside(self, file: int, seq: int, torn: bytes) -> None:
        """Keep what was written of a line, with what earlier attempts at it left, and end the trail before it."""
        place = self._torn_place(seq)
        _put_aside(place, place.read_bytes() + b"\n" + torn if place.exists() else torn)
        os.ftruncate(file, os.fstat(file).st_size - len(torn))
        os.fsync(file)

    def _torn_place(self, seq: int) -> Path:
        return self.path.with_name(f"{self.path.name}.torn-{seq}")

    def _untold(self, last: Entry) -> Path | None:
        """What was put aside and is not in the trail yet: of the next line, or of the first, which has none before."""
        places = [self._torn_place(last.seq + 1), *([self._torn_place(1)] if last.seq == 1 else [])]
        return next((place for place in places if place.exists()), None)

    def _begin(self, file: int, torn: bytes) -> None:
        """A trail without a whole line: new, or stopped while its first line was written."""
        if _read_head(self.path) is not None:
            raise InvalidInput(f"{self._broken()}: it has no line, but {_head_place(self.path).name} says that it had")
        if torn:
            self._put_torn_aside(file, 1, torn)

    def _check_goes_on(self, last: Entry) -> None:
        """InvalidInput unless the last line is the party's own, and is the last that there was."""
        mine = self.identity.certificate
        if last.kind == ROTATED:
            current = Certificate.from_pem(last.facts["certificate"].encode()).fingerprint
        else:
            current = last.certificate
        if current != mine.fingerprint:
            raise InvalidInput(
                f"{self.path} goes on with the certificate {current}, and the key here is that of {mine.fingerprint}: "
                "a new key is entered with the old one, before it is used"
            )
        if last.kind != ROTATED and not is_signed(last, mine):
            raise InvalidInput(f"{self._broken()} in its last line: the signature is not this party's")
        head = _read_head(self.path)
        if head is not None and (last.seq < head.seq or (last.seq == head.seq and digest_of(last.line) != head.sha256)):
            raise InvalidInput(
                f"{self._broken()}: its last line has the number {last.seq}, but {_head_place(self.path).name} knows "
                f"another line {head.seq}; put back the trail as it was, or move both away and begin a new one"
            )

    def _broken(self) -> str:
        return f"the trail {self.path} is broken, and nothing is added to it (hedgerow audit verify says more)"

    def _write(self, file: int, last: Entry | None, kind: str, facts: dict[str, Any]) -> Entry:
        seq, prev = (1, NOTHING_BEFORE) if last is None else (last.seq + 1, digest_of(last.line))
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = Entry(seq, at, kind, facts, prev, self.identity.fingerprint, "")
        entry = entry._replace(signature=self.identity.sign(entry.signed).hex())
        line = entry.line + b"\n"
        if len(line) > MAX_LINE:
            raise InvalidParameter(f"a line {kind!r} of {len(line)} bytes is too long for a trail ({MAX_LINE} at most)")
        size = os.fstat(file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(file, line[written:])
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)  # a full disk leaves no half a line
            raise
        if seq == 1:
            _sync_folder(self.path)
        _put_aside(_head_place(self.path), as_json({"seq": seq, "sha256": digest_of(entry.line)}) + b"\n")
        return entry


def _head_place(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _put_aside(place: Path, contents: bytes) -> None:
    """A file that is there whole or not at all."""
    partial = place.with_name(f".{place.name}.partial")  # one at a time: the trail is locked
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(place)
    _sync_folder(place)


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Head(NamedTuple):
    """The last line that a trail is known to have had."""

    seq: int
    sha256: str


def _read_head(path: Path) -> Head | None:
    """What the file beside a trail says. InvalidInput if it says nothing that can be read."""
    place = _head_place(path)
    try:
        with place.open("rb") as file:
            found = json.loads(file.read(MAX_LINE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{place} cannot be read ({plain(str(problem))})") from None
    if not isinstance(found, dict) or type(found.get("seq")) is not int or not is_hex(found.get("sha256"), 64):
        raise InvalidInput(f"{place} is not the head of a trail")
    return Head(found["seq"], found["sha256"])


# --- checking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a trail, and where."""

    trail: str
    line: int | None
    sentence: str

    def __str__(self) -> str:
        where = self.trail if self.line is None else f"{self.trail}, line {self.line}"
        return f"{where}: {self.sentence}"


@dataclass(frozen=True)
class Summary:
    """What a trail says about itself."""

    trail: str
    party: str | None
    n_lines: int
    first: str | None
    last: str | None
    certificates: tuple[str, ...]
    head: str | None
    vouched: bool  # one of its certificates is one that the reader brought along


@dataclass(frozen=True)
class Report:
    """What came out: findings say what is wrong, notes what could not be seen."""

    trails: tuple[Summary, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **asdict(self)}


class Reading:
    """A trail that is read and checked line by line: chain, sequence, signatures, certificates, facts, head."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        certificate_pem: bytes | None = None,
        on_progress: OnProgress | None = None,
        *,
        is_extract: bool = False,
    ) -> None:
        """`is_extract`: lines may be missing between others, as in `audit_extract`; what is there is checked alike."""
        self.path, self.trail = Path(path), os.fspath(path)
        self._on_progress, self._is_extract = on_progress, is_extract
        self.entries: list[tuple[str, Entry]] = []  # digest of the line, and what it says
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.certificates: dict[str, Certificate] = {}  # by fingerprint, in the order of the trail
        self._current: Certificate | None = None
        self._n_lines, self._prev = 0, NOTHING_BEFORE
        self._seq = 0  # of the line before
        head = None if is_extract else self._head()  # before the lines: they may become more meanwhile
        self._read()
        self._check_head(head)
        self.vouched = self._check_certificate(certificate_pem)

    @property
    def party(self) -> str | None:
        """Whose it says it is."""
        return next((entry.facts["party"] for _, entry in self.entries if entry.kind == INIT), None)

    @property
    def summary(self) -> Summary:
        """What it says about itself."""
        times = [entry.at for _, entry in self.entries]
        seq = self._seq if self._is_extract else self._n_lines
        head = f"{seq}:{self._prev}" if seq else None
        first, last = (times[0], times[-1]) if times else (None, None)
        return Summary(self.trail, self.party, self._n_lines, first, last, tuple(self.certificates), head, self.vouched)

    @property
    def report(self) -> Report:
        """What came out."""
        return Report((self.summary,), tuple(self.findings), tuple(self.notes))

    def found(self, sentence: str, line: int | None = None) -> None:
        """Write down something that is wrong."""
        self.findings.append(Finding(self.trail, line, sentence))

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)  # whoever is writing a line finishes it first
                while (line := file.readline(MAX_LINE + 1)) and len(self.findings) < MOST_FINDINGS:
                    self._n_lines += 1
                    if not line.endswith(b"\n"):
                        cut = len(line) <= MAX_LINE
                        self.found(
                            "the trail ends in the middle of a line" if cut else "the line is too long", self._n_lines
                        )
                        return
                    self._take(line.removesuffix(b"\n"))
                    if self._on_progress is not None and self._n_lines % 64 == 0:
                        self._on_progress(file.tell(), os.fstat(file.fileno()).st_size)
        except OSError as problem:
            raise InvalidInput(f"the trail {self.path} cannot be read: {problem}") from problem
        if not self._n_lines:
            self.found("the trail is empty")

    def _take(self, line: bytes) -> None:
        """Check one line, and go on from it as it stands: what is wrong with it shows in the next one too."""
        number, before = self._n_lines, self._prev
        self._prev = digest_of(line)
        try:
            entry = read_line(line)
        except InvalidInput as problem:
            self.found(f"{problem}", number)
            self._seq += 1
            return
        has_gap = self._is_extract and entry.seq > self._seq + 1
        if has_gap:
            self.notes.append(f"{self.trail}: lines {self._seq + 1} to {entry.seq - 1} of the trail are left out")
        elif entry.seq != self._seq + 1:
            self.found(f"its number is {entry.seq}: lines were left out, put in or moved", number)
        if not has_gap and entry.prev != before:
            self.found("it does not go on from the line before it: that line, or this one, is another", number)
        self._seq = entry.seq if self._is_extract else number
        if (entry.kind == INIT) != (number == 1):
            self.found("a trail begins with a line 'init', and has one of them", number)
        if self.entries and entry.at < self.entries[-1][1].at:
            self.notes.append(f"{self.trail}, line {number}: the clock went back, to {entry.at}")
        self._check_signature(entry, number)
        self.entries.append((self._prev, entry))

    def _check_signature(self, entry: Entry, number: int) -> None:
        brought = None if entry.introduces is None else Certificate.from_pem(entry.introduces.encode())
        signer = brought if self._current is None else self._current
        if signer is None:
            self.found("there is no certificate to check it with", number)
        elif entry.certificate != signer.fingerprint:
            self.found(f"it names the certificate {entry.certificate}; the trail is at {signer.fingerprint}", number)
        elif not is_signed(entry, signer):
            self.found("the signature is not that of this line by this key", number)
        elif brought is not None:
            party = entry.facts["party"] if entry.kind == INIT else self.party
            if party not in brought.names:
                self.found(f"its certificate is made for {brought.owner}, and the trail is that of {party}", number)
            self._current = brought
            self.certificates[brought.fingerprint] = brought

    def _head(self) -> Head | None:
        try:
            head = _read_head(self.path)
        except InvalidInput as problem:
            self.found(str(problem))
            return None
        if head is None:
            self.notes.append(
                f"{self.trail}: there is no {_head_place(self.path).name} beside it, so lines that were cut off at its "
                "end would not show"
            )
        return head

    def _check_head(self, head: Head | None) -> None:
        if head is None or len(self.findings) >= MOST_FINDINGS:
            return
        if self._n_lines < head.seq:
            self.found(f"it has {self._n_lines} lines, but once had {head.seq}: its end was cut off")
        elif not any(entry.seq == head.seq and digest == head.sha256 for digest, entry in self.entries):
            self.found(f"it is another line than {_head_place(self.path).name} says", head.seq)

    def _check_certificate(self, pem: bytes | None) -> bool:
        if pem is None:
            self.notes.append(f"{self.trail}: no certificate was given, so it is the party's own word whose it is")
            return False
        wanted = Certificate.from_pem(pem).fingerprint
        if wanted not in self.certificates:
            known = ", ".join(self.certificates) or "none"
            self.found(f"it was not signed with the certificate {wanted}; its own are {known}")
        return wanted in self.certificates


def verify(
    path: str | os.PathLike[str],
    certificate_pem: bytes | None = None,
    on_progress: OnProgress | None = None,
    *,
    is_extract: bool = False,
) -> Report:
    """Check one trail, or an extract of one, offline. `certificate_pem` is the party's, from elsewhere than its trail.

    Now and then `on_progress` is told how many bytes of how many have been read.
    """
    return Reading(path, certificate_pem, on_progress, is_extract=is_extract).report
