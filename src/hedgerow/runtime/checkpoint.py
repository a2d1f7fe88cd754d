"""Checkpoints: what a party keeps after every tree, so that a later attempt of the same run goes on from there.

    me.keep(n_trees, State(...))                after every tree, in every role; nothing where there are no checkpoints
    n_trees, state = me.go_on(State, job)       before the first one: (0, None), or where all of them go on from
    drawn = me.kept(0, Drawn)                   what was kept before the first tree stays: noise that is drawn once

A state is a frozen dataclass of arrays, numbers, texts and classes with `to_dict` and `from_dict`. It holds what the
party has by then: trees, scores, shares of scores, what it was sent once. It never holds masks, seeds, keys, or words
that were dealt: an attempt makes these anew, so none of them serves twice. Noise is kept before it is sent: who goes on
sends the same noise again, and nobody can average it away.

One party may have kept a tree that another has not, so each has the last two. What it keeps under a number replaces
what it had there, and all later ones: until then they tell what an earlier attempt had drawn and spent.

A file is a heading and, in the order of its fields, the bytes of arrays:

    "HDGRKEPT", SHA-256 of all that follows, length of the JSON, JSON (whose state it is, its fields), arrays
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np

from hedgerow.codec import from_json, to_json
from hedgerow.engine.model_file import write_file
from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.ledger import Exact
from hedgerow.runtime.protocol import DEALER, Job, Protocol, agreed
from hedgerow.runtime.saved_files import damage_told, private_folder, to_disk
from hedgerow.transport.frames import Int64s, Message
from hedgerow.transport.ranges import MOST, Free, Shape, Within

if TYPE_CHECKING:
    from hedgerow.runtime.party import Party

S = TypeVar("S")

_MAGIC = b"HDGRKEPT"
_VERSION = 1
_SIZE = hashlib.sha256().digest_size
_PREFIX, _SUFFIX = "trees-", ".kept"
_LAST = 2  # states that are kept beside that of before the first tree


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptTrees(Message, name="runtime.kept_trees", version=1):
    """Everybody else to first party: the numbers of trees after which it has kept its state, in a later attempt."""

    discloses = Exact("after which trees of this run the sender has kept its state")
    trees: Annotated[Int64s, Shape(Free("n_kept", 0, 1 + _LAST)), Within(0, MOST)]


@dataclass(frozen=True, slots=True)
class GoOnFrom(Message, name="runtime.go_on_from", version=1):
    """First party to everybody else: the largest number of trees that all have kept; 0 is from the beginning."""

    discloses = Exact("the largest number of trees of this run after which all parties have kept their states")
    n_trees: Annotated[int, Within(0, MOST)]


MESSAGES: tuple[type[Message], ...] = (KeptTrees, GoOnFrom)


def agree_on(me: Party, job: Job, trees: tuple[int, ...], without: frozenset[str] = frozenset()) -> tuple[int, int]:
    """The largest number of trees that every party of the job has kept, but for some; 0 if there is none.

    And the largest that anybody has, as far as this party knows: the first party knows of all. A dealer has no state,
    works ahead of the others and goes on wherever they do: it is told, and not asked.
    """
    first, *others = (name for name in job.cast if name not in without)
    if me.name != first:
        is_asked = job.cast[me.name] != DEALER
        if is_asked:
            me.send(first, KeptTrees(np.array(trees, np.int64)))
        chosen = me.recv(first, GoOnFrom).n_trees
        if is_asked and chosen and chosen not in trees:
            raise ProtocolError(f"{first} goes on from {chosen} trees, which {me.name} has not kept")
        return chosen, max(trees, default=0)
    asked = [other for other in others if job.cast[other] != DEALER]
    kept = [set(trees), *(set(me.recv(other, KeptTrees).trees.tolist()) for other in asked)]
    chosen = max(set.intersection(*kept), default=0)
    me.send_all(others, GoOnFrom(chosen))
    return chosen, max(set.union(*kept), default=0)


# --- states ----------------------------------------------------------------------------------------------------------


class Checkpoints:
    """What one party has kept of one run: here in memory, in a subclass wherever it likes."""

    def __init__(self) -> None:
        self._states: dict[int, bytes] = {}

    @property
    def trees(self) -> tuple[int, ...]:
        """After how many trees there is a state, ascending: the last two, and 0 if something was kept before all.

        A party that was killed between writing a state and forgetting an older one has one more, which is not counted.
        """
        before, last = _before_and_last(self.numbers())
        return (*before, *last)

    def keep(self, n_trees: int, state: Any) -> None:
        """Keep the state after this many trees, in place of what was there under this number or a larger one."""
        self.write(n_trees, packed(state, self.about(n_trees)))
        numbers = self.numbers()
        _, last = _before_and_last([number for number in numbers if number <= n_trees])
        for number in numbers:
            if number and number not in last:
                self.forget(number)

    def load(self, n_trees: int, kind: type[S]) -> S:
        """The state after this many trees. InvalidInput, in words, if it is not there, damaged, or somebody else's."""
        if n_trees not in self.trees:
            raise InvalidInput(f"nothing was kept after {n_trees} trees, only after {list(self.trees)}")
        return unpacked(self.read(n_trees), kind, self.about(n_trees), self.where(n_trees))

    # --- where they are ----------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of all states that are there."""
        return list(self._states)

    def about(self, n_trees: int) -> dict[str, Any]:
        """What a state says of itself, and must say when it is read."""
        return {"trees": n_trees}

    def where(self, n_trees: int) -> str:
        """The state of this number, as errors call it."""
        return f"the checkpoint of {n_trees} trees"

    def write(self, n_trees: int, data: bytes) -> None:
        """Whole or not at all."""
        self._states[n_trees] = data

    def read(self, n_trees: int) -> bytes:
        """What was written."""
        return self._states[n_trees]

    def forget(self, n_trees: int) -> None:
        """It is not needed any more."""
        del self._states[n_trees]


class CheckpointFiles(Checkpoints):
    """In a folder that only its owner can look into, and of this party in this job only: other files are refused."""

    def __init__(self, folder: str | Path, protocol: Protocol, job: Job, party: str) -> None:
        super().__init__()
        self.folder = private_folder(Path(folder).resolve())
        self.folder.chmod(0o700)
        self._whose = {"protocol": protocol.name, "party": party, "job": agreed(protocol, job).digest.hex()}

    def numbers(self) -> list[int]:
        """Of all files."""
        names = [path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def about(self, n_trees: int) -> dict[str, Any]:
        """Whose it is."""
        return {**self._whose, "trees": n_trees}

    def where(self, n_trees: int) -> str:
        """The path."""
        return str(self._path(n_trees))

    def _path(self, n_trees: int) -> Path:
        return self.folder / f"{_PREFIX}{n_trees}{_SUFFIX}"

    def write(self, n_trees: int, data: bytes) -> None:
        """Onto the disk under another name, and then in one step to its place."""
        write_file(data, self._path(n_trees))
        to_disk(self.folder)

    def read(self, n_trees: int) -> bytes:
        """The whole file."""
        with damage_told(f"{self._path(n_trees)} cannot be read"):
            return self._path(n_trees).read_bytes()

    def forget(self, n_trees: int) -> None:
        """The file is gone."""
        self._path(n_trees).unlink(missing_ok=True)


def _before_and_last(numbers: list[int]) -> tuple[list[int], list[int]]:
    """[0], if it is among these numbers of trees, and the last of the others, ascending."""
    ascending = sorted(numbers)
    return [n for n in ascending if n == 0], [n for n in ascending if n > 0][-_LAST:]


# --- bytes -----------------------------------------------------------------------------------------------------------


def packed(state: Any, about: Mapping[str, Any]) -> bytes:
    """A state and what it says of itself. Its own arrays are written as they are, what is deeper down as JSON."""
    values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    arrays = {name: np.ascontiguousarray(value) for name, value in values.items() if isinstance(value, np.ndarray)}
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InvalidParameter(f"{type(state).__name__} holds an array of objects, which cannot be kept")
    heading = {
        "version": _VERSION,
        **about,
        "state": type(state).__name__,
        "fields": {name: to_json(value) for name, value in values.items() if name not in arrays},
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()},
    }
    text = json.dumps(heading).encode()
    body = b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays.values())])
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpacked(data: bytes, kind: type[S], about: Mapping[str, Any], where: str) -> S:
    """The inverse of `packed`, of bytes that anybody may have written; `where` names them in errors."""
    start = len(_MAGIC) + _SIZE
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise InvalidInput(f"{where} is damaged; without it the run goes on from an earlier tree")
    with damage_told(f"{where} is damaged"):
        stop = start + 8 + int.from_bytes(data[start : start + 8], "little")
        heading = json.loads(data[start + 8 : stop])
        if (version := heading["version"]) != _VERSION:
            known = f"this program reads version {_VERSION}: take up the run with the hedgerow that began it"
            raise InvalidInput(f"{where} is of version {str(version)[:20]}, and {known}")
        expected = {**about, "state": kind.__name__}
        differs = [name for name, value in expected.items() if heading.get(name) != value]
        if differs:
            raise InvalidInput(f"{where} is of another {' and '.join(differs)}; it is not used here")
        values: dict[str, Any] = {}
        for name, (dtype, shape) in heading["arrays"].items():
            flat = np.frombuffer(data, np.dtype(dtype), int(np.prod(shape, dtype=np.int64)), stop)
            values[name] = flat.reshape(shape).copy()
            stop += flat.nbytes
        hints = typing.get_type_hints(kind, include_extras=True)
        for name, value in heading["fields"].items():
            values[name] = from_json(hints[name], value, f"{kind.__name__}.{name}")
        return kind(**values)
