"""What a run of vertical.secret_shared is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.runtime.protocol import option

MINIMAL, PAPER = "minimal", "paper"
OF_THE_PAPER = frozenset({"accept_known_leaks", "argmax", "first_layer_mask"})


@dataclass(frozen=True)
class SecretSharedJob(SharesJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.secret_shared"
    ONLY = MappingProxyType({})
    REFITS_LEAVES = True

    disclosure: str = option(
        MINIMAL,
        "what is opened: nothing but the winner of each node, or what the paper opens",
        one_of=(MINIMAL,),
        words=f"{MINIMAL!r} or {PAPER!r} (which is vertical.mp_fedxgb)",
    )


def variant(options: dict[str, Any]) -> str | None:
    """With disclosure="paper" the published protocol, which has options of its own."""
    if options.get("disclosure") == PAPER:
        del options["disclosure"]
        return "vertical.mp_fedxgb"
    for name in sorted(OF_THE_PAPER):
        if name in options:
            raise InvalidParameter(
                f'{SecretSharedJob.NAME}: {name} is for disclosure="paper" alone, got {options[name]!r}'
            )
    return None
