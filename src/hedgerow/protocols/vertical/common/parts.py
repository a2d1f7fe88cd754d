"""What a vertical training leaves behind: each party's own part of the model, and a file for each part.

    label holder                                    feature holder "shop"
    trees, leaf values, base score, classes         handle 0: "basket" < 17.5, missing values left
    its own columns' thresholds                     handle 1: "region" in {north, east}
    elsewhere: "ask shop about handle 1"            (no tree, no leaf value, no other party's handle)

A handle is the number of a question in its owner's list. Equal questions have one handle, so the list does not show how
often one is asked. Where the label holder knows the questions (vertical.bucket_rr) the list is sorted by columns and
bins, and its owner cannot tell in which tree one is asked; where it does not (vertical.noised_gradients), a handle is
given when a question first wins, so that numbers do not tell the label holder which questions are neighbours.

For the label holder an answer is one more column of the row: 0 means left, 1 means right. So its part is an ordinary
ensemble, over its own columns and one column with two bins for each handle, and prediction is the engine's.

Where nobody knows leaf values, all parties have parts of another kind: `shared_parts`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from hedgerow.engine import model_file
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.errors import InvalidInput, ModelFileError
from hedgerow.protocols.vertical.common.part_files import (
    FORMAT,
    HEADING,
    VERSION,
    HeldPart,
    Target,
    bin_of,
    check_fields,
    column_of,
    common_fields,
    expect,
    threshold_of,
)
from hedgerow.protocols.vertical.common.shared_parts import FOREIGN, LEAF, PartialTree, SharedLeavesPart

_EITHER_WAY = np.array([0.5])  # the edge between "left" (0) and "right" (1)

Question = tuple[int, int, bool, bytes]
"""Of one split: column, last bin, whether missing values go left, and levels, 8 of them in a byte."""


class Questions(NamedTuple):
    """Splits of one party's columns, by bins: what the label holder tells their owner. One entry per handle."""

    column: Int32s
    bin: Int32s  # last bin that goes left; -1 for a split by levels
    missing_left: Bools
    left_levels: Bools  # [handles, 256] by the code of the level; all False for a numeric column

    @classmethod
    def none(cls) -> Questions:
        """No question at all."""
        return cls.of(())

    @classmethod
    def of(cls, asked: Collection[Question]) -> Questions:
        """These, in their order."""
        column, last_bin, missing_left, levels = zip(*asked, strict=True) if asked else ((), (), (), ())
        bits = np.frombuffer(b"".join(levels), np.uint8).reshape(-1, MAX_BINS // 8)
        return cls(
            np.array(column, np.int32),
            np.array(last_bin, np.int32),
            np.array(missing_left, np.bool_),
            np.unpackbits(bits, axis=1).astype(np.bool_),
        )

    @property
    def n_handles(self) -> int:
        """How many there are."""
        return len(self.column)


# --- the owner's part ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OwnerPart(HeldPart):
    """A feature holder's part: its own questions, by handle."""

    ROLE = "feature_holder"
    FIELDS = ("party", "label_holder", "protocol", "run_id", "features", "splits", "meta")

    party: str
    label_holder: str
    protocol: str
    run_id: str
    features: tuple[FeatureBins, ...]  # its columns, as they were binned for training
    questions: Questions
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        q = self.questions
        self.check_names()
        for k, (column, last_bin) in enumerate(zip(q.column.tolist(), q.bin.tolist(), strict=True)):
            if not 0 <= column < len(self.features):
                raise InvalidInput(f"{self.party}: handle {k} asks about column {column} of {len(self.features)}")
            feature = self.features[column]
            if (last_bin < 0) != (feature.levels is not None) or last_bin >= max(feature.n_value_bins, 1):
                raise InvalidInput(f"{self.party}: handle {k} does not fit column {feature.name!r}")

    @property
    def n_handles(self) -> int:
        """Questions that this party answers."""
        return self.questions.n_handles

    @property
    def thresholds(self) -> Floats:
        """By handle: x < threshold goes left; +inf: every value that is there does; NaN for a split by levels."""
        out = np.full(self.n_handles, np.nan)
        for k, (column, last_bin) in enumerate(zip(self.questions.column, self.questions.bin, strict=True)):
            if self.features[column].levels is None:
                threshold = threshold_of(last_bin, self.features[column])
                out[k] = np.inf if threshold is None else threshold
        return out

    def goes_right(self) -> Bytes:
        """By handle and code of its column: 1 if that code goes right, uint8 [handles, 256]."""
        q = self.questions
        by_code = np.arange(MAX_BINS)[None, :] > q.bin[:, None]
        by_levels = q.bin < 0
        by_code[by_levels] = ~q.left_levels[by_levels]
        for k, column in enumerate(q.column.tolist()):
            by_code[k, self.features[column].missing_code :] = not q.missing_left[k]
        return by_code.view(np.uint8)

    def answers(self, codes: Bytes) -> Bytes:
        """Which way the rows of `codes` [columns, rows] go: uint8 [handles, rows], 1 for right."""
        tables = self.goes_right()
        out = np.empty((self.n_handles, codes.shape[1]), np.uint8)
        for k, column in enumerate(self.questions.column.tolist()):
            np.take(tables[k], codes[column], out=out[k], mode="clip")  # no code is outside; checking would take a copy
        return out

    def written(self) -> dict[str, Any]:
        """Splits by threshold or by names of levels."""
        splits = []
        for k, column in enumerate(self.questions.column.tolist()):
            feature = self.features[column]
            split: dict[str, Any] = {"column": feature.name, "missing_left": bool(self.questions.missing_left[k])}
            if feature.levels is None:
                split["threshold"] = threshold_of(int(self.questions.bin[k]), feature)
            else:
                codes = np.flatnonzero(self.questions.left_levels[k, : feature.n_value_bins])
                split["left_levels"] = [feature.levels[code] for code in codes]
            splits.append(split)
        return super().written() | {"splits": splits, "meta": dict(self.meta)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OwnerPart:
        """The inverse of `to_dict`."""
        common, splits = common_fields(data), expect(data, "splits", list)
        column, last_bin = np.zeros(len(splits), np.int32), np.full(len(splits), -1, np.int32)
        missing_left, levels = np.zeros(len(splits), np.bool_), np.zeros((len(splits), MAX_BINS), np.bool_)
        for k, split in enumerate(splits):
            column[k] = column_of(split, common["features"], f"split {k}")
            feature = common["features"][column[k]]
            missing_left[k] = split["missing_left"]
            if feature.levels is None:
                last_bin[k] = bin_of(split["threshold"], feature, f"split {k}")
                continue
            for level in expect(split, "left_levels", list):
                if level not in feature.levels:
                    raise ModelFileError(f"split {k} names a level that column {feature.name!r} does not have")
                levels[k, feature.levels.index(level)] = True
            levels[k, feature.missing_code] = missing_left[k]
        return cls(**common, questions=Questions(column, last_bin, missing_left, levels))


# --- the label holder's part -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelHolderPart(HeldPart):
    """The label holder's part: an ensemble over its own columns, then one two-bin column per handle of each party."""

    ROLE = "label_holder"
    FIELDS = ("party", "protocol", "run_id", "handles", "model")

    party: str
    protocol: str
    run_id: str
    ensemble: Ensemble
    handles: Mapping[str, int]  # feature holder -> number of its handles; columns in this order
    features: tuple[FeatureBins, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", self.ensemble.features[: max(self.n_own, 0)])
        if self.n_own < 0:
            raise InvalidInput(f"{self.party}: the model has fewer columns than there are handles")
        if self.party in self.handles:
            raise InvalidInput(f"{self.party}: the label holder asks nothing of itself, but has handles")
        for feature in self.ensemble.features[self.n_own :]:
            if feature.edges is None or not np.array_equal(feature.edges, _EITHER_WAY):
                raise InvalidInput(f"{self.party}: column {feature.name!r} stands for a handle, but has other bins")

    @property
    def n_own(self) -> int:
        """Columns of the label holder itself."""
        return len(self.ensemble.features) - sum(self.handles.values())

    @property
    def meta(self) -> dict[str, Any]:
        """What the model says about its training."""
        return self.ensemble.meta

    @property
    def target(self) -> Target:
        """How scores become predictions; the learning rate is in the leaf values already."""
        model = self.ensemble
        return Target(model.loss, tuple(model.base_scores.tolist()), 1.0, model.classes)

    @property
    def n_trees(self) -> int:
        """Trees of all outputs."""
        return len(self.ensemble.trees)

    def first_column(self, party: str) -> int:
        """Where the handles of a party begin among the ensemble's columns."""
        before = list(self.handles)[: list(self.handles).index(party)]
        return self.n_own + sum(self.handles[other] for other in before)

    def raw_scores(self, own: Bytes, answers: Mapping[str, Bytes], n_threads: int = 1) -> Floats:
        """Raw scores [rows, outputs] from own codes [columns, rows] and everybody's answers [handles, rows]."""
        return self.ensemble.raw_scores_binned(self.all_codes(own, answers), n_threads)

    def all_codes(self, own: Bytes, answers: Mapping[str, Bytes]) -> Bytes:
        """Own codes and answers, one below the other: what the ensemble is over."""
        return np.concatenate([own, *(answers[party] for party in self.handles)])

    def written(self) -> dict[str, Any]:
        """The model as files of one party have it."""
        return {"handles": dict(self.handles), "model": self.ensemble.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelHolderPart:
        """The inverse of `to_dict`."""
        handles = data.get("handles")
        counts = handles.values() if isinstance(handles, Mapping) else [None]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in counts):
            raise ModelFileError("handles must say how many each party has")
        model = data.get("model")
        if not isinstance(model, Mapping):
            raise ModelFileError("the label holder's part lacks its model")
        return cls(**common_fields(data), ensemble=Ensemble.from_dict(model), handles=dict(handles or {}))


Part = OwnerPart | LabelHolderPart | SharedLeavesPart
_KINDS: dict[str, type[Part]] = {kind.ROLE: kind for kind in (LabelHolderPart, OwnerPart, SharedLeavesPart)}


def part_from_dict(data: Mapping[str, Any]) -> Part:
    """A part of any kind, from its `to_dict` after a round trip through JSON. ModelFileError if anything is wrong."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ModelFileError("this is not a part of a vertical model")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ModelFileError(f"version {data.get('version')!r} of the format is not known here, only {VERSION}")
    role = data.get("role")
    if role not in tuple(_KINDS):  # a tuple, because what was read may have no hash
        raise ModelFileError(f"role must be one of {', '.join(map(repr, _KINDS))}, got {role!r}")
    check_fields(data, (*HEADING, *_KINDS[role].FIELDS))
    try:
        return _KINDS[role].from_dict(data)
    except ModelFileError:
        raise
    except (ValueError, TypeError, OverflowError) as problem:  # what features and trees say about what they were given
        raise ModelFileError(str(problem)) from problem


def save_part(part: Part, path: str | PathLike[str]) -> None:
    """Write a part as a JSON file, in one step."""
    model_file.write(part.to_dict(), path)


def load_part(path: str | PathLike[str]) -> Part:
    """Read what `save_part` has written."""
    document = model_file.read(path)
    try:
        return part_from_dict(document)
    except ModelFileError as problem:
        raise ModelFileError(f"{path}: {problem}") from problem


# --- from trees to parts ---------------------------------------------------------------------------------------------


def composite_features(own: Sequence[FeatureBins], handles: Mapping[str, int]) -> BinMapper:
    """The columns of the label holder's ensemble: its own, then one with two bins for each handle."""
    taken = {feature.name for feature in own}
    answers = []
    for party, n_handles in handles.items():
        for k in range(n_handles):
            name = f"{party} #{k}"
            while name in taken:  # a column of the label holder may have any name
                name += "'"
            taken.add(name)
            answers.append(FeatureBins(name, _EITHER_WAY))
    return BinMapper((*own, *answers))


def with_handles(tree: Tree, column: Int32s, n_own: int) -> Tree:
    """The tree over composite columns: node k asks about column[k]; from n_own on that is an answer, 0 for left."""
    foreign = column >= n_own
    by_levels = (tree.level_set >= 0) & ~foreign
    level_set = np.full(tree.n_nodes, -1, np.int32)
    level_set[by_levels] = np.arange(np.count_nonzero(by_levels))
    return Tree(
        feature=column,
        bin=np.where(foreign, 0, tree.bin),
        threshold=np.where(foreign, _EITHER_WAY[0], tree.threshold),
        missing_left=tree.missing_left & ~foreign,
        left=tree.left,
        right=tree.right,
        value=tree.value,
        gain=tree.gain,
        cover=tree.cover,
        level_set=level_set,
        left_levels=tree.left_levels[tree.level_set[by_levels]],
    )


def divide(
    ensemble: Ensemble, party_of_feature: Sequence[str], label_holder: str, *, protocol: str, run_id: str
) -> tuple[LabelHolderPart, dict[str, Questions]]:
    """Divide an ensemble over everybody's columns: the label holder's part, and for each other party its questions.

    `party_of_feature` names the owner of each feature; a party's features are together and in the order of its columns.
    Foreign features are known by bins only: what their edges are is not read.
    """
    owners = np.array(party_of_feature)
    others = list(dict.fromkeys(party for party in party_of_feature if party != label_holder))
    own = np.flatnonzero(owners == label_holder)
    place = np.full(len(owners), -1, np.int64)
    place[own] = np.arange(len(own))
    columns = [np.where(tree.feature >= 0, place[tree.feature], -1).astype(np.int32) for tree in ensemble.trees]
    questions: dict[str, Questions] = {}
    first = len(own)
    for party in others:
        start = int(np.flatnonzero(owners == party)[0])
        asked, handles = unique_questions(ensemble.trees, owners == party, start)
        for column, numbers in zip(columns, handles, strict=True):
            column[numbers >= 0] = first + numbers[numbers >= 0]
        questions[party] = asked
        first += asked.n_handles
    mapper = composite_features(
        [ensemble.features[j] for j in own.tolist()], {party: q.n_handles for party, q in questions.items()}
    )
    trees = [with_handles(tree, column, len(own)) for tree, column in zip(ensemble.trees, columns, strict=True)]
    composite = Ensemble(
        mapper, ensemble.loss, ensemble.base_scores, trees=trees, classes=ensemble.classes, meta=ensemble.meta
    )
    counts = {party: q.n_handles for party, q in questions.items()}
    return LabelHolderPart(label_holder, protocol, run_id, composite, counts), questions


def unique_questions(trees: Sequence[Tree], is_theirs: Bools, start: int) -> tuple[Questions, list[Ints]]:
    """The different splits of one party's features, sorted, and per tree the handle of each node (-1: not theirs)."""
    asked: list[Question] = []
    places: list[tuple[int, int]] = []
    for number, tree in enumerate(trees):
        inner = np.flatnonzero(tree.feature >= 0)
        for node in inner[is_theirs[tree.feature[inner]]].tolist():
            by_levels = tree.level_set[node] >= 0
            levels = (
                np.packbits(tree.left_levels[tree.level_set[node]]).tobytes() if by_levels else bytes(MAX_BINS // 8)
            )
            asked.append((int(tree.feature[node]) - start, int(tree.bin[node]), bool(tree.missing_left[node]), levels))
            places.append((number, node))
    different = sorted(set(asked))
    handle_of = {question: k for k, question in enumerate(different)}
    handles = [np.full(tree.n_nodes, -1, np.int64) for tree in trees]
    for question, (number, node) in zip(asked, places, strict=True):
        handles[number][node] = handle_of[question]
    return Questions.of(different), handles


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
