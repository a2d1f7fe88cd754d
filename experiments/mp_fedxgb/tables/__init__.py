"""One file per figure or table: `cells` says what is trained, `report` how the results are shown."""

from __future__ import annotations

from types import ModuleType

from experiments.mp_fedxgb.tables import attack, costs, equality, figure4, figure5, sensitivity, table2, table3

TABLES: dict[str, ModuleType] = {
    "table2": table2,
    "table3": table3,
    "sensitivity": sensitivity,
    "equality": equality,
    "costs": costs,
    "attack": attack,
    "figure4": figure4,  # these two last: the others may run on a busy machine, these may not
    "figure5": figure5,
}
