"""What a run between nodes costs beside the same run by processes of one program: vertical.secret_shared.

    python benchmarks/nodes.py [--repetitions 3] [--trees 10] [--json FILE]

Both are timed from the first message of the training to the model; reading, matching and compiling are left out. The
two take turns, so that whatever else the machine does meets both. The dataset is default_credit_card, which needs
HEDGEROW_DATA. The bar: nodes take at most 1.2 times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hedgerow import Federation
from twins.organisations import agreed_by_all, job_text, make_home, pair_all, proposed

BAR = 1.2
PARTIES = {"bank": "label holder", "shop": "feature holder", "notary": "dealer"}


def tables() -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
    """Columns of the bank, with labels, and of the shop, and the labels."""
    table = pq.read_table(Path(os.environ["HEDGEROW_DATA"]) / "default_credit_card.parquet")
    names = [name for name in table.column_names if name != "label"]
    half = len(names) // 2
    return table.select([*names[:half], "label"]), table.select(names[half:]), table.column("label")


def between_nodes(folder: Path, bank: pa.Table, shop: pa.Table, options: dict[str, Any]) -> float:
    """Seconds that the label holder's role took, each party a process of its own."""
    homes = {
        "bank": make_home(folder, "bank", bank, listens=True, label="label"),
        "shop": make_home(folder, "shop", shop, listens=False),
        "notary": make_home(folder, "notary", None, listens=True),
    }
    for home in homes.values():
        home.party_toml.write_text(home.party_toml.read_text().replace('id = "customer"\n', ""))
    pair_all(homes)
    proposal = proposed(homes["bank"], job_text("vertical.secret_shared", options, PARTIES, matching=False))
    agreed_by_all(homes, proposal)
    command = [sys.executable, "-m", "hedgerow.cli", "run", "--json", "--home"]
    running = [
        subprocess.Popen([*command, str(home.path)], stdout=subprocess.PIPE)  # noqa: S603 - our own command
        for home in homes.values()
    ]
    told = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit(f"a party failed: {told}")
    return json.loads(told[0])["seconds"]


def one_program(bank: pa.Table, shop: pa.Table, labels: pa.ChunkedArray, options: dict[str, Any]) -> float:
    """Seconds of the same training by processes of this program."""
    data = {"bank": bank.drop_columns(["label"]), "shop": shop}
    federation = Federation.vertical(data, labels=("bank", labels))
    return federation.fit("vertical.secret_shared", transport="grpc", n_jobs=-1, **options).seconds


def main() -> None:
    """Measure in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if "HEDGEROW_DATA" not in os.environ:
        raise SystemExit("this benchmark needs HEDGEROW_DATA, a folder with default_credit_card.parquet")
    bank, shop, labels = tables()
    options = {"n_estimators": given.trees, "max_depth": 4, "max_bins": 32, "learning_rate": 0.3, "random_state": 1}
    seconds: dict[str, list[float]] = {"nodes": [], "one program": []}
    for number in range(given.repetitions + 1):
        with tempfile.TemporaryDirectory() as folder:
            times = between_nodes(Path(folder), bank, shop, options), one_program(bank, shop, labels, options)
        if number:  # the first time compiles
            seconds["nodes"].append(times[0])
            seconds["one program"].append(times[1])
            print(f"nodes {times[0]:.2f} s, one program over gRPC {times[1]:.2f} s")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["nodes"] / medians["one program"]
    print(f"medians {medians}, ratio {ratio:.2f}, bar {BAR}: {'met' if ratio <= BAR else 'missed'}")
    if given.json:
        given.json.write_text(json.dumps({"seconds": seconds, "ratio": ratio}, indent=1))


if __name__ == "__main__":
    main()
