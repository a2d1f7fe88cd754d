"""What a user saves: written whole or not at all, for nobody else to read; and read as if anybody had written it.

Writing is `whole_folder`, reading is `damage_told`:

    with whole_folder(place, known=("run.json", "ledgers/*.jsonl")) as partial:
        (partial / "run.json").write_text(...)             # becomes `place` when all went well

    with damage_told("runs/first holds no saved run"):
        Job(**json.loads(text))                            # whatever it trips over is an InvalidInput
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter

# --- writing ---------------------------------------------------------------------------------------------------------


def private_folder(place: Path) -> Path:
    """A folder that only its owner can look into; those above it that are not there are made the same way."""
    missing = [folder for folder in (place, *place.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    return place


def write_private(path: Path, text: str) -> None:
    """A new file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def to_disk(path: Path) -> None:
    """Have what is in a file, or the names in a folder, outlive a machine that stops."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_folder(place: str | Path, known: Sequence[str]) -> Iterator[Path]:
    """A folder to write to that becomes `place` when all went well, and disappears otherwise.

    What was in `place` is replaced as a whole, if every file in it is one of the `known` (patterns of paths); a folder
    that holds anything else is refused. In the end folders have mode 700 and files 600, and all is on the disk. If the
    machine stops between the last two steps, the old folder lies whole beside the place, under a name with a dot.
    """
    target = Path(place).resolve()
    _check_replaceable(target, known)
    private_folder(target.parent)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.new-"))
    try:
        yield partial
        _seal(partial)
        _check_replaceable(target, known)
        _put(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_replaceable(target: Path, known: Sequence[str]) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInput(f"{target} is a file; choose another folder to save to")
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if path.is_symlink() or (not path.is_dir() and not any(fnmatchcase(name, pattern) for pattern in known)):
            raise InvalidInput(
                f"{target} is not replaced: it holds {name}, which is not part of what is saved there; choose another "
                "folder, or move that file away"
            )


def _seal(folder: Path) -> None:
    """Take all rights from others, and put everything on the disk."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
        to_disk(path)


def _put(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old-"))
    target.rename(old)  # onto a folder that is empty: one step
    try:
        partial.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


# --- reading ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def damage_told(sentence: str, kind: type[HedgerowError] = InvalidInput) -> Iterator[None]:
    """Whatever reading trips over in a file that holds something else than it should, as one error about the file."""
    try:
        yield
    except InvalidParameter as problem:  # nobody passed one: it stands in the file
        raise kind(f"{sentence}: {problem}") from problem
    except HedgerowError:
        raise
    except Exception as problem:  # what a wrong value in a file leads to cannot be listed
        text = " ".join(str(problem).split())[:200]
        plain = isinstance(problem, OSError | ValueError) and text
        raise kind(f"{sentence}: {text if plain else f'{type(problem).__name__} {text}'}") from problem


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, for use inside `damage_told`."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not an object")  # noqa: TRY004 - to a reader of files it is a wrong value
    return found
