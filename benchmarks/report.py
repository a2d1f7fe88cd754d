"""Reports: seconds to write one, and its size, after a run of 64 owners and 200 trees.

The books are those of such a run as `horizontal.secure_sum` writes them, made up without training: what a report costs
depends on their length alone. Medians over repetitions; the bars are 1 second and 2 MB.

    python benchmarks/report.py                              64 owners, 200 trees of depth 5
    python benchmarks/report.py --owners 8 --trees 1000      another run
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from hedgerow.ledger import Kind, Ledger, Result, SecureSum
from hedgerow.report.sections import page
from hedgerow.report.told import Passed, Told
from hedgerow.statement import Statement

HISTOGRAM = Kind("horizontal.masked_histogram", 1, "sums of bins", SecureSum("x").protection)
STEP = Kind("horizontal.next_step", 1, "where nodes are split", Result("x").protection)
MOST_SECONDS, MOST_BYTES = 1.0, 2_000_000


def books(n_owners: int, n_trees: int, depth: int = 5) -> tuple[dict[str, str], dict[str, Ledger]]:
    """Cast and ledgers."""
    cast = {"coordinator": "coordinator", **{f"owner_{k:02d}": "owner" for k in range(n_owners)}}
    found = {party: Ledger(party) for party in cast}
    for _ in range(n_trees * depth):
        for owner in list(cast)[1:]:
            for sender, receiver, kind, size in (
                (owner, "coordinator", HISTOGRAM, 24_000),
                ("coordinator", owner, STEP, 700),
            ):
                found[sender].write("disclosed", receiver, kind, size)
                found[receiver].write("learned", sender, kind, size)
    return cast, found


def main() -> int:
    """Measure, print, and fail if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--owners", type=int, default=64)
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    cast, ledgers = books(given.owners, given.trees)
    stated = Statement("horizontal.secure_sum", ("One.", "Two.", "Three.", "Four."), ("All are honest.",))
    worst = 0.0
    for party in (None, "coordinator", "owner_00"):
        seconds, size = [], 0
        for _ in range(given.repetitions):
            own = ledgers if party is None else {party: ledgers[party]}
            started = time.perf_counter()
            facts = Told(
                title=f"Report of {party}",
                subtitle="",
                protocol="horizontal.secure_sum",
                party=party,
                trained=["One model."],
                cast=cast,
                passed=[Passed("The training", "horizontal.secure_sum", cast, own)],
                statement=stated,
            )
            size = len(page(facts).html.encode())
            seconds.append(time.perf_counter() - started)
        lines = sum(map(len, own.values()))
        print(f"{party or 'all parties'}: {lines:,} lines, {statistics.median(seconds):.3f} s, {size:,} bytes")
        worst = max(worst, statistics.median(seconds) / MOST_SECONDS, size / MOST_BYTES)
    print("within the bars" if worst <= 1 else "a bar is missed")
    return worst > 1


if __name__ == "__main__":
    sys.exit(main())
