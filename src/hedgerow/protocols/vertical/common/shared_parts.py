r"""Parts of a model whose leaf values nobody knows: every party has its own splits, and a share of every leaf's value.

    bank                                           shop
    tree 0:   income < 3000                        tree 0:   (of another party)
              /           \                                  /            \
       (of another party)  leaf 0                     basket < 17.5        leaf 0
         /       \                                     /       \
      leaf 1    leaf 2                              leaf 1    leaf 2
    words of leaves 0, 1, 2                        words of leaves 0, 1, 2

All know the shapes of the trees. A leaf's value is the sum of all parties' words modulo 2**64, as a number of two's
complement with `fraction_bits` bits after the point. So nobody can score a row alone, nor all together without sending
words that give the score (vertical.closed_scoring). How scores become predictions is written in the label holder's
part: its `target`.

Leaves of a tree are numbered in the order of their nodes, which is breadth-first.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Bytes, Int32s, Ints
from hedgerow.engine.ensemble import Tree
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.protocols.vertical.common.parts import (
    LabelHolderPart,
    OwnerPart,
    Part,
    Target,
    check_fields,
    check_names,
    common_fields,
    expect,
    read_split,
    unique_questions,
    written_split,
)

Words = npt.NDArray[np.uint64]

LEAF, FOREIGN = -1, -2
"""Instead of a column: a node that is a leaf, and one that splits another party's column."""
_FOREIGN_NODE = "other"
MAX_FRACTION_BITS = 62


# --- trees -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartialTree:
    """What one party knows of a tree: its shape and its own splits. The k-th inner node has children 2k + 1, 2k + 2."""

    column: Int32s  # [nodes] of this party's columns; LEAF or FOREIGN
    bin: Int32s  # [nodes] last bin that goes left, at own splits; elsewhere -1
    missing_left: Bools  # [nodes] whether missing values go left, at own splits; elsewhere False

    def __post_init__(self) -> None:
        for name, dtype in (("column", np.int32), ("bin", np.int32), ("missing_left", np.bool_)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        shape = self.column.shape
        if len(shape) != 1 or self.bin.shape != shape or self.missing_left.shape != shape:
            raise InvalidInput("a tree has one column, bin and way of missing values for each node")
        inner = np.flatnonzero(self.column != LEAF)
        if len(self.column) != 2 * len(inner) + 1 or (inner > 2 * np.arange(len(inner))).any():
            raise InvalidInput(f"{len(inner)} inner nodes of {len(self.column)} do not make a tree, breadth-first")
        own = self.column >= 0
        if (self.column < FOREIGN).any() or (self.bin[own] < 0).any() or (self.bin[~own] != -1).any():
            raise InvalidInput("a tree says after which bin it splits at its own splits, and only there")
        if (self.missing_left & ~own).any():
            raise InvalidInput("a tree says where missing values go at its own splits, and only there")

    @property
    def n_nodes(self) -> int:
        """Inner nodes and leaves."""
        return len(self.column)

    @property
    def n_leaves(self) -> int:
        """One more than the splits."""
        return self.n_nodes // 2 + 1

    @property
    def is_leaf(self) -> Bools:
        """Which nodes are leaves: all that parties have in common."""
        return np.asarray(self.column == LEAF)

    def indicators(self, codes: Bytes, missing_codes: Sequence[int]) -> Bytes:
        """For each row and leaf, 1 if own splits do not rule it out: uint8 [rows, leaves].

        From codes [columns, rows] of own columns; `missing_codes` has the code of a missing value for each of them.
        """
        n_rows = codes.shape[1] if codes.ndim == 2 else 0
        ways = {0: np.packbits(np.ones(n_rows, np.uint8))}  # node -> rows not ruled out, packed
        out = np.empty((self.n_leaves, n_rows), np.uint8)
        n_inner = n_leaves = 0
        for node, column in enumerate(self.column.tolist()):
            here = ways.pop(node)
            if column == LEAF:
                out[n_leaves] = np.unpackbits(here, count=n_rows)
                n_leaves += 1
                continue
            left, right = here, here
            if column >= 0:
                goes_right = np.packbits(self._goes_right(node, codes[column], missing_codes[column]))
                left, right = here & ~goes_right, here & goes_right
            ways[2 * n_inner + 1], ways[2 * n_inner + 2] = left, right
            n_inner += 1
        return np.ascontiguousarray(out.T)

    def _goes_right(self, node: int, codes: Bytes, missing_code: int) -> Bools:
        right = codes > self.bin[node]
        if self.missing_left[node]:
            right &= codes != missing_code
        return np.asarray(right)  # the code of a missing value is above all others


def shapes_of(trees: Sequence[PartialTree]) -> bytes:
    """A fingerprint of the shapes of all trees: equal at all parties whose parts belong together."""
    told = hashlib.sha256()
    for tree in trees:
        told.update(tree.n_nodes.to_bytes(8, "little"))
        told.update(np.packbits(tree.is_leaf).tobytes())
    return told.digest()


def all_indicators(trees: Sequence[PartialTree], codes: Bytes, missing_codes: Sequence[int]) -> Bytes:
    """The indicators of several trees, side by side: uint8 [rows, leaves of all of them]."""
    found = [tree.indicators(codes, missing_codes) for tree in trees]
    return np.concatenate(found, axis=1) if found else np.empty((codes.shape[1], 0), np.uint8)


# --- parts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SharedLeavesPart(Part):
    """One party's part, label holder or not: its splits, where they stand in the trees, and its words of the leaves."""

    ROLE = "shared_leaves"  # whoever's it is
    FIELDS = (
        *("party", "label_holder", "holders", "protocol", "run_id"),
        *("features", "trees", "fraction_bits", "target", "meta"),
    )

    party: str
    label_holder: str
    holders: tuple[str, ...]  # whose parts make the model: the label holder, then the feature holders
    protocol: str
    run_id: str
    features: tuple[FeatureBins, ...]  # its columns, as they were binned for training
    trees: tuple[PartialTree, ...]
    leaves: tuple[Words, ...]  # of each tree: this party's word of each leaf's value
    fraction_bits: int  # of a value, after the point
    target: Target | None = None  # at the label holder
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", tuple(np.ascontiguousarray(words, np.uint64) for words in self.leaves))
        if self.party not in self.holders or self.holders[:1] != (self.label_holder,):
            raise InvalidInput(f"{self.party}: the holders of a part are the label holder, then all others")
        if len(set(self.holders)) < max(len(self.holders), 2):
            raise InvalidInput(f"{self.party}: leaves are shared among at least 2 different holders")
        if (self.target is not None) != (self.party == self.label_holder):
            raise InvalidInput(f"{self.party}: the label holder's part says what scores are for, and no other does")
        if type(self.fraction_bits) is not int or not 0 <= self.fraction_bits <= MAX_FRACTION_BITS:
            raise InvalidInput(f"{self.party}: fraction_bits must be between 0 and {MAX_FRACTION_BITS}")
        check_names(self.features, f"{self.party}: ")
        if len(self.leaves) != len(self.trees):
            raise InvalidInput(f"{self.party}: there are {len(self.trees)} trees, but leaves of {len(self.leaves)}")
        for number, (tree, words) in enumerate(zip(self.trees, self.leaves, strict=True)):
            self._check(number, tree, words)

    def _check(self, number: int, tree: PartialTree, words: Words) -> None:
        if words.shape != (tree.n_leaves,):
            raise InvalidInput(
                f"{self.party}: tree {number} has {tree.n_leaves} leaves, but words of shape {words.shape}"
            )
        own = tree.column >= 0
        if (tree.column >= len(self.features)).any():
            raise InvalidInput(f"{self.party}: tree {number} splits a column that is not there")
        for column, last_bin in zip(tree.column[own].tolist(), tree.bin[own].tolist(), strict=True):
            feature = self.features[column]
            if feature.levels is not None or last_bin >= feature.n_value_bins:
                raise InvalidInput(f"{self.party}: a split of tree {number} does not fit column {feature.name!r}")

    @property
    def n_trees(self) -> int:
        """Trees of all outputs."""
        return len(self.trees)

    @property
    def asked_columns(self) -> frozenset[int]:
        """Own columns that some tree splits."""
        return frozenset(j for tree in self.trees for j in tree.column.tolist() if j >= 0)

    @property
    def missing_codes(self) -> tuple[int, ...]:
        """By column: the code of a missing value."""
        return tuple(feature.missing_code for feature in self.features)

    def indicators(self, tree: int, codes: Bytes) -> Bytes:
        """For each row of `codes` [columns, rows], the leaves of a tree that own splits leave: uint8 [rows, leaves]."""
        return self.trees[tree].indicators(codes, self.missing_codes)

    def written(self) -> dict[str, Any]:
        """Holders and trees as lists; words in base64, as they lie in memory (little-endian)."""
        trees = [
            {
                "nodes": [self._node(tree, node) for node in range(tree.n_nodes)],
                "leaves": base64.b64encode(words.astype("<u8").tobytes()).decode("ascii"),
            }
            for tree, words in zip(self.trees, self.leaves, strict=True)
        ]
        target = None if self.target is None else self.target.to_dict()
        own = {"holders": list(self.holders), "trees": trees, "target": target, "meta": dict(self.meta)}
        return super().written() | own

    def _node(self, tree: PartialTree, node: int) -> dict[str, Any] | str | None:
        column = int(tree.column[node])
        if column < 0:
            return None if column == LEAF else _FOREIGN_NODE
        split = written_split(self.features[column], int(tree.bin[node]), bool(tree.missing_left[node]), tree.is_leaf)
        return {name: split[name] for name in ("column", "threshold", "missing_left")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SharedLeavesPart:
        """The inverse of `to_dict`."""
        common, holders = common_fields(data), expect(data, "holders", list)
        if not all(isinstance(party, str) for party in holders):
            raise ModelFileError("holders must be names")
        trees, leaves = [], []
        for number, tree in enumerate(expect(data, "trees", list)):
            if not isinstance(tree, Mapping):
                raise ModelFileError(f"tree {number} must be an object")
            check_fields(tree, ("nodes", "leaves"))
            trees.append(_tree_of(number, expect(tree, "nodes", list), common["features"]))
            words = expect(tree, "leaves", str)
            try:
                leaves.append(np.frombuffer(base64.b64decode(words, validate=True), "<u8").astype(np.uint64))
            except ValueError as problem:
                raise ModelFileError(f"the leaves of tree {number} are no words: {problem}") from problem
        return cls(
            **common,
            holders=tuple(holders),
            trees=tuple(trees),
            leaves=tuple(leaves),
            fraction_bits=data["fraction_bits"],
            target=None if data["target"] is None else Target.from_dict(data["target"]),
        )


def _tree_of(number: int, nodes: Sequence[Any], features: Sequence[FeatureBins]) -> PartialTree:
    have_levels = [feature.name for feature in features if feature.levels is not None]
    column = np.full(len(nodes), LEAF, np.int32)
    last_bin = np.full(len(nodes), -1, np.int32)
    missing_left: Bools = np.zeros(len(nodes), np.bool_)
    for node, said in enumerate(nodes):
        where = f"node {node} of tree {number}"
        if said is None or said == _FOREIGN_NODE:
            column[node] = LEAF if said is None else FOREIGN
            continue
        if not isinstance(said, Mapping):
            raise ModelFileError(f"{where} must be null, {_FOREIGN_NODE!r} or an object")
        if said.get("column") in have_levels:
            raise ModelFileError(f"{where} splits column {said['column']!r}, which has levels")
        column[node], last_bin[node], missing_left[node], _ = read_split(said, features, where)
    return PartialTree(column, last_bin, missing_left)


# --- from the label holder's part to what each party could know of the trees -----------------------------------------


def as_owner(part: LabelHolderPart) -> tuple[OwnerPart, list[Ints]]:
    """The label holder's own splits as questions to itself, and per tree the handle of each node (-1: another's)."""
    is_own = np.arange(len(part.ensemble.features)) < part.n_own
    questions, handles = unique_questions(part.ensemble.trees, is_own, 0)
    return OwnerPart(part.party, part.party, part.protocol, part.run_id, part.features, questions), handles


def partial_trees_of(part: LabelHolderPart) -> dict[str, tuple[PartialTree, ...]]:
    """Party -> what it must know of each tree to say which leaves its own splits rule out.

    The columns of these trees are answers: those of a feature holder's handles, and for the label holder those to its
    questions in `as_owner`. Their codes are 0 for left and 1 for right.
    """
    trees = part.ensemble.trees
    found = {part.party: tuple(map(_partial_tree, trees, as_owner(part)[1]))}
    for party, n_handles in part.handles.items():
        first = part.first_column(party)
        theirs = [
            np.where((tree.feature >= first) & (tree.feature < first + n_handles), tree.feature - first, -1)
            for tree in trees
        ]
        found[party] = tuple(map(_partial_tree, trees, theirs))
    return found


def _partial_tree(tree: Tree, handles: Ints) -> PartialTree:
    return tree_of_handles(np.where(tree.is_leaf, LEAF, np.where(handles >= 0, handles, FOREIGN)))


def tree_of_handles(column: Ints | Int32s) -> PartialTree:
    """A partial tree over answers: by node the handle, LEAF or FOREIGN."""
    return PartialTree(column.astype(np.int32), np.where(column >= 0, 0, -1), np.zeros(len(column), np.bool_))
