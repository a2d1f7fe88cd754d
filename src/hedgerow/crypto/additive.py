"""What a scheme for sums under encryption offers: two sides, so that protocols know nothing of points or moduli.

`Keys` is who encrypts and opens, `Holder` is who sums and has no key. What passes between them is words, in this order;
a scheme that has no use for one of these has 0 words for it, and it is not sent.

    once        key       Keys.key           -> Holder.take_key          a public key
                points    Keys.row_points    -> Holder.take_points       something random for every row
    per tree    tree      Keys.begin_tree    -> Holder.take_tree         public keys of a tree
                row       Keys.encrypt_rows  -> Holder.take_rows         two values of every row
    per node    total     Keys.encrypt_totals -> Holder.complete         the sums of all its rows
                sums      Holder.finished    -> Keys.open                sums of some rows, `pack` of them at a time

`Holder` keeps sums in arrays [n, ...] of its own making, which nobody else looks into.

Nothing overflows: every sum, with the noise in it, stays below `limit` either way. Keys refuse what does not, and
everything else that is no ciphertext, with one sentence, so that refusals tell nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter, ProtocolError

Ints = npt.NDArray[np.int64]
RowIds = npt.NDArray[np.uint32]
Cells = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Sums = npt.NDArray[Any]

VALUES = 2
"""Of a row: gradient and hessian."""

LIMIT, MOST_LIMIT = 2**31, 2**36
"""Sums are smaller than this, either way. The engine's stay below the first; a logarithm beyond the last takes long."""

REFUSED = "a ciphertext that is not one, or that does not hold a sum in range"


class Sizes(NamedTuple):
    """Words of what is sent; 0: there is no such thing."""

    key: int
    point: int
    tree: int
    row: int
    total: int
    sums: int
    pack: int
    """Sums of one ciphertext."""

    def ciphertexts(self, n_sums: int) -> int:
        """Of this many sums of a node."""
        return -(-n_sums // self.pack)


class Keys(Protocol):
    """Who has the keys."""

    sizes: Sizes

    @property
    def key(self) -> Words:
        """The public key, [key words]."""

    def row_points(self, first: int, last: int) -> Words:
        """[rows, point words] of rows first to last."""

    def begin_tree(self) -> Words:
        """New keys, where the scheme has some for every tree: [tree words]."""

    def encrypt_rows(self, first: int, values: Ints) -> Words:
        """[rows, row words] of the values [rows, 2] of rows from `first` on; every row once in a tree, ascending."""

    def encrypt_totals(self, values: Ints) -> Words:
        """[n, total words] of sums [n, 2]."""

    def open(self, words: Words) -> Ints:
        """Sums [n x pack, 2] of ciphertexts [n, sums words]; ProtocolError if one is none, or out of range."""


class Holder(Protocol):
    """Who sums. What it is given is checked: ProtocolError."""

    sizes: Sizes

    def take_key(self, words: Words) -> None:
        """The public key."""

    def take_points(self, first: int, words: Words) -> None:
        """What is random, of the rows from `first` on."""

    def take_tree(self, words: Words) -> None:
        """The public keys of a tree."""

    def take_rows(self, first: int, words: Words) -> None:
        """The encrypted rows from `first` on."""

    def no_sums(self, n: int) -> Sums:
        """[n, ...] sums of nothing."""

    def unset_sums(self, n: int) -> Sums:
        """[n, ...] of which nothing is said until `add_rows` has used them."""

    def add_rows(self, which: RowIds, cell: Cells, skipped: int, cells: Sums, used: Flags) -> None:
        """cells[cell[k]] += row which[k], but for the skipped cell; `used` says which cells are set, and is updated."""

    def fold_cells(self, cells: Sums, used: Flags, n_codes: Ints, skipped: Ints, first: Ints, sums: Sums) -> None:
        """sums[first[j] + code of column j] += cells, for every joint cell in use, skipped codes aside.

        A cell's number is that of its codes, of which there are n_codes[j] per column; the last changes fastest.
        """

    def complete(self, sums: Sums, n_codes: Ints, skipped: Ints, first: Ints, total: Words) -> None:
        """The sum of each column's skipped code: the node's total [total words] less all other codes."""

    def finished(self, sums: Sums, rng: SecureRandom, noise: Ints | None = None) -> Words:
        """[ciphertexts, sums words]: sums that tell nothing but what they add up to, noise [n, 2] added to them.

        `sums` is overwritten.
        """


def check_limit(limit: int) -> int:
    """A limit that every scheme can hold."""
    if not 1 <= limit <= MOST_LIMIT:
        raise InvalidParameter(f"limit must be between 1 and {MOST_LIMIT}, got {limit}")
    return limit


def check_values(values: Ints, n_values: int, limit: int) -> Ints:
    """What is to be encrypted, or added as noise."""
    is_out = (values <= -limit) | (values >= limit)  # not np.abs: that of -2**63 is negative
    if values.shape[1:] != (n_values,) or is_out.any():
        raise ProtocolError(f"{n_values} values below {limit} are encrypted for a row, got {values.shape}")
    return np.ascontiguousarray(values, np.int64)
