r"""Model files of any known kind, recognised by their first bytes.

The reader of one kind checks what follows, and only it does:

    {"format": "hedgerow-model", ...      our own (`model_file.py`)
    {"learner": ..., "version": ...       XGBoost's JSON (`import_xgboost.py`)
    {L..., {i...                          XGBoost's UBJSON: a length follows the brace
    tree\nversion=v4 ...                  LightGBM's text (`import_lightgbm.py`)
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.import_lightgbm import import_lightgbm
from hedgerow.engine.import_xgboost import import_xgboost
from hedgerow.errors import ModelFileError

# A file that begins like XGBoost's and is damaged further on is told as a damaged file of XGBoost's.
_XGBOOST = re.compile(rb'\s*\{\s*("version"\s*:\s*\[[\d,\s]{0,40}\]\s*,\s*)?"learner"')
_UBJSON = re.compile(rb"\{[iUIlL]")
_LIGHTGBM = re.compile(rb"tree\r?\nversion=")


def load_ensemble(path: str | PathLike[str]) -> Ensemble:
    """The model in a file of Hedgerow, XGBoost or LightGBM.

    ModelFileError names the file and what is wrong with it, or what of it cannot be expressed here.
    """
    content = Path(path).read_bytes()
    if _LIGHTGBM.match(content):
        read = import_lightgbm
    elif _XGBOOST.match(content) or _UBJSON.match(content):
        read = import_xgboost
    else:
        return Ensemble.load(path)
    try:
        return read(content)
    except ModelFileError as problem:
        raise ModelFileError(f"{path}: {problem}") from None
