"""Real data to try things on: one dataset shipped with the package, others from a folder of your own.

Those that are not shipped are Parquet files in the folder that the environment variable HEDGEROW_DATA names. Some tests
and benchmarks use larger public datasets whose licences do not allow passing them on. Whoever has them puts
`covtype.parquet` and the like into one folder and sets HEDGEROW_DATA to it; without it those tests are skipped.
Nothing is ever downloaded.
"""

from __future__ import annotations

import os
from pathlib import Path

from hedgerow.datasets.adult import Adult, adult_schema, load_adult
from hedgerow.errors import HedgerowError, InvalidParameter

__all__ = ["Adult", "DatasetNotFound", "adult_schema", "find_dataset", "load_adult"]

VARIABLE = "HEDGEROW_DATA"


class DatasetNotFound(HedgerowError, FileNotFoundError):
    """A dataset that is not on this machine: says where it was looked for and what to do."""


def find_dataset(name: str) -> Path:
    """The path of `name`.parquet in the folder that HEDGEROW_DATA names."""
    stem = name.removesuffix(".parquet")
    if not stem or stem != Path(stem).name or stem in {".", ".."} or "\\" in stem:
        raise InvalidParameter(f"name must be the plain name of a dataset, such as 'covtype', got {name!r}")
    folder = _folder(stem)
    path = folder / f"{stem}.parquet"
    if not path.is_file():
        present = ", ".join(sorted(file.stem for file in folder.glob("*.parquet"))) or "no dataset at all"
        raise DatasetNotFound(f"the folder that {VARIABLE} names has no {path.name}; it has {present}")
    return path


def _folder(wanted: str) -> Path:
    value = os.environ.get(VARIABLE)
    if not value:
        raise DatasetNotFound(
            f"dataset {wanted!r} is not shipped with hedgerow: set the environment variable {VARIABLE} to a folder "
            f"that holds {wanted}.parquet"
        )
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DatasetNotFound(f"{VARIABLE} must name a folder of Parquet files, but {value!r} is no folder")
    return folder
