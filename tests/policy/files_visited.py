"""How many files of the package a call walks through: run it by hand to see which.

    python tests/policy/files_visited.py            # numbers and names
    python tests/policy/files_visited.py --json     # for the test

A file is visited if one of its functions is entered, in whichever thread, during the second call: the first one
imports, compiles and warms up. Compiled kernels are not seen, since they run below Python; those who call them are.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import hedgerow

PACKAGE = Path(hedgerow.__file__).parent


class Visits:
    """Notes the files whose functions are entered, while `watching`.

    It is in place before the first thread starts, because a profiler reaches only threads that begin after it is set.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = f"{folder}/"
        self.seen: set[str] = set()
        self.watching = False
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """What the interpreter calls at every function's beginning and end."""
        if self.watching and event == "call" and frame.f_code.co_name != "<module>":
            self.seen.add(frame.f_code.co_filename)

    def of(self, call: Callable[[], Any]) -> list[str]:
        """The files visited by the second of two calls, from the folder on."""
        call()
        self.seen.clear()
        self.watching = True
        call()
        self.watching = False
        return sorted(name.removeprefix(self.folder) for name in self.seen if name.startswith(self.folder))


def measure() -> dict[str, list[str]]:
    """The files visited by a vertical training and by the prediction of 100 rows."""
    visits = Visits(PACKAGE)
    from hedgerow import Federation
    from hedgerow.datasets import adult_schema, load_adult

    table, labels = load_adult("train")
    table, labels = table.slice(0, 400), labels[:400]
    bank, shop = table.select(["age", "education"]), table.select(["occupation", "hours-per-week"])
    schema = adult_schema()

    def fit() -> Any:
        companies = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", labels))
        return companies.fit("vertical.bucket_rr", epsilon=4, schema=schema, n_estimators=3, max_depth=3)

    model = fit().model
    rows = {"bank": bank.slice(0, 100), "shop": shop.slice(0, 100)}
    return {"fit": visits.of(fit), "predict_proba": visits.of(lambda: model.predict_proba(rows))}


if __name__ == "__main__":
    found = measure()
    if "--json" in sys.argv[1:]:
        json.dump(found, sys.stdout)
    else:
        for call, files in found.items():
            print(f"{call}: {len(files)} files", *files, sep="\n  ")  # noqa: T201 - printing is what it is for
