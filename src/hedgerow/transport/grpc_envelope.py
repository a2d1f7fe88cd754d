"""What travels between two endpoints around each frame: who is there, which number a frame has, what has arrived.

    HELLO  wire version, incarnation, last number received, run id, name of the speaker, name it speaks to, its job
    DATA   number, last number received, frame
    ACK    last number received
    ABORT  number, last number received, last word
    BYE    number, last number received

DATA, ABORT and BYE are numbered together, from 1, per direction. The first eight bytes of HELLO (kind, magic, wire
version) are the same in every version, so that two versions can tell each other which they are.

Who dials sends its HELLO in the header of the call (`HELLO_KEY`), where gRPC itself limits its size: a call is decided
on when it arrives, no message of a stranger is ever read, and nobody can keep a listening party waiting for a HELLO.
Who listens answers with its HELLO as the first message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hedgerow.errors import FrameError
from hedgerow.transport.endpoint import Agreed

WIRE_VERSION = 2
MAX_FRAME_BYTES = 256 << 20
MAX_HELLO_BYTES = 4 << 10
HELLO_KEY = "hedgerow-hello-bin"

HELLO, DATA, ACK, ABORT, BYE = 1, 2, 3, 4, 5

_MAGIC = b"HDGR"
_GREETING = struct.Struct("<B4sxH")  # kind first, as in every envelope; fixed for all versions
_HELLO = struct.Struct("<B4sxHQQHHHH")
_NUMBERED = struct.Struct("<B7xQQ")
_MAX_NAME_BYTES = 255
_MAX_LAST_WORD_BYTES = 1 << 10

HEADER_BYTES = _NUMBERED.size

pack_numbered = _NUMBERED.pack  # (kind, number, last received); followed by the frame or the last word
unpack_numbered = _NUMBERED.unpack_from


@dataclass(frozen=True, slots=True)
class Hello:
    """How one endpoint introduces itself at the start of every stream."""

    version: int
    incarnation: int  # drawn once per endpoint: a process that was started again has lost its place, and shows it
    last_received: int
    run_id: str
    speaker: str
    listener: str
    job: Agreed

    def encode(self) -> bytes:
        """The envelope's bytes."""
        parts = [*(text.encode() for text in (self.run_id, self.speaker, self.listener)), self.job.encode()]
        sizes = (len(part) for part in parts)
        head = _HELLO.pack(HELLO, _MAGIC, self.version, self.incarnation, self.last_received, *sizes)
        return head + b"".join(parts)


def hello_version(envelope: bytes) -> int:
    """The wire version of a HELLO of any version."""
    if len(envelope) < _GREETING.size:
        raise FrameError(f"expected a HELLO, got {len(envelope)} bytes")
    kind, magic, version = _GREETING.unpack_from(envelope)
    if kind != HELLO or magic != _MAGIC:
        raise FrameError("expected a HELLO, got something else")
    return int(version)


def decode_hello(envelope: bytes) -> Hello:
    """A HELLO of our own version."""
    version = hello_version(envelope)
    if not _HELLO.size <= len(envelope) <= MAX_HELLO_BYTES:
        raise FrameError(f"a HELLO has {_HELLO.size} to {MAX_HELLO_BYTES} bytes, got {len(envelope)}")
    _, _, _, incarnation, last_received, *sizes = _HELLO.unpack_from(envelope)
    if max(sizes[:3]) > _MAX_NAME_BYTES or _HELLO.size + sum(sizes) != len(envelope):
        raise FrameError("a HELLO whose lengths do not fit")
    parts, start = [], _HELLO.size
    for size in sizes:
        parts.append(envelope[start : start + size])
        start += size
    try:
        run_id, speaker, listener = (part.decode() for part in parts[:3])
    except UnicodeDecodeError as error:
        raise FrameError("a HELLO with a text that is not UTF-8") from error
    return Hello(version, incarnation, last_received, run_id, speaker, listener, Agreed.decode(parts[3]))


def check_last_word(frame: bytes) -> bytes:
    """The frame of a peer's ABORT, if it is as short as one may be."""
    if len(frame) > _MAX_LAST_WORD_BYTES:
        raise FrameError(f"a last word of {len(frame)} bytes, {_MAX_LAST_WORD_BYTES} are allowed")
    return frame
