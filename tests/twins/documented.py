"""What pages of the documentation show: their blocks of code, at whose desk each belongs, and which verbs there are."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import typer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:\w*\$ )?(?:(?:runuser|kubectl) .* -- )?(hedgerow .*)")
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
    for language, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        at = _AT.match(text)
        file, party, remark = at.groups() if at else (None, None, None)
        found.append(Block(language, party, file, remark, text))
    return found


def commands_in(text: str) -> list[list[str]]:
    """The words of all commands of ours in the blocks of a page: without prompts, remarks, and what they are run by.

    A remark comes after a `#`, or after two spaces or more.
    """
    shown = [block for language, block in BLOCK.findall(text) if language in ("", "console", "text")]
    matches = [_COMMAND.fullmatch(line.strip()) for block in shown for line in block.splitlines()]
    return [shlex.split(re.split(r"\s{2,}", match[1])[0], comments=True) for match in matches if match]


def commands_of(page: str) -> list[list[str]]:
    """Those of a page of the repository."""
    return commands_in((ROOT / page).read_text(encoding="utf-8"))


@cache
def options_of(*verb: str) -> frozenset[str]:
    """The options that a verb takes; empty if there is no such verb."""
    from hedgerow.cli import app

    command = typer.main.get_command(app)
    for name in verb:
        command = getattr(command, "commands", {}).get(name)
    return (
        frozenset(name for each in command.params for name in (*each.opts, *each.secondary_opts))
        if command is not None
        else frozenset()
    )
