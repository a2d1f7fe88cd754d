"""What a run of vertical.mp_fedxgb is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.shares.job import SharesJob

FRACTIONS, DIVISION = "fractions", "division"
STAMP = "accepted known leaks: comparisons opened sums of labels and columns (vertical.mp_fedxgb)"


@dataclass(frozen=True)
class MpFedXgbJob(SharesJob):
    """Everything that the parties must agree on."""

    NAME: ClassVar[str] = "vertical.mp_fedxgb"

    argmax: str = FRACTIONS
    first_layer_mask: bool = False
    accept_known_leaks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.NAME
        if self.argmax not in {FRACTIONS, DIVISION}:
            raise InvalidParameter(f"{name}: argmax must be {FRACTIONS!r} or {DIVISION!r}, got {self.argmax!r}")
        for parameter in ("first_layer_mask", "accept_known_leaks"):
            value = getattr(self, parameter)
            if not isinstance(value, bool):
                raise InvalidParameter(f"{name}: {parameter} must be True or False, got {value!r}")
        if not self.accept_known_leaks:
            raise InvalidParameter(
                f"{name} opens numerators of gains to {self.numerators_to} and denominators to {self.label_holder}, "
                "from which they compute sums of labels and of the others' columns. vertical.secret_shared does not; "
                "accept_known_leaks=True runs this one all the same, and stamps the model"
            )

    @property
    def numerators_to(self) -> str:
        """P2: the first feature holder."""
        return self.feature_holders[0]
