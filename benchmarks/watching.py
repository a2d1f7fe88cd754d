"""What it costs a run that it can be watched: default_credit_card between two parties, with and without.

    python benchmarks/watching.py [--repetitions 5] [--trees 40] [--protocol vertical.noised_gradients]

Three ways take turns: a run that writes down nothing of what passes, one that does, and one that does while
`hedgerow watch` serves its page to a client that reads all events. Both parties are threads of one process, so that
whatever the writing costs, costs the run. Told are medians of seconds from the first message to the model, their
ratios, and, because a busy machine moves seconds by more than that, the processor time of the writing threads as a
share of the run's own. The bar: 2%.
Needs HEDGEROW_DATA.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hedgerow.node import playing
from hedgerow.node.home import Home
from hedgerow.node.passing import Passing
from hedgerow.node.playing import read_run
from twins.organisations import job_text, make_home, pair_all, proposed, trained
from twins.watched import watching

BAR = 0.02
PARTIES = {"bank": "label holder", "shop": "feature holder"}
written: list[float] = []
"""Processor seconds of writing threads."""


class Timed(Passing):
    """Writes as always, and says how long that kept a processor busy."""

    def _write_on(self) -> None:
        super()._write_on()
        written.append(time.thread_time())


@contextlib.contextmanager
def watched(home: Path, way: str) -> Iterator[None]:
    """Somebody watches, if that is the way."""
    if way != "watched":
        yield
        return
    with watching(Home(home)) as address:
        place, _, token = address.partition("#")
        asked = urllib.request.Request(f"{place}events", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own port
        with urllib.request.urlopen(asked) as stream:  # noqa: S310 - our own port
            reader = threading.Thread(target=lambda: list(stream), daemon=True)  # as an open page does: until it ends
            reader.start()
            yield
    reader.join()


def run(folder: Path, way: str, protocol: str, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the training, and processor seconds of the process meanwhile."""
    table = pq.read_table(Path(os.environ["HEDGEROW_DATA"]) / "default_credit_card.parquet")
    names = [name for name in table.column_names if name != "label"]
    half = len(names) // 2
    homes = {
        "bank": make_home(folder, "bank", table.select([*names[:half], "label"]), listens=True, label="label"),
        "shop": make_home(folder, "shop", table.select(names[half:]), listens=False),
    }
    for home in homes.values():
        home.party_toml.write_text(home.party_toml.read_text().replace('id = "customer"\n', ""))
    pair_all(homes)
    proposal = proposed(homes["bank"], job_text(protocol, options, PARTIES, matching=False))
    playing.Passing = (lambda *_: contextlib.nullcontext()) if way == "unwritten" else Timed
    with watched(homes["bank"].path, way):
        busy = time.process_time()
        folders = trained(homes, proposal)
        busy = time.process_time() - busy
    return float(read_run(folders["bank"])["seconds"]), busy


def main() -> None:
    """Measure in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--trees", type=int, default=40)
    parser.add_argument("--protocol", default="vertical.noised_gradients")
    given = parser.parse_args()
    if "HEDGEROW_DATA" not in os.environ:
        raise SystemExit("this benchmark needs HEDGEROW_DATA, a folder with default_credit_card.parquet")
    options = {"n_estimators": given.trees, "max_depth": 6, "max_bins": 64, "learning_rate": 0.1, "random_state": 1}
    if given.protocol == "vertical.noised_gradients":
        options |= {"epsilon": 8.0, "delta": 1e-6}
    seconds: dict[str, list[float]] = {"unwritten": [], "written": [], "watched": []}
    shares = []
    for number in range(given.repetitions + 1):
        for way, found in seconds.items():
            written.clear()
            with tempfile.TemporaryDirectory() as folder:
                took, busy = run(Path(folder), way, given.protocol, options)
            if number:  # the first time compiles
                found.append(took)
                shares += [sum(written) / busy] if written else []
                print(f"{way:10} {took:.2f} s, writing {sum(written):.3f} of {busy:.1f} processor seconds")
    medians = {way: statistics.median(found) for way, found in seconds.items()}
    share = statistics.median(shares)
    ratios = {way: medians[way] / medians["unwritten"] for way in ("written", "watched")}
    print(f"medians {medians}, ratios {ratios}; writing takes {share:.2%} of the run's processor time, bar {BAR:.0%}")


if __name__ == "__main__":
    main()
