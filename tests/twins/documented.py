"""What pages of the documentation show: their blocks of code, at whose desk each belongs, and which verbs there are."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import typer

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
_AT = re.compile(r"# (?:([\w.]+), )?at the (\w+)(?:, (.+))?")


class Block(NamedTuple):
    """One block: its language, what its first line says of where it belongs, and the text.

    "# job.toml, at the bank": a file of the bank. "# at the bank, with a partner": the rest is a remark.
    """

    language: str
    party: str | None
    file: str | None
    remark: str | None
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its lines as words of a shell, without comments."""
        lines = (line.removeprefix("$ ") for line in self.text.splitlines())
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: str) -> list[Block]:
    """All blocks of a page of docs/, in order."""
    found = []
    for language, text in _BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        at = _AT.match(text)
        file, party, remark = at.groups() if at else (None, None, None)
        found.append(Block(language, party, file, remark, text))
    return found


@cache
def options_of(*verb: str) -> frozenset[str]:
    """The options that a verb takes; empty if there is no such verb."""
    from hedgerow.cli import app

    command = typer.main.get_command(app)
    for name in verb:
        command = getattr(command, "commands", {}).get(name)
    return frozenset(name for each in command.params for name in each.opts) if command is not None else frozenset()
