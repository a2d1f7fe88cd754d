"""One file per figure or table: `cells` says what is trained, `report` how the results are shown."""

from __future__ import annotations

from types import ModuleType

from experiments.central_dp.tables import appendix_c, figure2, figure3, peers, table2, table3

TABLES: dict[str, ModuleType] = {
    "figure2": figure2,
    "figure3": figure3,
    "table3": table3,
    "appendix_c": appendix_c,
    "peers": peers,
    "table2": table2,  # last: the others may run on a busy machine, this one may not
}
