"""What the published protocol's openings tell whom: `hedgerow.attacks.mp_fedxgb.argmax_opened`, see attacking.py."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.methods import published_is_there
from experiments.mp_fedxgb.tables.common import Results, lines_of, table_of_lines

ATTACK = "hedgerow.attacks.mp_fedxgb.argmax_opened"


def cells(*, quick: bool) -> list[Cell]:
    """One, of which each line is an attack; none if this version has no published protocol to attack."""
    return [Cell("", "attack", quick=quick)] if published_is_there() and find_spec(ATTACK) else []


def report(results: Results, folder: Path, link: str) -> str:
    """One line per attack."""
    del folder, link
    return table_of_lines(lines_of(results["attack"]))
