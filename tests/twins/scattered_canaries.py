"""Canaries anywhere within a schema, for audits with one run."""

from __future__ import annotations

import numpy as np

from hedgerow.attacks.central.canaries import Canary
from hedgerow.errors import InvalidInput
from hedgerow.schema import CategoricalColumn, NumericColumn, Schema


def canaries_for(schema: Schema, n: int, rng: np.random.Generator) -> list[Canary]:
    """`n` random records anywhere within the schema, labels included, for an audit with one run.

    They lie scattered, each mostly alone: canaries that share a leaf would hide one another.
    """
    columns = [
        [column.levels[k] for k in rng.integers(0, len(column.levels), n)]
        if isinstance(column, CategoricalColumn)
        else _scattered(column, n, rng)
        for column in schema.columns
    ]
    if schema.classes is not None:
        labels = [schema.classes[k] for k in rng.integers(0, len(schema.classes), n)]
    elif schema.label_bounds is not None:
        labels = [schema.label_bounds[k] for k in rng.integers(0, 2, n)]
    else:
        raise InvalidInput("a canary needs a label: the schema must state classes or label_bounds")
    records = zip(*columns, strict=True)
    return [Canary(values, label) for values, label in zip(records, labels, strict=True)]


def _scattered(column: NumericColumn, n: int, rng: np.random.Generator) -> list[float]:
    values = rng.uniform(column.low, column.high, n)
    return [float(value) for value in (np.rint(values) if column.integer else values)]
