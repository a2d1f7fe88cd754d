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

Where nobody knows leaf values, all parties have parts of another kind: `shared_parts`. Reading a file refuses what it
does not know. What the file of each kind says: docs/reference/vertical_model.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.engine import model_file
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.dtypes import MAX_BINS, Bools, Bytes, Floats, Int32s, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.losses import LOSSES
from hedgerow.engine.table import Table, read_table
from hedgerow.errors import InvalidInput, ModelFileError

FORMAT = "hedgerow part of a vertical model"
VERSION = 2
"""That of parts with features that have a rule (dates, durations, groups of levels). Without one, version 1 is written,
which older releases read as well."""
_TEXTS = ("party", "label_holder", "protocol", "run_id")

EITHER_WAY = np.array([0.5])  # the edge between "left" (0) and "right" (1)


class Part:
    """One party's part of a model. Each kind is a dataclass whose file has these fields, and some of its own."""

    ROLE: ClassVar[str]  # what the file calls this kind
    FIELDS: ClassVar[tuple[str, ...]]  # of the file, in their order, after its heading

    party: str
    protocol: str
    run_id: str
    features: tuple[FeatureBins, ...]  # its own columns, as they were binned for training

    @property
    def names(self) -> tuple[str, ...]:
        """Of its own columns."""
        return tuple(feature.name for feature in self.features)

    @property
    def asked_columns(self) -> frozenset[int]:
        """Those of its own columns that some split asks about."""
        raise NotImplementedError

    def read(self, X: Any, where: str) -> Table:
        """A table with this party's columns, found by name where there are names."""
        return read_table(X, like=self.features, where=where)

    def codes(self, table: Table, n_threads: int = 1) -> Bytes:
        """Bins of all values of a table that `read` has read: uint8 [columns, rows]."""
        if not self.features:
            return np.empty((0, table.n_rows), np.uint8)
        return BinMapper(self.features).transform(table, n_threads)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the fields of its file."""
        version = 1 if all(feature.rule is None for feature in self.features) else 2
        document = {"format": FORMAT, "version": version, "role": self.ROLE}
        written = self.written()
        return document | {name: written[name] if name in written else getattr(self, name) for name in self.FIELDS}

    def written(self) -> dict[str, Any]:
        """Those fields of the file that are not texts or numbers of the part itself."""
        return {"features": [feature.to_dict() for feature in self.features]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, once it is clear that just the fields of this kind are there."""
        raise NotImplementedError


def check_names(features: Sequence[FeatureBins], whose: str = "") -> None:
    """InvalidInput unless columns can be told apart."""
    if len({feature.name for feature in features}) < len(features):
        raise InvalidInput(f"{whose}two columns have the same name")


@dataclass(frozen=True)
class Target(AsJson):
    """How scores become predictions, which the label holder keeps for itself."""

    loss: str
    base_scores: tuple[float, ...]  # one for each output
    learning_rate: float  # raw score = base score + learning rate x sum of leaf values
    classes: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_scores", tuple(float(score) for score in self.base_scores))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))
        if self.classes is not None:
            plain = (c.item() if isinstance(c, np.generic) else c for c in self.classes)
            object.__setattr__(self, "classes", tuple(plain))
        if self.loss not in LOSSES or (self.loss == "softmax") != (len(self.base_scores) > 1):
            raise InvalidInput(f"the loss {self.loss!r} does not go with {len(self.base_scores)} base scores")
        if not all(math.isfinite(number) for number in (*self.base_scores, self.learning_rate)):
            raise InvalidInput("base scores and learning rate must be finite")
        if self.classes is not None and len(self.classes) != max(2, len(self.base_scores)):
            raise InvalidInput(f"{len(self.classes)} classes do not go with {len(self.base_scores)} base scores")

    @property
    def n_outputs(self) -> int:
        """Raw scores per row; tree t belongs to output t % n_outputs."""
        return len(self.base_scores)

    @classmethod
    def from_dict(cls, data: Any) -> Target:
        """The inverse of `to_dict`, from a file."""
        if not isinstance(data, Mapping):
            raise ModelFileError("target must be null or an object")
        check_fields(data, [field.name for field in fields(cls)])
        scores, classes = expect(data, "base_scores", list), data["classes"]
        if not all(type(number) in (int, float) for number in (*scores, data["learning_rate"])):
            raise ModelFileError("base_scores and learning_rate must be numbers")
        if classes is not None and not all(isinstance(c, str | int | float) for c in expect(data, "classes", list)):
            raise ModelFileError("classes must be null or a list of texts, numbers or booleans")
        return cls(expect(data, "loss", str), scores, data["learning_rate"], classes)


# --- questions -------------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """One split of a party's column. Equal ones are one question."""

    column: int
    bin: int  # last bin that goes left; -1 for a split by levels
    missing_left: bool
    levels: bytes = bytes(MAX_BINS // 8)  # which of them go left, by their codes, 8 in a byte

    @classmethod
    def by(cls, column: int, last_bin: int, missing_left: bool, left_levels: Bools) -> Question:
        """The split after a bin, or by the levels if the bin is -1."""
        if last_bin >= 0:
            return cls(column, last_bin, missing_left)
        return cls(column, last_bin, missing_left, np.packbits(left_levels).tobytes())


class Questions(NamedTuple):
    """Splits of one party's columns, by bins: what the label holder tells their owner. One entry per handle."""

    column: Int32s
    bin: Int32s  # last bin that goes left; -1 for a split by levels
    missing_left: Bools
    left_levels: Bools  # [handles, 256] by the code of the level; all False for a numeric column

    @classmethod
    def of(cls, asked: Collection[Question] = ()) -> Questions:
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

    def each(self) -> Iterator[Question]:
        """One by one; the inverse of `of`."""
        listed = zip(self.column.tolist(), self.bin.tolist(), self.missing_left.tolist(), self.left_levels, strict=True)
        return (Question.by(*question) for question in listed)


# --- the owner's part ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OwnerPart(Part):
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
        check_names(self.features, f"{self.party}: ")
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
    def asked_columns(self) -> frozenset[int]:
        """Columns that some question is about."""
        return frozenset(self.questions.column.tolist())

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
        splits = [
            written_split(self.features[column], last_bin, bool(missing_left), levels)
            for column, last_bin, missing_left, levels in zip(*self.questions, strict=True)
        ]
        return super().written() | {"splits": splits, "meta": dict(self.meta)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OwnerPart:
        """The inverse of `to_dict`."""
        common, splits = common_fields(data), expect(data, "splits", list)
        asked = [read_split(split, common["features"], f"split {k}") for k, split in enumerate(splits)]
        return cls(**common, questions=Questions.of(asked))


# --- the label holder's part -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelHolderPart(Part):
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
            if feature.edges is None or not np.array_equal(feature.edges, EITHER_WAY):
                raise InvalidInput(f"{self.party}: column {feature.name!r} stands for a handle, but has other bins")

    @property
    def n_own(self) -> int:
        """Columns of the label holder itself."""
        return len(self.ensemble.features) - sum(self.handles.values())

    @property
    def asked_columns(self) -> frozenset[int]:
        """Own columns that some tree splits."""
        return frozenset(j for tree in self.ensemble.trees for j in tree.feature.tolist() if 0 <= j < self.n_own)

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
            answers.append(FeatureBins(name, EITHER_WAY))
    return BinMapper((*own, *answers))


def with_handles(tree: Tree, column: Int32s, n_own: int) -> Tree:
    """The tree over composite columns: node k asks about column[k]; from n_own on that is an answer, 0 for left."""
    foreign = column >= n_own
    by_levels = (tree.level_set >= 0) & ~foreign
    level_set = np.full(tree.n_nodes, -1, np.int32)
    level_set[by_levels] = np.arange(np.count_nonzero(by_levels))
    return replace(
        tree,
        feature=column,
        bin=np.where(foreign, 0, tree.bin),
        threshold=np.where(foreign, EITHER_WAY[0], tree.threshold),
        missing_left=tree.missing_left & ~foreign,
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
    counts = {party: q.n_handles for party, q in questions.items()}
    mapper = composite_features([ensemble.features[j] for j in own.tolist()], counts)
    trees = [with_handles(tree, column, len(own)) for tree, column in zip(ensemble.trees, columns, strict=True)]
    composite = Ensemble(
        mapper, ensemble.loss, ensemble.base_scores, trees=trees, classes=ensemble.classes, meta=ensemble.meta
    )
    return LabelHolderPart(label_holder, protocol, run_id, composite, counts), questions


def unique_questions(trees: Sequence[Tree], is_theirs: Bools, start: int) -> tuple[Questions, list[Ints]]:
    """The different splits of one party's features, sorted, and per tree the handle of each node (-1: not theirs)."""
    asked: list[Question] = []
    places: list[tuple[int, int]] = []
    for number, tree in enumerate(trees):
        inner = np.flatnonzero(tree.feature >= 0)
        for node in inner[is_theirs[tree.feature[inner]]].tolist():
            column, last_bin = int(tree.feature[node]) - start, int(tree.bin[node])
            left_levels = tree.left_levels[tree.level_set[node] : tree.level_set[node] + 1]
            asked.append(Question.by(column, last_bin, bool(tree.missing_left[node]), left_levels))
            places.append((number, node))
    different = sorted(set(asked))
    handle_of = {question: k for k, question in enumerate(different)}
    handles = [np.full(tree.n_nodes, -1, np.int64) for tree in trees]
    for question, (number, node) in zip(asked, places, strict=True):
        handles[number][node] = handle_of[question]
    return Questions.of(different), handles


# --- files -----------------------------------------------------------------------------------------------------------


def part_from_dict(data: Mapping[str, Any]) -> Part:
    """A part of any kind, from its `to_dict` after a round trip through JSON. ModelFileError if anything is wrong."""
    from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart

    kinds: dict[str, type[Part]] = {kind.ROLE: kind for kind in (LabelHolderPart, OwnerPart, SharedLeavesPart)}
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ModelFileError("this is not a part of a vertical model")
    if type(data.get("version")) is not int or not 1 <= data["version"] <= VERSION:
        raise ModelFileError(f"version {data.get('version')!r} of the format is not known here, only up to {VERSION}")
    role = data.get("role")
    if role not in tuple(kinds):  # a tuple, because what was read may have no hash
        raise ModelFileError(f"role must be one of {', '.join(map(repr, kinds))}, got {role!r}")
    check_fields(data, ("format", "version", "role", *kinds[role].FIELDS))
    try:
        return kinds[role].from_dict(data)
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


_CALLED: dict[type, str] = {list: "a list", str: "text", Mapping: "an object"}


def check_fields(data: Mapping[str, Any], names: Sequence[str]) -> None:
    """ModelFileError unless just these fields are there."""
    absent, unknown = [n for n in names if n not in data], [n for n in data if n not in names]
    if absent:
        raise ModelFileError(f"the field {absent[0]!r} is lacking")
    if unknown:
        raise ModelFileError(f"there is a field {str(unknown[0])[:40]!r} that version {VERSION} does not know")


def expect(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field that must be a list, text or an object."""
    if not isinstance(data.get(name), kind):
        raise ModelFileError(f"{name} must be {_CALLED[kind]}")
    return data[name]


def common_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that files of several kinds have, as the part takes them: texts, `features`, `meta`."""
    found: dict[str, Any] = {name: expect(data, name, str) for name in _TEXTS if name in data}
    if "features" in data:
        found["features"] = tuple(FeatureBins.from_dict(entry) for entry in expect(data, "features", list))
        check_names(found["features"])
    if "meta" in data:
        found["meta"] = dict(expect(data, "meta", Mapping))
    return found


def threshold_of(last_bin: int, feature: FeatureBins) -> float | None:
    """What a split of a numeric column after a bin is written as: an edge, or None if all values go left."""
    edges = np.empty(0) if feature.edges is None else feature.edges
    return float(edges[last_bin]) if last_bin < len(edges) else None


def written_split(feature: FeatureBins, last_bin: int, missing_left: bool, left_levels: Bools) -> dict[str, Any]:
    """A split of one of a party's columns, as files have it."""
    split: dict[str, Any] = {"column": feature.name, "missing_left": missing_left}
    if feature.levels is None:
        return split | {"threshold": threshold_of(last_bin, feature)}
    return split | {"left_levels": [feature.levels[k] for k in np.flatnonzero(left_levels[: feature.n_value_bins])]}


def read_split(split: Any, features: Sequence[FeatureBins], where: str) -> Question:
    """The inverse of `written_split`. ModelFileError, naming the split, if it does not fit the columns."""
    names = [feature.name for feature in features]
    name = split.get("column") if isinstance(split, Mapping) else None
    if name not in names:
        raise ModelFileError(f"{where} is not about one of the columns {names}")
    column = names.index(name)
    feature = features[column]
    check_fields(split, ("column", "missing_left", "threshold" if feature.levels is None else "left_levels"))
    missing_left = split["missing_left"]
    if not isinstance(missing_left, bool):
        raise ModelFileError(f"{where} of column {name!r} must say whether missing values go left")
    left_levels: Bools = np.zeros(MAX_BINS, np.bool_)
    if feature.levels is None:
        return Question(column, _bin_of(split["threshold"], feature, where), missing_left)
    for level in expect(split, "left_levels", list):
        if level not in feature.levels:
            raise ModelFileError(f"{where} names a level that column {name!r} does not have")
        left_levels[feature.levels.index(level)] = True
    left_levels[feature.missing_code] = missing_left
    return Question.by(column, -1, missing_left, left_levels)


def _bin_of(threshold: Any, feature: FeatureBins, where: str) -> int:
    edges = [] if feature.edges is None else feature.edges.tolist()
    if threshold is None:
        return len(edges)
    if type(threshold) not in (int, float) or threshold not in edges:
        raise ModelFileError(f"the threshold of {where} is not an edge of column {feature.name!r}")
    return edges.index(threshold)
