"""What travels between two endpoints around each frame: who is there, which number a frame has, what has arrived.

    HELLO  wire version, incarnation, last number received, run id, name of the speaker, name it speaks to
    DATA   number, last number received, frame
    ACK    last number received
    ABORT  number, last number received, reason
    BYE    number, last number received

DATA, ABORT and BYE are numbered together, from 1, per direction. The first eight bytes of HELLO (kind, magic, wire
version) are the same in every version, so that two versions can tell each other which they are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hedgerow.errors import FrameError

WIRE_VERSION = 1
MAX_FRAME_BYTES = 256 << 20

HELLO, DATA, ACK, ABORT, BYE = 1, 2, 3, 4, 5
KIND_NAMES = {HELLO: "HELLO", DATA: "DATA", ACK: "ACK", ABORT: "ABORT", BYE: "BYE"}

_MAGIC = b"HDGR"
_GREETING = struct.Struct("<B4sxH")  # kind first, as in every envelope; fixed for all versions
_HELLO = struct.Struct("<B4sxHQQHHH")
_NUMBERED = struct.Struct("<B7xQQ")
_MAX_NAME_BYTES = 255
_MAX_REASON_BYTES = 16 << 10

HEADER_BYTES = _NUMBERED.size

pack_numbered = _NUMBERED.pack  # (kind, number, last received); followed by the frame or the reason
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

    def encode(self) -> bytes:
        """The envelope's bytes."""
        texts = [text.encode() for text in (self.run_id, self.speaker, self.listener)]
        sizes = (len(text) for text in texts)
        head = _HELLO.pack(HELLO, _MAGIC, self.version, self.incarnation, self.last_received, *sizes)
        return head + b"".join(texts)


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
    if len(envelope) < _HELLO.size:
        raise FrameError(f"a HELLO is at least {_HELLO.size} bytes long, got {len(envelope)}")
    _, _, _, incarnation, last_received, *sizes = _HELLO.unpack_from(envelope)
    if max(sizes) > _MAX_NAME_BYTES or _HELLO.size + sum(sizes) != len(envelope):
        raise FrameError("a HELLO whose lengths do not fit")
    texts, start = [], _HELLO.size
    for size in sizes:
        try:
            texts.append(envelope[start : start + size].decode())
        except UnicodeDecodeError as error:
            raise FrameError("a HELLO with a text that is no UTF-8") from error
        start += size
    return Hello(version, incarnation, last_received, *texts)


def encode_reason(reason: str) -> bytes:
    """The text of an ABORT, cut to a size that any peer accepts."""
    return reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES]


def decode_reason(data: bytes) -> str:
    """The text of a peer's ABORT; whatever it holds, it can be shown."""
    return data[:_MAX_REASON_BYTES].decode("utf-8", "replace")
