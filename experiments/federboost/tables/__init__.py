"""One file per figure or table: `cells` says what is trained, `report` how the results are shown."""

from __future__ import annotations

from types import ModuleType

from experiments.federboost.tables import bars, divisions, edges, figure5, times

TABLES: dict[str, ModuleType] = {
    "bars": bars,
    "figure5": figure5,
    "edges": edges,
    "divisions": divisions,
    "times": times,  # last: the others may run on a busy machine, this one may not
}
