"""What every transport offers to a party: ordered frames to and from named peers that have the same job."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hedgerow.errors import FrameError, InvalidParameter, JobDiffers, TransportError, plain

FIELD_BYTES = 8  # enough to find an honest difference; who is dishonest is found by the digest of all
MOST_BYTES = 3 << 10  # of all names and digests, so that they fit the first 4 KB of a connection
_MOST_NAME_BYTES = 60
_MOST_NAMED = 8
_OF_VERSIONS = frozenset({"messages", "format version", "wire version"})
"""Fields of an agreement that follow from the program, and not from what anybody asked for."""


@dataclass(eq=False)
class Agreed:
    """What all parties of a run must have alike, as digests: each brings its own, and the handshake compares them.

    A field is a part of the job ("epsilon", "boosting.max_depth") or of what carries it ("messages"). Its digest is
    sent rather than its value because that is short. It hides nothing: values can be guessed, and the job is public
    among the parties. Digests are made when they are first asked for, from what JSON can hold.
    """

    facts: Callable[[], Mapping[str, Any]]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Agreed:
        """From facts that are there already."""
        return cls(lambda: facts)

    @functools.cached_property
    def digest(self) -> bytes:
        """Stands for all fields at once; it is what parties sign (mask keys)."""
        return _digest(dict(self.facts()))

    @functools.cached_property
    def fields(self) -> Mapping[str, bytes]:
        """Name -> digest; empty if there are too many to be sent. Groups ("boosting") are compared one by one."""
        flat: dict[str, Any] = {}
        for name, value in self.facts().items():
            if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
                flat.update({f"{name}.{key}": inner for key, inner in value.items()} or {name: {}})
            else:
                flat[name] = value
        fields = {name[:_MOST_NAME_BYTES]: _digest(value)[:FIELD_BYTES] for name, value in flat.items()}
        small = sum(1 + len(name.encode()) + FIELD_BYTES for name in fields) <= MOST_BYTES
        return fields if small else {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Agreed) and (self.digest, self.fields) == (other.digest, other.fields)

    def __hash__(self) -> int:
        return hash(self.digest)

    def check(self, peer: str, theirs: Agreed, me: str) -> None:
        """JobDiffers, naming the fields, unless the peer has the same."""
        if theirs.digest == self.digest:
            return
        names = sorted(
            name for name in {*self.fields, *theirs.fields} if self.fields.get(name) != theirs.fields.get(name)
        )
        if not names:
            what = "in fields that were not sent one by one"
        else:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            what = f"in {', '.join(plain(name) for name in names[:_MOST_NAMED])}{more}"
        advice = "bring both to one version of hedgerow" if set(names) & _OF_VERSIONS else "give both the same"
        raise JobDiffers(f"{peer} has another job than {me}: they differ {what}; {advice}")

    def encode(self) -> bytes:
        """The digest, then per field the length of its name, its name and its digest."""
        parts = [self.digest]
        for name, digest in self.fields.items():
            encoded = name.encode()
            parts.append(bytes([len(encoded)]) + encoded + digest)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Agreed:
        """The inverse of `encode`, of bytes that a peer sent."""
        size = hashlib.sha256().digest_size
        if len(data) < size:
            raise FrameError("a HELLO without the digest of a job")
        fields, start = {}, size
        while start < len(data):
            stop = start + 1 + data[start]
            if stop + FIELD_BYTES > len(data):
                raise FrameError("a HELLO whose digests break off")
            fields[data[start + 1 : stop].decode("utf-8", "replace")] = data[stop : stop + FIELD_BYTES]
            start = stop + FIELD_BYTES
        told = cls(dict)
        told.digest, told.fields = data[:size], fields
        return told


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted, without spaces, with whole numbers written alike (1.0 is 1)."""
    return json.dumps(_plain_numbers(value), sort_keys=True, separators=(",", ":"))


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, np.generic):
        return _plain_numbers(value.item())
    raise InvalidParameter(f"a job holds {type(value).__name__}, which JSON cannot hold, so parties cannot compare it")


def _digest(value: Any) -> bytes:
    return hashlib.sha256(canonical(value).encode()).digest()


NOTHING = Agreed.of({})
"""For endpoints without a job."""


class LastWord(TransportError):
    """What a peer said when it stopped: a frame that only a party can read, empty if it gave no reason."""

    def __init__(self, party: str, frame: bytes) -> None:
        super().__init__(f"{party} stopped")
        self.party = party
        self.frame = frame


class Endpoint(Protocol):
    """One party's end of all its channels. Frames of a pair arrive in order, each exactly once."""

    @property
    def name(self) -> str:
        """The party whose end this is."""
        ...

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody it can talk to."""
        ...

    def agree(self, job: Agreed) -> None:
        """Say which job this party has. JobDiffers, here or at the first message, for a peer that has another one."""
        ...

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame; may wait while the peer is slow. PeerLost or LastWord if there is nobody to take it."""
        ...

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame. What had arrived before it failed is still given out first.

        DeadlineExceeded after `timeout` seconds, PeerLost or LastWord when no further frame can come.
        """
        ...

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good: no later frame of it is ever read."""
        ...

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame, which peers get after all others as a LastWord. Never raises."""
        ...

    def close(self) -> None:
        """Orderly end: what was sent is delivered first, within a bounded wait."""
        ...


class Wrapped:
    """An endpoint around another one, to which it leaves whatever it does not do itself."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name, self.peers = endpoint.name, endpoint.peers
        self.inner = endpoint

    def agree(self, job: Agreed) -> None:
        """Say which job this party has."""
        self.inner.agree(job)

    def send(self, to: str, frame: bytes) -> None:
        """Hand over a frame."""
        self.inner.send(to, frame)

    def recv(self, sender: str, timeout: float) -> bytes:
        """The sender's next frame."""
        return self.inner.recv(sender, timeout)

    def drop(self, peer: str) -> None:
        """Close the channel to a peer for good."""
        self.inner.drop(peer)

    def abort(self, last_word: bytes) -> None:
        """End all channels with this frame."""
        self.inner.abort(last_word)

    def close(self) -> None:
        """Orderly end."""
        self.inner.close()
