"""Which grpcio is installed, and which of the two ways of using it fits.

The fast way (grpc_calls.py) uses what lies below grpcio's public layer. That may change with any release, so it is
taken only with releases that the tests were run with, and only if everything that it uses is there. Otherwise
grpc_public.py does the same with the public layer alone: a round trip takes longer, nothing else differs.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from hedgerow.transport import grpc_calls, grpc_public
from hedgerow.transport.streams import Dialler, Listener, Options, Receive

_log = logging.getLogger("hedgerow")

# Run tests/transport/test_grpc.py with a release before it is added here.
TESTED_VERSIONS: tuple[str, ...] = (
    *("1.66", "1.67", "1.68", "1.69", "1.70", "1.71", "1.72", "1.73", "1.74", "1.75"),
    *("1.76", "1.78", "1.80", "1.81", "1.82", "1.83", "1.84", "1.85"),
)


class Library(NamedTuple):
    """grpcio, and how ends of streams are made with it."""

    grpc: Any
    dial: Callable[[str, Options], Dialler]  # address, options
    listen: Callable[[str, Any, Options, Receive, int], Listener]  # address, credentials, ..., most calls at once
    is_fast: bool


def load_library() -> Library:
    """Loads grpcio on first use."""
    installed = version("grpcio")
    if ".".join(installed.split(".")[:2]) not in TESTED_VERSIONS:
        return _public(f"{installed} is not among the versions that the faster one was tested with")
    try:
        grpc, cygrpc = grpc_calls.load_grpc()
    except ImportError as error:
        return _public(f"{installed} lacks {error.name}")
    missing = grpc_calls.missing_names(grpc, cygrpc)
    if missing:
        return _public(f"{installed} lacks {', '.join(missing)}")
    return Library(grpc, grpc_calls.dial, grpc_calls.listen, is_fast=True)


def _public(why: str) -> Library:
    _log.info("grpcio is used through its public layer: %s", why)
    return Library(importlib.import_module("grpc"), grpc_public.dial, grpc_public.listen, is_fast=False)
