"""Datasets of one's own are found by name, and each way of not finding one is explained."""

from __future__ import annotations

import pytest

from hedgerow.datasets import DatasetNotFound, find_dataset
from hedgerow.errors import HedgerowError, InvalidParameter


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two (empty) datasets, named by HEDGEROW_DATA."""
    for name in ("covtype", "higgs"):
        (tmp_path / f"{name}.parquet").touch()
    monkeypatch.setenv("HEDGEROW_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["covtype", "covtype.parquet"])
def test_found_with_or_without_ending(folder, name):
    """A dataset is found by its name, with the ending or without."""
    assert find_dataset(name) == folder / "covtype.parquet"


def test_unset_variable_is_explained(monkeypatch):
    """Without HEDGEROW_DATA the error names the variable and the file that is wanted."""
    monkeypatch.delenv("HEDGEROW_DATA", raising=False)
    with pytest.raises(DatasetNotFound, match=r"set the environment variable HEDGEROW_DATA .* covtype\.parquet"):
        find_dataset("covtype")


def test_variable_that_is_no_folder_is_explained(tmp_path, monkeypatch):
    """A HEDGEROW_DATA that points nowhere is quoted in the error."""
    monkeypatch.setenv("HEDGEROW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DatasetNotFound, match="nowhere' is no folder"):
        find_dataset("covtype")


@pytest.mark.usefixtures("folder")
def test_absent_dataset_lists_what_is_there():
    """A name that is not in the folder is answered with the names that are."""
    with pytest.raises(DatasetNotFound, match=r"no adlut\.parquet; it has covtype, higgs"):
        find_dataset("adlut")


@pytest.mark.parametrize("name", ["", ".parquet", "..", "../covtype", "a/b", "a\\b"])
@pytest.mark.usefixtures("folder")
def test_only_plain_names(name):
    """A name cannot lead out of the folder."""
    with pytest.raises(InvalidParameter, match="plain name of a dataset"):
        find_dataset(name)


def test_error_can_be_caught_as_file_not_found():
    """The error is one of ours and also what Python users expect for a missing file."""
    assert issubclass(DatasetNotFound, HedgerowError)
    assert issubclass(DatasetNotFound, FileNotFoundError)
