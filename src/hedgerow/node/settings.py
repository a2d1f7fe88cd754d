"""Files that people write, in TOML: declared once, read with the line of every key.

A format is a `Table` of keys. From it come the reader, the sentences of errors, the JSON Schema that editors use, and
the reference page, so none of them can say something else than the others.

    FORMAT = Table("what a party brings", {
        "name": Key(TEXT, "what others call this party", needed=True),
        "data": Each("dataset", "its datasets", Table("a dataset", {"source": Key(TEXT, "where it is", needed=True)})),
    })
    found = FORMAT.read(read_toml(path, "party file"))    # nested dicts of checked values, without those left out
    schema = FORMAT.schema()
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, JobError, plain

MOST_BYTES = 1 << 20
"""A file for people has a few hundred lines."""
MOST_DEPTH = 64
"""Tables and lists inside each other."""
Place = tuple[str, ...]

_WORD = r"[^\s.=,#\[\]{}]"
_DOTTED = re.compile(rf"(?<!{_WORD})(?:{_WORD}+[ \t]*\.[ \t]*){{{MOST_DEPTH}}}")
"""More parts than any real key has; tomllib would take time with the square of their number."""


# --- TOML with lines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """A TOML file as it was read, and the line on which each table and key of it is first written."""

    path: Path
    content: dict[str, Any]
    lines: Mapping[Place, int]
    format: Table | None = None  # by which it is read

    def where(self, *place: str) -> str:
        """`party.toml, line 7`: of this key, or of the nearest table around it."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.lines:
                return f"{self.path}, line {self.lines[place[:end]]}"
        return str(self.path)

    def belongs(self, name: str) -> str:
        """Where the format has a key that stands in the wrong section; "" if it has none of that name."""
        for place, table in self.format.sections() if self.format is not None else ():
            if name in table.entries:
                there = f"in [{'.'.join(place)}]" if place else "at the top, before the first section"
                return f"; it belongs {there}"
        return ""


def read_toml(path: Path, what: str) -> Document:
    """The file, which is a `what`; JobError, naming it and where possible the line, if it is not TOML."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise JobError(f"{path}: there is no such {what}") from None
    except (OSError, ValueError) as problem:  # ValueError: a path with a zero byte
        raise JobError(f"{path}: the {what} cannot be read: {problem}") from None
    if len(data) > MOST_BYTES:
        raise JobError(f"{path}: the {what} is larger than {MOST_BYTES >> 20} MiB, which cannot be meant")
    too_deep = JobError(f"{path}: the {what} is nested too deeply")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise JobError(f"{path}: the {what} cannot be read: {problem}") from None
    if _DOTTED.search(text):
        raise too_deep
    try:
        content = tomllib.loads(text, parse_float=number)
    except RecursionError:
        raise too_deep from None
    except ValueError as problem:  # not TOML, or a number of thousands of digits
        raise JobError(f"{path}: {problem}") from None
    if _is_deep(content):
        raise too_deep
    return Document(path, content, lines_of(text))


def number(text: str) -> float:
    """A number as TOML writes it; ValueError for one that only rounding makes infinite."""
    value = float(text.replace("_", ""))
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"the number {text[:12]}... is too large; write inf if you mean that there is no limit")
    return value


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(MOST_DEPTH):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inside for value in values if isinstance(value, dict | list)]
    return bool(level)


_TOKEN = re.compile(
    r'(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<gap>#[^\n]*|[ \t\r]+)|(?P<end>\n)|(?P<mark>[\[\]{}=,.])|(?P<bare>[^\s#\"'\[\]{}=,.]+)",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Place, int]:
    """Table or key -> the line where it is first written, of a text that is TOML; tomllib does not tell."""
    lines: dict[Place, int] = {}
    header: Place = ()
    key: list[str] = []
    inside: list[tuple[str, Place]] = []  # brackets that are open in a value, each with the key it belongs to
    writing_key, in_header, line = True, False, 1

    def remember(above: Place) -> Place:
        for end in range(1, len(key) + 1):
            lines.setdefault((*above, *key[:end]), line)
        return (*above, *key)

    place: Place = ()
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token.group()
        if kind == "end" and not inside:
            if in_header:
                header = remember(())
            key, writing_key, in_header = [], True, False
        elif writing_key and kind in {"text", "bare"}:
            key.append(tomllib.loads(f"key = {word}")["key"] if kind == "text" else word)
        elif writing_key and word == "=":
            place = remember(inside[-1][1] if inside else header)
            key, writing_key = [], False
        elif writing_key and word == "[" and not inside:
            in_header = True
        elif word in {"[", "{"}:
            inside.append((word, place))
            writing_key = word == "{"
        elif word in {"]", "}"} and inside:
            place = inside.pop()[1]
            writing_key = False
        elif word == "," and inside:
            place = inside[-1][1]
            writing_key = inside[-1][0] == "{"
        line += word.count("\n")
    if in_header:
        remember(())
    return lines


# --- what is said about a mistake ------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value in an error, whatever its length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}... ({len(text)} characters)"


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them; ends a sentence about an unknown one."""
    from hedgerow.estimators.inputs import nearest

    known = tuple(known)
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else f"; there are {', '.join(known)}"


# --- what values must be ---------------------------------------------------------------------------------------------


class WrongKind(ValueError):
    """A value that is not what a key must hold; the words about it are the kind's."""


@dataclass(frozen=True)
class Kind:
    """What a value must be: in words that complete "... must be", as JSON Schema, and as a function.

    `parse` makes of a value, and of the folder that paths start from, what the program uses. It raises WrongKind for a
    value that is refused, or a HedgerowError with a sentence of its own. What is `secret` is not repeated in errors.
    """

    words: str
    schema: Mapping[str, Any]
    parse: Callable[[Any, Path], Any]
    secret: bool = False

    def checked(self, name: str, value: Any, where: str, folder: Path) -> Any:
        """The value as the program uses it; JobError, with where it was written, if it is refused."""
        try:
            return self.parse(value, folder)
        except HedgerowError as problem:
            raise JobError(f"{where}: {name}: {problem}") from None
        except OverflowError:
            raise JobError(f"{where}: {name} is too large for a number, got {shown(value)}") from None
        except WrongKind:
            got = "" if self.secret else f", got {shown(value)}"
            raise JobError(f"{where}: {name} must be {self.words}{got}") from None


def _text(value: Any, _folder: Path) -> str:
    if not isinstance(value, str) or not value:
        raise WrongKind
    return value


def _path(value: Any, folder: Path) -> Path:
    text = _text(value, folder)
    if "\0" in text:
        raise WrongKind
    return folder / text


def _names(value: Any, folder: Path) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongKind
    return tuple(dict.fromkeys(_text(name, folder) for name in value))


def _truth(value: Any, _folder: Path) -> bool:
    if not isinstance(value, bool):
        raise WrongKind
    return value


def _number(value: Any, _folder: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongKind
    return float(value)


TEXT = Kind("text in quotes", {"type": "string", "minLength": 1}, _text)
PATH = Kind("text in quotes", {"type": "string", "minLength": 1}, _path)
NAMES = Kind("a list of column names", {"type": "array", "items": {"type": "string", "minLength": 1}}, _names)
NUMBER = Kind("a number", {"type": "number"}, _number)
TRUTH = Kind("true or false", {"type": "boolean"}, _truth)


def real(at_least: float, *, below: float = math.inf) -> Kind:
    """A number within limits; without an upper one also inf."""

    def parse(value: Any, folder: Path) -> float:
        found = _number(value, folder)
        if not (at_least <= found < below or found == below == math.inf):
            raise WrongKind
        return found

    bounded = math.isfinite(below)
    words = f"a number of at least {at_least:g}" + (f" and below {below:g}" if bounded else ", or inf")
    limits = {"minimum": at_least} | ({"exclusiveMaximum": below} if bounded else {})
    return Kind(words, {"type": "number", **limits}, parse)


def whole(at_least: int) -> Kind:
    """A whole number, up to what 63 bits hold."""

    def parse(value: Any, _folder: Path) -> int:
        if type(value) is not int or value < at_least:
            raise WrongKind
        if value >> 62:
            raise OverflowError
        return value

    return Kind(f"a whole number of at least {at_least}", {"type": "integer", "minimum": at_least}, parse)


def one_of(*choices: str) -> Kind:
    """One of some words; a near miss gets the nearest one."""

    def parse(value: Any, folder: Path) -> str:
        if _text(value, folder) not in choices:
            raise JobError(f"there is no {plain(value)!r}{hint(value, choices)}")
        return str(value)

    return Kind(f"one of {', '.join(choices)}", {"enum": list(choices)}, parse)


def many(kind: Kind, words: str) -> Kind:
    """A list of texts of one kind; one that is there twice counts once."""

    def parse(value: Any, folder: Path) -> tuple[Any, ...]:
        return tuple(kind.parse(each, folder) for each in _names(value, folder))

    return Kind(words, {"type": "array", "items": dict(kind.schema)}, parse)


# --- formats ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """A key: what it holds, what it is for, and what its absence means."""

    kind: Kind
    help: str
    needed: bool = False
    default: Any = None
    otherwise: str = ""  # in words, where the default says too little

    def read(self, document: Document, place: Place, value: Any) -> Any:
        """The checked value."""
        return self.kind.checked(place[-1], value, document.where(*place), document.path.parent)

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        default = {} if self.default is None else {"default": self.default}
        return {"description": _sentence(self.help), **self.kind.schema, **default}


@dataclass(frozen=True)
class Each:
    """A section with one entry for every name that the writer of the file chooses."""

    name: str  # of what stands in the heading, as in [data.<dataset>]
    help: str
    entry: Table | Key
    check: Callable[[str], Any] | None = None  # of a name; HedgerowError if it is refused
    needed: bool = False

    def read(self, document: Document, place: Place, value: Any) -> dict[str, Any]:
        """Name -> what stands under it, in the order of the file."""
        found = {}
        for name, inside in _entries(document, place, value).items():
            here = (*place, name)
            try:
                if not name:
                    raise JobError(f"the name of a {self.name} is empty")
                if self.check is not None:
                    self.check(name)
            except HedgerowError as problem:
                raise JobError(f"{document.where(*here)}: {problem}") from None
            found[name] = self.entry.read(document, here, inside)
        return found

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        names = {"propertyNames": {"minLength": 1}, "additionalProperties": self.entry.schema()}
        return {"type": "object", "description": _sentence(self.help), **names}


@dataclass(frozen=True)
class Table:
    """A section, or a whole file: its keys, and the sections inside it."""

    help: str
    entries: Mapping[str, Key | Each | Table | Anything]
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key -> those that must be there beside it."""

    def read(self, document: Document, place: Place = (), value: Any = None) -> dict[str, Any]:
        """The checked values of the keys that are there."""
        if not place:
            document, value = replace(document, format=self), document.content
        given = _entries(document, place, value)
        around = f"in [{'.'.join(place)}]" if place else "at the top"
        for name, inside in given.items():
            if name not in self.entries:
                what = "section or key" if not place or isinstance(inside, dict) else "key"
                there = f" {around}" if place else ""
                way_out = document.belongs(name) or hint(name, self.entries)
                raise JobError(f"{document.where(*place, name)}: unknown {what} {plain(name)!r}{there}{way_out}")
        for name in self._needed(given):
            if name not in given:
                raise JobError(f"{document.where(*place)}: {name} is missing {around}: {self.entries[name].help}")
        return {name: self.entries[name].read(document, (*place, name), inside) for name, inside in given.items()}

    def _needed(self, given: Iterable[str]) -> list[str]:
        always = [name for name, entry in self.entries.items() if isinstance(entry, Key | Each) and entry.needed]
        return always + [name for key in given for name in self.together.get(key, ())]

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        found: dict[str, Any] = {"type": "object", "description": _sentence(self.help), "additionalProperties": False}
        found["properties"] = {name: entry.schema() for name, entry in self.entries.items()}
        if needed := self._needed(()):
            found["required"] = needed
        if self.together:
            found["dependentRequired"] = {name: list(others) for name, others in self.together.items()}
        return found

    def sections(self, place: Place = ()) -> Iterator[tuple[Place, Table]]:
        """(heading, table) of this table and those inside, as a reference page has them."""
        yield place, self
        for name, entry in self.entries.items():
            here, inside = (*place, name), entry
            if isinstance(inside, Each):
                here, inside = (*here, f"<{inside.name}>"), inside.entry
            if isinstance(inside, Table):
                yield from inside.sections(here)


@dataclass(frozen=True)
class Anything:
    """A section whose keys are somebody else's affair: text, numbers, truth values, lists and tables of them."""

    help: str

    def read(self, document: Document, place: Place, value: Any) -> dict[str, Any]:
        """The values as they are; JobError for dates and times, which JSON lacks."""
        found = _entries(document, place, value)
        for name, inside in found.items():
            if not _is_plain(inside):
                where = document.where(*place, name)
                raise JobError(f"{where}: {plain(name)} must not hold a date or a time; write it as text, in quotes")
        return found

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "object", "description": _sentence(self.help)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int | float | bool)


def _entries(document: Document, place: Place, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    name = ".".join(place)
    raise JobError(f"{document.where(*place)}: {place[-1]} must be a section, written [{name}], got {_sort(value)}")


def _sort(value: Any) -> str:
    """What a value is, without saying it: where a section belongs there may stand an address with a password."""
    return {str: "text", bool: "a truth value", list: "a list"}.get(type(value), "a number or date")


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
