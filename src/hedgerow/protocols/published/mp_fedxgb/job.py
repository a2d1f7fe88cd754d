"""What a run of vertical.mp_fedxgb is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.runtime.protocol import option

FRACTIONS, DIVISION = "fractions", "division"
STAMP = "accepted known leaks: comparisons opened sums of labels and columns (vertical.mp_fedxgb)"


@dataclass(frozen=True)
class MpFedXgbJob(SharesJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.mp_fedxgb"
    ONLY = MappingProxyType(
        {name: SharesJob.ONLY[name] for name in ("min_child_weight", "min_samples_leaf", "max_leaves")}
    )

    argmax: str = option(
        FRACTIONS,
        "how gains are compared: as fractions, or after a division",
        one_of=(FRACTIONS, DIVISION),
        words=f"{FRACTIONS!r} or {DIVISION!r}",
    )
    first_layer_mask: bool = option(False, "the paper's mask on the first layer of a tree")
    accept_known_leaks: bool = option(False, "needed: comparisons open sums of labels and columns")

    def check(self) -> None:
        """The gate."""
        super().check()
        if not self.accept_known_leaks:
            raise InvalidParameter(
                f"{self.NAME} opens numerators of gains to {self.numerators_to} and denominators to "
                f"{self.label_holder}, from which they compute sums of labels and of the others' columns. "
                "vertical.secret_shared does not; "
                "accept_known_leaks=True runs this one all the same, and stamps the model"
            )

    @property
    def numerators_to(self) -> str:
        """P2: the first feature holder."""
        return self.feature_holders[0]
