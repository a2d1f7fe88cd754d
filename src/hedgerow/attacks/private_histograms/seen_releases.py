"""What parties of vertical.private_histograms get to know: opened sums from a transcript, and rows of leaves.

Shares of others are on the wire, and so is a party's own: it sends the same to everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.errors import InvalidInput
from hedgerow.ledger import Ledger
from hedgerow.protocols.shares.messages import ColumnSizes
from hedgerow.protocols.vertical.common.messages import GoAhead
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.protocols.vertical.private_histograms.messages import Chosen, HistogramShare, LeafShare, StartShare
from hedgerow.protocols.vertical.private_histograms.plan import COUNT_UNIT
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript

NOWHERE = -1
"""Instead of the number of a sum: a row that is in none."""
_ROUNDED = 4.0
"""Variance of a row's gradient in squared units: it is rounded, and the logistic function on shares is not exact."""


def in_the_open(transcript: Transcript) -> Transcript:
    """The same without what is under masks, in memory: by far most of it is."""
    kinds = (StartShare, HistogramShare, LeafShare, Chosen, ColumnSizes, GoAhead)
    kept = {kind.NAME for kind in kinds}
    passed = [each for each in transcript if peek(each.frame)[0] in kept]
    return Transcript(transcript.party, transcript.peers, passed, transcript.run_id)


class Opened(NamedTuple):
    """Numbers that all parties opened together, and the noise in them."""

    numbers: Ints
    sigma: float  # in the units of the numbers; 0 without noise


def opened(transcript: Transcript, ledger: Ledger, kind: type[Any], holders: Sequence[str]) -> list[Opened]:
    """All openings of one kind, in order: the sum of everybody's shares modulo 2**32, and what the ledger says."""
    others = [party for party in holders if party != transcript.party]
    shares = [transcript.messages(kind, SENT, others[0])]
    shares += [transcript.messages(kind, RECEIVED, party) for party in others]
    lines = (line for line in ledger.lines("disclosed", others[0]) if line.message == kind.NAME)
    if len({len(each) for each in shares}) > 1:
        raise InvalidInput(f"the transcript of {transcript.party} does not have everybody's shares of {kind.NAME}")
    found = []
    for messages, line in zip(zip(*shares, strict=True), lines, strict=True):
        words = [np.ascontiguousarray(message.words).view("<u4") for message in messages]
        total = np.asarray(np.sum(words, axis=0, dtype=np.uint32)).view(np.int32)
        found.append(Opened(total.astype(np.int64), float((line.event or {}).get("sigma", 0.0))))
    return found


class Model(NamedTuple):
    """What all parties but the dealer know of the model when it is there."""

    first_score: float
    values: list[Floats]  # of each tree's leaves

    @classmethod
    def of(cls, parts: Mapping[str, SharedLeavesPart]) -> Model:
        """Put together from all parts: every holder is told these numbers in clear while the trees grow."""
        some = next(iter(parts.values()))
        (first_score,) = next(part.target.base_scores for part in parts.values() if part.target is not None)
        unit = 2.0**-some.fraction_bits
        words = (
            np.sum([part.leaves[t] for part in parts.values()], axis=0, dtype=np.uint64) for t in range(some.n_trees)
        )
        return cls(first_score, [np.asarray(each).view(np.int64).astype(np.float64) * unit for each in words])


class Histograms(NamedTuple):
    """Noisy sums of gradients in the bins of some columns, at all nodes of a level."""

    tree: int
    level: int
    columns: list[int]  # among those of all holders, one after the other
    opened: Opened  # [nodes, bins of these columns], flat


class Released(NamedTuple):
    """The releases of a run from which labels can be estimated."""

    positives: float
    start_variance: float
    leaves: list[Opened]  # of each tree: G and n of each leaf, in units of gradients
    histograms: list[Histograms]
    n_codes: list[list[int]]  # [holders][columns] bins, missing values included
    unit: float  # of gradients

    @classmethod
    def seen_by(cls, transcript: Transcript, ledger: Ledger, part: SharedLeavesPart) -> Released:
        """From a feature holder's transcript; InvalidInput if sums are not those of leaves and of bins of columns."""
        start = opened(transcript, ledger, StartShare, part.holders)
        leaves = opened(transcript, ledger, LeafShare, part.holders)
        n_codes = [_n_codes(transcript, party) for party in part.holders]
        if len(start) != 1 or [len(each.numbers) for each in leaves] != [2 * tree.n_leaves for tree in part.trees]:
            raise InvalidInput(
                f"the transcript of {transcript.party} does not have two sums for each leaf of each tree"
            )
        histograms = list(_histograms(transcript, ledger, part, [n for each in n_codes for n in each]))
        unit = 2.0 ** -int(part.meta["gradient_bits"])
        return cls(float(start[0].numbers[0]), start[0].sigma ** 2, leaves, histograms, n_codes, unit)

    def sums_of_leaves(self, tree: int) -> Floats:
        """[leaves, 2] G and n, as large as gradients are."""
        return self.leaves[tree].numbers.reshape(-1, 2).astype(np.float64) * self.unit


def _n_codes(transcript: Transcript, party: str) -> list[int]:
    way, peer = (SENT, None) if party == transcript.party else (RECEIVED, party)
    sizes = transcript.messages(ColumnSizes, way, peer)[0]
    return [int(n) for n in sizes.n_bins + sizes.has_missing]


def _histograms(
    transcript: Transcript, ledger: Ledger, part: SharedLeavesPart, n_codes: list[int]
) -> Iterator[Histograms]:
    """First those of all columns at the first root, then a few columns of each level, which the label holder names."""
    found = opened(transcript, ledger, HistogramShare, part.holders)
    if not found:
        return
    chosen = transcript.messages(Chosen, RECEIVED, part.label_holder)
    depth = (part.trees[0].n_leaves - 1).bit_length()
    expected = [(0, 0, list(range(len(n_codes))))]
    for tree in range(part.n_trees):  # of each: columns, the split of each level, leaf values; before all, one score
        drawn = chosen[1 + tree * (depth + 2)].values.reshape(depth, -1)
        expected += [(tree, level, [int(column) for column in drawn[level]]) for level in range(depth)]
    if len(found) != len(expected):
        raise InvalidInput(f"{transcript.party} received {len(found)} histograms where {len(expected)} are due")
    for (tree, level, columns), sums in zip(expected, found, strict=True):
        if len(sums.numbers) != sum(n_codes[column] for column in columns) << level:
            raise InvalidInput(f"the histograms that {transcript.party} received are of other bins than was told")
        yield Histograms(tree, level, columns, sums)


# --- sums of labels --------------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums of labels over disjoint rows, with noise."""

    place: Ints  # [rows] the sum that each row is in, or NOWHERE
    sums: Floats  # [sums]
    variance: Floats  # [sums] of the noise

    def checked(self, n_rows: int) -> Sums:
        """The same, if its arrays fit each other and this number of rows."""
        place, sums, variance = self
        fits = place.shape == (n_rows,) and sums.ndim == 1 and variance.shape == sums.shape
        if not fits or place.min(initial=0) < NOWHERE or place.max(initial=NOWHERE) >= len(sums):
            raise InvalidInput(
                f"a place of {n_rows} rows and a variance per sum are needed, got {place.shape}, {sums.shape}"
            )
        if not (np.isfinite(sums).all() and np.isfinite(variance).all() and (variance >= 0.0).all()):
            raise InvalidInput("sums must be finite, and so must the variances of their noise, none of them negative")
        return self


class Look(NamedTuple):
    """Sums to somebody who knows all that is in them but one row's part."""

    place: Ints  # [rows] the sum that each row is in, or NOWHERE
    amount: Floats  # [rows] what a row's secret moves its sum by
    noise: Floats  # [sums] as it was drawn
    variance: Floats  # [sums] as it is stated


def looks_at_labels(seen: Sequence[Sums], labels: npt.ArrayLike) -> list[Look]:
    """For one label that is 0 or 1, all others being known."""
    true, looks = np.asarray(labels, np.float64), []
    for each in seen:
        place, sums, variance = each.checked(len(true))
        inside = place != NOWHERE
        noise = sums - np.bincount(place[inside], true[inside], len(sums))
        looks.append(Look(place, np.ones(len(true)), noise, variance))
    return looks


# --- who knows which rows --------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """Parts and columns of parties that put together what they know."""

    parts: Sequence[SharedLeavesPart]
    codes: Sequence[Bytes]  # of each part: [columns, rows]

    def possible(self, tree: int) -> Bytes:
        """[rows, leaves] 1 unless their splits rule it out."""
        found = [part.indicators(tree, own) for part, own in zip(self.parts, self.codes, strict=True)]
        return np.asarray(np.bitwise_and.reduce(found))

    def column(self, number: int, n_codes: Sequence[Sequence[int]]) -> Bytes | None:
        """The bins of a column, by its number among those of all holders; None if it is somebody else's."""
        for party, sizes in zip(self.parts[0].holders, n_codes, strict=True):
            if number < len(sizes):
                own = [codes for part, codes in zip(self.parts, self.codes, strict=True) if part.party == party]
                return own[0][number] if own else None
            number -= len(sizes)
        raise InvalidInput("there is no such column")


def sums_of_labels(released: Released, model: Model, known: Known) -> Iterator[Sums]:
    """What releases say about labels to those who put together what they know of rows.

    Leaves between which their splits do not decide are put together. Scores of rows are then known on average only:
    what that is worth is added to the variance.
    """
    n_rows = known.codes[0].shape[1]
    yield Sums(np.zeros(n_rows, np.int64), np.array([released.positives]), np.array([released.start_variance]))
    for tree, possible, before in _before_trees(released, model, known):
        yield from _of_tree(tree, possible, before, released, known)


def looks_at_rows(released: Released, model: Model, known: Known, labels: Floats) -> Iterator[Look]:
    """What releases say about whether a row counts, to those who know all columns and labels, and all other rows do."""
    n_rows = len(labels)
    start = np.array([released.positives - labels.sum()])
    yield Look(np.zeros(n_rows, np.int64), labels, start, np.array([released.start_variance]))
    for tree, possible, before in _before_trees(released, model, known):
        for sums in _of_tree(tree, possible, before, released, known):
            (look,) = looks_at_labels([sums], labels)
            yield look._replace(amount=before.p - labels)
        n_seen = released.sums_of_leaves(tree)[:, 1] / float(COUNT_UNIT)
        leaf = np.argmax(possible, axis=1).astype(np.int64)
        variance = np.full(len(n_seen), (released.leaves[tree].sigma * released.unit / float(COUNT_UNIT)) ** 2)
        yield Look(leaf, np.ones(n_rows), n_seen - np.bincount(leaf, minlength=len(n_seen)), variance)


def _before_trees(released: Released, model: Model, known: Known) -> Iterator[tuple[int, Bytes, _Before]]:
    """Of each tree: its number, the leaves that each row may be in, and what is known of rows before it."""
    n_rows = known.codes[0].shape[1]
    score, spread = np.full(n_rows, model.first_score), np.zeros(n_rows)
    for tree, values in enumerate(model.values):
        possible = known.possible(tree)
        p = expit(score)
        yield tree, possible, _Before(p, (p * (1.0 - p)) ** 2 * spread + _ROUNDED * released.unit**2)
        n = np.maximum(released.sums_of_leaves(tree)[:, 1], 0.0)
        mean, variance = _value_of_rows(possible, n, values)
        score, spread = score + mean, spread + variance


def _of_tree(tree: int, possible: Bytes, before: _Before, released: Released, known: Known) -> Iterator[Sums]:
    """From the leaves of a tree, and from histograms of its levels."""
    G = released.sums_of_leaves(tree)[:, :1]
    yield before.sums(possible, G, (released.leaves[tree].sigma * released.unit) ** 2)
    for each in released.histograms:
        if each.tree == tree:
            yield from _of_columns(each, released, known, possible, before)


class _Before(NamedTuple):
    """What is known of rows before a tree: the probability of class 1, and how wrong that may be."""

    p: Floats
    variance: Floats

    def sums(self, possible: Bytes, G: Floats, noise: float, code: Bytes | None = None) -> Sums:
        """From sums of gradients [nodes, bins], where rows may be in several nodes and are in the bin `code`."""
        node, n_groups, group_of_node = _told_apart(possible)
        if code is None:
            noise, G, code = noise * G.shape[1], G.sum(axis=1, keepdims=True), np.zeros(len(node), np.uint8)
        n_bins = G.shape[1]
        place, n_sums = node * n_bins + code, n_groups * n_bins
        group = (group_of_node[:, None] * n_bins + np.arange(n_bins)).reshape(-1)
        sums = np.bincount(place, self.p, n_sums) - np.bincount(group, G.reshape(-1), n_sums)
        variance = np.bincount(group, minlength=n_sums) * noise + np.bincount(place, self.variance, n_sums)
        return Sums(place, sums.astype(np.float64), variance.astype(np.float64))


def _of_columns(each: Histograms, released: Released, known: Known, leaves: Bytes, before: _Before) -> Iterator[Sums]:
    n_nodes = 1 << each.level
    possible = leaves.reshape(len(leaves), n_nodes, -1).max(axis=2)
    sums = each.opened.numbers.reshape(n_nodes, -1).astype(np.float64) * released.unit
    sizes, start = [n for holder in released.n_codes for n in holder], 0
    for column in each.columns:
        G = sums[:, start : start + sizes[column]]
        code = known.column(column, released.n_codes)
        yield before.sums(possible, G, (each.opened.sigma * released.unit) ** 2, code)
        start += sizes[column]


def _told_apart(possible: Bytes) -> tuple[Ints, int, Ints]:
    """The group of each row, how many there are, and the group of each leaf: leaves of one row are in one group."""
    different = np.unique(np.packbits(possible, axis=1), axis=0)
    patterns = np.unpackbits(different, axis=1, count=possible.shape[1]).astype(np.int64)
    n_groups, of_leaf = connected_components(patterns.T @ patterns, directed=False)
    return of_leaf[np.argmax(possible, axis=1)].astype(np.int64), int(n_groups), of_leaf.astype(np.int64)


def _value_of_rows(possible: Bytes, n: Floats, values: Floats) -> tuple[Floats, Floats]:
    """[rows] mean and variance of the value of the leaf that a row may be in, by the leaves' noisy numbers of rows."""
    likely = n + 1e-9 * (n.sum() + 1.0)
    whole = possible @ likely
    mean = possible @ (likely * values) / whole
    return mean, np.maximum(possible @ (likely * values**2) / whole - mean**2, 0.0)
