"""Folders that are written whole or not at all, and what replaces what."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.federation.run import Run
from hedgerow.runtime.saved_files import whole_folder

KNOWN = ("about.json", "parts/*.txt")
TREES = {"n_estimators": 2, "max_depth": 2}


def contents(folder):
    """Path -> text of every file in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write(place, name):
    """Save two files that belong together."""
    with whole_folder(place, KNOWN) as partial:
        (partial / "parts").mkdir()
        (partial / "parts" / f"{name}.txt").write_text(name)
        (partial / "about.json").write_text(name)


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    """Nothing of the old one stays, nothing else is left beside it, and only its owner can look into it."""
    place = tmp_path / "new" / "place"
    write(place, "one")
    write(place, "two")
    assert contents(place) == {"parts/two.txt": "two", "about.json": "two"}
    assert [path.name for path in place.parent.iterdir()] == ["place"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in [place, *place.rglob("*")]}
    assert modes == {"place": 0o700, "parts": 0o700, "two.txt": 0o600, "about.json": 0o600}
    assert place.parent.stat().st_mode & 0o777 == 0o700


def test_a_failure_leaves_the_old_folder_as_it_was(tmp_path):
    """Half of the new one is gone, all of the old one is there."""
    write(tmp_path / "place", "one")
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "place", "half\ud800")
    assert contents(tmp_path) == {"place/parts/one.txt": "one", "place/about.json": "one"}


@pytest.mark.parametrize("name", ["thesis.txt", "parts/notes.md", "parts/more/one.json", ".git"])
def test_folders_with_other_files_are_refused(tmp_path, name):
    """Before anything is written, with the name of the file that would be lost."""
    place = tmp_path / "place"
    write(place, "one")
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(InvalidInput, match=f"is not replaced: it holds {name}, which is not part of"):
        write(place, "two")
    assert contents(tmp_path) == before


def test_links_and_files_are_refused(tmp_path):
    """A link may lead to what nobody wants to replace; a file is no folder."""
    write(tmp_path / "place", "one")
    (tmp_path / "place" / "parts" / "linked.txt").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match=r"it holds parts/linked\.txt"):
        write(tmp_path / "place", "two")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is a file"):
        write(tmp_path / "file", "two")


@pytest.fixture(scope="module")
def runs():
    """A recorded run of matched customers, and a plain one of three owners."""
    rng = np.random.default_rng(0)
    ids = [f"c{k}" for k in range(60)]
    bank = pd.DataFrame({"id": ids, "income": rng.normal(size=60)})
    shop = pd.DataFrame({"id": ids[::-1], "basket": rng.normal(size=60)})
    companies = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", rng.integers(0, 2, 60)), id="id")
    rows = {name: (rng.normal(size=(30, 2)), rng.integers(0, 2, 30)) for name in ("ash", "elm", "oak")}
    edges = {"basket": [-1.0, 0.0, 1.0]}
    return (
        companies.fit("vertical.bucket_rr", epsilon=4.0, edges=edges, record=True, **TREES),
        Federation.horizontal(rows).fit("horizontal.secure_sum", **TREES),
    )


def test_a_run_that_is_saved_over_another_does_not_mix_with_it(runs, tmp_path):
    """Neither ledgers, nor the model, nor the matching, nor transcripts of the other one stay; both ways round."""
    vertical, horizontal = runs
    for first, second in (runs, runs[::-1]):
        first.save(tmp_path / "run")
        second.save(tmp_path / "run")
        second.save(tmp_path / "fresh")
        assert {p.relative_to(tmp_path / "run") for p in (tmp_path / "run").rglob("*")} == {
            p.relative_to(tmp_path / "fresh") for p in (tmp_path / "fresh").rglob("*")
        }
        assert Run.load(tmp_path / "run").protocol == second.protocol
    vertical.model.save(tmp_path / "model")
    vertical.model.save(tmp_path / "model")
    vertical.alignment.save(tmp_path / "model_2")
    with pytest.raises(InvalidInput, match="is not replaced: it holds"):
        vertical.alignment.save(tmp_path / "model")
    with pytest.raises(InvalidInput, match="is not replaced: it holds"):
        horizontal.save(tmp_path / "model")


def test_a_recording_starts_in_an_empty_folder(runs, tmp_path):
    """Transcripts of a new run are not written into a folder that holds another."""
    _, horizontal = runs
    horizontal.save(tmp_path / "run")
    rows = (np.zeros((9, 1)), [0, 1, 0] * 3)
    federation = Federation.horizontal({"ash": rows, "elm": rows, "oak": rows})
    with pytest.raises(InvalidParameter, match="record must be a folder that is new or empty"):
        federation.fit("horizontal.secure_sum", record=tmp_path / "run", **TREES)
    run = federation.fit("horizontal.secure_sum", record=tmp_path / "other", **TREES)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o700
    frames = {name: list(run.transcript(name)) for name in run.transcripts}
    run.save(tmp_path / "other")
    assert {name: list(Run.load(tmp_path / "other").transcript(name)) for name in run.transcripts} == frames
