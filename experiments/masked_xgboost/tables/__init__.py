"""One file per figure or table: `cells` says what is trained, `report` how the results are shown."""

from __future__ import annotations

from types import ModuleType

from experiments.masked_xgboost.tables import equal, figure4, figure7, figure8, figure9, table3

TABLES: dict[str, ModuleType] = {
    "figure4": figure4,  # and 5, 11 and 12
    "equal": equal,  # not in the paper
    "figure7": figure7,  # and 13
    "figure8": figure8,  # and 14
    "figure9": figure9,  # and 15
    "table3": table3,  # last: the others may run on a busy machine, this may not
}
