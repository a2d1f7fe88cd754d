"""Texts that a peer wrote, made fit to be shown in an error or a log."""

from __future__ import annotations

MOST_CHARACTERS = 300


def plain(text: str) -> str:
    """The text without control characters, and without those that hide or turn round others, cut to a bearable length.

    A peer must not be able to write lines of its own into a log, to move the cursor or to colour a terminal.
    """
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: MOST_CHARACTERS + 1])
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 3] + "..."
