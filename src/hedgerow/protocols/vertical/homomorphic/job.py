"""What a run of vertical.homomorphic is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from hedgerow.crypto import elgamal, okamoto_uchiyama, packed, paillier
from hedgerow.crypto.additive import LIMIT, MOST_LIMIT, Holder, Keys
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.losses import Loss
from hedgerow.engine.table import Table
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import is_number
from hedgerow.protocols.central.bins import public_bins
from hedgerow.protocols.vertical.common.agreement import WithSchema
from hedgerow.protocols.vertical.noised_gradients.job import XGBOOST, GradientsJob
from hedgerow.runtime.protocol import option
from hedgerow.schema import Column, Schema

BLOCK_ROWS = 4096
"""Rows of a message: one block is on its way and one is read while the next is encrypted."""

ELGAMAL, PAILLIER, OU = "elgamal", "paillier", "ou"


class Scheme(NamedTuple):
    """What a statement says of one."""

    name: str
    assumption: str


SCHEMES = {
    ELGAMAL: Scheme("elliptic curve ElGamal on edwards25519", "decisional Diffie-Hellman is hard on it"),
    PAILLIER: Scheme(
        "Paillier", "decisional composite residuosity is hard, also for randomness with exponents of 260 bits"
    ),
    OU: Scheme("Okamoto-Uchiyama", "the p-subgroup problem is hard, also for randomness with exponents of 260 bits"),
}
BITS = {None: 126, 2048: 112, 3072: 128}
"""Of security, by key_bits."""


def _parse_dp(protocol: str, given: Any) -> tuple[float, float]:
    pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(pair) != 2 or not all(map(is_number, pair)):
        raise InvalidParameter(f"{protocol}: dp must be (epsilon, delta), got {given!r}")
    return float(pair[0]), float(pair[1])


@dataclass(frozen=True)
class HomomorphicJob(WithSchema, GradientsJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.homomorphic"
    OPENS_SUMS: ClassVar[bool] = True
    score = XGBOOST

    scheme: str = option(ELGAMAL, "by which gradients are encrypted", one_of=tuple(SCHEMES))
    key_bits: int | None = option(
        None, "of the modulus of paillier and ou; 2048 unless told otherwise", one_of=packed.KEY_BITS
    )
    fresh_randomness: bool = option(
        False, "whether every tree has random points of its own: half more to send", one_of=(True, False)
    )
    compressed: bool = option(
        False, "whether points are sent in half the bytes, for links below some 70 Mbit/s", one_of=(True, False)
    )

    dp: tuple[float, float] | None = option(
        None,
        "(epsilon, delta) of one row of a feature holder towards the label holder, but for which way the row goes",
        words="(epsilon, delta)",
        parse=_parse_dp,
    )
    schema: Schema | None = option(
        None, "public bounds and levels of feature holders' columns, whose bins then follow from them; needed with dp"
    )

    def check(self) -> None:
        """Options go with the scheme, and with each other."""
        super().check()
        self._check_dp()
        if self.scheme == ELGAMAL and self.key_bits is not None:
            raise InvalidParameter(
                f"{self.NAME}: key_bits is for scheme='paillier' and 'ou', got {self.key_bits} with {self.scheme!r}; "
                "leave it out"
            )
        for name in ("fresh_randomness", "compressed"):
            if self.scheme != ELGAMAL and getattr(self, name):
                raise InvalidParameter(
                    f"{self.NAME}: {name} is for scheme='elgamal', got {name}=True with {self.scheme!r}; leave it out"
                )

    def _check_dp(self) -> None:
        """A budget that can be proved, and bounds that all know of what one row can do to sums."""
        if not self.has_noise:
            return
        mu_for(*self.budget)  # refuses what is no budget, and what cannot be proved
        if self.schema is None:
            raise InvalidParameter(
                f"{self.NAME}: dp needs the public bounds and levels of the feature holders' columns, "
                "schema=Schema.from_public(bounds={column: (low, high)}): bins that follow the rows would tell of them"
            )
        if self.boosting.min_samples_leaf > 1:
            raise InvalidParameter(
                f"{self.NAME}: with dp there is no min_samples_leaf, because feature holders would tell numbers of rows "
                f"without noise; got {self.boosting.min_samples_leaf}. min_child_weight works"
            )
        if self.boosting.max_depth is None:
            raise InvalidParameter(f"{self.NAME}: dp needs max_depth, as a row is summed once per level; got None")
        if self.task == "regression" and self.boosting.label_range is None:
            raise InvalidParameter(
                f"{self.NAME}: with dp a regression needs label_range=(low, high), which must be public: how far one "
                "row moves a sum follows from it"
            )

    @property
    def has_noise(self) -> bool:
        """Whether sums have noise."""
        return self.dp is not None and self.dp[0] != math.inf

    @property
    def budget(self) -> tuple[float, float]:
        """(epsilon, delta)."""
        return self.dp or (math.inf, 0.0)

    @property
    def counts_rows(self) -> bool:
        """Whether feature holders must know which rows count, because numbers of rows decide something."""
        return self.boosting.min_samples_leaf > 1 or self.boosting.min_rows_per_sum > 1

    @property
    def levels(self) -> int:
        """Levels of a tree that may be summed: each that is not the last has one more leaf at least."""
        depth, leaves = self.boosting.max_depth or math.inf, self.boosting.max_leaves or math.inf
        return int(min(depth, leaves - 1))

    def public_loss(self, n_classes: int = 2) -> Loss:
        """The loss as far as the job says it: of so many classes, or with a declared range of labels."""
        if self.task == "classification":
            return Loss("logistic") if n_classes == 2 else Loss("softmax", n_classes)
        quantile = self.boosting.quantile if self.boosting.loss == "quantile" else 0.5
        return Loss(self.boosting.loss, 1, self.boosting.label_range or (0.0, 1.0), quantile)

    def own_columns(self, party: str, table: Table) -> list[Column | None]:
        """What the schema says about the columns of a feature holder; with noise it must say something of all."""
        described = [self.described(party, column.name) for column in table.columns]
        unknown = [column.name for column, entry in zip(table.columns, described, strict=True) if entry is None]
        if self.schema is not None and unknown:
            raise InvalidParameter(
                f"{self.NAME}: column {unknown[0]!r} of {party} has no entry in the schema, neither as {unknown[0]!r} "
                f"nor as '{party}.{unknown[0]}'"
            )
        return described

    def bins(self, party: str, table: Table) -> BinMapper | None:
        """Of a feature holder's columns, where the schema has them; None: they follow from values."""
        if self.schema is None:
            return None
        described = zip(self.own_columns(party, table), table.columns, strict=True)
        columns = tuple(replace(entry, name=column.name) for entry, column in described if entry is not None)
        return public_bins(Schema(columns), self.max_bins - 1)

    @property
    def limit(self) -> int:
        """Sums, with the noise in them, are smaller than this either way."""
        return MOST_LIMIT if self.has_noise else LIMIT

    @property
    def modulus_bits(self) -> int | None:
        """Of schemes that have a modulus."""
        return None if self.scheme == ELGAMAL else self.key_bits or packed.KEY_BITS[0]

    def check_installed(self) -> None:
        """InvalidParameter if a package is missing that the scheme needs."""
        if self.scheme != ELGAMAL:
            packed.gmpy2()

    def keys(self, rng: SecureRandom, n_rows: int) -> Keys:
        """The label holder's side of the scheme."""
        if self.modulus_bits is None:
            return elgamal.Keys(rng, n_rows, compressed=self.compressed, limit=self.limit)
        if self.scheme == PAILLIER:
            return paillier.Keys(rng, self.modulus_bits, limit=self.limit)
        return okamoto_uchiyama.Keys(rng, self.modulus_bits, limit=self.limit)

    def holder(self, n_rows: int) -> Holder:
        """A feature holder's side."""
        if self.modulus_bits is None:
            return elgamal.Holder(n_rows, compressed=self.compressed, limit=self.limit)
        if self.scheme == PAILLIER:
            return paillier.Holder(n_rows, self.modulus_bits, limit=self.limit)
        return okamoto_uchiyama.Holder(n_rows, self.modulus_bits, limit=self.limit)
