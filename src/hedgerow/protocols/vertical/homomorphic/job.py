"""What a run of vertical.homomorphic is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.crypto.edwards25519 import AFFINE, COMPRESSED
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.vertical.noised_gradients.job import XGBOOST, GradientsJob
from hedgerow.runtime.protocol import option

BLOCK_ROWS = 4096
"""Rows of a message: one block is on its way and one is read while the next is encrypted."""


@dataclass(frozen=True)
class HomomorphicJob(GradientsJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.homomorphic"
    score = XGBOOST

    fresh_randomness: bool = option(
        False, "whether every tree has random points of its own: half more to send", one_of=(True, False)
    )
    compressed: bool = option(
        False, "whether points are sent in half the bytes, for links below some 70 Mbit/s", one_of=(True, False)
    )

    def check(self) -> None:
        """Leaves are rated by sums of gradients and hessians alone: nobody counts rows."""
        super().check()
        if self.boosting.min_samples_leaf > 1:
            raise InvalidParameter(
                f"{self.NAME}: min_samples_leaf is not available, because feature holders send no numbers of rows; got "
                f"{self.boosting.min_samples_leaf}. min_child_weight works"
            )

    @property
    def n_words(self) -> int:
        """Of a point on its way."""
        return COMPRESSED if self.compressed else AFFINE
