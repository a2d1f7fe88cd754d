"""Section 6.2 of the paper: homomorphic encryption beside secret sharing, for 10,000 x 10 and 3 trees of depth 3.

The paper has formulas, and times of single operations to put into them. Here are the same formulas with the times of
the same package on this machine, and real trainings.
"""

from __future__ import annotations

import math
from pathlib import Path

from experiments.central_dp.show import table
from experiments.mp_fedxgb.cells import ELGAMAL, MINIMAL, OU, PAILLIER, PAPER, PHE, Cell, Result
from experiments.mp_fedxgb.tables.common import Results, chosen, measured, median, seconds
from experiments.mp_fedxgb.tables.runs import BUCKETS, DATASET
from experiments.phe_operations import phe_is_there

N_ROWS, N_COLUMNS, TREES, DEPTH, N_PARTIES = 10_000, 10, 3, 3, 4
ENCRYPT, DECRYPT, PRODUCT = 0.01, 0.19, 0.0005
"""The paper's seconds of one: with a key of 1,024 bits, and of one multiplication of shares."""
KEY_BITS = (1024, 2048)
REPETITIONS = {MINIMAL: 3, PAPER: 3, ELGAMAL: 3, OU: 1, PAILLIER: 1}


def by_formula(encrypt: float, decrypt: float, times_encrypted: int = 1) -> float:
    """Seconds with encryption, half of the columns foreign; the paper encrypts once, and counts no additions."""
    nodes = TREES * (2**DEPTH - 1)
    return 2 * N_ROWS * times_encrypted * encrypt + nodes * N_COLUMNS * BUCKETS * decrypt


def by_formula_on_shares() -> float:
    """Seconds of the paper's own protocol."""
    of_a_node = 2 * N_COLUMNS + 9 * N_COLUMNS * math.ceil(math.log2(BUCKETS)) + 9 * math.ceil(math.log2(N_COLUMNS)) + 14
    return (TREES * (2**DEPTH - 1) * of_a_node + N_PARTIES * N_ROWS * (TREES - 1)) * PRODUCT


def cells(*, quick: bool) -> list[Cell]:
    """Trainings in memory, and a sample of phe's operations where it is installed."""
    size = {"rows": N_ROWS, "columns": N_COLUMNS, "trees": TREES, "depth": DEPTH}
    wanted = {MINIMAL: 1, ELGAMAL: 1} if quick else REPETITIONS
    trained = [
        Cell(DATASET, method, index=index, buckets=BUCKETS, transport="memory", **size)  # type: ignore[arg-type]  # numbers by name
        for method, repetitions in wanted.items()
        for index in range(repetitions)
    ]
    sampled = [] if quick or not phe_is_there() else [Cell("", PHE, key_bits=bits) for bits in KEY_BITS]
    return trained + sampled


def report(results: Results, folder: Path, link: str) -> str:
    """Formulas with their times, then what was trained."""
    del folder, link
    found = results["section62"]
    counted = [_counted("encryption, the paper's times (1,024 bits)", ENCRYPT, DECRYPT)]
    for result in chosen(found, method=PHE):
        name = f"the same package here, {result.cell.key_bits:,} bits"
        counted.append(_counted(name, result.measures["encrypt"], result.measures["decrypt"]))
    counted.append(["MP-FedXGB, the paper's time of a product", "", "", seconds(by_formula_on_shares()), ""])
    trained = [row for row in (_trained(found, method) for method in REPETITIONS) if any(row[1:])]
    heading = ["by the paper's formulas", "ms to encrypt", "ms to decrypt", "seconds", "seconds, every tree encrypted"]
    return "\n\n".join([
        table(heading, counted),
        table(["trained, in memory", "seconds", "processor seconds", "MB, all parties", "rounds"], trained),
    ])  # fmt: skip


def _counted(name: str, encrypt: float, decrypt: float) -> list[str]:
    whole = [by_formula(encrypt, decrypt, times) for times in (1, TREES)]
    return [name, f"{encrypt * 1e3:.3g}", f"{decrypt * 1e3:.3g}", *map(seconds, whole)]


def _trained(found: list[Result], method: str) -> list[str]:
    time, busy, sent, rounds = (
        median(measured(found, what, method=method)) for what in ("seconds", "processor", "bytes", "rounds")
    )
    megabytes = "" if sent is None else f"{sent / 1e6:,.1f}"
    return [method, seconds(time), seconds(busy), megabytes, "" if rounds is None else f"{rounds:.0f}"]
