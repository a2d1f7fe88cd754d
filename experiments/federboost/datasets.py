"""The datasets: all columns as numbers, how rows are split, who has which columns, and edges in round numbers.

Levels of adult are numbered in the order of its public schema and taken for numbers by every method alike, because a
column may have more levels than buckets. Missing values stay missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from experiments.central_dp import datasets as central
from hedgerow.schema import CategoricalColumn, Schema

Floats = NDArray[np.float64]


class Trees(NamedTuple):
    """What is grown."""

    n_trees: int
    depth: int


TREES = {
    "give_me_some_credit": Trees(20, 3),
    "default_credit_card": Trees(20, 3),
    "susy_30k": Trees(60, 4),
    "adult": Trees(20, 3),
}
"""The paper's three with the paper's trees (it has 290,000 rows of SUSY), and adult."""

PARTIES = ("label_holder", "second", "third")
COLUMN_ORDER = 123
"""Seed of the one order in which columns are dealt out, where nothing else is said."""
N_SPLITS = 5


@dataclass(frozen=True)
class Dataset:
    """All columns as numbers, missing ones as NaN, and labels 0 and 1, in the order of the file."""

    name: str
    X: Floats
    y: Floats
    columns: tuple[str, ...]

    def table(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> pa.Table:
        """Some rows of some columns."""
        return pa.table({self.columns[c]: self.X[rows, c] for c in columns})


@lru_cache(maxsize=2)
def load(name: str) -> Dataset:
    """The whole dataset."""
    data = central.load(name)
    columns = []
    for column in data.schema.columns:
        values = data.X.column(column.name)
        if isinstance(column, CategoricalColumn):
            places = {level: float(place) for place, level in enumerate(column.levels)}
            columns.append(np.array([places.get(level, np.nan) for level in values.to_pylist()]))
        else:
            columns.append(values.cast(pa.float64()).to_numpy())
    return Dataset(name, np.column_stack(columns), data.y, tuple(data.X.column_names))


def rows_of(n_rows: int, split: str, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two thirds to train and one third to test: in the order of the "file", or drawn at "random" with `index`."""
    n_train = 2 * n_rows // 3
    order = np.arange(n_rows) if split == "file" else np.random.default_rng(index).permutation(n_rows)
    return order[:n_train], order[n_train:]


def columns_of(n_columns: int, order: int = COLUMN_ORDER, n_parties: int = 3) -> dict[str, NDArray[np.int64]]:
    """Columns in a random order; the first share is the label holder's, the rest is dealt out to the others."""
    shuffled = np.random.default_rng(order).permutation(n_columns)
    n_own = round(n_columns / n_parties)
    names = PARTIES if n_parties == len(PARTIES) else tuple(f"party_{i + 1}" for i in range(n_parties))
    shares = [shuffled[:n_own], *np.array_split(shuffled[n_own:], n_parties - 1)]
    return dict(zip(names, shares, strict=True))


# --- edges in round numbers ------------------------------------------------------------------------------------------

_LATE = (1, 2, 3, 4, 5, 10)
_BILL = (0, 1, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 150_000, 200_000, 300_000)
_PAID = (1, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000)
_POSITIVE = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.3, 1.6, 2, 2.5, 3, 4)
_ANGLE = tuple(np.arange(-1.5, 1.75, 0.25).tolist())
_COSINE = tuple((np.arange(1, 16) / 10).tolist())


def _whole(low: int, high: int) -> tuple[int, ...]:
    return tuple(range(low, high + 1))


ROUND_EDGES: dict[str, dict[str, tuple[float, ...]]] = {
    "give_me_some_credit": {
        "RevolvingUtilizationOfUnsecuredLines": (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5),
        "age": tuple(range(25, 85, 5)),
        "NumberOfTime30-59DaysPastDueNotWorse": _LATE,
        "NumberOfTime60-89DaysPastDueNotWorse": _LATE,
        "NumberOfTimes90DaysLate": _LATE,
        "DebtRatio": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2, 10, 100, 1_000),
        "MonthlyIncome": (
            1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 10_000, 12_000, 15_000, 20_000,
        ),
        "NumberOfOpenCreditLinesAndLoans": (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20),
        "NumberRealEstateLoansOrLines": _whole(1, 5),
        "NumberOfDependents": _whole(1, 5),
    },
    "default_credit_card": {
        "LIMIT_BAL": (
            20_000, 30_000, 50_000, 80_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 500_000,
        ),
        "SEX": (2,),
        "EDUCATION": _whole(1, 6),
        "MARRIAGE": _whole(1, 3),
        "AGE": tuple(range(25, 65, 5)),
        **{f"PAY_{i}": _whole(-1, 8) for i in (0, 2, 3, 4, 5, 6)},
        **{f"BILL_AMT{i}": _BILL for i in range(1, 7)},
        **{f"PAY_AMT{i}": _PAID for i in range(1, 7)},
    },
    "susy_30k": {
        **dict.fromkeys(("lepton_1_eta", "lepton_1_phi", "lepton_2_eta", "lepton_2_phi", "missing_energy_phi"), _ANGLE),
        **dict.fromkeys(("dPhi_r_b", "cos_theta_r1"), _COSINE),
        **dict.fromkeys(
            ("lepton_1_pT", "lepton_2_pT", "missing_energy_magnitude", "MET_rel", "M_R", "M_TR_2", "R", "MT2", "S_R",
             "M_Delta_R"),
            _POSITIVE,
        ),
        "axial_MET": (-3, -2, -1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2, 3),
    },
    "adult": {
        "age": tuple(range(20, 75, 5)),
        "workclass": _whole(1, 7),
        "fnlwgt": (50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 500_000),
        "education": _whole(1, 15),
        "education-num": _whole(2, 16),
        "marital-status": _whole(1, 6),
        "occupation": _whole(1, 13),
        "relationship": _whole(1, 5),
        "race": _whole(1, 4),
        "sex": (1,),
        "capital-gain": (1, 2_000, 3_000, 4_000, 5_000, 7_000, 10_000, 15_000, 20_000),
        "capital-loss": (1, 1_000, 1_500, 1_800, 2_000, 2_500),
        "hours-per-week": (10, 20, 30, 35, 40, 41, 45, 50, 60),
        "native-country": (10, 20, 30, 38, 39),
    },
}  # fmt: skip
"""What somebody who knows what the columns mean might write down without the file; at most 15 for each column."""

MAY_BE_MISSING = {
    "give_me_some_credit": ("MonthlyIncome", "NumberOfDependents"),
    "adult": ("workclass", "occupation", "native-country"),
}


def round_edges(name: str) -> tuple[dict[str, tuple[float, ...]], Schema]:
    """Edges, and a schema that says which columns may have gaps."""
    edges = ROUND_EDGES[name]
    schema = Schema.from_public(
        bounds={column: (float(given[0]) - 1.0, float(given[-1]) + 1.0) for column, given in edges.items()},
        may_be_missing=MAY_BE_MISSING.get(name, ()),
    )
    return edges, schema
