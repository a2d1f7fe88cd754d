"""What a run of vertical.secret_shared is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.shares.job import SharesJob

MINIMAL, PAPER = "minimal", "paper"


@dataclass(frozen=True)
class SecretSharedJob(SharesJob):
    """Everything that the parties must agree on."""

    NAME: ClassVar[str] = "vertical.secret_shared"

    disclosure: str = MINIMAL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.disclosure != MINIMAL:
            raise InvalidParameter(
                f"{self.NAME}: disclosure must be {MINIMAL!r} or {PAPER!r} (which is vertical.mp_fedxgb), "
                f"got {self.disclosure!r}"
            )
