"""Small tables with every kind of column, and rows made from them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.schema import Schema

COLUMNS = {
    "bounds": {"age": (0, 90), "income": (-1000.0, 50_000.0), "noise": (0.0, 1.0)},
    "levels": {"town": ["a", "b", "c"], "stars": [1, 2, 3]},
    "integers": ["age"],
    "may_be_missing": ["income", "town"],
}
CLASSIFIED = Schema.from_public(**COLUMNS, classes=["no", "yes"])
SORTED = Schema.from_public(**COLUMNS, classes=["low", "middle", "high", "none"])
MEASURED = Schema.from_public(**COLUMNS, label_bounds=(-4.0, 6.0))


def people(n, seed=0):
    """A frame that fits both schemas, and an effect that depends on most columns and on one pair of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 91, n),
            "income": np.round(rng.exponential(9000, n), 2) - 500,
            "noise": rng.random(n),
            "town": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
            "stars": rng.integers(1, 4, n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    frame["town"] = frame["town"].where(rng.random(n) >= 0.05, None)
    effect = np.sin(frame["age"] / 12) + 1.5 * (frame["town"] == "c") + (frame["income"].fillna(2e4) > 12_000)
    effect = effect + 0.8 * (frame["stars"] == 3) * (frame["age"] > 45) - 1
    return frame, effect.to_numpy()


def classified(n, seed=0):
    """A frame and labels "no" and "yes"."""
    frame, effect = people(n, seed)
    chance = 1 / (1 + np.exp(-2 * effect))
    return frame, np.where(np.random.default_rng(seed + 1).random(n) < chance, "yes", "no")


def sorted_into(n, seed=0):
    """A frame and one of three labels, of four that the schema lists."""
    frame, effect = people(n, seed)
    effect = effect + np.random.default_rng(seed + 1).normal(0, 0.4, n)
    return frame, np.array(["low", "middle", "high"])[np.digitize(effect, [-0.5, 0.7])]


def measured(n, seed=0):
    """A frame and numbers, a few of them outside the stated bounds."""
    frame, effect = people(n, seed)
    return frame, effect + np.random.default_rng(seed + 1).normal(0, 1, n)


@pytest.fixture
def frame_of():
    """The function `people`."""
    return people


@pytest.fixture
def many():
    """(schema, function from n and seed to rows) for four classes, of which three occur."""
    return SORTED, lambda n=400, seed=0: PrivateRows.read(*sorted_into(n, seed), SORTED, multiclass=True)


@pytest.fixture
def tables():
    """{loss: (schema, function from n and seed to a frame and labels)}."""
    return {"logistic": (CLASSIFIED, classified), "squared": (MEASURED, measured), "softmax": (SORTED, sorted_into)}


@pytest.fixture(params=["logistic", "squared"])
def task(request):
    """(schema, function from n and seed to rows) for both losses."""
    schema, make = (CLASSIFIED, classified) if request.param == "logistic" else (MEASURED, measured)
    return schema, lambda n=400, seed=0, **options: PrivateRows.read(*make(n, seed), schema, **options)
