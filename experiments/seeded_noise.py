"""Noise that can be drawn again: parties of runs in memory draw from a fixed seed. For experiments only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.runtime.party import Party
from hedgerow.runtime.running import in_memory


@contextmanager
def noise_from(secret: bytes) -> Iterator[None]:
    """Parties of runs in memory draw from a fixed seed, each from its own."""

    def seeded(*args: Any, **how: Any) -> dict[str, Party]:
        parties = in_memory(*args, **how)
        for name, party in parties.items():
            party.rng = SecureRandom.from_seed(hashlib.sha256(secret + name.encode()).digest())
        return parties

    with patch("hedgerow.runtime.running.in_memory", seeded):
        yield
