"""Files that were flipped, cut, or written by somebody else: a HedgerowError or a usable object, and nothing else."""

from __future__ import annotations

import copy
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation, Schema
from hedgerow.cli.job_file import read_job
from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.federation.alignment import Alignment
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.privacy.events import Exponential
from hedgerow.transport.transcripts import Transcript

DEEP = "[" * 20_000 + "]" * 20_000
ODD = (None, True, -1, 10**400, 1e308, "", "../../x", [], {}, [[]], {"a": 1})
N_FLIPS, N_CUTS, N_CHANGES = 15, 4, 40  # of each file


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One of each kind, by name: a folder or file to damage, and how it is used."""
    place = tmp_path_factory.mktemp("saved")
    rng = np.random.default_rng(0)
    ids = [f"c{k}" for k in range(60)]
    bank = pd.DataFrame({"id": ids, "income": rng.normal(size=60)})
    shop = pd.DataFrame({"id": ids[::-1], "basket": rng.normal(size=60)})
    companies = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", rng.integers(0, 2, 60)), id="id")
    options = {"n_estimators": 2, "max_depth": 2, "record": True}
    run = companies.fit("vertical.bucket_rr", epsilon=4.0, edges={"basket": [-1.0, 0.0, 1.0]}, **options)
    run.save(place / "vertical")
    run.alignment.save(place / "alignment")
    run.model.save(place / "model")
    rows = {name: (rng.normal(size=(30, 2)), rng.integers(0, 2, 30)) for name in ("ash", "elm", "oak")}
    Federation.horizontal(rows).fit("horizontal.secure_sum", **options).save(place / "horizontal")
    run.transcript("shop").save(place / "shop.frames")
    public = {"bounds": {"age": (0, 120)}, "levels": {"sex": ["f", "m"]}, "integers": ["age"], "classes": [0, 1]}
    Schema.from_public(**public).save(place / "schema.json")
    (place / "job.toml").write_text(
        '[data]\ntrain = "a.csv"\nlabel = "y"\ndrop = ["id"]\n[model]\nmax_iter = 5\nlearning_rate = 0.1\n'
        '[privacy]\nepsilon = 1.0\nschema = "s.json"\n'
    )
    budget = BudgetFile(place / "budget")
    with budget.open("rows", 1.0, 1e-6).reserve(Exponential(1.0, 0.5), what="a test"):
        pass
    return place


def use_run(path):
    """Load a run and ask it for all that the command line asks for."""
    run = Run.load(path)
    run.reconcile()
    run.statement()
    for book in run.ledgers.values():
        book.to_text()
    for party in run.transcripts:
        list(run.transcript(party))
    if run.alignment is not None:
        run.alignment.reconcile()


def use_budget(path):
    """Open a budget file and charge it."""
    with BudgetFile(path).dataset("rows").reserve(Exponential(1.0, 0.1), what="more"):
        pass


USES = {
    "vertical": use_run,
    "horizontal": use_run,
    "alignment": lambda path: Alignment.load(path).reconcile(),
    "model": VerticalModel.load,
    "shop.frames": lambda path: list(Transcript.open(path)),
    "schema.json": Schema.load,
    "job.toml": lambda path: read_job(path, {}, {}),
    "budget": use_budget,
}


def survives(use, path):
    """Whether it can be used; anything but our own error is passed on."""
    try:
        use(path)
    except HedgerowError:
        return False
    return True


def places_in(document, path=()):
    """The path to every value in a JSON document."""
    yield path
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        yield from places_in(value, (*path, key))


def changed(document, path, value):
    """The document with another value in one place, or without that place."""
    if not path:
        return value
    document = copy.deepcopy(document)
    *above, last = path
    at = document
    for key in above:
        at = at[key]
    if value is ODD:
        del at[last]
    else:
        at[last] = value
    return document


def damaged(data, rng, suffix):
    """One damaged version of a file after the other."""
    for place in rng.integers(0, len(data), N_FLIPS).tolist():
        yield data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
    for size in rng.integers(0, len(data), N_CUTS).tolist():
        yield data[:size]
    yield data + data
    if suffix in (".json", ".jsonl"):
        yield DEEP.encode()
        yield b"\xff\xfe{}"
        whole = json.loads(data) if suffix == ".json" else json.loads(data.splitlines()[0])
        rest = b"" if suffix == ".json" else b"\n" + b"\n".join(data.splitlines()[1:])
        places = list(places_in(whole))
        for number in rng.integers(0, len(places), N_CHANGES).tolist():
            value = (*ODD, ODD)[int(rng.integers(len(ODD) + 1))]
            if places[number] or value is not ODD:
                yield json.dumps(changed(whole, places[number], value)).encode() + rest
    if suffix == ".toml":
        text = data.decode()
        yield f"deep = {DEEP}".encode()
        for odd in ("1" * 400, "1" * 5000, DEEP, "nan", "-1e999", "[1, [2]]", "{a = 1}", "1979-05-27"):
            for old in ("1.0", "5", "0.1", '"y"', '["id"]', '"a.csv"'):
                yield text.replace(f"= {old}\n", f"= {odd}\n", 1).encode()


@pytest.mark.parametrize("kind", USES)
def test_no_damage_raises_anything_but_our_own_errors(saved, tmp_path, kind):
    """Flipped bits, cuts, wrong types, deep nesting, huge numbers, in files of every kind of thing that is saved."""
    source, use, rng = saved / kind, USES[kind], np.random.default_rng(len(kind))
    target = tmp_path / kind
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    assert survives(use, target)
    files = [target] if target.is_file() else [path for path in sorted(target.rglob("*")) if path.is_file()]
    if use is use_run:  # two of each folder; models and alignments have their own turn
        each = [sorted(target.glob(pattern))[:2] for pattern in ("*.json", "ledgers/*", "transcripts/*")]
        files = [path for group in each for path in group]
    outcomes = []
    for file in files:
        whole = (source / file.relative_to(target) if source.is_dir() else source).read_bytes()
        for data in damaged(whole, rng, file.suffix):
            file.write_bytes(data)
            outcomes.append(survives(use, target))
        file.write_bytes(whole)
    assert not all(outcomes)


# --- the budget file -------------------------------------------------------------------------------------------------


def test_no_flipped_bit_lowers_what_was_spent(tmp_path):
    """Each bit of the row that says what was spent: either the file is refused, or it still says the same."""
    path = tmp_path / "budget"
    rows = BudgetFile(path).open("rows", 1.0, 1e-6)
    with rows.reserve(Exponential(1.0, 0.5), what="the only one"):
        pass
    whole = path.read_bytes()
    start = whole.index(b"the only one") - 80
    refused = 0
    for place in range(start, start + 200):
        for bit in (0, 3, 6):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            try:
                assert BudgetFile(path).dataset("rows").spent() == (0.5, 0.0)
            except InvalidInput:
                refused += 1
    assert refused > 200


def test_a_changed_entry_is_refused_also_by_who_has_the_file_open(tmp_path):
    """Reading, charging and settling all look at the seal first; the error says that nothing is known any more."""
    path = tmp_path / "budget"
    rows = BudgetFile(path).open("rows", 1.0, 1e-6)
    with rows.reserve(Exponential(1.0, 0.5), what="the only one") as held:
        connection = sqlite3.connect(path)
        connection.execute("UPDATE entries SET epsilon = 0.25")
        connection.commit()
        connection.close()
        with pytest.raises(InvalidInput, match="does not agree with its seal"):
            held.settle(Exponential(1.0, 0.1))
        for use in (rows.spent, rows.entries, lambda: BudgetFile(path)):
            with pytest.raises(InvalidInput, match="does not agree with its seal"):
                use()
        connection = sqlite3.connect(path)
        connection.execute("UPDATE entries SET epsilon = 0.5")
        connection.commit()
        connection.close()
    assert rows.spent() == (0.5, 0.0)


def test_an_unsealed_file_of_the_version_before_is_sealed_once(tmp_path):
    """It keeps its entries; a sealed file whose version was damaged is not taken for one."""
    path = tmp_path / "budget"
    with BudgetFile(path).open("rows", 1.0, 1e-6).reserve(Exponential(1.0, 0.5), what="before"):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(InvalidInput, match="already exists"):
        BudgetFile(path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE seal")
    connection.close()
    assert BudgetFile(path).dataset("rows").spent() == (0.5, 0.0)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE datasets SET epsilon = 100.0")
    connection.commit()
    connection.close()
    with pytest.raises(InvalidInput, match="does not agree with its seal"):
        BudgetFile(path)


# --- names that lead elsewhere ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../secret", "/etc", "..", "a/b", "", 3, None])
def test_names_in_files_cannot_leave_their_folder(saved, tmp_path, name):
    """Of parties in a run, its transcripts, a model in parts and an alignment."""
    elsewhere = tmp_path / "secret"
    shutil.copytree(saved / "vertical" / "model" / "shop", elsewhere)
    for kind, file, path in [
        ("vertical", "run.json", ("parties", 1)),
        ("vertical", "run.json", ("recorded", 1)),
        ("model", "parties.json", ("parties", 1)),
        ("alignment", "alignment.json", ("job", "parties", 1)),
    ]:
        target = tmp_path / kind / "-".join(map(str, path))
        shutil.copytree(saved / kind, target)
        document = json.loads((target / file).read_text())
        (target / file).write_text(json.dumps(changed(document, path, name)))
        with pytest.raises(HedgerowError, match=r"a party's name|parties must have different names"):
            USES[kind](target)


def test_what_is_saved_is_for_its_owner_alone(saved):
    """Folders 700, files 600, whatever the process would give to new ones."""
    for kind in ("vertical", "horizontal", "alignment", "model"):
        for path in [saved / kind, *(saved / kind).rglob("*")]:
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for path in (saved / "budget", saved / "shop.frames", saved / "vertical" / "model" / "bank" / "part.json"):
        assert Path(path).stat().st_mode & 0o777 == 0o600
