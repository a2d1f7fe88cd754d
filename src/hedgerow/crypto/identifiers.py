"""Ids of records, written in one agreed way and digested, so that equal ids of two parties become equal bytes.

1. All parties agree on an `IdRule`: plain data, compared by its `fingerprint` before anything else is sent.
2. Each party normalises its own ids by it. Missing ids are refused; duplicates are refused, or all but the first left
   out. Errors name party and column, and counts, never an id.
3. digest = SHA-256(rule, context, normalised id): 32 bytes for each id, whatever its length.

A digest is as secret as the id: who sees it can try all names in a telephone book. Digests never leave a party;
`hedgerow.crypto.psi` makes of them what may be sent.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from hedgerow.crypto.masking import joined
from hedgerow.crypto.piles import Gathered, Room, first_bits, in_one_piece, in_piles, n_piles_for
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType

DIGEST_BYTES = 32
BLOCK_ROWS = 1 << 15
"""Ids that are turned into Python values at a time."""
MISSING_TYPES = frozenset({"NAType", "NaTType", "NoneType", "MaskedConstant"})
"""Names of the types that pandas, numpy and Python mark a missing value with; pandas is not imported to look."""

Duplicates = Literal["refuse", "first"]
Rows = npt.NDArray[np.int64]
Bytes32 = npt.NDArray[np.uint8]  # [n, 32]

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}")  # ASCII digits only; longer ones would take quadratic time to read
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "kind": ("text", "integer"),
    "unicode_form": ("NFC", "NFKC", "as_is"),
    "case": ("keep", "fold"),
    "strip": (True, False),
}


@dataclass(frozen=True)
class IdRule:
    """How ids are written before they are compared. All parties must go by the same one: compare `fingerprint`.

    kind            "text": ids are text, and numbers are refused, since 7 and "007" may or may not be one person.
                    "integer": whole numbers, or text of the digits 0-9 with or without sign; leading zeros and blanks
                    around do not count. Numbers with a decimal point are refused in both kinds.
    unicode_form    "NFC": one spelling for what looks the same, as é in one or two characters. "NFKC": also for
                    ligatures, full-width letters and the like. "as_is": none.
    case            "keep", or "fold": capitals do not count (Unicode case folding, so that "ß" equals "SS").
    strip           whether white space at both ends is taken off. White space inside always counts.

    1. Unicode form, 2. case folding, followed by the Unicode form again, 3. stripping. Doing it twice changes nothing.

    Python versions know different versions of Unicode. They agree on all characters that both know.
    """

    kind: Literal["text", "integer"] = "text"
    unicode_form: Literal["NFC", "NFKC", "as_is"] = "NFC"
    case: Literal["keep", "fold"] = "keep"
    strip: bool = True

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed or isinstance(value, bool) != (name == "strip"):
                raise InvalidParameter(f"{name} of an id rule must be one of {allowed}, got {value!r}")
        if self.kind == "integer" and (self.unicode_form, self.case, self.strip) != ("NFC", "keep", True):
            raise InvalidParameter("unicode_form, case and strip of an id rule are for ids of kind 'text' only")

    def to_dict(self) -> dict[str, str | bool]:
        """The rule as plain data, to be recorded and shown."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> IdRule:
        """The rule that `to_dict` wrote; InvalidParameter for other names or values."""
        if set(data) != set(_CHOICES):
            raise InvalidParameter(f"an id rule has the fields {sorted(_CHOICES)}, got {sorted(map(str, data))}")
        return cls(**data)

    @property
    def canonical(self) -> str:
        """The one way of writing the rule as text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits; equal for equal rules, and for no two others."""
        return hashlib.sha256(joined("hedgerow id rule v1", self.canonical)).hexdigest()[:32]

    def normalised(self, value: object) -> str:
        """One id as it is compared; "" stands for a missing one.

        TypeError for a value of a type that the rule does not know, ValueError for text that is no such id. Both say
        nothing about the value.
        """
        if is_missing(value):
            return ""
        if self.kind == "integer":
            return _whole_number(value)
        if not isinstance(value, str):
            raise TypeError
        return self._text(value)

    def _text(self, text: str) -> str:
        if self.case == "fold":
            # From the fully decomposed form and twice, as Unicode prescribes: folding may undo a composition, and
            # composing may make letters that can be folded.
            start = text if self.unicode_form == "as_is" else unicodedata.normalize("NFD", text)
            text = self._formed(self._formed(start.casefold()).casefold())
        else:
            text = self._formed(text)
        return text.strip() if self.strip else text

    def _formed(self, text: str) -> str:
        return text if self.unicode_form == "as_is" else unicodedata.normalize(self.unicode_form, text)


def is_missing(value: object) -> bool:
    """Whether a value stands for "none": None, NaN, and what pandas and numpy use."""
    return type(value).__name__ in MISSING_TYPES or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _whole_number(value: object) -> str:
    if isinstance(value, str):
        stripped = value.strip()
        if stripped and not _WHOLE_NUMBER.fullmatch(stripped):
            raise ValueError
        return str(int(stripped)) if stripped else ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError
    return str(int(value))


@dataclass(frozen=True, repr=False, eq=False)
class PreparedIds:
    """The digests of a party's distinct ids, and the row each came from. It stays with the party."""

    party: str
    column: str
    digests: Bytes32  # [n, 32]
    rows: Rows  # [n] increasing
    n_rows: int  # of the table, with those left out

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"PreparedIds({self.party!r}, {self.column!r}, {len(self)} ids of {self.n_rows} rows, digests hidden)"


def prepare_ids(
    values: Iterable[object],
    rule: IdRule,
    *,
    context: str,
    party: str,
    column: str = "id",
    duplicates: Duplicates = "refuse",
    room: Room = np.empty,
) -> PreparedIds:
    """One party's ids, normalised and digested; many of them in `room` (`hedgerow.crypto.piles`).

    1. Each value by the rule. Missing, foreign or unreadable ones are counted, and any of them is an error.
    2. digest = SHA-256(label, rule, context | id). The context (the run's id) makes each run's digests its own.
    3. Two rows with one id: an error ("refuse"), or the later rows are left out ("first").
    """
    if duplicates not in ("refuse", "first"):
        raise InvalidParameter(f"duplicates must be 'refuse' or 'first', got {duplicates!r}")
    where = f"{party}: column {column!r}"
    start = hashlib.sha256(joined("hedgerow id v1", rule.canonical, context))
    digests = Gathered(room)
    missing = foreign = unreadable = 0
    for plain in plain_blocks(values, where):
        made = []
        for value in plain:
            one = start.copy()
            try:
                encoded = rule.normalised(value).encode()
            except TypeError:
                foreign += 1
                encoded = b"?"
            except ValueError:  # no number, or text with half of a surrogate pair
                unreadable += 1
                encoded = b"?"
            missing += not encoded
            one.update(encoded)
            made.append(one.digest())
        digests.add(np.frombuffer(b"".join(made), np.uint8).reshape(-1, DIGEST_BYTES))
    n_rows = digests.n
    if foreign:
        wanted = "text" if rule.kind == "text" else "whole numbers, or text of digits"
        raise InvalidType(f"{where} holds {foreign} ids of {n_rows} that are not {wanted}, which the id rule wants")
    if unreadable:
        raise InvalidInput(f"{where} holds {unreadable} ids of {n_rows} that cannot be read as {rule.kind}")
    if missing:
        raise InvalidInput(f"{where} holds {missing} missing ids of {n_rows}; leave these rows out or fill them in")
    table = in_one_piece(digests.taken() or [np.empty((0, DIGEST_BYTES), np.uint8)], room)
    rows = first_rows(table, room)
    repeated = len(table) - len(rows)
    if repeated and duplicates == "refuse":
        raise InvalidInput(
            f"{where} holds {repeated} rows of {len(table)} whose id stands in an earlier row already, after "
            f"normalisation; make ids unique, or take the first row of each with duplicates='first'"
        )
    if repeated:
        kept = Gathered(room)
        for first in range(0, len(rows), BLOCK_ROWS):
            kept.add(table[rows[first : first + BLOCK_ROWS]])
        table = in_one_piece(kept.taken(), room)
    return PreparedIds(party, column, table, rows, n_rows)


def plain_blocks(values: Iterable[object], where: str) -> Iterator[list[object]]:
    """Lists of Python values, a block at a time: all at once they would take several times the memory of the column."""
    if isinstance(values, str | bytes | Mapping):
        raise InvalidType(f"{where} must be a column of ids, got {type(values).__name__}")
    if getattr(values, "ndim", 1) != 1:
        raise InvalidType(f"{where} must be one column of ids, got {getattr(values, 'ndim', None)} dimensions")
    sliced = getattr(values, "iloc", values)  # of a pandas series, whose own brackets may mean labels
    if isinstance(values, Sized) and hasattr(sliced, "__getitem__"):
        for start in range(0, len(values), BLOCK_ROWS):
            yield _plain(sliced[start : start + BLOCK_ROWS])
        return
    one_by_one = iter(values)
    while block := list(itertools.islice(one_by_one, BLOCK_ROWS)):
        yield block


def _plain(values: Any) -> list[object]:
    """A list of Python values; arrays, series and columns of tables know how to make one."""
    for name in ("to_pylist", "tolist", "to_list"):  # arrow; numpy and pandas; polars
        if (method := getattr(values, name, None)) is not None:
            return cast("list[object]", method())
    return list(values)


def first_rows(table: Bytes32, room: Room = np.empty) -> Rows:
    """The rows whose 32 bytes stand in no earlier row, in increasing order.

    1. Which rows share their first eight bytes with another one? Of digests, next to none but those that are equal.
    2. Only these are compared as a whole.
    """
    n_piles = n_piles_for(len(table))
    words = Gathered(room)
    for start in range(0, len(table), BLOCK_ROWS):
        part = np.ascontiguousarray(table[start : start + BLOCK_ROWS, :8])
        words.add(part.view(">u8")[:, 0].astype(np.uint64))
    alike = [np.empty(0, np.int64)]
    for drawn, numbers in in_piles(words.taken(), lambda _, part: first_bits(part, n_piles), n_piles, room):
        order = np.argsort(drawn, kind="stable")
        in_order = drawn[order]
        is_same = np.zeros(len(order) + 1, np.bool_)
        is_same[1:-1] = in_order[1:] == in_order[:-1]
        alike.append(numbers[order[is_same[:-1] | is_same[1:]]].astype(np.int64))
    suspects = np.sort(np.concatenate(alike))
    order, is_new = sorted_runs(table[suspects])
    # Sorting is stable: the first row of a run of equal ones is the earliest.
    later = np.sort(suspects[order[~is_new]])
    rows: Rows = (room if n_piles > 1 else np.empty)((len(table) - len(later),), np.int64)
    is_first = np.ones(len(table), np.bool_)
    is_first[later] = False
    filled = 0
    for start in range(0, len(table), BLOCK_ROWS):
        found = start + np.flatnonzero(is_first[start : start + BLOCK_ROWS])
        rows[filled : filled + len(found)] = found
        filled += len(found)
    return rows


def sorted_runs(table: Bytes32) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The order that sorts rows of 32 bytes, and for each place in it whether a new value begins there."""
    words = np.ascontiguousarray(table).view(">u8")  # [n, 4]; big-endian, so that their order is that of the bytes
    # Digests and points differ in their first eight bytes, if they differ, but for one pair in 2^64.
    order = np.argsort(words[:, 0].astype(np.uint64), kind="stable").astype(np.int64, copy=False)
    is_new = _begins(words, order)
    if np.any(is_new[1:] & (words[order[1:], 0] == words[order[:-1], 0])):
        order = np.lexsort(words.T[::-1]).astype(np.int64, copy=False)
        is_new = _begins(words, order)
    return order, is_new


def _begins(words: npt.NDArray[np.unsignedinteger[Any]], order: Rows) -> npt.NDArray[np.bool_]:
    """For each place in an order whether its row differs from the one before; the first does."""
    is_new = np.zeros(len(order), np.bool_)
    is_new[:1] = True
    for column in words.T:
        in_order = column[order]
        is_new[1:] |= in_order[1:] != in_order[:-1]
    return is_new
