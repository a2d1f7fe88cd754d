"""One file per figure or table: `cells` says what is trained, `report` how the results are shown."""

from __future__ import annotations

from types import ModuleType

from experiments.mp_fedxgb.tables import (
    attack,
    costs,
    equality,
    figure4,
    figure5,
    section62,
    sensitivity,
    table2,
    table3,
)

TABLES: dict[str, ModuleType] = {
    "table2": table2,
    "table3": table3,
    "sensitivity": sensitivity,
    "equality": equality,
    "costs": costs,
    "attack": attack,
    "section62": section62,  # these three last: the others may run on a busy machine, these may not
    "figure4": figure4,
    "figure5": figure5,
}
