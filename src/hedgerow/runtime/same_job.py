"""What the parties of a run compare before their first message: the job and the versions of all that carries it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hedgerow.runtime.protocol import Protocol
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.frames import FORMAT_VERSION, Message, registered
from hedgerow.transport.grpc_envelope import WIRE_VERSION

OWN = frozenset({"cache"})
"""Fields of a job that say where a party keeps files of its own: folders need not have the same name everywhere."""


def agreed(protocol: Protocol, job: Any) -> Agreed:
    """The digests of a job: each party derives them from its own copy of it."""
    return Agreed.of(
        {
            **{name: value for name, value in job.to_dict().items() if name not in OWN},
            "protocol": protocol.name,
            "wire version": WIRE_VERSION,
            "format version": FORMAT_VERSION,
            "messages": sorted((kind.NAME, kind.VERSION) for kind in messages_of(protocol)),
        }
    )


def messages_of(protocol: Protocol) -> list[type[Message]]:
    """The messages of a protocol: those that it shares with others, then its own, as its modules define them."""
    home = package_of(protocol).__name__
    kinds = list(registered().values())
    shared = [kind for kind in kinds if kind.__module__ in protocol.shares]
    return [*shared, *(kind for kind in kinds if kind.__module__.startswith(f"{home}."))]


def package_of(protocol: Protocol) -> ModuleType:
    """The package that holds all of a protocol."""
    return sys.modules[type(protocol).__module__.rpartition(".")[0]]
