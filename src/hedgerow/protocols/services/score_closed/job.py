"""What a closed scoring of rows is to do: public parameters, checked before any party is asked for anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.common.serving import ServiceJob, checked_batch_rows

NAME = "vertical.closed_scoring"
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class ClosedScoringJob(ServiceJob):
    """What all parties of a closed scoring must agree on. JSON-able; nothing in it is secret."""

    NAME: ClassVar[str] = NAME
    MODEL_IS: ClassVar[str] = "to be scored with"
    TAKES_PART_IN: ClassVar[str] = "the scoring"

    dealer: str = "dealer"
    batch_rows: int = BATCH_ROWS  # rows in one block, at most; fewer if there are many leaves

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "batch_rows", checked_batch_rows(NAME, self.batch_rows))
        if not isinstance(self.dealer, str) or not self.dealer or self.dealer in self.parties:
            raise InvalidParameter(
                f"{NAME}: the dealer must be a party of its own, beside {list(self.parties)}, got {self.dealer!r}"
            )

    @property
    def holders(self) -> tuple[str, ...]:
        """Who has data: the label holder, then the feature holders. Shares go by this order."""
        return (self.label_holder, *self.feature_holders)
