"""Table 2 of the paper: secure products that finding one node's best split takes. Counted, nothing is trained."""

from __future__ import annotations

import math
from pathlib import Path

from experiments.central_dp.show import table
from experiments.mp_fedxgb.cells import Cell
from experiments.mp_fedxgb.tables.common import Results
from hedgerow.crypto.tournament import Plan
from hedgerow.engine.losses import BoostingParams
from hedgerow.protocols.published.mp_fedxgb.argmax import rounds
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import Shape

SIZES = {(16, 8): (10_496, 468), (16, 16): (20_992, 612), (32, 16): (41_984, 1_197)}
"""Columns and buckets of each -> the paper's figures: with division, and without."""

FRACTIONS, ITERATIONS = 2, 20
"""Of a loss reduction; of Newton's method for the reciprocal of a denominator, by the paper's test."""
PRODUCTS_OF_A_PAIR = 9
"""By the paper's Equation 7."""
PRODUCTS_OF_A_CANDIDATE, PRODUCTS_OF_A_COMPARISON = 5, 2
"""GL^2, GR^2, these with HR and HL, HL HR; and P_i Q_j, P_j Q_i."""
N_ROWS = 10_000


def cells(*, quick: bool) -> list[Cell]:
    """None: it is counted."""
    del quick
    return []


def report(results: Results, folder: Path, link: str) -> str:
    """One line per size."""
    del results, folder, link
    rows = []
    for (n_columns, n_buckets), paper in SIZES.items():
        n_candidates = n_columns * n_buckets
        pairs = n_compared(n_columns, n_buckets)
        plan = our_plan(n_columns, n_buckets)
        ours = sum(level.n_groups * level.n_pairs for level in plan.levels())
        local = PRODUCTS_OF_A_CANDIDATE * n_candidates
        rows.append([
            f"J = {n_columns}, K = {n_buckets}",
            f"{with_division(n_columns, n_buckets):,} ({paper[0]:,})",
            f"{without_division(n_columns, n_buckets):,} ({paper[1]:,})",
            f"{PRODUCTS_OF_A_PAIR * pairs:,}",
            f"{local + PRODUCTS_OF_A_COMPARISON * pairs:,}",
            f"{pairs:,} / {len(rounds([n_buckets] * n_columns))}",
            f"{ours:,} / {sum(1 for _ in plan.levels())}",
            f"{local + PRODUCTS_OF_A_COMPARISON * ours:,}",
            f"{len(plan.openings())}",
        ])  # fmt: skip
    header = [
        "", "paper, division (as printed)", "paper, no division (as printed)", "paper, every pair counted",
        "the paper's pairs, our products", "the paper's pairs / levels", "`minimal`: pairs / levels",
        "`minimal`: products", "`minimal`: rounds",
    ]  # fmt: skip
    return table(header, rows)


def with_division(n_columns: int, n_buckets: int) -> int:
    """Two fractions for each candidate, each by Newton's method."""
    return FRACTIONS * (2 * ITERATIONS + 1) * n_columns * n_buckets


def without_division(n_columns: int, n_buckets: int) -> int:
    """The paper's count: all pairs of a column that are compared at the same time are one product."""
    return PRODUCTS_OF_A_PAIR * (n_columns * math.ceil(math.log2(n_buckets)) + math.ceil(math.log2(n_columns)))


def n_compared(n_columns: int, n_buckets: int) -> int:
    """Pairs that are really compared, in the published order."""
    return sum(each.n_pairs for each in rounds([n_buckets] * n_columns))


def our_plan(n_columns: int, n_buckets: int) -> Plan:
    """The tournament for one node, if all columns are foreign; the label holder's candidate is one more."""
    job = SecretSharedJob(("P1", "P2"), "P1", "", boosting=BoostingParams(max_depth=3, min_child_weight=0.0))
    cuts = (n_columns * n_buckets,)
    return Shape(N_ROWS, cuts, cuts, Scales.of(job, N_ROWS)).plan(0)
