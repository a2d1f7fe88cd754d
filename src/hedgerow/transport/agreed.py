"""What all parties of a run must have alike, as digests: each brings its own, and the handshake compares them.

A field is a part of the job ("epsilon", "boosting.max_depth") or of what carries it ("messages"). Its digest is sent
rather than its value because that is short. It hides nothing: values can be guessed, and the job is public among the
parties. `digest` stands for all fields at once; it is what parties sign (mask keys).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hedgerow.errors import FrameError, InvalidParameter, JobDiffers, plain

FIELD_BYTES = 8  # enough to find an honest difference; who is dishonest is found by the digest of all
MOST_BYTES = 3 << 10  # of all names and digests, so that they fit the first 4 KB of a connection
_MOST_NAME_BYTES = 60
_MOST_NAMED = 8


@dataclass(frozen=True)
class Agreed:
    """The digests of one party's job."""

    digest: bytes
    fields: Mapping[str, bytes]  # name -> digest; empty if there are too many to be sent

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Agreed:
        """From what JSON can hold. Fields that are groups ("boosting") are compared one by one."""
        flat: dict[str, Any] = {}
        for name, value in facts.items():
            if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
                flat.update({f"{name}.{key}": inner for key, inner in value.items()} or {name: {}})
            else:
                flat[name] = value
        fields = {name[:_MOST_NAME_BYTES]: _digest(value)[:FIELD_BYTES] for name, value in flat.items()}
        small = sum(1 + len(name.encode()) + FIELD_BYTES for name in fields) <= MOST_BYTES
        return cls(_digest(dict(facts)), MappingProxyType(fields if small else {}))

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
        raise JobDiffers(f"{peer} has another job than {me}: they differ {what}; give both the same")

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
        return cls(data[:size], fields)


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
