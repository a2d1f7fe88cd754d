"""Real data to try things on: one dataset shipped with the package, others from a folder of your own."""

from __future__ import annotations

from hedgerow.datasets.adult import Adult, adult_schema, load_adult
from hedgerow.datasets.folder import DatasetNotFound, find_dataset

__all__ = ["Adult", "DatasetNotFound", "adult_schema", "find_dataset", "load_adult"]
